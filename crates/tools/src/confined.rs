//! Processes that read what strangers have written, and have no rights: a filter of the calls of a
//! process with threads that accepts connections, reads and writes. A call that is not listed fails:
//! no socket of its own, so that no service of this host is reached, no file, no program.

use std::io;

use atoll_sys::{credentials, landlock, seccomp};

use atoll_sys::seccomp::{Action, Instruction, Rule, Test, assemble, on};
use rustix::io::Errno;

/// The calls that are allowed whatever their arguments.
const ALLOWED: &[libc::c_long] = &[
    // Connections that came, and pairs of sockets.
    libc::SYS_accept4,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    // What is open.
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    // Waiting.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    // Memory, threads, the end.
    libc::SYS_brk,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Gives up every right of this process but what is open: it opens no file, makes no connection, and
/// sends no signal.
///
/// # Errors
/// When the kernel does not take the rights away. The process must end then.
pub fn confine(name: &str) -> io::Result<()> {
    credentials::forbid_new_privileges()?;
    credentials::keep_capabilities(0)?;
    landlock::Ruleset::new(landlock::version()?, landlock::Holds::All)?.enter()?;
    seccomp::install(&filter(), name)
}

/// Returns the filter.
fn filter() -> Vec<Instruction> {
    let refused = Errno::ACCESS.raw_os_error() as u16;
    let only = |call: libc::c_long, allowed: &'static [u32]| Rule {
        call: call as u32,
        action: Action::If(on(0, u32::MAX, Test::In(allowed), refused)),
    };
    let mut rules: Vec<Rule> = ALLOWED
        .iter()
        .map(|call| Rule {
            call: *call as u32,
            action: Action::Allow,
        })
        .collect();
    rules.push(only(libc::SYS_socketpair, &[libc::AF_UNIX as u32]));
    // A name for a thread, and nothing else.
    rules.push(only(libc::SYS_prctl, &[libc::PR_SET_NAME as u32]));
    assemble(&rules, refused)
}
