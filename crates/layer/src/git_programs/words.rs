//! Settings that name programs, and the paths in a command.

use crate::git_config::Setting;

/// The way in which git uses a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// A directory from which it takes programs.
    Tree,
    /// A command, or the path of a program or of settings.
    Command,
}

/// Keys of directories with hooks.
const TREES: [&[u8]; 2] = [b"hookspath", b"templatedir"];
/// Sections in which every value is a command.
const SECTIONS: [&[u8]; 2] = [b"alias", b"pager"];
/// Suffixes of keys whose values are run, or name what is run (git-config(1); further ones are of
/// programs that come with git or extend it).
const ENDS: [&[u8]; 30] = [
    b"args",
    b"askpass",
    b"allowedsignersfile",
    b"attributesfile",
    b"browser",
    b"clean",
    b"cmd",
    b"command",
    b"driver",
    b"editor",
    b"external",
    b"filter",
    b"fsmonitor",
    b"gitproxy",
    b"helper",
    b"hook",
    b"httpd",
    b"pager",
    b"path",
    b"process",
    b"prog",
    b"program",
    b"receivepack",
    b"smtpserver",
    b"smudge",
    b"textconv",
    b"tunnel",
    b"update",
    b"uploadpack",
    b"vcs",
];
/// The prefix of a URL that is a command (git-remote-ext(1)).
const COMMAND_ADDRESS: &[u8] = b"ext::";
/// Words whose next word can be a directory, and then stands for everything in it.
const ENTERING: [&[u8]; 6] = [b"cd", b"pushd", b"-C", b"python", b"python3", b"node"];
/// The separators of words for a shell, or of paths within one word.
const MARKS: &[u8] = b" \t\n\r\"'`$&();<>|{}=,:!*?[]\\";

/// Returns how git uses a setting's value, if that can make it run something.
pub(super) fn used_as(setting: &Setting) -> Option<Use> {
    let (section, key) = (setting.section.as_slice(), setting.key.as_slice());
    let is_submodule_place = section == b"submodule" && key == b"path";
    let is_command = SECTIONS.contains(&section)
        || ENDS.iter().any(|end| key.ends_with(end))
        || crate::git_config::holds(&setting.value, COMMAND_ADDRESS);
    if TREES.contains(&key) {
        Some(Use::Tree)
    } else if is_command && !is_submodule_place {
        Some(Use::Command)
    } else {
        None
    }
}

/// A possible path in a command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Word {
    pub text: Vec<u8>,
    /// Set when it stands for everything beneath it too. A plain word names a file at most: `test`
    /// in `cargo test` is no directory.
    pub is_whole: bool,
}

/// Returns every possible path in a command: the whole, its words, and the parts of words.
pub(super) fn words(value: &[u8]) -> Vec<Word> {
    let command = value.strip_prefix(b"!").unwrap_or(value);
    let (mut found, mut is_entered) = (Vec::new(), false);
    let mut parts = unquoted(command);
    let mut rest = command;
    while let Some(at) = rest.iter().position(|byte| MARKS.contains(byte)) {
        let (part, behind) = rest.split_at(at);
        parts.push(part.to_vec());
        rest = behind.get(1..).unwrap_or_default();
        if behind.first() == Some(&b'$') {
            // What a variable stands for is not known: a path behind it may begin at the top.
            let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            let end = rest.iter().position(|byte| !is_name(byte));
            rest = end.and_then(|end| rest.get(end..)).unwrap_or_default();
        }
    }
    parts.push(rest.to_vec());
    for text in parts.iter().filter(|text| !text.is_empty()) {
        add(&mut found, text, is_entered);
        // The value of a short option may follow at once.
        if let Some(value) = text.strip_prefix(b"-").and_then(|option| option.get(1..)) {
            add(&mut found, value, false);
        }
        is_entered = ENTERING.contains(&text.as_slice());
    }
    add(&mut found, command, false);
    found.sort();
    found.dedup();
    found
}

fn add(found: &mut Vec<Word>, text: &[u8], is_entered: bool) {
    let is_option = text.starts_with(b"-") && !text.contains(&b'/');
    if !text.is_empty() && !is_option {
        found.push(Word {
            is_whole: is_entered || text.contains(&b'/'),
            text: text.to_vec(),
        });
    }
}

/// Splits a command into words, as a shell does, without their quotes.
fn unquoted(command: &[u8]) -> Vec<Vec<u8>> {
    let (mut found, mut word, mut quote) = (Vec::new(), Vec::new(), None);
    let mut bytes = command.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if quote != Some(b'\'') => word.extend(bytes.next()),
            b'\'' | b'"' if quote == Some(byte) => quote = None,
            b'\'' | b'"' if quote.is_none() => quote = Some(byte),
            blank if blank.is_ascii_whitespace() && quote.is_none() => {
                found.push(std::mem::take(&mut word));
            }
            other => word.push(other),
        }
    }
    found.push(word);
    found
}
