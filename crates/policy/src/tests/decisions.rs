use std::path::Path;

use super::*;

/// A directory, and the text of the denial; empty if it may be a workspace.
#[test]
fn some_directories_cannot_be_workspaces() {
    for (workspace, why) in [
        ("/home/ann/src/app", ""),
        ("/srv/app", ""),
        ("/tmp/app", ""),
        ("/opt/app", ""),
        ("/usr/src/app", ""),
        ("/var/lib/app", ""),
        ("/home/ann/.config/other", ""),
        ("/home/annette", ""),
        ("/", "the whole system"),
        ("/home/ann", "the home directory itself"),
        ("/home/ann/", "the home directory itself"),
        ("/home", "holds the home directory"),
        ("/home/ann/.local", "Atoll's own state"),
        ("/home/ann/.local/state", "Atoll's own state"),
        ("/home/ann/.local/state/atoll", "Atoll's own state"),
        ("/home/ann/.local/state/atoll/runs/x", "Atoll's own state"),
        ("/home/ann/.config", "Atoll's own configuration"),
        (
            "/home/ann/.config/atoll/profiles",
            "Atoll's own configuration",
        ),
        ("/tmp", "a /tmp of its own"),
        ("/usr", "directory of the operating system"),
        ("/etc", "directory of the operating system"),
        ("/proc/self/cwd", "a /proc of its own"),
        ("/dev/shm/x", "a small /dev of its own"),
        ("/run/user/1000/x", "sockets of the host's services"),
        ("/var", "sockets of the host's services"),
        ("/sys/fs/cgroup", "kernel's state"),
        ("src/app", "not an absolute path"),
        ("", "not an absolute path"),
        ("/home/ann/src/..", "free of `.` and `..`"),
        ("/srv/../home/ann", "free of `.` and `..`"),
    ] {
        let mut world = world();
        world.start_in(workspace, Path::new(workspace).join(""));
        match (world.decide(), why) {
            (Verdict::Allow(_), "") => {}
            (Verdict::Deny(reasons), why) if !why.is_empty() => {
                let found = reasons.iter().any(|reason| reason.why.contains(why));
                assert!(found, "{workspace}: {reasons:?}");
                assert!(reasons.iter().all(|reason| !reason.how_to_ask.is_empty()));
            }
            (verdict, why) => panic!("{workspace}: expected {why:?}, got {verdict:?}"),
        }
    }
}

#[test]
fn root_does_not_work_within_the_systems_directories() {
    for (workspace, uid, above) in [
        ("/etc/nginx", 0, Some("/etc")),
        ("/usr/local/src/app", 0, Some("/usr")),
        ("/opt/app", 0, Some("/opt")),
        ("/srv/app", 0, None),
        ("/etcetera", 0, None),
        ("/etc/nginx", 1000, None),
    ] {
        let mut world = world();
        world.start_in(PathBuf::from(workspace), PathBuf::from(workspace));
        world.host.uid = uid;
        world.call.principal.uid = uid;
        match (world.decide(), above) {
            (Verdict::Allow(_), None) => {}
            (Verdict::Deny(reasons), Some(above)) => {
                let [reason] = reasons.as_slice() else {
                    panic!("{workspace}: {reasons:?}")
                };
                assert!(
                    reason.why.contains(&format!("lies in {above},")),
                    "{reason:?}"
                );
                assert!(reason.how_to_ask.contains("cp -a"), "{reason:?}");
            }
            (verdict, _) => panic!("{workspace}: {verdict:?}"),
        }
    }
    // Where the profile does not show it, there is nothing in the way.
    let mut world = world()
        .profile("p", "system.read = ['/usr', '/lib64', '/etc']")
        .with("p");
    world.start_in(PathBuf::from("/opt/app"), PathBuf::from("/opt/app"));
    world.host.uid = 0;
    world.call.principal.uid = 0;
    assert!(matches!(world.decide(), Verdict::Allow(_)));
}

#[test]
fn inputs_within_the_systems_directories_are_left_to_it_for_root() {
    for (uid, left) in [(0, false), (1000, true)] {
        let mut world = world()
            .profile("p", "files.read = ['/etc/ssl', '/srv/x']")
            .with("p");
        world.requested.read_only_dirs = vec!["/usr/share".into(), "/srv/y".into()];
        world.host.uid = uid;
        world.call.principal.uid = uid;
        let boundary = world.boundary();
        let is_there = |path: &str| {
            boundary
                .views
                .iter()
                .any(|view| view.inside == Path::new(path))
        };
        for path in ["/etc/ssl", "/usr/share"] {
            assert_eq!(is_there(path), left, "{path} for {uid}");
        }
        assert!(is_there("/srv/x") && is_there("/srv/y") && is_there("/usr"));
        assert_eq!(
            world
                .notices()
                .contains("/usr/share is shown as a part of /usr"),
            !left
        );
    }
    // What is denied stays denied.
    let mut denied = world().organisation("deny.files = ['/etc/ssl']");
    denied.requested.read_only_dirs = vec!["/etc/ssl".into()];
    denied.host.uid = 0;
    denied.call.principal.uid = 0;
    assert!(!denied.reasons().is_empty());
}

#[test]
fn a_directory_that_is_shown_otherwise_is_no_workspace() {
    let mut world = world().command("codex");
    world.start_in(
        PathBuf::from("/home/ann/.codex"),
        PathBuf::from("/home/ann/.codex"),
    );
    assert!(world.reasons()[0].why.contains("shown in another way"));
    assert_eq!(world.reasons()[0].rule, "shipped/codex.toml:8");
    let mut named = crate::tests::world();
    named.requested.read_only_dirs = vec![named.call.workspace().to_owned()];
    let [reason] = named.reasons().try_into().unwrap();
    assert!(reason.how_to_ask.contains("leave that option out"));
    // One reason is enough where there is a better one.
    let mut system = crate::tests::world();
    system.start_in(PathBuf::from("/usr"), PathBuf::from("/usr"));
    let [reason] = system.reasons().try_into().unwrap();
    assert!(reason.why.contains("operating system"), "{reason:?}");
}

#[test]
fn any_doubt_about_the_call_denies() {
    let change = |change: fn(&mut World)| {
        let mut world = world();
        change(&mut world);
        world
    };
    for (world, why) in [
        (change(|world| world.words().clear()), "it is empty"),
        (
            change(|world| *world.words() = vec!["".into()]),
            "it is empty",
        ),
        (
            change(|world| world.words().push("a\0b".into())),
            "holds a NUL",
        ),
        (
            change(|world| world.start_in("/home/ann/src/app", "/home/ann/src")),
            "not within the workspace",
        ),
        (
            change(|world| world.start_in("/home/ann/src/app", "/home/ann/src/app/../other")),
            "not within the workspace",
        ),
        (
            change(|world| world.call.principal.uid = 0),
            "belongs to user 1000",
        ),
        (
            change(|world| world.call.principal.gid = 0),
            "belongs to user 1000",
        ),
        (
            change(|world| world.host.home = "/".into()),
            "not a directory of its own",
        ),
        (
            change(|world| world.host.home = "".into()),
            "not a directory of its own",
        ),
        (
            change(|world| world.host.home = "home/ann".into()),
            "not a directory of its own",
        ),
        (
            change(|world| world.host.home = "/dev/null".into()),
            "a small /dev of its own",
        ),
        (
            change(|world| world.host.home = "/run/ann".into()),
            "sockets of the host's services",
        ),
    ] {
        let reasons = world.reasons();
        assert!(
            reasons.iter().any(|reason| reason.why.contains(why)),
            "{why}: {reasons:?}"
        );
    }
}

#[test]
fn rules_serve_only_the_host_that_they_were_compiled_for() {
    let world = world();
    let rules = world.rules();
    let mut other = host();
    other.home = PathBuf::from("/home/bob");
    let facts = Facts {
        mode: atoll_model::Mode::Full,
        host: &other,
        environment: &[],
        now: crate::tests::now(),
        placeholders: &[],
        labels: None,
        living: None,
        changes: None,
    };
    let Verdict::Deny(reasons) = decide(&rules, &world.call, &facts) else {
        panic!("allowed");
    };
    assert!(reasons[0].why.contains("another host"));
}

#[test]
fn read_only_directories_of_the_command_line() {
    for (path, why) in [
        ("/srv/data", ""),
        ("/home/ann/data", ""),
        ("/home/ann/src/app/vendor", ""),
        ("/", "whole system"),
        ("/home/ann", "home directory itself"),
        ("/home", "holds the home"),
        ("/home/ann/.config", "Atoll's own configuration"),
        ("/home/ann/.local/state/atoll", "Atoll's own state"),
        ("/run/docker.sock", "sockets"),
        ("/proc", "/proc of its own"),
        ("data", "not an absolute path"),
        ("/srv/../home/ann/.ssh", "free of `.` and `..`"),
        ("/home/ann/src/app", "shown in another way"),
    ] {
        let mut world = world();
        world.requested.read_only_dirs = vec![PathBuf::from(path)];
        match why {
            "" => {
                let boundary = world.boundary();
                let view = boundary
                    .views
                    .iter()
                    .find(|view| view.inside.as_os_str() == path)
                    .unwrap();
                assert!(view.required);
                assert_eq!(view.kind, atoll_model::ViewKind::Input);
                assert_eq!(view.access, atoll_model::Access::ReadOnly);
            }
            why => {
                let reasons = world.reasons();
                assert!(reasons[0].why.contains(why), "{path}: {reasons:?}");
                let beneath = matches!(path, "/home" | "/home/ann" | "/home/ann/.config");
                let says_so = reasons[0].how_to_ask.contains("beneath it");
                let in_one = ["/proc", "/run/docker.sock", "/home/ann/.local/state/atoll"];
                assert!(!beneath || says_so, "{path}: {reasons:?}");
                assert!(!(in_one.contains(&path) && says_so), "{path}: {reasons:?}");
            }
        }
    }
}

#[test]
fn live_is_refused_where_a_profile_or_the_organisation_says_so() {
    use atoll_model::WorkspaceMode::{CopyOnWrite, Live, ReadOnly};
    for (mut world, expected) in [
        (world(), Ok(Live)),
        (world().project("workspace = 'copy-on-write'"), Ok(Live)),
        (world().organisation("require.workspace = 'live'"), Ok(Live)),
        (world().with("strict"), Err("shipped/strict.toml:3")),
        (
            world().project("\nforbid-live = true"),
            Err("/home/ann/src/app/atoll.toml:2"),
        ),
        (
            world().project("workspace = 'read-only'"),
            Err("/home/ann/src/app/atoll.toml:1"),
        ),
        (
            world().organisation("\n\nrequire.workspace = 'copy-on-write'"),
            Err("/etc/atoll/organisation.toml:3"),
        ),
    ] {
        world.requested.live = true;
        match expected {
            Ok(mode) => assert_eq!(world.boundary().workspace, mode),
            Err(rule) => assert_eq!(world.reasons()[0].rule, rule),
        }
    }
    let profile = |text: &str| world().profile("p", text).with("p");
    for (world, mode) in [
        (profile("workspace = 'live'"), Live),
        (profile("workspace = 'read-only'"), ReadOnly),
        (
            profile("extends = ['strict']\nworkspace = 'live'"),
            CopyOnWrite,
        ),
        (
            profile("extends = ['strict']\nworkspace = 'live'\nforbid-live = false"),
            Live,
        ),
        (
            profile("workspace = 'live'").organisation("require.workspace = 'copy-on-write'"),
            CopyOnWrite,
        ),
        (
            profile("workspace = 'live'").project("workspace = 'read-only'"),
            ReadOnly,
        ),
        (
            profile("workspace = 'read-only'").project("workspace = 'live'"),
            ReadOnly,
        ),
    ] {
        assert_eq!(world.boundary().workspace, mode);
    }
}

#[test]
fn dangerous_is_recorded_and_can_be_forbidden() {
    let world = world()
        .profile("p", "[dangerous]\nunenforced-limits = true")
        .with("p");
    assert!(world.boundary().limits.dangerous_unenforced_limits);
    let reasons = world.organisation("forbid-dangerous = true").reasons();
    assert!(reasons[0].what.contains("user/p.toml:2"), "{reasons:?}");
    assert_eq!(reasons[0].rule, "/etc/atoll/organisation.toml:1");
}

#[test]
fn the_digest_names_everything_that_decided() {
    let base = world().project("limits.cpu = 1");
    let digest = |world: &World| world.grant().policy_digest().to_owned();
    assert_eq!(digest(&base), digest(&base.clone()));
    assert!(digest(&base).starts_with("sha256:") && digest(&base).len() == 71);
    let mut live = base.clone();
    live.requested.live = true;
    let mut limit = base.clone();
    limit.requested.limits = vec![(atoll_model::LimitKey::Cpu, "1".to_owned())];
    let mut timeout = base.clone();
    timeout.requested.timeout = Some(std::time::Duration::from_secs(1));
    let mut env = base.clone();
    env.requested.environment = vec!["A=1".into()];
    let mut ro = base.clone();
    ro.requested.read_only_dirs = vec!["/srv/x".into()];
    let mut untrusted = base.clone();
    untrusted.trust = TrustList::default();
    let all = [
        base.clone(),
        base.clone().project("limits.cpu = 2"),
        base.clone().organisation(""),
        base.clone().config(""),
        base.clone().with("strict"),
        base.clone().profile("default", ""),
        live,
        limit,
        timeout,
        env,
        ro,
        untrusted,
    ];
    let mut digests: Vec<String> = all.iter().map(digest).collect();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), all.len());
}

/// A path, another one, and whether one is the other or lies beneath it.
#[test]
fn paths_overlap_by_whole_components() {
    for (left, right, expected) in [
        ("/a", "/a", true),
        ("/a", "/a/b", true),
        ("/a/", "//a/./b", true),
        ("/", "/a", true),
        ("", "/a", true),
        ("/a", "/ab", false),
        ("/a/b", "/a/c", false),
        ("/b/a", "/a", false),
    ] {
        for (left, right) in [(left, right), (right, left)] {
            let result = crate::places::overlap(left.as_ref(), right.as_ref());
            assert_eq!(result, expected, "{left} {right}");
        }
    }
}

#[test]
fn root_inside_is_a_persons_word_that_the_organisation_can_forbid() {
    let rooted = || world().profile("p", "system.root = true").with("p");
    assert!(!world().boundary().root);
    assert!(rooted().boundary().root);
    let mut by_option = world();
    by_option.requested.root = true;
    let boundary = by_option.boundary();
    assert!(boundary.root);
    // The system is changed in layers, and package managers have what is theirs.
    let layered = |path: &str| {
        let mut views = boundary.views.iter();
        views.any(|view| {
            view.inside == Path::new(path) && view.access != atoll_model::Access::ReadOnly
        })
    };
    assert!(layered("/usr") && layered("/etc") && layered("/var/lib/dpkg"));
    assert!(!layered("/nix") && !layered("/var"));
    assert!(by_option.notices().contains("root inside"));
    // Neither live nor against the organisation.
    let live = by_option
        .clone()
        .profile("l", "workspace = 'live'")
        .with("l");
    assert!(live.reasons()[0].why.contains("live workspace"));
    for world in [by_option, rooted()] {
        let reasons = world.organisation("require.deny-root = true").reasons();
        assert!(
            reasons[0].why.contains("organisation forbids"),
            "{reasons:?}"
        );
    }
}

#[test]
fn root_inside_is_no_projects_to_ask_for() {
    for text in ["system.root = true", "system.root = false"] {
        let error = world().project(text).error();
        assert!(error.contains("cannot choose the system"), "{error}");
    }
    assert!(
        !world()
            .untrusted_project("system.root = true")
            .boundary()
            .root
    );
}

#[test]
fn nesting_is_a_persons_word_that_others_can_forbid() {
    let nested = || world().profile("p", "system.nesting = true").with("p");
    assert!(!world().boundary().nesting);
    assert!(nested().boundary().nesting);
    let mut by_option = world();
    by_option.requested.nesting = true;
    assert!(by_option.boundary().nesting);
    assert!(
        by_option
            .notices()
            .contains("namespaces and mounts of its own")
    );
    let refused = |world: World, why: &str| {
        let reasons = world.reasons();
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].why.contains(why), "{reasons:?}");
        assert!(reasons[0].what.contains("nested sandboxes"), "{reasons:?}");
    };
    for world in [by_option.clone(), nested()] {
        refused(
            world.clone().organisation("require.deny-nesting = true"),
            "namespaces of its own",
        );
        refused(
            world.project("syscalls.deny-nesting = true"),
            "namespaces of its own",
        );
    }
    refused(by_option.clone().with("strict"), "namespaces of its own");
    let with = |text: &str| by_option.clone().profile("l", text).with("l");
    refused(with("workspace = 'live'"), "live workspace");
    refused(
        with("programs.execute = ['/usr/bin/env']"),
        "list of programs",
    );
}

#[test]
fn nesting_is_no_projects_to_ask_for() {
    for text in ["system.nesting = true", "system.nesting = false"] {
        let error = world().project(text).error();
        assert!(error.contains("cannot choose the system"), "{error}");
    }
    assert!(
        !world()
            .untrusted_project("system.nesting = true")
            .boundary()
            .nesting
    );
}
