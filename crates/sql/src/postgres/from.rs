//! Relations that a statement reads, and the columns that they have.

use std::collections::BTreeSet;

use pg_query::protobuf::{Alias, JoinExpr, RangeFunction, RangeSubselect, RangeVar};
use pg_query::{Node, NodeEnum};

use super::{Columns, Walk, filter, parse, refuse, text_of, texts};
use crate::functions::POSTGRES_COLUMNS;
use crate::names::{quoted, shown};
use crate::{Class, TABLES_MAX, Table};

impl Walk<'_> {
    pub(super) fn relations(&mut self, list: &mut [Node]) -> Result<(), String> {
        list.iter_mut().try_for_each(|item| self.from(item))
    }

    /// Walks a relation, brings it into scope, and puts what may be read of it in its place.
    fn from(&mut self, item: &mut Node) -> Result<(), String> {
        match &mut item.node {
            Some(NodeEnum::RangeVar(relation)) => {
                if let Some(node) = self.relation(relation)? {
                    item.node = Some(node);
                }
                Ok(())
            }
            Some(NodeEnum::RangeSubselect(subselect)) => self.subselect(subselect),
            Some(NodeEnum::RangeFunction(function)) => self.table_function(function),
            Some(NodeEnum::JoinExpr(join)) => self.join(join),
            _ => refuse("a relation of this kind in FROM"),
        }
    }

    fn relation(&mut self, relation: &mut RangeVar) -> Result<Option<NodeEnum>, String> {
        check_plain(relation)?;
        self.tables += 1;
        // What takes the place of one holds another.
        if self.tables > TABLES_MAX * if self.rewrites { 1 } else { 2 } {
            return Err(format!("a statement reads at most {TABLES_MAX} tables"));
        }
        let colnames = relation
            .alias
            .as_ref()
            .map_or(&[][..], |alias| &alias.colnames);
        let name = relation.alias.as_ref().map(|alias| alias.aliasname.clone());
        let name = name.unwrap_or_else(|| relation.relname.clone());
        let cte = self.ctes.iter().find(|(cte, _)| *cte == relation.relname);
        if let (true, Some((_, columns))) = (relation.schemaname.is_empty(), cte) {
            let columns = renamed(columns.clone(), colnames)?;
            self.scope_add(&name, columns)?;
            return Ok(None);
        }
        self.rules.check_class(Class::Select)?;
        let rules = self.rules;
        let (schema, table, rights) = rules.table(&relation.schemaname, &relation.relname)?;
        relation.schemaname = schema.to_owned();
        table.clone_into(&mut relation.relname);
        let columns = match self.rewrites {
            true => rights.columns.as_ref(),
            false => None,
        };
        let columns = columns.map(|columns| columns.iter().cloned().collect());
        self.scope_add(&name, renamed(columns, colnames)?)?;
        match self.rewrites && rights.is_restricted() {
            true => self.restricted(relation, rights, &name).map(Some),
            false => Ok(None),
        }
    }

    /// Returns the query that stands for a table: its allowed columns of its allowed rows. Names are
    /// qualified, so that none of them means something outside. With a filter the query has an
    /// `OFFSET`, before which no condition from outside is evaluated: its errors would tell of
    /// rows that the filter leaves out.
    fn restricted(
        &self,
        table: &RangeVar,
        rights: &Table,
        alias: &str,
    ) -> Result<NodeEnum, String> {
        let name = quoted(&table.relname);
        let columns = rights.columns.as_ref().map(|columns| {
            let columns = columns.iter().map(|one| format!("{name}.{}", quoted(one)));
            columns.collect::<Vec<_>>().join(", ")
        });
        let columns = columns.as_deref().unwrap_or("*");
        let condition = rights.filter.as_ref().map_or("", |_| "WHERE true OFFSET 0");
        let schema = quoted(&table.schemaname);
        let text = format!("SELECT {columns} FROM {schema}.{name} {condition}");
        let mut subquery = parse(&text)?.stmts.pop().and_then(|raw| raw.stmt);
        let node = subquery.as_mut().and_then(|stmt| stmt.node.as_mut());
        if let (Some(text), Some(NodeEnum::SelectStmt(select))) = (&rights.filter, node) {
            select.where_clause = Some(filter(self.rules, &table.relname, text)?.0);
        }
        let colnames = table.alias.as_ref().map(|alias| alias.colnames.clone());
        Ok(NodeEnum::RangeSubselect(Box::new(RangeSubselect {
            lateral: false,
            subquery,
            alias: Some(Alias {
                aliasname: alias.to_owned(),
                colnames: colnames.unwrap_or_default(),
            }),
        })))
    }

    fn subselect(&mut self, subselect: &mut RangeSubselect) -> Result<(), String> {
        let RangeSubselect {
            lateral: _,
            subquery,
            alias,
        } = subselect;
        let query = subquery.as_mut().and_then(|query| query.node.as_mut());
        let Some(NodeEnum::SelectStmt(query)) = query else {
            return refuse("a subquery other than SELECT");
        };
        let columns = self.select(query)?;
        match alias {
            Some(alias) => {
                let columns = renamed(columns, &alias.colnames)?;
                self.scope_add(&alias.aliasname, columns)
            }
            None => Ok(()),
        }
    }

    fn table_function(&mut self, function: &mut RangeFunction) -> Result<(), String> {
        let RangeFunction {
            lateral: _,
            ordinality,
            is_rowsfrom,
            functions,
            alias,
            coldeflist,
        } = function;
        let pair = match functions.as_mut_slice() {
            [
                Node {
                    node: Some(NodeEnum::List(pair)),
                },
            ] => pair.items.as_mut_slice(),
            _ => &mut [],
        };
        let (call, is_plain) = match pair {
            [call] => (call, true),
            [call, columns] => (call, columns.node.is_none()),
            _ => return refuse("ROWS FROM"),
        };
        if *is_rowsfrom || !is_plain || !coldeflist.is_empty() {
            return refuse("a function in FROM with ROWS FROM or a list of columns");
        }
        self.node(call)?;
        let Some(NodeEnum::FuncCall(call)) = &call.node else {
            return refuse("a function of this kind in FROM");
        };
        let name = texts(&call.funcname)?.last().copied().unwrap_or_default();
        let alias_name = alias.as_ref().map_or(name, |alias| &alias.aliasname);
        let known = POSTGRES_COLUMNS.iter().find(|(one, _)| *one == name);
        let known = known.map_or(&[][..], |(_, columns)| columns);
        let mut columns: BTreeSet<String> = known.iter().map(|one| (*one).to_owned()).collect();
        if known.is_empty() {
            columns.insert(alias_name.to_owned());
        }
        if *ordinality {
            columns.insert("ordinality".to_owned());
        }
        let colnames = alias.as_ref().map_or(&[][..], |alias| &alias.colnames);
        let columns = renamed(Some(columns), colnames)?;
        self.scope_add(alias_name, columns)
    }

    fn join(&mut self, join: &mut JoinExpr) -> Result<(), String> {
        let JoinExpr {
            jointype: _,
            is_natural: _,
            larg,
            rarg,
            using_clause,
            join_using_alias,
            quals,
            alias,
            rtindex: _,
        } = join;
        if join_using_alias.is_some() || alias.is_some() {
            return refuse("an alias of a join");
        }
        for side in [larg, rarg] {
            match side {
                Some(side) => self.from(side)?,
                None => return refuse("half a join"),
            }
        }
        texts(using_clause)?;
        self.maybe(quals)
    }

    /// Returns the names of a query's columns, or fewer. Called while it is the innermost.
    pub(super) fn output(&self, targets: &[Node], values: &[Node]) -> Columns {
        let Some(scope) = self.scopes.last() else {
            return Some(BTreeSet::new());
        };
        let mut all = BTreeSet::new();
        if let Some(NodeEnum::List(row)) = values.first().and_then(|row| row.node.as_ref()) {
            all.extend((1..=row.items.len()).map(|at| format!("column{at}")));
        }
        for target in targets {
            let Some(NodeEnum::ResTarget(target)) = &target.node else {
                continue;
            };
            let value = target.val.as_ref().and_then(|value| value.node.as_ref());
            if !target.name.is_empty() {
                all.insert(target.name.clone());
                continue;
            }
            let fields = match value {
                Some(NodeEnum::ColumnRef(column)) => &column.fields,
                Some(NodeEnum::FuncCall(call)) => &call.funcname,
                _ => continue,
            };
            let Some(last) = fields.last() else { continue };
            match text_of(last) {
                Some(name) => {
                    all.insert(name.to_owned());
                }
                None => {
                    let qualifier = match fields.as_slice() {
                        [qualifier, _] => text_of(qualifier),
                        _ => None,
                    };
                    let is_meant = |name: &str| qualifier.is_none_or(|one| one == name);
                    for (_, columns) in scope.iter().filter(|(name, _)| is_meant(name)) {
                        all.extend(columns.clone()?);
                    }
                }
            }
        }
        Some(all)
    }
}

/// Returns columns under the names that an alias gives them: only those names, for the others may
/// be hidden by them.
pub fn renamed(columns: Columns, names: &[Node]) -> Result<Columns, String> {
    match names.is_empty() {
        true => Ok(columns),
        false => Ok(Some(texts(names)?.into_iter().map(str::to_owned).collect())),
    }
}

/// Refuses a table of another database, and one that is not read as a whole.
pub fn check_plain(relation: &mut RangeVar) -> Result<(), String> {
    let RangeVar {
        catalogname,
        schemaname: _,
        relname,
        inh,
        relpersistence,
        alias: _,
        location,
    } = relation;
    *location = 0;
    if !catalogname.is_empty() || relpersistence != "p" {
        return Err(format!(
            "table {} is written as schema.table",
            shown(relname)
        ));
    }
    match *inh {
        true => Ok(()),
        false => refuse("ONLY"),
    }
}
