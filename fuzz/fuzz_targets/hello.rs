//! The first bytes of a connection, which may be TLS for somebody.

#![no_main]

use atoll_model::network::HostName;
use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/egress/src/hello.rs"]
mod hello;

use hello::Hello;

fuzz_target!(|bytes: &[u8]| {
    let whole = hello::read(bytes);
    // What is known stays so whatever follows, and was not known as something else before.
    for length in [0, 1, 5, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        match hello::read(&bytes[..length.min(bytes.len())]) {
            Hello::Partial => {}
            Hello::Other => assert!(length == 0 || whole == Hello::Other),
            known => assert_eq!(known, whole),
        }
    }
    if let Hello::Tls(name) = &whole {
        let end = hello::end(bytes).unwrap();
        assert!(end <= bytes.len());
        assert_eq!(hello::read(&bytes[..end]), whole);
        if let Some(name) = name {
            // It lies in the bytes as it was read, and is for nobody else.
            let written = |part: &[u8]| part.eq_ignore_ascii_case(name.as_bytes());
            let unframed: Vec<u8> = bytes.to_vec();
            let lies_there = unframed.windows(name.len()).any(written);
            let is_cut = bytes.len() > 5 && {
                let first = usize::from(u16::from_be_bytes([bytes[3], bytes[4]]));
                first + 5 < end
            };
            assert!(lies_there || is_cut);
            let other = HostName::parse("other.example").unwrap();
            let is_other = HostName::parse(name).as_ref() == Ok(&other);
            assert_eq!(whole.is_for_another(&other), !is_other);
        }
    }
    let _ = hello::asks_again(bytes);
    if let Some(length) = hello::passes_over(bytes) {
        assert!(length <= bytes.len());
    }
});
