//! Decisions without a network: names, the first bytes of connections, refusals.

use std::net::IpAddr;
use std::sync::Mutex;

use atoll_model::network::{
    Binding, Conditions, Flow, FlowKind, FlowReport, FlowRequest, HostName, Network, NetworkRule,
    Others, Place, RuleLimits, Scheme, Way,
};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use proptest::prelude::*;
use tokio::net::{TcpListener, TcpStream};

use crate::credentials::Credentials;
use crate::dns;
use crate::hello::{self, Hello};
use crate::names::Names;
use crate::policies::Policies;
use crate::refusals::{PLACES_MAX, REFUSALS_MAX, Refusals, shown};

fn network(allow: &[&str]) -> Network {
    let rule = |text: &&str| NetworkRule {
        to: text.parse().unwrap(),
        way: Way::Usual,
        requests: Conditions::default(),
        limits: RuleLimits::default(),
        origin: "a test".to_owned(),
    };
    Network {
        allow: allow.iter().map(rule).collect(),
        deny: Vec::new(),
        learn: None,
        ..Network::default()
    }
}

fn question(name: &str, kind: RecordType) -> Message {
    let mut asked = Message::new(77, MessageType::Query, OpCode::Query);
    asked.metadata.recursion_desired = true;
    asked.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    asked
}

/// Returns the answer, and the name that was refused.
fn answered(asked: &Message, names: &Mutex<Names>) -> (Message, Option<String>) {
    let network = network(&["example.com", "*.example.org:22"]);
    let answered = dns::answer(
        &asked.to_vec().unwrap(),
        &network,
        &Policies::default().now(),
        names,
    );
    let answer = Message::from_vec(&answered.answer.unwrap()).unwrap();
    assert_eq!(answer.metadata.id, asked.metadata.id);
    assert_eq!(answer.metadata.message_type, MessageType::Response);
    (answer, answered.refused.map(|refused| refused.name))
}

fn addresses(answer: &Message) -> Vec<IpAddr> {
    let of = |data: &RData| match data {
        RData::A(address) => Some(IpAddr::from(address.0)),
        RData::AAAA(address) => Some(address.0.into()),
        _ => None,
    };
    let data = answer.answers.iter().map(|record| &record.data);
    data.filter_map(of).collect()
}

#[test]
fn dns_sandbox_name_resolves_to_loopback() {
    let names = Mutex::default();
    for (kind, expected) in [
        (RecordType::A, vec![IpAddr::from([127, 0, 0, 1])]),
        (
            RecordType::AAAA,
            vec![IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])],
        ),
        (RecordType::TXT, vec![]),
    ] {
        let (answer, refused) = answered(&question("Localhost.", kind), &names);
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
        assert_eq!((addresses(&answer), refused), (expected, None), "{kind}");
    }
    for name in ["localhost.example.", "localhos."] {
        let (answer, refused) = answered(&question(name, RecordType::A), &names);
        assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
        assert!(addresses(&answer).is_empty() && refused.is_some(), "{name}");
    }
    // A rule of somebody's own that names a host so is about that host.
    let asked = question("localhost.", RecordType::A).to_vec().unwrap();
    let named = network(&["localhost"]);
    let answered = dns::answer(&asked, &named, &Policies::default().now(), &names);
    let answer = Message::from_vec(&answered.answer.unwrap()).unwrap();
    assert_ne!(addresses(&answer), [IpAddr::from([127, 0, 0, 1])]);
}

#[test]
fn dns_allowed_name_gets_own_address() {
    let names = Mutex::default();
    let mut known = Vec::new();
    for (name, form) in [
        ("example.com.", "example.com"),
        ("EXAMPLE.com.", "example.com"),
        ("a.example.org.", "a.example.org"),
    ] {
        for kind in [RecordType::A, RecordType::AAAA] {
            let (answer, refused) = answered(&question(name, kind), &names);
            assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
            assert_eq!(refused, None);
            let [address] = addresses(&answer)[..] else {
                panic!("{answer}");
            };
            assert_eq!(address.is_ipv4(), kind == RecordType::A);
            assert!(
                atoll_model::network::special(address).is_some(),
                "nobody has {address}"
            );
            assert!(Names::is_for_names(address));
            let names = names.lock().unwrap();
            assert_eq!(names.name(address).unwrap().as_str(), form);
            known.push(address);
        }
    }
    known.sort();
    known.dedup();
    assert_eq!(known.len(), 4, "two names, each of both kinds");
}

#[test]
fn dns_other_name_is_refused_with_reason() {
    let names = Mutex::default();
    for name in [
        "example.org.",
        "evil.example.",
        "com.",
        ".",
        "1.2.3.4.",
        "a_b.example.com.",
        "xn--bcher-kva.example.",
    ] {
        let (answer, refused) = answered(&question(name, RecordType::A), &names);
        assert_eq!(
            answer.metadata.response_code,
            ResponseCode::NXDomain,
            "{name}"
        );
        assert!(answer.answers.is_empty());
        assert!(refused.is_some(), "{name}");
    }
    let mut asked = question("evil.example.", RecordType::AAAA);
    asked.set_edns(Edns::new());
    let (answer, _) = answered(&asked, &names);
    let told = format!("{:?}", answer.edns.unwrap());
    let words: Vec<String> = b"Atoll: no rule".iter().map(u8::to_string).collect();
    assert!(
        told.contains(&words.join(", ")) || told.contains("Atoll: no rule"),
        "{told}"
    );
}

#[test]
fn dns_other_question_reveals_nothing() {
    let names = Mutex::default();
    for kind in [
        RecordType::TXT,
        RecordType::MX,
        RecordType::HTTPS,
        RecordType::SVCB,
        RecordType::ANY,
        RecordType::NS,
    ] {
        let (answer, _) = answered(&question("example.com.", kind), &names);
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
        assert!(answer.answers.is_empty(), "{kind}");
    }
    let mut chaos = question("example.com.", RecordType::A);
    chaos.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(
        answered(&chaos, &names).0.metadata.response_code,
        ResponseCode::NXDomain
    );
    let mut two = question("example.com.", RecordType::A);
    two.add_query(two.queries[0].clone());
    assert_eq!(
        answered(&two, &names).0.metadata.response_code,
        ResponseCode::NotImp
    );
    // An answer is no question: two such servers would talk for ever.
    let mut answer = question("example.com.", RecordType::A);
    answer.metadata.message_type = MessageType::Response;
    let silent = dns::answer(
        &answer.to_vec().unwrap(),
        &network(&["*"]),
        &Policies::default().now(),
        &names,
    );
    assert!(silent.answer.is_none());
}

#[test]
fn names_unknown_address_has_no_name() {
    let names = Names::default();
    for (address, stands) in [
        ("198.18.0.0", false),
        ("198.18.0.1", true),
        ("198.19.255.254", true),
        ("198.19.255.255", false),
        ("198.20.0.1", false),
        ("fd61:746f:6c6c::1", true),
        ("fd61:746f:6c6c::", false),
        ("fd61:746f:6c6d::1", false),
        ("::ffff:198.18.0.1", true),
    ] {
        let address: IpAddr = address.parse().unwrap();
        assert_eq!(Names::is_for_names(address), stands, "{address}");
        assert_eq!(names.name(address), None);
    }
}

/// Returns both ends of a connection.
pub(crate) async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(near, listener.accept());
    (near.unwrap(), far.unwrap().0)
}

/// A real value, and its placeholder.
pub(crate) const REAL: &str = "sk-r3alK3yOfTh1sT3stWh1chN0bodyS";
pub(crate) const PLACEHOLDER: &str = "sk-Xk29fLq7ZpW3vB8nRt5YhJ4mC6dSg";

/// Returns the credentials of a run: that one.
pub(crate) fn keyed() -> Credentials {
    let binding = Binding {
        name: "key".parse().unwrap(),
        to: vec!["example.com:443".parse().unwrap()],
        requests: Conditions::default(),
        place: Place::Query("key".to_owned()),
        others: Others::Refused,
    };
    Credentials::of(vec![(binding, PLACEHOLDER, REAL)])
}

/// Returns a ClientHello for a name, as OpenSSL sends it.
pub(crate) fn client_hello(name: &str) -> Vec<u8> {
    let name = name.as_bytes();
    let length = |bytes: usize| (bytes as u16).to_be_bytes();
    let entry = [&[0][..], &length(name.len()), name].concat();
    let list = [&length(entry.len())[..], &entry].concat();
    let server_name = [&[0, 0][..], &length(list.len()), &list].concat();
    let groups = [0, 10, 0, 4, 0, 2, 0, 29];
    let signatures = [0, 13, 0, 4, 0, 2, 4, 3];
    let extensions = [&server_name[..], &groups, &signatures].concat();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0, 0, 2, 0x13, 0x01, 1, 0],
        &length(extensions.len()),
        &extensions,
    ]
    .concat();
    let handshake = [&[1, 0][..], &length(body.len()), &body].concat();
    [&[22, 3, 1][..], &length(handshake.len()), &handshake].concat()
}

#[test]
fn client_hello_name_is_read_in_any_pieces() {
    let bytes = client_hello("example.com");
    for length in 1..bytes.len() {
        assert_eq!(hello::read(&bytes[..length]), Hello::Partial, "{length}");
    }
    let read = hello::read(&bytes);
    assert_eq!(read, Hello::Tls(Some("example.com".to_owned())));
    let asked = HostName::parse("example.com").unwrap();
    assert!(!read.is_for_another(&asked));
    assert!(read.is_for_another(&HostName::parse("www.example.com").unwrap()));
    for other in [
        "evil.example",
        "example.com.evil.example",
        "10.0.0.1",
        "EXAMPLE.org",
    ] {
        assert!(
            hello::read(&client_hello(other)).is_for_another(&asked),
            "{other}"
        );
    }
    assert!(!hello::read(&client_hello("EXAMPLE.com")).is_for_another(&asked));
    assert_eq!(hello::read(b"GET / HTTP/1.1\r\n"), Hello::Other);
    assert_eq!(
        hello::read(b"\x16\x03\x01\xff\xffgarbage that goes on"),
        Hello::Malformed
    );
    assert!(Hello::Malformed.is_for_another(&asked));
}

fn flow(kind: FlowKind, host: &str, port: u16) -> Flow {
    Flow {
        kind,
        host: host.to_owned(),
        address: None,
        via: None,
        port,
        rule: None,
        request: None,
        limit: None,
        credentials: Vec::new(),
        login: None,
        policies: 0,
    }
}

#[test]
fn refusal_repeated_is_reported_once_and_counted() {
    let flow = |port: u16| flow(FlowKind::Tunnel, "evil.example", port);
    let mut refusals = Refusals::default();
    assert!(refusals.count(flow(1), "so".to_owned()).is_some());
    assert!(refusals.count(flow(1), "so".to_owned()).is_none());
    assert!(refusals.count(flow(1), "otherwise".to_owned()).is_some());
    for port in 0..5_000 {
        refusals.count(flow(port), "so".to_owned());
    }
    let rest: Vec<FlowReport> = refusals.rest().collect();
    let [
        FlowReport::Refused { count: 3, .. },
        FlowReport::Refused {
            flow: others,
            count,
            ..
        },
    ] = &rest[..]
    else {
        panic!("{rest:?}");
    };
    assert_eq!(others.kind, FlowKind::Tunnel);
    assert_eq!(others.host, "(others)");
    let known = REFUSALS_MAX - 2 + PLACES_MAX;
    assert_eq!(*count, 5_000 - 1 - known as u64);
}

#[test]
fn refusals_of_one_kind_hide_no_other_kind() {
    let mut refusals = Refusals::default();
    let why = || "no rule allows it".to_owned();
    for number in 0..10_000 {
        let host = format!("junk{number}.example");
        refusals.count(flow(FlowKind::Name, &host, 0), why());
    }
    for kind in [FlowKind::Tunnel, FlowKind::Request] {
        let one = flow(kind, "evil.example", 443);
        let told = refusals.count(one.clone(), why());
        let expected = FlowReport::Refused {
            flow: one,
            why: why(),
            count: 1,
        };
        assert_eq!(told, Some(expected));
    }
    let rest: Vec<FlowReport> = refusals.rest().collect();
    let [FlowReport::Refused { flow, count, .. }] = &rest[..] else {
        panic!("{rest:?}");
    };
    assert_eq!(
        (flow.kind, flow.host.as_str()),
        (FlowKind::Name, "(others)")
    );
    assert_eq!(*count, (10_000 - REFUSALS_MAX - PLACES_MAX) as u64);
}

#[test]
fn refusal_of_new_host_is_reported_after_many() {
    let asked = |host: &str, path: usize| Flow {
        request: Some(FlowRequest {
            scheme: Scheme::Https,
            method: "GET".to_owned(),
            path: format!("/{path}"),
            confidence: None,
            redacted: None,
        }),
        ..flow(FlowKind::Request, host, 443)
    };
    let mut refusals = Refusals::default();
    let mut count = |host: &str, path| refusals.count(asked(host, path), "so".to_owned());
    for path in 0..REFUSALS_MAX {
        assert!(count("junk.example", path).is_some());
    }
    // Of further ones it is told where they lead, once.
    for host in ["junk.example", "evil.example"] {
        let Some(FlowReport::Refused {
            flow: told,
            count: 1,
            ..
        }) = count(host, 9_999)
        else {
            panic!("{host} is told of");
        };
        assert_eq!(told, flow(FlowKind::Request, host, 443));
        for path in 10_000..10_004 {
            assert_eq!(count(host, path), None);
        }
    }
    // What is known is counted as before.
    assert_eq!(count("junk.example", 7), None);
    let mut rest: Vec<(String, bool, u64)> = refusals
        .rest()
        .map(|report| match report {
            FlowReport::Refused { flow, count, .. } => (flow.host, flow.request.is_some(), count),
            FlowReport::Open { .. }
            | FlowReport::Closed { .. }
            | FlowReport::Ask { .. }
            | FlowReport::Left { .. }
            | FlowReport::GivesUp { .. }
            | FlowReport::GaveUp { .. }
            | FlowReport::Reloaded { .. }
            | FlowReport::Renew { .. }
            | FlowReport::Label { .. }
            | FlowReport::Command { .. } => {
                panic!("{report:?}")
            }
        })
        .collect();
    rest.sort();
    let expected = [
        ("evil.example".to_owned(), false, 5),
        ("junk.example".to_owned(), false, 5),
        ("junk.example".to_owned(), true, 2),
    ];
    assert_eq!(rest, expected);
}

#[test]
fn refusals_hide_no_credential_misuse() {
    let mut refusals = Refusals::default();
    for path in 0..2 * REFUSALS_MAX {
        let request = FlowRequest {
            scheme: Scheme::Https,
            method: "POST".to_owned(),
            path: format!("/{path}"),
            confidence: None,
            redacted: None,
        };
        let junk = Flow {
            request: Some(request),
            ..flow(FlowKind::Request, "junk.example", 443)
        };
        let _ = refusals.count(junk, "so".to_owned());
    }
    let misuse = Flow {
        credentials: vec!["github".parse().unwrap()],
        ..flow(FlowKind::Request, "junk.example", 443)
    };
    let Some(FlowReport::Refused { flow: told, .. }) = refusals.count(misuse, "so".to_owned())
    else {
        panic!("it is told of");
    };
    assert_eq!(told.credentials.len(), 1);
}

#[test]
fn shown_text_is_cut_between_characters() {
    for (text, expected) in [
        ("", ""),
        ("abcd", "abcd"),
        ("abcde", "abcd…"),
        ("abcä", "abc…"),
        ("ab🜁", "ab…"),
        ("🜁🜁", "🜁…"),
        ("a\u{301}\u{301}", "a\u{301}…"),
    ] {
        assert_eq!(shown(text, 4), expected, "{text:?}");
    }
    assert_eq!(shown("🜁", 3), "…");
}

proptest! {
    #[test]
    fn dns_any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let names = Mutex::default();
        let answered = dns::answer(&bytes, &network(&["example.com"]), &Policies::default().now(), &names);
        if let Some(answer) = answered.answer {
            let answer = Message::from_vec(&answer).unwrap();
            // Nothing but the one name that is allowed is ever answered.
            for query in &answer.queries {
                let is_allowed = query.name.to_ascii().eq_ignore_ascii_case("example.com.");
                prop_assert!(is_allowed || answer.answers.is_empty());
            }
        }
    }

    #[test]
    fn client_hello_any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..512), begins in any::<bool>()) {
        let bytes = if begins { [&[22, 3, 1][..], &bytes].concat() } else { bytes };
        let read = hello::read(&bytes);
        let is_record = matches!(bytes.as_slice(), [22, ..] | [20 | 21 | 23] | [20 | 21 | 23, 3, ..]);
        // An alert of two bytes, of whatever version, may be all that comes before a ClientHello.
        let is_alert = matches!(bytes.as_slice(), [21, _] | [21, _, _] | [21, _, _, 0] | [21, _, _, 0, 2, ..]);
        let is_tls = is_record || is_alert;
        prop_assert_eq!(read == Hello::Other, !is_tls);
    }
}
