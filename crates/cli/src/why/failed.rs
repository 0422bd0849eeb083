//! The connections of a run that were allowed and failed, from the ledger.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;

use atoll_engine::loopback;
use atoll_engine::remedies::network_hint;
use atoll_engine::supervision::Refused;
use atoll_ledger::Event;
use atoll_model::Ending;
use atoll_model::network::{
    CERTIFICATE_REFUSED, Flow, FlowKind, FlowLogin, FlowRequest, NO_NAME_SERVER, SIGNED_BY_ITSELF,
};
use serde_json::Value;

use super::{Story, text};
use crate::answered::given_up;
use crate::reached::unreached;
use crate::render::{Denied, Report, Style};

/// The most that are listed.
const SHOWN_MAX: usize = 64;

impl Story<'_> {
    /// Adds the failed connections, and what to do.
    pub(super) fn tell_failed(&self, report: &mut Report) {
        for failed in self.failed() {
            report.styled(
                "failed",
                &(failed.what.clone() + &failed.often()),
                Some(Style::Bad),
            );
        }
        if let Some(advice) = self.failed_advice() {
            report.line("to do", advice);
        }
        if let Some(hint) = self.unreached_hint() {
            report.line("to do", &hint);
        }
    }

    /// Returns the failed connections, each once, with its count.
    pub(super) fn failed(&self) -> Vec<Denied> {
        let mut opened: HashMap<u64, &Value> = HashMap::new();
        let mut failed: Vec<Denied> = Vec::new();
        for event in self.events {
            let id = event.body.get("flow").and_then(Value::as_u64);
            let Some(id) = id else { continue };
            match event.kind.as_str() {
                "flow.opened" => drop(opened.insert(id, &event.body)),
                "flow.closed" => {
                    let flow = opened.remove(&id).and_then(flow);
                    let is_unreached = event.body.get("unreached") == Some(&Value::Bool(true));
                    let why = text(event.body.get("failure"));
                    if let (Some(flow), Some(why), true) = (flow, why, is_unreached) {
                        let count = 1;
                        add(&mut failed, unreached(&Refused { flow, why, count }));
                    }
                }
                _ => {}
            }
        }
        failed
    }

    /// Returns the refused connections, each once: while a run goes on, and where nobody saw its end,
    /// nothing else has its denials.
    pub(super) fn refused_so_far(&self) -> Vec<Denied> {
        let mut all: Vec<Denied> = Vec::new();
        let refused = self.events.iter().filter(|one| one.kind == "flow.refused");
        for event in refused {
            let count = event.body.get("count").and_then(Value::as_u64);
            let refused = flow(&event.body).zip(text(event.body.get("why")));
            let Some((flow, why)) = refused else { continue };
            let one = unreached(&Refused {
                flow,
                why,
                count: count.unwrap_or(1),
            });
            match all.iter_mut().find(|known| known.what == one.what) {
                Some(known) => known.times = known.times.saturating_add(one.times),
                None => all.push(one),
            }
        }
        all.extend(given_up(self.events.iter()));
        all
    }

    /// Returns a hint for a command that fetches and failed where nothing could be reached: no
    /// connection of it was ever seen.
    pub(super) fn unreached_hint(&self) -> Option<String> {
        if self.is_served() {
            return None;
        }
        let has_failed = match self.ending()? {
            Ending::Exited { status } => status != 0,
            Ending::Signalled { .. } => true,
            Ending::Limited { .. }
            | Ending::NotFound
            | Ending::NotExecutable
            | Ending::Interrupted => false,
        };
        if let Some(hint) = self.loopback_hint(has_failed) {
            return Some(hint);
        }
        let is_without = text(self.decision("network")).as_deref() == Some("none");
        let could_reach = has_failed && is_without;
        could_reach.then(|| network_hint(&self.command(), self.is_closed()))?
    }

    /// Returns a hint where a service of this host was meant by a loopback address: by a connection
    /// that was refused, or in the command of a run that failed.
    fn loopback_hint(&self, has_failed: bool) -> Option<String> {
        let refused = self.events.iter().filter(|one| one.kind == "flow.refused");
        let of_flow = |event: &Event| {
            let host = text(event.body.get("host"))?;
            let port = event.body.get("port").and_then(Value::as_u64)?;
            let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
            loopback::is_loopback(&host).then_some(port)
        };
        let mut ports: BTreeSet<u16> = refused.filter_map(of_flow).collect();
        if has_failed {
            let command = self.command();
            let texts: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
            ports.extend(loopback::named(texts.iter().map(AsRef::as_ref)));
        }
        let leading = |port: &u16| {
            let option = OsString::from(format!("--host-port={port}"));
            self.options().any(|word| word == option)
        };
        ports.retain(|port| !leading(port));
        let is_fenced = text(self.decision("mode")).as_deref() == Some("fence");
        loopback::hint(&ports, is_fenced)
    }

    /// Returns advice if a certificate was the reason, or name servers were.
    fn failed_advice(&self) -> Option<&'static str> {
        let failed = self.failed();
        let is_for = |words: &str| failed.iter().any(|one| one.what.contains(words));
        if is_for(NO_NAME_SERVER) {
            return Some(
                "look at /etc/resolv.conf and at this host's own connection: getent hosts \
                 example.com, outside",
            );
        }
        if is_for(SIGNED_BY_ITSELF) {
            return Some(
                "have an authority of your own sign another certificate for that server, and name \
                 the authority's under [network] upstream-roots: to name this one there does not \
                 help, since no server may show one that signs others (openssl req -x509 makes such \
                 ones, unless it is told -addext basicConstraints=critical,CA:FALSE); where the \
                 program itself knows whom it trusts: --tunnel HOST:PORT",
            );
        }
        is_for(CERTIFICATE_REFUSED).then_some(
            "where an authority of your own has signed a certificate, name it: upstream-roots = \
             [\"/path/FILE.pem\"] under [network] of a profile; where the program itself knows whom it \
             trusts: --tunnel HOST:PORT; else that server may be another one than it says",
        )
    }
}

fn add(failed: &mut Vec<Denied>, one: Denied) {
    if let Some(known) = failed.iter_mut().find(|known| known.what == one.what) {
        known.times = known.times.saturating_add(1);
    } else if failed.len() < SHOWN_MAX {
        failed.push(one);
    }
}

/// Reads a flow from the event that opened or refused it.
fn flow(body: &Value) -> Option<Flow> {
    let port = body.get("port").and_then(Value::as_u64).unwrap_or(0);
    let scheme = body.get("scheme").cloned();
    let scheme = scheme.and_then(|scheme| serde_json::from_value(scheme).ok());
    let request = match (scheme, text(body.get("method")), text(body.get("path"))) {
        (Some(scheme), Some(method), Some(path)) => Some(FlowRequest {
            scheme,
            method,
            path,
            confidence: None,
            redacted: None,
        }),
        _ => None,
    };
    let limit = body.get("limit").cloned();
    let kind = body.get("kind").cloned();
    let kind = kind.and_then(|kind| serde_json::from_value(kind).ok());
    let login = match (text(body.get("user")), text(body.get("database"))) {
        (Some(user), Some(database)) => Some(FlowLogin { user, database }),
        (_, _) => None,
    };
    Some(Flow {
        kind: match (kind, &request, &login) {
            (Some(kind), ..) => kind,
            (None, Some(_), _) => FlowKind::Request,
            (None, None, Some(_)) => FlowKind::Postgres,
            (None, None, None) => FlowKind::Tunnel,
        },
        host: text(body.get("host"))?,
        address: None,
        port: u16::try_from(port).ok()?,
        rule: text(body.get("rule")),
        request,
        limit: limit.and_then(|limit| serde_json::from_value(limit).ok()),
        credentials: Vec::new(),
        login,
        policies: 0,
        via: None,
    })
}
