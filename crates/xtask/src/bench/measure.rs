//! Lets contenders take turns, and times each turn.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Turns before the first that counts, to fill caches.
const WARM_UP_ROUNDS: usize = 3;

/// The prefix of a line with the nanoseconds that a script measured itself.
pub(crate) const ELAPSED: &str = "elapsed-nanoseconds ";

/// One way to do the same thing.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) command: Vec<String>,
    pub(crate) directory: PathBuf,
    /// The command that runs after each turn, untimed, so that the next finds the same state.
    pub(crate) afterwards: Option<Vec<String>>,
    /// True if the program prints the time of the work itself.
    pub(crate) times_itself: bool,
}

pub(crate) struct Prepared {
    pub(crate) contenders: Vec<Contender>,
    /// Contenders that are not on this host, with the reason.
    pub(crate) absent: Vec<(&'static str, String)>,
    /// The directory for the output of each turn, until the next.
    pub(crate) directory: PathBuf,
}

/// All turns of one contender, in milliseconds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    /// The times from before the start of the process until it was reaped.
    pub(crate) whole_ms: Vec<f64>,
    /// The times of the work alone, as the script in the process measured it.
    pub(crate) work_ms: Vec<f64>,
    /// The reason why there are no reliable numbers.
    pub(crate) failure: Option<String>,
    /// Further findings, with their figures.
    #[serde(default)]
    pub(crate) facts: Vec<String>,
}

/// Runs the contenders as A, B, C, A, B, C, …; one that fails is left out from then on.
pub(crate) fn take_turns(prepared: &Prepared, rounds: usize) -> Result<Vec<Measured>> {
    let mut all: Vec<Measured> = prepared
        .contenders
        .iter()
        .map(|contender| Measured {
            name: contender.name.to_owned(),
            command: contender.command.clone(),
            ..Measured::default()
        })
        .collect();
    for round in 0..WARM_UP_ROUNDS + rounds {
        for (contender, measured) in prepared.contenders.iter().zip(&mut all) {
            if measured.failure.is_some() {
                continue;
            }
            match turn(contender, &prepared.directory)? {
                Ok((whole, work)) if round >= WARM_UP_ROUNDS => {
                    measured.whole_ms.push(whole);
                    measured.work_ms.extend(work);
                }
                Ok(_) => {}
                Err(reason) => measured.failure = Some(reason),
            }
        }
    }
    all.extend(prepared.absent.iter().map(|(name, reason)| Measured {
        name: (*name).to_owned(),
        failure: Some(reason.clone()),
        ..Measured::default()
    }));
    Ok(all)
}

/// Runs one turn; returns the time of the whole and those of the work, or why the turn does not
/// count.
fn turn(contender: &Contender, directory: &Path) -> Result<Result<(f64, Vec<f64>), String>> {
    let (out, errors) = (directory.join("stdout"), directory.join("stderr"));
    let mut command = command(&contender.command, &contender.directory)?;
    command
        .stdout(File::create(&out)?)
        .stderr(File::create(&errors)?);
    let started = Instant::now();
    let status = command.status();
    let whole = started.elapsed().as_secs_f64() * 1e3;
    if let Some(afterwards) = &contender.afterwards {
        let mut clean = self::command(afterwards, &contender.directory)?;
        crate::command::required(&mut clean)?;
    }
    let said = String::from_utf8_lossy(&fs::read(&errors)?)
        .trim()
        .to_owned();
    let reason = match status {
        Err(error) => Some(format!("cannot be started: {error}")),
        Ok(status) => failure(status, &said),
    };
    if let Some(reason) = reason {
        return Ok(Err(reason));
    }
    let printed = fs::read_to_string(&out).unwrap_or_default();
    let work = match contender.times_itself {
        true => elapsed_ms(&printed),
        false => Vec::new(),
    };
    if contender.times_itself && work.is_empty() {
        return Ok(Err("the script did not print its time".to_owned()));
    }
    Ok(Ok((whole, work)))
}

fn failure(status: ExitStatus, said: &str) -> Option<String> {
    let line = said.lines().last().unwrap_or_default();
    (!status.success()).then(|| format!("{status}: {line}"))
}

/// Returns the times that were printed, one a line, in milliseconds.
pub(crate) fn elapsed_ms(printed: &str) -> Vec<f64> {
    let lines = printed.lines().map(str::trim);
    lines
        .filter_map(|line| line.strip_prefix(ELAPSED)?.trim().parse::<f64>().ok())
        .map(|nanoseconds| nanoseconds / 1e6)
        .collect()
}

/// Returns a command without anything to set up in the child, so that it is spawned, not forked.
fn command(words: &[String], directory: &Path) -> Result<Command> {
    let (program, arguments) = words
        .split_first()
        .context("a contender without a command")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null());
    Ok(command)
}
