//! Labels that the concurrent runs of a session share: each label that a run gains is a line in an
//! append-only file.
//!
//! The ledger records which labels a session has. A run reads them there when it begins, and those
//! that other runs gain from then on in this file, wherever it decides by labels. So an operation
//! that gives a label proceeds only once the label is in the ledger and in this file. Once none of
//! these runs goes on, the ledger alone has all labels, and the file can be removed: the next run
//! of the session makes it anew from the ledger.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use atoll_model::SessionId;
use rustix::fs::{Dir, FlockOperation};
use serde_json::Value;

use crate::labels;
use crate::lock::{LockFault, wait_for_lock};
use crate::open_runs::OpenRuns;
use crate::private::{PrivateDirectory, replace_file_soon};
use crate::sessions::{self, Session, SessionError};
use crate::state::GAINED;
use crate::{FileFault, Ledger, LedgerError, PrivateFault, StateDir};

/// The largest size of a session's labels, bytes: names of policies and of credentials.
pub const GAINED_BYTES_MAX: u64 = 1 << 20;
/// The longest wait of a run that adds a label for others that do, milliseconds.
const WAIT_MS_MAX: u64 = 10_000;

/// The file of one session.
#[derive(Debug)]
pub struct SharedLabels {
    file: File,
    path: PathBuf,
}

impl SharedLabels {
    /// Opens the file of this session. If there is none, it is made from the labels in the ledger,
    /// since another run can have gained one and ended after the caller looked there. The caller
    /// has a run of the session recorded by now, so that nobody removes the file.
    ///
    /// # Errors
    /// [`SessionError`]: it cannot be made, is not this user's alone, or the ledger does not say
    /// which labels there are.
    pub fn open(state: &StateDir, session: &SessionId) -> Result<Self, SessionError> {
        let directory = PrivateDirectory::of_state(state, GAINED, true)?;
        let path = state.path().join(GAINED).join(session.as_str());
        let Some(directory) = directory else {
            let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(PrivateFault::from(FileFault::on("open", &path)(missing)).into());
        };
        let _alone = directory.lock()?;
        if directory
            .read(session.as_str(), GAINED_BYTES_MAX)?
            .is_none()
        {
            let known = labels::of_session(state, session)?;
            let text: String = known.iter().map(|label| format!("{label}\n")).collect();
            let (descriptor, name) = (directory.descriptor(), session.as_str());
            replace_file_soon(descriptor, directory.path(), name, text.as_bytes())
                .map_err(PrivateFault::from)?;
        }
        let file = directory.open_in_place(session.as_str())?;
        Ok(Self { file, path })
    }

    /// Opens the file again, to be read from its beginning by a process that shares nothing else of
    /// it.
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

    /// Adds the labels that are not there yet, for every run of the session that goes on.
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

/// Returns the sessions whose file can be removed, since none of their runs goes on or is kept, and
/// the ledger has every label in it.
///
/// # Errors
/// [`SessionError`]: the ledger or the directory cannot be read.
pub fn forgettable(state: &StateDir) -> Result<Vec<SessionId>, SessionError> {
    let Some(directory) = PrivateDirectory::of_state(state, GAINED, false)? else {
        return Ok(Vec::new());
    };
    let names = Dir::read_from(directory.descriptor());
    let names = names.map_err(FileFault::on("read", directory.path()));
    let mut there = BTreeSet::new();
    for name in names.map_err(PrivateFault::from)?.flatten() {
        let name = name.file_name().to_str().ok();
        there.extend(name.and_then(|name| SessionId::parse(name).ok()));
    }
    if there.is_empty() {
        return Ok(Vec::new());
    }
    let all = sessions::list(state)?;
    let is_kept = |one: &Session| {
        let mut runs = one.runs.iter();
        runs.any(|run| state.run_dir(&run.run).symlink_metadata().is_ok())
    };
    let left = all
        .iter()
        .filter(|one| there.contains(&one.id) && !is_kept(one));
    let mut found = Vec::new();
    for session in left {
        if !goes_on(state, &session.id)? && has_all(state, &directory, &session.id)?.is_some() {
            found.push(session.id.clone());
        }
    }
    Ok(found)
}

/// Removes the files of these sessions, if they still can go. Returns the number removed.
///
/// # Errors
/// As [`forgettable`]; what was not looked at stays.
pub fn forget(state: &StateDir, sessions: &[SessionId]) -> Result<usize, SessionError> {
    let Some(directory) = PrivateDirectory::of_state(state, GAINED, false)? else {
        return Ok(0);
    };
    let mut removed = 0;
    for session in sessions {
        // What the ledger has it keeps: it is read before whoever begins a run has to wait.
        let Some(known) = has_all(state, &directory, session)? else {
            continue;
        };
        let _alone = directory.lock()?;
        let text = directory.read(session.as_str(), GAINED_BYTES_MAX)?;
        let is_known = text.is_some_and(|text| labels_of(&text).is_subset(&known));
        if is_known && !goes_on(state, session)? && directory.remove(session.as_str())? {
            removed += 1;
        }
    }
    Ok(removed)
}

/// Returns whether a run of this session goes on, or one whose session is not known.
fn goes_on(state: &StateDir, session: &SessionId) -> Result<bool, LedgerError> {
    let open = OpenRuns::open(state)?;
    for run in open.list()? {
        if !open.is_alive(&run)? {
            continue;
        }
        let beginning = Ledger::beginning(state, &run)?;
        let of = beginning.as_ref().map(|event| event.body.get("session"));
        let is_another = match of {
            Some(Some(Value::String(of))) => of != session.as_str(),
            Some(None | Some(Value::Null)) => true,
            Some(Some(_)) | None => false,
        };
        if !is_another {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the labels that the ledger has of a session, if it has all that the file has.
fn has_all(
    state: &StateDir,
    directory: &PrivateDirectory,
    session: &SessionId,
) -> Result<Option<BTreeSet<String>>, SessionError> {
    let Some(text) = directory.read(session.as_str(), GAINED_BYTES_MAX)? else {
        return Ok(None);
    };
    let known = labels::of_session(state, session)?;
    Ok(labels_of(&text).is_subset(&known).then_some(known))
}

/// Returns the labels in a file. A line that is not text becomes a label that nothing knows.
fn labels_of(text: &[u8]) -> BTreeSet<String> {
    let lines = text.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    lines
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(gained: &SharedLabels) -> String {
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
            SharedLabels::open(&state, &session).unwrap(),
            SharedLabels::open(&state, &session).unwrap(),
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
                    let gained = SharedLabels::open(state, session).unwrap();
                    for label in 0..50 {
                        gained
                            .add([format!("{run}-{label}").as_str(), "all"])
                            .unwrap();
                    }
                });
            }
        });
        let all = content(&SharedLabels::open(&state, &session).unwrap());
        let each: BTreeSet<&str> = all.lines().collect();
        assert_eq!((each.len(), all.lines().count()), (401, 401));
    }
}
