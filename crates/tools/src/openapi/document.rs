//! OpenAPI documents, and those of their operations that can be tools.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::dialect::{self, SCHEMA_BYTES_MAX, Schemas, resolve};
use super::request::{self, Body, Operation, Parameter, Place, Style};

/// The longest document, bytes.
const TEXT_BYTES_MAX: usize = 16 << 20;
/// The most operations of a document.
const OPERATIONS_MAX: usize = 2_000;
/// The deepest nesting of a document: more would need more stack than a thread has.
const DEPTH_MAX: usize = 48;
/// The most nodes of a document, with those that aliases stand for.
const NODES_MAX: usize = 2_000_000;
/// The most events that aliases stand for.
const REPLAYED_MAX: usize = 100_000;
/// The schemas and descriptions of all operations together, bytes.
const OPERATIONS_BYTES_MAX: usize = 16 << 20;
/// The most parameters of an operation, and the most security schemes.
const PARAMETERS_MAX: usize = 200;
/// The longest reason why an operation is no tool, bytes.
const REASON_BYTES_MAX: usize = 300;

/// A document.
#[derive(Debug)]
pub struct Document {
    /// The address of its server, if it names an absolute one.
    pub server: Option<String>,
    /// The operations that can be tools, in the order of the document.
    pub operations: Vec<Operation>,
    /// The other operations, by method and path, and why they cannot.
    pub skipped: Vec<(String, String)>,
}

/// Reads a document, YAML or JSON.
///
/// # Errors
/// Describes what makes all of it unusable.
pub fn read(text: &str) -> Result<Document, String> {
    let root = parse(text)?;
    check_version(&root)?;
    let mut skipped = Vec::new();
    let found = find(&root, &mut skipped)?;
    let reader = Reader {
        root: &root,
        credentials: credentials_of(&root)?,
    };
    let mut ids = Ids::of(&found);
    let mut operations = Vec::new();
    let mut bytes_left = OPERATIONS_BYTES_MAX;
    for one in &found {
        let made = ids
            .next(one)
            .and_then(|id| reader.operation(one, id, &mut bytes_left));
        match made {
            Ok(operation) => operations.push(operation),
            Err(why) => skipped.push((format!("{} {}", one.method, one.path), why)),
        }
    }
    for (_, why) in &mut skipped {
        why.truncate(why.floor_char_boundary(REASON_BYTES_MAX));
    }
    Ok(Document {
        server: server_of(&root),
        operations,
        skipped,
    })
}

pub(crate) fn parse(text: &str) -> Result<Value, String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!(
            "the document is longer than {TEXT_BYTES_MAX} bytes"
        ));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_total_scalar_bytes: 2 * TEXT_BYTES_MAX,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: REPLAYED_MAX },
        // As in JSON and YAML 1.2: `no` is a text.
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
}

fn check_version(root: &Value) -> Result<(), String> {
    let version = match root.get("openapi") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => return Err("not an OpenAPI document: `openapi` is missing".to_owned()),
    };
    let is_of = |minor: &str| version == minor || version.starts_with(&format!("{minor}."));
    match is_of("3.0") || is_of("3.1") {
        true => Ok(()),
        false => Err(format!(
            "OpenAPI {version} is not supported, only 3.0 and 3.1"
        )),
    }
}

/// Returns the first server that is an address, with the defaults of its variables.
fn server_of(root: &Value) -> Option<String> {
    let servers = root.get("servers").and_then(Value::as_array)?;
    servers.iter().find_map(|server| {
        let mut url = server.get("url")?.as_str()?.to_owned();
        let variables = server.get("variables").and_then(Value::as_object);
        for (name, variable) in variables.into_iter().flatten() {
            let default = request::scalar(variable.get("default")?).ok()?;
            url = url.replace(&format!("{{{name}}}"), &default);
        }
        request::checked_base(&url).ok().map(str::to_owned)
    })
}

/// An operation as a document has it.
struct Found<'a> {
    path: &'a str,
    item: &'a Value,
    method: String,
    operation: &'a Value,
}

impl<'a> Found<'a> {
    fn written_id(&self) -> Option<&'a str> {
        self.operation.get("operationId").and_then(Value::as_str)
    }
}

/// Finds the operations of a document.
fn find<'a>(
    root: &'a Value,
    skipped: &mut Vec<(String, String)>,
) -> Result<Vec<Found<'a>>, String> {
    let paths = root.get("paths").and_then(Value::as_object);
    let mut all = Vec::new();
    for (path, item) in paths.into_iter().flatten() {
        if !path.starts_with('/') {
            continue;
        }
        let item = match resolve(root, item) {
            Ok(item) => item,
            Err(why) => {
                skipped.push((path.clone(), why));
                continue;
            }
        };
        for (name, operation) in item.as_object().into_iter().flatten() {
            let method = name.to_ascii_uppercase();
            match name.as_str() {
                "get" | "put" | "post" | "delete" | "patch" | "head" => {}
                "options" | "trace" => {
                    let why = format!("{method} is not supported");
                    skipped.push((format!("{method} {path}"), why));
                    continue;
                }
                _ => continue,
            }
            all.push(Found {
                path,
                item,
                method,
                operation,
            });
            if all.len() > OPERATIONS_MAX {
                return Err(format!(
                    "the document has more than {OPERATIONS_MAX} operations"
                ));
            }
        }
    }
    Ok(all)
}

/// The names of operations.
struct Ids {
    taken: BTreeSet<String>,
    seen: BTreeSet<String>,
}

impl Ids {
    /// Begins with those ids that are kept as they are written, so that no other takes them.
    fn of(found: &[Found]) -> Self {
        let written = found.iter().filter_map(Found::written_id);
        let kept = written.filter(|id| dialect::is_name(id));
        Self {
            taken: kept.map(str::to_owned).collect(),
            seen: BTreeSet::new(),
        }
    }

    fn next(&mut self, found: &Found) -> Result<String, String> {
        let Some(id) = found.written_id() else {
            let text = format!("{}_{}", found.method, found.path);
            return Ok(dialect::unique_name(&text, &mut self.taken));
        };
        if !self.seen.insert(id.to_owned()) {
            return Err("another operation has its operationId".to_owned());
        }
        match dialect::is_name(id) {
            true => Ok(id.to_owned()),
            false => Ok(dialect::unique_name(id, &mut self.taken)),
        }
    }
}

/// Returns the names of headers and in queries that carry credentials: the boundary puts those in.
fn credentials_of(root: &Value) -> Result<Vec<(Place, String)>, String> {
    let schemes = root.pointer("/components/securitySchemes");
    let schemes = schemes.and_then(Value::as_object);
    let mut all = Vec::new();
    for (name, scheme) in schemes.into_iter().flatten() {
        let scheme =
            resolve(root, scheme).map_err(|why| format!("security scheme {name:?}: {why}"))?;
        let text = |name| scheme.get(name).and_then(Value::as_str);
        if let (Some(place), Some(key)) = (text("in").and_then(Place::named), text("name")) {
            all.push((place, request::folded(key)));
        }
    }
    match all.len() > PARAMETERS_MAX {
        true => Err(format!(
            "the document has more than {PARAMETERS_MAX} security schemes"
        )),
        false => Ok(all),
    }
}

/// The arguments of an operation, as they are gathered.
#[derive(Default)]
struct Arguments {
    properties: Map<String, Value>,
    required: Vec<String>,
}

impl Arguments {
    /// Adds one, with its own description before that of its schema.
    fn add(&mut self, name: &str, mut schema: Value, described: &Value, is_required: bool) {
        if let (Some(text), Value::Object(schema)) = (described.get("description"), &mut schema)
            && text.is_string()
        {
            schema.insert("description".to_owned(), text.clone());
        }
        if is_required {
            self.required.push(name.to_owned());
        }
        self.properties.insert(name.to_owned(), schema);
    }

    fn into_schema(self, definitions: Map<String, Value>) -> Value {
        json!({
            "type": "object",
            "properties": self.properties,
            "required": self.required,
            "additionalProperties": false,
            "$defs": definitions,
        })
    }
}

struct Reader<'a> {
    root: &'a Value,
    credentials: Vec<(Place, String)>,
}

impl<'a> Reader<'a> {
    fn operation(
        &self,
        found: &Found<'a>,
        id: String,
        bytes_left: &mut usize,
    ) -> Result<Operation, String> {
        if !found.operation.is_object() {
            return Err("not an object".to_owned());
        }
        let own_servers = [found.operation, found.item].map(|of| of.get("servers"));
        let servers = self.root.get("servers");
        if own_servers
            .iter()
            .flatten()
            .any(|own| Some(*own) != servers)
        {
            return Err("it overrides `servers` of the document".to_owned());
        }
        let mut schemas = Schemas::new(self.root);
        let mut arguments = Arguments::default();
        let body = self.body(found, &mut schemas, &mut arguments)?;
        let parameters = self.parameters(found, &mut schemas, &mut arguments)?;
        let arguments = arguments.into_schema(schemas.definitions()?);
        let bytes = arguments.to_string().len();
        if bytes > SCHEMA_BYTES_MAX {
            return Err(dialect::too_large());
        }
        let text = |name| found.operation.get(name).and_then(Value::as_str);
        let title = text("summary").map(str::to_owned);
        let description = text("description").filter(|text| !text.is_empty());
        let description = description.or(title.as_deref()).map(str::to_owned);
        let texts = [&title, &description].map(|text| text.as_ref().map_or(0, String::len));
        let bytes = bytes + texts.iter().sum::<usize>();
        *bytes_left = bytes_left.checked_sub(bytes).ok_or_else(|| {
            format!("all operations together are longer than {OPERATIONS_BYTES_MAX} bytes")
        })?;
        let in_query = parameters.iter().filter(|one| one.place == Place::Query);
        let credentials = self.credentials.iter();
        Ok(Operation {
            id,
            description: description.unwrap_or_else(|| format!("{} {}", found.method, found.path)),
            title,
            method: found.method.clone(),
            arguments,
            path: found.path.to_owned(),
            reserved: in_query
                .map(|one| request::folded(&one.name))
                .chain(credentials.map(|(_, name)| name.clone()))
                .collect(),
            parameters,
            body,
        })
    }

    /// Returns the parameters of an operation, its own instead of those of its path.
    fn merged(&self, found: &Found<'a>) -> Result<Vec<(&'a str, &'a str, &'a Value)>, String> {
        let mut all: Vec<(&str, &str, &Value)> = Vec::new();
        for of in [found.item, found.operation] {
            let list = of.get("parameters").and_then(Value::as_array);
            for parameter in list.into_iter().flatten() {
                let parameter = resolve(self.root, parameter)?;
                let text = |name| parameter.get(name).and_then(Value::as_str);
                let (Some(name), Some(place)) = (text("name"), text("in")) else {
                    return Err("a parameter lacks `name` or `in`".to_owned());
                };
                match all.iter_mut().find(|one| (one.0, one.1) == (name, place)) {
                    Some(one) => one.2 = parameter,
                    None => all.push((name, place, parameter)),
                }
                if all.len() > PARAMETERS_MAX {
                    return Err(format!("it has more than {PARAMETERS_MAX} parameters"));
                }
            }
        }
        Ok(all)
    }

    fn parameters(
        &self,
        found: &Found<'a>,
        schemas: &mut Schemas<'a>,
        arguments: &mut Arguments,
    ) -> Result<Vec<Parameter>, String> {
        let placeholders = request::placeholders(found.path)?;
        let mut parameters: Vec<Parameter> = Vec::new();
        for (name, in_place, parameter) in self.merged(found)? {
            let wrong = |why: String| format!("parameter {name:?}: {why}");
            let place = Place::named(in_place);
            let key = request::folded(name);
            let is_credential = |one: &(Place, String)| place == Some(one.0) && one.1 == key;
            let is_none = match place {
                Some(Place::Header) => request::is_reserved_header(&key),
                Some(Place::Path) => !placeholders.contains(&name),
                Some(Place::Query) | None => false,
            };
            if is_none || self.credentials.iter().any(is_credential) {
                continue;
            }
            let is_required =
                parameter.get("required") == Some(&Value::Bool(true)) || place == Some(Place::Path);
            let (Some(place), None) = (place, parameter.get("content")) else {
                match is_required {
                    true => {
                        return Err(wrong(format!(
                            "{in_place} parameters, or `content`, are not supported"
                        )));
                    }
                    false => continue,
                }
            };
            if place == Place::Header && !request::is_token(name) {
                return Err(wrong("not a valid header name".to_owned()));
            }
            let schema = parameter.get("schema");
            let schema = schema.ok_or_else(|| wrong("`schema` is missing".to_owned()))?;
            let schema = schemas.convert(schema).map_err(wrong)?;
            let style = Style::of(place, parameter).map_err(wrong)?;
            let mut argument = name.to_owned();
            if arguments.properties.contains_key(&argument) {
                argument = format!("{name}_{in_place}");
            }
            if arguments.properties.contains_key(&argument) {
                return Err(wrong("another argument has its name".to_owned()));
            }
            arguments.add(&argument, schema, parameter, is_required);
            parameters.push(Parameter {
                argument,
                name: name.to_owned(),
                place,
                style,
            });
        }
        let is_described = |name: &str| {
            let mut all = parameters.iter();
            all.any(|one| one.place == Place::Path && one.name == name)
        };
        match placeholders.iter().find(|name| !is_described(name)) {
            Some(name) => Err(format!("no parameter describes {{{name}}} of its path")),
            None => Ok(parameters),
        }
    }

    fn body(
        &self,
        found: &Found<'a>,
        schemas: &mut Schemas<'a>,
        arguments: &mut Arguments,
    ) -> Result<Option<Body>, String> {
        let Some(described) = found.operation.get("requestBody") else {
            return Ok(None);
        };
        let described = resolve(self.root, described)?;
        let is_required = described.get("required") == Some(&Value::Bool(true));
        let content = described.get("content").and_then(Value::as_object);
        let has_body = !["GET", "HEAD"].contains(&found.method.as_str());
        let chosen = content.filter(|_| has_body).and_then(|all| self.media(all));
        let Some((is_form, kind, media)) = chosen else {
            return match is_required {
                true => Err("its body is neither JSON nor a form".to_owned()),
                false => Ok(None),
            };
        };
        if let Some(encoding) = media.get("encoding") {
            schemas.spend(encoding)?;
        }
        let schema = match media.get("schema") {
            Some(schema) => schemas
                .convert(schema)
                .map_err(|why| format!("body: {why}"))?,
            None => json!({}),
        };
        arguments.add(request::BODY, schema, described, is_required);
        Ok(Some(match is_form {
            true => Body::Form(kind.to_owned(), styles_of(media)?),
            false => Body::Json(kind.to_owned()),
        }))
    }

    /// Chooses among the content types of a body, and tells a form from JSON.
    fn media(&self, all: &'a Map<String, Value>) -> Option<(bool, &'a str, &'a Value)> {
        let of = |is_it: fn(&str) -> bool| {
            all.iter().find(|(kind, _)| {
                let essence = kind.split(';').next().unwrap_or_default();
                request::is_header_value(kind) && is_it(&essence.trim().to_ascii_lowercase())
            })
        };
        let json = of(|kind| kind == "application/json")
            .or_else(|| of(|kind| kind.starts_with("application/") && kind.ends_with("+json")));
        if let Some((kind, media)) = json {
            return Some((false, kind, media));
        }
        let (kind, media) = of(|kind| kind == "application/x-www-form-urlencoded")?;
        let schema = resolve(self.root, media.get("schema")?).ok()?;
        let is_object = schema.get("type") == Some(&json!("object"));
        (is_object || schema.get("properties").is_some()).then_some((true, kind, media))
    }
}

/// Returns the styles of those members of a form that have one.
fn styles_of(media: &Value) -> Result<BTreeMap<String, Style>, String> {
    let encoding = media.get("encoding").and_then(Value::as_object);
    let has_style = |how: &Value| how.get("style").or(how.get("explode")).is_some();
    let all = encoding.into_iter().flatten();
    all.filter(|(_, how)| has_style(how))
        .map(|(name, how)| Ok((name.clone(), Style::of(Place::Query, how)?)))
        .collect()
}
