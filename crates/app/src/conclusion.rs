//! The end of `atoll run`: what changed, what becomes of it, the summary.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use atoll_gateway::Called;
use atoll_model::{Ending, Outcome};
use atoll_store::{Ledger, RunRecord, RunState, StateDir};
use rustix::fs::OFlags;
use serde_json::json;

use crate::arguments::{RunArguments, STATUS_OWN_ERROR};
use crate::changes::{self, LayerChanges};
use crate::console::Console;
use crate::decision::{self, Decision, Work};
use crate::failure::{Doing, Failure};
use crate::output::Output;
use crate::render::{self, Afterwards};

/// Whether nothing of the run is kept, and nobody asks what it changed.
pub fn is_scratch(arguments: &RunArguments) -> bool {
    arguments.discard && arguments.json.is_none() && !arguments.live
}

/// What concluding a run works with.
pub struct Conclusion<'a> {
    /// What was asked for.
    pub arguments: &'a RunArguments,
    /// Where runs are kept.
    pub state: &'a StateDir,
    /// Where decisions are recorded.
    pub ledger: &'a Ledger,
    /// Where people are told.
    pub output: &'a Output,
    /// Where machines are told.
    pub json: Option<&'a File>,
}

/// How a run went.
struct Went {
    outcome: Outcome,
    groups: render::Changes,
    removed_sequences: BTreeMap<&'static str, u64>,
}

impl Conclusion<'_> {
    /// Finds out what changed, lets it be decided about, and tells of it. Returns
    /// the exit status.
    ///
    /// # Errors
    /// When the changes cannot be read or not be carried where they were to go.
    pub fn draw(&self, called: Called<Console>) -> Result<u8, Failure> {
        let Called {
            attachment,
            outcome,
            mut record,
            ..
        } = called;
        let removed_sequences = attachment.finish();
        let all = if is_scratch(self.arguments) {
            // Gone already: nobody looks at what is thrown away.
            Vec::new()
        } else {
            changes::read(self.state, &record)?
        };
        let went = Went {
            outcome,
            groups: changes::grouped(&all),
            removed_sequences,
        };
        let asks = self.asks(&went);
        let decision = if asks {
            self.output
                .say(&self.summary(&record, &went, Afterwards::Kept));
            decision::ask(&all, self.output)?
        } else {
            self.decided()
        };
        let afterwards = self.carry_out(decision, &mut record, &all, &went)?;
        let told = if asks {
            decision::said(self.output, &record, afterwards)
        } else {
            self.summary(&record, &went, afterwards)
        };
        self.output.say(&told);
        self.tell_more(&record, &went);
        self.tell_machines(&record, &went)?;
        let status = went.outcome.ending.exit_status();
        let is_open = record.state != RunState::Applied && went.groups.total() > 0;
        Ok(if status == 0 && self.arguments.apply && is_open {
            STATUS_OWN_ERROR
        } else {
            status
        })
    }

    /// Whether a person is there to decide, and has something to decide about.
    fn asks(&self, went: &Went) -> bool {
        let RunArguments {
            apply,
            keep,
            discard,
            ..
        } = *self.arguments;
        self.output.can_ask && went.groups.total() > 0 && !(apply || keep || discard)
    }

    /// What the command line has decided.
    fn decided(&self) -> Decision {
        if is_scratch(self.arguments) {
            Decision::Gone
        } else if self.arguments.discard {
            Decision::Discard
        } else if self.arguments.apply {
            Decision::Apply
        } else {
            Decision::Keep
        }
    }

    fn carry_out(
        &self,
        decision: Decision,
        record: &mut RunRecord,
        all: &[LayerChanges],
        went: &Went,
    ) -> Result<Afterwards, Failure> {
        let work = Work {
            state: self.state,
            ledger: self.ledger,
            output: self.output,
        };
        work.carry_out(decision, record, all, &went.groups)
    }

    fn summary(&self, record: &RunRecord, went: &Went, afterwards: Afterwards) -> String {
        let summary = render::Summary {
            run: &record.run,
            ending: went.outcome.ending,
            usage: went.outcome.usage,
            enforcement: &went.outcome.enforcement,
            changes: &went.groups,
            denied: &[],
            removed_sequences: &went.removed_sequences,
            afterwards,
        };
        render::summary(self.output.error_paint, &summary)
    }

    /// What the summary has no line for.
    fn tell_more(&self, record: &RunRecord, went: &Went) {
        let kills = went.outcome.usage.memory_kills;
        if kills > 0 {
            self.output.warn(&format!(
                "the memory limit was reached: the kernel ended {}",
                render::counted(kills, "process", "processes")
            ));
        }
        if went.outcome.ending == Ending::NotFound {
            self.output.warn(&decision::not_found_hint(record));
        }
    }

    fn tell_machines(&self, record: &RunRecord, went: &Went) -> Result<(), Failure> {
        let Some(path) = &self.arguments.json else {
            return Ok(());
        };
        let text = format!("{:#}\n", as_json(record, &went.outcome, &went.groups));
        match self.json {
            None => {
                self.output.say(&text);
                Ok(())
            }
            Some(file) => write_json(file, path, &text),
        }
    }
}

/// Opens the file for `--json` before the program runs: a link that the program
/// puts in its place afterwards leads nowhere. `-` is standard error.
///
/// # Errors
/// When it cannot be written, or is no regular file.
pub fn open_json(arguments: &RunArguments) -> Result<Option<File>, Failure> {
    use std::os::unix::fs::OpenOptionsExt;
    let Some(path) = arguments
        .json
        .as_deref()
        .filter(|path| *path != Path::new("-"))
    else {
        return Ok(None);
    };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let failed = format!("--json {} cannot be written", path.display());
    let file = File::options()
        .write(true)
        .create(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path)
        .doing(&failed)?;
    if file.metadata().doing(&failed)?.is_file() {
        Ok(Some(file))
    } else {
        Err(Failure::new(failed).because("it is not a regular file"))
    }
}

fn write_json(mut file: &File, path: &Path, text: &str) -> Result<(), Failure> {
    file.set_len(0)
        .and_then(|()| file.write_all(text.as_bytes()))
        .doing(&format!("--json {} cannot be written", path.display()))
}

/// How a run went, for machines.
fn as_json(record: &RunRecord, outcome: &Outcome, groups: &render::Changes) -> serde_json::Value {
    let milliseconds =
        |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let group = |group: &render::Group| json!({ "added": group.added, "changed": group.changed, "removed": group.removed });
    json!({
        "run": record.run,
        "state": record.state,
        "profile": record.profile,
        "workspace": record.workspace.to_string_lossy(),
        "exit": outcome.ending.exit_status(),
        "ending": outcome.ending,
        "wall-clock-ms": milliseconds(outcome.usage.wall_clock),
        "cpu-ms": milliseconds(outcome.usage.cpu),
        "memory-peak-bytes": outcome.usage.memory_peak_bytes,
        "limits-held-by": outcome.enforcement,
        "changes": {
            "workspace": group(&groups.workspace),
            "control": group(&groups.control),
            "caches": group(&groups.caches),
            "ignored": group(&groups.ignored),
        },
    })
}
