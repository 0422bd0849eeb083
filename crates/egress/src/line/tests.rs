//! Whatever a program writes, what becomes of it is told.

use std::os::fd::OwnedFd;

use atoll_model::network::{FlowKind, FlowRequest, Scheme};
use atoll_sys::descriptor;
use proptest::prelude::*;

use super::*;

/// A line, and its other end.
fn line() -> (Line, OwnedFd) {
    let (line, far) = socket::pair().unwrap();
    descriptor::never_block(line.as_fd()).unwrap();
    (Line::new(line).unwrap(), far)
}

/// What is about to be sent: one report, in a message that the other side takes.
fn told(line: &Line) -> FlowReport {
    let text = std::mem::take(&mut lock(&line.unsent).text);
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

/// Texts as long as a program likes, of letters that take up to six times their bytes
/// where they are written.
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
        rule,
        request: request.map(|(method, path)| FlowRequest {
            scheme: Scheme::Https,
            method,
            path,
        }),
    })
}

#[test]
fn the_longest_texts_fit_into_one_message() {
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
        rule: Some(long()),
        request: Some(FlowRequest {
            scheme: Scheme::Https,
            method: long(),
            path: long(),
        }),
    };
    run(async {
        let (line, _far) = line();
        line.refuse(flow.clone(), long());
        told(&line);
        // What differs beyond that is the same.
        line.refuse(flow.clone(), long() + "more");
        assert!(lock(&line.unsent).text.is_empty());
        line.tell_refusals();
        assert!(matches!(told(&line), FlowReport::Refused { count: 2, .. }));
        let opened = line.open(flow, false).await.unwrap();
        told(&line);
        line.close(&opened, Carried::nothing(long()));
        told(&line);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_too_long_to_be_told(flow in flow(), why in text()) {
        run(async {
            let (line, _far) = line();
            line.refuse(flow.clone(), why.clone());
            let FlowReport::Refused { flow: kept, why: shown, count: 1 } = told(&line) else {
                panic!("it was refused");
            };
            let beginning = |whole: &str, kept: &str| {
                whole == kept || kept.strip_suffix('…').is_some_and(|kept| whole.starts_with(kept))
            };
            assert!(beginning(&why, &shown) && beginning(&flow.host, &kept.host));
            let opened = line.open(flow, false).await.unwrap();
            assert!(matches!(told(&line), FlowReport::Open { .. }));
            line.close(&opened, Carried::nothing(why));
            assert!(matches!(told(&line), FlowReport::Closed { .. }));
        });
    }
}
