//! The solver that proofs about policies need, as a program in the cache.
//!
//! Distributions have cvc5 in a version that is too old, and PyPI has its library alone. So a few
//! lines of Python make a program of the library: they pass their input on to it, and do none of
//! the solver's work.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::needs::PYTHON;
use crate::command;

/// The library and its release, as pip names them.
const LIBRARY: &str = "cvc5==1.4.2";
/// The program around the library.
const PROGRAM: &str = include_str!("solver/cvc5.py");
/// The directory of both in the cache.
const DIRECTORY: &str = "solver";

/// Returns the name to print of the solver, if the library or the program is missing or outdated.
pub(super) fn missing(cache: &Path) -> Vec<&'static str> {
    let directory = cache.join(DIRECTORY);
    let name = LIBRARY.replace("==", "-");
    let is_there = directory.join(format!("library/{name}.dist-info")).is_dir();
    let is_same = fs::read_to_string(directory.join("cvc5")).is_ok_and(|text| text == PROGRAM);
    match is_there && is_same {
        true => Vec::new(),
        false => vec![LIBRARY],
    }
}

/// Installs the library by pip, and writes the program.
pub(super) fn install(cache: &Path) -> Result<()> {
    let directory = cache.join(DIRECTORY);
    let environment = directory.join("environment");
    let mut create = Command::new(PYTHON);
    command::output(create.args(["-m", "venv"]).arg(&environment))?;
    let mut pip = Command::new(environment.join("bin/pip"));
    pip.args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
        "--no-deps",
        "--upgrade",
        "--target",
    ]);
    command::output(pip.arg(directory.join("library")).arg(LIBRARY))?;
    let program = directory.join("cvc5");
    fs::write(&program, PROGRAM).with_context(|| format!("cannot write {}", program.display()))?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
