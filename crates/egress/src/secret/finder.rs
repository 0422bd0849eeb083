//! The search for placeholders in what leaves the sandbox.

use std::ops::Range;
use std::sync::Arc;

use hyper::header::HeaderMap;

use super::Secret;
use super::patterns::{Match, Patterns};
use super::placeholder::PlaceholderError;
use super::symbols::Form;
use super::view::DecodedView;

/// The most bytes searched at once.
const PIECE_BYTES: usize = 64 * 1024;
/// The buffer capacity kept while nothing comes, bytes.
const KEPT_BYTES: usize = 4 * 1024;
/// The most occurrences of one placeholder in one form that are located in a text.
const LOCATED_MAX: usize = 2;

/// A set of placeholders that may not leave as they are.
#[derive(Clone)]
pub struct Placeholders {
    patterns: Arc<Patterns>,
    /// The placeholders that may leave: a bit for each, by its number.
    passing: u64,
}

/// A placeholder that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it carries what stands for a secret")]
pub struct Found {
    /// Its number, the index among those searched for.
    pub number: usize,
    /// The encoding in which it is written.
    pub form: Form,
}

/// A placeholder that was found, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The placeholder.
    pub found: Found,
    /// The bytes from its first to its last, however each is written.
    pub range: Range<usize>,
}

impl Placeholders {
    /// Builds a set of these placeholders, numbered in this order.
    ///
    /// # Errors
    /// [`PlaceholderError`]: one of them is no placeholder.
    pub fn new(placeholders: Vec<Vec<u8>>) -> Result<Self, PlaceholderError> {
        let held = placeholders.into_iter().map(Secret::new);
        let held = held.collect::<Result<_, _>>()?;
        Ok(Self {
            patterns: Arc::new(Patterns::new(held)?),
            passing: 0,
        })
    }

    /// Returns the set without these, which may leave. One whose number is 64 or more never does.
    #[must_use]
    pub fn but(&self, numbers: impl Iterator<Item = usize>) -> Self {
        let bits = numbers.filter_map(|number| 1_u64.checked_shl(u32::try_from(number).ok()?));
        Self {
            patterns: Arc::clone(&self.patterns),
            passing: bits.fold(self.passing, |all, bit| all | bit),
        }
    }

    fn passes(&self, number: usize) -> bool {
        let bit = u32::try_from(number)
            .ok()
            .and_then(|number| 1_u64.checked_shl(number));
        bit.is_some_and(|bit| self.passing & bit != 0)
    }

    /// Returns the number of the placeholder that a value belongs to, if it may not leave.
    fn number(&self, value: usize) -> Option<usize> {
        let number = self.patterns.origin(value).map(|(number, _)| number);
        number.filter(|number| !self.passes(*number))
    }

    /// Searches a text: the name of a host, a target, a header's value. A name is found whatever
    /// the case of its letters has become.
    #[must_use]
    pub fn find(&self, text: &[u8]) -> Option<Found> {
        self.search(text, &mut DecodedView::default()).err()
    }

    /// Searches names and values of headers or trailers.
    #[must_use]
    pub fn find_in_headers(&self, headers: &HeaderMap) -> Option<Found> {
        let mut both = headers.iter();
        both.find_map(|(name, value)| {
            let name = self.find(name.as_str().as_bytes());
            name.or_else(|| self.find(value.as_bytes()))
        })
    }

    /// Locates the placeholders in a whole text: at most two of each in each form, enough to know
    /// whether one occurs once.
    #[must_use]
    pub fn locate(&self, text: &[u8]) -> Vec<Located> {
        let mut all: Vec<Vec<Located>> = vec![Vec::new(); self.patterns.sources()];
        self.patterns
            .search(text, &mut DecodedView::default(), |one| {
                let Some(number) = self.number(one.value) else {
                    return;
                };
                let located = Located {
                    found: Found {
                        number,
                        form: form(text, &one),
                    },
                    range: one.start..one.end,
                };
                let Some(its) = all.get_mut(number) else {
                    return;
                };
                let of_form = its
                    .iter()
                    .filter(|other| other.found.form == located.found.form);
                if of_form.count() < LOCATED_MAX && !its.contains(&located) {
                    its.push(located);
                }
            });
        all.into_iter().flatten().collect()
    }

    /// Returns a streaming search.
    #[must_use]
    pub fn stream(&self) -> Finder {
        Finder {
            placeholders: self.clone(),
            bytes: Vec::new(),
            view: DecodedView::default(),
        }
    }

    /// Searches these bytes, and returns the index from which a placeholder may begin that is not
    /// whole.
    fn search(&self, bytes: &[u8], view: &mut DecodedView) -> Result<usize, Found> {
        let mut found = None;
        let resume = self.patterns.search(bytes, view, |one| {
            let number = self.number(one.value);
            let form = form(bytes, &one);
            found = found.or(number.map(|number| Found { number, form }));
        });
        found.map_or(Ok(resume), Err)
    }
}

/// Returns the encoding in which a value is written that was found in these bytes.
fn form(bytes: &[u8], one: &Match) -> Form {
    let written = bytes.get(one.start..one.end).unwrap_or_default();
    match one.form {
        Form::Plain if written.contains(&0) => Form::Wide,
        form => form,
    }
}

/// A streaming search that holds nothing back: a placeholder is not complete outside as long as the
/// piece that ends it does not leave.
pub struct Finder {
    placeholders: Placeholders,
    /// The bytes that may be the beginning of a placeholder.
    bytes: Vec<u8>,
    view: DecodedView,
}

impl Finder {
    /// Searches the next piece.
    ///
    /// # Errors
    /// [`Found`]: a placeholder is whole with this piece, which may not leave.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<(), Found> {
        for piece in chunk.chunks(PIECE_BYTES) {
            self.bytes.extend_from_slice(piece);
            let resume = self.placeholders.search(&self.bytes, &mut self.view)?;
            self.bytes.drain(..resume);
        }
        Ok(())
    }

    /// Searches a text outside the stream.
    ///
    /// # Errors
    /// [`Found`]: it has a placeholder.
    pub fn apart(&self, text: &[u8]) -> Result<(), Found> {
        self.placeholders.find(text).map_or(Ok(()), Err)
    }

    /// Releases buffer memory that is not needed until more comes.
    pub fn give_back(&mut self) {
        self.bytes.shrink_to(KEPT_BYTES);
        self.view.give_back(KEPT_BYTES);
    }
}
