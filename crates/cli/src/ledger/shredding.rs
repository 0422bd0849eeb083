//! The retention of sealed content: shredded on request or by its age, held where it must stay.

use std::time::SystemTime;

use atoll_engine::artifacts::destroy_shredded;
use atoll_engine::configuration::Places;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::finding::sessions;
use atoll_engine::printable::printable;
use atoll_ledger::{Evidence, ShredError, Shredded, StateDir};
use atoll_model::{RunId, parse_duration};

use crate::arguments::{HoldLedgerArguments, ShredLedgerArguments};
use crate::finding;
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
            "The content of artifacts of {} is destroyed.\n",
            render::counted(runs, "run", "runs")
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
    ledger
        .hold(&meant.what, on)
        .doing("the hold could not be recorded")?;
    let name = meant.name;
    output.say(&match on {
        true => format!("Held: {name}. Nothing of it is shredded until it is released.\n"),
        false => format!("Released: {name}.\n"),
    });
    Ok(0)
}

/// The run or the session that is meant.
struct Meant {
    what: Evidence,
    /// The name of the run or session.
    name: String,
}

impl Meant {
    /// Finds the run or session; with `asking`, a run of another workspace needs a confirmation.
    fn find(state: &StateDir, text: &str, asking: Option<&Output>) -> Result<Self, Failure> {
        if let Ok(session) = sessions::find(state, text) {
            let name = printable(session.name.as_str().as_bytes());
            return Ok(Self {
                what: Evidence::Session(session.id),
                name: format!("session {name}"),
            });
        }
        let run = finding::find_begun(state, text, asking)?;
        Ok(Self {
            name: format!("run {run}"),
            what: Evidence::Run(run),
        })
    }
}
