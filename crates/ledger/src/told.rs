//! The notices that a person was given once, by digest: losing them repeats a notice.

use crate::private::PrivateDirectory;
use crate::state::TOLD;
use crate::{PrivateFault, StateDir, TreeHash};

const FILE: &str = "notices";
/// The most digests that are kept; the oldest goes first.
const KEPT_MAX: usize = 256;
const KEPT_BYTES_MAX: u64 = 32 << 10;

/// Returns whether a notice is given for the first time, and keeps that it was.
///
/// # Errors
/// [`PrivateFault`].
pub fn is_first_telling(state: &StateDir, notice: &str) -> Result<bool, PrivateFault> {
    let digest = TreeHash::of_leaf(notice.as_bytes()).to_string();
    let Some(directory) = PrivateDirectory::of_state(state, TOLD, true)? else {
        return Ok(true);
    };
    let read = || directory.read(FILE, KEPT_BYTES_MAX);
    let has = |kept: &Option<Vec<u8>>| lines(kept).any(|line| line == digest);
    if has(&read()?) {
        return Ok(false);
    }
    let _lock = directory.lock()?;
    let kept = read()?;
    let known: Vec<&str> = lines(&kept).collect();
    let newest = known.iter().rev().take(KEPT_MAX - 1).rev();
    let text: String = newest
        .chain([&digest.as_str()])
        .map(|line| format!("{line}\n"))
        .collect();
    directory.replace(FILE, text.as_bytes())?;
    Ok(true)
}

/// Forgets what was told, so that every notice is given again.
///
/// # Errors
/// [`PrivateFault`].
pub fn forget_tellings(state: &StateDir) -> Result<(), PrivateFault> {
    match PrivateDirectory::of_state(state, TOLD, false)? {
        Some(directory) => directory.remove(FILE).map(drop),
        None => Ok(()),
    }
}

fn lines(kept: &Option<Vec<u8>>) -> impl Iterator<Item = &str> {
    let text = kept.as_deref().map(std::str::from_utf8);
    text.and_then(Result::ok).unwrap_or_default().lines()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notice_is_first_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(&directory.path().join("state")).unwrap();
        let is_first = |notice: &str| is_first_telling(&state, notice).unwrap();
        assert!(is_first("a") && !is_first("a"));
        // The oldest makes room.
        let all: Vec<String> = (0..KEPT_MAX).map(|number| number.to_string()).collect();
        assert!(all.iter().all(|notice| is_first(notice)));
        assert!(is_first("a") && !is_first("255"));
        forget_tellings(&state).unwrap();
        assert!(is_first("255"));
    }
}
