//! Paths beneath a directory: opened there as the tool will see it, and not compared as text. The
//! sandbox holds a tool all the same: files can change before it opens them.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_engine::sandboxes::{EntryKind, Sandbox};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// The most parts of a path.
const PARTS_MAX: usize = 128;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// The place where a tool sees its files.
pub(crate) enum Place {
    /// A directory of this host, which its fresh sandbox begins with.
    Host(PathBuf),
    /// A directory in its sandbox, which is there already.
    Inside(Arc<Sandbox>, PathBuf),
    /// A directory of its own in a sandbox that is not there yet.
    Empty,
}

/// Writes a path from the directory of the work, as it is judged and sent: without empty and `.`
/// parts. One that some programs take for another is refused.
pub(super) fn written(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('\0') {
        return Err("it is empty, or has a NUL".to_owned());
    }
    if text.starts_with('/') {
        return Err(format!(
            "{text:?} is absolute: name it from the directory of the work"
        ));
    }
    let parts = text.split('/').filter(|part| !matches!(*part, "" | "."));
    let parts: Vec<&str> = parts.collect();
    // Programs take it for somebody's home, or for an address.
    let is_other = |part: &&str| part.starts_with('~') || part.ends_with(':');
    if parts.first().is_some_and(is_other) {
        return Err(format!("{text:?} begins as no path does"));
    }
    if parts.contains(&"..") {
        return Err(format!("{text:?} has a part \"..\""));
    }
    if parts.len() > PARTS_MAX {
        return Err(format!("it has more than {PARTS_MAX} parts"));
    }
    match parts.is_empty() {
        true => Ok(".".to_owned()),
        false => Ok(parts.join("/")),
    }
}

/// Returns a path that is written as [`written`] does, empty for the directory of the work.
pub(super) fn relative(path: &str) -> PathBuf {
    match path {
        "." => PathBuf::new(),
        path => path.into(),
    }
}

impl Place {
    /// Checks that a path is beneath a directory, or that directory; of one that does not exist, the
    /// nearest directory above it that does.
    ///
    /// # Errors
    /// Describes why it is not, or cannot be looked at.
    pub(super) fn check(&self, root: &Path, path: &Path) -> Result<(), String> {
        let outside = || format!("{:?} is not beneath {:?}", shown(path), shown(root));
        let rest = path.strip_prefix(root).map_err(|_| outside())?;
        match self {
            Self::Host(top) => on_host(top, root, rest).map_err(|errno| match errno {
                Errno::XDEV | Errno::LOOP => format!("{}: a link leads out of it", outside()),
                errno => format!("{:?} cannot be looked at: {errno}", shown(path)),
            }),
            Self::Inside(sandbox, top) => {
                let is_beneath = inside(sandbox, top, root, rest);
                match is_beneath.map_err(|why| format!("{:?}: {why}", shown(path)))? {
                    true => Ok(()),
                    false => Err(format!("{}: a link leads out of it", outside())),
                }
            }
            Self::Empty => Ok(()),
        }
    }
}

/// Returns a path for people.
fn shown(path: &Path) -> &Path {
    match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    }
}

fn place(
    from: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    how: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let path = match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    };
    openat2(
        from,
        path,
        flags | OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        how,
    )
}

/// Opens a path of this host. No link leads to the directory that it is beneath.
fn on_host(top: &Path, root: &Path, rest: &Path) -> Result<(), Errno> {
    let top = place(CWD, top, OFlags::DIRECTORY, ResolveFlags::NO_MAGICLINKS)?;
    let how = BENEATH | ResolveFlags::NO_SYMLINKS;
    let root = match place(top.as_fd(), root, OFlags::DIRECTORY, how) {
        // Neither is anything beneath it.
        Err(Errno::NOENT) => return Ok(()),
        root => root?,
    };
    for path in rest.ancestors() {
        match place(root.as_fd(), path, OFlags::empty(), BENEATH) {
            // What a link to nothing leads to would be made elsewhere.
            Err(Errno::NOENT) => match place(root.as_fd(), path, OFlags::NOFOLLOW, BENEATH) {
                Ok(_) => return Err(Errno::LOOP),
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            },
            Err(errno) => return Err(errno),
            Ok(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Looks at a path in a sandbox part by part, by the sandbox's own file server, and returns whether
/// it is beneath: no process of this host resolves paths in a living sandbox.
fn inside(sandbox: &Sandbox, top: &Path, root: &Path, rest: &Path) -> Result<bool, String> {
    let files = sandbox.files().map_err(|failure| failure.what)?;
    let mut at = top.to_owned();
    let root_at = top.join(root);
    let of_root = root.iter().map(|part| (part, true));
    for (part, is_root) in of_root.chain(rest.iter().map(|part| (part, false))) {
        at.push(part);
        let entry = match files.stat(&at) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            entry => entry.map_err(|error| error.to_string())?,
        };
        let Some(target) = &entry.target else {
            continue;
        };
        // The target is the end of it; what a link to nothing leads to would be made elsewhere.
        let target = Path::new(OsStr::from_bytes(target));
        if is_root || entry.kind == EntryKind::Link || !target.starts_with(&root_at) {
            return Ok(false);
        }
        target.clone_into(&mut at);
    }
    Ok(true)
}
