//! The record of which directory was where when a checkpoint was taken. An untouched file keeps its
//! times, even when its directory moves or replaces another: only the directories' own identity
//! shows that.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::facts::Time;
use crate::{RelativePath, escape};

/// The content of a checkpoint's manifest.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Inodes of directories, by path.
    pub inodes: HashMap<RelativePath, u64>,
    /// Owners and groups that could not be given to the copies, by path.
    pub owners: HashMap<RelativePath, (u32, u32)>,
    /// Inodes of entries that could not be copied.
    pub uncopied: HashSet<u64>,
    /// The time of completion, by the kernel's clock for files.
    pub finished: Option<SystemTime>,
}

/// The tree whose inodes are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The directory that was copied.
    Original,
    /// The copy.
    Copy,
}

/// A manifest being written, beside the checkpoint.
pub(crate) struct Manifest {
    out: BufWriter<File>,
}

impl Manifest {
    pub fn create(checkpoint: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let out = BufWriter::new(options.open(beside(checkpoint))?);
        Ok(Self { out })
    }

    pub fn add(&mut self, path: &RelativePath, original: u64, copy: u64) -> io::Result<()> {
        let name = escape::record(path.as_bytes());
        writeln!(self.out, "{original} {copy} {name}")
    }

    /// Records an entry that was not copied.
    pub fn add_uncopied(&mut self, original: u64) -> io::Result<()> {
        writeln!(self.out, "uncopied {original}")
    }

    /// Records the owner and group that a copy could not be given.
    pub fn add_owner(&mut self, path: &RelativePath, uid: u32, gid: u32) -> io::Result<()> {
        let name = escape::record(path.as_bytes());
        writeln!(self.out, "owner {uid} {gid} {name}")
    }

    /// Ends it with the time at which the checkpoint was complete.
    pub fn finish(mut self, time: Time) -> io::Result<()> {
        writeln!(self.out, "finished {} {}", time.seconds, time.nanoseconds)?;
        self.out.flush()
    }
}

/// Reads the manifest beside a checkpoint. Without one no directory is known to be
/// in its place, and everything is compared.
pub(crate) fn read(checkpoint: &Path, whose: Whose) -> Places {
    let mut places = Places::default();
    let Ok(file) = File::open(beside(checkpoint)) else {
        return places;
    };
    for line in BufReader::new(file).lines() {
        let Ok(line) = line else {
            break;
        };
        if let Some(time) = line.strip_prefix("finished ") {
            places.finished = parse_time(time);
        } else if let Some(inode) = line.strip_prefix("uncopied ") {
            places.uncopied.extend(inode.parse::<u64>());
        } else if let Some(owner) = line.strip_prefix("owner ") {
            places.owners.extend(parse_owner(owner));
        } else if let Some((path, original, copy)) = parse(&line) {
            let inode = match whose {
                Whose::Original => original,
                Whose::Copy => copy,
            };
            places.inodes.insert(path, inode);
        }
    }
    places
}

fn parse(line: &str) -> Option<(RelativePath, u64, u64)> {
    let (original, rest) = line.split_once(' ')?;
    let (copy, name) = rest.split_once(' ')?;
    let path = RelativePath::new(escape::parse_record(name)?).ok()?;
    Some((path, original.parse().ok()?, copy.parse().ok()?))
}

fn parse_owner(text: &str) -> Option<(RelativePath, (u32, u32))> {
    let (uid, rest) = text.split_once(' ')?;
    let (gid, name) = rest.split_once(' ')?;
    let path = RelativePath::new(escape::parse_record(name)?).ok()?;
    Some((path, (uid.parse().ok()?, gid.parse().ok()?)))
}

fn parse_time(text: &str) -> Option<SystemTime> {
    let (seconds, nanoseconds) = text.split_once(' ')?;
    let time = Time {
        seconds: seconds.parse().ok()?,
        nanoseconds: nanoseconds.parse().ok()?,
    };
    Some(time.system())
}

fn beside(checkpoint: &Path) -> PathBuf {
    let mut name = checkpoint.as_os_str().to_os_string();
    name.push(".directories");
    PathBuf::from(name)
}
