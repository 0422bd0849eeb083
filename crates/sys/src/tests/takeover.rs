//! Actions that a test has a process of Atoll do as if it had been taken over.

use std::ffi::CString;
use std::fmt::Write;

use libc::{c_int, c_long};

use crate::without;

/// Tries every attack that the test has named targets for, and returns the result of each:
/// `name=0`, or the number of the error. `None` if the process is not to be taken over.
pub fn act(who: &str) -> Option<Vec<u8>> {
    if !without::is(&format!("takeover-{who}")) {
        return None;
    }
    let mut told = format!("{who}:");
    let mut try_one = |name: &str, got: c_long| {
        let error = std::io::Error::last_os_error();
        let number = if got < 0 {
            error.raw_os_error().unwrap_or(-1)
        } else {
            0
        };
        let _ = write!(told, " {name}={number}");
    };
    let victim = number("victim");
    // SAFETY: every pointer is to a C string or record of this function's own; the
    // process is a test's, and whatever it breaks is the test's too.
    unsafe {
        let mut text = [0_u8; 24];
        let secret = open("secret", libc::O_RDONLY);
        try_one("read", secret);
        let got = libc::read(secret as c_int, text.as_mut_ptr().cast(), text.len());
        try_one("made", open("made", libc::O_CREAT | libc::O_WRONLY));
        try_one(
            "mode",
            libc::fchmodat(libc::AT_FDCWD, at("mode").as_ptr(), 0o777, 0).into(),
        );
        try_one("mkdir", libc::mkdir(at("directory").as_ptr(), 0o755).into());
        try_one("rmdir", libc::rmdir(at("empty").as_ptr()).into());
        try_one("unlink", libc::unlink(at("doomed").as_ptr()).into());
        try_one("root", path("/proc/1/root/etc/passwd", libc::O_RDONLY));
        try_one(
            "kernel",
            path("/proc/sys/kernel/core_pattern", libc::O_WRONLY),
        );
        try_one("shadow", path("/etc/shadow", libc::O_RDONLY));
        try_one("unix", connect_unix());
        try_one("tcp", connect_tcp(number("port") as u16));
        try_one("vsock", libc::socket(40, libc::SOCK_STREAM, 0).into());
        // Before it is in a namespace of its own.
        try_one("write", write_memory(victim));
        try_one("mount", mount());
        try_one("userns", libc::unshare(libc::CLONE_NEWUSER).into());
        try_one("namespace", libc::unshare(libc::CLONE_NEWNS).into());
        let other = path("/proc/1/ns/mnt", libc::O_RDONLY);
        try_one(
            "setns",
            libc::setns(other as c_int, libc::CLONE_NEWNS).into(),
        );
        try_one("execute", execute());
        let none = std::ptr::null_mut::<u8>();
        try_one(
            "ptrace",
            libc::ptrace(libc::PTRACE_SEIZE, victim, none, none),
        );
        try_one("getfd", take_descriptor(victim));
        let attributes = [0_u8; 64];
        try_one(
            "bpf",
            libc::syscall(libc::SYS_bpf, 5, attributes.as_ptr(), 64),
        );
        try_one("key", libc::syscall(libc::SYS_keyctl, 0, -3, 1));
        try_one("uring", libc::syscall(libc::SYS_io_uring_setup, 0, 0));
        try_one("code", code());
        let mut limit: libc::rlimit = std::mem::zeroed();
        let limit = libc::prlimit(victim, libc::RLIMIT_CORE, std::ptr::null(), &raw mut limit);
        try_one("limit", limit.into());
        try_one("kill", libc::kill(victim, libc::SIGKILL).into());
        let got = usize::try_from(got).unwrap_or(0);
        let text = text.get(..got).unwrap_or_default();
        let _ = write!(told, " {}", String::from_utf8_lossy(text));
    }
    Some(told.into_bytes())
}

/// Returns the value that the test has named: `name=value` in the list of defences to turn off.
fn named(name: &str) -> String {
    let all = std::env::args().next().unwrap_or_default();
    let list = all.split_once(':').map_or("", |(_, list)| list);
    let mut pairs = list.split(',').filter_map(|one| one.split_once('='));
    pairs
        .find(|(key, _)| *key == name)
        .map_or(String::new(), |(_, value)| value.to_owned())
}

fn number(name: &str) -> i32 {
    named(name).parse().unwrap_or(i32::MAX)
}

fn at(name: &str) -> CString {
    CString::new(format!("{}/{name}", named("at"))).unwrap_or_default()
}

unsafe fn open(name: &str, flags: c_int) -> c_long {
    // SAFETY: the text lives through the call.
    unsafe { libc::open(at(name).as_ptr(), flags, 0o644).into() }
}

unsafe fn path(path: &str, flags: c_int) -> c_long {
    let path = CString::new(path).unwrap_or_default();
    // SAFETY: the text lives through the call.
    unsafe { libc::open(path.as_ptr(), flags).into() }
}

unsafe fn connect_unix() -> c_long {
    let path = at("socket");
    // SAFETY: the address lives through the call, and the text fits or is cut.
    unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path.iter_mut().zip(path.to_bytes()) {
            *to = *from as libc::c_char;
        }
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        let bytes = size_of::<libc::sockaddr_un>() as u32;
        libc::connect(socket, (&raw const address).cast(), bytes).into()
    }
}

unsafe fn connect_tcp(port: u16) -> c_long {
    // SAFETY: the address lives through the call.
    unsafe {
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as u16;
        address.sin_port = port.to_be();
        address.sin_addr.s_addr = 0x7f00_0001_u32.to_be();
        let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        let bytes = size_of::<libc::sockaddr_in>() as u32;
        libc::connect(socket, (&raw const address).cast(), bytes).into()
    }
}

unsafe fn mount() -> c_long {
    let (kind, place) = (c"tmpfs", at(""));
    // SAFETY: the texts live through the call.
    unsafe {
        let (kind, none) = (kind.as_ptr(), std::ptr::null());
        libc::mount(kind, place.as_ptr(), kind, 0, none).into()
    }
}

/// Executes a program in a new process, and returns whether it began.
unsafe fn execute() -> c_long {
    let script = at("script");
    let arguments = [script.as_ptr(), std::ptr::null()];
    // SAFETY: the texts live through the calls.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::execv(script.as_ptr(), arguments.as_ptr());
            libc::_exit(*libc::__errno_location());
        }
        let mut status = 0;
        if child < 0 || libc::waitpid(child, &raw mut status, 0) < 0 {
            return -1;
        }
        *libc::__errno_location() = libc::WEXITSTATUS(status);
        if libc::WEXITSTATUS(status) == 0 {
            0
        } else {
            -1
        }
    }
}

unsafe fn take_descriptor(process: i32) -> c_long {
    // SAFETY: integers only.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, process, 0);
        libc::syscall(libc::SYS_pidfd_getfd, process, 0, 0)
    }
}

/// Writes one byte of the victim, at an address that the test has named.
unsafe fn write_memory(process: i32) -> c_long {
    let place: usize = named("memory").parse().unwrap_or(0);
    let byte = [0_u8];
    let part = |base: *mut libc::c_void| libc::iovec {
        iov_base: base,
        iov_len: byte.len(),
    };
    let from = part(byte.as_ptr().cast_mut().cast());
    let to = part(std::ptr::without_provenance_mut(place));
    // SAFETY: the kernel reads this process's one byte; the other is no memory of it.
    let written =
        unsafe { libc::process_vm_writev(process, &raw const from, 1, &raw const to, 1, 0) };
    written as c_long
}

unsafe fn code() -> c_long {
    let (rights, flags) = (
        libc::PROT_READ | libc::PROT_EXEC,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a mapping of its own, of which nothing is used.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), 4096, rights, flags, -1, 0) };
    if mapped == libc::MAP_FAILED { -1 } else { 0 }
}
