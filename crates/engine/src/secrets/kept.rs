//! Secrets of the vault that an issuer replaces during a run.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_model::SecretName;
use atoll_store::Vault;
use serde_json::json;
use zeroize::Zeroizing;

use super::{Stopped, existing, key_of, open, record};
use crate::configuration::Places;
use crate::failure::Failure;
use crate::supervision::TokenVault;

/// A secret of the vault.
#[derive(Debug)]
pub struct KeptSecret {
    places: Places,
    name: SecretName,
    vault: PathBuf,
}

impl KeptSecret {
    /// Returns the secret; `None` if there is no vault.
    ///
    /// # Errors
    /// When the vault cannot be read.
    pub fn of(places: &Places, name: &SecretName) -> Result<Option<Self>, Failure> {
        let vault = existing(places)?;
        Ok(vault.map(|vault| Self {
            places: places.clone(),
            name: name.clone(),
            vault: vault.path().to_owned(),
        }))
    }
}

impl TokenVault for KeptSecret {
    fn path(&self) -> &Path {
        &self.vault
    }

    fn read(&self) -> Result<Zeroizing<String>, String> {
        let value = open(&self.places, &self.name).map_err(|error| why(&error))?;
        let text = std::str::from_utf8(&value).map(|text| Zeroizing::new(text.to_owned()));
        text.map_err(|_| "it is no text".to_owned())
    }

    fn replace(&self, before: &str, new: &str) -> Result<bool, String> {
        if *self.read()? != *before {
            return Ok(false);
        }
        self.replaced(before, new).map_err(|error| why(&error))
    }
}

impl KeptSecret {
    fn replaced(&self, before: &str, new: &str) -> Result<bool, Failure> {
        let state = self.places.open_state()?;
        // Nothing is changed that is not on record.
        record(&state, "secret.set", json!({ "name": self.name }))?;
        let mut is_same = false;
        Vault::change(&state, |vault| {
            let key = key_of(&self.places, vault)?;
            let Some(kept) = vault.secrets().get(&self.name) else {
                return Ok(());
            };
            is_same = key.open(self.name.as_str(), &kept.sealed)?[..] == *before.as_bytes();
            if is_same {
                let sealed = key.seal(self.name.as_str(), new.as_bytes())?;
                vault.put(self.name.clone(), sealed, SystemTime::now())?;
            }
            Ok::<(), Stopped>(())
        })?;
        Ok(is_same)
    }
}

fn why(error: &Failure) -> String {
    match &error.why {
        Some(why) => format!("{}: {why}", error.what),
        None => error.what.clone(),
    }
}
