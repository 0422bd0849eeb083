//! A program and its arguments, made from the arguments of a call without a shell.

use std::ffi::OsString;

use serde_json::Value;

/// The argument that stands for all arguments together, as JSON.
const ALL: &str = "*";

/// A program's arguments with places for those of a call: `{name}`, and `{*}` for all of them as
/// JSON; `{{` is a brace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    items: Vec<Item>,
}

/// One argument of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Argument(String),
}

impl Template {
    /// Parses the items of a command.
    ///
    /// # Errors
    /// Describes what is wrong with one.
    pub fn parse(items: &[String]) -> Result<Self, String> {
        let items: Vec<Item> = items
            .iter()
            .map(|item| Item::parse(item))
            .collect::<Result<_, _>>()?;
        match items.first() {
            None => Err("the program is missing".to_owned()),
            Some(first) if first.names().next().is_some() => {
                Err("the program is no argument of a call".to_owned())
            }
            Some(_) => Ok(Self { items }),
        }
    }

    /// Returns the arguments that it has places for.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.items.iter().flat_map(Item::names)
    }

    /// Returns the program and its arguments. An item whose argument is not there is left out; one
    /// whose argument is a list comes once for each of its members.
    ///
    /// # Errors
    /// Describes the argument that cannot be passed: one that a program would take for an option.
    pub fn render(&self, arguments: &Value) -> Result<Vec<OsString>, String> {
        let mut command: Vec<OsString> = Vec::new();
        for item in &self.items {
            let may_be_option = command.iter().any(|one| one == "--");
            for text in item.render(arguments)? {
                if text.starts_with('-') && item.begins_with_argument() && !may_be_option {
                    let name = item.names().next().unwrap_or_default();
                    return Err(format!(
                        "{name} begins with \"-\", which the program would take for an option"
                    ));
                }
                command.push(text.into());
            }
        }
        Ok(command)
    }
}

impl Item {
    /// Parses one item.
    ///
    /// # Errors
    /// Describes what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            plain.push_str(before);
            if let Some(after) = from.strip_prefix("{{").or(from.strip_prefix("}}")) {
                plain.extend(from.chars().next());
                rest = after;
                continue;
            }
            let inner = from.strip_prefix('{').and_then(|from| from.split_once('}'));
            let (name, after) = inner
                .ok_or_else(|| format!("{text:?} has a brace without another: {{{{ is one"))?;
            if name.is_empty() || name.contains('{') {
                return Err(format!("{text:?} names no argument"));
            }
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(Part::Argument(name.to_owned()));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() || parts.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self { parts })
    }

    /// Returns the arguments that it has places for, but that for all.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Argument(name) if name != ALL => Some(name.as_str()),
            Part::Argument(_) | Part::Text(_) => None,
        })
    }

    fn begins_with_argument(&self) -> bool {
        matches!(self.parts.first(), Some(Part::Argument(name)) if name != ALL)
    }

    /// Returns its texts: none, one, or one for each member of a list.
    ///
    /// # Errors
    /// Describes the argument that cannot be passed.
    pub fn render(&self, arguments: &Value) -> Result<Vec<String>, String> {
        let mut texts = vec![String::new()];
        for part in &self.parts {
            let values = match part {
                Part::Text(text) => vec![text.clone()],
                Part::Argument(name) if name == ALL => vec![arguments.to_string()],
                Part::Argument(name) => match arguments.get(name) {
                    None | Some(Value::Null) => return Ok(Vec::new()),
                    Some(Value::Array(members)) => members.iter().map(text_of).collect(),
                    Some(value) => vec![text_of(value)],
                },
            };
            if values.iter().any(|value| value.contains('\0')) {
                return Err("an argument of a program cannot hold a NUL".to_owned());
            }
            if values.len() > 1 && texts.len() > 1 {
                return Err("two lists in one argument of a program".to_owned());
            }
            let before = std::mem::take(&mut texts);
            for value in &values {
                texts.extend(before.iter().map(|text| format!("{text}{value}")));
            }
        }
        Ok(texts)
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(items: &[&str], arguments: &Value) -> Result<Vec<String>, String> {
        let items: Vec<String> = items.iter().map(|one| (*one).to_owned()).collect();
        let command = Template::parse(&items)?.render(arguments)?;
        let command = command.into_iter();
        Ok(command.map(|one| one.into_string().unwrap()).collect())
    }

    #[test]
    fn arguments_take_their_places_and_nothing_else() {
        let arguments = json!({
            "path": "a b; rm -rf $HOME `x`", "count": 3, "flag": true, "tags": ["x", "y"],
            "none": null, "deep": { "a": 1 }, "empty": [],
        });
        for (items, expected) in [
            (vec!["wc", "{path}"], vec!["wc", "a b; rm -rf $HOME `x`"]),
            (
                vec!["x", "--n={count}", "{flag}"],
                vec!["x", "--n=3", "true"],
            ),
            (vec!["x", "--tag={tags}"], vec!["x", "--tag=x", "--tag=y"]),
            (vec!["x", "{tags}", "z"], vec!["x", "x", "y", "z"]),
            (vec!["x", "--y={none}", "{missing}", "{empty}"], vec!["x"]),
            (vec!["x", "{deep}"], vec!["x", "{\"a\":1}"]),
            (vec!["x", "{{{count}}}"], vec!["x", "{3}"]),
            (vec!["x", ""], vec!["x", ""]),
        ] {
            assert_eq!(rendered(&items, &arguments).unwrap(), expected, "{items:?}");
        }
        let all = rendered(&["x", "{*}"], &json!({ "a": 1 })).unwrap();
        assert_eq!(all, ["x", "{\"a\":1}"]);
    }

    #[test]
    fn options_are_not_smuggled_in() {
        let arguments = json!({ "path": "--files0-from=/etc/passwd", "list": ["a", "-b"] });
        for items in [
            &["wc", "{path}"][..],
            &["wc", "{list}"],
            &["wc", "-l", "{path}x"],
        ] {
            let error = rendered(items, &arguments).unwrap_err();
            assert!(error.contains("take for an option"), "{items:?}: {error}");
        }
        for items in [
            &["wc", "--", "{path}"][..],
            &["wc", "--", "-", "{list}"],
            &["wc", "--p={path}"],
        ] {
            assert!(rendered(items, &arguments).is_ok(), "{items:?}");
        }
    }

    #[test]
    fn bad_templates_and_values_are_refused() {
        for items in [
            &[][..],
            &["{program}"],
            &["x", "{"],
            &["x", "a}"],
            &["x", "{}"],
            &["x", "{a{b}"],
        ] {
            assert!(rendered(items, &json!({})).is_err(), "{items:?}");
        }
        assert!(rendered(&["x", "{a}"], &json!({ "a": "b\0c" })).is_err());
        let two = json!({ "a": ["1", "2"], "b": ["3", "4"] });
        assert!(rendered(&["x", "{a}{b}"], &two).is_err());
    }
}
