//! The approval of a run before it is started, where a policy requires one. Any doubt denies.

use atoll_engine::failure::Failure;
use atoll_engine::preview;
use atoll_engine::printable::{printable, quoted};
use atoll_model::{Call, Reason, Verdict};
use atoll_policy::{Facts, Grant, Rules, agreement};

use crate::arguments::RunArguments;
use crate::consent::consent;
use crate::output::Output;

/// Asks the person at the terminal, if policies require approval of this run and somebody is there.
/// The answer is part of the rules from then on: what was approved is what is decided on.
///
/// # Errors
/// When signals cannot be handled.
pub(super) fn ask(
    rules: &mut Rules,
    (call, facts): (&Call, &Facts<'_>),
    arguments: &RunArguments,
    output: &Output,
) -> Result<(), Failure> {
    let can_ask = output.can_ask && !arguments.no_ask;
    if !(can_ask && rules.ask_about_runs()) {
        return Ok(());
    }
    let Verdict::Ask(asked) = preview::<Grant>(rules, call, facts) else {
        return Ok(());
    };
    let agreement = agreement(rules, call, &asked);
    match consent(&rows(call, &asked, &agreement), "start it once", output)? {
        Ok(()) => rules.agree(agreement),
        Err(why) => rules.disagree(why),
    }
    Ok(())
}

/// Returns the rows shown to the person: nothing in them can be a line of its own, or hide.
fn rows(call: &Call, asked: &[Reason], agreement: &str) -> Vec<String> {
    let words = call.command().iter();
    let words = words.map(|word| quoted(word.as_encoded_bytes()));
    let place = quoted(call.directory().as_os_str().as_encoded_bytes());
    let mut rows = vec![
        "Policies ask you before this run is started:".to_owned(),
        format!("  command: {}", words.collect::<Vec<_>>().join(" ")),
        format!("  in: {place}"),
    ];
    rows.extend(asked.iter().map(|one| {
        let text = format!("{}: {} ({})", one.what, one.why, one.rule);
        format!("  {}", printable(text.as_bytes()))
    }));
    rows.push(format!("  digest {agreement}"));
    rows
}
