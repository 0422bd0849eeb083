//! Every decision of the ledger put again to the rules and policies of now. Nothing here has an
//! effect.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use atoll_cedar::{Case, Effect, Layer, PolicyFile};
use atoll_ledger::{Event, Filter, Ledger, StateDir};
use atoll_model::RunId;

use crate::events::seals;
use crate::explain::past::Pasts;
use crate::explain::question;
use crate::explain::recorded::{Found, Opening, Put, ReadOptions};
use crate::explain::verdict::{Deciders, OfRules, Sources, Verdict, rank};
use crate::failure::{Doing, Failure};
use crate::printable::printable;

/// A verdict that differs, with its reason.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Changed {
    /// The strictness now, and then: what is denied now comes first.
    pub now: std::cmp::Reverse<u8>,
    /// The verdict then.
    pub then: u8,
    /// The case.
    pub what: String,
    /// The reason now.
    pub why: String,
}

/// The number of occurrences, and the first of them.
pub struct Often {
    /// The number of times.
    pub count: u64,
    /// The run.
    pub run: RunId,
    /// The first event.
    pub event: u64,
    /// The verdict now.
    pub now: Effect,
    /// The verdict then.
    pub then: Effect,
}

/// The rules of a run, where they can still be made.
type Made = Result<Deciders, &'static str>;

/// The decisions put again, and how they differ.
#[derive(Default)]
pub struct Replay {
    with: Vec<PolicyFile>,
    openings: HashMap<RunId, Result<Opening, &'static str>>,
    /// The labels and dropped rights of each run, event after event.
    pasts: Pasts,
    sources: HashMap<PathBuf, Option<Sources>>,
    /// Compiled rules by the workspace, options and command of a run.
    deciders: HashMap<String, Made>,
    /// The runs replayed.
    pub runs: BTreeSet<RunId>,
    /// The runs that could not be replayed at all.
    pub runs_not_put: BTreeSet<RunId>,
    /// The decisions put again.
    pub decisions: u64,
    /// The decisions with the same verdict.
    pub same: u64,
    /// The verdicts that differ.
    pub changed: BTreeMap<Changed, Often>,
    /// The reasons why questions were not put, with their counts.
    pub left_out: BTreeMap<&'static str, u64>,
}

impl Replay {
    /// Decides the questions of all events since this time again, with further policies.
    ///
    /// # Errors
    /// When a policy has mistakes, or the ledger cannot be read.
    pub fn of(
        state: &StateDir,
        since: &str,
        with: Vec<PolicyFile>,
        read: ReadOptions<'_>,
    ) -> Result<Self, Failure> {
        let mut replay = Self {
            with,
            ..Self::default()
        };
        let seals = seals(state)?;
        for event in Ledger::events(state, Filter::default()).doing("the ledger cannot be read")? {
            let event =
                event.doing("the ledger is damaged there; atoll ledger verify tells more")?;
            replay.take(&seals.open(event), since, read);
        }
        Ok(replay)
    }

    fn take(&mut self, event: &Event, since: &str, read: ReadOptions<'_>) {
        let Some(run) = event.run.clone() else {
            return;
        };
        if event.kind == "run.opened" {
            self.openings.insert(run.clone(), Opening::of(event, read));
        }
        if let Some(Ok(opening)) = self.openings.get_mut(&run) {
            opening.take(event);
        }
        self.pasts.take(event);
        if event.time.as_str() >= since {
            self.put(&run, event);
        }
        // Its rules are kept: the next run often has the same.
        if matches!(
            event.kind.as_str(),
            "run.closed" | "run.denied" | "run.failed" | "run.interrupted"
        ) {
            self.openings.remove(&run);
            self.pasts.forget(&run);
        }
    }

    fn put(&mut self, run: &RunId, event: &Event) {
        let opening = match self.openings.get(run) {
            Some(Ok(opening)) => opening,
            Some(Err(why)) => {
                if self.runs_not_put.insert(run.clone()) {
                    leave_out(&mut self.left_out, why);
                }
                return;
            }
            None => return,
        };
        let puts = match opening.questions(event, &self.pasts.of(run)) {
            Found::Questions(puts) => puts,
            Found::Unclear(why) => return leave_out(&mut self.left_out, why),
            Found::Nothing => return,
        };
        let sources = self
            .sources
            .entry(opening.workspace.clone())
            .or_insert_with(|| Sources::read(&opening.workspace).ok());
        let deciders = self.deciders.entry(opening.key.clone()).or_insert_with(|| {
            let gone = "its run's rules are no longer valid";
            made(sources.as_ref().ok_or(gone)?, opening, &self.with).ok_or(gone)
        });
        match deciders {
            Ok(_) => self.runs.insert(run.clone()),
            Err(_) => self.runs_not_put.insert(run.clone()),
        };
        for put in puts {
            let verdict = match deciders {
                Ok(deciders) => decided(deciders, &put),
                Err(why) => Err(*why),
            };
            match verdict {
                Err(why) => leave_out(&mut self.left_out, why),
                Ok(verdict) if verdict.effect == put.then => {
                    self.decisions += put.count;
                    self.same += put.count;
                }
                Ok(verdict) => {
                    self.decisions += put.count;
                    note(&mut self.changed, (run, event), &put, &verdict);
                }
            }
        }
    }
}

fn leave_out(left_out: &mut BTreeMap<&'static str, u64>, why: &'static str) {
    *left_out.entry(why).or_default() += 1;
}

/// Compiles the present rules of a run, with further policies: one with the name of a file of the
/// person's replaces that.
fn made(sources: &Sources, opening: &Opening, with: &[PolicyFile]) -> Option<Deciders> {
    let own = sources
        .deciders(&opening.requested, &opening.program)
        .ok()?;
    if with.is_empty() {
        return Some(own);
    }
    let name = |file: &PolicyFile| Path::new(&file.name).file_name().map(ToOwned::to_owned);
    let mut files = own.files.clone();
    if files.iter().all(|(layer, _)| *layer != Layer::User) {
        files.push((Layer::User, Vec::new()));
    }
    for (_, files) in files.iter_mut().filter(|(layer, _)| *layer == Layer::User) {
        files.retain(|file| with.iter().all(|one| name(one) != name(file)));
        files.extend(with.iter().cloned());
    }
    own.with_files(files)
}

fn decided(deciders: &Deciders, put: &Put) -> Result<Verdict, &'static str> {
    if put.case.action == "request" && deciders.read_queries() {
        return Err("a policy looks at the query, and that is not recorded");
    }
    let verdict = deciders.decide_after(&put.case, &put.given_up);
    verdict.map_err(|_| "what was recorded is no question any more")
}

fn note(
    changed: &mut BTreeMap<Changed, Often>,
    (run, event): (&RunId, &Event),
    put: &Put,
    verdict: &Verdict,
) {
    let of_policies = verdict.deciding().map(|(_, decision)| decision.why());
    let why = match &verdict.of_rules {
        OfRules::Denied(rule) => Some(format!("denied by {}", rule.told())),
        OfRules::Closed(why) | OfRules::Never(why) => Some(why.clone()),
        OfRules::Asked(rule) if verdict.effect == Effect::Ask => {
            Some(format!("a person is asked by {}", rule.told()))
        }
        OfRules::Allowed(Some(rule)) if verdict.effect == Effect::Allow => {
            Some(format!("allowed by {rule}"))
        }
        OfRules::Asked(_) | OfRules::Allowed(_) | OfRules::Unasked => None,
    };
    let group = Changed {
        now: std::cmp::Reverse(rank(verdict.effect)),
        then: rank(put.then),
        what: what(&put.case),
        why: why.or_else(|| of_policies.last()).unwrap_or_default(),
    };
    let often = changed.entry(group).or_insert_with(|| Often {
        count: 0,
        run: run.clone(),
        event: event.position.seq,
        now: verdict.effect,
        then: put.then,
    });
    often.count += put.count;
}

/// Describes the cases that are grouped: a request by its method and host.
fn what(case: &Case) -> String {
    let whole = question(&Case {
        path: case.path.as_ref().map(|_| "/…".to_owned()),
        ..case.clone()
    });
    printable(whole.as_bytes())
}
