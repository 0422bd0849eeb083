//! Connections to a database server, by TLS, or without where a profile says so.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use atoll_model::network::{ServerTls, is_private};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

use atoll_egress::connector::{ResolveError, Route, UpstreamStream};

/// A connection to a server.
#[derive(Debug)]
pub(super) enum Stream {
    /// By TLS; its certificate was checked.
    Tls(Box<TlsStream<UpstreamStream>>),
    /// Without TLS, within a private network.
    Plain(UpstreamStream),
}

impl Stream {
    /// Returns whether the connection is by TLS.
    pub(super) fn tls(&self) -> ServerTls {
        match self {
            Self::Tls(_) => ServerTls::Required,
            Self::Plain(_) => ServerTls::None,
        }
    }
}

/// Returns the reason for which a login without TLS may not be at a place, if there is one. An
/// upstream proxy never qualifies: its destination's address is unknown here.
pub(super) fn strays(tls: ServerTls, place: Route) -> Option<&'static str> {
    const STRAYS: &str = "its login is without TLS (tls = \"none\"), and only for private networks";
    match (tls, place) {
        (ServerTls::Required, _) => None,
        (ServerTls::None, Route::At(address)) if is_private(address) => None,
        (ServerTls::None, Route::At(_) | Route::ByProxy) => Some(STRAYS),
    }
}

/// Returns the places where it may be dialled. If one is not allowed, none is: such a name is being
/// manipulated.
pub(super) fn check_places(tls: ServerTls, places: Vec<Route>) -> Result<Vec<Route>, ResolveError> {
    match places.iter().find_map(|place| strays(tls, *place)) {
        None => Ok(places),
        Some(why) => Err(ResolveError::Refused {
            why: why.to_owned(),
            shown: why.to_owned(),
        }),
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_read(context, to),
            Self::Plain(stream) => Pin::new(stream).poll_read(context, to),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_without_tls_needs_private_network() {
        let strays = |address: &str| {
            let place = Route::At(address.parse().unwrap());
            assert_eq!(strays(ServerTls::Required, place), None, "{address}");
            strays(ServerTls::None, place).is_some()
        };
        for private in [
            "10.0.0.0",
            "10.255.255.255",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.2",
            "::ffff:192.168.1.2",
            "fc00::1",
            "fdff::1",
        ] {
            assert!(!strays(private), "{private}");
        }
        for other in [
            "93.184.216.34",
            "9.255.255.255",
            "11.0.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.169.0.1",
            "127.0.0.1",
            "0.0.0.0",
            "100.64.0.1",
            "169.254.169.254",
            "224.0.0.1",
            "::",
            "::1",
            "::ffff:93.184.216.34",
            "64:ff9b::10.0.0.1",
            "fe80::1",
            "fec0::1",
            "2606:2800:220:1::1",
        ] {
            assert!(strays(other), "{other}");
        }
        assert!(super::strays(ServerTls::None, Route::ByProxy).is_some());
        let of = |all: &[&str]| {
            let places = all.iter().map(|one| Route::At(one.parse().unwrap()));
            check_places(ServerTls::None, places.collect()).is_ok()
        };
        assert!(of(&["10.1.2.3", "10.1.2.4"]));
        assert!(!of(&["10.1.2.3", "93.184.216.34"]));
        assert!(!of(&["93.184.216.34", "10.1.2.3"]));
    }
}
