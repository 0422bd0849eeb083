//! The seccomp filter of the signer process: a call that is not listed fails.

use atoll_sys::seccomp::{Action, Instruction, Rule, assemble};
use rustix::io::Errno;

/// The calls of the signer process: to read, write, and end.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_futex,
    libc::SYS_restart_syscall,
    libc::SYS_brk,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getrandom,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
];

/// Returns the filter of the signer process.
pub(super) fn filter() -> Vec<Instruction> {
    let refused = Errno::ACCESS.raw_os_error() as u16;
    let rule = |call: &libc::c_long| Rule {
        call: *call as u32,
        action: Action::Allow,
    };
    let rules: Vec<Rule> = ALLOWED.iter().map(rule).collect();
    assemble(&rules, refused)
}
