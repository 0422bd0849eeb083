//! Minimum ages of releases, and the release and file that a request is for.

use std::num::NonZeroU64;
use std::time::{Duration, SystemTime};

use crate::network::*;

const DAY_MS: u64 = 86_400_000;
const DAY: Duration = Duration::from_millis(DAY_MS);
const HASHED: &str = "/packages/ab/cd/012345678901234567890123456789012345678901234567890123456789";

/// Returns a rule for packages of a registry, at one of its hosts: with a minimum age in days, or
/// none for 0.
fn rule(registry: Registry, host: &str, names: &[&str], days: u64) -> NetworkRule {
    let names = names
        .iter()
        .map(|name| PackagePattern::try_from((*name).to_owned()).unwrap());
    NetworkRule {
        to: format!("{host}:443").parse().unwrap(),
        requests: Conditions {
            packages: Some(Packages {
                registry,
                names: names.collect(),
                minimum_age_ms: NonZeroU64::new(days * DAY_MS),
                locks: Vec::new(),
            }),
            ..Conditions::default()
        },
        ..NetworkRule::learning()
    }
}

fn npm(names: &[&str], days: u64) -> NetworkRule {
    rule(Registry::Npm, "registry.npmjs.org", names, days)
}

/// Returns a rule for a whole host, as presets have it.
fn whole(host: &str) -> NetworkRule {
    NetworkRule {
        to: format!("{host}:443").parse().unwrap(),
        ..NetworkRule::learning()
    }
}

/// Returns whether a request may be sent, and the minimum age required of its file.
fn asked(network: &Network, host: &str, path: &str) -> (bool, Option<(u64, String)>) {
    let (host, target) = (host.parse().unwrap(), Target::parse(path).unwrap());
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method: "GET",
        target: &target,
    };
    let demand = network.demand(&request).map(|demand| {
        let days = demand.minimum_age.as_secs() / DAY.as_secs();
        (days, demand.file.to_string())
    });
    (network.request(&request).is_ok(), demand)
}

fn network(allow: Vec<NetworkRule>, deny: Vec<NetworkRule>) -> Network {
    Network {
        allow,
        deny,
        ..Network::default()
    }
}

#[test]
fn the_file_of_a_release_is_known_by_its_path() {
    let wheel = format!("{HASHED}/Left_Pad-1.0.0-py3-none-any.whl");
    let source = format!("{HASHED}/left-pad-1.0.0.tar.gz");
    let two = format!("{HASHED}/left-1-2.tar.gz");
    let said = format!("{wheel}.metadata");
    for (registry, host, path, expected) in [
        (Registry::Npm, "registry.npmjs.org", "/left-pad", None),
        (Registry::Npm, "registry.npmjs.org", "/left-pad/1.3.0", None),
        (
            Registry::Npm,
            "registry.npmjs.org",
            "/left-pad/-/left-pad-1.3.0.tgz",
            Some("left-pad 1.3.0 of npm"),
        ),
        (
            Registry::Npm,
            "registry.yarnpkg.com",
            "/left-pad/-/left-pad-1.3.0.tgz?a=b",
            Some("left-pad 1.3.0 of npm"),
        ),
        (
            Registry::Npm,
            "registry.npmjs.org",
            "/left%2Dpad/-/left%2Dpad-1%2E3.0-rc.1.tgz",
            Some("left-pad 1.3.0-rc.1 of npm"),
        ),
        (
            Registry::Npm,
            "registry.npmjs.org",
            "/@a/b/-/b-1.0.0%2B2.tgz",
            Some("@a/b 1.0.0+2 of npm"),
        ),
        (
            Registry::Npm,
            "registry.npmjs.org",
            "/@a%2fb/-/b-1.0.0.tgz",
            Some("@a/b 1.0.0 of npm"),
        ),
        (Registry::Pip, "pypi.org", "/simple/left-pad/", None),
        (
            Registry::Pip,
            "files.pythonhosted.org",
            &wheel,
            Some("Left_Pad-1.0.0-py3-none-any.whl of pip"),
        ),
        (
            Registry::Pip,
            "files.pythonhosted.org",
            &source,
            Some("left-pad-1.0.0.tar.gz of pip"),
        ),
        (
            Registry::Pip,
            "files.pythonhosted.org",
            &two,
            Some("left-1-2.tar.gz of pip"),
        ),
        (Registry::Pip, "files.pythonhosted.org", &said, None),
        (Registry::Cargo, "index.crates.io", "/le/ft/left-pad", None),
        (Registry::Cargo, "index.crates.io", "/config.json", None),
        (
            Registry::Cargo,
            "static.crates.io",
            "/crates/left-pad/1.0.0/download",
            Some("left-pad 1.0.0 of cargo"),
        ),
        (
            Registry::Cargo,
            "static.crates.io",
            "/crates/left-pad/left-pad-1.0.0+1.crate",
            Some("left-pad 1.0.0+1 of cargo"),
        ),
        (
            Registry::Cargo,
            "crates.io",
            "/api/v1/crates/left-pad/1.0.0/download",
            Some("left-pad 1.0.0 of cargo"),
        ),
    ] {
        let rule = rule(registry, host, &["*"], 7);
        let expected = (true, expected.map(|file| (7, file.to_owned())));
        let by_allowing = network(vec![rule.clone()], Vec::new());
        assert_eq!(asked(&by_allowing, host, path), expected, "{path}");
        let by_denying = network(vec![whole(host)], vec![rule]);
        assert_eq!(asked(&by_denying, host, path), expected, "{path}");
    }
}

/// With a minimum age, a path that may be a release in another form is refused, even if another
/// rule allows the whole host.
#[test]
fn what_may_be_a_release_in_another_form_is_refused() {
    const HOST: &str = "registry.npmjs.org";
    let aged = npm(&["left-pad"], 7);
    for path in [
        "/left-pad/-/left-pad-1.3.0.tgz/",
        "/left-pad/-/left-pad-1.3.0.TGZ",
        "/left-pad/-/LEFT-PAD-1.3.0.tgz",
        "/left-pad/-/other-1.3.0.tgz",
        "/left-pad//-/left-pad-1.3.0.tgz",
        "/left-pad/-/x/../left-pad-1.3.0.tgz",
        "/left-pad%2F-%2Fleft-pad-1.3.0.tgz",
        "/left-pad/%2D%2D/left-pad-1.3.0.tgz",
        "/left-pad/-/left-pad-1.3.0%00.tgz",
        "/left-pad/download/left-pad-1.3.0.tgz",
        "/-/all",
    ] {
        for network in [
            network(vec![whole(HOST), aged.clone()], Vec::new()),
            network(vec![whole(HOST)], vec![aged.clone()]),
        ] {
            assert_eq!(asked(&network, HOST, path), (false, None), "{path}");
        }
        // The control.
        let all = network(vec![whole(HOST)], Vec::new());
        assert_eq!(asked(&all, HOST, path), (true, None), "{path}");
    }
}

#[test]
fn which_rule_asks_for_an_age() {
    const HOST: &str = "registry.npmjs.org";
    const FILE: &str = "/left-pad/-/left-pad-1.3.0.tgz";
    let days = |allow: Vec<NetworkRule>, deny: Vec<NetworkRule>| {
        let (may, demand) = asked(&network(allow, deny), HOST, FILE);
        assert!(may);
        demand.map(|(days, _)| days)
    };
    let (all, own, other) = (npm(&["*"], 7), npm(&["left-*"], 0), npm(&["right"], 9));
    let first = |one: &NetworkRule, two: &NetworkRule| vec![one.clone(), two.clone()];
    assert_eq!(days(vec![all.clone()], Vec::new()), Some(7));
    // A rule for the host, as a preset is, takes nothing of it away; one by name before it does.
    assert_eq!(days(first(&whole(HOST), &all), Vec::new()), Some(7));
    assert_eq!(days(first(&own, &all), Vec::new()), None);
    assert_eq!(days(first(&all, &own), Vec::new()), Some(7));
    assert_eq!(days(first(&other, &own), Vec::new()), None);
    assert_eq!(
        days(first(&npm(&["left-pad"], 1), &all), Vec::new()),
        Some(1)
    );
    // What is denied by its age is, whatever allows it.
    assert_eq!(days(vec![own.clone()], vec![all.clone()]), Some(7));
    assert_eq!(days(vec![own], vec![other]), None);
    assert_eq!(days(vec![npm(&["*"], 30)], vec![all.clone()]), Some(30));
    assert_eq!(days(vec![npm(&["*"], 1)], vec![all]), Some(7));
    // Upper and lower case may be one package to a server.
    assert_eq!(
        days(vec![whole(HOST)], vec![npm(&["LEFT-PAD"], 7)]),
        Some(7)
    );
}

/// The minimum age of a release applies without TLS, and at other ports.
#[test]
fn the_age_of_a_release_holds_at_every_port() {
    let host = "registry.npmjs.org".parse().unwrap();
    let target = Target::parse("/left-pad/-/left-pad-1.3.0.tgz").unwrap();
    let network = network(
        vec![whole("registry.npmjs.org"), npm(&["*"], 7)],
        Vec::new(),
    );
    for (scheme, port) in [
        (Scheme::Https, 443),
        (Scheme::Http, 80),
        (Scheme::Https, 8443),
        (Scheme::Http, 443),
    ] {
        let request = Request {
            host: &host,
            port,
            scheme,
            method: "GET",
            target: &target,
        };
        assert!(network.demand(&request).is_some(), "{scheme} {port}");
    }
}

/// A file whose name can belong to two projects has to meet the minimum age of either.
#[test]
fn a_file_of_two_projects_is_held_to_the_age_of_either() {
    const HOST: &str = "files.pythonhosted.org";
    let two = format!("{HASHED}/left-1-2.tar.gz");
    for (name, expected) in [("left", true), ("left-1", true), ("right", false)] {
        let aged = rule(Registry::Pip, HOST, &[name], 7);
        let own = rule(Registry::Pip, HOST, &["left-1"], 0);
        // A table for one that it may be does not stand before the one that allows it.
        let weaker = rule(Registry::Pip, HOST, &["left"], 1);
        let all = rule(Registry::Pip, HOST, &["*"], 9);
        let network_of_two = network(vec![weaker, all], Vec::new());
        let (may, demand) = asked(&network_of_two, HOST, &two);
        assert_eq!((may, demand.map(|(days, _)| days)), (true, Some(9)));
        for network in [
            network(vec![whole(HOST), aged.clone()], Vec::new()),
            network(vec![own, aged.clone(), whole(HOST)], Vec::new()),
            network(vec![whole(HOST)], vec![aged]),
        ] {
            let (may, demand) = asked(&network, HOST, &two);
            assert_eq!((may, demand.is_some()), (true, expected), "{name}");
        }
    }
}

#[test]
fn a_release_is_as_old_as_the_clock_says() {
    let network = network(vec![npm(&["*"], 7)], Vec::new());
    let host = "registry.npmjs.org".parse().unwrap();
    let target = Target::parse("/left-pad/-/left-pad-1.3.0.tgz").unwrap();
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method: "HEAD",
        target: &target,
    };
    let demand = network.demand(&request).unwrap();
    let now = SystemTime::UNIX_EPOCH + DAY * 20_000;
    let second = Duration::from_secs(1);
    for (released, expected) in [
        (now - DAY * 7, Ok(())),
        (now - DAY * 7 - second, Ok(())),
        (SystemTime::UNIX_EPOCH, Ok(())),
        (
            now - DAY * 7 + second,
            Err(Unaged::Young {
                age: DAY * 7 - second,
            }),
        ),
        (
            now,
            Err(Unaged::Young {
                age: Duration::ZERO,
            }),
        ),
        (now + second, Err(Unaged::Future)),
    ] {
        assert_eq!(demand.judge(released, now), expected);
    }
    let young = Unaged::Young { age: DAY * 3 };
    let why = demand.why(&young);
    assert!(
        why.starts_with("left-pad 1.3.0 of npm was released 3 d 0 h ago, and has to be 7d old: "),
        "{why}"
    );
    assert!(
        why.ends_with(" for packages * of npm released at least 7 days ago (--learn)"),
        "{why}"
    );
    let inside = demand.why_inside(&young);
    assert!(inside.ends_with("released at least 7 days ago"), "{inside}");
    assert!(demand.how_to_ask().contains("at least 7d old"));
    let unknown = demand.why(&Unaged::Unknown("nobody answers".to_owned()));
    assert!(
        unknown.contains("cannot be learnt: nobody answers"),
        "{unknown}"
    );
}

#[test]
fn programs_are_told_from_when_on_releases_are_too_young() {
    // 2026-11-21T09:30:12Z.
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_253_412);
    let pip = |names: &[&str], days| rule(Registry::Pip, "pypi.org", names, days);
    for (allow, deny, expected) in [
        (
            vec![npm(&["*"], 7)],
            Vec::new(),
            vec![("npm_config_before", "2026-11-14T09:30:12Z")],
        ),
        (
            vec![npm(&["*"], 7)],
            vec![npm(&["*"], 14)],
            vec![("npm_config_before", "2026-11-07T09:30:12Z")],
        ),
        (
            vec![whole("pypi.org")],
            vec![pip(&["a", "*"], 300)],
            vec![
                ("UV_EXCLUDE_NEWER", "2026-01-25T09:30:12Z"),
                ("PIP_UPLOADED_PRIOR_TO", "2026-01-25T09:30:12Z"),
            ],
        ),
        // What is about some packages is not about all of them.
        (vec![npm(&["left-*"], 7)], Vec::new(), Vec::new()),
        (vec![npm(&["*"], 0)], Vec::new(), Vec::new()),
        (
            vec![npm(&["*"], 1_000_000)],
            Vec::new(),
            vec![("npm_config_before", "1970-01-01T00:00:00Z")],
        ),
    ] {
        let found = age_variables(&network(allow, deny), now);
        let found: Vec<_> = found
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn registries_are_asked_where_they_tell_dates() {
    let at = |registry, name: &str| {
        let name = name.to_owned();
        let (host, path) = Project { registry, name }.told_at();
        format!("{host}{path}")
    };
    assert_eq!(at(Registry::Npm, "left-pad"), "registry.npmjs.org/left-pad");
    assert_eq!(at(Registry::Npm, "@a/b"), "registry.npmjs.org/@a%2Fb");
    assert_eq!(at(Registry::Pip, "left-pad"), "pypi.org/simple/left-pad/");
    for (name, path) in [
        ("a", "1/a"),
        ("ab", "2/ab"),
        ("abc", "3/a/abc"),
        ("serde", "se/rd/serde"),
    ] {
        assert_eq!(at(Registry::Cargo, name), format!("index.crates.io/{path}"));
    }
    let file = ReleaseFile::Pip {
        projects: vec!["Left_.Pad".to_owned()],
        path: "/x".to_owned(),
    };
    assert_eq!(file.projects()[0].name, "left-pad");
}

#[test]
fn an_age_that_is_denied_beneath_is_told_so() {
    let network = network(vec![whole("registry.npmjs.org")], vec![npm(&["*"], 7)]);
    let host = "registry.npmjs.org".parse().unwrap();
    let target = Target::parse("/left-pad/-/left-pad-1.3.0.tgz").unwrap();
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method: "GET",
        target: &target,
    };
    let demand = network.demand(&request).unwrap();
    let told = "for packages * of npm, but for those released at least 7 days ago";
    let young = Unaged::Young { age: DAY };
    let why = demand.why(&young);
    assert!(why.ends_with(&format!("{told} (--learn)")), "{why}");
    assert!(demand.why_inside(&young).ends_with(told));
}
