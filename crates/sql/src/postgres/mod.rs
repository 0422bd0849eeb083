//! Statements of PostgreSQL.
//!
//! Each node of the tree is taken apart field by field, so that a field that is not looked at does
//! not compile, and a kind of node without an arm is refused.

mod expressions;
mod forms;
mod from;

use std::collections::BTreeSet;

use pg_query::protobuf::{
    CommonTableExpr, DeleteStmt, IndexElem, InferClause, InsertStmt, OnConflictAction,
    OnConflictClause, OverridingKind, ParseResult, RangeVar, ReturningClause, SelectStmt,
    UpdateStmt, WithClause,
};
use pg_query::{Node, NodeEnum};

use crate::names::shown;
use crate::{Class, Judged, Rules};

/// Names of a relation's columns; none where it has all of a table whose columns are not known.
type Columns = Option<BTreeSet<String>>;

/// The relations of a level of a statement, by the name that columns are qualified with.
type Scope = Vec<(String, Columns)>;

/// The way through a tree, which is checked, its positions cleared, and its tables replaced.
struct Walk<'a> {
    rules: &'a Rules,
    /// Replaces tables; else the tree is one whose tables are.
    rewrites: bool,
    tables: usize,
    ctes: Vec<(String, Columns)>,
    scopes: Vec<Scope>,
    /// The table whose filter this is, and the columns that the filter reads.
    filtered: Option<(String, BTreeSet<String>)>,
}

/// Judges a statement.
pub fn judge(rules: &Rules, statement: &str) -> Result<Judged, String> {
    let mut tree = parse(statement)?;
    let class = walk(rules, &mut tree, true)?;
    // Once more for what took the place of tables.
    walk(rules, &mut tree, false)?;
    let text = pg_query::deparse(&tree, pg_query::DeparseOptions::default())
        .map_err(|error| format!("the statement cannot be written anew: {error}"))?;
    let mut again = parse(&text)?;
    walk(rules, &mut again, false)?;
    match again.stmts == tree.stmts {
        true => Ok(Judged {
            text,
            class,
            returns_rows: returns_rows(&tree),
        }),
        false => {
            Err("the statement cannot be written anew without a change: simplify it".to_owned())
        }
    }
}

/// Parses a condition on a table, and returns it with its columns qualified, and their names.
pub fn filter(
    rules: &Rules,
    table: &str,
    text: &str,
) -> Result<(Box<Node>, BTreeSet<String>), String> {
    let mut tree = parse(&format!("SELECT WHERE {text}"))?;
    let select = match tree.stmts.as_mut_slice() {
        [one] => one.stmt.as_mut().and_then(|stmt| stmt.node.as_mut()),
        _ => None,
    };
    let Some(NodeEnum::SelectStmt(select)) = select else {
        return Err("it is not one condition".to_owned());
    };
    let Some(mut condition) = select.where_clause.take() else {
        return Err("it is not one condition".to_owned());
    };
    let empty = parse("SELECT")?;
    let empty = empty.stmts.first().and_then(|one| one.stmt.as_ref());
    if empty.and_then(|one| one.node.as_ref()) != Some(&NodeEnum::SelectStmt(select.clone())) {
        return Err("it is not one condition".to_owned());
    }
    let mut walk = Walk::new(rules, true);
    walk.scopes.push(vec![(table.to_owned(), None)]);
    walk.filtered = Some((table.to_owned(), BTreeSet::new()));
    walk.node(&mut condition)?;
    let columns = walk.filtered.take().map(|(_, columns)| columns);
    Ok((condition, columns.unwrap_or_default()))
}

fn parse(text: &str) -> Result<ParseResult, String> {
    pg_query::parse(text, 0)
        .map(|result| result.protobuf)
        .map_err(|error| match error {
            pg_query::Error::Parse(error) => format!("the statement is invalid: {error}"),
            _ => "the statement is too deeply nested".to_owned(),
        })
}

fn returns_rows(tree: &ParseResult) -> bool {
    let stmt = tree.stmts.first().and_then(|one| one.stmt.as_ref());
    let returning = match stmt.and_then(|stmt| stmt.node.as_ref()) {
        Some(NodeEnum::InsertStmt(insert)) => &insert.returning_clause,
        Some(NodeEnum::UpdateStmt(update)) => &update.returning_clause,
        Some(NodeEnum::DeleteStmt(delete)) => &delete.returning_clause,
        _ => return true,
    };
    returning.is_some()
}

fn walk(rules: &Rules, tree: &mut ParseResult, rewrites: bool) -> Result<Class, String> {
    let [raw] = tree.stmts.as_mut_slice() else {
        return Err(format!(
            "exactly one statement is allowed, not {}",
            tree.stmts.len()
        ));
    };
    raw.stmt_location = 0;
    raw.stmt_len = 0;
    let node = raw.stmt.as_mut().and_then(|stmt| stmt.node.as_mut());
    let class = match &node {
        Some(NodeEnum::SelectStmt(_)) => Class::Select,
        Some(NodeEnum::InsertStmt(_)) => Class::Insert,
        Some(NodeEnum::UpdateStmt(_)) => Class::Update,
        Some(NodeEnum::DeleteStmt(_)) => Class::Delete,
        _ => {
            return Err("only SELECT, INSERT, UPDATE and DELETE are statements here".to_owned());
        }
    };
    rules.check_class(class)?;
    let mut walk = Walk::new(rules, rewrites);
    match node {
        Some(NodeEnum::SelectStmt(select)) => walk.select(select).map(|_| ()),
        Some(NodeEnum::InsertStmt(insert)) => walk.insert(insert),
        Some(NodeEnum::UpdateStmt(update)) => walk.update(update),
        Some(NodeEnum::DeleteStmt(delete)) => walk.delete(delete),
        _ => Ok(()),
    }?;
    Ok(class)
}

fn refuse<T>(what: &str) -> Result<T, String> {
    Err(format!("{what} is not allowed"))
}

/// Returns the texts of a list of names.
fn texts(names: &[Node]) -> Result<Vec<&str>, String> {
    let all: Option<Vec<&str>> = names.iter().map(text_of).collect();
    all.ok_or_else(|| "a name of this kind is not allowed".to_owned())
}

/// Returns the text of a name.
fn text_of(name: &Node) -> Option<&str> {
    match &name.node {
        Some(NodeEnum::String(text)) => Some(&text.sval),
        _ => None,
    }
}

impl<'a> Walk<'a> {
    fn new(rules: &'a Rules, rewrites: bool) -> Self {
        Self {
            rules,
            rewrites,
            tables: 0,
            ctes: Vec::new(),
            scopes: Vec::new(),
            filtered: None,
        }
    }

    /// Walks a query, and returns the columns that it gives.
    fn select(&mut self, select: &mut SelectStmt) -> Result<Columns, String> {
        let SelectStmt {
            distinct_clause,
            into_clause,
            target_list,
            from_clause,
            where_clause,
            group_clause,
            group_distinct: _,
            having_clause,
            window_clause,
            values_lists,
            sort_clause,
            limit_offset,
            limit_count,
            limit_option: _,
            locking_clause,
            with_clause,
            op: _,
            all: _,
            larg,
            rarg,
        } = select;
        if into_clause.is_some() {
            return refuse("SELECT INTO");
        }
        if !locking_clause.is_empty() {
            return refuse("locking rows (FOR UPDATE, FOR SHARE)");
        }
        let outer = self.with(with_clause.as_mut())?;
        self.scopes.push(Scope::new());
        self.relations(from_clause)?;
        let mut columns = None;
        for arm in [larg, rarg].into_iter().flatten() {
            let of_arm = self.select(arm)?;
            columns = columns.or(Some(of_arm));
        }
        for list in [
            distinct_clause,
            target_list,
            group_clause,
            window_clause,
            values_lists,
            sort_clause,
        ] {
            self.nodes(list)?;
        }
        for one in [where_clause, having_clause, limit_offset, limit_count] {
            self.maybe(one)?;
        }
        let columns = match columns {
            Some(of_arm) => of_arm,
            None => self.output(&select.target_list, &select.values_lists),
        };
        self.scopes.pop();
        self.ctes.truncate(outer);
        Ok(columns)
    }

    /// Walks common table expressions, and returns how many there were around them.
    fn with(&mut self, with: Option<&mut WithClause>) -> Result<usize, String> {
        let outer = self.ctes.len();
        let Some(WithClause {
            ctes,
            recursive,
            location,
        }) = with
        else {
            return Ok(outer);
        };
        *location = 0;
        if *recursive {
            return refuse("WITH RECURSIVE");
        }
        for cte in ctes {
            let Some(NodeEnum::CommonTableExpr(cte)) = &mut cte.node else {
                return refuse("this kind of WITH");
            };
            self.cte(cte)?;
        }
        Ok(outer)
    }

    fn cte(&mut self, cte: &mut CommonTableExpr) -> Result<(), String> {
        let CommonTableExpr {
            ctename,
            aliascolnames,
            ctematerialized: _,
            ctequery,
            search_clause,
            cycle_clause,
            location,
            cterecursive: _,
            cterefcount: _,
            ctecolnames,
            ctecoltypes,
            ctecoltypmods,
            ctecolcollations,
        } = cte;
        *location = 0;
        let analyzed = [ctecolnames, ctecoltypes, ctecoltypmods, ctecolcollations];
        let is_plain = analyzed.iter().all(|list| list.is_empty());
        if search_clause.is_some() || cycle_clause.is_some() || !is_plain {
            return refuse("WITH … SEARCH or CYCLE");
        }
        let others = self.ctes.iter().map(|(name, _)| name.as_str());
        self.rules.check_cte(ctename, others)?;
        let query = ctequery.as_mut().and_then(|query| query.node.as_mut());
        let Some(NodeEnum::SelectStmt(query)) = query else {
            return Err("WITH can only hold SELECT".to_owned());
        };
        let columns = self.select(query)?;
        let columns = from::renamed(columns, aliascolnames)?;
        self.ctes.push((ctename.clone(), columns));
        Ok(())
    }

    /// Checks the table that is written to, and brings it into scope.
    fn target(&mut self, relation: Option<&mut RangeVar>) -> Result<(), String> {
        let Some(relation) = relation else {
            return refuse("a statement without a table");
        };
        from::check_plain(relation)?;
        let rules = self.rules;
        let (schema, name) = rules.table_to_write(&relation.schemaname, &relation.relname)?;
        relation.schemaname = schema.to_owned();
        relation.relname = name.to_owned();
        let alias = relation.alias.as_ref();
        if alias.is_some_and(|alias| !alias.colnames.is_empty()) {
            return refuse("renaming columns of the table that is written to");
        }
        let alias = alias.map_or(name, |alias| &alias.aliasname).to_owned();
        self.scopes.push(vec![(alias, None)]);
        Ok(())
    }

    fn insert(&mut self, insert: &mut InsertStmt) -> Result<(), String> {
        let InsertStmt {
            relation,
            cols,
            select_stmt,
            on_conflict_clause,
            returning_clause,
            with_clause,
            r#override,
        } = insert;
        if *r#override > OverridingKind::OverridingNotSet as i32 {
            return refuse("OVERRIDING");
        }
        self.with(with_clause.as_mut())?;
        match select_stmt.as_mut().map(|stmt| &mut stmt.node) {
            Some(Some(NodeEnum::SelectStmt(select))) => self.select(select).map(|_| ())?,
            Some(_) => return refuse("this kind of INSERT"),
            None => {}
        }
        self.target(relation.as_mut())?;
        self.nodes(cols)?;
        if let Some(clause) = on_conflict_clause {
            self.on_conflict(clause)?;
        }
        self.returning(returning_clause.as_mut())
    }

    fn on_conflict(&mut self, clause: &mut OnConflictClause) -> Result<(), String> {
        let OnConflictClause {
            action,
            infer,
            target_list,
            where_clause,
            location,
        } = clause;
        *location = 0;
        if *action != OnConflictAction::OnconflictNothing as i32 {
            self.rules.check_class(Class::Update)?;
        }
        if let Some(infer) = infer {
            let InferClause {
                index_elems,
                where_clause,
                conname: _,
                location,
            } = infer.as_mut();
            *location = 0;
            self.nodes(index_elems)?;
            self.maybe(where_clause)?;
        }
        self.scopes.push(vec![("excluded".to_owned(), None)]);
        self.nodes(target_list)?;
        self.maybe(where_clause)?;
        self.scopes.pop();
        Ok(())
    }

    /// Walks a column that a conflict is found by.
    fn index_elem(&mut self, elem: &mut IndexElem) -> Result<(), String> {
        let IndexElem {
            name: _,
            expr,
            indexcolname: _,
            collation,
            opclass,
            opclassopts,
            ordering: _,
            nulls_ordering: _,
        } = elem;
        if !collation.is_empty() || !opclass.is_empty() || !opclassopts.is_empty() {
            return refuse("ON CONFLICT with a collation or operator class");
        }
        self.maybe(expr)
    }

    fn update(&mut self, update: &mut UpdateStmt) -> Result<(), String> {
        let UpdateStmt {
            relation,
            target_list,
            where_clause,
            from_clause,
            returning_clause,
            with_clause,
        } = update;
        self.with(with_clause.as_mut())?;
        self.target(relation.as_mut())?;
        self.relations(from_clause)?;
        self.nodes(target_list)?;
        self.maybe(where_clause)?;
        self.returning(returning_clause.as_mut())
    }

    fn delete(&mut self, delete: &mut DeleteStmt) -> Result<(), String> {
        let DeleteStmt {
            relation,
            using_clause,
            where_clause,
            returning_clause,
            with_clause,
        } = delete;
        self.with(with_clause.as_mut())?;
        self.target(relation.as_mut())?;
        self.relations(using_clause)?;
        self.maybe(where_clause)?;
        self.returning(returning_clause.as_mut())
    }

    fn returning(&mut self, clause: Option<&mut ReturningClause>) -> Result<(), String> {
        let Some(ReturningClause { options, exprs }) = clause else {
            return Ok(());
        };
        if !options.is_empty() {
            return refuse("RETURNING WITH");
        }
        self.nodes(exprs)
    }

    fn scope_add(&mut self, name: &str, columns: Columns) -> Result<(), String> {
        let Some(scope) = self.scopes.last_mut() else {
            return refuse("FROM here");
        };
        if scope.iter().any(|(other, _)| other == name) {
            return Err(format!(
                "{} is in FROM twice: give each an alias",
                shown(name)
            ));
        }
        scope.push((name.to_owned(), columns));
        Ok(())
    }
}
