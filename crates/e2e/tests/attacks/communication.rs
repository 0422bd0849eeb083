//! Kernel objects that processes share: System V and POSIX communication, keyrings, terminals.

use super::harness::{Attack, Control, Technique, try_all};
use super::prey;

use Control::{Outside, Without};
use Technique::{CommandInterpreter, DataFromLocalSystem, EscapeToHost, UnsecuredCredentials};

const SHARED: &[Attack] = &[
    Attack::new(
        "shared-memory-written",
        EscapeToHost,
        "./attack shm-write {key} evil",
        prey::shared_memory,
        Without("ipc"),
    ),
    Attack::new(
        "shared-memory-read",
        DataFromLocalSystem,
        "./attack shm-read {key}",
        prey::shared_memory,
        Without("ipc"),
    ),
    Attack::new(
        "queue-written",
        EscapeToHost,
        "./attack queue-send {key} evil",
        prey::queue,
        Without("ipc"),
    ),
    Attack::new(
        "semaphore-set",
        EscapeToHost,
        "./attack semaphore-set {key}",
        prey::semaphore,
        Without("ipc"),
    ),
    Attack::new(
        "posix-queue-written",
        EscapeToHost,
        "./attack mq-send {key} evil",
        prey::posix_queue,
        Without("ipc,landlock"),
    ),
    Attack::new(
        "posix-shared-memory-written",
        EscapeToHost,
        "echo evil > {canary}; rm {canary}; for root in /proc/self/root /proc/1/root; do echo evil > $root{canary}; done",
        prey::posix_memory,
        Outside,
    ),
    Attack::new(
        "list-of-what-is-shared",
        DataFromLocalSystem,
        "grep -q ' {key} ' /proc/sysvipc/shm && echo taken",
        prey::shared_memory,
        Without("ipc"),
    ),
];

const KEYS: &[Attack] = &[Attack::new(
    "keyring-of-the-session",
    UnsecuredCredentials,
    "./attack find-key",
    prey::secret,
    Without("seccomp"),
)
.front("exec ./attack keyring {text}")
.if_host("./attack keyring x ./attack find-key")
.told("keys", "AML.T0090")];

const TERMINAL: &[Attack] = &[
    Attack::new(
        "terminal-typed-into",
        CommandInterpreter,
        "./attack type 0x5412",
        prey::what_it_prints,
        Without("seccomp"),
    )
    .told_but_in_a_fence("terminal", "AML.T0105")
    .on_terminal()
    .if_host(MAY_TYPE),
    Attack::new(
        "terminal-typed-into-with-high-bits",
        CommandInterpreter,
        "./attack type 0x100005412",
        prey::what_it_prints,
        Without("seccomp"),
    )
    .told_but_in_a_fence("terminal", "AML.T0105")
    .on_terminal()
    .if_host(MAY_TYPE),
    Attack::new(
        "terminal-typed-into-with-all-bits",
        CommandInterpreter,
        "./attack type 0xffffffff00005412",
        prey::what_it_prints,
        Without("seccomp"),
    )
    .told_but_in_a_fence("terminal", "AML.T0105")
    .on_terminal()
    .if_host(MAY_TYPE),
];

/// Checks that the host permits it: newer kernels can be set to permit it to administrators alone.
const MAY_TYPE: &str = "test \"$(cat /proc/sys/dev/tty/legacy_tiocsti 2>/dev/null || echo 1)\" = 1";

#[test]
fn shared_memory_queues_and_semaphores_are_the_sandboxs_own() {
    try_all(
        "shared_memory_queues_and_semaphores_are_the_sandboxs_own",
        SHARED,
    );
}

#[test]
fn keyrings_are_out_of_reach() {
    try_all("keyrings_are_out_of_reach", KEYS);
}

#[test]
fn nothing_is_typed_into_a_terminal() {
    try_all("nothing_is_typed_into_a_terminal", TERMINAL);
}
