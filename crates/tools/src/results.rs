//! The rests of results that were cut, for callers who read on.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use atoll_model::RunId;

/// The most bytes that are kept, of all sessions of a process: the oldest are forgotten first.
const BYTES_MAX: usize = 64 << 20;
/// The most bytes that are read at once.
const PART_BYTES: usize = 64 << 10;

/// The rests.
#[derive(Debug, Default)]
pub(crate) struct Results(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    all: VecDeque<(RunId, u32, String)>,
    bytes: usize,
}

/// A part of a rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its text.
    pub text: String,
    /// The place of the next part, bytes; `None` at the end.
    pub next: Option<usize>,
}

impl Results {
    pub(crate) fn keep(&self, session: &RunId, call: u32, rest: String) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += rest.len();
        kept.all.push_back((session.clone(), call, rest));
        while kept.bytes > BYTES_MAX {
            let Some((_, _, oldest)) = kept.all.pop_front() else {
                return;
            };
            kept.bytes -= oldest.len();
        }
    }

    /// Reads on from a place; `None` where nothing is kept.
    pub(crate) fn read(&self, session: &RunId, call: u32, from: usize) -> Option<Part> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of = |one: &&(RunId, u32, String)| one.0 == *session && one.1 == call;
        let (_, _, rest) = kept.all.iter().find(is_of)?;
        if from > rest.len() {
            return None;
        }
        let left = rest.get(rest.ceil_char_boundary(from)..)?;
        let text = left.get(..left.floor_char_boundary(PART_BYTES))?;
        let next = rest.len() - left.len() + text.len();
        Some(Part {
            text: text.to_owned(),
            next: (next < rest.len()).then_some(next),
        })
    }

    /// Forgets those of a session.
    pub(crate) fn forget(&self, session: &RunId) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.all.retain(|(of, _, _)| of != session);
        kept.bytes = kept.all.iter().map(|(_, _, rest)| rest.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(name: &str) -> RunId {
        RunId::parse(name).unwrap()
    }

    #[test]
    fn rest_is_read_part_by_part_by_its_session_alone() {
        let (results, one) = (Results::default(), session("260101-000000-aaaa"));
        let rest = "ä".repeat(PART_BYTES);
        results.keep(&one, 3, rest.clone());
        let (mut whole, mut from) = (String::new(), Some(0));
        while let Some(at) = from {
            let part = results.read(&one, 3, at).unwrap();
            whole.push_str(&part.text);
            from = part.next;
        }
        assert_eq!(whole, rest);
        assert!(results.read(&one, 4, 0).is_none());
        assert!(results.read(&session("260101-000000-bbbb"), 3, 0).is_none());
        assert!(results.read(&one, 3, rest.len() + 1).is_none());
        results.forget(&one);
        assert!(results.read(&one, 3, 0).is_none());
    }

    #[test]
    fn oldest_are_forgotten_first() {
        let (results, one) = (Results::default(), session("260101-000000-aaaa"));
        for call in 1..=3 {
            results.keep(&one, call, "x".repeat(BYTES_MAX / 2));
        }
        assert!(results.read(&one, 1, 0).is_none());
        assert!(results.read(&one, 3, 0).is_some());
    }
}
