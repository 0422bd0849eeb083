//! Questions put to a token, and the facts that its Datalog gets about them.

use std::time::Duration;

use atoll_model::network::{CredentialName, HostName, HostPart, Look, Request};
use atoll_model::{RunId, SessionName};
use biscuit_auth::builder::{Fact, Policy, Term, fact};
use biscuit_auth::{AuthorizerBuilder, AuthorizerLimits, Biscuit};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::calls;
use crate::terms::BOUND_TO_ONE;

/// The reason for denying anything that the token does not carry.
pub const NOT_CARRIED: &str = "the token does not carry it";

/// The most facts, including those that rules conclude.
const FACTS_MAX: u64 = 256;
/// The most iterations over all rules.
const ITERATIONS_MAX: u64 = 16;
/// The longest time for an answer. A question takes a small part of a millisecond
/// ([`crate::admitted`] bounds it): this is for a busy machine.
const TIME_MAX: Duration = Duration::from_secs(2);

/// An action that a token is asked about.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// Resolve a name.
    Resolve(&'a HostName),
    /// Make a connection.
    Connect {
        /// The destination host.
        host: &'a HostPart,
        /// The destination port.
        port: u16,
        /// The inspection of the connection: whether its requests are judged one by one.
        look: Look,
    },
    /// Send a request.
    Request(&'a Request<'a>),
    /// Inject a credential.
    UseCredential(&'a CredentialName),
    /// Publish a port of the sandbox.
    Publish(u16),
    /// Call a tool.
    Call {
        /// Its name.
        tool: &'a str,
        /// The arguments.
        arguments: &'a Map<String, Value>,
    },
}

/// Returns the facts of a question, one of each name: more would make checks longer than they are.
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
        Asked::Call { tool, arguments } => calls::facts(tool, arguments),
    }
}

/// Returns whether a token carries an action, by this holder at this time. False on any error.
pub(crate) fn carries(
    token: &Biscuit,
    policy: &Policy,
    asked: Asked<'_>,
    holder: &Holder,
    now_s: u64,
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

/// The holder of tokens. A token that is bound to another session or workspace carries nothing
/// here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// The run.
    pub run: RunId,
    /// The session that it belongs to.
    pub session: Option<SessionName>,
    /// The real path of its workspace.
    pub workspace: String,
    /// The person's user id on this host.
    pub person: u32,
    /// Set when tokens for a single run ([`Token::once`](crate::Token::once)) are bound to this one.
    pub is_bound: bool,
}
