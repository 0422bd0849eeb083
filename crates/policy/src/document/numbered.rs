//! Lists of what has a name or a number.

use toml::Spanned;

use super::{Complaint, Document, Section, Value};
use crate::origin::Sourced;

impl Document {
    /// A list of texts and whole numbers, each understood by `parse` as it is written.
    pub(crate) fn list_with_numbers<T>(
        &mut self,
        section: &mut Section<'_>,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, Complaint>,
    ) -> Option<Sourced<Vec<Sourced<T>>>> {
        self.list_as(section, key, worded, parse)
    }

    /// A list of what each item is first made, understood by `parse`.
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

    /// A text, or a number written without quotes, understood by `parse`, with its place.
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

/// A whole number as its text; all else as it is.
fn worded(item: Spanned<Value<'_>>) -> Spanned<Value<'_>> {
    let text = match item.get_ref() {
        Value::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        _ => return item,
    };
    Spanned::new(item.span(), Value::String(text.into()))
}
