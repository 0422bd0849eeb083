//! What programs ask a proxy: the messages of SOCKS 5, and the head of CONNECT.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/egress/src/proxy/connect.rs"]
mod connect;
#[allow(dead_code)]
#[path = "../../crates/egress/src/proxy/socks.rs"]
mod socks;
#[path = "../../crates/egress/src/proxy/target.rs"]
mod target;

/// What answers begin with.
mod proxy_reply {
    pub(crate) const SOCKS_VERSION: u8 = 5;
}

use socks::Read;
use target::Target;

fuzz_target!(|bytes: &[u8]| {
    said(socks::greeting, bytes);
    said(socks::password, bytes);
    said(socks::request, bytes);
    if let Read::Whole(Ok(target), _) = socks::request(bytes) {
        one_form(&target);
    }
    let Ok(Some((target, length))) = connect::read(bytes) else {
        return;
    };
    assert!(length <= bytes.len() && length <= connect::HEAD_BYTES_MAX + 3);
    one_form(&target);
    // Nothing that follows changes what is asked for, and nothing is known before its end.
    let head = &bytes[..length];
    assert_eq!(connect::read(head), Ok(Some((target, length))));
    assert_eq!(connect::read(&head[..length - 1]), Ok(None));
    assert!(head.ends_with(b"\r\n\r\n") && !head.contains(&0));
});

/// A message that is whole takes no more than there is, and is the same without what
/// follows; what is none becomes none by more of it.
fn said<T: PartialEq + std::fmt::Debug>(read: impl Fn(&[u8]) -> Read<T>, bytes: &[u8]) {
    match read(bytes) {
        Read::Partial => {}
        Read::Whole(found, length) => {
            assert!(length <= bytes.len());
            assert_eq!(read(&bytes[..length]), Read::Whole(found, length));
        }
        Read::Malformed => {
            let longer = [bytes, &[0, 1]].concat();
            assert_eq!(read(&longer), Read::Malformed);
        }
    }
}

/// A host that was read is written in one form, which is read as the same.
fn one_form(target: &Target) {
    assert_ne!(target.port, 0);
    let text = target.host.to_string();
    assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
    assert_eq!(text.parse().as_ref(), Ok(&target.host));
    let asked = format!(
        "CONNECT {text}:{0} HTTP/1.1\r\nHost: {text}\r\n\r\n",
        target.port
    );
    assert_eq!(
        connect::read(asked.as_bytes()),
        Ok(Some((target.clone(), asked.len())))
    );
}
