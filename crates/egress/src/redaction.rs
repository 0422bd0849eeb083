//! Redactions by policies: headers that are removed from a request and from its response, by their
//! names.

use std::borrow::Cow;
use std::collections::BTreeSet;

use atoll_cedar::Redaction;
use hyper::header::{HeaderMap, HeaderName};

use crate::limits::Direction;

/// The headers to remove. Several policies add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Redactions {
    all: BTreeSet<Redaction>,
}

impl Redactions {
    pub(crate) fn of(all: impl Iterator<Item = Redaction>) -> Self {
        let all = all.collect();
        Self { all }
    }

    /// Adds these.
    pub(crate) fn and(&mut self, other: Self) {
        self.all.extend(other.all);
    }

    /// Returns whether all of those are among these.
    pub(crate) fn cover(&self, others: &Self) -> bool {
        others.all.is_subset(&self.all)
    }

    /// Returns whether a request header is among them, by any name that servers read as the same.
    pub(crate) fn takes(&self, name: &str) -> bool {
        self.all
            .iter()
            .any(|one| matches!(one, Redaction::Header(own) if folded(own) == folded(name)))
    }

    /// Removes them from headers or trailers in this direction, by any name that servers read as
    /// the same.
    pub(crate) fn take_out(&self, way: Direction, headers: &mut HeaderMap) {
        let is_one = |name: &&HeaderName| {
            self.all.iter().any(|one| match (one, way) {
                (Redaction::Header(own), Direction::Up)
                | (Redaction::ResponseHeader(own), Direction::Down) => {
                    folded(own) == folded(name.as_str())
                }
                (Redaction::Header(_), Direction::Down)
                | (Redaction::ResponseHeader(_), Direction::Up) => false,
            })
        };
        let names: Vec<HeaderName> = headers.keys().filter(is_one).cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }

    /// Lists the headers for the record, never their values.
    pub(crate) fn told(&self) -> Option<String> {
        let all: Vec<String> = self.all.iter().map(ToString::to_string).collect();
        (!all.is_empty()).then(|| all.join(","))
    }
}

/// Returns a name as it is read where only letters and digits count: in lower case, with `-` for
/// everything else.
pub(crate) fn folded(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.bytes().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let read = |letter: char| match letter.is_ascii_alphanumeric() {
        true => letter.to_ascii_lowercase(),
        false => '-',
    };
    Cow::Owned(name.chars().map(read).collect())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn redacted_header_by_other_name_is_removed() {
        let own = Redaction::Header("x-internal-id".to_owned());
        let all = Redactions::of([own].into_iter());
        for (name, is_taken) in [
            ("x-internal-id", true),
            ("x_internal_id", true),
            ("x-internal.id", true),
            ("x-internal", false),
        ] {
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_static("a");
            headers.insert(HeaderName::from_static(name), value);
            all.take_out(Direction::Up, &mut headers);
            assert_eq!(
                (headers.is_empty(), all.takes(name)),
                (is_taken, is_taken),
                "{name}"
            );
        }
    }
}
