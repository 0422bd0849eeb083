//! Credential injection into a field of a body: of a form, or of a JSON object.
//!
//! The placeholder must be all of the field's value and occur in the body once. Only the bytes of
//! that occurrence are replaced.

use std::sync::Arc;

use atoll_model::network::{Place, Request as Judged};
use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::CONTENT_TYPE;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::super::injection::{Injection, escaped, unescaped};
use super::{BodyRejection, ReplayedBody};
use crate::credentials::{CredentialPart, Credentials};
use crate::secret::{Form, Located, Placeholders, Secret};

/// A body into which a credential was put.
#[derive(Debug)]
pub(super) struct RewrittenBody {
    /// The body as the program wrote it.
    pub(super) before: Bytes,
    /// The new length, bytes.
    pub(super) bytes: usize,
}

/// The format of a body with fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldFormat {
    /// `application/x-www-form-urlencoded`.
    Form,
    /// JSON.
    Json,
}

impl FieldFormat {
    /// Returns the format of a body with these headers, if it is known and the text is UTF-8.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(CONTENT_TYPE).iter();
        let (value, None) = (values.next()?.to_str().ok()?, values.next()) else {
            return None;
        };
        let mut parts = value.split(';').map(str::trim);
        let kind = parts.next()?.to_ascii_lowercase();
        let is_utf_8 = |parameter: &str| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let is_charset = name.eq_ignore_ascii_case("charset");
            !is_charset || value.trim_matches('"').eq_ignore_ascii_case("utf-8")
        };
        if !parts.all(is_utf_8) {
            return None;
        }
        match kind.as_str() {
            "application/x-www-form-urlencoded" => Some(Self::Form),
            "application/json" => Some(Self::Json),
            other if other.starts_with("application/") && other.ends_with("+json") => {
                Some(Self::Json)
            }
            _ => None,
        }
    }

    /// Returns whether this field has this value, and is the only one of its name in the body.
    fn holds(self, body: &[u8], field: &str, value: &[u8]) -> bool {
        self.text(body, field).is_some_and(|own| own == value)
    }

    /// Returns the value of this field, if it is the only one of its name in the body.
    pub(super) fn text(self, body: &[u8], field: &str) -> Option<Vec<u8>> {
        match self {
            Self::Form => {
                let pairs = body.split(|byte| *byte == b'&');
                let mut named = pairs.filter_map(|pair| {
                    let pair = std::str::from_utf8(pair).ok()?.replace('+', " ");
                    let (name, value) = pair.split_once('=')?;
                    (unescaped(name) == field.as_bytes()).then(|| unescaped(value))
                });
                let own = named.next()?;
                named.next().is_none().then_some(own)
            }
            Self::Json => {
                let object: Map<String, Value> = serde_json::from_slice(body).ok()?;
                let own = object.get(field).and_then(Value::as_str)?;
                Some(own.as_bytes().to_vec())
            }
        }
    }

    /// Encodes a value of printable ASCII in this format.
    fn encode(self, real: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Form => escaped(real).into_bytes(),
            Self::Json => {
                let mut written = Vec::with_capacity(real.len() * 2);
                for byte in real {
                    if matches!(byte, b'"' | b'\\') {
                        written.push(b'\\');
                    }
                    written.push(*byte);
                }
                written
            }
        })
    }
}

/// Puts the bound credentials into a whole body.
pub(super) fn inject(
    credentials: &Credentials,
    placeholders: &Placeholders,
    judged: &Judged<'_>,
    kind: FieldFormat,
    whole: ReplayedBody,
    injection: &mut Injection,
) -> Result<ReplayedBody, BodyRejection> {
    let trailers = whole.trailers.as_ref();
    if let Some(found) = trailers.and_then(|all| placeholders.find_in_headers(all)) {
        return Err(BodyRejection::found(credentials, judged, found));
    }
    let body = &whole.first;
    let mut all = placeholders.locate(body);
    if all.is_empty() {
        return Ok(whole);
    }
    all.sort_by_key(|one| one.range.start);
    let mut made = Zeroizing::new(Vec::with_capacity(body.len()));
    let mut from = 0;
    for one in &all {
        let times = all
            .iter()
            .filter(|other| other.found.number == one.found.number)
            .count();
        let (held, real) = bound(credentials, judged, kind, body, one, times)?;
        injection.add(one.found.number, held, real)?;
        made.extend_from_slice(body.get(from..one.range.start).unwrap_or_default());
        made.extend_from_slice(&kind.encode(real.expose()));
        from = one.range.end;
    }
    made.extend_from_slice(body.get(from..).unwrap_or_default());
    let rewritten = Some(RewrittenBody {
        bytes: made.len(),
        before: whole.first,
    });
    // It is overwritten when nobody needs it any more.
    Ok(ReplayedBody {
        first: Bytes::from_owner(ZeroizedBytes(made)),
        trailers: whole.trailers,
        rest: None,
        rewritten,
    })
}

/// Returns the value that replaces a placeholder found at this spot.
fn bound<'a>(
    credentials: &'a Credentials,
    judged: &Judged<'_>,
    kind: FieldFormat,
    body: &[u8],
    one: &Located,
    times: usize,
) -> Result<(&'a CredentialPart, &'a Arc<Secret>), BodyRejection> {
    let elsewhere = || BodyRejection::found(credentials, judged, one.found);
    let held = credentials.get(one.found.number).ok_or_else(elsewhere)?;
    let Place::Body(field) = &held.binding.place else {
        return Err(elsewhere());
    };
    let is_it = times == 1
        && held.binding.holds(judged)
        && one.found.form == Form::Plain
        && kind.holds(body, field, held.placeholder.as_bytes());
    // One that is fetched is put into heads alone.
    let real = held.given().filter(|_| is_it).ok_or_else(elsewhere)?;
    Ok((held, real))
}

/// Bytes that are zeroed when dropped.
struct ZeroizedBytes(Zeroizing<Vec<u8>>);

impl AsRef<[u8]> for ZeroizedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(value: &str) -> Option<FieldFormat> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, value.parse().unwrap());
        FieldFormat::of(&headers)
    }

    #[test]
    fn body_fields_are_read_from_forms_and_json() {
        for (value, expected) in [
            ("application/x-www-form-urlencoded", Some(FieldFormat::Form)),
            (
                "Application/JSON; charset=\"UTF-8\"",
                Some(FieldFormat::Json),
            ),
            ("application/vnd.api+json", Some(FieldFormat::Json)),
            ("application/json; charset=utf-16", None),
            ("text/plain", None),
            ("multipart/form-data; boundary=x", None),
        ] {
            assert_eq!(kind(value), expected, "{value}");
        }
    }

    #[test]
    fn body_field_must_be_one_whole_value() {
        for (kind, body, is_it) in [
            (FieldFormat::Form, "a=b&key=a+value%21", true),
            (FieldFormat::Form, "%6bey=a+value!", true),
            (FieldFormat::Form, "key=x&key=a+value!", false),
            (FieldFormat::Form, "other=a+value!", false),
            (FieldFormat::Form, "key=a+value!!", false),
            (FieldFormat::Json, r#"{"key": "a\u0020value!"}"#, true),
            (FieldFormat::Json, r#"{"key": ["a value!"]}"#, false),
            (FieldFormat::Json, r#"["key", "a value!"]"#, false),
            (FieldFormat::Json, r#"{"key": "a value!"} {}"#, false),
        ] {
            let holds = kind.holds(body.as_bytes(), "key", b"a value!");
            assert_eq!(holds, is_it, "{body}");
        }
        assert_eq!(&*FieldFormat::Json.encode(b"a\"b\\c"), b"a\\\"b\\\\c");
        assert_eq!(&*FieldFormat::Form.encode(b"a&b"), b"a%26b");
    }
}
