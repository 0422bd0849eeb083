//! The limits of rules, on a small internet of each test's own, with an origin that records what
//! reaches it.

use std::time::{Duration, Instant};

use e2e::World;
use e2e::internet::{Seen, events, is_possible, online};
use serde_json::Value;

const CURL: &str = "curl -sS -m 60 --noproxy '*'";

/// Runs a script with a profile that has this rule alone.
fn limited(world: &World, rule: &str, script: &str) -> Seen {
    world.profile(
        "limited",
        &format!("[network]\nallow = [\n    {rule},\n]\n"),
    );
    online(world, &["--profile", "limited"], script)
}

/// Checks that the ledger, the summary and `atoll why` report a limit and its source; returns the
/// number of flows that it has ended.
fn is_told(world: &World, seen: &Seen, limit: &str, said: &str) -> usize {
    let refused: Vec<Value> = events(world, "flow.refused");
    let of_limit = |body: &&Value| body["limit"] == limit;
    let of_limit: Vec<&Value> = refused.iter().filter(of_limit).collect();
    assert!(!of_limit.is_empty(), "{refused:?}");
    for body in of_limit {
        assert!(body["why"].as_str().unwrap().contains(said), "{body}");
        assert!(
            body["rule"].as_str().unwrap().contains("limited.toml:3"),
            "{body}"
        );
    }
    let why = world.atoll(["why", "last"]).run().success().out();
    for told in [seen.outcome.err(), why] {
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(said), "{said} is not in {told}");
        assert!(told.contains("limited.toml:3"), "{told}");
    }
    let closed = events(world, "flow.closed");
    closed.iter().filter(|body| body["limit"] == limit).count()
}

#[test]
fn requests_are_limited_in_a_time() {
    let world = World::new("requests_are_limited_in_a_time");
    if !is_possible(&world, &[]) {
        return;
    }
    let rule = "{ to = [\"example.com\", \"www.example.com\"], requests = \"3/h\" }";
    let script = format!(
        "for host in example.com www.example.com; do for n in 1 2 3; do {CURL} -i http://$host/$n; done; done"
    );
    let seen = limited(&world, rule, &script);
    // Both hosts are of one table.
    assert_eq!(seen.first.matches("GET /").count(), 3, "{}", seen.first);
    let out = seen.output();
    assert_eq!(out.matches("this is 93.184.216.34").count(), 3, "{out}");
    assert_eq!(
        out.matches("HTTP/1.1 429 Too Many Requests").count(),
        3,
        "{out}"
    );
    for words in [
        "retry-after: 1",
        "\"how_to_ask\":\"wait as long",
        "requests = \\\"3/h\\\"",
    ] {
        assert!(out.contains(words), "{words} is not in {out}");
    }
    assert_eq!(
        is_told(&world, &seen, "requests", "(requests = \"3/h\")"),
        0
    );
    // The control: without it all of them arrive.
    let seen = limited(
        &world,
        "{ to = [\"example.com\", \"www.example.com\"] }",
        &script,
    );
    assert_eq!(seen.first.matches("GET /").count(), 6, "{}", seen.first);
}

#[test]
fn a_body_beyond_its_limit_never_arrives_whole() {
    let world = World::new("a_body_beyond_its_limit_never_arrives_whole");
    if !is_possible(&world, &[]) {
        return;
    }
    let chunks = format!(
        "python3 -c 'import sys, time\nfor n in range(30):\n sys.stdout.write(\"x\" * 10000); sys.stdout.flush(); time.sleep(0.01)' | {CURL} -w '%{{http_code}}\\n' -o /dev/null -H 'Transfer-Encoding: chunked' -T - http://example.com/unknown"
    );
    let script = format!(
        "head -c 200000 /dev/zero > big; head -c 900 /dev/zero > small; \
         {CURL} -w '%{{http_code}}\\n' -o /dev/null --data-binary @big http://example.com/told; \
         {CURL} -w '%{{http_code}}\\n' -o /dev/null --data-binary @small http://example.com/small; {chunks}; true"
    );
    let rule = "{ to = \"example.com\", body = \"100KiB\" }";
    let seen = limited(&world, rule, &script);
    let out = seen.output();
    assert_eq!(
        out.lines().take(2).collect::<Vec<_>>(),
        ["413", "200"],
        "{out}"
    );
    assert!(!seen.first.contains("/told"), "{}", seen.first);
    assert!(seen.first.contains("POST /small"), "{}", seen.first);
    let _ = is_told(&world, &seen, "body", "(body = \"100KiB\")");
    // The control: they arrive. The server there reads no large body to its end, so that its
    // answer to one can be lost.
    let seen = limited(&world, "{ to = \"example.com\" }", &script);
    let out = seen.output();
    assert_eq!(out.lines().nth(1), Some("200"), "{out}");
    assert!(seen.first.contains("POST /told"), "{}", seen.first);
}

/// Sends so many bytes to an echo server, by one connection, and prints how many came back.
fn echo(bytes: usize) -> String {
    format!(
        "python3 -c 'import socket, threading\n\
         s = socket.create_connection((\"example.com\", 7)); s.settimeout(60)\n\
         def send():\n try: s.sendall(b\"x\" * {bytes}); s.shutdown(1)\n except OSError: pass\n\
         t = threading.Thread(target=send); t.start(); n = 0\n\
         try:\n while True:\n  b = s.recv(65536)\n  if not b: break\n  n += len(b)\n\
         except OSError: n = -1 - n\n\
         print(n)' || echo refused; "
    )
}

#[test]
fn bytes_of_tunnels_are_limited_in_a_run() {
    let world = World::new("bytes_of_tunnels_are_limited_in_a_run");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = [echo(100_000), echo(300_000), echo(10)].concat();
    for limit in ["upload", "download"] {
        let rule = format!("{{ to = \"example.com:7\", {limit} = \"200KiB\" }}");
        let seen = limited(&world, &rule, &script);
        let out = seen.output();
        let came: Vec<&str> = out.lines().collect();
        assert_eq!((came.len(), came[0]), (3, "100000"), "{limit}: {out}");
        // The second one was reset, and of the third nothing came.
        let second: i64 = came[1].parse().unwrap();
        assert!(
            second < 0 && -second <= 200 * 1024 - 100_000,
            "{limit}: {out}"
        );
        assert!(["-1", "0", "refused"].contains(&came[2]), "{limit}: {out}");
        let said = format!("({limit} = \"200KiB\")");
        assert_eq!(is_told(&world, &seen, limit, &said), 1);
        let closed = events(&world, "flow.closed");
        let member = if limit == "upload" {
            "up_bytes"
        } else {
            "down_bytes"
        };
        let carried: u64 = closed.iter().filter_map(|body| body[member].as_u64()).sum();
        assert!(carried <= 200 * 1024, "{limit}: {carried}");
        assert_eq!(seen.reached.len(), 2, "{:?}", seen.reached);
    }
    let seen = limited(&world, "{ to = \"example.com:7\" }", &script);
    assert_eq!(seen.output(), "100000\n300000\n10");
}

#[test]
fn connections_of_a_rule_are_limited() {
    let world = World::new("connections_of_a_rule_are_limited");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = "python3 -c 'import socket\n\
         def one():\n try:\n  s = socket.create_connection((\"example.com\", 7)); s.settimeout(60); s.sendall(b\"x\")\n  return s if s.recv(1) else None\n except OSError: return None\n\
         held = [one() for _ in range(4)]; print([bool(s) for s in held])\n\
         held[0].close()\n\
         import time\n\
         for _ in range(1200):\n last = one()\n if last: break\n time.sleep(0.05)\n\
         print(bool(last))'";
    let rule = "{ to = \"example.com:7\", connections = 2 }";
    let seen = limited(&world, rule, script);
    assert_eq!(
        seen.output(),
        "[True, True, False, False]\nTrue",
        "{}",
        seen.outcome
    );
    assert_eq!(
        is_told(&world, &seen, "connections", "(connections = 2)"),
        0
    );
    let seen = limited(&world, "{ to = \"example.com:7\" }", script);
    assert_eq!(seen.output(), "[True, True, True, True]\nTrue");
}

#[test]
fn what_takes_too_long_is_ended() {
    let world = World::new("what_takes_too_long_is_ended");
    if !is_possible(&world, &[]) {
        return;
    }
    // The server at 443 says nothing.
    let script = "python3 -c 'import socket, time\n\
         s = socket.create_connection((\"example.com\", 7)); s.sendall(b\"x\"); s.recv(1); s.settimeout(100); t = time.monotonic()\n\
         try: s.recv(1)\n except OSError: pass\n\
         print(time.monotonic() - t < 60)'"
        .replace("\n except", "\nexcept");
    let rule = "{ to = \"example.com:7\", duration = \"1s\" }";
    let seen = limited(&world, rule, &script);
    assert_eq!(seen.output(), "True", "{}", seen.outcome);
    assert_eq!(is_told(&world, &seen, "duration", "(duration = \"1s\")"), 1);
    let took = &events(&world, "flow.closed")[0]["duration_us"];
    let took = Duration::from_micros(took.as_u64().unwrap());
    assert!(
        (Duration::from_millis(500)..Duration::from_secs(60)).contains(&took),
        "{took:?}"
    );
}

#[test]
fn a_rate_slows_down_and_loses_nothing() {
    let world = World::new("a_rate_slows_down_and_loses_nothing");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = echo(100_000);
    let started = Instant::now();
    let seen = limited(
        &world,
        "{ to = \"example.com:7\", rate = \"50KiB/s\" }",
        &script,
    );
    assert_eq!(seen.output(), "100000", "{}", seen.outcome);
    assert!(
        started.elapsed() >= Duration::from_millis(1900),
        "{:?}",
        started.elapsed()
    );
    assert!(events(&world, "flow.refused").is_empty());
    let closed = &events(&world, "flow.closed")[0];
    assert_eq!(
        (&closed["failure"], &closed["limit"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn the_rule_that_decides_is_the_one_whose_limits_hold() {
    let world = World::new("the_rule_that_decides_is_the_one_whose_limits_hold");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!(
        "for n in 1 2 3; do {CURL} -o /dev/null -w '%{{http_code}}\\n' http://example.com/$n; done"
    );
    // What is allowed again on the command line is no way around it.
    let table = "{ to = \"example.com\", requests = \"1/h\" }";
    world.profile("limited", &format!("[network]\nallow = [{table}]\n"));
    let seen = online(
        &world,
        &["--profile", "limited", "--allow", "example.com"],
        &script,
    );
    assert_eq!(seen.output(), "200\n429\n429");
    // The first one counts.
    world.profile(
        "limited",
        &format!("[network]\nallow = [\"GET example.com\", {table}]\n"),
    );
    let seen = online(&world, &["--profile", "limited"], &script);
    assert_eq!(seen.output(), "200\n200\n200");
}

#[test]
fn a_limit_where_nobody_can_hold_it_is_a_mistake() {
    let world = World::new("a_limit_where_nobody_can_hold_it_is_a_mistake");
    for (rule, words) in [
        (
            "allow = [{ to = \"example.com\", carry = \"tunnel\", requests = \"1/s\" }]",
            [
                "nobody sees requests in a tunnel",
                "leave `requests` or `carry` out",
            ],
        ),
        (
            "allow = [{ to = \"example.com:9000\", body = \"1KiB\" }]",
            ["`body` is about requests", "carry = \"requests\""],
        ),
        (
            "deny = [{ to = \"example.com\", connections = 1 }]",
            [
                "what is denied is not reached at all",
                "leave the limits out",
            ],
        ),
        (
            "allow = [{ to = \"example.com\", requests = \"1/day\" }]",
            ["\"1/day\"", "60/min"],
        ),
    ] {
        world.profile("wrong", &format!("[network]\n{rule}\n"));
        let run = ["run", "--discard", "--profile", "wrong", "--", "true"];
        let _ = world.atoll(run).run().is_clear_error(words);
    }
}

#[test]
fn limits_of_a_run_hold_over_all_rules() {
    let world = World::new("limits_of_a_run_hold_over_all_rules");
    if !is_possible(&world, &[]) {
        return;
    }
    let options = [
        "--allow",
        "example.com",
        "--allow",
        "www.example.com",
        "--limit",
        "network-bytes=20KiB",
    ];
    let script = format!(
        "{CURL} http://example.com/1; head -c 100000 /dev/zero | {CURL} -o /dev/null -H 'Transfer-Encoding: chunked' --data-binary @- \
         http://www.example.com/2; {CURL} -i http://example.com/3"
    );
    let seen = online(&world, &options, &script);
    let out = seen.output();
    assert!(out.starts_with("this is 93.184.216.34"), "{out}");
    assert!(out.contains("HTTP/1.1 403 "), "{out}");
    assert!(out.contains("network-bytes=20 KiB"), "{out}");
    let refused = events(&world, "flow.refused");
    let named = |one: &Value| one["limit"] == "network-bytes";
    assert!(refused.iter().any(named), "{refused:?}");
    let why = world.atoll(["why", "last"]).run().success().out();
    for told in [seen.outcome.err(), why] {
        assert!(told.contains("network-bytes"), "{told}");
    }
    let unknown = world.run(["--limit", "network-rate=fast"], "true").run();
    let _ = unknown.is_clear_error(["network-rate"]);
}
