//! The database connections that are open, so that a program can cancel queries of its own ones,
//! and nobody else's.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use atoll_model::network::ServerTls;

use super::startup::Key;
use atoll_egress::connector::{Destination, Route};

/// A connection's destination, and its cancellation key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Session {
    host: String,
    port: u16,
    key: Key,
}

/// Its server, the TLS demanded of that, and the number of its approval.
type SessionServer = (Route, ServerTls, Option<u32>);

/// The authenticated connections of one sandbox.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<Session, SessionServer>>);

/// An entry for one of them, removed on drop.
pub(super) struct SessionEntry<'a> {
    sessions: &'a Sessions,
    session: Session,
}

impl Sessions {
    fn all(&self) -> MutexGuard<'_, HashMap<Session, SessionServer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection.
    pub(super) fn enter(&self, to: &Destination, key: Key, by: SessionServer) -> SessionEntry<'_> {
        let session = Session {
            host: to.host.to_string(),
            port: to.port,
            key,
        };
        self.all().insert(session.clone(), by);
        SessionEntry {
            sessions: self,
            session,
        }
    }

    /// Returns the place, TLS and approval of the connection that this key cancels.
    pub(super) fn by(&self, to: &Destination, key: Key) -> Option<SessionServer> {
        let session = Session {
            host: to.host.to_string(),
            port: to.port,
            key,
        };
        self.all().get(&session).copied()
    }
}

impl Drop for SessionEntry<'_> {
    fn drop(&mut self) {
        self.sessions.all().remove(&self.session);
    }
}
