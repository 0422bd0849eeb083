//! Legal holds: what nobody sweeps or shreds until they are released. They are events; one lock orders
//! them with all that destroys, so that what was held before it was destroyed is kept whole.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use atoll_model::{RunId, SessionId};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde_json::Value;

use crate::event::{Event, HOLD_SET};
use crate::lock::{open_lock, wait_for_lock};
use crate::private::PrivateDirectory;
use crate::read::{Events, Filter};
use crate::state::HOLDS;
use crate::{FileFault, LedgerError, PrivateFault, StateDir};

/// The longest wait for one who removes, milliseconds: large directories take their time.
const WAIT_MS_MAX: u64 = 60_000;
const LOCK: &str = "lock";
/// The events that name the session or the tenant of a run, or of a session of tools.
const NAMING: [&str; 3] = ["run.opened", "sandbox.assigned", "tool.opened"];

/// The data that a shredding, a hold or a question is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// One run, or one session of tools.
    Run(RunId),
    /// All runs of a session, also those to come.
    Session(SessionId),
    /// All that is a tenant's of a server, also what is to come.
    Tenant(String),
}

impl Evidence {
    /// Returns what an event about a hold names.
    fn of(event: &Event) -> Option<Self> {
        let text = |name| event.body.get(name).and_then(Value::as_str);
        let session = text("session").and_then(|id| SessionId::parse(id).ok());
        match &event.run {
            Some(run) => Some(Self::Run(run.clone())),
            None => session
                .map(Self::Session)
                .or_else(|| text("tenant").map(|name| Self::Tenant(name.to_owned()))),
        }
    }

    /// Returns whether an event that begins a run names it as one of these.
    fn has(&self, event: &Event) -> bool {
        let text = |place| event.body.pointer(place).and_then(Value::as_str);
        match self {
            Self::Run(run) => event.run.as_ref() == Some(run),
            Self::Session(session) => text("/session") == Some(session.as_str()),
            Self::Tenant(tenant) => text("/served/tenant") == Some(tenant),
        }
    }
}

/// Data could not be shredded, swept or held.
#[derive(Debug, thiserror::Error)]
pub enum ShredError {
    /// The ledger cannot be read or added to, or a key cannot be overwritten.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The keys cannot be read, or the lock is not got.
    #[error(transparent)]
    Private(#[from] PrivateFault),
    /// A run that is to be held is shredded.
    #[error("what was sealed of run {0} is shredded already")]
    Gone(RunId),
}

impl From<FileFault> for ShredError {
    fn from(fault: FileFault) -> Self {
        Self::Ledger(fault.into())
    }
}

/// The holds that are set. While this value is there nobody sets or releases one, unless it was only
/// read.
#[derive(Debug)]
pub struct Holds {
    set: BTreeSet<Evidence>,
    /// The runs under any of them.
    runs: BTreeSet<RunId>,
    _lock: Option<OwnedFd>,
}

impl Holds {
    /// Waits for the lock that whoever destroys takes, and reads them.
    ///
    /// # Errors
    /// [`ShredError`]; whoever cannot know of holds destroys nothing.
    pub fn lock(state: &StateDir) -> Result<Self, ShredError> {
        let lock = locked(state)?;
        Ok(Self {
            _lock: Some(lock),
            ..Self::read(state)?
        })
    }

    /// Reads them, as they are at this moment.
    ///
    /// # Errors
    /// [`ShredError`].
    pub fn read(state: &StateDir) -> Result<Self, ShredError> {
        let filter = Filter {
            kind: Some("hold".to_owned()),
            ..Filter::default()
        };
        let mut set = BTreeSet::new();
        for event in Events::from_start(state, filter)? {
            // What is damaged could have been a hold.
            let event = event?;
            match Evidence::of(&event) {
                Some(what) if event.kind == HOLD_SET => drop(set.insert(what)),
                Some(what) => drop(set.remove(&what)),
                None => {}
            }
        }
        Ok(Self {
            runs: runs_of(state, &set)?,
            set,
            _lock: None,
        })
    }

    /// Returns whether a run is held: itself, its session or its tenant.
    #[must_use]
    pub fn keeps(&self, run: &RunId) -> bool {
        self.runs.contains(run)
    }

    /// Returns whether a session is held.
    #[must_use]
    pub fn keeps_session(&self, session: &SessionId) -> bool {
        self.set.contains(&Evidence::Session(session.clone()))
    }

    /// Returns whether a tenant is held.
    #[must_use]
    pub fn keeps_tenant(&self, tenant: &str) -> bool {
        self.set.contains(&Evidence::Tenant(tenant.to_owned()))
    }

    /// Returns whether exactly this is held.
    #[must_use]
    pub fn has(&self, what: &Evidence) -> bool {
        self.set.contains(what)
    }
}

/// Returns the runs and sessions of tools that are any of these, by the ledger.
///
/// # Errors
/// [`LedgerError`]; what is damaged could have named one.
pub fn runs_of(
    state: &StateDir,
    these: &BTreeSet<Evidence>,
) -> Result<BTreeSet<RunId>, LedgerError> {
    let is_single = |one: &Evidence| matches!(one, Evidence::Run(_));
    let mut runs = BTreeSet::new();
    for one in these {
        if let Evidence::Run(run) = one {
            runs.insert(run.clone());
        }
    }
    let kinds: &[&str] = match these.iter().all(is_single) {
        true => &[],
        false => &NAMING,
    };
    for kind in kinds {
        let filter = Filter {
            kind: Some((*kind).to_owned()),
            ..Filter::default()
        };
        for event in Events::from_start(state, filter)? {
            let event = event?;
            if these.iter().any(|one| one.has(&event)) {
                runs.extend(event.run);
            }
        }
    }
    add_parts(state, &mut runs)?;
    Ok(runs)
}

/// Adds the sandboxes that were made for calls of these sessions and runs; each begins after what it is a
/// part of.
fn add_parts(state: &StateDir, runs: &mut BTreeSet<RunId>) -> Result<(), LedgerError> {
    if runs.is_empty() {
        return Ok(());
    }
    let filter = Filter {
        kind: Some("run.opened".to_owned()),
        ..Filter::default()
    };
    for event in Events::from_start(state, filter)? {
        let event = event?;
        let parent = event.body.get("parent").and_then(Value::as_str);
        let parent = parent.and_then(|call| call.split('/').next());
        if parent.is_some_and(|parent| runs.iter().any(|run| run.as_str() == parent)) {
            runs.extend(event.run);
        }
    }
    Ok(())
}

/// Waits for the lock of all that is held and destroyed.
pub(crate) fn locked(state: &StateDir) -> Result<OwnedFd, PrivateFault> {
    let directory = PrivateDirectory::of_state(state, HOLDS, true)?;
    let Some(directory) = directory else {
        let path = state.path().join(HOLDS);
        return Err(FileFault::on("open", path)(Errno::NOENT).into());
    };
    let path = directory.path();
    let lock = open_lock(directory.descriptor(), path, LOCK)?;
    let operation = FlockOperation::NonBlockingLockExclusive;
    wait_for_lock(&lock, &path.join(LOCK), operation, WAIT_MS_MAX)?;
    Ok(lock)
}
