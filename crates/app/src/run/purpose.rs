//! What a run is for, where the runs before it have said so: a session keeps its purpose, and so do
//! layers that another run goes on in.

use std::borrow::Cow;
use std::collections::BTreeSet;

use atoll_store::{Ledger, LedgerError, RunRecord, StateDir};

use crate::arguments::RunArguments;
use crate::failure::Failure;
use crate::{advice, sessions};

/// The arguments with the purpose of the session that the run is of, or of the run whose layers it
/// goes on in.
///
/// # Errors
/// Where the person states another one, or the ledger cannot tell.
pub(super) fn kept<'a>(
    arguments: &'a RunArguments,
    state: &StateDir,
    resume: Option<&RunRecord>,
) -> Result<Cow<'a, RunArguments>, Failure> {
    let mut earlier = BTreeSet::new();
    if let Some(named) = &arguments.session
        && let Some(session) = sessions::known(state, named)?
    {
        earlier.extend(Ledger::session_purposes(state, &session).map_err(unknown)?);
    }
    if let Some(record) = resume {
        earlier.extend(Ledger::run_purposes(state, &record.run).map_err(unknown)?);
    }
    let own = arguments.purpose.as_ref();
    let mut others = earlier.iter().filter(|one| Some(*one) != own);
    match (own, others.next(), others.next()) {
        (_, None, _) => Ok(Cow::Borrowed(arguments)),
        (None, Some(purpose), None) => Ok(Cow::Owned(RunArguments {
            purpose: Some(purpose.clone()),
            ..arguments.clone()
        })),
        (own, Some(purpose), _) => Err(refused(own, purpose)),
    }
}

fn refused(own: Option<&String>, purpose: &str) -> Failure {
    let what = match own {
        Some(own) => format!("this run cannot be for {own:?}"),
        None => "it is not clear what this run is for".to_owned(),
    };
    Failure::new(what)
        .because(format!(
            "what it goes on with is for {purpose:?}, and a session has one purpose"
        ))
        .advise("begin another session, or a run without --resume, for another purpose")
}

fn unknown(error: LedgerError) -> Failure {
    Failure::new("the ledger cannot tell what earlier runs were for")
        .because(&error)
        .advise(advice::ledger(&error))
}
