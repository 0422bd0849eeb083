//! The message of a failed prover: the end of its standard error.

use std::io::Read;
use std::process::ChildStderr;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::printable::printable;

/// The most of standard error that is kept, bytes: the end of it.
const KEPT_BYTES_MAX: usize = 4 << 10;
/// The most of its lines that are shown.
const LINES_MAX: usize = 3;
/// The wait for the rest of it once the prover has ended: the solver can hold it open.
const PATIENCE: Duration = Duration::from_secs(1);

/// The standard error of a prover, read until its end so that the prover never blocks.
pub(super) struct Complaint {
    kept: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl Complaint {
    pub(super) fn of(said: Option<ChildStderr>) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let (tell, ended) = sync_channel(1);
        let to = Arc::clone(&kept);
        std::thread::spawn(move || {
            let mut block = [0; KEPT_BYTES_MAX];
            let Some(mut said) = said else { return };
            while let Ok(got @ 1..) = said.read(&mut block) {
                let mut kept = to.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(block.get(..got).unwrap_or_default());
                let further = kept.len().saturating_sub(KEPT_BYTES_MAX);
                kept.drain(..further);
            }
            let _ = tell.send(());
        });
        Self { kept, ended }
    }

    /// Returns its last lines, in one; `None` if it has written nothing.
    pub(super) fn told(&self) -> Option<String> {
        let _ = self.ended.recv_timeout(PATIENCE);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|one| !one.is_empty())
            .collect();
        let first = lines.len().saturating_sub(LINES_MAX);
        let last = lines.get(first..).filter(|last| !last.is_empty())?;
        Some(printable(last.join(" / ").as_bytes()))
    }
}
