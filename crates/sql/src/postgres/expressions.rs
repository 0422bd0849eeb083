//! Expressions.

use pg_query::protobuf::{
    AConst, AExpr, AIndices, ColumnRef, FuncCall, List, ParamRef, ResTarget, SortBy,
    String as Text, SubLink, TypeCast, TypeName, WindowDef, a_const,
};
use pg_query::{Node, NodeEnum};

use super::{Walk, refuse, text_of, texts};
use crate::functions::{POSTGRES, POSTGRES_OPERATORS, POSTGRES_TYPES, has};
use crate::names::{SYSTEM_COLUMNS, shown};

/// The schema of what comes with PostgreSQL.
pub const CATALOG: &str = "pg_catalog";

/// The largest number in a type, such as the length of `char(n)`, which is filled up to it.
const TYPE_NUMBER_MAX: i32 = 10_000;

impl Walk<'_> {
    pub(super) fn nodes(&mut self, nodes: &mut [Node]) -> Result<(), String> {
        nodes.iter_mut().try_for_each(|node| self.node(node))
    }

    pub(super) fn maybe(&mut self, node: &mut Option<Box<Node>>) -> Result<(), String> {
        node.as_mut().map_or(Ok(()), |node| self.node(node))
    }

    /// Walks an expression or a part of one.
    pub(super) fn node(&mut self, node: &mut Node) -> Result<(), String> {
        match &mut node.node {
            None => Ok(()),
            Some(NodeEnum::AConst(AConst { location, .. })) => {
                *location = 0;
                Ok(())
            }
            Some(NodeEnum::ParamRef(ParamRef { location, .. })) => {
                if self.filtered.is_some() {
                    return refuse("a parameter in a filter");
                }
                *location = 0;
                Ok(())
            }
            Some(NodeEnum::ColumnRef(column)) => self.column(column),
            Some(NodeEnum::FuncCall(call)) => self.call(call),
            Some(NodeEnum::AExpr(expr)) => self.operation(expr),
            Some(NodeEnum::SubLink(link)) => self.sub_link(link),
            Some(NodeEnum::TypeCast(cast)) => {
                let TypeCast {
                    arg,
                    type_name,
                    location,
                } = cast.as_mut();
                *location = 0;
                if let Some(name) = type_name {
                    self.type_name(name)?;
                }
                self.maybe(arg)
            }
            Some(NodeEnum::List(List { items })) => self.nodes(items),
            Some(NodeEnum::ResTarget(target)) => {
                let ResTarget {
                    name: _,
                    indirection,
                    val,
                    location,
                } = target.as_mut();
                *location = 0;
                self.subscripts(indirection)?;
                self.maybe(val)
            }
            Some(NodeEnum::IndexElem(elem)) => self.index_elem(elem),
            Some(NodeEnum::SortBy(sort)) => {
                let SortBy {
                    node,
                    sortby_dir: _,
                    sortby_nulls: _,
                    use_op,
                    location,
                } = sort.as_mut();
                *location = 0;
                if !use_op.is_empty() {
                    operator(use_op)?;
                }
                self.maybe(node)
            }
            Some(NodeEnum::WindowDef(window)) => self.window(window),
            _ => self.form(node),
        }
    }

    /// Checks a column. `t.f` also calls a function `f` of a row, so each relation that `t` may mean
    /// has to have that column.
    fn column(&mut self, column: &mut ColumnRef) -> Result<(), String> {
        column.location = 0;
        if let [schema, table, _] = column.fields.as_slice() {
            let of = |name: &Node| text_of(name).unwrap_or_default().to_owned();
            let key = format!("{}.{}", of(schema), of(table));
            if self.rules.tables.contains_key(&key) {
                column.fields.remove(0);
            }
        }
        if let Some((table, columns)) = &mut self.filtered {
            columns.extend(column.fields.last().and_then(text_of).map(str::to_owned));
            if column.fields.len() == 1 {
                column.fields.insert(0, text_node(table));
            }
        }
        let (qualifier, last) = match column.fields.as_slice() {
            [last] => (None, last),
            [qualifier, last] => (text_of(qualifier), last),
            _ => return Err("a column is written as column or table.column".to_owned()),
        };
        let name = match &last.node {
            Some(NodeEnum::AStar(_)) => None,
            Some(NodeEnum::String(name)) => Some(&name.sval),
            _ => return refuse("a column of this kind"),
        };
        if let Some(name) = name.filter(|name| SYSTEM_COLUMNS.contains(&name.as_str())) {
            return Err(format!("system column {name} is not allowed"));
        }
        let Some(qualifier) = qualifier else {
            return Ok(());
        };
        let relations = self.scopes.iter().flatten();
        let mut relations = relations
            .filter(|(relation, _)| relation == qualifier)
            .peekable();
        if relations.peek().is_none() {
            return Err(format!("{} is not in FROM", shown(qualifier)));
        }
        let mut columns = relations.filter_map(|(_, columns)| columns.as_ref());
        match name {
            Some(name) if columns.any(|columns| !columns.contains(name)) => Err(format!(
                "{}.{} is not a column of every relation of this name",
                shown(qualifier),
                shown(name)
            )),
            _ => Ok(()),
        }
    }

    fn call(&mut self, call: &mut FuncCall) -> Result<(), String> {
        let FuncCall {
            funcname,
            args,
            agg_order,
            agg_filter,
            over,
            agg_within_group: _,
            agg_star: _,
            agg_distinct: _,
            func_variadic: _,
            funcformat: _,
            location,
        } = call;
        self.function(funcname)?;
        if let Some(window) = over {
            self.window(window)?;
        }
        self.nodes(agg_order)?;
        self.parts(location, [agg_filter], args)
    }

    /// Checks a function, and adds the schema of one of the rules.
    fn function(&self, names: &mut Vec<Node>) -> Result<(), String> {
        let allowed = &self.rules.functions;
        let is_own = |name: &str| has(POSTGRES, name) || allowed.contains(name);
        let schema = match texts(names)?.as_slice() {
            [name] if is_own(name) => None,
            [CATALOG, name] if is_own(name) => None,
            [schema, name] if allowed.contains(&format!("{schema}.{name}")) => None,
            [name] => {
                let mut found = allowed.iter().filter_map(|one| one.split_once('.'));
                let schema = found.find(|(_, own)| own == name).map(|(schema, _)| schema);
                Some(schema.ok_or_else(|| not_a_function(name))?)
            }
            other => return Err(not_a_function(&other.join("."))),
        };
        if let Some(schema) = schema {
            names.insert(0, text_node(schema));
        }
        Ok(())
    }

    fn window(&mut self, window: &mut WindowDef) -> Result<(), String> {
        let WindowDef {
            name: _,
            refname: _,
            partition_clause,
            order_clause,
            frame_options: _,
            start_offset,
            end_offset,
            location,
        } = window;
        self.nodes(order_clause)?;
        self.parts(location, [start_offset, end_offset], partition_clause)
    }

    fn operation(&mut self, expr: &mut AExpr) -> Result<(), String> {
        let AExpr {
            kind: _,
            name,
            lexpr,
            rexpr,
            rexpr_list_start,
            rexpr_list_end,
            location,
        } = expr;
        (*rexpr_list_start, *rexpr_list_end) = (0, 0);
        operator(name)?;
        self.parts(location, [lexpr, rexpr], &mut [])
    }

    fn sub_link(&mut self, link: &mut SubLink) -> Result<(), String> {
        let SubLink {
            xpr,
            sub_link_type: _,
            sub_link_id: _,
            testexpr,
            oper_name,
            subselect,
            location,
        } = link;
        if !oper_name.is_empty() {
            operator(oper_name)?;
        }
        if self.filtered.is_some() {
            return refuse("a subquery in a filter");
        }
        match subselect.as_mut().map(|select| &mut select.node) {
            Some(Some(NodeEnum::SelectStmt(select))) => self.select(select).map(|_| ())?,
            _ => return refuse("a subquery other than SELECT"),
        }
        self.parts(location, [xpr, testexpr], &mut [])
    }

    /// Walks the subscripts of an array. A field of a composite value may be a call.
    pub(super) fn subscripts(&mut self, subscripts: &mut [Node]) -> Result<(), String> {
        for subscript in subscripts {
            let Some(NodeEnum::AIndices(indices)) = &mut subscript.node else {
                return refuse("a field of a composite value");
            };
            let AIndices {
                is_slice: _,
                lidx,
                uidx,
            } = indices.as_mut();
            self.maybe(lidx)?;
            self.maybe(uidx)?;
        }
        Ok(())
    }

    fn type_name(&mut self, name: &mut TypeName) -> Result<(), String> {
        let TypeName {
            names,
            type_oid,
            setof,
            pct_type,
            typmods,
            typemod: _,
            array_bounds: _,
            location,
        } = name;
        *location = 0;
        let (own, names) = match texts(names)?.as_slice() {
            [name] | [CATALOG, name] => (has(POSTGRES_TYPES, name), (*name).to_owned()),
            other => (false, other.join(".")),
        };
        if !own || *type_oid != 0 || *setof || *pct_type {
            return Err(format!(
                "type {} is not allowed; allowed are plain types such as text, numeric, date, jsonb",
                shown(&names)
            ));
        }
        for number in typmods {
            let is_small = match &number.node {
                Some(NodeEnum::AConst(number)) => match &number.val {
                    Some(a_const::Val::Ival(number)) => number.ival.abs() <= TYPE_NUMBER_MAX,
                    _ => false,
                },
                _ => false,
            };
            if !is_small {
                return Err(format!("a number in a type is at most {TYPE_NUMBER_MAX}"));
            }
            self.node(number)?;
        }
        Ok(())
    }
}

fn text_node(text: &str) -> Node {
    let sval = text.to_owned();
    let node = Some(NodeEnum::String(Text { sval }));
    Node { node }
}

fn not_a_function(name: &str) -> String {
    format!(
        "function {} is not allowed; allowed are aggregates, window functions and plain functions of text, numbers, dates, arrays and JSON",
        shown(name)
    )
}

fn operator(names: &[Node]) -> Result<(), String> {
    match texts(names)?.as_slice() {
        [name] | [CATALOG, name] if has(POSTGRES_OPERATORS, name) => Ok(()),
        // Names of LIKE, BETWEEN, IN and their kin.
        [name]
            if name
                .chars()
                .all(|one| one.is_ascii_uppercase() || one == ' ') =>
        {
            Ok(())
        }
        other => Err(format!(
            "operator {} is not allowed",
            shown(&other.join("."))
        )),
    }
}
