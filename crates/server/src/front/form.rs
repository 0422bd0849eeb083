//! Bodies that are forms: their parts, one after the other, and the rest of one that is refused.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::protocol::{Kind, Refusal};

/// The longest time, and the most bytes, for which a refused body is still read.
const DRAINED_WITHIN: Duration = Duration::from_secs(10);
const DRAINED_BYTES_MAX: usize = 64 << 20;

/// Has a body taken, and reads on for a while if that is given up.
pub(crate) async fn drained<T>(
    body: Body,
    take: impl AsyncFnOnce(Body) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let (body, rest) = shared(body);
    let taken = take(body).await;
    if taken.is_err() {
        // Whoever still sends would find a closed connection in place of the answer.
        let _ = timeout(DRAINED_WITHIN, rest.drain()).await;
    }
    taken
}

/// A body that can still be read once whoever took it has given up.
#[derive(Clone)]
struct Rest(Arc<tokio::sync::Mutex<axum::body::BodyDataStream>>);

impl Rest {
    async fn drain(&self) {
        let mut blocks = self.0.lock().await;
        let mut bytes = 0;
        while let Some(Ok(block)) = blocks.next().await {
            bytes += block.len();
            if bytes > DRAINED_BYTES_MAX {
                return;
            }
        }
    }
}

fn shared(body: Body) -> (Body, Rest) {
    let rest = Rest(Arc::new(tokio::sync::Mutex::new(body.into_data_stream())));
    let blocks = futures_util::stream::unfold(rest.clone(), async |rest| {
        let block = rest.0.lock().await.next().await?;
        Some((block, rest))
    });
    (Body::from_stream(blocks), rest)
}

/// The parts of a form.
pub(crate) struct FormParts {
    all: multer::Multipart<'static>,
    heads: Arc<Heads>,
}

/// Reads the parts of a form, whose heads have an end.
pub(crate) fn parts_of(body: Body, boundary: String) -> FormParts {
    let heads = Arc::new(Heads::default());
    let all = multer::Multipart::new(counted(body, &heads), boundary);
    FormParts { all, heads }
}

impl FormParts {
    /// Waits for the next part; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<multer::Field<'static>>, Refusal> {
        self.heads.begin();
        let next = self.all.next_field().await;
        let next = next.map_err(|error| wrong_body(&error))?;
        self.heads.end();
        Ok(next)
    }
}

/// The bytes that have come since the head of a part began: it is looked for in all of them, each
/// time that some come.
#[derive(Default)]
struct Heads {
    is_in_head: AtomicBool,
    bytes: AtomicUsize,
}

/// The longest head of a part, bytes, with what is left of the one before.
const HEAD_BYTES_MAX: usize = 256 * 1024;

impl Heads {
    fn begin(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        self.is_in_head.store(true, Ordering::Relaxed);
    }

    fn end(&self) {
        self.is_in_head.store(false, Ordering::Relaxed);
    }

    /// Counts a block; returns whether the head may still go on.
    fn count(&self, bytes: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        !self.is_in_head.load(Ordering::Relaxed) || before < HEAD_BYTES_MAX
    }
}

/// Returns the blocks of a body, which end where a head becomes too long.
fn counted(
    body: Body,
    heads: &Arc<Heads>,
) -> impl futures_util::Stream<Item = io::Result<Bytes>> + Send + use<> {
    let heads = Arc::clone(heads);
    body.into_data_stream().map(move |block| match block {
        Ok(block) if heads.count(block.len()) => Ok(block),
        Ok(_) => Err(io::Error::other("the head of a part is too long")),
        Err(error) => Err(io::Error::other(error)),
    })
}

pub(crate) fn wrong_body(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(
        Kind::Invalid,
        format!("the body is not understood: {error}"),
    )
}
