//! The entries that Atoll has put back, since when nobody else has changed each, and when it was
//! taken away: to whoever has begun with it before that, it is as it was. That it was
//! put back has moved an entry's change time on, and is no conflict for what is applied next. Of
//! the directories around it nothing is known: somebody else may have changed names there too.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::RelativePath;
use crate::facts::{Facts, Stamp, Time};
use crate::journal::{BUFFER_BYTES, Journal, Results, read_json};
use crate::path::Bytes;
use crate::steps::Steps;
use crate::tree::{Tree, os};

/// The most entries of one directory that are known: of more, the next apply may meet a conflict.
const ENTRIES_MAX: usize = 200_000;

/// The entries put back in one directory, by path.
#[derive(Debug, Default)]
pub(crate) struct PutBack(HashMap<RelativePath, Known>);

/// An entry as it was put back.
#[derive(Clone, Copy, Debug)]
struct Known {
    stamp: Stamp,
    /// The last change by anybody else.
    changed: Time,
    /// The time from which something else stood there, until it was put back.
    away: Time,
}

/// An entry in the record.
type Row = (RelativePath, Stamp, Time, Time);

impl PutBack {
    /// Reads the record. Without one, or where it cannot be read, nothing is known to be put back.
    pub fn read(file: Option<&Path>) -> Self {
        let all: Option<Vec<Row>> = file.and_then(|file| read_json(file).ok());
        let known = |(path, stamp, changed, away)| {
            let known = Known {
                stamp,
                changed,
                away,
            };
            (path, known)
        };
        Self(all.into_iter().flatten().map(known).collect())
    }

    /// Returns the last change of an entry by anybody but Atoll, as it matters to what was based on
    /// the entry at a time.
    pub fn changed(&self, path: &RelativePath, now: &Stamp, based: Option<SystemTime>) -> Time {
        let known = self.0.get(path).filter(|known| known.stamp == *now);
        let known = known.filter(|known| based.is_some_and(|at| at < known.away.system()));
        known.map_or(now.changed, |known| known.changed)
    }

    fn write(&self, file: &Path) -> io::Result<()> {
        let all: Vec<(&RelativePath, Stamp, Time, Time)> = self
            .0
            .iter()
            .take(ENTRIES_MAX)
            .map(|(path, known)| (path, known.stamp, known.changed, known.away))
            .collect();
        let fresh = file.with_extension("new");
        if let Some(directory) = file.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(true).write(true).mode(0o600);
        let mut written = BufWriter::with_capacity(BUFFER_BYTES, options.open(&fresh)?);
        serde_json::to_writer(&mut written, &all)?;
        written.flush()?;
        std::fs::rename(&fresh, file)
    }
}

/// Notes the originals that a journal's rollback or undo, named `within`, has put back. Whoever
/// cannot note them meets a conflict later, and nothing else.
pub(crate) fn note(journal: &Journal, within: &str) {
    let _ = note_all(journal, within);
}

fn note_all(journal: &Journal, within: &str) -> Option<()> {
    let (work, steps) = Steps::read(journal.path()).ok()?;
    let file = PathBuf::from(os(&work.put_back.as_ref()?.0));
    let tree = Tree::open(Path::new(os(&work.root.0))).ok()?;
    let root = Facts::from(&rustix::fs::fstat(tree.root()).ok()?);
    if root.identity() != work.root_identity {
        return None;
    }
    let away = work.begun?;
    let mut known = PutBack::read(Some(&file));
    let made = made(&journal.within(within)).unwrap_or_default();
    let stamp_at = |path: &RelativePath| Some(tree.facts(path).ok()??.stamp());
    for step in steps.iter() {
        let (_, step) = step.ok()?;
        for entry in step.found_entries() {
            let path = step.path.concat(&entry.beneath);
            let (Some(then), Some(now)) = (entry.stamp, stamp_at(&path)) else {
                continue;
            };
            // Named as before, or made anew by the rollback. In a directory that was only given
            // other permissions somebody may have changed names.
            let is_itself = then.holds_after_rename(&now) && then.modified == now.modified;
            if is_itself || made.get(&path) == Some(&now) {
                known.add(path, then, now, away);
            }
        }
    }
    known.write(&file).ok()
}

impl PutBack {
    fn add(&mut self, path: RelativePath, then: Stamp, stamp: Stamp, away: Time) {
        // One that had been put back before was away from the first time on.
        let first = self.0.get(&path).filter(|known| known.stamp == then);
        let (changed, away) = first.map_or((then.changed, away), |one| (one.changed, one.away));
        let known = Known {
            stamp,
            changed,
            away,
        };
        self.0.insert(path, known);
    }
}

/// Returns the entries that a nested journal has made, as it left them.
fn made(within: &Path) -> Option<HashMap<RelativePath, Stamp>> {
    let (_, steps) = Steps::read(within).ok()?;
    let results: Results = read_json(&within.join("results.json")).ok()?;
    let mut made = HashMap::new();
    for (step, stamps) in steps.iter().zip(results.steps) {
        let (_, step) = step.ok()?;
        let stamps = Vec::from(stamps).into_iter();
        made.extend(stamps.map(|(beneath, stamp)| (step.path.concat(&beneath), stamp)));
    }
    Some(made)
}

/// Returns a record's path in the form of journals.
pub(crate) fn recorded(file: Option<&Path>) -> Option<Bytes> {
    file.map(|file| Bytes(crate::tree::path_bytes(file)))
}
