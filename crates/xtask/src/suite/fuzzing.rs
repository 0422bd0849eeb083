//! Runs the fuzz targets, for `--nightly` alone: each for a bounded time, from the seeds of the
//! project and from what earlier runs have found.
//!
//! They are a workspace of their own, built by a nightly toolchain. Nothing is written to the
//! project: findings lie beside the build.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::events::{End, Finished};
use super::tally::Tally;
use super::{Options, cargo, needs};
use crate::command;

/// The manifest of the fuzz targets' workspace.
pub(crate) const MANIFEST: &str = "fuzz/Cargo.toml";

/// The prefix of the names of fuzz targets, for the filter.
pub(crate) const LABEL: &str = "fuzz ";

const TOOLCHAIN: &str = "nightly";
const CARGO_FUZZ: &str = "cargo-fuzz";

/// The longest time for one input, seconds; an input that takes longer is a finding.
const INPUT_SECONDS_MAX: u32 = 20;
/// The time that a target may take beyond its own, to start and to end.
const GRACE: Duration = Duration::from_secs(120);
/// The most lines printed of a failed target's output.
const OUTPUT_LINES_MAX: usize = 60;

/// Variables removed for the nightly toolchain: the cargo that runs this task has set them for
/// itself, or they would reach the other cargo as well.
const OF_THIS_CARGO: [&str; 6] = [
    "CARGO",
    "CARGO_ENCODED_RUSTFLAGS",
    "LD_LIBRARY_PATH",
    "RUSTC",
    "RUSTDOC",
    "RUSTFLAGS",
];

/// The part of the manifest that is read here.
#[derive(Deserialize)]
struct Manifest {
    bin: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// Builds and runs the targets that the filter names; `below` holds builds and findings.
pub(crate) fn run(
    options: &Options,
    root: &Path,
    cache: &Path,
    below: &Path,
    tally: &mut Tally,
) -> Result<()> {
    let text = fs::read_to_string(root.join(MANIFEST))
        .with_context(|| format!("cannot read {MANIFEST}"))?;
    let mut names = targets(&text)?;
    let filter = options.filter.as_deref().unwrap_or_default();
    names.retain(|name| label(name).contains(filter));
    if names.is_empty() {
        return Ok(());
    }
    if let Some(reason) = missing(cache) {
        for name in &names {
            tally.leave_out(&label(name), &reason);
        }
        return Ok(());
    }
    let built = tally.built("build fuzz targets", build(root, cache, below));
    let Some(programs) = built else {
        return Ok(());
    };
    for name in names {
        let program = programs.join(&name);
        let fuzzed = one(&program, &name, options.fuzz_seconds, root, below)?;
        let end = match fuzzed {
            Ok(_) => End::Passed,
            Err(_) => End::Failed,
        };
        let (Ok(result) | Err(result)) = fuzzed;
        tally.progress(&label(&name), &result);
        tally.add("fuzz", &name, &Finished { end, seconds: 0.0 }, &[]);
    }
    Ok(())
}

fn label(name: &str) -> String {
    format!("{LABEL}{name}")
}

pub(crate) fn targets(manifest: &str) -> Result<Vec<String>> {
    let manifest: Manifest =
        toml::from_str(manifest).with_context(|| format!("{MANIFEST} has an unexpected form"))?;
    Ok(manifest.bin.into_iter().map(|target| target.name).collect())
}

/// Returns the reason why nothing can be fuzzed here, if there is one.
fn missing(cache: &Path) -> Option<String> {
    let toolchain = command::output(nightly(Path::new("rustc")).arg("--version"));
    if toolchain.is_err() {
        return Some(format!(
            "a Rust toolchain `{TOOLCHAIN}` is missing; rustup toolchain install {TOOLCHAIN}"
        ));
    }
    let program = needs::cargo_program(cache, CARGO_FUZZ);
    (!program.is_file()).then(|| format!("{CARGO_FUZZ} is missing; give --install"))
}

/// Returns a command that runs a program by the nightly toolchain.
fn nightly(program: &Path) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", TOOLCHAIN]).arg(program);
    for name in OF_THIS_CARGO {
        command.env_remove(name);
    }
    command
}

/// Builds the targets; returns their directory.
fn build(root: &Path, cache: &Path, below: &Path) -> Result<PathBuf> {
    // cargo-fuzz would bring the lock file up to date on its own.
    let locked = ["fetch", "--quiet", "--locked", "--manifest-path", MANIFEST];
    command::required(&mut cargo(root, &locked))?;
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = nightly(&needs::cargo_program(cache, CARGO_FUZZ));
    build
        .current_dir(root.join(MANIFEST).parent().unwrap_or(root))
        .args(["build", "--target", &platform, "--target-dir"])
        .arg(below);
    command::output(&mut build)?;
    Ok(below.join(platform).join("release"))
}

/// Runs one target; returns how much was tried, or what was found.
fn one(
    program: &Path,
    name: &str,
    seconds: u32,
    root: &Path,
    below: &Path,
) -> Result<Result<String, String>> {
    let (corpus, artifacts) = (
        below.join("corpus").join(name),
        below.join("artifacts").join(name),
    );
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&artifacts)?;
    let temporary = temporary()?;
    let output_path = temporary.path().join("output");
    let output = File::create(&output_path)?;
    let mut command = Command::new(program);
    command
        .arg(&corpus)
        .arg(root.join("fuzz/corpus").join(name))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .current_dir(temporary.path())
        .env("TMPDIR", temporary.path())
        .stdin(std::process::Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let longest = Duration::from_secs(u64::from(seconds)) + GRACE;
    let status = command::wait(&mut command, longest)?;
    let printed = String::from_utf8_lossy(&fs::read(&output_path)?).into_owned();
    let succeeded = status.is_some_and(|status| status.success());
    let result = judge(succeeded, &printed);
    if result.is_err() {
        let lines: Vec<&str> = printed.lines().collect();
        let first = lines.len().saturating_sub(OUTPUT_LINES_MAX);
        println!("{}", lines.get(first..).unwrap_or_default().join("\n"));
    }
    Ok(result)
}

/// Makes a temporary directory, in memory where possible: a target may write many small files.
fn temporary() -> Result<tempfile::TempDir> {
    let make = |base: &Path| {
        tempfile::Builder::new()
            .prefix("atoll-fuzz-")
            .tempdir_in(base)
    };
    make(Path::new("/dev/shm"))
        .or_else(|_| make(&std::env::temp_dir()))
        .context("cannot make a temporary directory")
}

/// Reads what libFuzzer printed. A target that ended well without saying how much
/// it has tried has tried nothing.
pub(crate) fn judge(succeeded: bool, printed: &str) -> Result<String, String> {
    let after = |mark: &str| {
        printed.lines().rev().find_map(|line| {
            let (_, rest) = line.split_once(mark)?;
            Some(rest.trim().to_owned())
        })
    };
    match (succeeded, after("Done "), after("Test unit written to ")) {
        (true, Some(runs), None) => Ok(runs),
        (_, _, Some(input)) => Err(format!("FAILED on the input {input}")),
        (true, None, None) => Err("FAILED: it tried nothing".to_owned()),
        (false, _, None) => Err("FAILED: it did not end as it should".to_owned()),
    }
}
