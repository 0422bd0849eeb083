//! A filter for the terminal output of a hostile program.
//!
//! A terminal obeys escape sequences: some read its state back as if the person
//! had typed it, some write the clipboard, rename the window, resize it, print,
//! or switch the way later bytes are understood. [`EscapeFilter`] reads a
//! program's output as a terminal would (ECMA-48 and xterm, after the states that
//! Paul Williams drew), and writes anew what a list allows. Nothing is passed on
//! as it came: text is whole UTF-8 characters, and each sequence is complete, in
//! its seven-bit form. So what the terminal receives cannot be read in two ways,
//! and whatever is removed never joins its two neighbours into something new.
//!
//! The terminal is taken to understand UTF-8. What is not on the list is removed
//! and counted; [`EscapeFilter::restore`] gives back what a program left changed,
//! so that a question asked afterwards can be read and answered.
//!
//! This module must never do I/O. Start reading at [`EscapeFilter::push`], then
//! `parser.rs` (the states), `control.rs` and `strings.rs` (the lists).

mod control;
mod decoder;
mod parser;

mod removal;
mod restore;
mod strings;

#[cfg(test)]
mod inspection;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use atoll_model::TerminalRights;
use decoder::{Decoder, Input};
use parser::{Sequence, State};
use removal::Removal;
use restore::Touched;

/// A streaming filter for a program's terminal output.
#[derive(Debug)]
pub struct EscapeFilter {
    rights: TerminalRights,
    decoder: Decoder,
    state: State,
    sequence: Sequence,
    touched: Touched,
    removed: BTreeMap<&'static str, u64>,
    copied: Copied,
}

/// A program's writes to the clipboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// The number of times.
    pub times: u64,
    /// The size of all together, bytes.
    pub bytes: u64,
}

impl Copied {
    /// Adds what another output copied.
    pub fn add(&mut self, other: Self) {
        self.times = self.times.saturating_add(other.times);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Takes note of an `OSC 52` that the terminal gets.
    fn note(&mut self, body: &[u8]) {
        let Some(content) = body
            .strip_prefix(b"52;")
            .and_then(|it| it.split(|byte| *byte == b';').nth(1))
        else {
            return;
        };
        let digits = content.iter().filter(|byte| **byte != b'=').count() as u64;
        self.add(Self {
            times: 1,
            bytes: digits * 3 / 4,
        });
    }
}

/// The replacement for bytes that are not UTF-8.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

impl EscapeFilter {
    /// Creates a filter for one terminal, at the start of a program's output.
    #[must_use]
    pub fn new(rights: TerminalRights) -> Self {
        Self {
            rights,
            decoder: Decoder::default(),
            state: State::Ground,
            sequence: Sequence::default(),
            touched: Touched::default(),
            removed: BTreeMap::new(),
            copied: Copied::default(),
        }
    }

    /// Filters the next bytes of the output, and appends the permitted ones to `out`. An unfinished
    /// sequence or character is held until the rest comes.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        out.reserve(bytes.len());
        let mut rest = bytes;
        loop {
            if self.decoder.is_empty() {
                let (run, other) = rest.split_at(self.run_bytes(rest));
                match self.state {
                    State::Ground => out.extend_from_slice(run),
                    _ => self.sequence.append(run),
                }
                rest = other;
            }
            let Some((&byte, other)) = rest.split_first() else {
                return;
            };
            rest = other;
            if byte.is_ascii() && self.decoder.is_empty() {
                self.take(Input::ascii(byte), out);
                continue;
            }
            let (broken, whole) = self.decoder.feed(byte);
            for input in [broken, whole].into_iter().flatten() {
                self.take(input, out);
            }
        }
    }

    /// Ends the output: an unfinished character is replaced, an unfinished
    /// sequence removed.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(input) = self.decoder.finish() {
            self.take(input, out);
        }
        if self.state != State::Ground {
            self.remove(Removal::Unfinished);
            self.state = State::Ground;
        }
    }

    /// Appends the sequences that restore the terminal: modes, colours, margins, character sets,
    /// cursor. To be written after [`EscapeFilter::finish`] and before any output of Atoll's own,
    /// because a hostile program can leave letters invisible or the mouse reporting. Writes nothing
    /// when nothing was changed; a second call writes nothing.
    pub fn restore(&mut self, out: &mut Vec<u8>) {
        std::mem::take(&mut self.touched).restore(out);
    }

    /// Appends the sequences that put the terminal at rest for a while, so that what is drawn then
    /// looks as intended: on the alternate screen, unless the program uses that already. Colours
    /// that the program has redefined stay at rest afterwards.
    pub fn set_aside(&self, out: &mut Vec<u8>) {
        self.touched.set_aside(out);
    }

    /// Appends the sequences that return the terminal to the program, which has to redraw a whole
    /// screen.
    pub fn take_up(&self, out: &mut Vec<u8>) {
        self.touched.take_up(out);
    }

    /// Returns whether the program uses the whole screen, so that a line from anyone else would be
    /// in its way.
    #[must_use]
    pub fn has_whole_screen(&self) -> bool {
        self.touched.on_alternate_screen()
    }

    /// Returns the number of sequences removed, by kind, for the summary of a run.
    #[must_use]
    pub fn removed(&self) -> &BTreeMap<&'static str, u64> {
        &self.removed
    }

    /// Returns what was written to the clipboard.
    #[must_use]
    pub fn copied(&self) -> Copied {
        self.copied
    }

    /// Returns the number of leading bytes that need no look at each: in text they are written, in
    /// a sequence they belong to its body.
    fn run_bytes(&self, bytes: &[u8]) -> usize {
        match self.state {
            State::Ground => plain_bytes(bytes),
            _ => self.body_bytes(bytes),
        }
    }

    fn remove(&mut self, removal: Removal) {
        let count = self.removed.entry(removal.name()).or_default();
        *count = count.saturating_add(1);
    }
}

/// Returns the number of leading bytes that can be copied without looking closer: printable ASCII,
/// the format effectors and whole characters.
fn plain_bytes(bytes: &[u8]) -> usize {
    let mut count = 0;
    loop {
        count += plain_ascii_bytes(bytes.get(count..).unwrap_or_default());
        let ascii_ends = count;
        loop {
            match decoder::character_bytes(bytes.get(count..).unwrap_or_default()) {
                0 => break,
                character => count += character,
            }
        }
        if count == ascii_ends {
            return count;
        }
    }
}

/// Blocks are judged as a whole, without branches within one, so that the
/// compiler uses vector instructions.
fn plain_ascii_bytes(bytes: &[u8]) -> usize {
    const BLOCK_BYTES: usize = 32;
    let blocks = bytes
        .chunks_exact(BLOCK_BYTES)
        .take_while(|block| block.iter().fold(true, |all, &byte| all & is_plain(byte)))
        .count();
    let rest = bytes.get(blocks * BLOCK_BYTES..).unwrap_or_default();
    let tail = rest.iter().take_while(|&&byte| is_plain(byte)).count();
    blocks * BLOCK_BYTES + tail
}

/// Returns whether a byte is printable ASCII, or BEL to CR.
fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e | 0x07..=0x0d)
}
