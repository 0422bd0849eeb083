//! Checkpoints and restores of things outside of sandboxes, from the command line and by tools, and the
//! undo of a whole session.

use std::fs;

use e2e::World;
use e2e::traces::verify_ledger;
use serde_json::{Value, json};

use crate::tools::over_mcp;

fn json_of(world: &World, arguments: &[&str]) -> Value {
    world.atoll(arguments).run().success().json()
}

/// A restore takes back what the effect has changed, and nothing that a person wrote since.
#[test]
fn a_restore_takes_back_the_effect_alone() {
    let world = World::new("a_restore_takes_back_the_effect_alone");
    for (name, text) in [
        ("kept", "1"),
        ("changed", "1"),
        ("removed", "1"),
        ("both", "1"),
    ] {
        world.write(format!("site/{name}"), text);
    }
    world.write("site/.gitignore", "node_modules\n");
    world.write("site/node_modules/a/index.js", "1");
    let target = format!("files:{}", world.path("site").display());
    let taken = world.atoll(["checkpoint", "take", &target]).run().success();
    let id = taken.out().trim().to_owned();
    // The effect.
    world.write("site/changed", "2");
    world.write("site/both", "2");
    world.write("site/made", "2");
    world.write("site/node_modules/a/index.js", "2");
    fs::remove_file(world.path("site/removed")).unwrap();
    let _ = world.atoll(["checkpoint", "settle", &id]).run().success();
    // A person, since.
    world.write("site/both", "3");
    world.write("site/kept", "3");
    world.write("site/own", "3");
    let twice = world.atoll(["checkpoint", "settle", &id]).run();
    twice.is_clear_error(["is settled"]);
    let own = format!("files:{}", world.state().display());
    let refused = world.atoll(["checkpoint", "take", &own]).run();
    refused.is_clear_error(["Atoll's own state"]);
    let dry = world.atoll(["restore", &id, "--dry-run"]).run().success();
    for line in [
        "removed",
        "by the effect, and again since",
        "since, and not by the effect",
    ] {
        assert!(dry.out().contains(line), "{line}: {dry}");
    }
    assert_eq!(world.read("site/changed"), "2");
    let restored = world.atoll(["restore", &id]).run().expect_status(1);
    restored.says(["left alone", "both", "--overwrite", "takes this back"]);
    let read = |name: &str| fs::read_to_string(world.path(format!("site/{name}"))).ok();
    let is = |text: &str| Some(text.to_owned());
    assert_eq!(read("changed"), is("1"));
    assert_eq!(read("removed"), is("1"));
    assert_eq!(read("made"), None);
    assert_eq!(read("node_modules/a/index.js"), is("1"));
    for (name, text) in [("both", "3"), ("kept", "3"), ("own", "3")] {
        assert_eq!(read(name), is(text), "{name}");
    }
    // The restore is taken back by its own checkpoint.
    let all = json_of(&world, &["checkpoint", "list", "--json"]);
    assert_eq!(all[0]["undoes"], id.as_str(), "{all}");
    let kept = all[0]["id"].as_str().unwrap();
    let _ = world.atoll(["restore", kept]).run().success();
    assert_eq!(read("changed"), is("2"));
    assert_eq!(read("made"), is("2"));
    assert_eq!(read("removed"), None);
    // Told to, it restores what was changed again, too.
    let _ = world.atoll(["restore", &id, "--overwrite"]).run().success();
    assert_eq!(read("both"), is("1"));
    assert_eq!(read("own"), is("3"));
    let freed = world
        .atoll(["gc", "--older-than", "1h", "--dry-run"])
        .run()
        .success();
    assert!(!freed.err().contains("checkpoint"), "{freed}");
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let freed = world
        .atoll(["gc", "--older-than", "1s", "--dry-run"])
        .run()
        .success();
    freed.says(["checkpoints would be freed"]);
    let _ = world.atoll(["checkpoint", "discard", &id]).run().success();
    let unknown = world.atoll(["restore", &id]).run();
    unknown.is_clear_error(["there is no checkpoint", "atoll checkpoint list"]);
    let wrong = world.atoll(["checkpoint", "take", "ftp:x"]).run();
    wrong.is_clear_error(["target", "files:PATH"]);
    verify_ledger(&world);
}

#[test]
fn policies_decide_what_is_restored() {
    let world = World::new("policies_decide_what_is_restored");
    world.write("one", "1");
    let target = format!("files:{}", world.path("one").display());
    let taken = world.atoll(["checkpoint", "take", &target]).run().success();
    let id = taken.out().trim().to_owned();
    world.write("one", "2");
    let _ = world.atoll(["checkpoint", "settle", &id]).run().success();
    let rule = world.config().join("atoll/own.cedar");
    world.write(
        &rule,
        r#"@id("never") @reason("nothing is restored here")
           forbid(principal, action == Action::"restore", resource);"#,
    );
    let refused = world.atoll(["restore", &id]).run().expect_status(126);
    refused.is_clear_error(["nothing was restored"]);
    assert_eq!(world.read("one"), "2");
    world.write(&rule, "permit(principal, action, resource);");
    let _ = world.atoll(["restore", &id]).run().success();
    assert_eq!(world.read("one"), "1");
}

const TICKETS: &str = r#"
import json, os, sys
path, action, argument = sys.argv[1:]
tickets = json.load(open(path)) if os.path.exists(path) else {}
if action == "create":
    number = str(max([0] + [int(one) for one in tickets]) + 1)
    tickets[number] = argument
    print(json.dumps({"ticket": {"id": number}}))
else:
    print(json.dumps({"removed": tickets.pop(argument, None)}))
with open(path + ".new", "w") as file:
    json.dump(tickets, file)
os.rename(path + ".new", path)
"#;

/// A service of tickets outside, a database and a repository, and tools that change them.
fn tools(world: &World) {
    world.write("tickets.py", TICKETS);
    world.profile("outside", "extends = [\"default\"]\nworkspace = \"live\"\n");
    let place = world.path("").display().to_string();
    let text = r#"
[tool.create_ticket]
description = "Opens a ticket."
kind = "command"
command = ["python3", "PLACE/tickets.py", "PLACE/tickets.json", "create", "{title}"]
output = "json"
effect = "send"
profile = "outside"
inverse = { tool = "delete_ticket", arguments = { id = "{result.ticket.id}" } }
arguments = { properties = { title = { type = "string" } }, required = ["title"] }

[tool.delete_ticket]
description = "Removes a ticket."
kind = "command"
command = ["python3", "PLACE/tickets.py", "PLACE/tickets.json", "delete", "{id}"]
output = "json"
effect = "write"
idempotent = true
profile = "outside"
arguments = { properties = { id = { type = "string" } }, required = ["id"] }

[tool.touch]
description = "Does something for good."
kind = "command"
command = ["true"]
effect = "deploy"

[tool.look]
description = "Looks."
kind = "command"
command = ["true"]
effect = "read"

[tool.noted]
description = "Has a checkpoint."
kind = "command"
command = ["true"]
effect = "write"
checkpoint = ["sqlite:DIR/app.db", "files:DIR/site"]
"#;
    let text = text
        .replace("PLACE/", &format!("{place}/"))
        .replace("DIR", &place);
    world.write(world.config().join("atoll/tools.toml"), &text);
}

/// A tool's checkpoint is taken before each call with an effect, and restored by its id.
#[test]
fn tools_have_checkpoints_taken() {
    let world = World::new("tools_have_checkpoints_taken");
    tools(&world);
    world.write("site/page", "1");
    let database = world.path("app.db");
    let sql = |text: &str| {
        let script = format!(
            "import sqlite3; c = sqlite3.connect({:?}); r = c.execute({text:?}).fetchall(); \
             c.commit(); print(r)",
            database.display().to_string()
        );
        world
            .host("python3")
            .args(["-c", &script])
            .run()
            .success()
            .out()
    };
    let _ = sql("create table t (n integer)");
    let _ = sql("insert into t values (1)");
    let shown = world.atoll(["tools", "show", "noted"]).run().success();
    assert!(shown.out().contains("restore"), "{shown}");
    let called = world
        .atoll(["tools", "call", "noted", "--json"])
        .run()
        .success()
        .json();
    let all = json_of(&world, &["checkpoint", "list", "--json"]);
    assert_eq!(all[0]["why"], "tool noted", "{all}");
    let session = called["call"]
        .as_str()
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    assert_eq!(all[0]["run"], session.as_str());
    assert_eq!(all[0]["targets"].as_array().unwrap().len(), 2);
    // Nothing has changed by the call: whatever does now is somebody else's.
    let _ = sql("insert into t values (2)");
    let id = all[0]["id"].as_str().unwrap();
    let _ = world.atoll(["restore", id]).run();
    assert_eq!(sql("select n from t").trim(), "[(1,), (2,)]");
    // A target that is not there stops the call before its effect.
    fs::remove_file(&database).unwrap();
    let failed = world
        .atoll(["tools", "call", "noted"])
        .run()
        .expect_status(1);
    assert!(failed.err().contains("no checkpoint"), "{failed}");
    verify_ledger(&world);
}

/// An undo that is killed again and again goes on where it was, and makes up for each call once.
#[test]
fn a_killed_undo_goes_on() {
    let world = World::new("a_killed_undo_goes_on");
    tools(&world);
    let calls: Vec<Value> = (0..5)
        .map(|number| json!(["create_ticket", { "title": number.to_string() }]))
        .collect();
    let _ = over_mcp(&world, &calls);
    let session = session_of(&world);
    for step in 1..40 {
        let undo = world
            .atoll(["undo", "--session", &session, "--json"])
            .start();
        std::thread::sleep(std::time::Duration::from_millis(60 * step));
        undo.signal(rustix::process::Signal::KILL);
        let ended = undo.wait();
        if ended.code() == 0 {
            break;
        }
    }
    let undone = world.atoll(["undo", "--session", &session, "--json"]).run();
    let undone = undone.success().json();
    let steps = undone["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 5, "{undone}");
    assert!(steps.iter().all(|one| one["end"] == "already"), "{undone}");
    assert_eq!(world.read("tickets.json"), "{}");
    verify_ledger(&world);
}

/// Returns the first session of tools in the ledger.
fn session_of(world: &World) -> String {
    let events = world
        .atoll(["ledger", "show", "--json"])
        .run()
        .success()
        .out();
    events
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|event| event["type"] == "tool.opened")
        .and_then(|event| event["run"].as_str().map(str::to_owned))
        .unwrap()
}

/// The newest call is taken back first; what has no way back is shown, and a second undo does nothing.
#[test]
fn a_session_is_undone_in_order() {
    let world = World::new("a_session_is_undone_in_order");
    tools(&world);
    world.write("site/page", "1");
    let script = format!(
        "import sqlite3; sqlite3.connect({:?}).execute('create table t (n)')",
        world.path("app.db").display().to_string()
    );
    let _ = world.host("python3").args(["-c", &script]).run().success();
    let calls = [
        json!(["create_ticket", { "title": "one" }]),
        json!(["look", {}]),
        json!(["touch", {}]),
        json!(["create_ticket", { "title": "two" }]),
        json!(["noted", {}]),
    ];
    let (answers, _) = over_mcp(&world, &calls);
    for answer in &answers {
        assert_ne!(answer["isError"], true, "{answer}");
    }
    assert_eq!(world.read("tickets.json"), r#"{"1": "one", "2": "two"}"#);
    let session = session_of(&world);
    let listed = json_of(&world, &["undo", "--session", &session, "--list", "--json"]);
    assert_eq!(listed["steps"].as_array().unwrap().len(), 4, "{listed}");
    let undone = world.atoll(["undo", "--session", &session, "--json"]).run();
    let undone = undone.expect_status(1).json();
    let told = |undone: &Value| -> Vec<String> {
        let steps = undone["steps"].as_array().unwrap().iter();
        let told = steps.map(|one| {
            format!(
                "{} {}",
                one["tool"].as_str().unwrap(),
                one["end"].as_str().unwrap()
            )
        });
        told.collect()
    };
    assert_eq!(
        told(&undone),
        [
            "noted restored",
            "create_ticket called",
            "touch left",
            "create_ticket called"
        ]
    );
    assert_eq!(world.read("tickets.json"), "{}");
    let again = world.atoll(["undo", "--session", &session, "--json"]).run();
    assert_eq!(
        told(&again.expect_status(1).json()),
        [
            "noted already",
            "create_ticket already",
            "touch left",
            "create_ticket already"
        ]
    );
    verify_ledger(&world);
}
