//! The branches of a repository that one worktree may change.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::worktrees::{
    EMPTY_TREE, Object, classes, commit, commit_of, index, layer, line, log, new, object, put,
};
use crate::{Bounds, LayerPaths, Selection, apply, changes, plan_apply, undo, undo_preview};

/// Returns the paths that wait for approval in a layer with these objects and files over a
/// repository with these further files.
fn held(outside: &[(&str, &[u8])], objects: &[&Object], files: &[(&str, &[u8])]) -> Vec<String> {
    let (top, paths) = made(outside, objects, files);
    let held = classes(&paths, Some("wt")).0;
    drop(top);
    held
}

fn made(
    outside: &[(&str, &[u8])],
    objects: &[&Object],
    files: &[(&str, &[u8])],
) -> (tempfile::TempDir, LayerPaths) {
    let mut all = files.to_vec();
    for one in objects {
        all.push((&one.path, &one.stream));
    }
    let (top, paths) = layer(&all);
    for (name, text) in outside {
        put(&top.path().join("host"), name, text);
    }
    let paths = LayerPaths {
        put_back: None,
        since: now(),
        ..paths
    };
    (top, paths)
}

/// Returns a time that is later than all earlier writes, by a coarse clock too.
fn now() -> std::time::SystemTime {
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::time::SystemTime::now()
}

/// A branch that was held once for missing objects is not applied the next time because they exist
/// then.
#[test]
fn what_misses_something_is_held_at_each_apply() {
    let missing = "0123456789abcdef".repeat(3)[..40].to_owned();
    let broken = commit_of(&missing, &[&commit().name], "broken");
    let id = line(&broken);
    let files: [(&str, &[u8]); 2] = [
        ("refs/heads/new", id.as_bytes()),
        ("worktrees/wt/HEAD", id.as_bytes()),
    ];
    let (top, paths) = made(&[], &[&broken], &files);
    for round in 0..2 {
        let held = classes(&paths, Some("wt")).0;
        let mut expected = vec![broken.path.as_str(), files[0].0, files[1].0];
        expected.sort_unstable();
        assert_eq!(held, expected, "{round}");
        let mut set = changes(&paths, &Bounds::default()).unwrap();
        set.classify_repository(Some(OsStr::new("wt")), &paths);
        let plan = plan_apply(&paths, &set, &Selection::default()).unwrap();
        let journal = top.path().join(format!("journal-{round}"));
        let _ = apply(plan, &journal, &mut |_| {}).unwrap();
        assert!(!top.path().join("host").join(&broken.path).exists());
    }
}

/// Git reads the whole repository for maintenance, and stops at an object of another kind than
/// expected.
#[test]
fn objects_of_other_kinds_than_what_names_them_says_are_not_taken_over() {
    let [blob, tree, first] = new();
    let old = commit();
    let by = "author a <a@example.org> 1 +0000";
    let tree_as = |mode: &str, one: &Object| {
        let pair = |at: usize| u8::from_str_radix(&one.name[at..at + 2], 16).unwrap();
        let id: Vec<u8> = (0..40).step_by(2).map(pair).collect();
        object("tree", &[format!("{mode} a\0").as_bytes(), &id].concat())
    };
    let tag = |one: &Object, kind: &str| {
        let text = format!("object {}\ntype {kind}\ntag t\n", one.name);
        object("tag", text.as_bytes())
    };
    let of_tree = |of: &Object| commit_of(&of.name, &[&old.name], "x");
    let with_parent = |of: &Object| commit_of(EMPTY_TREE, &[&of.name], "x");
    let bad = [
        of_tree(&blob),
        of_tree(&old),
        of_tree(&first),
        with_parent(&blob),
        with_parent(&tree),
        tree_as("100644", &old),
        tree_as("100644", &tree),
        tree_as("120000", &first),
        tree_as("40000", &blob),
        tree_as("40000", &old),
        tag(&old, "tree"),
        tag(&blob, "commit"),
        object(
            "commit",
            format!("tree {EMPTY_TREE}\nparent {EMPTY_TREE}\n{by}\n").as_bytes(),
        ),
    ];
    for one in &bad {
        let held = held(&[], &[&blob, &tree, &first, one], &[]);
        assert_eq!(held, [one.path.as_str()]);
    }
    for one in [
        of_tree(&tree),
        with_parent(&first),
        tree_as("40000", &tree),
        tree_as("160000", &tree),
        tag(&old, "commit"),
        tag(&tree, "tree"),
    ] {
        let held = held(&[], &[&blob, &tree, &first, &one], &[]);
        assert!(held.is_empty(), "{held:?}");
    }
    // What is there outside is asked for what it is, too.
    for (one, expected) in [(&blob, false), (&old, true), (&first, true)] {
        let text = index("a", one);
        let held = held(
            &[],
            &[&blob, &tree, &first],
            &[("worktrees/wt/index", &text)],
        );
        assert_eq!(!held.is_empty(), expected, "{held:?}");
    }
}

/// The worktree's branch moves on from its commit on the host; nobody else's moves at all.
#[test]
fn a_branch_goes_on_from_where_it_is_outside() {
    let [blob, tree, first] = new();
    let second = commit_of(&tree.name, &[&first.name], "second");
    let merge = commit_of(&tree.name, &[&second.name, &commit().name], "merge");
    let apart = commit_of(&tree.name, &[], "apart");
    let all = [&blob, &tree, &first, &second, &merge, &apart];
    let work = "refs/heads/work";
    let is_held = |outside: &[(&str, &[u8])], to: &Object| {
        let id = line(to);
        let held = held(outside, &all, &[(work, id.as_bytes())]);
        assert!(held.iter().all(|path| path == work), "{held:?}");
        !held.is_empty()
    };
    for to in [&first, &second, &merge] {
        assert!(!is_held(&[], to));
    }
    assert!(is_held(&[], &apart));
    // One that others have made meanwhile would be off it.
    let theirs = commit_of(EMPTY_TREE, &[&commit().name], "theirs");
    let id = line(&theirs);
    let ahead = [
        (work, id.as_bytes()),
        (theirs.path.as_str(), theirs.stream.as_slice()),
    ];
    assert!(is_held(&ahead, &second));
    // Objects that an undo has left are those of the run still.
    let left = [
        (first.path.as_str(), first.stream.as_slice()),
        (&tree.path, &tree.stream),
        (&blob.path, &blob.stream),
    ];
    assert!(!is_held(&left, &second));
    // Another branch, also where nobody has it checked out: by HEAD it is looked at only.
    let free = line(&second);
    let held_of = |files: &[(&str, &[u8])]| held(&[], &all, files);
    let head = b"ref: refs/heads/free\n".as_slice();
    assert_eq!(
        held_of(&[
            ("refs/heads/free", free.as_bytes()),
            ("worktrees/wt/HEAD", head)
        ]),
        ["refs/heads/free", "worktrees/wt/HEAD"]
    );
    assert!(held_of(&[("worktrees/wt/HEAD", head)]).is_empty());
}

/// A branch that is packed has no file of its own to be compared.
#[test]
fn a_packed_branch_goes_on_from_where_it_is_packed() {
    let [blob, tree, first] = new();
    let theirs = commit_of(EMPTY_TREE, &[&commit().name], "theirs");
    let id = line(&first);
    let head = ("worktrees/wt/HEAD", b"ref: refs/heads/packed\n".as_slice());
    let there = (theirs.path.as_str(), theirs.stream.as_slice());
    for (at, expected) in [(commit().name, 0), (theirs.name.clone(), 1)] {
        let list = format!("# pack-refs with: peeled\n{at} refs/heads/packed\n");
        let outside = [head, there, ("packed-refs", list.as_bytes())];
        let files = [("refs/heads/packed", id.as_bytes())];
        let held = held(&outside, &[&blob, &tree, &first], &files);
        assert_eq!(held.len(), expected, "{held:?}");
    }
}

/// If somebody has switched the worktree meanwhile, it is not known what branch the run was on; and
/// a branch that somebody has moved meanwhile is a conflict.
#[test]
fn what_changed_outside_meanwhile_is_not_written_over() {
    let [blob, tree, first] = new();
    let (id, entry) = (line(&first), log("l", &line(&first)));
    let files = [
        ("refs/heads/work", id.as_bytes()),
        ("logs/refs/heads/work", entry.as_bytes()),
    ];
    let objects = [&blob, &tree, &first];
    let (top, paths) = made(&[], &objects, &files);
    assert!(classes(&paths, Some("wt")).0.is_empty());
    let host = top.path().join("host");
    let _ = now();
    put(&host, "worktrees/wt/HEAD", b"ref: refs/heads/work\n");
    let held = classes(&paths, Some("wt")).0;
    assert_eq!(held, ["logs/refs/heads/work", "refs/heads/work"]);

    let (top, paths) = made(&[], &objects, &files);
    let theirs = commit_of(EMPTY_TREE, &[&commit().name], "theirs");
    let host = top.path().join("host");
    let _ = now();
    put(&host, &theirs.path, &theirs.stream);
    put(&host, "refs/heads/work", line(&theirs).as_bytes());
    let mut set = changes(&paths, &Bounds::default()).unwrap();
    set.classify_repository(Some(OsStr::new("wt")), &paths);
    let plan = plan_apply(&paths, &set, &Selection::default()).unwrap();
    let conflicts: Vec<String> = plan
        .conflicts
        .iter()
        .map(|one| one.path.to_string())
        .collect();
    assert_eq!(conflicts, ["refs/heads/work"]);
}

#[test]
fn a_new_branch_comes_with_its_log() {
    let [blob, tree, first] = new();
    let (id, entry) = (line(&first), log("", &line(&first)));
    let files = [
        ("refs/heads/new", id.as_bytes()),
        ("logs/refs/heads/new", entry.as_bytes()),
    ];
    assert!(held(&[], &[&blob, &tree, &first], &files).is_empty());
    let broken = [files[1], ("refs/heads/new", b"no digest\n".as_slice())];
    assert_eq!(
        held(&[], &[&blob, &tree, &first], &broken),
        ["logs/refs/heads/new", "refs/heads/new"]
    );
}

#[test]
fn a_directory_of_branches_is_none_of_them() {
    let [blob, tree, first] = new();
    let id = line(&first);
    let files = [
        ("refs/heads/many/one", id.as_bytes()),
        ("worktrees/wt/HEAD", b"ref: refs/heads/many\n"),
    ];
    let held = held(&[], &[&blob, &tree, &first], &files);
    assert_eq!(held, ["worktrees/wt/HEAD"]);
}

/// Anybody who may write to a branch moves it for all.
#[test]
fn what_others_could_write_to_waits_for_a_yes() {
    let [blob, tree, first] = new();
    let id = line(&first);
    let files = [
        ("refs/heads/work", id.as_bytes()),
        ("refs/heads/new/one", id.as_bytes()),
    ];
    for (path, mode, expected) in [
        ("refs/heads/work", 0o644, false),
        ("refs/heads/work", 0o600, false),
        ("refs/heads/work", 0o666, true),
        ("refs/heads/work", 0o664, true),
        ("refs/heads/new/one", 0o646, true),
        ("refs/heads/new", 0o777, true),
        ("refs/heads/new", 0o755, false),
    ] {
        let (top, paths) = made(&[], &[&blob, &tree, &first], &files);
        for place in ["refs", "refs/heads"] {
            let directory = fs::Permissions::from_mode(0o755);
            fs::set_permissions(top.path().join("host").join(place), directory).unwrap();
        }
        let file = top.path().join("upper").join(path);
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
        let held = classes(&paths, Some("wt")).0;
        assert_eq!(held.contains(&path.to_owned()), expected, "{path} {mode:o}");
    }
}

/// No two worktrees are on one branch, and none on a branch that is not there.
#[test]
fn what_worktrees_are_on_is_undone_only_by_force() {
    let objects = new();
    let id = line(&objects[2]);
    let branch = ("refs/heads/new", id.as_bytes());
    let head = b"ref: refs/heads/new\n".as_slice();
    let own = "worktrees/wt/HEAD";
    type Case<'a> = (&'a [(&'a str, &'a [u8])], &'a str, &'a [u8], &'a [&'a str]);
    let cases: [Case<'_>; 4] = [
        // The branch that it was on is somebody else's by now.
        (
            &[branch, (own, head)],
            "worktrees/later/HEAD",
            b"ref: refs/heads/work\n",
            &[own],
        ),
        (
            &[branch, (own, head)],
            "worktrees/later/HEAD",
            id.as_bytes(),
            &[],
        ),
        // Somebody is on what the run has made.
        (&[branch], own, head, &["refs/heads/new"]),
        (&[branch], own, id.as_bytes(), &[]),
    ];
    for (files, at, text, expected) in cases {
        let all: Vec<&Object> = objects.iter().collect();
        let (top, paths) = made(&[], &all, files);
        let (journal, host) = (top.path().join("journal"), top.path().join("host"));
        let mut set = changes(&paths, &Bounds::default()).unwrap();
        set.classify_repository(Some(OsStr::new("wt")), &paths);
        let plan = plan_apply(&paths, &set, &Selection::default()).unwrap();
        let _ = apply(plan, &journal, &mut |_| {}).unwrap();
        assert!(host.join("refs/heads/new").exists());
        assert_eq!(undo_preview(&[&journal]).unwrap().conflicts, []);
        put(&host, at, text);
        let conflicts = undo_preview(&[&journal]).unwrap().conflicts;
        let found: Vec<String> = conflicts.iter().map(|one| one.path.to_string()).collect();
        assert_eq!(found, expected, "{at}");
        assert_eq!(undo(&journal, false).is_err(), !expected.is_empty());
        if !expected.is_empty() {
            let _ = undo(&journal, true).unwrap();
        }
        assert!(!host.join("refs/heads/new").exists());
    }
}

/// A directory that is sparse is named by its tree, a file by its content and nothing else.
#[test]
fn a_sparse_index_names_trees_where_it_says_so() {
    let top = tempfile::tempdir().unwrap();
    let at = top.path().join("repository");
    let script = "git init -q . && mkdir in out && echo 1 >in/a && echo 2 >out/b && git add . \
        && git -c user.name=a -c user.email=a@example.org commit -qm one \
        && cp -R .git ../host && git sparse-checkout set --cone --sparse-index in \
        && git ls-files --sparse";
    for directory in ["repository", "upper", "work"] {
        fs::create_dir(top.path().join(directory)).unwrap();
    }
    let mut shell = std::process::Command::new("sh");
    let done = shell.current_dir(&at).args(["-c", script]).output();
    let done = done.unwrap();
    assert!(done.stdout.ends_with(b"out/\n"), "{done:?}");
    let sparse = fs::read(at.join(".git/index")).unwrap();
    let paths = LayerPaths {
        put_back: None,
        before: top.path().join("host"),
        after: crate::AfterTree::Overlay {
            upper: top.path().join("upper"),
            work: top.path().join("work"),
            xattrs: crate::XattrFlavour::User,
        },
        since: now(),
        ids: crate::IdShift::None,
    };
    put(&top.path().join("upper"), "index", &sparse);
    assert_eq!(
        classes(&paths, None),
        (Vec::new(), vec!["index".to_owned()])
    );
    // The same directory by what is no tree.
    let name = b"out/\0";
    let entry = sparse.windows(name.len()).position(|five| five == name);
    let mut forged = sparse.clone();
    let file = sparse
        .windows(5)
        .position(|five| five == b"in/a\0")
        .unwrap();
    let (from, to) = (file - 22, entry.unwrap() - 24);
    forged.copy_within(from..from + 20, to);
    let end = forged.len() - 20;
    forged[end..].fill(0);
    put(&top.path().join("upper"), "index", &forged);
    assert_eq!(
        classes(&paths, None),
        (vec!["index".to_owned()], Vec::new())
    );
}
