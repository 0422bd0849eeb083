//! Signed notes (C2SP signed-note) with checkpoints in them (C2SP tlog-checkpoint): the format of
//! other log verifiers.

use std::fmt;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::TreeHash;
use crate::hash::hex;

/// The largest signed checkpoint, with the signatures that witnesses add, bytes.
pub const CHECKPOINT_BYTES_MAX: usize = 64 << 10;

/// The signature type of Ed25519, as signed-note numbers it.
const ALGORITHM: u8 = 1;
const SEED_BYTES: usize = 32;
pub(crate) const PUBLIC_BYTES: usize = 32;
pub(crate) const ID_BYTES: usize = 4;
const NAME_BYTES_MAX: usize = 256;
const PRIVATE: &str = "PRIVATE+KEY+";
/// The prefix of a signature's line.
pub(crate) const SIGNATURE: &str = "\u{2014} ";

/// A key or a signed note is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteFault {
    /// The text is not a key in the form of signed notes.
    #[error("not a key: {0}")]
    NoKey(&'static str),
    /// The text is not a signed checkpoint.
    #[error("not a signed checkpoint: {0}")]
    NoCheckpoint(&'static str),
    /// The note has no signature by the key.
    #[error("it is not signed by {0}, but by another key")]
    OtherKey(String),
    /// The signature is not one of this text.
    #[error("its signature by {0} does not hold: the text or the signature was altered")]
    BadSignature(String),
    /// The checkpoint is of another ledger.
    #[error("it is of another ledger: {0}")]
    OtherOrigin(String),
}

/// The verifier key of a ledger's checkpoints: `name+id+key`, as in C2SP's signed notes. Not a
/// secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    public: [u8; PUBLIC_BYTES],
}

impl VerifierKey {
    /// Parses the form that `Display` writes.
    ///
    /// # Errors
    /// [`NoteFault::NoKey`].
    pub fn parse(text: &str) -> Result<Self, NoteFault> {
        let (name, public) = parse_key(text, ALGORITHM)?;
        Ok(Self { name, public })
    }

    /// Returns its name, which is the origin of its ledger.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether this key has made a text's signature, in base64.
    pub(crate) fn has_signed(&self, text: &str, signature: &str) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, self.public);
        let signature = STANDARD.decode(signature);
        signature.is_ok_and(|signature| key.verify(text.as_bytes(), &signature).is_ok())
    }

    /// Returns the key's id, which tells it from others of its name: eight hexadecimal digits.
    #[must_use]
    pub fn short_id(&self) -> String {
        hex(&self.id())
    }

    fn id(&self) -> [u8; ID_BYTES] {
        key_id(&self.name, ALGORITHM, &self.public)
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&typed_key(&self.name, ALGORITHM, &self.public))
    }
}

/// Parses the name and public key of a verifier key of this type.
pub(crate) fn parse_key(
    text: &str,
    algorithm: u8,
) -> Result<(String, [u8; PUBLIC_BYTES]), NoteFault> {
    let mut parts = text.splitn(3, '+');
    let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(NoteFault::NoKey("it has not the form name+id+key"));
    };
    let key = STANDARD
        .decode(key)
        .map_err(|_| NoteFault::NoKey("its last part is not base64"))?;
    let public = match key.split_first() {
        Some((of, public)) if *of == algorithm => <[u8; PUBLIC_BYTES]>::try_from(public).ok(),
        Some(_) | None => None,
    };
    let public = public.ok_or(NoteFault::NoKey(match algorithm {
        ALGORITHM => "it is not one of Ed25519",
        _ => "it is not one of Ed25519 for cosignatures (type 4)",
    }))?;
    let name = checked_name(name)?;
    match hex(&key_id(&name, algorithm, &public)) == id {
        true => Ok((name, public)),
        false => Err(NoteFault::NoKey("its id is not that of its name and key")),
    }
}

/// Formats a verifier key of this type.
pub(crate) fn typed_key(name: &str, algorithm: u8, public: &[u8]) -> String {
    let id = hex(&key_id(name, algorithm, public));
    let key = STANDARD.encode([&[algorithm], public].concat());
    format!("{name}+{id}+{key}")
}

/// Returns the key id: the beginning of the digest by which a signature names its key.
pub(crate) fn key_id(name: &str, algorithm: u8, public: &[u8]) -> [u8; ID_BYTES] {
    let digest = Sha256::new()
        .chain_update(name.as_bytes())
        .chain_update([b'\n', algorithm])
        .chain_update(public)
        .finalize();
    let mut id = [0; ID_BYTES];
    for (to, from) in id.iter_mut().zip(digest) {
        *to = from;
    }
    id
}

fn checked_name(name: &str) -> Result<String, NoteFault> {
    let unusable = |one: char| one == '+' || one.is_whitespace() || one.is_control();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(unusable) {
        return Err(NoteFault::NoKey("its name cannot be one"));
    }
    Ok(name.to_owned())
}

/// The key that signs a ledger's checkpoints.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    verifier: VerifierKey,
}

impl SigningKey {
    /// Makes the key of this seed. The name is that of the ledger.
    pub fn of(name: &str, seed: &[u8]) -> Result<Self, NoteFault> {
        let unusable = |_| NoteFault::NoKey("no key can be made of its seed");
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(unusable)?;
        let public = <[u8; PUBLIC_BYTES]>::try_from(pair.public_key().as_ref())
            .map_err(|_| NoteFault::NoKey("no key can be made of its seed"))?;
        let name = checked_name(name)?;
        Ok(Self {
            pair,
            verifier: VerifierKey { name, public },
        })
    }

    /// Parses the line that [`SigningKey::kept`] makes.
    pub fn parse(line: &str) -> Result<Self, NoteFault> {
        let rest = line.strip_suffix('\n').unwrap_or(line);
        let rest = rest
            .strip_prefix(PRIVATE)
            .ok_or(NoteFault::NoKey("it does not begin with PRIVATE+KEY+"))?;
        let mut parts = rest.splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NoteFault::NoKey("it has not the form name+id+key"));
        };
        // With room for all of it: what a vector leaves behind when it grows is not wiped.
        let mut bytes = Zeroizing::new(vec![0; key.len()]);
        let count = STANDARD
            .decode_slice(key, &mut bytes)
            .map_err(|_| NoteFault::NoKey("its last part is not base64"))?;
        let read = match bytes.get(..count).and_then(|bytes| bytes.split_first()) {
            Some((&ALGORITHM, seed)) if seed.len() == SEED_BYTES => Self::of(name, seed)?,
            Some(_) | None => return Err(NoteFault::NoKey("it is not one of Ed25519")),
        };
        if hex(&read.verifier.id()) != id {
            return Err(NoteFault::NoKey("its id is not that of its name and key"));
        }
        Ok(read)
    }

    /// Returns the line that a key of this name and seed is kept as.
    pub fn kept(&self, seed: &[u8]) -> Zeroizing<String> {
        let mut key = Zeroizing::new(vec![ALGORITHM]);
        key.reserve_exact(seed.len());
        key.extend_from_slice(seed);
        let encoded = Zeroizing::new(STANDARD.encode(&*key));
        let (name, id) = (&self.verifier.name, hex(&self.verifier.id()));
        Zeroizing::new(format!("{PRIVATE}{name}+{id}+{}\n", *encoded))
    }

    /// Returns the key that verifies its signatures.
    pub fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    /// Signs a text, and returns the signature in base64.
    pub(crate) fn sign_text(&self, text: &str) -> String {
        STANDARD.encode(self.pair.sign(text.as_bytes()))
    }

    /// Signs a statement of this media type, in an envelope of DSSE 1.0.2.
    pub(crate) fn envelope(&self, kind: &str, statement: &str) -> String {
        let (of_kind, of_statement) = (kind.len(), statement.len());
        // The encoding of protocol.md, "PAE": both lengths in bytes.
        let signed = format!("DSSEv1 {of_kind} {kind} {of_statement} {statement}");
        let signature =
            json!({ "keyid": self.verifier.short_id(), "sig": self.sign_text(&signed) });
        let payload = STANDARD.encode(statement);
        json!({ "payload": payload, "payloadType": kind, "signatures": [signature] }).to_string()
    }

    /// Signs a checkpoint of the ledger that the key is for.
    pub(crate) fn sign(&self, size: u64, root: TreeHash) -> Checkpoint {
        let origin = &self.verifier.name;
        let body = format!("{origin}\n{size}\n{}\n", STANDARD.encode(root.as_bytes()));
        let line = self.line(&body);
        Checkpoint {
            size,
            root,
            text: format!("{body}\n{line}"),
        }
    }

    /// Adds a signature to a checkpoint that another key of the same ledger has signed.
    pub(crate) fn sign_too(&self, checkpoint: Checkpoint) -> Checkpoint {
        let Some((body, _)) = checkpoint.text.rsplit_once("\n\n") else {
            return checkpoint;
        };
        let line = self.line(&format!("{body}\n"));
        let text = format!("{}{line}", checkpoint.text);
        Checkpoint { text, ..checkpoint }
    }

    /// Returns the line of its signature of a note, whose last line has its newline.
    pub fn line(&self, body: &str) -> String {
        let mut signature = self.verifier.id().to_vec();
        signature.extend_from_slice(self.pair.sign(body.as_bytes()).as_ref());
        let signature = STANDARD.encode(signature);
        format!("{SIGNATURE}{} {signature}\n", self.verifier.name)
    }
}

/// A ledger's size and root, as its key has signed them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    size: u64,
    root: TreeHash,
    text: String,
}

impl Checkpoint {
    /// Reads a signed checkpoint, and checks that this key has signed it and that it is of the
    /// ledger of that key. Signatures of other keys, as witnesses add them, are passed over.
    ///
    /// # Errors
    /// [`NoteFault`].
    pub fn open(text: &str, key: &VerifierKey) -> Result<Self, NoteFault> {
        let malformed = NoteFault::NoCheckpoint;
        let mut lines = signed_text(text, key)?.split('\n');
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next())
        else {
            return Err(malformed("it has not three lines"));
        };
        if origin != key.name {
            return Err(NoteFault::OtherOrigin(origin.to_owned()));
        }
        if lines.any(str::is_empty) {
            return Err(malformed("it has an empty line"));
        }
        Ok(Self {
            size: decimal(size).ok_or(malformed("its size is no number"))?,
            root: base64_hash(root).ok_or(malformed("its root is no hash"))?,
            text: text.to_owned(),
        })
    }

    /// Returns the number of events that it covers.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the root of the Merkle tree over them.
    #[must_use]
    pub fn root(&self) -> TreeHash {
        self.root
    }

    /// Returns the signed note.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Returns the text of a signed note, without its last newline, once this key's signature of it is
/// verified. Signatures of other keys are passed over.
pub fn signed_text<'a>(note: &'a str, key: &VerifierKey) -> Result<&'a str, NoteFault> {
    let malformed = NoteFault::NoCheckpoint;
    if note.len() > CHECKPOINT_BYTES_MAX {
        return Err(malformed("it is too long"));
    }
    if note.chars().any(|one| one.is_control() && one != '\n') {
        return Err(malformed("it has control characters"));
    }
    let (body, signatures) = note
        .rsplit_once("\n\n")
        .ok_or(malformed("it has no empty line before signatures"))?;
    let signatures = signatures
        .strip_suffix('\n')
        .ok_or(malformed("its last line has no end"))?;
    check_signature(&format!("{body}\n"), signatures, key)?;
    Ok(body)
}

/// Checks that one of the lines is this key's signature of the text.
fn check_signature(text: &str, lines: &str, key: &VerifierKey) -> Result<(), NoteFault> {
    let mut is_signed = false;
    for line in lines.split('\n') {
        let (name, signature) = line
            .strip_prefix(SIGNATURE)
            .and_then(|rest| rest.split_once(' '))
            .ok_or(NoteFault::NoCheckpoint("a line is no signature"))?;
        let bytes = STANDARD
            .decode(signature)
            .map_err(|_| NoteFault::NoCheckpoint("a signature is not base64"))?;
        let Some((id, signature)) = bytes.split_at_checked(ID_BYTES) else {
            return Err(NoteFault::NoCheckpoint("a signature is too short"));
        };
        if name != key.name || id != key.id() {
            continue;
        }
        UnparsedPublicKey::new(&ED25519, key.public)
            .verify(text.as_bytes(), signature)
            .map_err(|_| NoteFault::BadSignature(key.name.clone()))?;
        is_signed = true;
    }
    match is_signed {
        true => Ok(()),
        false => Err(NoteFault::OtherKey(key.to_string())),
    }
}

/// Parses a decimal number in its only form.
pub fn decimal(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Parses a hash in base64.
pub(crate) fn base64_hash(text: &str) -> Option<TreeHash> {
    let bytes = STANDARD.decode(text).ok()?;
    <[u8; 32]>::try_from(bytes).ok().map(TreeHash::of_bytes)
}
