//! Programs' requests to the proxy, as bytes.

use atoll_model::network::HostPart;
use proptest::prelude::*;

use super::connect;
use super::socks::{self, Method, Read, UnsupportedReply};
use super::target::Target;

fn target(host: &str, port: u16) -> Target {
    let host: HostPart = host.parse().unwrap();
    Target { host, port }
}

#[test]
fn connect_request_is_parsed_strictly() {
    let long = format!(
        "CONNECT a.example:1 HTTP/1.1\r\nx: {}\r\n\r\n",
        "y".repeat(connect::HEAD_BYTES_MAX)
    );
    for (line, fields, expected) in [
        (
            "CONNECT example.com:443 HTTP/1.1",
            "",
            Some(("example.com", 443)),
        ),
        (
            "CONNECT EXAMPLE.com.:22 HTTP/1.0",
            "",
            Some(("example.com", 22)),
        ),
        (
            "CONNECT 192.0.2.1:65535 HTTP/1.1",
            "",
            Some(("192.0.2.1", 65535)),
        ),
        (
            "CONNECT [2001:db8::1]:443 HTTP/1.1",
            "",
            Some(("[2001:db8::1]", 443)),
        ),
        (
            "CONNECT [::ffff:10.0.0.1]:443 HTTP/1.1",
            "",
            Some(("10.0.0.1", 443)),
        ),
        (
            "CONNECT a.example:443 HTTP/1.1",
            "Host: a.example:443\r\nProxy-Connection: keep-alive\r\n",
            Some(("a.example", 443)),
        ),
        (
            "CONNECT a.example:443 HTTP/1.1",
            "host:\ta.EXAMPLE \r\nContent-Length: 0\r\n",
            Some(("a.example", 443)),
        ),
        (
            "CONNECT a.example:443 HTTP/1.1",
            "Host: b.example:443\r\n",
            None,
        ),
        (
            "CONNECT a.example:443 HTTP/1.1",
            "Host: a.example:80\r\n",
            None,
        ),
        (
            "CONNECT a.example:443 HTTP/1.1",
            "Host: a.example\r\nHost: a.example\r\n",
            None,
        ),
        (
            "CONNECT a.example:443 HTTP/1.1",
            "Content-Length: 1\r\n",
            None,
        ),
        (
            "CONNECT a.example:443 HTTP/1.1",
            "Transfer-Encoding: chunked\r\n",
            None,
        ),
        ("CONNECT a.example:443 HTTP/1.1", " folded: x\r\n", None),
        (
            "CONNECT a.example:443 HTTP/1.1",
            "Host : a.example\r\n",
            None,
        ),
        ("CONNECT a.example:443 HTTP/1.1", "x\r\n", None),
        (
            "CONNECT a.example:443 HTTP/1.1",
            "x: a\nHost: b.example\r\n",
            None,
        ),
        ("CONNECT a.example:443 HTTP/1.1", "x: a\0b\r\n", None),
        ("CONNECT  a.example:443 HTTP/1.1", "", None),
        ("CONNECT a.example:443  HTTP/1.1", "", None),
        ("CONNECT a.example:443 HTTP/2.0", "", None),
        ("CONNECT a.example:443", "", None),
        ("connect a.example:443 HTTP/1.1", "", None),
        ("CONNECT a.example HTTP/1.1", "", None),
        ("CONNECT a.example:0 HTTP/1.1", "", None),
        ("CONNECT a.example:0443 HTTP/1.1", "", None),
        ("CONNECT a.example:+443 HTTP/1.1", "", None),
        ("CONNECT a.example:65536 HTTP/1.1", "", None),
        ("CONNECT a.example:443:443 HTTP/1.1", "", None),
        ("CONNECT user@a.example:443 HTTP/1.1", "", None),
        ("CONNECT http://a.example:443 HTTP/1.1", "", None),
        ("CONNECT a.example%00.b:443 HTTP/1.1", "", None),
        ("CONNECT 127.1:443 HTTP/1.1", "", None),
        ("CONNECT 0x7f000001:443 HTTP/1.1", "", None),
        ("CONNECT 2001:db8::1:443 HTTP/1.1", "", None),
        ("CONNECT [fe80::1%25lo]:443 HTTP/1.1", "", None),
        ("CONNECT :443 HTTP/1.1", "", None),
    ] {
        let head = format!("{line}\r\n{fields}\r\n");
        let text = format!("{head}rest");
        let expected = expected.map(|(host, port)| (target(host, port), head.len()));
        let read = connect::read(text.as_bytes());
        assert_eq!(read.ok().flatten(), expected, "{text:?}");
        // Nothing is known before the head is whole.
        let partial = connect::read(&head.as_bytes()[..head.len() - 1]);
        assert_eq!(partial, Ok(None), "{head:?}");
    }
    assert!(connect::read(long.as_bytes()).is_err());
    assert!(connect::read(&long.as_bytes()[..connect::HEAD_BYTES_MAX + 1]).is_err());
    assert!(connect::read(b"CONNECT \xff:1 HTTP/1.1\r\n\r\n").is_err());
}

#[test]
fn socks_greeting_is_parsed() {
    let whole = |method: Option<Method>, length| Read::Whole(method, length);
    for (bytes, expected) in [
        (&b""[..], Read::Partial),
        (b"\x05", Read::Partial),
        (b"\x05\x02\x00", Read::Partial),
        (b"\x05\x01\x00rest", whole(Some(Method::Nothing), 3)),
        (b"\x05\x02\x02\x00", whole(Some(Method::Nothing), 4)),
        (b"\x05\x02\x01\x02", whole(Some(Method::Password), 4)),
        (b"\x05\x01\x01", whole(None, 3)),
        (b"\x05\x00", Read::Malformed),
        (b"\x04\x01\x00\x50", Read::Malformed),
        (b"GET / HTTP/1.1", Read::Malformed),
    ] {
        assert_eq!(socks::greeting(bytes), expected, "{bytes:?}");
    }
    for (bytes, expected) in [
        (&b""[..], Read::Partial),
        (b"\x01\x01", Read::Partial),
        (b"\x01\x01a", Read::Partial),
        (b"\x01\x01a\x02b", Read::Partial),
        (b"\x01\x01a\x02bcrest", Read::Whole((), 6)),
        (b"\x01\x00\x00", Read::Whole((), 3)),
        (b"\x05\x01", Read::Malformed),
    ] {
        assert_eq!(socks::password(bytes), expected, "{bytes:?}");
    }
}

fn name(text: &[u8], port: u16) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap();
    [&[5, 1, 0, 3, length][..], text, &port.to_be_bytes()].concat()
}

#[test]
fn socks_host_has_one_form() {
    let found = |host: &str, port, length| Read::Whole(Ok(target(host, port)), length);
    let six = [
        &[5, 1, 0, 4][..],
        &[0x20, 1, 0xd, 0xb8],
        &[0; 11],
        &[1, 0, 80],
    ]
    .concat();
    let mapped = [
        &[5, 1, 0, 4][..],
        &[0; 10],
        &[0xff, 0xff, 10, 0, 0, 1, 0, 80],
    ]
    .concat();
    for (bytes, expected) in [
        (b"".to_vec(), Read::Partial),
        (b"\x05\x01\x00".to_vec(), Read::Partial),
        (
            b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00".to_vec(),
            Read::Partial,
        ),
        (
            b"\x05\x01\x00\x01\xc0\x00\x02\x01\x01\xbbrest".to_vec(),
            found("192.0.2.1", 443, 10),
        ),
        (six, found("[2001:db8::1]", 80, 22)),
        (mapped, found("10.0.0.1", 80, 22)),
        (name(b"Example.COM.", 80), found("example.com", 80, 19)),
        (name(b"192.0.2.1", 80), found("192.0.2.1", 80, 16)),
        (name(b"2001:db8::1", 80), found("[2001:db8::1]", 80, 18)),
        (
            name(b"evil\0.example.com", 80),
            Read::Whole(Err(UnsupportedReply::Host), 24),
        ),
        (
            name(b"a\r\nb.example", 80),
            Read::Whole(Err(UnsupportedReply::Host), 19),
        ),
        (
            name(b"a%2e.example", 80),
            Read::Whole(Err(UnsupportedReply::Host), 19),
        ),
        (
            name(b"127.1", 80),
            Read::Whole(Err(UnsupportedReply::Host), 12),
        ),
        (
            name(b"0177.0.0.1", 80),
            Read::Whole(Err(UnsupportedReply::Host), 17),
        ),
        (name(b"", 80), Read::Whole(Err(UnsupportedReply::Host), 7)),
        (
            name(b"\xff.example", 80),
            Read::Whole(Err(UnsupportedReply::Host), 16),
        ),
        (
            name(b"example.com", 0),
            Read::Whole(Err(UnsupportedReply::Host), 18),
        ),
        (
            b"\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50".to_vec(),
            Read::Whole(Err(UnsupportedReply::Command), 10),
        ),
        (
            b"\x05\x01\x00\x02ab".to_vec(),
            Read::Whole(Err(UnsupportedReply::Kind), 6),
        ),
        (
            b"\x05\x01\x01\x01\x7f\x00\x00\x01\x00\x50".to_vec(),
            Read::Malformed,
        ),
        (b"\x04\x01\x00\x50".to_vec(), Read::Malformed),
    ] {
        assert_eq!(socks::request(&bytes), expected, "{bytes:?}");
    }
}

/// Checks that bytes after a message change nothing of it, and that no message is found before it
/// is complete.
fn holds<T: Clone + PartialEq + std::fmt::Debug>(read: impl Fn(&[u8]) -> Read<T>, bytes: &[u8]) {
    match read(bytes) {
        Read::Whole(_, length) => {
            assert!(length <= bytes.len());
            for shorter in 0..length {
                let read = read(&bytes[..shorter]);
                assert!(!matches!(read, Read::Malformed), "{bytes:?}");
            }
        }
        Read::Partial => {}
        Read::Malformed => {
            let longer = [bytes, b"\0\x01more"].concat();
            assert_eq!(read(&longer), Read::Malformed, "{bytes:?}");
        }
    }
}

proptest! {
    #[test]
    fn socks_any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        holds(socks::greeting, &bytes);
        holds(socks::password, &bytes);
        holds(socks::request, &bytes);
    }

    #[test]
    fn connect_any_bytes_are_one_host_or_none(
        line in "(CONNECT )?[a-z0-9.:\\[\\]@%/ -]{0,40}( HTTP/1.1)?",
        fields in "(([A-Za-z-]{1,8}|Host|Content-Length): ?[ -~]{0,20}\r\n){0,4}",
    ) {
        let text = format!("{line}\r\n{fields}\r\n");
        if let Ok(Some((target, length))) = connect::read(text.as_bytes()) {
            prop_assert_eq!(length, text.len());
            // What is read is what is written, in its one form.
            let again = format!("CONNECT {}:{} HTTP/1.1\r\n\r\n", target.host, target.port);
            let read = connect::read(again.as_bytes());
            prop_assert_eq!(read, Ok(Some((target, again.len()))));
        }
    }

    #[test]
    fn proxy_names_and_ports_round_trip(
        labels in prop::collection::vec("[a-z][a-z0-9]{0,9}", 1..5),
        port in 1_u16..,
    ) {
        let host = labels.join(".");
        let expected = target(&host, port);
        let asked = name(host.as_bytes(), port);
        let read = socks::request(&asked);
        prop_assert_eq!(read, Read::Whole(Ok(expected.clone()), asked.len()));
        let asked = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
        let read = connect::read(asked.as_bytes());
        prop_assert_eq!(read, Ok(Some((expected, asked.len()))));
    }
}
