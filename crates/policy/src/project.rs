//! A project's `atoll.toml`.

use crate::SourceFile;
use crate::document::Document;
use crate::error::Problem;
use crate::layers::Denials;
use crate::origin::Sourced;
use crate::profile::parse_profile_name;
use crate::settings::{Author, Settings};

const KEYS: [&str; 15] = [
    "description",
    "profile",
    "workspace",
    "forbid-live",
    "network",
    "trust",
    "labels",
    "home",
    "files",
    "environment",
    "limits",
    "terminal",
    "syscalls",
    "programs",
    "deny",
];

/// A project's file as written. It counts only once a person has trusted it.
#[derive(Clone, Debug)]
pub(crate) struct Project {
    pub(crate) profile: Option<Sourced<String>>,
    pub(crate) settings: Settings,
    pub(crate) denials: Denials,
}

impl Project {
    pub(crate) fn parse(file: &SourceFile<'_>) -> Result<Self, Vec<Problem>> {
        let (mut document, mut top) = Document::open(file)?;
        document.text(&mut top, "description", |_| Ok(()));
        let why = "only profiles have this; name a profile with `profile`";
        document.refuse(&mut top, "extends", why);
        document.refuse(&mut top, "commands", why);
        let project = Self {
            profile: document.text(&mut top, "profile", parse_profile_name),
            settings: Settings::read(&mut document, &mut top, Author::Project),
            denials: Denials::read(&mut document, &mut top),
        };
        document.end(top, &KEYS);
        document.close(project)
    }
}
