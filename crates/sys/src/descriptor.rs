//! File descriptors: sealed memory, pipes, opening beneath, polling.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::{check, check_int};

/// Copies `content` into an anonymous file that nobody can change any more
/// (memfd_create(2), seals of fcntl(2)). It is closed on exec.
///
/// # Errors
/// The kernel's: no memory, or too many open files.
pub fn sealed_memory(name: &CStr, content: &[u8]) -> io::Result<OwnedFd> {
    // MFD_EXEC is required where vm.memfd_noexec is set; kernels before 6.3
    // do not know the flag.
    const MFD_EXEC: libc::c_uint = 0x10;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `name` is a valid C string for the length of both calls.
    let mut raw = unsafe { libc::memfd_create(name.as_ptr(), flags | MFD_EXEC) };
    if raw < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
        // SAFETY: as above.
        raw = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    }
    let fd = owned(check_int(raw)?);
    write_all(&fd, content)?;
    seal(&fd)?;
    Ok(fd)
}

/// Seals against every change. While the kernel itself holds a page for a moment,
/// to move or to clean it, the seal against writing is refused with EBUSY
/// (fcntl(2)): it is asked for again, up to 20 times.
fn seal(fd: &OwnedFd) -> io::Result<()> {
    const TRIES: u32 = 20;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    let mut tries = 0;
    loop {
        // SAFETY: F_ADD_SEALS takes an integer and touches no memory of ours.
        let sealed = check_int(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) });
        match sealed {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && tries < TRIES => {
                tries += 1;
                std::thread::sleep(PAUSE);
            }
            done => return done.map(drop),
        }
    }
}

/// Whether an anonymous file is sealed against every change.
///
/// # Errors
/// The kernel's, as EINVAL for a descriptor that cannot be sealed.
pub fn is_sealed(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let all = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    // SAFETY: F_GET_SEALS takes no further argument.
    let seals = check_int(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) })?;
    Ok(seals & all == all)
}

/// Writes everything, going on after interruptions.
///
/// # Errors
/// The kernel's, WriteZero when a write makes no progress.
pub fn write_all(fd: &OwnedFd, mut content: &[u8]) -> io::Result<()> {
    while !content.is_empty() {
        // SAFETY: the pointer and length describe `content`.
        let written =
            unsafe { libc::write(fd.as_raw_fd(), content.as_ptr().cast(), content.len()) };
        match written {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            1.. => content = content.get(written as usize..).unwrap_or_default(),
            _ => interrupted_or(io::Error::last_os_error())?,
        }
    }
    Ok(())
}

/// Reads once into `buffer`; 0 means the end.
///
/// # Errors
/// The kernel's, but for an interruption, after which it reads again.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        // SAFETY: the pointer and length describe `buffer`.
        let got = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        match got {
            0.. => return Ok(got as usize),
            _ => interrupted_or(io::Error::last_os_error())?,
        }
    }
}

/// Reads a whole anonymous file from its start, at most `bytes_max`.
///
/// # Errors
/// InvalidData when it is longer, otherwise the kernel's.
pub fn read_from_start(fd: BorrowedFd<'_>, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let mut block = [0_u8; 16 * 1024];
    loop {
        let offset = content.len() as libc::off_t;
        // SAFETY: the pointer and length describe `block`.
        let got = unsafe {
            libc::pread(
                fd.as_raw_fd(),
                block.as_mut_ptr().cast(),
                block.len(),
                offset,
            )
        };
        match got {
            0 => return Ok(content),
            1.. => content.extend_from_slice(block.get(..got as usize).unwrap_or_default()),
            _ => interrupted_or(io::Error::last_os_error())?,
        }
        if content.len() > bytes_max {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// A pipe, closed on exec: the reading and the writing end.
///
/// # Errors
/// The kernel's.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends: [RawFd; 2] = [-1; 2];
    // SAFETY: `ends` has room for the two descriptors that pipe2 writes.
    check_int(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((owned(ends[0]), owned(ends[1])))
}

/// Opens the object at an absolute or relative path without following any
/// symbolic link on the way (openat2(2)), as a mere place (`O_PATH`).
///
/// # Errors
/// ELOOP where a symbolic link stands on the way; otherwise the kernel's.
pub fn open_place(directory: Option<BorrowedFd<'_>>, path: &CStr) -> io::Result<OwnedFd> {
    open_strictly(
        directory,
        path,
        libc::O_PATH | libc::O_CLOEXEC,
        0,
        libc::RESOLVE_NO_SYMLINKS,
    )
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
    let resolve = libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_BENEATH;
    open_strictly(Some(root), path, flags | libc::O_CLOEXEC, mode, resolve)
}

fn open_strictly(
    directory: Option<BorrowedFd<'_>>,
    path: &CStr,
    flags: libc::c_int,
    mode: u32,
    resolve: u64,
) -> io::Result<OwnedFd> {
    // SAFETY: open_how is plain data for which zeroes are the defaults.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = flags as u64;
    how.mode = u64::from(mode);
    how.resolve = resolve | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: the path is a C string, `how` lives through the call and its
    // size is given.
    let raw = check(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            directory.map_or(libc::AT_FDCWD, |fd| fd.as_raw_fd()),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    })?;
    Ok(owned(raw as RawFd))
}

/// What identifies a file: device and inode, and whether it is a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The device's number.
    pub device: u64,
    /// The inode's number.
    pub inode: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// The identity of what a descriptor stands for (fstat(2)).
///
/// # Errors
/// The kernel's.
pub fn identity(fd: BorrowedFd<'_>) -> io::Result<Identity> {
    // SAFETY: stat is plain data that fstat fills.
    let mut facts: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `facts` lives through the call.
    check_int(unsafe { libc::fstat(fd.as_raw_fd(), &raw mut facts) })?;
    Ok(Identity {
        device: facts.st_dev,
        inode: facts.st_ino,
        is_directory: facts.st_mode & libc::S_IFMT == libc::S_IFDIR,
    })
}

/// Opens an existing path of this process's own view for reading or writing,
/// as open(2) with these flags.
///
/// # Errors
/// The kernel's.
pub fn open_for_writing(path: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the path is a C string; without O_CREAT no mode is read.
    check_int(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) }).map(owned)
}

/// Removes an empty directory beneath an open one.
///
/// # Errors
/// The kernel's.
pub fn remove_directory(root: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    // SAFETY: the path is a C string.
    check_int(unsafe { libc::unlinkat(root.as_raw_fd(), path.as_ptr(), libc::AT_REMOVEDIR) })
        .map(drop)
}

/// Makes a directory beneath an open one; one that is there already is fine.
///
/// # Errors
/// The kernel's.
pub fn make_directory(root: BorrowedFd<'_>, path: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: the path is a C string.
    match check_int(unsafe { libc::mkdirat(root.as_raw_fd(), path.as_ptr(), mode) }) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        other => other.map(drop),
    }
}

/// Makes a symbolic link beneath an open directory.
///
/// # Errors
/// The kernel's.
pub fn make_link(root: BorrowedFd<'_>, path: &CStr, to: &CStr) -> io::Result<()> {
    // SAFETY: both are C strings.
    check_int(unsafe { libc::symlinkat(to.as_ptr(), root.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// How much of the file system at a path is in use, bytes (statvfs(3)).
///
/// # Errors
/// The kernel's.
pub fn bytes_in_use(path: &CStr) -> io::Result<u64> {
    // SAFETY: statvfs is plain data that the call fills.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a C string, `facts` lives through the call.
    check_int(unsafe { libc::statvfs(path.as_ptr(), &raw mut facts) })?;
    Ok(facts
        .f_blocks
        .saturating_sub(facts.f_bfree)
        .saturating_mul(facts.f_frsize))
}

/// Changes who owns what a descriptor stands for.
///
/// # Errors
/// The kernel's.
pub fn change_owner(fd: BorrowedFd<'_>, uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check_int(unsafe { libc::fchown(fd.as_raw_fd(), uid, gid) }).map(drop)
}

/// Changes the permissions of what a descriptor stands for.
///
/// # Errors
/// The kernel's.
pub fn change_mode(fd: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check_int(unsafe { libc::fchmod(fd.as_raw_fd(), mode) }).map(drop)
}

/// Makes descriptor number `number` a copy of `fd` that survives exec.
///
/// # Errors
/// The kernel's.
pub fn place_at(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    if fd.as_raw_fd() == number {
        // dup2 onto itself would leave close-on-exec set.
        // SAFETY: F_SETFD takes an integer.
        return check_int(unsafe { libc::fcntl(number, libc::F_SETFD, 0) }).map(drop);
    }
    // SAFETY: dup2 touches no memory; what stood at `number` before is the
    // caller's to give up.
    check_int(unsafe { libc::dup2(fd.as_raw_fd(), number) }).map(drop)
}

/// Closes a descriptor of which this process has inherited a copy that it does
/// not own as a value.
///
/// # Errors
/// The kernel's.
pub fn close(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: used only in a new process that never returns, for a number that
    // none of its values owns.
    check_int(unsafe { libc::close(fd.as_raw_fd()) }).map(drop)
}

/// Closes every descriptor from `first` on (close_range(2)).
///
/// # Errors
/// The kernel's.
pub fn close_from(first: u32) -> io::Result<()> {
    #[cfg(feature = "without_defences")]
    if crate::without::is("descriptors") {
        return Ok(());
    }
    // SAFETY: the caller runs no code afterwards that holds one of them: this
    // is used right before exec and by the launcher at its start.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) }).map(drop)
}

/// Closes every descriptor from `first` on at the next exec.
///
/// # Errors
/// The kernel's.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    #[cfg(feature = "without_defences")]
    if crate::without::is("descriptors") {
        return Ok(());
    }
    // SAFETY: integers only.
    check(unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    })
    .map(drop)
}

/// Takes over a descriptor that this process was started with.
///
/// # Errors
/// EBADF when nothing is open at that number.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_SETFD takes an integer and fails for a closed number.
    check_int(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    Ok(owned(number))
}

/// Waits until one of them can be read or is closed at its other end, or the
/// time is over (poll(2)). Returns which are ready: none after an interruption.
///
/// # Errors
/// The kernel's.
pub fn wait_readable<const N: usize>(
    on: [BorrowedFd<'_>; N],
    timeout_ms: Option<u32>,
) -> io::Result<[bool; N]> {
    let mut set = on.map(|fd| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let timeout = timeout_ms.map_or(-1, |ms| i32::try_from(ms).unwrap_or(i32::MAX));
    // SAFETY: `set` lives through the call and its length is given.
    if unsafe { libc::poll(set.as_mut_ptr(), N as libc::nfds_t, timeout) } < 0 {
        interrupted_or(io::Error::last_os_error())?;
        return Ok([false; N]);
    }
    Ok(set.map(|one| one.revents != 0))
}

fn interrupted_or(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

/// Takes ownership of a descriptor that the kernel has just made for us.
pub(crate) fn owned(raw: RawFd) -> OwnedFd {
    // SAFETY: every caller passes a number that a successful system call
    // returned, and passes it once.
    unsafe { OwnedFd::from_raw_fd(raw) }
}
