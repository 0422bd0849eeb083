//! The figures with their targets, and the verdicts on them.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::figures::{
    ATOLL, Group, MITMPROXY, NO_NETWORK, SOCAT, SQUID, STRAIGHT, UNUSED, WITH_CREDENTIAL,
};
use super::series::Series;
use crate::bench::outcome::Outcome;
use crate::bench::report::Verdict;
use crate::bench::statistics::summarise;

/// A figure, of one contender's turns or of two contenders', with its target.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    group: Group,
    what: &'static str,
    made_of: MadeOf,
    must: Must,
}

enum MadeOf {
    Median(&'static str),
    /// The largest value of all turns.
    Most(&'static str),
    Ratio(&'static str, &'static str),
    Difference(&'static str, &'static str),
}

#[derive(Clone, Copy)]
enum Must {
    AtLeast(f64, &'static str),
    AtMost(f64, &'static str),
}

pub(crate) const FIGURES: [Figure; 16] = [
    Figure {
        name: "bytes to the program, against socat",
        group: Group::Tunnel,
        what: "pull",
        made_of: MadeOf::Ratio(ATOLL, SOCAT),
        must: Must::AtLeast(1.0, "x"),
    },
    Figure {
        name: "bytes from the program, against socat",
        group: Group::Tunnel,
        what: "push",
        made_of: MadeOf::Ratio(ATOLL, SOCAT),
        must: Must::AtLeast(1.0, "x"),
    },
    Figure {
        name: "added to a new connection",
        group: Group::Latency,
        what: "connection",
        made_of: MadeOf::Difference(ATOLL, STRAIGHT),
        must: Must::AtMost(0.6, " ms"),
    },
    Figure {
        name: "added to a request that is looked into",
        group: Group::Latency,
        what: "request",
        made_of: MadeOf::Difference(ATOLL, STRAIGHT),
        must: Must::AtMost(0.15, " ms"),
    },
    Figure {
        name: "requests, against straight",
        group: Group::Requests,
        what: "requests",
        made_of: MadeOf::Ratio(ATOLL, STRAIGHT),
        must: Must::AtLeast(0.35, "x"),
    },
    Figure {
        name: "requests, against mitmproxy",
        group: Group::Requests,
        what: "requests",
        made_of: MadeOf::Ratio(ATOLL, MITMPROXY),
        must: Must::AtLeast(20.0, "x"),
    },
    Figure {
        name: "requests, against squid",
        group: Group::Requests,
        what: "requests",
        made_of: MadeOf::Ratio(ATOLL, SQUID),
        must: Must::AtLeast(1.0, "x"),
    },
    Figure {
        name: "p99 at half of the requests, against straight",
        group: Group::Requests,
        what: "half of the requests, p99",
        made_of: MadeOf::Ratio(ATOLL, STRAIGHT),
        must: Must::AtMost(3.0, "x"),
    },
    Figure {
        name: "memory of an idle connection",
        group: Group::Idle,
        what: "idle, resident",
        made_of: MadeOf::Median(ATOLL),
        must: Must::AtMost(60.0, " KiB"),
    },
    Figure {
        name: "a large file to the program",
        group: Group::Bulk,
        what: "download",
        made_of: MadeOf::Median(ATOLL),
        must: Must::AtLeast(300.0, " MB/s"),
    },
    Figure {
        name: "memory it takes",
        group: Group::Bulk,
        what: "download, growth",
        made_of: MadeOf::Most(ATOLL),
        must: Must::AtMost(16.0, " MiB"),
    },
    Figure {
        name: "a large file from the program",
        group: Group::Bulk,
        what: "upload",
        made_of: MadeOf::Median(ATOLL),
        must: Must::AtLeast(300.0, " MB/s"),
    },
    Figure {
        name: "memory it takes",
        group: Group::Bulk,
        what: "upload, growth",
        made_of: MadeOf::Most(ATOLL),
        must: Must::AtMost(16.0, " MiB"),
    },
    Figure {
        name: "added to a start where a network is allowed and not used",
        group: Group::Start,
        what: "start",
        made_of: MadeOf::Difference(UNUSED, NO_NETWORK),
        must: Must::AtMost(1.0, " ms"),
    },
    Figure {
        name: "added to a request by a credential that is put in, and masking",
        group: Group::Identity,
        what: "request with a key",
        made_of: MadeOf::Difference(WITH_CREDENTIAL, ATOLL),
        must: Must::AtMost(30.0, " us"),
    },
    Figure {
        name: "Codex, one scripted turn with a command, against outside",
        group: Group::Agent,
        what: "agent",
        made_of: MadeOf::Ratio(ATOLL, STRAIGHT),
        must: Must::AtMost(1.15, "x"),
    },
];

impl Figure {
    pub(crate) fn is_in(&self, only: Option<Group>) -> bool {
        only.is_none_or(|only| only == self.group)
    }

    fn measured(&self, all: &[Series]) -> Result<f64, String> {
        let of = |contender: &str| {
            let is_it = |one: &&Series| one.what == self.what && one.contender == contender;
            let found = all.iter().find(is_it);
            let found = found.ok_or_else(|| format!("{contender} did not take part"))?;
            match &found.failure {
                Some(why) => Err(format!("{contender}: {why}")),
                None => Ok(found),
            }
        };
        let none = |contender: &str| format!("{contender} has no numbers");
        let median = |contender| of(contender)?.median().ok_or_else(|| none(contender));
        match self.made_of {
            MadeOf::Median(one) => median(one),
            MadeOf::Most(one) => summarise(&of(one)?.values)
                .map(|summary| summary.max)
                .ok_or_else(|| none(one)),
            MadeOf::Ratio(one, other) => Ok(median(one)? / median(other)?),
            MadeOf::Difference(one, other) => Ok(median(one)? - median(other)?),
        }
    }

    pub(crate) fn verdict(&self, all: &[Series]) -> Verdict {
        let number = match self.measured(all) {
            Ok(number) => number,
            Err(why) => return Verdict::NotMeasured(why),
        };
        let is_met = match self.must {
            Must::AtLeast(least, _) => number >= least,
            Must::AtMost(most, _) => number <= most,
        };
        match is_met {
            true => Verdict::Met(number),
            false => Verdict::Missed(number),
        }
    }

    fn unit(&self) -> &'static str {
        match self.must {
            Must::AtLeast(_, unit) | Must::AtMost(_, unit) => unit,
        }
    }

    fn must(&self) -> String {
        match self.must {
            Must::AtLeast(least, unit) => format!("≥ {least}{unit}"),
            Must::AtMost(most, unit) => format!("≤ {most}{unit}"),
        }
    }

    fn told(&self, all: &[Series]) -> (String, String) {
        let number = |number: f64| format!("{number:.2}{}", self.unit());
        match self.verdict(all) {
            Verdict::Met(measured) => (number(measured), "met".to_owned()),
            Verdict::Missed(measured) => (number(measured), "missed".to_owned()),
            Verdict::NotMeasured(why) => (String::new(), format!("not measured: {why}")),
        }
    }
}

/// Returns a table of what each contender did, then one of the figures.
pub(crate) fn table(all: &[Series], only: Option<Group>) -> String {
    let mut table = String::from(
        "\n| what | contender | median | min | max | turns | for a second of the processor |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for series in all {
        let _ = write!(table, "| {} | {} |", series.what, series.contender);
        let _ = match (&series.failure, summarise(&series.values)) {
            (Some(why), _) => writeln!(table, " failed: {why} | | | | |"),
            (None, None) => writeln!(table, " not measured | | | | |"),
            (None, Some(summary)) => {
                let efficient = series.work_for_a_second();
                let efficient = efficient.map_or(String::new(), |work| format!("{work:.0}"));
                writeln!(
                    table,
                    " {:.3} {} | {:.3} | {:.3} | {} | {efficient} |",
                    summary.median, series.unit, summary.min, summary.max, summary.count
                )
            }
        };
    }
    table.push_str("\n| figure | must be | measured | verdict |\n|---|---|---|---|\n");
    for figure in FIGURES.iter().filter(|figure| figure.is_in(only)) {
        let (measured, word) = figure.told(all);
        let name = figure.name;
        let _ = writeln!(
            table,
            "| {name} | {} | {measured} | {word} |",
            figure.must()
        );
    }
    table
}

/// Returns the verdicts on all targets.
pub(crate) fn outcome(all: &[Series], only: Option<Group>) -> Outcome {
    let mut outcome = Outcome::default();
    for figure in FIGURES.iter().filter(|figure| figure.is_in(only)) {
        let told = format!("{} {}", figure.name, figure.must());
        outcome.add(&told, &figure.verdict(all));
    }
    outcome
}

/// Returns every single number, and the verdicts, as JSON.
pub(crate) fn content(all: &[Series], only: Option<Group>) -> Value {
    let figures = FIGURES.iter().filter(|figure| figure.is_in(only));
    let figures = figures.map(|figure| {
        let (measured, word) = figure.told(all);
        json!({"figure": figure.name, "must": figure.must(), "measured": measured, "verdict": word})
    });
    let series = all.iter().map(|series| {
        json!({
            "measured": series,
            "summary": summarise(&series.values),
            "work_for_a_second_of_the_processor": series.work_for_a_second(),
        })
    });
    json!({
        "figures": figures.collect::<Vec<_>>(),
        "contenders": series.collect::<Vec<_>>(),
    })
}
