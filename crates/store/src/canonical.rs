use serde_json::Value;

/// The largest whole number, and the negative of the smallest, that an event may
/// hold: beyond it, readers that know only doubles (most) would see another one.
pub(crate) const INTEGER_MAX: u64 = 1 << 53;

/// How deep arrays and objects of an event's body may be nested. Below the 128
/// of common readers, so that whatever was written can be read.
pub const NESTING_MAX: usize = 64;

/// A JSON value that has no canonical form here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// Fractions have no place in the ledger: their canonical text needs an
    /// algorithm that verifiers often get wrong.
    #[error("{0} is not a whole number within ±2^53")]
    Number(String),
    /// Keys are compared as UTF-16 by the standard, as bytes by most; the two
    /// agree on ASCII.
    #[error("the key {0:?} is not ASCII")]
    Key(String),
    /// Nested too deeply.
    #[error("nested deeper than {NESTING_MAX}")]
    Nesting,
    /// The body of an event is not an object.
    #[error("the body is not an object")]
    NotAnObject,
}

/// Appends the canonical form (RFC 8785) of a value. It refuses what the ledger
/// does not hold, so that what it does hold has one form only.
pub(crate) fn write_value(value: &Value, out: &mut Vec<u8>) -> Result<(), CanonicalError> {
    write_nested(value, out, NESTING_MAX)
}

fn write_nested(value: &Value, out: &mut Vec<u8>, depth: usize) -> Result<(), CanonicalError> {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => {
            let whole = number.as_i64().filter(|n| n.unsigned_abs() <= INTEGER_MAX);
            let whole = whole.ok_or_else(|| CanonicalError::Number(number.to_string()))?;
            out.extend_from_slice(whole.to_string().as_bytes());
        }
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            let depth = depth.checked_sub(1).ok_or(CanonicalError::Nesting)?;
            let mut separator: &[u8] = b"";
            out.push(b'[');
            for item in items {
                out.extend_from_slice(separator);
                write_nested(item, out, depth)?;
                separator = b",";
            }
            out.push(b']');
        }
        Value::Object(members) => {
            let depth = depth.checked_sub(1).ok_or(CanonicalError::Nesting)?;
            // serde_json may be built to keep members in the order of insertion.
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| key.as_bytes());
            let mut separator: &[u8] = b"";
            out.push(b'{');
            for (key, member) in sorted {
                if !key.is_ascii() {
                    return Err(CanonicalError::Key(key.clone()));
                }
                out.extend_from_slice(separator);
                write_string(key, out);
                out.push(b':');
                write_nested(member, out, depth)?;
                separator = b",";
            }
            out.push(b'}');
        }
    }
    Ok(())
}

/// RFC 8785, 3.2.2.2: the two-character escapes where JSON has them, `\u00xx`
/// in lower case for the other control characters, everything else as it is.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0x00..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}
