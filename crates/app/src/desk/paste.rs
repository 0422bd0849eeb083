//! What is pasted, by the marks that a terminal puts around it (xterm, "Bracketed Paste Mode").

const BEGINS: &[u8] = b"\x1b[200~";
const ENDS: &[u8] = b"\x1b[201~";

/// Where what is typed is, in something pasted or not. The marks may come in parts.
#[derive(Debug, Default)]
pub(super) struct Paste {
    is_open: bool,
    /// The last bytes, as many as a mark has.
    last: [u8; BEGINS.len()],
}

impl Paste {
    /// Something was begun that has not ended.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether any of what was typed is of something pasted, its marks too.
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
