//! Login files of agents: read outside, once, and something else made for their places inside.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use atoll_egress::secret::{LOGIN_BYTES_MAX, LoginUnfit, stand_in};
use atoll_model::network::Part;
use atoll_policy::{Credential, CredentialSource, Login, Rules};
use atoll_sandbox::{Handover, SourceError};
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::output::Output;

/// Bits of a file's mode by which others than its owner read it, and write it.
const OTHERS_READ: u32 = 0o044;
const OTHERS_WRITE: u32 = 0o022;

/// Why a login file is not used. Nothing of it is in the words.
#[derive(Debug, thiserror::Error)]
enum LoginError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error("it is a symbolic link")]
    Link,
    #[error("it is no regular file")]
    Kind,
    #[error("it has further names (hard links), by which it could be read inside")]
    Names,
    #[error("it belongs to user id {0}")]
    Owner(u32),
    #[error("others than its owner can write to it (mode {0:04o})")]
    Writable(u32),
    #[error("it is longer than {} KiB", LOGIN_BYTES_MAX / 1024)]
    Long,
    #[error(transparent)]
    Unfit(#[from] LoginUnfit),
}

/// Reads all of them. What a credential needs of one is handed on.
pub(super) fn read(
    handover: &mut Handover,
    rules: &Rules,
    workspace: &Path,
    output: &Output,
) -> Result<(), Failure> {
    for login in rules.logins() {
        let read = match open(&login.file) {
            Ok((file, is_open)) => {
                refuse_shown(rules, login, workspace)?;
                if is_open {
                    warn_of_open(output, login);
                }
                take(handover, rules, login, file, output)
            }
            Err(LoginError::Read(error)) if login.optional && is_absence(&error) => continue,
            Err(error) => Err(error),
        };
        read.map_err(|error| refused(login, &error))?;
    }
    for credential in rules.credentials() {
        let name = &credential.binding.name;
        if let CredentialSource::Login(source) = &credential.source
            && !credential.optional
            && !handover.has(name, Part::Whole)
        {
            let (field, login) = (&source.field, &source.login);
            return Err(Failure::new(format!("credential {name} is not there"))
                .because(format!(
                    "the file of login {login} has no text in its field {field}"
                ))
                .advise("log in outside, with the agent's own command")
                .advise(format!(
                    "optional = true in [credential.{name}] lets runs go without"
                )));
        }
    }
    Ok(())
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Opens one that nobody else can have written or read by another name, and whether others
/// can read it.
fn open(path: &Path) -> Result<(File, bool), LoginError> {
    // A pipe would not end.
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY).bits();
    let flags = i32::try_from(flags).unwrap_or_default();
    let opened = File::options().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match path.symlink_metadata() {
        Ok(facts) if facts.is_symlink() => LoginError::Link,
        // A socket cannot be opened at all.
        Ok(facts) if !facts.is_file() => LoginError::Kind,
        Ok(_) | Err(_) => LoginError::Read(error),
    })?;
    let facts = file.metadata()?;
    let mode = facts.mode() & 0o7777;
    if !facts.is_file() {
        return Err(LoginError::Kind);
    }
    if facts.nlink() != 1 {
        return Err(LoginError::Names);
    }
    if facts.uid() != rustix::process::geteuid().as_raw() {
        return Err(LoginError::Owner(facts.uid()));
    }
    if mode & OTHERS_WRITE != 0 {
        return Err(LoginError::Writable(mode));
    }
    Ok((file, mode & OTHERS_READ != 0))
}

fn take(
    handover: &mut Handover,
    rules: &Rules,
    login: &Login,
    file: File,
    output: &Output,
) -> Result<(), LoginError> {
    // Never larger, so that it is moved to no other place without being overwritten.
    let mut text = Zeroizing::new(Vec::with_capacity(LOGIN_BYTES_MAX + 1));
    let most = u64::try_from(LOGIN_BYTES_MAX + 1).unwrap_or(u64::MAX);
    file.take(most).read_to_end(&mut text)?;
    if text.len() > LOGIN_BYTES_MAX {
        return Err(LoginError::Long);
    }
    let known = &mut |names: &[String], value: &[u8]| {
        let Some(credential) = credential_of(rules, login, names) else {
            return Ok(None);
        };
        hand_on(handover, credential, value, output)
    };
    let stands = stand_in(&text, &login.keep, &login.claims, known)?;
    handover.stand_for(&login.file, stands);
    Ok(())
}

/// The credential that a field is the source of.
fn credential_of<'a>(rules: &'a Rules, login: &Login, names: &[String]) -> Option<&'a Credential> {
    rules.credentials().find(|one| match &one.source {
        CredentialSource::Login(source) => {
            source.login == login.name && source.field.leads_along(names)
        }
        CredentialSource::Variable(_)
        | CredentialSource::File(_)
        | CredentialSource::Vault(_)
        | CredentialSource::Key(_)
        | CredentialSource::Token(_)
        | CredentialSource::Command(_) => false,
    })
}

/// What stands for a field, whose value is handed on.
fn hand_on(
    handover: &mut Handover,
    credential: &Credential,
    value: &[u8],
    output: &Output,
) -> Result<Option<String>, String> {
    let name = &credential.binding.name;
    if handover.has(name, Part::Whole) {
        return Err(format!(
            "the field of credential {name} is in it more than once"
        ));
    }
    match handover.take_value(name, value, &atoll_egress::disguise) {
        Ok(()) => {
            let mut all = handover.placeholders().iter();
            let stands = all.find(|one| one.name == *name);
            Ok(stands.map(|one| one.text.clone()))
        }
        // An agent that has logged out can leave an empty one.
        Err(SourceError::Empty) if credential.optional => Ok(None),
        Err(SourceError::Unfit(_) | SourceError::TooLong | SourceError::Unprintable)
            if credential.optional =>
        {
            output.warn(&format!(
                "credential {name} is left out: what its field holds cannot be one"
            ));
            Ok(None)
        }
        Err(error) => Err(format!("credential {name}: {error}")),
    }
}

/// A file that lies where nothing else can stand in its place.
fn refuse_shown(rules: &Rules, login: &Login, workspace: &Path) -> Result<(), Failure> {
    let real = login.file.canonicalize();
    if !real.is_ok_and(|real| rules.shows_as_it_is(&real, workspace)) {
        return Ok(());
    }
    let text = login.file.display();
    Err(Failure::new(format!("login {}: {text} can be read inside", login.name))
        .because("what holds it is the workspace, or shown as it is by [files], [system] or --ro")
        .advise("leave that out, or work in another directory: [home] layer shows it without its login"))
}

fn warn_of_open(output: &Output, login: &Login) {
    let text = login.file.display();
    output.warn(&format!(
        "login {}: others than its owner can read {text}: `chmod go-rwx {text}` keeps it",
        login.name
    ));
}

fn refused(login: &Login, error: &LoginError) -> Failure {
    let text = login.file.display();
    let advice = match error {
        LoginError::Read(_) => "atoll profile show NAME shows where it is looked for".to_owned(),
        LoginError::Link | LoginError::Kind | LoginError::Names => {
            format!("put a file of its own there: cp {text} {text}.new && mv {text}.new {text}")
        }
        LoginError::Owner(_) => format!("log in as who starts Atoll, or chown it: {text}"),
        LoginError::Writable(_) => format!("chmod go-w {text}"),
        LoginError::Long | LoginError::Unfit(_) => {
            "log in anew outside, with the agent's own command, or move the file away".to_owned()
        }
    };
    Failure::new(format!(
        "the login file {text} is not used, so nothing starts"
    ))
    .because(error)
    .advise(advice)
}
