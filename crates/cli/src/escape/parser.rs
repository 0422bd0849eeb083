//! The states of a terminal that reads its input.

use super::control::{self, Shape};
use super::decoder::Input;
use super::removal::{Judgement, Removal};
use super::{EscapeFilter, REPLACEMENT, strings};

/// Parameters of a control sequence. Long lists of colours stay below 100.
const PARAMETER_BYTES_MAX: usize = 256;
/// Intermediate bytes of a sequence; none that is known has more.
const INTERMEDIATE_BYTES_MAX: usize = 2;
/// A command string; only the clipboard's content needs so much.
pub(super) const STRING_BYTES_MAX: usize = 128 * 1024;
/// Hexadecimal digits after the Linux console's `ESC ] P`, which has no end mark.
const CONSOLE_PALETTE_DIGITS: u8 = 7;

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
const CANCEL: u8 = 0x18;
const SUBSTITUTE: u8 = 0x1a;
const DELETE: u8 = 0x7f;
const HIGH_STRING_TERMINATOR: u8 = 0x9c;

/// The parser's position within a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In text.
    Ground,
    /// After ESC.
    Escape,
    /// After ESC and intermediate bytes.
    EscapeIntermediate,
    /// In a control sequence (CSI).
    Control,
    /// In a control sequence that is removed, up to its end.
    ControlRemoved(Removal),
    /// In a string.
    Text(Introducer),
    /// After ESC in a string: its end, or that of its being one.
    TextEscape(Introducer),
    /// In the digits of the Linux console's palette command.
    ConsolePalette(u8),
}

/// The introducer of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Introducer {
    /// `ESC ]`, OSC.
    Command,
    /// `ESC k`, the title in screen and tmux.
    Title,
    /// `ESC P`, DCS.
    Device,
    /// `ESC _`, APC.
    Application,
    /// `ESC ^`, PM, and `ESC X`, SOS.
    Other,
}

/// The part of the current sequence read so far.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    prefix: Option<u8>,
    intermediates: Vec<u8>,
    body: Vec<u8>,
    oversize: bool,
}

impl Sequence {
    fn clear(&mut self) {
        self.prefix = None;
        self.intermediates.clear();
        self.body.clear();
        self.oversize = false;
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        if self.body.len() + bytes.len() > STRING_BYTES_MAX {
            self.oversize = true;
        }
        if !self.oversize {
            self.body.extend_from_slice(bytes);
        }
    }
}

impl EscapeFilter {
    /// Returns the number of leading bytes that only lengthen the current sequence's body.
    pub(super) fn body_bytes(&self, bytes: &[u8]) -> usize {
        let run = |belongs: fn(&u8) -> bool| bytes.iter().take_while(|byte| belongs(byte)).count();
        match self.state {
            State::Control if self.sequence.intermediates.is_empty() => {
                let room = PARAMETER_BYTES_MAX.saturating_sub(self.sequence.body.len());
                run(|byte| matches!(byte, b'0'..=b';')).min(room)
            }
            // The first byte of a command can be one of the Linux console's.
            State::Text(Introducer::Command) if !self.sequence.body.is_empty() => {
                run(|byte| matches!(byte, 0x20..=0x7e))
            }
            _ => 0,
        }
    }

    /// Takes one unit of the output, in whatever state.
    pub(super) fn take(&mut self, input: Input, out: &mut Vec<u8>) {
        match self.state {
            State::Text(introducer) => self.take_in_text(introducer, input, out),
            State::TextEscape(introducer) => {
                if input == Input::Ascii(b'\\') {
                    self.end_text(introducer, b"\x1b\\", out);
                } else {
                    self.remove(Removal::Malformed);
                    self.begin_sequence();
                    self.take(input, out);
                }
            }
            State::ConsolePalette(digits) => self.take_in_console_palette(digits, input, out),
            State::Ground
            | State::Escape
            | State::EscapeIntermediate
            | State::Control
            | State::ControlRemoved(_) => match input {
                Input::Control(byte) => self.take_control_character(byte, out),
                Input::Ascii(byte) => self.take_ascii(byte, out),
                Input::HighControl(_) => {
                    self.abandon();
                    self.remove(Removal::Control);
                }
                Input::Character(bytes, count) => {
                    self.abandon();
                    out.extend(bytes.iter().take(count));
                }
                Input::Invalid => {
                    self.abandon();
                    out.extend_from_slice(REPLACEMENT);
                }
            },
        }
    }

    /// Terminals obey control characters in the middle of a sequence, too.
    fn take_control_character(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            ESCAPE => {
                self.abandon();
                self.begin_sequence();
            }
            CANCEL | SUBSTITUTE => {
                self.abandon();
                self.remove(Removal::Control);
            }
            // BEL to CR, and the shifts between character sets, SO and SI.
            0x07..=0x0f => {
                self.touched.note_shift(byte);
                out.push(byte);
            }
            // Padding, that terminals ignore as well.
            0 | DELETE => {}
            // ENQ among them: its answer is a text that the terminal types in.
            _ => self.remove(Removal::Control),
        }
    }

    fn take_ascii(&mut self, byte: u8, out: &mut Vec<u8>) {
        match self.state {
            State::Escape => match byte {
                b'[' => self.state = State::Control,
                b']' => self.state = State::Text(Introducer::Command),
                b'k' => self.state = State::Text(Introducer::Title),
                b'P' => self.state = State::Text(Introducer::Device),
                b'_' => self.state = State::Text(Introducer::Application),
                b'^' | b'X' => self.state = State::Text(Introducer::Other),
                _ => self.take_in_escape(byte, out),
            },
            State::EscapeIntermediate => self.take_in_escape(byte, out),
            State::Control => self.take_in_control(byte, out),
            State::ControlRemoved(removal) => {
                if matches!(byte, 0x40..=0x7e) {
                    self.state = State::Ground;
                    self.remove(removal);
                }
            }
            State::Ground | State::Text(_) | State::TextEscape(_) | State::ConsolePalette(_) => {
                out.push(byte);
            }
        }
    }

    fn take_in_escape(&mut self, byte: u8, out: &mut Vec<u8>) {
        if matches!(byte, 0x20..=0x2f) {
            self.state = State::EscapeIntermediate;
            // One too many is kept, so that a longer sequence is never on the list.
            if self.sequence.intermediates.len() <= INTERMEDIATE_BYTES_MAX {
                self.sequence.intermediates.push(byte);
            }
            return;
        }
        self.state = State::Ground;
        match control::judge_escape(&self.sequence.intermediates, byte) {
            Some(Judgement::Remove(removal)) => self.remove(removal),
            Some(Judgement::Pass | Judgement::Rewrite { .. }) => {
                out.push(ESCAPE);
                out.extend_from_slice(&self.sequence.intermediates);
                out.push(byte);
                self.touched.note_escape(&self.sequence.intermediates, byte);
            }
            None => {}
        }
    }

    fn take_in_control(&mut self, byte: u8, out: &mut Vec<u8>) {
        let sequence = &mut self.sequence;
        let begins = sequence.body.is_empty() && sequence.prefix.is_none();
        let malformed = State::ControlRemoved(Removal::Malformed);
        match byte {
            b'0'..=b';' if sequence.intermediates.is_empty() => {
                if sequence.body.len() < PARAMETER_BYTES_MAX {
                    sequence.body.push(byte);
                } else {
                    self.state = State::ControlRemoved(Removal::Oversize);
                }
            }
            b'<'..=b'?' if begins && sequence.intermediates.is_empty() => {
                sequence.prefix = Some(byte);
            }
            0x20..=0x2f if sequence.intermediates.len() < INTERMEDIATE_BYTES_MAX => {
                sequence.intermediates.push(byte);
            }
            0x40..=0x7e => self.end_control(byte, out),
            _ => self.state = malformed,
        }
    }

    fn end_control(&mut self, last: u8, out: &mut Vec<u8>) {
        self.state = State::Ground;
        control::bound_parameters(&mut self.sequence.body);
        let shape = Shape {
            prefix: self.sequence.prefix,
            parameters: &self.sequence.body,
            intermediates: &self.sequence.intermediates,
            last,
        };
        let judgement = control::judge(&shape, self.rights, self.touched.keyboard_pushed());
        if !self.settle(judgement) {
            return;
        }
        let sequence = &self.sequence;
        out.extend_from_slice(b"\x1b[");
        out.extend(sequence.prefix);
        out.extend_from_slice(&sequence.body);
        out.extend_from_slice(&sequence.intermediates);
        out.push(last);
        self.touched.note_control(&Shape {
            prefix: sequence.prefix,
            parameters: &sequence.body,
            intermediates: &sequence.intermediates,
            last,
        });
    }

    fn take_in_text(&mut self, introducer: Introducer, input: Input, out: &mut Vec<u8>) {
        let kept = matches!(introducer, Introducer::Command | Introducer::Title);
        match input {
            Input::Control(ESCAPE) => self.state = State::TextEscape(introducer),
            Input::Control(CANCEL | SUBSTITUTE) => self.abandon(),
            Input::Control(BELL) if kept => self.end_text(introducer, b"\x07", out),
            Input::HighControl(HIGH_STRING_TERMINATOR) => {
                self.end_text(introducer, b"\x1b\\", out);
            }
            Input::Control(_) | Input::HighControl(_) => {}
            // The Linux console has two commands without an end mark. Waiting for
            // one would swallow all that follows.
            Input::Ascii(byte @ (b'P' | b'R'))
                if introducer == Introducer::Command && self.sequence.body.is_empty() =>
            {
                self.state = match byte {
                    b'P' => State::ConsolePalette(CONSOLE_PALETTE_DIGITS),
                    _ => State::Ground,
                };
                self.remove(Removal::Unknown);
            }
            Input::Ascii(byte) if kept => self.sequence.append(&[byte]),
            Input::Character(bytes, count) if kept => {
                self.sequence.append(bytes.get(..count).unwrap_or_default());
            }
            Input::Invalid if kept => self.sequence.append(REPLACEMENT),
            Input::Ascii(_) | Input::Character(..) | Input::Invalid => {}
        }
    }

    fn end_text(&mut self, introducer: Introducer, terminator: &[u8], out: &mut Vec<u8>) {
        self.state = State::Ground;
        let judgement = match introducer {
            _ if self.sequence.oversize => Judgement::Remove(Removal::Oversize),
            Introducer::Command => strings::judge_command(&self.sequence.body, self.rights),
            Introducer::Title => strings::judge_title(&self.sequence.body, self.rights),
            Introducer::Device => Judgement::Remove(Removal::DeviceControl),
            Introducer::Application => Judgement::Remove(Removal::ApplicationCommand),
            Introducer::Other => Judgement::Remove(Removal::OtherString),
        };
        if !self.settle(judgement) {
            return;
        }
        let body = &self.sequence.body;
        if introducer == Introducer::Title {
            out.extend_from_slice(b"\x1bk");
            out.extend_from_slice(body);
            out.extend_from_slice(b"\x1b\\");
        } else {
            out.extend_from_slice(b"\x1b]");
            out.extend_from_slice(body);
            out.extend_from_slice(terminator);
            self.touched.note_command(body);
            self.copied.note(body);
        }
    }

    fn take_in_console_palette(&mut self, digits: u8, input: Input, out: &mut Vec<u8>) {
        let digit = matches!(input, Input::Ascii(byte) if byte.is_ascii_hexdigit());
        self.state = match digits {
            2.. if digit => State::ConsolePalette(digits - 1),
            _ => State::Ground,
        };
        if !digit {
            self.take(input, out);
        }
    }

    /// Carries a judgement out; whether something is to be written.
    fn settle(&mut self, judgement: Judgement) -> bool {
        match judgement {
            Judgement::Pass => true,
            Judgement::Rewrite { body, removed } => {
                self.sequence.body = body;
                if let Some(removal) = removed {
                    self.remove(removal);
                }
                true
            }
            Judgement::Remove(removal) => {
                self.remove(removal);
                false
            }
        }
    }

    fn begin_sequence(&mut self) {
        self.sequence.clear();
        self.state = State::Escape;
    }

    fn abandon(&mut self) {
        if self.state != State::Ground {
            self.state = State::Ground;
            self.remove(Removal::Malformed);
        }
    }
}
