//! The list of control sequences and of short escapes.

use atoll_model::TerminalRights;

use super::removal::{Judgement, Removal};

/// The largest parameter that is written; larger ones become this. Programs use
/// such for "as far as it goes", and terminals have done a billion of something.
const PARAMETER_DIGITS_MAX: usize = 4;
const PARAMETER_MAX: &[u8] = b"9999";

/// The depth of the keyboard's stack that one program may fill. Terminals that
/// run out of room forget what the person's shell has put there.
const KEYBOARD_PUSHED_MAX: u16 = 8;

/// One complete control sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'a> {
    /// `<`, `=`, `>` or `?`.
    pub(super) prefix: Option<u8>,
    /// Digits, `;` and `:`.
    pub(super) parameters: &'a [u8],
    /// Bytes before the last one.
    pub(super) intermediates: &'a [u8],
    /// The final byte, which identifies the sequence.
    pub(super) last: u8,
}

/// A mode that may be set and reset.
pub(super) struct Mode {
    /// Its number in `CSI ? N h`.
    pub(super) number: u16,
    /// The setting of the mode in a terminal at rest.
    pub(super) at_rest: AtRest,
    /// Set when the mode makes the terminal send reports on its own.
    reports: bool,
}

/// The state of a mode when no program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AtRest {
    /// Reset.
    Off,
    /// Set.
    On,
    /// Depends on the person's configuration; not restored.
    Various,
}

const fn mode(number: u16, at_rest: AtRest) -> Mode {
    Mode {
        number,
        at_rest,
        reports: false,
    }
}

/// Left out on purpose: 2 (VT52, which reads all that follows otherwise), 3 and 40
/// (width of the window), 4 (slow scrolling), 8 (key repeat), 1001 (the terminal
/// waits for an answer), 1034 to 1043 (meta keys, bells).
pub(super) const MODES: [Mode; 27] = [
    mode(1, AtRest::Off),
    mode(5, AtRest::Off),
    mode(6, AtRest::Off),
    mode(7, AtRest::On),
    mode(9, AtRest::Off),
    mode(12, AtRest::Various),
    mode(25, AtRest::On),
    mode(45, AtRest::Off),
    mode(47, AtRest::Off),
    mode(66, AtRest::Off),
    mode(69, AtRest::Off),
    mode(1000, AtRest::Off),
    mode(1002, AtRest::Off),
    mode(1003, AtRest::Off),
    mode(1004, AtRest::Off),
    mode(1005, AtRest::Off),
    mode(1006, AtRest::Off),
    mode(1007, AtRest::Various),
    mode(1015, AtRest::Off),
    mode(1016, AtRest::Off),
    mode(1047, AtRest::Off),
    mode(1048, AtRest::Various),
    mode(1049, AtRest::Off),
    mode(2004, AtRest::Off),
    mode(2026, AtRest::Off),
    Mode {
        number: 2031,
        at_rest: AtRest::Off,
        reports: true,
    },
    Mode {
        number: 2048,
        at_rest: AtRest::Off,
        reports: true,
    },
];

/// Modes of `CSI N h`: inserting, and the cursor's form in screen and tmux. Not 2
/// (keyboard locked), 12 (echo), 20 (what Return sends).
const ANSI_MODES: [u16; 2] = [4, 34];

/// Judges a control sequence. `pushed` is how often the program has pushed onto the keyboard's
/// stack without popping.
pub(super) fn judge(shape: &Shape<'_>, rights: TerminalRights, pushed: u16) -> Judgement {
    let query = Judgement::granted(rights.queries, Removal::Query);
    let unknown = Judgement::Remove(Removal::Unknown);
    let parameters = shape.parameters;
    let only = |numbers: &[u16]| only_number(parameters).is_some_and(|it| numbers.contains(&it));
    match (shape.prefix, shape.intermediates, shape.last) {
        // Cursor, erasing, inserting, deleting, scrolling, tabs, colours, margins.
        (None, [], b'@'..=b'M' | b'P' | b'S' | b'X' | b'Z' | b'`' | b'a' | b'b') => Judgement::Pass,
        (None, [], b'd' | b'e' | b'f' | b'g' | b'm' | b'r' | b's' | b'u') => Judgement::Pass,
        // With more than one parameter the terminal follows the mouse, and waits.
        (None, [], b'T') if only_number(parameters).is_some() => Judgement::Pass,
        (Some(b'?'), [], b'J' | b'K') => Judgement::Pass,
        (Some(b'?'), [], b'W') if only(&[5]) => Judgement::Pass,
        (None, [b' '], b'q') if only(&[0, 1, 2, 3, 4, 5, 6]) => Judgement::Pass,
        (None, [b'!'], b'p') if parameters.is_empty() => Judgement::Pass,
        (None, [], b'h' | b'l') => modes(parameters, |number| ANSI_MODES.contains(&number)),
        (Some(b'?'), [], b'h' | b'l') => modes(parameters, |number| {
            MODES
                .iter()
                .any(|mode| mode.number == number && (rights.queries || !mode.reports))
        }),
        // Answers made of numbers alone.
        (None | Some(b'>' | b'='), [], b'c') if only(&[0]) => query,
        (None, [], b'n') if only(&[5, 6]) => query,
        (Some(b'?'), [], b'n') if only(&[6, 996]) => query,
        (None | Some(b'?'), [b'$'], b'p') if only_number(parameters).is_some() => query,
        (Some(b'>'), [], b'q') if only(&[0]) => query,
        (Some(b'?'), [], b'm') if only(&[4]) => query,
        (Some(b'>'), [], b'm') if modifies_keys(parameters) => {
            Judgement::granted(rights.queries, Removal::Keyboard)
        }
        (Some(prefix), [], b'u') => keyboard(prefix, parameters, rights, pushed),
        (None, [], b't') => window(parameters, rights),
        // Named for the summary, refused in any case.
        (Some(b'>'), [], b't' | b'T') => Judgement::Remove(Removal::Title),
        (Some(b'?'), [], b's' | b'r') | (_, _, b'h' | b'l') => Judgement::Remove(Removal::Mode),
        (None | Some(b'?'), [], b'i') => Judgement::Remove(Removal::Printer),
        (_, _, b'c' | b'n' | b'x' | b'y') | (_, [b'$'], b'p') => Judgement::Remove(Removal::Query),
        _ => unknown,
    }
}

/// Judges `ESC`, intermediates, a final byte. `None` is the terminator of a string that ended
/// before: nothing to write, nothing to count.
pub(super) fn judge_escape(intermediates: &[u8], last: u8) -> Option<Judgement> {
    match (intermediates, last) {
        ([], b'\\') => None,
        // Cursor saved and restored, reset, line feeds, a tab, the keypad.
        ([], b'7' | b'8' | b'c' | b'D' | b'E' | b'H' | b'M' | b'=' | b'>') => Some(Judgement::Pass),
        // Character sets: line drawing, British, American, the console's own. Not
        // `ESC % @`, which leaves UTF-8, nor `ESC SP G`, for eight-bit answers.
        ([b'(' | b')'], b'0' | b'A' | b'B' | b'U') => Some(Judgement::Pass),
        ([], b'Z') => Some(Judgement::Remove(Removal::Query)),
        _ => Some(Judgement::Remove(Removal::Unknown)),
    }
}

/// Replaces each number of more than four digits by 9999.
pub(super) fn bound_parameters(parameters: &mut Vec<u8>) {
    let longest = parameters
        .split(|byte| !byte.is_ascii_digit())
        .map(<[u8]>::len)
        .max();
    if longest <= Some(PARAMETER_DIGITS_MAX) {
        return;
    }
    let mut bounded = Vec::with_capacity(parameters.len());
    for part in parameters.chunk_by(|one, next| one.is_ascii_digit() && next.is_ascii_digit()) {
        let too_long = part.len() > PARAMETER_DIGITS_MAX;
        bounded.extend_from_slice(if too_long { PARAMETER_MAX } else { part });
    }
    *parameters = bounded;
}

/// Returns the numbers of a parameter list, a missing one as 0; `None` for one that is no plain
/// number.
pub(super) fn numbers(parameters: &[u8]) -> impl Iterator<Item = Option<u16>> {
    parameters.split(|&byte| byte == b';').map(number)
}

/// Reads a number of up to four digits; an empty one is 0.
pub(super) fn number(digits: &[u8]) -> Option<u16> {
    if digits.len() > PARAMETER_DIGITS_MAX {
        return None;
    }
    digits.iter().try_fold(0, |value: u16, &byte| {
        byte.is_ascii_digit()
            .then(|| value * 10 + u16::from(byte - b'0'))
    })
}

/// Returns the value of a list that has one number.
fn only_number(parameters: &[u8]) -> Option<u16> {
    number(parameters)
}

/// Keeps the modes that are on the list; a sequence can name several.
fn modes(parameters: &[u8], listed: impl Fn(u16) -> bool) -> Judgement {
    let parts = || parameters.split(|&byte| byte == b';');
    let keeps = |part: &&[u8]| number(part).is_some_and(&listed);
    if parts().all(|part| keeps(&part)) {
        return Judgement::Pass;
    }
    let body = parts().filter(keeps).collect::<Vec<_>>().join(&b';');
    if body.is_empty() {
        return Judgement::Remove(Removal::Mode);
    }
    Judgement::Rewrite {
        body,
        removed: Some(Removal::Mode),
    }
}

/// Returns whether this sets, or resets, xterm's modifyOtherKeys and nothing else.
fn modifies_keys(parameters: &[u8]) -> bool {
    let mut numbers = numbers(parameters);
    let resource = numbers.next().flatten();
    let value = numbers.next().unwrap_or(Some(0));
    resource == Some(4) && value.is_some() && numbers.next().is_none()
}

/// Judges the kitty keyboard protocol. Entries that the person's shell has pushed stay: no more is
/// popped than the program itself has pushed.
fn keyboard(prefix: u8, parameters: &[u8], rights: TerminalRights, pushed: u16) -> Judgement {
    let keyboard = Judgement::Remove(Removal::Keyboard);
    if !rights.queries || numbers(parameters).any(|number| number.is_none()) {
        return keyboard;
    }
    match prefix {
        b'?' | b'=' => Judgement::Pass,
        b'>' if pushed < KEYBOARD_PUSHED_MAX => Judgement::Pass,
        b'<' => match only_number(parameters).map(|count| count.max(1)) {
            Some(count) if count <= pushed => Judgement::Pass,
            Some(_) if pushed > 0 => Judgement::Rewrite {
                body: pushed.to_string().into_bytes(),
                removed: None,
            },
            _ => keyboard,
        },
        _ => keyboard,
    }
}

/// Sizes can be asked for; titles can be put aside and back where they can be
/// set. Reading the title back would type in what the program has put there.
fn window(parameters: &[u8], rights: TerminalRights) -> Judgement {
    let mut numbers = numbers(parameters);
    let operation = numbers.next().flatten();
    let detail = numbers.next().unwrap_or(Some(0));
    // Terminal descriptions name the top of the titles' stack: `22;0;0`.
    let place = numbers.next().unwrap_or(Some(0));
    let plain = place == Some(0) && numbers.next().is_none();
    match (operation, detail, plain) {
        (Some(14), Some(0 | 2), true) | (Some(16 | 18), Some(0), true) => {
            Judgement::granted(rights.queries, Removal::Query)
        }
        (Some(22 | 23), Some(0..=2), true) => Judgement::granted(rights.title, Removal::Title),
        (Some(20..=23), _, _) => Judgement::Remove(Removal::Title),
        _ => Judgement::Remove(Removal::Window),
    }
}
