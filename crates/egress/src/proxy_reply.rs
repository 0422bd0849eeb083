//! Answers to programs that asked for a connection in a proxy protocol.

use crate::denial_body::{failure, refusal};

/// The version of SOCKS, the first byte of each of its messages (RFC 1928).
pub(crate) const SOCKS_VERSION: u8 = 5;

/// The proxy protocol in which a program asks for a connection, rather than making it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyProtocol {
    /// HTTP CONNECT.
    Connect,
    /// SOCKS 5.
    Socks,
}

/// The reason for which a connection is not carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reject {
    /// Denied by rules or policies.
    Refused,
    /// A host that cannot be reached.
    Unreachable,
}

/// Returns the answer for a connection that is established.
pub(crate) fn granted(asked: ProxyProtocol) -> Vec<u8> {
    match asked {
        ProxyProtocol::Connect => b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec(),
        ProxyProtocol::Socks => reply(0).to_vec(),
    }
}

/// Returns the answer for a connection that is denied or fails.
pub(crate) fn denied(asked: ProxyProtocol, reject: Reject, what: &str, why: &str) -> Vec<u8> {
    match (asked, reject) {
        (ProxyProtocol::Connect, Reject::Refused) => answer("403 Forbidden", &refusal(what, why)),
        (ProxyProtocol::Connect, Reject::Unreachable) => {
            answer("502 Bad Gateway", &failure(what, why))
        }
        (ProxyProtocol::Socks, Reject::Refused) => reply(2).to_vec(),
        (ProxyProtocol::Socks, Reject::Unreachable) => reply(4).to_vec(),
    }
}

/// Encodes an answer of HTTP/1.1 with this JSON body, after which the connection ends.
pub(crate) fn answer(status: &str, text: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        text.len()
    );
    [head.as_bytes(), text].concat()
}

/// Encodes a SOCKS reply (RFC 1928, 6) without an address, which no client needs.
pub(crate) fn reply(code: u8) -> [u8; 10] {
    [SOCKS_VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}
