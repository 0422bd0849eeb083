//! Request paths as policies see them: whole, and by segments.

use atoll_model::network::liberal;
use cedar_policy::RestrictedExpression;

/// The number of segments from the start, and from the end, that have a name in the schema.
pub(crate) const NAMED_MAX: usize = 12;

/// Returns the segments of a path, which `/` separates.
pub(crate) fn of(path: &str) -> Vec<&str> {
    match path.strip_prefix('/') {
        Some(rest) => rest.split('/').collect(),
        None => Vec::new(),
    }
}

/// Returns a path as a record of the schema's type `Segments`.
pub(crate) fn record(path: &str) -> Option<RestrictedExpression> {
    let all = of(path);
    let text = |one: &str| RestrictedExpression::new_string(one.to_owned());
    let first = all.iter().take(NAMED_MAX).enumerate();
    let first = first.map(|(at, one)| (format!("s{}", at + 1), text(one)));
    let last = all.iter().rev().take(NAMED_MAX).enumerate();
    let last = last.map(|(at, one)| (format!("e{}", at + 1), text(one)));
    RestrictedExpression::new_record(first.chain(last)).ok()
}

/// Returns the number of segments.
pub(crate) fn depth(path: &str) -> i64 {
    i64::try_from(of(path).len()).unwrap_or(i64::MAX)
}

/// Returns a path as the most liberal of servers may read it: unescaped, in lower case, and without
/// a trailing `/`.
pub(crate) fn loose(path: &str) -> String {
    let read = liberal(path);
    match read.strip_suffix('/') {
        Some(rest) => rest.to_owned(),
        None => read,
    }
}
