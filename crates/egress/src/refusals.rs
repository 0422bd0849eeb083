//! Refused flows: each reported once, and counted.

use std::borrow::Cow;
use std::collections::HashMap;

use atoll_model::network::{Flow, FlowKind, FlowReport};

/// The most different refusals of one kind that are reported in full.
pub(crate) const REFUSALS_MAX: usize = 1024;
/// The most further hosts and ports of one kind that are reported by name.
pub(crate) const PLACES_MAX: usize = 1024;

/// The refusals of one sandbox. Each kind has its own limit, so that cheap attempts of one kind
/// hide none of another.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    names: Refused,
    tunnels: Refused,
    requests: Refused,
    visits: Refused,
    signatures: Refused,
    /// Refusals for a credential's placeholder: nothing else counts against their limit, so that
    /// nobody keeps them from being reported.
    misuses: Refused,
}

/// The refusals of one kind.
#[derive(Debug, Default)]
struct Refused {
    whole: HashMap<(Flow, String), u64>,
    /// The hosts and ports of further ones.
    places: HashMap<(String, u16), u64>,
    /// The number of those of which nothing is kept.
    others: u64,
}

impl Refusals {
    /// Counts a refusal. Returns the report to be sent at once, if there is one.
    pub(crate) fn count(&mut self, flow: Flow, why: String) -> Option<FlowReport> {
        let kind = flow.kind;
        let of_kind = match kind {
            _ if !flow.credentials.is_empty() => &mut self.misuses,
            FlowKind::Name => &mut self.names,
            FlowKind::Tunnel | FlowKind::Postgres => &mut self.tunnels,
            // Those of Atoll's own are refused with the request that needs them.
            FlowKind::Request | FlowKind::Fetch | FlowKind::Revocation => &mut self.requests,
            FlowKind::Published => &mut self.visits,
            FlowKind::SshLogin | FlowKind::CommitSignature => &mut self.signatures,
        };
        let key = (flow, why);
        if let Some(count) = of_kind.whole.get_mut(&key) {
            *count = count.saturating_add(1);
            return None;
        }
        if of_kind.whole.len() < REFUSALS_MAX {
            let (flow, why) = key.clone();
            of_kind.whole.insert(key, 1);
            return Some(refusal_report(flow, why, 1));
        }
        let (flow, _) = key;
        of_kind.count_place(kind, (flow.host, flow.port))
    }

    /// Returns the reports that are left for the end.
    pub(crate) fn rest(self) -> impl Iterator<Item = FlowReport> {
        let names = self.names.rest(FlowKind::Name);
        let tunnels = self.tunnels.rest(FlowKind::Tunnel);
        let requests = self.requests.rest(FlowKind::Request);
        let visits = self.visits.rest(FlowKind::Published);
        let signatures = self.signatures.rest(FlowKind::SshLogin);
        let misuses = self.misuses.rest(FlowKind::Request);
        let all = names.chain(tunnels).chain(requests).chain(visits);
        all.chain(signatures).chain(misuses)
    }
}

impl Refused {
    /// Counts a refusal of which only the destination is kept.
    fn count_place(&mut self, kind: FlowKind, place: (String, u16)) -> Option<FlowReport> {
        if let Some(count) = self.places.get_mut(&place) {
            *count = count.saturating_add(1);
            return None;
        }
        if self.places.len() >= PLACES_MAX {
            self.others = self.others.saturating_add(1);
            return None;
        }
        self.places.insert(place.clone(), 1);
        let (host, port) = place;
        Some(place_report(kind, host, port, 1))
    }

    fn rest(self, kind: FlowKind) -> impl Iterator<Item = FlowReport> {
        let others = (self.others > 0).then(|| {
            let flow = Flow::to(kind, "(others)".to_owned(), 0);
            let why = format!("more than {PLACES_MAX} further hosts and ports");
            refusal_report(flow, why, self.others)
        });
        let whole = self.whole.into_iter().filter(|(_, count)| *count > 1);
        let whole = whole.map(|((flow, why), count)| refusal_report(flow, why, count));
        let places = self.places.into_iter().filter(|(_, count)| *count > 1);
        let places = places.map(move |((host, port), count)| place_report(kind, host, port, count));
        whole.chain(places).chain(others)
    }
}

fn refusal_report(flow: Flow, why: String, count: u64) -> FlowReport {
    FlowReport::Refused { flow, why, count }
}

/// Returns the report of a refusal beyond the limit of its kind.
fn place_report(kind: FlowKind, host: String, port: u16, count: u64) -> FlowReport {
    let why = format!("refused after {REFUSALS_MAX} different others: no more of it is kept");
    refusal_report(Flow::to(kind, host, port), why, count)
}

/// Shortens a text to at most this many bytes, with a mark where it goes on: a text that a program
/// has written is as long as it likes.
pub(crate) fn shown(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let mut ends = (0..=bytes_max).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    let beginning = end.and_then(|end| text.get(..end)).unwrap_or_default();
    Cow::Owned(format!("{beginning}…"))
}
