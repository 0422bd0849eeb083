//! The waiting thread, as /proc shows it: its memory, descriptors, working directory.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use atoll_sys::judging;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::{EPERM, Refused};

/// The longest path that the kernel takes, bytes, with its NUL (PATH_MAX).
const PATH_BYTES_MAX: usize = 4096;
const PAGE_BYTES: u64 = 4096;
const ENAMETOOLONG: i32 = 36;
const EFAULT: i32 = 14;
/// The working directory, in place of a directory's descriptor (AT_FDCWD).
pub(crate) const HERE: i32 = -100;

/// A thread whose call waits.
pub(crate) struct Caller {
    thread: u32,
    memory: File,
}

impl Caller {
    /// Opens the thread's memory at once: the file stays that of this process, even if the
    /// thread's id is reused.
    pub(crate) fn new(thread: u32) -> Result<Self, Refused> {
        let memory = File::open(format!("/proc/{thread}/mem"))?;
        Ok(Self { thread, memory })
    }

    /// Reads `count` bytes at an address.
    pub(crate) fn bytes(&self, address: u64, count: usize) -> Result<Vec<u8>, Refused> {
        let mut bytes = vec![0; count];
        self.memory
            .read_exact_at(&mut bytes, address)
            .map_err(|_| Refused(EFAULT))?;
        Ok(bytes)
    }

    /// Writes bytes to an address. If the thread has ended and its id is reused, that process
    /// is not confined by this one's Landlock rules, and the kernel refuses (landlock(7), on
    /// ptrace).
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Refused> {
        match bytes {
            [] => Ok(()),
            bytes => Ok(judging::write(self.thread, address, bytes)?),
        }
    }

    /// Reads the text at an address, without its NUL.
    pub(crate) fn text(&self, address: u64) -> Result<Vec<u8>, Refused> {
        let mut text = Vec::new();
        let mut page = [0_u8; PAGE_BYTES as usize];
        while text.len() < PATH_BYTES_MAX {
            let at = address
                .checked_add(text.len() as u64)
                .ok_or(Refused(EFAULT))?;
            // Never beyond a page that the text may end in: the next need not exist.
            let left = (PAGE_BYTES - at % PAGE_BYTES) as usize;
            let part = page.get_mut(..left).unwrap_or_default();
            self.memory
                .read_exact_at(part, at)
                .map_err(|_| Refused(EFAULT))?;
            match part.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    text.extend_from_slice(part.get(..end).unwrap_or_default());
                    return match text.len() {
                        0..PATH_BYTES_MAX => Ok(text),
                        _ => Err(Refused(ENAMETOOLONG)),
                    };
                }
                None => text.extend_from_slice(part),
            }
        }
        Err(Refused(ENAMETOOLONG))
    }

    /// Duplicates one of its descriptors: the same open socket or file.
    pub(crate) fn descriptor(&self, number: u64) -> Result<OwnedFd, Refused> {
        let process = self.process()?;
        let pid = pidfd_open(process, PidfdFlags::empty())?;
        Ok(pidfd_getfd(pid, number as i32, PidfdGetfdFlags::empty())?)
    }

    /// Returns the process that the thread belongs to.
    fn process(&self) -> Result<Pid, Refused> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.thread))?;
        let number = status
            .lines()
            .find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
        number.and_then(Pid::from_raw).ok_or(Refused(EPERM))
    }

    /// Resolves a path and opens it with O_PATH. `directory` is where a relative path begins: a
    /// descriptor's number, or [`HERE`].
    pub(crate) fn place(
        &self,
        directory: i32,
        path: &[u8],
        follow: bool,
    ) -> Result<OwnedFd, Refused> {
        if let Some(number) = own_descriptor(path) {
            return self.behind(number);
        }
        let start = match (path.first(), directory) {
            (None, _) => return Err(Refused(rustix::io::Errno::NOENT.raw_os_error())),
            (Some(b'/'), _) => open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?,
            (Some(_), HERE) => open(
                format!("/proc/{}/cwd", self.thread),
                OFlags::PATH | OFlags::CLOEXEC,
                Mode::empty(),
            )?,
            (Some(_), number) => self.behind(number)?,
        };
        let last = match follow {
            true => OFlags::empty(),
            false => OFlags::NOFOLLOW,
        };
        // Links below /proc lead to this process's own files, not the caller's.
        Ok(openat2(
            start,
            path,
            OFlags::PATH | OFlags::CLOEXEC | last,
            Mode::empty(),
            ResolveFlags::NO_MAGICLINKS,
        )?)
    }

    /// Opens the file that a descriptor refers to, with O_PATH.
    pub(crate) fn behind(&self, number: i32) -> Result<OwnedFd, Refused> {
        let path = format!("/proc/{}/fd/{number}", self.thread);
        Ok(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
    }
}

/// Returns the number in a path that names one of the caller's own descriptors. C libraries
/// change the mode of an open file by such a path.
fn own_descriptor(path: &[u8]) -> Option<i32> {
    let number = [
        &b"/proc/self/fd/"[..],
        b"/proc/thread-self/fd/",
        b"/dev/fd/",
    ]
    .iter()
    .find_map(|start| path.strip_prefix(*start))?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Returns the present path of an open file.
pub(crate) fn whereabouts(place: &OwnedFd) -> io::Result<Vec<u8>> {
    Ok(rustix::fs::readlink(name_of(place), Vec::new())?.into_bytes())
}

/// Returns a path that leads to an open file and nowhere else.
pub(crate) fn name_of(place: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", place.as_fd().as_raw_fd())
}

/// Returns whether a path is one of these roots or lies beneath one.
pub(crate) fn is_beneath(path: &[u8], roots: &[Vec<u8>]) -> bool {
    roots.iter().any(|root| {
        path.strip_prefix(root.as_slice())
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'/')) || root == b"/")
    })
}
