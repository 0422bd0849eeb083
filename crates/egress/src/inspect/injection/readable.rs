//! What a request asks for in a run with credentials: nothing that cannot be masked.

use hyper::header::{
    ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue, IF_RANGE, RANGE, SEC_WEBSOCKET_EXTENSIONS,
};

use super::Outgoing;
use crate::credentials::Credentials;
use crate::inspect::ranges::Ranged;
use crate::secret::narrow;

/// In which ways a program reads compressed messages of gRPC.
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

impl Outgoing {
    /// Finds which part of an answer it asks for, by the real values that there are by now.
    pub(crate) fn find_range(&mut self, credentials: &Credentials) {
        if self.injection.asks_all {
            self.injection.ranged = None;
            return;
        }
        let longest = credentials.masks().map_or(0, |masks| masks.longest());
        let (method, headers) = (&self.parts.method, &self.parts.headers);
        self.injection.ranged = Ranged::read(method, headers, longest as u64);
    }
}

/// Has a request ask for nothing that cannot be masked: no other coding, and no parts
/// (RFC 9110, 14) but one with what is around it, since a real value could come in two of them
/// and be in neither.
pub(super) fn ask_for_readable(headers: &mut HeaderMap, ranged: Option<Ranged>) {
    narrow(headers);
    if let Some(range) = ranged.and_then(|ranged| ranged.header()) {
        headers.insert(RANGE, range);
        // A part of what is compressed could not be looked through.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    } else {
        headers.remove(RANGE);
        headers.remove(IF_RANGE);
    }
    // Extensions of WebSocket compress what it carries (RFC 7692).
    headers.remove(SEC_WEBSOCKET_EXTENSIONS);
    if headers.contains_key(GRPC_ACCEPT_ENCODING) {
        headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
}
