use std::time::{Duration, Instant};

/// The longest wait on a busy machine for anything that should be soon.
pub const BOUND: Duration = Duration::from_secs(300);

/// The interval at which a condition is checked.
const POLL: Duration = Duration::from_millis(5);

/// Waits until `condition` gives a value.
///
/// # Panics
/// When it has not after `bound`, or [`BOUND`] if that is longer; `what` says what was waited for.
pub fn wait_until<T>(what: &str, bound: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let bound = bound.max(BOUND);
    let end = Instant::now() + bound;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "waited {bound:?} for {what}");
        std::thread::sleep(POLL);
    }
}
