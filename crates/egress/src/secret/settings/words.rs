//! Recognition of secrets in an agent's settings, by name or by shape.

mod said;

use std::ops::Range;

use crate::secret::placeholder::prefix_bytes;
use crate::secret::{BYTES_MAX, BYTES_MIN};

/// The endings of names whose values are secrets, without marks and in lower case; also in the
/// plural.
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
/// Names whose values are secrets if they are long enough for one.
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
/// The prefixes of a secret in a header, in lower case.
const SCHEMES: &[&str] = &["bearer ", "basic ", "token ", "apikey "];
/// The mark of a key in PEM.
const PEM: &str = "PRIVATE KEY-----";
/// The most possible beginnings of a web token tried in a row of letters.
const TRIED_MAX: usize = 64;
/// The longest number that is a setting and no secret, digits.
const NUMBER_DIGITS_MAX: usize = 6;

/// Returns whether values of this name are secrets.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let plain = plain.to_ascii_lowercase();
    let one = plain.strip_suffix('s').unwrap_or(&plain);
    let is_ended = |end: &&str| plain.ends_with(*end) || (one.ends_with(*end) && !value.is_empty());
    let is_long = value.len() >= BYTES_MIN;
    SECRETS.iter().any(is_ended) || (is_long && PERHAPS.contains(&plain.as_str()))
}

/// Returns whether what is beneath a member of this name is handed to others.
pub(super) fn is_holder(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    HOLDERS.contains(&plain.to_ascii_lowercase().as_str())
}

/// Returns whether a word of a command says that the next one is a secret.
pub(super) fn is_flag(word: &str, next: &str) -> bool {
    let is_perhaps = || is_secret(word, next) && !is_plain(next);
    word.starts_with('-') && !word.contains('=') && (is_secret(word, "") || is_perhaps())
}

/// Returns whether a text of an environment says too little to be a secret.
pub(super) fn is_plain(text: &str) -> bool {
    let is_number = text.len() <= NUMBER_DIGITS_MAX && text.bytes().all(|one| one.is_ascii_digit());
    is_number || ["true", "false", "on", "off", "yes", "no"].contains(&text)
}

/// Returns whether a text refers to a secret: in a variable, as `${NAME}`, `$A_NAME` and
/// `{env:NAME}`, or in a file, as `{file:PATH}`.
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

/// Returns the length of the scheme at the beginning of a header's value, bytes.
pub(super) fn scheme_bytes(text: &str) -> usize {
    let mut schemes = SCHEMES.iter();
    let scheme = schemes.find(|scheme| {
        let begun = text.get(..scheme.len());
        begun.is_some_and(|begun| begun.eq_ignore_ascii_case(scheme))
    });
    scheme.map_or(0, |scheme| scheme.len())
}

/// Returns the parts of a text that have the shape of a key, in order and disjoint: known kinds of
/// keys, signed web tokens, keys in PEM, passwords in URLs, and what follows the name of a secret.
pub(super) fn keys_in(text: &str) -> Vec<Range<usize>> {
    let pem = text.find("-----BEGIN ").filter(|_| text.contains(PEM));
    let before = text.get(..pem.unwrap_or(text.len())).unwrap_or(text);
    let mut keys: Vec<Range<usize>> = Vec::new();
    for word in runs(before) {
        let within = before.get(word.clone()).unwrap_or_default();
        let found = of_known_kind(within).into_iter().chain(named(within));
        keys.extend(found.map(|key| word.start + key.start..word.start + key.end));
    }
    keys.extend(of_addresses(before));
    keys.extend(of_header(before));
    keys.extend(said::values(before));
    keys.extend(pem.map(|at| at..text.len()));
    keys.retain(|key| !key.is_empty());
    keys.sort_by_key(|key| key.start);
    let mut apart: Vec<Range<usize>> = Vec::new();
    for key in keys {
        match apart.last_mut().filter(|last| key.start < last.end) {
            Some(last) => last.end = last.end.max(key.end),
            None => apart.push(key),
        }
    }
    apart
}

/// Splits a text at spaces, quotes and whatever else ends a word or an argument.
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

/// Returns the keys with the prefix of a known kind, wherever in a word they begin.
fn of_known_kind(word: &str) -> Vec<Range<usize>> {
    let mut keys = Vec::new();
    let is_of_key = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.~+/=%".contains(byte);
    let bytes = word.as_bytes();
    let mut from = 0;
    while let Some(rest) = bytes.get(from..).filter(|rest| !rest.is_empty()) {
        let length = rest.iter().take_while(|byte| is_of_key(byte)).count();
        let row = rest.get(..length).unwrap_or_default();
        if let Some(start) = known_prefix_index(row) {
            let key = row.get(start..).unwrap_or_default();
            if key.len() >= BYTES_MIN && key.iter().any(u8::is_ascii_digit) {
                keys.push(from + start..from + length);
            }
        }
        from += length + 1;
    }
    keys
}

/// Returns the index in a row of key characters at which a known prefix begins. A row with too many
/// possible ones is taken for a key as a whole.
fn known_prefix_index(row: &[u8]) -> Option<usize> {
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

/// Returns the passwords, or the tokens alone, in URLs such as `https://user:password@host`. People
/// write any marks into them.
fn of_addresses(text: &str) -> Vec<Range<usize>> {
    let is_end = |letter: char| letter.is_whitespace() || "/\"<>`".contains(letter);
    let mut keys = Vec::new();
    for (at, _) in text.match_indices("://") {
        let start = at + 3;
        let rest = text.get(start..).unwrap_or_default();
        let authority = rest.split(is_end).next().unwrap_or_default();
        let Some((user, _)) = authority.rsplit_once('@') else {
            continue;
        };
        match user.split_once(':') {
            Some((name, password)) => {
                let from = start + name.len() + 1;
                keys.push(from..from + password.len());
            }
            None if user.len() >= BYTES_MIN => keys.push(start..start + user.len()),
            None => {}
        }
    }
    keys
}

/// Returns the value after the name of a secret and an equals sign.
fn named(word: &str) -> Option<Range<usize>> {
    let (name, value) = word.split_once('=')?;
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    let name = name.rsplit(|letter| !is_of_name(letter)).next()?;
    let is_key = is_secret(name, value) && !value.is_empty() && !value.starts_with('$');
    is_key.then(|| word.len() - value.len()..word.len())
}

/// Returns the secret after the name of a header, as in `Authorization: Bearer …`.
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
