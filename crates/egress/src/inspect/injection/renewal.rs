//! Logins that programs would renew.
//!
//! It is not done from inside: what is answered would be the real tokens, and those that the
//! person's own programs have would not be valid any more.

use atoll_model::network::Place;

use super::{Misuse, misuse};
use crate::credentials::Held;

/// What to do where a login is not valid any more.
const OUTSIDE: &str = "log in again outside with the agent's own command, or let it renew its login there, \
                       and start a new run";

/// A login that its program wants to renew, where that is done.
pub(in crate::inspect) fn renewal(held: &Held) -> Misuse {
    let why = "is in a request that would renew its login, which is not done from inside: log in again outside";
    Misuse {
        is_alert: false,
        ..misuse(held, why)
    }
}

/// Where a placeholder may stand, for who has written it elsewhere.
pub(super) fn instead(held: &Held) -> String {
    let name = held.name();
    match &held.binding.place {
        Place::Refresh(_) => {
            format!("credential {name} renews a login, and is put in nowhere: {OUTSIDE}")
        }
        Place::Header { .. }
        | Place::Basic(_)
        | Place::Query(_)
        | Place::Body(_)
        | Place::SigV4(_)
        | Place::Postgres(_) => format!(
            "credential {name} is put in for {}: write its placeholder nowhere else",
            held.binding
        ),
    }
}
