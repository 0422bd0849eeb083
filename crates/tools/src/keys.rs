//! The keys of calls: a caller's call with a key runs once, and is answered alike from then on.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::Engine;

use crate::answer::Answer;

/// The longest key, bytes.
const KEY_BYTES_MAX: usize = 256;
/// The most keys that are kept, and the most bytes of their answers: the oldest are forgotten first.
const KEYS_MAX: usize = 10_000;
const BYTES_MAX: usize = 64 << 20;

/// The keys that callers have used.
#[derive(Debug, Default)]
pub(crate) struct Keys(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    all: VecDeque<Used>,
    bytes: usize,
    /// Set once those in the ledger are here.
    is_read: bool,
}

/// A key that a caller has used.
#[derive(Debug)]
struct Used {
    caller: String,
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
                kept.add(Used {
                    caller: one.caller,
                    key: one.key,
                    call: one.call,
                    end: End::Recorded(one.end),
                });
            }
            kept.is_read = true;
        }
        let is_same = |one: &&Used| one.caller == caller && one.key == key;
        match kept.all.iter().find(is_same) {
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
                kept.add(Used {
                    caller: caller.to_owned(),
                    key: key.to_owned(),
                    call,
                    end: End::Running,
                });
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
    fn add(&mut self, used: Used) {
        self.all.push_back(used);
        self.shrink();
    }

    fn shrink(&mut self) {
        // One that runs is never forgotten.
        let may_go = |one: &Used| !matches!(one.end, End::Running);
        while self.all.len() > KEYS_MAX || self.bytes > BYTES_MAX {
            let Some(at) = self.all.iter().position(may_go) else {
                return;
            };
            let gone = self.all.remove(at);
            self.bytes -= gone.map_or(0, |one| one.end.bytes());
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
        let mut kept = self.keys.locked();
        let end = match answer {
            Some(answer) => End::Answered(Box::new(answer.clone())),
            None => End::Recorded("its end is unknown".to_owned()),
        };
        kept.bytes += end.bytes();
        let own = kept.all.iter_mut();
        let mut own = own.filter(|one| one.caller == self.caller && one.key == self.key);
        if let Some(used) = own.next() {
            used.end = end;
        }
        kept.shrink();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let is_own = |one: &Used| {
            let is_running = matches!(one.end, End::Running);
            is_running && one.caller == self.caller && one.key == self.key
        };
        self.keys.locked().all.retain(|one| !is_own(one));
    }
}
