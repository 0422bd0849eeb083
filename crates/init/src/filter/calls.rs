//! System calls by group.

use atoll_sys::seccomp::{
    Action, Call, Condition, Guard, Guarded, NONE, Test, always, call, on, only,
};

use atoll_fence::KNOWN_FAMILY;
use atoll_fence::socket::{
    AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, AF_UNSPEC, IPPROTO_TCP, IPPROTO_UDP, PROTOCOL_DEFAULT,
    SOCK_DGRAM, SOCK_STREAM, SOCKET_TYPE,
};

use super::{EAFNOSUPPORT, EPROTONOSUPPORT};

/// A group of calls with one reason.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The common property of the calls.
    pub name: &'static str,
    /// The reason why they are allowed or refused.
    pub reason: &'static str,
    /// The error of a refusal; 0 for groups that are allowed.
    pub error: u16,
    /// The calls.
    pub calls: &'static [Call],
}

const EPERM: u16 = 1;
const ENOSYS: u16 = 38;

/// The calls that a program may make.
pub const ALLOWED: &[Group] = &[
    Group {
        name: "files",
        reason: "open, read, write, change and list files: mounts, Landlock and permissions decide which",
        error: 0,
        calls: FILES,
    },
    Group {
        name: "waiting",
        reason: "wait for descriptors, time and events",
        error: 0,
        calls: WAITING,
    },
    Group {
        name: "memory",
        reason: "memory of the process itself",
        error: 0,
        calls: MEMORY,
    },
    Group {
        name: "processes",
        reason: "start, end, wait for and signal processes of the same sandbox",
        error: 0,
        calls: PROCESSES,
    },
    Group {
        name: "identity",
        reason: "ask for and set ids: without capabilities nothing is gained",
        error: 0,
        calls: IDENTITY,
    },
    Group {
        name: "limits",
        reason: "limits, priorities and figures of processes of the same sandbox",
        error: 0,
        calls: LIMITS,
    },
    Group {
        name: "time",
        reason: "read clocks",
        error: 0,
        calls: TIME,
    },
    Group {
        name: "sockets",
        reason: "Unix sockets and the sandbox's own loopback; socket(2) itself is conditional",
        error: 0,
        calls: SOCKETS,
    },
    Group {
        name: "ipc",
        reason: "System V and POSIX queues, shared memory and semaphores of the sandbox's own namespace",
        error: 0,
        calls: IPC,
    },
    Group {
        name: "debugging",
        reason: "debug processes of the same sandbox; init is out of reach by its Landlock domain",
        error: 0,
        calls: DEBUGGING,
    },
    Group {
        name: "comparing",
        reason: "whether two processes of the same sandbox share a thing; init is out of reach as above",
        error: 0,
        calls: COMPARING,
    },
    Group {
        name: "restricting",
        reason: "give up rights further",
        error: 0,
        calls: RESTRICTING,
    },
];

/// Calls that are refused without a report, because honest programs try them: to probe, to fall
/// back, to look.
pub const REFUSED: &[Group] = &[
    Group {
        name: "lists of mounts",
        reason: "what is mounted outside is nobody's business; tools read /proc instead",
        error: EPERM,
        calls: NO_LISTS_OF_MOUNTS,
    },
    Group {
        name: "clone3",
        reason: "its flags lie behind a pointer, which a filter cannot read; programs fall back to clone",
        error: ENOSYS,
        calls: NO_CLONE3,
    },
    Group {
        name: "io_uring",
        reason: "its requests pass no system call filter; programs fall back",
        error: ENOSYS,
        calls: NO_IO_URING,
    },
    Group {
        name: "looks at the machine",
        reason: "the machine is not the sandbox's: names, logs, clocks' figures; programs look all the same",
        error: EPERM,
        calls: NO_LOOKS_AT_THE_MACHINE,
    },
    Group {
        name: "names of handles",
        reason: "a handle is of no use where none can be opened; tools ask for one to tell mounts apart",
        error: EPERM,
        calls: NO_NAMES_OF_HANDLES,
    },
    Group {
        name: "placement",
        reason: "other processes' memory placement; runtimes place their own by it",
        error: EPERM,
        calls: NO_PLACEMENT,
    },
    Group {
        name: "secret memory",
        reason: "memory that even the host's supervisor cannot count; libraries hide keys in it",
        error: EPERM,
        calls: NO_SECRET_MEMORY,
    },
    Group {
        name: "asynchronous requests",
        reason: "asynchronous requests of the old kind are counted for the whole machine, and one program \
                 could use them up; programs fall back",
        error: ENOSYS,
        calls: AIO,
    },
];

/// Calls that are refused and reported as violations, because hardly any program makes them except
/// to escape, or to make a sandbox of its own.
pub const ATTEMPTS: &[Group] = &[
    Group {
        name: "mounts",
        reason: "the file tree is what the boundary made of it",
        error: EPERM,
        calls: NO_MOUNTS,
    },
    Group {
        name: "namespaces",
        reason: "namespaces of others would be a way around all of this",
        error: EPERM,
        calls: NO_NAMESPACES,
    },
    Group {
        name: "keys",
        reason: "keyrings are shared by user across sandboxes",
        error: EPERM,
        calls: NO_KEYS,
    },
    Group {
        name: "kernel programs",
        reason: "programs and probes in the kernel, a large attack surface",
        error: EPERM,
        calls: NO_KERNEL_PROGRAMS,
    },
    Group {
        name: "page faults",
        reason: "holding a kernel thread at a page fault is a standard step of exploits",
        error: EPERM,
        calls: NO_PAGE_FAULTS,
    },
    Group {
        name: "machine",
        reason: "the machine is not the sandbox's: modules, reboot, clocks, accounting, ports",
        error: EPERM,
        calls: NO_MACHINE,
    },
    Group {
        name: "handles",
        reason: "a file handle opens a file without its path",
        error: EPERM,
        calls: NO_HANDLES,
    },
    Group {
        name: "watching",
        reason: "watching a whole file system tells of files outside",
        error: EPERM,
        calls: NO_WATCHING,
    },
    Group {
        name: "descriptors",
        reason: "descriptors are not taken from other processes",
        error: EPERM,
        calls: NO_DESCRIPTORS,
    },
];

const FILES: &[Call] = &[
    call("read", 0, 63),
    call("write", 1, 64),
    call("open", 2, NONE),
    call("openat", 257, 56),
    call("openat2", 437, 437),
    call("close", 3, 57),
    call("close_range", 436, 436),
    call("creat", 85, NONE),
    call("lseek", 8, 62),
    call("pread64", 17, 67),
    call("pwrite64", 18, 68),
    call("readv", 19, 65),
    call("writev", 20, 66),
    call("preadv", 295, 69),
    call("pwritev", 296, 70),
    call("preadv2", 327, 286),
    call("pwritev2", 328, 287),
    call("stat", 4, NONE),
    call("fstat", 5, 80),
    call("lstat", 6, NONE),
    call("newfstatat", 262, 79),
    call("statx", 332, 291),
    call("access", 21, NONE),
    call("faccessat", 269, 48),
    call("faccessat2", 439, 439),
    call("readlink", 89, NONE),
    call("readlinkat", 267, 78),
    call("getdents", 78, NONE),
    call("getdents64", 217, 61),
    call("mkdir", 83, NONE),
    call("mkdirat", 258, 34),
    call("rmdir", 84, NONE),
    call("unlink", 87, NONE),
    call("unlinkat", 263, 35),
    call("rename", 82, NONE),
    call("renameat", 264, 38),
    call("renameat2", 316, 276),
    call("link", 86, NONE),
    call("linkat", 265, 37),
    call("symlink", 88, NONE),
    call("symlinkat", 266, 36),
    call("mknod", 133, NONE),
    call("mknodat", 259, 33),
    call("chmod", 90, NONE),
    call("fchmod", 91, 52),
    call("fchmodat", 268, 53),
    call("chown", 92, NONE),
    call("fchown", 93, 55),
    call("lchown", 94, NONE),
    call("fchownat", 260, 54),
    call("utime", 132, NONE),
    call("utimes", 235, NONE),
    call("futimesat", 261, NONE),
    call("utimensat", 280, 88),
    call("truncate", 76, 45),
    call("ftruncate", 77, 46),
    call("fallocate", 285, 47),
    call("fadvise64", 221, 223),
    call("readahead", 187, 213),
    call("umask", 95, 166),
    call("chdir", 80, 49),
    call("fchdir", 81, 50),
    call("getcwd", 79, 17),
    call("dup", 32, 23),
    call("dup2", 33, NONE),
    call("dup3", 292, 24),
    call("fcntl", 72, 25),
    call("flock", 73, 32),
    call("fsync", 74, 82),
    call("fdatasync", 75, 83),
    call("sync", 162, 81),
    call("syncfs", 306, 267),
    call("sync_file_range", 277, 84),
    call("statfs", 137, 43),
    call("fstatfs", 138, 44),
    call("sendfile", 40, 71),
    call("splice", 275, 76),
    call("tee", 276, 77),
    call("vmsplice", 278, 75),
    call("copy_file_range", 326, 285),
    call("setxattr", 188, 5),
    call("lsetxattr", 189, 6),
    call("fsetxattr", 190, 7),
    call("getxattr", 191, 8),
    call("lgetxattr", 192, 9),
    call("fgetxattr", 193, 10),
    call("listxattr", 194, 11),
    call("llistxattr", 195, 12),
    call("flistxattr", 196, 13),
    call("removexattr", 197, 14),
    call("lremovexattr", 198, 15),
    call("fremovexattr", 199, 16),
];

const WAITING: &[Call] = &[
    call("poll", 7, NONE),
    call("ppoll", 271, 73),
    call("select", 23, NONE),
    call("pselect6", 270, 72),
    call("epoll_create", 213, NONE),
    call("epoll_create1", 291, 20),
    call("epoll_ctl", 233, 21),
    call("epoll_wait", 232, NONE),
    call("epoll_pwait", 281, 22),
    call("epoll_pwait2", 441, 441),
    call("eventfd", 284, NONE),
    call("eventfd2", 290, 19),
    call("signalfd", 282, NONE),
    call("signalfd4", 289, 74),
    call("timerfd_create", 283, 85),
    call("timerfd_settime", 286, 86),
    call("timerfd_gettime", 287, 87),
    call("inotify_init", 253, NONE),
    call("inotify_init1", 294, 26),
    call("inotify_add_watch", 254, 27),
    call("inotify_rm_watch", 255, 28),
    call("pipe", 22, NONE),
    call("pipe2", 293, 59),
    call("nanosleep", 35, 101),
    call("clock_nanosleep", 230, 115),
    call("pause", 34, NONE),
    call("alarm", 37, NONE),
    call("getitimer", 36, 102),
    call("setitimer", 38, 103),
    call("timer_create", 222, 107),
    call("timer_settime", 223, 110),
    call("timer_gettime", 224, 108),
    call("timer_getoverrun", 225, 109),
    call("timer_delete", 226, 111),
];

const MEMORY: &[Call] = &[
    call("mmap", 9, 222),
    call("mprotect", 10, 226),
    call("munmap", 11, 215),
    call("mremap", 25, 216),
    call("msync", 26, 227),
    call("mincore", 27, 232),
    call("madvise", 28, 233),
    call("process_madvise", 440, 440),
    call("brk", 12, 214),
    call("mlock", 149, 228),
    call("mlock2", 325, 284),
    call("munlock", 150, 229),
    call("mlockall", 151, 230),
    call("munlockall", 152, 231),
    call("memfd_create", 319, 279),
    call("membarrier", 324, 283),
    call("pkey_alloc", 330, 289),
    call("pkey_free", 331, 290),
    call("pkey_mprotect", 329, 288),
    call("get_mempolicy", 239, 236),
    call("set_mempolicy", 238, 237),
    call("mbind", 237, 235),
    call("mseal", 462, 462),
    call("map_shadow_stack", 453, 453),
];

const PROCESSES: &[Call] = &[
    call("fork", 57, NONE),
    call("vfork", 58, NONE),
    call("execve", 59, 221),
    call("execveat", 322, 281),
    call("exit", 60, 93),
    call("exit_group", 231, 94),
    call("wait4", 61, 260),
    call("waitid", 247, 95),
    call("kill", 62, 129),
    call("tkill", 200, 130),
    call("tgkill", 234, 131),
    call("pidfd_open", 434, 434),
    call("pidfd_send_signal", 424, 424),
    call("getpid", 39, 172),
    call("getppid", 110, 173),
    call("gettid", 186, 178),
    call("getpgid", 121, 155),
    call("setpgid", 109, 154),
    call("getpgrp", 111, NONE),
    call("getsid", 124, 156),
    call("setsid", 112, 157),
    call("set_tid_address", 218, 96),
    call("rt_sigaction", 13, 134),
    call("rt_sigprocmask", 14, 135),
    call("rt_sigreturn", 15, 139),
    call("rt_sigpending", 127, 136),
    call("rt_sigtimedwait", 128, 137),
    call("rt_sigqueueinfo", 129, 138),
    call("rt_tgsigqueueinfo", 297, 240),
    call("rt_sigsuspend", 130, 133),
    call("sigaltstack", 131, 132),
    call("restart_syscall", 219, 128),
    call("prctl", 157, 167),
    call("arch_prctl", 158, NONE),
    call("rseq", 334, 293),
    call("futex", 202, 98),
    call("futex_waitv", 449, 449),
    call("futex_wake", 454, 454),
    call("futex_wait", 455, 455),
    call("futex_requeue", 456, 456),
    call("set_robust_list", 273, 99),
    call("get_robust_list", 274, 100),
];

const IDENTITY: &[Call] = &[
    call("getuid", 102, 174),
    call("geteuid", 107, 175),
    call("getgid", 104, 176),
    call("getegid", 108, 177),
    call("getresuid", 118, 148),
    call("getresgid", 120, 150),
    call("getgroups", 115, 158),
    call("setuid", 105, 146),
    call("setgid", 106, 144),
    call("setreuid", 113, 145),
    call("setregid", 114, 143),
    call("setresuid", 117, 147),
    call("setresgid", 119, 149),
    call("setfsuid", 122, 151),
    call("setfsgid", 123, 152),
    call("setgroups", 116, 159),
    call("capget", 125, 90),
    call("capset", 126, 91),
];

const LIMITS: &[Call] = &[
    call("getrlimit", 97, 163),
    call("setrlimit", 160, 164),
    call("getrusage", 98, 165),
    call("times", 100, 153),
    call("getpriority", 140, 141),
    call("ioprio_get", 252, 31),
    call("sched_yield", 24, 124),
    call("sched_getaffinity", 204, 123),
    call("sched_getparam", 143, 121),
    call("sched_getscheduler", 145, 120),
    call("sched_getattr", 315, 275),
    call("sched_get_priority_max", 146, 125),
    call("sched_get_priority_min", 147, 126),
    call("sched_rr_get_interval", 148, 127),
    call("getcpu", 309, 168),
    call("sysinfo", 99, 179),
    call("uname", 63, 160),
];

const TIME: &[Call] = &[
    call("time", 201, NONE),
    call("gettimeofday", 96, 169),
    call("clock_gettime", 228, 113),
    call("clock_getres", 229, 114),
    call("getrandom", 318, 278),
];

const SOCKETS: &[Call] = &[
    call("bind", 49, 200),
    call("connect", 42, 203),
    call("listen", 50, 201),
    call("accept", 43, 202),
    call("accept4", 288, 242),
    call("getsockname", 51, 204),
    call("getpeername", 52, 205),
    call("getsockopt", 55, 209),
    call("setsockopt", 54, 208),
    call("shutdown", 48, 210),
    call("sendto", 44, 206),
    call("recvfrom", 45, 207),
    call("sendmsg", 46, 211),
    call("recvmsg", 47, 212),
    call("sendmmsg", 307, 269),
    call("recvmmsg", 299, 243),
];

pub(super) const IPC: &[Call] = &[
    call("shmget", 29, 194),
    call("shmat", 30, 196),
    call("shmdt", 67, 197),
    call("shmctl", 31, 195),
    call("semget", 64, 190),
    call("semop", 65, 193),
    call("semctl", 66, 191),
    call("semtimedop", 220, 192),
    call("msgget", 68, 186),
    call("msgsnd", 69, 189),
    call("msgrcv", 70, 188),
    call("msgctl", 71, 187),
    call("mq_open", 240, 180),
    call("mq_unlink", 241, 181),
    call("mq_timedsend", 242, 182),
    call("mq_timedreceive", 243, 183),
    call("mq_notify", 244, 184),
    call("mq_getsetattr", 245, 185),
];

pub(super) const DEBUGGING: &[Call] = &[
    call("ptrace", 101, 117),
    call("process_vm_readv", 310, 270),
    call("process_vm_writev", 311, 271),
];

pub(super) const COMPARING: &[Call] = &[call("kcmp", 312, 272)];

const RESTRICTING: &[Call] = &[
    call("seccomp", 317, 277),
    call("landlock_create_ruleset", 444, 444),
    call("landlock_add_rule", 445, 445),
    call("landlock_restrict_self", 446, 446),
];

const AIO: &[Call] = &[
    call("io_setup", 206, 0),
    call("io_destroy", 207, 1),
    call("io_submit", 209, 2),
    call("io_cancel", 210, 3),
    call("io_getevents", 208, 4),
    call("io_pgetevents", 333, 292),
];

const NO_MOUNTS: &[Call] = &[
    call("mount", 165, 40),
    call("umount2", 166, 39),
    call("pivot_root", 155, 41),
    call("chroot", 161, 51),
    call("open_tree", 428, 428),
    call("move_mount", 429, 429),
    call("fsopen", 430, 430),
    call("fsconfig", 431, 431),
    call("fsmount", 432, 432),
    call("fspick", 433, 433),
    call("mount_setattr", 442, 442),
    call("swapon", 167, 224),
    call("swapoff", 168, 225),
];

const NO_LISTS_OF_MOUNTS: &[Call] = &[call("statmount", 457, 457), call("listmount", 458, 458)];

const NO_NAMESPACES: &[Call] = &[call("setns", 308, 268)];

const NO_CLONE3: &[Call] = &[call("clone3", 435, 435)];

const NO_KEYS: &[Call] = &[
    call("keyctl", 250, 219),
    call("add_key", 248, 217),
    call("request_key", 249, 218),
];

const NO_KERNEL_PROGRAMS: &[Call] = &[call("bpf", 321, 280), call("perf_event_open", 298, 241)];

const NO_IO_URING: &[Call] = &[
    call("io_uring_setup", 425, 425),
    call("io_uring_enter", 426, 426),
    call("io_uring_register", 427, 427),
];

const NO_PAGE_FAULTS: &[Call] = &[call("userfaultfd", 323, 282)];

const NO_MACHINE: &[Call] = &[
    call("init_module", 175, 105),
    call("finit_module", 313, 273),
    call("delete_module", 176, 106),
    call("kexec_load", 246, 104),
    call("kexec_file_load", 320, 294),
    call("reboot", 169, 142),
    call("settimeofday", 164, 170),
    call("clock_settime", 227, 112),
    call("acct", 163, 89),
    call("quotactl", 179, 60),
    call("quotactl_fd", 443, 443),
    call("iopl", 172, NONE),
    call("ioperm", 173, NONE),
];

const NO_LOOKS_AT_THE_MACHINE: &[Call] = &[
    call("adjtimex", 159, 171),
    call("clock_adjtime", 305, 266),
    call("syslog", 103, 116),
    call("sethostname", 170, 161),
    call("setdomainname", 171, 162),
    call("vhangup", 153, 58),
    call("modify_ldt", 154, NONE),
    call("lookup_dcookie", 212, 18),
];

const NO_HANDLES: &[Call] = &[call("open_by_handle_at", 304, 265)];

const NO_NAMES_OF_HANDLES: &[Call] = &[call("name_to_handle_at", 303, 264)];

const NO_WATCHING: &[Call] = &[
    call("fanotify_init", 300, 262),
    call("fanotify_mark", 301, 263),
];

const NO_DESCRIPTORS: &[Call] = &[call("pidfd_getfd", 438, 438)];

const NO_PLACEMENT: &[Call] = &[
    call("migrate_pages", 256, 238),
    call("move_pages", 279, 239),
];

const NO_SECRET_MEMORY: &[Call] = &[call("memfd_secret", 447, 447)];

/// A call that is allowed only with some arguments, with the reason.
#[derive(Clone, Copy, Debug)]
pub struct Conditional {
    /// The call.
    pub call: Call,
    /// The condition.
    pub action: Action,
    /// The reason.
    pub reason: &'static str,
}

/// Every flag by which clone(2) and unshare(2) create a namespace.
const CLONE_NEW_ANY: u32 = 0x7e02_0080;

const NO_NAMESPACE: Condition = on(0, CLONE_NEW_ANY, Test::In(&[0]), EPERM).told();

const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;

/// The conditions on socket(2): the family first, then the rest of that family's arguments.
const SOCKET_CONDITIONS: &[Guarded] = &[
    always(KNOWN_FAMILY),
    always(on(0, u32::MAX, Test::NotIn(&[AF_UNSPEC]), EAFNOSUPPORT)),
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

const PRIO_PROCESS: u32 = 0;
const IOPRIO_WHO_PROCESS: u32 = 1;

/// The condition that the first argument is a process other than the first one.
const NOT_INIT: Condition = on(0, u32::MAX, Test::NotIn(&[1]), EPERM).told();

/// The conditions that a single process is named, and not the first one: a program that has joined
/// the first process's group would reach it by naming the group, or its user.
const NOT_INIT_BY_PRIORITY: &[Guarded] = &[
    always(on(0, u32::MAX, Test::In(&[PRIO_PROCESS]), EPERM)),
    always(on(1, u32::MAX, Test::NotIn(&[1]), EPERM).told()),
];
const NOT_INIT_BY_IO_PRIORITY: &[Guarded] = &[
    always(on(0, u32::MAX, Test::In(&[IOPRIO_WHO_PROCESS]), EPERM)),
    always(on(1, u32::MAX, Test::NotIn(&[1]), EPERM).told()),
];

/// The conditions on ioctl(2) of a terminal. Editors ask a console by the second request which keys
/// are held down.
const TERMINAL_REQUESTS: &[Guarded] = &[
    always(on(1, u32::MAX, Test::NotIn(&[TIOCSTI]), EPERM).told()),
    always(on(1, u32::MAX, Test::NotIn(&[TIOCLINUX]), EPERM)),
];

/// The calls that depend on an argument.
pub const CONDITIONAL: &[Conditional] = &[
    Conditional {
        call: call("clone", 56, 220),
        action: Action::If(NO_NAMESPACE),
        reason: "threads and processes, but no namespaces: inside one of its own a program \
                 would have capabilities and reach kernel code that assumes an administrator",
    },
    Conditional {
        call: call("unshare", 272, 97),
        action: Action::If(NO_NAMESPACE),
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
        action: Action::All(TERMINAL_REQUESTS),
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

/// Rules if only listed files may be executed: no file without a name is.
pub(super) const NO_MEMORY_PROGRAMS: &[(Call, Action)] = &[
    (call("memfd_create", 319, 279), Action::Refuse(EPERM)),
    (
        call("execveat", 322, 281),
        Action::If(on(4, 0x1000, Test::In(&[0]), EPERM)),
    ),
];

/// Rules without sockets other than Unix sockets.
pub(super) const NO_SOCKETS: &[(Call, Action)] = &[(
    call("socket", 41, 198),
    Action::All(&[
        always(KNOWN_FAMILY),
        always(on(0, u32::MAX, Test::In(&[AF_UNIX]), EAFNOSUPPORT)),
    ]),
)];

/// Rules if a program may create namespaces of its own: the calls to use them. The kernel requires
/// a capability for each, which the program has only there. Calls that change the machine stay
/// refused, and so do the sockets by which packet filters are written.
pub(super) const NESTING: &[(Call, Action)] = &[
    (call("clone", 56, 220), Action::Allow),
    (
        call("unshare", 272, 97),
        Action::If(on(0, CLONE_NEWTIME, Test::In(&[0]), EPERM)),
    ),
    (call("setns", 308, 268), Action::Allow),
    (call("mount", 165, 40), Action::Allow),
    (call("umount2", 166, 39), Action::Allow),
    (call("pivot_root", 155, 41), Action::Allow),
    (call("chroot", 161, 51), Action::Allow),
    (call("open_tree", 428, 428), Action::Allow),
    (call("move_mount", 429, 429), Action::Allow),
    (call("fsopen", 430, 430), Action::Allow),
    (call("fsconfig", 431, 431), Action::Allow),
    (call("fsmount", 432, 432), Action::Allow),
    (call("fspick", 433, 433), Action::Allow),
    (call("mount_setattr", 442, 442), Action::Allow),
    (call("statmount", 457, 457), Action::Allow),
    (call("listmount", 458, 458), Action::Allow),
    (call("sethostname", 170, 161), Action::Allow),
    (call("setdomainname", 171, 162), Action::Allow),
    // Refused as if there were no keys: container programs go on without then.
    (call("keyctl", 250, 219), Action::Refuse(ENOSYS)),
    (
        call("setsockopt", 54, 208),
        Action::All(&[Guarded {
            only: Some(Guard {
                argument: 1,
                mask: u32::MAX,
                values: &[SOL_IP, SOL_IPV6],
            }),
            condition: on(2, u32::MAX, Test::NotIn(PACKET_FILTERS), EPERM),
        }]),
    ),
];

const CLONE_NEWTIME: u32 = 0x80;
const SOL_IP: u32 = 0;
const SOL_IPV6: u32 = 41;

/// Options by which the owner of a network writes tables of iptables, ip6tables, arptables,
/// ebtables (x_tables) and of IPVS: parsers with repeated vulnerabilities (CVE-2021-22555), which
/// no program in a sandbox needs.
const PACKET_FILTERS: &[u32] = &[
    64, 65, 96, 97, 128, 129, // IPVS from here on.
    1152, 1153, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161, 1162, 1163, 1164, 1165, 1166, 1167,
];

/// One of Atoll's own processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The launcher, which waits for the end of its sandbox.
    Launcher,
    /// The launcher in a fence, where it ends the remaining processes.
    FenceLauncher,
    /// The first process, if cgroups count memory.
    Init,
    /// The first process, if it counts memory itself.
    Counting,
    /// The first process of a fence, which judges calls and makes them itself.
    Judge,
    /// The first process of a fence whose program has outbound connections.
    Router,
}

/// Calls that some of these processes need, with the reason.
#[derive(Debug)]
pub struct Needed {
    /// The processes.
    pub by: &'static [Process],
    /// The reason.
    pub reason: &'static str,
    /// The condition.
    pub action: Action,
    /// The calls.
    pub calls: &'static [Call],
}
use Process::{Counting, FenceLauncher, Init, Judge, Launcher, Router};

const EVERYONE: &[Process] = &[Launcher, FenceLauncher, Init, Counting, Judge, Router];
const JUDGES: &[Process] = &[Judge, Router];

/// Returns the condition that the masked argument is one of these.
const fn is(argument: u8, mask: u32, values: &'static [u32]) -> Action {
    Action::If(on(argument, mask, Test::In(values), EPERM))
}

/// All calls that they need; the last entry for a call applies.
pub const NEEDED: &[Needed] = &[
    Needed {
        by: EVERYONE,
        action: Action::Allow,
        reason: "wait for lines, for children, for a moment; go on after a stop",
        calls: &[
            call("poll", 7, NONE),
            call("ppoll", 271, 73),
            call("wait4", 61, 260),
            call("nanosleep", 35, 101),
            call("clock_nanosleep", 230, 115),
            call("clock_gettime", 228, 113),
            call("restart_syscall", 219, 128),
        ],
    },
    Needed {
        by: EVERYONE,
        action: Action::Allow,
        reason: "hear and tell on lines that are open",
        calls: &[
            call("recvmsg", 47, 212),
            call("sendmsg", 46, 211),
            call("close", 3, 57),
        ],
    },
    Needed {
        by: EVERYONE,
        action: Action::Allow,
        reason: "memory of its own, and the end",
        calls: &[
            call("brk", 12, 214),
            call("munmap", 11, 215),
            call("mremap", 25, 216),
            call("sigaltstack", 131, 132),
            call("exit", 60, 93),
            call("exit_group", 231, 94),
        ],
    },
    Needed {
        by: EVERYONE,
        action: is(2, 0x4, &[0]),
        reason: "memory of its own, but no code",
        calls: &[call("mmap", 9, 222)],
    },
    Needed {
        by: &[Launcher, FenceLauncher],
        action: is(1, u32::MAX, &[9]),
        reason: "end the first process, by the descriptor that it has of it",
        calls: &[call("pidfd_send_signal", 424, 424)],
    },
    Needed {
        by: &[Launcher, FenceLauncher],
        action: Action::Allow,
        reason: "remove control groups; Landlock says where",
        calls: &[call("rmdir", 84, NONE)],
    },
    Needed {
        by: &[Launcher, FenceLauncher],
        action: is(2, u32::MAX, &[0x200]),
        reason: "the same, of directories only",
        calls: &[call("unlinkat", 263, 35)],
    },
    Needed {
        by: &[Init, Counting, Judge, Router],
        action: Action::Allow,
        reason: "take the signal of an ended child, look at it, and signal the program's group",
        calls: &[
            call("read", 0, 63),
            call("waitid", 247, 95),
            call("kill", 62, 129),
        ],
    },
    Needed {
        by: &[Init, Counting, Judge, Router],
        action: is(0, u32::MAX, &[17]),
        reason: "go on without tracing a child that made this its tracer (PTRACE_DETACH)",
        calls: &[call("ptrace", 101, 117)],
    },
    Needed {
        by: &[Init, Counting],
        action: is(1, u32::MAX, &[0x5410, 0xc050_2100, 0xc018_2101]),
        reason: "give the program the terminal's foreground (TIOCSPGRP); take calls that wait, and answer them",
        calls: &[call("ioctl", 16, 29)],
    },
    Needed {
        by: &[FenceLauncher],
        action: is(1, u32::MAX, &[9]),
        reason: "end what the first process left; Landlock says whom",
        calls: &[call("kill", 62, 129)],
    },
    Needed {
        by: &[FenceLauncher, Counting, Judge, Router],
        action: is(2, 0o1103, &[0]),
        reason: "read what /proc tells of processes; nothing is written or made",
        calls: &[call("openat", 257, 56)],
    },
    Needed {
        by: &[FenceLauncher, Counting, Judge, Router],
        action: is(1, 0o1103, &[0]),
        reason: "the same by the older call",
        calls: &[call("open", 2, NONE)],
    },
    Needed {
        by: &[FenceLauncher, Counting, Judge, Router],
        action: Action::Allow,
        reason: "the same",
        calls: &[
            call("read", 0, 63),
            call("fstat", 5, 80),
            call("newfstatat", 262, 79),
            call("statx", 332, 291),
            call("lseek", 8, 62),
            call("getdents64", 217, 61),
            call("getpid", 39, 172),
            call("readlink", 89, NONE),
            call("readlinkat", 267, 78),
            call("statfs", 137, 43),
        ],
    },
    Needed {
        by: JUDGES,
        action: Action::Allow,
        reason: "look at the caller: its memory, its descriptors, the places that it names",
        calls: &[
            call("openat2", 437, 437),
            call("pread64", 17, 67),
            call("pidfd_open", 434, 434),
            call("pidfd_getfd", 438, 438),
            call("getpgid", 121, 155),
        ],
    },
    Needed {
        by: JUDGES,
        action: Action::Allow,
        reason: "be interrupted when a judged call takes too long",
        calls: &[call("rt_sigreturn", 15, 139)],
    },
    Needed {
        by: JUDGES,
        action: is(
            1,
            u32::MAX,
            &[0x5410, 0xc050_2100, 0xc018_2101, 0x4008_2102],
        ),
        reason: "the same, and whether a call still waits",
        calls: &[call("ioctl", 16, 29)],
    },
    Needed {
        by: &[Router],
        action: is(
            1,
            u32::MAX,
            &[0x5410, 0xc050_2100, 0xc018_2101, 0x4008_2102, 0x4018_2103],
        ),
        reason: "the same, and give its caller a socket on which it asks for names",
        calls: &[call("ioctl", 16, 29)],
    },
    Needed {
        by: JUDGES,
        action: is(0, u32::MAX, &[AF_NETLINK]),
        reason: "ask the kernel who listens (sock_diag)",
        calls: &[call("socket", 41, 198)],
    },
    Needed {
        by: JUDGES,
        action: Action::Allow,
        reason: "the same, and sockets' facts",
        calls: &[
            call("sendto", 44, 206),
            call("recvfrom", 45, 207),
            call("getsockname", 51, 204),
            call("getsockopt", 55, 209),
            call("setsockopt", 54, 208),
        ],
    },
    Needed {
        by: &[Router],
        action: is(0, u32::MAX, &[AF_UNIX]),
        reason: "these sockets",
        calls: &[call("socketpair", 53, 199)],
    },
    Needed {
        by: &[Router],
        action: Action::Allow,
        reason: "the other ends of connections to the outside; answers to questions for names",
        calls: &[
            call("accept4", 288, 242),
            call("getpeername", 52, 205),
            call("process_vm_writev", 311, 271),
        ],
    },
    Needed {
        by: JUDGES,
        action: is(1, u32::MAX, &[3]),
        reason: "whether a socket waits (F_GETFL)",
        calls: &[call("fcntl", 72, 25)],
    },
    Needed {
        by: JUDGES,
        action: Action::Allow,
        reason: "make the judged calls",
        calls: &[
            call("connect", 42, 203),
            call("bind", 49, 200),
            call("listen", 50, 201),
            call("fchmodat", 268, 53),
            call("fchownat", 260, 54),
            call("utimensat", 280, 88),
            call("setxattr", 188, 5),
            call("removexattr", 197, 14),
            call("inotify_add_watch", 254, 27),
        ],
    },
];
