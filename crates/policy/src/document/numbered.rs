//! Lists whose items are names or numbers.

use toml::Spanned;

use super::{Complaint, Document, Section, Value};
use crate::origin::Sourced;

impl Document {
    /// Reads a list of strings and whole numbers, each parsed by `parse` as written.
    pub(crate) fn list_with_numbers<T>(
        &mut self,
        section: &mut Section<'_>,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, Complaint>,
    ) -> Option<Sourced<Vec<Sourced<T>>>> {
        self.list_as(section, key, worded, parse)
    }

    /// Reads a list whose items are converted by `made` and then parsed by `parse`.
    pub(super) fn list_as<T>(
        &mut self,
        section: &mut Section<'_>,
        key: &'static str,
        made: impl Fn(Spanned<Value<'_>>) -> Spanned<Value<'_>>,
        parse: impl Fn(&str) -> Result<T, Complaint>,
    ) -> Option<Sourced<Vec<Sourced<T>>>> {
        let (items, origin) = self.items(section, key)?;
        let subject = section.subject(key);
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            values.extend(self.understand(&subject, made(item), &parse));
        }
        Some(Sourced::new(values, origin))
    }

    /// Reads a string, or a number without quotes, parsed by `parse`, with its place.
    pub(crate) fn measure_with_place<T>(
        &mut self,
        section: &mut Section<'_>,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, Complaint>,
    ) -> Option<Sourced<T>> {
        let entry = section.take(key)?;
        let subject = section.subject(key);
        let text = self.quantity(&entry, &subject)?;
        match parse(&text) {
            Ok(value) => Some(Sourced::new(value, self.origin(&entry.at))),
            Err(complaint) => {
                self.complain(&entry.at, &subject, complaint);
                None
            }
        }
    }
}

/// Converts a whole number to a string; leaves any other item as it is.
fn worded(item: Spanned<Value<'_>>) -> Spanned<Value<'_>> {
    let text = match item.get_ref() {
        Value::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        _ => return item,
    };
    Spanned::new(item.span(), Value::String(text.into()))
}
