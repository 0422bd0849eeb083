//! Misbehaving servers: whatever they do, a program gets their data or a clear end, the egress
//! process stays small, and other connections go on.

use std::fs;
use std::time::Duration;

use e2e::internet::{events, is_possible, measured, measuring, on_internet, on_servers};
use e2e::{Outcome, World};

const LONG: Duration = Duration::from_secs(400);
const SERVERS: &str = include_str!("upstreams/servers.py");
const CLIENT: &str = include_str!("upstreams/client.py");
const CURL: &str = "curl -sS --noproxy '*'";

/// The most memory of its own that the egress process may take beyond that for servers that behave,
/// KiB: one body kept in memory would be more.
const GROWTH_KIB_MAX: u64 = 40 * 1024;

/// Runs a shell script in a sandbox where these servers are: on the ports of the web they are
/// inspected, on 9000 and 7 they are not.
fn online(world: &World, script: &str) -> Outcome {
    world.write("client.py", CLIENT);
    let command = format!(
        "{} \"$ATOLL\" run --discard --allow '*.example' --allow example.com --tunnel example.com:7,9000 \
         -- sh -c \"$@\"",
        measuring(world)
    );
    let run = on_servers(world, SERVERS, &["example.com"], &command);
    run.args(["sh", script]).within(LONG).run()
}

/// Returns the egress process's own memory for servers that behave, KiB.
fn ordinary(world: &World) -> u64 {
    let outcome = online(world, "python3 client.py plain tls tunnel -- ok; sleep 1");
    assert!(outcome.out().ends_with("went on\n"), "{outcome}");
    measured(world)
}

/// Checks that the egress process has not grown by more than it may.
fn is_small(world: &World, ordinary: u64) {
    let most = measured(world);
    println!("{most} KiB of memory, {ordinary} KiB of them as ever");
    assert!(
        most < ordinary + GROWTH_KIB_MAX,
        "{most} KiB of memory, where {ordinary} KiB are ordinary"
    );
}

/// Returns the servers' records.
fn noted(world: &World) -> Vec<String> {
    let path = world.top().join("internet/noted");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Paths, each with its result: by inspected HTTP, and by a tunnel.
const ROWS: &[[&str; 3]] = &[
    [
        "slow",
        "200 whole end as slow as can be",
        "200 whole end as slow as can be",
    ],
    [
        "half",
        "200 whole end until the end",
        "200 whole end until the end",
    ],
    ["promises-more", "200 cut end part", "200 cut end part"],
    ["promises-less", "200 whole end whole", "200 cut end much"],
    [
        "two-lengths",
        "502 whole end the host's answer cannot be read: ",
        "200 whole end whole",
    ],
    ["broken-chunk", "200 cut end whole", "200 cut end whole"],
    [
        "no-http",
        "502 whole end the host's answer cannot be read: ",
        "none cut end ",
    ],
    [
        "no-gzip",
        "200 whole end this is not packed",
        "200 whole end this is not packed",
    ],
    [
        "bomb",
        "200 whole end packed 67108864",
        "200 whole end packed 67108864",
    ],
    // What has not been read by then the kernel throws away.
    [
        "reset",
        "200 cut end part|502 whole end the host ended the connection: ",
        "200 cut reset part|none cut reset ",
    ],
    [
        "reset-at-once",
        "502 whole end the host ended the connection: ",
        "none cut reset ",
    ],
    [
        "endless-head",
        "502 whole end the host's answer cannot be read: ",
        "200 cut enough ",
    ],
    [
        "endless-line",
        "502 whole end the host's answer cannot be read: ",
        "200 cut enough ",
    ],
    // Whether its head is on its way already is a matter of time.
    [
        "endless-chunk",
        "none cut end |200 cut end ",
        "200 cut enough ",
    ],
    [
        "endless-trailers",
        "200 cut end first",
        "200 cut enough first",
    ],
    [
        "endless-early",
        "502 whole end the host goes on giving answers that are none yet",
        "103 cut enough ",
    ],
    ["endless-body", "200 cut enough ", "200 cut enough "],
];

#[test]
fn whatever_a_server_does_is_told_as_it_is() {
    let world = World::new("whatever_a_server_does_is_told_as_it_is");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let ordinary = ordinary(&world);
    let paths: Vec<&str> = ROWS.iter().map(|[path, ..]| *path).collect();
    let script = format!("python3 client.py plain tls tunnel -- {}", paths.join(" "));
    let outcome = online(&world, &script);
    let told = outcome.out();
    let mut lines = told.lines();
    for [path, inspected, tunnel] in ROWS {
        for (way, expected) in [("plain", inspected), ("tls", inspected), ("tunnel", tunnel)] {
            let line = lines.next().unwrap_or_default();
            let prefix = format!("{way} {path} ");
            let told = line.strip_prefix(&prefix);
            let fits = |told: &str| expected.split('|').any(|one| told.starts_with(one));
            assert!(
                told.is_some_and(fits),
                "{line:?} for {prefix}{expected}: {outcome}"
            );
        }
    }
    assert_eq!(lines.next(), Some("went on"), "{outcome}");
    is_small(&world, ordinary);
    // What has no end is not taken for long, whoever does not want it.
    let noted = noted(&world);
    let taken = noted
        .iter()
        .filter_map(|line| line.strip_prefix("endless-head "));
    let taken: Vec<u64> = taken.map(|bytes| bytes.parse().unwrap()).collect();
    assert_eq!(taken.len(), 3, "{noted:?}");
    let is_little = |bytes: &u64| *bytes < 64 << 20;
    assert!(taken.iter().all(is_little), "{taken:?}");
    assert_eq!(
        noted
            .iter()
            .filter(|line| *line == "half heard the end")
            .count(),
        3,
        "{noted:?}"
    );
    let closed = events(&world, "flow.closed");
    let failed = closed
        .iter()
        .filter(|one| one["failure"].is_string())
        .count();
    assert!(failed >= 20, "{failed} of {}", closed.len());
}

#[test]
fn a_server_that_says_nothing_holds_up_nobody_else() {
    let world = World::new("a_server_that_says_nothing_holds_up_nobody_else");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let half = "import socket\n\
                with socket.create_connection((\"example.com\", 80), 60) as one:\n\
                \x20   one.settimeout(60)\n\
                \x20   one.sendall(b\"GET /slow HTTP/1.1\\r\\nHost: example.com\\r\\n\\r\\n\")\n\
                \x20   one.shutdown(socket.SHUT_WR)\n\
                \x20   print(len(one.recv(100)))\n";
    world.write("half.py", half);
    // All at once: none answers, and each in its own way; somebody else goes on.
    let script = format!(
        "t() {{ name=$1; shift; begun=$(date +%s); \"$@\" >$name 2>&1; echo $? >$name.status; echo $(($(date +%s) - begun)) >$name.time; }}; \
         t deaf {CURL} -m 3 http://wrong.example/ & \
         t deaf-tls {CURL} -m 90 https://wrong.example/ & \
         t never {CURL} -m 10 https://example.com/never & \
         t full {CURL} -m 90 http://other.example/ & \
         t none {CURL} -m 90 http://nowhere.example/ & \
         t half python3 half.py & \
         t silent {CURL} -m 90 http://silent.example/ & \
         sleep 1; for i in 1 2 3 4 5; do {CURL} -m 60 http://example.com/ok; echo; done; wait; \
         for name in deaf deaf-tls never full none half silent; do \
         echo $name $(cat $name.status) $(test $(cat $name.time) -lt 80 && echo soon) $(cat $name); done"
    );
    let outcome = online(&world, &script);
    let told = outcome.out();
    let told: Vec<&str> = told.lines().collect();
    let expected = [
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "deaf 28 soon ",
        "deaf-tls 0 soon {\"what\":\"GET https://wrong.example/\",\"why\":\"the host does not answer\"",
        "never 28 soon ",
        "full 0 soon {\"what\":\"GET http://other.example/\",\"why\":\"the host does not answer\"",
        "none 0 soon {\"what\":\"GET http://nowhere.example/\",\"why\":\"the host cannot be reached: ",
        // Whoever ends its side is taken for gone.
        "half 0 soon 0",
        "silent 0 soon {\"what\":\"GET http://silent.example/\",\"why\":\"DNS lookup failed: ",
    ];
    assert_eq!(told.len(), expected.len(), "{outcome}");
    for (line, expected) in told.iter().zip(expected) {
        assert!(
            line.starts_with(expected),
            "{line:?} for {expected:?}: {outcome}"
        );
    }
    // Whoever gives up is not waited for on the other side either.
    let noted = noted(&world);
    assert!(
        noted.contains(&"never heard the end".to_owned()),
        "{noted:?}"
    );
}

/// Returns the output before the ledger was shown, and the ledger.
fn told_and_recorded(outcome: &Outcome) -> (String, String) {
    let said = outcome.out();
    let (told, ledger) = said.split_once("and then\n").unwrap();
    (told.trim().to_owned(), ledger.to_owned())
}

#[test]
fn what_cannot_be_recorded_is_not_sent() {
    let world = World::new("what_cannot_be_recorded_is_not_sent");
    if !is_possible(&world, &[]) {
        return;
    }
    // One connection after the other, until there are no more.
    let client = "import socket, time\n\
                  for number in range(3000):\n\
                  \x20   try:\n\
                  \x20       with socket.create_connection((\"example.com\", 7), 60) as one:\n\
                  \x20           one.sendall(b\"x\"); one.recv(1)\n\
                  \x20   except OSError: print(\"refused\", flush=True)\n\
                  \x20   time.sleep(0.02)\n";
    world.write("connect.py", client);
    let ledger = world.state().join("atoll/ledger");
    let reached = world.top().join("internet/reached");
    let script = format!(
        "mkdir -p '{ledger}' && chmod 700 '{ledger}' && mount -t tmpfs -o size=256k,mode=700 tmpfs '{ledger}' || exit 9; \
         \"$ATOLL\" run --discard --allow example.com:7 -- python3 connect.py & run=$!; \
         until test -s '{reached}'; do sleep 0.02; done; \
         dd if=/dev/zero of='{ledger}/full' bs=1k 2>/dev/null; \
         wait $run; echo status $?; rm '{ledger}/full'; echo and then; \"$ATOLL\" ledger show --json last; \"$ATOLL\" ledger verify >&2",
        ledger = ledger.display(),
        reached = reached.display(),
    );
    let outcome = on_internet(&world, "sh -c \"$0\"")
        .arg(script)
        .within(LONG)
        .run();
    let reached = fs::read_to_string(reached).unwrap_or_default();
    let (told, ledger) = told_and_recorded(&outcome);
    // A server of this internet writes a line for each connection.
    let reached = reached.lines().count();
    let opened = ledger.matches("\"type\":\"flow.opened\"").count();
    assert!((1..3000).contains(&reached), "{outcome}");
    assert!(reached <= opened, "{reached} of {opened}: {outcome}");
    assert!(told.ends_with("status 125"), "{outcome}");
    let _ = outcome.says([
        "cannot write an event",
        "no space is left",
        "The ledger is whole",
    ]);
}

/// A person approves, and there is no room to record it: no request is sent.
#[test]
fn a_yes_that_cannot_be_recorded_is_none() {
    for is_full in [false, true] {
        let world = World::new("a_yes_that_cannot_be_recorded_is_none");
        if !is_possible(&world, &[]) {
            return;
        }
        answer_yes(&world, is_full);
    }
}

/// Has a person say yes to a run whose ledger has room, or has none.
fn answer_yes(world: &World, is_full: bool) {
    let ledger = world.state().join("atoll/ledger");
    let ledger = ledger.display();
    let pending = "import json, sys; print([r['run'] + '.' + str(p['approval']) for r in json.load(sys.stdin) for p in r['pending']][0])";
    // Full to the last byte that something as short could take.
    let fill = format!(
        "dd if=/dev/zero of='{ledger}/full' bs=1k 2>/dev/null; \
         while \"$ATOLL\" ledger hold last && \"$ATOLL\" ledger release last; do :; done >/dev/null 2>&1; "
    );
    let fill = if is_full { &fill[..] } else { "" };
    let script = format!(
        "mkdir -p '{ledger}' && chmod 700 '{ledger}' && mount -t tmpfs -o size=256k,mode=700 tmpfs '{ledger}' || exit 9; \
         \"$ATOLL\" run --discard --ask example.com -- curl -sS -m 60 --noproxy '*' -d words http://example.com/asked </dev/null >/dev/null & run=$!; \
         until name=$(\"$ATOLL\" approvals list --json | python3 -c \"{pending}\" 2>/dev/null); do sleep 0.05; done; \
         {fill}\"$ATOLL\" approvals grant \"$name\" >/dev/null; wait $run; echo status $?; rm -f '{ledger}/full'; \
         echo and then; \"$ATOLL\" ledger show --json last; \"$ATOLL\" ledger verify >&2"
    );
    let outcome = on_internet(world, "sh -c \"$0\"")
        .arg(script)
        .within(LONG)
        .run();
    let first = fs::read_to_string(world.top().join("internet/first")).unwrap_or_default();
    assert_eq!(first.contains("/asked"), !is_full, "{outcome}");
    let (told, ledger) = told_and_recorded(&outcome);
    let has = |kind: &str| ledger.contains(&format!("\"type\":\"{kind}\""));
    assert!(has("approval.asked"), "{outcome}");
    assert_eq!(has("approval.granted"), !is_full, "{outcome}");
    assert_eq!(told.ends_with("status 125"), is_full, "{outcome}");
    let _ = outcome.says(["The ledger is whole"]);
}

/// Ways of an HTTP/2 upstream, each with the statuses of HTTP and of curl. A request that is never
/// answered is not answered here either (28); one that breaks off breaks off (92, 18).
const WAYS: &[[&str; 2]] = &[
    ["well", "200 0 well"],
    ["headers", "502 0 {"],
    ["trailers", "000 92|200 92|200 18"],
    ["window", "000 92|200 92|200 18"],
    ["empty", "000 92|200 92|200 18"],
    ["early", "000 28"],
    ["pings", "000 28|502 0 {"],
    ["settings", "000 28|502 0 {"],
    ["resets", "502 0 {"],
    ["farewell", "502 0 {"],
    ["promises", "502 0 {"],
    ["nonsense", "502 0 {"],
];

#[test]
fn whatever_a_server_does_by_http_2_has_an_end() {
    let world = World::new("whatever_a_server_does_by_http_2_has_an_end");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let ordinary = ordinary(&world);
    let last = 9440 + WAYS.len() - 1;
    // Those that may never answer are not waited for as long as the others.
    let never = WAYS.iter().enumerate();
    let never = never.filter(|(_, [_, expected])| expected.starts_with("000 28"));
    let silent: Vec<String> = never.map(|(at, _)| (9440 + at).to_string()).collect();
    let silent = silent.join("|");
    let script = format!(
        "touch body; for port in $(seq 9440 {last}); do case $port in {silent}) most=4;; *) most=60;; esac; \
         {CURL} --http2 -m $most -o body -w '%{{http_code}} ' https://example.com:$port/ 2>error; \
         echo $? $(head -c 150 body); rm -f body; touch body; \
         test \"$({CURL} --http2 -m 60 https://example.com:9440/)\" = well || echo missed $port; done"
    );
    let command = format!(
        "{} \"$ATOLL\" run --discard --allow https://example.com:9440-{last} -- sh -c \"$@\"",
        measuring(&world)
    );
    let servers = include_str!("upstreams/two.py");
    let run = on_servers(&world, servers, &["example.com"], &command);
    let outcome = run.args(["sh", &script]).within(LONG).run();
    let told = outcome.out();
    let told: Vec<&str> = told.lines().collect();
    // Nobody was missed by whoever asked for something else meanwhile.
    assert_eq!(told.len(), WAYS.len(), "{outcome}");
    for (line, [way, expected]) in told.iter().zip(WAYS) {
        let fits = expected.split('|').any(|one| line.starts_with(one));
        assert!(fits, "{way}: {line:?} for {expected:?}: {outcome}");
    }
    is_small(&world, ordinary);
}
