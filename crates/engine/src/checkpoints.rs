//! Checkpoints of things outside of sandboxes: taken and recorded before an effect, settled after it,
//! and restored by a call that policies decide. A restore keeps what was there as a checkpoint of its
//! own, which takes the restore back.
//!
//! One checkpoint is a directory `<state>/checkpoints/ID`, with its record and one part for each of its
//! targets.

mod own;

use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use atoll_checkpoint::{Change, Left, Limits, Overwrite, Taken, Target};
use atoll_ledger::private::PrivateDirectory;
use atoll_ledger::{Durability, Ledger, StateDir, hex};
use atoll_model::{Action, Reason, RunId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure::{Doing, Failure};
use crate::promotion::outside::Outside;
use crate::run::new_run_id;

/// The directory of all checkpoints, in the state directory.
const CHECKPOINTS: &str = "checkpoints";
const RECORD: &str = "record.json";
/// The most checkpoints of a run or a session, and the most bytes of their targets.
const CHECKPOINTS_MAX: usize = 1_000;
const BYTES_MAX: u64 = 64 << 30;
/// The bytes of randomness in an id.
const ID_BYTES: usize = 5;

/// The record of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Its id: hexadecimal digits.
    pub id: String,
    /// The time, milliseconds since 1970.
    pub at_ms: u64,
    /// The reason why it was taken, as `tool pay`.
    pub why: String,
    /// The run, or the session of tools, before whose effect it was taken; one of its own where a person
    /// took it.
    pub run: RunId,
    /// The number of the tool's call in the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<u32>,
    /// The checkpoint whose restore it takes back, if it is one of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
    /// Its targets.
    pub targets: Vec<Target>,
    /// False until all of its parts are there: it was cut short then.
    pub whole: bool,
    /// The size of its targets, bytes.
    #[serde(default)]
    pub bytes: u64,
}

/// A checkpoint to take.
pub struct Taking<'a> {
    /// The targets.
    pub targets: &'a [Target],
    /// The reason.
    pub why: String,
    /// The run or session whose effect follows; `None` where a person takes it.
    pub run: Option<&'a RunId>,
    /// The number of the tool's call.
    pub call: Option<u32>,
}

/// A change since a checkpoint, with the target that it is in.
pub struct Changed {
    /// The target.
    pub target: Target,
    /// The change.
    pub change: Change,
}

/// The outcome of a restore.
#[derive(Debug, Default)]
pub struct Restored {
    /// The checkpoint that takes the restore back; `None` where nothing was changed.
    pub kept: Option<Checkpoint>,
    /// The targets, with the names of what was restored in each.
    pub restored: Vec<(Target, Vec<String>)>,
    /// Everything that was left alone.
    pub left: Vec<(Target, Left)>,
}

impl Restored {
    fn add(&mut self, target: &Target, done: atoll_checkpoint::Restored) {
        if !done.restored.is_empty() {
            self.restored.push((target.clone(), done.restored));
        }
        let left = done.left.into_iter();
        self.left.extend(left.map(|left| (target.clone(), left)));
    }
}

/// The checkpoints of a state directory.
#[derive(Clone, Copy)]
pub struct Checkpoints<'a> {
    /// The state directory.
    pub state: &'a StateDir,
    /// The ledger.
    pub ledger: &'a Ledger,
}

impl Checkpoints<'_> {
    /// Takes a checkpoint of all targets, or of none.
    ///
    /// # Errors
    /// When one of them cannot be taken; nothing is left of it then.
    pub fn take(&self, taking: Taking<'_>) -> Result<Checkpoint, Failure> {
        let now = SystemTime::now();
        let run = taking.run.cloned().unwrap_or_else(|| new_run_id(now));
        let mut checkpoint = Checkpoint {
            id: new_id()?,
            at_ms: milliseconds(now),
            why: taking.why,
            run,
            call: taking.call,
            undoes: None,
            targets: taking.targets.to_vec(),
            whole: false,
            bytes: 0,
        };
        own::refuse(self.state, taking.targets)?;
        let mut left = self.room(&checkpoint)?;
        self.write(&checkpoint)?;
        let mut parts = Vec::new();
        for (index, target) in taking.targets.iter().enumerate() {
            let (id, into) = (
                part_id(&checkpoint.id, index),
                self.part(&checkpoint, index),
            );
            let limits = Limits {
                bytes_max: Some(left),
                ..Limits::default()
            };
            match atoll_checkpoint::take(target, &id, &into, &limits) {
                Ok(taken) => {
                    left = left.saturating_sub(taken.bytes);
                    parts.push(taken);
                }
                Err(error) => {
                    // The first error counts; what is left of it is found by its record.
                    let _ = self.discard_parts(&checkpoint);
                    return Err(
                        Failure::new(format!("no checkpoint of {target} can be taken"))
                            .because(error),
                    );
                }
            }
        }
        checkpoint.targets = parts.iter().map(|part| part.target.clone()).collect();
        checkpoint.whole = true;
        checkpoint.bytes = parts.iter().map(|part| part.bytes).sum();
        self.write(&checkpoint)?;
        self.record(
            &checkpoint,
            "checkpoint.taken",
            json!({
                "why": checkpoint.why,
                "call": checkpoint.call,
                "targets": parts.iter().map(|part| part.target.to_string()).collect::<Vec<_>>(),
                "bytes": parts.iter().map(|part| part.bytes).sum::<u64>(),
            }),
        )?;
        Ok(checkpoint)
    }

    /// Returns the bytes that a further one of a run or a session may have.
    fn room(&self, new: &Checkpoint) -> Result<u64, Failure> {
        let all = self.list()?.into_iter().filter(|one| one.run == new.run);
        let sizes: Vec<u64> = all.map(|one| one.bytes).collect();
        let left = BYTES_MAX.saturating_sub(sizes.iter().sum());
        if sizes.len() < CHECKPOINTS_MAX && left > 0 {
            return Ok(left);
        }
        Err(
            Failure::new("this session has as many checkpoints as it may")
                .because(format!(
                    "{CHECKPOINTS_MAX} of them, or {} GiB",
                    BYTES_MAX >> 30
                ))
                .advise("atoll checkpoint list, and discard those that nobody needs"),
        )
    }

    /// Notes what an effect has left of the targets: from then on a restore can tell it from what came
    /// later.
    ///
    /// # Errors
    /// When one of them cannot be read; the others are settled all the same.
    pub fn settle(&self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let mut first = Ok(());
        for (index, target) in checkpoint.targets.iter().enumerate() {
            let directory = self.part(checkpoint, index);
            let loaded = atoll_checkpoint::load(&directory);
            if loaded
                .as_ref()
                .is_ok_and(|taken| taken.settled_ms.is_some())
            {
                return Err(
                    Failure::new(format!("checkpoint {} is settled", checkpoint.id))
                        .because("what has changed since is not the effect's"),
                );
            }
            let settled =
                loaded.and_then(|mut taken| atoll_checkpoint::settle(&mut taken, &directory));
            let what = format!("the checkpoint of {target} cannot be settled");
            first = first.and(settled.doing(&what));
        }
        first
    }

    /// Returns all, the newest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn list(&self) -> Result<Vec<Checkpoint>, Failure> {
        let directory = self.directory();
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.doing(UNREAD)?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let record = entry.doing(UNREAD)?.path().join(RECORD);
            match fs::read(&record) {
                // The lock lies among them.
                Err(error)
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                read => all.push(serde_json::from_slice(&read.doing(UNREAD)?).doing(UNREAD)?),
            }
        }
        all.sort_by_key(|one: &Checkpoint| std::cmp::Reverse((one.at_ms, one.id.clone())));
        Ok(all)
    }

    /// Returns the one of an id, or of the first digits of one.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub fn named(&self, id: &str) -> Result<Checkpoint, Failure> {
        let all = self.list()?.into_iter();
        let mut found = all.filter(|one| !id.is_empty() && one.id.starts_with(id));
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one),
            (None, _) => Err(Failure::new(format!("there is no checkpoint {id:?}"))
                .advise("atoll checkpoint list shows those that there are")),
            (Some(_), Some(_)) => Err(Failure::new(format!(
                "{id:?} stands for several checkpoints"
            ))
            .advise("type more of the one that you mean")),
        }
    }

    /// Returns what differs from a checkpoint now, and the origin of each difference.
    ///
    /// # Errors
    /// When a target cannot be read.
    pub fn changes(&self, checkpoint: &Checkpoint) -> Result<Vec<Changed>, Failure> {
        let mut all = Vec::new();
        for (taken, directory) in self.parts(checkpoint)? {
            let what = format!("{} cannot be compared", taken.target);
            for change in atoll_checkpoint::changes(&taken, &directory).doing(&what)? {
                let target = taken.target.clone();
                all.push(Changed { target, change });
            }
        }
        Ok(all)
    }

    /// Restores what the effect has changed and nobody has touched since, and with `overwrite` that
    /// too. What was there is kept. One that was cut short is completed.
    ///
    /// # Errors
    /// When policies or a person refuse it, or a target cannot be restored; doing it again goes on.
    pub fn restore(
        &self,
        checkpoint: &Checkpoint,
        overwrite: Overwrite,
        agrees: &dyn Fn(&[Reason]) -> Result<(), Failure>,
    ) -> Result<Restored, Failure> {
        if !checkpoint.whole {
            let failure = Failure::new(format!("checkpoint {} is not whole", checkpoint.id));
            return Err(match &checkpoint.undoes {
                Some(of) => failure
                    .because("the restore that makes it was cut short")
                    .advise(format!("atoll restore {of} completes that")),
                None => failure
                    .because("it was cut short while it was taken, before any effect")
                    .advise(format!("atoll checkpoint discard {}", checkpoint.id)),
            });
        }
        let outside = Outside {
            run: &checkpoint.run,
            directory: Path::new("/"),
            action: Action::Restore,
            written: &[],
            concerns: Vec::new(),
            shadowed: None,
            refused: "to restore this; nothing was restored",
        };
        outside.decide(self.state, self.ledger, agrees)?;
        let _lock = self.lock()?;
        let mut kept = self.begun(checkpoint)?;
        let mut all = Restored::default();
        let limits = Limits {
            // The person has asked for the database as it was.
            end_connections: true,
            ..Limits::default()
        };
        for (index, (taken, directory)) in self.parts(checkpoint)?.into_iter().enumerate() {
            let aside = self.part(&kept, index);
            let what = format!("{} cannot be restored", taken.target);
            let completed = match aside.exists() {
                true => {
                    atoll_checkpoint::resume(&taken, &directory, &aside, &limits).doing(&what)?
                }
                false => None,
            };
            let done = match completed {
                Some(done) => done,
                None => atoll_checkpoint::restore(&taken, &directory, &aside, overwrite, &limits)
                    .doing(&what)?,
            };
            all.add(&taken.target, done);
        }
        kept.whole = true;
        self.write(&kept)?;
        self.record(
            checkpoint,
            "checkpoint.restored",
            json!({
                "kept": kept.id,
                "restored": all.restored.iter().map(|(_, names)| names.len()).sum::<usize>(),
                "left": all.left.len(),
            }),
        )?;
        match self.parts(&kept)?.is_empty() {
            true => self.discard_parts(&kept)?,
            false => all.kept = Some(kept),
        }
        Ok(all)
    }

    /// Frees a checkpoint; what it would restore is gone.
    ///
    /// # Errors
    /// When a part cannot be freed; doing it again goes on.
    pub fn discard(&self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let _lock = self.lock()?;
        self.record(checkpoint, "checkpoint.discarded", json!({}))?;
        self.discard_parts(checkpoint)
    }

    /// Returns the checkpoint of what a restore replaces: that of one that was cut short, or a new one.
    fn begun(&self, checkpoint: &Checkpoint) -> Result<Checkpoint, Failure> {
        let is_open = |one: &Checkpoint| !one.whole && one.undoes.as_ref() == Some(&checkpoint.id);
        if let Some(open) = self.list()?.into_iter().find(is_open) {
            return Ok(open);
        }
        let kept = Checkpoint {
            id: new_id()?,
            at_ms: milliseconds(SystemTime::now()),
            why: format!("restore of {}", checkpoint.id),
            undoes: Some(checkpoint.id.clone()),
            whole: false,
            ..checkpoint.clone()
        };
        self.write(&kept)?;
        Ok(kept)
    }

    /// Takes the right to restore and to free: no two do that at once.
    fn lock(&self) -> Result<OwnedFd, Failure> {
        let busy = "another restore, or a clearing away, is under way";
        let place = PrivateDirectory::of_state(self.state, CHECKPOINTS, true).doing(UNREAD)?;
        let place = place.ok_or_else(|| Failure::new(UNREAD))?;
        place.lock().doing(busy)
    }

    fn discard_parts(&self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        for (taken, directory) in self.parts(checkpoint)? {
            let what = format!("the checkpoint of {} cannot be freed", taken.target);
            atoll_checkpoint::discard(&taken, &directory).doing(&what)?;
        }
        let directory = self.directory().join(&checkpoint.id);
        fs::remove_dir_all(&directory).doing("the checkpoint cannot be removed")
    }

    /// Returns the parts that are there, in their order.
    fn parts(&self, checkpoint: &Checkpoint) -> Result<Vec<(Taken, PathBuf)>, Failure> {
        let mut parts = Vec::new();
        for index in 0..checkpoint.targets.len() {
            let directory = self.part(checkpoint, index);
            if directory.join("checkpoint.json").exists() {
                let taken = atoll_checkpoint::load(&directory).doing(UNREAD)?;
                parts.push((taken, directory));
            }
        }
        Ok(parts)
    }

    fn directory(&self) -> PathBuf {
        self.state.path().join(CHECKPOINTS)
    }

    fn part(&self, checkpoint: &Checkpoint, index: usize) -> PathBuf {
        self.directory()
            .join(&checkpoint.id)
            .join(index.to_string())
    }

    fn write(&self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let directory = self.directory().join(&checkpoint.id);
        let unwritten = "the checkpoint cannot be noted";
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory);
        made.doing(unwritten)?;
        let text = serde_json::to_vec(checkpoint).doing(unwritten)?;
        let place = PrivateDirectory::at(&directory).doing(unwritten)?;
        place.replace(RECORD, &text).doing(unwritten)
    }

    fn record(&self, of: &Checkpoint, kind: &str, mut body: Value) -> Result<(), Failure> {
        if let Some(members) = body.as_object_mut() {
            members.insert("checkpoint".to_owned(), json!(of.id));
        }
        let recorded = self
            .ledger
            .record(Some(&of.run), kind, body, Durability::Durable);
        recorded
            .map(drop)
            .doing("the checkpoint cannot be recorded")
    }
}

const UNREAD: &str = "the checkpoints cannot be read";

/// Reads targets as people write them.
///
/// # Errors
/// When one is none.
pub fn targets(texts: &[String]) -> Result<Vec<Target>, Failure> {
    let read = texts.iter().map(|text| {
        let target = text.parse::<Target>();
        target.doing("a target of the checkpoint is none")
    });
    read.collect()
}

fn part_id(id: &str, index: usize) -> String {
    format!("{id}-{index}")
}

fn new_id() -> Result<String, Failure> {
    let mut bytes = [0_u8; ID_BYTES];
    let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    filled.doing("no random id can be made")?;
    Ok(hex(&bytes))
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
