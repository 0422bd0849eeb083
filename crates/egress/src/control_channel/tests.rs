//! Reports about flows, whatever a program writes.

use std::os::fd::OwnedFd;

use atoll_model::network::{FlowKind, FlowRequest, NoConsent, Scheme};
use atoll_sys::descriptor;
use proptest::prelude::*;

use super::*;

/// Returns a control channel, and its other end.
fn channel() -> (ControlChannel, OwnedFd) {
    let (channel, far) = socket::pair().unwrap();
    descriptor::never_block(channel.as_fd()).unwrap();
    (ControlChannel::new(channel).unwrap(), far)
}

/// Returns what is about to be sent: one report, in a message that the other side accepts.
fn told(channel: &ControlChannel) -> FlowReport {
    let text = std::mem::take(&mut lock(&channel.unsent).text);
    assert!(!text.is_empty(), "it is told");
    assert!(text.len() < FLOW_MESSAGE_BYTES_MAX, "{}", text.len());
    serde_json::from_slice(&text).unwrap()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(work)
}

/// Texts as long as a program likes, of characters that take up to six times their bytes once
/// escaped.
fn text() -> impl Strategy<Value = String> {
    let letter = prop::sample::select(vec!['a', '"', '\\', '\u{1}', '\u{7f}', 'ä', '€', '🜁']);
    let length = prop_oneof![
        0..8_usize,
        1000..1050_usize,
        2030..2070_usize,
        0..70_000_usize
    ];
    let shift = prop::collection::vec(any::<char>(), 0..4);
    (shift, letter, length).prop_map(|(shift, letter, length)| {
        let before: String = shift.into_iter().collect();
        before + &letter.to_string().repeat(length)
    })
}

fn flow() -> impl Strategy<Value = Flow> {
    let request = prop::option::of((text(), text()));
    (text(), prop::option::of(text()), request).prop_map(|(host, rule, request)| Flow {
        kind: FlowKind::Request,
        host,
        address: Some([0xffff; 8].into()),
        via: None,
        port: u16::MAX,
        limit: None,
        credentials: Vec::new(),
        login: None,
        policies: 0,
        rule,
        request: request.map(|(method, path)| FlowRequest {
            scheme: Scheme::Https,
            method,
            path,
            confidence: None,
            redacted: None,
        }),
    })
}

#[test]
fn report_longest_texts_fit_one_message() {
    let long = || "\u{1}".repeat(1 << 20);
    let flow = Flow {
        kind: FlowKind::Request,
        host: long(),
        address: Some([0xffff; 8].into()),
        via: None,
        port: u16::MAX,
        limit: None,
        credentials: Vec::new(),
        login: None,
        policies: u32::MAX,
        rule: Some(long()),
        request: Some(FlowRequest {
            scheme: Scheme::Https,
            method: long(),
            path: long(),
            confidence: Some(100),
            redacted: None,
        }),
    };
    run(async {
        let (channel, _far) = channel();
        channel.refuse(flow.clone(), long());
        told(&channel);
        // What differs beyond that is the same.
        channel.refuse(flow.clone(), long() + "more");
        assert!(lock(&channel.unsent).text.is_empty());
        channel.report_refusals();
        assert!(matches!(
            told(&channel),
            FlowReport::Refused { count: 2, .. }
        ));
        let opened = channel.open(flow, false).await.unwrap();
        told(&channel);
        channel.close(&opened, FlowOutcome::nothing(long()));
        told(&channel);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn report_of_any_length_is_sent(flow in flow(), why in text()) {
        run(async {
            let (channel, _far) = channel();
            channel.refuse(flow.clone(), why.clone());
            let FlowReport::Refused { flow: kept, why: shown, count: 1 } = told(&channel) else {
                panic!("it was refused");
            };
            let beginning = |whole: &str, kept: &str| {
                whole == kept || kept.strip_suffix('…').is_some_and(|kept| whole.starts_with(kept))
            };
            assert!(beginning(&why, &shown) && beginning(&flow.host, &kept.host));
            let opened = channel.open(flow, false).await.unwrap();
            assert!(matches!(told(&channel), FlowReport::Open { .. }));
            channel.close(&opened, FlowOutcome::nothing(why));
            assert!(matches!(told(&channel), FlowReport::Closed { .. }));
        });
    }
}

/// A report about a run lowers its reputation here, and nothing else does.
#[test]
fn report_of_refusal_lowers_reputation() {
    run(async {
        let (channel, far) = channel();
        let conduct = Arc::new(Mutex::new(Running::new(100)));
        let channel = channel.with_conduct(Arc::clone(&conduct));
        let points = || lock(&conduct).points();
        let flow = |credentials: Vec<CredentialName>| Flow {
            credentials,
            ..Flow::to(FlowKind::Request, "example.com".to_owned(), 443)
        };
        channel.refuse(flow(Vec::new()), "so".to_owned());
        assert_eq!(points(), 100);
        for _ in 0..2 {
            channel.refuse(flow(vec!["token".parse().unwrap()]), "so".to_owned());
            assert_eq!(points(), 70);
        }
        let digest = CallDigest::new([0; 32]);
        let denied = |why: NoConsent| FlowOrder::Said {
            id: 1,
            digest,
            consent: Consent::Denied { why },
        };
        for (order, expected) in [
            (denied(NoConsent::Late), 70),
            (denied(NoConsent::Person), 65),
            (FlowOrder::Attempted {}, 35),
            (FlowOrder::Attempted {}, 35),
        ] {
            let said = serde_json::to_vec(&order).unwrap();
            socket::send(far.as_fd(), &said, &[]).unwrap();
            let end = serde_json::to_vec(&FlowOrder::End).unwrap();
            socket::send(far.as_fd(), &end, &[]).unwrap();
            channel
                .receive_orders(|_, _| (), |_| (), |_, _| true, |_| true)
                .await;
            assert_eq!(points(), expected, "{order:?}");
        }
    });
}

/// A policy file that is lost on its way does not count as none.
#[test]
fn reload_and_its_file_must_come_together() {
    run(async {
        for (has_policies, files, is_taken) in [
            (true, 0, false),
            (false, 1, false),
            (true, 1, true),
            (false, 0, true),
        ] {
            let (channel, far) = channel();
            let files: Vec<OwnedFd> = (0..files)
                .map(|_| descriptor::sealed_memory(c"policies", b"").unwrap())
                .collect();
            let order = FlowOrder::Reload {
                policies: 1,
                has_policies,
            };
            let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            let order = serde_json::to_vec(&order).unwrap();
            socket::send(far.as_fd(), &order, &borrowed).unwrap();
            let end = serde_json::to_vec(&FlowOrder::End).unwrap();
            socket::send(far.as_fd(), &end, &[]).unwrap();
            let taken = Mutex::new(None);
            let reload = |version, file: Option<OwnedFd>| {
                *lock(&taken) = Some((version, file.is_some()));
                true
            };
            channel
                .receive_orders(|_, _| (), |_| (), reload, |_| true)
                .await;
            let expected = is_taken.then_some((1, has_policies));
            assert_eq!(*lock(&taken), expected, "{has_policies} {}", files.len());
        }
    });
}
