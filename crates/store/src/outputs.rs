//! The directories that sandboxes put files out to, until these are artifacts.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use atoll_ledger::{FileFault, StateDir};
use atoll_model::{OutputsRule, RunId};
use serde::{Deserialize, Serialize};

use crate::{ArtifactOrigin, RunError, remove_directory};

const OUTPUTS: &str = "outputs";
/// The directory that is shown in the sandbox.
const FILES: &str = "files";
/// The rest that is known of a served sandbox, for whoever finds it after a sudden end.
const ORIGIN: &str = "origin";
/// The inputs of the sandbox, for the statement about its outputs.
const INPUTS: &str = "inputs";

/// The facts about an input of a sandbox, as it was put there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFacts {
    /// Its name.
    pub name: String,
    /// The place that it came from: a path, or `artifact:ID`.
    pub source: String,
    /// The hexadecimal SHA-256 digest of a file; of a directory its "Hash1" (in-toto's `dirHash`).
    pub digest: String,
    /// Set for a directory.
    pub is_directory: bool,
    /// Its size, bytes.
    pub bytes: u64,
    /// The number of files.
    pub files: u64,
    /// The media type of a file, by its content.
    pub media: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct Kept {
    tenant: Option<String>,
    sandbox: Option<String>,
    session: Option<String>,
    #[serde(default)]
    rule: OutputsRule,
}

/// Makes the place for the outputs of a run; returns the directory that is to be made for its
/// sandbox.
///
/// # Errors
/// [`RunError::File`].
pub fn begin_outputs(state: &StateDir, origin: &ArtifactOrigin) -> Result<PathBuf, RunError> {
    let place = place(state, &origin.run);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&place)
        .map_err(FileFault::on("create", &place))?;
    let is_plain = origin.tenant.is_none() && origin.session.is_none();
    if !is_plain || origin.rule != OutputsRule::Hold {
        note_origin(state, origin)?;
    }
    Ok(place.join(FILES))
}

/// Notes whose the outputs of a run are.
///
/// # Errors
/// [`RunError::File`].
pub fn note_origin(state: &StateDir, origin: &ArtifactOrigin) -> Result<(), RunError> {
    let kept = Kept {
        tenant: origin.tenant.clone(),
        sandbox: origin.sandbox.clone(),
        session: origin.session.clone(),
        rule: origin.rule,
    };
    let path = place(state, &origin.run).join(ORIGIN);
    let text = serde_json::to_vec(&kept).map_err(std::io::Error::from);
    let written = text.and_then(|text| fs::write(&path, text));
    Ok(written.map_err(FileFault::on("write", &path))?)
}

/// Notes the inputs of a run that has outputs.
///
/// # Errors
/// [`RunError::File`].
pub fn note_inputs(state: &StateDir, run: &RunId, inputs: &[InputFacts]) -> Result<(), RunError> {
    let path = place(state, run).join(INPUTS);
    let text = serde_json::to_vec(inputs).map_err(std::io::Error::from);
    let written = text.and_then(|text| fs::write(&path, text));
    Ok(written.map_err(FileFault::on("write", &path))?)
}

/// Returns the inputs of a run that has outputs.
///
/// # Errors
/// [`RunError::File`].
pub fn noted_inputs(state: &StateDir, run: &RunId) -> Result<Vec<InputFacts>, RunError> {
    let path = place(state, run).join(INPUTS);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(FileFault::on("read", &path))?,
    };
    let inputs = serde_json::from_slice(&text).map_err(std::io::Error::from);
    Ok(inputs.map_err(FileFault::on("read", &path))?)
}

/// Returns the directory of a run's outputs.
#[must_use]
pub fn outputs_dir(state: &StateDir, run: &RunId) -> PathBuf {
    place(state, run).join(FILES)
}

/// Removes the outputs of a run, once they are artifacts.
///
/// # Errors
/// [`RunError`].
pub fn end_outputs(state: &StateDir, run: &RunId) -> Result<(), RunError> {
    remove_directory(&place(state, run))
}

/// Removes the place of a run's outputs, unless there are any.
pub fn end_without_outputs(state: &StateDir, run: &RunId) {
    if fs::remove_dir(outputs_dir(state, run)).is_ok() {
        // What is left of it is empty, and in nobody's way.
        let _ = end_outputs(state, run);
    }
}

/// Returns the runs that have outputs which are no artifacts: those that go on, and those that came
/// to a sudden end.
///
/// # Errors
/// [`RunError::File`].
pub fn left_outputs(state: &StateDir) -> Result<Vec<RunId>, RunError> {
    let directory = state.path().join(OUTPUTS);
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(FileFault::on("read", &directory))?,
    };
    let mut left = Vec::new();
    for entry in entries {
        let name = entry
            .map_err(FileFault::on("read", &directory))?
            .file_name();
        left.extend(name.to_str().and_then(|name| RunId::parse(name).ok()));
    }
    Ok(left)
}

/// Returns whose the outputs are that a run with a sudden end has left; `None` where that cannot be
/// told, and it is not guessed.
///
/// # Errors
/// [`RunError::File`].
pub fn origin_of_left(state: &StateDir, run: &RunId) -> Result<Option<ArtifactOrigin>, RunError> {
    let path = place(state, run).join(ORIGIN);
    let kept: Option<Kept> = match fs::read(&path) {
        Ok(text) => match serde_json::from_slice(&text) {
            Ok(kept) => Some(kept),
            Err(_) => return Ok(None),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(FileFault::on("read", &path)(error).into()),
    };
    let kept = kept.unwrap_or_default();
    Ok(Some(ArtifactOrigin {
        run: run.clone(),
        tenant: kept.tenant,
        sandbox: kept.sandbox,
        session: kept.session,
        interrupted: true,
        rule: kept.rule,
    }))
}

fn place(state: &StateDir, run: &RunId) -> PathBuf {
    state.path().join(OUTPUTS).join(run.as_str())
}
