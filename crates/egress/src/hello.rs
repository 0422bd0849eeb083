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
                let name = hello.server_name().map(str::to_owned);
                // The library passes over names that are addresses; servers may not.
                return match (&name, names_someone(bytes)) {
                    (Some(_), Some(true)) | (None, Some(false)) => Hello::Tls(name),
                    _ => Hello::Malformed,
                };
            }
            Err(_) => return Hello::Malformed,
        }
    }
    Hello::Partial
}

/// Whether the first message, which the library has found to be well-formed, has the
/// extension that names a host (RFC 6066, 3).
fn names_someone(bytes: &[u8]) -> Option<bool> {
    let mut rest = bytes;
    let mut message = Vec::new();
    // A message may lie in several records.
    while let Some(([HANDSHAKE, _, _, high, low], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (record, after) = after.split_at_checked(length)?;
        message.extend_from_slice(record);
        rest = after;
    }
    let mut rest = message.get(4 + 2 + 32..)?;
    for width in [1, 2, 1] {
        // The session's id, what ciphers there are, and what compression.
        rest = split_field(rest, width)?.1;
    }
    let Some((mut extensions, _)) = split_field(rest, 2) else {
        // None at all.
        return Some(false);
    };
    while let Some((kind, after)) = extensions.split_first_chunk::<2>() {
        if *kind == [0, 0] {
            return Some(true);
        }
        extensions = split_field(after, 2)?.1;
    }
    Some(false)
}

/// A field that begins with its length in so many bytes, and what follows it.
fn split_field(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_at_checked(width)?;
    let length = length
        .iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    rest.split_at_checked(length)
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
