//! A network namespace whose outbound traffic leads to listeners in it and nowhere else: every
//! address is local, and all outbound TCP connections arrive at one port.
//!
//! Only packets to loopback addresses pass unchanged, so that the program's own servers work; but
//! ports of it can be made to lead outside as well.
//! Protocols other than TCP are refused at once, except DNS queries to any address. Connections
//! within the namespace are not tracked and outbound ones are limited, so that nobody fills the
//! kernel's table of them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, netlink, socket_with,
    sockopt,
};

use crate::check;
use crate::netlink::{APPEND, Batch, CREATE, EXCLUSIVE, attribute, nested};

/// The parameters of a funnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Funnel {
    /// The port at which every outbound TCP connection arrives.
    pub port: u16,
    /// The most of them at once.
    pub connections_max: u32,
    /// The loopback ports whose connections arrive there too, as if they led outside; 0 is none.
    pub host_ports: [u16; HOST_PORTS_MAX],
}

/// The most loopback ports that arrive at a funnel.
pub const HOST_PORTS_MAX: usize = 16;

/// Makes this process's network namespace a funnel. Its loopback device has to be up.
///
/// # Errors
/// The kernel's; EPERM without rights over the namespace, ENOENT or EOPNOTSUPP where
/// nf_tables or a part of it is missing.
pub fn make(funnel: Funnel) -> io::Result<()> {
    own_all_addresses(AF_INET)?;
    match own_all_addresses(AF_INET6) {
        // A host without IPv6 has no such sockets either.
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)
            ) => {}
        made => made?,
    }
    let mut batch = Batch::default();
    batch.message(BATCH_BEGIN, 0, |out| header(out, 0));
    batch.message(NEW_TABLE, CREATE | EXCLUSIVE, |out| {
        header(out, INET);
        attribute(out, 1, TABLE);
    });
    for chain in [&RAW, &FILTER, &NAT] {
        batch.message(NEW_CHAIN, CREATE | EXCLUSIVE, |out| chain.write(out));
    }
    for (chain, rule) in rules(funnel) {
        batch.message(NEW_RULE, CREATE | APPEND, |out| {
            header(out, INET);
            attribute(out, 1, TABLE);
            attribute(out, 2, chain.name);
            nested(out, 4, |out| rule.iter().for_each(|one| one.write(out)));
        });
    }
    batch.message(BATCH_END, 0, |out| header(out, 0));
    batch.send(Some(netlink::NETFILTER))
}

/// Adds the route `local 0.0.0.0/0 dev lo` or its IPv6 equivalent (rtnetlink(7)): the kernel treats
/// every address as its own.
fn own_all_addresses(family: u8) -> io::Result<()> {
    let scope = if family == AF_INET { SCOPE_HOST } else { 0 };
    let mut batch = Batch::default();
    batch.message(NEW_ROUTE, CREATE | EXCLUSIVE, |out| {
        out.extend([family, 0, 0, 0, TABLE_LOCAL, PROTOCOL_BOOT, scope, LOCAL]);
        out.extend([0; 4]);
        attribute(out, OUT_DEVICE, &LOOPBACK.to_ne_bytes());
    });
    batch.send(None)
}

/// Returns the funnel's receiving sockets: TCP at its port, and UDP for DNS queries, of IPv4; then
/// the same of IPv6, if available. Each datagram has its original destination (ip(7),
/// `IP_PKTINFO`), and an answer can be sent from there.
///
/// # Errors
/// The kernel's.
pub fn listeners(funnel: Funnel) -> io::Result<Vec<OwnedFd>> {
    let any = |port| [SocketAddr::from(([0; 4], port)), ([0_u16; 8], port).into()];
    let [tcp_4, tcp_6] = any(funnel.port);
    let [udp_4, udp_6] = any(DNS);
    let mut made = vec![listener(tcp_4)?, receiver(udp_4)?];
    match (listener(tcp_6), receiver(udp_6)) {
        (Err(error), _) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
        (tcp, udp) => made.extend([tcp?, udp?]),
    }
    Ok(made)
}

/// Returns sockets that connect to programs listening on this network's loopback: `number` of IPv4,
/// then as many of IPv6, if available.
///
/// # Errors
/// The kernel's.
pub fn inward(number: usize) -> io::Result<Vec<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let make = |family| -> rustix::io::Result<Vec<OwnedFd>> {
        let sockets = (0..number).map(|_| socket_with(family, SocketType::STREAM, flags, None));
        sockets.collect()
    };
    let mut made = make(AddressFamily::INET)?;
    match make(AddressFamily::INET6) {
        Err(rustix::io::Errno::AFNOSUPPORT) => {}
        six => made.extend(six?),
    }
    Ok(made)
}

/// The most connections that wait to be accepted; the kernel may lower it.
const BACKLOG: i32 = 4096;

fn listener(at: SocketAddr) -> io::Result<OwnedFd> {
    let made = bound(at, SocketType::STREAM, |_| Ok(()))?;
    listen(&made, BACKLOG)?;
    Ok(made)
}

fn receiver(at: SocketAddr) -> io::Result<OwnedFd> {
    let (level, option) = match at {
        SocketAddr::V4(_) => (libc::SOL_IP, libc::IP_PKTINFO),
        SocketAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_RECVPKTINFO),
    };
    bound(at, SocketType::DGRAM, |socket| {
        // The answer's source is no address of a device.
        if at.is_ipv6() {
            sockopt::set_ipv6_freebind(socket, true)?;
        }
        let on: libc::c_int = 1;
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: `on` is as long as `length` says and lives through the call.
        check(unsafe {
            let value = (&raw const on).cast();
            libc::setsockopt(socket.as_raw_fd(), level, option, value, length)
        })
        .map(drop)
    })
}

fn bound(
    at: SocketAddr,
    kind: SocketType,
    prepare: impl FnOnce(&OwnedFd) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let family = match at {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let made = socket_with(family, kind, flags, None)?;
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&made, true)?;
    }
    prepare(&made)?;
    bind(&made, &at)?;
    Ok(made)
}

/// Returns the original destination of a connection that arrived at the funnel's port. One made to
/// that port itself has none.
///
/// # Errors
/// The kernel's; ENOENT for a connection that came by no rule.
pub fn original_destination(connection: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    // SAFETY: plain data for which zeroes are valid.
    let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let is_4 = matches!(getsockname(connection)?.try_into(), Ok(SocketAddr::V4(_)));
    let level = if is_4 { libc::SOL_IP } else { libc::SOL_IPV6 };
    let mut length = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    // SAFETY: `address` is as long as `length` says and lives through the call.
    check(unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            level,
            libc::SO_ORIGINAL_DST,
            (&raw mut address).cast(),
            &raw mut length,
        )
    })?;
    let port = u16::from_be(address.sin6_port);
    let address = if is_4 {
        // As in sockaddr_in, the address follows the port.
        IpAddr::from(address.sin6_flowinfo.to_ne_bytes())
    } else {
        IpAddr::from(address.sin6_addr.s6_addr)
    };
    Ok(SocketAddr::new(address, port))
}

struct Chain {
    name: &'static [u8],
    kind: &'static [u8],
    priority: i32,
}

const TABLE: &[u8] = b"atoll\0";
const RAW: Chain = Chain {
    name: b"raw\0",
    kind: b"filter\0",
    priority: -300,
};
const FILTER: Chain = Chain {
    name: b"filter\0",
    kind: b"filter\0",
    priority: -150,
};
const NAT: Chain = Chain {
    name: b"nat\0",
    kind: b"nat\0",
    priority: -100,
};

impl Chain {
    fn write(&self, out: &mut Vec<u8>) {
        header(out, INET);
        attribute(out, 1, TABLE);
        attribute(out, 3, self.name);
        nested(out, 4, |out| {
            attribute(out, 1, &LOCAL_OUT.to_be_bytes());
            attribute(out, 2, &self.priority.to_be_bytes());
        });
        attribute(out, 7, self.kind);
    }
}

/// Returns the rules, in order; all other traffic passes.
fn rules(funnel: Funnel) -> Vec<(&'static Chain, Vec<Expression>)> {
    use Expression::{
        Count, Differs, IsNew, NoTrack, OverRate, Protocol, Redirect, Reject, Reset, Verdict,
    };
    let answers = [is_protocol(TCP), is_port(SOURCE, funnel.port)].concat();
    let names = [DESTINATION, SOURCE].map(|side| [is_protocol(UDP), is_port(side, DNS)].concat());
    let untracked = [to_loopback_4(), to_loopback_6()].into_iter().chain(names);
    let untracked = untracked.map(|which| (&RAW, which, vec![NoTrack, Verdict(ACCEPT)]));
    let own = [to_loopback_4(), to_loopback_6()];
    let own = own.map(|which| (&NAT, which, vec![Verdict(RETURN)]));
    let first = (&RAW, answers, vec![Verdict(ACCEPT)]);
    let ports = funnel.host_ports.into_iter().filter(|port| *port > 0);
    let outward = ports.flat_map(|port| {
        let to_port = || [is_protocol(TCP), is_port(DESTINATION, port)].concat();
        let to = [to_loopback_4(), to_loopback_6()];
        to.map(|loopback| [loopback, to_port()].concat())
    });
    let outward: Vec<Vec<Expression>> = outward.collect();
    // They are tracked, so that they can be redirected.
    let tracked = outward.clone().into_iter();
    let tracked = tracked.map(|which| (&RAW, which, vec![Verdict(ACCEPT)]));
    let redirected = outward.into_iter();
    let redirected = redirected.map(|which| (&NAT, which, vec![Redirect(funnel.port)]));
    let over = vec![Count(funnel.connections_max), Reset];
    let too_fast = vec![OverRate, Reset];
    let rest = [
        (&RAW, vec![Protocol, Differs(vec![TCP])], vec![Reject]),
        (&FILTER, vec![IsNew], over),
        (&FILTER, vec![IsNew], too_fast),
    ];
    let caught = (&NAT, is_protocol(TCP), vec![Redirect(funnel.port)]);
    let all = [first].into_iter().chain(tracked).chain(untracked);
    let all = all.chain(rest).chain(redirected).chain(own);
    all.chain([caught])
        .map(|(chain, which, what)| (chain, [which, what].concat()))
        .collect()
}

fn is_protocol(number: u8) -> Vec<Expression> {
    vec![Expression::Protocol, Expression::Is(vec![number])]
}

fn is_port(offset: u32, port: u16) -> Vec<Expression> {
    let load = Expression::Load {
        from: TRANSPORT_HEADER,
        offset,
        bytes: 2,
    };
    vec![load, Expression::Is(port.to_be_bytes().to_vec())]
}

/// Matches packets to 127.0.0.0/8.
fn to_loopback_4() -> Vec<Expression> {
    let load = Expression::Load {
        from: NETWORK_HEADER,
        offset: 16,
        bytes: 1,
    };
    let family = Expression::Is(vec![AF_INET]);
    vec![Expression::Family, family, load, Expression::Is(vec![127])]
}

/// Matches packets to ::1.
fn to_loopback_6() -> Vec<Expression> {
    let load = Expression::Load {
        from: NETWORK_HEADER,
        offset: 24,
        bytes: 16,
    };
    let address = std::net::Ipv6Addr::LOCALHOST.octets().to_vec();
    let family = Expression::Is(vec![AF_INET6]);
    vec![Expression::Family, family, load, Expression::Is(address)]
}

/// An expression of a rule (linux/netfilter/nf_tables.h): a value is loaded and compared, and if
/// all comparisons hold, an action follows.
#[derive(Clone, Debug)]
enum Expression {
    Family,
    Protocol,
    Load {
        from: u32,
        offset: u32,
        bytes: u32,
    },
    Is(Vec<u8>),
    Differs(Vec<u8>),
    /// True if the packet begins a connection.
    IsNew,
    /// True if there are more connections than this.
    Count(u32),
    /// True if more connections begin per second than allowed.
    OverRate,
    NoTrack,
    Redirect(u16),
    Reject,
    /// Resets the connection, like a host without a server.
    Reset,
    Verdict(i32),
}

impl Expression {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Family => load(out, b"meta\0", META_FAMILY),
            Self::Protocol => load(out, b"meta\0", META_PROTOCOL),
            Self::Load {
                from,
                offset,
                bytes,
            } => expression(out, b"payload\0", |out| {
                for (kind, value) in (1..).zip([REGISTER, *from, *offset, *bytes]) {
                    attribute(out, kind, &value.to_be_bytes());
                }
            }),
            Self::Is(value) => compare(out, 0, value),
            Self::Differs(value) => compare(out, 1, value),
            Self::IsNew => {
                load(out, b"ct\0", CT_STATE);
                expression(out, b"bitwise\0", |out| {
                    for (kind, value) in (1..).zip([REGISTER, REGISTER, 4]) {
                        attribute(out, kind, &value.to_be_bytes());
                    }
                    nested(out, 4, |out| attribute(out, 1, &CT_NEW.to_ne_bytes()));
                    nested(out, 5, |out| attribute(out, 1, &[0; 4]));
                });
                compare(out, 1, &[0; 4]);
            }
            Self::Count(over) => expression(out, b"connlimit\0", |out| {
                attribute(out, 1, &over.to_be_bytes());
                attribute(out, 2, &COUNT_OVER.to_be_bytes());
            }),
            Self::OverRate => expression(out, b"limit\0", |out| {
                attribute(out, 1, &NEW_PER_SECOND.to_be_bytes());
                attribute(out, 2, &1_u64.to_be_bytes());
                attribute(out, 3, &NEW_AT_ONCE.to_be_bytes());
                attribute(out, 5, &COUNT_OVER.to_be_bytes());
            }),
            Self::NoTrack => expression(out, b"notrack\0", |_| {}),
            Self::Redirect(port) => {
                immediate(out, REGISTER, |out| attribute(out, 1, &port.to_be_bytes()));
                expression(out, b"redir\0", |out| {
                    attribute(out, 1, &REGISTER.to_be_bytes());
                });
            }
            Self::Reject => expression(out, b"reject\0", |out| {
                attribute(out, 1, &REJECT_EITHER.to_be_bytes());
                attribute(out, 2, &[REJECT_PORT]);
            }),
            Self::Reset => expression(out, b"reject\0", |out| {
                attribute(out, 1, &REJECT_RESET.to_be_bytes());
            }),
            Self::Verdict(code) => immediate(out, REGISTER_OF_VERDICT, |out| {
                nested(out, 2, |out| attribute(out, 1, &code.to_be_bytes()));
            }),
        }
    }
}

fn expression(out: &mut Vec<u8>, name: &[u8], fill: impl FnOnce(&mut Vec<u8>)) {
    nested(out, 1, |out| {
        attribute(out, 1, name);
        nested(out, 2, fill);
    });
}

fn load(out: &mut Vec<u8>, name: &[u8], key: u32) {
    expression(out, name, |out| {
        attribute(out, 1, &REGISTER.to_be_bytes());
        attribute(out, 2, &key.to_be_bytes());
    });
}

fn compare(out: &mut Vec<u8>, how: u32, value: &[u8]) {
    expression(out, b"cmp\0", |out| {
        attribute(out, 1, &REGISTER.to_be_bytes());
        attribute(out, 2, &how.to_be_bytes());
        nested(out, 3, |out| attribute(out, 1, value));
    });
}

fn immediate(out: &mut Vec<u8>, register: u32, value: impl FnOnce(&mut Vec<u8>)) {
    expression(out, b"immediate\0", |out| {
        attribute(out, 1, &register.to_be_bytes());
        nested(out, 2, value);
    });
}

/// Writes the header of every nf_tables message (linux/netfilter/nfnetlink.h): a family, and a
/// batch's subsystem.
fn header(out: &mut Vec<u8>, family: u8) {
    let of = if family == 0 { SUBSYSTEM } else { 0 };
    out.extend([family, 0]);
    out.extend(of.to_be_bytes());
}

/// The most connections that can begin in a second, and at once after a pause: ended ones are
/// tracked for two minutes more, and are not among the counted ones.
const NEW_PER_SECOND: u64 = 400;
const NEW_AT_ONCE: u32 = 2_000;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const INET: u8 = 1;

const NEW_ROUTE: u16 = 24;
const TABLE_LOCAL: u8 = 255;
const PROTOCOL_BOOT: u8 = 3;
const SCOPE_HOST: u8 = 254;
const LOCAL: u8 = 2;
const OUT_DEVICE: u16 = 4;
/// A namespace's first device, which it is created with.
const LOOPBACK: u32 = 1;

const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const NEW_CHAIN: u16 = SUBSYSTEM << 8 | 3;
const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;
const LOCAL_OUT: u32 = 3;

const REGISTER_OF_VERDICT: u32 = 0;
const REGISTER: u32 = 1;
const META_FAMILY: u32 = 15;
const META_PROTOCOL: u32 = 16;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const SOURCE: u32 = 0;
const DESTINATION: u32 = 2;
const CT_STATE: u32 = 0;
const CT_NEW: u32 = 8;
const COUNT_OVER: u32 = 1;
const REJECT_RESET: u32 = 1;
const REJECT_EITHER: u32 = 2;
const REJECT_PORT: u8 = 1;
const ACCEPT: i32 = 1;
const RETURN: i32 = -5;

const TCP: u8 = 6;
const UDP: u8 = 17;
const DNS: u16 = 53;
