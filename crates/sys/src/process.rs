//! Creating, watching and ending processes.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;

use rustix::fs::Mode;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Pid, setpgid};

use crate::check;
use crate::descriptor::owned;

/// The new namespaces of a new process (clone(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespaces(u64);

impl Namespaces {
    /// Mounts, process ids, IPC and host name. (A cgroup namespace is entered later, from the group
    /// that is then its root; a network namespace is created in parallel, because that takes as
    /// long as the others together.)
    pub const ALL_BUT_USER: Self = Self(
        (libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS) as u64,
    );
    /// Mounts, process ids, IPC and host name, and a user namespace that owns them.
    pub const ALL: Self = Self(Self::ALL_BUT_USER.0 | libc::CLONE_NEWUSER as u64);
    /// No namespaces: a mere copy of the process.
    pub const NONE: Self = Self(0);
    /// A user namespace alone.
    pub const USER: Self = Self(libc::CLONE_NEWUSER as u64);
}

/// The flag as in linux/sched.h; libc's constant is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The two sides of a fork.
#[derive(Debug)]
pub enum Side {
    /// The calling process, with the new one.
    Parent(Child),
    /// The new process.
    Child,
}

/// A child process.
#[derive(Debug)]
pub struct Child {
    /// Its pid, as this process sees it.
    pub pid: u32,
    /// Its pidfd, valid even after the pid is reused; readable when the process has ended.
    pub descriptor: OwnedFd,
}

/// Creates a process with namespaces of its own (clone3(2)), directly in a cgroup of version 2 if
/// one is given. The new process continues from here with a copy of this one's memory.
///
/// # Errors
/// EPERM where user namespaces are forbidden, ENOSPC or EUSERS where their
/// number is limited; otherwise the kernel's.
pub fn divide(namespaces: Namespaces, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Side> {
    let mut raw_descriptor: RawFd = -1;
    // SAFETY: clone_args is plain data for which zeroes are the defaults.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = namespaces.0 | libc::CLONE_PIDFD as u64;
    #[cfg(feature = "without_defences")]
    crate::without::is("ipc").then(|| arguments.flags &= !(libc::CLONE_NEWIPC as u64));
    arguments.pidfd = (&raw mut raw_descriptor) as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = cgroup.as_raw_fd() as u64;
    }
    let bytes = size_of::<libc::clone_args>();
    // SAFETY: without CLONE_VM the child has its own copy of everything; the
    // caller is single-threaded (asserted by the launcher at its start), so no
    // lock can be held by a thread that does not exist in the child. Where it is
    // not, the child takes no lock: it makes system calls and ends.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, bytes) })?;
    if pid == 0 {
        return Ok(Side::Child);
    }
    Ok(Side::Parent(Child {
        pid: pid as u32,
        descriptor: owned(raw_descriptor),
    }))
}

/// The stack of a process that only ends, bytes.
const ENDING_STACK_BYTES: usize = 16 << 10;

/// Returns whether a process with these namespaces can be made. It ends at once, and until then has
/// this one's memory: a copy of that would take longer than all the rest.
#[must_use]
pub fn can_divide(namespaces: Namespaces) -> bool {
    extern "C" fn end(_: *mut libc::c_void) -> libc::c_int {
        0
    }
    let mut stack = vec![0_u8; ENDING_STACK_BYTES];
    let top = stack.as_mut_ptr_range().end.cast();
    let flags = namespaces.0 as libc::c_int | libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: this thread waits (CLONE_VFORK) while the child uses that stack, and nothing else.
    let pid = unsafe { libc::clone(end, top, flags, ptr::null_mut()) };
    check(pid).is_ok() && wait(Some(pid as u32), true).is_ok()
}

/// A program to execute, with everything prepared that needs memory, so that
/// nothing is allocated between fork and exec.
#[derive(Debug)]
pub struct Program {
    candidates: Vec<CString>,
    _arguments: Vec<CString>,
    _environment: Vec<CString>,
    argument_pointers: Vec<*const libc::c_char>,
    environment_pointers: Vec<*const libc::c_char>,
}

impl Program {
    /// Prepares a program. A name without a slash is looked for in
    /// `search_path` (a colon-separated list), as execvp(3) does.
    #[must_use]
    pub fn new(
        arguments: Vec<CString>,
        environment: Vec<CString>,
        search_path: &[u8],
    ) -> Option<Self> {
        let name = arguments.first()?.to_bytes();
        let candidates = if name.is_empty() {
            // Joined to a directory it would name the directory.
            Vec::new()
        } else if name.contains(&b'/') {
            vec![CString::new(name).ok()?]
        } else {
            search_path
                .split(|byte| *byte == b':')
                .filter(|directory| directory.first() == Some(&b'/'))
                .filter_map(|directory| CString::new([directory, b"/", name].concat()).ok())
                .collect()
        };
        let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
            list.iter()
                .map(|text| text.as_ptr())
                .chain([ptr::null()])
                .collect()
        };
        Some(Self {
            candidates,
            argument_pointers: pointers(&arguments),
            environment_pointers: pointers(&environment),
            _arguments: arguments,
            _environment: environment,
        })
    }

    /// Executes it; returns only on failure, with the reason: ENOENT if no candidate exists,
    /// otherwise the last candidate's error.
    #[must_use]
    pub fn execute(&self) -> io::Error {
        let arguments = self.argument_pointers.as_ptr();
        let environment = self.environment_pointers.as_ptr();
        let mut worst = io::Error::from_raw_os_error(libc::ENOENT);
        for candidate in &self.candidates {
            // SAFETY: all pointers are to C strings that `self` owns, each
            // list ends with null.
            unsafe { libc::execve(candidate.as_ptr(), arguments, environment) };
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {}
                Some(libc::EACCES) => worst = error,
                _ => return error,
            }
        }
        worst
    }
}

/// Forks. The child runs `body`, and exits with the status that it returns.
///
/// # Errors
/// EAGAIN where a limit of processes is reached.
pub fn fork(body: impl FnOnce() -> u8) -> io::Result<u32> {
    // SAFETY: the caller is single-threaded (init and the launcher are), so
    // the child may do what the parent may.
    match check(unsafe { libc::fork() })? {
        0 => {
            let status = body();
            exit_now(status)
        }
        pid => Ok(pid as u32),
    }
}

/// Creates a process whose parent is this process's own parent, which reaps it (clone(2),
/// CLONE_PARENT). The new process runs `body`, and exits with the status that it returns.
///
/// # Errors
/// EAGAIN where a limit of processes is reached; EINVAL for the first process of a namespace.
pub fn fork_sibling(body: impl FnOnce() -> u8) -> io::Result<u32> {
    let flags = libc::CLONE_PARENT | libc::SIGCHLD;
    let none = 0_usize;
    // SAFETY: without CLONE_VM the new process has its own copy of everything, and its stack; the
    // caller is single-threaded (the exec server is), so the new one may do what the caller may.
    // The arguments that are zero have the same meaning in every order that architectures use.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    match check(pid)? {
        0 => {
            let status = body();
            exit_now(status)
        }
        pid => Ok(pid as u32),
    }
}

/// Resumes a child that has made this process its tracer (`PTRACE_TRACEME` of ptrace(2)) and has
/// stopped by a signal, and no longer traces it. The child takes the signal as if nobody had traced
/// it, but for SIGTRAP, which only traced programs get at execve(2). Returns whether it was traced.
#[must_use]
pub fn stop_tracing(pid: u32, signal: u8) -> bool {
    let passed = match libc::c_int::from(signal) {
        libc::SIGTRAP => 0,
        other => other,
    };
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: PTRACE_DETACH takes integers alone and writes no memory of this process.
    let done = unsafe { libc::ptrace(libc::PTRACE_DETACH, pid as libc::pid_t, none, passed) };
    check(done).is_ok()
}

/// Halves this process's weight on a busy processor, for good and with all that it starts (nice(2),
/// sched(7)): only a capability can restore it.
pub fn yield_to_others() {
    // Who is at the last step already has no further one.
    let _ = rustix::process::nice(3);
}

/// Returns the size of a page of memory, bytes.
#[must_use]
pub fn page_bytes() -> u64 {
    // SAFETY: sysconf takes an integer.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// Ends this process without running destructors or flushing anything.
pub fn exit_now(status: u8) -> ! {
    // SAFETY: _exit takes an integer and does not return.
    unsafe { libc::_exit(libc::c_int::from(status)) }
}

/// Starts a program from an open file with these descriptors as 0, 1, 2, 3 …, an empty environment
/// and default signals, in a process group of its own (posix_spawn(3): the address space is not
/// copied). Other descriptors without close-on-exec stay open: the launcher closes them first of
/// all.
///
/// # Errors
/// The kernel's.
pub fn spawn_from_memory(
    program: &OwnedFd,
    name: &CStr,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<u32> {
    // Numbers above every target, so that no copy overwrites a source.
    let raise = |fd: BorrowedFd<'_>| fcntl_dupfd_cloexec(fd, 32);
    let program = raise(program.as_fd())?;
    let raised: Vec<OwnedFd> = descriptors
        .iter()
        .map(|fd| raise(*fd))
        .collect::<Result<_, _>>()?;
    let path = CString::new(format!("/proc/self/fd/{}", program.as_raw_fd()))?;
    let mut actions = Actions::new()?;
    for (number, descriptor) in raised.iter().enumerate() {
        actions.copy(descriptor.as_raw_fd(), number as RawFd)?;
    }
    let attributes = Attributes::fresh_signals_own_group()?;
    let arguments = [name.as_ptr().cast_mut(), ptr::null_mut()];
    let environment = [ptr::null_mut()];
    let mut pid = 0;
    // SAFETY: all pointers live through the call; both lists end with null.
    prepared(unsafe {
        libc::posix_spawn(
            &raw mut pid,
            path.as_ptr(),
            &raw const actions.0,
            &raw const attributes.0,
            arguments.as_ptr(),
            environment.as_ptr(),
        )
    })?;
    Ok(pid as u32)
}

/// Converts the return value of posix_spawn and its kin, which is the error itself.
fn prepared(error: libc::c_int) -> io::Result<()> {
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The file actions of posix_spawn; freed when dropped.
struct Actions(libc::posix_spawn_file_actions_t);

impl Actions {
    fn new() -> io::Result<Self> {
        // SAFETY: init fills the zeroed record.
        unsafe {
            let mut actions = Self(std::mem::zeroed());
            prepared(libc::posix_spawn_file_actions_init(&raw mut actions.0))?;
            Ok(actions)
        }
    }

    fn copy(&mut self, from: RawFd, to: RawFd) -> io::Result<()> {
        // SAFETY: the record was initialised by `new`.
        prepared(unsafe { libc::posix_spawn_file_actions_adddup2(&raw mut self.0, from, to) })
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: the record was initialised by `new` and is dropped once.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}

/// The attributes of posix_spawn; freed when dropped.
struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn fresh_signals_own_group() -> io::Result<Self> {
        let none = signal_set(&[])?;
        let flags = libc::POSIX_SPAWN_SETSIGMASK
            | libc::POSIX_SPAWN_SETSIGDEF
            | libc::POSIX_SPAWN_SETPGROUP;
        // SAFETY: every call gets the record that init filled, and signal sets
        // that signal_set and sigfillset filled.
        unsafe {
            let mut attributes = Self(std::mem::zeroed());
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            let record = &raw mut attributes.0;
            prepared(libc::posix_spawnattr_init(record))?;
            prepared(libc::posix_spawnattr_setsigmask(record, &raw const none))?;
            prepared(libc::posix_spawnattr_setsigdefault(record, &raw const all))?;
            prepared(libc::posix_spawnattr_setpgroup(record, 0))?;
            prepared(libc::posix_spawnattr_setflags(
                record,
                flags as libc::c_short,
            ))?;
            Ok(attributes)
        }
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: the record was initialised and is dropped once.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}

/// A change of a process's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The process returned this status.
    Exited(u8),
    /// This signal ended the process.
    Signalled(u8),
    /// This signal stopped the process.
    Stopped(u8),
}

/// A change of a child's state, with the resources that the child and its waited-for descendants
/// used.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    /// The child's pid.
    pub pid: u32,
    /// The change.
    pub change: Change,
    /// The processor time, microseconds.
    pub cpu_us: u64,
    /// The largest resident memory of one of them, bytes.
    pub memory_peak_bytes: u64,
}

/// Returns a child of this process that has ended or stopped, and leaves it so for [`wait`]
/// (waitid(2), `WNOWAIT`); `None` if none has.
///
/// # Errors
/// ECHILD when there are no children.
pub fn changed_child() -> io::Result<Option<u32>> {
    // SAFETY: siginfo_t is plain data, which waitid leaves as it is where no child has changed.
    let mut facts: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    loop {
        // SAFETY: the record lives through the call.
        match check(unsafe { libc::waitid(libc::P_ALL, 0, &raw mut facts, flags) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            waited => {
                waited?;
                break;
            }
        }
    }
    // SAFETY: waitid fills the fields of SIGCHLD, or leaves zeroes.
    let pid = unsafe { facts.si_pid() };
    Ok((pid != 0).then_some(pid as u32))
}

/// Takes the next change among this process's children (wait4(2)), of `pid` or of any: the end or,
/// unless `pid` is waited for, a stop. Without `block` the answer is `None` when nothing has changed.
///
/// # Errors
/// ECHILD when there are no children.
pub fn wait(pid: Option<u32>, block: bool) -> io::Result<Option<Waited>> {
    let mut status = 0;
    // SAFETY: rusage is plain data that wait4 fills.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let which = pid.map_or(-1, |pid| pid as libc::pid_t);
    // Who waits for one waits for its end; stops are for who watches over all.
    let stops = match block && pid.is_some() {
        true => 0,
        false => libc::WUNTRACED,
    };
    let flags = stops | libc::__WALL | if block { 0 } else { libc::WNOHANG };
    let pid = loop {
        // SAFETY: both records live through the call.
        match check(unsafe { libc::wait4(which, &raw mut status, flags, &raw mut usage) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            waited => break waited?,
        }
    };
    Ok((pid != 0).then(|| Waited {
        pid: pid as u32,
        change: change(status),
        cpu_us: microseconds(usage.ru_utime) + microseconds(usage.ru_stime),
        memory_peak_bytes: usage.ru_maxrss as u64 * 1024,
    }))
}

fn change(status: libc::c_int) -> Change {
    if libc::WIFSTOPPED(status) {
        Change::Stopped(libc::WSTOPSIG(status) as u8)
    } else if libc::WIFSIGNALED(status) {
        Change::Signalled(libc::WTERMSIG(status) as u8)
    } else {
        Change::Exited(libc::WEXITSTATUS(status) as u8)
    }
}

fn microseconds(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64
}

/// Sends a signal to the process of a pidfd. One that has already ended is no error.
///
/// # Errors
/// The kernel's.
pub fn signal(process: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let (process, none) = (process.as_raw_fd(), ptr::null::<libc::siginfo_t>());
    // SAFETY: integers and a null pointer, which is allowed.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, signal, none, 0) };
    fine_if_gone(check(sent).map(drop))
}

/// Returns whether two threads share a table of open files (kcmp(2)); false if the kernel does not
/// say.
#[must_use]
pub fn share_files(one: u32, other: u32) -> bool {
    const FILES: libc::c_int = 2;
    // SAFETY: integers only.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, FILES, 0, 0) == 0 }
}

/// Looks at every listed item, then lists again and looks at new ones, until there are none.
/// Returns whether that was reached: otherwise items that move from process to process faster than
/// they can be listed may have been missed.
pub fn look_until_none_is_new<T: Ord>(
    mut list: impl FnMut() -> BTreeSet<T>,
    mut look: impl FnMut(&T),
) -> bool {
    const ROUNDS_MAX: u32 = 64;
    let mut known = BTreeSet::new();
    for _ in 0..ROUNDS_MAX {
        let listed = list();
        let new: Vec<&T> = listed.difference(&known).collect();
        if new.is_empty() {
            return true;
        }
        new.into_iter().for_each(&mut look);
        known = listed;
    }
    false
}

/// Sends a signal to every process of a group. A group that is gone is no error.
///
/// # Errors
/// The kernel's; InvalidInput for groups 0 and 1, which mean something else.
pub fn signal_group(group: u32, signal: i32) -> io::Result<()> {
    if group <= 1 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: integers only.
    let sent = unsafe { libc::kill(-(group as libc::pid_t), signal) };
    fine_if_gone(check(sent).map(drop))
}

/// Sends a signal to every process that this one may signal, but itself and the first one of its
/// namespace: from there, to every other process in it. None at all is no error.
///
/// # Errors
/// The kernel's.
pub fn signal_all(signal: i32) -> io::Result<()> {
    // SAFETY: integers only.
    let sent = unsafe { libc::kill(-1, signal) };
    fine_if_gone(check(sent).map(drop))
}

fn fine_if_gone(sent: io::Result<()>) -> io::Result<()> {
    match sent {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        sent => sent,
    }
}

/// Puts a process into a group of its own (setpgid(2)); 0 is the caller.
///
/// # Errors
/// The kernel's.
pub fn lead_group(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(|_| Errno::SRCH)?;
    Ok(setpgid(Pid::from_raw(pid), None)?)
}

/// Returns a descriptor that becomes readable when one of these signals arrives; they have no other
/// effect from now on.
///
/// # Errors
/// The kernel's.
pub fn signals_as_descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = signal_set(signals)?;
    change_signal_mask(libc::SIG_BLOCK, &set)?;
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the set lives through the call.
    check(unsafe { libc::signalfd(-1, &raw const set, flags) }).map(owned)
}

fn signal_set(signals: &[i32]) -> io::Result<libc::sigset_t> {
    // SAFETY: sigemptyset fills the record before anything is added.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            check(libc::sigaddset(&raw mut set, *signal))?;
        }
        Ok(set)
    }
}

fn change_signal_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the set lives through the call, the one before is not asked for.
    check(unsafe { libc::sigprocmask(how, set, ptr::null_mut()) }).map(drop)
}

/// Returns the next signal of such a descriptor.
///
/// # Errors
/// The kernel's.
pub fn next_signal(descriptor: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let mut facts = [0; size_of::<libc::signalfd_siginfo>()];
    match rustix::io::read(descriptor, &mut facts) {
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        read => read?,
    };
    // The record starts with the signal's number; it is read whole or not at all.
    let [one, two, three, four, ..] = facts;
    Ok(Some(i32::from_ne_bytes([one, two, three, four])))
}

/// Unblocks every signal and restores its default effect, as a fresh program expects.
///
/// # Errors
/// The kernel's.
pub fn reset_signals() -> io::Result<()> {
    for number in 1..=64 {
        if number != libc::SIGKILL && number != libc::SIGSTOP {
            // SAFETY: SIG_DFL is a valid disposition.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
    }
    change_signal_mask(libc::SIG_SETMASK, &signal_set(&[])?)
}

/// Interrupts the system call that this process waits in, at this interval for ever (setitimer(2)).
/// Its children are not interrupted.
///
/// # Errors
/// The kernel's.
pub fn interrupt_every(milliseconds: u16) -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    let interval = libc::timeval {
        tv_sec: i64::from(milliseconds / 1000),
        tv_usec: i64::from(milliseconds % 1000) * 1000,
    };
    let timer = libc::itimerval {
        it_interval: interval,
        it_value: interval,
    };
    // SAFETY: the records are plain data that live through the calls; the handler does
    // nothing, and without SA_RESTART the interrupted call returns.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        check(libc::sigaction(
            libc::SIGALRM,
            &raw const action,
            ptr::null_mut(),
        ))?;
        check(libc::setitimer(
            libc::ITIMER_REAL,
            &raw const timer,
            ptr::null_mut(),
        ))
        .map(drop)
    }
}

/// Ignores a signal.
pub fn ignore_signal(number: i32) {
    // SAFETY: SIG_IGN is a valid disposition; the worst answer is an error for
    // a number that does not exist, which changes nothing.
    unsafe { libc::signal(number, libc::SIG_IGN) };
}

/// Sets the name of this process in lists of processes, 15 bytes at most.
///
/// # Errors
/// The kernel's.
pub fn set_name(name: &CStr) -> io::Result<()> {
    Ok(rustix::thread::set_name(name)?)
}

/// Changes the working directory.
///
/// # Errors
/// The kernel's.
pub fn change_directory(path: &CStr) -> io::Result<()> {
    Ok(rustix::process::chdir(path)?)
}

/// Sets the mask of mode bits that new files do not get (umask(2)); returns the old one.
#[must_use]
pub fn change_mode_mask(mask: u32) -> u32 {
    rustix::process::umask(Mode::from_bits_retain(mask)).bits()
}
