//! Login files of agents: read once, on the host, and shown in the sandbox with placeholders.

mod settings;

use std::io::{self, ErrorKind};
use std::path::Path;

use atoll_egress::secret::{LoginMaskError, stand_in};
use atoll_model::network::{CredentialName, Issue, Part};
use atoll_policy::{Credential, CredentialSource, Holds, Login, LoginSource, Rules};
use atoll_sandbox::copies_beside;

use crate::configuration::Places;
use crate::failure::{Doing, Failure, Hint};
use crate::notice::{Notice, Notices};
use crate::supervision::{
    CredentialBundle, LoginFacts, LoginFileError, LoginRenewal, LoginText, PlaceholderFile,
    SourceError, read_login_file,
};

/// The directory of Atoll's state that holds the text of a login file while that is replaced.
pub const OWN: &str = "renewals";

/// The reason why a login file is not used. Its message contains nothing of the file.
#[derive(Debug, thiserror::Error)]
enum LoginError {
    #[error(transparent)]
    File(#[from] LoginFileError),
    #[error(transparent)]
    Unfit(#[from] LoginMaskError),
}

/// Reads all login files, and adds the values that credentials need of them to the bundle.
pub(super) fn read(
    handover: &mut CredentialBundle,
    rules: &Rules,
    (places, workspace, issued): (&Places, &Path, Option<&CredentialName>),
    notices: &dyn Notices,
) -> Result<(), Failure> {
    let own = places.state.join(OWN);
    for login in rules.logins() {
        let copies = copies_beside(&login.file);
        for file in copies.doing("a login file cannot be used")? {
            refuse_copies(rules, &login.copy(file), workspace)?;
        }
        match &login.holds {
            Holds::Login => {}
            Holds::Settings(secrets) => {
                let at = (places, workspace);
                settings::read(handover, rules, (login, secrets), at, notices)?;
                continue;
            }
            Holds::Copies => {
                refuse_copies(rules, login, workspace)?;
                continue;
            }
        }
        let is_issued = issued == Some(&login.name);
        if let Some(issue) = &login.issue {
            handover.issue(Issue {
                login: login.name.clone(),
                token: issue.token.clone(),
                claims: login.claims.clone(),
                is_caught: is_issued,
            });
        }
        if is_issued {
            continue;
        }
        let read = match read_login_file(&login.file) {
            Ok(text) => {
                refuse_shown(rules, login, workspace)?;
                if text.is_open() {
                    warn_of_open(notices, login);
                }
                take(handover, rules, (login, &own), &text, notices)
            }
            Err(LoginFileError::Kernel(error)) if login.optional && is_absence(&error) => continue,
            Err(error) => Err(error.into()),
        };
        read.map_err(|error| refused(login, &error))?;
    }
    for credential in rules.credentials() {
        let name = &credential.binding.name;
        if let CredentialSource::Login(source) = &credential.source
            && !credential.optional
            && issued != Some(&source.login)
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

fn take(
    handover: &mut CredentialBundle,
    rules: &Rules,
    (login, own): (&Login, &Path),
    text: &LoginText,
    notices: &dyn Notices,
) -> Result<(), LoginError> {
    let known = &mut |names: &[String], value: &[u8]| {
        let Some((credential, source)) = credential_of(rules, login, names) else {
            return Ok(None);
        };
        let renewal = renewal(rules, (login, own), source, text);
        hand_on(handover, credential, (value, renewal), notices)
    };
    let stands = stand_in(text.text(), &login.keep, &login.claims, known)?;
    let stands = PlaceholderFile {
        text: Some(stands),
        ..PlaceholderFile::default()
    };
    handover.stand_for(&login.file, stands);
    Ok(())
}

/// The renewal of a login, the credential for it, and the facts of the login's file; none where one
/// of them is missing.
type Renews<'a> = Option<(LoginRenewal, &'a CredentialName, LoginFacts)>;

fn renewal<'a>(
    rules: &'a Rules,
    (login, own): (&Login, &Path),
    source: &LoginSource,
    text: &LoginText,
) -> Renews<'a> {
    let by = rules.renewed_by(source)?;
    let renewal = LoginRenewal {
        name: login.name.to_string(),
        file: login.file.clone(),
        own: own.to_owned(),
        access: source.field.clone(),
        renewal: (**source.renew.as_ref()?).clone(),
    };
    // Without a refresh token it is a login until it ends.
    let facts = renewal.facts(text)?;
    Some((renewal, by, facts))
}

/// Returns the credential whose source is this field.
fn credential_of<'a>(
    rules: &'a Rules,
    login: &Login,
    names: &[String],
) -> Option<(&'a Credential, &'a LoginSource)> {
    rules.credentials().find_map(|one| match &one.source {
        CredentialSource::Login(source) => {
            let is_it = source.login == login.name && source.field.leads_along(names);
            is_it.then_some((one, source))
        }
        CredentialSource::Variable(_)
        | CredentialSource::File(_)
        | CredentialSource::Vault(_)
        | CredentialSource::Key(_)
        | CredentialSource::Token(_)
        | CredentialSource::Command(_) => None,
    })
}

/// Adds a field's value to the bundle, and returns the placeholder for it.
fn hand_on(
    handover: &mut CredentialBundle,
    credential: &Credential,
    (value, renewal): (&[u8], Renews<'_>),
    notices: &dyn Notices,
) -> Result<Option<String>, String> {
    let name = &credential.binding.name;
    if handover.has(name, Part::Whole) {
        return Err(format!(
            "the field of credential {name} is in it more than once"
        ));
    }
    let taken = match renewal {
        Some(renewal) => handover.take_login(
            name,
            value,
            renewal,
            &atoll_egress::make_renewed_placeholder,
        ),
        None => handover.take_value(name, value, &atoll_egress::make_placeholder),
    };
    match taken {
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
            notices.warn(format!(
                "credential {name} is left out: what its field holds cannot be one"
            ));
            Ok(None)
        }
        Err(error) => Err(format!("credential {name}: {error}")),
    }
}

/// Refuses copies of a login file at paths that cannot be covered in the sandbox.
fn refuse_copies(rules: &Rules, login: &Login, workspace: &Path) -> Result<(), Failure> {
    match login.file.symlink_metadata().is_ok() {
        true => refuse_shown(rules, login, workspace),
        false => Ok(()),
    }
}

/// Refuses a file at a path that cannot be covered in the sandbox.
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

fn warn_of_open(notices: &dyn Notices, login: &Login) {
    notices.notice(Notice::Open {
        what: format!("login {}", login.name),
        path: login.file.clone(),
    });
}

fn refused(login: &Login, error: &LoginError) -> Failure {
    let text = login.file.display();
    let advice: Hint = match error {
        LoginError::File(LoginFileError::Kernel(_)) => {
            "atoll profile show NAME shows where it is looked for".into()
        }
        LoginError::File(LoginFileError::Link | LoginFileError::Kind | LoginFileError::Names) => {
            Hint::OwnFile(login.file.clone())
        }
        LoginError::File(LoginFileError::Owner(_)) => {
            format!("log in as who starts Atoll, or chown it: {text}").into()
        }
        LoginError::File(LoginFileError::Writable(_)) => Hint::WritableByOthers(login.file.clone()),
        LoginError::File(
            LoginFileError::Long(_)
            | LoginFileError::Changed
            | LoginFileError::Held
            | LoginFileError::Elsewhere,
        )
        | LoginError::Unfit(_) => {
            "log in anew outside, with the agent's own command, or move the file away".into()
        }
    };
    Failure::new(format!(
        "the login file {text} is not used, so nothing starts"
    ))
    .because(error)
    .advise(advice)
}
