//! `atoll policy learn`: from recorded runs to the least policies that let them go through again.

use std::collections::BTreeSet;
use std::path::PathBuf;

use atoll_engine::configuration::Places;
use atoll_engine::events::seals;
use atoll_engine::explain::recorded::Opening;
use atoll_engine::explain::verdict::Sources;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::learning;
use atoll_engine::printable::printable;
use atoll_ledger::{Event, Filter, Ledger, StateDir, unread};
use atoll_model::RunId;
use atoll_model::network::NetworkRule;
use atoll_policy::{Rules, learnt_cedar};

use crate::arguments::LearnPolicyArguments;
use crate::finding;
use crate::output::Output;
use crate::render::counted;

/// Prints the rules learnt.
pub(crate) fn learn(arguments: &LearnPolicyArguments, output: &Output) -> Result<u8, Failure> {
    let state = Places::read()?.read_state()?;
    let events = events(arguments, &state)?;
    let mut learnt = Learnt::default();
    for event in &events {
        // A path that nobody can read is no path: what is learnt of it would be for others.
        if let Some(why) = event.body.get("path").and_then(unread) {
            return Err(unusable(event, why));
        }
        if event.kind == "run.opened" {
            learnt.run(event)?;
        }
    }
    if learnt.all.is_empty() {
        return Err(Failure::new("there is nothing to learn from")
            .because("none of these runs was started")
            .advise("atoll runs lists those that there are"));
    }
    let used = learning::used(events.iter()).into_iter();
    let used = used.map(|(meant, widened)| NetworkRule {
        to: meant.to,
        way: meant.way,
        requests: meant.requests,
        limits: meant.limits,
        origin: widened.unwrap_or_else(|| "as it was used".to_owned()),
    });
    let all: Vec<(&Rules, &std::path::Path)> = learnt
        .all
        .iter()
        .map(|(rules, workspace)| (rules, workspace.as_path()))
        .collect();
    let text = learnt_cedar(&all, &learnt.started, used.collect());
    let runs = counted(learnt.all.len() as u64, "run", "runs");
    let head = format!(
        "// Learnt from {runs}: {}.\n// What was widened says so. Read it before you put it beside config.toml.\n",
        learnt.names.join(", ")
    );
    let lines = head.lines().chain(text.lines());
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

/// Describes a run that cannot be learnt from.
fn unusable(event: &Event, why: &str) -> Failure {
    let run = event.run.as_ref();
    let name = run.map_or_else(String::new, ToString::to_string);
    Failure::new(format!("nothing can be learnt from run {name}")).because(why)
}

/// The runs read so far.
#[derive(Default)]
struct Learnt {
    all: Vec<(Rules, PathBuf)>,
    started: BTreeSet<String>,
    names: Vec<String>,
}

impl Learnt {
    /// Takes a run that was allowed; others teach nothing.
    fn run(&mut self, event: &Event) -> Result<(), Failure> {
        if event
            .body
            .get("verdict")
            .and_then(|verdict| verdict.as_str())
            != Some("allow")
        {
            return Ok(());
        }
        let name = event
            .run
            .as_ref()
            .map_or_else(String::new, ToString::to_string);
        let unusable = |why: &str| unusable(event, why);
        let opening = Opening::of(event, &crate::requested::of_line).map_err(unusable)?;
        let program = opening.program.to_str();
        let program = program.ok_or_else(|| unusable("its program's name is no text"))?;
        // A policy knows it by its last name.
        let program = program.rsplit('/').next().unwrap_or_default();
        self.started.insert(program.to_owned());
        let sources = Sources::read(&opening.workspace)?;
        let deciders = sources.deciders(&opening.requested, &opening.program)?;
        let rules = deciders.rules.ok_or_else(|| unusable("it has no rules"))?;
        self.all.push((rules, opening.workspace));
        self.names.push(name);
        Ok(())
    }
}
