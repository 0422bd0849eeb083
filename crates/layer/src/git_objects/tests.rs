#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha1_checked::{Digest as _, Sha1};

use super::*;

fn git(at: &Path, words: &[&str]) -> String {
    let own = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    let mut run = Command::new("git");
    let run = run.current_dir(at).args(own).args(words).output().unwrap();
    assert!(run.status.success(), "{words:?}: {run:?}");
    String::from_utf8(run.stdout).unwrap()
}

/// A repository with two commits, a directory, a link, a program and a tag.
fn repository(format: &[&str]) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let at = place.path();
    git(at, &[&["init", "-q"], format].concat());
    fs::create_dir_all(at.join("src/deep")).unwrap();
    for name in ["a", "src/b", "src/deep/c"] {
        fs::write(at.join(name), name.repeat(50_000)).unwrap();
    }
    std::os::unix::fs::symlink("a", at.join("link")).unwrap();
    for message in ["one", "two"] {
        fs::write(at.join("message"), message).unwrap();
        git(at, &["add", "."]);
        git(at, &["commit", "-qm", message]);
    }
    git(at, &["tag", "-am", "three", "three"]);
    place
}

/// All loose objects, with their names.
fn loose(at: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for directory in fs::read_dir(at.join(".git/objects")).unwrap() {
        let directory = directory.unwrap();
        let two = directory.file_name().into_string().unwrap();
        for file in fs::read_dir(directory.path())
            .unwrap()
            .filter(|_| two.len() == 2)
        {
            let file = file.unwrap();
            let rest = file.file_name().into_string().unwrap();
            found.push((format!("{two}{rest}"), file.path()));
        }
    }
    found
}

fn read(text: &[u8], name: &str, format: Format) -> Option<Loose> {
    let mut bytes_left = 1 << 20;
    Loose::read(
        text,
        &Id::read(name.as_bytes(), format)?,
        format,
        &mut bytes_left,
    )
}

fn compressed(text: &[u8]) -> Vec<u8> {
    let mut stream = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    stream.write_all(text).unwrap();
    stream.finish().unwrap()
}

/// An object of this text, by the name that its digest gives it.
fn made(text: &[u8]) -> (Vec<u8>, String) {
    let digest = Sha1::digest(text);
    let name = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    (compressed(text), name)
}

const FORMATS: [(&[&str], Format); 2] = [
    (&[], Format::Sha1),
    (&["--object-format=sha256"], Format::Sha256),
];

#[test]
fn objects_that_git_has_written_are_what_their_names_say() {
    for (words, format) in FORMATS {
        let place = repository(words);
        let all = loose(place.path());
        let names: Vec<Id> = all
            .iter()
            .map(|(name, _)| Id::read(name.as_bytes(), format).unwrap())
            .collect();
        assert!(all.len() >= 10, "{all:?}");
        let other = if format == Format::Sha1 {
            Format::Sha256
        } else {
            Format::Sha1
        };
        for (name, file) in &all {
            let text = fs::read(file).unwrap();
            let read_one = read(&text, name, format).unwrap();
            assert!(
                read_one.needs.iter().all(|needed| names.contains(needed)),
                "{name}"
            );
            assert_eq!(read(&text, name, other), None);
            let (first, _) = all.iter().find(|(other, _)| other != name).unwrap();
            assert_eq!(read(&text, first, format), None, "{name}");
            for end in [0, 1, 2, 10, text.len() - 5, text.len() - 4, text.len() - 1] {
                assert_eq!(read(&text[..end], name, format), None, "{name} {end}");
            }
            assert_eq!(
                read(&[&text[..], b"x"].concat(), name, format),
                None,
                "{name}"
            );
        }
    }
}

#[test]
fn what_lies_about_itself_is_no_object() {
    let read_made = |text: &[u8]| {
        let (stream, name) = made(text);
        read(&stream, &name, Format::Sha1)
    };
    assert!(read_made(b"blob 3\0abc").is_some());
    assert!(read_made(b"blob 0\0").is_some());
    let name = [7; 20];
    let tree = |mode: &[u8], entry: &[u8]| {
        let content = [mode, b" ", entry, b"\0", &name].concat();
        [format!("tree {}\0", content.len()).as_bytes(), &content].concat()
    };
    assert_eq!(
        read_made(&tree(b"100644", b"a")).unwrap().needs,
        [Id::of(&name)]
    );
    assert_eq!(read_made(&tree(b"160000", b"a")).unwrap().needs, []);
    for text in [
        &b"blob 2\0abc"[..],
        b"blob 4\0abc",
        b"blob 03\0abc",
        b"blob +3\0abc",
        b"blob\0abc",
        b"blob \0",
        b"blub 3\0abc",
        b"commit 3\0abc",
        b"tag 3\0abc",
        b"tree 3\0abc",
        b"blob 00000000000000000000000000003\0abc",
        &tree(b"100644", b".git"),
        &tree(b"40000", b".GIT"),
        &tree(b"40000", b".."),
        &tree(b"100644", b"a/b"),
        &tree(b"100644", b""),
        &tree(b"777", b"a"),
    ] {
        assert_eq!(
            read_made(text),
            None,
            "{:?}",
            text.escape_ascii().to_string()
        );
    }
    // It comes to more than may be looked at.
    let large = [&b"blob 2000000\0"[..], &vec![0; 2_000_000]].concat();
    assert_eq!(read_made(&large), None);
}

#[test]
fn what_a_repository_has_is_found_loose_and_in_packs() {
    for (words, format) in FORMATS {
        let place = repository(words);
        let all = loose(place.path());
        let absent = Id::of(&vec![9; format.bytes()]);
        for packed in [false, true] {
            if packed {
                git(place.path(), &["gc", "-q"]);
                assert!(loose(place.path()).is_empty());
            }
            let tree = Tree::open(&place.path().join(".git")).unwrap();
            let outside = Outside::open(&tree).unwrap();
            assert_eq!(outside.format, format);
            for (name, _) in &all {
                assert!(
                    outside.has(&Id::read(name.as_bytes(), format).unwrap()),
                    "{name}"
                );
            }
            assert!(!outside.has(&absent));
        }
    }
    let place = repository(&[]);
    git(place.path(), &["config", "extensions.objectFormat", "new"]);
    let tree = Tree::open(&place.path().join(".git")).unwrap();
    assert!(Outside::open(&tree).is_none());
}
