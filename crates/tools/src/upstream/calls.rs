//! Calls of an upstream: what is asked, what is heard meanwhile, and how they end.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::frames::{Answers, Askable, Form, Given, Said};
use crate::cleaned::{Cleaned, clean, clean_texts};
use crate::exec::Cancel;
use crate::filter::Pii;

/// The time between two looks whether a caller has ended a call.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// The most words of an upstream during a call that wait to be passed on.
pub(crate) const SAID_WAITING_MAX: usize = 64;
/// The most of them that are passed on in a second.
const SAID_EACH_SECOND_MAX: u32 = 20;
/// The longest text that is said, bytes.
const SAID_BYTES_MAX: usize = 4 << 10;

/// A call of an upstream.
pub(crate) struct Calling<'a> {
    pub(crate) form: Form,
    /// The name of what is called; of a resource its address.
    pub(crate) name: &'a str,
    pub(crate) arguments: &'a Map<String, Value>,
    pub(crate) answers: Option<Answers>,
    pub(crate) askable: Askable,
    /// The masking of what is said meanwhile.
    pub(crate) pii: Pii,
    pub(crate) timeout: Duration,
    pub(crate) cancel: &'a Cancel,
    /// Takes what the upstream says meanwhile, if the caller listens.
    pub(crate) listener: Option<&'a dyn Fn(Said)>,
}

/// The words of an upstream about a call.
pub(crate) enum Heard {
    Said(Said),
    Given(Given),
}

/// The reason why there is no result.
pub(crate) enum NoResult {
    TimedOut,
    Cancelled,
    /// The upstream was gone before.
    NotSent(String),
    /// The upstream went away during the call.
    Gone(String),
}

impl Calling<'_> {
    /// Waits for the result; what is said meanwhile is passed on, and keeps no call going.
    pub(crate) fn wait(
        &self,
        heard: &Receiver<Heard>,
        gone: impl FnOnce() -> String,
    ) -> Result<Given, NoResult> {
        let until = Instant::now() + self.timeout;
        let passed = Passed {
            since: Cell::new(Instant::now()),
            count: Cell::new(0),
        };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match heard.recv_timeout(left.min(LOOK)) {
                Ok(Heard::Given(given)) => return Ok(given),
                Ok(Heard::Said(said)) => {
                    if let Some(listener) = self.listener
                        && passed.is_next_within_bounds()
                    {
                        listener(cleaned(said, self.pii));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(NoResult::Gone(gone())),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if left.is_zero() {
                return Err(NoResult::TimedOut);
            }
            if self.cancel.is_cancelled() {
                return Err(NoResult::Cancelled);
            }
        }
    }
}

/// The words that were passed on in this second.
struct Passed {
    since: Cell<Instant>,
    count: Cell<u32>,
}

impl Passed {
    fn is_next_within_bounds(&self) -> bool {
        if self.since.get().elapsed() > Duration::from_secs(1) {
            self.since.set(Instant::now());
            self.count.set(0);
        }
        self.count.set(self.count.get().saturating_add(1));
        self.count.get() <= SAID_EACH_SECOND_MAX
    }
}

/// Cleans what is said, as results are.
fn cleaned(said: Said, pii: Pii) -> Said {
    let text = |text: String| clean(text.as_bytes(), SAID_BYTES_MAX, pii).text;
    match said {
        Said::Progress {
            progress,
            total,
            message,
        } => Said::Progress {
            progress,
            total,
            message: message.map(text),
        },
        Said::Log {
            level,
            logger,
            mut data,
        } => {
            clean_texts(&mut data, pii, &mut Cleaned::default());
            let whole = data.to_string();
            if whole.len() > SAID_BYTES_MAX {
                data = Value::String(text(whole));
            }
            Said::Log {
                level,
                logger: logger.map(text),
                data,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::mpsc::sync_channel;

    use serde_json::json;

    use super::*;
    use crate::block::Block;

    #[test]
    fn words_during_a_call_are_cleaned_and_bounded() {
        let (sender, heard) = sync_channel(SAID_WAITING_MAX);
        for progress in 0..30 {
            let said = Said::Progress {
                progress: f64::from(progress),
                total: None,
                message: Some("\u{1b}[31m".to_owned()),
            };
            sender.send(Heard::Said(said)).unwrap();
        }
        let log = Said::Log {
            level: "info".to_owned(),
            logger: None,
            data: json!({ "text": "x".repeat(2 * SAID_BYTES_MAX) }),
        };
        let given = Given::of(vec![Block::text("done")]);
        sender.send(Heard::Given(given)).unwrap();
        let passed = RefCell::new(Vec::new());
        let calling = Calling {
            form: Form::Tool,
            name: "a",
            arguments: &Map::new(),
            answers: None,
            askable: Askable::default(),
            pii: Pii::Keep,
            timeout: Duration::from_secs(60),
            cancel: &Cancel::new().unwrap(),
            listener: Some(&|said| passed.borrow_mut().push(said)),
        };
        let waited = calling.wait(&heard, String::new);
        assert!(waited.is_ok_and(|given| !given.is_error));
        let passed = passed.into_inner();
        assert_eq!(passed.len(), SAID_EACH_SECOND_MAX as usize);
        let Some(Said::Progress { message, .. }) = passed.first() else {
            panic!("{passed:?}");
        };
        assert_eq!(message.as_deref(), Some("\\x1b[31m"));
        let Said::Log { data, .. } = cleaned(log, Pii::Keep) else {
            panic!("it is no message");
        };
        assert_eq!(data.as_str().map(str::len), Some(SAID_BYTES_MAX));
    }
}
