//! Files of an agent's settings that have keys among them: read outside, once, and shown without
//! those.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use atoll_egress::secret::{SETTINGS_BYTES_MAX, SettingsForm, SettingsUnfit, mask_settings};
use atoll_model::Stood;
use atoll_model::network::FieldPath;
use atoll_policy::{Login, Rules};
use atoll_sandbox::{Handover, LoginFileError, LoginText, Stands, read_settings_file};

use super::{credential_of, hand_on, is_absence, refuse_shown};
use crate::failure::Failure;
use crate::output::Output;

/// Why nothing stands for a file of settings. Nothing of it is in the words.
#[derive(Debug, thiserror::Error)]
enum SettingsError {
    #[error(transparent)]
    File(#[from] LoginFileError),
    #[error(transparent)]
    Unfit(#[from] SettingsUnfit),
}

/// Reads one, and notes what stands for it. What a credential needs of it is handed on. Where
/// nothing can stand for it, it is not shown, and that is said.
///
/// # Errors
/// Where it can be read inside by another name, or where it lies.
pub(super) fn read(
    handover: &mut Handover,
    rules: &Rules,
    (login, secrets): (&Login, &[FieldPath]),
    workspace: &Path,
    output: &Output,
) -> Result<(), Failure> {
    let text = match file_of(login) {
        Err(LoginFileError::Kernel(error)) if is_absence(&error) => return Ok(()),
        text => text.map_err(SettingsError::from),
    };
    let has_names = match &text {
        Ok(text) => text.has_names(),
        Err(_) => may_have_names(&login.file),
    };
    let made = text.and_then(|text| made(handover, rules, (login, secrets), &text, output));
    let stands = made.unwrap_or_else(|error| {
        output.warn(&format!(
            "{} is not shown, since nothing can stand for the keys in it: {error}",
            login.file.display()
        ));
        let stood = Stood {
            digest: None,
            has_secrets: true,
        };
        Stands {
            stood: Some(stood),
            ..Stands::default()
        }
    });
    if stands.stood.as_ref().is_none_or(|stood| stood.has_secrets) {
        refuse_shown(rules, login, workspace)?;
        refuse_names(login, has_names)?;
    }
    handover.stand_for(&login.file, stands);
    Ok(())
}

/// Whether a file that was not read may have further names. A directory has none.
fn may_have_names(file: &Path) -> bool {
    let facts = file.canonicalize().and_then(|file| file.symlink_metadata());
    facts.map_or(true, |facts| !facts.is_dir() && facts.nlink() != 1)
}

/// What is in it, or in what it leads to: people keep their settings elsewhere.
fn file_of(login: &Login) -> Result<LoginText, LoginFileError> {
    let file = login.file.canonicalize()?;
    read_settings_file(&file, SETTINGS_BYTES_MAX)
}

fn made(
    handover: &mut Handover,
    rules: &Rules,
    (login, secrets): (&Login, &[FieldPath]),
    text: &LoginText,
    output: &Output,
) -> Result<Stands, SettingsError> {
    let known = &mut |names: &[String], value: &[u8]| match credential_of(rules, login, names) {
        None => Ok(None),
        Some((credential, _)) => hand_on(handover, credential, (value, None), output),
    };
    let form = SettingsForm::of(&login.file);
    let settings = mask_settings(form, text.text(), (secrets, &login.keep), known)?;
    Ok(Stands {
        stood: Some(settings.stood()),
        text: Some(settings.text),
        mode: Some(text.mode()),
    })
}

fn refuse_names(login: &Login, has_names: bool) -> Result<(), Failure> {
    let text = login.file.display();
    match has_names {
        false => Ok(()),
        true => Err(Failure::new(format!(
            "there are keys in {text}, and it has further names (hard links), by which they could be read inside"
        ))
        .advise(format!(
            "put a file of its own there: cp {text} {text}.new && mv {text}.new {text}"
        ))),
    }
}
