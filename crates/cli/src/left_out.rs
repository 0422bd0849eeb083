//! Caches and files that git ignores: what a diff and an apply leave out of them, counted.

use atoll_engine::changes::bulk::LeftOut;
use atoll_engine::changes::{self, LayerChanges};
use atoll_engine::decision::Decision;
use atoll_layer::{ChangeSet, Class, RelativePath, Selection};
use atoll_model::WorkspaceMode;
use atoll_store::{RunRecord, RunState};

use crate::arguments::DiffArguments;
use crate::output::Output;
use crate::render::{self, counted};

/// Returns a line on what the decision at a run's end leaves out; empty where nothing is applied.
pub fn by(decision: Decision, record: &RunRecord, all: &[LayerChanges]) -> String {
    let selection = Selection {
        caches: decision == Decision::ApplyWithCaches,
        ..Selection::default()
    };
    match decision {
        Decision::Apply | Decision::ApplyWithCaches
            if record.mode == WorkspaceMode::CopyOnWrite =>
        {
            told(record, LeftOut::of(all, &selection), false)
        }
        Decision::Apply
        | Decision::ApplyWithCaches
        | Decision::Keep
        | Decision::Discard
        | Decision::Gone => String::new(),
    }
}

/// Returns a line on what an apply has left out, with what applies it; empty where it is nothing.
pub fn told(record: &RunRecord, left: LeftOut, has_paths: bool) -> String {
    let apply = match has_paths {
        true => format!("atoll apply {} PATH…", record.run),
        false => format!("atoll apply {}", record.run),
    };
    let parts = [
        (left.caches, "in caches", "--caches"),
        (left.ignored, "ignored by git", "--ignored"),
    ];
    let parts = parts.iter().filter(|(count, ..)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, what, option)| {
            let count = counted(*count, "change", "changes");
            format!("{count} {what} (`{apply} {option}`)")
        })
        .collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("Left out: {}.\n", parts.join(", ")),
    }
}

/// Caches and ignored files are many and made by tools: they are counted, and
/// shown only where asked for.
pub fn without_bulk(one: &LayerChanges, caches: bool, filter: &[RelativePath]) -> ChangeSet {
    let mut set = one.set.clone();
    if filter.is_empty() && !caches {
        set.changes
            .retain(|change| matches!(change.class, Class::Ordinary | Class::Control));
    }
    set
}

/// Says that a run has changed nothing of what was asked for, and what is in caches or ignored.
pub fn nothing_shown(
    record: &RunRecord,
    all: &[LayerChanges],
    arguments: &DiffArguments,
    filter: &[RelativePath],
) -> String {
    let run = &record.run;
    let applied = match record.state {
        RunState::Applied => Some("applied"),
        RunState::PartlyApplied => Some("applied in part"),
        RunState::Running
        | RunState::Kept
        | RunState::Discarded
        | RunState::Interrupted
        | RunState::Undone
        | RunState::Failed => None,
    };
    let applied = applied.map(|applied| {
        format!(
            "Run {run} is {applied}: the workspace has its changes. `atoll undo {run}` takes them \
             back.\n"
        )
    });
    if !filter.is_empty() {
        let nothing = || "No changes at these paths.\n".to_owned();
        return applied.unwrap_or_else(nothing);
    }
    let none = applied.unwrap_or_else(|| "No workspace changes.\n".to_owned());
    let groups = changes::grouped(all);
    let left = [
        (groups.ignored.total(), "ignored by git"),
        (groups.caches.total(), "in caches"),
    ];
    let left = left.iter().filter(|(total, _)| *total > 0);
    let left: Vec<String> = left
        .map(|(total, name)| format!("{} {name}", render::grouped(*total)))
        .collect();
    match left.is_empty() || arguments.caches {
        true => none,
        false => {
            let none = none.trim_end().trim_end_matches('.');
            format!("{none}; {} (`--caches`)\n", left.join(", "))
        }
    }
}

/// Counts what a diff does not show.
pub fn tell_left_out(
    all: &[LayerChanges],
    arguments: &DiffArguments,
    filter: &[RelativePath],
    output: &Output,
) {
    if arguments.caches || !filter.is_empty() {
        return;
    }
    let groups = changes::grouped(all);
    for (name, group) in [
        ("in caches", &groups.caches),
        ("ignored by git", &groups.ignored),
    ] {
        if group.total() > 0 {
            output.say(&format!(
                "{} {name} not shown: atoll diff --caches\n",
                render::counted(group.total(), "change", "changes")
            ));
        }
    }
}
