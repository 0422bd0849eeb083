//! Policies on applying changes to the person's own files.

use std::collections::{BTreeSet, HashSet};
use std::hash::Hash;
use std::path::{Path, PathBuf};

use atoll_cedar::{Action, Asked, Facts as CedarFacts, Layer, Layers, Principal};
use atoll_model::{Mode, Reason};

use crate::asking::{Answer, Asking};
use crate::error::ProfileError;
use crate::grant::Notice;
use crate::origin::Origin;
use crate::policies::read;
use crate::purposes::NotThere;
use crate::refusal::reason;
use crate::source::Sources;

/// A change to be applied to the person's files.
#[derive(Clone, Copy, Debug)]
pub struct Promoted<'a> {
    /// The path to write to, absolute.
    pub path: &'a Path,
    /// True if other programs run the file.
    pub control: bool,
    /// True for a directory that was moved with all its content.
    pub is_moved: bool,
    /// True for a directory that is created; its entries are changes of their own.
    pub is_directory: bool,
    /// True for a symbolic link, which may stand for a directory.
    pub is_link: bool,
}

/// The facts about a run that has made changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maker {
    /// Its profile.
    pub profile: String,
    /// The run's sandbox mode.
    pub mode: Mode,
    /// The run's level of trust.
    pub trust: Option<String>,
    /// True if anything that needs an approval is denied while the run is going on, and when an
    /// option of the run itself applies its changes.
    pub is_strict: bool,
    /// The run's task.
    pub task: Option<String>,
    /// The run's purpose.
    pub purpose: Option<String>,
    /// The confidence that the agent stated last, percent.
    pub confidence: Option<u8>,
    /// The labels of the data that the session has touched; `None` if they were not recorded.
    pub labels: Option<BTreeSet<String>>,
    /// The agent's reputation, points.
    pub reputation: u8,
}

/// The person who applies changes.
#[derive(Clone, Copy)]
pub struct Promoter<'a> {
    /// The user's number.
    pub user: u32,
    /// The time, seconds since 1970.
    pub time: u64,
    /// True if nobody has seen the changes: an option of the run asked to apply them before there
    /// were any.
    pub is_unseen: bool,
    /// The workspace of the run that made the changes; `None` if they were made elsewhere.
    pub workspace: Option<&'a Path>,
    /// The names of the purposes that narrowed the runs that made them.
    pub purposes: &'a [String],
    /// Returns every run that may have made one of the changes, as far as they differ, or why that
    /// is unknown. It is called only if policies are about changes, with whether some policy reads
    /// reputations.
    pub makers: &'a dyn Fn(bool) -> Result<Vec<Maker>, String>,
}

impl Promoter<'_> {
    /// Returns the paths in the workspace under which a change is asked about; a path that is not
    /// UTF-8 is refused as a whole. A link has to be allowed both as a file and as a directory of
    /// that name, since it can be either.
    fn within(&self, change: &Promoted<'_>) -> Vec<Option<String>> {
        let within = self.workspace.map(|place| change.path.strip_prefix(place));
        let text = within.and_then(|within| within.ok()?.to_str());
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return vec![None];
        };
        let ends: &[&str] = match (change.is_link, change.is_directory) {
            (true, _) => &["", "/"],
            (false, true) => &["/"],
            (false, false) => &[""],
        };
        let all = ends.iter().map(|end| Some(format!("{text}{end}")));
        all.collect()
    }
}

impl std::fmt::Debug for Promoter<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = out.debug_struct("Promoter");
        out.field("user", &self.user).field("time", &self.time);
        out.finish_non_exhaustive()
    }
}

/// A change that may be applied once a person approves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AskedChange {
    /// The path to write to, absolute.
    pub path: PathBuf,
    /// The policies that require the approval, and why.
    pub why: String,
    /// The place of the first of them.
    pub rule: String,
}

/// The permission to apply changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promotion {
    /// Notices for the person.
    pub notices: Vec<Notice>,
    /// The version of the policies that decided; `None` if there are none.
    pub policy_digest: Option<String>,
    /// Set when policies require a state to roll back to.
    pub has_checkpoint: bool,
    /// The changes that need a person's approval; without it none of all the changes is written.
    pub asked: Vec<AskedChange>,
}

/// The reason why changes are not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromotionError {
    /// A policy file has problems.
    #[error(transparent)]
    Broken(#[from] ProfileError),
    /// Policies refuse it; never empty.
    #[error("policies refuse it")]
    Refused(Vec<Reason>),
    /// A fact that policies read is unknown.
    #[error("{0}")]
    Untold(String),
}

impl From<NotThere> for PromotionError {
    fn from(one: NotThere) -> Self {
        match one {
            NotThere::Broken(error) => Self::Broken(error),
            NotThere::Gone(name) => Self::Refused(vec![reason(
                "taking changes over",
                format!(
                    "purpose {name} has narrowed what made them, and there is no file of it any more"
                ),
                &Origin::BuiltIn,
                format!("put {name}.purpose.cedar back beside config.toml"),
            )]),
        }
    }
}

/// Decides whether policies allow these changes to be applied to the person's files. Without
/// policies nothing is refused. If several runs may have made them, each question is asked for each
/// run.
///
/// # Errors
/// [`PromotionError`].
pub fn promote(
    sources: &Sources<'_>,
    promoter: &Promoter<'_>,
    changes: &[Promoted<'_>],
) -> Result<Promotion, PromotionError> {
    let mut read = read(sources)?;
    let files = read.purposes.still(promoter.purposes)?;
    if !files.is_empty() {
        read.add(Layer::Purpose, files)?;
    }
    let mut notices = read.notices;
    let Some(policies) = read.policies else {
        return Ok(Promotion {
            notices,
            ..Promotion::default()
        });
    };
    let mut promotion = Promotion {
        policy_digest: Some(read.version.finish()),
        ..Promotion::default()
    };
    // What none of them is about is allowed, whoever has made it.
    if policies.layers.are_about(&[Action::Promote]) {
        let mut refused = Vec::new();
        for maker in makers(&policies.layers, promoter)? {
            let mut facts = maker.facts(promoter.time);
            // The run is over, and who takes its changes over is there to be asked.
            facts.is_strict &= promoter.is_unseen;
            refused.extend(put(
                &policies.layers,
                promoter,
                &facts,
                changes,
                &mut promotion,
            ));
        }
        if !refused.is_empty() {
            return Err(PromotionError::Refused(each_once(refused)));
        }
    }
    notices.append(&mut promotion.notices);
    Ok(Promotion {
        notices: each_once(notices),
        asked: each_once(promotion.asked),
        ..promotion
    })
}

/// Returns the runs that may have made the changes. A fact that policies read and that was not
/// recorded denies.
fn makers(layers: &Layers, promoter: &Promoter<'_>) -> Result<Vec<Maker>, PromotionError> {
    let makers = (promoter.makers)(layers.are_about_reputation());
    let makers = makers.map_err(PromotionError::Untold)?;
    if makers.is_empty() {
        let why = "nobody knows which run has made these changes";
        return Err(PromotionError::Untold(why.to_owned()));
    }
    let is_unnoted = makers.iter().any(|maker| maker.labels.is_none());
    if is_unnoted && layers.look_at_labels(Action::Promote) {
        let why = "policies ask which data the session has touched, and its run noted none: they \
                   are newer than it";
        return Err(PromotionError::Untold(why.to_owned()));
    }
    Ok(makers)
}

/// Asks about each change, and returns the reasons for denials.
fn put(
    layers: &Layers,
    promoter: &Promoter<'_>,
    facts: &CedarFacts,
    changes: &[Promoted<'_>],
    to: &mut Promotion,
) -> Vec<Reason> {
    let mut asking = Asking {
        layers,
        facts,
        trust: None,
        workspace: None,
        answer: Answer::default(),
    };
    let person = Principal {
        person: promoter.user,
        session: None,
    };
    for change in changes {
        let path = change.path;
        let what = format!("taking over {}", path.display());
        if change.is_moved {
            asking.answer.reasons.push(reason(
                what,
                "a directory was moved as it is, so policies cannot be asked about what is in it",
                &Origin::BuiltIn,
                "name other paths after the run, or move it yourself",
            ));
            continue;
        }
        for within in promoter.within(change) {
            let promoted = Asked::Promote {
                path,
                within: within.as_deref(),
                control: change.control,
            };
            asking.ask(&person, promoted, what.clone());
            let asked = asking.answer.asked.drain(..).map(|one| AskedChange {
                path: path.to_owned(),
                why: one.why,
                rule: one.rule,
            });
            to.asked.extend(asked);
        }
    }
    to.has_checkpoint |= asking.answer.has_checkpoint;
    to.notices.append(&mut asking.answer.notices);
    asking.answer.reasons
}

impl Maker {
    fn facts(self, time: u64) -> CedarFacts {
        CedarFacts {
            trust: self.trust,
            is_strict: self.is_strict,
            task: self.task,
            purpose: self.purpose,
            confidence: self.confidence,
            labels: self.labels,
            reputation: self.reputation,
            ..CedarFacts::new(time, self.mode, &self.profile)
        }
    }
}

/// Removes duplicates, as from several runs with the same result.
fn each_once<Told: Clone + Eq + Hash>(mut all: Vec<Told>) -> Vec<Told> {
    let mut seen = HashSet::new();
    all.retain(|one| seen.insert(one.clone()));
    all
}
