//! The ends of execs by a limit of their sandbox, which the kernel reports as ends by a signal.

use atoll_model::{Ending, LimitHit};

use super::{SIGKILL, Session};

/// The status by which a shell reports that a program of it was killed.
const KILLED_STATUS: u8 = 128 + SIGKILL;

/// The relation of an exec to the processes that the kernel ended for lack of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Killed {
    /// None of them ended while it ran.
    No,
    /// Others ran too when one ended.
    Perhaps,
    /// No other exec ran when one ended.
    Yes,
}

impl Session<'_> {
    /// Takes note of the processes that the kernel has ended for lack of memory since the last
    /// look. The counter is of the whole sandbox, and is read before a set of execs changes.
    pub(super) fn note_kills(&mut self) {
        let kills = self
            .groups
            .map_or(0, |groups| groups.counted().memory_kills);
        if kills <= self.memory_kills {
            return;
        }
        self.memory_kills = kills;
        let is_open = |exec: &&mut super::FurtherExec| exec.streams.ended.is_none();
        let open = self.further.iter_mut().filter(is_open).count();
        let killed = if open == 1 {
            Killed::Yes
        } else {
            Killed::Perhaps
        };
        for exec in self.further.iter_mut().filter(is_open) {
            exec.killed = exec.killed.max(killed);
        }
    }
}

/// Returns the ending of an exec, as its limit if one ended it: `hit` is that of the sandbox, where
/// the exec ended with it.
pub(super) fn of_limit(ending: Ending, hit: Option<LimitHit>, killed: Killed) -> Ending {
    if let Some(limit) = hit {
        return Ending::Limited { limit };
    }
    let (has_failed, was_killed) = match ending {
        Ending::Exited { status } => (status != 0, status == KILLED_STATUS),
        Ending::Signalled { signal } => (true, signal == SIGKILL),
        Ending::Limited { .. } | Ending::NotFound | Ending::NotExecutable | Ending::Interrupted => {
            (false, false)
        }
    };
    let is_limited = match killed {
        Killed::No => false,
        Killed::Perhaps => was_killed,
        Killed::Yes => has_failed,
    };
    match is_limited {
        true => Ending::Limited {
            limit: LimitHit::Memory,
        },
        false => ending,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_by_the_memory_limit_are_named() {
        let memory = Ending::Limited {
            limit: LimitHit::Memory,
        };
        let exited = |status| Ending::Exited { status };
        let signalled = |signal| Ending::Signalled { signal };
        let table = [
            (signalled(SIGKILL), None, Killed::No, signalled(SIGKILL)),
            (signalled(SIGKILL), None, Killed::Perhaps, memory),
            (signalled(SIGKILL), None, Killed::Yes, memory),
            (signalled(15), None, Killed::Perhaps, signalled(15)),
            // A shell, or a tool that fails where a program of it was killed.
            (exited(137), None, Killed::Perhaps, memory),
            (exited(2), None, Killed::Yes, memory),
            (exited(2), None, Killed::Perhaps, exited(2)),
            // What got over it has succeeded.
            (exited(0), None, Killed::Yes, exited(0)),
            (Ending::NotFound, None, Killed::Yes, Ending::NotFound),
            (
                signalled(SIGKILL),
                Some(LimitHit::Disk),
                Killed::No,
                Ending::Limited {
                    limit: LimitHit::Disk,
                },
            ),
        ];
        for (ending, hit, killed, expected) in table {
            assert_eq!(
                of_limit(ending, hit, killed),
                expected,
                "{ending:?} {killed:?}"
            );
        }
    }
}
