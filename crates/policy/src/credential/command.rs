//! Commands that print a credential when a request needs it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_model::network::{COMMAND_PATIENCE, COMMAND_PATIENCE_MAX};
use atoll_model::parse_duration;

use crate::document::{Complaint, Document, Section};
use crate::places::{Place, parse_place};
use crate::quoting::quoted;

/// The most words of a command.
const WORDS_MAX: usize = 64;
/// The longest word, bytes.
const WORD_BYTES_MAX: usize = 4096;

/// A command that prints a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSource {
    /// The program.
    pub program: CommandProgram,
    /// The arguments.
    pub arguments: Vec<String>,
    /// The time limit.
    pub patience: Duration,
}

/// A program on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandProgram {
    /// Looked up in the `PATH` of Atoll's own environment.
    Named(String),
    /// This file.
    At(PathBuf),
}

/// A command as written.
#[derive(Clone, Debug)]
pub(super) struct WrittenCommand {
    program: WrittenProgram,
    arguments: Vec<String>,
    patience: Duration,
}

#[derive(Clone, Debug)]
enum WrittenProgram {
    Named(String),
    At(Place),
}

impl WrittenCommand {
    pub(super) fn resolved(self, home: &Path) -> CommandSource {
        CommandSource {
            program: match self.program {
                WrittenProgram::Named(name) => CommandProgram::Named(name),
                WrittenProgram::At(place) => CommandProgram::At(place.resolve(home)),
            },
            arguments: self.arguments,
            patience: self.patience,
        }
    }
}

impl CommandSource {
    /// Formats the source as written in a profile.
    pub(super) fn text(&self) -> String {
        let program = match &self.program {
            CommandProgram::Named(name) => quoted(name),
            CommandProgram::At(path) => quoted(&path.to_string_lossy()),
        };
        let arguments = self.arguments.iter().map(|one| quoted(one));
        let words: Vec<String> = std::iter::once(program).chain(arguments).collect();
        let timeout = match self.patience == COMMAND_PATIENCE {
            true => String::new(),
            false => format!(
                ", timeout = {}",
                quoted(&format!("{}s", self.patience.as_secs()))
            ),
        };
        format!("{{ command = [{}]{timeout} }}", words.join(", "))
    }
}

pub(super) fn read(document: &mut Document, within: &mut Section<'_>) -> Option<WrittenCommand> {
    if !within.holds("command") {
        document.refuse(within, "timeout", "it is for how long a `command` may take");
        return None;
    }
    let patience = document.text(within, "timeout", parse_patience);
    let list = document.list(within, "command", parse_word)?;
    let origin = list.origin.clone();
    let mut words = list.value.into_iter().map(|word| word.value);
    let program = words.next().map(|first| parse_program(&first));
    let wrong = |complaint: Complaint| format!("`command`: {}", complaint.what);
    let program = match program {
        Some(Ok(program)) if words.len() < WORDS_MAX => program,
        Some(Ok(_)) => {
            document.report_line(
                &origin,
                format!("`command` has more than {WORDS_MAX} words"),
            );
            return None;
        }
        Some(Err(complaint)) => {
            document.report_line(&origin, wrong(complaint));
            return None;
        }
        None => {
            document.report_line(&origin, "`command` is empty".to_owned());
            return None;
        }
    };
    Some(WrittenCommand {
        program,
        arguments: words.collect(),
        patience: patience.map_or(COMMAND_PATIENCE, |one| one.value),
    })
}

fn parse_word(text: &str) -> Result<String, Complaint> {
    if text.len() > WORD_BYTES_MAX || text.contains('\0') {
        return Err("a word of it is too long, or has a byte 0 in it"
            .to_owned()
            .into());
    }
    Ok(text.to_owned())
}

/// Parses a program given by its name alone, or by a path that is independent of the current
/// directory.
fn parse_program(text: &str) -> Result<WrittenProgram, Complaint> {
    let is_name = !text.is_empty() && !text.contains('/') && text != "." && text != "..";
    match is_name && !text.starts_with('~') {
        true => Ok(WrittenProgram::Named(text.to_owned())),
        false => parse_place(text).map(WrittenProgram::At),
    }
}

pub(super) fn parse_patience(text: &str) -> Result<Duration, Complaint> {
    let parsed = parse_duration(text).map_err(|error| format!("{text:?}: {error}"))?;
    let is_whole = parsed.subsec_nanos() == 0;
    if is_whole && parsed <= COMMAND_PATIENCE_MAX && !parsed.is_zero() {
        return Ok(parsed);
    }
    Err(Complaint::new(
        format!("{text:?} is not 1s to {}s", COMMAND_PATIENCE_MAX.as_secs()),
        "a request waits for it: 30s is the default",
    ))
}
