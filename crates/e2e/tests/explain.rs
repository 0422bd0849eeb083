//! Explanations of decisions: the rule that decides, the facts that mattered, and the changes that
//! would have allowed it.

use std::fs;

use e2e::internet::{is_possible, online};
use e2e::{Outcome, World};
use serde_json::Value;

const CURL: &str = "curl -sS -m 10 --noproxy '*'";
const POLICIES: &str = "// Reads alone.\n@id(\"reads\") @reason(\"writes go through review\")\nforbid(principal, action == Action::\"request\", resource)\nunless { [\"GET\", \"HEAD\"].contains(context.loose.method) };\n";

fn own(world: &World, text: &str) {
    world.write(world.config().join("atoll/own.cedar"), text);
}

fn explained(world: &World, words: &[&str]) -> Outcome {
    world.atoll(["policy", "explain"]).args(words).run()
}

fn json(world: &World, words: &[&str]) -> Value {
    let told = explained(world, words).out();
    serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"))
}

/// Returns the texts of the steps of the first change.
fn first_change(told: &Value) -> Vec<String> {
    let steps = told["changes"][0]["steps"].as_array().unwrap();
    let texts = steps.iter().map(|step| step["text"].as_str().unwrap());
    texts.map(str::to_owned).collect()
}

#[test]
fn what_decides_is_told_with_its_text_and_the_facts_that_matter() {
    let world = World::new("what_decides_is_told_with_its_text_and_the_facts_that_matter");
    own(&world, POLICIES);
    world.profile("api", "[network]\nallow = [\"api.example.com\"]\n");
    let post = [
        "request",
        "api.example.com",
        "--method",
        "POST",
        "--path",
        "/v1/items",
        "--profile",
        "api",
    ];
    let told = explained(&world, &post).expect_status(126);
    for words in [
        "own.cedar:2",
        "@id(\"reads\") @reason(\"writes go through review\")",
        "unless { [\"GET\", \"HEAD\"].contains(context.loose.method) };",
        "method is POST: with GET it would be allowed",
    ] {
        assert!(told.out().contains(words), "{words}\n{told}");
    }
    // Small letters are meant as that too.
    let small = post.map(|word| if word == "POST" { "post" } else { word });
    let told_of_small = explained(&world, &small).expect_status(126);
    assert!(told_of_small.out().starts_with("POST "), "{told_of_small}");
    // What does not matter is not told.
    assert!(!told.out().contains("path is"), "{told}");
    let read = [&["request", "api.example.com"], &post[6..]].concat();
    let told = explained(&world, &read).success();
    assert!(
        told.out().contains("with POST it would be denied"),
        "{told}"
    );
    // A fact that a policy names, and none that it does not.
    own(
        &world,
        "@id(\"task\") forbid(principal, action == Action::\"connect\", resource) when { context has task && context.task == \"mail\" };\n",
    );
    let words = [
        "connect",
        "api.example.com",
        "--profile",
        "api",
        "--task",
        "mail",
    ];
    let told = json(&world, &[&words[..], &["--json"]].concat());
    assert_eq!(told["effect"], "deny", "{told}");
    let facts = told["facts"].as_array().unwrap();
    let members: Vec<&str> = facts
        .iter()
        .map(|one| one["member"].as_str().unwrap())
        .collect();
    assert_eq!(members, ["task"], "{told}");
}

/// The confidence that an agent states and the labels that a session has touched are given with a
/// question, and are reported where they matter.
#[test]
fn labels_and_confidence_are_asked_with_and_told_where_they_matter() {
    let world = World::new("labels_and_confidence_are_asked_with_and_told_where_they_matter");
    world.profile("api", "[network]\nallow = [\"api.example.com\"]\n");
    own(
        &world,
        "@id(\"unsure\") forbid(principal, action == Action::\"request\", resource) when { context has confidence && context.confidence < 50 };\n\
         @id(\"leaks\") forbid(principal, action == Action::\"request\", resource) when { context has labels && context.labels.contains(\"customers\") };\n",
    );
    let question = ["request", "api.example.com", "--profile", "api"];
    for (further, status) in [
        (&[][..], 0),
        (&["--confidence", "50"], 0),
        (&["--confidence", "49"], 126),
        (&["--label", "private"], 0),
        (&["--label", "private", "--label", "customers"], 126),
        (&["--label", "secret:key", "--confidence", "100"], 0),
        // What is typed stands in the place of what is said in TOML.
        (&["--with", "confidence = 1"], 126),
        (&["--with", "confidence = 1", "--confidence", "99"], 0),
        (&["--with", "labels = ['customers']", "--label", "a"], 0),
    ] {
        let words = [&question[..], further].concat();
        let asked = world.atoll(["policy", "ask"]).args(&words).run();
        let _ = asked.expect_status(status);
        let _ = explained(&world, &words).expect_status(status);
    }
    let facts = |further: &[&str]| -> Vec<[String; 4]> {
        let told = json(&world, &[&question[..], further, &["--json"]].concat());
        let facts = told["facts"].as_array().unwrap().iter();
        let member = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
        let all = facts.map(|one| ["member", "now", "other", "then"].map(|name| member(one, name)));
        all.collect()
    };
    let unsure = facts(&["--confidence", "49"]);
    assert_eq!(unsure, [["confidence", "49", "50", "allow"]], "{unsure:?}");
    let leaks = facts(&["--label", "private", "--label", "customers"]);
    let wanted = ["labels", "customers, private", "private", "allow"];
    assert_eq!(leaks, [wanted], "{leaks:?}");
    for (option, wrong) in [
        ("--confidence", "101"),
        ("--confidence", "-1"),
        ("--label", ""),
        ("--label", "a b"),
        ("--label", "private,untrusted"),
        ("--label", "secret:"),
    ] {
        let typed = format!("{option}={wrong}");
        let words = [&question[..], &[&typed]].concat();
        let refused = world.atoll(["policy", "ask"]).args(&words).run();
        let refused = refused.expect_status(125);
        assert!(refused.err().contains(option), "{option}={wrong} {refused}");
    }
    // What comes with Atoll is told of too.
    fs::remove_file(world.config().join("atoll/own.cedar")).unwrap();
    world.profile(
        "api",
        "[network]\nallow = [\"api.example.com\"]\n[labels]\nprivate = [\"~/notes\"]\n",
    );
    let both = [
        "--method",
        "POST",
        "--label",
        "private",
        "--label",
        "untrusted",
    ];
    let told = facts(&both);
    let wanted = ["labels", "private, untrusted", "untrusted", "allow"];
    assert!(told.contains(&wanted.map(str::to_owned)), "{told:?}");
    let _ = explained(&world, &[&question[..], &both[..4]].concat()).success();
}

/// Each suggested change is carried out as stated, and allows the action, which is denied without
/// it.
#[test]
fn what_is_told_to_allow_something_allows_it() {
    let world = World::new("what_is_told_to_allow_something_allows_it");
    world.profile("closed", "[network]\nallow = [\"api.example.com\"]\n");
    let words = [
        "request",
        "other.example",
        "--method",
        "POST",
        "--path",
        "/v1/a",
        "--profile",
        "closed",
    ];
    // A rule is missing, a policy forbids, and another permits only others.
    own(
        &world,
        "@id(\"reads\") forbid(principal, action == Action::\"request\", resource) unless { context.method == \"GET\" };\npermit(principal, action == Action::\"connect\", resource == Host::\"api.example.com\");\n",
    );
    let told = json(&world, &[&words[..], &["--json"]].concat());
    let steps = first_change(&told);
    assert_eq!(steps.len(), 3, "{told}");
    let rule = steps[0].split("allow = [").nth(1).unwrap();
    let rule = rule.rsplit_once(']').unwrap().0;
    world.profile(
        "closed",
        &format!("[network]\nallow = [\"api.example.com\", {rule}]\n"),
    );
    let _ = explained(&world, &words).expect_status(126);
    let path = world.config().join("atoll/own.cedar");
    let mut text = fs::read_to_string(&path).unwrap();
    for step in &steps[1..] {
        if let Some((_, line)) = step.split_once("one line more: ") {
            text.push_str(&format!("{line}\n"));
        } else {
            let (_, condition) = step.split_once("before its `;`: ").unwrap();
            text = text.replacen(';', &format!(" {condition};"), 1);
        }
    }
    let _ = explained(&world, &words).expect_status(126);
    own(&world, &text);
    let _ = explained(&world, &words).success();
    // It was the smallest: a neighbour is denied as before.
    let neighbour: Vec<&str> = words
        .iter()
        .map(|word| if *word == "/v1/a" { "/v1/b" } else { *word })
        .collect();
    let _ = explained(&world, &neighbour).expect_status(126);
}

#[test]
fn a_level_is_told_and_nothing_that_would_not_do() {
    let world = World::new("a_level_is_told_and_nothing_that_would_not_do");
    world.profile("api", "[network]\nallow = [\"api.example.com\"]\n");
    let words = [
        "request",
        "api.example.com",
        "--method",
        "POST",
        "--profile",
        "api",
        "--trust",
        "low",
    ];
    let told = json(&world, &[&words[..], &["--json"]].concat());
    assert_eq!(
        first_change(&told),
        ["trust it further: --trust medium"],
        "{told}"
    );
    assert_eq!(told["changes"][0]["then"], "ask", "{told}");
    let facts = told["facts"].to_string();
    assert!(
        facts.contains("\"trust\"") && facts.contains("\"method\""),
        "{told}"
    );
    // With the level that is told a person is asked, and that is what allows it then.
    let medium: Vec<&str> = words
        .iter()
        .map(|word| if *word == "low" { "medium" } else { *word })
        .collect();
    let told = json(&world, &[&medium[..], &["--json"]].concat());
    assert_eq!(told["effect"], "ask", "{told}");
    assert_eq!(told["changes"][0]["steps"][0]["kind"], "approval", "{told}");
    // A preset is a level and a mode.
    let preset = [
        "request",
        "api.example.com",
        "--method",
        "POST",
        "--profile",
        "api",
    ];
    let preset = [&preset[..], &["--preset", "production-backend"]].concat();
    let _ = explained(&world, &preset).expect_status(126);
    let asked = world.atoll(["policy", "ask"]).args(&preset).run();
    let _ = asked.expect_status(126);
    let shown = world
        .atoll(["policy", "show", "--preset", "production-backend"])
        .run()
        .success();
    assert!(shown.out().contains("level-low-sends"), "{shown}");
    // What nothing allows has no change.
    own(
        &world,
        "forbid(principal, action == Action::\"use_credential\", resource);\n",
    );
    let told = explained(&world, &["use_credential", "nobody", "--profile", "api"]);
    let told = told.expect_status(126);
    assert!(told.out().contains("none of yours allows it"), "{told}");
}

#[test]
fn what_was_refused_in_a_run_is_explained_from_the_ledger() {
    let world = World::new("what_was_refused_in_a_run_is_explained_from_the_ledger");
    own(
        &world,
        "@id(\"no-true\") forbid(principal, action == Action::\"run\", resource in Program::\"true\");\n",
    );
    let _ = world.atoll(["run", "--", "true"]).run().expect_status(126);
    let told = explained(&world, &["--run", "last"]).expect_status(126);
    for words in [
        "run true",
        "no-true",
        "own.cedar:1",
        "unless {",
        "the same rules",
    ] {
        assert!(told.out().contains(words), "{words}\n{told}");
    }
    let why = world.atoll(["why", "last"]).run().success().out();
    assert!(why.contains("take out policy no-true"), "{why}");
    if !is_possible(&world, &[]) {
        return;
    }
    own(&world, POLICIES);
    let script = format!("{CURL} http://example.com/a; {CURL} -d x http://example.com/b; true");
    let seen = online(&world, &["--allow", "example.com"], &script);
    assert!(
        seen.first.contains("/a") && !seen.first.contains("/b"),
        "{}",
        seen.first
    );
    let told = json(&world, &["--run", "last", "--json"]);
    let all = told.as_array().unwrap();
    assert_eq!(all.len(), 1, "{told}");
    assert_eq!(all[0]["path"], "/b", "{told}");
    assert_eq!(all[0]["was"], "deny", "{told}");
    assert_eq!(
        all[0]["policies"][2]["deciding"][0]["id"], "reads",
        "{told}"
    );
    assert_eq!(
        all[0]["changes"][0]["steps"][0]["kind"], "policy-condition",
        "{told}"
    );
    let why = world.atoll(["why", "last"]).run().success().out();
    for words in [
        "own.cedar:2",
        "unless { [\"GET\", \"HEAD\"]",
        "take out policy reads",
    ] {
        assert!(why.contains(words), "{words}\n{why}");
    }
    // One event by its number; what was allowed can be asked about too.
    let number = all[0]["event"].to_string();
    let told = json(&world, &["--run", "last", "--event", &number, "--json"]);
    assert_eq!(told[0]["path"], "/b", "{told}");
    // Without the policy it is allowed now.
    fs::remove_file(world.config().join("atoll/own.cedar")).unwrap();
    let told = explained(&world, &["--run", "last"]).success();
    assert!(told.out().contains("have changed since"), "{told}");
}

fn replayed(world: &World, words: &[&str]) -> (i32, Value) {
    let ended = world
        .atoll(["policy", "replay", "--json"])
        .args(words)
        .run();
    let told = serde_json::from_str(&ended.out());
    let told = told.unwrap_or_else(|error| panic!("{error}: {ended}"));
    (ended.code(), told)
}

#[test]
fn what_was_decided_is_put_again_to_other_policies() {
    let world = World::new("what_was_decided_is_put_again_to_other_policies");
    let _ = world.atoll(["run", "--", "true"]).run().success();
    let _ = world.atoll(["run", "--", "true"]).run().success();
    let _ = world.atoll(["run", "--", "echo"]).run().success();
    let (status, told) = replayed(&world, &[]);
    assert_eq!(
        (status, &told["same"], &told["runs"]),
        (0, &3.into(), &3.into()),
        "{told}"
    );
    // What is not there yet can be tried before it is put there.
    let text = "@id(\"no-true\") forbid(principal, action == Action::\"run\", resource in Program::\"true\");\n";
    world.write("tried/own.cedar", text);
    let (status, told) = replayed(&world, &["--with", "tried/own.cedar"]);
    assert_eq!((status, &told["same"]), (1, &1.into()), "{told}");
    let changed = &told["changed"][0];
    assert_eq!(changed["count"], 2, "{told}");
    assert_eq!(
        (&changed["then"], &changed["now"]),
        (&"allow".into(), &"deny".into()),
        "{told}"
    );
    assert!(
        changed["why"].as_str().unwrap().contains("no-true"),
        "{told}"
    );
    // It is as if it were there.
    own(&world, text);
    let (_, there) = replayed(&world, &[]);
    assert_eq!(there["changed"][0]["count"], 2, "{there}");
    // One of the same name stands in its place.
    world.write("tried/own.cedar", "// Nothing.\n");
    let (status, told) = replayed(&world, &["--with", "tried/own.cedar"]);
    assert_eq!((status, &told["same"]), (0, &3.into()), "{told}");
    // What was denied then is allowed without it.
    let _ = world.atoll(["run", "--", "true"]).run().expect_status(126);
    let (status, told) = replayed(&world, &["--with", "tried/own.cedar"]);
    assert_eq!(status, 1, "{told}");
    let changed = &told["changed"][0];
    assert_eq!(
        (&changed["then"], &changed["now"]),
        (&"deny".into(), &"allow".into()),
        "{told}"
    );
    // The event that is named for more is one that can be asked about.
    let (run, event) = (
        changed["run"].as_str().unwrap(),
        changed["event"].to_string(),
    );
    let more = explained(&world, &["--run", run, "--event", &event]);
    assert!(more.expect_status(126).out().contains("run true"), "{told}");
    // Nothing is of a time that has not come.
    let (status, told) = replayed(&world, &["--since", "2999-01-01"]);
    assert_eq!((status, &told["decisions"]), (0, &0.into()), "{told}");
    let wrong = world
        .atoll(["policy", "replay", "--since", "yesterday"])
        .run();
    wrong.expect_status(125).says(["--since 7d"]);
    world.write("tried/own.cedar", "permit(principal;\n");
    let wrong = world
        .atoll(["policy", "replay", "--with", "tried/own.cedar"])
        .run();
    wrong.expect_status(125).says(["own.cedar:1:"]);
}

#[test]
fn requests_of_the_ledger_are_put_again_and_what_is_not_recorded_is_counted() {
    let world =
        World::new("requests_of_the_ledger_are_put_again_and_what_is_not_recorded_is_counted");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!(
        "{CURL} http://example.com/a; {CURL} -d x http://example.com/b; \
         {CURL} http://other.example/c; true"
    );
    let seen = online(&world, &["--allow", "example.com"], &script);
    assert!(
        seen.first.contains("/a") && seen.first.contains("/b"),
        "{}",
        seen.first
    );
    let (status, told) = replayed(&world, &[]);
    assert_eq!(
        (status, &told["not-put"]),
        (0, &Value::Array(Vec::new())),
        "{told}"
    );
    let all = told["decisions"].as_u64().unwrap();
    assert!(all >= 4, "{told}");
    own(&world, POLICIES);
    let (status, told) = replayed(&world, &[]);
    assert_eq!(
        (status, told["changed"].as_array().unwrap().len()),
        (1, 1),
        "{told}"
    );
    let changed = &told["changed"][0];
    assert_eq!(changed["what"], "POST http://example.com:80/…", "{told}");
    assert_eq!(
        (&changed["then"], &changed["now"]),
        (&"allow".into(), &"deny".into()),
        "{told}"
    );
    let text = world.atoll(["policy", "replay"]).run().expect_status(1);
    for words in [
        "denied    POST http://example.com:80/…, 1 time, was allowed",
        "policy reads",
        "atoll policy explain --run",
        "bodies and queries",
    ] {
        assert!(text.out().contains(words), "{words}\n{text}");
    }
    // Of what a policy looks at and nobody has recorded nothing is said.
    own(
        &world,
        "forbid(principal, action == Action::\"request\", resource) when { context has query };\n",
    );
    let (_, told) = replayed(&world, &[]);
    assert_eq!(told["not-put"][0]["count"], 2, "{told}");
    assert_eq!(told["changed"].as_array().unwrap().len(), 0, "{told}");
}

/// The labels that a session had touched by then, and an agent's stated confidence, decide again.
#[test]
fn what_labels_and_confidence_decided_is_put_again_with_them() {
    let world = World::new("what_labels_and_confidence_decided_is_put_again_with_them");
    if !is_possible(&world, &[]) {
        return;
    }
    own(
        &world,
        "@id(\"rest\") permit(principal, action == Action::\"request\", resource);\n\
         @id(\"unsure\") forbid(principal, action == Action::\"request\", resource) when { context has confidence && context.confidence < 50 };\n\
         @id(\"leaks\") forbid(principal, action == Action::\"request\", resource) when { context.sends && context has labels && context.labels.contains(\"untrusted\") };\n",
    );
    // What the first one answers is nobody's word: it is the label.
    let script = format!(
        "{CURL} -d x http://example.com/early; {CURL} -d x http://example.com/late; \
         {CURL} -H 'Atoll-Confidence: 50' http://example.com/sure; \
         {CURL} -H 'Atoll-Confidence: 40' http://example.com/unsure; true"
    );
    let options = ["--session", "one", "--allow", "example.com"];
    let seen = online(&world, &options, &script);
    let came = ["/early", "/late", "/sure", "/unsure"].map(|path| seen.first.contains(path));
    assert_eq!(came, [true, false, true, false], "{}", seen.outcome);
    let refused = |words: &[&str]| -> Vec<[Value; 5]> {
        let told = json(&world, &[&["--run", "last", "--json"], words].concat());
        let members = ["path", "was", "effect", "labels", "confidence"];
        let all = told.as_array().unwrap().iter();
        all.map(|one| members.map(|member| one[member].clone()))
            .collect()
    };
    let untrusted = serde_json::json!(["untrusted"]);
    let deny = || Value::from("deny");
    assert_eq!(
        refused(&[]),
        [
            [
                "/late".into(),
                deny(),
                deny(),
                untrusted.clone(),
                Value::Null
            ],
            [
                "/unsure".into(),
                deny(),
                deny(),
                untrusted.clone(),
                40.into()
            ],
        ]
    );
    // The next run of the session begins with the label, another one without.
    let script = format!("{CURL} -d x http://example.com/next; true");
    let _ = online(&world, &options, &script);
    let next = ["/next".into(), deny(), deny(), untrusted, Value::Null];
    assert_eq!(refused(&[]), [next]);
    let text = explained(&world, &["--run", "last"]).expect_status(126);
    assert!(text.out().contains("untrusted, by then"), "{text}");
    let other = online(&world, &options[2..], &script);
    assert!(other.first.contains("/next"), "{}", other.outcome);
    // Nothing is otherwise; without the policies three of them would be.
    let (status, told) = replayed(&world, &[]);
    assert_eq!(
        (status, &told["changed"]),
        (0, &serde_json::json!([])),
        "{told}"
    );
    world.write("tried/own.cedar", "// Nothing.\n");
    let (status, told) = replayed(&world, &["--with", "tried/own.cedar"]);
    let changed = told["changed"].as_array().unwrap();
    let counts = changed.iter().map(|one| one["count"].as_u64().unwrap());
    assert_eq!((status, counts.sum::<u64>()), (1, 3), "{told}");
}

/// A right that a run had given up by then is denied again, and nothing would allow it.
#[test]
fn what_was_given_up_is_put_again_as_given_up() {
    let world = World::new("what_was_given_up_is_put_again_as_given_up");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!(
        "{CURL} http://example.com/before; \
         {CURL} --json '{{\"deny-hosts\": [\"example.com\"]}}' http://atoll.internal/restrict; \
         {CURL} http://example.com/after; true"
    );
    let options = ["--session", "one", "--allow", "example.com"];
    let seen = online(&world, &options, &script);
    let came = ["/before", "/after"].map(|path| seen.first.contains(path));
    assert_eq!(came, [true, false], "{}", seen.outcome);
    let given = e2e::internet::events(&world, "rights.given-up");
    assert_eq!(given.len(), 1, "{}", seen.outcome);
    let _ = online(
        &world,
        &options,
        &format!("{CURL} http://example.com/next; true"),
    );
    let told = json(&world, &["--run", "last", "--json"]);
    let all = told.as_array().unwrap();
    assert!(!all.is_empty(), "{told}");
    for one in all {
        assert_eq!(
            (&one["was"], &one["effect"]),
            (&"deny".into(), &"deny".into())
        );
        let why = one["rules"].as_str().unwrap();
        assert!(
            why.contains("given up") && why.contains("example.com"),
            "{told}"
        );
        assert_eq!(one["changes"], serde_json::json!([]), "{told}");
    }
    let text = explained(&world, &["--run", "last"]).expect_status(126);
    assert!(text.out().contains("is not taken back"), "{text}");
    let (status, told) = replayed(&world, &[]);
    assert_eq!(
        (status, &told["changed"]),
        (0, &serde_json::json!([])),
        "{told}"
    );
    assert_eq!(told["not-put"], serde_json::json!([]), "{told}");
}

#[test]
fn what_is_learnt_of_a_run_lets_it_through_again_and_no_neighbour_of_it() {
    let world = World::new("what_is_learnt_of_a_run_lets_it_through_again_and_no_neighbour_of_it");
    world.write("tried/keep", "");
    let _ = world.atoll(["run", "--", "true"]).run().success();
    let learnt = |words: &[&str]| {
        let told = world.atoll(["policy", "learn"]).args(words).run().success();
        world.write("tried/learnt.cedar", told.out());
        let checked = world.atoll(["policy", "check", "tried/learnt.cedar"]).run();
        let checked = checked.success();
        // Nothing in it waits for what nobody asks.
        assert!(checked.err().contains(", no problems"), "{checked}");
        // It is meant to be all that is allowed.
        let closes = |line: &str| line.contains("with this permit its layer denies all else");
        assert!(checked.out().lines().all(closes), "{checked}");
        told.out()
    };
    own(&world, &learnt(&["last"]));
    let _ = world.atoll(["run", "--", "true"]).run().success();
    let _ = world.atoll(["run", "--", "echo"]).run().expect_status(126);
    let _ = world
        .atoll(["run", "--live", "--", "true"])
        .run()
        .expect_status(126);
    // From a run that was refused there is nothing to learn.
    world
        .atoll(["policy", "learn", "last"])
        .run()
        .expect_status(125)
        .says(["nothing to learn from"]);
    let path = world.config().join("atoll/own.cedar");
    fs::remove_file(&path).unwrap();
    if !is_possible(&world, &[]) {
        return;
    }
    let many: String = (0..8)
        .map(|number| format!("{CURL} http://example.com/v1/{number}; "))
        .collect();
    let script = format!("{CURL} -d x http://other.example/b; {many} true");
    let options = ["--allow", "example.com", "--allow", "other.example"];
    let seen = online(&world, &options, &script);
    assert!(
        seen.first.contains("/b") && seen.first.contains("/v1/7"),
        "{}",
        seen.first
    );
    let text = learnt(&["last"]);
    assert!(text.contains("widened to what 8 paths share"), "{text}");
    own(&world, &text);
    let again = online(&world, &options, &script);
    assert!(
        again.first.contains("/b") && again.first.contains("/v1/7"),
        "{}",
        again.outcome
    );
    // Another method, path, host and port of what is allowed besides.
    let script = format!(
        "{CURL} http://other.example/b; {CURL} -d x http://other.example/c; \
         {CURL} http://example.com/v2/x; {CURL} http://example.com/v1/8; true"
    );
    let near = online(&world, &options, &script);
    assert!(
        near.first.contains("/v1/8") && !near.first.contains("/b"),
        "{}",
        near.first
    );
    assert!(
        !near.first.contains("/c") && !near.first.contains("/v2"),
        "{}",
        near.first
    );
}

/// The ledger's list has all of its runs, also those of which nothing is kept.
#[test]
fn a_run_that_there_is_not_is_told_with_those_that_there_are() {
    let world = World::new("a_run_that_there_is_not_is_told_with_those_that_there_are");
    let run = world.atoll(["run", "--discard", "--", "true"]).run();
    let _ = run.success();
    let shown = world
        .atoll(["ledger", "show", "--json", "last"])
        .run()
        .out();
    let first: Value = serde_json::from_str(shown.lines().next().unwrap()).unwrap();
    let run = first["run"].as_str().unwrap();
    for words in [
        &["why", "zzzz"][..],
        &["policy", "explain", "--run", "zzzz"],
        &["policy", "learn", "zzzz"],
        &["ledger", "show", "--json", "zzzz"],
    ] {
        let told = world.atoll(words.iter().copied()).run();
        let told = told.expect_status(125);
        told.is_clear_error(["zzzz; the newest are", run]);
    }
    let _ = world.atoll(["why", run]).run().success();
}

#[test]
fn a_refusal_in_a_session_is_explained_by_the_same_rules() {
    let world = World::new("a_refusal_in_a_session_is_explained_by_the_same_rules");
    own(
        &world,
        "@id(\"no-true\") forbid(principal, action == Action::\"run\", resource in Program::\"true\");\n",
    );
    let run = ["run", "--session", "s3", "--", "true"];
    let _ = world.atoll(run).run().expect_status(126);
    let told = explained(&world, &["--run", "last"]).expect_status(126);
    assert!(told.out().contains("the same rules"), "{told}");
    own(
        &world,
        "@id(\"no-true\") forbid(principal, action == Action::\"run\", resource in Program::\"true\");\n\n",
    );
    let told = explained(&world, &["--run", "last"]).expect_status(126);
    assert!(told.out().contains("have changed since"), "{told}");
}

#[test]
fn what_nobody_was_asked_about_and_what_a_token_refused_is_told() {
    let world = World::new("what_nobody_was_asked_about_and_what_a_token_refused_is_told");
    let told = explained(&world, &["--event", "3"]).expect_status(125);
    assert!(
        told.err().contains("--run <RUN>") && !told.err().contains("<RESOURCE>"),
        "{told}"
    );
    if !is_possible(&world, &[]) {
        return;
    }
    own(
        &world,
        "@id(\"new\") @approve(\"person\")\npermit(principal, action == Action::\"request\", resource);\n",
    );
    let script = format!("{CURL} http://example.com/b; true");
    let seen = online(&world, &["--allow", "example.com", "--no-ask"], &script);
    assert!(!seen.first.contains("/b"), "{}", seen.first);
    let told = explained(&world, &["--run", "last"]).expect_status(126);
    for words in ["GET http://example.com:80/b", "own.cedar:1", "@id(\"new\")"] {
        assert!(told.out().contains(words), "{words}\n{told}");
    }
    fs::remove_file(world.config().join("atoll/own.cedar")).unwrap();
    let issue = ["token", "issue", "--allow", "connect example.org:80"];
    let file = world.top().join("token");
    fs::write(&file, world.atoll(issue).run().success().out()).unwrap();
    let options = ["--allow", "example.com", "--token", file.to_str().unwrap()];
    let seen = online(&world, &options, &script);
    assert!(!seen.first.contains("/b"), "{}", seen.first);
    let told = explained(&world, &["--run", "last"]).success();
    assert!(
        told.err().contains("its token's") && told.err().contains("atoll token show FILE"),
        "{told}"
    );
}

/// The places that ask for an approval differ between outgoing requests and runs or applies, and an
/// unknown group of approvers is asked nowhere.
#[test]
fn who_would_say_yes_is_told_and_where() {
    let world = World::new("who_would_say_yes_is_told_and_where");
    let text = |whom: &str| {
        let one = |action: &str| {
            format!(
                "@id(\"asks-{action}\") @approve(\"{whom}\") permit(principal, action == Action::\"{action}\", resource);\n"
            )
        };
        ["run", "promote", "request"].map(one).concat()
    };
    world.profile("api", "[network]\nallow = [\"api.example.com\"]\n");
    let questions = [
        ("promote", "/project/a", "`atoll apply`"),
        ("run", "make", "`atoll run`"),
        ("request", "api.example.com", "`atoll approvals"),
    ];
    own(&world, &text("person"));
    for (action, what, whose) in questions {
        let told = explained(&world, &[action, what, "--profile", "api"]).out();
        assert!(told.contains("a person's yes: "), "{told}");
        assert!(told.contains(whose), "{whose}: {told}");
        let others = questions.map(|(_, _, other)| other);
        let others = others.iter().filter(|other| **other != whose);
        for other in others {
            assert!(!told.contains(other), "{other}: {told}");
        }
        let asked = world.atoll(["policy", "ask", action, what]).run();
        let asked = asked.expect_status(126).out();
        assert!(
            asked.starts_with("to be approved: a person is asked by policy asks-"),
            "{asked}"
        );
        assert!(asked.contains("  by one person, "), "{asked}");
        assert!(asked.contains(whose) && !asked.contains("two"), "{asked}");
    }
    world.write(
        world.config().join("atoll/config.toml"),
        "[approvals]\nwiden = 2\napprovers = [1]\n",
    );
    let asked = world
        .atoll(["policy", "ask", "request", "api.example.com"])
        .run();
    assert!(
        asked.out().contains("what lasts takes two (widen = 2)"),
        "{asked}"
    );
    own(&world, &text("lead, person"));
    let asked = world
        .atoll(["policy", "ask", "request", "api.example.com"])
        .run();
    let asked = asked.expect_status(126).out();
    for words in [
        "to be approved: not without approval of \"lead\" and a person, by policy asks-request",
        "by \"lead\" and a person: nobody but \"person\" can be asked, so that every run is denied this",
    ] {
        assert!(asked.contains(words), "{words}: {asked}");
    }
    // What nobody can say is no way to have it allowed.
    let told = explained(&world, &["request", "api.example.com", "--profile", "api"]).out();
    assert!(!told.contains("a person's yes"), "{told}");
}
