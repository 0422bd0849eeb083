//! Changes of files that git's configuration on the host names.

use super::support::*;
use crate::*;

#[test]
fn changes_of_what_is_named_are_of_control_files() {
    let before = [
        write(
            ".git/config",
            "[core]\nhooksPath = tools/hooks\nfsmonitor = ./watch\n",
        ),
        write("tools/hooks/pre-commit", "one"),
        write("watch", "one"),
        write("other/pre-commit", "one"),
    ];
    let check = |edits: &[Edit], at: &str, expected: Class| {
        let (stand, _) = Stand::copy(&before, edits);
        let mut set = stand.changes();
        set.classify_configured(&stand.paths.before, &GitEnvironment::default());
        let change = set.changes.iter().find(|change| change.path == path(at));
        let change = change.unwrap_or_else(|| panic!("{at} is missing: {set:?}"));
        assert_eq!(change.class, expected, "{edits:?}: {change:?}");
        assert_eq!(change.reason.is_some(), expected == Class::Control);
    };
    let hook = "tools/hooks/pre-commit";
    check(&[append(hook, "x")], hook, Class::Control);
    check(&[mode(hook, 0o755)], hook, Class::Control);
    check(&[remove(hook)], hook, Class::Control);
    check(&[remove("tools")], "tools", Class::Control);
    check(&[rename("tools", "away")], "tools", Class::Control);
    check(
        &[write("tools/hooks/pre-push", "x")],
        "tools/hooks/pre-push",
        Class::Control,
    );
    check(
        &[rename("other", "tools/hooks/x")],
        "tools/hooks/x/pre-commit",
        Class::Control,
    );
    check(&[append("watch", "x")], "watch", Class::Control);
    check(
        &[append("other/pre-commit", "x")],
        "other/pre-commit",
        Class::Ordinary,
    );
    check(&[write("tools/other", "x")], "tools/other", Class::Ordinary);
    check(&[write("watch-it", "x")], "watch-it", Class::Ordinary);
}

#[test]
fn executables_wait_where_configuration_is_unread() {
    let before = [
        write(".git/config", "[core\n"),
        write("x", "one"),
        write("y", "one"),
    ];
    let edits = [mode("x", 0o755), append("y", "two")];
    let (stand, _) = Stand::copy(&before, &edits);
    let mut set = stand.changes();
    let workspace = stand.paths.before.clone();
    set.classify_configured(&workspace, &GitEnvironment::default());
    let classes: Vec<_> = set
        .changes
        .iter()
        .map(|one| (one.class, one.reason.is_some()))
        .collect();
    assert_eq!(classes, [(Class::Control, true), (Class::Ordinary, false)]);
    let sealed = control_paths(&workspace, &GitEnvironment::default());
    assert_eq!(
        sealed,
        Err(SealError::Unread(workspace.join(".git/config")))
    );
}
