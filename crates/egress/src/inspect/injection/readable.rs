//! Request headers in a run with credentials, changed so that the response can be masked.

use hyper::header::{
    ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue, IF_RANGE, RANGE, SEC_WEBSOCKET_EXTENSIONS,
};

use super::OutgoingRequest;
use crate::credentials::Credentials;
use crate::inspect::ranges::PaddedRange;
use crate::secret::narrow;

/// The header with the gRPC message compressions that a program reads.
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

impl OutgoingRequest {
    /// Finds the range that the request asks for, with a margin for the longest real value that
    /// there is by now.
    pub(crate) fn find_range(&mut self, credentials: &Credentials) {
        if self.injection.asks_all {
            self.injection.ranged = None;
            return;
        }
        let longest = credentials.masks().map_or(0, |masks| masks.longest());
        let (method, headers) = (&self.parts.method, &self.parts.headers);
        self.injection.ranged = PaddedRange::read(method, headers, longest as u64);
    }
}

/// Changes a request so that the response can be masked: no unknown coding, and no range (RFC 9110,
/// 14) except one with its margin, since a real value could be cut by two ranges and be whole in
/// neither.
pub(super) fn ask_for_readable(headers: &mut HeaderMap, ranged: Option<PaddedRange>) {
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
