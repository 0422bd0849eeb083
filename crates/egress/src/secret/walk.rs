//! Whether a value stands at a place.

use super::symbols::{self, Form, Style, Symbol};
use super::units::{self, Unit};

/// A value in one of its forms.
#[derive(Clone, Copy)]
pub(super) struct Written<'a> {
    pub(super) value: &'a [u8],
    pub(super) form: Form,
}

/// How far a value goes from a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// To here.
    Whole(usize),
    /// To here, the end of what there is. A symbol that follows may be of it in part.
    Nearly(usize),
    /// To the end of what there is.
    Partly,
    /// It is another one.
    Not,
}

impl Written<'_> {
    #[inline]
    fn symbol(self, place: usize) -> Option<Symbol> {
        symbols::at(self.form, self.value, place)
    }

    /// How many symbols from this one on stand here as they are, one byte each: what can be
    /// said without a look at each way to write them.
    #[inline]
    fn run(self, place: usize, bytes: &[u8]) -> usize {
        match self.form {
            Form::Plain => {
                let own = self.value.get(place..).unwrap_or_default();
                let is_it =
                    |(own, byte): &(&u8, &u8)| own.eq_ignore_ascii_case(byte) && !is_mark(byte);
                own.iter().zip(bytes).take_while(is_it).count()
            }
            Form::Hexadecimal | Form::Base64(_) => {
                let is_it = |(place, byte): &(usize, &u8)| {
                    let symbol = self.symbol(*place);
                    symbol.is_some_and(|symbol| symbol.is_whole() && symbol.is(**byte))
                };
                (place..).zip(bytes).take_while(is_it).count()
            }
            Form::Wide => 0,
        }
    }

    /// The same for all symbols before one, where no escape can be among them: how many of
    /// the first ones are left to be looked at, and where the others begin.
    fn run_before(self, place: usize, bytes: &[u8], at: usize) -> Option<(usize, usize)> {
        let left = usize::from(!self.symbol(0)?.is_whole()).min(place);
        let start = at.checked_sub(place - left)?;
        let around = bytes.get(start.saturating_sub(units::BYTES_MAX)..at)?;
        let is_it =
            !around.iter().any(is_mark) && self.run(left, bytes.get(start..at)?) == place - left;
        is_it.then_some((left, start))
    }

    /// Whether the value, from its symbol at `place` on, stands in these bytes from `at`
    /// on. How many bytes each of its symbols takes is added to `lengths`.
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
        lengths: &mut Vec<u8>,
    ) -> Reach {
        loop {
            let run = self.run(place, bytes.get(at..).unwrap_or_default());
            lengths.resize(lengths.len() + run, 1);
            (place, at) = (place + run, at + run);
            let Some(symbol) = self.symbol(place) else {
                return Reach::Whole(at);
            };
            let rest = bytes.get(at..).unwrap_or_default();
            let (none_left, other) = match symbol.is_whole() || place == 0 {
                true => (Reach::Partly, Reach::Not),
                false => (Reach::Nearly(at), Reach::Whole(at)),
            };
            let is_plain = rest.first().is_some_and(|byte| symbol.is(*byte));
            let length = match units::read(rest) {
                None => return none_left,
                Some(Unit::Plain(_)) if is_plain => 1,
                Some(Unit::Escaped(byte, length)) if symbol.is(byte) => {
                    if is_plain {
                        let known = lengths.len();
                        lengths.push(length as u8);
                        let reach = self.forward(place + 1, bytes, at + length, lengths);
                        if reach != Reach::Not {
                            return reach;
                        }
                        lengths.truncate(known);
                        1
                    } else {
                        length
                    }
                }
                Some(Unit::Escaped(..)) if is_plain => 1,
                Some(Unit::Begun) if is_plain => {
                    lengths.push(1);
                    let reach = self.forward(place + 1, bytes, at + 1, lengths);
                    return match reach {
                        Reach::Whole(_) | Reach::Nearly(_) => reach,
                        Reach::Partly | Reach::Not => Reach::Partly,
                    };
                }
                Some(Unit::Begun) => return none_left,
                Some(Unit::Plain(_) | Unit::Escaped(..)) => return other,
            };
            lengths.push(length as u8);
            (place, at) = (place + 1, at + length);
        }
    }

    /// Where the value begins whose symbol at `place` stands at `at`, and by which of its
    /// symbols, if those before it do. Of two places it is the earlier one.
    pub(super) fn backward(self, place: usize, bytes: &[u8], at: usize) -> Option<(usize, usize)> {
        let (place, at) = self.run_before(place, bytes, at).unwrap_or((place, at));
        self.backward_by_one(place, bytes, at)
    }

    fn backward_by_one(self, place: usize, bytes: &[u8], at: usize) -> Option<(usize, usize)> {
        let Some(before) = place.checked_sub(1) else {
            return Some((at, 0));
        };
        let symbol = self.symbol(before)?;
        let without = (before == 0 && !symbol.is_whole()).then_some((at, 1));
        for length in [units::BYTES_MAX, 4, 3, 2] {
            let Some(start) = at.checked_sub(length) else {
                continue;
            };
            if !matches!(bytes.get(start), Some(b'%' | b'\\')) {
                continue;
            }
            let written = bytes.get(start..at).and_then(units::read);
            if let Some(Unit::Escaped(byte, read)) = written
                && read == length
                && symbol.is(byte)
                && let Some(found) = self.backward_by_one(before, bytes, start)
            {
                return Some(found);
            }
        }
        let start = at.checked_sub(1);
        let plain = start.filter(|start| bytes.get(*start).is_some_and(|byte| symbol.is(*byte)));
        plain.map_or(without, |start| self.backward_by_one(before, bytes, start))
    }

    /// The same where none of them is escaped: each symbol is one byte.
    fn replaced_plainly(self, first: usize, bytes: &[u8], other: &[u8]) -> Option<Vec<u8>> {
        let style = Style::of(bytes);
        let mut out = Vec::with_capacity(bytes.len());
        for (place, byte) in (first..).zip(bytes) {
            let own = self.symbol(place)?;
            let other = symbols::at(self.form, other, place)?;
            out.push(own.replaced(*byte, other, style));
        }
        Some(out)
    }

    /// What stands in these bytes from this symbol on, as the other value in the same form;
    /// as long as it is.
    pub(super) fn replaced(self, first: usize, bytes: &[u8], other: &[u8]) -> Vec<u8> {
        if !bytes.iter().any(is_mark)
            && let Some(made) = self.replaced_plainly(first, bytes, other)
        {
            return made;
        }
        let mut lengths = Vec::new();
        self.forward(first, bytes, 0, &mut lengths);
        let style = Style::of(bytes);
        let mut out = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        for (place, length) in (first..).zip(&lengths) {
            let Some((written, after)) = rest.split_at_checked(usize::from(*length)) else {
                break;
            };
            rest = after;
            let own = self.symbol(place);
            let other = symbols::at(self.form, other, place);
            let byte = match (written, units::read(written)) {
                ([byte], _) => *byte,
                (_, Some(Unit::Plain(byte) | Unit::Escaped(byte, _))) => byte,
                (_, Some(Unit::Begun) | None) => break,
            };
            if let (Some(own), Some(other)) = (own, other) {
                units::write_like(written, own.replaced(byte, other, style), &mut out);
            }
        }
        out
    }
}

/// Whether an escape may begin by a byte.
fn is_mark(byte: &u8) -> bool {
    matches!(byte, b'%' | b'\\')
}
