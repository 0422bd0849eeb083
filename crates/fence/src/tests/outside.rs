//! Tests of connections to the outside, without a waiting program.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use atoll_sys::judging::Answer;
use atoll_sys::socket::{pair, receive};
use rustix::io::Errno;
use rustix::net::sockopt::set_ipv6_v6only;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::Refused;
use crate::address::{Address, parse, written};
use crate::deadline::unless_interrupted;
use crate::outside::Outside;

fn outside() -> (Outside, OwnedFd) {
    let (line, far) = pair().unwrap();
    (Outside::new(line).unwrap(), far)
}

fn stream(family: AddressFamily, flags: SocketFlags) -> OwnedFd {
    socket_with(family, SocketType::STREAM, flags, None).unwrap()
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Receives a passed connection: its destination, and the other end.
fn handed(far: &OwnedFd) -> (String, TcpStream) {
    let mut message = [0; 64];
    let (got, mut descriptors) = receive(far.as_fd(), &mut message).unwrap();
    assert_eq!(descriptors.len(), 1);
    let meant = String::from_utf8(message[..got].to_vec()).unwrap();
    (meant, TcpStream::from(descriptors.pop().unwrap()))
}

#[test]
fn a_socket_is_connected_and_its_other_end_is_handed_out() {
    const SIX: AddressFamily = AddressFamily::INET6;
    const FOUR: AddressFamily = AddressFamily::INET;
    let cases = [
        (FOUR, SocketFlags::empty(), "93.184.216.34:80"),
        (FOUR, SocketFlags::NONBLOCK, "10.0.0.1:65535"),
        (SIX, SocketFlags::empty(), "[2606:2800::1]:443"),
        (SIX, SocketFlags::NONBLOCK, "[::ffff:93.184.216.34]:80"),
    ];
    for (family, flags, meant) in cases {
        let (outside, far) = outside();
        let socket = stream(family, flags);
        let made = outside.connect(&socket, at(meant));
        let waits = flags.is_empty();
        match made {
            Ok(answer) => assert!(waits && answer == Answer::Value(0), "{meant}"),
            Err(Refused(error)) => assert!(!waits && error == 115, "{meant}: {error}"),
        }
        let (told, mut end) = handed(&far);
        assert_eq!(told, meant);
        let mut program = TcpStream::from(socket.try_clone().unwrap());
        program.set_nonblocking(false).unwrap();
        program.write_all(b"hello").unwrap();
        end.set_nonblocking(false).unwrap();
        let mut heard = [0; 5];
        end.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
        // Once more is no further connection.
        let again = outside.connect(&socket, at(meant));
        assert!(matches!(again, Ok(Answer::Value(0)) | Err(Refused(106))));
        let waiting = rustix::net::recv(&far, &mut [0; 64], rustix::net::RecvFlags::DONTWAIT);
        assert!(waiting.is_err());
    }
}

#[test]
fn what_was_interrupted_is_tried_again_until_its_time_is_over() {
    let count = Cell::new(0);
    let third = || {
        count.set(count.get() + 1);
        match count.get() {
            1 | 2 => Err(Errno::INTR),
            number => Ok(number),
        }
    };
    let later = Instant::now() + Duration::from_secs(3600);
    assert_eq!(unless_interrupted(later, third), Ok(3));
    let refused = || Err::<(), _>(Errno::BADF);
    assert_eq!(unless_interrupted(later, refused), Err(Errno::BADF));
    count.set(0);
    assert_eq!(
        unless_interrupted(Instant::now(), third),
        Err(Errno::INTR),
        "its time is over"
    );
}

#[test]
fn only_its_own_connection_is_a_sockets_other_end() {
    let (outside, far) = outside();
    let door = outside.door();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let Ok(mut knock) = TcpStream::connect(door) else {
                        continue;
                    };
                    let _ = knock.write_all(b"knock");
                    // Whoever it is hears nothing.
                    assert!(!matches!(knock.read(&mut [0; 8]), Ok(1..)));
                }
            });
        }
        for number in 0..200_u32 {
            let socket = stream(AddressFamily::INET, SocketFlags::empty());
            if outside.connect(&socket, at("93.184.216.34:80")).is_err() {
                // So many knock that there was no room: then nothing was handed out.
                continue;
            }
            let (_, mut end) = handed(&far);
            let mut program = TcpStream::from(socket);
            program.write_all(&number.to_ne_bytes()).unwrap();
            let mut heard = [0; 4];
            end.set_nonblocking(false).unwrap();
            end.read_exact(&mut heard).unwrap();
            assert_eq!(heard, number.to_ne_bytes());
        }
        over.store(true, Ordering::Relaxed);
        drop(outside);
    });
}

#[test]
fn what_cannot_be_handed_out_is_connected_to_nothing() {
    let (outside, far) = outside();
    drop(far);
    for flags in [SocketFlags::empty(), SocketFlags::NONBLOCK] {
        let socket = stream(AddressFamily::INET, flags);
        let made = outside.connect(&socket, at("93.184.216.34:80"));
        assert!(matches!(made, Err(Refused(111))));
        let mut program = TcpStream::from(socket);
        assert!(program.peer_addr().is_err());
        let sent = program.write(b"x").map_err(|error| error.kind());
        let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
        assert!(sent.is_err_and(|error| gone.contains(&error)));
    }
}

#[test]
fn sockets_of_another_kind_lead_nowhere() {
    let (outside, _far) = outside();
    let six_alone = stream(AddressFamily::INET6, SocketFlags::empty());
    set_ipv6_v6only(&six_alone, true).unwrap();
    let cases = [
        (
            stream(AddressFamily::INET, SocketFlags::empty()),
            "[2606::1]:80",
            97,
        ),
        (
            stream(AddressFamily::INET6, SocketFlags::empty()),
            "10.0.0.1:80",
            97,
        ),
        (
            stream(AddressFamily::UNIX, SocketFlags::empty()),
            "10.0.0.1:80",
            97,
        ),
        (six_alone, "[::ffff:10.0.0.1]:80", 101),
    ];
    for (socket, meant, expected) in cases {
        match outside.connect(&socket, at(meant)) {
            Err(Refused(error)) => assert_eq!(error, expected, "{meant}"),
            Ok(answer) => panic!("{meant}: {answer:?}"),
        }
    }
}

#[test]
fn addresses_are_written_as_they_are_read() {
    for text in [
        "9.9.9.9:53",
        "[::ffff:9.9.9.9]:53",
        "[2620:fe::fe]:53",
        "0.0.0.0:0",
    ] {
        let address = at(text);
        let expected = Some(Address::Internet(address));
        assert_eq!(parse(&written(address)), expected, "{text}");
    }
    assert_eq!(written(at("1.2.3.4:53")).len(), 16);
    assert_eq!(written(at("[::1]:53")).len(), 28);
}
