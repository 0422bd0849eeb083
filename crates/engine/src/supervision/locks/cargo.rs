//! `Cargo.lock`.

use atoll_model::network::Lock;
use serde::Deserialize;

use super::{toml_of, unknown_version};

/// The newest known version; the first two are not written in the file.
const VERSION_MAX: i64 = 4;
/// The sources that mean crates.io.
const SOURCES: [&str; 2] = [
    "registry+https://github.com/rust-lang/crates.io-index",
    "sparse+https://index.crates.io/",
];

/// A lock file, without the fields that are not needed.
#[derive(Deserialize)]
struct File {
    version: Option<i64>,
    #[serde(default)]
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// `None` for a package of the project itself.
    source: Option<String>,
}

/// Adds the releases from crates.io. Packages from git, another registry or a directory are
/// skipped.
pub(super) fn read(text: &str, lock: &mut Lock) -> Result<(), String> {
    let file: File = toml_of(text)?;
    if let Some(version) = file.version.filter(|version| *version > VERSION_MAX) {
        return Err(unknown_version(version));
    }
    for package in &file.package {
        let source = package.source.as_deref().unwrap_or_default();
        if SOURCES.contains(&source) {
            lock.add(&package.name, &package.version);
        }
    }
    Ok(())
}
