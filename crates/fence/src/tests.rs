#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod outside;
mod races;
#[path = "../../layer/src/tests/racing.rs"]
mod racing;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;

use atoll_sys::judging::Answer;
use rustix::net::sockopt::socket_cookie;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::Places;
use crate::address::{Address, on_loopback, parse};
use crate::caller::{Caller, is_beneath, whereabouts};
use crate::listeners::{internet_listeners, parse_internet, parse_unix, unix_listeners};
use crate::sockets::{Own, connect, listen};

fn thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

#[test]
fn addresses_are_read_as_the_kernel_reads_them() {
    let internet = |text: &str| Some(Address::Internet(text.parse().unwrap()));
    let v4 = |port: [u8; 2], ip: [u8; 4]| [&[2, 0][..], &port, &ip, &[0; 8]].concat();
    let v6 = |port: [u8; 2], ip: [u8; 16]| [&[10, 0][..], &port, &[0; 4], &ip, &[0; 4]].concat();
    let unix = |rest: &[u8]| [&[1, 0][..], rest].concat();
    let cases: &[(Vec<u8>, Option<Address>)] = &[
        (v4([0x1f, 0x90], [127, 0, 0, 1]), internet("127.0.0.1:8080")),
        (v6([0, 80], [0; 16]), internet("[::]:80")),
        (unix(b"/a/b\0rest"), Some(Address::Path(b"/a/b".to_vec()))),
        (unix(b"/a/b"), Some(Address::Path(b"/a/b".to_vec()))),
        (
            unix(b"\0name\0x"),
            Some(Address::Abstract(b"\0name\0x".to_vec())),
        ),
        (unix(b""), Some(Address::Unnamed)),
        // Too short, of another family, without one.
        (v4([0, 80], [1, 2, 3, 4])[..7].to_vec(), None),
        (v6([0, 80], [1; 16])[..20].to_vec(), None),
        (vec![16, 0, 0, 0], None),
        (vec![0, 0, 0, 80, 127, 0, 0, 1], None),
        (vec![2], None),
        (Vec::new(), None),
    ];
    for (bytes, expected) in cases {
        assert_eq!(&parse(bytes), expected, "{bytes:?}");
    }
}

#[test]
fn only_the_loopback_is_within() {
    let cases = [
        ("127.0.0.1:80", Some("127.0.0.1:80")),
        ("127.8.9.1:80", Some("127.8.9.1:80")),
        ("0.0.0.0:80", Some("127.0.0.1:80")),
        ("[::1]:80", Some("[::1]:80")),
        ("[::]:80", Some("[::1]:80")),
        ("[::ffff:127.0.0.1]:80", Some("[::ffff:127.0.0.1]:80")),
        ("[::ffff:10.0.0.1]:80", None),
        ("[::ffff:0.0.0.0]:80", None),
        ("10.0.0.1:80", None),
        ("128.0.0.1:80", None),
        ("255.255.255.255:80", None),
        ("[fe80::1]:80", None),
        ("[::127.0.0.1]:80", None),
    ];
    for (asked, expected) in cases {
        let expected: Option<SocketAddr> = expected.map(|text| text.parse().unwrap());
        assert_eq!(on_loopback(asked.parse().unwrap()), expected, "{asked}");
    }
}

#[test]
fn a_place_is_beneath_whole_names_only() {
    let roots = [b"/home/ada/work".to_vec(), b"/tmp".to_vec()];
    let cases: [(&[u8], bool); 7] = [
        (b"/home/ada/work", true),
        (b"/home/ada/work/a/b", true),
        (b"/home/ada/work2", false),
        (b"/home/ada", false),
        (b"/tmp/x (deleted)", true),
        (b"/tmpx", false),
        (b"", false),
    ];
    for (path, expected) in cases {
        assert_eq!(is_beneath(path, &roots), expected, "{path:?}");
    }
    assert!(is_beneath(b"/anything", &[b"/".to_vec()]));
}

#[test]
fn listeners_of_the_internet_are_found_with_their_cookies() {
    for (listen, ask, other) in [
        ("127.0.0.1:0", "127.0.0.1", "127.0.0.2"),
        ("[::1]:0", "::1", "127.0.0.1"),
    ] {
        let listener = TcpListener::bind(listen).unwrap();
        let port = listener.local_addr().unwrap().port();
        let cookie = socket_cookie(&listener).unwrap();
        let found = internet_listeners().unwrap();
        let of = |ip: &str| {
            let to = SocketAddr::new(ip.parse().unwrap(), port);
            let all = found.iter().filter(move |one| one.answers(to));
            all.map(|one| one.cookie).collect::<Vec<_>>()
        };
        assert_eq!(of(ask), [cookie], "{listen}");
        assert!(of(other).is_empty(), "{listen}");
        drop(listener);
        let left = internet_listeners().unwrap();
        assert!(left.iter().all(|one| one.cookie != cookie));
    }
    // One that listens everywhere answers everywhere.
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = everywhere.local_addr().unwrap().port();
    let found = internet_listeners().unwrap();
    for to in ["127.0.0.1", "127.0.0.2", "::ffff:127.0.0.1"] {
        let to = SocketAddr::new(to.parse().unwrap(), port);
        assert!(found.iter().any(|one| one.answers(to)), "{to}");
    }
}

#[test]
fn listeners_of_unix_are_found_with_their_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let name = format!("atoll-fence-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let nameless = UnixListener::bind_addr(&address).unwrap();
    let found = unix_listeners().unwrap();
    let by = |listener: &UnixListener| {
        let cookie = socket_cookie(listener).unwrap();
        found.iter().find(|one| one.cookie == cookie).unwrap()
    };
    let facts = std::fs::metadata(&path).unwrap();
    let device = (
        rustix::fs::major(facts.dev()),
        rustix::fs::minor(facts.dev()),
    );
    assert_eq!(by(&listener).file, Some((device, facts.ino() as u32)));
    assert_eq!(by(&listener).kind, SocketType::STREAM.as_raw());
    assert_eq!(by(&nameless).file, None);
    assert_eq!(by(&nameless).name, format!("\0{name}").into_bytes());
}

fn unix(kind: SocketType) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, kind, flags, None).unwrap()
}

/// Each type of socket has its own abstract names: a foreign listener of another type can have
/// the name of the program's own.
#[test]
fn abstract_name_of_another_kind_is_not_reached() {
    let Ok(caller) = Caller::new(thread()) else {
        panic!("one's own memory");
    };
    let name = format!("atoll-fence-kinds-{}", std::process::id());
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    let bytes = [&1_u16.to_ne_bytes()[..], b"\0", name.as_bytes()].concat();
    let kinds = [SocketType::STREAM, SocketType::SEQPACKET];
    for (own_kind, other_kind) in [(kinds[0], kinds[1]), (kinds[1], kinds[0])] {
        let (own_listener, foreign) = (unix(own_kind), unix(other_kind));
        let mut own = Own::default();
        rustix::net::bind(&own_listener, &address).unwrap();
        let arguments = [own_listener.as_raw_fd() as u64, 16, 0, 0, 0, 0];
        assert!(listen(&caller, &arguments, &mut own, || Ok(())).is_ok());
        rustix::net::bind(&foreign, &address).unwrap();
        rustix::net::listen(&foreign, 16).unwrap();
        let try_one = |kind| {
            let socket = unix(kind);
            let number = socket.as_raw_fd() as u64;
            let arguments = [number, bytes.as_ptr() as u64, bytes.len() as u64, 0, 0, 0];
            let places = Places::default();
            connect(&caller, &arguments, &own, None, &places, || Ok(()))
        };
        let reached = try_one(other_kind);
        assert!(rustix::net::accept(&foreign).is_err(), "{other_kind:?}");
        assert!(matches!(reached, Ok(Answer::Error(111))), "{other_kind:?}");
        // The control: by the kind that it has there itself.
        assert!(matches!(try_one(own_kind), Ok(Answer::Value(0))));
        assert!(rustix::net::accept(&own_listener).is_ok());
    }
}

#[test]
fn answers_that_are_cut_are_no_listeners() {
    let whole_unix: Vec<u8> = (0..24).collect();
    for length in 0..16 {
        assert_eq!(parse_unix(&whole_unix[..length]), None, "{length}");
    }
    let mut whole = vec![0; 72];
    whole[0] = 2;
    assert!(parse_internet(&whole).is_some());
    for length in 0..52 {
        assert_eq!(parse_internet(&whole[..length]), None, "{length}");
    }
    // Attributes that claim more than there is, or less than themselves.
    for claimed in [0_u16, 3, 200] {
        let mut message = vec![0; 16];
        message.extend(claimed.to_ne_bytes());
        message.extend([0, 0, 1, 2, 3, 4]);
        assert_eq!(parse_unix(&message), None, "{claimed}");
    }
}

#[test]
fn memory_is_read_up_to_a_page_that_is_not_there() {
    let Ok(caller) = Caller::new(thread()) else {
        panic!("one's own memory");
    };
    let text = b"a path\0and more";
    assert_eq!(caller.text(text.as_ptr() as u64).ok().unwrap(), b"a path");
    let bytes = caller.bytes(text.as_ptr() as u64, 6).ok().unwrap();
    assert_eq!(bytes, b"a path");
    for nowhere in [0, 8, u64::MAX, u64::MAX - 4096] {
        assert!(caller.text(nowhere).is_err(), "{nowhere}");
        assert!(caller.bytes(nowhere, 16).is_err(), "{nowhere}");
    }
    let endless = vec![b'a'; 5000];
    assert!(caller.text(endless.as_ptr() as u64).is_err());
}

#[test]
fn places_are_found_as_the_caller_sees_them() {
    let Ok(caller) = Caller::new(thread()) else {
        panic!("one's own memory");
    };
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::fs::write(root.join("file"), "").unwrap();
    std::os::unix::fs::symlink("file", root.join("link")).unwrap();
    let opened: OwnedFd = std::fs::File::open(&root).unwrap().into();
    let number = opened.as_raw_fd();
    let at = |path: &str, follow: bool| -> Option<String> {
        let place = caller.place(number, path.as_bytes(), follow).ok()?;
        let path = String::from_utf8(whereabouts(&place).unwrap()).unwrap();
        Some(path.strip_prefix(root.to_str()?)?.to_owned())
    };
    assert_eq!(at("file", true).unwrap(), "/file");
    assert_eq!(at("link", true).unwrap(), "/file");
    assert_eq!(at("link", false).unwrap(), "/link");
    assert_eq!(at(".", true).unwrap(), "");
    let by_number = format!("/proc/self/fd/{number}");
    assert_eq!(at(&by_number, true).unwrap(), "");
    assert_eq!(at("missing", true), None);
    assert_eq!(at("", true), None);
    // Other files of /proc would be the judge's own.
    for own in ["/proc/self/exe", "/proc/self/cwd/x", "/proc/self/root/etc"] {
        assert_eq!(at(own, true), None, "{own}");
    }
}
