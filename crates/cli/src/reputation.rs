//! The reputation of an agent, as a person reads it.

use std::time::SystemTime;

use atoll_engine::configuration::Places;
use atoll_engine::failure::Failure;
use atoll_engine::printable::printable;
use atoll_engine::reputation::standing;
use atoll_model::conduct::{REPUTATION_MAX, Standing};
use serde_json::json;

use crate::arguments::ReputationArguments;
use crate::output::Output;
use crate::render::counted;

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
