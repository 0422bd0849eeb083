//! The rule of a profile for its outputs, carried out: scanners look at artifacts, and what is clean is
//! promoted.

use std::collections::BTreeSet;
use std::path::Path;

use atoll_engine::artifacts::{Deciding, kept_by};
use atoll_engine::failure::{Doing, Failure, Kind};
use atoll_engine::sandboxes::Engine;
use atoll_model::{OutputsRule, Reason, RunId};
use atoll_store::{Artifact, Artifacts};

use crate::scanning::{missing, scan, seen};

/// The name of who decides by a rule.
const BY: &str = "rule";
/// The reason that is noted.
const WHY: &str = "the profile's outputs = \"promote\", and every scanner found nothing";

/// An artifact that has met its rule.
#[derive(Debug)]
pub struct Attended {
    /// The artifact, as it was before.
    pub artifact: Artifact,
    /// The reasons why it waits for a person; `None` if it is promoted.
    pub waits: Option<String>,
}

/// Attends to the artifacts whose profile says more than to hold them: those of one run, or all. Nothing
/// is done where another process does it. `program` is as of [`scan`].
///
/// # Errors
/// When they cannot be read, or what was done not be noted; the next time goes on.
pub fn attend(
    engine: &Engine,
    program: &Path,
    run: Option<&RunId>,
) -> Result<Vec<Attended>, Failure> {
    let (state, _) = kept_by(engine);
    let opened = Artifacts::open(state, false).doing(UNREAD)?;
    let Some(store) = opened else {
        return Ok(Vec::new());
    };
    let Some(_alone) = store.attend_alone().doing(UNREAD)? else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    let mut failed = BTreeSet::new();
    loop {
        let mut waiting = store.unattended().doing(UNREAD)?;
        waiting.retain(|one| run.is_none_or(|run| one.origin.run == *run));
        waiting.retain(|one| !failed.contains(&one.id));
        if waiting.is_empty() {
            return Ok(all);
        }
        for artifact in waiting {
            let waits = match met(engine, &store, &artifact, program) {
                Ok(waits) => {
                    store.attended(&artifact).doing("it cannot be noted")?;
                    waits
                }
                // It is in no other's way, and its rule is still to be met.
                Err(failure) => {
                    failed.insert(artifact.id.clone());
                    Some(failure.why.unwrap_or(failure.what))
                }
            };
            all.push(Attended { artifact, waits });
        }
    }
}

const UNREAD: &str = "the artifacts cannot be read";

/// Has an artifact meet its rule; returns why it waits, if it does.
fn met(
    engine: &Engine,
    store: &Artifacts,
    artifact: &Artifact,
    program: &Path,
) -> Result<Option<String>, Failure> {
    if !missing(store, artifact)?.is_empty() {
        scan(engine, store, artifact, None, program)?;
    }
    match (artifact.origin.rule, artifact.origin.interrupted) {
        (OutputsRule::Promote, false) => {}
        (OutputsRule::Promote, true) => return Ok(Some("its run was cut off".to_owned())),
        (OutputsRule::Hold | OutputsRule::Scan, _) => {
            let concerns = seen(store, artifact)?.concerns;
            return Ok(Some(told(&concerns).unwrap_or("clean".to_owned())));
        }
    }
    let (state, ledger) = kept_by(engine);
    let nobody = |_: &[Artifact], reasons: &[Reason]| {
        let why = told(reasons).unwrap_or_default();
        Err(Failure::new("a person decides")
            .because(why)
            .of_kind(Kind::Denied))
    };
    let deciding = Deciding {
        state,
        ledger,
        by: BY,
        why: Some(WHY),
        seen: &|one| seen(store, one),
        agrees: &nobody,
    };
    match deciding.promote(store, std::slice::from_ref(artifact), None) {
        Ok(_) => Ok(None),
        Err(failure) if failure.kind == Kind::Denied => {
            Ok(Some(failure.why.unwrap_or(failure.what)))
        }
        Err(failure) => Err(failure),
    }
}

/// Returns the first of the reasons, and the number of the others.
fn told(reasons: &[Reason]) -> Option<String> {
    let (first, others) = reasons.split_first()?;
    let further = match others.len() {
        0 => String::new(),
        count => format!(", and {count} more"),
    };
    Some(format!("{} ({}){further}", first.why, first.rule))
}
