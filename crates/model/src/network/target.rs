//! Where within its host a request goes to: as it was written, and as it is judged.

use super::letters;

/// The longest target, bytes.
pub const TARGET_BYTES_MAX: usize = 16 * 1024;

/// Where within its host a request goes to (RFC 9112, section 3.2), as it was written
/// and in normal form: a path with a query or without, or `*`.
///
/// In normal form what needs no escape has none, the digits of escapes are upper case,
/// and what browsers send although RFC 3986 has it escaped (`[ ] { } | ^` and the
/// backtick) is escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    written: String,
    path: String,
    /// What lets programs read the path in different ways.
    unclear: Option<&'static str>,
}

/// Why something is no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the target of a request is a path that begins with '/', of characters that URLs have, with \
     whole escapes and without a fragment"
)]
pub struct InvalidTarget;

impl Target {
    /// Reads a path, with a query or not, or `*`.
    ///
    /// # Errors
    /// [`InvalidTarget`].
    pub fn parse(text: &str) -> Result<Self, InvalidTarget> {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let is_path = path.starts_with('/') && is_written(path) && is_written(query);
        if text.len() > TARGET_BYTES_MAX || !(is_path || text == "*") {
            return Err(InvalidTarget);
        }
        Ok(Self {
            written: text.to_owned(),
            path: normal(path),
            unclear: unclear(path),
        })
    }

    /// As it was written: what is sent on.
    #[must_use]
    pub fn as_written(&self) -> &str {
        &self.written
    }

    /// The path in normal form, without the query: what is judged and recorded.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The query as it was written, without its `?`.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.written.split_once('?').map(|(_, query)| query)
    }

    /// What lets programs read the path in more than one way, in words: that of such a
    /// target is nothing that a rule for paths can judge.
    #[must_use]
    pub fn unclear(&self) -> Option<&'static str> {
        self.unclear
    }
}

/// Whether a path or a query is of bytes that stand for themselves, and whole escapes.
fn is_written(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_good = match byte {
            b'%' => {
                let digits = [bytes.next(), bytes.next()];
                digits
                    .iter()
                    .all(|digit| digit.is_some_and(|digit| digit.is_ascii_hexdigit()))
            }
            _ => is_unreserved(byte) || is_delimiter(byte) || is_sent_as_it_is(byte),
        };
        if !is_good {
            return false;
        }
    }
    true
}

/// What needs no escape anywhere (RFC 3986, section 2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// What can stand in a path or a query with a meaning of its own (section 3.3).
fn is_delimiter(byte: u8) -> bool {
    b"/?:@!$&'()*+,;=".contains(&byte)
}

/// What browsers leave as it is in paths or queries (WHATWG URL, "percent-encode sets").
fn is_sent_as_it_is(byte: u8) -> bool {
    b"[]{}|^`".contains(&byte)
}

/// Each byte of a text with good escapes, and whether it was escaped.
fn decoded(text: &str) -> impl Iterator<Item = (u8, bool)> + '_ {
    let mut bytes = text.bytes();
    std::iter::from_fn(move || {
        let byte = bytes.next()?;
        if byte != b'%' {
            return Some((byte, false));
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        u8::try_from(high * 16 + low).ok().map(|byte| (byte, true))
    })
}

/// A path in normal form.
pub(super) fn normal(path: &str) -> String {
    let mut normal = String::with_capacity(path.len());
    for (byte, escaped) in decoded(path) {
        if is_unreserved(byte) || (!escaped && !is_sent_as_it_is(byte)) {
            normal.push(char::from(byte));
        } else {
            normal.push_str(&format!("%{byte:02X}"));
        }
    }
    normal
}

/// Reads a path, or a part of one, as the most liberal of servers may: without escapes, and without
/// a difference between upper and lower case. The escapes have to be whole.
#[must_use]
pub fn liberal(part: &str) -> String {
    let bytes: Vec<u8> = decoded(part).map(|(byte, _)| byte).collect();
    let text = String::from_utf8_lossy(&bytes);
    text.chars().map(letters::folded).collect()
}

/// What lets programs read a path in different ways.
fn unclear(path: &str) -> Option<&'static str> {
    if path == "*" {
        return Some("it is about the whole server ('*')");
    }
    let mut segments = path.strip_prefix('/')?.split('/').peekable();
    while let Some(segment) = segments.next() {
        let bytes: Vec<u8> = decoded(segment).map(|(byte, _)| byte).collect();
        let what = match &bytes[..] {
            [] if segments.peek().is_some() => "a part of it is empty ('//')",
            b"." | b".." => "it has '.' or '..' in it",
            bytes if bytes.iter().any(u8::is_ascii_control) => {
                "a control character is escaped in it"
            }
            bytes if bytes.contains(&b';') => "it has parameters (';')",
            bytes if bytes.iter().any(|byte| b"/\\%?#".contains(byte)) => {
                "a '/', '\\', '%', '?' or '#' is escaped in it"
            }
            bytes => match std::str::from_utf8(bytes).map(letters::unclear) {
                Err(_) => "its escapes are no UTF-8",
                Ok(Some(what)) => what,
                Ok(None) => continue,
            },
        };
        return Some(what);
    }
    None
}
