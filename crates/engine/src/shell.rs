//! Commands and paths as words of a shell, for commands that a person can paste.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::printable::printable;

/// Formats a program with its arguments on one line, quoted as for a shell where needed.
#[must_use]
pub fn command_line(command: &[OsString]) -> String {
    let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

/// Quotes a path or a name as a word of a suggested command: pasted, it names exactly that. It is
/// one word of a shell and never an option; bytes that are not printable are escaped, as
/// `$'a\012b'`, which shells read (POSIX.1-2024, XCU 2.2.4).
#[must_use]
pub fn word(of: impl AsRef<OsStr>) -> String {
    let mut word = of.as_ref().to_owned();
    if word.as_bytes().starts_with(b"-") {
        word = OsString::from("./");
        word.push(of);
    }
    let bytes = word.as_bytes();
    if printable(bytes).as_bytes() == bytes {
        return quoted(&word);
    }
    let mut shown = String::from("$'");
    for byte in bytes {
        match byte {
            b'\'' | b'\\' => shown.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => shown.push(char::from(*byte)),
            other => shown.push_str(&format!("\\{other:03o}")),
        }
    }
    shown.push('\'');
    shown
}

/// Quotes the path of a file beside this one: the same path with this suffix.
#[must_use]
pub fn word_beside(path: &Path, end: &str) -> String {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    word(path)
}

fn quoted(word: &OsStr) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./=:,+@%^".contains(byte);
    let shown = printable(word.as_bytes());
    if !word.is_empty() && word.as_bytes().iter().all(plain) {
        shown
    } else {
        format!("'{}'", shown.replace('\'', r"'\''"))
    }
}

/// Returns what exists of a path for a person to look at: the path, or the nearest directory above.
/// Atoll's own temporary files are gone by then, or soon will be.
#[must_use]
pub fn existing(path: &Path) -> &Path {
    let is_temporary = |above: &Path| {
        let name = above.file_name().map(OsStrExt::as_bytes);
        name.is_some_and(|name| name.starts_with(b".atoll-"))
    };
    let is_there = |above: &&Path| !is_temporary(above) && above.symlink_metadata().is_ok();
    path.ancestors().find(is_there).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_is_the_nearest_directory() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        for name in ["file", ".atoll-0123-1"] {
            std::fs::write(top.join(name), "").unwrap();
        }
        for (path, expected) in [
            ("file", "file"),
            ("never/made", ""),
            (".atoll-0123-1", ""),
            (".atoll-0123-2/below", ""),
        ] {
            let expected = if expected.is_empty() {
                top.to_owned()
            } else {
                top.join(expected)
            };
            assert_eq!(existing(&top.join(path)), expected, "{path}");
        }
        assert_eq!(existing(Path::new("no such")), Path::new("no such"));
    }
}
