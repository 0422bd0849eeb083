//! `atoll kept`: the changes that runs of a profile keep from one to the next, reviewed and applied
//! apart from the changes of any one run.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atoll_engine::changes::{self, LayerChanges};
use atoll_engine::configuration::Places;
use atoll_engine::decision::last_undo::is_half_done;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::is_taken_over;
use atoll_layer::{
    AfterTree, DiffOptions, IdShift, JournalState, LayerPaths, RelativePath, journal_state,
    set_aside, write_diff,
};
use atoll_ledger::{Asked, Durability, Ledger, StateDir, host_text};
use atoll_sandbox::IDS;
use atoll_store::{
    KeptError, KeptLayer, KeptName, KeptRecord, LayerHow, LayerKind, LayerRecord, list_kept,
};
use serde_json::{Value, json};

use crate::arguments::{DiffKeptArguments, KeptAction, KeptArguments};
use crate::diff::{changes_json, page, refused_there, write_stat};
use crate::output::Output;

mod applying;
mod listed;
mod undoing;

use applying::apply_kept;
use listed::{known, list};
use undoing::undo_kept;

const UNRECORDED: &str = "the decision could not be recorded";

/// Carries one of the commands out.
pub fn kept(arguments: &KeptArguments, output: &Output) -> Result<u8, Failure> {
    match &arguments.action {
        None => list(arguments.json, output),
        Some(KeptAction::List(arguments)) => list(arguments.json, output),
        Some(KeptAction::Diff(arguments)) => diff(arguments, output),
        Some(KeptAction::Apply(arguments)) => apply_kept(arguments, output),
        Some(KeptAction::Undo(arguments)) => undo_kept(arguments, output),
        Some(KeptAction::Discard(arguments)) => discard(&arguments.name, output),
    }
}

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
struct Opened {
    layer: KeptLayer,
    record: KeptRecord,
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
        Ok(Some(Self { layer, record }))
    }

    /// Reads the differences from the host's directory: those the next run sees, then those pending
    /// review.
    fn changes(&self) -> Result<Vec<LayerChanges>, Failure> {
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
            Part::Aside => read.set.classify_aside(),
        }
        Ok(read)
    }

    /// Returns the path of the next apply's journal.
    fn next_journal(&self) -> Result<PathBuf, Failure> {
        let directory = self.layer.journals();
        std::fs::create_dir_all(&directory).doing("the journal cannot be made")?;
        Ok(directory.join(journals(&self.layer).len().to_string()))
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
fn journals(layer: &KeptLayer) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(layer.journals());
    let numbered = entries.into_iter().flatten().flatten().filter_map(|entry| {
        let number: u64 = entry.file_name().to_str()?.parse().ok()?;
        Some((number, entry.path()))
    });
    let mut numbered: Vec<(u64, PathBuf)> = numbered.collect();
    numbered.sort();
    numbered.into_iter().map(|(_, path)| path).collect()
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
fn meant(state: &StateDir, text: &str, output: &Output) -> Result<Vec<KeptName>, Failure> {
    let all = list_kept(state).doing("what is kept cannot be listed")?;
    if let Some((name, _)) = all.iter().find(|(name, _)| name.as_str() == text) {
        return Ok(vec![name.clone()]);
    }
    let known = known(state, output)?;
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

fn open_all(state: &StateDir, text: &str, output: &Output) -> Result<Vec<Opened>, Failure> {
    let names = meant(state, text, output)?;
    let opened = names.iter().map(|name| Opened::open(state, name));
    Ok(opened
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect())
}

fn diff(arguments: &DiffKeptArguments, output: &Output) -> Result<u8, Failure> {
    let state = writable()?;
    let mut told = Vec::new();
    let (mut text, mut refused) = (Vec::new(), String::new());
    for one in open_all(&state, &arguments.name, output)? {
        let all = one.changes()?;
        if arguments.json {
            let mut object = changes_json(&all);
            if let Some(members) = object.as_object_mut() {
                members.insert("name".to_owned(), json!(one.layer.name().as_str()));
                members.insert("profile".to_owned(), json!(one.record.profile));
            }
            told.push(object);
            continue;
        }
        refused.push_str(&refused_there(&all, &[]));
        for part in &all {
            if arguments.stat {
                write_stat(part, &part.set, &[], output, &mut text);
                continue;
            }
            let options = DiffOptions {
                place: changes::place_of(part),
                colour: output.paint.is_on(),
                ..DiffOptions::default()
            };
            write_diff(&part.paths, &part.set, &[], &mut text, &options)
                .doing("no diff could be made")?;
        }
    }
    if arguments.json {
        output.json(&json!(told));
        return Ok(0);
    }
    if text.is_empty() {
        output.say("Nothing there differs from what is outside.\n");
    } else if arguments.no_pager || !output.is_terminal {
        output.result(&String::from_utf8_lossy(&text));
    } else {
        page(&text, output);
    }
    output.say(&refused);
    Ok(0)
}

/// Opens the state for writing, if there is any.
fn writable() -> Result<StateDir, Failure> {
    let places = Places::read()?;
    places.read_state()?;
    places.open_state()
}

fn discard(text: &str, output: &Output) -> Result<u8, Failure> {
    let state = writable()?;
    let ledger = atoll_engine::events::open_ledger(&state)?;
    for name in meant(&state, text, output)? {
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
        let was_applied = journals(&layer).iter().any(|journal| {
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
        output.say(&match was_applied {
            false => format!("{name} is discarded.\n"),
            true => format!(
                "{name} is discarded; what was applied of it can no longer be taken back.\n"
            ),
        });
    }
    Ok(0)
}
