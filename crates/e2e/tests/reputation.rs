//! The reputation that an agent has earned, by the ledger: one call is moved by it through allow,
//! ask and deny.

use e2e::internet::{Seen, events, is_possible, online};
use e2e::{Outcome, World};
use serde_json::Value;

const CURL: &str = "curl -sS -m 5 --noproxy '*' -w '%{http_code}\\n'";
/// A call that hardly any program makes except to break out.
const ATTEMPT: &str = "python3 -c 'import ctypes; ctypes.CDLL(None).mount(b\"none\", b\"/mnt\", b\"tmpfs\", 0, None)'";

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Became {
    Allowed,
    /// The request waited for an approval, and was sent nowhere.
    Asked,
    Denied,
}
use Became::{Allowed, Asked, Denied};

fn own(world: &World, text: &str) {
    world.write(world.config().join("atoll/own.cedar"), text);
}

/// Sets policies that ask below 8 points, and deny below 4.
fn moved(world: &World) {
    own(
        world,
        "@id(\"rest\") permit(principal, action == Action::\"request\", resource);\n\
         @id(\"little\") @approve(\"person\") permit(principal, action == Action::\"request\", resource) when { context.reputation < 8 };\n\
         @id(\"unknown\") forbid(principal, action == Action::\"request\", resource) unless { context.reputation >= 4 };\n",
    );
}

fn run(world: &World, options: &[&str], script: &str) -> Seen {
    online(
        world,
        &[&["--allow", "example.com"], options].concat(),
        script,
    )
}

fn post(world: &World, options: &[&str]) -> Became {
    let script = format!("{CURL} -d text http://example.com/write; true");
    let seen = run(world, options, &script);
    let asked = events(world, "approval.asked");
    let is_asked = asked.iter().any(|one| one["path"] == "/write");
    match (seen.first.contains(" /write "), is_asked) {
        (true, false) => Allowed,
        (false, true) => Asked,
        (false, false) => Denied,
        (true, true) => panic!("it went out unanswered: {}", seen.outcome),
    }
}

/// Runs a program whose changes a person applies.
fn work(world: &World, name: &str) -> String {
    let run = world.atoll(["run", "--keep", "--", "touch", name]);
    let _ = run.run().success();
    let applied = world.atoll(["apply", "last"]).run().success().to_string();
    let (_, run) = applied.split_once("atoll undo ").unwrap();
    run.split('`').next().unwrap().to_owned()
}

/// Checks the lines of an answer on standard output.
fn tells(told: &Outcome, lines: &[&str]) {
    for line in lines {
        assert!(told.out().contains(line), "{line}: {told}");
    }
}

fn earned(world: &World, profile: &str) -> Value {
    let told = world.atoll(["profile", "reputation", profile, "--json"]);
    let told = told.run().success();
    let told: Value = serde_json::from_str(&told.out()).unwrap();
    told["reputation"].clone()
}

#[test]
fn one_call_is_moved_by_what_its_agent_has_earned() {
    let world = World::new("one_call_is_moved_by_what_its_agent_has_earned");
    if !is_possible(&world, &[]) {
        return;
    }
    moved(&world);
    assert_eq!(post(&world, &[]), Denied, "it is unknown");
    // What nobody has looked at, and runs that change nothing, earn nothing.
    for number in 0..5 {
        let name = format!("unseen-{number}");
        let run = world.atoll(["run", "--apply", "--", "touch", &name]);
        let _ = run.run().success();
        assert!(world.exists(&name));
        let _ = world.atoll(["run", "--", "true"]).run().success();
    }
    assert_eq!(post(&world, &[]), Denied, "it was bought");
    let _ = work(&world, "one");
    assert_eq!(earned(&world, "default"), 4);
    assert_eq!(post(&world, &[]), Asked);
    let opened = events(&world, "run.opened");
    assert_eq!(opened[0]["decision"]["reputation"], 4, "{opened:?}");
    let _ = work(&world, "two");
    assert_eq!(post(&world, &[]), Allowed);
    // A day has its end.
    let three = work(&world, "three");
    assert_eq!(earned(&world, "default"), 8);
    let told = world.atoll(["profile", "reputation"]).run().success();
    tells(
        &told,
        &["default: 8 of 100", "8 earned by 3 runs, 0 lost by 0 runs"],
    );
    // It is the profile's own, and a session of another name changes nothing.
    assert_eq!(post(&world, &["--profile", "rust"]), Denied);
    assert_eq!(post(&world, &["--session", "fresh"]), Allowed);
    // As it is asked about without a run.
    let ask = |options: &[&str]| {
        let ask = world.atoll(["policy", "ask", "request", "example.com"]);
        ask.args(options).run().code()
    };
    assert_eq!(ask(&[]), 0);
    assert_eq!(ask(&["--reputation", "8"]), 0);
    assert_eq!(ask(&["--reputation", "3"]), 126);
    assert_eq!(ask(&["--profile", "rust"]), 126);
    // What is taken back was not good, and costs besides.
    let _ = world.atoll(["undo", &three]).run().success();
    assert_eq!(earned(&world, "default"), 0);
    assert_eq!(post(&world, &[]), Denied);
}

/// A run's violations count for itself at once, and for those that follow.
#[test]
fn an_attempt_takes_from_a_run_that_goes_on() {
    let world = World::new("an_attempt_takes_from_a_run_that_goes_on");
    if !is_possible(&world, &[]) {
        return;
    }
    moved(&world);
    let _ = work(&world, "one");
    let _ = work(&world, "two");
    let until_denied = format!(
        "for i in $(seq 100); do [ \"$({CURL} -o /dev/null -d text http://example.com/after)\" = 403 ] && echo denied && break; sleep 0.2; done"
    );
    // The control: who does no such thing goes on.
    let quiet = run(
        &world,
        &[],
        &format!("for i in 1 2 3; do {CURL} -o /dev/null -d text http://example.com/quiet; done"),
    );
    assert_eq!(quiet.output(), "200\n200\n200", "{}", quiet.outcome);
    let script =
        format!("{CURL} -o /dev/null -d text http://example.com/before; {ATTEMPT}; {until_denied}");
    let seen = run(&world, &[], &script);
    assert_eq!(seen.output(), "200\ndenied", "{}", seen.outcome);
    assert_eq!(events(&world, "attempt.seen").len(), 1);
    assert_eq!(earned(&world, "default"), 0);
    assert_eq!(post(&world, &[]), Denied);
}

/// The commands and policies of docs/reputation.md.
#[test]
fn what_is_written_about_reputation_works() {
    let world = World::new("what_is_written_about_reputation_works");
    let text = include_str!("../../../docs/reputation.md");
    let policies = text.split("```cedar").nth(1).unwrap();
    own(&world, policies.split("```").next().unwrap());
    let ask = |options: &[&str]| {
        let ask = world.atoll([
            "policy",
            "ask",
            "request",
            "api.example.com",
            "--method",
            "POST",
        ]);
        ask.args(options).run()
    };
    let new = ask(&["--reputation", "12"]).expect_status(126);
    tells(&new, &["with @approve", "policy new"]);
    // Of whom nothing is known is asked about too, and not forbidden.
    let unknown = ask(&[]).expect_status(126);
    tells(&unknown, &["with @approve", "policy new"]);
    tells(&ask(&["--reputation", "30"]).success(), &["allowed"]);
    let _ = ask(&["--reputation", "101"]).expect_status(125);
    let told = world.atoll(["profile", "reputation"]).run().success();
    tells(&told, &["default: 0 of 100"]);
    let told = world.atoll(["profile", "reputation", "codex", "--json"]);
    let told: Value = serde_json::from_str(&told.run().success().out()).unwrap();
    assert_eq!(told["profile"], "codex");
    let explained = world.atoll(["policy", "explain", "request", "api.example.com", "--json"]);
    let file = world.config().join("atoll/own.cedar").display().to_string();
    let explained = explained.args(["--method", "POST", "--reputation", "29", "--file", &file]);
    let explained: Value = serde_json::from_str(&explained.run().out()).unwrap();
    let facts = explained["facts"].as_array().unwrap();
    let own = facts.iter().find(|fact| fact["member"] == "reputation");
    assert!(own.is_some(), "{explained}");
}

/// A ledger that nobody can vouch for earns nothing, and the run states why.
#[test]
fn an_altered_ledger_makes_everybody_unknown() {
    let world = World::new("an_altered_ledger_makes_everybody_unknown");
    let _ = work(&world, "one");
    own(
        &world,
        "@id(\"known\") forbid(principal, action == Action::\"run\", resource) unless { context.reputation >= 4 };\n",
    );
    let run = || world.atoll(["run", "--", "true"]).run();
    let _ = run().success();
    let segment = world.state().join("atoll/ledger/000001.seg");
    let whole = std::fs::read_to_string(&segment).unwrap();
    let altered = whole.replacen("\"profile\":\"default\"", "\"profile\":\"defauld\"", 1);
    assert_ne!(altered, whole);
    std::fs::write(&segment, altered).unwrap();
    run().expect_status(126).says([
        "cannot tell how profile default has behaved, so its reputation is 0",
        "policy known",
    ]);
    tells(
        &world.atoll(["profile", "reputation"]).run().success(),
        &["default: 0 of 100", "nothing is known"],
    );
}
