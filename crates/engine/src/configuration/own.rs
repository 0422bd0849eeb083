//! The files of a person's configuration that Atoll writes: what they have trusted and allowed.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use atoll_policy::{AllowedHost, AllowedHosts, TrustList};

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
        Some(file) => AllowedHosts::parse(&file)
            .doing("the allowed hosts cannot be read")
            .map_err(|failure| failure.advise("mend or remove that line of the file")),
    }
}

/// Allows a host for a project's runs by a profile, from the next on: `to` is a rule as of `--allow`.
/// It goes to the person's own configuration, never to the project.
///
/// # Errors
/// When it cannot be written, as for a directory whose path is not UTF-8.
pub fn allow_for_project(
    places: &Places,
    workspace: &Path,
    profile: &str,
    to: &str,
) -> Result<(), Failure> {
    let failed = "the host cannot be allowed for the project";
    let directory = workspace.to_str().map(str::to_owned);
    let directory = directory
        .ok_or_else(|| Failure::new(failed).because("the directory's path is not UTF-8"))?;
    std::fs::create_dir_all(&places.config).doing(failed)?;
    // Of two runs that do so at the same time one waits.
    let lock = File::open(&places.config).doing(failed)?;
    lock.lock().doing(failed)?;
    let mut hosts = read_allowed(places)?;
    hosts.add(AllowedHost {
        directory,
        profile: profile.to_owned(),
        to: to.to_owned(),
    });
    write_configuration(places, &places.allowed_file(), &hosts.to_text())
}

/// Writes a file of the person's configuration, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn write_configuration(places: &Places, path: &Path, text: &str) -> Result<(), Failure> {
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    };
    std::fs::create_dir_all(&places.config)
        .and_then(|()| write())
        .doing(&format!("{} cannot be written", path.display()))
}
