//! Messages between the host, the launcher and the first process: what is read
//! is written back as the same bytes, is bounded, and no other length is read.

#![no_main]

use std::fmt::Debug;

use atoll_frame::{
    ExecSpec, MESSAGE_BYTES_MAX, Malformed, Order, REQUEST_BYTES_MAX, Report, Request,
    SPEC_BYTES_MAX, SandboxSpec,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    one_form(
        bytes,
        SPEC_BYTES_MAX,
        SandboxSpec::from_bytes,
        SandboxSpec::to_bytes,
    );
    one_form(
        bytes,
        SPEC_BYTES_MAX,
        ExecSpec::from_bytes,
        ExecSpec::to_bytes,
    );
    one_form(
        bytes,
        REQUEST_BYTES_MAX,
        Request::from_bytes,
        Request::to_bytes,
    );
    one_form(bytes, 6, Order::from_bytes, |order: &Order| {
        order.to_bytes()
    });
    one_form(
        bytes,
        MESSAGE_BYTES_MAX,
        Report::from_bytes,
        Report::to_bytes,
    );
});

/// A message that is read has one form only. So nothing that is not in the
/// message is in what was read, and its size is bounded by the message's.
fn one_form<T: Debug + PartialEq>(
    bytes: &[u8],
    bytes_max: usize,
    read: impl Fn(&[u8]) -> Result<T, Malformed>,
    write: impl Fn(&T) -> Vec<u8>,
) {
    let Ok(message) = read(bytes) else {
        return;
    };
    assert!(bytes.len() <= bytes_max, "{} bytes were read", bytes.len());
    assert_eq!(write(&message), bytes, "{message:?}");
    assert!(read(&[bytes, &[0]].concat()).is_err(), "a byte more");
    let shorter = bytes.split_last().map(|(_, shorter)| shorter);
    assert!(shorter.is_none_or(|shorter| read(shorter).is_err()));
}
