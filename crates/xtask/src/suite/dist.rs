//! `cargo xtask dist`: the program as it is handed out, built with all that makes it fast and tried
//! once, in an empty directory with an empty home.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::binaries;
use crate::{command, tree};

/// The commands that it is tried by, each of which has to succeed.
const TRIED: [&[&str]; 4] = [
    &["--version"],
    &["run", "--help"],
    &["run", "--discard", "--", "true"],
    &["ledger", "verify"],
];

/// Builds it and prints where it is.
pub(crate) fn run() -> Result<bool> {
    let program = build(&tree::root()?)?;
    let bytes = std::fs::metadata(&program)?.len();
    println!("{} ({} MiB)", program.display(), bytes >> 20);
    Ok(true)
}

/// Builds it and tries it; returns its path.
pub(super) fn build(root: &Path) -> Result<PathBuf> {
    let program = binaries::program(root)?;
    let empty = tempfile::tempdir()?;
    let (home, project) = (empty.path().join("home"), empty.path().join("project"));
    for directory in [&home, &project] {
        std::fs::create_dir(directory)?;
    }
    for arguments in TRIED {
        let mut tried = Command::new(&program);
        tried
            .args(arguments)
            .current_dir(&project)
            .env("HOME", &home);
        // Its state lies in this home alone.
        for place in ["STATE", "CONFIG", "CACHE", "DATA"] {
            tried.env_remove(format!("XDG_{place}_HOME"));
        }
        command::output(&mut tried).context("the program that was built does not work")?;
    }
    Ok(program)
}
