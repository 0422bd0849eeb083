//! The exit statuses of `atoll`.

use atoll_engine::decision::Extent;
use atoll_engine::failure::Kind;

/// The status of every error of Atoll's own, wrong usage included.
pub const STATUS_OWN_ERROR: u8 = 125;
/// The status of a denial.
pub const STATUS_DENIED: u8 = 126;
/// The status of a proof that does not hold.
const STATUS_UNPROVEN: u8 = 1;

/// Returns the exit status of an error of this kind.
pub fn of(kind: Kind) -> u8 {
    match kind {
        Kind::Failed => STATUS_OWN_ERROR,
        Kind::Denied => STATUS_DENIED,
        Kind::Unproven => STATUS_UNPROVEN,
    }
}

/// Returns the exit status of an apply: one that has left something out is no success.
pub fn status_of(extent: Extent) -> u8 {
    match extent.is_left_out {
        true => STATUS_OWN_ERROR,
        false => 0,
    }
}
