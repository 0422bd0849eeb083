//! Expressions.

use sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, CeilFloorKind, DataType, DateTimeField, ExactNumberInfo,
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArgumentList,
    FunctionArguments, Ident, InTarget, OrderByExpr, UnaryOperator, Value, WindowFrame,
    WindowFrameBound, WindowSpec, WindowType,
};

use super::{Walk, from, ident, only, own_ident, refuse, single};
use crate::functions::{SQLITE, has};
use crate::names::{ROW_IDS, SQLITE_SCHEMA, shown};

impl Walk<'_> {
    /// Walks expressions, or one that may be there.
    pub(super) fn all<'e>(
        &mut self,
        all: impl IntoIterator<Item = &'e mut Expr>,
    ) -> Result<(), String> {
        all.into_iter().try_for_each(|one| self.expr(one))
    }

    /// Walks an expression, and refuses those that are not known.
    pub(super) fn expr(&mut self, expr: &mut Expr) -> Result<(), String> {
        match expr {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => self.column(expr),
            Expr::Value(value) => {
                let is_parameter = matches!(value.value, Value::Placeholder(_));
                only(
                    "a parameter in a filter",
                    is_parameter && self.filtered.is_some(),
                )?;
                check_value(&value.value)
            }
            Expr::Function(function) => self.call(function),
            Expr::BinaryOp { left, op, right } => {
                check_operator(op)?;
                self.expr(left)?;
                self.expr(right)
            }
            Expr::UnaryOp { op, expr } => match op {
                UnaryOperator::Plus
                | UnaryOperator::Minus
                | UnaryOperator::Not
                | UnaryOperator::BitwiseNot => self.expr(expr),
                _ => refuse("an operator of this kind"),
            },
            Expr::Nested(expr)
            | Expr::IsFalse(expr)
            | Expr::IsNotFalse(expr)
            | Expr::IsTrue(expr)
            | Expr::IsNotTrue(expr)
            | Expr::IsNull(expr)
            | Expr::IsNotNull(expr) => self.expr(expr),
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                self.expr(left)?;
                self.expr(right)
            }
            Expr::Between {
                expr,
                negated: _,
                low,
                high,
            } => self.all([expr, low, high].map(AsMut::as_mut)),
            Expr::Tuple(all) => self.all(all),
            Expr::Subquery(query) => self.query(query),
            Expr::Exists {
                subquery,
                negated: _,
            } => self.query(subquery),
            Expr::Case {
                case_token: _,
                end_token: _,
                operand,
                conditions,
                else_result,
            } => {
                self.all(operand.as_deref_mut())?;
                for CaseWhen { condition, result } in conditions {
                    self.all([condition, result])?;
                }
                self.all(else_result.as_deref_mut())
            }
            _ => self.form(expr),
        }
    }

    /// Walks an expression with a syntax of its own.
    fn form(&mut self, expr: &mut Expr) -> Result<(), String> {
        match expr {
            Expr::In {
                expr,
                target,
                negated: _,
                global: false,
            } => {
                self.expr(expr)?;
                match target {
                    InTarget::List(all) => self.all(all),
                    InTarget::Subquery(query) => self.query(query),
                    InTarget::Unnest(_) | InTarget::Table { .. } => {
                        refuse("IN with a table in place of a list or a subquery")
                    }
                }
            }
            Expr::Like {
                negated: _,
                any: false,
                expr,
                pattern,
                escape_char,
            } => {
                self.all([expr, pattern].map(AsMut::as_mut))?;
                self.all(escape_char.as_deref_mut())
            }
            Expr::Cast {
                kind: CastKind::Cast,
                expr,
                data_type,
                format: None,
            } => {
                check_type(data_type)?;
                self.expr(expr)
            }
            Expr::Collate { expr, collation } => {
                single(collation)?;
                let (_, name) = from::names(collation)?;
                match ["BINARY", "NOCASE", "RTRIM"].contains(&name.to_ascii_uppercase().as_str()) {
                    true => self.expr(expr),
                    false => refuse("a collation of one's own"),
                }
            }
            _ => self.call_form(expr),
        }
    }

    /// Walks a call that the parser knows as a form of its own.
    fn call_form(&mut self, expr: &mut Expr) -> Result<(), String> {
        match expr {
            Expr::Ceil {
                expr,
                field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime),
            }
            | Expr::Floor {
                expr,
                field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime),
            } => self.expr(expr),
            Expr::Substring {
                expr,
                substring_from,
                substring_for,
                special: true,
                shorthand: _,
            } => {
                self.expr(expr)?;
                self.all(substring_from.as_deref_mut())?;
                self.all(substring_for.as_deref_mut())
            }
            Expr::Trim {
                trim_where: None,
                trim_what: None,
                expr,
                trim_characters,
            } => {
                self.expr(expr)?;
                self.all(trim_characters.iter_mut().flatten())
            }
            _ => refuse("an expression of this kind"),
        }
    }

    fn column(&mut self, expr: &mut Expr) -> Result<(), String> {
        let parts: &mut [Ident] = match expr {
            Expr::Identifier(name) => std::slice::from_mut(name),
            Expr::CompoundIdentifier(parts) => parts,
            _ => &mut [],
        };
        parts.iter_mut().try_for_each(ident)?;
        let (table, name) = match parts {
            [name] => (None, name),
            [table, name] => (Some(table.clone()), name),
            [schema, table, name] if schema.value.eq_ignore_ascii_case(SQLITE_SCHEMA) => {
                (Some(table.clone()), name)
            }
            _ => return Err("a column is written as column or table.column".to_owned()),
        };
        let table = match (table, &self.filtered) {
            (None, Some(filtered)) => Some(own_ident(filtered)?),
            (table, _) => table,
        };
        let is_same = |other: &String| other.eq_ignore_ascii_case(&name.value);
        let mut named = self
            .rules
            .tables
            .values()
            .filter_map(|one| one.columns.as_ref());
        let is_row_id = ROW_IDS.iter().any(|one| is_same(&(*one).to_owned()));
        if is_row_id && !named.any(|columns| columns.iter().any(is_same)) {
            return Err(format!("column {} is not allowed", shown(&name.value)));
        }
        if let Some(table) = table {
            *expr = Expr::CompoundIdentifier(vec![table, name.clone()]);
        }
        Ok(())
    }

    fn call(&mut self, function: &mut Function) -> Result<(), String> {
        let Function {
            name,
            uses_odbc_syntax,
            parameters,
            args,
            within_group,
            filter,
            null_treatment,
            over,
        } = function;
        let (schema, own) = from::names(name)?;
        let lower = own.to_ascii_lowercase();
        let is_allowed = has(SQLITE, &lower) || self.rules.functions.contains(&lower);
        if !schema.is_empty() || !is_allowed {
            return Err(format!(
                "function {} is not allowed; allowed are aggregates, window functions and plain functions of text, numbers, dates and JSON",
                shown(&own)
            ));
        }
        *name = vec![Ident::new(lower)].into();
        let is_foreign = *uses_odbc_syntax
            || *parameters != FunctionArguments::None
            || !within_group.is_empty()
            || null_treatment.is_some();
        only("a call of this kind", is_foreign)?;
        match args {
            FunctionArguments::None => {}
            FunctionArguments::Subquery(_) => return refuse("a call of this kind"),
            FunctionArguments::List(FunctionArgumentList {
                duplicate_treatment: _,
                args,
                clauses,
            }) => {
                self.arguments(args)?;
                for clause in clauses {
                    match clause {
                        FunctionArgumentClause::OrderBy(all) => self.order(all)?,
                        _ => return refuse("a call of this kind"),
                    }
                }
            }
        }
        self.all(filter.as_deref_mut())?;
        match over {
            Some(WindowType::WindowSpec(spec)) => self.window(spec),
            Some(WindowType::NamedWindow(name)) => ident(name),
            None => Ok(()),
        }
    }

    pub(super) fn arguments(&mut self, arguments: &mut [FunctionArg]) -> Result<(), String> {
        for argument in arguments {
            match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => self.expr(expr)?,
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => {}
                _ => return refuse("an argument of this kind"),
            }
        }
        Ok(())
    }

    pub(super) fn window(&mut self, spec: &mut WindowSpec) -> Result<(), String> {
        let WindowSpec {
            window_name,
            partition_by,
            order_by,
            window_frame,
        } = spec;
        window_name.iter_mut().try_for_each(ident)?;
        self.all(partition_by)?;
        self.order(order_by)?;
        let Some(WindowFrame {
            units: _,
            start_bound,
            end_bound,
        }) = window_frame
        else {
            return Ok(());
        };
        for bound in std::iter::once(start_bound).chain(end_bound) {
            match bound {
                WindowFrameBound::Preceding(bound) | WindowFrameBound::Following(bound) => {
                    self.all(bound.as_deref_mut())?;
                }
                WindowFrameBound::CurrentRow => {}
            }
        }
        Ok(())
    }

    pub(super) fn order(&mut self, all: &mut [OrderByExpr]) -> Result<(), String> {
        for OrderByExpr {
            expr,
            options: _,
            with_fill,
        } in all
        {
            only("WITH FILL", with_fill.is_some())?;
            self.expr(expr)?;
        }
        Ok(())
    }
}

fn check_value(value: &Value) -> Result<(), String> {
    let is_plain = match value {
        Value::SingleQuotedString(_) | Value::Boolean(_) | Value::Null => true,
        Value::Number(number, false) => number
            .bytes()
            .all(|one| one.is_ascii_digit() || b".eE+-".contains(&one)),
        Value::Placeholder(name) => name.strip_prefix(['?', ':', '@', '$']).is_some_and(|rest| {
            rest.bytes()
                .all(|one| one.is_ascii_alphanumeric() || one == b'_')
        }),
        _ => false,
    };
    match is_plain {
        true => Ok(()),
        false => Err("a value is a number or a text in single quotes".to_owned()),
    }
}

fn check_operator(operator: &BinaryOperator) -> Result<(), String> {
    match operator {
        BinaryOperator::Plus
        | BinaryOperator::Minus
        | BinaryOperator::Multiply
        | BinaryOperator::Divide
        | BinaryOperator::Modulo
        | BinaryOperator::StringConcat
        | BinaryOperator::Gt
        | BinaryOperator::Lt
        | BinaryOperator::GtEq
        | BinaryOperator::LtEq
        | BinaryOperator::Eq
        | BinaryOperator::NotEq
        | BinaryOperator::And
        | BinaryOperator::Or
        | BinaryOperator::BitwiseOr
        | BinaryOperator::BitwiseAnd
        | BinaryOperator::PGBitwiseShiftLeft
        | BinaryOperator::PGBitwiseShiftRight
        | BinaryOperator::Arrow
        | BinaryOperator::LongArrow
        | BinaryOperator::Glob
        | BinaryOperator::Is
        | BinaryOperator::IsNot => Ok(()),
        // MATCH and REGEXP call functions that anybody may have defined.
        _ => refuse("an operator of this kind"),
    }
}

fn check_type(data_type: &DataType) -> Result<(), String> {
    match data_type {
        DataType::Int(None)
        | DataType::Integer(None)
        | DataType::BigInt(None)
        | DataType::SmallInt(None)
        | DataType::Real
        | DataType::Double(ExactNumberInfo::None)
        | DataType::DoublePrecision
        | DataType::Float(ExactNumberInfo::None)
        | DataType::Numeric(_)
        | DataType::Decimal(_)
        | DataType::Text
        | DataType::Varchar(_)
        | DataType::Boolean
        | DataType::Date
        | DataType::Blob(None) => Ok(()),
        _ => Err("a type is integer, real, text, numeric or blob".to_owned()),
    }
}
