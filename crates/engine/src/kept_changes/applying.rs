//! Applying kept changes to the directory on the host.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::SystemTime;

use atoll_layer::{
    JournalState, Plan, RelativePath, Selection, apply, join, journal_state, plan_apply,
};
use atoll_ledger::{Ledger, StateDir};
use serde_json::json;

use super::{Opened, journals, open_all, since, writable};
use crate::changes::LayerChanges;
use crate::decision::applying::TICK;
use crate::decision::last_undo::LastUndo;
use crate::decision::told::unremoved_told;
use crate::decision::{Extent, refuse_any};
use crate::failure::{Doing, Failure};
use crate::promotion::{self, Allowed, Approver, By, Meant, Planned, Taking};

/// Applies what is kept for an argument.
///
/// # Errors
/// Conflicts in any of it, before anything is written, and what policies or the person deny.
pub fn apply_kept(
    name: &str,
    selection: &Selection,
    surface: &dyn Approver,
) -> Result<Extent, Failure> {
    let state = writable()?;
    let ledger = crate::events::open_ledger(&state)?;
    let opened = open_all(&state, name, surface)?;
    let keeping = Keeping {
        state: &state,
        ledger: &ledger,
        surface,
    };
    let mut all = Vec::new();
    for one in &opened {
        refuse_interrupted(one)?;
        all.push(one.changes()?);
    }
    let mut meant = Vec::new();
    // All of it is looked at before anything is written.
    for (one, all) in opened.iter().zip(&all) {
        let plans = planned(all, selection)?;
        for one in &plans {
            refuse_conflicts(&one.plan, name)?;
        }
        let allowed = allowed(one, all, &plans, selection, keeping)?;
        meant.push((plans, allowed));
    }
    // Where one of several is another than was agreed to, none is written.
    for (plans, allowed) in &meant {
        for one in plans {
            allowed.refuse_other(&one.plan)?;
        }
    }
    let (mut steps, mut is_left_out) = (0, false);
    for (mut one, (plans, allowed)) in opened.into_iter().zip(meant) {
        let begun = SystemTime::now();
        let is_clear = conflicts_of_all(&one)?.is_empty();
        let mut written = BTreeSet::new();
        let (mut applied, mut is_refused) = (0, false);
        for Planned { plan, .. } in plans {
            tell_held(&plan, &one.record.inside, surface);
            is_refused |= !plan.refused.is_empty() || !plan.unremoved.is_empty();
            is_left_out |= plan.leaves_out();
            written.extend(plan.steps.iter().map(|step| step.path().clone()));
            if !plan.is_empty() {
                applied += carry_out(&one, &ledger, plan, &allowed)?;
            }
        }
        if is_clear && !is_refused && applied > 0 {
            forget_own_writes(&mut one, begun, &written)?;
        }
        steps += applied;
    }
    Ok(Extent { steps, is_left_out })
}

/// Returns the permission to apply one directory's changes; asks the person if policies require it.
fn allowed(
    one: &Opened,
    all: &[LayerChanges],
    plans: &[Planned<'_>],
    selection: &Selection,
    keeping: Keeping<'_>,
) -> Result<Allowed, Failure> {
    let meant = Meant {
        workspace: None,
        purposes: &one.record.purposes,
        by: By::Kept(keeping.state, &one.record, one.layer.name()),
        is_undo: false,
        checked: None,
        all,
        plans,
        anew: &|| promotion::digests(&planned(&one.changes()?, selection)?),
    };
    keeping.ask(one, &meant, "apply")
}

/// The context in which kept changes are applied or undone.
#[derive(Clone, Copy)]
pub(super) struct Keeping<'a> {
    pub(super) state: &'a StateDir,
    pub(super) ledger: &'a Ledger,
    pub(super) surface: &'a dyn Approver,
}

impl Keeping<'_> {
    /// Returns the permission to undo what was applied of one directory, or to undo an undo of it.
    pub(super) fn allowed_undo(self, one: &Opened) -> Result<Allowed, Failure> {
        let meant = Meant {
            workspace: None,
            purposes: &one.record.purposes,
            by: By::Kept(self.state, &one.record, one.layer.name()),
            is_undo: true,
            checked: None,
            all: &[],
            plans: &[],
            anew: &|| Ok(Vec::new()),
        };
        self.ask(one, &meant, "undo")
    }

    fn ask(self, one: &Opened, meant: &Meant<'_>, command: &str) -> Result<Allowed, Failure> {
        let taking = Taking {
            surface: self.surface,
            is_unattended: false,
            command: &format!("atoll kept {command} {}", one.layer.name()),
            ledger: self.ledger,
            number: &|| Ok(None),
            record: &|step, body| one.tell_question(self.ledger, step, body),
        };
        promotion::allowed(meant, &taking)
    }
}

/// Plans the writes of both parts: the second is planned as if the first were applied.
fn planned<'a>(
    all: &'a [LayerChanges],
    selection: &Selection,
) -> Result<Vec<Planned<'a>>, Failure> {
    let mut plans = promotion::plans(all, selection)?;
    if let [first, second] = plans.as_mut_slice() {
        join(&mut first.plan, &mut second.plan, selection.force);
    }
    Ok(plans)
}

/// Returns the paths that would be in conflict if everything were applied now, including what is
/// held back today.
fn conflicts_of_all(one: &Opened) -> Result<Vec<RelativePath>, Failure> {
    let all = Selection {
        control: true,
        caches: true,
        ignored: true,
        ..Selection::default()
    };
    let mut paths = Vec::new();
    for part in one.changes()? {
        let conflicts = plan(&part, &all)?.conflicts;
        paths.extend(conflicts.into_iter().map(|conflict| conflict.path));
    }
    Ok(paths)
}

/// Keeps the next apply from reporting this apply's own writes as conflicts. That holds while
/// nothing that was held back has changed on the host since `begun`: such a change would be
/// forgotten with it.
fn forget_own_writes(
    one: &mut Opened,
    begun: SystemTime,
    written: &BTreeSet<RelativePath>,
) -> Result<(), Failure> {
    let now = SystemTime::now();
    // What somebody writes from here on is stamped with a later time than this.
    sleep(TICK);
    let before = std::mem::replace(&mut one.record.since, since(begun));
    let conflicts = conflicts_of_all(one);
    one.record.since = before;
    // A name that is gone may seem so only because its directory was written to.
    let host = one.record.host.clone();
    let is_gone = |path: &RelativePath| host.join(path.as_os_str()).symlink_metadata().is_err();
    let is_own = |path: &RelativePath| written.contains(path) || is_gone(path);
    match conflicts?.iter().all(is_own) {
        true => one.forget_conflicts(now),
        false => Ok(()),
    }
}

fn plan(part: &LayerChanges, selection: &Selection) -> Result<Plan, Failure> {
    plan_apply(&part.paths, &part.set, selection).doing("what is kept cannot be applied")
}

fn tell_held(plan: &Plan, inside: &Path, surface: &dyn Approver) {
    for refusal in &plan.refused {
        surface.warn(format!("not applied: {}: {}", refusal.path, refusal.why));
    }
    let unremoved: Vec<String> = plan.unremoved.iter().map(ToString::to_string).collect();
    if let Some(text) = unremoved_told(&unremoved) {
        surface.warn(text);
    }
    if !plan.held_control.is_empty() {
        let names: Vec<String> = plan.held_control.iter().map(ToString::to_string).collect();
        surface.warn(format!(
            "in {} not applied without --control, because the agent runs or believes them: {}",
            inside.display(),
            names.join(", ")
        ));
    }
}

fn refuse_conflicts(plan: &Plan, name: &str) -> Result<(), Failure> {
    let failure = Failure::new("the directory changed meanwhile; nothing was written")
        .advise(format!("atoll kept diff {name} shows what is kept"))
        .advise(format!(
            "atoll kept apply {name} --force overwrites; what is overwritten is kept for undo"
        ));
    refuse_any(plan, failure)
}

fn carry_out(one: &Opened, ledger: &Ledger, plan: Plan, allowed: &Allowed) -> Result<u64, Failure> {
    allowed.refuse_other(&plan)?;
    let journal = one.next_journal()?;
    let mut what = json!({ "steps": plan.steps.len(), "bytes": plan.bytes() });
    allowed.note(&journal, &mut what);
    one.tell(ledger, "apply.started", what)?;
    match apply(plan, &journal, &mut |_| {}) {
        Ok(applied) => {
            let what = json!({ "entries": applied.entries });
            one.tell(ledger, "apply.finished", what)?;
            Ok(applied.steps)
        }
        Err(error) => {
            one.tell(ledger, "apply.failed", json!({ "why": error.to_string() }))?;
            Err(Failure::new("what is kept could not be applied").because(error))
        }
    }
}

/// Refuses an apply until an interrupted one is rolled back, or an interrupted undo completed.
fn refuse_interrupted(one: &Opened) -> Result<(), Failure> {
    let name = one.layer.name();
    let directory = one.layer.journals();
    let last = LastUndo::read(&directory)?;
    let is_of_undo = |journal: &PathBuf| {
        let last = last.as_ref();
        last.is_some_and(|last| last.names_all(std::slice::from_ref(journal)))
    };
    let half_undone = || {
        Failure::new(format!("an undo of {name} was cut short"))
            .advise(format!("atoll kept undo {name} goes on with it"))
            .advise(format!("atoll kept undo {name} --take-back takes it back"))
    };
    for journal in journals(&one.layer)? {
        let state = journal_state(&journal).doing("the journal cannot be read")?;
        if state == JournalState::Interrupted {
            return Err(match is_of_undo(&journal) {
                true => half_undone(),
                false => Failure::new(format!("an apply of {name} was cut short"))
                    .advise(format!("atoll kept undo {name} takes it back")),
            });
        }
    }
    match &last {
        Some(last) if last.is_cut_short(&directory)? => Err(half_undone()),
        Some(_) | None => Ok(()),
    }
}
