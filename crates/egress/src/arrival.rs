//! A program's connection, with what was already read of it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use crate::proxy;

/// How much the kernel keeps of each way of a program's connection, bytes: the way to it is
/// the loopback, which needs little.
const BUFFER_BYTES: usize = 256 * 1024;

/// How soon it is looked again whether a program is there that has sent something.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// A connection of which the first bytes have been read, and are read again.
#[derive(Debug)]
pub(crate) struct Arrival {
    stream: TcpStream,
    /// What was read and is still to be read again.
    first: Vec<u8>,
    /// How much of it was.
    again: usize,
    /// How the program waits to be told what comes of it, where it asked in words.
    asked: Option<Asked>,
}

/// How a program asks for a connection in words, rather than by making it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// By CONNECT of HTTP.
    Connect,
    /// By SOCKS 5.
    Socks,
}

/// Why a connection is not carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum No {
    /// It may not be.
    Refused,
    /// The host is not there.
    Unreachable,
}

impl Arrival {
    /// Nothing of it has been read.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self::with(stream, Vec::new())
    }

    /// These bytes have been read of it.
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

    /// These bytes have been read beyond what the program asked so.
    pub(crate) fn asked(stream: TcpStream, first: Vec<u8>, asked: Asked) -> Self {
        let asked = Some(asked);
        Self {
            asked,
            ..Self::with(stream, first)
        }
    }

    /// Tells a program that asked that it goes on now to the host.
    pub(crate) async fn grant(&mut self) -> io::Result<()> {
        match self.asked.take() {
            Some(asked) => self.stream.write_all(&proxy::granted(asked)).await,
            None => Ok(()),
        }
    }

    /// Ends it: by an answer where the program asked, else as a host does that is not there.
    pub(crate) async fn end(mut self, no: No, what: &str, why: &str) {
        let Some(asked) = self.asked else {
            return self.reset();
        };
        // Whoever does not read it finds the connection ended.
        let _ = self
            .stream
            .write_all(&proxy::denied(asked, no, what, why))
            .await;
        let _ = self.stream.shutdown().await;
    }

    /// The bytes that have been read.
    pub(crate) fn first(&self) -> &[u8] {
        self.first.get(self.again..).unwrap_or_default()
    }

    /// Reads further first bytes. How many; none at its end.
    pub(crate) async fn read_first(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.first).await
    }

    /// Returns once the program is gone. What it has sent meanwhile is not read; whoever has
    /// only said that it sends no more may still want an answer, and counts as gone.
    pub(crate) async fn is_gone(&self) {
        let mut first = [0; 1];
        while !matches!(self.stream.peek(&mut first).await, Ok(0) | Err(_)) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The connection, and what was read of it.
    pub(crate) fn into_parts(self) -> (TcpStream, Vec<u8>) {
        let first = match self.again {
            0 => self.first,
            _ => self.first().to_vec(),
        };
        (self.stream, first)
    }

    /// Has it reset when it is closed, whoever does that.
    pub(crate) fn reset_at_its_end(&self) {
        // Where it cannot be reset it is closed.
        let _ = self.stream.set_zero_linger();
    }

    /// Ends it as a host does that is not there.
    pub(crate) fn reset(self) {
        reset(self.stream);
    }
}

/// Ends a connection as a host does that is not there.
pub(crate) fn reset(stream: TcpStream) {
    // Where it cannot be reset it is closed.
    let _ = stream.set_zero_linger();
}

impl AsyncRead for Arrival {
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

impl AsyncWrite for Arrival {
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
