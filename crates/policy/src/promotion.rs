//! Policies on applying changes to the person's own files, and on undoing them there.

use std::collections::HashSet;
use std::hash::Hash;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use atoll_cedar::{Action, Asked, ChangeFacts, Facts as CedarFacts, Layer, Layers, Principal};
use atoll_model::{Call, Reason, Verdict};

use crate::agreement::agreement;
use crate::asking::{Answer, Asking};
use crate::error::ProfileError;
use crate::grant::ChangeGrant;
use crate::origin::{Origin, Sourced};
use crate::policies::read;
use crate::purposes::NotThere;
use crate::refusal::reason;
use crate::rules::{PriorAnswer, Rules};
use crate::source::{Changes, Facts, HostFacts, Maker, Promoted, Sources};

/// The reason why there are no rules for changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRulesError {
    /// A policy file has problems.
    #[error(transparent)]
    Broken(#[from] ProfileError),
    /// A purpose that narrowed what made them has no file any more.
    #[error("{}", .0.why)]
    Gone(Box<Reason>),
}

impl From<NotThere> for ChangeRulesError {
    fn from(one: NotThere) -> Self {
        match one {
            NotThere::Broken(error) => Self::Broken(error),
            NotThere::Gone(name) => Self::Gone(Box::new(reason(
                "taking changes over",
                format!(
                    "purpose {name} has narrowed what made them, and there is no file of it any more"
                ),
                &Origin::BuiltIn,
                format!("put {name}.purpose.cedar back beside config.toml"),
            ))),
        }
    }
}

/// Compiles the rules that decide about changes to the person's own files: policies alone, with
/// those of the purposes that narrowed the runs which made them.
///
/// # Errors
/// [`ChangeRulesError`].
pub fn change_rules(
    sources: &Sources<'_>,
    host: &HostFacts,
    purposes: &[String],
) -> Result<Rules, ChangeRulesError> {
    let mut read = read(sources)?;
    let files = read.purposes.still(purposes)?;
    if !files.is_empty() {
        read.add(Layer::Purpose, files)?;
    }
    let mut rules = Rules::built_in(host, Sourced::built_in("default".to_owned()));
    rules.notices.append(&mut read.notices);
    rules.digest = read.version.finish();
    rules.policies = read.policies.map(Arc::new);
    Ok(rules)
}

/// Returns whether some policy reads the reputation of the runs that made changes, where policies
/// are about this call at all.
#[must_use]
pub fn makers_read(rules: &Rules, call: &Call) -> Option<bool> {
    let layers = &rules.policies.as_ref()?.layers;
    layers
        .are_about(&[action_of(call)])
        .then(|| layers.are_about_reputation())
}

/// Decides whether changes are written to the person's own files, or undone there. Without policies
/// nothing is refused. If several runs may have made them, each question is asked for each run.
pub(crate) fn changing(rules: &Rules, call: &Call, facts: &Facts<'_>) -> Verdict<ChangeGrant> {
    let action = action_of(call);
    let mut grant = ChangeGrant {
        policy_digest: rules.policies.as_ref().map(|_| rules.digest.clone()),
        has_checkpoint: false,
        notices: rules.notices.clone(),
    };
    // What no policy is about is allowed, whoever has made it.
    let layers = match &rules.policies {
        Some(policies) if policies.layers.are_about(&[action]) => &policies.layers,
        Some(_) | None => return Verdict::Allow(grant),
    };
    let Some(changes) = facts.changes else {
        return unknown("nobody says what is written");
    };
    let makers = match makers(layers, action, changes.makers) {
        Ok(makers) => makers,
        Err(why) => return unknown(&why),
    };
    let (mut reasons, mut asked) = (Vec::new(), Vec::new());
    for maker in makers {
        let answer = put(layers, call, facts, &changes, maker);
        reasons.extend(answer.reasons);
        asked.extend(answer.asked);
        grant.has_checkpoint |= answer.has_checkpoint;
        grant.notices.extend(answer.notices);
    }
    if !reasons.is_empty() {
        return Verdict::Deny(each_once(reasons));
    }
    let asked = each_once(asked);
    let agreed = match &rules.answered {
        PriorAnswer::Agreed(agreed) => *agreed == agreement(rules, call, &asked),
        PriorAnswer::Nobody | PriorAnswer::Denied(_) => false,
    };
    if !asked.is_empty() && !agreed {
        return Verdict::Ask(asked);
    }
    grant.notices = each_once(grant.notices);
    Verdict::Allow(grant)
}

fn action_of(call: &Call) -> Action {
    match call.action {
        atoll_model::Action::Restore => Action::Restore,
        _ => Action::Promote,
    }
}

fn unknown<G>(why: &str) -> Verdict<G> {
    Verdict::Deny(vec![reason(
        "these changes",
        why,
        &Origin::BuiltIn,
        "look at the changes, and take what you want of them over by hand",
    )])
}

/// Returns the runs that may have made the changes. A fact that policies read and that was not
/// recorded denies.
fn makers<'m>(
    layers: &Layers,
    action: Action,
    makers: Result<&'m [Maker], &str>,
) -> Result<&'m [Maker], String> {
    let makers = makers.map_err(str::to_owned)?;
    if makers.is_empty() {
        return Err("nobody knows which run has made these changes".to_owned());
    }
    let is_unnoted = makers.iter().any(|maker| maker.labels.is_none());
    if is_unnoted && layers.look_at_labels(action) {
        let why = "policies ask which data the session has touched, and its run noted none: they \
                   are newer than it";
        return Err(why.to_owned());
    }
    Ok(makers)
}

/// Asks about each change, as made by this run, or about the undo.
fn put(
    layers: &Layers,
    call: &Call,
    facts: &Facts<'_>,
    changes: &Changes<'_>,
    maker: &Maker,
) -> Answer {
    let time = facts.now.duration_since(UNIX_EPOCH);
    let time = time.map_or(0, |time| time.as_secs());
    let run = call.run().as_str();
    let facts = CedarFacts {
        // The run is over, and who takes its changes over is there to be asked.
        is_strict: maker.is_strict && changes.is_unseen,
        changes: ChangeFacts {
            run: Some(run.to_owned()),
            made_by: maker.user,
            paths: u64::try_from(changes.written.len()).ok(),
            checks: changes.checks.map(str::to_owned),
            shadowed: changes.shadowed.cloned(),
        },
        ..maker.clone().facts(time)
    };
    let mut asking = Asking {
        layers,
        facts: &facts,
        trust: None,
        workspace: None,
        answer: Answer::default(),
    };
    let person = Principal {
        person: call.principal.uid,
        session: None,
    };
    if action_of(call) == Action::Restore {
        let what = format!("undoing what run {run} changed");
        asking.ask(&person, Asked::Restore { run }, what);
        return asking.answer;
    }
    for change in changes.written {
        let path = change.path;
        let what = taking_over(path);
        if change.is_moved {
            asking.answer.reasons.push(reason(
                what,
                "a directory was moved as it is, so policies cannot be asked about what is in it",
                &Origin::BuiltIn,
                "name other paths after the run, or move it yourself",
            ));
            continue;
        }
        for within in within(changes.workspace, change) {
            let promoted = Asked::Promote {
                path,
                within: within.as_deref(),
                control: change.control,
                artifact: change.artifact,
            };
            asking.ask(&person, promoted, what.clone());
        }
    }
    asking.answer
}

/// Returns what a reason about a change of this path is about.
#[must_use]
pub fn taking_over(path: &Path) -> String {
    format!("taking over {}", path.display())
}

/// Returns the paths in the workspace under which a change is asked about; a path that is not
/// UTF-8 is refused as a whole. A link has to be allowed both as a file and as a directory of that
/// name, since it can be either.
fn within(workspace: Option<&Path>, change: &Promoted<'_>) -> Vec<Option<String>> {
    let within = workspace.map(|place| change.path.strip_prefix(place));
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
