//! Files of settings as trees, by the form in which they are written.

use std::path::Path;

use serde_json::Value;
use zeroize::Zeroizing;

use super::SettingsUnfit;

/// The longest file of settings, bytes.
pub const SETTINGS_BYTES_MAX: usize = 1024 * 1024;
/// Objects and lists within each other.
pub(super) const DEPTH_MAX: usize = 64;

/// How settings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsForm {
    /// JSON (RFC 8259), and what of JSON5 people write besides: comments, names without quotes.
    Json,
    /// TOML.
    Toml,
}

impl SettingsForm {
    /// That of a file, by its name.
    #[must_use]
    pub fn of(file: &Path) -> Self {
        match file.extension().is_some_and(|ending| ending == "toml") {
            true => Self::Toml,
            false => Self::Json,
        }
    }
}

/// What is in a file.
pub(super) enum Tree {
    Json(Value),
    Toml(toml::Value),
}

/// Where a value is.
#[derive(Debug, Default)]
pub(super) struct Spot {
    /// The names of members that lead to it; elements of a list are where the list is.
    pub(super) names: Vec<String>,
    /// The text before it, in a list.
    pub(super) before: Option<Zeroizing<String>>,
}

/// A value that is no object and no list.
pub(super) enum Leaf<'a> {
    /// A text, to be replaced.
    Text(&'a mut String),
    /// A number, and whether 0 is to stand in its place.
    Number(&'a mut bool),
}

/// What is done with each value.
type Each<'a> = &'a mut dyn FnMut(&Spot, Leaf<'_>) -> Result<(), SettingsUnfit>;

impl Tree {
    pub(super) fn read(form: SettingsForm, file: &[u8]) -> Result<Self, SettingsUnfit> {
        if file.len() > SETTINGS_BYTES_MAX {
            return Err(SettingsUnfit::Long);
        }
        let words = match form {
            SettingsForm::Json => "JSON",
            SettingsForm::Toml => "TOML",
        };
        let text = std::str::from_utf8(file).map_err(|_| SettingsUnfit::Syntax(words))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        match form {
            SettingsForm::Json => {
                if depth(text) > DEPTH_MAX {
                    return Err(SettingsUnfit::Deep);
                }
                let value = json5::from_str(text).map_err(|_| SettingsUnfit::Syntax(words))?;
                Ok(Self::Json(value))
            }
            SettingsForm::Toml => {
                let table: toml::Table =
                    toml::from_str(text).map_err(|_| SettingsUnfit::Syntax(words))?;
                Ok(Self::Toml(toml::Value::Table(table)))
            }
        }
    }

    /// All of it, as a file.
    pub(super) fn text(&self) -> Result<Zeroizing<String>, SettingsUnfit> {
        let written = match self {
            Self::Json(value) => serde_json::to_string_pretty(value)
                .map(|text| text + "\n")
                .map_err(|error| error.to_string()),
            Self::Toml(value) => toml::to_string_pretty(value).map_err(|error| error.to_string()),
        };
        written.map(Zeroizing::new).map_err(SettingsUnfit::Unfit)
    }

    /// Goes through all of its values, in their order.
    pub(super) fn visit(&mut self, each: Each<'_>) -> Result<(), SettingsUnfit> {
        let spot = &mut Spot::default();
        match self {
            Self::Json(value) => visit_json(value, spot, each),
            Self::Toml(value) => visit_toml(value, spot, each),
        }
    }
}

fn visit_json(value: &mut Value, spot: &mut Spot, each: Each<'_>) -> Result<(), SettingsUnfit> {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                spot.member(name, |spot| visit_json(value, spot, each))?;
            }
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
            each(spot, Leaf::Number(&mut is_zero))?;
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
    spot: &mut Spot,
    each: Each<'_>,
) -> Result<(), SettingsUnfit> {
    match value {
        toml::Value::Table(members) => {
            for (name, value) in members {
                spot.member(name, |spot| visit_toml(value, spot, each))?;
            }
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
            each(spot, Leaf::Number(&mut is_zero))?;
            if is_zero {
                *value = toml::Value::Integer(0);
            }
        }
        toml::Value::Boolean(_) | toml::Value::Datetime(_) => {}
    }
    Ok(())
}

impl Spot {
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

/// How many objects and lists are within each other at most. What reads them goes as deep on its
/// own stack.
fn depth(text: &str) -> usize {
    let (mut depth, mut most) = (0_usize, 0);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('{' | '[', _) => {
                depth += 1;
                most = most.max(depth);
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
                let is_end = |one: &char| matches!(one, '\n' | '\r' | '\u{2028}' | '\u{2029}');
                letters.find(is_end);
            }
            ('/', Some('*')) => {
                letters.next();
                let mut last = ' ';
                letters.find(|one| std::mem::replace(&mut last, *one) == '*' && *one == '/');
            }
            _ => {}
        }
    }
    most
}
