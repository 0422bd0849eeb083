//! Files written by a user's subordinate ids, given back to the user: outside of the sandbox's
//! user namespace only root could read and remove them all.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use atoll_sys::credentials;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Uid, chownat, fstat, openat, statat};

use crate::{Subordinate, role};

/// The first argument that makes the program of the roles reclaim files, in a process of its own:
/// only a process without other threads can enter a user namespace.
pub const RECLAIM: &str = "__reclaim";

const CLONE_NEWUSER: i32 = 0x1000_0000;

/// Gives everything below these directories to the user. No process should write there any
/// more; one that does cannot lead this out of them.
///
/// # Errors
/// The kernel's, or those of the programs that map ids; also if a directory is moved meanwhile.
pub fn reclaim(directories: &[PathBuf], subordinate: &Subordinate) -> io::Result<()> {
    let mut child = Command::new(role::path()?)
        .arg(RECLAIM)
        .args(directories)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mapped = (|| {
        let (Some(mut input), Some(mut output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        output.read_exact(&mut [0])?;
        subordinate.map(child.id())?;
        input.write_all(b"g")
    })();
    // Without its word it ends by itself.
    let ended = child.wait()?;
    mapped?;
    if ended.success() {
        Ok(())
    } else {
        Err(io::Error::other(
            "files of further ids could not be given back to their user",
        ))
    }
}

/// Reclaims files in a process of its own; returns its exit status.
#[must_use]
pub fn reclaim_inside(directories: &[OsString]) -> u8 {
    let done = || -> io::Result<()> {
        credentials::leave_namespaces(CLONE_NEWUSER)?;
        io::stdout().write_all(b"r")?;
        io::stdout().flush()?;
        io::stdin().read_exact(&mut [0])?;
        for directory in directories {
            give_back(&File::open(directory)?.into())?;
        }
        Ok(())
    };
    u8::from(done().is_err())
}

/// Walks down and up again with one open directory: an untrusted program has written the tree,
/// which may be deeper than any path is long. Links are not followed, and on the way up each
/// directory has to be the one that led down: one moved meanwhile would lead past the top, and
/// so to files of others.
pub(crate) fn give_back(top: &OwnedFd) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The top stays open: while it does, no other directory gets its number.
    let mut here = top.try_clone()?;
    let mut waiting = vec![(which(&here)?, take_all(&here)?)];
    while let Some((_, directories)) = waiting.last_mut() {
        if let Some(name) = directories.pop() {
            here = openat(&here, &name, flags, Mode::empty())?;
            waiting.push((which(&here)?, take_all(&here)?));
            continue;
        }
        waiting.pop();
        if let Some((above, _)) = waiting.last() {
            here = openat(&here, "..", flags, Mode::empty())?;
            if which(&here)? != *above {
                return Err(io::Error::other("a directory was moved meanwhile"));
            }
        }
    }
    Ok(())
}

/// Returns a directory's identity: its device and inode.
fn which(directory: &OwnedFd) -> io::Result<(u64, u64)> {
    let facts = fstat(directory)?;
    Ok((facts.st_dev, facts.st_ino))
}

/// Takes every entry of one directory; returns the directories in it.
pub(crate) fn take_all(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut directories = Vec::new();
    for entry in Dir::read_from(directory.as_fd())? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let facts = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if (facts.st_uid, facts.st_gid) != (0, 0) {
            let (uid, gid) = (Some(Uid::ROOT), Some(Gid::ROOT));
            chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if FileType::from_raw_mode(facts.st_mode) == FileType::Directory {
            directories.push(name.to_owned());
        }
    }
    Ok(directories)
}
