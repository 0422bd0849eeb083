//! JSON as it is judged: parsed once, with one reading.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The largest arguments of a call, bytes: more cannot be judged.
pub const ARGUMENTS_BYTES_MAX: usize = 256 << 10;

/// The most values in one document.
const VALUES_MAX: usize = 16_384;

/// The whole numbers that every reader of JSON keeps exactly lie between this and its negative.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The reason why a text is not accepted as JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJson {
    /// Longer than this many bytes.
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    /// No JSON, or JSON that can be read in two ways.
    #[error("{0}")]
    Malformed(String),
}

/// Parses a JSON text of at most this many bytes. A name that comes twice in an object is refused,
/// as are whole numbers that some readers round (RFC 8259, sections 4 and 6), and more than 128
/// levels.
///
/// # Errors
/// [`InvalidJson`].
pub fn parse(text: &str, bytes_max: usize) -> Result<Value, InvalidJson> {
    if text.len() > bytes_max {
        return Err(InvalidJson::TooLong(bytes_max));
    }
    let mut left = VALUES_MAX;
    let mut reader = serde_json::Deserializer::from_str(text);
    let malformed = |error: serde_json::Error| InvalidJson::Malformed(error.to_string());
    let value = Strict(&mut left).deserialize(&mut reader);
    let value = value.map_err(malformed)?;
    reader.end().map_err(malformed)?;
    Ok(value)
}

/// Reads a value, with the number of values that may still come.
struct Strict<'a>(&'a mut usize);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        match self.0.checked_sub(1) {
            Some(left) => *self.0 = left,
            None => return Err(D::Error::custom(format!("more than {VALUES_MAX} values"))),
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        match (value.unsigned_abs() as f64) < EXACT_MAX {
            true => Ok(value.into()),
            false => Err(E::custom(format!("{value} is too large to be exact"))),
        }
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        match (value as f64) < EXACT_MAX {
            true => Ok(value.into()),
            false => Err(E::custom(format!("{value} is too large to be exact"))),
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        // A whole number that is too long for an integer comes as one of these, and 1.0 and 1e3 too,
        // which schemas take as integers: policies shall see the same number.
        let is_whole = value.fract() == 0.0;
        match Number::from_f64(value) {
            Some(_) if is_whole && value.abs() < EXACT_MAX => Ok((value as i64).into()),
            Some(number) if !is_whole => Ok(Value::Number(number)),
            _ => Err(E::custom(format!("{value:e} is too large to be exact"))),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = from.next_element_seed(Strict(self.0))? {
            all.push(one);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(Name(name)) = from.next_key()? {
            let value = from.next_value_seed(Strict(self.0))?;
            if all.contains_key(&name) {
                return Err(A::Error::custom(format!("{name:?} comes twice")));
            }
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }
}

/// The name of a member.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name(String);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_one_reading_is_parsed() {
        let text = r#" {"a": [1, -2, 1.5, true, null, "x"], "b": {"a": 9007199254740991}} "#;
        let expected = json!({
            "a": [1, -2, 1.5, true, null, "x"], "b": { "a": 9_007_199_254_740_991_i64 },
        });
        assert_eq!(parse(text, 1_000), Ok(expected));
    }

    /// Schemas take each of these as the integer 1000, and so do policies.
    #[test]
    fn whole_numbers_are_the_same_however_they_are_written() {
        for text in ["1000", "1000.0", "1e3", "10000e-1"] {
            assert_eq!(parse(text, 100), Ok(json!(1_000)), "{text}");
        }
        assert_eq!(parse("-0.0", 100), Ok(json!(0)));
        assert_eq!(parse("0.5", 100), Ok(json!(0.5)));
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for (text, why) in [
            (r#"{"a":1,"a":2}"#, "\"a\" comes twice"),
            (r#"{"a":1,"\u0061":2}"#, "\"a\" comes twice"),
            (r#"{"x":{"a":1,"b":2,"a":1}}"#, "\"a\" comes twice"),
            ("[1] [2]", "trailing"),
            ("{\"a\":1,}", "trailing comma"),
            ("[NaN]", "expected"),
            ("[1e400]", "out of range"),
            ("[123456789012345678901234567890]", "too large to be exact"),
            ("[18446744073709551615]", "too large to be exact"),
            ("[1e300]", "too large to be exact"),
            ("[9007199254740993]", "too large to be exact"),
            ("[-9007199254740993]", "too large to be exact"),
            ("'a'", "expected"),
            ("", "EOF"),
            ("[\"\\ud800\"]", "hex escape"),
        ] {
            let error = parse(text, 1_000).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert_eq!(parse("[1,2,3]", 6), Err(InvalidJson::TooLong(6)));
    }

    #[test]
    fn deep_and_wide_documents_are_refused() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let error = parse(&deep, 1_000).unwrap_err().to_string();
        assert!(error.contains("recursion limit"), "{error}");
        let wide = format!("[{}1]", "1,".repeat(20_000));
        let error = parse(&wide, 100_000).unwrap_err().to_string();
        assert!(error.contains("more than 16384 values"), "{error}");
    }
}
