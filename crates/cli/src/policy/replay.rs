//! `atoll policy replay`: every decision of the ledger put again to the rules and policies of now.
//! Nothing here has an effect.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use atoll_cedar::{Case, Effect, Layer, PolicyFile};
use atoll_engine::configuration::Places;
use atoll_engine::events::beginning;
use atoll_engine::events::seals;
use atoll_engine::explain::past::Pasts;
use atoll_engine::explain::recorded::{Found, Opening, Put};
use atoll_engine::explain::verdict::{Deciders, OfRules, Sources, Verdict, rank};
use atoll_engine::explain::word;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_ledger::{Event, Filter, Ledger};
use atoll_model::RunId;
use serde_json::{Value, json};

use super::explain::question;
use crate::arguments::ReplayPolicyArguments;
use crate::output::Output;
use crate::policy;
use crate::render::{Report, counted, grouped};

/// The exit status where something is decided otherwise.
const OTHERWISE: u8 = 1;
/// The exit status if all questions that could be asked have the same verdict, but whole runs could
/// not be replayed.
const RUNS_NOT_PUT: u8 = 3;
/// The most groups that are printed; --json has all.
const GROUPS_SHOWN_MAX: usize = 40;

/// Decides recorded questions again, and reports verdicts that differ.
pub(crate) fn replay(arguments: &ReplayPolicyArguments, output: &Output) -> Result<u8, Failure> {
    let since = since(&arguments.since)?;
    let with = arguments.with.iter().map(|path| policy::read(path));
    let mut replay = Replay {
        with: with.collect::<Result<_, _>>()?,
        ..Replay::default()
    };
    // What cannot count at all is told before anything is read.
    let _ = Deciders::of_files(vec![(Layer::User, replay.with.clone())])?;
    let state = Places::read()?.read_state()?;
    let seals = seals(&state)?;
    for event in Ledger::events(&state, Filter::default()).doing("the ledger cannot be read")? {
        let event = event.doing("the ledger is damaged there; atoll ledger verify tells more")?;
        replay.take(&seals.open(event), &since);
    }
    match arguments.json {
        true => output.json(&replay.json()),
        false => output.result(&replay.text(&arguments.since, output)),
    }
    Ok(replay.status())
}

/// Reads the beginning of the time range, as events have times.
fn since(text: &str) -> Result<String, Failure> {
    let unusable = || {
        Failure::new(format!(
            "--since {} is not usable",
            printable(text.as_bytes())
        ))
        .because(
            "it is neither a duration such as 7d, nor the beginning of a time such as 2026-11-21",
        )
        .advise("atoll policy replay --since 7d")
    };
    beginning(text).ok_or_else(unusable)
}

/// A verdict that differs, with its reason.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Changed {
    /// The strictness now, and then: what is denied now comes first.
    now: std::cmp::Reverse<u8>,
    then: u8,
    what: String,
    why: String,
}

/// The number of occurrences, and the first of them.
struct Often {
    count: u64,
    run: RunId,
    event: u64,
    now: Effect,
    then: Effect,
}

/// The rules of a run, where they can still be made.
type Made = Result<Deciders, &'static str>;

#[derive(Default)]
struct Replay {
    with: Vec<PolicyFile>,
    openings: HashMap<RunId, Result<Opening, &'static str>>,
    /// The labels and dropped rights of each run, event after event.
    pasts: Pasts,
    sources: HashMap<PathBuf, Option<Sources>>,
    /// Compiled rules by the workspace, options and command of a run.
    deciders: HashMap<String, Made>,
    runs: BTreeSet<RunId>,
    /// The runs that could not be replayed at all.
    runs_not_put: BTreeSet<RunId>,
    decisions: u64,
    same: u64,
    changed: BTreeMap<Changed, Often>,
    left_out: BTreeMap<&'static str, u64>,
}

impl Replay {
    fn take(&mut self, event: &Event, since: &str) {
        let Some(run) = event.run.clone() else {
            return;
        };
        if event.kind == "run.opened" {
            self.openings
                .insert(run.clone(), Opening::of(event, &crate::requested::of_line));
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
            let gone = "the rules of its run cannot be made any more";
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

    fn status(&self) -> u8 {
        match (self.changed.is_empty(), self.runs_not_put.is_empty()) {
            (false, _) => OTHERWISE,
            (true, false) => RUNS_NOT_PUT,
            (true, true) => 0,
        }
    }

    fn text(&self, since: &str, output: &Output) -> String {
        let mut report = Report::new(output.paint);
        let decisions = counted(self.decisions, "decision", "decisions");
        let runs = counted(self.runs.len() as u64, "run", "runs");
        report.title(
            &format!("{decisions} of {runs} put again"),
            &format!("since {since}"),
        );
        report.line("as before", &grouped(self.same));
        let shown: Vec<_> = self.changed.iter().take(GROUPS_SHOWN_MAX).collect();
        for same in by_reason(&shown) {
            for (group, often) in &same {
                let times = counted(often.count, "time", "times");
                let what = format!("{}, {times}, was {}", group.what, often.then);
                let label = match often.now {
                    Effect::Allow => "allowed",
                    Effect::Ask => "asked",
                    Effect::Deny => "denied",
                };
                report.line(label, &what);
            }
            let Some((group, often)) = same.first() else {
                continue;
            };
            report.line("why", &group.why);
            let explain = format!(
                "atoll policy explain --run {} --event {}",
                often.run, often.event
            );
            report.command("more", &explain);
        }
        let further = self.changed.len().saturating_sub(GROUPS_SHOWN_MAX);
        if further > 0 {
            report.line(
                "more",
                &format!("{} further ones: --json has all", grouped(further as u64)),
            );
        }
        if !self.runs_not_put.is_empty() {
            let runs = counted(self.runs_not_put.len() as u64, "run", "runs");
            report.line("not put", &format!("all of {runs}"));
        }
        for (why, count) in &self.left_out {
            report.line("not put", &format!("{}: {why}", grouped(*count)));
        }
        report.line(
            "put as",
            "bodies and queries of requests are not recorded: each is put as one without",
        );
        report.finish()
    }

    fn json(&self) -> Value {
        let changed = self.changed.iter().map(|(group, often)| {
            json!({
                "now": word(often.now),
                "then": word(often.then),
                "what": group.what,
                "why": group.why,
                "count": often.count,
                "run": often.run,
                "event": often.event,
            })
        });
        let left_out = self.left_out.iter();
        let left_out = left_out.map(|(why, count)| json!({ "why": why, "count": count }));
        json!({
            "decisions": self.decisions,
            "runs": self.runs.len(),
            "runs-not-put": self.runs_not_put.len(),
            "same": self.same,
            "changed": changed.collect::<Vec<_>>(),
            "not-put": left_out.collect::<Vec<_>>(),
        })
    }
}

/// Groups verdicts that differ for the same reason, in the order in which each reason first occurs.
fn by_reason<'a>(all: &[(&'a Changed, &'a Often)]) -> Vec<Vec<(&'a Changed, &'a Often)>> {
    let mut groups: Vec<Vec<(&Changed, &Often)>> = Vec::new();
    for one in all {
        let is_same =
            |first: &(&Changed, &Often)| (&first.0.now, &first.0.why) == (&one.0.now, &one.0.why);
        let known = groups
            .iter_mut()
            .find(|group| group.first().is_some_and(is_same));
        match known {
            Some(group) => group.push(*one),
            None => groups.push(vec![*one]),
        }
    }
    groups
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_decided_otherwise_for_one_reason_is_told_together() {
        let changed = |now: Effect, what: &str, why: &str| {
            let group = Changed {
                now: std::cmp::Reverse(rank(now)),
                then: rank(Effect::Allow),
                what: what.to_owned(),
                why: why.to_owned(),
            };
            let often = Often {
                count: 1,
                run: RunId::parse("261121-093012-k7qd").expect("a run id"),
                event: 1,
                now,
                then: Effect::Allow,
            };
            (group, often)
        };
        let all = [
            changed(Effect::Deny, "GET a", "policy one"),
            changed(Effect::Deny, "GET b", "policy two"),
            changed(Effect::Deny, "GET c", "policy one"),
            changed(Effect::Ask, "GET d", "policy one"),
        ];
        let all: Vec<_> = all.iter().map(|(group, often)| (group, often)).collect();
        let told = by_reason(&all).into_iter().map(|same| {
            let whats = same.iter().map(|(group, _)| group.what.as_str());
            whats.collect::<Vec<_>>()
        });
        let told: Vec<Vec<&str>> = told.collect();
        assert_eq!(told, [vec!["GET a", "GET c"], vec!["GET b"], vec!["GET d"]]);
    }
}
