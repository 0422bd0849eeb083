//! `cargo xtask dist`: the program as it is handed out, built with all that makes it fast, linked
//! with an old C library, tried once in an empty directory with an empty home, and packed.

pub(in crate::suite) mod glibc;
mod packages;
pub(super) mod tools;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{binaries, built_below, needs};
use crate::{command, tree};
use packages::Packer;

/// The commands that it is tried by, each of which has to succeed.
const TRIED: [&[&str]; 4] = [
    &["--version"],
    &["run", "--help"],
    &["run", "--discard", "--", "true"],
    &["ledger", "verify"],
];

/// The directory of the packages, below the one that cargo builds in.
const PACKAGES: &str = "dist-packages";

#[derive(Args)]
pub(crate) struct Options {
    /// Install what is missing
    #[arg(long)]
    pub(crate) install: bool,
}

/// Makes the packages, and prints them with their sizes.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let cache = needs::cache_directory()?;
    if options.install {
        tools::install(&cache, &tools::missing(&cache))?;
    }
    let directory = make(&tree::root()?, &cache)?;
    let mut names = Vec::new();
    for file in fs::read_dir(&directory)? {
        let file = file?;
        names.push((file.file_name(), file.metadata()?.len()));
    }
    names.sort();
    println!("{}", directory.display());
    for (name, bytes) in names {
        println!("{:8} KiB  {}", bytes.div_ceil(1024), name.display());
    }
    Ok(true)
}

/// Returns the reason for which packages cannot be made here, if there is one.
pub(super) fn obstacle(cache: &Path) -> Option<String> {
    if cfg!(not(target_arch = "x86_64")) {
        return Some("packages are made on x86-64, for x86-64 alone".to_owned());
    }
    let missing = tools::missing(cache).join(", ");
    (!missing.is_empty()).then(|| format!("missing: {missing}; give --install"))
}

/// Builds the program, tries it, and packs it; returns the directory of the packages.
pub(super) fn make(root: &Path, cache: &Path) -> Result<PathBuf> {
    if let Some(reason) = obstacle(cache) {
        bail!(reason);
    }
    let program = build(root, &tools::sysroot(cache))?;
    glibc::check(&program)?;
    try_out(&program)?;
    let target = built_below(root)?.join(PACKAGES);
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    Packer::new(root, cache, &program, &target)?.pack()?;
    Ok(target)
}

/// Builds the program, linked with another C library than the host's; returns its path.
fn build(root: &Path, sysroot: &Path) -> Result<PathBuf> {
    let program = ["build", "--package", "atoll-cli", "--bin", "atoll"];
    let words = program.iter().chain(binaries::AS_USERS);
    let mut words: Vec<String> = words.copied().map(str::to_owned).collect();
    words.extend(glibc::arguments(sysroot));
    binaries::program_of(root, "atoll", &words)
}

/// Runs the commands that have to succeed.
fn try_out(program: &Path) -> Result<()> {
    let empty = tempfile::tempdir()?;
    let (home, project) = (empty.path().join("home"), empty.path().join("project"));
    for directory in [&home, &project] {
        fs::create_dir(directory)?;
    }
    for arguments in TRIED {
        let mut tried = Command::new(program);
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
    Ok(())
}
