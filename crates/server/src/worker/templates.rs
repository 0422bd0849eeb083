//! The templates that are shipped: the host's system, and an interpreter of code over it.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use atoll_engine::sandboxes::TEMPLATE_DIRECTORY;
use atoll_model::ServedExec;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use super::living::Living;
use super::{Worker, fault};
use crate::protocol::{CODE_INTERPRETER, Kind, Refusal, StartAsk};

/// The port of the code interpreter, as E2B has it.
const INTERPRETER_PORT: u16 = 49999;
/// The longest time for it to begin.
const BEGINS_WITHIN: Duration = Duration::from_secs(15);
/// The time between two attempts to reach it.
const AGAIN: Duration = Duration::from_millis(5);

/// The interpreter, which runs in the sandbox with the rights of its programs.
const FILES: [(&str, &str); 9] = [
    ("server.py", include_str!("../interpreter/server.py")),
    ("api.py", include_str!("../interpreter/api.py")),
    ("contexts.py", include_str!("../interpreter/contexts.py")),
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
    let place = place(state);
    let directory = packages(&place).unwrap_or_else(|| place.join("0"));
    fs::create_dir_all(&directory)?;
    let readable =
        |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    readable(&directory, 0o755)?;
    for (name, content) in FILES {
        let path = directory.join(name);
        let is_there = fs::read(&path)
            .is_ok_and(|there| Sha256::digest(there) == Sha256::digest(content.as_bytes()));
        if !is_there {
            // A sandbox that runs has the one before: another file takes its name.
            let new = directory.join(format!(".{name}"));
            fs::write(&new, content)?;
            readable(&new, 0o644)?;
            fs::rename(&new, &path)?;
        }
    }
    Ok(directory)
}

impl Worker {
    /// Returns the files of a shipped template, if it has any.
    pub(super) fn template_files(&self, shipped: &str) -> Option<PathBuf> {
        let files = self.templates.as_ref()?;
        (shipped == CODE_INTERPRETER).then(|| files.clone())
    }

    /// Starts the interpreter of a sandbox that has one, where nothing answers at its port; returns
    /// whether it answers then.
    pub(super) async fn ready_port(
        self: &Arc<Self>,
        living: &Arc<Living>,
        port: u16,
    ) -> Result<bool, Refusal> {
        if port != INTERPRETER_PORT || living.shipped != CODE_INTERPRETER {
            return Ok(false);
        }
        let _one_by_one = living.interpreter.lock().await;
        // Whoever came before may have started it.
        if living.files.connect(port).await.is_ok() {
            return Ok(true);
        }
        let ask = StartAsk {
            command: vec![
                "python3".to_owned(),
                format!("{TEMPLATE_DIRECTORY}/server.py"),
            ],
            ..StartAsk::default()
        };
        let (process, _reading) = self.start(living, ask, ServedExec::default()).await?;
        let until = Instant::now() + BEGINS_WITHIN;
        while living.files.connect(port).await.is_err() {
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
        Ok(true)
    }
}

/// Prepares the files of the shipped templates.
pub(super) fn prepare(state: &Path) -> Option<PathBuf> {
    furnish(state)
        .inspect_err(|error| {
            eprintln!("atoll serve: no {CODE_INTERPRETER}: {}", fault(error).what);
        })
        .ok()
}
