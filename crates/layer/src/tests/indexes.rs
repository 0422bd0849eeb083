//! Indexes of repositories in the workspace, by their repository's configuration.

use std::path::Path;
use std::process::Command;

use super::support::*;
use crate::*;

/// The index that git writes of one file.
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
