//! The content of a file as git's binary patch: both sides whole, deflated, in lines of base 85.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::{CYAN, Page};
use crate::git_objects::{Digest, Format};

/// The bytes of a line.
const LINE_BYTES: usize = 52;
/// The digits of base 85, in git's order.
const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Returns the id by which git names a file's content, zeros where there is no file. `None` for
/// content crafted to collide, which git does not take either.
pub(super) fn object_id(format: Format, content: Option<&[u8]>) -> Option<String> {
    let mut digest = Digest::new(format);
    if let Some(content) = content {
        digest.update(format!("blob {}\0", content.len()).as_bytes());
        digest.update(content);
    }
    let id = digest.finish()?;
    let of_file = |byte: &u8| match content {
        Some(_) => format!("{byte:02x}"),
        None => "00".to_owned(),
    };
    Some(id.iter().map(of_file).collect())
}

/// Writes both sides, so that the patch can be reversed too.
pub(super) fn write(old: &[u8], new: &[u8], page: &mut Page<'_>) -> io::Result<()> {
    page.line(CYAN, "GIT binary patch")?;
    write_literal(new, page)?;
    write_literal(old, page)
}

fn write_literal(content: &[u8], page: &mut Page<'_>) -> io::Result<()> {
    page.line(CYAN, &format!("literal {}", content.len()))?;
    let mut deflated = ZlibEncoder::new(Vec::new(), Compression::default());
    deflated.write_all(content)?;
    for line in deflated.finish()?.chunks(LINE_BYTES) {
        page.line("0", &encoded(line))?;
    }
    page.line("0", "")
}

/// Returns a line: its length as a letter, then five digits for each four bytes.
fn encoded(bytes: &[u8]) -> String {
    let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    let letter = match length {
        1..=26 => b'A' + length - 1,
        _ => b'a'.saturating_add(length.saturating_sub(27)),
    };
    let mut line = String::from(char::from(letter));
    for four in bytes.chunks(4) {
        let mut whole = [0; 4];
        for (place, byte) in whole.iter_mut().zip(four) {
            *place = *byte;
        }
        let number = u32::from_be_bytes(whole);
        for power in [85_u32.pow(4), 85_u32.pow(3), 85_u32.pow(2), 85, 1] {
            let digit = usize::try_from(number / power % 85).unwrap_or_default();
            line.push(char::from(DIGITS.get(digit).copied().unwrap_or_default()));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_git_writes_them() {
        // Of `git diff --binary`, an empty file deflated.
        assert_eq!(encoded(&[0x78, 0x01, 3, 0, 0, 0, 0, 1]), "HcmV?d00001");
        let empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
        let id = |content| object_id(Format::Sha1, content);
        assert_eq!(id(Some(b"")).as_deref(), Some(empty));
        assert_eq!(id(None), Some("0".repeat(40)));
    }
}
