//! The stand-in for an agent's login file in the sandbox.
//!
//! It has the file's members and none of its texts: each is replaced by another one of the same
//! shape, except those named as harmless. So an unknown member reveals nothing. Numbers are 0
//! unless they are named; `true`, `false` and `null` stay. A JSON Web Token keeps its kind, the
//! times of its validity and the claims that are named.

use std::collections::BTreeSet;
use std::ops::Range;

use atoll_model::network::{FieldPath, LOGIN_FILE_BYTES_MAX, Shape};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::placeholder::make_placeholder;
use super::text_of;

/// The longest login file, bytes.
pub const LOGIN_BYTES_MAX: usize = LOGIN_FILE_BYTES_MAX;
/// The deepest nesting of objects and lists.
const DEPTH_MAX: usize = 8;
/// The most values of a file.
const VALUES_MAX: usize = 4096;
/// The longest name of a member, bytes.
const NAME_BYTES_MAX: usize = 256;
/// The claims with a token's times of validity.
const TIMES: [&str; 3] = ["exp", "iat", "nbf"];

/// A lookup of the stand-in for a known text, by the names that lead to it.
pub type StandInLookup<'a> = &'a mut dyn FnMut(&[String], &[u8]) -> Result<Option<String>, String>;

/// The reason why a login file cannot have a stand-in. Its text contains nothing of the file.
#[derive(Debug, thiserror::Error)]
pub enum LoginMaskError {
    /// The file is not JSON.
    #[error("it is no JSON, from byte {0} on")]
    Syntax(usize),
    /// The file is neither an object nor a list.
    #[error("it is no JSON object and no list")]
    NoObject,
    /// The file is nested too deeply.
    #[error("its objects and lists are more than {DEPTH_MAX} within each other")]
    Deep,
    /// The file has too many values.
    #[error("it has more than {VALUES_MAX} values")]
    Many,
    /// A name is too long.
    #[error("the name of a member is longer than {NAME_BYTES_MAX} bytes")]
    Name,
    /// An object has two members of one name, which readers would interpret differently.
    #[error("an object of it has two members of one name")]
    Twice,
    /// A credential's value would enter the sandbox through a field that is kept.
    #[error("the value of a credential stands in a second field of it, which is kept")]
    Kept,
    /// A value cannot have a placeholder.
    #[error("{0}")]
    Unfit(String),
}

/// Makes the stand-in for a login file. `known` returns the stand-in for a field that is the source
/// of a credential; `keep` and `claims` name what is harmless.
///
/// # Errors
/// [`LoginMaskError`]: then nothing of the file may be shown.
pub fn stand_in(
    file: &[u8],
    keep: &[FieldPath],
    claims: &[String],
    known: StandInLookup<'_>,
) -> Result<Vec<u8>, LoginMaskError> {
    let mut walk = Walk {
        file,
        at: 0,
        values: 0,
        names: Vec::new(),
        made: Vec::with_capacity(file.len()),
        replaced: Vec::new(),
        keep,
        claims,
        known,
    };
    walk.space();
    if !matches!(walk.next_byte(), Some(b'{' | b'[')) {
        return Err(LoginMaskError::NoObject);
    }
    walk.value(0)?;
    walk.space();
    if walk.at < file.len() {
        return Err(walk.wrong());
    }
    let stays = |value: &Zeroizing<String>| {
        let mut windows = walk.made.windows(value.len().max(1));
        windows.any(|window| window == value.as_bytes())
    };
    match walk.replaced.iter().any(stays) {
        true => Err(LoginMaskError::Kept),
        false => Ok(walk.made),
    }
}

/// A pass over the file, with its output.
struct Walk<'a> {
    file: &'a [u8],
    at: usize,
    values: usize,
    /// The names that lead to the current value.
    names: Vec<String>,
    made: Vec<u8>,
    /// The values of credentials.
    replaced: Vec<Zeroizing<String>>,
    keep: &'a [FieldPath],
    claims: &'a [String],
    known: StandInLookup<'a>,
}

impl Walk<'_> {
    fn next_byte(&self) -> Option<u8> {
        self.file.get(self.at).copied()
    }

    fn wrong(&self) -> LoginMaskError {
        LoginMaskError::Syntax(self.at)
    }

    fn space(&mut self) {
        while matches!(self.next_byte(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Result<(), LoginMaskError> {
        self.space();
        match self.next_byte() == Some(byte) {
            true => self.at += 1,
            false => return Err(self.wrong()),
        }
        self.made.push(byte);
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<(), LoginMaskError> {
        self.space();
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err(LoginMaskError::Many);
        }
        match self.next_byte() {
            Some(b'{' | b'[') if depth == DEPTH_MAX => Err(LoginMaskError::Deep),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.text(),
            Some(_) => self.plain(),
            None => Err(self.wrong()),
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), LoginMaskError> {
        self.take(b'{')?;
        let mut names = BTreeSet::new();
        self.space();
        while self.next_byte() != Some(b'}') {
            if !names.is_empty() {
                self.take(b',')?;
                self.space();
            }
            let name = self.read_text()?.to_string();
            if name.len() > NAME_BYTES_MAX {
                return Err(LoginMaskError::Name);
            }
            self.write_text(&name)?;
            if !names.insert(name.clone()) {
                return Err(LoginMaskError::Twice);
            }
            self.take(b':')?;
            self.names.push(name);
            self.value(depth + 1)?;
            self.names.pop();
            self.space();
        }
        self.take(b'}')
    }

    fn list(&mut self, depth: usize) -> Result<(), LoginMaskError> {
        self.take(b'[')?;
        self.space();
        let mut is_first = true;
        while self.next_byte() != Some(b']') {
            if !is_first {
                self.take(b',')?;
            }
            is_first = false;
            self.value(depth + 1)?;
            self.space();
        }
        self.take(b']')
    }

    /// Reads a number, `true`, `false` or `null`.
    fn plain(&mut self) -> Result<(), LoginMaskError> {
        let rest = self.file.get(self.at..).unwrap_or_default();
        let is_of_it = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let length = rest.iter().take_while(is_of_it).count();
        let word = rest.get(..length).unwrap_or_default();
        let read: Value = serde_json::from_slice(word).map_err(|_| self.wrong())?;
        match read {
            Value::Number(_) if !self.is_kept() => self.made.push(b'0'),
            _ => self.made.extend_from_slice(word),
        }
        self.at += length;
        Ok(())
    }

    fn text(&mut self) -> Result<(), LoginMaskError> {
        let value = self.read_text()?;
        let known = (self.known)(&self.names, value.as_bytes());
        if let Some(stands) = known.map_err(LoginMaskError::Unfit)? {
            self.write_text(&stands)?;
            self.replaced.push(value);
            return Ok(());
        }
        if self.is_kept() {
            return self.write_text(&value);
        }
        let stands = web_token(&value, self.claims)?;
        self.write_text(&stands.unwrap_or_else(|| stand_in_text(&value)))
    }

    fn is_kept(&self) -> bool {
        self.keep.iter().any(|path| path.leads_along(&self.names))
    }

    /// Reads a quoted text.
    fn read_text(&mut self) -> Result<Zeroizing<String>, LoginMaskError> {
        let range = self.quoted()?;
        let text = self.file.get(range.clone()).unwrap_or_default();
        let read: String = serde_json::from_slice(text).map_err(|_| self.wrong())?;
        self.at = range.end;
        Ok(Zeroizing::new(read))
    }

    fn quoted(&self) -> Result<Range<usize>, LoginMaskError> {
        if self.next_byte() != Some(b'"') {
            return Err(self.wrong());
        }
        let mut end = self.at + 1;
        loop {
            match self.file.get(end) {
                Some(b'"') => return Ok(self.at..end + 1),
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
                None => return Err(self.wrong()),
            }
        }
    }

    fn write_text(&mut self, text: &str) -> Result<(), LoginMaskError> {
        let written = serde_json::to_string(text);
        let written = written.map_err(|error| LoginMaskError::Unfit(error.to_string()))?;
        self.made.extend_from_slice(written.as_bytes());
        Ok(())
    }
}

/// Makes the placeholder of an issued token: a web token keeps its kind, its times and these
/// claims.
///
/// # Errors
/// [`LoginMaskError`]: it cannot have one.
pub fn stand_for_token(value: &str, claims: &[String]) -> Result<String, LoginMaskError> {
    // What cannot be masked is no token either.
    let made = make_placeholder(value.as_bytes()).map_err(LoginMaskError::Unfit)?;
    match web_token(value, claims)? {
        Some(token) => Ok(token),
        None => String::from_utf8(made).map_err(|error| LoginMaskError::Unfit(error.to_string())),
    }
}

/// Returns another text of the same shape, or else of the same length.
pub(super) fn stand_in_text(value: &str) -> String {
    let made = make_placeholder(value.as_bytes()).ok();
    let made = made.and_then(|made| String::from_utf8(made).ok());
    made.unwrap_or_else(|| "x".repeat(value.chars().count()))
}

/// Makes the placeholder of a JSON Web Token (RFC 7519), which programs read and do not verify.
fn web_token(value: &str, claims: &[String]) -> Result<Option<String>, LoginMaskError> {
    let object = |part: &str| -> Option<Map<String, Value>> {
        let decoded = Zeroizing::new(URL_SAFE_NO_PAD.decode(part).ok()?);
        serde_json::from_slice(&decoded).ok()
    };
    let mut parts = value.split('.');
    let (Some(header), Some(body), Some(_), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Ok(None);
    };
    let (Some(header), Some(body)) = (object(header), object(body)) else {
        return Ok(None);
    };
    if !header.contains_key("alg") {
        return Ok(None);
    }
    let kind = keep_members(&header, &|name| ["alg", "typ"].contains(&name), 0);
    let is_named = |name: &str| claims.iter().any(|claim| claim == name);
    let mut body_told = keep_members(&body, &is_named, 0);
    for name in TIMES {
        if let Some(time) = body.get(name).filter(|time| time.is_u64()) {
            body_told.insert(name.to_owned(), time.clone());
        }
    }
    let encoded = |map: Map<String, Value>| URL_SAFE_NO_PAD.encode(Value::Object(map).to_string());
    let signature = text_of(&Shape::opaque());
    let signature = signature.map_err(|error| LoginMaskError::Unfit(error.to_string()))?;
    Ok(Some(format!(
        "{}.{}.{signature}",
        encoded(kind),
        encoded(body_told)
    )))
}

/// Keeps the members of these names at any depth, unless they are objects themselves.
fn keep_members(
    map: &Map<String, Value>,
    is_named: &dyn Fn(&str) -> bool,
    depth: usize,
) -> Map<String, Value> {
    let mut kept = Map::new();
    for (name, value) in map {
        match value {
            Value::Object(within) if depth < DEPTH_MAX => {
                let within = keep_members(within, is_named, depth + 1);
                if !within.is_empty() {
                    kept.insert(name.clone(), Value::Object(within));
                }
            }
            Value::String(_) | Value::Number(_) | Value::Bool(_) if is_named(name) => {
                kept.insert(name.clone(), value.clone());
            }
            Value::Object(_)
            | Value::Array(_)
            | Value::String(_)
            | Value::Number(_)
            | Value::Bool(_)
            | Value::Null => {}
        }
    }
    kept
}

#[cfg(test)]
mod tests;
