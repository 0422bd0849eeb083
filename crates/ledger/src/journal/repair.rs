use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::event::Draft;
use crate::head::{FoundHead, Head};
use crate::journal::Journal;
use crate::remains::Remains;
use crate::segment::{Segment, segment_name};
use crate::tail::{FoundTail, Tail};
use crate::{FileFault, LedgerError, disk, host_text};

/// The most remains that are kept beside a ledger.
const SET_ASIDE_MAX: u32 = 10_000;
const COPY_BYTES: usize = 64 << 10;

/// The fault at the end of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// A line that its writer did not live to finish; it was never acknowledged.
    Torn,
    /// Acknowledged events are no longer there, or no longer readable.
    Cut,
    /// The last event is another than the one that was acknowledged.
    Rewritten,
    /// The acknowledged size is unknown.
    HeadLost,
    /// The ledger is not there, but files that only it can have caused are.
    Removed,
}

impl Cause {
    fn of(head: &FoundHead, found: &FoundTail, remains: Remains) -> Option<Self> {
        match head {
            FoundHead::Sound(head) if !remains.is_empty() && head.size == 0 => Some(Self::Removed),
            FoundHead::Missing | FoundHead::Garbled => Some(Self::HeadLost),
            FoundHead::Sound(head) if head.size > found.tail.size => Some(Self::Cut),
            FoundHead::Sound(head)
                if head.size == found.tail.size && head.leaf != found.tail.leaf =>
            {
                Some(Self::Rewritten)
            }
            FoundHead::Sound(_) => found.remains.as_ref().map(|_| Self::Torn),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Torn => "torn",
            Self::Cut => "cut",
            Self::Rewritten => "rewritten",
            Self::HeadLost => "head-lost",
            Self::Removed => "removed",
        }
    }

    /// Describes the loss for people. A line that was never acknowledged is no loss.
    fn remark(self, head: &FoundHead, found: u64, remains: Remains) -> Option<String> {
        let acknowledged = match head {
            FoundHead::Sound(head) => head.size,
            FoundHead::Missing | FoundHead::Garbled => 0,
        };
        match self {
            Self::Torn => None,
            Self::Cut => Some(format!(
                "the ledger has lost its end: of {acknowledged} events {found} were there"
            )),
            Self::Rewritten => Some("the ledger's last event was exchanged".to_owned()),
            Self::HeadLost => Some(
                "the ledger's head was gone or garbled, so nobody can say whether its end is \
                 whole"
                    .to_owned(),
            ),
            Self::Removed => Some(format!(
                "the ledger was gone, though what it told of is kept here ({remains}); a new one \
                 was begun"
            )),
        }
    }
}

/// Repairs the end of the ledger for the next event. Anything that is not an event is moved to a
/// file of its own, and the finding is recorded (`ledger.repaired`), so that a loss stays visible
/// for ever. `remains` are those of a ledger without a segment. The append lock is held.
pub(crate) fn repair(
    journal: &Journal,
    head: &FoundHead,
    found: FoundTail,
    remains: Remains,
) -> Result<Tail, LedgerError> {
    let Some(cause) = Cause::of(head, &found, remains) else {
        return Ok(found.tail);
    };
    let remark = cause.remark(head, found.tail.size, remains);
    let mut body = json!({ "cause": cause.name(), "found": place_of(&found.tail) });
    if let (FoundHead::Sound(head), Some(members)) = (head, body.as_object_mut()) {
        members.insert("acknowledged".to_owned(), acknowledged(head));
    }
    if let (Cause::Removed, Some(members)) = (cause, body.as_object_mut()) {
        members.extend(remains.members());
    }
    if let (Some(segment), Some(members)) = (&found.remains, body.as_object_mut()) {
        let from = found.tail.segment.as_ref().map_or(0, |sound| sound.bytes);
        let aside = set_aside(journal, segment, from)?;
        members.insert("set_aside".to_owned(), aside);
    }
    let draft = Draft::new("ledger.repaired", None, &body)?;
    let (_, tail) = journal.write(found.tail, &draft)?;
    // From here on this is what is acknowledged, also where it is less than before.
    journal.sync_all_of(&tail)?;
    journal.begin_at(&tail);
    journal.write_head(&tail, head, cause == Cause::HeadLost)?;
    journal.remember_loss(remark);
    Ok(tail)
}

fn place_of(tail: &Tail) -> Value {
    json!({
        "size": tail.size,
        "leaf": tail.leaf.to_string(),
        "segment": tail.segment.as_ref().map_or(0, |segment| segment.number),
        "bytes": tail.segment.as_ref().map_or(0, |segment| segment.bytes),
    })
}

fn acknowledged(head: &Head) -> Value {
    json!({
        "size": head.size,
        "leaf": head.leaf.to_string(),
        "segment": head.segment,
        "bytes": head.bytes,
    })
}

/// Moves the end of a segment, from this byte on, to a file `torn-N`. The copy is on disk before
/// the original is truncated.
fn set_aside(journal: &Journal, segment: &Segment, from: u64) -> Result<Value, LedgerError> {
    let (name, copy) = create_aside(journal.directory(), journal.path())?;
    let path = journal.path().join(&name);
    let mut digest = Sha256::new();
    let mut buffer = vec![0_u8; COPY_BYTES];
    let mut at = from;
    loop {
        let count = segment
            .file
            .read_at(&mut buffer, at)
            .map_err(FileFault::on(
                "read",
                journal.path().join(segment_name(segment.number)),
            ))?;
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        digest.update(bytes);
        disk::write(&copy, bytes, at - from).map_err(FileFault::on("write", &path))?;
        at += count as u64;
    }
    disk::sync(&copy).map_err(FileFault::on("write", &path))?;
    disk::sync_names(journal.directory()).map_err(FileFault::on("write", &path))?;
    let original = journal.path().join(segment_name(segment.number));
    disk::set_length(&segment.file, from).map_err(FileFault::on("shorten", original))?;
    let digits = crate::hash::hex(&digest.finalize());
    Ok(json!({ "file": host_text(&name), "bytes": at - from, "sha256": digits }))
}

fn create_aside(directory: impl AsFd, path: &Path) -> Result<(String, File), LedgerError> {
    for number in 1..=SET_ASIDE_MAX {
        let name = format!("torn-{number}");
        match disk::create(&directory, &name, OFlags::WRONLY | OFlags::EXCL) {
            Err(Errno::EXIST) => {}
            other => {
                let file = other.map_err(FileFault::on("create", path.join(&name)))?;
                return Ok((name, File::from(file)));
            }
        }
    }
    Err(LedgerError::Damaged {
        path: path.to_owned(),
        what: format!("{SET_ASIDE_MAX} torn lines were set aside already"),
    })
}
