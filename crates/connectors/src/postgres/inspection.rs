//! Inspection of an authenticated connection, message by message: the program's for placeholders,
//! the server's for real values. Messages keep their lengths.

use std::sync::atomic::{AtomicBool, Ordering};

use atoll_egress::connector::StopReason;
use atoll_egress::secret::{Finder, Found, Mask, Masks, Placeholders};

/// A message's header: its type, and its length without that, bytes.
const HEAD_BYTES: usize = 5;
/// The type of `CopyData`, from either side.
const COPIED: u8 = b'd';

/// An inspection of one direction.
pub(super) trait Inspection {
    /// Inspects received bytes, and adds those that go on to `on`.
    ///
    /// # Errors
    /// [`StopReason`]: none of them does.
    fn take(&mut self, came: &[u8], on: &mut Vec<u8>) -> Result<(), StopReason>;

    /// Adds held-back bytes at the end of the stream.
    fn end(&mut self, _on: &mut Vec<u8>) {}

    /// Notes that all bytes added so far are sent.
    fn sent(&mut self) {}
}

/// An incremental parser of messages.
#[derive(Debug, Default)]
struct Reader {
    /// The beginning of a header.
    head: Vec<u8>,
    /// The current message: its type, and the number of its bytes still to come.
    within: Option<(u8, usize)>,
}

/// A part of the received bytes.
enum MessagePart<'a> {
    /// A header, unchanged.
    Head(&'a [u8]),
    /// A part of the body of a message of this type.
    Body {
        kind: u8,
        bytes: &'a [u8],
        is_last: bool,
    },
}

impl Reader {
    /// Parses received bytes.
    ///
    /// # Errors
    /// [`Malformed`], and the errors of `each`.
    fn read<E: From<Malformed>>(
        &mut self,
        came: &[u8],
        mut each: impl FnMut(MessagePart<'_>) -> Result<(), E>,
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
                    each(MessagePart::Head(&self.head))?;
                    self.head.clear();
                    within
                }
            };
            let (bytes, after) = rest.split_at_checked(left).unwrap_or((rest, &[]));
            rest = after;
            let left = left - bytes.len();
            let is_last = left == 0;
            self.within = (!is_last).then_some((kind, left));
            each(MessagePart::Body {
                kind,
                bytes,
                is_last,
            })?;
        }
        Ok(())
    }

    /// Returns whether the stream is between two messages.
    fn is_between(&self) -> bool {
        self.within.is_none() && self.head.is_empty()
    }
}

/// The received bytes are no message.
struct Malformed;

impl From<Malformed> for StopReason {
    fn from(_: Malformed) -> Self {
        Self::Failed("what is said after the login is no message of PostgreSQL".to_owned())
    }
}

/// The inspection of the program's messages for placeholders. They go on unchanged.
pub(super) struct ClientMessages {
    finder: Finder,
    reader: Reader,
    /// The finder for `CopyData`: to the server it is one stream, in however many messages it
    /// comes.
    copied: Finder,
}

impl ClientMessages {
    /// Looks for all placeholders: none is for a database.
    pub(super) fn new(all: &Placeholders) -> Self {
        Self {
            finder: all.stream(),
            reader: Reader::default(),
            copied: all.stream(),
        }
    }
}

impl Inspection for ClientMessages {
    fn take(&mut self, came: &[u8], on: &mut Vec<u8>) -> Result<(), StopReason> {
        let carries = |found: Found| StopReason::Carries {
            found,
            place: "what the program says to the database",
        };
        self.finder.feed(came).map_err(carries)?;
        let copied = &mut self.copied;
        self.reader.read(came, |piece| match piece {
            MessagePart::Body {
                kind: COPIED,
                bytes,
                ..
            } => copied.feed(bytes).map_err(carries),
            MessagePart::Head(_) | MessagePart::Body { .. } => Ok(()),
        })?;
        on.extend_from_slice(came);
        Ok(())
    }
}

/// The masking of the server's messages. Each is released at its end: a program waits for the whole
/// message, and not for the next one.
pub(super) struct ServerMessages<'a> {
    reader: Reader,
    mask: Mask,
    /// Set while the program has been sent whole messages only.
    is_between: &'a AtomicBool,
}

impl<'a> ServerMessages<'a> {
    /// Masks all real values.
    pub(super) fn new(masks: &Masks, is_between: &'a AtomicBool) -> Self {
        Self {
            reader: Reader::default(),
            mask: masks.stream(),
            is_between,
        }
    }
}

impl Inspection for ServerMessages<'_> {
    fn take(&mut self, came: &[u8], on: &mut Vec<u8>) -> Result<(), StopReason> {
        self.is_between.store(false, Ordering::Relaxed);
        let mask = &mut self.mask;
        self.reader.read(came, |piece| {
            match piece {
                MessagePart::Head(bytes) => on.extend_from_slice(bytes),
                MessagePart::Body { bytes, is_last, .. } => {
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
