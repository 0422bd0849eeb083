//! The effect of a person's answer on what it is about.

use atoll_model::network::{Listener, PublishedPort};
use atoll_sandbox::{Answered, Denial, Pending};

use super::said::Said;
use super::{Desk, Prompt};

impl Desk {
    pub(super) fn said_of_call(&mut self, question: &Pending, said: Said) {
        match said {
            Said::Decided(decision) => {
                self.open.retain(|one| one.approval != question.approval);
                // Where it takes another person too it stays open, and the terminal is free.
                self.aside.insert(question.approval);
                self.answered = Some(Answered {
                    approval: question.approval,
                    digest: question.digest,
                    decision,
                });
            }
            Said::Later => {
                self.aside.insert(question.approval);
                self.is_summoned = false;
            }
            Said::Next => {
                if let Some(drawn) = &mut self.drawn {
                    drawn.next(Prompt::Answer);
                }
            }
            Said::Publish | Said::Allow(_) | Said::Unknown(_) => {}
        }
    }

    pub(super) fn said_of_denial(&mut self, denial: Denial, said: Said) {
        match said {
            Said::Allow(lasts) => {
                self.denials.retain(|one| *one != denial);
                self.is_offered = false;
                self.allows = Some((denial.rule, lasts));
            }
            Said::Next => {
                if !self.denials.is_empty() {
                    self.denials.rotate_left(1);
                }
            }
            // Ctrl-C too: nothing has to be allowed.
            Said::Publish | Said::Later | Said::Decided(_) | Said::Unknown(_) => {
                self.denials.retain(|one| *one != denial);
                self.is_offered = false;
            }
        }
    }

    pub(super) fn said_of_port(&mut self, listener: &Listener, said: Said) {
        match said {
            Said::Publish => {
                self.ports.retain(|one| one.port != listener.port);
                self.is_offered = false;
                self.publishes = Some(PublishedPort {
                    outside: listener.port,
                    inside: listener.port,
                });
            }
            // Another port, where there is one.
            Said::Next => {
                if !self.ports.is_empty() {
                    self.ports.rotate_left(1);
                }
            }
            // Ctrl-C too: nobody has to publish anything.
            Said::Allow(_) | Said::Later | Said::Decided(_) | Said::Unknown(_) => {
                self.ports.retain(|one| one.port != listener.port);
                self.is_offered = false;
            }
        }
    }
}
