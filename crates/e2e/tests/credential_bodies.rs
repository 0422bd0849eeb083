//! Credentials and bodies: what a program sends in them, what comes back in them, on a small
//! internet of each test's own with origins that write down what reaches them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::fs;

use e2e::internet::{events, is_possible, on_servers};
use e2e::{Outcome, World};

const SERVERS: &str = include_str!("credential_bodies/servers.py");
const PROGRAM: &str = include_str!("credential_bodies/program.py");
const NAMES: &[&str] = &["example.com", "other.example"];
/// What the origins say back.
const REAL: &str = "ghp_r3alK3yOfTh1sT3stWh1chN0bodyM4yS33in";
const CURL: &str = "curl -sS -m 60 --noproxy '*'";
/// What has the placeholder in a run without credentials: nothing of the kind.
const NOTHING: &str = "ghp_a-text-that-stands-for-nothing-at-al";

const NETWORK: &str = "[network]\nallow = [\"example.com\", \"other.example\"]\n";
const HEADER: &str = r#"
[credential.github]
source = { environment = "GITHUB_TOKEN" }
to = "example.com"
paths = ["/v1/**"]
place = { header = "authorization", form = "Bearer {}" }
"#;
const FIELD: &str = r#"
[credential.github]
source = { environment = "GITHUB_TOKEN" }
to = "example.com"
methods = ["POST"]
paths = ["/v1/**"]
place = { body = "client_secret" }
"#;

fn world(name: &str, credential: &str) -> Option<World> {
    let world = World::new(name);
    world.profile("bound", &format!("{NETWORK}{credential}"));
    world.profile("unbound", NETWORK);
    world.write(world.top().join("real"), REAL);
    world.write("program.py", PROGRAM);
    is_possible(&world, &["openssl", "zstd"]).then_some(world)
}

/// Runs a shell script inside, where the origins are and the real key is in Atoll's
/// environment alone; in `$KEY` is what stands for it, or nothing of the kind.
fn online(world: &World, profile: &str, script: &str) -> Outcome {
    let command = "sh -c 'GITHUB_TOKEN=$(cat \"$REAL\"); export GITHUB_TOKEN; exec \"$ATOLL\" run --discard \"$@\"' sh \"$@\"";
    let run = on_servers(world, SERVERS, NAMES, command);
    let run = run.env("REAL", world.top().join("real"));
    let script = format!("KEY=${{GITHUB_TOKEN:-{NOTHING}}}; {script}");
    run.args(["sh", "--profile", profile, "--", "sh", "-c", &script])
        .run()
}

/// What has reached the origins.
fn requests(world: &World) -> String {
    fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default()
}

/// The real key in every form that the origins write.
fn forms(world: &World) -> Vec<String> {
    let form = |number| fs::read_to_string(world.top().join(format!("internet/form-{number}")));
    let forms: Vec<String> = (0..).map_while(|number| form(number).ok()).collect();
    assert_eq!(forms.len(), 10);
    forms
}

const ANSWERS: &str = "for coding in identity gzip deflate br zstd; do for chunk in 0 1 7; do for by in --http1.1 --http2; do \
     for host in example.com other.example; do echo \"[$coding $chunk $by $host]\"; \
     $CURL $by --compressed \"https://$host/v1/echo?$coding,$chunk\"; done; done; done; done; \
     $CURL --http1.0 --no-alpn --compressed \"https://example.com/v1/echo?gzip,0\"; \
     $CURL https://example.com/v1/fail; \
     $CURL -H \"Authorization: Bearer $KEY\" https://example.com/v1/fail; \
     echo \"all of $KEY\"";

#[test]
fn real_values_in_bodies_come_as_placeholders() {
    let name = "real_values_in_bodies_come_as_placeholders";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let script = ANSWERS.replace("$CURL", CURL);
    let times = 5 * 3 * 2 * 2 + 3;
    let outcome = online(&world, "bound", &script);
    let out = outcome.out();
    let forms = forms(&world);
    assert_eq!(out.matches("; last\n").count(), times, "{outcome}");
    for form in &forms {
        assert!(!out.contains(form), "{form}: {outcome}");
    }
    let (_, placeholder) = out.split_once("all of ").unwrap();
    // As it is, and with an underscore escaped.
    let placeholder = placeholder.trim();
    let own = out.matches(placeholder).count();
    assert!(own > times, "{own} of {times}: {outcome}");
    let used = "credential github: put into 1 request to example.com";
    assert!(outcome.err().contains(used), "{outcome}");
    let why = world.atoll(["why", "last"]).run().success();
    assert!(why.out().contains(used), "{why}");

    // The control: without the credential all of them come.
    let free = online(&world, "unbound", &script);
    for form in &forms {
        let came = free.out().matches(form.as_str()).count();
        assert!(came >= times, "{form}: {came} of {times}: {free}");
    }
    // Nothing but the values is another one: it is as long as it was.
    let length = |out: &str| out.split("all of ").next().unwrap().len();
    assert_eq!(length(&out), length(&free.out()));
}

#[test]
fn what_cannot_be_masked_does_not_come() {
    let name = "what_cannot_be_masked_does_not_come";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let script = format!(
        "for host in example.com other.example; do \
         printf 'odd '; {CURL} -o odd -w '%{{http_code}}\\n' \"https://$host/v1/echo?odd,0\"; cat odd; \
         printf 'part '; {CURL} -r 0-24 https://$host/v1/ranged; \
         {CURL} -r 25-70 https://$host/v1/ranged; echo; done; \
         {CURL} -i --compressed 'https://example.com/v1/echo?gzip,0' | head -12; \
         {CURL} -I 'https://example.com/v1/echo?gzip,0'"
    );
    let outcome = online(&world, "bound", &script);
    let out = outcome.out().to_ascii_lowercase();
    assert_eq!(out.matches("odd 502").count(), 2, "{outcome}");
    assert!(out.contains("cannot be searched for secrets"), "{outcome}");
    assert!(!outcome.out().contains(REAL), "{outcome}");
    assert!(!outcome.out().contains(&REAL[15..]), "{outcome}");
    // What is asked for in parts comes whole: a value could come in two of them.
    let reached = requests(&world);
    let ranged = reached.lines().filter(|line| line.contains("/v1/ranged"));
    let asked = ranged
        .clone()
        .filter(|line| line.to_lowercase().contains("'range'"));
    assert_eq!((ranged.count(), asked.count()), (4, 0), "{reached}");
    // The head fits what is not compressed any more; an answer to HEAD is as it was.
    assert!(out.contains("etag: w/\"tag\""), "{outcome}");
    assert_eq!(
        out.matches("content-encoding: gzip").count(),
        1,
        "{outcome}"
    );
    assert!(out.contains("accept-ranges: none"), "{outcome}");
    // The control: without the credential all of it comes.
    let free = online(&world, "unbound", &script);
    assert_eq!(free.out().matches("odd 200").count(), 2, "{free}");
    assert!(free.out().contains(&REAL[15..]), "{free}");
}

#[test]
fn events_come_as_they_are_sent() {
    let name = "events_come_as_they_are_sent";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let script = "python3 program.py events /v1/events -; echo \"all of $KEY\"";
    let outcome = online(&world, "bound", script).success();
    let (before, placeholder) = outcome
        .out()
        .split_once("all of ")
        .map(|(a, b)| (a.to_owned(), b.trim().to_owned()))
        .unwrap();
    assert!(
        before.contains(&format!("data: {placeholder}")),
        "{outcome}"
    );
    assert!(before.contains("data: second"), "{outcome}");
    assert!(!before.contains(REAL), "{outcome}");
    let free = online(&world, "unbound", script).success();
    assert!(free.out().contains(&format!("data: {REAL}")), "{free}");
}

#[test]
fn frames_of_web_sockets_are_looked_through() {
    let name = "frames_of_web_sockets_are_looked_through";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let script = "python3 program.py socket /v1/socket-one \"$KEY\"; echo \"all of $KEY\"";
    let outcome = online(&world, "bound", script);
    let out = outcome.out();
    let (_, placeholder) = out.split_once("all of ").unwrap();
    let placeholder = placeholder.trim();
    assert!(out.contains("101 Switching Protocols"), "{outcome}");
    assert!(
        !out.contains(REAL) && !out.contains(&REAL[9..]),
        "{outcome}"
    );
    // The ping between and the short message, whole, and the one in two frames.
    assert_eq!(out.matches(placeholder).count(), 3, "{outcome}");
    assert!(out.contains(&placeholder[9..]), "{outcome}");
    let reached = requests(&world);
    assert!(
        reached.contains("FRAME /v1/socket-one b'before '"),
        "{reached}"
    );
    assert!(!reached.contains(&placeholder[11..]), "{reached}");
    assert!(!reached.contains("permessage-deflate"), "{reached}");
    let refused = events(&world, "flow.refused");
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0]["credential"], "github", "{refused:?}");
    assert!(outcome.err().contains("alert"), "{outcome}");
    // The control: another text goes through, and the real one comes.
    let free = online(&world, "unbound", script);
    assert!(
        requests(&world).contains(&format!("{:?}", &NOTHING[11..]).replace('"', "'")),
        "{free}"
    );
    assert_eq!(free.out().matches(REAL).count(), 2, "{free}");
}

/// How a placeholder is put into a body, and whether nothing of the request may be sent.
const BODIES: &[(&str, &str, bool)] = &[
    ("raw", "-d \"$KEY\"", true),
    (
        "json",
        "-H 'Content-Type: application/json' -d \"{\\\"a\\\":\\\"x$KEY\\\"}\"",
        true,
    ),
    (
        "multipart",
        "-F \"a=b\" -F \"file=@key;type=text/plain\"",
        true,
    ),
    (
        "base64",
        "-d \"$(printf %s \"user:$KEY\" | base64 -w0)\"",
        true,
    ),
    (
        "hexadecimal",
        "-d \"$(printf %s \"$KEY\" | od -An -vtx1 | tr -d ' \\n')\"",
        true,
    ),
    (
        "escaped",
        "-d \"a=$(printf %s \"$KEY\" | od -An -vtx1 | tr -d '\\n' | tr ' ' %)\"",
        true,
    ),
    (
        "unicode",
        "-d \"$(printf %s \"$KEY\" | od -An -vtx1 | tr -d '\\n' | sed 's/ /\\\\u00/g')\"",
        true,
    ),
    (
        "gzip",
        "-H 'Content-Encoding: gzip' --data-binary @key.gz",
        true,
    ),
    (
        "zstd",
        "-H 'Content-Encoding: zstd' --data-binary @key.zst",
        true,
    ),
    ("put", "-X PUT --data-binary @key", true),
    ("two", "--http2 -d \"$KEY\"", true),
    (
        "chunks",
        "--http1.1 -H 'Transfer-Encoding: chunked' -d \"$KEY\"",
        false,
    ),
    ("streamed-two", "--http2 -T - <key", false),
    (
        "expected",
        "--http1.1 -H 'Expect: 100-continue' -d \"$KEY\"",
        false,
    ),
    ("long", "--http1.1 --data-binary @long", false),
    ("long-two", "--http2 --data-binary @long", false),
    (
        "long-gzip",
        "-H 'Content-Encoding: gzip' --data-binary @long.gz",
        false,
    ),
];

/// The files that are sent: the long ones have it across the borders of what is read at once.
const FILES: &str = "printf %s \"$KEY\" >key; gzip -k key; zstd -q key; \
     (head -c 1048560 /dev/zero | tr '\\0' .; cat key; head -c 300000 /dev/urandom | base64) >long; gzip -k long; ";

#[test]
fn a_placeholder_in_a_body_is_refused_and_reaches_nobody() {
    let name = "a_placeholder_in_a_body_is_refused_and_reaches_nobody";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let mut script = FILES.to_owned();
    for (row, how, _) in BODIES {
        for host in ["example.com", "other.example"] {
            script += &format!(
                "printf '{row} {host} '; {CURL} -o out -w '%{{http_code}}\\n' {how} https://{host}/v1/record-{row}; \
                 grep -o 'placeholder of credential github is in its body' out; "
            );
        }
    }
    script += "echo \"all of $KEY\"; true";
    let outcome = online(&world, "bound", &script);
    let (out, reached) = (outcome.out(), requests(&world));
    let (_, placeholder) = out.split_once("all of ").unwrap();
    let mut tries = 0;
    for (row, _, is_nothing) in BODIES {
        for host in ["example.com", "other.example"] {
            tries += 1;
            let refused =
                format!("{row} {host} 403\nplaceholder of credential github is in its body\n");
            assert!(out.contains(&refused), "{row} {host}: {outcome}\n{reached}");
            let came = reached.contains(&format!("{host} /v1/record-{row} "));
            assert!(!(came && *is_nothing), "{row} {host}: {reached}");
        }
    }
    assert!(!reached.contains(placeholder.trim()), "{reached}");
    let refused = events(&world, "flow.refused");
    assert_eq!(refused.len(), tries, "{refused:?}");
    assert!(
        refused.iter().all(|one| one["credential"] == "github"),
        "{refused:?}"
    );
    assert!(outcome.err().contains("alert"), "{outcome}");
    // The control: another text goes all these ways.
    let free = online(&world, "unbound", &script);
    let reached = requests(&world);
    for (row, _, _) in BODIES {
        let whole = format!("{row} example.com 200\n");
        assert!(free.out().contains(&whole), "{row}: {free}");
        assert!(
            reached.contains(&format!("example.com /v1/record-{row} ")),
            "{row}"
        );
    }
}

#[test]
fn who_is_given_a_credential_may_be_told_what_stands_for_it() {
    let name = "who_is_given_a_credential_may_be_told_what_stands_for_it";
    let other = "[credential.other]\nsource = { environment = \"OTHER_TOKEN\" }\n\
                 to = \"example.com\"\nplace = { header = \"x-key\" }\n";
    let Some(world) = world(name, &format!("{HEADER}{other}")) else {
        return;
    };
    let given = "-H \"Authorization: Bearer $KEY\"";
    // An agent that has printed its environment tells its model of it from then on.
    let rows = [
        ("said", given, "text=$KEY", "example.com", 200),
        ("two", "--http2 $AUTH", "text=$KEY", "example.com", 200),
        (
            "long",
            "$AUTH -H 'Transfer-Encoding: chunked'",
            "$LONG$KEY",
            "example.com",
            200,
        ),
        // The controls: who is not given it in this request, and another one's.
        ("alone", "", "text=$KEY", "example.com", 403),
        ("another", given, "text=$OTHER_TOKEN", "example.com", 403),
        ("elsewhere", "", "text=$KEY", "other.example", 403),
    ];
    let mut script = "LONG=$(head -c 100000 /dev/zero | tr '\\0' x); ".to_owned();
    for (row, how, body, host, _) in &rows {
        let how = how.replace("$AUTH", given);
        script += &format!(
            "printf '{row} '; printf %s \"{body}\" | {CURL} -o out -w '%{{http_code}}\\n' {how} \
             --data-binary @- https://{host}/v1/record-{row}; "
        );
    }
    script += "echo \"all of $KEY\"";
    let script = format!("OTHER_TOKEN=${{OTHER_TOKEN:-none}}; {script}");
    let command = "sh -c 'GITHUB_TOKEN=$(cat \"$REAL\"); OTHER_TOKEN=k3y-0f-An0th3r-h0st-Wh1ch-n0b0dy-s33s; \
                   export GITHUB_TOKEN OTHER_TOKEN; exec \"$ATOLL\" run --discard \"$@\"' sh \"$@\"";
    let run = on_servers(&world, SERVERS, NAMES, command);
    let run = run.env("REAL", world.top().join("real"));
    let script = format!("KEY=$GITHUB_TOKEN; {script}");
    let outcome = run
        .args(["sh", "--profile", "bound", "--", "sh", "-c", &script])
        .run();
    let (out, reached) = (outcome.out(), requests(&world));
    let placeholder = out.split_once("all of ").unwrap().1.trim().to_owned();
    for (row, _, _, host, status) in rows {
        assert!(
            out.contains(&format!("{row} {status}\n")),
            "{row}: {outcome}"
        );
        let line = reached
            .lines()
            .find(|line| line.contains(&format!("{host} /v1/record-{row} ")));
        match (status, line) {
            (200, Some(line)) => {
                // In the header it is the real one, in the body what stands for it.
                let (head, body) = line.rsplit_once(")] ").unwrap();
                assert!(
                    head.contains(REAL) && !head.contains(&placeholder),
                    "{line}"
                );
                assert!(
                    body.contains(&placeholder) && !body.contains(REAL),
                    "{line}"
                );
            }
            (403, None) => {}
            (_, line) => panic!("{row}: {line:?}\n{outcome}"),
        }
    }
    assert_eq!(events(&world, "flow.refused").len(), 3);
}

/// How a field is written, and whether its credential is put in.
const FIELDS: &[(&str, &str, bool)] = &[
    (
        "form",
        "-d grant_type=client_credentials -d \"client_secret=$KEY\" -d a=%41",
        true,
    ),
    (
        "json",
        "$JSON -d \"{\\\"client_secret\\\": \\\"$KEY\\\", \\\"n\\\": 1.50}\"",
        true,
    ),
    (
        "json-two",
        "--http2 $JSON -d \"{\\\"client_secret\\\": \\\"$KEY\\\"}\"",
        true,
    ),
    (
        "chunks",
        "--http1.1 $JSON -H 'Transfer-Encoding: chunked' -d \"{\\\"client_secret\\\": \\\"$KEY\\\"}\"",
        true,
    ),
    (
        "expected",
        "--http1.1 -H 'Expect: 100-continue' -d \"client_secret=$KEY\"",
        true,
    ),
    ("escaped", "-d \"client_secret=%67${KEY#g}\"", true),
    ("other-field", "-d \"secret=$KEY\"", false),
    ("in-part", "-d \"client_secret=x$KEY\"", false),
    (
        "two-fields",
        "-d \"client_secret=$KEY\" -d \"client_secret=$KEY\"",
        false,
    ),
    ("both", "-d \"client_secret=$KEY\" -d \"a=$KEY\"", false),
    (
        "within",
        "$JSON -d \"{\\\"a\\\": {\\\"client_secret\\\": \\\"$KEY\\\"}}\"",
        false,
    ),
    (
        "broken",
        "$JSON -d \"{\\\"client_secret\\\": \\\"$KEY\\\"\"",
        false,
    ),
    (
        "base64",
        "-d \"client_secret=$(printf %s \"$KEY\" | base64 -w0)\"",
        false,
    ),
    (
        "plain",
        "-H 'Content-Type: text/plain' -d \"client_secret=$KEY\"",
        false,
    ),
    ("multipart", "-F \"client_secret=$KEY\"", false),
    (
        "packed",
        "-H 'Content-Encoding: gzip' --data-binary @form.gz",
        false,
    ),
    ("put", "-X PUT -d \"client_secret=$KEY\"", false),
    ("header", "-H \"Authorization: Bearer $KEY\" -d a=b", false),
    (
        "query",
        "-d a=b \"https://example.com/v1/record-query?client_secret=$KEY\" https://example.com/v1/record-after",
        false,
    ),
    (
        "other-host",
        "-d \"client_secret=$KEY\" https://other.example/v1/record-other-host https://example.com/v1/record-after",
        false,
    ),
];

#[test]
fn a_credential_goes_into_a_field_of_a_body() {
    let name = "a_credential_goes_into_a_field_of_a_body";
    let Some(world) = world(name, FIELD) else {
        return;
    };
    let mut script = "printf %s \"client_secret=$KEY\" >form; gzip -k form; ".to_owned();
    for (row, how, _) in FIELDS {
        let how = how.replace("$JSON", "-H 'Content-Type: application/json'");
        let (how, url) = match how.split_once(" https://example.com/v1/record-after") {
            Some((how, _)) => (how.to_owned(), String::new()),
            None => (how, format!("https://example.com/v1/record-{row}")),
        };
        script += &format!("printf '{row} '; {CURL} -o out -w '%{{http_code}}\\n' {how} {url}; ");
    }
    script += &format!(
        "printf 'redirected '; {CURL} -o out -w '%{{http_code}}\\n' -L -d \"client_secret=$KEY\" https://example.com/v1/redirect; \
         grep -o 'to another host than it is for' out; {CURL} -d nothing=1 https://example.com/v1/record-without"
    );
    let outcome = online(&world, "bound", &script);
    let (out, reached) = (outcome.out(), requests(&world));
    for (row, _, is_put) in FIELDS {
        let status = if *is_put { 200 } else { 403 };
        assert!(
            out.contains(&format!("{row} {status}\n")),
            "{row}: {outcome}\n{reached}"
        );
        let mut lines = reached.lines();
        let line = lines.find(|line| line.contains(&format!("/v1/record-{row} ")));
        assert_eq!(line.is_some(), *is_put, "{row}: {reached}");
        if let Some(line) = line {
            assert!(line.contains(REAL), "{row}: {line}");
        }
    }
    assert!(reached.contains("&a=%41'"), "{reached}");
    assert!(reached.contains("\"n\": 1.50}'"), "{reached}");
    // Another host than it is for; what led there was bound.
    assert!(
        out.contains("redirected 403\nto another host than it is for\n"),
        "{outcome}"
    );
    assert!(!reached.contains("record-redirected"), "{reached}");
    assert!(reached.contains("record-without"), "{reached}");
    assert_eq!(reached.matches(REAL).count(), 7, "{reached}");
    let used = "credential github: put into 7 requests to example.com";
    assert!(outcome.err().contains(used), "{outcome}");
}
