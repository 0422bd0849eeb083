//! Signed checkpoints of the ledger: its size and root, signed by the deployment's key, made at the
//! end of a run. The last checkpoint is checked first: a ledger that no longer matches it gets no
//! further one, so that the evidence stays.

pub(crate) mod rotation;
mod walk;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::io::Read;
use zeroize::Zeroizing;

use crate::hash::hex;
use crate::head::{FoundHead, Head};
use crate::journal::Journal;
use crate::note::{CHECKPOINT_BYTES_MAX, SigningKey};
use crate::private::{PrivateDirectory, replace_file, replace_file_soon};
use crate::random;
use crate::state::{LEDGER, LEDGER_KEY};
use crate::{
    Checkpoint, FileFault, LedgerError, NoteFault, PrivateFault, StateDir, TreeHash, VerifierKey,
};
use rotation::settled_key;
use walk::Walk;

/// The newest checkpoint, in the ledger's directory.
pub(crate) const CHECKPOINT: &str = "checkpoint";
/// The saved frontier of the tree, so that the next checkpoint need not read all events.
const FRONTIER: &str = "frontier";
/// The key, in its own directory.
const KEY: &str = "key";
const KEY_BYTES_MAX: u64 = 1 << 10;
const SEED_BYTES: usize = 32;
/// The length of the random part of a ledger's name, bytes: it tells ledgers apart.
const NAME_BYTES: usize = 16;
const NAME_PREFIX: &str = "atoll-ledger/";

/// A checkpoint could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The file that holds the key cannot be used.
    #[error("the ledger's key: {0}")]
    Private(#[from] PrivateFault),
    /// The file that is there does not hold a key.
    #[error("the ledger's key in {} cannot be used: {why}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The fault that was found.
        why: NoteFault,
    },
    /// The kernel gave no random bytes.
    #[error("no key can be made: the kernel gives no random bytes")]
    NoRandom,
    /// The kernel refused a file operation.
    #[error(transparent)]
    File(#[from] FileFault),
    /// The ledger could not be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// There is nothing to sign.
    #[error("the ledger has no events yet")]
    Empty,
    /// No key was lost.
    #[error("the ledger's last checkpoint is signed by the key that there is")]
    NotLost,
    /// The key that has signed is gone, or another is in its place.
    #[error("the ledger's last checkpoint is signed by a key that is not here")]
    OtherKey,
    /// The ledger does not match what was signed before, or is not whole.
    #[error("no checkpoint is made, since the ledger is damaged: {0}")]
    Unfit(String),
}

/// Reads the key of the state directory that checks checkpoints; `None` if none was made yet.
pub(crate) fn read_key(state: &StateDir) -> Result<Option<VerifierKey>, SigningError> {
    let Some(directory) = PrivateDirectory::of_state(state, LEDGER_KEY, false)? else {
        return Ok(None);
    };
    Ok(found_key(&directory, KEY)?.map(|key| key.verifier().clone()))
}

/// Returns the key of the state directory that checks checkpoints; makes it if there is none.
pub(crate) fn open_key(state: &StateDir) -> Result<VerifierKey, SigningError> {
    let found = read_key(state)?;
    // A key of another's place is not given out as the one that has signed.
    if let Some(note) = last_note(state)? {
        let signed = found.as_ref().map(|key| open_note(&note, key));
        if matches!(signed, None | Some(Err(NoteFault::OtherKey(_)))) {
            return Err(SigningError::OtherKey);
        }
    }
    if let Some(found) = found {
        return Ok(found);
    }
    let directory = key_directory(state)?;
    let _lock = directory.lock()?;
    Ok(own_key(state, &directory)?.verifier().clone())
}

/// Signs a statement of this media type with the key of checkpoints, and returns its DSSE envelope
/// (secure-systems-lab/dsse). What is signed begins as no checkpoint does.
///
/// # Errors
/// [`SigningError`].
pub fn sign_statement(
    state: &StateDir,
    kind: &str,
    statement: &str,
) -> Result<String, SigningError> {
    open_key(state)?;
    let directory = key_directory(state)?;
    let _lock = directory.lock()?;
    Ok(own_key(state, &directory)?.envelope(kind, statement))
}

fn last_note(state: &StateDir) -> Result<Option<Vec<u8>>, SigningError> {
    match state.subdirectory(LEDGER, false) {
        Ok(directory) => Ok(read_note(&directory, &state.path().join(LEDGER))?),
        Err(fault) if fault.is_not_found() => Ok(None),
        Err(fault) => Err(fault.into()),
    }
}

pub(crate) fn key_directory(state: &StateDir) -> Result<PrivateDirectory, SigningError> {
    PrivateDirectory::of_state(state, LEDGER_KEY, true)?.ok_or(SigningError::NoRandom)
}

/// Reads the key in this file; `None` if there is none.
pub(crate) fn found_key(
    directory: &PrivateDirectory,
    name: &str,
) -> Result<Option<SigningKey>, SigningError> {
    let Some(bytes) = directory.read(name, KEY_BYTES_MAX)? else {
        return Ok(None);
    };
    let bytes = Zeroizing::new(bytes);
    let unusable = |why| SigningError::Key {
        path: directory.path().join(name),
        why,
    };
    let line = std::str::from_utf8(&bytes).map_err(|_| unusable(NoteFault::NoKey("no text")))?;
    SigningKey::parse(line).map(Some).map_err(unusable)
}

/// Returns the key, and makes it if there is none. The caller holds the directory's lock.
pub(crate) fn own_key(
    state: &StateDir,
    directory: &PrivateDirectory,
) -> Result<SigningKey, SigningError> {
    if let Some(found) = found_key(directory, KEY)? {
        return Ok(found);
    }
    let mut name = [0_u8; NAME_BYTES];
    random::fill(&mut name).map_err(|_| SigningError::NoRandom)?;
    let (key, kept) = new_key(directory, &format!("{NAME_PREFIX}{}", hex(&name)))?;
    // Whoever made the directory may have ended before its name was on disk.
    state.sync_names()?;
    keep_new_key(directory, KEY, &kept)?;
    Ok(key)
}

/// Makes a key of this name, and the line that it is kept as.
pub(crate) fn new_key(
    directory: &PrivateDirectory,
    name: &str,
) -> Result<(SigningKey, Zeroizing<String>), SigningError> {
    let mut seed = Zeroizing::new([0_u8; SEED_BYTES]);
    random::fill(&mut *seed).map_err(|_| SigningError::NoRandom)?;
    let key = SigningKey::of(name, &*seed).map_err(|why| SigningError::Key {
        path: directory.path().join(KEY),
        why,
    })?;
    let kept = key.kept(&*seed);
    Ok((key, kept))
}

/// Writes a new key. A key that may not be on disk signs nothing, neither now nor later.
pub(crate) fn keep_new_key(
    directory: &PrivateDirectory,
    name: &str,
    kept: &Zeroizing<String>,
) -> Result<(), SigningError> {
    let written = directory.replace(name, kept.as_bytes());
    Ok(written.inspect_err(|_| drop(directory.remove(name)))?)
}

/// Reads the signed note of the newest checkpoint; `None` if there is none, or an empty file or one
/// of zeros in its place, as a loss of power can leave it.
pub(crate) fn read_note(directory: &OwnedFd, path: &Path) -> Result<Option<Vec<u8>>, FileFault> {
    let path = path.join(CHECKPOINT);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(directory, CHECKPOINT, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.map_err(FileFault::on("open", &path))?,
    };
    let facts = rustix::fs::fstat(&file).map_err(FileFault::on("examine", &path))?;
    let mut bytes = Vec::new();
    if FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile {
        // One byte more than one has, so that a longer file is not taken for one.
        let mut limited = std::fs::File::from(file).take(CHECKPOINT_BYTES_MAX as u64 + 1);
        let read = limited.read_to_end(&mut bytes);
        read.map_err(FileFault::on("read", &path))?;
    }
    Ok(Some(bytes).filter(|bytes| bytes.iter().any(|byte| *byte != 0)))
}

/// Reads the newest checkpoint, if this key has signed it.
pub(crate) fn newest(
    state: &StateDir,
    key: &VerifierKey,
) -> Result<Option<Checkpoint>, SigningError> {
    let directory = state.subdirectory(LEDGER, false)?;
    match read_note(&directory, &state.path().join(LEDGER))? {
        Some(bytes) => open_note(&bytes, key).map(Some).map_err(unreliable),
        None => Ok(None),
    }
}

/// Returns the error of a checkpoint that cannot be relied on, so that nothing is signed on top of
/// it.
fn unreliable(why: NoteFault) -> SigningError {
    match why {
        NoteFault::OtherKey(_) => SigningError::OtherKey,
        NoteFault::NoKey(_)
        | NoteFault::NoCheckpoint(_)
        | NoteFault::BadSignature(_)
        | NoteFault::OtherOrigin(_) => {
            SigningError::Unfit(format!("its checkpoint cannot be relied on: {why}"))
        }
    }
}

/// Opens a signed note that was read from a file.
pub(crate) fn open_note(bytes: &[u8], key: &VerifierKey) -> Result<Checkpoint, NoteFault> {
    let text =
        std::str::from_utf8(bytes).map_err(|_| NoteFault::NoCheckpoint("it is not UTF-8"))?;
    Checkpoint::open(text, key)
}

/// The keys that sign a checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct Signers<'a> {
    key: &'a SigningKey,
    /// The next key, during a hand-over.
    next: Option<&'a SigningKey>,
}

impl<'a> Signers<'a> {
    pub(crate) fn one(key: &'a SigningKey) -> Self {
        Self { key, next: None }
    }

    pub(crate) fn both(key: &'a SigningKey, next: &'a SigningKey) -> Self {
        Self {
            key,
            next: Some(next),
        }
    }

    fn sign(&self, size: u64, root: TreeHash) -> Checkpoint {
        let made = self.key.sign(size, root);
        match self.next {
            Some(next) => next.sign_too(made),
            None => made,
        }
    }
}

/// Signs the part of the ledger that is on disk, and replaces the newest checkpoint. The append
/// lock is not held: appends go on.
pub(crate) fn make(state: &StateDir, journal: &Journal) -> Result<Checkpoint, SigningError> {
    let keys = key_directory(state)?;
    let _lock = keys.lock()?;
    let key = settled_key(state, journal, &keys)?;
    make_with(state, journal, Signers::one(&key))
}

/// Does as [`make`], with these keys. The caller holds the lock of their directory.
pub(crate) fn make_with(
    state: &StateDir,
    journal: &Journal,
    signers: Signers<'_>,
) -> Result<Checkpoint, SigningError> {
    let (directory, path) = (journal.directory(), journal.path());
    let unfit = |what: String| SigningError::Unfit(what);
    let last = match read_note(directory, path)? {
        Some(bytes) => Some(open_note(&bytes, signers.key.verifier()).map_err(unreliable)?),
        None => None,
    };
    let head = match Head::read(directory, path)? {
        FoundHead::Sound(head) => head,
        FoundHead::Missing => return Err(SigningError::Empty),
        FoundHead::Garbled => return Err(unfit("its head is garbled".to_owned())),
    };
    let keep = |made: Checkpoint| -> Result<Checkpoint, SigningError> {
        let text = made.text().as_bytes();
        match signers.next {
            // The old key is gone after it.
            Some(_) => replace_file(directory, path, CHECKPOINT, text)?,
            // Nobody waits for the disk: one that a loss of power takes is made again.
            None => replace_file_soon(directory, path, CHECKPOINT, text)?,
        }
        Ok(made)
    };
    match &last {
        None if head.size == 0 => return Err(SigningError::Empty),
        Some(last) if last.size() >= head.size => {
            if last.size() > head.size {
                // After a loss of power the head can be behind what was signed; or the end was
                // cut off, and the head with it. Only reading all of it tells.
                Walk::default().on_to(state, Some(last), None)?;
            }
            return match signers.next {
                Some(_) => keep(signers.sign(last.size(), last.root())),
                None => Ok(last.clone()),
            };
        }
        Some(_) | None => {}
    }
    let walk = walk_to(state, directory, path, last.as_ref(), &head)?;
    let made = keep(signers.sign(head.size, walk.root()))?;
    // Only after the checkpoint, since it is compared with it. Without it the next one is
    // made from all events.
    let _ = walk.keep(directory, FRONTIER);
    Ok(made)
}

/// Walks the tree up to the last signed checkpoint, and then up to the head, which is known to be
/// on disk; starts from the saved frontier if that leads to the root that was signed last.
fn walk_to(
    state: &StateDir,
    directory: &OwnedFd,
    path: &Path,
    last: Option<&Checkpoint>,
    head: &Head,
) -> Result<Walk, SigningError> {
    let kept = match last {
        Some(last) => {
            Walk::read(directory, path, FRONTIER)?.filter(|kept| kept.size() <= last.size())
        }
        None => None,
    };
    if let Some(kept) = kept
        && let Ok(walk) = kept.on_to(state, last, Some(head))
    {
        return Ok(walk);
    }
    Walk::default().on_to(state, last, Some(head))
}
