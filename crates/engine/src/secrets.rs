//! The vault of sealed credentials, and the key that opens it.

mod kept;
pub mod keyring;

use std::collections::BTreeSet;

use atoll_egress::{VaultKey, VaultSealError};
use atoll_ledger::{Durability, Filter, Ledger, StateDir};
use atoll_model::network::CredentialName;
use atoll_model::{RunId, SecretName};
use atoll_store::{KeyKept, Vault, VaultError, VaultKeyFile};
use serde_json::json;
use zeroize::Zeroizing;

use crate::configuration::Places;
use crate::failure::{Doing, Failure};
pub use kept::KeptSecret;

/// Decrypts a secret, for the egress process alone.
///
/// # Errors
/// When there is none, or the vault cannot be used.
pub fn open(places: &Places, name: &SecretName) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let vault = existing(places)?;
    let sealed = vault
        .as_ref()
        .and_then(|vault| Some((vault, vault.secrets().get(name)?)));
    let Some((vault, secret)) = sealed else {
        return Err(Failure::new(format!("there is no secret {name}"))
            .because("a credential of the profile is to come from it")
            .advise(format!("atoll secret set {name}")));
    };
    let key = key_of(places, vault)?;
    let opened = key.open(name.as_str(), &secret.sealed);
    Ok(opened.map_err(Stopped::from)?)
}

/// Returns the names in the vault, after checking that secrets can be added to it.
///
/// # Errors
/// When they cannot, for instance because the vault is locked.
pub fn can_keep(places: &Places) -> Result<BTreeSet<SecretName>, Failure> {
    let state = places.open_state()?;
    let vault = Vault::read(&state).map_err(Stopped::from)?;
    match vault {
        Some(vault) => {
            key_of(places, &vault)?;
            Ok(vault.secrets().keys().cloned().collect())
        }
        None => Ok(BTreeSet::new()),
    }
}

/// Returns the secrets that a login has put into the vault and nobody has changed since, from the
/// ledger.
///
/// # Errors
/// When the ledger cannot be read.
pub fn kept_by(places: &Places, login: &CredentialName) -> Result<BTreeSet<String>, Failure> {
    let state = places.open_state()?;
    let filter = Filter {
        kind: Some("secret".to_owned()),
        ..Filter::default()
    };
    let mut names = BTreeSet::new();
    for event in Ledger::events(&state, filter).doing("the ledger cannot be read")? {
        let event = event.doing("the ledger is damaged")?;
        let text = |member: &str| event.body.get(member).and_then(|value| value.as_str());
        let Some(name) = text("name") else {
            continue;
        };
        let is_its = event.kind == "secret.set" && text("login") == Some(login.as_str());
        match is_its {
            true => names.insert(name.to_owned()),
            false => names.remove(name),
        };
    }
    Ok(names)
}

/// Keeps these, sealed: all of them or none. Each is recorded before, as this login's.
///
/// # Errors
/// When they cannot be kept.
pub fn keep(
    places: &Places,
    run: &RunId,
    login: &CredentialName,
    secrets: &[(&SecretName, &Zeroizing<String>)],
) -> Result<(), Failure> {
    let state = places.open_state()?;
    let ledger = crate::events::open_ledger(&state)?;
    for (name, _) in secrets {
        ledger
            .record(
                Some(run),
                "secret.set",
                json!({ "login": login.as_str(), "name": name }),
                Durability::Durable,
            )
            .doing("the change cannot be recorded")?;
    }
    Vault::change(&state, |vault| {
        let key = key_of(places, vault)?;
        for (name, secret) in secrets {
            let sealed = key.seal(name.as_str(), secret.as_bytes())?;
            vault.put((*name).clone(), sealed, std::time::SystemTime::now())?;
        }
        Ok::<(), Stopped>(())
    })?;
    Ok(())
}

/// Returns the key of a vault, from wherever it is kept; a new one if nothing is sealed yet.
///
/// # Errors
/// When it is not there, or opens nothing.
pub fn key_of(places: &Places, vault: &Vault) -> Result<VaultKey, Stopped> {
    let key = kept_key(places, vault)?;
    // Another one would seal what the rest of the vault's key does not open.
    if let Some((name, secret)) = vault.secrets().iter().next() {
        key.open(name.as_str(), &secret.sealed)?;
    }
    Ok(key)
}

fn kept_key(places: &Places, vault: &Vault) -> Result<VaultKey, Stopped> {
    match vault.key() {
        KeyKept::Passphrase { .. } => keyring::key(vault.path()).ok_or(Stopped::Locked),
        KeyKept::File => {
            let file = key_file(places, vault)?;
            match file.read(VaultKey::from_bytes)? {
                Some(key) => Ok(key?),
                None if vault.secrets().is_empty() => {
                    let key = VaultKey::generate()?;
                    file.write(key.expose())?;
                    Ok(key)
                }
                None => Err(VaultError::KeyMissing(file.path()).into()),
            }
        }
    }
}

/// Returns the file of a vault's key.
///
/// # Errors
/// When there can be none.
pub fn key_file(places: &Places, vault: &Vault) -> Result<VaultKeyFile, Stopped> {
    Ok(VaultKeyFile::of(vault, &places.config)?)
}

/// Reads the vault, if there is one.
///
/// # Errors
/// When it cannot be used.
pub fn existing(places: &Places) -> Result<Option<Vault>, Failure> {
    if !places.state.exists() {
        return Ok(None);
    }
    let vault = Vault::read(&places.read_state()?);
    vault.map_err(|error| Stopped::from(error).into())
}

/// An error of work with a vault.
#[derive(Debug)]
pub enum Stopped {
    /// Its file or its key's cannot be used.
    Vault(VaultError),
    /// Sealed content cannot be opened.
    Fault(VaultSealError),
    /// A passphrase gives its key, and it is locked.
    Locked,
}

impl From<VaultError> for Stopped {
    fn from(error: VaultError) -> Self {
        Self::Vault(error)
    }
}

impl From<VaultSealError> for Stopped {
    fn from(fault: VaultSealError) -> Self {
        Self::Fault(fault)
    }
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        let failure = Self::new("the vault of secrets cannot be used");
        match stopped {
            Stopped::Locked => failure
                .because("a passphrase gives its key, and it is locked")
                .advise("atoll secret unlock"),
            Stopped::Vault(error) => failure.because(&error).advise(error),
            Stopped::Fault(fault) => failure.because(fault),
        }
    }
}

/// Records a change of the vault.
///
/// # Errors
/// When the ledger cannot be used.
pub fn record(
    state: &StateDir,
    kind: &'static str,
    body: serde_json::Value,
) -> Result<(), Failure> {
    crate::events::open_ledger(state)?
        .record(None, kind, body, Durability::Durable)
        .doing("the change cannot be recorded")?;
    Ok(())
}
