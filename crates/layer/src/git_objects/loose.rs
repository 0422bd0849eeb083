//! One loose object: `zlib(TYPE SP SIZE NUL CONTENT)`, named by the digest of the uncompressed
//! text.

use std::collections::HashSet;
use std::io::Read;

use flate2::{Decompress, FlushDecompress, Status};
use sha1_checked::{CollisionResult, Sha1};
use sha2::{Digest as _, Sha256};

use super::{Format, Id};
use crate::control::plain_form;

/// The largest content of commits, trees and tags, which are parsed, bytes.
const CONTENT_BYTES_MAX: u64 = 32 << 20;
/// The longest `TYPE SP SIZE NUL` that git takes, bytes.
const HEAD_BYTES_MAX: usize = 32;
const BUFFER_BYTES: usize = 64 << 10;
/// The bytes of a zlib stream that surely yield its header, and more.
const BEGIN_BYTES: usize = 4 << 10;

/// A loose object that matches its name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Loose {
    pub kind: ObjectKind,
    /// The objects that it refers to, each with the kind that it has to be.
    pub needs: Vec<(Id, ObjectKind)>,
}

/// An object's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ObjectKind {
    Blob,
    Tree,
    Commit,
    Tag,
}

impl Loose {
    /// Reads an object, which must have this name. `None` where it is anything else, or is larger
    /// than `bytes_left`, from which its size is subtracted.
    pub fn read(from: impl Read, id: &Id, format: Format, bytes_left: &mut u64) -> Option<Self> {
        let mut content = Content::new(format);
        inflate(from, &mut |bytes| {
            *bytes_left = bytes_left.checked_sub(bytes.len() as u64)?;
            content.take(bytes)
        })?;
        let (kind, size) = content.head?;
        if content.bytes != size || content.digest.finish()?.as_slice() != id.bytes() {
            return None;
        }
        let kept = content.kept.as_slice();
        let needs = match kind {
            ObjectKind::Blob => Some(Vec::new()),
            ObjectKind::Tree => of_tree(kept, format),
            ObjectKind::Commit => of_commit(kept, format),
            ObjectKind::Tag => of_tag(kept, format),
        };
        needs.map(|needs| Self { kind, needs })
    }

    /// Returns the parents of a commit.
    pub fn parents(&self) -> Vec<Id> {
        let commits = self.needs.iter();
        let commits = commits.filter(|(_, kind)| *kind == ObjectKind::Commit);
        commits.map(|(id, _)| id.clone()).collect()
    }
}

/// Returns the kind that a loose object states. `None` where it cannot be read.
pub(super) fn kind(mut from: impl Read) -> Option<ObjectKind> {
    let (mut begun, mut made) = ([0; BEGIN_BYTES], [0; HEAD_BYTES_MAX]);
    let read = from.read(&mut begun).ok()?;
    let mut stream = Decompress::new(true);
    let _ = stream
        .decompress(begun.get(..read)?, &mut made, FlushDecompress::None)
        .ok()?;
    let given = usize::try_from(stream.total_out()).ok()?;
    let text = made.get(..given)?;
    let end = text.iter().position(|byte| *byte == 0)?;
    head(text.get(..end)?).map(|(kind, _)| kind)
}

/// An object, as far as it has been read.
struct Content {
    digest: Digest,
    /// The header, until it is complete.
    begun: Vec<u8>,
    head: Option<(ObjectKind, u64)>,
    /// The number of content bytes so far.
    bytes: u64,
    /// The content so far, for kinds that are parsed.
    kept: Vec<u8>,
}

impl Content {
    fn new(format: Format) -> Self {
        Self {
            digest: Digest::new(format),
            begun: Vec::new(),
            head: None,
            bytes: 0,
            kept: Vec::new(),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Option<()> {
        self.digest.update(bytes);
        if self.head.is_some() {
            return self.behind(bytes);
        }
        self.begun.extend_from_slice(bytes);
        let most = self.begun.len().min(HEAD_BYTES_MAX);
        let end = self.begun.get(..most)?.iter().position(|byte| *byte == 0);
        let Some(end) = end else {
            return (self.begun.len() < HEAD_BYTES_MAX).then_some(());
        };
        let begun = std::mem::take(&mut self.begun);
        self.head = Some(head(begun.get(..end)?)?);
        self.behind(begun.get(end + 1..)?)
    }

    fn behind(&mut self, bytes: &[u8]) -> Option<()> {
        let (kind, size) = self.head?;
        self.bytes += bytes.len() as u64;
        let is_kept = kind != ObjectKind::Blob;
        if self.bytes > size || (is_kept && size > CONTENT_BYTES_MAX) {
            return None;
        }
        if is_kept {
            self.kept.extend_from_slice(bytes);
        }
        Some(())
    }
}

/// A digest in progress.
pub(crate) enum Digest {
    Sha1(Box<Sha1>),
    Sha256(Sha256),
}

impl Digest {
    pub fn new(format: Format) -> Self {
        match format {
            Format::Sha1 => Self::Sha1(Box::new(Sha1::new())),
            Format::Sha256 => Self::Sha256(Sha256::new()),
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha1(digest) => sha1_checked::Digest::update(digest.as_mut(), bytes),
            Self::Sha256(digest) => digest.update(bytes),
        }
    }

    /// Returns the digest. `None` for bytes crafted to collide: git does not take those either.
    pub fn finish(self) -> Option<Vec<u8>> {
        match self {
            Self::Sha1(digest) => match digest.try_finalize() {
                CollisionResult::Ok(made) => Some(made.to_vec()),
                CollisionResult::Mitigated(_) | CollisionResult::Collision(_) => None,
            },
            Self::Sha256(digest) => Some(digest.finalize().to_vec()),
        }
    }
}

/// Decompresses a zlib stream, which must end where its input does.
fn inflate(mut from: impl Read, each: &mut dyn FnMut(&[u8]) -> Option<()>) -> Option<()> {
    let mut stream = Decompress::new(true);
    let (mut read, mut made) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    let (mut at, mut end) = (0, 0);
    loop {
        if at == end {
            (at, end) = (0, from.read(&mut read).ok()?);
        }
        let (taken, given) = (stream.total_in(), stream.total_out());
        let status = stream
            .decompress(read.get(at..end)?, &mut made, FlushDecompress::None)
            .ok()?;
        let taken = usize::try_from(stream.total_in() - taken).ok()?;
        let given = usize::try_from(stream.total_out() - given).ok()?;
        at += taken;
        each(made.get(..given)?)?;
        match status {
            Status::StreamEnd => break,
            // It goes no further: the rest is missing.
            Status::Ok | Status::BufError if taken == 0 && given == 0 => return None,
            Status::Ok | Status::BufError => {}
        }
    }
    let is_all = at == end && from.read(&mut read).ok()? == 0;
    is_all.then_some(())
}

fn head(text: &[u8]) -> Option<(ObjectKind, u64)> {
    let at = text.iter().position(|byte| *byte == b' ')?;
    let (kind, size) = (text.get(..at)?, text.get(at + 1..)?);
    let kind = of_name(kind)?;
    let is_plain = size.iter().all(u8::is_ascii_digit) && (size == b"0" || !size.starts_with(b"0"));
    let size = std::str::from_utf8(size).ok()?.parse().ok()?;
    is_plain.then_some((kind, size))
}

/// Returns the entries of a tree, except for submodules' commits. `None` for names that git itself
/// does not write, as `.git`, and for an order other than git's, so that none is there twice.
fn of_tree(mut rest: &[u8], format: Format) -> Option<Vec<(Id, ObjectKind)>> {
    let (mut needs, mut names) = (HashSet::new(), HashSet::new());
    let mut last = Vec::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == 0)?;
        let (entry, behind) = (rest.get(..end)?, rest.get(end + 1..)?);
        let at = entry.iter().position(|byte| *byte == b' ')?;
        let (mode, name) = (entry.get(..at)?, entry.get(at + 1..)?);
        let (id, behind) = behind.split_at_checked(format.bytes())?;
        rest = behind;
        let kind = match mode {
            b"40000" => Some(ObjectKind::Tree),
            b"100644" | b"100755" | b"100664" | b"120000" => Some(ObjectKind::Blob),
            b"160000" => None,
            _ => return None,
        };
        // A directory is where it would be with a slash at its end.
        let order = match kind {
            Some(ObjectKind::Tree) => [name, b"/"].concat(),
            Some(_) | None => name.to_vec(),
        };
        if !is_name(name) || order <= last || !names.insert(name) {
            return None;
        }
        last = order;
        needs.extend(kind.map(|kind| (Id::of(id), kind)));
    }
    Some(needs.into_iter().collect())
}

fn of_commit(text: &[u8], format: Format) -> Option<Vec<(Id, ObjectKind)>> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let tree = Id::read(lines.next()?.strip_prefix(b"tree ")?, format)?;
    let mut parents = HashSet::new();
    for line in lines {
        match line.strip_prefix(b"parent ") {
            Some(parent) => {
                parents.insert(Id::read(parent, format)?);
            }
            None if line.starts_with(b"author ") => {
                let parents = parents.into_iter().map(|id| (id, ObjectKind::Commit));
                return Some(parents.chain([(tree, ObjectKind::Tree)]).collect());
            }
            None => return None,
        }
    }
    None
}

fn of_tag(text: &[u8], format: Format) -> Option<Vec<(Id, ObjectKind)>> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let object = Id::read(lines.next()?.strip_prefix(b"object ")?, format)?;
    let kind = of_name(lines.next()?.strip_prefix(b"type ")?)?;
    Some(vec![(object, kind)])
}

fn of_name(name: &[u8]) -> Option<ObjectKind> {
    match name {
        b"blob" => Some(ObjectKind::Blob),
        b"tree" => Some(ObjectKind::Tree),
        b"commit" => Some(ObjectKind::Commit),
        b"tag" => Some(ObjectKind::Tag),
        _ => None,
    }
}

/// Returns whether this is a single name of a file in the working tree that git does not reserve.
pub(crate) fn is_name(part: &[u8]) -> bool {
    let is_git = plain_form(part) == b".git";
    !matches!(part, b"" | b"." | b"..") && !is_git && !part.iter().any(|byte| b"/\\".contains(byte))
}
