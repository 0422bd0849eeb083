//! The body of a request to be sent, part of which may have been read ahead.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::bodies::BodySource;
use super::body::BodyError;
use super::injection::{Misuse, SignatureChain};

mod chunks;
mod digest_check;

pub(crate) use chunks::Pieces;
use digest_check::DigestCheck;
pub(crate) use digest_check::{Digest, digest};

/// The longest body that is read before it is sent, bytes.
pub(crate) const AHEAD_BYTES_MAX: usize = 16 << 20;
/// The most memory for all such bodies, bytes.
const AHEAD_ALL_BYTES_MAX: usize = 128 << 20;
/// The unit in which that memory is counted, bytes.
const AHEAD_UNIT_BYTES: usize = 4 << 10;
/// The longest frame in which such a body is sent, bytes.
const AHEAD_FRAME_BYTES: usize = 64 << 10;
/// The longest time for reading one, including the wait for memory.
const AHEAD_PATIENCE: Duration = Duration::from_secs(120);

/// Returns the memory permits for bodies that are read before they are sent.
pub(crate) fn permit() -> Semaphore {
    Semaphore::new(AHEAD_ALL_BYTES_MAX / AHEAD_UNIT_BYTES)
}

/// A request's body.
#[derive(Debug)]
pub(crate) struct Upload {
    /// The bytes read ahead, with their memory permit.
    ahead: Option<(Bytes, OwnedSemaphorePermit)>,
    rest: BodySource,
    /// Set once the rest has been read to its end.
    is_read: bool,
    /// The digest that the rest must match, if its request states one.
    told: Option<Box<DigestCheck>>,
    /// The signed chunks that it must consist of, if they are signed.
    pieces: Option<Box<Pieces>>,
}

/// The body that a request's signature covers.
#[derive(Debug)]
pub(crate) enum SignedBody {
    /// A body with this digest: another one is not sent to its end, with this misuse as the reason.
    Digest(Digest, Misuse),
    /// A body of signed chunks.
    Pieces(Box<Pieces>),
}

impl SignedBody {
    /// Checks an empty body.
    ///
    /// # Errors
    /// The reason why it is not the expected one.
    pub(crate) fn of_nothing(self) -> Result<(), BodyError> {
        match self {
            Self::Digest(told, _) if told == digest(&[]) => Ok(()),
            Self::Digest(_, misuse) => Err(BodyError::AnotherBody(Box::new(misuse))),
            Self::Pieces(pieces) => pieces.check(&[]),
        }
    }
}

/// The reason why a body could not be read before it is sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BufferError {
    /// The body is too long.
    #[error("its body has more than 16 MiB, and its digest is not told (X-Amz-Content-Sha256)")]
    Long,
    /// The body has trailers.
    #[error("its body has trailers, which are not signed")]
    Trailers,
    /// The body broke off.
    #[error("its body broke off: {0}")]
    Broken(#[from] BodyError),
    /// There was no memory, or no time.
    #[error("its body was not read in time")]
    Late,
}

impl From<BodySource> for Upload {
    fn from(rest: BodySource) -> Self {
        Self {
            ahead: None,
            rest,
            is_read: false,
            told: None,
            pieces: None,
        }
    }
}

impl From<Incoming> for Upload {
    fn from(rest: Incoming) -> Self {
        BodySource::Plain(rest).into()
    }
}

impl Upload {
    /// Returns the part that was not read.
    pub(crate) fn into_rest(self) -> Option<Incoming> {
        self.rest.into_rest()
    }

    /// Returns the body as the program wrote it, if a credential was put in.
    pub(crate) fn before(&self) -> Option<&Bytes> {
        self.rest.before()
    }

    /// Requires the body to be the expected one.
    ///
    /// # Errors
    /// The reason, if all of it was read and it is another one.
    pub(crate) fn expect(&mut self, expected: SignedBody) -> Result<(), BodyError> {
        match (expected, self.rest.all()) {
            (SignedBody::Digest(told, _), Some(whole)) if digest(whole) == told => Ok(()),
            (SignedBody::Digest(_, misuse), Some(_)) => {
                Err(BodyError::AnotherBody(Box::new(misuse)))
            }
            (SignedBody::Digest(told, misuse), None) => {
                let new = || Box::new(DigestCheck::new(told, misuse));
                self.told.get_or_insert_with(new);
                Ok(())
            }
            (SignedBody::Pieces(pieces), whole) => {
                whole.map_or(Ok(()), |whole| pieces.check(whole))?;
                self.pieces.get_or_insert(pieces);
                Ok(())
            }
        }
    }

    /// Sets the signer for its chunks, if they are signed.
    pub(crate) fn sign(&mut self, pieces: SignatureChain) {
        if let Some(own) = &mut self.pieces {
            own.sign(pieces);
        }
    }

    /// Polls the next frame that was not read ahead.
    fn poll_rest(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.told {
            Some(told) => told.poll(&mut self.rest, context),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }

    /// Reads the whole body before anything is sent.
    pub(crate) async fn read(
        &mut self,
        permit: &std::sync::Arc<Semaphore>,
    ) -> Result<Bytes, BufferError> {
        if let Some((bytes, _)) = &self.ahead {
            return Ok(bytes.clone());
        }
        let told = self.rest.size_hint();
        let longest = told.exact().and_then(|bytes| usize::try_from(bytes).ok());
        let longest = longest.unwrap_or(AHEAD_BYTES_MAX);
        if longest > AHEAD_BYTES_MAX || told.lower() > AHEAD_BYTES_MAX as u64 {
            return Err(BufferError::Long);
        }
        let units =
            u32::try_from(longest.div_ceil(AHEAD_UNIT_BYTES)).map_err(|_| BufferError::Long)?;
        let reading = async {
            let permit = std::sync::Arc::clone(permit);
            let permit = permit.acquire_many_owned(units).await;
            let permit = permit.map_err(|_| BufferError::Late)?;
            let mut bytes = BytesMut::new();
            while let Some(frame) = poll_fn(|context| self.poll_rest(context)).await {
                let Ok(data) = frame?.into_data() else {
                    return Err(BufferError::Trailers);
                };
                if bytes.len() + data.len() > longest {
                    return Err(BufferError::Long);
                }
                bytes.extend_from_slice(&data);
            }
            if let Some(pieces) = &self.pieces {
                pieces.check(&bytes)?;
            }
            Ok((bytes.freeze(), permit))
        };
        let read = timeout(AHEAD_PATIENCE, reading).await;
        let (bytes, permit) = read.map_err(|_| BufferError::Late)??;
        self.ahead = Some((bytes.clone(), permit));
        self.is_read = true;
        Ok(bytes)
    }
}

/// A body as the program sends it.
struct Unsigned<'a>(&'a mut Upload);

impl Body for Unsigned<'_> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let upload = &mut *self.0;
        if let Some(next) = upload.next_ahead() {
            return Poll::Ready(Some(Ok(Frame::data(next))));
        }
        if upload.is_read {
            return Poll::Ready(None);
        }
        upload.poll_rest(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_all_taken()
    }
}

impl Upload {
    /// Returns the next frame of what was read ahead, as a copy: the memory permit is released with
    /// the last one, and with it the memory itself.
    fn next_ahead(&mut self) -> Option<Bytes> {
        let (bytes, _) = self.ahead.as_mut()?;
        let next = bytes.split_to(bytes.len().min(AHEAD_FRAME_BYTES));
        let next = Bytes::copy_from_slice(&next);
        if bytes.is_empty() {
            self.ahead = None;
        }
        Some(next).filter(|next| !next.is_empty())
    }

    /// Returns whether everything that the program has sent was taken.
    fn is_all_taken(&self) -> bool {
        let is_ahead = self
            .ahead
            .as_ref()
            .is_some_and(|(bytes, _)| !bytes.is_empty());
        let is_over = || match &self.told {
            Some(told) => told.is_over(),
            None => self.rest.is_end_stream(),
        };
        !is_ahead && (self.is_read || is_over())
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(mut pieces) = self.pieces.take() else {
            return Pin::new(&mut Unsigned(&mut self)).poll_frame(context);
        };
        let polled = pieces.poll(&mut Unsigned(&mut self), context);
        self.pieces = Some(pieces);
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.pieces {
            Some(pieces) => pieces.is_over(),
            None => self.is_all_taken(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let hint = match (&self.ahead, self.is_read) {
            (Some((bytes, _)), true) => SizeHint::with_exact(bytes.len() as u64),
            (None, true) => SizeHint::with_exact(0),
            (_, false) => match &self.told {
                Some(told) => told.longer(self.rest.size_hint()),
                None => self.rest.size_hint(),
            },
        };
        match &self.pieces {
            Some(pieces) => pieces.longer(hint),
            None => hint,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt;

    use super::*;
    use crate::inspect::bodies::ReplayedBody;

    /// Bytes read ahead keep their permit until the last of them is sent: otherwise any number of
    /// bodies could wait for a slow server.
    #[tokio::test]
    async fn read_ahead_body_keeps_memory_until_sent() {
        let whole: Vec<u8> = (0..3 * AHEAD_FRAME_BYTES + 7)
            .map(|at| (at % 251) as u8)
            .collect();
        let permit = Arc::new(Semaphore::new(1));
        let held = Arc::clone(&permit).acquire_owned().await.unwrap();
        let mut upload = Upload {
            ahead: Some((Bytes::from(whole.clone()), held)),
            is_read: true,
            ..Upload::from(BodySource::Whole {
                body: ReplayedBody::default(),
                _held: None,
            })
        };
        let mut sent = Vec::new();
        while sent.len() < whole.len() {
            let left = (whole.len() - sent.len()) as u64;
            assert_eq!(upload.size_hint().exact(), Some(left));
            assert!(!upload.is_end_stream());
            assert_eq!(permit.available_permits(), 0);
            let frame = upload.frame().await.unwrap().unwrap();
            let data = frame.into_data().unwrap();
            assert!(!data.is_empty() && data.len() <= AHEAD_FRAME_BYTES);
            sent.extend_from_slice(&data);
            // It keeps nothing else of the body in memory, wherever it waits.
            assert!(data.is_unique());
        }
        assert_eq!(sent, whole);
        assert_eq!(permit.available_permits(), 1);
        assert!(upload.is_end_stream());
        assert!(upload.frame().await.is_none());
    }
}
