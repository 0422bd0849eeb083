//! Token refresh by programs, where Atoll does not refresh the login itself.
//!
//! Such a refresh is refused: its response would contain the real tokens, and would invalidate
//! those of the person's own programs.

use atoll_model::network::Place;

use super::{Misuse, misuse};
use crate::credentials::CredentialPart;

/// The advice for a login that is no longer valid.
const OUTSIDE: &str = "log in again outside with the agent's own command, or let it renew its login there, \
                       and start a new run";

/// Builds the misuse of a refresh token's placeholder in a request that would refresh its login.
pub(in crate::inspect) fn renewal(held: &CredentialPart) -> Misuse {
    let why = "is in a request that would renew its login, which is not done from inside: log in again outside";
    Misuse {
        is_alert: false,
        ..misuse(held, why)
    }
}

/// Returns the advice on where a placeholder belongs.
pub(super) fn instead(held: &CredentialPart) -> String {
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
