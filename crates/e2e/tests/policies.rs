//! Policies in Cedar, of the user and of a project: what they take away, and how that is told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::fs;
use std::path::Path;

use e2e::internet::{is_possible, online};
use e2e::{Outcome, World};

const CURL: &str = "curl -sS -m 10 --noproxy '*'";

/// A file of the user's policies.
fn own(world: &World, text: &str) {
    world.write(world.config().join("atoll/own.cedar"), text);
}

/// A run of this command alone.
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

/// A run that writes the file has it kept back as one that other programs read.
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

/// A directory that moves takes what is in it along, unnamed.
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
    assert_eq!(count, 6, "{commands}");
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

/// A link to nothing is no file that is not there: whoever made it meant policies to count.
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
        "@id(\"short\") @timeout(\"1s\") permit(principal, action == Action::\"run\", resource);\n\
         @id(\"dry\") @shadow forbid(principal, action == Action::\"run\", resource);\n",
    );
    let asked = world
        .atoll(["policy", "ask", "run", "true"])
        .run()
        .success();
    for told in ["with @timeout(\"1s\")", "and would have denied it"] {
        assert!(asked.out().contains(told), "{asked}");
    }
    started(&world, &["true"])
        .success()
        .says(["policy dry does not count yet (@shadow), and would have denied running true"]);
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
        "@approve(\"person\") permit(principal, action == Action::\"run\", resource);\n",
    );
    let _ = started(&world, &["true"]).expect_status(126);
    let asked = world.atoll(["policy", "ask", "run", "true"]).run();
    let asked = asked.expect_status(126);
    assert!(
        asked.out().starts_with("denied: ") && asked.out().contains("@approve is not carried out"),
        "{asked}"
    );
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
