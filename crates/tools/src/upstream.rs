//! Upstreams: MCP servers, whose tools are offered once a person has approved them as they are,
//! services over HTTP, and databases. Each has a sandbox of its own, and what it says is parsed by a
//! process without rights.

mod asks;
pub(crate) mod calls;
pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod frames;
pub(crate) mod pins;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_model::{Shadow, TOOL_NAME_BYTES_MAX, ToolEffect};
use atoll_policy::Requested;
use hyper::header::HeaderName;
use serde::Deserialize;

use crate::database::{self, Database};
use crate::filter::{Filter, Pii};
use crate::limits::{self, Bounds};
use crate::openapi::checked_base;
use crate::schema::Schema;
use crate::scope::Scopes;
use crate::way_back::{Inverse, WayBack};
use crate::written::{WrittenShadow, effect, on, requested, result_bytes, shadow, timeout};

/// The longest name of an upstream, bytes.
const NAME_BYTES_MAX: usize = 24;
/// The text between the name of an upstream and that of its tool.
pub(crate) const BETWEEN: &str = "__";
/// The name with which those of Atoll's own tools begin.
const OWN: &str = "atoll";

/// An upstream.
#[derive(Debug)]
pub struct Upstream {
    /// Its name, with which those of its tools begin.
    pub name: String,
    /// The way that it is reached.
    pub(crate) way: Way,
    /// The boundary of its sandbox.
    pub requested: Requested,
    /// The time that a call may take.
    pub timeout: Duration,
    /// The size of a result that is given to the caller, bytes.
    pub result_bytes: usize,
    /// The worst that a tool of it does of which nothing else is said, if anything is said.
    effect: Option<ToolEffect>,
    /// The runs on a copy that come before the effect of each call of which nothing else is said.
    shadow: Option<Shadow>,
    /// The treatment of personal data of which nothing else is said.
    pii: Pii,
    /// The headers of every request, in whose values `{NAME}` is a variable of its sandbox.
    pub(crate) headers: BTreeMap<String, String>,
    /// The words about it, for those who call it.
    pub(crate) description: Option<String>,
    /// The names of the tools of it that are offered; all if `None`.
    pub(crate) only: Option<BTreeSet<String>>,
    /// Those callers of a server who are shown its tools, as for a [`Tool`](crate::Tool).
    pub callers: Option<Vec<String>>,
    /// True if its tools can be called.
    pub enabled: bool,
    /// True if the names of its tools begin with its own.
    pub(crate) prefix: bool,
    /// The limits of the calls of all its tools.
    pub(crate) bounds: Bounds,
    /// The file that describes it.
    pub file: String,
    /// The words about single tools.
    tools: BTreeMap<String, OfTool>,
}

/// The way that an upstream is reached.
#[derive(Debug)]
pub(crate) enum Way {
    /// A program that speaks MCP on its standard input and output, and its arguments.
    Program(Vec<OsString>),
    /// MCP over HTTP, at this address.
    Http(String),
    /// HTTP, by a document of OpenAPI.
    OpenApi(Service),
    /// SQL.
    Database(Box<Database>),
}

/// A service over HTTP.
#[derive(Debug)]
pub(crate) struct Service {
    /// The file of its document.
    pub(crate) document: PathBuf,
    /// The address that its paths are below; `None` for that of the document.
    pub(crate) url: Option<String>,
    /// The address of a copy of the service, where requests of shadow runs go first.
    pub(crate) staging: Option<String>,
}

/// The words about a tool of an upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OfTool {
    effect: Option<String>,
    idempotent: bool,
    checkpoint: Vec<String>,
    inverse: Option<Inverse>,
    shadow: Option<WrittenShadow>,
    enabled: Option<bool>,
    paths: BTreeMap<String, String>,
    urls: BTreeMap<String, Vec<String>>,
    hide: Vec<String>,
    pii: Option<Pii>,
}

/// An upstream as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Written {
    description: Option<String>,
    #[serde(default)]
    command: Vec<String>,
    url: Option<String>,
    openapi: Option<PathBuf>,
    staging: Option<String>,
    shadow: Option<WrittenShadow>,
    database: Option<database::Written>,
    only: Option<BTreeSet<String>>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    effect: Option<String>,
    timeout: Option<String>,
    result_bytes: Option<String>,
    profile: Option<String>,
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    limits: BTreeMap<String, String>,
    #[serde(default)]
    inputs: BTreeMap<String, String>,
    callers: Option<Vec<String>>,
    #[serde(default = "on")]
    enabled: bool,
    #[serde(default = "on")]
    prefix: bool,
    #[serde(default)]
    calls: limits::Written,
    #[serde(default)]
    pii: Pii,
    #[serde(default)]
    tools: BTreeMap<String, OfTool>,
}

impl Written {
    /// Reads an upstream, with the first thing that is wrong with it.
    pub(crate) fn read(self, name: &str, file: &str) -> Result<Upstream, String> {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_of_name) {
            return Err(format!(
                "{name:?} is no name of an upstream: letters, digits and -, at most {NAME_BYTES_MAX}"
            ));
        }
        if name.eq_ignore_ascii_case(OWN) {
            return Err(format!("{OWN} is the name of Atoll's own tools"));
        }
        for (name, of) in &self.tools {
            let read = of.effect.as_deref().map(effect).transpose();
            read.map_err(|why| format!("tools.{name}: {why}"))?;
            let read = shadow(of.shadow.as_ref());
            read.map_err(|why| format!("tools.{name}: {why}"))?;
        }
        if let (Some(_), None) = (&self.staging, &self.openapi) {
            return Err("staging: it is for openapi".to_owned());
        }
        let requested = requested(
            self.profile.as_deref(),
            &self.allow,
            &self.environment,
            &self.limits,
            &self.inputs,
        );
        let timeout = timeout(self.timeout.as_deref())?;
        let result_bytes = result_bytes(self.result_bytes.as_deref())?;
        let ways = (&*self.command, self.url, self.openapi, self.database);
        let way = match ways {
            ([program, ..], None, None, None) if !program.is_empty() => {
                Way::Program(self.command.iter().map(OsString::from).collect())
            }
            ([], Some(url), None, None) => Way::Http(checked_base(&url)?.to_owned()),
            ([], url, Some(document), None) => Way::OpenApi(Service {
                document: Path::new(file).with_file_name("").join(document),
                url,
                staging: self.staging,
            }),
            ([], None, None, Some(written)) => {
                let read = written.read(result_bytes, timeout);
                Way::Database(Box::new(read.map_err(|why| format!("database: {why}"))?))
            }
            _ => {
                let why = "it is reached by one of command, url, openapi (with url), and database";
                return Err(why.to_owned());
            }
        };
        Ok(Upstream {
            name: name.to_owned(),
            headers: checked(self.headers, &way)?,
            way,
            description: self.description,
            only: self.only,
            requested: requested?,
            timeout,
            result_bytes,
            effect: self.effect.as_deref().map(effect).transpose()?,
            shadow: shadow(self.shadow.as_ref())?,
            pii: self.pii,
            callers: self.callers,
            enabled: self.enabled,
            prefix: self.prefix,
            bounds: self.calls.read().map_err(|why| format!("calls: {why}"))?,
            file: file.to_owned(),
            tools: self.tools,
        })
    }
}

/// Checks the headers of requests.
fn checked(
    headers: BTreeMap<String, String>,
    way: &Way,
) -> Result<BTreeMap<String, String>, String> {
    let has_none = matches!(way, Way::Program(_) | Way::Database(_));
    if has_none && !headers.is_empty() {
        return Err("headers: they are for url and openapi".to_owned());
    }
    let is_bad = |name: &&String| HeaderName::from_bytes(name.as_bytes()).is_err();
    match headers.keys().find(is_bad) {
        Some(name) => Err(format!("headers: {name:?} is no name of one")),
        None => Ok(headers),
    }
}

impl Upstream {
    /// Returns what tells it from one that was described otherwise before.
    #[must_use]
    pub fn place(&self) -> String {
        let Self {
            name,
            way,
            headers,
            requested,
            ..
        } = self;
        format!("{name} {way:?} {headers:?} {requested:?}")
    }

    /// Returns the key of its sandbox in a session: no other upstream, and no tool, has one like this.
    #[must_use]
    pub fn sandbox_key(&self) -> String {
        format!("upstream {}", self.place())
    }

    /// Returns the name by which something of it is known to callers.
    pub(crate) fn shown(&self, name: &str) -> String {
        match self.prefix {
            true => format!("{}{BETWEEN}{name}", self.name),
            false => name.to_owned(),
        }
    }

    /// Returns the name by which a tool of it is called; `None` if it has none that clients take, or
    /// one without its own before it that could be another upstream's.
    pub(crate) fn name_of(&self, tool: &str) -> Option<String> {
        let name = self.shown(tool);
        let is_own = self.prefix || !tool.contains(BETWEEN);
        (is_own && name.len() <= TOOL_NAME_BYTES_MAX).then_some(name)
    }

    /// Returns the worst that a tool of it does, of which nothing but this is known.
    pub(crate) fn effect_of(&self, tool: &str, known: ToolEffect) -> ToolEffect {
        let of = self.tools.get(tool).and_then(|of| of.effect.as_deref());
        let of = of.and_then(ToolEffect::named).or(self.effect);
        of.unwrap_or(known)
    }

    /// Returns whether two calls of a tool of it do no more than one.
    pub(crate) fn is_idempotent(&self, tool: &str) -> bool {
        self.tools.get(tool).is_some_and(|of| of.idempotent)
    }

    /// Returns the way back of the calls of a tool of it. An inverse can be named as it is there.
    pub(crate) fn way_back_of(&self, tool: &str) -> Result<WayBack, String> {
        let of = self.tools.get(tool).cloned().unwrap_or_default();
        let inverse = of.inverse.map(|inverse| Inverse {
            tool: match inverse.tool.contains(BETWEEN) {
                true => inverse.tool,
                false => self.shown(&inverse.tool),
            },
            ..inverse
        });
        WayBack::read(&of.checkpoint, inverse)
    }

    /// Returns the runs on a copy that come before the effect of a tool of it.
    ///
    /// # Errors
    /// When there is nothing to copy.
    pub(crate) fn shadow_of(&self, tool: &str) -> Result<Option<Shadow>, String> {
        let of = self.tools.get(tool).and_then(|of| of.shadow.as_ref());
        let wanted = match of {
            Some(of) => shadow(Some(of))?,
            None => self.shadow,
        };
        let lacks = match &self.way {
            Way::Program(_) | Way::Http(_) => Some("an MCP server has no copy of what it changes"),
            Way::OpenApi(service) if service.staging.is_none() => {
                Some("staging: its address is missing")
            }
            Way::Database(database) if !database.is_file() && database.copied().is_none() => {
                Some("database: copy: it is missing")
            }
            Way::OpenApi(_) | Way::Database(_) => None,
        };
        match lacks.filter(|_| wanted.is_some()) {
            Some(why) => Err(format!("shadow: {why}")),
            None => Ok(wanted),
        }
    }

    /// Returns the database that it is, if it is one.
    pub(crate) fn database(&self) -> Option<&Database> {
        match &self.way {
            Way::Database(database) => Some(database),
            Way::Program(_) | Way::Http(_) | Way::OpenApi(_) => None,
        }
    }

    /// Returns the address of the copy of a service.
    pub(crate) fn staging(&self) -> Option<&str> {
        match &self.way {
            Way::OpenApi(service) => service.staging.as_deref(),
            Way::Program(_) | Way::Http(_) | Way::Database(_) => None,
        }
    }

    /// Returns whether a tool of it can be called.
    pub(crate) fn is_on(&self, tool: &str) -> bool {
        let of = self.tools.get(tool).and_then(|of| of.enabled);
        let is_offered = self.only.as_ref().is_none_or(|only| only.contains(tool));
        self.enabled && is_offered && of.unwrap_or(true)
    }

    /// Returns the scopes of the arguments of a tool of it.
    pub(crate) fn scopes_of(&self, tool: &str, arguments: &Schema) -> Result<Scopes, String> {
        match self.tools.get(tool) {
            Some(of) => Scopes::read(&of.paths, &of.urls, arguments),
            None => Ok(Scopes::default()),
        }
    }

    /// Returns the parts of the results of a tool of it that its caller is not given.
    pub(crate) fn filter_of(&self, tool: &str) -> Result<Filter, String> {
        let of = self.tools.get(tool);
        let pii = of.and_then(|of| of.pii).unwrap_or(self.pii);
        Filter::read(of.map_or(&[][..], |of| of.hide.as_slice()), pii)
    }

    /// Returns the names of the tools that it says something of.
    pub(crate) fn named(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    /// Returns the words by which a person has approved it: its program, or its address.
    pub(crate) fn words(&self) -> Vec<String> {
        match &self.way {
            Way::Program(command) => {
                let words = command.iter();
                words
                    .map(|word| word.to_string_lossy().into_owned())
                    .collect()
            }
            Way::Http(url) => vec![url.clone()],
            Way::OpenApi(_) | Way::Database(_) => Vec::new(),
        }
    }

    /// Returns the program that it is, if it is one.
    pub(crate) fn program(&self) -> Vec<OsString> {
        match &self.way {
            Way::Program(command) => command.clone(),
            Way::Database(database) => database.program(),
            Way::Http(_) | Way::OpenApi(_) => Vec::new(),
        }
    }

    /// Returns the file that its tools are described in, if it is one of its own.
    pub(crate) fn document(&self) -> Option<&Path> {
        match &self.way {
            Way::OpenApi(service) => Some(&service.document),
            Way::Program(_) | Way::Http(_) | Way::Database(_) => None,
        }
    }
}
