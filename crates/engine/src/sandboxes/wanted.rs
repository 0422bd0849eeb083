//! The parts of a request for a sandbox, in the words of its decision.

use std::path::Path;

use atoll_model::{Place, RESIDENT};
use atoll_policy::PriorAnswer;
use sha2::{Digest, Sha256};

use super::{CreateSandbox, Workspace};
use crate::ChangeRetention;
use crate::run::At;

impl Workspace {
    /// Returns where programs work and begin.
    pub(super) fn at(&self) -> At {
        let workspace = self.directory().to_owned();
        At {
            workspace: workspace.clone(),
            directory: workspace,
        }
    }

    /// Returns the directory that programs begin in, absolute.
    #[must_use]
    pub fn directory(&self) -> &Path {
        match self {
            Self::Directory(workspace) => workspace,
            Self::Own(_) => Path::new(RESIDENT.home),
        }
    }

    /// Returns the name of its session in the ledger: those of tenants are apart from each other, and
    /// from those of `atoll run`.
    pub(super) fn session(&self) -> Option<String> {
        let Self::Own(served) = self else {
            return None;
        };
        let of = Sha256::digest(served.tenant.as_bytes());
        let of: String = of
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let name = served.session.as_ref()?;
        Some(format!("served-{of}.{name}"))
    }

    pub(crate) fn place(&self) -> Place {
        match self {
            Self::Directory(workspace) => Place::Directory {
                workspace: workspace.clone(),
                directory: workspace.clone(),
            },
            Self::Own(served) => Place::Served(served.clone()),
        }
    }
}

impl CreateSandbox {
    /// Returns whether its caller asks an approver by itself, and has not yet.
    pub(super) fn asks_caller(&self) -> bool {
        matches!(self.workspace, Workspace::Own(_)) && self.answer == PriorAnswer::Nobody
    }

    pub(super) fn is_discarded(&self) -> bool {
        self.discard || matches!(self.workspace, Workspace::Own(_))
    }

    pub(super) fn retention(&self) -> ChangeRetention {
        match self.is_discarded() {
            true => ChangeRetention::Scratch,
            false => ChangeRetention::Open,
        }
    }
}
