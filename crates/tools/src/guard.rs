//! The limits and breakers of calls, for all sessions of a process. Breakers that are not closed are
//! kept on disk, and shared with every other process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, flock};

use crate::breaker::{self, Breakers, Changed, State, Went};
use crate::limits::{Counted, Exceeded, Limits, Meters, Permit};

/// The file of breakers that are not closed.
const FILE: &str = "breakers.json";

/// Limits and breakers.
#[derive(Debug)]
pub struct Guard {
    directory: PathBuf,
    meters: Arc<Meters>,
    breakers: Mutex<Breakers>,
}

/// A call that limits and breakers let pass, until it is dropped.
pub(crate) struct Admitted<'a> {
    guard: &'a Guard,
    permit: Option<Permit>,
    breakers: Vec<(String, breaker::Limits)>,
    began: Instant,
}

impl Guard {
    /// Makes it with the directory of the state.
    pub(crate) fn new(state: &std::path::Path) -> Self {
        Self {
            directory: state.join("breakers"),
            meters: Arc::default(),
            breakers: Mutex::default(),
        }
    }

    /// Lets a call pass, if every limit and breaker of it does.
    ///
    /// # Errors
    /// [`Exceeded`]; also where the breakers cannot be read.
    pub(crate) fn admit<'a>(
        &'a self,
        limits: Vec<(Counted, &Limits)>,
        breakers: Vec<(String, Option<&'a breaker::Limits>)>,
    ) -> Result<(Admitted<'a>, Vec<Changed>), Exceeded> {
        let permit = self.meters.admit(limits, Instant::now())?;
        let mut admitted = Admitted {
            guard: self,
            permit: Some(permit),
            breakers: Vec::new(),
            began: Instant::now(),
        };
        let passed = self.with(|all| {
            let mut changed = Vec::new();
            for (of, limits) in &breakers {
                let has_changed = all.admit(of, now()).map_err(|left| Exceeded {
                    why: match left {
                        Some(_) => format!("the breaker of {of} is open: it has failed too often"),
                        None => format!("the breaker of {of} is tripped, by a person"),
                    },
                    retry_after: left.map(Duration::from_secs),
                })?;
                let limits = limits.cloned().unwrap_or_default();
                admitted.breakers.push((of.clone(), limits));
                if has_changed {
                    changed.push(all.changed(of));
                }
            }
            Ok(changed)
        });
        let passed = passed.unwrap_or_else(|error| {
            Err(Exceeded {
                why: format!("the breakers cannot be read: {error}"),
                retry_after: None,
            })
        });
        match passed {
            Ok(changed) => Ok((admitted, changed)),
            Err(exceeded) => {
                admitted.take_back();
                Err(exceeded)
            }
        }
    }

    /// Forgets the count of a session that has ended.
    pub(crate) fn forget(&self, session: &str) {
        self.meters.forget(session);
    }

    /// Returns the breakers that are not closed.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn states(&self) -> io::Result<BTreeMap<String, State>> {
        self.with(|all| all.states.clone())
    }

    /// Has a person trip a breaker, or close it; returns its state before.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn set(&self, of: &str, trips: bool) -> io::Result<State> {
        self.with(|all| all.set(of, trips))
    }

    /// Works with the breakers as they are on disk, and writes what has changed. One process at a
    /// time does.
    fn with<T>(&self, work: impl FnOnce(&mut Breakers) -> T) -> io::Result<T> {
        let mut all = self.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        fs::create_dir_all(&self.directory)?;
        let directory = File::open(&self.directory)?;
        flock(&directory, FlockOperation::LockExclusive)?;
        let path = self.directory.join(FILE);
        let before = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                let what = format!("{}: {error}; remove it to close them all", path.display());
                io::Error::new(io::ErrorKind::InvalidData, what)
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        all.states.clone_from(&before);
        let done = work(&mut all);
        if all.states != before {
            let beside = self.directory.join(format!("{FILE}.new"));
            let mut file = File::create(&beside)?;
            file.write_all(&serde_json::to_vec(&all.states)?)?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
        }
        Ok(done)
    }
}

impl Admitted<'_> {
    /// Counts a call that has ended, the way it went for each breaker (`None` says nothing), and
    /// returns those that it has changed.
    ///
    /// # Errors
    /// When those cannot be written.
    pub(crate) fn ended(
        mut self,
        went: [Option<Went>; 2],
        bytes: usize,
    ) -> io::Result<Vec<Changed>> {
        let took = self.began.elapsed();
        if let Some(permit) = self.permit.take() {
            permit.used(took, bytes);
        }
        let of = std::mem::take(&mut self.breakers);
        self.guard.with(|all| {
            let mut changed = Vec::new();
            for ((of, limits), went) in of.iter().zip(went) {
                match went {
                    Some(went) if all.note(of, limits, went, took, now()) => {
                        changed.push(all.changed(of));
                    }
                    Some(_) => {}
                    None => all.give_up(of),
                }
            }
            changed
        })
    }

    /// Takes back a call that was not made.
    pub(crate) fn take_back(mut self) {
        if let Some(permit) = self.permit.take() {
            permit.take_back();
        }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut all = self
            .guard
            .breakers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (of, _) in &self.breakers {
            all.give_up(of);
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(guard: &'a Guard, limits: &'a breaker::Limits) -> Result<Admitted<'a>, Exceeded> {
        let admitted = guard.admit(Vec::new(), vec![("tool x".to_owned(), Some(limits))]);
        admitted.map(|(admitted, _)| admitted)
    }

    /// A restart, or another process, sees the same state.
    #[test]
    fn breakers_are_kept_on_disk() {
        let held = tempfile::tempdir().unwrap();
        let limits = breaker::Limits::default();
        let guard = Guard::new(held.path());
        let mut changed = Vec::new();
        for _ in 0..5 {
            let ended = call(&guard, &limits)
                .unwrap()
                .ended([Some(Went::Fault), None], 0);
            changed.extend(ended.unwrap());
        }
        assert_eq!(changed.len(), 1);
        let other = Guard::new(held.path());
        let refused = call(&other, &limits).err().unwrap();
        assert!(refused.why.contains("breaker of tool x is open"));
        assert!(refused.retry_after.unwrap() > Duration::from_secs(20));
        assert_eq!(other.set("tool x", false).unwrap().name(), "open");
        assert!(call(&guard, &limits).is_ok());
        assert_eq!(other.set("tool x", true).unwrap().name(), "closed");
        let refused = call(&guard, &limits).err().unwrap();
        assert!(refused.why.contains("tripped") && refused.retry_after.is_none());
    }

    /// Nobody knows which are tripped then.
    #[test]
    fn breakers_that_cannot_be_read_let_nothing_pass() {
        let held = tempfile::tempdir().unwrap();
        let (guard, limits) = (Guard::new(held.path()), breaker::Limits::default());
        assert!(call(&guard, &limits).is_ok());
        fs::write(held.path().join("breakers").join(FILE), "{").unwrap();
        let refused = call(&guard, &limits).err().unwrap();
        assert!(refused.why.contains("cannot be read"));
    }
}
