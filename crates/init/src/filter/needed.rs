//! The table of what Atoll's own processes call.

use atoll_sys::seccomp::{Action, Test, on};

use super::own::Process::{Counting, FenceLauncher, Init, Judge, Launcher};
use super::own::{Needed, Process, named};
use super::{AF_NETLINK, EPERM};

const EVERYONE: &[Process] = &[Launcher, FenceLauncher, Init, Counting, Judge];

/// The argument, masked, is one of these.
const fn is(argument: u8, mask: u32, values: &'static [u32]) -> Action {
    Action::If(on(argument, mask, Test::In(values), EPERM))
}

/// Everything that they need; the last entry for a call counts.
#[rustfmt::skip]
pub const NEEDED: &[Needed] = &[
    Needed { by: EVERYONE, action: Action::Allow, reason: "wait for lines, for children, for a moment; go on after a stop",
        calls: &named(["poll", "ppoll", "wait4", "nanosleep", "clock_nanosleep", "clock_gettime", "restart_syscall"]) },
    Needed { by: EVERYONE, action: Action::Allow, reason: "hear and tell on lines that are open",
        calls: &named(["recvmsg", "sendmsg", "close"]) },
    Needed { by: EVERYONE, action: Action::Allow, reason: "memory of its own, and the end",
        calls: &named(["brk", "munmap", "mremap", "sigaltstack", "exit", "exit_group"]) },
    Needed { by: EVERYONE, action: is(2, 0x4, &[0]), reason: "memory of its own, but no code",
        calls: &named(["mmap"]) },
    Needed { by: &[Launcher, FenceLauncher], action: is(1, u32::MAX, &[9]), reason: "end the first process, by the descriptor that it has of it",
        calls: &named(["pidfd_send_signal"]) },
    Needed { by: &[Launcher, FenceLauncher], action: Action::Allow, reason: "remove control groups; Landlock says where",
        calls: &named(["rmdir"]) },
    Needed { by: &[Launcher, FenceLauncher], action: is(2, u32::MAX, &[0x200]), reason: "the same, of directories only",
        calls: &named(["unlinkat"]) },
    Needed { by: &[Init, Counting, Judge], action: Action::Allow, reason: "take the signal of an ended child, and signal the program's group",
        calls: &named(["read", "kill"]) },
    Needed { by: &[Init, Counting, Judge], action: is(1, u32::MAX, &[0x5410]), reason: "give the program the terminal's foreground (TIOCSPGRP)",
        calls: &named(["ioctl"]) },
    Needed { by: &[FenceLauncher], action: is(1, u32::MAX, &[9]), reason: "end what the first process left; Landlock says whom",
        calls: &named(["kill"]) },
    Needed { by: &[FenceLauncher, Counting, Judge], action: is(2, 0o1103, &[0]), reason: "read what /proc tells of processes; nothing is written or made",
        calls: &named(["openat"]) },
    Needed { by: &[FenceLauncher, Counting, Judge], action: is(1, 0o1103, &[0]), reason: "the same by the older call",
        calls: &named(["open"]) },
    Needed { by: &[FenceLauncher, Counting, Judge], action: Action::Allow, reason: "the same",
        calls: &named(["read", "fstat", "newfstatat", "statx", "lseek", "getdents64", "getpid", "readlink", "readlinkat", "statfs"]) },
    Needed { by: &[Judge], action: Action::Allow, reason: "look at the caller: its memory, its descriptors, the places that it names",
        calls: &named(["openat2", "pread64", "pidfd_open", "pidfd_getfd", "getpgid"]) },
    Needed { by: &[Judge], action: Action::Allow, reason: "be interrupted when a judged call takes too long",
        calls: &named(["rt_sigreturn"]) },
    Needed { by: &[Judge], action: is(1, u32::MAX, &[0x5410, 0xc050_2100, 0xc018_2101, 0x4008_2102]), reason: "take calls that wait, and answer them; the foreground as above",
        calls: &named(["ioctl"]) },
    Needed { by: &[Judge], action: is(0, u32::MAX, &[AF_NETLINK]), reason: "ask the kernel who listens (sock_diag)",
        calls: &named(["socket"]) },
    Needed { by: &[Judge], action: Action::Allow, reason: "the same, and sockets' facts",
        calls: &named(["sendto", "recvfrom", "getsockname", "getsockopt", "setsockopt"]) },
    Needed { by: &[Judge], action: is(1, u32::MAX, &[3]), reason: "whether a socket waits (F_GETFL)",
        calls: &named(["fcntl"]) },
    Needed { by: &[Judge], action: Action::Allow, reason: "make the judged calls",
        calls: &named(["connect", "bind", "listen", "fchmodat", "fchownat", "utimensat", "setxattr", "removexattr", "inotify_add_watch"]) },
];
