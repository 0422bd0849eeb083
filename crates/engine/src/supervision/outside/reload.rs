//! Reloads of a running sandbox's policies: compiled, recorded, then put into effect by the
//! egress process, then confirmed.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use atoll_model::network::FlowOrder;
use atoll_sandbox::{Declined, Who};
use atoll_sys::descriptor::{self, sealed_memory};
use rustix::fs::{SeekFrom, seek};

use super::{NewPolicies, Outside, State};
use crate::supervision::control::{Answer, Versions};

/// The longest wait for the egress process to put policies into effect: it compiles them.
const RELOADED_PATIENCE: Duration = Duration::from_secs(20);
/// The most reloads of a run.
const RELOADS_MAX: u32 = 10_000;
/// The longest part of a text in one answer, bytes; JSON can make it six times as long.
const PART_BYTES: usize = 16 << 10;

impl Outside<'_> {
    /// Reloads the policies. If they cannot be read, or are wrong, the old ones stay in force.
    pub(super) fn reload(&mut self, by: Who, only: Option<&Versions>) -> Answer {
        self.compared = None;
        let Some(live) = self.live else {
            return Answer::Refused(Declined {
                why: "it cannot be spoken to".to_owned(),
                advice: "start it anew".to_owned(),
            });
        };
        if self.policies >= RELOADS_MAX {
            return Answer::Refused(Declined {
                why: format!("its policies were reloaded {RELOADS_MAX} times already"),
                advice: "start the run anew".to_owned(),
            });
        }
        let reloading = live.gate.reload(by, only);
        self.recorded(&[]);
        let NewPolicies { reloaded, handed } = match reloading {
            Ok(new) => new,
            Err(declined) => return Answer::Refused(declined),
        };
        if reloaded.from == reloaded.to {
            return Answer::Reloaded(reloaded);
        }
        self.policies += 1;
        match self.have_decided_by(handed) {
            Ok(()) => Answer::Reloaded(reloaded),
            Err(why) => {
                let _ = self.end_carrier();
                self.fail(why.clone());
                Answer::Refused(Declined {
                    why: format!("{why}: nothing is carried any more"),
                    advice: "start the run anew".to_owned(),
                })
            }
        }
    }

    /// Returns a part of the comparison text.
    pub(super) fn compare(&mut self, at: usize) -> Answer {
        if at == 0 {
            let compared = self.live.map(|live| live.gate.compare()).transpose();
            self.compared = match compared {
                Ok(compared) => compared,
                Err(declined) => return Answer::Refused(declined),
            };
        }
        let part = self.compared.as_ref().and_then(|(versions, text)| {
            let mut end = at.saturating_add(PART_BYTES).min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            Some((versions.clone(), text.get(at..end)?.to_owned(), text.len()))
        });
        match part {
            Some((versions, text, bytes)) => Answer::Compared {
                versions,
                text,
                bytes,
            },
            None => Answer::Refused(Declined {
                why: "they have been read anew meanwhile".to_owned(),
                advice: "ask once more".to_owned(),
            }),
        }
    }

    /// Has the egress process, now or when it starts, decide by these policies, and waits for
    /// that.
    fn have_decided_by(&mut self, handed: Option<Vec<u8>>) -> Result<(), String> {
        let unable = |error: std::io::Error| format!("policies cannot be handed on: {error}");
        let file = handed.map(|text| file(&text)).transpose().map_err(unable)?;
        if !matches!(self.state, State::Carrying { .. }) {
            self.doors.policies = file;
            return Ok(());
        }
        let policies = self.policies;
        let order = FlowOrder::Reload {
            policies,
            has_policies: file.is_some(),
        };
        self.tell(order, file.as_slice());
        let until = Instant::now() + RELOADED_PATIENCE;
        while self.decided_by < policies {
            let State::Carrying { line, .. } = &self.state else {
                return Err("what carried connections has ended".to_owned());
            };
            let now = Instant::now();
            let left = u32::try_from(until.saturating_duration_since(now).as_millis());
            let _ = descriptor::wait_readable([Some(line.as_fd())], left.ok());
            if !self.hear_some() || now >= until {
                return Err("what carried connections did not take the new policies".to_owned());
            }
        }
        Ok(())
    }
}

/// Creates a sealed file of policies, with its offset at the beginning: the egress process
/// reads from the present offset.
fn file(text: &[u8]) -> std::io::Result<OwnedFd> {
    let file = sealed_memory(c"atoll-policies", text)?;
    seek(&file, SeekFrom::Start(0))?;
    Ok(file)
}
