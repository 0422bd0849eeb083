//! The certificate authority that a run's programs trust, so that their TLS can be intercepted.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use atoll_ledger::Durability;
use atoll_model::network::{Authority, Network};
use atoll_model::{Boundary, RunId};
use atoll_store::{AuthorityError, CertificateAuthority, TrustFiles};
use serde_json::json;

use crate::{PlaceError, Request};

/// The validity of the authority of a run without a time limit.
const LASTS: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// The time by which an authority outlives its run.
const LONGER: Duration = Duration::from_secs(60 * 60);

/// The deployment's authority, and the files by which a sandbox's programs trust it.
#[derive(Debug)]
pub(crate) struct Trust {
    authority: CertificateAuthority,
    files: TrustFiles,
    run: RunId,
    lasts: Duration,
}

impl Trust {
    /// Prepares the trust of a run; none if nothing of its network is intercepted.
    pub(crate) fn of(
        request: &Request<'_>,
        boundary: &Boundary,
    ) -> Result<Option<Self>, PlaceError> {
        if !boundary.network.is_inspected() {
            return Ok(None);
        }
        let authority = CertificateAuthority::open(request.state, request.now())?;
        if authority.is_new() {
            let body = json!({ "fingerprint": authority.fingerprint() });
            let ledger = request.ledger;
            ledger.record(None, "authority.made", body, Durability::Buffered)?;
        }
        let files = TrustFiles::of(request.state, &authority, request.now())?;
        let limit = boundary.limits.wall_clock;
        Ok(Some(Self {
            authority,
            files,
            run: request.call.run().clone(),
            lasts: limit.map_or(LASTS, |limit| limit.saturating_add(LONGER)),
        }))
    }

    /// Returns the directory of the files.
    pub(crate) fn files(&self) -> &Path {
        self.files.directory()
    }

    /// Issues an authority for the hosts of a network, if there is a trust.
    pub(crate) fn issue_for(of: Option<&Self>, network: &Network) -> io::Result<Option<Authority>> {
        of.map(|of| of.issue(network)).transpose()
    }

    /// Issues an authority for this run and the hosts of a network alone, under the deployment's as it was when the
    /// sandbox was made: that is the one the programs trust.
    fn issue(&self, network: &Network) -> io::Result<Authority> {
        let now = SystemTime::now();
        let issued = self.authority.issue(&self.run, network, now, self.lasts);
        issued.map_err(|error: AuthorityError| io::Error::other(error.to_string()))
    }
}
