//! The changes that one worktree may make to what all of a repository share.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use sha1_checked::{Digest as _, Sha1};

use crate::{
    AfterTree, Bounds, Class, IdShift, LayerPaths, Selection, XattrFlavour, apply, changes,
    plan_apply, undo, undo_preview,
};

/// A loose object: its path, its name, and its compressed content.
pub(super) struct Object {
    pub path: String,
    pub name: String,
    pub stream: Vec<u8>,
}

pub(super) fn object(kind: &str, content: &[u8]) -> Object {
    let text = [format!("{kind} {}\0", content.len()).as_bytes(), content].concat();
    let name: String = Sha1::digest(&text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut stream = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    stream.write_all(&text).unwrap();
    Object {
        path: format!("objects/{}/{}", &name[..2], &name[2..]),
        name,
        stream: stream.finish().unwrap(),
    }
}

fn tree_of(name: &str, digits: &str) -> Object {
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    let id: Vec<u8> = (0..digits.len()).step_by(2).map(pair).collect();
    object(
        "tree",
        &[format!("100644 {name}\0").as_bytes(), &id].concat(),
    )
}

pub(super) fn commit_of(tree: &str, parents: &[&str], message: &str) -> Object {
    let by = "a <a@example.org> 1 +0000";
    let parents: String = parents.iter().map(|id| format!("parent {id}\n")).collect();
    let text = format!("tree {tree}\n{parents}author {by}\ncommitter {by}\n\n{message}\n");
    object("commit", text.as_bytes())
}

/// Returns a file, a tree and a commit after the one that the repository has: each needs the one
/// before.
pub(super) fn new() -> [Object; 3] {
    let blob = object("blob", b"new");
    let tree = tree_of("a", &blob.name);
    let commit = commit_of(&tree.name, &[&commit().name], "new");
    [blob, tree, commit]
}

pub(super) const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// Returns the commit that the repository has.
pub(super) fn commit() -> Object {
    commit_of(EMPTY_TREE, &[], "old")
}

/// Returns a log with one more entry.
pub(super) fn log(before: &str, id: &str) -> String {
    let zero = "0".repeat(40);
    format!(
        "{before}{zero} {} a <a@example.org> 1 +0000\tcommit\n",
        id.trim()
    )
}

pub(super) fn line(object: &Object) -> String {
    format!("{}\n", object.name)
}

pub(super) fn put(top: &Path, name: &str, text: &[u8]) {
    let file = top.join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

/// Makes a repository whose main worktree has `main` checked out, `wt` has `work`, and `other` is
/// working on `deep/one`, `deep/two` and, by another branch's name, `led`; with a layer of these
/// files over it.
pub(super) fn layer(files: &[(&str, &[u8])]) -> (tempfile::TempDir, LayerPaths) {
    let top = tempfile::tempdir().unwrap();
    let host = top.path().join("host");
    for directory in ["upper", "work"] {
        fs::create_dir(top.path().join(directory)).unwrap();
    }
    let commit = commit();
    let id = line(&commit);
    let packed = [
        "refs/heads/packed",
        "refs/remotes/packed-remote/x",
        "refs/tags/packed-tag",
    ];
    let packed = packed
        .map(|name| format!("{} {name}\n", commit.name))
        .concat();
    for (name, text) in [
        ("HEAD", "ref: refs/heads/main\n"),
        ("config", "[core]\n\tbare = false\n"),
        ("index", "i"),
        ("packed-refs", &packed),
        ("refs/remotes/origin/main", &id),
        ("logs/HEAD", "l"),
        ("logs/refs/heads/work", "l"),
        ("refs/heads/main", &id),
        ("refs/heads/work", &id),
        ("refs/heads/alias", "ref: refs/heads/led\n"),
        ("refs/heads/led", &id),
        ("refs/heads/free", &id),
        ("refs/heads/symbolic", "ref: refs/heads/free\n"),
        ("refs/tags/one", &id),
        ("worktrees/wt/HEAD", "ref: refs/heads/work\n"),
        ("worktrees/wt/index", "i"),
        ("worktrees/wt/ORIG_HEAD", &id),
        ("worktrees/other/HEAD", &id),
        ("worktrees/other/BISECT_START", "deep/two\n"),
        ("worktrees/third/HEAD", "ref: refs/heads/alias\n"),
        (
            "worktrees/other/rebase-merge/head-name",
            "refs/heads/deep/one\n",
        ),
    ] {
        put(&host, name, text.as_bytes());
    }
    put(&host, &commit.path, &commit.stream);
    for (name, text) in files {
        put(&top.path().join("upper"), name, text);
    }
    let paths = LayerPaths {
        put_back: None,
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

/// Returns the paths that wait for approval, and the others.
pub(super) fn classes(paths: &LayerPaths, worktree: Option<&str>) -> (Vec<String>, Vec<String>) {
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

/// Returns whether one file of the layer is a control file, beside a new commit with all that it
/// needs.
fn is_control(file: &str, text: &[u8], worktree: Option<&str>) -> bool {
    let objects = new();
    let mut files: Vec<(&str, &[u8])> = objects
        .iter()
        .map(|one| (one.path.as_str(), one.stream.as_slice()))
        .collect();
    files.retain(|(path, _)| *path != file);
    files.push((file, text));
    let (_top, paths) = layer(&files);
    let (control, other) = classes(&paths, worktree);
    let all = control.iter().chain(&other);
    assert!(all.clone().any(|path| path == file), "{file}: {all:?}");
    control.iter().any(|path| path == file)
}

/// Returns an index of one file, as gitformat-index(5) has it.
pub(super) fn index(name: &str, object: &Object) -> Vec<u8> {
    let mut text = b"DIRC\0\0\0\x02\0\0\0\x01".to_vec();
    text.extend([0; 24]);
    text.extend(0o100_644_u32.to_be_bytes());
    text.extend([0; 12]);
    let pair = |at: usize| u8::from_str_radix(&object.name[at..at + 2], 16).unwrap();
    text.extend((0..40).step_by(2).map(pair));
    text.extend(u16::try_from(name.len()).unwrap().to_be_bytes());
    text.extend(name.as_bytes());
    let begun = text.len() - 12;
    text.extend(vec![0; 8 - begun % 8]);
    text.extend([0; 20]);
    text
}

#[test]
fn what_a_commit_writes_is_the_worktrees_own() {
    let [blob, tree, commit] = new();
    let id = line(&commit);
    let old = line(&self::commit());
    for (file, text) in [
        (blob.path.as_str(), blob.stream.as_slice()),
        (&tree.path, &tree.stream),
        (&commit.path, &commit.stream),
        ("refs/heads/work", id.as_bytes()),
        ("refs/heads/target/node_modules", old.as_bytes()),
        ("refs/heads/deeper", id.as_bytes()),
        ("logs/refs/heads/work", log("l", &id).as_bytes()),
        ("worktrees/wt/HEAD", b"ref: refs/heads/free\n"),
        ("worktrees/wt/HEAD", b"ref: refs/heads/packed\n"),
        ("worktrees/wt/HEAD", id.as_bytes()),
        ("worktrees/wt/index", &index("a", &blob)),
        ("worktrees/wt/logs/HEAD", log("", &id).as_bytes()),
        ("worktrees/wt/COMMIT_EDITMSG", b"new"),
    ] {
        assert!(!is_control(file, text, Some("wt")), "{file}");
        // To another worktree some of it is not its own.
        let is_private = file.starts_with("worktrees/");
        assert_eq!(
            is_control(file, text, Some("wt2")),
            is_private || file.ends_with("heads/work"),
            "{file}"
        );
    }
}

#[test]
fn what_others_rely_on_waits_for_a_yes() {
    let [blob, _, commit] = new();
    let id = line(&commit);
    let old = line(&self::commit());
    let missing = "0123456789abcdef".repeat(3)[..40].to_owned();
    let replace = format!("refs/replace/{}", commit.name);
    let pack = format!("objects/pack/pack-{}", commit.name);
    for (file, text) in [
        ("hooks/post-commit", "h"),
        ("config", "c"),
        ("config.worktree", "c"),
        ("info/attributes", "a"),
        ("HEAD", "ref: refs/heads/new\n"),
        ("index", "other"),
        ("packed-refs", "other"),
        ("shallow", &id),
        ("FETCH_HEAD", &id),
        ("logs/HEAD", "less"),
        ("logs/refs/heads/main", "less"),
        ("logs/refs/heads/work", &log("", &id)),
        ("logs/refs/heads/work", "lx"),
        ("logs/refs/heads/new", &log("", &id)),
        ("logs/refs/heads/free", &log("", &id)),
        ("logs/refs/heads/work", &log("l", &missing)),
        ("logs/refs/heads/work", &log("l", &line(&blob))),
        ("worktrees/wt/logs/HEAD", &log("", &missing)),
        ("modules/x/config", "c"),
        ("modules/x/index", "c"),
        ("reftable/tables.list", "t"),
        ("refs/heads/main", &id),
        ("refs/heads/MAIN", &id),
        ("refs/heads/main/beneath", &id),
        ("refs/heads/deep", &id),
        ("refs/heads/deep/one", &id),
        ("refs/heads/deep/two", &id),
        ("refs/heads/alias", &id),
        ("refs/heads/free", &id),
        ("refs/heads/packed", &id),
        ("refs/heads/Packed", &id),
        ("refs/heads/packed/beneath", &id),
        ("refs/heads/one", &id),
        ("refs/heads/packed-tag", &id),
        ("refs/heads/heads/main", &id),
        ("refs/heads/tags/new", &id),
        ("refs/heads/remotes/new", &id),
        ("refs/heads/refs/heads/new", &id),
        ("refs/heads/led", &id),
        ("refs/heads/symbolic", &id),
        ("refs/heads/origin/new", &id),
        ("refs/heads/packed-remote/new", &id),
        ("refs/heads/origin", &id),
        ("refs/heads/ORIG_HEAD", &id),
        ("refs/heads/0123abc", &id),
        ("refs/heads/.cache", &id),
        ("refs/heads/new..er", &id),
        ("refs/heads/new.lock", &id),
        ("refs/heads/new", "ref: refs/heads/free\n"),
        ("refs/heads/new", "no digest\n"),
        (
            "refs/heads/new",
            "0123456789abcdef0123456789abcdef01234567\n",
        ),
        ("refs/heads/new", &line(&blob)),
        ("refs/heads/new", commit.name.as_str()),
        ("refs/heads/new", &commit.name.to_uppercase()),
        ("refs/heads/new", &format!("{id}{id}")),
        (&replace, &old),
        ("refs/remotes/origin/main", &id),
        ("refs/tags/one", &id),
        ("refs/stash", &id),
        ("objects/info/alternates", "/a\n"),
        ("objects/info/commit-graph", "g"),
        ("objects/info/packs", "P x\n"),
        ("objects/pack/multi-pack-index", "m"),
        (&format!("{pack}.pack"), "p"),
        (&format!("{pack}.idx"), "p"),
        (&format!("{pack}.rev"), "p"),
        (&format!("{pack}.bitmap"), "p"),
        ("objects/aa/0123456789abcdef0123456789abcdef012345", "o"),
        ("objects/AA/0123456789abcdef0123456789abcdef012345", "o"),
        ("objects/bb/tmp_obj_x", "o"),
        (&self::commit().path, "changed"),
        (&commit.path, "changed"),
        ("worktrees/wt/HEAD", "ref: refs/heads/main\n"),
        ("worktrees/wt/HEAD", "ref: refs/heads/alias\n"),
        ("worktrees/wt/HEAD", "ref: refs/heads/symbolic\n"),
        ("worktrees/wt/HEAD", "ref: refs/heads/unborn\n"),
        ("worktrees/wt/HEAD", "ref: refs/heads/../../x\n"),
        ("worktrees/wt/HEAD", "ref: refs/tags/one\n"),
        ("worktrees/wt/HEAD", "ref: refs/heads/free\nmore\n"),
        (
            "worktrees/wt/HEAD",
            "0123456789abcdef0123456789abcdef01234567\n",
        ),
        ("worktrees/wt/ORIG_HEAD", "ref: refs/heads/main\n"),
        ("worktrees/wt/ORIG_HEAD", &id),
        ("worktrees/wt/MERGE_HEAD", &id),
        ("worktrees/wt/FETCH_HEAD", &id),
        ("worktrees/wt/MERGE_MSG", "m"),
        ("worktrees/wt/index", "other"),
        ("worktrees/wt/sharedindex.0123", "other"),
        ("worktrees/wt/gitdir", "/a\n"),
        ("worktrees/wt/commondir", "/a\n"),
        ("worktrees/wt/config.worktree", "c"),
        ("worktrees/wt/rebase-merge/git-rebase-todo", "exec x\n"),
        ("worktrees/wt/index.lock", ""),
        ("worktrees/wt2/HEAD", &id),
        ("worktrees/other/HEAD", "ref: refs/heads/work\n"),
        ("worktrees/other/index", "other"),
    ] {
        assert!(
            is_control(file, text.as_bytes(), Some("wt")),
            "{file} {text}"
        );
    }
}

/// Git writes the files that an index names at the next checkout, without checking the names again.
#[test]
fn a_worktrees_index_that_names_what_is_elsewhere_waits_for_a_yes() {
    let [blob, _, commit] = new();
    for (worktree, file) in [(Some("wt"), "worktrees/wt/index"), (None, "index")] {
        for (name, object, expected) in [
            ("a", &blob, false),
            ("src/a", &blob, false),
            (".git/hooks/post-checkout", &blob, true),
            ("../x", &blob, true),
            ("a", &tree_of("not", &commit.name), true),
        ] {
            let text = index(name, object);
            assert_eq!(is_control(file, &text, worktree), expected, "{file} {name}");
        }
    }
}

/// A commit without all that it needs is incomplete: a branch of it would be broken.
#[test]
fn what_misses_something_is_not_taken_over() {
    let objects = new();
    let [blob, tree, commit] = &objects;
    let id = line(commit);
    let head = b"ref: refs/heads/new\n".as_slice();
    let stage = index("a", blob);
    let named = [
        ("refs/heads/new", id.as_bytes()),
        ("worktrees/wt/HEAD", head),
        ("worktrees/wt/index", stage.as_slice()),
    ];
    let held = |left_out: Option<&Object>, spoilt: Option<&Object>| {
        let mut files = named.to_vec();
        for one in &objects {
            let is_left_out = left_out.is_some_and(|left| left.path == one.path);
            let is_spoilt = spoilt.is_some_and(|spoilt| spoilt.path == one.path);
            let stream = if is_spoilt {
                &blob.stream[1..]
            } else {
                &one.stream
            };
            if !is_left_out {
                files.push((one.path.as_str(), stream));
            }
        }
        let (_top, paths) = layer(&files);
        classes(&paths, Some("wt")).0
    };
    assert_eq!(held(None, None), [""; 0]);
    let all = ["refs/heads/new", "worktrees/wt/HEAD", "worktrees/wt/index"];
    let of_blob = held(Some(blob), None);
    assert!(all.iter().all(|name| of_blob.contains(&(*name).to_owned())));
    assert!(of_blob.contains(&tree.path) && of_blob.contains(&commit.path));
    let and = |more: &[&Object]| {
        let mut all: Vec<String> = all[..2].iter().map(ToString::to_string).collect();
        all.extend(more.iter().map(|one| one.path.clone()));
        all.sort_unstable();
        all
    };
    // What is nothing without it is not there at the next apply either.
    assert_eq!(held(Some(tree), None), and(&[commit]));
    assert_eq!(held(Some(commit), None), and(&[]));
    assert_eq!(held(None, Some(tree)), and(&[tree, commit]));
    assert_eq!(held(None, Some(commit)), and(&[commit]));
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
    whiteout(&commit().path);
    symlink("main", upper.join("refs/heads/link")).unwrap();
    fs::create_dir_all(upper.join("logs/refs/heads")).unwrap();
    // What git adds to one log would be in the other.
    let text = log("", &commit().name);
    put(&upper, "worktrees/wt/logs/HEAD", text.as_bytes());
    fs::hard_link(
        upper.join("worktrees/wt/logs/HEAD"),
        upper.join("logs/refs/heads/free"),
    )
    .unwrap();
    let (control, other) = classes(&paths, Some("wt"));
    assert_eq!(other, ["worktrees/wt/logs"]);
    assert_eq!(control.len(), 8, "{control:?}");
}

/// A submodule's directory is the only checkout: what lies at the top is its own.
#[test]
fn the_only_checkout_has_its_own_at_the_top() {
    let [blob, _, commit] = new();
    let (id, index) = (line(&commit), index("a", &blob));
    for (file, text) in [
        ("HEAD", &b"ref: refs/heads/free\n"[..]),
        ("index", &index),
        ("logs/HEAD", log("l", &id).as_bytes()),
        ("refs/heads/main", id.as_bytes()),
    ] {
        assert!(!is_control(file, text, None), "{file}");
    }
    for (file, text) in [
        ("config", "c"),
        ("hooks/x", "h"),
        ("refs/heads/work", &id),
        ("worktrees/wt/HEAD", &id),
        ("HEAD", "ref: refs/heads/work\n"),
        ("ORIG_HEAD", &id),
    ] {
        assert!(is_control(file, text.as_bytes(), None), "{file}");
    }
}

fn applied(paths: &LayerPaths, control: bool, journal: &Path) {
    let mut set = changes(paths, &Bounds::default()).unwrap();
    set.classify_repository(Some(OsStr::new("wt")), paths);
    let selection = Selection {
        control,
        ..Selection::default()
    };
    let plan = plan_apply(paths, &set, &selection).unwrap();
    let _ = apply(plan, journal, &mut |_| {}).unwrap();
}

/// Others may have come to need an object, whoever brought it: to leave it changes nothing.
#[test]
fn what_is_undone_leaves_objects_where_they_are() {
    let objects = new();
    let id = line(&objects[2]);
    let entry = log("", &id);
    let mut files: Vec<(&str, &[u8])> = vec![
        ("refs/heads/new", id.as_bytes()),
        ("worktrees/wt/logs/HEAD", entry.as_bytes()),
        ("config", b"[core]\n\tbare = true\n"),
    ];
    for one in &objects {
        files.push((&one.path, &one.stream));
    }
    let (top, paths) = layer(&files);
    std::thread::sleep(std::time::Duration::from_millis(20));
    let paths = LayerPaths {
        put_back: None,
        since: std::time::SystemTime::now(),
        ..paths
    };
    let journal = top.path().join("journal");
    applied(&paths, true, &journal);
    let host = top.path().join("host");
    assert_eq!(
        fs::read(host.join("refs/heads/new")).unwrap(),
        id.as_bytes()
    );
    let _ = undo(&journal, false).unwrap();
    assert!(!host.join("refs/heads/new").exists());
    assert!(!host.join("worktrees/wt/logs/HEAD").exists());
    let config = fs::read(host.join("config")).unwrap();
    assert_eq!(config, b"[core]\n\tbare = false\n");
    for one in &objects {
        assert_eq!(
            fs::read(host.join(&one.path)).unwrap(),
            one.stream,
            "{}",
            one.path
        );
    }
}

/// A pack that was agreed to, an object that was agreed to though it is none, and a branch that
/// somebody has taken up since: each goes only where that is said.
#[test]
fn what_others_may_rely_on_since_is_undone_only_by_force() {
    let objects = new();
    let id = line(&objects[2]);
    let cases: [(&str, &[u8], bool); 3] = [
        ("objects/pack/pack-x.pack", b"p", false),
        (
            "objects/ee/23456789abcdef0123456789abcdef01234567",
            b"o",
            false,
        ),
        ("refs/heads/new", id.as_bytes(), true),
    ];
    for (file, text, is_taken_up) in cases {
        let mut files = vec![(file, text)];
        for one in &objects {
            files.push((&one.path, &one.stream));
        }
        let (top, paths) = layer(&files);
        let (journal, host) = (top.path().join("journal"), top.path().join("host"));
        applied(&paths, true, &journal);
        if is_taken_up {
            assert_eq!(undo_preview(&[&journal]).unwrap().conflicts, []);
            put(&host, "worktrees/later/HEAD", b"ref: refs/heads/new\n");
        }
        let conflicts = undo_preview(&[&journal]).unwrap().conflicts;
        assert_eq!(conflicts.len(), 1, "{file}: {conflicts:?}");
        assert!(conflicts[0].why.contains("since"), "{conflicts:?}");
        assert!(undo(&journal, false).is_err());
        assert!(host.join(file).exists());
        let _ = undo(&journal, true).unwrap();
        assert!(!host.join(file).exists());
        assert!(host.join(&objects[0].path).exists());
    }
}
