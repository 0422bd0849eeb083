//! Artifacts: what sandboxes have put out, and the decisions about it. To promote them is a call, as
//! to take changes over: policies decide it (`promote`), and it is on record before it counts.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use atoll_layer::{RelativePath, control_reason};
use atoll_ledger::{Durability, Ledger, Seals, StateDir, host_text};
use atoll_model::{Action, OUTPUTS_DIRECTORY, Reason};
use atoll_policy::{ArtifactFacts, Promoted};
use atoll_store::{
    Artifact, ArtifactDecision, ArtifactError, ArtifactFilter, ArtifactState, Artifacts,
};
use rustix::fs::{AtFlags, Mode as FileMode, OFlags};
use serde_json::{Value, json};

use crate::failure::{Doing, Failure, Kind};
use crate::notice::Notices;
use crate::outputs::put_away_left;
use crate::printable::quoted;
use crate::promotion::outside::Outside;
use crate::sandboxes::Engine;
use crate::undo_notes::remove_shredded;

/// The most artifacts that an id can stand for in a message.
const NAMED_MAX: usize = 5;

/// Asks a person about artifacts, for these reasons; fails unless they agree.
pub type Agrees<'a> = &'a dyn Fn(&[Artifact], &[Reason]) -> Result<(), Failure>;

/// The words of scanners on an artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The word of each, as `secrets=clean`.
    pub words: BTreeSet<String>,
    /// The rules that have found something.
    pub found: BTreeSet<String>,
    /// The reasons to ask a person: something was found, or a scanner did not look at all of it. Without
    /// any the artifact is clean.
    pub concerns: Vec<Reason>,
}

/// The one who decides about artifacts, and what that takes.
pub struct Deciding<'a> {
    /// The state directory.
    pub state: &'a StateDir,
    /// The ledger.
    pub ledger: &'a Ledger,
    /// The name of that person or caller.
    pub by: &'a str,
    /// The reason that was given.
    pub why: Option<&'a str>,
    /// Returns what scanners have said of an artifact.
    pub seen: &'a dyn Fn(&Artifact) -> Result<Seen, Failure>,
    /// Asks a person, where policies have one asked.
    pub agrees: Agrees<'a>,
}

/// Opens the artifacts, those included that a sandbox with a sudden end has left. Outputs of one that
/// cannot be put away are in the way of no other's.
///
/// # Errors
/// When they cannot be opened.
pub fn open(
    state: &StateDir,
    ledger: &Ledger,
    notices: &dyn Notices,
) -> Result<Option<Artifacts>, Failure> {
    if let Err(error) = put_away_left(state, ledger) {
        let left = state.path().join("outputs");
        notices.warn(format!(
            "outputs of a run are no artifacts: {error}; they are left in {}",
            left.display()
        ));
    }
    destroy_shredded(state)?;
    Artifacts::open(state, false).doing(UNREAD)
}

/// Destroys the content of the artifacts of runs whose sealed content was shredded, and the notes by
/// which calls of sessions are taken back; returns the number of these runs and sessions.
///
/// # Errors
/// When that cannot be done; the next opening of artifacts goes on with it.
pub fn destroy_shredded(state: &StateDir) -> Result<u64, Failure> {
    let seals = Seals::read(state).doing("the keys of runs cannot be read")?;
    let mut count = 0;
    if let Some(store) = Artifacts::open(state, false).doing(UNREAD)? {
        let runs = store.runs().doing(UNREAD)?;
        for run in runs.iter().filter(|run| seals.is_shredded(run)) {
            store.destroy(run).doing("artifacts cannot be destroyed")?;
            count += 1;
        }
    }
    Ok(count + remove_shredded(state, &seals)?)
}

/// Returns the state directory and the ledger of an engine, for decisions about its artifacts.
#[must_use]
pub fn kept_by(engine: &Engine) -> (&StateDir, &Ledger) {
    (&engine.shared.state, &engine.shared.ledger)
}

/// Returns the artifact of an id, or of the first digits of one.
///
/// # Errors
/// When there is none, or more than one.
pub fn named(
    store: Option<&Artifacts>,
    id: &str,
    tenant: Option<&str>,
) -> Result<Artifact, Failure> {
    let found = match store {
        Some(store) if !id.is_empty() => store.find(id, tenant).doing(UNREAD)?,
        Some(_) | None => Vec::new(),
    };
    let shown = quoted(id.as_bytes());
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Failure::new(format!("there is no artifact {shown}"))
            .advise("atoll artifacts list shows those that there are")),
        several => {
            let ids = several.iter().take(NAMED_MAX).map(|one| one.id.as_str());
            let ids: Vec<&str> = ids.collect();
            Err(
                Failure::new(format!("{shown} stands for several artifacts"))
                    .because(format!("their ids are {}", ids.join(", ")))
                    .advise("type more of the one that you mean"),
            )
        }
    }
}

/// Returns those of a tenant, or of none, that pass the filter.
///
/// # Errors
/// When they cannot be read.
pub fn list(store: Option<&Artifacts>, filter: &ArtifactFilter) -> Result<Vec<Artifact>, Failure> {
    let list = |store: &Artifacts| store.list(filter).doing(UNREAD);
    store.map_or(Ok(Vec::new()), list)
}

const UNREAD: &str = "the artifacts cannot be read";

impl Deciding<'_> {
    /// Promotes artifacts: from then on their content is given out. Policies decide about all of one
    /// run at once. With `to` each is also written there, where no file of its name is.
    ///
    /// # Errors
    /// When policies or a person refuse it, one is decided about already, or it cannot be written.
    pub fn promote(
        &self,
        store: &Artifacts,
        artifacts: &[Artifact],
        to: Option<&Path>,
    ) -> Result<Vec<PathBuf>, Failure> {
        for artifact in artifacts {
            match (artifact.state, artifact.destroyed) {
                (_, true) => return Err(unread(ArtifactError::Destroyed(artifact.id.clone()))),
                (ArtifactState::Rejected, _) => return Err(decided(artifact)),
                (ArtifactState::Promoted, _) if to.is_none() => return Err(decided(artifact)),
                (ArtifactState::Held | ArtifactState::Promoted, _) => {}
            }
        }
        let places = artifacts.iter().map(|one| place(one, to));
        let places: Vec<PathBuf> = places.collect::<Result<_, _>>()?;
        if to.is_some() {
            refuse_taken(&places)?;
        }
        for (same, places) in by_run(artifacts, &places) {
            self.allow(same, places)?;
            for artifact in same.iter().filter(|one| one.state == ArtifactState::Held) {
                self.decide(store, artifact, ArtifactState::Promoted)?;
            }
            for (artifact, place) in same.iter().zip(places).filter(|_| to.is_some()) {
                write(store, artifact, place)?;
            }
        }
        Ok(if to.is_some() { places } else { Vec::new() })
    }

    /// Rejects an artifact: its content is not given out any more.
    ///
    /// # Errors
    /// When it is decided about already.
    pub fn reject(&self, store: &Artifacts, artifact: &Artifact) -> Result<(), Failure> {
        match artifact.state {
            ArtifactState::Held => self.decide(store, artifact, ArtifactState::Rejected),
            ArtifactState::Promoted | ArtifactState::Rejected => Err(decided(artifact)),
        }
    }

    /// Records a decision, and makes it.
    fn decide(
        &self,
        store: &Artifacts,
        artifact: &Artifact,
        state: ArtifactState,
    ) -> Result<(), Failure> {
        let kind = match state {
            ArtifactState::Promoted => "artifact.promoted",
            ArtifactState::Rejected | ArtifactState::Held => "artifact.rejected",
        };
        let body = json!({
            "artifact": artifact.id,
            "sha256": artifact.sha256,
            "by": self.by,
            "why": self.why,
        });
        let run = Some(&artifact.origin.run);
        self.ledger
            .record(run, kind, body, Durability::Durable)
            .doing("the decision could not be recorded")?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let decision = ArtifactDecision {
            at_ms: u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX),
            by: self.by.to_owned(),
            why: self.why.map(str::to_owned),
        };
        match store.decide(artifact, state, &decision).map_err(unread)? {
            true => Ok(()),
            false => Err(decided(artifact)),
        }
    }

    /// Has policies decide whether artifacts of one run are promoted, and records that.
    fn allow(&self, artifacts: &[Artifact], places: &[PathBuf]) -> Result<(), Failure> {
        let Some(first) = artifacts.first() else {
            return Ok(());
        };
        let controls: Vec<Reason> = places.iter().filter_map(|path| of_control(path)).collect();
        let seen = artifacts.iter().map(|one| (self.seen)(one));
        let seen: Vec<Seen> = seen.collect::<Result<_, _>>()?;
        let told = artifacts.iter().zip(&seen);
        let told: Vec<ArtifactFacts> = told.map(|(one, seen)| facts_of(one, seen)).collect();
        let written = places.iter().zip(&told).map(|(path, artifact)| Promoted {
            path,
            control: of_control(path).is_some(),
            is_moved: false,
            is_directory: false,
            is_link: false,
            artifact: Some(artifact),
        });
        let written: Vec<Promoted<'_>> = written.collect();
        let concerns = seen.into_iter().flat_map(|seen| seen.concerns);
        let outside = Outside {
            run: &first.origin.run,
            directory: Path::new(OUTPUTS_DIRECTORY),
            action: Action::Promote(written.len() as u64),
            written: &written,
            concerns: controls.into_iter().chain(concerns).collect(),
            shadowed: None,
            refused: "to promote this; nothing was promoted",
        };
        let agrees = |reasons: &[Reason]| (self.agrees)(artifacts, reasons);
        outside.decide(self.state, self.ledger, &agrees)
    }
}

fn facts_of(artifact: &Artifact, seen: &Seen) -> ArtifactFacts {
    ArtifactFacts {
        bytes: artifact.bytes,
        media: artifact.media.clone(),
        clean: seen.concerns.is_empty(),
        scans: seen.words.clone(),
        found: seen.found.clone(),
        interrupted: artifact.origin.interrupted,
        tenant: artifact.origin.tenant.clone(),
    }
}

/// Writes the content of an artifact that may be given out.
///
/// # Errors
/// When it may not, or cannot be read.
pub fn content(store: &Artifacts, artifact: &Artifact, to: &mut dyn Write) -> Result<(), Failure> {
    match artifact.state {
        ArtifactState::Promoted => store.read(artifact, to).map_err(unread),
        ArtifactState::Held => {
            let what = format!("artifact {} waits for a decision", artifact.id);
            Err(Failure::new(what)
                .because("nobody has promoted it yet")
                .advise(format!("atoll artifacts promote {}", artifact.id))
                .of_kind(Kind::Denied))
        }
        ArtifactState::Rejected => Err(decided(artifact).of_kind(Kind::Denied)),
    }
}

/// Returns what is known of an artifact, for machines.
#[must_use]
pub fn as_json(artifact: &Artifact) -> Value {
    let decision = artifact.decision.as_ref();
    json!({
        "id": artifact.id,
        "name": host_text(std::ffi::OsStr::from_bytes(&artifact.name)),
        "bytes": artifact.bytes,
        "media": artifact.media,
        "sha256": artifact.sha256,
        "blake3": artifact.blake3,
        "state": artifact.state.name(),
        "destroyed": artifact.destroyed,
        "decided": decision.map(|decision| json!({
            "at_ms": decision.at_ms,
            "by": decision.by,
            "why": decision.why,
        })),
        "run": artifact.origin.run.as_str(),
        "sandbox": artifact.origin.sandbox,
        "session": artifact.origin.session,
        "interrupted": artifact.origin.interrupted,
        "rule": artifact.origin.rule.name(),
        "at_ms": artifact.at_ms,
        "ledger_entry": artifact.entry,
    })
}

/// Returns the artifacts of each run with their places; those of one run stand beside each other.
fn by_run<'a>(
    artifacts: &'a [Artifact],
    places: &'a [PathBuf],
) -> impl Iterator<Item = (&'a [Artifact], &'a [PathBuf])> {
    let mut rest = places;
    let runs = artifacts.chunk_by(|one, other| one.origin.run == other.origin.run);
    runs.map(move |same| {
        let (here, further) = rest.split_at_checked(same.len()).unwrap_or((rest, &[]));
        rest = further;
        (same, here)
    })
}

/// Returns the path that an artifact is promoted to: in the directory, or as it was inside.
fn place(artifact: &Artifact, to: Option<&Path>) -> Result<PathBuf, Failure> {
    let name = std::ffi::OsStr::from_bytes(&artifact.name);
    match to {
        None => Ok(Path::new(OUTPUTS_DIRECTORY).join(name)),
        Some(directory) => {
            let failed = format!("{} cannot be used", directory.display());
            Ok(directory.canonicalize().doing(&failed)?.join(name))
        }
    }
}

/// Returns the reason to ask a person, where other programs run or trust a file of this name.
fn of_control(path: &Path) -> Option<Reason> {
    let bytes = path.as_os_str().as_bytes();
    let below = RelativePath::new(bytes.strip_prefix(b"/").unwrap_or(bytes));
    let why = match &below {
        Ok(path) => control_reason(path)?,
        Err(_) => "its path is none that can be judged",
    };
    Some(Reason {
        what: format!("promoting {}", quoted(bytes)),
        why: why.to_owned(),
        rule: "built in".to_owned(),
        how_to_ask: "promote it at a terminal, where you are asked".to_owned(),
    })
}

/// Refuses to write where something is, or twice to one place.
fn refuse_taken(places: &[PathBuf]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    for place in places {
        let shown = quoted(place.as_os_str().as_bytes());
        if !seen.insert(place) {
            return Err(Failure::new(format!("two artifacts would be {shown}"))
                .advise("promote them one by one, each to a directory of its own"));
        }
        if place.symlink_metadata().is_ok() {
            return Err(taken(&shown));
        }
    }
    Ok(())
}

fn taken(place: &str) -> Failure {
    Failure::new(format!(
        "{place} exists already, so nothing is written there"
    ))
    .advise("move it away, or promote to another directory")
}

/// Writes the content of an artifact to a new file: whole, or not at all.
fn write(store: &Artifacts, artifact: &Artifact, place: &Path) -> Result<(), Failure> {
    let shown = quoted(place.as_os_str().as_bytes());
    let failed = format!("{shown} cannot be written");
    let (Some(directory), Some(name)) = (place.parent(), place.file_name()) else {
        return Err(Failure::new(failed));
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, FileMode::empty()).doing(&failed)?;
    let new = format!(".atoll-{}.part", artifact.id);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = FileMode::from_raw_mode(0o644);
    let file = rustix::fs::openat(&directory, new.as_str(), flags, mode).doing(&failed)?;
    let mut file = io::BufWriter::new(File::from(file));
    let written = store.read(artifact, &mut file).map_err(unread);
    let written = written.and_then(|()| {
        let synced = file.flush().and_then(|()| file.get_ref().sync_all());
        synced.doing(&failed)?;
        // What came there meanwhile is not replaced.
        let only = rustix::fs::RenameFlags::NOREPLACE;
        let (from, to) = (directory.as_fd(), directory.as_fd());
        match rustix::fs::renameat_with(from, new.as_str(), to, name, only) {
            Err(rustix::io::Errno::EXIST) => Err(taken(&shown)),
            renamed => renamed.doing(&failed),
        }
    });
    if written.is_err() {
        let _ = rustix::fs::unlinkat(&directory, new.as_str(), AtFlags::empty());
    }
    written
}

fn decided(artifact: &Artifact) -> Failure {
    let what = format!("artifact {} is {}", artifact.id, artifact.state.name());
    let by = artifact.decision.as_ref().map(|decision| {
        let why = decision.why.as_deref();
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        format!("{} has decided so{why}", decision.by)
    });
    by.into_iter().fold(Failure::new(what), Failure::because)
}

fn unread(error: ArtifactError) -> Failure {
    Failure::new("the artifact cannot be read").because(error)
}
