use super::{check_allowed, check_refused, rules};
use crate::Dialect;

const ORDERS: &str = "(SELECT orders.id, orders.total, orders.note FROM main.orders WHERE (orders.tenant = 'a') LIMIT -1)";
const STAFF: &str = "(SELECT staff.id, staff.name FROM main.staff)";

fn allowed(cases: &[(&str, &str)]) {
    check_allowed(Dialect::Sqlite, ORDERS, STAFF, cases);
}

fn refused(cases: &[(&str, &str)]) {
    check_refused(Dialect::Sqlite, cases);
}

#[test]
fn tables_are_replaced_wherever_they_stand() {
    allowed(&[
        ("SELECT * FROM orders", "SELECT * FROM ORDERS AS orders"),
        (
            "SELECT orders.* FROM main.Orders",
            "SELECT orders.* FROM ORDERS AS orders",
        ),
        (
            "SELECT main.orders.id FROM orders",
            "SELECT orders.id FROM ORDERS AS orders",
        ),
        (
            "SELECT id FROM orders ORDER BY secret",
            "SELECT id FROM ORDERS AS orders ORDER BY secret",
        ),
        (
            "SELECT * FROM items NATURAL JOIN orders LEFT JOIN staff s USING (id)",
            "SELECT * FROM main.items NATURAL JOIN ORDERS AS orders LEFT JOIN STAFF s USING(id)",
        ),
        (
            "SELECT 1 UNION ALL SELECT id FROM orders EXCEPT SELECT 2 ORDER BY 1",
            "SELECT 1 UNION ALL SELECT id FROM ORDERS AS orders EXCEPT SELECT 2 ORDER BY 1",
        ),
        (
            "SELECT i.id, (SELECT max(total) FROM orders o WHERE o.id = i.id) FROM items i WHERE EXISTS (SELECT 1 FROM staff)",
            "SELECT i.id, (SELECT max(total) FROM ORDERS o WHERE o.id = i.id) FROM main.items i WHERE EXISTS (SELECT 1 FROM STAFF AS staff)",
        ),
        (
            "WITH x(a) AS (SELECT id FROM orders), y AS (SELECT x.a FROM x) SELECT * FROM y",
            "WITH x (a) AS (SELECT id FROM ORDERS AS orders), y AS (SELECT x.a FROM x) SELECT * FROM y",
        ),
        (
            "SELECT e.key, e.value FROM items, json_each(items.name) AS e",
            "SELECT e.[key], e.value FROM main.items, json_each(items.name) AS e",
        ),
    ]);
}

#[test]
fn names_are_quoted_alike() {
    allowed(&[
        (
            "SELECT \"id\", `total`, [note], \"secret\" FROM \"orders\"",
            "SELECT [id], total, note, [secret] FROM ORDERS AS orders",
        ),
        (
            "SELECT id AS \"a b\" FROM 'items'",
            "SELECT id AS [a b] FROM main.items",
        ),
        (
            "SELECT items.order FROM items",
            "SELECT items.[order] FROM main.items",
        ),
    ]);
    refused(&[
        ("SELECT \"a\"\"; DROP\" FROM items", "the name"),
        ("SELECT [a'] FROM items", "the name"),
        ("SELECT `a\nb` FROM items", "the name"),
    ]);
}

#[test]
fn expressions_keep_their_meaning() {
    allowed(&[
        ("SELECT 1 -- ; DROP TABLE x", "SELECT 1"),
        ("SELECT /* a */ 1;", "SELECT 1"),
        (
            "SELECT 'it''s', 'a\\', 1.5e3, ?, ?1, :a",
            "SELECT 'it''s', 'a\\', 1.5e3, ?, ?1, :a",
        ),
        (
            "SELECT CASE WHEN id IN (1, 2) THEN 2 ELSE - -3 END, NOT id, ~1 << 2, 1 == 1, name IS NOT 'b', name GLOB 'a*' FROM staff",
            "SELECT CASE WHEN id IN (1, 2) THEN 2 ELSE - -3 END, NOT id, ~ 1 << 2, 1 = 1, name IS NOT 'b', name GLOB 'a*' FROM STAFF AS staff",
        ),
        (
            "SELECT substr(name, 1, 2), trim(name), floor(1.5), CAST(id AS TEXT), name -> '$.a', name COLLATE NOCASE, CURRENT_TIMESTAMP, strftime('%Y', 'now') FROM staff",
            "SELECT SUBSTR(name, 1, 2), TRIM(name), FLOOR(1.5), CAST(id AS TEXT), name -> '$.a', name COLLATE NOCASE, current_timestamp, strftime('%Y', 'now') FROM STAFF AS staff",
        ),
        (
            "SELECT group_concat(DISTINCT name), count(*) FILTER (WHERE id > 1), rank() OVER w, sum(id) OVER (ORDER BY id ROWS 1 PRECEDING), tax(id) FROM staff WINDOW w AS (PARTITION BY name)",
            "SELECT group_concat(DISTINCT name), count(*) FILTER (WHERE id > 1), rank() OVER w, sum(id) OVER (ORDER BY id ROWS 1 PRECEDING), tax(id) FROM STAFF AS staff WINDOW w AS (PARTITION BY name)",
        ),
        ("VALUES (1, 'a'), (2, 'b')", "VALUES (1, 'a'), (2, 'b')"),
        (
            "SELECT DISTINCT id FROM items ORDER BY id DESC NULLS LAST LIMIT 2, 3",
            "SELECT DISTINCT id FROM main.items ORDER BY id DESC NULLS LAST LIMIT 2, 3",
        ),
    ]);
}

#[test]
fn open_tables_are_written_to() {
    allowed(&[
        (
            "INSERT OR IGNORE INTO items (id, name) SELECT id, note FROM orders WHERE true RETURNING id",
            "INSERT OR IGNORE INTO main.items (id, name) SELECT id, note FROM ORDERS AS orders WHERE true RETURNING id",
        ),
        (
            "INSERT INTO items VALUES (?, 2) ON CONFLICT (id) DO UPDATE SET name = excluded.name WHERE true",
            "INSERT INTO main.items VALUES (?, 2) ON CONFLICT(id) DO UPDATE SET name = excluded.name WHERE true",
        ),
        (
            "UPDATE items SET name = (SELECT o.note FROM orders o) FROM staff s WHERE s.id = items.id",
            "UPDATE main.items SET name = (SELECT o.note FROM ORDERS o) FROM STAFF s WHERE s.id = items.id",
        ),
        (
            "DELETE FROM items WHERE id IN (SELECT id FROM orders) RETURNING *",
            "DELETE FROM main.items WHERE id IN (SELECT id FROM ORDERS AS orders) RETURNING *",
        ),
    ]);
    refused(&[
        (
            "INSERT INTO staff VALUES (1)",
            "can only be read; tables to write to: items",
        ),
        ("UPDATE orders SET total = 1", "can only be read"),
        ("DELETE FROM orders", "can only be read"),
        ("REPLACE INTO items VALUES (1)", "REPLACE"),
        ("INSERT OR REPLACE INTO items VALUES (1)", "REPLACE"),
        ("INSERT OR ROLLBACK INTO items VALUES (1)", "REPLACE"),
        ("UPDATE OR REPLACE items SET id = 1", "UPDATE with OR"),
        (
            "INSERT INTO sqlite_master VALUES (1)",
            "table sqlite_master",
        ),
        (
            "DELETE FROM items WHERE id = (SELECT 1 FROM secrets)",
            "table secrets",
        ),
        (
            "INSERT INTO items VALUES (1) RETURNING (SELECT 1 FROM secrets)",
            "table secrets",
        ),
    ]);
    let mut rules = rules(Dialect::Sqlite);
    rules.classes.remove(&crate::Class::Select);
    let copies = "INSERT INTO items SELECT id FROM orders";
    assert!(
        rules
            .judge(copies)
            .is_err_and(|error| error.contains("select is not allowed"))
    );
}

#[test]
fn other_statements_are_refused() {
    refused(&[
        ("", "exactly one"),
        ("SELECT 1; DELETE FROM items", "exactly one"),
        ("ATTACH DATABASE '/tmp/x' AS y", "only SELECT"),
        ("PRAGMA table_info(items)", ""),
        ("VACUUM INTO '/tmp/x'", ""),
        ("EXPLAIN SELECT 1", "only SELECT"),
        ("DROP TABLE items", "only SELECT"),
        ("CREATE TABLE x (a)", "only SELECT"),
        (
            "CREATE TRIGGER t AFTER INSERT ON items BEGIN SELECT 1; END",
            "only SELECT",
        ),
        ("BEGIN", "only SELECT"),
        ("SAVEPOINT x", "only SELECT"),
        ("SELECT 1 INTO x", "INTO"),
        ("SELECT 1 FROM items FOR UPDATE", "FOR"),
        ("FROM items SELECT id", ""),
        ("SELECT TOP 1 id FROM items", ""),
        ("SELECT * EXCLUDE (id) FROM items", ""),
    ]);
}

#[test]
fn effects_in_expressions_are_refused() {
    refused(&[
        (
            "SELECT load_extension('/tmp/x.so')",
            "function load_extension",
        ),
        ("SELECT readfile('/etc/passwd')", "function readfile"),
        ("SELECT [readfile]('/etc/passwd')", "function readfile"),
        ("SELECT writefile('/tmp/x', 'y')", "function writefile"),
        ("SELECT main.abs(1)", "function abs"),
        ("SELECT randomblob(1000000000)", "function randomblob"),
        ("SELECT zeroblob(1000000000)", "function zeroblob"),
        ("SELECT printf('%1000000000d', 1)", "function printf"),
        ("SELECT sqlite_version()", "function sqlite_version"),
        ("SELECT fts3_tokenizer('x')", "function fts3_tokenizer"),
        (
            "SELECT * FROM pragma_table_info('items')",
            "function pragma_table_info",
        ),
        (
            "SELECT * FROM generate_series(1, 1000000000)",
            "function generate_series",
        ),
        (
            "SELECT count(*) FILTER (WHERE readfile('x')) FROM items",
            "function readfile",
        ),
        (
            "SELECT sum(id) OVER (ORDER BY readfile('x')) FROM items",
            "function readfile",
        ),
        (
            "SELECT id FROM items LIMIT readfile('x')",
            "function readfile",
        ),
        ("SELECT name MATCH 'x' FROM items", "operator"),
        ("SELECT name REGEXP 'x' FROM items", "operator"),
        ("SELECT 'a' COLLATE evil", "collation"),
        ("SELECT 'a'::text", "expression of this kind"),
        ("SELECT CAST(1 AS evil)", "a type is"),
        ("SELECT 0x10", "a value is"),
        ("SELECT $a::b(c)", ""),
    ]);
}

#[test]
fn other_tables_and_columns_are_refused() {
    refused(&[
        (
            "SELECT * FROM secrets",
            "table secrets is not allowed; allowed: items, orders, staff",
        ),
        ("SELECT * FROM sqlite_master", "table sqlite_master"),
        ("SELECT * FROM sqlite_schema", "table sqlite_schema"),
        ("SELECT * FROM temp.orders", "temp.orders"),
        ("SELECT * FROM other.orders", "other.orders"),
        ("SELECT rowid FROM orders", "column rowid"),
        ("SELECT \"_ROWID_\" FROM items", "column _ROWID_"),
        ("SELECT 1 UNION SELECT 1 FROM secrets", "table secrets"),
        ("SELECT (SELECT 1 FROM secrets)", "table secrets"),
        ("SELECT 1 FROM items WHERE id IN secrets", "IN with a table"),
        ("SELECT * FROM (items JOIN secrets)", "table secrets"),
        (
            "WITH orders AS (SELECT 1) SELECT * FROM orders",
            "name of something else",
        ),
        (
            "WITH ORDERS AS (SELECT 1) SELECT * FROM orders",
            "name of something else",
        ),
        ("WITH RECURSIVE x AS (SELECT 1) SELECT 1", "RECURSIVE"),
        (
            "WITH x AS (SELECT 1 UNION ALL SELECT * FROM x) SELECT * FROM x",
            "table x",
        ),
        ("SELECT (WITH x AS (SELECT 1) SELECT 1) FROM x", "table x"),
        (
            "WITH x AS (DELETE FROM items RETURNING *) SELECT * FROM x",
            "query of this kind",
        ),
        ("SELECT * FROM orders AS o(a)", "renaming"),
    ]);
}

/// The writer of texts takes a quote after another one or a backslash for escaped already.
#[test]
fn texts_with_odd_quotes_are_refused() {
    refused(&[
        ("SELECT ''''''", ""),
        ("SELECT '\\'' || (SELECT 1 FROM secrets) || ''", ""),
        ("SELECT 'a\\''b'", ""),
    ]);
}
