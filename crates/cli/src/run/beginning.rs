//! The start of a run: its credentials, and the facts about the runs before it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;

use atoll_engine::configuration::Places;
use atoll_engine::failure::Failure;
use atoll_engine::given_up_of_session;
use atoll_engine::printable::printable;
use atoll_engine::tokens::given;
use atoll_engine::{credentials, ssh_keys};
use atoll_ledger::{Ledger, StateDir};
use atoll_model::{Call, SessionId};
use atoll_policy::{HostFacts, Rules};
use atoll_sandbox::{Handover, SshHandover};
use atoll_store::RunRecord;

use crate::arguments::RunArguments;
use crate::output::Output;
use crate::reputation;

/// Returns the session it is a part of, which begins with its first run.
pub(super) fn session(
    arguments: &RunArguments,
    state: &StateDir,
    ledger: &Ledger,
    now: SystemTime,
) -> Result<Option<SessionId>, Failure> {
    let named = arguments.session.as_deref();
    named
        .map(|name| atoll_engine::finding::sessions::begin(name, state, ledger, now))
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
fn tell_given_up(state: &StateDir, session: &SessionId, output: &Output) -> Result<(), Failure> {
    let given_up = given_up_of_session(state, session).map_err(|error| {
        Failure::new("the ledger cannot tell what earlier runs have given up")
            .because(&error)
            .advise(error)
    })?;
    let all: Vec<String> = given_up.iter().map(|one| one.told()).collect();
    if !all.is_empty() {
        let told = all.join("; ");
        output.say(&format!(
            "atoll: the session has given up {}, for good: this run goes without (atoll sessions shows it)\n",
            printable(told.as_bytes())
        ));
    }
    Ok(())
}

/// Takes over the labels, dropped rights and reputation from earlier runs.
pub(super) fn recall(
    rules: &mut Rules,
    (state, now): (&StateDir, SystemTime),
    (session, resume): (&Option<SessionId>, &Option<RunRecord>),
    output: &Output,
) -> Result<(), Failure> {
    if let Some(session) = session {
        tell_given_up(state, session, output)?;
    }
    rules.take_labels(labels(state, session.as_ref(), resume.as_ref())?);
    reputation::take(rules, state, now, output);
    Ok(())
}

/// The credentials for other processes than the program, and the placeholders for the program.
pub(super) struct Handed {
    pub(super) handover: Option<Handover>,
    pub(super) signing: Option<SshHandover>,
    pub(super) words: credentials::Words,
}

/// Reads the credentials and SSH keys for the processes that use them, and the program's
/// environment, which has only placeholders.
pub(super) fn handed(
    arguments: &RunArguments,
    rules: &Rules,
    (places, host): (&Places, &HostFacts),
    workspace: &Path,
    output: &Output,
) -> Result<Handed, Failure> {
    let mut handover = credentials::read(rules, places, (workspace, arguments.login()), output)?;
    let hint = credentials::hint(rules, &arguments.command, handover.as_ref());
    if let Some(hint) = hint.filter(|_| arguments.login().is_none()) {
        output.say(&format!("atoll: {}\n", printable(hint.as_bytes())));
    }
    let signing = ssh_keys::read(rules, places, &host.home, workspace, output)?;
    let session = arguments
        .session
        .as_ref()
        .map(|name| format!("--session={name}").into());
    let options = arguments.boundary_options().into_iter().chain(session);
    let options: Vec<OsString> = options.collect();
    let asked = credentials::Asked {
        command: &arguments.command,
        options: &options,
    };
    let words = credentials::told(handover.as_mut(), rules, asked, output)?;
    atoll_egress::secret::erase_stack();
    Ok(Handed {
        handover,
        signing,
        words,
    })
}

/// Returns the tokens of the run.
pub(super) fn given_tokens(
    arguments: &RunArguments,
    state: &StateDir,
    asked: &Call,
    (rules, output): (&Rules, &Output),
) -> Result<Option<given::Given>, Failure> {
    let given = given::read(
        &arguments.token,
        state,
        &asked.run,
        arguments.session.as_deref(),
        &asked.workspace,
        &rules.network(),
    )?;
    for told in given::seen_inside(&arguments.token, &asked.workspace) {
        output.warn(&told);
    }
    Ok(given)
}
