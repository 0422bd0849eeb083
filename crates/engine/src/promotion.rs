//! The policy decision on applying a run's changes.

mod makers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use atoll_layer::{Class, Plan, PlanDigest, Selection, Thing, Write, Writing, plan_apply};
use atoll_ledger::{Asked, host_text};
use atoll_policy::{AskedChange, Promoted, Promoter, PromotionError, promote};
use atoll_store::LayerKind;

use crate::changes::LayerChanges;
use crate::configuration::{self, Places, PolicyFiles};
use crate::failure::{Doing, Failure, Kind};
use crate::notice::Notices;
pub use makers::By;
use serde_json::{Value, json};

/// A person's approval of changes.
#[derive(Clone, Debug)]
pub struct Agreed {
    /// The number of the question, where it has one.
    pub approval: Option<u64>,
    /// The digests of the approved plans, each by itself.
    pub plans: Vec<PlanDigest>,
}

/// A question that policies put to a person before changes are applied.
pub struct Question<'a> {
    /// The context.
    pub taking: &'a Taking<'a>,
    /// The changes that policies ask about.
    pub asked: &'a [AskedChange],
    /// The version of the policies that ask.
    pub policies: Option<&'a str>,
    /// Every path that would be written.
    pub written: Written,
    /// The changes to apply.
    pub meant: &'a Meant<'a>,
}

/// A surface that takes notices, and asks a person.
pub trait Approver: Notices {
    /// Asks the person about all of these changes at once. Any doubt denies.
    ///
    /// # Errors
    /// When the person denies or is not there.
    fn agreed(&self, question: Question<'_>) -> Result<Agreed, Failure>;
}

/// The approval's context: the person, the command and the record.
#[derive(Clone, Copy)]
pub struct Taking<'a> {
    /// The surface that asks.
    pub surface: &'a dyn Approver,
    /// True if an option says that nobody is asked anything.
    pub is_unattended: bool,
    /// The command that can ask at a terminal.
    pub command: &'a str,
    /// The number of the run's next question; `None` if it belongs to no run.
    pub number: &'a dyn Fn() -> Result<Option<u64>, Failure>,
    /// Records a step of the question, on disk before it returns.
    pub record: &'a dyn Fn(Asked, Value) -> Result<(), Failure>,
}

/// The permission to apply changes.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// The version of the policies; none where there are none.
    policies: Option<String>,
    /// True if the policies require a checkpoint to return to.
    has_checkpoint: bool,
    /// The approval of a person, where the policies require one.
    agreed: Option<Agreed>,
}

impl Allowed {
    /// Adds the permission to the record that is made before anything is written. The journal keeps
    /// the overwritten content for the undo: if it cannot be made, nothing is written.
    pub fn note(&self, journal: &Path, to: &mut Value) {
        let Some(to) = to.as_object_mut() else {
            return;
        };
        if let Some(approval) = self.agreed.as_ref().and_then(|agreed| agreed.approval) {
            to.insert("approval".to_owned(), json!(approval));
        }
        if let (true, Some(name)) = (self.has_checkpoint, journal.file_name()) {
            to.insert("checkpoint".to_owned(), host_text(name));
        }
        if let Some(policies) = &self.policies {
            to.insert("policy".to_owned(), json!(policies));
        }
    }

    /// Refuses a plan that a person was asked about and has not approved.
    ///
    /// # Errors
    /// When it is another one, or what it would write cannot be read.
    pub fn refuse_other(&self, plan: &Plan) -> Result<(), Failure> {
        let Some(agreed) = &self.agreed else {
            return Ok(());
        };
        let digest = plan.digest().doing(UNREAD)?;
        match agreed.plans.contains(&digest) {
            true => Ok(()),
            false => Err(
                Failure::new("these changes are other ones than you have agreed to")
                    .because("something of them changed meanwhile")
                    .advise("do it again: you are asked about them as they are now")
                    .of_kind(Kind::Denied),
            ),
        }
    }
}

const UNREAD: &str = "what would be taken over cannot be read";

/// The changes of one directory, with the planned writes.
#[derive(Debug)]
pub struct Planned<'a> {
    /// The differences.
    pub changes: &'a LayerChanges,
    /// The planned writes.
    pub plan: Plan,
}

/// The changes to apply. The same plans are judged, shown, approved and carried out.
pub struct Meant<'a> {
    /// The workspace whose policies count too.
    pub workspace: Option<&'a Path>,
    /// The purposes that narrowed the runs which made them.
    pub purposes: &'a [String],
    /// The runs that made the changes.
    pub by: By<'a>,
    /// The changes a diff shows.
    pub all: &'a [LayerChanges],
    /// The plans, in the order in which they are carried out.
    pub plans: &'a [Planned<'a>],
    /// Plans anew, and returns the digests.
    pub anew: &'a dyn Fn() -> Result<Vec<PlanDigest>, Failure>,
}

/// Refuses what policies refuse, before anything is written, and asks the person if they require
/// approval. Returns the permission.
///
/// # Errors
/// With every reason; also when a policy file has mistakes, and when the person denies or is not
/// there.
pub fn allowed(meant: &Meant<'_>, taking: &Taking<'_>) -> Result<Allowed, Failure> {
    let files = PolicyFiles::read(&Places::read()?, meant.workspace)?;
    if files.policies().next().is_none() && meant.purposes.is_empty() {
        return Ok(Allowed::default());
    }
    let written = written(meant.plans);
    let changes: Vec<Promoted<'_>> = written
        .iter()
        .map(|(path, (control, write))| Promoted {
            path,
            control: *control,
            is_moved: write.how == Writing::Moved,
            is_directory: write.how == Writing::Made && write.thing == Thing::Directory,
            is_link: matches!(write.thing, Thing::Link { .. }),
        })
        .collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let promoter = Promoter {
        user: configuration::principal().uid,
        time: now.map_or(0, |time| time.as_secs()),
        is_unseen: meant.by.is_unseen(),
        workspace: meant.workspace,
        purposes: meant.purposes,
        makers: &|asks_for_reputation| meant.by.makers(asks_for_reputation),
    };
    let promotion = promote(&files.sources(), &promoter, &changes);
    let promotion = promotion.map_err(|error| refused(error, meant))?;
    for notice in promotion.notices {
        taking.surface.warn(notice.to_string());
    }
    let agreed = match promotion.asked.as_slice() {
        [] => None,
        asked => Some(taking.surface.agreed(Question {
            taking,
            asked,
            policies: promotion.policy_digest.as_deref(),
            written,
            meant,
        })?),
    };
    Ok(Allowed {
        policies: promotion.policy_digest,
        has_checkpoint: promotion.has_checkpoint,
        agreed,
    })
}

/// Plans the writes to each directory.
///
/// # Errors
/// When it cannot be planned.
pub fn plans<'a>(
    all: &'a [LayerChanges],
    selection: &Selection,
) -> Result<Vec<Planned<'a>>, Failure> {
    // Paths are of the workspace; a repository is taken over as a whole or not at all.
    let meant = |one: &&LayerChanges| match one.layer.kind {
        LayerKind::Cache => selection.caches,
        LayerKind::Repository => selection.paths.is_empty(),
        LayerKind::Workspace | LayerKind::Home => true,
    };
    let planned = all.iter().filter(meant).map(|changes| {
        let plan = plan_apply(&changes.paths, &changes.set, selection);
        let plan = plan.doing("the changes cannot be applied")?;
        Ok(Planned { changes, plan })
    });
    let mut plans: Vec<Planned<'_>> = planned.collect::<Result<_, Failure>>()?;
    // It may have been moved from one directory to the other.
    if plans.iter().any(|one| !one.plan.left_out.is_empty()) {
        plans
            .iter_mut()
            .for_each(|one| one.plan.keep_what_is_removed());
    }
    Ok(plans)
}

/// Returns the digests of the plans, in the same order.
///
/// # Errors
/// When what they would write cannot be read.
pub fn digests(plans: &[Planned<'_>]) -> Result<Vec<PlanDigest>, Failure> {
    let digests = plans.iter().map(|one| one.plan.digest().doing(UNREAD));
    digests.collect()
}

/// Every path that would be written, with whether other programs run it, and what happens to it.
pub type Written = BTreeMap<PathBuf, (bool, Write)>;

fn written(plans: &[Planned<'_>]) -> Written {
    let mut written = Written::new();
    for Planned { changes: one, plan } in plans {
        for write in plan.writes() {
            let changes = one.set.changes.iter();
            let is_control = changes
                .filter(|change| change.class == Class::Control)
                .any(|change| change.path == write.path);
            let place = one.layer.host.join(write.path.as_os_str());
            let is_moved = write.how == Writing::Moved;
            let entry = written.entry(place).or_insert((false, write.clone()));
            entry.0 |= is_control;
            if is_moved {
                entry.1 = write;
            }
        }
    }
    written
}

fn refused(error: PromotionError, meant: &Meant<'_>) -> Failure {
    match error {
        PromotionError::Broken(error) => {
            Failure::new("the policies have mistakes, so nothing is applied")
                .because(&error)
                .advise(error)
        }
        PromotionError::Untold(why) => Failure::new(
            "policies ask about these changes, and what they ask cannot be told; nothing was applied",
        )
        .because(why)
        .advise("look at the changes, and take what you want of them over by hand")
        .of_kind(Kind::Denied),
        PromotionError::Refused(reasons) => {
            let lines = reasons
                .iter()
                .map(|one| format!("{}: {}", one.what, one.why));
            let lines: Vec<String> = lines.chain(meant.by.mixed()).collect();
            let failure =
                Failure::new("policies refuse to take these changes over; nothing was applied")
                    .because(lines.join("\n"))
                    .of_kind(Kind::Denied);
            let instead = meant.by.instead().into_iter();
            instead.fold(failure, Failure::advise)
        }
    }
}
