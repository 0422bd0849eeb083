//! The certificate authority of this deployment: what signs, for each run, the authority
//! by which the process that carries its connections looks into TLS.
//!
//! One file holds all of it, so that a change of it is one step. The key leaves the
//! process that reads it in no message: what a run's carrier gets is an authority of its
//! own, for that run's names and time.

mod certificate;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atoll_model::RunId;
use atoll_model::network::{Authority, Network};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::lock::{LockFault, open_lock, wait_for_lock};
use crate::state::AUTHORITY;
use crate::{FileFault, StateDir};

use certificate::Made;

const FILE: &str = "authority.json";
const NEW_FILE: &str = "authority.json.new";
const LOCK: &str = "lock";
const VERSION: u32 = 1;

/// The largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// How long another process may take that makes one, milliseconds.
const LOCK_WAIT_MS_MAX: u64 = 5_000;
/// How long an authority is valid.
const LASTS: Duration = days(3653);
/// One that ends within this time is replaced when it is needed.
const RENEWED_BEFORE: Duration = days(365);
/// How long one that was replaced because of its age is trusted by new sandboxes.
const OVERLAP: Duration = days(30);
/// How many replaced ones are known.
const FORMER_MAX: usize = 8;

const fn days(count: u64) -> Duration {
    Duration::from_secs(count * 24 * 60 * 60)
}

/// There is no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The kernel refused.
    #[error(transparent)]
    File(#[from] FileFault),
    /// What is there is none.
    #[error("the certificate authority in {} cannot be used: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Others can read the key, or could.
    #[error(
        "{} holds the key of the certificate authority, and is not yours alone (mode {mode:04o})",
        path.display()
    )]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Another process makes one, and does not come to an end.
    #[error("{} is held by another process, for {waited_ms} ms by now", path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
        /// How long was waited, milliseconds.
        waited_ms: u128,
    },
    /// A certificate could not be made.
    #[error("a certificate cannot be made: {0}")]
    Certificate(String),
}

impl From<LockFault> for AuthorityError {
    fn from(fault: LockFault) -> Self {
        match fault {
            LockFault::File(fault) => Self::File(fault),
            LockFault::TimedOut { path, waited_ms } => Self::Locked { path, waited_ms },
        }
    }
}

/// As it is kept.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    v: u32,
    /// Its subject's name.
    name: String,
    /// PEM.
    certificate: String,
    /// PKCS #8 as PEM.
    key: String,
    /// Of the certificate, SHA-256 in hexadecimal digits.
    fingerprint: String,
    /// From when it is valid, seconds since 1970.
    from_s: u64,
    /// Until when, seconds since 1970.
    until_s: u64,
    former: Vec<FormerAuthority>,
}

/// An authority that was replaced. Its key is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormerAuthority {
    /// PEM.
    pub certificate: String,
    /// Of the certificate, SHA-256 in hexadecimal digits.
    pub fingerprint: String,
    /// Until when new sandboxes trust it, seconds since 1970.
    pub trusted_until_s: u64,
}

/// The authority of this deployment. It holds the key, so it is never shown.
pub struct CertificateAuthority {
    kept: Kept,
    path: PathBuf,
    is_new: bool,
}

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = to.debug_struct("CertificateAuthority");
        shown.field("name", &self.kept.name).finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// The one that there is.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn read(state: &StateDir) -> Result<Option<Self>, AuthorityError> {
        let directory = match state.subdirectory(AUTHORITY, false) {
            Err(fault) if fault.is_not_found() => return Ok(None),
            opened => opened?,
        };
        Place::new(state, directory)?.read()
    }

    /// The one that there is, or a new one where there is none, or it is about to end.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn open(state: &StateDir, now: SystemTime) -> Result<Self, AuthorityError> {
        let lasts = |one: &Self| one.valid_until() > now + RENEWED_BEFORE;
        let place = Place::new(state, state.subdirectory(AUTHORITY, true)?)?;
        if let Some(found) = place.read()?.filter(lasts) {
            return Ok(found);
        }
        let _lock = place.lock()?;
        // Whoever had the lock may have made it.
        match place.read()? {
            Some(found) if lasts(&found) => Ok(found),
            found => place.replace(found, now, OVERLAP),
        }
    }

    /// Puts a new one in the place of the one that there is, which new sandboxes trust for
    /// that much longer. Sandboxes that are there go on with the one they know.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn rotate(
        state: &StateDir,
        now: SystemTime,
        overlap: Duration,
    ) -> Result<Self, AuthorityError> {
        let place = Place::new(state, state.subdirectory(AUTHORITY, true)?)?;
        let _lock = place.lock()?;
        let found = place.read()?;
        place.replace(found, now, overlap)
    }

    /// An authority for the names of one run alone, which ends with it: `lasts` is how long
    /// the run can take.
    ///
    /// # Errors
    /// [`AuthorityError::Certificate`].
    pub fn issue(
        &self,
        run: &RunId,
        network: &Network,
        now: SystemTime,
        lasts: Duration,
    ) -> Result<Authority, AuthorityError> {
        let own = self.valid_until();
        let until = now.checked_add(lasts).map_or(own, |until| until.min(own));
        certificate::issue(&self.kept.name, &self.kept.key, run, network, now, until)
    }

    /// The file that holds it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its subject's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.kept.name
    }

    /// Its certificate, PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.kept.certificate
    }

    /// Its certificate's SHA-256, hexadecimal digits.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.kept.fingerprint
    }

    /// From when it is valid.
    #[must_use]
    pub fn valid_from(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.kept.from_s)
    }

    /// Until when it is valid.
    #[must_use]
    pub fn valid_until(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.kept.until_s)
    }

    /// Those before it that new sandboxes trust still.
    pub fn former(&self, now: SystemTime) -> impl Iterator<Item = &FormerAuthority> {
        let now = seconds(now);
        let former = self.kept.former.iter();
        former.filter(move |one| one.trusted_until_s > now)
    }

    /// Whether it was made by this very call.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }
}

pub(crate) fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Where it is kept.
struct Place {
    directory: OwnedFd,
    path: PathBuf,
}

impl Place {
    fn new(state: &StateDir, directory: OwnedFd) -> Result<Self, AuthorityError> {
        let path = state.path().join(AUTHORITY);
        let facts = rustix::fs::fstat(&directory).map_err(FileFault::on("examine", &path))?;
        refuse_if_open(&path, &facts)?;
        Ok(Self { directory, path })
    }

    fn lock(&self) -> Result<OwnedFd, AuthorityError> {
        let lock = open_lock(&self.directory, &self.path, LOCK)?;
        let path = self.path.join(LOCK);
        let operation = FlockOperation::NonBlockingLockExclusive;
        wait_for_lock(&lock, &path, operation, LOCK_WAIT_MS_MAX)?;
        Ok(lock)
    }

    fn read(&self) -> Result<Option<CertificateAuthority>, AuthorityError> {
        let path = self.path.join(FILE);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match rustix::fs::openat(&self.directory, FILE, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(FileFault::on("open", &path))?,
        };
        let unreadable = |why: &str| AuthorityError::Unreadable {
            path: path.clone(),
            why: why.to_owned(),
        };
        let facts = rustix::fs::fstat(&file).map_err(FileFault::on("examine", &path))?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return Err(unreadable("it is no file"));
        }
        refuse_if_open(&path, &facts)?;
        let mut bytes = Vec::new();
        let mut limited = File::from(file).take(FILE_BYTES_MAX);
        limited
            .read_to_end(&mut bytes)
            .map_err(FileFault::on("read", &path))?;
        let kept: Kept =
            serde_json::from_slice(&bytes).map_err(|error| unreadable(&error.to_string()))?;
        if kept.v != VERSION {
            return Err(unreadable("it is of another version of Atoll"));
        }
        Ok(Some(CertificateAuthority {
            kept,
            path,
            is_new: false,
        }))
    }

    /// Makes a new one. The caller holds the lock.
    fn replace(
        &self,
        found: Option<CertificateAuthority>,
        now: SystemTime,
        overlap: Duration,
    ) -> Result<CertificateAuthority, AuthorityError> {
        let former = found.map(|found| {
            let until = (now + overlap).min(found.valid_until());
            let replaced = FormerAuthority {
                trusted_until_s: seconds(until),
                certificate: found.kept.certificate,
                fingerprint: found.kept.fingerprint,
            };
            let older = found.kept.former.into_iter();
            let is_trusted = |one: &FormerAuthority| one.trusted_until_s > seconds(now);
            // Without an overlap nothing before it is trusted either.
            let older = older.filter(move |one| is_trusted(one) && !overlap.is_zero());
            std::iter::once(replaced).filter(is_trusted).chain(older)
        });
        let Made {
            name,
            certificate,
            key,
            fingerprint,
            from,
            until,
        } = certificate::make(now, LASTS)?;
        let kept = Kept {
            v: VERSION,
            name,
            certificate,
            key,
            fingerprint,
            from_s: seconds(from),
            until_s: seconds(until),
            former: former.into_iter().flatten().take(FORMER_MAX).collect(),
        };
        self.write(&kept)?;
        Ok(CertificateAuthority {
            kept,
            path: self.path.join(FILE),
            is_new: true,
        })
    }

    fn write(&self, kept: &Kept) -> Result<(), AuthorityError> {
        let directory = self.directory.as_fd();
        let path = self.path.join(NEW_FILE);
        let bytes = serde_json::to_vec_pretty(kept)
            .map_err(|error| AuthorityError::Certificate(error.to_string()))?;
        // What a sudden end has left of another one, with whatever mode it has.
        match rustix::fs::unlinkat(directory, NEW_FILE, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(FileFault::on("remove", &path)(errno).into()),
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(directory, NEW_FILE, flags, Mode::RUSR | Mode::WUSR)
            .map_err(FileFault::on("make", &path))?;
        let mut file = File::from(file);
        file.write_all(&bytes)
            .and_then(|()| file.sync_all())
            .map_err(FileFault::on("write", &path))?;
        rustix::fs::renameat(directory, NEW_FILE, directory, FILE)
            .and_then(|()| rustix::fs::fsync(directory))
            .map_err(FileFault::on("replace", self.path.join(FILE)))?;
        Ok(())
    }
}

/// Whoever can read the key can make certificates that sandboxes trust; whoever can
/// write there chooses them.
fn refuse_if_open(path: &Path, facts: &Stat) -> Result<(), AuthorityError> {
    let is_own = facts.st_uid == rustix::process::geteuid().as_raw();
    if is_own && facts.st_mode & 0o077 == 0 {
        return Ok(());
    }
    Err(AuthorityError::Open {
        path: path.to_owned(),
        mode: facts.st_mode & 0o7777,
    })
}
