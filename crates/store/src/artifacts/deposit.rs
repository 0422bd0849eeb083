//! A deposit on its way: files sealed into a pack.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use atoll_ledger::hex;
use atoll_model::RunId;
use aws_lc_rs::digest::{Context, SHA256};

use super::artifact::ArtifactOrigin;
use super::error::ArtifactError;
use super::sealing::{BUFFER_BYTES, Key};

/// The first bytes by which a file's type is told.
const HEAD_BYTES: usize = 8 << 10;
/// The hexadecimal digits of an artifact's id.
const ID_DIGITS: usize = 16;
/// The largest artifact, bytes.
const BYTES_MAX: u64 = 1 << 40;

/// A file that goes into a pack.
pub(super) struct Packed {
    pub(super) name: Vec<u8>,
    pub(super) bytes: u64,
    pub(super) blake3: String,
    pub(super) sha256: String,
    pub(super) media: String,
    pub(super) at_byte: u64,
    pub(super) sealed_bytes: u64,
    pub(super) key: Key,
}

/// The artifacts of one sandbox on their way: nothing of them counts before [`Artifacts::keep`].
pub struct Deposit {
    pub(super) origin: ArtifactOrigin,
    pub(super) path: PathBuf,
    pub(super) packed: Vec<Packed>,
    pub(super) is_kept: bool,
    pack: BufWriter<File>,
    at_byte: u64,
}

/// Gives the space back of what is not kept.
impl Drop for Deposit {
    fn drop(&mut self) {
        if !self.is_kept {
            // A file that stays is written over by the next attempt.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A file of a deposit, for the statement about it.
#[derive(Clone, Copy, Debug)]
pub struct Deposited<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its size, bytes.
    pub bytes: u64,
    /// Its BLAKE3 digest, hexadecimal digits.
    pub blake3: &'a str,
    /// Its SHA-256 digest, hexadecimal digits.
    pub sha256: &'a str,
}

impl Deposit {
    /// Begins one in this file. One that is there is of an attempt that was cut short.
    pub(super) fn begin(origin: ArtifactOrigin, path: PathBuf) -> Result<Self, ArtifactError> {
        let opened = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path);
        match opened {
            Ok(file) => Ok(Self {
                origin,
                path,
                packed: Vec::new(),
                is_kept: false,
                pack: BufWriter::with_capacity(BUFFER_BYTES, file),
                at_byte: 0,
            }),
            Err(error) => Err(ArtifactError::Pack { path, error }),
        }
    }

    /// Adds a file, which is read to its end.
    ///
    /// # Errors
    /// [`ArtifactError::Pack`]; the file is not among them then.
    pub fn add(&mut self, name: Vec<u8>, from: &mut dyn Read) -> Result<(), ArtifactError> {
        let added = self.seal(name, from);
        added.map_err(|error| ArtifactError::Pack {
            path: self.path.clone(),
            error,
        })
    }

    fn seal(&mut self, name: Vec<u8>, from: &mut dyn Read) -> io::Result<()> {
        let key = Key::generate()?;
        let (mut blake3, mut sha256) = (blake3::Hasher::new(), Context::new(&SHA256));
        let mut head = Vec::new();
        let sealed = key.seal(from, &mut self.pack, BYTES_MAX, |chunk| {
            if head.is_empty() {
                head.extend_from_slice(chunk.get(..HEAD_BYTES).unwrap_or(chunk));
            }
            blake3.update(chunk);
            sha256.update(chunk);
        });
        let (bytes, sealed_bytes) = match sealed {
            Ok(sizes) => sizes,
            Err(error) => {
                // What is written of it is written over by the next.
                self.pack.seek(SeekFrom::Start(self.at_byte))?;
                return Err(error);
            }
        };
        self.packed.push(Packed {
            name,
            bytes,
            blake3: blake3.finalize().to_hex().to_string(),
            sha256: hex(sha256.finish().as_ref()),
            media: media(&head),
            at_byte: self.at_byte,
            sealed_bytes,
            key,
        });
        self.at_byte += sealed_bytes;
        Ok(())
    }

    /// Returns the sandbox that it is from.
    #[must_use]
    pub fn origin(&self) -> &ArtifactOrigin {
        &self.origin
    }

    /// Returns what is in it, in the order of adding.
    pub fn files(&self) -> impl Iterator<Item = Deposited<'_>> {
        self.packed.iter().map(|one| Deposited {
            name: &one.name,
            bytes: one.bytes,
            blake3: &one.blake3,
            sha256: &one.sha256,
        })
    }

    /// Waits until the content is on the disk.
    ///
    /// # Errors
    /// [`ArtifactError::Pack`].
    pub fn sync(&mut self) -> Result<(), ArtifactError> {
        let synced = (|| {
            self.pack.flush()?;
            let file = self.pack.get_ref();
            file.set_len(self.at_byte)?;
            file.sync_data()
        })();
        synced.map_err(|error| ArtifactError::Pack {
            path: self.path.clone(),
            error,
        })
    }
}

/// Returns an id that no program chooses: two alike would keep a deposit from being kept.
pub(super) fn id_of(run: &RunId, index: usize) -> String {
    let text = format!("{run}\0{index}");
    let mut id = blake3::hash(text.as_bytes()).to_hex().to_string();
    id.truncate(ID_DIGITS);
    id
}

/// Returns the media type of content by its first bytes; its name has no say.
#[must_use]
pub fn media(head: &[u8]) -> String {
    match infer::get(head) {
        Some(kind) => kind.mime_type().to_owned(),
        None if head.is_empty() => "application/x-empty".to_owned(),
        // A character can be cut at the end of what is looked at.
        None => match std::str::from_utf8(head) {
            Ok(text) if !text.contains('\0') => "text/plain".to_owned(),
            Err(error) if error.error_len().is_none() => "text/plain".to_owned(),
            Ok(_) | Err(_) => "application/octet-stream".to_owned(),
        },
    }
}
