//! Names of layers.

use std::path::Path;

/// Returns a name for a layer, made from its path in the sandbox: safe as a file name, and
/// different for different paths.
pub(crate) fn slug(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let bytes = path.as_os_str().as_bytes();
    let words: String = bytes
        .iter()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(*byte)
            } else {
                '-'
            }
        })
        .collect();
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let words = words.trim_matches('-');
    let tail = words
        .get(words.len().saturating_sub(40)..)
        .unwrap_or(words)
        .trim_matches('-');
    format!("{tail}-{:08x}", hash as u32)
}
