//! The end of a run whose Atoll does not answer: suspended, stuck, or of another version.

use std::time::{Duration, Instant};

use atoll_model::RunId;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::journal::{Clock, Journal};
use crate::open_runs::{Carrier, OpenRuns};
use crate::recovery::{RunFiles, UNSEEN, interrupted_because};
use crate::{FileFault, LedgerError, StateDir};

/// The longest wait until nothing is left of its process.
const END_WAIT: Duration = Duration::from_secs(5);
/// The longest wait for a run whose program has ended by itself, or whose end another process
/// records: there may be many written files to remove.
const RECORDED_WAIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(1);

/// The result of ending a run that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnresponsiveRun {
    /// The run was killed.
    Killed,
    /// The run was over already, or has ended by itself.
    Over,
    /// The run is still there.
    StillThere,
    /// The process of the run is not known.
    NotFound,
}

/// Ends the process that carries a run, and with it the sandbox, without asking it. Events that it
/// cannot record any more are recorded here as `run.interrupted`, with `why` as the reason. A run
/// whose program or whose Atoll has ended already is waited for.
///
/// The run's marker names the process by its PID and start time, which are checked once more when
/// its pidfd is open: no other process gets the signal, and none that only settles a run whose
/// Atoll is gone. `files` settles the run's files.
///
/// # Errors
/// [`LedgerError`]: the run cannot be ended, or its end cannot be recorded.
pub fn end_unanswering(
    state: &StateDir,
    clock: Clock,
    run: &RunId,
    why: &str,
    files: &dyn RunFiles,
) -> Result<UnresponsiveRun, LedgerError> {
    let open_runs = OpenRuns::open(state)?;
    let carrier = open_runs.carrier(run)?;
    let to_end = carrier.filter(|carrier| !carrier.is_ending && carrier.is_there());
    let is_killed = match to_end {
        Some(carrier) => {
            end(&carrier).map_err(FileFault::on("end the process of", state.path()))?
        }
        None => false,
    };
    let (patience, why, ended) = match is_killed {
        true => (END_WAIT, why, UnresponsiveRun::Killed),
        false => (RECORDED_WAIT, UNSEEN, UnresponsiveRun::Over),
    };
    let until = Instant::now() + patience;
    while Instant::now() < until {
        // Looked at first: one that ends between the two is taken over, not left to nobody.
        let was_alive = open_runs.is_alive(run)?;
        if let Some(marker) = open_runs.take_over(run)? {
            let journal = Journal::open(state, clock)?;
            interrupted_because(&journal, state, marker, why, files)?;
            return Ok(ended);
        }
        // Whoever looked for such runs meanwhile has recorded it.
        if !was_alive {
            return Ok(ended);
        }
        if carrier.is_none() {
            return Ok(UnresponsiveRun::NotFound);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(UnresponsiveRun::StillThere)
}

/// Kills the process, and returns whether it was still there.
fn end(carrier: &Carrier) -> Result<bool, Errno> {
    match pidfd_open(carrier.number, PidfdFlags::empty()) {
        Ok(process) if carrier.is_there() => {
            pidfd_send_signal(process, Signal::KILL).map(|()| true)
        }
        // It has just ended by itself.
        Ok(_) | Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::SystemTime;

    use super::*;

    /// Ends a run with this marker, locked by this very process, as by one that recovers it: it
    /// must not get the signal.
    fn looked_after(marker: &str, for_how_long: Duration) -> UnresponsiveRun {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(&directory.path().join("state")).unwrap();
        let run = RunId::new(1_700_000_000, 7);
        let open_runs = OpenRuns::open(&state).unwrap();
        let held = open_runs.claim(&run).unwrap().unwrap();
        fs::write(state.path().join("open").join(run.as_str()), marker).unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(for_how_long);
                held.remove().unwrap();
            });
            end_unanswering(&state, SystemTime::now, &run, "a test", &()).unwrap()
        })
    }

    #[test]
    fn who_looks_after_a_run_whose_atoll_is_gone_gets_no_signal() {
        let own = std::process::id();
        let a_while = Duration::from_millis(300);
        // Of an older Atoll nobody knows more than that it is locked.
        assert_eq!(looked_after("1 0\n", a_while), UnresponsiveRun::NotFound);
        // Its number is this process' own, which began at another time.
        let reused = format!("1 0\n{own} 1\n");
        assert_eq!(looked_after(&reused, a_while), UnresponsiveRun::Over);
        // One that is ending is waited for, also where it is this very process.
        let ending = format!("1 0\n{own} {}\nending\n", Carrier::own_start());
        assert_eq!(looked_after(&ending, a_while), UnresponsiveRun::Over);
    }

    #[test]
    fn the_process_that_carries_a_run_is_ended() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(&directory.path().join("state")).unwrap();
        let run = RunId::new(1_700_000_000, 7);
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let began = Carrier::start_of(child.id());
        let open_runs = OpenRuns::open(&state).unwrap();
        let held = open_runs.claim(&run).unwrap().unwrap();
        let marker = format!("1 0\n{} {began}\n", child.id());
        fs::write(state.path().join("open").join(run.as_str()), marker).unwrap();
        drop(held);
        let ended = end_unanswering(&state, SystemTime::now, &run, "a test", &()).unwrap();
        assert_eq!(ended, UnresponsiveRun::Killed);
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
