//! Undoing an apply of kept changes, and undoing the undo.

use std::path::PathBuf;
use std::time::SystemTime;

use atoll_layer::{
    ApplyError, JournalState, RelativePath, journal_state, take_back, take_back_preview,
    take_undo_back, undo, undo_preview,
};
use atoll_ledger::{Ledger, StateDir};
use serde_json::json;

use super::applying::Keeping;
use super::{Opened, journals, open_all, writable};
use crate::decision::last_undo::LastUndo;
use crate::decision::others::Others;
use crate::decision::taking_back::cut_short;
use crate::failure::{Doing, Failure};
use crate::notice::Notice;
use crate::promotion::{Allowed, Approver};
use crate::undo_report::UndoReport;

const UNDONE: &str = "what was applied could not be taken back";

/// The undo of what is kept for an argument.
#[derive(Clone, Copy)]
pub struct Undoing<'a> {
    /// The argument: a name, or a profile's.
    pub name: &'a str,
    /// The surface that takes notices, and asks the person.
    pub surface: &'a dyn Approver,
}

/// Undoes what was applied of what is kept, and returns the report.
///
/// # Errors
/// Where nothing was applied, or something changed since and `force` is not set.
pub fn undo_kept(undoing: &Undoing<'_>, force: bool) -> Result<UndoReport, Failure> {
    let state = writable()?;
    let ledger = crate::events::open_ledger(&state)?;
    let mut opened = open_all(&state, undoing.name, undoing.surface)?;
    let command = format!("atoll kept undo {}", undoing.name);
    let allowed = allowed(&state, &ledger, undoing, &opened)?;
    let mut done = Vec::new();
    let mut foreseen = UndoReport::default();
    for (at, one) in opened.iter().enumerate() {
        let was_cut_short = settle_undo(one, &ledger, &command)?;
        let mut applied = Vec::new();
        for journal in journals(&one.layer)?.into_iter().rev() {
            match journal_state(&journal).doing("the journal cannot be read")? {
                JournalState::None | JournalState::Undone => {}
                // What was cut short is the newest: it goes first, whatever follows.
                JournalState::Interrupted => {
                    one.tell(&ledger, "undo.started", json!({}))?;
                    let taken = take_back(&journal)
                        .map_err(|error| not_ended("apply", &error, one, &command))?;
                    let what = json!({ "entries": taken.entries });
                    one.tell(&ledger, "undo.finished", what)?;
                    done.push((at, Vec::new()));
                }
                JournalState::Done => applied.push(journal),
            }
        }
        if !applied.is_empty() {
            let preview = undo_preview(&applied).doing(UNDONE)?;
            foreseen.foresee(&preview, &|path| shown(one, path));
        }
        if was_cut_short || !applied.is_empty() {
            done.push((at, applied));
        }
    }
    if done.is_empty() {
        let what = format!("nothing of {} was applied", undoing.name);
        return Err(Failure::new(what));
    }
    foreseen.settle(&command, force)?;
    if force && !foreseen.changed.is_empty() {
        undoing.surface.notice(Notice::Overwriting {
            report: Box::new(foreseen.clone()),
            command: command.clone(),
        });
    }
    let others: Vec<Others> = opened
        .iter()
        .map(|one| Others::of(|| one.changes()))
        .collect();
    let mut met = UndoReport::default();
    for (at, applied) in &done {
        if let (Some(one), Some(allowed)) = (opened.get(*at), allowed.get(*at)) {
            met = met.and(undo_all(one, allowed, applied, force, &ledger)?);
        }
    }
    undoing.surface.notice(Notice::Undone {
        report: Box::new(met.clone()),
        command,
    });
    for ((at, one), others) in opened.iter_mut().enumerate().zip(&others) {
        if done.iter().any(|(of, _)| *of == at) && !others.stand() {
            one.forget_conflicts(SystemTime::now())?;
        }
    }
    Ok(met)
}

/// Returns the report that an undo would give now, or that of the last one.
///
/// # Errors
/// Where nothing was applied.
pub fn foresee(undoing: &Undoing<'_>) -> Result<UndoReport, Failure> {
    let state = writable()?;
    let opened = open_all(&state, undoing.name, undoing.surface)?;
    let mut met = UndoReport::default();
    let mut is_any = false;
    for one in &opened {
        let mut applied = Vec::new();
        for journal in journals(&one.layer)?.into_iter().rev() {
            if journal_state(&journal).doing("the journal cannot be read")? == JournalState::Done {
                applied.push(journal);
            }
        }
        if !applied.is_empty() {
            let preview = undo_preview(&applied).doing(UNDONE)?;
            met.foresee(&preview, &|path| shown(one, path));
            is_any = true;
        } else if let Some(last) = LastUndo::read(&one.layer.journals())? {
            met = met.and(last.met);
            is_any = true;
        }
    }
    if !is_any {
        return Err(Failure::new(format!(
            "nothing of {} was applied",
            undoing.name
        )));
    }
    Ok(met)
}

/// Returns the permission to undo, or to undo an undo, of each of these.
fn allowed(
    state: &StateDir,
    ledger: &Ledger,
    undoing: &Undoing<'_>,
    opened: &[Opened],
) -> Result<Vec<Allowed>, Failure> {
    let keeping = Keeping {
        state,
        ledger,
        surface: undoing.surface,
    };
    opened.iter().map(|one| keeping.allowed_undo(one)).collect()
}

fn undo_all(
    one: &Opened,
    _: &Allowed,
    applied: &[PathBuf],
    force: bool,
    ledger: &Ledger,
) -> Result<UndoReport, Failure> {
    let mut met = UndoReport::default();
    if applied.is_empty() {
        return Ok(met);
    }
    let shown = |path: &RelativePath| shown(one, path);
    let mut meets = UndoReport::default();
    meets.foresee(&undo_preview(applied).doing(UNDONE)?, &shown);
    let directory = one.layer.journals();
    let last = LastUndo::following(&directory, applied, None)?;
    let last = last.meeting(&meets);
    last.write(&directory)?;
    let mut undone = Vec::new();
    for journal in applied {
        one.tell(ledger, "undo.started", json!({}))?;
        let taken = undo(journal, force).doing(UNDONE)?;
        let what = json!({ "entries": taken.applied.entries });
        one.tell(ledger, "undo.finished", what)?;
        undone.push(taken);
    }
    met.add(undone, &shown);
    last.with_owners(&met, &directory)?;
    Ok(met)
}

/// Rolls back a half-done undo, or a half-done undo of one, so that it can start anew. Returns
/// whether there was one.
fn settle_undo(one: &Opened, ledger: &Ledger, command: &str) -> Result<bool, Failure> {
    let directory = one.layer.journals();
    let Some(last) = LastUndo::read(&directory)? else {
        return Ok(false);
    };
    let interrupted = last.of_state(&directory, JournalState::Interrupted)?;
    for journal in &interrupted {
        let taken = take_back(journal).map_err(|error| not_ended("undo", &error, one, command))?;
        let state = journal_state(journal).doing("the journal cannot be read")?;
        if state == JournalState::Done {
            let what = json!({ "entries": taken.entries });
            one.tell(ledger, "undo.taken-back", what)?;
        }
    }
    Ok(!interrupted.is_empty())
}

fn not_ended(what: &str, error: &ApplyError, one: &Opened, command: &str) -> Failure {
    cut_short(what, error, command, &|path| shown(one, path))
}

/// Returns the journals that the last undo rolled back, the last first; none where something was
/// applied since.
fn undone_of(one: &Opened) -> Result<Vec<PathBuf>, Failure> {
    let directory = one.layer.journals();
    let Some(last) = LastUndo::read(&directory)? else {
        return Ok(Vec::new());
    };
    for journal in journals(&one.layer)? {
        match journal_state(&journal).doing("the journal cannot be read")? {
            JournalState::None | JournalState::Undone => {}
            JournalState::Done | JournalState::Interrupted => {
                if !last.names_all(std::slice::from_ref(&journal)) {
                    return Ok(Vec::new());
                }
            }
        }
    }
    let mut undone = last.of_state(&directory, JournalState::Undone)?;
    undone.reverse();
    Ok(undone)
}

/// Reverts the last undo.
///
/// # Errors
/// Where there is none, or something changed since.
pub fn take_undo_back_of(undoing: &Undoing<'_>) -> Result<(), Failure> {
    let state = writable()?;
    let ledger = &crate::events::open_ledger(&state)?;
    let mut opened = open_all(&state, undoing.name, undoing.surface)?;
    let _allowed = allowed(&state, ledger, undoing, &opened)?;
    let failed = "the undo could not be taken back";
    let command = format!("atoll kept undo {}", undoing.name);
    let mut is_any = false;
    let mut all = Vec::new();
    let mut foreseen = UndoReport::default();
    for one in opened.iter() {
        is_any |= settle_undo(one, ledger, &command)?;
        let undone = undone_of(one)?;
        is_any |= !undone.is_empty();
        let preview = take_back_preview(&undone).doing(failed)?;
        foreseen.foresee(&preview, &|path| shown(one, path));
        all.push(undone);
    }
    if !is_any {
        let what = format!("nothing of {} is taken back", undoing.name);
        return Err(Failure::new(what).because("there is no undo to take back"));
    }
    foreseen.settle_taking_back(&command)?;
    for (one, undone) in opened.iter_mut().zip(all) {
        if undone.is_empty() {
            continue;
        }
        let others = Others::of(|| one.changes());
        for journal in undone {
            let taken = take_undo_back(&journal).doing(failed)?;
            let what = json!({ "entries": taken.entries });
            one.tell(ledger, "undo.taken-back", what)?;
        }
        if !others.stand() {
            one.forget_conflicts(SystemTime::now())?;
        }
    }
    Ok(())
}

/// Returns a path as people know it: in the directory on the host.
fn shown(one: &Opened, path: &RelativePath) -> PathBuf {
    one.record.host.join(path.as_os_str())
}
