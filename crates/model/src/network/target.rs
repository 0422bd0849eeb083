//! Request targets: as written, and in the normal form that is judged.

use super::letters;

/// The longest target, bytes.
pub const TARGET_BYTES_MAX: usize = 16 * 1024;

/// The target of a request (RFC 9112, section 3.2), as written and in normal form: a path with a
/// query or without, or `*`.
///
/// In normal form characters that need no escape have none, the digits of escapes are upper case,
/// and characters that browsers send although RFC 3986 requires an escape (`[ ] { } | ^` and the
/// backtick) are escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    written: String,
    path: String,
    /// The reason that programs may read the path in different ways.
    unclear: Option<&'static str>,
}

/// The error for a text that is not a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the target of a request is a path that begins with '/', of characters that URLs have, with \
     whole escapes and without a fragment"
)]
pub struct InvalidTarget;

impl Target {
    /// Reads a path, optionally with a query, or `*`.
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

    /// Returns the target as written, the form that is sent.
    #[must_use]
    pub fn as_written(&self) -> &str {
        &self.written
    }

    /// Returns the path in normal form, without the query: the form that is judged and recorded.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the query as written, without its `?`.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.written.split_once('?').map(|(_, query)| query)
    }

    /// Returns the reason, in words, that programs may read the path in more than one way: rules
    /// for paths cannot judge such a target.
    #[must_use]
    pub fn unclear(&self) -> Option<&'static str> {
        self.unclear
    }
}

/// Returns whether a path or a query consists of permitted characters and whole escapes.
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

/// Returns whether a byte never needs an escape (RFC 3986, section 2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Returns whether a byte can be in a path or a query as a delimiter (section 3.3).
fn is_delimiter(byte: u8) -> bool {
    b"/?:@!$&'()*+,;=".contains(&byte)
}

/// Returns whether browsers send a byte unescaped in paths or queries although RFC 3986 does not
/// permit it (WHATWG URL, "percent-encode sets").
fn is_sent_as_it_is(byte: u8) -> bool {
    b"[]{}|^`".contains(&byte)
}

/// Returns each byte of a text with valid escapes, and whether it was escaped.
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

/// Converts a path to normal form.
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

/// Reads a path, or a part of one, as the most liberal server may: without escapes, and in one
/// case. The escapes have to be whole.
#[must_use]
pub fn liberal(part: &str) -> String {
    let bytes: Vec<u8> = decoded(part).map(|(byte, _)| byte).collect();
    let text = String::from_utf8_lossy(&bytes);
    text.chars().map(letters::folded).collect()
}

/// Returns the reason that programs may read a path in different ways, if there is one.
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
