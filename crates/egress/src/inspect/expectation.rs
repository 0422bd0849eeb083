//! Bodies that a server is asked for first (RFC 9110, 10.1.1): nothing of one is taken
//! from the program before the server wants it.

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

/// How long a server may take to say whether it wants a body; one that knows nothing of
/// the question waits for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many answers a server may give before its answer (RFC 9110, 15.2).
const EARLY_MAX: u32 = 64;
/// Why a server's answer is not waited for that gives more of them.
pub(crate) const ENDLESS: &str = "the host goes on giving answers that are none yet";

/// What a server says before its answer.
#[derive(Debug, Default)]
pub(crate) struct Early {
    count: AtomicU32,
    too_many: Notify,
}

impl Early {
    /// Heard of from here on, also by what holds the request's body back.
    pub(crate) fn heard<B>(request: &mut Request<B>, gate: Option<Arc<Gate>>) -> Arc<Self> {
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

    /// What comes of waiting for the answer; None where there are too many before it.
    pub(crate) async fn unless_endless<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            answer = answer => Some(answer),
            () = self.too_many.notified() => None,
        }
    }
}

/// What holds a body back.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    waits: Option<Waker>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// The server has said nothing yet.
    #[default]
    Shut,
    /// The body is wanted.
    Open,
    /// The answer came instead.
    Answered,
    /// It has come as a whole: nobody wants the body any more.
    Over,
}

/// Whether a request asks before it sends its body.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    headers
        .get(EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

impl Gate {
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

    /// The server said something before its answer.
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

    /// The answer has come, though not its body.
    pub(crate) fn answered(&self) {
        self.go(|stage| match stage {
            Stage::Shut => Stage::Answered,
            Stage::Open | Stage::Answered | Stage::Over => stage,
        });
    }

    /// All of the answer has come.
    pub(crate) fn over(&self) {
        self.go(|stage| match stage {
            Stage::Shut | Stage::Answered => Stage::Over,
            Stage::Open | Stage::Over => stage,
        });
    }

    /// Whether the body was wanted, and so the program has begun to send it.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.stage == Stage::Open
    }

    /// Whether the body may go; an error where nobody wants it any more.
    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<(), Unwanted>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.stage {
            Stage::Open => Poll::Ready(Ok(())),
            Stage::Over => Poll::Ready(Err(Unwanted)),
            Stage::Shut | Stage::Answered => {
                state.waits = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The server answered without the body.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the host did not want the body")]
pub(crate) struct Unwanted;

/// Waits at a gate.
#[derive(Debug)]
pub(crate) struct Waiting {
    gate: Arc<Gate>,
    patience: Pin<Box<Sleep>>,
}

impl Waiting {
    pub(crate) fn new(gate: Arc<Gate>) -> Self {
        let patience = Box::pin(sleep(PATIENCE));
        Self { gate, patience }
    }

    /// Whether the body may go.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Unwanted>> {
        if self.patience.as_mut().poll(context).is_ready() {
            self.gate.open();
        }
        self.gate.poll(context)
    }
}
