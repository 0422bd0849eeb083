//! The policy decision on applying a run's changes.

pub(crate) mod checked;
pub(crate) mod makers;
pub(crate) mod outside;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_layer::{Class, Plan, PlanDigest, Selection, Thing, Write, Writing, plan_apply};
use atoll_ledger::{Armed, Asked, Ledger, LedgerError, Refused, host_text};
use atoll_model::{Action, Call, Mode, Place, Reason, Verdict};
use atoll_policy::{
    ChangeGrant, ChangeRulesError, Changes, Facts, Maker, Promoted, agreement, change_rules,
    makers_read, taking_over,
};
use atoll_store::LayerKind;

use crate::call::{Effect, Gate, carry_out, preview};
use crate::changes::LayerChanges;
use crate::configuration::{self, Places, PolicyFiles};
use crate::failure::{Doing, Failure, Kind};
use crate::notice::Notices;
pub use checked::Checked;
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

/// A change that may be applied, or undone, once a person approves.
#[derive(Clone, Debug)]
pub struct AskedChange {
    /// The path to write to, absolute; of an undo the directory.
    pub path: PathBuf,
    /// The policies that require the approval, and why.
    pub why: String,
    /// The place of the first of them.
    pub rule: String,
}

/// A question that policies put to a person before changes are applied, or undone.
pub struct Question<'a> {
    /// The context.
    pub taking: &'a Taking<'a>,
    /// The changes that policies ask about, or the directory of an undo.
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
    /// The ledger.
    pub ledger: &'a Ledger,
    /// The number of the run's next question; `None` if it belongs to no run.
    pub number: &'a dyn Fn() -> Result<Option<u64>, Failure>,
    /// Records a step of the question, on disk before it returns.
    pub record: &'a dyn Fn(Asked, Value) -> Result<(), Failure>,
}

/// The permission to apply changes, or to undo them: decided, and recorded on disk.
#[derive(Debug)]
pub struct Allowed {
    armed: Armed<ChangeGrant>,
    /// The approval of a person, where the policies require one.
    agreed: Option<Agreed>,
    /// The changes that were checked, or those of a shadow run, if these alone are applied.
    checked: Option<Checked>,
    /// True for an undo, which is agreed to as such: there are no plans of it.
    is_undo: bool,
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
        let grant = self.armed.grant();
        if let (true, Some(name)) = (grant.has_checkpoint(), journal.file_name()) {
            to.insert("checkpoint".to_owned(), host_text(name));
        }
        if let Some(policies) = grant.policy_digest() {
            to.insert("policy".to_owned(), json!(policies));
        }
    }

    /// Refuses a plan that a person was asked about and has not approved, or that was not checked.
    ///
    /// # Errors
    /// When it is another one, or what it would write cannot be read.
    pub fn refuse_other(&self, plan: &Plan) -> Result<(), Failure> {
        let agreed = self.agreed.as_ref().filter(|_| !self.is_undo);
        if agreed.is_none() && self.checked.is_none() {
            return Ok(());
        }
        let digest = plan.digest().doing(UNREAD)?;
        let checked = self.checked.as_ref();
        if let Some(checked) = checked.filter(|one| !one.plans.contains(&digest)) {
            return Err(checked.other());
        }
        let Some(agreed) = agreed else {
            return Ok(());
        };
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
    /// The checks that these changes have passed, where they were asked for.
    pub checked: Option<&'a Checked>,
    /// The changes a diff shows.
    pub all: &'a [LayerChanges],
    /// True for an undo, of which there are no plans.
    pub is_undo: bool,
    /// The plans, in the order in which they are carried out.
    pub plans: &'a [Planned<'a>],
    /// Plans anew, and returns the digests.
    pub anew: &'a dyn Fn() -> Result<Vec<PlanDigest>, Failure>,
}

/// Refuses what policies refuse, before anything is written, and asks the person if they require
/// approval. Returns the permission, which is recorded.
///
/// # Errors
/// With every reason; also when a policy file has mistakes, and when the person denies or is not
/// there.
pub fn allowed(meant: &Meant<'_>, taking: &Taking<'_>) -> Result<Allowed, Failure> {
    let places = Places::read()?;
    let files = policies_about(meant, taking, &places)?;
    let host = configuration::host_facts(&places)?;
    // A purpose narrows what is made, and has no say in undoing it.
    let purposes = if meant.is_undo { &[] } else { meant.purposes };
    let rules = change_rules(&files.sources(), &host, purposes);
    let mut rules = rules.map_err(|error| no_rules(error, meant))?;
    let written = written(meant.plans);
    let changes = promoted(&written);
    let call = call(meant, changes.len());
    let reads_reputation = makers_read(&rules, &call);
    let makers = match reads_reputation {
        Some(reads_reputation) => meant.by.makers(reads_reputation),
        None => Ok(Vec::new()),
    };
    let checks = checked::result(meant)?;
    let facts = Facts {
        host: &host,
        mode: Mode::Full,
        environment: &[],
        now: SystemTime::now(),
        placeholders: &[],
        labels: None,
        living: None,
        changes: Some(Changes {
            written: &changes,
            is_unseen: meant.by.is_unseen(),
            workspace: meant.workspace,
            makers: makers.as_deref().map_err(String::as_str),
            checks,
            shadowed: meant.checked.and_then(|one| one.shadowed.as_ref()),
        }),
    };
    let (reasons, judge) = match preview::<ChangeGrant>(&rules, &call, &facts) {
        Verdict::Ask(reasons) => (reasons, meant.checked),
        Verdict::Allow(_) => (Vec::new(), meant.checked),
        Verdict::Deny(_) => (Vec::new(), None),
    };
    let mut asked = asked_changes(&reasons, &written, meant);
    let (directory, is_ruled) = (meant.by.directory(), reads_reputation.is_some());
    asked.extend(
        judge
            .into_iter()
            .flat_map(|one| one.asked(&written, directory, is_ruled)),
    );
    let policies = (!reasons.is_empty()).then(|| rules.digest());
    let agreed = checked::agreed(&asked, policies, &written, meant, taking)?;
    if !reasons.is_empty() {
        rules.agree(agreement(&rules, &call, &reasons));
    }
    let gate = Gate {
        rules: &rules,
        facts,
        ledger: taking.ledger,
    };
    let effect = Opening {
        agreed: agreed.as_ref(),
    };
    let armed =
        carry_out(&gate, &call, effect).map_err(|error| not_allowed(error, meant, &makers))?;
    for notice in armed.grant().notices() {
        taking.surface.warn(notice.to_string());
    }
    Ok(Allowed {
        armed,
        agreed,
        checked: meant.checked.cloned(),
        is_undo: meant.is_undo,
    })
}

/// Reads the policies that are about changes, or about undoing them.
fn policies_about(
    meant: &Meant<'_>,
    taking: &Taking<'_>,
    places: &Places,
) -> Result<PolicyFiles, Failure> {
    match PolicyFiles::read(places, meant.workspace) {
        // Those whose changes are undone may have left something there that cannot be read, and are
        // not to keep their changes by that.
        Err(failure) if meant.is_undo => {
            let why = failure.what;
            let notice = format!("the project's policies do not count: {why}");
            taking.surface.warn(notice);
            PolicyFiles::read(places, None)
        }
        files => files,
    }
}

/// Returns the call for changes, or for undoing them, by this process's user.
fn call(meant: &Meant<'_>, paths: usize) -> Call {
    let directory = meant.by.directory().to_owned();
    let place = Place::Directory {
        workspace: directory.clone(),
        directory,
    };
    let action = match meant.is_undo {
        true => Action::Restore,
        false => Action::Promote(u64::try_from(paths).unwrap_or(u64::MAX)),
    };
    let run = meant.by.run().clone();
    Call::new(run, configuration::principal(), place, action)
}

fn promoted(written: &Written) -> Vec<Promoted<'_>> {
    let changes = written.iter().map(|(path, (control, write))| Promoted {
        path,
        control: *control,
        is_moved: write.how == Writing::Moved,
        is_directory: write.how == Writing::Made && write.thing == Thing::Directory,
        is_link: matches!(write.thing, Thing::Link { .. }),
        artifact: None,
    });
    changes.collect()
}

/// Returns what policies ask about, each with the path that it is about.
fn asked_changes(reasons: &[Reason], written: &Written, meant: &Meant<'_>) -> Vec<AskedChange> {
    let about = |reason: &Reason| {
        let mut paths = written.keys();
        let path = paths.find(|path| taking_over(path) == reason.what);
        path.map_or(meant.by.directory(), PathBuf::as_path)
            .to_owned()
    };
    let asked = reasons.iter().map(|one| AskedChange {
        path: about(one),
        why: one.why.clone(),
        rule: one.rule.clone(),
    });
    asked.collect()
}

/// Having the permission recorded, for whoever writes then.
pub(crate) struct Opening<'a> {
    pub(crate) agreed: Option<&'a Agreed>,
}

impl Effect for Opening<'_> {
    type Grant = ChangeGrant;
    type Done = Armed<ChangeGrant>;
    type Error = NotAllowed;

    fn told(&self, verdict: &Verdict<ChangeGrant>) -> Value {
        let mut body = json!({});
        let policy = match verdict {
            Verdict::Allow(grant) => grant.policy_digest(),
            Verdict::Ask(_) | Verdict::Deny(_) => None,
        };
        let approval = self.agreed.and_then(|agreed| agreed.approval);
        if let Some(body) = body.as_object_mut() {
            body.extend(policy.map(|policy| ("policy".to_owned(), json!(policy))));
            body.extend(approval.map(|approval| ("approval".to_owned(), json!(approval))));
        }
        body
    }

    fn carry_out(self, armed: Armed<ChangeGrant>) -> Result<Armed<ChangeGrant>, NotAllowed> {
        Ok(armed)
    }
}

/// The reason why there is no permission.
#[derive(Debug)]
pub(crate) enum NotAllowed {
    Refused(Refused),
    Unrecorded(LedgerError),
}

impl From<Refused> for NotAllowed {
    fn from(error: Refused) -> Self {
        Self::Refused(error)
    }
}

impl From<LedgerError> for NotAllowed {
    fn from(error: LedgerError) -> Self {
        Self::Unrecorded(error)
    }
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

/// Returns how far a refused call has come.
fn nothing_done(meant: &Meant<'_>) -> &'static str {
    match meant.is_undo {
        true => "nothing was undone",
        false => "nothing was applied",
    }
}

fn no_rules(error: ChangeRulesError, meant: &Meant<'_>) -> Failure {
    match error {
        ChangeRulesError::Broken(error) => {
            let nothing = match meant.is_undo {
                true => "nothing is undone",
                false => "nothing is applied",
            };
            Failure::new(format!("the policies have mistakes, so {nothing}"))
                .because(&error)
                .advise(error)
        }
        ChangeRulesError::Gone(reason) => refused(&[*reason], meant),
    }
}

fn not_allowed(
    error: NotAllowed,
    meant: &Meant<'_>,
    makers: &Result<Vec<Maker>, String>,
) -> Failure {
    match (error, makers) {
        (NotAllowed::Refused(Refused::Denied(_)), Err(why)) => Failure::new(format!(
            "policies ask about these changes, and what they ask cannot be told; {}",
            nothing_done(meant)
        ))
        .because(why)
        .advise("look at the changes, and take what you want of them over by hand")
        .of_kind(Kind::Denied),
        (NotAllowed::Refused(Refused::Denied(refusal) | Refused::NeedsApproval(refusal)), _) => {
            refused(&refusal.reasons, meant)
        }
        (NotAllowed::Refused(error), _) => {
            Failure::new("the decision could not be recorded").because(error)
        }
        (NotAllowed::Unrecorded(error), _) => {
            Failure::new("the decision could not be recorded").because(error)
        }
    }
}

fn refused(reasons: &[Reason], meant: &Meant<'_>) -> Failure {
    let lines = reasons
        .iter()
        .map(|one| format!("{}: {} ({})", one.what, one.why, one.rule));
    let lines: Vec<String> = lines.chain(meant.by.mixed()).collect();
    let what = match meant.is_undo {
        true => "policies refuse to undo this",
        false => "policies refuse to take these changes over",
    };
    let failure = Failure::new(format!("{what}; {}", nothing_done(meant)))
        .because(lines.join("\n"))
        .of_kind(Kind::Denied);
    let how_to_ask = reasons.first().map(|one| one.how_to_ask.clone());
    let instead = match meant.is_undo {
        true => Vec::new(),
        false => meant.by.instead(),
    };
    let instead = instead.into_iter().chain(how_to_ask);
    instead.fold(failure, Failure::advise)
}
