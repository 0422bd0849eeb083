//! Questions for names, as a program sends them to any name server.

#![no_main]

use std::net::IpAddr;
use std::sync::Mutex;

use atoll_model::network::{Conditions, HostName, Network, NetworkRule, Way};
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::RData;
use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/egress/src/dns.rs"]
mod dns;
#[allow(dead_code)]
#[path = "../../crates/egress/src/names.rs"]
mod names;
#[allow(dead_code)]
#[path = "../../crates/egress/src/refusals.rs"]
mod refusals;
/// What the names begin with.
mod proxy {
    pub(crate) const NAME: &str = "proxy.atoll.internal";

    pub(crate) fn is_name(name: &atoll_model::network::HostName) -> bool {
        name.as_str() == NAME
    }
}

const ALLOWED: [&str; 3] = ["example.com", "*.example.org:22", "a.example"];

fuzz_target!(|bytes: &[u8]| {
    let rule = |text: &str| NetworkRule {
        to: text.parse().unwrap(),
        way: Way::Usual,
        requests: Conditions::default(),
        origin: "here".to_owned(),
    };
    let network = Network {
        allow: ALLOWED.into_iter().map(rule).collect(),
        ..Network::default()
    };
    let known = Mutex::new(names::Names::default());
    let dns::Answered { answer, refused } = dns::answer(bytes, &network, &known);
    let Some(answer) = answer else {
        assert!(refused.is_none());
        return;
    };
    let answer = Message::from_vec(&answer).unwrap();
    assert_eq!(answer.metadata.message_type, MessageType::Response);
    assert_eq!(answer.metadata.id.to_be_bytes(), bytes[..2]);
    assert_eq!(
        refused.is_some(),
        answer.metadata.response_code == ResponseCode::Refused
    );
    assert!(answer.answers.len() <= 1);
    for record in &answer.answers {
        let address: IpAddr = match &record.data {
            RData::A(four) => four.0.into(),
            RData::AAAA(six) => six.0.into(),
            other => panic!("{other}"),
        };
        // What it stands for is the name that was asked for, which a rule allows.
        let known = known.lock().unwrap();
        let name = known.name(address).unwrap();
        let asked = record.name.to_ascii().to_ascii_lowercase();
        assert_eq!(asked.trim_end_matches('.'), name.as_str());
        let beneath = HostName::parse("example.org").unwrap();
        let is_allowed = ["example.com", "a.example"].contains(&name.as_str());
        let is_proxy = name.as_str() == proxy::NAME;
        assert!(
            is_allowed || is_proxy || name.is_beneath(&beneath),
            "{name}"
        );
    }
});
