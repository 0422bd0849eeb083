#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use atoll_model::network::within;
use atoll_store::{Delivery, LifecycleEvent};
use sha2::{Digest, Sha256};

use super::delivery::{e2b_signature, signature};
use super::target::{NotAllowed, Target, check_public};
use super::{Sender, kinds};
use crate::configuration::{Configuration, WebhookHost};
use crate::worker::shares::{Of, Share, Shares};

fn share() -> Arc<Share> {
    let taken = Shares::new().take(Of::Deliveries, "tenant", 1);
    Arc::new(taken.unwrap())
}

fn named(hosts: &[&str]) -> Vec<WebhookHost> {
    let text = format!("webhooks = {hosts:?}");
    Configuration::parse(&text).unwrap().webhooks
}

fn addresses(url: &str, hosts: &[&str]) -> Result<Vec<SocketAddr>, NotAllowed> {
    let target = Target::parse(url).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(target.addresses(&named(hosts), &share()))
}

#[test]
fn webhooks_url_is_parsed_strictly() {
    for (url, expected) in [
        ("https://h.example", Some(("h.example", 443, "/"))),
        ("https://H.example./", Some(("h.example", 443, "/"))),
        (
            "https://h.example:8443/a?b=@c",
            Some(("h.example", 8443, "/a?b=@c")),
        ),
        ("https://h.example?b", Some(("h.example", 443, "/?b"))),
        ("http://127.0.0.1:8000/x", Some(("127.0.0.1", 8000, "/x"))),
        (
            "https://[2606:4700::1]/",
            Some(("[2606:4700::1]", 443, "/")),
        ),
        ("https://[::ffff:127.0.0.1]/", Some(("127.0.0.1", 443, "/"))),
        ("https://user@h.example/", None),
        ("https://h.example@127.0.0.1/", None),
        ("https://h.example/#x", None),
        ("https://h.example\\@127.0.0.1/", None),
        ("https://h.example/ä", None),
        ("https://h.example/a b", None),
        ("https://h.example/\r\nx: y", None),
        ("https://h.example:0/", None),
        ("https://h.example:+443/", None),
        ("https://h.example:65536/", None),
        ("https://h.example:/", None),
        ("https:///x", None),
        ("https://2130706433/", None),
        ("https://0x7f.1/", None),
        ("https://0x7f000001/", None),
        ("https://127.1/", None),
        ("https://0177.0.0.1/", None),
        ("https://[::1", None),
        ("https://::1/", None),
        ("https://[fe80::1%25eth0]/", None),
        ("ftp://h.example/", None),
        ("HTTPS://h.example/", None),
        ("h.example", None),
    ] {
        let found = Target::parse(url).ok();
        let found = found.map(|one| (one.host.to_string(), one.port, one.path));
        let expected = expected.map(|(host, port, path)| (host.to_owned(), port, path.to_owned()));
        assert_eq!(found, expected, "{url}");
    }
    assert!(Target::parse(&format!("https://h.example/{}", "a".repeat(2048))).is_err());
}

#[test]
fn webhooks_to_addresses_that_are_not_public_are_refused() {
    for address in [
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "127.8.8.8",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "192.0.2.1",
        "192.168.1.1",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:10.0.0.1]",
        "[64:ff9b::a00:1]",
        "[64:ff9b::808:808]",
        "[64:ff9b:1::a00:1]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[2001:0:7f00:1::]",
        "[2002:7f00:1::]",
    ] {
        let found = addresses(&format!("https://{address}:8443/"), &[]);
        assert!(
            matches!(found, Err(NotAllowed::Special(_))),
            "{address} {found:?}"
        );
    }
    // A name is resolved, and each of its addresses looked at.
    for name in ["localhost", "LOCALHOST."] {
        let found = addresses(&format!("https://{name}:8443/"), &[]);
        assert!(found.is_err(), "{name} {found:?}");
    }
    let public = "8.8.8.8:443".parse().unwrap();
    assert_eq!(addresses("https://8.8.8.8/", &[]), Ok(vec![public]));
    assert!(within("::ffff:8.8.8.8".parse().unwrap()).next().is_some());
    assert!(check_public("::ffff:8.8.8.8".parse().unwrap()).is_err());
    assert_eq!(addresses("http://8.8.8.8/", &[]), Err(NotAllowed::Clear));
    assert_eq!(addresses("https://8.8.8.8:22/", &[]), Err(NotAllowed::Port));
    assert_eq!(addresses("https://8.8.8.8:80/", &[]), Err(NotAllowed::Port));
    assert!(addresses("https://8.8.8.8:1024/", &[]).is_ok());
}

#[test]
fn webhooks_to_named_hosts_are_allowed_as_named() {
    let hosts = ["127.0.0.1:8000", "10.0.0.1", "[::1]:9"];
    for (url, is_allowed) in [
        ("http://127.0.0.1:8000/x", true),
        ("https://127.0.0.1:8000/x", true),
        ("http://[::ffff:127.0.0.1]:8000/", true),
        ("http://127.0.0.1:8001/", false),
        ("http://127.0.0.1/", false),
        ("https://localhost:8000/", false),
        ("http://10.0.0.1/", true),
        ("https://10.0.0.1:22/", true),
        ("http://10.0.0.2/", false),
        ("http://[::1]:9/", true),
        ("http://[::1]:8000/", false),
    ] {
        assert_eq!(addresses(url, &hosts).is_ok(), is_allowed, "{url}");
    }
    for wrong in [
        "a b",
        "h:0",
        "h:x",
        "https://h",
        "h/",
        "2130706433",
        "::1",
        "*",
    ] {
        let text = format!("webhooks = [{wrong:?}]");
        assert!(Configuration::parse(&text).is_err(), "{wrong}");
    }
}

/// HMAC (RFC 2104), by hand.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    match key.len() > 64 {
        true => block[..32].copy_from_slice(&Sha256::digest(key)),
        false => block[..key.len()].copy_from_slice(key),
    }
    let inner = block.map(|byte| byte ^ 0x36);
    let outer = block.map(|byte| byte ^ 0x5c);
    let inner = Sha256::digest([&inner[..], text].concat());
    Sha256::digest([&outer[..], &inner[..]].concat()).to_vec()
}

#[test]
fn webhooks_signatures_are_those_of_the_documents() {
    for secret in ["a secret of 16 b", &"long".repeat(50)] {
        let body = "{\"a\":\"ü\"}";
        let expected = hmac(secret.as_bytes(), format!("1754513964.{body}").as_bytes());
        let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            signature(secret, 1_754_513_964, body),
            format!("v1={expected}")
        );
    }
    // By hashlib and base64 of Python.
    assert_eq!(
        e2b_signature("a secret of 16 b", "{}"),
        "nh3boKIbT/CVSA8lxxdlaQ+xFfgoTo9d5nN4YauINOs"
    );
    assert_eq!(
        signature("a secret of 16 b", 1_754_513_964, "{}"),
        "v1=5d89fe7a7d97573d6288f0eb3e9b7b089509e7f514885c9f50bea5b1c01c1202"
    );
}

#[test]
fn webhooks_events_are_known_types() {
    let of = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        kinds(&names).ok()
    };
    let twice = ["sandbox.lifecycle.created", "sandbox.lifecycle.created"];
    assert_eq!(of(&twice), Some(vec!["created".to_owned()]));
    assert_eq!(of(&[]), None);
    assert_eq!(of(&["created"]), None);
    assert_eq!(of(&["sandbox.lifecycle.created", "x"]), None);
}

/// Sends a delivery to a receiver that answers so; returns what `send` does, and what came.
fn delivered(answer: &'static str) -> (Result<u16, String>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut came = Vec::new();
        // To the end of the body.
        while !came.ends_with(b"}") {
            let mut part = [0; 4096];
            let count = stream.read(&mut part).unwrap();
            assert!(count > 0);
            came.extend_from_slice(&part[..count]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(came).unwrap()
    });
    let one = Delivery {
        number: 1,
        id: "delivery".to_owned(),
        attempts: 0,
        next_ms: 0,
        webhook: "hook".to_owned(),
        tenant: "team".to_owned(),
        url: format!("http://127.0.0.1:{port}/a?b"),
        secret: "a secret of 16 b".to_owned(),
        event: LifecycleEvent {
            id: "event".to_owned(),
            sandbox: "i1".to_owned(),
            kind: "killed".to_owned(),
            at_ms: 5,
            facts: "{\"why\": \"last\"}".to_owned(),
            first_facts: Some("{\"why\": \"first\", \"template\": \"base\"}".to_owned()),
        },
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let webhooks = Sender::new(&named(&[&format!("127.0.0.1:{port}")]));
    let sent = runtime.block_on(webhooks.send(one.clone(), &share()));
    // Nothing is sent to what is not named any more.
    let none = Sender::new(&[]);
    let refused = runtime.block_on(none.send(one, &share()));
    assert!(refused.unwrap_err().contains("http://"));
    (sent, receiver.join().unwrap())
}

#[test]
fn webhooks_delivery_is_signed_as_it_is_sent() {
    let (sent, came) = delivered("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(sent, Ok(204));
    let (head, body) = came.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /a?b HTTP/1.1\r\n"), "{head}");
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(own, _)| *own == name).unwrap().1
    };
    assert_eq!(field("e2b-webhook-id"), "hook");
    assert_eq!(field("e2b-delivery-id"), "delivery");
    assert_eq!(field("content-length"), body.len().to_string());
    let secret = "a secret of 16 b";
    assert_eq!(field("e2b-signature"), e2b_signature(secret, body));
    let at = field("atoll-timestamp").parse().unwrap();
    assert_eq!(field("atoll-signature"), signature(secret, at, body));
    let told: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(told["eventData"]["why"], "last");
    assert_eq!(told["sandboxTemplateId"], "base");
    assert_eq!(told["sandboxTeamId"], "team");
}

#[test]
fn webhooks_redirect_is_an_answer_like_any_other() {
    // The body that is announced never comes, and is not waited for.
    let moved = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 9\r\n\r\n";
    assert_eq!(delivered(moved).0, Ok(302));
    assert!(delivered("nonsense\r\n\r\n").0.is_err());
}
