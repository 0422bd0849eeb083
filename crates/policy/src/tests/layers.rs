use std::time::Duration;

use atoll_model::LimitKey;

use super::*;

#[test]
fn one_changed_byte_ends_trust() {
    let text = "home.read = ['.ssh']";
    let trusted = world().project(text);
    assert!(trusted.views().contains(&"/home/ann/.ssh".to_owned()));
    assert_eq!(trusted.notices(), "");
    let mut changed = trusted.clone();
    changed.project = Some(format!("{text}\n"));
    assert!(!changed.views().contains(&"/home/ann/.ssh".to_owned()));
    assert!(changed.notices().contains("changed since it was trusted"));
    assert!(changed.notices().contains("atoll trust"));
    let fresh = world().untrusted_project(text);
    assert!(fresh.notices().contains("nobody has trusted"));
    assert_eq!(fresh.boundary(), world().boundary());
}

#[test]
fn trust_is_for_one_path() {
    let mut world = world().untrusted_project("profile = 'strict'");
    world
        .trust
        .trust("/elsewhere/atoll.toml", b"profile = 'strict'");
    assert_eq!(world.boundary().profile, "default");
}

#[test]
fn trust_lists_are_written_and_read() {
    let mut list = TrustList::default();
    for path in [
        "/b/atoll.toml",
        "/a \"quoted\"\n/atoll.toml",
        "/ü/atoll.toml",
    ] {
        list.trust(path, path.as_bytes());
    }
    list.trust("/b/atoll.toml", b"new");
    assert!(list.revoke("/ü/atoll.toml") && !list.revoke("/ü/atoll.toml"));
    let text = list.to_text();
    let read = TrustList::parse(&SourceFile::new("trust.toml", text.as_bytes())).unwrap();
    assert!(read.trusts("/b/atoll.toml", b"new") && !read.trusts("/b/atoll.toml", b"old"));
    assert!(read.knows("/a \"quoted\"\n/atoll.toml"));
    assert_eq!(read.entries().len(), 2);
    assert_eq!(read.to_text(), text);
    let digit = "0".repeat(64);
    for (wrong, holds) in [
        (
            "[[trusted]]\npath = '/a'".to_owned(),
            "needs `path` and `sha256`",
        ),
        (
            format!("[[trusted]]\npath = 'a'\nsha256 = '{digit}'"),
            "not an absolute path",
        ),
        (
            "[[trusted]]\npath = '/a'\nsha256 = 'AA'".to_owned(),
            "64 lower-case",
        ),
        (
            format!("[[trusted]]\npath='/a'\nsha256='{digit}'\n").repeat(2),
            "is here twice",
        ),
        ("trusted = 1".to_owned(), "write [[trusted]]"),
        ("[[trusted]]\npth = '/a'".to_owned(), "did you mean `path`?"),
        ("[[trust]]".to_owned(), "did you mean `trusted`?"),
    ] {
        let error = TrustList::parse(&SourceFile::new("trust.toml", wrong.as_bytes()));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(holds), "{wrong}: {error}");
    }
    assert_eq!(digest(b"abc").get(..8), Some("ba7816bf"));
}

#[test]
fn limits_go_through_the_layers() {
    let gib = 1_u64 << 30;
    for (profile, project, option, organisation, bytes, from) in [
        ("", "", "", "", 12 * gib, "built in"),
        ("14G", "", "", "", 14 * gib, "user/p.toml:1"),
        (
            "14G",
            "2G",
            "",
            "",
            2 * gib,
            "/home/ann/src/app/atoll.toml:1",
        ),
        ("14G", "15G", "", "", 14 * gib, "user/p.toml:1"),
        ("14G", "2G", "13G", "", 13 * gib, "--limit"),
        (
            "14G",
            "2G",
            "13G",
            "8G",
            8 * gib,
            "/etc/atoll/organisation.toml:1",
        ),
        (
            "14G",
            "2G",
            "",
            "8G",
            2 * gib,
            "/home/ann/src/app/atoll.toml:1",
        ),
        (
            "",
            "",
            "",
            "50%",
            16 * gib / 100 * 50,
            "/etc/atoll/organisation.toml:1",
        ),
    ] {
        let line = |text: &str| match text {
            "" => String::new(),
            text => format!("limits.memory = '{text}'"),
        };
        let mut world = world()
            .profile("p", &line(profile))
            .with("p")
            .project(&line(project))
            .organisation(&line(organisation));
        if !option.is_empty() {
            world.requested.limits = vec![(LimitKey::Memory, option.to_owned())];
        }
        let got = world.boundary().limits.memory_bytes;
        assert_eq!(
            got >> 20,
            bytes >> 20,
            "{profile} {project} {option} {organisation}"
        );
        assert_eq!(
            world.rules().limits.origin(LimitKey::Memory).to_string(),
            from
        );
    }
}

#[test]
fn the_timeout_is_a_wall_clock_limit() {
    let second = Duration::from_secs(1);
    for (limit, timeout, organisation, expected, from) in [
        (None, Some(second * 5), "", Some(second * 5), "--timeout"),
        (
            Some("3s"),
            Some(second * 5),
            "",
            Some(second * 3),
            "--limit",
        ),
        (
            Some("9s"),
            Some(second * 5),
            "",
            Some(second * 5),
            "--timeout",
        ),
        (Some("none"), None, "", None, "--limit"),
        (
            Some("none"),
            None,
            "wall-clock = '2s'",
            Some(second * 2),
            "/etc/atoll/organisation.toml:2",
        ),
        (
            None,
            Some(second),
            "wall-clock = '2s'",
            Some(second),
            "--timeout",
        ),
    ] {
        let mut world = world()
            .with("strict")
            .organisation(&format!("[limits]\n{organisation}"));
        world.requested.timeout = timeout;
        if let Some(limit) = limit {
            world.requested.limits = vec![(LimitKey::WallClock, limit.to_owned())];
        }
        assert_eq!(world.boundary().limits.wall_clock, expected);
        assert_eq!(
            world.rules().limits.origin(LimitKey::WallClock).to_string(),
            from
        );
    }
    let mut zero = world();
    zero.requested.timeout = Some(Duration::ZERO);
    assert!(zero.error().starts_with("--timeout: "));
    let mut wrong = world();
    wrong.requested.limits = vec![(LimitKey::Memory, "much".to_owned())];
    assert!(wrong.error().starts_with("--limit: "));
}

#[test]
fn what_is_optional_and_denied_is_left_out() {
    for (denied, gone, stays) in [
        (
            ".cargo/registry",
            "/home/ann/.cargo/registry",
            "/home/ann/.cargo/git",
        ),
        (
            ".rustup/toolchains/nightly",
            "/home/ann/.rustup",
            "/home/ann/.cargo/bin",
        ),
        (".cargo", "/home/ann/.cargo/bin", "/home/ann/.rustup"),
    ] {
        for layer in ["organisation", "project"] {
            let text = format!("deny.home-read = ['{denied}']");
            let world = match layer {
                "organisation" => world().with("rust").organisation(&text),
                _ => world().with("rust").project(&text),
            };
            let views = world.views();
            assert!(!views.contains(&gone.to_owned()), "{denied}: {views:?}");
            assert!(views.contains(&stays.to_owned()), "{denied}: {views:?}");
            assert!(world.notices().contains(gone), "{}", world.notices());
        }
    }
}

#[test]
fn what_is_needed_and_denied_is_refused() {
    let organisation = "[deny]\nfiles = ['/srv/secret', '/etc/shadow', '~/src/secret']";
    let base = || {
        world()
            .organisation(organisation)
            .profile("p", "system.read = ['/usr']")
            .with("p")
    };
    assert!(base().boundary().views.len() == 1);
    let mut ro = base();
    ro.requested.read_only_dirs = vec!["/srv".into()];
    let mut within = base();
    within.start_in("/srv/secret/x", "/srv/secret/x");
    let mut holds = base();
    holds.start_in("/home/ann/src", "/home/ann/src");
    for (world, what, why) in [
        (ro, "showing /srv (--ro)", "it holds /srv/secret"),
        (
            within,
            "the workspace /srv/secret/x",
            "it lies in /srv/secret",
        ),
        (
            holds,
            "the workspace /home/ann/src",
            "it holds /home/ann/src/secret",
        ),
        (
            base().with("default"),
            "showing /etc (built in)",
            "it holds /etc/shadow",
        ),
        (
            base().profile("p", "files.read = ['/srv/secret']\nsystem.read = []"),
            "showing /srv/secret (user/p.toml:1)",
            "/srv/secret is denied",
        ),
        (
            base().project("files.read = ['/srv/secret/x']"),
            "showing /srv/secret/x (/home/ann/src/app/atoll.toml:1)",
            "it lies in /srv/secret",
        ),
    ] {
        let reasons = world.reasons();
        assert_eq!(reasons[0].what, what, "{reasons:?}");
        assert!(reasons[0].why.contains(why), "{reasons:?}");
        assert_eq!(reasons[0].rule, "/etc/atoll/organisation.toml:2");
    }
}

#[test]
fn denied_variables_do_not_arrive() {
    let base = world()
        .profile(
            "p",
            "[environment]\npass = ['A', 'B_*']\nset = { B_2 = 'set' }",
        )
        .with("p")
        .variable("A", "1")
        .variable("B_1", "1")
        .variable("LC_ALL", "C")
        .organisation("deny.environment = ['A', 'B_*', 'LC_*']");
    for name in ["A", "B_1", "B_2", "LC_ALL"] {
        assert_eq!(base.value(name), None, "{name}");
    }
    assert!(base.notices().contains("B_2 is not set"));
    for option in ["A", "B_9=x"] {
        let mut world = base.clone();
        world.requested.environment = vec![option.into()];
        assert!(world.reasons()[0].why.contains("denied"));
    }
}

#[test]
fn rights_can_be_taken_away_from_above_and_below() {
    let profile = "[terminal]\nqueries=true\nclipboard=true\ntitle=true";
    let world = world()
        .profile("p", profile)
        .with("p")
        .project("terminal.title = false\nsyscalls.deny-debugging = true")
        .organisation("terminal.clipboard = false\nrequire.deny-sockets = true");
    let boundary = world.boundary();
    assert!(boundary.terminal.queries);
    assert!(!boundary.terminal.clipboard && !boundary.terminal.title);
    assert!(boundary.syscalls.deny_debugging && boundary.syscalls.deny_sockets);
}

#[test]
fn programs_are_those_that_profile_and_project_both_allow() {
    for (profile, project, expected) in [
        ("", "", Some(vec![])),
        ("'/usr/bin'", "", Some(vec!["/usr/bin"])),
        ("", "'/usr/bin'", Some(vec!["/usr/bin"])),
        ("'/usr'", "'/usr/bin'", Some(vec!["/usr/bin"])),
        ("'/usr/bin'", "'/usr'", Some(vec!["/usr/bin"])),
        (
            "'/usr/bin', '~/.cargo/bin'",
            "'/usr/bin', '~/.cargo'",
            Some(vec!["/usr/bin", "/home/ann/.cargo/bin"]),
        ),
        ("'/usr/bin'", "'/opt'", None),
    ] {
        let line = |list: &str| match list {
            "" => String::new(),
            list => format!("programs.execute = [{list}]"),
        };
        let world = world()
            .profile("p", &line(profile))
            .with("p")
            .project(&line(project));
        match expected {
            Some(expected) => {
                let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
                assert_eq!(world.boundary().programs, expected, "{profile} | {project}");
            }
            None => assert!(world.reasons()[0].why.contains("nothing in common")),
        }
    }
}

#[test]
fn empty_lists_allow_nothing() {
    let empty = "system.read=[]\nfiles.read=[]\nenvironment.pass=[]\n\
                 [home]\nread=[]\nlayer=[]\ncache=[]";
    let world = world()
        .profile("p", empty)
        .with("p")
        .variable("EDITOR", "vi");
    assert_eq!(world.views(), Vec::<String>::new());
    assert_eq!(world.value("EDITOR"), None);
}

#[test]
fn parents_come_first_and_a_later_word_counts() {
    let world = world()
        .profile("a", "home.layer = ['x/y/z', 'x']\nhome.read = ['x/y']")
        .profile(
            "b",
            "extends = ['a']\nhome.read = ['x']\nfiles.read = ['~/x/y']",
        )
        .with("b");
    let boundary = world.boundary();
    let views: Vec<(String, bool, bool)> = boundary
        .views
        .iter()
        .filter(|view| view.inside.starts_with("/home"))
        .map(|view| {
            let read_only = view.access == atoll_model::Access::ReadOnly;
            (view.inside.display().to_string(), read_only, view.required)
        })
        .collect();
    let expected = [
        ("/home/ann/x".to_owned(), true, false),
        ("/home/ann/x/y".to_owned(), true, true),
        ("/home/ann/x/y/z".to_owned(), false, false),
    ];
    assert_eq!(views, expected);
}

#[test]
fn caches_are_kept_only_when_a_profile_says_so() {
    use atoll_model::{Access, Keep, Layering};
    for (text, keep) in [
        ("home.cache = ['.c']", Keep::Run),
        (
            "home.cache = ['.c']\nhome.keep-caches = true",
            Keep::Profile,
        ),
        ("home.layer = ['.c']\nhome.keep-caches = true", Keep::Run),
        ("home.keep = ['.c']", Keep::Profile),
    ] {
        let text = format!("system.read = []\n{text}");
        let boundary = world().profile("p", &text).with("p").boundary();
        assert_eq!(boundary.views[0].access, Access::Layer(Layering { keep }));
    }
}

#[test]
fn a_home_in_a_system_directory_is_not_shown_with_it() {
    let mut world = world();
    world.host.home = "/opt/ann".into();
    world.host.state_dir = "/opt/ann/state".into();
    world.host.config_dir = "/opt/ann/config".into();
    world.start_in("/opt/ann/app", "/opt/ann/app");
    assert!(!world.views().contains(&"/opt".to_owned()));
    assert!(world.notices().contains("/opt is not shown"));
}

/// A right that a layer below the organisation requests, and whether it is granted.
struct Wish {
    what: &'static str,
    forbidden_by: &'static str,
    world: fn() -> World,
    is_granted: fn(&World) -> bool,
}

fn reaches(world: &World, host: &str) -> bool {
    let name = atoll_model::network::HostName::parse(host).unwrap();
    matches!(world.decide(), Verdict::Allow(_)) && world.rules().network().name(&name).is_ok()
}

fn is_allowed(world: &World) -> bool {
    matches!(world.decide(), Verdict::Allow(_))
}

fn stated(world: &World, text: &str) -> bool {
    let stated = world.rules().stated_trust();
    stated
        .iter()
        .any(|(key, value)| format!("{key} {value}") == text)
}

fn asking(change: fn(&mut Requested)) -> World {
    let mut world = world();
    change(&mut world.requested);
    world
}

/// Everything that a profile or an option can set to widen, against an organisation that forbids
/// it. Without the organisation each is granted.
#[test]
fn nothing_below_the_organisation_widens_what_it_says() {
    const EVIL: &str = "deny.network = ['*.evil.example:*']";
    let wishes = [
        Wish {
            what: "--allow",
            forbidden_by: EVIL,
            world: || asking(|one| one.allow = vec!["a.evil.example".to_owned()]),
            is_granted: |world| reaches(world, "a.evil.example"),
        },
        Wish {
            what: "--tunnel",
            forbidden_by: EVIL,
            world: || asking(|one| one.tunnel = vec!["a.evil.example".to_owned()]),
            is_granted: |world| reaches(world, "a.evil.example"),
        },
        Wish {
            what: "--ask",
            forbidden_by: EVIL,
            world: || asking(|one| one.ask = vec!["a.evil.example".to_owned()]),
            is_granted: |world| reaches(world, "a.evil.example"),
        },
        Wish {
            what: "a profile's allow",
            forbidden_by: EVIL,
            world: || {
                world()
                    .profile("p", "network.allow = ['a.evil.example']")
                    .with("p")
            },
            is_granted: |world| reaches(world, "a.evil.example"),
        },
        Wish {
            what: "--preset of rules",
            forbidden_by: "deny.network = ['*.crates.io:*', 'crates.io:*']",
            world: || asking(|one| one.presets = vec!["cargo".to_owned()]),
            is_granted: |world| reaches(world, "index.crates.io"),
        },
        Wish {
            what: "--learn",
            forbidden_by: "forbid-dangerous = true",
            world: || asking(|one| one.learn = true),
            is_granted: is_allowed,
        },
        Wish {
            what: "--trust",
            forbidden_by: "trust.level = 'low'",
            world: || asking(|one| one.trust = Some("full".to_owned())),
            is_granted: |world| stated(world, "trust full"),
        },
        Wish {
            what: "--mode",
            forbidden_by: "trust.mode = 'strict'",
            world: || asking(|one| one.mode = Some("permissive".to_owned())),
            is_granted: |world| stated(world, "trust-mode permissive"),
        },
        Wish {
            what: "--preset of a level",
            forbidden_by: "trust.level = 'low'",
            world: || asking(|one| one.presets = vec!["development-assistant".to_owned()]),
            is_granted: |world| stated(world, "trust medium"),
        },
        Wish {
            what: "a profile's level",
            forbidden_by: "trust.level = 'none'",
            world: || world().profile("p", "trust.level = 'high'").with("p"),
            is_granted: |world| stated(world, "trust high"),
        },
        Wish {
            what: "a profile's hosts of models",
            forbidden_by: "trust.endpoints = []",
            world: || {
                let lines = "trust.level = 'low'\ntrust.endpoints = ['m.example']";
                world().profile("p", lines).with("p")
            },
            is_granted: |world| !world.rules().trust.endpoints.is_empty(),
        },
        Wish {
            what: "--env NAME=VALUE",
            forbidden_by: "deny.environment = ['AWS_*']",
            world: || asking(|one| one.environment = vec!["AWS_REGION=x".into()]),
            is_granted: |world| is_allowed(world) && world.value("AWS_REGION").is_some(),
        },
        Wish {
            what: "a profile's variable",
            forbidden_by: "deny.environment = ['AWS_*']",
            world: || {
                world()
                    .profile("p", "environment.set = { AWS_REGION = 'x' }")
                    .with("p")
            },
            is_granted: |world| is_allowed(world) && world.value("AWS_REGION").is_some(),
        },
        Wish {
            what: "--publish",
            forbidden_by: "require.deny-publishing = true",
            world: || asking(|one| one.publish = vec!["3000".to_owned()]),
            is_granted: is_allowed,
        },
        Wish {
            what: "--limit",
            forbidden_by: "limits.processes = 10",
            world: || asking(|one| one.limits = vec![(LimitKey::Processes, "500".to_owned())]),
            is_granted: |world| world.boundary().limits.processes == 500,
        },
        Wish {
            what: "--live",
            forbidden_by: "require.workspace = 'copy-on-write'",
            world: || asking(|one| one.live = true),
            is_granted: is_allowed,
        },
        Wish {
            what: "--root",
            forbidden_by: "require.deny-root = true",
            world: || asking(|one| one.root = true),
            is_granted: is_allowed,
        },
        Wish {
            what: "--nesting",
            forbidden_by: "require.deny-nesting = true",
            world: || asking(|one| one.nesting = true),
            is_granted: is_allowed,
        },
        Wish {
            what: "--ro",
            forbidden_by: "deny.files = ['/srv/secret']",
            world: || asking(|one| one.read_only_dirs = vec!["/srv/secret/x".into()]),
            is_granted: is_allowed,
        },
        Wish {
            what: "a profile's place of the home",
            forbidden_by: "deny.home-read = ['.cargo']",
            world: || {
                world()
                    .profile("p", "home.read = ['.cargo/registry']")
                    .with("p")
            },
            is_granted: |world| world.views().iter().any(|path| path.contains(".cargo")),
        },
        Wish {
            what: "a profile's clipboard",
            forbidden_by: "terminal.clipboard = false",
            world: || world().profile("p", "terminal.clipboard = true").with("p"),
            is_granted: |world| world.boundary().terminal.clipboard,
        },
        Wish {
            what: "past the proxy",
            forbidden_by: "network.upstream-proxy = 'http://proxy.example:3128'",
            world: || {
                let lines = "network.upstream-proxy = 'http://own.example:1'\nnetwork.no-proxy = ['*.evil.example']";
                world().profile("p", lines).with("p")
            },
            is_granted: |world| !world.boundary().network.upstream.direct.is_empty(),
        },
        Wish {
            what: "another proxy",
            forbidden_by: "network.upstream-proxy = 'http://proxy.example:3128'",
            world: || {
                let lines = "network.upstream-proxy = 'http://own.example:1'";
                world().profile("p", lines).with("p")
            },
            is_granted: |world| {
                let proxy = world.boundary().network.upstream.proxy;
                proxy.is_some_and(|proxy| proxy.host.to_string() == "own.example")
            },
        },
    ];
    for wish in wishes {
        let what = wish.what;
        assert!((wish.is_granted)(&(wish.world)()), "{what} is no wish");
        let bound = (wish.world)().organisation(wish.forbidden_by);
        assert!(
            !(wish.is_granted)(&bound),
            "{what} goes beyond the organisation"
        );
    }
}

/// The organisation's approvals and private places stay, whatever lower layers set.
#[test]
fn nothing_below_the_organisation_takes_its_word_away() {
    let lines = "trust.level = 'full'\ntrust.mode = 'permissive'\nnetwork.allow = ['a.example']\n\
                 labels.private = ['/srv/own']\nlabels.trusted = ['a.example']";
    let below = || world().profile("p", lines).with("p");
    let above =
        below().organisation("network.ask = ['a.example']\nlabels.private = ['/srv/theirs']");
    assert!(below().boundary().network.ask.is_empty());
    assert!(!above.boundary().network.ask.is_empty());
    let private = |world: &World| format!("{:?}", world.rules().labels);
    assert!(!private(&below()).contains("/srv/theirs"));
    assert!(private(&above).contains("/srv/theirs") && private(&above).contains("/srv/own"));
}

#[test]
fn a_config_names_one_absolute_directory_of_the_organisation() {
    let directory = |text: &'static str| {
        crate::organisation_directory(&SourceFile::new("user/config.toml", text.as_bytes()))
    };
    let named = "default-profile = 'rust'\norganisation = { directory = '/srv/acme' }\n";
    assert_eq!(directory(named).unwrap(), Some(PathBuf::from("/srv/acme")));
    assert_eq!(directory("").unwrap(), None);
    for wrong in [
        "organisation = '/srv/acme'",
        "organisation = {}",
        "organisation = { directory = 'acme' }",
        "organisation = { directory = '/srv/acme', key = 'x' }",
        "organisation = { directory = ['/srv/acme'] }",
        "organisation.directory = '/srv/acme'\nelse = 1",
        "no toml",
    ] {
        assert!(directory(wrong).is_err(), "{wrong}");
    }
}
