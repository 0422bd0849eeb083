//! Reading of TOML with a place for every problem and an origin for every value. Each value is
//! removed from its table when it is read; anything left over is unknown and reported. Reading goes
//! on after a problem, so that all are reported at once.

mod numbered;

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable as Table, DeValue as Value};

use crate::origin::{Origin, Sourced};
use crate::suggest::nearest;
use crate::{Problem, SourceFile};

/// The largest policy file, bytes.
pub(crate) const FILE_BYTES_MAX: usize = 256 << 10;

/// The longest list, entries.
pub(crate) const LIST_ENTRIES_MAX: usize = 1_000;

/// The description of a problem with one value, and a hint.
#[derive(Debug)]
pub(crate) struct Complaint {
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
}

impl Complaint {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            hint: Some(hint.into()),
        }
    }
}

impl From<String> for Complaint {
    fn from(what: String) -> Self {
        Self { what, hint: None }
    }
}

/// A file while it is read.
pub(crate) struct Document {
    file: Arc<str>,
    /// The offset of each line, bytes.
    line_starts: Vec<usize>,
    text: String,
    problems: Vec<Problem>,
}

/// A table of the file, with the values that have not been read yet.
pub(crate) struct Section<'a> {
    name: &'static str,
    table: Table<'a>,
}

/// A value with its place, for tables whose keys are not fixed.
pub(crate) struct Entry<'a> {
    pub(crate) key: String,
    pub(crate) at: Range<usize>,
    value: Spanned<Value<'a>>,
}

impl Document {
    /// Opens a file and returns its top-level table.
    pub(crate) fn open<'a>(file: &'a SourceFile<'_>) -> Result<(Self, Section<'a>), Vec<Problem>> {
        let mut document = Self {
            file: Arc::from(file.name.as_ref()),
            line_starts: Vec::new(),
            text: String::new(),
            problems: Vec::new(),
        };
        if file.content.len() > FILE_BYTES_MAX {
            document.report(
                &(0..0),
                format!("the file is larger than {FILE_BYTES_MAX} bytes"),
                None,
            );
            return Err(document.problems);
        }
        let text = match std::str::from_utf8(&file.content) {
            Ok(text) => text,
            Err(error) => {
                let valid = file
                    .content
                    .get(..error.valid_up_to())
                    .unwrap_or_default()
                    .to_vec();
                document.index(&String::from_utf8(valid).unwrap_or_default());
                let end = error.valid_up_to();
                document.report(&(end..end), "the file is not UTF-8".to_owned(), None);
                return Err(document.problems);
            }
        };
        document.index(text);
        match Table::parse(text) {
            Ok(table) => Ok((
                document,
                Section {
                    name: "",
                    table: table.into_inner(),
                },
            )),
            Err(error) => {
                let at = error.span().unwrap_or(0..0);
                document.report(&at, format!("not valid TOML: {}", error.message()), None);
                Err(document.problems)
            }
        }
    }

    fn index(&mut self, text: &str) {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        self.line_starts = std::iter::once(0)
            .chain(ends.map(|(end, _)| end + 1))
            .collect();
        self.text = text.to_owned();
    }

    /// Ends the reading. Returns the value, or all problems, sorted by line.
    pub(crate) fn close<T>(mut self, value: T) -> Result<T, Vec<Problem>> {
        if self.problems.is_empty() {
            return Ok(value);
        }
        self.problems
            .sort_by_key(|problem| (problem.line, problem.column));
        Err(self.problems)
    }

    /// Returns the number of problems so far.
    pub(crate) fn problem_count(&self) -> usize {
        self.problems.len()
    }

    pub(crate) fn origin(&self, at: &Range<usize>) -> Origin {
        Origin::File {
            name: Arc::clone(&self.file),
            line: self.line(at.start),
        }
    }

    fn line(&self, offset: usize) -> u32 {
        let line = self.line_starts.partition_point(|start| *start <= offset);
        u32::try_from(line.max(1)).unwrap_or(u32::MAX)
    }

    pub(crate) fn report(&mut self, at: &Range<usize>, what: String, hint: Option<String>) {
        let line = self.line(at.start);
        let start = usize::try_from(line)
            .ok()
            .and_then(|line| self.line_starts.get(line - 1))
            .copied()
            .unwrap_or_default();
        let before = self.text.get(start..at.start).unwrap_or_default();
        self.problems.push(Problem {
            file: self.file.to_string(),
            line,
            column: u32::try_from(before.chars().count() + 1).unwrap_or(u32::MAX),
            what,
            hint,
        });
    }

    /// Reports a problem of a value of which only the line is known.
    pub(crate) fn report_line(&mut self, origin: &Origin, what: String) {
        self.problems.push(Problem {
            file: self.file.to_string(),
            line: origin.line(),
            column: 1,
            what,
            hint: None,
        });
    }

    pub(crate) fn complain(&mut self, at: &Range<usize>, subject: &str, complaint: Complaint) {
        self.report(at, format!("{subject}: {}", complaint.what), complaint.hint);
    }

    /// Reports the keys that have not been read as unknown.
    pub(crate) fn end(&mut self, section: Section<'_>, known: &[&str]) {
        for (key, _) in section.table {
            let at = key.span();
            let key = key.into_inner();
            let place = match section.name {
                "" => "at the top level".to_owned(),
                name => format!("in [{name}]"),
            };
            let meant = nearest(&key, known.iter().copied())
                .map(|word| format!("did you mean `{word}`? "))
                .unwrap_or_default();
            let hint = format!("{meant}The keys {place} are: {}", known.join(", "));
            self.report(&at, format!("unknown key `{key}` {place}"), Some(hint));
        }
    }

    /// Refuses a key that has a meaning elsewhere, with the reason.
    pub(crate) fn refuse(&mut self, section: &mut Section<'_>, key: &'static str, why: &str) {
        if let Some(entry) = section.take(key) {
            let subject = section.subject(key);
            self.report(&entry.at, format!("{subject}: {why}"), None);
        }
    }

    /// Reads a table within a table.
    pub(crate) fn section<'a>(
        &mut self,
        within: &mut Section<'a>,
        key: &'static str,
        name: &'static str,
    ) -> Option<Section<'a>> {
        let entry = within.take(key)?;
        match entry.value.into_inner() {
            Value::Table(table) => Some(Section { name, table }),
            other => {
                let what = format!("[{name}] must be a table, not {}", kind(&other));
                self.report(&entry.at, what, None);
                None
            }
        }
    }

    /// Reads a table within a table, with its place.
    pub(crate) fn placed<'a>(
        &mut self,
        within: &mut Section<'a>,
        key: &'static str,
        name: &'static str,
    ) -> Option<(Range<usize>, Section<'a>)> {
        let at = within.table.get_key_value(key)?.0.span();
        self.section(within, key, name).map(|section| (at, section))
    }

    /// Reads the tables within a table whose keys are not fixed; `name` is their name in messages.
    pub(crate) fn tables<'a>(
        &mut self,
        section: Section<'a>,
        name: &'static str,
    ) -> Vec<(String, Range<usize>, Section<'a>)> {
        let mut found = Vec::new();
        for entry in section.entries() {
            match entry.value.into_inner() {
                Value::Table(table) => found.push((entry.key, entry.at, Section { name, table })),
                other => {
                    let what = format!("[{name}] must be a table, not {}", kind(&other));
                    self.report(&entry.at, what, None);
                }
            }
        }
        found
    }

    /// Reads the tables of an array of tables.
    pub(crate) fn sections<'a>(
        &mut self,
        within: &mut Section<'a>,
        key: &'static str,
    ) -> Vec<(Range<usize>, Section<'a>)> {
        let Some(entry) = within.take(key) else {
            return Vec::new();
        };
        let Value::Array(array) = entry.value.into_inner() else {
            self.report(&entry.at, format!("write [[{key}]]"), None);
            return Vec::new();
        };
        let mut found = Vec::new();
        for item in array {
            let at = item.span();
            match item.into_inner() {
                Value::Table(table) => found.push((at, Section { name: key, table })),
                _ => self.report(&at, format!("write [[{key}]]"), None),
            }
        }
        found
    }

    /// Reads a string, parsed by `parse`.
    pub(crate) fn text<T>(
        &mut self,
        section: &mut Section<'_>,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, Complaint>,
    ) -> Option<Sourced<T>> {
        let entry = section.take(key)?;
        let subject = section.subject(key);
        self.understand(&subject, entry.value, parse)
    }

    /// Reads a string, or a number without quotes, parsed by `parse`.
    pub(crate) fn measure<T>(
        &mut self,
        section: &mut Section<'_>,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, Complaint>,
    ) -> Option<T> {
        let entry = section.take(key)?;
        let subject = section.subject(key);
        let text = self.quantity(&entry, &subject)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(complaint) => {
                self.complain(&entry.at, &subject, complaint);
                None
            }
        }
    }

    /// Reads a list of strings, each parsed by `parse`.
    pub(crate) fn list<T>(
        &mut self,
        section: &mut Section<'_>,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, Complaint>,
    ) -> Option<Sourced<Vec<Sourced<T>>>> {
        self.list_as(section, key, |item| item, parse)
    }

    /// Reads a list of strings, each parsed by `parse`, and of tables, each read by `read` into
    /// several values.
    pub(crate) fn list_with_tables<T>(
        &mut self,
        section: &mut Section<'_>,
        key: &'static str,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, Complaint>,
        read: impl Fn(&mut Self, Section<'_>, &Range<usize>) -> Vec<T>,
    ) -> Vec<Sourced<T>> {
        let Some((items, _)) = self.items(section, key) else {
            return Vec::new();
        };
        let subject = section.subject(key);
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            let at = item.span();
            if !matches!(item.get_ref(), Value::Table(_)) {
                values.extend(self.understand(&subject, item, &parse));
            } else if let Value::Table(table) = item.into_inner() {
                let origin = self.origin(&at);
                let all = read(self, Section { name, table }, &at);
                values.extend(all.into_iter().map(|one| Sourced::new(one, origin.clone())));
            }
        }
        values
    }

    /// Reads the entries of a list, with the list's origin.
    fn items<'a>(
        &mut self,
        section: &mut Section<'a>,
        key: &'static str,
    ) -> Option<(Vec<Spanned<Value<'a>>>, Origin)> {
        let entry = section.take(key)?;
        let subject = section.subject(key);
        let array = match entry.value.into_inner() {
            Value::Array(array) => array,
            other => {
                let what = format!("{subject} must be a list of texts, not {}", kind(&other));
                let hint = other
                    .as_str()
                    .map(|text| format!("write {key} = [{text:?}]"));
                self.report(&entry.at, what, hint);
                return None;
            }
        };
        if array.len() > LIST_ENTRIES_MAX {
            let what = format!("{subject} has more than {LIST_ENTRIES_MAX} entries");
            self.report(&entry.at, what, None);
            return None;
        }
        Some((array.into_iter().collect(), self.origin(&entry.at)))
    }

    fn understand<T>(
        &mut self,
        subject: &str,
        value: Spanned<Value<'_>>,
        parse: impl Fn(&str) -> Result<T, Complaint>,
    ) -> Option<Sourced<T>> {
        let at = value.span();
        let Value::String(text) = value.get_ref() else {
            let what = format!("{subject} must be a text, not {}", kind(value.get_ref()));
            self.report(&at, what, None);
            return None;
        };
        match parse(text) {
            Ok(value) => Some(Sourced::new(value, self.origin(&at))),
            Err(complaint) => {
                self.complain(&at, subject, complaint);
                None
            }
        }
    }

    /// Reads a boolean, with its place.
    pub(crate) fn flag(
        &mut self,
        section: &mut Section<'_>,
        key: &'static str,
    ) -> Option<(Sourced<bool>, Range<usize>)> {
        let entry = section.take(key)?;
        match entry.value.get_ref() {
            Value::Boolean(value) => Some((Sourced::new(*value, self.origin(&entry.at)), entry.at)),
            other => {
                let subject = section.subject(key);
                let what = format!("{subject} must be true or false, not {}", kind(other));
                self.report(&entry.at, what, None);
                None
            }
        }
    }

    /// Returns a string, or a number without quotes, as text.
    pub(crate) fn quantity(&mut self, entry: &Entry<'_>, subject: &str) -> Option<String> {
        match entry.value.get_ref() {
            Value::String(text) => Some(text.to_string()),
            Value::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
            Value::Float(number) => Some(number.as_str().to_owned()),
            other => {
                let what = format!("{subject} must be a text or a number, not {}", kind(other));
                self.report(&entry.at, what, None);
                None
            }
        }
    }
}

impl<'a> Section<'a> {
    /// Returns the name of a key of this table in messages.
    pub(crate) fn subject(&self, key: &str) -> String {
        match self.name {
            "" => format!("`{key}`"),
            name => format!("`{key}` in [{name}]"),
        }
    }

    /// Returns whether the key is present.
    pub(crate) fn holds(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Returns whether the key's value is a string.
    pub(crate) fn holds_text(&self, key: &str) -> bool {
        let value = self.table.get(key);
        value.is_some_and(|value| matches!(value.get_ref(), Value::String(_)))
    }

    /// Returns whether the key's value is a list.
    pub(crate) fn holds_list(&self, key: &str) -> bool {
        let value = self.table.get(key);
        value.is_some_and(|value| matches!(value.get_ref(), Value::Array(_)))
    }

    fn take(&mut self, key: &str) -> Option<Entry<'a>> {
        let (name, value) = self.table.remove_entry(key)?;
        Some(Entry {
            at: name.span(),
            key: name.into_inner().into_owned(),
            value,
        })
    }

    /// Returns all keys with their values, for tables whose keys are not fixed.
    pub(crate) fn entries(self) -> impl Iterator<Item = Entry<'a>> {
        self.table.into_iter().map(|(name, value)| Entry {
            at: name.span(),
            key: name.into_inner().into_owned(),
            value,
        })
    }
}

/// Returns the kind of a value, with an article.
fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}
