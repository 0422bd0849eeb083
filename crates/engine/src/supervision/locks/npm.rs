//! `package-lock.json` and `npm-shrinkwrap.json`.

use std::collections::BTreeMap;

use atoll_model::network::Lock;
use serde::Deserialize;

use super::unknown_version;

/// The known versions (package-lock.json, `lockfileVersion`).
const VERSIONS: std::ops::RangeInclusive<u64> = 1..=3;

/// A lock file, without the fields that are not needed.
#[derive(Deserialize)]
struct File {
    #[serde(rename = "lockfileVersion")]
    version: u64,
    /// From version 2 on: packages by path.
    packages: Option<BTreeMap<String, Package>>,
    /// In version 1: packages by name, each with those beneath it.
    dependencies: Option<BTreeMap<String, Package>>,
}

#[derive(Deserialize)]
struct Package {
    /// The name, if it differs from the path's.
    name: Option<String>,
    version: Option<String>,
    resolved: Option<Resolved>,
    #[serde(default)]
    link: bool,
    #[serde(default, rename = "inBundle")]
    is_in_bundle: bool,
    #[serde(default)]
    bundled: bool,
    /// The packages beneath it; in `packages` the field lists requirements instead.
    #[serde(default)]
    dependencies: Beneath,
}

/// The source of a package; in old files `false` stands for none.
#[derive(Deserialize)]
#[serde(untagged)]
enum Resolved {
    Url(String),
    Not(serde::de::IgnoredAny),
}

/// The packages beneath a package of version 1; empty for any other form.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Beneath {
    Packages(BTreeMap<String, Package>),
    Other(serde::de::IgnoredAny),
    #[default]
    None,
}

/// Adds the releases from the public registry. Packages from elsewhere, from a directory or
/// from within another package are skipped.
pub(super) fn read(text: &str, lock: &mut Lock) -> Result<(), String> {
    let file: File = serde_json::from_str(text)
        .map_err(|error| format!("it is not understood at line {}", error.line()))?;
    if !VERSIONS.contains(&file.version) {
        return Err(unknown_version(file.version));
    }
    match (file.packages, file.dependencies) {
        (Some(packages), _) => {
            for (place, package) in &packages {
                // What is no such place is a part of the project itself.
                if let Some((_, name)) = place.rsplit_once("node_modules/") {
                    package.add(name, lock);
                }
            }
        }
        (None, Some(dependencies)) => add_beneath(&dependencies, lock),
        (None, None) => {}
    }
    Ok(())
}

/// Adds packages and those beneath them. The parser has limited the depth.
fn add_beneath(packages: &BTreeMap<String, Package>, lock: &mut Lock) {
    for (name, package) in packages {
        package.add(name, lock);
        if let Beneath::Packages(beneath) = &package.dependencies {
            add_beneath(beneath, lock);
        }
    }
}

impl Package {
    fn add(&self, place: &str, lock: &mut Lock) {
        if self.link || self.is_in_bundle || self.bundled {
            return;
        }
        match (&self.resolved, &self.version) {
            (Some(Resolved::Url(url)), _) => lock.add_url(url),
            // Which registry it is from is not written then: npm asks the one that is set.
            (Some(Resolved::Not(_)) | None, Some(version)) if is_plain(version) => {
                lock.add(self.name.as_deref().unwrap_or(place), version);
            }
            (Some(Resolved::Not(_)) | None, Some(_) | None) => {}
        }
    }
}

/// Returns whether a text is a version, and not a path or another name (`npm:other@1.0.0`).
fn is_plain(version: &str) -> bool {
    let is_of_one = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
    version
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_digit())
        && version.bytes().all(is_of_one)
}
