//! Sealing of an event's sensitive members: those whose content comes from a program or a person,
//! and is not Atoll's own decision. They are encrypted in one member, `sealed`, so that the event's
//! hash covers them for ever, and nobody can read them once the key of their run is destroyed.

use std::fmt;

use atoll_model::RunId;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{Context, Digest, SHA256, SHA256_OUTPUT_LEN};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::Event;
use crate::canonical::SEALED;
use crate::hash::hex;
use crate::random;

/// The replacement of members whose key was destroyed.
const SHREDDED: &str = "(shredded)";
/// The replacement of members whose key is not here, or does not open them.
const CLOSED: &str = "(sealed)";

/// The prefix of the associated data that all sealed content is bound to, with its event: moved
/// into another event, it does not open.
const MARK: &[u8] = b"atoll-sealed-1\0";
/// The length of a key, bytes.
pub(crate) const KEY_BYTES: usize = 32;
/// The length of a salt, bytes: it keeps a text from being guessed by its digest.
const SALT_BYTES: usize = 16;

/// The key of a run.
pub(crate) struct SealKey(Zeroizing<[u8; KEY_BYTES]>);

/// Leaves out the key: it is not for logs.
impl fmt::Debug for SealKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SealKey").finish_non_exhaustive()
    }
}

/// The sensitive members cannot be sealed: the kernel has no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what is sensitive in it cannot be sealed: there are no random bytes")]
pub struct SealFault;

/// The one event that content is sealed for.
pub(crate) struct SealPlace<'a> {
    pub(crate) run: &'a RunId,
    pub(crate) kind: &'a str,
    pub(crate) seq: u64,
}

impl SealPlace<'_> {
    fn name(&self) -> Vec<u8> {
        let Self { run, kind, seq } = self;
        [MARK, format!("{run}\0{kind}\0{seq}").as_bytes()].concat()
    }
}

/// The members of an event, as unsealed.
pub(crate) struct Opened {
    /// The digest of the sealed text, hexadecimal digits.
    digest: String,
    salt: String,
    pub(crate) members: Map<String, Value>,
}

/// The key that is known for the sealed members of a run, if any.
#[derive(Clone, Copy)]
pub(crate) enum Opening<'a> {
    /// The run's key is here.
    Key(&'a SealKey),
    /// Its key was destroyed.
    Shredded,
    /// Its key is not here.
    Unknown,
}

/// Returns the members of a type's body that are sealed, in the order of their names.
pub(crate) fn sealed_members(kind: &str) -> &'static [&'static str] {
    match kind {
        "run.opened" => &["command", "directory", "options", "workspace"],
        "exec.opened" => &["command", "directory"],
        "tool.opened" => &["arguments"],
        "tool.closed" => &["details"],
        "tool.rejected" => &["why"],
        "run.failed" | "apply.failed" => &["why"],
        "denials.seen" => &["denied"],
        "apply.started" | "undo.started" => &["directory"],
        "flow.opened" | "approval.asked" => &["path"],
        "flow.refused" => &["path", "why"],
        _ => &[],
    }
}

/// Returns those sealed members that every event of the type has.
fn always(kind: &str) -> &'static [&'static str] {
    match kind {
        "run.opened" => &["command", "directory", "workspace"],
        "flow.opened" | "approval.asked" => &[],
        "flow.refused" => &["why"],
        other => sealed_members(other),
    }
}

impl SealKey {
    /// Makes a new key; `None` if the kernel has no random bytes.
    pub(crate) fn generate() -> Option<Self> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        random::fill(key.as_mut()).ok()?;
        Some(Self(key))
    }

    pub(crate) fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(crate) fn expose(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    fn cipher(&self) -> Option<LessSafeKey> {
        let key = UnboundKey::new(&AES_256_GCM, self.0.as_ref()).ok()?;
        Some(LessSafeKey::new(key))
    }

    /// Seals a text for this event, in base64: its salted digest, which stays when the key is
    /// destroyed, a random nonce, and the encrypted salt and text. Random nonces are safe up to
    /// some 2^32 events of one run.
    pub(crate) fn seal(&self, place: &SealPlace<'_>, text: &[u8]) -> Result<String, SealFault> {
        let mut random = [0; NONCE_LEN + SALT_BYTES];
        random::fill(&mut random).map_err(|_| SealFault)?;
        let (number, salt) = random.split_at(NONCE_LEN);
        let digest = digest(salt, text);
        let mut hidden = Vec::with_capacity(SALT_BYTES + text.len() + AES_256_GCM.tag_len());
        hidden.extend_from_slice(salt);
        hidden.extend_from_slice(text);
        let nonce = Nonce::try_assume_unique_for_key(number).map_err(|_| SealFault)?;
        let cipher = self.cipher().ok_or(SealFault)?;
        cipher
            .seal_in_place_append_tag(nonce, Aad::from(place.name()), &mut hidden)
            .map_err(|_| SealFault)?;
        Ok(STANDARD.encode([digest.as_ref(), number, &hidden].concat()))
    }

    /// Unseals the members, if this key has sealed them for this event, and their digest holds.
    pub(crate) fn open(&self, place: &SealPlace<'_>, sealed: &str) -> Option<Opened> {
        let mut bytes = STANDARD.decode(sealed).ok()?;
        let (told, rest) = bytes.split_at_mut_checked(SHA256_OUTPUT_LEN)?;
        let (number, rest) = rest.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(number).ok()?;
        let named = Aad::from(place.name());
        let hidden = self.cipher()?.open_in_place(nonce, named, rest).ok()?;
        let (salt, text) = hidden.split_at_checked(SALT_BYTES)?;
        let digest = digest(salt, text);
        // The cipher alone would open another text with another key.
        (digest.as_ref() == told).then_some(())?;
        Some(Opened {
            digest: hex(told),
            salt: hex(salt),
            members: serde_json::from_slice(text).ok()?,
        })
    }
}

/// Returns why a member of an event, as [`crate::Seals::open`] gives it, cannot be read; `None` if
/// it can.
#[must_use]
pub fn unread(value: &Value) -> Option<&'static str> {
    let word = match value {
        Value::Array(list) => match list.as_slice() {
            [only] => only.as_str()?,
            _ => return None,
        },
        other => other.as_str()?,
    };
    match word {
        SHREDDED => Some("what it was asked for was shredded"),
        CLOSED => Some("what it was asked for is sealed, and its key is not here"),
        _ => None,
    }
}

/// Returns the length in base64 of a sealed text of this many bytes.
pub(crate) fn sealed_length(text_bytes: usize) -> usize {
    let around = SHA256_OUTPUT_LEN + NONCE_LEN + SALT_BYTES + AES_256_GCM.tag_len();
    (around + text_bytes).div_ceil(3) * 4
}

fn digest(salt: &[u8], text: &[u8]) -> Digest {
    let mut context = Context::new(&SHA256);
    context.update(salt);
    context.update(text);
    context.finish()
}

/// Puts the unsealed members in the place of `sealed`, or a word for why they cannot be read. With
/// a proof, `sealed` stays as an object of the digest, the salt and the names.
pub(crate) fn unseal(event: &mut Event, opening: Opening<'_>, with_proof: bool) {
    let Some(run) = &event.run else {
        return;
    };
    let place = SealPlace {
        run,
        kind: &event.kind,
        seq: event.position.seq,
    };
    let Some(members) = event.body.as_object_mut() else {
        return;
    };
    // Bodies of earlier releases, and of types without anything to seal, have none.
    let Some(Value::String(sealed)) = members.get(SEALED) else {
        return;
    };
    let opened = match opening {
        Opening::Key(key) => key.open(&place, sealed).ok_or(CLOSED),
        Opening::Shredded => Err(SHREDDED),
        Opening::Unknown => Err(CLOSED),
    };
    match opened {
        Ok(opened) => {
            members.remove(SEALED);
            if with_proof {
                let names: Vec<&String> = opened.members.keys().collect();
                let proof =
                    json!({ "digest": opened.digest, "members": names, "salt": opened.salt });
                members.insert(SEALED.to_owned(), proof);
            }
            for (name, value) in opened.members {
                members.entry(name).or_insert(value);
            }
        }
        // As it is in the ledger: its digest is there.
        Err(_) if with_proof => {}
        Err(word) => {
            members.remove(SEALED);
            stand_in(members, &event.kind, word);
        }
    }
    // In the order in which events have them.
    members.sort_keys();
}

/// Puts a word in the place of members that cannot be read.
fn stand_in(members: &mut Map<String, Value>, kind: &str, word: &str) {
    for name in always(kind) {
        let is_list = matches!(*name, "command" | "denied");
        let value = if is_list { json!([word]) } else { json!(word) };
        members.entry(*name).or_insert(value);
    }
    if members.contains_key("method") {
        members.entry("path").or_insert(json!(word));
    }
}
