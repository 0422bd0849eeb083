//! The trust stores by which a sandbox's programs trust the authority of this deployment: made once
//! per authority and set of certificates that the host trusts, and shown to many sandboxes.

mod java;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_ledger::lock::{lock_now, open_lock, wait_for_lock};
use atoll_ledger::state::TRUST;
use atoll_ledger::{FileFault, StateDir, hex};
use atoll_model::network::{TRUST_AUTHORITY, TRUST_BUNDLE, TRUST_JAVA};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::{AuthorityError, CertificateAuthority};

/// The files in which systems keep the certificates that they trust: Debian and its derivatives,
/// Fedora, SUSE, Alpine.
const BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/var/lib/ca-certificates/ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// The largest such file that is read, bytes.
const BUNDLE_BYTES_MAX: u64 = 16 << 20;

/// The version of the files' format, part of the directory's digest: increased whenever other files
/// are made from the same inputs.
const FORM: u32 = 1;
const LOCK: &str = "lock";
/// The directory that holds the files while they are made.
const NEW: &str = "new";
/// The longest wait for another process that makes them, milliseconds.
const LOCK_WAIT_MS_MAX: u64 = 5_000;
/// The number of digits of a digest that make a directory's name.
const NAME_DIGITS: usize = 32;

const OPEN_DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A set of files that stay as they are for as long as this is held.
#[derive(Debug)]
pub struct TrustFiles {
    directory: PathBuf,
    _in_use: OwnedFd,
}

impl TrustFiles {
    /// Returns the files for an authority and the certificates that this host trusts now.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn of(
        state: &StateDir,
        authority: &CertificateAuthority,
        now: SystemTime,
    ) -> Result<Self, AuthorityError> {
        Self::with(state, authority, now, &BUNDLES.map(Path::new))
    }

    pub(crate) fn with(
        state: &StateDir,
        authority: &CertificateAuthority,
        now: SystemTime,
        bundles: &[&Path],
    ) -> Result<Self, AuthorityError> {
        let bundle = bundles
            .iter()
            .find_map(|path| Some((*path, path.metadata().ok().filter(|one| one.is_file())?)));
        let name = name(authority, now, bundle.as_ref());
        let top = state.subdirectory(TRUST, true)?;
        let place = Place {
            path: state.path().join(TRUST),
            top,
        };
        if let Some(found) = place.take(&name)? {
            return Ok(found);
        }
        let lock = open_lock(&place.top, &place.path, LOCK)?;
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        wait_for_lock(&lock, &place.path.join(LOCK), exclusive, LOCK_WAIT_MS_MAX)?;
        // Whoever had the lock may have made them.
        if let Some(found) = place.take(&name)? {
            return Ok(found);
        }
        let of_host = match bundle {
            Some((path, _)) => read(path)?,
            None => Vec::new(),
        };
        place.make(&name, authority, now, &of_host)?;
        let made = place.take(&name)?;
        place.remove_unused(&name);
        let gone = || FileFault::on("open", place.path.join(&name))(Errno::NOENT);
        made.ok_or_else(|| gone().into())
    }

    /// Returns the directory that holds them.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Derives the directory's name from everything that the files are made of; the host's bundle
/// counts by its file's identity, so that it is not read each time.
fn name(
    authority: &CertificateAuthority,
    now: SystemTime,
    bundle: Option<&(&Path, std::fs::Metadata)>,
) -> String {
    let mut of = format!("{FORM}\n{}\n", authority.fingerprint());
    for former in authority.former(now) {
        of.push_str(&format!("{}\n", former.fingerprint));
    }
    if let Some((path, facts)) = bundle {
        let (seconds, nanoseconds) = (facts.mtime(), facts.mtime_nsec());
        let changed = (facts.ctime(), facts.ctime_nsec());
        of.push_str(&format!(
            "{} {} {} {} {seconds}.{nanoseconds} {}.{}",
            path.display(),
            facts.dev(),
            facts.ino(),
            facts.size(),
            changed.0,
            changed.1,
        ));
    }
    let mut name = hex(&Sha256::digest(of.as_bytes()));
    name.truncate(NAME_DIGITS);
    name
}

fn read(path: &Path) -> Result<Vec<u8>, AuthorityError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(FileFault::on("open", path))?;
    let read = file.take(BUNDLE_BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(FileFault::on("read", path))?;
    Ok(bytes)
}

/// The directory that holds a directory for each set of files.
struct Place {
    top: OwnedFd,
    path: PathBuf,
}

impl Place {
    /// Takes the files if they are there; nobody removes them from then on.
    fn take(&self, name: &str) -> Result<Option<TrustFiles>, AuthorityError> {
        let path = self.path.join(name);
        let directory = match rustix::fs::openat(&self.top, name, OPEN_DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(FileFault::on("open", &path))?,
        };
        // Held by someone else only while they are removed.
        let shared = FlockOperation::NonBlockingLockShared;
        if !lock_now(&directory, &path, shared)? || !self.is_there(name, &directory) {
            return Ok(None);
        }
        Ok(Some(TrustFiles {
            directory: path,
            _in_use: directory,
        }))
    }

    /// Returns whether a directory is still the one of this name.
    fn is_there(&self, name: &str, directory: &OwnedFd) -> bool {
        let found = rustix::fs::statat(&self.top, name, AtFlags::SYMLINK_NOFOLLOW);
        let held = rustix::fs::fstat(directory);
        match (found, held) {
            (Ok(found), Ok(held)) => (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino),
            (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
        }
    }

    /// Makes the files, whole or not at all. The caller holds the lock.
    fn make(
        &self,
        name: &str,
        authority: &CertificateAuthority,
        now: SystemTime,
        of_host: &[u8],
    ) -> Result<(), AuthorityError> {
        let path = self.path.join(NEW);
        self.remove(NEW);
        let everybody = Mode::from_raw_mode(0o755);
        rustix::fs::mkdirat(&self.top, NEW, Mode::RWXU).map_err(FileFault::on("make", &path))?;
        let directory = rustix::fs::openat(&self.top, NEW, OPEN_DIRECTORY, Mode::empty())
            .map_err(FileFault::on("open", &path))?;
        let former = authority.former(now).map(|one| one.certificate.as_str());
        let own: Vec<&str> = [authority.certificate()]
            .into_iter()
            .chain(former)
            .collect();
        let own = own.concat().into_bytes();
        let mut bundle = of_host.to_vec();
        if bundle.last().is_some_and(|last| *last != b'\n') {
            bundle.push(b'\n');
        }
        bundle.extend_from_slice(&own);
        let java = java::store(&bundle, now);
        let files = [
            (TRUST_BUNDLE, &bundle),
            (TRUST_AUTHORITY, &own),
            (TRUST_JAVA, &java),
        ];
        for (file, content) in files {
            write(directory.as_fd(), &path, file, content)?;
        }
        // Shown to whoever the program is.
        rustix::fs::fchmod(&directory, everybody)
            .and_then(|()| rustix::fs::fsync(&directory))
            .and_then(|()| rustix::fs::renameat(&self.top, NEW, &self.top, name))
            .and_then(|()| rustix::fs::fsync(&self.top))
            .map_err(FileFault::on("make", self.path.join(name)))?;
        Ok(())
    }

    /// Removes the sets that no sandbox uses any more. Those that cannot be removed stay.
    fn remove_unused(&self, but: &str) {
        let Ok(entries) = std::fs::read_dir(&self.path) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| *name != but && is_name(name)) else {
                continue;
            };
            let opened = rustix::fs::openat(&self.top, name, OPEN_DIRECTORY, Mode::empty());
            let exclusive = FlockOperation::NonBlockingLockExclusive;
            if opened.is_ok_and(|one| lock_now(&one, &entry.path(), exclusive).unwrap_or(false)) {
                self.remove(name);
            }
        }
    }

    fn remove(&self, name: &str) {
        let directory = self.path.join(name);
        for file in [TRUST_BUNDLE, TRUST_AUTHORITY, TRUST_JAVA] {
            let _ = std::fs::remove_file(directory.join(file));
        }
        let _ = std::fs::remove_dir(directory);
    }
}

fn is_name(name: &str) -> bool {
    name.len() == NAME_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn write(
    directory: impl AsFd,
    path: &Path,
    name: &str,
    content: &[u8],
) -> Result<(), AuthorityError> {
    let path = path.join(name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)
        .map_err(FileFault::on("make", &path))?;
    // Whatever the mask is that the person has set.
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o444)).map_err(FileFault::on("make", &path))?;
    let mut file = File::from(file);
    file.write_all(content)
        .and_then(|()| file.sync_all())
        .map_err(FileFault::on("write", &path))?;
    Ok(())
}
