//! The files of a person's configuration that Atoll writes: what they have trusted and allowed.

use std::path::Path;

use atoll_policy::{AllowedHosts, TrustList};

use super::{Places, read_optional};
use crate::failure::{Doing, Failure};

/// Reads the list of trusted project files.
///
/// # Errors
/// When it is there and cannot be read.
pub fn read_trust(places: &Places) -> Result<TrustList, Failure> {
    match read_optional(&places.trust_file())? {
        None => Ok(TrustList::default()),
        Some(file) => TrustList::parse(&file).doing("the list of trusted files cannot be read"),
    }
}

/// Reads the hosts that the person has allowed for projects.
///
/// # Errors
/// When the file is there and cannot be read.
pub(super) fn read_allowed(places: &Places) -> Result<AllowedHosts, Failure> {
    match read_optional(&places.allowed_file())? {
        None => Ok(AllowedHosts::default()),
        Some(file) => AllowedHosts::parse(&file).doing("the allowed hosts cannot be read"),
    }
}

/// Allows a host for a project from its next run on: `to` is a rule as of `--allow`. It goes to the
/// person's own configuration, never to the project.
///
/// # Errors
/// When it cannot be written.
pub fn allow_for_project(places: &Places, workspace: &Path, to: &str) -> Result<(), Failure> {
    let mut hosts = read_allowed(places)?;
    match hosts.add(workspace, to) {
        true => write_configuration(places, &places.allowed_file(), &hosts.to_text()),
        false => Ok(()),
    }
}

/// Writes a file of the person's configuration, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn write_configuration(places: &Places, path: &Path, text: &str) -> Result<(), Failure> {
    let new = path.with_extension("toml.new");
    std::fs::create_dir_all(&places.config)
        .and_then(|()| std::fs::write(&new, text))
        .and_then(|()| std::fs::rename(&new, path))
        .doing(&format!("{} cannot be written", path.display()))
}
