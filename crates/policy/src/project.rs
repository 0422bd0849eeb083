//! A project's `atoll.toml`.

use crate::digest::digest;
use crate::document::Document;
use crate::error::Problem;
use crate::file::SourceFile;
use crate::layers::Denials;
use crate::notice::Notice;
use crate::origin::Origin;
use crate::origin::Sourced;
use crate::settings::Settings;
use crate::source::Sources;
use crate::words::Author;
use crate::words::parse_profile_name;

const KEYS: [&str; 16] = [
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
    "grants",
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

const NOBODY: &str = "nobody has trusted its content";

impl Notice {
    /// Returns whether it names a project's file that nobody has trusted: a person who was told so
    /// once need not be told at each run.
    #[must_use]
    pub fn is_of_stray(&self) -> bool {
        self.text.contains(NOBODY)
    }
}

/// Returns the notice that a project's file is not trusted, and how to trust it.
pub(crate) fn untrusted(sources: &Sources<'_>, file: &SourceFile<'_>, name: &str) -> Notice {
    let changed = if sources.trust.knows(&file.name) {
        "its content has changed since it was trusted"
    } else {
        NOBODY
    };
    let short = digest(&file.content).chars().take(12).collect::<String>();
    Notice {
        text: format!(
            "{name} is not trusted: {changed} (sha256 {short}…); it is ignored. Look at it, \
             then run `atoll trust`"
        ),
        origin: Origin::File {
            name: file.name.as_ref().into(),
            line: 1,
        },
    }
}
