use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use atoll_model::TOLD_CALLS;
use atoll_sys::seccomp::{Action, Call, NONE, assemble};

use super::interpreter::{Seen, Verdict, run};
use crate::filter::{
    ALLOWED, ATTEMPTS, CONDITIONAL, Denials, Group, REFUSED, coming, program, rules,
};

#[cfg(target_arch = "x86_64")]
const HERE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const HERE: u32 = 0xC000_00B7;

const EPERM: Verdict = Verdict::Error(1);
const ENOSYS: Verdict = Verdict::Error(38);
const EPROTONOSUPPORT: Verdict = Verdict::Error(93);
const EAFNOSUPPORT: Verdict = Verdict::Error(97);

/// Calls that only x86-64 has: its own devices, and calls of which later architectures have only
/// the newer form (`asm-generic/unistd.h`).
const ONLY_X86: [&str; 39] = [
    "access",
    "alarm",
    "arch_prctl",
    "chmod",
    "chown",
    "creat",
    "dup2",
    "epoll_create",
    "epoll_wait",
    "eventfd",
    "fork",
    "futimesat",
    "getdents",
    "getpgrp",
    "inotify_init",
    "ioperm",
    "iopl",
    "lchown",
    "link",
    "lstat",
    "mkdir",
    "mknod",
    "modify_ldt",
    "open",
    "pause",
    "pipe",
    "poll",
    "readlink",
    "rename",
    "rmdir",
    "select",
    "signalfd",
    "stat",
    "symlink",
    "time",
    "unlink",
    "utime",
    "utimes",
    "vfork",
];

/// Returns every call, with its group.
fn grouped() -> impl Iterator<Item = (&'static Group, &'static Call)> {
    let groups = ALLOWED.iter().chain(REFUSED).chain(ATTEMPTS);
    groups.flat_map(|group| group.calls.iter().map(move |call| (group, call)))
}

/// Returns the numbers of calls on this architecture, by name.
fn numbers() -> BTreeMap<&'static str, u32> {
    grouped()
        .map(|(_, call)| call)
        .chain(CONDITIONAL.iter().map(|one| &one.call))
        .filter_map(|call| Some((call.name, call.number()?)))
        .collect()
}

/// Returns the verdict that a caller sees: for a call that comes to `init`, its answer, unless the
/// call is judged.
fn says(filter: &[super::Instruction], call: u32, arguments: [u64; 6]) -> Verdict {
    let mut judged = atoll_fence::JUDGED.iter();
    let is_judged = judged.any(|(one, _)| one.number() == Some(call));
    match at_once(filter, call, arguments) {
        Verdict::Judge if !is_judged => Verdict::Error(answers()[&call]),
        other => other,
    }
}

/// Returns the error of each call that is reported.
fn answers() -> &'static BTreeMap<u32, u16> {
    static ANSWERS: LazyLock<BTreeMap<u32, u16>> = LazyLock::new(|| {
        let everything = every_boundary().flat_map(coming);
        everything.map(|one| (one.number, one.error)).collect()
    });
    &ANSWERS
}

fn at_once(filter: &[super::Instruction], call: u32, arguments: [u64; 6]) -> Verdict {
    run(
        filter,
        &Seen {
            call,
            architecture: HERE,
            arguments,
        },
    )
    .verdict
}

/// Returns all filters that a boundary can request.
fn every_filter() -> Vec<Vec<super::Instruction>> {
    every_boundary().map(program).collect()
}

fn every_boundary() -> impl Iterator<Item = Denials> {
    (0..64_u8).map(|bits| Denials {
        debugging: bits & 1 != 0,
        sockets: bits & 2 != 0,
        set_id: bits & 4 != 0,
        memory_programs: bits & 8 != 0,
        fenced: bits & 16 != 0,
        routed: bits & 32 != 0,
        nesting: false,
    })
}

#[test]
fn attempts_are_told_of_and_what_honest_programs_try_is_not() {
    let numbers = numbers();
    let told: &[(&str, [u64; 6], u16)] = &[
        ("mount", [0; 6], 1),
        ("fsopen", [0; 6], 1),
        ("chroot", [0; 6], 1),
        ("setns", [3, 0, 0, 0, 0, 0], 1),
        ("unshare", [0x1000_0000, 0, 0, 0, 0, 0], 1),
        ("clone", [0x1000_0011, 0, 0, 0, 0, 0], 1),
        ("keyctl", [0; 6], 1),
        ("bpf", [0; 6], 1),
        ("userfaultfd", [0; 6], 1),
        ("init_module", [0; 6], 1),
        ("open_by_handle_at", [0; 6], 1),
        ("fanotify_init", [0; 6], 1),
        ("pidfd_getfd", [0; 6], 1),
        ("socket", [40, 1, 0, 0, 0, 0], 97),
        ("socket", [17, 3, 0, 0, 0, 0], 97),
        ("ioctl", [0, 0x5412, 0, 0, 0, 0], 1),
    ];
    let not_told: &[(&str, [u64; 6])] = &[
        ("clone3", [0; 6]),
        ("io_uring_setup", [0; 6]),
        ("io_setup", [0; 6]),
        ("syslog", [0; 6]),
        ("statmount", [0; 6]),
        ("name_to_handle_at", [0; 6]),
        ("memfd_secret", [0; 6]),
        ("move_pages", [0; 6]),
        ("personality", [8, 0, 0, 0, 0, 0]),
        ("socket", [0, 1, 0, 0, 0, 0]),
        // Raw for ping; netlink for lists of sockets, devices that come, accounts.
        ("socket", [2, 3, 1, 0, 0, 0]),
        ("socket", [16, 3, 4, 0, 0, 0]),
        ("socket", [16, 3, 15, 0, 0, 0]),
        ("socket", [16, 3, 9, 0, 0, 0]),
        ("socketpair", [2, 1, 0, 0, 0, 0]),
        ("ioctl", [0, 0x541c, 0, 0, 0, 0]),
    ];
    for denials in every_boundary() {
        let filter = program(denials);
        let coming = coming(denials);
        for (name, arguments, error) in told {
            let verdict = at_once(&filter, numbers[name], *arguments);
            assert_eq!(verdict, Verdict::Judge, "{name} {arguments:x?}");
            let known = coming.iter().find(|one| one.number == numbers[name]);
            let known = known.map(|one| (one.name, one.error));
            assert_eq!(known, Some((*name, *error)), "{name}");
        }
        for (name, arguments) in not_told {
            let verdict = at_once(&filter, numbers[name], *arguments);
            assert!(matches!(verdict, Verdict::Error(_)), "{name} {verdict:?}");
        }
    }
}

/// All reported refusals of a call have one error: `init` does not learn which of them it was.
#[test]
fn every_call_that_comes_is_known_to_the_host_side_and_has_one_error() {
    let known: BTreeSet<&str> = TOLD_CALLS.iter().map(|(name, _)| *name).collect();
    assert_eq!(known.len(), TOLD_CALLS.len(), "a name stands twice");
    let mut all = BTreeSet::new();
    for denials in every_boundary() {
        let rules: BTreeMap<u32, Action> = rules(denials)
            .iter()
            .map(|rule| (rule.call, rule.action))
            .collect();
        let coming = coming(denials);
        for one in &coming {
            let errors: BTreeSet<u16> = match rules[&one.number] {
                Action::Tell(error) => BTreeSet::from([error]),
                Action::If(one) => BTreeSet::from([one.refuse]),
                Action::All(conditions) => {
                    let told = conditions.iter().filter(|one| one.condition.tell);
                    told.map(|one| one.condition.refuse).collect()
                }
                Action::Judge => BTreeSet::from([1]),
                Action::Allow | Action::Refuse(_) => BTreeSet::new(),
            };
            assert_eq!(errors, BTreeSet::from([one.error]), "{one:?}");
            assert!(one.name.len() <= 32);
        }
        // Judged calls that no fence reports are answered like any other.
        let reported = coming.iter().map(|one| one.name);
        all.extend(reported.filter(|name| {
            let judged = atoll_fence::JUDGED.iter().map(|(call, _)| call);
            let mut judged = judged.chain(atoll_fence::ROUTED.iter().map(|(call, _)| call));
            !judged.any(|call| call.name == *name) || known.contains(name)
        }));
    }
    assert_eq!(all, known);
    assert_eq!(
        answers().len(),
        every_boundary()
            .flat_map(coming)
            .map(|one| (one.number, one.error))
            .collect::<BTreeSet<_>>()
            .len(),
        "the same call fails in two ways"
    );
}

#[test]
fn the_filter_is_what_was_reviewed() {
    let plain = lines(Denials::default());
    let whole: String = plain.values().cloned().collect();
    let fenced = lines(Denials {
        fenced: true,
        ..Denials::default()
    });
    let changed = fenced
        .iter()
        .filter(|(call, line)| plain.get(call) != Some(line));
    let changed: String = changed.map(|(_, line)| line.as_str()).collect();
    assert!(plain.keys().all(|call| fenced.contains_key(call)));
    let nested = lines(Denials {
        nesting: true,
        ..Denials::default()
    });
    let given = nested
        .iter()
        .filter(|(call, line)| plain.get(call) != Some(line));
    let given: String = given.map(|(_, line)| line.as_str()).collect();
    let routed = lines(Denials {
        fenced: true,
        routed: true,
        ..Denials::default()
    });
    let routed = routed
        .iter()
        .filter(|(call, line)| fenced.get(call) != Some(line));
    let routed: String = routed.map(|(_, line)| line.as_str()).collect();
    for (text, file) in [
        (whole, "filter"),
        (changed, "filter-fence"),
        (routed, "filter-fence-network"),
        (given, "filter-nesting"),
    ] {
        let path = format!("src/golden/{file}-{}.txt", std::env::consts::ARCH);
        if std::env::var_os("ATOLL_UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(
            text,
            std::fs::read_to_string(&path).unwrap(),
            "a change of the filter is reviewed as a change of {path}"
        );
    }
}

/// Describes a filter, one text per call.
fn lines(denials: Denials) -> BTreeMap<u32, String> {
    let mut names: BTreeMap<u32, &str> = numbers()
        .into_iter()
        .map(|(name, number)| (number, name))
        .collect();
    names.extend(fence_names());
    let mut lines = BTreeMap::new();
    for rule in rules(denials) {
        let action = match rule.action {
            Action::Allow => "allow".to_owned(),
            Action::Judge => "judge".to_owned(),
            Action::Refuse(error) => format!("refuse {error}"),
            Action::Tell(error) => format!("tell {error}"),
            Action::If(condition) => format!("if {condition:?}"),
            Action::All(conditions) => conditions
                .iter()
                .map(|one| format!("\n     {one:?}"))
                .fold("all".to_owned(), |text, one| text + &one),
        };
        let action = action.replace(", tell: false", "");
        let line = format!("{:4} {} {action}\n", rule.call, names[&rule.call]);
        lines.insert(rule.call, line);
    }
    lines
}

/// Returns the numbers of the calls that only a fence names.
fn fence_names() -> impl Iterator<Item = (u32, &'static str)> {
    let refused = atoll_fence::REFUSED.iter().map(|(call, _)| call);
    let judged = atoll_fence::JUDGED.iter().map(|(call, _)| call);
    refused
        .chain(judged)
        .filter_map(|call| Some((call.number()?, call.name)))
}

#[test]
fn calls_of_a_fence_have_the_numbers_that_they_have_elsewhere() {
    let numbers = numbers();
    for (number, name) in fence_names() {
        let known = numbers.get(name).copied();
        assert!(known.is_none_or(|known| known == number), "{name}");
        let taken = numbers.iter().find(|(_, known)| **known == number);
        assert!(taken.is_none_or(|(known, _)| *known == name), "{name}");
    }
}

#[test]
fn a_fence_judges_what_namespaces_would_hold() {
    let numbers: BTreeMap<&str, u32> = fence_names().map(|(number, name)| (name, number)).collect();
    let all = numbers
        .iter()
        .chain(&self::numbers())
        .map(|(n, c)| (*n, *c))
        .collect::<BTreeMap<_, _>>();
    const UNIX: u64 = 1;
    const INET: u64 = 2;
    const STREAM: u64 = 1;
    const DATAGRAM: u64 = 2;
    const SEQUENCED: u64 = 5;
    const FASTOPEN: u64 = 0x2000_0000;
    let refused = |error| Verdict::Error(error);
    let cases = [
        ("connect", [3, 0, 0, 0, 0, 0], Verdict::Judge),
        ("bind", [3, 0, 0, 0, 0, 0], Verdict::Judge),
        ("listen", [3, 0, 0, 0, 0, 0], Verdict::Judge),
        ("fchmod", [3, 0o644, 0, 0, 0, 0], Verdict::Judge),
        ("utimensat", [0; 6], Verdict::Judge),
        ("setxattr", [0; 6], Verdict::Judge),
        ("inotify_add_watch", [0; 6], Verdict::Judge),
        ("socket", [UNIX, STREAM, 0, 0, 0, 0], Verdict::Allow),
        ("socket", [UNIX, SEQUENCED, 0, 0, 0, 0], Verdict::Allow),
        ("socket", [INET, STREAM, 6, 0, 0, 0], Verdict::Allow),
        ("socket", [UNIX, DATAGRAM, 0, 0, 0, 0], refused(93)),
        ("socket", [INET, DATAGRAM, 0, 0, 0, 0], refused(93)),
        ("socket", [INET, SEQUENCED, 0, 0, 0, 0], refused(93)),
        ("socket", [INET, STREAM, 262, 0, 0, 0], refused(93)),
        ("socket", [16, 3, 0, 0, 0, 0], refused(97)),
        ("socketpair", [UNIX, STREAM, 0, 0, 0, 0], Verdict::Allow),
        ("socketpair", [UNIX, DATAGRAM, 0, 0, 0, 0], refused(93)),
        ("sendto", [3, 0, 0, 0x4000, 0, 0], Verdict::Allow),
        ("sendto", [3, 0, 0, FASTOPEN, 0, 0], EPERM),
        (
            "sendto",
            [3, 0, 0, FASTOPEN | 0x4000 | 1 << 40, 0, 0],
            EPERM,
        ),
        ("sendmsg", [3, 0, FASTOPEN, 0, 0, 0], EPERM),
        ("sendmmsg", [3, 0, 1, FASTOPEN, 0, 0], EPERM),
        ("ioctl", [0, 0x5401, 0, 0, 0, 0], Verdict::Allow),
        ("ioctl", [0, 0x5412, 0, 0, 0, 0], EPERM),
        ("ioctl", [0, 0x5412 | 1 << 32, 0, 0, 0, 0], EPERM),
        // Flags of files, reference copies, protection.
        ("ioctl", [0, 0x4008_6602, 0, 0, 0, 0], refused(25)),
        ("ioctl", [0, 0x4004_9409, 0, 0, 0, 0], refused(25)),
        ("ioctl", [0, 0x4080_6685, 0, 0, 0, 0], refused(25)),
        ("prlimit64", [0, 7, 0, 0, 0, 0], Verdict::Allow),
        ("prlimit64", [1234, 7, 0, 0, 0, 0], EPERM),
        ("setpriority", [0, 0, 5, 0, 0, 0], Verdict::Allow),
        ("setpriority", [0, 1234, 5, 0, 0, 0], EPERM),
        ("setpriority", [2, 0, 5, 0, 0, 0], EPERM),
        ("sched_setaffinity", [1234, 8, 0, 0, 0, 0], EPERM),
        ("ioprio_set", [1, 0, 0, 0, 0, 0], Verdict::Allow),
        ("ioprio_set", [3, 0, 0, 0, 0, 0], EPERM),
        ("shmget", [0; 6], ENOSYS),
        ("shmat", [0; 6], ENOSYS),
        ("msgget", [0; 6], ENOSYS),
        ("mq_open", [0; 6], ENOSYS),
        ("pidfd_send_signal", [0; 6], ENOSYS),
        ("setxattrat", [0; 6], ENOSYS),
        ("io_uring_setup", [0; 6], ENOSYS),
        ("unshare", [0x1000_0000, 0, 0, 0, 0, 0], EPERM),
    ];
    let filter = program(Denials {
        fenced: true,
        ..Denials::default()
    });
    for (name, arguments, expected) in cases {
        let call = all[name];
        assert_eq!(
            says(&filter, call, arguments),
            expected,
            "{name} {arguments:x?}"
        );
    }
}

#[test]
fn a_fence_gives_back_nothing_that_a_boundary_refuses() {
    let fenced = |sockets, debugging, memory_programs| {
        program(Denials {
            fenced: true,
            sockets,
            debugging,
            memory_programs,
            set_id: true,
            routed: sockets,
            nesting: false,
        })
    };
    let numbers = numbers();
    let socket = numbers["socket"];
    let without = fenced(true, true, true);
    assert_eq!(says(&without, socket, [1, 1, 0, 0, 0, 0]), Verdict::Allow);
    for [family, kind] in [[1, 2], [2, 1], [10, 1], [2, 2], [16, 3]] {
        let verdict = says(&without, socket, [family, kind, 0, 0, 0, 0]);
        assert!(matches!(verdict, Verdict::Error(_)), "{family} {kind}");
    }
    let with = fenced(false, false, false);
    assert_eq!(says(&with, socket, [2, 1, 0, 0, 0, 0]), Verdict::Allow);
    for name in ["ptrace", "memfd_create"] {
        assert_eq!(says(&without, numbers[name], [0; 6]), EPERM, "{name}");
        assert_eq!(says(&with, numbers[name], [0; 6]), Verdict::Allow, "{name}");
    }
    // The judge itself refuses the bits of set-user-id.
    assert_eq!(
        says(&without, numbers["fchmod"], [3, 0o4755, 0, 0, 0, 0]),
        Verdict::Judge
    );
}

#[test]
fn where_a_fence_leads_outside_only_what_asks_for_names_is_judged_besides() {
    const ENOPROTOOPT: Verdict = Verdict::Error(92);
    const FAST_OPEN: u64 = 0x2000_0000;
    let filter = program(Denials {
        fenced: true,
        routed: true,
        ..Denials::default()
    });
    let flags = 0o2_004_000;
    let cases: &[(&str, [u64; 6], Verdict)] = &[
        ("socket", [2, 1, 0, 0, 0, 0], Verdict::Allow),
        ("socket", [10, 1 | flags, 6, 0, 0, 0], Verdict::Allow),
        ("socket", [1, 1, 0, 0, 0, 0], Verdict::Allow),
        ("socket", [1, 5 | flags, 0, 0, 0, 0], Verdict::Allow),
        ("socket", [2, 2, 0, 0, 0, 0], Verdict::Judge),
        ("socket", [10, 2 | flags, 17, 0, 0, 0], Verdict::Judge),
        // Datagrams of Unix, of other protocols; MPTCP, SCTP, raw, netlink.
        ("socket", [1, 2, 0, 0, 0, 0], EPROTONOSUPPORT),
        ("socket", [2, 2, 1, 0, 0, 0], EPROTONOSUPPORT),
        ("socket", [10, 2, 136, 0, 0, 0], EPROTONOSUPPORT),
        ("socket", [2, 1, 262, 0, 0, 0], EPROTONOSUPPORT),
        ("socket", [2, 5, 132, 0, 0, 0], EPROTONOSUPPORT),
        ("socket", [2, 3, 17, 0, 0, 0], EPROTONOSUPPORT),
        ("socket", [16, 3, 0, 0, 0, 0], EAFNOSUPPORT),
        ("recvfrom", [3, 0, 0, 0, 1, 1], Verdict::Allow),
        ("recvfrom", [959, 0, 0, 0, 1, 1], Verdict::Allow),
        ("recvfrom", [960, 0, 0, 0, 1, 1], Verdict::Judge),
        ("recvmsg", [1023 | 1 << 32, 0, 0, 0, 0, 0], Verdict::Judge),
        ("recvmsg", [1024, 0, 0, 0, 0, 0], Verdict::Allow),
        ("getsockname", [1000, 0, 0, 0, 0, 0], Verdict::Judge),
        ("sendto", [960, 0, 0, 0, 1, 1], Verdict::Judge),
        // What holds elsewhere holds there before.
        ("sendto", [960, 0, 0, FAST_OPEN, 1, 1], EPERM),
        ("sendmsg", [960, 0, FAST_OPEN, 0, 0, 0], EPERM),
        ("sendmmsg", [3, 0, 1, FAST_OPEN, 0, 0], EPERM),
        ("setsockopt", [960, 0, 11, 0, 0, 0], Verdict::Judge),
        ("setsockopt", [3, 0, 11, 0, 0, 0], Verdict::Allow),
        ("setsockopt", [960, 6, 30, 0, 0, 0], ENOPROTOOPT),
        ("setsockopt", [960, 1, 25, 0, 0, 0], ENOPROTOOPT),
    ];
    let numbers = numbers();
    for (name, arguments, expected) in cases {
        let verdict = at_once(&filter, numbers[name], *arguments);
        assert_eq!(verdict, *expected, "{name} {arguments:?}");
    }
}

#[test]
fn every_call_has_one_rule_and_every_rule_a_reason() {
    let mut names = BTreeSet::new();
    for (group, call) in grouped() {
        assert!(group.reason.len() > 10, "{}", group.name);
        assert!(
            names.insert(call.name),
            "{} twice: {}",
            call.name,
            group.name
        );
    }
    for one in CONDITIONAL {
        assert!(one.reason.len() > 10, "{}", one.call.name);
        assert!(names.insert(one.call.name), "{} twice", one.call.name);
    }
    assert!(ALLOWED.iter().all(|group| group.error == 0));
    assert!(REFUSED.iter().chain(ATTEMPTS).all(|group| group.error != 0));
    assert_eq!(rules(Denials::default()).len(), numbers().len());
}

#[test]
fn both_architectures_mean_the_same_calls() {
    let all: Vec<Call> = grouped()
        .map(|(_, call)| *call)
        .chain(CONDITIONAL.iter().map(|one| one.call))
        .collect();
    let of = |number: fn(&Call) -> i64| -> Vec<i64> {
        let there = |number: &i64| *number != NONE;
        all.iter().map(number).filter(there).collect()
    };
    for (numbers, at_least) in [(of(|one| one.x86_64), 300), (of(|one| one.aarch64), 250)] {
        let unique: BTreeSet<&i64> = numbers.iter().collect();
        assert_eq!(unique.len(), numbers.len(), "a number stands twice");
        assert!(numbers.len() > at_least && numbers.iter().all(|number| *number >= 0));
    }
    for call in &all {
        assert!(call.x86_64 != NONE || call.aarch64 != NONE, "{}", call.name);
        // The calls of the common table have one number everywhere.
        assert!(
            call.x86_64 < 424 || call.x86_64 == call.aarch64,
            "{}",
            call.name
        );
    }
    // What is named on one is not merely forgotten on the other.
    let only_x86: BTreeSet<&str> = all
        .iter()
        .filter(|call| call.aarch64 == NONE)
        .map(|call| call.name)
        .collect();
    assert_eq!(only_x86, BTreeSet::from(ONLY_X86));
    assert!(all.iter().all(|call| call.x86_64 != NONE));
}

#[test]
fn the_filter_is_short() {
    for filter in every_filter() {
        assert!(filter.len() < 2_000, "{}", filter.len());
        for call in 0..600 {
            let seen = Seen {
                call,
                architecture: HERE,
                arguments: [0; 6],
            };
            assert!(run(&filter, &seen).comparisons <= 24, "{call}");
        }
        let read = Seen {
            call: numbers()["read"],
            architecture: HERE,
            arguments: [0; 6],
        };
        assert!(run(&filter, &read).comparisons <= 12);
    }
}

#[test]
fn ways_out_are_refused_whatever_their_arguments() {
    let refused = [
        // The kernel's own programs and queues.
        ("io_uring_setup", ENOSYS),
        ("io_uring_enter", ENOSYS),
        ("io_uring_register", ENOSYS),
        ("userfaultfd", EPERM),
        ("bpf", EPERM),
        ("perf_event_open", EPERM),
        // Keys, which are shared by user.
        ("keyctl", EPERM),
        ("add_key", EPERM),
        ("request_key", EPERM),
        // The file tree.
        ("mount", EPERM),
        ("umount2", EPERM),
        ("pivot_root", EPERM),
        ("chroot", EPERM),
        ("open_tree", EPERM),
        ("move_mount", EPERM),
        ("fsopen", EPERM),
        ("fsconfig", EPERM),
        ("fsmount", EPERM),
        ("fspick", EPERM),
        ("mount_setattr", EPERM),
        ("swapon", EPERM),
        ("swapoff", EPERM),
        ("open_by_handle_at", EPERM),
        ("name_to_handle_at", EPERM),
        ("fanotify_init", EPERM),
        // Namespaces and other processes.
        ("setns", EPERM),
        ("clone3", ENOSYS),
        ("pidfd_getfd", EPERM),
        ("move_pages", EPERM),
        ("migrate_pages", EPERM),
        ("memfd_secret", EPERM),
        // The machine.
        ("init_module", EPERM),
        ("finit_module", EPERM),
        ("delete_module", EPERM),
        ("kexec_load", EPERM),
        ("kexec_file_load", EPERM),
        ("reboot", EPERM),
        ("settimeofday", EPERM),
        ("clock_settime", EPERM),
        ("adjtimex", EPERM),
        ("acct", EPERM),
        ("syslog", EPERM),
        ("quotactl", EPERM),
        ("sethostname", EPERM),
        ("vhangup", EPERM),
    ];
    let numbers = numbers();
    for filter in every_filter() {
        for (name, expected) in refused {
            for arguments in [[0; 6], [u64::MAX; 6], [1; 6], [0xffff_ffff_0000_0000; 6]] {
                assert_eq!(says(&filter, numbers[name], arguments), expected, "{name}");
            }
        }
        // Calls that no group names, as a later kernel's are.
        for call in [467, 468, 469, 470, 511, 512, 547, 600, 0x3fff_ffff] {
            assert_eq!(says(&filter, call, [0; 6]), ENOSYS, "{call}");
        }
    }
    #[cfg(target_arch = "x86_64")]
    for filter in every_filter() {
        for name in ["iopl", "ioperm", "modify_ldt"] {
            assert_eq!(says(&filter, numbers[name], [0; 6]), EPERM, "{name}");
        }
        // The same calls by the numbers of x32, and by those of 32-bit programs.
        for call in numbers.values() {
            assert_eq!(says(&filter, call | 0x4000_0000, [0; 6]), ENOSYS);
            let foreign = Seen {
                call: *call,
                architecture: 0x4000_0003,
                arguments: [0; 6],
            };
            assert_eq!(run(&filter, &foreign).verdict, ENOSYS);
        }
    }
}

#[test]
fn debugging_is_refused_where_it_is_asked_for() {
    for name in ["ptrace", "process_vm_readv", "process_vm_writev", "kcmp"] {
        let call = numbers()[name];
        for (deny_debugging, expected) in [(false, Verdict::Allow), (true, EPERM)] {
            for deny_sockets in [false, true] {
                let filter = program(Denials {
                    debugging: deny_debugging,
                    sockets: deny_sockets,
                    ..Denials::default()
                });
                assert_eq!(says(&filter, call, [16, 1, 0, 0, 0, 0]), expected, "{name}");
            }
        }
    }
}

#[test]
fn no_namespace_is_made() {
    const NAMESPACES: [u64; 7] = [
        0x0002_0000, // mounts
        0x0200_0000, // control groups
        0x0400_0000, // host name
        0x0800_0000, // IPC
        0x1000_0000, // users
        0x2000_0000, // processes
        0x4000_0000, // network
    ];
    const THREAD: u64 = 0x003d_0f00;
    let numbers = numbers();
    for filter in every_filter() {
        for name in ["clone", "unshare"] {
            let says = |flags: u64| says(&filter, numbers[name], [flags, 0, 0, 0, 0, 0]);
            for kind in NAMESPACES {
                for with in [0, 17, THREAD, 0x4000, 1 << 40, u64::MAX] {
                    assert_eq!(says(kind | with), EPERM, "{name} {kind:#x} {with:#x}");
                }
            }
            assert_eq!(says(0x80), EPERM, "a namespace of time");
            for harmless in [0, 17, THREAD, 0x4100 | 17, 0x0120_0011, 0x400, 0x200] {
                assert_eq!(says(harmless), Verdict::Allow, "{name} {harmless:#x}");
            }
        }
    }
}

/// Returns all filters of a boundary that allows namespaces.
fn nesting_filters() -> impl Iterator<Item = Vec<super::Instruction>> {
    (0..4_u8).map(|bits| {
        program(Denials {
            debugging: bits & 1 != 0,
            sockets: bits & 2 != 0,
            nesting: true,
            ..Denials::default()
        })
    })
}

#[test]
fn nesting_gives_namespaces_and_mounts_and_nothing_of_the_machine() {
    let numbers = numbers();
    for filter in nesting_filters() {
        let says = |name: &str, arguments: [u64; 6]| says(&filter, numbers[name], arguments);
        for name in [
            "mount",
            "umount2",
            "pivot_root",
            "chroot",
            "setns",
            "fsopen",
            "sethostname",
        ] {
            assert_eq!(says(name, [0; 6]), Verdict::Allow, "{name}");
        }
        for name in ["clone", "unshare"] {
            assert_eq!(says(name, [0x7e02_0000, 0, 0, 0, 0, 0]), Verdict::Allow);
        }
        assert_eq!(says("unshare", [0x80, 0, 0, 0, 0, 0]), EPERM);
        for name in [
            "bpf",
            "perf_event_open",
            "init_module",
            "kexec_load",
            "swapon",
            "reboot",
            "syslog",
            "userfaultfd",
            "open_by_handle_at",
            "fanotify_init",
            "pidfd_getfd",
            "quotactl",
            "clock_settime",
        ] {
            assert_eq!(says(name, [0; 6]), EPERM, "{name}");
        }
        for name in ["keyctl", "clone3", "io_uring_setup"] {
            assert_eq!(says(name, [0; 6]), ENOSYS, "{name}");
        }
        // Tables of packet filters, also where the high bits hide the number.
        for level in [0, 41] {
            for option in [64, 65, 96, 128, 1152, 1167, 64 | 1 << 40] {
                let call = [3, level, option, 0, 0, 0];
                assert_eq!(says("setsockopt", call), EPERM, "{level} {option}");
            }
            for option in [1, 2, 66, 67, 200] {
                let call = [3, level, option, 0, 0, 0];
                assert_eq!(says("setsockopt", call), Verdict::Allow, "{level} {option}");
            }
        }
        assert_eq!(says("setsockopt", [3, 1, 64, 0, 0, 0]), Verdict::Allow);
    }
}

/// Arguments by which a call that depends on them is refused or allowed.
const ARGUMENTS: [[u64; 6]; 8] = [
    [0; 6],
    [1; 6],
    [40, 1, 0, 0, 0, 0],
    [17, 3, 0, 0, 0, 0],
    [2, 1, 6, 0, 0, 0],
    [0, 0x5412, 0, 0, 0, 0],
    [0x7e02_0080; 6],
    [0, 1, 5, 0, 0, 0],
];

/// A process has one listener at most, and a program that makes sandboxes of its own may need it.
#[test]
fn with_nesting_no_call_waits_and_each_fails_as_it_would() {
    let mut refused = BTreeSet::new();
    for bits in 0..4_u8 {
        let nesting = Denials {
            debugging: bits & 1 != 0,
            sockets: bits & 2 != 0,
            nesting: true,
            ..Denials::default()
        };
        let filter = program(nesting);
        let heard = assemble(&rules(nesting), 38);
        for call in 0..1_000 {
            for arguments in ARGUMENTS {
                let verdict = at_once(&filter, call, arguments);
                assert_eq!(verdict, says(&heard, call, arguments), "{call}");
                assert_ne!(verdict, Verdict::Judge, "{call}");
                if at_once(&heard, call, arguments) == Verdict::Judge {
                    refused.insert(call);
                }
            }
        }
    }
    // What would have waited is not nothing: keys, the terminal, sockets, the first process.
    let numbers = numbers();
    for name in ["add_key", "ioctl", "socket", "prlimit64", "bpf", "ptrace"] {
        assert!(refused.contains(&numbers[name]), "{name}");
    }
}

#[test]
fn a_fence_gives_no_namespaces_whatever_is_asked_for() {
    let both = Denials {
        fenced: true,
        nesting: true,
        ..Denials::default()
    };
    let fence = Denials {
        nesting: false,
        ..both
    };
    assert_eq!(rules(both), rules(fence));
    assert_eq!(program(both), program(fence));
}

#[test]
fn only_known_kinds_of_sockets_are_opened() {
    const FLAGS: u64 = 0o2_000_000 | 0o4_000;
    let refused_by_family = [
        0, 3, 4, 5, 9, 15, 17, 21, 26, 29, 31, 36, 38, 40, 44, 45, 46,
    ];
    let cases = [
        // Unix sockets of each kind.
        ([1, 1, 0], Verdict::Allow),
        ([1, 2 | FLAGS, 0], Verdict::Allow),
        ([1, 5, 0], Verdict::Allow),
        // TCP and UDP, both families, also by their numbers.
        ([2, 1, 0], Verdict::Allow),
        ([2, 1 | FLAGS, 6], Verdict::Allow),
        ([2, 2 | FLAGS, 17], Verdict::Allow),
        ([10, 1 | FLAGS, 0], Verdict::Allow),
        ([10, 2, 0], Verdict::Allow),
        // Raw, packet, DCCP, SCTP, MPTCP, ICMP, UDP-Lite, L2TP.
        ([2, 3, 1], EPERM),
        ([2, 3 | FLAGS, 255], EPERM),
        ([10, 3, 58], EPERM),
        ([2, 4, 0], EPERM),
        ([2, 5, 132], EPERM),
        ([2, 6, 33], EPERM),
        ([2, 10, 0], EPERM),
        ([2, 1, 132], EPROTONOSUPPORT),
        ([2, 1, 262], EPROTONOSUPPORT),
        ([10, 1 | FLAGS, 262], EPROTONOSUPPORT),
        ([2, 2, 1], EPROTONOSUPPORT),
        ([10, 2, 58], EPROTONOSUPPORT),
        ([2, 2, 136], EPROTONOSUPPORT),
        ([2, 2, 115], EPROTONOSUPPORT),
        ([2, 1, u64::MAX], EPROTONOSUPPORT),
        // Netlink: devices and routes, nothing else.
        ([16, 3, 0], Verdict::Allow),
        ([16, 2 | FLAGS, 0], Verdict::Allow),
    ];
    let socket = numbers()["socket"];
    for (debugging, filter) in [
        (false, program(Denials::default())),
        (
            true,
            program(Denials {
                debugging: true,
                ..Denials::default()
            }),
        ),
    ] {
        let says = |[family, kind, protocol]: [u64; 3]| {
            let high = if debugging { 0xdead_beef_0000_0000 } else { 0 };
            says(
                &filter,
                socket,
                [family | high, kind | high, protocol | high, 0, 0, 0],
            )
        };
        for (arguments, expected) in cases {
            assert_eq!(says(arguments), expected, "{arguments:?}");
        }
        for family in refused_by_family {
            for kind in 1..=6 {
                assert_eq!(says([family, kind, 0]), EAFNOSUPPORT, "{family}");
            }
        }
        for protocol in 1..64 {
            assert_eq!(
                says([16, 3, protocol]),
                EPROTONOSUPPORT,
                "netlink {protocol}"
            );
        }
    }
    for filter in [
        program(Denials {
            sockets: true,
            ..Denials::default()
        }),
        program(Denials {
            debugging: true,
            sockets: true,
            ..Denials::default()
        }),
    ] {
        assert_eq!(says(&filter, socket, [1, 1, 0, 0, 0, 0]), Verdict::Allow);
        for family in [2, 10, 16, 17, 40] {
            assert_eq!(says(&filter, socket, [family, 1, 0, 0, 0, 0]), EAFNOSUPPORT);
        }
    }
    for filter in every_filter() {
        let pair = numbers()["socketpair"];
        assert_eq!(says(&filter, pair, [1, 1, 0, 0, 0, 0]), Verdict::Allow);
        for family in [0, 2, 10, 16, 30, 38, 40] {
            assert_eq!(says(&filter, pair, [family, 1, 0, 0, 0, 0]), EAFNOSUPPORT);
        }
    }
}

#[test]
fn nothing_is_typed_into_a_terminal() {
    const TIOCSTI: u64 = 0x5412;
    const TIOCLINUX: u64 = 0x541c;
    const TCGETS: u64 = 0x5401;
    const TIOCGWINSZ: u64 = 0x5413;
    let call = numbers()["ioctl"];
    for filter in every_filter() {
        for high in [0, 1, 0xffff_ffff, 0x8000_0000] {
            for descriptor in [0, 1, u64::MAX] {
                let says = |request: u64| {
                    says(
                        &filter,
                        call,
                        [descriptor, request | high << 32, 0, 0, 0, 0],
                    )
                };
                assert_eq!(says(TIOCSTI), EPERM);
                assert_eq!(says(TIOCLINUX), EPERM);
                assert_eq!(says(TCGETS), Verdict::Allow);
                assert_eq!(says(TIOCGWINSZ), Verdict::Allow);
            }
        }
    }
}

#[test]
fn personalities_are_those_of_debuggers() {
    let call = numbers()["personality"];
    for filter in every_filter() {
        let says = |persona: u64| says(&filter, call, [persona, 0, 0, 0, 0, 0]);
        for persona in [0, 0x0004_0000, 0xffff_ffff] {
            assert_eq!(says(persona), Verdict::Allow, "{persona:#x}");
        }
        // Read implies execute, mapping of page zero, 32-bit layouts, other systems.
        for persona in [
            0x0040_0000,
            0x0010_0000,
            0x0044_0000,
            0x0800_0000,
            8,
            0x0020_0000,
        ] {
            assert_eq!(says(persona), EPERM, "{persona:#x}");
        }
    }
}

#[test]
fn what_every_program_needs_is_allowed() {
    let needed = [
        "read",
        "write",
        "openat",
        "close",
        "mmap",
        "mprotect",
        "brk",
        "execve",
        "exit_group",
        "wait4",
        "futex",
        "rt_sigaction",
        "rt_sigreturn",
        "clock_gettime",
        "getrandom",
        "set_robust_list",
        "rseq",
        "prlimit64",
        "statx",
        "newfstatat",
        "ppoll",
        "pipe2",
        "sendmsg",
        "recvmsg",
        "connect",
        "bind",
        "listen",
        "accept4",
        "memfd_create",
        "copy_file_range",
        "inotify_add_watch",
        "epoll_pwait",
        "sched_getaffinity",
        "seccomp",
        "landlock_restrict_self",
    ];
    let numbers = numbers();
    // The last half refuses programs in memory, by request.
    for filter in every_filter().into_iter().take(8) {
        for name in needed {
            assert_eq!(
                says(&filter, numbers[name], [0; 6]),
                Verdict::Allow,
                "{name}"
            );
        }
    }
}

#[test]
fn the_first_process_is_out_of_reach_of_limits_and_schedulers() {
    let filter = program(Denials::default());
    for (name, refused, allowed) in [
        ("prlimit64", [1, 7, 0, 0, 0, 0], [0, 7, 0, 0, 0, 0]),
        ("sched_setaffinity", [1, 8, 0, 0, 0, 0], [2, 8, 0, 0, 0, 0]),
        ("sched_setscheduler", [1, 5, 0, 0, 0, 0], [0, 5, 0, 0, 0, 0]),
        ("sched_setparam", [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]),
        ("sched_setattr", [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]),
        ("setpriority", [0, 1, 19, 0, 0, 0], [0, 0, 19, 0, 0, 0]),
        ("setpriority", [2, 0, 19, 0, 0, 0], [0, 2, 19, 0, 0, 0]),
        // Whoever has joined its group would have it among its own.
        ("setpriority", [1, 0, 19, 0, 0, 0], [0, 7, 19, 0, 0, 0]),
        ("ioprio_set", [1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]),
        ("ioprio_set", [3, 0, 0, 0, 0, 0], [1, 2, 0, 0, 0, 0]),
        ("ioprio_set", [2, 0, 0, 0, 0, 0], [1, 7, 0, 0, 0, 0]),
        // The kernel reads an int: what stands above it hides nothing.
        (
            "prlimit64",
            [1 << 32 | 1, 7, 0, 0, 0, 0],
            [1 << 32, 7, 0, 0, 0, 0],
        ),
    ] {
        let call = numbers()[name];
        assert_eq!(says(&filter, call, refused), EPERM, "{name} {refused:?}");
        assert_eq!(
            says(&filter, call, allowed),
            Verdict::Allow,
            "{name} {allowed:?}"
        );
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn set_id_files_are_refused_where_files_are_the_hosts() {
    let free = program(Denials::default());
    let live = program(Denials {
        set_id: true,
        ..Denials::default()
    });
    for (name, arguments, refused) in [
        ("chmod", [0, 0o4755, 0, 0, 0, 0], true),
        ("chmod", [0, 0o1777, 0, 0, 0, 0], false),
        ("fchmod", [3, 0o2755, 0, 0, 0, 0], true),
        ("fchmodat", [3, 0, 0o6755, 0, 0, 0], true),
        ("mkdirat", [3, 0, 0o2755, 0, 0, 0], true),
        ("mknodat", [3, 0, 0o104755, 0, 0, 0], true),
        ("creat", [0, 0o4755, 0, 0, 0, 0], true),
        ("open", [0, 0o101, 0o4755, 0, 0, 0], true),
        ("open", [0, 0o1, 0o4755, 0, 0, 0], false),
        ("openat", [3, 0, 0o20_200_001, 0o4755, 0, 0], true),
        ("openat", [3, 0, 0o101, 0o755, 0, 0], false),
    ] {
        let call = numbers()[name];
        let expected = if refused { EPERM } else { Verdict::Allow };
        assert_eq!(
            says(&live, call, arguments),
            expected,
            "{name} {arguments:?}"
        );
        assert_eq!(says(&free, call, arguments), Verdict::Allow, "{name}");
    }
}

#[test]
fn programs_without_a_file_are_refused_where_only_listed_ones_may_run() {
    let filter = program(Denials {
        memory_programs: true,
        ..Denials::default()
    });
    let numbers = numbers();
    assert_eq!(says(&filter, numbers["memfd_create"], [0; 6]), EPERM);
    assert_eq!(
        says(&filter, numbers["execveat"], [3, 0, 0, 0, 0x1000, 0]),
        EPERM
    );
    assert_eq!(
        says(&filter, numbers["execveat"], [3, 0, 0, 0, 0, 0]),
        Verdict::Allow
    );
}
