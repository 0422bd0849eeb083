//! Encryption of a directory's files at rest: by the file system, or by the device beneath it.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, major, minor, statx};

/// The directory of the kernel's block devices, by number (sysfs(5)).
const DEVICES: &str = "/sys/dev/block";
/// The beginning of the identifier of a device that dm-crypt has made.
const CRYPT: &str = "CRYPT-";
/// The most devices beneath each other.
const DEPTH_MAX: usize = 8;

/// The encryption of files at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtRest {
    /// By the file system: fscrypt.
    Fscrypt,
    /// By every device beneath: dm-crypt, as LUKS makes it.
    DmCrypt,
    /// None.
    Clear,
    /// Unknown: the files lie on no block device.
    Unknown,
}

impl fmt::Display for AtRest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Fscrypt => "encrypted by fscrypt",
            Self::DmCrypt => "encrypted by dm-crypt",
            Self::Clear => "not encrypted (fscrypt, or dm-crypt beneath the file system, would)",
            Self::Unknown => "on no block device, so that this machine cannot tell",
        })
    }
}

impl AtRest {
    /// Returns that of a directory; of the nearest one above it that is there.
    #[must_use]
    pub fn of(directory: &Path) -> Self {
        let there = directory.ancestors().find(|one| one.exists());
        there.map_or(Self::Unknown, Self::of_present)
    }

    fn of_present(directory: &Path) -> Self {
        let facts = statx(CWD, directory, AtFlags::empty(), StatxFlags::empty());
        if facts.is_ok_and(|facts| facts.stx_attributes.contains(StatxAttributes::ENCRYPTED)) {
            return Self::Fscrypt;
        }
        let Ok(facts) = fs::metadata(directory) else {
            return Self::Unknown;
        };
        let number = format!("{}:{}", major(facts.dev()), minor(facts.dev()));
        Self::of_device(&Path::new(DEVICES).join(number), DEPTH_MAX)
    }

    fn of_device(device: &Path, depth: usize) -> Self {
        if !device.exists() || depth == 0 {
            return Self::Unknown;
        }
        let uuid = fs::read_to_string(device.join("dm/uuid")).unwrap_or_default();
        if uuid.starts_with(CRYPT) {
            return Self::DmCrypt;
        }
        let beneath = fs::read_dir(device.join("slaves")).into_iter().flatten();
        let beneath = beneath.flatten().map(|one| one.path());
        let mut all = beneath
            .map(|one| Self::of_device(&one, depth - 1))
            .peekable();
        match all.peek() {
            None => Self::Clear,
            Some(_) => all
                .find(|one| *one != Self::DmCrypt)
                .unwrap_or(Self::DmCrypt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_encrypted_if_all_beneath_are() {
        let place = tempfile::tempdir().unwrap();
        let device = |name: &str, uuid: &str, slaves: &[&str]| {
            let at = place.path().join(name);
            fs::create_dir_all(at.join("slaves")).unwrap();
            if !uuid.is_empty() {
                fs::create_dir_all(at.join("dm")).unwrap();
                fs::write(at.join("dm/uuid"), uuid).unwrap();
            }
            for one in slaves {
                std::os::unix::fs::symlink(place.path().join(one), at.join("slaves").join(one))
                    .unwrap();
            }
            AtRest::of_device(&at, DEPTH_MAX)
        };
        assert_eq!(device("disk", "", &[]), AtRest::Clear);
        assert_eq!(device("luks", "CRYPT-LUKS2-1", &["disk"]), AtRest::DmCrypt);
        assert_eq!(device("volume", "LVM-1", &["luks"]), AtRest::DmCrypt);
        assert_eq!(device("both", "LVM-2", &["luks", "disk"]), AtRest::Clear);
        assert_eq!(device("round", "LVM-3", &["round"]), AtRest::Unknown);
        let missing = place.path().join("missing");
        assert_eq!(AtRest::of_device(&missing, DEPTH_MAX), AtRest::Unknown);
    }
}
