//! Policies that are read anew for a run that goes on. What it began with stays as it is: its
//! profile, options, places and labels; policies alone are others.

use atoll_cedar::{Case, Layer, Subject, hand};
use atoll_model::{Boundary, Call, Reason};

use crate::error::ProfileError;
use crate::policies::{self, principals, said};
use crate::rules::Rules;
use crate::source::{Facts, Sources};

/// Why the policies of a run stay as they are.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// A file has mistakes.
    #[error(transparent)]
    Files(#[from] ProfileError),
    /// Programs inside may be able to change it, and would take away what holds them.
    #[error(
        "{name} has counted so far, and does not any more: it is gone, or its content is not what \
         was trusted"
    )]
    Project {
        /// The project's file.
        name: String,
    },
    /// What narrowed the run would be left out.
    #[error("purpose {name} narrows this run, and there is no file of it any more")]
    Purpose {
        /// The purpose's name.
        name: String,
    },
    /// What the run has touched so far is not known.
    #[error("policies are about labels now, and this run has noted none since it began")]
    Labels,
}

/// What other policies mean for a run that goes on.
#[derive(Debug)]
pub struct Reconsidered {
    /// For who carries its connections; none where nobody has written any.
    pub handed: Option<Vec<u8>>,
    /// What the run began with, and they deny: none of it is taken back.
    pub denied: Vec<Reason>,
    /// Which policies would end the run earlier, had it begun with them.
    pub timed_by: Option<String>,
}

/// Two versions of the policies of a run, for a proof.
pub type Compared = (Subject, Subject, Case);

/// The policies of rules and those of others, as a prover is told them, with what is stated of the
/// run: JSON of [`Compared`].
///
/// # Errors
/// When a file is no text.
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
    /// The same rules with the policies that there are now. Its notices are about these alone.
    ///
    /// # Errors
    /// [`ReloadError`]: then those that there were still count.
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

    /// The project's files of policies that count.
    fn project_policies(&self) -> impl Iterator<Item = &str> {
        let layers = self.policy_files().iter();
        let of_project = layers.filter(|(layer, _)| *layer == Layer::Project);
        of_project.flat_map(|(_, files)| files.iter().map(|file| file.name.as_str()))
    }
}

/// Asks the policies of these rules about what a run began with, and has them ready for who carries
/// its connections.
///
/// # Errors
/// Why they cannot be handed on.
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
        ..said(rules, facts)
    };
    Ok(Reconsidered {
        handed: Some(hand(&session, &said, &policies.files)?),
        denied: answer.reasons,
        timed_by: answer.wall_clock_by,
    })
}
