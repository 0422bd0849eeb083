//! What policies have taken out of a request and of its answer: headers, by their names.

use std::collections::BTreeSet;

use atoll_cedar::Redaction;
use hyper::header::{HeaderMap, HeaderName};

use crate::limits::Way;

/// What is taken out. Of several the union counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Redactions {
    all: BTreeSet<Redaction>,
}

impl Redactions {
    pub(crate) fn of(all: impl Iterator<Item = Redaction>) -> Self {
        let all = all.collect();
        Self { all }
    }

    /// With these too.
    pub(crate) fn and(&mut self, other: Self) {
        self.all.extend(other.all);
    }

    /// Whether nothing of those is left in.
    pub(crate) fn cover(&self, others: &Self) -> bool {
        others.all.is_subset(&self.all)
    }

    /// Whether a header of a request is among them, by its name in lower case.
    pub(crate) fn takes(&self, name: &str) -> bool {
        self.all
            .iter()
            .any(|one| matches!(one, Redaction::Header(own) if own == name))
    }

    /// Takes them out of the headers or trailers that go this way.
    pub(crate) fn take_out(&self, way: Way, headers: &mut HeaderMap) {
        for one in &self.all {
            let name = match (one, way) {
                (Redaction::Header(name), Way::Up) => name,
                (Redaction::ResponseHeader(name), Way::Down) => name,
                (Redaction::Header(_), Way::Down) | (Redaction::ResponseHeader(_), Way::Up) => {
                    continue;
                }
            };
            // What is no name of a header is in none.
            if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
                headers.remove(&name);
            }
        }
    }

    /// For the record: what is taken out, never what it said.
    pub(crate) fn told(&self) -> Option<String> {
        let all: Vec<String> = self.all.iter().map(ToString::to_string).collect();
        (!all.is_empty()).then(|| all.join(","))
    }
}
