//! Words that files choose among, and names that can be joined to a directory.

use atoll_model::{OutputsRule, WorkspaceMode};

use crate::document::Complaint;
use crate::suggest::nearest;

/// The author of a file: a project's may set less than a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// A file written as a profile, by a person, the organisation or Atoll.
    Profile,
    /// A file that comes with a project.
    Project,
}

/// Parses a workspace mode.
pub(crate) fn parse_workspace(text: &str) -> Result<WorkspaceMode, Complaint> {
    match text {
        "copy-on-write" => Ok(WorkspaceMode::CopyOnWrite),
        "live" => Ok(WorkspaceMode::Live),
        "read-only" => Ok(WorkspaceMode::ReadOnly),
        _ => Err(among(text, &["copy-on-write", "live", "read-only"])),
    }
}

pub(crate) fn parse_outputs(text: &str) -> Result<OutputsRule, Complaint> {
    let names = OutputsRule::ALL.map(OutputsRule::name);
    OutputsRule::named(text).ok_or_else(|| among(text, &names))
}

/// Returns the name of a workspace mode, as written in files.
pub(crate) fn workspace_name(mode: WorkspaceMode) -> &'static str {
    match mode {
        WorkspaceMode::CopyOnWrite => "copy-on-write",
        WorkspaceMode::Live => "live",
        WorkspaceMode::ReadOnly => "read-only",
    }
}

/// Creates the complaint about a word that is none of the known ones.
pub(crate) fn among(written: &str, known: &[&str]) -> Complaint {
    let known_ones = known.join(", ");
    let advice = match nearest(written, known.iter().copied()) {
        Some(word) => format!("did you mean {word:?}? Write one of: {known_ones}"),
        None => format!("write one of: {known_ones}"),
    };
    Complaint::new(format!("{written:?} is not known here"), advice)
}

/// Parses a profile's name, which is safe to join to a directory.
pub(crate) fn parse_profile_name(text: &str) -> Result<String, Complaint> {
    if is_profile_name(text) {
        Ok(text.to_owned())
    } else {
        Err(Complaint::new(
            format!("{text:?} is not a profile's name"),
            "letters, digits, `-` and `_`, at most 64",
        ))
    }
}

/// Returns whether the text can be a profile's name.
pub(crate) fn is_profile_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// Parses a purpose's name in a file.
pub(crate) fn parse_purpose(name: &str) -> Result<String, Complaint> {
    match is_profile_name(name) {
        true => Ok(name.to_owned()),
        false => Err(Complaint::new(
            format!("{name:?} is no purpose's name"),
            "letters, digits, `-` and `_`, at most 64",
        )),
    }
}
