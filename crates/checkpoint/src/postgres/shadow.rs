//! Shadow runs of a statement: it runs on a copy of the database, whose triggers note each row that
//! changes. The rows are then changed in the database itself, in one transaction, each only where it is
//! still as it was in the copy.
//!
//! The scripts that run on the server are in `shadow/`. Statements and rows are handed over as hexadecimal
//! digits: no lexer on the way reads them.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ARCHIVE;
use super::client::{Client, identifier};
use super::properties::Properties;
use crate::program::failure;
use crate::{Database, Error, Limits};

const PREPARE: &str = include_str!("shadow/prepare.sql");
const COLLECT: &str = include_str!("shadow/collect.sql");
const ELIGIBLE: &str = include_str!("shadow/eligible.sql");
const APPLY: &str = include_str!("shadow/apply.sql");
/// The most rows that a statement may change, and the most bytes of them.
const ROWS_MAX: u32 = 10_000;
const BYTES_MAX: u32 = 16 << 20;
/// The words before a reason of the scripts.
const OWN: &str = "atoll: ";
/// The settings by which rows are written as text, and compared.
const AS_TEXT: &str = "SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL intervalstyle = 'postgres';\n\
    SET LOCAL timezone = 'UTC'; SET LOCAL extra_float_digits = 1;\n\
    SET LOCAL bytea_output = 'hex'; SET LOCAL lc_monetary = 'C';\n";
const COMMITTING: &str = "atoll committing";
const COMMITTED: &str = "atoll committed";

/// A statement to run on a copy.
#[derive(Clone, Copy, Debug)]
pub struct Statement<'a> {
    /// The statement, with names in full.
    pub text: &'a str,
    /// True if it returns rows.
    pub returns_rows: bool,
    /// The role whose rights it has.
    pub role: &'a str,
    /// The time that it may take.
    pub timeout: Duration,
}

/// The rows that a statement changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowChanges {
    /// The changes, in the order in which they are made.
    pub changes: Vec<RowChange>,
    /// The number of rows that the statement itself is about.
    pub count: u64,
    /// The rows that the statement returned, each as JSON.
    pub given: Vec<String>,
}

/// The change of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowChange {
    /// The table, with its schema.
    pub table: String,
    /// The operation on the row.
    pub op: RowOperation,
    /// The row before, as PostgreSQL writes it.
    pub old: Option<String>,
    /// The row after.
    pub new: Option<String>,
}

/// An operation on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowOperation {
    /// A new row.
    Insert,
    /// Another content.
    Update,
    /// No row any more.
    Delete,
}

/// Runs a statement on a copy of the database, named by `id`, and returns what it changed there. The
/// copy is removed. Where it has to be read from an archive, that is in the directory meanwhile.
///
/// # Errors
/// When there can be no copy, the statement fails, or rows do not tell all of its effect.
pub fn shadow(
    database: &Database,
    statement: Statement<'_>,
    id: &str,
    directory: &Path,
) -> Result<RowChanges, Error> {
    if !crate::is_id(id) {
        return Err(Error::Id(id.to_owned()));
    }
    let limits = Limits::default();
    let client = Client::new(database, limits.wait);
    let copy = format!("atoll_shadow_{}", id.replace('-', "_"));
    let made = make(&client, database, &copy, directory, &limits);
    let ran = made.and_then(|()| run(&client, &copy, statement));
    let dropped = client.drop_database(&copy);
    let changes = ran?;
    dropped?;
    Ok(changes)
}

/// Makes the copy: on the server itself where nobody is connected, else by an archive.
fn make(
    client: &Client<'_>,
    database: &Database,
    copy: &str,
    directory: &Path,
    limits: &Limits,
) -> Result<(), Error> {
    let name = &database.database;
    let properties = Properties::read(client, name)?;
    let is_copied = client.free(name, limits.end_connections)? == 0
        && match client.copy(name, copy, &properties) {
            Ok(()) => true,
            Err(refused) if refused.is_about_use_or_rights() => false,
            Err(refused) => return Err(refused.into()),
        };
    if !is_copied {
        let archive = directory.join(ARCHIVE);
        client.create_empty(copy, &properties)?;
        client.dump(name, &archive)?;
        let filled = client.fill(copy, &archive);
        let _ = std::fs::remove_file(&archive);
        filled?;
    }
    properties.apply(client, copy)
}

fn run(client: &Client<'_>, copy: &str, statement: Statement<'_>) -> Result<RowChanges, Error> {
    let text = match statement.returns_rows {
        true => format!(
            "WITH q AS ({}) INSERT INTO atoll_shadow.given (row) SELECT \
             pg_catalog.to_json(q)::pg_catalog.text FROM q",
            statement.text
        ),
        false => statement.text.to_owned(),
    };
    let (text, role) = (hexed(text.as_bytes()), identifier(statement.role));
    let timeout = statement.timeout.as_millis();
    let collect = COLLECT
        .replace("{eligible}", ELIGIBLE)
        .replace("{rows}", &ROWS_MAX.to_string())
        .replace("{bytes}", &BYTES_MAX.to_string());
    let script = format!(
        "{PREPARE}\nBEGIN; SET LOCAL search_path = pg_catalog; \
         SET LOCAL statement_timeout = {timeout}; SET LOCAL ROLE {role};\n\
         DO $atoll$ DECLARE met bigint; BEGIN\n\
         EXECUTE convert_from(decode('{text}', 'hex'), 'UTF8'); GET DIAGNOSTICS met = ROW_COUNT;\n\
         INSERT INTO atoll_shadow.met VALUES (met); END $atoll$;\n\
         COMMIT;\nSET search_path = pg_catalog;\n{collect}"
    );
    let (printed, refused) = client.script(copy, script.as_bytes())?;
    if let Some(message) = refused {
        return Err(told(&message));
    }
    let unread = |why: &str| failure("psql", &format!("what it printed cannot be read: {why}"));
    let text = unhexed(printed.trim()).ok_or_else(|| unread("it is no text"))?;
    let changes = serde_json::from_slice(&text);
    let mut changes: RowChanges = changes.map_err(|error| unread(&error.to_string()))?;
    // What a removal entails is noted after it, and has to be done before it.
    if changes
        .changes
        .iter()
        .any(|one| one.op == RowOperation::Delete)
    {
        changes.changes.reverse();
    }
    Ok(changes)
}

/// Changes rows in the database, all of them or none.
///
/// # Errors
/// [`Error::Unmatched`] where nothing was changed since something is not as it was in the copy;
/// [`Error::Undetermined`] where the connection was lost at the end.
pub fn apply(database: &Database, changes: &[RowChange], timeout: Duration) -> Result<(), Error> {
    let client = Client::new(database, Limits::default().wait);
    let text = serde_json::to_vec(changes);
    let text = text.map_err(|error| failure("psql", &error.to_string()))?;
    let apply = APPLY
        .replace("{eligible}", ELIGIBLE)
        .replace("{changes}", &hexed(&text));
    let (timeout, wait) = (timeout.as_millis(), Limits::default().wait.as_millis());
    let script = format!(
        "BEGIN; SET LOCAL search_path = pg_catalog; SET LOCAL statement_timeout = {timeout}; \
         SET LOCAL lock_timeout = {wait};\n{AS_TEXT}{apply}\nSELECT '{COMMITTING}';\nCOMMIT;\n\
         SELECT '{COMMITTED}';\n"
    );
    let (printed, refused) = client.script(&database.database, script.as_bytes())?;
    let has = |text: &str| printed.lines().any(|line| line == text);
    match refused {
        None if has(COMMITTED) => Ok(()),
        // A check at the end of the transaction undoes it, and the server says so.
        Some(message) if !has(COMMITTING) || message.contains("ERROR:") => Err(told(&message)),
        refused => Err(Error::Undetermined(refused.unwrap_or_default())),
    }
}

/// Returns the error that a message means.
fn told(message: &str) -> Error {
    let own = message
        .split_once(OWN)
        .and_then(|(_, rest)| rest.lines().next());
    match own {
        Some(why) => Error::Unmatched(why.trim().to_owned()),
        None => failure("psql", message),
    }
}

fn unhexed(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect()
}

/// Writes bytes as hexadecimal digits.
fn hexed(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests;
