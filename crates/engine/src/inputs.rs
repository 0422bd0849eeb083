//! Inputs: copies of what the boundary names, made when the sandbox is, for it to read by their names.
//! Each is recorded with its digest before a program sees it, and what becomes of the original then
//! changes nothing.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use atoll_ledger::{Durability, Ledger, LedgerError, StateDir, hex};
use atoll_model::{Boundary, Call, Input, InputBounds, InputSource, RunId, format_bytes};
use atoll_store::{
    ArtifactError, ArtifactState, Artifacts, InputFacts, media_type, remove_directory,
};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat2};
use serde_json::json;
use sha2::{Digest, Sha256};

const INPUTS: &str = "inputs";
const BUFFER_BYTES: usize = 256 << 10;
/// The number of first bytes by which a media type is told.
const HEAD_BYTES: usize = 8 << 10;

/// An input cannot be put into its sandbox.
#[derive(Debug, thiserror::Error)]
#[error("input {name}: {why}")]
pub struct InputError {
    name: String,
    #[source]
    why: Unstaged,
}

/// The reason for that.
#[derive(Debug, thiserror::Error)]
enum Unstaged {
    #[error("{} cannot be read: {error}", .path.display())]
    Unread {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{} cannot be written: {error}", .path.display())]
    Unwritten {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{} is neither a file nor a directory; leave it out", .0.display())]
    Special(PathBuf),
    #[error("{} is a link that leads out of it; name the directory above both", .0.display())]
    LeadsOut(PathBuf),
    #[error("{} has a line break in its name; rename it", .0.display())]
    LineBreak(PathBuf),
    #[error(
        "all inputs together are larger than {} ([inputs] bytes, in the profile)",
        format_bytes(*.0)
    )]
    TooLarge(u64),
    #[error("all inputs have more files and directories than {0} ([inputs] files, in the profile)")]
    TooMany(u64),
    #[error("{} is {media}, and the profile takes {types} alone ([inputs] types)", .path.display())]
    Type {
        path: PathBuf,
        media: String,
        types: String,
    },
    #[error("there is no artifact {0}; atoll artifacts list shows those that there are")]
    NoArtifact(String),
    #[error("artifact:{0} stands for several artifacts; type more of the one that you mean")]
    Several(String),
    #[error("artifact {0} is not promoted; atoll artifacts promote {0} lets it be used")]
    NotPromoted(String),
    #[error("{0} is not fetched; atoll run fetches what its --input names")]
    NotFetched(String),
    #[error("{} has another digest than was fetched; remove it", .0.display())]
    Changed(PathBuf),
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
}

/// Returns the place of a download, by its SHA-256 digest.
#[must_use]
pub fn fetched_input(state: &StateDir, sha256: &str) -> PathBuf {
    state.path().join("fetched").join(sha256)
}

/// The inputs of a sandbox, ready to be shown.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    /// The directory that has each by its name; `None` without any.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) all: Vec<InputFacts>,
}

/// Copies the inputs of a boundary into the directory of its run.
pub(crate) fn stage(
    state: &StateDir,
    run_dir: &Path,
    call: &Call,
    boundary: &Boundary,
) -> Result<Staged, InputError> {
    let inputs = &boundary.inputs;
    if inputs.all.is_empty() {
        return Ok(Staged::default());
    }
    let directory = run_dir.join(INPUTS);
    let mut bounds = inputs.bounds.clone();
    if call.served().is_some() {
        // A tenant has as much of the disk again, and no more.
        bounds.bytes = bounds.bytes.min(boundary.limits.disk_bytes);
    }
    let mut copier = Copier {
        state,
        tenant: call.served().map(|served| served.tenant.as_str()),
        bounds: &bounds,
        bytes: 0,
        files: 0,
    };
    let mut all = Vec::with_capacity(inputs.all.len());
    for (number, input) in inputs.all.iter().enumerate() {
        let made = match number {
            0 => make_directory(&directory),
            _ => Ok(()),
        };
        let staged = made.and_then(|()| copier.stage(input, &directory.join(input.name.as_str())));
        all.push(staged.map_err(|why| InputError {
            name: input.name.to_string(),
            why,
        })?);
    }
    Ok(Staged {
        directory: Some(directory),
        all,
    })
}

/// Records inputs, before a program sees them.
pub(crate) fn record(
    ledger: &Ledger,
    run: &RunId,
    inputs: &[InputFacts],
) -> Result<(), LedgerError> {
    for (number, input) in inputs.iter().enumerate() {
        let durability = match number + 1 == inputs.len() {
            true => Durability::Durable,
            false => Durability::Buffered,
        };
        let body = json!({
            "name": input.name,
            "source": input.source,
            digest_name(input): input.digest,
            "bytes": input.bytes,
            "files": input.files,
            "media": input.media,
        });
        ledger.record(Some(run), "input.staged", body, durability)?;
    }
    Ok(())
}

/// Returns the name of a digest as in-toto has it (digest_set.md).
pub(crate) fn digest_name(input: &InputFacts) -> &'static str {
    match input.is_directory {
        true => "dirHash",
        false => "sha256",
    }
}

/// Removes the copies in the directory of a run that is over. What is left goes with the run.
pub(crate) fn remove(run_dir: &Path) {
    let directory = run_dir.join(INPUTS);
    if directory.symlink_metadata().is_ok() {
        let _ = remove_directory(&directory);
    }
}

struct Copier<'a> {
    state: &'a StateDir,
    tenant: Option<&'a str>,
    bounds: &'a InputBounds,
    /// Those of all inputs so far.
    bytes: u64,
    files: u64,
}

/// A file that was copied.
struct Copied {
    sha256: String,
    media: String,
}

impl Copier<'_> {
    fn stage(&mut self, input: &Input, to: &Path) -> Result<InputFacts, Unstaged> {
        let (before, files) = (self.bytes, self.files);
        let mut source = input.source.to_string();
        let (digest, is_directory, media) = match &input.source {
            InputSource::Artifact(id) => {
                let (whole, copied) = self.artifact(id, to)?;
                source = whole;
                (copied.sha256, false, Some(copied.media))
            }
            InputSource::Download { url, sha256 } => {
                let path = fetched_input(self.state, sha256);
                let mut file = match File::open(&path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        return Err(Unstaged::NotFetched(url.clone()));
                    }
                    opened => opened.map_err(|error| unread(&path, error))?,
                };
                let copied = self.file(&mut file, Path::new(url), to)?;
                if copied.sha256 != *sha256 {
                    return Err(Unstaged::Changed(path));
                }
                (copied.sha256, false, Some(copied.media))
            }
            InputSource::Path(path) => {
                let unread = |error: rustix::io::Errno| unread(path, error.into());
                // What was decided on has no links in its path; one that has come since leads elsewhere.
                let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let opened = openat2(CWD, path, flags, Mode::empty(), resolve).map_err(unread)?;
                let facts = rustix::fs::fstat(&opened).map_err(unread)?;
                match FileType::from_raw_mode(facts.st_mode) {
                    FileType::Directory => (self.directory(&opened, path, to)?, true, None),
                    FileType::RegularFile => {
                        let copied = self.file(&mut File::from(opened), path, to)?;
                        (copied.sha256, false, Some(copied.media))
                    }
                    _ => return Err(Unstaged::Special(path.clone())),
                }
            }
        };
        Ok(InputFacts {
            name: input.name.to_string(),
            source,
            digest,
            is_directory,
            bytes: self.bytes - before,
            files: self.files - files,
            media,
        })
    }

    /// Copies an artifact of the sandbox's tenant that was promoted; returns its whole name besides.
    fn artifact(&mut self, id: &str, to: &Path) -> Result<(String, Copied), Unstaged> {
        let none = || Unstaged::NoArtifact(id.to_owned());
        let store = Artifacts::open(self.state, false)?.ok_or_else(none)?;
        let found = store.find(id, self.tenant)?;
        let artifact = match found.as_slice() {
            [] => return Err(none()),
            [one] => one,
            _ => return Err(Unstaged::Several(id.to_owned())),
        };
        if artifact.state != ArtifactState::Promoted {
            return Err(Unstaged::NotPromoted(id.to_owned()));
        }
        self.count(1, artifact.bytes)?;
        let source = format!("artifact:{}", artifact.id);
        self.check_type(Path::new(&source), &artifact.media)?;
        let mut into = create(to)?;
        store.read(artifact, &mut into)?;
        let copied = Copied {
            sha256: artifact.sha256.clone(),
            media: artifact.media.clone(),
        };
        Ok((source, copied))
    }

    /// Copies a directory; returns its digest, the "Hash1" of Go's dirhash: the SHA-256 of the sorted
    /// lines of its files' digests and names. A link counts as a file with its target as content.
    fn directory(&mut self, from: &OwnedFd, shown: &Path, to: &Path) -> Result<String, Unstaged> {
        make_directory(to)?;
        let mut lines = Vec::new();
        let mut waiting = vec![PathBuf::new()];
        while let Some(below) = waiting.pop() {
            let at = shown.join(&below);
            let fault = |error: rustix::io::Errno| unread(&at, error.into());
            let opened = open_beneath(from, &below).map_err(fault)?;
            for entry in Dir::read_from(&opened).map_err(fault)? {
                let name = entry.map_err(fault)?.file_name().to_bytes().to_vec();
                if name == b"." || name == b".." {
                    continue;
                }
                let name = std::ffi::OsString::from_vec(name);
                let path = below.join(&name);
                if path.as_os_str().as_bytes().contains(&b'\n') {
                    return Err(Unstaged::LineBreak(shown.join(path)));
                }
                let digest = match self.entry(&opened, &name, shown, &path, &to.join(&path))? {
                    Some(digest) => digest,
                    None => {
                        waiting.push(path);
                        continue;
                    }
                };
                lines.push((path.into_os_string().into_vec(), digest));
            }
        }
        lines.sort_unstable();
        let mut hash = Sha256::new();
        for (path, digest) in lines {
            hash.update(digest);
            hash.update(b"  ");
            hash.update(path);
            hash.update(b"\n");
        }
        Ok(hex(&hash.finalize()))
    }

    /// Copies an entry of a directory; returns its digest, or `None` for a directory.
    fn entry(
        &mut self,
        within: &OwnedFd,
        name: &std::ffi::OsStr,
        shown: &Path,
        below: &Path,
        to: &Path,
    ) -> Result<Option<String>, Unstaged> {
        let path = shown.join(below);
        let fault = |error: rustix::io::Errno| unread(&path, error.into());
        let facts = rustix::fs::statat(within, name, AtFlags::SYMLINK_NOFOLLOW).map_err(fault)?;
        match FileType::from_raw_mode(facts.st_mode) {
            FileType::Directory => {
                self.count(1, 0)?;
                make_directory(to)?;
                Ok(None)
            }
            FileType::Symlink => {
                self.count(1, 0)?;
                let target = rustix::fs::readlinkat(within, name, Vec::new()).map_err(fault)?;
                let target = target.into_bytes();
                if !stays_within(below, Path::new(std::ffi::OsStr::from_bytes(&target))) {
                    return Err(Unstaged::LeadsOut(path));
                }
                let made = rustix::fs::symlink(&*target, to);
                made.map_err(|error| unwritten(to, error.into()))?;
                Ok(Some(hex(&Sha256::digest(&target))))
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let opened = rustix::fs::openat(within, name, flags, Mode::empty());
                let mut opened = File::from(opened.map_err(fault)?);
                // It can be something else by now.
                let is_file = opened.metadata().is_ok_and(|facts| facts.is_file());
                if !is_file {
                    return Err(Unstaged::Special(path));
                }
                Ok(Some(self.file(&mut opened, &path, to)?.sha256))
            }
            _ => Err(Unstaged::Special(path)),
        }
    }

    fn file(&mut self, from: &mut File, shown: &Path, to: &Path) -> Result<Copied, Unstaged> {
        self.count(1, 0)?;
        let mut into = create(to)?;
        let (mut hash, mut head) = (Sha256::new(), None);
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let count = from
                .read(&mut buffer)
                .map_err(|error| unread(shown, error))?;
            let read = buffer.get(..count).unwrap_or_default();
            if head.is_none() {
                let media = media_type(read.get(..HEAD_BYTES).unwrap_or(read));
                self.check_type(shown, &media)?;
                head = Some(media);
            }
            if count == 0 {
                break;
            }
            self.count(0, count as u64)?;
            hash.update(read);
            into.write_all(read).map_err(|error| unwritten(to, error))?;
        }
        Ok(Copied {
            sha256: hex(&hash.finalize()),
            media: head.unwrap_or_default(),
        })
    }

    fn count(&mut self, files: u64, bytes: u64) -> Result<(), Unstaged> {
        self.files = self.files.saturating_add(files);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.files > self.bounds.files {
            return Err(Unstaged::TooMany(self.bounds.files));
        }
        if self.bytes > self.bounds.bytes {
            return Err(Unstaged::TooLarge(self.bounds.bytes));
        }
        Ok(())
    }

    fn check_type(&self, path: &Path, media: &str) -> Result<(), Unstaged> {
        match self.bounds.allows(media) {
            true => Ok(()),
            false => Err(Unstaged::Type {
                path: path.to_owned(),
                media: media.to_owned(),
                types: self.bounds.types.join(", "),
            }),
        }
    }
}

/// Opens a directory beneath another one, through no link.
fn open_beneath(from: &OwnedFd, below: &Path) -> Result<OwnedFd, rustix::io::Errno> {
    let below = match below.as_os_str().is_empty() {
        true => Path::new("."),
        false => below,
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(from.as_fd(), below, flags, Mode::empty(), resolve)
}

/// Returns whether a link at a path beneath a directory leads to a place in it, whatever else is a link
/// there.
fn stays_within(link: &Path, target: &Path) -> bool {
    let mut depth = link.components().count().saturating_sub(1);
    for part in target.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir => match depth.checked_sub(1) {
                Some(above) => depth = above,
                None => return false,
            },
            Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

fn make_directory(path: &Path) -> Result<(), Unstaged> {
    let made = fs::create_dir(path).and_then(|()| set_mode(path, 0o755));
    made.map_err(|error| unwritten(path, error))
}

fn create(path: &Path) -> Result<File, Unstaged> {
    let opened = File::create_new(path);
    let opened = opened.and_then(|file| set_mode(path, 0o444).map(|()| file));
    opened.map_err(|error| unwritten(path, error))
}

/// Sets the mode of a file, whatever the mask of modes (umask(2)) is.
fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn unread(path: &Path, error: std::io::Error) -> Unstaged {
    Unstaged::Unread {
        path: path.to_owned(),
        error,
    }
}

fn unwritten(path: &Path, error: std::io::Error) -> Unstaged {
    Unstaged::Unwritten {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests;
