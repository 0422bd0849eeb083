//! Requests to the worker: a fresh pair of sockets for each, of which the worker gets one end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use atoll_sys::{descriptor, socket};
use tokio::io::unix::AsyncFd;

use crate::line::{self, Frame, Reader, Writer};
use crate::protocol::{Ask, Credential, Hello, InAsk, Kind, Refusal, Reply, VERSION};
use crate::ready::watched;

use super::Front;

/// The way to the worker.
pub(crate) struct Dial(AsyncFd<OwnedFd>);

/// A request under way.
pub(crate) struct Line {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
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

    async fn open(&self) -> io::Result<Line> {
        let (near, far) = UnixStream::pair()?;
        loop {
            let mut ready = self.0.writable().await?;
            match socket::send(self.0.get_ref().as_fd(), b"r", &[far.as_fd()]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                sent => break sent?,
            }
        }
        let (reader, writer) = line::split(near)?;
        Ok(Line { reader, writer })
    }
}

impl Front {
    /// Begins a request.
    pub(crate) async fn begin(&self, credential: Credential, ask: Ask) -> Result<Line, Refusal> {
        self.begin_once(credential, None, ask).await
    }

    /// Begins a request that is carried out once, however often it comes with this name.
    pub(crate) async fn begin_once(
        &self,
        credential: Credential,
        once: Option<String>,
        ask: Ask,
    ) -> Result<Line, Refusal> {
        let hello = Hello {
            version: VERSION,
            credential,
            once,
            trace: super::trace::current(),
            ask,
        };
        let begin = async {
            let mut line = self.dial.open().await?;
            line.writer.message(&hello).await?;
            Ok(line)
        };
        begin.await.map_err(|error: io::Error| no_worker(&error))
    }

    /// Makes a request that has one answer.
    pub(crate) async fn ask(&self, credential: Credential, ask: Ask) -> Result<Reply, Refusal> {
        self.begin(credential, ask).await?.reply().await
    }

    /// Makes a request of one sandbox that has one answer.
    pub(crate) async fn ask_in(
        &self,
        credential: Credential,
        sandbox: &str,
        ask: InAsk,
    ) -> Result<Reply, Refusal> {
        self.ask(credential, within(sandbox, ask)).await
    }
}

/// Makes a request one of this sandbox.
pub(crate) fn within(sandbox: &str, ask: InAsk) -> Ask {
    Ask::In {
        sandbox: Some(sandbox.to_owned()),
        ask,
    }
}

impl Line {
    /// Waits for the answer.
    pub(crate) async fn reply(&mut self) -> Result<Reply, Refusal> {
        match self.reader.next::<Reply>().await {
            Ok(Some(Frame::Message(Reply::Refused(refusal)))) => Err(refusal),
            Ok(Some(Frame::Message(reply))) => Ok(reply),
            Ok(_) => Err(strange()),
            Err(error) => Err(no_worker(&error)),
        }
    }
}

fn no_worker(error: &io::Error) -> Refusal {
    Refusal::new(
        Kind::Unavailable,
        format!("the server's worker does not answer: {error}"),
    )
    .advise("try again in a moment")
}

/// Returns the refusal for an answer that is not one to what was asked.
pub(crate) fn strange() -> Refusal {
    Refusal::new(
        Kind::Unavailable,
        "the server's worker has ended, or is of another version",
    )
    .advise("try again in a moment")
}
