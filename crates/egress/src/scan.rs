//! What nobody reads of a connection is looked through all the same in a run that has
//! credentials: what leaves for placeholders, what comes back for real values.
//!
//! What is encrypted is searched as it stands, and nothing is found in it.

use std::future::pending;

use tokio::time::sleep;

use crate::credentials::Credentials;
use crate::secret::{Finder, Found, HOLD, Mask};

/// How what passes one way is looked through.
pub(crate) enum Scan {
    /// Not at all: the run has no credentials, or it is nobody's secret.
    Not,
    /// For placeholders, on its way out.
    Out(Box<Finder>),
    /// For real values, on its way back.
    Back(Box<Mask>),
}

impl Scan {
    /// The scans at both ways of a connection: what leaves, and what comes back.
    pub(crate) fn both(credentials: &Credentials) -> [Self; 2] {
        let out = credentials.placeholders().map(|all| all.stream());
        let back = credentials.masks().map(|all| all.stream());
        [
            out.map_or(Self::Not, |finder| Self::Out(Box::new(finder))),
            back.map_or(Self::Not, |mask| Self::Back(Box::new(mask))),
        ]
    }

    /// What goes on once this has come, after which more is there or not; `masked` is room for
    /// it. Too few bytes to be of use ([`Mask::is_short`]) wait for nothing that is not there.
    ///
    /// # Errors
    /// [`Found`]: nothing of it may leave.
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

    /// Looks through a text that leaves in another form than it is sent in.
    ///
    /// # Errors
    /// [`Found`]: it may not leave.
    pub(crate) fn apart(&self, text: &[u8]) -> Result<(), Found> {
        match self {
            Self::Out(finder) => finder.apart(text),
            Self::Not | Self::Back(_) => Ok(()),
        }
    }

    /// What was held back and goes on at once, now that no more has come: nobody who types is
    /// to wait for it. Whoever waits long has no room taken meanwhile.
    pub(crate) fn pause(&mut self) -> Vec<u8> {
        match self {
            Self::Not => Vec::new(),
            Self::Out(finder) => {
                finder.give_back();
                Vec::new()
            }
            Self::Back(mask) => {
                let is_short = mask.held() > 0 && mask.is_short();
                let short = if is_short { released(mask) } else { Vec::new() };
                mask.give_back();
                short
            }
        }
    }

    /// What was held back and goes on after a while ([`HOLD`]), where nothing more comes. A
    /// connection of which nobody knows what is said by it cannot wait for what ends it: a
    /// message can end anywhere. Whoever knows the server's language can ask it for a value in
    /// two parts by a tunnel in any case.
    pub(crate) async fn late(&mut self) -> Vec<u8> {
        match self {
            Self::Back(mask) if mask.held() > 0 => {
                sleep(HOLD).await;
                released(mask)
            }
            Self::Not | Self::Out(_) | Self::Back(_) => pending().await,
        }
    }

    /// What was held back, at the end.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        match self {
            Self::Back(mask) => released(mask),
            Self::Not | Self::Out(_) => Vec::new(),
        }
    }
}

fn released(mask: &mut Mask) -> Vec<u8> {
    let mut out = Vec::new();
    mask.release(&mut out);
    out
}
