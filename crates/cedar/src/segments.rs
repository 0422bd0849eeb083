//! Paths of requests as policies see them: whole, and by segments.

use atoll_model::network::liberal;
use cedar_policy::RestrictedExpression;

/// How many segments from the beginning, and from the end, have a name: as in the schema.
pub(crate) const NAMED_MAX: usize = 12;

/// The segments of a path: what stands between its `/`.
pub(crate) fn of(path: &str) -> Vec<&str> {
    match path.strip_prefix('/') {
        Some(rest) => rest.split('/').collect(),
        None => Vec::new(),
    }
}

/// As a record of the schema's type `Segments`.
pub(crate) fn record(path: &str) -> Option<RestrictedExpression> {
    let all = of(path);
    let text = |one: &str| RestrictedExpression::new_string(one.to_owned());
    let first = all.iter().take(NAMED_MAX).enumerate();
    let first = first.map(|(at, one)| (format!("s{}", at + 1), text(one)));
    let last = all.iter().rev().take(NAMED_MAX).enumerate();
    let last = last.map(|(at, one)| (format!("e{}", at + 1), text(one)));
    RestrictedExpression::new_record(first.chain(last)).ok()
}

/// How many there are.
pub(crate) fn depth(path: &str) -> i64 {
    i64::try_from(of(path).len()).unwrap_or(i64::MAX)
}

/// A path as the most liberal of servers may read it: without escapes, without a difference
/// between upper and lower case, and without a `/` at its end.
pub(crate) fn loose(path: &str) -> String {
    let read = liberal(path);
    match read.strip_suffix('/') {
        Some(rest) => rest.to_owned(),
        None => read,
    }
}
