//! Policies about changes that are to be written to the person's own files.

use std::path::{Path, PathBuf};

use atoll_cedar::{Action, Asked, Facts as CedarFacts, Layer, Principal};
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

/// Who takes changes over.
#[derive(Clone, Copy, Debug)]
pub struct Promoter<'a> {
    /// The user's number.
    pub user: u32,
    /// The time, seconds since 1970.
    pub time: u64,
    /// The profile of the run that made them.
    pub profile: &'a str,
    /// The workspace of that run; none where they were made elsewhere.
    pub workspace: Option<&'a Path>,
    /// The purposes that have narrowed what made them, by their names.
    pub purposes: &'a [String],
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

/// A change that may be taken over once a person says yes.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// Whether policies let these changes be written to the person's files. Where nobody has written
/// any, nothing is refused.
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
    let mut notices: Vec<Notice> = read.notice.into_iter().collect();
    let Some(policies) = read.policies else {
        return Ok(Promotion {
            notices,
            ..Promotion::default()
        });
    };
    let facts = CedarFacts::new(promoter.time, Mode::Full, promoter.profile);
    let mut asking = Asking {
        layers: &policies.layers,
        facts: &facts,
        trust: None,
        workspace: None,
        answer: Answer::default(),
    };
    let person = Principal {
        person: promoter.user,
        session: None,
    };
    let mut asked = Vec::new();
    for change in changes {
        let path = change.path;
        if change.is_moved && policies.layers.are_about(&[Action::Promote]) {
            asking.answer.reasons.push(reason(
                format!("taking over {}", path.display()),
                "a directory was moved as it is, so policies cannot be asked about what is in it",
                &Origin::BuiltIn,
                "name other paths after the run, or move it yourself",
            ));
            continue;
        }
        asked.extend(asked_of(change, promoter, &person, &mut asking));
    }
    if !asking.answer.reasons.is_empty() {
        return Err(PromotionError::Refused(asking.answer.reasons));
    }
    notices.extend(asking.answer.notices);
    Ok(Promotion {
        notices,
        policy_digest: Some(read.version.finish()),
        has_checkpoint: asking.answer.has_checkpoint,
        asked,
    })
}

/// What policies want a person to say yes to of one change; what they refuse is a reason of the
/// answer.
fn asked_of(
    change: &Promoted<'_>,
    promoter: &Promoter<'_>,
    person: &Principal,
    asking: &mut Asking<'_>,
) -> Vec<AskedChange> {
    let mut asked = Vec::new();
    for within in promoter.within(change) {
        let promoted = Asked::Promote {
            path: change.path,
            within: within.as_deref(),
            control: change.control,
        };
        asking.ask(
            person,
            promoted,
            format!("taking over {}", change.path.display()),
        );
        for one in asking.answer.asked.drain(..) {
            let one = AskedChange {
                path: change.path.to_owned(),
                why: one.why,
                rule: one.rule,
            };
            if !asked.contains(&one) {
                asked.push(one);
            }
        }
    }
    asked
}
