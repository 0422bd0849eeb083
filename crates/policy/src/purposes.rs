//! Purposes of sessions: named sets of policies that only forbid (docs/purposes.md).
//!
//! A purpose consists of all files of its name: the one that ships with Atoll, and those of the
//! organisation and the person beside their policies. None of them can permit, so a further one
//! only takes away.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_cedar::{Fault, PolicyFile, forbids_alone, purpose_of};

use crate::compiled::{policy_file, problems};
use crate::error::{Problem, ProfileError};
use crate::file::SourceFile;
use crate::levels::{PURPOSE, TrustRules};
use crate::origin::{Origin, Sourced};
use crate::rules::Rules;
use crate::suggest::{misspelt, nearest};
use crate::words::is_profile_name;

/// The most characters in which a text of several words may differ from the purpose that it means.
const PURPOSE_SLIPS_MAX: usize = 2;

/// A purpose that ships with Atoll.
struct Shipped {
    name: &'static str,
    /// The file's name in messages.
    file: &'static str,
    content: &'static str,
}

macro_rules! shipped {
    ($($name:literal,)*) => {
        &[$(Shipped {
            name: $name,
            file: concat!("purpose/", $name, ".cedar"),
            content: include_str!(concat!("../purposes/", $name, ".cedar")),
        }),*]
    };
}

const ALL: &[Shipped] = shipped! {
    "review",
    "fix",
    "tests",
    "documentation",
    "dependencies",
    "release",
    "research",
    "data-analysis",
};

/// An entry in the list of purposes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurposeSummary {
    /// The purpose's name, as for `--purpose`.
    pub name: String,
    /// The description, from the first line of the file.
    pub description: String,
    /// The file's name.
    pub file: String,
    /// The whole file.
    pub content: String,
}

impl PurposeSummary {
    fn of(name: &str, file: PolicyFile) -> Self {
        let content = String::from_utf8_lossy(&file.content).into_owned();
        let first = content.lines().next().unwrap_or_default();
        let description = first.strip_prefix("//").unwrap_or_default().trim();
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            file: file.name,
            content,
        }
    }
}

/// Returns all purposes: those that ship with Atoll, then those of people's own files, in the order
/// given.
#[must_use]
pub fn purposes<'a>(own: impl Iterator<Item = &'a SourceFile<'static>>) -> Vec<PurposeSummary> {
    let shipped = ALL.iter().map(|one| (one.name.to_owned(), one.file()));
    let own = own.map(policy_file).filter_map(|file| {
        let name = purpose_of(&file.name)?.to_owned();
        Some((name, file))
    });
    let all = shipped.chain(own);
    all.map(|(name, file)| PurposeSummary::of(&name, file))
        .collect()
}

impl Shipped {
    fn file(&self) -> PolicyFile {
        PolicyFile {
            name: self.file.to_owned(),
            content: self.content.as_bytes().to_vec(),
        }
    }
}

/// Returns the further faults of a file that defines a purpose.
pub(crate) fn faults(file: &PolicyFile) -> Vec<Fault> {
    match purpose_of(&file.name) {
        Some(_) => forbids_alone(file),
        None => Vec::new(),
    }
}

/// Splits a layer's files into those that always count, and those of purposes.
pub(crate) fn apart(files: &[SourceFile<'static>]) -> (Vec<PolicyFile>, Vec<PolicyFile>) {
    let of_purpose = |file: &PolicyFile| purpose_of(&file.name).is_some();
    let (purposes, others) = files.iter().map(policy_file).partition(of_purpose);
    (others, purposes)
}

/// The reason why a purpose that narrowed a finished run has no policies.
#[derive(Debug)]
pub(crate) enum NotThere {
    /// There is no file of it any more.
    Gone(String),
    /// A file of it has problems.
    Broken(ProfileError),
}

/// The files of people's own purposes.
#[derive(Debug, Default)]
pub(crate) struct Purposes {
    files: Vec<PolicyFile>,
}

/// The policies that narrow a run: the files, and the files of each purpose.
type Narrowing = (Vec<PolicyFile>, Vec<(String, Vec<String>)>);

impl Purposes {
    pub(crate) fn new(files: Vec<PolicyFile>) -> Self {
        Self { files }
    }

    /// Returns all files of one purpose; empty if there are none.
    fn named(&self, name: &str) -> Vec<PolicyFile> {
        let shipped = ALL.iter().filter(|one| one.name == name);
        let own = self.files.iter();
        let own = own.filter(|file| purpose_of(&file.name) == Some(name));
        shipped.map(Shipped::file).chain(own.cloned()).collect()
    }

    /// Returns the policies of a run's purposes. A purpose without policies narrows nothing: that
    /// is a notice if a person has typed it, and a problem in a file, which has to name an existing
    /// one.
    ///
    /// # Errors
    /// When a file names an unknown purpose, a person has typed what is nearly one, a purpose that
    /// narrowed the continued runs has no policies any more, or one has problems.
    pub(crate) fn settle(&self, rules: &mut Rules) -> Result<Narrowing, ProfileError> {
        self.refuse_gone(&rules.trust.held)?;
        let (mut all, mut narrowed) = Narrowing::default();
        for stated in self.counting(&rules.trust) {
            let files = self.named(&stated.value);
            refuse_permits(&files)?;
            match (files.is_empty(), &stated.origin) {
                (false, _) => {
                    let names = files.iter().map(|file| file.name.clone());
                    narrowed.push((stated.value, names.collect()));
                    all.extend(files);
                }
                (true, Origin::File { name, line }) => {
                    return Err(self.unknown(&stated, name, *line));
                }
                (true, Origin::CommandLine(_) | Origin::BuiltIn) => {
                    if stated.origin == PURPOSE {
                        self.refuse_misspelt(&stated.value)?;
                    }
                    let mut text = self.idle(&stated.value);
                    if let Some(one) = &rules.trust.displaced {
                        let goes_on =
                            format!("; {:?} ({}) goes on narrowing", one.value, one.origin);
                        text.push_str(&goes_on);
                    }
                    rules.notice(text, stated.origin);
                }
            }
        }
        Ok((all, narrowed))
    }

    /// Returns the purposes whose policies count: the stated one, the added ones, and the profile's
    /// if the command line replaces it by one without policies.
    fn counting(&self, trust: &TrustRules) -> Vec<Sourced<String>> {
        let is_idle = |one: &Sourced<String>| self.named(&one.value).is_empty();
        let mut all: Vec<_> = trust.purpose.iter().cloned().collect();
        if all.iter().all(is_idle) {
            all.extend(trust.displaced.clone());
        }
        for one in &trust.added {
            if all.iter().all(|known| known.value != one.value) {
                all.push(one.clone());
            }
        }
        all
    }

    /// Refuses to continue runs that were narrowed by a purpose which has no policies any more.
    fn refuse_gone(&self, held: &BTreeSet<String>) -> Result<(), ProfileError> {
        match held.iter().find(|name| self.named(name).is_empty()) {
            None => Ok(()),
            Some(name) => Err(ProfileError::Request {
                option: "--session, --resume",
                why: format!(
                    "purpose {name} has narrowed what this run goes on with, and there is no file \
                     of it any more; put {name}.purpose.cedar back beside config.toml"
                ),
            }),
        }
    }

    /// Returns the policies of the purposes that narrowed a finished run.
    ///
    /// # Errors
    /// If one has no policies any more, or has problems.
    pub(crate) fn still(&self, names: &[String]) -> Result<Vec<PolicyFile>, NotThere> {
        let mut all = Vec::new();
        for name in names {
            let files = self.named(name);
            refuse_permits(&files).map_err(NotThere::Broken)?;
            if files.is_empty() {
                return Err(NotThere::Gone(name.clone()));
            }
            all.extend(files);
        }
        Ok(all)
    }

    fn names(&self) -> Vec<&str> {
        let own = self.files.iter();
        let own = own.filter_map(|file| purpose_of(&file.name));
        let mut names: Vec<&str> = ALL.iter().map(|one| one.name).chain(own).collect();
        names.dedup();
        names
    }

    /// Refuses a misspelt purpose, with which a run would start without being narrowed: a text that
    /// differs little from a purpose, or is one word that begins like one.
    fn refuse_misspelt(&self, text: &str) -> Result<(), ProfileError> {
        let names = self.names();
        let meant = match is_profile_name(text) {
            true => nearest(text, names),
            false => misspelt(text, names, PURPOSE_SLIPS_MAX),
        };
        match meant {
            None => Ok(()),
            Some(meant) => Err(ProfileError::Request {
                option: "--purpose",
                why: format!(
                    "there is no purpose {text:?}, and nothing would be narrowed; did you mean \
                     {meant:?}? A text of your own (context.purpose) has to differ more from a \
                     purpose's name"
                ),
            }),
        }
    }

    /// Returns the notice that a purpose is a fact and nothing else.
    fn idle(&self, text: &str) -> String {
        let meant = nearest(text, self.names());
        let meant = meant.map(|name| format!("; did you mean {name:?}?"));
        format!(
            "purpose {text:?} narrows nothing: it is a text for policies that ask for \
             context.purpose, and none have that name{} (atoll policy purposes lists those that do)",
            meant.unwrap_or_default()
        )
    }

    fn unknown(&self, stated: &Sourced<String>, file: &Arc<str>, line: u32) -> ProfileError {
        let names = self.names();
        let known = names.join(", ");
        let meant = nearest(&stated.value, names.iter().copied());
        let hint = meant.map(|name| format!("did you mean {name:?}?"));
        ProfileError::Invalid(vec![Problem {
            file: file.to_string(),
            line,
            column: 1,
            what: format!("there is no purpose {:?}", stated.value),
            hint: Some(hint.unwrap_or_else(|| format!("those that there are: {known}"))),
        }])
    }
}

/// Refuses a purpose that permits: a permit would deny everything else of its action.
fn refuse_permits(files: &[PolicyFile]) -> Result<(), ProfileError> {
    let faults: Vec<Fault> = files.iter().flat_map(forbids_alone).collect();
    match faults.is_empty() {
        true => Ok(()),
        false => Err(ProfileError::Invalid(problems(faults))),
    }
}
