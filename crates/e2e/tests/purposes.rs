//! The purpose of a session: it narrows runs, changes and requests, and nothing inside widens it.

use std::fs;

use e2e::internet::{Seen, events, is_possible, on_internet, online};
use e2e::{Outcome, World, fine};

const CURL: &str = "curl -sS -m 5 --noproxy '*' -w '%{http_code}\\n'";
/// An agent whose model is one of two hosts that its profile lets it reach.
const AGENT: &str = "[trust]\nendpoints = [\"example.com\"]\n\
                     [network]\nallow = [\"example.com\", \"other.example\"]\n";
const ALL: [&str; 8] = [
    "review",
    "fix",
    "tests",
    "documentation",
    "dependencies",
    "release",
    "research",
    "data-analysis",
];

/// Runs a script with these options, without a network.
fn run(world: &World, options: &[&str], script: &str) -> Outcome {
    let run = world.atoll(["run", "--keep"]).args(options);
    run.args(["--", "sh", "-c", script]).run()
}

fn apply(world: &World, further: &[&str]) -> Outcome {
    world.atoll(["apply", "last"]).args(further).run()
}

/// Returns a member of the last run's recorded decision.
fn decision(world: &World, member: &str) -> String {
    let opened = events(world, "run.opened");
    opened[0]["decision"][member]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_review_reaches_its_model_and_nobody_else() {
    let world = World::new("a_review_reaches_its_model_and_nobody_else");
    if !is_possible(&world, &[]) {
        return;
    }
    world.profile("agent", AGENT);
    let script = format!(
        "{CURL} -d text http://example.com/model; {CURL} http://other.example/elsewhere; true"
    );
    let with = |options: &[&str]| {
        online(
            &world,
            &[&["--profile", "agent"], options].concat(),
            &script,
        )
    };
    // The control: without a purpose both arrive.
    let open = with(&[]);
    assert!(open.first.contains("POST /model"), "{}", open.outcome);
    assert!(open.first.contains("GET /elsewhere"), "{}", open.outcome);
    let review = with(&["--purpose", "review"]);
    assert!(review.first.contains("POST /model"), "{}", review.outcome);
    assert!(!review.first.contains("/elsewhere"), "{}", review.outcome);
    assert!(
        !review
            .asked
            .iter()
            .any(|name| name.contains("other.example"))
    );
    assert_eq!(decision(&world, "purpose"), "review");
    assert_eq!(decision(&world, "purpose-policies"), "purpose/review.cedar");
    let why = fine(&world, &["why", "last"]);
    for word in [
        "review, narrowed by purpose/review.cedar",
        "purpose-review-hosts",
        "other.example",
    ] {
        assert!(why.out().contains(word), "{word}: {why}");
    }
    // Reading is research, and a program is told whom to ask.
    let research = with(&["--purpose", "research"]);
    assert!(
        research.first.contains("GET /elsewhere"),
        "{}",
        research.outcome
    );
    let script = format!("{CURL} -d text http://other.example/sent");
    let options = ["--profile", "agent", "--purpose", "research"];
    let sent = online(&world, &options, &script);
    assert!(!sent.first.contains("/sent"), "{}", sent.outcome);
    assert!(sent.output().ends_with("403"), "{}", sent.outcome);
    for word in [
        "purpose-research-sends",
        "only a person starts one for another purpose",
    ] {
        assert!(sent.output().contains(word), "{word}: {}", sent.outcome);
    }
}

#[test]
fn what_belongs_to_a_purpose_is_taken_over_and_nothing_else() {
    let world = World::new("what_belongs_to_a_purpose_is_taken_over_and_nothing_else");
    let script = "mkdir -p docs/deep && echo guide > docs/deep/guide.md";
    let both = &format!("{script} && echo code > code.rs");
    // The control: without a purpose all of it is taken over.
    let _ = run(&world, &[], both).success();
    let _ = apply(&world, &[]).success();
    assert!(world.exists("code.rs") && world.exists("docs/deep/guide.md"));
    let _ = fine(&world, &["undo", "last"]);
    let _ = run(&world, &["--purpose", "documentation"], both).success();
    let refused = apply(&world, &[]).expect_status(126);
    refused.says(["purpose-documentation-files", "code.rs"]);
    assert!(!world.exists("code.rs") && !world.exists("docs/deep/guide.md"));
    let _ = apply(&world, &["docs"]).success();
    assert!(!world.exists("code.rs") && world.exists("docs/deep/guide.md"));
    let _ = run(
        &world,
        &["--purpose", "review"],
        "echo more >> docs/deep/guide.md",
    )
    .success();
    apply(&world, &[])
        .expect_status(126)
        .says(["purpose-review-changes"]);
    assert_eq!(world.read("docs/deep/guide.md"), "guide\n");
    // Nor at the end of the run itself, and straight into the workspace not at all.
    let at_once = run(
        &world,
        &["--purpose", "review", "--apply"],
        "echo at-once > new.md",
    );
    assert!(!world.exists("new.md"), "{at_once}");
    let live = run(
        &world,
        &["--purpose", "review", "--live"],
        "echo live > new.md",
    );
    assert_eq!(live.code(), 126, "{live}");
    live.says(["purpose-review-live", "--purpose NAME"]);
    assert!(!world.exists("new.md"));
}

/// A kept layer of an agent's home comes from many runs: if one of them was narrowed, that counts
/// for the whole layer.
#[test]
fn what_a_narrowed_run_keeps_is_not_taken_over_later() {
    let world = World::new("what_a_narrowed_run_keeps_is_not_taken_over_later");
    world.profile("agent", "[home]\nkeep = [\".agent\"]\n");
    let history = world.home().join(".agent/history.jsonl");
    world.write(&history, "before\n");
    let say = |options: &[&str]| {
        let run = world.atoll(["run", "--profile", "agent"]).args(options);
        let said = "echo said >> ~/.agent/history.jsonl";
        run.args(["--", "sh", "-c", said]).run().success()
    };
    let apply = || world.atoll(["kept", "apply", "agent"]).run();
    let _ = say(&[]);
    let _ = apply().success();
    assert_eq!(world.read(&history), "before\nsaid\n");
    let _ = say(&["--purpose", "documentation"]);
    let _ = say(&[]);
    apply()
        .expect_status(126)
        .says(["purpose-documentation-elsewhere"]);
    assert_eq!(world.read(&history), "before\nsaid\n");
}

/// Variables, files and the program itself have no say in the purpose of a run.
#[test]
fn nothing_inside_changes_what_a_run_is_for() {
    let world = World::new("nothing_inside_changes_what_a_run_is_for");
    if !is_possible(&world, &[]) {
        return;
    }
    world.profile("agent", AGENT);
    fs::copy(
        std::env::var("ATOLL_BIN").unwrap(),
        world.path("atoll-inside"),
    )
    .unwrap();
    let script = format!(
        "export ATOLL_PURPOSE=research PURPOSE=research; \
         mkdir -p ~/.config/atoll .config/atoll; \
         for place in ~/.config/atoll .; do \
             echo 'permit(principal, action, resource);' > $place/review.purpose.cedar; \
             echo 'permit(principal, action, resource);' > $place/atoll.cedar; \
             echo 'trust.purpose = \"research\"' > $place/atoll.toml; \
         done; \
         ./atoll-inside run --purpose research -- true && echo started; \
         for what in last --all \"$ATOLL_RUN\"; do \
             if ./atoll-inside policy reload $what 2> told && ! grep -q 'No run' told; \
             then echo taken; fi; \
         done; \
         {CURL} -d text http://example.com/model; \
         {CURL} http://other.example/elsewhere; touch changed; true"
    );
    let options = "--keep --profile agent --purpose review --env PURPOSE=research";
    let run = on_internet(&world, "\"$ATOLL\" run \"$@\"").arg("sh");
    let run = run
        .args(options.split(' '))
        .args(["--", "sh", "-c", &script]);
    let seen = Seen::of(&world, run.run());
    assert!(seen.first.contains("POST /model"), "{}", seen.outcome);
    assert!(!seen.first.contains("/elsewhere"), "{}", seen.outcome);
    assert!(!seen.output().contains("taken"), "{}", seen.outcome);
    assert_eq!(decision(&world, "purpose"), "review");
    assert_eq!(events(&world, "policy.reloaded").len(), 0);
    apply(&world, &["changed"])
        .expect_status(126)
        .says(["purpose-review-changes"]);
    assert!(!world.exists("changed"));
    assert!(!world.config().join("atoll/review.purpose.cedar").exists());
}

#[test]
fn a_session_keeps_its_purpose() {
    let world = World::new("a_session_keeps_its_purpose");
    let with = |options: &[&str]| run(&world, options, "touch a.md");
    let purpose = || decision(&world, "purpose");
    let _ = with(&["--session", "look", "--purpose", "review"]).success();
    let _ = with(&["--session", "look"]).success();
    assert_eq!(purpose(), "review");
    apply(&world, &[])
        .expect_status(126)
        .says(["purpose-review-changes"]);
    let other = with(&["--session", "look", "--purpose", "fix"]);
    other.is_clear_error([
        "\"review\"",
        "a session has one purpose",
        "begin another session",
    ]);
    let _ = with(&["--session", "look", "--purpose", "review"]).success();
    // What goes on in its layers is for the same.
    let _ = with(&["--resume", "last"]).success();
    assert_eq!(purpose(), "review");
    let other = with(&["--resume", "last", "--purpose", "fix"]);
    other.is_clear_error(["\"review\"", "a session has one purpose"]);
    // The control: a session that is for nothing yet takes one, and another session its own.
    let _ = with(&["--session", "plain"]).success();
    assert_eq!(purpose(), "");
    let _ = with(&["--session", "plain", "--purpose", "documentation"]).success();
    let _ = with(&["--session", "plain"]).success();
    assert_eq!(purpose(), "documentation");
}

/// A purpose added by a project is not the person's own, and still stays with the session.
#[test]
fn what_a_project_adds_stays_with_its_session_and_what_is_resumed() {
    let world = World::new("what_a_project_adds_stays_with_its_session_and_what_is_resumed");
    world.write("atoll.toml", "[trust]\npurpose = \"review\"\n");
    let _ = fine(&world, &["trust"]);
    let with = |options: &[&str]| {
        let _ = run(&world, options, "date +%N > a.rs").success();
        let opened = events(&world, "run.opened");
        opened[0]["decision"]["purposes"].clone()
    };
    let refused = || {
        apply(&world, &["a.rs"])
            .expect_status(126)
            .says(["purpose-review-changes"]);
        assert!(!world.exists("a.rs"));
    };
    let both = serde_json::json!(["fix", "review"]);
    let review = serde_json::json!(["review"]);
    assert_eq!(with(&["--session", "s", "--purpose", "fix"]), both);
    refused();
    assert_eq!(with(&["--session", "plain"]), review);
    // The project's word is gone: what it has narrowed is narrowed.
    fs::remove_file(world.path("atoll.toml")).unwrap();
    assert_eq!(with(&["--session", "s"]), both);
    assert_eq!(decision(&world, "purpose"), "fix");
    refused();
    assert_eq!(with(&["--resume", "last"]), both);
    assert_eq!(with(&["--resume", "last"]), both);
    refused();
    assert_eq!(with(&["--session", "plain"]), review);
    assert_eq!(decision(&world, "purpose"), "");
    let why = fine(&world, &["why", "last"]).out();
    assert!(why.contains("narrowed by purpose/review.cedar"), "{why}");
    // The control: a session of its own has none of it.
    assert!(with(&["--session", "other"]).is_null());
    let _ = apply(&world, &["a.rs"]).success();
    assert!(world.exists("a.rs"));
}

/// A person's policy permits by the purpose of a run, which a project's file cannot set.
#[test]
fn a_project_cannot_say_a_purpose_by_which_a_policy_permits() {
    let world = World::new("a_project_cannot_say_a_purpose_by_which_a_policy_permits");
    let policy = "@id(\"only\") permit(principal, action == Action::\"run\", resource) \
                  when { context has purpose && context.purpose == \"release\" };\n\
                  permit(principal, action == Action::\"promote\", resource);\n";
    world.write(world.config().join("atoll/atoll.cedar"), policy);
    world.write("atoll.toml", "[trust]\npurpose = \"release\"\n");
    let _ = fine(&world, &["trust"]);
    let by_project = run(&world, &[], "true");
    assert_eq!(by_project.code(), 126, "{by_project}");
    // The control: a person says it.
    let _ = run(&world, &["--purpose", "release"], "true").success();
}

/// Git and editors follow a link as they do a directory.
#[test]
fn a_link_named_as_a_refused_directory_is_not_taken_over() {
    let world = World::new("a_link_named_as_a_refused_directory_is_not_taken_over");
    let script = "mkdir -p src/v && echo code > src/v/a.rs && ln -s src/v vendor && ln -s v src/w";
    let _ = run(&world, &["--purpose", "fix"], script).success();
    let refused = apply(&world, &[]).expect_status(126);
    refused.says(["purpose-fix-dependencies", "vendor"]);
    let _ = apply(&world, &["src"]).success();
    assert!(world.exists("src/w") && !world.exists("vendor"));
}

#[test]
fn a_purpose_that_permits_stops_the_runs_that_are_for_it() {
    let world = World::new("a_purpose_that_permits_stops_the_runs_that_are_for_it");
    let own = world.config().join("atoll/acme.purpose.cedar");
    world.write(&own, "// Ours.\n permit(principal, action, resource);\n");
    let place = format!("{}:2:2: a purpose only forbids", own.display());
    let refused = run(&world, &["--purpose", "acme"], "true");
    refused.is_clear_error([place.as_str()]);
    let checked = world.atoll(["policy", "check"]).run().expect_status(1);
    assert!(checked.out().contains(&place), "{checked}");
    // It is in nobody else's way.
    let _ = run(&world, &["--purpose", "review"], "true").success();
    let forbids = "// Nothing of ours is read.\n@id(\"acme-changes\") @reason(\"ours stays\")\n\
                   forbid(principal, action == Action::\"promote\", resource);\n";
    world.write(&own, forbids);
    let named = ["--session", "acme", "--purpose", "acme"];
    let _ = run(&world, &named, "touch new").success();
    apply(&world, &[])
        .expect_status(126)
        .says(["acme-changes", "ours stays"]);
    // Taken away, it still holds what was made under it.
    fs::remove_file(&own).unwrap();
    apply(&world, &[])
        .expect_status(126)
        .says(["purpose acme has narrowed", "no file of it any more"]);
    assert!(!world.exists("new"));
    let told = run(&world, &["--purpose", "acme"], "true").success();
    told.says(["purpose \"acme\" narrows nothing"]);
    // What goes on with a run that it narrowed does not begin without it.
    run(&world, &["--session", "acme"], "true")
        .is_clear_error(["purpose acme has narrowed", "acme.purpose.cedar"]);
}

/// The commands of docs/purposes.md work, and the file that it writes is a purpose.
#[test]
fn the_page_about_purposes_is_as_it_says() {
    let world = World::new("the_page_about_purposes_is_as_it_says");
    let page = include_str!("../../../docs/purposes.md");
    let block = |kind: &str| {
        let begin = page.split(&format!("```{kind}\n")).nth(1).unwrap();
        begin.split("```").next().unwrap().to_owned()
    };
    let shown = block("console");
    let commands: Vec<&str> = shown
        .lines()
        .filter_map(|line| line.strip_prefix("$ atoll "))
        .collect();
    assert_eq!(commands.len(), 5);
    for command in commands {
        let status = if command.contains("policy ask") {
            126
        } else {
            0
        };
        let run = world.atoll(command.split_whitespace()).run();
        assert_eq!(run.code(), status, "{run}");
    }
    world.write(
        world.config().join("atoll/acme.purpose.cedar"),
        block("cedar"),
    );
    let listed = fine(&world, &["policy", "purposes"]).out();
    assert!(
        listed.contains("acme") && listed.contains("Looks after the handbook"),
        "{listed}"
    );
    let written = "mkdir handbook; echo a > handbook/a.md";
    let _ = run(&world, &["--purpose", "acme"], written).success();
    let _ = apply(&world, &[]).success();
    assert!(world.exists("handbook/a.md"));
    let _ = run(&world, &["--purpose", "acme"], "echo b > b.md").success();
    apply(&world, &[]).expect_status(126).says(["handbook"]);
    // The table of what ships names each of them.
    for name in ALL {
        assert!(
            page.matches(&format!("| `{name}` |")).count() == 2,
            "{name}"
        );
    }
}

#[test]
fn purposes_are_listed_shown_and_asked() {
    let world = World::new("purposes_are_listed_shown_and_asked");
    let listed = fine(&world, &["policy", "purposes"]).out();
    for name in ALL {
        let line = listed.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.len() > 60, "{line}");
        let shown = fine(&world, &["policy", "show", "--purpose", name]).out();
        let printed = fine(&world, &["policy", "purposes", name]).out();
        assert!(shown.contains(&printed), "{shown}");
        assert!(shown.contains(&format!("purpose-{name}-live")), "{shown}");
    }
    let all = fine(&world, &["policy", "purposes", "--json"]).json();
    assert_eq!(all.as_array().unwrap().len(), ALL.len());
    world
        .atoll(["policy", "purposes", "reviews"])
        .run()
        .is_clear_error(["reviews", "did you mean \"review\"?"]);
    let guide = world.path("docs/guide.md");
    let guide = guide.to_str().unwrap();
    let ask = |purpose: &str| {
        let ask = ["policy", "ask", "promote", guide, "--purpose", purpose];
        world.atoll(ask).run()
    };
    let _ = ask("documentation").success();
    let denied = ask("review").expect_status(126);
    assert!(
        denied.out().contains("purpose-review-changes")
            && denied.out().contains("(purpose/review.cedar:"),
        "{denied}"
    );
    let explained = ["policy", "explain", "promote", guide, "--purpose", "review"];
    let explained = world.atoll(explained).run().expect_status(126);
    for word in ["purpose-review-changes", "a review changes nothing"] {
        assert!(explained.out().contains(word), "{word}: {explained}");
    }
}
