//! Builds the test executables and the programs that they start, and finds them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::command;
use crate::person::{Person, Stage};

/// The arguments of cargo that choose a build profile.
type How = &'static [&'static str];

/// The profile of what is handed out; linking takes minutes for each program.
pub(crate) const AS_USERS: How = &["--profile", "dist"];

/// The prefix of the names of test programs that run as the ordinary user: the same programs are
/// listed once more, so that one run has the tests of both.
pub(super) const AS_ORDINARY_USER: &str = "user-";
/// Their kind, by which filters of cargo-nextest know them: it refuses names that no build has.
pub(super) const USER: &str = "user";

/// The program in which a test can leave defences out.
const WEAKENED: &str = "atoll-without-defences";

/// The test programs as cargo-nextest lists them, where everyone can start them.
pub(crate) struct Staged {
    /// The file for `--binaries-metadata`.
    pub(crate) binaries: PathBuf,
    /// The file for `--cargo-metadata`.
    pub(crate) cargo: PathBuf,
}

impl Staged {
    /// Returns the file that the events of a run go to.
    pub(super) fn events(&self) -> PathBuf {
        self.binaries.with_file_name("events.json")
    }
}

/// The programs that end-to-end tests start.
pub(crate) struct Programs {
    /// `atoll`, as the tests are built.
    pub(crate) ordinary: PathBuf,
    /// `atoll` with defences that a test can leave out, to see an attack succeed.
    pub(crate) weakened: PathBuf,
    /// The program that makes many sandboxes from one process.
    pub(crate) spawner: PathBuf,
    /// A program that makes a sandbox by the engine's library.
    pub(crate) sandbox: PathBuf,
    /// The prover of policies, which `atoll` finds beside itself; for nightly tests alone.
    pub(crate) prover: Option<PathBuf>,
    /// The directory of the packages that are handed out; for nightly tests alone.
    pub(crate) packages: Option<PathBuf>,
}

impl Programs {
    /// Copies them to where everyone can start them.
    pub(crate) fn placed(&self, stage: &Stage) -> Result<Self> {
        let prover = self.prover.as_ref();
        Ok(Self {
            ordinary: stage.place(&self.ordinary, "atoll")?,
            weakened: stage.place(&self.weakened, WEAKENED)?,
            spawner: stage.place(&self.spawner, "spawner")?,
            sandbox: stage.place(&self.sandbox, "sandbox")?,
            prover: prover
                .map(|prover| stage.place(prover, "atoll-prove"))
                .transpose()?,
            packages: self.packages.clone(),
        })
    }
}

/// The part of cargo's messages that is read here.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// Builds all test programs and the programs that they start; returns the former as cargo-nextest
/// lists them. The prover is for nightly tests alone.
pub(crate) fn build(
    root: &Path,
    nextest: &Path,
    prover: bool,
) -> Result<(serde_json::Value, Programs)> {
    // All at once, so that all have the same features of the same dependencies.
    let text = messages(root, &["build", "--workspace", "--all-targets"])?;
    let built = parse(&text)?;
    let find = |name: &str| executable(&built, name);
    // Examples are among the targets, so that dependencies have those features here too.
    let which = ["--workspace", "--bin", WEAKENED, "--example", "spawner"];
    let feature = ["--features", "atoll-cli/without_defences"];
    let weakened = program_of(root, WEAKENED, &[&["build"], &which[..], &feature].concat())?;
    let programs = Programs {
        ordinary: find("atoll")?,
        weakened,
        spawner: find("spawner")?,
        sandbox: find("sandbox")?,
        prover: prover.then(|| super::prover::program(root)).transpose()?,
        packages: None,
    };
    let mut command = Command::new(nextest);
    command
        .current_dir(root)
        .args(["nextest", "list", "--workspace", "--cargo-quiet"])
        .args(["--list-type", "binaries-only", "--message-format", "json"]);
    command.stderr(Stdio::inherit());
    let text = command::output(&mut command)?;
    let listed = serde_json::from_str(&text).context("cargo-nextest wrote what is no JSON")?;
    Ok((listed, programs))
}

/// Links the test programs to where everyone can start them, and lists them once more for each
/// person but the caller.
pub(crate) fn stage(
    root: &Path,
    stage: &Stage,
    mut listed: serde_json::Value,
    ordinary: Option<&Person>,
) -> Result<Staged> {
    let binaries = listed
        .get_mut("rust-binaries")
        .and_then(|all| all.as_object_mut())
        .context("cargo-nextest lists no test")?;
    let mut further = serde_json::Map::new();
    for (id, binary) in binaries.iter_mut() {
        let path = binary
            .get("binary-path")
            .and_then(|path| path.as_str())
            .context("a test without a program")?;
        let source = PathBuf::from(path);
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        let staged = stage.link(&source, &name)?;
        set(binary, "binary-path", &staged.to_string_lossy());
        let Some(person) = ordinary else { continue };
        let started = person.starter(&staged, &stage.path().join(format!("as-user-{name}")))?;
        let mut again = binary.clone();
        let own = binary.get("binary-name").and_then(|name| name.as_str());
        let own = own.context("a test program without a name")?;
        let id = format!("{AS_ORDINARY_USER}{id}");
        set(&mut again, "binary-id", &id);
        set(
            &mut again,
            "binary-name",
            &format!("{AS_ORDINARY_USER}{own}"),
        );
        set(&mut again, "binary-path", &started.to_string_lossy());
        set(&mut again, "kind", USER);
        further.insert(id, again);
    }
    binaries.extend(further);
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

fn set(object: &mut serde_json::Value, key: &str, value: &str) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value.into());
    }
}

/// Builds `atoll` as users get it, but linked with the host's C library.
pub(crate) fn program(root: &Path) -> Result<PathBuf> {
    build_program(root, "atoll", AS_USERS, &["--bin", "atoll"])
}

/// Builds the program in which a test can leave defences out.
pub(crate) fn weakened(root: &Path, how: How) -> Result<PathBuf> {
    let which = ["--bin", WEAKENED, "--features", "without_defences"];
    build_program(root, WEAKENED, how, &which)
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
    executable(&parse(&messages(root, arguments)?)?, name)
}

/// Returns the last program of this name that is no test.
fn executable(messages: &[Message], name: &str) -> Result<PathBuf> {
    let is_it = |message: &&Message| {
        let target = message.target.as_ref();
        let is_test = message.profile.as_ref().is_some_and(|how| how.test);
        target.is_some_and(|target| target.name == name) && !is_test
    };
    let mut those = messages.iter().rev().filter(is_it);
    let found = those.find_map(|message| message.executable.clone());
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
