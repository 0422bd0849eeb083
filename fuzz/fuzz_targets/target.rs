//! Hosts and targets of requests: what is judged is what everybody else reads.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use atoll_model::network::{Destination, HostName, HostPart, Target};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(host) = text.parse::<HostPart>() {
        let written = host.to_string();
        assert_eq!(written.parse().as_ref(), Ok(&host));
        // The C library takes many texts for addresses; none of them is a name here.
        match (c_address(text), &host) {
            (Some(read), HostPart::Address(address)) => assert_eq!(IpAddr::V4(read), *address),
            (Some(read), HostPart::Name(name)) => panic!("{name} is {read}"),
            (None, _) => {}
        }
    }
    if let Ok(name) = HostName::parse(text) {
        assert!(c_address(name.as_str()).is_none(), "{name}");
        assert!(
            text.trim_end_matches('.')
                .eq_ignore_ascii_case(name.as_str())
        );
    }
    if let Ok(destination) = text.parse::<Destination>() {
        let written = destination.to_string();
        assert_eq!(written.parse().as_ref(), Ok(&destination), "{written}");
    }
    if let Ok(target) = Target::parse(text) {
        assert_eq!(target.as_written(), text);
        let path = target.path();
        assert!(
            path.bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'#')
        );
        if target.unclear().is_none() && path.starts_with('/') {
            // A normal form is its own, and nobody goes up in it.
            let again = Target::parse(path).unwrap();
            assert_eq!((again.path(), again.unclear()), (path, None));
            assert!(!path.split('/').any(|part| part == "." || part == ".."));
            assert!(!path.contains("//") && !path.contains('\\'));
        }
    }
});

/// What inet_aton(3) reads: `127.1`, `0x7f.1`, `017700000001` are addresses to it. Up to four
/// numbers, decimal, octal or hexadecimal; the last one fills what is left.
fn c_address(text: &str) -> Option<Ipv4Addr> {
    let number = |part: &str| {
        let hexadecimal = part.strip_prefix("0x").or_else(|| part.strip_prefix("0X"));
        let (digits, radix) = match (hexadecimal, part.strip_prefix('0')) {
            (Some(digits), _) => (digits, 16),
            (None, Some(digits)) if !digits.is_empty() => (digits, 8),
            (None, _) => (part, 10),
        };
        let are_digits = digits.bytes().all(|digit| digit.is_ascii_alphanumeric());
        let read = u32::from_str_radix(digits, radix);
        read.ok().filter(|_| are_digits)
    };
    let parts: Vec<u32> = text
        .trim_end_matches('.')
        .split('.')
        .map(number)
        .collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    let left = 4usize.checked_sub(first.len())?;
    let fits = left > 0 && u64::from(*last) < 1 << (8 * left);
    let are_bytes = first.iter().all(|one| *one < 256);
    let high = first
        .iter()
        .fold(0_u64, |sum, one| sum << 8 | u64::from(*one));
    let bits = high << (8 * left) | u64::from(*last);
    (fits && are_bytes).then(|| Ipv4Addr::from_bits(bits as u32))
}
