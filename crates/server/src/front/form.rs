//! Bodies that are forms: their parts, one after the other, and the rest of one that is refused.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::HeaderMap;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::timeout;

use super::answers::header_of;
use super::idle::{timed, wrong_body};
use super::permit::{drain, permitted};
use crate::protocol::{Kind, Refusal};

/// Has a body taken, and reads on for a moment if that is given up.
pub(crate) async fn drained<T>(
    body: Body,
    take: impl AsyncFnOnce(Body) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let (body, rest) = shared(body);
    let taken = take(body).await;
    if taken.is_err() {
        drain(rest).await;
    }
    taken
}

/// Returns a body twice: the second goes on where whoever took the first has given up.
fn shared(body: Body) -> (Body, Body) {
    let blocks = Arc::new(tokio::sync::Mutex::new(timed(body).into_data_stream()));
    let rest = |blocks: Arc<tokio::sync::Mutex<_>>| {
        Body::from_stream(futures_util::stream::unfold(blocks, async |blocks| {
            let block = BodyDataStream::next(&mut *blocks.lock().await).await?;
            Some((block, blocks))
        }))
    };
    (rest(Arc::clone(&blocks)), rest(blocks))
}

/// The longest time for the head of a part to come.
const HEAD_WITHIN: Duration = Duration::from_secs(30);

/// The parts of a form.
pub(crate) struct FormParts {
    all: multer::Multipart<'static>,
    heads: Arc<Heads>,
}

/// Reads the parts of the form that a body is.
pub(crate) async fn form_of(headers: &HeaderMap, body: Body) -> Result<FormParts, Refusal> {
    let kind = header_of(headers, "content-type").unwrap_or_default();
    let boundary = multer::parse_boundary(kind).map_err(|error| wrong_body(&error))?;
    parts_of(body, boundary).await
}

/// Reads the parts of a form once its sender is known.
pub(crate) async fn parts_of(body: Body, boundary: String) -> Result<FormParts, Refusal> {
    // Nothing of it is gathered for long: it takes no place.
    drop(permitted().await?);
    Ok(FormParts::of(body, boundary))
}

/// Returns the content of a part as a body.
pub(crate) fn content_of(part: multer::Field<'static>) -> Body {
    Body::from_stream(part.map(|block| block.map_err(io::Error::other)))
}

impl FormParts {
    /// Reads the parts of a form, whose heads have an end.
    pub(super) fn of(body: Body, boundary: String) -> Self {
        let heads = Arc::new(Heads::default());
        let all = multer::Multipart::new(counted(body, &heads), boundary);
        Self { all, heads }
    }

    /// Waits for the next part; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<multer::Field<'static>>, Refusal> {
        self.heads.begin();
        let late = |_| Refusal::new(Kind::Late, "the head of a part did not come in time");
        let next = timeout(HEAD_WITHIN, self.all.next_field()).await;
        let next = next.map_err(late)?.map_err(|error| wrong_body(&error))?;
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
    let mut blocks = body.into_data_stream();
    let mut is_to_look = false;
    futures_util::stream::poll_fn(move |context| {
        // Its reader takes all that is there already before it looks for the end of a head, as over
        // HTTP/2 much of the content is: in a head it looks after each block.
        if std::mem::take(&mut is_to_look) && heads.is_in_head.load(Ordering::Relaxed) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let block = ready!(blocks.poll_next_unpin(context));
        is_to_look = true;
        Poll::Ready(block.map(|block| match block {
            Ok(block) if heads.count(block.len()) => Ok(block),
            Ok(_) => Err(io::Error::other("the head of a part is too long")),
            Err(error) => Err(io::Error::other(error)),
        }))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Returns a body of blocks that are all there already, as over HTTP/2.
    fn blocks(text: &[u8]) -> Body {
        let blocks: Vec<_> = text.chunks(16 * 1024).map(Bytes::copy_from_slice).collect();
        Body::from_stream(futures_util::stream::iter(
            blocks.into_iter().map(io::Result::Ok),
        ))
    }

    fn form(heads: &[&str], content: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        for head in heads {
            text.extend_from_slice(b"--b\r\n");
            text.extend_from_slice(head.as_bytes());
            text.extend_from_slice(b"\r\n\r\n");
            text.extend_from_slice(content);
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b"--b--\r\n");
        text
    }

    const HEAD: &str = "Content-Disposition: form-data; name=\"file\"; filename=\"a\"";

    #[tokio::test]
    async fn content_that_is_there_already_is_no_head() {
        let content = vec![b'x'; 4 << 20];
        let text = form(&[HEAD, HEAD, HEAD], &content);
        let mut parts = FormParts::of(blocks(&text), "b".to_owned());
        for _ in 0..3 {
            let part = parts.next().await.unwrap().unwrap();
            assert!(part.bytes().await.unwrap() == content);
        }
        assert!(parts.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_head_that_is_too_long_is_told() {
        let long = format!("{HEAD}\r\nX: {}", "x".repeat(HEAD_BYTES_MAX * 2));
        let text = form(&[&long], b"content");
        let mut parts = FormParts::of(blocks(&text), "b".to_owned());
        let refusal = parts.next().await.err().unwrap();
        assert!(
            refusal.what.contains("head of a part is too long"),
            "{refusal:?}"
        );
    }
}
