//! The display of changes: as a diff, a line each, as JSON, and through the person's pager.

use std::io::Write as _;
use std::process::{Command, Stdio};

use atoll_engine::changes::commits::{commits, is_in_git};
use atoll_engine::changes::{self, LayerChanges};
use atoll_engine::configuration::Places;
use atoll_engine::errands;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_engine::supervision::environment_outside;
use atoll_layer::{ChangeKind, ChangeSet, Class, DiffOptions, write_diff};
use atoll_store::LayerKind;
use serde_json::{Value, json};

use crate::left_out::without_bulk;
use crate::output::Output;
use crate::render::{Style, counted};

/// Shows all changes, page by page.
///
/// # Errors
/// When they cannot be read.
pub fn show_diff(all: &[LayerChanges], output: &Output) -> Result<(), Failure> {
    let mut text = Vec::new();
    for one in all.iter().filter(|one| one.layer.kind != LayerKind::Cache) {
        let options = DiffOptions {
            place: changes::place_of(one),
            colour: output.is_terminal,
            ..DiffOptions::default()
        };
        let (of_git, rest) = apart(one, without_bulk(one, false, &[]), &[]);
        write_diff(&one.paths, &rest, &[], &mut text, &options).doing("no diff could be made")?;
        write_commits(one, of_git, &mut text);
    }
    text.extend(refused_there(all, &[]).into_bytes());
    page(&text, output);
    Ok(())
}

/// Returns the form of a diff: escaped for a terminal, exact for anything else.
pub fn diff_options(one: &LayerChanges, output: &Output) -> DiffOptions {
    let place = changes::place_of(one);
    match output.is_terminal {
        true => DiffOptions {
            place,
            colour: output.paint.is_on(),
            ..DiffOptions::default()
        },
        false => DiffOptions::exact(place),
    }
}

/// Lists the changes that no apply takes, a line each.
pub fn refused_there(all: &[LayerChanges], filter: &[atoll_layer::RelativePath]) -> String {
    let mut lines = String::new();
    for one in all {
        for refusal in one.set.refused.iter().chain(&one.set.withheld) {
            let path = &refusal.path;
            if filter.is_empty() || filter.iter().any(|wanted| path.starts_with(wanted)) {
                let name = printable(&changes::shown_path(one, path.as_bytes()));
                lines.push_str(&format!("refused: {name}: {}\n", refusal.why));
            }
        }
    }
    lines
}

/// Lists the changes, a line each.
pub fn write_stat(
    one: &LayerChanges,
    set: &ChangeSet,
    filter: &[atoll_layer::RelativePath],
    output: &Output,
    text: &mut Vec<u8>,
) {
    let (own, changes): (Vec<_>, Vec<_>) = set
        .changes
        .iter()
        .partition(|change| filter.is_empty() && is_in_git(one, change));
    for change in changes {
        if !filter.is_empty() && !filter.iter().any(|wanted| change.path.starts_with(wanted)) {
            continue;
        }
        let (style, sign) = match change.kind {
            ChangeKind::Added => (Style::Good, "A"),
            ChangeKind::Modified => (Style::Notable, "M"),
            ChangeKind::Removed => (Style::Bad, "D"),
            ChangeKind::Mode => (Style::Notable, "P"),
            ChangeKind::Type => (Style::Notable, "T"),
            ChangeKind::Renamed { .. } => (Style::Notable, "R"),
        };
        let class = match change.class {
            Class::Ordinary => String::new(),
            Class::Control => format!("  (control: {})", change.reason.unwrap_or("others run it")),
            Class::Cache => "  (cache)".to_owned(),
            Class::Ignored => "  (ignored)".to_owned(),
        };
        let name = printable(&changes::shown_path(one, change.path.as_bytes()));
        let from = match &change.kind {
            ChangeKind::Renamed { from } => format!("{} → ", printable(from.as_bytes())),
            _ => String::new(),
        };
        text.extend(
            format!("{} {from}{name}{class}\n", output.paint.style(style, sign)).into_bytes(),
        );
    }
    write_commits(one, own.len(), text);
}

/// Takes the files that git itself writes out of a set, unless paths are named. Returns their number,
/// and the rest.
pub fn apart(
    one: &LayerChanges,
    mut set: ChangeSet,
    filter: &[atoll_layer::RelativePath],
) -> (usize, ChangeSet) {
    let before = set.changes.len();
    if filter.is_empty() {
        set.changes.retain(|change| !is_in_git(one, change));
    }
    (before - set.changes.len(), set)
}

/// Lists the commits, and the number of git's own files that stand for them.
pub fn write_commits(one: &LayerChanges, of_git: usize, text: &mut Vec<u8>) {
    if of_git == 0 {
        return;
    }
    for commit in commits(std::slice::from_ref(one)) {
        let (branch, subject) = (printable(&commit.branch), printable(&commit.subject));
        text.extend(format!("# commit on {branch}: {subject}\n").into_bytes());
    }
    let files = counted(of_git as u64, "file of git", "files of git");
    text.extend(
        format!("# {files} not shown: atoll diff --stat RUN .git lists them\n").into_bytes(),
    );
}

/// Returns each change, and each refused one, as JSON.
pub fn changes_json(all: &[LayerChanges]) -> Value {
    let one_change = |one: &LayerChanges, change: &atoll_layer::Change| {
        json!({
            "path": String::from_utf8_lossy(&changes::shown_path(one, change.path.as_bytes())),
            "kind": match change.kind {
                ChangeKind::Added => "added",
                ChangeKind::Modified => "modified",
                ChangeKind::Removed => "removed",
                ChangeKind::Mode => "mode",
                ChangeKind::Type => "type",
                ChangeKind::Renamed { .. } => "renamed",
            },
            "class": match change.class {
                Class::Ordinary => "ordinary",
                Class::Control => "control",
                Class::Cache => "cache",
                Class::Ignored => "ignored",
            },
            "bytes": change.after.as_ref().map(|after| after.bytes),
        })
    };
    let list: Vec<Value> = all
        .iter()
        .flat_map(|one| {
            one.set
                .changes
                .iter()
                .map(move |change| one_change(one, change))
        })
        .collect();
    let refused: Vec<Value> = changes::refusals(all)
        .map(|(path, why)| json!({ "path": String::from_utf8_lossy(&path), "why": why }))
        .collect();
    json!({ "changes": list, "refused": refused })
}

/// Shows a long text through the person's pager, or directly without one.
pub fn page(text: &[u8], output: &Output) {
    // Neither by PATH nor by any other variable a place of a workspace: a program inside may
    // have written a `less` there.
    let written =
        Places::read().and_then(|places| errands::written(&errands::writers(&places, None)));
    let Ok(written) = written else {
        output.result(&String::from_utf8_lossy(text));
        return;
    };
    let environment = environment_outside(&written);
    let mut own = environment.iter().filter(|(name, _)| name == "PAGER");
    let pager = own
        .next()
        .map_or("less".as_ref(), |(_, pager)| pager.as_os_str());
    let mut command = Command::new("/bin/sh");
    // The pager is the person's own setting, and may hold arguments.
    command
        .arg("-c")
        .arg(pager)
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .env("LESS", "FRX")
        .current_dir("/")
        .stdin(Stdio::piped());
    let shown = output
        .is_terminal
        .then(|| command.spawn().ok())
        .flatten()
        .and_then(|mut child| {
            let mut input = child.stdin.take()?;
            // A pager that was left early needs no more.
            let _ = input.write_all(text);
            drop(input);
            child.wait().ok().filter(std::process::ExitStatus::success)
        });
    if shown.is_none() {
        output.result(&String::from_utf8_lossy(text));
    }
}
