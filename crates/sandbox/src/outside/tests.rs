//! The side that records, with who carries played by the test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use atoll_model::network::{FlowKind, FlowReport};

use super::*;

fn message(id: u64) -> Vec<u8> {
    let flow = Flow {
        credentials: Vec::new(),
        login: None,
        kind: FlowKind::Tunnel,
        host: "example.com".to_owned(),
        address: None,
        via: None,
        port: 443,
        rule: None,
        request: None,
        limit: None,
    };
    let waits = true;
    let report = FlowReport::Open {
        id,
        flow,
        waits,
        approval: None,
    };
    serde_json::to_vec(&report).unwrap()
}

/// Tells of one connection where so much is still left to tell, bytes: how much that takes,
/// whether it was recorded and let go on, and why nothing more is carried, if nothing is.
fn told_with(left: u64) -> (u64, usize, bool, Option<String>) {
    let (line, far) = socket::pair().unwrap();
    descriptor::never_block(line.as_fd()).unwrap();
    // Who carries is a process, which is ended.
    let mut carrier = Command::new("sleep")
        .arg("600")
        .process_group(0)
        .spawn()
        .unwrap();
    let network = Network::default();
    let issuer = || Ok(None);
    let mut recorded = 0;
    let mut record = |news: &[FlowNews<'_>]| {
        let opened = news
            .iter()
            .filter(|one| matches!(one, FlowNews::Opened { .. }));
        recorded += opened.count();
        true
    };
    let mut outside = Outside::new(&network, &issuer, &mut record);
    let pid = carrier.id();
    outside.state = State::Carrying {
        line,
        pid,
        signer: None,
    };
    outside.told_bytes = TOLD_BYTES_MAX - left;
    let message = message(1);
    socket::send(far.as_fd(), &message, &[]).unwrap();
    // Hears what it is told, and ends then.
    let orders = thread::spawn(move || {
        let (mut orders, mut order) = (Vec::new(), [0; 256]);
        while orders.len() < 2
            && let Ok((got @ 1.., _)) = socket::receive(far.as_fd(), &mut order)
        {
            orders.push(String::from_utf8_lossy(&order[..got]).into_owned());
        }
        orders
    });
    assert!(outside.attend(), "it was recorded");
    let carries = !outside.waits_on().is_empty();
    let failure = outside.finish().failure;
    let orders = orders.join().unwrap();
    let recorded_now = [FlowOrder::Recorded { id: 1 }, FlowOrder::End];
    let expected = recorded_now.map(|order| serde_json::to_string(&order).unwrap());
    assert_eq!(orders, expected, "what is recorded goes on, until the end");
    // It has been waited for already where it was ended.
    let _ = carrier.wait();
    (message.len() as u64, recorded, carries, failure)
}

#[test]
fn nothing_is_carried_once_the_records_have_filled_what_a_run_has() {
    // The control: with room for it all, more can come.
    let (bytes, recorded, carries, failure) = told_with(1 << 20);
    assert_eq!((recorded, carries, failure), (1, true, None));
    let (_, recorded, carries, failure) = told_with(bytes);
    assert_eq!((recorded, carries, failure), (1, true, None), "just full");
    let (_, recorded, carries, failure) = told_with(bytes - 1);
    assert_eq!((recorded, carries), (1, false), "and beyond");
    let said = "their records have filled the 1024 MiB that a run has";
    assert_eq!(failure.as_deref(), Some(said));
}
