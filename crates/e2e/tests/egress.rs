//! What programs reach of the outside, on a small internet of each test's own: a name
//! server and servers that write down who came.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::fs;

use e2e::{Avoidable, Outcome, World, program_exists};
use serde_json::Value;

const INTERNET: &str = include_str!("egress/internet.py");

/// A program that was run, and what the internet saw of it.
struct Seen {
    outcome: Outcome,
    asked: Vec<String>,
    reached: Vec<String>,
}

impl Seen {
    /// What the program wrote, trimmed.
    fn output(&self) -> String {
        self.outcome.out().trim().to_owned()
    }
}

/// Whether a small internet can be made here.
fn is_possible(world: &World) -> bool {
    let missing = ["python3", "ip", "curl"]
        .into_iter()
        .find(|program| !program_exists(program));
    if let Some(missing) = missing {
        world.skip(&format!("{missing} is not installed"), Avoidable::Yes);
    }
    missing.is_none()
}

/// Runs a shell script inside, with these options, where there is an internet.
fn online(world: &World, options: &[&str], script: &str) -> Seen {
    let internet = world.top().join("internet");
    let _ = fs::remove_dir_all(&internet);
    fs::create_dir(&internet).unwrap();
    fs::write(internet.join("internet.py"), INTERNET).unwrap();
    let place = internet.display();
    let command =
        format!("exec python3 '{place}/internet.py' '{place}' \"$ATOLL\" run --discard \"$@\"");
    let outcome = world
        .network_shell(&command)
        .arg("sh")
        .args(options)
        .args(["--", "sh", "-c", script])
        .run();
    let lines = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(internet.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    Seen {
        outcome,
        asked: lines("asked"),
        reached: lines("reached"),
    }
}

/// The bodies of a run's events of a type.
fn events(world: &World, kind: &str) -> Vec<Value> {
    let told = world.atoll(["ledger", "show", "last"]).run().success();
    let lines = told.out();
    let parsed = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    parsed
        .filter(|event| event["type"] == kind)
        .map(|event| event["body"].clone())
        .collect()
}

const CURL: &str = "curl -sS -m 10 --noproxy '*'";

#[test]
fn a_named_host_is_reached_by_programs_that_know_of_no_proxy() {
    let world = World::new("a_named_host_is_reached_by_programs_that_know_of_no_proxy");
    if !is_possible(&world) {
        return;
    }
    let script = format!(
        "{CURL} http://example.com/; {CURL} http://six.example/; \
         python3 -c 'import socket; s = socket.create_connection((\"example.com\", 22)); print(s.recv(64).decode().strip())'; \
         {CURL} http://93.184.216.35/"
    );
    let allow = [
        "--allow",
        "example.com",
        "--allow",
        "six.example",
        "--allow",
        "example.com:22",
        "--allow",
        "93.184.216.35",
    ];
    let seen = online(&world, &allow, &script);
    assert_eq!(
        seen.output(),
        "this is 93.184.216.34\nthis is 2606:2800:220:1::1\nSSH-2.0-here\nthis is 93.184.216.35"
    );
    assert_eq!(seen.reached.len(), 4, "{:?}", seen.reached);
    let opened = events(&world, "flow.opened");
    let closed = events(&world, "flow.closed");
    assert_eq!(
        (opened.len(), closed.len()),
        (4, 4),
        "{opened:?} {closed:?}"
    );
    let first = &opened[0];
    assert_eq!(first["host"], "example.com");
    assert_eq!(first["address"], "93.184.216.34");
    assert_eq!(first["port"], 80);
    assert_eq!(first["rule"], "example.com (--allow)");
    for one in &closed {
        assert!(one["down_bytes"].as_u64().unwrap() > 10, "{one}");
    }
}

#[test]
fn what_no_rule_allows_is_not_reached_and_nobody_is_asked_for_it() {
    let world = World::new("what_no_rule_allows_is_not_reached_and_nobody_is_asked_for_it");
    if !is_possible(&world) {
        return;
    }
    let tries = [
        "http://other.example/",
        "http://www.example.com/",
        "http://93.184.216.34/",
        "http://93.184.216.34:22/",
        "http://example.com:22/",
        "http://[2606:2800:220:1::1]/",
        "http://10.1.2.3/",
        "http://169.254.169.254/",
        "http://127.0.0.1:15001/",
        "http://9.9.9.9/",
        "http://0x5db8d822/",
        "http://1572395042/",
    ];
    let script: String = tries
        .iter()
        .map(|one| format!("{CURL} '{one}' && echo reached {one}; "))
        .collect();
    // The control: the same program reaches what is allowed.
    let script = format!("{script} {CURL} http://example.com/");
    let seen = online(&world, &["--allow", "example.com"], &script);
    assert_eq!(seen.output(), "this is 93.184.216.34");
    assert_eq!(seen.reached, ["93.184.216.34 80"]);
    let others = seen.asked.iter().filter(|name| *name != "example.com");
    assert_eq!(others.count(), 0, "{:?}", seen.asked);
    let refused = events(&world, "flow.refused");
    let is_refused = |host: &str, port: u64| {
        let to = |one: &&Value| one["host"] == host && one["port"].as_u64().unwrap_or(0) == port;
        refused.iter().any(|one| to(&one))
    };
    assert!(is_refused("other.example", 0), "{refused:?}");
    assert!(is_refused("93.184.216.34", 80), "{refused:?}");
    assert!(is_refused("example.com", 22), "{refused:?}");
    let told = seen.outcome.err();
    assert!(
        told.contains("reaching other.example: no rule allows it"),
        "{told}"
    );
}

#[test]
fn without_a_rule_there_is_no_way_out_at_all() {
    let world = World::new("without_a_rule_there_is_no_way_out_at_all");
    if !is_possible(&world) {
        return;
    }
    let script = format!("{CURL} http://example.com/; {CURL} http://93.184.216.34/; true");
    for options in [&[][..], &["--deny", "example.com"]] {
        let seen = online(&world, options, &script);
        assert_eq!(
            (seen.output().as_str(), seen.reached.len(), seen.asked.len()),
            ("", 0, 0)
        );
    }
}

#[test]
fn a_name_that_leads_to_an_address_of_nobodys_is_refused() {
    let world = World::new("a_name_that_leads_to_an_address_of_nobodys_is_refused");
    if !is_possible(&world) {
        return;
    }
    let names = ["private", "loopback", "metadata", "mapped", "mixed"];
    let script: String = names
        .iter()
        .map(|name| format!("{CURL} http://{name}.example/; "))
        .collect();
    let script = format!("{script} {CURL} http://example.com/");
    let seen = online(&world, &["--allow", "*"], &script);
    assert_eq!(seen.output(), "this is 93.184.216.34");
    assert_eq!(seen.reached, ["93.184.216.34 80"]);
    // A rule that names the address lets the same name lead there.
    let named = ["--allow", "*.example", "--allow", "10.1.0.0/16"];
    let seen = online(&world, &named, &format!("{CURL} http://private.example/"));
    assert_eq!(seen.output(), "this is 10.1.2.3");
}

#[test]
fn what_is_denied_is_not_reached_whatever_allows_it() {
    let world = World::new("what_is_denied_is_not_reached_whatever_allows_it");
    if !is_possible(&world) {
        return;
    }
    world.profile(
        "web",
        "[network]\nallow = [\"*:*\"]\ndeny = [\"other.example:*\", \"93.184.216.34:22\"]\n",
    );
    let script = format!(
        "{CURL} http://other.example/; {CURL} telnet://93.184.216.34:22 </dev/null; {CURL} http://www.example.com/"
    );
    let options = ["--profile", "web", "--deny", "example.com"];
    let seen = online(
        &world,
        &options,
        &format!("{script}; {CURL} http://example.com/"),
    );
    assert_eq!(seen.output(), "this is 93.184.216.34");
    assert_eq!(seen.reached, ["93.184.216.34 80"]);
    assert!(
        !seen.asked.contains(&"other.example".to_owned()),
        "{:?}",
        seen.asked
    );
}

#[test]
fn a_connection_for_another_host_than_was_asked_for_ends() {
    let world = World::new("a_connection_for_another_host_than_was_asked_for_ends");
    if !is_possible(&world) {
        return;
    }
    // By the address that stands for example.com, TLS for another name.
    let hello = "import socket, ssl, sys; s = socket.create_connection((\"example.com\", 443)); \
                 c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE; \
                 c.wrap_socket(s, server_hostname=sys.argv[1])";
    let script = format!("python3 -c '{hello}' $NAME 2>/dev/null; true");
    let first =
        |world: &World| fs::read_to_string(world.top().join("internet/first")).unwrap_or_default();
    let with = |name: &str| {
        let variable = format!("NAME={name}");
        online(
            &world,
            &["--allow", "example.com", "--env", &variable],
            &script,
        )
    };
    let _ = with("example.com").outcome.success();
    assert_eq!(first(&world).lines().count(), 1, "the control gets there");
    let other = with("evil.example").outcome.success();
    let _ = other.says(["reaching example.com:443", "another host"]);
    assert_eq!(first(&world), "", "not a byte of the other");
    let failures = events(&world, "flow.closed");
    let failed = |one: &Value| {
        one["failure"]
            .as_str()
            .is_some_and(|why| why.contains("another host"))
    };
    assert!(failures.iter().any(failed), "{failures:?}");
}

#[test]
fn other_packets_go_nowhere_and_servers_inside_are_the_programs_own() {
    let world = World::new("other_packets_go_nowhere_and_servers_inside_are_the_programs_own");
    if !is_possible(&world) {
        return;
    }
    let script = r#"python3 - <<'END'
import socket, threading
own = socket.socket(); own.bind(("0.0.0.0", 8080)); own.listen()
def serve():
    while True:
        one, _ = own.accept(); one.sendall(b"own"); one.close()
threading.Thread(target=serve, daemon=True).start()
def tcp(to):
    try:
        with socket.create_connection(to, 5) as one: return one.recv(16).decode()
    except OSError as error: return "refused"
print(tcp(("127.0.0.1", 8080)), tcp(("localhost", 8080)), tcp(("93.184.216.34", 8080)))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for to in (("93.184.216.34", 443), ("93.184.216.34", 123), ("9.9.9.9", 5353)):
    try: udp.sendto(b"x", to); print("sent", to)
    except OSError: pass
for port in (15001, 53):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        taken = socket.socket(socket.AF_INET, kind); taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try: taken.bind(("0.0.0.0", port)); print("bound", port, kind)
        except OSError: pass
END"#;
    let seen = online(&world, &["--allow", "example.com"], script);
    let lines = seen.output();
    assert!(lines.starts_with("own own refused"), "{lines}");
    assert!(!lines.contains("sent"), "{lines}");
    assert!(!lines.contains("bound 15001 1"), "{lines}");
    assert_eq!((seen.reached.len(), seen.asked.len()), (0, 0));
}

#[test]
fn bytes_arrive_as_they_were_sent_both_ways() {
    let world = World::new("bytes_arrive_as_they_were_sent_both_ways");
    if !is_possible(&world) {
        return;
    }
    let script = r#"python3 - <<'END'
import hashlib, socket, threading
s = socket.create_connection(("example.com", 7))
block = bytes(range(256)) * 4096
sent, got = hashlib.sha256(), hashlib.sha256()
def send():
    for _ in range(32): s.sendall(block); sent.update(block)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
total = 0
while one := s.recv(65536): got.update(one); total += len(one)
print(total, sent.digest() == got.digest())
END"#;
    let seen = online(&world, &["--allow", "example.com:7"], script);
    assert_eq!(seen.output(), "33554432 True");
    let closed = events(&world, "flow.closed");
    assert_eq!(closed[0]["up_bytes"], 33_554_432_u64, "{closed:?}");
    assert_eq!(closed[0]["down_bytes"], 33_554_432_u64);
}

#[test]
fn a_program_goes_on_without_a_network_when_who_carries_it_is_ended() {
    let world = World::new("a_program_goes_on_without_a_network_when_who_carries_it_is_ended");
    if !is_possible(&world) {
        return;
    }
    // The test ends that process from outside, while a connection is open.
    let script = r#"python3 - <<'END'
import os, socket, time
s = socket.create_connection(("example.com", 7)); s.sendall(b"x"); s.recv(1)
open("connected", "w").close()
try: print("more" if s.recv(1) else "ended")
except OSError: print("reset")
try: socket.create_connection(("example.com", 7), 5); print("again")
except OSError: print("refused")
END"#;
    let internet = world.top().join("internet");
    fs::create_dir(&internet).unwrap();
    fs::write(internet.join("internet.py"), INTERNET).unwrap();
    let place = internet.display();
    let command = format!(
        "exec python3 '{place}/internet.py' '{place}' sh -c '\"$ATOLL\" run --discard --live --allow example.com:7 -- sh -c \"$0\" 9</etc/passwd & \
         run=$!; until test -e connected; do sleep 0.05; done; \
         p=$(pgrep -P $run -x atoll-egress); ls -l /proc/$p/fd | grep passwd; grep -q \"^Seccomp:.2\" /proc/$p/status || echo unfiltered; kill -KILL $p; wait $run' \"$@\""
    );
    let outcome = world.network_shell(&command).arg("sh").arg(script).run();
    let said = outcome.out();
    assert!(
        said == "reset\nrefused\n" || said == "ended\nrefused\n",
        "{outcome}"
    );
    let _ = outcome.says(["connections to the outside failed"]);
}
