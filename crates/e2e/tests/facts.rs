//! Facts about a run, each of which by itself moves one call through allow, ask and deny.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use e2e::internet::{Seen, events, is_possible, on_internet, online};
use e2e::{World, fine, kill, wait_until};
use rustix::process::Signal;

const CURL: &str = "curl -sS -m 5 --noproxy '*' -w '%{http_code}\\n'";

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Became {
    Allowed,
    /// The request waited for an approval, and was sent nowhere.
    Asked,
    Denied,
}
use Became::{Allowed, Asked, Denied};

/// Returns the outcome of a request for a path in the traffic seen.
fn became(world: &World, seen: &Seen, path: &str) -> Became {
    let asked = events(world, "approval.asked");
    let is_asked = asked.iter().any(|one| one["path"] == path);
    match (seen.first.contains(&format!(" {path} ")), is_asked) {
        (true, false) => Allowed,
        (false, true) => Asked,
        (false, false) => Denied,
        (true, true) => panic!("it went out unanswered: {}", seen.outcome),
    }
}

/// Returns the outcome of a post with these options, after this script.
fn post(world: &World, options: &[&str], before: &str, header: &str) -> Became {
    let script = format!("{before} {CURL} {header} -d text http://example.com/write; true");
    let options = [
        &["--allow", "example.com", "--allow", "www.example.com"],
        options,
    ]
    .concat();
    let seen = online(world, &options, &script);
    became(world, &seen, "/write")
}

fn profile(world: &World, name: &str, text: &str) -> String {
    let path = world.top().join(name);
    world.write(&path, text);
    path.display().to_string()
}

fn own(world: &World, text: &str) {
    world.write(world.config().join("atoll/own.cedar"), text);
}

const REST: &str = "@id(\"rest\") permit(principal, action == Action::\"request\", resource);\n";

/// Returns a policy that asks, and one that forbids, where a condition on the context holds.
fn moved(name: &str, asks: &str, denies: &str) -> String {
    format!(
        "{REST}@id(\"{name}-asks\") @approve(\"person\") permit(principal, action == Action::\"request\", resource) when {{ {asks} }};\n\
         @id(\"{name}-denies\") forbid(principal, action == Action::\"request\", resource) when {{ {denies} }};\n"
    )
}

#[test]
fn one_call_is_moved_by_each_fact() {
    let world = World::new("one_call_is_moved_by_each_fact");
    if !is_possible(&world, &[]) {
        return;
    }
    // Task and purpose, stated by the person; trust by its level.
    for (name, options) in [
        ("task", ["--task", "a"]),
        ("purpose", ["--purpose", "a"]),
        ("trust", ["--trust", "high"]),
    ] {
        let [option, asks] = options;
        let denies = if name == "trust" { "full" } else { "b" };
        let is = |value: &str| format!("context has {name} && context.{name} == \"{value}\"");
        own(&world, &moved(name, &is(asks), &is(denies)));
        assert_eq!(post(&world, &[], "", ""), Allowed, "{name}");
        assert_eq!(post(&world, &[option, asks], "", ""), Asked, "{name}");
        assert_eq!(post(&world, &[option, denies], "", ""), Denied, "{name}");
    }
    // Time: that of the question.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = now.as_secs();
    let (past, later) = (now - 1000, now + 100_000);
    let since = |time: u64| format!("context.time >= {time}");
    for (asks, denies, expected) in [
        (later, later, Allowed),
        (past, later, Asked),
        (past, past, Denied),
    ] {
        own(&world, &moved("time", &since(asks), &since(denies)));
        assert_eq!(post(&world, &[], "", ""), expected, "{asks} {denies}");
    }
    // Confidence, stated by the agent, percent.
    let below = |most: u8| format!("context has confidence && context.confidence < {most}");
    own(&world, &moved("confidence", &below(60), &below(20)));
    let stated = |stated: &str| {
        let header = format!("-H 'Atoll-Confidence: {stated}'");
        post(&world, &[], "", &header)
    };
    assert_eq!(post(&world, &[], "", ""), Allowed);
    assert_eq!(stated("60"), Allowed);
    assert_eq!(stated("59"), Asked);
    assert_eq!(stated("19"), Denied);
    for nonsense in [
        "101",
        "0.5",
        "high",
        "-1",
        "+1",
        "60' -H 'Atoll-Confidence: 70",
    ] {
        assert_eq!(stated(nonsense), Denied, "{nonsense}");
    }
    // Labels: what was read before.
    let has = |label: &str| format!("context has labels && context.labels.contains(\"{label}\")");
    own(&world, &moved("label", &has("untrusted"), &has("web")));
    let reading = format!("{CURL} http://www.example.com/read;");
    assert_eq!(post(&world, &[], "", ""), Allowed);
    assert_eq!(post(&world, &[], &reading, ""), Asked);
    let labelled = "@id(\"web\") @label(\"web\") permit(principal, action == Action::\"request\", resource == Host::\"www.example.com\");\n";
    own(
        &world,
        &(moved("label", &has("untrusted"), &has("web")) + labelled),
    );
    assert_eq!(post(&world, &[], &reading, ""), Denied);
    // What gave it is named, and not what else permits the request.
    own(&world, &(REST.to_owned() + labelled));
    assert_eq!(post(&world, &[], &reading, ""), Allowed);
    let gained = events(&world, "label.gained");
    let web = gained.iter().find(|one| one["label"] == "web").unwrap();
    assert_eq!(web["by"], "policy web", "{gained:?}");
}

/// A credential that was injected, by the label of its name, and a lease: each moves a call by
/// itself.
#[test]
fn a_used_credential_and_a_lease_each_move_a_call() {
    let world = World::new("a_used_credential_and_a_lease_each_move_a_call");
    if !is_possible(&world, &[]) {
        return;
    }
    let text = "[credential.api]\nsource = { environment = 'REAL' }\nto = 'www.example.com'\nscheme = 'http'\n\
                place = { header = 'x-key' }\nvariable = 'KEY'\n";
    let profile = profile(&world, "credential.toml", text);
    world.canary("r3alK3yOfTh1sT3st", &[]);
    let run = |command: &str, script: &str| {
        let run = e2e::internet::on_internet(&world, command);
        let run = run.env("REAL", "r3alK3yOfTh1sT3st").arg("sh");
        let run = run.args(["--allow", "example.com", "--allow", "www.example.com"]);
        let run = run.args(["--profile", &profile, "--", "sh", "-c", script]);
        Seen::of(&world, run.run())
    };
    let post = format!("{CURL} -d text http://example.com/write; true");
    let uses = format!("{CURL} -H \"x-key: $KEY\" http://www.example.com/read;");
    let has = |label: &str| format!("context has labels && context.labels.contains(\"{label}\")");
    let alone = "\"$ATOLL\" run --discard \"$@\"";
    for (asks, denies, used) in [
        ("secret:api", "secret:other", Asked),
        ("secret:other", "secret:api", Denied),
    ] {
        own(&world, &moved("secret", &has(asks), &has(denies)));
        for (script, expected) in [(post.clone(), Allowed), (format!("{uses} {post}"), used)] {
            let seen = run(alone, &script);
            assert_eq!(
                became(&world, &seen, "/write"),
                expected,
                "{}",
                seen.outcome
            );
        }
    }
    // A yes is to one call, but where it is for longer.
    own(
        &world,
        &moved("lease", "context.path == \"/write\"", "false"),
    );
    for (scope, asked, sent) in [("--once", 2, 1), ("--for 10m", 1, 2)] {
        let grants = format!(
            "\"$ATOLL\" run --discard \"$@\" & run=$!; \
             until \"$ATOLL\" approvals grant 1 {scope} 2>/dev/null; do sleep 0.1; done; wait $run"
        );
        let seen = run(&grants, &format!("{post}; {post}"));
        let questions = events(&world, "approval.asked");
        assert_eq!(questions.len(), asked, "{scope} {}", seen.outcome);
        assert_eq!(
            seen.first.matches(" /write ").count(),
            sent,
            "{scope} {}",
            seen.outcome
        );
    }
}

/// The confidence that an agent states allows nothing more, and is not sent on.
#[test]
fn stated_confidence_only_tightens() {
    let world = World::new("stated_confidence_only_tightens");
    if !is_possible(&world, &[]) {
        return;
    }
    let sure = "-H 'Atoll-Confidence: 100'";
    // Not even by a policy that takes itself out of the way of who is sure.
    own(
        &world,
        "@id(\"unsure\") forbid(principal, action == Action::\"request\", resource) unless { context has confidence && context.confidence > 90 };\n",
    );
    assert_eq!(post(&world, &[], "", sure), Denied);
    own(&world, "");
    let script = format!("{CURL} {sure} http://example.com/read; true");
    let seen = online(&world, &["--allow", "example.com"], &script);
    assert_eq!(became(&world, &seen, "/read"), Allowed);
    assert!(
        !seen.first.to_lowercase().contains("confidence"),
        "{}",
        seen.first
    );
    // A policy that would open something to who says so is a mistake.
    let opens = "permit(principal, action == Action::\"request\", resource) when { context has confidence && context.confidence > 90 };\n";
    let path = world.config().join("atoll/own.cedar");
    world.write(&path, opens);
    let checked = world.atoll(["policy", "check"]).run();
    assert!(
        format!("{checked}").contains("confidence can only tighten"),
        "{checked}"
    );
    assert_ne!(checked.code(), 0, "{checked}");
}

/// The rule that holds by default: private data, untrusted content, sending.
#[test]
fn what_has_read_private_data_and_untrusted_content_asks_before_it_sends() {
    let world = World::new("what_has_read_private_data_and_untrusted_content_asks_before_it_sends");
    if !is_possible(&world, &[]) {
        return;
    }
    fs::create_dir_all(world.home().join("notes")).unwrap();
    world.write(world.home().join("notes/one"), "private");
    let shown = "[home]\nread = [\"notes\"]\n";
    let private = format!("{shown}[labels]\nprivate = [\"~/notes\"]\n");
    let plain = profile(&world, "plain.toml", shown);
    let vouched = format!("{private}trusted = [\"*.example.com\"]\n");
    let model = format!("{private}[trust]\nendpoints = [\"example.com\"]\n");
    let private = profile(&world, "private.toml", &private);
    let vouched = profile(&world, "vouched.toml", &vouched);
    let model = profile(&world, "model.toml", &model);
    let reading = format!("{CURL} http://www.example.com/read;");
    let with = |profile: &str, before: &str, options: &[&str]| {
        let options = [&["--profile", profile], options].concat();
        post(&world, &options, before, "")
    };
    // Either of the two alone asks for nothing.
    assert_eq!(with(&plain, &reading, &[]), Allowed);
    assert_eq!(with(&private, "", &[]), Allowed);
    assert_eq!(with(&vouched, &reading, &[]), Allowed);
    // Both of them do, but where somebody has said otherwise, or it is the model.
    assert_eq!(with(&private, &reading, &[]), Asked);
    let gained = events(&world, "label.gained");
    assert_eq!(gained.len(), 1, "{gained:?}");
    assert_eq!(gained[0]["label"], "untrusted");
    assert_eq!(gained[0]["by"], "www.example.com");
    let opened = events(&world, "run.opened");
    assert_eq!(opened[0]["decision"]["labels"][0], "private");
    assert_eq!(with(&private, &reading, &["--no-ask"]), Denied);
    assert_eq!(with(&private, &reading, &["--mode", "strict"]), Denied);
    assert_eq!(with(&private, &reading, &["--mode", "permissive"]), Allowed);
    assert_eq!(with(&model, &reading, &[]), Allowed);
    // What was only read goes on being read.
    let script = format!("{reading} {CURL} http://example.com/more; true");
    let seen = online(
        &world,
        &[
            "--allow",
            "example.com",
            "--allow",
            "www.example.com",
            "--profile",
            &private,
        ],
        &script,
    );
    assert_eq!(became(&world, &seen, "/more"), Allowed, "{}", seen.outcome);
    // What goes both ways unseen brings in what its host says.
    let script = "curl -sS -m 5 --noproxy '*' telnet://example.com:22 </dev/null; true";
    let options = ["--allow", "example.com:22", "--profile"];
    let seen = online(&world, &[&options[..], &[&private]].concat(), script);
    assert!(seen.reached.is_empty(), "{seen:?}");
    assert_eq!(
        events(&world, "approval.asked").len(),
        1,
        "{}",
        seen.outcome
    );
    let seen = online(&world, &[&options[..], &[&plain]].concat(), script);
    assert_eq!(seen.reached.len(), 1, "{seen:?}");
}

/// Runs of one session share the labels that any of them has gained, also those of ended runs.
#[test]
fn labels_of_a_session_are_never_lost() {
    let world = World::new("labels_of_a_session_are_never_lost");
    if !is_possible(&world, &[]) {
        return;
    }
    fs::create_dir_all(world.home().join("notes")).unwrap();
    let text = "[home]\nread = [\"notes\"]\n[labels]\nprivate = [\"~/notes\"]\n";
    let private = profile(&world, "private.toml", text);
    // What carries the first one ends without a word, as soon as it has read something.
    let script = format!("{CURL} http://www.example.com/read; sleep 60");
    let command = "sh -c '\"$ATOLL\" run --session one --allow www.example.com -- sh -c \"$0\" & run=$!; \
                   until grep -qs label.gained \"$1\"/ledger/*; do sleep 0.1; done; kill -9 $run; wait $run'";
    let state = world.state().join("atoll").display().to_string();
    let ended = e2e::internet::on_internet(&world, &format!("{command} \"$@\""));
    let ended = ended.args(["sh", &script, &state]).run();
    let _ = ended;
    assert_eq!(events(&world, "label.gained")[0]["label"], "untrusted");
    let with = |options: &[&str]| post(&world, options, "", "");
    assert_eq!(with(&["--session", "one", "--profile", &private]), Asked);
    let opened = events(&world, "run.opened");
    let labels = &opened[0]["decision"]["labels"];
    assert_eq!(*labels, serde_json::json!(["private", "untrusted"]));
    // The control: neither another session nor a run of none has read it.
    assert_eq!(with(&["--session", "two", "--profile", &private]), Allowed);
    assert_eq!(with(&["--profile", &private]), Allowed);
    // Without the private place it has it all the same: it was shown to one of them.
    assert_eq!(with(&["--session", "one"]), Asked);
}

/// Runs of a session share facts in a file that is removed once none of the runs is left; the
/// labels are in the ledger.
#[test]
fn gc_removes_what_runs_of_a_session_told_each_other_and_loses_no_label() {
    let world = World::new("gc_removes_what_runs_of_a_session_told_each_other_and_loses_no_label");
    fs::create_dir_all(world.home().join("notes")).unwrap();
    let text = "[home]\nread = [\"notes\"]\n[labels]\nprivate = [\"~/notes\"]\n";
    let private = profile(&world, "private.toml", text);
    let files = || {
        let all = fs::read_dir(world.state().join("atoll/gained")).unwrap();
        let all = all.map(|one| one.unwrap().path());
        let all = all.filter(|one| !one.ends_with("lock"));
        let mut all: Vec<String> = all.map(|one| fs::read_to_string(one).unwrap()).collect();
        all.sort();
        all
    };
    let gc = || fine(&world, &["gc"]).err();
    let of = |session: &'static str| ["--discard", "--session", session, "--profile", &private];
    let _ = world.run(of("one"), "true").run().success();
    let mut going_on = world.run(of("two"), "echo begun; sleep 600").start();
    let _ = going_on.until_stdout("begun");
    let keep = ["--keep", "--session", "three", "--profile", &private];
    let _ = world.run(keep, "echo > new").run().success();
    let kept = world.last_run();
    assert_eq!(files(), ["private\n"; 3]);
    let shown = fine(&world, &["gc", "--dry-run"]).err();
    assert!(shown.contains("1 file by which"), "{shown}");
    assert_eq!(files(), ["private\n"; 3]);
    let told = gc();
    assert!(told.contains("1 file by which"), "{told}");
    assert_eq!(files(), ["private\n"; 2]);
    kill(going_on.pid(), Signal::TERM);
    wait_until("its end", Duration::from_secs(60), || going_on.status());
    let _ = gc();
    assert_eq!(files(), ["private\n"], "that of the run that is kept");
    let _ = fine(&world, &["discard", &kept]);
    let _ = gc();
    assert_eq!(files(), [""; 0]);
    // It begins with the label all the same, and whoever goes on beside it would hear of it.
    let _ = world
        .run(["--discard", "--session", "one"], "true")
        .run()
        .success();
    let opened = events(&world, "run.opened");
    let labels = &opened.last().unwrap()["decision"]["labels"];
    assert_eq!(*labels, serde_json::json!(["private"]));
    assert_eq!(files(), ["private\n"]);
}

/// A link is another name of a place: its target counts as read, whoever names it.
#[test]
fn a_private_place_by_another_name_is_private() {
    use std::os::unix::fs::symlink;
    let world = World::new("a_private_place_by_another_name_is_private");
    let (notes, other) = (world.home().join("notes"), world.home().join("other"));
    for place in [&notes, &other] {
        world.write(place.join("one"), "some data");
    }
    symlink(&notes, world.home().join("alias")).unwrap();
    symlink(&other, world.home().join("elsewhere")).unwrap();
    symlink(world.workspace(), world.home().join("work")).unwrap();
    let shown_as_private = |shown: &str, private: &str| {
        let text = format!("[home]\nread = [\"{shown}\"]\n[labels]\nprivate = [\"~/{private}\"]\n");
        let profile = profile(&world, "links.toml", &text);
        let run = world.atoll(["run", "--discard", "--profile", &profile, "--", "true"]);
        let _ = run.run().success();
        let opened = events(&world, "run.opened");
        let labels = &opened.last().unwrap()["decision"]["labels"];
        labels
            .as_array()
            .is_some_and(|all| all.contains(&"private".into()))
    };
    assert!(shown_as_private("notes", "notes"));
    // The control: another place, by whatever name.
    assert!(!shown_as_private("notes", "other"));
    assert!(!shown_as_private("notes", "elsewhere"));
    assert!(shown_as_private("notes", "alias"));
    assert!(shown_as_private("notes", "alias/one"));
    assert!(shown_as_private("alias", "notes"));
    assert!(shown_as_private("other", "work"));
}

/// Each policy counts the actions that it allows by itself.
#[test]
fn a_rate_denies_what_comes_too_often() {
    let world = World::new("a_rate_denies_what_comes_too_often");
    if !is_possible(&world, &[]) {
        return;
    }
    own(
        &world,
        "@id(\"slow\") @rate(\"2/h\") permit(principal, action == Action::\"request\", resource == Host::\"example.com\");\n\
         @id(\"free\") permit(principal, action == Action::\"request\", resource == Host::\"www.example.com\");\n",
    );
    let ask = |host: &str, path: &str| format!("{CURL} http://{host}/{path};");
    let script: String = ["a", "b", "c"]
        .iter()
        .flat_map(|path| {
            [
                ask("example.com", path),
                ask("www.example.com", &format!("o{path}")),
            ]
        })
        .collect();
    let seen = online(
        &world,
        &["--allow", "example.com", "--allow", "www.example.com"],
        &format!("{script} true"),
    );
    let all = ["/a", "/b", "/c", "/oa", "/ob", "/oc"];
    let became = all.map(|path| became(&world, &seen, path));
    assert_eq!(
        became,
        [Allowed, Allowed, Denied, Allowed, Allowed, Allowed],
        "{}",
        seen.outcome
    );
    let out = seen.output();
    assert!(
        out.contains("policy slow lets it happen 2 times in 3600 s; try again in"),
        "{out}"
    );
}

/// The page's profile, policies and commands work as described.
#[test]
fn the_page_of_labels_is_as_it_works() {
    let world = World::new("the_page_of_labels_is_as_it_works");
    let page = include_str!("../../../docs/labels.md");
    let block = |kind: &str| {
        let (_, rest) = page.split_once(&format!("```{kind}\n")).unwrap();
        rest.split("```").next().unwrap()
    };
    own(&world, block("cedar"));
    world.write(world.home().join("notes/one"), "private");
    let profile = profile(&world, "page.toml", block("toml"));
    let run = world.atoll(["run", "--discard", "--profile", &profile, "--", "true"]);
    let _ = run.run().success();
    let opened = events(&world, "run.opened");
    assert_eq!(opened[0]["decision"]["labels"][0], "private", "{opened:?}");
    let commands: Vec<&str> = block("console").lines().collect();
    assert_eq!(commands.len(), 2);
    for command in commands {
        let words = command.trim_start_matches("$ atoll ").split(' ');
        let _ = world.atoll(words).run().success();
    }
}

/// Returns a file of policies that forbids applying changes where this holds.
fn forbidding(world: &World, when: &str) {
    own(
        world,
        &format!(
            "@id(\"no\") forbid(principal, action == Action::\"promote\", resource) when {{ {when} }};\n"
        ),
    );
}

/// The facts known about a run are in the question about its changes: at its end, later, and where
/// it is only asked.
#[test]
fn what_is_known_of_a_run_counts_when_its_changes_are_taken_over() {
    let world = World::new("what_is_known_of_a_run_counts_when_its_changes_are_taken_over");
    world.write(world.home().join("notes/one"), "private");
    let text = "[home]\nread = [\"notes\"]\n[labels]\nprivate = [\"~/notes\"]\n";
    let private = profile(&world, "private.toml", text);
    let place = world.workspace().join("x").display().to_string();
    for (fact, value, options, asking) in [
        (
            "labels",
            "private",
            ["--profile", &private],
            ["--label", "private"],
        ),
        ("trust", "high", ["--trust", "high"], ["--trust", "high"]),
        ("task", "a", ["--task", "a"], ["--task", "a"]),
        ("purpose", "a", ["--purpose", "a"], ["--purpose", "a"]),
    ] {
        forbidding(
            &world,
            &match fact {
                "labels" => format!("context has labels && context.labels.contains(\"{value}\")"),
                _ => format!("context has {fact} && context.{fact} == \"{value}\""),
            },
        );
        let script = format!("echo x > {fact}");
        let run = |options: &[&str]| {
            let run = world.atoll(["run", "--apply"]).args(options);
            run.args(["--", "sh", "-c", &script]).run()
        };
        let ended = run(&options);
        assert!(!world.exists(fact), "{fact} {ended}");
        ended.says(["policy no"]);
        let refused = world.atoll(["apply", "last"]).run().expect_status(126);
        refused.says(["policy no"]);
        assert!(!world.exists(fact), "{fact} {refused}");
        for ask in ["ask", "explain"] {
            let with = [&["policy", ask, "promote", &place], &asking[..]].concat();
            let _ = world.atoll(with).run().expect_status(126);
        }
        let _ = world.atoll(["discard", "last"]).run().success();
        // The control: a run of which it is not so, and nothing else is another.
        let _ = run(&[]).success();
        assert!(world.exists(fact), "{fact}");
        let _ = world
            .atoll(["policy", "ask", "promote", &place])
            .run()
            .success();
    }
    // A run that went on with the changes of another has made those too.
    forbidding(&world, "context has task && context.task == \"a\"");
    let kept = [
        "run",
        "--keep",
        "--task",
        "a",
        "--",
        "sh",
        "-c",
        "echo x > first",
    ];
    let _ = world.atoll(kept).run().success();
    let _ = world
        .atoll(["run", "--keep", "--resume", "last", "--", "true"])
        .run()
        .success();
    let _ = world.atoll(["apply", "last"]).run().expect_status(126);
    assert!(!world.exists("first"));
}

/// Facts that are in no ledger deny, where policies ask for them.
#[test]
fn what_is_not_known_of_a_run_lets_none_of_its_changes_be_taken_over() {
    let world = World::new("what_is_not_known_of_a_run_lets_none_of_its_changes_be_taken_over");
    let keep = || {
        let run = world.atoll(["run", "--keep", "--", "sh", "-c", "echo x > made"]);
        let _ = run.run().success();
    };
    let apply = || world.atoll(["apply", "last"]).run();
    // Nobody has noted what it has touched.
    keep();
    forbidding(
        &world,
        "context has labels && context.labels.contains(\"web\")",
    );
    apply().expect_status(126).says(["noted none"]);
    assert!(!world.exists("made"));
    keep();
    let _ = apply().success();
    fs::remove_file(world.workspace().join("made")).unwrap();
    // Nobody has its beginning.
    keep();
    let ledger = world.state().join("atoll/ledger");
    fs::rename(&ledger, world.top().join("away")).unwrap();
    apply()
        .expect_status(126)
        .says(["the ledger does not know run"]);
    assert!(!world.exists("made"));
    // Where policies ask nothing of changes, nothing has to be known.
    own(&world, "");
    let _ = apply().success();
    assert!(world.exists("made"));
}

/// The confidence that an agent has stated last counts for its changes.
#[test]
fn the_confidence_that_was_stated_last_counts_for_changes() {
    let world = World::new("the_confidence_that_was_stated_last_counts_for_changes");
    if !is_possible(&world, &[]) {
        return;
    }
    forbidding(&world, "context has confidence && context.confidence < 50");
    for (stated, is_taken) in [(["10", "90"], true), (["90", "10"], false)] {
        let mut script = format!("echo x > made-{is_taken};");
        for stated in stated {
            script += &format!("{CURL} -H 'Atoll-Confidence: {stated}' http://example.com/read;");
        }
        let run = "\"$ATOLL\" run --apply --allow example.com \"$@\"";
        let run = e2e::internet::on_internet(&world, run).arg("sh");
        let ended = run.args(["--", "sh", "-c", &script]).run();
        assert_eq!(
            world.exists(format!("made-{is_taken}")),
            is_taken,
            "{ended}"
        );
    }
}

/// Two runs of one session at once: a label that one gains counts for the other from then on, and
/// is its own too. A run without a session learns nothing of it.
#[test]
fn a_label_that_one_run_of_a_session_gains_holds_in_another_that_goes_on() {
    let world = World::new("a_label_that_one_run_of_a_session_gains_holds_in_another_that_goes_on");
    if !is_possible(&world, &[]) {
        return;
    }
    own(
        &world,
        &format!(
            "{REST}@id(\"web\") @label(\"web\") permit(principal, action == Action::\"request\", resource == Host::\"www.example.com\");\n\
             @id(\"no-leaks\") forbid(principal, action == Action::\"request\", resource == Host::\"example.com\") when {{ context has labels && context.labels.contains(\"web\") }};\n"
        ),
    );
    let first = "while [ ! -e begun ]; do sleep 0.05; done; \
                 curl -sS -m 5 --noproxy '*' -o read http://www.example.com/read; touch gained";
    let second = format!(
        "{CURL} -d text http://example.com/before; touch begun; \
         while [ ! -e gained ]; do sleep 0.05; done; {CURL} -d text http://example.com/after; \
         {CURL} http://www.example.com/own; true"
    );
    world.write("first.sh", first);
    world.write("second.sh", &second);
    for (session, expected) in [("one", Denied), ("two", Allowed)] {
        for name in ["begun", "gained", "read"] {
            let _ = fs::remove_file(world.path(name));
        }
        let command = format!(
            "sh -c '\"$ATOLL\" run --live --session one --allow www.example.com -- sh first.sh & \
             \"$ATOLL\" run --live --session {session} --allow example.com --allow www.example.com -- sh second.sh; wait'"
        );
        let seen = Seen::of(&world, on_internet(&world, &command).run());
        assert!(seen.first.contains(" /before "), "{}", seen.outcome);
        assert!(seen.first.contains(" /read "), "{}", seen.outcome);
        let query = ["ledger", "query", "--type", "run.opened", "--json"];
        let opened = world.atoll(query).run().success().out();
        let of_second = opened.lines().rev().find(|line| line.contains("second.sh"));
        let of_second: serde_json::Value = serde_json::from_str(of_second.unwrap()).unwrap();
        let run = of_second["run"].as_str().unwrap();
        let is_sent = seen.first.contains(" /after ");
        assert_eq!(is_sent, expected == Allowed, "{}", seen.outcome);
        let told = world
            .atoll(["ledger", "show", "--json", run])
            .run()
            .success()
            .out();
        let is_learnt = |line: &&str| {
            line.contains("label.gained") && line.contains("another run of its session")
        };
        let learnt: Vec<&str> = told.lines().filter(is_learnt).collect();
        assert_eq!(learnt.len(), usize::from(expected == Denied), "{told}");
        if expected == Denied {
            assert!(learnt[0].contains("\"label\":\"web\""), "{told}");
            assert!(told.contains("policy no-leaks"), "{told}");
        }
    }
    // Where nobody can tell what others gain, nothing is started.
    let gained = world.state().join("atoll/gained");
    fs::remove_dir_all(&gained).unwrap();
    fs::write(&gained, "in the way").unwrap();
    let refused = world.atoll(["run", "--session", "one", "--", "true"]).run();
    assert_ne!(refused.code(), 0, "{refused}");
    let _ = world.atoll(["run", "--", "true"]).run().success();
}
