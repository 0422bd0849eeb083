//! Execs that are followed to their end, with what they write up to a limit.

use super::ask::{Line, Next};
use crate::line::Stream;
use crate::protocol::{End, Refusal, StartedFacts};

/// An exec that has ended.
pub(crate) struct Ran {
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
    pub(crate) end: End,
}

/// One output of an exec.
#[derive(Default)]
pub(crate) struct Output {
    kept: Vec<u8>,
    /// True if there was more.
    pub(crate) is_cut: bool,
}

impl Output {
    fn take(&mut self, content: &[u8], bytes_max: usize) {
        let room = bytes_max.saturating_sub(self.kept.len()).min(content.len());
        let fits = content.get(..room).unwrap_or_default();
        self.kept.extend_from_slice(fits);
        self.is_cut |= room < content.len();
    }

    /// Returns it as text, in which what is no UTF-8 is replaced.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

/// Waits for the end of an exec, of whose outputs so much is kept each.
pub(crate) async fn collect(
    mut line: Line<StartedFacts, End>,
    bytes_max: usize,
) -> Result<Ran, Refusal> {
    let (mut stdout, mut stderr) = (Output::default(), Output::default());
    loop {
        match line.next().await? {
            Next::Content(Stream::Error, content) => stderr.take(&content, bytes_max),
            Next::Content(_, content) => stdout.take(&content, bytes_max),
            Next::Message(end) => {
                return Ok(Ran {
                    stdout,
                    stderr,
                    end,
                });
            }
        }
    }
}
