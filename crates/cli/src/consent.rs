//! A person's consent at the terminal, before something is started. Any doubt denies.

use std::time::{Duration, Instant};

use atoll_engine::failure::{Doing, Failure};
use atoll_sandbox::Signals;

use crate::output::Output;
use crate::terminal::{self, Pages, Read, Typed};

/// The time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// Shows these rows to the person, and asks whether to do this, as "start it once". Returns why they
/// have not consented.
///
/// # Errors
/// When signals cannot be handled.
pub fn consent(
    rows: &[String],
    to: &str,
    output: &Output,
) -> Result<Result<(), &'static str>, Failure> {
    let signals = Signals::take().doing("signals cannot be taken over")?;
    Ok(match Pages::of(rows) {
        None => Err("it is longer than anybody reads"),
        // A terminal that is gone says no.
        Some(pages) => answer(&pages, to, &signals, output).unwrap_or(Err(terminal::UNASKED)),
    })
}

/// Returns the person's answer, or why there is none.
fn answer(
    pages: &Pages,
    to: &str,
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
        output.say(&format!("A letter, then Enter: o {to}, d deny: "));
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
