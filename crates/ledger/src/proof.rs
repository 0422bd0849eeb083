//! Proofs about the ledger that can be checked without it: that an event is in it, and that an
//! earlier signed state of it is the beginning of a later one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::checkpoint::rotation::{self, HandOver, Trusted, followed};
use crate::checkpoint::{newest, read_key};
use crate::event::{READ_BYTES_MAX, ROTATED};
use crate::merkle::{Tree, is_consistent, root_by_inclusion};
use crate::note::{CHECKPOINT_BYTES_MAX, base64_hash, decimal};
use crate::read::{Events, Filter};
use crate::witness::WitnessFile;
use crate::{
    Checkpoint, Event, LedgerError, NoteFault, SigningError, StateDir, TreeHash, VerifierKey,
};

/// The largest proof as a text, bytes: an event in base64, hashes, a checkpoint.
pub const PROOF_BYTES_MAX: usize = READ_BYTES_MAX / 3 * 4 + (64 << 10) + CHECKPOINT_BYTES_MAX;
/// The most hashes of a proof: two for each height of a tree.
const HASHES_MAX: usize = 128;
const INCLUSION: &str = "c2sp.org/tlog-proof@v1";

/// A proof cannot be made, or does not hold.
#[derive(Debug, thiserror::Error)]
pub enum ProofFault {
    /// The ledger's checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] SigningError),
    /// The ledger could not be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// No checkpoint was made yet.
    #[error("the ledger has no checkpoint yet")]
    NoCheckpoint,
    /// The checkpoint covers fewer events.
    #[error("the newest checkpoint is of {size} events, and does not cover {wanted}")]
    NotCovered {
        /// The subject for which a proof was requested.
        wanted: String,
        /// The number of events that the checkpoint covers.
        size: u64,
    },
    /// The ledger does not match its signed checkpoint.
    #[error("the ledger is damaged: {0}")]
    Damaged(String),
    /// The text is not a proof.
    #[error("not a proof: {0}")]
    NoProof(&'static str),
    /// The proof's checkpoint is not signed by the key.
    #[error("its checkpoint: {0}")]
    Note(#[from] NoteFault),
    /// The proof does not hold.
    #[error("the proof does not hold: {0}")]
    Fails(&'static str),
    /// The earlier state is not known.
    #[error("no checkpoint of {0} events was given, so the proof proves nothing")]
    NotNoted(u64),
}

/// A proof that an event is in a ledger, under a signed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InclusionProof {
    /// The event's number.
    pub index: u64,
    /// The event's canonical form.
    pub event: Vec<u8>,
    /// The audit path: the hashes beside the path from the event to the root.
    pub path: Vec<TreeHash>,
    /// The checkpoint.
    pub checkpoint: Checkpoint,
}

/// A proof that an earlier state of a ledger is the beginning of a later one, under a signed
/// checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsistencyProof {
    /// The number of events in the earlier state.
    pub old_size: u64,
    /// The root of the earlier state; not in the proof's text, since whoever checks has to know it.
    pub old_root: TreeHash,
    /// The hashes of the proof.
    pub path: Vec<TreeHash>,
    /// The checkpoint.
    pub checkpoint: Checkpoint,
}

/// A proof that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proven {
    /// An event is in the ledger.
    Inclusion(InclusionProof),
    /// An earlier checkpoint is of the beginning of this ledger.
    Consistency(ConsistencyProof),
}

/// A maker of proofs: the tree up to its signed checkpoint.
#[derive(Debug)]
pub struct Prover {
    tree: Tree,
    checkpoint: Checkpoint,
}

impl Prover {
    /// Reads the ledger up to its newest checkpoint, whose root must match.
    ///
    /// # Errors
    /// [`ProofFault`].
    pub fn read(state: &StateDir) -> Result<Self, ProofFault> {
        Self::read_with(state, |_| Ok(()))
    }

    /// Does as [`Prover::read`], and passes on every event.
    pub(crate) fn read_with(
        state: &StateDir,
        mut each: impl FnMut(&Event) -> Result<(), LedgerError>,
    ) -> Result<Self, ProofFault> {
        let key = read_key(state)?.ok_or(ProofFault::NoCheckpoint)?;
        let checkpoint = newest(state, &key)?.ok_or(ProofFault::NoCheckpoint)?;
        let mut tree = Tree::default();
        for event in Events::from_start(state, Filter::default())? {
            if tree.size() == checkpoint.size() {
                break;
            }
            let event = event?;
            if event.position.seq != tree.size() {
                let what = format!("event {} is missing or out of its place", tree.size());
                return Err(ProofFault::Damaged(what));
            }
            tree.push(event.position.leaf);
            each(&event)?;
        }
        if tree.root_of(checkpoint.size()) != Some(checkpoint.root()) {
            let what = "it is not what its checkpoint was signed for".to_owned();
            return Err(ProofFault::Damaged(what));
        }
        Ok(Self { tree, checkpoint })
    }

    /// Returns the checkpoint that proofs lead to.
    #[must_use]
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Proves that this event is in the ledger.
    ///
    /// # Errors
    /// [`ProofFault::NotCovered`], or [`ProofFault::Damaged`] where the event is another.
    pub fn inclusion(&self, event: &Event) -> Result<InclusionProof, ProofFault> {
        let index = event.position.seq;
        let path = self.tree.inclusion(index, self.checkpoint.size());
        let path = path.ok_or_else(|| self.not_covered(format!("event {index}")))?;
        let bytes = event.canonical();
        let bytes = bytes.map_err(|error| ProofFault::Damaged(error.to_string()))?;
        let proof = InclusionProof {
            index,
            event: bytes,
            path,
            checkpoint: self.checkpoint.clone(),
        };
        match proof.holds() {
            true => Ok(proof),
            false => Err(ProofFault::Damaged(format!("event {index} is another"))),
        }
    }

    /// Proves that the first `old_size` events are the beginning of those under the checkpoint.
    ///
    /// # Errors
    /// [`ProofFault::NotCovered`].
    pub fn consistency(&self, old_size: u64) -> Result<ConsistencyProof, ProofFault> {
        let not_covered = || self.not_covered(format!("{old_size} events"));
        let path = self.tree.consistency(old_size, self.checkpoint.size());
        Ok(ConsistencyProof {
            old_size,
            old_root: self.tree.root_of(old_size).ok_or_else(not_covered)?,
            path: path.ok_or_else(not_covered)?,
            checkpoint: self.checkpoint.clone(),
        })
    }

    fn not_covered(&self, wanted: String) -> ProofFault {
        let size = self.checkpoint.size();
        ProofFault::NotCovered { wanted, size }
    }
}

impl InclusionProof {
    /// Returns the event's leaf hash.
    #[must_use]
    pub fn leaf(&self) -> TreeHash {
        TreeHash::of_leaf(&self.event)
    }

    fn holds(&self) -> bool {
        let (size, root) = (self.checkpoint.size(), self.checkpoint.root());
        root_by_inclusion(self.leaf(), self.index, size, &self.path) == Some(root)
    }

    /// Formats the proof as a text (C2SP tlog-proof); the event is its extra data.
    #[must_use]
    pub fn text(&self) -> String {
        let event = STANDARD.encode(&self.event);
        let begin = format!("{INCLUSION}\nextra {event}\nindex {}\n", self.index);
        with_hashes(begin, &self.path, &self.checkpoint)
    }
}

impl ConsistencyProof {
    /// Formats the proof as a text, as C2SP's witnesses take it (tlog-witness).
    #[must_use]
    pub fn text(&self) -> String {
        let begin = format!("old {}\n", self.old_size);
        with_hashes(begin, &self.path, &self.checkpoint)
    }
}

fn with_hashes(mut text: String, hashes: &[TreeHash], checkpoint: &Checkpoint) -> String {
    for hash in hashes {
        text.push_str(&STANDARD.encode(hash.as_bytes()));
        text.push('\n');
    }
    format!("{text}\n{}", checkpoint.text())
}

/// Checks a proof's text with the ledger's key alone. For one of consistency a checkpoint of
/// the earlier state is needed, as a witness has it; where the key was replaced since, proofs
/// of the events by which it was (`key.rotated`) lead from one key to the other.
///
/// # Errors
/// [`ProofFault`]: nothing is proven then.
pub fn check_proof(
    text: &str,
    key: &VerifierKey,
    noted: &[WitnessFile],
    hand_overs: &[String],
) -> Result<Proven, ProofFault> {
    let mut known = Vec::new();
    for one in hand_overs {
        known.push(hand_over(one)?);
    }
    known.sort_by_key(|one: &HandOver| one.seq);
    let keys = followed(key, &known);
    let (head, checkpoint) = parts(text)?;
    let checkpoint = open(checkpoint, key, &keys)?;
    let mut lines = head.split('\n');
    match lines.next() {
        Some(INCLUSION) => inclusion(lines, checkpoint).map(Proven::Inclusion),
        Some(first) => {
            let old_size = first
                .strip_prefix("old ")
                .and_then(decimal)
                .ok_or(ProofFault::NoProof("its first line is none of a proof's"))?;
            let old = noted_checkpoint(old_size, key, &keys, noted)?;
            let proof = ConsistencyProof {
                old_size,
                old_root: old.root(),
                path: hashes(lines)?,
                checkpoint,
            };
            let new = (proof.checkpoint.size(), proof.checkpoint.root());
            match is_consistent((old_size, old.root()), new, &proof.path) {
                true => Ok(Proven::Consistency(proof)),
                false => Err(ProofFault::Fails(
                    "the earlier checkpoint is of another ledger than the later one",
                )),
            }
        }
        None => Err(ProofFault::NoProof("it is empty")),
    }
}

/// Splits the text of a proof into what it proves and the checkpoint after that.
fn parts(text: &str) -> Result<(&str, &str), ProofFault> {
    if text.len() > PROOF_BYTES_MAX {
        return Err(ProofFault::NoProof("it is too long"));
    }
    text.split_once("\n\n")
        .ok_or(ProofFault::NoProof("it has no checkpoint"))
}

/// Opens a checkpoint that one of the keys has signed, and was trusted for. If none has, the error
/// is that of the first key.
fn open(text: &str, key: &VerifierKey, keys: &[Trusted]) -> Result<Checkpoint, ProofFault> {
    let by = |one: &Trusted| {
        let opened = Checkpoint::open(text, &one.key).ok()?;
        let counts = one.size_max.is_none_or(|most| opened.size() <= most);
        counts.then_some(opened)
    };
    if let Some(opened) = keys.iter().find_map(by) {
        return Ok(opened);
    }
    Checkpoint::open(text, key)?;
    Err(ProofFault::Fails(
        "its checkpoint is signed by a key that had handed over before",
    ))
}

/// Reads a key's hand-over from the proof that the event is in the ledger of both keys.
fn hand_over(text: &str) -> Result<HandOver, ProofFault> {
    const NONE: ProofFault = ProofFault::NoProof("it is none of a hand-over (key.rotated)");
    let (head, note) = parts(text)?;
    let lines = || head.split('\n').skip(1);
    let event = lines().next().and_then(|line| line.strip_prefix("extra "));
    let event = event.and_then(|event| STANDARD.decode(event).ok());
    let event: Value = event
        .and_then(|event| serde_json::from_slice(&event).ok())
        .ok_or(NONE)?;
    let seq = event.get("seq").and_then(Value::as_u64).ok_or(NONE)?;
    let body = event.get("body").ok_or(NONE)?;
    let is_one = head.starts_with(INCLUSION) && event.get("type") == Some(&ROTATED.into());
    let found = rotation::read(seq, body).filter(|_| is_one).ok_or(NONE)?;
    let both = followed(&found.old, std::slice::from_ref(&found));
    let proof = inclusion(lines(), open(note, &found.old, &both)?)?;
    match proof.index == seq {
        true => Ok(found),
        false => Err(NONE),
    }
}

fn inclusion<'a>(
    mut lines: impl Iterator<Item = &'a str>,
    checkpoint: Checkpoint,
) -> Result<InclusionProof, ProofFault> {
    let event = lines
        .next()
        .and_then(|line| line.strip_prefix("extra "))
        .ok_or(ProofFault::NoProof("it has no event (extra)"))?;
    let event = STANDARD
        .decode(event)
        .map_err(|_| ProofFault::NoProof("its event is not base64"))?;
    let index = lines
        .next()
        .and_then(|line| line.strip_prefix("index "))
        .and_then(decimal)
        .ok_or(ProofFault::NoProof("it has no index"))?;
    let proof = InclusionProof {
        index,
        event,
        path: hashes(lines)?,
        checkpoint,
    };
    match proof.holds() {
        true => Ok(proof),
        false => Err(ProofFault::Fails(
            "the event is not that one of the checkpoint's",
        )),
    }
}

fn hashes<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Vec<TreeHash>, ProofFault> {
    let hashes: Option<Vec<TreeHash>> = lines.take(HASHES_MAX + 1).map(base64_hash).collect();
    match hashes {
        Some(hashes) if hashes.len() <= HASHES_MAX => Ok(hashes),
        Some(_) => Err(ProofFault::NoProof("it has too many hashes")),
        None => Err(ProofFault::NoProof("a line is no hash")),
    }
}

/// Returns the noted checkpoint of that size, by this key. Several differ only if the ledger was
/// forked: then none can be relied on.
fn noted_checkpoint(
    size: u64,
    key: &VerifierKey,
    keys: &[Trusted],
    noted: &[WitnessFile],
) -> Result<Checkpoint, ProofFault> {
    let notes = noted.iter().flat_map(WitnessFile::notes);
    let of_size = notes
        .filter_map(|(_, note)| open(std::str::from_utf8(&note).ok()?, key, keys).ok())
        .filter(|checkpoint| checkpoint.size() == size);
    let mut found: Option<Checkpoint> = None;
    for checkpoint in of_size {
        if found
            .as_ref()
            .is_some_and(|found| found.root() != checkpoint.root())
        {
            return Err(ProofFault::Fails(
                "two checkpoints of the same size and different roots were signed",
            ));
        }
        found = Some(checkpoint);
    }
    found.ok_or(ProofFault::NotNoted(size))
}
