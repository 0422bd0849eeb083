//! Programs that are started: with arguments and variables that are all named here.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::Error;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const MESSAGE_BYTES_MAX: usize = 2000;

/// Returns a command with no variables but those that say where programs are, and the language.
pub(crate) fn command(program: &'static str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var_os("PATH");
    command
        .env_clear()
        .env("PATH", path.as_deref().unwrap_or(OsStr::new(PATH)))
        .env("LC_ALL", "C.UTF-8")
        .current_dir("/")
        .stdin(Stdio::null());
    command
}

/// Runs a command with an input; returns all that it has printed.
pub(crate) fn output(
    command: &mut Command,
    program: &'static str,
    input: &[u8],
) -> Result<Output, Error> {
    let failed = |error: std::io::Error| failure(program, &error.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if input.is_empty() {
        return command.output().map_err(failed);
    }
    let mut child = command.stdin(Stdio::piped()).spawn().map_err(failed)?;
    let stdin = child.stdin.take();
    std::thread::scope(|scope| {
        // A program that ends early says why itself.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output().map_err(failed)
    })
}

/// Returns the error of a program, with the last of its message.
pub(crate) fn failure(program: &'static str, message: &str) -> Error {
    let start = message.len().saturating_sub(MESSAGE_BYTES_MAX);
    let end = (start..message.len())
        .find_map(|at| message.get(at..))
        .unwrap_or_default();
    Error::Program {
        program,
        message: end.trim().to_owned(),
    }
}
