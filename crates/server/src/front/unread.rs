//! Connections of which nobody reads: each is given up after a while, so that nobody keeps one, and
//! what is behind it, by reading nothing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The longest time in which nothing that is written is read.
const UNREAD: Duration = Duration::from_secs(60);

/// A connection that fails where nothing of what is written to it is read for too long.
pub(super) struct Timed<T> {
    inner: T,
    /// The end of the wait, while one goes on.
    until: Option<Pin<Box<Sleep>>>,
}

impl<T> Timed<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, until: None }
    }

    /// Begins or ends a wait, by what a write has come to.
    fn timed<R>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.until = None;
            return written;
        }
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(UNREAD)));
        let late = |()| Err(io::ErrorKind::TimedOut.into());
        until.as_mut().poll(context).map(late)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Timed<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Timed<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        content: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, content);
        self.timed(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, parts);
        self.timed(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // It waits for nobody: what is flushed was written before.
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(context);
        self.timed(context, shut)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_of_which_nobody_reads_is_given_up() {
        let (inner, mut reader) = duplex(10);
        let mut connection = Timed::new(inner);
        let written = tokio::spawn(async move { connection.write_all(&[0; 100]).await });
        // However long all of it takes.
        for _ in 0..5 {
            sleep(UNREAD * 3 / 4).await;
            reader.read_exact(&mut [0; 10]).await.unwrap();
        }
        let error = written.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
