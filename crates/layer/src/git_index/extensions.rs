//! The extensions after the entries of an index (gitformat-index(5), "Extensions").

use super::{
    Entry, FILE, LINK, PROGRAM, SUBMODULE, is_name, is_within, number, offset, take, trees,
};

/// The extension that gives the end of the entries, which git looks for at the end of the index
/// before it reads anything else. A number precedes its digest.
const END: &[u8] = b"EOIE";
const HEAD_BYTES: usize = 8;
const NUMBER_BYTES: usize = 4;
/// The `stat` data of two files of patterns, and flags, bytes.
const UNTRACKED_BYTES: usize = 2 * 36 + 4;
/// The deepest nesting of directories that is read.
const DEPTH_MAX: usize = 512;

/// Returns the objects that undoing a merge resolution needs. `None` where an extension is unknown
/// or is there twice, where it states something false, and where it refers to something elsewhere,
/// as that of a split index does (`link`). The extensions begin at `begun`, behind all entries.
pub(super) fn read<'a>(
    whole: &'a [u8],
    begun: usize,
    entries: &[Entry],
    digest_bytes: usize,
) -> Option<Vec<&'a [u8]>> {
    let mut rest = whole.get(begun..)?;
    let mut undone = Vec::new();
    let mut seen: Vec<&[u8]> = Vec::new();
    while !rest.is_empty() {
        let kind = take(&mut rest, 4)?;
        let bytes = usize::try_from(number(&mut rest)?).ok()?;
        let mut content = take(&mut rest, bytes)?;
        let is_sound = match kind {
            b"TREE" => trees::are_of(content, entries, digest_bytes)?,
            b"REUC" => {
                undone = read_undone(content, digest_bytes)?;
                true
            }
            b"UNTR" => is_untracked(content, digest_bytes)?,
            // Which files it knows to be as they were.
            b"FSMN" => true,
            b"sdir" => content.is_empty(),
            b"IEOT" => are_blocks(content, entries)?,
            END => {
                let is_end = usize::try_from(number(&mut content)?).ok()? == begun;
                is_end && content.len() == digest_bytes && rest.is_empty()
            }
            _ => false,
        };
        if !is_sound || seen.contains(&kind) {
            return None;
        }
        seen.push(kind);
    }
    let end_bytes = HEAD_BYTES + NUMBER_BYTES + digest_bytes;
    let at_end = whole.len().checked_sub(end_bytes);
    let has_end = at_end.is_some_and(|at| whole.get(at..).is_some_and(|end| end.starts_with(END)));
    let has_sparse = entries.iter().any(|one| one.mode == super::SPARSE);
    let is_clear =
        (!has_end || seen.contains(&END)) && (!has_sparse || seen.contains(&&b"sdir"[..]));
    is_clear.then_some(undone)
}

/// Returns whether the offsets from which threads read are where entries begin, one block after
/// another.
fn are_blocks(mut content: &[u8], entries: &[Entry]) -> Option<bool> {
    if number(&mut content)? != 1 {
        return Some(false);
    }
    let mut read = 0_usize;
    while !content.is_empty() {
        let at = usize::try_from(number(&mut content)?).ok()?;
        let count = usize::try_from(number(&mut content)?).ok()?;
        let first = entries.get(read)?;
        if first.begun != at || !first.is_whole || count == 0 {
            return Some(false);
        }
        read = read.checked_add(count)?;
    }
    Some(read == entries.len())
}

/// Reads the objects of the sides of resolved merges.
fn read_undone(mut content: &[u8], digest_bytes: usize) -> Option<Vec<&[u8]>> {
    let mut ids = Vec::new();
    while !content.is_empty() {
        if !is_within(text(&mut content)?) {
            return None;
        }
        let modes = [
            text(&mut content)?,
            text(&mut content)?,
            text(&mut content)?,
        ];
        for mode in modes {
            let is_digits = !mode.is_empty() && mode.iter().all(u8::is_ascii_digit);
            let mode = std::str::from_utf8(mode).ok().filter(|_| is_digits)?;
            match u32::from_str_radix(mode, 8).ok()? {
                0 => {}
                FILE | PROGRAM | LINK => ids.push(take(&mut content, digest_bytes)?),
                SUBMODULE => {
                    take(&mut content, digest_bytes)?;
                }
                _ => return None,
            }
        }
    }
    Some(ids)
}

/// Returns whether the cache of untracked files is for the default patterns and names nothing
/// beyond its directories.
fn is_untracked(mut content: &[u8], digest_bytes: usize) -> Option<bool> {
    let bytes = offset(&mut content)?;
    take(&mut content, bytes)?;
    take(&mut content, UNTRACKED_BYTES + 2 * digest_bytes)?;
    if text(&mut content)? != b".gitignore" {
        return Some(false);
    }
    let has_directories = content.len() > 1 && offset(&mut content)? > 0;
    Some(!has_directories || is_untracked_directory(&mut content, 0)?)
}

fn is_untracked_directory(content: &mut &[u8], depth: usize) -> Option<bool> {
    let files = offset(content)?;
    let directories = offset(content)?;
    let name = text(content)?;
    let is_named = match depth {
        0 => name.is_empty(),
        _ => is_name(name),
    };
    if !is_named || depth > DEPTH_MAX {
        return Some(false);
    }
    for _ in 0..files {
        let name = text(content)?;
        if !is_name(name.strip_suffix(b"/").unwrap_or(name)) {
            return Some(false);
        }
    }
    for _ in 0..directories {
        if !is_untracked_directory(content, depth + 1)? {
            return Some(false);
        }
    }
    Some(true)
}

/// Takes the bytes up to a NUL, and the NUL itself.
fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    trees::line(rest, 0)
}
