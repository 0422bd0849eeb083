//! `atoll policy replay`: every decision of the ledger put again to the rules and policies of now.
//! Nothing here has an effect.

use atoll_cedar::{Effect, Layer};
use atoll_engine::configuration::Places;
use atoll_engine::events::beginning;
use atoll_engine::explain::verdict::Deciders;
use atoll_engine::explain::word;
use atoll_engine::failure::Failure;
use atoll_engine::printable::printable;
use atoll_engine::replay::{Changed, Often, Replay};
use serde_json::{Value, json};

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
    let with = with.collect::<Result<Vec<_>, _>>()?;
    // What cannot count at all is told before anything is read.
    let _ = Deciders::of_files(vec![(Layer::User, with.clone())])?;
    let state = Places::read()?.read_state()?;
    let replay = Replay::of(&state, &since, with, &crate::requested::of_line)?;
    let replay = Shown(&replay);
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

/// A replay, as a person or a program reads it.
struct Shown<'a>(&'a Replay);

impl Shown<'_> {
    fn status(&self) -> u8 {
        match (self.0.changed.is_empty(), self.0.runs_not_put.is_empty()) {
            (false, _) => OTHERWISE,
            (true, false) => RUNS_NOT_PUT,
            (true, true) => 0,
        }
    }

    fn text(&self, since: &str, output: &Output) -> String {
        let mut report = Report::new(output.paint);
        let decisions = counted(self.0.decisions, "decision", "decisions");
        let runs = counted(self.0.runs.len() as u64, "run", "runs");
        report.title(
            &format!("{decisions} of {runs} put again"),
            &format!("since {since}"),
        );
        report.line("as before", &grouped(self.0.same));
        let shown: Vec<_> = self.0.changed.iter().take(GROUPS_SHOWN_MAX).collect();
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
        let further = self.0.changed.len().saturating_sub(GROUPS_SHOWN_MAX);
        if further > 0 {
            report.line(
                "more",
                &format!("{} further ones: --json has all", grouped(further as u64)),
            );
        }
        if !self.0.runs_not_put.is_empty() {
            let runs = counted(self.0.runs_not_put.len() as u64, "run", "runs");
            report.line("not put", &format!("all of {runs}"));
        }
        for (why, count) in &self.0.left_out {
            report.line("not put", &format!("{}: {why}", grouped(*count)));
        }
        report.line(
            "put as",
            "bodies and queries of requests are not recorded: each is put as one without",
        );
        report.finish()
    }

    fn json(&self) -> Value {
        let changed = self.0.changed.iter().map(|(group, often)| {
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
        let left_out = self.0.left_out.iter();
        let left_out = left_out.map(|(why, count)| json!({ "why": why, "count": count }));
        json!({
            "decisions": self.0.decisions,
            "runs": self.0.runs.len(),
            "runs-not-put": self.0.runs_not_put.len(),
            "same": self.0.same,
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

#[cfg(test)]
mod tests {
    use atoll_engine::explain::verdict::rank;
    use atoll_model::RunId;

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
