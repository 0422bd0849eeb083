//! Credentials in request and response bodies, on a small internet of each test's own with origins
//! that record what reaches them.

use std::fs;

use e2e::internet::{events, is_possible, on_servers};
use e2e::{Outcome, World};

const SERVERS: &str = include_str!("credential_bodies/servers.py");
const PROGRAM: &str = include_str!("credential_bodies/program.py");
const TWO: &str = include_str!("credential_bodies/two.js");
const NAMES: &[&str] = &["example.com", "other.example"];
/// The key that the origins echo.
const REAL: &str = "ghp_r3alK3yOfTh1sT3stWh1chN0bodyM4yS33in";
const CURL: &str = "curl -sS -m 60 --noproxy '*'";
/// A text in the placeholder's place for a run without credentials: it stands for nothing.
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
    world.canary(REAL, &["real"]);
    world.write("program.py", PROGRAM);
    is_possible(&world, &["openssl", "zstd"]).then_some(world)
}

/// Runs a shell script in a sandbox, where the origins are and the real key is in Atoll's
/// environment alone; `$KEY` is its placeholder, or a text that is none.
fn online(world: &World, profile: &str, script: &str) -> Outcome {
    let command = "sh -c 'GITHUB_TOKEN=$(cat \"$REAL\"); export GITHUB_TOKEN; exec \"$ATOLL\" run --discard \"$@\"' sh \"$@\"";
    let run = on_servers(world, SERVERS, NAMES, command);
    let run = run.env("REAL", world.top().join("real"));
    let script = format!("KEY=${{GITHUB_TOKEN:-{NOTHING}}}; {script}");
    let run = run.args(["sh", "--profile", profile, "--", "sh", "-c", &script]);
    match profile {
        // Where there is no credential nothing is masked.
        "unbound" => run.control().run(),
        _ => run.run(),
    }
}

/// Returns the requests that have reached the origins.
fn requests(world: &World) -> String {
    fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default()
}

/// Returns the real key in every form that the origins write.
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
         {CURL} -r 25-70 https://$host/v1/ranged; echo; \
         {CURL} -o end -w 'after %{{http_code}}\n' -r 9000-9003 https://$host/v1/ranged; \
         {CURL} --http1.1 -o near -w 'just after %{{http_code}}\n' -r 100-103 https://$host/v1/ranged; wc -c <near; \
         {CURL} -o many -w 'many %{{http_code}}\n' -r 0-1,4-5 https://$host/v1/ranged; done; \
         echo \"own $GITHUB_TOKEN\"; \
         {CURL} -i --compressed 'https://example.com/v1/echo?gzip,0' | head -12; \
         {CURL} -I 'https://example.com/v1/echo?gzip,0'"
    );
    let outcome = online(&world, "bound", &script);
    let out = outcome.out().to_ascii_lowercase();
    assert_eq!(out.matches("odd 502").count(), 2, "{outcome}");
    assert!(out.contains("cannot be searched for secrets"), "{outcome}");
    assert!(!outcome.out().contains(REAL), "{outcome}");
    assert!(!outcome.out().contains(&REAL[15..]), "{outcome}");
    // A value that comes in two parts is masked in both: each is asked for with what is around it,
    // and several at once not at all.
    let reached = requests(&world).to_ascii_lowercase();
    let ranged = reached.lines().filter(|line| line.contains("/v1/ranged"));
    let asked = ranged.clone().filter(|line| line.contains("'range'"));
    assert_eq!((ranged.count(), asked.count()), (10, 8), "{reached}");
    assert!(!reached.contains("'bytes=25-70'"), "{reached}");
    let own = outcome.out();
    let own = own.lines().find_map(|line| line.strip_prefix("own "));
    let whole = format!("part xxxxxxxxxx{}yyyyyyyyyy\n", own.unwrap());
    assert_eq!(outcome.out().matches(&whole).count(), 2, "{outcome}");
    assert_eq!(out.matches("just after 416\n0\n").count(), 2, "{outcome}");
    assert_eq!(out.matches("after 416").count(), 4, "{outcome}");
    // Nobody broke off but where an answer cannot be searched.
    let closed = events(&world, "flow.closed");
    let failed = closed.iter().filter(|one| !one["failure"].is_null());
    assert_eq!(failed.count(), 2, "{closed:?}");
    assert_eq!(out.matches("many 200").count(), 2, "{outcome}");
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

/// Servers that answer another range than the one requested, where a program has chosen the range
/// so that the response begins within the value.
#[test]
fn a_part_that_is_told_wrongly_does_not_come() {
    let name = "a_part_that_is_told_wrongly_does_not_come";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let ways = [
        "untold",
        "status",
        "before",
        "untold-before",
        "several",
        "always",
    ];
    let script: String = ways
        .iter()
        .map(|way| {
            format!(
                "for last in 4540 7999; do \
                 {CURL} -w ' {way} %{{http_code}}\n' -r 4481-$last 'https://example.com/v1/careless?{way}'; done; \
                 {CURL} -r 4010-4020 'https://example.com/v1/careless?{way}'; echo; "
            )
        })
        .collect();
    let script = format!("{script} echo \"own $GITHUB_TOKEN\"");
    let outcome = online(&world, "bound", &script);
    let out = outcome.out();
    let own = out.lines().find_map(|line| line.strip_prefix("own "));
    let all = format!("x{}y", own.unwrap());
    for way in ways {
        // Who sends a part also where all is asked for is not believed at all.
        let status = if way == "always" { 502 } else { 200 };
        let told = format!(" {way} {status}\n");
        assert_eq!(out.matches(&told).count(), 2, "{outcome}");
    }
    assert!(!tells(&out), "{outcome}");
    assert_eq!(out.matches(&all).count(), 15, "{outcome}");
    // The first of its bytes is not in what was asked for, and all others would be; then all is
    // asked for, once.
    let reached = requests(&world);
    assert_eq!(reached.matches("bytes=665-8356").count(), 6, "{reached}");
    assert_eq!(reached.matches("bytes=665-11815").count(), 6, "{reached}");
    let careless = reached.lines().filter(|line| line.contains("/careless"));
    assert_eq!(careless.count(), 36, "{reached}");
}

#[test]
fn a_resumed_download_of_what_has_changed_begins_anew() {
    let name = "a_resumed_download_of_what_has_changed_begins_anew";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let script: String = ["old", "new"]
        .iter()
        .map(|tag| {
            format!(
                "{CURL} -o {tag} -w '{tag} %{{http_code}} %{{size_download}}\n' -r 4010- \
                 -H 'If-Range: \"{tag}\"' https://example.com/v1/changed; "
            )
        })
        .collect();
    let script = format!("{script} grep -c \"x${{GITHUB_TOKEN}}y\" old; echo \"end $(cat new)\"");
    let outcome = online(&world, "bound", &script);
    let whole = 8000 + REAL.len();
    let told = format!("old 200 {whole}\nnew 206 {}\n1\nend ", whole - 4010);
    assert!(outcome.out().contains(&told), "{outcome}");
    assert!(!tells(&outcome.out()), "{outcome}");
    // The first was asked for twice, and only one of its answers has come.
    let closed = events(&world, "flow.closed");
    let why = "so all is asked for";
    let failed = closed
        .iter()
        .filter_map(|one| one["failure"].as_str())
        .filter(|failure| failure.contains(why));
    assert_eq!((closed.len(), failed.count()), (3, 1), "{closed:?}");
}

/// Returns whether a text discloses the real key: more consecutive bytes than the seven that are
/// allowed and those that the placeholder shares with it by chance.
fn tells(text: &str) -> bool {
    let mut parts = (0..=REAL.len() - 12).map(|at| &REAL[at..at + 12]);
    parts.any(|part| text.contains(part))
}

/// Responses with pauses: the content coding, the content type, the length of each pause, and the
/// number of bytes between pauses; 0 for a single one before the last byte of the value.
const STALLS: &[(&str, &str, &str, usize)] = &[
    ("identity", "text/plain", "0", 0),
    ("identity", "text/plain", "0.06", 0),
    ("identity", "text/plain", "2", 0),
    ("identity", "text/plain", "0.2", 7),
    ("identity", "text/plain", "0.1", 1),
    ("identity", "text/event-stream", "0.06", 0),
    ("identity", "text/event-stream", "2", 0),
    ("identity", "application/grpc", "2", 0),
    ("gzip", "text/plain", "0.06", 0),
    ("gzip", "text/plain", "2", 0),
    ("gzip", "text/event-stream", "2", 0),
    ("gzip", "text/plain", "0.2", 7),
];

#[test]
fn a_value_that_comes_with_pauses_is_masked_as_one_without() {
    let name = "a_value_that_comes_with_pauses_is_masked_as_one_without";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let mut script = "n=0; ".to_owned();
    let mut times = 0;
    for (coding, kind, pause, step) in STALLS {
        for by in ["--http1.1", "--http2"] {
            times += 1;
            script += &format!(
                "n=$((n + 1)); {CURL} {by} --compressed \
                 'https://example.com/v1/stall?{coding},{kind},{pause},{step}' >out-$n & "
            );
        }
    }
    for pause in ["0", "0.06", "2"] {
        // Each says it twice: in one frame, and in a frame for each byte.
        times += 2;
        script += &format!("n=$((n + 1)); python3 program.py slow '/v1/slow?{pause}' - >out-$n & ");
    }
    script += "wait; cat out-*; python3 program.py framed /v1/framed -; echo \"all of $KEY\"";
    let outcome = online(&world, "bound", &script).success();
    let out = outcome.out();
    let (before, placeholder) = out.split_once("all of ").unwrap();
    let placeholder = placeholder.trim();
    assert_eq!(before.matches(" end\n").count(), times, "{outcome}");
    assert!(!tells(&out), "{outcome}");
    // Of one that comes by a few bytes at once, those that are told are the real one's.
    let whole = before.matches(&placeholder[7..]).count();
    assert_eq!(whole, times + 1, "{outcome}");
    assert_eq!(before.matches("[ended]").count(), 3, "{outcome}");
    // Who has sent a message waits for its answer, and gets it.
    assert!(before.contains("second"), "{outcome}");
    assert!(!before.contains("too late"), "{outcome}");
    // The control: without the credential all of them come.
    let free = online(&world, "unbound", &script).success();
    assert_eq!(free.out().matches(REAL).count(), times + 1, "{free}");
}

#[test]
fn what_stalls_within_what_could_be_a_value_breaks_off() {
    let name = "what_stalls_within_what_could_be_a_value_breaks_off";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    // The control: as long as others may wait for more, between two values.
    let script = format!(
        "stalled() {{ printf '%s ' \"$1\"; shift; timeout 100 \"$@\" || echo \" broke off\"; }}; \
         stalled one {CURL} --http1.1 'https://example.com/v1/stall?identity,text/plain,60,0' >out-1 2>&1 & \
         stalled two {CURL} --http2 'https://example.com/v1/stall?identity,text/plain,60,0' >out-2 2>&1 & \
         stalled socket python3 program.py slow '/v1/slow?60' - >out-3 2>&1 & \
         stalled short {CURL} 'https://example.com/v1/stall?identity,text/plain,33,51' >out-4 2>&1 & \
         stalled forged {CURL} -o forged 'https://example.com/v1/stall?identity,application/grpc,60,0' >out-5 2>&1 & \
         wait; cat out-*; tr -d '\\0' <forged"
    )
    .replace("-m 60", "-m 90");
    let outcome = online(&world, "bound", &script);
    let out = outcome.out();
    assert!(!tells(&out), "{outcome}");
    assert_eq!(out.matches("broke off").count(), 4, "{outcome}");
    assert_eq!(out.matches(" end\n").count(), 1, "{outcome}");
    let why = "nothing came for 30 s within a row of characters";
    let closed = events(&world, "flow.closed");
    let told = closed.iter().filter(|one| one.to_string().contains(why));
    assert_eq!(told.count(), 4, "{closed:?}");
}

#[test]
fn a_child_that_outlives_its_run_reaches_nobody() {
    let name = "a_child_that_outlives_its_run_reaches_nobody";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let left = "setsid python3 program.py outlive /v1/record-left \"$GITHUB_TOKEN\" </dev/null >/dev/null 2>&1 & \
                until test -e ticked; do sleep 0.05; done";
    // Atoll's marks: when it has ended, and some time after that.
    let start = "GITHUB_TOKEN=$(cat \"$REAL\") \"$ATOLL\" run --discard \"$@\"";
    let marks = "sleep 2; echo ENDED >>\"$REQUESTS\"; sleep 2; echo LATER >>\"$REQUESTS\"";
    let ends = format!("{start}; {marks}");
    let killed = format!(
        "{start} & atoll=$!; until test \"$(grep -c record-left \"$REQUESTS\")\" -ge 10; do sleep 0.05; done; \
         kill -9 $atoll; wait $atoll; {marks}"
    );
    for (way, command, rest) in [("ends", ends, ""), ("killed", killed, "; sleep 100")] {
        let requests_at = world.top().join("internet/requests");
        let command = format!("sh -c '{command}' sh \"$@\"");
        let run = on_servers(&world, SERVERS, NAMES, &command)
            .env("REAL", world.top().join("real"))
            .env("REQUESTS", &requests_at);
        let script = format!("{left}{rest}");
        let outcome = run
            .args(["sh", "--profile", "bound", "--", "sh", "-c", &script])
            .run();
        let reached = requests(&world);
        let (during, after) = reached.split_once("ENDED\n").expect(way);
        // The control: it asked and ticked with the real key as long as it could.
        let asked = during.matches("/v1/record-left").count();
        let ticked = during.matches("b'tick'").count();
        assert!(asked >= 10 && ticked >= 9, "{way}: {outcome}\n{reached}");
        assert!(during.contains(REAL), "{way}: {reached}");
        assert_eq!(after, "LATER\n", "{way}: {outcome}");
    }
}

#[test]
fn a_placeholder_by_http_2_is_refused_wherever_it_stands() {
    let name = "a_placeholder_by_http_2_is_refused_wherever_it_stands";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    if !is_possible(&world, &["node"]) {
        return;
    }
    world.write("two.js", TWO);
    let script = "node two.js \"$KEY\"; echo \"all of $KEY\"";
    let outcome = online(&world, "bound", script).success();
    let (out, reached) = (outcome.out(), requests(&world));
    let placeholder = out.split_once("all of ").unwrap().1.trim().to_owned();
    let has = |row: &str, status: &str| out.lines().any(|line| line == format!("{row} {status}"));
    for row in ["header", "crumb", "path", "trailer"] {
        assert!(has(row, "403"), "{row}: {outcome}\n{reached}");
    }
    // It is for another host than the connection, and no less an alert.
    assert!(has("authority", "421"), "{outcome}\n{reached}");
    assert!(!reached.contains(&placeholder), "{reached}");
    let refused = events(&world, "flow.refused");
    let of_credential = refused.iter().filter(|one| one["credential"] == "github");
    assert_eq!((of_credential.count(), refused.len()), (5, 5), "{outcome}");
    // Cut in two it passes, as anything does that is hidden, and opens nothing.
    assert!(has("crumbs", "200") && has("plain", "200"), "{outcome}");
    assert!(reached.contains(&placeholder[20..]), "{reached}");
    assert!(!reached.contains(REAL), "{reached}");
    // The control: another text goes all these ways, but to another host.
    let free = online(&world, "unbound", script).success();
    for row in ["header", "crumb", "crumbs", "path", "trailer", "plain"] {
        let whole = format!("{row} 200\n");
        assert!(free.out().contains(&whole), "{row}: {free}");
    }
    assert_eq!(requests(&world).matches(NOTHING).count(), 3, "{free}");
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

/// Ways to put a placeholder into a body, each with whether nothing of the request may be sent.
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

/// The files that are sent: long ones have the key across the bounds of a buffer.
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

/// Ways to write a field, each with whether its credential is injected.
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

/// Placeholders that are not replaced and block the request as elsewhere: the options that send one
/// beside the host's own credential, and the destination.
const STOPPED: &[(&str, &str, &str)] = &[
    (
        "digest",
        "$AUTH -H 'Content-MD5: abc' -d \"$KEY\"",
        "example.com",
    ),
    ("header", "$AUTH -H \"X-Note: $KEY\" -d a=b", "example.com"),
    ("path", "$AUTH -d a=b", "example.com/v1/$KEY"),
    ("query", "$AUTH -d a=b", "example.com/v1/?a=$KEY"),
    ("alone", "-d \"$KEY\"", "example.com"),
    ("elsewhere", "-d \"$KEY\"", "other.example"),
    (
        "other-way",
        "-H \"X-Key: $KEY\" -d \"$TOKEN\"",
        "example.com",
    ),
];

#[test]
fn another_ones_placeholder_is_masked_where_that_is_said() {
    let name = "another_ones_placeholder_is_masked_where_that_is_said";
    let other = "[credential.other]\nsource = { environment = \"OTHER_TOKEN\" }\n\
                 to = \"example.com\"\nplace = { header = \"x-key\" }\n";
    let Some(world) = world(name, &format!("{HEADER}others = \"masked\"\n{other}")) else {
        return;
    };
    let auth = "-H \"Authorization: Bearer $TOKEN\"";
    let curl = format!("{CURL} -o out -w '%{{http_code}}\\n'");
    let mut script = format!("TOKEN=$GITHUB_TOKEN; KEY=$OTHER_TOKEN; {FILES}");
    for (row, how, _) in BODIES {
        script +=
            &format!("printf '{row} '; {curl} {auth} {how} https://example.com/v1/record-{row}; ");
    }
    script += &format!(
        "printf 'both '; {curl} {auth} -d \"$TOKEN $KEY $TOKEN\" https://example.com/v1/record-both; "
    );
    for (row, how, to) in STOPPED {
        let how = how.replace("$AUTH", auth);
        let to = match to.contains('/') {
            true => (*to).to_owned(),
            false => format!("{to}/v1/record-{row}"),
        };
        script += &format!("printf '{row} '; {curl} {how} \"https://{to}\"; ");
    }
    script += "echo \"all of $KEY $TOKEN\"";
    let command = "sh -c 'GITHUB_TOKEN=$(cat \"$REAL\"); OTHER_TOKEN=k3y-0f-An0th3r-h0st-Wh1ch-n0b0dy-s33s; \
                   export GITHUB_TOKEN OTHER_TOKEN; exec \"$ATOLL\" run --discard \"$@\"' sh \"$@\"";
    let run = on_servers(&world, SERVERS, NAMES, command);
    let run = run.env("REAL", world.top().join("real"));
    let outcome = run
        .args(["sh", "--profile", "bound", "--", "sh", "-c", &script])
        .run();
    let (out, reached) = (outcome.out(), requests(&world));
    let all = out.split_once("all of ").unwrap().1.trim().to_owned();
    let (key, token) = all.split_once(' ').unwrap();
    let mut sent = 0;
    for (row, _, _) in BODIES {
        let is_packed = row.contains("gzip") || row.contains("zstd");
        let status = if is_packed { 403 } else { 200 };
        assert!(
            out.contains(&format!("{row} {status}\n")),
            "{row}: {outcome}"
        );
        sent += usize::from(!is_packed);
    }
    let hexadecimal: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
    for form in [key, &hexadecimal, &hexadecimal.to_uppercase(), "k3y-0f"] {
        assert!(!reached.contains(form), "{form}: {reached}");
    }
    // One text stands for it, as long as it is, wherever it was; its own stays.
    let said = |row: &str| {
        let mut lines = reached.lines();
        let line = lines.find(|line| line.contains(&format!(" /v1/record-{row} ")));
        let body = line.unwrap().rsplit_once(")] b'").unwrap().1;
        body.trim_end_matches('\'').to_owned()
    };
    let text = said("raw");
    assert_eq!(text.len(), key.len(), "{text}");
    assert_eq!(said("both"), format!("{token} {text} {token}"));
    let written: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(said("hexadecimal"), written);
    for row in ["multipart", "chunks", "long", "long-two", "two", "expected"] {
        assert!(said(row).contains(&text), "{row}: {reached}");
    }
    for (row, _, to) in STOPPED {
        assert!(out.contains(&format!("{row} 403\n")), "{row}: {outcome}");
        let came = reached.contains(&format!("/v1/record-{row} "))
            || to.contains('/') && reached.contains("a=b");
        assert!(!came, "{row}: {reached}");
    }
    // What was sent without it is told, and is no alert; the rest is.
    let closed = events(&world, "flow.closed");
    let masked = closed.iter().filter(|one| one["masked"] == "other");
    assert_eq!(masked.count(), sent + 1, "{closed:?}");
    assert_eq!(
        events(&world, "flow.refused").len(),
        STOPPED.len() + BODIES.len() - sent
    );
    let told = format!(
        "credential other: masked in {} requests to example.com",
        sent + 1
    );
    assert!(outcome.err().contains(&told), "{outcome}");
    let why = world.atoll(["why", "last"]).run().success();
    assert!(why.out().contains(&told), "{why}");
}
