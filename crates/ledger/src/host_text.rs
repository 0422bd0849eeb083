//! Host strings in JSON, which may not be UTF-8.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::hash::hex;

/// Converts a path, an argument or another host string to JSON: a string if it is UTF-8, otherwise
/// an object whose only member `hex` holds its bytes, so that no two paths look the same.
#[must_use]
pub fn host_text(text: impl AsRef<OsStr>) -> Value {
    let text = text.as_ref();
    match text.to_str() {
        Some(text) => Value::String(text.to_owned()),
        None => {
            let hex = hex(text.as_bytes());
            Value::Object(Map::from_iter([("hex".to_owned(), Value::String(hex))]))
        }
    }
}

/// Parses the form that [`host_text`] writes; `None` for anything else, including a `hex` form of
/// bytes that are UTF-8, which have another form already.
#[must_use]
pub fn read_host_text(value: &Value) -> Option<OsString> {
    match value {
        Value::String(text) => Some(OsString::from(text)),
        Value::Object(members) if members.len() == 1 => {
            let digits = members.get("hex")?.as_str()?;
            let bytes = read_hex(digits)?;
            std::str::from_utf8(&bytes)
                .is_err()
                .then(|| OsString::from_vec(bytes))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            None
        }
    }
}

fn read_hex(digits: &str) -> Option<Vec<u8>> {
    let lower_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if !digits.len().is_multiple_of(2) || !digits.as_bytes().iter().all(lower_hex) {
        return None;
    }
    digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

fn text_from<'de, D: Deserializer<'de>>(input: D) -> Result<OsString, D::Error> {
    let value = Value::deserialize(input)?;
    read_host_text(&value)
        .ok_or_else(|| serde::de::Error::custom("expected a string, or an object with hex bytes"))
}

/// A `#[serde(with)]` module for an absolute or otherwise free path.
pub mod path {
    use super::{Deserializer, Path, PathBuf, Serialize, Serializer, host_text, text_from};

    /// Writes a path.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(path: &Path, out: S) -> Result<S::Ok, S::Error> {
        host_text(path).serialize(out)
    }

    /// Reads a path.
    ///
    /// # Errors
    /// Those of the deserializer, and where it is no such text.
    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<PathBuf, D::Error> {
        text_from(input).map(PathBuf::from)
    }
}

/// A `#[serde(with)]` module for a path that is joined to a directory of Atoll's: a record that
/// names `..` or an absolute path must not lead out of it.
pub mod path_below {
    pub use super::path::serialize;
    use super::{Component, Deserializer, PathBuf};

    /// Reads a path below a directory.
    ///
    /// # Errors
    /// Those of the deserializer, and where it is no such text.
    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<PathBuf, D::Error> {
        let path = super::path::deserialize(input)?;
        let below = path
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if below && path.components().next().is_some() {
            Ok(path)
        } else {
            Err(serde::de::Error::custom(
                "expected a relative path without . and ..",
            ))
        }
    }
}

/// A `#[serde(with)]` module for an optional text.
pub mod optional {
    use super::{Deserialize, Deserializer, OsString, Serialize, Serializer, Value};
    use super::{host_text, read_host_text};

    /// Writes an optional text.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(text: &Option<OsString>, out: S) -> Result<S::Ok, S::Error> {
        text.as_ref().map(host_text).serialize(out)
    }

    /// Reads an optional text.
    ///
    /// # Errors
    /// Those of the deserializer, and where it is no such text.
    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Option<OsString>, D::Error> {
        let Some(value) = Option::<Value>::deserialize(input)? else {
            return Ok(None);
        };
        let text = read_host_text(&value);
        let text = text.ok_or_else(|| serde::de::Error::custom("expected a string or hex bytes"));
        text.map(Some)
    }
}

/// A `#[serde(with)]` module for a command.
pub mod list {
    use super::{Deserialize, Deserializer, OsString, Serializer, Value};
    use super::{host_text, read_host_text};

    /// Writes a list of texts.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(list: &[OsString], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(list.iter().map(host_text))
    }

    /// Reads a list of texts.
    ///
    /// # Errors
    /// Those of the deserializer, and where it is no such text.
    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<OsString>, D::Error> {
        Vec::<Value>::deserialize(input)?
            .iter()
            .map(|value| {
                read_host_text(value)
                    .ok_or_else(|| serde::de::Error::custom("expected strings or hex bytes"))
            })
            .collect()
    }
}
