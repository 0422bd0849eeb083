//! The first bytes of a connection, where they tell whom they are for.

use std::cmp::Ordering;

use std::fmt;

use atoll_model::network::HostName;
use rustls::server::Acceptor;

/// The first byte of every TLS connection: a handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// What else a record can be (RFC 8446, 5.1). None of these begins a connection.
const OTHER_RECORDS: [u8; 3] = [CHANGE_CIPHER_SPEC, ALERT, DATA];
const CHANGE_CIPHER_SPEC: u8 = 20;
const DATA: u8 = 23;
/// That something is wrong, or may be.
pub(crate) const ALERT: u8 = 21;

/// The second one: what remains of a version (RFC 8446, 5.1). The library takes no other; servers
/// may, of a record before the beginning.
const MAJOR_VERSION: u8 = 3;

/// What a record begins with: its kind, a version, its length.
const HEADER_BYTES: usize = 5;

/// What is random in a server's first message that asks to begin again (RFC 8446, 4.1.3).
pub(crate) const AGAIN: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// What the first bytes from the program are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    /// Not the beginning of TLS.
    Other,
    /// The beginning of TLS, but not all of it yet.
    Partial,
    /// TLS for the host of this name, if it names one.
    Tls(Option<String>),
    /// The beginning of TLS, and then not; or records of TLS without its beginning.
    Malformed,
}

/// Reads the first bytes.
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

/// Reads first bytes of which the first is that of a record that begins nothing. Servers read on
/// behind an alert of two bytes that is a warning: Go's crypto/tls 1.19 whatever its version is up
/// to 15.255, Java 17 whatever it is.
fn other_record(bytes: &[u8]) -> Hello {
    match bytes {
        [_] => Hello::Partial,
        [_, MAJOR_VERSION, ..] | [ALERT, _, _, 0, 2, ..] => Hello::Malformed,
        [ALERT, _] | [ALERT, _, _] | [ALERT, _, _, 0] => Hello::Partial,
        _ => Hello::Other,
    }
}

/// Whether the first message, which the library has found to be well-formed, has the
/// extension that names a host (RFC 6066, 3).
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

/// What the first records hold that are whole, since a message may lie in several; and whether
/// one that is cut follows.
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

/// Where the records end that hold the first message, which has been found to be
/// well-formed. None where something follows within the last of them.
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

/// Whether the server's first bytes ask the program to begin again. None where it takes
/// more of them to know; all that cannot be read asks for it, to be on the safe side.
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

/// How long a record is that can come before the second beginning; 0 where that begins.
/// None where it takes more bytes to know.
pub(crate) fn passes_over(bytes: &[u8]) -> Option<usize> {
    let [kind, _, _, high, low] = bytes.first_chunk()?;
    if ![CHANGE_CIPHER_SPEC, DATA].contains(kind) {
        return Some(0);
    }
    let length = HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
    (bytes.len() >= length).then_some(length)
}

/// A field that begins with its length in so many bytes, and what follows it.
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
    /// Whether it is for another host than the program has asked for.
    pub(crate) fn is_for_another(&self, asked: &HostName) -> bool {
        match self {
            Self::Tls(Some(name)) => HostName::parse(name).as_ref() != Ok(asked),
            Self::Malformed => true,
            Self::Other | Self::Partial | Self::Tls(None) => false,
        }
    }
}
