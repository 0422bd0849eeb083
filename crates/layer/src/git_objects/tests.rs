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

/// Makes a repository with two commits, a directory, a link, a program and a tag.
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

/// Returns all loose objects, with their names.
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

/// Makes an object of this text, with the name by its digest.
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
                read_one
                    .needs
                    .iter()
                    .all(|(needed, _)| names.contains(needed)),
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
    let trees = |entries: &[(&str, &str)]| {
        let entry =
            |(mode, entry): &(&str, &str)| [format!("{mode} {entry}\0").as_bytes(), &name].concat();
        let content = entries.iter().map(entry).collect::<Vec<_>>().concat();
        [format!("tree {}\0", content.len()).as_bytes(), &content].concat()
    };
    let tree = |mode: &str, entry: &str| trees(&[(mode, entry)]);
    let sorted = trees(&[("100644", "a.b"), ("40000", "a"), ("100644", "a0")]);
    assert_eq!(read_made(&sorted).unwrap().needs.len(), 2);
    assert_eq!(
        read_made(&tree("100644", "a")).unwrap().needs,
        [(Id::of(&name), ObjectKind::Blob)]
    );
    assert_eq!(read_made(&tree("160000", "a")).unwrap().needs, []);
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
        &tree("100644", ".git"),
        &tree("40000", ".GIT"),
        &tree("40000", ".."),
        &tree("100644", "a/b"),
        &tree("100644", ""),
        &tree("777", "a"),
        &trees(&[("100644", "a"), ("100644", "a")]),
        &trees(&[("100644", ""), ("100644", "a")]),
        &trees(&[("40000", "a"), ("100644", "a.")]),
        &trees(&[("100644", "a"), ("100644", "a."), ("40000", "a")]),
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
        // Many that differ little, so that they are packed as what differs.
        for line in 0..40 {
            let text = format!("{}{line}\n", "a line of a file\n".repeat(200));
            fs::write(place.path().join("grows"), text).unwrap();
            git(place.path(), &["add", "."]);
            git(place.path(), &["commit", "-qm", "grows"]);
        }
        let kind = |(name, file): (String, PathBuf)| {
            let kind = git(place.path(), &["cat-file", "-t", &name]);
            (name, file, kind.trim().to_owned())
        };
        let all: Vec<_> = loose(place.path()).into_iter().map(kind).collect();
        let absent = Id::of(&vec![9; format.bytes()]);
        for packed in [false, true] {
            if packed {
                git(place.path(), &["gc", "-q"]);
                assert!(loose(place.path()).is_empty());
            }
            let tree = Tree::open(&place.path().join(".git")).unwrap();
            let outside = Outside::open(&tree).unwrap();
            assert_eq!(outside.format, format);
            for (name, _, kind) in &all {
                let id = Id::read(name.as_bytes(), format).unwrap();
                let shown = outside
                    .kind(&id)
                    .map(|kind| format!("{kind:?}").to_lowercase());
                assert_eq!(shown.as_ref(), Some(kind), "{name} {packed}");
            }
            assert_eq!(outside.kind(&absent), None);
        }
    }
    let place = repository(&[]);
    git(place.path(), &["config", "extensions.objectFormat", "new"]);
    let tree = Tree::open(&place.path().join(".git")).unwrap();
    assert!(Outside::open(&tree).is_none());
}

/// A configuration that git cannot read has no known values, nor has a key without a value: it was
/// taken for SHA-1.
#[test]
fn a_configuration_that_is_unclear_names_no_digest() {
    let named = |text: &str| Format::of(text.as_bytes());
    assert_eq!(named("[core]\n\tbare = false\n"), Some(Format::Sha1));
    assert_eq!(
        named("[extensions]\n\tobjectFormat = sha256\n"),
        Some(Format::Sha256)
    );
    let place = repository(&[]);
    for text in [
        "[",
        "[extensions]\n\tobjectFormat = sha256\n[core",
        "[extensions]\n\tobjectFormat = \"sha256\n",
        "[extensions]\n\tobjectFormat\n",
        "[extensions]\n\tobjectFormat = new\n",
    ] {
        assert_eq!(named(text), None, "{text}");
        fs::write(place.path().join(".git/config"), text).unwrap();
        let tree = Tree::open(&place.path().join(".git")).unwrap();
        assert!(Outside::open(&tree).is_none(), "{text}");
    }
}
