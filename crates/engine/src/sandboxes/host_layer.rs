//! The lowest layer of templates over the host's system, for host root: copies of the directories
//! that hold no programs, as everybody may read them when the layer is made. What only root may read
//! there is never in it, whenever it came.

use std::ffi::OsStr;
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use atoll_sandbox::{PlacedLayer, furnish_part};
use sha2::{Digest, Sha256};

use super::templates::own;
use crate::accounts;
use crate::failure::{Doing, Failure};
use crate::home::WHOLE;
use crate::rooted::{OWN_SYSTEM, PARTS, USUAL_PLACES};

/// The most files that are looked at.
const ENTRIES_MAX: usize = 400_000;

/// Returns a digest of all that the layer is made of, as it is now.
pub(crate) fn digest() -> Result<String, Failure> {
    let mut digest = Sha256::new();
    let mut waiting: Vec<PathBuf> = PARTS.iter().map(PathBuf::from).collect();
    let mut looked = 0;
    while let Some(directory) = waiting.pop() {
        for (path, facts) in entries(&directory).doing("the host's system cannot be read")? {
            looked += 1;
            if looked > ENTRIES_MAX {
                let what = format!("the host's system has more than {ENTRIES_MAX} files");
                return Err(Failure::new(what));
            }
            digest.update(path.as_os_str().as_bytes());
            let facts_of = [
                facts.ino(),
                u64::from(facts.mode()),
                facts.ctime().cast_unsigned(),
                facts.ctime_nsec().cast_unsigned(),
            ];
            for fact in facts_of {
                digest.update(fact.to_le_bytes());
            }
            if facts.is_dir() {
                waiting.push(path);
            }
        }
    }
    let digest = digest.finalize();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the entries of a directory by name, each with its facts; none if there is no directory.
fn entries(directory: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let listed = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed?,
    };
    let mut all = Vec::new();
    for entry in listed {
        let entry = entry?;
        match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            facts => all.push((entry.path(), facts?)),
        }
    }
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(all)
}

/// Makes the layer, in a new directory.
///
/// # Errors
/// When it cannot be written, or the host has too many files.
pub(crate) fn make(layer: &Path) -> Result<(), Failure> {
    let unmade = "the host's system cannot be copied";
    let whole = PlacedLayer {
        lower: layer.to_path_buf(),
        over: Vec::new(),
        own: 0,
        inside: PathBuf::from("/"),
        parts: Vec::new(),
        upper: layer.join(WHOLE),
        work: layer.join("work"),
        linked: false,
        volatile: false,
    };
    let made = |path: &Path| -> io::Result<PathBuf> {
        let mut place = whole.upper.clone();
        for name in path.components().skip(1) {
            place.push(name);
            if !place.is_dir() {
                fs::create_dir(&place)?;
                fs::set_permissions(&place, Permissions::from_mode(0o755))?;
            }
        }
        Ok(place)
    };
    fs::create_dir_all(&whole.upper).doing(unmade)?;
    fs::set_permissions(&whole.upper, Permissions::from_mode(0o755)).doing(unmade)?;
    for name in USUAL_PLACES {
        made(&Path::new("/").join(name)).doing(unmade)?;
    }
    let all = [OWN_SYSTEM].into_iter().chain(PARTS).map(Path::new);
    for path in all {
        let is_own = path.as_os_str() == OsStr::new(OWN_SYSTEM);
        if !is_own && !path.symlink_metadata().is_ok_and(|facts| facts.is_dir()) {
            continue;
        }
        let place = made(path).doing(unmade)?;
        if let Some(why) = furnish_part(&whole, path, Some(0)).doing(unmade)? {
            return Err(Failure::new(unmade).because(why));
        }
        if path == Path::new("/etc") {
            accounts::ensure_resident(&place, true).doing(unmade)?;
        }
    }
    own(layer, Some(0)).doing(unmade)
}
