//! What passes once both sides are signed in, looked through message by message: what a program
//! says for placeholders, what a server says for real values. Messages keep their lengths.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::credentials::Credentials;
use crate::opening::Stop;
use crate::secret::{Finder, Found, Mask};

/// What a message begins with: its kind, and its length without that, bytes.
const HEAD_BYTES: usize = 5;
/// A part of what is copied, from either side (`CopyData`).
const COPIED: u8 = b'd';

/// Bytes on their way.
pub(super) trait Passing {
    /// Adds to `on` what goes on of what came.
    ///
    /// # Errors
    /// [`Stop`]: nothing of it does.
    fn take(&mut self, came: &[u8], on: &mut Vec<u8>) -> Result<(), Stop>;

    /// What was held back, at the end.
    fn end(&mut self, _on: &mut Vec<u8>) {}

    /// All that was to go on has done so.
    fn sent(&mut self) {}
}

/// Reads messages that come piece by piece.
#[derive(Debug, Default)]
struct Reader {
    /// The beginning of a head.
    head: Vec<u8>,
    /// The message within which one is: its kind, and how much of it is still to come.
    within: Option<(u8, usize)>,
}

/// A part of what came.
enum Piece<'a> {
    /// A head, as it is.
    Head(&'a [u8]),
    /// Some of a message of this kind.
    Body {
        kind: u8,
        bytes: &'a [u8],
        is_last: bool,
    },
}

impl Reader {
    /// # Errors
    /// [`Malformed`], and what is made of a piece.
    fn read<E: From<Malformed>>(
        &mut self,
        came: &[u8],
        mut each: impl FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = came;
        while !rest.is_empty() {
            let (kind, left) = match self.within {
                Some(within) => within,
                None => {
                    let wanted = HEAD_BYTES.saturating_sub(self.head.len()).min(rest.len());
                    let (more, after) = rest.split_at_checked(wanted).ok_or(Malformed)?;
                    self.head.extend_from_slice(more);
                    rest = after;
                    let Some([kind, length @ ..]) = self.head.first_chunk::<HEAD_BYTES>() else {
                        return Ok(());
                    };
                    // It is a number with a sign there.
                    let length = usize::try_from(i32::from_be_bytes(*length));
                    let length = length.ok().and_then(|length| length.checked_sub(4));
                    let within = (*kind, length.ok_or(Malformed)?);
                    each(Piece::Head(&self.head))?;
                    self.head.clear();
                    within
                }
            };
            let (bytes, after) = rest.split_at_checked(left).unwrap_or((rest, &[]));
            rest = after;
            let left = left - bytes.len();
            let is_last = left == 0;
            self.within = (!is_last).then_some((kind, left));
            each(Piece::Body {
                kind,
                bytes,
                is_last,
            })?;
        }
        Ok(())
    }

    /// Whether one message has ended and no other has begun.
    fn is_between(&self) -> bool {
        self.within.is_none() && self.head.is_empty()
    }
}

/// What came is no message.
struct Malformed;

impl From<Malformed> for Stop {
    fn from(_: Malformed) -> Self {
        Self::Failed("what is said after the login is no message of PostgreSQL".to_owned())
    }
}

/// What a program says, as it is.
pub(super) struct Said {
    finder: Finder,
    reader: Reader,
    /// What is copied is one stream for the server, in however many messages it comes.
    copied: Finder,
}

impl Said {
    /// For all placeholders: none is for a database. None where there are none.
    pub(super) fn new(credentials: &Credentials) -> Option<Self> {
        let all = credentials.placeholders()?;
        Some(Self {
            finder: all.stream(),
            reader: Reader::default(),
            copied: all.stream(),
        })
    }
}

impl Passing for Said {
    fn take(&mut self, came: &[u8], on: &mut Vec<u8>) -> Result<(), Stop> {
        let carries = |found: Found| Stop::Carries {
            found,
            place: "what the program says to the database",
        };
        self.finder.feed(came).map_err(carries)?;
        let copied = &mut self.copied;
        self.reader.read(came, |piece| match piece {
            Piece::Body {
                kind: COPIED,
                bytes,
                ..
            } => copied.feed(bytes).map_err(carries),
            Piece::Head(_) | Piece::Body { .. } => Ok(()),
        })?;
        on.extend_from_slice(came);
        Ok(())
    }
}

/// What a server says, without real values. Each message goes on at its end, as it has to: a
/// program waits for it, and not for the next one.
pub(super) struct Heard<'a> {
    reader: Reader,
    mask: Mask,
    /// Whether the program has been told whole messages so far.
    is_between: &'a AtomicBool,
}

impl<'a> Heard<'a> {
    /// None where nothing is to be masked.
    pub(super) fn new(credentials: &Credentials, is_between: &'a AtomicBool) -> Option<Self> {
        Some(Self {
            reader: Reader::default(),
            mask: credentials.masks()?.stream(),
            is_between,
        })
    }
}

impl Passing for Heard<'_> {
    fn take(&mut self, came: &[u8], on: &mut Vec<u8>) -> Result<(), Stop> {
        self.is_between.store(false, Ordering::Relaxed);
        let mask = &mut self.mask;
        self.reader.read(came, |piece| {
            match piece {
                Piece::Head(bytes) => on.extend_from_slice(bytes),
                Piece::Body { bytes, is_last, .. } => {
                    mask.feed(bytes, on);
                    if is_last {
                        mask.release(on);
                    }
                }
            }
            Ok(())
        })
    }

    fn end(&mut self, on: &mut Vec<u8>) {
        self.mask.release(on);
    }

    fn sent(&mut self) {
        self.is_between
            .store(self.reader.is_between(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
