//! JSON Schemas of arguments and results.

use std::fmt;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value, json};

/// The largest schema, bytes of its text.
const SCHEMA_BYTES_MAX: usize = 64 << 10;

/// The most violations that are told of.
const TOLD_MAX: usize = 8;

/// A schema, compiled.
pub struct Schema {
    value: Value,
    validator: Validator,
}

impl fmt::Debug for Schema {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Schema({})", self.value)
    }
}

impl Schema {
    /// Compiles the schema of a tool's arguments, an object: by default one without members. Members
    /// that it does not name are refused unless it says otherwise.
    ///
    /// # Errors
    /// Describes what is wrong with it.
    pub fn of_arguments(value: Option<Value>) -> Result<Self, String> {
        let mut members = match value {
            None => Map::new(),
            Some(Value::Object(members)) => members,
            Some(_) => return Err("it is no table".to_owned()),
        };
        let kind = members.entry("type").or_insert(json!("object"));
        if *kind != json!("object") {
            return Err(format!("the arguments of a tool are an object, not {kind}"));
        }
        let is_open = ["allOf", "anyOf", "oneOf", "$ref", "if"];
        let is_open = is_open.iter().any(|name| members.contains_key(*name));
        members.entry("properties").or_insert(json!({}));
        if !is_open {
            members
                .entry("additionalProperties")
                .or_insert(json!(false));
        }
        Self::new(Value::Object(members))
    }

    /// Compiles the schema of the arguments of an upstream's tool, which is as open as it says.
    ///
    /// # Errors
    /// Describes what is wrong with it.
    pub fn of_upstream(value: Value) -> Result<Self, String> {
        match value.get("type") == Some(&json!("object")) {
            true => Self::new(value),
            false => Err("the arguments of a tool are an object".to_owned()),
        }
    }

    /// Compiles a schema (JSON Schema 2020-12, unless it names another draft). References lead
    /// nowhere but into itself, and patterns take linear time.
    ///
    /// # Errors
    /// Describes what is wrong with it.
    pub fn new(value: Value) -> Result<Self, String> {
        if value.to_string().len() > SCHEMA_BYTES_MAX {
            return Err(format!("it is longer than {SCHEMA_BYTES_MAX} bytes"));
        }
        check_references(&value)?;
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .should_validate_formats(true)
            .with_pattern_options(PatternOptions::regex())
            .build(&value)
            .map_err(|error| match error.instance_path().to_string() {
                at if at.is_empty() => error.to_string(),
                at => format!("{at}: {error}"),
            })?;
        Ok(Self { value, validator })
    }

    /// Returns the schema itself.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the names of the members that it describes.
    pub fn properties(&self) -> impl Iterator<Item = &str> {
        let properties = self.value.get("properties").and_then(Value::as_object);
        properties
            .into_iter()
            .flat_map(|all| all.keys().map(String::as_str))
    }

    /// Checks a value.
    ///
    /// # Errors
    /// Describes every violation, a line each, and how many more there are.
    pub fn check(&self, value: &Value) -> Result<(), Vec<String>> {
        let mut errors = self.validator.iter_errors(value);
        let mut told: Vec<String> = errors
            .by_ref()
            .take(TOLD_MAX)
            .map(|error| {
                let at = error.instance_path().to_string();
                // A long value says nothing that its place does not.
                let what = shortened(&error.to_string());
                match at.is_empty() {
                    true => what,
                    false => format!("{at}: {what}"),
                }
            })
            .collect();
        let more = errors.count();
        if more > 0 {
            told.push(format!("and {more} more"));
        }
        match told.is_empty() {
            true => Ok(()),
            false => Err(told),
        }
    }
}

/// Returns the beginning of a text.
fn shortened(text: &str) -> String {
    const SHOWN_BYTES: usize = 200;
    match text.len() > SHOWN_BYTES {
        true => {
            let end = text.floor_char_boundary(SHOWN_BYTES);
            format!("{}…", text.get(..end).unwrap_or_default())
        }
        false => text.to_owned(),
    }
}

/// Refuses references that lead out of the schema, and a base that others would be resolved by.
fn check_references(value: &Value) -> Result<(), String> {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let is_reference = matches!(name.as_str(), "$ref" | "$dynamicRef");
                let leads_out = |text: &str| !text.starts_with('#');
                match member.as_str() {
                    Some(text) if is_reference && leads_out(text) => {
                        return Err(format!("{name} {text:?} leads out of it"));
                    }
                    Some(text) if name == "$id" => {
                        return Err(format!("$id {text:?} gives it another base: leave it out"));
                    }
                    Some(_) | None => check_references(member)?,
                }
            }
            Ok(())
        }
        Value::Array(members) => members.iter().try_for_each(check_references),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(schema: Value, value: &Value) -> Vec<String> {
        let schema = Schema::of_arguments(Some(schema)).unwrap();
        schema.check(value).err().unwrap_or_default()
    }

    #[test]
    fn arguments_are_checked_with_every_violation_told() {
        let schema = json!({
            "properties": {
                "path": { "type": "string", "pattern": "^[a-z/]+$", "maxLength": 10 },
                "count": { "type": "integer", "minimum": 1, "maximum": 9 },
            },
            "required": ["path"],
        });
        assert!(checked(schema.clone(), &json!({ "path": "a/b", "count": 9 })).is_empty());
        let told = checked(schema, &json!({ "path": "../X", "count": 10, "more": 1 }));
        let all = told.join("\n");
        assert_eq!(told.len(), 3, "{all}");
        assert!(all.contains("/path: "), "{all}");
        assert!(
            all.contains("/count: 10 is greater than the maximum of 9"),
            "{all}"
        );
        assert!(all.contains("'more' was unexpected"), "{all}");
    }

    #[test]
    fn a_tool_without_a_schema_takes_no_arguments() {
        let schema = Schema::of_arguments(None).unwrap();
        assert_eq!(schema.check(&json!({})), Ok(()));
        assert!(schema.check(&json!({ "a": 1 })).is_err());
        assert!(schema.check(&json!([])).is_err());
    }

    #[test]
    fn schemas_that_lead_out_or_explode_are_refused() {
        for (schema, why) in [
            (
                json!({ "properties": { "a": { "$ref": "file:///etc/passwd" } } }),
                "leads out",
            ),
            (
                json!({ "properties": { "a": { "$ref": "http://127.0.0.1/" } } }),
                "leads out",
            ),
            (
                json!({ "$id": "http://h/", "properties": {} }),
                "another base",
            ),
            (
                json!({ "properties": { "a": { "$ref": "#/nowhere" } } }),
                "nowhere",
            ),
            (
                json!({ "properties": { "a": { "type": "strin" } } }),
                "strin",
            ),
            (
                json!({ "properties": { "a": { "pattern": "(a)\\1" } } }),
                "regex",
            ),
            (json!({ "type": "array" }), "are an object"),
            (json!([1]), "no table"),
            (json!({ "description": "x".repeat(70_000) }), "longer than"),
        ] {
            let error = Schema::of_arguments(Some(schema.clone())).unwrap_err();
            assert!(error.contains(why), "{schema}: {error}");
        }
    }

    /// Nested repetitions take a backtracking matcher longer than the age of the world.
    #[test]
    fn patterns_take_linear_time() {
        let schema = json!({ "properties": { "a": { "pattern": "^(a+)+$" } } });
        let value = json!({ "a": format!("{}!", "a".repeat(50_000)) });
        assert_eq!(checked(schema, &value).len(), 1);
    }
}
