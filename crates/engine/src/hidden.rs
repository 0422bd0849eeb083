//! Hints about files that a program missed, and that this host has outside the boundary.
//!
//! The names come from the program: its arguments, and the lines in which it says that something is
//! not there. Whether they exist is looked up outside, and told to the person alone.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use atoll_ledger::StateDir;
use atoll_policy::Rules;
use atoll_store::RunRecord;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use crate::printable::printable;

/// The most that is read of each stream, bytes.
const READ_BYTES_MAX: u64 = 256 << 10;
/// The most files that are told.
const HINTS_MAX: usize = 3;
/// The most files that are looked up.
const LOOKED_UP_MAX: usize = 64;

/// The words by which programs say that something is not there (strerror(3), and runtimes' own).
const MISSING: [&str; 8] = [
    "no such file",
    "not found",
    "enoent",
    "does not exist",
    "doesn't exist",
    "cannot open",
    "can't open",
    "cannot access",
];

/// Parts of paths where keys and logins lie: nobody is advised to show these.
const SECRET: [&str; 22] = [
    ".aws",
    ".azure",
    ".bash_history",
    ".docker",
    ".env",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".mozilla",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".pypirc",
    "atoll",
    "chromium",
    "credentials",
    "gcloud",
    "gh",
    "google-chrome",
    "keyrings",
    "op",
];

/// Returns a hint for each file that the program missed and that exists outside.
#[must_use]
pub fn hints(state: &StateDir, record: &RunRecord, rules: &Rules, home: &Path) -> Vec<String> {
    let output = state.run_dir(&record.run).join("output");
    let streams = ["stderr", "stdout"].map(|name| beginning(&output.join(name)));
    let mut paths = BTreeSet::new();
    for word in streams.iter().flat_map(|text| missing_in(text)) {
        if paths.len() < LOOKED_UP_MAX {
            paths.extend(path_in(word, home).filter(|path| is_beneath(home, path)));
        }
    }
    let of_person = record.command.iter().skip(1);
    paths.extend(of_person.filter_map(|word| path_in(word.as_bytes(), home)));
    let could_show = |path: &Path| !rules.shows(path, &record.workspace) && rules.could_show(path);
    let is_hidden = |path: &&PathBuf| {
        let real = path.canonicalize();
        could_show(path) && real.is_ok_and(|real| could_show(&real) && is_plain(&real))
    };
    let hidden = paths.iter().filter(is_hidden).take(HINTS_MAX);
    hidden.map(|path| hint(path, home)).collect()
}

/// Returns whether a path is of a file or a directory: devices, pipes and sockets are never shown.
fn is_plain(path: &Path) -> bool {
    let facts = path.symlink_metadata();
    facts.is_ok_and(|facts| facts.is_file() || facts.is_dir())
}

/// Returns whether a path that a program wrote exists beneath the home directory. No mount is crossed
/// and no link followed out of it: a look that made an automounter ask the network would carry what
/// the program wrote.
fn is_beneath(home: &Path, path: &Path) -> bool {
    let Ok(within) = path.strip_prefix(home) else {
        return false;
    };
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    File::open(home).is_ok_and(|home| openat2(home, within, flags, Mode::empty(), how).is_ok())
}

fn hint(path: &Path, home: &Path) -> String {
    let shown = match path.strip_prefix(home) {
        Ok(rest) => format!("~/{}", printable(rest.as_os_str().as_bytes())),
        Err(_) => printable(path.as_os_str().as_bytes()),
    };
    match is_secret(path) {
        true => format!(
            "{shown} exists on this host and is hidden: keys and logins stay outside, and are used \
             from there (atoll help credentials)"
        ),
        false => format!("{shown} exists on this host and is hidden; --ro {shown} shows it"),
    }
}

fn is_secret(path: &Path) -> bool {
    let is_of = |part: Component<'_>| {
        let part = part.as_os_str().as_bytes();
        SECRET.iter().any(|name| name.as_bytes() == part)
            || part.starts_with(b"id_")
            || part.ends_with(b".pem")
            || part.ends_with(b".key")
    };
    let real = path.canonicalize();
    let all = [Some(path), real.as_deref().ok()];
    let mut all = all.into_iter().flatten();
    all.any(|path| path.ends_with(".ssh") || path.components().any(is_of))
}

/// Returns the beginning of a kept stream.
pub(crate) fn beginning(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    if let Ok(file) = File::open(path) {
        // What cannot be read gives no hint.
        let _ = file.take(READ_BYTES_MAX).read_to_end(&mut text);
    }
    text
}

/// Returns the words of the lines that say that something is missing.
fn missing_in(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let says_so = |line: &&[u8]| {
        let line = String::from_utf8_lossy(line).to_ascii_lowercase();
        MISSING.iter().any(|words| line.contains(words))
    };
    let is_between = |byte: &u8| byte.is_ascii_whitespace() || b"'\"`()[]<>,;=".contains(byte);
    text.split(|byte| *byte == b'\n')
        .filter(says_so)
        .flat_map(move |line| line.split(is_between))
}

/// Returns the absolute path that a word is.
fn path_in(word: &[u8], home: &Path) -> Option<PathBuf> {
    let word = word.strip_suffix(b":").unwrap_or(word);
    let word = word.strip_suffix(b".").unwrap_or(word);
    let path = match word.strip_prefix(b"~/") {
        Some(rest) => home.join(std::ffi::OsStr::from_bytes(rest)),
        None => PathBuf::from(std::ffi::OsStr::from_bytes(word)),
    };
    let is_plain = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    // Nothing else is safe to paste.
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+@,:".contains(byte);
    let is_safe = path.as_os_str().as_bytes().iter().all(is_safe);
    let is_plain = is_plain && is_safe && path.is_absolute();
    (is_plain && path.components().count() > 2).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_paths_are_read_from_what_programs_say() {
        let home = Path::new("/home/ada");
        let text = b"cat: /home/ada/.vimrc: No such file or directory\n\
            Error: ENOENT: no such file or directory, open '/srv/data/x.json'\n\
            /etc/passwd is fine\n\
            bash: line 1: ~/bin/tool: not found\n";
        let paths: Vec<_> = missing_in(text)
            .filter_map(|word| path_in(word, home))
            .collect();
        let expected = ["/home/ada/.vimrc", "/srv/data/x.json", "/home/ada/bin/tool"];
        assert_eq!(paths, expected.map(PathBuf::from));
    }

    #[test]
    fn paths_of_programs_are_looked_up_beneath_the_home_alone() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        std::fs::write(home.join("there"), "").unwrap();
        std::os::unix::fs::symlink("/etc", home.join("out")).unwrap();
        for (path, expected) in [
            (home.join("there"), true),
            (home.join("absent"), false),
            (home.join("out/passwd"), false),
            (PathBuf::from("/etc/passwd"), false),
            (home.join("../../etc/passwd"), false),
        ] {
            assert_eq!(is_beneath(&home, &path), expected, "{path:?}");
        }
    }

    #[test]
    fn only_files_and_directories_are_plain() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("file");
        std::fs::write(&file, "").unwrap();
        let socket = top.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, expected) in [
            (file.as_path(), true),
            (top.path(), true),
            (&socket, false),
            (Path::new("/dev/null"), false),
            (Path::new("/absent"), false),
        ] {
            assert_eq!(is_plain(path), expected, "{path:?}");
        }
    }

    #[test]
    fn nobody_is_advised_to_show_a_key() {
        let home = Path::new("/home/ada");
        for (path, is_advised) in [
            ("/home/ada/.ssh/config", true),
            ("/home/ada/.ssh", false),
            ("/home/ada/.ssh/id_ed25519", false),
            ("/home/ada/.aws/config", false),
            ("/srv/tls/server.pem", false),
        ] {
            assert_eq!(
                hint(Path::new(path), home).contains("--ro"),
                is_advised,
                "{path}"
            );
        }
    }
}
