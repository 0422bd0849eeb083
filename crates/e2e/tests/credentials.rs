//! Credentials that no sandbox holds: injected where they are bound to, on a small internet of each
//! test's own with origins that demand them and record what reaches them.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use e2e::holders;
use e2e::internet::{events, is_possible, on_servers, without_namespaces};
use e2e::{Avoidable, Outcome, World, is_root};

const SERVERS: &str = include_str!("credentials/servers.py");
const SEARCH: &str = include_str!("credentials/search.py");
const HELLOS: &str = include_str!("credentials/hellos.py");
const RUN: &str = include_str!("credentials/run.sh");
const NAMES: &[&str] = &["example.com", "other.example"];
/// The key that the origins demand.
const REAL: &str = "ghp_r3alK3yOfTh1sT3stWh1chN0bodyM4yS33in";
const CURL: &str = "curl -sS -m 20 --noproxy '*'";

const NETWORK: &str = r#"
[network]
allow = [
    "example.com",
    "other.example",
    "*.example.com",
    { to = "example.com:8443", carry = "requests" },
    { to = "example.com:9443", carry = "requests" },
    { to = "tunnel.example:9444", carry = "tunnel" },
]
"#;
const HEADER: &str = r#"
[credential.github]
source = { environment = "GITHUB_TOKEN" }
to = "example.com"
methods = ["GET", "POST"]
paths = ["/v1/**"]
place = { header = "authorization", form = "Bearer {}" }
"#;

/// Returns a world with a profile that has these credentials, if there can be one.
fn world(name: &str, credential: &str) -> Option<World> {
    let world = World::new(name);
    world.profile("bound", &format!("{NETWORK}{credential}"));
    world.write(world.top().join("real"), REAL);
    world.canary(REAL, &["real", "token", "sought"]);
    world.write(world.top().join("search.py"), SEARCH);
    world.write(world.top().join("run.sh"), RUN);
    is_possible(&world, &["openssl"]).then_some(world)
}

/// Runs a shell script in a sandbox, where the origins are and the real key is in Atoll's
/// environment alone.
fn online(world: &World, script: &str) -> Outcome {
    let command = "sh -c 'GITHUB_TOKEN=$(cat \"$REAL\"); export GITHUB_TOKEN; exec \"$ATOLL\" run --discard \"$@\"' sh \"$@\"";
    let run = on_servers(world, SERVERS, NAMES, command);
    let run = run.env("REAL", world.top().join("real"));
    run.args(["sh", "--profile", "bound", "--", "sh", "-c", script])
        .run()
}

/// Starts a run of `cat`, and reports whether there is an egress process while it reads.
const WATCHED: &str = r#"sh -c 'export GITHUB_TOKEN=$(cat "$REAL"); mkfifo go; "$ATOLL" run --discard "$@" <go & run=$!;
exec 9>go; n=0; until p=$(pgrep -P $run -x atoll-egress) || test $n = $ROUNDS; do sleep 0.05; n=$((n + 1)); done;
test -n "$p" && echo carried || echo none; exec 9>&-; wait $run' sh "$@""#;

#[test]
fn what_carries_credentials_begins_before_there_is_a_connection() {
    let name = "what_carries_credentials_begins_before_there_is_a_connection";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    world.profile("open", NETWORK);
    for (profile, expected, rounds) in [("bound", "carried\n", "1200"), ("open", "none\n", "60")] {
        let run = on_servers(&world, SERVERS, NAMES, WATCHED).env("ROUNDS", rounds);
        let run = run.env("REAL", world.top().join("real"));
        let outcome = run.args(["sh", "--profile", profile, "--", "cat"]).run();
        assert_eq!(outcome.out(), expected, "{outcome}");
        assert!(outcome.err().contains("succeeded"), "{outcome}");
        fs::remove_file(world.workspace().join("go")).unwrap();
    }
}

/// Returns the requests that have reached the origins.
fn requests(world: &World) -> String {
    fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default()
}

#[test]
fn a_bound_request_gets_the_real_key_and_the_program_none() {
    let name = "a_bound_request_gets_the_real_key_and_the_program_none";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let auth = "-H \"Authorization: Bearer $GITHUB_TOKEN\"";
    let script = format!(
        "{CURL} --http1.1 {auth} https://example.com/v1/one; {CURL} --http2 {auth} https://example.com/v1/two; \
         {CURL} -x http://proxy.atoll.internal:3128 --noproxy '' {auth} https://example.com/v1/three; \
         {CURL} -x socks5h://proxy.atoll.internal --noproxy '' {auth} https://example.com/v1/four; \
         {CURL} {auth} -d body https://example.com/v1/five; \
         {CURL} https://example.com/v1/without; \
         {CURL} -i --http1.1 {auth} https://example.com/v1/echo; \
         echo \"is $GITHUB_TOKEN\"; cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
    );
    let outcome = online(&world, &script);
    let out = outcome.out();
    let reached = requests(&world);
    assert_eq!(out.matches("welcome").count(), 6, "{outcome}\n{reached}");
    assert_eq!(out.matches("who are you?").count(), 1, "{outcome}");
    let sent = reached.matches(&format!("Bearer {REAL}")).count();
    assert_eq!(sent, 6, "{reached}");
    // Neither what is inside nor what comes back has it.
    assert!(!out.contains(REAL), "{outcome}");
    let (_, after) = out.split_once("\nis ghp_").unwrap();
    let placeholder = format!("ghp_{}", after.split_whitespace().next().unwrap());
    assert_eq!(placeholder.len(), REAL.len());
    let echoed = out.to_ascii_lowercase();
    let placeholder = placeholder.to_ascii_lowercase();
    assert!(
        echoed.contains(&format!("x-echo: bearer {placeholder}")),
        "{out}"
    );
    assert!(
        echoed.contains(&format!("x-key: it is {placeholder}, {placeholder}")),
        "{out}"
    );
    // A header that has it in its name does not come back, and another one does.
    assert!(!echoed.contains(&REAL.to_ascii_lowercase()), "{out}");
    assert!(!echoed.contains("in a name"), "{out}");
    assert!(echoed.contains("in another name"), "{out}");
    let opened = events(&world, "flow.opened");
    let with = opened.iter().filter(|one| one["credential"] == "github");
    assert_eq!((with.count(), opened.len()), (6, 7), "{opened:?}");
    assert!(!outcome.err().contains("alert"), "{outcome}");
}

#[test]
fn a_secret_of_the_vault_is_put_in() {
    let name = "a_secret_of_the_vault_is_put_in";
    let sealed = HEADER.replace("environment = \"GITHUB_TOKEN\"", "vault = \"hub\"");
    let sealed = format!("{sealed}variable = \"HUB_TOKEN\"\n");
    let Some(world) = world(name, &sealed) else {
        return;
    };
    let script = format!(
        "{CURL} -H \"Authorization: Bearer $HUB_TOKEN\" https://example.com/v1/sealed; \
         echo \"is $HUB_TOKEN\""
    );
    let missing = online(&world, &script).expect_status(125);
    missing.is_clear_error(["there is no secret hub", "atoll secret set hub"]);
    let set = world.atoll(["secret", "set", "hub"]);
    let _ = set.stdin(format!("{REAL}\n")).run().success();

    let outcome = online(&world, &script).success();
    let reached = requests(&world);
    assert!(outcome.out().contains("welcome"), "{outcome}\n{reached}");
    assert_eq!(reached.matches(&format!("Bearer {REAL}")).count(), 1);
    assert!(outcome.out().contains("is ghp_"), "{outcome}");
    assert!(!outcome.out().contains(REAL), "{outcome}");

    let passphrase = world.atoll(["secret", "key", "passphrase"]);
    let _ = passphrase.stdin("some words for a test").run().success();
    let locked = online(&world, &script).expect_status(125);
    locked.is_clear_error(["it is locked", "atoll secret unlock"]);
    assert!(!requests(&world).contains("/v1/sealed"));
}

/// A binding to methods also covers methods that servers take from elsewhere in a request.
#[test]
fn a_method_that_is_said_elsewhere_gets_no_credential() {
    let name = "a_method_that_is_said_elsewhere_gets_no_credential";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let bound = format!("{CURL} -H \"Authorization: Bearer $GITHUB_TOKEN\"");
    let script = format!(
        "{bound} -H 'X-HTTP-Method-Override: DELETE' https://example.com/v1/said; \
         {bound} -H 'X-Other: DELETE' https://example.com/v1/control"
    );
    let outcome = online(&world, &script);
    let reached = requests(&world);
    assert!(!reached.contains("/v1/said"), "{outcome}\n{reached}");
    assert!(reached.contains("/v1/control"), "{outcome}\n{reached}");
}

#[test]
fn a_file_that_can_be_read_inside_is_no_source() {
    let world = World::new("a_file_that_can_be_read_inside_is_no_source");
    let token = "a-token-that-nobody-is-to-read-7";
    world.canary(token, &["beside", "workspace/token"]);
    let start = |file: &Path| {
        let credential = format!(
            "[credential.a]\nsource = {{ file = \"{}\" }}\nto = \"example.com\"\nplace = {{ header = \"x-key\" }}\n\
             variable = \"KEY\"\n",
            file.display()
        );
        world.profile("bound", &credential);
        let run = ["run", "--discard", "--profile", "bound", "--", "true"];
        world.atoll(run).run()
    };
    let beside = world.top().join("beside");
    world.write(&beside, token);
    let _ = start(&beside).success();
    world.write(world.workspace().join("token"), token);
    let led = world.top().join("led");
    std::os::unix::fs::symlink(world.workspace().join("token"), &led).unwrap();
    for file in [world.workspace().join("token"), led] {
        let refused = start(&file);
        assert_ne!(refused.code(), 0, "{refused}");
        refused.is_clear_error(["can be read inside"]);
    }
}

/// Destinations that a placeholder is not for, each with the options of curl that send it there.
const ELSEWHERE: &[[&str; 2]] = &[
    [
        "other-host",
        "-H \"Authorization: Bearer $KEY\" https://other.example/v1/other-host",
    ],
    [
        "other-port",
        "-H \"Authorization: Bearer $KEY\" https://example.com:8443/v1/other-port",
    ],
    [
        "other-path",
        "-H \"Authorization: Bearer $KEY\" https://example.com/v2/other-path",
    ],
    [
        "up-path",
        "-H \"Authorization: Bearer $KEY\" --path-as-is https://example.com/v1/%2e%2e/v2/up-path",
    ],
    [
        "other-method",
        "-X DELETE -H \"Authorization: Bearer $KEY\" https://example.com/v1/other-method",
    ],
    [
        "other-header",
        "-H \"X-Key: $KEY\" https://example.com/v1/other-header",
    ],
    [
        "other-form",
        "-H \"Authorization: Token $KEY\" https://example.com/v1/other-form",
    ],
    [
        "two-headers",
        "-H \"Authorization: Bearer $KEY\" -H \"X-Key: $KEY\" https://example.com/v1/two-headers",
    ],
    [
        "two-hosts-2",
        "--http2 -H \"Authorization: Bearer $KEY\" https://other.example/v1/two-hosts-2",
    ],
    ["cookie", "-b \"a=$KEY\" https://example.com/v1/cookie"],
    ["agent", "-A \"$KEY\" https://example.com/v1/agent"],
    [
        "header-name",
        "-H \"X-$(echo $KEY | tr A-Z a-z): a\" https://example.com/v1/header-name",
    ],
    ["basic", "-u \"git:$KEY\" https://example.com/v1/basic"],
    [
        "cookie-2",
        "--http2 -b \"a=b; c=$KEY\" https://example.com/v1/cookie-2",
    ],
    [
        "query-2",
        "--http2 \"https://example.com/v1/query-2?key=$KEY\"",
    ],
    [
        "in-path-2",
        "--http2 \"https://example.com/v1/in-path-2/$KEY\"",
    ],
    ["query", "\"https://example.com/v1/query?key=$KEY\""],
    [
        "escaped",
        "\"https://example.com/v1/escaped?key=%67${KEY#g}\"",
    ],
    ["in-path", "\"https://example.com/v1/in-path/$KEY\""],
    [
        "plain",
        "-H \"Authorization: Bearer $KEY\" http://example.com/v1/plain",
    ],
    [
        "proxied",
        "-x http://proxy.atoll.internal:3128 --noproxy '' -H \"Authorization: Bearer $KEY\" http://example.com/v1/proxied",
    ],
    [
        "connect",
        "-x http://proxy.atoll.internal:3128 --noproxy '' -p -H \"Authorization: Bearer $KEY\" https://other.example/v1/connect",
    ],
    [
        "socks",
        "-x socks5h://proxy.atoll.internal --noproxy '' -H \"Authorization: Bearer $KEY\" https://other.example/v1/socks",
    ],
    [
        "redirected",
        "-L --location-trusted -H \"Authorization: Bearer $KEY\" https://example.com/v1/redirect",
    ],
    [
        "head",
        "-I --http1.1 -H \"Authorization: Bearer $KEY\" https://other.example/v1/head",
    ],
];

#[test]
fn a_placeholder_that_goes_elsewhere_is_refused_and_reaches_nobody() {
    let name = "a_placeholder_that_goes_elsewhere_is_refused_and_reaches_nobody";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let all = |key: &str| {
        let mut script = format!("KEY={key}; ");
        for [row, how] in ELSEWHERE {
            script += &format!("printf '{row} '; {CURL} -o out -w '%{{http_code}}\\n' {how}; ");
            script += "grep -o 'placeholder of credential github' out | head -1; ";
        }
        script + "true"
    };
    let outcome = online(&world, &all("$GITHUB_TOKEN"));
    let (out, reached) = (outcome.out(), requests(&world));
    for [row, _] in ELSEWHERE {
        let refused = format!("\n{row} 403\n");
        assert!(format!("\n{out}").contains(&refused), "{row}: {outcome}");
        assert!(!reached.contains(&format!("/{row}")), "{row}: {reached}");
    }
    let told = out.matches("placeholder of credential github").count();
    // An answer to HEAD has no text.
    assert_eq!(told, ELSEWHERE.len() - 1, "{outcome}");
    // What led to the redirect was bound.
    assert_eq!(
        reached.matches("HTTP").count() + reached.lines().count(),
        1,
        "{reached}"
    );
    let refused = events(&world, "flow.refused");
    assert_eq!(refused.len(), ELSEWHERE.len(), "{refused:?}");
    for one in &refused {
        assert_eq!(one["credential"], "github", "{one}");
    }
    let times = format!("tried {} times", ELSEWHERE.len());
    assert!(outcome.err().contains(&times), "{outcome}");
    // The control: another text goes all these ways.
    let outcome = online(&world, &all("ghp_a-text-that-stands-for-nothing"));
    let reached = requests(&world);
    for [row, _] in ELSEWHERE.iter().filter(|[row, _]| *row != "up-path") {
        assert!(
            reached.contains(&format!("/{row}")),
            "{row}: {outcome}\n{reached}"
        );
    }
}

#[test]
fn a_placeholder_is_no_part_of_a_host_that_is_asked_for() {
    let name = "a_placeholder_is_no_part_of_a_host_that_is_asked_for";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let script = format!(
        "{CURL} https://$GITHUB_TOKEN.example.net/; {CURL} https://$GITHUB_TOKEN.example.com/; {CURL} -x http://proxy.atoll.internal:3128 --noproxy '' \
         https://$GITHUB_TOKEN.example.com/; {CURL} https://nobody-knows-this.example.com/; true"
    );
    let outcome = online(&world, &script);
    let asked = fs::read_to_string(world.top().join("internet/asked")).unwrap_or_default();
    assert!(!asked.contains("ghp"), "{asked}");
    // The control: another name is asked for.
    assert!(asked.contains("nobody-knows-this.example.com"), "{asked}");
    let refused = events(&world, "flow.refused");
    let of_credential = refused.iter().filter(|one| one["credential"] == "github");
    let hosts: Vec<String> = of_credential.map(|one| one["host"].to_string()).collect();
    for beneath in [".example.net\"", ".example.com\""] {
        let has = hosts.iter().any(|host| host.ends_with(beneath));
        assert!(has, "{beneath}: {refused:?}\n{outcome}");
    }
    // Nobody is told to allow a host by a name that has a placeholder in it.
    let why = world.atoll(["why", "last"]).run().success();
    assert!(!why.out().contains("--allow ghp_"), "{why}");
}

#[test]
fn a_placeholder_in_the_beginning_of_tls_is_refused_or_opens_nothing() {
    let name = "a_placeholder_in_the_beginning_of_tls_is_refused_or_opens_nothing";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    // As long as what is random there.
    let real = "sk-r3alK3yOfTh1sT3stWh1chN0bodyS";
    world.write(world.top().join("real"), real);
    world.canary(real, &["real"]);
    world.write("hellos.py", HELLOS);
    let script = "echo \"is $GITHUB_TOKEN\"; python3 hellos.py \"$GITHUB_TOKEN\"";
    let outcome = online(&world, script).success();
    let out = outcome.out();
    let placeholder = out
        .lines()
        .find_map(|line| line.strip_prefix("is "))
        .unwrap();
    let path = world.top().join("internet/recorded");
    let recorded = fs::read_to_string(path).unwrap_or_default();
    let hexadecimal =
        |text: &str| -> String { text.bytes().map(|byte| format!("{byte:02x}")).collect() };
    // What is looked into is TLS of Atoll's own: nothing that the program begins it by gets out.
    assert!(!recorded.contains("9443 "), "{recorded}\n{outcome}");
    // By a tunnel the beginning is the program's own: it gets out without it alone.
    let rows = [
        "own", "name", "labels", "protocol", "random", "session", "text",
    ];
    let expect = |outcome: &Outcome, passing: &[&str]| {
        for row in rows {
            let got = passing.contains(&row);
            let told = format!(
                "tunnel.example {row} {}",
                if got { "got it" } else { "not" }
            );
            let said = outcome.out();
            assert!(said.lines().any(|line| line == told), "{told}: {outcome}");
        }
    };
    expect(&outcome, &["own"]);
    assert_eq!(recorded.lines().count(), 1, "{recorded}");
    assert!(!recorded.contains(&hexadecimal(placeholder)), "{recorded}");
    // It is misuse wherever it stands, whatever carries the connection.
    let refused = events(&world, "flow.refused");
    let misused: Vec<_> = refused
        .iter()
        .filter(|one| one["credential"] == "github")
        .collect();
    let of = |words: &str| {
        let whys = misused.iter().filter_map(|one| one["why"].as_str());
        whys.filter(|why| why.contains(words)).count()
    };
    assert_eq!(of("is in its name"), 4, "{refused:?}");
    assert_eq!(of("in the beginning of TLS"), 2, "{refused:?}");
    assert_eq!(
        of("in what the program sends by a tunnel"),
        1,
        "{refused:?}"
    );
    assert!(outcome.err().contains("alert"), "{outcome}");
    // The control: with another text a name is refused just so, and no other row is.
    let other = "python3 hellos.py sk-a-text-that-stands-for-nothin";
    let outcome = online(&world, other).success();
    assert!(!outcome.err().contains("alert"), "{outcome}");
    expect(&outcome, &["own", "protocol", "random", "session", "text"]);
}

#[test]
fn a_redirect_with_a_real_value_leads_nobody_to_it() {
    let name = "a_redirect_with_a_real_value_leads_nobody_to_it";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let auth = "-H \"Authorization: Bearer $GITHUB_TOKEN\"";
    let script = format!(
        "echo \"is $GITHUB_TOKEN\"; for by in --http1.1 --http2; do {CURL} $by -i {auth} https://example.com/v1/moved; \
         {CURL} $by -L -o out -w 'then %{{http_code}}\n' {auth} https://example.com/v1/moved; done"
    );
    let outcome = online(&world, &script).success();
    let (out, reached) = (outcome.out(), requests(&world));
    let placeholder = out
        .lines()
        .find_map(|line| line.strip_prefix("is "))
        .unwrap();
    let led = format!("location: https://example.com/v1/after-moved?key={placeholder}");
    let told = out.to_ascii_lowercase();
    assert_eq!(
        told.matches(&led.to_ascii_lowercase()).count(),
        2,
        "{outcome}"
    );
    assert!(!out.contains(REAL), "{outcome}");
    // Where it leads is asked with what stands for it, which is no place for that.
    assert_eq!(out.matches("then 403\n").count(), 2, "{outcome}");
    assert!(!reached.contains("after-moved"), "{reached}");
    // The control: what leads there came, with the real one in its place.
    assert_eq!(reached.matches("/v1/moved").count(), 4, "{reached}");
    assert_eq!(reached.matches(REAL).count(), 4, "{reached}");
}

#[test]
fn a_request_with_a_key_is_sent_again_once_at_most() {
    let name = "a_request_with_a_key_is_sent_again_once_at_most";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    // Each after one whose connection is kept, and ended by the next request in it.
    let rows = [
        ("get", "", 2, "200"),
        ("post", "-d a=b", 1, "502"),
        ("get-never", "", 2, "502"),
        ("post-never", "-d a=b", 1, "502"),
    ];
    let auth = "--http1.1 -H \"Authorization: Bearer $GITHUB_TOKEN\"";
    let mut script = String::new();
    for (row, how, ..) in rows {
        script += &format!(
            "{CURL} {auth} https://example.com/v1/stale; printf '{row} '; \
             {CURL} {auth} -o out -w '%{{http_code}}\n' {how} https://example.com/v1/{row}; "
        );
    }
    let outcome = online(&world, &script);
    let (out, reached) = (outcome.out(), requests(&world));
    for (row, _, times, status) in rows {
        let told = format!("\n{row} {status}\n");
        assert!(out.contains(&told), "{row}: {outcome}\n{reached}");
        let of = format!(" example.com /v1/{row} ");
        assert_eq!(reached.matches(&of).count(), times, "{row}: {reached}");
    }
    // Each sending is recorded, and has the key.
    let lines = reached.lines().count();
    assert_eq!(reached.matches(REAL).count(), lines, "{reached}");
    let opened = events(&world, "flow.opened");
    assert_eq!(opened.len(), lines, "{opened:?}");
}

/// Starts a run as people type it: their shell puts the key in place of its variable.
const TYPED: &str = r#"sh -c 'GITHUB_TOKEN=$(cat "$REAL"); export GITHUB_TOKEN GH_TOKEN="x $GITHUB_TOKEN y"; eval "$0"'"#;

#[test]
fn a_value_that_stands_in_the_command_or_in_another_variable_does_not_go_in() {
    let name = "a_value_that_stands_in_the_command_or_in_another_variable_does_not_go_in";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    world.profile("maybe", &format!("{NETWORK}{HEADER}optional = true\n"));
    let typed = |line: &str| {
        let run = on_servers(&world, SERVERS, NAMES, &format!("{TYPED} \"$@\""));
        let run = run.env("REAL", world.top().join("real"));
        let line = line.replace("atoll", "\"$ATOLL\"");
        // The shell outside takes the first word for its own.
        run.args(["sh", &line]).run()
    };
    let outcome = typed(
        "atoll run --discard --profile bound -- curl -sS -m 20 --noproxy \"*\" \
         -H \"Authorization: Bearer $GITHUB_TOKEN\" https://example.com/v1/api",
    );
    let what = format!("{outcome}\n{}", requests(&world));
    assert!(outcome.out().contains("welcome"), "{what}");
    assert!(what.contains(&format!("Bearer {REAL}")), "{what}");
    let said =
        "the command holds the value of credential github: what stands for it is in its place";
    assert!(outcome.err().contains(said), "{what}");
    let outcome = typed(
        "atoll run --discard --profile bound --env GH_TOKEN -- \
         sh -c \"echo \\$0; echo \\$GH_TOKEN; echo \\$GITHUB_TOKEN\" \"a${GITHUB_TOKEN}b\"",
    );
    let said = outcome.success().out().to_owned();
    let stands = said.lines().nth(2).unwrap();
    assert!(
        stands.starts_with("ghp_") && stands.len() == REAL.len(),
        "{said}"
    );
    assert_eq!(said, format!("a{stands}b\nx {stands} y\n{stands}\n"));
    let outcome = typed("atoll run --discard --profile bound --env OTHER=$GITHUB_TOKEN -- true");
    assert_eq!(outcome.code(), 125, "{outcome}");
    let said = "the variable OTHER that is set inside holds the value of credential github";
    assert!(outcome.err().contains(said), "{outcome}");
    // Without a value that a credential stands for, it goes in, and that is told.
    let outcome = typed(
        "env -u GITHUB_TOKEN atoll run --discard --profile maybe --env GITHUB_TOKEN=mine -- \
         sh -c \"echo \\$GITHUB_TOKEN\"",
    );
    assert_eq!(outcome.out(), "mine\n", "{outcome}");
    let said = "GITHUB_TOKEN: `--env` passes the value as is. Export it instead and the program gets a placeholder.";
    assert!(outcome.err().contains(said), "{outcome}");
}

#[test]
fn one_variable_serves_several_credentials() {
    let name = "one_variable_serves_several_credentials";
    let basic = HEADER
        .replace("[credential.github]", "[credential.git]")
        .replace(
            "header = \"authorization\", form = \"Bearer {}\"",
            "basic = \"git\"",
        )
        .replace("/v1/**", "/git");
    let Some(world) = world(name, &format!("{HEADER}{basic}variable = \"GIT\"\n")) else {
        return;
    };
    let script = format!(
        "{CURL} -H \"Authorization: Bearer $GITHUB_TOKEN\" https://example.com/v1/api; \
         {CURL} -u \"git:$GIT\" https://example.com/git; test \"$GIT\" != \"$GITHUB_TOKEN\""
    );
    let outcome = online(&world, &script).success();
    let reached = requests(&world);
    assert!(
        reached.contains(&format!("Bearer {REAL}")),
        "{reached}\n{outcome}"
    );
    assert_eq!(
        outcome.out().matches("welcome").count(),
        2,
        "{reached}\n{outcome}"
    );
}

#[test]
fn keys_from_files_go_into_basic_authentication_and_queries() {
    let of_file = |place: &str, real: &Path| {
        format!(
            "[credential.file]\nsource = {{ file = \"{}\" }}\nto = \"example.com\"\nplace = {{ {place} }}\n\
             variable = \"KEY\"\n",
            real.display()
        )
    };
    let name = "keys_from_files_go_into_basic_authentication_and_queries";
    let Some(world) = world(name, "") else {
        return;
    };
    let real = world.top().join("token");
    world.write(&real, format!("{REAL}\n"));
    for (place, bound, elsewhere) in [
        (
            "basic = \"git\"",
            "-u \"git:$KEY\" https://example.com/git",
            "-u \"other:$KEY\" https://example.com/elsewhere",
        ),
        (
            "query = \"key\"",
            "\"https://example.com/maps?key=$KEY\"",
            "\"https://example.com/elsewhere?other=$KEY\"",
        ),
        (
            "header = \"authorization\"",
            "-H \"Authorization: Bearer $KEY\" https://example.com/any-form",
            "-H \"X: $KEY\" https://example.com/elsewhere",
        ),
    ] {
        world.profile("bound", &format!("{NETWORK}{}", of_file(place, &real)));
        let script = format!(
            "{CURL} {bound}; {CURL} -o /dev/null -w '%{{http_code}}' {elsewhere}; cat {} ",
            real.display()
        );
        let outcome = online(&world, &script);
        assert!(outcome.out().starts_with("welcome\n403"), "{outcome}");
        assert!(
            outcome.err().contains("others than its owner can read"),
            "{outcome}"
        );
        let reached = requests(&world);
        assert!(!reached.contains("elsewhere"), "{reached}");
        let ledger = world
            .atoll(["ledger", "show", "--json", "last"])
            .run()
            .success()
            .out();
        assert!(
            !ledger.contains(REAL) && ledger.contains("\"credential\":\"file\""),
            "{ledger}"
        );
    }
}

/// Checks that no process but the egress process holds the key, that nothing on disk does, and that
/// the search would have found it.
fn nobody_else_holds_it(world: &World, outcome: &Outcome) {
    let top = world.top();
    let searched = fs::read_to_string(top.join("searched")).unwrap_or_default();
    let what = format!("{outcome}\n{searched}");
    let has = |line: &str| searched.lines().any(|one| one == line);
    assert!(outcome.out().contains("welcome"), "{what}");
    assert!(!outcome.out().contains(REAL), "{what}");
    for process in ["atoll", "atoll-egress", "atoll-jail", "sh"] {
        assert!(
            has(&format!("read {process}")),
            "{process} was not read: {what}"
        );
    }
    let holders = searched.lines().filter(|line| line.starts_with("real "));
    // The control: what carries has it, which only root can see, and what stands for it is
    // found in others.
    let of_carrier = match is_root() {
        true => vec!["real atoll-egress memory"],
        false => Vec::new(),
    };
    assert_eq!(holders.collect::<Vec<_>>(), of_carrier, "{what}");
    assert!(is_root() || has("unread atoll-egress memory"), "{what}");
    assert!(has("placeholder atoll memory"), "{what}");
    assert!(has("placeholder sh environment"), "{what}");
    let find = |text: &str| {
        let found = world
            .host("grep")
            .args(["-rlaF", text])
            .arg(top)
            .run()
            .out();
        let own = ["/real", "/internet/requests"].map(|name| format!("{}{name}", top.display()));
        let is_other = |line: &&str| !own.iter().any(|own| own == line);
        found
            .lines()
            .filter(is_other)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(find(REAL), Vec::<String>::new());
    assert!(!find("ghp_").is_empty());
}

const WAITING: &str = "echo \"KEY=$GITHUB_TOKEN\"; \
    curl -sS -m 20 --noproxy '*' -H \"Authorization: Bearer $GITHUB_TOKEN\" https://example.com/v1/one; \
    grep -al r3alK3yOfTh1sT3st /proc/[0-9]*/environ; echo READY; read go";

#[test]
fn no_process_but_the_one_that_carries_holds_a_key() {
    let name = "no_process_but_the_one_that_carries_holds_a_key";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let command = format!("sh '{0}/run.sh' '{0}' \"$@\"", world.top().display());
    let run = on_servers(&world, SERVERS, NAMES, &command);
    let outcome = run
        .args(["sh", "--profile", "bound", "--", "sh", "-c", WAITING])
        .run();
    nobody_else_holds_it(&world, &outcome);
}

#[test]
fn in_a_fence_no_process_but_the_one_that_carries_holds_a_key() {
    let name = "in_a_fence_no_process_but_the_one_that_carries_holds_a_key";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    if is_root() {
        return world.skip("root always has namespaces", Avoidable::No);
    }
    let command = format!("sh '{0}/run.sh' '{0}' \"$@\"", world.top().display());
    let run = on_servers(&world, SERVERS, NAMES, &command);
    let outcome = run
        .env("FENCED", without_namespaces(&world))
        .args(["sh", "--profile", "bound", "--", "sh", "-c", WAITING])
        .run();
    assert!(outcome.err().contains("only fenced in"), "{outcome}");
    nobody_else_holds_it(&world, &outcome);
}

#[test]
fn a_credential_that_is_not_there_lets_nothing_start() {
    let world = World::new("a_credential_that_is_not_there_lets_nothing_start");
    for (source, said) in [
        (
            "environment = \"NOT_SET_HERE\"",
            "the variable NOT_SET_HERE is not set",
        ),
        ("file = \"/nowhere/token\"", "cannot be read"),
        ("file = \"~/empty\"", "it is empty"),
        ("file = \"~/short\"", "shorter than 16"),
        ("file = \"~/long\"", "it is longer than"),
        ("file = \"~/lines\"", "other characters"),
        ("file = \"~/pipe\"", "no regular file"),
    ] {
        world.write(world.home().join("empty"), "\n");
        world.write(world.home().join("short"), "pass\n");
        world.write(world.home().join("long"), "a".repeat(9000));
        world.write(world.home().join("lines"), "one\ntwo\n");
        if !world.home().join("pipe").exists() {
            e2e::make_fifo(&world.home().join("pipe"));
        }
        let credential = format!(
            "[credential.a]\nsource = {{ {source} }}\nto = \"example.com\"\nplace = {{ header = \"x-key\" }}\n\
             variable = \"KEY\"\n"
        );
        world.profile("bound", &credential);
        let outcome = world
            .atoll([
                "run",
                "--profile",
                "bound",
                "--",
                "sh",
                "-c",
                "echo started",
            ])
            .run();
        assert!(!outcome.out().contains("started"), "{source}: {outcome}");
        outcome.is_clear_error([said]);
    }
    // The control: one that is there lets it start, with what stands for it.
    let there = "correct-horse-battery-77\n";
    world.canary(there, &["home/there"]);
    world.write(world.home().join("there"), there);
    world.profile(
        "bound",
        "[credential.a]\nsource = { file = \"~/there\" }\nto = \"example.com\"\nplace = { header = \"x-key\" }\n\
         variable = \"KEY\"\n",
    );
    let outcome = world
        .atoll([
            "run",
            "--discard",
            "--profile",
            "bound",
            "--",
            "sh",
            "-c",
            "echo started ${#KEY}",
        ])
        .run()
        .success();
    assert!(outcome.out().starts_with("started 2"), "{outcome}");
    assert!(
        outcome.err().contains("no rule of [network] allows it"),
        "{outcome}"
    );
}

#[test]
fn a_credential_that_is_missing_or_not_accepted_is_told() {
    let name = "a_credential_that_is_missing_or_not_accepted_is_told";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let folded = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let script =
        format!("{CURL} -H \"Authorization: Bearer $GITHUB_TOKEN\" https://example.com/v1/one");
    let refused = "credential github: example.com answered 1 request with 401";
    // The control.
    let outcome = online(&world, &script);
    assert!(outcome.out().contains("welcome"), "{outcome}");
    assert!(!folded(outcome.err()).contains("with 401"), "{outcome}");
    let elsewhere = |source: &str| {
        let source = HEADER.replace("{ environment = \"GITHUB_TOKEN\" }", source);
        assert_ne!(source, HEADER);
        world.profile(
            "bound",
            &format!("{NETWORK}{source}variable = \"GITHUB_TOKEN\"\noptional = true\n"),
        );
    };
    let wrong = world.top().join("wrong");
    world.write(&wrong, "ghp_0123456789abcdefghijABCDEFGHIJklmnop");
    elsewhere(&format!("{{ file = {:?} }}", wrong.to_str().unwrap()));
    let outcome = online(&world, &script);
    assert!(folded(outcome.err()).contains(refused), "{outcome}");
    let told = world.atoll(["why", "last"]).run().success().out();
    assert!(folded(told.clone()).contains(refused), "{told}");
    // One that need not be there is told of where it is missed.
    elsewhere("{ environment = \"OTHER_TOKEN\" }");
    let outcome = online(&world, &script);
    for words in [
        "the run goes without credential github, which is optional: OTHER_TOKEN is not",
        "example.com answered once with 401, and the run went without what is for it: github",
    ] {
        assert!(folded(outcome.err()).contains(words), "{words}: {outcome}");
    }
}

/// A policy about a credential decides at each use: a use that a run began with ends.
#[test]
fn a_policy_ends_the_use_of_a_credential_while_a_run_goes_on() {
    let name = "a_policy_ends_the_use_of_a_credential_while_a_run_goes_on";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let end = now.unwrap().as_secs() + 15;
    let forbid = format!(
        "@id(\"late\") forbid(principal, action == Action::\"use_credential\", resource == Credential::\"github\") when {{ context.time >= {end} }};\n"
    );
    world.write(world.config().join("atoll/own.cedar"), forbid);
    let auth = "-H \"Authorization: Bearer $GITHUB_TOKEN\"";
    let script = format!(
        "for i in $(seq 60); do told=$({CURL} {auth} https://example.com/v1/one); echo \"$told\"; \
         case $told in *'policy late'*) break;; esac; sleep 1; done; {CURL} https://example.com/v1/without"
    );
    let outcome = online(&world, &script);
    let out = outcome.out();
    assert!(out.contains("welcome"), "{outcome}");
    assert!(out.contains("forbidden by policy late"), "{outcome}");
    // Without it the host is still reached.
    assert!(out.trim_end().ends_with("who are you?"), "{outcome}");
    assert!(!out.contains("own.cedar"), "{outcome}");
}

/// The egress process leaves no core dump, though cores are allowed to the user who starts Atoll
/// and the kernel writes them into plain files; its secrets are in locked memory.
#[test]
fn a_key_is_in_no_core_dump_and_its_pages_are_locked() {
    let name = "a_key_is_in_no_core_dump_and_its_pages_are_locked";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    if !holders::dumps_are_files(&world) {
        return;
    }
    world.write(holders::sought(&world), REAL);
    let many = format!(
        "for i in $(seq 12); do {CURL} -H \"Authorization: Bearer $GITHUB_TOKEN\" -d \"$(seq $((i * 300)))\" \
         https://example.com/v1/closed >&2 & done; wait; {WAITING}"
    );
    let script = many.replace("/v1/one", "/v1/closed");
    for signal in ["SIGSEGV", "SIGABRT"] {
        for made in ["dumped", "go"].map(|name| world.top().join(name)) {
            let _ = fs::remove_dir(&made).or_else(|_| fs::remove_file(&made));
        }
        let run = on_servers(&world, SERVERS, NAMES, &holders::dumping(&world));
        let outcome = run
            .env("ENDED_BY", signal)
            .args(["sh", "--profile", "bound", "--", "sh", "-c", &script])
            .within(Duration::from_secs(120))
            .run();
        let what = format!("{signal} {outcome}");
        assert!(outcome.out().contains("welcome"), "{what}");
        holders::expect_no_dump_of(&world, &["atoll-egress"], &what);
        // Where it is kept, which only root can see, is neither swapped out nor dumped, and
        // once a connection has ended nothing is left of what was sent by it.
        let searched = holders::searched(&world);
        let held = searched
            .lines()
            .filter_map(|line| line.strip_prefix("atoll-egress holds it"));
        let expected: &[&str] = if is_root() { &[" lo dd"] } else { &[] };
        assert_eq!(held.collect::<Vec<_>>(), expected, "{what}\n{searched}");
    }
}

/// Without memory that the kernel locks, no egress process runs; a run that reached for nothing
/// reports that too.
#[test]
fn where_no_memory_is_locked_for_keys_that_is_told_and_what_to_do() {
    let name = "where_no_memory_is_locked_for_keys_that_is_told_and_what_to_do";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    if is_root() {
        world.skip("the kernel lets root lock any memory", Avoidable::No);
        return;
    }
    let under = |limit: &str| {
        let command = format!(
            "sh -c 'GITHUB_TOKEN=$(cat \"$REAL\"); export GITHUB_TOKEN; \
             exec prlimit --memlock={limit} \"$ATOLL\" run --discard \"$@\"' sh \"$@\""
        );
        let run = on_servers(&world, SERVERS, NAMES, &command);
        let run = run.env("REAL", world.top().join("real"));
        run.args(["sh", "--profile", "bound", "--", "sleep", "1"])
            .run()
    };
    // The first is less than a page.
    for limit in ["0", "4096"] {
        let told = under(limit).success();
        let advice = ["RLIMIT_MEMLOCK", "ulimit -l 8192", "LimitMEMLOCK=8M"];
        let told = told.says(advice).says(["nothing outside could be reached"]);
        assert!(!told.err().contains("with status"), "{told}");
    }
    let told = under(&(8_u32 << 20).to_string()).success();
    assert!(!told.err().contains("MEMLOCK"), "{told}");
}

/// Everything that a person sees, and can scroll back to, has placeholders and never a key: the
/// program's output, a question about a request, the end of a run and its alerts.
#[test]
fn a_terminal_never_shows_a_key() {
    let name = "a_terminal_never_shows_a_key";
    let Some(world) = world(name, HEADER) else {
        return;
    };
    world.profile("asked", &format!("[network]\nallow = []\n{HEADER}"));
    let command = "sh -c 'GITHUB_TOKEN=$(cat \"$REAL\"); export GITHUB_TOKEN; \
                   exec \"$ATOLL\" run --discard \"$@\"' sh \"$@\"";
    let auth = "-H \"Authorization: Bearer $GITHUB_TOKEN\"";
    let script = format!(
        "env; stty -a; {CURL} -v -i --http1.1 {auth} -d \"my $GITHUB_TOKEN\" https://example.com/v1/echo; \
         {CURL} -v -i {auth} https://example.com/v1/echo; {CURL} {auth} https://other.example/v1/elsewhere; \
         echo \"stands $GITHUB_TOKEN\" | tee /dev/tty >&2; cat /proc/[0-9]*/environ | tr '\\0' '\\n'; echo done"
    );
    let run = on_servers(&world, SERVERS, NAMES, command).env("REAL", world.top().join("real"));
    let options = ["--ask", "example.com", "--ask", "other.example"];
    let run = run.args(["sh", "--profile", "asked"]).args(options);
    let run = run.args(["--", "sh", "-c", &script]);
    let mut terminal = run.within(Duration::from_secs(240)).on_terminal(50, 120);
    for _ in ["the first", "the second"] {
        terminal.expect("path: /v1/echo");
        terminal.expect("A letter, then Enter: ");
        terminal.send("o\r");
    }
    terminal.expect("stands ghp_");
    terminal.expect("done");
    let outcome = terminal.wait();
    let shown = terminal.shown();
    let reached = requests(&world);
    assert_eq!(reached.matches(REAL).count(), 2, "{outcome}\n{reached}");
    // The host has told the key again, and what misused it is told.
    assert!(
        shown.to_lowercase().contains("x-echo: bearer ghp_"),
        "{shown}"
    );
    assert!(shown.contains("alert"), "{shown}");
    drop(terminal);
    let what = world.atoll(["why", "last"]).on_terminal(50, 120).wait();
    assert!(what.success().out().contains("github"));
    assert_eq!(world.canaries_found(), [""; 0]);
    // The control: what a terminal showed is searched when its world ends.
    let control = World::new(name);
    control.write(control.top().join("real"), REAL);
    control.canary(REAL, &["real"]);
    let run = control
        .host_shell("cat ../real")
        .on_terminal(50, 120)
        .wait();
    assert!(run.success().out().contains(REAL));
    let ended = catch_unwind(AssertUnwindSafe(move || drop(control)));
    let why = *ended.unwrap_err().downcast::<String>().unwrap();
    assert!(why.contains("terminal"), "{why}");
}
