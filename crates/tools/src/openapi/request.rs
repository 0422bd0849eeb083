//! The requests of operations: arguments in their places.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The name of the argument that is the body.
pub(crate) const BODY: &str = "body";
/// The longest address, bytes.
const URL_BYTES_MAX: usize = 16 << 10;
/// The most times that a path may be percent-encoded.
const ENCODED_MAX: usize = 8;
/// The characters that are encoded: all but the unreserved ones of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpRequest {
    /// Its method, upper case.
    pub method: String,
    /// Its address.
    pub url: String,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Option<String>,
}

/// A parameter of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    /// The name of its argument.
    pub(crate) argument: String,
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) style: Style,
}

/// The place of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Path,
    Query,
    Header,
}

/// The way that lists and objects are written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Style {
    /// Their members one after another, or each on its own if `explode`.
    List {
        separator: &'static str,
        explode: bool,
    },
    /// Their members each on its own, by `name[member]`.
    Deep,
}

/// The body of an operation, by its content type.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Json(String),
    /// A form, with the styles of members that have one.
    Form(String, BTreeMap<String, Style>),
}

impl Place {
    pub(crate) fn named(text: &str) -> Option<Self> {
        match text {
            "path" => Some(Self::Path),
            "query" => Some(Self::Query),
            "header" => Some(Self::Header),
            _ => None,
        }
    }
}

impl Style {
    /// Reads the style of a parameter, or of a member of a form.
    pub(crate) fn of(place: Place, described: &Value) -> Result<Self, String> {
        let explode = described.get("explode").and_then(Value::as_bool);
        let style = described.get("style").and_then(Value::as_str);
        let list = |separator, explode| Ok(Self::List { separator, explode });
        match (place, style) {
            (Place::Query, None | Some("form")) => list(",", explode.unwrap_or(true)),
            (Place::Query, Some("spaceDelimited")) => list("%20", explode.unwrap_or(false)),
            (Place::Query, Some("pipeDelimited")) => list("%7C", explode.unwrap_or(false)),
            (Place::Query, Some("deepObject")) => Ok(Self::Deep),
            (Place::Path | Place::Header, None | Some("simple")) => {
                list(",", explode.unwrap_or(false))
            }
            (_, Some(style)) => Err(format!("style {style:?} is not supported")),
        }
    }
}

/// An operation of a service.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its name: `operationId`, or its method and path, as letters, digits, `_`, `.` and `-`.
    pub id: String,
    /// Its name for people, if it has one.
    pub title: Option<String>,
    /// The text that says what it does.
    pub description: String,
    /// Its method, upper case.
    pub method: String,
    /// The schema of its arguments.
    pub arguments: Value,
    /// Its path, with the names of parameters in braces.
    pub(crate) path: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) body: Option<Body>,
    /// The names in a query that the members of an argument cannot have.
    pub(crate) reserved: Vec<String>,
}

impl Operation {
    /// Makes the request of arguments that its schema has accepted.
    ///
    /// # Errors
    /// Describes the argument that cannot be passed, or the address that is none of a service.
    pub fn request(&self, base: &str, arguments: &Value) -> Result<HttpRequest, String> {
        let base = checked_base(base)?;
        let mut path = self.path.clone();
        let mut query = Vec::new();
        let mut headers = Vec::new();
        for parameter in &self.parameters {
            let argument = &parameter.argument;
            let value = arguments.get(argument).filter(|value| !value.is_null());
            let wrong = |why| format!("{argument}: {why}");
            match (parameter.place, value) {
                (Place::Path, value) => {
                    let value = value.unwrap_or(&Value::Null);
                    let text = joined(value, parameter.style, encoded).map_err(wrong)?;
                    if text.is_empty() {
                        return Err(wrong("it is empty".to_owned()));
                    }
                    // No brace is left in a value that is encoded.
                    path = path.replace(&format!("{{{}}}", parameter.name), &text);
                }
                (Place::Query, Some(value)) => {
                    let made = pairs(&parameter.name, value, parameter.style).map_err(wrong)?;
                    self.check_pairs(&parameter.name, &made)?;
                    query.extend(made);
                }
                (Place::Header, Some(value)) => {
                    let text = joined(value, parameter.style, str::to_owned).map_err(wrong)?;
                    if !is_header_value(&text) {
                        return Err(wrong("header values must be printable ASCII".to_owned()));
                    }
                    headers.push((parameter.name.clone(), text));
                }
                (Place::Query | Place::Header, None) => {}
            }
        }
        let mut url = format!("{base}{path}");
        if !query.is_empty() {
            url = format!("{url}?{}", query_of(&query));
        }
        if url.len() > URL_BYTES_MAX {
            return Err(format!("the address is longer than {URL_BYTES_MAX} bytes"));
        }
        check_segments(&path)?;
        let body = match (&self.body, arguments.get(BODY)) {
            (Some(body), Some(value)) => {
                let (kind, text) = body.text(value).map_err(|why| format!("body: {why}"))?;
                headers.push(("Content-Type".to_owned(), kind.to_owned()));
                Some(text)
            }
            _ => None,
        };
        Ok(HttpRequest {
            method: self.method.clone(),
            url,
            headers,
            body,
        })
    }

    /// Refuses members of an argument that would be another parameter, or a credential.
    fn check_pairs(&self, own: &str, made: &[(String, String)]) -> Result<(), String> {
        for (name, _) in made {
            if name != own && self.reserved.contains(&folded(name)) {
                return Err(format!(
                    "{own}: a member is called {name:?}, as another parameter"
                ));
            }
        }
        Ok(())
    }
}

impl Body {
    /// Returns its content type and its text.
    fn text(&self, value: &Value) -> Result<(&str, String), String> {
        match self {
            Self::Json(kind) => Ok((kind, value.to_string())),
            Self::Form(kind, styles) => {
                let members = value.as_object().ok_or("a form is an object")?;
                let mut all = Vec::new();
                for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
                    let wrong = |why| format!("{name}: {why}");
                    all.extend(match (styles.get(name), value) {
                        (Some(style), _) => pairs(name, value, *style).map_err(wrong)?,
                        (None, Value::Array(members)) => members
                            .iter()
                            .map(|one| (name.clone(), encoded(&text_of(one))))
                            .collect(),
                        (None, _) => vec![(name.clone(), encoded(&text_of(value)))],
                    });
                }
                Ok((kind, query_of(&all)))
            }
        }
    }
}

/// Returns the names in a query, and their values, as which an argument is passed.
fn pairs(name: &str, value: &Value, style: Style) -> Result<Vec<(String, String)>, String> {
    let mut all = Vec::new();
    match (style, value) {
        (Style::Deep, _) => deep(name, value, &mut all)?,
        (Style::List { explode: true, .. }, Value::Array(members)) => {
            for one in members {
                all.push((name.to_owned(), encoded(&scalar(one)?)));
            }
        }
        (Style::List { explode: true, .. }, Value::Object(members)) => {
            for (name, one) in members {
                all.push((name.clone(), encoded(&scalar(one)?)));
            }
        }
        (Style::List { .. }, Value::Array(members)) if members.is_empty() => {}
        (Style::List { .. }, _) => all.push((name.to_owned(), joined(value, style, encoded)?)),
    }
    Ok(all)
}

/// Adds each member of an argument on its own.
fn deep(name: &str, value: &Value, all: &mut Vec<(String, String)>) -> Result<(), String> {
    match value {
        Value::Object(members) => members
            .iter()
            .try_for_each(|(member, one)| deep(&format!("{name}[{member}]"), one, all)),
        Value::Array(members) => members
            .iter()
            .enumerate()
            .try_for_each(|(at, one)| deep(&format!("{name}[{at}]"), one, all)),
        _ => {
            all.push((name.to_owned(), encoded(&scalar(value)?)));
            Ok(())
        }
    }
}

/// Returns an argument as one text.
fn joined(value: &Value, style: Style, encode: fn(&str) -> String) -> Result<String, String> {
    let Style::List { separator, explode } = style else {
        return Err("deepObject is for queries only".to_owned());
    };
    let between = if explode { "=" } else { separator };
    let texts: Result<Vec<String>, String> = match value {
        Value::Array(members) => members
            .iter()
            .map(|one| Ok(encode(&scalar(one)?)))
            .collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, one)| {
                Ok(format!(
                    "{}{between}{}",
                    encode(name),
                    encode(&scalar(one)?)
                ))
            })
            .collect(),
        _ => return Ok(encode(&scalar(value)?)),
    };
    Ok(texts?.join(separator))
}

/// Returns a text, a number or a boolean as text.
pub(crate) fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(_) | Value::Number(_) | Value::Bool(_) => Ok(text_of(value)),
        Value::Null => Err("null cannot be passed".to_owned()),
        Value::Array(_) | Value::Object(_) => {
            Err("a list or an object within another cannot be passed".to_owned())
        }
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Returns names and encoded values as a query or a form has them.
fn query_of(all: &[(String, String)]) -> String {
    let all = all.iter();
    let all: Vec<String> = all
        .map(|(name, value)| format!("{}={value}", encoded(name)))
        .collect();
    all.join("&")
}

/// Checks the address of a service, and returns it without a slash at its end.
///
/// # Errors
/// Describes what is wrong with it.
pub fn checked_base(text: &str) -> Result<&str, String> {
    let wrong = |why: &str| format!("the address {text:?} {why}");
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"))
        .ok_or_else(|| wrong("begins with neither http:// nor https://"))?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_host = match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(is_of_host),
    };
    let is_port = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    if !is_host || !port.is_none_or(is_port) {
        return Err(wrong("has an invalid host or port"));
    }
    let is_path = placeholders(path).is_ok_and(|names| names.is_empty());
    if !is_path || check_segments(path).is_err() {
        return Err(wrong("has an invalid path"));
    }
    Ok(text.trim_end_matches('/'))
}

fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._".contains(&byte)
}

/// Returns the names in braces of a path, whose other characters are those of a path.
pub(crate) fn placeholders(path: &str) -> Result<Vec<&str>, String> {
    let wrong = || format!("{path:?} is not a valid path");
    let mut names = Vec::new();
    let mut literal = String::new();
    let mut rest = path;
    while let Some((before, from)) = rest.split_once('{') {
        let (name, after) = from.split_once('}').ok_or_else(wrong)?;
        literal.push_str(before);
        literal.push('x');
        names.push(name);
        rest = after;
    }
    literal.push_str(rest);
    let is_of_path = |byte: u8| is_of_host(byte) || b"~!$&'()*+,;=:@/%".contains(&byte);
    let is_whole = |after: &str| {
        let mut digits = after.bytes().take(2).filter(u8::is_ascii_hexdigit);
        digits.by_ref().count() == 2
    };
    if !literal.bytes().all(is_of_path) || !literal.split('%').skip(1).all(is_whole) {
        return Err(wrong());
    }
    check_segments(&literal)?;
    Ok(names)
}

/// Refuses a path with a segment that leads elsewhere, however often it is decoded.
pub(crate) fn check_segments(path: &str) -> Result<(), String> {
    let mut path = path.to_owned();
    for _ in 0..ENCODED_MAX {
        // Some services take what follows a `;` for a parameter of the segment.
        let mut segments = path.split(['/', '\\']).map(|one| one.split(';').next());
        if segments.any(|one| matches!(one, Some("." | ".."))) {
            return Err("a segment of its path is \".\" or \"..\"".to_owned());
        }
        let decoded = percent_decode_str(&path).decode_utf8_lossy().into_owned();
        if decoded == path {
            return Ok(());
        }
        path = decoded;
    }
    Err("its path is percent-encoded too often".to_owned())
}

/// Returns a name as services compare it: some take `_` for `-`.
pub(crate) fn folded(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// Returns whether a header, by its folded name, is no argument: those of the connection, of credentials, and those by
/// which some services take another method or path.
pub(crate) fn is_reserved_header(name: &str) -> bool {
    let begins = |start| name.starts_with(start);
    ["proxy-", "x-forwarded-", "x-http-method"]
        .into_iter()
        .any(begins)
        || matches!(
            name,
            "accept"
                | "authorization"
                | "connection"
                | "content-length"
                | "content-type"
                | "cookie"
                | "expect"
                | "forwarded"
                | "host"
                | "keep-alive"
                | "te"
                | "trailer"
                | "transfer-encoding"
                | "upgrade"
                | "x-method-override"
                | "x-original-url"
                | "x-rewrite-url"
        )
}

/// Returns whether a text is a name of a header.
pub(crate) fn is_token(text: &str) -> bool {
    let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_of_token)
}

/// Returns whether a text can be the value of a header.
pub(crate) fn is_header_value(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}
