//! Building the test executables and the program, and finding them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::END_TO_END;
use crate::command;

/// By which profile cargo builds.
type How = &'static [&'static str];

/// As users get it. Linking that takes minutes for each program.
pub(crate) const AS_USERS: How = &["--release"];
/// What only tests start: of the parts that unit tests are made of.
const QUICKLY: How = &[];

/// One test executable of one crate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestBinary {
    /// The crate's folder and the test's own name, as in `model/lib`.
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    /// The directory of the crate, from which cargo would start it.
    pub(crate) package: PathBuf,
}

pub(crate) struct Built {
    pub(crate) unit: Vec<TestBinary>,
    /// The programs and the tests that start them.
    pub(crate) end_to_end: Option<(Programs, Vec<TestBinary>)>,
}

/// What end-to-end tests start.
pub(crate) struct Programs {
    /// The program as users get it.
    pub(crate) ordinary: PathBuf,
    /// The same where a test can leave a defence out, to see an attack succeed.
    pub(crate) weakened: PathBuf,
    /// Makes many sandboxes from one process.
    pub(crate) spawner: PathBuf,
    /// Proves policies; found beside the program.
    pub(crate) prover: PathBuf,
}

/// The part of cargo's messages that is read here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

pub(crate) fn unit_tests(root: &Path, end_to_end: bool) -> Result<Vec<TestBinary>> {
    let mut arguments = vec!["test", "--workspace", "--no-run"];
    if end_to_end {
        arguments.extend(["--exclude", END_TO_END]);
    }
    tests_in(&messages(root, &arguments)?)
}

pub(crate) fn end_to_end_tests(root: &Path) -> Result<Vec<TestBinary>> {
    tests_in(&messages(
        root,
        &["test", "--package", END_TO_END, "--no-run"],
    )?)
}

/// The programs that end-to-end tests start.
pub(crate) fn programs(root: &Path) -> Result<Programs> {
    Ok(Programs {
        ordinary: program(root)?,
        weakened: weakened(root, QUICKLY)?,
        spawner: spawner(root, QUICKLY)?,
        prover: super::prover::program(root)?,
    })
}

/// The program as users get it.
pub(crate) fn program(root: &Path) -> Result<PathBuf> {
    build_program(root, "atoll", AS_USERS, &["--bin", "atoll"])
}

/// The program in which a test can leave defences out.
pub(crate) fn weakened(root: &Path, how: How) -> Result<PathBuf> {
    let name = "atoll-without-defences";
    let which = ["--bin", name, "--features", "without_defences"];
    build_program(root, name, how, &which)
}

/// The program that makes many sandboxes.
pub(crate) fn spawner(root: &Path, how: How) -> Result<PathBuf> {
    build_program(root, "spawner", how, &["--example", "spawner"])
}

/// The program that measures the ledger.
pub(crate) fn figures(root: &Path) -> Result<PathBuf> {
    // Beside the program's package, so that what both need is built once.
    build_program(
        root,
        "figures",
        AS_USERS,
        &["--package", "atoll-store", "--example", "figures"],
    )
}

/// The program that measures what the decision takes of a run.
pub(crate) fn share(root: &Path) -> Result<PathBuf> {
    build_program(
        root,
        "share",
        AS_USERS,
        &["--package", "atoll-policy", "--example", "share"],
    )
}

fn build_program(root: &Path, name: &str, how: How, which: &[&str]) -> Result<PathBuf> {
    let build = ["build", "--package", "atoll"];
    program_of(root, name, &[&build, how, which].concat())
}

/// The program of this name that cargo builds with these arguments.
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

/// The tests that cargo builds with these arguments.
pub(crate) fn tests_of(root: &Path, arguments: &[impl AsRef<str>]) -> Result<Vec<TestBinary>> {
    tests_in(&messages(root, arguments)?)
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

pub(crate) fn tests_in(text: &str) -> Result<Vec<TestBinary>> {
    let mut found = Vec::new();
    for message in parse(text)? {
        let is_test = message.profile.is_some_and(|profile| profile.test);
        if message.reason != "compiler-artifact" || !is_test {
            continue;
        }
        let (Some(target), Some(executable)) = (message.target, message.executable) else {
            continue;
        };
        let package = message.manifest_path.as_deref().and_then(Path::parent);
        let package = package.context("a test without a manifest")?.to_path_buf();
        let folder = package.file_name().unwrap_or_default().to_string_lossy();
        let is_library = target.kind.iter().any(|kind| kind == "lib");
        let own = if is_library {
            "lib"
        } else {
            target.name.as_str()
        };
        found.push(TestBinary {
            name: format!("{folder}/{own}"),
            executable,
            package,
        });
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}
