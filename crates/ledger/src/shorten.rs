//! Shortened bodies for events that would be too large: the beginning of each long text and list,
//! and the size and digest of the whole, so that whoever has the original can show that it was
//! that.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::canonical::{CanonicalError, write_value};
use crate::hash::hex;

/// The longest text that is kept whole, bytes.
const TEXT_BYTES_MAX: usize = 1 << 10;
/// The length of the beginning of a longer text that is kept, bytes.
const BEGIN_BYTES: usize = 256;
/// The largest part of a list that is kept, bytes of its canonical form.
const LIST_BYTES_MAX: usize = 8 << 10;

/// Shortens the long texts of a value, and then its long lists, to their beginnings.
pub(crate) fn shorten(value: &Value) -> Result<Value, CanonicalError> {
    Ok(match value {
        Value::String(text) if text.len() > TEXT_BYTES_MAX => {
            let begin = text.get(..text.floor_char_boundary(BEGIN_BYTES));
            json!({
                "begin": begin.unwrap_or_default(),
                "bytes": text.len(),
                "sha256": hex(&Sha256::digest(text.as_bytes())),
            })
        }
        Value::Array(items) => Value::Array(shorten_list(items)?),
        Value::Object(members) => {
            let members = members.iter();
            let shorter = members.map(|(key, member)| Ok((key.clone(), shorten(member)?)));
            Value::Object(shorter.collect::<Result<Map<_, _>, CanonicalError>>()?)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    })
}

fn shorten_list(items: &[Value]) -> Result<Vec<Value>, CanonicalError> {
    let (mut told, mut bytes) = (Vec::new(), 0);
    for (number, item) in items.iter().enumerate() {
        let shorter = shorten(item)?;
        bytes += canonical(&shorter)?.len() + 1;
        if bytes > LIST_BYTES_MAX {
            let rest = items.get(number..).unwrap_or_default();
            let all = canonical(&Value::Array(rest.to_vec()))?;
            told.push(json!({
                "left-out": rest.len(),
                "bytes": all.len(),
                "sha256": hex(&Sha256::digest(&all)),
            }));
            break;
        }
        told.push(shorter);
    }
    Ok(told)
}

fn canonical(value: &Value) -> Result<Vec<u8>, CanonicalError> {
    let mut bytes = Vec::new();
    write_value(value, &mut bytes)?;
    Ok(bytes)
}
