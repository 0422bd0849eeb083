//! The contents of files, each once, under the name of its digest.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use blake3::{Hash, Hasher};
use rustix::fs::ioctl_ficlone;
use serde::{Deserialize, Serialize};

use crate::{Error, How};

const DIRECTORY: &str = "contents";
const PACK: &str = "pack";
const INDEX: &str = "pack.json";
const BLOCK_BYTES: usize = 1 << 16;
/// The largest content that is packed. A file takes a block of its file system, and far more time.
const SMALL_BYTES_MAX: usize = 1 << 14;
const PENDING_BYTES_MAX: usize = 1 << 20;

/// The contents that a checkpoint holds: small ones one after another in a file, a pack, and each
/// other in a file of its own.
pub(crate) struct Contents {
    directory: PathBuf,
    /// Set as long as the file system shares the blocks of copies.
    clones: AtomicBool,
    copied: AtomicBool,
    next: AtomicU64,
    pack: Mutex<Pack>,
}

/// The pack of a checkpoint that is being taken, or is read.
#[derive(Default)]
struct Pack {
    file: Option<File>,
    /// The bytes that are not yet in the file.
    pending: Vec<u8>,
    places: HashMap<String, Place>,
    end: u64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Place {
    at: u64,
    bytes: usize,
}

impl Pack {
    fn add(&mut self, digest: &str, content: &[u8]) -> io::Result<()> {
        if self.places.contains_key(digest) {
            return Ok(());
        }
        let place = Place {
            at: self.end,
            bytes: content.len(),
        };
        self.places.insert(digest.to_owned(), place);
        self.pending.extend_from_slice(content);
        self.end += content.len() as u64;
        match self.pending.len() >= PENDING_BYTES_MAX {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(file) = &self.file {
            file.write_all_at(&self.pending, self.end - self.pending.len() as u64)?;
        }
        self.pending.clear();
        Ok(())
    }
}

impl Contents {
    /// Makes an empty one in the directory of a checkpoint.
    pub fn create(checkpoint: &Path) -> Result<Self, Error> {
        let path = checkpoint.join(DIRECTORY);
        directory(&path).map_err(Error::on("create", &path))?;
        let pack = path.join(PACK);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&pack);
        Ok(Self::of(
            path,
            Pack {
                file: Some(file.map_err(Error::on("create", &pack))?),
                ..Pack::default()
            },
        ))
    }

    /// Opens that of a checkpoint which was taken.
    pub fn open(checkpoint: &Path) -> Result<Self, Error> {
        let path = checkpoint.join(DIRECTORY);
        let pack = path.join(PACK);
        let file = File::open(&pack).map_err(Error::on("read", &pack))?;
        let places = crate::read_json(&path.join(INDEX))?;
        Ok(Self::of(
            path,
            Pack {
                file: Some(file),
                places,
                ..Pack::default()
            },
        ))
    }

    fn of(directory: PathBuf, pack: Pack) -> Self {
        Self {
            directory,
            clones: AtomicBool::new(true),
            copied: AtomicBool::new(false),
            next: AtomicU64::new(0),
            pack: Mutex::new(pack),
        }
    }

    fn pack(&self) -> MutexGuard<'_, Pack> {
        self.pack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is still pending, so that all is on the disk.
    pub fn finish(&self) -> io::Result<()> {
        let mut pack = self.pack();
        pack.flush()?;
        let index = self.directory.join(INDEX);
        crate::write_json(&pack.places, &index).map_err(io::Error::other)?;
        Ok(rustix::fs::syncfs(File::open(index)?)?)
    }

    pub fn how(&self) -> How {
        let is_empty = self.next.load(Ordering::Relaxed) == 0;
        match self.copied.load(Ordering::Relaxed) || is_empty {
            true => How::Copy,
            false => How::Reflink,
        }
    }

    fn path(&self, digest: &str) -> PathBuf {
        let (first, rest) = digest.split_at_checked(2).unwrap_or(("", digest));
        self.directory.join(first).join(rest)
    }

    /// Returns the path for a new content.
    fn new_path(&self, digest: &str) -> io::Result<PathBuf> {
        let path = self.path(digest);
        path.parent().map_or(Ok(()), directory)?;
        Ok(path)
    }

    /// Keeps the content of a file; returns its digest.
    pub fn put(&self, file: &File, size: u64) -> io::Result<String> {
        if size <= SMALL_BYTES_MAX as u64 {
            return self.put_small(file);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let new = self.directory.join(format!("new-{number}"));
        let to = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&new)?;
        let hash = match self.clone(file, &to) {
            true => digest(&to)?,
            false => copy(file, &to)?,
        };
        let digest = hash.to_hex().to_string();
        fs::rename(&new, self.new_path(&digest)?)?;
        Ok(digest)
    }

    fn put_small(&self, file: &File) -> io::Result<String> {
        let mut block = vec![0; SMALL_BYTES_MAX + 1];
        let content = filled(file, 0, &mut block)?;
        if content.len() > SMALL_BYTES_MAX {
            return Err(io::Error::other("it grew while it was read"));
        }
        let digest = blake3::hash(content).to_hex().to_string();
        self.pack().add(&digest, content)?;
        Ok(digest)
    }

    fn clone(&self, from: &File, to: &File) -> bool {
        if self.clones.load(Ordering::Relaxed) {
            if ioctl_ficlone(to, from).is_ok() {
                return true;
            }
            self.clones.store(false, Ordering::Relaxed);
        }
        self.copied.store(true, Ordering::Relaxed);
        false
    }

    /// Writes a content into an empty file, checked against its digest.
    pub fn get(&self, digest: &str, to: &File) -> io::Result<()> {
        let pack = self.pack();
        let hash = match (pack.places.get(digest), &pack.file) {
            (Some(place), Some(file)) => {
                let mut content = vec![0; place.bytes.min(SMALL_BYTES_MAX)];
                file.read_exact_at(&mut content, place.at)?;
                to.write_all_at(&content, 0)?;
                blake3::hash(&content)
            }
            _ => {
                let from = File::open(self.path(digest))?;
                match ioctl_ficlone(to, &from) {
                    Ok(()) => self::digest(to)?,
                    Err(_) => copy(&from, to)?,
                }
            }
        };
        match hash.to_hex().as_str() == digest {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the content in the checkpoint is not that of its digest",
            )),
        }
    }
}

fn directory(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Returns the digest of a file's content.
pub(crate) fn digest(file: &File) -> io::Result<Hash> {
    pass(file, |_, _| Ok(()))
}

/// Copies a content; blocks of zeros become holes.
fn copy(from: &File, to: &File) -> io::Result<Hash> {
    let mut end = 0;
    let hash = pass(from, |block, at| {
        end = at + block.len() as u64;
        match block.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => to.write_all_at(block, at),
        }
    })?;
    to.set_len(end)?;
    Ok(hash)
}

fn pass(from: &File, mut each: impl FnMut(&[u8], u64) -> io::Result<()>) -> io::Result<Hash> {
    let mut hasher = Hasher::new();
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = 0;
    loop {
        let content = filled(from, at, &mut block)?;
        if content.is_empty() {
            return Ok(hasher.finalize());
        }
        hasher.update(content);
        each(content, at)?;
        at += content.len() as u64;
    }
}

/// Reads until a block is full or the file ends.
fn filled<'a>(from: &File, at: u64, block: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let mut length = 0;
    while let Some(rest) = block.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match from.read_at(rest, at + length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(block.get(..length).unwrap_or_default())
}
