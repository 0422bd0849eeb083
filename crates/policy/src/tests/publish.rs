//! Published ports: their authors, and the modes without them.

use atoll_model::network::{Published, PublishedPort};
use atoll_model::{Asker, Mode, PublishPort};

use super::*;
use crate::{Granted, Living};

fn published(world: &World) -> Vec<(u16, u16, String)> {
    let ports = world.boundary().network.publish;
    let port = |Published { port, origin, .. }: Published| (port.outside, port.inside, origin);
    ports.into_iter().map(port).collect()
}

#[test]
fn published_ports_are_read_in_one_form() {
    for (text, expected) in [
        ("3000", Some((3000, 3000, "3000"))),
        ("0:3000", Some((3000, 3000, "3000"))),
        ("8080:80", Some((8080, 80, "8080:80"))),
        ("80:80", Some((80, 80, "80"))),
        ("", None),
        ("0", None),
        (":80", None),
        ("80:", None),
        ("8080:0", None),
        ("65536", None),
        ("+80", None),
        (" 80", None),
        ("1:2:3", None),
        ("127.0.0.1:80", None),
        ("0.0.0.0:80:80", None),
        ("http", None),
        ("8000-8010", None),
        ("*", None),
    ] {
        let read: Option<PublishedPort> = text.parse().ok();
        let expected = expected.map(|(outside, inside, form)| {
            assert_eq!(read.unwrap().to_string(), form);
            PublishedPort { outside, inside }
        });
        assert_eq!(read, expected, "{text:?}");
    }
    let problems = check(b"network.publish = ['8000-8010']", "p.toml");
    let shown = problems.first().unwrap().to_string();
    assert!(shown.contains("no port to publish"), "{shown}");
    let mut wrong = world();
    wrong.requested.publish = vec!["0.0.0.0:80".to_owned()];
    assert!(wrong.error().contains("--publish"), "{}", wrong.error());
}

#[test]
fn a_person_publishes_and_a_project_does_not() {
    let base = || {
        world()
            .profile("p", "network.publish = ['3000', '8080:80']")
            .profile(
                "more",
                "extends = ['p']\nnetwork.publish = ['3000', '9000']",
            )
            .profile("none", "extends = ['more']\nnetwork = 'none'")
    };
    let port = |outside, inside, origin: &str| (outside, inside, origin.to_owned());
    let mut more = base().with("more");
    more.requested.publish = vec!["8080:80".to_owned(), "5000".to_owned()];
    assert_eq!(
        published(&more),
        [
            port(3000, 3000, "user/p.toml:1"),
            port(8080, 80, "user/p.toml:1"),
            port(9000, 9000, "user/more.toml:2"),
            port(5000, 5000, "--publish"),
        ]
    );
    assert!(
        more.boundary().network.is_empty(),
        "nothing is reached by it"
    );
    assert_eq!(published(&base().with("none")), []);
    let project = base().with("p").project("network.publish = ['22']");
    assert_eq!(published(&project).len(), 2);
    let told = project.rules().notices().to_vec();
    let is_told = |one: &crate::Notice| one.text.contains("publishing port 22 is not allowed");
    assert!(told.iter().any(is_told), "{told:?}");
    assert_eq!(published(&base().with("p").project("network = 'none'")), []);
    let shown = base().with("p").rules().show();
    assert!(shown.contains("publish = ["), "{shown}");
    assert!(check(b"network.publish = ['22']", "/etc/atoll/organisation.toml").len() == 1);
}

#[test]
fn what_cannot_be_published_is_refused() {
    let asked = |ports: &[String]| {
        let mut world = world().profile("p", "workspace = 'live'").with("p");
        world.requested.publish = ports.to_vec();
        world
    };
    let text = |ports: &[&str]| {
        ports
            .iter()
            .map(|one| (*one).to_owned())
            .collect::<Vec<_>>()
    };
    let reason = asked(&text(&["80:3000", "80:4000"])).reasons().remove(0);
    assert_eq!(reason.what, "publishing port 80:4000");
    let many: Vec<String> = (3000..3017).map(|port| port.to_string()).collect();
    assert_eq!(asked(&many).reasons()[0].what, "publishing port 3016");
    assert_eq!(asked(&many[..16]).boundary().network.publish.len(), 16);
    let mut strict = world().with("strict");
    strict.requested.publish = text(&["3000"]);
    assert_eq!(strict.reasons()[0].what, "publishing port 3000");
    // Without namespaces the loopback is the host's own.
    let world = asked(&text(&["3000"]));
    let facts = Facts {
        mode: Mode::Fence,
        host: &world.host,
        environment: &world.environment,
        now: crate::tests::now(),
        placeholders: &[],
        labels: None,
        living: None,
        changes: None,
    };
    match decide(&world.rules(), &world.call, &facts) {
        Verdict::Deny(reasons) => {
            assert!(reasons[0].why.contains("on this host's loopback already"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_asked_for_later_is_decided_by_the_same_rules() {
    let port = |outside, inside| PublishedPort { outside, inside };
    let asked = |world: &World, already: &[Published], port, mode| {
        let facts = Facts {
            mode,
            living: Some(Living {
                call: &world.call,
                published: already,
                is_inspected: false,
                token_refusal: None,
            }),
            ..world.facts()
        };
        let by = Asker { uid: 1000, pid: 7 };
        let call = world.call.with(Action::PublishPort(PublishPort {
            port,
            by,
            first: None,
            waits_for_second: false,
        }));
        match crate::decide(&world.rules(), &call, &facts) {
            Verdict::Allow(Granted::Port(grant)) => Ok(grant.published().clone()),
            Verdict::Deny(reasons) => Err(reasons
                .into_iter()
                .map(|one| one.why)
                .collect::<Vec<_>>()
                .join("; ")),
            other => panic!("{other:?}"),
        }
    };
    let plain = world().profile("p", "").with("p");
    let one = asked(&plain, &[], port(8080, 3000), Mode::Full).unwrap();
    assert_eq!(one.told(), "publish 8080:3000 (atoll publish)");
    let refused = |world: &World, already: &[Published], port, mode, why: &str| {
        let told = asked(world, already, port, mode).unwrap_err();
        assert!(told.contains(why), "{told}");
    };
    let already = [one];
    refused(
        &plain,
        &already,
        port(8080, 4000),
        Mode::Full,
        "one inside already",
    );
    assert!(asked(&plain, &already, port(8081, 3000), Mode::Full).is_ok());
    let many: Vec<Published> = (1..=16)
        .map(|one| Published {
            port: port(one, one),
            origin: String::new(),
            asked: None,
        })
        .collect();
    assert!(asked(&plain, &many[1..], port(99, 99), Mode::Full).is_ok());
    refused(&plain, &many, port(99, 99), Mode::Full, "16 ports at most");
    refused(
        &plain,
        &[],
        port(80, 80),
        Mode::Fence,
        "on this host's loopback already",
    );
    refused(
        &world().with("strict"),
        &[],
        port(80, 80),
        Mode::Full,
        "sockets are refused",
    );
    let forbidden = plain.organisation("require.deny-publishing = true");
    refused(
        &forbidden,
        &[],
        port(80, 80),
        Mode::Full,
        "the organisation forbids it",
    );
    let forbid =
        "@id(\"no\") forbid(principal, action == Action::\"publish\", resource == Port::\"3000\");";
    let by_policy = world().profile("p", "").with("p").user_policies(forbid);
    assert!(asked(&by_policy, &[], port(8080, 4000), Mode::Full).is_ok());
    refused(
        &by_policy,
        &[],
        port(8080, 3000),
        Mode::Full,
        "forbidden by policy no",
    );
    // The same beforehand, and nothing else is refused by it.
    assert!(forbidden.boundary().network.publish.is_empty());
    let mut forbidden = forbidden;
    forbidden.requested.publish = vec!["3000".to_owned()];
    let reason = forbidden.reasons().remove(0);
    assert_eq!(
        (reason.what.as_str(), reason.why.as_str()),
        ("publishing port 3000", "the organisation forbids it")
    );
    let problems = check(
        b"require.deny-publishing = false",
        "/etc/atoll/organisation.toml",
    );
    assert_eq!(problems.len(), 1, "{problems:?}");
}

#[test]
fn how_connections_go_on_is_said_by_a_person_or_the_organisation() {
    let base = || {
        let lines = "[network]\nupstream-proxy = 'http://me:secret@proxy.example:3128'\n\
                     no-proxy = ['*.corp.example', '10.0.0.0/8:443']\nupstream-roots = ['/ca.pem']";
        world().profile("p", lines).with("p")
    };
    let upstream = base().boundary().network.upstream;
    let proxy = upstream.proxy.clone().unwrap();
    assert_eq!(proxy.credentials.as_deref(), Some("me:secret"));
    assert_eq!(upstream.direct[0].to_string(), "*.corp.example:*");
    assert!(!format!("{upstream:?}").contains("secret"));
    let rules = base().rules();
    assert!(!rules.show().contains("secret"), "{}", rules.show());
    assert!(!rules.show_json().to_string().contains("secret"));
    let above =
        "[network]\nupstream-proxy = 'http://other.example:80'\nupstream-roots = ['/own.pem']";
    let both = base().organisation(above).boundary().network.upstream;
    assert_eq!(both.proxy.unwrap().to_string(), "http://other.example:80");
    assert_eq!(both.roots.len(), 2);
    // Whoever is known to the organisation's proxy stays so, by a file that nobody else reads.
    let same = "[network]\nupstream-proxy = 'http://proxy.example:3128'\n";
    let known = base().organisation(same).boundary().network.upstream.proxy;
    assert_eq!(known.unwrap().credentials.as_deref(), Some("me:secret"));
    let public = b"network.upstream-proxy = 'http://me:secret@proxy.example:3128'";
    let problems = check(public, "/etc/atoll/organisation.toml");
    let told = problems.first().unwrap().to_string();
    assert!(told.contains("everybody can read this file"), "{told}");
    let project = world().project(above);
    assert!(project.boundary().network.upstream.is_empty());
    let told = project.rules().notices().to_vec();
    let is_told = |one: &crate::Notice| one.text.contains("upstream-proxy is not allowed");
    assert!(told.iter().any(is_told), "{told:?}");
    for wrong in [
        "https://proxy.example:3128",
        "proxy.example:3128",
        "http://proxy.example",
        "http://me@proxy.example:3128",
        "http://me:secret@:3128",
        "http://me:sec%zzret@proxy.example:3128",
        "socks5://proxy.example:1080",
    ] {
        let problems = check(
            format!("network.upstream-proxy = '{wrong}'").as_bytes(),
            "p.toml",
        );
        let shown = problems.first().unwrap().to_string();
        assert!(
            shown.contains("no proxy") && !shown.contains("sec%"),
            "{shown}"
        );
    }
    assert_eq!(
        check(b"network.upstream-roots = ['ca.pem']", "p.toml").len(),
        1
    );
    assert_eq!(check(b"network.no-proxy = ['a..b']", "p.toml").len(), 1);
}

#[test]
fn ports_that_lead_to_the_host_are_allowed_as_a_rule_does() {
    let asked = |ports: &[&str]| {
        let mut world = world().profile("p", "workspace = 'live'").with("p");
        world.requested.host_ports = ports.iter().map(|one| (*one).to_owned()).collect();
        world
    };
    let network = asked(&["11434", "5432"]).boundary().network;
    assert_eq!(network.host_ports, [11434, 5432]);
    let rule = network.allow.last().unwrap();
    assert_eq!(rule.to.to_string(), "host.atoll.internal:5432");
    assert_eq!(rule.origin, "--host-port");
    for text in ["0", "+80", "80:80", "65536", "", "http", "8000-8010", "*"] {
        let error = asked(&[text]).error();
        assert!(error.contains("--host-port"), "{text}: {error}");
    }
    let many: Vec<String> = (3000..3017).map(|port| port.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(asked(&many[..16]).boundary().network.host_ports.len(), 16);
    assert!(
        asked(&many).reasons()[0]
            .why
            .contains("16 of these at most")
    );
    // One that is published would lead back.
    let mut both = asked(&["3000"]);
    both.requested.publish = vec!["8080:3000".to_owned()];
    assert!(both.reasons()[0].why.contains("leads to this host already"));
    // Where nothing is reached at all, neither is this.
    let mut strict = world().with("strict");
    strict.requested.host_ports = vec!["11434".to_owned()];
    assert!(!strict.reasons().is_empty());
    // A fence has no loopback of its own.
    let world = asked(&["11434"]);
    let facts = Facts {
        mode: Mode::Fence,
        ..world.facts()
    };
    match decide(&world.rules(), &world.call, &facts) {
        Verdict::Deny(reasons) => {
            assert!(
                reasons[0].why.contains("no loopback of its own"),
                "{reasons:?}"
            );
            let instead = &reasons[0].how_to_ask;
            assert!(
                instead.contains("--allow host.atoll.internal:11434"),
                "{instead}"
            );
        }
        other => panic!("{other:?}"),
    }
}
