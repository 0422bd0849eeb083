//! Tests of a funnel with real packets, in a namespace of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::files::in_namespaces;
use crate::funnel::{self, Funnel};
use crate::{credentials, network};

const PORT: u16 = 15001;
const FEW: u32 = 20;

const FUNNEL: Funnel = Funnel {
    port: PORT,
    connections_max: FEW,
    host_ports: [11434, 5432, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// Runs in a funnel with its listeners: TCP and DNS of both IP versions.
#[track_caller]
fn in_funnel(body: impl FnOnce([TcpListener; 2], [UdpSocket; 2])) {
    in_namespaces(|| {
        credentials::leave_namespaces(libc::CLONE_NEWNET).unwrap();
        network::with_loopback().unwrap();
        funnel::make(FUNNEL).unwrap();
        let listeners = funnel::listeners(FUNNEL).unwrap();
        let [tcp_4, udp_4, tcp_6, udp_6] = <[OwnedFd; 4]>::try_from(listeners).unwrap();
        let tcp = [tcp_4, tcp_6].map(TcpListener::from);
        let udp = [udp_4, udp_6].map(UdpSocket::from);
        for one in &tcp {
            one.set_nonblocking(false).unwrap();
        }
        for one in &udp {
            one.set_nonblocking(false).unwrap();
        }
        body(tcp, udp);
    });
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn the_outside_is_the_listener_and_loopback_is_the_programs_own() {
    in_funnel(|[four, six], _| {
        for (to, listener) in [
            ("1.2.3.4:8080", &four),
            ("10.0.0.1:22", &four),
            ("198.18.0.7:443", &four),
            ("169.254.169.254:80", &four),
            ("[2001:db8::1]:443", &six),
            ("[fd00::1]:1", &six),
        ] {
            // Whoever listens there inside does not get what was meant for the outside.
            let own = TcpListener::bind((
                if to.starts_with('[') { "::" } else { "0.0.0.0" },
                address(to).port(),
            ));
            own.as_ref().unwrap().set_nonblocking(true).unwrap();
            let mut client = TcpStream::connect(address(to)).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            assert_eq!(
                funnel::original_destination(server.as_fd()).unwrap(),
                address(to)
            );
            client.write_all(b"there").unwrap();
            let mut got = [0; 5];
            server.read_exact(&mut got).unwrap();
            server.write_all(b"again").unwrap();
            client.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"again");
            assert_eq!(
                own.unwrap().accept().unwrap_err().kind(),
                ErrorKind::WouldBlock
            );
        }
        for (on, to) in [
            ("0.0.0.0:3000", "127.0.0.1:3000"),
            ("0.0.0.0:3001", "127.0.0.2:3001"),
            ("0.0.0.0:3002", "0.0.0.0:3002"),
            ("127.0.0.53:53", "127.0.0.53:53"),
            ("[::]:3003", "[::1]:3003"),
            ("[::]:3004", "127.0.0.1:3004"),
        ] {
            let own = TcpListener::bind(address(on)).unwrap();
            let client = TcpStream::connect(address(to)).unwrap();
            let (server, _) = own.accept().unwrap();
            assert_eq!(
                server.peer_addr().unwrap().port(),
                client.local_addr().unwrap().port()
            );
        }
    });
}

#[test]
fn named_loopback_ports_lead_to_the_listener() {
    in_funnel(|[four, six], _| {
        for (to, listener) in [
            ("127.0.0.1:11434", &four),
            ("127.0.0.1:5432", &four),
            ("[::1]:11434", &six),
        ] {
            let mut client = TcpStream::connect(address(to)).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let meant = funnel::original_destination(server.as_fd()).unwrap();
            assert_eq!(meant, address(to));
            client.write_all(b"there").unwrap();
            let mut got = [0; 5];
            server.read_exact(&mut got).unwrap();
            server.write_all(b"again").unwrap();
            client.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"again");
        }
        // The control: another port is the program's own.
        let own = TcpListener::bind("127.0.0.1:11435").unwrap();
        let _client = TcpStream::connect("127.0.0.1:11435").unwrap();
        own.accept().unwrap();
    });
}

#[test]
fn what_is_not_meant_for_the_outside_has_no_destination_there() {
    in_funnel(|[four, _], _| {
        let _client = TcpStream::connect(("127.0.0.1", PORT)).unwrap();
        let (server, _) = four.accept().unwrap();
        let meant = funnel::original_destination(server.as_fd());
        assert!(meant.is_err() || meant.unwrap() == server.local_addr().unwrap());
        // Nobody else can have the port.
        assert!(TcpListener::bind(("127.0.0.1", PORT)).is_err());
    });
}

#[test]
fn other_packets_are_refused_at_once_and_questions_for_names_arrive() {
    in_funnel(|_, [names, names_6]| {
        let own = UdpSocket::bind("127.0.0.1:4000").unwrap();
        let client = UdpSocket::bind("0.0.0.0:0").unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let mut got = [0; 8];
        for resolver in ["9.9.9.9:53", "127.0.0.53:53", "192.168.1.1:53"] {
            client.send_to(b"name", address(resolver)).unwrap();
            let (length, from) = names.recv_from(&mut got).unwrap();
            assert_eq!(&got[..length], b"name");
            assert_eq!(from.port(), client.local_addr().unwrap().port());
        }
        client.send_to(b"own", address("127.0.0.1:4000")).unwrap();
        assert_eq!(own.recv(&mut got).unwrap(), 3);
        for elsewhere in ["1.2.3.4:443", "1.2.3.4:123", "255.255.255.255:9"] {
            let sent = client.send_to(b"x", address(elsewhere));
            assert!(sent.is_err(), "{elsewhere}");
        }
        let six = UdpSocket::bind("[::]:0").unwrap();
        six.send_to(b"six", address("[2001:db8::53]:53")).unwrap();
        assert_eq!(names_6.recv(&mut got).unwrap(), 3);
        assert!(six.send_to(b"x", address("[2001:db8::1]:443")).is_err());
    });
}

#[test]
fn connections_begin_no_faster_than_may_be_tracked() {
    in_funnel(|[four, _], _| {
        let mut refused = 0;
        let until = Instant::now() + Duration::from_secs(60);
        let mut tries = 0;
        // However slow the machine is.
        while tries < 4_000 || (refused == 0 && Instant::now() < until) {
            tries += 1;
            match TcpStream::connect(address("1.2.3.4:80")) {
                Ok(client) => drop((client, four.accept().unwrap())),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 0);
        // What stays inside is not among them.
        let own = TcpListener::bind("127.0.0.1:3000").unwrap();
        for _ in 0..100 {
            let _client = TcpStream::connect("127.0.0.1:3000").unwrap();
            own.accept().unwrap();
        }
    });
}

#[test]
fn connections_to_the_outside_are_limited_and_ones_inside_are_not() {
    in_funnel(|[four, _], _| {
        let mut held = Vec::new();
        let mut refused = false;
        for _ in 0..2 * FEW {
            match TcpStream::connect_timeout(&address("1.2.3.4:80"), Duration::from_secs(2)) {
                Ok(client) => held.push((client, four.accept().unwrap())),
                Err(_) => refused = true,
            }
        }
        assert!(refused, "{} connections", held.len());
        assert_eq!(held.len() as u32, FEW);
        let own = TcpListener::bind("127.0.0.1:3000").unwrap();
        let _inside: Vec<_> = (0..2 * FEW)
            .map(|_| {
                (
                    TcpStream::connect("127.0.0.1:3000").unwrap(),
                    own.accept().unwrap(),
                )
            })
            .collect();
    });
}
