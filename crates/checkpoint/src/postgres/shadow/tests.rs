use std::time::Duration;

use super::super::tests::World;
use super::*;
use crate::Error;

const TIME: Duration = Duration::from_secs(20);

fn world(name: &str) -> Option<World> {
    let world = World::new(name)?;
    world.sql("postgres", "CREATE ROLE clerk LOGIN");
    world.sql("postgres", "CREATE DATABASE shop");
    world.sql(
        "shop",
        "CREATE TABLE owner (id int PRIMARY KEY, name text);
         CREATE TABLE pet (id int PRIMARY KEY, owner int REFERENCES owner ON DELETE CASCADE,
             born timestamptz, weight float8, \"Odd \"\"n\" bytea, tags text[], more json);
         CREATE TABLE toy (id int PRIMARY KEY, pet int REFERENCES pet ON DELETE SET NULL);
         CREATE TABLE loose (n int);
         CREATE TABLE watched (id int PRIMARY KEY);
         CREATE TABLE counted (id serial PRIMARY KEY, n int);
         CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO loose VALUES (1); RETURN NEW; END';
         CREATE TRIGGER told AFTER INSERT ON watched FOR EACH ROW EXECUTE FUNCTION tell();
         INSERT INTO owner VALUES (1, 'ann'), (2, 'o''b \\restrict \"x\", (y)');
         INSERT INTO pet VALUES (1, 1, '2026-01-02 03:04:05.678901+09', 0.1, '\\x00ff',
             '{a,\"b c\"}', '{\"a\": [1, null]}'), (2, 1, NULL, 'NaN', '', NULL, NULL);
         INSERT INTO toy VALUES (1, 1), (2, 2);
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO clerk;
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO clerk",
    );
    Some(world)
}

fn on_copy(world: &World, text: &str, returns_rows: bool) -> Result<RowChanges, Error> {
    let statement = Statement {
        text,
        returns_rows,
        role: "clerk",
        timeout: TIME,
    };
    let directory = world.dir("");
    shadow(&world.database("shop"), statement, "s-1", &directory)
}

const ALL: &str = "SELECT (SELECT json_agg(owner) FROM owner), (SELECT json_agg(pet) FROM pet), \
    (SELECT json_agg(toy ORDER BY id) FROM toy), (SELECT json_agg(loose) FROM loose)";

/// Applying what a statement changed on a copy leaves the database as the statement itself would.
#[test]
fn statements_are_applied_as_on_the_copy() {
    let Some(world) = world("statements_are_applied_as_on_the_copy") else {
        return;
    };
    world.sql("postgres", "CREATE DATABASE plain TEMPLATE shop");
    for (statement, rows) in [
        (
            "UPDATE public.pet SET weight = weight * 3, born = '2026-05-05 00:00:00.1+00'",
            2,
        ),
        (
            "INSERT INTO public.owner VALUES (3, E'a\\\\b\\n''c'), (4, NULL)",
            2,
        ),
        (
            "UPDATE public.pet SET owner = 3, tags = '{}' WHERE id = 2",
            1,
        ),
        ("UPDATE public.pet SET id = 7 WHERE id = 2 AND false", 0),
        // Two pets' owner: one pet goes with it, its toy has none then.
        ("DELETE FROM public.owner WHERE id = 1", 3),
    ] {
        let before = world.sql("shop", ALL);
        let changed = on_copy(&world, statement, false).unwrap();
        assert_eq!(changed.changes.len(), rows, "{statement}: {changed:?}");
        assert_eq!(world.sql("shop", ALL), before, "{statement}");
        apply(&world.database("shop"), &changed.changes, TIME).unwrap();
        world.sql("plain", statement);
        assert_eq!(
            world.sql("shop", ALL),
            world.sql("plain", ALL),
            "{statement}"
        );
        // Exactly once.
        if rows > 0 {
            let again = apply(&world.database("shop"), &changed.changes, TIME);
            assert!(again.is_err(), "{statement}");
        }
    }
    let returned = "UPDATE public.owner SET name = 'x' WHERE id = 2 RETURNING id, name";
    let changed = on_copy(&world, returned, true).unwrap();
    assert_eq!(changed.given, ["{\"id\":2,\"name\":\"x\"}"]);
    let copies = world.sql(
        "postgres",
        "SELECT count(*) FROM pg_database WHERE datname LIKE 'atoll%'",
    );
    assert_eq!(copies, "0");
}

/// Others are connected, so that there is no copy by template.
#[test]
fn database_in_use_is_copied_by_an_archive() {
    let Some(world) = world("database_in_use_is_copied_by_an_archive") else {
        return;
    };
    let mut other = world.psql("shop", "SELECT pg_sleep(600)").spawn().unwrap();
    let connected = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'shop'";
    while world.sql("postgres", connected) == "0" {
        std::thread::yield_now();
    }
    let changed = on_copy(&world, "DELETE FROM public.toy WHERE id = 1", false);
    other.kill().unwrap();
    other.wait().unwrap();
    apply(&world.database("shop"), &changed.unwrap().changes, TIME).unwrap();
    assert_eq!(world.sql("shop", "SELECT count(*) FROM toy"), "1");
}

#[test]
fn what_rows_do_not_tell_is_refused() {
    let Some(world) = world("what_rows_do_not_tell_is_refused") else {
        return;
    };
    let before = world.sql("shop", ALL);
    for (statement, why) in [
        ("INSERT INTO public.loose VALUES (1)", "has no primary key"),
        ("INSERT INTO public.watched VALUES (1)", "has triggers"),
        (
            "INSERT INTO public.counted (n) VALUES (1)",
            "takes numbers of sequence",
        ),
        (
            "INSERT INTO public.owner SELECT g FROM generate_series(10, 10010) g",
            "more than",
        ),
        ("INSERT INTO public.owner VALUES (1)", "duplicate key"),
        ("DROP TABLE public.owner", "must be owner"),
        ("SELECT pg_sleep(600)", "statement timeout"),
    ] {
        let statement = Statement {
            text: statement,
            returns_rows: false,
            role: "clerk",
            timeout: Duration::from_secs(3),
        };
        let refused = shadow(&world.database("shop"), statement, "s-1", &world.dir(""));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(why), "{statement:?}: {refused}");
    }
    assert_eq!(world.sql("shop", ALL), before);
    // The server's own numbers went on in the copy alone.
    assert_eq!(
        world.sql("shop", "SELECT is_called FROM counted_id_seq"),
        "f"
    );
    world.sql(
        "shop",
        "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w",
    );
    let refused = on_copy(&world, "DELETE FROM public.toy", false).unwrap_err();
    assert!(refused.to_string().contains("foreign servers"), "{refused}");
}

/// Whatever has changed since, nothing of the change set is applied; without that, it is.
#[test]
fn database_that_moved_on_is_left_alone() {
    let Some(world) = world("database_that_moved_on_is_left_alone") else {
        return;
    };
    let refers = "DELETE FROM public.owner WHERE id = 1";
    let update = "UPDATE public.toy SET pet = NULL";
    for (statement, meanwhile, is_refused) in [
        (update, "UPDATE toy SET pet = 2 WHERE id = 1", true),
        (update, "DELETE FROM toy WHERE id = 2", true),
        (
            update,
            "CREATE TRIGGER told AFTER UPDATE ON toy FOR EACH ROW EXECUTE FUNCTION tell()",
            true,
        ),
        (update, "UPDATE pet SET weight = 9", false),
        (refers, "INSERT INTO pet VALUES (9, 1)", true),
        (refers, "INSERT INTO toy VALUES (9, 2)", true),
        (
            refers,
            "UPDATE pet SET more = '{\"a\":  [1]}' WHERE id = 1",
            true,
        ),
        (
            refers,
            "UPDATE owner SET name = 'other' WHERE id = 2",
            false,
        ),
        (
            "INSERT INTO public.owner VALUES (5, 'e')",
            "INSERT INTO owner VALUES (5, 'f')",
            true,
        ),
        (
            "UPDATE public.owner SET id = 8 WHERE id = 2",
            "INSERT INTO pet VALUES (9, 2)",
            true,
        ),
    ] {
        world.sql("postgres", "CREATE DATABASE moved TEMPLATE shop");
        let changed = on_copy(&world, statement, false).unwrap();
        world.sql("moved", meanwhile);
        let before = world.sql("moved", ALL);
        let applied = apply(&world.database("moved"), &changed.changes, TIME);
        assert_eq!(
            applied.is_err(),
            is_refused,
            "{statement}; {meanwhile}: {applied:?}"
        );
        assert_eq!(world.sql("moved", ALL) == before, is_refused, "{meanwhile}");
        world.sql("postgres", "DROP DATABASE moved");
    }
}
