//! A body in signed chunks, each covered together with the signature before it: a chunk is
//! forwarded once its signature is verified as the program's, and with one of the real key in its
//! place.
//!
//! Source: "Transferring Payload in Multiple Chunks" and "Including Trailing Headers" in the
//! documentation of S3's signatures. A chunk is `SIZE;chunk-signature=SIGNATURE`, its bytes and two
//! line ends; the last one is empty, and trailers may follow it. Both signatures have one length,
//! and so the body keeps its length.

use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use crate::inspect::body::BodyError;
use crate::inspect::injection::{ChainItem, ChunkedBody, Misuse, SignatureChain};
use crate::secret::longer;

/// The longest chunk, bytes without its framing: programs send at most an eighth of that.
pub(crate) const PIECE_BYTES_MAX: usize = 1 << 20;
/// The longest line before a chunk, bytes: a size and a signature.
const LINE_BYTES_MAX: usize = 128;
/// The longest text after the last chunk, bytes.
const TRAILERS_BYTES_MAX: usize = 8 << 10;
/// The name of a signature before its chunk.
const SIGNATURE: &str = "chunk-signature=";
/// The trailer with the signature of the trailers.
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";
const LINE_END: &[u8] = b"\r\n";

/// The state of such a body.
#[derive(Debug)]
pub(crate) struct Pieces {
    /// The program's own signatures.
    own: SignatureChain,
    /// The signatures that are sent; `None` until the request is written.
    sent: Option<SignatureChain>,
    /// The request's claim about it, with the number of bytes still to come.
    body: ChunkedBody,
    /// The misuse to report if the body does not match.
    misuse: Misuse,
    /// The bytes received and not yet sent.
    held: BytesMut,
    /// Set once all has been received.
    is_whole: bool,
    /// Set once all has been sent.
    is_over: bool,
    /// The memory permit.
    permit: Option<OwnedSemaphorePermit>,
}

/// The line before a chunk.
struct Line {
    /// The chunk's length, bytes.
    bytes: usize,
    signature: Range<usize>,
    /// The index of its end, after the line end.
    end: usize,
}

impl Pieces {
    /// Starts before the first chunk; the chain is at the request's own signature.
    pub(crate) fn new(own: SignatureChain, body: ChunkedBody, misuse: Misuse) -> Self {
        Self {
            own,
            sent: None,
            body,
            misuse,
            held: BytesMut::new(),
            is_whole: false,
            is_over: false,
            permit: None,
        }
    }

    /// Keeps the memory permit until the body is over.
    pub(crate) fn within(&mut self, permit: OwnedSemaphorePermit) {
        self.permit = Some(permit);
    }

    /// Sets the signer for its chunks, which follows on the request's new signature.
    pub(super) fn sign(&mut self, sent: SignatureChain) {
        self.sent = Some(sent);
    }

    /// Checks that a whole body consists of those chunks, before any of it is sent.
    pub(super) fn check(&self, whole: &[u8]) -> Result<(), BodyError> {
        let mut once = Self::new(self.own.clone(), self.body.clone(), self.misuse.clone());
        once.sent = Some(self.own.clone());
        once.held.extend_from_slice(whole);
        once.is_whole = true;
        while !once.is_over {
            once.next()?;
        }
        Ok(())
    }

    /// Polls the next frame that may be sent.
    pub(super) fn poll(
        &mut self,
        rest: &mut (impl Body<Data = Bytes, Error = BodyError> + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if self.is_over {
                return Poll::Ready(None);
            }
            if let Some(piece) = self.next()? {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            match ready!(Pin::new(&mut *rest).poll_frame(context)) {
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.held.extend_from_slice(&data),
                    // They would be signed by nobody.
                    Err(_) => return Poll::Ready(Some(Err(self.other_body()))),
                },
                None => self.is_whole = true,
            }
            // Whoever knows the length does not ask for the end.
            self.is_whole |= rest.is_end_stream();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns a size hint that includes the bytes held.
    pub(super) fn longer(&self, hint: SizeHint) -> SizeHint {
        longer(hint, self.held.len() as u64)
    }

    fn other_body(&self) -> BodyError {
        BodyError::AnotherBody(Box::new(self.misuse.clone()))
    }

    /// Returns the next chunk, if all of it was received.
    fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        let Some(line) = self.line()? else {
            return self.more();
        };
        if line.bytes == 0 {
            return self.last(&line);
        }
        if line.bytes > PIECE_BYTES_MAX {
            return Err(BodyError::LongPiece);
        }
        let (of_data, end) = (line.end..line.end + line.bytes, line.end + line.bytes + 2);
        let Some(framed) = self.held.get(..end) else {
            return self.more();
        };
        let left = self.body.bytes.checked_sub(line.bytes as u64);
        let data = framed.get(of_data).unwrap_or_default();
        let signature = text(framed, &line.signature);
        let is_right =
            framed.ends_with(LINE_END) && self.own.follows(ChainItem::Piece(data), signature);
        let (Some(left), true) = (left, is_right) else {
            return Err(self.other_body());
        };
        self.body.bytes = left;
        let signature = next_signature(&mut self.sent, ChainItem::Piece(data))?;
        replace_signature(&mut self.held, &line.signature, &signature)?;
        Ok(Some(self.held.split_to(end).freeze()))
    }

    /// Returns `None` while more is to come, an error otherwise.
    fn more(&self) -> Result<Option<Bytes>, BodyError> {
        match self.is_whole {
            true => Err(self.other_body()),
            false => Ok(None),
        }
    }

    /// Returns the line before the next chunk, if it was received.
    fn line(&self) -> Result<Option<Line>, BodyError> {
        let begun = self.held.get(..LINE_BYTES_MAX).unwrap_or(&self.held);
        let Some(at) = begun.windows(2).position(|two| two == LINE_END) else {
            return match begun.len() < LINE_BYTES_MAX {
                true => Ok(None),
                false => Err(self.other_body()),
            };
        };
        let line = text(begun, &(0..at))
            .split_once(';')
            .and_then(|(size, named)| {
                let is_size = size.bytes().all(|byte| byte.is_ascii_hexdigit());
                let bytes = u32::from_str_radix(size, 16).ok().filter(|_| is_size)?;
                named.strip_prefix(SIGNATURE)?;
                Some(Line {
                    bytes: usize::try_from(bytes).ok()?,
                    signature: size.len() + 1 + SIGNATURE.len()..at,
                    end: at + LINE_END.len(),
                })
            });
        line.map(Some).ok_or_else(|| self.other_body())
    }

    /// Returns everything from the last chunk on, if it was received.
    fn last(&mut self, line: &Line) -> Result<Option<Bytes>, BodyError> {
        let rest = self.held.get(line.end..).unwrap_or_default();
        if rest.len() > TRAILERS_BYTES_MAX {
            return Err(self.other_body());
        }
        if !self.is_whole {
            return Ok(None);
        }
        let trailers = match &self.body.trailers {
            None if rest == LINE_END => None,
            None => return Err(self.other_body()),
            Some(names) => match Trailers::read(rest, line.end, names) {
                Some(trailers) => Some(trailers),
                None => return Err(self.other_body()),
            },
        };
        let signature = text(&self.held, &line.signature);
        let is_right = self.own.follows(ChainItem::Piece(&[]), signature);
        let are_right = trailers.as_ref().is_none_or(|trailers| {
            let signature = text(&self.held, &trailers.signature);
            let trailers = ChainItem::Trailers(trailers.text.as_bytes());
            self.own.follows(trailers, signature)
        });
        if self.body.bytes != 0 || !is_right || !are_right {
            return Err(self.other_body());
        }
        let signature = next_signature(&mut self.sent, ChainItem::Piece(&[]))?;
        replace_signature(&mut self.held, &line.signature, &signature)?;
        if let Some(trailers) = &trailers {
            let signature = next_signature(
                &mut self.sent,
                ChainItem::Trailers(trailers.text.as_bytes()),
            )?;
            replace_signature(&mut self.held, &trailers.signature, &signature)?;
        }
        self.is_over = true;
        self.permit = None;
        Ok(Some(std::mem::take(&mut self.held).freeze()))
    }
}

/// Signs the next item; an error if the request is unsigned.
fn next_signature(
    sent: &mut Option<SignatureChain>,
    next: ChainItem<'_>,
) -> Result<String, BodyError> {
    let sent = sent.as_mut().ok_or(BodyError::Short)?;
    Ok(sent.sign(next).to_owned())
}

/// Replaces a signature by one of the same length.
fn replace_signature(
    held: &mut BytesMut,
    place: &Range<usize>,
    signature: &str,
) -> Result<(), BodyError> {
    let place = held.get_mut(place.clone());
    let place = place.filter(|place| place.len() == signature.len());
    let place = place.ok_or(BodyError::Short)?;
    place.copy_from_slice(signature.as_bytes());
    Ok(())
}

/// Returns a part of the body as text; empty if it is not UTF-8.
fn text<'a>(sent: &'a [u8], range: &Range<usize>) -> &'a str {
    let part = sent.get(range.clone()).unwrap_or_default();
    std::str::from_utf8(part).unwrap_or_default()
}

/// The trailers of a body.
struct Trailers {
    /// The trailers, as they are signed.
    text: String,
    /// The place of their signature.
    signature: Range<usize>,
}

impl Trailers {
    /// Reads the trailers, from this index of the bytes held. Programs end a line with one byte or
    /// two, and put empty ones before and after the signature.
    fn read(sent: &[u8], begin: usize, named: &[String]) -> Option<Self> {
        let (mut text, mut names, mut signature) = (String::new(), Vec::new(), None);
        let mut at = begin;
        for line in std::str::from_utf8(sent).ok()?.split_inclusive('\n') {
            let written = line.strip_suffix('\n').unwrap_or(line);
            let written = written.strip_suffix('\r').unwrap_or(written);
            if !written.is_empty() {
                let (name, value) = written.split_once(':')?;
                match (name, &signature) {
                    // Nothing is after it.
                    (_, Some(_)) => return None,
                    (TRAILER_SIGNATURE, None) => {
                        signature = Some(at + name.len() + 1..at + written.len());
                    }
                    // What others could take for the end of a line.
                    (_, None)
                        if value
                            .bytes()
                            .any(|byte| byte.is_ascii_control() && byte != b'\t') =>
                    {
                        return None;
                    }
                    (name, None) => {
                        names.push(name);
                        text += &format!("{name}:{}\n", value.trim());
                    }
                }
            }
            at += line.len();
        }
        let signature = signature.filter(|_| names == *named)?;
        Some(Self { text, signature })
    }
}

#[cfg(test)]
mod tests;
