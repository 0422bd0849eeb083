//! What the runs of a session that go on at the same time tell each other: the labels that each
//! has gained, a line each, in a file that is only ever added to.
//!
//! The ledger says which labels a session has. A run reads that when it begins; what others gain
//! from then on it reads here, wherever it decides by labels. So whatever gives a label goes on
//! only once the ledger has it and it stands here.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use atoll_model::SessionId;
use rustix::fs::FlockOperation;

use crate::lock::{LockFault, wait_for_lock};
use crate::private::PrivateDirectory;
use crate::state::GAINED;
use crate::{FileFault, LedgerError, PrivateFault, StateDir};

/// How much of a session's labels there can be, bytes: names of policies and of credentials.
pub const GAINED_BYTES_MAX: u64 = 1 << 20;
/// How long who adds a label waits for others that do, milliseconds.
const WAIT_MS_MAX: u64 = 10_000;

/// The file of one session.
#[derive(Debug)]
pub struct Gained {
    file: File,
    path: PathBuf,
}

impl Gained {
    /// That of this session, which is made where there is none.
    ///
    /// # Errors
    /// [`PrivateFault`]: it cannot be made, or is not this user's alone.
    pub fn open(state: &StateDir, session: &SessionId) -> Result<Self, PrivateFault> {
        let directory = PrivateDirectory::of_state(state, GAINED, true)?;
        let path = state.path().join(GAINED).join(session.as_str());
        let Some(directory) = directory else {
            let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(FileFault::on("open", &path)(missing).into());
        };
        let file = directory.open_in_place(session.as_str())?;
        Ok(Self { file, path })
    }

    /// The same to be read from its beginning, by who holds nothing else of it.
    ///
    /// # Errors
    /// [`PrivateFault`].
    pub fn reader(&self) -> Result<OwnedFd, PrivateFault> {
        let again = File::open(&self.path).map_err(FileFault::on("open", &self.path))?;
        let (own, other) = (self.file.metadata(), again.metadata());
        let is_same = own.ok().zip(other.ok()).is_some_and(|(own, other)| {
            use std::os::unix::fs::MetadataExt;
            (own.dev(), own.ino()) == (other.dev(), other.ino())
        });
        match is_same {
            true => Ok(again.into()),
            false => {
                let replaced = std::io::Error::other("it is another file by now");
                Err(FileFault::on("open", &self.path)(replaced).into())
            }
        }
    }

    /// Adds those that are not there yet, for every run of the session that goes on.
    ///
    /// # Errors
    /// [`LedgerError::File`]: then nobody can go on by having gained one.
    pub fn add<'a>(&self, labels: impl IntoIterator<Item = &'a str>) -> Result<(), LedgerError> {
        let on = |doing: &'static str| FileFault::on(doing, &self.path);
        let locked = FlockOperation::NonBlockingLockExclusive;
        wait_for_lock(&self.file, &self.path, locked, WAIT_MS_MAX).map_err(
            |fault| match fault {
                LockFault::File(fault) => fault,
                LockFault::TimedOut { path, waited_ms } => FileFault::on("lock", path)(
                    std::io::Error::other(format!("others have held it for {waited_ms} ms")),
                ),
            },
        )?;
        let added = self.add_locked(labels);
        let unlocked = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        added.map_err(on("add to"))?;
        unlocked.map_err(FileFault::on("unlock", &self.path))?;
        Ok(())
    }

    fn add_locked<'a>(&self, labels: impl IntoIterator<Item = &'a str>) -> std::io::Result<()> {
        let mut file = &self.file;
        let mut text = String::new();
        file.seek(SeekFrom::Start(0))?;
        file.take(GAINED_BYTES_MAX + 1).read_to_string(&mut text)?;
        let there: BTreeSet<&str> = text.lines().collect();
        let mut new = BTreeSet::new();
        for label in labels {
            if label.is_empty() || label.contains('\n') {
                return Err(std::io::Error::other("it is no label"));
            }
            if !there.contains(label) {
                new.insert(label);
            }
        }
        let new: String = new.iter().map(|label| format!("{label}\n")).collect();
        // What was cut short by the end of who wrote it would make another label of the next one.
        let is_whole = text.is_empty() || text.ends_with('\n');
        let new = match is_whole {
            true => new,
            false => format!("\n{new}"),
        };
        if (text.len() + new.len()) as u64 > GAINED_BYTES_MAX {
            return Err(std::io::Error::other("it would be too long"));
        }
        // It stands at its end, which nobody else moves.
        file.write_all(new.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(gained: &Gained) -> String {
        let mut text = String::new();
        File::from(gained.reader().unwrap())
            .read_to_string(&mut text)
            .unwrap();
        text
    }

    #[test]
    fn what_one_run_adds_another_one_reads_and_nothing_is_there_twice() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(&directory.path().join("state")).unwrap();
        let session = SessionId::new(1, 2);
        let (one, two) = (
            Gained::open(&state, &session).unwrap(),
            Gained::open(&state, &session).unwrap(),
        );
        let mut read = File::from(two.reader().unwrap());
        one.add(["private", "web"]).unwrap();
        two.add(["web", "secret:key"]).unwrap();
        assert_eq!(content(&one), "private\nweb\nsecret:key\n");
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        assert_eq!(text, "private\nweb\nsecret:key\n");
        // What comes later is read from there on.
        one.add(["later"]).unwrap();
        text.clear();
        read.read_to_string(&mut text).unwrap();
        assert_eq!(text, "later\n");
        for wrong in ["", "a\nb"] {
            assert!(one.add([wrong]).is_err(), "{wrong:?}");
        }
        // A line that was cut short is no beginning of another.
        std::fs::write(state.path().join(GAINED).join(session.as_str()), "priv").unwrap();
        one.add(["web"]).unwrap();
        assert_eq!(content(&two), "priv\nweb\n");
    }

    #[test]
    fn runs_that_add_at_once_lose_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(&directory.path().join("state")).unwrap();
        let session = SessionId::new(1, 3);
        std::thread::scope(|scope| {
            for run in 0..8 {
                let (state, session) = (&state, &session);
                scope.spawn(move || {
                    let gained = Gained::open(state, session).unwrap();
                    for label in 0..50 {
                        gained
                            .add([format!("{run}-{label}").as_str(), "all"])
                            .unwrap();
                    }
                });
            }
        });
        let all = content(&Gained::open(&state, &session).unwrap());
        let each: BTreeSet<&str> = all.lines().collect();
        assert_eq!((each.len(), all.lines().count()), (401, 401));
    }
}
