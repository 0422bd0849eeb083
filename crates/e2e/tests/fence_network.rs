//! The destinations that a program in a fence reaches, on a small internet of each test's own: a
//! name server and servers that record their clients.

use std::fs;

use e2e::internet::{self, Seen, events};
use e2e::{Avoidable, Invocation, World, is_root, program_exists};
use serde_json::Value;

const CURL: &str = "curl -sS -m 60 --noproxy '*'";

/// Returns a world for an ordinary user who may make no namespaces, where there can be an internet.
fn fenced(name: &str) -> Option<World> {
    let world = World::new(name);
    if is_root() {
        world.skip("root always has namespaces", Avoidable::No);
        return None;
    }
    internet::is_possible(&world, &["cc"]).then_some(world)
}

/// Returns a command on the small internet; in its script `$FENCED` is Atoll for the ordinary user,
/// who may make no namespaces there.
fn on_internet(world: &World, script: &str) -> Invocation {
    let path = internet::without_namespaces(world);
    internet::on_internet(world, script).env("FENCED", path)
}

/// Runs a shell script in a fence, with these options, where there is an internet.
fn online(world: &World, options: &[&str], script: &str) -> Seen {
    let outcome = on_internet(world, "\"$FENCED\" run --discard \"$@\"")
        .arg("sh")
        .args(options)
        .args(["--", "sh", "-c", script])
        .run();
    let seen = Seen::of(world, outcome);
    let fenced = seen.outcome.err().contains("only fenced in");
    assert!(fenced, "{}", seen.outcome);
    seen
}

#[test]
fn a_fence_reaches_a_named_host_by_programs_that_know_of_no_proxy() {
    let name = "a_fence_reaches_a_named_host_by_programs_that_know_of_no_proxy";
    let Some(world) = fenced(name) else {
        return;
    };
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
        "this is 93.184.216.34\nthis is 2606:2800:220:1::1\nSSH-2.0-here\nthis is 93.184.216.35",
        "{}",
        seen.outcome
    );
    assert_eq!(seen.reached.len(), 4, "{:?}", seen.reached);
    let (opened, closed) = (events(&world, "flow.opened"), events(&world, "flow.closed"));
    assert_eq!((opened.len(), closed.len()), (4, 4), "{opened:?}");
    assert_eq!(opened[0]["host"], "example.com");
    assert_eq!(opened[0]["address"], "93.184.216.34");
    assert_eq!(opened[0]["rule"], "example.com (--allow)");
    for one in &closed {
        assert!(one["down_bytes"].as_u64().unwrap() > 10, "{one}");
    }
}

#[test]
fn what_no_rule_allows_is_not_reached_from_a_fence_and_nobody_is_asked_for_it() {
    let name = "what_no_rule_allows_is_not_reached_from_a_fence_and_nobody_is_asked_for_it";
    let Some(world) = fenced(name) else {
        return;
    };
    let tries = [
        "http://other.example/",
        "http://www.example.com/",
        "http://93.184.216.34/",
        "http://93.184.216.34:22/",
        "http://example.com:22/",
        "http://[2606:2800:220:1::1]/",
        "http://[::ffff:93.184.216.35]/",
        "http://10.1.2.3/",
        "http://169.254.169.254/",
        "http://127.0.0.1/",
        "http://0.0.0.0/",
        "http://9.9.9.9/",
        "http://0x5db8d822/",
        "http://198.18.0.77/",
        "http://224.0.0.1/",
    ];
    let script: String = tries
        .iter()
        .map(|one| format!("{CURL} '{one}' && echo reached {one}; "))
        .collect();
    // The control: the same program reaches what is allowed.
    let script = format!("{script} {CURL} http://example.com/");
    let seen = online(&world, &["--allow", "example.com"], &script);
    assert_eq!(seen.output(), "this is 93.184.216.34", "{}", seen.outcome);
    assert_eq!(seen.reached, ["93.184.216.34 80"]);
    let others = seen.asked.iter().filter(|name| *name != "example.com");
    assert_eq!(others.count(), 0, "{:?}", seen.asked);
    let refused = events(&world, "flow.refused");
    let is_refused = |host: &str, port: u64| {
        let to = |one: &&Value| one["host"] == host && one["port"].as_u64().unwrap_or(0) == port;
        refused.iter().any(|one| to(&one))
    };
    for (host, port) in [
        ("other.example", 0),
        ("93.184.216.34", 80),
        ("example.com", 22),
        ("93.184.216.35", 80),
        ("10.1.2.3", 80),
    ] {
        assert!(is_refused(host, port), "{host} {port}: {refused:?}");
    }
    let _ = seen
        .outcome
        .says(["reaching other.example: no rule allows it"]);
    // Without a rule there is no way out at all, and no socket to ask for names.
    let script = format!("{CURL} http://example.com/; {CURL} http://93.184.216.34/; true");
    let seen = online(&world, &[], &script);
    let came = (seen.output(), seen.reached.len(), seen.asked.len());
    assert_eq!(came, (String::new(), 0, 0), "{}", seen.outcome);
}

#[test]
fn a_fence_reaches_a_named_service_of_the_host_and_no_other() {
    let Some(world) = fenced("a_fence_reaches_a_named_service_of_the_host_and_no_other") else {
        return;
    };
    let script = format!(
        "{CURL} http://host.atoll.internal/; {CURL} http://127.0.0.1/ || echo not by its address; \
         {CURL} http://host.atoll.internal:8443/ || echo not at another port"
    );
    let allow = ["--allow", "host.atoll.internal:80"];
    let seen = online(&world, &allow, &script);
    let expected = "this is 127.0.0.1\nnot by its address\nnot at another port";
    assert_eq!(seen.output(), expected, "{}", seen.outcome);
    assert_eq!(seen.reached, ["127.0.0.1 80"]);
    // No wildcard opens it there either, where the loopback is the host's own.
    let allow = ["--allow", "*:*", "--learn"];
    let seen = online(&world, &allow, &script);
    let expected = "not by its address\nnot at another port";
    assert_eq!(seen.output(), expected, "{}", seen.outcome);
    assert!(seen.reached.is_empty(), "{:?}", seen.reached);
}

/// Returns a program of these tests, compiled from its source beside this file.
fn compiled(world: &World, name: &str, source: &str, options: &[&str]) {
    let _ = world
        .host("cc")
        .args(["-O1", "-pthread", "-x", "c", "-", "-o"])
        .arg(world.path(name))
        .args(options)
        .stdin(source)
        .run()
        .success();
}

const ATTACK: &str = include_str!("fence_network/attack.c");

/// Each way is tried outside as well, where it arrives.
#[test]
fn no_way_past_the_judge_of_a_fence_leads_outside() {
    let Some(world) = fenced("no_way_past_the_judge_of_a_fence_leads_outside") else {
        return;
    };
    compiled(&world, "attack", ATTACK, &[]);
    let ways = [
        ("stream", 80, "93.184.216.35 80"),
        ("mptcp", 80, "93.184.216.35 80"),
        ("fastopen-0", 80, "93.184.216.35 80"),
        ("fastopen-1", 80, "93.184.216.35 80"),
        ("fastopen-2", 80, "93.184.216.35 80"),
        ("datagram-0", 123, "udp 123"),
        ("datagram-1", 123, "udp 123"),
        ("datagram-2", 123, "udp 123"),
        ("datagram-3", 123, "udp 123"),
        ("datagram-4", 443, "udp 443"),
        ("connected", 443, "udp 443"),
        ("moved", 443, "udp 443"),
    ];
    let reached = |world: &World| {
        let text = fs::read_to_string(world.top().join("internet/reached"));
        text.unwrap_or_default()
    };
    for (way, port, mark) in ways {
        // Until it is written down, which takes the server a moment.
        let script = "sh -c './attack \"$@\"; for i in $(seq 600); do \
                      grep -qxF \"$MARK\" ../internet/reached && break; sleep 0.05; done' sh \"$@\"";
        let outside = on_internet(&world, script).env("MARK", mark).arg("sh");
        let outside = outside.args([way, "93.184.216.35", &port.to_string()]);
        let told = outside.run();
        assert!(
            reached(&world).contains(mark),
            "the control of {way}: {told}"
        );
    }
    let script: String = ways
        .iter()
        .map(|(way, port, _)| format!("timeout 5 ./attack {way} 93.184.216.35 {port}; "))
        .collect();
    let script = format!(
        "{script} ./attack question 9.9.9.9 53 && echo answered; ./attack stream 93.184.216.34 80 && echo allowed"
    );
    let seen = online(
        &world,
        &["--allow", "93.184.216.34", "--allow", "example.com"],
        &script,
    );
    assert_eq!(seen.output(), "allowed", "{}", seen.outcome);
    assert_eq!(seen.reached, ["93.184.216.34 80"], "{}", seen.outcome);
    assert!(seen.asked.is_empty(), "{:?}", seen.asked);
}

#[test]
fn what_changes_while_it_is_judged_gives_nothing_more() {
    let Some(world) = fenced("what_changes_while_it_is_judged_gives_nothing_more") else {
        return;
    };
    compiled(&world, "attack", ATTACK, &[]);
    let script = "./attack address-race 93.184.216.35 80 2>/dev/null; ./attack number-race 93.184.216.35 80 2>/dev/null; \
                  ./attack number-race 93.184.216.35 123 2>/dev/null; ./attack stream 93.184.216.34 80 && echo still";
    let seen = online(&world, &["--allow", "93.184.216.34"], script);
    assert_eq!(seen.output(), "some\nstill", "{}", seen.outcome);
    let elsewhere = seen.reached.iter().filter(|one| *one != "93.184.216.34 80");
    assert_eq!(elsewhere.count(), 0, "{:?}", seen.reached);
}

#[test]
fn a_connection_of_a_fence_looks_like_any() {
    let Some(world) = fenced("a_connection_of_a_fence_looks_like_any") else {
        return;
    };
    compiled(&world, "attack", ATTACK, &[]);
    let script = "./attack looks 93.184.216.34 7";
    let seen = online(&world, &["--allow", "93.184.216.34:7"], script);
    assert_eq!(seen.output(), "1 1 1 1 hello 0", "{}", seen.outcome);
    assert_eq!(seen.reached, ["93.184.216.34 7"]);
}

#[test]
fn resolvers_of_every_make_get_answers_in_a_fence() {
    let Some(world) = fenced("resolvers_of_every_make_get_answers_in_a_fence") else {
        return;
    };
    let source = include_str!("fence_network/resolver.c");
    compiled(&world, "resolver", source, &["-static"]);
    let script = "for way in glibc musl musl-new go; do ./resolver $way example.com || echo $way failed; \
                  ./resolver $way other.example; done; getent ahostsv4 example.com | head -1 | cut -d. -f1,2; \
                  getent hosts other.example; (ulimit -n 64; ./resolver go-few example.com)";
    let seen = online(&world, &["--allow", "example.com"], script);
    let each = "198.18\nrefused 3\n".repeat(4);
    assert_eq!(
        seen.output(),
        format!("{each}198.18\n198.18"),
        "{}",
        seen.outcome
    );
    assert!(seen.asked.is_empty(), "{:?}", seen.asked);
}

#[test]
fn a_fence_serves_programs_that_do_not_wait_and_many_at_once() {
    let Some(world) = fenced("a_fence_serves_programs_that_do_not_wait_and_many_at_once") else {
        return;
    };
    let script = r#"python3 - <<'END'
import asyncio, hashlib, socket, threading
async def one(n):
    reader, writer = await asyncio.open_connection("example.com", 7)
    writer.write(b"%d\n" % n)
    line = await reader.readline()
    writer.close()
    return int(line) == n
async def all(): return await asyncio.gather(*(one(n) for n in range(200)))
print(sum(asyncio.run(all())))
async def denied():
    try:
        reader, writer = await asyncio.open_connection("93.184.216.35", 7)
        return await reader.read(1) or "ended"
    except OSError: return "refused"
print(asyncio.run(denied()) in ("refused", "ended"))
s = socket.create_connection(("example.com", 7), 60)
block = bytes(range(256)) * 4096
sent, got = hashlib.sha256(), hashlib.sha256()
def send():
    for _ in range(16): s.sendall(block); sent.update(block)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
total = 0
while part := s.recv(65536): got.update(part); total += len(part)
print(total, sent.digest() == got.digest())
END"#;
    let seen = online(&world, &["--allow", "example.com:7"], script);
    assert_eq!(
        seen.output(),
        "200\nTrue\n16777216 True",
        "{}",
        seen.outcome
    );
    assert_eq!(seen.reached.len(), 201);
}

#[test]
fn node_reaches_what_is_allowed_from_a_fence() {
    let Some(world) = fenced("node_reaches_what_is_allowed_from_a_fence") else {
        return;
    };
    if !program_exists("node") {
        world.skip("node is not installed", Avoidable::Yes);
        return;
    }
    let script = r#"cat > t.mjs <<'END'
import dns from "node:dns/promises";
const get = async (url) => { try { return (await (await fetch(url)).text()).trim() } catch (e) { return "no" } };
console.log(await get("http://example.com/"), "|", await get("http://other.example/"), "|", await get("http://93.184.216.35/"));
console.log((await dns.resolve4("example.com"))[0].startsWith("198.18."));
try { await dns.resolve4("other.example"); console.log("found") } catch (e) { console.log(e.code) }
END
node t.mjs"#;
    let seen = online(&world, &["--allow", "example.com"], script);
    assert_eq!(
        seen.output(),
        "this is 93.184.216.34 | no | no\ntrue\nENOTFOUND",
        "{}",
        seen.outcome
    );
    assert_eq!(seen.reached, ["93.184.216.34 80"]);
}

/// The listener of the egress process is open to everybody on the host, but serves its own program
/// alone, and nobody else's connections hold that up.
#[test]
fn the_way_out_of_a_fence_is_for_its_program_alone() {
    let Some(world) = fenced("the_way_out_of_a_fence_is_for_its_program_alone") else {
        return;
    };
    let inside = r#"
import os, socket, threading, time
def serve(own):
    while True:
        one, _ = own.accept(); one.sendall(b"own"); one.close()
own = socket.socket(); own.bind(("0.0.0.0", 8080)); own.listen()
threading.Thread(target=serve, args=(own,), daemon=True).start()
def tcp(to, say=b""):
    try:
        with socket.create_connection(to, 60) as one:
            one.sendall(say)
            return one.recv(32).decode() or "ended"
    except OSError: return "refused"
print(tcp(("127.0.0.1", 8080)), tcp(("localhost", 8080)), tcp(("93.184.216.34", 8080)), tcp(("127.0.0.1", 22)))
open("ready", "w").close()
while not os.path.exists("ports"): time.sleep(0.01)
print({tcp(("127.0.0.1", int(port))) for port in open("ports").read().split()})
reached = [tcp(("93.184.216.34", 7), b"%d" % n) == str(n) for n in range(100)]
print(sum(reached))
open("done", "w").close()
"#;
    let outside = r#"
import os, socket, subprocess, sys, threading, time
before = {line.split()[1] for line in open("/proc/net/tcp") if " 0A " in line}
run = subprocess.Popen(sys.argv[1:])
while not os.path.exists("ready"): time.sleep(0.01)
after = {line.split()[1] for line in open("/proc/net/tcp") if " 0A " in line}
ports = [int(at.split(":")[1], 16) for at in after - before]
ways = [port for port in ports if port != 8080]
heard, tried = [], [0]
def knock(port):
    while not os.path.exists("done"):
        with socket.socket() as one:
            one.settimeout(0.3)
            try:
                one.connect(("127.0.0.1", port)); tried[0] += 1
                one.sendall(b"93.184.216.34:7 names GET / HTTP/1.0\r\n\r\n")
                heard.append(one.recv(64))
            except OSError: pass
for port in ways * 8: threading.Thread(target=knock, args=(port,)).start()
while tried[0] < 20: time.sleep(0.01)
with open("ports.new", "w") as to: to.write(" ".join(map(str, ways)))
os.rename("ports.new", "ports")
status = run.wait()
open("done", "w").close()
print(len(ports), len(ways), set(heard) - {b""}, status, file=sys.stderr)
"#;
    world.write("inside.py", inside);
    world.write("outside.py", outside);
    let script =
        "python3 outside.py \"$FENCED\" run --discard --allow 93.184.216.34:7 -- python3 inside.py";
    let outcome = on_internet(&world, &script.replace("\"$FENCED\"", "$FENCED")).run();
    assert_eq!(
        outcome.out().trim(),
        "own own refused refused\n{'refused'}\n100",
        "{outcome}"
    );
    let _ = outcome.says(["2 1 set() 0"]);
    let reached = fs::read_to_string(world.top().join("internet/reached")).unwrap();
    assert_eq!(reached.lines().count(), 100, "{reached}");
}

#[test]
fn a_fence_goes_on_without_a_network_when_who_carries_it_is_ended() {
    let name = "a_fence_goes_on_without_a_network_when_who_carries_it_is_ended";
    let Some(world) = fenced(name) else {
        return;
    };
    // Ended from outside, while a connection is open.
    let inside = r#"
import socket, time
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.connect(("9.9.9.9", 53))
s = socket.create_connection(("example.com", 7)); s.sendall(b"x"); s.recv(1)
open("connected", "w").close()
try: print("more" if s.recv(1) else "ended")
except OSError: print("reset")
# It closes one descriptor after another, in whatever order.
def again():
    try:
        with socket.create_connection(("93.184.216.34", 7), 60) as one: return one.recv(1) or "ended"
    except ConnectionRefusedError: return "refused"
    except OSError: return "reset"
until = time.monotonic() + 30
while (came := again()) != "refused" and time.monotonic() < until: time.sleep(0.05)
print(came)
try: print(socket.getaddrinfo("example.com", 7))
except OSError: print("unknown")
# Of a socket whose other end has gone, no answer comes, and no end either.
try: print(asking.recvfrom(512))
except OSError as error: print(error.errno)
"#;
    world.write("inside.py", inside);
    let script = "sh -c '$FENCED run --live --allow example.com:7 --allow 93.184.216.34:7 -- python3 inside.py & \
                  run=$!; until test -e connected; do sleep 0.05; done; \
                  kill -KILL $(pgrep -P $run -x atoll-egress); wait $run'";
    let outcome = on_internet(&world, script).run();
    let said = outcome.out();
    let ended = said
        .strip_prefix("reset\n")
        .or(said.strip_prefix("ended\n"));
    assert_eq!(ended, Some("refused\nunknown\n111\n"), "{outcome}");
    let _ = outcome.says(["nothing outside could be reached"]);
}
