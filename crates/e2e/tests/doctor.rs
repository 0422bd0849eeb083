//! `atoll doctor` reports of this host what `atoll run` then does.

use std::collections::BTreeMap;

use e2e::{Avoidable, Invocation, ProfileParser, World, expect_same, fine, is_root, tree};
use serde_json::Value;

/// Returns the means by which each limit is enforced, as a run's document has it.
fn held_by(document: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = document["limits-held-by"].as_array().unwrap();
    all.iter()
        .map(|one| (text(&one["limit"]), text(&one["by"])))
        .collect()
}

/// Runs doctor and a run under the same conditions, and compares them; returns the mode.
fn agreed(world: &World, under: impl Fn(Invocation) -> Invocation) -> Option<String> {
    let doctor = under(world.atoll(["doctor", "--json"])).run();
    let told = doctor.json();
    let summary = world.path("summary.json");
    let ran = world.run(["--json", summary.to_str().unwrap()], "true");
    let ran = under(ran).run();
    let document: Value = serde_json::from_str(&world.read(&summary)).unwrap();
    assert_eq!(told["status"], doctor.code(), "{told:#}");
    let grades = |wanted: &str| {
        let findings = told["findings"].as_array().unwrap().iter();
        findings.filter(|one| one["grade"] == wanted).count()
    };
    let Some(mode) = told["mode"].as_str() else {
        assert_eq!(doctor.code(), 3, "{told:#}");
        assert!(grades("missing") > 0, "{told:#}");
        let _ = ran.expect_status(125);
        return None;
    };
    let expected = i32::from(grades("weaker") > 0);
    assert_eq!(doctor.code(), expected, "{told:#}");
    assert_eq!(grades("missing"), 0, "{told:#}");
    let _ = ran.success();
    assert_eq!(document["mode"], mode, "{document:#}");
    let limits: BTreeMap<String, String> =
        serde_json::from_value(told["limits-held-by"].clone()).unwrap();
    assert_eq!(limits, held_by(&document));
    // The ledger has the same.
    let story = fine(world, &["why", "--json"]).json();
    assert_eq!(told["limits-held-by"], story["limits-held-by"]);
    Some(mode.to_owned())
}

#[test]
fn doctor_says_what_a_run_then_does() {
    let world = World::new("doctor_says_what_a_run_then_does");
    let mode = agreed(&world, |invocation| invocation);
    assert_eq!(mode.as_deref(), Some("full"));
}

#[test]
fn doctor_says_what_a_run_does_without_namespaces() {
    let world = World::new("doctor_says_what_a_run_does_without_namespaces");
    let mode = agreed(&world, Invocation::without_namespaces);
    // Root is never fenced in.
    let expected = (!is_root()).then_some("fence");
    assert_eq!(mode.as_deref(), expected);
    let told = world.atoll(["doctor"]).without_namespaces().run();
    assert!(
        told.out().contains("sysctl -w user.max_user_namespaces="),
        "{told}"
    );
}

/// Root sandboxes programs without user namespaces, and is told which parts are weaker.
#[test]
fn doctor_says_what_a_run_of_root_does_without_user_namespaces() {
    let world = World::new("doctor_says_what_a_run_of_root_does_without_user_namespaces");
    if !is_root() {
        return world.skip("an ordinary user is fenced in", Avoidable::No);
    }
    let mode = agreed(&world, Invocation::without_user_namespaces);
    assert_eq!(mode.as_deref(), Some("full"));
    let doctor = world.atoll(["doctor"]).without_user_namespaces();
    let told = doctor.run().expect_status(1);
    for words in ["users of Atoll's own", "the workspace is copied"] {
        assert!(told.out().contains(words), "{told}");
    }
    let required = world.atoll(["doctor", "--require", "full"]);
    let _ = required.without_user_namespaces().run().success();
}

/// Namespaces are permitted but of no use: a part of /proc is covered, as in containers.
#[test]
fn what_only_a_try_shows_decides_about_doctor_and_run() {
    let world = World::new("what_only_a_try_shows_decides_about_doctor_and_run");
    let cover = "mount --bind /dev/null /proc/uptime && exec setpriv --inh-caps=-all \
                 --ambient-caps=-all --bounding-set=-all \"$@\"";
    let own = ["unshare", "--user", "--map-current-user", "--keep-caps"];
    let covered = |invocation: Invocation| {
        let shell = ["--mount", "sh", "-c", cover, "sh"];
        invocation.under(own.into_iter().chain(shell))
    };
    let mode = agreed(&world, covered);
    let expected = (!is_root()).then_some("fence");
    assert_eq!(mode.as_deref(), expected);
    if !is_root() {
        let told = covered(world.atoll(["doctor"])).run();
        assert!(told.out().contains("parts of the one here are covered"));
    }
}

/// A filter of system calls, as a container has one, affects both alike.
#[test]
fn a_filter_around_atoll_decides_about_doctor_and_run() {
    let world = World::new("a_filter_around_atoll_decides_about_doctor_and_run");
    let program = world.path("filtered");
    let _ = world
        .host("cc")
        .args(["-x", "c", "-", "-o"])
        .arg(&program)
        .stdin(include_str!("doctor/filtered.c"))
        .run()
        .success();
    let under = |what: &'static str| {
        let program = program.to_str().unwrap().to_owned();
        move |invocation: Invocation| invocation.under([program.as_str(), what])
    };
    // One that leaves alone what is needed leaves everything as it is.
    assert_eq!(agreed(&world, under("acct")).as_deref(), Some("full"));
    // Without the call that makes processes there is not even a fence.
    for what in ["clone3-gone", "clone3-refused"] {
        assert_eq!(agreed(&world, under(what)), None, "{what}");
        let told = under(what)(world.atoll(["doctor"])).run();
        assert!(told.out().contains("as in containers"), "{told}");
    }
}

#[test]
fn doctor_changes_nothing() {
    let world = World::new("doctor_changes_nothing");
    let before = tree(world.top());
    let told = world.atoll(["doctor"]).run();
    assert!([0, 1].contains(&told.code()), "{told}");
    expect_same(&before, world.top());
    assert_eq!(before.len(), tree(world.top()).len());
}

#[test]
fn scripts_choose_what_the_status_of_doctor_is_about() {
    let world = World::new("scripts_choose_what_the_status_of_doctor_is_about");
    let status = |required: &[&str], fenced: bool| {
        let required = required.iter().flat_map(|one| ["--require", *one]);
        let doctor = world.atoll(["doctor"]).args(required);
        let doctor = if fenced {
            doctor.without_namespaces()
        } else {
            doctor
        };
        doctor.run().code()
    };
    assert_eq!(status(&["full"], false), 0);
    assert_eq!(status(&["full", "fence"], false), 0);
    let without = if is_root() { 3 } else { 1 };
    assert_eq!(status(&["full"], true), without);
    assert_eq!(status(&["fence"], true), if is_root() { 3 } else { 0 });
    // Limits: 0 exactly where a run that asks for the last of them starts.
    let asked = ["--limit", "cpu=1", "--discard"];
    let starts = world.run(asked, "true").run().code() == 0;
    assert_eq!(status(&["limits"], false) == 0, starts);
    let wrong = world.atoll(["doctor", "--require", "nothing"]).run();
    let _ = wrong.expect_status(125);
}

#[test]
fn doctor_fits_narrow_terminals() {
    let world = World::new("doctor_fits_narrow_terminals");
    let doctor = world.atoll(["doctor"]).env("NO_COLOR", "1");
    let shown = doctor.on_terminal(50, 44).wait().out();
    assert!(shown.contains("limits"), "{shown}");
    // But for commands, which are there to be pasted.
    for line in shown.lines().filter(|line| !line.contains(['&', '#', '$'])) {
        let is_command = line.contains("systemd-run") || line.contains("sudo");
        let is_name = line.contains("CVE-") || !line.trim().contains(' ');
        assert!(
            line.chars().count() <= 44 || is_command || is_name,
            "{line:?}"
        );
    }
    // Marks are words: no colour is needed to tell them apart.
    let plain = world.atoll(["doctor"]).run();
    assert!(plain.out().contains("\nok      kernel"), "{plain}");
}

#[test]
fn the_profile_for_apparmor_is_read_by_its_parser_nightly() {
    let world = World::new("the_profile_for_apparmor_is_read_by_its_parser_nightly");
    let parser = match ProfileParser::find() {
        Ok(parser) => parser,
        Err(missing) => {
            world.skip(&missing, Avoidable::Yes);
            return;
        }
    };
    let profile = fine(&world, &["doctor", "--apparmor-profile"]).out();
    let program = std::path::PathBuf::from(std::env::var_os("ATOLL_BIN").unwrap());
    let program = program.canonicalize().unwrap();
    assert!(profile.contains(&format!("\"{}\"", program.display())));
    world.write("profile", &profile);
    let _ = parser.check(&world, "profile").success();
    // The parser does read it: without its end, and with a right that is none, it refuses.
    for (what, to) in [("}", ""), ("userns,", "usernames,")] {
        world.write("profile", profile.replace(what, to));
        assert_ne!(parser.check(&world, "profile").code(), 0, "{what}");
    }
    let _ = world
        .atoll(["doctor", "--apparmor-profile", "--json"])
        .run()
        .expect_status(125);
}
