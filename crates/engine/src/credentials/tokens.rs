//! Secrets for requesting tokens: read as credentials are, and added to the bundle for the process
//! that requests them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use atoll_model::network::{Fetch, Ingredient, TokenRequest};
use atoll_policy::{Credential, CredentialSource, Rules, SecretSource, TokenSource};
use zeroize::Zeroizing;

use super::{RENEWALS, keys, standing, unread, warn_of_open};
use crate::configuration::Places;
use crate::failure::Failure;
use crate::notice::Notices;
use crate::secrets::{self, KeptSecret};
use crate::supervision::{CredentialBundle, SourceError, TokenPlace, TokenRenewal, take_out};

/// The values of variables that serve to request tokens: one can serve several credentials.
pub(super) struct Variables(BTreeMap<String, Zeroizing<Vec<u8>>>);

impl Variables {
    /// Removes them from the environment, before anything copies it.
    pub(super) fn take(rules: &Rules) -> Result<Self, Failure> {
        let mut taken = BTreeMap::new();
        for credential in rules.credentials() {
            for name in of_token(credential).filter_map(SecretSource::variable) {
                refuse_shared(rules, credential, name)?;
                let value = take_out(name, |value| Zeroizing::new(value.to_vec()));
                if let Some(value) = value {
                    // A second time there is nothing left in it.
                    taken.entry(name.to_owned()).or_insert(value);
                }
            }
        }
        Ok(Self(taken))
    }
}

/// Returns the secrets that a credential's token needs.
fn of_token(credential: &Credential) -> impl Iterator<Item = &SecretSource> {
    let secrets = match &credential.source {
        CredentialSource::Token(token) => &token.secrets[..],
        CredentialSource::Variable(_)
        | CredentialSource::File(_)
        | CredentialSource::Vault(_)
        | CredentialSource::Key(_)
        | CredentialSource::Login(_)
        | CredentialSource::Command(_) => &[],
    };
    secrets.iter()
}

/// Refuses a variable that is both put into requests as a credential and used to request tokens.
fn refuse_shared(rules: &Rules, credential: &Credential, variable: &str) -> Result<(), Failure> {
    let serves = |other: &&Credential| {
        let mut its = super::variables(&other.source).into_iter();
        its.any(|(name, _)| name == variable)
    };
    let Some(other) = rules.credentials().find(serves) else {
        return Ok(());
    };
    let (name, other) = (&credential.binding.name, &other.binding.name);
    let what = format!("credential {name}: the variable {variable} is credential {other} itself");
    Err(Failure::new(what)
        .because("what a token is asked for by goes to its issuer alone")
        .advise("name another variable for one of them"))
}

/// Adds the secrets that a credential's token needs to the bundle. A file is read only if `inside`
/// accepts its path.
pub(super) fn entrust(
    handover: &mut CredentialBundle,
    variables: &Variables,
    places: &Places,
    (credential, token): (&Credential, &TokenSource),
    inside: &dyn Fn(&Path) -> Result<(), Failure>,
    notices: &dyn Notices,
) -> Result<(), Failure> {
    let name = &credential.binding.name;
    let mut values = Vec::with_capacity(token.secrets.len());
    for source in &token.secrets {
        values.push(match source {
            SecretSource::Variable(variable) => {
                let value = variables.0.get(variable).cloned();
                let unset = || SourceError::Unset(variable.clone());
                value.ok_or_else(|| unread(name.as_str(), &from(source), &unset()))?
            }
            SecretSource::Vault(wanted) => secrets::open(places, wanted)?,
            SecretSource::File(path) => {
                inside(path)?;
                let (text, is_open) = keys::whole(path).map_err(|error| {
                    let advice = match error.kind() {
                        ErrorKind::NotFound => "put it there, or name where it is",
                        _ => "atoll profile show NAME shows where it is looked for",
                    };
                    let from = from(source);
                    Failure::new(format!("credential {name} cannot be asked for by {from}"))
                        .because(error)
                        .advise(advice)
                })?;
                if is_open {
                    warn_of_open(notices, name, path);
                }
                let value = text.strip_suffix('\n').unwrap_or(&text);
                let value = value.strip_suffix('\r').unwrap_or(value);
                Zeroizing::new(value.as_bytes().to_vec())
            }
        });
    }
    if let TokenRequest::GithubApp(_) = token.request {
        for (value, source) in values.iter().zip(&token.secrets) {
            atoll_egress::check_app_key(value).map_err(|why| {
                let what = format!("credential {name}: {} holds no key of an app", from(source));
                Failure::new(what)
                    .because(why)
                    .advise("make one under the app's settings, \"Private keys\"")
            })?;
        }
    }
    let secrets: Vec<&[u8]> = values.iter().map(|value| &value[..]).collect();
    let by = Fetch::Token(Box::new(token.request.clone()));
    let text = standing(credential)?;
    let handed = handover.entrust(name, text, by, &secrets, &atoll_egress::make_placeholder);
    handed.map_err(|(index, error)| {
        let from = token.secrets.get(index).map(from).unwrap_or_default();
        unread(name.as_str(), &from, &error)
    })?;
    let ingredients = token.request.ingredients();
    let mut sources = ingredients.into_iter().zip(&token.secrets);
    let refresh = sources.find(|(which, _)| *which == Ingredient::RefreshToken);
    if let Some((_, source)) = refresh {
        let renewal = TokenRenewal {
            name: name.to_string(),
            from: from(source),
            place: place(places, source)?,
        };
        handover.renew_token(name, renewal);
    }
    Ok(())
}

/// Returns the place for a new refresh token that an issuer gives in place of this one.
fn place(places: &Places, source: &SecretSource) -> Result<TokenPlace, Failure> {
    let own = places.state.join(RENEWALS);
    Ok(match source {
        SecretSource::Variable(_) => TokenPlace::Nowhere,
        SecretSource::File(file) => TokenPlace::File {
            file: file.clone(),
            own,
        },
        SecretSource::Vault(wanted) => match KeptSecret::of(places, wanted)? {
            Some(secret) => TokenPlace::Vault {
                secret: Arc::new(secret),
                own,
            },
            None => TokenPlace::Nowhere,
        },
    })
}

fn from(source: &SecretSource) -> String {
    match source {
        SecretSource::Variable(variable) => format!("the variable {variable}"),
        SecretSource::File(path) => path.display().to_string(),
        SecretSource::Vault(wanted) => format!("the vault's secret {wanted}"),
    }
}
