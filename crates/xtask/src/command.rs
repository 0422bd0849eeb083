//! Running other programs, with errors that name the program.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Returns the cargo that started this task, so that one toolchain does everything.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    command
}

/// Runs a program to its end and returns its standard output; a failure is an error with what it
/// wrote to standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = display(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{name}: {}: {}", output.status, said.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} wrote what is not UTF-8"))
}

/// Runs a program with this terminal's output; returns whether it succeeded.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    let name = display(command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {name}"))?;
    Ok(status.success())
}

/// Runs a program with this terminal's output; a failure is an error.
pub(crate) fn required(command: &mut Command) -> Result<()> {
    if succeeds(command)? {
        return Ok(());
    }
    bail!("{} failed", display(command))
}

/// The interval at which a running program is polled.
const POLL: Duration = Duration::from_millis(20);

/// Runs a program to its end; returns `None` if it was killed after `longest`.
pub(crate) fn wait(command: &mut Command, longest: Duration) -> Result<Option<ExitStatus>> {
    let end = Instant::now() + longest;
    let name = display(command);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

/// Returns the path of a program in `PATH`, or in the administrators' directories, which an
/// ordinary user's `PATH` often lacks.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

fn display(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    words.join(" ")
}
