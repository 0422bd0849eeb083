//! Policies about changes that are to be written to the person's own files.

use std::collections::{BTreeSet, HashSet};
use std::hash::Hash;
use std::path::{Path, PathBuf};

use atoll_cedar::{Action, Asked, Facts as CedarFacts, Layer, Layers, Principal};
use atoll_model::{Mode, Reason};

use crate::error::ProfileError;
use crate::grant::Notice;
use crate::origin::Origin;
use crate::policies::{Answer, Asking, read};
use crate::refusal::reason;
use crate::source::Sources;

/// One change that is to be written to the person's files.
#[derive(Clone, Copy, Debug)]
pub struct Promoted<'a> {
    /// Where to, absolute.
    pub path: &'a Path,
    /// Whether other programs run it.
    pub control: bool,
    /// Whether it is a directory that was moved with all that is in it.
    pub is_moved: bool,
    /// Whether it is a directory that is made, of which what comes to lie in it is told apart.
    pub is_directory: bool,
    /// Whether it is a symbolic link, which may stand for a directory.
    pub is_link: bool,
}

/// What is known of a run that has made changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maker {
    /// Its profile.
    pub profile: String,
    /// What held it.
    pub mode: Mode,
    /// How far it was trusted.
    pub trust: Option<String>,
    /// Whether what somebody would have to agree to is denied while it goes on, and where an option
    /// of its own takes its changes over.
    pub is_strict: bool,
    /// What was to be done.
    pub task: Option<String>,
    /// What it was for.
    pub purpose: Option<String>,
    /// How sure its agent has said last that it is, percent.
    pub confidence: Option<u8>,
    /// Which data its session has touched; none where nobody noted that.
    pub labels: Option<BTreeSet<String>>,
    /// What its agent has earned, points.
    pub reputation: u8,
}

/// Who takes changes over.
#[derive(Clone, Copy)]
pub struct Promoter<'a> {
    /// The user's number.
    pub user: u32,
    /// The time, seconds since 1970.
    pub time: u64,
    /// Whether nobody has seen the changes: an option of the run said so before there were any.
    pub is_unseen: bool,
    /// The workspace of the run that made them; none where they were made elsewhere.
    pub workspace: Option<&'a Path>,
    /// The purposes that have narrowed what made them, by their names.
    pub purposes: &'a [String],
    /// Every run that may have made one of them, as far as they differ, or why nobody can tell. It
    /// is asked only where policies are about changes, and told whether some policy asks what
    /// agents have earned.
    pub makers: &'a dyn Fn(bool) -> Result<Vec<Maker>, String>,
}

impl Promoter<'_> {
    /// Where in the workspace a change lies; what is no text is refused for its whole path. A link
    /// has to be allowed as what lies there and as a directory of that name: it can be either.
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

/// A change that may be taken over once a person says yes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AskedChange {
    /// Where to, absolute.
    pub path: PathBuf,
    /// Which policies ask, and why.
    pub why: String,
    /// Where the first of them is written.
    pub rule: String,
}

/// That changes may be taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promotion {
    /// What the person should know.
    pub notices: Vec<Notice>,
    /// The version of the policies that decided: none where there are none.
    pub policy_digest: Option<String>,
    /// Whether they ask for a state to return to.
    pub has_checkpoint: bool,
    /// What they let through only once a person says yes: without that nothing of it all is
    /// written.
    pub asked: Vec<AskedChange>,
}

/// Why changes are not taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromotionError {
    /// A file of policies has mistakes.
    #[error(transparent)]
    Broken(#[from] ProfileError),
    /// Policies refuse it; never empty.
    #[error("policies refuse it")]
    Refused(Vec<Reason>),
    /// What policies ask about cannot be told.
    #[error("{0}")]
    Untold(String),
}

/// Whether policies let these changes be written to the person's files. Where nobody has written
/// any, nothing is refused. Where several runs may have made them, each question is put for each of
/// these.
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

/// Who may have made the changes. What policies ask about and nobody has noted denies.
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

/// Puts the question about each change; what is refused is given back.
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

/// What several runs come to alike is told once.
fn each_once<Told: Clone + Eq + Hash>(mut all: Vec<Told>) -> Vec<Told> {
    let mut seen = HashSet::new();
    all.retain(|one| seen.insert(one.clone()));
    all
}
