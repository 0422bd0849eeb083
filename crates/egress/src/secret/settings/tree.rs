//! Settings files as trees, for each file format.

use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use toml_parser::Source;
use toml_parser::lexer::TokenKind;
use zeroize::Zeroizing;

use super::SettingsMaskError;

/// The longest settings file, bytes.
pub const SETTINGS_BYTES_MAX: usize = 1024 * 1024;
/// The deepest nesting of objects and lists.
pub(super) const DEPTH_MAX: usize = 64;

/// The format of a settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsForm {
    /// JSON (RFC 8259), with the parts of JSON5 that people use: comments, names without quotes.
    Json,
    /// TOML.
    Toml,
}

impl SettingsForm {
    /// Returns the format of a file, by its name.
    #[must_use]
    pub fn of(file: &Path) -> Self {
        match file.extension().is_some_and(|ending| ending == "toml") {
            true => Self::Toml,
            false => Self::Json,
        }
    }
}

/// The contents of a file, without its comments.
pub(super) struct Tree {
    values: Values,
    /// Set if there is a comment, which is not searched.
    pub(super) has_comment: bool,
}

enum Values {
    Json(Value),
    Toml(toml::Value),
}

/// The place of a value.
#[derive(Debug, Default)]
pub(super) struct ValuePath {
    /// The names of the members that lead to it; elements of a list have the place of the list.
    pub(super) names: Vec<String>,
    /// The text before it, in a list.
    pub(super) before: Option<Zeroizing<String>>,
    /// The number of names that lead to a reference to a secret, which is none itself.
    pub(super) referring: usize,
}

/// A value other than an object or a list.
pub(super) enum Leaf<'a> {
    /// A text, to be replaced.
    Text(&'a mut String),
    /// A number as written, and whether it becomes 0.
    Number(&'a str, &'a mut bool),
}

/// The action for each value.
type EachValue<'a> = &'a mut dyn FnMut(&ValuePath, Leaf<'_>) -> Result<(), SettingsMaskError>;
/// The action for each name of a member.
type EachName<'a> = &'a mut dyn FnMut(&str) -> Result<(), SettingsMaskError>;

impl Tree {
    pub(super) fn read(form: SettingsForm, file: &[u8]) -> Result<Self, SettingsMaskError> {
        if file.len() > SETTINGS_BYTES_MAX {
            return Err(SettingsMaskError::Long);
        }
        let words = match form {
            SettingsForm::Json => "JSON",
            SettingsForm::Toml => "TOML",
        };
        let text = std::str::from_utf8(file).map_err(|_| SettingsMaskError::Syntax(words))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let measured = match form {
            SettingsForm::Json => measure_json(text),
            SettingsForm::Toml => measure_toml(text),
        };
        if measured.depth > DEPTH_MAX {
            return Err(SettingsMaskError::Deep);
        }
        let values = match form {
            SettingsForm::Json => {
                let read: Result<UniqueMembers, _> = json5::from_str(text);
                Values::Json(read.map_err(|error| unread(words, &error))?.0)
            }
            SettingsForm::Toml => {
                let table: toml::Table =
                    toml::from_str(text).map_err(|_| SettingsMaskError::Syntax(words))?;
                let value = toml::Value::Table(table);
                // Tables that are named alone are within each other, too.
                if is_deep(&value, DEPTH_MAX) {
                    return Err(SettingsMaskError::Deep);
                }
                Values::Toml(value)
            }
        };
        let has_comment = measured.has_comment;
        Ok(Self {
            values,
            has_comment,
        })
    }

    /// Renders it as a file.
    pub(super) fn text(&self) -> Result<Zeroizing<String>, SettingsMaskError> {
        let written = match &self.values {
            Values::Json(value) => serde_json::to_string_pretty(value)
                .map(|text| text + "\n")
                .map_err(|error| error.to_string()),
            Values::Toml(value) => toml::to_string_pretty(value).map_err(|error| error.to_string()),
        };
        written
            .map(Zeroizing::new)
            .map_err(SettingsMaskError::Unfit)
    }

    /// Visits all names of its members.
    pub(super) fn visit_names(&self, each: EachName<'_>) -> Result<(), SettingsMaskError> {
        match &self.values {
            Values::Json(value) => names_of_json(value, each),
            Values::Toml(value) => names_of_toml(value, each),
        }
    }

    /// Visits all its values, in their order.
    pub(super) fn visit(&mut self, each: EachValue<'_>) -> Result<(), SettingsMaskError> {
        let spot = &mut ValuePath::default();
        match &mut self.values {
            Values::Json(value) => visit_json(value, spot, each),
            Values::Toml(value) => visit_toml(value, spot, each),
        }
    }
}

/// Returns the reason for a parser's error.
fn unread(words: &'static str, error: &json5::Error) -> SettingsMaskError {
    match error.to_string().contains(TWICE) {
        true => SettingsMaskError::Twice,
        false => SettingsMaskError::Syntax(words),
    }
}

/// The parser's error for two members of one name.
const TWICE: &str = "two members of one name";

/// JSON in which no object has two members of one name, which readers would interpret differently.
struct UniqueMembers(Value);

impl<'de> Deserialize<'de> for UniqueMembers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(UniqueMembersVisitor).map(Self)
    }
}

struct UniqueMembersVisitor;

impl<'de> Visitor<'de> for UniqueMembersVisitor {
    type Value = Value;

    fn expecting(&self, words: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        words.write_str("a value of JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(UniqueMembers(element)) = list.next_element()? {
            elements.push(element);
        }
        Ok(Value::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some((name, UniqueMembers(value))) =
            object.next_entry::<String, UniqueMembers>()?
        {
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom(TWICE));
            }
        }
        Ok(Value::Object(members))
    }
}

fn names_of_json(value: &Value, each: EachName<'_>) -> Result<(), SettingsMaskError> {
    match value {
        Value::Object(members) => members.iter().try_for_each(|(name, value)| {
            each(name)?;
            names_of_json(value, each)
        }),
        Value::Array(elements) => elements.iter().try_for_each(|one| names_of_json(one, each)),
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => Ok(()),
    }
}

fn names_of_toml(value: &toml::Value, each: EachName<'_>) -> Result<(), SettingsMaskError> {
    match value {
        toml::Value::Table(members) => members.iter().try_for_each(|(name, value)| {
            each(name)?;
            names_of_toml(value, each)
        }),
        toml::Value::Array(elements) => {
            elements.iter().try_for_each(|one| names_of_toml(one, each))
        }
        toml::Value::String(_)
        | toml::Value::Integer(_)
        | toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_) => Ok(()),
    }
}

/// Returns whether tables and lists are nested more deeply than this.
fn is_deep(value: &toml::Value, most: usize) -> bool {
    let goes_on = |within: &toml::Value| most == 0 || is_deep(within, most - 1);
    match value {
        toml::Value::Table(members) => most == 0 || members.values().any(goes_on),
        toml::Value::Array(elements) => most == 0 || elements.iter().any(goes_on),
        toml::Value::String(_)
        | toml::Value::Integer(_)
        | toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_) => false,
    }
}

fn visit_json(
    value: &mut Value,
    spot: &mut ValuePath,
    each: EachValue<'_>,
) -> Result<(), SettingsMaskError> {
    match value {
        Value::Object(members) => {
            let kind = members.get("source").and_then(Value::as_str);
            let outer = spot.refers(kind);
            for (name, value) in members {
                spot.member(name, |spot| visit_json(value, spot, each))?;
            }
            spot.referring = outer;
        }
        Value::Array(elements) => {
            let mut before = None;
            for value in elements {
                let own = value.as_str().map(|text| Zeroizing::new(text.to_owned()));
                spot.element(before, |spot| visit_json(value, spot, each))?;
                before = own;
            }
        }
        Value::String(text) => each(spot, Leaf::Text(text))?,
        Value::Number(number) => {
            let mut is_zero = false;
            let written = Zeroizing::new(number.to_string());
            each(spot, Leaf::Number(&written, &mut is_zero))?;
            if is_zero {
                *number = 0.into();
            }
        }
        Value::Bool(_) | Value::Null => {}
    }
    Ok(())
}

fn visit_toml(
    value: &mut toml::Value,
    spot: &mut ValuePath,
    each: EachValue<'_>,
) -> Result<(), SettingsMaskError> {
    match value {
        toml::Value::Table(members) => {
            let kind = members.get("source").and_then(toml::Value::as_str);
            let outer = spot.refers(kind);
            for (name, value) in members {
                spot.member(name, |spot| visit_toml(value, spot, each))?;
            }
            spot.referring = outer;
        }
        toml::Value::Array(elements) => {
            let mut before = None;
            for value in elements {
                let own = value.as_str().map(|text| Zeroizing::new(text.to_owned()));
                spot.element(before, |spot| visit_toml(value, spot, each))?;
                before = own;
            }
        }
        toml::Value::String(text) => each(spot, Leaf::Text(text))?,
        toml::Value::Integer(_) | toml::Value::Float(_) => {
            let mut is_zero = false;
            let written = Zeroizing::new(value.to_string());
            each(spot, Leaf::Number(&written, &mut is_zero))?;
            if is_zero {
                *value = toml::Value::Integer(0);
            }
        }
        toml::Value::Boolean(_) | toml::Value::Datetime(_) => {}
    }
    Ok(())
}

impl ValuePath {
    /// Notes that an object states by its `source` where a secret is, and returns the note before
    /// it.
    fn refers(&mut self, source: Option<&str>) -> usize {
        let outer = self.referring;
        if source.is_some_and(|source| ["env", "file", "exec"].contains(&source)) {
            self.referring = self.names.len();
        }
        outer
    }

    fn member<Done>(&mut self, name: &str, within: impl FnOnce(&mut Self) -> Done) -> Done {
        self.names.push(name.to_owned());
        let done = self.element(None, within);
        self.names.pop();
        done
    }

    fn element<Done>(
        &mut self,
        before: Option<Zeroizing<String>>,
        within: impl FnOnce(&mut Self) -> Done,
    ) -> Done {
        let outer = std::mem::replace(&mut self.before, before);
        let done = within(self);
        self.before = outer;
        done
    }
}

/// The measures of a file before it is parsed: the parser recurses as deep on its own stack.
#[derive(Default)]
struct FileMeasures {
    /// The deepest nesting of objects and lists.
    depth: usize,
    /// Set if there is a comment.
    has_comment: bool,
}

fn measure_json(text: &str) -> FileMeasures {
    let mut measured = FileMeasures::default();
    let mut depth = 0_usize;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('{' | '[', _) => {
                depth += 1;
                measured.depth = measured.depth.max(depth);
            }
            ('}' | ']', _) => depth = depth.saturating_sub(1),
            ('"' | '\'', _) => {
                while let Some(within) = letters.next() {
                    match within {
                        '\\' => {
                            letters.next();
                        }
                        end if end == letter => break,
                        _ => {}
                    }
                }
            }
            ('/', Some('/')) => {
                measured.has_comment = true;
                let is_end = |one: &char| matches!(one, '\n' | '\r' | '\u{2028}' | '\u{2029}');
                letters.find(is_end);
            }
            ('/', Some('*')) => {
                measured.has_comment = true;
                letters.next();
                let mut last = ' ';
                letters.find(|one| std::mem::replace(&mut last, *one) == '*' && *one == '/');
            }
            _ => {}
        }
    }
    measured
}

/// Measures TOML, where each dot of a key goes one deeper, too.
fn measure_toml(text: &str) -> FileMeasures {
    let mut measured = FileMeasures::default();
    let mut outer = Vec::new();
    let (mut depth, mut begun) = (0_usize, 0);
    for token in Source::new(text).lex() {
        match token.kind() {
            TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket => {
                outer.push((depth, begun));
                depth += 1;
                begun = depth;
            }
            TokenKind::RightSquareBracket | TokenKind::RightCurlyBracket => {
                (depth, begun) = outer.pop().unwrap_or_default();
            }
            TokenKind::Dot => depth += 1,
            TokenKind::Comma | TokenKind::Newline => depth = begun,
            TokenKind::Comment => measured.has_comment = true,
            TokenKind::Equals
            | TokenKind::Whitespace
            | TokenKind::LiteralString
            | TokenKind::BasicString
            | TokenKind::MlLiteralString
            | TokenKind::MlBasicString
            | TokenKind::Atom
            | TokenKind::Eof => {}
        }
        measured.depth = measured.depth.max(depth);
    }
    measured
}
