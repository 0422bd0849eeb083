//! The system calls that a program in the sandbox can make, as data with reasons.
//!
//! The filter is an allow-list: a call that no group below names fails as if the kernel did not
//! have it (ENOSYS), so that programs fall back. Calls refused on purpose fail with EPERM, for the
//! given reason.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use atoll_sys::seccomp::{
    Action, Call, Condition, Guard, Guarded, Instruction, NONE, Rule, Test, assemble, call, on,
    without_listener,
};

mod calls;

pub use calls::{
    ALLOWED, ATTEMPTS, CONDITIONAL, Conditional, Group, NEEDED, Needed, Process, REFUSED,
};
use calls::{NESTING, NO_MEMORY_PROGRAMS, NO_SOCKETS};

const EPERM: u16 = 1;
const ENOSYS: u16 = 38;
const EPROTONOSUPPORT: u16 = 93;
const EAFNOSUPPORT: u16 = 97;

/// A boundary's refusals beyond the fixed rules, and its permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Denials {
    /// Refuses debugging of other processes.
    pub debugging: bool,
    /// Refuses internet sockets.
    pub sockets: bool,
    /// Refuses set-user-id and set-group-id files.
    pub set_id: bool,
    /// Refuses programs that are not in a file.
    pub memory_programs: bool,
    /// Set in a fence: of the calls that only namespaces would make harmless, some are refused,
    /// some judged.
    pub fenced: bool,
    /// In a fence: DNS is available, on sockets that are judged.
    pub routed: bool,
    /// The opposite of a refusal: creating namespaces, and the calls to use them, are allowed.
    pub nesting: bool,
}

impl Denials {
    /// Returns the refusals of a description.
    #[must_use]
    pub fn of(spec: &atoll_frame::SandboxSpec) -> Self {
        Self {
            debugging: spec.deny_debugging,
            sockets: spec.deny_sockets,
            set_id: spec.deny_set_id,
            memory_programs: spec.deny_memory_programs,
            fenced: spec.fenced,
            routed: spec.fenced && spec.funnel.is_some(),
            nesting: spec.nesting != atoll_frame::Nesting::Refused,
        }
    }

    /// Returns whether calls come to `init`. A process has one listener at most, and a program that
    /// makes sandboxes of its own may need it: then the calls fail at once, unreported.
    #[must_use]
    pub fn are_heard(self) -> bool {
        self.fenced || !self.nesting
    }
}

/// Requires that S_ISUID and S_ISGID are not set in an argument.
const fn no_set_id(argument: u8) -> Condition {
    on(argument, 0o6000, Test::In(&[0]), EPERM)
}

/// Requires the same of a call that may create a file: only then is there a mode.
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

/// Calls that could set the set-id bits. Where files are the host's own, a file that takes its
/// owner's rights would be a way in for other users of the host. The mode of openat2 lies behind a
/// pointer.
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

/// Returns the rules for a program; the last rule for a call applies.
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
    for group in ATTEMPTS {
        for call in group.calls {
            add(call, Action::Tell(group.error));
        }
    }
    for one in CONDITIONAL {
        add(&one.call, one.action);
    }
    if denials.debugging {
        for call in calls::DEBUGGING {
            add(call, Action::Tell(EPERM));
        }
        for call in calls::COMPARING {
            add(call, Action::Refuse(EPERM));
        }
    }
    let asked_for = [
        (denials.sockets, NO_SOCKETS),
        (denials.set_id, NO_SET_ID),
        (denials.memory_programs, NO_MEMORY_PROGRAMS),
        (denials.fenced, atoll_fence::REFUSED),
        (denials.fenced && denials.routed, atoll_fence::ROUTED),
        // Where nothing else holds what a namespace would get around.
        (denials.nesting && !denials.fenced, NESTING),
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

/// A call that can come to the holder of a program's filter listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coming {
    /// The name.
    pub name: &'static str,
    /// The number on this architecture.
    pub number: u32,
    /// The error with which it fails, unless it is judged.
    pub error: u16,
}

/// Returns all calls that can come to the listener.
#[must_use]
pub fn coming(denials: Denials) -> Vec<Coming> {
    // The last rule for a call counts.
    let rules: BTreeMap<u32, Action> = rules(denials)
        .iter()
        .map(|rule| (rule.call, rule.action))
        .collect();
    let groups = ALLOWED.iter().chain(REFUSED).chain(ATTEMPTS);
    let grouped = groups.flat_map(|group| group.calls);
    let judged = atoll_fence::JUDGED.iter().map(|(call, _)| call);
    let named: BTreeMap<u32, &'static str> = grouped
        .chain(CONDITIONAL.iter().map(|one| &one.call))
        .chain(judged)
        .filter_map(|call| Some((call.number()?, call.name)))
        .collect();
    let coming = rules.into_iter().filter_map(|(number, action)| {
        let name = *named.get(&number)?;
        told(action).map(|error| Coming {
            name,
            number,
            error,
        })
    });
    coming.collect()
}

/// Returns the error of a call that can come to the listener.
fn told(action: Action) -> Option<u16> {
    let by = |one: &Condition| one.tell.then_some(one.refuse);
    match action {
        Action::Tell(error) => Some(error),
        Action::If(condition) => by(&condition),
        Action::All(conditions) => conditions.iter().find_map(|one| by(&one.condition)),
        Action::Judge => Some(EPERM),
        Action::Allow | Action::Refuse(_) => None,
    }
}

/// Filters that nearly every sandbox needs.
struct Usual {
    program: Vec<Instruction>,
    own: Vec<(Process, Vec<Instruction>)>,
}

static USUAL: OnceLock<Usual> = OnceLock::new();

/// Assembles the filters that nearly every sandbox needs: a launcher does so while it waits for its
/// description, and the processes that it makes inherit them.
pub fn make_usual() {
    const PROCESSES: [Process; 3] = [Process::Launcher, Process::Init, Process::Counting];
    let _ = USUAL.get_or_init(|| Usual {
        program: assemble(&rules(Denials::default()), ENOSYS),
        own: PROCESSES.map(|one| (one, own(one))).to_vec(),
    });
}

/// Returns the filter for a program.
#[must_use]
pub fn program(denials: Denials) -> Vec<Instruction> {
    match USUAL.get() {
        Some(usual) if denials == Denials::default() => usual.program.clone(),
        Some(_) | None if denials.are_heard() => assemble(&rules(denials), ENOSYS),
        Some(_) | None => without_listener(assemble(&rules(denials), ENOSYS)),
    }
}

/// Returns the rules for one of Atoll's own processes, once a program runs beside it; the last one
/// for a call applies.
#[must_use]
pub fn own_rules(process: Process) -> Vec<Rule> {
    let needed = NEEDED.iter().filter(|needed| needed.by.contains(&process));
    let rules = needed.flat_map(|needed| {
        let numbers = needed.calls.iter().filter_map(Call::number);
        numbers.map(|call| Rule {
            call,
            action: needed.action,
        })
    });
    rules.collect()
}

/// Returns the filter for one of Atoll's own processes, which also confines whoever takes it over.
#[must_use]
pub fn own(process: Process) -> Vec<Instruction> {
    let mut usual = USUAL.get().into_iter().flat_map(|usual| &usual.own);
    match usual.find(|(one, _)| *one == process) {
        Some((_, filter)) => filter.clone(),
        None => assemble(&own_rules(process), EPERM),
    }
}
