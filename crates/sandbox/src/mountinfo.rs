//! The kernel's list of mounts (proc_pid_mountinfo(5)), read as the bytes that it
//! is: a name on a file system need not be text.

#[cfg(test)]
pub(crate) mod rendering;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// One mount of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    /// Where it is mounted.
    pub path: PathBuf,
    /// The kind of file system. What is not text in it is shown as such, and is
    /// no part of a kind that Atoll knows.
    pub kind: String,
    /// The options of the file system itself, as the kernel writes them: a comma
    /// within one has an escape, and would part it in two without.
    pub options: OsString,
}

impl MountPoint {
    /// Whether this is one of the options of the file system.
    #[must_use]
    pub fn has_option(&self, option: &str) -> bool {
        let mut options = self.options.as_bytes().split(|byte| *byte == b',');
        options.any(|one| one == option.as_bytes())
    }
}

/// Reads the list; what has not the form of a line is passed over.
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

/// Undoes the escapes: what would part a field or a line, and the backslash
/// itself, are a backslash and three octal digits.
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
