//! Which connections there are, so that a program can end what its own ones do, and nobody
//! else's.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use atoll_model::network::ServerTls;

use super::startup::Key;
use crate::dial::Place;
use crate::tunnel::Wanted;

/// Where a connection goes, and by what it is ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Session {
    host: String,
    port: u16,
    key: Key,
}

/// Its server, how that is spoken to, and the number of the approval by which it is there.
type By = (Place, ServerTls, Option<u32>);

/// The connections of one sandbox that are signed in.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<Session, By>>);

/// One of them, as long as it is there.
pub(super) struct Present<'a> {
    sessions: &'a Sessions,
    session: Session,
}

impl Sessions {
    fn all(&self) -> MutexGuard<'_, HashMap<Session, By>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one up.
    pub(super) fn enter(&self, to: &Wanted, key: Key, by: By) -> Present<'_> {
        let session = Session {
            host: to.host.to_string(),
            port: to.port,
            key,
        };
        self.all().insert(session.clone(), by);
        Present {
            sessions: self,
            session,
        }
    }

    /// Where the one is that this key ends, and by which approval.
    pub(super) fn by(&self, to: &Wanted, key: Key) -> Option<By> {
        let session = Session {
            host: to.host.to_string(),
            port: to.port,
            key,
        };
        self.all().get(&session).copied()
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.sessions.all().remove(&self.session);
    }
}
