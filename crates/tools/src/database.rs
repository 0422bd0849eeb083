//! Databases as upstreams: their places, and the rules of statements on them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::time::Duration;

use atoll_checkpoint::{Error, RowChanges, Target};
use atoll_model::ToolEffect;
use atoll_sql::{Class, Dialect, Rules, Table};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The name of the tool of a database, after that of its upstream.
pub(crate) const TOOL: &str = "query";
/// The most rows of a result, where nothing is said, and that can be said.
const ROWS: u32 = 1_000;
const ROWS_MAX: u32 = 100_000;
/// The program of a SQLite database: it reads statements, and writes rows, a line of JSON each.
const SQLITE: &str = include_str!("database/sqlite.py");

/// A database.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Database {
    /// The place.
    pub(crate) place: Place,
    /// The database as it is copied, and as rows are changed in it, for shadow runs: of no concern to
    /// the client process.
    #[serde(skip)]
    copy: Option<atoll_checkpoint::Database>,
    /// The rules of statements.
    pub(crate) rules: Rules,
    /// The most rows of a result.
    pub(crate) rows: u32,
    /// The most bytes of rows in a result.
    pub(crate) bytes: usize,
    /// The time that a statement may take.
    pub(crate) timeout: Duration,
}

/// The way in which a database is copied for a shadow run.
#[derive(Clone, Copy)]
pub(crate) struct Copied<'a> {
    /// The database, as who copies it reaches it.
    pub(crate) target: &'a atoll_checkpoint::Database,
    /// The role whose rights statements have.
    pub(crate) role: &'a str,
}

/// The place of a database.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Place {
    /// A PostgreSQL server. Egress signs in there.
    Postgres {
        host: String,
        port: u16,
        user: String,
        database: String,
    },
    /// A SQLite file in the sandbox.
    Sqlite { path: String },
}

/// A database as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Written {
    url: String,
    copy: Option<String>,
    #[serde(default = "select")]
    statements: Vec<String>,
    tables: BTreeMap<String, WrittenTable>,
    #[serde(default)]
    functions: BTreeSet<String>,
    #[serde(default = "rows")]
    rows: u32,
}

/// A table of it as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTable {
    columns: Option<Vec<String>>,
    filter: Option<String>,
}

fn select() -> Vec<String> {
    vec![Class::Select.name().to_owned()]
}

fn rows() -> u32 {
    ROWS
}

impl Written {
    /// Reads a database, with the first thing that is wrong with it.
    pub(crate) fn read(self, bytes: usize, timeout: Duration) -> Result<Database, String> {
        let place = Place::parse(&self.url).map_err(|why| format!("url: {why}"))?;
        let copy = self.copy.as_deref().map(|text| copy(text, &place));
        let copy = copy.transpose().map_err(|why| format!("copy: {why}"))?;
        let class = |name: &String| {
            let classes = Class::ALL.map(Class::name).join(", ");
            Class::named(name).ok_or_else(|| format!("statements: {name:?} is none of {classes}"))
        };
        let table = |(name, written): (String, WrittenTable)| {
            let WrittenTable { columns, filter } = written;
            (name, Table { columns, filter })
        };
        let rules = Rules {
            dialect: match place {
                Place::Postgres { .. } => Dialect::Postgres,
                Place::Sqlite { .. } => Dialect::Sqlite,
            },
            classes: self
                .statements
                .iter()
                .map(class)
                .collect::<Result<_, _>>()?,
            tables: self.tables.into_iter().map(table).collect(),
            functions: self.functions,
        };
        rules.check()?;
        if !(1..=ROWS_MAX).contains(&self.rows) {
            return Err(format!("rows: more than none, and {ROWS_MAX} at most"));
        }
        Ok(Database {
            place,
            copy,
            rules,
            rows: self.rows,
            bytes,
            timeout,
        })
    }
}

/// Reads the database as it is copied: the same one, by a role that may copy it.
fn copy(text: &str, place: &Place) -> Result<atoll_checkpoint::Database, String> {
    let target: Target = text.parse().map_err(|error: Error| error.to_string())?;
    match (target, place) {
        (Target::Postgres(target), Place::Postgres { database, .. })
            if target.database == *database =>
        {
            Ok(target)
        }
        (Target::Postgres(_), Place::Postgres { database, .. }) => {
            Err(format!("it is another database than {database}"))
        }
        _ => Err("postgres://USER@HOST:PORT/NAME, of a database that is PostgreSQL".to_owned()),
    }
}

impl Place {
    fn parse(url: &str) -> Result<Self, String> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            let path = path.to_owned();
            return match path.is_empty() {
                true => Err("sqlite:PATH, with the file's path in the sandbox".to_owned()),
                false => Ok(Self::Sqlite { path }),
            };
        }
        let wanted = || "postgresql://USER@HOST[:PORT]/DATABASE, or sqlite:PATH".to_owned();
        let rest = url.strip_prefix("postgresql://").ok_or_else(wanted)?;
        let (user, rest) = rest.split_once('@').ok_or_else(wanted)?;
        let (host, database) = rest.split_once('/').ok_or_else(wanted)?;
        let (host, port) = match host.rsplit_once(':') {
            None => (host, 5432),
            Some((host, port)) => (host, port.parse().map_err(|_| wanted())?),
        };
        let is_word = |text: &str, more: &str| {
            let is = |byte: char| byte.is_ascii_alphanumeric() || more.contains(byte);
            !text.is_empty() && text.chars().all(is)
        };
        if user.contains(':') {
            return Err("no password: a credential of its profile signs in".to_owned());
        }
        if !is_word(user, "_-.") || !is_word(database, "_-.") || !is_word(host, "-.") {
            return Err(wanted());
        }
        Ok(Self::Postgres {
            host: host.to_owned(),
            port,
            user: user.to_owned(),
            database: database.to_owned(),
        })
    }
}

impl Database {
    /// Returns the program that has it, if that is one of the sandbox.
    pub(crate) fn program(&self) -> Vec<OsString> {
        let Place::Sqlite { path } = &self.place else {
            return Vec::new();
        };
        // Filters are about columns that statements do not reach.
        let readable = |table: &Table| table.columns.clone().filter(|_| table.filter.is_none());
        let tables = self.rules.tables.iter();
        let tables: BTreeMap<&String, Option<Vec<String>>> = tables
            .map(|(name, table)| (name, readable(table)))
            .collect();
        let classes: Vec<&str> = self.rules.classes.iter().map(|one| one.name()).collect();
        let settings = json!({
            "path": path,
            "tables": tables,
            "classes": classes,
            "rows": self.rows,
            "bytes": self.bytes,
            "seconds": self.timeout.as_secs_f64(),
        });
        let words = ["python3", "-I", "-c", SQLITE];
        let settings = settings.to_string();
        words
            .into_iter()
            .chain([&*settings])
            .map(OsString::from)
            .collect()
    }

    /// Returns whether it is a file in the sandbox.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.place, Place::Sqlite { .. })
    }

    /// Returns how it is copied, if it can be.
    pub(crate) fn copied(&self) -> Option<Copied<'_>> {
        match (&self.copy, &self.place) {
            (Some(target), Place::Postgres { user, .. }) => Some(Copied { target, role: user }),
            _ => None,
        }
    }

    /// Makes the result of a statement that ran on a copy.
    pub(crate) fn result(&self, changed: &RowChanges) -> Value {
        let (mut rows, mut bytes, mut more) = (Vec::new(), 0, false);
        for row in &changed.given {
            bytes += row.len();
            more |= rows.len() == self.rows as usize || bytes > self.bytes;
            match crate::json::parse(row, row.len()) {
                Ok(row) if !more => rows.push(row),
                _ => more = true,
            }
        }
        json!({ "rows": rows, "more": more, "changed": changed.count })
    }

    /// Returns the worst that its statements do.
    pub(crate) fn effect(&self) -> ToolEffect {
        match self.rules.classes.iter().all(|one| *one == Class::Select) {
            true => ToolEffect::Read,
            false => ToolEffect::Write,
        }
    }

    /// Describes it to a model.
    pub(crate) fn description(&self) -> String {
        let classes: Vec<&str> = self.rules.classes.iter().map(|one| one.name()).collect();
        let dialect = match self.rules.dialect {
            Dialect::Postgres => "PostgreSQL",
            Dialect::Sqlite => "SQLite",
        };
        let table = |(name, table): (&String, &Table)| match &table.columns {
            None => name.clone(),
            Some(columns) => format!("{name} ({})", columns.join(", ")),
        };
        let tables: Vec<String> = self.rules.tables.iter().map(table).collect();
        format!(
            "Runs one SQL statement ({}) on a {dialect} database, of {} rows at most. Tables: {}.",
            classes.join(", "),
            self.rows,
            tables.join(", ")
        )
    }
}

/// Returns the schema of a statement's arguments.
pub(crate) fn arguments() -> Value {
    json!({
        "properties": { "statement": { "type": "string", "description": "The statement." } },
        "required": ["statement"],
    })
}

/// Returns the schema of a statement's result.
pub(crate) fn result() -> Value {
    json!({
        "type": "object",
        "properties": {
            "rows": { "type": "array", "items": { "type": "object" } },
            "more": { "type": "boolean", "description": "There are more rows." },
            "changed": { "type": "integer", "description": "The number of rows changed." },
        },
        "required": ["rows", "more"],
    })
}
