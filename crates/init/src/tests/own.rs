use std::fmt::Write;

use atoll_sys::seccomp::{Action, Call, Rule};

use super::interpreter::{Seen, Verdict, run};
use crate::filter::{
    ALLOWED, ATTEMPTS, CONDITIONAL, Denials, NEEDED, Process, REFUSED, make_usual, own, own_rules,
    program,
};

const PROCESSES: [Process; 6] = [
    Process::Launcher,
    Process::FenceLauncher,
    Process::Init,
    Process::Counting,
    Process::Judge,
    Process::Router,
];
const PROT_EXEC: u64 = 4;
const O_CREAT: u64 = 0o100;
const O_WRONLY: u64 = 1;
const O_PATH: u64 = 0o10_000_000;
const SIGKILL: u64 = 9;
const SIGSTOP: u64 = 19;
const AT_REMOVEDIR: u64 = 0x200;
const INET: u64 = 2;
const NETLINK: u64 = 16;

#[test]
fn what_atolls_own_processes_call_is_what_was_reviewed() {
    for name in ["x86_64", "aarch64"] {
        let number = |call: &Call| match name {
            "aarch64" => call.aarch64,
            _ => call.x86_64,
        };
        let mut text = String::new();
        for process in PROCESSES {
            writeln!(text, "{process:?}").unwrap();
            let mut lines: Vec<(i64, String)> = Vec::new();
            for needed in NEEDED.iter().filter(|one| one.by.contains(&process)) {
                for call in needed.calls.iter().filter(|call| number(call) >= 0) {
                    let action = match needed.action {
                        Action::If(condition) => {
                            format!("if {condition:?}").replace(", tell: false", "")
                        }
                        other => format!("{other:?}").to_lowercase(),
                    };
                    lines.retain(|(known, _)| *known != number(call));
                    lines.push((number(call), format!("{} {action}", call.name)));
                }
            }
            lines.sort();
            for (number, line) in lines {
                writeln!(text, "{number:4} {line}").unwrap();
            }
        }
        let path = format!("src/golden/own-{name}.txt");
        if std::env::var_os("ATOLL_UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "{path}");
    }
}

#[test]
fn what_is_assembled_beforehand_is_the_same() {
    let all = || (program(Denials::default()), PROCESSES.map(own));
    let before = all();
    make_usual();
    assert_eq!(all(), before);
    assert_ne!(own(Process::Init), own(Process::Launcher));
}

#[test]
fn every_call_of_the_table_is_known_and_has_a_reason() {
    let groups = ALLOWED
        .iter()
        .chain(REFUSED)
        .chain(ATTEMPTS)
        .flat_map(|group| group.calls);
    let known: Vec<&Call> = groups
        .chain(CONDITIONAL.iter().map(|one| &one.call))
        .collect();
    for needed in NEEDED {
        assert!(!needed.reason.is_empty() && !needed.by.is_empty());
        for call in needed.calls {
            assert!(known.contains(&call), "{call:?} has another number");
        }
    }
    for process in PROCESSES {
        let actions = own_rules(process);
        let only = |rule: &Rule| matches!(rule.action, Action::Allow | Action::If(_));
        assert!(actions.iter().all(only), "{process:?}");
    }
}

/// Returns which of these processes may make the call, with these arguments.
fn makers(name: &str, arguments: [u64; 6]) -> Vec<Process> {
    let calls = NEEDED.iter().flat_map(|needed| needed.calls);
    let call = calls.into_iter().find(|call| call.name == name).unwrap();
    let seen = Seen {
        call: call.number().unwrap(),
        architecture: if cfg!(target_arch = "aarch64") {
            0xC000_00B7
        } else {
            0xC000_003E
        },
        arguments,
    };
    let makes = |process: &Process| match run(&own(*process), &seen).verdict {
        Verdict::Allow => true,
        Verdict::Error(error) => {
            assert_eq!(error, 1, "{name}");
            false
        }
        other => panic!("{name}: {other:?}"),
    };
    PROCESSES.into_iter().filter(makes).collect()
}

#[test]
fn atolls_own_processes_make_no_other_calls() {
    use Process::{Counting, FenceLauncher, Init, Judge, Launcher, Router};
    let all = PROCESSES.to_vec();
    let with = |argument: usize, value: u64| {
        let mut arguments = [0; 6];
        arguments[argument] = value;
        arguments
    };
    let high = 1 << 32;
    let cases: [(&str, [u64; 6], &[Process]); 25] = [
        ("mmap", [0; 6], &all),
        ("mmap", with(2, PROT_EXEC), &[]),
        ("mmap", with(2, PROT_EXEC | high), &[]),
        (
            "openat",
            with(2, 0),
            &[FenceLauncher, Counting, Judge, Router],
        ),
        (
            "openat",
            with(2, O_PATH),
            &[FenceLauncher, Counting, Judge, Router],
        ),
        ("openat", with(2, O_WRONLY), &[]),
        ("openat", with(2, O_CREAT), &[]),
        (
            "unlinkat",
            with(2, AT_REMOVEDIR),
            &[Launcher, FenceLauncher],
        ),
        ("unlinkat", [0; 6], &[]),
        (
            "pidfd_send_signal",
            with(1, SIGKILL),
            &[Launcher, FenceLauncher],
        ),
        ("pidfd_send_signal", with(1, SIGSTOP), &[]),
        (
            "kill",
            with(1, SIGKILL),
            &[FenceLauncher, Init, Counting, Judge, Router],
        ),
        ("kill", with(1, SIGSTOP), &[Init, Counting, Judge, Router]),
        ("ioctl", with(1, 0x5410), &[Init, Counting, Judge, Router]),
        ("ioctl", with(1, 0x5412), &[]),
        // Calls that wait are taken and answered; only a judge asks whether they still do.
        (
            "ioctl",
            with(1, 0xc050_2100),
            &[Init, Counting, Judge, Router],
        ),
        (
            "ioctl",
            with(1, 0xc018_2101),
            &[Init, Counting, Judge, Router],
        ),
        ("ioctl", with(1, 0x4008_2102), &[Judge, Router]),
        // A descriptor is put into the program where it may ask for names, and so are answers.
        ("ioctl", with(1, 0x4018_2103), &[Router]),
        ("process_vm_writev", [0; 6], &[Router]),
        ("socketpair", with(0, 1), &[Router]),
        ("socketpair", with(0, INET), &[]),
        ("socket", with(0, NETLINK), &[Judge, Router]),
        ("socket", with(0, INET), &[]),
        ("pidfd_getfd", [0; 6], &[Judge, Router]),
    ];
    for (name, arguments, expected) in cases {
        assert_eq!(makers(name, arguments), expected, "{name} {arguments:x?}");
    }
    // What no row of the table names is refused, whatever its arguments.
    for process in PROCESSES {
        let named: Vec<u32> = own_rules(process).iter().map(|rule| rule.call).collect();
        for call in (0..600).filter(|call| !named.contains(call)) {
            let seen = Seen {
                call,
                architecture: if cfg!(target_arch = "aarch64") {
                    0xC000_00B7
                } else {
                    0xC000_003E
                },
                arguments: [0; 6],
            };
            let verdict = run(&own(process), &seen).verdict;
            assert_eq!(verdict, Verdict::Error(1), "{process:?} {call}");
        }
    }
}
