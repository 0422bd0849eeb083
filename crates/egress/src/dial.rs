//! New upstream connections: to a checked address, or by the upstream proxy of this host.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use atoll_model::network::{HostPart, UpstreamProxy};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::OwnedSemaphorePermit;

use crate::Egress;

/// The most connections of a run at once with buffers as large as the kernel chooses, up to
/// megabytes (tcp(7), `tcp_rmem`): unread data fills them, and they are memory of the host.
pub(crate) const WIDE_MAX: usize = 64;
/// The buffer of the others for each direction, bytes; the kernel doubles it.
const NARROW_BYTES: u32 = 64 * 1024;

/// The longest head of a proxy's answer to CONNECT, bytes.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// The number of its bytes that are peeked at once.
const BLOCK_BYTES: usize = 1024;

/// The place at which a connection is dialled.
#[derive(Clone, Copy, Debug)]
pub enum Route {
    /// An address that was checked.
    At(IpAddr),
    /// The upstream proxy, which alone knows the address.
    ByProxy,
}

impl Route {
    /// Returns the address that is dialled.
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Self::At(address) => Some(address),
            Self::ByProxy => None,
        }
    }

    /// Returns the proxy, for the record.
    pub(crate) fn via(self, egress: &Egress) -> Option<String> {
        let proxy = egress.network().upstream.proxy.as_ref();
        match self {
            Self::At(_) => None,
            Self::ByProxy => proxy.map(UpstreamProxy::to_string),
        }
    }
}

/// An upstream connection, with the permit for large buffers if it has one.
#[derive(Debug)]
pub struct UpstreamStream {
    pub(crate) stream: TcpStream,
    pub(crate) wide: Option<OwnedSemaphorePermit>,
}

impl AsyncRead for UpstreamStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, to)
    }
}

impl AsyncWrite for UpstreamStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Opens a connection, with large buffers while few have them. Writes are sent at once (tcp(7),
/// `TCP_NODELAY`).
async fn begin(egress: &Egress, to: SocketAddr) -> io::Result<UpstreamStream> {
    let wide = Arc::clone(&egress.wide).try_acquire_owned().ok();
    let socket = match to {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    if wide.is_none() {
        // Before the connection: how much a server may send depends on it (RFC 7323).
        socket.set_recv_buffer_size(NARROW_BYTES)?;
        socket.set_send_buffer_size(NARROW_BYTES)?;
    }
    socket.set_nodelay(true)?;
    let stream = socket.connect(to).await?;
    Ok(UpstreamStream { stream, wide })
}

/// Connects to a host at a place where it may be.
pub(crate) async fn dial(
    egress: &Egress,
    host: &HostPart,
    port: u16,
    place: Route,
) -> io::Result<UpstreamStream> {
    match place {
        Route::At(address) => begin(egress, SocketAddr::new(address, port)).await,
        Route::ByProxy => {
            let proxy = egress.network().proxy_for(host, port);
            let proxy = proxy.ok_or(io::ErrorKind::NotFound)?;
            let mut dialled = connect(egress, proxy).await?;
            ask(&mut dialled.stream, proxy, host, port).await?;
            Ok(dialled)
        }
    }
}

/// Connects to the proxy itself, whose address is the user's own setting.
async fn connect(egress: &Egress, proxy: &UpstreamProxy) -> io::Result<UpstreamStream> {
    let addresses: Vec<IpAddr> = match &proxy.host {
        HostPart::Address(address) => vec![*address],
        HostPart::Name(name) => {
            let found = egress.resolver.find(name).await.map_err(|why| {
                io::Error::other(format!("DNS lookup of the upstream proxy failed: {why}"))
            })?;
            found.iter().collect()
        }
    };
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match begin(egress, SocketAddr::new(address, proxy.port)).await {
            Ok(dialled) => return Ok(dialled),
            Err(error) => failed = error,
        }
    }
    Err(io::Error::other(format!(
        "the upstream proxy cannot be reached: {failed}"
    )))
}

/// Asks the proxy for a tunnel. Bytes from the host are left for the next reader.
async fn ask(
    stream: &mut TcpStream,
    proxy: &UpstreamProxy,
    host: &HostPart,
    port: u16,
) -> io::Result<()> {
    let mut asked = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
    if let Some(credentials) = &proxy.credentials {
        let encoded = STANDARD.encode(credentials);
        asked.push_str(&format!("Proxy-Authorization: Basic {encoded}\r\n"));
    }
    asked.push_str("\r\n");
    stream.write_all(asked.as_bytes()).await?;
    let head = head(stream).await?;
    let mut words = head.split(' ');
    let (version, status) = (words.next(), words.next());
    let is_http = version.is_some_and(|version| version.starts_with("HTTP/1."));
    match status.filter(|_| is_http) {
        Some(status) if status.len() == 3 && status.starts_with('2') => Ok(()),
        Some("407") => Err(io::Error::other(
            "the upstream proxy does not accept the user and password (407)",
        )),
        Some(status) if status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(io::Error::other(format!(
                "the upstream proxy refuses it ({status})"
            )))
        }
        Some(_) | None => Err(io::Error::other("the upstream proxy speaks no HTTP")),
    }
}

/// Reads the head of an answer, and not a byte more.
async fn head(stream: &mut TcpStream) -> io::Result<String> {
    const END: &[u8] = b"\r\n\r\n";
    let mut head = Vec::new();
    let mut block = [0; BLOCK_BYTES];
    while head.len() < ANSWER_BYTES_MAX {
        let seen = stream.peek(&mut block).await?;
        if seen == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let before = head.len();
        head.extend_from_slice(block.get(..seen).unwrap_or_default());
        let from = before.saturating_sub(END.len() - 1);
        let rest = head.get(from..).unwrap_or_default();
        let end = rest.windows(END.len()).position(|window| window == END);
        let length = end.map_or(head.len(), |end| from + end + END.len());
        // What was looked at is there.
        let taken = block.get_mut(..length - before).unwrap_or_default();
        stream.read_exact(taken).await?;
        if end.is_some() {
            head.truncate(length);
            return Ok(String::from_utf8_lossy(&head).into_owned());
        }
    }
    Err(io::Error::other("the upstream proxy's answer has no end"))
}
