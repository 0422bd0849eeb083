//! A Rust toolchain that tests can use inside and outside of sandboxes.
//!
//! The toolchain of rustup lies in a home that neither an ordinary user nor a
//! sandbox can enter. Links to its files in the cache cost no space.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;
use crate::person;

/// The directories that a toolchain needs to work; the rest is documentation.
const PARTS: [&str; 3] = ["bin", "lib", "libexec"];

pub(crate) fn reachable(cache: &Path) -> Result<PathBuf> {
    let mut ask = Command::new("rustc");
    let own = PathBuf::from(command::output(ask.args(["--print", "sysroot"]))?.trim_end());
    if person::caller_id()? != 0 || person::everyone_can_enter(&own) {
        return Ok(own);
    }
    let name = own.file_name().context("the toolchain has no name")?;
    let mut ask = Command::new("rustc");
    let version = command::output(ask.arg("--version"))?;
    let version = version.split_whitespace().nth(1).unwrap_or("unknown");
    let linked = cache
        .join("toolchains")
        .join(format!("{}-{version}", name.to_string_lossy()));
    if !linked.is_dir() {
        link(&own, &linked)?;
    }
    Ok(linked)
}

fn link(own: &Path, linked: &Path) -> Result<()> {
    let partial = linked.with_extension("partial");
    if partial.is_dir() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir_all(&partial)?;
    for part in PARTS
        .iter()
        .map(|part| own.join(part))
        .filter(|part| part.is_dir())
    {
        let copy =
            |how: &str| command::output(Command::new("cp").arg(how).arg(&part).arg(&partial));
        // Links do not reach other file systems.
        if copy("-al").is_err() {
            copy("-a")?;
        }
    }
    fs::rename(&partial, linked).context("cannot finish the toolchain for tests")
}
