//! The results of a run's connections, for its summary.

use std::collections::BTreeMap;

use atoll_model::network::{Flow, FlowEnd, FlowKind, Listener, Published};
use atoll_sandbox::Stopped;

use crate::supervision::login_renewal::RenewedLogin;
use crate::supervision::token_renewal::RotatedToken;

/// The most refusals kept: all that the egress process tells apart, of four kinds.
const REFUSED_MAX: usize = 4 * 2 * 1024 + 4;

/// The most failures kept.
const FAILED_MAX: usize = 256;

/// The most pairs of credential and host counted.
const USED_MAX: usize = 1024;

/// The status of an answer to a request with missing or invalid credentials.
const UNAUTHORISED: u16 = 401;

/// A flow that was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The flow as attempted.
    pub flow: Flow,
    /// The reason.
    pub why: String,
    /// The number of attempts.
    pub count: u64,
}

/// The results of a run's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flows {
    /// The number of connections made.
    pub made: u64,
    /// The number of connections to published ports.
    pub published: u64,
    /// The number of intercepted requests that were forwarded.
    pub requests: u64,
    /// The number of requests with an injected credential, by the credential's name and the
    /// host.
    pub used: BTreeMap<(String, String), u64>,
    /// The number of those that the host answered with 401 (RFC 9110, 15.5.2); without a name,
    /// the requests without a credential.
    pub unauthorised: BTreeMap<(String, String), u64>,
    /// The number of requests whose body was sent without a credential's placeholder, by the
    /// credential's name and the host.
    pub masked: BTreeMap<(String, String), u64>,
    /// The number of revoked values of a credential, by its name.
    pub taken_back: BTreeMap<String, u64>,
    /// The logins whose files on the host were updated, in order.
    pub renewed: Vec<RenewedLogin>,
    /// The refresh tokens replaced by their issuers, in order.
    pub rotated: Vec<RotatedToken>,
    /// Bytes from the program.
    pub up_bytes: u64,
    /// Bytes to the program.
    pub down_bytes: u64,
    /// The signatures by SSH keys and the logins to databases, with their number: for a login
    /// `user@host`, in order.
    pub signed: Vec<(FlowKind, String, u64)>,
    /// The ports published while the run went on, in order.
    pub published_later: Vec<Published>,
    /// The listeners that appeared in the sandbox, each once, if they lasted about a second; or
    /// ten, if as many sockets ended meanwhile as began.
    pub listened: Vec<Listener>,
    /// The refused flows, in order.
    pub refused: Vec<Refused>,
    /// The flows that were allowed and failed, in order: the first of each kind.
    pub failed: Vec<Refused>,
    /// The person who stopped the run, if any.
    pub stopped: Option<Stopped>,
    /// The reason why the network failed during the run, if it did.
    pub failure: Option<String>,
}

impl Flows {
    /// Counts a flow that begins.
    pub(crate) fn opened(&mut self, flow: &Flow) {
        if let Some(count) = self.number(flow.kind) {
            *count = count.saturating_add(1);
        }
    }

    /// Counts a flow that has ended.
    pub(crate) fn closed(&mut self, flow: Flow, end: FlowEnd) {
        self.up_bytes = self.up_bytes.saturating_add(end.up_bytes);
        self.down_bytes = self.down_bytes.saturating_add(end.down_bytes);
        if let (FlowKind::SshLogin | FlowKind::CommitSignature, None) = (flow.kind, &end.failure) {
            self.sign(&flow);
        }
        if let (FlowKind::Postgres, Some(_), false) = (flow.kind, &flow.login, end.is_unreached) {
            self.sign(&flow);
        }
        if flow.kind == FlowKind::Request && !end.is_unreached {
            let names: Vec<String> = flow.credentials.iter().map(ToString::to_string).collect();
            let is_unauthorised = end.status == Some(UNAUTHORISED);
            if is_unauthorised && names.is_empty() {
                count_at(&mut self.unauthorised, String::new(), &flow.host);
            }
            for name in names {
                if is_unauthorised {
                    count_at(&mut self.unauthorised, name.clone(), &flow.host);
                }
                count_at(&mut self.used, name, &flow.host);
            }
            for name in &end.masked {
                count_at(&mut self.masked, name.to_string(), &flow.host);
            }
        }
        if let (FlowKind::Revocation, None) = (flow.kind, &end.failure) {
            for name in &flow.credentials {
                let count = self.taken_back.entry(name.to_string()).or_default();
                *count = count.saturating_add(1);
            }
        }
        if let Some(why) = end.failure.filter(|_| end.is_unreached) {
            self.fail(flow, why);
        }
    }

    /// Returns how often a placeholder was about to be sent to a host that its credential is
    /// not for.
    #[must_use]
    pub fn alerts(&self) -> u64 {
        let alerts = self
            .refused
            .iter()
            .filter(|one| !one.flow.credentials.is_empty());
        alerts.fold(0, |sum, one| sum.saturating_add(one.count))
    }

    /// Counts a signature, under the destination that its rule names, or a login to a database.
    fn sign(&mut self, flow: &Flow) {
        let rule = flow.rule.as_deref().unwrap_or_default();
        let of_database = flow.login.as_ref().map(|login| login.told(&flow.host));
        let whom = match &of_database {
            Some(whom) => whom.as_str(),
            None => rule.split_once(' ').map_or(rule, |(whom, _)| whom),
        };
        let is_it = |one: &&mut (FlowKind, String, u64)| one.0 == flow.kind && one.1 == whom;
        match self.signed.iter_mut().find(is_it) {
            Some((_, _, count)) => *count = count.saturating_add(1),
            None => self.signed.push((flow.kind, whom.to_owned(), 1)),
        }
    }

    fn fail(&mut self, flow: Flow, why: String) {
        // One of a host's addresses is as good as another.
        let flow = Flow {
            address: None,
            ..flow
        };
        let is_same = |one: &&Refused| one.flow == flow && one.why == why;
        let before = self.failed.iter().find(is_same).map_or(0, |one| one.count);
        let count = before.saturating_add(1);
        keep(&mut self.failed, Refused { flow, why, count }, FAILED_MAX);
    }

    /// Counts a refusal.
    pub(crate) fn refuse(&mut self, refused: Refused) {
        keep(&mut self.refused, refused, REFUSED_MAX);
    }

    /// Returns the counter of a kind of flow, if it is counted at the beginning.
    fn number(&mut self, kind: FlowKind) -> Option<&mut u64> {
        match kind {
            FlowKind::Request => Some(&mut self.requests),
            FlowKind::Published => Some(&mut self.published),
            FlowKind::Tunnel | FlowKind::Postgres => Some(&mut self.made),
            // Those that were given are counted at their end; what Atoll itself asks is no
            // program's.
            FlowKind::Name
            | FlowKind::SshLogin
            | FlowKind::CommitSignature
            | FlowKind::Fetch
            | FlowKind::Revocation => None,
        }
    }
}

/// Counts a request with a credential to a host.
fn count_at(counts: &mut BTreeMap<(String, String), u64>, name: String, host: &str) {
    let key = (name, host.to_owned());
    if counts.len() < USED_MAX || counts.contains_key(&key) {
        let count = counts.entry(key).or_default();
        *count = count.saturating_add(1);
    }
}

/// Adds an entry, or updates the count of an equal one.
fn keep(list: &mut Vec<Refused>, refused: Refused, max: usize) {
    let is_same = |one: &&mut Refused| one.flow == refused.flow && one.why == refused.why;
    if let Some(known) = list.iter_mut().find(is_same) {
        known.count = known.count.max(refused.count);
    } else if list.len() < max {
        list.push(refused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(kind: FlowKind) -> Flow {
        Flow {
            kind,
            host: "example.com".to_owned(),
            address: Some([192, 0, 2, 1].into()),
            via: None,
            port: 443,
            rule: None,
            request: None,
            limit: None,
            credentials: Vec::new(),
            login: None,
            policies: 0,
        }
    }

    #[test]
    fn what_came_to_nothing_is_counted_and_told_once() {
        let mut flows = Flows::default();
        let end = |failure: Option<&str>, is_unreached, down_bytes| FlowEnd {
            failure: failure.map(str::to_owned),
            is_unreached,
            down_bytes,
            ..FlowEnd::default()
        };
        for (kind, end) in [
            (FlowKind::Tunnel, end(None, false, 0)),
            (FlowKind::Tunnel, end(Some("late"), true, 0)),
            (FlowKind::Tunnel, end(Some("late"), true, 0)),
            (FlowKind::Tunnel, end(Some("refused"), false, 0)),
            (FlowKind::Tunnel, end(Some("broken"), false, 7)),
            (FlowKind::Request, end(Some("late"), true, 0)),
            (FlowKind::Published, end(Some("nobody"), true, 0)),
            (FlowKind::Name, end(Some("unknown"), false, 0)),
        ] {
            flows.opened(&flow(kind));
            flows.closed(flow(kind), end);
        }
        assert_eq!((flows.made, flows.requests, flows.published), (5, 1, 1));
        assert!(flows.used.is_empty());
        for _ in 0..2 {
            let one = Flow {
                credentials: vec!["one".parse().unwrap()],
                ..flow(FlowKind::Request)
            };
            flows.opened(&one);
            flows.closed(one, FlowEnd::default());
        }
        let key = ("one".to_owned(), "example.com".to_owned());
        assert_eq!(flows.used, BTreeMap::from([(key.clone(), 2)]));
        assert!(flows.unauthorised.is_empty());
        for (credentials, status) in [
            (vec!["one".parse().unwrap()], 401),
            (vec![], 401),
            (vec![], 403),
        ] {
            let one = Flow {
                credentials,
                ..flow(FlowKind::Request)
            };
            let status = Some(status);
            flows.closed(
                one,
                FlowEnd {
                    status,
                    ..FlowEnd::default()
                },
            );
        }
        let none = (String::new(), "example.com".to_owned());
        assert_eq!(
            flows.unauthorised,
            BTreeMap::from([(key.clone(), 1), (none, 1)])
        );
        assert_eq!(flows.used, BTreeMap::from([(key, 3)]));
        let failed = flows.failed.iter().map(|one| (one.flow.kind, one.count));
        let told = [
            (FlowKind::Tunnel, 2),
            (FlowKind::Request, 1),
            (FlowKind::Published, 1),
        ];
        assert_eq!(failed.collect::<Vec<_>>(), told);
        // Into one that came to nothing it was not put, as far as anybody knows.
        let other = Flow {
            credentials: vec!["other".parse().unwrap()],
            ..flow(FlowKind::Request)
        };
        flows.opened(&other);
        flows.closed(other, end(Some("refused"), true, 0));
        assert_eq!(flows.used.len(), 1);
        // What is taken back is counted where it was.
        for failure in [None, Some("refused"), None] {
            let one = Flow {
                credentials: vec!["one".parse().unwrap()],
                ..flow(FlowKind::Revocation)
            };
            flows.opened(&one);
            flows.closed(one, end(failure, failure.is_some(), 0));
        }
        assert_eq!(flows.taken_back, BTreeMap::from([("one".to_owned(), 2)]));
        assert_eq!((flows.used.len(), flows.requests), (1, 4));
    }
}
