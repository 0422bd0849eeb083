//! Calls whose upstreams have asked something: they are made again, with the answers. A caller gets a
//! handle of the upstream's state, good once, for the same call, and for a while.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::tool::Tool;
use crate::upstream::frames::{Answers, Asks};

/// The time for which a handle is good.
const GOOD_FOR: Duration = Duration::from_secs(600);
/// The most handles of a session.
const PENDING_MAX: usize = 64;

/// The calls that wait for answers, by their handles.
#[derive(Default)]
pub(super) struct Pending(Mutex<HashMap<String, One>>);

/// One of them.
struct One {
    tool: String,
    arguments: Value,
    /// The state of the upstream.
    state: Option<String>,
    since: Instant,
}

impl Pending {
    /// Checks that the handle of answers, if they have one, is of this call.
    pub(super) fn check(
        &self,
        tool: &Tool,
        arguments: &Value,
        answers: Option<&Answers>,
    ) -> Result<(), Vec<String>> {
        let Some(handle) = answers.and_then(|answers| answers.state.as_ref()) else {
            return Ok(());
        };
        let pending = self.locked();
        let is_of_call = pending.get(handle).is_some_and(|one| {
            one.tool == tool.name.as_str()
                && one.arguments == *arguments
                && one.since.elapsed() < GOOD_FOR
        });
        match is_of_call {
            true => Ok(()),
            false => Err(vec![
                "the state is none of this call, or was used before".to_owned(),
            ]),
        }
    }

    /// Returns the answers as the upstream wants them, with its own state. They are given once.
    pub(super) fn take(&self, answers: &Answers) -> Result<Answers, String> {
        let state = match &answers.state {
            None => None,
            Some(handle) => {
                let one = self.locked().remove(handle);
                one.ok_or("the state was used before")?.state
            }
        };
        Ok(Answers {
            responses: answers.responses.clone(),
            state,
        })
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<String, One>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the state of an upstream, and puts a handle in its place.
    pub(super) fn keep(
        &self,
        tool: &Tool,
        arguments: &Value,
        asks: &mut Asks,
    ) -> Result<(), String> {
        let mut random = [0; 16];
        let read = File::open("/dev/urandom").and_then(|mut from| from.read_exact(&mut random));
        read.map_err(|error| error.to_string())?;
        let handle: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut pending = self.locked();
        pending.retain(|_, one| one.since.elapsed() < GOOD_FOR);
        if pending.len() >= PENDING_MAX {
            return Err(format!("{PENDING_MAX} calls wait for answers already"));
        }
        let one = One {
            tool: tool.name.to_string(),
            arguments: arguments.clone(),
            state: asks.state.replace(handle.clone()),
            since: Instant::now(),
        };
        pending.insert(handle, one);
        Ok(())
    }
}
