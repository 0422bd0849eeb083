//! The life of a sandbox: its states, and every transition between them.

use std::fmt;

use tokio::sync::watch;

use crate::protocol::{Kind, Refusal};

/// A state of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    /// Being made, and on no list yet.
    Creating,
    Running,
    /// Its processes are being stopped, to go on with their memory, or ended, so that its files are
    /// what is kept.
    Pausing {
        memory: bool,
    },
    Paused {
        memory: bool,
    },
    /// Paused, and being made to go on.
    Resuming {
        memory: bool,
    },
    /// Its processes are being ended, or are gone.
    Ended(Reason),
}

/// The reason for the end of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Caller,
    Timeout,
    Server,
    /// The server's memory ran out.
    Memory,
    /// Goes on with the files of a snapshot, as another one of its id.
    RolledBack,
    /// Goes on with its files, as another one of its id.
    Resumed,
    /// The build that it was for needs it no more, for this reason.
    Build(&'static str),
    /// Could not be paused, or leaves files that could not be kept.
    NotKept(String),
    /// Its programs have ended by themselves, or by a limit.
    Exited(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Caller => "a caller has ended it",
            Self::Timeout => "its time was over",
            Self::Server => "the server has ended",
            Self::Memory => "the server's memory was running out, and it held most of it",
            Self::RolledBack => "it goes back to a snapshot",
            Self::Resumed => "it has gone on",
            Self::Build(why) => why,
            Self::NotKept(why) | Self::Exited(why) => why,
        })
    }
}

/// A change of the state of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// Put on the list: it takes requests.
    Start,
    /// About to be paused.
    Pause { memory: bool },
    /// Paused from now on.
    Park,
    /// About to go on.
    Resume,
    /// Its processes go on, with their memory.
    Continue,
    /// Not made to go on: it stays paused.
    Stay,
    /// Its processes are gone, whoever ended them, or do not stand still.
    Exit(Reason),
    /// About to end.
    End(Reason),
    /// Ends instead of being paused, or while it is, or another sandbox of its id goes on with its
    /// files. Only whoever pauses it, or has its turn while it is paused, says so.
    Abandon(Reason),
}

impl Lifecycle {
    /// Returns the state that follows; `None` if there is no such transition.
    pub(crate) fn after(&self, transition: Transition) -> Option<Self> {
        use Transition as T;
        Some(match (self, transition) {
            (Self::Creating, T::Start) | (Self::Resuming { memory: true }, T::Continue) => {
                Self::Running
            }
            (Self::Running, T::Pause { memory }) => Self::Pausing { memory },
            (Self::Pausing { memory }, T::Park) | (Self::Resuming { memory }, T::Stay) => {
                Self::Paused { memory: *memory }
            }
            (Self::Paused { memory }, T::Resume) => Self::Resuming { memory: *memory },
            // Its files are what is kept from then on.
            (Self::Pausing { .. }, T::Exit(_)) => Self::Pausing { memory: false },
            (Self::Paused { .. }, T::Exit(_)) => Self::Paused { memory: false },
            (Self::Resuming { .. }, T::Exit(_)) => Self::Resuming { memory: false },
            (Self::Creating | Self::Running, T::Exit(reason) | T::End(reason))
            // Whoever still holds a paused one as it lived ends nothing.
            | (
                Self::Pausing { .. } | Self::Paused { .. } | Self::Resuming { .. },
                T::Abandon(reason),
            ) => Self::Ended(reason),
            (_, T::Start | T::Pause { .. } | T::Park | T::Resume | T::Continue | T::Stay)
            | (_, T::Exit(_) | T::End(_) | T::Abandon(_)) => return None,
        })
    }

    /// Returns whether its programs run, or are about to.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self, Self::Creating | Self::Running)
    }

    /// Returns whether it is paused, is being paused, or is being made to go on.
    pub(crate) fn is_pause(&self) -> bool {
        matches!(
            self,
            Self::Pausing { .. } | Self::Paused { .. } | Self::Resuming { .. }
        )
    }

    /// Returns whether its processes are being stopped, or stand still, with their memory.
    pub(crate) fn keeps_memory(&self) -> bool {
        matches!(
            self,
            Self::Pausing { memory: true }
                | Self::Paused { memory: true }
                | Self::Resuming { memory: true }
        )
    }

    /// Returns the refusal of a transition that this state does not have.
    pub(crate) fn refusal(&self, id: &str) -> Refusal {
        let refused = |kind, what: &str| Refusal::new(kind, format!("sandbox {id} {what}"));
        match self {
            Self::Creating => refused(Kind::Exists, "is just being made").advise("ask again"),
            Self::Running => refused(Kind::Exists, "runs"),
            Self::Pausing { .. } => {
                refused(Kind::Exists, "is just being paused").advise("ask again")
            }
            Self::Paused { .. } => refused(Kind::Exists, "is paused already"),
            Self::Resuming { .. } => {
                refused(Kind::Exists, "is just being made to go on").advise("ask again")
            }
            Self::Ended(why) => refused(Kind::NoSandbox, &format!("is ending: {why}")),
        }
    }
}

impl fmt::Display for Lifecycle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Creating => "it is being made",
            Self::Running => "it runs",
            Self::Pausing { memory: true } | Self::Paused { memory: true } => {
                "it is paused, with its memory"
            }
            Self::Pausing { memory: false } | Self::Paused { memory: false } => "it is paused",
            Self::Resuming { .. } => "it is being made to go on",
            Self::Ended(why) => return why.fmt(formatter),
        })
    }
}

/// The state of a sandbox, for all who keep it, change it or wait for it.
#[derive(Clone, Debug)]
pub(crate) struct Life(watch::Sender<Lifecycle>);

impl Life {
    pub(crate) fn new(state: Lifecycle) -> Self {
        Self(watch::channel(state).0)
    }

    pub(crate) fn state(&self) -> Lifecycle {
        self.0.borrow().clone()
    }

    pub(crate) fn is(&self, fits: impl Fn(&Lifecycle) -> bool) -> bool {
        fits(&self.0.borrow())
    }

    /// Carries out a transition; where there is none from its state, it stays, and returns that.
    pub(crate) fn pass(&self, transition: Transition) -> Result<(), Lifecycle> {
        let mut refused = None;
        self.0
            .send_if_modified(|state| match state.after(transition) {
                Some(next) => {
                    let differs = *state != next;
                    *state = next;
                    differs
                }
                None => {
                    refused = Some(state.clone());
                    false
                }
            });
        refused.map_or(Ok(()), Err)
    }

    /// Waits for a state, and returns it. A state that is left at once can be missed.
    pub(crate) async fn wait(&self, fits: impl Fn(&Lifecycle) -> bool) -> Lifecycle {
        let mut states = self.0.subscribe();
        let found = states.wait_for(|state| fits(state)).await;
        // It cannot be closed: this is its sender.
        found.map_or_else(|_| self.state(), |state| state.clone())
    }

    /// Waits until its programs run no more, and returns the state of then.
    pub(crate) async fn stopped(&self) -> Lifecycle {
        self.wait(|state| !state.is_running()).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::Lifecycle::{Creating, Ended, Paused, Pausing, Resuming, Running};
    use super::Transition as T;
    use super::*;

    const STATES: [Lifecycle; 9] = [
        Creating,
        Running,
        Pausing { memory: true },
        Pausing { memory: false },
        Paused { memory: true },
        Paused { memory: false },
        Resuming { memory: true },
        Resuming { memory: false },
        Ended(Reason::Caller),
    ];

    /// Each transition, by the states that it has, and the state that follows.
    fn legal() -> Vec<(T, Vec<(Lifecycle, Lifecycle)>)> {
        let (kept, lost) = (true, false);
        let over = || Ended(Reason::Timeout);
        vec![
            (T::Start, vec![(Creating, Running)]),
            (
                T::Pause { memory: kept },
                vec![(Running, Pausing { memory: kept })],
            ),
            (
                T::Pause { memory: lost },
                vec![(Running, Pausing { memory: lost })],
            ),
            (
                T::Park,
                vec![
                    (Pausing { memory: kept }, Paused { memory: kept }),
                    (Pausing { memory: lost }, Paused { memory: lost }),
                ],
            ),
            (
                T::Resume,
                vec![
                    (Paused { memory: kept }, Resuming { memory: kept }),
                    (Paused { memory: lost }, Resuming { memory: lost }),
                ],
            ),
            (T::Continue, vec![(Resuming { memory: kept }, Running)]),
            (
                T::Stay,
                vec![
                    (Resuming { memory: kept }, Paused { memory: kept }),
                    (Resuming { memory: lost }, Paused { memory: lost }),
                ],
            ),
            (
                T::Exit(Reason::Timeout),
                vec![
                    (Creating, over()),
                    (Running, over()),
                    (Pausing { memory: kept }, Pausing { memory: lost }),
                    (Pausing { memory: lost }, Pausing { memory: lost }),
                    (Paused { memory: kept }, Paused { memory: lost }),
                    (Paused { memory: lost }, Paused { memory: lost }),
                    (Resuming { memory: kept }, Resuming { memory: lost }),
                    (Resuming { memory: lost }, Resuming { memory: lost }),
                ],
            ),
            (
                T::End(Reason::Timeout),
                vec![(Creating, over()), (Running, over())],
            ),
            (
                T::Abandon(Reason::Timeout),
                vec![
                    (Pausing { memory: kept }, over()),
                    (Pausing { memory: lost }, over()),
                    (Paused { memory: kept }, over()),
                    (Paused { memory: lost }, over()),
                    (Resuming { memory: kept }, over()),
                    (Resuming { memory: lost }, over()),
                ],
            ),
        ]
    }

    #[test]
    fn each_state_has_its_transitions_and_no_others() {
        for (transition, pairs) in legal() {
            for state in STATES {
                let expected = pairs.iter().find(|(from, _)| *from == state);
                let expected = expected.map(|(_, to)| to.clone());
                let found = state.after(transition.clone());
                assert_eq!(found, expected, "{state:?} {transition:?}");
                let life = Life::new(state.clone());
                let passed = life.pass(transition.clone());
                let (then, refused) = match expected {
                    Some(next) => (next, Ok(())),
                    None => (state.clone(), Err(state.clone())),
                };
                assert_eq!((life.state(), passed), (then, refused));
            }
        }
    }

    #[test]
    fn illegal_transition_says_what_the_sandbox_does() {
        for (state, kind, part) in [
            (Creating, Kind::Exists, "is just being made"),
            (Running, Kind::Exists, "runs"),
            (Pausing { memory: true }, Kind::Exists, "being paused"),
            (Paused { memory: false }, Kind::Exists, "is paused already"),
            (Resuming { memory: true }, Kind::Exists, "made to go on"),
            (
                Ended(Reason::Timeout),
                Kind::NoSandbox,
                "ending: its time was over",
            ),
        ] {
            let refusal = state.refusal("i1");
            assert_eq!(refusal.kind, kind, "{state:?}");
            assert!(refusal.what.contains("sandbox i1"), "{}", refusal.what);
            assert!(refusal.what.contains(part), "{}", refusal.what);
        }
    }

    #[tokio::test]
    async fn waiter_is_woken_by_the_state_that_it_waits_for() {
        let life = Life::new(Running);
        let (of, over) = (life.clone(), Reason::Exited("gone".to_owned()));
        let waits = tokio::spawn(async move { of.stopped().await });
        tokio::task::yield_now().await;
        life.pass(T::Exit(over.clone())).unwrap();
        assert_eq!(waits.await.unwrap(), Ended(over));
        assert_eq!(
            life.pass(T::End(Reason::Caller)),
            Err(Ended(Reason::Exited("gone".to_owned())))
        );
    }
}
