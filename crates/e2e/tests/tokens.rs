//! Tokens that Atoll itself requests when a request needs one: once, after it was allowed and
//! recorded, with secrets that no sandbox sees, and revoked at the end.

use std::collections::BTreeSet;
use std::fs;

use e2e::internet::{events, is_possible, on_servers, without_namespaces};
use e2e::{Avoidable, Outcome, World, is_root};
use serde_json::Value;

const SERVERS: &str = include_str!("tokens/servers.py");
const SEARCH: &str = include_str!("credentials/search.py");
const RUN: &str = include_str!("credentials/run.sh");
const NAMES: &[&str] = &[
    "example.com",
    "other.example",
    "another.example",
    "private.example",
    "git.example",
];
const SECRETS: [(&str, &str); 4] = [
    ("client", "cl1entS3cretWh1chN0bodyM4yS33/+a b"),
    ("refresh", "ref_f1rstT0kenOfTh1sT3stWh1chN0bodyM4yS33in"),
    ("subject", "sub_jectT0kenOfTh1sT3stWh1chN0bodyM4yS33in"),
    ("given", "giv_enT0kenOfTh1sT3stWh1chN0bodyM4yS33in00"),
];
const CURL: &str = "curl -sS -m 90 --noproxy '*'";
const AUTH: &str = "-H \"Authorization: Bearer $TOKEN\"";
/// The client's identity.
const CLIENT: &str = "client = 'client one', secret = { environment = 'CLIENT_SECRET' }";
const REVOKE: &str = "revoke = 'https://another.example/revoke'";

/// Returns a world with a profile that has a token requested, in the way that the path names.
fn world(name: &str, how: &str, further: &str) -> Option<World> {
    let world = World::new(name);
    for (name, text) in SECRETS {
        world.write(world.top().join(name), text);
        world.canary(text, &[name, "client.pem", "real"]);
    }
    world.write(world.top().join("search.py"), SEARCH);
    world.write(world.top().join("run.sh"), RUN);
    to_go(&world, how, further);
    is_possible(&world, &["openssl", "python3"]).then_some(world)
}

/// Sets the way in which it is requested.
fn to_go(world: &World, how: &str, further: &str) {
    let token = format!("token = 'https://another.example/token/{how}', {CLIENT}{further}");
    asked_by(world, &token, "");
}

/// Sets everything by which it is requested, in a network with these further rules.
fn asked_by(world: &World, oauth: &str, rules: &str) {
    world.profile(
        "bound",
        &format!(
            "[network]\nallow = ['example.com', 'other.example'{rules}]\n[credential.api]\n\
             source = {{ oauth = {{ {oauth} }} }}\nto = 'example.com'\npaths = ['/v1/**']\n\
             place = {{ header = 'authorization', form = 'Bearer {{}}' }}\nvariable = 'TOKEN'\n\
             shape = 'tok_{}'\n[credential.given]\nsource = {{ environment = 'GIVEN' }}\n\
             to = 'other.example'\nplace = {{ header = 'x-key' }}\n",
            "*".repeat(36)
        ),
    );
}

/// Runs a shell script in a sandbox, where the servers are.
fn online(world: &World, script: &str) -> Outcome {
    online_as(world, "\"$ATOLL\" run --discard \"$@\"", script)
}

/// As [`online`], by this command line.
fn online_as(world: &World, command: &str, script: &str) -> Outcome {
    let run = on_servers(world, SERVERS, NAMES, command)
        .env("CLIENT_SECRET", SECRETS[0].1)
        .env("GIVEN", SECRETS[3].1);
    run.args(["sh", "--profile", "bound", "--", "sh", "-c", script])
        .run()
}

/// Returns the servers' records of a name, line by line.
fn noted(world: &World, name: &str) -> Vec<String> {
    let text = fs::read_to_string(world.top().join("internet").join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Returns the requests to the issuer.
fn asked_for(world: &World) -> Vec<Value> {
    let lines = noted(world, "asked-for");
    lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the last run's ledger.
fn ledger(world: &World) -> String {
    world
        .atoll(["ledger", "show", "--json", "last"])
        .run()
        .success()
        .out()
}

/// Checks that no secret and no token is in these texts, nor on disk but where the test and
/// the servers have put it.
fn is_nowhere(world: &World, texts: &[&str]) {
    let tokens = noted(world, "issued");
    let refreshed = noted(world, "refreshed");
    let secrets = SECRETS.iter().map(|(_, text)| (*text).to_owned());
    let top = world.top();
    let own = |line: &&str| {
        let is_of_test = SECRETS
            .iter()
            .any(|(name, _)| *line == format!("{}/{name}", top.display()));
        is_of_test || line.starts_with(&format!("{}/internet/", top.display()))
    };
    for text in secrets.chain(tokens).chain(refreshed) {
        world.canary(&text, &["refresh", "real"]);
        for place in texts {
            assert!(!place.contains(&text), "{text} is in {place}");
        }
        let grep = world.host("grep").args(["-rlaF", &text]).arg(top).run();
        let found = grep.out();
        assert!(found.lines().any(|line| own(&line)), "{text}: {found}");
        let others: Vec<&str> = found.lines().filter(|line| !own(line)).collect();
        assert_eq!(others, Vec::<&str>::new(), "{text}");
    }
}

#[test]
fn a_token_is_asked_for_once_when_an_allowed_request_needs_it() {
    let name = "a_token_is_asked_for_once_when_an_allowed_request_needs_it";
    let further = format!(", scope = ['read', 'write:a'], audience = 'https://api/', {REVOKE}");
    let Some(world) = world(name, "late", &further) else {
        return;
    };
    // What needs none, and what is not allowed, has none asked for; nor is the issuer there
    // for a program.
    let script = format!(
        "{CURL} -o /dev/null -w '%{{http_code}} ' https://example.com/v1/without; \
         {CURL} -o /dev/null -w '%{{http_code}} ' {AUTH} https://other.example/v1/elsewhere; \
         {CURL} -o /dev/null -w '%{{http_code}} ' {AUTH} https://example.com/v2/other-path; \
         {CURL} -o /dev/null -w '%{{http_code}} ' -H \"X-Key: $TOKEN\" https://example.com/v1/other-header; \
         {CURL} -o /dev/null -w '%{{http_code}}' https://another.example/token/good 2>/dev/null; true"
    );
    let outcome = online(&world, &script);
    assert_eq!(outcome.out(), "401 403 403 403 000", "{outcome}");
    assert_eq!(asked_for(&world), Vec::<Value>::new(), "{outcome}");
    assert!(noted(&world, "requests").join("").find("tok_").is_none());
    assert!(!outcome.err().contains("taken back"), "{outcome}");

    // Two hundred at once wait for one token.
    let script = format!(
        "{CURL} --http1.1 -Z --parallel-immediate --parallel-max 50 {AUTH} 'https://example.com/v1/[1-200]'; \
         {CURL} -i --http1.1 {AUTH} https://example.com/v1/echo; echo \"is $TOKEN ${{#TOKEN}} $CLIENT_SECRET.\"; \
         cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'"
    );
    let outcome = online(&world, &script);
    let out = outcome.out();
    assert_eq!(out.matches("welcome").count(), 201, "{outcome}");
    let [token] = &noted(&world, "issued")[..] else {
        panic!("{outcome}");
    };
    let [asked, revoked] = &asked_for(&world)[..] else {
        panic!("{:?}", asked_for(&world));
    };
    assert_eq!(asked["method"], "POST", "{asked}");
    let form = serde_json::json!({
        "grant_type": ["client_credentials"], "scope": ["read write:a"], "audience": ["https://api/"],
    });
    assert_eq!(asked["form"], form);
    let headers = &asked["headers"];
    assert!(
        headers["authorization"]
            .as_str()
            .unwrap()
            .starts_with("Basic ")
    );
    assert_eq!(headers["content-type"], "application/x-www-form-urlencoded");
    assert!(
        headers["user-agent"]
            .as_str()
            .unwrap()
            .starts_with("atoll/")
    );
    // At the end it is taken back, and that is told.
    assert_eq!(revoked["path"], "/revoke");
    assert_eq!(revoked["form"]["token"], serde_json::json!([token]));
    assert_eq!(revoked["form"]["token_type_hint"][0], "access_token");
    assert!(
        outcome.err().contains("credential api: 1 token taken back"),
        "{outcome}"
    );
    let why = world.atoll(["why", "last"]).run().success();
    assert!(why.out().contains("1 token taken back"), "{why}");
    // What the origin sends back of it, and of what it was asked for by, is masked.
    assert!(
        out.contains("is tok_") && out.contains(" 40 .\n"),
        "{outcome}"
    );
    let (_, after) = out.split_once("\nis ").unwrap();
    let placeholder = after.split_whitespace().next().unwrap();
    assert!(
        out.contains(&format!("Bearer {placeholder}\r\n")),
        "{outcome}"
    );
    let told = ledger(&world);
    is_nowhere(&world, &[&out, &outcome.err(), &told, &why.out()]);
    // Each request of its own is on record, before what needed it was sent.
    let opened = events(&world, "flow.opened");
    let of_kind = |kind: &str| {
        opened
            .iter()
            .filter(|one| one["kind"] == kind)
            .collect::<Vec<_>>()
    };
    let [fetch] = of_kind("fetch")[..] else {
        panic!("{told}");
    };
    assert_eq!(fetch["host"], "another.example");
    assert_eq!(
        (&fetch["path"], &fetch["credential"]),
        (&"/token/late".into(), &"api".into())
    );
    assert_eq!(of_kind("revocation").len(), 1, "{told}");
    let put_in = of_kind("request")
        .into_iter()
        .filter(|one| one["credential"] == "api");
    assert_eq!(put_in.count(), 201);
    assert!(
        outcome
            .err()
            .contains("put into 201 requests to example.com"),
        "{outcome}"
    );
}

#[test]
fn every_grant_is_asked_for_as_it_is_meant() {
    let name = "every_grant_is_asked_for_as_it_is_meant";
    let Some(world) = world(name, "good", ", authentication = 'post'") else {
        return;
    };
    let two = format!(
        "{CURL} {AUTH} https://example.com/v1/one; {CURL} {AUTH} https://example.com/v1/two"
    );
    let outcome = online(&world, &two);
    assert_eq!(outcome.out().matches("welcome").count(), 2, "{outcome}");
    let asked = asked_for(&world);
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0]["form"]["client_secret"][0], SECRETS[0].1);
    assert!(asked[0]["headers"]["authorization"].is_null());

    let top = world.top().display();
    let exchange = format!(
        "token = 'https://another.example/token/good', {CLIENT}, grant = 'exchange', \
         subject = {{ file = '{top}/subject' }}, resource = 'https://example.com/'"
    );
    asked_by(&world, &exchange, "");
    let outcome = online(&world, &two);
    assert_eq!(outcome.out().matches("welcome").count(), 2, "{outcome}");
    let asked = asked_for(&world);
    let form = &asked[0]["form"];
    assert_eq!(
        form["subject_token_type"][0],
        "urn:ietf:params:oauth:token-type:access_token"
    );
    assert_eq!(form["resource"][0], "https://example.com/");

    // A refresh token is good once, and the next one is used then.
    let refresh = format!(
        "token = 'https://another.example/token/short', {CLIENT}, grant = 'refresh', \
         refresh = {{ file = '{top}/refresh' }}"
    );
    asked_by(&world, &refresh, "");
    let three = format!("{two}; sleep 5; {CURL} {AUTH} https://example.com/v1/three");
    let outcome = online(&world, &three);
    assert_eq!(outcome.out().matches("welcome").count(), 3, "{outcome}");
    let refreshed: BTreeSet<String> = noted(&world, "refreshed").into_iter().collect();
    // A slow machine may take longer than the first one holds.
    assert!((2..=3).contains(&refreshed.len()), "{outcome}");
    let (out, err) = (outcome.out(), outcome.err());
    is_nowhere(&world, &[&out, &err, &ledger(&world)]);

    // A client without a secret says its name alone.
    let public = format!(
        "token = 'https://another.example/token/public', client = 'client one', grant = 'refresh', \
         refresh = {{ file = '{top}/refresh' }}"
    );
    asked_by(&world, &public, "");
    let outcome = online(&world, &two);
    assert_eq!(outcome.out().matches("welcome").count(), 2, "{outcome}");
    assert_eq!(asked_for(&world)[0]["form"]["client_id"][0], "client one");
}

#[test]
fn an_answer_that_is_no_token_is_told_and_reaches_nobody() {
    let name = "an_answer_that_is_no_token_is_told_and_reaches_nobody";
    let Some(world) = world(name, "good", "") else {
        return;
    };
    for (how, why) in [
        ("none", "another.example: its answer has no access_token"),
        ("same", "is a secret by which one is asked for"),
        ("other", "is the value of another credential"),
        ("weak", "shorter than 16 bytes"),
        ("lines", "is not one line of printable ASCII"),
        ("mac", "of another type than Bearer"),
        ("expired", "has expired"),
        ("page", "not of the type application/json"),
        ("form", "is no JSON with a token"),
        ("long", "has more than 65536 bytes"),
        ("redirect", "it leads elsewhere (307)"),
        ("refused", "it answers 400: invalid_scope"),
        ("unknown", "it answers 400: an error of its own"),
        ("broken", "its answer broke off"),
        ("endless", "it took longer than 3 s"),
        ("slow", "it took longer than 3 s"),
        ("nowhere", "it answers 404"),
    ] {
        let is_waited_for = ["endless", "slow"].contains(&how);
        let seconds = if is_waited_for { 3 } else { 20 };
        to_go(&world, how, &format!(", timeout = '{seconds}s'"));
        let script = format!(
            "for i in 1 2 3 4 5; do {CURL} -w ' %{{http_code}}\\n' {AUTH} https://example.com/v1/$i & done; wait; \
             {CURL} https://example.com/v1/control"
        );
        let outcome = online(&world, &script);
        let (out, err, told) = (outcome.out(), outcome.err(), ledger(&world));
        assert_eq!(out.matches(why).count(), 5, "{how}: {outcome}");
        assert_eq!(out.matches(" 502\n").count(), 5, "{how}: {outcome}");
        assert!(out.contains("who are you?"), "{how}: {outcome}");
        assert!(
            out.contains("credential api cannot be fetched: "),
            "{how}: {outcome}"
        );
        assert!(err.contains(why), "{how}: {outcome}");
        assert!(told.contains(why), "{how}: {told}");
        let requests = noted(&world, "requests").join("\n");
        assert!(!requests.contains("Bearer"), "{how}: {requests}");
        // Nobody is asked elsewhere, nor again at once.
        let asked = asked_for(&world);
        assert!((1..=3).contains(&asked.len()), "{how}: {asked:?}");
        assert!(asked.iter().all(|one| one["host"] == "another.example"));
        is_nowhere(&world, &[&out, &err, &told]);
    }
    // The control.
    to_go(&world, "good", ", timeout = '30s'");
    let outcome = online(&world, &format!("{CURL} {AUTH} https://example.com/v1/one"));
    assert_eq!(outcome.out(), "welcome\n", "{outcome}");
}

const BY_PROXY: &str =
    "]\nupstream-proxy = 'http://93.184.216.38:3128'\nno-proxy = ['nowhere.example'";

#[test]
fn an_issuer_is_asked_where_it_may_be_alone() {
    let name = "an_issuer_is_asked_where_it_may_be_alone";
    let Some(world) = world(name, "good", "") else {
        return;
    };
    let at = |place: &str| format!("token = 'https://{place}/token/good', {CLIENT}");
    for (place, rules, why) in [
        // A name that leads to a private address takes a rule that names that.
        ("private.example", "", Some("address")),
        ("private.example", ", '10.1.2.3'", None),
        ("loopback.example", "", Some("address")),
        ("metadata.example", "", Some("address")),
        ("mixed.example", "", Some("address")),
        ("missing.example", "", Some("DNS lookup failed")),
        // No certificate is there for that name, and nobody at that port.
        ("www.example.com", "", Some("certificate is not accepted")),
        (
            "another.example:9443",
            "",
            Some("nothing listens at that port"),
        ),
        ("another.example:8443", "", None),
        // By the proxy of the run, which finds the address itself.
        ("another.example", BY_PROXY, None),
        (
            "another.example",
            "]\ndeny = ['another.example'",
            Some("is denied"),
        ),
        (
            "another.example",
            "]\nask = ['POST https://another.example/token/**'",
            Some("`ask` has to leave this address out"),
        ),
        // The control: what is not this request.
        (
            "another.example",
            "]\nask = ['GET https://another.example/token/**'",
            None,
        ),
    ] {
        asked_by(&world, &at(place), rules);
        let outcome = online(&world, &format!("{CURL} {AUTH} https://example.com/v1/one"));
        let out = outcome.out();
        match why {
            None => assert_eq!(out, "welcome\n", "{place}{rules}: {outcome}"),
            Some(why) => {
                assert!(out.contains(why), "{place}{rules}: {outcome}");
                assert!(
                    out.contains("credential api cannot be fetched"),
                    "{outcome}"
                );
                assert_eq!(asked_for(&world), Vec::<Value>::new(), "{place}{rules}");
            }
        }
        let connects: BTreeSet<String> = noted(&world, "connects").into_iter().collect();
        let by_proxy = ["another.example:443", "example.com:443"].map(str::to_owned);
        match rules == BY_PROXY {
            true => assert_eq!(connects, by_proxy.into(), "{outcome}"),
            false => assert!(connects.is_empty(), "{connects:?}"),
        }
    }
}

#[test]
fn a_token_is_taken_back_however_a_run_ends() {
    let name = "a_token_is_taken_back_however_a_run_ends";
    let Some(world) = world(name, "good", &format!(", {REVOKE}")) else {
        return;
    };
    let script = format!("{CURL} {AUTH} https://example.com/v1/one; echo got; sleep 400");
    let end = |how: &str| match how {
        "timeout" => "\"$ATOLL\" run --discard --timeout 20s \"$@\"".to_owned(),
        signal => format!(
            "sh -c '\"$ATOLL\" run --discard \"$@\" >\"{0}\" & run=$!; \
             until grep -q got \"{0}\"; do sleep 0.1; done; kill -{signal} $run; wait $run' sh \"$@\"",
            world.top().join("said").display()
        ),
    };
    for how in ["timeout", "TERM", "INT"] {
        let outcome = online_as(&world, &end(how), &script);
        assert_ne!(outcome.code(), 0, "{how}: {outcome}");
        assert_eq!(noted(&world, "issued").len(), 1, "{how}: {outcome}");
        assert_eq!(
            noted(&world, "issued"),
            noted(&world, "revoked"),
            "{how}: {outcome}"
        );
        assert!(
            outcome.err().contains("1 token taken back"),
            "{how}: {outcome}"
        );
    }
    // Each that still holds is, also those before the last one.
    to_go(&world, "short", &format!(", {REVOKE}"));
    let twice = format!(
        "{CURL} {AUTH} https://example.com/v1/one; sleep 3.8; {CURL} {AUTH} https://example.com/v1/two"
    );
    let outcome = online(&world, &twice);
    assert!(noted(&world, "revoked").len() <= noted(&world, "issued").len());
    let last = noted(&world, "issued").pop();
    assert!(
        noted(&world, "revoked").contains(&last.unwrap()),
        "{outcome}"
    );
    // Where it fails that is told, and nothing waits for it for long.
    for (how, why) in [("fails", "it answers 503"), ("slow", "it was broken off")] {
        to_go(
            &world,
            "good",
            &format!(", revoke = 'https://another.example/revoke-{how}'"),
        );
        let one = format!("{CURL} {AUTH} https://example.com/v1/one");
        let outcome = online(&world, &one).success();
        let err = outcome.err();
        assert!(
            err.contains("/revoke-") && err.contains(why),
            "{how}: {outcome}"
        );
        assert!(!err.contains("taken back"), "{how}: {outcome}");
        assert!(ledger(&world).contains(why), "{how}");
        is_nowhere(&world, &[&err, &ledger(&world)]);
    }
}

#[test]
fn a_token_of_an_app_is_asked_for_and_taken_back() {
    let name = "a_token_of_an_app_is_asked_for_and_taken_back";
    let Some(world) = world(name, "good", "") else {
        return;
    };
    let top = world.top().display();
    let openssl = |arguments: &[&str]| {
        let made = world.host("openssl").args(arguments).run();
        made.success()
    };
    let at = |name: &str| format!("{top}/{name}.pem");
    // As GitHub writes them, and as openssl does.
    let _ = openssl(&["genrsa", "-traditional", "-out", &at("app"), "2048"]);
    let _ = openssl(&[
        "pkcs8",
        "-topk8",
        "-nocrypt",
        "-in",
        &at("app"),
        "-out",
        &at("same"),
    ]);
    let _ = openssl(&["genrsa", "-traditional", "-out", &at("other"), "2048"]);
    let _ = openssl(&[
        "rsa",
        "-in",
        &at("app"),
        "-pubout",
        "-out",
        &format!("{top}/app.pub"),
    ]);
    let by = |key: &str, repository: &str| {
        world.profile(
            "bound",
            &format!(
                "[network]\nallow = ['example.com']\n[credential.hub]\n\
                 source = {{ github-app = {{ app = 4711, installation = 7, key = {{ file = '{}' }}, \
                 repositories = ['{repository}'], permissions = {{ contents = 'read' }}, \
                 api = 'https://git.example/api/v3' }} }}\nto = 'example.com'\n\
                 place = {{ header = 'authorization', form = 'Bearer {{}}' }}\nvariable = 'TOKEN'\n",
                at(key)
            ),
        );
    };
    let script = format!(
        "{CURL} {AUTH} https://example.com/v1/one; {CURL} {AUTH} https://example.com/v1/two; echo $TOKEN ${{#TOKEN}}"
    );
    let keys: Vec<String> = ["app", "other"].map(|key| world.read(at(key))).to_vec();
    for key in ["app", "same"] {
        by(key, "website");
        let outcome = online(&world, &script);
        let out = outcome.out();
        assert_eq!(out.matches("welcome").count(), 2, "{outcome}");
        assert!(
            out.contains("\nghs_") && out.ends_with(" 40\n"),
            "{outcome}"
        );
        let [asked, revoked] = &asked_for(&world)[..] else {
            panic!("{:?}", asked_for(&world));
        };
        let body: Value = serde_json::from_str(asked["body"].as_str().unwrap()).unwrap();
        let wanted = serde_json::json!({ "repositories": ["website"], "permissions": { "contents": "read" } });
        assert_eq!(body, wanted);
        assert_eq!(asked["headers"]["accept"], "application/vnd.github+json");
        assert_eq!(revoked["method"], "DELETE");
        assert_eq!(
            noted(&world, "issued"),
            noted(&world, "revoked"),
            "{outcome}"
        );
        assert!(
            outcome.err().contains("credential hub: 1 token taken back"),
            "{outcome}"
        );
        let told = ledger(&world);
        is_nowhere(&world, &[&out, &outcome.err(), &told]);
        // Nor is a line of the key anywhere.
        for line in keys[0].lines().filter(|line| !line.starts_with("-----")) {
            let places = [&out, &outcome.err(), &told, &asked.to_string()];
            assert!(
                places.iter().all(|place| !place.contains(line)),
                "{outcome}"
            );
        }
    }
    for (key, repository, why) in [
        (
            "other",
            "website",
            "it does not know the app by this key (401)",
        ),
        ("app", "greedy", "its token may do more than was asked for"),
    ] {
        by(key, repository);
        let outcome = online(&world, &script);
        assert_eq!(outcome.out().matches(why).count(), 2, "{outcome}");
        assert!(outcome.err().contains(why), "{outcome}");
        assert!(
            !noted(&world, "requests").join("").contains("ghs_"),
            "{outcome}"
        );
    }
    // What is no key lets nothing start.
    world.write(at("client"), SECRETS[0].1);
    by("client", "website");
    let refused = world
        .atoll([
            "run",
            "--discard",
            "--profile",
            "bound",
            "--",
            "echo",
            "started",
        ])
        .run();
    assert!(!refused.out().contains("started"), "{refused}");
    refused.is_clear_error(["holds no key of an app", "no private key in PEM"]);
}

#[test]
fn a_token_of_a_service_account_is_of_that_account_alone() {
    let name = "a_token_of_a_service_account_is_of_that_account_alone";
    let Some(world) = world(name, "good", "") else {
        return;
    };
    let top = world.top().display();
    let by = |account: &str| {
        world.profile(
            "bound",
            &format!(
                "[network]\nallow = ['example.com']\n[credential.cluster]\n\
                 source = {{ kubernetes = {{ server = 'https://git.example', namespace = 'staging', \
                 service-account = '{account}', token = {{ file = '{top}/subject' }} }} }}\n\
                 to = 'example.com'\n\
                 place = {{ header = 'authorization', form = 'Bearer {{}}' }}\nvariable = 'TOKEN'\n"
            ),
        );
    };
    let script = format!(
        "{CURL} {AUTH} https://example.com/v1/one; {CURL} {AUTH} https://example.com/v1/two"
    );
    by("reader");
    let shown = world.atoll(["profile", "show", "bound"]).run().success();
    assert!(
        shown.out().contains("service-account = \"reader\""),
        "{shown}"
    );
    let outcome = online(&world, &script);
    assert_eq!(outcome.out().matches("welcome").count(), 2, "{outcome}");
    let [asked] = &asked_for(&world)[..] else {
        panic!("{:?}", asked_for(&world));
    };
    assert_eq!(
        asked["path"],
        "/api/v1/namespaces/staging/serviceaccounts/reader/token"
    );
    let body: Value = serde_json::from_str(asked["body"].as_str().unwrap()).unwrap();
    assert_eq!(
        body["spec"],
        serde_json::json!({ "expirationSeconds": 600 })
    );
    let told = ledger(&world);
    is_nowhere(&world, &[&outcome.out(), &outcome.err(), &told]);
    for (account, why) in [
        (
            "greedy",
            "its token is of another account than was asked for",
        ),
        ("nobody", "no such service account in the namespace (404)"),
    ] {
        by(account);
        let outcome = online(&world, &script);
        assert_eq!(outcome.out().matches(why).count(), 2, "{outcome}");
    }
}

/// Checks that no process but the egress process holds the token, nor the secrets by which it is
/// requested, and that the search would have found them.
fn nobody_else_holds_them(world: &World, outcome: &Outcome) {
    let top = world.top();
    let searched = fs::read_to_string(top.join("searched")).unwrap_or_default();
    let what = format!("{outcome}\n{searched}");
    let has = |line: &str| searched.lines().any(|one| one == line);
    assert!(outcome.out().contains("welcome"), "{what}");
    for process in ["atoll", "atoll-egress", "atoll-jail", "sh"] {
        assert!(has(&format!("read {process}")), "{process}: {what}");
    }
    // The control: what carries has it, which only root can see, and what stands for the token
    // is found in others.
    let of_carrier = match is_root() {
        true => vec!["real atoll-egress memory"],
        false => Vec::new(),
    };
    let holders = searched.lines().filter(|line| line.starts_with("real "));
    assert_eq!(holders.collect::<Vec<_>>(), of_carrier, "{what}");
    assert!(is_root() || has("unread atoll-egress memory"), "{what}");
    assert!(has("placeholder atoll memory"), "{what}");
    assert!(has("placeholder sh environment"), "{what}");
}

/// Runs a program that waits while everything is searched for the client's secret.
fn searched(world: &World, fenced: bool) -> Outcome {
    world.write(world.top().join("real"), SECRETS[0].1);
    let oauth = "token = 'https://another.example/token/good', client = 'client one', \
                 secret = { environment = 'GITHUB_TOKEN' }";
    asked_by(world, oauth, "");
    let script = "echo \"KEY=$TOKEN\"; \
        curl -sS -m 20 --noproxy '*' -H \"Authorization: Bearer $TOKEN\" https://example.com/v1/one; \
        echo READY; read go";
    let command = format!("sh '{0}/run.sh' '{0}' \"$@\"", world.top().display());
    let mut run = on_servers(world, SERVERS, NAMES, &command).env("GIVEN", SECRETS[3].1);
    if fenced {
        run = run.env("FENCED", without_namespaces(world));
    }
    run.args(["sh", "--profile", "bound", "--", "sh", "-c", script])
        .run()
}

#[test]
fn no_process_but_the_one_that_carries_holds_what_a_token_is_asked_for_by() {
    let name = "no_process_but_the_one_that_carries_holds_what_a_token_is_asked_for_by";
    let Some(world) = world(name, "good", "") else {
        return;
    };
    let outcome = searched(&world, false);
    nobody_else_holds_them(&world, &outcome);
}

#[test]
fn in_a_fence_no_process_but_the_one_that_carries_holds_what_a_token_is_asked_for_by() {
    let name = "in_a_fence_no_process_but_the_one_that_carries_holds_what_a_token_is_asked_for_by";
    let Some(world) = world(name, "good", "") else {
        return;
    };
    if is_root() {
        return world.skip("root always has namespaces", Avoidable::No);
    }
    let outcome = searched(&world, true);
    assert!(outcome.err().contains("only fenced in"), "{outcome}");
    nobody_else_holds_them(&world, &outcome);
}

#[test]
fn a_secret_that_is_not_there_lets_nothing_start() {
    let world = World::new("a_secret_that_is_not_there_lets_nothing_start");
    let fine = ["home/fine", "workspace/fine"];
    world.canary("a-secret-Zk3fQ81xw0LmT7uP\n", &fine);
    world.write(world.home().join("short"), "pass\n");
    world.write(
        world.home().join("lines"),
        "one-line-of-text\ntwo-lines-of-text\n",
    );
    world.write(world.home().join("fine"), "a-secret-Zk3fQ81xw0LmT7uP\n");
    world.write(
        world.workspace().join("fine"),
        "a-secret-Zk3fQ81xw0LmT7uP\n",
    );
    let inside = format!("file = '{}/fine'", world.workspace().display());
    let start = |secret: &str| {
        let oauth = format!(
            "token = 'https://another.example/token', client = 'a', secret = {{ {secret} }}"
        );
        world.profile(
            "bound",
            &format!(
                "[credential.api]\nsource = {{ oauth = {{ {oauth} }} }}\nto = 'example.com'\n\
                 place = {{ header = 'x-key' }}\nvariable = 'TOKEN'\n"
            ),
        );
        let run = [
            "run",
            "--discard",
            "--profile",
            "bound",
            "--",
            "sh",
            "-c",
            "echo started ${#TOKEN}",
        ];
        world.atoll(run).run()
    };
    for (secret, said) in [
        (
            "environment = 'NOT_SET_HERE'",
            "the variable NOT_SET_HERE is not set",
        ),
        ("file = '~/missing'", "cannot be asked for by"),
        ("file = '~/short'", "shorter than 16"),
        ("file = '~/lines'", "other characters"),
        ("vault = 'nobody'", "there is no secret nobody"),
        (&inside, "can be read inside"),
    ] {
        let refused = start(secret);
        assert!(!refused.out().contains("started"), "{refused}");
        refused.is_clear_error([said]);
    }
    // The control.
    let started = start("file = '~/fine'").success();
    assert_eq!(started.out(), "started 40\n", "{started}");
}

/// Sets a profile whose token is requested with an existing refresh token, in the way that the path
/// names.
fn refreshed_by(world: &World, how: &str, source: &str) {
    let refresh = format!(
        "token = 'https://another.example/token/{how}', {CLIENT}, grant = 'refresh', \
         refresh = {{ {source} }}"
    );
    asked_by(world, &refresh, "");
}

/// Returns the content of the file with the refresh token.
fn kept(world: &World) -> String {
    fs::read_to_string(world.top().join("refresh")).unwrap()
}

const ONE: &str = "/v1/one";

fn got(path: &str) -> String {
    format!("{CURL} {AUTH} https://example.com{path}")
}

/// Starts a run after another one, where the servers stay.
const TWICE: &str = "sh -c '\"$ATOLL\" run --discard \"$@\"; \"$ATOLL\" run --discard \"$@\"' sh";

#[test]
fn a_refresh_token_that_its_issuer_replaces_is_written_back_to_its_file_or_the_vault() {
    let name = "a_refresh_token_that_its_issuer_replaces_is_written_back_to_its_file_or_the_vault";
    let Some(world) = world(name, "good", "") else {
        return;
    };
    let file = format!("file = '{}/refresh'", world.top().display());
    for (source, from) in [
        (file.as_str(), format!("{}/refresh", world.top().display())),
        ("vault = 'refresh'", "the vault's secret refresh".to_owned()),
    ] {
        let text = format!("{}\n", SECRETS[1].1);
        world.write(world.top().join("refresh"), text);
        if source.starts_with("vault") {
            let set = world.atoll(["secret", "set", "refresh"]);
            let _ = set.stdin(SECRETS[1].1).run().success();
        }
        refreshed_by(&world, "good", source);
        let outcome = online_as(&world, &format!("{TWICE} \"$@\""), &got(ONE));
        let what = format!("{outcome}\n{:?}", asked_for(&world));
        assert_eq!(outcome.out().matches("welcome").count(), 2, "{what}");
        let refreshed = noted(&world, "refreshed");
        assert_eq!(refreshed.len(), 2, "{what}");
        assert_eq!(
            asked_for(&world)[1]["form"]["refresh_token"][0],
            refreshed[0]
        );
        let told = format!("and the new one written to {from}");
        assert_eq!(outcome.err().matches(&told).count(), 2, "{what}");
        let (out, err) = (outcome.out(), outcome.err());
        is_nowhere(&world, &[&out, &err, &ledger(&world)]);
        if source.starts_with("vault") {
            let all = world.atoll(["ledger", "show", "--json"]).run();
            let sets = all.out().matches("secret.set").count();
            assert_eq!(sets, 3, "{all}");
        } else {
            assert_eq!(kept(&world), format!("{}\n", refreshed[1]), "{what}");
        }
    }
}

#[test]
fn of_two_runs_that_ask_by_one_refresh_token_the_second_has_what_the_first_was_given() {
    let name = "of_two_runs_that_ask_by_one_refresh_token_the_second_has_what_the_first_was_given";
    let Some(world) = world(name, "good", "") else {
        return;
    };
    let at_once = "sh -c '\"$ATOLL\" run --discard \"$@\" & one=$!; \"$ATOLL\" run --discard \"$@\"; \
                   wait $one' sh \"$@\"";
    let file = format!("file = '{}/refresh'", world.top().display());
    refreshed_by(&world, "late", &file);
    let outcome = online_as(&world, at_once, &got(ONE));
    let what = format!("{outcome}\n{:?}", asked_for(&world));
    assert_eq!(outcome.out().matches("welcome").count(), 2, "{what}");
    let refreshed = noted(&world, "refreshed");
    assert_eq!(refreshed.len(), 2, "{what}");
    assert_eq!(kept(&world), refreshed[1], "{what}");
    is_nowhere(&world, &[&outcome.out(), &outcome.err()]);
}

#[test]
fn a_refresh_token_that_cannot_be_written_back_is_told_and_none_is_used_before() {
    let name = "a_refresh_token_that_cannot_be_written_back_is_told_and_none_is_used_before";
    let Some(world) = world(name, "good", "") else {
        return;
    };
    let file = format!("file = '{}/refresh'", world.top().display());
    // A variable is nothing that could be written: it is told once, and the run goes on.
    refreshed_by(&world, "short", "environment = 'REFRESH'");
    let script = format!("{}; sleep 5; {}", got(ONE), got("/v1/two"));
    let command = "\"$ATOLL\" run --discard \"$@\"";
    let run = on_servers(&world, SERVERS, NAMES, command)
        .env("CLIENT_SECRET", SECRETS[0].1)
        .env("GIVEN", SECRETS[3].1)
        .env("REFRESH", SECRETS[1].1);
    let run = run.args(["sh", "--profile", "bound", "--", "sh", "-c", &script]);
    let outcome = run.run();
    assert_eq!(outcome.out().matches("welcome").count(), 2, "{outcome}");
    let told = "and the new one not written to the variable REFRESH";
    assert_eq!(outcome.err().matches(told).count(), 1, "{outcome}");
    is_nowhere(&world, &[&outcome.out(), &outcome.err(), &ledger(&world)]);

    // What lies there in its place is not written through; it waits until that can be.
    refreshed_by(&world, "link", &file);
    let script = format!(
        "{}; echo; {CURL} https://example.com/v1/restored; sleep 1.5; {}",
        got(ONE),
        got("/v1/two")
    );
    let outcome = online(&world, &script);
    let what = format!("{outcome}\n{:?}", noted(&world, "requests"));
    assert!(
        outcome.out().contains("could not be written back"),
        "{what}"
    );
    assert!(outcome.out().contains("symbolic link"), "{what}");
    assert!(!noted(&world, "requests").join("").contains(ONE), "{what}");
    assert_eq!(noted(&world, "refreshed"), [kept(&world)], "{what}");
    is_nowhere(&world, &[&outcome.out(), &outcome.err()]);

    // What somebody has put there meanwhile stays, and nothing of another is written.
    for (how, why) in [
        ("theirs", "somebody has put another refresh token"),
        ("same-refresh", "it is the value of another credential"),
    ] {
        world.write(world.top().join("refresh"), SECRETS[1].1);
        refreshed_by(&world, how, &file);
        let outcome = online(&world, &got(ONE));
        assert!(outcome.out().contains(why), "{how}: {outcome}");
        assert!(noted(&world, "requests").is_empty(), "{how}: {outcome}");
        let kept = kept(&world);
        assert_eq!(kept == SECRETS[1].1, how == "same-refresh", "{how}");
        assert!(!noted(&world, "refreshed").contains(&kept), "{how}");
        assert_ne!(kept, SECRETS[3].1, "{how}");
    }
}

#[test]
fn a_run_that_is_killed_while_a_refresh_token_is_replaced_has_used_nothing_that_is_not_written() {
    let name = "a_run_that_is_killed_while_a_refresh_token_is_replaced_has_used_nothing_that_is_not_written";
    let Some(world) = world(name, "good", "") else {
        return;
    };
    let file = format!("file = '{}/refresh'", world.top().display());
    let asked = world.top().join("internet/asked-for");
    for (how, pause) in [
        ("rotates-slowly", "0"),
        ("good", "0"),
        ("good", "0.01"),
        ("good", "0.03"),
        ("good", "0.1"),
    ] {
        world.write(world.top().join("refresh"), SECRETS[1].1);
        refreshed_by(&world, how, &file);
        let killed = format!(
            "sh -c '\"$ATOLL\" run --discard \"$@\" & until grep -q token \"{}\" 2>/dev/null; do sleep 0.01; done; \
             sleep {pause}; kill -9 $!; wait; true' sh \"$@\"",
            asked.display()
        );
        let outcome = online_as(&world, &killed, &format!("{}; true", got(ONE)));
        let what = format!("{how} {pause}: {outcome}\n{:?}", noted(&world, "requests"));
        let refreshed = noted(&world, "refreshed");
        assert_eq!(refreshed.len(), 1, "{what}");
        let kept = kept(&world);
        let is_new = kept == refreshed[0];
        assert!(is_new || kept == SECRETS[1].1, "{what}");
        let is_used = !noted(&world, "requests").is_empty();
        assert!(is_new || !is_used, "{what}");
        assert!(how == "good" || !is_new, "{what}");
    }
    // The control: no lock is left, and a whole run has it written and used.
    world.write(world.top().join("refresh"), SECRETS[1].1);
    let outcome = online(&world, &got(ONE));
    assert!(outcome.out().contains("welcome"), "{outcome}");
    assert_eq!(noted(&world, "refreshed"), [kept(&world)], "{outcome}");
}

/// A policy that forbids connecting to the issuer of tokens, or using the credential, has none
/// requested.
#[test]
fn a_token_is_not_asked_for_where_a_policy_closes_the_way() {
    let name = "a_token_is_not_asked_for_where_a_policy_closes_the_way";
    let Some(world) = world(name, "good", "") else {
        return;
    };
    let script = format!("{CURL} {AUTH} https://example.com/v1/one; true");
    let own = world.config().join("atoll/own.cedar");
    for (action, resource) in [
        ("connect", "resource == Host::\"another.example\""),
        ("resolve", "resource == Host::\"another.example\""),
        ("request", "resource == Host::\"another.example\""),
        ("use_credential", "resource == Credential::\"api\""),
    ] {
        world.write(
            &own,
            format!("forbid(principal, action == Action::\"{action}\", {resource});\n"),
        );
        let outcome = online(&world, &script);
        assert!(asked_for(&world).is_empty(), "{action} {outcome}");
    }
    fs::remove_file(own).unwrap();
    let outcome = online(&world, &script);
    assert_eq!(asked_for(&world).len(), 1, "{outcome}");
}
