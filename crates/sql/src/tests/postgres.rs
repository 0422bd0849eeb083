use super::{check_allowed, check_refused, rules};
use crate::Dialect;

const ORDERS: &str = "(SELECT orders.id, orders.total, orders.note FROM shop.orders WHERE orders.tenant = 'a' OFFSET 0)";
const STAFF: &str = "(SELECT staff.id, staff.name FROM hr.staff)";

fn allowed(cases: &[(&str, &str)]) {
    check_allowed(Dialect::Postgres, ORDERS, STAFF, cases);
}

fn refused(cases: &[(&str, &str)]) {
    check_refused(Dialect::Postgres, cases);
}

#[test]
fn tables_are_replaced_wherever_they_stand() {
    allowed(&[
        ("SELECT * FROM orders", "SELECT * FROM ORDERS orders"),
        ("TABLE shop.orders", "SELECT * FROM ORDERS orders"),
        (
            "select orders.* from orders",
            "SELECT orders.* FROM ORDERS orders",
        ),
        (
            "SELECT orders FROM orders",
            "SELECT orders FROM ORDERS orders",
        ),
        (
            "SELECT row_to_json(o) FROM orders o",
            "SELECT row_to_json(o) FROM ORDERS o",
        ),
        (
            "SELECT shop.orders.id FROM shop.orders",
            "SELECT orders.id FROM ORDERS orders",
        ),
        (
            "SELECT id FROM orders ORDER BY secret",
            "SELECT id FROM ORDERS orders ORDER BY secret",
        ),
        (
            "SELECT o.a FROM orders AS o(a, b)",
            "SELECT o.a FROM ORDERS o(a, b)",
        ),
        (
            "SELECT * FROM items NATURAL JOIN orders JOIN staff USING (id)",
            "SELECT * FROM shop.items NATURAL JOIN ORDERS orders JOIN STAFF staff USING (id)",
        ),
        (
            "SELECT 1 UNION ALL SELECT id FROM orders EXCEPT SELECT 2 ORDER BY 1",
            "(SELECT 1 UNION ALL SELECT id FROM ORDERS orders) EXCEPT SELECT 2 ORDER BY 1",
        ),
        (
            "SELECT i.id, (SELECT max(total) FROM orders WHERE orders.id = i.id) FROM items i",
            "SELECT i.id, (SELECT max(total) FROM ORDERS orders WHERE orders.id = i.id) FROM shop.items i",
        ),
        (
            "SELECT * FROM items i, LATERAL (SELECT o.note FROM orders o WHERE o.id = i.id LIMIT 1) x",
            "SELECT * FROM shop.items i, LATERAL (SELECT o.note FROM ORDERS o WHERE o.id = i.id LIMIT 1) x",
        ),
        (
            "WITH x AS (SELECT * FROM orders), y AS MATERIALIZED (SELECT x.id FROM x) SELECT y.id FROM y",
            "WITH x AS (SELECT * FROM ORDERS orders), y AS MATERIALIZED (SELECT x.id FROM x) SELECT y.id FROM y",
        ),
        (
            "SELECT 1 FROM staff WHERE EXISTS (SELECT FROM orders) AND id = ANY (SELECT id FROM orders)",
            "SELECT 1 FROM STAFF staff WHERE EXISTS (SELECT FROM ORDERS orders) AND id = ANY (SELECT id FROM ORDERS orders)",
        ),
    ]);
}

#[test]
fn expressions_keep_their_meaning() {
    allowed(&[
        ("SELECT 1 -- ; DROP TABLE x", "SELECT 1"),
        ("SELECT /* a /* b */ c */ 1;", "SELECT 1"),
        (
            "SELECT $$it's$$, E'a\\'b\\\\', U&'\\0041', 'a'\n'b'",
            "SELECT 'it''s', E'a''b\\\\', 'A', 'ab'",
        ),
        (
            "SELECT \"id\" FROM \"orders\" \"O\"",
            "SELECT id FROM ORDERS \"O\"",
        ),
        (
            "SELECT extract(year FROM now()), current_date, substring('abc' FROM 2), date '2024-01-01'",
            "SELECT extract ('year' FROM now()), current_date, SUBSTRING('abc' FROM 2), '2024-01-01'::date",
        ),
        (
            "SELECT CASE id WHEN 1 THEN 'a' ELSE name END, coalesce(name, ''), greatest(1, 2), id::numeric(10,2) FROM staff",
            "SELECT CASE id WHEN 1 THEN 'a' ELSE name END, COALESCE(name, ''), GREATEST(1, 2), id::numeric(10, 2) FROM STAFF staff",
        ),
        (
            "SELECT name ILIKE 'a%', id BETWEEN 1 AND 2, id NOT IN (1), id IS DISTINCT FROM 2, name COLLATE \"C\", NOT (id IS NULL) FROM staff",
            "SELECT name ILIKE 'a%', id BETWEEN 1 AND 2, id NOT IN (1), id IS DISTINCT FROM 2, name COLLATE \"C\", NOT id IS NULL FROM STAFF staff",
        ),
        (
            "SELECT rank() OVER w, sum(id) FILTER (WHERE id > 1) OVER (ORDER BY id ROWS 1 PRECEDING) FROM staff WINDOW w AS (PARTITION BY name)",
            "SELECT rank() OVER w, sum(id) FILTER (WHERE id > 1) OVER (ORDER BY id ROWS 1 PRECEDING) FROM STAFF staff WINDOW w AS (PARTITION BY name)",
        ),
        (
            "SELECT string_agg(DISTINCT name, ',' ORDER BY name), percentile_cont(0.5) WITHIN GROUP (ORDER BY id) FROM staff GROUP BY ROLLUP (name) HAVING count(*) > $1",
            "SELECT string_agg(DISTINCT name, ',' ORDER BY name), percentile_cont(0.5) WITHIN GROUP (ORDER BY id) FROM STAFF staff GROUP BY ROLLUP (name) HAVING count(*) > $1",
        ),
        (
            "SELECT e.key, e.value, u.u, u.ordinality FROM items i, jsonb_each(i.name::jsonb) e, unnest(ARRAY[1, 2]) WITH ORDINALITY u",
            "SELECT e.key, e.value, u.u, u.ordinality FROM shop.items i, jsonb_each(i.name::jsonb) e, unnest(ARRAY[1, 2]) WITH ORDINALITY u",
        ),
        (
            "SELECT (ARRAY[1, 2])[1], ROW(1, 2), (1, 2) = (3, 4)",
            "SELECT (ARRAY[1, 2])[1], ROW(1, 2), (1, 2) = (3, 4)",
        ),
        (
            "SELECT pg_catalog.lower('A'), 1 OPERATOR(pg_catalog.+) 2",
            "SELECT pg_catalog.lower('A'), 1 OPERATOR(pg_catalog.+) 2",
        ),
        (
            "SELECT tax(id), shop.tax(id) FROM staff",
            "SELECT shop.tax(id), shop.tax(id) FROM STAFF staff",
        ),
        ("VALUES (1, 'a'), (2, 'b')", "VALUES (1, 'a'), (2, 'b')"),
        (
            "SELECT DISTINCT ON (name) id FROM staff ORDER BY name DESC NULLS LAST FETCH FIRST 3 ROWS WITH TIES",
            "SELECT DISTINCT ON (name) id FROM STAFF staff ORDER BY name DESC NULLS LAST FETCH FIRST 3 ROWS WITH TIES",
        ),
    ]);
}

#[test]
fn open_tables_are_written_to() {
    allowed(&[
        (
            "INSERT INTO items (id, name) SELECT id, note FROM orders RETURNING items.id",
            "INSERT INTO shop.items (id, name) SELECT id, note FROM ORDERS orders RETURNING items.id",
        ),
        (
            "INSERT INTO items VALUES ($1, DEFAULT) ON CONFLICT (id) DO UPDATE SET name = excluded.name",
            "INSERT INTO shop.items VALUES ($1, DEFAULT) ON CONFLICT (id) DO UPDATE SET name = excluded.name",
        ),
        (
            "UPDATE items i SET (id, name) = (SELECT o.id, 'x' FROM orders o) FROM staff s WHERE s.id = i.id",
            "UPDATE shop.items i SET (id, name) = (SELECT o.id, 'x' FROM ORDERS o) FROM STAFF s WHERE s.id = i.id",
        ),
        (
            "WITH x AS (SELECT id FROM orders) DELETE FROM shop.items USING x WHERE x.id = items.id RETURNING *",
            "WITH x AS (SELECT id FROM ORDERS orders) DELETE FROM shop.items USING x WHERE x.id = items.id RETURNING *",
        ),
    ]);
    refused(&[
        (
            "INSERT INTO staff VALUES (1)",
            "can only be read; tables to write to: shop.items",
        ),
        ("UPDATE orders SET total = 1", "can only be read"),
        ("DELETE FROM shop.orders", "can only be read"),
        ("DELETE FROM ONLY items", "ONLY"),
        (
            "INSERT INTO secrets VALUES (1)",
            "table secrets is not allowed; allowed: hr.staff",
        ),
        (
            "DELETE FROM items WHERE CURRENT OF c",
            "expression of this kind",
        ),
        (
            "INSERT INTO items OVERRIDING SYSTEM VALUE VALUES (1)",
            "OVERRIDING",
        ),
        (
            "MERGE INTO items USING staff ON true WHEN MATCHED THEN DELETE",
            "only SELECT",
        ),
        ("UPDATE items SET name.x = 1", "composite"),
        (
            "UPDATE items SET id = (SELECT secret FROM secrets)",
            "table secrets",
        ),
        (
            "DELETE FROM items RETURNING (SELECT 1 FROM hr.salaries)",
            "hr.salaries",
        ),
        (
            "INSERT INTO items (name) SELECT rolname FROM pg_roles",
            "pg_roles",
        ),
    ]);
    let mut rules = rules(Dialect::Postgres);
    rules.classes.remove(&crate::Class::Update);
    let upsert = "INSERT INTO items VALUES (1) ON CONFLICT (id) DO UPDATE SET id = 2";
    assert!(
        rules
            .judge(upsert)
            .is_err_and(|error| error.contains("update is not allowed"))
    );
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
        ("SELECT 1; SELECT 2", "exactly one"),
        ("SELECT 1; DROP TABLE items", "exactly one"),
        ("SELECT 1 /* ' */; DELETE FROM items --'", "exactly one"),
        ("COPY items TO PROGRAM 'sh'", "only SELECT"),
        ("COPY items FROM '/etc/passwd'", "only SELECT"),
        ("DO $$ BEGIN END $$", "only SELECT"),
        ("CALL p()", "only SELECT"),
        ("EXECUTE p", "only SELECT"),
        ("PREPARE p AS SELECT 1", "only SELECT"),
        ("SET search_path TO evil", "only SELECT"),
        ("SHOW all", "only SELECT"),
        ("EXPLAIN ANALYZE DELETE FROM items", "only SELECT"),
        ("LISTEN x", "only SELECT"),
        ("NOTIFY x", "only SELECT"),
        ("LOCK TABLE items", "only SELECT"),
        ("TRUNCATE items", "only SELECT"),
        ("DROP TABLE items", "only SELECT"),
        ("CREATE TABLE x AS SELECT 1", "only SELECT"),
        (
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "only SELECT",
        ),
        ("GRANT ALL ON items TO PUBLIC", "only SELECT"),
        ("COMMIT", "only SELECT"),
        ("VACUUM", "only SELECT"),
        ("DECLARE c CURSOR FOR SELECT 1", "only SELECT"),
        ("SELECT 1 INTO x", "INTO"),
        ("SELECT * FROM items FOR UPDATE", "locking"),
        ("SELECT * FROM (SELECT * FROM items FOR SHARE) x", "locking"),
        ("SELECT \0 1", "nested"),
    ]);
}

#[test]
fn effects_in_expressions_are_refused() {
    refused(&[
        (
            "SELECT pg_read_file('/etc/passwd')",
            "function pg_read_file",
        ),
        (
            "SELECT pg_catalog.pg_read_file('/etc/passwd')",
            "function pg_catalog.pg_read_file",
        ),
        ("SELECT \"pg_sleep\"(1)", "function pg_sleep"),
        ("SELECT U&\"pg\\005fsleep\"(1)", "function pg_sleep"),
        ("SELECT PG_SLEEP(1)", "function pg_sleep"),
        ("SELECT lo_import('/etc/passwd')", "function lo_import"),
        ("SELECT dblink('x', 'y')", "function dblink"),
        (
            "SELECT query_to_xml('SELECT 1', true, true, '')",
            "function query_to_xml",
        ),
        (
            "SELECT ts_rewrite('a'::tsquery, 'SELECT 1')",
            "function ts_rewrite",
        ),
        (
            "SELECT set_config('role', 'postgres', false)",
            "function set_config",
        ),
        (
            "SELECT current_setting('data_directory')",
            "function current_setting",
        ),
        ("SELECT version()", "function version"),
        ("SELECT nextval('s')", "function nextval"),
        ("SELECT pg_advisory_lock(1)", "function pg_advisory_lock"),
        ("SELECT repeat('a', 1000000000)", "function repeat"),
        (
            "SELECT * FROM generate_series(1, 1000000000)",
            "function generate_series",
        ),
        ("SELECT lpad('a', 1000000000)", "function lpad"),
        ("SELECT public.lower('a')", "function public.lower"),
        ("SELECT evil.tax(1)", "function evil.tax"),
        (
            "SELECT id FROM items WHERE pg_sleep(1) IS NULL",
            "function pg_sleep",
        ),
        (
            "SELECT id FROM items ORDER BY pg_sleep(1)",
            "function pg_sleep",
        ),
        (
            "SELECT id FROM items LIMIT pg_backend_pid()",
            "function pg_backend_pid",
        ),
        (
            "SELECT count(*) FILTER (WHERE pg_sleep(1) IS NULL) FROM items",
            "function pg_sleep",
        ),
        (
            "SELECT sum(id) OVER (PARTITION BY pg_sleep(1)) FROM items",
            "function pg_sleep",
        ),
        (
            "SELECT array_agg(id ORDER BY pg_sleep(1)) FROM items",
            "function pg_sleep",
        ),
        (
            "SELECT 1 WINDOW w AS (ORDER BY pg_sleep(1))",
            "function pg_sleep",
        ),
        (
            "SELECT (ARRAY[1])[pg_backend_pid()]",
            "function pg_backend_pid",
        ),
        ("SELECT DISTINCT ON (pg_sleep(1)) 1", "function pg_sleep"),
        ("SELECT 1 GROUP BY CUBE (pg_sleep(1))", "function pg_sleep"),
        (
            "SELECT CASE WHEN true THEN pg_sleep(1) END",
            "function pg_sleep",
        ),
        ("VALUES (pg_sleep(1))", "function pg_sleep"),
        (
            "SELECT 1 FROM items JOIN staff ON pg_sleep(1) IS NULL",
            "function pg_sleep",
        ),
        ("SELECT * FROM pg_ls_dir('/')", "function pg_ls_dir"),
        (
            "SELECT * FROM ROWS FROM (unnest(ARRAY[1]), pg_ls_dir('/'))",
            "ROWS FROM",
        ),
        ("SELECT current_user", "asking for the user"),
        ("SELECT 'orders'::regclass", "type regclass"),
        ("SELECT CAST('x' AS pg_catalog.regproc)", "type regproc"),
        ("SELECT 'x'::evil.t", "type evil.t"),
        ("SELECT NULL::shop.orders", "type shop.orders"),
        ("SELECT 'x'::char(1000000)", "number in a type"),
        ("SELECT 1 OPERATOR(evil.+) 2", "evil.+"),
        ("SELECT 1 === 2", "operator"),
        (
            "SELECT id FROM items ORDER BY id USING OPERATOR(evil.<)",
            "evil.<",
        ),
        ("SELECT 'a' COLLATE evil.c", "collation"),
        (
            "SELECT xmlparse(DOCUMENT '<a/>')",
            "expression of this kind",
        ),
        (
            "SELECT * FROM xmltable('/' PASSING '<a/>' COLUMNS a text)",
            "relation of this kind",
        ),
        ("SELECT json_value('1', '$')", "expression of this kind"),
        (
            "SELECT * FROM items TABLESAMPLE evil(1)",
            "relation of this kind",
        ),
    ]);
}

#[test]
fn other_tables_and_columns_are_refused() {
    refused(&[
        (
            "SELECT * FROM secrets",
            "table secrets is not allowed; allowed: hr.staff, shop.items, shop.orders",
        ),
        ("SELECT * FROM \"Orders\"", "table Orders"),
        ("SELECT * FROM public.orders", "table public.orders"),
        ("SELECT * FROM other.shop.orders", "schema.table"),
        ("SELECT * FROM pg_class", "table pg_class"),
        (
            "SELECT * FROM pg_catalog.pg_authid",
            "table pg_catalog.pg_authid",
        ),
        (
            "SELECT * FROM information_schema.tables",
            "information_schema",
        ),
        (
            "SELECT id FROM orders UNION SELECT 1 FROM secrets",
            "table secrets",
        ),
        ("SELECT (SELECT a FROM secrets)", "table secrets"),
        ("SELECT ARRAY(SELECT a FROM secrets)", "table secrets"),
        (
            "SELECT * FROM items, LATERAL (SELECT * FROM secrets) x",
            "table secrets",
        ),
        (
            "SELECT id FROM items OFFSET (SELECT 1 FROM secrets)",
            "table secrets",
        ),
        ("SELECT ctid FROM items", "system column ctid"),
        ("SELECT i.xmin FROM items i", "system column xmin"),
        ("SELECT items.tableoid FROM items", "system column tableoid"),
        (
            "WITH x AS (DELETE FROM items RETURNING *) SELECT * FROM x",
            "WITH can only hold SELECT",
        ),
        (
            "WITH orders AS (SELECT 1) SELECT * FROM orders",
            "name of something else",
        ),
        (
            "WITH pg_class AS (SELECT 1) SELECT * FROM pg_class",
            "name of something else",
        ),
        (
            "WITH x AS (SELECT 1) SELECT (WITH x AS (SELECT 2) SELECT 1)",
            "name of something else",
        ),
        (
            "WITH RECURSIVE x AS (SELECT 1 UNION SELECT * FROM x) SELECT 1",
            "RECURSIVE",
        ),
        ("WITH x AS (SELECT * FROM x) SELECT 1", "table x"),
        (
            "SELECT * FROM secrets WHERE EXISTS (WITH secrets AS (SELECT 1) SELECT 1)",
            "table secrets",
        ),
        ("SELECT (WITH x AS (SELECT 1) SELECT 1) FROM x", "table x"),
        (
            "WITH x AS (SELECT 1) SELECT * FROM public.x",
            "table public.x",
        ),
        ("SELECT o.total FROM items i", "o is not in FROM"),
        ("SELECT * FROM orders o, staff o", "twice"),
        (
            "SELECT * FROM (orders JOIN items ON true) AS j",
            "alias of a join",
        ),
    ]);
}

/// `t.f` calls the function `f` where `t` has no such column.
#[test]
fn calls_written_as_columns_are_refused() {
    refused(&[
        ("SELECT o.evil FROM orders o", "o.evil is not a column"),
        (
            "SELECT orders.secret FROM orders",
            "orders.secret is not a column",
        ),
        (
            "SELECT o.evil FROM orders o, (SELECT 1 AS evil) x",
            "o.evil",
        ),
        ("SELECT o.id FROM orders AS o(a, b, c)", "o.id"),
        ("SELECT x.pg_sleep FROM unnest(ARRAY[1]) x", "x.pg_sleep"),
        ("SELECT x.evil FROM (SELECT o.id FROM orders o) x", "x.evil"),
        ("WITH x AS (SELECT 1 AS a) SELECT x.evil FROM x", "x.evil"),
        ("SELECT x.evil FROM (VALUES (1)) x", "x.evil"),
        ("SELECT (o).evil FROM orders o", "composite"),
        ("SELECT (o).* FROM orders o", "composite"),
        ("SELECT (SELECT orders FROM orders).evil", "composite"),
        // The inner `o` beside it is not visible in a subquery without LATERAL: the outer one is.
        (
            "SELECT (SELECT z.a FROM (SELECT 1 AS evil) o, (SELECT o.evil AS a) z) FROM orders o",
            "o.evil",
        ),
    ]);
}

/// PostgreSQL has a warning for each of these.
#[test]
fn many_warnings_are_only_a_refusal() {
    let rules = rules(Dialect::Postgres);
    for part in [
        "CREATE GLOBAL TEMP TABLE a();",
        "SELECT 'a\\b';",
        "SELECT E'\\'';",
    ] {
        assert!(rules.judge(&part.repeat((64 << 10) / part.len())).is_err());
    }
    let name = format!("\"{}\" ", "a".repeat(70));
    assert!(
        rules
            .judge(&format!("SELECT {}", name.repeat(900)))
            .is_err()
    );
}
