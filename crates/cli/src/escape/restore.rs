//! The terminal state a program has changed, and the sequences that restore it.

use std::collections::BTreeSet;

use super::control::{AtRest, MODES, Shape, number, numbers};

const ORIGIN_MODE: u16 = 6;
/// Bracketed paste: pasted text comes between marks.
const PASTE_MODE: u16 = 2004;
/// The ways to the alternate screen.
const SCREEN_MODES: [u16; 3] = [47, 1047, 1049];
const SHIFT_OUT: u8 = 0x0e;

/// The differences from a terminal at rest.
#[derive(Debug, Default)]
pub(super) struct Touched {
    modes: BTreeSet<u16>,
    colours: BTreeSet<u16>,
    keyboard: KeyboardStacks,
    writing: Writing,
    keyboard_flags: bool,
    /// The last setting written for reporting keys with modifiers; empty at rest.
    modified_keys: Vec<u8>,
    margins: bool,
    /// The rows and the columns between them, as they were written last.
    rows: Vec<u8>,
    columns: Vec<u8>,
    inserting: bool,
    keypad: bool,
    cursor_style: bool,
    palette: bool,
    hyperlink: bool,
}

/// The attributes of written characters that differ from rest.
#[derive(Debug, Default)]
struct Writing {
    rendition: bool,
    first_set: bool,
    second_set: bool,
    shifted: bool,
}

/// Terminals have a stack of keyboard modes for each screen.
#[derive(Debug, Default)]
struct KeyboardStacks {
    main: u16,
    alternate: u16,
}

impl Touched {
    /// Returns the number of entries the program has pushed on this screen's keyboard stack and not
    /// popped.
    pub(super) fn keyboard_pushed(&self) -> u16 {
        if self.on_alternate_screen() {
            self.keyboard.alternate
        } else {
            self.keyboard.main
        }
    }

    /// Notes SO or SI; other control characters change nothing.
    pub(super) fn note_shift(&mut self, byte: u8) {
        if matches!(byte, 0x0e | 0x0f) {
            self.writing.shifted = byte == SHIFT_OUT;
        }
    }

    pub(super) fn note_escape(&mut self, intermediates: &[u8], last: u8) {
        match (intermediates, last) {
            ([], b'=') => self.keypad = true,
            ([], b'>') => self.keypad = false,
            ([], b'8') => self.note_restored_cursor(),
            ([b'('], set) => self.writing.first_set = set != b'B',
            ([b')'], set) => self.writing.second_set = set != b'B',
            _ => {}
        }
    }

    pub(super) fn note_control(&mut self, shape: &Shape<'_>) {
        let parameters = shape.parameters;
        let several = parameters.iter().any(|byte| !byte.is_ascii_digit());
        let first = number(parameters).unwrap_or(1);
        match (shape.prefix, shape.intermediates, shape.last) {
            (None, [], b'm') => self.writing.rendition = several || first != 0,
            (None, [], b'r') => {
                self.margins = !parameters.is_empty();
                self.rows = parameters.to_vec();
            }
            (None, [], b's') if !parameters.is_empty() => {
                self.margins = true;
                self.columns = parameters.to_vec();
            }
            (None, [], b'u') => self.note_restored_cursor(),
            (None, [], b'h' | b'l') if numbers(parameters).any(|mode| mode == Some(4)) => {
                self.inserting = shape.last == b'h';
            }
            (None, [b' '], b'q') => self.cursor_style = first != 0,
            (Some(b'?'), [], b'h' | b'l') => self.note_modes(parameters, shape.last == b'h'),
            (Some(b'>'), [], b'm') => {
                self.modified_keys.clear();
                if several {
                    self.modified_keys.extend_from_slice(parameters);
                }
            }
            (Some(b'>'), [], b'u') => self.push_keyboard(1),
            (Some(b'<'), [], b'u') => self.pop_keyboard(first.max(1)),
            (Some(b'='), [], b'u') => self.keyboard_flags = true,
            _ => {}
        }
    }

    /// Notes an OSC, which begins with its number.
    pub(super) fn note_command(&mut self, body: &[u8]) {
        let mut parts = body.splitn(2, |&byte| byte == b';');
        let command = parts.next().and_then(number).unwrap_or_default();
        let rest = parts.next().unwrap_or_default();
        match command {
            4 => self.palette = true,
            8 => self.hyperlink = rest != b";",
            10..=12 if rest != b"?" => {
                self.colours.insert(command);
            }
            110..=112 => {
                self.colours.remove(&(command - 100));
            }
            104 if rest.is_empty() => self.palette = false,
            _ => {}
        }
    }

    /// Writes the sequences that undo all of it. The rendition of characters comes last, because
    /// restoring a cursor restores that, too.
    pub(super) fn restore(self, out: &mut Vec<u8>) {
        if self.keyboard_flags {
            out.extend_from_slice(b"\x1b[=0u");
        }
        pop(self.keyboard_pushed(), out);
        if self.hyperlink {
            out.extend_from_slice(b"\x1b]8;;\x1b\\");
        }
        if self.modes.contains(&ORIGIN_MODE) {
            // This moves the cursor to the top; what follows belongs at the end.
            out.extend_from_slice(b"\x1b[?6l\x1b[9999;1H");
        }
        if self.margins {
            out.extend_from_slice(b"\x1b7\x1b[r\x1b8");
        }
        for mode in MODES
            .iter()
            .filter(|mode| self.modes.contains(&mode.number))
        {
            if mode.number != ORIGIN_MODE && !SCREEN_MODES.contains(&mode.number) {
                let last = if mode.at_rest == AtRest::On { 'h' } else { 'l' };
                out.extend_from_slice(format!("\x1b[?{}{last}", mode.number).as_bytes());
            }
        }
        for number in SCREEN_MODES {
            if self.modes.contains(&number) {
                out.extend_from_slice(format!("\x1b[?{number}l").as_bytes());
            }
        }
        if self.on_alternate_screen() {
            pop(self.keyboard.main, out);
        }
        let moved = self.margins || self.on_alternate_screen();
        for (touched, sequence) in [
            (self.inserting, "\x1b[4l"),
            (self.keypad, "\x1b>"),
            (self.cursor_style, "\x1b[0 q"),
            (!self.modified_keys.is_empty(), "\x1b[>4m"),
            (self.palette, "\x1b]104\x1b\\"),
            (self.colours.contains(&10), "\x1b]110\x1b\\"),
            (self.colours.contains(&11), "\x1b]111\x1b\\"),
            (self.colours.contains(&12), "\x1b]112\x1b\\"),
            (self.writing.shifted || moved, "\x0f"),
            (self.writing.first_set || moved, "\x1b(B"),
            (self.writing.second_set || moved, "\x1b)B"),
            (self.writing.rendition || moved, "\x1b[0m"),
        ] {
            if touched {
                out.extend_from_slice(sequence.as_bytes());
            }
        }
    }

    /// Writes the sequences that let something else be drawn: on the alternate screen, unless the
    /// program uses that already, so that the program's own stays as it is.
    pub(super) fn set_aside(&self, out: &mut Vec<u8>) {
        let keeping: &[u8] = match self.on_alternate_screen() {
            true => b"\x1b7",
            false => b"\x1b[?1049h",
        };
        out.extend_from_slice(keeping);
        if self.has_keyboard() {
            out.extend_from_slice(b"\x1b[>0u");
        }
        if self.margins {
            out.extend_from_slice(b"\x1b[r");
        }
        for mode in self.own_modes() {
            let last = if mode.at_rest == AtRest::On { 'h' } else { 'l' };
            out.extend_from_slice(format!("\x1b[?{}{last}", mode.number).as_bytes());
        }
        for (touched, sequence) in [
            (self.hyperlink, "\x1b]8;;\x1b\\"),
            (self.inserting, "\x1b[4l"),
            (self.keypad, "\x1b>"),
            // Ctrl-C and Ctrl-Z are sequences otherwise.
            (!self.modified_keys.is_empty(), "\x1b[>4m"),
            (self.palette, "\x1b]104\x1b\\"),
            (self.colours.contains(&10), "\x1b]110\x1b\\"),
            (self.colours.contains(&11), "\x1b]111\x1b\\"),
            (self.colours.contains(&12), "\x1b]112\x1b\\"),
            (!self.modes.contains(&PASTE_MODE), "\x1b[?2004h"),
        ] {
            if touched {
                out.extend_from_slice(sequence.as_bytes());
            }
        }
        out.extend_from_slice(b"\x0f\x1b(B\x1b)B\x1b[0m");
    }

    /// Writes the sequences that undo [`Self::set_aside`]. A program that uses the whole screen has
    /// to redraw it.
    pub(super) fn take_up(&self, out: &mut Vec<u8>) {
        if !self.modes.contains(&PASTE_MODE) {
            out.extend_from_slice(b"\x1b[?2004l");
        }
        if self.has_keyboard() {
            pop(1, out);
        }
        let back: &[u8] = match self.on_alternate_screen() {
            true => b"\x1b8",
            false => b"\x1b[?1049l",
        };
        out.extend_from_slice(back);
        for mode in self.own_modes() {
            // Where the cursor is kept this is kept with it; setting it would move the cursor.
            if mode.number != ORIGIN_MODE {
                let last = if mode.at_rest == AtRest::On { 'l' } else { 'h' };
                out.extend_from_slice(format!("\x1b[?{}{last}", mode.number).as_bytes());
            }
        }
        if self.margins {
            out.extend_from_slice(b"\x1b7");
            for (parameters, last) in [(&self.rows, b'r'), (&self.columns, b's')] {
                if !parameters.is_empty() {
                    out.extend_from_slice(b"\x1b[");
                    out.extend_from_slice(parameters);
                    out.push(last);
                }
            }
            out.extend_from_slice(b"\x1b8");
        }
        if self.inserting {
            out.extend_from_slice(b"\x1b[4h");
        }
        if self.keypad {
            out.extend_from_slice(b"\x1b=");
        }
        if !self.modified_keys.is_empty() {
            out.extend_from_slice(b"\x1b[>");
            out.extend_from_slice(&self.modified_keys);
            out.push(b'm');
        }
    }

    /// Returns the modes that differ from a terminal at rest, except the screen's and bracketed
    /// paste, which is never at rest while something else is drawn.
    fn own_modes(&self) -> impl Iterator<Item = &'static super::control::Mode> {
        let is_own = |mode: &&super::control::Mode| {
            self.modes.contains(&mode.number)
                && mode.number != PASTE_MODE
                && !SCREEN_MODES.contains(&mode.number)
        };
        MODES.iter().filter(is_own)
    }

    fn has_keyboard(&self) -> bool {
        self.keyboard_flags || self.keyboard.main > 0 || self.keyboard.alternate > 0
    }

    pub(super) fn on_alternate_screen(&self) -> bool {
        SCREEN_MODES.iter().any(|mode| self.modes.contains(mode))
    }

    /// A restored cursor brings the looks of the time when it was saved.
    fn note_restored_cursor(&mut self) {
        self.writing = Writing {
            rendition: true,
            first_set: true,
            second_set: true,
            shifted: true,
        };
    }

    fn note_modes(&mut self, parameters: &[u8], set: bool) {
        for number in numbers(parameters).flatten() {
            let Some(mode) = MODES.iter().find(|mode| mode.number == number) else {
                continue;
            };
            let differs = match mode.at_rest {
                AtRest::Off => set,
                AtRest::On => !set,
                AtRest::Various => false,
            };
            if differs {
                self.modes.insert(number);
            } else {
                self.modes.remove(&number);
            }
            if !set && matches!(number, 1048 | 1049) {
                self.note_restored_cursor();
            }
        }
    }

    fn push_keyboard(&mut self, count: u16) {
        let stack = self.keyboard_stack();
        *stack = stack.saturating_add(count);
    }

    fn pop_keyboard(&mut self, count: u16) {
        let stack = self.keyboard_stack();
        *stack = stack.saturating_sub(count);
    }

    fn keyboard_stack(&mut self) -> &mut u16 {
        if self.on_alternate_screen() {
            &mut self.keyboard.alternate
        } else {
            &mut self.keyboard.main
        }
    }
}

fn pop(count: u16, out: &mut Vec<u8>) {
    if count > 0 {
        out.extend_from_slice(format!("\x1b[<{count}u").as_bytes());
    }
}
