//! HTTP/1 connections: how requests are served, and how a connection closes.
//!
//! For a program that speaks HTTP/1.0, a response without a length ends with its connection (RFC
//! 9112, 6.3). Where such a response breaks off the connection is reset: a normal close would make
//! a truncated response look whole.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use super::body::{BodyError, ResponseBody};
use super::exchange::RecordError;
use super::limits::{HEAD_BYTES_MAX, SILENCE_MAX};
use crate::program_stream::ProgramStream;

/// The program's side of a connection.
pub(crate) trait ProgramSide: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Returns the underlying connection, inside TLS or not.
    fn arrival(&self) -> &ProgramStream;
}

impl ProgramSide for ProgramStream {
    fn arrival(&self) -> &ProgramStream {
        self
    }
}

impl ProgramSide for TlsStream<ProgramStream> {
    fn arrival(&self) -> &ProgramStream {
        self.get_ref().0
    }
}

/// Serves the requests of one HTTP/1 connection.
pub(crate) async fn serve<T, A, F>(stream: T, answer: A) -> Result<(), hyper::Error>
where
    T: ProgramSide,
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Result<Response<ResponseBody>, RecordError>>,
{
    let broke = Arc::new(AtomicBool::new(false));
    let stream = ResetOnBreak {
        stream,
        broke: Arc::clone(&broke),
    };
    let service = service_fn(|request: Request<Incoming>| {
        let is_old = request.version() == Version::HTTP_10;
        let broke = Arc::clone(&broke);
        let answered = answer(request);
        async move {
            let answered = answered.await?;
            Ok::<_, RecordError>(answered.map(|body| WatchedBody {
                told: Some(broke).filter(|_| is_old && body.size_hint().exact().is_none()),
                body,
            }))
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .header_read_timeout(SILENCE_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await
}

/// The body of a response.
struct WatchedBody {
    body: ResponseBody,
    /// The flag to set when it breaks off, where the program would not notice otherwise.
    told: Option<Arc<AtomicBool>>,
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        if let (Some(Err(_)), Some(told)) = (&frame, &this.told) {
            told.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that is reset when it closes, if a response broke off.
struct ResetOnBreak<T: ProgramSide> {
    stream: T,
    broke: Arc<AtomicBool>,
}

impl<T: ProgramSide> Drop for ResetOnBreak<T> {
    fn drop(&mut self) {
        if self.broke.load(Ordering::Relaxed) {
            self.stream.arrival().reset_at_its_end();
        }
    }
}

impl<T: ProgramSide> AsyncRead for ResetOnBreak<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, to)
    }
}

impl<T: ProgramSide> AsyncWrite for ResetOnBreak<T> {
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
