//! Checksums in tokens, which some programs verify before they send one.

/// The base 62 digits, in order.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The number of digits.
pub(super) const BYTES: usize = 6;

/// Returns the CRC-32 of these bytes as six base 62 digits, as at the end of GitHub's and npm's
/// tokens.
pub(super) fn of(bytes: &[u8]) -> [u8; BYTES] {
    let mut rest = crc32fast::hash(bytes) as usize;
    let mut digits = [b'0'; BYTES];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS.get(rest % 62).copied().unwrap_or(b'0');
        rest /= 62;
    }
    digits
}
