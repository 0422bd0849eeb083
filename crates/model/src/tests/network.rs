use std::net::IpAddr;

use proptest::prelude::*;

use crate::network::*;

fn host(text: &str) -> Result<HostPart, InvalidHost> {
    text.parse()
}

fn rules(allow: &[&str], deny: &[&str]) -> Network {
    let list = |texts: &[&str]| {
        let rule = |text: &&str| NetworkRule {
            to: text.parse().unwrap(),
            way: Way::Usual,
            requests: Conditions::default(),
            limits: RuleLimits::default(),
            origin: (*text).to_owned(),
        };
        texts.iter().map(rule).collect()
    };
    Network {
        allow: list(allow),
        deny: list(deny),
        learn: None,
        ..Network::default()
    }
}

#[test]
fn hosts_have_one_form() {
    for (text, form) in [
        ("example.com", "example.com"),
        ("EXAMPLE.com.", "example.com"),
        ("a_b.example.com", "a_b.example.com"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("localhost", "localhost"),
        ("1e100.net", "1e100.net"),
        ("0x.example", "0x.example"),
        ("192.0.2.1", "192.0.2.1"),
        ("[::1]", "[::1]"),
        ("[2001:DB8:0:0::1]", "[2001:db8::1]"),
        ("[::ffff:10.0.0.1]", "10.0.0.1"),
    ] {
        assert_eq!(host(text).unwrap().to_string(), form, "{text}");
    }
}

#[test]
fn what_others_read_otherwise_is_no_host() {
    for text in [
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a.b..",
        "a b",
        " a",
        "a\0.example.com",
        "a\n",
        "a\r\nb",
        "a%2eb",
        "a%00",
        "a/b",
        "a\\b",
        "a@b",
        "a:b",
        "a#b",
        "a?b",
        "bücher.example",
        "ａ.example",
        "a。b",
        "-a.b",
        "a-.b",
        "1",
        "127.1",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "2130706433",
        "127.0.0.01",
        "127.0.0.1.",
        "1.2.3.4.5",
        "256.1.1.1",
        "example.1",
        "example.0x1",
        "example.0X",
        "[::1",
        "::1]",
        "[::1%lo]",
        "[::1%25lo]",
        "[127.0.0.1]",
        "[v1.x]",
        "[]",
        "[::g]",
        "::1",
        "*",
        "*.example.com",
        "a,b",
        "a;b",
        "a=b",
        "a\u{ad}b.example",
    ] {
        assert!(host(text).is_err(), "{text:?} is {:?}", host(text));
    }
    assert_eq!(host(&"a".repeat(64)), Err(InvalidHost::Long));
    let long = ["a"; 127].join(".");
    assert!(host(&long).is_ok());
    assert_eq!(host(&format!("{long}.b")), Err(InvalidHost::Long));
}

#[test]
fn destinations_are_written_as_they_are_read() {
    for text in [
        "example.com",
        "example.com:22",
        "*.example.com:*",
        "*",
        "*:443",
        "192.0.2.0/24:5432",
        "10.0.0.1:80,443,8000-8080",
        "[2001:db8::/32]:443",
        "[2001:db8::1]",
    ] {
        let read: Destination = text.parse().unwrap();
        assert_eq!(read.to_string(), text);
    }
    for text in [
        "",
        ":",
        "example.com:",
        "example.com:0",
        "example.com:65536",
        "example.com:+1",
        "example.com:2-1",
        "example.com:http",
        "example.com:80,",
        "example.*",
        "a*.example.com",
        "**",
        "*.",
        "*.*",
        "*.10.0.0.1",
        "192.0.2.1/24",
        "192.0.2.0/33",
        "192.0.2.0/-1",
        "192.0.2.0/+24",
        "2001:db8::1",
        "[192.0.2.1]",
        "[2001:db8::1]443",
        "[2001:db8::1]/32",
        "[::ffff:10.0.0.0/104]",
        "https://example.com",
        "example.com/path",
        "user@example.com",
    ] {
        assert!(text.parse::<Destination>().is_err(), "{text:?}");
    }
}

#[test]
fn what_is_no_destination_is_told_in_its_own_words() {
    let told = |text: &str| text.parse::<Destination>().unwrap_err().to_string();
    assert!(told("https://example.com/path").contains("host alone"));
    assert!(told("10.0.0.1/8").contains("10.0.0.0/8"));
    assert!(told("example.com:http").contains("port"));
}

#[test]
fn nothing_is_reached_without_a_rule_and_what_is_denied_is_not() {
    let none = rules(&[], &[]);
    assert!(none.is_empty());
    let all = rules(
        &["*:*"],
        &["evil.example:*", "*.evil.example:443", "192.0.2.0/24:*"],
    );
    let one = rules(
        &["example.com", "*.example.org:443", "198.51.100.7:22"],
        &[],
    );
    let check = |rules: &Network, to: &str, port: u16, expected: bool| {
        let found = rules.connection(&host(to).unwrap(), port);
        assert_eq!(found.is_ok(), expected, "{to}:{port} {found:?}");
    };
    for to in ["example.com", "192.0.2.1", "[::1]", "localhost"] {
        check(&none, to, 443, false);
    }
    for (to, port, expected) in [
        ("example.com", 443, true),
        ("example.com", 80, true),
        ("example.com", 22, false),
        ("www.example.com", 443, false),
        ("notexample.com", 443, false),
        ("example.com.evil.example", 443, false),
        ("a.example.org", 443, true),
        ("a.b.example.org", 443, true),
        ("a.example.org", 80, false),
        ("example.org", 443, false),
        ("aexample.org", 443, false),
        ("198.51.100.7", 22, true),
        ("198.51.100.8", 22, false),
    ] {
        check(&one, to, port, expected);
    }
    for (to, port, expected) in [
        ("anything.example", 1, true),
        ("evil.example", 1, false),
        ("a.evil.example", 443, false),
        ("a.evil.example", 80, true),
        ("192.0.2.9", 80, false),
        ("[::ffff:192.0.2.9]", 80, false),
        ("8.8.8.8", 53, true),
        ("anything.example", 0, false),
    ] {
        check(&all, to, port, expected);
    }
    let name = |text: &str| HostName::parse(text).unwrap();
    assert!(all.name(&name("evil.example")).is_err());
    assert!(all.name(&name("a.evil.example")).is_ok(), "at another port");
    assert!(none.name(&name("example.com")).is_err());
}

#[test]
fn the_hosts_own_loopback_is_opened_by_its_name_and_ports_alone() {
    let own = host(THIS_HOST).unwrap();
    let HostPart::Name(name) = &own else {
        panic!("it is a name");
    };
    let local: [IpAddr; 2] = ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
    for (allow, deny, opens, dials) in [
        (&["host.atoll.internal:5432"][..], &[][..], true, true),
        (&["host.atoll.internal:22,5432"], &[], true, true),
        (&["host.atoll.internal:5432"], &["127.0.0.1:*"], true, false),
        (&["host.atoll.internal:5432"], &["*:5432"], false, true),
        (&["host.atoll.internal:5433"], &[], false, true),
        (&["host.atoll.internal"], &[], false, true),
        (&["host.atoll.internal:*"], &[], false, true),
        (&["host.atoll.internal:5000-6000"], &[], false, true),
        (&["*:*", "*:5432"], &[], false, true),
        (&["*.atoll.internal:*", "*.internal:5432"], &[], false, true),
        (&["127.0.0.0/8:*", "[::1]:*"], &[], false, true),
        (&["proxy.atoll.internal:5432"], &[], false, true),
    ] {
        let mut network = rules(allow, deny);
        for _ in 0..2 {
            let found = network.connection(&own, 5432);
            assert_eq!(found.is_ok(), opens, "{allow:?} {deny:?} {found:?}");
            let is_named = allow
                .iter()
                .any(|rule| rule.contains(":5") && !rule.contains('-'));
            let is_named = is_named && allow[0].starts_with("host.") || opens;
            assert_eq!(network.name(name).is_ok(), is_named, "{allow:?}");
            let dialled = local.map(|one| network.dials(&own, one, 5432, None).is_ok());
            assert_eq!(dialled, [dials, dials || deny.contains(&"127.0.0.1:*")]);
            // Learning what is reached does not open it either.
            network.learn = Some(NetworkRule::learning());
        }
    }
    let network = rules(&["host.atoll.internal:5432", "*:*"], &[]);
    let dials = |to: &str, address: &str| {
        let address = address.parse().unwrap();
        network
            .dials(&host(to).unwrap(), address, 5432, None)
            .is_ok()
    };
    assert!(!dials(THIS_HOST, "10.0.0.1"), "its own addresses alone");
    assert!(!dials(THIS_HOST, "127.0.0.2"));
    assert!(!dials("rebinding.example", "127.0.0.1"));
    assert!(!dials("127.0.0.1", "127.0.0.1"));
    assert_eq!(
        Destination::of(&own, 80).to_string(),
        "host.atoll.internal:80"
    );
}

#[test]
fn addresses_that_are_not_on_the_internet_need_a_rule_of_their_own() {
    let all = rules(&["*:*"], &[]);
    for (address, expected) in [
        ("8.8.8.8", true),
        ("93.184.216.34", true),
        ("2606:2800:220:1::1", true),
        ("64:ff9b::808:808", true),
        ("::ffff:8.8.8.8", true),
        ("0.0.0.0", false),
        ("0.1.2.3", false),
        ("10.255.255.255", false),
        ("100.64.0.1", false),
        ("100.127.255.255", false),
        ("100.128.0.1", true),
        ("127.0.0.1", false),
        ("127.255.255.254", false),
        ("169.254.169.254", false),
        ("168.63.129.16", false),
        ("168.63.129.17", true),
        ("172.15.255.255", true),
        ("172.16.0.1", false),
        ("172.31.255.255", false),
        ("172.32.0.1", true),
        ("192.0.0.8", false),
        ("192.168.1.1", false),
        ("198.18.0.1", false),
        ("198.19.255.255", false),
        ("198.20.0.0", true),
        ("224.0.0.1", false),
        ("255.255.255.255", false),
        ("::", false),
        ("::1", false),
        ("::7f00:1", false),
        ("::ffff:127.0.0.1", false),
        ("64:ff9b::7f00:1", false),
        ("64:ff9b::a9fe:a9fe", false),
        ("64:ff9b:1::1", false),
        ("100::1", false),
        ("2001::1", false),
        ("2001:db8::1", false),
        ("2002:7f00:1::1", false),
        ("3fff::1", false),
        ("fc00::1", false),
        ("fd00:ec2::254", false),
        ("fe80::1", false),
        ("fec0::1", false),
        ("ff02::1", false),
        ("4000::1", false),
        ("2606::5efe:7f00:1", false),
        ("2606::5efe:a9fe:a9fe", false),
        ("2606:2800:220:1:200:5efe:a00:1", false),
        ("2606::5efe:808:808", true),
        ("2606::1:5efe:7f00:1", true),
        ("2606::5eff:7f00:1", true),
    ] {
        let address: IpAddr = address.parse().unwrap();
        let found = all.address(address, 443, None);
        assert_eq!(found.is_ok(), expected, "{address} {found:?}");
    }
    let own = rules(&["intern.example", "10.1.0.0/16:443"], &["10.1.2.3:*"]);
    for (address, port, expected) in [
        ("10.1.0.7", 443, true),
        ("::ffff:10.1.0.7", 443, true),
        ("10.1.0.7", 80, false),
        ("10.2.0.7", 443, false),
        ("10.1.2.3", 443, false),
        ("127.0.0.1", 443, false),
    ] {
        let found = own.address(address.parse().unwrap(), port, None);
        assert_eq!(found.is_ok(), expected, "{address}:{port} {found:?}");
    }
}

/// IPv6 addresses that lead to an IPv4 address, one for each transition mechanism, with `V4` as its
/// place.
const STANDING: [(&str, &str); 12] = [
    ("::ffff:", "V4"),
    ("::", "V4"),
    ("::ffff:0:", "V4"),
    ("64:ff9b::", "V4"),
    ("64:ff9b:1::", "V4"),
    ("64:ff9b:1:7:8:9:", "V4"),
    ("2002:", "V4::1"),
    ("2001:0:", "V4:8000:63bf:f7f7:f7f7"),
    ("2001:0:808:808:8000:63bf:", "~V4"),
    ("2606::5efe:", "V4"),
    ("2606:2800:220:1:200:5efe:", "V4"),
    ("fe80::5efe:", "V4"),
];

/// Returns each of them for an IPv4 address.
fn standing_for(four: [u8; 4]) -> impl Iterator<Item = IpAddr> {
    let written = |four: [u8; 4]| {
        let [a, b, c, d] = four;
        format!(
            "{:x}:{:x}",
            u16::from_be_bytes([a, b]),
            u16::from_be_bytes([c, d])
        )
    };
    STANDING.iter().map(move |(before, after)| {
        let after = after.replace("~V4", &written(four.map(|byte| !byte)));
        let text = format!("{before}{}", after.replace("V4", &written(four)));
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    })
}

#[test]
fn embedded_ipv4_address_is_judged_too() {
    let everything = rules(&["*:*", "0.0.0.0/0:*", "[::/0]:*"], &["10.1.0.0/16:*"]);
    for (four, expected) in [
        ([127, 0, 0, 1], false),
        ([10, 1, 2, 3], false),
        ([10, 2, 2, 3], true),
        ([8, 8, 8, 8], true),
    ] {
        for address in standing_for(four) {
            let found = everything.address(address, 443, None);
            assert_eq!(found.is_ok(), expected, "{address} {found:?}");
        }
    }
    let internet = rules(&["*:*"], &[]);
    for four in [
        [127, 0, 0, 1],
        [10, 2, 2, 3],
        [169, 254, 169, 254],
        [192, 168, 0, 1],
    ] {
        for address in standing_for(four) {
            let found = internet.address(address, 443, None);
            assert!(
                matches!(found, Err(Unreachable::Special(_))),
                "{address} {found:?}"
            );
        }
    }
    // By a prefix of RFC 6052 other than the longest one.
    for address in [
        "64:ff9b:1:a01:2:300::",
        "64:ff9b:1:a:1:203::",
        "64:ff9b:1::a:102:300:0",
    ] {
        let found = everything.address(address.parse().unwrap(), 443, None);
        assert!(
            matches!(found, Err(Unreachable::Denied(_))),
            "{address} {found:?}"
        );
    }
}

proptest! {
    #[test]
    fn a_host_that_is_read_is_read_again_as_itself(text in "[a-z0-9.:_\\[\\]%-]{0,40}") {
        if let Ok(read) = host(&text) {
            prop_assert_eq!(host(&read.to_string()), Ok(read));
        }
    }

    #[test]
    fn a_destination_that_is_read_is_read_again_as_itself(text in "[a-z0-9.:*/,\\[\\]-]{0,40}") {
        if let Ok(read) = text.parse::<Destination>() {
            prop_assert_eq!(read.to_string().parse(), Ok(read));
        }
    }

    #[test]
    fn what_a_rule_refuses_no_other_allows(name in "[a-c]{1,2}(\\.[a-c]{1,2}){0,2}", port in 1_u16..4, allowed in 0..3_usize) {
        let deny = ["a.b:1-2", "*.c:*", "b"];
        let allow = [&["*:*"][..], &["*.b:*", "a.b:*"], &["a.b:1", "*.c:2", "b:*"]];
        let with = rules(allow[allowed], &deny);
        let without = rules(&[], &deny);
        let to = host(&name).unwrap();
        if matches!(without.connection(&to, port), Err(Unreachable::Denied(_))) {
            prop_assert!(with.connection(&to, port).is_err());
        }
        // A connection is never allowed to a name that may not be asked for.
        if let (HostPart::Name(name), true) = (&to, with.connection(&to, port).is_ok()) {
            prop_assert!(with.name(name).is_ok());
        }
    }
}

#[test]
fn what_is_looked_into_is_known_beforehand() {
    for (allow, deny, expected) in [
        (&[][..], &[][..], false),
        (&[], &["example.com"], false),
        (&["example.com"], &[], true),
        (&["example.com:22"], &[], false),
        (&["example.com:22", "*:443"], &[], true),
        (&["example.com:1-79,81-442,444"], &["example.com"], false),
        (&["example.com:79-81"], &[], true),
        (&["10.0.0.0/8:*"], &[], true),
    ] {
        assert_eq!(rules(allow, deny).is_inspected(), expected, "{allow:?}");
    }
    let get = Conditions {
        methods: vec!["GET".to_owned()],
        ..Conditions::default()
    };
    let mut network = rules(&["example.com:8080"], &["example.com:8080"]);
    for way in [Way::Usual, Way::Inspect, Way::Tunnel] {
        network.allow[0].way = way;
        assert_eq!(network.is_inspected(), way == Way::Inspect, "{way:?}");
    }
    network.deny[0].requests = get.clone();
    assert!(network.is_inspected());
    network.deny.clear();
    network.allow[0].requests = get;
    network.allow[0].way = Way::Usual;
    assert!(network.is_inspected());
}
