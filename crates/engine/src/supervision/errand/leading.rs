//! The search for sandbox-writable paths in a text: a variable's value, or an argument.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{WrittenInside, resolved};

/// The separators of paths in a text, or before a path given to an option.
const BETWEEN: &[u8] = b":=,|;&<>()'\"`@ \t\r\n";
/// The forms of the home directory in a shell.
const HOMES: [&[u8]; 3] = [b"~", b"$HOME", b"${HOME}"];
/// The longest name in a directory (limits.h, `NAME_MAX`), bytes.
const NAME_BYTES_MAX: usize = 255;

/// The kind of a word, by its part before the first slash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// Not a path.
    Plain,
    /// An absolute path, perhaps after an option's letter.
    Absolute,
    /// A path beneath the home directory.
    Home,
    /// A path beneath the home directory of another user.
    HomeOfOther,
    /// A path relative to the program's directory, or to where it looks.
    Relative,
}

impl Word {
    fn of(word: &[u8]) -> (Self, &[u8]) {
        let slash = word.iter().position(|byte| *byte == b'/');
        let head = word.get(..slash.unwrap_or(word.len())).unwrap_or_default();
        let kind = match (head, slash) {
            _ if HOMES.contains(&head) => Self::Home,
            (_, None) => Self::Plain,
            (b"." | b"..", Some(_)) => Self::Relative,
            ([b'~', ..], Some(_)) => Self::HomeOfOther,
            ([b'-', ..], Some(_)) => Self::Absolute,
            _ if !head.iter().any(u8::is_ascii_alphanumeric) => Self::Absolute,
            _ => Self::Relative,
        };
        (kind, head)
    }
}

/// Returns whether any path in a text is sandbox-writable, is reached through such a path, or
/// cannot be resolved: an absolute path, one beneath the home, or one with a slash that would
/// exist beneath `/` or the home.
pub(super) fn leads_inside(text: &OsStr, written: &WrittenInside, home: &Path) -> bool {
    let top = Path::new("/");
    words(text.as_bytes()).any(|(word, rest)| {
        let (kind, head) = Word::of(word);
        let after = rest.get(head.len()..).unwrap_or_default();
        match kind {
            Word::Plain => false,
            Word::HomeOfOther => true,
            Word::Absolute => is_led(top, after, written),
            Word::Home => is_led(home, after, written),
            Word::Relative => is_led(top, rest, written) || is_led(home, rest, written),
        }
    })
}

/// Returns whether a text has a path that starts at the current directory.
pub(super) fn begins_here(text: &OsStr) -> bool {
    let here: [&[u8]; 2] = [b"./", b"../"];
    words(text.as_bytes()).any(|(word, _)| here.iter().any(|one| word.starts_with(one)))
}

/// Returns each word, with all of the text from its start: file names can contain separators.
fn words(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = text;
    text.split(|byte| BETWEEN.contains(byte)).map(move |word| {
        let from = rest;
        rest = rest.get(word.len() + 1..).unwrap_or_default();
        (word, from)
    })
}

/// Returns whether a path that starts with the text is sandbox-writable, wherever in the text
/// it ends.
fn is_led(base: &Path, text: &[u8], written: &WrittenInside) -> bool {
    let begin = text.iter().position(|byte| *byte != b'/');
    let text = begin
        .and_then(|begin| text.get(begin..))
        .unwrap_or_default();
    // What stands between words at the very begin ends the path there.
    let ends = (0..=text.len()).filter(|at| text.get(*at).is_none_or(|one| BETWEEN.contains(one)));
    for end in ends {
        let path = base.join(OsStr::from_bytes(text.get(..end).unwrap_or_default()));
        if resolved(&path, written).is_none() {
            return true;
        }
        let name = path.file_name().unwrap_or_default();
        if name.len() > NAME_BYTES_MAX || path.parent().is_some_and(is_missing) {
            // Nor is there anything beneath.
            return false;
        }
    }
    false
}

fn is_missing(directory: &Path) -> bool {
    let facts = directory.metadata();
    facts.is_err_and(|error| {
        let kind = error.kind();
        kind == ErrorKind::NotFound || kind == ErrorKind::NotADirectory
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_into_the_workspace_is_found_wherever_it_stands_in_a_text() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let (workspace, odd, bin) = (top.join("work"), top.join("my work:x"), top.join("bin"));
        for made in [&workspace, &odd, &bin] {
            std::fs::create_dir(made).unwrap();
        }
        symlink(&workspace, bin.join("led")).unwrap();
        symlink("loop", bin.join("loop")).unwrap();
        let written = WrittenInside::from_iter([workspace.clone(), odd]);
        let leads = |text: &str| {
            let text = text.replace("TOP", top.to_str().unwrap());
            leads_inside(&OsString::from(text), &written, &top)
        };
        for text in [
            "TOP/work",
            "TOP/work/gc",
            "//TOP/work/gc",
            "TOP/bin/../work/gc",
            "TOP/bin/led",
            "TOP/bin/loop",
            "/usr/bin:TOP/work/bin",
            "TOP/bin/led/x:/usr/bin",
            "--config=TOP/work/x",
            "a=b=TOP/work/x",
            "|TOP/work/less %s",
            "x,TOP/work",
            "ssh -F TOP/work/cfg",
            "ssh -FTOP/work/cfg",
            "file://TOP/work/x",
            "!TOP/work/x",
            "@TOP/work/x",
            "TOP/my work:x/gc",
            "a TOP/my work:x",
            "TOP/bin TOP/my work:x b",
            "sh -c 'cat <TOP/work/x'",
            "~/work/x",
            "$HOME/work/x",
            "a:${HOME}/work/x",
            "work/x",
            "../TOP/work/x",
            "~somebody/x",
        ] {
            assert!(leads(text), "{text}");
        }
        let bare = top.to_str().unwrap().trim_start_matches('/');
        assert!(leads(&format!("{bare}/work/x")));
        for text in [
            "",
            "x",
            "work",
            "~",
            "TOP",
            "TOP/bin",
            "TOP/workshop/x",
            "TOP/missing/x:/usr",
            "/usr/bin:/bin",
            "Europe/Berlin",
            "arn:aws:iam::123:role/name",
            "http://proxy:3128",
            "/",
            "a / b",
            ":",
            "*.tar=01;31:*.zip=01;31",
        ] {
            assert!(!leads(text), "{text}");
        }
        // The control: it is what is written inside that decides.
        let nothing = WrittenInside::default();
        assert!(!leads_inside(workspace.as_os_str(), &nothing, &top));
    }

    #[test]
    fn a_path_from_where_the_program_is_is_told() {
        for text in ["./x", "../x", "a=./x", "|./less %s"] {
            assert!(begins_here(OsStr::new(text)), "{text}");
        }
        for text in ["x", "x/y", "...", ".", "/usr/./bin", "Europe/Berlin"] {
            assert!(!begins_here(OsStr::new(text)), "{text}");
        }
    }
}
