//! The hunks of a unified diff.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag};

use super::{BOLD, CYAN, GREEN, Page, RED};
use crate::escape;

/// The time after which a diff of one file is finished coarsely.
const ONE_FILE_TIME: Duration = Duration::from_secs(2);

pub(super) fn write_text(
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
    let old_range = first.old_range().start..last.old_range().end;
    let new_range = first.new_range().start..last.new_range().end;
    let head = format!("@@ -{} +{} @@", range(&old_range), range(&new_range));
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
    if page.options.exact {
        page.raw(sign, body)?;
        return match ended {
            true => Ok(()),
            false => page.line("0", "\\ No newline at end of file"),
        };
    }
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

fn range(lines: &Range<usize>) -> String {
    let start = lines.start;
    match lines.len() {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        count => format!("{},{count}", start + 1),
    }
}

pub(super) fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}
