//! What one worktree may change of what all of a repository share.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::{AfterTree, Bounds, Class, IdShift, LayerPaths, XattrFlavour, changes};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567\n";

fn put(top: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let file = top.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
}

/// A repository whose main worktree has `main` checked out, `wt` has `work`, and `other` is at
/// work on `deep/one`; with what a layer over it has.
fn layer(files: &[(&str, &str)]) -> (tempfile::TempDir, LayerPaths) {
    let top = tempfile::tempdir().unwrap();
    let host = top.path().join("host");
    for directory in ["upper", "work"] {
        fs::create_dir(top.path().join(directory)).unwrap();
    }
    let before = [
        ("HEAD", "ref: refs/heads/main\n"),
        ("index", "i"),
        ("packed-refs", "p"),
        ("logs/HEAD", "l"),
        ("logs/refs/heads/work", "l"),
        ("refs/heads/main", COMMIT),
        ("refs/heads/work", COMMIT),
        ("refs/tags/one", COMMIT),
        ("objects/aa/0123456789abcdef0123456789abcdef012345", "o"),
        ("worktrees/wt/HEAD", "ref: refs/heads/work\n"),
        ("worktrees/wt/index", "i"),
        ("worktrees/wt/ORIG_HEAD", COMMIT),
        ("worktrees/other/HEAD", COMMIT),
        (
            "worktrees/other/rebase-merge/head-name",
            "refs/heads/deep/one\n",
        ),
    ];
    put(&host, &before);
    put(&top.path().join("upper"), files);
    let paths = LayerPaths {
        before: host,
        after: AfterTree::Overlay {
            upper: top.path().join("upper"),
            work: top.path().join("work"),
            xattrs: XattrFlavour::User,
        },
        since: std::time::SystemTime::now(),
        ids: IdShift::None,
    };
    (top, paths)
}

/// The paths that wait for a yes, and the others.
fn classes(paths: &LayerPaths, worktree: Option<&str>) -> (Vec<String>, Vec<String>) {
    let mut set = changes(paths, &Bounds::default()).unwrap();
    set.classify_repository(worktree.map(OsStr::new), paths);
    let (mut control, mut other) = (Vec::new(), Vec::new());
    for change in &set.changes {
        assert_eq!(change.reason.is_some(), change.class == Class::Control);
        match change.class {
            Class::Control => control.push(change.path.to_string()),
            Class::Ordinary => other.push(change.path.to_string()),
            Class::Cache | Class::Ignored => panic!("{}", change.path),
        }
    }
    (control, other)
}

/// How one file of the layer is classed.
fn is_control(file: &str, text: &str, worktree: Option<&str>) -> bool {
    let (_top, paths) = layer(&[(file, text)]);
    let (control, other) = classes(&paths, worktree);
    let all = control.iter().chain(&other);
    assert!(all.clone().any(|path| path == file), "{file}: {all:?}");
    control.iter().any(|path| path == file)
}

#[test]
fn what_a_commit_writes_is_the_worktrees_own() {
    let pack = "objects/pack/pack-0123456789abcdef0123456789abcdef01234567";
    for (file, text) in [
        ("objects/bb/0123456789abcdef0123456789abcdef012345", "o"),
        ("objects/aa/ff23456789abcdef0123456789abcdef012345", "o"),
        (&format!("{pack}.pack"), "p"),
        (&format!("{pack}.idx"), "p"),
        (
            "refs/heads/work",
            "ff23456789abcdef0123456789abcdef01234567\n",
        ),
        ("refs/heads/target/node_modules", COMMIT),
        ("refs/heads/.cache", COMMIT),
        ("logs/refs/heads/work", "more"),
        ("logs/refs/heads/new", "new"),
        ("worktrees/wt/HEAD", "ref: refs/heads/new\n"),
        ("worktrees/wt/HEAD", COMMIT),
        ("worktrees/wt/index", "other"),
        ("worktrees/wt/sharedindex.0123", "other"),
        ("worktrees/wt/logs/HEAD", "new"),
        ("worktrees/wt/COMMIT_EDITMSG", "new"),
    ] {
        assert!(!is_control(file, text, Some("wt")), "{file}");
        // To another worktree, and where it is told of none, some of it is not its own.
        let is_private = file.starts_with("worktrees/");
        assert_eq!(
            is_control(file, text, Some("wt2")),
            is_private || file.ends_with("heads/work")
        );
    }
}

#[test]
fn what_others_rely_on_waits_for_a_yes() {
    for (file, text) in [
        ("hooks/post-commit", "h"),
        ("config", "c"),
        ("config.worktree", "c"),
        ("info/attributes", "a"),
        ("HEAD", "ref: refs/heads/new\n"),
        ("index", "other"),
        ("packed-refs", "other"),
        ("shallow", COMMIT),
        ("FETCH_HEAD", COMMIT),
        ("logs/HEAD", "less"),
        ("logs/refs/heads/main", "less"),
        ("modules/x/config", "c"),
        ("reftable/tables.list", "t"),
        (
            "refs/heads/main",
            "ff23456789abcdef0123456789abcdef01234567\n",
        ),
        ("refs/heads/MAIN", COMMIT),
        ("refs/heads/main/beneath", COMMIT),
        ("refs/heads/deep", COMMIT),
        ("refs/heads/deep/one", COMMIT),
        ("refs/heads/new", "ref: refs/heads/main\n"),
        ("refs/heads/new", "no digest\n"),
        ("refs/heads/new.lock", COMMIT),
        (
            "refs/replace/0123456789abcdef0123456789abcdef01234567",
            COMMIT,
        ),
        ("refs/remotes/origin/main", COMMIT),
        (
            "refs/tags/one",
            "ff23456789abcdef0123456789abcdef01234567\n",
        ),
        ("refs/stash", COMMIT),
        ("objects/info/alternates", "/a\n"),
        ("objects/info/commit-graph", "g"),
        ("objects/pack/multi-pack-index", "m"),
        ("objects/pack/pack-x.pack", "p"),
        (
            "objects/aa/0123456789abcdef0123456789abcdef012345",
            "changed",
        ),
        ("objects/AA/0123456789abcdef0123456789abcdef012345", "o"),
        ("objects/bb/0123456789abcdef0123456789abcdef0123456", "o"),
        ("worktrees/wt/HEAD", "ref: refs/heads/main\n"),
        ("worktrees/wt/HEAD", "ref: refs/tags/one\n"),
        ("worktrees/wt/gitdir", "/a\n"),
        ("worktrees/wt/commondir", "/a\n"),
        ("worktrees/wt/config.worktree", "c"),
        ("worktrees/wt/rebase-merge/git-rebase-todo", "exec x\n"),
        ("worktrees/wt/index.lock", ""),
        ("worktrees/wt2/HEAD", COMMIT),
        ("worktrees/other/HEAD", "ref: refs/heads/work\n"),
        ("worktrees/other/index", "other"),
    ] {
        assert!(is_control(file, text, Some("wt")), "{file}");
    }
}

#[test]
fn removals_links_and_permissions_wait_for_a_yes() {
    let (top, paths) = layer(&[]);
    let upper = top.path().join("upper");
    let whiteout = |name: &str| {
        let file = upper.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let kind = rustix::fs::FileType::CharacterDevice;
        let mode = rustix::fs::Mode::empty();
        rustix::fs::mknodat(rustix::fs::CWD, file, kind, mode, 0).unwrap();
    };
    for name in [
        "refs/heads/work",
        "packed-refs",
        "worktrees/wt/HEAD",
        "worktrees/wt/ORIG_HEAD",
    ] {
        whiteout(name);
    }
    whiteout("objects/aa/0123456789abcdef0123456789abcdef012345");
    symlink("main", upper.join("refs/heads/link")).unwrap();
    let (control, other) = classes(&paths, Some("wt"));
    assert_eq!(other, ["worktrees/wt/ORIG_HEAD"]);
    assert_eq!(control.len(), 5, "{control:?}");
}

/// A submodule's directory is the only checkout: what lies at the top is its own.
#[test]
fn the_only_checkout_has_its_own_at_the_top() {
    for (file, text) in [
        ("HEAD", "ref: refs/heads/new\n"),
        ("index", "other"),
        ("logs/HEAD", "more"),
        (
            "refs/heads/main",
            "ff23456789abcdef0123456789abcdef01234567\n",
        ),
    ] {
        assert!(!is_control(file, text, None), "{file}");
    }
    for (file, text) in [
        ("config", "c"),
        ("hooks/x", "h"),
        (
            "refs/heads/work",
            "ff23456789abcdef0123456789abcdef01234567\n",
        ),
        ("worktrees/wt/HEAD", COMMIT),
        ("HEAD", "ref: refs/heads/work\n"),
    ] {
        assert!(is_control(file, text, None), "{file}");
    }
}
