//! Shadow runs of tools: what a call changed on a copy is decided about, and exactly it is applied.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use e2e::traces::{events, verify_ledger};
use e2e::{Avoidable, BOUND, Outcome, World, is_root};
use serde_json::{Value, json};

use crate::tools::{called, over_mcp};

const TOOLS: &str = r#"
[tool.sh]
description = "Runs shell text, and applies what it changed."
kind = "snippet"
language = "shell"
effect = "write"
shadow = true
[tool.twice]
description = "Runs shell text twice first."
kind = "snippet"
language = "shell"
effect = "write"
shadow = "twice"
[tool.plain]
description = "Runs shell text in a layer."
kind = "snippet"
language = "shell"
effect = "write"
[tool.live]
description = "Runs shell text over live files."
kind = "snippet"
language = "shell"
effect = "write"
profile = "outside"
shadow = true
[tool.direct]
description = "Runs shell text on live files."
kind = "snippet"
language = "shell"
effect = "write"
profile = "outside"
[tool.open]
description = "Runs shell text with a network."
kind = "snippet"
language = "shell"
effect = "write"
profile = "net"
shadow = true
[tool.write_file]
kind = "builtin"
shadow = true
"#;

const RULE: &str = r#"
@id("small")
permit(principal, action == Action::"promote", resource)
when { context has change.files && context.change.files < 3
    && context.change.bytes < 1000 };
"#;

fn world(name: &str) -> World {
    let world = World::new(name);
    world.profile("outside", "extends = [\"default\"]\nworkspace = \"live\"\n");
    world.profile(
        "net",
        "extends = [\"default\"]\n[network]\nallow = [\"example.com\"]\n",
    );
    world.write(world.config().join("atoll/tools.toml"), TOOLS);
    world
}

fn rule(world: &World, text: &str) {
    world.write(world.config().join("atoll/own.cedar"), text);
}

fn sh(world: &World, tool: &str, code: &str) -> Value {
    called(world, &[tool, &format!("code={code}")])
}

fn end(answer: &Value) -> &str {
    answer["shadow"]["end"].as_str().unwrap_or_default()
}

fn kinds(world: &World) -> Vec<String> {
    let all = events(world);
    let kinds = all.iter().filter_map(|one| one["type"].as_str());
    kinds.map(str::to_owned).collect()
}

fn count(world: &World, kind: &str) -> usize {
    kinds(world).iter().filter(|one| *one == kind).count()
}

#[test]
fn shadowed_files_are_applied_by_a_rule() {
    let world = world("shadowed_files_are_applied_by_a_rule");
    rule(&world, RULE);
    world.write("old", "1");
    let answer = sh(&world, "sh", "echo two > new; rm old; echo told");
    assert_eq!(end(&answer), "applied", "{answer}");
    assert_eq!(answer["text"], "told\n");
    assert!(answer["notes"].to_string().contains("Applied exactly"));
    let change = &answer["shadow"]["change"];
    assert_eq!(
        (&change["kind"], &change["bytes"]),
        (&json!("files"), &json!(4))
    );
    let hows = change["files"].as_array().unwrap().iter();
    let hows: Vec<_> = hows.map(|one| one["how"].as_str().unwrap()).collect();
    assert_eq!(hows, ["added", "removed"], "{answer}");
    assert_eq!(world.read("new"), "two\n");
    assert!(!world.exists("old"));
    let digest = change["digest"].as_str().unwrap().to_owned();
    let all = events(&world);
    for kind in ["shadow.changed", "shadow.applied"] {
        let is_it = |one: &&Value| one["type"] == kind && one["body"]["digest"] == digest.as_str();
        assert_eq!(all.iter().filter(is_it).count(), 1, "{kind}: {all:?}");
    }
    // It is undone as any apply is.
    let run = answer["run"].as_str().unwrap();
    let _ = world.atoll(["undo", run]).run().success();
    assert_eq!(world.read("old"), "1");
    assert!(!world.exists("new"));
    // More than the rule permits is not applied; the control is permitted.
    let refused = sh(&world, "sh", "for one in a b c; do echo $one > $one; done");
    assert_eq!(end(&refused), "denied", "{refused}");
    assert!(!world.exists("a"));
    let word = world
        .atoll(["tools", "call", "sh", "code=seq 1000 > a"])
        .run();
    word.expect_status(126)
        .says(["Nothing was applied", "atoll diff"]);
    assert_eq!(end(&sh(&world, "sh", "seq 10 > a")), "applied");
    // What changes nothing needs nobody; what fails is not applied.
    assert_eq!(end(&sh(&world, "sh", "true")), "unchanged");
    let failed = sh(&world, "sh", "echo x > b; exit 3");
    assert_eq!(
        (end(&failed), &failed["end"]),
        ("dropped", &json!("failed"))
    );
    assert!(
        failed["text"].as_str().unwrap().contains("status 3"),
        "{failed}"
    );
    assert!(!world.exists("b"));
    let _ = world
        .atoll(["tools", "call", "write_file", "path=c/d", "content=x"])
        .run()
        .success();
    assert_eq!(world.read("c/d"), "x");
    // Without shadow runs it stays in a layer.
    let plain = sh(&world, "plain", "echo x > e");
    assert!(plain["shadow"].is_null() && !world.exists("e"), "{plain}");
    // A policy asks for one.
    rule(
        &world,
        &format!(
            "{RULE}\n@id(\"s\") @shadow permit(principal, action == Action::\"call\", resource);"
        ),
    );
    assert_eq!(end(&sh(&world, "plain", "echo x > e")), "applied");
    assert_eq!(world.read("e"), "x\n");
    verify_ledger(&world);
}

#[test]
fn live_files_are_changed_by_the_apply_alone() {
    let world = world("live_files_are_changed_by_the_apply_alone");
    rule(
        &world,
        "forbid(principal, action == Action::\"promote\", resource) when { context has change };",
    );
    let refused = sh(&world, "live", "echo x > a");
    assert_eq!(end(&refused), "denied", "{refused}");
    assert!(!world.exists("a"));
    // The control writes at once.
    let direct = sh(&world, "direct", "echo x > a");
    assert_eq!(direct["end"], "done", "{direct}");
    assert_eq!(world.read("a"), "x\n");
    rule(&world, RULE);
    assert_eq!(end(&sh(&world, "live", "echo y > a")), "applied");
    assert_eq!(world.read("a"), "y\n");
}

#[test]
fn shadowed_files_need_a_person_without_a_rule() {
    let world = world("shadowed_files_need_a_person_without_a_rule");
    let refused = sh(&world, "sh", "echo x > a");
    assert_eq!(end(&refused), "denied", "{refused}");
    assert!(!world.exists("a"));
    // It is kept for review, and a person can apply it.
    let run = refused["shadow"]["kept"].as_str().unwrap();
    let diff = world.atoll(["diff", run]).run().success();
    assert!(diff.out().contains("+x"), "{diff}");
    let _ = world.atoll(["apply", run]).run().success();
    assert_eq!(world.read("a"), "x\n");
    for (answer, status, content) in [("d\r", 126, "x\n"), ("o\r", 0, "y\n")] {
        let call = world.atoll(["tools", "call", "sh", "code=echo y > a"]);
        let mut terminal = call.on_terminal(40, 160);
        let shown = terminal.expect("A letter, then Enter: ");
        for part in ["exactly this", "changed ", "/a, 2 bytes", "digest sha256:"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert_eq!(world.read("a"), "x\n");
        terminal.send(answer);
        let ended = terminal.wait();
        assert_eq!(ended.code(), status, "{ended}");
        assert_eq!(world.read("a"), content, "{ended}");
    }
    assert_eq!(count(&world, "shadow.agreed"), 1);
    // A rule does not speak for what other programs run.
    rule(&world, RULE);
    let control = sh(&world, "sh", "echo x > .envrc");
    assert_eq!(end(&control), "denied", "{control}");
    assert!(
        control["shadow"]["why"]
            .as_str()
            .unwrap()
            .contains("other programs"),
        "{control}"
    );
    // Over MCP a client that cannot ask is told.
    rule(&world, "");
    let calls = [json!(["sh", { "code": "echo z > a" }])];
    let (answers, _) = over_mcp(&world, &calls);
    let text = answers[0].to_string();
    assert!(
        text.contains("Nothing was applied") && text.contains("cannot ask"),
        "{text}"
    );
    assert_eq!(answers[0]["isError"], true);
    assert_eq!(world.read("a"), "y\n");
    verify_ledger(&world);
}

/// A program cannot do in production what it did not do in its shadow: it does not run there.
#[test]
fn programs_that_tell_a_shadow_apart_change_nothing_else() {
    let world = world("programs_that_tell_a_shadow_apart_change_nothing_else");
    rule(&world, RULE);
    let tell = "cat /proc/sys/kernel/random/uuid > a; cat a";
    let answer = sh(&world, "sh", tell);
    assert_eq!(end(&answer), "applied", "{answer}");
    // What was shadowed is what is there, and it ran once.
    assert_eq!(answer["text"], world.read("a").as_str());
    assert_eq!(count(&world, "exec.opened"), 1);
    let before = world.read("a");
    let differs = sh(&world, "twice", tell);
    assert_eq!(end(&differs), "dropped", "{differs}");
    assert!(
        differs["shadow"]["why"]
            .as_str()
            .unwrap()
            .contains("ran again"),
        "{differs}"
    );
    assert_eq!(world.read("a"), before);
    // The control does the same both times, each on a fresh copy.
    let same = sh(&world, "twice", "test ! -e b && echo 1 > b && ln -s b c");
    assert_eq!(end(&same), "applied", "{same}");
    assert_eq!(
        (world.read("b").as_str(), world.read("c").as_str()),
        ("1\n", "1\n")
    );
    let runs = world.atoll(["runs"]).run().success().out();
    // The two applied ones alone are kept, to undo.
    assert_eq!(
        runs.lines().filter(|line| line.contains("applied")).count(),
        2,
        "{runs}"
    );
    verify_ledger(&world);
}

/// Returns the file of this name in the layer of a run.
fn in_layer(directory: &Path, name: &str) -> Option<PathBuf> {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_directory = path.symlink_metadata().is_ok_and(|one| one.is_dir());
        if path.ends_with(Path::new("upper").join(name)) {
            return Some(path);
        }
        if let Some(found) = in_layer(&path, name).filter(|_| is_directory) {
            return Some(found);
        }
    }
    None
}

/// Calls the tool, does something while the person is asked, and agrees.
fn asked_while(world: &World, meanwhile: impl FnOnce(&World)) -> Outcome {
    let call = world.atoll(["tools", "call", "sh", "code=echo good > target"]);
    let mut terminal = call.on_terminal(40, 160);
    terminal.expect("A letter, then Enter: ");
    meanwhile(world);
    terminal.send("o\r");
    terminal.wait()
}

#[test]
fn swapped_change_sets_are_refused() {
    let world = world("swapped_change_sets_are_refused");
    let swapped = asked_while(&world, |world| {
        let file = in_layer(&world.state(), "target").unwrap();
        fs::write(file, "evil\n").unwrap();
    });
    assert_eq!(swapped.code(), 126, "{swapped}");
    assert!(
        swapped
            .out()
            .contains("other ones than its shadow run made"),
        "{swapped}"
    );
    assert!(!world.exists("target"));
    // The control: as it was shown.
    let applied = asked_while(&world, |_| {});
    assert_eq!(applied.code(), 0, "{applied}");
    assert_eq!(world.read("target"), "good\n");
}

#[test]
fn moved_bases_are_refused() {
    let world = world("moved_bases_are_refused");
    world.write("target", "1\n");
    let moved = asked_while(&world, |world| world.write("target", "a person's\n"));
    assert_ne!(moved.code(), 0, "{moved}");
    assert!(moved.out().contains("Nothing was applied"), "{moved}");
    assert_eq!(world.read("target"), "a person's\n");
    // Somewhere else is no other base.
    let applied = asked_while(&world, |world| world.write("elsewhere", "x"));
    assert_eq!(applied.code(), 0, "{applied}");
    assert_eq!(world.read("target"), "good\n");
    assert_eq!(world.read("elsewhere"), "x");
}

#[test]
fn ways_out_of_a_shadow_are_denied() {
    let world = world("ways_out_of_a_shadow_are_denied");
    rule(&world, RULE);
    let open = sh(&world, "open", "echo x > a");
    assert_eq!(end(&open), "denied", "{open}");
    assert!(
        open["shadow"]["why"].as_str().unwrap().contains("network"),
        "{open}"
    );
    assert_eq!(count(&world, "exec.opened"), 0, "nothing ran");
    assert!(!world.exists("a"));
    for (more, why) in [
        ("allow = [\"example.com\"]", "an effect would pass"),
        ("sandbox = \"session\"", "a sandbox of its own"),
        ("effect = \"read\"", "it reads"),
        ("shadow = \"thrice\"", "none of true"),
    ] {
        let tool = "[tool.one]\ndescription = \"One.\"\nkind = \"command\"\ncommand = [\"true\"]\n";
        let defaults = [
            ("effect", "effect = \"write\""),
            ("shadow", "shadow = true"),
        ];
        let rest = defaults.iter().filter(|(key, _)| !more.starts_with(key));
        let rest: Vec<&str> = rest.map(|(_, line)| *line).collect();
        let text = format!("{tool}{more}\n{}\n", rest.join("\n"));
        world.write(world.config().join("atoll/tools.toml"), &text);
        let check = world.atoll(["tools", "check"]).run().expect_status(1);
        assert!(check.out().contains(why), "{more}: {check}");
    }
}

const MCP: &str = r#"import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    tool = {"name": "act", "inputSchema": {"type": "object"}}
    if asked["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": [tool]}
    elif asked["method"] == "tools/call":
        open("acted", "w").write("x")
        result = {"content": [{"type": "text", "text": "acted"}]}
    else:
        result = {}
    if "id" in asked:
        error = {"code": -32601, "message": "none"} if not result and asked["method"] != "ping" else None
        answer = {"jsonrpc": "2.0", "id": asked["id"]}
        answer.update({"error": error} if error else {"result": result})
        print(json.dumps(answer), flush=True)
"#;

#[test]
fn mcp_servers_have_no_shadow() {
    let world = world("mcp_servers_have_no_shadow");
    world.write("server.py", MCP);
    let upstream = format!(
        "[upstream.one]\ncommand = [\"python3\", \"{}\"]\n",
        world.path("server.py").display()
    );
    world.write(world.config().join("atoll/tools.toml"), &upstream);
    let _ = world
        .atoll(["tools", "pin", "one", "--yes"])
        .run()
        .success();
    let acted = called(&world, &["one__act"]);
    assert_eq!(acted["text"], "acted", "the control: {acted}");
    rule(
        &world,
        "@id(\"s\") @shadow permit(principal, action == Action::\"call\", resource);",
    );
    let denied = called(&world, &["one__act"]);
    assert_eq!(end(&denied), "denied", "{denied}");
    assert!(
        denied["text"].as_str().unwrap().contains("MCP server"),
        "{denied}"
    );
    let with = format!("{upstream}shadow = true\n");
    world.write(world.config().join("atoll/tools.toml"), &with);
    let check = world.atoll(["tools", "check"]).run().expect_status(1);
    assert!(check.out().contains("MCP server"), "{check}");
}

/// A PostgreSQL server of the test's own, by a socket.
pub(crate) struct Postgres {
    child: Child,
    home: tempfile::TempDir,
    programs: PathBuf,
}

impl Postgres {
    fn start(world: &World) -> Option<Self> {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let mut programs = versions.flatten().map(|one| one.path().join("bin"));
        let Some(programs) = programs.find(|one| one.join("initdb").is_file()) else {
            world.skip("PostgreSQL is not installed", Avoidable::Yes);
            return None;
        };
        // The path of a socket is at most 107 bytes long, and another user makes it.
        let home = tempfile::tempdir_in("/tmp").unwrap();
        let ordinary = |program: &str| {
            std::os::unix::fs::chown(home.path(), Some(65534), Some(65534)).unwrap();
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
            command.arg(programs.join(program));
            command
        };
        let data = home.path().join("data");
        let mut initdb = ordinary("initdb");
        initdb.args(["-N", "-A", "trust", "-U", "owner", "--locale=C.UTF-8", "-D"]);
        let made = initdb.arg(&data).current_dir(home.path()).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let mut server = ordinary("postgres");
        server.arg("-D").arg(&data).arg("-k").arg(home.path());
        server.args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        server.current_dir(home.path());
        server.stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self {
            child: server.spawn().unwrap(),
            home,
            programs,
        };
        e2e::wait_until("the server", BOUND, || {
            let mut ready = Command::new(server.programs.join("pg_isready"));
            ready.arg("-q").arg("-h").arg(server.home.path());
            ready.status().unwrap().success().then_some(())
        });
        Some(server)
    }

    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args([
            "-X",
            "-A",
            "-t",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "owner",
        ]);
        psql.arg("-h")
            .arg(self.home.path())
            .args(["-d", database, "-c", sql]);
        let output = psql.output().unwrap();
        assert!(output.status.success(), "{sql}: {output:?}");
        String::from_utf8(output.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const ROWS: &str = r#"
permit(principal, action == Action::"promote", resource in Path::"/databases/shop")
when { context has change.rows && context.change.rows < 3
    && context has change.tables && context.change.tables == ["public.orders"] };
"#;

/// Starts a server with a shop, if there can be one.
pub(crate) fn shop(world: &World) -> Option<Postgres> {
    if !is_root() {
        // A server refuses a user without an account.
        world.skip("the user has no account", Avoidable::No);
        return None;
    }
    let server = Postgres::start(world)?;
    server.sql("postgres", "CREATE ROLE clerk LOGIN");
    server.sql("postgres", "CREATE DATABASE shop");
    server.sql(
        "shop",
        "CREATE TABLE orders (id int PRIMARY KEY, total int, at timestamptz);
         INSERT INTO orders VALUES (1, 10), (2, 20), (3, 30);
         GRANT SELECT, INSERT, UPDATE, DELETE ON orders TO clerk",
    );
    Some(server)
}

impl Postgres {
    /// Describes the shop as an upstream, with these words of its own.
    pub(crate) fn tools(&self, world: &World, more: &str) {
        let text = format!(
            "[upstream.shop]\n{more}\n[upstream.shop.database]\n\
             url = \"postgresql://clerk@db.example/shop\"\n\
             copy = \"postgres:///shop?host={}&user=owner\"\n\
             statements = [\"select\", \"insert\", \"update\", \"delete\"]\n\
             functions = [\"clock_timestamp\"]\ntables.\"public.orders\" = {{}}\n",
            self.home.path().display()
        );
        world.write(world.config().join("atoll/tools.toml"), text);
    }

    pub(crate) fn totals(&self) -> String {
        self.sql("shop", "SELECT json_agg(total ORDER BY id) FROM orders")
    }
}

#[test]
fn shadowed_rows_are_applied_exactly() {
    let world = world("shadowed_rows_are_applied_exactly");
    let Some(server) = shop(&world) else {
        return;
    };
    let tools = |more: &str| server.tools(&world, more);
    tools("shadow = true");
    let _ = world.atoll(["tools", "check"]).run().success();
    let call =
        |statement: &str| called(&world, &["shop__query", &format!("statement={statement}")]);
    let all = || server.totals();
    let update = "UPDATE public.orders SET total = total + 1 WHERE id < 3";
    // Nobody decides, so that nothing is applied; then a rule does.
    let refused = call(update);
    assert_eq!(end(&refused), "denied", "{refused}");
    assert_eq!(all(), "[10, 20, 30]");
    rule(&world, ROWS);
    let applied = call(update);
    assert_eq!(end(&applied), "applied", "{applied}");
    assert_eq!(applied["structured"]["changed"], 2, "{applied}");
    let rows = applied["shadow"]["change"]["rows"].as_array().unwrap();
    assert_eq!(rows[0]["old"], "(1,10,)", "{applied}");
    assert_eq!(rows[0]["new"], "(1,11,)", "{applied}");
    assert_eq!(all(), "[11, 21, 30]");
    let many = call("DELETE FROM public.orders");
    assert_eq!(end(&many), "denied", "{many}");
    let failed = call("INSERT INTO public.orders (id) VALUES (1)");
    assert_eq!(end(&failed), "dropped", "{failed}");
    assert!(
        failed["text"].as_str().unwrap().contains("duplicate key"),
        "{failed}"
    );
    assert_eq!(all(), "[11, 21, 30]");
    // One that tells runs apart is refused, where it runs twice; once, exactly what it did is there.
    let tell = "UPDATE public.orders SET at = clock_timestamp() WHERE id = 3 RETURNING at";
    let once = call(tell);
    assert_eq!(end(&once), "applied", "{once}");
    tools("shadow = \"twice\"");
    let told = call(tell);
    assert_eq!(end(&told), "dropped", "{told}");
    assert_eq!(
        end(&call("DELETE FROM public.orders WHERE id = 3")),
        "applied"
    );
    assert_eq!(all(), "[11, 21]");
    // The base moves while a person is asked.
    rule(&world, "");
    tools("shadow = true");
    for (meanwhile, status, expected) in [("total = 0", 1, "[0, 21]"), ("at = NULL", 0, "[1, 21]")]
    {
        let statement = "statement=UPDATE public.orders SET total = total + 1 WHERE id = 1";
        let call = world.atoll(["tools", "call", "shop__query", statement]);
        let mut terminal = call.on_terminal(40, 160);
        let shown = terminal.expect("A letter, then Enter: ");
        assert!(
            shown.contains("public.orders: 0 new rows, 1 changed, 0 removed"),
            "{shown}"
        );
        server.sql(
            "shop",
            &format!("UPDATE orders SET {meanwhile} WHERE id = 1"),
        );
        terminal.send("o\r");
        let ended = terminal.wait();
        assert_eq!(ended.code(), status, "{ended}");
        assert_eq!(all(), expected, "{ended}");
    }
    let copies = "SELECT count(*) FROM pg_database WHERE datname LIKE 'atoll%'";
    assert_eq!(server.sql("postgres", copies), "0");
    for kind in [
        "shadow.changed",
        "shadow.applying",
        "shadow.applied",
        "shadow.agreed",
    ] {
        assert!(count(&world, kind) > 0, "{kind}");
    }
    verify_ledger(&world);
}

#[test]
fn shadowed_sqlite_is_applied_as_a_file() {
    let world = world("shadowed_sqlite_is_applied_as_a_file");
    rule(&world, &RULE.replace("< 1000", "< 100000"));
    let sql = |text: &str| {
        let script = format!(
            "import sqlite3; c = sqlite3.connect('app.db'); r = c.execute({text:?}).fetchall(); \
             c.commit(); print(r)"
        );
        let run = world.host("python3").args(["-c", &script]);
        run.dir(world.workspace())
            .run()
            .success()
            .out()
            .trim()
            .to_owned()
    };
    sql("create table t (n integer)");
    for (more, changed) in [("", "[]"), ("shadow = true", "[(1,)]")] {
        let text = format!(
            "[upstream.app]\n{more}\n[upstream.app.database]\nurl = \"sqlite:app.db\"\n\
             statements = [\"select\", \"insert\"]\ntables.t = {{}}\n"
        );
        world.write(world.config().join("atoll/tools.toml"), text);
        let answer = called(
            &world,
            &["app__query", "statement=insert into t values (1)"],
        );
        assert_eq!(answer["end"], "done", "{answer}");
        assert_eq!(sql("select n from t"), changed, "{answer}");
    }
}

const SERVICE: &str = r#"import http.server, json, sys, threading
class One(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        pass
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        headers = sorted((k.lower(), v) for k, v in self.headers.items() if k.lower() != "host")
        name = self.server.name
        with open(sys.argv[1], "a") as to:
            to.write(json.dumps({"at": name, "path": self.path, "headers": headers, "body": body}) + "\n")
        status = 409 if name == "staging" and "bad" in body else 201
        text = json.dumps({"from": name}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
ports = []
for name in ("production", "staging"):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), One)
    server.name = name
    threading.Thread(target=server.serve_forever).start()
    ports.append(str(server.server_port))
print(" ".join(ports), "are there", flush=True)
"#;

const DOCUMENT: &str = "openapi: 3.0.3\ninfo: { title: T, version: \"1\" }\npaths:\n  /tickets/{id}:\n    \
    post:\n      operationId: open\n      description: Opens a ticket.\n      parameters:\n        \
    - { name: id, in: path, required: true, schema: { type: string } }\n        \
    - { name: X-Note, in: header, schema: { type: string } }\n      requestBody:\n        \
    content: { application/json: { schema: { type: object } } }\n      responses: {}\n";

#[test]
fn shadowed_requests_go_to_staging_first() {
    let world = world("shadowed_requests_go_to_staging_first");
    let log = world.top().join("requests");
    let server = world
        .host("python3")
        .args(["-c", SERVICE])
        .arg(&log)
        .start();
    let told = server.until_stdout("are there");
    let ports: Vec<u16> = told
        .split_whitespace()
        .filter_map(|one| one.parse().ok())
        .collect();
    let [production, staging] = ports[..] else {
        panic!("{told}");
    };
    world.write(world.config().join("atoll/tickets.yaml"), DOCUMENT);
    let at = |port: u16| format!("http://host.atoll.internal:{port}");
    let text = format!(
        "[upstream.desk]\nopenapi = \"tickets.yaml\"\nurl = \"{0}\"\nstaging = \"{1}\"\n\
         allow = [\"{0}\", \"{1}\"]\nshadow = true\n",
        at(production),
        at(staging)
    );
    world.write(world.config().join("atoll/tools.toml"), &text);
    let call = |body: &str| {
        let arguments = format!(r#"{{"id": "a/b", "X-Note": "n", "body": {body}}}"#);
        called(&world, &["desk__open", "--arguments", &arguments])
    };
    let requests = || -> Vec<Value> {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let places = || -> Vec<String> {
        let all = requests();
        all.iter()
            .map(|one| one["at"].as_str().unwrap().to_owned())
            .collect()
    };
    // Nobody agrees: staging alone has seen it.
    let refused = call(r#"{"t": "one"}"#);
    assert_eq!(end(&refused), "denied", "{refused}");
    assert_eq!(places(), ["staging"]);
    rule(
        &world,
        r#"permit(principal, action == Action::"promote", resource == Path::"/services/desk/open")
           when { context has change.status && context.change.status == 201
               && context has change.method && context.change.method == "POST" };"#,
    );
    let sent = call(r#"{"t": "one"}"#);
    assert_eq!(end(&sent), "applied", "{sent}");
    assert_eq!(sent["structured"]["from"], "production", "{sent}");
    assert_eq!(places(), ["staging", "staging", "production"]);
    let all = requests();
    for member in ["path", "headers", "body"] {
        assert_eq!(all[1][member], all[2][member], "{member}");
    }
    // One that staging refuses is not sent on.
    let bad = call(r#"{"t": "bad"}"#);
    assert_eq!(end(&bad), "dropped", "{bad}");
    assert_eq!(places().len(), 4);
    for (from, to, why) in [
        ("staging = ", "# staging = ", "its address is missing"),
        (&*at(staging), &*at(production), "it is the service itself"),
    ] {
        world.write(
            world.config().join("atoll/tools.toml"),
            text.replace(from, to),
        );
        let check = world.atoll(["tools", "check"]).run().expect_status(1);
        assert!(check.out().contains(why), "{check}");
    }
    server.signal(rustix::process::Signal::TERM);
    let _ = server.wait();
    verify_ledger(&world);
}
