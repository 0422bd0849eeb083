//! The destination of a login's tokens: the agent's own file on the host, or the vault.

use std::collections::BTreeMap;
use std::path::Path;

use atoll_ledger::Durability;
use atoll_model::SecretName;
use atoll_model::network::{FieldPath, IssuedToken};
use atoll_policy::{CredentialSource, IssuedTo, Login, LoginIssue, Rules};
use serde_json::json;
use zeroize::Zeroizing;

use super::compose::{self, Named};
use super::merge::Own;
use super::place::Place;
use super::{Gathered, not_logged_in};
use crate::configuration::Places;
use crate::events::open_ledger;
use crate::failure::{Doing, Failure};
use crate::secrets;

/// The destination, checked before anybody logs in.
pub enum Keeping<'a> {
    /// A file, with the fields of its tokens.
    File(Place, &'a BTreeMap<IssuedToken, FieldPath>, Box<Named<'a>>),
    /// The names, and which of them are there already.
    Vault(&'a BTreeMap<IssuedToken, SecretName>, Vec<&'a SecretName>),
}

/// The checked content to keep.
pub enum Kept<'a> {
    /// The text of a file, and where it goes.
    File(&'a Place, &'a Own<'a>, Zeroizing<Vec<u8>>),
    /// Secrets of the vault.
    Vault(Vec<(&'a SecretName, &'a Zeroizing<String>)>),
}

impl<'a> Keeping<'a> {
    /// Checks the destination, before anybody logs in.
    ///
    /// # Errors
    /// When nothing could be kept there.
    pub fn prepare(
        places: &Places,
        rules: &'a Rules,
        (login, issue): (&'a Login, &'a LoginIssue),
    ) -> Result<Self, Failure> {
        let state = places.open_state()?;
        match &issue.keeps {
            IssuedTo::File(fields) => {
                let own = places.state.join(crate::credentials::RENEWALS);
                drop(state);
                let named = Named {
                    issuer: &issue.token,
                    clients: clients(rules, login),
                    scopes: &issue.scopes,
                    without: &issue.without,
                    own: Own::of(login, fields),
                };
                let place = Place::prepare(&login.file, own, &named.own)?;
                Ok(Self::File(place, fields, Box::new(named)))
            }
            IssuedTo::Vault(names) => {
                drop(state);
                let there = secrets::can_keep(places)?;
                let replaced = names.values().filter(|name| there.contains(name));
                Ok(Self::Vault(names, replaced.collect()))
            }
        }
    }

    /// Describes the destination.
    pub fn place(&self) -> String {
        match self {
            Self::File(place, _, _) => place.path().display().to_string(),
            Self::Vault(names, _) => {
                let names: Vec<&str> = names.values().map(SecretName::as_str).collect();
                format!("the vault ({})", names.join(", "))
            }
        }
    }

    /// Describes the destination for the question, with what would be replaced.
    pub fn asked(&self) -> String {
        let how = match self {
            Self::File(place, _, _) if place.is_replaced() => {
                ", in the place of the one that is there".to_owned()
            }
            Self::File(_, _, _) => ", which is not there yet".to_owned(),
            Self::Vault(_, replaced) => {
                let each = replaced.iter().map(|name| format!(", replaces {name}"));
                each.collect()
            }
        };
        format!("{}{how}", self.place())
    }

    /// Refuses to replace, without a question, secrets that this login has not put there.
    ///
    /// # Errors
    /// When there are secrets of these names, which could be of anything.
    pub fn unasked(&self, places: &Places, login: &Login) -> Result<(), Failure> {
        let Self::Vault(_, replaced) = self else {
            return Ok(());
        };
        let own = secrets::kept_by(places, &login.name)?;
        let of_others = replaced.iter().filter(|name| !own.contains(name.as_str()));
        let of_others: Vec<&str> = of_others.map(|name| name.as_str()).collect();
        if of_others.is_empty() {
            return Ok(());
        }
        let names = of_others.join(", ");
        Err(Failure::new(format!(
            "the login {} would replace secrets that are there",
            login.name
        ))
        .because(format!(
            "--yes asks nobody, and no login has put these there: {names}"
        ))
        .advise("atoll login without --yes names them and asks")
        .advise("or atoll secret remove takes them out first"))
    }

    /// Checks the content to keep.
    ///
    /// # Errors
    /// When the login is not valid.
    pub fn checked<'b>(
        &'b self,
        gathered: &'b Gathered,
        login: &Login,
    ) -> Result<Kept<'b>, Failure> {
        let failed = |why: String| not_logged_in(&gathered.run, login, why);
        match self {
            Self::File(place, fields, named) => {
                let inside = |why: &str| failed(format!("of the login file inside: {why}"));
                let file = gathered.file.as_ref().map_err(|why| inside(why))?;
                let composed =
                    compose::composed(file, login, (*fields, &**named), &gathered.tokens);
                let composed = composed.map_err(|why| inside(&why))?;
                Ok(Kept::File(place, &named.own, composed))
            }
            Self::Vault(names, _) => {
                let mut kept = Vec::new();
                for (token, name) in *names {
                    // The last is the one that holds.
                    let mut given = gathered.tokens.iter().rev();
                    let given = given.find(|one| one.token == *token);
                    let given = given.ok_or_else(|| {
                        failed(format!("its issuer has given no {}", token.member()))
                    })?;
                    kept.push((name, &given.real));
                }
                Ok(Kept::Vault(kept))
            }
        }
    }
}

impl Kept<'_> {
    /// Keeps it, on disk when this returns, and recorded before.
    ///
    /// # Errors
    /// When it cannot be kept.
    pub fn keep(
        &self,
        places: &Places,
        (gathered, login): (&Gathered, &Login),
    ) -> Result<(), Failure> {
        match self {
            Self::File(place, own, text) => {
                record(places, place.path(), place.is_replaced(), (gathered, login))?;
                place.write(text, own)
            }
            Self::Vault(secrets) => secrets::keep(places, &gathered.run, &login.name, secrets),
        }
    }
}

/// Returns the clients by which a login is renewed, from its profile.
fn clients<'a>(rules: &'a Rules, login: &Login) -> Vec<&'a str> {
    let renewals = rules.credentials().filter_map(|one| match &one.source {
        CredentialSource::Login(source) if source.login == login.name => source.renew.as_ref(),
        CredentialSource::Login(_)
        | CredentialSource::Variable(_)
        | CredentialSource::File(_)
        | CredentialSource::Vault(_)
        | CredentialSource::Key(_)
        | CredentialSource::Token(_)
        | CredentialSource::Command(_) => None,
    });
    renewals
        .map(|renewal| renewal.request.client.as_str())
        .collect()
}

fn record(
    places: &Places,
    path: &Path,
    is_replaced: bool,
    (gathered, login): (&Gathered, &Login),
) -> Result<(), Failure> {
    let state = places.open_state()?;
    let file = path.to_string_lossy();
    let body = json!({ "login": login.name.as_str(), "file": file, "replaced": is_replaced });
    open_ledger(&state)?
        .record(
            Some(&gathered.run),
            "login.written",
            body,
            Durability::Durable,
        )
        .doing("that the login is written cannot be recorded, so it is not")?;
    Ok(())
}
