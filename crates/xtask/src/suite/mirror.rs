//! The part of Debian's archive that tests of templates install from, in the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::needs::PYTHON;
use crate::{command, tree};

/// The program that makes it.
const PROGRAM: &str = "crates/e2e/tests/serve/mirror.py";
/// The packages of the shipped template, a name in each line.
const DESKTOP: &str = "crates/cli/src/sandbox/desktop/packages.txt";
/// The packages that tests add.
const FURTHER: [&str; 2] = ["hello", "tree"];
/// The time for which it is used: some indexes are good for seven days.
const LASTS: Duration = Duration::from_secs(6 * 24 * 60 * 60);

fn directory(cache: &Path) -> PathBuf {
    cache.join("debian")
}

/// Returns the name to print of it, if it is not there or too old.
pub(super) fn missing(cache: &Path) -> Vec<&'static str> {
    let whole = fs::metadata(directory(cache).join("whole"));
    let age = whole.and_then(|facts| facts.modified());
    let age = age.ok().and_then(|made| made.elapsed().ok());
    match age.is_some_and(|age| age < LASTS) {
        true => Vec::new(),
        false => vec!["a mirror of some packages"],
    }
}

/// Makes it anew; packages that are there already are kept.
pub(super) fn install(cache: &Path) -> Result<()> {
    let root = tree::root()?;
    let list = root.join(DESKTOP);
    let list = fs::read_to_string(&list).with_context(|| format!("no {}", list.display()))?;
    let mut make = Command::new(PYTHON);
    make.arg(root.join(PROGRAM))
        .arg("fetch")
        .arg(directory(cache));
    command::output(make.args(list.lines()).args(FURTHER)).map(drop)
}
