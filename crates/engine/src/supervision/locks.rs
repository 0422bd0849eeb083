//! The lock files of the workspace, as they are before the program starts: the releases that
//! they name are passed to the egress process. Later changes to the files have no effect.

mod cargo;
mod npm;
mod python;

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use atoll_model::network::{
    LOCKED_BYTES_MAX, LOCKED_MAX, Lock, LockFile, LockKind, Locks, Network, Registry,
};
use atoll_sandbox::SandboxError;
use atoll_sys::descriptor;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The longest lock file, bytes.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// Reads all lock files named by rules into one sealed file in memory; `None` if no rule names
/// one.
///
/// # Errors
/// [`SandboxError::Lock`]: one cannot be read, is not understood, or names nothing.
pub(crate) fn read(network: &Network, workspace: &Path) -> Result<Option<OwnedFd>, SandboxError> {
    let files = network.lock_files();
    if files.is_empty() {
        return Ok(None);
    }
    let mut locks = Vec::new();
    let mut room = LOCKED_MAX;
    for (registry, file) in files {
        let failed = |why| SandboxError::Lock {
            path: workspace.join(file.as_str()),
            registry,
            why,
        };
        let lock = read_one(workspace, registry, file).map_err(failed)?;
        room = room
            .checked_sub(lock.count())
            .ok_or_else(|| failed(too_many()))?;
        locks.push(lock);
    }
    let failed = |error: io::Error| SandboxError::Host {
        what: "what lock files name cannot be handed on",
        error,
    };
    let all = serde_json::to_vec(&Locks::from(locks)).map_err(|error| failed(error.into()))?;
    if all.len() > LOCKED_BYTES_MAX {
        return Err(failed(io::Error::other(too_many())));
    }
    let memory = descriptor::sealed_memory(c"atoll-locks", &all);
    memory.map(Some).map_err(failed)
}

fn too_many() -> String {
    format!("lock files name {LOCKED_MAX} releases of one run at most, all together")
}

fn read_one(workspace: &Path, registry: Registry, file: &LockFile) -> Result<Lock, String> {
    let text = content(workspace, file)?;
    let mut lock = Lock::new(registry, file.clone());
    match file.kind(registry) {
        Some(LockKind::Npm) => npm::read(&text, &mut lock)?,
        Some(LockKind::Cargo) => cargo::read(&text, &mut lock)?,
        Some(LockKind::Requirements) => python::read_requirements(&text, &mut lock),
        Some(LockKind::Uv) => python::read_uv(&text, &mut lock)?,
        Some(LockKind::Poetry) => python::read_poetry(&text, &mut lock)?,
        None => return Err(format!("it is no lock file of {registry} by its name")),
    }
    match lock.count() {
        0 => {
            let open = lock.first_open().map(Lock::told_open);
            let open = open.map_or(String::new(), |open| format!(": {open}"));
            Err(format!(
                "it names no exact release of {registry}'s registry{open}"
            ))
        }
        _ => Ok(lock),
    }
}

/// Reads a file beneath the workspace, whose path must contain no symbolic link.
fn content(workspace: &Path, file: &LockFile) -> Result<String, String> {
    let said = |errno: Errno| match errno {
        Errno::NOENT | Errno::NOTDIR => "there is no such file".to_owned(),
        Errno::LOOP => "it is a symbolic link, or lies behind one, and none is followed".to_owned(),
        Errno::XDEV => "it lies outside the workspace".to_owned(),
        errno => io::Error::from(errno).to_string(),
    };
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(workspace, directory, Mode::empty()).map_err(said)?;
    // What is no regular file is not waited for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path: PathBuf = file.as_str().into();
    let opened = rustix::fs::openat2(&directory, path, flags, Mode::empty(), resolve);
    let opened = std::fs::File::from(opened.map_err(said)?);
    let unread = |error: io::Error| error.to_string();
    if !opened.metadata().map_err(unread)?.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let read = opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    if read.map_err(unread)? as u64 > FILE_BYTES_MAX {
        let mebibytes = FILE_BYTES_MAX >> 20;
        return Err(format!("it is larger than {mebibytes} MiB"));
    }
    String::from_utf8(bytes).map_err(|_| "it is no text (UTF-8)".to_owned())
}

/// Returns the number of the line that contains a byte.
fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Parses TOML; an error message repeats nothing of the file.
fn toml_of<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| match error.span() {
        Some(span) => format!("it is not understood at line {}", line_of(text, span.start)),
        None => "it is not understood".to_owned(),
    })
}

/// Explains that a lock file's version is unknown.
fn unknown_version(version: impl std::fmt::Display) -> String {
    format!("it is of a form that is not understood (version {version})")
}

#[cfg(test)]
mod tests;
