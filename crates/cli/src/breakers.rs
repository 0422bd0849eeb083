//! `atoll breakers`.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use atoll_engine::configuration::Places;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_engine::sandboxes::Engine;
use atoll_launcher::LAUNCHER;
use atoll_tools::{Registry, State, ToolSwitches};
use serde_json::{Value, json};

use crate::arguments::{
    BreakersAction, BreakersArguments, ListBreakersArguments, SetBreakerArguments,
};
use crate::output::Output;

/// Carries out `atoll breakers`.
///
/// # Errors
/// When the breakers cannot be read, or the one cannot be set.
pub fn breakers(arguments: &BreakersArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let tools = ToolSwitches::new(&places.config, &places.state);
    match &arguments.action {
        BreakersAction::List(arguments) => list(&tools, arguments, output)?,
        BreakersAction::Trip(arguments) => set(&tools, arguments, true, output)?,
        BreakersAction::Reset(arguments) => set(&tools, arguments, false, output)?,
    }
    Ok(0)
}

fn list(
    tools: &ToolSwitches,
    arguments: &ListBreakersArguments,
    output: &Output,
) -> Result<(), Failure> {
    let mut all: BTreeMap<String, State> = BTreeMap::new();
    if arguments.all {
        let closed = tools.registry().counted().into_iter();
        all.extend(closed.map(|of| (of, State::Closed)));
    }
    let states = tools.guard().states();
    all.extend(states.doing("the breakers cannot be read")?);
    if arguments.json {
        let all = all.iter().map(|(of, state)| {
            json!({ "of": of, "state": state.name(), "trial_in_seconds": trial_in(state) })
        });
        output.json(&json!(all.collect::<Vec<Value>>()));
        return Ok(());
    }
    if all.is_empty() {
        output.say("Every breaker is closed.\n");
    }
    let width = all.keys().map(String::len).max().unwrap_or_default();
    for (of, state) in &all {
        let trial = trial_in(state).map(|seconds| format!(", a trial in {seconds} s"));
        let of = printable(of.as_bytes());
        output.result(&format!(
            "{of:width$}  {}{}\n",
            state.name(),
            trial.unwrap_or_default()
        ));
    }
    Ok(())
}

/// Returns the time until the next trial, seconds.
fn trial_in(state: &State) -> Option<u64> {
    let State::Open { until, .. } = state else {
        return None;
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(until.saturating_sub(now.as_secs()))
}

fn set(
    tools: &ToolSwitches,
    arguments: &SetBreakerArguments,
    trips: bool,
    output: &Output,
) -> Result<(), Failure> {
    let of = named(tools, &arguments.of)?;
    let state = if trips { "tripped" } else { "closed" };
    let engine = Engine::open(LAUNCHER)?;
    let why = arguments.why.as_deref();
    // Recorded before it counts.
    engine.record_breaker(None, &of, state, why)?;
    let before = tools.guard().set(&of, trips);
    let before = before.doing("the breaker cannot be set")?;
    let of = printable(of.as_bytes());
    output.say(&format!(
        "The breaker of {of} is {state}; it was {}.\n",
        before.name()
    ));
    Ok(())
}

/// Returns what a breaker goes by.
fn named(tools: &ToolSwitches, name: &str) -> Result<String, Failure> {
    let registry: &Registry = &tools.registry();
    let of_upstream = || registry.upstream(name).map(|_| format!("upstream {name}"));
    let of_tool = registry.tool(name).map(|tool| tool.counted());
    if let Some(of) = of_tool.or_else(of_upstream) {
        return Ok(of);
    }
    let states = tools.guard().states();
    let is_there = states
        .doing("the breakers cannot be read")?
        .contains_key(name);
    match is_there || registry.counted().contains(name) || name.starts_with("caller ") {
        true => Ok(name.to_owned()),
        false => {
            let what = format!(
                "nothing has a breaker by the name of {}",
                printable(name.as_bytes())
            );
            Err(Failure::new(what).advise("atoll breakers list --all"))
        }
    }
}
