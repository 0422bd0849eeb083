//! The destinations that programs reach, on a small internet of each test's own: a name server and
//! servers that record their clients.

use e2e::World;
use e2e::internet::{events, is_possible, on_internet, online};
use serde_json::Value;

const CURL: &str = "curl -sS -m 10 --noproxy '*'";

#[test]
fn a_named_host_is_reached_by_programs_that_know_of_no_proxy() {
    let world = World::new("a_named_host_is_reached_by_programs_that_know_of_no_proxy");
    if !is_possible(&world, &[]) {
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
    if !is_possible(&world, &[]) {
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
    let script = format!("{script} getent hosts 192.0.2.7; {CURL} http://example.com/");
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
    // What is no host's is told as that, and is nothing to allow.
    assert!(is_refused("7.2.0.192.in-addr.arpa", 0), "{refused:?}");
    let why = world.atoll(["why", "last"]).run().success().out();
    let lines = |word: &str| why.lines().filter(|line| line.contains(word)).count();
    assert!(
        lines("asking for the name that an address has") == 1,
        "{why}"
    );
    assert!(lines("--allow other.example") == 1, "{why}");
    assert_eq!(lines("--allow 7.2") + lines("\"7.2."), 0, "{why}");
}

#[test]
fn without_a_rule_there_is_no_way_out_at_all() {
    let world = World::new("without_a_rule_there_is_no_way_out_at_all");
    if !is_possible(&world, &[]) {
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
    if !is_possible(&world, &[]) {
        return;
    }
    let names = ["private", "loopback", "metadata", "mapped", "mixed"];
    let script: String = names
        .iter()
        .map(|name| format!("{CURL} -f http://{name}.example/; "))
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
    if !is_possible(&world, &[]) {
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
    if !is_possible(&world, &[]) {
        return;
    }
    // By the address that stands for example.com, TLS for another name.
    let hello = "import socket, ssl, sys; s = socket.create_connection((\"example.com\", 8443)); \
                 c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE; \
                 c.wrap_socket(s, server_hostname=sys.argv[1])";
    let script = format!("python3 -c '{hello}' $NAME 2>/dev/null; true");
    let with = |name: &str| {
        let variable = format!("NAME={name}");
        online(
            &world,
            &["--allow", "example.com:8443", "--env", &variable],
            &script,
        )
    };
    let seen = with("example.com");
    assert_eq!(seen.first.lines().count(), 1, "the control gets there");
    let seen = with("evil.example");
    let other = seen.outcome.success();
    let _ = other.says(["reaching example.com:8443", "another host"]);
    assert_eq!(seen.first, "", "not a byte of the other");
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
    if !is_possible(&world, &[]) {
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
    if !is_possible(&world, &[]) {
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
    if !is_possible(&world, &[]) {
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
    let command = "sh -c '\"$ATOLL\" run --discard --live --allow example.com:7 -- sh -c \"$0\" 9</etc/passwd & \
         run=$!; until test -e connected; do sleep 0.05; done; \
         p=$(pgrep -P $run -x atoll-egress); ls -l /proc/$p/fd | grep passwd; grep -q \"^Seccomp:.2\" /proc/$p/status || echo unfiltered; kill -KILL $p; wait $run' \"$@\"";
    let outcome = on_internet(&world, command).arg("sh").arg(script).run();
    let said = outcome.out();
    assert!(
        said == "reset\nrefused\n" || said == "ended\nrefused\n",
        "{outcome}"
    );
    let _ = outcome.says(["nothing outside could be reached"]);
}

#[test]
fn a_failure_without_a_network_is_told_what_would_let_it() {
    let world = World::new("a_failure_without_a_network_is_told_what_would_let_it");
    let run = |options: &[&str], script: &str| {
        let options = [options, &["--discard"]].concat();
        world.run(options, script).run().err()
    };
    let hint = "This run has no network";
    let told = run(&[], "exit 1; pip install six");
    assert!(
        told.contains(hint) && told.contains("--preset pip"),
        "{told}"
    );
    for (options, script) in [
        (&[][..], "exit 0; pip install six"),
        (&[][..], "exit 1; cargo test"),
        (&["--allow", "example.com"][..], "exit 1; pip install six"),
    ] {
        let told = run(options, script);
        assert!(!told.contains(hint), "{script}: {told}");
    }
}

#[test]
fn however_much_a_run_reached_it_is_the_last_one() {
    let world = World::new("however_much_a_run_reached_it_is_the_last_one");
    if !is_possible(&world, &[]) {
        return;
    }
    let kept = world.run(["--keep"], "echo old > kept").run();
    let _ = kept.success();
    let script = "python3 - <<'END'\nimport http.client\nfor n in range(1100):\n \
                  c = http.client.HTTPConnection('example.com'); c.request('GET', '/'); c.getresponse().read(); c.close()\nEND";
    let seen = online(&world, &["--allow", "example.com"], script);
    let opened = events(&world, "flow.opened");
    assert_eq!(opened.len(), 1100, "{}", seen.outcome);
    // Nothing of it is kept, and no older run stands for it.
    let applied = world.atoll(["apply", "last"]).run();
    assert_ne!(applied.code(), 0, "{applied}");
    assert!(!world.path("kept").exists(), "{applied}");
    let told = world.atoll(["why", "last"]).run().success().out();
    assert!(told.contains("python3"), "{told}");
}
