//! Scans of tunnels, in a run that has credentials: outgoing bytes are searched for placeholders,
//! and real values in incoming bytes are masked.
//!
//! Encrypted bytes are scanned as they are, and nothing is found in them.

use std::future::pending;

use tokio::time::sleep;

use crate::credentials::Credentials;
use crate::secret::{Finder, Found, HOLD, Mask};

/// A scan of one direction.
pub(crate) enum Scan {
    /// None: the run has no credentials, or the bytes are nobody's secret.
    Not,
    /// A search for placeholders in outgoing bytes.
    Out(Box<Finder>),
    /// A masking of real values in incoming bytes.
    Back(Box<Mask>),
}

impl Scan {
    /// Returns the scans of a connection: of outgoing and of incoming bytes.
    pub(crate) fn both(credentials: &Credentials) -> [Self; 2] {
        let out = credentials.placeholders().map(|all| all.stream());
        let back = credentials.masks().map(|all| all.stream());
        [
            out.map_or(Self::Not, |finder| Self::Out(Box::new(finder))),
            back.map_or(Self::Not, |mask| Self::Back(Box::new(mask))),
        ]
    }

    /// Scans received bytes, and returns those that go on, for which `masked` is the buffer. Unless
    /// more is there already, too few bytes to be of use ([`Mask::is_short`]) are not held back.
    ///
    /// # Errors
    /// [`Found`]: none of them may leave.
    pub(crate) fn at<'a>(
        &mut self,
        came: &'a [u8],
        is_more: bool,
        masked: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Found> {
        match self {
            Self::Not => Ok(came),
            Self::Out(finder) => finder.feed(came).map(|()| came),
            Self::Back(mask) => {
                masked.clear();
                mask.feed(came, masked);
                if !is_more && mask.is_short() {
                    mask.release(masked);
                }
                Ok(masked)
            }
        }
    }

    /// Searches a text that leaves in another form than it is sent in.
    ///
    /// # Errors
    /// [`Found`]: it may not leave.
    pub(crate) fn apart(&self, text: &[u8]) -> Result<(), Found> {
        match self {
            Self::Out(finder) => finder.apart(text),
            Self::Not | Self::Back(_) => Ok(()),
        }
    }

    /// Returns held-back bytes that go on at once, now that no more has come: they are not to delay
    /// a person who types. Buffers are released meanwhile.
    pub(crate) fn pause(&mut self) -> Vec<u8> {
        match self {
            Self::Not => Vec::new(),
            Self::Out(finder) => {
                finder.give_back();
                Vec::new()
            }
            Self::Back(mask) => {
                let is_short = mask.held() > 0 && mask.is_short();
                let short = if is_short {
                    released_bytes(mask)
                } else {
                    Vec::new()
                };
                mask.give_back();
                short
            }
        }
    }

    /// Returns held-back bytes that go on after a while ([`HOLD`]), where nothing more comes. In an
    /// unknown protocol a message can end anywhere, so the bytes cannot wait for its end. In any
    /// case, a program that knows the server's protocol can ask for a value in two parts through a
    /// tunnel.
    pub(crate) async fn late(&mut self) -> Vec<u8> {
        match self {
            Self::Back(mask) if mask.held() > 0 => {
                sleep(HOLD).await;
                released_bytes(mask)
            }
            Self::Not | Self::Out(_) | Self::Back(_) => pending().await,
        }
    }

    /// Returns the held-back bytes, at the end.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        match self {
            Self::Back(mask) => released_bytes(mask),
            Self::Not | Self::Out(_) => Vec::new(),
        }
    }
}

fn released_bytes(mask: &mut Mask) -> Vec<u8> {
    let mut out = Vec::new();
    mask.release(&mut out);
    out
}
