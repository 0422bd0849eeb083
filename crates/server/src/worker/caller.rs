//! The callers of a server, once they are known.

use atoll_model::{Once, Served};
use atoll_store::{Role, Scopes};

use crate::protocol::{CallerFacts, CreateAsk, Kind, Refusal};

/// A caller whose key or token was checked.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) tenant: String,
    pub(super) name: String,
    pub(super) role: Role,
    /// The scopes of the key or token within that.
    pub(super) scopes: Scopes,
    /// The trace id of the request.
    pub(super) trace: Option<String>,
    /// The name of the request, if it is to be carried out once.
    pub(super) once: Option<Box<Once>>,
}

impl Caller {
    /// Returns the owner of the credential.
    pub(super) fn facts(&self) -> CallerFacts {
        CallerFacts {
            tenant: self.tenant.clone(),
            name: self.name.clone(),
        }
    }
}

/// Refuses whoever makes no sandboxes.
pub(super) fn check_maker(caller: &Caller) -> Result<(), Refusal> {
    if !matches!(caller.role, Role::Administrator | Role::User) {
        let what = format!("a key of the role {} makes no sandbox", caller.role.name());
        return Err(Refusal::new(Kind::Forbidden, what));
    }
    Ok(())
}

/// Describes a sandbox for the record.
pub(super) fn served(caller: &Caller, id: &str, ask: &CreateAsk) -> Served {
    Served {
        sandbox: id.to_owned(),
        tenant: caller.tenant.clone(),
        caller: Some(caller.name.clone()),
        template: ask.template.clone(),
        metadata: ask.metadata.clone(),
        volumes: Vec::new(),
        session: ask.session.clone(),
        trace: caller.trace.clone(),
        once: caller.once.clone().map(|mut once| {
            id.clone_into(&mut once.sandbox);
            once
        }),
    }
}
