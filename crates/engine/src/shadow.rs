//! Shadow runs: a tool's call runs on a copy first, what it changed there becomes a change set with a
//! digest, policies or a person decide about that, and exactly it is applied, or nothing.
//!
//! Of files the copy is the layer of a sandbox, and the change set is the plan of its apply. The steps
//! are on record in the session of the call: `shadow.changed`, `shadow.applying`, `shadow.applied`,
//! `shadow.dropped`.

use std::path::{Path, PathBuf};

use atoll_layer::{PlanDigest, Selection, Thing, Writing};
use atoll_ledger::Durability;
use atoll_model::{Action, CallId, Reason};
use atoll_policy::{Promoted, ShadowFacts};
use atoll_store::{LayerKind, RunRecord, load_run};
use serde_json::{Value, json};

use crate::changes::{self, LayerChanges};
use crate::decision::{Work, refuse_conflicts};
use crate::failure::{Doing, Failure, Kind};
use crate::notice::{Notice, Notices};
use crate::printable::printable;
use crate::promotion::outside::Outside;
use crate::promotion::{Agreed, Approver, Checked, Planned, Question, digests, plans};
pub use crate::sandboxes::shadowing::refuse_unheld;
use crate::sandboxes::{Engine, Sandbox};

/// Asks a person about a change set, for these reasons; fails unless they agree.
pub type Agrees<'a> = &'a dyn Fn(&[Reason]) -> Result<(), Failure>;

/// The changes of a shadow run to its workspace.
#[derive(Debug)]
pub struct FileChanges {
    record: RunRecord,
    all: Vec<LayerChanges>,
    checked: Checked,
    /// The facts about it.
    pub facts: ShadowFacts,
    /// Each path that would be written, with what becomes of it.
    pub files: Vec<FileWrite>,
}

/// A path that an apply would write.
#[derive(Clone, Debug)]
pub struct FileWrite {
    /// The path, absolute.
    pub path: PathBuf,
    /// The change: `added`, `changed`, `removed`, `mode` or `moved`.
    pub how: &'static str,
    /// The size of the file, if it is one.
    pub bytes: Option<u64>,
}

/// Records a step of a shadow run, on disk before it returns.
///
/// # Errors
/// When it cannot be recorded.
pub fn record(engine: &Engine, call: &CallId, kind: &str, body: Value) -> Result<(), Failure> {
    let mut body = body;
    if let (Some(body), Some(number)) = (body.as_object_mut(), call.tool) {
        body.insert("call".to_owned(), json!(number));
    }
    let ledger = engine.ledger();
    let recorded = ledger.record(Some(&call.run), kind, body, Durability::Durable);
    recorded
        .map(drop)
        .doing("the shadow run cannot be recorded")
}

/// Ends a sandbox, and reads what the program of a call has changed in its workspace.
///
/// # Errors
/// When it cannot be read, or not all of it could be applied.
pub fn changes_of(engine: &Engine, sandbox: &Sandbox, tool: &str) -> Result<FileChanges, Failure> {
    sandbox.kill()?;
    let state = engine.state_dir();
    let record = load_run(state, sandbox.run()).doing("its record cannot be read")?;
    let all = changes::read(state, &record)?;
    refuse_outside(&all, &record)?;
    let planned = plans(&all, &selection())?;
    if let Some((path, why)) = first_left_out(&planned) {
        return Err(unapplied(&record, &format!("{path}: {why}")));
    }
    let effects = planned.iter().map(|one| one.plan.effect_digest());
    let effects: Vec<PlanDigest> = effects.collect::<Result<_, _>>().doing(UNREAD)?;
    let files = written(&planned);
    let facts = ShadowFacts {
        kind: "files".to_owned(),
        tool: tool.to_owned(),
        digest: format!("sha256:{}", PlanDigest::of_all(&effects)),
        bytes: planned.iter().map(|one| one.plan.bytes()).sum(),
        files: Some(files.len() as u64),
        ..ShadowFacts::default()
    };
    let checked = Checked {
        plans: digests(&planned)?,
        shadowed: Some(facts.clone()),
        judge: Vec::new(),
    };
    Ok(FileChanges {
        record,
        all,
        checked,
        facts,
        files,
    })
}

const UNREAD: &str = "what the shadow run changed cannot be read";

/// Selects all that a program has changed, but for caches that tools make again.
fn selection() -> Selection {
    Selection {
        control: true,
        ignored: true,
        ..Selection::default()
    }
}

/// Refuses changes outside of the workspace, which are no part of the change set.
fn refuse_outside(all: &[LayerChanges], record: &RunRecord) -> Result<(), Failure> {
    for one in all {
        let is_outside = match one.layer.kind {
            LayerKind::Home | LayerKind::Repository => !one.set.changes.is_empty(),
            LayerKind::Workspace | LayerKind::Cache => false,
        };
        if is_outside {
            let place = printable(one.layer.inside.as_os_str().as_encoded_bytes());
            return Err(unapplied(
                record,
                &format!("{place} is not in the workspace"),
            ));
        }
    }
    Ok(())
}

/// Returns the first change that an apply would leave out.
fn first_left_out(planned: &[Planned<'_>]) -> Option<(String, String)> {
    let plans = planned.iter().map(|one| &one.plan);
    plans
        .filter_map(|plan| {
            let refused = plan.refused.first();
            let refused = refused.map(|one| (one.path.to_string(), one.why.clone()));
            let left = plan.left_out.first().or(plan.unremoved.first());
            let left = left.map(|path| (path.to_string(), "it cannot be applied".to_owned()));
            refused.or(left)
        })
        .next()
}

fn unapplied(record: &RunRecord, why: &str) -> Failure {
    Failure::new("not all that the shadow run changed could be applied")
        .because(why)
        .advise(format!("atoll diff {} shows it", record.run))
}

fn written(planned: &[Planned<'_>]) -> Vec<FileWrite> {
    let writes = planned.iter().flat_map(|one| {
        let host = &one.changes.layer.host;
        one.plan.writes().map(move |write| FileWrite {
            path: host.join(write.path.as_os_str()),
            how: match write.how {
                Writing::Made => "added",
                Writing::Replaced => "changed",
                Writing::Removed => "removed",
                Writing::Facts => "mode",
                Writing::Moved => "moved",
            },
            bytes: match write.thing {
                Thing::File { bytes, .. } => Some(bytes),
                Thing::Directory | Thing::Link { .. } | Thing::Nothing => None,
            },
        })
    });
    let mut all: Vec<FileWrite> = writes.collect();
    all.sort_by(|one, other| one.path.cmp(&other.path));
    all
}

impl FileChanges {
    /// Returns the run whose layer has it.
    #[must_use]
    pub fn run(&self) -> &atoll_model::RunId {
        &self.record.run
    }

    /// Has policies, or the person, decide about it, and writes exactly it to the workspace.
    ///
    /// # Errors
    /// When they refuse, or the workspace or the change set is another one by now: nothing is written.
    pub fn apply(&mut self, engine: &Engine, agrees: Agrees<'_>) -> Result<(), Failure> {
        let state = engine.state_dir();
        // Conflicts are told before anybody is asked.
        let planned = plans(&self.all, &selection())?;
        planned
            .iter()
            .try_for_each(|one| refuse_conflicts(&one.plan, &self.record))?;
        drop(planned);
        let surface = Surface(agrees);
        let work = Work {
            state,
            ledger: engine.ledger(),
            surface: &surface,
            is_unseen: false,
            is_unattended: false,
            checked: Some(&self.checked),
        };
        let applied = work.apply(&mut self.record, &self.all, &selection());
        applied.map(drop)
    }

    /// Removes it, with its layer.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn discard(mut self, engine: &Engine) -> Result<(), Failure> {
        let work = Work {
            state: engine.state_dir(),
            ledger: engine.ledger(),
            surface: &Surface(&|_| Ok(())),
            is_unseen: false,
            is_unattended: true,
            checked: None,
        };
        work.discard(&mut self.record)
    }
}

/// The one who is asked before an apply.
struct Surface<'a>(Agrees<'a>);

impl Notices for Surface<'_> {
    fn notice(&self, _: Notice) {}
}

impl Approver for Surface<'_> {
    fn agreed(&self, question: Question<'_>) -> Result<Agreed, Failure> {
        let plans = digests(question.meant.plans)?;
        let asked = question.asked.iter().map(|one| Reason {
            what: format!(
                "writing {}",
                printable(one.path.as_os_str().as_encoded_bytes())
            ),
            why: one.why.clone(),
            rule: one.rule.clone(),
            how_to_ask: "call it where you can be asked".to_owned(),
        });
        let asked: Vec<Reason> = asked.collect();
        (self.0)(&asked)?;
        Ok(Agreed {
            approval: None,
            plans,
        })
    }
}

/// Has policies, or the person, decide about a change set that is no file's: at these paths, as policies
/// name it, made by the run of the tool's sandbox.
///
/// # Errors
/// When they refuse, or it cannot be recorded.
pub fn decide(
    engine: &Engine,
    sandbox: &Sandbox,
    facts: &ShadowFacts,
    paths: &[PathBuf],
    agrees: Agrees<'_>,
) -> Result<(), Failure> {
    let written = paths.iter().map(|path| Promoted {
        path,
        control: false,
        is_moved: false,
        is_directory: false,
        is_link: false,
        artifact: None,
    });
    let written: Vec<Promoted<'_>> = written.collect();
    let outside = Outside {
        run: sandbox.run(),
        directory: Path::new("/"),
        action: Action::Promote(written.len() as u64),
        written: &written,
        concerns: Vec::new(),
        shadowed: Some(facts),
        refused: "to apply this; nothing was applied",
    };
    outside.decide(engine.state_dir(), engine.ledger(), agrees)
}

/// Returns the refusal of a shadow run that is not applied.
#[must_use]
pub fn refused(why: &str) -> Failure {
    Failure::new("nobody has agreed to it")
        .because(why)
        .of_kind(Kind::Denied)
}
