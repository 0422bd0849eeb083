//! The credentials of a run: read before anything else that could keep them, and handed on.

mod keys;

use std::path::Path;

use atoll_model::network::{CredentialName, Part};
use atoll_policy::{CredentialSource, KEY_PARTS, KeySource, Rules};
use atoll_sandbox::{Handover, SourceError};

use crate::configuration::Places;
use crate::failure::{Doing, Failure};
use crate::output::Output;
use crate::secret;

/// Reads them; none where the rules name none. To be called before anybody takes a copy of
/// the environment: they are not in it any more afterwards.
pub fn read(
    rules: &Rules,
    places: &Places,
    workspace: &Path,
    output: &Output,
) -> Result<Option<Handover>, Failure> {
    if rules.credentials().next().is_none() {
        return Ok(None);
    }
    let mut handover = Handover::new().doing("credentials cannot be handed on")?;
    let mut taken: Vec<&str> = Vec::new();
    for credential in rules.credentials() {
        let name = &credential.binding.name;
        for (variable, part) in variables(&credential.source) {
            // Once, for all that it is for: afterwards it is empty.
            if taken.contains(&variable) {
                continue;
            }
            taken.push(variable);
            let names = served(rules, variable);
            match handover.take_variable(&names, variable, &atoll_egress::disguise) {
                // Not every key has one.
                Err(SourceError::Unset(_)) if part == Part::Token => {}
                taken => taken.map_err(|error| {
                    let text = format!("the variable {variable}");
                    unread(name.as_str(), &text, &error)
                })?,
            }
        }
        match &credential.source {
            CredentialSource::Variable(_) => {}
            CredentialSource::Key(source) => {
                keys::read(
                    &mut handover,
                    rules,
                    places,
                    (name, source),
                    workspace,
                    output,
                )?;
            }
            CredentialSource::File(path) => {
                let text = path.display().to_string();
                unseen(rules, name, path, workspace)?;
                let is_open = handover
                    .read_file(name, path, &atoll_egress::disguise)
                    .map_err(|error| unread(name.as_str(), &text, &error))?;
                if is_open {
                    warn_of_open(output, name, path);
                }
            }
            CredentialSource::Vault(wanted) => {
                let value = secret::open(places, wanted)?;
                handover
                    .take_value(name, &value, &atoll_egress::disguise)
                    .map_err(|error| {
                        let text = format!("the vault's secret {wanted}");
                        unread(name.as_str(), &text, &error)
                    })?;
            }
        }
    }
    Ok(Some(handover))
}

/// The variables of a source, and which value each has.
fn variables(source: &CredentialSource) -> Vec<(&str, Part)> {
    match source {
        CredentialSource::Variable(name) => vec![(name, Part::Whole)],
        CredentialSource::Key(KeySource::Variables(names)) => {
            let names = names.iter().map(String::as_str);
            names.zip(KEY_PARTS).collect()
        }
        CredentialSource::File(_) | CredentialSource::Vault(_) | CredentialSource::Key(_) => {
            Vec::new()
        }
    }
}

/// The credentials that a variable has values of.
fn served<'a>(rules: &'a Rules, variable: &str) -> Vec<(&'a CredentialName, Part)> {
    let mut found = Vec::new();
    for credential in rules.credentials() {
        let all = variables(&credential.source).into_iter();
        let its = all.filter(|(name, _)| *name == variable);
        found.extend(its.map(|(_, part)| (&credential.binding.name, part)));
    }
    found
}

/// A file that can be read inside is none: by its own name, whatever leads to it; what
/// policy sees is what is written.
fn unseen(
    rules: &Rules,
    name: &CredentialName,
    path: &Path,
    workspace: &Path,
) -> Result<(), Failure> {
    let real = path.canonicalize();
    if !real.is_ok_and(|real| rules.shows(&real, workspace)) {
        return Ok(());
    }
    let what = format!("credential {name}: {} can be read inside", path.display());
    Err(Failure::new(what)
        .because("a program is to hold what stands for it alone")
        .advise("keep it where no sandbox looks, or in the vault: atoll secret set NAME"))
}

fn warn_of_open(output: &Output, name: &CredentialName, path: &Path) {
    let text = path.display();
    output.warn(&format!(
        "credential {name}: others than its owner can read {text}: `chmod go-rwx {text}` keeps it"
    ));
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
    let advice = match error {
        SourceError::Unset(variable) => {
            format!("set it outside, as export {variable}=…, or leave [credential.{name}] out")
        }
        SourceError::File { .. } | SourceError::Empty | SourceError::TooLong => {
            "atoll profile show NAME shows where it is looked for".to_owned()
        }
        SourceError::KeyId => "the id comes first, then the secret: look which is which".to_owned(),
        SourceError::Unfit(_) => "ask its issuer for another one".to_owned(),
        SourceError::Unprintable => "a credential is one line of plain text".to_owned(),
        SourceError::Kernel(_) => "try again".to_owned(),
    };
    Failure::new(what).because(error).advise(advice)
}
