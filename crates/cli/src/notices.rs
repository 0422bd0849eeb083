//! Notices of the engine, as a person reads them.

use atoll_engine::notice::{Notice, Notices, StopEnd};
use atoll_engine::printable::printable;
use atoll_engine::shell::word;

use crate::output::Output;
use crate::undo_report;

impl Notices for Output {
    fn notice(&self, notice: Notice) {
        match &notice {
            Notice::Replaced(name) => self.say(&format!(
                "atoll: the command holds the value of credential {name}: what stands for it is in its place\n"
            )),
            Notice::Stopped { run, how } => self.say(&match how {
                StopEnd::Told => format!("Stopped {run}.\n"),
                StopEnd::KilledDeaf => {
                    format!("Stopped {run}: it did not listen yet, and its process was ended.\n")
                }
                StopEnd::KilledSilent => {
                    format!("Stopped {run}: it did not answer, and its process was ended.\n")
                }
                StopEnd::ByItself => format!("Run {run} has ended by itself.\n"),
            }),
            Notice::NoneGoesOn => self.say("No run goes on.\n"),
            Notice::NoneOfSession(name) => self.say(&format!("No run of session {name} goes on.\n")),
            Notice::NoneOfProfile { profile, others } => {
                let of_others = match others.is_empty() {
                    true => String::new(),
                    false => format!("; what goes on is of {}", others.join(", ")),
                };
                let told = format!("No run of profile {profile} goes on{of_others}.");
                self.say(&format!("{}\n", printable(told.as_bytes())));
            }
            Notice::Failed(failure) => self.failure(failure),
            Notice::NothingToApply => self.say("There was nothing to apply.\n"),
            Notice::Overwriting { report, command } => {
                undo_report::warn_of_force(report, command, self);
            }
            Notice::Undone { report, command } => undo_report::tell(report, command, self),
            Notice::Text(text) => self.warn(text),
            Notice::Remark(text) => self.say(&format!("atoll: {text}\n")),
            Notice::Open { what, path } => self.warn(&format!(
                "{what}: others than its owner can read {}: `chmod go-rwx {}` keeps it",
                path.display(),
                word(path)
            )),
        }
    }
}
