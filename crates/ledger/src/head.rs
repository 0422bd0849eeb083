use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::hash::hex;
use crate::{FileFault, TreeHash, disk};

pub(crate) const HEAD: &str = "head";
/// The head's file name until it is whole.
const NEW_HEAD: &str = "head.new";

/// The end of the ledger that is known to be on disk: kept beside it, so that a truncation is
/// found. Overwritten in place, always with the same length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The number of events.
    pub(crate) size: u64,
    /// The hash of the last of them; zero when there is none.
    pub(crate) leaf: TreeHash,
    /// The segment that holds the last of them; 0 when there is none.
    pub(crate) segment: u32,
    /// The offset in its segment at which the last of them ends, bytes.
    pub(crate) bytes: u64,
    /// The boot of the host's kernel under which it was written.
    pub(crate) boot: BootId,
}

/// The state of the head as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundHead {
    Sound(Head),
    Missing,
    Garbled,
}

/// The id of one boot of the host's kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BootId(String);

const BOOT_DIGITS: usize = 36;
const MAGIC: &str = "atoll-head 1";
const CHECK_DIGITS: usize = 16;
const HEAD_BYTES: usize = MAGIC.len() + 5 + 20 + 64 + 10 + 20 + BOOT_DIGITS + 1 + CHECK_DIGITS + 1;

impl BootId {
    /// Returns the id of the current boot. Without `/proc` it is the same for all boots; then only
    /// the markers show interrupted runs.
    pub(crate) fn current() -> Self {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .ok()
            .and_then(|text| Self::parse(text.trim_end()))
            .unwrap_or_else(|| Self("00000000-0000-0000-0000-000000000000".to_owned()))
    }

    fn parse(text: &str) -> Option<Self> {
        let well_formed = text.len() == BOOT_DIGITS
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
        well_formed.then(|| Self(text.to_owned()))
    }

    #[cfg(test)]
    pub(crate) fn of_test(digit: char) -> Self {
        Self(String::from(digit).repeat(BOOT_DIGITS))
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Head {
    pub(crate) fn empty(boot: BootId) -> Self {
        Self {
            size: 0,
            leaf: TreeHash::ZERO,
            segment: 0,
            bytes: 0,
            boot,
        }
    }

    fn to_line(&self) -> String {
        let facts = format!(
            "{MAGIC} {:020} {} {:010} {:020} {}",
            self.size, self.leaf, self.segment, self.bytes, self.boot
        );
        let check = check_digits(&facts);
        format!("{facts} {check}\n")
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let (facts, check) = line.strip_suffix('\n')?.rsplit_once(' ')?;
        if check != check_digits(facts) {
            return None;
        }
        let mut fields = facts.strip_prefix(MAGIC)?.strip_prefix(' ')?.split(' ');
        let head = Self {
            size: fields.next()?.parse().ok()?,
            leaf: TreeHash::parse(fields.next()?).ok()?,
            segment: fields.next()?.parse().ok()?,
            bytes: fields.next()?.parse().ok()?,
            boot: BootId::parse(fields.next()?)?,
        };
        // Exactly the form that would be written, so that no byte of it is free.
        (fields.next().is_none() && head.to_line() == line).then_some(head)
    }

    /// Reads the head of the ledger in this directory.
    pub(crate) fn read(directory: impl AsFd, path: &Path) -> Result<FoundHead, FileFault> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match rustix::fs::openat(directory, HEAD, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(FoundHead::Missing),
            other => other.map_err(FileFault::on("open", path.join(HEAD)))?,
        };
        // One byte more than a head has, so that a longer file is not taken for one.
        let mut bytes = [0_u8; HEAD_BYTES + 1];
        let count =
            read_up_to(&file, &mut bytes).map_err(FileFault::on("read", path.join(HEAD)))?;
        let line = bytes.get(..count).unwrap_or_default();
        Ok(Self::parse(line).map_or(FoundHead::Garbled, FoundHead::Sound))
    }

    /// Overwrites the head. `first` makes the file in one step, and waits for it to be on disk:
    /// from then on a missing or garbled head is somebody's doing.
    pub(crate) fn write(
        &self,
        directory: impl AsFd,
        path: &Path,
        first: bool,
    ) -> Result<(), FileFault> {
        let directory = directory.as_fd();
        let name = if first { NEW_HEAD } else { HEAD };
        let path = path.join(name);
        let file =
            disk::create(directory, name, OFlags::WRONLY).map_err(FileFault::on("open", &path))?;
        let file = std::fs::File::from(file);
        disk::write(&file, self.to_line().as_bytes(), 0).map_err(FileFault::on("write", &path))?;
        if first {
            disk::set_length(&file, HEAD_BYTES as u64)
                .and_then(|()| disk::sync(&file))
                .map_err(FileFault::on("write", &path))?;
            disk::rename(directory, NEW_HEAD, HEAD).map_err(FileFault::on("write", &path))?;
            disk::sync_names(directory).map_err(FileFault::on("write", &path))?;
        }
        Ok(())
    }
}

fn check_digits(facts: &str) -> String {
    let mut digits = hex(&Sha256::digest(facts.as_bytes()));
    digits.truncate(CHECK_DIGITS);
    digits
}

fn read_up_to(file: &OwnedFd, mut buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut total = 0;
    loop {
        let count = rustix::io::read(file, &mut *buffer)?;
        total += count;
        match buffer.split_at_mut_checked(count) {
            Some((_, rest)) if count > 0 && !rest.is_empty() => buffer = rest,
            _ => return Ok(total),
        }
    }
}
