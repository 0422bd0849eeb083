//! Relations that a statement reads.

use sqlparser::ast::{
    Expr, Join, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, SetExpr, Statement,
    TableAlias, TableFactor, TableFunctionArgs, TableWithJoins,
};

use super::{Walk, filter, ident, only, own_ident, parse, refuse, single};
use crate::names::{SQLITE_SCHEMA, shown};
use crate::{Class, TABLES_MAX, Table};

/// Functions that can be read like a table.
const TABLE_FUNCTIONS: [&str; 2] = ["json_each", "json_tree"];

impl Walk<'_> {
    pub(super) fn from(&mut self, from: &mut [TableWithJoins]) -> Result<(), String> {
        for TableWithJoins { relation, joins } in from {
            self.factor(relation)?;
            for Join {
                relation,
                global,
                join_operator,
            } in joins
            {
                only("GLOBAL JOIN", *global)?;
                self.factor(relation)?;
                self.join(join_operator)?;
            }
        }
        Ok(())
    }

    fn join(&mut self, operator: &mut JoinOperator) -> Result<(), String> {
        match operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint)
            | JoinOperator::CrossJoin(constraint) => match constraint {
                JoinConstraint::On(condition) => self.expr(condition),
                JoinConstraint::Using(names) => names.iter_mut().try_for_each(single),
                JoinConstraint::Natural | JoinConstraint::None => Ok(()),
                JoinConstraint::UsingAlias(..) => refuse("an alias of a join"),
            },
            _ => refuse("a join of this kind"),
        }
    }

    /// Walks a relation, and puts what may be read of it in its place.
    fn factor(&mut self, factor: &mut TableFactor) -> Result<(), String> {
        match factor {
            TableFactor::Table { args: Some(_), .. } => self.function(factor),
            TableFactor::Table { .. } => {
                if let Some(restricted) = self.relation(factor)? {
                    *factor = restricted;
                }
                Ok(())
            }
            TableFactor::Derived {
                lateral: false,
                subquery,
                alias,
                sample: None,
            } => {
                check_alias(alias)?;
                self.query(subquery)
            }
            TableFactor::NestedJoin {
                table_with_joins,
                alias: None,
            } => self.from(std::slice::from_mut(table_with_joins)),
            _ => refuse("a relation of this kind in FROM"),
        }
    }

    fn function(&mut self, factor: &mut TableFactor) -> Result<(), String> {
        let (name, args) = plain_table(factor)?;
        let (schema, function) = names(name)?;
        if !schema.is_empty() || !TABLE_FUNCTIONS.contains(&function.as_str()) {
            return Err(format!(
                "function {} is not allowed in FROM; allowed: {}",
                shown(&function),
                TABLE_FUNCTIONS.join(", ")
            ));
        }
        match args {
            Some(TableFunctionArgs {
                args,
                settings: None,
            }) => self.arguments(args),
            _ => refuse("a function of this kind in FROM"),
        }
    }

    fn relation(&mut self, factor: &mut TableFactor) -> Result<Option<TableFactor>, String> {
        self.tables += 1;
        // What takes the place of one holds another.
        if self.tables > TABLES_MAX * if self.rewrites { 1 } else { 2 } {
            return Err(format!("a statement reads at most {TABLES_MAX} tables"));
        }
        let (name, _) = plain_table(factor)?;
        let (schema, table) = names(name)?;
        let is_cte = self.ctes.iter().any(|cte| cte.eq_ignore_ascii_case(&table));
        if schema.is_empty() && is_cte {
            return single(name).map(|()| None);
        }
        self.rules.check_class(Class::Select)?;
        let rules = self.rules;
        let (schema, table, rights) = rules.table(&schema, &table)?;
        *name = full_name(schema, table)?;
        let TableFactor::Table { alias, .. } = factor else {
            return Ok(None);
        };
        match self.rewrites && rights.is_restricted() {
            true => self.restricted(table, rights, alias.take()).map(Some),
            false => Ok(None),
        }
    }

    /// Returns the query that stands for a table: its allowed columns of its allowed rows. Names are
    /// qualified, so that none of them means something outside. With a filter the query has a
    /// `LIMIT`, before which no condition from outside is evaluated: its errors would tell of
    /// rows that the filter leaves out.
    fn restricted(
        &self,
        table: &str,
        rights: &Table,
        alias: Option<TableAlias>,
    ) -> Result<TableFactor, String> {
        let name = own_ident(table)?;
        let mut columns = Vec::new();
        for column in rights.columns.iter().flatten() {
            columns.push(format!("{name}.{}", own_ident(column)?));
        }
        if rights.columns.is_none() {
            columns.push("*".to_owned());
        }
        let columns = columns.join(", ");
        let condition = rights.filter.as_ref().map_or("", |_| "WHERE true LIMIT -1");
        let text = format!("SELECT {columns} FROM {SQLITE_SCHEMA}.{name} {condition}");
        let Statement::Query(mut subquery) = parse(&text)? else {
            return refuse("a table of this name");
        };
        if let (Some(text), SetExpr::Select(select)) = (&rights.filter, subquery.body.as_mut()) {
            let condition = filter(self.rules, table, text)?;
            select.selection = Some(Expr::Nested(Box::new(condition)));
        }
        let own = TableAlias {
            explicit: true,
            name,
            columns: Vec::new(),
            at: None,
        };
        Ok(TableFactor::Derived {
            lateral: false,
            subquery,
            alias: Some(alias.unwrap_or(own)),
            sample: None,
        })
    }
}

/// Returns the parts of a table that is written plainly, with an alias at most.
pub fn plain_table(
    factor: &mut TableFactor,
) -> Result<(&mut ObjectName, &mut Option<TableFunctionArgs>), String> {
    let TableFactor::Table {
        name,
        alias,
        args,
        with_hints,
        version,
        with_ordinality,
        partitions,
        json_path,
        sample,
        index_directives,
        inheritance,
    } = factor
    else {
        return refuse("anything but a table here");
    };
    let is_foreign = !with_hints.is_empty()
        || version.is_some()
        || *with_ordinality
        || !partitions.is_empty()
        || json_path.is_some()
        || sample.is_some()
        || !index_directives.is_empty()
        || inheritance.is_some();
    only("a table with anything but an alias", is_foreign)?;
    check_alias(alias)?;
    Ok((name, args))
}

fn check_alias(alias: &mut Option<TableAlias>) -> Result<(), String> {
    let Some(TableAlias {
        explicit: _,
        name,
        columns,
        at,
    }) = alias
    else {
        return Ok(());
    };
    only(
        "renaming columns of a table",
        !columns.is_empty() || at.is_some(),
    )?;
    ident(name)
}

/// Returns the schema of a name, empty if it has none, and the name itself.
pub fn names(name: &ObjectName) -> Result<(String, String), String> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Ok((String::new(), name.value.clone())),
        [
            ObjectNamePart::Identifier(schema),
            ObjectNamePart::Identifier(name),
        ] if schema.value.eq_ignore_ascii_case(SQLITE_SCHEMA) => {
            Ok((SQLITE_SCHEMA.to_owned(), name.value.clone()))
        }
        _ => Err(format!(
            "{} is not allowed: write the name alone",
            shown(&name.to_string())
        )),
    }
}

/// Returns the name of a table with its schema.
pub fn full_name(schema: &str, table: &str) -> Result<ObjectName, String> {
    Ok(ObjectName::from(vec![
        own_ident(schema)?,
        own_ident(table)?,
    ]))
}
