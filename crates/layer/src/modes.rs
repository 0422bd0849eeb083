//! The record beside a tree of the modes that a program gave to entries which were opened up since:
//! whoever reads the tree is shown these.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::TreeError;
use crate::facts::Facts;
use crate::{RelativePath, escape};

/// The modes of entries that were opened up, by inode: a layer lies on one file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted(HashMap<u64, u32>);

impl Noted {
    /// Reads the modes recorded beside a layer. A line that cannot be parsed is an error: showing
    /// another mode than the program's would apply another.
    pub fn read(after: &Path) -> Result<Self, TreeError> {
        let lines = lines(after)?;
        let modes = lines.iter().map(|line| (line.inode, line.mode));
        Ok(Self(modes.collect()))
    }

    /// Returns the entry with the mode that the program gave it.
    pub fn correct(&self, mut facts: Facts) -> Facts {
        if let Some(mode) = self.0.get(&facts.inode) {
            facts.mode = *mode;
        }
        facts
    }
}

/// A line of the record: one entry that was opened up.
pub(crate) struct Line {
    pub inode: u64,
    pub mode: u32,
    pub path: RelativePath,
}

/// Formats a line of the record, with its end.
pub(crate) fn line(inode: u64, mode: u32, path: &RelativePath) -> String {
    format!("{inode} {mode:o} {}\n", escape::record(path.as_bytes()))
}

/// Reads the record beside a tree.
pub(crate) fn lines(after: &Path) -> Result<Vec<Line>, TreeError> {
    let path = beside(after);
    let failed = |error| TreeError::new("cannot read", path.display(), error);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    // A line without its end was cut short: what it was for was not opened up yet.
    let whole = text
        .rfind('\n')
        .map_or("", |end| text.get(..end).unwrap_or_default());
    let parse = |line: &str| {
        let damaged = || failed(io::Error::other("it is damaged"));
        parse_line(line).ok_or_else(damaged)
    };
    whole.lines().map(parse).collect()
}

fn parse_line(line: &str) -> Option<Line> {
    let (inode, rest) = line.split_once(' ')?;
    let (mode, name) = rest.split_once(' ')?;
    Some(Line {
        inode: inode.parse().ok()?,
        mode: u32::from_str_radix(mode, 8)
            .ok()
            .filter(|mode| *mode <= 0o7777)?,
        path: RelativePath::new(escape::parse_record(name)?).ok()?,
    })
}

/// Returns the path of the record beside a tree.
pub(crate) fn beside(after: &Path) -> PathBuf {
    let mut name = after.as_os_str().to_os_string();
    name.push(".modes");
    PathBuf::from(name)
}
