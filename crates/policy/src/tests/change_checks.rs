//! `[checks]` and `[apply]`: read, merged, shown and refused.

use super::*;

const BASE: &str = "[checks]\ncommands = [\"make test\"]\njudge = [\"golden/**\"]\n";

#[test]
fn checks_of_extended_profiles_add_up() {
    let own = "extends = [\"base\"]\n[checks]\ncommands = [\"sh lint.sh\"]\njudge = [\"!a\"]\n\
               timeout = \"90s\"\n[apply]\nwhen = \"checks\"\n";
    let rules = world().profile("base", BASE).profile("own", own);
    let rules = rules.with("own").rules();
    let found = crate::checks(&rules);
    let expected = Checks {
        commands: vec!["make test".to_owned(), "sh lint.sh".to_owned()],
        judge: vec!["golden/**".to_owned(), "!a".to_owned()],
        timeout: Duration::from_secs(90),
        applies: true,
    };
    assert_eq!(found, expected);
    // The rules as shown are a profile with the same checks.
    let again = world().profile("again", &rules.show()).with("again");
    assert_eq!(crate::checks(&again.rules()), expected);
    let json = rules.show_json();
    assert_eq!(json["rules"]["checks"][0]["value"], "make test");
    assert_eq!(json["rules"]["apply"][0]["value"], "checks");
}

#[test]
fn profile_without_checks_applies_by_nothing() {
    let rules = world().profile("plain", "").with("plain").rules();
    let found = crate::checks(&rules);
    assert!(found.commands.is_empty() && !found.applies);
    assert!(!rules.show().contains("[checks]"));
    let person = world().profile("own", "apply = { when = \"person\" }");
    assert!(!crate::checks(&person.with("own").rules()).applies);
}

#[test]
fn wrong_checks_are_refused() {
    for (text, why) in [
        ("apply = { when = \"checks\" }", "every change would pass"),
        (
            "[checks]\n[apply]\nwhen = \"checks\"",
            "every change would pass",
        ),
        ("apply = { when = \"always\" }", "is not known"),
        ("[checks]\ncommands = [\" \"]", "it is empty"),
        ("[checks]\njudge = [\"# all\"]", "matches nothing"),
        ("[checks]\ntimeout = \"soon\"", "timeout"),
        ("[checks]\nrun = \"make\"", "unknown key `run` in [checks]"),
    ] {
        let error = world().profile("own", text).with("own").error();
        assert!(error.contains(why), "{text}: {error}");
    }
    let project = world().project("[checks]\ncommands = [\"true\"]").error();
    assert!(
        project.contains("cannot decide what is checked"),
        "{project}"
    );
}
