//! The templates that are shipped: the host's system, and an interpreter of code over it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use atoll_engine::sandboxes::TEMPLATE_DIRECTORY;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

use super::answers::fault;
use super::files::Files;
use super::process::Process;
use crate::protocol::{CODE_INTERPRETER, INTERPRETER_PORT, Kind, Refusal};
use crate::rfc3339::milliseconds;

/// The longest time for it to begin.
const BEGINS_WITHIN: Duration = Duration::from_secs(15);
/// The time between two attempts to reach it.
const AGAIN: Duration = Duration::from_millis(5);

/// The longest time for what it does that no caller has asked for.
const DONE_WITHIN: Duration = Duration::from_secs(40);
/// The packages that are imported ahead where they are there.
pub(super) const IMPORTED: [&str; 3] = ["numpy", "pandas", "matplotlib.pyplot"];
/// The beginnings of the variables that it, and these, look at when they begin: the C library's,
/// the loader's, Python's and theirs.
pub(super) const READ_EARLY: [&str; 25] = [
    "ARROW_",
    "BLAS_",
    "FC_",
    "FONTCONFIG_",
    "GLIBC_",
    "GOTO_",
    "HOME",
    "LANG",
    "LC_",
    "LD_",
    "MALLOC_",
    "MATPLOTLIB",
    "MKL_",
    "MPL",
    "NPY_",
    "NUM",
    "OMP_",
    "OPENBLAS_",
    "PANDAS",
    "PATH",
    "PYTHON",
    "TEMP",
    "TMP",
    "TZ",
    "XDG_",
];
/// The length of the beginning of an answer, with its status, bytes.
const HEAD_BYTES: usize = "HTTP/1.1 204".len();
/// The file that the interpreter begins with.
pub(super) const SERVER: &str = "server.py";

/// The interpreter, which runs in the sandbox with the rights of its programs.
const FILES: [(&str, &str); 11] = [
    (SERVER, include_str!("../interpreter/server.py")),
    ("api.py", include_str!("../interpreter/api.py")),
    ("contexts.py", include_str!("../interpreter/contexts.py")),
    ("frozen.py", include_str!("../interpreter/frozen.py")),
    ("thawed.py", include_str!("../interpreter/thawed.py")),
    ("kernels.py", include_str!("../interpreter/kernels.py")),
    ("kernel.py", include_str!("../interpreter/kernel.py")),
    (
        "representation.py",
        include_str!("../interpreter/representation.py"),
    ),
    ("scripts.py", include_str!("../interpreter/scripts.py")),
    ("kernel.js", include_str!("../interpreter/kernel.js")),
    ("Kernel.java", include_str!("../interpreter/Kernel.java")),
];
/// The program that goes on from a file with the interpreter's memory; empty where there is none
/// for this architecture.
const THAW: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/thaw"));
/// The directory of the packages that were built, beside these.
pub const PACKAGES: &str = "site";

/// Returns the directory of the shipped templates' files.
#[must_use]
pub fn place(state: &Path) -> PathBuf {
    state.join("served/templates").join(CODE_INTERPRETER)
}

/// Returns the packages that were built last: the directory with the highest number.
fn packages(place: &Path) -> Option<PathBuf> {
    let all = fs::read_dir(place).into_iter().flatten().flatten();
    let numbered = all.filter_map(|one| {
        let number: u64 = one.file_name().to_str()?.parse().ok()?;
        Some((number, one.path()))
    });
    numbered.max().map(|(_, path)| path)
}

/// Writes the files of the interpreter where they are not there yet, and returns their directory:
/// that of the packages that were built last, else one without any.
///
/// # Errors
/// The kernel's.
pub fn furnish(state: &Path) -> io::Result<PathBuf> {
    let directory = directory(state);
    furnish_in(&directory)?;
    Ok(directory)
}

/// Returns the packages of the interpreter that were built last: the number of their build, and its
/// time, milliseconds since 1970.
#[must_use]
pub fn built(state: &Path) -> Option<(u64, u64)> {
    let packages = packages(&place(state))?;
    let number = packages.file_name()?.to_str()?.parse().ok();
    let number = number.filter(|number| *number > 0)?;
    let made = packages.join(PACKAGES).metadata().ok()?.modified().ok()?;
    Some((number, milliseconds(made)))
}

pub(super) fn directory(state: &Path) -> PathBuf {
    let place = place(state);
    packages(&place).unwrap_or_else(|| place.join("0"))
}

/// Writes the files of the interpreter to a directory, beside its packages.
///
/// # Errors
/// The kernel's.
pub fn furnish_in(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let readable =
        |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    readable(directory, 0o755)?;
    let texts = FILES.map(|(name, text)| (name, text.as_bytes(), 0o644));
    let program = (!THAW.is_empty()).then_some(("thaw", THAW, 0o755));
    for (name, content, mode) in texts.into_iter().chain(program) {
        let path = directory.join(name);
        let is_there =
            fs::read(&path).is_ok_and(|there| Sha256::digest(there) == Sha256::digest(content));
        if !is_there {
            // A sandbox that runs has the one before: another file takes its name.
            let new = directory.join(format!(".{name}"));
            fs::write(&new, content)?;
            readable(&new, mode)?;
            fs::rename(&new, &path)?;
        }
    }
    Ok(())
}

/// Returns the command of the interpreter.
pub(super) fn command() -> [String; 2] {
    [
        "python3".to_owned(),
        format!("{TEMPLATE_DIRECTORY}/{SERVER}"),
    ]
}

/// Waits until the interpreter answers at its port.
pub(super) async fn begun(files: &Arc<Files>, process: &Process) -> Result<(), Refusal> {
    let until = Instant::now() + BEGINS_WITHIN;
    while files.connect(INTERPRETER_PORT).await.is_err() {
        if process.window.over().is_some() {
            let what = "the code interpreter has ended before it began";
            return Err(Refusal::new(Kind::Unavailable, what)
                .advise("python3 of the server's machine runs it, 3.9 or later"));
        }
        if Instant::now() > until {
            let what = "the code interpreter does not begin";
            return Err(Refusal::new(Kind::Unavailable, what));
        }
        sleep(AGAIN).await;
    }
    Ok(())
}

/// Has the interpreter import what its first cell may want; it does without what is not there.
pub(super) async fn import_ahead(files: &Arc<Files>) -> Result<(), Refusal> {
    tell(files, "/prepare", &json!({ "modules": IMPORTED })).await
}

/// Returns whether the interpreter, or what it imports ahead, may have looked at a variable before
/// it was set.
pub(super) fn is_read_early(variable: &str) -> bool {
    READ_EARLY.iter().any(|begin| variable.starts_with(begin))
}

/// Sets variables of the interpreter's contexts.
pub(super) async fn set_variables(
    files: &Arc<Files>,
    variables: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    tell(files, "/variables", &json!({ "variables": variables })).await
}

/// Has the interpreter do something of Atoll's own.
async fn tell(files: &Arc<Files>, path: &str, body: &Value) -> Result<(), Refusal> {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut port = files.connect(INTERPRETER_PORT).await?;
    let mut answer = [0; HEAD_BYTES];
    let asked = timeout(DONE_WITHIN, async {
        port.write_all(request.as_bytes()).await?;
        port.read_exact(&mut answer).await
    });
    match asked.await {
        Ok(Ok(_)) if answer.ends_with(b" 204") => Ok(()),
        _ => {
            let what = "the code interpreter does not do what it is told";
            Err(Refusal::new(Kind::Unavailable, what))
        }
    }
}

/// Prepares the files of the shipped templates.
pub(super) fn prepare(state: &Path) {
    if let Err(error) = furnish(state) {
        eprintln!("atoll serve: no {CODE_INTERPRETER}: {}", fault(&error).what);
    }
}

/// Returns the variables of all programs of a sandbox.
pub(super) fn environment(
    id: &str,
    is_interpreter: bool,
    asked: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all = asked;
    if is_interpreter {
        let packages = format!("{TEMPLATE_DIRECTORY}/{PACKAGES}");
        all.entry("PYTHONPATH".to_owned()).or_insert(packages);
    }
    // A system that is the sandbox's alone is not broken by what pip installs (PEP 668).
    let of_pip = "PIP_BREAK_SYSTEM_PACKAGES".to_owned();
    all.entry(of_pip).or_insert_with(|| "1".to_owned());
    all.insert("E2B_SANDBOX".to_owned(), "true".to_owned());
    all.insert("E2B_SANDBOX_ID".to_owned(), id.to_owned());
    all
}

/// Returns the programs that run in a sandbox made ahead.
pub(super) fn programs(shipped: &str) -> Vec<Vec<OsString>> {
    let interpreter = || command().map(OsString::from).into();
    (shipped == CODE_INTERPRETER)
        .then(interpreter)
        .into_iter()
        .collect()
}
