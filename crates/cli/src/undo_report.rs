//! The report of an undo, as a person reads it.

use atoll_engine::undo_report::{At, UndoReport, kept, line_of, lines, named, owner_lines};
use serde_json::Value;

use crate::output::Output;
use crate::render;

/// Warns of the paths that force will overwrite.
pub fn warn_of_force(report: &UndoReport, command: &str, output: &Output) {
    if !report.changed.is_empty() {
        let count = render::counted(report.changed.len() as u64, "path", "paths");
        output.warn(&format!(
            "{count} changed since, and will be as before; {}:\n{}",
            kept(command),
            named(&lines(&report.changed), command)
        ));
    }
}

/// Warns of directories that stay since they hold others' files, of later changes that were
/// overwritten, and of changes that were not undone.
pub fn tell(report: &UndoReport, command: &str, output: &Output) {
    for one in &report.stays {
        let holds: Vec<String> = one.holds.iter().map(line_of).collect();
        output.warn(&format!(
            "{} stays, because it holds what was not written by Atoll:\n{}",
            line_of(&one.directory),
            named(&holds, command)
        ));
    }
    let counted = |all: &[At]| render::counted(all.len() as u64, "path", "paths");
    if !report.changed.is_empty() {
        let paths: Vec<String> = report
            .changed
            .iter()
            .map(|one| line_of(&one.path))
            .collect();
        output.warn(&format!(
            "{} had changed since; {command} --take-back brings back what stood there:\n{}",
            counted(&report.changed),
            named(&paths, command)
        ));
    }
    match lines(&report.skipped).as_slice() {
        [] => {}
        [one] => output.warn(&format!("not taken back: {one}")),
        all => output.warn(&format!(
            "{} not taken back:\n{}",
            counted(&report.skipped),
            named(all, command)
        )),
    }
    if !report.owners.is_empty() {
        output.warn(&named(&owner_lines(&report.owners), command));
    }
}

/// Prints the full report, as text or as JSON with further members.
pub fn show(report: &UndoReport, is_json: bool, of: Value, output: &Output) {
    match (is_json, list(report)) {
        (true, _) => output.json(&report.json(of)),
        (false, text) if text.is_empty() => {
            output.say("Nothing changed since, and nothing is in the way.\n");
        }
        (false, text) => output.result(&text),
    }
}

fn list(report: &UndoReport) -> String {
    let mut text = String::new();
    for (what, all) in [
        (
            "changed since; only --force takes it back, and keeps it",
            &report.changed,
        ),
        ("in the way, with --force too", &report.in_the_way),
        ("not taken back, with --force neither", &report.skipped),
    ] {
        if !all.is_empty() {
            text.push_str(&format!("{what}:\n  {}\n", lines(all).join("\n  ")));
        }
    }
    for line in owner_lines(&report.owners) {
        text.push_str(&format!("{line}\n"));
    }
    for one in &report.stays {
        let holds: Vec<String> = one.holds.iter().map(line_of).collect();
        let directory = line_of(&one.directory);
        text.push_str(&format!(
            "{directory} stays, because it holds:\n  {}\n",
            holds.join("\n  ")
        ));
    }
    text
}

/// Returns the words that follow "taken back".
pub fn but_for(report: &UndoReport) -> String {
    match report.skipped.len() as u64 {
        0 => String::new(),
        count => format!(", but for {}", render::counted(count, "path", "paths")),
    }
}
