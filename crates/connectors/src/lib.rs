//! Connectors: parts of the egress process that speak one foreign protocol each, behind the
//! interface that [`atoll_egress::connector`] gives them.
//!
//! A connector decides on nothing, and must never know rules, policies or the ledger: it asks
//! [`atoll_egress::Egress`]. Each has a cargo feature of its name. Start reading at [`all`].

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "ssh")]
pub mod ssh;

use atoll_egress::connector::Connectors;

/// Returns the connectors of this build.
#[must_use]
pub fn all() -> Connectors {
    Connectors {
        #[cfg(feature = "postgres")]
        postgres: Some(Box::<postgres::Postgres>::default()),
        #[cfg(not(feature = "postgres"))]
        postgres: None,
        #[cfg(feature = "ssh")]
        ssh: Some(Box::new(ssh::SshAgent)),
        #[cfg(not(feature = "ssh"))]
        ssh: None,
    }
}
