//! Policies in Cedar, of the user and of a project: their denials, and how those are reported.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use e2e::internet::{events, is_possible, on_internet, on_servers, online};
use e2e::{Outcome, World, wait_until};
use serde_json::Value;

const CURL: &str = "curl -sS -m 10 --noproxy '*'";

/// Writes a file of the user's policies.
fn own(world: &World, text: &str) {
    world.write(world.config().join("atoll/own.cedar"), text);
}

/// Runs this command alone.
fn started(world: &World, command: &[&str]) -> Outcome {
    world.atoll(["run", "--"]).args(command).run()
}

#[test]
fn a_policy_denies_a_run_and_says_where_it_is_written() {
    let world = World::new("a_policy_denies_a_run_and_says_where_it_is_written");
    own(
        &world,
        "// Nothing else.\n@id(\"git-alone\") @reason(\"it is not reviewed\")\nforbid(principal, action == Action::\"run\", resource)\nunless { resource in Program::\"echo\" };\n",
    );
    let denied = started(&world, &["true"]).expect_status(126);
    denied.says([
        "forbidden by policy git-alone, it is not reviewed",
        "own.cedar:2",
    ]);
    let why = world.atoll(["why", "last"]).run().success();
    assert!(why.out().contains("git-alone"), "{why}");
    // What it does not speak of goes on.
    assert_eq!(
        started(&world, &["echo", "hello"]).success().out(),
        "hello\n"
    );
}

#[test]
fn a_broken_policy_stops_every_run_with_line_and_column() {
    let world = World::new("a_broken_policy_stops_every_run_with_line_and_column");
    own(
        &world,
        "permit(principal, action, resource)\nwhen { context.nothing };\n",
    );
    let stopped = started(&world, &["true"]).expect_status(125);
    stopped.says(["own.cedar:2:"]);
    own(&world, "permit(principal, action, resource);\n");
    let _ = started(&world, &["true"]).success();
}

#[test]
fn a_projects_policies_count_once_trusted_and_only_take_away() {
    let world = World::new("a_projects_policies_count_once_trusted_and_only_take_away");
    let text = "@id(\"wide\") permit(principal, action == Action::\"connect\", resource == Host::\"example.com\");\n@id(\"no-echo\") forbid(principal, action == Action::\"run\", resource in Program::\"echo\");\n";
    world.write("atoll.cedar", text);
    let untrusted = started(&world, &["echo", "hello"]).success();
    untrusted.says(["atoll.cedar is not trusted"]);
    world
        .atoll(["trust"])
        .run()
        .success()
        .says(["no-echo", "is trusted with this content"]);
    started(&world, &["echo", "hello"])
        .expect_status(126)
        .says(["no-echo"]);
    let told = started(&world, &["true"]).success();
    told.says(["reaching example.com is not allowed by a project's policy (wide)"]);
    // A change ends that.
    world.write("atoll.cedar", format!("{text}// more\n"));
    started(&world, &["echo", "hello"])
        .success()
        .says(["has changed since it was trusted"]);
    let _ = world.atoll(["trust"]).run().success();
    let _ = world.atoll(["trust", "--revoke"]).run().success();
    let _ = started(&world, &["echo", "hello"]).success();
}

#[test]
fn syntax_error_shows_its_line() {
    let world = World::new("syntax_error_shows_its_line");
    world.write(
        "a.cedar",
        "permit(principal, action, resource)\nforbid(principal, action, resource);\n",
    );
    world.write("a.test.toml", "[[case]]\nname = \"a\nexpect = \"deny\"\n");
    let marked =
        "  1 | permit(principal, action, resource)\n    |                                    ^\n";
    let checked = world
        .atoll(["policy", "check", "a.cedar"])
        .run()
        .expect_status(1);
    let out = checked.out();
    assert!(
        out.contains("a.cedar:1:36: a `;` is missing") && out.contains(marked),
        "{out}"
    );
    let tested = world
        .atoll(["policy", "test", "a.cedar"])
        .run()
        .expect_status(125);
    tested.is_clear_error(["a.cedar:1:36: a `;` is missing", "1 | permit"]);
    world.write("a.cedar", "permit(principal, action, resource);\n");
    let tested = world
        .atoll(["policy", "test", "a.cedar"])
        .run()
        .expect_status(125);
    tested.is_clear_error(["line 2, column 10", "2 | name = \"a"]);
    world.write("p.toml", "[network]\nallow = [\"a\"\n");
    let checked = world
        .atoll(["profile", "check", "p.toml"])
        .run()
        .expect_status(1);
    let marked = "  2 | allow = [\"a\"\n    |             ^\n";
    let out = checked.out();
    assert!(
        out.contains("p.toml:2:13: not valid TOML") && out.contains(marked),
        "{out}"
    );
}

/// Each file counts by itself once it is trusted, in the order of their names.
#[test]
fn every_file_of_a_projects_policies_counts_once_it_is_trusted() {
    let world = World::new("every_file_of_a_projects_policies_counts_once_it_is_trusted");
    let forbid = |id: &str, program: &str| {
        format!(
            "@id(\"{id}\") forbid(principal, action == Action::\"run\", resource in Program::\"{program}\");\n"
        )
    };
    world.write("a.cedar", forbid("no-echo", "echo"));
    world.write("b.cedar", forbid("no-ls", "ls"));
    let ran = |program: &str| started(&world, &[program]);
    ran("echo")
        .success()
        .says(["a.cedar is not trusted", "b.cedar is not trusted"]);
    // Once is enough.
    let again = ran("ls").success();
    assert!(!again.err().contains("is not trusted"), "{again}");
    // One with mistakes, and none is trusted.
    world.write("c.cedar", "permit(");
    let _ = world.atoll(["trust"]).run().expect_status(125);
    let _ = ran("echo").success();
    fs::remove_file(world.workspace().join("c.cedar")).unwrap();
    let _ = world.atoll(["trust"]).run().success();
    ran("echo")
        .expect_status(126)
        .says(["no-echo", "a.cedar:1"]);
    ran("ls").expect_status(126).says(["no-ls", "b.cedar:1"]);
    let shown = world.atoll(["policy", "show"]).run().success();
    let why = world.atoll(["why", "last"]).run().success();
    let checked = world.atoll(["policy", "check"]).run().success();
    for name in ["a.cedar", "b.cedar"] {
        assert!(shown.out().contains(&format!("{name}:1")), "{shown}");
        assert!(format!("{checked}").contains(name), "{checked}");
    }
    assert!(why.out().contains("b.cedar:1"), "{why}");
    // One that comes does not count; one that changes or goes is told. The others count on.
    world.write("c.cedar", forbid("no-true", "true"));
    ran("true").success().says(["c.cedar is not trusted"]);
    let _ = ran("echo").expect_status(126);
    world.write("b.cedar", forbid("no-ls", "lz"));
    ran("ls")
        .success()
        .says(["b.cedar is not trusted: its content has changed"]);
    fs::remove_file(world.workspace().join("b.cedar")).unwrap();
    ran("ls")
        .success()
        .says(["b.cedar was trusted and is not there"]);
    let _ = ran("echo").expect_status(126);
    // What was trusted and went does not come back without a word.
    let _ = world.atoll(["trust"]).run().success();
    world.write("b.cedar", forbid("no-ls", "ls"));
    let told = ran("ls").success();
    told.says(["b.cedar is not trusted: nobody has trusted"]);
    let _ = ran("true").expect_status(126);
    let _ = world.atoll(["trust", "--revoke"]).run().success();
    let _ = ran("true").success();
    // Links are not followed, and there is an end to their number.
    fs::remove_file(world.workspace().join("b.cedar")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", world.workspace().join("b.cedar")).unwrap();
    ran("true")
        .expect_status(125)
        .says(["b.cedar is a link, and is not followed"]);
    fs::remove_file(world.workspace().join("b.cedar")).unwrap();
    for number in 0..70 {
        world.write(format!("{number}.cedar"), "");
    }
    ran("true").expect_status(125).says(["64 at most"]);
}

/// A policy that waits for an approver who is never asked is refused by a check, and reported at
/// each start.
#[test]
fn a_policy_that_waits_for_what_never_asks_is_refused_and_told() {
    let world = World::new("a_policy_that_waits_for_what_never_asks_is_refused_and_told");
    for text in [
        "forbid(principal is Agent, action, resource);",
        "forbid(principal in Agent::\"codex\", action == Action::\"connect\", resource);",
        "forbid(principal == Person::\"1000\", action == Action::\"connect\", resource);",
        "permit(principal, action, resource) unless { principal in Group::\"team\" };",
    ] {
        own(&world, &format!("// One.\n{text}\n"));
        let checked = world.atoll(["policy", "check"]).run().expect_status(1);
        assert!(
            checked.out().contains("own.cedar:2:1: "),
            "{text} {checked}"
        );
        started(&world, &["true"]).success().says(["own.cedar:2"]);
    }
    own(
        &world,
        "forbid(principal, action == Action::\"connect\", resource) when { context.profile == \"codex\" };\n",
    );
    let _ = world.atoll(["policy", "check"]).run().success();
    let told = started(&world, &["true"]).success();
    assert!(!format!("{told}").contains("own.cedar"), "{told}");
}

/// A row of 900 made the check overflow its stack, without a message.
#[test]
fn a_policy_that_is_too_deep_is_refused_by_its_name_wherever_it_is_read() {
    let world = World::new("a_policy_that_is_too_deep_is_refused_by_its_name_wherever_it_is_read");
    let head = "// One.\n@id(\"row\") forbid(principal, action == Action::\"connect\", resource)";
    let of = |clauses: &str| own(&world, &format!("{head} {clauses};\n"));
    for clauses in [
        format!("when {{ {} }}", ["true"; 900].join("||")),
        "unless { 1 < 2 }".repeat(200),
    ] {
        of(&clauses);
        let checked = world.atoll(["policy", "check"]).run().expect_status(1);
        let told = [
            "own.cedar:2:1: policy row is ",
            "operators deep",
            ".contains(x)",
        ];
        let shown = checked.out();
        assert!(told.iter().all(|one| shown.contains(one)), "{checked}");
        let refused = started(&world, &["true"]).expect_status(125);
        let _ = refused.says(told);
    }
    of(&"when { 1 < 2 }".repeat(100));
    let _ = world.atoll(["policy", "check"]).run().success();
    let _ = started(&world, &["true"]).success();
}

/// The policies that decided are recorded with every request that is sent, refused or asked about.
#[test]
fn every_flow_names_the_policies_that_decided() {
    let world = World::new("every_flow_names_the_policies_that_decided");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!(
        "{CURL} http://example.com/a; {CURL} http://example.com/no; {CURL} http://example.com/ask; true"
    );
    let path = |path: &str| format!("context.path == \"/{path}\"");
    for text in [
        String::new(),
        format!(
            "@id(\"no\") forbid(principal, action == Action::\"request\", resource) when {{ {} }};\n\
             @id(\"ask\") @approve(\"person\") permit(principal, action == Action::\"request\", resource) when {{ {} }};\n\
             @id(\"rest\") permit(principal, action == Action::\"request\", resource);\n",
            path("no"),
            path("ask")
        ),
    ] {
        own(&world, &text);
        let _ = online(&world, &["--allow", "example.com"], &script);
        let opened = events(&world, "run.opened");
        let version = &opened[0]["decision"]["policy"];
        assert!(
            version.as_str().unwrap().starts_with("sha256:"),
            "{opened:?}"
        );
        for kind in ["flow.opened", "flow.refused", "approval.asked"] {
            let told = events(&world, kind);
            assert_eq!(
                told.is_empty(),
                kind != "flow.opened" && text.is_empty(),
                "{kind}"
            );
            assert!(told.iter().all(|one| one["policy"] == *version), "{told:?}");
        }
    }
    let why = world.atoll(["why", "last"]).run().success();
    assert!(why.out().contains("they refused something"), "{why}");
}

/// A run's changes to the file are held back as changes to a file that other programs read.
#[test]
fn a_run_does_not_write_its_projects_policies() {
    let world = World::new("a_run_does_not_write_its_projects_policies");
    let script = "echo 'permit(principal, action, resource);' > atoll.cedar; echo x > a";
    let ended = world
        .atoll(["run", "--apply", "--", "sh", "-c", script])
        .run();
    ended.says(["not applied without --control", "atoll.cedar"]);
    assert!(world.exists("a") && !world.exists("atoll.cedar"));
}

#[test]
fn policies_refuse_changes_before_any_is_taken_over() {
    let world = World::new("policies_refuse_changes_before_any_is_taken_over");
    let place = world.workspace();
    let place = place.display();
    own(
        &world,
        &format!(
            "@id(\"no-secret\") forbid(principal, action == Action::\"promote\", resource in Path::\"{place}/secret\");\n"
        ),
    );
    let script = "mkdir secret; echo x > secret/key; echo y > open";
    let _ = world
        .atoll(["run", "--keep", "--", "sh", "-c", script])
        .run()
        .success();
    let refused = world.atoll(["apply", "last"]).run().expect_status(126);
    refused.says(["no-secret", "secret/key"]);
    assert!(!world.exists("open") && !world.exists("secret"));
    let _ = world.atoll(["apply", "last", "open"]).run().success();
    assert!(world.exists("open") && !world.exists("secret"));
    // Without the policy the rest is.
    fs::remove_file(world.config().join("atoll/own.cedar")).unwrap();
    let _ = world.atoll(["apply", "last"]).run().success();
    assert!(world.exists("secret/key"));
}

/// An apply by a policy with `@checkpoint` can be undone, by the checkpoint that the record names.
#[test]
fn a_checkpoint_is_there_before_changes_are_taken_over() {
    let world = World::new("a_checkpoint_is_there_before_changes_are_taken_over");
    let permit = |annotation: &str| {
        format!("{annotation} permit(principal, action == Action::\"promote\", resource);\n")
    };
    world.write("old", "before");
    let work = || {
        let script = "echo after > old; echo x > new";
        let run = world.atoll(["run", "--keep", "--", "sh", "-c", script]);
        let _ = run.run().success();
    };
    // Each apply that was begun, and what it can be taken back by.
    let begun = || -> Vec<Value> {
        let told = world
            .atoll(["ledger", "show", "--json", "last"])
            .run()
            .success();
        let events = told.out();
        let events = events
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let events = events.filter(|event: &Value| event["type"] == "apply.started");
        events
            .map(|event| event["body"]["checkpoint"].clone())
            .collect()
    };
    own(&world, &permit("@checkpoint"));
    work();
    let _ = world.atoll(["apply", "last"]).run().success();
    assert_eq!(
        fs::read_to_string(world.workspace().join("old")).unwrap(),
        "after\n"
    );
    let named = begun();
    assert_eq!(named.len(), 1, "{named:?}");
    let name = named[0].as_str().unwrap();
    let runs = world.state().join("atoll/runs");
    let run = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    assert!(run.join("journals").join(name).exists(), "{name}");
    let _ = world.atoll(["undo", "last"]).run().success();
    assert_eq!(
        fs::read_to_string(world.workspace().join("old")).unwrap(),
        "before"
    );
    assert!(!world.exists("new"));
    let _ = world.atoll(["discard", "last"]).run().success();
    // Where it cannot be made, nothing is written.
    work();
    let run = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    fs::write(run.join("journals"), "").unwrap();
    let _ = world.atoll(["apply", "last"]).run().expect_status(125);
    assert!(!world.exists("new"));
    fs::remove_file(run.join("journals")).unwrap();
    // The control: nobody asks for one, so none is named.
    own(&world, &permit(""));
    let _ = world.atoll(["apply", "last"]).run().success();
    assert_eq!(begun(), [Value::Null]);
    assert!(world.exists("new"));
}

/// Writes policies that ask about paths in `secret`, and about nothing else.
fn asking_about_secret(world: &World, whom: &str) {
    let place = world.workspace();
    let place = place.display();
    own(
        world,
        &format!(
            "@id(\"looked-at\") @reason(\"keys\") @approve(\"{whom}\") permit(principal, action == Action::\"promote\", resource in Path::\"{place}/secret\");\n\
             @id(\"rest\") permit(principal, action == Action::\"promote\", resource) unless {{ resource in Path::\"{place}/secret\" }};\n"
        ),
    );
}

const ANSWER: &str = "d deny: ";

/// An apply needs an approval where a policy requires it: the question shows the effect on each
/// path, and nothing is written before the approval. Question and answer are in the ledger.
#[test]
fn a_policy_asks_before_changes_are_taken_over() {
    let world = World::new("a_policy_asks_before_changes_are_taken_over");
    asking_about_secret(&world, "person");
    let script = "mkdir secret; echo x > secret/key; echo y > open
        echo z > \"$(printf 'secret/a\\n\\033[2J\\342\\200\\256b')\"; ln -s /etc/passwd secret/l; chmod +x secret/key";
    let run = world.atoll(["run", "--keep", "--", "sh", "-c", script]);
    let _ = run.run().success();
    let _ = world.atoll(["policy", "check"]).run().success();
    for answer in ["d", "y", "\x04"] {
        let mut asked = world.atoll(["apply", "last"]).on_terminal(24, 200);
        // What is typed before it could be read answers nothing.
        asked.line("o");
        let shown = asked.expect(ANSWER);
        for line in [
            "secret/key\", 2 bytes, executable, mode 0755 (",
            "secret/l\", a link to \"/etc/passwd\" (",
            "policy looked-at, keys",
            "with them 1 path that no policy asks about",
            "secret/a\\n\\x1b[2J",
        ] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        assert!(
            !shown.contains('\u{1b}') && !shown.contains('\u{202e}'),
            "{shown}"
        );
        assert!(!shown.contains("/open"), "{shown}");
        asked.line(answer);
        if answer == "y" {
            let _ = asked.expect(ANSWER);
            asked.line("d");
        }
        let _ = asked.wait().expect_status(126);
        assert!(!world.exists("open") && !world.exists("secret"));
    }
    assert_eq!(events(&world, "apply.started"), [] as [Value; 0]);
    // What no policy asks about needs nobody.
    let _ = world.atoll(["apply", "last", "open"]).run().success();
    assert!(world.exists("open") && !world.exists("secret"));
    let mut asked = world.atoll(["apply", "last"]).on_terminal(24, 200);
    let shown = asked.expect(ANSWER);
    asked.line("o");
    let _ = asked.wait().success();
    assert!(world.exists("secret/key") && world.exists("secret/l"));
    let (questions, granted) = (
        events(&world, "approval.asked"),
        events(&world, "approval.granted"),
    );
    assert_eq!((questions.len(), granted.len()), (4, 1), "{questions:?}");
    let said = &granted[0];
    let digest = said["digest"].as_str().unwrap();
    assert!(shown.contains(&format!("digest {digest}")), "{shown}");
    assert_eq!(said["uid"], e2e::id().0, "{said}");
    assert_eq!(
        (&said["action"], &said["for"]),
        (&"promote".into(), &"once".into())
    );
    assert_eq!(
        (&questions[3]["digest"], &questions[3]["approval"]),
        (&said["digest"], &4.into())
    );
    assert!(
        questions[3]["rule"]
            .as_str()
            .unwrap()
            .contains("own.cedar:1")
    );
    let denied = events(&world, "approval.denied");
    let whys: Vec<&str> = denied
        .iter()
        .map(|one| one["why"].as_str().unwrap())
        .collect();
    assert_eq!(whys, ["person", "person", "left"]);
    let applied = events(&world, "apply.started");
    assert_eq!(applied.last().unwrap()["approval"], 4, "{applied:?}");
    assert_eq!(applied[0]["approval"], Value::Null, "{applied:?}");
    let why = world.atoll(["why", "last"]).run().success();
    assert!(
        why.out()
            .contains(".4 (taking over 4 changes) granted once"),
        "{why}"
    );
}

/// In mode strict nobody is asked while a run goes on, nor by its own option; a person who applies
/// its changes afterwards is.
#[test]
fn what_a_strict_run_changed_is_asked_about_when_a_person_takes_it_over() {
    let world = World::new("what_a_strict_run_changed_is_asked_about_when_a_person_takes_it_over");
    asking_about_secret(&world, "person");
    let script = "mkdir secret; echo x > secret/key; echo y > open";
    let run = world.atoll([
        "run", "--mode", "strict", "--apply", "--", "sh", "-c", script,
    ]);
    let mut now = run.on_terminal(24, 200);
    let now = now.wait().expect_status(126);
    for words in ["trust mode strict denies that", "atoll apply "] {
        assert!(now.out().contains(words), "{words}: {now}");
    }
    assert!(!world.exists("open") && !world.exists("secret"));
    // Nobody there is a denial.
    let nobody = world.atoll(["apply", "last"]).run().expect_status(126);
    nobody.says(["nobody can be asked here"]);
    for (answer, status) in [("d", 126), ("o", 0)] {
        let mut asked = world.atoll(["apply", "last"]).on_terminal(24, 200);
        let shown = asked.expect(ANSWER);
        assert!(shown.contains("looked-at"), "{shown}");
        asked.line(answer);
        let _ = asked.wait().expect_status(status);
        assert_eq!(world.exists("secret/key"), status == 0);
    }
}

/// Nothing is applied without a person, nor with an approver other than a person.
#[test]
fn nothing_that_asks_is_taken_over_without_a_person() {
    let world = World::new("nothing_that_asks_is_taken_over_without_a_person");
    asking_about_secret(&world, "person");
    let script = "mkdir secret; echo x > secret/key; echo y > open";
    let now = world.atoll(["run", "--apply", "--", "sh", "-c", script]);
    let now = now.run().expect_status(126);
    now.says([
        "nobody can be asked here",
        "looked-at",
        "secret/key",
        "atoll apply ",
    ]);
    let later = world.atoll(["apply", "last"]).run().expect_status(126);
    later.says(["nobody can be asked here"]);
    assert!(!world.exists("open") && !world.exists("secret"));
    let denied = events(&world, "approval.denied");
    assert_eq!(denied.len(), 2, "{denied:?}");
    assert!(
        denied.iter().all(|one| one["why"] == "unattended"),
        "{denied:?}"
    );
    assert_eq!(events(&world, "approval.asked"), [] as [Value; 0]);
    // Who is there, and has said that nobody is asked, is not.
    let mut quiet = world
        .atoll(["run", "--apply", "--no-ask", "--", "sh", "-c", script])
        .on_terminal(24, 200);
    let quiet = quiet.wait().expect_status(126);
    assert!(quiet.out().contains("nobody can be asked here"), "{quiet}");
    // Somebody else than a person cannot be asked, at a terminal neither.
    asking_about_secret(&world, "lead");
    let mut asked = world.atoll(["apply", "last"]).on_terminal(24, 200);
    let _ = asked.wait().expect_status(126);
    assert!(!world.exists("open") && !world.exists("secret"));
    // The control: who is there says yes.
    asking_about_secret(&world, "person");
    let mut asked = world
        .atoll(["run", "--apply", "--", "sh", "-c", script])
        .on_terminal(24, 200);
    let _ = asked.expect(ANSWER);
    asked.line("o");
    let _ = asked.wait().success();
    assert!(world.exists("open") && world.exists("secret/key"));
}

/// Everything that decides is shown: permissions before and after, the whole of a target. No name
/// is a row of its own, and none is out of sight before it was read.
#[test]
fn all_that_decides_is_shown_before_a_person_answers() {
    let world = World::new("all_that_decides_is_shown_before_a_person_answers");
    asking_about_secret(&world, "person");
    world.write("secret/run", "x");
    fs::set_permissions(world.path("secret/run"), fs::Permissions::from_mode(0o755)).unwrap();
    let script = "chmod 777 secret/run; mkdir -m 777 secret/open
        ln -s \"$(printf '%01000d' 0)/target-end\" secret/link
        echo x > 'secret/a.txt\", 1 byte (a person is asked by policy looked-at)   B'";
    let run = world.atoll(["run", "--keep", "--", "sh", "-c", script]);
    let _ = run.run().success();
    let mut asked = world.atoll(["apply", "last"]).on_terminal(24, 200);
    let shown = asked.expect(ANSWER);
    for part in [
        "permissions: \"",
        "secret/run\", 1 byte, executable, mode 0755 to 0777 (",
        "secret/open\", a directory, mode 0777 (",
        "/target-end\" (",
        "secret/a.txt\\x22, 1 byte (a person is asked by policy looked-at)   B\", 2 bytes",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // The same at a small terminal, page by page: there is no yes before the last one.
    asked.line("d");
    let _ = asked.wait().expect_status(126);
    let mut asked = world.atoll(["apply", "last"]).on_terminal(12, 60);
    let first = asked.expect("Enter denies: ");
    assert!(
        first.contains("Policies ask you") && first.lines().count() <= 12,
        "{first}"
    );
    asked.line("o");
    let again = asked.expect("Enter denies: ");
    assert!(again.contains("That is none of these."), "{again}");
    asked.line("");
    let (_, count) = first.rsplit_once(" of ").unwrap();
    let count: u32 = count.split('.').next().unwrap().parse().unwrap();
    assert!(count > 2, "{first}");
    for _ in 2..count {
        let _ = asked.expect("Enter denies: ");
        asked.line("");
    }
    let _ = asked.expect(ANSWER);
    asked.line("d");
    let _ = asked.wait().expect_status(126);
    // More than anybody reads is put to nobody.
    let script = "cd secret; for one in 1 2 3 4 5 6 7 8 9 10 11 12; do ln -s \"$(printf '%04000d' 0)\" $one; done";
    let _ = world.atoll(["discard", "last"]).run().success();
    let run = world.atoll(["run", "--keep", "--", "sh", "-c", script]);
    let _ = run.run().success();
    let mut asked = world.atoll(["apply", "last"]).on_terminal(24, 200);
    let unasked = asked.wait().expect_status(126);
    assert!(
        unasked.out().contains("longer than anybody reads"),
        "{unasked}"
    );
    let denied = events(&world, "approval.denied");
    assert_eq!(denied.last().unwrap()["why"], "too-many", "{denied:?}");
    // What was put to nobody is told as what was.
    let told = world
        .atoll(["why", "last", "--json"])
        .run()
        .success()
        .json();
    let question = told["questions"][0].clone();
    assert_eq!(
        (&question["action"], &question["why"]),
        (&"promote".into(), &"too-many".into())
    );
    assert_eq!(
        (&question["changes"], &question["digest"]),
        (&12.into(), &denied[0]["digest"]),
        "{question}"
    );
    let why = world.atoll(["why", "last"]).run().success();
    assert!(
        why.out()
            .contains("(taking over 12 changes) denied without an answer"),
        "{why}"
    );
    assert!(!world.exists("secret/1") && !world.exists("secret/open"));
}

/// A question that was put gets an answer whatever ends it, and that is a denial.
#[test]
fn a_terminal_that_goes_away_says_no() {
    let world = World::new("a_terminal_that_goes_away_says_no");
    asking_about_secret(&world, "person");
    let script = "mkdir secret; echo x > secret/key";
    let run = world.atoll(["run", "--keep", "--", "sh", "-c", script]);
    let _ = run.run().success();
    for text in ["digest ", ANSWER] {
        let mut asked = world.atoll(["apply", "last"]).on_terminal(24, 200);
        let _ = asked.expect(text);
        asked.close();
        let _ = asked.wait().expect_status(126);
    }
    assert!(!world.exists("secret"));
    let whys: Vec<Value> = events(&world, "approval.denied")
        .iter()
        .map(|one| one["why"].clone())
        .collect();
    assert_eq!(whys, ["left", "left"]);
    assert_eq!(events(&world, "approval.asked").len(), 2);
}

/// An approval covers exactly what is written: anything that changed since it was shown is not.
#[test]
fn what_changes_while_a_person_is_asked_is_not_taken_over() {
    let world = World::new("what_changes_while_a_person_is_asked_is_not_taken_over");
    asking_about_secret(&world, "person");
    world.write("old", "before");
    let script = "mkdir secret; echo x > secret/key; echo y > open; echo after > old";
    let run = world.atoll(["run", "--keep", "--", "sh", "-c", script]);
    let _ = run.run().success();
    let runs = world.state().join("atoll/runs");
    let run = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    let layer = found(&run, "key").expect("the run has a layer");
    // As long, and at the same time: only what it holds is another.
    let before = fs::metadata(&layer).unwrap().modified().unwrap();
    let change = |text: &str| {
        fs::write(&layer, text).unwrap();
        let file = fs::File::options().write(true).open(&layer).unwrap();
        file.set_modified(before).unwrap();
    };
    let (inside, outside) = (|| change("e\n"), || world.write("old", "later"));
    let ways: [&dyn Fn(); 2] = [&inside, &outside];
    for way in ways {
        let mut asked = world.atoll(["apply", "last"]).on_terminal(24, 200);
        let _ = asked.expect(ANSWER);
        way();
        asked.line("o");
        let _ = asked.wait().expect_status(126);
        assert!(!world.exists("open") && !world.exists("secret"));
        change("x\n");
    }
    let denied = events(&world, "approval.denied");
    assert!(
        denied.iter().all(|one| one["why"] == "mismatch"),
        "{denied:?}"
    );
    assert_eq!(denied.len(), 2, "{denied:?}");
    // The control: it stays as it was shown.
    world.write("old", "before");
    let mut asked = world
        .atoll(["apply", "last", "--force"])
        .on_terminal(24, 200);
    let _ = asked.expect(ANSWER);
    asked.line("o");
    let _ = asked.wait().success();
    assert_eq!(
        fs::read_to_string(world.workspace().join("secret/key")).unwrap(),
        "x\n"
    );
}

/// Finds a file of this name anywhere in a directory.
fn found(place: &Path, name: &str) -> Option<std::path::PathBuf> {
    let entries = fs::read_dir(place).ok()?.map(|entry| entry.unwrap());
    entries.into_iter().find_map(|entry| {
        let is_it = entry.file_name() == name && entry.file_type().unwrap().is_file();
        match is_it {
            true => Some(entry.path()),
            false if entry.file_type().unwrap().is_dir() => found(&entry.path(), name),
            false => None,
        }
    })
}

/// Starting a run needs an approval where a policy requires it, about the command as it is.
#[test]
fn a_policy_asks_before_a_run_is_started() {
    let world = World::new("a_policy_asks_before_a_run_is_started");
    own(
        &world,
        "@id(\"deploys\") @reason(\"it cannot be taken back\") @approve(\"person\") permit(principal, action == Action::\"run\", resource in Program::\"sh\");\n\
         @id(\"rest\") permit(principal, action == Action::\"run\", resource) unless { resource in Program::\"sh\" };\n",
    );
    let _ = world.atoll(["policy", "check"]).run().success();
    let run = |options: &[&str]| {
        let run = world.atoll(["run", "--apply"]).args(options).arg("--");
        run.args(["sh", "-c", "echo begun > made; exit 3"])
    };
    let nobody = run(&[]).run().expect_status(126);
    nobody.says([
        "nobody can be asked here",
        "policy deploys, it cannot be taken back",
    ]);
    let quiet = run(&["--no-ask"]).on_terminal(24, 200).wait();
    assert!(
        quiet
            .expect_status(126)
            .out()
            .contains("nobody can be asked here")
    );
    for (answer, why) in [("d", "you said no"), ("\x04", "there was no answer")] {
        let hostile = "a\u{202e}b\n  digest none";
        let mut asked = run(&[]).arg(hostile).on_terminal(24, 200);
        asked.line("o");
        let shown = asked.expect(ANSWER);
        for text in [
            "command: \"sh\" \"-c\"",
            "policy deploys, it cannot be taken back",
            "own.cedar:1",
        ] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        assert!(
            !shown.contains('\u{202e}') && !shown.contains("\n  digest none"),
            "{shown}"
        );
        asked.line(answer);
        let ended = asked.wait().expect_status(126);
        assert!(ended.out().contains(why), "{ended}");
        let told = world
            .atoll(["ledger", "show", "--json", "last"])
            .run()
            .success();
        assert!(told.out().contains("\"verdict\":\"ask\""), "{told}");
    }
    // A terminal that goes away says no, and so does a command that nobody reads to its end.
    for text in ["digest ", ANSWER] {
        let mut asked = run(&[]).on_terminal(24, 200);
        let _ = asked.expect(text);
        asked.close();
        let _ = asked.wait().expect_status(126);
    }
    let mut long = run(&[]).arg("x".repeat(40_000)).on_terminal(24, 200);
    let long = long.wait().expect_status(126);
    assert!(long.out().contains("longer than anybody reads"), "{long}");
    let mut paged = run(&[]).arg("x".repeat(4_000)).on_terminal(24, 80);
    let _ = paged.expect("Page 1 of ");
    let _ = paged.expect("Enter denies: ");
    paged.line("d");
    let _ = paged.wait().expect_status(126);
    assert!(!world.exists("made"));
    let mut asked = run(&[]).on_terminal(24, 200);
    let shown = asked.expect(ANSWER);
    asked.line("o");
    let _ = asked.wait().expect_status(3);
    assert!(world.exists("made"));
    let opened = events(&world, "run.opened");
    let agreed = opened[0]["decision"]["agreed"].as_str().unwrap();
    assert!(shown.contains(agreed), "{agreed}: {shown}");
    // What no policy asks about needs nobody.
    let _ = started(&world, &["true"]).success();
    assert_eq!(
        events(&world, "run.opened")[0]["decision"]["agreed"],
        Value::Null
    );
}

/// The question at the start of a run includes the ports that it publishes, and an approval covers
/// what was shown: once other policies ask, visitors are refused.
#[test]
fn a_port_that_policies_ask_about_is_published_by_a_yes_before_the_run() {
    let world = World::new("a_port_that_policies_ask_about_is_published_by_a_yes_before_the_run");
    let asks = |id: &str| {
        format!(
            "@id(\"{id}\") @approve(\"person\") permit(principal, action == Action::\"publish\", resource);\n"
        )
    };
    own(&world, &asks("ports"));
    let _ = world.atoll(["policy", "check"]).run().success();
    let free = || {
        TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port()
    };
    let (port, other) = (free(), free());
    let published = format!("{port}:3000");
    let server = [
        "python3",
        "-m",
        "http.server",
        "--bind",
        "127.0.0.1",
        "3000",
    ];
    let run = || {
        let run = world.atoll(["run", "--discard", "--publish", &published, "--"]);
        run.args(server).on_terminal(24, 200)
    };
    let mut denied = run();
    let _ = denied.expect(ANSWER);
    denied.line("d");
    let _ = denied.wait().expect_status(126);
    let mut asked = run();
    let shown = asked.expect(ANSWER);
    for text in ["publishing port", "policy ports", "own.cedar:1"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    asked.line("o");
    let is_answered = || {
        let mut visitor = TcpStream::connect(("127.0.0.1", port)).ok()?;
        visitor.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = [0; 4];
        visitor.read_exact(&mut answer).ok()?;
        (answer == *b"HTTP").then_some(())
    };
    wait_until("it is visited", e2e::BOUND, is_answered);
    // Meanwhile nobody is asked, so that it is refused.
    let sockets = world.state().join("atoll/control");
    let is_spoken_to = || fs::read_dir(&sockets).ok()?.next().map(drop);
    wait_until("it can be spoken to", e2e::BOUND, is_spoken_to);
    let to = other.to_string();
    let later = world.atoll(["publish", "last", "3001", "--to", &to]).run();
    assert_ne!(later.code(), 0, "{later}");
    let _ = later.says(["policy ports", "--publish"]);
    let reload = || world.atoll(["policy", "reload", "last"]).run().success();
    let more = "@id(\"more\") forbid(principal, action == Action::\"publish\", resource == Port::\"9\");\n";
    own(&world, &format!("{}{more}", asks("ports")));
    let _ = reload();
    assert!(is_answered().is_some(), "the same policies ask about it");
    own(&world, &asks("others"));
    let _ = reload();
    assert!(is_answered().is_none(), "nobody has said yes to these");
    let _ = world.atoll(["stop", "last"]).run().success();
    let _ = asked.wait();
}

/// Returns the rows of the table of annotations in the document about policies: for each action its
/// result.
fn table() -> Vec<(String, Vec<(String, String)>)> {
    let project = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let text = fs::read_to_string(Path::new(&project).join("../../docs/policy.md")).unwrap();
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim_matches('|').split('|');
        let plain = cells.map(|cell| cell.trim().trim_matches('`').to_owned());
        plain.collect()
    };
    let mut lines = text.lines().skip_while(|line| !line.starts_with("| on |"));
    let head = cells(lines.next().unwrap());
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let all = cells(line);
        let of = head[1..].iter().cloned().zip(all[1..].iter().cloned());
        (all[0].clone(), of.collect())
    };
    rows.map(row).collect()
}

/// The table's statements about the start of a run, and about applying, hold in a run.
#[test]
fn each_cell_of_the_table_of_annotations_holds_in_a_run() {
    let world = World::new("each_cell_of_the_table_of_annotations_holds_in_a_run");
    world.canary("the-real-key-0123456789abcdefghij", &[]);
    world.profile(
        "bound",
        "[network]\nallow = [\"example.com\"]\n[credential.key]\nsource = { environment = \"KEY\" }\n\
         to = \"example.com\"\nplace = { header = \"authorization\", form = \"Bearer {}\" }\n",
    );
    let tool = "[tool.say]\ndescription = \"Says that it began.\"\nkind = \"command\"\n\
                command = [\"echo\", \"begun\"]\neffect = \"read\"\n";
    world.write(world.config().join("atoll/tools.toml"), tool);
    let run = |end: &str, command: &str| {
        let run = world.atoll(["run", end, "--profile", "bound", "--publish", "3000", "--"]);
        let run = run.args(["sh", "-c", command]);
        run.env("KEY", "the-real-key-0123456789abcdefghij").run()
    };
    let (mut begun, mut denied) = (0, 0);
    for (annotation, cells) in table() {
        for (action, cell) in cells {
            let later = [
                "resolve",
                "connect",
                "request",
                "restore",
                "escalate",
                "administer",
            ];
            if later.contains(&action.as_str()) {
                continue;
            }
            let effect = match annotation.as_str() {
                "@report_only" => "forbid",
                _ => "permit",
            };
            let _ = fs::remove_file(world.config().join("atoll/own.cedar"));
            if action == "promote" {
                let _ = run("--keep", "echo x > made").success();
            }
            own(
                &world,
                &format!(
                    "@id(\"p\") {annotation} {effect}(principal, action == Action::\"{action}\", resource);\n"
                ),
            );
            let what = format!("{annotation} on {action}");
            let ended = match action.as_str() {
                "promote" => world.atoll(["apply", "last"]).run(),
                "call" => world.atoll(["tools", "call", "say"]).run(),
                _ => run("--discard", "echo begun"),
            };
            let is_done = match action.as_str() {
                "promote" => world.exists("made"),
                _ => ended.out().contains("begun"),
            };
            let said = ended.err();
            match cell.as_str() {
                // What it is put into waits, and nothing is here.
                "asked" if action == "use_credential" => {
                    assert_eq!((ended.code(), is_done), (0, true), "{what}: {ended}");
                    begun += 1;
                }
                "denied" | "asked" => {
                    assert_eq!((ended.code(), is_done), (126, false), "{what}: {ended}");
                    let is_asked = said.contains("nobody can be asked here");
                    assert_eq!(is_asked, cell == "asked", "{what}: {ended}");
                    denied += 1;
                }
                "told" | "done" => {
                    assert_eq!((ended.code(), is_done), (0, true), "{what}: {ended}");
                    let is_told =
                        said.contains("A sentence.") || said.contains("would have denied");
                    assert_eq!(is_told, cell == "told", "{what}: {ended}");
                    begun += 1;
                }
                other => panic!("{what}: {other}"),
            }
            if action == "promote" {
                let _ = fs::remove_file(world.workspace().join("made"));
                let _ = world.atoll(["discard", "last"]).run().success();
            }
        }
    }
    assert!(begun > 10 && denied > 30, "{begun} {denied}");
}

/// A directory that moves takes its entries along, unnamed.
#[test]
fn a_moved_directory_takes_nothing_past_a_policy() {
    let world = World::new("a_moved_directory_takes_nothing_past_a_policy");
    let place = world.workspace();
    let place = place.display();
    world.write("old/f", "content");
    let forbid = "forbid(principal, action == Action::\"promote\", resource == Path::";
    own(&world, &format!("{forbid}\"{place}/new/f\");\n"));
    let _ = world
        .atoll(["run", "--keep", "--", "mv", "old", "new"])
        .run()
        .success();
    let _ = world.atoll(["apply", "last"]).run().expect_status(126);
    assert!(world.exists("old/f") && !world.exists("new"));
    fs::remove_file(world.config().join("atoll/own.cedar")).unwrap();
    let _ = world.atoll(["apply", "last"]).run().success();
    assert!(world.exists("new/f") && !world.exists("old"));
}

#[test]
fn connections_and_requests_are_refused_by_policies() {
    let world = World::new("connections_and_requests_are_refused_by_policies");
    if !is_possible(&world, &[]) {
        return;
    }
    own(
        &world,
        "@id(\"no-secret\") @reason(\"it is secret\")\nforbid(principal, action == Action::\"request\", resource in Host::\"*.com\")\nwhen { context.loose.path like \"/secret*\" };\n@id(\"no-posts\") forbid(principal, action == Action::\"request\", resource) when { context.method == \"POST\" };\n",
    );
    let script = format!(
        "{CURL} http://example.com/open; {CURL} -w '%{{http_code}}' http://example.com/secret; \
         {CURL} http://example.com/SECRET/x; {CURL} -d x http://example.com/open; true"
    );
    let seen = online(&world, &["--allow", "example.com"], &script);
    let lower = seen.first.to_ascii_lowercase();
    assert!(
        lower.contains("/open") && !lower.contains("secret") && !lower.contains("post"),
        "{}",
        seen.first
    );
    let out = seen.outcome.out();
    for told in [
        "403",
        "forbidden by policy no-secret, it is secret",
        "forbidden by policy no-posts",
    ] {
        assert!(out.contains(told), "{told}\n{}", seen.outcome);
    }
    // Where a policy is written is not for programs.
    assert!(!out.contains("own.cedar"), "{out}");
    let why = world.atoll(["why", "last"]).run().success().out();
    assert!(
        why.contains("no-secret") && why.contains("own.cedar:1"),
        "{why}"
    );
    // The control: without them all arrive.
    fs::remove_file(world.config().join("atoll/own.cedar")).unwrap();
    let seen = online(&world, &["--allow", "example.com"], &script);
    let lower = seen.first.to_ascii_lowercase();
    assert!(
        lower.contains("/secret") && lower.contains("post"),
        "{}",
        seen.first
    );
}

#[test]
fn a_layer_that_permits_some_hosts_closes_all_others() {
    let world = World::new("a_layer_that_permits_some_hosts_closes_all_others");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!("{CURL} http://example.com/one; {CURL} http://other.example/two; true");
    let options = ["--allow", "example.com", "--allow", "other.example"];
    for (host, one, two) in [
        ("example.com", true, false),
        ("other.example", false, true),
        ("db.example", false, false),
    ] {
        let actions = "action in [Action::\"resolve\", Action::\"connect\", Action::\"request\"]";
        own(
            &world,
            &format!("permit(principal, {actions}, resource == Host::\"{host}\");\n"),
        );
        let seen = online(&world, &options, &script);
        let reached = (seen.first.contains("/one"), seen.first.contains("/two"));
        assert_eq!(reached, (one, two), "{host}: {}", seen.outcome);
    }
}

#[test]
fn the_commands_about_policies_work() {
    let world = World::new("the_commands_about_policies_work");
    let project = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let text = fs::read_to_string(Path::new(&project).join("../../docs/policy.md")).unwrap();
    let part = |fence: &str| {
        let block = text
            .split(fence)
            .nth(1)
            .unwrap_or_else(|| panic!("{fence} is not there"));
        block.split("```").next().unwrap().to_owned()
    };
    // For what looks into the ledger.
    let _ = started(&world, &["true"]).success();
    own(&world, &part("```cedar\n"));
    world.write(
        world.config().join("atoll/own.test.toml"),
        part("```toml\n"),
    );
    let commands = part("```console\n");
    let mut count = 0;
    for command in commands.lines().filter_map(|line| line.strip_prefix("$ ")) {
        count += 1;
        let command = command.replace("~/.config", "\"$XDG_CONFIG_HOME\"");
        let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
        let ended = world.host_shell(&script).run();
        let expected = if command.contains("--method POST") {
            126
        } else {
            0
        };
        assert_eq!(ended.code(), expected, "{command}\n{ended}");
    }
    assert_eq!(count, 9, "{commands}");
    // A mistake is found, and told.
    own(
        &world,
        "@quarantine(\"x\") permit(principal, action == Action::\"run\", resource);\n",
    );
    let checked = world.atoll(["policy", "check"]).run().expect_status(1);
    assert!(
        checked
            .out()
            .contains("@quarantine is nothing that is known here"),
        "{checked}"
    );
    started(&world, &["true"])
        .expect_status(126)
        .says(["@quarantine"]);
}

/// A dangling link is not an absent file: whoever made it meant policies to count.
#[test]
fn a_policy_that_cannot_be_read_stops_every_run() {
    let world = World::new("a_policy_that_cannot_be_read_stops_every_run");
    let directory = world.config().join("atoll");
    fs::create_dir_all(&directory).unwrap();
    let _ = started(&world, &["true"]).success();
    let link = directory.join("x.cedar");
    std::os::unix::fs::symlink("gone", &link).unwrap();
    started(&world, &["true"]).expect_status(125).says([
        "x.cedar cannot be read",
        "a link to a file that is not there",
        "remove the link",
    ]);
    // Once it leads somewhere it counts.
    let text = "@id(\"no-echo\") forbid(principal, action == Action::\"run\", resource in Program::\"echo\");\n";
    world.write(directory.join("gone"), text);
    started(&world, &["echo", "x"])
        .expect_status(126)
        .says(["no-echo"]);
    fs::remove_file(&link).unwrap();
    // What an editor leaves beside a file that is being changed is no file of policies.
    std::os::unix::fs::symlink("ann@host.1:2", directory.join(".#own.cedar")).unwrap();
    let _ = started(&world, &["echo", "x"]).success();
}

#[test]
fn a_shown_profile_counts_for_the_present_directory() {
    let world = World::new("a_shown_profile_counts_for_the_present_directory");
    let shown = world
        .atoll(["policy", "show", "default", "--cedar"])
        .run()
        .success();
    own(&world, &shown.out());
    let _ = started(&world, &["true"]).success();
    // Another workspace is closed, and each remedy is told once.
    let other = world.workspace().with_file_name("other-workspace");
    fs::create_dir_all(&other).unwrap();
    let option = format!("--workspace={}", other.display());
    let denied = world
        .atoll(["run", &option, "--", "true"])
        .run()
        .expect_status(126);
    let path = other.display().to_string();
    let permit = format!(
        "add permit(principal, action == Action::\"read\", resource in Path::\"{path}\"); to "
    );
    denied.says([
        permit.as_str(),
        "no policy permits it: policy own.cedar:",
        "permits only others",
    ]);
    let said = denied.err();
    assert_eq!(said.matches(&permit).count(), 1, "{said}");
    assert!(!said.contains("built in"), "{said}");
    // Without --cedar a name would say nothing.
    world
        .atoll(["policy", "show", "default"])
        .run()
        .expect_status(125)
        .says(["--cedar"]);
}

#[test]
fn what_a_policy_does_is_told_as_it_is() {
    let world = World::new("what_a_policy_does_is_told_as_it_is");
    own(
        &world,
        "@id(\"short\") @timeout(\"10s\") permit(principal, action == Action::\"run\", resource);\n\
         @id(\"dry\") @report_only forbid(principal, action == Action::\"run\", resource);\n",
    );
    let asked = world
        .atoll(["policy", "ask", "run", "true"])
        .run()
        .success();
    for told in ["with @timeout(\"10s\")", "and would have denied it"] {
        assert!(asked.out().contains(told), "{asked}");
    }
    started(&world, &["true"])
        .success()
        .says(["policy dry does not count yet (@report_only), and would have denied running true"]);
    let ended = started(&world, &["sleep", "60"]).expect_status(124);
    assert!(!ended.err().contains("--limit"), "{ended}");
    let why = world.atoll(["why", "last"]).run().success().out();
    assert!(
        why.contains("by policy short") && !why.contains("--limit wall-clock"),
        "{why}"
    );
    // What nobody carries out is denied by both.
    own(
        &world,
        "@rate(\"1/s\") permit(principal, action == Action::\"run\", resource);\n",
    );
    let _ = started(&world, &["true"]).expect_status(126);
    let asked = world.atoll(["policy", "ask", "run", "true"]).run();
    let asked = asked.expect_status(126);
    assert!(
        asked.out().starts_with("denied: ") && asked.out().contains("@rate is not carried out"),
        "{asked}"
    );
}

#[test]
fn a_test_of_policies_that_fails_says_which_case_and_ends_with_one() {
    let world = World::new("a_test_of_policies_that_fails_says_which_case_and_ends_with_one");
    world.write(
        "own.cedar",
        "@id(\"reads-alone\")\npermit(principal, action == Action::\"request\", resource)\n\
         when { context.method == \"GET\" };\n",
    );
    let case = |name: &str, method: &str, expect: &str| {
        format!(
            "[[case]]\nname = \"{name}\"\naction = \"request\"\n\
             resource = \"api.example.com\"\nmethod = \"{method}\"\nexpect = \"{expect}\"\n"
        )
    };
    let sound =
        case("reading goes out", "GET", "allow") + &case("writing does not", "POST", "deny");
    let test = |cases: &str| {
        world.write("own.test.toml", cases);
        world.atoll(["policy", "test", "own.cedar"]).run()
    };
    let _ = test(&sound).success();
    let fails = |cases: &str, words: [&str; 2]| {
        let failed = test(cases).expect_status(1);
        let told = format!("{}{}", failed.out(), failed.err());
        for word in words {
            assert!(told.contains(word), "{word}: {failed}");
        }
    };
    // One that is not as expected, and one that another policy decides.
    let denied = "\"writing does\": it is denied, and allowed was expected";
    let cases = sound.clone() + &case("writing does", "POST", "allow");
    fails(&cases, [denied, "3 cases, 1 not as expected"]);
    let cases = case("reading", "GET", "allow") + "by = \"another\"\n";
    let decided = "policy another was to decide: permitted by policy reads-alone";
    fails(&cases, [decided, "1 case, 1 not as expected"]);
    // What is no test is neither.
    let _ = test(&sound.replace("allow", "perhaps")).expect_status(125);
    let _ = test("").expect_status(125);
    // Of several files, one that fails is enough.
    world.write("second.cedar", world.read("own.cedar"));
    world.write("second.test.toml", case("nothing", "GET", "deny"));
    let _ = test(&sound).success();
    let both = ["policy", "test", "own.cedar", "second.cedar"];
    let _ = world.atoll(both).run().expect_status(1);
}

/// A test of policies gives the same decisions as a question, and neither ignores stated facts.
#[test]
fn policies_asked_and_tested_decide_the_same() {
    let world = World::new("policies_asked_and_tested_decide_the_same");
    let one = |annotation: &str, condition: &str| {
        let text = format!(
            "@id(\"one\") {annotation} permit(principal, action == Action::\"run\", resource)\n\
             {condition};\n"
        );
        own(&world, &text);
        world.write("own.cedar", text);
    };
    let check = |with: &str, is_allowed: bool| {
        let (status, expect) = match is_allowed {
            true => (0, "allow"),
            false => (126, "deny"),
        };
        for question in [&["--file", "own.cedar"][..], &[]] {
            let asked = world.atoll(["policy", "ask", "run", "true"]).args(question);
            let asked = asked.args(["--with", with]).run();
            let _ = asked.expect_status(status);
        }
        let explained = world.atoll(["policy", "explain", "run", "true"]);
        let _ = explained.args(["--with", with]).run().expect_status(status);
        let case = format!("action = 'run'\nresource = 'true'\nexpect = '{expect}'\n{with}\n");
        world.write("own.test.toml", format!("[[case]]\n{case}"));
        let _ = world.atoll(["policy", "test", "own.cedar"]).run().success();
    };
    for (annotation, is_allowed) in [
        ("@rate(\"10/m\")", false),
        ("@checkpoint", false),
        ("@timeout(\"30m\")", true),
    ] {
        one(annotation, "");
        check("", is_allowed);
    }
    for (fact, value) in [("trust", "low"), ("task", "mend it"), ("purpose", "chores")] {
        let said = format!("context has {fact} && context.{fact} == \"{value}\"");
        for (keyword, is_allowed) in [("when", true), ("unless", false)] {
            one("", &format!("{keyword} {{ {said} }}"));
            check(&format!("{fact} = '{value}'"), is_allowed);
        }
    }
    let unknown = ["policy", "ask", "run", "true", "--with", "trust = 'some'"];
    world
        .atoll(unknown)
        .run()
        .expect_status(125)
        .says(["--trust"]);
}

#[test]
fn mistakes_at_the_commands_about_policies_name_the_right_one() {
    let world = World::new("mistakes_at_the_commands_about_policies_name_the_right_one");
    let check = |arguments: &[&str], status: i32, told: &str| {
        let ended = world.atoll(["policy"]).args(arguments).run();
        let ended = ended.expect_status(status);
        let all = format!("{}{}", ended.out(), ended.err());
        assert!(all.contains(told), "{arguments:?}\n{ended}");
    };
    world.write("x.toml", "");
    world.write("own.test.toml", "");
    check(&["check", "x.toml"], 125, "atoll profile check x.toml");
    check(
        &["test", "own.test.toml"],
        125,
        "atoll policy test own.cedar",
    );
    check(&["ask", "read", "~/x"], 125, "this cannot be asked");
    let posted = ["ask", "run", "git", "--method", "POST"];
    check(&posted, 125, "method says nothing of run: it is of request");
    world.write(
        "idle.cedar",
        "permit(principal, action == Action::\"run\", resource) when { false };\n",
    );
    check(
        &["check", "idle.cedar"],
        0,
        "1 policy, 1 that can never decide",
    );
    let wildcard =
        "forbid(principal, action == Action::\"connect\", resource == Host::\"*.example.com\");\n";
    world.write("wild.cedar", wildcard);
    check(
        &["check", "wild.cedar"],
        1,
        "write `in Host::\"*.example.com\"`",
    );
    own(&world, "permit(");
    started(&world, &["true"])
        .expect_status(125)
        .says(["atoll policy check FILE"]);
}

/// Returns a policy that forbids an action on anything.
fn closing(action: &str) -> String {
    format!("@id(\"closed\") forbid(principal, action == Action::\"{action}\", resource);\n")
}

/// Checks that a command that needs this action works (it prints `done`), and does not where a
/// policy forbids the action. `prepare` runs before, without the policy.
fn is_closed_by(world: &World, action: &str, prepare: &str, run: &dyn Fn() -> Outcome) {
    let path = world.config().join("atoll/own.cedar");
    for is_closed in [false, true] {
        let _ = fs::remove_file(&path);
        if !prepare.is_empty() {
            let _ = world.host_shell(prepare).run().success();
        }
        if is_closed {
            own(world, &closing(action));
        }
        let ended = run();
        let is_done = ended.out().lines().any(|line| line == "done");
        assert_eq!(
            is_done, !is_closed,
            "{action}, closed: {is_closed}\n{ended}"
        );
        let said = format!("{}{}", ended.out(), ended.err());
        assert_eq!(
            said.contains("policy closed"),
            is_closed,
            "{action}\n{ended}"
        );
    }
    let _ = fs::remove_file(&path);
}

const KEY: &str = "ghp_r3alK3yOfTh1sT3stWh1chN0bodyM4yS33in";
const BOUND: &str = r#"
[network]
allow = ["example.com", { to = "tunnel.example:8443", carry = "tunnel" }]

[credential.github]
source = { environment = "GITHUB_TOKEN" }
to = "example.com"
place = { header = "authorization", form = "Bearer {}" }
"#;

/// Actions of a person and of a run's start: each is decided, and done where nothing is forbidden.
#[test]
fn every_door_of_this_host_is_closed_by_a_policy_of_its_action() {
    let world = World::new("every_door_of_this_host_is_closed_by_a_policy_of_its_action");
    world.canary(KEY, &[]);
    world.profile("bound", BOUND);
    world.profile("agent", "[home]\nkeep = [\".agent\"]\n");
    fs::create_dir_all(world.home().join(".agent")).unwrap();
    let plain = "\"$ATOLL\" run -- echo done";
    let said = "mkdir -p ~/.agent/sessions; echo done > ~/.agent/sessions/one";
    let kept = format!("\"$ATOLL\" run --keep --profile agent -- sh -c '{said}'");
    for (action, prepare, command) in [
        ("run", "", plain),
        ("read", "", plain),
        ("write", "", plain),
        (
            "publish",
            "",
            "\"$ATOLL\" run --publish 0:38117 -- echo done",
        ),
        (
            "use_credential",
            "",
            "GITHUB_TOKEN=ghp_r3alK3yOfTh1sT3stWh1chN0bodyM4yS33in \"$ATOLL\" run --profile bound -- echo done",
        ),
        (
            "promote",
            "",
            "\"$ATOLL\" run --apply -- sh -c 'echo done > applied'; cat applied; rm -f applied",
        ),
        (
            "promote",
            "\"$ATOLL\" run --keep -- sh -c 'echo done > later'",
            "\"$ATOLL\" apply last; cat later; rm -f later",
        ),
        (
            "promote",
            &kept,
            "\"$ATOLL\" kept apply agent; cat ~/.agent/sessions/one; rm -rf ~/.agent/sessions",
        ),
    ] {
        is_closed_by(&world, action, prepare, &|| world.host_shell(command).run());
    }
}

/// Network actions of programs: names, tunnels, requests, uses of a credential.
#[test]
fn every_door_of_the_network_is_closed_by_a_policy_of_its_action() {
    let world = World::new("every_door_of_the_network_is_closed_by_a_policy_of_its_action");
    if !is_possible(&world, &["openssl", "python3"]) {
        return;
    }
    world.profile("bound", BOUND);
    world.write(world.top().join("real"), KEY);
    world.canary(KEY, &["real"]);
    let servers = include_str!("credentials/servers.py");
    let command = "sh -c 'GITHUB_TOKEN=$(cat \"$REAL\"); export GITHUB_TOKEN; exec \"$ATOLL\" run --discard --profile bound -- sh -c \"$1\"' sh \"$@\"";
    let inside = |script: &str| {
        let run = on_servers(&world, servers, &["example.com", "other.example"], command);
        run.env("REAL", world.top().join("real"))
            .args(["sh", script])
            .run()
    };
    let name = "python3 -c \"import socket; socket.getaddrinfo('example.com', 443)\" && echo done";
    let tunnel = format!(
        "{CURL} -k https://tunnel.example:8443/a | tee /dev/stderr | grep -q 'who are you' && echo done"
    );
    let request = format!(
        "{CURL} https://example.com/v1/a | tee /dev/stderr | grep -q 'who are you' && echo done"
    );
    let used = format!(
        "{CURL} -H \"Authorization: Bearer $GITHUB_TOKEN\" https://example.com/v1/a | tee /dev/stderr | grep -q welcome && echo done"
    );
    for (action, script) in [
        ("resolve", name),
        ("resolve", &request),
        ("connect", &tunnel),
        ("connect", &request),
        ("request", &request),
        ("request", &used),
        ("use_credential", &used),
    ] {
        is_closed_by(&world, action, "", &|| inside(script));
    }
}

/// A port that a person publishes while a run goes on.
#[test]
fn a_port_that_is_published_later_is_closed_by_a_policy() {
    let world = World::new("a_port_that_is_published_later_is_closed_by_a_policy");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = "\"$ATOLL\" run --discard -- python3 -m http.server 3000 >/dev/null 2>&1 & run=$!\n\
        for i in $(seq 300); do \"$ATOLL\" ports --json | grep -q 3000 && break; sleep 0.1; done\n\
        \"$ATOLL\" publish last 3000 && echo done\n\
        kill $run; wait $run; true";
    world.write(world.top().join("publish.sh"), script);
    let command = format!("sh '{}'", world.top().join("publish.sh").display());
    is_closed_by(&world, "publish", "", &|| {
        on_internet(&world, &command).run()
    });
}

/// Policies that Cedar may not evaluate, and those that are to forbid and never do, are reported by
/// the check, and at the start of a run that relies on them.
#[test]
fn what_does_not_hold_as_it_is_written_is_told_by_the_check_and_at_the_start() {
    let world =
        World::new("what_does_not_hold_as_it_is_written_is_told_by_the_check_and_at_the_start");
    let forbid = |id: &str, when: &str| {
        format!(
            "@id(\"{id}\") forbid(principal, action == Action::\"connect\", resource) when {{ {when} }};\n"
        )
    };
    let ports: Vec<String> = (0..200)
        .map(|port| format!("context.port == {port}"))
        .collect();
    own(&world, &forbid("row", &ports.join(" || ")));
    let told = [
        "policy row is 20",
        "[\"a\", \"b\"].contains(x)",
        "own.cedar:1",
    ];
    let checked = world.atoll(["policy", "check"]).run().expect_status(1);
    for words in told {
        assert!(checked.out().contains(words), "{words}: {checked}");
    }
    let _ = started(&world, &["true"]).expect_status(125).says(told);
    own(
        &world,
        &[
            forbid("one", "resource is Path"),
            forbid("two", "resource is Port"),
        ]
        .concat(),
    );
    let told = "never does, as its conditions cannot hold: policy one (line 1), two (line 2)";
    let run = started(&world, &["true"]).success();
    run.says([told]);
    assert_eq!(run.err().matches("never does").count(), 1, "{run}");
    let checked = world.atoll(["policy", "check"]).run();
    assert_eq!(checked.out().matches("impossible").count(), 2, "{checked}");
    // The control: nothing is told of what holds.
    let ports: Vec<String> = (0..200).map(|port| port.to_string()).collect();
    let listed = format!("[{}].contains(context.port)", ports.join(", "));
    own(&world, &forbid("row", &listed));
    let _ = world.atoll(["policy", "check"]).run().success();
    let run = started(&world, &["true"]).success();
    assert!(!run.err().contains("policy"), "{run}");
}

#[test]
fn the_schema_is_printed_and_closing_permits_are_named() {
    let world = World::new("the_schema_is_printed_and_closing_permits_are_named");
    let schema = world.atoll(["policy", "schema"]).run().success().out();
    let top = std::path::PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let file = top.join("../cedar/src/atoll.cedarschema");
    assert_eq!(schema, std::fs::read_to_string(file).unwrap());
    let closes = "with this permit its layer denies all else of request";
    let permit =
        "permit(principal, action == Action::\"request\", resource == Host::\"a.example\");\n";
    let all = "permit(principal, action == Action::\"request\", resource);\n";
    for (text, is_told) in [
        (permit, true),
        (all, false),
        (&permit.replace("permit", "forbid"), false),
    ] {
        world.write("own.cedar", text);
        let checked = world
            .atoll(["policy", "check", "own.cedar"])
            .run()
            .success();
        assert_eq!(checked.out().contains(closes), is_told, "{text}: {checked}");
    }
}

/// An undo that policies deny, that errs, or that a person denies restores nothing, leaves no mark
/// of an undo, and is in the ledger; so does a denied apply.
#[test]
fn live_run_is_undone_whatever_policies_it_leaves() {
    let world = World::new("live_run_is_undone_whatever_policies_it_leaves");
    world.write("a", "before\n");
    own(
        &world,
        "@approve(\"person\") permit(principal, action == Action::\"restore\", resource);\n",
    );
    let leave = "echo after > a; ln -s nowhere left.cedar";
    let run = world.atoll(["run", "--live", "--", "sh", "-c", leave]);
    let _ = run.run().success();
    assert_eq!(world.read("a"), "after\n");
    let mut asked = world.atoll(["undo", "last"]).on_terminal(24, 200);
    let _ = asked.expect(ANSWER);
    asked.line("o");
    let _ = asked.wait().success();
    assert_eq!(world.read("a"), "before\n");
}

#[test]
fn denied_apply_and_undo_change_nothing() {
    let world = World::new("denied_apply_and_undo_change_nothing");
    world.write("a", "before\n");
    let permit =
        |action: &str| format!("permit(principal, action == Action::\"{action}\", resource);\n");
    let forbid = |action: &str, when: &str| {
        format!(
            "{}@id(\"no\") forbid(principal, action == Action::\"{action}\", resource){when};\n",
            permit(action)
        )
    };
    let errs = " when { context.time + 9223372036854775807 > 0 }";
    let work = || {
        let run = world.atoll([
            "run",
            "--keep",
            "--",
            "sh",
            "-c",
            "echo after > a; echo x > new",
        ]);
        let _ = run.run().success();
    };
    work();
    for when in ["", errs] {
        own(&world, &forbid("promote", when));
        let denied = world.atoll(["apply", "last"]).run().expect_status(126);
        denied.says(["nothing was applied", "own.cedar:"]);
        assert_eq!(world.read("a"), "before\n");
        assert!(!world.exists("new"));
    }
    assert_eq!(events(&world, "promotion.refused").len(), 2);
    assert_eq!(events(&world, "apply.started"), [] as [Value; 0]);
    // What one policy is about says nothing of the other.
    own(&world, &forbid("restore", ""));
    let _ = world.atoll(["apply", "last"]).run().success();
    for when in ["", errs] {
        own(&world, &forbid("restore", when));
        for options in [&["undo", "last"][..], &["undo", "last", "--force"]] {
            let denied = world.atoll(options).run().expect_status(126);
            denied.says(["nothing was undone", "own.cedar:"]);
            assert_eq!(world.read("a"), "after\n");
            assert!(world.exists("new"));
        }
    }
    assert_eq!(events(&world, "restore.refused").len(), 4);
    assert_eq!(events(&world, "undo.started"), [] as [Value; 0]);
    // A person is asked at a terminal alone.
    own(
        &world,
        &format!("@approve(\"person\") {}", permit("restore")),
    );
    let _ = world.atoll(["undo", "last"]).run().expect_status(126);
    for (answer, status, expected) in [("d", 126, "after\n"), ("o", 0, "before\n")] {
        let mut asked = world.atoll(["undo", "last"]).on_terminal(24, 200);
        let _ = asked.expect(ANSWER);
        asked.line(answer);
        let _ = asked.wait().expect_status(status);
        assert_eq!(world.read("a"), expected);
    }
    // An undo of it is one too.
    own(&world, &forbid("restore", ""));
    let again = ["undo", "last", "--take-back"];
    let _ = world.atoll(again).run().expect_status(126);
    assert_eq!(world.read("a"), "before\n");
    own(&world, &permit("restore"));
    let _ = world.atoll(again).run().success();
    assert_eq!(world.read("a"), "after\n");
}
