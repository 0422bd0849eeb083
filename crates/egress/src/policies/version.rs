//! The versions of the policies: those that the run began with, or others that have come since.
//! Each decision is by one version alone, which is reported with it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};

use atoll_cedar::{Facts, HANDED_BYTES_MAX, Layers, Principal, take};
use rustix::io::Errno;

use super::{Forbidden, Policies};
use crate::labels::Labels;

/// The number of bytes of a file read at once.
const BLOCK_BYTES: usize = 64 << 10;

/// Policies, and the principal.
#[derive(Debug)]
pub(super) struct PolicySet {
    pub(super) layers: Layers,
    pub(super) principal: Principal,
    pub(super) facts: Facts,
}

/// One version of the policies.
#[derive(Debug)]
pub(super) struct PolicyVersion {
    /// The version number; 0 are those that the run began with.
    version: u32,
    /// The policies; `None` where nobody has written any.
    pub(super) taken: Option<PolicySet>,
}

impl PolicyVersion {
    /// Returns the version that a run begins with.
    pub(super) fn first(taken: Option<PolicySet>) -> Self {
        Self { version: 0, taken }
    }
}

/// The policies of one version, which decide on something from its beginning to its end.
#[derive(Clone, Debug)]
pub(crate) struct PolicySnapshot<'a> {
    pub(super) policies: &'a Policies,
    pub(super) version_in_force: Arc<PolicyVersion>,
}

impl PolicySnapshot<'_> {
    /// Returns the version number; 0 are those that the run began with.
    pub(crate) fn version(&self) -> u32 {
        self.version_in_force.version
    }
}

/// Reads the policies that were handed over, with the labels if they are kept. Returns `None` if
/// they cannot be read.
pub(super) fn read(text: &[u8]) -> Option<(PolicySet, Option<Labels>)> {
    let (layers, principal, mut facts) = take(text).ok()?;
    let trusted = std::mem::take(&mut facts.trusted);
    let models = facts.models.clone();
    let labels = facts.labels.take();
    let taken = PolicySet {
        layers,
        principal,
        facts,
    };
    Some((taken, labels.map(|has| Labels::new(has, trusted, models))))
}

impl Policies {
    /// Returns the policies in force.
    pub(crate) fn now(&self) -> PolicySnapshot<'_> {
        let version_in_force = self
            .version_in_force
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        PolicySnapshot {
            policies: self,
            version_in_force: Arc::clone(&version_in_force),
        }
    }

    /// Sets the version number of the policies that a run begins with.
    pub(crate) fn numbered(self, version: u32) -> Self {
        {
            let mut version_in_force = self
                .version_in_force
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(version_in_force) = Arc::get_mut(&mut version_in_force) {
                version_in_force.version = version;
            }
        }
        self
    }

    /// Adds the labels that other runs of the session gain, where labels are kept.
    pub(crate) fn beside(self, gained: Option<OwnedFd>) -> Self {
        Self {
            labels: self.labels.map(|labels| labels.beside(gained)),
            ..self
        }
    }

    /// Puts other policies in force, for whatever begins from now on, and has open flows checked
    /// again. Labels, counts and rights given up stay. Returns false where they cannot be read or
    /// used: the previous ones stay in force then.
    pub(crate) fn reload(&self, version: u32, file: Option<OwnedFd>) -> bool {
        let taken = match file.map(|file| content(&file)) {
            None => None,
            Some(text) => match text.as_deref().and_then(read) {
                // What was touched before labels were noted is not known.
                Some((_, Some(_))) if self.labels.is_none() => return false,
                Some((taken, _)) => Some(taken),
                None => return false,
            },
        };
        let new = Arc::new(PolicyVersion { version, taken });
        *self
            .version_in_force
            .write()
            .unwrap_or_else(PoisonError::into_inner) = new;
        self.reloaded.send_replace(());
        true
    }

    /// Waits until another version than this one denies something that goes on. Returns the reason.
    pub(crate) async fn denied_since(
        &self,
        version: u32,
        may: impl Fn(&PolicySnapshot<'_>) -> Result<(), Forbidden>,
    ) -> String {
        let mut reloaded = self.reloaded.subscribe();
        loop {
            // What was decided by this version is not asked again.
            let now = self.now();
            if now.version() != version
                && let Err(forbidden) = may(&now)
            {
                return forbidden.why;
            }
            drop(now);
            // Its sender is this one, and still there.
            drop(reloaded.changed().await);
        }
    }
}

/// Reads a file from its current offset to its end: this process may not do more with it.
fn content(file: &OwnedFd) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match rustix::io::read(file, &mut block) {
            Ok(0) => return Some(text),
            Ok(got) => text.extend_from_slice(block.get(..got)?),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        if text.len() > HANDED_BYTES_MAX {
            return None;
        }
    }
}
