//! The approval of a run before it is started, where a policy requires one. Any doubt denies.

use std::time::{Duration, Instant};

use atoll_engine::failure::{Doing, Failure};
use atoll_engine::preview;
use atoll_engine::printable::{printable, quoted};
use atoll_model::{Call, Reason, Verdict};
use atoll_policy::{Facts, Grant, Rules, agreement};
use atoll_sandbox::Signals;

use crate::arguments::RunArguments;
use crate::output::Output;
use crate::terminal::{self, Pages, Read, Typed};

/// The time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

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
    let signals = Signals::take().doing("signals cannot be taken over")?;
    let said = match Pages::of(&rows(call, &asked, &agreement)) {
        None => Err("the command is longer than anybody reads"),
        // A terminal that is gone says no.
        Some(pages) => answer(&pages, &signals, output).unwrap_or(Err(terminal::UNASKED)),
    };
    match said {
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

/// Returns the person's answer, or why there is none.
fn answer(
    pages: &Pages,
    signals: &Signals,
    output: &Output,
) -> Result<Result<(), &'static str>, Failure> {
    const LATE: &str = "nobody answered in time";
    const LEFT: &str = "there was no answer";
    const NO: &str = "you said no";
    let until = Instant::now() + PATIENCE;
    match pages.show(signals, until, output)? {
        Read::All => {}
        Read::Denied => return Ok(Err(NO)),
        Read::Left => return Ok(Err(LEFT)),
        Read::Late => return Ok(Err(LATE)),
    }
    loop {
        if !terminal::settle(until).doing(terminal::UNASKED)? {
            return Ok(Err(LATE));
        }
        output.say("A letter, then Enter: o start it once, d deny: ");
        let line = match terminal::typed(signals, Some(until)) {
            Typed::Line(line) => line,
            Typed::Late => return Ok(Err(LATE)),
            Typed::Left => return Ok(Err(LEFT)),
        };
        match line.trim().to_ascii_lowercase().as_str() {
            "o" => return Ok(Ok(())),
            "d" => return Ok(Err(NO)),
            _ => output.say("That is none of these.\n"),
        }
    }
}
