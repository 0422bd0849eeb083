//! The limits of rules, by every way that a connection can take: many streams of HTTP/2 at once,
//! WebSockets, CONNECT and SOCKS 5, tunnels; with namespaces and in a fence. Each of them without
//! limits as well, where everything arrives.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use e2e::internet::{self, events, is_possible};
use e2e::{Outcome, World, is_root};

/// The script that makes the servers' certificates and runs `web.js`, on the small internet.
const WEB: &str = include_str!("inspection/web.sh");
const SERVERS: &str = include_str!("limit_ways/web.js");
const STREAMS: &str = include_str!("limit_ways/streams.mjs");
const WAYS: &str = include_str!("limit_ways/ways.py");

const LONG: Duration = Duration::from_secs(400);

/// The way in which a run is sandboxed.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// With namespaces.
    Full,
    /// Without namespaces.
    Fence,
}

/// Returns the modes in which a run can be here: root has namespaces always.
fn modes() -> &'static [Mode] {
    match is_root() {
        true => &[Mode::Full],
        false => &[Mode::Full, Mode::Fence],
    }
}

/// A program that was run, and the traffic that the servers saw of it.
struct Seen {
    outcome: Outcome,
    requests: Vec<String>,
    /// The bodies that arrived completely.
    whole: Vec<String>,
}

impl Seen {
    /// Returns the program's output without durations: on a busy host they mean nothing.
    fn unhurried(&self) -> String {
        let told = self.outcome.out();
        told.replace(" at once\n", "\n").replace(" slowly\n", "\n")
    }
}

/// Runs a command in a sandbox with a profile that has these lines of rules.
fn online(world: &World, mode: Mode, rules: &str, command: &str) -> Seen {
    world.profile("limited", &format!("[network]\nallow = [\n{rules}]\n"));
    world.write("streams.mjs", STREAMS);
    world.write("ways.py", WAYS);
    let internet = world.top().join("internet");
    let _ = fs::remove_dir_all(&internet);
    fs::create_dir(&internet).unwrap();
    let parts = [
        ("internet.py", internet::PROGRAM),
        ("web.sh", WEB),
        ("web.js", SERVERS),
    ];
    for (name, text) in parts {
        fs::write(internet.join(name), text).unwrap();
    }
    let place = internet.display();
    let fenced = internet::without_namespaces(world);
    let atoll = match mode {
        Mode::Full => "\"$ATOLL\"".to_owned(),
        Mode::Fence => format!("'{}'", fenced.display()),
    };
    let script = format!(
        "INTERNET_PORTS='7 22' exec python3 '{place}/internet.py' '{place}' \
         sh '{place}/web.sh' '{place}' sh -c 'cd \"$0\" && exec \"$@\"' \"$PWD\" \
         {atoll} run --discard --profile limited -- sh -c \"$0\""
    );
    let outcome = world.network_shell(&script).arg(command).within(LONG).run();
    let is_fenced = outcome.err().contains("only fenced in");
    assert_eq!(is_fenced, matches!(mode, Mode::Fence), "{outcome}");
    let noted = |name: &str| {
        let text = fs::read_to_string(internet.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    Seen {
        outcome,
        requests: noted("requests"),
        whole: noted("whole"),
    }
}

/// Returns a rule for each limit, and the same rules without them.
fn rules(rows: &[[&str; 2]]) -> [String; 2] {
    let limited = rows
        .iter()
        .map(|[to, limit]| format!("    {{ {to}, {limit} }},\n"));
    let free = rows.iter().map(|[to, _]| format!("    {{ {to} }},\n"));
    [limited.collect(), free.collect()]
}

/// Returns the limits that the ledger records.
fn told(world: &World) -> BTreeSet<String> {
    let refused = events(world, "flow.refused");
    let limits = refused.iter().filter_map(|one| one["limit"].as_str());
    limits.map(str::to_owned).collect()
}

/// Returns the number of bytes that the ledger records for requests whose path begins so.
fn carried(world: &World, way: &str, path: &str) -> u64 {
    let opened = events(world, "flow.opened");
    let is_its = |flow: &serde_json::Value| {
        let of_path = |one: &serde_json::Value| {
            one["flow"] == *flow && one["path"].as_str().is_some_and(|at| at.starts_with(path))
        };
        opened.iter().any(of_path)
    };
    let closed = events(world, "flow.closed");
    let closed = closed.iter().filter(|one| is_its(&one["flow"]));
    closed.filter_map(|one| one[way].as_u64()).sum()
}

const ALL: [&str; 6] = [
    "body",
    "connections",
    "download",
    "duration",
    "requests",
    "upload",
];

#[test]
fn limits_hold_for_many_streams_at_once() {
    let world = World::new("limits_hold_for_many_streams_at_once");
    if !is_possible(&world, &["node", "openssl"]) {
        return;
    }
    let rows = [
        [
            "to = \"example.com\", paths = [\"/requests/**\"]",
            "requests = \"5/h\"",
        ],
        [
            "to = \"example.com\", paths = [\"/connections/**\"]",
            "connections = 4",
        ],
        [
            "to = \"example.com\", paths = [\"/upload/**\"]",
            "upload = \"200KiB\"",
        ],
        [
            "to = \"example.com\", paths = [\"/download/**\"]",
            "download = \"200KiB\"",
        ],
        [
            "to = \"example.com\", paths = [\"/body/**\"]",
            "body = \"10KiB\"",
        ],
        [
            "to = \"example.com\", paths = [\"/duration/**\"]",
            "duration = \"1s\"",
        ],
        [
            "to = \"example.com\", paths = [\"/rate/**\"]",
            "rate = \"50KiB/s\"",
        ],
    ];
    let [limited, free] = rules(&rows);
    for mode in modes() {
        let seen = online(&world, *mode, &limited, "node streams.mjs 60000");
        assert_eq!(
            seen.outcome.out(),
            "requests 5 35\nconnections 4 6\nand then 200\nupload 200 few\n\
             download 50000 true few\nbody 413 false 200\nduration true 200\nrate 50000 50000 slowly\n",
            "{mode:?}: {}",
            seen.outcome
        );
        let came = |start: &str| {
            seen.requests
                .iter()
                .filter(|one| one.starts_with(start))
                .count()
        };
        assert_eq!(came("GET /requests/x 2.0"), 5, "{:?}", seen.requests);
        assert_eq!(came("POST /connections/echo 2.0"), 4, "{:?}", seen.requests);
        let whole = |path: &str| {
            seen.whole
                .iter()
                .filter(|one| one.starts_with(path))
                .count()
        };
        assert!(whole("/upload/sum 50000") <= 4, "{:?}", seen.whole);
        let of_body: Vec<_> = seen
            .whole
            .iter()
            .filter(|one| one.starts_with("/body"))
            .collect();
        assert_eq!(of_body, ["/body/sum 8000"]);
        assert_eq!(told(&world), ALL.map(str::to_owned).into(), "{mode:?}");
        for (way, path) in [("up_bytes", "/upload"), ("down_bytes", "/download")] {
            let bytes = carried(&world, way, path);
            assert!((50_000..=200 * 1024).contains(&bytes), "{way}: {bytes}");
        }
        // The control.
        let seen = online(&world, *mode, &free, "node streams.mjs 1500");
        assert_eq!(
            seen.unhurried(),
            "requests 40 0\nconnections 10 0\nand then 200\nupload 200 all\n\
             download 50000 true all\nbody 200 true 200\nduration false 200\nrate 50000 50000\n",
            "{mode:?}: {}",
            seen.outcome
        );
        assert!(told(&world).is_empty());
    }
}

#[test]
fn limits_hold_for_web_sockets_and_by_every_proxy() {
    let world = World::new("limits_hold_for_web_sockets_and_by_every_proxy");
    if !is_possible(&world, &["node", "openssl"]) {
        return;
    }
    let limits = [
        ["requests", "requests = \"2/h\""],
        ["connections", "connections = 1"],
        ["upload", "upload = \"100KiB\""],
        ["download", "download = \"100KiB\""],
        ["body", "body = \"100KiB\""],
        ["duration", "duration = \"1s\""],
        ["rate", "rate = \"25KiB/s\""],
    ];
    let mut rows = Vec::new();
    for name in ["plain", "tls"] {
        for [limit, said] in limits {
            let to = format!("to = \"example.com\", paths = [\"/{name}/{limit}\"]");
            rows.push([to, said.to_owned()]);
        }
    }
    let to = "to = \"example.com\", paths = [\"/ways\"]".to_owned();
    rows.push([to, "requests = \"4/h\"".to_owned()]);
    let rows: Vec<[&str; 2]> = rows.iter().map(|[to, said]| [&to[..], said]).collect();
    let [limited, free] = rules(&rows);
    for mode in modes() {
        let seen = online(&world, *mode, &limited, "python3 ways.py web-sockets 100");
        let each = |name: &str| {
            format!(
                "{name} requests open open 429\n{name} connections True False\n{name} and then True\n\
                 {name} upload 50000 cut\n{name} download 50000 cut\n{name} body 50000 cut\n\
                 {name} duration ended\n{name} rate 50000 slowly\n"
            )
        };
        let ways = "ways 200 200 200 200 429 429\n";
        let expected = [each("plain"), each("tls"), ways.to_owned()].concat();
        assert_eq!(seen.outcome.out(), expected, "{mode:?}: {}", seen.outcome);
        let came = |what: &str| seen.requests.iter().filter(|one| *one == what).count();
        assert_eq!(came("UPGRADE /plain/requests"), 2, "{:?}", seen.requests);
        assert_eq!(came("UPGRADE /tls/requests"), 2, "{:?}", seen.requests);
        assert_eq!(came("GET /ways 1.1"), 4, "{:?}", seen.requests);
        assert_eq!(told(&world), ALL.map(str::to_owned).into(), "{mode:?}");
        for (way, path) in [("up_bytes", "/tls/upload"), ("down_bytes", "/tls/download")] {
            let bytes = carried(&world, way, path);
            assert!((50_000..=100 * 1024).contains(&bytes), "{way}: {bytes}");
        }
        // The control.
        let seen = online(&world, *mode, &free, "python3 ways.py web-sockets 2");
        let each = |name: &str| {
            format!(
                "{name} requests open open open\n{name} connections True True\n{name} and then True\n\
                 {name} upload 50000 all\n{name} download 50000 all\n{name} body 50000 all\n\
                 {name} duration goes on\n{name} rate 50000\n"
            )
        };
        let ways = "ways 200 200 200 200 200 200\n";
        let expected = [each("plain"), each("tls"), ways.to_owned()].concat();
        assert_eq!(seen.unhurried(), expected, "{mode:?}: {}", seen.outcome);
    }
}

#[test]
fn limits_hold_for_tunnels_however_they_were_asked_for() {
    let world = World::new("limits_hold_for_tunnels_however_they_were_asked_for");
    if !is_possible(&world, &["node", "openssl"]) {
        return;
    }
    let rows = [
        ["to = \"example.com:7\"", "upload = \"200KiB\""],
        ["to = \"other.example:7\"", "download = \"200KiB\""],
        ["to = \"git.example:7\"", "connections = 2"],
        ["to = \"api.openai.com:7\"", "duration = \"1s\""],
        ["to = \"tunnel.example:7\"", "rate = \"50KiB/s\""],
    ];
    let [limited, free] = rules(&rows);
    for mode in modes() {
        let seen = online(&world, *mode, &limited, "python3 ways.py tunnels 100");
        let rate = "rate 50000 slowly\n".repeat(3);
        assert_eq!(
            seen.outcome.out(),
            format!(
                "upload 50000 few 0\ndownload 50000 few 0\nconnections [True, True, False]\n\
                 and then [True, True, True]\nduration ended ended ended\n{rate}"
            ),
            "{mode:?}: {}",
            seen.outcome
        );
        let expected = ["connections", "download", "duration", "upload"];
        assert_eq!(told(&world), expected.map(str::to_owned).into(), "{mode:?}");
        // The control.
        let seen = online(&world, *mode, &free, "python3 ways.py tunnels 2");
        let rate = "rate 50000\n".repeat(3);
        assert_eq!(
            seen.unhurried(),
            format!(
                "upload 50000 all 50000\ndownload 50000 all 50000\nconnections [True, True, True]\n\
                 and then [True, True, True]\nduration goes on goes on goes on\n{rate}"
            ),
            "{mode:?}: {}",
            seen.outcome
        );
        assert!(told(&world).is_empty());
    }
}
