//! The certificate authority of this deployment: for each run, it signs the authority with which
//! the run's egress process intercepts TLS.
//!
//! One file holds all of it, so that a change of it is one step. The key never leaves the process
//! that reads it: a run's egress process gets an authority of its own, for that run's names and
//! time.

mod certificate;
mod serving;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atoll_ledger::lock::LockFault;
use atoll_ledger::private::PrivateDirectory;
use atoll_ledger::state::AUTHORITY;
use atoll_ledger::{FileFault, PrivateFault, StateDir};
use atoll_model::RunId;
use atoll_model::network::{Authority, Network};
use serde::{Deserialize, Serialize};

use certificate::Made;
pub use serving::ServerCertificate;

const FILE: &str = "authority.json";
const VERSION: u32 = 1;

/// The largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// The validity of an authority.
const LASTS: Duration = days(3653);
/// The remaining validity at which an authority is replaced when it is needed.
const RENEWED_BEFORE: Duration = days(365);
/// The time for which new sandboxes still trust an authority that was replaced because of its age.
const OVERLAP: Duration = days(30);
/// The most replaced authorities that are remembered.
const FORMER_MAX: usize = 8;

const fn days(count: u64) -> Duration {
    Duration::from_secs(count * 24 * 60 * 60)
}

/// There is no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The file that holds it cannot be used.
    #[error("the certificate authority: {0}")]
    Private(#[from] PrivateFault),
    /// The file that is there does not hold an authority.
    #[error("the certificate authority in {} cannot be used: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The fault that was found.
        why: String,
    },
    /// A certificate could not be made.
    #[error("a certificate cannot be made: {0}")]
    Certificate(String),
}

impl From<FileFault> for AuthorityError {
    fn from(fault: FileFault) -> Self {
        Self::Private(fault.into())
    }
}

impl From<LockFault> for AuthorityError {
    fn from(fault: LockFault) -> Self {
        Self::Private(fault.into())
    }
}

/// The authority as it is stored.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    v: u32,
    /// The subject's name.
    name: String,
    /// The certificate, PEM.
    certificate: String,
    /// The key, PKCS #8 as PEM.
    key: String,
    /// The certificate's SHA-256, hexadecimal digits.
    fingerprint: String,
    /// The start of its validity, seconds since 1970.
    from_s: u64,
    /// The end of its validity, seconds since 1970.
    until_s: u64,
    former: Vec<FormerAuthority>,
}

/// An authority that was replaced. Its key is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormerAuthority {
    /// The certificate, PEM.
    pub certificate: String,
    /// The certificate's SHA-256, hexadecimal digits.
    pub fingerprint: String,
    /// The time until which new sandboxes trust it, seconds since 1970.
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
    /// Reads the current authority.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn read(state: &StateDir) -> Result<Option<Self>, AuthorityError> {
        match PrivateDirectory::of_state(state, AUTHORITY, false)? {
            Some(directory) => Place(directory).read(),
            None => Ok(None),
        }
    }

    /// Reads the current authority; makes a new one if there is none, or it is about to end.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn open(state: &StateDir, now: SystemTime) -> Result<Self, AuthorityError> {
        let lasts = |one: &Self| one.valid_until() > now + RENEWED_BEFORE;
        let place = Place::of(state)?;
        if let Some(found) = place.read()?.filter(lasts) {
            return Ok(found);
        }
        let _lock = place.0.lock()?;
        // Whoever had the lock may have made it.
        match place.read()? {
            Some(found) if lasts(&found) => Ok(found),
            found => place.replace(found, now, OVERLAP),
        }
    }

    /// Replaces the authority by a new one; new sandboxes trust the old one for that much longer.
    /// Existing sandboxes go on with the one that they know.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn rotate(
        state: &StateDir,
        now: SystemTime,
        overlap: Duration,
    ) -> Result<Self, AuthorityError> {
        let place = Place::of(state)?;
        let _lock = place.0.lock()?;
        let found = place.read()?;
        place.replace(found, now, overlap)
    }

    /// Issues an authority for the names of one run alone, which ends with it: `lasts` is the
    /// longest time that the run can take.
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

    /// Returns the file that holds it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the subject's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.kept.name
    }

    /// Returns the certificate, PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.kept.certificate
    }

    /// Returns the certificate's SHA-256, hexadecimal digits.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.kept.fingerprint
    }

    /// Returns the start of its validity.
    #[must_use]
    pub fn valid_from(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.kept.from_s)
    }

    /// Returns the end of its validity.
    #[must_use]
    pub fn valid_until(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.kept.until_s)
    }

    /// Returns the earlier authorities that new sandboxes still trust.
    pub fn former(&self, now: SystemTime) -> impl Iterator<Item = &FormerAuthority> {
        let now = seconds(now);
        let former = self.kept.former.iter();
        former.filter(move |one| one.trusted_until_s > now)
    }

    /// Returns whether this very call made the authority.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }
}

pub(crate) fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// The directory that holds the authority.
struct Place(PrivateDirectory);

impl Place {
    fn of(state: &StateDir) -> Result<Self, AuthorityError> {
        match PrivateDirectory::of_state(state, AUTHORITY, true)? {
            Some(directory) => Ok(Self(directory)),
            None => Err(AuthorityError::Certificate(
                "no directory for it".to_owned(),
            )),
        }
    }

    fn read(&self) -> Result<Option<CertificateAuthority>, AuthorityError> {
        let Some(bytes) = self.0.read(FILE, FILE_BYTES_MAX)? else {
            return Ok(None);
        };
        let path = self.0.path().join(FILE);
        let unreadable = |why: &str| AuthorityError::Unreadable {
            path: path.clone(),
            why: why.to_owned(),
        };
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

    /// Makes a new authority in the place of the current one. The caller holds the lock.
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
            path: self.0.path().join(FILE),
            is_new: true,
        })
    }

    fn write(&self, kept: &Kept) -> Result<(), AuthorityError> {
        let bytes = serde_json::to_vec_pretty(kept)
            .map_err(|error| AuthorityError::Certificate(error.to_string()))?;
        Ok(self.0.replace(FILE, &bytes)?)
    }
}
