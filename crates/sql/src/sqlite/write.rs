//! Statements that write.

use sqlparser::ast::{
    Assignment, AssignmentTarget, ConflictTarget, Delete, DoUpdate, FromTable, Insert, ObjectName,
    OnConflict, OnConflictAction, OnInsert, SelectItem, SqliteOnConflict, TableObject,
    TableWithJoins, Update, UpdateTableFromKind,
};

use super::{Walk, from, ident, only, refuse, single};
use crate::Class;

impl Walk<'_> {
    /// Checks the table that is written to.
    fn target(&self, name: &mut ObjectName) -> Result<(), String> {
        let (schema, table) = from::names(name)?;
        let (schema, table) = self.rules.table_to_write(&schema, &table)?;
        *name = from::full_name(schema, table)?;
        Ok(())
    }

    pub(super) fn insert(&mut self, insert: &mut Insert) -> Result<(), String> {
        let replaces = !matches!(
            insert.or,
            None | Some(SqliteOnConflict::Ignore | SqliteOnConflict::Abort)
        );
        only(
            "REPLACE, which removes rows,",
            replaces || insert.replace_into,
        )?;
        only("INSERT of this kind", is_foreign(insert))?;
        match &mut insert.table {
            TableObject::TableName(name) => self.target(name)?,
            _ => return refuse("INSERT into anything but a table"),
        }
        insert.columns.iter_mut().try_for_each(single)?;
        if let Some(source) = &mut insert.source {
            self.query(source)?;
        }
        match &mut insert.on {
            Some(OnInsert::OnConflict(conflict)) => self.on_conflict(conflict)?,
            Some(_) => return refuse("ON DUPLICATE KEY"),
            None => {}
        }
        self.returning(&mut insert.returning)
    }

    fn on_conflict(&mut self, conflict: &mut OnConflict) -> Result<(), String> {
        let OnConflict {
            conflict_target,
            action,
        } = conflict;
        match conflict_target {
            Some(ConflictTarget::Columns { columns, predicate }) => {
                columns.iter_mut().try_for_each(ident)?;
                self.all(predicate)?;
            }
            Some(ConflictTarget::OnConstraint(_)) => return refuse("ON CONSTRAINT"),
            None => {}
        }
        match action {
            OnConflictAction::DoNothing => Ok(()),
            OnConflictAction::DoUpdate(DoUpdate {
                assignments,
                selection,
            }) => {
                self.rules.check_class(Class::Update)?;
                self.assignments(assignments)?;
                self.all(selection)
            }
        }
    }

    fn assignments(&mut self, all: &mut [Assignment]) -> Result<(), String> {
        for Assignment { target, value } in all {
            match target {
                AssignmentTarget::ColumnName(name) => single(name)?,
                AssignmentTarget::Tuple(names) => names.iter_mut().try_for_each(single)?,
            }
            self.expr(value)?;
        }
        Ok(())
    }

    /// Checks the one table that UPDATE or DELETE is about.
    fn one_table(&self, table: &mut TableWithJoins) -> Result<(), String> {
        only("a join here", !table.joins.is_empty())?;
        let (name, _) = from::plain_table(&mut table.relation)?;
        self.target(name)
    }

    pub(super) fn update(&mut self, update: &mut Update) -> Result<(), String> {
        let Update {
            update_token: _,
            optimizer_hints,
            table,
            on_cluster,
            assignments,
            from,
            selection,
            returning,
            output,
            or,
            order_by,
            limit,
            settings,
        } = update;
        let is_foreign = !optimizer_hints.is_empty()
            || on_cluster.is_some()
            || output.is_some()
            || or.is_some()
            || !order_by.is_empty()
            || limit.is_some()
            || settings.is_some();
        only("UPDATE with OR, ORDER BY or LIMIT", is_foreign)?;
        self.one_table(table)?;
        self.assignments(assignments)?;
        match from {
            Some(UpdateTableFromKind::AfterSet(from)) => self.from(from)?,
            Some(UpdateTableFromKind::BeforeSet(_)) => return refuse("FROM before SET"),
            None => {}
        }
        self.all(selection)?;
        self.returning(returning)
    }

    pub(super) fn delete(&mut self, delete: &mut Delete) -> Result<(), String> {
        let Delete {
            delete_token: _,
            optimizer_hints,
            tables,
            from,
            on_cluster,
            using,
            selection,
            returning,
            output,
            order_by,
            limit,
            settings,
        } = delete;
        let is_foreign = !optimizer_hints.is_empty()
            || !tables.is_empty()
            || on_cluster.is_some()
            || using.is_some()
            || output.is_some()
            || !order_by.is_empty()
            || limit.is_some()
            || settings.is_some();
        only("DELETE with USING, ORDER BY or LIMIT", is_foreign)?;
        match from {
            FromTable::WithFromKeyword(tables) if tables.len() == 1 => tables
                .iter_mut()
                .try_for_each(|table| self.one_table(table))?,
            _ => return refuse("DELETE of anything but one table"),
        }
        self.all(selection)?;
        self.returning(returning)
    }

    fn returning(&mut self, items: &mut Option<Vec<SelectItem>>) -> Result<(), String> {
        items.as_mut().map_or(Ok(()), |items| self.items(items))
    }
}

/// Returns whether an INSERT has words that SQLite does not know.
fn is_foreign(insert: &Insert) -> bool {
    let Insert {
        insert_token: _,
        optimizer_hints,
        or: _,
        ignore,
        into,
        table: _,
        table_alias,
        columns: _,
        by_name,
        overwrite,
        source: _,
        assignments,
        partitioned,
        after_columns,
        overriding,
        has_table_keyword,
        on: _,
        returning: _,
        output,
        replace_into: _,
        priority,
        insert_alias,
        settings,
        format_clause,
        multi_table_insert_type,
        multi_table_into_clauses,
        multi_table_when_clauses,
        multi_table_else_clause,
    } = insert;
    !optimizer_hints.is_empty()
        || *ignore
        || !*into
        || table_alias.is_some()
        || *by_name
        || *overwrite
        || !assignments.is_empty()
        || partitioned.is_some()
        || !after_columns.is_empty()
        || overriding.is_some()
        || *has_table_keyword
        || output.is_some()
        || priority.is_some()
        || insert_alias.is_some()
        || settings.is_some()
        || format_clause.is_some()
        || multi_table_insert_type.is_some()
        || !multi_table_into_clauses.is_empty()
        || !multi_table_when_clauses.is_empty()
        || multi_table_else_clause.is_some()
}
