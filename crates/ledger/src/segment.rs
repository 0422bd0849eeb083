use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::{FileFault, disk};

/// A segment is begun anew when it would become larger than this, bytes.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// A segment of the ledger, open, as long as it was when looked at.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) number: u32,
    pub(crate) bytes: u64,
    pub(crate) file: Arc<File>,
    inode: u64,
}

pub(crate) fn segment_name(number: u32) -> String {
    format!("{number:06}.seg")
}

fn segment_number(name: &[u8]) -> Option<u32> {
    let name = std::str::from_utf8(name).ok()?;
    let number = name.strip_suffix(".seg")?.parse().ok()?;
    (number > 0 && segment_name(number) == name).then_some(number)
}

/// Lists the numbers of all segments, in order.
pub(crate) fn list_segments(directory: impl AsFd, path: &Path) -> Result<Vec<u32>, FileFault> {
    let listing = Dir::read_from(directory).map_err(FileFault::on("list", path))?;
    let mut numbers = Vec::new();
    for entry in listing {
        let entry = entry.map_err(FileFault::on("list", path))?;
        numbers.extend(segment_number(entry.file_name().to_bytes()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

impl Segment {
    /// Opens a segment for reading, and for writing too if `write`; `None` if there is none of that
    /// number.
    pub(crate) fn open(
        directory: impl AsFd,
        path: &Path,
        number: u32,
        write: bool,
    ) -> Result<Option<Self>, FileFault> {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let name = segment_name(number);
        match rustix::fs::openat(directory, &*name, flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            opened => {
                let file = opened.map_err(FileFault::on("open", path.join(&name)))?;
                Self::of_file(File::from(file), number)
                    .map(Some)
                    .map_err(FileFault::on("open", path.join(&name)))
            }
        }
    }

    /// Makes a segment. The content of the one before has to be on disk already, and the new name
    /// before anything is written to it: no event may be there without those before it.
    pub(crate) fn create(
        directory: impl AsFd,
        path: &Path,
        number: u32,
    ) -> Result<Self, FileFault> {
        let name = segment_name(number);
        let file = disk::create(directory, &name, OFlags::RDWR | OFlags::EXCL)
            .map_err(FileFault::on("create", path.join(&name)))?;
        Self::of_file(File::from(file), number).map_err(FileFault::on("create", path.join(&name)))
    }

    fn of_file(file: File, number: u32) -> std::io::Result<Self> {
        let facts = file.metadata()?;
        Ok(Self {
            number,
            bytes: facts.len(),
            file: Arc::new(file),
            inode: facts.ino(),
        })
    }

    /// Returns this segment as if it ended here.
    pub(crate) fn cut_to(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Returns whether this is still the last segment, and as long as it was.
    pub(crate) fn is_still_last(
        &self,
        directory: impl AsFd,
        path: &Path,
    ) -> Result<bool, FileFault> {
        let directory = directory.as_fd();
        let look = |number: u32| {
            let name = segment_name(number);
            match rustix::fs::statat(directory, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(facts) => Ok(Some(facts)),
                Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(FileFault::on("examine", path.join(name))(errno)),
            }
        };
        let unchanged = look(self.number)?.is_some_and(|facts| {
            facts.st_ino == self.inode && u64::try_from(facts.st_size) == Ok(self.bytes)
        });
        Ok(unchanged && look(self.number + 1)?.is_none())
    }
}
