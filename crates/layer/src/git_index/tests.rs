mod forged;

use super::*;
use std::fs;
use std::path::Path;
use std::process::Command;

fn git(at: &Path, words: &[&str]) {
    let run = git_with(at, words);
    assert!(run.status.success(), "{words:?}: {run:?}");
}

/// Runs git as an author whom no configuration of the tester has to name.
fn git_with(at: &Path, words: &[&str]) -> std::process::Output {
    let own = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.com",
        "-c",
        "core.protectNTFS=false",
    ];
    let mut run = Command::new("git");
    run.current_dir(at).args(own).args(words).output().unwrap()
}

fn index(at: &Path) -> Vec<u8> {
    fs::read(at.join(".git/index")).unwrap()
}

fn is_held(index: &[u8]) -> bool {
    is_held_of(index, 20)
}

fn is_held_of(index: &[u8], digest_bytes: usize) -> bool {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), index).unwrap();
    reason(&file.reopen().unwrap(), index.len() as u64, digest_bytes).is_some()
}

fn digest_bytes(format: &[&str]) -> usize {
    if format.is_empty() { 20 } else { 32 }
}

/// Makes a repository with files of these names in its index.
fn repository(format: &[&str], version: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    git(place.path(), &[&["init", "-q"], format].concat());
    fs::create_dir_all(place.path().join("src/deep/er")).unwrap();
    for name in [
        "a",
        "src/bb",
        "src/deep/ccc",
        "src/deep/er/.gitignore",
        "zz/../q",
    ] {
        let _ = fs::write(place.path().join(name), name);
    }
    git(place.path(), &["add", "."]);
    git(place.path(), &["add", "-N", "."]);
    git(place.path(), &["update-index", "--index-version", version]);
    place
}

#[test]
fn what_git_writes_is_read_whatever_its_version() {
    for format in [&[][..], &["--object-format=sha256"]] {
        for version in ["2", "3", "4"] {
            let place = repository(format, version);
            assert!(
                !is_held_of(&index(place.path()), digest_bytes(format)),
                "{format:?} {version}"
            );
            git(place.path(), &["commit", "-qm", "one"]);
            git(place.path(), &["status"]);
            assert!(
                !is_held_of(&index(place.path()), digest_bytes(format)),
                "{format:?} {version}"
            );
        }
    }
}

#[test]
fn an_index_that_names_what_is_elsewhere_is_held() {
    let place = repository(&[], "2");
    let good = index(place.path());
    let (from, length) = (b"src/deep/ccc", 12);
    let at = good.windows(length).position(|part| part == from).unwrap();
    for name in [
        "../eep/ccccc",
        "/rc/deep/ccc",
        "src/../../cc",
        "src/.git/ccc",
        ".GIT/hooks/c",
        "src/./eep/cc",
        "src//eep/ccc",
        "src\\deep\\ccc",
    ] {
        let mut forged = good.clone();
        forged[at..at + length].copy_from_slice(&name.as_bytes()[..length]);
        assert!(is_held(&forged), "{name}");
    }
    let mut other = good.clone();
    other[at..at + length].copy_from_slice(b"src/deep/ccd");
    assert!(!is_held(&other));
}

/// Trees that were changed in part, commits of submodules, a merge that has ended and one that has
/// not, and directories that are left out.
#[test]
fn what_git_writes_at_work_is_read() {
    let place = repository(&[], "2");
    let at = place.path();
    git(at, &["commit", "-qm", "one"]);
    git(at, &["checkout", "-qb", "other"]);
    git(at, &["clone", "-q", ".", "part"]);
    fs::write(at.join("src/deep/new"), "new").unwrap();
    git(
        at,
        &["-c", "advice.addEmbeddedRepo=false", "add", "src", "part"],
    );
    assert!(!is_held(&index(at)));
    git(at, &["commit", "-qm", "two"]);
    git(at, &["checkout", "-q", "-"]);
    fs::write(at.join("src/deep/new"), "another").unwrap();
    git(at, &["add", "src"]);
    git(at, &["commit", "-qm", "three"]);
    git(at, &["merge", "-q", "-s", "ours", "other"]);
    assert!(!is_held(&index(at)));
    git(at, &["reset", "-q", "--hard", "HEAD^"]);
    let merge = git_with(at, &["merge", "-q", "other"]);
    assert_eq!(merge.status.code(), Some(1), "no conflict: {merge:?}");
    assert!(!is_held(&index(at)));
    git(at, &["reset", "-q", "--hard"]);
    git(at, &["sparse-checkout", "init", "--cone", "--sparse-index"]);
    assert!(!is_held(&index(at)));
    git(at, &["sparse-checkout", "set", "zz"]);
    assert!(!is_held(&index(at)));
}

/// Git commits the trees that an index names, and shows no difference from the files.
#[test]
fn an_index_whose_trees_are_not_those_of_its_files_is_held() {
    for format in [&[][..], &["--object-format=sha256"]] {
        let place = repository(format, "2");
        git(place.path(), &["commit", "-qm", "one"]);
        let good = index(place.path());
        assert!(!is_held_of(&good, digest_bytes(format)));
        let at = good.windows(4).position(|part| part == b"TREE").unwrap();
        // The root's count and tree, and those of `src` and of what is in it.
        for what in [&b"\n"[..], b"src\0", b"deep\0", b"er\0"] {
            let found = good[at..].windows(what.len()).position(|part| part == what);
            let name = at + found.unwrap();
            let end = good[name..].iter().position(|byte| *byte == b'\n').unwrap();
            let mut forged = good.clone();
            forged[name + end + 1] ^= 1;
            assert!(is_held_of(&forged, digest_bytes(format)), "{what:?}");
        }
        let mut forged = good.clone();
        let count = forged[at + 8..]
            .iter()
            .position(|byte| *byte == b' ')
            .unwrap();
        forged[at + 8 + count - 1] ^= 1;
        assert!(is_held_of(&forged, digest_bytes(format)));
    }
}

#[test]
fn what_cannot_be_read_or_is_elsewhere_is_held() {
    let place = repository(&[], "2");
    let good = index(place.path());
    for end in [0, 3, 11, 12, 40, 75, good.len() / 2, good.len() - 1] {
        assert!(is_held(&good[..end]), "{end}");
    }
    assert!(is_held(&[&good[..], b"x"].concat()));
    git(place.path(), &["update-index", "--split-index"]);
    assert!(is_held(&index(place.path())));
    git(place.path(), &["update-index", "--no-split-index"]);
    assert!(!is_held(&index(place.path())));
}

fn has(index: &[u8], extension: &[u8]) -> bool {
    index.windows(4).any(|four| four == extension)
}

#[test]
fn what_git_writes_for_several_threads_is_read() {
    for format in [&[][..], &["--object-format=sha256"]] {
        for version in ["2", "4"] {
            let place = repository(format, version);
            let at = place.path();
            git(at, &["config", "index.threads", "3"]);
            fs::write(at.join("another"), "").unwrap();
            git(at, &["add", "."]);
            let written = index(at);
            assert!(has(&written, b"EOIE") && has(&written, b"IEOT"));
            assert!(
                !is_held_of(&written, digest_bytes(format)),
                "{format:?} {version}"
            );
        }
    }
}

#[test]
fn what_git_writes_of_merges_and_to_be_fast_is_read() {
    let place = repository(&[], "2");
    let at = place.path();
    git(at, &["commit", "-qm", "one"]);
    git(at, &["checkout", "-qb", "other"]);
    fs::write(at.join("src/bb"), "theirs").unwrap();
    git(at, &["commit", "-qam", "two"]);
    git(at, &["checkout", "-q", "-"]);
    fs::write(at.join("src/bb"), "ours").unwrap();
    git(at, &["commit", "-qam", "three"]);
    let merge = git_with(at, &["merge", "-q", "other"]);
    assert_eq!(merge.status.code(), Some(1), "no conflict: {merge:?}");
    git(at, &["add", "src/bb"]);
    assert!(has(&index(at), b"REUC"));
    assert!(!is_held(&index(at)));

    git(at, &["update-index", "--force-untracked-cache"]);
    fs::create_dir_all(at.join("new/deep")).unwrap();
    for name in ["new/deep/file", "src/new", "top"] {
        fs::write(at.join(name), "").unwrap();
    }
    git(at, &["status"]);
    git(at, &["status"]);
    assert!(has(&index(at), b"UNTR"));
    assert!(!is_held(&index(at)));

    let hook = at.join(".git/monitor");
    fs::write(&hook, "#!/bin/sh\nprintf 'token\\0/\\0'\n").unwrap();
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    git(at, &["config", "core.fsmonitor", hook.to_str().unwrap()]);
    git(at, &["update-index", "--fsmonitor"]);
    git(at, &["status"]);
    assert!(has(&index(at), b"FSMN"));
    assert!(!is_held(&index(at)));
}
