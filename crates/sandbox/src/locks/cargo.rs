//! `Cargo.lock`.

use atoll_model::network::Lock;
use serde::Deserialize;

use super::{toml_of, unknown_version};

/// The newest form that there is; the first two write no version.
const VERSION_MAX: i64 = 4;
/// What stands for crates.io.
const SOURCES: [&str; 2] = [
    "registry+https://github.com/rust-lang/crates.io-index",
    "sparse+https://index.crates.io/",
];

/// The whole of it; what is not needed is passed over.
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
    /// None where it is a part of the project itself.
    source: Option<String>,
}

/// Takes up what it names of crates.io: what comes from git, another registry or a directory
/// is none of it.
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
