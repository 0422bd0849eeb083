//! `atoll checkpoint` and `atoll restore`.

use std::time::{Duration, UNIX_EPOCH};

use atoll_checkpoint::{Change, Difference, Origin, Overwrite};
use atoll_engine::checkpoints::{Changed, Checkpoint, Checkpoints, Taking, targets};
use atoll_engine::configuration::Places;
use atoll_engine::events::open_ledger;
use atoll_engine::failure::{Failure, Kind};
use atoll_engine::held::{holds, refuse_held};
use atoll_engine::printable::{printable, quoted};
use atoll_ledger::{Ledger, StateDir, format_time};
use atoll_model::Reason;
use serde_json::{Value, json};

use crate::arguments::{CheckpointAction, CheckpointArguments, RestoreArguments};
use crate::consent::consent;
use crate::output::Output;
use crate::render::counted;

/// The most lines about one restore.
const LINES_MAX: usize = 40;

fn opened() -> Result<(StateDir, Ledger), Failure> {
    let state = Places::read()?.open_state()?;
    let ledger = open_ledger(&state)?;
    Ok((state, ledger))
}

/// Carries out `atoll checkpoint`.
///
/// # Errors
/// When one cannot be taken, read or freed.
pub fn checkpoint(arguments: &CheckpointArguments, output: &Output) -> Result<u8, Failure> {
    let (state, ledger) = opened()?;
    let checkpoints = Checkpoints {
        state: &state,
        ledger: &ledger,
    };
    match &arguments.action {
        CheckpointAction::Take(arguments) => {
            let taken = checkpoints.take(Taking {
                targets: &targets(&arguments.targets)?,
                why: arguments.why.clone().unwrap_or("a person".to_owned()),
                run: None,
                call: None,
            })?;
            match arguments.json {
                true => output.json(&as_json(&taken)),
                false => output.result(&format!("{}\n", taken.id)),
            }
        }
        CheckpointAction::List(arguments) => {
            let all = checkpoints.list()?;
            if arguments.json {
                output.json(&json!(all.iter().map(as_json).collect::<Vec<Value>>()));
            } else if all.is_empty() {
                output.say("No checkpoints yet. `atoll checkpoint take files:PATH` takes one.\n");
            } else {
                all.iter().for_each(|one| output.result(&line(one)));
            }
        }
        CheckpointAction::Show(arguments) => {
            let one = checkpoints.named(&arguments.id)?;
            let changes = checkpoints.changes(&one)?;
            if arguments.json {
                let mut told = as_json(&one);
                if let Some(told) = told.as_object_mut() {
                    told.insert("changes".to_owned(), json!(changes_json(&changes)));
                }
                output.json(&told);
            } else {
                output.result(&line(&one));
                output.result(&told(&changes, false));
            }
        }
        CheckpointAction::Settle(arguments) => {
            checkpoints.settle(&checkpoints.named(&arguments.id)?)?;
        }
        CheckpointAction::Discard(arguments) => {
            let holds = holds(&state)?;
            for id in &arguments.ids {
                let one = checkpoints.named(id)?;
                refuse_held(&holds, &one.run)?;
                checkpoints.discard(&one)?;
            }
        }
    }
    Ok(0)
}

/// Carries out `atoll restore`. The status is 1 if something that the effect has changed was left.
///
/// # Errors
/// When policies or a person refuse it, or it cannot be done.
pub fn restore(arguments: &RestoreArguments, output: &Output) -> Result<u8, Failure> {
    let (state, ledger) = opened()?;
    let checkpoints = Checkpoints {
        state: &state,
        ledger: &ledger,
    };
    let one = checkpoints.named(&arguments.id)?;
    let changes = checkpoints.changes(&one)?;
    if arguments.dry_run {
        match arguments.json {
            true => output.json(&json!({ "changes": changes_json(&changes) })),
            false => output.result(&told(&changes, arguments.overwrite)),
        }
        return Ok(0);
    }
    if !arguments.json {
        output.say(&told(&changes, arguments.overwrite));
    }
    let overwrite = match arguments.overwrite {
        true => Overwrite::Yes,
        false => Overwrite::No,
    };
    let agrees = |reasons: &[Reason]| agrees(&one, reasons, output);
    let restored = checkpoints.restore(&one, overwrite, &agrees)?;
    let count = restored.restored.iter().map(|(_, names)| names.len());
    let count = count.sum::<usize>() as u64;
    let conflicts = restored
        .left
        .iter()
        .filter(|(_, left)| left.origin != Some(Origin::Since));
    let is_whole = conflicts.count() == 0;
    if arguments.json {
        let left = restored.left.iter().map(|(target, left)| {
            json!({ "target": target.to_string(), "name": left.name, "why": left.why })
        });
        output.json(&json!({
            "restored": count,
            "left": left.collect::<Vec<Value>>(),
            "kept": restored.kept.as_ref().map(|kept| &kept.id),
        }));
        return Ok(u8::from(!is_whole));
    }
    let things = counted(count, "thing is", "things are");
    output.say(&format!("{things} restored.\n"));
    for (target, left) in restored.left.iter().take(LINES_MAX) {
        let name = quoted(left.name.as_bytes());
        output.say(&format!("  left alone: {target} {name}: {}\n", left.why));
    }
    if !is_whole && !arguments.overwrite {
        output.say(&format!(
            "atoll restore {} --overwrite restores what the effect has changed, too\n",
            one.id
        ));
    }
    if let Some(kept) = &restored.kept {
        output.say(&format!("atoll restore {} takes this back\n", kept.id));
    }
    Ok(u8::from(!is_whole))
}

/// Asks the person at the terminal. Any doubt denies.
fn agrees(one: &Checkpoint, reasons: &[Reason], output: &Output) -> Result<(), Failure> {
    let lines = reasons.iter().map(|one| {
        let text = format!("{}: {} ({})", one.what, one.why, one.rule);
        printable(text.as_bytes())
    });
    let lines: Vec<String> = lines.collect();
    let denied = |why: &str| {
        Failure::new("policies ask a person before this is restored; nothing was restored")
            .because(format!("{why}\n{}", lines.join("\n")))
            .of_kind(Kind::Denied)
    };
    if !output.can_ask {
        let advice = format!("atoll restore {} at a terminal asks you", one.id);
        return Err(denied("nobody can be asked here").advise(advice));
    }
    let mut rows = vec![format!(
        "You are asked before checkpoint {} is restored:",
        one.id
    )];
    rows.extend(lines.iter().map(|line| format!("  {line}")));
    consent(&rows, "restore it", output)?.map_err(denied)
}

fn line(one: &Checkpoint) -> String {
    let at = format_time(UNIX_EPOCH + Duration::from_millis(one.at_ms));
    let targets: Vec<String> = one.targets.iter().map(ToString::to_string).collect();
    let state = if one.whole { "" } else { "  not whole" };
    let (why, targets) = (printable(one.why.as_bytes()), targets.join(" "));
    format!(
        "{}  {at}  {why}  {}{state}\n",
        one.id,
        printable(targets.as_bytes())
    )
}

/// Describes what differs: first all that is restored.
fn told(changes: &[Changed], overwrite: bool) -> String {
    let is_restored = |change: &Change| match change.origin {
        Origin::Effect => true,
        Origin::Since => false,
        Origin::Both | Origin::Unknown => overwrite,
    };
    let (restored, left): (Vec<_>, Vec<_>) =
        changes.iter().partition(|one| is_restored(&one.change));
    if changes.is_empty() {
        return "Nothing differs from the checkpoint.\n".to_owned();
    }
    let mut text = String::new();
    for (all, title) in [
        (&restored, "changed by the effect alone"),
        (&left, "not restored"),
    ] {
        if all.is_empty() {
            continue;
        }
        text.push_str(&format!("{title}:\n"));
        for one in all.iter().take(LINES_MAX) {
            let name = quoted(one.change.name.as_bytes());
            let (how, why) = (how(&one.change), origin(&one.change));
            text.push_str(&format!("  {how:<9}{}  {name}{why}\n", one.target));
        }
        let more = all.len().saturating_sub(LINES_MAX) as u64;
        if more > 0 {
            let more = counted(more, "other", "others");
            text.push_str(&format!("  and {more}\n"));
        }
    }
    text
}

fn how(change: &Change) -> &'static str {
    match change.difference {
        Difference::Created => "created",
        Difference::Modified => "modified",
        Difference::Removed => "removed",
    }
}

fn origin(change: &Change) -> &'static str {
    match change.origin {
        Origin::Effect => "",
        Origin::Since => " (since, and not by the effect)",
        Origin::Both => " (by the effect, and again since)",
        Origin::Unknown => " (nobody knows by whom: it was not settled)",
    }
}

fn changes_json(changes: &[Changed]) -> Vec<Value> {
    let told = changes.iter().map(|one| {
        json!({
            "target": one.target.to_string(),
            "name": one.change.name,
            "difference": one.change.difference,
            "origin": one.change.origin,
        })
    });
    told.collect()
}

fn as_json(one: &Checkpoint) -> Value {
    json!({
        "id": one.id,
        "at_ms": one.at_ms,
        "why": one.why,
        "run": one.run.as_str(),
        "call": one.call,
        "undoes": one.undoes,
        "whole": one.whole,
        "targets": one.targets.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
