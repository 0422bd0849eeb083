//! Keys and signatures: hosts' signatures are verified, a person's own key in a file signs.

use std::fmt;

use atoll_model::network::{SSH_KEY_BYTES_MAX, SshAlgorithm};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519,
    Ed25519KeyPair, KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512,
    RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::ssh::wire::{Reader, Writer};
use atoll_egress::secret::Secret;

/// The longest public key that is accepted, bytes.
pub const PUBLIC_KEY_BYTES_MAX: usize = SSH_KEY_BYTES_MAX;

const OF_ED25519: &[u8] = b"ssh-ed25519";
const OF_RSA: &[u8] = b"ssh-rsa";

/// Returns the fingerprint of a key (`SHA256:…`, as `ssh-keygen -l` shows it).
#[must_use]
pub fn fingerprint(key: &[u8]) -> String {
    let digest = crate::ssh::encoded(&Sha256::digest(key));
    format!("SHA256:{}", digest.trim_end_matches('='))
}

/// Returns whether a host has signed this with its key. Obsolete algorithms and certificates are
/// not accepted.
pub(crate) fn is_signed(key: &[u8], signature: &[u8], signed: &[u8]) -> bool {
    verified(key, signature, signed).is_some()
}

fn verified(key: &[u8], signature: &[u8], signed: &[u8]) -> Option<()> {
    let mut key = Reader::new(key);
    let mut made = Reader::new(signature);
    let (kind, algorithm, blob) = (key.string()?, made.string()?, made.string()?);
    made.end()?;
    match (kind, algorithm) {
        (OF_ED25519, OF_ED25519) => {
            let point = key.string()?;
            key.end()?;
            check(&ED25519, point, signed, blob)
        }
        (OF_RSA, b"rsa-sha2-256" | b"rsa-sha2-512") => {
            let (e, n) = (key.string()?, key.string()?);
            key.end()?;
            let parameters = match algorithm {
                b"rsa-sha2-256" => &RSA_PKCS1_2048_8192_SHA256,
                _ => &RSA_PKCS1_2048_8192_SHA512,
            };
            let (n, e) = (positive(n)?, positive(e)?);
            let public = RsaPublicKeyComponents { n, e };
            public.verify(parameters, signed, blob).ok()
        }
        _ if kind == algorithm => {
            let (algorithm, curve, half) = curve(kind)?;
            if key.string()? != curve {
                return None;
            }
            let point = key.string()?;
            key.end()?;
            let mut parts = Reader::new(blob);
            let (r, s) = (parts.string()?, parts.string()?);
            parts.end()?;
            let fixed = [padded(positive(r)?, half)?, padded(positive(s)?, half)?].concat();
            check(algorithm, point, signed, &fixed)
        }
        _ => None,
    }
}

/// Returns whether a person's key has signed this: as [`is_signed`], or a key in a security token
/// (OpenSSH's PROTOCOL.u2f), which also signs its own flags and counter.
pub(crate) fn is_signed_by_own(key: &[u8], signature: &[u8], signed: &[u8]) -> bool {
    is_signed(key, signature, signed) || verified_by_token(key, signature, signed).is_some()
}

fn verified_by_token(key: &[u8], signature: &[u8], signed: &[u8]) -> Option<()> {
    let mut key = Reader::new(key);
    let kind = key.string()?;
    let of_token = match kind {
        b"sk-ssh-ed25519@openssh.com" => Writer::new().string(OF_ED25519),
        b"sk-ecdsa-sha2-nistp256@openssh.com" => {
            let curve = key.string()?;
            Writer::new().string(b"ecdsa-sha2-nistp256").string(curve)
        }
        _ => return None,
    };
    let (point, application) = (key.string()?, key.string()?);
    key.end()?;
    let of_token = of_token.string(point).done();
    let algorithm = Reader::new(&of_token).string()?;
    let mut made = Reader::new(signature);
    let (own, blob) = (made.string()?, made.string()?);
    let (flags, counter) = (made.byte()?, made.number()?);
    made.end()?;
    let mut told = Sha256::digest(application).to_vec();
    told.push(flags);
    told.extend(counter.to_be_bytes());
    told.extend(Sha256::digest(signed));
    let plain = Writer::new().string(algorithm).string(blob).done();
    (own == kind).then(|| verified(&of_token, &plain, &told))?
}

/// Returns the parameters of an ECDSA curve (RFC 5656): the algorithm, the name, and the length of
/// half a signature in bytes.
fn curve(kind: &[u8]) -> Option<(&'static dyn VerificationAlgorithm, &'static [u8], usize)> {
    match kind {
        b"ecdsa-sha2-nistp256" => Some((&ECDSA_P256_SHA256_FIXED, b"nistp256", 32)),
        b"ecdsa-sha2-nistp384" => Some((&ECDSA_P384_SHA384_FIXED, b"nistp384", 48)),
        b"ecdsa-sha2-nistp521" => Some((&ECDSA_P521_SHA512_FIXED, b"nistp521", 66)),
        _ => None,
    }
}

fn check(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    signed: &[u8],
    signature: &[u8],
) -> Option<()> {
    let key = UnparsedPublicKey::new(algorithm, key);
    key.verify(signed, signature).ok()
}

/// Returns the bytes of a positive integer, without the zero before them.
fn positive(integer: &[u8]) -> Option<&[u8]> {
    match integer {
        [0, rest @ ..] if rest.first().is_some_and(|first| first & 0x80 != 0) => Some(rest),
        [first, ..] if (1..0x80).contains(first) => Some(integer),
        _ => None,
    }
}

fn padded(bytes: &[u8], length: usize) -> Option<Vec<u8>> {
    let zeros = length.checked_sub(bytes.len())?;
    Some([&vec![0; zeros], bytes].concat())
}

/// A private key from a file, for signing. Its secret part is in locked memory, and elsewhere only
/// while it signs.
pub struct OwnKey {
    seed: Secret,
    point: Vec<u8>,
    public: Vec<u8>,
}

impl fmt::Debug for OwnKey {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("OwnKey").finish_non_exhaustive()
    }
}

/// The reason for which a file's key cannot sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnKeyError {
    /// Not a private key file of OpenSSH.
    #[error("it is no private key as ssh-keygen writes it")]
    Form,
    /// Encrypted by a passphrase.
    #[error("it is locked by a passphrase")]
    Locked,
    /// Another kind than Ed25519.
    #[error("it is no Ed25519 key")]
    Kind,
    /// `RLIMIT_MEMLOCK` allows no more.
    #[error("no more memory can be kept from being swapped out")]
    Memory,
}

impl OwnKey {
    /// Parses a file as ssh-keygen writes it (OpenSSH's PROTOCOL.key).
    ///
    /// # Errors
    /// [`OwnKeyError`].
    pub fn read(text: &[u8]) -> Result<Self, OwnKeyError> {
        let text = std::str::from_utf8(text).map_err(|_| OwnKeyError::Form)?;
        let text = text.trim();
        let body = text
            .strip_prefix("-----BEGIN OPENSSH PRIVATE KEY-----")
            .and_then(|rest| rest.strip_suffix("-----END OPENSSH PRIVATE KEY-----"))
            .ok_or(OwnKeyError::Form)?;
        let packed: Zeroizing<String> = Zeroizing::new(body.split_whitespace().collect());
        let bytes = crate::ssh::decoded(&packed).ok_or(OwnKeyError::Form)?;
        let bytes = Zeroizing::new(bytes);
        Self::of(&bytes)
    }

    fn of(bytes: &[u8]) -> Result<Self, OwnKeyError> {
        let form = || OwnKeyError::Form;
        let mut reader = Reader::new(bytes);
        reader.exact(b"openssh-key-v1\0").ok_or_else(form)?;
        let cipher = reader.string().ok_or_else(form)?;
        if cipher != b"none" {
            return Err(OwnKeyError::Locked);
        }
        let (_, _) = (reader.string(), reader.string());
        if reader.number() != Some(1) {
            return Err(OwnKeyError::Form);
        }
        let public = reader.string().ok_or_else(form)?;
        let private = reader.string().ok_or_else(form)?;
        reader.end().ok_or_else(form)?;
        let mut private = Reader::new(private);
        let (first, second) = (private.number(), private.number());
        if first.is_none() || first != second {
            return Err(OwnKeyError::Form);
        }
        if private.string() != Some(OF_ED25519) {
            return Err(OwnKeyError::Kind);
        }
        let point = private.string().ok_or_else(form)?;
        let secret = private.string().ok_or_else(form)?;
        let (seed, _) = secret.split_at_checked(32).ok_or_else(form)?;
        let pair = Ed25519KeyPair::from_seed_and_public_key(seed, point);
        let pair = pair.map_err(|_| OwnKeyError::Form)?;
        let made = Writer::new()
            .string(OF_ED25519)
            .string(pair.public_key().as_ref())
            .done();
        if made != public {
            return Err(OwnKeyError::Form);
        }
        Ok(Self {
            seed: Secret::new(seed.to_vec()).map_err(|_| OwnKeyError::Memory)?,
            point: point.to_vec(),
            public: made,
        })
    }

    /// Returns the public key in wire format.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// Returns a signature in wire format; `None` where the library cannot make one.
    pub(crate) fn sign(&self, data: &[u8]) -> Option<Vec<u8>> {
        let seed = self.seed.expose();
        let pair = Ed25519KeyPair::from_seed_and_public_key(seed, &self.point).ok()?;
        let signed = Writer::new().string(OF_ED25519);
        Some(signed.string(pair.sign(data).as_ref()).done())
    }
}

/// Returns the name of the signature algorithm in a login request (RFC 8332 for RSA keys).
pub(crate) fn algorithm_name(key: &[u8], algorithm: SshAlgorithm) -> Option<&[u8]> {
    let kind = Reader::new(key).string()?;
    match (algorithm, kind == OF_RSA) {
        (SshAlgorithm::OfKey, false) => Some(kind),
        (SshAlgorithm::RsaSha256, true) => Some(b"rsa-sha2-256"),
        (SshAlgorithm::RsaSha512, true) => Some(b"rsa-sha2-512"),
        // Signatures with SHA-1 are none any more.
        (SshAlgorithm::OfKey, true)
        | (SshAlgorithm::RsaSha256 | SshAlgorithm::RsaSha512, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn security_key_signs_its_flags_too() {
        const KIND: &[u8] = b"sk-ssh-ed25519@openssh.com";
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let point = pair.public_key().as_ref();
        let key = Writer::new().string(KIND).string(point).string(b"ssh:");
        let key = key.done();
        let told = [
            &Sha256::digest(b"ssh:")[..],
            &[1, 0, 0, 0, 9],
            &Sha256::digest(b"data")[..],
        ]
        .concat();
        let made = Writer::new().string(KIND).string(pair.sign(&told).as_ref());
        let made = made.byte(1).number(9).done();
        assert!(is_signed_by_own(&key, &made, b"data"));
        assert!(!is_signed_by_own(&key, &made, b"other"));
        // No host has one.
        assert!(!is_signed(&key, &made, b"data"));
        let mut without_touch = made.clone();
        *without_touch.iter_mut().rev().nth(4).unwrap() = 0;
        assert!(!is_signed_by_own(&key, &without_touch, b"data"));
    }

    /// A directory that is removed with the test.
    struct Place(std::path::PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn generated(place: &Place, arguments: &[&str]) -> Option<Vec<u8>> {
        let path = place.0.join("key");
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_file(path.with_extension("pub"));
        let mut command = Command::new("ssh-keygen");
        let made = command
            .arg("-q")
            .args(arguments)
            .arg("-f")
            .arg(&path)
            .status();
        made.is_ok_and(|status| status.success())
            .then(|| std::fs::read(&path).unwrap())
    }

    #[test]
    fn ssh_keygen_files_are_read() {
        let name = format!("atoll-ssh-key-{}", std::process::id());
        let place = Place(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&place.0).unwrap();
        let Some(plain) = generated(&place, &["-t", "ed25519", "-N", ""]) else {
            // The system's ssh is not here: end-to-end tests tell of it.
            return;
        };
        let key = OwnKey::read(&plain).unwrap();
        let signature = key.sign(b"data").unwrap();
        assert!(is_signed(key.public(), &signature, b"data"));
        assert!(!is_signed(key.public(), &signature, b"other data"));
        let listed = std::fs::read_to_string(place.0.join("key.pub")).unwrap();
        let listed = listed.split_whitespace().nth(1).unwrap().to_owned();
        assert_eq!(crate::ssh::encoded(key.public()), listed);
        for (arguments, error) in [
            (&["-t", "ed25519", "-N", "secret"][..], OwnKeyError::Locked),
            (&["-t", "ecdsa", "-N", ""], OwnKeyError::Kind),
        ] {
            let text = generated(&place, arguments).unwrap();
            assert_eq!(OwnKey::read(&text).unwrap_err(), error);
        }
        // Nothing of it cut off, and no byte of another key, is one.
        let text = std::str::from_utf8(&plain).unwrap();
        for cut in [0, 10, 60, text.len() - 45] {
            assert!(OwnKey::read(&plain[..cut]).is_err());
        }
        assert_eq!(
            OwnKey::read(listed.as_bytes()).unwrap_err(),
            OwnKeyError::Form
        );
    }

    #[test]
    fn ssh_host_keys_of_every_kind_are_verified() {
        use aws_lc_rs::rand::SystemRandom;
        use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
        use aws_lc_rs::signature::{
            ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
            ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512,
        };
        let random = SystemRandom::new();
        let integer = |bytes: &[u8]| -> Vec<u8> {
            let from = bytes.iter().position(|byte| *byte != 0).unwrap();
            match bytes[from] & 0x80 {
                0 => bytes[from..].to_vec(),
                _ => [&[0], &bytes[from..]].concat(),
            }
        };
        for (name, curve, signing) in [
            (
                "ecdsa-sha2-nistp256",
                "nistp256",
                &ECDSA_P256_SHA256_FIXED_SIGNING,
            ),
            (
                "ecdsa-sha2-nistp384",
                "nistp384",
                &ECDSA_P384_SHA384_FIXED_SIGNING,
            ),
            (
                "ecdsa-sha2-nistp521",
                "nistp521",
                &ECDSA_P521_SHA512_FIXED_SIGNING,
            ),
        ] {
            let pair = EcdsaKeyPair::generate(signing).unwrap();
            let key = Writer::new()
                .string(name.as_bytes())
                .string(curve.as_bytes())
                .string(pair.public_key().as_ref())
                .done();
            let made = pair.sign(&random, b"session").unwrap();
            let (r, s) = made.as_ref().split_at(made.as_ref().len() / 2);
            let both = Writer::new().string(&integer(r)).string(&integer(s)).done();
            let signature = Writer::new().string(name.as_bytes()).string(&both).done();
            assert!(is_signed(&key, &signature, b"session"), "{name}");
            assert!(!is_signed(&key, &signature, b"another"), "{name}");
        }
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let public = pair.public_key();
        let key = Writer::new()
            .string(b"ssh-rsa")
            .string(&integer(
                public.exponent().big_endian_without_leading_zero(),
            ))
            .string(&integer(public.modulus().big_endian_without_leading_zero()))
            .done();
        for (name, padding, is_good) in [
            ("rsa-sha2-256", &RSA_PKCS1_SHA256, true),
            ("rsa-sha2-512", &RSA_PKCS1_SHA512, true),
            // What is said to be made with SHA-1 is not looked at.
            ("ssh-rsa", &RSA_PKCS1_SHA256, false),
        ] {
            let mut made = vec![0; pair.public_modulus_len()];
            pair.sign(padding, &random, b"session", &mut made).unwrap();
            let signature = Writer::new().string(name.as_bytes()).string(&made).done();
            assert_eq!(is_signed(&key, &signature, b"session"), is_good, "{name}");
            assert!(!is_signed(&key, &signature, b"another"), "{name}");
        }
    }
}
