//! The question at a run's end: whether its changes are applied, kept or discarded.

use atoll_engine::changes::{Changes, LayerChanges};
use atoll_engine::decision::{Afterwards, Decision};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_model::WorkspaceMode;
use atoll_sandbox::Signals;
use atoll_store::RunRecord;

use crate::diff::show_diff;
use crate::output::Output;
use crate::render::{Style, counted};
use crate::terminal::{Typed, typed};

/// An answer to the question about a run's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Decided(Decision),
    Diff,
    Help,
    Unknown,
}

impl Answer {
    /// Parses a typed line; an empty one keeps, which changes nothing.
    fn of(line: &str, mode: WorkspaceMode) -> Self {
        let is_live = mode == WorkspaceMode::Live;
        match line.trim().to_ascii_lowercase().as_str() {
            "" | "k" | "keep" => Self::Decided(Decision::Keep),
            "a" | "apply" if !is_live => Self::Decided(Decision::Apply),
            "c" | "caches" if !is_live => Self::Decided(Decision::ApplyWithCaches),
            "x" | "discard" => Self::Decided(Decision::Discard),
            "u" | "undo" if is_live => Self::Decided(Decision::Discard),
            "d" | "diff" => Self::Diff,
            "?" | "h" | "help" => Self::Help,
            _ => Self::Unknown,
        }
    }
}

/// Asks the person, on the terminal, until there is an answer.
///
/// # Errors
/// When a diff that was asked for cannot be read. An input that ends keeps, and so does
/// who interrupts.
pub fn ask(
    record: &RunRecord,
    all: &[LayerChanges],
    groups: &Changes,
    output: &Output,
) -> Result<Decision, Failure> {
    let signals = Signals::take().doing("signals cannot be taken over")?;
    loop {
        output.say(&prompt(record.mode, groups, output));
        let Typed::Line(line) = typed(&signals, None) else {
            output.say("\n");
            return Ok(Decision::Keep);
        };
        match Answer::of(&line, record.mode) {
            Answer::Decided(decision) => return Ok(decision),
            Answer::Diff => show_diff(all, output)?,
            Answer::Help => output.say(help(record.mode)),
            Answer::Unknown => output.say(&format!(
                "\"{}\" is no answer here; ? explains them.\n",
                printable(line.trim().as_bytes())
            )),
        }
    }
}

fn prompt(mode: WorkspaceMode, groups: &Changes, output: &Output) -> String {
    let paint = output.error_paint;
    let key = |text: &str| format!("[{}]", paint.style(Style::Command, text));
    let (d, k, x, help) = (key("d"), key("K"), key("x"), key("?"));
    match mode {
        WorkspaceMode::Live => {
            let question = paint.style(Style::Strong, "Keep the changes?");
            format!("{question} {d}iff, {k}eep, {x} take back, {help} help: ")
        }
        WorkspaceMode::CopyOnWrite | WorkspaceMode::ReadOnly => {
            let question = paint.style(Style::Strong, "Apply the changes?");
            let caches = match groups.caches.total() {
                0 => String::new(),
                more => {
                    let more = counted(more, "cache change", "cache changes");
                    format!("{} with {more}, ", key("c"))
                }
            };
            format!(
                "{question} {d}iff, {}pply, {caches}{k}eep, {x} discard, {help}: ",
                key("a")
            )
        }
    }
}

fn help(mode: WorkspaceMode) -> &'static str {
    match mode {
        WorkspaceMode::Live => {
            "  d  show what changed, and ask again
  k  leave it in the workspace; atoll undo takes it back later (Enter does this)
  x  take it back now, and forget the run
"
        }
        WorkspaceMode::CopyOnWrite | WorkspaceMode::ReadOnly => {
            "  d  show what changed, and ask again
  a  write it to the workspace; atoll undo takes it back. Control files, caches
     and what git ignores stay out: atoll apply --help tells of these
  c  the same, with package and build caches
  k  leave the workspace as it is and decide later (Enter does this)
  x  throw it away, for good
"
        }
    }
}

/// Returns a line on the outcome of the changes, after a question.
pub fn said(output: &Output, record: &RunRecord, afterwards: Afterwards) -> String {
    let run = &record.run;
    let what = match afterwards {
        Afterwards::Undecided => return String::new(),
        Afterwards::Kept => format!("Kept. `atoll apply {run}` writes them to your files."),
        Afterwards::Applied => format!("Applied. `atoll undo {run}` takes them back."),
        Afterwards::PartlyApplied => {
            format!(
                "Applied in part. `atoll diff {run}` shows all; `atoll undo {run}` takes them back."
            )
        }
        Afterwards::Discarded if record.mode == WorkspaceMode::Live => {
            format!("Taken back. `atoll why {run}` still shows what it did.")
        }
        Afterwards::Discarded => {
            format!("Discarded. `atoll why {run}` still shows what it did.")
        }
        Afterwards::Live => format!("In the workspace. `atoll undo {run}` takes them back."),
    };
    format!(
        "{} {what}\n",
        output.error_paint.style(Style::Faint, "atoll:")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood_and_nothing_keeps() {
        use WorkspaceMode::{CopyOnWrite, Live};
        for (line, mode, expected) in [
            ("\n", CopyOnWrite, Answer::Decided(Decision::Keep)),
            (" K \n", CopyOnWrite, Answer::Decided(Decision::Keep)),
            ("apply\n", CopyOnWrite, Answer::Decided(Decision::Apply)),
            (
                "c\n",
                CopyOnWrite,
                Answer::Decided(Decision::ApplyWithCaches),
            ),
            ("c\n", Live, Answer::Unknown),
            ("X\n", CopyOnWrite, Answer::Decided(Decision::Discard)),
            ("diff\n", CopyOnWrite, Answer::Diff),
            ("?\n", Live, Answer::Help),
            ("yes\n", CopyOnWrite, Answer::Unknown),
            ("u\n", CopyOnWrite, Answer::Unknown),
            ("u\n", Live, Answer::Decided(Decision::Discard)),
            ("a\n", Live, Answer::Unknown),
            ("\n", Live, Answer::Decided(Decision::Keep)),
        ] {
            assert_eq!(Answer::of(line, mode), expected, "{line:?}");
        }
    }
}
