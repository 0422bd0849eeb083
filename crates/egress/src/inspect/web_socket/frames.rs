//! WebSocket frames (RFC 6455, 5.2), searched in a run that has credentials.
//!
//! Frames are forwarded as they came, with the same lengths and borders. A message is one stream
//! however it is split into frames; a control frame in between, such as a ping, is searched by
//! itself.

use std::collections::VecDeque;

use crate::secret::{Finder, Found, Mask, Masks, Placeholders};

/// The longest payload of a control frame, bytes (RFC 6455, 5.5).
const CONTROL_BYTES_MAX: u64 = 125;
/// The most frame parts that wait behind bytes held back for a short time.
const WAITING_MAX: usize = 64;
/// The most that wait behind bytes that may not go on yet: no real message has so many one-byte
/// frames in a row.
const SCATTERED_MAX: usize = 4096;
/// The longest frame head, bytes.
const HEAD_BYTES_MAX: usize = 14;

/// The reason why frames are not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// A placeholder was found in them.
    #[error(transparent)]
    Found(#[from] Found),
    /// Malformed frames, or an extension that was not negotiated.
    #[error("what came is no frame of WebSocket as it was agreed upon")]
    Malformed,
    /// Too many frames within a possible value.
    #[error("a message came in too many frames to be searched for secrets")]
    Scattered,
}

/// A frame's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    is_last: bool,
    is_control: bool,
    key: Option<[u8; 4]>,
    payload_bytes: u64,
    /// The length of the head itself, bytes.
    bytes: usize,
}

impl Head {
    /// Parses a head; `None` if more has to come.
    fn read(bytes: &[u8]) -> Result<Option<Self>, Fault> {
        let Some([first, second]) = bytes.first_chunk() else {
            return Ok(None);
        };
        // Bits and kinds that only extensions use, and none was agreed upon.
        let kind = first & 0xf;
        if first & 0x70 != 0 || !matches!(kind, 0..=2 | 8..=10) {
            return Err(Fault::Malformed);
        }
        let rest = bytes.get(2..).unwrap_or_default();
        let (payload_bytes, of_length) = match second & 0x7f {
            126 => match rest.first_chunk() {
                Some(length) => (u64::from(u16::from_be_bytes(*length)), 2),
                None => return Ok(None),
            },
            127 => match rest.first_chunk() {
                Some(length) => (u64::from_be_bytes(*length), 8),
                None => return Ok(None),
            },
            length => (u64::from(length), 0),
        };
        let is_masked = second & 0x80 != 0;
        let key = rest.get(of_length..).and_then(<[u8]>::first_chunk);
        let key = match is_masked {
            true if key.is_none() => return Ok(None),
            true => key.copied(),
            false => None,
        };
        let (is_last, is_control) = (first & 0x80 != 0, kind >= 8);
        if is_control && (payload_bytes > CONTROL_BYTES_MAX || !is_last) {
            return Err(Fault::Malformed);
        }
        Ok(Some(Self {
            is_last,
            is_control,
            key,
            payload_bytes,
            bytes: 2 + of_length + if is_masked { 4 } else { 0 },
        }))
    }
}

/// Applies or removes a payload's masking key.
fn keyed(payload: &mut [u8], key: Option<[u8; 4]>, from: u64) {
    if let Some(key) = key {
        let keys = key.iter().cycle().skip((from % 4) as usize);
        payload
            .iter_mut()
            .zip(keys)
            .for_each(|(byte, key)| *byte ^= key);
    }
}

/// A part of a frame.
enum Part<'a> {
    /// A head, as it is.
    Head(&'a [u8]),
    /// A part of a message, unmasked, at this offset of its frame's payload.
    Data {
        plain: Vec<u8>,
        key: Option<[u8; 4]>,
        from: u64,
        /// Set if the message ends with it.
        is_last: bool,
    },
    /// The payload of a control frame, unmasked.
    Control {
        plain: Vec<u8>,
        key: Option<[u8; 4]>,
    },
}

/// Reads frames from a stream of chunks.
#[derive(Debug, Default)]
struct Reader {
    /// The unread bytes: a partial head, or a partial control frame.
    input: Vec<u8>,
    /// The frame being read, and the number of its payload's bytes that have come.
    within: Option<(Head, u64)>,
}

impl Reader {
    fn read(
        &mut self,
        chunk: &[u8],
        mut each: impl FnMut(Part<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.input.extend_from_slice(chunk);
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        loop {
            let Some((head, from)) = self.within else {
                let Some(head) = Head::read(rest)? else { break };
                let (bytes, after) = rest.split_at_checked(head.bytes).ok_or(Fault::Malformed)?;
                each(Part::Head(bytes))?;
                rest = after;
                self.within = Some((head, 0));
                continue;
            };
            let left = head.payload_bytes - from;
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
            let is_whole = length as u64 == left;
            if !is_whole && (head.is_control || length == 0) {
                break;
            }
            let (payload, after) = rest.split_at_checked(length).ok_or(Fault::Malformed)?;
            let (mut plain, key) = (payload.to_vec(), head.key);
            keyed(&mut plain, key, from);
            each(match head.is_control {
                true => Part::Control { plain, key },
                false => Part::Data {
                    plain,
                    key,
                    from,
                    is_last: is_whole && head.is_last,
                },
            })?;
            rest = after;
            self.within = (!is_whole).then_some((head, from + length as u64));
        }
        debug_assert!(rest.len() < HEAD_BYTES_MAX + CONTROL_BYTES_MAX as usize);
        self.input = rest.to_vec();
        Ok(())
    }
}

/// Searches frames on the way out for placeholders.
pub(super) struct FrameSearch {
    reader: Reader,
    placeholders: Placeholders,
    finder: Finder,
}

impl FrameSearch {
    pub(super) fn new(placeholders: &Placeholders) -> Self {
        Self {
            reader: Reader::default(),
            placeholders: placeholders.clone(),
            finder: placeholders.stream(),
        }
    }

    /// Searches a chunk, which is forwarded unchanged.
    ///
    /// # Errors
    /// [`Fault`]: it may not be forwarded.
    pub(super) fn feed(&mut self, chunk: &[u8]) -> Result<(), Fault> {
        let (finder, placeholders) = (&mut self.finder, &self.placeholders);
        self.reader.read(chunk, |part| match part {
            Part::Head(_) => Ok(()),
            Part::Data { plain, .. } => Ok(finder.feed(&plain)?),
            Part::Control { plain, .. } => placeholders
                .find(&plain)
                .map_or(Ok(()), |found| Err(found.into())),
        })
    }
}

/// Masks real values in frames on the way in.
pub(super) struct FrameMask {
    reader: Reader,
    masks: Masks,
    mask: Mask,
    /// The parts that wait behind bytes held back by the mask.
    waiting: VecDeque<Waiting>,
}

enum Waiting {
    /// Ready, as it is.
    Ready(Vec<u8>),
    /// This many bytes of a message, with this masking key and offset.
    Data(usize, Option<[u8; 4]>, u64),
}

impl FrameMask {
    pub(super) fn new(masks: &Masks) -> Self {
        Self {
            reader: Reader::default(),
            masks: masks.clone(),
            mask: masks.stream(),
            waiting: VecDeque::new(),
        }
    }

    /// Takes a chunk, and appends what can be handed on to `out`: all of a message that has ended.
    ///
    /// # Errors
    /// [`Fault::Malformed`], [`Fault::Scattered`].
    pub(super) fn feed(&mut self, chunk: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let Self {
            reader,
            masks,
            mask,
            waiting,
        } = self;
        reader.read(chunk, |part| {
            match part {
                Part::Head(bytes) => waiting.push_back(Waiting::Ready(bytes.to_vec())),
                Part::Control { plain, key } => {
                    let mut payload = masks.whole(&plain).unwrap_or(plain);
                    keyed(&mut payload, key, 0);
                    waiting.push_back(Waiting::Ready(payload));
                }
                Part::Data {
                    plain,
                    key,
                    from,
                    is_last,
                } => {
                    waiting.push_back(Waiting::Data(plain.len(), key, from));
                    let mut masked = Vec::with_capacity(plain.len());
                    mask.feed(&plain, &mut masked);
                    if is_last {
                        mask.release(&mut masked);
                    }
                    hand_on(waiting, &masked, out);
                }
            }
            Ok(())
        })?;
        hand_on(&mut self.waiting, &[], out);
        if self.waiting.len() > WAITING_MAX && self.is_short() {
            self.release(out);
        }
        match self.waiting.len() {
            0..=SCATTERED_MAX => Ok(()),
            _ => Err(Fault::Scattered),
        }
    }

    /// Returns whether what is held back is too short to reveal anything of a value
    /// ([`Mask::is_short`]).
    pub(super) fn is_short(&self) -> bool {
        self.mask.is_short()
    }

    /// Returns whether anything is held back.
    pub(super) fn holds(&self) -> bool {
        self.mask.held() > 0
    }

    /// Appends what is held back to `out`, since nothing more comes for now.
    pub(super) fn release(&mut self, out: &mut Vec<u8>) {
        let mut masked = Vec::new();
        self.mask.release(&mut masked);
        hand_on(&mut self.waiting, &masked, out);
    }
}

/// Hands on the waiting parts whose payload is there.
fn hand_on(waiting: &mut VecDeque<Waiting>, masked: &[u8], out: &mut Vec<u8>) {
    let mut masked = masked;
    while let Some(next) = waiting.front_mut() {
        match next {
            Waiting::Ready(bytes) => out.append(bytes),
            Waiting::Data(bytes, key, from) => {
                let length = masked.len().min(*bytes);
                let (ready, after) = masked.split_at_checked(length).unwrap_or_default();
                let begin = out.len();
                out.extend_from_slice(ready);
                keyed(out.get_mut(begin..).unwrap_or_default(), *key, *from);
                masked = after;
                *bytes -= length;
                *from += length as u64;
                if *bytes > 0 {
                    return;
                }
            }
        }
        waiting.pop_front();
    }
}

#[cfg(test)]
mod tests;
