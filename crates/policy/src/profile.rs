//! Profile files.

use crate::document::{Complaint, Document};
use crate::error::Problem;
use crate::file::SourceFile;
use crate::origin::Sourced;
use crate::settings::Settings;
use crate::words::Author;
use crate::words::parse_profile_name;

/// The keys at the top level of a profile.
const KEYS: [&str; 26] = [
    "description",
    "extends",
    "commands",
    "workspace",
    "forbid-live",
    "outputs",
    "inputs",
    "network",
    "trust",
    "labels",
    "credential",
    "login",
    "git",
    "ssh",
    "system",
    "home",
    "files",
    "environment",
    "limits",
    "terminal",
    "grants",
    "syscalls",
    "programs",
    "checks",
    "apply",
    "dangerous",
];

/// A profile as written, before those that it extends are merged in.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) description: String,
    pub(crate) extends: Vec<Sourced<String>>,
    pub(crate) commands: Vec<Sourced<String>>,
    pub(crate) settings: Settings,
}

impl Profile {
    pub(crate) fn parse(file: &SourceFile<'_>) -> Result<Self, Vec<Problem>> {
        let (mut document, mut top) = Document::open(file)?;
        let description = document.text(&mut top, "description", |text| Ok(text.to_owned()));
        let extends = document.list(&mut top, "extends", parse_profile_name);
        let commands = document.list(&mut top, "commands", parse_command);
        let settings = Settings::read(&mut document, &mut top, Author::Profile);
        document.end(top, &KEYS);
        document.close(Self {
            description: description.map(|text| text.value).unwrap_or_default(),
            extends: extends.map(|list| list.value).unwrap_or_default(),
            commands: commands.map(|list| list.value).unwrap_or_default(),
            settings,
        })
    }
}

fn parse_command(text: &str) -> Result<String, Complaint> {
    if text.is_empty() || text.contains(['/', '\0']) {
        return Err(Complaint::new(
            format!("{text:?} is not a command's base name"),
            "write the file name alone, as \"cargo\"",
        ));
    }
    Ok(text.to_owned())
}
