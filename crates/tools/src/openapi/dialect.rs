//! Schemas of OpenAPI 3.0 and 3.1, as JSON Schema 2020-12 that refers to nothing but itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

/// The largest schema of an operation's arguments, bytes of its text.
pub(crate) const SCHEMA_BYTES_MAX: usize = 64 << 10;
/// The longest chain of references.
const HOPS_MAX: usize = 16;
/// The longest name, bytes.
const NAME_BYTES_MAX: usize = 48;

/// The kind of a keyword's value.
enum Keyword {
    Literal,
    Schema,
    Schemas,
    NamedSchemas,
    /// One that gives references another meaning.
    Refused,
    /// One that says nothing about values, or that is unknown.
    Dropped,
}

impl Keyword {
    fn of(name: &str) -> Self {
        match name {
            "additionalProperties"
            | "contains"
            | "else"
            | "if"
            | "items"
            | "not"
            | "propertyNames"
            | "then"
            | "unevaluatedItems"
            | "unevaluatedProperties" => Self::Schema,
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => Self::Schemas,
            "dependentSchemas" | "patternProperties" | "properties" => Self::NamedSchemas,
            "const" | "default" | "dependentRequired" | "description" | "enum"
            | "exclusiveMaximum" | "exclusiveMinimum" | "format" | "maxContains" | "maxItems"
            | "maxLength" | "maxProperties" | "maximum" | "minContains" | "minItems"
            | "minLength" | "minProperties" | "minimum" | "multipleOf" | "pattern" | "title"
            | "type" | "uniqueItems" => Self::Literal,
            "$dynamicRef" | "$id" | "$recursiveRef" => Self::Refused,
            _ => Self::Dropped,
        }
    }
}

/// The schemas that the arguments of one operation reach, as they are converted.
pub(crate) struct Schemas<'a> {
    root: &'a Value,
    /// The names in `$defs` by the references that lead to them.
    names: BTreeMap<String, String>,
    taken: BTreeSet<String>,
    pending: VecDeque<(String, &'a Value)>,
    bytes_left: usize,
}

impl<'a> Schemas<'a> {
    /// Begins with none.
    pub(crate) fn new(root: &'a Value) -> Self {
        Self {
            root,
            names: BTreeMap::new(),
            taken: BTreeSet::new(),
            pending: VecDeque::new(),
            bytes_left: SCHEMA_BYTES_MAX,
        }
    }

    /// Converts a schema. Those that it refers to are left for [`Self::definitions`].
    ///
    /// # Errors
    /// Describes a reference out of the document, or a schema that is too large.
    pub(crate) fn convert(&mut self, schema: &'a Value) -> Result<Value, String> {
        self.spend_bytes(2)?;
        let members = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(members) => members,
            _ => return Err("a schema must be an object or a boolean".to_owned()),
        };
        let hidden = self.read_only(members)?;
        let mut made = Map::new();
        for (name, value) in members {
            let keyword = name.as_str();
            let value = match (Keyword::of(keyword), value) {
                (_, Value::String(reference)) if keyword == "$ref" => self.reference(reference)?,
                (_, Value::Array(names)) if keyword == "required" => {
                    self.spend(value)?;
                    let is_kept =
                        |one: &&Value| one.as_str().is_none_or(|one| !hidden.contains(one));
                    names.iter().filter(is_kept).cloned().collect()
                }
                (Keyword::NamedSchemas, Value::Object(all)) => {
                    let is_kept = |name: &str| keyword != "properties" || !hidden.contains(name);
                    let mut made = Map::new();
                    for (name, schema) in all.iter().filter(|(name, _)| is_kept(name)) {
                        self.spend_bytes(name.len() + 4)?;
                        made.insert(name.clone(), self.convert(schema)?);
                    }
                    Value::Object(made)
                }
                (Keyword::Schemas, Value::Array(all)) => {
                    let made = all.iter().map(|one| self.convert(one));
                    Value::Array(made.collect::<Result<_, _>>()?)
                }
                (Keyword::Schema, _) => self.convert(value)?,
                (Keyword::Literal, _) => {
                    self.spend(value)?;
                    value.clone()
                }
                (Keyword::Refused, _) => {
                    return Err(format!("a schema has {keyword}, which is not supported"));
                }
                _ => continue,
            };
            self.spend_bytes(name.len() + 4)?;
            made.insert(name.clone(), value);
        }
        convert_bounds(&mut made);
        Ok(match members.get("nullable") == Some(&Value::Bool(true)) {
            true => nullable(made),
            false => Value::Object(made),
        })
    }

    /// Converts the schemas that were referred to, and those that they refer to in turn.
    ///
    /// # Errors
    /// As for [`Self::convert`].
    pub(crate) fn definitions(mut self) -> Result<Map<String, Value>, String> {
        let mut made = Map::new();
        while let Some((name, schema)) = self.pending.pop_front() {
            self.spend_bytes(name.len() + 4)?;
            let schema = self.convert(schema)?;
            made.insert(name, schema);
        }
        Ok(made)
    }

    /// Returns the members that a schema describes as read-only: a request does not have them.
    fn read_only(&self, members: &'a Map<String, Value>) -> Result<BTreeSet<&'a str>, String> {
        let properties = members.get("properties").and_then(Value::as_object);
        let mut hidden = BTreeSet::new();
        for (name, schema) in properties.into_iter().flatten() {
            let is_set = |schema: &Value| schema.get("readOnly") == Some(&Value::Bool(true));
            if is_set(schema) || is_set(resolve(self.root, schema)?) {
                hidden.insert(name.as_str());
            }
        }
        Ok(hidden)
    }

    /// Returns the reference into `$defs` that stands for one into the document.
    fn reference(&mut self, reference: &str) -> Result<Value, String> {
        let name = match self.names.get(reference) {
            Some(name) => name.clone(),
            None => {
                let schema = target(self.root, reference)?;
                let name = reference.rsplit('/').next().unwrap_or_default();
                let name = unique_name(name, &mut self.taken);
                self.names.insert(reference.to_owned(), name.clone());
                self.pending.push_back((name.clone(), schema));
                name
            }
        };
        self.spend_bytes(name.len())?;
        Ok(json!(format!("#/$defs/{name}")))
    }

    /// Counts what a value takes.
    ///
    /// # Errors
    /// As for [`Self::convert`].
    pub(crate) fn spend(&mut self, value: &Value) -> Result<(), String> {
        self.spend_bytes(2)?;
        match value {
            Value::String(text) => self.spend_bytes(text.len()),
            Value::Array(members) => members.iter().try_for_each(|one| self.spend(one)),
            Value::Object(members) => members.iter().try_for_each(|(name, one)| {
                self.spend_bytes(name.len() + 4)?;
                self.spend(one)
            }),
            _ => Ok(()),
        }
    }

    fn spend_bytes(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }
}

/// Returns the error for arguments whose schema is too large.
pub(crate) fn too_large() -> String {
    format!("the schema of its arguments is longer than {SCHEMA_BYTES_MAX} bytes")
}

/// Follows the references of a value into the document.
///
/// # Errors
/// Describes the reference that leads out of it, nowhere, or in a circle.
pub(crate) fn resolve<'a>(root: &'a Value, value: &'a Value) -> Result<&'a Value, String> {
    let mut value = value;
    for _ in 0..HOPS_MAX {
        match value.get("$ref").and_then(Value::as_str) {
            Some(reference) => value = target(root, reference)?,
            None => return Ok(value),
        }
    }
    Err(format!("a chain of more than {HOPS_MAX} references"))
}

/// Returns the value that a reference leads to.
fn target<'a>(root: &'a Value, reference: &str) -> Result<&'a Value, String> {
    let pointer = reference
        .strip_prefix('#')
        .filter(|pointer| pointer.starts_with('/'))
        .ok_or_else(|| format!("$ref {reference:?} leads out of the document"))?;
    let pointer = percent_decode_str(pointer).decode_utf8_lossy();
    root.pointer(&pointer)
        .ok_or_else(|| format!("$ref {reference:?} leads nowhere"))
}

/// Makes a name of letters, digits, `_` and `-`, at most 48 bytes, that is not taken yet.
pub(crate) fn unique_name(text: &str, taken: &mut BTreeSet<String>) -> String {
    let mut name = String::new();
    for char in text.chars() {
        match is_of_name(char) {
            true => name.push(char),
            false if name.ends_with('_') => {}
            false => name.push('_'),
        }
    }
    let name = name.trim_matches('_');
    let mut made = name.chars().take(NAME_BYTES_MAX).collect::<String>();
    let mut count = 1_usize;
    while made.is_empty() || taken.contains(&made) {
        count += 1;
        let end = format!("_{count}");
        made = name.chars().take(NAME_BYTES_MAX - end.len()).collect();
        made.push_str(&end);
    }
    taken.insert(made.clone());
    made
}

/// Returns whether a name may have this character.
fn is_of_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || "_-".contains(char)
}

/// Returns whether a text is a name as it is.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_of_name)
}

/// Converts the bounds of OpenAPI 3.0 that are exclusive by a boolean.
fn convert_bounds(made: &mut Map<String, Value>) {
    for (exclusive, bound) in [
        ("exclusiveMinimum", "minimum"),
        ("exclusiveMaximum", "maximum"),
    ] {
        if let Some(Value::Bool(is_exclusive)) = made.get(exclusive).cloned() {
            made.shift_remove(exclusive);
            if is_exclusive && let Some(value) = made.shift_remove(bound) {
                made.insert(exclusive.to_owned(), value);
            }
        }
    }
}

/// Makes a schema that accepts null too.
fn nullable(mut made: Map<String, Value>) -> Value {
    let is_bare =
        |name: &str| !["$ref", "allOf", "anyOf", "const", "enum", "oneOf"].contains(&name);
    let kind = made.get("type").and_then(Value::as_str).map(str::to_owned);
    match kind {
        Some(kind) if made.keys().all(|name| is_bare(name)) => {
            made.insert("type".to_owned(), json!([kind, "null"]));
            Value::Object(made)
        }
        Some(_) | None => json!({ "anyOf": [made, { "type": "null" }] }),
    }
}
