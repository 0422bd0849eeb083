//! Names in rules, in texts and in errors.

use crate::Dialect;

/// The longest name, bytes: PostgreSQL cuts longer ones.
const NAME_BYTES_MAX: usize = 63;

/// The schema of a table of SQLite.
pub const SQLITE_SCHEMA: &str = "main";

/// Columns of every table of PostgreSQL, for which no right is needed.
pub const SYSTEM_COLUMNS: &[&str] = &["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"];

/// Names of the key of every row of SQLite.
pub const ROW_IDS: &[&str] = &["rowid", "oid", "_rowid_"];

/// Returns a name for an error: escaped, and cut.
pub fn shown(name: &str) -> String {
    let end = name.floor_char_boundary(NAME_BYTES_MAX * 2);
    let is_plain = |one: char| one.is_alphanumeric() || "_.$".contains(one);
    match name.get(..end) {
        Some(start) if end == name.len() && name.chars().all(is_plain) => start.to_owned(),
        start => format!("{:?}", start.unwrap_or_default()),
    }
}

/// Returns an error as one line, and cut: a parser may repeat all that it was given.
pub fn line(error: &str) -> String {
    const SHOWN_BYTES: usize = 1000;
    let end = error.floor_char_boundary(SHOWN_BYTES);
    let start = error.get(..end).unwrap_or_default();
    start.replace(char::is_control, " ")
}

/// Returns names for an error, the first of them.
pub fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    const SHOWN: usize = 20;
    let all: Vec<&String> = names.collect();
    let first: Vec<String> = all.iter().take(SHOWN).map(|name| shown(name)).collect();
    match all.len() {
        0 => "none".to_owned(),
        count if count > SHOWN => format!("{} and {} more", first.join(", "), count - SHOWN),
        _ => first.join(", "),
    }
}

/// Returns the schema and the name of a table in rules.
pub fn table_names(key: &str) -> (&str, &str) {
    key.split_once('.').unwrap_or((SQLITE_SCHEMA, key))
}

/// Returns an identifier of PostgreSQL, quoted.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns whether a name can be written between any quotes.
pub fn is_name(name: &str) -> bool {
    let is_part = |one: char| one.is_alphanumeric() || "_$- ".contains(one);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_part)
}

/// Checks the name of a table in rules.
pub fn check_key(dialect: Dialect, key: &str) -> Result<(), String> {
    let (schema, name) = table_names(key);
    let lower = key.to_ascii_lowercase();
    match dialect {
        Dialect::Postgres if !key.contains('.') => Err(format!(
            "table {} needs its schema: schema.table",
            shown(key)
        )),
        Dialect::Sqlite if key.contains('.') => {
            Err(format!("table {} is written without a schema", shown(key)))
        }
        _ if !is_name(schema) || !is_name(name) => {
            Err(format!("{} is not the name of a table", shown(key)))
        }
        Dialect::Postgres if lower.starts_with("pg_") || schema == "information_schema" => {
            Err(format!("table {} is part of the catalog", shown(key)))
        }
        Dialect::Sqlite if lower.starts_with("sqlite_") => {
            Err(format!("table {} is part of the catalog", shown(key)))
        }
        _ => Ok(()),
    }
}

/// Checks the name of a column in rules.
pub fn check_column(dialect: Dialect, name: &str) -> Result<(), String> {
    let is_system = dialect == Dialect::Postgres && SYSTEM_COLUMNS.contains(&name);
    match is_name(name) && !is_system {
        true => Ok(()),
        false => Err(format!("{} is not the name of a column", shown(name))),
    }
}

/// Checks the name of a function in rules.
pub fn check_function(dialect: Dialect, name: &str) -> Result<(), String> {
    let is_plain = match (dialect, name.split_once('.')) {
        (Dialect::Postgres, Some((schema, name))) => is_name(schema) && is_name(name),
        (_, None) => is_name(name) && name.to_ascii_lowercase() == name,
        (Dialect::Sqlite, Some(_)) => false,
    };
    match is_plain {
        true => Ok(()),
        false => Err(format!("{} is not the name of a function", shown(name))),
    }
}
