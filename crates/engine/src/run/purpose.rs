//! The purpose of a run, where runs before it have stated one: a session keeps its purpose, and so
//! do layers that another run continues.

use std::collections::BTreeSet;

use atoll_ledger::{Ledger, LedgerError, StateDir};
use atoll_policy::EarlierPurposes;
use atoll_store::RunRecord;

use super::RunRequest;
use crate::failure::Failure;
use crate::finding::sessions;

/// Returns the purposes of the runs of the session, and of the run whose layers this one continues.
///
/// # Errors
/// When the person states another purpose, or the ledger cannot be read.
pub fn earlier(
    request: &RunRequest<'_>,
    state: &StateDir,
    resume: Option<&RunRecord>,
) -> Result<EarlierPurposes, Failure> {
    let mut all = Vec::new();
    if let Some(named) = request.session
        && let Some(session) = sessions::known(state, named)?
    {
        all.push(Ledger::session_purposes(state, &session).map_err(unknown)?);
    }
    let mut narrowed = BTreeSet::new();
    if let Some(record) = resume {
        all.push(Ledger::run_purposes(state, &record.run).map_err(unknown)?);
        narrowed.extend(record.purposes.iter().cloned());
    }
    let mut stated = BTreeSet::new();
    for one in all {
        stated.extend(one.stated);
        narrowed.extend(one.narrowed);
    }
    let own = request.purpose;
    let other = stated.iter().find(|one| Some(one.as_str()) != own);
    match other {
        Some(other) if own.is_some() || stated.len() > 1 => Err(refused(own, other)),
        Some(_) | None => Ok(EarlierPurposes {
            stated: stated.into_iter().next(),
            narrowed,
        }),
    }
}

fn refused(own: Option<&str>, purpose: &str) -> Failure {
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
        .advise(error)
}
