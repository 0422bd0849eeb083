//! The kernel's list of mounts (proc_pid_mountinfo(5)), read as bytes: a file name need not be
//! text.

#[cfg(test)]
pub(crate) mod rendering;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// One mount of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    /// The mount point.
    pub path: PathBuf,
    /// The type of the file system, converted lossily; no type that Atoll knows has other bytes
    /// than text.
    pub kind: String,
    /// The options of the file system itself, as the kernel writes them: an escaped comma
    /// within an option must stay escaped, since it would split the option otherwise.
    pub options: OsString,
}

impl MountPoint {
    /// Returns whether this is one of the options of the file system.
    #[must_use]
    pub fn has_option(&self, option: &str) -> bool {
        let mut options = self.options.as_bytes().split(|byte| *byte == b',');
        options.any(|one| one == option.as_bytes())
    }
}

/// Reads the list; malformed lines are skipped.
#[must_use]
pub fn parse_mounts(list: &[u8]) -> Vec<MountPoint> {
    let lines = list.split(|byte| *byte == b'\n');
    lines.filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<MountPoint> {
    let mut fields = line.split(|byte| *byte == b' ');
    // Before it: the mount's number, its parent's, the device, what of the file
    // system is seen. After it: the mount's own options.
    let path = fields.nth(4)?;
    let _ = fields.next()?;
    // Any number of fields that do not matter here, up to a mark.
    fields.find(|field| *field == b"-")?;
    let kind = fields.next()?;
    // Between both: what is mounted.
    let options = fields.nth(1).unwrap_or_default();
    Some(MountPoint {
        path: PathBuf::from(OsString::from_vec(unescape(path))),
        kind: String::from_utf8_lossy(&unescape(kind)).into_owned(),
        options: OsString::from_vec(options.to_vec()),
    })
}

/// Undoes the kernel's escapes, a backslash and three octal digits: for separators of fields
/// and lines, and the backslash itself.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let escaped = match tail {
            [
                high @ b'0'..=b'3',
                middle @ b'0'..=b'7',
                low @ b'0'..=b'7',
                after @ ..,
            ] if *first == b'\\' => {
                let digit = |byte: &u8| byte - b'0';
                Some((digit(high) << 6 | digit(middle) << 3 | digit(low), after))
            }
            _ => None,
        };
        let (byte, after) = escaped.unwrap_or((*first, tail));
        bytes.push(byte);
        rest = after;
    }
    bytes
}
