//! Rotation of the ledger's key. The old key hands over in the ledger itself, so that whoever has
//! either key can follow; one checkpoint is signed by both.
//!
//! The new key is on disk before the ledger names it, and in the old one's place only after: if the
//! process ends in between, the next checkpoint finishes the rotation or takes it back.

use serde_json::{Value, json};

use crate::checkpoint::{
    CHECKPOINT, Signers, found_key, keep_new_key, key_directory, make_with, new_key, open_note,
    own_key, read_note,
};
use crate::event::{Draft, LOST, ROTATED};
use crate::journal::Journal;
use crate::note::SigningKey;
use crate::private::PrivateDirectory;
use crate::read::{Events, Filter};
use crate::{FileFault, LedgerError, SigningError, StateDir, VerifierKey, disk};

/// The file of the next key, beside the current one.
const NEXT: &str = "key.next";
/// The file of the current key.
const KEY: &str = "key";

/// A key, as far as it is trusted: for checkpoints of at most so many events, if it has handed over
/// since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trusted {
    pub(crate) key: VerifierKey,
    pub(crate) size_max: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct HandOver {
    /// The number of its event.
    pub(crate) seq: u64,
    pub(crate) old: VerifierKey,
    pub(crate) new: VerifierKey,
}

/// Replaces the current key by a new one.
pub(crate) fn rotate(state: &StateDir, journal: &Journal) -> Result<VerifierKey, SigningError> {
    let keys = key_directory(state)?;
    let _lock = keys.lock()?;
    let old = settled_key(state, journal, &keys)?;
    // What is damaged is not handed on.
    make_with(state, journal, Signers::one(&old))?;
    let (next, kept) = new_key(&keys, old.verifier().name())?;
    keep_new_key(&keys, NEXT, &kept)?;
    let said = statement(old.verifier(), next.verifier());
    let body = json!({
        "by-new": next.sign_text(&said),
        "by-old": old.sign_text(&said),
        "new": next.verifier().to_string(),
        "old": old.verifier().to_string(),
    });
    journal.append_durable(&Draft::new(ROTATED, None, &body)?)?;
    finish(state, journal, &keys, &old, &next)?;
    Ok(next.verifier().clone())
}

/// Begins to sign with a new key after the old one was lost. The last checkpoint is recorded in the
/// ledger: nothing else keeps it from then on.
pub(crate) fn replace_lost(
    state: &StateDir,
    journal: &Journal,
) -> Result<VerifierKey, SigningError> {
    let keys = key_directory(state)?;
    let _lock = keys.lock()?;
    let key = settled_key(state, journal, &keys)?;
    let Some(note) = read_note(journal.directory(), journal.path())? else {
        return Err(SigningError::NotLost);
    };
    if open_note(&note, key.verifier()).is_ok() {
        return Err(SigningError::NotLost);
    }
    let body = json!({
        "checkpoint": String::from_utf8_lossy(&note),
        "key": key.verifier().to_string(),
    });
    journal.append_durable(&Draft::new(LOST, None, &body)?)?;
    let path = journal.path().join(CHECKPOINT);
    disk::remove(journal.directory(), CHECKPOINT).map_err(FileFault::on("remove", path))?;
    make_with(state, journal, Signers::one(&key))?;
    Ok(key.verifier().clone())
}

/// Returns the key that signs, once a rotation that an earlier process began is finished or taken
/// back. The caller holds the directory's lock.
pub(crate) fn settled_key(
    state: &StateDir,
    journal: &Journal,
    keys: &PrivateDirectory,
) -> Result<SigningKey, SigningError> {
    let old = own_key(state, keys)?;
    let Some(next) = found_key(keys, NEXT)? else {
        return Ok(old);
    };
    if old.verifier() == next.verifier() {
        keys.remove(NEXT)?;
        return Ok(old);
    }
    let is_named = |one: &HandOver| one.old == *old.verifier() && one.new == *next.verifier();
    if hand_overs(state)?.iter().any(is_named) {
        finish(state, journal, keys, &old, &next)?;
        return Ok(next);
    }
    keys.remove(NEXT)?;
    Ok(old)
}

/// Signs with both keys, and puts the new one in the old one's place.
fn finish(
    state: &StateDir,
    journal: &Journal,
    keys: &PrivateDirectory,
    old: &SigningKey,
    next: &SigningKey,
) -> Result<(), SigningError> {
    make_with(state, journal, Signers::both(old, next))?;
    Ok(keys.rename(NEXT, KEY)?)
}

/// Returns the statement that both keys sign.
fn statement(old: &VerifierKey, new: &VerifierKey) -> String {
    format!("atoll-ledger key 1\n{}\n{old}\n{new}\n", old.name())
}

fn hand_overs(state: &StateDir) -> Result<Vec<HandOver>, LedgerError> {
    let filter = Filter {
        kind: Some(ROTATED.to_owned()),
        ..Filter::default()
    };
    let mut found = Vec::new();
    for event in Events::from_start(state, filter)? {
        match event {
            Ok(event) => found.extend(read(event.position.seq, &event.body)),
            // For `verify` to tell.
            Err(LedgerError::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Reads a hand-over that both keys have signed.
pub(crate) fn read(seq: u64, body: &Value) -> Option<HandOver> {
    let text = |member: &str| body.get(member).and_then(Value::as_str);
    let old = VerifierKey::parse(text("old")?).ok()?;
    let new = VerifierKey::parse(text("new")?).ok()?;
    let said = statement(&old, &new);
    let is_signed = old.name() == new.name()
        && old.has_signed(&said, text("by-old")?)
        && new.has_signed(&said, text("by-new")?);
    is_signed.then_some(HandOver { seq, old, new })
}

/// Returns the keys that are trusted if this one is, by the ledger.
pub(crate) fn trusted(state: &StateDir, key: &VerifierKey) -> Result<Vec<Trusted>, LedgerError> {
    Ok(followed(key, &hand_overs(state)?))
}

/// Returns the keys that are trusted if this one is: those that it handed over to, and those before
/// it. The hand-overs are in the ledger's order.
pub(crate) fn followed(key: &VerifierKey, all: &[HandOver]) -> Vec<Trusted> {
    let mut trusted = Vec::new();
    let mut current = key;
    for one in all.iter().filter(|one| one.old != one.new) {
        if one.old == *current {
            trusted.push(Trusted {
                key: current.clone(),
                size_max: Some(one.seq + 1),
            });
            current = &one.new;
        }
    }
    trusted.push(Trusted {
        key: current.clone(),
        size_max: None,
    });
    let mut current = key;
    for one in all.iter().rev() {
        if one.new == *current {
            trusted.push(Trusted {
                key: one.old.clone(),
                size_max: Some(one.seq + 1),
            });
            current = &one.old;
        }
    }
    trusted
}
