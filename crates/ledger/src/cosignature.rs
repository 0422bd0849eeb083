//! Cosignatures of witnesses: the statement that a witness has seen a checkpoint, at what time, and
//! that the ledger had only grown until then (C2SP tlog-cosignature, Ed25519).

use std::fmt;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::note::{ID_BYTES, PUBLIC_BYTES, SIGNATURE, VerifierKey, key_id, parse_key, typed_key};
use crate::private::PrivateDirectory;
use crate::state::LEDGER_KEY;
use crate::{CHECKPOINT_BYTES_MAX, Checkpoint, NoteFault, PrivateFault, StateDir};

/// The signature type of Ed25519 with a timestamp, as signed-note numbers it.
const ALGORITHM: u8 = 4;
const TIME_BYTES: usize = 8;
/// The file of the newest cosigned checkpoint, beside the key.
const KEPT: &str = "cosigned";

/// The verifier key of a witness's cosignatures: `name+id+key`, of the type 0x04.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessKey {
    name: String,
    public: [u8; PUBLIC_BYTES],
}

/// A checkpoint that a witness has signed too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cosigned {
    /// The signed note, with the witness's line after the ledger's own.
    pub note: String,
    /// The time at which the witness states to have seen it, seconds since 1970.
    pub time_s: u64,
}

impl WitnessKey {
    /// Parses a key in the form in which a witness publishes it.
    ///
    /// # Errors
    /// [`NoteFault::NoKey`], also for one of another type.
    pub fn parse(text: &str) -> Result<Self, NoteFault> {
        let (name, public) = parse_key(text, ALGORITHM)?;
        Ok(Self { name, public })
    }

    /// Returns the name of the witness.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for WitnessKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&typed_key(&self.name, ALGORITHM, &self.public))
    }
}

impl Cosigned {
    /// Makes the checkpoint with this witness's signature, from the lines of its answer. Signatures
    /// of other keys are passed over.
    ///
    /// # Errors
    /// [`NoteFault`] where none of them is its, or one that is does not hold.
    pub fn of(checkpoint: &Checkpoint, lines: &str, key: &WitnessKey) -> Result<Self, NoteFault> {
        let malformed = NoteFault::NoCheckpoint;
        let (body, _) = checkpoint
            .text()
            .rsplit_once("\n\n")
            .ok_or(malformed("it has no empty line before signatures"))?;
        let id = key_id(&key.name, ALGORITHM, &key.public);
        for line in lines.lines() {
            let (name, signature) = line
                .strip_prefix(SIGNATURE)
                .and_then(|rest| rest.split_once(' '))
                .ok_or(malformed("a line of the answer is no signature"))?;
            let bytes = STANDARD
                .decode(signature)
                .map_err(|_| malformed("a signature is not base64"))?;
            let Some((own, timed)) = bytes.split_at_checked(ID_BYTES) else {
                return Err(malformed("a signature is too short"));
            };
            if name != key.name || own != id {
                continue;
            }
            let bad = || NoteFault::BadSignature(key.name.clone());
            let (time, signature) = timed.split_at_checked(TIME_BYTES).ok_or_else(bad)?;
            let time_s = u64::from_be_bytes(time.try_into().map_err(|_| bad())?);
            let signed = format!("cosignature/v1\ntime {time_s}\n{body}\n");
            UnparsedPublicKey::new(&ED25519, key.public)
                .verify(signed.as_bytes(), signature)
                .map_err(|_| bad())?;
            return Ok(Self {
                note: format!("{}{line}\n", checkpoint.text()),
                time_s,
            });
        }
        Err(NoteFault::OtherKey(key.to_string()))
    }

    /// Saves it as the newest one.
    ///
    /// # Errors
    /// [`PrivateFault`].
    pub fn keep(&self, state: &StateDir) -> Result<(), PrivateFault> {
        let Some(directory) = PrivateDirectory::of_state(state, LEDGER_KEY, true)? else {
            return Ok(());
        };
        let _lock = directory.lock()?;
        directory.replace(KEPT, self.note.as_bytes())
    }

    /// Returns the size of the newest kept checkpoint, in events, if this ledger's key has signed
    /// it: the witness's own state, unless others have asked it too.
    #[must_use]
    pub fn kept_size(state: &StateDir, key: &VerifierKey) -> Option<u64> {
        let directory = PrivateDirectory::of_state(state, LEDGER_KEY, false).ok()??;
        let note = directory.read(KEPT, CHECKPOINT_BYTES_MAX as u64).ok()??;
        let note = String::from_utf8(note).ok()?;
        Some(Checkpoint::open(&note, key).ok()?.size())
    }
}
