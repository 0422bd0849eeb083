//! Detection of pasted input, by the marks that a terminal puts around it (xterm, "Bracketed Paste
//! Mode").

const BEGINS: &[u8] = b"\x1b[200~";
const ENDS: &[u8] = b"\x1b[201~";

/// The state of the input, within a paste or not. The marks may arrive in parts.
#[derive(Debug, Default)]
pub(super) struct Paste {
    is_open: bool,
    /// The last bytes, as many as a mark has.
    last: [u8; BEGINS.len()],
}

impl Paste {
    /// Returns whether a paste has begun and not ended.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns whether any of the input belongs to a paste, including its marks.
    pub(super) fn is_in(&mut self, typed: &[u8]) -> bool {
        let mut is_in = self.is_open;
        for byte in typed {
            self.last.rotate_left(1);
            if let Some(last) = self.last.last_mut() {
                *last = *byte;
            }
            if self.last == BEGINS {
                self.is_open = true;
            } else if self.last == ENDS {
                self.is_open = false;
            }
            is_in |= self.is_open;
        }
        is_in
    }
}
