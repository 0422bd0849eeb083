//! Checksums within tokens, which some programs check before they send one.

/// The digits in which they are written, in order.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// How many digits there are.
pub(super) const BYTES: usize = 6;

/// The CRC-32 of these bytes by six digits to the base 62, as at the end of tokens of
/// GitHub and npm.
pub(super) fn of(bytes: &[u8]) -> [u8; BYTES] {
    let mut rest = crc32fast::hash(bytes) as usize;
    let mut digits = [b'0'; BYTES];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS.get(rest % 62).copied().unwrap_or(b'0');
        rest /= 62;
    }
    digits
}
