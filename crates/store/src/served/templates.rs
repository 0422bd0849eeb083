//! Templates that were built.

use rusqlite::{Row, params};

use super::{ServedError, ServedStore, settle, signed};

pub(super) const TABLES: &str = "
    CREATE TABLE templates (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL REFERENCES tenants (id),
        name TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        record TEXT NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX templates_of_tenant ON templates (tenant, name);
";

/// A template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTemplate {
    /// Its id.
    pub id: String,
    /// The tenant.
    pub tenant: String,
    /// The name that a caller gave it.
    pub name: String,
    /// The time at which it was made, milliseconds since 1970.
    pub created_ms: u64,
    /// All that sandboxes are made from it by: JSON.
    pub record: String,
}

/// The templates that were built.
pub trait TemplateStore {
    /// Writes down a template: on disk once this returns.
    ///
    /// # Errors
    /// [`ServedError`]; also where the tenant has another one of this name.
    fn keep_template(&self, one: &StoredTemplate) -> Result<(), ServedError>;

    /// Writes down a template that takes the name of another one of its tenant, in one step; that
    /// one is found by its id alone from then on.
    ///
    /// # Errors
    /// [`ServedError`].
    fn replace_template(&self, before: &str, one: &StoredTemplate) -> Result<(), ServedError>;

    /// Removes a template.
    ///
    /// # Errors
    /// [`ServedError`].
    fn remove_template(&self, id: &str) -> Result<(), ServedError>;

    /// Returns all templates, the latest first.
    ///
    /// # Errors
    /// [`ServedError`].
    fn templates(&self) -> Result<Vec<StoredTemplate>, ServedError>;
}

impl TemplateStore for ServedStore {
    fn keep_template(&self, one: &StoredTemplate) -> Result<(), ServedError> {
        let connection = self.connection();
        connection.execute(
            "INSERT INTO templates (id, tenant, name, created_ms, record)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                one.id,
                one.tenant,
                one.name,
                signed(one.created_ms),
                one.record
            ],
        )?;
        settle(&connection)
    }

    fn replace_template(&self, before: &str, one: &StoredTemplate) -> Result<(), ServedError> {
        let mut connection = self.connection();
        let change = connection.transaction()?;
        change.execute(
            "UPDATE templates SET name = name || '@' || id WHERE id = ?1",
            params![before],
        )?;
        change.execute(
            "INSERT INTO templates (id, tenant, name, created_ms, record)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                one.id,
                one.tenant,
                one.name,
                signed(one.created_ms),
                one.record
            ],
        )?;
        change.commit()?;
        settle(&connection)
    }

    fn remove_template(&self, id: &str) -> Result<(), ServedError> {
        let connection = self.connection();
        connection.execute("DELETE FROM templates WHERE id = ?1", params![id])?;
        settle(&connection)
    }

    fn templates(&self) -> Result<Vec<StoredTemplate>, ServedError> {
        let connection = self.connection();
        let mut find = connection.prepare_cached(
            "SELECT id, tenant, name, created_ms, record FROM templates
             ORDER BY created_ms DESC, id",
        )?;
        let read = |row: &Row<'_>| {
            Ok(StoredTemplate {
                id: row.get(0)?,
                tenant: row.get(1)?,
                name: row.get(2)?,
                created_ms: row.get::<_, i64>(3)?.cast_unsigned(),
                record: row.get(4)?,
            })
        };
        let found = find.query_map([], read)?;
        Ok(found.collect::<Result<_, _>>()?)
    }
}
