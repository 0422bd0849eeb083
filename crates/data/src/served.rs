//! Artifacts of served sandboxes, each of its own tenant.

use std::io::Write;
use std::time::SystemTime;

use atoll_engine::artifacts::{Deciding, kept_by, list, named};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::sandboxes::Engine;
use atoll_model::Reason;
use atoll_store::{Artifact, ArtifactFilter, Artifacts};

use crate::attending::attend;
use crate::scanning::{Scanned, evidence, scan, seen};

/// A decision about an artifact, by an approver of its tenant.
pub struct ArtifactDecided<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The approver.
    pub by: &'a str,
    /// True if it is promoted, false if it is rejected.
    pub promotes: bool,
    /// The reason that was given.
    pub why: Option<&'a str>,
}

/// The artifacts of served sandboxes.
pub struct ServedArtifacts<'e>(pub &'e Engine);

impl ServedArtifacts<'_> {
    fn store(&self) -> Result<Option<Artifacts>, Failure> {
        Artifacts::open(kept_by(self.0).0, false).doing("the artifacts cannot be read")
    }

    fn existing(&self) -> Result<Artifacts, Failure> {
        let missing = || Failure::new("there are no artifacts");
        self.store()?.ok_or_else(missing)
    }

    /// Returns the artifacts that pass the filter.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn list(&self, filter: &ArtifactFilter) -> Result<Vec<Artifact>, Failure> {
        list(self.store()?.as_ref(), filter)
    }

    /// Returns a tenant's artifact of an id; `None` if there is none.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn find(&self, tenant: &str, id: &str) -> Result<Option<Artifact>, Failure> {
        let store = self.store()?;
        let found = store.map_or(Ok(Vec::new()), |store| store.find(id, Some(tenant)));
        let found = found.doing("the artifacts cannot be read")?;
        Ok(found.into_iter().find(|one| one.id == id))
    }

    /// Returns the signed statement about an artifact.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn statement(&self, artifact: &Artifact) -> Result<String, Failure> {
        let statement = self.existing()?.statement(artifact);
        statement.doing("the statement cannot be read")
    }

    /// Writes the content of an artifact, checked as it goes: where this fails, what was written is
    /// not to be used. Whether it may be given out is the caller's to know.
    ///
    /// # Errors
    /// When it cannot be read, or written.
    pub fn read(&self, artifact: &Artifact, to: &mut dyn Write) -> Result<(), Failure> {
        let read = self.existing()?.read(artifact, to);
        read.doing("the artifact cannot be read")
    }

    /// Returns when something was put away last, if anything was.
    #[must_use]
    pub fn changed(&self) -> Option<SystemTime> {
        let directory = kept_by(self.0).0.path().join("artifacts");
        directory.metadata().and_then(|facts| facts.modified()).ok()
    }

    /// Has what is put away meet the rule of its profile.
    ///
    /// # Errors
    /// When that cannot be read, or what was done not be noted.
    pub fn attend(&self) -> Result<(), Failure> {
        let program = std::env::current_exe().doing("this program cannot be found")?;
        attend(self.0, &program, None).map(drop)
    }

    /// Has all scanners look at an artifact.
    ///
    /// # Errors
    /// When it cannot be read, or the evidence not be kept.
    pub fn scan(&self, artifact: &Artifact) -> Result<(), Failure> {
        let program = std::env::current_exe().doing("this program cannot be found")?;
        scan(self.0, &self.existing()?, artifact, None, &program).map(drop)
    }

    /// Returns the words of scanners on an artifact.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn evidence(&self, artifact: &Artifact) -> Result<Vec<Scanned>, Failure> {
        evidence(&self.existing()?, artifact)
    }

    /// Promotes or rejects an artifact. Where policies have a person asked, the approver is that
    /// person.
    ///
    /// # Errors
    /// When policies refuse it, or it is decided about already.
    pub fn decide(&self, id: &str, decided: &ArtifactDecided<'_>) -> Result<Artifact, Failure> {
        let store = self.existing()?;
        let artifact = named(Some(&store), id, Some(decided.tenant))?;
        let (state, ledger) = kept_by(self.0);
        let deciding = Deciding {
            state,
            ledger,
            by: decided.by,
            why: decided.why,
            seen: &|one| seen(&store, one),
            agrees: &|_: &[Artifact], _: &[Reason]| Ok(()),
        };
        match decided.promotes {
            true => deciding
                .promote(&store, std::slice::from_ref(&artifact), None)
                .map(drop)?,
            false => deciding.reject(&store, &artifact)?,
        }
        named(Some(&store), id, Some(decided.tenant))
    }
}
