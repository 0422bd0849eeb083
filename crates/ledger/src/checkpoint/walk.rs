use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::io::Read;

use crate::checkpoint::SigningError;
use crate::event::split_line;
use crate::hash::{Frontier, hex};
use crate::head::Head;
use crate::lines::{Line, LineContent, Lines};
use crate::note::decimal;
use crate::read::read_line;
use crate::scan::{Scanned, scan};
use crate::{Checkpoint, FileFault, StateDir, TreeHash, disk};

const MAGIC: &str = "atoll-frontier 1";
const CHECK_DIGITS: usize = 16;
/// A line of facts, and one for each height that a tree can have, bytes.
const KEPT_BYTES_MAX: u64 = 8 << 10;

/// A walk over the ledger's events that grows the Merkle tree, from the first event or from
/// where an earlier one ended.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    frontier: Frontier,
    size: u64,
    leaf: TreeHash,
    segment: u32,
    /// The offset in the segment at which the last event's line ends, bytes.
    bytes: u64,
}

impl Default for Walk {
    fn default() -> Self {
        Self {
            frontier: Frontier::default(),
            size: 0,
            leaf: TreeHash::ZERO,
            segment: 1,
            bytes: 0,
        }
    }
}

impl Walk {
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn root(&self) -> TreeHash {
        self.frontier.root()
    }

    /// Walks on to the end of the last checkpoint, whose root must match, and from there to the
    /// head's event if one is given.
    pub(crate) fn on_to(
        mut self,
        state: &StateDir,
        last: Option<&Checkpoint>,
        head: Option<&Head>,
    ) -> Result<Self, SigningError> {
        let mut lines = Lines::from(state, self.segment, self.bytes)?;
        if let Some(last) = last {
            self.advance(&mut lines, last.size())?;
            if self.root() != last.root() {
                return Err(SigningError::Unfit(format!(
                    "its first {} events are others than those that were signed",
                    last.size()
                )));
            }
        }
        if let Some(head) = head {
            self.advance(&mut lines, head.size)?;
            if self.leaf != head.leaf {
                return Err(SigningError::Unfit(
                    "its last event is another than the head names".to_owned(),
                ));
            }
        }
        Ok(self)
    }

    fn advance(&mut self, lines: &mut Lines, size: u64) -> Result<(), SigningError> {
        while self.size < size {
            let Some(line) = lines.next_line()? else {
                return Err(SigningError::Unfit(format!(
                    "it ends after {} events, and {size} were signed or acknowledged",
                    self.size
                )));
            };
            self.one(&line)
                .ok_or_else(|| SigningError::Unfit(format!("event {} is altered", self.size)))?;
        }
        Ok(())
    }

    /// Adds one event.
    fn one(&mut self, line: &Line<'_>) -> Option<()> {
        let LineContent::Complete(bytes) = line.content else {
            return None;
        };
        let (leaf, event) = split_line(bytes).ok()?;
        let full;
        let scanned = match scan(event) {
            Some(scanned) => scanned,
            None => {
                full = read_line(line).ok()?;
                Scanned::of(&full)
            }
        };
        let continues = scanned.prev == self.leaf && scanned.seq == self.size;
        if !continues || TreeHash::of_leaf(event) != leaf {
            return None;
        }
        self.frontier.push(leaf);
        self.size += 1;
        self.leaf = leaf;
        self.segment = line.segment;
        self.bytes = line.offset + bytes.len() as u64 + 1;
        Some(())
    }

    /// Writes the file that [`Walk::read`] reads, over the earlier one, without waiting for the
    /// disk: one that is written in part is ignored, and costs the next checkpoint a walk from the
    /// first event.
    pub(crate) fn keep(&self, directory: &OwnedFd, name: &str) -> std::io::Result<()> {
        let text = self.kept();
        let file = std::fs::File::from(disk::create(directory, name, OFlags::WRONLY)?);
        disk::write(&file, text.as_bytes(), 0)?;
        disk::set_length(&file, text.len() as u64)
    }

    fn kept(&self) -> String {
        let mut text = format!(
            "{MAGIC} {} {} {} {}\n",
            self.size, self.leaf, self.segment, self.bytes
        );
        for subtree in self.frontier.subtrees() {
            text.push_str(&format!("{subtree}\n"));
        }
        let check = check_digits(&text);
        text.push_str(&format!("{check}\n"));
        text
    }

    /// Reads the end of an earlier walk. One that cannot be read counts as missing: it only saves
    /// time, and is trusted only if it leads to a root that was signed.
    pub(crate) fn read(
        directory: &OwnedFd,
        path: &Path,
        name: &str,
    ) -> Result<Option<Self>, FileFault> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(FileFault::on("open", path.join(name)))?,
        };
        let mut text = String::new();
        let mut limited = std::fs::File::from(file).take(KEPT_BYTES_MAX);
        Ok(match limited.read_to_string(&mut text) {
            Ok(_) => Self::parse(&text),
            Err(_) => None,
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let (lines, check) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let (facts, subtrees) = lines.split_once('\n')?;
        if check != check_digits(&format!("{lines}\n")) {
            return None;
        }
        let mut fields = facts.strip_prefix(MAGIC)?.strip_prefix(' ')?.split(' ');
        let size = decimal(fields.next()?)?;
        let leaf = TreeHash::parse(fields.next()?).ok()?;
        let segment = fields.next()?.parse().ok()?;
        let bytes = decimal(fields.next()?)?;
        let subtrees = subtrees.split('\n').map(TreeHash::parse);
        let subtrees = subtrees.collect::<Result<Vec<_>, _>>().ok()?;
        Some(Self {
            frontier: Frontier::of_subtrees(size, &subtrees)?,
            size,
            leaf,
            segment,
            bytes,
        })
    }
}

fn check_digits(text: &str) -> String {
    let mut digits = hex(&Sha256::digest(text.as_bytes()));
    digits.truncate(CHECK_DIGITS);
    digits
}
