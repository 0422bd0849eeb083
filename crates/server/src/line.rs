//! A connection between front and worker: frames of a kind, a length, and so many bytes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;

use atoll_sys::socket;
use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::protocol::{Refusal, Request};

/// The longest frame, bytes.
const FRAME_BYTES_MAX: usize = 8 << 20;
/// The most bytes of content that are put into one frame.
pub(crate) const CONTENT_BYTES: usize = 64 * 1024;
const HEAD_BYTES: usize = 5;

/// The stream that a frame of content is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output, or the bytes of a file.
    Output,
    /// Standard error.
    Error,
    /// A terminal.
    Terminal,
}

/// A frame.
#[derive(Debug)]
pub(crate) enum Frame<T> {
    /// A message.
    Message(T),
    /// Content.
    Content(Stream, Bytes),
    /// No more content comes.
    End,
}

/// The end of a connection that reads.
pub(crate) struct Reader {
    half: OwnedReadHalf,
    /// The begin of the next frame, as far as it has come: reading can be given up in the middle of one.
    got: BytesMut,
}

/// The end of a connection that writes.
pub(crate) struct Writer(OwnedWriteHalf);

/// Begins with a connected socket.
pub(crate) fn split(socket: Socket) -> io::Result<(Reader, Writer)> {
    socket.set_nonblocking(true)?;
    let (reader, writer) = UnixStream::from_std(socket)?.into_split();
    let reader = Reader {
        half: reader,
        got: BytesMut::new(),
    };
    Ok((reader, Writer(writer)))
}

/// Goes on without frames: the bytes that follow are somebody else's. Nothing of them was read.
pub(crate) fn raw(reader: Reader, writer: Writer) -> io::Result<UnixStream> {
    reader.half.reunite(writer.0).map_err(io::Error::other)
}

impl Reader {
    /// Reads the next frame; `None` once the other side is gone.
    ///
    /// # Errors
    /// The kernel's; `InvalidData` for what is not understood.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<Frame<T>>> {
        if !self.fill(HEAD_BYTES).await? {
            return Ok(None);
        }
        let head = self.got.first_chunk::<HEAD_BYTES>().copied();
        let [kind, length @ ..] = head.unwrap_or_default();
        let length = u32::from_le_bytes(length) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if !self.fill(HEAD_BYTES + length).await? {
            return Ok(None);
        }
        let mut content = self.got.split();
        let content = content.split_off(HEAD_BYTES);
        let content = content.freeze();
        Ok(Some(match kind {
            0 => Frame::Message(serde_json::from_slice(&content)?),
            1 => Frame::Content(Stream::Output, content),
            2 => Frame::Content(Stream::Error, content),
            3 => Frame::Content(Stream::Terminal, content),
            4 => Frame::End,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }))
    }
}

impl Reader {
    /// Takes the descriptor that follows a message.
    ///
    /// # Errors
    /// The kernel's; `InvalidData` where there is none.
    pub(crate) async fn descriptor(&mut self) -> io::Result<OwnedFd> {
        let stream = self.half.as_ref();
        let (_, descriptors) = loop {
            stream.readable().await?;
            let take = || socket::receive(stream.as_fd(), &mut [0; 1]);
            match stream.try_io(Interest::READABLE, take) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                taken => break taken?,
            }
        };
        let descriptor = descriptors.into_iter().next();
        descriptor.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Reads until so much of a frame has come, and no more; returns whether it has.
    async fn fill(&mut self, length: usize) -> io::Result<bool> {
        while self.got.len() < length {
            let left = length - self.got.len();
            self.got.reserve(left);
            let mut rest = (&mut self.half).take(left as u64);
            if rest.read_buf(&mut self.got).await? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Writer {
    /// Writes a message.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) async fn message(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.encoded(&serde_json::to_vec(message)?).await
    }

    /// Writes a message that is encoded already.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) async fn encoded(&mut self, message: &[u8]) -> io::Result<()> {
        self.frame(0, message).await
    }

    /// Answers a request of which there is more to come.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) async fn reply<R: Request>(&mut self, _to: &R, reply: R::Reply) -> io::Result<()> {
        self.message(&Ok::<_, Refusal>(reply)).await
    }

    /// Writes a message after the answer.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) async fn then<R: Request>(&mut self, _to: &R, message: R::Then) -> io::Result<()> {
        self.message(&Ok::<_, Refusal>(message)).await
    }

    /// Writes content, in as many frames as it takes.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) async fn content(&mut self, stream: Stream, content: &[u8]) -> io::Result<()> {
        let kind = match stream {
            Stream::Output => 1,
            Stream::Error => 2,
            Stream::Terminal => 3,
        };
        for part in content.chunks(CONTENT_BYTES) {
            self.frame(kind, part).await?;
        }
        Ok(())
    }

    /// Sends a descriptor, which follows a message.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) async fn descriptor(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let stream = self.0.as_ref();
        loop {
            stream.writable().await?;
            let send = || socket::send(stream.as_fd(), b"d", &[descriptor]);
            match stream.try_io(Interest::WRITABLE, send) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return sent,
            }
        }
    }

    /// Says that no more content comes.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) async fn end(&mut self) -> io::Result<()> {
        self.frame(4, &[]).await
    }

    async fn frame(&mut self, kind: u8, content: &[u8]) -> io::Result<()> {
        let length = u32::try_from(content.len()).map_err(io::Error::other)?;
        if content.len() > FRAME_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut head = [0; HEAD_BYTES];
        let (first, rest) = head.split_at_mut(1);
        first.copy_from_slice(&[kind]);
        rest.copy_from_slice(&length.to_le_bytes());
        // One call for most frames.
        let parts = [io::IoSlice::new(&head), io::IoSlice::new(content)];
        let written = self.0.write_vectored(&parts).await?;
        if let Some(rest) = head.get(written..).filter(|rest| !rest.is_empty()) {
            self.0.write_all(rest).await?;
        }
        let done = written.saturating_sub(HEAD_BYTES);
        self.0
            .write_all(content.get(done..).unwrap_or_default())
            .await
    }
}
