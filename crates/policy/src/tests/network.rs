//! What may be reached: read from every file and option, laid over each other, denied.

use atoll_model::Mode;
use atoll_model::network::{HostName, HostPart, Network, Unreachable};

use super::*;

const ORGANISATION: &str = "/etc/atoll/organisation.toml";

/// Each rule with where it is written, those that deny with a `!`.
fn listed(network: &Network) -> Vec<String> {
    let allow = network.allow.iter().map(|rule| ("", rule));
    let deny = network.deny.iter().map(|rule| ("!", rule));
    allow
        .chain(deny)
        .map(|(sign, rule)| format!("{sign}{} {}", rule.to, rule.origin))
        .collect()
}

fn in_mode(world: &World, mode: Mode) -> Verdict<Grant> {
    let facts = Facts {
        mode,
        host: &world.host,
        environment: &world.environment,
    };
    decide(&world.rules(), &world.call, &facts)
}

fn host(text: &str) -> HostPart {
    text.parse().unwrap()
}

fn name(text: &str) -> HostName {
    HostName::parse(text).unwrap()
}

#[test]
fn without_a_word_nothing_is_reached() {
    for world in [
        world(),
        world().profile("p", "network = 'none'").with("p"),
        world().profile("p", "[network]").with("p"),
        world().profile("p", "network.allow = []").with("p"),
        world().profile("p", "network.deny = ['*']").with("p"),
    ] {
        assert!(world.boundary().network.is_empty());
    }
    for shipped in crate::shipped::ALL {
        let boundary = world().with(shipped.name).boundary();
        assert!(boundary.network.is_empty(), "{}", shipped.name);
    }
}

#[test]
fn lists_of_a_profile_are_read_with_their_lines() {
    let text = "[network]\nallow = [\n  'Example.COM',\n  '*.example.com:8000-8080,22',\n  \
                '10.1.0.0/16:*',\n  '[2001:db8::/32]:22',\n]\ndeny = ['www.example.com:*']";
    let network = world().profile("p", text).with("p").boundary().network;
    assert_eq!(
        listed(&network),
        [
            "example.com user/p.toml:3",
            "*.example.com:8000-8080,22 user/p.toml:4",
            "10.1.0.0/16:* user/p.toml:5",
            "[2001:db8::/32]:22 user/p.toml:6",
            "!www.example.com:* user/p.toml:8",
        ]
    );
}

#[test]
fn mistakes_about_the_network_have_a_place_and_a_hint() {
    for (text, place, holds) in [
        ("network = 'full'", (1, 11), "[network] allow = "),
        ("network = 'nome'", (1, 11), "write \"none\", or a table"),
        ("network = ''", (1, 11), "write \"none\", or a table"),
        ("network = true", (1, 1), "network"),
        ("network = ['example.com']", (1, 1), "network"),
        ("[network]\nalow = []", (2, 1), "did you mean `allow`?"),
        ("[network]\nhosts = []", (2, 1), "allow, deny"),
        ("network.allow = 'example.com'", (1, 9), "list"),
        ("network.allow = [1]", (1, 18), "text"),
        (
            "network.allow = ['example.com', 'https://example.com']",
            (1, 33),
            "write its host alone",
        ),
        ("network.allow = ['a b']", (1, 18), "is no destination"),
        ("network.allow = ['']", (1, 18), "is no destination"),
        ("network.allow = ['ex*mple.com']", (1, 18), "'*' stands for"),
        ("network.allow = ['*.*.com']", (1, 18), "is no destination"),
        ("network.allow = ['e.com:0']", (1, 18), "a port is a number"),
        ("network.allow = ['e.com:70000']", (1, 18), "1 to 65535"),
        (
            "network.allow = ['e.com:2-1']",
            (1, 18),
            "a port is a number",
        ),
        ("network.allow = ['e.com:']", (1, 18), "a port is a number"),
        ("network.allow = ['127.1']", (1, 18), "four decimal numbers"),
        ("network.allow = ['0x7f000001']", (1, 18), "no name"),
        (
            "network.allow = ['10.1.2.3/8']",
            (1, 18),
            "those of its first one are 0",
        ),
        ("network.allow = ['::1']", (1, 18), "[2001:db8::1]:443"),
        ("network.allow = ['bücher.example']", (1, 18), "xn--"),
        ("deny.network = ['a b']", (1, 1), "deny"),
        ("network.deny = ['a..b']", (1, 17), "is empty"),
    ] {
        let problems = check(text.as_bytes(), "p.toml");
        let first = problems
            .first()
            .unwrap_or_else(|| panic!("accepted: {text}"));
        let shown = first.to_string();
        assert_eq!((first.line, first.column), place, "{text}: {shown}");
        assert!(shown.contains(holds), "{text}: {shown}");
    }
    for file in ["/src/atoll.toml", ORGANISATION] {
        let problems = check(b"deny.network = ['good.example', 'a b']", file);
        let shown = problems.first().map(ToString::to_string);
        let shown = shown.unwrap_or_default();
        assert!(shown.contains("is no destination"), "{file}: {shown}");
    }
    // The organisation only takes away.
    let problems = check(b"network.allow = ['*']", ORGANISATION);
    assert_eq!(problems.len(), 1, "{problems:?}");
}

#[test]
fn profiles_add_to_what_they_extend_and_none_empties_it() {
    let world = world()
        .profile(
            "base",
            "network = { allow = ['a.example'], deny = ['x.example'] }",
        )
        .profile("more", "extends = ['base']\nnetwork.allow = ['b.example']")
        .profile("none", "extends = ['more']\nnetwork = 'none'")
        .profile("again", "extends = ['none']\nnetwork.allow = ['c.example']")
        .profile("silent", "extends = ['more']");
    for (profile, expected) in [
        ("base", &["a.example", "!x.example:*"][..]),
        ("more", &["a.example", "b.example", "!x.example:*"]),
        ("silent", &["a.example", "b.example", "!x.example:*"]),
        // What was denied stays denied.
        ("none", &["!x.example:*"]),
        ("again", &["c.example", "!x.example:*"]),
    ] {
        let network = world.clone().with(profile).boundary().network;
        let listed = listed(&network);
        let hosts: Vec<&str> = listed
            .iter()
            .filter_map(|rule| rule.split(' ').next())
            .collect();
        assert_eq!(hosts, expected, "{profile}");
    }
}

#[test]
fn options_add_to_profiles_and_say_where_they_come_from() {
    let mut world = world()
        .profile("p", "network.allow = ['a.example']")
        .with("p");
    world.requested.allow = vec!["b.example:5432".to_owned(), "10.0.0.0/8".to_owned()];
    world.requested.deny = vec!["c.example:*".to_owned()];
    assert_eq!(
        listed(&world.boundary().network),
        [
            "a.example user/p.toml:1",
            "b.example:5432 --allow",
            "10.0.0.0/8 --allow",
            "!c.example:* --deny",
        ]
    );
    // Above a profile that says none, it is the person's own word.
    let mut none = world
        .clone()
        .profile("n", "extends = ['p']\nnetwork = 'none'")
        .with("n");
    none.requested.deny.clear();
    none.requested.allow.truncate(1);
    assert_eq!(listed(&none.boundary().network), ["b.example:5432 --allow"]);
}

#[test]
fn mistakes_in_options_name_the_option() {
    let mut wrong = world();
    wrong.requested.allow = vec!["https://example.com".to_owned()];
    let error = wrong.error();
    assert!(error.contains("--allow"), "{error}");
    assert!(error.contains("ports 80 and 443"), "{error}");
    let mut wrong = world();
    wrong.requested.deny = vec!["*x".to_owned()];
    let error = wrong.error();
    assert!(error.contains("--deny"), "{error}");
    assert!(error.contains("*.example.com"), "{error}");
    for which in [0, 1] {
        let mut many = world();
        let lists = [&mut many.requested.allow, &mut many.requested.deny];
        lists
            .into_iter()
            .nth(which)
            .unwrap()
            .extend((0..2_000).map(|number| format!("h{number}.example")));
        let error = many.error();
        let option = ["--allow", "--deny"][which];
        assert!(error.contains(option), "{error}");
    }
}

#[test]
fn what_a_layer_denies_no_other_one_allows() {
    for (organisation, project, option, from) in [
        ("deny.network = ['a.example:*']", "", "", ORGANISATION),
        ("deny.network = ['*:*']", "", "", ORGANISATION),
        ("deny.network = ['*.example:*']", "", "", ORGANISATION),
        ("", "deny.network = ['a.example:*']", "", PROJECT),
        ("", "network.deny = ['a.example:*']", "", PROJECT),
        ("", "", "a.example:*", "--deny"),
    ] {
        let mut world = world()
            .organisation(organisation)
            .project(project)
            .profile("p", "network.allow = ['a.example', '*:*']")
            .with("p");
        world.requested.allow = vec!["a.example:*".to_owned()];
        world.requested.deny.extend(
            Some(option)
                .filter(|text| !text.is_empty())
                .map(str::to_owned),
        );
        let network = world.boundary().network;
        let denied = |answer: Result<_, Unreachable<'_>>| match answer {
            Err(Unreachable::Denied(rule)) => rule.origin.clone(),
            other => panic!("{from}: {other:?}"),
        };
        assert!(denied(network.name(&name("a.example"))).starts_with(from));
        let connection = network.connection(&host("a.example"), 443);
        assert!(denied(connection).starts_with(from));
    }
}

#[test]
fn a_projects_file_takes_away_of_the_network_and_adds_nothing() {
    let text = "network.allow = ['a.example', '*:*']";
    let trusted = world().project(text);
    assert!(trusted.boundary().network.is_empty());
    let notices = trusted.rules().notices().to_vec();
    let told = |notice: &crate::Notice| notice.text.contains("reaching a.example");
    assert!(notices.iter().any(told), "{notices:?}");
    let narrowed = || {
        world()
            .profile("p", "network.allow = ['a.example', 'b.example']")
            .with("p")
    };
    let none = narrowed().project("network = 'none'");
    assert!(none.boundary().network.is_empty());
    let denied = narrowed().project("network.deny = ['a.example']");
    let network = denied.boundary().network;
    assert!(network.connection(&host("a.example"), 443).is_err());
    assert!(network.connection(&host("b.example"), 443).is_ok());
}

#[test]
fn a_network_without_sockets_is_refused() {
    let allowed = "network.allow = ['a.example']\n";
    for (world, rule) in [
        (
            world()
                .profile("p", &format!("{allowed}syscalls.deny-sockets = true"))
                .with("p"),
            "user/p.toml:2",
        ),
        (
            world()
                .profile("p", allowed)
                .with("p")
                .organisation("require.deny-sockets = true"),
            ORGANISATION,
        ),
    ] {
        let reasons = world.reasons();
        let [reason] = &reasons[..] else {
            panic!("{reasons:?}");
        };
        assert_eq!(reason.what, "reaching a.example");
        assert!(reason.rule.starts_with(rule), "{reason:?}");
        assert!(reason.how_to_ask.contains("deny-sockets"), "{reason:?}");
    }
    let mut strict = world().with("strict");
    strict.requested.allow = vec!["a.example".to_owned()];
    assert_eq!(strict.reasons()[0].what, "reaching a.example");
    // What is only denied needs no socket.
    let denies = "syscalls.deny-sockets = true\nnetwork.deny = ['a.example']";
    let _ = world().profile("p", denies).with("p").grant();
}

#[test]
fn a_fence_has_no_network_yet() {
    let world = world()
        .profile("p", "workspace = 'live'\nnetwork.allow = ['a.example:22']")
        .with("p");
    assert!(matches!(in_mode(&world, Mode::Full), Verdict::Allow(_)));
    match in_mode(&world, Mode::Fence) {
        Verdict::Deny(reasons) => {
            let named = reasons
                .iter()
                .any(|one| one.what == "reaching a.example:22" && one.rule == "user/p.toml:2");
            assert!(named, "{reasons:?}");
        }
        other => panic!("{other:?}"),
    }
    let none = world
        .profile("n", "extends = ['p']\nnetwork = 'none'")
        .with("n");
    assert!(matches!(in_mode(&none, Mode::Fence), Verdict::Allow(_)));
}

#[test]
fn destinations_have_an_end() {
    let list = |count: usize| {
        let hosts: Vec<String> = (0..count).map(|one| format!("'h{one}.example'")).collect();
        format!("network.allow = [{}]", hosts.join(", "))
    };
    let with = |count: usize, deny: usize| {
        let mut world = world().profile("p", &list(count)).with("p");
        world.requested.deny = (0..deny).map(|one| format!("d{one}.example")).collect();
        world
    };
    assert_eq!(with(256, 0).boundary().network.allow.len(), 256);
    for world in [with(257, 0), with(250, 7)] {
        let reasons = world.reasons();
        assert!(reasons[0].why.contains("256"), "{reasons:?}");
    }
}

#[test]
fn every_word_about_the_network_is_in_the_digest() {
    let mut digests = vec![world().rules().digest().to_owned()];
    let mut add = |world: World| {
        let digest = world.rules().digest().to_owned();
        assert!(!digests.contains(&digest), "the same for another network");
        digests.push(digest);
    };
    let requested = |allow: &[&str], deny: &[&str]| {
        let mut world = world();
        world.requested.allow = allow.iter().map(ToString::to_string).collect();
        world.requested.deny = deny.iter().map(ToString::to_string).collect();
        world
    };
    add(requested(&["a.example"], &[]));
    add(requested(&["a.example:443"], &[]));
    add(requested(&["a.example", "b.example"], &[]));
    add(requested(&["b.example", "a.example"], &[]));
    add(requested(&["a.example"], &["b.example"]));
    add(requested(&[], &["a.example"]));
    add(world().organisation("deny.network = ['a.example']"));
    add(world().project("deny.network = ['a.example']"));
    let p = |text: &str| world().profile("p", text).with("p");
    add(p("network.allow = ['a.example']"));
    add(p("network.deny = ['a.example']"));
    add(p("network.deny = ['b.example']"));
}
