//! `Expect: 100-continue` (RFC 9110, 10.1.1): nothing of such a body is taken from the program
//! before the server wants it.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::ext::on_informational;
use hyper::header::{EXPECT, HeaderMap};
use hyper::{Request, StatusCode};
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};

/// The longest wait for a server to say whether it wants a body; a server that does not know the
/// expectation waits for the body.
const PATIENCE: Duration = Duration::from_secs(1);

/// The most interim responses of a server (RFC 9110, 15.2).
const EARLY_MAX: u32 = 64;
/// The reason for giving up on a server that sends more of them.
pub(crate) const ENDLESS: &str = "the host goes on giving answers that are none yet";

/// The interim responses of a server.
#[derive(Debug, Default)]
pub(crate) struct InterimResponses {
    count: AtomicU32,
    too_many: Notify,
}

impl InterimResponses {
    /// Counts the interim responses to a request from here on, and passes them to the gate of its
    /// body.
    pub(crate) fn observe<B>(request: &mut Request<B>, gate: Option<Arc<BodyGate>>) -> Arc<Self> {
        let early = Arc::new(Self::default());
        let count = Arc::clone(&early);
        on_informational(request, move |answer| {
            if let Some(gate) = &gate {
                gate.informed(answer.status());
            }
            if count.count.fetch_add(1, Ordering::Relaxed) >= EARLY_MAX {
                count.too_many.notify_one();
            }
        });
        early
    }

    /// Waits for the response; `None` when there are too many interim ones.
    pub(crate) async fn unless_endless<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            answer = answer => Some(answer),
            () = self.too_many.notified() => None,
        }
    }
}

/// A gate that holds a body back.
#[derive(Debug, Default)]
pub(crate) struct BodyGate {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    waits: Option<Waker>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// The server has sent nothing yet.
    #[default]
    Shut,
    /// The body is wanted.
    Open,
    /// The response has begun instead.
    Answered,
    /// The response has ended: the body is no longer wanted.
    Over,
}

/// Returns whether a request asks before it sends its body.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    headers
        .get(EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

impl BodyGate {
    fn go(&self, on: impl Fn(Stage) -> Stage) {
        let waits = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.stage = on(state.stage);
            state.waits.take()
        };
        if let Some(waits) = waits {
            waits.wake();
        }
    }

    /// Notes an interim response.
    pub(crate) fn informed(&self, status: StatusCode) {
        if status == StatusCode::CONTINUE {
            self.open();
        }
    }

    fn open(&self) {
        self.go(|stage| match stage {
            Stage::Shut | Stage::Open => Stage::Open,
            Stage::Answered | Stage::Over => stage,
        });
    }

    /// Notes that the response has begun.
    pub(crate) fn answered(&self) {
        self.go(|stage| match stage {
            Stage::Shut => Stage::Answered,
            Stage::Open | Stage::Answered | Stage::Over => stage,
        });
    }

    /// Notes that the whole response has come.
    pub(crate) fn over(&self) {
        self.go(|stage| match stage {
            Stage::Shut | Stage::Answered => Stage::Over,
            Stage::Open | Stage::Over => stage,
        });
    }

    /// Returns whether the body was wanted, so that the program has begun to send it.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.stage == Stage::Open
    }

    /// Ready once the body may be sent; an error if it is no longer wanted.
    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<(), BodyUnwanted>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.stage {
            Stage::Open => Poll::Ready(Ok(())),
            Stage::Over => Poll::Ready(Err(BodyUnwanted)),
            Stage::Shut | Stage::Answered => {
                state.waits = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The server has answered without the body.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the host did not want the body")]
pub(crate) struct BodyUnwanted;

/// Waits at a gate.
#[derive(Debug)]
pub(crate) struct GateWait {
    gate: Arc<BodyGate>,
    patience: Pin<Box<Sleep>>,
}

impl GateWait {
    pub(crate) fn new(gate: Arc<BodyGate>) -> Self {
        let patience = Box::pin(sleep(PATIENCE));
        Self { gate, patience }
    }

    /// Ready once the body may be sent; an error if it is no longer wanted.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyUnwanted>> {
        if self.patience.as_mut().poll(context).is_ready() {
            self.gate.open();
        }
        self.gate.poll(context)
    }
}
