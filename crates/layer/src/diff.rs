//! Shows changes as a unified diff. Names and content are attacker-made: nothing
//! in them reaches the terminal but characters that print, and text that reorders
//! or hides itself is shown as escapes.

use std::io::{self, Read as _, Write};
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag};

use crate::escape;
use crate::read::Reader;
use crate::tree::Tree;
use crate::{
    Bounds, Change, ChangeKind, ChangeSet, Class, EntryFacts, EntryKind, LayerPaths, ReadError,
    RelativePath,
};

/// After this long a diff of one file is finished coarsely.
const ONE_FILE_TIME: Duration = Duration::from_secs(2);

/// How a diff is shown.
#[derive(Clone, Copy, Debug)]
pub struct DiffOptions {
    /// With colours for a terminal.
    pub colour: bool,
    /// Unchanged lines around a change.
    pub context: usize,
    /// Larger files are only named, bytes.
    pub file_bytes_max: u64,
    /// Longer lines are cut, bytes.
    pub line_bytes_max: usize,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self {
            colour: false,
            context: 3,
            file_bytes_max: 1 << 20,
            line_bytes_max: 2_000,
        }
    }
}

/// Writes the changes as a unified diff. `filter` limits it to these paths and
/// what lies beneath; empty means all.
///
/// # Errors
/// When a tree cannot be opened or the output cannot be written. A file that
/// cannot be read is named as such.
pub fn write_diff(
    paths: &LayerPaths,
    changes: &ChangeSet,
    filter: &[RelativePath],
    out: &mut dyn Write,
    options: &DiffOptions,
) -> Result<(), ReadError> {
    let reader = Reader::open(paths, &Bounds::default())?;
    let mut page = Page { out, options };
    for change in &changes.changes {
        let shown = filter.is_empty() || filter.iter().any(|path| change.path.starts_with(path));
        if shown {
            write_change(&reader, change, &mut page).map_err(ReadError::Output)?;
        }
    }
    Ok(())
}

/// One side of a file's change.
enum Side {
    Nothing,
    Text(Vec<u8>),
    Binary(u64),
    Unreadable,
}

impl Side {
    fn read(tree: &Tree, path: &RelativePath, facts: Option<&EntryFacts>, bytes_max: u64) -> Self {
        let Some(facts) = facts else {
            return Self::Nothing;
        };
        match &facts.kind {
            EntryKind::Directory | EntryKind::Special => return Self::Nothing,
            EntryKind::Symlink { target } => return Self::Text(target.clone()),
            EntryKind::File if facts.bytes > bytes_max => return Self::Binary(facts.bytes),
            EntryKind::File => {}
        }
        let mut bytes = Vec::new();
        let read = tree
            .file(path)
            .and_then(|(file, _)| file.take(bytes_max).read_to_end(&mut bytes));
        match read {
            Err(_) => Self::Unreadable,
            Ok(_) if bytes.contains(&0) => Self::Binary(facts.bytes),
            Ok(_) => Self::Text(bytes),
        }
    }

    fn size(&self) -> Option<u64> {
        match self {
            Self::Nothing => Some(0),
            Self::Text(text) => Some(text.len() as u64),
            Self::Binary(bytes) => Some(*bytes),
            Self::Unreadable => None,
        }
    }
}

/// The output, with its colours.
struct Page<'a> {
    out: &'a mut dyn Write,
    options: &'a DiffOptions,
}

const BOLD: &str = "1";
const RED: &str = "31";
const GREEN: &str = "32";
const CYAN: &str = "36";
const YELLOW: &str = "33";

impl Page<'_> {
    fn line(&mut self, colour: &str, text: &str) -> io::Result<()> {
        if self.options.colour {
            writeln!(self.out, "\x1b[{colour}m{text}\x1b[0m")
        } else {
            writeln!(self.out, "{text}")
        }
    }
}

fn write_change(reader: &Reader, change: &Change, page: &mut Page<'_>) -> io::Result<()> {
    let old_path = match &change.kind {
        ChangeKind::Renamed { from } => from,
        _ => &change.path,
    };
    let old_name = escape::quoted_name("a/", old_path.as_bytes());
    let new_name = escape::quoted_name("b/", change.path.as_bytes());
    page.line(BOLD, &format!("diff --git {old_name} {new_name}"))?;
    if change.class == Class::Control {
        let reason = change.reason.unwrap_or("others trust it");
        page.line(YELLOW, &format!("control file: {reason}"))?;
    }
    write_facts(change, page)?;
    let bytes_max = page.options.file_bytes_max;
    let (tree, at) = reader.place_of(&change.path, &change.source);
    if matches!(change.kind, ChangeKind::Mode | ChangeKind::Renamed { .. }) {
        return Ok(());
    }
    let old = Side::read(&reader.before, old_path, change.before.as_ref(), bytes_max);
    let new = Side::read(tree, at, change.after.as_ref(), bytes_max);
    let old_label = match change.before {
        Some(_) => old_name,
        None => "/dev/null".into(),
    };
    let new_label = match change.after {
        Some(_) => new_name,
        None => "/dev/null".into(),
    };
    match (&old, &new) {
        (Side::Nothing, Side::Nothing) => Ok(()),
        (Side::Nothing | Side::Text(_), Side::Nothing | Side::Text(_)) => {
            let text = |side| match side {
                Side::Text(text) => text,
                Side::Nothing | Side::Binary(_) | Side::Unreadable => Vec::new(),
            };
            write_text(&text(old), &text(new), &old_label, &new_label, page)
        }
        _ => {
            let size = |side: &Side| match side.size() {
                Some(bytes) => atoll_model::format_bytes(bytes),
                None => "unreadable".into(),
            };
            let (old_size, new_size) = (size(&old), size(&new));
            page.line(
                CYAN,
                &format!(
                    "Binary files {old_label} ({old_size}) and {new_label} ({new_size}) differ"
                ),
            )
        }
    }
}

/// The lines that git writes between a change's head and its content, and the like
/// for what git does not know: directories.
fn write_facts(change: &Change, page: &mut Page<'_>) -> io::Result<()> {
    let entries = match change.within {
        0 => String::new(),
        1 => " (1 entry within)".to_owned(),
        within => format!(" ({within} entries within)"),
    };
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    match (&change.kind, before, after) {
        (ChangeKind::Renamed { from }, _, _) => {
            let from = escape::quoted_name("", from.as_bytes());
            let to = escape::quoted_name("", change.path.as_bytes());
            page.line(CYAN, &format!("rename from {from}"))?;
            page.line(CYAN, &format!("rename to {to}{entries}"))
        }
        (_, None, Some(after)) => {
            page.line(GREEN, &format!("new {} mode {}", noun(after), mode(after)))
        }
        (_, Some(before), None) => {
            let text = format!("deleted {} mode {}{entries}", noun(before), mode(before));
            page.line(RED, &text)
        }
        (_, Some(before), Some(after)) if mode(before) != mode(after) => {
            page.line(RED, &format!("old mode {}{entries}", mode(before)))?;
            page.line(GREEN, &format!("new mode {}", mode(after)))
        }
        (ChangeKind::Mode, _, _) => page.line(CYAN, "owner or extended attributes differ"),
        _ => Ok(()),
    }
}

fn noun(facts: &EntryFacts) -> &'static str {
    match facts.kind {
        EntryKind::Directory => "directory",
        EntryKind::File | EntryKind::Symlink { .. } | EntryKind::Special => "file",
    }
}

fn mode(facts: &EntryFacts) -> String {
    let kind = match facts.kind {
        EntryKind::File => 0o100_000,
        EntryKind::Directory => 0o040_000,
        EntryKind::Symlink { .. } => return "120000".into(),
        EntryKind::Special => 0,
    };
    format!("{:06o}", kind | facts.mode)
}

fn write_text(
    old: &[u8],
    new: &[u8],
    old_label: &str,
    new_label: &str,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let (old_lines, new_lines) = (lines(old), lines(new));
    let deadline = Instant::now().checked_add(ONE_FILE_TIME);
    let operations =
        similar::capture_diff_slices_deadline(Algorithm::Myers, &old_lines, &new_lines, deadline);
    let groups = similar::group_diff_ops(operations, page.options.context);
    if groups.iter().all(Vec::is_empty) {
        return Ok(());
    }
    page.line(BOLD, &format!("--- {old_label}"))?;
    page.line(BOLD, &format!("+++ {new_label}"))?;
    for group in groups {
        write_hunk(&group, &old_lines, &new_lines, page)?;
    }
    Ok(())
}

fn write_hunk(
    group: &[DiffOp],
    old: &[&[u8]],
    new: &[&[u8]],
    page: &mut Page<'_>,
) -> io::Result<()> {
    let (Some(first), Some(last)) = (group.first(), group.last()) else {
        return Ok(());
    };
    let old_range = (first.old_range().start, last.old_range().end);
    let new_range = (first.new_range().start, last.new_range().end);
    let head = format!("@@ -{} +{} @@", range(old_range), range(new_range));
    page.line(CYAN, &head)?;
    for operation in group {
        let old_part = old.get(operation.old_range()).unwrap_or_default();
        let new_part = new.get(operation.new_range()).unwrap_or_default();
        match operation.tag() {
            DiffTag::Equal => {
                for line in old_part {
                    write_line("0", " ", line, page)?;
                }
            }
            DiffTag::Delete | DiffTag::Insert | DiffTag::Replace => {
                for line in old_part {
                    write_line(RED, "-", line, page)?;
                }
                for line in new_part {
                    write_line(GREEN, "+", line, page)?;
                }
            }
        }
    }
    Ok(())
}

fn write_line(colour: &str, sign: &str, line: &[u8], page: &mut Page<'_>) -> io::Result<()> {
    let (body, ended) = match line.strip_suffix(b"\n") {
        Some(body) => (body, true),
        None => (line, false),
    };
    let shown = body
        .get(..page.options.line_bytes_max.min(body.len()))
        .unwrap_or(body);
    let mut text = escape::line(shown);
    if shown.len() < body.len() {
        text.push_str(&format!(" … ({} bytes more)", body.len() - shown.len()));
    }
    page.line(colour, &format!("{sign}{text}"))?;
    if !ended {
        page.line("0", "\\ No newline at end of file")?;
    }
    Ok(())
}

fn range((start, end): (usize, usize)) -> String {
    match end.saturating_sub(start) {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        count => format!("{},{count}", start + 1),
    }
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}
