//! A proxy for programs that want one: their requests are judged like everything else, on a small
//! internet of each test's own.

use e2e::World;
use e2e::internet::{events, is_possible, online};

const ALLOW: [&str; 8] = [
    "--allow",
    "example.com",
    "--allow",
    "six.example",
    "--allow",
    "example.com:22",
    "--allow",
    "93.184.216.35",
];

const CURL: &str = "curl -sS -m 20 --noproxy ''";

/// Sends text to the proxy and prints the first and the last line of its answer.
const SPEAK: &str = r#"
import socket, sys
def speak(text):
    one = socket.create_connection(("proxy.atoll.internal", 3128), 20)
    one.settimeout(20)
    one.sendall(text.encode())
    got = b""
    try:
        while not (block := one.recv(65536)) == b"":
            got += block
            if b"SSH" in got: break
    except OSError as error:
        got += b"[%s]" % type(error).__name__.encode()
    print(got.split(b"\r\n")[0].decode(), "|", got.strip().split(b"\n")[-1].decode())
"#;

#[test]
fn programs_that_ask_a_proxy_reach_what_they_may() {
    let world = World::new("programs_that_ask_a_proxy_reach_what_they_may");
    if !is_possible(&world, &[]) {
        return;
    }
    let four = "this is 93.184.216.34";
    for (command, expected) in [
        (
            "-x http://proxy.atoll.internal:3128 http://example.com/",
            four,
        ),
        (
            "-p -x http://proxy.atoll.internal:8080 http://example.com/",
            four,
        ),
        (
            "-x socks5h://proxy.atoll.internal http://example.com/",
            four,
        ),
        (
            "-x socks5://proxy.atoll.internal:9 http://example.com/",
            four,
        ),
        (
            "-x socks5h://a:b@198.18.0.1:1080 http://six.example/",
            "this is 2606:2800:220:1::1",
        ),
        (
            "-x 'socks5h://a:b@[fd61:746f:6c6c::1]:1' http://93.184.216.35/",
            "this is 93.184.216.35",
        ),
        (
            "-p -x http://a:b@198.18.0.1:3128 http://93.184.216.35/",
            "this is 93.184.216.35",
        ),
    ] {
        let seen = online(&world, &ALLOW, &format!("{CURL} {command}"));
        assert_eq!(
            seen.outcome.out().trim(),
            expected,
            "{command}: {}",
            seen.outcome.err()
        );
        assert_eq!(seen.reached.len(), 1, "{command}: {:?}", seen.reached);
    }
    // By the usual variables; two hosts by one connection to the proxy.
    let script = format!(
        "export http_proxy=http://proxy.atoll.internal:3128; \
         {CURL} http://example.com/ http://six.example/ http://other.example/; \
         python3 -c 'import urllib.request as u; print(u.urlopen(\"http://example.com/\").read().decode())'"
    );
    let seen = online(&world, &ALLOW, &script);
    let told = seen.outcome.out();
    assert_eq!(
        told.matches(four).count(),
        2,
        "{told} {}",
        seen.outcome.err()
    );
    assert!(told.contains("this is 2606:2800:220:1::1"), "{told}");
    assert!(told.contains("no rule allows it"), "{told}");
    assert!(!seen.asked.contains(&"other.example".to_owned()));
}

#[test]
fn a_connection_by_a_proxy_is_recorded_as_any_other() {
    let world = World::new("a_connection_by_a_proxy_is_recorded_as_any_other");
    if !is_possible(&world, &[]) {
        return;
    }
    let script =
        format!("python3 -c '{SPEAK}\nspeak(\"CONNECT example.com:22 HTTP/1.1\\r\\n\\r\\n\")'");
    let seen = online(&world, &ALLOW, &script);
    let told = seen.outcome.out();
    assert_eq!(
        told.trim(),
        "HTTP/1.1 200 Connection established | SSH-2.0-here",
        "{}",
        seen.outcome.err()
    );
    let opened = events(&world, "flow.opened");
    assert_eq!(opened.len(), 1, "{opened:?}");
    assert_eq!(opened[0]["host"], "example.com");
    assert_eq!(opened[0]["port"], 22);
    assert_eq!(opened[0]["rule"], "example.com:22 (--allow)");
    assert_eq!(opened[0]["kind"], "tunnel");
    assert_eq!(events(&world, "flow.closed").len(), 1);
}

/// Questions, and the answers that the program gets.
#[test]
fn what_may_not_be_reached_is_refused_by_a_proxy_in_its_own_words() {
    let world = World::new("what_may_not_be_reached_is_refused_by_a_proxy_in_its_own_words");
    if !is_possible(&world, &[]) {
        return;
    }
    let refused = "HTTP/1.1 403 Forbidden";
    let unclear = "HTTP/1.1 400 Bad Request";
    let asked = [
        (
            "CONNECT other.example:443 HTTP/1.1",
            refused,
            "no rule allows it",
        ),
        (
            "CONNECT example.com:8443 HTTP/1.1",
            refused,
            "no rule allows it",
        ),
        (
            "CONNECT 93.184.216.34:80 HTTP/1.1",
            refused,
            "no rule allows it",
        ),
        (
            "CONNECT [2606:2800:220:1::1]:80 HTTP/1.1",
            refused,
            "no rule allows it",
        ),
        (
            "CONNECT localhost:22 HTTP/1.1",
            refused,
            "no rule allows it",
        ),
        (
            "CONNECT 127.0.0.1:22 HTTP/1.1",
            refused,
            "no rule allows it",
        ),
        (
            "CONNECT private.example:80 HTTP/1.1",
            refused,
            "no rule allows it",
        ),
        (
            "CONNECT proxy.atoll.internal:3128 HTTP/1.1",
            refused,
            "a proxy leads to no proxy",
        ),
        (
            "CONNECT 198.18.0.1:3128 HTTP/1.1",
            refused,
            "a proxy leads to no proxy",
        ),
        (
            "CONNECT 198.18.0.99:80 HTTP/1.1",
            refused,
            "stands for no name",
        ),
        (
            "CONNECT 9.9.9.9:53 HTTP/1.1",
            refused,
            "names are asked for",
        ),
        (
            "CONNECT example.com:22 HTTP/1.1\\r\\nHost: other.example:22",
            unclear,
            "Host",
        ),
        (
            "CONNECT example.com HTTP/1.1",
            unclear,
            "no host with a port",
        ),
        (
            "GET http://other.example/ HTTP/1.1\\r\\nHost: other.example",
            refused,
            "no rule",
        ),
        (
            "GET http://example.com/ HTTP/1.1\\r\\nHost: other.example",
            "HTTP/1.1 421 Misdirected Request",
            "another host",
        ),
        (
            "GET https://example.com/ HTTP/1.1\\r\\nHost: example.com",
            unclear,
            "http://",
        ),
        ("GET / HTTP/1.1\\r\\nHost: example.com", unclear, "http://"),
        (
            "GET http://proxy.atoll.internal/ HTTP/1.1\\r\\nHost: proxy.atoll.internal",
            unclear,
            "no proxy",
        ),
        (
            "OPTIONS * HTTP/1.1\\r\\nHost: example.com",
            unclear,
            "http://",
        ),
    ];
    let mut script = format!("cat > /tmp/speak.py <<'END'\n{SPEAK}");
    for (text, _, _) in asked {
        script.push_str(&format!(
            "speak(\"{text}\\r\\nConnection: close\\r\\n\\r\\n\")\n"
        ));
    }
    script.push_str("END\npython3 /tmp/speak.py\n");
    let seen = online(&world, &ALLOW, &script);
    let told = seen.outcome.out();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), asked.len(), "{told} {}", seen.outcome.err());
    for ((text, first, why), line) in asked.into_iter().zip(lines) {
        assert!(
            line.starts_with(first) && line.contains(why),
            "{text}: {line}"
        );
    }
    assert!(seen.reached.is_empty(), "{:?}", seen.reached);
    assert!(seen.asked.is_empty(), "{:?}", seen.asked);
    // What the proxy cannot read is recorded as well.
    let unread: Vec<_> = events(&world, "flow.refused")
        .into_iter()
        .filter(|one| one["host"] == "proxy.atoll.internal" && one["port"] == 3128)
        .map(|one| one["why"].as_str().unwrap().to_owned())
        .collect();
    for why in ["Host", "no host with a port", "http://"] {
        assert!(unread.iter().any(|told| told.contains(why)), "{unread:?}");
    }
    // The same by SOCKS, in its own words: 2 is "not allowed", 97 curl's word for it.
    for host in [
        "http://other.example/",
        "http://93.184.216.34:22/",
        "http://198.18.0.1/",
    ] {
        let command = format!("{CURL} -x socks5h://proxy.atoll.internal:1080 {host}; echo $?");
        let seen = online(&world, &ALLOW, &command);
        assert_eq!(
            seen.outcome.out().trim(),
            "97",
            "{host}: {}",
            seen.outcome.err()
        );
        assert!(seen.reached.is_empty() && seen.asked.is_empty(), "{host}");
    }
    // A host that is not there, and one that is nobody's.
    let allow = [
        "--allow",
        "nowhere.example:22",
        "--allow",
        "private.example:22",
    ];
    let script = format!(
        "python3 -c '{SPEAK}\nfor host in [\"nowhere\", \"private\"]: speak(f\"CONNECT {{host}}.example:22 HTTP/1.1\\r\\n\\r\\n\")'"
    );
    let seen = online(&world, &allow, &script);
    let told = seen.outcome.out();
    let mut lines = told.lines();
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with("HTTP/1.1 502 Bad Gateway"),
        "{told}"
    );
    let private = lines.next().unwrap();
    assert!(
        private.starts_with(refused) && private.contains("a private network"),
        "{told}"
    );
}

#[test]
fn there_is_a_proxy_only_where_there_is_a_network() {
    let world = World::new("there_is_a_proxy_only_where_there_is_a_network");
    let ran = world.run_inside("getent hosts proxy.atoll.internal; python3 -c 'import socket; socket.create_connection((\"198.18.0.1\", 3128), 3)' 2>&1 | tail -1");
    assert!(ran.out().contains("Error"), "{}", ran.out());
    assert!(!ran.out().contains("198.18.0.1 "), "{}", ran.out());
}
