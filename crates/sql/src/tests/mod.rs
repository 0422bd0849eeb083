//! Statements that are allowed with their exact texts, and attacks with the reason of refusal.

mod postgres;
mod rules;
mod sqlite;

use std::collections::{BTreeMap, BTreeSet};

use crate::{Class, Dialect, Rules, Table};

/// Rules with a filtered table, one of two columns, and an open one.
fn rules(dialect: Dialect) -> Rules {
    let named = |columns: &[&str], filter: Option<&str>| Table {
        columns: Some(columns.iter().map(|one| (*one).to_owned()).collect()),
        filter: filter.map(str::to_owned),
    };
    let tables = [
        (
            "shop.orders",
            named(&["id", "total", "note"], Some("tenant = 'a'")),
        ),
        ("hr.staff", named(&["id", "name"], None)),
        ("shop.items", Table::default()),
    ];
    let key = |key: &str| match (dialect, key.split_once('.')) {
        (Dialect::Sqlite, Some((_, name))) => name.to_owned(),
        _ => key.to_owned(),
    };
    Rules {
        dialect,
        classes: Class::ALL.into_iter().collect(),
        tables: BTreeMap::from(tables.map(|(name, table)| (key(name), table))),
        functions: BTreeSet::from(match dialect {
            Dialect::Postgres => ["shop.tax".to_owned()],
            Dialect::Sqlite => ["tax".to_owned()],
        }),
    }
}

/// Judges statements, and compares what became of them; `ORDERS` and `STAFF` stand for the queries
/// in place of these tables.
fn check_allowed(dialect: Dialect, orders: &str, staff: &str, cases: &[(&str, &str)]) {
    let rules = rules(dialect);
    for (statement, expected) in cases {
        let expected = expected.replace("ORDERS", orders).replace("STAFF", staff);
        let text = rules.judge(statement).map(|judged| judged.text);
        assert_eq!(text, Ok(expected), "{statement}");
    }
}

fn check_refused(dialect: Dialect, cases: &[(&str, &str)]) {
    let rules = rules(dialect);
    for (statement, reason) in cases {
        match rules.judge(statement) {
            Ok(judged) => panic!("{statement}\n  became {}", judged.text),
            Err(error) => assert!(error.contains(reason), "{statement}\n  {error}"),
        }
    }
}

/// Statements that are deep or long in all ways that a text can be.
fn deep(times: usize) -> Vec<String> {
    let nested = |open: &str, middle: &str, close: &str| {
        format!("{}{middle}{}", open.repeat(times), close.repeat(times))
    };
    vec![
        format!("SELECT {}", nested("(", "1", ")")),
        format!("SELECT {}", nested("(SELECT ", "1", ")")),
        format!(
            "SELECT * FROM {}",
            nested("(SELECT * FROM ", "items", ") x")
        ),
        format!("SELECT * FROM {}", nested("(", "items", ")")),
        format!("SELECT {}", nested("abs(", "1", ")")),
        format!("SELECT {}", nested("CASE WHEN ", "true", " THEN 1 END")),
        format!("SELECT {}", nested("NOT ", "true", "")),
        format!("SELECT {}", nested("- ", "1", "")),
        format!("SELECT 1{}", "+1".repeat(times)),
        format!("SELECT {}", nested("(", "1", "+1)")),
        format!("SELECT 'a'{}", "||'a'".repeat(times)),
        format!("SELECT 1{}", " AND 1".repeat(times)),
        format!("SELECT 1{}", " IS NULL".repeat(times)),
        format!("SELECT 1{}", "::text".repeat(times)),
        format!("SELECT 1 {}", "UNION SELECT 1 ".repeat(times)),
        format!("SELECT 1, 2 {}", "UNION SELECT 1, 2 ".repeat(times)),
        format!(
            "SELECT * FROM items {}",
            "NATURAL JOIN items ".repeat(times)
        ),
        format!("SELECT a{}", "[1]".repeat(times)),
        format!("SELECT a{}", ".a".repeat(times)),
        format!("SELECT 1 IN ({}", "1 IN (".repeat(times)),
        format!("SELECT {}", "/*".repeat(times)),
        format!("SELECT {}", "1".repeat(times)),
        {
            let chain = "+1".repeat(times);
            let nest = times.min(320) / 20;
            let (open, close) = ("(SELECT ".repeat(nest), ")".repeat(nest));
            format!("SELECT {open}1{chain}{close}")
        },
        format!(
            "WITH {} SELECT 1",
            nested("x AS (WITH ", "y AS (SELECT 1)", " SELECT 1)")
        ),
    ]
}

#[test]
fn depth_and_length_are_bounded() {
    for dialect in [Dialect::Postgres, Dialect::Sqlite] {
        let rules = rules(dialect);
        for times in [10, 30, 100, 150, 300, 400, 1000, 3000, 10_000] {
            for statement in deep(times) {
                let judged = rules.judge(&statement);
                assert!(times < 10_000 || judged.is_err() || !statement.contains('('));
            }
        }
        let long = format!("SELECT '{}'", "a".repeat(64 << 10));
        assert!(
            rules
                .judge(&long)
                .is_err_and(|error| error.contains("longer than"))
        );
        let open = format!("SELECT '{}", "\u{1b}\n".repeat(20_000));
        let error = rules.judge(&open).unwrap_err();
        assert!(error.len() <= 1000 && !error.contains(char::is_control));
        let many: Vec<String> = (0..65).map(|at| format!("items i{at}")).collect();
        let many = format!("SELECT 1 FROM {}", many.join(", "));
        assert!(
            rules
                .judge(&many)
                .is_err_and(|error| error.contains("at most 64 tables"))
        );
        let list: Vec<String> = (0..9000).map(|at| at.to_string()).collect();
        let list = format!("SELECT 1 FROM items WHERE id IN ({})", list.join(", "));
        assert!(rules.judge(&list).is_ok());
    }
}
