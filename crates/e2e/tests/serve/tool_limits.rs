//! Limits and breakers of tools.

use super::*;

const TOOLS: &str = r#"
[tool.say]
description = "Says hello."
kind = "command"
command = ["echo", "hello"]
effect = "read"
sandbox = "session"

[tool.stall]
description = "Does not come back in time, unless a file is there."
kind = "command"
command = ["sh", "-c", "test -e \"$HOME/well\" || sleep 60"]
effect = "read"
sandbox = "session"
timeout = "200ms"
calls = { breaker = { faults = 2, cool-down = "4s" } }

[tool.heal]
description = "Has the other one come back."
kind = "command"
command = ["touch", "well"]
effect = "write"
sandbox = "session"
"#;

fn started(world: &World, more: &str) -> Server {
    let text = format!("{TOOLS}\n{more}");
    world.write(world.config().join("atoll/tools.toml"), text);
    world.write("serve.toml", "[warm]\nsandboxes = 0\n");
    Server::with(world, &["--config", "serve.toml"])
}

fn call(world: &World, server: &Server, tool: &str, session: &str) -> (u32, Value) {
    let body = json!({ "session": session }).to_string();
    server.ask(world, "POST", &format!("/v1/tools/{tool}/call"), &body)
}

/// Another session, and another tool, give a caller nothing more.
#[test]
fn limits_of_a_caller_hold_in_all_its_sessions() {
    let world = World::new("limits_of_a_caller_hold_in_all_its_sessions");
    let limits = "[caller]\nrate = [\"4/h\"]\n[session]\nmost = 2\n";
    let server = started(&world, limits);
    let status = |tool: &str, session: &str| call(&world, &server, tool, session).0;
    assert_eq!([status("say", "a"), status("heal", "a")], [200, 200]);
    let (over, told) = call(&world, &server, "say", "a");
    assert_eq!(over, 429, "{told}");
    let why = told["limited"]["why"].as_str().unwrap();
    assert!(why.contains("used up its 2 calls"), "{told}");
    assert_eq!(told["limited"]["retry_after_s"], Value::Null);
    assert_eq!([status("say", "b"), status("say", "c")], [200, 200]);
    let (over, told) = call(&world, &server, "say", "d");
    assert_eq!(over, 429, "{told}");
    let wait = told["limited"]["retry_after_s"].as_u64().unwrap();
    assert!((1..=900).contains(&wait), "{told}");
    let _ = server.end();
    verify_ledger(&world);
    let is_of = |kind: &str| {
        events(&world)
            .iter()
            .filter(|one| one["type"] == kind)
            .count()
    };
    assert_eq!((is_of("tool.opened"), is_of("tool.rejected")), (4, 2));
}

#[test]
fn breaker_opens_tries_once_and_is_set_by_a_person() {
    let world = World::new("breaker_opens_tries_once_and_is_set_by_a_person");
    let server = started(&world, "");
    let stall = || call(&world, &server, "stall", "a");
    for _ in 0..2 {
        assert_eq!(stall().1["answer"]["end"], "timed-out");
    }
    let (status, told) = stall();
    assert_eq!(status, 429, "{told}");
    let why = told["limited"]["why"].as_str().unwrap();
    assert!(why.contains("breaker of tool stall is open"), "{told}");
    // Other tools go on; other processes see the same.
    assert_eq!(call(&world, &server, "heal", "a").0, 200);
    let listed = world.atoll(["breakers", "list", "--json"]).run().json();
    assert_eq!(listed[0]["of"], "tool stall", "{listed}");
    let closed = wait_until("a trial", SOON, || {
        let (status, told) = stall();
        (status == 200).then_some(told)
    });
    assert_eq!(closed["answer"]["end"], "done", "{closed}");
    let breakers = |words: &[&str]| world.atoll(["breakers"]).args(words).run();
    let none = breakers(&["list"]).success();
    assert!(none.says(["Every breaker is closed"]).out().is_empty());
    let _ = breakers(&["trip", "stall", "--why", "a person's word"]).success();
    assert_eq!(stall().1["limited"]["retry_after_s"], Value::Null);
    let local = world.atoll(["tools", "call", "stall"]).run();
    local
        .expect_status(125)
        .is_clear_error(["tripped, by a person", "atoll breakers list"]);
    let all = breakers(&["list", "--all"]).success().out();
    assert!(all.contains("tool say    closed"), "{all}");
    assert!(all.contains("tool stall  tripped"), "{all}");
    let _ = breakers(&["reset", "stall"]).success();
    assert_eq!(stall().1["answer"]["end"], "done");
    breakers(&["trip", "nosuch"])
        .expect_status(125)
        .is_clear_error(["nothing has a breaker"]);
    let _ = server.end();
    verify_ledger(&world);
    let all = events(&world);
    let changed = all.iter().filter(|one| one["type"] == "breaker.changed");
    let states: Vec<&str> = changed
        .map(|one| one["body"]["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["open", "half-open", "closed", "tripped", "closed"]);
}

/// At a bound an approver is asked, and what they allow begins the budget anew; a repeated answer does
/// not.
#[test]
fn budget_of_a_session_asks_at_its_bound() {
    let world = World::new("budget_of_a_session_asks_at_its_bound");
    let server = started(&world, "[session.budget]\nwrite = 1\n");
    let key = |key: &str| {
        let body = json!({ "session": "a", "key": key }).to_string();
        server.ask(&world, "POST", "/v1/tools/heal/call", &body)
    };
    assert_eq!(key("one").0, 200);
    let may = |tool: &str| {
        let body = json!({ "session": "a" }).to_string();
        server
            .ask(&world, "POST", &format!("/v1/tools/{tool}/may"), &body)
            .1
    };
    let asks = |told: &Value| {
        told.to_string()
            .contains("used up its budget: 1 calls of effect write")
    };
    assert_eq!(key("one").0, 200);
    assert!(asks(&may("heal")), "{}", may("heal"));
    // Reading is bounded by nothing, and so is another session.
    assert_eq!(call(&world, &server, "say", "a").0, 200);
    assert_eq!(call(&world, &server, "heal", "b").0, 200);
    let approver = world
        .atoll([
            "serve", "keys", "create", "--name", "boss", "--role", "approver",
        ])
        .run()
        .success()
        .out();
    let (status, answer) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| key("two"));
        let asked = wait_until("the question", SOON, || {
            let (_, all) = server.ask(&world, "GET", "/v1/approvals", "");
            all.as_array().and_then(|all| all.first().cloned())
        });
        assert!(asks(&asked), "{asked}");
        let path = format!(
            "{}/v1/sandboxes/{}/approvals/{}",
            server.url,
            asked["sandbox"].as_str().unwrap(),
            asked["approval"]
        );
        let header = format!("X-API-Key: {}", approver.trim());
        let body = json!({ "digest": asked["digest"], "grant": true }).to_string();
        let granted = world.host("curl").args(["-sS", "-H", &header, "-d", &body]);
        let _ = granted.arg(&path).run().success();
        asking.join().unwrap()
    });
    assert_eq!(status, 200, "{answer}");
    // With the call that was agreed to it is used up again.
    assert!(asks(&may("heal")), "{}", may("heal"));
    let _ = server.end();
    verify_ledger(&world);
}

/// Returns how many sandboxes the caller has.
fn sandboxes(world: &World, server: &Server) -> usize {
    let (_, told) = server.ask(world, "GET", "/v1/sandboxes", "");
    told["sandboxes"].as_array().map_or(0, Vec::len)
}

/// Its sandbox goes at the bound, without a further call; another session is none the worse.
#[test]
fn session_that_is_idle_or_old_is_over() {
    let world = World::new("session_that_is_idle_or_old_is_over");
    let server = started(&world, "[session]\nidle = \"4s\"\nwall-clock = \"8s\"\n");
    let say = |session: &str| call(&world, &server, "say", session);
    let over = |session: &str| {
        let (status, told) = say(session);
        let why = told["limited"]["why"].as_str().map(str::to_owned);
        assert_eq!(status == 429, why.is_some(), "{told}");
        why
    };
    assert_eq!(say("a").0, 200);
    assert_eq!(sandboxes(&world, &server), 1);
    let gone = || (sandboxes(&world, &server) == 0).then_some(());
    wait_until("the sandbox of an idle session goes", SOON, gone);
    assert!(over("a").unwrap().contains("it was idle for 4.0 s"));
    // One that is used lasts, though not for ever.
    assert_eq!(over("b"), None);
    let why = wait_until("the end of a session that is used", SOON, || over("b"));
    assert!(why.contains("it has lasted 8.0 s"), "{why}");
    assert!(over("b").unwrap().contains("begin another one"));
    wait_until("its sandbox goes", SOON, gone);
    assert_eq!(over("c"), None);
    let _ = server.end();
    verify_ledger(&world);
    let all = events(&world);
    let rejected = all.iter().filter(|one| one["type"] == "tool.rejected");
    assert!(rejected.count() >= 3);
}
