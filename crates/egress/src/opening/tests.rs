//! Beginnings of tunnelled connections, against a server that records the bytes that reach it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use atoll_model::network::{HostName, HostPart};
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

use super::{Opening, StopReason};
use crate::credentials::Credentials;
use crate::hello::{self, AGAIN, Hello};
use crate::scan::Scan;
use crate::tests::{PLACEHOLDER, client_hello, keyed, pair};

/// Returns a server's first message: a HelloRetryRequest, or a ServerHello.
fn server_hello(asks_again: bool) -> Vec<u8> {
    let random = if asks_again { AGAIN } else { [9; 32] };
    let body = [&[3, 3][..], &random, &[0, 0x13, 0x01, 0, 0, 0]].concat();
    let message = [&[2, 0, 0, body.len() as u8][..], &body].concat();
    [&[22, 3, 3, 0, message.len() as u8][..], &message].concat()
}

/// Returns the bytes that reach a server when a program sends these first, and these once the
/// server has answered; and the outcome of the opening.
async fn reaches(first: &[u8], answer: &[u8], then: &[u8]) -> (Vec<u8>, Result<(), StopReason>) {
    let (mut program, mut inside) = pair().await;
    let (mut outside, mut server) = pair().await;
    let work = async {
        let (up, down) = (AtomicU64::new(0), AtomicU64::new(0));
        let opening = Opening {
            part: None,
            program: &mut inside,
            server: &mut outside,
            held: Vec::new(),
            up: &up,
            down: &down,
            scans: &mut [Scan::Not, Scan::Not],
        };
        let host = HostPart::Name(HostName::parse("example.com").unwrap());
        let passed = opening.pass(&host, &Credentials::default()).await;
        if passed.is_ok() {
            let _ = tokio::io::copy(&mut inside, &mut outside).await;
        }
        passed
    };
    let talk = async {
        program.write_all(first).await.unwrap();
        let mut seen = vec![0; 65536];
        let quiet = Duration::from_millis(300);
        let got = timeout(quiet, server.read(&mut seen)).await;
        let mut all = seen[..got.map_or(0, Result::unwrap)].to_vec();
        server.write_all(answer).await.unwrap();
        program.write_all(then).await.unwrap();
        while let Ok(Ok(got)) = timeout(quiet, server.read(&mut seen)).await {
            all.extend_from_slice(&seen[..got]);
        }
        program.shutdown().await.unwrap();
        all
    };
    tokio::join!(talk, work)
}

#[tokio::test]
async fn second_client_hello_must_name_same_host() {
    let (own, other) = (client_hello("example.com"), client_hello("evil.example"));
    let unnamed = b"GET / HTTP/1.1\r\n\r\n".to_vec();
    let compatible = vec![20, 3, 3, 0, 1, 1];
    let early = vec![23, 3, 3, 0, 3, 1, 2, 3];
    let again = server_hello(true);
    let on = server_hello(false);
    let join = |parts: &[&Vec<u8>]| -> Vec<u8> {
        parts.iter().flat_map(|part| part.iter().copied()).collect()
    };
    for (name, first, answer, then, passes) in [
        (
            "goes on",
            own.clone(),
            &on,
            compatible.clone(),
            join(&[&own, &compatible]),
        ),
        (
            "begins again",
            own.clone(),
            &again,
            own.clone(),
            join(&[&own, &own]),
        ),
        (
            "after a change",
            own.clone(),
            &again,
            join(&[&compatible, &own]),
            join(&[&own, &compatible, &own]),
        ),
        (
            "after early data",
            join(&[&own, &early]),
            &again,
            join(&[&compatible, &own]),
            join(&[&own, &early, &compatible, &own]),
        ),
        (
            "another, when asked",
            own.clone(),
            &again,
            other.clone(),
            own.clone(),
        ),
        (
            "another, unasked",
            join(&[&own, &other]),
            &again,
            Vec::new(),
            own.clone(),
        ),
        (
            "another after a change",
            own.clone(),
            &again,
            join(&[&compatible, &other]),
            own.clone(),
        ),
        (
            "another after early data",
            join(&[&own, &early, &compatible, &other]),
            &again,
            Vec::new(),
            own.clone(),
        ),
        ("no TLS", own.clone(), &again, unnamed.clone(), own.clone()),
        (
            "another at once",
            other.clone(),
            &on,
            Vec::new(),
            Vec::new(),
        ),
    ] {
        let (seen, ended) = reaches(&first, answer, &then).await;
        let all = join(&[&first, &then]);
        if passes == all {
            assert!(ended.is_ok(), "{name}: {ended:?}");
            assert_eq!(seen, passes, "{name}");
        } else {
            assert!(ended.is_err(), "{name}");
            assert!(passes.starts_with(&seen), "{name}: {seen:?}");
        }
    }
}

#[tokio::test]
async fn hello_retry_request_passes() {
    let key = rcgen::generate_simple_self_signed(["example.com".to_owned()]).unwrap();
    let mut provider = default_provider();
    provider.kx_groups = vec![kx_group::SECP384R1];
    let private = rustls::pki_types::PrivateKeyDer::Pkcs8(key.signing_key.serialize_der().into());
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(key.cert.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (program, mut inside) = pair().await;
    let (mut outside, server) = pair().await;
    let carry = async {
        let (up, down) = (AtomicU64::new(0), AtomicU64::new(0));
        let opening = Opening {
            part: None,
            program: &mut inside,
            server: &mut outside,
            held: Vec::new(),
            up: &up,
            down: &down,
            scans: &mut [Scan::Not, Scan::Not],
        };
        let host = HostPart::Name(HostName::parse("example.com").unwrap());
        opening.pass(&host, &Credentials::default()).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
    };
    let serve = async {
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let mut stream = acceptor.accept(server).await.unwrap();
        let kind = stream.get_ref().1.handshake_kind();
        assert_eq!(kind, Some(rustls::HandshakeKind::FullWithHelloRetryRequest));
        stream.write_all(b"there").await.unwrap();
        stream.shutdown().await.unwrap();
    };
    let ask = async {
        let name = rustls::pki_types::ServerName::try_from("example.com").unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
        let mut stream = connector.connect(name, program).await.unwrap();
        let mut heard = [0; 5];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"there");
    };
    tokio::join!(carry, serve, ask);
}

/// Returns the bytes that reach a server when a program sends these at once, in a run with a
/// credential.
async fn reaches_searched(host: &str, first: &[u8]) -> (Vec<u8>, Option<String>) {
    let (mut program, mut inside) = pair().await;
    let (mut outside, mut server) = pair().await;
    let credentials = keyed();
    program.write_all(first).await.unwrap();
    program.shutdown().await.unwrap();
    let (up, down) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut scans = Scan::both(&credentials);
    let opening = Opening {
        part: None,
        program: &mut inside,
        server: &mut outside,
        held: Vec::new(),
        up: &up,
        down: &down,
        scans: &mut scans,
    };
    let host: HostPart = host.parse().unwrap();
    let pass = opening.pass(&host, &credentials);
    let passed = timeout(Duration::from_millis(300), pass).await;
    drop(outside);
    let mut seen = Vec::new();
    server.read_to_end(&mut seen).await.unwrap();
    let place = passed.map(|passed| match passed {
        Err(StopReason::Carries { place, .. }) => Some(place.to_owned()),
        Ok(()) | Err(_) => None,
    });
    (seen, place.unwrap_or_default())
}

#[tokio::test]
async fn placeholder_in_first_bytes_is_stopped() {
    let hello = client_hello("example.com");
    // The extension of protocols has room for as much as one likes.
    let carrying = |value: &str| {
        let text = format!("{value}{}", "x".repeat(64 - value.len()));
        let with = client_hello("example.com");
        // A list of one name (RFC 7301, 3.1).
        let name = [&[text.len() as u8][..], text.as_bytes()].concat();
        let length = |bytes: usize| (bytes as u16).to_be_bytes();
        let list = [&length(name.len())[..], &name].concat();
        let extension = [&[0, 16][..], &length(list.len()), &list].concat();
        let grown = |bytes: &[u8], at: usize| {
            let before = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            (before + extension.len() as u16).to_be_bytes()
        };
        let mut all = with.clone();
        for at in [3, 7, 5 + 4 + 2 + 32 + 1 + 4 + 2] {
            let length = grown(&with, at);
            all[at..at + 2].copy_from_slice(&length);
        }
        [all, extension].concat()
    };
    // The same message in records of seven bytes.
    let in_pieces = |hello: &[u8]| -> Vec<u8> {
        let pieces = hello[5..].chunks(7);
        let record = |piece: &[u8]| [&[22, 3, 1, 0, piece.len() as u8][..], piece].concat();
        pieces.map(record).collect::<Vec<_>>().concat()
    };
    let text = |value: &str| format!("PING {value}\r\n").into_bytes();
    for host in ["example.com", "192.0.2.7"] {
        let (tls, plain) = ("the beginning of TLS", "what the program sends by a tunnel");
        for (name, value, place) in [
            ("protocol", carrying(PLACEHOLDER), tls),
            ("in pieces", in_pieces(&carrying(PLACEHOLDER)), tls),
            ("text", text(PLACEHOLDER), plain),
        ] {
            let (seen, told) = reaches_searched(host, &value).await;
            assert_eq!(told.as_deref(), Some(place), "{host} {name}");
            assert_eq!(seen, b"", "{host} {name}");
        }
        // The control: another value of its length.
        let other = PLACEHOLDER.chars().rev().collect::<String>();
        for (name, value) in [
            ("protocol", carrying(&other)),
            ("in pieces", in_pieces(&carrying(&other))),
            ("text", text(&other)),
            ("hello", hello.clone()),
        ] {
            let (seen, told) = reaches_searched(host, &value).await;
            assert_eq!((seen, told), (value, None), "{host} {name}");
        }
    }
}

/// Returns the time for which a partial beginning is held while both sides stay, and the bytes that
/// reach the server; one of these pieces comes every five seconds.
async fn held_up(host: &str, pieces: &[&[u8]]) -> (Duration, Vec<u8>, Result<(), StopReason>) {
    let (mut program, mut inside) = pair().await;
    let (mut outside, mut server) = pair().await;
    let credentials = keyed();
    let (up, down) = (AtomicU64::new(0), AtomicU64::new(0));
    let opening = Opening {
        part: None,
        program: &mut inside,
        server: &mut outside,
        held: Vec::new(),
        up: &up,
        down: &down,
        scans: &mut Scan::both(&credentials),
    };
    let host: HostPart = host.parse().unwrap();
    let begin = Instant::now();
    let says = async {
        for piece in pieces {
            program.write_all(piece).await.unwrap();
            sleep(Duration::from_secs(5)).await;
        }
        std::future::pending::<()>().await;
    };
    let passed = tokio::select! {
        passed = opening.pass(&host, &credentials) => passed,
        () = says => unreachable!("it waits for ever"),
    };
    let took = begin.elapsed();
    drop(outside);
    let mut seen = Vec::new();
    server.read_to_end(&mut seen).await.unwrap();
    (took, seen, passed)
}

/// Bytes that cannot become TLS are not waited for: a program of another protocol waits for an
/// answer.
#[tokio::test]
async fn first_byte_of_tls_alone_is_judged_at_once() {
    let other: &[u8] = &[22, 0, 7];
    let (took, seen, passed) = held_up("192.0.2.7", &[other]).await;
    // Ten seconds are how long the beginning of TLS is waited for.
    assert!(took < Duration::from_secs(9), "{took:?}");
    assert_eq!(seen, other);
    assert!(passed.is_ok(), "{passed:?}");
    // Whoever is named must be whom it is for, and that cannot be read.
    let (took, seen, passed) = held_up("example.com", &[other]).await;
    assert!(took < Duration::from_secs(9), "{took:?}");
    assert_eq!(seen, b"");
    assert!(
        matches!(passed, Err(StopReason::ForAnother(_))),
        "{passed:?}"
    );
}

/// Records that begin no connection, with the number of bytes that show it. Servers read on behind
/// one: Go's crypto/tls 1.19 and Java 17 do so behind a warning of nearly any version.
const BEFORE: [(&[u8], usize); 6] = [
    (&[21, 3, 1, 0, 2, 1, 90], 2),
    (&[20, 3, 3, 0, 1, 1], 2),
    (&[23, 3, 3, 0, 1, 7], 2),
    (&[21, 2, 0, 0, 2, 1, 90], 5),
    (&[21, 0, 0, 0, 2, 1, 20], 5),
    (&[21, 77, 3, 0, 2, 1, 90], 5),
];

#[test]
fn client_hello_behind_other_record_is_found() {
    let own = client_hello("example.com");
    for (before, told) in BEFORE {
        let bytes = [before, &own].concat();
        for length in 1..told {
            let read = hello::read(&bytes[..length]);
            assert_eq!(read, Hello::Partial, "{before:?}");
        }
        for length in told..bytes.len() {
            assert_eq!(
                hello::read(&bytes[..length]),
                Hello::Malformed,
                "{before:?}"
            );
        }
    }
    for other in [
        &[21, 1, 3, 1][..],
        &[21, 1, 0, 0, 3],
        &[21, 1, 0, 0, 0, 2],
        b"\x17GET",
        &[20, 2],
        &[24, 3, 1],
    ] {
        assert_eq!(hello::read(other), Hello::Other, "{other:?}");
    }
}

/// A server may read on behind a record that begins no connection, so a host name behind it counts.
#[tokio::test]
async fn foreign_client_hello_behind_record_is_refused() {
    let other = client_hello("evil.example");
    for (before, _) in BEFORE {
        let bytes = [before, &other].concat();
        let (seen, ended) = reaches(&bytes, b"", b"").await;
        assert!(matches!(ended, Err(StopReason::ForAnother(_))), "{ended:?}");
        assert_eq!(seen, b"", "{before:?}");
        // Nor where the bytes come one by one.
        let (seen, ended) = reaches(&bytes[..1], b"", &bytes[1..]).await;
        assert!(matches!(ended, Err(StopReason::ForAnother(_))), "{ended:?}");
        assert_eq!(seen, b"", "{before:?}");
    }
    // Whoever breaks off where TLS was to begin again has spoken to nobody else.
    let own = client_hello("example.com");
    let (seen, ended) = reaches(&own, &server_hello(true), &[21, 3, 3, 0, 2, 2, 47]).await;
    assert!(matches!(ended, Err(StopReason::Failed(_))), "{ended:?}");
    assert_eq!(seen, own);
}

/// Bytes that may become TLS are held until the ClientHello is complete, and not for ever, in
/// whatever pieces they come.
#[tokio::test]
async fn slow_client_hello_times_out_unsent() {
    let hello = client_hello("example.com");
    let bytes: Vec<&[u8]> = hello.chunks(1).take(20).collect();
    let (address, name) = ("192.0.2.7", "example.com");
    let (one, other, silent) = tokio::join!(
        held_up(address, &bytes),
        held_up(name, &bytes),
        held_up(address, &bytes[..1]),
    );
    for (took, seen, passed) in [one, other, silent] {
        // Were each piece waited for anew it would be a hundred seconds.
        assert!(took < Duration::from_secs(60), "{took:?}");
        assert_eq!(seen, b"");
        let why = passed.unwrap_err().why();
        assert_eq!(why, "the beginning of TLS took too long");
    }
}
