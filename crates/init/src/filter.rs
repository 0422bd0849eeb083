//! Which system calls a program inside can make, as data with reasons.
//!
//! The filter is an allow-list: a call that no group below names fails as if
//! the kernel did not have it (ENOSYS), so that programs fall back. Calls that
//! are refused on purpose fail with EPERM, for their reason.

use atoll_sys::seccomp::{
    Action, Call, Condition, Guard, Guarded, Instruction, NONE, Rule, Test, always, assemble, call,
    on, only,
};

mod calls;
mod needed;
mod own;

pub use calls::{ALLOWED, Group, REFUSED};
pub use needed::NEEDED;
pub use own::{Needed, Process, own, own_rules};

const EPERM: u16 = 1;
const ENOSYS: u16 = 38;
const EPROTONOSUPPORT: u16 = 93;
const EAFNOSUPPORT: u16 = 97;

/// A call that is allowed only with some arguments, and why.
#[derive(Clone, Copy, Debug)]
pub struct Conditional {
    /// The call.
    pub call: Call,
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
    only(
        &[AF_NETLINK],
        on(2, u32::MAX, Test::In(&[PROTOCOL_DEFAULT]), EPROTONOSUPPORT),
    ),
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

const INIT_IS_OUT_OF_REACH: &str = "process 1 has the program's user id and holds its limits: without descriptors or \
     processor time it could not";

const PRIO_USER: u32 = 2;
const IOPRIO_WHO_USER: u32 = 3;

/// The first argument is a process, and not the first one.
const NOT_INIT: Condition = on(0, u32::MAX, Test::NotIn(&[1]), EPERM);

/// Neither all processes of the user, nor the first one or its group.
const NOT_INIT_BY_PRIORITY: &[Guarded] = &[
    always(on(0, u32::MAX, Test::NotIn(&[PRIO_USER]), EPERM)),
    always(on(1, u32::MAX, Test::NotIn(&[1]), EPERM)),
];
const NOT_INIT_BY_IO_PRIORITY: &[Guarded] = &[
    always(on(0, u32::MAX, Test::NotIn(&[IOPRIO_WHO_USER]), EPERM)),
    always(on(1, u32::MAX, Test::NotIn(&[1]), EPERM)),
];

/// The calls that depend on an argument.
pub const CONDITIONAL: &[Conditional] = &[
    Conditional {
        call: call("clone", 56, 220),
        action: Action::If(on(0, CLONE_NEW_ANY, Test::In(&[0]), EPERM)),
        reason: "threads and processes, but no namespaces: inside one of its own a program \
                 would have capabilities and reach kernel code that assumes an administrator",
    },
    Conditional {
        call: call("unshare", 272, 97),
        action: Action::If(on(0, CLONE_NEW_ANY, Test::In(&[0]), EPERM)),
        reason: "the same for the process itself",
    },
    Conditional {
        call: call("socket", 41, 198),
        action: Action::All(SOCKET_CONDITIONS),
        reason: "vsock, packet, Bluetooth and most other families can be opened without any \
                 capability and are seldom audited; so can eleven kinds of netlink, of which \
                 programs need the one that tells of devices and routes; of the internet's \
                 protocols TCP and UDP are left, since raw sockets forge packets, SCTP is loaded \
                 as a module when first asked for, and MPTCP passes rules that are made for TCP",
    },
    Conditional {
        call: call("socketpair", 53, 199),
        action: Action::If(on(0, u32::MAX, Test::In(&[AF_UNIX]), EAFNOSUPPORT)),
        reason: "only Unix sockets have useful pairs",
    },
    Conditional {
        call: call("ioctl", 16, 29),
        action: Action::If(on(1, u32::MAX, Test::NotIn(&[TIOCSTI, TIOCLINUX]), EPERM)),
        reason: "pushing characters into a terminal's input lets a program type into the shell \
                 that started it (CVE-2017-5226)",
    },
    Conditional {
        call: call("personality", 135, 92),
        action: Action::If(on(
            0,
            u32::MAX,
            Test::In(&[0, 0x0004_0000, 0xffff_ffff]),
            EPERM,
        )),
        reason: "debuggers switch address randomisation off; other personalities weaken memory \
                 protection",
    },
    Conditional {
        call: call("prlimit64", 302, 261),
        action: Action::If(NOT_INIT),
        reason: INIT_IS_OUT_OF_REACH,
    },
    Conditional {
        call: call("sched_setaffinity", 203, 122),
        action: Action::If(NOT_INIT),
        reason: INIT_IS_OUT_OF_REACH,
    },
    Conditional {
        call: call("sched_setscheduler", 144, 119),
        action: Action::If(NOT_INIT),
        reason: INIT_IS_OUT_OF_REACH,
    },
    Conditional {
        call: call("sched_setparam", 142, 118),
        action: Action::If(NOT_INIT),
        reason: INIT_IS_OUT_OF_REACH,
    },
    Conditional {
        call: call("sched_setattr", 314, 274),
        action: Action::If(NOT_INIT),
        reason: INIT_IS_OUT_OF_REACH,
    },
    Conditional {
        call: call("setpriority", 141, 140),
        action: Action::All(NOT_INIT_BY_PRIORITY),
        reason: INIT_IS_OUT_OF_REACH,
    },
    Conditional {
        call: call("ioprio_set", 251, 30),
        action: Action::All(NOT_INIT_BY_IO_PRIORITY),
        reason: INIT_IS_OUT_OF_REACH,
    },
];

/// What a boundary can refuse beyond the fixed rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Denials {
    /// Debugging of other processes.
    pub debugging: bool,
    /// Internet sockets.
    pub sockets: bool,
    /// Set-user-id and set-group-id files.
    pub set_id: bool,
    /// Programs that are no file.
    pub memory_programs: bool,
    /// What only namespaces hold: some is refused, some is judged.
    pub fenced: bool,
}

impl Denials {
    /// What a description refuses.
    #[must_use]
    pub fn of(spec: &atoll_frame::Spec) -> Self {
        Self {
            debugging: spec.deny_debugging,
            sockets: spec.deny_sockets,
            set_id: spec.deny_set_id,
            memory_programs: spec.deny_memory_programs,
            fenced: spec.fenced,
        }
    }
}

/// S_ISUID and S_ISGID are not set in an argument.
const fn no_set_id(argument: u8) -> Condition {
    on(argument, 0o6000, Test::In(&[0]), EPERM)
}

/// The same where the call may create a file: only then is there a mode.
const fn no_set_id_if_created(flags: u8, mode: u8) -> [Guarded; 1] {
    const CREATES: &[u32] = &[0o100, 0o20_000_000, 0o20_000_100];
    let guard = Guard {
        argument: flags,
        mask: 0o20_000_100,
        values: CREATES,
    };
    [Guarded {
        only: Some(guard),
        condition: no_set_id(mode),
    }]
}

/// Where files are the host's own, a file that takes its owner's rights would be
/// a way in for other users of the host. The mode of openat2 lies behind a pointer.
#[rustfmt::skip]
const NO_SET_ID: &[(Call, Action)] = &[
    (call("open", 2, NONE), Action::All(&no_set_id_if_created(1, 2))),
    (call("mkdir", 83, NONE), Action::If(no_set_id(1))),
    (call("creat", 85, NONE), Action::If(no_set_id(1))),
    (call("chmod", 90, NONE), Action::If(no_set_id(1))),
    (call("fchmod", 91, 52), Action::If(no_set_id(1))),
    (call("mknod", 133, NONE), Action::If(no_set_id(1))),
    (call("openat", 257, 56), Action::All(&no_set_id_if_created(2, 3))),
    (call("mkdirat", 258, 34), Action::If(no_set_id(2))),
    (call("mknodat", 259, 33), Action::If(no_set_id(2))),
    (call("fchmodat", 268, 53), Action::If(no_set_id(2))),
    (call("openat2", 437, 437), Action::Refuse(ENOSYS)),
];

/// Where only listed files may be executed: no file without a name is.
const NO_MEMORY_PROGRAMS: &[(Call, Action)] = &[
    (call("memfd_create", 319, 279), Action::Refuse(EPERM)),
    (
        call("execveat", 322, 281),
        Action::If(on(4, 0x1000, Test::In(&[0]), EPERM)),
    ),
];

/// No socket but those of Unix.
const NO_SOCKETS: &[(Call, Action)] = &[(
    call("socket", 41, 198),
    Action::If(on(0, u32::MAX, Test::In(&[AF_UNIX]), EAFNOSUPPORT)),
)];

/// The rules for a program; the last rule for a call counts.
#[must_use]
pub fn rules(denials: Denials) -> Vec<Rule> {
    let mut rules = Vec::with_capacity(512);
    let mut add = |call: &Call, action| {
        rules.extend(call.number().map(|call| Rule { call, action }));
    };
    for group in ALLOWED.iter().chain(REFUSED) {
        let action = match group.error {
            0 => Action::Allow,
            error => Action::Refuse(error),
        };
        group.calls.iter().for_each(|call| add(call, action));
    }
    for one in CONDITIONAL {
        add(&one.call, one.action);
    }
    if denials.debugging {
        for call in calls::DEBUGGING {
            add(call, Action::Refuse(EPERM));
        }
    }
    let asked_for = [
        (denials.sockets, NO_SOCKETS),
        (denials.set_id, NO_SET_ID),
        (denials.memory_programs, NO_MEMORY_PROGRAMS),
        (denials.fenced, atoll_fence::REFUSED),
    ];
    for (_, table) in asked_for.iter().filter(|(asked, _)| *asked) {
        table.iter().for_each(|(call, action)| add(call, *action));
    }
    if denials.fenced {
        for call in calls::IPC {
            add(call, Action::Refuse(ENOSYS));
        }
        for (call, _) in atoll_fence::JUDGED {
            add(call, Action::Judge);
        }
        // Both narrow the same call, and neither may widen what the other has left.
        if denials.sockets {
            let (call, action) = atoll_fence::NO_INTERNET;
            add(&call, action);
        }
    }
    rules
}

/// The filter for a program.
#[must_use]
pub fn program(denials: Denials) -> Vec<Instruction> {
    assemble(&rules(denials), ENOSYS)
}
