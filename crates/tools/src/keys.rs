//! The keys of calls: a caller's call with a key runs once, and is answered alike from then on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::Engine;

use crate::answer::Answer;

/// The begin of the keys of calls by which an undo takes others back.
pub(crate) const UNDO_KEY: &str = "undo ";
/// The longest key, bytes.
const KEY_BYTES_MAX: usize = 256;
/// The most keys of a caller that are known: the oldest are forgotten first.
const KEYS_MAX: usize = 10_000;
/// The most bytes of all answers: of the oldest ones the end alone is kept.
const BYTES_MAX: usize = 64 << 20;

/// The keys that callers have used.
#[derive(Debug, Default)]
pub(crate) struct Keys(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// By the caller.
    all: BTreeMap<String, VecDeque<Used>>,
    /// The answers that are kept, by caller and key, the oldest first.
    answers: VecDeque<(String, String)>,
    bytes: usize,
    /// Set once those in the ledger are here.
    is_read: bool,
}

/// A key that a caller has used.
#[derive(Debug)]
struct Used {
    key: String,
    /// The tool, and the digest of the arguments.
    call: String,
    end: End,
}

/// The end of its call.
#[derive(Debug)]
enum End {
    Running,
    /// Answered by this process.
    Answered(Box<Answer>),
    /// On record, without its answer.
    Recorded(String),
}

/// A key that its caller uses for the first time; forgotten unless the call is made.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    keys: &'a Keys,
    caller: String,
    key: String,
}

/// The reason why a call is not made by a key.
#[derive(Debug)]
pub(crate) enum Again {
    /// Answered before, like this.
    Answered(Box<Answer>),
    /// Made before, or another call was.
    Refused(String),
    /// The ledger cannot be read.
    Failed(Failure),
}

impl Keys {
    fn locked(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a caller's key for a call, unless it was used before.
    pub(crate) fn take(
        &self,
        engine: &Engine,
        caller: &str,
        key: &str,
        call: String,
    ) -> Result<Taken<'_>, Again> {
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            let why = format!("a key has {KEY_BYTES_MAX} bytes at most, and is not empty");
            return Err(Again::Refused(why));
        }
        let mut kept = self.locked();
        if !kept.is_read {
            for one in engine.keyed_calls().map_err(Again::Failed)? {
                let used = Used {
                    key: one.key,
                    call: one.call,
                    end: End::Recorded(one.end),
                };
                kept.add(&one.caller, used);
            }
            kept.is_read = true;
        }
        match kept.used(caller, key) {
            Some(one) if one.call != call => {
                let why = "its key was used for another call: give each call a key of its own";
                Err(Again::Refused(why.to_owned()))
            }
            Some(one) => Err(match &one.end {
                End::Answered(answer) => Again::Answered(answer.clone()),
                End::Running => Again::Refused("a call with this key is under way".to_owned()),
                End::Recorded(end) => Again::Refused(format!(
                    "a call with this key was made before: {end}. Its answer is not kept"
                )),
            }),
            None => {
                let used = Used {
                    key: key.to_owned(),
                    call,
                    end: End::Running,
                };
                kept.add(caller, used);
                Ok(Taken {
                    keys: self,
                    caller: caller.to_owned(),
                    key: key.to_owned(),
                })
            }
        }
    }
}

impl Kept {
    fn used(&mut self, caller: &str, key: &str) -> Option<&mut Used> {
        let mut all = self.all.get_mut(caller)?.iter_mut();
        all.find(|one| one.key == key)
    }

    fn add(&mut self, caller: &str, used: Used) {
        let all = self.all.entry(caller.to_owned()).or_default();
        all.push_back(used);
        // One that runs is never forgotten.
        let may_go = |one: &Used| !matches!(one.end, End::Running);
        if all.len() > KEYS_MAX
            && let Some(at) = all.iter().position(may_go)
        {
            let gone = all.remove(at);
            self.bytes -= gone.map_or(0, |one| one.end.bytes());
        }
    }

    fn answered(&mut self, caller: &str, key: &str, end: End) {
        self.bytes += end.bytes();
        if let End::Answered(_) = end {
            self.answers.push_back((caller.to_owned(), key.to_owned()));
        }
        if let Some(used) = self.used(caller, key) {
            used.end = end;
        }
        while self.bytes > BYTES_MAX {
            let Some((caller, key)) = self.answers.pop_front() else {
                return;
            };
            let Some(used) = self.used(&caller, &key) else {
                continue;
            };
            let bytes = used.end.bytes();
            if let End::Answered(answer) = &used.end {
                used.end = End::Recorded(format!("it ended as {}", answer.end.name()));
            }
            self.bytes -= bytes;
        }
    }
}

impl End {
    fn bytes(&self) -> usize {
        match self {
            Self::Answered(answer) => answer.bytes() + answer.rest.len(),
            Self::Running | Self::Recorded(_) => 0,
        }
    }
}

impl Taken<'_> {
    /// Keeps the answer of the call; without one its end is unknown.
    pub(crate) fn answered(self, answer: Option<&Answer>) {
        let end = match answer {
            Some(answer) => End::Answered(Box::new(answer.clone())),
            None => End::Recorded("its end is unknown".to_owned()),
        };
        let mut kept = self.keys.locked();
        kept.answered(&self.caller, &self.key, end);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let is_own = |one: &Used| one.key == self.key && matches!(one.end, End::Running);
        if let Some(all) = self.keys.locked().all.get_mut(&self.caller) {
            all.retain(|one| !is_own(one));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Answer {
        let blocks = vec![crate::block::Block::text(text.to_owned())];
        Answer::replayed(1, atoll_model::ToolEnd::Done, blocks, None)
    }

    fn add(kept: &mut Kept, caller: &str, key: String) {
        let used = Used {
            key,
            call: String::new(),
            end: End::Running,
        };
        kept.add(caller, used);
    }

    #[test]
    fn keys_of_one_caller_push_no_other_ones_out() {
        let mut kept = Kept::default();
        add(&mut kept, "a", "first".to_owned());
        kept.answered("a", "first", End::Recorded(String::new()));
        for number in 0..KEYS_MAX + 10 {
            add(&mut kept, "b", number.to_string());
            kept.answered("b", &number.to_string(), End::Recorded(String::new()));
        }
        assert!(kept.used("a", "first").is_some());
        assert!(kept.used("b", "9").is_none() && kept.used("b", "10").is_some());
    }

    #[test]
    fn large_answers_leave_their_ends() {
        let mut kept = Kept::default();
        for key in ["1", "2", "3"] {
            add(&mut kept, "a", key.to_owned());
            let large = answer(&"x".repeat(BYTES_MAX / 2));
            kept.answered("a", key, End::Answered(Box::new(large)));
        }
        let is_whole =
            |used: Option<&mut Used>| used.is_some_and(|one| matches!(one.end, End::Answered(_)));
        assert!(!is_whole(kept.used("a", "1")));
        assert!(is_whole(kept.used("a", "2")) && is_whole(kept.used("a", "3")));
        let ended = kept.used("a", "1").map(|one| format!("{:?}", one.end));
        assert!(ended.is_some_and(|end| end.contains("ended as done")));
        assert_eq!(kept.bytes, BYTES_MAX);
    }
}
