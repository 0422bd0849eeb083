//! Sealing and opening of secrets.
//!
//! A secret is sealed with AES-256-GCM (NIST SP 800-38D) under the vault's key, for its name:
//! stored under another name it does not open. The key itself can be wrapped by a passphrase,
//! through Argon2id (RFC 9106). Neither the key nor an opened secret is ever shown, and both are
//! wiped from memory when they are dropped.

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use zeroize::Zeroizing;

/// The length of a key, bytes.
pub const VAULT_KEY_BYTES: usize = 32;
/// The longest secret, bytes: a file with an agent's login is one.
pub const SECRET_BYTES_MAX: usize = 64 << 10;

/// The domain of a sealed secret: with its name, the associated data it is bound to.
const SECRET_MARK: &[u8] = b"atoll-secret-1\0";
const WRAPPED_MARK: &[u8] = b"atoll-vault-key-1\0";

const SALT_BYTES: usize = 16;
/// The cost of one attempt at a passphrase: memory in KiB and passes over it. The second choice of
/// RFC 9106, section 4, for which no host has too little.
const PASSPHRASE_MEMORY_KIB: u32 = 64 << 10;
const PASSPHRASE_PASSES: u32 = 3;
const PASSPHRASE_LANES: u32 = 4;

/// A secret could not be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VaultSealError {
    /// A sealed secret of another key or another name, or one that was changed.
    #[error("it does not open: another key or name has sealed it, or it was changed")]
    Sealed,
    /// A key has another length.
    #[error("it is no key of {VAULT_KEY_BYTES} bytes")]
    NoKey,
    /// A secret is too long.
    #[error("a secret has at most {} KiB", SECRET_BYTES_MAX >> 10)]
    TooLong,
    /// The kernel gave no random bytes, or there is no memory for a passphrase.
    #[error("this host has no random bytes or no memory left")]
    Host,
}

/// The key of a vault.
pub struct VaultKey(Zeroizing<[u8; VAULT_KEY_BYTES]>);

impl VaultKey {
    /// Generates a random key.
    ///
    /// # Errors
    /// [`VaultSealError::Host`].
    pub fn generate() -> Result<Self, VaultSealError> {
        let mut key = Zeroizing::new([0; VAULT_KEY_BYTES]);
        rand::fill(key.as_mut()).map_err(|_| VaultSealError::Host)?;
        Ok(Self(key))
    }

    /// Makes a key of these bytes.
    ///
    /// # Errors
    /// [`VaultSealError::NoKey`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, VaultSealError> {
        let mut key = Zeroizing::new([0; VAULT_KEY_BYTES]);
        if bytes.len() != VAULT_KEY_BYTES {
            return Err(VaultSealError::NoKey);
        }
        key.copy_from_slice(bytes);
        Ok(Self(key))
    }

    /// Returns the bytes, for the place where the key is stored.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// Seals a secret for its name.
    ///
    /// # Errors
    /// [`VaultSealError::TooLong`], [`VaultSealError::Host`].
    pub fn seal(&self, name: &str, secret: &[u8]) -> Result<Vec<u8>, VaultSealError> {
        if secret.len() > SECRET_BYTES_MAX {
            return Err(VaultSealError::TooLong);
        }
        seal(&self.0, &[SECRET_MARK, name.as_bytes()].concat(), secret)
    }

    /// Opens what was sealed for this name.
    ///
    /// # Errors
    /// [`VaultSealError::Sealed`].
    pub fn open(&self, name: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, VaultSealError> {
        open(&self.0, &[SECRET_MARK, name.as_bytes()].concat(), sealed)
    }

    /// Wraps the key by a passphrase, which alone unwraps it.
    ///
    /// # Errors
    /// [`VaultSealError::Host`].
    pub fn wrap(&self, passphrase: &[u8]) -> Result<Vec<u8>, VaultSealError> {
        let mut salt = [0; SALT_BYTES];
        rand::fill(&mut salt).map_err(|_| VaultSealError::Host)?;
        let wrapping = derive(passphrase, &salt)?;
        let sealed = seal(&wrapping, WRAPPED_MARK, self.0.as_ref())?;
        Ok([&salt[..], &sealed].concat())
    }

    /// Unwraps a key that was wrapped by this passphrase.
    ///
    /// # Errors
    /// [`VaultSealError::Sealed`] for another passphrase, [`VaultSealError::Host`].
    pub fn unwrap(wrapped: &[u8], passphrase: &[u8]) -> Result<Self, VaultSealError> {
        let (salt, sealed) = wrapped
            .split_at_checked(SALT_BYTES)
            .ok_or(VaultSealError::Sealed)?;
        let wrapping = derive(passphrase, salt)?;
        Self::from_bytes(&open(&wrapping, WRAPPED_MARK, sealed)?)
    }
}

fn derive(
    passphrase: &[u8],
    salt: &[u8],
) -> Result<Zeroizing<[u8; VAULT_KEY_BYTES]>, VaultSealError> {
    let parameters = Params::new(
        PASSPHRASE_MEMORY_KIB,
        PASSPHRASE_PASSES,
        PASSPHRASE_LANES,
        Some(VAULT_KEY_BYTES),
    )
    .map_err(|_| VaultSealError::Host)?;
    let mut key = Zeroizing::new([0; VAULT_KEY_BYTES]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters)
        .hash_password_into(passphrase, salt, key.as_mut())
        .map_err(|_| VaultSealError::Host)?;
    Ok(key)
}

fn cipher(key: &[u8; VAULT_KEY_BYTES]) -> Result<LessSafeKey, VaultSealError> {
    let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| VaultSealError::NoKey)?;
    Ok(LessSafeKey::new(key))
}

/// Seals a secret, with a random nonce before it: 2^32 secrets under one key would be too many, and
/// a vault holds a thousand.
fn seal(
    key: &[u8; VAULT_KEY_BYTES],
    bound_to: &[u8],
    secret: &[u8],
) -> Result<Vec<u8>, VaultSealError> {
    let mut number = [0; NONCE_LEN];
    rand::fill(&mut number).map_err(|_| VaultSealError::Host)?;
    // With room for all of it, so that no copy of the secret stays behind as it grows.
    let room = NONCE_LEN + secret.len() + AES_256_GCM.tag_len();
    let mut sealed = Vec::with_capacity(room);
    sealed.extend_from_slice(secret);
    let nonce = Nonce::assume_unique_for_key(number);
    cipher(key)?
        .seal_in_place_append_tag(nonce, Aad::from(bound_to), &mut sealed)
        .map_err(|_| VaultSealError::Host)?;
    sealed.splice(0..0, number);
    Ok(sealed)
}

fn open(
    key: &[u8; VAULT_KEY_BYTES],
    bound_to: &[u8],
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, VaultSealError> {
    let (number, rest) = sealed
        .split_at_checked(NONCE_LEN)
        .ok_or(VaultSealError::Sealed)?;
    let nonce = Nonce::try_assume_unique_for_key(number).map_err(|_| VaultSealError::Sealed)?;
    let mut opened = Zeroizing::new(rest.to_vec());
    let length = cipher(key)?
        .open_in_place(nonce, Aad::from(bound_to), &mut opened)
        .map_err(|_| VaultSealError::Sealed)?
        .len();
    opened.truncate(length);
    Ok(opened)
}

#[cfg(test)]
mod tests;
