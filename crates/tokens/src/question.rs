//! What is asked of a token, and what its Datalog is told of it.

use std::time::Duration;

use atoll_model::network::{CredentialName, HostName, HostPart, Look, Request};
use biscuit_auth::builder::{Fact, Policy, Term, fact};
use biscuit_auth::{AuthorizerBuilder, AuthorizerLimits, Biscuit};

use crate::held::Holder;
use crate::terms::BOUND_TO_ONE;

/// Why something is denied that a token does not carry.
pub const NOT_CARRIED: &str = "the token does not carry it";

/// The most facts, those that rules conclude included.
const FACTS_MAX: u64 = 256;
/// How often all rules are looked at.
const ITERATIONS_MAX: u64 = 16;
/// How long an answer may take. What is asked of a token takes a small part of a millisecond
/// ([`crate::admitted`] bounds it): this is for a machine that has other things to do.
const TIME_MAX: Duration = Duration::from_secs(2);

/// What somebody wants to do.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// Ask for a name.
    Resolve(&'a HostName),
    /// Make a connection.
    Connect {
        /// To whom.
        host: &'a HostPart,
        /// At which port.
        port: u16,
        /// Whether its requests are judged one by one.
        look: Look,
    },
    /// Send a request.
    Request(&'a Request<'a>),
    /// Have a credential put in.
    UseCredential(&'a CredentialName),
    /// Let a port inside be visited.
    Publish(u16),
}

/// One fact of each name: more than one would make checks longer than they are.
fn facts(asked: Asked<'_>) -> Vec<Fact> {
    let text = |name: &str, text: &str| fact(name, &[Term::Str(text.to_owned())]);
    let number = |name: &str, number: u16| fact(name, &[Term::Integer(number.into())]);
    match asked {
        Asked::Resolve(name) => vec![text("action", "resolve"), text("host", name.as_str())],
        Asked::Connect { host, port, look } => {
            let look = match look {
                Look::Into => "into",
                Look::Past => "past",
            };
            vec![
                text("action", "connect"),
                text("host", &host.to_string()),
                number("port", port),
                text("look", look),
            ]
        }
        Asked::Request(request) => {
            let mut facts = vec![
                text("action", "request"),
                text("host", &request.host.to_string()),
                number("port", request.port),
                text("scheme", &request.scheme.to_string()),
                text("method", request.method),
            ];
            // A path that programs read in several ways is none that a right names.
            if request.target.unclear().is_none() {
                facts.push(text("path", request.target.path()));
            }
            facts
        }
        Asked::UseCredential(name) => {
            vec![
                text("action", "use-credential"),
                text("credential", name.as_str()),
            ]
        }
        Asked::Publish(port) => vec![text("action", "publish"), number("port", port)],
    }
}

/// Whether a token carries what is asked, by this holder at this time. Any error is a no.
pub(crate) fn carries(
    token: &Biscuit,
    policy: &Policy,
    asked: Asked<'_>,
    (holder, now_s): (&Holder, u64),
) -> bool {
    let text = |name: &str, text: &str| fact(name, &[Term::Str(text.to_owned())]);
    let mut all = facts(asked);
    all.push(fact("time", &[Term::Date(now_s)]));
    all.push(fact("person", &[Term::Integer(holder.person.into())]));
    all.push(text("run", holder.run.as_str()));
    all.push(text("workspace", &holder.workspace));
    if holder.is_bound {
        all.push(fact(BOUND_TO_ONE, &[Term::Bool(true)]));
    }
    if let Some(session) = &holder.session {
        all.push(text("session", session.as_str()));
    }
    let limits = AuthorizerLimits {
        max_facts: FACTS_MAX,
        max_iterations: ITERATIONS_MAX,
        max_time: TIME_MAX,
    };
    let mut asking = AuthorizerBuilder::new().set_limits(limits);
    for fact in all {
        asking = match asking.fact(fact) {
            Ok(asking) => asking,
            Err(_) => return false,
        };
    }
    let authorizer = asking
        .policy(policy.clone())
        .and_then(|asking| asking.build(token));
    authorizer.is_ok_and(|mut authorizer| authorizer.authorize().is_ok())
}
