//! Signing keys of several values.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use atoll_model::network::{CredentialName, Part};
use atoll_policy::{CommandSource, Credential, KEY_PARTS, KeySource, Rules};
use zeroize::Zeroizing;

use super::profile::{self, Kind, NoCommand, Profile};
use super::{served, unread, warn_of_open};
use crate::configuration::Places;
use crate::failure::Failure;
use crate::notice::Notices;
use crate::secrets;
use crate::supervision::{CredentialBundle, SourceError};

/// The largest file of keys that is read, bytes.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// The mode bits by which others than a file's owner read it.
const OTHERS_READ: u32 = 0o044;

/// The names of the values in a file of AWS's command line.
const ID: &str = "aws_access_key_id";
const NAMES: [(Part, &str); 3] = [
    (Part::KeyId, ID),
    (Part::Secret, "aws_secret_access_key"),
    (Part::Token, "aws_session_token"),
];

/// Takes a key's variables that are not taken yet, each for all credentials that it serves.
pub(super) fn take<'a>(
    handover: &mut CredentialBundle,
    rules: &Rules,
    credential: &Credential,
    names: &'a [String],
    taken: &mut Vec<&'a str>,
) -> Result<(), Failure> {
    for (variable, part) in names.iter().zip(KEY_PARTS) {
        if taken.contains(&variable.as_str()) {
            continue;
        }
        taken.push(variable);
        let its = served(rules, variable);
        match handover.take_variable(&its, variable, &atoll_egress::make_placeholder) {
            Ok(()) => {}
            // Not every key has one.
            Err(SourceError::Unset(_)) if part == Part::Token => {}
            // Whether the others are there is looked at when all have been taken.
            Err(SourceError::Unset(_) | SourceError::Empty) if credential.optional => {}
            Err(error) => {
                let name = credential.binding.name.as_str();
                return Err(unread(name, &format!("the variable {variable}"), &error));
            }
        }
    }
    Ok(())
}

/// The command that prints a key once it is needed, and the file that names it.
pub(super) struct Printed {
    pub(super) command: CommandSource,
    pub(super) by: PathBuf,
}

/// Reads the values that are not in variables from a file, if `inside` accepts its path; or returns
/// the command that prints them.
pub(super) fn read(
    handover: &mut CredentialBundle,
    places: &Places,
    (credential, source): (&Credential, &KeySource),
    inside: &dyn Fn(&Path) -> Result<(), Failure>,
    notices: &dyn Notices,
) -> Result<Option<Printed>, Failure> {
    let name = &credential.binding.name;
    match source {
        KeySource::Variables(_) => Ok(None),
        KeySource::Vault(secrets) => {
            for (secret, part) in secrets.iter().zip(KEY_PARTS) {
                let value = secrets::open(places, secret)?;
                let from = format!("the vault's secret {secret}");
                hand_on(handover, name, part, &value, &from)?;
            }
            Ok(None)
        }
        KeySource::Profile {
            name: profile,
            file,
            settings,
        } => {
            inside(file)?;
            let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
            let read = whole(file);
            let text = match &read {
                Ok((text, _)) => text.as_str(),
                Err(error) if is_missing(error) => "",
                Err(error) => return Err(unreadable(name, file, error)),
            };
            let keys = Profile::read(text, Kind::Keys, profile);
            if keys.value(ID).is_some() {
                let is_open = matches!(read, Ok((_, true)));
                if is_open {
                    warn_of_open(notices, name, file);
                }
                return take_profile(handover, name, &keys, (profile, file)).map(|()| None);
            }
            match printed(credential, &keys, (profile, file, settings))? {
                Ok(printed) => {
                    inside(&printed.by)?;
                    Ok(Some(printed))
                }
                Err(missing) => match read {
                    Err(_) if credential.optional => Ok(None),
                    Err(error) if missing == NoCommand::Unnamed => {
                        Err(unreadable(name, file, &error))
                    }
                    Err(_) | Ok(_) => Err(keyless(name, &missing, (profile, file, settings))),
                },
            }
        }
    }
}

/// Adds the values of a profile to the bundle.
fn take_profile(
    handover: &mut CredentialBundle,
    name: &CredentialName,
    keys: &Profile<'_>,
    (profile, file): (&str, &Path),
) -> Result<(), Failure> {
    let from = format!("the profile {profile} of {}", file.display());
    for (part, key) in NAMES {
        match keys.value(key) {
            Some(value) => hand_on(handover, name, part, value.as_bytes(), &from)?,
            None if part == Part::Token => {}
            None => {
                let what = format!("credential {name} cannot be read from {from}");
                return Err(Failure::new(what)
                    .because(format!("it has no {key} there"))
                    .advise("aws configure puts it there"));
            }
        }
    }
    Ok(())
}

/// Returns the command that prints the key of a profile without one in its file of keys, if there
/// is such a command.
fn printed(
    credential: &Credential,
    keys: &Profile<'_>,
    (profile, file, settings): (&str, &Path, &Path),
) -> Result<Result<Printed, NoCommand>, Failure> {
    let name = &credential.binding.name;
    let text = match whole(settings) {
        Ok((text, _)) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Zeroizing::default(),
        Err(error) => return Err(unreadable(name, settings, &error)),
    };
    let others = Profile::read(&text, Kind::Settings, profile);
    let (command, kind) = match profile::command(keys, &others) {
        Ok(named) => named,
        Err(missing) => return Ok(Err(missing)),
    };
    if credential.variables.len() < KEY_PARTS.len() {
        let what = format!(
            "credential {name}: `variable` names two, and what its command prints may have a session token too"
        );
        let why = format!("the profile {profile} has a credential_process");
        return Err(Failure::new(what)
            .because(why)
            .advise("write variable = [\"KEY_ID\", \"KEY_SECRET\", \"KEY_TOKEN\"]"));
    }
    let by = match kind {
        Kind::Keys => file,
        Kind::Settings => settings,
    };
    Ok(Ok(Printed {
        command,
        by: by.to_owned(),
    }))
}

fn unreadable(name: &CredentialName, file: &Path, error: &io::Error) -> Failure {
    let what = format!("credential {name} cannot be read from {}", file.display());
    Failure::new(what)
        .because(error)
        .advise("aws configure makes it; or name variables or secrets as its source")
}

/// Returns the failure for a profile that has no key in its file, and no command that may be run to
/// print one.
fn keyless(
    name: &CredentialName,
    missing: &NoCommand,
    (profile, file, settings): (&str, &Path, &Path),
) -> Failure {
    let what = format!(
        "credential {name} cannot be read from the profile {profile} of {}",
        file.display()
    );
    let why = match missing {
        NoCommand::Unnamed => format!("it has no {ID} there"),
        NoCommand::OtherWay(key) => format!(
            "it has no {ID} there, and {key} in {} or there, by which programs of AWS get one",
            settings.display()
        ),
        NoCommand::Unclear(why) => why.clone(),
    };
    let advice = match missing {
        NoCommand::Unnamed | NoCommand::OtherWay(_) => format!(
            "a profile of roles or of single sign-on is asked by a command: write source = {{ \
             command = [\"aws\", \"configure\", \"export-credentials\", \"--profile\", {profile:?}, \
             \"--format\", \"process\"] }} (AWS CLI version 2)"
        ),
        NoCommand::Unclear(_) => {
            "write what is meant as its source: { command = [\"PROGRAM\", \"ARGUMENT\", …] }"
                .to_owned()
        }
    };
    Failure::new(what).because(why).advise(advice)
}

fn hand_on(
    handover: &mut CredentialBundle,
    name: &CredentialName,
    part: Part,
    value: &[u8],
    from: &str,
) -> Result<(), Failure> {
    handover
        .take_part(name, part, value, &atoll_egress::make_placeholder)
        .map_err(|error| unread(name.as_str(), from, &error))
}

/// Returns a regular file's text, and whether others than its owner can read it.
pub(super) fn whole(path: &Path) -> io::Result<(Zeroizing<String>, bool)> {
    // A pipe would not end.
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let flags = i32::try_from(flags).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if facts.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("it is longer than 256 KiB"));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok((text, facts.mode() & OTHERS_READ != 0))
}
