//! Expressions with a syntax of their own.

use pg_query::protobuf::{
    AArrayExpr, AIndirection, BoolExpr, BooleanTest, CaseExpr, CaseWhen, CoalesceExpr,
    CollateClause, GroupingFunc, GroupingSet, MinMaxExpr, MultiAssignRef, NamedArgExpr, NullTest,
    RowExpr, SetToDefault, SqlValueFunction, SqlValueFunctionOp,
};
use pg_query::{Node, NodeEnum};

use super::expressions::CATALOG;
use super::{Walk, refuse, texts};

impl Walk<'_> {
    /// Walks an expression that is a condition, or of another kind.
    pub(super) fn form(&mut self, node: &mut Node) -> Result<(), String> {
        match &mut node.node {
            Some(NodeEnum::BoolExpr(expr)) => {
                let BoolExpr {
                    xpr,
                    boolop: _,
                    args,
                    location,
                } = expr.as_mut();
                self.parts(location, [xpr], args)
            }
            Some(NodeEnum::NullTest(test)) => {
                let NullTest {
                    xpr,
                    arg,
                    nulltesttype: _,
                    argisrow: _,
                    location,
                } = test.as_mut();
                self.parts(location, [xpr, arg], &mut [])
            }
            Some(NodeEnum::BooleanTest(test)) => {
                let BooleanTest {
                    xpr,
                    arg,
                    booltesttype: _,
                    location,
                } = test.as_mut();
                self.parts(location, [xpr, arg], &mut [])
            }
            Some(NodeEnum::CaseExpr(case)) => {
                let CaseExpr {
                    xpr,
                    casetype: _,
                    casecollid: _,
                    arg,
                    args,
                    defresult,
                    location,
                } = case.as_mut();
                self.parts(location, [xpr, arg, defresult], args)
            }
            Some(NodeEnum::CaseWhen(when)) => {
                let CaseWhen {
                    xpr,
                    expr,
                    result,
                    location,
                } = when.as_mut();
                self.parts(location, [xpr, expr, result], &mut [])
            }
            _ => self.values(node),
        }
    }

    /// Walks an expression made of a list of others.
    fn values(&mut self, node: &mut Node) -> Result<(), String> {
        match &mut node.node {
            Some(NodeEnum::CoalesceExpr(expr)) => {
                let CoalesceExpr {
                    xpr,
                    coalescetype: _,
                    coalescecollid: _,
                    args,
                    location,
                } = expr.as_mut();
                self.parts(location, [xpr], args)
            }
            Some(NodeEnum::MinMaxExpr(expr)) => {
                let MinMaxExpr {
                    xpr,
                    minmaxtype: _,
                    minmaxcollid: _,
                    inputcollid: _,
                    op: _,
                    args,
                    location,
                } = expr.as_mut();
                self.parts(location, [xpr], args)
            }
            Some(NodeEnum::AArrayExpr(AArrayExpr {
                elements,
                list_start,
                list_end,
                location,
            })) => {
                (*list_start, *list_end) = (0, 0);
                self.parts(location, [], elements)
            }
            Some(NodeEnum::RowExpr(row)) => {
                let RowExpr {
                    xpr,
                    args,
                    row_typeid: _,
                    row_format: _,
                    colnames,
                    location,
                } = row.as_mut();
                texts(colnames)?;
                self.parts(location, [xpr], args)
            }
            Some(NodeEnum::GroupingSet(GroupingSet {
                kind: _,
                content,
                location,
            })) => self.parts(location, [], content),
            Some(NodeEnum::GroupingFunc(function)) => {
                let GroupingFunc {
                    xpr,
                    args,
                    refs,
                    agglevelsup: _,
                    location,
                } = function.as_mut();
                self.nodes(refs)?;
                self.parts(location, [xpr], args)
            }
            _ => self.rare(node),
        }
    }

    /// Walks an expression of the rarer kinds, and refuses those that are not known.
    fn rare(&mut self, node: &mut Node) -> Result<(), String> {
        match &mut node.node {
            Some(NodeEnum::AIndirection(indirection)) => {
                let AIndirection { arg, indirection } = indirection.as_mut();
                self.subscripts(indirection)?;
                self.maybe(arg)
            }
            Some(NodeEnum::SqlvalueFunction(function)) => {
                let SqlValueFunction {
                    xpr,
                    op,
                    r#type: _,
                    typmod: _,
                    location,
                } = function.as_mut();
                match *op <= SqlValueFunctionOp::SvfopLocaltimestampN as i32 {
                    true => self.parts(location, [xpr], &mut []),
                    false => refuse("asking for the user, database or schema"),
                }
            }
            Some(NodeEnum::CollateClause(clause)) => {
                let CollateClause {
                    arg,
                    collname,
                    location,
                } = clause.as_mut();
                match texts(collname)?.as_slice() {
                    [CATALOG, _] | ["C" | "POSIX" | "default" | "ucs_basic"] => {}
                    _ => return refuse("a collation outside pg_catalog"),
                }
                self.parts(location, [arg], &mut [])
            }
            Some(NodeEnum::SetToDefault(default)) => {
                let SetToDefault {
                    xpr,
                    type_id: _,
                    type_mod: _,
                    collation: _,
                    location,
                } = default.as_mut();
                self.parts(location, [xpr], &mut [])
            }
            Some(NodeEnum::MultiAssignRef(assign)) => {
                let MultiAssignRef {
                    source,
                    colno: _,
                    ncolumns: _,
                } = assign.as_mut();
                self.maybe(source)
            }
            Some(NodeEnum::NamedArgExpr(named)) => {
                let NamedArgExpr {
                    xpr,
                    arg,
                    name: _,
                    argnumber: _,
                    location,
                } = named.as_mut();
                self.parts(location, [xpr, arg], &mut [])
            }
            Some(_) | None => refuse("an expression of this kind"),
        }
    }

    pub(super) fn parts<const N: usize>(
        &mut self,
        location: &mut i32,
        some: [&mut Option<Box<Node>>; N],
        all: &mut [Node],
    ) -> Result<(), String> {
        *location = 0;
        some.into_iter().try_for_each(|one| self.maybe(one))?;
        self.nodes(all)
    }
}
