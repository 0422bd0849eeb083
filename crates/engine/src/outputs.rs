//! Outputs: the files that a sandbox has put out become artifacts at its end, which wait until
//! somebody decides ([`crate::artifacts`]).
//!
//! In the sandbox they can be created and written to, and no more. Outside, nothing is taken of them
//! but regular files, and each is copied: what happens to the original then changes nothing.

mod statement;

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_ledger::{
    Durability, Ledger, LedgerError, OpenRuns, SigningError, StateDir, sign_statement,
};
use atoll_model::{Boundary, Call, OutputsRule, RunId};
use atoll_policy::Grant;
use atoll_sandbox::OutputsPlace;
use atoll_store::{
    ArtifactError, ArtifactOrigin, Artifacts, Deposit, InputFacts, RunError, begin_outputs,
    end_outputs, left_outputs, note_inputs, note_origin, noted_inputs, origin_of_left, outputs_dir,
};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde_json::json;

use crate::place_error::state_error;
use crate::{PlaceError, Request};

use statement::{Made, STATEMENT_TYPE, statement, subjects};

/// The most bytes of artifacts that a tenant of a server has: what sandboxes put out stays after their
/// end, and is in no sandbox's limit then.
const TENANT_BYTES_MAX: u64 = 10 << 30;
/// The most files of one sandbox that become artifacts.
const FILES_MAX: usize = 100_000;

/// The outputs of a sandbox could not be put away.
#[derive(Debug, thiserror::Error)]
pub enum OutputsError {
    /// They are more than become artifacts.
    #[error("there are more than {FILES_MAX} files")]
    TooMany,
    /// They cannot be read.
    #[error("{} cannot be read: {error}", .path.display())]
    Unread {
        /// The directory, or the file.
        path: PathBuf,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// They cannot be kept.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// They cannot be recorded.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The statement about them cannot be signed.
    #[error("the statement about them cannot be signed: {0}")]
    Signing(#[from] SigningError),
    /// Their directory cannot be removed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Makes the directory of a sandbox's outputs, if its boundary has one.
pub(crate) fn place(
    request: &Request<'_>,
    boundary: &Boundary,
    base: Option<u32>,
    inputs: &[InputFacts],
) -> Result<Option<OutputsPlace>, PlaceError> {
    let (state, call) = (request.state, request.call);
    let Some(rule) = boundary.outputs else {
        return Ok(None);
    };
    let directory = begin_outputs(state, &origin(call, false, rule))?;
    if !inputs.is_empty() {
        note_inputs(state, call.run(), inputs)?;
    }
    // Who makes a sandbox for others, as a server does, has its programs find all of a system.
    let lists_root = call.served().is_some() || call.parent.is_some();
    let made = OutputsPlace::make(directory.clone(), base, lists_root);
    made.map(Some).map_err(state_error("making", &directory))
}

/// Notes whose the outputs of a sandbox are that was made ahead. Where that fails, they are nobody's
/// after a sudden end.
pub(crate) fn assigned(state: &StateDir, boundary: &Boundary, call: &Call) {
    if let Some(rule) = boundary.outputs {
        let _ = note_origin(state, &origin(call, false, rule));
    }
}

/// The outputs of a sandbox in which nothing runs any more.
pub(crate) struct Outputs<'a> {
    state: &'a StateDir,
    ledger: &'a Ledger,
    call: &'a Call,
    /// True if it came to no end of its own.
    is_interrupted: bool,
}

impl<'a> Outputs<'a> {
    pub(crate) fn of(request: &Request<'a>, call: &'a Call, is_interrupted: bool) -> Self {
        Self {
            state: request.state,
            ledger: request.ledger,
            call,
            is_interrupted,
        }
    }

    /// Makes artifacts of them, if the boundary has outputs; returns their number. If that fails, the
    /// next opening of the ledger tries again.
    pub(crate) fn put_away(&self, grant: &Grant, notices: &mut Vec<String>) -> u64 {
        let Some(rule) = grant.boundary().outputs else {
            return 0;
        };
        let made = Made {
            profile: Some(grant.boundary().profile.clone()),
            policies: Some(grant.policy_digest().to_owned()),
            inputs: Vec::new(),
        };
        let origin = origin(self.call, self.is_interrupted, rule);
        match put_away_of(self.state, self.ledger, origin, &made) {
            Ok(count) => count,
            Err(error) => {
                let tries = "atoll artifacts list tries again";
                notices.push(format!(
                    "its outputs are no artifacts yet: {error}; {tries}"
                ));
                0
            }
        }
    }
}

/// Makes artifacts of what sandboxes have left that came to a sudden end.
///
/// # Errors
/// The first [`OutputsError`]; those of other sandboxes are put away all the same.
pub fn put_away_left(state: &StateDir, ledger: &Ledger) -> Result<u64, OutputsError> {
    let (mut count, mut failed) = (0, None);
    let left = left_outputs(state)?;
    if left.is_empty() {
        return Ok(0);
    }
    let open = OpenRuns::open(state).map_err(LedgerError::from)?;
    for run in left {
        // One that begins at this moment is not open yet, and not over.
        let is_alive = open.is_alive(&run).map_err(LedgerError::from)?;
        if is_alive || !Ledger::is_over(state, &run)? {
            continue;
        }
        let Some(origin) = origin_of_left(state, &run)? else {
            continue;
        };
        match put_away_of(state, ledger, origin, &Made::default()) {
            Ok(more) => count += more,
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    failed.map_or(Ok(count), Err)
}

fn put_away_of(
    state: &StateDir,
    ledger: &Ledger,
    origin: ArtifactOrigin,
    made: &Made,
) -> Result<u64, OutputsError> {
    let run = origin.run.clone();
    let directory = outputs_dir(state, &run);
    let Some(_alone) = alone(&directory)? else {
        return Ok(0);
    };
    let names = match names(&directory) {
        // They would stay for ever, in nobody's limit.
        Err(OutputsError::TooMany) if origin.tenant.is_some() => {
            let body = json!({ "why": OutputsError::TooMany.to_string() });
            ledger.record(Some(&run), "outputs.refused", body, Durability::Durable)?;
            end_outputs(state, &run)?;
            return Ok(0);
        }
        names => names?,
    };
    let mut kept = 0;
    if !names.is_empty() {
        let store = Artifacts::open(state, true)?;
        let mut store = store.ok_or_else(|| ArtifactError::Damaged("it is gone".to_owned()))?;
        // An attempt may have got that far, and no further.
        if !store.has(&run)? {
            let mut deposit = store.begin(origin)?;
            for name in names {
                add(&mut deposit, &directory, name)?;
            }
            kept = match has_room(&store, &deposit)? {
                true => {
                    deposit.sync()?;
                    keep(state, ledger, &mut store, deposit, made)?
                }
                false => refuse(ledger, deposit)?,
            };
        }
    }
    end_outputs(state, &run)?;
    Ok(kept)
}

/// Takes the outputs of a run for this process; `None` where another one has them, or they are gone.
fn alone(directory: &Path) -> Result<Option<File>, OutputsError> {
    let above = directory.parent().unwrap_or(directory);
    let unread = |error| OutputsError::Unread {
        path: above.to_owned(),
        error,
    };
    let opened = match File::open(above) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(unread)?,
    };
    match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(None),
        taken => taken
            .map(|()| Some(opened))
            .map_err(|error| unread(error.into())),
    }
}

/// Returns whether its tenant, if it has one, may keep a deposit.
fn has_room(store: &Artifacts, deposit: &Deposit) -> Result<bool, OutputsError> {
    let Some(tenant) = &deposit.origin().tenant else {
        return Ok(true);
    };
    let bytes = store.bytes_of(tenant)?.saturating_add(bytes(deposit));
    Ok(bytes <= TENANT_BYTES_MAX)
}

/// Records that a deposit is not kept; it is removed when it is dropped.
fn refuse(ledger: &Ledger, deposit: Deposit) -> Result<u64, OutputsError> {
    let body = json!({
        "files": deposit.files().count(),
        "bytes": bytes(&deposit),
        "why": "the tenant's artifacts would be more than it may have",
    });
    let run = Some(&deposit.origin().run);
    ledger.record(run, "outputs.refused", body, Durability::Durable)?;
    Ok(0)
}

fn bytes(deposit: &Deposit) -> u64 {
    deposit.files().map(|one| one.bytes).sum()
}

/// Records a deposit, signs the statement about it, and keeps it, in this order.
fn keep(
    state: &StateDir,
    ledger: &Ledger,
    store: &mut Artifacts,
    deposit: Deposit,
    made: &Made,
) -> Result<u64, OutputsError> {
    let now = SystemTime::now();
    let subjects = subjects(&deposit);
    let body = json!({
        "files": deposit.files().count(),
        "bytes": bytes(&deposit),
        "subjects": statement::digest(&subjects),
        "interrupted": deposit.origin().interrupted,
    });
    let run: &RunId = &deposit.origin().run;
    let entry = ledger.record(Some(run), "outputs.kept", body, Durability::Durable)?;
    let key = Ledger::key(state)?;
    let inputs = noted_inputs(state, run)?;
    let made = &Made {
        inputs,
        ..made.clone()
    };
    let text = statement(subjects, deposit.origin(), made, &entry, &key, now);
    let signed = sign_statement(state, STATEMENT_TYPE, &text)?;
    Ok(store.keep(deposit, entry.seq, &signed, now)?)
}

/// Adds a file to a deposit, if it is a regular one: nothing else can be made there.
fn add(deposit: &mut Deposit, directory: &Path, name: OsString) -> Result<(), OutputsError> {
    let path = directory.join(&name);
    let unread = |error: std::io::Error| OutputsError::Unread {
        path: path.clone(),
        error,
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = || rustix::fs::open(&path, flags, Mode::empty());
    let opened = match open() {
        // Its program can have left no right on it to its owner.
        Err(Errno::ACCESS) => open_up(&path, 0o600).and_then(|()| Ok(open()?)),
        opened => opened.map_err(std::io::Error::from),
    };
    let file = opened.map_err(unread)?;
    let facts = rustix::fs::fstat(&file).map_err(|error| unread(error.into()))?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    let name = name.as_bytes().to_vec();
    Ok(deposit.add(name, &mut File::from(file))?)
}

/// Returns the names in a directory, sorted; none where there is no directory.
fn names(directory: &Path) -> Result<Vec<OsString>, OutputsError> {
    let unread = |error| OutputsError::Unread {
        path: directory.to_owned(),
        error,
    };
    match open_up(directory, 0o700) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.map_err(unread)?,
    }
    let entries = std::fs::read_dir(directory).map_err(unread)?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(unread)?.file_name());
        if names.len() > FILES_MAX {
            return Err(OutputsError::TooMany);
        }
    }
    names.sort();
    Ok(names)
}

/// Gives the owner of a file, or a directory, rights on it; nothing there is a link.
fn open_up(path: &Path, mode: u32) -> std::io::Result<()> {
    if path.symlink_metadata()?.is_symlink() {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

fn origin(call: &Call, interrupted: bool, rule: OutputsRule) -> ArtifactOrigin {
    let served = call.served();
    ArtifactOrigin {
        run: call.run().clone(),
        tenant: served.map(|served| served.tenant.clone()),
        sandbox: served.map(|served| served.sandbox.clone()),
        session: call.session.as_ref().map(ToString::to_string),
        interrupted,
        rule,
    }
}
