//! Resources of a request in progress: a permit, and its share of its rule's limits.

use std::sync::Arc;

use atoll_model::network::{Flow, NetworkRule};
use http_body::Body;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use tokio::sync::OwnedSemaphorePermit;

use crate::Egress;
use crate::limits::{BudgetRequest, BudgetShare, Excess, late};

/// The permit of one request.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    egress: Arc<Egress>,
    part: Option<(BudgetShare, Flow)>,
    _permit: OwnedSemaphorePermit,
}

/// The reason why there is none.
#[derive(Debug)]
pub(crate) enum NoPermit {
    /// Too many requests are in progress.
    All(&'static str),
    /// Its rule's limits are used up.
    Rule(Excess),
}

impl RequestPermit {
    /// Acquires a permit for a request that a rule has allowed. A failure is recorded.
    pub(crate) fn take(
        egress: &Arc<Egress>,
        rule: &NetworkRule,
        flow: &Flow,
        parts: &Parts,
        body: &Incoming,
    ) -> Result<Self, NoPermit> {
        let Ok(permit) = Arc::clone(&egress.request_permits).try_acquire_owned() else {
            let why = "too many requests of this run are on their way";
            egress.control.refuse(flow.clone(), why.to_owned());
            return Err(NoPermit::All(why));
        };
        let asked = BudgetRequest::Request {
            head: head_bytes(parts),
            body: body.size_hint().exact(),
        };
        match egress.budgets.begin(rule, asked) {
            Ok(part) => Ok(Self {
                egress: Arc::clone(egress),
                part: part.map(|part| (part, flow.clone())),
                _permit: permit,
            }),
            Err(excess) => {
                egress.control.refuse_beyond(flow.clone(), &excess);
                Err(NoPermit::Rule(excess))
            }
        }
    }

    /// Acquires a permit for a request of Atoll's own, which no rule limits.
    pub(crate) fn own(egress: &Arc<Egress>) -> Option<Self> {
        let permit = Arc::clone(&egress.request_permits)
            .try_acquire_owned()
            .ok()?;
        Some(Self {
            egress: Arc::clone(egress),
            part: None,
            _permit: permit,
        })
    }

    /// Returns its share of its rule's limits, if the rule has any.
    pub(crate) fn part(&self) -> Option<&BudgetShare> {
        self.part.as_ref().map(|(part, _)| part)
    }

    /// Returns the limit that has ended it, if one has.
    pub(crate) fn excess(&self) -> Option<&Excess> {
        self.part().and_then(BudgetShare::excess)
    }

    /// Runs this work for the request, for as long as the limits allow.
    ///
    /// # Errors
    /// [`Excess`]: the limit that ended it.
    pub(crate) async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, Excess> {
        tokio::select! {
            done = work => Ok(done),
            excess = late(self.part()) => Err(excess),
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        // Once, however often it was tried.
        if let Some((part, flow)) = self.part.take()
            && let Some(excess) = part.excess()
        {
            self.egress.control.refuse_beyond(flow, excess);
        }
    }
}

/// Returns the approximate length of a head, bytes: text that a program can put into one counts as
/// sent.
fn head_bytes(parts: &Parts) -> u64 {
    let target = parts
        .uri
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    (parts.method.as_str().len() + target) as u64 + header_bytes(&parts.headers)
}

/// Returns the length of headers or trailers, bytes.
pub(super) fn header_bytes(headers: &HeaderMap) -> u64 {
    let bytes = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len());
    bytes.sum::<usize>() as u64
}
