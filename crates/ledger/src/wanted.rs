use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::checkpoint::rotation::{Trusted, trusted};
use crate::checkpoint::{CHECKPOINT, open_note, read_key, read_note};
use crate::verify_report::{Damage, Place, Severity};
use crate::witness::WitnessFile;
use crate::{LedgerError, NoteFault, SigningError, StateDir, TreeHash, VerifierKey};

/// Knowledge of a ledger from elsewhere, to verify it against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Against {
    /// The key of its checkpoints; that of the state directory if none is given.
    pub key: Option<VerifierKey>,
    /// The checkpoints that witnesses were given.
    pub witnesses: Vec<WitnessFile>,
}

/// The roots that a ledger must have had, by its size then.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    by_size: BTreeMap<u64, Vec<Signed>>,
    /// The number of events that the ledger's own checkpoint covers.
    pub(crate) own: Option<u64>,
    /// The number of witnesses' checkpoints.
    pub(crate) witnessed: u64,
    /// The damage of the checkpoints themselves.
    pub(crate) damage: Vec<Damage>,
}

#[derive(Debug)]
struct Signed {
    place: Place,
    root: TreeHash,
}

impl Wanted {
    /// Reads the ledger's own checkpoint and those of witnesses, and verifies their signatures.
    pub(crate) fn read(
        state: &StateDir,
        directory: Option<&OwnedFd>,
        path: &Path,
        against: &Against,
    ) -> Result<Self, LedgerError> {
        let own = match directory {
            Some(directory) => read_note(directory, path)?,
            None => None,
        };
        let mut wanted = Self::default();
        if own.is_none() && against.witnesses.is_empty() {
            return Ok(wanted);
        }
        let place = || Place::file(CHECKPOINT.to_owned());
        let key = match &against.key {
            Some(key) => key.clone(),
            None => match read_key(state) {
                Ok(Some(key)) => key,
                Ok(None) => {
                    let what = "there is no key to check signatures with (--key)".to_owned();
                    wanted.found(place(), what, Severity::Unprovable);
                    return Ok(wanted);
                }
                Err(SigningError::Ledger(error)) => return Err(error),
                Err(error) => {
                    wanted.found(place(), error.to_string(), Severity::Unprovable);
                    return Ok(wanted);
                }
            },
        };
        let keys = trusted(state, &key)?;
        if let Some(note) = own {
            wanted.own = wanted.add(place(), &note, &key, &keys);
        }
        for witness in &against.witnesses {
            for (line, note) in witness.notes() {
                let mut place = Place::file(witness.name.clone());
                place.line = Some(line);
                wanted.witnessed += 1;
                wanted.add(place, &note, &key, &keys);
            }
        }
        Ok(wanted)
    }

    /// Adds a checkpoint; returns its size if it can be relied on.
    fn add(
        &mut self,
        place: Place,
        note: &[u8],
        key: &VerifierKey,
        keys: &[Trusted],
    ) -> Option<u64> {
        let by_any = keys.iter().find_map(|one| {
            let opened = open_note(note, &one.key).ok()?;
            one.size_max
                .is_none_or(|most| opened.size() <= most)
                .then_some(opened)
        });
        let opened = match (by_any, open_note(note, key)) {
            (Some(opened), _) => Ok(opened),
            (None, Ok(_)) => {
                let what = "it is signed by a key that had handed over before".to_owned();
                self.found(place, what, Severity::Altered);
                return None;
            }
            (None, Err(why)) => Err(why),
        };
        match opened {
            Ok(checkpoint) => {
                let (size, root) = (checkpoint.size(), checkpoint.root());
                self.by_size
                    .entry(size)
                    .or_default()
                    .push(Signed { place, root });
                Some(size)
            }
            Err(why) => {
                let (what, severity) = match why {
                    NoteFault::OtherKey(_) => (why.to_string(), Severity::Foreign),
                    NoteFault::OtherOrigin(_) | NoteFault::NoKey(_) => (
                        format!("no checkpoint of this ledger: {why}"),
                        Severity::Altered,
                    ),
                    NoteFault::NoCheckpoint(_) | NoteFault::BadSignature(_) => {
                        (why.to_string(), Severity::Altered)
                    }
                };
                self.found(place, what, severity);
                None
            }
        }
    }

    fn found(&mut self, place: Place, what: String, severity: Severity) {
        self.damage.push(Damage {
            place,
            what,
            severity,
        });
    }

    /// Returns whether a signed root is known for this many events.
    pub(crate) fn names(&self, size: u64) -> bool {
        self.by_size.contains_key(&size)
    }

    /// Returns the signed roots that differ from this root of this many events, as damage.
    pub(crate) fn compare(&mut self, size: u64, root: TreeHash) -> Vec<Damage> {
        let signed = self.by_size.remove(&size).unwrap_or_default();
        let differs = signed.into_iter().filter(|signed| signed.root != root);
        let damage = differs.map(|signed| Damage {
            place: signed.place,
            what: format!(
                "the ledger's first {size} events are others than those that were signed: \
                 it was rewritten, or is a fork"
            ),
            severity: Severity::Altered,
        });
        damage.collect()
    }

    /// Returns the signed roots that cover more events than there are, as damage.
    pub(crate) fn beyond(&mut self, events: u64) -> Vec<Damage> {
        let beyond = self.by_size.split_off(&events.saturating_add(1));
        let signed = beyond
            .into_iter()
            .flat_map(|(size, signed)| signed.into_iter().map(move |one| (size, one)));
        let damage = signed.map(|(size, signed)| Damage {
            place: signed.place,
            what: format!("{size} events were signed, but the ledger ends after {events}"),
            severity: Severity::Lost,
        });
        damage.collect()
    }
}
