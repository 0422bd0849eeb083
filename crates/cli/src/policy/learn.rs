//! `atoll policy learn`: from recorded runs to the least policies that let them go through again.

use atoll_engine::configuration::Places;
use atoll_engine::events::seals;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::learning;
use atoll_engine::printable::printable;
use atoll_ledger::{Event, Filter, Ledger, StateDir};
use atoll_model::RunId;

use crate::arguments::LearnPolicyArguments;
use crate::finding;
use crate::output::Output;
use crate::render::counted;

/// Prints the rules learnt.
pub(crate) fn learn(arguments: &LearnPolicyArguments, output: &Output) -> Result<u8, Failure> {
    let state = Places::read()?.read_state()?;
    let events = events(arguments, &state)?;
    let learnt = learning::policies(&events, &crate::requested::of_line)?;
    let runs = counted(learnt.names.len() as u64, "run", "runs");
    let head = format!(
        "// Learnt from {runs}: {}.\n// What was widened says so. Read it before you put it beside config.toml.\n",
        learnt.names.join(", ")
    );
    let lines = head.lines().chain(learnt.text.lines());
    let lines = lines.map(|line| printable(line.as_bytes()) + "\n");
    output.result(&lines.collect::<String>());
    Ok(0)
}

/// Returns the events of the selected runs.
fn events(arguments: &LearnPolicyArguments, state: &StateDir) -> Result<Vec<Event>, Failure> {
    let read = |filter: Filter| -> Result<Vec<Event>, Failure> {
        let seals = seals(state)?;
        let all = Ledger::events(state, filter).doing("the ledger cannot be read")?;
        let opened = all.map(|event| event.map(|event| seals.open(event)));
        opened
            .map(|event| event.doing("the ledger is damaged there"))
            .collect()
    };
    if let Some(session) = &arguments.session {
        let session = Some(atoll_engine::finding::sessions::find(state, session)?.id);
        return read(Filter {
            session,
            ..Filter::default()
        });
    }
    let mut all = Vec::new();
    let mut runs: Vec<RunId> = Vec::new();
    for text in &arguments.runs {
        let run = finding::find_in_ledger(state, text)?;
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    for run in runs {
        all.extend(read(Filter {
            run: Some(run),
            ..Filter::default()
        })?);
    }
    Ok(all)
}
