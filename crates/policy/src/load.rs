//! The choice of a profile, and loading it with those that it extends.

use std::ffi::OsStr;
use std::path::Path;

use crate::Notice;
use crate::digest::PolicyDigest;
use crate::error::{Problem, ProfileError};
use crate::file::SourceFile;
use crate::origin::{Origin, Sourced};
use crate::profile::Profile;
use crate::shipped::{self, Shipped};
use crate::source::{ProfileSource, Requested, RequestedProfile};
use crate::suggest::nearest;
use crate::words::is_profile_name;

/// The most profiles merged into one.
pub(crate) const PROFILES_MAX: usize = 32;

/// The chosen profile's name with its origin, and its file if one was named.
pub(crate) struct Choice<'a> {
    pub(crate) name: Sourced<String>,
    pub(crate) file: Option<&'a SourceFile<'static>>,
    /// Notices about profiles that were skipped on the way.
    pub(crate) notices: Vec<Notice>,
}

/// Chooses the profile: the first named by the command line, the trusted project, the command that
/// is run, or the user's configuration, else `default`.
pub(crate) fn choose<'a>(
    requested: &'a Requested,
    by_project: Option<Sourced<String>>,
    program: &OsStr,
    users: &dyn ProfileSource,
    by_user: Option<Sourced<String>>,
) -> Result<Choice<'a>, ProfileError> {
    let option = Origin::CommandLine("--profile");
    let named = |name| Choice {
        name,
        file: None,
        notices: Vec::new(),
    };
    match &requested.profile {
        Some(RequestedProfile::Named(name)) => {
            return Ok(named(Sourced::new(name.clone(), option)));
        }
        Some(RequestedProfile::File(file)) => {
            let stem = Path::new(file.name.as_ref()).file_stem();
            let name = stem.unwrap_or(OsStr::new("file")).to_string_lossy();
            return Ok(Choice {
                name: Sourced::new(name.into_owned(), option),
                file: Some(file),
                notices: Vec::new(),
            });
        }
        None => {}
    }
    if let Some(name) = by_project {
        return Ok(named(name));
    }
    let mut notices = Vec::new();
    let by_command = by_command(program, users, &mut notices)?;
    let default = || Sourced::built_in("default".to_owned());
    Ok(Choice {
        name: by_command.or(by_user).unwrap_or_else(default),
        file: None,
        notices,
    })
}

/// Returns the profile that lists this program among its `commands`, a user's first. A profile with
/// problems is an error for those commands that it may name, and is skipped for all others.
fn by_command(
    program: &OsStr,
    users: &dyn ProfileSource,
    notices: &mut Vec<Notice>,
) -> Result<Option<Sourced<String>>, ProfileError> {
    let Some(command) = Path::new(program).file_name().and_then(OsStr::to_str) else {
        return Ok(None);
    };
    for name in user_names(users)? {
        let Some(file) = lookup(users, &name)? else {
            continue;
        };
        let profile = match Profile::parse(&file) {
            Ok(profile) => profile,
            Err(problems) if may_name(&file.content, command) => {
                return Err(ProfileError::Invalid(problems));
            }
            Err(problems) => {
                notices.extend(problems.first().map(|first| passed_over(&name, first)));
                continue;
            }
        };
        let found = profile
            .commands
            .into_iter()
            .find(|one| one.value == command);
        if let Some(found) = found {
            return Ok(Some(Sourced::new(name, found.origin)));
        }
    }
    Ok(Shipped::by_command(command).map(|profile| {
        let origin = Origin::File {
            name: profile.file.into(),
            line: line_of_commands(profile.content),
        };
        Sourced::new(profile.name.to_owned(), origin)
    }))
}

/// Returns whether a file that cannot be parsed may name this command: it contains it as a word, or
/// an escape sequence may spell it.
fn may_name(content: &[u8], command: &str) -> bool {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let stands_alone = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| content.get(before));
        let after = content.get(at + command.len());
        !before.is_some_and(is_of_word) && !after.is_some_and(is_of_word)
    };
    let is_there = content
        .windows(command.len().max(1))
        .enumerate()
        .any(|(at, bytes)| bytes == command.as_bytes() && stands_alone(at));
    is_there || content.contains(&b'\\')
}

fn passed_over(name: &str, first: &Problem) -> Notice {
    Notice {
        text: format!(
            "the profile {name} has a mistake and is passed over: {}; `atoll profile list` shows it",
            first.what
        ),
        origin: Origin::File {
            name: first.file.as_str().into(),
            line: first.line,
        },
    }
}

fn line_of_commands(content: &str) -> u32 {
    let before = content
        .lines()
        .take_while(|line| !line.starts_with("commands"));
    u32::try_from(before.count() + 1).unwrap_or(u32::MAX)
}

/// Returns the names of the user's profiles, sorted, without those that are no valid names.
pub(crate) fn user_names(users: &dyn ProfileSource) -> Result<Vec<String>, ProfileError> {
    let mut names = users.names().map_err(|why| ProfileError::Unreadable {
        name: "the profiles' directory".to_owned(),
        why,
    })?;
    names.retain(|name| is_profile_name(name));
    names.sort();
    names.dedup();
    Ok(names)
}

fn lookup<'a>(
    users: &'a dyn ProfileSource,
    name: &str,
) -> Result<Option<SourceFile<'a>>, ProfileError> {
    users.lookup(name).map_err(|why| ProfileError::Unreadable {
        name: name.to_owned(),
        why,
    })
}

/// The chosen profile and those that it extends, extended ones first.
pub(crate) struct Chain {
    pub(crate) profiles: Vec<Profile>,
    /// The names, in the same order.
    pub(crate) names: Vec<String>,
}

/// Loads the chosen profile and before it each that it extends, each once.
pub(crate) fn load(
    choice: &Choice<'_>,
    users: &dyn ProfileSource,
    digest: &mut PolicyDigest,
) -> Result<Chain, ProfileError> {
    let mut loader = Loader {
        users,
        digest,
        open: Vec::new(),
        done: Vec::new(),
        chain: Chain {
            profiles: Vec::new(),
            names: Vec::new(),
        },
        first: choice.name.value.clone(),
    };
    match choice.file {
        Some(file) => loader.take(&choice.name, file, file.name.to_string())?,
        None => loader.by_name(&choice.name)?,
    }
    Ok(loader.chain)
}

struct Loader<'a> {
    users: &'a dyn ProfileSource,
    digest: &'a mut PolicyDigest,
    /// The files on the way from the first profile to the current one, with their names.
    open: Vec<(String, String)>,
    /// The files already merged.
    done: Vec<String>,
    chain: Chain,
    first: String,
}

impl Loader<'_> {
    fn by_name(&mut self, name: &Sourced<String>) -> Result<(), ProfileError> {
        if !is_profile_name(&name.value) {
            return Err(unknown(name, self.users));
        }
        let users = self.users;
        let of_user = lookup(users, &name.value)?;
        // A user's profile stands in place of the shipped one of the same name,
        // and when it extends its own name it means the shipped one.
        let is_open =
            |file: &SourceFile<'_>| self.open.last().is_some_and(|(path, _)| *path == file.name);
        let shipped = Shipped::by_name(&name.value);
        let file = match (of_user, shipped) {
            (Some(file), Some(shipped)) if is_open(&file) => shipped.source(),
            (Some(file), _) => file,
            (None, Some(shipped)) => shipped.source(),
            (None, None) => return Err(unknown(name, self.users)),
        };
        let path = file.name.to_string();
        self.take(name, &file, path)
    }

    fn take(
        &mut self,
        name: &Sourced<String>,
        file: &SourceFile<'_>,
        path: String,
    ) -> Result<(), ProfileError> {
        if self.done.contains(&path) {
            return Ok(());
        }
        self.open.push((path.clone(), name.value.clone()));
        let earlier = self.open.len() - 1;
        if self
            .open
            .iter()
            .take(earlier)
            .any(|(open, _)| *open == path)
        {
            let names: Vec<&str> = self.open.iter().map(|(_, name)| name.as_str()).collect();
            return Err(ProfileError::Circle {
                chain: names.join(" → "),
                asked_by: name.origin.to_string(),
            });
        }
        if self.open.len() + self.done.len() > PROFILES_MAX {
            return Err(ProfileError::TooMany {
                name: self.first.clone(),
                most: PROFILES_MAX,
            });
        }
        let profile = Profile::parse(file).map_err(ProfileError::Invalid)?;
        for extended in &profile.extends {
            self.by_name(extended)?;
        }
        self.open.pop();
        self.done.push(path);
        self.digest
            .add(&format!("profile {}", name.value), &file.content);
        self.chain.names.push(name.value.clone());
        self.chain.profiles.push(profile);
        Ok(())
    }
}

fn unknown(name: &Sourced<String>, users: &dyn ProfileSource) -> ProfileError {
    let mut known: Vec<String> = shipped::ALL
        .iter()
        .map(|profile| profile.name.to_owned())
        .collect();
    known.extend(user_names(users).unwrap_or_default());
    known.sort();
    known.dedup();
    let suggestion = nearest(&name.value, known.iter().map(String::as_str))
        .map(|near| format!("; did you mean {near:?}?"))
        .unwrap_or_default();
    ProfileError::Unknown {
        name: name.value.clone(),
        asked_by: name.origin.to_string(),
        suggestion,
        known: known.join(", "),
    }
}
