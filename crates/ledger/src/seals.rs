//! The keys that seal the sensitive content of runs' events, apart from the ledger and from the
//! runs' files: a file of slots of the same size. A key is destroyed by overwriting its slot, in
//! place, so that no copy of the file stays behind.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use atoll_model::{RunId, SessionId};
use zeroize::Zeroizing;

use crate::canonical::SEALED;
use crate::event::seal::{KEY_BYTES, Opening, SealFault, SealKey, unseal};
use crate::hash::hex;
use crate::private::PrivateDirectory;
use crate::state::SEALS;
use crate::{Event, FileFault, LedgerError, PrivateFault, StateDir, disk};

const FILE: &str = "keys";
/// The file of the shredding under way: it exists only meanwhile.
const SHREDDING: &str = "shredding";
/// The prefix of a slot.
const MARK: &str = "atoll-seal-1";
/// The size of a slot: mark, run, session or dashes, key in hexadecimal digits, newline.
const SLOT_BYTES: usize = 12 + 1 + 18 + 1 + 20 + 1 + 2 * KEY_BYTES + 1;
/// The offset of the key in a slot.
const KEY_AT: u64 = (SLOT_BYTES - 1 - 2 * KEY_BYTES) as u64;
/// The text in place of the session, for a run without one.
const NO_SESSION: &str = "--------------------";
/// The number of slots that get their space on disk at a time: writing to one is then one wait
/// without a change of the file's size.
const ROOM_SLOTS: u64 = 512;
/// The largest file that is read, bytes: some two million runs.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The reason for a shredding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShredWhy {
    /// A person has named it.
    Asked,
    /// The run is older than its retention time.
    Age,
}

impl ShredWhy {
    /// Returns the word for it in the ledger.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Age => "age",
        }
    }

    /// Parses the word; any other one counts as asked.
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "age" => Self::Age,
            _ => Self::Asked,
        }
    }
}

/// The shredding under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shredding {
    pub(crate) why: ShredWhy,
    pub(crate) runs: Vec<RunId>,
}

/// The slot of a run's key.
struct Slot {
    run: RunId,
    session: Option<SessionId>,
    /// The key; `None` once it was destroyed.
    key: Option<SealKey>,
}

/// The keys that open sealed content; none by default.
#[derive(Debug, Default)]
pub struct Seals {
    keys: HashMap<RunId, Option<SealKey>>,
}

impl Seals {
    /// Reads all keys.
    ///
    /// # Errors
    /// [`PrivateFault`].
    pub fn read(state: &StateDir) -> Result<Self, PrivateFault> {
        let Some(directory) = PrivateDirectory::of_state(state, SEALS, false)? else {
            return Ok(Self::default());
        };
        Self::within(&directory)
    }

    fn within(directory: &PrivateDirectory) -> Result<Self, PrivateFault> {
        let slots = slots(directory)?.into_iter().flatten();
        let mut keys: HashMap<_, _> = slots.map(|slot| (slot.run, slot.key)).collect();
        // What was to be shredded is, though the power went meanwhile.
        let shredding = shredding(directory)?;
        for run in shredding.into_iter().flat_map(|shredding| shredding.runs) {
            keys.insert(run, None);
        }
        Ok(Self { keys })
    }

    /// Returns whether the key of a run was destroyed.
    #[must_use]
    pub fn is_shredded(&self, run: &RunId) -> bool {
        matches!(self.keys.get(run), Some(None))
    }

    /// Returns whether the key of a run is here.
    #[must_use]
    pub fn is_kept(&self, run: &RunId) -> bool {
        matches!(self.keys.get(run), Some(Some(_)))
    }

    /// Returns the runs whose key is here.
    pub fn kept(&self) -> impl Iterator<Item = &RunId> {
        let kept = self.keys.iter().filter(|(_, key)| key.is_some());
        kept.map(|(run, _)| run)
    }

    /// Returns the number of runs that have had a key.
    pub(crate) fn count(&self) -> u64 {
        self.keys.len() as u64
    }

    /// Returns the run of an event with sealed content whose key is not among these.
    fn lacking<'a>(&self, event: &'a Event) -> Option<&'a RunId> {
        let run = event.run.as_ref()?;
        let is_sealed = event.body.get(SEALED).is_some();
        (is_sealed && !self.keys.contains_key(run)).then_some(run)
    }

    /// Unseals an event; members that cannot be unsealed are replaced by `(shredded)` if the key
    /// was destroyed, or `(sealed)` if it is not here, or does not open them. The canonical form is
    /// then not the one that the event's hash is of.
    #[must_use]
    pub fn open(&self, event: Event) -> Event {
        self.open_as(event, false)
    }

    /// Opens an event as [`Seals::open`] does, with the proof for whoever checks it: `sealed` then
    /// holds the `digest` of the sealed text, its `salt` and the names of its `members`. An event
    /// that cannot be opened stays as it is.
    #[must_use]
    pub fn open_with_proof(&self, event: Event) -> Event {
        self.open_as(event, true)
    }

    fn open_as(&self, mut event: Event, with_proof: bool) -> Event {
        let Some(run) = &event.run else {
            return event;
        };
        let opening = match self.keys.get(run) {
            Some(Some(key)) => Opening::Key(key),
            Some(None) => Opening::Shredded,
            None => Opening::Unknown,
        };
        unseal(&mut event, opening, with_proof);
        event
    }
}

/// The keys for a reader who follows the ledger: read again if a run began after they were read.
#[derive(Debug, Default)]
pub struct FollowedSeals {
    seals: Seals,
    /// The runs for which they were read again.
    sought: HashSet<RunId>,
}

impl FollowedSeals {
    /// Reads all keys.
    ///
    /// # Errors
    /// [`PrivateFault`].
    pub fn read(state: &StateDir) -> Result<Self, PrivateFault> {
        Ok(Self {
            seals: Seals::read(state)?,
            sought: HashSet::new(),
        })
    }

    /// Does as [`Seals::open`]. A key is there before the first event that it seals: if it is not
    /// known, the keys are read again, once for each run.
    ///
    /// # Errors
    /// [`PrivateFault`] where they cannot be read again.
    pub fn open(&mut self, state: &StateDir, event: Event) -> Result<Event, PrivateFault> {
        if let Some(run) = self.seals.lacking(&event)
            && self.sought.insert(run.clone())
        {
            self.seals = Seals::read(state)?;
        }
        Ok(self.seals.open(event))
    }
}

/// A new key, whose slot other processes read already.
#[derive(Debug)]
pub(crate) struct NewKey {
    pub(crate) key: Arc<SealKey>,
    file: File,
    path: PathBuf,
}

impl NewKey {
    /// Waits until the key is on disk.
    pub(crate) fn sync(&self) -> Result<(), LedgerError> {
        Ok(disk::sync(&self.file).map_err(FileFault::on("write", &self.path))?)
    }
}

/// Makes the key of a run. What is sealed with it counts once both are on disk.
pub(crate) fn add(
    state: &StateDir,
    run: &RunId,
    session: Option<&SessionId>,
) -> Result<NewKey, LedgerError> {
    let directory = usable(state)?;
    let lock = directory.lock().map_err(unusable)?;
    append(&directory, lock, run, session)
}

/// Returns the key of a run, and makes it if there is none; under the lock, so that nobody else
/// makes one meanwhile. `None` if the key was destroyed.
pub(crate) fn find_or_add(
    state: &StateDir,
    run: &RunId,
    session: Option<&SessionId>,
) -> Result<Option<Arc<SealKey>>, LedgerError> {
    let directory = usable(state)?;
    let lock = directory.lock().map_err(unusable)?;
    match key_of(&directory, run).map_err(unusable)? {
        Some(key) => {
            drop(lock);
            // Whoever has just added it may still wait for the disk.
            let path = directory.path().join(FILE);
            let file = directory.open_in_place(FILE).map_err(unusable)?;
            disk::sync(&file).map_err(FileFault::on("write", &path))?;
            Ok(key.map(Arc::new))
        }
        None => {
            let made = append(&directory, lock, run, session)?;
            made.sync().map(|()| Some(made.key))
        }
    }
}

fn usable(state: &StateDir) -> Result<PrivateDirectory, LedgerError> {
    let directory = PrivateDirectory::of_state(state, SEALS, true).map_err(unusable)?;
    directory.ok_or_else(|| LedgerError::Seal(SealFault.to_string()))
}

fn append(
    directory: &PrivateDirectory,
    lock: OwnedFd,
    run: &RunId,
    session: Option<&SessionId>,
) -> Result<NewKey, LedgerError> {
    let key = SealKey::generate().ok_or_else(|| LedgerError::Seal(SealFault.to_string()))?;
    let path = directory.path().join(FILE);
    let fault = |cause| FileFault::on("write", &path)(cause);
    let file = directory.open_in_place(FILE).map_err(unusable)?;
    let length = file.metadata().map_err(fault)?.len();
    let free = first_free(&file, length / SLOT_BYTES as u64).map_err(fault)?;
    let at = free * SLOT_BYTES as u64;
    if at + SLOT_BYTES as u64 > length {
        let room = vec![0; SLOT_BYTES * ROOM_SLOTS as usize];
        disk::write(&file, &room, at).map_err(fault)?;
        disk::sync(&file).map_err(fault)?;
        disk::sync_names(directory.descriptor()).map_err(FileFault::on("write", &path))?;
    }
    let session = session.map_or(NO_SESSION, SessionId::as_str);
    let digits = Zeroizing::new(hex(key.expose()));
    let slot = Zeroizing::new(format!("{MARK} {run} {session} {}\n", *digits));
    disk::write(&file, slot.as_bytes(), at).map_err(fault)?;
    drop(lock);
    let key = Arc::new(key);
    Ok(NewKey { key, file, path })
}

fn unusable(fault: PrivateFault) -> LedgerError {
    LedgerError::Seal(fault.to_string())
}

/// Returns the first slot after the last used one. After a loss of power there may be free slots
/// before it: they stay free.
fn first_free(file: &File, count: u64) -> std::io::Result<u64> {
    let (mut used, mut free) = (0, count);
    while used < free {
        let middle = used + (free - used) / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, middle * SLOT_BYTES as u64)?;
        match byte {
            [0] => free = middle,
            _ => used = middle + 1,
        }
    }
    Ok(used)
}

/// Returns the key of a run: `Some(None)` if it was destroyed, `None` if the run never had one.
pub(crate) fn find(state: &StateDir, run: &RunId) -> Result<Option<Option<SealKey>>, LedgerError> {
    match PrivateDirectory::of_state(state, SEALS, false).map_err(unusable)? {
        Some(directory) => key_of(&directory, run).map_err(unusable),
        None => Ok(None),
    }
}

/// Finds a run's key among all, without a look at what the others are.
fn key_of(
    directory: &PrivateDirectory,
    run: &RunId,
) -> Result<Option<Option<SealKey>>, PrivateFault> {
    let bytes = directory.read(FILE, FILE_BYTES_MAX)?.unwrap_or_default();
    let bytes = Zeroizing::new(bytes);
    let begins = format!("{MARK} {run} ");
    let own = |slot: &&[u8]| slot.starts_with(begins.as_bytes());
    let mut last = bytes.chunks_exact(SLOT_BYTES).rev().filter(own);
    let slot = last.find_map(read_slot);
    // What was to be shredded is, though the power went meanwhile.
    let shredding = shredding(directory)?;
    Ok(
        match shredding.is_some_and(|shredding| shredding.runs.contains(run)) {
            true => Some(None),
            false => slot.map(|slot| slot.key),
        },
    )
}

/// The keys under their lock: no other process adds or destroys any meanwhile.
pub(crate) struct HeldKeys {
    directory: PrivateDirectory,
    _lock: OwnedFd,
}

impl HeldKeys {
    /// Waits for the lock.
    pub(crate) fn of(state: &StateDir) -> Result<Option<Self>, PrivateFault> {
        let Some(directory) = PrivateDirectory::of_state(state, SEALS, true)? else {
            return Ok(None);
        };
        let _lock = directory.lock()?;
        Ok(Some(Self { directory, _lock }))
    }

    /// Takes the keys if a shredding was begun and not finished, and no process is at it.
    pub(crate) fn of_unfinished(state: &StateDir) -> Result<Option<Self>, PrivateFault> {
        let Some(directory) = PrivateDirectory::of_state(state, SEALS, false)? else {
            return Ok(None);
        };
        if shredding(&directory)?.is_none() {
            return Ok(None);
        }
        let lock = directory.lock_if_free()?;
        Ok(lock.map(|_lock| Self { directory, _lock }))
    }

    /// Returns the runs that have a key, with their sessions, in the order in which they began.
    pub(crate) fn runs(&self) -> Result<Vec<(RunId, Option<SessionId>)>, PrivateFault> {
        let slots = slots(&self.directory)?.into_iter().flatten();
        let with_key = slots.filter(|slot| slot.key.is_some());
        Ok(with_key.map(|slot| (slot.run, slot.session)).collect())
    }

    /// Returns whether the key of a run was destroyed.
    pub(crate) fn is_shredded(&self, run: &RunId) -> Result<bool, PrivateFault> {
        Ok(Seals::within(&self.directory)?.is_shredded(run))
    }

    /// Returns the shredding that was begun and is not finished.
    pub(crate) fn shredding(&self) -> Result<Option<Shredding>, PrivateFault> {
        shredding(&self.directory)
    }

    /// Saves the shredding, on disk: from then on its runs' content is shown to nobody, and the
    /// next process finishes it.
    pub(crate) fn begin(&self, shredding: &Shredding) -> Result<(), PrivateFault> {
        let mut text = format!("{}\n", shredding.why.name());
        for run in &shredding.runs {
            text.push_str(run.as_str());
            text.push('\n');
        }
        self.directory.replace(SHREDDING, text.as_bytes())
    }

    /// Destroys the keys of these runs, on disk.
    pub(crate) fn destroy(&self, shredding: &Shredding) -> Result<(), PrivateFault> {
        let path = self.directory.path().join(FILE);
        let fault = |cause| FileFault::on("write", &path)(cause);
        let file = self.directory.open_in_place(FILE)?;
        let runs: HashSet<&RunId> = shredding.runs.iter().collect();
        for (number, slot) in slots(&self.directory)?.iter().enumerate() {
            if slot.as_ref().is_some_and(|slot| runs.contains(&slot.run)) {
                let at = number as u64 * SLOT_BYTES as u64 + KEY_AT;
                disk::write(&file, &[b'0'; 2 * KEY_BYTES], at).map_err(fault)?;
            }
        }
        disk::sync(&file).map_err(fault)?;
        self.directory.remove(SHREDDING)?;
        Ok(())
    }
}

/// Reads all slots. A malformed one (after a loss of power) belongs to no run.
fn slots(directory: &PrivateDirectory) -> Result<Vec<Option<Slot>>, PrivateFault> {
    let bytes = directory.read(FILE, FILE_BYTES_MAX)?.unwrap_or_default();
    let bytes = Zeroizing::new(bytes);
    Ok(bytes.chunks_exact(SLOT_BYTES).map(read_slot).collect())
}

fn read_slot(slot: &[u8]) -> Option<Slot> {
    let text = std::str::from_utf8(slot).ok()?.strip_suffix('\n')?;
    let mut words = text.split(' ');
    let mark = words.next()?;
    let run = RunId::parse(words.next()?).ok()?;
    let session = words.next()?;
    let session = match session == NO_SESSION {
        true => None,
        false => Some(SessionId::parse(session).ok()?),
    };
    let digits = words.next()?;
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    for (byte, pair) in key.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    let is_one = mark == MARK && digits.len() == 2 * KEY_BYTES && words.next().is_none();
    is_one.then(|| Slot {
        run,
        session,
        key: (*key != [0; KEY_BYTES]).then(|| SealKey::from_bytes(*key)),
    })
}

fn shredding(directory: &PrivateDirectory) -> Result<Option<Shredding>, PrivateFault> {
    let Some(bytes) = directory.read(SHREDDING, FILE_BYTES_MAX)? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    let why = ShredWhy::parse(lines.next().unwrap_or_default());
    let runs = lines.filter_map(|line| RunId::parse(line).ok()).collect();
    Ok(Some(Shredding { why, runs }))
}
