//! The check of whether a value occurs at a place.

use super::gap::{self, Gap};
use super::symbols::{self, Form, Style, Symbol};
use super::units::{self, EncodedUnit};

/// A value in one of its forms.
#[derive(Clone, Copy)]
pub(super) struct ValueForm<'a> {
    pub(super) value: &'a [u8],
    pub(super) form: Form,
}

/// A unit of the text that a value occurs in, with its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A symbol.
    Symbol(u8),
    /// A gap between two symbols.
    Gap(u8),
}

/// The extent of a value from a place on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The whole value, up to this index.
    Whole(usize),
    /// The whole value, up to this index at the end of the available bytes. A partial symbol may
    /// follow.
    Nearly(usize),
    /// A part of the value, up to the end of the available bytes.
    Partly,
    /// Another value.
    Not,
}

impl ValueForm<'_> {
    #[inline]
    fn symbol(self, place: usize) -> Option<Symbol> {
        symbols::at(self.form, self.value, place)
    }

    /// Returns the number of symbols from this one on that occur here unescaped, one byte each: a
    /// fast path before every way to write them is tried.
    #[inline]
    fn run(self, place: usize, bytes: &[u8]) -> usize {
        match self.form {
            Form::Plain | Form::Wide => {
                let own = self.value.get(place..).unwrap_or_default();
                let is_it = |(own, byte): &(&u8, &u8)| {
                    own.eq_ignore_ascii_case(byte) && !units::is_mark(**byte)
                };
                own.iter().zip(bytes).take_while(is_it).count()
            }
            Form::Hexadecimal => {
                let own = self.value.get(place / 2..).unwrap_or_default();
                let own = own.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
                let is_it = |(own, byte): &(u8, &u8)| units::digit(**byte) == Some(*own);
                own.skip(place % 2).zip(bytes).take_while(is_it).count()
            }
            Form::Base64(_) | Form::HexadecimalBase64(_) => {
                let is_it = |(place, byte): &(usize, &u8)| {
                    let symbol = self.symbol(*place);
                    symbol.is_some_and(|symbol| symbol.is_whole() && symbol.is(**byte))
                };
                (place..).zip(bytes).take_while(is_it).count()
            }
        }
    }

    /// Returns the index at which all symbols before this one except the first `left` begin, if
    /// they occur unescaped and no escape can be among them.
    fn run_before(self, left: usize, place: usize, bytes: &[u8], at: usize) -> Option<usize> {
        let start = at.checked_sub(place.checked_sub(left)?)?;
        let around = bytes.get(start.saturating_sub(units::BYTES_MAX)..at)?;
        let is_it = !around.iter().any(|byte| units::is_mark(*byte))
            && self.run(left, bytes.get(start..at)?) == place - left;
        is_it.then_some(start)
    }

    /// Checks whether the value, from its symbol at `place` on, occurs in these bytes from `at` on.
    /// Each unit of it is added to `steps`.
    ///
    /// Of the symbols of base64 those at the ends may be of the value in part; without them it
    /// stands there as well.
    ///
    /// A value may itself have what looks like an escape. Then both ways are tried.
    pub(super) fn forward(
        self,
        mut place: usize,
        bytes: &[u8],
        mut at: usize,
        steps: &mut Vec<Step>,
    ) -> Reach {
        // After the last symbol: a gap is of a value only where another one follows.
        let mut end = at;
        loop {
            let run = self.run(place, bytes.get(at..).unwrap_or_default());
            if run > 0 {
                steps.resize(steps.len() + run, Step::Symbol(1));
                (place, at) = (place + run, at + run);
                end = at;
            }
            let Some(symbol) = self.symbol(place) else {
                return Reach::Whole(end);
            };
            let rest = bytes.get(at..).unwrap_or_default();
            let (none_left, other) = match symbol.is_whole() || place == 0 {
                true => (Reach::Partly, Reach::Not),
                false => (Reach::Nearly(end), Reach::Whole(end)),
            };
            let unit = units::read(rest);
            let is_plain = rest.first().is_some_and(|byte| symbol.is(*byte));
            let length = match unit {
                None => return none_left,
                Some(EncodedUnit::Escaped(byte, length) | EncodedUnit::Growing(byte, length))
                    if symbol.is(byte) =>
                {
                    if is_plain {
                        let reach = self.tried(place, bytes, at, length, steps);
                        if reach != Reach::Not {
                            return reach;
                        }
                        1
                    } else {
                        length
                    }
                }
                Some(EncodedUnit::Begun | EncodedUnit::Growing(..) | EncodedUnit::Soft(_))
                    if is_plain =>
                {
                    let is_soft = matches!(unit, Some(EncodedUnit::Soft(_)));
                    match self.tried(place, bytes, at, 1, steps) {
                        Reach::Not if is_soft => 0,
                        Reach::Not => return Reach::Partly,
                        reach => return reach,
                    }
                }
                Some(EncodedUnit::Plain(_) | EncodedUnit::Escaped(..)) if is_plain => 1,
                Some(EncodedUnit::Begun | EncodedUnit::Growing(..)) => return none_left,
                Some(EncodedUnit::Plain(_) | EncodedUnit::Escaped(..) | EncodedUnit::Soft(_)) => 0,
            };
            if length > 0 {
                steps.push(Step::Symbol(length as u8));
                (place, at) = (place + 1, at + length);
                end = at;
                continue;
            }
            match self.gap(place, rest, steps) {
                Gap::Open => return none_left,
                Gap::Bytes(0) => return other,
                Gap::Bytes(length) => at += length,
            }
        }
    }

    /// Reads the gap before the symbol at `place`, if another symbol came before it.
    fn gap(self, place: usize, bytes: &[u8], steps: &mut Vec<Step>) -> Gap {
        if !matches!(steps.last(), Some(Step::Symbol(_))) {
            return Gap::Bytes(0);
        }
        let gap = gap::read(self.form, place, bytes);
        if let Gap::Bytes(length @ 1..) = gap {
            steps.push(Step::Gap(length as u8));
        }
        gap
    }

    /// Checks the rest of the value, with this length for the symbol at `place`. Nothing is added
    /// to `steps` if it does not match.
    fn tried(
        self,
        place: usize,
        bytes: &[u8],
        at: usize,
        length: usize,
        steps: &mut Vec<Step>,
    ) -> Reach {
        let known = steps.len();
        steps.push(Step::Symbol(length as u8));
        let reach = self.forward(place + 1, bytes, at + length, steps);
        if reach == Reach::Not {
            steps.truncate(known);
        }
        reach
    }

    /// Returns the index at which the value begins whose symbol at `place` is at `at`, and its
    /// first symbol there, if those before it match. Of two indices it is the earlier one.
    pub(super) fn backward(self, place: usize, bytes: &[u8], at: usize) -> Option<(usize, usize)> {
        let in_part = usize::from(!self.symbol(0)?.is_whole());
        // An escape that begins before the value reaches into it at most so far.
        let run = [in_part, units::BYTES_MAX].into_iter().find_map(|left| {
            let left = left.min(place);
            Some((left, self.run_before(left, place, bytes, at)?))
        });
        let (place, at) = run.unwrap_or((place, at));
        self.backward_by_one(place, bytes, at, at)
    }

    /// Goes back by one symbol, from behind a gap that ends at `end` and is searched from `at`
    /// back.
    fn backward_by_one(
        self,
        place: usize,
        bytes: &[u8],
        end: usize,
        at: usize,
    ) -> Option<(usize, usize)> {
        let Some(before) = place.checked_sub(1) else {
            return Some((end, 0));
        };
        let symbol = self.symbol(before)?;
        let mut found = (before == 0 && !symbol.is_whole()).then_some((end, 1));
        for length in 1..=units::BYTES_MAX.min(at) {
            let start = at - length;
            let written = bytes.get(start..at).unwrap_or_default();
            let (byte, is_gap) =
                match written {
                    [byte] => (Some(*byte), gap::is_of(self.form, place, *byte)),
                    [b'0', b'x' | b'X'] => (None, gap::is_prefixed(self.form, place)),
                    [mark, ..] if units::is_mark(*mark) => match units::read(written) {
                        Some(
                            EncodedUnit::Escaped(byte, read) | EncodedUnit::Growing(byte, read),
                        ) if read == length => (Some(byte), gap::is_of(self.form, place, byte)),
                        Some(EncodedUnit::Soft(read)) => (None, read == length),
                        Some(
                            EncodedUnit::Plain(_)
                            | EncodedUnit::Escaped(..)
                            | EncodedUnit::Growing(..)
                            | EncodedUnit::Begun,
                        )
                        | None => continue,
                    },
                    _ => continue,
                };
            let mut add = |one: Option<(usize, usize)>| found = found.into_iter().chain(one).min();
            if byte.is_some_and(|byte| symbol.is(byte)) {
                add(self.backward_by_one(before, bytes, start, start));
            }
            if is_gap && end - start <= gap::BYTES_MAX {
                add(self.backward_by_one(place, bytes, end, start));
            }
        }
        found
    }

    /// Replaces symbols none of which is escaped: each is one byte.
    fn replaced_plainly(self, first: usize, bytes: &[u8], other: &[u8]) -> Option<Vec<u8>> {
        let style = Style::of(bytes);
        let mut out = Vec::with_capacity(bytes.len());
        for (place, byte) in (first..).zip(bytes) {
            let own = self.symbol(place).filter(|own| own.is(*byte))?;
            let other = symbols::at(self.form, other, place)?;
            out.push(own.replaced(*byte, other, style));
        }
        Some(out)
    }

    /// Replaces the symbols in these bytes, from this one on, by another value's in the same form
    /// and length.
    pub(super) fn replaced(self, first: usize, bytes: &[u8], other: &[u8]) -> Vec<u8> {
        if !bytes.iter().any(|byte| units::is_mark(*byte))
            && let Some(made) = self.replaced_plainly(first, bytes, other)
        {
            return made;
        }
        let mut steps = Vec::new();
        self.forward(first, bytes, 0, &mut steps);
        let style = Style::of(bytes);
        let mut out = Vec::with_capacity(bytes.len());
        let (mut rest, mut place) = (bytes, first);
        for step in &steps {
            let (Step::Symbol(length) | Step::Gap(length)) = *step;
            let Some((written, after)) = rest.split_at_checked(usize::from(length)) else {
                break;
            };
            rest = after;
            if matches!(step, Step::Gap(_)) {
                out.extend_from_slice(written);
                continue;
            }
            let own = self.symbol(place);
            let other = symbols::at(self.form, other, place);
            place += 1;
            let byte = match (written, units::read(written)) {
                ([byte], _) => *byte,
                (
                    _,
                    Some(
                        EncodedUnit::Plain(byte)
                        | EncodedUnit::Escaped(byte, _)
                        | EncodedUnit::Growing(byte, _),
                    ),
                ) => byte,
                (_, Some(EncodedUnit::Begun | EncodedUnit::Soft(_)) | None) => break,
            };
            if let (Some(own), Some(other)) = (own, other) {
                match own.replaced(byte, other, style) {
                    same if same == byte => out.extend_from_slice(written),
                    new => units::write_like(written, new, &mut out),
                }
            }
        }
        out
    }
}
