//! Secrets in what comes from outside, replaced by their placeholders.

use std::cmp::Reverse;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use super::Secret;
use super::patterns::{Match, Patterns};
use super::placeholder::Unfit;
use super::row::Until;
use super::view::View;

/// How much is gone through at once, bytes.
const PIECE_BYTES: usize = 64 * 1024;
/// How much room is kept while nothing comes, bytes.
const KEPT_BYTES: usize = 4 * 1024;
/// How many bytes in a row that could be a part of a value go on when nothing more comes, before
/// the row's end is there: of any value they are too few to be of use.
const SHORT_BYTES_MAX: usize = 7;
/// The same for letters and digits in a row with separators between them, such as of a time.
const SHORT_LETTERS_MAX: usize = 20;

/// Secrets, and what stands for each. What was made of them masks those too by which they
/// are replaced later on.
#[derive(Clone)]
pub struct Masks(Arc<Newest>);

struct Newest {
    /// How often they were replaced.
    count: AtomicU64,
    inner: RwLock<Arc<Inner>>,
}

struct Inner {
    patterns: Patterns,
    placeholders: Vec<Vec<u8>>,
}

impl Masks {
    /// For secrets with their placeholders, which have to be alike: see
    /// [`placeholder()`](super::placeholder()).
    ///
    /// # Errors
    /// [`Unfit`]: one is not, or one contains a secret.
    pub fn new(secrets: Vec<(Secret, Vec<u8>)>) -> Result<Self, Unfit> {
        let inner = Inner::new(secrets)?;
        Ok(Self(Arc::new(Newest {
            count: AtomicU64::new(0),
            inner: RwLock::new(Arc::new(inner)),
        })))
    }

    /// Replaces them, also in what comes already: what is handed on from here on is without
    /// these.
    ///
    /// # Errors
    /// [`Unfit`]: nothing is replaced then.
    pub fn renew(&self, secrets: Vec<(Secret, Vec<u8>)>) -> Result<(), Unfit> {
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

    /// Whether there is nothing to be masked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner().placeholders.is_empty()
    }

    /// The longest that a secret can be in any form, bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.inner().patterns.form_bytes_max()
    }

    /// A text without secrets, as long as it was. None if there is none in it.
    #[must_use]
    pub fn whole(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.inner().whole(text)
    }

    /// Headers or trailers without secrets in their values, nor any whose name has one.
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

    /// For something that comes piece by piece.
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
            view: View::default(),
        }
    }

    /// The same, but for these, which stay as they are; which of the others were in it is noted.
    /// One whose number is 64 or more stays.
    #[must_use]
    pub fn stream_but(&self, numbers: impl Iterator<Item = usize>, noted: Arc<Noted>) -> Mask {
        Mask {
            but: numbers.filter_map(bit).fold(0, |all, bit| all | bit),
            noted: Some(noted),
            ..self.stream()
        }
    }
}

/// Which values were masked, by their places among all.
#[derive(Debug, Default)]
pub struct Noted(AtomicU64);

impl Noted {
    /// Whether this one was.
    #[must_use]
    pub fn holds(&self, number: usize) -> bool {
        bit(number).is_some_and(|bit| self.0.load(Ordering::Relaxed) & bit != 0)
    }
}

fn bit(number: usize) -> Option<u64> {
    1_u64.checked_shl(u32::try_from(number).ok()?)
}

impl Inner {
    fn new(secrets: Vec<(Secret, Vec<u8>)>) -> Result<Self, Unfit> {
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
                return Err(Unfit::Unlike);
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
            return Err(Unfit::Unlike);
        }
        Ok(inner)
    }

    fn whole(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut found = Vec::new();
        let patterns = &self.patterns;
        patterns.search(text, &mut View::default(), |one| found.push(one));
        if found.is_empty() {
            return None;
        }
        let mut out = text.to_vec();
        self.overlay(text, found, 0, &mut out);
        Some(out)
    }

    /// Replaces values found in these bytes in the copy of those from `from` on. Where two
    /// share bytes, those are the first one's, or the longer one's if both begin there.
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

/// Whether a byte has another length where it is escaped, in text or in base64.
pub(super) fn is_escaped(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'\\' | b'/' | b'?') || byte.is_ascii_control()
}

/// What comes piece by piece, without secrets and as long as it was.
///
/// The end of what has come is held back as long as it could be a part of a value: up to
/// the last byte that cannot, at most as many as the longest form has.
pub struct Mask {
    masks: Masks,
    /// How often these had been replaced when they were taken up.
    seen: u64,
    inner: Arc<Inner>,
    /// Those that stay as they are: a bit for each, by its number.
    but: u64,
    noted: Option<Arc<Noted>>,
    /// What may be needed yet.
    bytes: Vec<u8>,
    /// How much of it has been handed on.
    sent: usize,
    view: View,
}

impl Mask {
    /// Takes what has come, and adds to `out` what can be handed on.
    pub fn feed(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        self.take_up();
        for piece in chunk.chunks(PIECE_BYTES) {
            self.bytes.extend_from_slice(piece);
            let open = self.inner.patterns.open_end(&self.bytes, Until::NoPart);
            self.hand_on(self.bytes.len() - open.bytes, out);
        }
    }

    /// Whether what has come ends with few bytes in a row that could be a part of a value:
    /// those that were handed on count too, so that a row comes by no more of them however
    /// often it stops. A line's end ends a row, unless the line is as long as those of base64
    /// are. It depends on no secret: whether they are a value's makes no difference.
    #[must_use]
    pub fn is_short(&self) -> bool {
        let patterns = &self.inner.patterns;
        let row = patterns.open_end(&self.bytes, Until::ShortLine);
        row.unbroken <= SHORT_BYTES_MAX && row.letters <= SHORT_LETTERS_MAX
    }

    /// Adds all that has come to `out`, since nothing more comes, or no more is waited for: who
    /// only pauses asks [`Self::is_short`] first. A secret of which a part is handed on so is
    /// masked in its rest.
    pub fn release(&mut self, out: &mut Vec<u8>) {
        self.take_up();
        self.hand_on(self.bytes.len(), out);
    }

    /// How much is held back, bytes.
    #[must_use]
    pub fn held(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Gives room back that is not needed until more comes.
    pub fn give_back(&mut self) {
        self.bytes.shrink_to(KEPT_BYTES);
        self.view.give_back(KEPT_BYTES);
    }

    /// Goes on by what the masks are now: of a value that is new here no more than what was
    /// handed on before it was known is told.
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

/// Where memory cannot be kept from being swapped out.
impl From<io::Error> for Unfit {
    fn from(error: io::Error) -> Self {
        Self::Memory(error)
    }
}
