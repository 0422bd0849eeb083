//! Which system calls a program inside can make, as data with reasons.
//!
//! The filter is an allow-list: a call that no group below names fails as if
//! the kernel did not have it (ENOSYS), so that programs fall back. Calls that
//! are refused on purpose fail with EPERM, for their reason.

use atoll_sys::seccomp::{Action, Condition, Guard, Guarded, Instruction, Rule, Test, assemble};

mod calls;

pub use calls::{ALLOWED, Group, REFUSED};

const EPERM: u16 = 1;
const ENOSYS: u16 = 38;
const EPROTONOSUPPORT: u16 = 93;
const EAFNOSUPPORT: u16 = 97;

/// A call that is allowed only with some arguments, and why.
#[derive(Clone, Copy, Debug)]
pub struct Conditional {
    /// The call's number.
    pub call: i64,
    /// On what it depends.
    pub action: Action,
    /// Why.
    pub reason: &'static str,
}

/// Every flag by which clone(2) and unshare(2) make a namespace.
const CLONE_NEW_ANY: u32 = 0x7e02_0080;

const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const AF_NETLINK: u32 = 16;

/// The kernel masks a socket's type like this; the rest are flags.
const SOCKET_TYPE: u32 = 0xf;
const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;

/// "Whatever the type says", and NETLINK_ROUTE in the netlink family.
const PROTOCOL_DEFAULT: u32 = 0;
const IPPROTO_TCP: u32 = 6;
const IPPROTO_UDP: u32 = 17;

const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;

const fn on(argument: u8, mask: u32, test: Test, refuse: u16) -> Condition {
    Condition { argument, mask, test, refuse }
}

const fn only(values: &'static [u32], condition: Condition) -> Guarded {
    Guarded { only: Some(Guard { argument: 0, values }), condition }
}

/// What socket(2) takes: the family first, then what is left of that family.
const SOCKET_CONDITIONS: &[Guarded] = &[
    Guarded {
        only: None,
        condition: on(
            0,
            u32::MAX,
            Test::In(&[AF_UNIX, AF_INET, AF_INET6, AF_NETLINK]),
            EAFNOSUPPORT,
        ),
    },
    only(&[AF_NETLINK], on(2, u32::MAX, Test::In(&[PROTOCOL_DEFAULT]), EPROTONOSUPPORT)),
    only(
        &[AF_INET, AF_INET6],
        on(1, SOCKET_TYPE, Test::In(&[SOCK_STREAM, SOCK_DGRAM]), EPERM),
    ),
    only(
        &[AF_INET, AF_INET6],
        on(
            2,
            u32::MAX,
            Test::In(&[PROTOCOL_DEFAULT, IPPROTO_TCP, IPPROTO_UDP]),
            EPROTONOSUPPORT,
        ),
    ),
];

/// The calls that depend on an argument.
pub const CONDITIONAL: &[Conditional] = &[
    Conditional {
        call: libc_call::CLONE,
        action: Action::If(on(0, CLONE_NEW_ANY, Test::In(&[0]), EPERM)),
        reason: "threads and processes, but no namespaces: inside one of its own a program \
                 would have capabilities and reach kernel code that assumes an administrator",
    },
    Conditional {
        call: libc_call::UNSHARE,
        action: Action::If(on(0, CLONE_NEW_ANY, Test::In(&[0]), EPERM)),
        reason: "the same for the process itself",
    },
    Conditional {
        call: libc_call::SOCKET,
        action: Action::All(SOCKET_CONDITIONS),
        reason: "vsock, packet, Bluetooth and most other families can be opened without any \
                 capability and are seldom audited; so can eleven kinds of netlink, of which \
                 programs need the one that tells of devices and routes; of the internet's \
                 protocols TCP and UDP are left, since raw sockets forge packets, SCTP is loaded \
                 as a module when first asked for, and MPTCP passes rules that are made for TCP",
    },
    Conditional {
        call: libc_call::SOCKETPAIR,
        action: Action::If(on(0, u32::MAX, Test::In(&[AF_UNIX]), EAFNOSUPPORT)),
        reason: "only Unix sockets have useful pairs",
    },
    Conditional {
        call: libc_call::IOCTL,
        action: Action::If(on(1, u32::MAX, Test::NotIn(&[TIOCSTI, TIOCLINUX]), EPERM)),
        reason: "pushing characters into a terminal's input lets a program type into the shell \
                 that started it (CVE-2017-5226)",
    },
    Conditional {
        call: libc_call::PERSONALITY,
        action: Action::If(on(0, u32::MAX, Test::In(&[0, 0x0004_0000, 0xffff_ffff]), EPERM)),
        reason: "debuggers switch address randomisation off; other personalities weaken memory \
                 protection",
    },
];

/// The numbers that the table above needs, by architecture.
mod libc_call {
    #[cfg(target_arch = "x86_64")]
    pub(super) const CLONE: i64 = 56;
    #[cfg(target_arch = "x86_64")]
    pub(super) const UNSHARE: i64 = 272;
    #[cfg(target_arch = "x86_64")]
    pub(super) const SOCKET: i64 = 41;
    #[cfg(target_arch = "x86_64")]
    pub(super) const SOCKETPAIR: i64 = 53;
    #[cfg(target_arch = "x86_64")]
    pub(super) const IOCTL: i64 = 16;
    #[cfg(target_arch = "x86_64")]
    pub(super) const PERSONALITY: i64 = 135;
    #[cfg(target_arch = "aarch64")]
    pub(super) const CLONE: i64 = 220;
    #[cfg(target_arch = "aarch64")]
    pub(super) const UNSHARE: i64 = 97;
    #[cfg(target_arch = "aarch64")]
    pub(super) const SOCKET: i64 = 198;
    #[cfg(target_arch = "aarch64")]
    pub(super) const SOCKETPAIR: i64 = 199;
    #[cfg(target_arch = "aarch64")]
    pub(super) const IOCTL: i64 = 29;
    #[cfg(target_arch = "aarch64")]
    pub(super) const PERSONALITY: i64 = 92;
}

/// The rules for a program; the last rule for a call counts.
#[must_use]
pub fn rules(deny_debugging: bool, deny_sockets: bool) -> Vec<Rule> {
    let mut rules = Vec::with_capacity(512);
    for group in ALLOWED {
        rules.extend(group.calls.iter().map(|call| rule(*call, Action::Allow)));
    }
    for group in REFUSED {
        let refusal = Action::Refuse(group.error);
        rules.extend(group.calls.iter().map(|call| rule(*call, refusal)));
    }
    for one in CONDITIONAL {
        rules.push(rule(one.call, one.action));
    }
    if deny_debugging {
        rules.extend(calls::DEBUGGING.iter().map(|call| rule(*call, Action::Refuse(EPERM))));
    }
    if deny_sockets {
        let only_unix = on(0, u32::MAX, Test::In(&[AF_UNIX]), EAFNOSUPPORT);
        rules.push(rule(libc_call::SOCKET, Action::If(only_unix)));
    }
    rules
}

/// The filter for a program.
#[must_use]
pub fn program(deny_debugging: bool, deny_sockets: bool) -> Vec<Instruction> {
    assemble(&rules(deny_debugging, deny_sockets), ENOSYS)
}

const fn rule(call: i64, action: Action) -> Rule {
    Rule { call: call as u32, action }
}
