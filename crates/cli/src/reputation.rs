//! The reputation of an agent from the ledger: computed on the host, where no sandboxed program can
//! influence it.

use std::time::{SystemTime, UNIX_EPOCH};

use atoll_cedar::Case;
use atoll_engine::configuration::{self, Places};
use atoll_engine::failure::Failure;
use atoll_engine::printable::printable;
use atoll_ledger::{Ledger, StateDir};
use atoll_model::conduct::{REPUTATION_MAX, Standing};
use atoll_policy::Rules;
use serde_json::json;

use crate::arguments::ReputationArguments;
use crate::output::Output;
use crate::render::counted;

/// The length of a day, seconds.
const DAY_SECONDS: u64 = 24 * 3600;

/// Returns the standing of a profile's runs; if it cannot be read, that of an unknown agent, with
/// the reason.
pub(crate) fn standing(
    state: &StateDir,
    profile: &str,
    now: SystemTime,
) -> (Standing, Option<String>) {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let today = since.as_secs() / DAY_SECONDS;
    let agent = (configuration::principal().uid, profile);
    match Ledger::conduct(state, agent, today) {
        Ok(Some(conduct)) => (conduct.standing(today), None),
        Ok(None) => {
            let why = "more was recorded lately than is read for it";
            (Standing::default(), Some(why.to_owned()))
        }
        Err(error) => (Standing::default(), Some(error.to_string())),
    }
}

/// Adds the agent's reputation to the rules of a run that begins, if policies ask for it.
pub(crate) fn take(rules: &mut Rules, state: &StateDir, now: SystemTime, output: &Output) {
    if !rules.ask_for_reputation() {
        return;
    }
    let (standing, why) = standing(state, rules.profile(), now);
    if let Some(why) = why {
        output.warn(&format!(
            "the ledger cannot tell how profile {} has behaved, so its reputation is 0: {why}",
            rules.profile()
        ));
    }
    rules.take_reputation(standing.points);
}

/// Adds the reputation to a question that does not state it.
pub(crate) fn state(case: &mut Case, rules: &Rules) {
    if case.reputation.is_some() || !rules.ask_for_reputation() {
        return;
    }
    let state = Places::read().and_then(|places| places.read_state());
    let standing = state.map(|state| standing(&state, rules.profile(), SystemTime::now()).0);
    case.reputation = Some(standing.map_or(0, |standing| standing.points));
}

/// Prints the reputation of the runs by a profile.
pub(crate) fn show(arguments: &ReputationArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let (standing, why) = match places.state.exists() {
        true => standing(&places.read_state()?, &arguments.name, SystemTime::now()),
        false => (Standing::default(), None),
    };
    if arguments.json {
        output.json(&json!({
            "profile": arguments.name,
            "reputation": standing.points,
            "earned": standing.earned,
            "lost": standing.lost,
            "good_runs": standing.good,
            "bad_runs": standing.bad,
            "unknown": why,
        }));
        return Ok(0);
    }
    let Standing {
        points,
        earned,
        lost,
        good,
        bad,
    } = standing;
    let runs = |count: u64| counted(count, "run", "runs");
    let name = &arguments.name;
    let mut text = format!("{name}: {points} of {REPUTATION_MAX}\n");
    match &why {
        Some(why) => text.push_str(&format!("  nothing is known: {why}\n")),
        None => text.push_str(&format!(
            "  {earned} earned by {}, {lost} lost by {}\n",
            runs(good),
            runs(bad)
        )),
    }
    let lines = text.lines().map(|line| printable(line.as_bytes()) + "\n");
    output.result(&lines.collect::<String>());
    Ok(0)
}
