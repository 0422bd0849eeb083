use std::path::Path;

use crate::credential;
use crate::error::{Problem, ProfileError};
use crate::file::SourceFile;
use crate::layers::{Organisation, UserConfig};
use crate::load::user_names;
use crate::profile::Profile;
use crate::project::Project;
use crate::shipped::{self, Shipped};
use crate::source::ProfileSource;

/// The kind of a policy file; each has its own keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A profile, of any name.
    Profile,
    /// A project's `atoll.toml`.
    Project,
    /// The organisation's `organisation.toml`.
    Organisation,
    /// The user's `config.toml`.
    UserConfig,
}

impl FileKind {
    /// Returns the kind of a file by its name.
    #[must_use]
    pub fn of(file_name: &str) -> Self {
        let base = Path::new(file_name).file_name();
        match base.and_then(|base| base.to_str()) {
            Some("atoll.toml") => Self::Project,
            Some("organisation.toml") => Self::Organisation,
            Some("config.toml") => Self::UserConfig,
            _ => Self::Profile,
        }
    }
}

/// Returns all problems in a policy file, sorted by line; empty if there are none. The file's name
/// determines its kind ([`FileKind::of`]). Problems that depend on the host or on other files (as
/// an extended profile that does not exist) are found by [`compile`](crate::compile).
#[must_use]
pub fn check(content: &[u8], file_name: &str) -> Vec<Problem> {
    let file = SourceFile::new(file_name, content);
    let result = match FileKind::of(file_name) {
        FileKind::Profile => Profile::parse(&file).map(drop),
        FileKind::Project => Project::parse(&file).map(drop),
        FileKind::Organisation => Organisation::parse(&file).map(drop),
        FileKind::UserConfig => UserConfig::parse(&file).map(drop),
    };
    result.err().unwrap_or_default()
}

/// Returns remarks on a policy file without problems, each with its line.
#[must_use]
pub fn remarks(content: &[u8], file_name: &str) -> Vec<(u32, String)> {
    let file = SourceFile::new(file_name, content);
    let mut told = match FileKind::of(file_name) {
        FileKind::Profile => Profile::parse(&file).map(|profile| {
            let credentials = credential::remarks(&profile.settings.credentials);
            [credentials, profile.settings.network.remarks()].concat()
        }),
        // What it would allow is not allowed, and the run says so.
        FileKind::Project => Project::parse(&file).map(|project| {
            let (network, _) = project.settings.network.narrowed();
            [network.remarks(), project.denials.remarks()].concat()
        }),
        FileKind::Organisation => Organisation::parse(&file).map(|one| one.denials.remarks()),
        FileKind::UserConfig => Ok(Vec::new()),
    }
    .unwrap_or_default();
    told.sort_by_key(|(line, _)| *line);
    told
}

/// An entry in the list of profiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileSummary {
    /// The profile's name, as for `--profile`.
    pub name: String,
    /// The `description`; empty without one.
    pub description: String,
    /// The commands that choose the profile.
    pub commands: Vec<String>,
    /// The file; `shipped/NAME.toml` for Atoll's own profiles.
    pub file: String,
    /// The problems in the file.
    pub problems: Vec<Problem>,
}

/// Returns all profiles: the shipped ones in their order, then the user's by name. A user's profile
/// replaces a shipped one of the same name.
///
/// # Errors
/// [`ProfileError::Unreadable`] when the user's profiles cannot be read.
pub fn list(users: &dyn ProfileSource) -> Result<Vec<ProfileSummary>, ProfileError> {
    let mut names: Vec<String> = shipped::ALL
        .iter()
        .map(|profile| profile.name.to_owned())
        .collect();
    for name in user_names(users)? {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut summaries = Vec::with_capacity(names.len());
    for name in names {
        let of_user = match users.lookup(&name) {
            Ok(of_user) => of_user,
            Err(why) => {
                summaries.push(unreadable(name, why));
                continue;
            }
        };
        if let Some(file) = of_user.or_else(|| Shipped::by_name(&name).map(Shipped::source)) {
            summaries.push(summary(name, &file));
        }
    }
    Ok(summaries)
}

/// Returns the entry of a profile whose file cannot be read, with the reason, so that the others
/// can still be listed.
fn unreadable(name: String, why: String) -> ProfileSummary {
    let file = format!("{name}.toml");
    ProfileSummary {
        problems: vec![Problem {
            file: file.clone(),
            line: 1,
            column: 1,
            what: format!("it cannot be read: {why}"),
            hint: None,
        }],
        name,
        description: String::new(),
        commands: Vec::new(),
        file,
    }
}

fn summary(name: String, file: &SourceFile<'_>) -> ProfileSummary {
    let (description, commands, problems) = match Profile::parse(file) {
        Ok(profile) => {
            let commands = profile.commands.into_iter().map(|one| one.value).collect();
            (profile.description, commands, Vec::new())
        }
        Err(problems) => (String::new(), Vec::new(), problems),
    };
    ProfileSummary {
        name,
        description,
        commands,
        file: file.name.to_string(),
        problems,
    }
}
