//! Reads the credentials of a run before anything else could keep them, and puts them into a bundle
//! for the egress process.

mod keys;
mod login;
mod missing;
mod profile;
mod tokens;
mod told;

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use atoll_model::SecretName;
use atoll_model::network::{CredentialName, Part, Place, Shape};
use atoll_policy::{
    CommandProgram, CommandSource, Credential, CredentialSource, IssuedTo, KEY_PARTS, KeySource,
    Login, Rules,
};

use crate::configuration::Places;
use crate::errands;
use crate::failure::{Doing, Failure, Hint};
use crate::notice::{Notice, Notices};
use crate::printable::printable;
use crate::secrets;
use crate::supervision::{
    CredentialBundle, CredentialCommand, SourceError, Writers, WrittenInside, argument_inside,
    program_outside, search_places,
};
pub use login::OWN as RENEWALS;
pub use missing::hint;
use tokens::Variables;
pub use told::{Asked, Words, told};

/// Reads the credentials; none where the rules name none. To be called before anything copies the
/// environment: it removes them from there. `issued` is the login that is issued in the run, whose
/// file is not read.
pub fn read(
    rules: &Rules,
    places: &Places,
    (workspace, issued): (&Path, Option<&CredentialName>),
    notices: &dyn Notices,
) -> Result<Option<CredentialBundle>, Failure> {
    if rules.credentials().next().is_none() && rules.logins().next().is_none() {
        return Ok(None);
    }
    let mut handover = CredentialBundle::new().doing("credentials cannot be handed on")?;
    let mut taken: Vec<&str> = Vec::new();
    let for_tokens = Variables::take(rules)?;
    for credential in rules.credentials() {
        let read = match &credential.source {
            // Once, for all that it is for: afterwards it is empty.
            CredentialSource::Variable(variable) if taken.contains(&variable.as_str()) => Ok(()),
            CredentialSource::Variable(variable) => {
                taken.push(variable);
                let names = served(rules, variable);
                handover.take_variable(&names, variable, &atoll_egress::make_placeholder)
            }
            CredentialSource::Key(KeySource::Variables(names)) => {
                keys::take(&mut handover, rules, credential, names, &mut taken)?;
                Ok(())
            }
            CredentialSource::Key(source) => {
                let inside = |file: &Path| refuse_shown(rules, credential, file, workspace);
                let what = (credential, source);
                let printed = keys::read(&mut handover, places, what, &inside, notices)?;
                if let Some(printed) = printed {
                    let writers = errands::writers(places, Some(workspace));
                    refuse_written(credential, &printed.by, &writers)?;
                    let command = prepared(credential, &printed.command, writers)?;
                    promise(&mut handover, credential, command)?;
                }
                Ok(())
            }
            CredentialSource::File(path) => {
                refuse_shown(rules, credential, path, workspace)?;
                read_file(&mut handover, credential, path, notices)
            }
            CredentialSource::Vault(wanted) => {
                let value = secrets::open(places, wanted);
                let value = value.map_err(|failure| match login_of(rules, wanted) {
                    Some(login) => failure.advise(format!("atoll login {login} puts it there")),
                    None => failure,
                })?;
                let name = &credential.binding.name;
                handover.take_value(name, &value, &atoll_egress::make_placeholder)
            }
            CredentialSource::Command(command) => {
                let writers = errands::writers(places, Some(workspace));
                let command = prepared(credential, command, writers)?;
                promise(&mut handover, credential, command)?;
                Ok(())
            }
            CredentialSource::Token(token) => {
                let inside = |file: &Path| refuse_shown(rules, credential, file, workspace);
                let what = (credential, &**token);
                tokens::entrust(&mut handover, &for_tokens, places, what, &inside, notices)?;
                Ok(())
            }
            // With all of its file.
            CredentialSource::Login(_) => Ok(()),
        };
        read.or_else(|error| left_out(rules, credential, error, notices))?;
    }
    refuse_halves(&handover, rules)?;
    login::read(&mut handover, rules, (places, workspace, issued), notices)?;
    Ok((!handover.is_empty()).then_some(handover))
}

/// Prepares the command that prints a credential, if that may be run.
fn prepared(
    credential: &Credential,
    command: &CommandSource,
    writers: Writers,
) -> Result<CredentialCommand, Failure> {
    let name = &credential.binding.name;
    let written = errands::written(&writers)?;
    let (called, program) = program_of(name, &command.program, &written)?;
    refuse_inside(name, &command.arguments, &written)?;
    Ok(CredentialCommand {
        program,
        name: called,
        arguments: command.arguments.clone(),
        patience: command.patience,
        written,
        writers,
    })
}

/// Refuses a file that sandboxed programs can write, since whoever names a program decides what
/// runs.
fn refuse_written(credential: &Credential, by: &Path, writers: &Writers) -> Result<(), Failure> {
    let written = errands::written(writers)?;
    let name = &credential.binding.name;
    let refused = |unfit| errands::refused(&format!("credential {name}"), &unfit);
    program_outside(by, &written).map(drop).map_err(refused)
}

/// Adds the command that prints a credential to the bundle, with a placeholder for each of its
/// values.
fn promise(
    handover: &mut CredentialBundle,
    credential: &Credential,
    command: CredentialCommand,
) -> Result<(), Failure> {
    let name = &credential.binding.name;
    match &credential.binding.place {
        Place::SigV4(_) => {
            let texts = atoll_egress::key_placeholders().doing("a placeholder cannot be made")?;
            handover.promise(name, texts, command);
        }
        Place::Header { .. }
        | Place::Basic(_)
        | Place::Query(_)
        | Place::Body(_)
        | Place::Refresh(_)
        | Place::Postgres(_) => {
            let text = standing(credential)?;
            handover.promise(name, [(Part::Whole, text)], command);
        }
    }
    Ok(())
}

/// Refuses a file that can be read in the sandbox under its own name. Links are resolved first,
/// since policy sees only the path as written.
fn refuse_shown(
    rules: &Rules,
    credential: &Credential,
    path: &Path,
    workspace: &Path,
) -> Result<(), Failure> {
    let real = path.canonicalize();
    if !real.is_ok_and(|real| rules.shows(&real, workspace)) {
        return Ok(());
    }
    let (name, text) = (&credential.binding.name, path.display());
    Err(
        Failure::new(format!("credential {name}: {text} can be read inside"))
            .because("a program is to hold what stands for it alone")
            .advise("keep it where no sandbox looks, or in the vault: atoll secret set NAME"),
    )
}

fn read_file(
    handover: &mut CredentialBundle,
    credential: &Credential,
    path: &Path,
    notices: &dyn Notices,
) -> Result<(), SourceError> {
    let name = &credential.binding.name;
    if handover.read_file(name, path, &atoll_egress::make_placeholder)? {
        warn_of_open(notices, name, path);
    }
    Ok(())
}

/// Goes on without an optional credential whose source is missing. A source that is there but
/// cannot be a credential is left out too, so that it does not go in as it is, and a warning is
/// printed.
fn left_out(
    rules: &Rules,
    credential: &Credential,
    error: SourceError,
    notices: &dyn Notices,
) -> Result<(), Failure> {
    let name = &credential.binding.name;
    let same = rules
        .credentials()
        .filter(|one| one.source == credential.source);
    let from = match &credential.source {
        CredentialSource::Variable(variable) => format!("the variable {variable}"),
        CredentialSource::File(path) => path.display().to_string(),
        CredentialSource::Vault(wanted) => format!("the vault's secret {wanted}"),
        CredentialSource::Key(_) => "its key".to_owned(),
        CredentialSource::Command(_) => "its command".to_owned(),
        CredentialSource::Token(_) => "its issuer".to_owned(),
        CredentialSource::Login(_) => "its login file".to_owned(),
    };
    if let Some(required) = same.into_iter().find(|one| !one.optional) {
        return Err(unread(required.binding.name.as_str(), &from, &error));
    }
    match error {
        SourceError::Unset(_) | SourceError::Empty => Ok(()),
        SourceError::File { error, .. } if error.kind() == ErrorKind::NotFound => Ok(()),
        SourceError::Unfit(_) | SourceError::TooLong | SourceError::Unprintable => {
            notices.warn(format!(
                "credential {name} is left out, it cannot be what {from} holds: {error}"
            ));
            Ok(())
        }
        SourceError::File { .. } | SourceError::KeyId | SourceError::Kernel(_) => {
            Err(unread(name.as_str(), &from, &error))
        }
    }
}

/// Returns the login whose tokens are kept as this secret.
fn login_of<'a>(rules: &'a Rules, wanted: &SecretName) -> Option<&'a CredentialName> {
    let keeps = |login: &&Login| {
        let issue = login.issue.as_ref().map(|issue| &issue.keeps);
        matches!(issue, Some(IssuedTo::Vault(names)) if names.values().any(|name| name == wanted))
    };
    rules.logins().find(keeps).map(|login| &login.name)
}

/// Returns a placeholder for a value that is not known yet.
fn standing(credential: &Credential) -> Result<String, Failure> {
    let usual = match &credential.source {
        CredentialSource::Token(token) => token.shape(),
        CredentialSource::Variable(_)
        | CredentialSource::File(_)
        | CredentialSource::Vault(_)
        | CredentialSource::Command(_)
        | CredentialSource::Login(_)
        | CredentialSource::Key(_) => Shape::opaque(),
    };
    let shape = credential.shape.as_ref().unwrap_or(&usual);
    atoll_egress::placeholder_of(shape).doing("a placeholder cannot be made")
}

/// Returns the path of the program that prints a credential, as found and in canonical form. The
/// program has to be the host's, and none that a sandboxed program could have written or linked to.
fn program_of(
    name: &CredentialName,
    program: &CommandProgram,
    written: &WrittenInside,
) -> Result<(PathBuf, PathBuf), Failure> {
    let found = match program {
        CommandProgram::At(path) => Some(path.clone()).filter(|path| is_program(path)),
        CommandProgram::Named(named) => {
            let places = std::env::var_os("PATH").unwrap_or_default();
            let mut places = search_places(&places, written);
            places.find_map(|place| Some(place.join(named)).filter(|path| is_program(path)))
        }
    };
    let shown = match program {
        CommandProgram::At(path) => path.display().to_string(),
        CommandProgram::Named(named) => named.clone(),
    };
    let Some(found) = found else {
        return Err(Failure::new(format!(
            "credential {name} cannot be fetched: {shown} is no program here"
        ))
        .because("its command is looked for before anything starts, and not in a workspace")
        .advise("name it by its path, as command = [\"/usr/bin/…\"]"));
    };
    match program_outside(&found, written) {
        Ok(real) => Ok((found, real)),
        Err(unfit) => Err(errands::refused(&format!("credential {name}"), &unfit)),
    }
}

/// Returns whether a path is a file that may be executed.
pub fn is_program(path: &Path) -> bool {
    let is_file = path.metadata().is_ok_and(|facts| facts.is_file());
    is_file && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Refuses arguments that name files which sandboxed programs can write: a script or a settings
/// file is code as well.
fn refuse_inside(
    name: &CredentialName,
    arguments: &[String],
    written: &WrittenInside,
) -> Result<(), Failure> {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let arguments = arguments.iter().map(OsStr::new);
    match argument_inside(arguments, written, Path::new(&home)) {
        None => Ok(()),
        Some(inside) => Err(Failure::new(format!(
            "credential {name}: the argument {} of its command is in the workspace, or in another one",
            printable(inside.as_encoded_bytes())
        ))
        .because("it runs outside, and a program inside may have written that")
        .advise("keep it where no sandbox writes")),
    }
}

/// Returns the variables of a source, each with the part of the credential that it holds.
fn variables(source: &CredentialSource) -> Vec<(&str, Part)> {
    match source {
        CredentialSource::Variable(name) => vec![(name, Part::Whole)],
        CredentialSource::Key(KeySource::Variables(names)) => {
            let names = names.iter().map(String::as_str);
            names.zip(KEY_PARTS).collect()
        }
        CredentialSource::File(_)
        | CredentialSource::Vault(_)
        | CredentialSource::Command(_)
        | CredentialSource::Token(_)
        | CredentialSource::Login(_)
        | CredentialSource::Key(_) => Vec::new(),
    }
}

/// Refuses incomplete credentials: each has all the parts that it needs, or none where it is
/// optional. Half a key would be a mistake.
fn refuse_halves(handover: &CredentialBundle, rules: &Rules) -> Result<(), Failure> {
    for credential in rules.credentials() {
        let name = &credential.binding.name;
        let (there, missing): (Vec<_>, Vec<_>) = variables(&credential.source)
            .into_iter()
            .partition(|(_, part)| handover.has(name, *part));
        let goes_without = credential.optional && there.is_empty();
        let mut missing = missing.into_iter();
        // Not every key has a session token.
        let missing = missing.find(|(_, part)| *part != Part::Token);
        if let Some((variable, _)) = missing.filter(|_| !goes_without) {
            let error = SourceError::Unset(variable.to_owned());
            let from = format!("the variable {variable}");
            return Err(unread(name.as_str(), &from, &error));
        }
    }
    Ok(())
}

/// Returns the credentials whose values a variable holds.
fn served<'a>(rules: &'a Rules, variable: &str) -> Vec<(&'a CredentialName, Part)> {
    let mut found = Vec::new();
    for credential in rules.credentials() {
        let all = variables(&credential.source).into_iter();
        let its = all.filter(|(name, _)| *name == variable);
        found.extend(its.map(|(_, part)| (&credential.binding.name, part)));
    }
    found
}

fn warn_of_open(notices: &dyn Notices, name: &CredentialName, path: &Path) {
    notices.notice(Notice::Open {
        what: format!("credential {name}"),
        path: path.to_owned(),
    });
}

fn unread(name: &str, from: &str, error: &SourceError) -> Failure {
    let what = match error {
        SourceError::Unfit(_)
        | SourceError::Empty
        | SourceError::TooLong
        | SourceError::KeyId
        | SourceError::Unprintable => {
            format!("credential {name} cannot be what {from} holds")
        }
        SourceError::Unset(_) | SourceError::File { .. } | SourceError::Kernel(_) => {
            format!("credential {name} cannot be read from {from}")
        }
    };
    let advice: Hint = match error {
        SourceError::Unset(variable) => {
            format!("set it outside, as export {variable}=…, or leave [credential.{name}] out")
                .into()
        }
        SourceError::File { error, path } if error.kind() == ErrorKind::PermissionDenied => {
            Hint::Naming(
                "chmod u+r {} lets you read it, where it is yours".to_owned(),
                PathBuf::from(path),
            )
        }
        SourceError::File { .. } | SourceError::Empty | SourceError::TooLong => {
            "atoll profile show NAME shows where it is looked for".into()
        }
        SourceError::KeyId => "the id comes first, then the secret: look which is which".into(),
        SourceError::Unfit(_) => "ask its issuer for another one".into(),
        SourceError::Unprintable => "a credential is one line of plain text".into(),
        SourceError::Kernel(_) => "try again".into(),
    };
    Failure::new(what).because(error).advise(advice)
}
