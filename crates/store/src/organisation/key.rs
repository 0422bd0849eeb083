//! The signing key of an organisation, in a file of its own that nobody else can read.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use atoll_ledger::private::PrivateDirectory;
use atoll_ledger::{FileFault, NoteFault, SigningKey, VerifierKey};
use zeroize::Zeroizing;

use super::OrganisationFault;

const KEY_BYTES_MAX: u64 = 1 << 10;
const SEED_BYTES: usize = 32;

/// The key that signs an organisation's layer. It is never shown.
pub struct OrganisationKey(SigningKey);

impl std::fmt::Debug for OrganisationKey {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = to.debug_struct("OrganisationKey");
        shown.field("key", self.verifier()).finish_non_exhaustive()
    }
}

impl OrganisationKey {
    /// Makes a key for an organisation of this name, in a new file that its owner alone can read.
    ///
    /// # Errors
    /// [`OrganisationFault`], also where there is a file already.
    pub fn make(path: &Path, name: &str) -> Result<Self, OrganisationFault> {
        let mut seed = Zeroizing::new([0_u8; SEED_BYTES]);
        aws_lc_rs::rand::fill(&mut *seed).map_err(|_| OrganisationFault::NoRandom)?;
        let key = SigningKey::of(name, &*seed).map_err(unusable(path))?;
        let kept = key.kept(&*seed);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(path).map_err(FileFault::on("make", path))?;
        file.write_all(kept.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(FileFault::on("write", path))?;
        Ok(Self(key))
    }

    /// Reads the key of this file. It and its directory are the caller's, and nobody else can
    /// read the one or write to the other.
    ///
    /// # Errors
    /// [`OrganisationFault`].
    pub fn read(path: &Path) -> Result<Self, OrganisationFault> {
        let unfit = || OrganisationFault::Unfit(format!("{} is no file", path.display()));
        let (directory, name) = (
            path.parent(),
            path.file_name().and_then(|name| name.to_str()),
        );
        let (Some(directory), Some(name)) = (directory, name) else {
            return Err(unfit());
        };
        if !path.exists() {
            let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(FileFault::on("read", path)(missing).into());
        }
        let bytes = PrivateDirectory::at(directory)?.read(name, KEY_BYTES_MAX)?;
        let bytes = Zeroizing::new(bytes.ok_or_else(unfit)?);
        let line = std::str::from_utf8(&bytes)
            .map_err(|_| unusable(path)(NoteFault::NoKey("it is no text")))?;
        SigningKey::parse(line).map(Self).map_err(unusable(path))
    }

    /// Returns the key that verifies its signatures.
    #[must_use]
    pub fn verifier(&self) -> &VerifierKey {
        self.0.verifier()
    }

    pub(crate) fn signing(&self) -> &SigningKey {
        &self.0
    }
}

fn unusable(path: &Path) -> impl Fn(NoteFault) -> OrganisationFault {
    move |why| OrganisationFault::Key {
        path: path.to_owned(),
        why,
    }
}
