//! The results of one contender at one kind of work, turn by turn.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::process;
use super::shell::Shell;
use crate::bench::statistics::summarise;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Series {
    /// The kind of work, as in the names of the figures.
    pub(crate) what: String,
    pub(crate) contender: String,
    pub(crate) unit: String,
    pub(crate) values: Vec<f64>,
    /// The time that the processes of the [`Carrier`] used in each turn, seconds of a processor.
    pub(crate) carrier_seconds: Vec<f64>,
    /// The amount of work in each turn, where it was counted: requests, or megabytes.
    pub(crate) work: Vec<f64>,
    /// The reason why there are no reliable numbers.
    pub(crate) failure: Option<String>,
}

/// The result of one turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) values: Vec<f64>,
    pub(crate) work: Option<f64>,
}

impl Turn {
    pub(crate) fn of(value: f64) -> Self {
        Self {
            values: vec![value],
            work: None,
        }
    }
}

/// A shell that takes turns, with the host that it connects to.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) shell: Shell,
    pub(crate) host: &'static str,
    pub(crate) carrier: Carrier,
}

/// The processes between client and origin, whose processor time counts.
pub(crate) enum Carrier {
    Nobody,
    /// The egress process of the shell's sandbox, once there is one, and the process that records
    /// its flows.
    OfSandbox,
    /// A peer, and all that it has started.
    Peer(super::world::Process),
}

impl Carrier {
    fn processes(&self, shell: &Shell) -> Vec<u32> {
        match self {
            Self::Nobody => Vec::new(),
            Self::OfSandbox => {
                let carrier = process::carrier(shell.id()).into_iter();
                carrier.chain([shell.id()]).collect()
            }
            Self::Peer(peer) => process::with_descendants(peer.id()),
        }
    }
}

impl Series {
    pub(crate) fn new(what: &str, contender: &str, unit: &str) -> Self {
        Self {
            what: what.to_owned(),
            contender: contender.to_owned(),
            unit: unit.to_owned(),
            ..Self::default()
        }
    }

    pub(crate) fn failed(mut self, why: &anyhow::Error) -> Self {
        self.failure = Some(format!("{why:#}"));
        self
    }

    /// Returns the median over all turns; `None` if one of them failed.
    pub(crate) fn median(&self) -> Option<f64> {
        let summary = summarise(&self.values);
        summary
            .filter(|_| self.failure.is_none())
            .map(|summary| summary.median)
    }

    /// Returns the amount of work for each second of processor time of the [`Carrier`].
    pub(crate) fn work_for_a_second(&self) -> Option<f64> {
        let spent: f64 = self.carrier_seconds.iter().sum();
        let work: f64 = self.work.iter().sum();
        (spent > 0.0 && work > 0.0).then_some(work / spent)
    }
}

/// Runs the contenders as A, B, A, B, …, after a turn each that does not count. One that fails
/// takes no more turns.
pub(crate) fn take_turns(
    what: &str,
    unit: &str,
    rounds: usize,
    contenders: &mut [Contender],
    mut turn: impl FnMut(&mut Shell, &'static str) -> Result<Turn>,
) -> Vec<Series> {
    let mut all: Vec<Series> = contenders
        .iter()
        .map(|contender| Series::new(what, contender.name, unit))
        .collect();
    for round in 0..=rounds {
        for (contender, series) in contenders.iter_mut().zip(&mut all) {
            if series.failure.is_some() {
                continue;
            }
            let carriers = contender.carrier.processes(&contender.shell);
            let before = process::seconds(&carriers);
            let taken = turn(&mut contender.shell, contender.host);
            let spent = process::seconds(&carriers) - before;
            match taken {
                Ok(_) if round == 0 => {}
                Ok(turn) => {
                    series.values.extend(turn.values);
                    series.work.extend(turn.work);
                    series
                        .carrier_seconds
                        .extend((!carriers.is_empty()).then_some(spent));
                }
                Err(why) => series.failure = Some(format!("{why:#}")),
            }
        }
    }
    all
}
