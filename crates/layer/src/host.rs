//! Writes to the host directory, always by name within an open directory.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::RelativePath;
use crate::access_list::{access, is_listed, mode_without};
use crate::error::TreeError;
use crate::facts::{Facts, Kind, Stamp};
use crate::plan::{Entry, Node};
use crate::tree::{Tree, facts_at, is_absence, names_in, os};

/// Moves an entry to a name that is free.
pub(crate) fn rename_to_free(
    from: BorrowedFd<'_>,
    old: &[u8],
    to: BorrowedFd<'_>,
    new: &[u8],
) -> io::Result<()> {
    let (old, new) = (os(old), os(new));
    match rustix::fs::renameat_with(from, old, to, new, RenameFlags::NOREPLACE) {
        // A file system that cannot promise it: look, then move.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            match rustix::fs::statat(to, new, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => Ok(rustix::fs::renameat(from, old, to, new)?),
                Ok(_) => Err(Errno::EXIST.into()),
                Err(error) => Err(error.into()),
            }
        }
        result => Ok(result?),
    }
}

/// The way in which one entry took another's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swap {
    /// Both are still there, under each other's name.
    Exchanged,
    /// The file system could only put one over the other.
    Overwritten,
}

/// Puts the entry of one name in the place of another's, atomically. Where the two cannot be
/// exchanged, the other is lost: only where `may_be_lost` says so.
pub(crate) fn swap(
    place: BorrowedFd<'_>,
    fresh: &[u8],
    name: &[u8],
    may_be_lost: impl Fn() -> bool,
) -> io::Result<Swap> {
    let (fresh, name) = (os(fresh), os(name));
    match rustix::fs::renameat_with(place, fresh, place, name, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(Swap::Exchanged),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if may_be_lost() => {
            rustix::fs::renameat(place, fresh, place, name)?;
            Ok(Swap::Overwritten)
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes an entry and everything beneath it, never following a link and never leaving the file
/// system. Succeeds when there is nothing; an entry must be `expected`, where that is known, and
/// each directory the one that was looked at.
pub(crate) fn remove_all(
    tree: &Tree,
    top: &RelativePath,
    expected: Option<&Stamp>,
) -> Result<(), TreeError> {
    let failed = |error: io::Error| tree.error("cannot remove", top, error);
    match tree.place_of(top) {
        Ok(place) => remove_all_at(tree, place.as_fd(), top, expected),
        Err(error) if is_absence(&error) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// As [`remove_all`], of an entry whose directory is open.
pub(crate) fn remove_all_at(
    tree: &Tree,
    place: BorrowedFd<'_>,
    top: &RelativePath,
    expected: Option<&Stamp>,
) -> Result<(), TreeError> {
    let mut emptied = Vec::new();
    let failed = |path: &RelativePath, error: io::Error| tree.error("cannot remove", path, error);
    let facts = facts_at(place, top.name()).map_err(|error| failed(top, error))?;
    let Some(facts) = facts else {
        return Ok(());
    };
    if expected.is_some_and(|expected| !expected.same_entry(&facts.stamp())) {
        return Err(failed(top, replaced_meanwhile()));
    }
    if facts.kind != Kind::Directory {
        return remove_one(place, top, AtFlags::empty()).map_err(|error| failed(top, error));
    }
    let mut directories = vec![(top.clone(), facts)];
    while let Some((path, seen)) = directories.pop() {
        let directory = open_up(tree, &path, &seen).map_err(|error| failed(&path, error))?;
        for name in names_in(directory.as_fd()).map_err(|error| failed(&path, error))? {
            let Ok(inner) = path.join(&name) else {
                continue;
            };
            let facts =
                facts_at(directory.as_fd(), &name).map_err(|error| failed(&inner, error))?;
            match facts {
                None => {}
                Some(facts) if facts.kind == Kind::Directory => directories.push((inner, facts)),
                Some(_) => rustix::fs::unlinkat(&directory, os(&name), AtFlags::empty())
                    .map_err(|error| failed(&inner, error.into()))?,
            }
        }
        emptied.push(path);
    }
    for path in emptied.iter().rev() {
        let place = tree.place_of(path).map_err(|error| failed(path, error))?;
        remove_one(place.as_fd(), path, AtFlags::REMOVEDIR).map_err(|error| failed(path, error))?;
    }
    Ok(())
}

fn remove_one(place: BorrowedFd<'_>, path: &RelativePath, flags: AtFlags) -> io::Result<()> {
    match rustix::fs::unlinkat(place, os(path.name()), flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a directory that is to be emptied, with the rights to do so: the very one that was seen
/// there.
fn open_up(tree: &Tree, path: &RelativePath, seen: &Facts) -> io::Result<OwnedFd> {
    let handle = tree.handle(path)?;
    let facts = Facts::from(&rustix::fs::fstat(&handle)?);
    if facts.kind != Kind::Directory || facts.identity() != seen.identity() {
        return Err(replaced_meanwhile());
    }
    if facts.mode & 0o700 != 0o700 {
        let _ = rustix::fs::chmod(by_handle(&handle), Mode::from_raw_mode(0o700));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&handle, c".", flags, Mode::empty())?)
}

/// Returns the error for an entry that is not the one that was looked at.
pub(crate) fn replaced_meanwhile() -> io::Error {
    io::Error::other("something else took its place meanwhile")
}

/// Makes an empty file that nobody else can have made.
pub(crate) fn create_file(place: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(
        place,
        os(name),
        flags,
        Mode::from_raw_mode(0o600),
    )?)
}

/// Gives a new entry its owner, attributes, permissions and times, in this order: a change of owner
/// clears special bits, attributes change the other times. An entry of another type than planned
/// gets none of them.
pub(crate) fn dress(handle: &OwnedFd, entry: &Entry) -> io::Result<()> {
    let now = Facts::from(&rustix::fs::fstat(handle)?);
    if !entry.node.is(now.kind) {
        return Err(replaced_meanwhile());
    }
    let mode = give_owner(handle, &now, entry)?;
    if let Node::Symlink { .. } = entry.node {
        return Ok(rustix::fs::utimensat(
            handle,
            "",
            &times(entry),
            AtFlags::EMPTY_PATH,
        )?);
    }
    let path = by_handle(handle);
    give_attributes(&path, entry)?;
    give_mode(&path, entry, mode)?;
    Ok(rustix::fs::utimensat(
        rustix::fs::CWD,
        path.as_str(),
        &times(entry),
        AtFlags::empty(),
    )?)
}

/// Changes an existing entry's owner, attributes and permissions.
pub(crate) fn redress(handle: &OwnedFd, old: &Entry, new: &Entry) -> io::Result<()> {
    let now = Facts::from(&rustix::fs::fstat(handle)?);
    if !old.node.is(now.kind) || !new.node.is(now.kind) {
        return Err(replaced_meanwhile());
    }
    let mode = give_owner(handle, &now, new)?;
    if let Node::Symlink { .. } = old.node {
        return Ok(());
    }
    let path = by_handle(handle);
    for (name, _) in &old.xattrs {
        let stays = new.xattrs.iter().any(|(other, _)| other == name);
        let is_own = name.0.starts_with(b"user.") || name.0.starts_with(b"system.posix_acl_");
        if !stays && is_own {
            match rustix::fs::removexattr(path.as_str(), name.0.as_slice()) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    give_attributes(&path, new)?;
    give_mode(&path, new, mode)
}

fn give_attributes(path: &str, entry: &Entry) -> io::Result<()> {
    for (name, value) in &entry.xattrs {
        let name = name.0.as_slice();
        match rustix::fs::setxattr(path, name, &value.0, XattrFlags::empty()) {
            // A file system without them, or a capability that only root can give back.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Sets the permissions, as `form` has them. With an access control list the group's bits are its
/// mask; where the list could not be set, they are what it leaves to the group.
fn give_mode(path: &str, entry: &Entry, form: fn(u32) -> u32) -> io::Result<()> {
    let mode = match (is_listed(path)?, access(&entry.xattrs)) {
        (true, _) => entry.listed_mode.unwrap_or(entry.mode),
        (false, Some(list)) => mode_without(list, entry.mode),
        (false, None) => entry.mode,
    };
    Ok(rustix::fs::chmod(path, Mode::from_raw_mode(form(mode)))?)
}

/// Gives an entry its owner and group, as far as an ordinary user can: only root gives a file to
/// others, and only members to a group. Returns the form of a mode that it may have then.
fn give_owner(handle: &OwnedFd, now: &Facts, entry: &Entry) -> io::Result<fn(u32) -> u32> {
    let owner = (now.uid != entry.uid).then(|| Uid::from_raw(entry.uid));
    let group = (now.gid != entry.gid).then(|| Gid::from_raw(entry.gid));
    let give = |owner, group| rustix::fs::chownat(handle, "", owner, group, AtFlags::EMPTY_PATH);
    if owner.is_none() && group.is_none() {
        return Ok(|mode| mode);
    }
    let has_group = match give(owner, group) {
        Ok(()) => return Ok(|mode| mode),
        // Within a user namespace, one that has no number there is invalid.
        Err(Errno::PERM | Errno::INVAL) if !geteuid().is_root() || owner.is_none() => {
            group.is_none() || (owner.is_some() && give(None, group).is_ok())
        }
        Err(error) => return Err(error.into()),
    };
    // A program would run with the rights of another owner or group than its own.
    let is_file = matches!(entry.node, Node::File { .. });
    Ok(match (is_file, has_group) {
        (true, true) => |mode| mode & !SET_ID,
        (true, false) => |mode| in_another_group(mode) & !SET_ID,
        (false, true) => |mode| mode,
        (false, false) => in_another_group,
    })
}

/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

/// Returns a mode for an entry that is not of its group: that of another may do what all may.
pub(crate) fn in_another_group(mode: u32) -> u32 {
    let of_all = (mode & 0o007) << 3;
    mode & (!0o070 | of_all)
}

fn times(entry: &Entry) -> Timestamps {
    let time = Timespec {
        tv_sec: entry.modified.seconds,
        tv_nsec: entry.modified.nanoseconds.into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

/// Returns the path of the kernel's own link to an open entry: it reaches exactly this inode, even
/// one that may not be read.
pub(crate) fn by_handle(handle: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}
