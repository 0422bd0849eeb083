//! The start of a run: its credentials, and the facts about the runs before it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;

use atoll_ledger::{Ledger, StateDir};
use atoll_model::{Call, SessionId};
use atoll_policy::{HostFacts, Rules};
use atoll_store::RunRecord;

use super::RunRequest;
use crate::configuration::Places;
use crate::failure::Failure;
use crate::given_up::of_session;
use crate::notice::{Notice, Notices};
use crate::printable::printable;
use crate::reputation;
use crate::supervision::{CredentialBundle, SshHandover};
use crate::tokens::given;
use crate::{credentials, ssh_keys};

/// Begins the session it is a part of, if it has one, and takes over the labels, dropped rights and
/// reputation from earlier runs.
///
/// # Errors
/// When the ledger cannot be used.
pub fn join(
    request: &RunRequest<'_>,
    rules: &mut Rules,
    state: &StateDir,
    ledger: &Ledger,
    resume: Option<&RunRecord>,
    notices: &dyn Notices,
    now: SystemTime,
) -> Result<Option<SessionId>, Failure> {
    let session = session(request, state, ledger, now)?;
    recall(rules, state, now, session.as_ref(), resume, notices)?;
    Ok(session)
}

/// Begins a session, or goes on with it, for a run without a command line: takes over the labels,
/// dropped rights and reputation from its earlier runs.
///
/// # Errors
/// When the ledger cannot be used.
pub fn join_session(
    name: &str,
    rules: &mut Rules,
    state: &StateDir,
    ledger: &Ledger,
    notices: &dyn Notices,
    now: SystemTime,
) -> Result<SessionId, Failure> {
    let session = crate::finding::sessions::begin(name, state, ledger, now)?;
    recall(rules, state, now, Some(&session), None, notices)?;
    Ok(session)
}

/// Returns the session it is a part of, which begins with its first run.
fn session(
    request: &RunRequest<'_>,
    state: &StateDir,
    ledger: &Ledger,
    now: SystemTime,
) -> Result<Option<SessionId>, Failure> {
    let named = request.session;
    named
        .map(|name| crate::finding::sessions::begin(name, state, ledger, now))
        .transpose()
}

/// Returns the data labels a run starts with: those of its session, and of the run whose layers it
/// continues.
fn labels(
    state: &StateDir,
    session: Option<&SessionId>,
    resume: Option<&RunRecord>,
) -> Result<BTreeSet<String>, Failure> {
    let of_session = session.map(|session| Ledger::session_labels(state, session));
    let of_earlier = resume.map(|earlier| Ledger::run_labels(state, &earlier.run));
    let mut labels = BTreeSet::new();
    for found in of_session.into_iter().chain(of_earlier) {
        let found = found.map_err(|error| {
            Failure::new("the ledger cannot tell what earlier runs have touched")
                .because(&error)
                .advise(error)
        })?;
        labels.extend(found);
    }
    Ok(labels)
}

/// Warns of rights the session has dropped: allowing them here has no effect.
fn tell_given_up(
    state: &StateDir,
    session: &SessionId,
    notices: &dyn Notices,
) -> Result<(), Failure> {
    let given_up = of_session(state, session).map_err(|error| {
        Failure::new("the ledger cannot tell what earlier runs have given up")
            .because(&error)
            .advise(error)
    })?;
    let all: Vec<String> = given_up.iter().map(|one| one.told()).collect();
    if !all.is_empty() {
        let told = all.join("; ");
        notices.notice(Notice::Remark(format!(
            "the session has given up {}, for good: this run goes without (atoll sessions shows it)",
            printable(told.as_bytes())
        )));
    }
    Ok(())
}

/// Takes over the labels, dropped rights and reputation from earlier runs.
fn recall(
    rules: &mut Rules,
    state: &StateDir,
    now: SystemTime,
    session: Option<&SessionId>,
    resume: Option<&RunRecord>,
    notices: &dyn Notices,
) -> Result<(), Failure> {
    if let Some(session) = session {
        tell_given_up(state, session, notices)?;
    }
    rules.take_labels(labels(state, session, resume)?);
    reputation::take(rules, state, now, notices);
    Ok(())
}

/// The credentials for other processes than the program, and the placeholders for the program.
pub struct Handed {
    /// The credentials.
    pub handover: Option<CredentialBundle>,
    /// The keys of SSH.
    pub signing: Option<SshHandover>,
    /// The command and the environment, with placeholders.
    pub words: credentials::Words,
}

/// Reads the credentials and SSH keys for the processes that use them, and the program's
/// environment, which has only placeholders.
pub fn handed(
    request: &RunRequest<'_>,
    rules: &Rules,
    places: &Places,
    host: &HostFacts,
    workspace: &Path,
    notices: &dyn Notices,
) -> Result<Handed, Failure> {
    let mut handover = credentials::read(rules, places, (workspace, request.login), notices)?;
    let hint = credentials::hint(rules, request.command, handover.as_ref());
    if let Some(hint) = hint.filter(|_| request.login.is_none()) {
        notices.notice(Notice::Remark(printable(hint.as_bytes())));
    }
    let signing = ssh_keys::read(rules, places, &host.home, workspace, notices)?;
    let session = request
        .session
        .map(|name| format!("--session={name}").into());
    let options: Vec<OsString> = request.options.iter().cloned().chain(session).collect();
    let asked = credentials::Asked {
        command: request.command,
        options: &options,
    };
    let words = credentials::told(handover.as_mut(), rules, asked, notices)?;
    atoll_egress::secret::erase_stack();
    Ok(Handed {
        handover,
        signing,
        words,
    })
}

/// Returns the tokens of the run.
pub fn given_tokens(
    request: &RunRequest<'_>,
    state: &StateDir,
    asked: &Call,
    rules: &Rules,
    notices: &dyn Notices,
) -> Result<Option<given::Given>, Failure> {
    let given = given::read(
        request.tokens,
        state,
        asked.run(),
        request.session,
        asked.workspace(),
        &rules.network(),
    )?;
    for told in given::seen_inside(request.tokens, asked.workspace()) {
        notices.warn(told);
    }
    Ok(given)
}
