//! From recorded runs to the least policies that let them go through again.

use std::collections::BTreeSet;
use std::path::PathBuf;

use atoll_ledger::{Event, unread};
use atoll_model::network::NetworkRule;
use atoll_policy::{Rules, learnt_cedar};

use super::used;
use crate::explain::recorded::{Opening, ReadOptions};
use crate::explain::verdict::Sources;
use crate::failure::Failure;

/// Policies that let recorded runs go through again.
#[derive(Clone, Debug)]
pub struct LearntPolicies {
    /// The policies.
    pub text: String,
    /// The runs they are learnt from.
    pub names: Vec<String>,
}

/// Returns the least policies that let these runs go through again.
///
/// # Errors
/// When there is nothing to learn from, or a run cannot be read any more.
pub fn policies(events: &[Event], read: ReadOptions<'_>) -> Result<LearntPolicies, Failure> {
    let mut learnt = Started::default();
    for event in events {
        // A path that nobody can read is no path: what is learnt of it would be for others.
        if let Some(why) = event.body.get("path").and_then(unread) {
            return Err(unusable(event, why));
        }
        if event.kind == "run.opened" {
            learnt.run(event, read)?;
        }
    }
    if learnt.all.is_empty() {
        return Err(Failure::new("there is nothing to learn from")
            .because("none of these runs was started")
            .advise("atoll runs lists those that there are"));
    }
    let used = used(events.iter()).into_iter();
    let used = used.map(|(meant, widened)| NetworkRule {
        to: meant.to,
        way: meant.way,
        requests: meant.requests,
        limits: meant.limits,
        origin: widened.unwrap_or_else(|| "as it was used".to_owned()),
    });
    let all: Vec<(&Rules, &std::path::Path)> = learnt
        .all
        .iter()
        .map(|(rules, workspace)| (rules, workspace.as_path()))
        .collect();
    let text = learnt_cedar(&all, &learnt.started, used.collect());
    Ok(LearntPolicies {
        text,
        names: learnt.names,
    })
}

/// Describes a run that cannot be learnt from.
fn unusable(event: &Event, why: &str) -> Failure {
    let run = event.run.as_ref();
    let name = run.map_or_else(String::new, ToString::to_string);
    Failure::new(format!("nothing can be learnt from run {name}")).because(why)
}

/// The runs read so far.
#[derive(Default)]
struct Started {
    all: Vec<(Rules, PathBuf)>,
    started: BTreeSet<String>,
    names: Vec<String>,
}

impl Started {
    /// Takes a run that was allowed; others teach nothing.
    fn run(&mut self, event: &Event, read: ReadOptions<'_>) -> Result<(), Failure> {
        if event
            .body
            .get("verdict")
            .and_then(|verdict| verdict.as_str())
            != Some("allow")
        {
            return Ok(());
        }
        let name = event
            .run
            .as_ref()
            .map_or_else(String::new, ToString::to_string);
        let unusable = |why: &str| unusable(event, why);
        let opening = Opening::of(event, read).map_err(unusable)?;
        let program = opening.program.to_str();
        let program = program.ok_or_else(|| unusable("its program's name is no text"))?;
        // A policy knows it by its last name.
        let program = program.rsplit('/').next().unwrap_or_default();
        self.started.insert(program.to_owned());
        let sources = Sources::read(&opening.workspace)?;
        let deciders = sources.deciders(&opening.requested, &opening.program)?;
        let rules = deciders.rules.ok_or_else(|| unusable("it has no rules"))?;
        self.all.push((rules, opening.workspace));
        self.names.push(name);
        Ok(())
    }
}
