//! The first bytes of a connection, where they name the host that they are for (TLS SNI).

use std::cmp::Ordering;

use std::fmt;

use atoll_model::network::HostName;
use rustls::server::Acceptor;

/// The content type of a handshake, the first byte of every TLS connection (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// The other content types (RFC 8446, 5.1). None of these begins a connection.
const OTHER_RECORDS: [u8; 3] = [CHANGE_CIPHER_SPEC, ALERT, DATA];
const CHANGE_CIPHER_SPEC: u8 = 20;
const DATA: u8 = 23;
/// The content type of an alert.
pub(crate) const ALERT: u8 = 21;

/// The second byte: the major half of a legacy version (RFC 8446, 5.1). The library accepts no
/// other; servers may, of a record before the ClientHello.
const MAJOR_VERSION: u8 = 3;

/// A record's header: its type, a version, its length.
const HEADER_BYTES: usize = 5;

/// The random of a HelloRetryRequest (RFC 8446, 4.1.3).
pub(crate) const AGAIN: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// The first bytes from the program, as parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    /// Not a TLS handshake.
    Other,
    /// A ClientHello that is not complete yet.
    Partial,
    /// TLS for the host of this name, if it names one.
    Tls(Option<String>),
    /// A ClientHello that cannot be parsed, or TLS records without one.
    Malformed,
}

/// Parses the first bytes.
pub(crate) fn read(bytes: &[u8]) -> Hello {
    match bytes {
        [HANDSHAKE, ..] => {}
        [kind, ..] if OTHER_RECORDS.contains(kind) => return other_record(bytes),
        _ => return Hello::Other,
    }
    // The library wants a whole header before it says so, and who speaks something else may wait
    // for an answer meanwhile.
    if bytes.get(1).is_some_and(|major| *major != MAJOR_VERSION) {
        return Hello::Malformed;
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

/// Parses first bytes whose first is the type of a record that begins no connection. Servers read
/// on after a warning alert of two bytes: Go's crypto/tls 1.19 with any version up to 15.255, Java
/// 17 with any version.
fn other_record(bytes: &[u8]) -> Hello {
    match bytes {
        [_] => Hello::Partial,
        [_, MAJOR_VERSION, ..] | [ALERT, _, _, 0, 2, ..] => Hello::Malformed,
        [ALERT, _] | [ALERT, _, _] | [ALERT, _, _, 0] => Hello::Partial,
        _ => Hello::Other,
    }
}

/// Returns whether the ClientHello, which the library has found well-formed, has the server name
/// extension (RFC 6066, 3).
fn names_someone(bytes: &[u8]) -> Option<bool> {
    let (message, is_cut) = message(bytes);
    let mut rest = message.get(4 + 2 + 32..).filter(|_| !is_cut)?;
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

/// Returns the content of the first whole handshake records, since a message may span several; and
/// whether a record that is cut off follows.
pub(crate) fn message(bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut rest = bytes;
    let mut message = Vec::new();
    while let Some(([HANDSHAKE, _, _, high, low], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some((record, after)) = after.split_at_checked(length) else {
            return (message, true);
        };
        message.extend_from_slice(record);
        rest = after;
    }
    (message, false)
}

/// Returns the end of the records that hold the ClientHello, which has been found well-formed;
/// `None` where something follows within the last of them.
pub(crate) fn end(bytes: &[u8]) -> Option<usize> {
    let mut message: Vec<u8> = Vec::new();
    let mut at = 0;
    loop {
        let ([HANDSHAKE, _, _, high, low], rest) = bytes.get(at..)?.split_first_chunk()? else {
            return None;
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        message.extend_from_slice(rest.get(..length)?);
        at += HEADER_BYTES + length;
        if let Some([_, high, middle, low]) = message.first_chunk() {
            let length = u32::from_be_bytes([0, *high, *middle, *low]);
            let whole = 4 + usize::try_from(length).ok()?;
            match message.len().cmp(&whole) {
                Ordering::Less => {}
                Ordering::Equal => return Some(at),
                Ordering::Greater => return None,
            }
        }
    }
}

/// Returns whether the server's first bytes ask for another ClientHello; `None` where more of them
/// are needed to know. To be on the safe side, bytes that cannot be parsed count as asking.
pub(crate) fn asks_again(bytes: &[u8]) -> Option<bool> {
    const SERVER_HELLO: u8 = 2;
    match bytes.first() {
        None => return None,
        Some(&ALERT) => return Some(false),
        Some(&HANDSHAKE) => {}
        Some(_) => return Some(true),
    }
    let [_, _, _, high, low] = bytes.first_chunk()?;
    // The kind of message, its length, a version, and what is random in it.
    let least = 4 + 2 + 32;
    if usize::from(u16::from_be_bytes([*high, *low])) < least {
        return Some(true);
    }
    let message = bytes.get(HEADER_BYTES..HEADER_BYTES + least)?;
    let (kind, random) = (message.first(), message.get(6..));
    Some(kind != Some(&SERVER_HELLO) || random == Some(&AGAIN[..]))
}

/// Returns the length of a record that may precede the second ClientHello; 0 where that begins,
/// `None` where more bytes are needed to know.
pub(crate) fn passes_over(bytes: &[u8]) -> Option<usize> {
    let [kind, _, _, high, low] = bytes.first_chunk()?;
    if ![CHANGE_CIPHER_SPEC, DATA].contains(kind) {
        return Some(0);
    }
    let length = HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
    (bytes.len() >= length).then_some(length)
}

/// Splits off a field that follows its length, which takes this many bytes. Returns it, and the
/// rest.
fn split_field(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_at_checked(width)?;
    let length = length
        .iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    rest.split_at_checked(length)
}

impl fmt::Display for Hello {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => to.write_str("it is not TLS"),
            Self::Partial => to.write_str("its TLS is cut off"),
            Self::Malformed => to.write_str("its TLS cannot be read"),
            Self::Tls(None) => to.write_str("its TLS names nobody"),
            // What is not plain is somebody's trick, and no name.
            Self::Tls(Some(name)) => write!(to, "its TLS names {}", name.escape_default()),
        }
    }
}

impl Hello {
    /// Returns whether it is for another host than the one that the program asked for.
    pub(crate) fn is_for_another(&self, asked: &HostName) -> bool {
        match self {
            Self::Tls(Some(name)) => HostName::parse(name).as_ref() != Ok(asked),
            Self::Malformed => true,
            Self::Other | Self::Partial | Self::Tls(None) => false,
        }
    }
}
