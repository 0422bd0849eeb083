//! Answers and refusals, as every service gives them.

use std::io;
use std::time::Duration;

use atoll_engine::failure::{Failure, Hint};
use atoll_ledger::random;
use serde::Serialize;

use crate::protocol::{Kind, Refusal, Request};

/// The state of a request that was carried out.
pub(super) enum Answered {
    /// One message, still to be written.
    Message(Vec<u8>),
    /// Everything is written.
    Written(io::Result<()>),
    /// A port is connected, whose bytes are to follow the answer.
    Connected(Vec<u8>, tokio::net::TcpStream),
}

/// Answers a request by what its type says.
pub(super) trait Answer: Request {
    fn answer(&self, reply: Self::Reply) -> Result<Answered, Refusal> {
        encoded(&reply).map(Answered::Message)
    }

    /// Ends an answer of several messages.
    fn close(&self, message: Self::Then) -> Result<Answered, Refusal> {
        encoded(&message).map(Answered::Message)
    }

    /// Answers with what a connected port sends.
    fn join(&self, reply: Self::Reply, port: tokio::net::TcpStream) -> Result<Answered, Refusal> {
        encoded(&reply).map(|answer| Answered::Connected(answer, port))
    }
}

impl<R: Request> Answer for R {}

pub(super) fn encoded(message: &impl Serialize) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(&Ok::<_, Refusal>(message)).map_err(|error| fault(&error))
}

/// Makes a random name of so many lower-case letters and digits.
pub(super) fn name(length: usize) -> Result<String, Refusal> {
    const LETTERS: &[u8; 32] = b"0123456789abcdefghijkmnpqrstuvwx";
    let mut bytes = vec![0; length];
    random::fill(&mut bytes)
        .map_err(|_| Refusal::new(Kind::Fault, "the kernel gives no random bytes"))?;
    let letter = |byte: &u8| LETTERS.get(usize::from(byte % 32)).copied().unwrap_or(b'0');
    Ok(bytes.iter().map(letter).map(char::from).collect())
}

/// Returns the refusal that a failure of the engine means for a caller.
pub(super) fn refusal(failure: &Failure) -> Refusal {
    let what = match &failure.why {
        Some(why) => format!("{}: {why}", failure.what),
        None => failure.what.clone(),
    };
    let reasons = failure.reasons.iter();
    let reasons: Vec<String> = reasons
        .map(|one| format!("{}: {} ({})", one.what, one.why, one.rule))
        .collect();
    let advice = failure.hints.iter().find_map(|hint| match hint {
        Hint::Room => Some(atoll_engine::room::advice()),
        Hint::Text(text) => Some(text.clone()),
        _ => None,
    });
    Refusal {
        kind: match failure.kind {
            atoll_engine::failure::Kind::Denied => Kind::Forbidden,
            atoll_engine::failure::Kind::Failed | atoll_engine::failure::Kind::Unproven => {
                Kind::Unavailable
            }
        },
        what: match reasons.is_empty() {
            true => what,
            false => reasons.join("; "),
        },
        advice,
        retry_after_s: None,
    }
}

pub(super) fn unanswered() -> Refusal {
    Refusal::new(Kind::Unavailable, "the sandbox does not answer")
}

pub(super) fn fault(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(Kind::Fault, error.to_string())
}

/// The time between two attempts at what should not fail.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
