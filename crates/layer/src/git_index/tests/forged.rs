//! Indexes that git reads otherwise than a reader that goes from the beginning to the end.

use super::*;

const ID: [u8; 20] = [7; 20];

fn head(mode: u32, flags: u16) -> Vec<u8> {
    let stat = [[0; 24].as_slice(), &mode.to_be_bytes(), &[0; 12]].concat();
    [stat.as_slice(), &ID, &flags.to_be_bytes()].concat()
}

fn padded(mut entry: Vec<u8>) -> Vec<u8> {
    entry.resize(entry.len() + 8 - entry.len() % 8, 0);
    entry
}

fn named(mode: u32, flags: u16, name: &[u8]) -> Vec<u8> {
    padded([&head(mode, flags | name.len() as u16), name].concat())
}

fn left_out(mode: u32, more: u16, name: &[u8]) -> Vec<u8> {
    let head = head(mode, IS_EXTENDED | name.len() as u16);
    padded([&head, &more.to_be_bytes()[..], name].concat())
}

fn file(name: &[u8]) -> Vec<u8> {
    named(FILE, 0, name)
}

fn extension(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let bytes = (content.len() as u32).to_be_bytes();
    [kind.as_slice(), &bytes, content].concat()
}

fn made(version: u32, entries: &[Vec<u8>], extensions: &[Vec<u8>]) -> Vec<u8> {
    let count = entries.len() as u32;
    let head = [
        b"DIRC",
        version.to_be_bytes().as_slice(),
        &count.to_be_bytes(),
    ]
    .concat();
    [head, entries.concat(), extensions.concat(), vec![0; 20]].concat()
}

#[test]
fn an_index_is_read_by_one_length_of_digests() {
    // By the other one, the digest ends within the name, and flags are `/p`.
    let name = b".git/hooks/post-checkout";
    let forged = made(
        2,
        &[named(PROGRAM, 0, name)],
        &[extension(b"XXXX", &[0; 4])],
    );
    assert!(is_held_of(&forged, 20));
    let good = made(2, &[file(b"a")], &[]);
    assert!(!is_held_of(&good, 20));
    assert!(is_held_of(&good, 32));
}

#[test]
fn a_name_is_as_long_as_its_flags_say() {
    let entries = [file(b"!"), file(b"f")];
    assert!(!is_held(&made(2, &entries, &[])));
    // For git, what follows is the rest of the first name, and a second one.
    let hidden = extension(b"FSMN", &file(b"../../elsewhere"));
    for length in [0, 2, 100, 0xfff] {
        let mut forged = made(2, &entries, std::slice::from_ref(&hidden));
        forged[12 + 60..12 + 62].copy_from_slice(&u16::to_be_bytes(length));
        assert!(is_held(&forged), "{length}");
    }
    let long = vec![b'l'; 4095];
    let mut entry = head(FILE, 0xfff);
    entry.extend(&long);
    assert!(!is_held(&made(2, &[padded(entry.clone())], &[])));
    entry.extend(b"ll");
    assert!(is_held(&made(2, &[padded(entry)], &[])));
}

#[test]
fn an_entry_is_as_git_makes_it() {
    let good = [
        file(b"a"),
        file(b"b"),
        named(FILE, 0x1000, b"c"),
        named(FILE, 0x2000, b"c"),
    ];
    assert!(!is_held(&made(2, &good, &[])));
    let unclear: [&[Vec<u8>]; 12] = [
        &[file(b"b"), file(b"a")],
        &[file(b"a"), file(b"a")],
        &[file(b"a"), named(FILE, 0x1000, b"a")],
        &[named(FILE, 0x2000, b"a"), named(FILE, 0x1000, b"a")],
        &[named(LINK, 0, b"a"), file(b"a/b")],
        &[named(LINK, 0, b"a"), file(b"a-b"), file(b"a/b/c")],
        &[named(SUBMODULE, 0, b"a"), file(b"a.b"), file(b"a/b")],
        &[named(0o104_755, 0, b"a")],
        &[named(0o100_600, 0, b"a")],
        &[named(0o1_100_644, 0, b"a")],
        &[file(b"a/")],
        &[named(SPARSE, 0, b"a/")],
    ];
    for entries in unclear {
        assert!(is_held(&made(2, entries, &[])), "{entries:?}");
        assert!(is_held(&made(3, entries, &[])), "{entries:?}");
    }
    let mut forged = made(2, &good, &[]);
    forged[12 + 63] = b'x';
    assert!(is_held(&forged));
    let sparse = [left_out(SPARSE, IS_LEFT_OUT, b"a/"), file(b"b")];
    let says = [extension(b"sdir", b"")];
    assert!(!is_held(&made(3, &sparse, &says)));
    assert!(is_held(&made(3, &sparse, &[])));
    assert!(is_held(&made(2, &sparse, &says)));
    let within = [left_out(SPARSE, IS_LEFT_OUT, b"a/"), file(b"a/b")];
    assert!(is_held(&made(3, &within, &says)));
    let unknown = [left_out(FILE, 0x8000, b"a")];
    assert!(is_held(&made(3, &unknown, &[])));
}

/// Returns the extension that gives the end of the entries.
fn end(at: usize) -> Vec<u8> {
    extension(
        b"EOIE",
        &[(at as u32).to_be_bytes().as_slice(), &[0; 20]].concat(),
    )
}

/// Returns the extension that gives the offsets from which threads read, and the number of entries
/// of each.
fn blocks(all: &[(usize, u32)]) -> Vec<u8> {
    let mut content = 1_u32.to_be_bytes().to_vec();
    for (at, count) in all {
        content.extend((*at as u32).to_be_bytes());
        content.extend(count.to_be_bytes());
    }
    extension(b"IEOT", &content)
}

#[test]
fn threads_read_the_same_entries() {
    let entries = [file(b"a"), file(b"b")];
    let (first, second, behind) = (12, 12 + 64, 12 + 128);
    let check = |extensions: &[Vec<u8>], expected: bool| {
        let forged = made(2, &entries, extensions);
        assert_eq!(is_held(&forged), expected, "{extensions:?}");
    };
    let good = blocks(&[(first, 1), (second, 1)]);
    check(&[good.clone(), end(behind)], false);
    check(&[blocks(&[(first, 2)]), end(behind)], false);
    check(&[end(behind)], false);
    // Entries that only threads read.
    let hidden = extension(b"FSMN", &[file(b"../x"), file(b"y")].concat());
    let (third, fourth) = (behind + 8, behind + 8 + 72);
    for all in [
        &[(third, 1), (fourth, 1)][..],
        &[(first, 1), (fourth, 1)],
        &[(first, 1)],
        &[(first, 1), (second, 2)],
        &[(first, 1), (second, 1), (second, 0)],
        &[(second, 1), (first, 1)],
        &[],
    ] {
        check(&[hidden.clone(), blocks(all), end(behind)], true);
    }
    check(&[hidden.clone(), good.clone(), end(behind)], false);
    // Extensions that are read from elsewhere.
    check(&[hidden.clone(), good.clone(), end(third)], true);
    check(&[end(behind), good.clone()], true);
    check(
        &[extension(b"FSMN", &[good.clone(), end(behind)].concat())],
        true,
    );
    check(&[good.clone(), good, end(behind)], true);
}

#[test]
fn extensions_are_known_and_each_is_there_once() {
    let entries = [file(b"a")];
    let known = extension(b"FSMN", b"any");
    assert!(!is_held(&made(2, &entries, std::slice::from_ref(&known))));
    for extensions in [
        &[extension(b"XXXX", b"")][..],
        &[extension(b"xxxx", b"")],
        &[extension(b"link", &[0; 20])],
        &[extension(b"sdir", b"x")],
        &[known.clone(), known],
    ] {
        assert!(is_held(&made(2, &entries, extensions)), "{extensions:?}");
    }
    let undone = |name: &[u8], mode: &[u8]| {
        let facts = [name, b"\0", mode, b"\0", b"0\0", b"0\0", &ID].concat();
        is_held(&made(2, &entries, &[extension(b"REUC", &facts)]))
    };
    assert!(!undone(b"b", b"100644"));
    assert!(undone(b"../b", b"100644"));
    assert!(undone(b".git/config", b"100644"));
    assert!(undone(b"b", b"40000"));
    assert!(undone(b"b", b"+100644"));
}

/// Returns whether an index is held whose cache of untracked files has one of this name, in a
/// directory of this one.
fn untracked(directory: &[u8], name: &[u8]) -> bool {
    let facts = [0; 2 * 36 + 4 + 2 * 20];
    let top = [&[0, 1][..], b"\0", &[1, 0], directory, b"\0", name, b"\0"].concat();
    let content = [&[2][..], b"x\0", &facts, b".gitignore\0", &[2], &top, b"\0"].concat();
    is_held(&made(2, &[file(b"a")], &[extension(b"UNTR", &content)]))
}

#[test]
fn files_that_are_in_no_commit_are_within_the_working_tree() {
    assert!(!untracked(b"b", b"c"));
    assert!(!untracked(b"b", b"c/"));
    for (directory, name) in [
        (&b".."[..], &b"c"[..]),
        (b"b", b".."),
        (b"b", b"../"),
        (b"b", b"/"),
        (b"b", b"../../c"),
        (b".git", b"config"),
        (b"", b"c"),
    ] {
        assert!(untracked(directory, name), "{directory:?} {name:?}");
    }
}

#[test]
fn what_an_index_names_has_to_be_there() {
    let undone = [&b"b\0"[..], b"100644\0", b"0\0", b"0\0", &[9; 20]].concat();
    let index = made(2, &[file(b"a")], &[extension(b"REUC", &undone)]);
    let written = tempfile::NamedTempFile::new().unwrap();
    fs::write(written.path(), &index).unwrap();
    let file = written.reopen().unwrap();
    let held = |there: &mut dyn FnMut(&[u8], bool) -> bool| {
        reason_in(&file, index.len() as u64, 20, there).is_some()
    };
    assert!(!held(&mut |_, _| true));
    assert!(held(&mut |id, _| id == ID));
    assert!(held(&mut |id, _| id == [9; 20]));
}

/// Names of index version 4, each longer than the one before: short entries, long names.
fn growing(count: usize, first: usize) -> Vec<u8> {
    let mut entries = Vec::new();
    for at in 0..count {
        let own = match at {
            0 => vec![b'a'; first],
            _ => format!("{at:05}").into_bytes(),
        };
        let (out, whole) = match at {
            0 => (0, first),
            1 => (0, first + 5),
            _ => (5, first + 5),
        };
        let flags = whole.min(0xfff) as u16;
        entries.push([head(FILE, flags).as_slice(), &[out], &own, b"\0"].concat());
    }
    made(4, &entries, &[])
}

#[test]
fn names_that_grow_are_held_before_they_fill_the_memory() {
    assert!(!is_held(&growing(100, 4000)));
    assert!(is_held(&growing(100, 4092)));
    assert!(!is_held(&growing(30_000, 4000)));
    assert!(is_held(&growing(40_000, 4000)));
}

#[test]
fn trees_within_trees_are_held_before_they_fill_the_memory() {
    let deep = |count: usize| {
        let entry = |at: usize| {
            let name = [format!("{at:05}/"), "abcdefg/".repeat(500), "x".into()].concat();
            file(name.as_bytes())
        };
        let entries: Vec<_> = (0..count).map(entry).collect();
        // Of no tree it is said that there is one.
        made(2, &entries, &[extension(b"TREE", b"\0-1 0\n")])
    };
    assert!(!is_held(&deep(10)));
    assert!(is_held(&deep(80)));
}
