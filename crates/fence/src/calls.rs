//! The system calls that only a fence has to filter: elsewhere namespaces confine them.

use atoll_sys::seccomp::{
    Action, Call, Condition, Guard, Guarded, NONE, Test, always, call, on, only,
};

use crate::NameRequest::{OwnAddress, Receive, ReceiveMessage, SendMessage, SendTo, ServerAddress};
use crate::Request::{self, Bind, Change, Connect, Listen, OfNames, Signal, Socket, Watch};
use crate::{Attribute, NameRequest, Recipient, Target};

const EPERM: u16 = 1;
const ENOTTY: u16 = 25;
const ENOSYS: u16 = 38;
const ENOPROTOOPT: u16 = 92;
const EPROTONOSUPPORT: u16 = 93;
const EAFNOSUPPORT: u16 = 97;

/// The constants of socket(2) for filter rules, here and in every program's filter.
pub mod socket {
    /// No family. No program needs it; the tests of libraries ask for it.
    pub const AF_UNSPEC: u32 = 0;
    /// Unix sockets.
    pub const AF_UNIX: u32 = 1;
    /// IPv4.
    pub const AF_INET: u32 = 2;
    /// IPv6.
    pub const AF_INET6: u32 = 10;
    /// Netlink.
    pub const AF_NETLINK: u32 = 16;
    /// The mask by which the kernel takes a socket's type; the other bits are flags.
    pub const SOCKET_TYPE: u32 = 0xf;
    /// Streams, such as TCP.
    pub const SOCK_STREAM: u32 = 1;
    /// Datagrams, such as UDP.
    pub const SOCK_DGRAM: u32 = 2;
    /// Connected, with message boundaries.
    pub const SOCK_SEQPACKET: u32 = 5;
    /// A flag beside the type: non-blocking.
    pub const SOCK_NONBLOCK: u32 = 0o4_000;
    /// A flag beside the type: closed on exec.
    pub const SOCK_CLOEXEC: u32 = 0o2_000_000;
    /// The default protocol of the type; in the netlink family NETLINK_ROUTE.
    pub const PROTOCOL_DEFAULT: u32 = 0;
    /// TCP.
    pub const IPPROTO_TCP: u32 = 6;
    /// UDP.
    pub const IPPROTO_UDP: u32 = 17;
}
use socket::{
    AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, AF_UNSPEC, IPPROTO_TCP, IPPROTO_UDP, PROTOCOL_DEFAULT,
    SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM, SOCKET_TYPE,
};

/// The descriptor numbers of DNS sockets: calls on other numbers are not judged. Programs
/// rarely have as many descriptors, and select(2) still works with these.
pub(crate) const NUMBERS: std::ops::Range<u32> = 960..1024;

const SOL_IP: u32 = 0;
const SOL_SOCKET: u32 = 1;
const SOL_TCP: u32 = 6;
const SOL_IPV6: u32 = 41;

const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
/// Data sent along with the connection request, past the rules for connect(2).
const MSG_FASTOPEN: u32 = 0x2000_0000;

/// The families that a program may ask for. Any other is reported as a violation: it leads to
/// devices, to the kernel's ciphers, or to the hypervisor.
pub const KNOWN_FAMILY: Condition = on(
    0,
    u32::MAX,
    Test::In(&[AF_UNSPEC, AF_UNIX, AF_INET, AF_INET6, AF_NETLINK]),
    EAFNOSUPPORT,
)
.told();

/// Connected sockets only: a datagram can go to any address at any time, past the judge.
const SOCKETS: &[Guarded] = &[
    always(KNOWN_FAMILY),
    always(on(
        0,
        u32::MAX,
        Test::In(&[AF_UNIX, AF_INET, AF_INET6]),
        EAFNOSUPPORT,
    )),
    always(on(
        1,
        SOCKET_TYPE,
        Test::In(&[SOCK_STREAM, SOCK_SEQPACKET]),
        EPROTONOSUPPORT,
    )),
    only(
        &[AF_INET, AF_INET6],
        on(1, SOCKET_TYPE, Test::In(&[SOCK_STREAM]), EPROTONOSUPPORT),
    ),
    only(
        &[AF_INET, AF_INET6],
        on(
            2,
            u32::MAX,
            Test::In(&[PROTOCOL_DEFAULT, IPPROTO_TCP]),
            EPROTONOSUPPORT,
        ),
    ),
];

/// The rules of [`SOCKETS`] where DNS works: internet datagram sockets come to the judge, which
/// makes a socket that looks like one.
const SOCKETS_AND_NAMES: &[Guarded] = &[
    always(KNOWN_FAMILY),
    always(on(
        0,
        u32::MAX,
        Test::In(&[AF_UNIX, AF_INET, AF_INET6]),
        EAFNOSUPPORT,
    )),
    only(&[AF_UNIX], CONNECTED.condition),
    only(
        &[AF_INET, AF_INET6],
        on(
            1,
            SOCKET_TYPE,
            Test::In(&[SOCK_STREAM, SOCK_DGRAM]),
            EPROTONOSUPPORT,
        ),
    ),
    with(
        1,
        SOCKET_TYPE,
        &[SOCK_STREAM, SOCK_SEQPACKET],
        on(
            2,
            u32::MAX,
            Test::In(&[PROTOCOL_DEFAULT, IPPROTO_TCP]),
            EPROTONOSUPPORT,
        ),
    ),
    with(
        1,
        SOCKET_TYPE,
        &[SOCK_DGRAM],
        on(
            2,
            u32::MAX,
            Test::In(&[PROTOCOL_DEFAULT, IPPROTO_UDP]),
            EPROTONOSUPPORT,
        ),
    ),
    always(on(1, SOCKET_TYPE, Test::NotIn(&[SOCK_DGRAM]), EAFNOSUPPORT).told()),
];

/// Calls on descriptors that may be DNS sockets come to the judge; the other rules for the call
/// are checked first.
const NOT_OF_NAMES: Guarded = always(
    on(
        0,
        !(NUMBERS.end - NUMBERS.start - 1),
        Test::NotIn(&[NUMBERS.start]),
        1,
    )
    .told(),
);
const PAIRS: &[Guarded] = &[UNIX_ALONE, CONNECTED];
const UNIX_ALONE: Guarded = always(on(0, u32::MAX, Test::In(&[AF_UNIX]), EAFNOSUPPORT));
const CONNECTED: Guarded = always(on(
    1,
    SOCKET_TYPE,
    Test::In(&[SOCK_STREAM, SOCK_SEQPACKET]),
    EPROTONOSUPPORT,
));

/// The rule of a boundary without internet sockets: Unix sockets only, and no datagrams.
pub const NO_INTERNET: (Call, Action) = (call("socket", 41, 198), Action::All(UNIX));
const UNIX: &[Guarded] = &[always(KNOWN_FAMILY), UNIX_ALONE, CONNECTED];

/// Requests of terminals and sockets. Others change files that are only readable: their flags,
/// their protection.
const REQUESTS: &[Guarded] = &[
    always(on(1, 0xff00, Test::In(&[0x5400, 0x8900]), ENOTTY)),
    always(on(1, u32::MAX, Test::NotIn(&[TIOCSTI]), EPERM).told()),
    always(on(1, u32::MAX, Test::NotIn(&[TIOCLINUX]), EPERM)),
    // Of sockets: marks and stamps. Others tell of the host's network, or choose who
    // gets a signal.
    with(
        1,
        0xff00,
        &[0x8900],
        on(1, u32::MAX, Test::In(&[0x8905, 0x8906, 0x8907]), ENOTTY),
    ),
];

/// The socket options that tune a connection. Left out are those that decide where packets go:
/// binding to a device, a route in the packet, a group of listeners, a connection that is made
/// later than it was judged, a shared port.
const OPTIONS: &[Guarded] = OPTIONS_AND_NAMES.split_at(OPTIONS_AND_NAMES.len() - 1).0;
const OPTIONS_AND_NAMES: &[Guarded] = &[
    always(on(
        1,
        u32::MAX,
        Test::In(&[SOL_IP, SOL_SOCKET, SOL_TCP, SOL_IPV6]),
        ENOPROTOOPT,
    )),
    // All but SO_REUSEPORT, SO_BINDTODEVICE, SO_MARK, SO_ATTACH_REUSEPORT_CBPF and _EBPF,
    // SO_BINDTOIFINDEX.
    with(
        1,
        u32::MAX,
        &[SOL_SOCKET],
        on(
            2,
            u32::MAX,
            Test::NotIn(&[15, 25, 36, 51, 52, 62]),
            ENOPROTOOPT,
        ),
    ),
    // TCP_NODELAY to TCP_WINDOW_CLAMP, TCP_QUICKACK, TCP_CONGESTION, TCP_USER_TIMEOUT,
    // TCP_NOTSENT_LOWAT.
    with(
        1,
        u32::MAX,
        &[SOL_TCP],
        on(
            2,
            u32::MAX,
            Test::In(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 18, 25]),
            ENOPROTOOPT,
        ),
    ),
    // IP_TOS, IP_TTL, IP_MTU_DISCOVER, IP_RECVERR, IP_BIND_ADDRESS_NO_PORT.
    with(
        1,
        u32::MAX,
        &[SOL_IP],
        on(2, u32::MAX, Test::In(&[1, 2, 10, 11, 24]), ENOPROTOOPT),
    ),
    // IPV6_UNICAST_HOPS, IPV6_RECVERR, IPV6_V6ONLY, IPV6_TCLASS.
    with(
        1,
        u32::MAX,
        &[SOL_IPV6],
        on(2, u32::MAX, Test::In(&[16, 25, 26, 67]), ENOPROTOOPT),
    ),
    // In a run with a network, and the last one.
    NOT_OF_NAMES,
];

/// Builds a condition that applies only where an argument, masked, is one of `values`.
const fn with(argument: u8, mask: u32, values: &'static [u32], condition: Condition) -> Guarded {
    Guarded {
        only: Some(Guard {
            argument,
            mask,
            values,
        }),
        condition,
    }
}

/// Refuses to choose which process gets a signal for input, and which signal: the kernel sends
/// it, past the judge (F_SETOWN, F_SETSIG, F_SETOWN_EX). Refuses also to delay another
/// process's open of a file, or to watch it (F_SETLEASE, F_NOTIFY).
const CONTROLS: Action = Action::If(on(
    1,
    u32::MAX,
    Test::NotIn(&[8, 10, 15, 1024, 1026]),
    EPERM,
));

/// Only the caller itself: other processes of the same user would be the host's.
const SELF: Action = Action::If(on(0, u32::MAX, Test::In(&[0]), EPERM));
const SELF_BY_PRIORITY: &[Guarded] = &[
    always(on(0, u32::MAX, Test::In(&[0]), EPERM)),
    always(on(1, u32::MAX, Test::In(&[0]), EPERM)),
];
/// The rule for ioprio_set(2); IOPRIO_WHO_PROCESS is 1.
const SELF_BY_IO_PRIORITY: &[Guarded] = &[
    always(on(0, u32::MAX, Test::In(&[1]), EPERM)),
    always(on(1, u32::MAX, Test::In(&[0]), EPERM)),
];

const fn no_fast_open(flags: u8) -> Action {
    Action::If(no_fast_open_in(flags))
}
const fn no_fast_open_in(flags: u8) -> Condition {
    on(flags, MSG_FASTOPEN, Test::In(&[0]), EPERM)
}

/// The calls that are refused, altogether or by their arguments.
#[rustfmt::skip]
pub const REFUSED: &[(Call, Action)] = &[
    (call("socket", 41, 198), Action::All(SOCKETS)),
    (call("socketpair", 53, 199), Action::All(PAIRS)),
    (call("sendto", 44, 206), no_fast_open(3)),
    (call("sendmsg", 46, 211), no_fast_open(2)),
    (call("sendmmsg", 307, 269), no_fast_open(3)),
    (call("setsockopt", 54, 208), Action::All(OPTIONS)),
    (call("ioctl", 16, 29), Action::All(REQUESTS)),
    (call("fcntl", 72, 25), CONTROLS),
    (call("prlimit64", 302, 261), SELF),
    (call("sched_setaffinity", 203, 122), SELF),
    (call("sched_setscheduler", 144, 119), SELF),
    (call("sched_setparam", 142, 118), SELF),
    (call("sched_setattr", 314, 274), SELF),
    (call("setpriority", 141, 140), Action::All(SELF_BY_PRIORITY)),
    (call("ioprio_set", 251, 30), Action::All(SELF_BY_IO_PRIORITY)),
    (call("pidfd_open", 434, 434), Action::Refuse(ENOSYS)),
    (call("pidfd_send_signal", 424, 424), Action::Refuse(ENOSYS)),
    (call("setxattrat", 463, 463), Action::Refuse(ENOSYS)),
    (call("removexattrat", 466, 466), Action::Refuse(ENOSYS)),
    (call("file_setattr", 469, 469), Action::Refuse(ENOSYS)),
];

use Attribute::{Microseconds, Mode, Nanoseconds, Owner, Remove, Seconds, Set};
use Target::{At, Descriptor, Link, Path};

/// The calls that wait for the judge, each with its request.
#[rustfmt::skip]
pub const JUDGED: &[(Call, Request)] = &[
    (call("connect", 42, 203), Connect),
    (call("bind", 49, 200), Bind),
    (call("listen", 50, 201), Listen),
    (call("inotify_add_watch", 254, 27), Watch),
    (call("kill", 62, 129), Signal(Recipient::ProcessOrGroup)),
    (call("tkill", 200, 130), Signal(Recipient::Thread)),
    (call("tgkill", 234, 131), Signal(Recipient::Thread)),
    (call("rt_sigqueueinfo", 129, 138), Signal(Recipient::Thread)),
    (call("rt_tgsigqueueinfo", 297, 240), Signal(Recipient::Thread)),
    (call("chmod", 90, NONE), Change(Path, Mode)),
    (call("fchmod", 91, 52), Change(Descriptor, Mode)),
    (call("fchmodat", 268, 53), Change(At(None), Mode)),
    (call("fchmodat2", 452, 452), Change(At(Some(3)), Mode)),
    (call("chown", 92, NONE), Change(Path, Owner)),
    (call("lchown", 94, NONE), Change(Link, Owner)),
    (call("fchown", 93, 55), Change(Descriptor, Owner)),
    (call("fchownat", 260, 54), Change(At(Some(4)), Owner)),
    (call("utime", 132, NONE), Change(Path, Seconds)),
    (call("utimes", 235, NONE), Change(Path, Microseconds)),
    (call("futimesat", 261, NONE), Change(At(None), Microseconds)),
    (call("utimensat", 280, 88), Change(At(Some(3)), Nanoseconds)),
    (call("setxattr", 188, 5), Change(Path, Set)),
    (call("lsetxattr", 189, 6), Change(Link, Set)),
    (call("fsetxattr", 190, 7), Change(Descriptor, Set)),
    (call("removexattr", 197, 14), Change(Path, Remove)),
    (call("lremovexattr", 198, 15), Change(Link, Remove)),
    (call("fremovexattr", 199, 16), Change(Descriptor, Remove)),
];

/// The rules that differ where a run has a network: DNS sockets are made by the judge.
#[rustfmt::skip]
pub const ROUTED: &[(Call, Action)] = &[
    (call("socket", 41, 198), Action::All(SOCKETS_AND_NAMES)),
    (call("sendto", 44, 206), Action::All(&[always(no_fast_open_in(3)), NOT_OF_NAMES])),
    (call("sendmsg", 46, 211), Action::All(&[always(no_fast_open_in(2)), NOT_OF_NAMES])),
    (call("sendmmsg", 307, 269), Action::All(&[always(no_fast_open_in(3)), NOT_OF_NAMES])),
    (call("recvfrom", 45, 207), Action::All(&[NOT_OF_NAMES])),
    (call("recvmsg", 47, 212), Action::All(&[NOT_OF_NAMES])),
    (call("getsockname", 51, 204), Action::All(&[NOT_OF_NAMES])),
    (call("getpeername", 52, 205), Action::All(&[NOT_OF_NAMES])),
    (call("setsockopt", 54, 208), Action::All(OPTIONS_AND_NAMES)),
];

/// The requests of the calls in [`ROUTED`] that come to the judge.
#[rustfmt::skip]
const OF_NAMES: &[(&str, Request)] = &[
    ("socket", Socket),
    ("sendto", OfNames(SendTo)),
    ("sendmsg", OfNames(SendMessage)),
    ("sendmmsg", OfNames(SendMessage)),
    ("recvfrom", OfNames(Receive)),
    ("recvmsg", OfNames(ReceiveMessage)),
    ("getsockname", OfNames(OwnAddress)),
    ("getpeername", OfNames(ServerAddress)),
    ("setsockopt", OfNames(NameRequest::Option)),
];

/// Returns the request of a judged call.
#[must_use]
pub fn request(number: u32) -> Option<Request> {
    let asked = JUDGED
        .iter()
        .find(|(call, _)| call.number() == Some(number));
    let of_names = || {
        let is = |(call, _): &&(Call, Action)| call.number() == Some(number);
        let (call, _) = ROUTED.iter().find(is)?;
        OF_NAMES.iter().find(|(name, _)| *name == call.name)
    };
    asked
        .map(|(_, request)| *request)
        .or_else(|| of_names().map(|(_, request)| *request))
}
