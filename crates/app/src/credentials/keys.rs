//! Keys that sign, of several values.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use atoll_model::network::{CredentialName, Part};
use atoll_policy::{Credential, KEY_PARTS, KeySource, Rules};
use atoll_sandbox::{Handover, SourceError};
use zeroize::Zeroizing;

use super::{served, unread, warn_of_open};
use crate::configuration::Places;
use crate::failure::Failure;
use crate::output::Output;
use crate::secret;

/// The longest file of keys that is read, bytes.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// Bits of a file's mode by which others than its owner read it.
const OTHERS_READ: u32 = 0o044;

/// What each value is called in a file as the command line of AWS writes it.
const NAMES: [(Part, &str); 3] = [
    (Part::KeyId, "aws_access_key_id"),
    (Part::Secret, "aws_secret_access_key"),
    (Part::Token, "aws_session_token"),
];

/// Takes a key's variables that nobody has taken yet, each for all that it is for.
pub(super) fn take<'a>(
    handover: &mut Handover,
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
        match handover.take_variable(&its, variable, &atoll_egress::disguise) {
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

/// Reads what is not in variables, of a file where this lets it.
pub(super) fn read(
    handover: &mut Handover,
    places: &Places,
    (credential, source): (&Credential, &KeySource),
    inside: &dyn Fn(&Path) -> Result<(), Failure>,
    output: &Output,
) -> Result<(), Failure> {
    let name = &credential.binding.name;
    match source {
        KeySource::Variables(_) => Ok(()),
        KeySource::Vault(secrets) => {
            for (secret, part) in secrets.iter().zip(KEY_PARTS) {
                let value = secret::open(places, secret)?;
                let from = format!("the vault's secret {secret}");
                hand_on(handover, name, part, &value, &from)?;
            }
            Ok(())
        }
        KeySource::Profile {
            name: profile,
            file,
        } => {
            let shown = file.display();
            inside(file)?;
            let unreadable = |error: io::Error| {
                Failure::new(format!("credential {name} cannot be read from {shown}"))
                    .because(error)
                    .advise("aws configure makes it; or name variables or secrets as its source")
            };
            let (text, is_open) = match whole(file) {
                Err(error) if credential.optional && error.kind() == io::ErrorKind::NotFound => {
                    return Ok(());
                }
                read => read.map_err(unreadable)?,
            };
            if is_open {
                warn_of_open(output, name, file);
            }
            let from = format!("the profile {profile} of {shown}");
            for (part, key) in NAMES {
                match value(&text, profile, key) {
                    Some(value) => hand_on(handover, name, part, value.as_bytes(), &from)?,
                    None if part == Part::Token => {}
                    None => {
                        let what = format!("credential {name} cannot be read from {from}");
                        return Err(Failure::new(what)
                            .because(format!("it has no {key} there"))
                            .advise("a profile of roles or of single sign-on has none: eval \"$(aws configure export-credentials --format env)\" puts a key of it into variables"));
                    }
                }
            }
            Ok(())
        }
    }
}

fn hand_on(
    handover: &mut Handover,
    name: &CredentialName,
    part: Part,
    value: &[u8],
    from: &str,
) -> Result<(), Failure> {
    handover
        .take_part(name, part, value, &atoll_egress::disguise)
        .map_err(|error| unread(name.as_str(), from, &error))
}

/// A regular file's text, and whether others than its owner can read it.
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

/// A value of a profile: the last one that is written there, as programs of AWS read it.
fn value<'a>(text: &'a str, profile: &str, key: &str) -> Option<&'a str> {
    let mut is_its = false;
    let mut found = None;
    for line in text.lines() {
        let line = line.trim_end();
        if let Some(name) = line.strip_prefix('[') {
            let name = name.split_once(']').map(|(name, _)| name.trim());
            is_its = name == Some(profile);
        } else if is_its
            && !line.starts_with(['#', ';', ' ', '\t'])
            && let Some((name, value)) = line.split_once('=')
            && name.trim() == key
        {
            found = Some(value.trim());
        }
    }
    found.filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_of_a_file_has_its_own_values_alone() {
        let text = "# keys\n[default]\naws_access_key_id = AKIAONE\naws_secret_access_key=a/b+c=\n\
                    [work]\n aws_session_token = no\naws_access_key_id=AKIATWO\n\
                    aws_access_key_id = AKIATHREE \n#aws_secret_access_key = no\n";
        assert_eq!(value(text, "default", "aws_access_key_id"), Some("AKIAONE"));
        assert_eq!(
            value(text, "default", "aws_secret_access_key"),
            Some("a/b+c=")
        );
        assert_eq!(value(text, "work", "aws_access_key_id"), Some("AKIATHREE"));
        assert_eq!(value(text, "work", "aws_secret_access_key"), None);
        assert_eq!(value(text, "work", "aws_session_token"), None);
        assert_eq!(value(text, "other", "aws_access_key_id"), None);
    }
}
