//! The target of a request: its query, its authority, and the id of a sandbox.

use std::str::FromStr;

use axum::http::{HeaderMap, Uri, header};

use crate::protocol::Refusal;

/// The pairs of a query, in their order.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of(uri: &Uri) -> Self {
        Self(pairs(uri.query().unwrap_or_default()).collect())
    }

    /// Returns all values of a name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a String> {
        let all = self.0.iter().filter(move |(one, _)| one == name);
        all.map(|(_, value)| value)
    }

    /// Returns the first value of a name.
    pub(crate) fn one(&self, name: &str) -> Option<String> {
        self.all(name).next().cloned()
    }

    /// Returns the first value of a name that clients may put anything in: what is no number counts
    /// for nothing.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.all(name).next()?.parse().ok()
    }

    /// Reads a number; refuses what is none.
    pub(crate) fn checked_number<T: FromStr>(&self, name: &str) -> Result<Option<T>, Refusal> {
        let wrong = |_| Refusal::invalid(format!("{name} is no number"));
        let found = self.all(name).next();
        found.map(|text| text.parse().map_err(wrong)).transpose()
    }
}

/// Reads the pairs of a query.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    form_urlencoded::parse(query.as_bytes()).into_owned()
}

/// Returns the authority that a request is for: HTTP/2 has it in the target (RFC 9113, 8.3.1), and
/// one in the target counts in HTTP/1.1 too (RFC 9112, 3.2.2).
pub(crate) fn authority<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let of_target = uri.authority().map(|authority| authority.as_str());
    let host = || headers.get(header::HOST)?.to_str().ok();
    of_target.or_else(host)
}

/// Returns the id of a sandbox without what some clients append.
pub(crate) fn plain_id(id: &str) -> String {
    id.split('-').next().unwrap_or_default().to_owned()
}
