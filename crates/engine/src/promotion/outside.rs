//! The policy decision on changes that are no run's layers: artifacts that are promoted, and
//! checkpoints that are restored.

use std::path::Path;
use std::time::SystemTime;

use atoll_ledger::{Ledger, Refused, StateDir};
use atoll_model::{Action, Call, Mode, Place, Reason, RunId, Verdict};
use atoll_policy::{
    ChangeGrant, Changes, Facts, Maker, Promoted, ShadowFacts, agreement, change_rules, makers_read,
};

use super::checked::{SHADOW, UNRULED};
use super::makers::of_run_alone;
use super::{NotAllowed, Opening};
use crate::call::{Gate, carry_out, preview};
use crate::configuration::{self, Places, PolicyFiles};
use crate::failure::{Doing, Failure, Kind};

/// Changes that are to be decided about.
pub(crate) struct Outside<'a> {
    /// The run, or the session of tools, that made them.
    pub(crate) run: &'a RunId,
    /// The directory that they are about.
    pub(crate) directory: &'a Path,
    /// The action: to promote, or to restore.
    pub(crate) action: Action,
    /// The paths that are written; of what is restored none are asked about.
    pub(crate) written: &'a [Promoted<'a>],
    /// Further reasons to ask a person.
    pub(crate) concerns: Vec<Reason>,
    /// The facts about the change set of a shadow run, if it is one: a person is asked about it where
    /// no policy decides.
    pub(crate) shadowed: Option<&'a ShadowFacts>,
    /// The words for what does not happen, as "to promote this; nothing was promoted".
    pub(crate) refused: &'a str,
}

impl Outside<'_> {
    /// Has policies decide, and records that; `agrees` asks a person, where one is to be asked.
    ///
    /// # Errors
    /// When policies or the person refuse, or it is not recorded.
    pub(crate) fn decide(
        self,
        state: &StateDir,
        ledger: &Ledger,
        agrees: &dyn Fn(&[Reason]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let directories = Places::read()?;
        let files = PolicyFiles::read(&directories, None)?;
        let host = configuration::host_facts(&directories)?;
        let rules = change_rules(&files.sources(), &host, &[]);
        let mut rules = rules.doing("the policies have mistakes, so nothing is done")?;
        let place = Place::Directory {
            workspace: self.directory.to_owned(),
            directory: self.directory.to_owned(),
        };
        let person = configuration::principal();
        let call = Call::new(self.run.clone(), person, place, self.action);
        let reads_reputation = makers_read(&rules, &call);
        let makers = reads_reputation.map_or(Ok(Vec::new()), |reads_reputation| {
            makers_of(state, &call, reads_reputation, host.uid)
        });
        let unruled = self.shadowed.filter(|_| reads_reputation.is_none());
        let unruled = unruled.map(of_unruled);
        let concerns: Vec<Reason> = self.concerns.into_iter().chain(unruled).collect();
        let facts = Facts {
            host: &host,
            mode: Mode::Full,
            environment: &[],
            now: SystemTime::now(),
            placeholders: &[],
            labels: None,
            living: None,
            changes: Some(Changes {
                written: self.written,
                is_unseen: false,
                workspace: None,
                checks: None,
                shadowed: self.shadowed,
                makers: makers.as_deref().map_err(String::as_str),
            }),
        };
        let asked = match preview::<ChangeGrant>(&rules, &call, &facts) {
            Verdict::Ask(reasons) => Some(reasons),
            Verdict::Allow(_) => Some(Vec::new()),
            // Nobody's word changes that.
            Verdict::Deny(_) => None,
        };
        if let Some(asked) = asked
            && !(asked.is_empty() && concerns.is_empty())
        {
            agrees(&[asked.clone(), concerns].concat())?;
            rules.agree(agreement(&rules, &call, &asked));
        }
        let gate = Gate {
            rules: &rules,
            facts,
            ledger,
        };
        let opening = Opening { agreed: None };
        let opened = carry_out(&gate, &call, opening);
        let opened = opened.map_err(|error| refused(error, self.refused))?;
        match self.shadowed.filter(|_| opened.grant().has_checkpoint()) {
            None => Ok(()),
            Some(change) => Err(without_checkpoint(change, self.refused)),
        }
    }
}

/// Returns the reason to ask about a change set that no policy decides about.
fn of_unruled(change: &ShadowFacts) -> Reason {
    Reason {
        what: format!("applying what {} changed in its shadow run", change.tool),
        why: UNRULED.to_owned(),
        rule: SHADOW.to_owned(),
        how_to_ask: "write a policy that permits promote, or call it where you can be asked"
            .to_owned(),
    }
}

fn without_checkpoint(change: &ShadowFacts, what: &str) -> Failure {
    let why = format!("a change set of kind {} has no @checkpoint", change.kind);
    Failure::new(format!("policies refuse {what}"))
        .because(why)
        .of_kind(Kind::Denied)
}

/// Returns the facts about the makers.
fn makers_of(
    state: &StateDir,
    call: &Call,
    reads_reputation: bool,
    user: u32,
) -> Result<Vec<Maker>, String> {
    let run = call.run();
    match (of_run_alone(state, run, reads_reputation)?, &call.action) {
        (Some(makers), _) => Ok(makers),
        // Of a session of tools, or a person, what policies ask of a run is unknown.
        (None, Action::Restore) => Ok(vec![nobody(user)]),
        (None, _) => Err(format!("the ledger does not know run {run}")),
    }
}

/// Returns what is known of a maker that is no run.
fn nobody(user: u32) -> Maker {
    Maker {
        user: Some(user),
        profile: String::new(),
        mode: Mode::Full,
        trust: None,
        is_strict: false,
        task: None,
        purpose: None,
        confidence: None,
        labels: None,
        reputation: 0,
    }
}

fn refused(error: NotAllowed, what: &str) -> Failure {
    let reasons = match error {
        NotAllowed::Refused(Refused::Denied(refusal) | Refused::NeedsApproval(refusal)) => {
            refusal.reasons
        }
        NotAllowed::Refused(error) => {
            return Failure::new("the decision could not be recorded").because(error);
        }
        NotAllowed::Unrecorded(error) => {
            return Failure::new("the decision could not be recorded").because(error);
        }
    };
    let lines = reasons
        .iter()
        .map(|one| format!("{}: {} ({})", one.what, one.why, one.rule));
    let failure = Failure::new(format!("policies refuse {what}"))
        .because(lines.collect::<Vec<_>>().join("\n"))
        .of_kind(Kind::Denied);
    let how_to_ask = reasons.into_iter().next().map(|one| one.how_to_ask);
    how_to_ask.into_iter().fold(failure, Failure::advise)
}
