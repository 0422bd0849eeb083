//! Statements in SQL judged against rules: parsed, checked against allow-lists, and written anew.
//! Only the text written anew is meant for a database. Nothing is read or written, but for
//! `/proc/self/maps`, where the C library finds the stack for PostgreSQL's parser; without it that
//! parser takes less depth. A stack of 2 MiB is enough.
//!
//! A session that runs such a text has `search_path` set to `pg_catalog` alone (PostgreSQL), and
//! limits on time and memory, which nothing here bounds.

mod functions;
mod names;
mod postgres;
mod sqlite;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use names::{shown, table_names};
use serde::{Deserialize, Serialize};

/// The longest statement, bytes.
const STATEMENT_BYTES_MAX: usize = 64 << 10;

/// The most tables that one statement reads.
const TABLES_MAX: usize = 64;

/// The system whose SQL is judged.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// SQLite.
    Sqlite,
}

/// The class of a statement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Reads rows.
    Select,
    /// Adds rows.
    Insert,
    /// Changes rows.
    Update,
    /// Removes rows.
    Delete,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 4] = [Self::Select, Self::Insert, Self::Update, Self::Delete];

    /// Returns its name, in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Select => "select",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    /// Returns the class of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

/// Rights in one table. Only a table with neither columns nor a filter can be written to.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Table {
    /// The columns that can be read; without them all. In PostgreSQL `t.f` also calls a function `f`
    /// of a row: that is ruled out only for relations without a table that has no columns here.
    pub columns: Option<Vec<String>>,
    /// A condition that holds for every row that can be read.
    pub filter: Option<String>,
}

impl Table {
    fn is_restricted(&self) -> bool {
        self.columns.is_some() || self.filter.is_some()
    }
}

/// Rules for statements.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Rules {
    /// The system that they are for.
    pub dialect: Dialect,
    /// The classes that are allowed. Reading a table within a statement of another class needs
    /// [`Class::Select`] as well.
    pub classes: BTreeSet<Class>,
    /// The tables, by `schema.table`; for SQLite by `table`.
    pub tables: BTreeMap<String, Table>,
    /// Functions besides the built-in list: a name in lower case, for PostgreSQL one of
    /// `pg_catalog`, or `schema.name`.
    pub functions: BTreeSet<String>,
}

/// A statement that the rules allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Its text, written anew.
    pub text: String,
    /// Its class.
    pub class: Class,
    /// False if it has no rows as its result.
    pub returns_rows: bool,
}

impl Rules {
    /// Checks the rules themselves.
    ///
    /// # Errors
    /// Describes what is wrong with one.
    pub fn check(&self) -> Result<(), String> {
        if self.tables.is_empty() || self.classes.is_empty() {
            return Err("rules for SQL need at least one table and one class".to_owned());
        }
        for key in self.tables.keys() {
            names::check_key(self.dialect, key)?;
            let same = |other: &&String| other.eq_ignore_ascii_case(key);
            if self.dialect == Dialect::Sqlite && self.tables.keys().filter(same).count() > 1 {
                return Err(format!("table {} is there twice", shown(key)));
            }
        }
        for (key, table) in &self.tables {
            self.check_table(key, table)
                .map_err(|error| format!("table {}: {error}", shown(key)))?;
        }
        for function in &self.functions {
            names::check_function(self.dialect, function)?;
        }
        Ok(())
    }

    fn check_table(&self, key: &str, table: &Table) -> Result<(), String> {
        if let Some(columns) = &table.columns {
            if columns.is_empty() {
                return Err("no column is allowed".to_owned());
            }
            for (at, column) in columns.iter().enumerate() {
                names::check_column(self.dialect, column)?;
                if columns.iter().skip(at + 1).any(|other| other == column) {
                    return Err(format!("column {} is there twice", shown(column)));
                }
            }
        }
        self.filter_columns(key, table).map(|_| ())
    }

    /// Returns the columns that a table's filter reads.
    fn filter_columns(&self, key: &str, table: &Table) -> Result<BTreeSet<String>, String> {
        let Some(filter) = &table.filter else {
            return Ok(BTreeSet::new());
        };
        let (_, name) = table_names(key);
        match self.dialect {
            Dialect::Postgres => postgres::filter(self, name, filter).map(|(_, columns)| columns),
            Dialect::Sqlite => sqlite::filter(self, name, filter).map(|_| BTreeSet::new()),
        }
        .map_err(|error| format!("the filter is invalid: {error}"))
    }

    /// Judges a statement, and writes it anew.
    ///
    /// # Errors
    /// Describes in a sentence what is not allowed, and what is.
    pub fn judge(&self, statement: &str) -> Result<Judged, String> {
        self.check()
            .map_err(|error| format!("the rules are invalid: {error}"))?;
        if statement.len() > STATEMENT_BYTES_MAX {
            return Err(format!(
                "the statement is longer than {STATEMENT_BYTES_MAX} bytes"
            ));
        }
        match self.dialect {
            Dialect::Postgres => postgres::judge(self, statement),
            Dialect::Sqlite => sqlite::judge(self, statement),
        }
        .map_err(|error| names::line(&error))
    }

    /// Returns the statements that give a role of PostgreSQL the rights that allowed statements
    /// need, and no others; none for SQLite. Filters need their columns, and finding rows to change
    /// or remove needs reading them.
    #[must_use]
    pub fn grants(&self, role: &str) -> Vec<String> {
        if self.dialect == Dialect::Sqlite || self.check().is_err() {
            return Vec::new();
        }
        let role = names::quoted(role);
        let mut schemas = BTreeSet::new();
        let mut grants = Vec::new();
        for (key, table) in &self.tables {
            let (schema, name) = table_names(key);
            let at = format!("{}.{}", names::quoted(schema), names::quoted(name));
            let mut rights: Vec<String> = Vec::new();
            for class in Class::ALL {
                let is_read = class == Class::Select && self.reads(table);
                let is_written = class != Class::Select && !table.is_restricted();
                if is_read || (is_written && self.classes.contains(&class)) {
                    let right = class.name().to_ascii_uppercase();
                    rights.push(match (&table.columns, class) {
                        (Some(columns), Class::Select) => {
                            format!("{right} ({})", self.granted(key, table, columns))
                        }
                        _ => right,
                    });
                }
            }
            if !rights.is_empty() {
                schemas.insert(schema);
                grants.push(format!("GRANT {} ON {at} TO {role}", rights.join(", ")));
            }
        }
        let usage = |schema| format!("GRANT USAGE ON SCHEMA {} TO {role}", names::quoted(schema));
        schemas.into_iter().map(usage).chain(grants).collect()
    }

    fn reads(&self, table: &Table) -> bool {
        let has = |class| self.classes.contains(&class);
        let changes = has(Class::Update) || has(Class::Delete);
        has(Class::Select) || (changes && !table.is_restricted())
    }

    fn granted(&self, key: &str, table: &Table, columns: &[String]) -> String {
        let of_filter = self.filter_columns(key, table).unwrap_or_default();
        let more = of_filter.iter().filter(|one| !columns.contains(one));
        let all: Vec<String> = columns
            .iter()
            .chain(more)
            .map(|one| names::quoted(one))
            .collect();
        all.join(", ")
    }

    fn check_class(&self, class: Class) -> Result<(), String> {
        match self.classes.contains(&class) {
            true => Ok(()),
            false => {
                let allowed: Vec<&str> = self.classes.iter().map(|class| class.name()).collect();
                let allowed = allowed.join(", ");
                Err(format!(
                    "{} is not allowed; allowed: {allowed}",
                    class.name()
                ))
            }
        }
    }

    /// Returns a table that a statement names: its schema, name and rights.
    fn table(&self, schema: &str, name: &str) -> Result<(&str, &str, &Table), String> {
        let is_same = |left: &str, right: &str| match self.dialect {
            Dialect::Postgres => left == right,
            Dialect::Sqlite => left.eq_ignore_ascii_case(right),
        };
        let mut found = self.tables.iter().filter_map(|(key, table)| {
            let (own_schema, own_name) = table_names(key);
            let is_found =
                is_same(own_name, name) && (schema.is_empty() || is_same(own_schema, schema));
            is_found.then_some((own_schema, own_name, table))
        });
        let (first, second) = (found.next(), found.next());
        match (first, second) {
            (Some(one), None) => Ok(one),
            (Some(_), Some(_)) => Err(format!(
                "table {} is in several schemas: write schema.table",
                shown(name)
            )),
            (None, _) => {
                let dot = if schema.is_empty() { "" } else { "." };
                Err(format!(
                    "table {} is not allowed; allowed: {}",
                    shown(&format!("{schema}{dot}{name}")),
                    names::listed(self.tables.keys())
                ))
            }
        }
    }

    /// Returns the table that a statement writes to.
    fn table_to_write(&self, schema: &str, name: &str) -> Result<(&str, &str), String> {
        let (schema, name, table) = self.table(schema, name)?;
        match table.is_restricted() {
            false => Ok((schema, name)),
            true => {
                let open = self.tables.iter().filter(|(_, one)| !one.is_restricted());
                Err(format!(
                    "table {} can only be read; tables to write to: {}",
                    shown(name),
                    names::listed(open.map(|(key, _)| key))
                ))
            }
        }
    }

    /// Refuses a name of a common table expression that could be taken for something else.
    fn check_cte<'a>(
        &self,
        name: &str,
        mut others: impl Iterator<Item = &'a str>,
    ) -> Result<(), String> {
        let lower = name.to_ascii_lowercase();
        let is_taken = self
            .tables
            .keys()
            .any(|key| table_names(key).1.eq_ignore_ascii_case(name))
            || others.any(|other| other.eq_ignore_ascii_case(name))
            || ["pg_", "sqlite_"]
                .iter()
                .any(|start| lower.starts_with(start));
        match is_taken {
            false => Ok(()),
            true => Err(format!(
                "WITH names {}, which is the name of something else: choose another name",
                shown(name)
            )),
        }
    }
}
