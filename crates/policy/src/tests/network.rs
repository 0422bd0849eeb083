//! Network rules: read from every file and option, merged, and denied.

use atoll_model::Mode;
use atoll_model::network::{
    HostName, HostPart, Meant, Network, NetworkRule, Request, Scheme, Target, Unreachable,
};

use super::*;

const ORGANISATION: &str = "/etc/atoll/organisation.toml";

/// Returns each rule with its origin, denials with a `!`.
fn listed(network: &Network) -> Vec<String> {
    let allow = network.allow.iter().map(|rule| ("", rule));
    let deny = network.deny.iter().map(|rule| ("!", rule));
    allow
        .chain(deny)
        .map(|(sign, rule)| format!("{sign}{rule} {}", rule.origin))
        .collect()
}

fn in_mode(world: &World, mode: Mode) -> Verdict<Grant> {
    let facts = Facts {
        mode,
        host: &world.host,
        environment: &world.environment,
        now: crate::tests::now(),
        placeholders: &[],
        labels: None,
        living: None,
        changes: None,
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
        let reaches = [
            "codex", "claude", "opencode", "gemini", "openclaw", "rust", "python", "node", "go",
        ];
        let is_one = reaches.contains(&shipped.name);
        assert_eq!(boundary.network.is_empty(), !is_one, "{}", shipped.name);
    }
}

#[test]
fn an_agent_reaches_its_models_and_nothing_else() {
    for (agent, model) in [
        ("claude", "api.anthropic.com"),
        ("codex", "api.openai.com"),
        ("codex", "chatgpt.com"),
        ("opencode", "api.anthropic.com"),
        ("opencode", "models.dev"),
        ("gemini", "generativelanguage.googleapis.com"),
        ("openclaw", "api.openai.com"),
    ] {
        let network = world().command(agent).boundary().network;
        assert!(network.connection(&host(model), 443).is_ok(), "{agent}");
        for (other, port) in [
            (model, 80),
            (model, 22),
            ("github.com", 443),
            ("registry.npmjs.org", 443),
            ("example.com", 443),
            ("www.googleapis.com", 443),
        ] {
            let found = network.connection(&host(other), port);
            assert!(found.is_err(), "{agent}: {other}:{port}");
        }
        assert!(
            network
                .allow
                .iter()
                .all(|rule| rule.origin.starts_with("preset/"))
        );
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
        ("[network]\nhosts = []", (2, 1), "presets, allow, ask, deny"),
        ("network.allow = 'example.com'", (1, 9), "list"),
        ("network.allow = [1]", (1, 18), "text"),
        (
            "network.allow = ['example.com', 'https://example.com/']",
            (1, 33),
            "one page of the host",
        ),
        (
            "network.allow = ['ftp://a.example']",
            (1, 18),
            "write a host and its port",
        ),
        (
            "network.allow = ['a.example/v1/x']",
            (1, 18),
            "a path stands in a URL",
        ),
        (
            "network.deny = ['DELTE a.example']",
            (1, 17),
            "did you mean DELETE?",
        ),
        (
            "network.deny = [{ to = 'a.example', methods = ['GET', 'POTS'] }]",
            (1, 17),
            "did you mean POST?",
        ),
        (
            "network.allow = ['G@T a.example']",
            (1, 18),
            "a method is a word",
        ),
        (
            "network.allow = ['https://a.example/a;b']",
            (1, 18),
            "parameters",
        ),
        (
            "network.deny = ['https://a.example/a?b=c']",
            (1, 17),
            "whatever the query",
        ),
        (
            "network.allow = [{ to = 'https://a.example' }]",
            (1, 25),
            "write its host alone",
        ),
        (
            "network.allow = [{ methods = ['GET'] }]",
            (1, 18),
            "needs `to`",
        ),
        ("network.allow = [{ to = [] }]", (1, 18), "`to` is empty"),
        (
            "network.allow = [{ to = 'a.example', methods = [] }]",
            (1, 18),
            "leave `methods` out",
        ),
        (
            "network.allow = [{ to = 'a.example', paths = [] }]",
            (1, 18),
            "leave `paths` out",
        ),
        (
            "network.allow = [{ to = 'a.example', path = '/' }]",
            (1, 38),
            "did you mean `paths`?",
        ),
        (
            "network.allow = [{ to = 'a.example', paths = ['v1'] }]",
            (1, 47),
            "begins with '/'",
        ),
        (
            "network.allow = [{ to = 'a.example', paths = ['/**/a/**'] }]",
            (1, 47),
            "once",
        ),
        (
            "network.allow = [{ to = 'a.example', scheme = 'ws' }]",
            (1, 47),
            "http, https",
        ),
        (
            "network.allow = [{ to = 'a.example', carry = 'tls' }]",
            (1, 46),
            "requests, tunnel",
        ),
        (
            "network.allow = [{ to = 'a.example', carry = 'tunnel', methods = ['GET'] }]",
            (1, 18),
            "nobody sees",
        ),
        (
            "network.deny = [{ to = 'a.example', carry = 'tunnel' }]",
            (1, 17),
            "leave out `carry`",
        ),
        (
            "network.deny = [{ to = 'a.example', paths = ['/a?b'] }]",
            (1, 17),
            "whatever the query",
        ),
        (
            "network.allow = [{ to = 'a.example', requests = '60/m' }]",
            (1, 38),
            "a number and a time, s, min or h",
        ),
        (
            "network.allow = [{ to = 'a.example', requests = '0/s' }]",
            (1, 38),
            "60/min",
        ),
        (
            "network.allow = [{ to = 'a.example', connections = 0 }]",
            (1, 38),
            "is no number of connections",
        ),
        (
            "network.allow = [{ to = 'a.example', connections = true }]",
            (1, 38),
            "a text or a number",
        ),
        (
            "network.allow = [{ to = 'a.example', upload = '10 MB of it' }]",
            (1, 38),
            "is not a size",
        ),
        (
            "network.allow = [{ to = 'a.example', download = 0 }]",
            (1, 38),
            "would allow nothing",
        ),
        (
            "network.allow = [{ to = 'a.example', rate = '1MiB' }]",
            (1, 38),
            "bytes in a second: \"1MiB/s\"",
        ),
        (
            "network.allow = [{ to = 'a.example', duration = '30' }]",
            (1, 38),
            "is not a duration",
        ),
        (
            "network.allow = [{ to = 'a.example', limit = '1' }]",
            (1, 38),
            "requests, connections, upload, download, rate, body, duration",
        ),
        (
            "network.allow = [{ to = 'a.example', carry = 'tunnel', requests = '1/s' }]",
            (1, 18),
            "nobody sees requests in a tunnel",
        ),
        (
            "network.allow = [{ to = 'a.example', carry = 'tunnel', body = 1 }]",
            (1, 18),
            "leave `body` or `carry` out",
        ),
        (
            "network.allow = [{ to = ['a.example', 'a.example:8080'], requests = '1/s' }]",
            (1, 18),
            "carry = \"requests\"",
        ),
        (
            "network.deny = [{ to = 'a.example', upload = '1MiB' }]",
            (1, 17),
            "leave the limits out",
        ),
        (
            "network.deny = [{ registry = 'nmp', packages = ['a'] }]",
            (1, 30),
            "did you mean \"npm\"?",
        ),
        (
            "network.allow = [{ registry = 'npm' }]",
            (1, 18),
            "presets = [\"npm\"]",
        ),
        (
            "network.allow = [{ registry = 'npm', packages = [] }]",
            (1, 18),
            "`packages` is empty",
        ),
        (
            "network.allow = [{ registry = 'npm', packages = ['a b'] }]",
            (1, 50),
            "is no package",
        ),
        (
            "network.allow = [{ registry = 'npm', packages = ['@types'] }]",
            (1, 50),
            "is no package",
        ),
        (
            "network.allow = [{ registry = 'pip', packages = ['@types/node'] }]",
            (1, 18),
            "only those of npm",
        ),
        (
            "network.allow = [{ registry = 'npm', to = 'a.example', packages = ['a'] }]",
            (1, 38),
            "unknown key `to`",
        ),
        (
            "network.deny = [{ registry = 'npm', packages = ['a'], rate = '1/s' }]",
            (1, 17),
            "leave the limits out",
        ),
        (
            "network.presets = ['nmp']",
            (1, 20),
            "did you mean \"npm\"?",
        ),
        ("network.presets = 'npm'", (1, 9), "list"),
        (
            "network = { preset = ['npm'] }",
            (1, 13),
            "did you mean `presets`?",
        ),
        ("network.allow = ['a b']", (1, 18), "is no"),
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
            "write \"10.0.0.0/8\"",
        ),
        (
            "network.allow = ['host.atoll.internal']",
            (1, 18),
            "each port is named",
        ),
        (
            "network.allow = ['host.atoll.internal:*']",
            (1, 18),
            "each port is named",
        ),
        (
            "network.allow = [{ to = 'host.atoll.internal:1-9', carry = 'tunnel' }]",
            (1, 18),
            "each port is named",
        ),
        ("network.allow = ['::1']", (1, 18), "[::1]:443"),
        ("network.allow = ['bücher.example']", (1, 18), "xn--"),
        ("deny.network = ['a..b']", (1, 1), "deny"),
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
        let problems = check(b"deny.network = ['good.example', { to = 'a..b' }]", file);
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
    wrong.requested.allow = vec!["example.com/x".to_owned()];
    let error = wrong.error();
    assert!(error.contains("--allow"), "{error}");
    assert!(error.contains("ports 80 and 443"), "{error}");
    for text in ["https://example.com", "GET example.com", "a..b"] {
        let mut wrong = world();
        wrong.requested.tunnel = vec![text.to_owned()];
        let error = wrong.error();
        assert!(error.contains("--tunnel"), "{error}");
    }
    let mut wrong = world();
    wrong.requested.presets = vec!["gitread".to_owned()];
    let error = wrong.error();
    assert!(
        error.contains("--preset") && error.contains("\"git-read\""),
        "{error}"
    );
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
        assert!(denied(connection.map(|(rule, _)| rule)).starts_with(from));
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
fn a_fence_has_the_network_that_a_profile_gives() {
    let world = world()
        .profile("p", "workspace = 'live'\nnetwork.allow = ['a.example:22']")
        .with("p");
    assert!(matches!(in_mode(&world, Mode::Full), Verdict::Allow(_)));
    match in_mode(&world, Mode::Fence) {
        Verdict::Allow(grant) => {
            let allowed = &grant.boundary().network;
            let host = HostPart::Name(HostName::parse("a.example").unwrap());
            assert!(allowed.connection(&host, 22).is_ok());
            assert!(allowed.connection(&host, 80).is_err());
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

/// Returns the decision on a request, given as `METHOD URL`.
fn judged<'a>(network: &'a Network, text: &str) -> Result<&'a NetworkRule, Unreachable<'a>> {
    let (method, url) = text.split_once(' ').unwrap();
    let (scheme, rest) = url.split_once("://").unwrap();
    let (name, target) = rest.split_at(rest.find('/').unwrap());
    let scheme = match scheme {
        "http" => Scheme::Http,
        _ => Scheme::Https,
    };
    network.request(&Request {
        host: &host(name),
        port: scheme.port(),
        scheme,
        method,
        target: &Target::parse(target).unwrap(),
    })
}

#[test]
fn rules_about_requests_are_read_from_texts_and_tables() {
    let text = "[network]\nallow = [\n\
        'get,HEAD https://a.example/v1/**',\n\
        { to = 'b.example', methods = ['get'], paths = ['/x', '/y/*'] },\n\
        { to = ['c.example', '*.d.example:8443'], scheme = 'https' },\n\
        { to = 'e.example', carry = 'tunnel' },\n\
        { to = 'f.example:9000', carry = 'requests' },\n]\n\
        deny = ['DELETE a.example', { to = 'b.example', paths = ['/x/secret'] }]";
    let world = world().profile("p", text).with("p");
    let network = world.boundary().network;
    assert_eq!(
        listed(&network),
        [
            "GET,HEAD https://a.example/v1/** user/p.toml:3",
            "GET b.example/x or /y/* user/p.toml:4",
            "https://c.example user/p.toml:5",
            "https://*.d.example:8443 user/p.toml:5",
            "e.example as a tunnel user/p.toml:6",
            "f.example:9000 as requests user/p.toml:7",
            "!DELETE a.example:* user/p.toml:9",
            "!b.example:*/x/secret user/p.toml:9",
        ]
    );
    // What is shown can be pasted, and means the same.
    let shown = world.rules().show();
    let again = super::world()
        .profile("p", &shown)
        .with("p")
        .boundary()
        .network;
    let without_origin = |network: &Network| -> Vec<Meant> {
        network
            .allow
            .iter()
            .chain(&network.deny)
            .map(Meant::from)
            .collect()
    };
    assert_eq!(without_origin(&again), without_origin(&network), "{shown}");
}

#[test]
fn a_rule_can_be_a_table_of_its_own() {
    let text = "[[network.allow]]\nto = 'a.example'\nmethods = ['GET']\n[[network.allow]]\nto = 'b.example'";
    let network = world().profile("p", text).with("p").boundary().network;
    assert_eq!(
        listed(&network),
        ["GET a.example user/p.toml:1", "b.example user/p.toml:4"]
    );
}

#[test]
fn options_say_what_texts_of_profiles_say() {
    let mut world = world();
    world.requested.allow = vec!["GET https://a.example/v1/**".to_owned()];
    world.requested.tunnel = vec!["b.example:443".to_owned()];
    world.requested.deny = vec!["POST a.example".to_owned()];
    world.requested.presets = vec!["pip".to_owned(), "pip".to_owned()];
    assert_eq!(
        listed(&world.boundary().network),
        [
            "GET,HEAD https://pypi.org preset/pip.toml:3",
            "GET,HEAD https://files.pythonhosted.org preset/pip.toml:3",
            "GET https://a.example/v1/** --allow",
            "b.example:443 as a tunnel --tunnel",
            "!POST a.example:* --deny",
        ]
    );
}

#[test]
fn presets_allow_what_they_are_for_and_no_more() {
    for (preset, yes, no) in [
        (
            "git-read",
            &[
                "GET https://github.com/a/b.git/info/refs?service=git-upload-pack",
                "GET https://gitlab.com/a/b/c/info/refs?service=git-upload-pack",
                "POST https://github.com/a/b.git/git-upload-pack",
                "POST https://codeberg.org/a/b/git-upload-pack",
            ][..],
            &[
                "GET https://github.com/a/b.git/info/refs?service=git-receive-pack",
                "GET https://github.com/a/b.git/info/refs",
                "GET https://github.com/a/b.git/info/refs?service=git-upload-pack&service=git-receive-pack",
                "POST https://github.com/a/b.git/git-receive-pack",
                "POST https://github.com/a/b.git/git-receive-pack/../git-upload-pack",
                "POST https://github.com/a/b.git/git-receive-pack%2fgit-upload-pack",
                "GET https://github.com/a/b",
                "POST https://api.github.com/a/git-upload-pack",
                "GET http://github.com/a/b.git/info/refs?service=git-upload-pack",
                "GET https://evil.example/a/info/refs?service=git-upload-pack",
            ][..],
        ),
        (
            "npm",
            &[
                "GET https://registry.npmjs.org/@scope%2fname",
                "GET https://registry.npmjs.org/a/-/a-1.0.0.tgz",
            ],
            &[
                "PUT https://registry.npmjs.org/a",
                "GET http://registry.npmjs.org/a",
                "GET https://www.npmjs.com/a",
            ],
        ),
        (
            "pip",
            &[
                "GET https://pypi.org/simple/a/",
                "GET https://files.pythonhosted.org/packages/a/b/c.whl",
            ],
            &[
                "POST https://upload.pypi.org/legacy/",
                "POST https://pypi.org/x",
                "GET https://test.pypi.org/x",
            ],
        ),
        (
            "cargo",
            &[
                "GET https://index.crates.io/se/rd/serde",
                "GET https://static.crates.io/crates/a/b",
                "GET https://static.rust-lang.org/dist/x",
            ],
            &[
                "PUT https://crates.io/api/v1/crates/new",
                "DELETE https://crates.io/api/v1/crates/a/1.0.0/yank",
            ],
        ),
        (
            "go",
            &[
                "GET https://proxy.golang.org/github.com/!burnt!sushi/toml/@v/list",
                "GET https://sum.golang.org/lookup/a@v1",
                "GET https://storage.googleapis.com/proxy-golang-org-prod/8e29-google.golang.org:api-v0.162.0.zip?Expires=1",
            ],
            &[
                "GET https://storage.googleapis.com/other/x",
                "POST https://proxy.golang.org/x",
                "PUT https://storage.googleapis.com/proxy-golang-org-prod/x",
            ],
        ),
        (
            "apt",
            &[
                "GET http://deb.debian.org/debian/pool/main/g/gcc-14/g%2b%2b-14_1.deb",
                "GET http://de.archive.ubuntu.com/ubuntu/x",
                "HEAD https://security.debian.org/x",
            ],
            &[
                "POST http://deb.debian.org/x",
                "GET http://ppa.launchpadcontent.net/x",
            ],
        ),
        (
            "github-read",
            &[
                "GET https://raw.githubusercontent.com/a/b/main/c",
                "GET https://api.github.com/repos/a/b",
                "GET https://codeload.github.com/a/b/tar.gz/main",
            ],
            &[
                "POST https://api.github.com/gists",
                "POST https://api.github.com/graphql",
                "POST https://github.com/a/b.git/git-receive-pack",
            ],
        ),
    ] {
        let network = world()
            .profile("p", &format!("network.presets = ['{preset}']"))
            .with("p")
            .boundary()
            .network;
        for request in yes {
            let found = judged(&network, request);
            assert!(found.is_ok(), "{preset}: {request}: {found:?}");
        }
        for request in no {
            assert!(judged(&network, request).is_err(), "{preset}: {request}");
        }
    }
    for summary in presets() {
        assert!(!summary.description.is_empty(), "{}", summary.name);
        // Those of trust open nothing, and have tests of their own.
        if summary.content.contains("level = ") {
            continue;
        }
        // What has parameters is shown as a profile that names some.
        let text = match summary.content.contains("[network]") {
            true => summary.content.to_owned(),
            false => format!("network.presets = ['{}']", summary.name),
        };
        let network = world().profile("p", &text).with("p").boundary().network;
        assert!(!network.is_empty(), "{}", summary.name);
    }
}

#[test]
fn the_preset_for_what_was_refused_is_found() {
    let found = |text: &str| {
        let (method, rest) = text.split_once(" https://").unwrap();
        let (name, target) = rest.split_at(rest.find('/').unwrap());
        preset_for(&Request {
            host: &host(name),
            port: 443,
            scheme: Scheme::Https,
            method,
            target: &Target::parse(target).unwrap(),
        })
    };
    assert_eq!(
        found("GET https://registry.npmjs.org/left-pad"),
        Some("npm")
    );
    assert_eq!(
        found("POST https://github.com/a/b.git/git-upload-pack"),
        Some("git-read")
    );
    assert_eq!(found("PUT https://registry.npmjs.org/left-pad"), None);
    assert_eq!(found("GET https://example.com/"), None);
}

#[test]
fn a_preset_is_given_up_with_the_rest_and_taken_up_again() {
    let world = world()
        .profile("a", "network.presets = ['pip']")
        .profile("b", "extends = ['a']\nnetwork = 'none'")
        .profile("c", "extends = ['b']\nnetwork.presets = ['pip']");
    for (profile, count) in [("a", 2), ("b", 0), ("c", 2)] {
        let network = world.clone().with(profile).boundary().network;
        assert_eq!(network.allow.len(), count, "{profile}");
    }
    // A project's file takes none up.
    let project = super::world().project("network.presets = ['pip']");
    assert!(project.boundary().network.is_empty());
    assert!(
        project.notices().contains("--preset pip"),
        "{}",
        project.notices()
    );
    let paste = super::world().project("network.allow = [\"https://a.example/'$(id)'\"]");
    assert!(
        !paste.notices().contains("--allow 'https"),
        "{}",
        paste.notices()
    );
}

#[test]
fn learning_is_told_and_refused_where_it_weakens_too_much() {
    let learning = |mut world: World| {
        world.requested.learn = true;
        world
    };
    let world_learning = learning(world());
    let network = world_learning.boundary().network;
    assert!(network.learn.is_some() && !network.is_empty());
    assert!(judged(&network, "GET https://anything.example/x").is_ok());
    assert!(
        world_learning.notices().contains("--learn"),
        "{}",
        world_learning.notices()
    );
    assert_ne!(world_learning.rules().digest(), world().rules().digest());
    for (refused, rule) in [
        (learning(world().with("strict")), "shipped/strict.toml"),
        (
            learning(world().organisation("require.deny-sockets = true")),
            ORGANISATION,
        ),
        (
            learning(world().organisation("forbid-dangerous = true")),
            ORGANISATION,
        ),
    ] {
        let reasons = refused.reasons();
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].rule.starts_with(rule), "{reasons:?}");
        assert!(reasons[0].what.contains("learning"), "{reasons:?}");
    }
    let denied =
        learning(world().organisation("deny.network = ['*.evil.example', 'evil.example']"));
    let network = denied.boundary().network;
    assert!(judged(&network, "GET https://evil.example/x").is_err());
    assert!(judged(&network, "GET https://a.evil.example/x").is_err());
    assert!(judged(&network, "GET https://good.example/x").is_ok());
    assert!(denied.rules().show().contains("with --learn"));
}

#[test]
fn a_description_of_rules_has_an_end() {
    let rule = |number: usize| format!("'https://h{number}.example/{}'", "a".repeat(300));
    let list: Vec<String> = (0..200).map(rule).collect();
    let text = format!("network.allow = [{}]", list.join(", "));
    let reasons = world().profile("p", &text).with("p").reasons();
    assert!(reasons[0].why.contains("bytes"), "{reasons:?}");
}

#[test]
fn limits_are_read_and_shown_as_they_are_written() {
    let written = "{ to = \"a.example\", requests = \"60/min\", connections = 8, \
                   upload = \"10MiB\", download = \"1GiB\", rate = \"1MiB/s\", body = \"1500\", \
                   duration = \"90s\" }";
    let text = format!(
        "[network]\nallow = [\n  {written},\n  {{ to = ['b.example:22', 'c.example:22'], rate = '2000/s' }},\n]"
    );
    let world = world().profile("p", &text).with("p");
    let network = world.boundary().network;
    assert_eq!(
        listed(&network),
        [
            "a.example with requests = \"60/min\", connections = 8, upload = \"10MiB\", \
             download = \"1GiB\", rate = \"1MiB/s\", body = \"1500\", duration = \"90s\" \
             user/p.toml:3",
            "b.example:22 with rate = \"2000/s\" user/p.toml:4",
            "c.example:22 with rate = \"2000/s\" user/p.toml:4",
        ]
    );
    // What is one table is counted together, and what is not is not.
    let table = |index: usize| network.allow[index].limits.table;
    assert_eq!(table(1), table(2));
    assert_ne!(table(0), table(1));
    let meant = Meant::from(&network.allow[0]);
    assert_eq!(crate::network_entry(&meant), written);
    let shown = world.rules().show();
    let together = "{ to = [\"b.example:22\", \"c.example:22\"], rate = \"2000/s\" }";
    assert!(
        shown.contains(written) && shown.contains(together),
        "{shown}"
    );
    // What a boundary holds is what who carries reads.
    let told = serde_json::to_string(&network).unwrap();
    assert_eq!(serde_json::from_str::<Network>(&told).unwrap(), network);
}

#[test]
fn limits_hold_wherever_what_they_are_about_can_be_seen() {
    for text in [
        "{ to = 'a.example', requests = '1/s' }",
        "{ to = 'a.example:443', body = 0 }",
        "{ to = 'a.example:8080', carry = 'requests', requests = '1/s' }",
        "{ to = 'a.example:8080', methods = ['GET'], requests = '1/s' }",
        "{ to = 'a.example', carry = 'tunnel', connections = 1, upload = 1, duration = '1ms' }",
        "{ to = 'a.example:*', connections = 1, upload = 1, duration = '1ms', rate = '1/s' }",
    ] {
        let profile = format!("network.allow = [{text}]");
        let network = world().profile("p", &profile).with("p").boundary().network;
        assert!(!network.allow[0].limits.is_empty(), "{text}");
    }
}

#[test]
fn packages_are_allowed_and_denied_by_their_names() {
    let profile = "[network]\npresets = ['npm']\nallow = [{ registry = 'pip', packages = ['requests', 'types-*'], connections = 4 }]\n\
                   deny = [{ registry = 'npm', packages = ['event-stream', '@evil/*'] }]";
    let world = world().profile("p", profile).with("p");
    let network = world.boundary().network;
    for (url, is_allowed) in [
        ("https://registry.npmjs.org/left-pad", true),
        ("https://registry.npmjs.org/event-stream", false),
        ("https://registry.yarnpkg.com/event-stream", false),
        ("https://registry.npmjs.org/@evil%2fthing", false),
        ("https://registry.npmjs.org/@good%2fthing", true),
        ("https://pypi.org/simple/requests/", true),
        ("https://pypi.org/simple/flask/", false),
        ("https://pypi.org/simple/Types.Requests/", true),
    ] {
        let (place, path) = url.trim_start_matches("https://").split_once('/').unwrap();
        let (host, target) = (host(place), Target::parse(&format!("/{path}")).unwrap());
        let request = Request {
            host: &host,
            port: 443,
            scheme: Scheme::Https,
            method: "GET",
            target: &target,
        };
        assert_eq!(network.request(&request).is_ok(), is_allowed, "{url}");
    }
    let shown = world.rules().show();
    for entry in [
        "{ registry = \"pip\", packages = [\"requests\", \"types-*\"], connections = 4 }",
        "{ registry = \"npm\", packages = [\"event-stream\", \"@evil/*\"] }",
    ] {
        assert_eq!(shown.matches(entry).count(), 1, "{shown}");
    }
    let again = crate::tests::world().profile("p", &shown).with("p");
    assert_eq!(again.boundary().network.deny.len(), network.deny.len());
}

#[test]
fn a_language_that_is_named_reads_from_its_registry() {
    for (name, command, registry) in [
        ("rust", "cargo", "index.crates.io"),
        ("python", "pip", "pypi.org"),
        ("node", "npm", "registry.npmjs.org"),
        ("go", "go", "proxy.golang.org"),
    ] {
        let network = world().with(name).boundary().network;
        let target = Target::parse("/x").unwrap();
        let host = host(registry);
        for (method, is_allowed) in [("GET", true), ("POST", false), ("PUT", false)] {
            let request = Request {
                host: &host,
                port: 443,
                scheme: Scheme::Https,
                method,
                target: &target,
            };
            assert_eq!(
                network.request(&request).is_ok(),
                is_allowed,
                "{name} {method}"
            );
        }
        let shown = world().with(name).rules().show();
        assert!(shown.contains(registry), "{shown}");
        // What nobody has named opens nothing: a command, what is extended, a profile of
        // the same name.
        for world in [
            world().command(command),
            world()
                .profile("mine", &format!("extends = ['{name}']"))
                .with("mine"),
            world()
                .profile(name, &format!("extends = ['{name}']"))
                .with(name),
        ] {
            assert!(world.boundary().network.is_empty(), "{name}");
        }
        // Where there are no sockets it is no reason to refuse; what is asked for is.
        let closed = "[require]\ndeny-sockets = true";
        let without = world().with(name).organisation(closed);
        assert!(without.boundary().network.is_empty(), "{name}");
        let denied = "[deny]\nnetwork = ['*']";
        let denied = world().with(name).organisation(denied).boundary().network;
        assert!(denied.connection(&host, 443).is_err(), "{name}");
    }
}

#[test]
fn what_is_likely_to_be_meant_is_said() {
    for (text, what, hint) in [
        ("2001:db8::1", "stands in brackets", "\"[2001:db8::1]\""),
        ("2001:db8::/32", "stands in brackets", "\"[2001:db8::/32]\""),
        (
            "GET https://2001:db8::1/x",
            "stands in brackets",
            "\"[2001:db8::1]\"",
        ),
        ("10.0.0.0/33", "from 0 to 32", "\"10.0.0.0/32\""),
        ("10.0.0.0/", "from 0 to 32", "\"10.0.0.0/32\""),
        ("[2001:db8::/129]", "from 0 to 128", "\"[2001:db8::/128]\""),
        ("[2001:db8::1/x]", "from 0 to 128", "\"[2001:db8::1/128]\""),
        (
            "10.1.2.3/16",
            "begins with its first address",
            "\"10.1.0.0/16\"",
        ),
        (
            "10.1.2.3/16:5432",
            "begins with its first address",
            "\"10.1.0.0/16\"",
        ),
        (
            "[2001:db8::1/32]",
            "begins with its first address",
            "\"[2001:db8::/32]\"",
        ),
        (
            "10.1.2.3/0",
            "begins with its first address",
            "\"0.0.0.0/0\"",
        ),
        (
            "a.com,b.com",
            "more than one host",
            "[\"a.com\", \"b.com\"]",
        ),
        (
            "GET a.com,b.com",
            "more than one host",
            "an option for each",
        ),
        ("https://a.com/", "one page", "\"https://a.com\""),
        (
            "GET https://a.com:8443/",
            "one page",
            "\"GET https://a.com:8443\"",
        ),
        (
            "https://ann:secret@a.com",
            "a user or a password",
            "\"a.com\"",
        ),
        (
            "http://ann@a.com/x",
            "a user or a password",
            "leave out the '@'",
        ),
        ("GET", "a method without a host", "GET example.com"),
        ("post", "a method without a host", "POST example.com"),
        ("npm", "the name of a preset", "--preset npm"),
        ("pypi", "the name of a preset", "--preset pip"),
        (
            "github",
            "the name of a preset",
            "presets = [\"github-read\"]",
        ),
    ] {
        for list in ["allow", "deny"] {
            let profile = format!("network.{list} = [{text:?}]");
            let problems = check(profile.as_bytes(), "p.toml");
            let [problem] = &problems[..] else {
                panic!("{text}: {problems:?}");
            };
            assert!(problem.what.contains(what), "{text}: {problem}");
            let said = problem.hint.as_deref().unwrap_or_default();
            assert!(said.contains(hint), "{text}: {problem}");
            assert!(!problem.to_string().contains("secret"), "{problem}");
        }
    }
    // Hosts of one's own network are hosts, with their ports.
    for text in ["db", "npm:8080", "intranet", "pypi:443"] {
        let profile = format!("network.allow = [{text:?}]");
        let network = world().profile("p", &profile).with("p").boundary().network;
        assert_eq!(network.allow.len(), 1, "{text}");
    }
}

#[test]
fn what_opens_more_or_less_than_it_seems_is_told() {
    let told = |rule: &str| {
        let profile = format!("network.allow = [{rule}]");
        let rules = world().profile("p", &profile).with("p").rules();
        let notices = rules.notices.iter().map(|one| one.text.clone());
        notices.collect::<Vec<_>>().join("\n")
    };
    for (rule, words) in [
        ("'0.0.0.0/0'", "also private ones"),
        ("'[::/0]:443'", "also private ones"),
        (
            "{ to = '*', carry = 'tunnel' }",
            "every host on the internet",
        ),
        ("'localhost:3000'", "loopback is the program's own"),
        ("'127.0.0.1:3000'", "loopback is the program's own"),
        ("'[::1]:3000'", "loopback is the program's own"),
    ] {
        assert!(told(rule).contains(words), "{rule}: {}", told(rule));
    }
    for rule in [
        "'*'",
        "'example.com'",
        "'10.0.0.0/8'",
        "{ to = 'a.example', carry = 'tunnel' }",
    ] {
        assert_eq!(told(rule), "", "{rule}");
    }
}

#[test]
fn releases_are_allowed_and_denied_by_their_age() {
    let profile = "[network]\npresets = ['npm']\nallow = [{ registry = 'pip', minimum-age = '7d' }]\n\
                   deny = [{ registry = 'npm', packages = ['left-*'], minimum-age = '36h' }]";
    let world = world().profile("p", profile).with("p");
    let network = world.boundary().network;
    assert_eq!(
        network.minimum_age(atoll_model::network::Registry::Npm),
        None
    );
    let week = std::time::Duration::from_secs(7 * 86_400);
    assert_eq!(
        network.minimum_age(atoll_model::network::Registry::Pip),
        Some(week)
    );
    let shown = world.rules().show();
    for entry in [
        "{ registry = \"pip\", packages = [\"*\"], minimum-age = \"7d\" }",
        "{ registry = \"npm\", packages = [\"left-*\"], minimum-age = \"36h\" }",
    ] {
        assert_eq!(shown.matches(entry).count(), 1, "{shown}");
    }
    let again = crate::tests::world().profile("p", &shown).with("p");
    let ages = |network: &Network| {
        let rules = network.allow.iter().chain(&network.deny);
        let packages = rules.filter_map(|rule| rule.requests.packages.clone());
        packages.collect::<Vec<_>>()
    };
    assert_eq!(ages(&again.boundary().network), ages(&network));
    // Whoever has chosen a time keeps it, in whatever case.
    let chosen = |names: &[(&str, &str)]| {
        let mut world = world.clone();
        for (name, value) in names {
            let pass = format!("environment.pass = ['{name}']");
            world = world.profile("q", &pass).with("q").variable(name, value);
        }
        world.value("UV_EXCLUDE_NEWER")
    };
    assert_eq!(chosen(&[]).as_deref(), Some("2026-11-14T09:30:12Z"));
    assert_eq!(
        chosen(&[("UV_EXCLUDE_NEWER", "2020-01-01")]).as_deref(),
        Some("2020-01-01")
    );
    assert_eq!(world.value("npm_config_before"), None);
    for wrong in [
        "{ registry = 'npm', minimum-age = '7' }",
        "{ registry = 'npm', minimum-age = '0d' }",
        "{ registry = 'npm', minimum-age = 7 }",
        "{ to = 'a.example', minimum-age = '7d' }",
        "{ registry = 'npm', packages = [], minimum-age = '7d' }",
    ] {
        let profile = format!("network.allow = [{wrong}]");
        let error = crate::tests::world()
            .profile("p", &profile)
            .with("p")
            .error();
        assert!(
            error.contains("minimum-age")
                || error.contains("duration")
                || error.contains("packages"),
            "{error}"
        );
    }
}

#[test]
fn npm_sends_no_list_that_would_be_refused() {
    let audit = |profile: &str| {
        let world = world().profile("p", profile).with("p");
        world.value("npm_config_audit")
    };
    for refused in [
        "network.presets = ['npm']",
        "network.allow = [{ registry = 'npm', minimum-age = '7d' }]",
        "network.allow = [{ registry = 'npm', lock = 'package-lock.json' }]",
        "network.allow = [{ registry = 'npm', packages = ['left-*'] }]",
    ] {
        assert_eq!(audit(refused).as_deref(), Some("false"), "{refused}");
    }
    for other in [
        "network = 'none'",
        "network.presets = ['pip']",
        "network.allow = ['registry.npmjs.org']",
        "network.allow = [{ to = 'registry.npmjs.org', carry = 'tunnel' }]",
        "environment.set.npm_config_audit = 'true'\n[network]\npresets = ['npm']",
    ] {
        assert_ne!(audit(other).as_deref(), Some("false"), "{other}");
    }
}

#[test]
fn what_lock_files_name_is_allowed_and_denied() {
    let profile = "[network]\nallow = [{ registry = 'pip', lock = ['requirements.txt', 'a/uv.lock', 'a/uv.lock'] }]\n\
                   deny = [{ registry = 'npm', packages = ['left-*'], minimum-age = '36h', lock = 'package-lock.json' }]";
    let world = world().profile("p", profile).with("p");
    let network = world.boundary().network;
    let files: Vec<String> = network
        .lock_files()
        .iter()
        .map(|(registry, file)| format!("{registry} {file}"))
        .collect();
    let expected = [
        "npm package-lock.json",
        "pip a/uv.lock",
        "pip requirements.txt",
    ];
    assert_eq!(files, expected);
    let shown = world.rules().show();
    for entry in [
        "{ registry = \"pip\", packages = [\"*\"], lock = [\"a/uv.lock\", \"requirements.txt\"] }",
        "{ registry = \"npm\", packages = [\"left-*\"], minimum-age = \"36h\", lock = \"package-lock.json\" }",
    ] {
        assert_eq!(shown.matches(entry).count(), 1, "{shown}");
    }
    let again = crate::tests::world().profile("p", &shown).with("p");
    assert_eq!(again.boundary().network.lock_files(), network.lock_files());
    let remarks = crate::remarks(profile.as_bytes(), "p.toml");
    let lines: Vec<u32> = remarks.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 2, 3], "{remarks:?}");
    let denied = b"[deny]\nnetwork = [{ registry = 'npm', lock = 'package-lock.json' }]";
    for file in ["atoll.toml", "organisation.toml"] {
        assert_eq!(crate::remarks(denied, file).len(), 1, "{file}");
    }
    let many: Vec<String> = (0..17).map(|at| format!("'{at}/Cargo.lock'")).collect();
    for (wrong, said) in [
        ("lock = ''", "beneath the workspace"),
        ("lock = './Cargo.lock'", "beneath the workspace"),
        ("lock = 'a/../Cargo.lock'", "beneath the workspace"),
        ("lock = '/Cargo.lock'", "beneath the workspace"),
        ("lock = 'cargo.lock'", "name Cargo.lock"),
        ("lock = []", "is empty"),
        ("lock = 7", "lock"),
        (
            "lock = 'Cargo.lock', minimum-age = '1w'",
            "\"7d\" or \"36h\"",
        ),
        (&format!("lock = [{}]", many.join(", ")), "16 lock files"),
    ] {
        let profile = format!("network.deny = [{{ registry = 'cargo', {wrong} }}]");
        let error = crate::tests::world()
            .profile("p", &profile)
            .with("p")
            .error();
        assert!(error.contains(said), "{wrong}: {error}");
    }
}

#[test]
fn no_password_in_a_mistaken_rule_is_repeated() {
    for text in [
        "https://user:hunter2@a.example",
        "GET https://user:hunter2@a.example/x",
        "https://hunter2@a.example",
        "user:hunter2@a.example:443",
        "https://user:hun/hunter2@a.example",
        "https://user:hunter2?x@a.example",
        "https://user:hunter2@b@a.example",
        "https://user:hunter2@a.example extra",
        "ftp://user:hunter2@a.example",
    ] {
        for list in ["allow", "deny"] {
            for rule in [format!("'{text}'"), format!("{{ to = '{text}' }}")] {
                let profile = format!("network.{list} = [{rule}]");
                let error = crate::tests::world()
                    .profile("p", &profile)
                    .with("p")
                    .error();
                assert!(!error.contains("hunter2"), "{rule}: {error}");
            }
        }
    }
    let error = crate::tests::world()
        .profile("p", "network.allow = ['https://user:hunter2@a.example']")
        .with("p")
        .error();
    assert!(
        error.contains("leave out the '@' and what stands before it: \"a.example\""),
        "{error}"
    );
}
