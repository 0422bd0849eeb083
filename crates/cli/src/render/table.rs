//! The table of `atoll runs`.

use std::ffi::OsString;

use atoll_engine::printable::printable;
use atoll_engine::shell::command_line;
use atoll_model::{Ending, RunId, WorkspaceMode};
use atoll_store::{RunRecord, RunState};

use super::summary::describe_ending;
use super::{Paint, Style, counted, grouped};

/// The least that is shown of a command, however narrow the terminal.
const COMMAND_COLUMNS_MIN: usize = 16;
/// Between columns.
const GAP: &str = "  ";
/// The placeholder of an unknown number, which is not zero.
const UNKNOWN: &str = "-";
/// The state of a run that has not ended.
const RUNNING: &str = "running";

/// One run, as `atoll runs` shows it.
#[derive(Clone, Debug)]
pub struct RunRow {
    /// Its id, which contains its start time.
    pub run: RunId,
    /// The time since its start, in words.
    pub age: String,
    /// The state of its changes: `kept`, `written`, `applied`, `discarded`, `running` …
    pub state: String,
    /// The profile's name.
    pub profile: String,
    /// The program's ending; `None` while it runs, and if nobody saw its end.
    pub ending: Option<Ending>,
    /// The number of violations seen.
    pub attempts: u64,
    /// The number of files it changed; `None` if not known.
    pub files: Option<u64>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// Formats the rows as a table with a heading, commands cut to fit `columns`.
#[must_use]
pub fn runs_table(paint: Paint, rows: &[RunRow], columns: usize) -> String {
    if rows.is_empty() {
        return "no runs\n".to_owned();
    }
    let headings = ["RUN", "AGE", "STATE", "PROFILE", "FILES", "ENDED"].map(str::to_owned);
    let cells: Vec<[String; 6]> = rows.iter().map(cells).collect();
    let mut widths = [0; 6];
    for row in std::iter::once(&headings).chain(&cells) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let taken: usize = widths.iter().map(|width| width + GAP.len()).sum();
    let room = columns.saturating_sub(taken).max(COMMAND_COLUMNS_MIN);

    let heading = padded(&headings, &widths) + "COMMAND";
    let mut shown = paint.style(Style::Strong, &heading) + "\n";
    for (row, cells) in rows.iter().zip(&cells) {
        let style = match row.ending {
            Some(Ending::Exited { status: 0 }) if row.attempts > 0 => Some(Style::Bad),
            Some(Ending::Exited { status: 0 }) => None,
            None if row.state == RUNNING => None,
            Some(_) | None => Some(Style::Bad),
        };
        let text = padded(cells, &widths);
        shown.push_str(&style.map_or(text.clone(), |style| paint.style(style, &text)));
        shown.push_str(&atoll_engine::printable::shortened(
            &command_line(&row.command),
            room,
        ));
        shown.push('\n');
    }
    shown
}

fn cells(row: &RunRow) -> [String; 6] {
    [
        row.run.to_string(),
        printable(row.age.as_bytes()),
        printable(row.state.as_bytes()),
        printable(row.profile.as_bytes()),
        row.files.map_or_else(|| UNKNOWN.to_owned(), grouped),
        ended(row),
    ]
}

fn ended(row: &RunRow) -> String {
    let ending = row
        .ending
        .map_or_else(|| without_ending(&row.state), short_ending);
    match row.attempts {
        0 => ending,
        count => format!("{ending}, {}", counted(count, "attempt", "attempts")),
    }
}

/// Describes a run whose program's end nobody has seen.
fn without_ending(state: &str) -> String {
    match state {
        RUNNING | "interrupted" | "failed" => state.to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// Describes an ending in a few words for a column; the whole sentence is in the summary.
fn short_ending(ending: Ending) -> String {
    match ending {
        Ending::Exited { status: 0 } => "ok".to_owned(),
        Ending::Exited { status } => format!("status {status}"),
        Ending::Limited { .. } => "limit".to_owned(),
        Ending::NotFound => "not found".to_owned(),
        Ending::NotExecutable => "not run".to_owned(),
        Ending::Interrupted => "interrupted".to_owned(),
        Ending::Signalled { .. } => describe_ending(ending).replace("ended by ", ""),
    }
}

fn padded(cells: &[String; 6], widths: &[usize; 6]) -> String {
    cells
        .iter()
        .zip(widths)
        .map(|(cell, &width)| format!("{cell:width$}{GAP}"))
        .collect()
}

/// Returns the state in a word, for JSON: the changes of a live run are not kept apart.
#[must_use]
pub fn state_word(record: &RunRecord) -> String {
    match (record.mode, record.state) {
        (WorkspaceMode::Live, RunState::Kept) => "written".to_owned(),
        (_, state) => state_name(state).replace(' ', "-"),
    }
}

/// Returns the state in words.
pub fn state_name(state: RunState) -> &'static str {
    match state {
        RunState::Running => "running",
        RunState::Kept => "kept",
        RunState::Applied => "applied",
        RunState::PartlyApplied => "partly applied",
        RunState::Discarded => "discarded",
        RunState::Interrupted => "interrupted",
        RunState::Undone => "undone",
        RunState::Failed => "failed",
    }
}
