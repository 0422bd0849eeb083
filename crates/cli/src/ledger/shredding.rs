//! The retention of sealed content: shredded on request or by its age, held where it must stay.

use std::time::SystemTime;

use atoll_engine::artifacts::destroy_shredded;
use atoll_engine::configuration::Places;
use atoll_engine::events::{seals, shredded};
use atoll_engine::failure::{Doing, Failure, Kind};
use atoll_ledger::{Evidence, Ledger, ShredError, Shredded, StateDir};
use atoll_model::{RunId, parse_duration};
use serde_json::Value;

use crate::arguments::{HoldLedgerArguments, ShredLedgerArguments};
use crate::meant::Meant;
use crate::output::Output;
use crate::render;

/// The most runs an error names.
const NAMED_MAX: usize = 5;

/// Destroys keys.
pub fn shred(
    read: &StateDir,
    arguments: &ShredLedgerArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let state = Places::read()?.open_state()?;
    let ledger = atoll_engine::events::open_ledger(&state)?;
    let meant = arguments.what.as_deref();
    let meant = meant.map(|what| Meant::find(read, what, Some(output)));
    let meant = meant.transpose()?;
    let done = match (&meant, &arguments.older_than) {
        (Some(meant), _) => ledger.shred(&meant.what),
        (None, age) => {
            let age = age.as_deref().unwrap_or_default();
            let age = parse_duration(age)
                .doing("--older-than is not usable")
                .map_err(|failure| failure.advise("atoll ledger shred --older-than 90d"))?;
            let before = SystemTime::now().checked_sub(age);
            ledger.shred_older(before.unwrap_or(SystemTime::UNIX_EPOCH))
        }
    };
    let done = done.map_err(|error| {
        let failure = Failure::new("nothing more is shredded").because(&error);
        match error {
            ShredError::Ledger(error) => failure.advise(error),
            ShredError::Private(_) | ShredError::Gone(_) => failure,
        }
    })?;
    match destroy_shredded(&state)? {
        0 => {}
        runs => output.say(&format!(
            "Destroyed: content of artifacts of {}, and undo notes.\n",
            render::counted(runs, "run or session", "runs and sessions")
        )),
    }
    tell(&done, meant.as_ref(), output)
}

fn tell(done: &Shredded, meant: Option<&Meant>, output: &Output) -> Result<u8, Failure> {
    let count = |runs: &[RunId]| render::counted(runs.len() as u64, "run", "runs");
    let is_nothing = done.runs.is_empty() && done.held.is_empty() && done.living.is_empty();
    if let Some(meant) = meant.filter(|_| is_nothing) {
        return Err(
            Failure::new(format!("nothing of {} is shredded", meant.name))
                .because(
                    "there is no key of it: it was shredded before, or nothing of it is sealed",
                )
                .advise("`atoll ledger query --type seal.shredded` lists what was"),
        );
    }
    let of = meant.map_or_else(String::new, |meant| format!(" ({})", meant.name));
    if !done.runs.is_empty() || meant.is_none() {
        output.say(&format!(
            "What was sealed of {}{of} can be read by nobody any more.\n",
            count(&done.runs)
        ));
    }
    let kept = [
        (
            &done.held,
            "is held",
            "atoll ledger release WHAT ends a hold",
        ),
        (
            &done.living,
            "goes on",
            "wait for its end, or atoll stop it",
        ),
    ];
    let kept = kept.into_iter().filter(|(runs, _, _)| !runs.is_empty());
    let Some(meant) = meant else {
        for (runs, why, advice) in kept {
            let runs = count(runs);
            output.say(&format!("Kept, since it {why}: {runs}; {advice}.\n"));
        }
        return Ok(0);
    };
    let mut whys = Vec::new();
    let much = if done.runs.is_empty() {
        "nothing"
    } else {
        "not all"
    };
    let mut failure = Failure::new(format!("{much} of {} is shredded", meant.name));
    for (runs, why, advice) in kept {
        let told = runs.iter().take(NAMED_MAX).map(RunId::as_str);
        let further = match runs.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            further => format!(" and {further} more"),
        };
        let told = told.collect::<Vec<_>>().join(", ");
        let each = if runs.len() == 1 { "run" } else { "each of" };
        whys.push(format!("{each} {told}{further} {why}"));
        failure = failure.advise(advice);
    }
    match whys.is_empty() {
        true => Ok(0),
        false => Err(failure.because(format!("{}: its sealed content remains", whys.join("; ")))),
    }
}

/// Sets a hold, or releases it.
pub fn hold(
    read: &StateDir,
    arguments: &HoldLedgerArguments,
    on: bool,
    output: &Output,
) -> Result<u8, Failure> {
    let meant = Meant::find(read, &arguments.what, None)?;
    let state = Places::read()?.open_state()?;
    let ledger = atoll_engine::events::open_ledger(&state)?;
    let name = meant.name;
    ledger.hold(&meant.what, on).map_err(|error| {
        let failure = Failure::new("the hold is not set").because(&error);
        match error {
            ShredError::Gone(run) => failure.advise(format!(
                "atoll data about {run} lists what is left of it, none of which is held"
            )),
            ShredError::Ledger(_) | ShredError::Private(_) => failure,
        }
    })?;
    output.say(&match on {
        true => format!("Held: {name}. Nothing of it is removed until it is released.\n"),
        false => format!("Released: {name}.\n"),
    });
    if let (Evidence::Run(run), true) = (&meant.what, on) {
        tell_gone(&state, run, output)?;
    }
    Ok(0)
}

/// Tells what of a run was removed before it was held.
fn tell_gone(state: &StateDir, run: &RunId, output: &Output) -> Result<(), Failure> {
    let mut gone = Vec::new();
    for event in Ledger::show(state, run).doing("the ledger cannot be read")? {
        let event = event.doing("the ledger is damaged there")?;
        let kind = event.body.get("kind").and_then(Value::as_str);
        match event.kind.as_str() {
            "run.collected" => gone.push("changes"),
            "checkpoint.discarded" => gone.push("checkpoint"),
            "data.removed" if kind == Some("artifacts") => gone.push("artifacts"),
            "data.removed" => gone.push("other data"),
            _ => {}
        }
    }
    gone.dedup();
    if !gone.is_empty() {
        let gone = gone.join(", ");
        output.say(&format!("Removed before, and not held: {gone}.\n"));
    }
    Ok(())
}

/// Says how many runs are shredded, and that their keys are gone.
///
/// # Errors
/// When the key of one is there.
pub fn proven(state: &StateDir) -> Result<String, Failure> {
    let shredded = shredded(state)?;
    if shredded.is_empty() {
        return Ok(String::new());
    }
    let told = |runs: usize| render::counted(runs as u64, "run", "runs");
    let all = told(shredded.len());
    // Whoever verifies needs no keys.
    let Ok(seals) = seals(state) else {
        return Ok(format!(
            "The sealed content of {all} is on record as shredded; the keys cannot be read.\n"
        ));
    };
    let mut left = shredded.iter().filter(|run| seals.is_kept(run)).peekable();
    let Some(first) = left.peek().copied() else {
        return Ok(format!(
            "The sealed content of {all} is shredded: keys gone, digests there.\n"
        ));
    };
    let what = format!("the keys of {} are there again", told(left.count()));
    Err(Failure::new(what)
        .because("they are on record as destroyed, and were put back, as from a backup")
        .advise(format!("atoll ledger shred {first} destroys one anew"))
        .of_kind(Kind::Unproven))
}
