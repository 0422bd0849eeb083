//! Rollback protection for an organisation's signed lists: the greatest number seen under each key,
//! and the newest time, so that an earlier list, or a clock that was set back, is found. A number
//! counts for all keys of the organisation's name: a new key does not bring back what both have
//! signed.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use atoll_ledger::private::PrivateDirectory;
use atoll_ledger::state::ORGANISATION;
use atoll_ledger::{FileFault, StateDir, VerifierKey};
use serde::{Deserialize, Serialize};

use super::{Day, Manifest, OrganisationFault, digest};
use crate::authority::seconds;

const VERSION: u32 = 1;
const KEPT_BYTES_MAX: u64 = 4 << 10;
/// The number of digits of a key's digest that make its file's name.
const NAME_DIGITS: usize = 32;
/// The least time after which the newest time is written again: a list that does not expire never
/// needs it.
pub const SEEN_EVERY: Duration = Duration::from_secs(3_600);

/// The seen state as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Seen {
    v: u32,
    /// The key, as it is pinned.
    key: String,
    /// The greatest number.
    serial: u64,
    /// The SHA-256 of the list with that number, hexadecimal digits.
    manifest: String,
    /// The newest time at which a list was checked, seconds since 1970.
    newest_s: u64,
}

/// Checks that a list is not older than one that was seen, and that its last day is not over; and
/// remembers it. The later of the clock and the newest time that was seen counts.
///
/// # Errors
/// [`OrganisationFault`]; also where what was seen cannot be read, or not be kept.
pub fn remember_manifest(
    state: &StateDir,
    key: &VerifierKey,
    manifest: &Manifest,
    now: SystemTime,
) -> Result<(), OrganisationFault> {
    let place = Place::of(state, key)?;
    let now_s = seconds(now);
    let found = place.checked(key, manifest)?;
    let next = next(found.as_ref(), (key, manifest), now_s);
    if is_worth_keeping(found.as_ref(), &next, manifest) {
        let _lock = place.directory.lock()?;
        // Whoever had the lock may have seen a later one.
        let found = place.checked(key, manifest)?;
        place.keep(&self::next(found.as_ref(), (key, manifest), now_s))?;
    }
    match manifest.until() {
        Some(until) if Day::of(next.newest_s) > until => Err(OrganisationFault::Expired {
            until,
            today: Day::of(next.newest_s),
            path: place.path(),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Returns the state to keep once this list has been checked.
fn next(found: Option<&Seen>, (key, manifest): (&VerifierKey, &Manifest), now_s: u64) -> Seen {
    Seen {
        v: VERSION,
        key: key.to_string(),
        serial: manifest.serial(),
        manifest: digest(manifest.text().as_bytes()),
        newest_s: found.map_or(now_s, |found| found.newest_s.max(now_s)),
    }
}

/// Returns whether the next state is worth a write, so that not every start waits for the disk: a
/// number is saved at once, a time once it is an hour later, or a last day is over by it.
fn is_worth_keeping(found: Option<&Seen>, next: &Seen, manifest: &Manifest) -> bool {
    let Some(found) = found else {
        return true;
    };
    let is_later = next.newest_s >= found.newest_s.saturating_add(SEEN_EVERY.as_secs());
    let ends = |until| Day::of(next.newest_s) > until && Day::of(found.newest_s) <= until;
    next.serial != found.serial
        || manifest
            .until()
            .is_some_and(|until| is_later || ends(until))
}

/// The file that keeps the state of one key.
struct Place {
    directory: PrivateDirectory,
    name: String,
}

impl Place {
    fn of(state: &StateDir, key: &VerifierKey) -> Result<Self, OrganisationFault> {
        let name = digest(key.to_string().as_bytes());
        let name: String = name.chars().take(NAME_DIGITS).collect();
        match PrivateDirectory::of_state(state, ORGANISATION, true)? {
            Some(directory) => Ok(Self { directory, name }),
            None => Err(OrganisationFault::Unreadable {
                path: state.path().join(ORGANISATION),
                why: "there is no directory for it".to_owned(),
            }),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Reads what was seen under this key, and checks that the list is not older than anything seen
    /// under a key of the same name.
    fn checked(
        &self,
        key: &VerifierKey,
        manifest: &Manifest,
    ) -> Result<Option<Seen>, OrganisationFault> {
        let own = self.read(&self.name)?;
        if let Some(own) = &own {
            self.check(&self.name, own, manifest)?;
        }
        for name in self.names()?.iter().filter(|name| **name != self.name) {
            let Some(other) = self.read(name)? else {
                continue;
            };
            if VerifierKey::parse(&other.key).is_ok_and(|other| other.name() == key.name()) {
                self.check(name, &other, manifest)?;
            }
        }
        Ok(own)
    }

    /// Lists the files of all keys.
    fn names(&self) -> Result<Vec<String>, OrganisationFault> {
        let path = self.directory.path();
        let is_one = |name: &String| {
            name.len() == NAME_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let mut names = Vec::new();
        let entries = rustix::fs::Dir::read_from(self.directory.descriptor())
            .map_err(FileFault::on("list", path))?;
        for entry in entries {
            let entry = entry.map_err(FileFault::on("list", path))?;
            let name = entry.file_name().to_str().map(str::to_owned);
            names.extend(name.ok().filter(is_one));
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> Result<Option<Seen>, OrganisationFault> {
        let unreadable = |why: String| OrganisationFault::Unreadable {
            path: self.directory.path().join(name),
            why,
        };
        let Some(bytes) = self.directory.read(name, KEPT_BYTES_MAX)? else {
            return Ok(None);
        };
        let seen: Seen =
            serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        match seen.v == VERSION {
            true => Ok(Some(seen)),
            false => Err(unreadable("it is of another version of Atoll".to_owned())),
        }
    }

    fn check(
        &self,
        name: &str,
        found: &Seen,
        manifest: &Manifest,
    ) -> Result<(), OrganisationFault> {
        let path = self.directory.path().join(name);
        let serial = manifest.serial();
        if serial < found.serial {
            return Err(OrganisationFault::RolledBack {
                found: serial,
                seen: found.serial,
                path,
            });
        }
        if serial == found.serial && digest(manifest.text().as_bytes()) != found.manifest {
            return Err(OrganisationFault::SameNumber { serial, path });
        }
        Ok(())
    }

    /// Saves the state. The caller holds the lock.
    fn keep(&self, seen: &Seen) -> Result<(), OrganisationFault> {
        let bytes = serde_json::to_vec(seen).map_err(|error| OrganisationFault::Unreadable {
            path: self.path(),
            why: error.to_string(),
        })?;
        Ok(self.directory.replace(&self.name, &bytes)?)
    }
}
