//! Notices of the engine, as a person reads them.

use atoll_engine::notice::{Notice, Notices};
use atoll_engine::shell::word;

use crate::output::Output;
use crate::undo_report;

impl Notices for Output {
    fn notice(&self, notice: Notice) {
        match &notice {
            Notice::Replaced(name) => self.say(&format!(
                "atoll: the command holds the value of credential {name}: what stands for it is in its place\n"
            )),
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
