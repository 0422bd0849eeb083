//! Shows changes as a unified diff. Names and content are attacker-made. On a page for a terminal
//! nothing in them is written but characters that print, and text that reorders or hides itself is
//! shown as escapes; an exact patch, which is for programs alone, escapes names as git does and
//! has content as it is.

mod binary;
mod side;
mod text;

use std::io::{self, Write};

use self::side::Side;
use self::text::{lines, write_text};
use crate::escape;
use crate::git_config::CONFIGURATION_BYTES_MAX;
use crate::git_objects::{Format, small};
use crate::read::Reader;
use crate::tree::Tree;
use crate::{
    Bounds, Change, ChangeKind, ChangeSet, Class, EntryFacts, EntryKind, LayerPaths, ReadError,
    RelativePath,
};

/// The most files that are listed of a removed or renamed directory.
const ENTRIES_WITHIN_MAX: usize = 10_000;

/// Options for showing a diff.
#[derive(Clone, Debug)]
pub struct DiffOptions {
    /// A prefix of every path: the directory of the changes, absolute with a `/` at its end, so
    /// that nobody takes them for others. Empty for the workspace.
    pub place: Vec<u8>,
    /// Set for colours on a terminal.
    pub colour: bool,
    /// The number of unchanged lines around a change.
    pub context: usize,
    /// The largest file that is shown, bytes; larger ones are only named.
    pub file_bytes_max: u64,
    /// The longest line that is shown, bytes; longer ones are cut.
    pub line_bytes_max: usize,
    /// Set for a patch that is exact, byte for byte, and for no terminal: nothing in it is escaped
    /// or cut, and binary files are in it as git's binary patches.
    pub exact: bool,
}

/// The largest file of an exact patch, bytes.
const EXACT_BYTES_MAX: u64 = 64 << 20;
/// The most content of a diff, bytes on both sides together: it is made in memory.
const CONTENT_BYTES_MAX: u64 = 1 << 30;

impl DiffOptions {
    /// Returns the options of an exact patch.
    #[must_use]
    pub fn exact(place: Vec<u8>) -> Self {
        Self {
            place,
            file_bytes_max: EXACT_BYTES_MAX,
            line_bytes_max: usize::MAX,
            exact: true,
            ..Self::default()
        }
    }
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self {
            place: Vec::new(),
            colour: false,
            context: 3,
            file_bytes_max: 1 << 20,
            line_bytes_max: 2_000,
            exact: false,
        }
    }
}

/// Writes the changes as a unified diff that `git apply` takes. `filter` limits it to these paths and
/// what lies beneath; empty means all. Returns the files that are named only, since they are too
/// large or cannot be read.
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
) -> Result<Vec<String>, ReadError> {
    let reader = Reader::open(paths, &Bounds::default())?;
    let mut page = Page {
        out,
        options,
        left_out: Vec::new(),
        room: CONTENT_BYTES_MAX,
        format: format(&reader.before),
    };
    for change in &changes.changes {
        let shown = filter.is_empty() || filter.iter().any(|path| change.path.starts_with(path));
        if shown {
            write_change(&reader, change, &mut page).map_err(ReadError::Output)?;
        }
    }
    Ok(page.left_out)
}

/// Returns the digest by which the repository in a tree names content; that of most without one.
fn format(tree: &Tree) -> Format {
    let path = RelativePath::new(b".git/config");
    let text = path
        .ok()
        .and_then(|path| small(tree, &path, CONFIGURATION_BYTES_MAX));
    text.and_then(|text| Format::of(&text))
        .unwrap_or(Format::Sha1)
}

/// The output, with its colours.
struct Page<'a> {
    out: &'a mut dyn Write,
    options: &'a DiffOptions,
    /// The files that are named only.
    left_out: Vec<String>,
    /// The content that there is still room for, bytes.
    room: u64,
    /// The digest by which the repository names content.
    format: Format,
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

    /// Names a file that is not in the patch.
    fn left_out(&mut self, path: &RelativePath) -> io::Result<()> {
        let name = self.shown(path);
        self.note(CYAN, &format!("{name} is not in this patch"))?;
        self.left_out.push(name);
        Ok(())
    }

    /// Writes a line of a file after its sign, as it is.
    fn raw(&mut self, sign: &str, line: &[u8]) -> io::Result<()> {
        self.out.write_all(sign.as_bytes())?;
        self.out.write_all(line)?;
        self.out.write_all(b"\n")
    }

    /// Returns a path, escaped for a person.
    fn shown(&self, path: &RelativePath) -> String {
        let path = match path.is_root() && self.options.place.is_empty() {
            true => b".",
            false => path.as_bytes(),
        };
        escape::quoted_name("", &[&self.options.place, path].concat())
    }

    /// Returns a path for a patch, with one of its prefixes or none.
    fn name(&self, prefix: &str, path: &RelativePath) -> String {
        let place = &self.options.place;
        let place = place.strip_prefix(b"/").unwrap_or(place);
        escape::quoted_name(prefix, &[place, path.as_bytes()].concat())
    }

    fn note(&mut self, colour: &str, text: &str) -> io::Result<()> {
        self.line(colour, &format!("# {text}"))
    }

    /// Returns whether every line is written as it is, neither cut nor escaped.
    fn shows_exactly(&self, text: &[u8]) -> bool {
        self.options.exact
            || lines(text).into_iter().all(|line| {
                let body = line.strip_suffix(b"\n").unwrap_or(line);
                body.len() <= self.options.line_bytes_max && escape::line(body).as_bytes() == body
            })
    }
}

/// A file on one side of a change, and the place it is read from.
struct Entry<'a> {
    tree: &'a Tree,
    at: RelativePath,
    facts: EntryFacts,
}

/// Writes one change. What a patch cannot express goes into comments before the file headers, which
/// `git apply` and `patch` skip.
fn write_change(reader: &Reader, change: &Change, page: &mut Page<'_>) -> io::Result<()> {
    let name = page.name("b/", &change.path);
    if change.class == Class::Control {
        let reason = change.reason.unwrap_or("others trust it");
        page.note(YELLOW, &format!("control file: {name}: {reason}"))?;
    }
    if let ChangeKind::Renamed { from } = &change.kind {
        return write_moved(reader, from, change, page);
    }
    let (tree, at) = reader.place_of(&change.path, &change.source)?;
    let old = change.before.clone().map(|facts| Entry {
        tree: &reader.before,
        at: change.path.clone(),
        facts,
    });
    let new = change.after.clone().map(|facts| Entry {
        tree,
        at: at.clone(),
        facts,
    });
    if change.kind == ChangeKind::Mode {
        return write_mode(change, page);
    }
    // A patch takes a file of another type for another file.
    let (Some(before), Some(after)) = (&change.before, &change.after) else {
        return write_sides(reader, change, old.as_ref(), new.as_ref(), page);
    };
    if type_bits(before) == type_bits(after) {
        write_sides(reader, change, old.as_ref(), new.as_ref(), page)
    } else {
        write_sides(reader, change, old.as_ref(), None, page)?;
        write_sides(reader, change, None, new.as_ref(), page)
    }
}

fn write_sides(
    reader: &Reader,
    change: &Change,
    old: Option<&Entry<'_>>,
    new: Option<&Entry<'_>>,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let (verb, entry) = match (old, new) {
        (Some(old), None) => ("deleted", old),
        (_, Some(new)) => ("new", new),
        (None, None) => return Ok(()),
    };
    let what = match entry.facts.kind {
        EntryKind::File | EntryKind::Symlink { .. } => {
            return write_file(&change.path, old, new, page);
        }
        EntryKind::Directory => "directory",
        EntryKind::Special => "special file",
    };
    let name = page.shown(&change.path);
    let mode = entry.facts.mode;
    let entries = entries_within(change.within);
    if verb == "new" {
        return page.note(GREEN, &format!("new {what} {name} mode {mode:04o}"));
    }
    page.note(
        RED,
        &format!("deleted {what} {name} mode {mode:04o}{entries}"),
    )?;
    for (path, facts) in files_within(reader, &change.path, page)? {
        let gone = Entry {
            tree: &reader.before,
            at: path.clone(),
            facts,
        };
        write_file(&path, Some(&gone), None, page)?;
    }
    Ok(())
}

/// Writes a directory that moved, as its files: a patch knows nothing else.
fn write_moved(
    reader: &Reader,
    from: &RelativePath,
    change: &Change,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let (old, new) = (page.shown(from), page.shown(&change.path));
    let entries = entries_within(change.within);
    page.note(CYAN, &format!("renamed {old} to {new}{entries}"))?;
    for (path, _) in files_within(reader, from, page)? {
        let Some(rest) = path.beneath(from) else {
            continue;
        };
        let to = change.path.concat(&rest);
        let (old, new) = (page.name("a/", &path), page.name("b/", &to));
        page.line(BOLD, &format!("diff --git {old} {new}"))?;
        page.line(CYAN, "similarity index 100%")?;
        let (old, new) = (page.name("", &path), page.name("", &to));
        page.line(CYAN, &format!("rename from {old}"))?;
        page.line(CYAN, &format!("rename to {new}"))?;
    }
    Ok(())
}

/// Returns the files and links beneath a directory. What is not among them is named as left out: a
/// directory or entry that cannot be read, or the whole where there are too many.
fn files_within(
    reader: &Reader,
    top: &RelativePath,
    page: &mut Page<'_>,
) -> io::Result<Vec<(RelativePath, EntryFacts)>> {
    let mut files = Vec::new();
    let mut waiting = vec![top.clone()];
    while let Some(directory) = waiting.pop() {
        let Ok(names) = reader.before.names(&directory) else {
            page.left_out(&directory)?;
            continue;
        };
        for path in names.iter().filter_map(|name| directory.join(name).ok()) {
            let facts = reader.before.facts(&path).ok().flatten();
            let Some(facts) = facts.and_then(|it| reader.describe(&reader.before, &path, &it))
            else {
                page.left_out(&path)?;
                continue;
            };
            match facts.kind {
                EntryKind::Directory => waiting.push(path),
                EntryKind::File | EntryKind::Symlink { .. } => files.push((path, facts)),
                EntryKind::Special => {}
            }
            if files.len() + waiting.len() > ENTRIES_WITHIN_MAX {
                page.note(CYAN, "too many to be listed here")?;
                page.left_out(top)?;
                return Ok(Vec::new());
            }
        }
    }
    files.sort_by(|(left, _), (right, _)| left.cmp(right));
    Ok(files)
}

fn entries_within(within: u64) -> String {
    match within {
        0 => String::new(),
        1 => " (1 entry within)".to_owned(),
        within => format!(" ({within} entries within)"),
    }
}

/// Writes a change of nothing but metadata.
fn write_mode(change: &Change, page: &mut Page<'_>) -> io::Result<()> {
    let (Some(before), Some(after)) = (&change.before, &change.after) else {
        return Ok(());
    };
    let name = page.shown(&change.path);
    if before.mode == after.mode {
        let text = format!("{name}: owner or extended attributes differ");
        return page.note(CYAN, &text);
    }
    write_exact_mode(&change.path, Some(before), Some(after), page)?;
    if git_mode(before) == git_mode(after) || after.kind != EntryKind::File {
        return Ok(());
    }
    write_head(&change.path, Some(before), Some(after), page)
}

/// Writes the exact mode, where git cannot express it.
fn write_exact_mode(
    path: &RelativePath,
    before: Option<&EntryFacts>,
    after: Option<&EntryFacts>,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let Some(after) = after.filter(|after| !matches!(after.kind, EntryKind::Symlink { .. })) else {
        return Ok(());
    };
    let name = page.shown(path);
    let usual =
        |facts: &EntryFacts| facts.kind == EntryKind::File && matches!(facts.mode, 0o644 | 0o755);
    match before {
        Some(before) if before.mode == after.mode => Ok(()),
        Some(before) if usual(before) && usual(after) => Ok(()),
        Some(before) => {
            let text = format!("{name}: mode {:04o}, was {:04o}", after.mode, before.mode);
            page.note(CYAN, &text)
        }
        None if usual(after) => Ok(()),
        None => page.note(CYAN, &format!("{name}: mode {:04o}", after.mode)),
    }
}

/// Writes git's header lines before a file's content.
fn write_head(
    path: &RelativePath,
    before: Option<&EntryFacts>,
    after: Option<&EntryFacts>,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let (old, new) = (page.name("a/", path), page.name("b/", path));
    page.line(BOLD, &format!("diff --git {old} {new}"))?;
    match (before.map(git_mode), after.map(git_mode)) {
        (None, Some(mode)) => page.line(GREEN, &format!("new file mode {mode}")),
        (Some(mode), None) => page.line(RED, &format!("deleted file mode {mode}")),
        (Some(old), Some(new)) if old != new => {
            page.line(RED, &format!("old mode {old}"))?;
            page.line(GREEN, &format!("new mode {new}"))
        }
        _ => Ok(()),
    }
}

fn write_file(
    path: &RelativePath,
    old: Option<&Entry<'_>>,
    new: Option<&Entry<'_>>,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let (before, after) = (old.map(|old| &old.facts), new.map(|new| &new.facts));
    write_exact_mode(path, before, after, page)?;
    let label = |prefix: &str, facts: Option<&EntryFacts>| match facts {
        Some(_) => page.name(prefix, path),
        None => "/dev/null".into(),
    };
    let (old_label, new_label) = (label("a/", before), label("b/", after));
    let (old, new) = (Side::read(old, page), Side::read(new, page));
    let size = |side: &Side| match side.size() {
        Some(bytes) => atoll_model::format_bytes(bytes),
        None => "unreadable".into(),
    };
    let (old_size, new_size) = (size(&old), size(&new));
    if (old.is_binary() || new.is_binary())
        && let (Some(was), Some(is)) = (old.whole(), new.whole())
    {
        let id =
            |is_there: bool, content| binary::object_id(page.format, is_there.then_some(content));
        let ids = id(before.is_some(), was).zip(id(after.is_some(), is));
        let Some((was_id, is_id)) = ids else {
            return page.left_out(path);
        };
        write_head(path, before, after, page)?;
        let mode = match (before.map(git_mode), after.map(git_mode)) {
            (Some(old), Some(new)) if old == new => format!(" {new}"),
            _ => String::new(),
        };
        page.line(CYAN, &format!("index {was_id}..{is_id}{mode}"))?;
        return binary::write(was, is, page);
    }
    let (Some(old), Some(new)) = (old.text(), new.text()) else {
        page.left_out.push(page.shown(path));
        let text =
            format!("Binary files {old_label} ({old_size}) and {new_label} ({new_size}) differ");
        return page.note(CYAN, &text);
    };
    if !page.shows_exactly(&old) || !page.shows_exactly(&new) {
        let text = "some lines are cut or escaped here: as a patch this file is not exact";
        page.note(YELLOW, text)?;
    }
    let same = |(before, after)| git_mode(before) == git_mode(after);
    if before.zip(after).is_some_and(same) && old == new {
        return Ok(());
    }
    write_head(path, before, after, page)?;
    write_text(&old, &new, &old_label, &new_label, page)
}

/// Returns the mode as git has it: of the permissions only whether the owner may execute.
fn git_mode(facts: &EntryFacts) -> &'static str {
    match facts.kind {
        EntryKind::Symlink { .. } => "120000",
        _ if facts.mode & 0o100 != 0 => "100755",
        _ => "100644",
    }
}

fn type_bits(facts: &EntryFacts) -> u8 {
    match facts.kind {
        EntryKind::File => 0,
        EntryKind::Directory => 1,
        EntryKind::Symlink { .. } => 2,
        EntryKind::Special => 3,
    }
}
