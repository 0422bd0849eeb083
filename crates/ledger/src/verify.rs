use std::fmt::Write as _;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::event::{Event, LOST, LineFault, split_line};
use crate::hash::Frontier;
use crate::head::{FoundHead, HEAD, Head};
use crate::journal::hold_for_reading;
use crate::lines::{Line, LineContent, Lines};
use crate::read::read_line;
use crate::remains::Remains;
use crate::scan::{Scanned, scan};
use crate::segment::{list_segments, segment_name};
use crate::state::LEDGER;
use crate::verify_report::{Damage, Place, Severity, Verified, VerifyError, VerifyReport};
use crate::wanted::{Against, Wanted};
use crate::{FileFault, LedgerError, StateDir, TreeHash};

/// The most pieces of damage that are described; more are only counted.
const DAMAGE_MAX: usize = 100;

const REPAIRED: &str = "ledger.repaired";

pub(crate) fn verify(state: &StateDir, against: &Against) -> Result<Verified, VerifyError> {
    let path = state.path().join(LEDGER);
    let directory = match state.subdirectory(LEDGER, false) {
        Ok(directory) => Some(directory),
        Err(fault) if fault.is_not_found() => None,
        Err(fault) => return Err(LedgerError::from(fault).into()),
    };
    // Head and checkpoints come first: events that follow meanwhile are not missed then.
    let head = read_head(directory.as_ref(), &path)?;
    let wanted = Wanted::read(state, directory.as_ref(), &path, against)?;
    let mut check = Check::new(path, directory, head, wanted);
    check.remains = remains(state, check.directory.as_ref(), &check.path)?;
    let mut lines = Lines::from(state, 1, 0).map_err(LedgerError::from)?;
    check.all(&mut lines)?;
    if lines.place().2 > 0 {
        // Perhaps an append is half done. With the lock held there is none.
        let _held = check
            .directory
            .as_ref()
            .map(|directory| hold_for_reading(directory, &check.path))
            .transpose()?;
        check.all(&mut lines)?;
    }
    let (_, _, unfinished_bytes) = lines.place();
    check.finish(unfinished_bytes)
}

/// Counts the remains that only a ledger can have caused, if there is no segment.
fn remains(
    state: &StateDir,
    directory: Option<&OwnedFd>,
    path: &Path,
) -> Result<Remains, LedgerError> {
    let segments = match directory {
        Some(directory) => list_segments(directory, path)?.len(),
        None => 0,
    };
    if segments > 0 {
        return Ok(Remains::default());
    }
    let all = Remains::all(state)?;
    // Looked at after: whoever begins one meanwhile makes a head before anything else.
    Ok(match read_head(directory, path)? {
        FoundHead::Missing => all,
        FoundHead::Sound(_) | FoundHead::Garbled => Remains::runs(state),
    })
}

/// Reads the head. One that is just being overwritten can look garbled, so it is read again while
/// nobody writes.
fn read_head(directory: Option<&OwnedFd>, path: &Path) -> Result<FoundHead, LedgerError> {
    let Some(directory) = directory else {
        return Ok(FoundHead::Missing);
    };
    match Head::read(directory, path)? {
        FoundHead::Garbled => {
            let _held = hold_for_reading(directory, path)?;
            Ok(Head::read(directory, path)?)
        }
        found => Ok(found),
    }
}

/// The state of a verification so far.
struct Check {
    path: PathBuf,
    directory: Option<OwnedFd>,
    head: FoundHead,
    frontier: Frontier,
    /// The number that the next event must have.
    next_seq: u64,
    /// The hashes that the next event may name as its predecessor; empty if unknown.
    predecessors: Vec<TreeHash>,
    last_leaf: TreeHash,
    segment: u32,
    line: u64,
    segments: u64,
    bytes: u64,
    torn: u64,
    sound: u64,
    damage: Vec<Damage>,
    more: u64,
    /// The first events that record the loss of the key, as many as are reported.
    keys_lost: Vec<u64>,
    /// The remains of a ledger that is not there.
    remains: Remains,
    /// The roots that were signed of it.
    wanted: Wanted,
}

impl Check {
    fn new(path: PathBuf, directory: Option<OwnedFd>, head: FoundHead, mut wanted: Wanted) -> Self {
        let mut damage = std::mem::take(&mut wanted.damage);
        damage.extend(wanted.compare(0, TreeHash::of_nothing()));
        let more = damage.len().saturating_sub(DAMAGE_MAX) as u64;
        damage.truncate(DAMAGE_MAX);
        Self {
            path,
            directory,
            head,
            frontier: Frontier::default(),
            next_seq: 0,
            predecessors: vec![TreeHash::ZERO],
            last_leaf: TreeHash::ZERO,
            segment: 0,
            line: 0,
            segments: 0,
            bytes: 0,
            torn: 0,
            sound: 0,
            damage,
            more,
            keys_lost: Vec::new(),
            remains: Remains::default(),
            wanted,
        }
    }

    fn all(&mut self, lines: &mut Lines) -> Result<(), LedgerError> {
        while let Some(line) = lines.next_line()? {
            self.one(&line)?;
        }
        Ok(())
    }

    fn one(&mut self, line: &Line<'_>) -> Result<(), LedgerError> {
        if line.segment != self.segment {
            if line.segment != self.segment + 1 {
                let what = format!(
                    "missing: segments {} to {} are gone",
                    self.segment + 1,
                    line.segment - 1
                );
                let place = Place::file(segment_name(self.segment + 1));
                self.found(place, what, Severity::Lost);
            }
            self.segment = line.segment;
            self.segments += 1;
            self.line = 0;
        }
        self.line += 1;
        if let LineContent::Complete(bytes) = line.content
            && let Ok((leaf, event)) = split_line(bytes)
            && let Some(scanned) = scan(event)
            && TreeHash::of_leaf(event) == leaf
            && scanned.kind != REPAIRED
        {
            self.sound_line(&scanned, leaf, line);
            return Ok(());
        }
        match read_line(line) {
            Ok(event) => {
                if event.kind == REPAIRED {
                    self.repair(&event, &self.place_of(line))?;
                }
                self.sound_line(&Scanned::of(&event), event.position.leaf, line);
            }
            Err(fault) => self.unsound_line(line, &fault),
        }
        Ok(())
    }

    fn place_of(&self, line: &Line<'_>) -> Place {
        Place {
            file: segment_name(line.segment),
            line: Some(self.line),
            byte: Some(line.offset),
        }
    }

    fn unsound_line(&mut self, line: &Line<'_>, fault: &LineFault) {
        let place = self.place_of(line);
        self.found(place, fault.to_string(), Severity::Altered);
        self.next_seq += 1;
        self.predecessors = possible_leaves(line);
    }

    fn sound_line(&mut self, event: &Scanned<'_>, leaf: TreeHash, line: &Line<'_>) {
        let line_bytes = match line.content {
            LineContent::Complete(bytes) => bytes.len() as u64 + 1,
            LineContent::Unfinished(bytes) | LineContent::TooLong(bytes) => bytes,
        };
        let expected = self.next_seq;
        if event.seq > expected {
            let what = format!("events {expected} to {} are missing before", event.seq - 1);
            self.found(self.place_of(line), what, Severity::Lost);
        } else if event.seq < expected {
            let what = format!(
                "event {} stands where event {expected} should be",
                event.seq
            );
            self.found(self.place_of(line), what, Severity::Altered);
        } else if !self.predecessors.is_empty() && !self.predecessors.contains(&event.prev) {
            let what = format!("event {expected} does not continue the event before it");
            self.found(self.place_of(line), what, Severity::Altered);
        }
        self.compare_with_head(event.seq, leaf, line, line_bytes);
        if event.kind == LOST && self.keys_lost.len() < DAMAGE_MAX {
            self.keys_lost.push(event.seq);
        }
        self.next_seq = event.seq + 1;
        self.predecessors.clear();
        self.predecessors.push(leaf);
        self.last_leaf = leaf;
        self.frontier.push(leaf);
        self.bytes += line_bytes;
        self.sound += 1;
        self.compare_with_signed();
    }

    /// Compares the root with the signed ones. Only while no event is missing or unsound: otherwise
    /// there is no root to compare, and the damage is reported already.
    fn compare_with_signed(&mut self) {
        if self.sound == self.next_seq && self.wanted.names(self.sound) {
            let differing = self.wanted.compare(self.sound, self.frontier.root());
            self.found_all(differing);
        }
    }

    fn found_all(&mut self, all: Vec<Damage>) {
        for Damage {
            place,
            what,
            severity,
        } in all
        {
            self.found(place, what, severity);
        }
    }

    fn compare_with_head(&mut self, seq: u64, leaf: TreeHash, line: &Line<'_>, line_bytes: u64) {
        let FoundHead::Sound(head) = &self.head else {
            return;
        };
        if seq + 1 != head.size {
            return;
        }
        let agrees = leaf == head.leaf
            && line.segment == head.segment
            && line.offset + line_bytes == head.bytes;
        if !agrees {
            let what =
                format!("event {seq} is another than the one that the head names as acknowledged");
            self.found(self.place_of(line), what, Severity::Altered);
        }
    }

    /// Counts a torn line, or reports the damage, that an earlier append found and recorded in this
    /// event; checks the file that was set aside.
    fn repair(&mut self, event: &Event, place: &Place) -> Result<(), LedgerError> {
        let cause = event.body.get("cause").and_then(Value::as_str);
        if cause == Some("torn") {
            self.torn += 1;
        } else {
            let what = format!(
                "damage found and recorded at {}: {}",
                event.time, event.body
            );
            self.found(place.clone(), what, Severity::Recorded);
        }
        let Some(aside) = event.body.get("set_aside") else {
            return Ok(());
        };
        let named = |member: &str| aside.get(member).and_then(Value::as_str).unwrap_or("");
        let (file, digest) = (named("file"), named("sha256"));
        let is_ours = file
            .strip_prefix("torn-")
            .is_some_and(|number| number.parse::<u32>().is_ok());
        let found = match &self.directory {
            Some(directory) if is_ours => digest_of(directory, &self.path, file)?,
            Some(_) | None => None,
        };
        match found {
            Some(found) if found == digest => {}
            Some(_) => {
                let what = "the bytes that were set aside here were altered".to_owned();
                self.found(Place::file(file.to_owned()), what, Severity::Altered);
            }
            None => {
                let what = "the bytes that were set aside here are gone".to_owned();
                self.found(Place::file(file.to_owned()), what, Severity::Lost);
            }
        }
        Ok(())
    }

    fn finish(mut self, unfinished_bytes: u64) -> Result<Verified, VerifyError> {
        let head_place = Place::file(HEAD.to_owned());
        // Appends made meanwhile have found it themselves.
        if !self.remains.is_empty() && self.next_seq == 0 {
            let what = format!(
                "the ledger is gone: what it told of is kept here ({})",
                self.remains
            );
            self.found(Place::file(segment_name(1)), what, Severity::Lost);
        }
        match &self.head {
            FoundHead::Sound(head) if head.size > self.next_seq => {
                let what = format!(
                    "{} events were acknowledged, but the ledger ends after {}",
                    head.size, self.next_seq
                );
                self.found(head_place, what, Severity::Lost);
            }
            FoundHead::Missing if self.next_seq > 0 => {
                let what = "the head is gone, so a cut of the end would not be seen".to_owned();
                self.found(head_place, what, Severity::Unprovable);
            }
            FoundHead::Garbled => {
                let what = "the head is garbled, so a cut of the end would not be seen".to_owned();
                self.found(head_place, what, Severity::Unprovable);
            }
            FoundHead::Sound(_) | FoundHead::Missing => {}
        }
        let beyond = self.wanted.beyond(self.next_seq);
        self.found_all(beyond);
        if let Some(seq) = self.keys_lost.last() {
            tell_of_lost_key(&mut self.damage, *seq);
        }
        if !self.damage.is_empty() {
            return Err(VerifyError::Damaged(VerifyReport {
                damage: self.damage,
                more: self.more,
                events: self.sound,
            }));
        }
        Ok(Verified {
            events: self.next_seq,
            root: self.frontier.root(),
            leaf: self.last_leaf,
            segments: self.segments,
            bytes: self.bytes,
            torn: self.torn,
            unfinished_bytes,
            checkpoint: self.wanted.own,
            witnessed: self.wanted.witnessed,
            keys_lost: self.keys_lost,
        })
    }

    fn found(&mut self, place: Place, what: String, severity: Severity) {
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(Damage {
                place,
                what,
                severity,
            });
        } else {
            self.more += 1;
        }
    }
}

/// Adds to the damage of foreign signatures that they may date from before the key was lost. It
/// excuses nothing: whoever has rewritten a ledger can record such a loss too.
fn tell_of_lost_key(damage: &mut [Damage], seq: u64) {
    let foreign = damage
        .iter_mut()
        .filter(|one| one.severity == Severity::Foreign);
    for one in foreign {
        let advice = match one.place.line {
            Some(_) => "this is of before: begin a new witness file",
            None => "check with the key that signs since then",
        };
        let _ = write!(one.what, "; the key was lost (event {seq}): {advice}");
    }
}

/// Returns the hashes that the event after an unsound line may name as its predecessor: the one
/// that the line claims and the one that it has, for either may have been altered. Empty if there
/// is neither.
fn possible_leaves(line: &Line<'_>) -> Vec<TreeHash> {
    match line.content {
        LineContent::Complete(bytes) => split_line(bytes)
            .map(|(claimed, event)| vec![claimed, TreeHash::of_leaf(event)])
            .unwrap_or_default(),
        LineContent::Unfinished(_) | LineContent::TooLong(_) => Vec::new(),
    }
}

fn digest_of(directory: impl AsFd, path: &Path, file: &str) -> Result<Option<String>, LedgerError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = match rustix::fs::openat(directory, file, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.map_err(FileFault::on("open", path.join(file)))?,
    };
    let mut reader = std::fs::File::from(opened);
    let mut digest = Sha256::new();
    let mut buffer = vec![0_u8; 64 << 10];
    loop {
        let count = reader
            .read(&mut buffer)
            .map_err(FileFault::on("read", path.join(file)))?;
        match buffer.get(..count) {
            Some(bytes) if !bytes.is_empty() => digest.update(bytes),
            _ => break,
        }
    }
    Ok(Some(crate::hash::hex(&digest.finalize())))
}
