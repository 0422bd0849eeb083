//! A progress line on standard error.

use std::io::{self, Write};
use std::time::Duration;

use atoll_engine::printable::printable;

/// Work that takes less shows nothing.
const SHOWN_AFTER_MS: u64 = 400;
/// Between two changes of the line.
const CHANGED_AFTER_MS: u64 = 100;

/// A line that is written over; nothing at all where there is no terminal.
#[derive(Debug)]
pub struct Progress<W: Write> {
    out: W,
    columns: Option<usize>,
    shown_at: Option<Duration>,
}

impl<W: Write> Progress<W> {
    /// Creates a line of this many columns; `None` if the output is no terminal.
    pub fn new(out: W, columns: Option<usize>) -> Self {
        Self {
            out,
            columns,
            shown_at: None,
        }
    }

    /// Shows the text if an update is due: `elapsed` is the time since the work began.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn update(&mut self, elapsed: Duration, text: &str) -> io::Result<()> {
        let Some(columns) = self.columns else {
            return Ok(());
        };
        let due = match self.shown_at {
            None => Duration::from_millis(SHOWN_AFTER_MS),
            Some(before) => before.saturating_add(Duration::from_millis(CHANGED_AFTER_MS)),
        };
        if elapsed < due {
            return Ok(());
        }
        self.shown_at = Some(elapsed);
        // One column stays free, so that the terminal does not begin a new line.
        let text = atoll_engine::printable::shortened(
            &printable(text.as_bytes()),
            columns.saturating_sub(1),
        );
        write!(self.out, "\r\x1b[K{text}")?;
        self.out.flush()
    }

    /// Removes the line.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        if self.shown_at.is_some() {
            write!(self.out, "\r\x1b[K")?;
            self.out.flush()?;
        }
        Ok(())
    }
}
