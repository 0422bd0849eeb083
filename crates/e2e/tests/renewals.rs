//! Expired logins of agents: renewed outside, by one request for all that wait, and written back to
//! the host's file before the new token is used.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use e2e::holders;
use e2e::internet::{events, is_possible, on_servers};
use e2e::{Outcome, World};
use serde_json::Value;

const SERVERS: &str = include_str!("renewals/servers.py");
const NAMES: &[&str] = &["example.com", "other.example", "another.example"];
const CURL: &str = "curl -sS -m 90 --noproxy '*'";
const AUTH: &str = "-H \"Authorization: Bearer $(field access)\"";
/// The tokens in the file at the beginning.
const OLD: &str = "tok-f1rstT0kenOfTh1sT3stWh1chN0bodyM4yS33in1";
const REFRESH: &str = "ref-f1rstT0kenOfTh1sT3stWh1chN0bodyM4yS33in1";
const ID: &str = "idt-f1rstT0kenOfTh1sT3stWh1chN0bodyM4yS33in1";
/// Another credential.
const GIVEN: &str = "giv-enT0kenOfTh1sT3stWh1chN0bodyM4yS33in0000";

/// The shell function by which a program in the sandbox reads a value of its login.
const FIELD: &str =
    "field() { sed -n \"s/.*\\\"$1\\\":\\\"\\([^\\\"]*\\)\\\".*/\\1/p\" ~/.agent/auth.json; }; ";

fn login(expires: &str) -> String {
    format!(
        "{{\n  \"mode\": \"chat\",\n  \"tokens\": {{\"access\": \"{OLD}\", \"refresh\": \"{REFRESH}\",\n    \
         \"id\": \"{ID}\"{expires}}},\n  \"last\": \"2023-11-14T00:00:00Z\", \"other\" : [1, 2.50]\n}}\n"
    )
}

/// A time long past, in the form of some agents.
const ENDED: &str = ", \"expires\": 1700000000000";

/// Returns a world with a login that is renewed in the way that the path names.
fn world(name: &str, how: &str, expires: &str) -> Option<World> {
    let world = World::new(name);
    to_go(&world, how);
    fs::create_dir_all(world.home().join(".agent")).unwrap();
    world.write(auth(&world), login(expires));
    fs::set_permissions(auth(&world), fs::Permissions::from_mode(0o600)).unwrap();
    world.write(world.top().join("login"), auth(&world).to_str().unwrap());
    world.write(world.top().join("refresh"), REFRESH);
    world.write(world.top().join("given"), GIVEN);
    for one in [OLD, REFRESH, ID, GIVEN] {
        world.canary(one, &["refresh", "given", "home/.agent/auth.json"]);
    }
    is_possible(&world, &["openssl"]).then_some(world)
}

fn to_go(world: &World, how: &str) {
    let (form, further) = match how {
        "kept" => ("form", ""),
        "published" => ("form", "published-sent = true, "),
        _ => ("json", ""),
    };
    world.profile(
        "agent",
        &format!(
            "[network]\nallow = ['example.com', 'other.example', 'another.example']\n[home]\nlayer = ['.agent']\n\
             [login.agent]\nfile = '~/.agent/auth.json'\n[credential.agent]\n\
             source = {{ login = 'agent', field = 'tokens.access', renew = {{ \
             token = 'https://another.example/token/{how}', client = 'a client', {further}form = '{form}', \
             refresh = 'tokens.refresh', id = 'tokens.id', expires = 'tokens.expires', noted = 'last' }} }}\n\
             to = 'example.com'\npaths = ['/v1/**']\nplace = {{ header = 'authorization', form = 'Bearer {{}}' }}\n\
             [credential.agent-renewal]\nsource = {{ login = 'agent', field = 'tokens.refresh' }}\n\
             to = 'another.example'\npaths = ['/token/**']\nplace = {{ refresh = 'refresh_token' }}\n\
             [credential.given]\nsource = {{ environment = 'GIVEN' }}\nto = 'other.example'\n\
             place = {{ header = 'x-key' }}\n"
        ),
    );
}

fn auth(world: &World) -> PathBuf {
    world.home().join(".agent/auth.json")
}

/// Runs a shell script in a sandbox, where the servers are.
fn online(world: &World, script: &str) -> Outcome {
    online_as(world, "\"$ATOLL\" run --keep \"$@\"", script)
}

fn online_as(world: &World, command: &str, script: &str) -> Outcome {
    let run = on_servers(world, SERVERS, NAMES, command).env("GIVEN", GIVEN);
    let script = format!("{FIELD}{script}");
    run.args(["sh", "--profile", "agent", "--", "sh", "-c", &script])
        .run()
}

/// Returns the servers' records of a name, line by line.
fn noted(world: &World, name: &str) -> Vec<String> {
    let text = fs::read_to_string(world.top().join("internet").join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn asked_for(world: &World) -> Vec<Value> {
    let lines = noted(world, "asked-for");
    lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Checks that no token is in the output, nor on disk but in the login's file and where the test
/// and the servers have put it.
fn is_nowhere(world: &World, said: &Outcome) {
    let all = [noted(world, "issued"), noted(world, "refreshed")].concat();
    let first = [OLD, REFRESH, GIVEN].map(str::to_owned);
    let top = world.top().display().to_string();
    let own = |line: &&str| {
        let is_of_test = ["refresh", "given", "internet/issued", "internet/refreshed"];
        let is_of_test = is_of_test
            .iter()
            .any(|name| *line == format!("{top}/{name}"));
        let noted = ["internet/requests", "internet/asked-for"];
        let is_noted = noted.iter().any(|name| *line == format!("{top}/{name}"));
        is_of_test || is_noted || auth(world).to_str() == Some(line)
    };
    for text in first.iter().chain(&all) {
        world.canary(text, &["refresh", "given", "home/.agent/auth.json"]);
        assert!(
            !said.out().contains(text) && !said.err().contains(text),
            "{text}: {said}"
        );
        let grep = world.host("grep").args(["-rlaF", text]).arg(world.top());
        let found = grep.run().out();
        let others: Vec<&str> = found.lines().filter(|line| !own(line)).collect();
        assert_eq!(others, Vec::<&str>::new(), "{text}: {said}");
    }
}

/// Returns the login's file as it is to be now.
fn renewed(world: &World, expires: bool) -> Value {
    let text = fs::read_to_string(auth(world)).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let access = noted(world, "issued").pop().unwrap();
    let refresh = noted(world, "refreshed").pop().unwrap();
    assert_eq!(value["tokens"]["access"], access, "{text}");
    assert_eq!(value["tokens"]["refresh"], refresh, "{text}");
    // All else as it was written.
    assert!(text.contains("\"other\" : [1, 2.50]\n}"), "{text}");
    assert!(
        text.starts_with("{\n  \"mode\": \"chat\",\n  \"tokens\": {"),
        "{text}"
    );
    assert_eq!(text.contains("expires"), expires, "{text}");
    let mode = fs::metadata(auth(world)).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let beside = fs::read_dir(world.home().join(".agent")).unwrap().count();
    assert_eq!(beside, 1);
    value
}

#[test]
fn a_login_that_has_ended_is_renewed_and_written_back() {
    let name = "a_login_that_has_ended_is_renewed_and_written_back";
    let Some(world) = world(name, "good", ENDED) else {
        return;
    };
    let script = format!(
        "cat ~/.agent/auth.json; echo; {CURL} -i {AUTH} https://example.com/v1/one; {CURL} {AUTH} https://example.com/v1/two; \
         R=$(field refresh); echo \"inside $(field access) $R\"; \
         {CURL} -H 'Content-Type: application/json' -d \"{{\\\"grant_type\\\":\\\"refresh_token\\\",\\\"refresh_token\\\":\\\"$R\\\"}}\" \
         https://another.example/token/good; echo; \
         {CURL} -d \"refresh_token=$R\" https://other.example/token/good; \
         {CURL} -H \"X-Refresh: $R\" https://another.example/token/good; \
         ls -A ~/.agent; cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
    );
    let outcome = online(&world, &script);
    let what = format!(
        "{outcome}\n{:?}\n{:?}",
        noted(&world, "requests"),
        asked_for(&world)
    );
    assert_eq!(outcome.out().matches("welcome").count(), 2, "{what}");
    // It was asked once, as the agent itself asks, and what the program sent went nowhere.
    let asked = asked_for(&world);
    assert_eq!(asked.len(), 1, "{what}");
    assert_eq!(asked[0]["kind"], "application/json", "{what}");
    assert_eq!(asked[0]["form"]["refresh_token"], REFRESH, "{what}");
    assert_eq!(asked[0]["form"]["client_id"], "a client", "{what}");
    let requests = noted(&world, "requests");
    assert_eq!(requests.len(), 2, "{what}");
    let issued = noted(&world, "issued");
    assert!(
        requests.iter().all(|one| one.contains(&issued[0])),
        "{what}"
    );
    let value = renewed(&world, true);
    let expires = value["tokens"]["expires"].as_u64().unwrap();
    assert!(expires > 1_700_000_000_000, "{value}");
    assert!(value["tokens"]["id"].as_str().unwrap() != ID, "{value}");
    assert_ne!(value["last"], "2023-11-14T00:00:00Z", "{value}");
    // The program is answered by what it has already.
    let line = |begins: &str| -> String {
        let out = outcome.out();
        let mut lines = out.lines().filter(|line| line.starts_with(begins));
        lines
            .next()
            .unwrap_or_else(|| panic!("{begins}: {what}"))
            .to_owned()
    };
    let answer: Value = serde_json::from_str(&line("{\"access_token\"")).unwrap();
    let inside = line("inside ");
    let mut inside = inside.split(' ').skip(1);
    assert_eq!(answer["access_token"], inside.next().unwrap(), "{what}");
    assert_eq!(answer["refresh_token"], inside.next().unwrap(), "{what}");
    assert!(answer["expires_in"].as_u64().unwrap() > 3000, "{what}");
    // Elsewhere it is an alert, in its own place too where it is no body.
    let refused = events(&world, "flow.refused");
    let alerts = refused.iter().filter(|one| one.get("credential").is_some());
    assert_eq!(alerts.count(), 2, "{refused:?}");
    let fetched = events(&world, "flow.opened");
    let fetched = fetched.iter().find(|one| one["kind"] == "fetch");
    assert!(
        fetched.is_some_and(|one| one["host"] == "another.example"),
        "{what}"
    );
    is_nowhere(&world, &outcome);
    // The person is told that their file is another one.
    let told = "login agent: renewed at 20";
    assert!(outcome.err().contains(told), "{what}");
    let file = auth(&world).display().to_string();
    assert!(outcome.err().replace('\n', " ").contains(&file), "{what}");
    // The next run begins with it, and asks nobody.
    let again = online(
        &world,
        &format!("{CURL} {AUTH} https://example.com/v1/three; true"),
    );
    assert!(asked_for(&world).is_empty(), "{again}");
    assert!(again.out().contains("who are you"), "{again}");
    assert!(!again.err().contains(told), "{again}");
    is_nowhere(&world, &again);
}

#[test]
fn a_login_that_its_host_refuses_is_renewed_though_nobody_knows_its_end() {
    let name = "a_login_that_its_host_refuses_is_renewed_though_nobody_knows_its_end";
    let Some(world) = world(name, "kept", "") else {
        return;
    };
    let script = format!(
        "for one in 1 2 3; do {CURL} {AUTH} https://example.com/v1/$one; done; \
         {CURL} -d \"refresh_token=$(field refresh)\" https://another.example/token/kept"
    );
    let outcome = online(&world, &script);
    assert_eq!(outcome.out().matches("who are you").count(), 1, "{outcome}");
    assert_eq!(outcome.out().matches("welcome").count(), 2, "{outcome}");
    assert!(outcome.out().contains("\"expires_in\":3"), "{outcome}");
    let asked = asked_for(&world);
    assert_eq!(asked.len(), 1, "{outcome} {asked:?}");
    assert_eq!(asked[0]["kind"], "application/x-www-form-urlencoded");
    // A refresh token that holds stays.
    let value = renewed(&world, false);
    assert_eq!(value["tokens"]["refresh"], REFRESH);
    assert_eq!(value["tokens"]["id"], ID);
    is_nowhere(&world, &outcome);
}

#[test]
fn many_that_want_a_login_at_once_have_it_renewed_once_in_two_runs_too() {
    let name = "many_that_want_a_login_at_once_have_it_renewed_once_in_two_runs_too";
    let Some(world) = world(name, "slow", ENDED) else {
        return;
    };
    let script = format!(
        "R=$(field refresh); A=$(field access); for one in $(seq 25); do \
         {CURL} -H \"Authorization: Bearer $A\" https://example.com/v1/$one & \
         {CURL} -d \"refresh_token=$R\" https://another.example/token/slow & done; wait"
    );
    let both = "sh -c '\"$ATOLL\" run --discard \"$@\" & \"$ATOLL\" run --discard \"$@\" & wait' sh \"$@\"";
    let outcome = online_as(&world, both, &script);
    let what = format!("{outcome}\n{:?}", asked_for(&world));
    assert_eq!(outcome.out().matches("welcome").count(), 50, "{what}");
    assert_eq!(
        outcome.out().matches("\"access_token\"").count(),
        50,
        "{what}"
    );
    assert_eq!(asked_for(&world).len(), 1, "{what}");
    let _ = renewed(&world, true);
    is_nowhere(&world, &outcome);
}

#[test]
fn an_issuer_that_answers_otherwise_changes_no_login() {
    let name = "an_issuer_that_answers_otherwise_changes_no_login";
    for (how, said) in [
        ("other", "value of another credential"),
        ("other-refresh", "value of another credential"),
        ("redirect", "it leads elsewhere (307)"),
        ("refused", "invalid_grant: log in again outside"),
        ("page", "not of the type application/json"),
        ("mac", "another type than Bearer"),
    ] {
        let Some(world) = world(name, how, ENDED) else {
            return;
        };
        let script = format!(
            "{CURL} {AUTH} https://example.com/v1/one; echo; \
             {CURL} -d \"refresh_token=$(field refresh)\" https://another.example/token/{how}; true"
        );
        let outcome = online(&world, &script);
        assert_eq!(outcome.out().matches(said).count(), 2, "{how}: {outcome}");
        assert!(noted(&world, "requests").is_empty(), "{how}: {outcome}");
        assert_eq!(asked_for(&world).len(), 1, "{how}: {outcome}");
        assert_eq!(
            fs::read_to_string(auth(&world)).unwrap(),
            login(ENDED),
            "{how}"
        );
        is_nowhere(&world, &outcome);
    }
}

#[test]
fn a_login_that_somebody_has_changed_meanwhile_stays_theirs() {
    let name = "a_login_that_somebody_has_changed_meanwhile_stays_theirs";
    let Some(world) = world(name, "theirs", ENDED) else {
        return;
    };
    let script =
        format!("{CURL} {AUTH} https://example.com/v1/one; ls -A ~/.agent; cat ~/.agent/*");
    let outcome = online(&world, &script);
    assert!(outcome.out().contains("welcome"), "{outcome}");
    let text = fs::read_to_string(auth(&world)).unwrap();
    assert!(text.contains("\"theirs\": true"), "{text}");
    let theirs = noted(&world, "issued").pop().unwrap();
    assert!(text.contains(&theirs), "{text}");
    let requests = noted(&world, "requests");
    assert!(requests[0].contains(&theirs), "{requests:?}");
    assert!(!outcome.out().contains(&theirs), "{outcome}");
}

#[test]
fn a_login_that_cannot_be_written_back_is_kept_until_it_can_be() {
    let name = "a_login_that_cannot_be_written_back_is_kept_until_it_can_be";
    let Some(world) = world(name, "link", ENDED) else {
        return;
    };
    let script = format!(
        "{CURL} {AUTH} https://example.com/v1/one; echo; {CURL} https://example.com/v1/restored; \
         sleep 1.5; {CURL} {AUTH} https://example.com/v1/two"
    );
    let outcome = online(&world, &script);
    let requests = noted(&world, "requests");
    let what = format!("{outcome} {requests:?}");
    // Nothing is written through the link, and the token is not used before it is on disk.
    assert!(
        outcome.out().contains("could not be written back"),
        "{what}"
    );
    assert!(outcome.out().contains("symbolic link"), "{what}");
    assert_eq!(requests.len(), 2, "{what}");
    assert!(outcome.out().contains("welcome"), "{what}");
    // Then it is, and nobody was asked twice.
    assert_eq!(asked_for(&world).len(), 1, "{what}");
    let _ = renewed(&world, true);
    is_nowhere(&world, &outcome);
}

#[test]
fn a_run_that_is_killed_while_it_renews_leaves_a_whole_login_and_no_lock() {
    let name = "a_run_that_is_killed_while_it_renews_leaves_a_whole_login_and_no_lock";
    let Some(world) = world(name, "slow", ENDED) else {
        return;
    };
    let asked = world.top().join("internet/asked-for");
    let killed = format!(
        "sh -c '\"$ATOLL\" run --discard \"$@\" & until grep -q slow \"{}\" 2>/dev/null; do sleep 0.05; done; \
         kill -9 $!; wait; \"$ATOLL\" run --discard \"$@\"' sh \"$@\"",
        asked.display()
    );
    let script = format!("{CURL} {AUTH} https://example.com/v1/one; true");
    let outcome = online_as(&world, &killed, &script);
    let what = format!("{outcome}\n{:?}", asked_for(&world));
    // The issuer has given what nobody has got: so it does not know the old one any more.
    assert_eq!(asked_for(&world).len(), 2, "{what}");
    assert!(
        outcome
            .out()
            .contains("invalid_grant: log in again outside"),
        "{what}"
    );
    assert_eq!(fs::read_to_string(auth(&world)).unwrap(), login(ENDED));
    assert!(noted(&world, "requests").is_empty(), "{what}");
    is_nowhere(&world, &outcome);
}

#[test]
fn a_run_that_ends_while_a_login_is_renewed_has_it_written_back() {
    let name = "a_run_that_ends_while_a_login_is_renewed_has_it_written_back";
    // It takes longer than anything else is waited for at the end.
    let Some(world) = world(name, "slower", ENDED) else {
        return;
    };
    let script = format!(
        "{CURL} {AUTH} https://example.com/v1/one >/dev/null 2>&1 & \
         until {CURL} https://other.example/asked | grep -qx asked; do sleep 0.1; done; echo left"
    );
    let outcome = online(&world, &script);
    let what = format!("{outcome}\n{:?}", asked_for(&world));
    assert!(outcome.out().contains("left"), "{what}");
    assert_eq!(asked_for(&world).len(), 1, "{what}");
    // Nobody waited for it inside any more.
    assert!(noted(&world, "requests").is_empty(), "{what}");
    let _ = renewed(&world, true);
    is_nowhere(&world, &outcome);
}

/// A program's request to renew its login is sent nowhere, and is a use of the login all the same.
#[test]
fn a_login_that_policies_do_not_let_be_used_is_not_renewed() {
    let name = "a_login_that_policies_do_not_let_be_used_is_not_renewed";
    let Some(world) = world(name, "good", ENDED) else {
        return;
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let end = now.unwrap().as_secs() + 20;
    let forbid = format!(
        "@id(\"late\") forbid(principal, action == Action::\"use_credential\", resource == Credential::\"agent\") when {{ context.time >= {end} }};\n"
    );
    world.write(world.config().join("atoll/own.cedar"), forbid);
    let renew = "-H 'Content-Type: application/json' -d \"{\\\"refresh_token\\\":\\\"$(field refresh)\\\"}\" https://another.example/token/good";
    let script = format!(
        "until [ $(date +%s) -ge {end} ]; do sleep 0.2; done; {CURL} -w ' %{{http_code}}' {renew}; \
         {CURL} https://other.example/asked"
    );
    let outcome = online(&world, &script);
    let out = outcome.out();
    assert!(out.contains("forbidden by policy late"), "{outcome}");
    assert!(out.contains(" 403") && out.contains("not yet"), "{outcome}");
    assert!(!out.contains("own.cedar"), "{outcome}");
    assert_eq!(asked_for(&world), Vec::<Value>::new(), "{outcome}");
    assert_eq!(fs::read_to_string(auth(&world)).unwrap(), login(ENDED));
    is_nowhere(&world, &outcome);
}

/// Some agents' makers have published a secret of their client: it is learned from the agent.
#[test]
fn what_an_agents_makers_have_published_is_heard_from_the_agent_itself() {
    let name = "what_an_agents_makers_have_published_is_heard_from_the_agent_itself";
    let Some(world) = world(name, "published", ENDED) else {
        return;
    };
    let renew = |secret: &str| {
        format!(
            "{CURL} -d \"grant_type=refresh_token&refresh_token=$(field refresh){secret}\" \
             https://another.example/token/published; echo; "
        )
    };
    let wrong = [
        "",
        "&client_secret=a&client_secret=b",
        "&client_secret=a%20b",
        "&client_secret=$GIVEN",
        "&client_secret=an0ther-one",
    ];
    let wrong: String = wrong.map(renew).concat();
    // After one that has not worked it waits, as after each failure.
    let right = renew("&client_secret=publ1shed-By_its.makers")
        .replace("; echo; ", " | grep access_token >worked;");
    let other = renew("&client_secret=an0ther-one");
    let script = format!(
        "{CURL} {AUTH} https://example.com/v1/one; echo; {wrong} echo then; \
         until {right} test -s worked; do sleep 0.2; done; cat worked; {other} \
         {CURL} {AUTH} https://example.com/v1/two"
    );
    let outcome = online(&world, &script);
    let asked = asked_for(&world);
    let what = format!("{outcome}\n{asked:?}");
    let out = outcome.out();
    let (before, after) = out.split_once("then\n").expect(&what);
    // Nobody is asked before it is known, and with nothing else than what it can be.
    assert_eq!(
        before.matches("not done yet in this run").count(),
        3,
        "{what}"
    );
    for said in [
        "invalid_client",
        "letters, digits",
        "stands for a credential",
    ] {
        assert_eq!(before.matches(said).count(), 1, "{said}: {what}");
    }
    assert!(!before.contains("access_token"), "{what}");
    // Once it has worked, no other is heard.
    assert_eq!(after.matches("\"access_token\"").count(), 2, "{what}");
    assert!(after.contains("welcome"), "{what}");
    let secrets: Vec<&str> = asked
        .iter()
        .map(|one| one["form"]["client_secret"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(
        secrets,
        ["an0ther-one", "publ1shed-By_its.makers"],
        "{what}"
    );
    assert!(
        asked
            .iter()
            .all(|one| one["form"]["client_id"] == "a client"),
        "{what}"
    );
    let _ = renewed(&world, true);
    is_nowhere(&world, &outcome);
}

#[test]
fn no_process_but_the_one_that_carries_holds_a_renewed_login() {
    let name = "no_process_but_the_one_that_carries_holds_a_renewed_login";
    let Some(world) = world(name, "good", ENDED) else {
        return;
    };
    for kind in ["issued", "refreshed"] {
        let _ = fs::remove_file(world.top().join("go"));
        let sought = holders::sought(&world);
        fs::create_dir_all(sought.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&sought);
        // It is there once it was issued.
        let issued = world.top().join("internet").join(kind);
        std::os::unix::fs::symlink(issued, &sought).unwrap();
        world.write(auth(&world), login(ENDED));
        let command = holders::searching(&world);
        let run = on_servers(&world, SERVERS, NAMES, &command).env("GIVEN", GIVEN);
        let script = format!(
            "{FIELD}export A=$(field access); {CURL} {AUTH} https://example.com/v1/one; echo KEY=$A; \
             sh -c 'echo READY; read go'; {CURL} {AUTH} https://example.com/v1/two"
        );
        let outcome = holders::without_variable(&world, run)
            .args(["sh", "--profile", "agent", "--", "sh", "-c", &script])
            .run();
        assert_eq!(outcome.out().matches("welcome").count(), 2, "{outcome}");
        assert_eq!(noted(&world, kind).len(), 1, "{outcome}");
        holders::expect_held_by(&world, &["atoll-egress"], &format!("{kind} {outcome}"));
        is_nowhere(&world, &outcome);
    }
}
