//! The first bytes of a connection, where they tell whom they are for.

use atoll_model::network::HostName;
use rustls::server::Acceptor;

/// The first byte of every TLS connection: a handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// What the first bytes from the program are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    /// Not the beginning of TLS.
    Other,
    /// The beginning of TLS, but not all of it yet.
    Partial,
    /// TLS for the host of this name, if it names one.
    Tls(Option<String>),
    /// The beginning of TLS, and then not.
    Malformed,
}

/// Reads the first bytes.
pub(crate) fn read(bytes: &[u8]) -> Hello {
    if bytes.first() != Some(&HANDSHAKE) {
        return Hello::Other;
    }
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        match acceptor.read_tls(&mut rest) {
            Ok(0) => break,
            Ok(_) => {}
            Err(_) => return Hello::Malformed,
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                return Hello::Tls(hello.server_name().map(str::to_owned));
            }
            Err(_) => return Hello::Malformed,
        }
    }
    Hello::Partial
}

impl Hello {
    /// Whether it is for another host than the program has asked for.
    pub(crate) fn is_for_another(&self, asked: &HostName) -> bool {
        match self {
            Self::Tls(Some(name)) => HostName::parse(name).as_ref() != Ok(asked),
            Self::Malformed => true,
            Self::Other | Self::Partial | Self::Tls(None) => false,
        }
    }
}
