//! The vault: secrets sealed on disk, and the place of the key that opens them.
//!
//! Nothing here seals or opens anything: only the egress process ever knows a secret, and whoever
//! puts one in at that moment. The key is kept apart from the secrets, in a file of the
//! configuration, or beside them, wrapped with a passphrase.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_ledger::private::PrivateDirectory;
use atoll_ledger::state::VAULT;
use atoll_ledger::{PrivateFault, StateDir, random};
use atoll_model::SecretName;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::authority::seconds;

const FILE: &str = "secrets.json";
const VERSION: u32 = 1;

/// The largest vault that is read, bytes.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// The largest file with a key that is read, bytes.
const KEY_FILE_BYTES_MAX: u64 = 4 << 10;
/// The most secrets that a vault holds.
pub const SECRETS_MAX: usize = 1_000;

/// The prefix of a key file's line.
const KEY_LINE: &str = "atoll-vault-key-1 ";

/// The vault cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// One of its files cannot be used.
    #[error(transparent)]
    Private(#[from] PrivateFault),
    /// The file that is there is not a vault.
    #[error("{} cannot be read: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The fault that was found.
        why: String,
    },
    /// The file that holds its key is not there.
    #[error("the vault's key is not there: {}", .0.display())]
    KeyMissing(PathBuf),
    /// The kernel gives no random bytes.
    #[error("this host has no random bytes to begin a vault with")]
    NoRandom,
    /// There is no room for another secret.
    #[error("the vault holds {SECRETS_MAX} secrets, and no more")]
    Full,
}

/// The place in which a vault's key is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum KeyKept {
    /// The key is in a file of its own.
    File,
    /// The key is in the vault, sealed with a key that a passphrase gives.
    Passphrase {
        /// The wrapped key with the parameters to unwrap it, base64.
        #[serde(with = "base64_text")]
        wrapped: Vec<u8>,
    },
}

/// The vault as it is stored.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    v: u32,
    /// The vault's identity, random hexadecimal digits: another vault's key is in another file.
    id: String,
    key: KeyKept,
    secrets: BTreeMap<SecretName, SealedSecret>,
}

/// A secret that nobody can read without the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealedSecret {
    /// The sealed secret, base64.
    #[serde(with = "base64_text")]
    pub sealed: Vec<u8>,
    /// The time of its last change, seconds since 1970.
    pub changed_s: u64,
}

mod base64_text {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map_err(D::Error::custom)
    }
}

/// The vault of this deployment.
pub struct Vault {
    kept: Kept,
    path: PathBuf,
}

impl Vault {
    /// Reads the vault of this deployment.
    ///
    /// # Errors
    /// [`VaultError`].
    pub fn read(state: &StateDir) -> Result<Option<Self>, VaultError> {
        match PrivateDirectory::of_state(state, VAULT, false)? {
            Some(directory) => read(&directory),
            None => Ok(None),
        }
    }

    /// Changes the vault, or a new and empty one, as one step: the state that `change` leaves is
    /// saved.
    ///
    /// # Errors
    /// [`VaultError`], or what `change` says; then everything is as it was.
    pub fn change<E: From<VaultError>>(
        state: &StateDir,
        change: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let fault = |fault: PrivateFault| E::from(VaultError::from(fault));
        let Some(directory) = PrivateDirectory::of_state(state, VAULT, true).map_err(fault)? else {
            return Ok(());
        };
        let _lock = directory.lock().map_err(fault)?;
        let mut vault = match read(&directory)? {
            Some(vault) => vault,
            None => Self {
                kept: Kept {
                    v: VERSION,
                    id: new_id()?,
                    key: KeyKept::File,
                    secrets: BTreeMap::new(),
                },
                path: directory.path().join(FILE),
            },
        };
        change(&mut vault)?;
        let bytes = serde_json::to_vec_pretty(&vault.kept).map_err(|error| {
            E::from(VaultError::Unreadable {
                path: vault.path.clone(),
                why: error.to_string(),
            })
        })?;
        directory.replace(FILE, &bytes).map_err(fault)
    }

    /// Returns the file that holds it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the file for its key, if it is in one.
    fn key_file(&self) -> String {
        format!("vault-{}.key", self.kept.id)
    }

    /// Returns how its key is kept.
    #[must_use]
    pub fn key(&self) -> &KeyKept {
        &self.kept.key
    }

    /// Sets how its key is kept.
    pub fn keep_key(&mut self, how: KeyKept) {
        self.kept.key = how;
    }

    /// Returns its secrets, by name.
    #[must_use]
    pub fn secrets(&self) -> &BTreeMap<SecretName, SealedSecret> {
        &self.kept.secrets
    }

    /// Puts in a sealed secret; replaces the one of that name.
    ///
    /// # Errors
    /// [`VaultError::Full`].
    pub fn put(
        &mut self,
        name: SecretName,
        sealed: Vec<u8>,
        now: SystemTime,
    ) -> Result<(), VaultError> {
        let is_new = !self.kept.secrets.contains_key(&name);
        if is_new && self.kept.secrets.len() >= SECRETS_MAX {
            return Err(VaultError::Full);
        }
        let secret = SealedSecret {
            sealed,
            changed_s: seconds(now),
        };
        self.kept.secrets.insert(name, secret);
        Ok(())
    }

    /// Seals every secret anew: all, or none if one cannot be.
    ///
    /// # Errors
    /// What `reseal` says.
    pub fn reseal<E>(
        &mut self,
        reseal: impl Fn(&SecretName, &[u8]) -> Result<Vec<u8>, E>,
    ) -> Result<(), E> {
        let mut sealed = Vec::with_capacity(self.kept.secrets.len());
        for (name, secret) in &self.kept.secrets {
            sealed.push(reseal(name, &secret.sealed)?);
        }
        for (secret, sealed) in self.kept.secrets.values_mut().zip(sealed) {
            secret.sealed = sealed;
        }
        Ok(())
    }

    /// Removes a secret; returns whether it was there.
    pub fn remove(&mut self, name: &SecretName) -> bool {
        self.kept.secrets.remove(name).is_some()
    }
}

/// Makes an id of eight random bytes: no two vaults have the same.
fn new_id() -> Result<String, VaultError> {
    let mut bytes = [0_u8; 8];
    random::fill(&mut bytes).map_err(|_| VaultError::NoRandom)?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

fn read(directory: &PrivateDirectory) -> Result<Option<Vault>, VaultError> {
    let path = directory.path().join(FILE);
    let Some(bytes) = directory.read(FILE, FILE_BYTES_MAX)? else {
        return Ok(None);
    };
    let unreadable = |why: String| VaultError::Unreadable {
        path: path.clone(),
        why,
    };
    let kept: Kept =
        serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
    if kept.v != VERSION {
        return Err(unreadable("it is of another version of Atoll".to_owned()));
    }
    // It becomes part of a file's name.
    if kept.id.is_empty() || !kept.id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(unreadable("it has no id".to_owned()));
    }
    Ok(Some(Vault { kept, path }))
}

/// The file that holds a vault's key, in the directory of the configuration.
pub struct VaultKeyFile {
    directory: PrivateDirectory,
    name: String,
}

impl VaultKeyFile {
    /// Returns a vault's key file in this directory, which is made if missing.
    ///
    /// # Errors
    /// [`VaultError`], also where others can write to the directory.
    pub fn of(vault: &Vault, configuration: &Path) -> Result<Self, VaultError> {
        Ok(Self {
            directory: PrivateDirectory::at(configuration)?,
            name: vault.key_file(),
        })
    }

    /// Returns the file's path.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Passes its content to `take`; `None` if the file is not there. The buffer is wiped.
    ///
    /// # Errors
    /// [`VaultError`].
    pub fn read<T>(&self, take: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, VaultError> {
        let Some(bytes) = self.directory.read(&self.name, KEY_FILE_BYTES_MAX)? else {
            return Ok(None);
        };
        let bytes = zeroize::Zeroizing::new(bytes);
        let unreadable = || VaultError::Unreadable {
            path: self.path(),
            why: format!("it is no line \"{KEY_LINE}…\" with base64"),
        };
        let line = bytes.trim_ascii().strip_prefix(KEY_LINE.as_bytes());
        let line = line.ok_or_else(unreadable)?;
        let mut key = zeroize::Zeroizing::new(vec![0; line.len()]);
        let length = STANDARD
            .decode_slice(line, &mut key)
            .map_err(|_| unreadable())?;
        let key = key.get(..length).ok_or_else(unreadable)?;
        Ok(Some(take(key)))
    }

    /// Writes a key to it. The caller changes the vault meanwhile, so that nobody else does.
    ///
    /// # Errors
    /// [`VaultError`].
    pub fn write(&self, key: &[u8]) -> Result<(), VaultError> {
        let mut line = zeroize::Zeroizing::new(String::with_capacity(key.len().saturating_mul(2)));
        line.push_str(KEY_LINE);
        STANDARD.encode_string(key, &mut line);
        line.push('\n');
        Ok(self.directory.replace(&self.name, line.as_bytes())?)
    }

    /// Removes the file; returns whether it was there.
    ///
    /// # Errors
    /// [`VaultError`].
    pub fn remove(&self) -> Result<bool, VaultError> {
        Ok(self.directory.remove(&self.name)?)
    }
}
