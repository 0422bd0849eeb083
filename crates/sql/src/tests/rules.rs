use super::rules;
use crate::{Class, Dialect, Table};

fn check_table(
    dialect: Dialect,
    key: &str,
    columns: Option<&[&str]>,
    filter: &str,
) -> Result<(), String> {
    let mut rules = rules(dialect);
    let columns = columns.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
    let filter = Some(filter.to_owned());
    rules
        .tables
        .insert(key.to_owned(), Table { columns, filter });
    rules.check()
}

#[test]
fn rules_are_checked() {
    let (postgres, sqlite) = (Dialect::Postgres, Dialect::Sqlite);
    for (dialect, key, columns, filter) in [
        (postgres, "a.b", Some(&["id"][..]), "x = 1 OR b.y IS NULL"),
        (
            postgres,
            "a.Order Details",
            None,
            "lower(x) = 'a' -- comment",
        ),
        (sqlite, "order", Some(&["group"]), "x = 'a' OR y"),
    ] {
        assert_eq!(check_table(dialect, key, columns, filter), Ok(()), "{key}");
    }
    for (dialect, key, columns, filter, reason) in [
        (postgres, "b", None, "true", "schema.table"),
        (postgres, "a.b.c", None, "true", "not the name of a table"),
        (postgres, "a.b\"c", None, "true", "not the name of a table"),
        (postgres, "pg_catalog.pg_class", None, "true", "catalog"),
        (
            postgres,
            "information_schema.tables",
            None,
            "true",
            "catalog",
        ),
        (postgres, "a.b", Some(&[][..]), "true", "no column"),
        (postgres, "a.b", Some(&["x", "x"]), "true", "twice"),
        (postgres, "a.b", Some(&["ctid"]), "true", "name of a column"),
        (postgres, "a.b", Some(&["a\"b"]), "true", "name of a column"),
        (postgres, "a.b", None, "", "invalid"),
        (postgres, "a.b", None, "x = ", "invalid"),
        (postgres, "a.b", None, "true) OR (true", "invalid"),
        (postgres, "a.b", None, "true; SELECT 1", "one condition"),
        (postgres, "a.b", None, "true GROUP BY x", "one condition"),
        (postgres, "a.b", None, "true LIMIT 1", "one condition"),
        (postgres, "a.b", None, "x IN (SELECT 1)", "subquery"),
        (postgres, "a.b", None, "pg_sleep(1) IS NULL", "pg_sleep"),
        (postgres, "a.b", None, "c.x = 1", "not in FROM"),
        (postgres, "a.b", None, "x = $1", "parameter"),
        (sqlite, "main.b", None, "true", "without a schema"),
        (sqlite, "sqlite_master", None, "true", "catalog"),
        (sqlite, "ORDERS", None, "true", "twice"),
        (sqlite, "b", None, "true) OR (true", "one condition"),
        (sqlite, "b", None, "true LIMIT 1", "one condition"),
        (sqlite, "b", None, "x IN (SELECT 1)", "subquery"),
        (sqlite, "b", None, "x = ?", "parameter"),
        (sqlite, "b", None, "readfile(x)", "readfile"),
    ] {
        let error = check_table(dialect, key, columns, filter).unwrap_err();
        assert!(error.contains(reason), "{key} {filter}: {error}");
    }
    let mut none = rules(postgres);
    none.tables.clear();
    assert!(none.check().is_err());
    assert!(none.judge("SELECT 1").is_err());
    let mut named = rules(postgres);
    named.functions.insert("Lower".to_owned());
    assert!(named.check().is_err());
}

#[test]
fn bare_names_in_two_schemas_are_refused() {
    let mut rules = rules(Dialect::Postgres);
    rules.tables.insert("hr.items".to_owned(), Table::default());
    let error = rules.judge("SELECT * FROM items").unwrap_err();
    assert!(error.contains("several schemas"), "{error}");
    assert!(rules.judge("SELECT * FROM hr.items").is_ok());
}

#[test]
fn filter_columns_never_come_from_outside() {
    let mut rules = rules(Dialect::Postgres);
    let table = Table {
        columns: Some(vec!["orders".to_owned()]),
        filter: Some("tenant = 'a' AND note LIKE '%x%'".to_owned()),
    };
    rules.tables.insert("shop.orders".to_owned(), table);
    let judged = rules.judge("SELECT (SELECT 1 FROM orders) FROM (SELECT 'a' AS tenant) x");
    let expected = "SELECT (SELECT 1 FROM (SELECT orders.orders FROM shop.orders WHERE orders.tenant = 'a' AND orders.note LIKE '%x%' OFFSET 0) orders) FROM (SELECT 'a' AS tenant) x";
    assert_eq!(judged.map(|judged| judged.text).as_deref(), Ok(expected));
}

#[test]
fn grants_give_just_these_rights() {
    let mut rules = rules(Dialect::Postgres);
    assert_eq!(
        rules.grants("a\"b"),
        [
            "GRANT USAGE ON SCHEMA \"hr\" TO \"a\"\"b\"",
            "GRANT USAGE ON SCHEMA \"shop\" TO \"a\"\"b\"",
            "GRANT SELECT (\"id\", \"name\") ON \"hr\".\"staff\" TO \"a\"\"b\"",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON \"shop\".\"items\" TO \"a\"\"b\"",
            "GRANT SELECT (\"id\", \"total\", \"note\", \"tenant\") ON \"shop\".\"orders\" TO \"a\"\"b\"",
        ]
    );
    rules.classes = [Class::Insert].into();
    assert_eq!(
        rules.grants("r"),
        [
            "GRANT USAGE ON SCHEMA \"shop\" TO \"r\"",
            "GRANT INSERT ON \"shop\".\"items\" TO \"r\"",
        ]
    );
    assert!(super::rules(Dialect::Sqlite).grants("r").is_empty());
}

#[test]
fn classes_have_names() {
    for class in Class::ALL {
        assert_eq!(Class::named(class.name()), Some(class));
    }
    assert_eq!(Class::named("drop"), None);
}
