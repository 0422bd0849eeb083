//! A run, up to its call: the request, the rules, the facts, and what earlier runs mean for it.
//!
//! Start reading at [`RunRequest`].

pub mod beginning;
pub mod purpose;
pub mod refused;
pub mod resuming;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_ledger::{Ledger, StateDir, is_first_telling};
use atoll_model::network::CredentialName;
use atoll_model::{Action, Call, CallId, Mode, Place, Program, RunId, SessionId};
use atoll_policy::{EarlierPurposes, Facts, HostFacts, ProfileError, Requested, Rules};
use atoll_sandbox::Host;
use atoll_store::RunRecord;

use crate::configuration::{self, Places, PolicyFiles};
use crate::credentials::Words;
use crate::events::open_ledger;
use crate::failure::{Doing, Failure, Kind};
use crate::kept::kept_labels;
use crate::notice::Notices;
use crate::supervision::CredentialBundle;

/// A request for a run.
pub struct RunRequest<'a> {
    /// Reads the boundary that is asked for.
    pub requested: Box<dyn Fn() -> Result<Requested, Failure> + 'a>,
    /// The command.
    pub command: &'a [OsString],
    /// The options that state the boundary, as they are recorded.
    pub options: Vec<OsString>,
    /// The session that it is a part of, by name or id.
    pub session: Option<&'a str>,
    /// The run whose layers it continues.
    pub resume: Option<&'a str>,
    /// The purpose.
    pub purpose: Option<&'a str>,
    /// The workspace; the current directory without one.
    pub workspace: Option<&'a Path>,
    /// The files of its tokens.
    pub tokens: &'a [PathBuf],
    /// The login that is issued in it.
    pub login: Option<&'a CredentialName>,
    /// True if it runs as root inside.
    pub root: bool,
    /// True if its changes are thrown away.
    pub discard: bool,
    /// True if its changes are applied without a look.
    pub apply: bool,
}

/// The workspace of a program, and the directory in it where the program starts.
pub struct At {
    /// The workspace.
    pub workspace: PathBuf,
    /// The directory.
    pub directory: PathBuf,
}

/// Returns the facts a decision is made on besides the rules.
#[must_use]
pub fn facts<'a>(
    host: &'a HostFacts,
    mode: Mode,
    now: SystemTime,
    environment: &'a [(OsString, OsString)],
    handover: Option<&'a CredentialBundle>,
) -> Facts<'a> {
    Facts {
        host,
        mode,
        environment,
        now,
        placeholders: handover.map_or(&[], CredentialBundle::placeholders),
        labels: None,
        living: None,
        changes: None,
    }
}

/// Returns the call for the run.
#[must_use]
pub fn asked(
    request: &RunRequest<'_>,
    words: &Words,
    session: Option<SessionId>,
    at: At,
    terminal: bool,
    now: SystemTime,
) -> Call {
    Call {
        id: CallId::of_run(new_run_id(now)),
        session,
        parent: None,
        principal: configuration::principal(),
        place: Place::Directory {
            workspace: at.workspace,
            directory: at.directory,
        },
        action: Action::Run(Program {
            command: words.command.clone(),
            options: request.options.clone(),
            terminal,
        }),
    }
}

/// Compiles the rules of the request.
///
/// # Errors
/// When they cannot be made, or ask for what an option refuses.
pub fn compiled(
    request: &RunRequest<'_>,
    earlier: EarlierPurposes,
    places: &Places,
    state: &StateDir,
    workspace: &Path,
    host: &HostFacts,
) -> Result<Rules, Failure> {
    let files = PolicyFiles::read(places, Some(workspace))?;
    let mut requested = Requested {
        earlier,
        ..(request.requested)()?
    };
    let program = request.command.first().cloned().unwrap_or_default();
    let compile = |requested: &Requested| {
        let rules = files.compile(requested, &program, host);
        rules.map_err(no_rules)
    };
    let mut rules = compile(&requested)?;
    let labels = match request.discard || request.root {
        true => BTreeSet::new(),
        false => kept_labels(state, rules.profile()),
    };
    if !labels.is_empty() && !rules.notes_labels() {
        // It goes on with what earlier runs have left, as one of their session.
        requested.in_session = true;
        rules = compile(&requested)?;
    }
    rules.take_labels(labels);
    configuration::take_repository(&mut rules, workspace, host);
    rules.take_real_paths(workspace, configuration::real_path);
    refuse_unseen(request, &rules)?;
    // Where that cannot be kept, it is told again.
    let is_first = |notice: &atoll_policy::Notice| {
        is_first_telling(state, &notice.to_string()).unwrap_or(true)
    };
    rules.retain_notices(|notice| !notice.is_of_stray() || is_first(notice));
    Ok(rules)
}

/// Changes that a person has to look at are not applied by an option.
fn refuse_unseen(request: &RunRequest<'_>, rules: &Rules) -> Result<(), Failure> {
    match rules.applies_unseen() {
        Err(why) if request.apply => Err(Failure::new("--apply is refused")
            .because(why)
            .advise("leave out --apply; atoll apply RUN takes the changes over afterwards")
            .of_kind(Kind::Denied)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Reads what this host supports, and selects the mode.
///
/// # Errors
/// When it cannot hold a program.
pub fn read_machine() -> Result<(Host, Mode), Failure> {
    let machine = Host::read().doing("this host cannot hold a program")?;
    let mode = machine.mode().doing("this host cannot hold a program")?;
    Ok((machine, mode))
}

pub(crate) fn no_rules(error: ProfileError) -> Failure {
    Failure::new("This run's rules are invalid")
        .because(&error)
        .advise(error)
}

/// Opens the ledger, with a warning about interrupted runs.
///
/// # Errors
/// When it cannot be opened.
pub fn own_ledger(state: &StateDir, notices: &dyn Notices) -> Result<Ledger, Failure> {
    let ledger = open_ledger(state)?;
    for interrupted in ledger.interrupted() {
        notices.warn(format!(
            "run {} was interrupted earlier; `atoll diff {0}` shows what it had done",
            interrupted.run
        ));
    }
    Ok(ledger)
}

/// Refuses to run inside a sandbox, which does not permit what a sandbox of its own needs.
///
/// # Errors
/// When this is inside a sandbox.
pub fn refuse_nesting() -> Result<(), Failure> {
    match std::env::var_os("ATOLL_RUN") {
        None => Ok(()),
        Some(run) => Err(Failure::new("atoll run does not work inside atoll run")
            .because(format!(
                "this shell runs inside run {}",
                run.to_string_lossy()
            ))
            .advise("end that run first; what is started inside is contained already")),
    }
}

/// Returns the workspace and the directory in it where the program starts, free of symbolic links.
///
/// # Errors
/// When one of them cannot be used.
pub fn place_of(request: &RunRequest<'_>, resume: Option<&RunRecord>) -> Result<At, Failure> {
    let current = std::env::current_dir()
        .doing("the current directory cannot be used; it may have been removed")?;
    let chosen = match (request.workspace, resume) {
        (Some(chosen), _) => chosen.to_owned(),
        (None, Some(earlier)) => earlier.workspace.clone(),
        (None, None) => current.clone(),
    };
    let workspace = readable_directory(&chosen)?;
    let directory = match current.canonicalize() {
        Ok(current) if current.starts_with(&workspace) => current,
        _ => resume.map_or(workspace.clone(), |earlier| earlier.directory.clone()),
    };
    Ok(At {
        workspace,
        directory,
    })
}

fn readable_directory(path: &Path) -> Result<PathBuf, Failure> {
    let unusable = |why: String| {
        Failure::new(format!("the workspace {} cannot be used", path.display()))
            .because(why)
            .advise("atoll run --workspace DIR names another one")
    };
    let real = path
        .canonicalize()
        .map_err(|error| unusable(error.to_string()))?;
    if !real.is_dir() {
        return Err(unusable("it is not a directory".to_owned()));
    }
    std::fs::read_dir(&real).map_err(|error| unusable(error.to_string()))?;
    Ok(real)
}

pub(crate) fn new_run_id(now: SystemTime) -> RunId {
    let seconds = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    // The standard library's hash seeds come from the kernel's random numbers.
    let random = std::hash::RandomState::new().build_hasher().finish();
    RunId::new(seconds, random as u32)
}

/// Returns the directories Atoll uses, and the state directory opened.
///
/// # Errors
/// When they cannot be used.
pub fn own_state() -> Result<(Places, StateDir), Failure> {
    let places = Places::read()?;
    let state = places.open_state()?;
    Ok((places, state))
}
