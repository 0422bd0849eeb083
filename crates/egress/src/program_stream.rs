//! A program's connection, with the bytes already read from it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use crate::proxy_reply::{self, ProxyProtocol, Reject};

/// The kernel's buffer for each direction of a program's connection, bytes: it is by the loopback,
/// which needs little.
const BUFFER_BYTES: usize = 256 * 1024;

/// The interval at which a program that has unread bytes waiting is checked for being gone.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// A connection whose first bytes have been read, and are read again.
#[derive(Debug)]
pub struct ProgramStream {
    stream: TcpStream,
    /// Bytes that were read, to be read again.
    first: Vec<u8>,
    /// The number of them that have been read again.
    again: usize,
    /// The proxy protocol in which the program asked for the connection and waits for an answer, if
    /// it did.
    asked: Option<ProxyProtocol>,
}

impl ProgramStream {
    /// Wraps a connection of which nothing has been read.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self::with(stream, Vec::new())
    }

    /// Wraps a connection of which these bytes have been read.
    pub(crate) fn with(stream: TcpStream, first: Vec<u8>) -> Self {
        // The kernel would let them grow to many times that, in no limit of the run's; where
        // it does not do so it goes on as it is.
        let _ = set_socket_recv_buffer_size(&stream, BUFFER_BYTES);
        let _ = set_socket_send_buffer_size(&stream, BUFFER_BYTES);
        let again = 0;
        Self {
            stream,
            first,
            again,
            asked: None,
        }
    }

    /// Wraps a connection asked for in a proxy protocol; these bytes were read beyond that request.
    pub(crate) fn asked(stream: TcpStream, first: Vec<u8>, asked: ProxyProtocol) -> Self {
        let asked = Some(asked);
        Self {
            asked,
            ..Self::with(stream, first)
        }
    }

    /// Tells a program that asked for the connection that it is established.
    pub async fn grant(&mut self) -> io::Result<()> {
        match self.asked.take() {
            Some(asked) => self.stream.write_all(&proxy_reply::granted(asked)).await,
            None => Ok(()),
        }
    }

    /// Ends the connection: by an answer where the program asked for it, else by a reset, as from a
    /// host that is not there.
    pub(crate) async fn end(mut self, reject: Reject, what: &str, why: &str) {
        let Some(asked) = self.asked else {
            return self.reset();
        };
        // Whoever does not read it finds the connection ended.
        let _ = self
            .stream
            .write_all(&proxy_reply::denied(asked, reject, what, why))
            .await;
        let _ = self.stream.shutdown().await;
    }

    /// Returns the bytes that have been read, and are still to be read again.
    pub fn first(&self) -> &[u8] {
        self.first.get(self.again..).unwrap_or_default()
    }

    /// Reads further first bytes. Returns their number: 0 at the end of the stream.
    pub async fn read_first(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.first).await
    }

    /// Returns once the program is gone. Bytes it has sent meanwhile are not read; a program that
    /// only shut down its sending side may still want an answer, and counts as gone.
    pub(crate) async fn is_gone(&self) {
        let mut first = [0; 1];
        while !matches!(self.stream.peek(&mut first).await, Ok(0) | Err(_)) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Returns the connection, and the bytes that were read from it.
    pub(crate) fn into_parts(self) -> (TcpStream, Vec<u8>) {
        let first = match self.again {
            0 => self.first,
            _ => self.first().to_vec(),
        };
        (self.stream, first)
    }

    /// Has the connection reset when it is closed, whoever closes it.
    pub(crate) fn reset_at_its_end(&self) {
        // Where it cannot be reset it is closed.
        let _ = self.stream.set_zero_linger();
    }

    /// Resets the connection, as a host does that is not there.
    pub fn reset(self) {
        reset(self.stream);
    }
}

/// Resets a connection, as a host does that is not there.
pub(crate) fn reset(stream: TcpStream) {
    // Where it cannot be reset it is closed.
    let _ = stream.set_zero_linger();
}

impl AsyncRead for ProgramStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let rest = this.first();
        if rest.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, to);
        }
        let fits = rest.len().min(to.remaining());
        to.put_slice(rest.get(..fits).unwrap_or_default());
        this.again += fits;
        if this.again >= this.first.len() {
            // Connections are long, and there are many.
            this.first = Vec::new();
            this.again = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ProgramStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
