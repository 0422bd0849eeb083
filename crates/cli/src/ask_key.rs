//! The key that brings a question to the terminal.

use std::fmt;
use std::str::FromStr;

/// A key pressed together with Ctrl. It reaches the program except while a question is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskKey {
    /// The key's character: a letter, or one of `\ ] ^ _`.
    name: u8,
}

/// Keys that mean something to a terminal, or are typed otherwise too: Ctrl-C, Ctrl-H, Tab, Enter
/// in two ways, Ctrl-Z.
const TAKEN: &[u8] = b"chijmz";

impl Default for AskKey {
    fn default() -> Self {
        Self { name: b']' }
    }
}

/// The error for a text that names no such key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is `ctrl-` and a letter (not c, h, i, j, m, z) or one of \\ ] ^ _")]
pub struct NoKey;

impl FromStr for AskKey {
    type Err = NoKey;

    fn from_str(text: &str) -> Result<Self, NoKey> {
        let text = text.to_ascii_lowercase();
        match text.strip_prefix("ctrl-").map(str::as_bytes) {
            Some(&[name @ (b'a'..=b'z' | b'\\' | b']' | b'^' | b'_')])
                if !TAKEN.contains(&name) =>
            {
                Ok(Self { name })
            }
            _ => Err(NoKey),
        }
    }
}

impl fmt::Display for AskKey {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Ctrl-{}", char::from(self.name).to_ascii_uppercase())
    }
}

impl AskKey {
    /// Returns the key's position in typed bytes, in every form that terminals send, including
    /// those for a program that has asked for other forms (xterm's `modifyOtherKeys`, and kitty's
    /// keyboard protocol).
    pub fn found_in(self, typed: &[u8]) -> Option<usize> {
        let name = self.name;
        let forms = [
            vec![name & 0x1f],
            format!("\x1b[{name};5u").into_bytes(),
            format!("\x1b[27;5;{name}~").into_bytes(),
        ];
        let places = forms.iter().filter_map(|form| {
            let mut windows = typed.windows(form.len());
            windows.position(|part| part == form.as_slice())
        });
        places.min()
    }
}
