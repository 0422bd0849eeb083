//! The input of text without echo.

use rustix::io::Errno;
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr,
};
use zeroize::Zeroizing;

const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;
const BACKSPACE: [u8; 2] = [0x08, 0x7f];
const KILL_LINE: u8 = 0x15;

/// The terminal without echo; as it was again when dropped.
struct Unseen {
    before: Termios,
}

impl Unseen {
    /// Switches off lines, echo and signals: an interrupt cannot leave a terminal behind that shows
    /// nothing.
    fn take() -> Option<Self> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut unseen = before.clone();
        let shown = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN;
        unseen.local_modes.remove(shown);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &unseen).ok()?;
        Some(Self { before })
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Reads one line; `None` if it was cancelled or is too long.
pub(super) fn unseen(bytes_max: usize) -> Option<Zeroizing<Vec<u8>>> {
    let _terminal = Unseen::take()?;
    let mut line = Zeroizing::new(Vec::with_capacity(bytes_max));
    loop {
        let mut byte = [0];
        // Past the standard library's buffer, which nobody would wipe.
        match rustix::io::read(std::io::stdin(), &mut byte) {
            Ok(1..) => {}
            Err(Errno::INTR) => continue,
            Ok(0) | Err(_) => return None,
        }
        match byte {
            [b'\n' | b'\r'] => return Some(line),
            [INTERRUPT] => return None,
            [END] => return (!line.is_empty()).then_some(line),
            [KILL_LINE] => line.clear(),
            [erase] if BACKSPACE.contains(&erase) => drop(line.pop()),
            [_] if line.len() >= bytes_max => return None,
            [byte] => line.push(byte),
        }
    }
}
