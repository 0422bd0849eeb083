//! The parts of a tool's results that its caller is not given: named fields, and personal data.

use serde::Deserialize;
use serde_json::Value;

use crate::json;

/// The most fields that are named, and parts of one.
const FIELDS_MAX: usize = 256;
const PARTS_MAX: usize = 32;
/// The largest text that is read as JSON, bytes.
const JSON_BYTES_MAX: usize = 4 << 20;
/// The part of a field's place that stands for every member.
const EVERY: &str = "*";

/// The treatment of personal data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pii {
    /// Given as it is.
    #[default]
    Keep,
    /// Masked.
    Mask,
}

/// The parts that are not given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// The places of the fields (JSON Pointer, RFC 6901, and `*`).
    fields: Vec<Vec<String>>,
    pub(crate) pii: Pii,
}

impl Filter {
    /// Reads it, with the first thing that is wrong with it.
    pub(crate) fn read(hide: &[String], pii: Pii) -> Result<Self, String> {
        if hide.len() > FIELDS_MAX {
            return Err(format!("hide: more than {FIELDS_MAX} fields"));
        }
        let fields = hide.iter().map(|text| {
            let place = text.strip_prefix('/').filter(|place| !place.is_empty());
            let place = place.ok_or_else(|| {
                format!("hide: {text:?} is no place of a field, as \"/customer/email\"")
            })?;
            let parts = place.split('/');
            let parts = parts.map(|part| part.replace("~1", "/").replace("~0", "~"));
            let parts: Vec<String> = parts.collect();
            match parts.len() <= PARTS_MAX {
                true => Ok(parts),
                false => Err(format!("hide: {text:?} has more than {PARTS_MAX} parts")),
            }
        });
        Ok(Self {
            fields: fields.collect::<Result<_, String>>()?,
            pii,
        })
    }

    /// Returns whether it hides fields.
    pub(crate) fn hides(&self) -> bool {
        !self.fields.is_empty()
    }

    /// Describes it, for people.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let fields = self.fields.iter();
        let fields = fields.map(|field| format!("/{} is hidden", field.join("/")));
        let pii = (self.pii == Pii::Mask).then(|| "personal data is masked".to_owned());
        fields.chain(pii)
    }

    /// Hides the fields of a value, and returns how many there were.
    pub(crate) fn hide(&self, value: &mut Value) -> usize {
        self.fields.iter().map(|field| remove(value, field)).sum()
    }

    /// Hides the fields of a text that is JSON; `None` for another one: nobody knows what it has.
    pub(crate) fn hide_in(&self, text: &str) -> Option<(String, usize)> {
        let mut value = json::parse(text, JSON_BYTES_MAX).ok()?;
        let hidden = self.hide(&mut value);
        Some((value.to_string(), hidden))
    }
}

/// Removes members of objects; those of lists become `null`, so that the others keep their places.
fn remove(value: &mut Value, field: &[String]) -> usize {
    let Some((part, rest)) = field.split_first() else {
        return 0;
    };
    let is_meant = |name: &str| part == EVERY || part == name;
    match value {
        Value::Object(members) if rest.is_empty() => {
            let before = members.len();
            members.retain(|name, _| !is_meant(name));
            before - members.len()
        }
        Value::Object(members) => {
            let meant = members.iter_mut().filter(|(name, _)| is_meant(name));
            meant.map(|(_, member)| remove(member, rest)).sum()
        }
        Value::Array(members) => {
            let meant = members.iter_mut().enumerate();
            let meant = meant.filter(|(at, _)| is_meant(&at.to_string()));
            let hidden = meant.map(|(_, member)| match rest.is_empty() {
                true => usize::from(!std::mem::take(member).is_null()),
                false => remove(member, rest),
            });
            hidden.sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filter(hide: &[&str]) -> Filter {
        let hide: Vec<String> = hide.iter().map(|one| (*one).to_owned()).collect();
        Filter::read(&hide, Pii::Keep).unwrap()
    }

    #[test]
    fn fields_are_hidden_wherever_they_are_meant() {
        let filter = filter(&[
            "/customer/email",
            "/items/*/ssn",
            "/a~1b",
            "/list/1",
            "/by/*",
        ]);
        let mut value = json!({
            "customer": { "email": "a@b.example", "name": "Ann" },
            "items": [{ "ssn": "1", "n": 1 }, { "n": 2 }, { "ssn": null }, 7],
            "a/b": { "deep": true },
            "list": [1, 2, 3],
            "by": { "x": 1, "y": 2 },
            "email": "stays",
        });
        assert_eq!(filter.hide(&mut value), 7);
        let left = json!({
            "customer": { "name": "Ann" },
            "items": [{ "n": 1 }, { "n": 2 }, {}, 7],
            "list": [1, null, 3],
            "by": {},
            "email": "stays",
        });
        assert_eq!(value, left);
        assert_eq!(filter.hide(&mut value), 0);
    }

    #[test]
    fn text_that_may_hold_a_field_unseen_is_not_given() {
        let filter = filter(&["/ssn"]);
        let given = filter.hide_in(" {\"ssn\": 1, \"n\": 2} ");
        assert_eq!(given, Some(("{\"n\":2}".to_owned(), 1)));
        for text in [
            "ssn: 1",
            "{\"ssn\": 1",
            "{\"ssn\": 1, \"ssn\": 2}",
            "{} {\"ssn\": 1}",
        ] {
            assert_eq!(filter.hide_in(text), None, "{text}");
        }
    }

    #[test]
    fn places_that_are_none_are_refused() {
        for text in ["", "/", "ssn"] {
            assert!(
                Filter::read(&[text.to_owned()], Pii::Keep).is_err(),
                "{text}"
            );
        }
    }
}
