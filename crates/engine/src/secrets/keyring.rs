//! The key of the vault in this kernel, for a time (keyrings(7)): in the user's keyring,
//! never on disk. No sandbox has calls for keys.

use std::path::Path;
use std::time::Duration;

use atoll_egress::{VAULT_KEY_BYTES, VaultKey};
use linux_keyutils::{
    Key, KeyError, KeyPermissionsBuilder, KeyRing, KeyRingIdentifier, Permission,
};
use zeroize::Zeroizing;

/// Returns the name of a vault's key in the keyring.
fn name(vault: &Path) -> String {
    format!("atoll:{}", vault.display())
}

fn ring() -> Result<KeyRing, KeyError> {
    KeyRing::from_special_id(KeyRingIdentifier::User, true)
}

fn entry(vault: &Path) -> Option<Key> {
    ring().ok()?.search(&name(vault)).ok()
}

/// Returns the key, if it is kept.
#[must_use]
pub fn key(vault: &Path) -> Option<VaultKey> {
    let mut bytes = Zeroizing::new([0; VAULT_KEY_BYTES]);
    let length = entry(vault)?.read(&mut bytes.as_mut_slice()).ok()?;
    VaultKey::from_bytes(bytes.get(..length)?).ok()
}

/// Keeps it for that time.
///
/// # Errors
/// When the kernel does not keep it.
pub fn keep(vault: &Path, key: &VaultKey, lasts: Duration) -> Result<(), KeyError> {
    let entry = ring()?.add_key(&name(vault), key.expose())?;
    // For this user alone, also from a session that does not hold the keyring.
    let rights = Permission::VIEW | Permission::READ | Permission::SEARCH;
    let rights = rights | Permission::WRITE | Permission::SETATTR;
    let allowed = KeyPermissionsBuilder::builder()
        .posessor(Permission::ALL)
        .user(rights)
        .build();
    let seconds = usize::try_from(lasts.as_secs().max(1)).unwrap_or(usize::MAX);
    let limited = entry
        .set_timeout(seconds)
        .and_then(|()| entry.set_perms(allowed));
    if limited.is_err() {
        // For good it is not kept.
        let _ = entry.revoke();
    }
    limited
}

/// Forgets it, and returns whether it was there.
pub fn forget(vault: &Path) -> bool {
    entry(vault).is_some_and(|entry| entry.revoke().is_ok())
}
