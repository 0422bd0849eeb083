//! Statements of SQLite.
//!
//! The parser takes more than SQLite does, so each structure is taken apart field by field, and
//! what SQLite does not know, or could read otherwise, is refused.

mod expressions;
mod from;
mod nesting;
mod write;

use sqlparser::ast::{
    Cte, Distinct, Expr, GroupByExpr, Ident, LimitClause, NamedWindowDefinition, NamedWindowExpr,
    ObjectName, OffsetRows, OrderBy, OrderByKind, Query, Select, SelectFlavor, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, SetQuantifier, Statement, Values,
    WildcardAdditionalOptions, With,
};
use sqlparser::dialect::SQLiteDialect;
use sqlparser::parser::Parser;

use crate::names::shown;
use crate::{Class, Judged, Rules};

/// The way through a tree, which is checked, its names quoted alike, and its tables replaced.
struct Walk<'a> {
    rules: &'a Rules,
    /// Replaces tables; else the tree is one whose tables are.
    rewrites: bool,
    tables: usize,
    ctes: Vec<String>,
    /// The table whose filter this is.
    filtered: Option<String>,
}

/// Judges a statement.
pub fn judge(rules: &Rules, statement: &str) -> Result<Judged, String> {
    let mut tree = parse(statement)?;
    let class = walk(rules, &mut tree, true)?;
    // Once more for what took the place of tables.
    walk(rules, &mut tree, false)?;
    let text = tree.to_string();
    let mut again = parse(&text)?;
    walk(rules, &mut again, false)?;
    match again == tree && again.to_string() == text {
        true => Ok(Judged {
            text,
            class,
            returns_rows: true,
        }),
        false => {
            Err("the statement cannot be written anew without a change: simplify it".to_owned())
        }
    }
}

/// Parses a condition on a table, and returns it with its columns qualified.
pub fn filter(rules: &Rules, table: &str, text: &str) -> Result<Expr, String> {
    let mut parser = parser(text)?;
    let mut condition = parser.parse_expr().map_err(|error| error.to_string())?;
    if parser.peek_token().token != sqlparser::tokenizer::Token::EOF {
        return Err("it is not one condition".to_owned());
    }
    let mut walk = Walk::new(rules, true);
    walk.filtered = Some(table.to_owned());
    walk.expr(&mut condition)?;
    Ok(condition)
}

fn parser(text: &str) -> Result<Parser<'static>, String> {
    const DEPTH_MAX: usize = 40;
    Ok(Parser::new(&SQLiteDialect {})
        .with_recursion_limit(DEPTH_MAX)
        .with_tokens_with_locations(nesting::tokens(text)?))
}

fn parse(text: &str) -> Result<Statement, String> {
    let mut all = parser(text)?
        .parse_statements()
        .map_err(|error| format!("the statement is invalid: {error}"))?;
    match (all.pop(), all.len()) {
        (Some(one), 0) => Ok(one),
        (None, _) => Err("exactly one statement is allowed, not 0".to_owned()),
        (_, more) => Err(format!(
            "exactly one statement is allowed, not {}",
            more + 1
        )),
    }
}

fn walk(rules: &Rules, tree: &mut Statement, rewrites: bool) -> Result<Class, String> {
    let class = match tree {
        Statement::Query(_) => Class::Select,
        Statement::Insert(_) => Class::Insert,
        Statement::Update(_) => Class::Update,
        Statement::Delete(_) => Class::Delete,
        _ => {
            return Err("only SELECT, INSERT, UPDATE and DELETE are statements here".to_owned());
        }
    };
    rules.check_class(class)?;
    let mut walk = Walk::new(rules, rewrites);
    match tree {
        Statement::Query(query) => walk.query(query),
        Statement::Insert(insert) => walk.insert(insert),
        Statement::Update(update) => walk.update(update),
        Statement::Delete(delete) => walk.delete(delete),
        _ => Ok(()),
    }?;
    Ok(class)
}

fn refuse<T>(what: &str) -> Result<T, String> {
    Err(format!("{what} is not allowed"))
}

/// Refuses what is there and may not be.
fn only(what: &str, is_there: bool) -> Result<(), String> {
    match is_there {
        true => refuse(what),
        false => Ok(()),
    }
}

impl<'a> Walk<'a> {
    fn new(rules: &'a Rules, rewrites: bool) -> Self {
        Self {
            rules,
            rewrites,
            tables: 0,
            ctes: Vec::new(),
            filtered: None,
        }
    }

    fn query(&mut self, query: &mut Query) -> Result<(), String> {
        let Query {
            with,
            body,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators,
        } = query;
        let is_foreign = fetch.is_some()
            || !locks.is_empty()
            || for_clause.is_some()
            || settings.is_some()
            || format_clause.is_some()
            || !pipe_operators.is_empty();
        only(
            "a query with FETCH, FOR, SETTINGS, FORMAT or |>",
            is_foreign,
        )?;
        only("a subquery in a filter", self.filtered.is_some())?;
        let outer = self.ctes.len();
        if let Some(with) = with {
            self.with(with)?;
        }
        self.body(body)?;
        match order_by {
            Some(OrderBy {
                kind: OrderByKind::Expressions(all),
                interpolate: None,
            }) => self.order(all)?,
            Some(_) => return refuse("this kind of ORDER BY"),
            None => {}
        }
        match limit_clause {
            Some(LimitClause::LimitOffset {
                limit,
                offset,
                limit_by,
            }) => {
                only("LIMIT BY", !limit_by.is_empty())?;
                self.all(limit)?;
                if let Some(offset) = offset {
                    only("OFFSET with ROWS", offset.rows != OffsetRows::None)?;
                    self.expr(&mut offset.value)?;
                }
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
                self.expr(offset)?;
                self.expr(limit)?;
            }
            None => {}
        }
        self.ctes.truncate(outer);
        Ok(())
    }

    fn with(&mut self, with: &mut With) -> Result<(), String> {
        let With {
            with_token: _,
            recursive,
            cte_tables,
        } = with;
        only("WITH RECURSIVE", *recursive)?;
        for cte in cte_tables {
            let Cte {
                alias,
                query,
                from,
                materialized: _,
                closing_paren_token: _,
            } = cte;
            only("WITH … FROM", from.is_some())?;
            let others = self.ctes.iter().map(String::as_str);
            self.rules.check_cte(&alias.name.value, others)?;
            ident(&mut alias.name)?;
            for column in &mut alias.columns {
                only("a type in WITH", column.data_type.is_some())?;
                ident(&mut column.name)?;
            }
            only("WITH … AT", alias.at.is_some())?;
            // SQLite takes a name within its own query for a recursion: here it is not known yet.
            self.query(query)?;
            self.ctes.push(alias.name.value.clone());
        }
        Ok(())
    }

    fn body(&mut self, body: &mut SetExpr) -> Result<(), String> {
        match body {
            SetExpr::Select(select) => self.select(select),
            SetExpr::Values(Values {
                explicit_row: false,
                value_keyword: false,
                rows,
            }) => rows
                .iter_mut()
                .try_for_each(|row| self.all(&mut row.content)),
            SetExpr::SetOperation {
                left,
                op: _,
                set_quantifier: SetQuantifier::All | SetQuantifier::None,
                right,
            } => {
                self.body(left)?;
                self.body(right)
            }
            _ => refuse("a query of this kind"),
        }
    }

    fn select(&mut self, select: &mut Select) -> Result<(), String> {
        let Select {
            select_token: _,
            optimizer_hints,
            distinct,
            select_modifiers,
            top,
            top_before_distinct,
            projection,
            exclude,
            into,
            from,
            lateral_views,
            prewhere,
            selection,
            connect_by,
            group_by,
            cluster_by,
            distribute_by,
            sort_by,
            having,
            named_window,
            qualify,
            window_before_qualify: _,
            value_table_mode,
            flavor,
        } = select;
        only("SELECT INTO", into.is_some())?;
        let is_foreign = !optimizer_hints.is_empty()
            || matches!(distinct, Some(Distinct::On(_)))
            || select_modifiers.is_some()
            || top.is_some()
            || *top_before_distinct
            || exclude.is_some()
            || !lateral_views.is_empty()
            || prewhere.is_some()
            || !connect_by.is_empty()
            || !cluster_by.is_empty()
            || !distribute_by.is_empty()
            || !sort_by.is_empty()
            || qualify.is_some()
            || value_table_mode.is_some()
            || *flavor != SelectFlavor::Standard;
        only("SELECT with words that SQLite does not know", is_foreign)?;
        self.from(from)?;
        self.items(projection)?;
        self.all(selection)?;
        match group_by {
            GroupByExpr::Expressions(all, modifiers) if modifiers.is_empty() => self.all(all)?,
            _ => return refuse("this kind of GROUP BY"),
        }
        self.all(having)?;
        for NamedWindowDefinition(name, window) in named_window {
            ident(name)?;
            match window {
                NamedWindowExpr::NamedWindow(_) => return refuse("a window named by another"),
                NamedWindowExpr::WindowSpec(spec) => self.window(spec)?,
            }
        }
        Ok(())
    }

    /// Walks what a query gives.
    fn items(&mut self, items: &mut [SelectItem]) -> Result<(), String> {
        for item in items {
            match item {
                SelectItem::UnnamedExpr(expr) => self.expr(expr)?,
                SelectItem::ExprWithAlias { expr, alias } => {
                    ident(alias)?;
                    self.expr(expr)?;
                }
                SelectItem::Wildcard(options) => check_star(options)?,
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    options,
                ) => {
                    check_star(options)?;
                    single(name)?;
                }
                SelectItem::QualifiedWildcard(..) | SelectItem::ExprWithAliases { .. } => {
                    return refuse("a column of this kind");
                }
            }
        }
        Ok(())
    }
}

/// Checks a name, and quotes it so that SQLite takes it for nothing else: within double quotes it
/// can be a text, and without quotes a keyword.
fn ident(ident: &mut Ident) -> Result<(), String> {
    let name = ident.value.as_str();
    if !crate::names::is_name(name) {
        return Err(format!("the name {} is not allowed", shown(name)));
    }
    let is_word = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let is_simple =
        name.chars().all(is_word) && !name.starts_with(|one: char| one.is_ascii_digit());
    let upper = name.to_ascii_uppercase();
    let is_keyword = crate::functions::has(
        crate::functions::SQLITE_KEYWORDS,
        &name.to_ascii_lowercase(),
    ) || (ident.quote_style.is_some()
        && sqlparser::keywords::ALL_KEYWORDS.contains(&upper.as_str()));
    ident.quote_style = match is_simple && !is_keyword {
        true => None,
        false => Some('['),
    };
    Ok(())
}

/// Checks a name of one part, and takes the schema off one of two.
fn single(name: &mut ObjectName) -> Result<(), String> {
    from::names(name)?;
    let last = name.0.pop().and_then(|part| part.as_ident().cloned());
    let mut only = last.unwrap_or_else(|| Ident::new(""));
    ident(&mut only)?;
    *name = ObjectName::from(vec![only]);
    Ok(())
}

/// Returns an identifier for a name of the rules.
fn own_ident(name: &str) -> Result<Ident, String> {
    let mut own = Ident::new(name);
    ident(&mut own).map(|()| own)
}

fn check_star(options: &WildcardAdditionalOptions) -> Result<(), String> {
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike,
        opt_exclude,
        opt_except,
        opt_replace,
        opt_rename,
        opt_alias,
    } = options;
    let is_foreign = opt_ilike.is_some()
        || opt_exclude.is_some()
        || opt_except.is_some()
        || opt_replace.is_some()
        || opt_rename.is_some()
        || opt_alias.is_some();
    only("* with words after it", is_foreign)
}
