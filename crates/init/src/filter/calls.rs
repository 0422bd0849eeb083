//! The calls by group. Numbers are the kernel's own, by architecture; a call
//! that an architecture does not have is absent there.

/// Calls with one reason.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// What they have in common.
    pub name: &'static str,
    /// Why they are allowed or refused.
    pub reason: &'static str,
    /// The error of a refusal; 0 for groups that are allowed.
    pub error: u16,
    /// Their numbers.
    pub calls: &'static [i64],
}

const EPERM: u16 = 1;
const ENOSYS: u16 = 38;

/// What a program may call.
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
        name: "restricting",
        reason: "give up rights further",
        error: 0,
        calls: RESTRICTING,
    },
];

/// What a program may not call, and gets told so.
pub const REFUSED: &[Group] = &[
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
        name: "clone3",
        reason: "its flags lie behind a pointer, which a filter cannot read; programs fall back to clone",
        error: ENOSYS,
        calls: NO_CLONE3,
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
        name: "io_uring",
        reason: "its requests pass no system call filter; programs fall back",
        error: ENOSYS,
        calls: NO_IO_URING,
    },
    Group {
        name: "page faults",
        reason: "holding a kernel thread at a page fault is a standard step of exploits",
        error: EPERM,
        calls: NO_PAGE_FAULTS,
    },
    Group {
        name: "machine",
        reason: "the machine is not the sandbox's: modules, reboot, clocks, accounting, logs, ports",
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
    Group {
        name: "placement",
        reason: "other processes' memory placement",
        error: EPERM,
        calls: NO_PLACEMENT,
    },
    Group {
        name: "secret memory",
        reason: "memory that even the host's supervisor cannot count",
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

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const FILES: &[i64] = &[
    0, // read
    1, // write
    2, // open
    257, // openat
    437, // openat2
    3, // close
    436, // close_range
    85, // creat
    8, // lseek
    17, // pread64
    18, // pwrite64
    19, // readv
    20, // writev
    295, // preadv
    296, // pwritev
    327, // preadv2
    328, // pwritev2
    4, // stat
    5, // fstat
    6, // lstat
    262, // newfstatat
    332, // statx
    21, // access
    269, // faccessat
    439, // faccessat2
    89, // readlink
    267, // readlinkat
    78, // getdents
    217, // getdents64
    83, // mkdir
    258, // mkdirat
    84, // rmdir
    87, // unlink
    263, // unlinkat
    82, // rename
    264, // renameat
    316, // renameat2
    86, // link
    265, // linkat
    88, // symlink
    266, // symlinkat
    133, // mknod
    259, // mknodat
    90, // chmod
    91, // fchmod
    268, // fchmodat
    92, // chown
    93, // fchown
    94, // lchown
    260, // fchownat
    132, // utime
    235, // utimes
    261, // futimesat
    280, // utimensat
    76, // truncate
    77, // ftruncate
    285, // fallocate
    221, // fadvise64
    187, // readahead
    95, // umask
    80, // chdir
    81, // fchdir
    79, // getcwd
    32, // dup
    33, // dup2
    292, // dup3
    72, // fcntl
    73, // flock
    74, // fsync
    75, // fdatasync
    162, // sync
    306, // syncfs
    277, // sync_file_range
    137, // statfs
    138, // fstatfs
    40, // sendfile
    275, // splice
    276, // tee
    278, // vmsplice
    326, // copy_file_range
    188, // setxattr
    189, // lsetxattr
    190, // fsetxattr
    191, // getxattr
    192, // lgetxattr
    193, // fgetxattr
    194, // listxattr
    195, // llistxattr
    196, // flistxattr
    197, // removexattr
    198, // lremovexattr
    199, // fremovexattr
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const FILES: &[i64] = &[
    63, // read
    64, // write
    56, // openat
    437, // openat2
    57, // close
    436, // close_range
    62, // lseek
    67, // pread64
    68, // pwrite64
    65, // readv
    66, // writev
    69, // preadv
    70, // pwritev
    286, // preadv2
    287, // pwritev2
    80, // fstat
    79, // newfstatat
    291, // statx
    48, // faccessat
    439, // faccessat2
    78, // readlinkat
    61, // getdents64
    34, // mkdirat
    35, // unlinkat
    38, // renameat
    276, // renameat2
    37, // linkat
    36, // symlinkat
    33, // mknodat
    52, // fchmod
    53, // fchmodat
    55, // fchown
    54, // fchownat
    88, // utimensat
    45, // truncate
    46, // ftruncate
    47, // fallocate
    223, // fadvise64
    213, // readahead
    166, // umask
    49, // chdir
    50, // fchdir
    17, // getcwd
    23, // dup
    24, // dup3
    25, // fcntl
    32, // flock
    82, // fsync
    83, // fdatasync
    81, // sync
    267, // syncfs
    84, // sync_file_range
    43, // statfs
    44, // fstatfs
    71, // sendfile
    76, // splice
    77, // tee
    75, // vmsplice
    285, // copy_file_range
    5, // setxattr
    6, // lsetxattr
    7, // fsetxattr
    8, // getxattr
    9, // lgetxattr
    10, // fgetxattr
    11, // listxattr
    12, // llistxattr
    13, // flistxattr
    14, // removexattr
    15, // lremovexattr
    16, // fremovexattr
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const WAITING: &[i64] = &[
    7, // poll
    271, // ppoll
    23, // select
    270, // pselect6
    213, // epoll_create
    291, // epoll_create1
    233, // epoll_ctl
    232, // epoll_wait
    281, // epoll_pwait
    441, // epoll_pwait2
    284, // eventfd
    290, // eventfd2
    282, // signalfd
    289, // signalfd4
    283, // timerfd_create
    286, // timerfd_settime
    287, // timerfd_gettime
    253, // inotify_init
    294, // inotify_init1
    254, // inotify_add_watch
    255, // inotify_rm_watch
    22, // pipe
    293, // pipe2
    35, // nanosleep
    230, // clock_nanosleep
    34, // pause
    37, // alarm
    36, // getitimer
    38, // setitimer
    222, // timer_create
    223, // timer_settime
    224, // timer_gettime
    225, // timer_getoverrun
    226, // timer_delete
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const WAITING: &[i64] = &[
    73, // ppoll
    72, // pselect6
    20, // epoll_create1
    21, // epoll_ctl
    22, // epoll_pwait
    441, // epoll_pwait2
    19, // eventfd2
    74, // signalfd4
    85, // timerfd_create
    86, // timerfd_settime
    87, // timerfd_gettime
    26, // inotify_init1
    27, // inotify_add_watch
    28, // inotify_rm_watch
    59, // pipe2
    101, // nanosleep
    115, // clock_nanosleep
    102, // getitimer
    103, // setitimer
    107, // timer_create
    110, // timer_settime
    108, // timer_gettime
    109, // timer_getoverrun
    111, // timer_delete
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const MEMORY: &[i64] = &[
    9, // mmap
    10, // mprotect
    11, // munmap
    25, // mremap
    26, // msync
    27, // mincore
    28, // madvise
    440, // process_madvise
    12, // brk
    149, // mlock
    325, // mlock2
    150, // munlock
    151, // mlockall
    152, // munlockall
    319, // memfd_create
    324, // membarrier
    330, // pkey_alloc
    331, // pkey_free
    329, // pkey_mprotect
    239, // get_mempolicy
    238, // set_mempolicy
    237, // mbind
    462, // mseal
    453, // map_shadow_stack
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const MEMORY: &[i64] = &[
    222, // mmap
    226, // mprotect
    215, // munmap
    216, // mremap
    227, // msync
    232, // mincore
    233, // madvise
    440, // process_madvise
    214, // brk
    228, // mlock
    284, // mlock2
    229, // munlock
    230, // mlockall
    231, // munlockall
    279, // memfd_create
    283, // membarrier
    289, // pkey_alloc
    290, // pkey_free
    288, // pkey_mprotect
    236, // get_mempolicy
    237, // set_mempolicy
    235, // mbind
    462, // mseal
    453, // map_shadow_stack
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const PROCESSES: &[i64] = &[
    57, // fork
    58, // vfork
    59, // execve
    322, // execveat
    60, // exit
    231, // exit_group
    61, // wait4
    247, // waitid
    62, // kill
    200, // tkill
    234, // tgkill
    434, // pidfd_open
    424, // pidfd_send_signal
    39, // getpid
    110, // getppid
    186, // gettid
    121, // getpgid
    109, // setpgid
    111, // getpgrp
    124, // getsid
    112, // setsid
    218, // set_tid_address
    13, // rt_sigaction
    14, // rt_sigprocmask
    15, // rt_sigreturn
    127, // rt_sigpending
    128, // rt_sigtimedwait
    129, // rt_sigqueueinfo
    297, // rt_tgsigqueueinfo
    130, // rt_sigsuspend
    131, // sigaltstack
    219, // restart_syscall
    157, // prctl
    158, // arch_prctl
    334, // rseq
    202, // futex
    449, // futex_waitv
    454, // futex_wake
    455, // futex_wait
    456, // futex_requeue
    273, // set_robust_list
    274, // get_robust_list
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const PROCESSES: &[i64] = &[
    221, // execve
    281, // execveat
    93, // exit
    94, // exit_group
    260, // wait4
    95, // waitid
    129, // kill
    130, // tkill
    131, // tgkill
    434, // pidfd_open
    424, // pidfd_send_signal
    172, // getpid
    173, // getppid
    178, // gettid
    155, // getpgid
    154, // setpgid
    156, // getsid
    157, // setsid
    96, // set_tid_address
    134, // rt_sigaction
    135, // rt_sigprocmask
    139, // rt_sigreturn
    136, // rt_sigpending
    137, // rt_sigtimedwait
    138, // rt_sigqueueinfo
    240, // rt_tgsigqueueinfo
    133, // rt_sigsuspend
    132, // sigaltstack
    128, // restart_syscall
    167, // prctl
    293, // rseq
    98, // futex
    449, // futex_waitv
    454, // futex_wake
    455, // futex_wait
    456, // futex_requeue
    99, // set_robust_list
    100, // get_robust_list
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const IDENTITY: &[i64] = &[
    102, // getuid
    107, // geteuid
    104, // getgid
    108, // getegid
    118, // getresuid
    120, // getresgid
    115, // getgroups
    105, // setuid
    106, // setgid
    113, // setreuid
    114, // setregid
    117, // setresuid
    119, // setresgid
    122, // setfsuid
    123, // setfsgid
    116, // setgroups
    125, // capget
    126, // capset
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const IDENTITY: &[i64] = &[
    174, // getuid
    175, // geteuid
    176, // getgid
    177, // getegid
    148, // getresuid
    150, // getresgid
    158, // getgroups
    146, // setuid
    144, // setgid
    145, // setreuid
    143, // setregid
    147, // setresuid
    149, // setresgid
    151, // setfsuid
    152, // setfsgid
    159, // setgroups
    90, // capget
    91, // capset
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const LIMITS: &[i64] = &[
    97, // getrlimit
    160, // setrlimit
    98, // getrusage
    100, // times
    140, // getpriority
    252, // ioprio_get
    24, // sched_yield
    204, // sched_getaffinity
    143, // sched_getparam
    145, // sched_getscheduler
    315, // sched_getattr
    146, // sched_get_priority_max
    147, // sched_get_priority_min
    148, // sched_rr_get_interval
    309, // getcpu
    99, // sysinfo
    63, // uname
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const LIMITS: &[i64] = &[
    163, // getrlimit
    164, // setrlimit
    165, // getrusage
    153, // times
    141, // getpriority
    31, // ioprio_get
    124, // sched_yield
    123, // sched_getaffinity
    121, // sched_getparam
    120, // sched_getscheduler
    275, // sched_getattr
    125, // sched_get_priority_max
    126, // sched_get_priority_min
    127, // sched_rr_get_interval
    168, // getcpu
    179, // sysinfo
    160, // uname
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const TIME: &[i64] = &[
    201, // time
    96, // gettimeofday
    228, // clock_gettime
    229, // clock_getres
    318, // getrandom
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const TIME: &[i64] = &[
    169, // gettimeofday
    113, // clock_gettime
    114, // clock_getres
    278, // getrandom
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const SOCKETS: &[i64] = &[
    49, // bind
    42, // connect
    50, // listen
    43, // accept
    288, // accept4
    51, // getsockname
    52, // getpeername
    55, // getsockopt
    54, // setsockopt
    48, // shutdown
    44, // sendto
    45, // recvfrom
    46, // sendmsg
    47, // recvmsg
    307, // sendmmsg
    299, // recvmmsg
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const SOCKETS: &[i64] = &[
    200, // bind
    203, // connect
    201, // listen
    202, // accept
    242, // accept4
    204, // getsockname
    205, // getpeername
    209, // getsockopt
    208, // setsockopt
    210, // shutdown
    206, // sendto
    207, // recvfrom
    211, // sendmsg
    212, // recvmsg
    269, // sendmmsg
    243, // recvmmsg
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const IPC: &[i64] = &[
    29, // shmget
    30, // shmat
    67, // shmdt
    31, // shmctl
    64, // semget
    65, // semop
    66, // semctl
    220, // semtimedop
    68, // msgget
    69, // msgsnd
    70, // msgrcv
    71, // msgctl
    240, // mq_open
    241, // mq_unlink
    242, // mq_timedsend
    243, // mq_timedreceive
    244, // mq_notify
    245, // mq_getsetattr
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const IPC: &[i64] = &[
    194, // shmget
    196, // shmat
    197, // shmdt
    195, // shmctl
    190, // semget
    193, // semop
    191, // semctl
    192, // semtimedop
    186, // msgget
    189, // msgsnd
    188, // msgrcv
    187, // msgctl
    180, // mq_open
    181, // mq_unlink
    182, // mq_timedsend
    183, // mq_timedreceive
    184, // mq_notify
    185, // mq_getsetattr
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub(super) const DEBUGGING: &[i64] = &[
    101, // ptrace
    310, // process_vm_readv
    311, // process_vm_writev
    312, // kcmp
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
pub(super) const DEBUGGING: &[i64] = &[
    117, // ptrace
    270, // process_vm_readv
    271, // process_vm_writev
    272, // kcmp
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const RESTRICTING: &[i64] = &[
    317, // seccomp
    444, // landlock_create_ruleset
    445, // landlock_add_rule
    446, // landlock_restrict_self
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const RESTRICTING: &[i64] = &[
    277, // seccomp
    444, // landlock_create_ruleset
    445, // landlock_add_rule
    446, // landlock_restrict_self
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const AIO: &[i64] = &[
    206, // io_setup
    207, // io_destroy
    209, // io_submit
    210, // io_cancel
    208, // io_getevents
    333, // io_pgetevents
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const AIO: &[i64] = &[
    0, // io_setup
    1, // io_destroy
    2, // io_submit
    3, // io_cancel
    4, // io_getevents
    292, // io_pgetevents
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const NO_MOUNTS: &[i64] = &[
    165, // mount
    166, // umount2
    155, // pivot_root
    161, // chroot
    428, // open_tree
    429, // move_mount
    430, // fsopen
    431, // fsconfig
    432, // fsmount
    433, // fspick
    442, // mount_setattr
    457, // statmount
    458, // listmount
    167, // swapon
    168, // swapoff
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const NO_MOUNTS: &[i64] = &[
    40, // mount
    39, // umount2
    41, // pivot_root
    51, // chroot
    428, // open_tree
    429, // move_mount
    430, // fsopen
    431, // fsconfig
    432, // fsmount
    433, // fspick
    442, // mount_setattr
    457, // statmount
    458, // listmount
    224, // swapon
    225, // swapoff
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const NO_NAMESPACES: &[i64] = &[
    308, // setns
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const NO_NAMESPACES: &[i64] = &[
    268, // setns
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const NO_CLONE3: &[i64] = &[
    435, // clone3
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const NO_CLONE3: &[i64] = &[
    435, // clone3
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const NO_KEYS: &[i64] = &[
    250, // keyctl
    248, // add_key
    249, // request_key
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const NO_KEYS: &[i64] = &[
    219, // keyctl
    217, // add_key
    218, // request_key
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const NO_KERNEL_PROGRAMS: &[i64] = &[
    321, // bpf
    298, // perf_event_open
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const NO_KERNEL_PROGRAMS: &[i64] = &[
    280, // bpf
    241, // perf_event_open
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const NO_IO_URING: &[i64] = &[
    425, // io_uring_setup
    426, // io_uring_enter
    427, // io_uring_register
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const NO_IO_URING: &[i64] = &[
    425, // io_uring_setup
    426, // io_uring_enter
    427, // io_uring_register
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const NO_PAGE_FAULTS: &[i64] = &[
    323, // userfaultfd
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const NO_PAGE_FAULTS: &[i64] = &[
    282, // userfaultfd
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const NO_MACHINE: &[i64] = &[
    175, // init_module
    313, // finit_module
    176, // delete_module
    246, // kexec_load
    320, // kexec_file_load
    169, // reboot
    164, // settimeofday
    227, // clock_settime
    159, // adjtimex
    305, // clock_adjtime
    163, // acct
    103, // syslog
    179, // quotactl
    443, // quotactl_fd
    170, // sethostname
    171, // setdomainname
    153, // vhangup
    172, // iopl
    173, // ioperm
    154, // modify_ldt
    212, // lookup_dcookie
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const NO_MACHINE: &[i64] = &[
    105, // init_module
    273, // finit_module
    106, // delete_module
    104, // kexec_load
    294, // kexec_file_load
    142, // reboot
    170, // settimeofday
    112, // clock_settime
    171, // adjtimex
    266, // clock_adjtime
    89, // acct
    116, // syslog
    60, // quotactl
    443, // quotactl_fd
    161, // sethostname
    162, // setdomainname
    58, // vhangup
    18, // lookup_dcookie
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const NO_HANDLES: &[i64] = &[
    304, // open_by_handle_at
    303, // name_to_handle_at
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const NO_HANDLES: &[i64] = &[
    265, // open_by_handle_at
    264, // name_to_handle_at
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const NO_WATCHING: &[i64] = &[
    300, // fanotify_init
    301, // fanotify_mark
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const NO_WATCHING: &[i64] = &[
    262, // fanotify_init
    263, // fanotify_mark
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const NO_DESCRIPTORS: &[i64] = &[
    438, // pidfd_getfd
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const NO_DESCRIPTORS: &[i64] = &[
    438, // pidfd_getfd
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const NO_PLACEMENT: &[i64] = &[
    256, // migrate_pages
    279, // move_pages
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const NO_PLACEMENT: &[i64] = &[
    238, // migrate_pages
    239, // move_pages
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const NO_SECRET_MEMORY: &[i64] = &[
    447, // memfd_secret
];
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const NO_SECRET_MEMORY: &[i64] = &[
    447, // memfd_secret
];
