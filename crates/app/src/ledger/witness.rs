use std::io::Write;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use atoll_store::{Checkpoint, StateDir, add_to_witness};

use crate::advice;
use crate::arguments::WitnessLedgerArguments;
use crate::configuration::Places;
use crate::escape::printable;
use crate::failure::{Doing, Failure};
use crate::output::Output;
use crate::render;

/// How long a witness's command may take.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// Signs how far the ledger is now.
pub fn checkpoint(read: &StateDir) -> Result<Checkpoint, Failure> {
    // Events are there, so the state may be written to; without any nothing is made.
    let nothing_yet = || Failure::new("the ledger has no events yet");
    if !read.path().join("ledger").exists() {
        return Err(nothing_yet().advise("atoll run -- COMMAND starts a run"));
    }
    let state = Places::read()?.open_state()?;
    let ledger = crate::run::open_ledger(&state)?;
    ledger.checkpoint(&state).map_err(|error| {
        Failure::new("no checkpoint can be made")
            .because(&error)
            .advise(advice::signing(&error))
    })
}

/// Gives a new checkpoint to a witness.
pub fn give(
    state: &StateDir,
    arguments: &WitnessLedgerArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let checkpoint = checkpoint(state)?;
    let to = match &arguments.file {
        Some(file) => {
            add_to_witness(file, &checkpoint).doing("the witness's file cannot be added to")?;
            printable(file.as_os_str().as_encoded_bytes())
        }
        None => {
            hand_over(&arguments.command, &checkpoint)?;
            printable(render::command_line(&arguments.command).as_bytes())
        }
    };
    output.say(&format!(
        "A checkpoint of {} was given to {to}.\n",
        render::counted(checkpoint.size(), "event", "events")
    ));
    Ok(0)
}

fn hand_over(command: &[std::ffi::OsString], checkpoint: &Checkpoint) -> Result<(), Failure> {
    let failed = "the witness's command failed";
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::new(failed).because("no command is named"));
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .doing(failed)?;
    // Smaller than what a pipe holds, so that this never waits for the command.
    let written = match child.stdin.take() {
        Some(mut stdin) => stdin.write_all(checkpoint.text().as_bytes()),
        None => Ok(()),
    };
    let begin = Instant::now();
    let status: ExitStatus = loop {
        match child.try_wait().doing(failed)? {
            Some(status) => break status,
            None if begin.elapsed() > COMMAND_TIME_MAX => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Failure::new(failed).because(format!(
                    "it did not end within {} s",
                    COMMAND_TIME_MAX.as_secs()
                )));
            }
            None => std::thread::sleep(PAUSE),
        }
    };
    if !status.success() {
        return Err(Failure::new(failed).because(status));
    }
    written.doing(failed)
}
