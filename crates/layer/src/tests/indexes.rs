//! Indexes of repositories in the workspace, by their repository's configuration.

use std::path::Path;
use std::process::Command;

use super::support::*;
use crate::*;

/// Returns the index that git writes of one file.
fn index(format: &str) -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        let done = git.current_dir(place.path()).args(words).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    git(&["init", "-q", &format!("--object-format={format}")]);
    std::fs::write(Path::new(place.path()).join("a"), "a").unwrap();
    git(&["add", "a"]);
    std::fs::read(place.path().join(".git/index")).unwrap()
}

/// Names `.git/hooks/post-checkout` where digests have 20 bytes, and `ost-checkout` where 32.
fn forged() -> Vec<u8> {
    let name = b".git/hooks/post-checkout";
    let facts = [
        &[0; 24][..],
        &0o100_755_u32.to_be_bytes(),
        &[0; 12],
        &[7; 20],
    ]
    .concat();
    let mut entry = [&facts, &[0, name.len() as u8][..], name].concat();
    entry.resize(entry.len() + 8 - entry.len() % 8, 0);
    let head = b"DIRC\0\0\0\x02\0\0\0\x01";
    [&head[..], &entry, b"XXXX\0\0\0\x04\0\0\0\0", &[0; 20]].concat()
}

fn class(before: &[Edit], edits: &[Edit], at: &str) -> Class {
    let (stand, _) = Stand::copy(before, edits);
    let set = stand.changes();
    let change = set.changes.iter().find(|change| change.path == path(at));
    change.unwrap_or_else(|| panic!("{at} is missing")).class
}

const OF_ONE: &str = "[core]\n\tbare = false\n";
const OF_OTHER: &str = "[extensions]\n\tobjectFormat = sha256\n";

#[test]
fn an_index_is_read_by_the_digests_that_its_repository_had_before() {
    let all = [index("sha1"), index("sha256"), forged()];
    let [one, other, forged] = all.each_ref().map(|index| write(".git/index", index));
    let config = |text| write(".git/config", text);
    let of = |before: &[Edit], edits: &[Edit]| class(before, edits, ".git/index");
    for index in [&one, &other, &forged] {
        let is_one = std::ptr::eq(index, &one);
        let is_other = std::ptr::eq(index, &other);
        let expected = |is_ordinary: bool| match is_ordinary {
            true => Class::Ordinary,
            false => Class::Control,
        };
        let edit = std::slice::from_ref(index);
        assert_eq!(of(&[config(OF_ONE)], edit), expected(is_one));
        assert_eq!(of(&[config(OF_OTHER)], edit), expected(is_other));
        // A new repository, and one whose configuration changes, is gone or cannot be read.
        assert_eq!(of(&[], edit), expected(is_one));
        let also = |edit: Edit| [edit, index.clone()];
        assert_eq!(of(&[], &also(config(OF_ONE))), expected(is_one));
        for (before, after) in [
            (None, config(OF_OTHER)),
            (Some(OF_ONE), config(OF_OTHER)),
            (Some(OF_OTHER), config(OF_ONE)),
            (Some(OF_OTHER), remove(".git/config")),
            (Some(OF_ONE), config("[")),
            (Some("["), config(OF_ONE)),
            (Some("[extensions]\n\tobjectFormat\n"), config(OF_ONE)),
            (Some(OF_ONE), write(".git/commondir", "/elsewhere")),
        ] {
            let before: Vec<Edit> = before.map(config).into_iter().collect();
            assert_eq!(
                of(&before, &also(after.clone())),
                Class::Control,
                "{after:?}"
            );
        }
    }
}

#[test]
fn an_index_of_a_worktree_is_read_by_the_digests_of_all() {
    let before = [
        write(".git/config", OF_OTHER),
        write(".git/worktrees/w/commondir", "../..\n"),
        write(".git/modules/m/config", OF_ONE),
    ];
    for (at, format, expected) in [
        (".git/worktrees/w/index", "sha256", Class::Ordinary),
        (".git/worktrees/w/index", "sha1", Class::Control),
        (".git/modules/m/index", "sha1", Class::Ordinary),
        (".git/modules/m/index", "sha256", Class::Control),
        ("x/.git/y/.git/index", "sha1", Class::Ordinary),
    ] {
        assert_eq!(
            class(&before, &[write(at, index(format))], at),
            expected,
            "{at} {format}"
        );
    }
    let at = "x/.git/y/.git/index";
    assert_eq!(class(&before, &[write(at, forged())], at), Class::Control);
}

/// Returns the edits that make a git directory at a path.
fn repository(at: &str) -> [Edit; 5] {
    [
        write(format!("{at}HEAD"), "ref: refs/heads/main\n"),
        write(format!("{at}config"), OF_ONE),
        directory(&format!("{at}objects")),
        write(format!("{at}refs/heads/main"), "0"),
        write(format!("{at}hooks/pre-commit"), "#!/bin/sh\n"),
    ]
}

const PARTS: [(&str, Class); 13] = [
    ("hooks/post-checkout", Class::Control),
    ("hooks/pre-commit", Class::Control),
    ("config", Class::Control),
    ("info/attributes", Class::Control),
    ("modules/m/hooks/x", Class::Control),
    ("worktrees/w/config.worktree", Class::Control),
    ("worktrees/w/commondir", Class::Control),
    ("HEAD", Class::Ordinary),
    ("logs/HEAD", Class::Ordinary),
    ("logs/refs/heads/main", Class::Ordinary),
    ("objects/00/0", Class::Ordinary),
    ("refs/heads/main", Class::Ordinary),
    ("COMMIT_EDITMSG", Class::Ordinary),
];

#[test]
fn a_git_directory_is_one_whatever_it_is_called() {
    for at in [".bare/", "", "deep/er/repo/"] {
        for (part, expected) in PARTS {
            let part = format!("{at}{part}");
            let edit = [write(&part, "new")];
            assert_eq!(class(&repository(at), &edit, &part), expected, "{part}");
        }
        // Another one within its logs.
        let logs = format!("{at}logs/");
        let [head, config] = ["HEAD", "config"].map(|name| format!("{logs}{name}"));
        let edits = repository(&logs);
        assert_eq!(class(&repository(at), &edits, &head), Class::Control);
        assert_eq!(class(&repository(at), &edits, &config), Class::Control);
        let alone = [write(&config, "")];
        assert_eq!(class(&repository(at), &alone, &config), Class::Ordinary);
    }
}

#[test]
fn a_git_directory_of_another_name_has_an_index() {
    for (name, index, expected) in [
        ("index", index("sha1"), Class::Ordinary),
        ("index", index("sha256"), Class::Control),
        ("index", forged(), Class::Control),
        ("worktrees/w/index", index("sha1"), Class::Ordinary),
        ("worktrees/w/index", forged(), Class::Control),
    ] {
        let at = format!(".bare/{name}");
        let edit = [write(&at, index)];
        assert_eq!(class(&repository(".bare/"), &edit, &at), expected, "{name}");
        // Where there is no git directory, there is no index.
        assert_eq!(class(&[], &edit, &at), Class::Ordinary, "{name}");
    }
}

#[test]
fn a_git_directory_that_is_new_or_made_whole_is_one() {
    let hook = ".bare/hooks/pre-commit";
    assert_eq!(class(&[], &repository(".bare/"), hook), Class::Control);
    assert_eq!(
        class(&[], &repository(".bare/"), ".bare/HEAD"),
        Class::Control
    );
    for missing in ["HEAD", "objects", "refs"] {
        let is_part = |edit: &Edit| format!("{edit:?}").contains(&format!(".bare/{missing}"));
        let (rest, part): (Vec<_>, Vec<_>) = repository(".bare/")
            .into_iter()
            .partition(|edit| is_part(edit));
        let (before, after) = (part, rest);
        let hooked = [after, vec![write(hook, "changed")]].concat();
        assert_eq!(class(&before, &hooked, hook), Class::Control, "{missing}");
    }
}

#[test]
fn what_moves_out_of_a_git_directory_or_into_it_is_looked_at() {
    let before = [
        &repository(".bare/")[..],
        &[write("own/pre-push", "#!/bin/sh\n")],
    ]
    .concat();
    for (from, to, at) in [
        (".bare/hooks", "gone", ".bare/hooks"),
        ("own", ".bare/info", ".bare/info/pre-push"),
        (".bare", ".other", ".other/hooks/pre-commit"),
        (".bare", ".other", ".other/config"),
    ] {
        let edits = [rename(from, to)];
        let overlays = [Mounted::Trusted, Mounted::Namespace];
        let overlays = overlays.map(|mounted| Stand::overlay(mounted, &before, &edits, true));
        let stands = overlays.into_iter().flatten().map(|(stand, _)| stand);
        for stand in stands.chain([Stand::copy(&before, &edits).0]) {
            let set = stand.changes();
            let held = |at: &str| {
                let found = set.changes.iter().find(|one| one.path == path(at));
                found.is_some_and(|one| one.class == Class::Control)
            };
            assert!(held(at), "{from} {to}: {set:?}");
        }
    }
}

#[test]
fn the_control_files_of_a_git_directory_of_another_name_are_sealed() {
    let place = tempfile::tempdir().unwrap();
    perform(place.path(), &repository(".bare/"));
    perform(place.path(), &[write("hooks/x", ""), write("config", "")]);
    let sealed = control_paths(place.path(), &GitEnvironment::default()).unwrap();
    let expected = ["HEAD", "config", "hooks"].map(|name| place.path().join(".bare").join(name));
    assert_eq!(sealed, expected);
}
