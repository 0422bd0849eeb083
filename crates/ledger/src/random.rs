//! Random bytes, from the kernel: `getrandom(2)`. The cryptographic library has random bytes of
//! its own, but gathers noise for 20 ms before its first, which each run would wait for.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills all of `bytes`.
///
/// # Errors
///
/// If the kernel has none, `ENOSYS` above all. Before its pool is ready, at boot, it waits.
pub fn fill(bytes: &mut [u8]) -> Result<(), Errno> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = match getrandom(&mut *rest, GetRandomFlags::empty()) {
            Err(Errno::INTR) => continue,
            count => count?,
        };
        rest = rest.get_mut(count..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_filled_and_differs() {
        // Longer than what the kernel gives in one piece to who is interrupted: 256 bytes.
        let (mut one, mut other) = ([0; 4096], [0; 4096]);
        fill(&mut one).unwrap();
        fill(&mut other).unwrap();
        assert_ne!(one, other);
        assert_ne!(one[4000..], [0; 96]);
        fill(&mut []).unwrap();
    }
}
