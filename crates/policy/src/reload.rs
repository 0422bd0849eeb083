//! Reloading of policies for a running sandbox. Its profile, options, places and labels stay as
//! they were when it began; only policies change.

use atoll_cedar::{Case, Layer, Subject, hand};
use atoll_model::{Boundary, Call, Reason};

use crate::error::ProfileError;
use crate::policies::{self, cedar_facts, principals};
use crate::rules::Rules;
use crate::source::{Facts, Sources};

/// The reason why a run keeps its policies.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// A file has problems.
    #[error(transparent)]
    Files(#[from] ProfileError),
    /// A project's policy file is gone or changed. Programs in the sandbox may be able to change
    /// it, and would remove their own restrictions.
    #[error(
        "{name} has counted so far, and does not any more: it is gone, or its content is not what \
         was trusted"
    )]
    Project {
        /// The project's file.
        name: String,
    },
    /// A purpose that narrowed the run has no policies any more.
    #[error("purpose {name} narrows this run, and there is no file of it any more")]
    Purpose {
        /// The purpose's name.
        name: String,
    },
    /// The labels of the data touched so far are unknown.
    #[error("policies are about labels now, and this run has noted none since it began")]
    Labels,
}

/// The effect of reloaded policies on a running sandbox.
#[derive(Debug)]
pub struct Reconsidered {
    /// The serialised policies for the egress process; `None` if nobody has written any.
    pub handed: Option<Vec<u8>>,
    /// Rights that the run began with and that the policies deny; none of them is revoked.
    pub denied: Vec<Reason>,
    /// The policies that would have set a shorter time limit.
    pub timed_by: Option<String>,
}

/// Two versions of the policies of a run, for a proof.
pub type Compared = (Subject, Subject, Case);

/// Returns both versions of the policies as the input of a prover, with the facts stated of the
/// run: JSON of [`Compared`].
///
/// # Errors
/// When a file is not UTF-8.
pub fn compared(before: &Rules, after: &Rules) -> Result<String, String> {
    let mut usual = Case {
        person: Some(after.host.uid),
        ..Case::default()
    };
    after.state(&mut usual);
    let subject = |rules: &Rules| {
        let mut subject = Subject::new(rules.policy_files())?;
        subject.trust.clone_from(&usual.trust);
        subject.is_strict = usual.is_strict;
        Ok::<_, String>(subject)
    };
    let compared: Compared = (subject(before)?, subject(after)?, usual.clone());
    serde_json::to_string(&compared).map_err(|error| error.to_string())
}

impl Rules {
    /// Returns these rules with the policies read anew. The notices are about the policies alone.
    ///
    /// # Errors
    /// [`ReloadError`]; the previous policies then stay in force.
    pub fn reloaded(&self, sources: &Sources<'_>) -> Result<Self, ReloadError> {
        let read = policies::read(sources)?;
        let mut rules = self.clone();
        rules.policies = None;
        rules.notices.clear();
        policies::take(&mut rules, read)?;
        let counts = |name: &&str| rules.project_policies().any(|one| one == *name);
        if let Some(name) = self.project_policies().find(|name| !counts(name)) {
            let name = name.to_owned();
            return Err(ReloadError::Project { name });
        }
        let narrowed = rules.narrowed();
        let mut before = self.narrowed().into_iter();
        if let Some(name) = before.find(|one| !narrowed.contains(one)) {
            return Err(ReloadError::Purpose { name });
        }
        match rules.notes_labels() && !self.notes_labels() {
            true => Err(ReloadError::Labels),
            false => Ok(rules),
        }
    }

    /// Returns the project's policy files that count.
    fn project_policies(&self) -> impl Iterator<Item = &str> {
        let layers = self.policy_files().iter();
        let of_project = layers.filter(|(layer, _)| *layer == Layer::Project);
        of_project.flat_map(|(_, files)| files.iter().map(|file| file.name.as_str()))
    }
}

/// Asks the policies of these rules about the rights that a run began with, and serialises them for
/// the egress process.
///
/// # Errors
/// Describes why they cannot be serialised.
pub fn reconsider(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    boundary: &Boundary,
) -> Result<Reconsidered, String> {
    let Some(policies) = &rules.policies else {
        return Ok(Reconsidered {
            handed: None,
            denied: Vec::new(),
            timed_by: None,
        });
    };
    // What it may take was settled when it began.
    let mut boundary = boundary.clone();
    let answer = policies.ask(rules, call, facts, &mut boundary);
    let (_, session) = principals(call);
    // Where nothing is carried, nobody notes them.
    let labels = rules.labels_at_start(call, &boundary);
    let said = atoll_cedar::Facts {
        labels: labels.filter(|_| !boundary.network.is_empty()),
        ..cedar_facts(rules, call, facts)
    };
    Ok(Reconsidered {
        handed: Some(hand(&session, &said, &policies.files)?),
        denied: answer.reasons,
        timed_by: answer.wall_clock_by,
    })
}
