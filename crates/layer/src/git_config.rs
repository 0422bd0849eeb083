//! The configuration of a git repository (git-config(1), "Syntax"): its values, and a copy without
//! secrets.

/// The largest configuration that is read, bytes.
pub const CONFIGURATION_BYTES_MAX: u64 = 1 << 20;

/// Parts of key names whose values are secrets, in lower case.
const NAMES: [&[u8]; 14] = [
    b"token",
    b"secret",
    b"pass",
    b"pwd",
    b"cookie",
    b"credential",
    b"apikey",
    b"accesskey",
    b"authkey",
    b"privatekey",
    b"header",
    b"bearer",
    b"authorization",
    b"oauth",
];
/// The prefixes of secrets, and texts that stand before one.
const SIGNS: [&[u8]; 17] = [
    b"ghp_",
    b"gho_",
    b"ghu_",
    b"ghs_",
    b"ghr_",
    b"github_pat_",
    b"glpat-",
    b"AKIA",
    b"ASIA",
    b"xoxb-",
    b"xoxp-",
    b"eyJ",
    b"ATATT",
    b"npm_",
    b"hf_",
    b"sk-",
    b"PRIVATE KEY",
];
/// Words of commands and headers that mark a secret, in any case.
const WORDS: [&[u8]; 3] = [b"bearer ", b"authorization", b"sshpass"];
/// Words, in any case, that mark a secret when `=`, `:` or a space follows.
const NAMED: [&[u8]; 6] = [
    b"password",
    b"passwd",
    b"token",
    b"secret",
    b"apikey",
    b"api-key",
];

/// The error of text that is not in the form that git reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not in the form of a configuration of git")]
pub struct NoConfiguration;

/// One part of a configuration.
#[derive(Debug, PartialEq, Eq)]
enum Item {
    Section {
        /// In lower case.
        name: Vec<u8>,
        within: Option<Vec<u8>>,
    },
    Entry {
        /// In lower case.
        key: Vec<u8>,
        /// `None` where the key has no value.
        value: Option<Vec<u8>>,
    },
    Comment(Vec<u8>),
}

/// Returns the configuration without anything that is a secret by its name or by its shape:
/// sections `credential`, headers, tokens and passwords, and the user information in URLs. Comments
/// and layout are removed too. `None` where it holds no secret.
///
/// # Errors
/// [`NoConfiguration`]: then nothing is known of it.
pub fn without_secrets(text: &[u8]) -> Result<Option<Vec<u8>>, NoConfiguration> {
    let items = read(text).ok_or(NoConfiguration)?;
    let (mut made, mut is_left, mut is_other) = (Vec::new(), false, false);
    for item in items {
        match item {
            Item::Section { name, within } => {
                let of_within = within
                    .as_deref()
                    .is_some_and(|text| made_plain(text) != Some(text.to_vec()));
                is_left = name.starts_with(b"credential") || has_name(&name) || of_within;
                is_other |= is_left;
                if !is_left {
                    write_section(&mut made, &name, within.as_deref());
                }
            }
            Item::Comment(text) => {
                is_other |= has_name(&text.to_ascii_lowercase()) || made_plain(&text) != Some(text);
            }
            Item::Entry { .. } if is_left => {}
            Item::Entry { key, .. } if has_name(&key) => is_other = true,
            Item::Entry { key, value: None } => {
                made.extend([b"\t", key.as_slice(), b"\n"].concat());
            }
            Item::Entry {
                key,
                value: Some(value),
            } => {
                let plain = made_plain(&value);
                is_other |= plain.as_ref() != Some(&value);
                if let Some(plain) = plain {
                    made.extend([b"\t", key.as_slice(), b" = "].concat());
                    write_quoted(&mut made, &plain);
                    made.push(b'\n');
                }
            }
        }
    }
    Ok(is_other.then_some(made))
}

/// Returns the last value of a key in a section without a subsection; `None` where the key is
/// absent.
///
/// # Errors
/// [`NoConfiguration`] where it cannot be read, or the key is there without a value: what git
/// makes of that is not known.
pub(crate) fn value(
    text: &[u8],
    section: &[u8],
    wanted: &[u8],
) -> Result<Option<Vec<u8>>, NoConfiguration> {
    let (mut is_in, mut found) = (false, None);
    for item in read(text).ok_or(NoConfiguration)? {
        match item {
            Item::Section { name, within } => is_in = name == section && within.is_none(),
            Item::Entry { key, value } if is_in && key == wanted => found = Some(value),
            Item::Entry { .. } | Item::Comment(_) => {}
        }
    }
    match found {
        Some(None) => Err(NoConfiguration),
        Some(value) => Ok(value),
        None => Ok(None),
    }
}

/// A key with its value, and its section without the subsection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// In lower case.
    pub section: Vec<u8>,
    /// In lower case.
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// Returns all keys that have a value.
///
/// # Errors
/// [`NoConfiguration`] where it cannot be read.
pub(crate) fn settings(text: &[u8]) -> Result<Vec<Setting>, NoConfiguration> {
    let (mut section, mut found) = (Vec::new(), Vec::new());
    for item in read(text).ok_or(NoConfiguration)? {
        match item {
            Item::Section { name, .. } => {
                // In the older form a dot is before the name within.
                let name = name.split(|byte| *byte == b'.').next();
                section = name.unwrap_or_default().to_vec();
            }
            Item::Entry { key, value } => found.extend(value.map(|value| Setting {
                section: section.clone(),
                key,
                value,
            })),
            Item::Comment(_) => {}
        }
    }
    Ok(found)
}

fn has_name(name: &[u8]) -> bool {
    NAMES.iter().any(|part| holds(name, part))
}

pub(crate) fn holds(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|within| within == part)
}

/// Returns whether a text holds a secret, by the word before it or by its prefix.
fn looks_secret(text: &[u8]) -> bool {
    let lower = text.to_ascii_lowercase();
    let begins = |at: usize| {
        let before = at.checked_sub(1).and_then(|at| text.get(at));
        let is_apart = before.is_none_or(|byte| !byte.is_ascii_alphanumeric());
        let rest = text.get(at..).unwrap_or_default();
        is_apart && SIGNS.iter().any(|sign| rest.starts_with(sign))
    };
    let says = |at: usize| {
        let rest = lower.get(at..).unwrap_or_default();
        let mut named = NAMED.iter().filter_map(|name| rest.strip_prefix(*name));
        named.any(|rest| rest.first().is_some_and(|mark| b"=: ".contains(mark)))
    };
    WORDS.iter().any(|word| holds(&lower, word)) || (0..text.len()).any(|at| begins(at) || says(at))
}

/// Returns a value without the user information in its URLs; `None` where more of it may be a
/// secret.
fn made_plain(value: &[u8]) -> Option<Vec<u8>> {
    let is_secret = looks_secret(value);
    let (mut made, mut rest) = (Vec::new(), value);
    while let Some(at) = rest.windows(3).position(|three| three == b"://") {
        let (before, after) = rest.split_at(at + 3);
        let is_end = |byte: &u8| {
            matches!(byte, b'/' | b'"' | b'\'' | b'<' | b'>') || byte.is_ascii_whitespace()
        };
        let end = after.iter().position(is_end).unwrap_or(after.len());
        let (authority, following) = after.split_at(end);
        made.extend(before);
        let name = authority.iter().rposition(|byte| *byte == b'@');
        let user = name.and_then(|at| authority.get(..at)).unwrap_or_default();
        // A login by SSH says only who it is.
        let is_ssh = before.to_ascii_lowercase().ends_with(b"ssh://");
        let is_name = is_ssh && !user.contains(&b':');
        let from = name.filter(|_| !is_name).map_or(0, |at| at + 1);
        made.extend(authority.get(from..).unwrap_or_default());
        // What is asked of a server can have a key in it; and a password can have a slash.
        if following.iter().any(|byte| matches!(byte, b'?' | b'@')) {
            return None;
        }
        rest = following;
    }
    made.extend(rest);
    (!is_secret).then_some(made)
}

fn write_section(made: &mut Vec<u8>, name: &[u8], within: Option<&[u8]>) {
    made.push(b'[');
    made.extend(name);
    if let Some(within) = within {
        made.extend(b" \"");
        for byte in within {
            if matches!(byte, b'"' | b'\\') {
                made.push(b'\\');
            }
            made.push(*byte);
        }
        made.push(b'"');
    }
    made.extend(b"]\n");
}

fn write_quoted(made: &mut Vec<u8>, value: &[u8]) {
    made.push(b'"');
    for byte in value {
        match byte {
            b'"' | b'\\' => made.extend([b'\\', *byte]),
            b'\n' => made.extend(b"\\n"),
            b'\t' => made.extend(b"\\t"),
            8 => made.extend(b"\\b"),
            other => made.push(*other),
        }
    }
    made.push(b'"');
}

/// Parses all items in order, as git reads them.
fn read(text: &[u8]) -> Option<Vec<Item>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    if text.contains(&0) || text.len() as u64 > CONFIGURATION_BYTES_MAX {
        return None;
    }
    // At the end of a line git takes two bytes for one.
    let text: Vec<u8> = String::from_utf8(text.to_vec())
        .ok()?
        .replace("\r\n", "\n")
        .into();
    let mut reader = Reader { rest: &text };
    let mut items = Vec::new();
    let mut has_section = false;
    while let Some(byte) = reader.next() {
        match byte {
            b'#' | b';' => items.push(Item::Comment(reader.line())),
            b'[' => {
                items.push(reader.section()?);
                has_section = true;
            }
            one if one.is_ascii_alphabetic() && has_section => {
                items.push(reader.entry(one)?);
            }
            one if one.is_ascii_whitespace() => {}
            _ => return None,
        }
    }
    Some(items)
}

/// A reader over the rest of a configuration.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Reads the rest of a line, without its end.
    fn line(&mut self) -> Vec<u8> {
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let (line, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        line.to_vec()
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t') = self.peek() {
            let _ = self.next();
        }
    }

    fn section(&mut self) -> Option<Item> {
        let mut name = Vec::new();
        loop {
            match self.next()? {
                b']' => return Some(Item::Section { name, within: None }),
                b' ' | b'\t' => break,
                one if one.is_ascii_alphanumeric() || matches!(one, b'-' | b'.') => {
                    name.push(one.to_ascii_lowercase());
                }
                _ => return None,
            }
        }
        self.blanks();
        if self.next()? != b'"' {
            return None;
        }
        let mut within = Vec::new();
        loop {
            match self.next()? {
                b'\n' => return None,
                b'"' => break,
                b'\\' => match self.next()? {
                    b'\n' => return None,
                    other => within.push(other),
                },
                other => within.push(other),
            }
        }
        let within = Some(within);
        (self.next()? == b']').then_some(Item::Section { name, within })
    }

    fn name(&mut self, first: u8) -> Vec<u8> {
        let mut name = vec![first.to_ascii_lowercase()];
        while let Some(byte) = self.peek() {
            if !byte.is_ascii_alphanumeric() && byte != b'-' {
                break;
            }
            name.push(byte.to_ascii_lowercase());
            let _ = self.next();
        }
        name
    }

    /// Reads a key, with its value if it has one.
    fn entry(&mut self, first: u8) -> Option<Item> {
        let key = self.name(first);
        self.blanks();
        let value = match self.next() {
            None | Some(b'\n') => None,
            Some(b'=') => Some(self.value()?),
            Some(_) => return None,
        };
        Some(Item::Entry { key, value })
    }

    /// Reads a value. A comment behind it stays as the rest of its line.
    fn value(&mut self) -> Option<Vec<u8>> {
        self.blanks();
        let (mut value, mut is_quoted, mut kept) = (Vec::new(), false, 0);
        loop {
            match self.peek() {
                None | Some(b'\n') if is_quoted => return None,
                None | Some(b'\n' | b'#' | b';') if !is_quoted => {
                    value.truncate(kept);
                    return Some(value);
                }
                Some(_) | None => {}
            }
            match self.next() {
                Some(b'"') => is_quoted = !is_quoted,
                Some(b'\\') => match self.next()? {
                    b'\n' => continue,
                    b't' => value.push(b'\t'),
                    b'b' => value.push(8),
                    b'n' => value.push(b'\n'),
                    other @ (b'\\' | b'"') => value.push(other),
                    _ => return None,
                },
                None => return None,
                Some(blank) if blank.is_ascii_whitespace() && !is_quoted => {
                    value.push(blank);
                    // At the end of a line it is none of the value.
                    continue;
                }
                Some(other) => value.push(other),
            }
            kept = value.len();
        }
    }
}

#[cfg(test)]
mod tests;
