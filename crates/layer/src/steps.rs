//! The plan of a journal: its work and the steps, a line each. Steps are written and read one at a
//! time, so that memory does not grow with their number and size.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::mem;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::journal::{BUFFER_BYTES, Journal, Work, failed};
use crate::plan::{Content, Entry, Node};
use crate::{ApplyError, RelativePath, Step};

/// The name of a journal's plan.
const PLAN: &str = "plan.jsonl";

/// The steps of a journal, in the order in which they are done.
#[derive(Debug)]
pub(crate) struct Steps {
    file: File,
    path: PathBuf,
    /// The place of each step in the file, and that of the totals.
    places: Vec<u64>,
    pub totals: Totals,
}

/// The sums over all steps: the last line of a plan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Totals {
    pub steps: u64,
    /// The entries that are replaced.
    pub old: u64,
    /// The entries that are written.
    pub new: u64,
    /// The bytes of their content.
    pub bytes: u64,
    /// Set when some content comes from the layer (or checkpoint).
    pub is_of_layer: bool,
    /// Set when some content comes from the layer's work directory.
    pub is_of_index: bool,
}

impl Totals {
    fn add(&mut self, step: &Step) {
        let (old, new) = (step.old_entries(), step.new_entries());
        self.steps += 1;
        self.old += old.len() as u64;
        self.new += new.len() as u64;
        self.bytes += new.iter().map(Entry::bytes).sum::<u64>();
        for entry in new {
            if let Node::File { content, .. } = &entry.node {
                self.is_of_layer |= matches!(content, Content::Layer(_));
                self.is_of_index |= matches!(content, Content::Indexed(_));
            }
        }
    }
}

impl Steps {
    /// Reads the plan of a journal.
    pub fn read(journal: &Path) -> Result<(Work, Self), ApplyError> {
        let path = journal.join(PLAN);
        let unread = |error| failed("cannot read", &path, error);
        let file = File::open(&path).map_err(unread)?;
        let mut lines = BufReader::with_capacity(BUFFER_BYTES, &file);
        let mut line = Vec::new();
        let mut at = lines.read_until(b'\n', &mut line).map_err(unread)?;
        let work = parse(&path, &line)?;
        let mut places = Vec::new();
        let mut next = Vec::new();
        loop {
            next.clear();
            let bytes = lines.read_until(b'\n', &mut next).map_err(unread)?;
            if bytes == 0 {
                break;
            }
            places.push(at as u64);
            at += bytes;
            mem::swap(&mut line, &mut next);
        }
        let totals: Totals = parse(&path, &line)?;
        if totals.steps + 1 != places.len() as u64 {
            return Err(damaged(&path, "steps are missing"));
        }
        places.shrink_to_fit();
        let steps = Self {
            file,
            path: path.clone(),
            places,
            totals,
        };
        Ok((work, steps))
    }

    pub fn len(&self) -> usize {
        self.places.len().saturating_sub(1)
    }

    /// Reads one step.
    pub fn get(&self, index: usize) -> Result<Step, ApplyError> {
        let place = |index: usize| self.places.get(index).copied().unwrap_or_default();
        let (from, to) = (place(index), place(index + 1));
        let mut line = vec![0; to.saturating_sub(from) as usize];
        let read = self.file.read_exact_at(&mut line, from);
        read.map_err(|error| failed("cannot read", &self.path, error))?;
        parse(&self.path, &line)
    }

    /// Reads one step after the other, each with its index.
    pub fn iter(&self) -> impl Iterator<Item = Result<(usize, Step), ApplyError>> {
        (0..self.len()).map(|index| Ok((index, self.get(index)?)))
    }
}

/// The plan of a journal that is being written.
pub(crate) struct PlanWriter {
    journal: Journal,
    work: Work,
    file: BufWriter<File>,
    fresh: PathBuf,
    at: u64,
    places: Vec<u64>,
    totals: Totals,
}

impl PlanWriter {
    pub fn begin(journal: Journal, work: Work) -> Result<Self, ApplyError> {
        let fresh = journal.path().join(PLAN).with_extension("new");
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(true).read(true).write(true);
        let file = options.mode(0o600).open(&fresh);
        let file = file.map_err(|error| failed("cannot write", &fresh, error))?;
        let mut writer = Self {
            journal,
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            fresh,
            at: 0,
            places: Vec::new(),
            totals: Totals::default(),
            work,
        };
        let work = serde_json::to_vec(&writer.work);
        writer.line(work)?;
        Ok(writer)
    }

    pub fn push(&mut self, step: &Step) -> Result<(), ApplyError> {
        self.places.push(self.at);
        self.totals.add(step);
        self.line(serde_json::to_vec(step))
    }

    /// Returns whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Makes the plan durable, and gives it its name.
    pub fn finish(mut self) -> Result<(Journal, Work, Steps), ApplyError> {
        self.places.push(self.at);
        self.places.shrink_to_fit();
        self.line(serde_json::to_vec(&self.totals))?;
        let path = self.journal.path().join(PLAN);
        let unwritten = |error| failed("cannot write", &path, error);
        let file = self.file.into_inner();
        let file = file.map_err(|error| unwritten(error.into_error()))?;
        file.sync_all().map_err(unwritten)?;
        self.journal
            .replace(&self.fresh, &path)
            .map_err(unwritten)?;
        let steps = Steps {
            file,
            path: path.clone(),
            places: self.places,
            totals: self.totals,
        };
        Ok((self.journal, self.work, steps))
    }

    fn line(&mut self, line: serde_json::Result<Vec<u8>>) -> Result<(), ApplyError> {
        let write = || -> io::Result<u64> {
            let line = line?;
            self.file.write_all(&line)?;
            self.file.write_all(b"\n")?;
            Ok(line.len() as u64 + 1)
        };
        self.at += write().map_err(|error| failed("cannot write", &self.fresh, error))?;
        Ok(())
    }
}

/// Returns whether an apply with this journal was to write at a path or beneath it. Nothing is
/// opened or locked; false for a journal that cannot be read.
#[must_use]
pub fn has_written(journal: &Path, path: &RelativePath) -> bool {
    Steps::read(journal).is_ok_and(|(_, steps)| {
        let mut writes = steps.iter().flatten().flat_map(|(_, step)| step.writes());
        writes.any(|write| write.path.starts_with(path))
    })
}

fn parse<T: DeserializeOwned>(path: &Path, line: &[u8]) -> Result<T, ApplyError> {
    serde_json::from_slice(line).map_err(|error| damaged(path, &error.to_string()))
}

fn damaged(path: &Path, why: &str) -> ApplyError {
    ApplyError::Damaged {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}
