//! What of an agent's settings is taken for a secret, by its name or by its shape.

use std::ops::Range;

use crate::secret::placeholder::prefix_bytes;
use crate::secret::{BYTES_MAX, BYTES_MIN};

/// Ends of names whose values are secrets, without marks and in lower case; also in the plural.
const SECRETS: &[&str] = &[
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "signingkey",
    "encryptionkey",
    "authkey",
    "masterkey",
    "appkey",
    "clientkey",
    "sharedkey",
    "accountkey",
    "subscriptionkey",
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "authorization",
    "credential",
    "bearer",
    "cookie",
    "jwt",
    "dsn",
    "webhook",
    "webhookurl",
    "connectionstring",
    "databaseurl",
];
/// Names whose values are secrets where they are long enough for one.
const PERHAPS: &[&str] = &["key", "auth", "pat", "pass"];
/// Names of objects whose values are handed to others, keys among them: environments and headers.
const HOLDERS: &[&str] = &[
    "env",
    "environment",
    "headers",
    "httpheaders",
    "extraheaders",
    "requestheaders",
    "defaultheaders",
    "customheaders",
];
/// What stands before a secret in a header, in lower case.
const SCHEMES: &[&str] = &["bearer ", "basic ", "token ", "apikey "];
/// How a key in PEM is known.
const PEM: &str = "PRIVATE KEY-----";
/// How many places of a row of letters may look like the beginning of a web token.
const TRIED_MAX: usize = 64;
/// The longest number, in digits, that is a setting and no secret.
const NUMBER_DIGITS_MAX: usize = 6;

/// Whether values of this name are secrets.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let plain = plain.to_ascii_lowercase();
    let one = plain.strip_suffix('s').unwrap_or(&plain);
    let is_ended = |end: &&str| plain.ends_with(*end) || (one.ends_with(*end) && !value.is_empty());
    let is_long = value.len() >= BYTES_MIN;
    SECRETS.iter().any(is_ended) || (is_long && PERHAPS.contains(&plain.as_str()))
}

/// Whether what is beneath a member of this name is handed to others.
pub(super) fn is_holder(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    HOLDERS.contains(&plain.to_ascii_lowercase().as_str())
}

/// Whether a word of a command says that a secret comes next.
pub(super) fn is_flag(word: &str) -> bool {
    word.starts_with('-') && !word.contains('=') && is_secret(word, "")
}

/// Whether a text of an environment says so little that it is no secret.
pub(super) fn is_plain(text: &str) -> bool {
    let is_number = text.len() <= NUMBER_DIGITS_MAX && text.bytes().all(|one| one.is_ascii_digit());
    is_number || ["true", "false", "on", "off", "yes", "no"].contains(&text)
}

/// Whether a text says where a secret is: in a variable, as `${NAME}`, `$A_NAME` and `{env:NAME}`,
/// or in a file, as `{file:PATH}`.
pub(super) fn is_reference(text: &str) -> bool {
    let text = text.get(scheme_bytes(text)..).unwrap_or(text);
    let is_name = |name: &str| {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        !name.is_empty() && name.len() <= 64 && name.bytes().all(is_of_name)
    };
    let is_path = |path: &str| !path.contains(['{', '}']) && keys_in(path).is_empty();
    let within = |start: &str| text.strip_prefix(start)?.strip_suffix('}');
    let is_upper = |name: &str| !name.bytes().any(|byte| byte.is_ascii_lowercase());
    within("${").is_some_and(is_name)
        || within("{env:").is_some_and(is_name)
        || within("{file:").is_some_and(is_path)
        || text
            .strip_prefix('$')
            .is_some_and(|name| is_name(name) && is_upper(name) && name.contains('_'))
}

/// How many bytes at the beginning of a header's value say of what kind it is.
pub(super) fn scheme_bytes(text: &str) -> usize {
    let lower = text.to_ascii_lowercase();
    let mut schemes = SCHEMES.iter();
    let scheme = schemes.find(|scheme| lower.starts_with(**scheme));
    scheme.map_or(0, |scheme| scheme.len())
}

/// Where in a text something has the shape of a key, in order: known kinds of keys, signed web
/// tokens, keys in PEM, passwords within addresses, and what follows the name of a secret.
pub(super) fn keys_in(text: &str) -> Vec<Range<usize>> {
    if let Some(at) = text.find("-----BEGIN ").filter(|_| text.contains(PEM)) {
        return std::iter::once(at..text.len()).collect();
    }
    let mut keys: Vec<Range<usize>> = Vec::new();
    for word in runs(text) {
        let within = text.get(word.clone()).unwrap_or_default();
        let key = of_known_kind(within)
            .or_else(|| of_address(within))
            .or_else(|| named(within));
        keys.extend(key.map(|key| word.start + key.start..word.start + key.end));
    }
    keys.extend(of_header(text));
    keys.sort_by_key(|key| key.start);
    let mut end = 0;
    keys.retain(|key| {
        let is_apart = key.start >= end && !key.is_empty();
        end = end.max(if is_apart { key.end } else { 0 });
        is_apart
    });
    keys
}

/// Parts of a text without spaces, quotes and what else ends a word and an argument.
fn runs(text: &str) -> Vec<Range<usize>> {
    let is_end = |letter: char| {
        letter.is_whitespace() || letter.is_control() || "\"'`,;&|<>(){}[]?#".contains(letter)
    };
    let mut runs = Vec::new();
    let mut start = 0;
    for (at, letter) in text.char_indices() {
        if is_end(letter) {
            runs.push(start..at);
            start = at + letter.len_utf8();
        }
    }
    runs.push(start..text.len());
    runs.retain(|run| !run.is_empty());
    runs
}

/// A key that begins as those of its kind do, wherever in a word it begins.
fn of_known_kind(word: &str) -> Option<Range<usize>> {
    let is_of_key = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.~+/=%".contains(byte);
    let bytes = word.as_bytes();
    let mut from = 0;
    while let Some(rest) = bytes.get(from..).filter(|rest| !rest.is_empty()) {
        let length = rest.iter().take_while(|byte| is_of_key(byte)).count();
        let row = rest.get(..length).unwrap_or_default();
        if let Some(start) = begun(row) {
            let key = row.get(start..).unwrap_or_default();
            if key.len() >= BYTES_MIN && key.iter().any(u8::is_ascii_digit) {
                return Some(from + start..from + length);
            }
        }
        from += length + 1;
    }
    None
}

/// Where in a row of letters that keys are of one begins as its kind does. A row that looks so
/// in too many places is taken for one as a whole.
fn begun(row: &[u8]) -> Option<usize> {
    let mut tried = 0;
    (0..row.len()).find(|start| {
        let before = start.checked_sub(1).and_then(|at| row.get(at));
        let rest = row.get(*start..).unwrap_or_default();
        let rest = rest.get(..rest.len().min(BYTES_MAX)).unwrap_or_default();
        tried += usize::from(rest.starts_with(b"eyJ"));
        let is_apart = before.is_none_or(|byte| !byte.is_ascii_alphanumeric());
        is_apart && (tried > TRIED_MAX || prefix_bytes(rest) > 0)
    })
}

/// The password, or the token alone, of an address as `https://user:password@host`.
fn of_address(word: &str) -> Option<Range<usize>> {
    let start = word.find("://")? + 3;
    let authority = word.get(start..)?.split('/').next()?;
    let user = authority.rsplit_once('@')?.0;
    match user.split_once(':') {
        Some((name, password)) => {
            let at = start + name.len() + 1;
            Some(at..at + password.len())
        }
        None => (user.len() >= BYTES_MIN).then_some(start..start + user.len()),
    }
}

/// What is after the name of a secret and an equals sign.
fn named(word: &str) -> Option<Range<usize>> {
    let (name, value) = word.split_once('=')?;
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    let name = name.rsplit(|letter| !is_of_name(letter)).next()?;
    let is_key = is_secret(name, value) && !value.is_empty() && !value.starts_with('$');
    is_key.then(|| word.len() - value.len()..word.len())
}

/// What is after the name of a header that shows a secret, as in `Authorization: Bearer …`.
fn of_header(text: &str) -> Option<Range<usize>> {
    let (name, value) = text.split_once(':')?;
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "_-=".contains(letter);
    let value = value.trim_start();
    if !name.chars().all(is_of_name) || !is_secret(name, value) || is_reference(value) {
        return None;
    }
    let start = text.len() - value.len() + scheme_bytes(value);
    Some(start..text.len())
}
