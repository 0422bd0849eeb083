//! The prover, a workspace of its own: built, linted and tested as the others are, in a directory
//! of its own below the one that cargo builds in, which is kept from one time to the next.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::binaries;
use super::tally::Tally;
use super::{built_below, cargo};
use crate::tree;

/// The manifest of the prover's workspace.
const MANIFEST: &str = "prover/Cargo.toml";
/// The program's name; [`BELOW`] is the directory of its build.
const NAME: &str = "atoll-prove";
const BELOW: &str = "prover";

/// Builds the prover and prints its path: `cargo xtask prover`.
pub(crate) fn run() -> Result<bool> {
    let program = program(&tree::root()?)?;
    println!(
        "{}\nPut it beside atoll, or into PATH, where nobody else can write.",
        program.display()
    );
    Ok(true)
}

/// Builds the program; returns its path. One profile serves tests and use: most of the time is the
/// solver's.
pub(crate) fn program(root: &Path) -> Result<PathBuf> {
    binaries::program_of(root, NAME, &with_place(root, &["build"])?)
}

/// Checks the format of its code, which needs no build.
pub(super) fn format(root: &Path, tally: &mut Tally) -> Result<()> {
    let format = ["fmt", "--manifest-path", MANIFEST, "--check"];
    tally.gate("format of the prover", &mut cargo(root, &format))
}

/// Checks its lints, and runs its unit tests.
pub(super) fn gates(root: &Path, tally: &mut Tally) -> Result<()> {
    let test = with_place(root, &["test", "--quiet"])?;
    tally.gate("tests of the prover", &mut cargo(root, &test))?;
    let lint = with_place(root, &["clippy", "--all-targets", "--quiet"])?;
    let mut lint: Command = cargo(root, &lint);
    tally.gate("lints of the prover", lint.args(["--", "-D", "warnings"]))
}

fn with_place(root: &Path, words: &[&str]) -> Result<Vec<String>> {
    let below = built_below(root)?.join(BELOW).display().to_string();
    let own = ["--locked", "--manifest-path", MANIFEST, "--target-dir"];
    let words = words.iter().copied().chain(own).map(str::to_owned);
    Ok(words.chain([below]).collect())
}
