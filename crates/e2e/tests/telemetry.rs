//! What happens is told to collectors of OpenTelemetry: a real one understands all of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::fs;
use std::net::TcpListener;
use std::time::Duration;

use e2e::{Avoidable, Outcome, Running, World, cache, program_exists, wait_until};

/// Whatever might hang is given this long on a busy machine.
const SOON: Duration = Duration::from_secs(60);
const ANSWERS: &str = include_str!("telemetry/answers.py");

/// A collector in Rust that prints what it takes, and its address.
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
    let into = world.top().join("collector");
    let _ = world
        .host("python3")
        .args(["-m", "zipfile", "-e"])
        .args([&wheel, &into])
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
    let told = sent(&world, &["--otlp", &address]).success();
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
    // Each once, whoever asks again; all of it only where that is meant.
    let told = sent(&world, &["--otlp", &address]).success();
    assert!(told.err().contains("0 events sent"), "{told}");
    let told = sent(&world, &["--otlp", &address, "--again"]).success();
    assert!(!told.err().contains(" 0 events sent"), "{told}");
    // What happens later is told while it happens.
    let following = world
        .atoll(["ledger", "export", "--follow", "--otlp", &address])
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

/// A server that answers so, and its address.
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
