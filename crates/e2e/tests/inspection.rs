//! Inspected requests of programs, on a small internet of each test's own: real clients, and
//! servers that record what reaches them.

use std::fs;

use e2e::internet::{events, is_possible};
use e2e::{Outcome, World};
use serde_json::Value;

const WEB: &str = include_str!("inspection/web.sh");
const SERVERS: &str = include_str!("inspection/web.js");

/// A program that was run, and the traffic that the web saw of it.
struct Seen {
    outcome: Outcome,
    requests: Vec<String>,
}

impl Seen {
    /// Returns the program's output, trimmed.
    fn output(&self) -> String {
        self.outcome.out().trim().to_owned()
    }
}

/// Runs a shell script in a sandbox, with these options, where there is a web.
fn online(world: &World, options: &[&str], script: &str) -> Seen {
    online_under(world, options, script, "\"$@\"")
}

/// As [`online`], with this command around it.
fn online_under(world: &World, options: &[&str], script: &str, around: &str) -> Seen {
    let internet = world.top().join("internet");
    let _ = fs::remove_dir_all(&internet);
    fs::create_dir(&internet).unwrap();
    for (name, text) in [
        ("internet.py", e2e::internet::PROGRAM),
        ("web.sh", WEB),
        ("web.js", SERVERS),
    ] {
        fs::write(internet.join(name), text).unwrap();
    }
    let place = internet.display();
    let command = format!(
        "INTERNET_PORTS='7 22' exec python3 '{place}/internet.py' '{place}' \
         sh '{place}/web.sh' '{place}' sh -c 'cd \"$0\" || exit; '\"$AROUND\" \"$PWD\" \"$ATOLL\" run --discard \"$@\""
    );
    let outcome = world
        .network_shell(&command)
        .env("AROUND", around)
        .arg("sh")
        .args(options)
        .args(["--", "sh", "-c", script])
        .run();
    let text = fs::read_to_string(internet.join("requests")).unwrap_or_default();
    Seen {
        outcome,
        requests: text.lines().map(str::to_owned).collect(),
    }
}

const CURL: &str = "curl -sS -m 60 --noproxy '*'";

#[test]
fn requests_are_recorded_one_by_one_with_what_they_ask_for() {
    let world = World::new("requests_are_recorded_one_by_one_with_what_they_ask_for");
    if !is_possible(&world, &["node", "openssl"]) {
        return;
    }
    let script = format!(
        "{CURL} http://example.com/one http://example.com/two?token=secret; \
         {CURL} -d body http://example.com/echo; {CURL} -I -o /dev/null http://example.com/"
    );
    let seen = online(&world, &["--allow", "example.com"], &script);
    assert_eq!(
        seen.output(),
        "this is example.com by 1.1\nthis is example.com by 1.1\nbody"
    );
    assert_eq!(
        seen.requests,
        [
            "GET /one example.com 1.1",
            "GET /two?token=secret example.com 1.1",
            "POST /echo example.com 1.1",
            "HEAD / example.com 1.1",
        ]
    );
    let opened = events(&world, "flow.opened");
    let told: Vec<String> = opened
        .iter()
        .map(|one| {
            let part = |name: &str| one[name].as_str().unwrap().to_owned();
            format!(
                "{} {} {} {}",
                part("kind"),
                part("method"),
                part("scheme"),
                part("path")
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            "request GET http /one",
            "request GET http /two",
            "request POST http /echo",
            "request HEAD http /",
        ]
    );
    let closed = events(&world, "flow.closed");
    assert_eq!(closed.len(), 4);
    let of_post = closed.iter().find(|one| one["up_bytes"] == 4).unwrap();
    assert_eq!(
        (of_post["status"].clone(), of_post["down_bytes"].clone()),
        (200.into(), 4.into())
    );
}

#[test]
fn within_tls_requests_are_seen_by_programs_of_all_kinds() {
    let world = World::new("within_tls_requests_are_seen_by_programs_of_all_kinds");
    if !is_possible(&world, &["node", "openssl"]) {
        return;
    }
    let script = format!(
        "{CURL} --http1.1 https://example.com/one; {CURL} --http2 https://example.com/two; \
         {CURL} --http2 https://example.com:8443/three; \
         node -e 'fetch(\"https://example.com/four\").then((r) => r.text()).then(console.log)'; \
         python3 -c 'import urllib.request; print(urllib.request.urlopen(\"https://example.com/five\").read().decode())'"
    );
    let allow = [
        "--allow",
        "example.com",
        "--allow",
        "GET https://example.com:8443",
    ];
    let seen = online(&world, &allow, &script);
    let lines = seen.output();
    let lines: Vec<&str> = lines.split_whitespace().collect();
    assert_eq!(
        lines.join(" "),
        "this is example.com by 1.1 this is example.com by 2.0 this is example.com:8443 by 1.1 \
         this is example.com by 1.1 this is example.com by 1.1",
        "{}",
        seen.outcome
    );
    let opened = events(&world, "flow.opened");
    assert_eq!(opened.len(), 5, "{opened:?}");
    assert!(
        opened.iter().all(|one| one["scheme"] == "https"),
        "{opened:?}"
    );
}

#[test]
fn a_denied_request_is_answered_and_reaches_nobody() {
    let world = World::new("a_denied_request_is_answered_and_reaches_nobody");
    if !is_possible(&world, &["node", "openssl"]) {
        return;
    }
    let script = format!(
        "{CURL} -w '%{{http_code}}\\n' -o /dev/null https://example.com/v1/a; \
         {CURL} -w '%{{http_code}} ' -d secret https://example.com/v1/a; \
         {CURL} -w '%{{http_code}} ' https://example.com/v2/a; \
         {CURL} -w '%{{http_code}} ' http://example.com/v1/a; \
         {CURL} -w '%{{http_code}} ' --path-as-is https://example.com/v1/../v2; \
         {CURL} -w '%{{http_code}} ' -H 'Host: other.example' https://example.com/v1/a; \
         {CURL} -w '%{{http_code}} ' --http2 -H 'Host: other.example' https://example.com/v1/a; \
         {CURL} -w '%{{http_code}} ' --connect-to other.example:443:example.com:443 https://other.example/v1/a"
    );
    let rule = ["--allow", "GET https://example.com/v1/**"];
    let seen = online(&world, &rule, &script);
    let told = seen.output();
    assert!(told.starts_with("200\n"), "{told}");
    assert_eq!(seen.requests, ["GET /v1/a example.com 2.0"], "{told}");
    let denials: Vec<Value> = told
        .split_inclusive('}')
        .filter_map(|part| serde_json::from_str(&part[part.find('{')?..]).ok())
        .collect();
    let whats: Vec<&str> = denials
        .iter()
        .map(|one| one["what"].as_str().unwrap())
        .collect();
    assert_eq!(
        whats,
        [
            "POST https://example.com/v1/a",
            "GET https://example.com/v2/a",
            "GET https://example.com/v1/../v2",
            "GET https://example.com/v1/a",
            "GET https://example.com/v1/a",
        ],
        "{}",
        seen.outcome
    );
    assert_eq!(told.matches("421").count(), 2, "{told}");
    assert!(denials.iter().all(|one| one["why"].is_string()));
    // What a rule can allow can be asked for.
    let asks: Vec<bool> = denials
        .iter()
        .map(|one| one["how_to_ask"].is_string())
        .collect();
    assert_eq!(asks, [true, true, true, false, false], "{told}");
    let refused = events(&world, "flow.refused");
    let is_refused = |method: &str, path: &str| {
        refused
            .iter()
            .any(|one| one["method"] == method && one["path"] == path)
    };
    assert!(
        is_refused("POST", "/v1/a") && is_refused("GET", "/v2/a"),
        "{refused:?}"
    );
}

#[test]
fn a_server_with_a_certificate_of_nobodys_is_told_and_gets_no_request() {
    let world = World::new("a_server_with_a_certificate_of_nobodys_is_told_and_gets_no_request");
    if !is_possible(&world, &["node", "openssl"]) {
        return;
    }
    let script: String = ["wrong", "late", "unknown"]
        .iter()
        .map(|name| format!("{CURL} -w '%{{http_code}}\\n' https://{name}.example/; "))
        .collect();
    let script = format!("{script} {CURL} -k -w '%{{http_code}}\\n' https://unknown.example/");
    let seen = online(&world, &["--allow", "*.example"], &script);
    let told = seen.output();
    assert_eq!(told.matches("502").count(), 4, "{told}");
    for why in [
        "it is for another name",
        "it has expired",
        "nobody that this host trusts has signed it",
    ] {
        assert!(told.contains(why), "{told}");
    }
    assert!(seen.requests.is_empty(), "{:?}", seen.requests);
    let closed = events(&world, "flow.closed");
    assert_eq!(
        closed
            .iter()
            .filter(|one| one["failure"].is_string())
            .count(),
        4,
        "{closed:?}"
    );
    // No rule names these names: that somebody is asked for them is on record before.
    let opened = events(&world, "flow.opened");
    let names = opened.iter().filter(|one| one["kind"] == "name");
    let names: Vec<_> = names.map(|one| one["host"].as_str().unwrap()).collect();
    assert_eq!(names, ["wrong.example", "late.example", "unknown.example"]);
    // So says the end of the run, and so does who is asked later.
    let why = world.atoll(["why", "last"]).run().success();
    for told in [seen.outcome.err(), why.out()] {
        let folded = told.split_whitespace().collect::<Vec<_>>().join(" ");
        for failed in [
            "failed GET https://wrong.example/: the host's certificate is not accepted: it is for another name",
            "GET https://unknown.example/: the host's certificate is not accepted: nobody that this host trusts has signed it (2 times)",
        ] {
            assert!(folded.contains(failed), "{failed}\n{told}");
        }
    }
}

/// A program that speaks HTTP/2, in Node: to a host, requests, then the result of each.
const SPEAK_2: &str = r#"
const http2 = require('http2'), fs = require('fs');
const session = http2.connect(process.argv[2]);
const ask = (headers, body) => new Promise((done) => {
  const stream = session.request(headers, { endStream: body === undefined });
  let status, data = '', trailers = {};
  stream.on('response', (headers) => { status = headers[':status']; });
  stream.on('trailers', (headers) => { trailers = headers; });
  stream.setEncoding('utf8');
  stream.on('data', (part) => { data += part; });
  stream.on('error', (error) => { data += error.code; });
  stream.on('close', () => done({ status, data, trailers, code: stream.rstCode }));
  if (body !== undefined) stream.end(body);
});
"#;

#[test]
fn http_2_is_carried_with_streams_trailers_and_all() {
    let world = World::new("http_2_is_carried_with_streams_trailers_and_all");
    if !is_possible(&world, &["node", "openssl"]) {
        return;
    }
    world.write("two.js", format!(
        "{SPEAK_2}\n(async () => {{\n\
         const all = await Promise.all([...Array(100).keys()].map((n) => ask({{ ':path': '/echo', ':method': 'POST' }}, 'n' + n)));\n\
         console.log(all.every((one, n) => one.data === 'n' + n && one.status === 200));\n\
         const rpc = await ask({{ ':path': '/trailers', ':method': 'POST', te: 'trailers', 'content-type': 'application/grpc' }}, 'ask');\n\
         console.log(rpc.data, rpc.trailers['grpc-status']);\n\
         const denied = await Promise.all([...Array(20).keys()].map(() => ask({{ ':path': '/echo', ':method': 'DELETE' }}, 'x'.repeat(100000))));\n\
         console.log(denied.every((one) => one.status === 403 && JSON.parse(one.data).what.startsWith('DELETE')));\n\
         const other = await ask({{ ':path': '/', ':authority': 'other.example' }});\n\
         console.log(other.status);\n\
         const crumbs = await ask({{ ':path': '/headers', cookie: ['a=1', 'b=2'] }});\n\
         console.log(JSON.parse(crumbs.data).cookie);\n\
         const big = await ask({{ ':path': '/bytes?count=3000000' }});\n\
         console.log(big.data.length);\n\
         session.close();\n}})();\n"
    ));
    let script = "node two.js https://example.com; node two.js http://example.com:8080";
    let allow = [
        "--allow",
        "https://example.com",
        "--allow",
        "http://example.com:8080",
        "--deny",
        "DELETE example.com",
    ];
    let seen = online(&world, &allow, script);
    let once = "true\nmessage 7\ntrue\n421\na=1; b=2\n3000000\n";
    assert_eq!(seen.outcome.out(), once.repeat(2), "{}", seen.outcome);
    assert!(
        seen.requests
            .iter()
            .all(|one| one.ends_with("2.0") && !one.contains("other.example"))
    );
}

#[test]
fn a_web_socket_is_carried_once_its_request_may_be_sent() {
    let world = World::new("a_web_socket_is_carried_once_its_request_may_be_sent");
    if !is_possible(&world, &["node", "openssl"]) {
        return;
    }
    let script = r#"python3 - <<'END'
import socket, ssl
def speak(to, port, path, upgrade="websocket"):
    stream = socket.create_connection((to, port))
    if port == 443: stream = ssl.create_default_context().wrap_socket(stream, server_hostname=to)
    stream.settimeout(10)
    stream.sendall((f"GET {path} HTTP/1.1\r\nHost: {to}\r\nUpgrade: {upgrade}\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").encode())
    head = b""
    while b"\r\n\r\n" not in head:
        part = stream.recv(1)
        if not part: break
        head += part
    told = head.split(b"\r\n")[0].decode()
    if " 101 " not in told: return told
    accepted = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
    block = bytes(range(256)) * 400
    stream.sendall(block)
    got = b""
    while len(got) < len(block): got += stream.recv(65536)
    stream.close()
    return f"{told} {accepted} {got == block}"
for port in (80, 443):
    print(speak("example.com", port, "/chat"))
    print(speak("example.com", port, "/other"))
    print(speak("example.com", port, "/chat", "tcp"))
END"#;
    let rules = "[network]\nallow = [{ to = \"example.com\", paths = [\"/chat\"] }]\n";
    world.profile("chat", rules);
    let seen = online(&world, &["--profile", "chat"], script);
    let once = "HTTP/1.1 101 Switching Protocols True True\nHTTP/1.1 403 Forbidden\nHTTP/1.1 403 Forbidden\n";
    assert_eq!(seen.outcome.out(), once.repeat(2), "{}", seen.outcome);
    assert_eq!(seen.requests, ["UPGRADE /chat example.com websocket"; 2]);
    let closed = events(&world, "flow.closed");
    assert_eq!(closed.len(), 2, "{closed:?}");
    for one in closed {
        assert_eq!(
            (&one["up_bytes"], &one["status"]),
            (&102_400.into(), &101.into()),
            "{one}"
        );
    }
}

#[test]
fn bodies_pass_as_they_come() {
    let world = World::new("bodies_pass_as_they_come");
    if !is_possible(&world, &["node", "openssl"]) {
        return;
    }
    let script = format!(
        "{CURL} -N https://example.com/events; \
         {CURL} --compressed https://example.com/packed; echo; {CURL} https://example.com/packed | head -c 2 | od -An -tx1; \
         {CURL} --http1.1 -H 'Expect: 100-continue' -d asked https://example.com/echo; echo; \
         {CURL} --http1.1 -o /dev/null -w '%{{http_code}} %{{size_upload}}\\n' -H 'Expect: 100-continue' -d asked https://example.com/refused; \
         {CURL} -H 'Transfer-Encoding: chunked' --http1.1 -d chunked https://example.com/echo; echo; \
         {CURL} --http1.1 -o /dev/null https://example.com/cut; echo $?; \
         {CURL} -o /dev/null -w '%{{http_code}}\\n' https://example.com/status?is=204; \
         {CURL} -o /dev/null -w '%{{http_code}}\\n' https://example.com/status?is=304; \
         {CURL} -I -o /dev/null -w '%{{http_code}}\\n' https://example.com/bytes?count=5\\&length; \
         {CURL} -H 'TE: trailers' --http1.1 -o /dev/null -D - https://example.com/trailers | grep -i '^grpc-status'"
    );
    let seen = online(&world, &["--allow", "example.com"], &script);
    assert_eq!(
        seen.output(),
        "data: 0\n\ndata: 1\n\ndata: 2\n\nunpacked\n 1f 8b\nasked\n413 0\nchunked\n18\n204\n304\n200\ngrpc-status: 7",
        "{}",
        seen.outcome
    );
    assert!(
        seen.requests.contains(&"CONTINUE".to_owned()),
        "{:?}",
        seen.requests
    );
    assert!(seen.requests.contains(&"EXPECT /refused".to_owned()));
    let closed = events(&world, "flow.closed");
    let cut = closed
        .iter()
        .filter(|one| one["failure"].is_string())
        .count();
    assert_eq!(cut, 1, "{closed:?}");
}

/// Clients ask for WebSockets by HTTP/2 (RFC 8441) only if the other side offers them; else they
/// ask by HTTP/1.1, where they work.
#[test]
fn web_sockets_by_http_2_are_not_offered_and_early_hints_are_left_out() {
    let world = World::new("web_sockets_by_http_2_are_not_offered_and_early_hints_are_left_out");
    if !is_possible(&world, &["node", "openssl"]) {
        return;
    }
    let script = format!(
        r#"cat > two.mjs <<'END'
import http2 from "node:http2";
const session = http2.connect("https://example.com");
await new Promise((done) => session.once("remoteSettings", done));
console.log("offered", session.remoteSettings.enableConnectProtocol);
const asked = session.request({{ ":method": "CONNECT", ":protocol": "websocket", ":path": "/chat", ":scheme": "https", ":authority": "example.com" }});
asked.on("response", (told) => console.log("answered", told[":status"]));
asked.on("error", (error) => console.log("refused", error.code));
await new Promise((done) => asked.on("close", done));
const other = session.request({{ ":path": "/after" }});
let text = "";
other.on("data", (data) => text += data);
await new Promise((done) => other.on("close", done));
console.log(text.trim());
session.close();
END
node two.mjs; for how in http1.1 http2; do {CURL} --$how -w '%{{http_code}}
' https://example.com/hints; done"#
    );
    let seen = online(&world, &["--allow", "example.com"], &script);
    assert_eq!(
        seen.output(),
        "offered false\nrefused ERR_HTTP2_STREAM_ERROR\nthis is example.com by 2.0\n\
         after hints\n200\nafter hints\n200",
        "{}",
        seen.outcome
    );
    assert!(
        !seen.requests.iter().any(|one| one.contains("/chat")),
        "{:?}",
        seen.requests
    );
}

/// An old client (HTTP/1.0) takes the connection's end for the response's.
#[test]
fn an_answer_that_is_cut_short_looks_whole_to_no_client() {
    let world = World::new("an_answer_that_is_cut_short_looks_whole_to_no_client");
    if !is_possible(&world, &["node", "openssl"]) {
        return;
    }
    let script = r#"python3 - <<'END'
import socket, ssl
def connect(way):
    if way == "proxy": return socket.create_connection(("proxy.atoll.internal", 3128), 60)
    one = socket.create_connection(("example.com", 443 if way == "tls" else 80), 60)
    if way == "plain": return one
    # The end of TLS is another one than that of the connection.
    return ssl.create_default_context().wrap_socket(one, server_hostname="example.com", suppress_ragged_eofs=False)
def ask(way, path, version):
    target = "http://example.com" + path if way == "proxy" else path
    with connect(way) as one:
        one.settimeout(60)
        one.sendall(f"GET {target} HTTP/{version}\r\nHost: example.com\r\nConnection: close\r\n\r\n".encode())
        got = b""
        try:
            while part := one.recv(65536): got += part
        except OSError: return "broke off"
    head, _, body = got.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        return "whole" if body.endswith(b"0\r\n\r\n") else "broke off"
    return "whole" if b"content-length: 100" not in head.lower() or len(body) == 100 else "broke off"
for path in ("/cut-unknown", "/cut", "/bytes?count=300000", "/limited?count=300000"):
    print(path, *(ask(way, path, version) for way in ("plain", "tls", "proxy") for version in ("1.0", "1.1")))
END"#;
    let rules = "[network]\nallow = [{ to = \"example.com\", paths = [\"/limited\"], download = \"20KiB\" }, \
                 \"example.com\"]\n";
    world.profile("cut", rules);
    let seen = online(&world, &["--profile", "cut"], script);
    let six = |what: &str| [what; 6].join(" ");
    let (cut, whole) = (six("broke off"), six("whole"));
    // Once its rule allows no more, an answer says so, whole.
    let limited = ["broke off"; 1].into_iter().chain(["whole"; 5]);
    let limited = limited.collect::<Vec<_>>().join(" ");
    assert_eq!(
        seen.output(),
        format!(
            "/cut-unknown {cut}\n/cut {cut}\n/bytes?count=300000 {whole}\n/limited?count=300000 {limited}"
        ),
        "{}",
        seen.outcome
    );
}

#[test]
fn large_bodies_pass_in_little_memory() {
    let world = World::new("large_bodies_pass_in_little_memory");
    if !is_possible(&world, &["node", "openssl"]) {
        return;
    }
    // Who carries is measured from outside while it carries, once each way.
    let script = "for how in --http1.1 --http2; do \
         curl -sS $how https://example.com/bytes?count=134217728 | sha256sum; \
         head -c 134217728 /dev/zero | curl -sS $how -T - https://example.com/sum; echo; done";
    let measured = world.top().join("measured");
    let watch = format!(
        "\"$@\" & run=$!; most=0; while kill -0 $run 2>/dev/null; do for p in $(pgrep -P $run -x atoll-egress); do \
         now=$(sed -n 's/^RssAnon:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$p/status 2>/dev/null); \
         if [ \"${{now:-0}}\" -gt $most ]; then most=$now; echo $most >'{}'; fi; done; sleep 0.05; done; wait $run",
        measured.display()
    );
    let seen = online_under(&world, &["--allow", "example.com"], script, &watch);
    let lines = seen.output();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 4, "{}", seen.outcome);
    assert_eq!((lines[0], lines[1]), (lines[2], lines[3]));
    assert!(
        lines[1].starts_with(
            "134217728 254bcc3fc4f27172636df4bf32de9f107f620d559b20d760197e452b97453917"
        ),
        "{lines:?}"
    );
    let most: u64 = fs::read_to_string(measured)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(most < 32 * 1024, "{most} KiB of memory");
}
