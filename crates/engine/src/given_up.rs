//! The rights that a session's runs have dropped: recorded in the ledger, and read by its next
//! run.

use std::time::SystemTime;

use atoll_ledger::{EventBody, Filter, Ledger, LedgerError, RIGHTS_GIVEN_UP, StateDir};
use atoll_model::SessionId;
use atoll_model::network::{GivenUp, GivenUpBy, GivenUps, Restriction};
use serde_json::Value;

use crate::{Request, Tokens};

/// The cause of a right's end that a run's token set: a later run of the session can hold
/// another token.
const TOKEN: &str = "token";

/// Builds the ledger event. Its members are in the order of their names.
pub(crate) fn event(given: &GivenUp) -> EventBody {
    let body = EventBody::default().number("at", given.at_s);
    let (by, uid) = match given.by {
        GivenUpBy::Program {} => ("program", None),
        GivenUpBy::Person { uid } => ("person", Some(uid)),
        GivenUpBy::TokenEnd {} | GivenUpBy::TokenRevoked {} => (TOKEN, None),
    };
    let body = body.text("by", by);
    let host = |host: &atoll_model::network::GivenUpHost| String::from(host.clone());
    let body = match &given.what {
        Restriction::Credential(name) => body.text("credential", name.as_str()),
        Restriction::Host(hosts) => body.text("host", &host(hosts)),
        Restriction::Network {} => body.truth("network"),
        Restriction::After { .. } => body,
    };
    let body = match uid {
        Some(uid) => body.number("uid", uid.into()),
        None => body,
    };
    match &given.what {
        Restriction::After { time_s } => body.number("until", *time_s),
        Restriction::Credential(_) | Restriction::Host(_) | Restriction::Network {} => body,
    }
}

/// Reads the body of such an event.
fn read(body: &Value) -> Option<GivenUp> {
    let number = |member: &str| body.get(member).and_then(Value::as_u64);
    let text = |member: &str| body.get(member).and_then(Value::as_str);
    let by = match (text("by")?, number("uid")) {
        ("program", None) => GivenUpBy::Program {},
        ("person", Some(uid)) => GivenUpBy::Person {
            uid: u32::try_from(uid).ok()?,
        },
        (_, _) => return None,
    };
    let network = body.get("network").and_then(Value::as_bool);
    let what = match (network, text("host"), text("credential"), number("until")) {
        (Some(true), None, None, None) => Restriction::Network {},
        (None, Some(host), None, None) => Restriction::Host(host.to_owned().try_into().ok()?),
        (None, None, Some(name), None) => Restriction::Credential(name.parse().ok()?),
        (None, None, None, Some(time_s)) => Restriction::After { time_s },
        (_, _, _, _) => return None,
    };
    Some(GivenUp {
        at_s: number("at")?,
        by,
        what,
    })
}

/// Returns the rights dropped in the run's session before it, and the end that its tokens set.
///
/// # Errors
/// [`LedgerError`]: the dropped rights are unknown.
pub(crate) fn before(request: &Request<'_>) -> Result<GivenUps, LedgerError> {
    let mut all = match &request.call.session {
        Some(session) => of_session(request.state, session)?,
        None => GivenUps::default(),
    };
    if let Some(time_s) = request.tokens.and_then(Tokens::end_s) {
        let since = request.now().duration_since(SystemTime::UNIX_EPOCH);
        let end = GivenUp {
            at_s: since.map_or(0, |since| since.as_secs()),
            by: GivenUpBy::TokenEnd {},
            what: Restriction::After { time_s },
        };
        // There is always room for the one that a token gives.
        let _ = all.add(end);
    }
    Ok(all)
}

/// Returns the rights that a session has dropped so far. If one of its events cannot be read,
/// such as one of a newer Atoll, or there are too many, no network is left.
///
/// # Errors
/// [`LedgerError`]: the dropped rights are unknown.
pub fn of_session(state: &StateDir, session: &SessionId) -> Result<GivenUps, LedgerError> {
    let filter = Filter {
        session: Some(session.clone()),
        kind: Some(RIGHTS_GIVEN_UP.to_owned()),
        ..Filter::default()
    };
    let mut all = GivenUps::default();
    for event in Ledger::events(state, filter)? {
        let event = event?;
        if !is_of_token(&event.body) {
            take_given_up(&mut all, &event.body);
        }
    }
    Ok(all)
}

/// Returns whether the end of a token caused it: a later run of the session may hold another.
pub fn is_of_token(body: &Value) -> bool {
    body.get("by").and_then(Value::as_str) == Some(TOKEN)
}

/// Adds the right dropped by an event `rights.given-up`, for readers of the ledger. If the
/// event cannot be read, such as one of a newer Atoll, or there are too many, no network is
/// left.
pub fn take_given_up(all: &mut GivenUps, body: &Value) {
    let given = match is_of_token(body) {
        true => Some(GivenUp {
            at_s: body.get("at").and_then(Value::as_u64).unwrap_or_default(),
            by: GivenUpBy::TokenRevoked {},
            what: Restriction::Network {},
        }),
        false => read(body),
    };
    let is_added = given.is_some_and(|one| all.add(one).is_ok());
    if !is_added {
        let unread = GivenUp {
            at_s: 0,
            by: GivenUpBy::Program {},
            what: Restriction::Network {},
        };
        // There is always room for this one.
        let _ = all.add(unread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read_again() {
        let person = GivenUpBy::Person { uid: 7 };
        let program = GivenUpBy::Program {};
        let host = |text: &str| Restriction::Host(text.to_owned().try_into().unwrap());
        let cases = [
            (
                program,
                Restriction::Network {},
                r#"{"at":5,"by":"program","network":true}"#,
            ),
            (
                person,
                host("*.example.com"),
                r#"{"at":5,"by":"person","host":"*.example.com","uid":7}"#,
            ),
            (
                person,
                Restriction::Credential("key".parse().unwrap()),
                r#"{"at":5,"by":"person","credential":"key","uid":7}"#,
            ),
            (
                person,
                Restriction::After { time_s: 9 },
                r#"{"at":5,"by":"person","uid":7,"until":9}"#,
            ),
        ];
        for (by, what, expected) in cases {
            let given = GivenUp { at_s: 5, by, what };
            let written = event(&given).finish().unwrap();
            assert_eq!(String::from_utf8(written.clone()).unwrap(), expected);
            let value: Value = serde_json::from_slice(&written).unwrap();
            assert_eq!(read(&value), Some(given));
        }
        let [one] = [r#"{"at":5,"by":"program","host":"a","network":true}"#];
        assert_eq!(read(&serde_json::from_str(one).unwrap()), None);
    }

    #[test]
    fn a_token_that_was_revoked_is_nobodys_later() {
        let given = GivenUp {
            at_s: 5,
            by: GivenUpBy::TokenRevoked {},
            what: Restriction::Network {},
        };
        let written = event(&given).finish().unwrap();
        let expected = r#"{"at":5,"by":"token","network":true}"#;
        assert_eq!(String::from_utf8(written.clone()).unwrap(), expected);
        let body: Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(body.get("by").and_then(Value::as_str), Some(TOKEN));
        assert_eq!(read(&body), None);
    }
}
