//! Content with all that is packed in it, for scanners that look at bytes alone.

use crate::unpack::{Bound, Visitor, visit};
use crate::{FINDINGS_MAX, Finding, Unscanned};

/// A scanner of bytes.
pub(crate) type LookAt<'a> = dyn FnMut(&[u8]) -> Result<Vec<Finding>, Unscanned> + 'a;

/// Has a scanner look at a content and at the entries of its archives. A finding's place begins with
/// the entry. Whatever is not looked at is an error.
pub(crate) fn scan(content: &[u8], look: &mut LookAt<'_>) -> Result<Vec<Finding>, Unscanned> {
    let mut entries = Entries {
        look,
        found: Vec::new(),
        of_archives: Vec::new(),
    };
    visit(content, &mut entries)?;
    let Entries {
        mut found,
        of_archives,
        ..
    } = entries;
    // Bytes that are stored as they are have been seen twice; the entry says more.
    for one in of_archives {
        if found.iter().all(|known| known.rule != one.rule) {
            found.push(one);
        }
    }
    Ok(found)
}

struct Entries<'a, 'l> {
    look: &'a mut LookAt<'l>,
    found: Vec<Finding>,
    /// Findings in the bytes of archives themselves.
    of_archives: Vec<Finding>,
}

impl Visitor for Entries<'_, '_> {
    fn content(&mut self, place: &str, content: &[u8], is_archive: bool) -> Result<(), Unscanned> {
        if self.found.len() >= FINDINGS_MAX {
            return Ok(());
        }
        let found = (self.look)(content)?.into_iter();
        let found = found.map(|one| one.within(place));
        match is_archive {
            true => self.of_archives.extend(found),
            false => self.found.extend(found),
        }
        Ok(())
    }

    fn bound(&mut self, bound: Bound, place: &str) -> Result<(), Unscanned> {
        let why = match bound {
            Bound::Depth => "archives are nested too deep",
            Bound::Entries => "it has too many entries",
            Bound::Growth => "it grows too large",
            Bound::Encrypted => "it is encrypted",
            Bound::Overlap => return Ok(()),
        };
        let why = match place {
            "" => why.to_owned(),
            place => format!("{}: {why}", place.escape_debug()),
        };
        Err(Unscanned::Unreadable(why))
    }
}

/// Has a scanner look at bytes as they are and, where their mark says so, as UTF-16.
pub(crate) fn in_text(content: &[u8], look: &mut LookAt<'_>) -> Result<Vec<Finding>, Unscanned> {
    let mut found = look(content)?;
    if let Some(text) = of_utf16(content) {
        found.extend(look(text.as_bytes())?);
    }
    Ok(found)
}

/// Returns a text in UTF-16, which its mark says it is.
fn of_utf16(content: &[u8]) -> Option<String> {
    let unit: fn([u8; 2]) -> u16 = match content {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return None,
    };
    let units = content.get(2..)?.chunks(2);
    let units = units.filter_map(|pair| pair.first_chunk().map(|pair| unit(*pair)));
    let text = char::decode_utf16(units);
    Some(
        text.map(|one| one.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect(),
    )
}
