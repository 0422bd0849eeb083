//! Permits: a body is read, and understood, once the worker knows who sends it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::http::{HeaderMap, Uri, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::ask::{Front, Line};
use crate::protocol::{self, Credential, Kind, Refusal};

/// The longest time, and the most bytes, for which a refused body is still read.
const DRAINED_WITHIN: Duration = Duration::from_secs(1);
const DRAINED_BYTES_MAX: usize = 4 << 20;
/// The most bytes of a body that is read before its sender is known.
const SHORT_BYTES_MAX: u64 = 16 << 10;
/// The most refused bodies that are read at once; what is left of others ends their connection.
const DRAINED_MAX: usize = 32;

tokio::task_local! {
    static SENDER: Sender;
}

/// The sender of a request, as its head tells it.
#[derive(Clone)]
pub(super) struct Sender {
    front: Arc<Front>,
    credential: Credential,
    sandbox: Option<String>,
    volume: Option<String>,
    /// The bytes of the body are told, and few.
    is_short: bool,
}

/// A place among the bodies that are read for one tenant, for as long as it is kept.
pub(super) struct Permit {
    _line: Line<()>,
}

impl Sender {
    pub(super) fn new(
        front: &Arc<Front>,
        credential: Credential,
        sandbox: Option<String>,
        headers: &HeaderMap,
        uri: &Uri,
    ) -> Self {
        let mut names = uri.path().trim_matches('/').split('/');
        let volume = match (names.next(), names.next()) {
            (Some("volumecontent"), Some(id)) => Some(id.to_owned()),
            _ => None,
        };
        let bytes = headers.get(header::CONTENT_LENGTH);
        let bytes = bytes.and_then(|bytes| bytes.to_str().ok()?.parse().ok());
        Self {
            front: Arc::clone(front),
            credential,
            sandbox,
            volume,
            is_short: bytes.is_some_and(|bytes: u64| bytes <= SHORT_BYTES_MAX),
        }
    }

    /// Answers a request of this sender.
    pub(super) async fn within<T>(self, answer: impl Future<Output = T>) -> T {
        SENDER.scope(self, answer).await
    }
}

/// Returns true for a short body of the request that this task answers.
pub(super) fn is_short() -> bool {
    SENDER.try_with(|sender| sender.is_short).unwrap_or(false)
}

/// Waits for a permit to read the body of the request that this task answers.
pub(super) async fn permitted() -> Result<Permit, Refusal> {
    let Ok(sender) = SENDER.try_with(Clone::clone) else {
        return Err(Refusal::new(
            Kind::Fault,
            "nobody is known to send this body",
        ));
    };
    let ask = protocol::Permit {
        sandbox: sender.sandbox,
        volume: sender.volume,
    };
    let mut line = sender.front.begin(sender.credential, None, ask).await?;
    line.reply().await?;
    Ok(Permit { _line: line })
}

/// Reads on for a moment: whoever still sends would find a closed connection in place of the answer.
pub(super) async fn drain(mut body: impl HttpBody<Data = Bytes> + Unpin) {
    static DRAINED: Semaphore = Semaphore::const_new(DRAINED_MAX);
    let Ok(_place) = DRAINED.try_acquire() else {
        return;
    };
    let drain = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > DRAINED_BYTES_MAX {
                return;
            }
        }
    };
    let _ = timeout(DRAINED_WITHIN, drain).await;
}
