//! The values that are searched for, and the search.

use std::ops::Range;

use super::placeholder::{self, PlaceholderError};
use super::row::{Row, Rows, Until};
use super::symbols::{self, Form, Symbol};
use super::table::{ANCHOR, Entry, STRIDE, Table, WINDOW};
use super::units::EncodedUnit;
use super::view::DecodedView;
use super::walk::{Reach, ValueForm};
use super::{BYTES_MIN, Secret, gap, units};

/// The most values: each line counts as one.
pub(crate) const VALUES_MAX: usize = 4096;
/// The first symbol that an anchor relies on: together with what precedes the value, the ones
/// before it may be read as an escape.
const DOUBTFUL: usize = 5;
/// The last symbol at which an anchor may begin: a prefix that values have in common is skipped up
/// to here.
const PLACE_MAX: usize = 24;

/// The longest symbol with the gap before it, bytes.
const SYMBOL_BYTES_MAX: usize = units::BYTES_MAX + gap::BYTES_MAX;

/// A set of values with the index to find them.
pub(super) struct Patterns {
    sources: Vec<Secret>,
    values: Vec<Value>,
    table: Table,
    /// The most symbols after which the beginning of a value is found by its anchor.
    anchor_symbols_max: usize,
    /// The longest form of a value, symbols.
    form_symbols_max: usize,
    rows: Rows,
}

/// A value, or a line of one.
struct Value {
    source: usize,
    range: Range<usize>,
}

/// An occurrence of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Match {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) value: usize,
    pub(super) form: Form,
    /// The symbol by which it begins.
    pub(super) first: usize,
}

impl Patterns {
    pub(super) fn new(sources: Vec<Secret>) -> Result<Self, PlaceholderError> {
        let mut values = Vec::new();
        for (source, secret) in sources.iter().enumerate() {
            let known = values.len();
            let ranges = lines(secret.expose());
            values.extend(ranges.map(|range| Value { source, range }));
            if values.len() == known {
                return Err(PlaceholderError::Short);
            }
        }
        if values.len() > VALUES_MAX {
            return Err(PlaceholderError::Many);
        }
        let mut patterns = Self {
            table: Table::new(std::iter::empty()),
            anchor_symbols_max: 0,
            form_symbols_max: 0,
            rows: Rows::new(),
            sources,
            values,
        };
        let mut windows = Vec::new();
        for number in 0..patterns.values.len() {
            let place = anchor(patterns.value(number)).ok_or(PlaceholderError::Marks)?;
            for form in Form::ALL {
                patterns.add(number, form, place, &mut windows);
            }
        }
        patterns.table = Table::new(windows.into_iter());
        Ok(patterns)
    }

    fn add(&mut self, number: usize, form: Form, place: usize, windows: &mut Windows) {
        let value = self.values.get(number).and_then(|value| {
            let source = self.sources.get(value.source)?;
            source.expose().get(value.range.clone())
        });
        let value = value.unwrap_or_default();
        let symbols = symbols::count(form, value.len());
        let place = match form {
            Form::Plain | Form::Wide => place,
            Form::Hexadecimal => place * 2,
            // The last one is hardly ever of the value alone.
            Form::Base64(_) => (place * 4 / 3).min(symbols.saturating_sub(ANCHOR + 1)),
            Form::HexadecimalBase64(_) => (place * 8 / 3).min(symbols.saturating_sub(ANCHOR)),
        };
        for place in place..place + STRIDE {
            let entry = Entry {
                value: number as u16,
                form,
                place: place as u16,
            };
            let [usual, other] = [false, true].map(|is_for_addresses| {
                std::array::from_fn(|nth| {
                    let symbol = symbols::at(form, value, place + nth);
                    symbol.map_or(0, |symbol| letter(symbol, is_for_addresses))
                })
            });
            windows.push((usual, entry));
            if other != usual {
                windows.push((other, entry));
            }
        }
        self.anchor_symbols_max = self.anchor_symbols_max.max(place + ANCHOR);
        self.form_symbols_max = self.form_symbols_max.max(symbols);
        self.rows.add(value, symbols * SYMBOL_BYTES_MAX);
    }

    /// Returns the number of sources.
    pub(super) fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Returns the source of a value, and the range of it that the value is.
    pub(super) fn origin(&self, value: usize) -> Option<(usize, Range<usize>)> {
        let value = self.values.get(value)?;
        Some((value.source, value.range.clone()))
    }

    fn value(&self, number: usize) -> &[u8] {
        let value = self.origin(number).and_then(|(source, range)| {
            let source = self.sources.get(source)?;
            source.expose().get(range)
        });
        value.unwrap_or_default()
    }

    pub(super) fn written(&self, value: usize, form: Form) -> ValueForm<'_> {
        let value = self.value(value);
        ValueForm { value, form }
    }

    /// Returns the longest form of a value, bytes.
    pub(super) fn form_bytes_max(&self) -> usize {
        self.form_symbols_max * SYMBOL_BYTES_MAX
    }

    /// Returns how much of the end of these bytes could become a value. Whether any begins there
    /// makes no difference, for the reason given in the module [`super`].
    pub(super) fn open_end(&self, bytes: &[u8], until: Until) -> Row {
        self.rows.end(bytes, self.form_symbols_max, until)
    }

    /// Reports each value in these bytes, and returns the index from which one may begin that is
    /// not whole.
    pub(super) fn search(
        &self,
        bytes: &[u8],
        view: &mut DecodedView,
        mut each: impl FnMut(Match),
    ) -> usize {
        // Of what could become a value, and has not been found to be the beginning of one.
        let open = self.rows.end(bytes, self.anchor_symbols_max, Until::NoPart);
        let mut resume = bytes.len().saturating_sub(open.bytes);
        let mut steps = Vec::new();
        let mut try_at = |at: usize, entry: Entry| {
            let value = usize::from(entry.value);
            let written = self.written(value, entry.form);
            let began = written.backward(usize::from(entry.place), bytes, at);
            let Some((start, first)) = began else {
                return;
            };
            steps.clear();
            let mut whole = |end| {
                each(Match {
                    start,
                    end,
                    value,
                    form: entry.form,
                    first,
                });
            };
            match written.forward(first, bytes, start, &mut steps) {
                Reach::Whole(end) => whole(end),
                Reach::Nearly(end) => {
                    whole(end);
                    resume = resume.min(start);
                }
                Reach::Partly => resume = resume.min(start),
                Reach::Not => {}
            }
        };
        self.table.sift(bytes, &mut try_at);
        view.read(bytes);
        let view = &*view;
        let sift = |here, entry| try_at(view.place(here), entry);
        self.table.sift(view.bytes(), sift);
        resume
    }
}

type Windows = Vec<([u8; WINDOW], Entry)>;

fn letter(symbol: Symbol, is_for_addresses: bool) -> u8 {
    match symbol {
        Symbol::Byte(byte) => byte,
        Symbol::Digit(digit) => units::digit_like(digit, b'a'),
        Symbol::Six(bits, _) => symbols::letter(bits, is_for_addresses),
        Symbol::Half(bits, is_first) => {
            units::digit_like(symbols::half(bits, is_first, is_for_addresses), b'a')
        }
    }
}

/// Returns the lines of a value that are searched for; the whole value if it has only one.
pub(super) fn lines(value: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    value
        .split(|byte| matches!(byte, b'\n' | b'\r'))
        .filter_map(move |line| {
            let range = from..from + line.len();
            from = range.end + 1;
            (line.len() >= BYTES_MIN && !placeholder::is_frame(line)).then_some(range)
        })
}

/// Returns whether a value has an anchor by which it can be found.
pub(super) fn can_be_found(value: &[u8]) -> bool {
    anchor(value).is_some()
}

/// Returns the index of a value's anchor, the bytes by which it is found: not a prefix that it has
/// in common with others, nor bytes that are or may be read as an escape.
fn anchor(value: &[u8]) -> Option<usize> {
    let last = value.len().checked_sub(ANCHOR)?;
    let preferred = placeholder::prefix_bytes(value).clamp(DOUBTFUL, PLACE_MAX);
    let is_sound = |place: &usize| {
        let part = |before: usize| {
            let part = value.get(place - before..place + ANCHOR);
            part.unwrap_or_default().iter()
        };
        part(5).all(|byte| *byte != b'\\')
            && part(2).all(|byte| *byte != b'%')
            && part(0).all(|byte| *byte != b' ')
    };
    // What is read as an escape by chance is found as it stands, or with other bytes escaped where
    // it is no part of what it is found by.
    let is_read_as_is = |place: &usize| {
        let from = place.saturating_sub(units::BYTES_MAX);
        (from..place + ANCHOR).all(|at| match value.get(at..).and_then(units::read) {
            Some(EncodedUnit::Escaped(_, length) | EncodedUnit::Growing(_, length)) => {
                at + length <= *place
            }
            Some(EncodedUnit::Plain(_) | EncodedUnit::Soft(_)) => true,
            Some(EncodedUnit::Begun) | None => false,
        })
    };
    let all = || {
        let later = (preferred..=last).take(PLACE_MAX);
        let earlier = (DOUBTFUL..=last.min(PLACE_MAX)).rev();
        later.chain(earlier).filter(is_sound)
    };
    all().find(is_read_as_is).or_else(|| all().next())
}
