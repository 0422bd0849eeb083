//! Requests to the worker: a fresh pair of sockets for each, of which the worker gets one end.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use atoll_sys::{descriptor, socket};
use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use tokio::io::unix::AsyncFd;

use super::idle::{timed, wrong_body};
use crate::line::{self, Frame, Reader, Stream, Writer};
use crate::protocol::{Ask, Credential, Hello, In, Kind, Refusal, Request, VERSION};
use crate::ready::watched;

/// The state that all requests share.
pub(crate) struct Front {
    pub(super) dial: Dial,
    pub(super) is_logged: bool,
    /// True if it speaks TLS.
    pub(super) is_secure: bool,
}

/// The way to the worker.
pub(crate) struct Dial(AsyncFd<OwnedFd>);

/// A request under way, whose answer is a `T`, and the messages after it `M`s.
pub(crate) struct Line<T, M = ()> {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    of: PhantomData<fn() -> (T, M)>,
}

/// The content and the messages after an answer.
pub(crate) enum Next<M> {
    Content(Stream, Bytes),
    Message(M),
}

impl Dial {
    pub(crate) fn new(dial: OwnedFd) -> io::Result<Self> {
        descriptor::never_block(dial.as_fd())?;
        Ok(Self(watched(dial)?))
    }

    /// Waits until the worker is gone: it sends nothing here.
    pub(crate) async fn closed(&self) {
        let _ = self.0.readable().await;
    }

    async fn open(&self) -> io::Result<(Reader, Writer)> {
        let (near, far) = UnixStream::pair()?;
        loop {
            let mut ready = self.0.writable().await?;
            match socket::send(self.0.get_ref().as_fd(), b"r", &[far.as_fd()]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                sent => break sent?,
            }
        }
        line::split(near)
    }
}

impl Front {
    /// Begins a request; one with a name is carried out once, however often it comes.
    pub(crate) async fn begin<R: Request<Of: Into<Ask>>>(
        &self,
        credential: Credential,
        once: Option<String>,
        ask: R,
    ) -> Result<Line<R::Reply, R::Then>, Refusal> {
        let hello = Hello {
            version: VERSION,
            credential,
            once,
            trace: super::trace::current(),
            ask: ask.wrap().into(),
        };
        let begin = async {
            let (reader, mut writer) = self.dial.open().await?;
            writer.message(&hello).await?;
            let of = PhantomData;
            Ok(Line { reader, writer, of })
        };
        begin.await.map_err(|error: io::Error| no_worker(&error))
    }
}

/// Makes a request one of this sandbox.
pub(crate) fn within<R>(sandbox: &str, ask: R) -> In<R> {
    In {
        sandbox: Some(sandbox.to_owned()),
        ask,
    }
}

impl<T: DeserializeOwned, M: DeserializeOwned> Line<T, M> {
    /// Waits for the answer.
    pub(crate) async fn reply(&mut self) -> Result<T, Refusal> {
        match next(&mut self.reader).await? {
            Next::Message(reply) => Ok(reply),
            Next::Content(..) => Err(strange()),
        }
    }

    /// Waits for the answer, or for content that comes before it.
    pub(crate) async fn reply_or_content(&mut self) -> Result<Next<T>, Refusal> {
        next(&mut self.reader).await
    }

    /// Waits for the next of what comes after it.
    pub(crate) async fn next(&mut self) -> Result<Next<M>, Refusal> {
        next(&mut self.reader).await
    }

    /// Waits for the message after it.
    pub(crate) async fn last(&mut self) -> Result<M, Refusal> {
        match self.next().await? {
            Next::Message(message) => Ok(message),
            Next::Content(..) => Err(strange()),
        }
    }

    /// Takes the descriptor that follows the answer.
    pub(crate) async fn file(&mut self) -> Result<File, Refusal> {
        let file = self.reader.descriptor().await;
        file.map(File::from).map_err(|_| strange())
    }

    /// Writes a body, and waits for the answer: it says why nothing more is taken, too.
    pub(crate) async fn fill(mut self, body: Body) -> Result<T, Refusal> {
        let mut blocks = timed(body).into_data_stream();
        while let Some(block) = blocks.next().await {
            let block = block.map_err(|error| wrong_body(&error))?;
            if self.writer.content(Stream::Output, &block).await.is_err() {
                break;
            }
        }
        self.finish().await
    }

    /// Says that no more content comes, and waits for the answer.
    pub(crate) async fn finish(mut self) -> Result<T, Refusal> {
        // What stands in its way is in the answer.
        let _ = self.writer.end().await;
        self.reply().await
    }
}

async fn next<M: DeserializeOwned>(reader: &mut Reader) -> Result<Next<M>, Refusal> {
    match reader.next::<Result<M, Refusal>>().await {
        Ok(Some(Frame::Message(message))) => message.map(Next::Message),
        Ok(Some(Frame::Content(stream, content))) => Ok(Next::Content(stream, content)),
        Ok(Some(Frame::End) | None) => Err(strange()),
        Err(error) => Err(no_worker(&error)),
    }
}

fn no_worker(error: &io::Error) -> Refusal {
    Refusal::new(
        Kind::Unavailable,
        format!("the server's worker does not answer: {error}"),
    )
    .advise("try again in a moment")
}

/// Returns the refusal for an answer that is not one to the request.
fn strange() -> Refusal {
    Refusal::new(
        Kind::Unavailable,
        "the server's worker has ended, or is of another version",
    )
    .advise("try again in a moment")
}
