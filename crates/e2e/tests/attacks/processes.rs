//! Other processes: the sandbox's own first one, and those of the host.

use super::harness::{Attack, Control, Technique, try_all};
use super::prey;

use Control::{Outside, Without};
use Technique::{DataFromLocalSystem, EscapeToHost, UnsecuredCredentials};

const NOT_OPAQUE: Control = Without("dumpable,landlock");

/// Returns an attack on the first process, which nobody may inspect.
const fn first(id: &'static str, script: &'static str, control: Control) -> Attack {
    Attack::new(id, EscapeToHost, script, prey::what_it_prints, control)
}

const FIRST: &[Attack] = &[
    first("first-by-its-memory", "./attack memory 1", NOT_OPAQUE),
    first("first-across-memories", "./attack across 1", NOT_OPAQUE),
    first("first-by-ptrace", "./attack seize 1", NOT_OPAQUE),
    first(
        "first-by-its-descriptors",
        "./attack steal 1",
        Without("dumpable,landlock,seccomp"),
    ),
    first(
        "first-by-its-descriptors-in-proc",
        "for fd in 0 1 2 3 4 5 6 7 8 9 10 11 12; do readlink /proc/1/fd/$fd > /dev/null && echo taken; done",
        NOT_OPAQUE,
    ),
    first(
        "first-compared",
        "./attack compare 1",
        Without("dumpable,landlock,seccomp"),
    )
    .if_host("./attack compare $$"),
    first(
        "first-by-its-executable",
        "head -c 4 /proc/1/exe | grep -q ELF && echo taken",
        NOT_OPAQUE,
    ),
    first(
        "first-by-its-root",
        "ls /proc/1/root/ > /dev/null && ls /proc/1/cwd/ > /dev/null && echo taken",
        NOT_OPAQUE,
    ),
    first(
        "first-by-its-maps",
        "test -n \"$(cat /proc/1/maps)\" && echo taken; test -n \"$(cat /proc/1/auxv | tr -d '\\0')\" && echo taken",
        NOT_OPAQUE,
    ),
    first(
        "first-by-its-limits",
        "./attack limit 1 && echo taken",
        Without("seccomp"),
    )
    .told_but_in_a_fence("first-process", "AML.T0105"),
    first(
        "first-by-its-processors",
        "./attack bind 1 && echo taken",
        Without("seccomp"),
    )
    .told_but_in_a_fence("first-process", "AML.T0105"),
];

/// Returns an attack on a process outside, which has no process id inside.
const fn victim(id: &'static str, technique: Technique, script: &'static str) -> Attack {
    Attack::new(id, technique, script, prey::victim, Outside)
}

const OTHERS: &[Attack] = &[
    victim("victim-by-a-signal", EscapeToHost, "kill -9 {victim}"),
    victim(
        "victim-by-a-signal-to-its-descriptor",
        EscapeToHost,
        "./attack signal {victim} 9",
    ),
    victim(
        "victim-by-its-priority",
        EscapeToHost,
        "./attack nice {victim}",
    ),
    victim(
        "victim-by-its-limits",
        EscapeToHost,
        "./attack limit {victim}",
    ),
    victim(
        "victim-by-its-processors",
        EscapeToHost,
        "./attack bind {victim}",
    )
    .if_host("test $(nproc) -gt 1"),
    victim(
        "victim-by-its-memory",
        DataFromLocalSystem,
        "./attack memory {victim}",
    ),
    victim(
        "victim-across-memories",
        DataFromLocalSystem,
        "./attack across {victim}",
    ),
    victim(
        "victim-by-ptrace",
        DataFromLocalSystem,
        "./attack seize {victim}",
    ),
    victim(
        "victim-by-its-descriptors",
        EscapeToHost,
        "./attack steal {victim}",
    ),
    victim(
        "victim-by-its-environment",
        UnsecuredCredentials,
        "cat /proc/{victim}/environ; cat /proc/*/environ",
    ),
];

#[test]
fn the_first_process_gives_nothing_away() {
    try_all("the_first_process_gives_nothing_away", FIRST);
}

#[test]
fn processes_of_the_host_are_not_touched() {
    try_all("processes_of_the_host_are_not_touched", OTHERS);
}
