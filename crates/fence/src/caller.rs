//! What can be known of the thread that waits: its memory, descriptors, directory.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use atoll_sys::judging;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::{EPERM, Refused};

/// The longest path that the kernel takes, bytes, its end included (PATH_MAX).
const PATH_BYTES_MAX: usize = 4096;
const PAGE_BYTES: u64 = 4096;
const ENAMETOOLONG: i32 = 36;
const EFAULT: i32 = 14;
/// "Here", in place of a directory's descriptor (AT_FDCWD).
pub(crate) const HERE: i32 = -100;

/// One waiting thread.
pub(crate) struct Caller {
    thread: u32,
    memory: File,
}

impl Caller {
    /// Its memory is opened at once: that stays this process's, whatever becomes of
    /// the number.
    pub(crate) fn new(thread: u32) -> Result<Self, Refused> {
        let memory = File::open(format!("/proc/{thread}/mem"))?;
        Ok(Self { thread, memory })
    }

    /// So many bytes from an address.
    pub(crate) fn bytes(&self, address: u64, count: usize) -> Result<Vec<u8>, Refused> {
        let mut bytes = vec![0; count];
        self.memory
            .read_exact_at(&mut bytes, address)
            .map_err(|_| Refused(EFAULT))?;
        Ok(bytes)
    }

    /// Writes bytes to an address. Should the thread have ended and its number be somebody
    /// else's, that process is not confined by this one's Landlock rules, and the kernel
    /// refuses (landlock(7), on ptrace).
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Refused> {
        match bytes {
            [] => Ok(()),
            bytes => Ok(judging::write(self.thread, address, bytes)?),
        }
    }

    /// The text at an address, without its NUL.
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

    /// The very socket or file behind one of its descriptors.
    pub(crate) fn descriptor(&self, number: u64) -> Result<OwnedFd, Refused> {
        let process = self.process()?;
        let pid = pidfd_open(process, PidfdFlags::empty())?;
        Ok(pidfd_getfd(pid, number as i32, PidfdGetfdFlags::empty())?)
    }

    /// The process that the thread belongs to.
    fn process(&self) -> Result<Pid, Refused> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.thread))?;
        let number = status
            .lines()
            .find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
        number.and_then(Pid::from_raw).ok_or(Refused(EPERM))
    }

    /// The place that a path leads to, opened for its name only. `directory` is
    /// where a relative one begins: a descriptor's number, or [`HERE`].
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

    /// What a descriptor stands for, opened for its name only.
    pub(crate) fn behind(&self, number: i32) -> Result<OwnedFd, Refused> {
        let path = format!("/proc/{}/fd/{number}", self.thread);
        Ok(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
    }
}

/// The number in a path that names one of the caller's own descriptors: C libraries
/// change the mode of an open file by it.
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

/// Where an open place lies now.
pub(crate) fn whereabouts(place: &OwnedFd) -> io::Result<Vec<u8>> {
    Ok(rustix::fs::readlink(name_of(place), Vec::new())?.into_bytes())
}

/// A path that leads to an open place and nowhere else.
pub(crate) fn name_of(place: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", place.as_fd().as_raw_fd())
}

/// Whether a place lies beneath one of these.
pub(crate) fn is_beneath(path: &[u8], roots: &[Vec<u8>]) -> bool {
    roots.iter().any(|root| {
        path.strip_prefix(root.as_slice())
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'/')) || root == b"/")
    })
}
