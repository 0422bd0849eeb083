use std::path::{Path, PathBuf};

use atoll_model::{Access, Boundary, Mode, Verdict, ViewKind};

use super::{World, decide, world};
use crate::{Rules, SharedRepository};

const COMMON: &str = "/home/ann/src/main/.git";

fn shared(common: &str) -> SharedRepository {
    SharedRepository {
        common: PathBuf::from(common),
        worktree: Some("app".into()),
        identity: (1, 2),
    }
}

fn decided(world: &World, rules: &Rules, mode: Mode) -> (Boundary, String) {
    let facts = crate::Facts {
        mode,
        ..world.facts()
    };
    let Verdict::Allow(grant) = decide(rules, &world.call, &facts) else {
        panic!("denied");
    };
    let told: Vec<String> = grant.notices().iter().map(ToString::to_string).collect();
    (grant.boundary().clone(), told.join("\n"))
}

/// Returns the repository's access, and the notices.
fn shown(world: &World, common: &str, mode: Mode) -> (Option<Access>, String) {
    let mut rules = world.rules();
    rules.show_repository(Path::new("/home/ann/src/app"), shared(common));
    let (boundary, told) = decided(world, &rules, mode);
    let mut views = boundary.views.iter();
    let view = views.find(|view| view.kind == ViewKind::Repository);
    assert!(view.is_none_or(|view| view.host == view.inside && !view.required));
    (view.map(|view| view.access), told)
}

#[test]
fn a_repository_is_changed_only_where_the_workspace_has_a_layer() {
    let (access, told) = shown(&world(), COMMON, Mode::Full);
    assert!(matches!(access, Some(Access::Layer(_))));
    assert!(!told.contains("git"), "{told}");
    for (mode, of, word) in [
        (Mode::Full, "live", "in a live workspace"),
        (Mode::Full, "read-only", ""),
    ] {
        let world = world()
            .profile("p", &format!("workspace = \"{of}\"\n"))
            .with("p");
        let (access, told) = shown(&world, COMMON, mode);
        assert_eq!(access, Some(Access::ReadOnly), "{of}");
        assert!(told.contains(word), "{of}: {told}");
    }
    let (access, told) = shown(&world(), COMMON, Mode::Fence);
    assert_eq!(access, None);
    assert!(told.contains("in a fence its repository"), "{told}");
}

#[test]
fn a_repository_where_no_workspace_may_be_is_not_shown() {
    for common in [
        "/",
        "/home",
        "/home/ann",
        "/home/ann/.local/state/atoll/x",
        "/home/ann/.config",
        "/run/x",
        "/proc/1",
    ] {
        let (access, told) = shown(&world(), common, Mode::Full);
        assert_eq!(access, None, "{common}");
        assert!(
            told.contains("git does not work in /home/ann/src/app"),
            "{told}"
        );
    }
    for denied in [
        COMMON,
        "/home/ann/src/main",
        "/home/ann/src/main/.git/hooks",
    ] {
        let organisation = format!("[deny]\nfiles = [\"{denied}\"]\n");
        let (access, told) = shown(&world().organisation(&organisation), COMMON, Mode::Full);
        assert_eq!(access, None, "{denied}");
        assert!(told.contains("denied"), "{told}");
    }
}

/// A repository that a person has named is shown as named.
#[test]
fn a_repository_that_is_shown_already_stays_as_it_is() {
    let mut world = world();
    world.requested.read_only_dirs.push(PathBuf::from(COMMON));
    let mut rules = world.rules();
    rules.show_repository(Path::new("/home/ann/src/app"), shared(COMMON));
    let (boundary, _) = decided(&world, &rules, Mode::Full);
    let view = boundary
        .views
        .iter()
        .find(|view| view.host == Path::new(COMMON));
    assert_eq!(view.unwrap().kind, ViewKind::Input);
    assert_eq!(rules.repository(), None);
}

/// Nobody has named it, so a run is not denied because of it.
#[test]
fn policies_that_refuse_it_leave_it_out() {
    let permit = "permit (principal, action, resource);\n";
    let of = |action: &str, path: &str| {
        format!(
            "{permit}@id(\"no\") forbid (principal, action == Action::\"{action}\", resource in \
             Path::\"{path}\");\n"
        )
    };
    for action in ["read", "write"] {
        let world = world().organisation_policies(&of(action, "/home/ann/src/main"));
        let (access, told) = shown(&world, COMMON, Mode::Full);
        assert_eq!(access, None, "{action}");
        assert!(
            told.contains("policies do not let its repository"),
            "{told}"
        );
    }
    let elsewhere = world().organisation_policies(&of("read", "/home/ann/notes"));
    assert!(shown(&elsewhere, COMMON, Mode::Full).0.is_some());
    // What they refuse besides is refused as before.
    let world = world().organisation_policies(&of("write", "/home/ann/src"));
    let mut rules = world.rules();
    rules.show_repository(Path::new("/home/ann/src/app"), shared(COMMON));
    assert!(matches!(
        decide(&rules, &world.call, &world.facts()),
        Verdict::Deny(_)
    ));
}
