//! The right to call tools, and what a call is for a token's Datalog.

use std::collections::BTreeMap;
use std::fmt;

use biscuit_auth::builder::{Fact, Term, fact};
use serde_json::{Map, Value};

/// The most arguments that a right names: a check of more facts is not admitted.
const ARGUMENTS_MAX: usize = 8;
/// The longest name of an argument that a right names, bytes.
const NAME_BYTES_MAX: usize = 64;

/// The calls of a right: `call lookup`, `call tickets__*`, `call lookup customer=42 file=docs/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calls {
    /// The tools.
    tools: Text,
    /// The values of arguments, by their names. Others may have any.
    arguments: BTreeMap<String, Text>,
}

/// A text of a right: a whole one, or the beginning of one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Text {
    Whole(String),
    Begins(String),
}

impl Calls {
    /// Parses the words after `call`.
    pub(crate) fn parse(tools: &str, arguments: &[&str]) -> Option<Self> {
        let tools = Text::parse(tools)?;
        let mut all = BTreeMap::new();
        for word in arguments {
            let (name, value) = word.split_once('=')?;
            let value = Text::parse(value)?;
            let is_new = is_name(name) && all.insert(name.to_owned(), value).is_none();
            if !is_new || all.len() > ARGUMENTS_MAX {
                return None;
            }
        }
        Some(Self {
            tools,
            arguments: all,
        })
    }

    /// Returns the conditions of a question under which it is such a call.
    pub(crate) fn conditions(&self) -> Vec<String> {
        let mut all = vec![match &self.tools {
            Text::Whole(name) => format!("tool(\"{name}\")"),
            Text::Begins(name) => format!("tool($tool), $tool.starts_with(\"{name}\")"),
        }];
        for (number, (name, value)) in self.arguments.iter().enumerate() {
            all.push(match value {
                Text::Whole(value) => format!("argument_{name}(\"{value}\")"),
                // Of a text that is read in several ways nobody knows how it begins.
                Text::Begins(value) => {
                    format!("clear_{name}($a{number}), $a{number}.starts_with(\"{value}\")")
                }
            });
        }
        all
    }

    /// Returns the calls in common.
    pub(crate) fn common(&self, other: &Self) -> Option<Self> {
        let mut arguments = self.arguments.clone();
        for (name, value) in &other.arguments {
            let value = match arguments.get(name) {
                Some(own) => own.common(value)?,
                None => value.clone(),
            };
            arguments.insert(name.clone(), value);
        }
        Some(Self {
            tools: self.tools.common(&other.tools)?,
            arguments,
        })
    }

    /// Returns whether it has some call of a tool.
    pub(crate) fn has(&self, tool: &str) -> bool {
        match &self.tools {
            Text::Whole(name) => name == tool,
            Text::Begins(name) => tool.starts_with(name),
        }
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "call {}", self.tools)?;
        for (name, value) in &self.arguments {
            write!(to, " {name}={value}")?;
        }
        Ok(())
    }
}

impl Text {
    fn parse(text: &str) -> Option<Self> {
        let (whole, begins) = match text.strip_suffix('*') {
            Some(begins) => (begins, true),
            None => (text, false),
        };
        let is_one =
            is_plain(whole) && !whole.contains(['*', ' ']) && (begins || !whole.is_empty());
        let own = whole.to_owned();
        match (is_one, begins) {
            (false, _) => None,
            (true, true) => is_clear(whole).then_some(Self::Begins(own)),
            (true, false) => Some(Self::Whole(own)),
        }
    }

    fn common(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Whole(own), Self::Whole(other)) => (own == other).then(|| self.clone()),
            (Self::Whole(whole), Self::Begins(begins))
            | (Self::Begins(begins), Self::Whole(whole)) => {
                let is_one = whole.starts_with(begins) && is_clear(whole);
                is_one.then(|| Self::Whole(whole.clone()))
            }
            (Self::Begins(own), Self::Begins(other)) => {
                if own.starts_with(other) {
                    return Some(self.clone());
                }
                other.starts_with(own).then(|| Self::Begins(other.clone()))
            }
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(text) => to.write_str(text),
            Self::Begins(text) => write!(to, "{text}*"),
        }
    }
}

/// Returns whether a text needs no escape between quotes, and is displayed as it is.
pub(crate) fn is_plain(text: &str) -> bool {
    !text
        .chars()
        .any(|one| one.is_control() || matches!(one, '"' | '\\'))
}

/// Returns whether a name can be a part of a predicate's.
fn is_name(name: &str) -> bool {
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_of_word)
}

/// Returns whether a text, taken as a path or an address, is read in one way only: no step upwards,
/// no empty one, nothing encoded.
fn is_clear(text: &str) -> bool {
    let odd = |one: char| one.is_control() || matches!(one, '%' | '\\');
    let mut steps = text.split('/');
    // `https://` has an empty one; only there.
    let path = text.split_once("://").map_or(text, |(_, path)| path);
    !text.contains(odd) && !path.contains("//") && !steps.any(|step| matches!(step, "." | ".."))
}

/// Returns the facts about a call, one of each name. Of an argument that is no text they have the
/// JSON; one whose name is not a word has none, and no right and no check names it.
pub(crate) fn facts(tool: &str, arguments: &Map<String, Value>) -> Vec<Fact> {
    let text = |name: &str, text: &str| fact(name, &[Term::Str(text.to_owned())]);
    let mut all = vec![text("action", "call"), text("tool", tool)];
    for (name, value) in arguments.iter().filter(|(name, _)| is_name(name)) {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        all.push(text(&format!("argument_{name}"), &value));
        if is_clear(&value) {
            all.push(text(&format!("clear_{name}"), &value));
        }
    }
    all
}
