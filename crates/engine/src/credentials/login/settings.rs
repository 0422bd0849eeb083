//! Settings files of agents that contain keys: read once, on the host, and shown in the sandbox
//! with the keys masked.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atoll_egress::secret::{
    FieldRules, SETTINGS_BYTES_MAX, SettingsForm, SettingsMaskError, mask_settings,
};
use atoll_model::PlaceholderState;
use atoll_model::network::FieldPath;
use atoll_policy::{Login, Rules};

use super::{credential_of, hand_on, is_absence, refuse_shown};
use crate::configuration::Places;
use crate::errands;
use crate::failure::{Failure, Hint};
use crate::notice::Notices;
use crate::printable::printable;
use crate::supervision::{
    CredentialBundle, LoginFileError, LoginText, PlaceholderFile, Unfit, file_outside,
    read_settings_file,
};

/// The reason why a settings file cannot be shown masked. Its message contains nothing of the file.
#[derive(Debug, thiserror::Error)]
enum SettingsError {
    #[error("since nothing can stand for the keys in it: {0}")]
    File(#[from] LoginFileError),
    #[error("since nothing can stand for the keys in it: {0}")]
    Unfit(#[from] SettingsMaskError),
    /// A sandboxed program may have chosen the file that would be read on the host.
    #[error(
        "since it is a link that leads into or through the workspace, that of another run or Atoll's state"
    )]
    Written,
    /// Another user may have chosen it.
    #[error("since it is a link, and others than you can write {0}, by which it leads")]
    Open(String),
    /// A sandboxed program may have chosen it; this cannot be ruled out.
    #[error("since it is a link, and which workspaces other runs have cannot be read")]
    Unknown,
}

/// Reads a settings file, records its masked text, and adds the values that credentials need of it
/// to the bundle. A file that cannot be masked, or a link that is not followed, is not shown, and a
/// warning is printed.
///
/// # Errors
/// Where it can be read in the sandbox by another name, or at its own path.
pub(super) fn read(
    handover: &mut CredentialBundle,
    rules: &Rules,
    (login, secrets): (&Login, &[FieldPath]),
    (places, workspace): (&Places, &Path),
    notices: &dyn Notices,
) -> Result<(), Failure> {
    let text = match followed(&login.file, places, workspace) {
        Err(SettingsError::File(LoginFileError::Kernel(error))) if is_absence(&error) => {
            return Ok(());
        }
        Err(error) => Err(error),
        Ok(file) => read_settings_file(&file, SETTINGS_BYTES_MAX).map_err(SettingsError::from),
    };
    let has_names = match &text {
        Ok(text) => text.has_names(),
        Err(_) => may_have_names(&login.file),
    };
    let made = text.and_then(|text| made(handover, rules, (login, secrets), &text, notices));
    let has_secrets = match &made {
        Ok(stands) => stands.stood.as_ref().is_none_or(|stood| stood.has_secrets),
        Err(error) => may_have_secrets((login, secrets), error),
    };
    let stands = made.unwrap_or_else(|error| {
        notices.warn(format!("{} is not shown, {error}", login.file.display()));
        let stood = PlaceholderState {
            digest: None,
            has_secrets: true,
        };
        PlaceholderFile {
            stood: Some(stood),
            ..PlaceholderFile::default()
        }
    });
    if has_secrets {
        refuse_shown(rules, login, workspace)?;
        refuse_names(login, has_names)?;
    }
    handover.stand_for(&login.file, stands);
    Ok(())
}

/// Returns the real path of a settings file. People keep theirs elsewhere, and link to it: a link
/// is followed where neither a sandboxed program nor another user can have chosen its target. Other
/// users' write access to the link's own directory does not matter if the target is below it.
fn followed(file: &Path, places: &Places, workspace: &Path) -> Result<PathBuf, SettingsError> {
    let real = file.canonicalize().map_err(LoginFileError::from)?;
    if real == file {
        return Ok(real);
    }
    let written = errands::written(&errands::writers(places, Some(workspace)));
    let written = written.map_err(|_| SettingsError::Unknown)?;
    let directory = file.parent().and_then(|one| one.canonicalize().ok());
    match file_outside(file, &written) {
        Ok(real) => Ok(real),
        Err(Unfit::Written(_)) => Err(SettingsError::Written),
        Err(Unfit::Open(_)) if directory.is_some_and(|one| real.starts_with(one)) => Ok(real),
        Err(Unfit::Open(open)) => {
            let open = printable(open.as_os_str().as_encoded_bytes());
            Err(SettingsError::Open(open))
        }
    }
}

/// Returns whether a file that is not shown may contain secrets. A link's target without any may be
/// read by sandboxed programs.
fn may_have_secrets((login, secrets): (&Login, &[FieldPath]), error: &SettingsError) -> bool {
    if matches!(error, SettingsError::File(_) | SettingsError::Unfit(_)) {
        return true;
    }
    let real = login.file.canonicalize().ok();
    let text = real.and_then(|real| read_settings_file(&real, SETTINGS_BYTES_MAX).ok());
    text.is_none_or(|text| {
        let (form, keep) = (SettingsForm::of(&login.file), &login.keep);
        let fields = FieldRules { secrets, keep };
        let masked = mask_settings(form, text.text(), fields, &mut |_, _| Ok(None));
        masked.map_or(true, |settings| settings.stood().has_secrets)
    })
}

/// Returns whether a file that was not read may have further hard links. A directory has none.
fn may_have_names(file: &Path) -> bool {
    let facts = file.canonicalize().and_then(|file| file.symlink_metadata());
    facts.map_or(true, |facts| !facts.is_dir() && facts.nlink() != 1)
}

fn made(
    handover: &mut CredentialBundle,
    rules: &Rules,
    (login, secrets): (&Login, &[FieldPath]),
    text: &LoginText,
    notices: &dyn Notices,
) -> Result<PlaceholderFile, SettingsError> {
    let known = &mut |names: &[String], value: &[u8]| match credential_of(rules, login, names) {
        None => Ok(None),
        Some((credential, _)) => hand_on(handover, credential, (value, None), notices),
    };
    let form = SettingsForm::of(&login.file);
    let fields = FieldRules {
        secrets,
        keep: &login.keep,
    };
    let settings = mask_settings(form, text.text(), fields, known)?;
    Ok(PlaceholderFile {
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
        .advise(Hint::OwnFile(login.file.clone()))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Returns the path that a link to this resolves to, in a home with a workspace beside it.
    fn led(to: &str, prepare: impl FnOnce(&Path)) -> Result<PathBuf, String> {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let places = Places {
            config: top.join("config"),
            state: top.join("state"),
            home: top.clone(),
        };
        for one in [".agent", "dotfiles/agent", "work", "state", "open"] {
            fs::create_dir_all(top.join(one)).unwrap();
            fs::set_permissions(top.join(one), Permissions::from_mode(0o700)).unwrap();
        }
        fs::set_permissions(&top, Permissions::from_mode(0o700)).unwrap();
        for one in [
            ".agent/own",
            "dotfiles/agent/own",
            "work/own",
            "state/own",
            "open/own",
        ] {
            fs::write(top.join(one), "{}").unwrap();
        }
        fs::set_permissions(top.join("open"), Permissions::from_mode(0o777)).unwrap();
        symlink(top.join("dotfiles/agent/own"), top.join("work/hop")).unwrap();
        let file = top.join(".agent/settings.json");
        symlink(to, &file).unwrap();
        prepare(&top);
        let followed = followed(&file, &places, &top.join("work"));
        followed
            .map(|one| one.strip_prefix(&top).unwrap().to_owned())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_link_is_followed_where_no_program_inside_has_chosen_what_it_leads_to() {
        let inside = "leads into or through the workspace";
        for (to, expected) in [
            ("own", Ok(".agent/own")),
            ("../dotfiles/agent/own", Ok("dotfiles/agent/own")),
            ("../work/own", Err(inside)),
            ("../work/hop", Err(inside)),
            ("../work/../dotfiles/agent/own", Err(inside)),
            ("../state/own", Err(inside)),
            ("../open/own", Err("others than you can write")),
            ("../none", Err("No such file")),
        ] {
            match (led(to, |_| {}), expected) {
                (Ok(led), Ok(expected)) => assert_eq!(led, Path::new(expected)),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{to}: {why}"),
                (led, _) => panic!("{to}: {led:?}"),
            }
        }
    }

    #[test]
    fn a_directory_that_is_a_link_is_looked_at_too() {
        let with = |to: &'static str| {
            led("own", |top| {
                fs::remove_dir_all(top.join(".agent")).unwrap();
                symlink(to, top.join(".agent")).unwrap();
                fs::write(top.join("dotfiles/agent/settings.json"), "{}").unwrap();
                symlink("../dotfiles/agent", top.join("work/agent")).unwrap();
            })
        };
        let kept = with("dotfiles/agent").unwrap();
        assert_eq!(kept, Path::new("dotfiles/agent/settings.json"));
        let chosen = with("work/agent").unwrap_err();
        assert!(chosen.contains("through the workspace"), "{chosen}");
    }

    #[test]
    fn who_else_writes_in_its_own_directory_is_no_matter_within_that() {
        let open = |to: &str| {
            led(to, |top| {
                let mode = Permissions::from_mode(0o777);
                fs::set_permissions(top.join(".agent"), mode).unwrap();
            })
        };
        assert_eq!(open("own").unwrap(), Path::new(".agent/own"));
        let elsewhere = open("../open/own").unwrap_err();
        assert!(elsewhere.contains("others than you"), "{elsewhere}");
    }

    #[test]
    fn where_nobody_knows_who_writes_no_link_is_followed() {
        let broken = |top: &Path| {
            let run = top.join("state/runs/260102-030405-aaaa");
            fs::create_dir_all(&run).unwrap();
            fs::set_permissions(top.join("state/runs"), Permissions::from_mode(0o700)).unwrap();
            fs::set_permissions(&run, Permissions::from_mode(0o700)).unwrap();
            fs::write(run.join("record.json"), "{").unwrap();
        };
        let unknown = led("../dotfiles/agent/own", broken).unwrap_err();
        assert!(unknown.contains("cannot be read"), "{unknown}");
    }
}
