//! The run, the session or the tenant that a command about kept data is about.

use std::collections::BTreeSet;

use atoll_engine::configuration::Places;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::finding::sessions;
use atoll_engine::printable::printable;
use atoll_ledger::{Evidence, StateDir, runs_of};
use atoll_store::RetainedStore as _;

use crate::finding;
use crate::output::Output;
use crate::serve::existing_store;

/// The words before a name that could be of either kind.
const SESSION: &str = "session:";
const TENANT: &str = "tenant:";

/// The run, session or tenant that a text names.
pub struct Meant {
    /// Its evidence.
    pub what: Evidence,
    /// Its kind and name.
    pub name: String,
}

impl Meant {
    /// Finds what a text names; with `asking`, the last run of another workspace needs a confirmation.
    ///
    /// # Errors
    /// When there is none of this name, or two.
    pub fn find(state: &StateDir, text: &str, asking: Option<&Output>) -> Result<Self, Failure> {
        if let Some(name) = text.strip_prefix(TENANT) {
            return of_tenant(state, name)?.ok_or_else(|| {
                let shown = printable(name.as_bytes());
                Failure::new(format!("there is no tenant {shown}"))
                    .advise("atoll serve keys list shows the tenants of keys")
            });
        }
        if let Some(name) = text.strip_prefix(SESSION) {
            return sessions::find(state, name).map(of_session);
        }
        let session = sessions::find(state, text).ok().map(of_session);
        match (session, of_tenant(state, text)?) {
            (Some(_), Some(_)) => {
                let shown = printable(text.as_bytes());
                Err(Failure::new(format!("{shown} is a session and a tenant"))
                    .advise(format!("write {SESSION}{shown} or {TENANT}{shown}")))
            }
            (Some(one), None) | (None, Some(one)) => Ok(one),
            (None, None) => {
                let run = finding::find_begun(state, text, asking)?;
                Ok(Self {
                    name: format!("run {run}"),
                    what: Evidence::Run(run),
                })
            }
        }
    }
}

fn of_session(session: atoll_ledger::Session) -> Meant {
    Meant {
        name: format!("session {}", printable(session.name.as_str().as_bytes())),
        what: Evidence::Session(session.id),
    }
}

/// Returns the tenant of this name, if a server has or had one.
fn of_tenant(state: &StateDir, name: &str) -> Result<Option<Meant>, Failure> {
    let store = existing_store(&Places::read()?)?;
    let known = store.map_or(Ok(Vec::new()), |store| store.tenants());
    let known = known.doing("the server's store cannot be read")?;
    let what = Evidence::Tenant(name.to_owned());
    let is_known = known.iter().any(|one| one == name) || {
        let runs = runs_of(state, &BTreeSet::from([what.clone()]));
        !runs.doing("the ledger cannot be read")?.is_empty()
    };
    Ok(is_known.then(|| Meant {
        name: format!("tenant {}", printable(name.as_bytes())),
        what,
    }))
}
