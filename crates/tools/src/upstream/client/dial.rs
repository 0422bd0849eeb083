//! Connections of a client process. Its session makes them inside the upstream's sandbox, with the
//! proxy there, so that each is decided and recorded as one of the sandbox's own programs.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use atoll_sys::socket;
use hyper::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest head of a proxy's answer, and the longest reason in it, bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
const REASON_BYTES_MAX: usize = 4 << 10;

/// The session, which makes connections.
#[derive(Clone)]
pub(super) struct Dialer(Arc<Mutex<OwnedFd>>);

impl Dialer {
    pub(super) fn new(session: OwnedFd) -> Self {
        Self(Arc::new(Mutex::new(session)))
    }

    /// Connects with a host.
    pub(super) async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let connected = self.connected(host, port).await;
        connected.map_err(|error| io::Error::other(format!("{host}:{port}: {error}")))
    }

    async fn connected(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let session = Arc::clone(&self.0);
        let dialled = tokio::task::spawn_blocking(move || {
            // One after another: an answer is that of the last request.
            let session = session.lock().unwrap_or_else(PoisonError::into_inner);
            socket::send(session.as_fd(), b"d", &[])?;
            let mut why = [0; REASON_BYTES_MAX];
            let (got, mut sockets) = socket::receive(session.as_fd(), &mut why)?;
            sockets.pop().ok_or_else(|| {
                let why = why.get(..got).unwrap_or_default();
                io::Error::other(String::from_utf8_lossy(why).into_owned())
            })
        });
        let dialled = dialled.await.map_err(io::Error::other)??;
        let proxy = std::net::TcpStream::from(dialled);
        proxy.set_nonblocking(true)?;
        tunnel(TcpStream::from_std(proxy)?, host, port).await
    }
}

/// Asks the proxy for a connection (RFC 9110, 9.3.6). It tells why there is none.
async fn tunnel(mut proxy: TcpStream, host: &str, port: u16) -> io::Result<TcpStream> {
    let asked = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    proxy.write_all(asked.as_bytes()).await?;
    let mut head = Vec::new();
    // Byte by byte: what comes after it is the host's.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > HEAD_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        head.push(proxy.read_u8().await?);
    }
    if head.get(9..12) == Some(b"200") {
        return Ok(proxy);
    }
    let mut why = Vec::new();
    let most = u64::try_from(REASON_BYTES_MAX).unwrap_or(u64::MAX);
    proxy.take(most).read_to_end(&mut why).await?;
    let why = String::from_utf8_lossy(&why);
    Err(io::Error::other(why.trim().to_owned()))
}

impl tower_service::Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let dialer = self.clone();
        Box::pin(async move {
            let host = to.host().ok_or(ErrorKind::InvalidInput)?;
            let is_plain = to.scheme_str() == Some("http");
            let port = to.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
            Ok(TokioIo::new(dialer.connect(host, port).await?))
        })
    }
}
