//! Checkpoints of the ledger, and the witnesses that get them.

pub mod cosigned;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use atoll_ledger::{
    Checkpoint, Durability, ProofFault, StateDir, Witness, add_to_witness, host_text,
};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;

use crate::configuration::Places;
use crate::credentials::is_program;
use crate::errands;
use crate::failure::{Doing, Failure};
use crate::printable::printable;
use crate::supervision::{
    WrittenInside, argument_inside, environment_outside, program_outside, search_places,
};

/// The time a witness's command has.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(60);
/// The time a witness's command has at the end of a run, for which a person waits.
const COMMAND_TIME_AT_END_MAX: Duration = Duration::from_secs(10);
/// The wait for a killed command to end.
const FAREWELL: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);
const FAILED: &str = "the witness's command failed";

/// The occasion for sending a checkpoint to a witness.
#[derive(Clone, Copy, Debug)]
pub enum When<'a> {
    /// Once a person asks for it.
    Asked,
    /// At the end of a run.
    RunEnds {
        /// The workspace its programs could write to.
        workspace: &'a Path,
    },
}

/// Signs how far the ledger is now.
///
/// # Errors
/// When there are no events, or none can be made.
pub fn checkpoint(read: &StateDir) -> Result<Checkpoint, Failure> {
    // Events are there, so the state may be written to; without any nothing is made.
    let nothing_yet = || Failure::new("the ledger has no events yet");
    if !read.path().join("ledger").exists() {
        return Err(nothing_yet().advise("atoll run -- COMMAND starts a run"));
    }
    let state = Places::read()?.open_state()?;
    let ledger = crate::events::open_ledger(&state)?;
    ledger.checkpoint(&state).map_err(|error| {
        Failure::new("no checkpoint can be made")
            .because(&error)
            .advise(error)
    })
}

/// Gives a checkpoint to the witness that is to have each.
///
/// # Errors
/// When the witness cannot be given it.
pub fn give_each(state: &StateDir, checkpoint: &Checkpoint, when: When<'_>) -> Result<(), Failure> {
    let unusable = "who the ledger's witness is cannot be read";
    match Witness::read(state).doing(unusable)? {
        Some(witness) => give_to(state, &witness, checkpoint, when).map(drop),
        None => Ok(()),
    }
}

/// Records who is to have each checkpoint, and keeps it.
///
/// # Errors
/// When it cannot be recorded or kept.
pub fn keep(witness: Option<&Witness>) -> Result<(), Failure> {
    let state = Places::read()?.open_state()?;
    let ledger = crate::events::open_ledger(&state)?;
    let body = match witness {
        None => json!({}),
        Some(Witness::File(file)) => json!({ "file": host_text(file) }),
        Some(Witness::Command(words)) => {
            json!({ "command": words.iter().map(host_text).collect::<Vec<_>>() })
        }
        Some(Witness::Network { url, key }) => json!({ "url": url, "key": key.to_string() }),
    };
    ledger
        .record(None, "witness.set", body, Durability::Durable)
        .doing("the change cannot be recorded")?;
    Witness::keep(&state, witness).doing("the witness cannot be kept")
}

/// Gives the checkpoint to a witness; returns the checkpoint with its signature, if the witness
/// signs.
///
/// # Errors
/// When the witness cannot be given it.
pub fn give_to(
    state: &StateDir,
    witness: &Witness,
    checkpoint: &Checkpoint,
    when: When<'_>,
) -> Result<Option<String>, Failure> {
    match witness {
        Witness::File(file) => {
            add_to_witness(file, checkpoint).doing("the witness's file cannot be added to")?;
            Ok(None)
        }
        Witness::Command(words) => hand_over(words, checkpoint, when).map(|()| None),
        Witness::Network { url, key } => {
            let patience = match when {
                When::Asked => COMMAND_TIME_MAX,
                When::RunEnds { .. } => COMMAND_TIME_AT_END_MAX,
            };
            cosigned::submit(state, url, key, checkpoint, patience).map(Some)
        }
    }
}

/// Returns a command with its program's canonical path, so that no later directory or `PATH`
/// decides which program runs.
///
/// # Errors
/// When there is no such program.
pub fn found(command: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let Some((named, arguments)) = command.split_first() else {
        return Err(Failure::new(FAILED).because("no command is named"));
    };
    let path = Path::new(named);
    let found = match path.components().nth(1).is_some() || path.is_absolute() {
        true => std::path::absolute(path).ok(),
        false => {
            let places = std::env::var_os("PATH").unwrap_or_default();
            let anywhere = WrittenInside::default();
            let mut places = search_places(&places, &anywhere);
            places.find_map(|place| Some(place.join(path)).filter(|path| is_program(path)))
        }
    };
    let real = found.and_then(|path| path.canonicalize().ok());
    let Some(real) = real.filter(|path| is_program(path)) else {
        let shown = printable(named.as_encoded_bytes());
        return Err(Failure::new(FAILED)
            .because(format!("{shown} is no program here"))
            .advise("name it by its path, as --command /usr/bin/…"));
    };
    let words = std::iter::once(real.into_os_string());
    Ok(words.chain(arguments.iter().cloned()).collect())
}

/// Refuses to run on the host a program that a sandboxed program may have written.
fn refuse_inside(
    program: &Path,
    arguments: &[OsString],
    written: &WrittenInside,
) -> Result<(), Failure> {
    let refused = |unfit| errands::refused("the witness's command was not run", &unfit);
    program_outside(program, written).map_err(refused)?;
    let home = std::env::var_os("HOME").unwrap_or_default();
    let arguments = arguments.iter().map(OsString::as_os_str);
    match argument_inside(arguments, written, Path::new(&home)) {
        None => Ok(()),
        Some(inside) => Err(
            Failure::new("the witness's command was not run").because(format!(
                "{} is in the workspace, where a program inside may have written it",
                printable(inside.as_encoded_bytes())
            )),
        ),
    }
}

fn hand_over(command: &[OsString], checkpoint: &Checkpoint, when: When<'_>) -> Result<(), Failure> {
    let program = command.first().map(Path::new);
    // One that was kept by a mere name would be looked for again.
    let Some(program) = program.filter(|program| program.is_absolute()) else {
        return Err(Failure::new(FAILED).because("its program is named by no absolute path"));
    };
    let arguments = command.get(1..).unwrap_or_default();
    let (written, longest, errors) = match when {
        When::Asked => (WrittenInside::default(), COMMAND_TIME_MAX, Stdio::inherit()),
        When::RunEnds { workspace } => {
            let written = errands::written(&errands::writers(&Places::read()?, Some(workspace)))?;
            refuse_inside(program, arguments, &written)?;
            (written, COMMAND_TIME_AT_END_MAX, Stdio::null())
        }
    };
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment_outside(&written))
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(errors)
        .process_group(0)
        .spawn()
        .doing(FAILED)?;
    // Smaller than what a pipe holds, so that this never waits for the command.
    let written = match child.stdin.take() {
        Some(mut stdin) => stdin.write_all(checkpoint.text().as_bytes()),
        None => Ok(()),
    };
    let Some(status) = ended_within(&mut child, longest).doing(FAILED)? else {
        end(&mut child);
        return Err(
            Failure::new(FAILED).because(format!("it did not end within {} s", longest.as_secs()))
        );
    };
    if !status.success() {
        return Err(Failure::new(FAILED).because(status));
    }
    written.doing(FAILED)
}

/// Returns the exit status if the child ends within this time.
fn ended_within(child: &mut Child, longest: Duration) -> io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if begin.elapsed() > longest => return Ok(None),
            None => std::thread::sleep(PAUSE),
        }
    }
}

/// Ends it with all that it has started in its group. One that cannot be ended is left.
fn end(child: &mut Child) {
    // It is not waited for yet, so that its number is nobody else's.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = ended_within(child, FAREWELL);
}

/// Explains a proof that cannot be made or does not hold, with a remedy.
pub fn unproven(what: &str, fault: ProofFault) -> Failure {
    let failure = Failure::new(what).because(&fault);
    match fault {
        ProofFault::Checkpoint(error) => failure.advise(error),
        ProofFault::Ledger(error) => failure.advise(error),
        ProofFault::NoCheckpoint | ProofFault::NotCovered { .. } => {
            failure.advise("atoll ledger checkpoint signs how far the ledger is now")
        }
        ProofFault::Damaged(_) => failure.advise("atoll ledger verify tells what is wrong"),
        ProofFault::NotNoted(_) => {
            failure.advise("--witness FILE names a file with the checkpoint from before")
        }
        ProofFault::NoProof(_) | ProofFault::Note(_) | ProofFault::Fails(_) => {
            failure.advise("believe nothing of it; ask for the proof and the key anew")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_kept_by_the_canonical_path_of_its_program() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let sh = Path::new("/bin/sh").canonicalize().unwrap();
        for named in ["sh -c x", "/bin/sh -c x", "/usr/../bin/sh -c x"] {
            let found = found(&words(named)).unwrap();
            assert_eq!(found, [sh.as_os_str(), "-c".as_ref(), "x".as_ref()]);
        }
        for missing in [
            "no-such-program-here",
            "/etc/passwd",
            "./no-such-program",
            "",
            "..",
        ] {
            assert!(found(&words(missing)).is_err(), "{missing}");
        }
    }

    #[test]
    fn what_is_in_the_workspace_is_refused_at_the_end_of_a_run() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("script");
        let written = WrittenInside::from_iter([directory.path().to_owned()]);
        let refused = |program: &Path, argument: &Path| {
            let arguments = [argument.as_os_str().to_owned()];
            refuse_inside(program, &arguments, &written).is_err()
        };
        let sh = Path::new("/bin/sh");
        assert!(refused(&inside, sh) && refused(sh, &inside));
        assert!(!refused(sh, Path::new("/etc/passwd")));
    }

    #[test]
    fn one_that_takes_too_long_ends_with_what_it_has_started() {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "sleep 600 & echo begun; wait"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let short = Duration::from_millis(50);
        assert!(ended_within(&mut child, short).unwrap().is_none());
        end(&mut child);
        // The pipe has no other end any more.
        let mut said = String::new();
        let mut output = child.stdout.take().unwrap();
        io::Read::read_to_string(&mut output, &mut said).unwrap();
        assert!(ended_within(&mut child, short).unwrap().is_some());
    }
}
