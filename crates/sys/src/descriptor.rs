//! File descriptors: sealed memory, pipes, opening beneath a directory, polling.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::{self, AtFlags, CWD, FileType, MemfdFlags, Mode, OFlags, ResolveFlags, SealFlags};
use rustix::io::{Errno, FdFlags, fcntl_setfd, pread, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Gid, Uid};

use crate::check;

/// The seals against every change, also of the seals themselves.
const SEALS: SealFlags = SealFlags::SEAL
    .union(SealFlags::SHRINK)
    .union(SealFlags::GROW)
    .union(SealFlags::WRITE);

/// Copies `content` into an anonymous file that cannot be changed any more (memfd_create(2), seals
/// of fcntl(2)). It is closed on exec.
///
/// # Errors
/// The kernel's: no memory, or too many open files.
pub fn sealed_memory(name: &CStr, content: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Required where vm.memfd_noexec is set; kernels before 6.3 do not know it.
    let fd = match fs::memfd_create(name, flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => fs::memfd_create(name, flags)?,
        made => made?,
    };
    write_all(&fd, content)?;
    seal(&fd)?;
    Ok(fd)
}

/// Adds seals against every change. While the kernel itself holds a page for a moment, to move or
/// to clean it, it refuses the seal against writing with EBUSY (fcntl(2)): up to 20 retries.
fn seal(fd: &OwnedFd) -> io::Result<()> {
    const TRIES: u32 = 20;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
    for _ in 0..TRIES {
        match fs::fcntl_add_seals(fd, SEALS) {
            Err(Errno::BUSY) => std::thread::sleep(PAUSE),
            done => return Ok(done?),
        }
    }
    Ok(fs::fcntl_add_seals(fd, SEALS)?)
}

/// Returns whether an anonymous file is sealed against every change.
///
/// # Errors
/// The kernel's, as EINVAL for a descriptor that cannot be sealed.
pub fn is_sealed(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(fs::fcntl_get_seals(fd)?.contains(SEALS))
}

/// Writes everything, continuing after interruptions.
///
/// # Errors
/// The kernel's, WriteZero when a write makes no progress.
pub fn write_all(fd: &OwnedFd, mut content: &[u8]) -> io::Result<()> {
    while !content.is_empty() {
        match retry_on_intr(|| rustix::io::write(fd, content))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => content = content.get(written..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Reads once into `buffer`; 0 means the end.
///
/// # Errors
/// The kernel's, but for an interruption, after which it reads again.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::read(fd, &mut *buffer))?)
}

/// Reads a whole anonymous file from its start, at most `bytes_max`.
///
/// # Errors
/// InvalidData when it is longer, otherwise the kernel's.
pub fn read_from_start(fd: BorrowedFd<'_>, bytes_max: usize) -> io::Result<Vec<u8>> {
    let bytes = usize::try_from(fs::fstat(fd)?.st_size).unwrap_or(usize::MAX);
    if bytes > bytes_max {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // Straight to where it stays: a block on the stack would keep a copy.
    let mut content = vec![0; bytes];
    let mut done = 0;
    while let Some(rest) = content.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match retry_on_intr(|| pread(fd, &mut *rest, done as u64))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            got => done += got,
        }
    }
    Ok(content)
}

/// Creates a pipe, closed on exec: the reading and the writing end.
///
/// # Errors
/// The kernel's.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

/// Opens the object at an absolute or relative path without following any symbolic link on the way
/// (openat2(2)), as a place only (`O_PATH`).
///
/// # Errors
/// ELOOP where a symbolic link stands on the way; otherwise the kernel's.
pub fn open_place(directory: Option<BorrowedFd<'_>>, path: &CStr) -> io::Result<OwnedFd> {
    let (directory, mode) = (directory.unwrap_or(CWD), Mode::empty());
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(fs::openat2(directory, path, flags, mode, NO_LINKS)?)
}

/// Opens a path beneath `root`, never leaving it and never following a link.
/// `flags` and `mode` are those of open(2); `O_CLOEXEC` is added.
///
/// # Errors
/// EXDEV for a path that would leave, ELOOP for a link; otherwise the kernel's.
pub fn open_beneath(
    root: BorrowedFd<'_>,
    path: &CStr,
    flags: libc::c_int,
    mode: u32,
) -> io::Result<OwnedFd> {
    let (flags, mode) = (open_flags(flags), Mode::from_bits_retain(mode));
    let resolve = NO_LINKS | ResolveFlags::BENEATH;
    Ok(fs::openat2(root, path, flags, mode, resolve)?)
}

const NO_LINKS: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);

fn open_flags(flags: libc::c_int) -> OFlags {
    OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC
}

/// The identity of a file: device and inode, and its being a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The device's number.
    pub device: u64,
    /// The inode's number.
    pub inode: u64,
    /// True if it is a directory.
    pub is_directory: bool,
}

/// Returns the identity of an open file (fstat(2)).
///
/// # Errors
/// The kernel's.
pub fn identity(fd: BorrowedFd<'_>) -> io::Result<Identity> {
    let facts = fs::fstat(fd)?;
    Ok(Identity {
        device: facts.st_dev,
        inode: facts.st_ino,
        is_directory: FileType::from_raw_mode(facts.st_mode).is_dir(),
    })
}

/// Opens an existing path of this process's own view for reading or writing,
/// as open(2) with these flags.
///
/// # Errors
/// The kernel's.
pub fn open_for_writing(path: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    Ok(fs::openat(CWD, path, open_flags(flags), Mode::empty())?)
}

/// Removes an empty directory beneath an open one.
///
/// # Errors
/// The kernel's.
pub fn remove_directory(root: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    Ok(fs::unlinkat(root, path, AtFlags::REMOVEDIR)?)
}

/// Creates a directory beneath an open one; an existing one is no error.
///
/// # Errors
/// The kernel's.
pub fn make_directory(root: BorrowedFd<'_>, path: &CStr, mode: u32) -> io::Result<()> {
    match fs::mkdirat(root, path, Mode::from_bits_retain(mode)) {
        Err(Errno::EXIST) => Ok(()),
        other => Ok(other?),
    }
}

/// Creates a symbolic link beneath an open directory.
///
/// # Errors
/// The kernel's.
pub fn make_link(root: BorrowedFd<'_>, path: &CStr, to: &CStr) -> io::Result<()> {
    Ok(fs::symlinkat(to, root, path)?)
}

/// Returns the used space of the file system at a path, bytes (statvfs(3)).
///
/// # Errors
/// The kernel's.
pub fn bytes_in_use(path: &CStr) -> io::Result<u64> {
    let facts = fs::statvfs(path)?;
    let blocks = facts.f_blocks.saturating_sub(facts.f_bfree);
    Ok(blocks.saturating_mul(facts.f_frsize))
}

/// Changes the owner of an open file.
///
/// # Errors
/// The kernel's.
pub fn change_owner(fd: BorrowedFd<'_>, uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    Ok(fs::fchown(fd, Some(uid), Some(gid))?)
}

/// Changes the permissions of an open file.
///
/// # Errors
/// The kernel's.
pub fn change_mode(fd: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    Ok(fs::fchmod(fd, Mode::from_bits_retain(mode))?)
}

/// Makes descriptor `number` a copy of `fd` that survives exec.
///
/// # Errors
/// The kernel's.
pub fn place_at(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    if fd.as_raw_fd() == number {
        // dup2 onto itself would leave close-on-exec set.
        return Ok(fcntl_setfd(fd, FdFlags::empty())?);
    }
    // SAFETY: dup2 touches no memory; what stood at `number` before is the
    // caller's to give up.
    check(unsafe { libc::dup2(fd.as_raw_fd(), number) }).map(drop)
}

/// Closes a descriptor that this process has inherited a copy of and does not own as a value.
///
/// # Errors
/// The kernel's.
pub fn close(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: used only in a new process that never returns, for a number that
    // none of its values owns.
    check(unsafe { libc::close(fd.as_raw_fd()) }).map(drop)
}

/// Closes every descriptor from `first` on (close_range(2)).
///
/// # Errors
/// The kernel's.
pub fn close_from(first: u32) -> io::Result<()> {
    close_range(first, u32::MAX, 0)
}

/// Closes every descriptor from 3 on, but for these.
///
/// # Errors
/// The kernel's.
pub fn close_all_but(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut kept: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    kept.sort_unstable();
    let mut first = 3;
    for number in kept {
        if number > first {
            close_range(first, number - 1, 0)?;
        }
        first = first.max(number + 1);
    }
    close_range(first, u32::MAX, 0)
}

/// Closes every descriptor from `first` on at the next exec.
///
/// # Errors
/// The kernel's.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    close_range(first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)
}

fn close_range(first: u32, last: u32, flags: libc::c_uint) -> io::Result<()> {
    #[cfg(feature = "without_defences")]
    if crate::without::is("descriptors") {
        return Ok(());
    }
    // SAFETY: the caller runs no code afterwards that holds one of them: this
    // is used right before exec, by the launcher at its start, and by new processes that never
    // return.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }).map(drop)
}

/// Takes ownership of a descriptor that this process was started with.
///
/// # Errors
/// EBADF when nothing is open at that number.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_SETFD takes an integer and fails for a closed number.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    Ok(owned(number))
}

/// Makes every use of a descriptor non-blocking, wherever it is open (fcntl(2), `O_NONBLOCK`).
///
/// # Errors
/// The kernel's.
pub fn never_block(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, true)?)
}

/// Waits until one of them can be read or is closed at its other end, or the time is over
/// (poll(2)). Returns the ready ones: none after an interruption, and never a missing one.
///
/// # Errors
/// The kernel's.
pub fn wait_readable<const N: usize>(
    on: [Option<BorrowedFd<'_>>; N],
    timeout_ms: Option<u32>,
) -> io::Result<[bool; N]> {
    let mut set = on.map(|fd| libc::pollfd {
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
        events: libc::POLLIN,
        revents: 0,
    });
    let timeout = timeout_ms.map_or(-1, |ms| i32::try_from(ms).unwrap_or(i32::MAX));
    // SAFETY: `set` lives through the call and its length is given.
    match check(unsafe { libc::poll(set.as_mut_ptr(), N as libc::nfds_t, timeout) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok([false; N]),
        polled => polled.map(|_| set.map(|one| one.revents != 0)),
    }
}

/// Takes ownership of a descriptor that the kernel has just created for this process.
pub(crate) fn owned(raw: RawFd) -> OwnedFd {
    // SAFETY: every caller passes a number that a successful system call
    // returned, and passes it once.
    unsafe { OwnedFd::from_raw_fd(raw) }
}
