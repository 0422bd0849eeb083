//! Builds the test executables and the programs that they start, and finds them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::command;
use crate::person::Stage;

/// The arguments of cargo that choose a build profile.
type How = &'static [&'static str];

/// The profile of releases, as users get them; linking takes minutes for each program.
pub(crate) const AS_USERS: How = &["--release"];
/// A profile with the same code, linked in a fraction of the time.
const FOR_TESTS: How = &["--profile", "tests"];
/// The profile of programs that only tests start: it shares the build of the unit tests.
const QUICKLY: How = &[];

/// The test programs as cargo-nextest lists them, where everyone can start them.
pub(crate) struct Staged {
    /// The file for `--binaries-metadata`.
    pub(crate) binaries: PathBuf,
    /// The file for `--cargo-metadata`.
    pub(crate) cargo: PathBuf,
}

/// The programs that end-to-end tests start.
pub(crate) struct Programs {
    /// `atoll` as users get it, apart from its linking.
    pub(crate) ordinary: PathBuf,
    /// `atoll` with defences that a test can leave out, to see an attack succeed.
    pub(crate) weakened: PathBuf,
    /// The program that makes many sandboxes from one process.
    pub(crate) spawner: PathBuf,
    /// A program that makes a sandbox by the engine's library.
    pub(crate) sandbox: PathBuf,
    /// The prover of policies, which `atoll` finds beside itself; for nightly tests alone.
    pub(crate) prover: Option<PathBuf>,
}

/// The part of cargo's messages that is read here.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// Builds all test programs; returns them as cargo-nextest lists them.
pub(crate) fn tests(root: &Path, nextest: &Path) -> Result<serde_json::Value> {
    let mut command = Command::new(nextest);
    command
        .current_dir(root)
        .args(["nextest", "list", "--workspace", "--cargo-quiet"])
        .args(["--list-type", "binaries-only", "--message-format", "json"]);
    command.stderr(Stdio::inherit());
    let text = command::output(&mut command)?;
    serde_json::from_str(&text).context("cargo-nextest wrote what is no JSON")
}

/// Links the test programs to where everyone can start them.
pub(crate) fn stage(root: &Path, stage: &Stage, mut listed: serde_json::Value) -> Result<Staged> {
    let binaries = listed
        .get_mut("rust-binaries")
        .and_then(|all| all.as_object_mut());
    for binary in binaries
        .context("cargo-nextest lists no test")?
        .values_mut()
    {
        let path = binary
            .get_mut("binary-path")
            .context("a test without a program")?;
        let source = PathBuf::from(path.as_str().unwrap_or_default());
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        *path = stage.link(&source, &name)?.to_string_lossy().into();
    }
    let staged = Staged {
        binaries: stage.path().join("binaries.json"),
        cargo: stage.path().join("cargo.json"),
    };
    fs::write(&staged.binaries, listed.to_string())?;
    let mut cargo = command::cargo();
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]);
    let cargo = command::output(cargo.current_dir(root))?;
    fs::write(&staged.cargo, cargo)?;
    Ok(staged)
}

/// Builds the programs that end-to-end tests start; the prover for nightly ones alone.
pub(crate) fn programs(root: &Path, nightly: bool) -> Result<Programs> {
    Ok(Programs {
        ordinary: build_program(root, "atoll", FOR_TESTS, &["--bin", "atoll"])?,
        weakened: weakened(root, QUICKLY)?,
        spawner: spawner(root, QUICKLY)?,
        sandbox: build_program(
            root,
            "sandbox",
            QUICKLY,
            &["--package", "atoll-engine", "--example", "sandbox"],
        )?,
        prover: nightly.then(|| super::prover::program(root)).transpose()?,
    })
}

/// Builds `atoll` as users get it.
pub(crate) fn program(root: &Path) -> Result<PathBuf> {
    build_program(root, "atoll", AS_USERS, &["--bin", "atoll"])
}

/// Builds the program in which a test can leave defences out.
pub(crate) fn weakened(root: &Path, how: How) -> Result<PathBuf> {
    let name = "atoll-without-defences";
    let which = ["--bin", name, "--features", "without_defences"];
    build_program(root, name, how, &which)
}

/// Builds the program that makes many sandboxes.
pub(crate) fn spawner(root: &Path, how: How) -> Result<PathBuf> {
    build_program(root, "spawner", how, &["--example", "spawner"])
}

/// Builds the program that measures the ledger.
pub(crate) fn figures(root: &Path) -> Result<PathBuf> {
    // Beside the program's package, so that what both need is built once.
    build_program(
        root,
        "figures",
        AS_USERS,
        &["--package", "atoll-store", "--example", "figures"],
    )
}

/// Builds the program that measures the decision's share of a run.
pub(crate) fn share(root: &Path) -> Result<PathBuf> {
    build_program(
        root,
        "share",
        AS_USERS,
        &["--package", "atoll-policy", "--example", "share"],
    )
}

fn build_program(root: &Path, name: &str, how: How, which: &[&str]) -> Result<PathBuf> {
    let build = ["build", "--package", "atoll-cli"];
    program_of(root, name, &[&build, how, which].concat())
}

/// Runs cargo with these arguments; returns the program of this name that it built.
pub(crate) fn program_of(
    root: &Path,
    name: &str,
    arguments: &[impl AsRef<str>],
) -> Result<PathBuf> {
    let text = messages(root, arguments)?;
    let mut found = None;
    for message in parse(&text)? {
        let is_program = message.target.is_some_and(|target| target.name == name);
        if is_program && message.executable.is_some() {
            found = message.executable;
        }
    }
    found.with_context(|| format!("cargo built no program called {name}"))
}

fn messages(root: &Path, arguments: &[impl AsRef<str>]) -> Result<String> {
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    let mut command = command::cargo();
    command
        .current_dir(root)
        .args(&arguments)
        .args(["--quiet", "--message-format=json-render-diagnostics"])
        .stderr(std::process::Stdio::inherit());
    let output = command.output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo {} failed", arguments.join(" "));
    }
    String::from_utf8(output.stdout).context("cargo wrote what is not UTF-8")
}

fn parse(text: &str) -> Result<Vec<Message>> {
    text.lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).context("cargo's message has an unexpected form"))
        .collect()
}
