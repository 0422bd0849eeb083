//! `atoll kept`: the changes that runs of a profile keep from one to the next, reviewed and applied
//! apart from the changes of any one run.

use atoll_engine::changes;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::kept_changes::{self, Undoing, open_all, writable};
use atoll_layer::{DiffOptions, Selection, write_diff};
use serde_json::json;

use crate::arguments::{
    ApplyKeptArguments, DiffKeptArguments, KeptAction, KeptArguments, UndoKeptArguments,
};
use crate::diff::{changes_json, page, refused_there, write_stat};
use crate::output::Output;
use crate::status::status_of;
use crate::undo_report;

mod listed;

use listed::list;

/// Carries one of the commands out.
pub fn kept(arguments: &KeptArguments, output: &Output) -> Result<u8, Failure> {
    match &arguments.action {
        None => list(arguments.json, output),
        Some(KeptAction::List(arguments)) => list(arguments.json, output),
        Some(KeptAction::Diff(arguments)) => diff(arguments, output),
        Some(KeptAction::Apply(arguments)) => apply(arguments, output),
        Some(KeptAction::Undo(arguments)) => undo(arguments, output),
        Some(KeptAction::Discard(arguments)) => discard(&arguments.name, output),
    }
}

fn diff(arguments: &DiffKeptArguments, output: &Output) -> Result<u8, Failure> {
    let state = writable()?;
    let mut told = Vec::new();
    let (mut text, mut refused) = (Vec::new(), String::new());
    for one in open_all(&state, &arguments.name, output)? {
        let all = one.changes()?;
        if arguments.json {
            let mut object = changes_json(&all);
            if let Some(members) = object.as_object_mut() {
                members.insert("name".to_owned(), json!(one.layer.name().as_str()));
                members.insert("profile".to_owned(), json!(one.record.profile));
            }
            told.push(object);
            continue;
        }
        refused.push_str(&refused_there(&all, &[]));
        for part in &all {
            if arguments.stat {
                write_stat(part, &part.set, &[], output, &mut text);
                continue;
            }
            let options = DiffOptions {
                place: changes::place_of(part),
                colour: output.paint.is_on(),
                ..DiffOptions::default()
            };
            write_diff(&part.paths, &part.set, &[], &mut text, &options)
                .doing("no diff could be made")?;
        }
    }
    if arguments.json {
        output.json(&json!(told));
        return Ok(0);
    }
    if text.is_empty() {
        output.say("Nothing there differs from what is outside.\n");
    } else if arguments.no_pager || !output.is_terminal {
        output.result(&String::from_utf8_lossy(&text));
    } else {
        page(&text, output);
    }
    output.say(&refused);
    Ok(0)
}

fn apply(arguments: &ApplyKeptArguments, output: &Output) -> Result<u8, Failure> {
    let selection = Selection {
        control: arguments.control,
        caches: true,
        ignored: true,
        force: arguments.force,
        ..Selection::default()
    };
    let extent = kept_changes::apply_kept(&arguments.name, &selection, output)?;
    let undo = format!("`atoll kept undo {}` takes it back", arguments.name);
    output.say(&match (extent.steps, extent.is_left_out) {
        (0, false) => "There was nothing to apply.\n".to_owned(),
        (0, true) => "Nothing was applied.\n".to_owned(),
        (_, false) => format!("Applied. {undo}.\n"),
        (_, true) => format!("Partly applied. {undo}.\n"),
    });
    Ok(status_of(extent))
}

fn undo(arguments: &UndoKeptArguments, output: &Output) -> Result<u8, Failure> {
    let name = &arguments.name;
    let undoing = Undoing {
        name,
        surface: output,
    };
    if arguments.take_back {
        kept_changes::take_undo_back_of(&undoing)?;
        if arguments.json {
            output.json(&json!({ "name": name }));
        }
        output.say("Applied again.\n");
        return Ok(0);
    }
    if arguments.list {
        let report = kept_changes::foresee(&undoing)?;
        undo_report::show(&report, arguments.json, json!({ "name": name }), output);
        return Ok(0);
    }
    let report = kept_changes::undo_kept(&undoing, arguments.force)?;
    if arguments.json {
        output.json(&report.json(json!({ "name": name })));
    }
    output.say(&format!("Taken back{}.\n", undo_report::but_for(&report)));
    Ok(0)
}

fn discard(text: &str, output: &Output) -> Result<u8, Failure> {
    kept_changes::discard(text, output, |name, was_applied| {
        output.say(&match was_applied {
            false => format!("{name} is discarded.\n"),
            true => format!(
                "{name} is discarded; what was applied of it can no longer be taken back.\n"
            ),
        });
    })?;
    Ok(0)
}
