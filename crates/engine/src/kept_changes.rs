//! The changes that runs keep for later ones: read, applied, undone, discarded.

mod applying;
mod undoing;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atoll_layer::{
    AfterTree, IdShift, JournalState, LayerPaths, RelativePath, journal_state, set_aside,
};
use atoll_ledger::{Asked, Durability, Ledger, StateDir, host_text};
use atoll_sandbox::IDS;
use atoll_store::{
    DiskUsage, KeptError, KeptLayer, KeptName, KeptRecord, LayerHow, LayerKind, LayerRecord,
    list_kept,
};
use serde_json::{Value, json};

use crate::changes::{self, LayerChanges};
use crate::configuration::Places;
use crate::decision::last_undo::is_half_done;
use crate::failure::{Doing, Failure};
use crate::journals::numbered;
use crate::login::is_taken_over;
use crate::notice::Notices;
pub use applying::apply_kept;
pub use undoing::{Undoing, foresee, take_undo_back_of, undo_kept};

const UNRECORDED: &str = "the decision could not be recorded";

/// The part of a directory's kept changes.
#[derive(Clone, Copy)]
enum Part {
    /// The changes the next run sees: only history.
    Seen,
    /// The changes no run sees until a person has applied them.
    Aside,
}

impl Part {
    /// Both parts, in the order in which they are shown and applied.
    const ALL: [Self; 2] = [Self::Seen, Self::Aside];
}

/// A kept layer that no run uses now.
pub struct Opened {
    /// The layer.
    pub layer: KeptLayer,
    /// The layer's record.
    pub record: KeptRecord,
    put_back: PathBuf,
}

impl Opened {
    /// Opens a layer, after sorting out what an interrupted run has left.
    fn open(state: &StateDir, name: &KeptName) -> Result<Option<Self>, Failure> {
        let layer = match KeptLayer::open(state, name) {
            Err(error @ KeptError::InUse(_)) => {
                return Err(Failure::new(error.to_string()).advise("atoll runs lists what goes on"));
            }
            opened => opened.doing("what is kept cannot be used")?,
        };
        let Some(record) = layer.record().doing("what is kept cannot be used")? else {
            return Ok(None);
        };
        layer.furnish().doing("what is kept cannot be used")?;
        let logins = paths_of(&record, &layer.upper());
        set_aside(&layer.upper(), &layer.aside(), &record.host, &logins)
            .doing("what is kept cannot be looked at")?;
        let put_back = changes::put_back_file(state, &record.host);
        Ok(Some(Self {
            layer,
            record,
            put_back,
        }))
    }

    /// Reads the differences from the host's directory: those the next run sees, then those pending
    /// review.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn changes(&self) -> Result<Vec<LayerChanges>, Failure> {
        Part::ALL.into_iter().map(|part| self.read(part)).collect()
    }

    fn read(&self, part: Part) -> Result<LayerChanges, Failure> {
        let upper = match part {
            Part::Seen => self.layer.upper(),
            Part::Aside => self.layer.aside(),
        };
        let record = &self.record;
        let layer = LayerRecord {
            name: self.layer.name().to_string(),
            host: record.host.clone(),
            inside: record.inside.clone(),
            kind: LayerKind::Home,
            how: LayerHow::Overlay {
                xattrs: record.xattrs,
            },
            upper: upper.clone(),
            since: record.since,
            shared: true,
            // What is set aside of settings has no keys.
            logins: match part {
                Part::Seen => record.logins.clone(),
                Part::Aside => other_than_settings(record),
            },
            settings: Vec::new(),
            worktree: None,
        };
        let (seconds, nanoseconds) = record.since;
        let since = Duration::new(u64::try_from(seconds).unwrap_or_default(), nanoseconds);
        let paths = LayerPaths {
            put_back: Some(self.put_back.clone()),
            before: record.host.clone(),
            after: AfterTree::Overlay {
                work: upper.with_file_name("work"),
                upper,
                xattrs: changes::flavour(record.xattrs),
            },
            since: SystemTime::UNIX_EPOCH + since,
            ids: record
                .base
                .map_or(IdShift::None, |base| IdShift::Base { base, count: IDS }),
        };
        let mut read = changes::read_at_rest(layer, paths)?;
        match part {
            Part::Seen => {}
            Part::Aside => read.set.classify_pending_review(),
        }
        Ok(read)
    }

    /// Returns the path of the next apply's journal.
    fn next_journal(&self) -> Result<PathBuf, Failure> {
        let directory = self.layer.journals();
        std::fs::create_dir_all(&directory).doing("the journal cannot be made")?;
        Ok(directory.join(journals(&self.layer)?.len().to_string()))
    }

    /// Counts only differences on the host from this time on as somebody else's changes.
    fn forget_conflicts(&mut self, now: SystemTime) -> Result<(), Failure> {
        self.record.since = since(now);
        self.layer
            .write(&self.record, Durability::Buffered)
            .doing("what is kept cannot be noted")
    }

    /// Records a decision, on disk before it returns.
    fn tell(&self, ledger: &Ledger, kind: &str, body: Value) -> Result<(), Failure> {
        let recorded = ledger.record(None, kind, self.named(body), Durability::Durable);
        recorded.map(drop).doing(UNRECORDED)
    }

    /// Records an approval question and what came of it.
    fn tell_question(&self, ledger: &Ledger, step: Asked, body: Value) -> Result<(), Failure> {
        let recorded = ledger.record_question(None, step, &self.named(body));
        recorded.map(drop).doing(UNRECORDED)
    }

    /// Adds the names of the layer, the profile and the directory.
    fn named(&self, mut body: Value) -> Value {
        if let Some(members) = body.as_object_mut() {
            members.insert("layer".to_owned(), json!(self.layer.name().as_str()));
            members.insert("profile".to_owned(), json!(self.record.profile));
            members.insert("directory".to_owned(), host_text(&self.record.host));
        }
        body
    }
}

/// Returns a time as a record holds it.
fn since(time: SystemTime) -> (i64, u32) {
    let time = time.duration_since(SystemTime::UNIX_EPOCH);
    let time = time.unwrap_or_default();
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    (seconds, time.subsec_nanos())
}

/// Returns the journals of a layer's applies, oldest first.
fn journals(layer: &KeptLayer) -> Result<Vec<PathBuf>, Failure> {
    numbered(&layer.journals(), "")
}

/// Login files of a layer, as paths in it, whose places are nobody's to keep.
fn paths_of(record: &KeptRecord, upper: &Path) -> Vec<RelativePath> {
    let is_own = |name: &&OsString| !is_taken_over(&record.settings, upper, name);
    let path = |name: &OsString| RelativePath::new(name.as_bytes()).ok();
    record
        .logins
        .iter()
        .filter(is_own)
        .filter_map(path)
        .collect()
}

fn other_than_settings(record: &KeptRecord) -> Vec<OsString> {
    let is_other = |name: &&OsString| {
        let mut settings = record.settings.iter();
        settings.all(|one| one.name.as_os_str() != name.as_os_str())
    };
    record.logins.iter().filter(is_other).cloned().collect()
}

/// Finds the layers for an argument: one by its name, or all of a profile's.
fn meant(state: &StateDir, text: &str, notices: &dyn Notices) -> Result<Vec<KeptName>, Failure> {
    let all = list_kept(state).doing("what is kept cannot be listed")?;
    if let Some((name, _)) = all.iter().find(|(name, _)| name.as_str() == text) {
        return Ok(vec![name.clone()]);
    }
    let known = known(state, notices)?;
    let by_profile = known.iter().filter(|(_, record, _)| record.profile == text);
    let by_profile: Vec<KeptName> = by_profile.map(|(name, ..)| name.clone()).collect();
    if !by_profile.is_empty() {
        return Ok(by_profile);
    }
    Err(Failure::new(format!(
        "nothing is kept for a profile or by a name {text:?}"
    ))
    .advise("atoll kept lists what is"))
}

/// Opens the layers for an argument: one by its name, or all of a profile's.
///
/// # Errors
/// When there are none, or one is in use.
pub fn open_all(
    state: &StateDir,
    text: &str,
    notices: &dyn Notices,
) -> Result<Vec<Opened>, Failure> {
    let names = meant(state, text, notices)?;
    let opened = names.iter().map(|name| Opened::open(state, name));
    Ok(opened
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect())
}

/// Opens the state for writing, if there is any.
///
/// # Errors
/// When there is none.
pub fn writable() -> Result<StateDir, Failure> {
    let places = Places::read()?;
    places.read_state()?;
    places.open_state()
}

/// Discards what is kept for an argument. `done` takes each name that is discarded, and whether
/// something of it was applied, which can no longer be undone.
///
/// # Errors
/// When it is in use, or its removal cannot be recorded.
pub fn discard(
    text: &str,
    notices: &dyn Notices,
    mut done: impl FnMut(&KeptName, bool),
) -> Result<(), Failure> {
    let state = writable()?;
    let ledger = crate::events::open_ledger(&state)?;
    for name in meant(&state, text, notices)? {
        // What cannot be read is thrown away, too.
        let layer = match KeptLayer::open(&state, &name) {
            Err(KeptError::Missing(_)) => continue,
            opened => opened.doing("what is kept cannot be discarded")?,
        };
        if is_half_done(&layer.journals())? {
            return Err(
                Failure::new(format!("an apply or undo of {name} was cut short"))
                    .because("what it has set aside is nowhere else")
                    .advise(format!("atoll kept undo {name} takes it back")),
            );
        }
        // What was overwritten outside lies beside the layer, and goes with it.
        let was_applied = journals(&layer)?.iter().any(|journal| {
            let state = journal_state(journal);
            matches!(state, Ok(JournalState::Done | JournalState::Interrupted))
        });
        let body = json!({ "layer": name.as_str() });
        ledger
            .record(None, "kept.discarded", body, Durability::Durable)
            .doing(UNRECORDED)?;
        layer
            .remove(&state)
            .doing("what is kept cannot be discarded")?;
        done(&name, was_applied);
    }
    Ok(())
}

/// Returns all readable kept changes.
///
/// # Errors
/// When they cannot be listed.
pub fn known(
    state: &StateDir,
    notices: &dyn Notices,
) -> Result<Vec<(KeptName, KeptRecord, DiskUsage)>, Failure> {
    let mut known = Vec::new();
    for (name, read) in list_kept(state).doing("what is kept cannot be listed")? {
        match read {
            Ok((record, usage)) => known.push((name, record, usage)),
            Err(error) => notices.warn(error.to_string()),
        }
    }
    Ok(known)
}
