//! The file of `atoll run --json`.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use atoll_engine::failure::{Doing, Failure, Kind};
use rustix::fs::OFlags;
use serde_json::json;

use crate::arguments::RunArguments;
use crate::output::{Output, json_text};
use crate::status;

/// Opens the file for `--json` before the program runs, so that a link which the program puts in
/// its place afterwards has no effect. `-` is standard error.
///
/// # Errors
/// When it cannot be written, or is no regular file.
pub fn open_json(arguments: &RunArguments) -> Result<Option<File>, Failure> {
    use std::os::unix::fs::OpenOptionsExt;
    let Some(path) = arguments
        .json
        .as_deref()
        .filter(|path| *path != Path::new("-"))
    else {
        return Ok(None);
    };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let failed = format!("--json {} cannot be written", path.display());
    let file = File::options()
        .write(true)
        .create(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path)
        .doing(&failed)?;
    if file.metadata().doing(&failed)?.is_file() {
        Ok(Some(file))
    } else {
        Err(Failure::new(failed).because("it is not a regular file"))
    }
}

/// Reports, as JSON, a run that was denied or did not come to its end.
pub fn tell_failure(
    arguments: &RunArguments,
    json: Option<&File>,
    failure: &Failure,
    output: &Output,
) {
    let Some(path) = &arguments.json else {
        return;
    };
    let state = match failure.kind {
        Kind::Denied => "denied",
        Kind::Failed | Kind::Unproven => "failed",
    };
    let about = failure.about.as_deref();
    let told = json!({
        "run": about.map(|(run, _)| run),
        "state": state,
        "profile": about.map(|(_, profile)| profile),
        "exit": status::of(failure.kind),
        "what": failure.what,
        "why": failure.why,
        "reasons": failure.reasons,
        "advice": crate::hints::texts(&failure.hints),
    });
    let text = json_text(&told);
    match json {
        None => output.say(&text),
        Some(file) => {
            if let Err(second) = write_json(file, path, &text)
                && second.what != failure.what
            {
                output.failure(&second);
            }
        }
    }
}

fn write_json(mut file: &File, path: &Path, text: &str) -> Result<(), Failure> {
    file.set_len(0)
        .and_then(|()| file.write_all(text.as_bytes()))
        .doing(&format!("--json {} cannot be written", path.display()))
}

/// Writes a text where `--json` says: to the file that was opened for it, or to standard error.
///
/// # Errors
/// When it cannot be written.
pub fn write_told(
    arguments: &RunArguments,
    json: Option<&File>,
    text: &str,
    output: &Output,
) -> Result<(), Failure> {
    match (json, &arguments.json) {
        (Some(file), Some(path)) => write_json(file, path, text),
        (None, _) | (_, None) => {
            output.say(text);
            Ok(())
        }
    }
}
