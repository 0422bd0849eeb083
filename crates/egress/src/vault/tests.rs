use proptest::prelude::*;

use super::*;

#[test]
fn vault_opens_with_own_key_and_name_only() {
    let (key, other) = (VaultKey::generate().unwrap(), VaultKey::generate().unwrap());
    let sealed = key.seal("github", b"ghp_secret").unwrap();
    assert_eq!(
        key.open("github", &sealed).unwrap().as_slice(),
        b"ghp_secret"
    );
    assert_eq!(key.open("gitlab", &sealed), Err(VaultSealError::Sealed));
    assert_eq!(other.open("github", &sealed), Err(VaultSealError::Sealed));
    assert!(!sealed.windows(6).any(|part| part == b"secret"));
    // Twice the same are two.
    assert_ne!(sealed, key.seal("github", b"ghp_secret").unwrap());
}

#[test]
fn vault_wrapped_key_needs_passphrase() {
    let key = VaultKey::generate().unwrap();
    let wrapped = key.wrap(b"correct horse").unwrap();
    let again = VaultKey::unwrap(&wrapped, b"correct horse").unwrap();
    assert_eq!(again.expose(), key.expose());
    assert!(VaultKey::unwrap(&wrapped, b"correct horse ").is_err());
    for length in [0, SALT_BYTES - 1, SALT_BYTES, wrapped.len() - 1] {
        let cut = wrapped.get(..length).unwrap();
        assert!(VaultKey::unwrap(cut, b"correct horse").is_err(), "{length}");
    }
    // A wrapped key is no secret, and a secret no wrapped key.
    assert!(key.open("", &wrapped).is_err());
}

#[test]
fn vault_secret_length_is_limited() {
    let key = VaultKey::generate().unwrap();
    let longest = vec![7; SECRET_BYTES_MAX];
    let sealed = key.seal("x", &longest).unwrap();
    assert_eq!(key.open("x", &sealed).unwrap().as_slice(), longest);
    let longer = vec![7; SECRET_BYTES_MAX + 1];
    assert_eq!(key.seal("x", &longer), Err(VaultSealError::TooLong));
    assert!(VaultKey::from_bytes(&[0; 31]).is_err());
}

proptest! {
    #[test]
    fn vault_any_change_is_detected(
        secret in prop::collection::vec(any::<u8>(), 0..80),
        at in any::<prop::sample::Index>(),
        bits in 1u8..=255,
        cut in any::<prop::sample::Index>(),
    ) {
        let key = VaultKey::from_bytes(&[9; VAULT_KEY_BYTES]).unwrap();
        let sealed = key.seal("name", &secret).unwrap();
        let mut changed = sealed.clone();
        changed[at.index(sealed.len())] ^= bits;
        prop_assert_eq!(key.open("name", &changed), Err(VaultSealError::Sealed));
        let short = &sealed[..cut.index(sealed.len())];
        prop_assert_eq!(key.open("name", short), Err(VaultSealError::Sealed));
        let opened = key.open("name", &sealed).unwrap();
        prop_assert_eq!(opened.as_slice(), secret);
    }
}
