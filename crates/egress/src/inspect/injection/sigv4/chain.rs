//! The signatures of a body in signed chunks: each covers the one before it, and the first covers
//! the request's.
//!
//! Source: "Transferring Payload in Multiple Chunks" and "Including Trailing Headers" in the
//! documentation of S3's signatures.

use aws_lc_rs::hmac;

use super::{Scope, Signature, digest, hexadecimal};

/// The payload value of a body in signed chunks.
pub(crate) const PIECES: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
/// The payload value of such a body with signed trailers.
pub(crate) const PIECES_AND_TRAILERS: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";

/// The next item to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainItem<'a> {
    /// A chunk of the body; the last one is empty.
    Piece(&'a [u8]),
    /// The trailers, each as `name:value` with a line end.
    Trailers(&'a [u8]),
}

/// A chain of signatures with one key, up to the last one made.
#[derive(Clone)]
pub(crate) struct SignatureChain {
    key: hmac::Key,
    time: String,
    scope: String,
    /// The last signature, in hexadecimal digits.
    last: String,
}

impl std::fmt::Debug for SignatureChain {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("SignatureChain").finish_non_exhaustive()
    }
}

impl SignatureChain {
    /// Starts the chain after a request's signature.
    pub(super) fn new(secret: &[u8], time: &str, scope: &Scope, first: String) -> Self {
        Self {
            key: scope.key(secret),
            time: time.to_owned(),
            scope: scope.text(),
            last: first,
        }
    }

    /// Starts the chain of AWS's examples, which share one time and scope.
    #[cfg(test)]
    pub(crate) fn of_example(secret: &[u8], first: &str) -> Self {
        let scope = Scope {
            day: "20130524".to_owned(),
            region: "us-east-1".to_owned(),
            service: "s3".to_owned(),
        };
        Self::new(secret, "20130524T000000Z", &scope, first.to_owned())
    }

    /// Signs the next item, and returns the signature in hexadecimal digits.
    pub(crate) fn sign(&mut self, next: ChainItem<'_>) -> &str {
        let tag = hmac::sign(&self.key, self.text(next).as_bytes());
        self.last = hexadecimal(tag.as_ref());
        &self.last
    }

    /// Returns whether this is the signature of the next item. If it is not, nothing can follow.
    pub(crate) fn follows(&mut self, next: ChainItem<'_>, signature: &str) -> bool {
        let Some(signature) = Signature::parse(signature) else {
            return false;
        };
        let text = self.text(next);
        self.last = hexadecimal(&signature.0);
        hmac::verify(&self.key, text.as_bytes(), &signature.0).is_ok()
    }

    /// Returns the next string to sign.
    fn text(&self, next: ChainItem<'_>) -> String {
        let Self {
            time, scope, last, ..
        } = self;
        match next {
            ChainItem::Piece(bytes) => {
                let (headers, bytes) = (digest(&[]), digest(bytes));
                format!("AWS4-HMAC-SHA256-PAYLOAD\n{time}\n{scope}\n{last}\n{headers}\n{bytes}")
            }
            ChainItem::Trailers(text) => {
                let text = digest(text);
                format!("AWS4-HMAC-SHA256-TRAILER\n{time}\n{scope}\n{last}\n{text}")
            }
        }
    }
}
