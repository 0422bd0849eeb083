//! Masking of secrets in what comes from outside, by their placeholders.

use std::cmp::Reverse;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use super::Secret;
use super::patterns::{Match, Patterns};
use super::placeholder::PlaceholderError;
use super::row::Until;
use super::view::DecodedView;

/// The most bytes searched at once.
const PIECE_BYTES: usize = 64 * 1024;
/// The buffer capacity kept while nothing comes, bytes.
const KEPT_BYTES: usize = 4 * 1024;
/// The longest unfinished row of possible value bytes that goes on when nothing more comes: too
/// short to reveal anything useful of a value.
const SHORT_BYTES_MAX: usize = 7;
/// The longest such row of letters and digits with separators between them, such as in a time.
const SHORT_LETTERS_MAX: usize = 20;

/// A set of secrets with their placeholders. Streams made from it follow each later renewal of the
/// set.
#[derive(Clone)]
pub struct Masks(Arc<SharedMasks>);

struct SharedMasks {
    /// The number of renewals.
    count: AtomicU64,
    inner: RwLock<Arc<Inner>>,
}

struct Inner {
    patterns: Patterns,
    placeholders: Vec<Vec<u8>>,
}

impl Masks {
    /// Builds a set of secrets with their placeholders, which must be alike: see
    /// [`placeholder()`](super::placeholder()).
    ///
    /// # Errors
    /// [`PlaceholderError`]: one is not, or one contains a secret.
    pub fn new(secrets: Vec<(Secret, Vec<u8>)>) -> Result<Self, PlaceholderError> {
        let inner = Inner::new(secrets)?;
        Ok(Self(Arc::new(SharedMasks {
            count: AtomicU64::new(0),
            inner: RwLock::new(Arc::new(inner)),
        })))
    }

    /// Replaces the set, also in streams in progress: what is handed on from here on is without
    /// these secrets.
    ///
    /// # Errors
    /// [`PlaceholderError`]: then nothing is replaced.
    pub fn renew(&self, secrets: Vec<(Secret, Vec<u8>)>) -> Result<(), PlaceholderError> {
        let inner = Arc::new(Inner::new(secrets)?);
        let mut newest = self.0.inner.write().unwrap_or_else(PoisonError::into_inner);
        *newest = inner;
        self.0.count.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn inner(&self) -> Arc<Inner> {
        let newest = self.0.inner.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&newest)
    }

    /// Returns whether there is nothing to mask.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner().placeholders.is_empty()
    }

    /// Returns the longest form of a secret, bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.inner().patterns.form_bytes_max()
    }

    /// Masks a text, keeping its length. `None` if it has no secret.
    #[must_use]
    pub fn whole(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.inner().whole(text)
    }

    /// Masks the values of headers or trailers, and removes those whose name has a secret.
    pub fn headers(&self, headers: &mut HeaderMap) {
        let tells = |name: &&HeaderName| self.whole(name.as_str().as_bytes()).is_some();
        let named: Vec<HeaderName> = headers.keys().filter(tells).cloned().collect();
        for name in named {
            headers.remove(name);
        }
        for value in headers.values_mut() {
            if let Some(masked) = self.whole(value.as_bytes()) {
                // What stands for a secret is as fit for a header as that was.
                let masked = HeaderValue::from_bytes(&masked);
                *value = masked.unwrap_or_else(|_| HeaderValue::from_static(""));
            }
        }
    }

    /// Returns a streaming mask.
    #[must_use]
    pub fn stream(&self) -> Mask {
        let seen = self.0.count.load(Ordering::Acquire);
        Mask {
            masks: self.clone(),
            seen,
            inner: self.inner(),
            but: 0,
            noted: None,
            bytes: Vec::new(),
            sent: 0,
            view: DecodedView::default(),
        }
    }

    /// Returns a streaming mask that leaves these secrets as they are, and records which of the
    /// others it has masked. One whose number is 64 or more stays.
    #[must_use]
    pub fn stream_but(
        &self,
        numbers: impl Iterator<Item = usize>,
        noted: Arc<MaskedNumbers>,
    ) -> Mask {
        Mask {
            but: numbers.filter_map(bit).fold(0, |all, bit| all | bit),
            noted: Some(noted),
            ..self.stream()
        }
    }
}

/// The record of masked values, by their indices among all.
#[derive(Debug, Default)]
pub struct MaskedNumbers(AtomicU64);

impl MaskedNumbers {
    /// Returns whether this value was masked.
    #[must_use]
    pub fn holds(&self, number: usize) -> bool {
        bit(number).is_some_and(|bit| self.0.load(Ordering::Relaxed) & bit != 0)
    }
}

fn bit(number: usize) -> Option<u64> {
    1_u64.checked_shl(u32::try_from(number).ok()?)
}

impl Inner {
    fn new(secrets: Vec<(Secret, Vec<u8>)>) -> Result<Self, PlaceholderError> {
        let is_mark = |byte: &u8| byte.is_ascii_punctuation() || byte.is_ascii_whitespace();
        for (secret, placeholder) in &secrets {
            let real = secret.expose();
            let are_alike = |(own, other): (&u8, &u8)| {
                own.is_ascii()
                    && other.is_ascii()
                    && (!is_escaped(*own) || own == other)
                    && (is_mark(own) || !is_mark(other))
            };
            if real.len() != placeholder.len() || !real.iter().zip(placeholder).all(are_alike) {
                return Err(PlaceholderError::Unlike);
            }
        }
        let (secrets, placeholders): (Vec<_>, Vec<_>) = secrets.into_iter().unzip();
        let patterns = Patterns::new(secrets)?;
        let inner = Self {
            patterns,
            placeholders,
        };
        let tells = |placeholder: &Vec<u8>| inner.whole(placeholder).is_some();
        if inner.placeholders.iter().any(tells) {
            return Err(PlaceholderError::Unlike);
        }
        Ok(inner)
    }

    fn whole(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut found = Vec::new();
        let patterns = &self.patterns;
        patterns.search(text, &mut DecodedView::default(), |one| found.push(one));
        if found.is_empty() {
            return None;
        }
        let mut out = text.to_vec();
        self.overlay(text, found, 0, &mut out);
        Some(out)
    }

    /// Replaces the values found in these bytes in the copy of those from `from` on. Of two that
    /// overlap the first one takes the shared bytes, or the longer one if both begin there.
    fn overlay(&self, bytes: &[u8], mut found: Vec<Match>, from: usize, copy: &mut [u8]) {
        found.sort_by_key(|one| (one.start, Reverse(one.end)));
        let mut covered = from;
        for one in found {
            if one.end <= covered {
                continue;
            }
            let begin = one.start.max(covered);
            let end = one.end.min(from + copy.len());
            covered = covered.max(one.end);
            let Some(place) = begin
                .checked_sub(from)
                .and_then(|at| copy.get_mut(at..end.max(begin) - from))
            else {
                continue;
            };
            let replaced = self.replaced(bytes, one);
            match replaced.get(begin - one.start..begin - one.start + place.len()) {
                Some(part) if replaced.len() == one.end - one.start => place.copy_from_slice(part),
                // That is never so, and nothing is told if it is.
                Some(_) | None => place.fill(b'*'),
            }
        }
    }

    fn replaced(&self, bytes: &[u8], one: Match) -> Vec<u8> {
        let patterns = &self.patterns;
        let standing = patterns
            .origin(one.value)
            .and_then(|(source, range)| self.placeholders.get(source)?.get(range));
        let written = bytes.get(one.start..one.end).unwrap_or_default();
        let own = patterns.written(one.value, one.form);
        own.replaced(one.first, written, standing.unwrap_or_default())
    }
}

/// Returns whether a byte's length changes when it is escaped, in text or in base64.
pub(super) fn is_escaped(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'\\' | b'/' | b'?') || byte.is_ascii_control()
}

/// A streaming mask that keeps the length.
///
/// The end of what has come is held back while it could be a part of a value: from the last byte
/// that cannot, and at most as many bytes as the longest form has.
pub struct Mask {
    masks: Masks,
    /// The number of renewals when the masks were last taken up.
    seen: u64,
    inner: Arc<Inner>,
    /// The secrets that stay as they are: a bit for each, by its number.
    but: u64,
    noted: Option<Arc<MaskedNumbers>>,
    /// The bytes that may still be needed.
    bytes: Vec<u8>,
    /// The number of those that were handed on.
    sent: usize,
    view: DecodedView,
}

impl Mask {
    /// Takes a chunk, and appends what can be handed on to `out`.
    pub fn feed(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        self.take_up();
        for piece in chunk.chunks(PIECE_BYTES) {
            self.bytes.extend_from_slice(piece);
            let open = self.inner.patterns.open_end(&self.bytes, Until::NoPart);
            self.hand_on(self.bytes.len() - open.bytes, out);
        }
    }

    /// Returns whether what has come ends with only a few bytes in a row that could be a part of a
    /// value: those already handed on count too, so that pauses let no more of a row pass. A line's
    /// end ends a row, unless the line is as long as those of base64 are. The result depends on no
    /// secret: whether the bytes are a value's makes no difference.
    #[must_use]
    pub fn is_short(&self) -> bool {
        let patterns = &self.inner.patterns;
        let row = patterns.open_end(&self.bytes, Until::ShortLine);
        row.unbroken <= SHORT_BYTES_MAX && row.letters <= SHORT_LETTERS_MAX
    }

    /// Appends all that has come to `out`, since nothing more comes, or no more is waited for: for
    /// a mere pause the caller checks [`Self::is_short`] first. A secret of which a part is handed
    /// on so is masked in its rest.
    pub fn release(&mut self, out: &mut Vec<u8>) {
        self.take_up();
        self.hand_on(self.bytes.len(), out);
    }

    /// Returns the number of bytes held back.
    #[must_use]
    pub fn held(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Releases buffer memory that is not needed until more comes.
    pub fn give_back(&mut self) {
        self.bytes.shrink_to(KEPT_BYTES);
        self.view.give_back(KEPT_BYTES);
    }

    /// Switches to the newest masks: of a new value, no more passes than was handed on before it
    /// was known.
    fn take_up(&mut self) {
        let count = self.masks.0.count.load(Ordering::Acquire);
        if count != self.seen {
            self.seen = count;
            self.inner = self.masks.inner();
        }
    }

    fn hand_on(&mut self, until: usize, out: &mut Vec<u8>) {
        let until = until.max(self.sent);
        let mut found = Vec::new();
        let patterns = &self.inner.patterns;
        let (but, noted) = (self.but, self.noted.is_some());
        // Where some stay, so does one that could not be noted.
        let stays = |one: &Match| {
            let number = patterns.origin(one.value).map(|(number, _)| number);
            noted && number.and_then(bit).is_none_or(|bit| but & bit != 0)
        };
        let mut needed = patterns.search(&self.bytes, &mut self.view, |one| {
            if !stays(&one) {
                found.push(one);
            }
        });
        self.note(&found);
        let rests = found.iter().filter(|one| one.end > until);
        needed = rests
            .map(|one| one.start)
            .fold(needed.min(until), usize::min);
        let begin = out.len();
        out.extend_from_slice(self.bytes.get(self.sent..until).unwrap_or_default());
        if !found.is_empty() {
            let copy = out.get_mut(begin..).unwrap_or_default();
            self.inner.overlay(&self.bytes, found, self.sent, copy);
        }
        self.bytes.drain(..needed);
        self.sent = until - needed;
    }

    fn note(&self, found: &[Match]) {
        let Some(noted) = &self.noted else { return };
        for one in found {
            let origin = self.inner.patterns.origin(one.value);
            if let Some(bit) = origin.and_then(|(number, _)| bit(number)) {
                noted.0.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }
}

/// The error of memory that cannot be locked.
impl From<io::Error> for PlaceholderError {
    fn from(error: io::Error) -> Self {
        Self::Memory(error)
    }
}
