//! Digests of plans: a person's approval of one covers exactly what will be written.

use std::fmt;
use std::fs::File;
use std::io;

use sha2::{Digest, Sha256};

use crate::content::parts;
use crate::plan::{Act, Content, Entry, Node};
use crate::tree::{Tree, path_bytes};
use crate::{Plan, Step, TreeError};

/// The SHA-256 of everything that one plan or several would do: every step, with the state it
/// expects, what it writes, and the contents of the files that it writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanDigest([u8; 32]);

impl PlanDigest {
    /// Combines the digests of several plans, in this order.
    #[must_use]
    pub fn of_all(all: &[Self]) -> Self {
        let mut hash = Sha256::new();
        for one in all {
            hash.update(one.0);
        }
        Self(hash.finalize().into())
    }
}

impl fmt::Display for PlanDigest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(to, "{byte:02x}"))
    }
}

impl fmt::Debug for PlanDigest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "PlanDigest({self})")
    }
}

impl Plan {
    /// Computes the plan's digest. All content that the plan would write is read.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn digest(&self) -> Result<PlanDigest, TreeError> {
        let mut hash = Sha256::new();
        part(&mut hash, path_bytes(&self.root));
        let (device, inode) = self.root_identity;
        hash.update(device.to_le_bytes());
        hash.update(inode.to_le_bytes());
        for step in &self.steps {
            let text = serde_json::to_vec(step).map_err(|error| {
                TreeError::new("cannot write down", step.path(), io::Error::from(error))
            })?;
            part(&mut hash, text);
        }
        self.contents(&mut hash, self.steps.iter())?;
        Ok(PlanDigest(hash.finalize().into()))
    }

    /// Computes the digest of what the plan would leave: names, kinds, permissions and contents, of no
    /// time and of nothing that it expects. Two runs that did the same have the same.
    ///
    /// # Errors
    /// When the content that it would write cannot be read.
    pub fn effect_digest(&self) -> Result<PlanDigest, TreeError> {
        let mut hash = Sha256::new();
        part(&mut hash, path_bytes(&self.root));
        let mut steps: Vec<&Step> = self.steps.iter().collect();
        steps.sort_by(|one, other| one.path.as_bytes().cmp(other.path.as_bytes()));
        for step in &steps {
            part(&mut hash, step.path.as_bytes());
            match &step.act {
                Act::Replace { old, new } => {
                    part(&mut hash, "replace");
                    listed(&mut hash, old, |entry| entry.beneath.as_bytes().to_vec());
                    listed(&mut hash, new, effect);
                }
                Act::Facts { new, .. } => {
                    part(&mut hash, "facts");
                    part(&mut hash, effect(new));
                }
                Act::Rename { from, .. } => {
                    part(&mut hash, "rename");
                    part(&mut hash, from.as_bytes());
                }
            }
        }
        self.contents(&mut hash, steps.into_iter())?;
        Ok(PlanDigest(hash.finalize().into()))
    }

    /// Adds the contents of the files that these steps write.
    fn contents<'a>(
        &self,
        hash: &mut Sha256,
        steps: impl Iterator<Item = &'a Step>,
    ) -> Result<(), TreeError> {
        let (mut source, mut indexed) = (None, None);
        for entry in steps.flat_map(Step::new_entries) {
            let Node::File { content, .. } = &entry.node else {
                continue;
            };
            let (tree, at) = match (content, &self.work) {
                (Content::Layer(at), _) => (opened(&mut source, || Tree::open(&self.content))?, at),
                (Content::Indexed(at), Some(work)) => {
                    (opened(&mut indexed, || Tree::open_for_lookups(work))?, at)
                }
                (Content::Indexed(at), None) => {
                    let nowhere = io::Error::other("the plan does not say where the layer is");
                    return Err(TreeError::new("cannot read", at, nowhere));
                }
                // A plan has none of these before it is begun.
                (Content::Kept { .. } | Content::Outer { .. } | Content::Untouched, _) => continue,
            };
            let read = tree.file(at).and_then(|(file, _)| held(hash, &file));
            read.map_err(|error| tree.error("cannot read", at, error))?;
        }
        Ok(())
    }
}

/// Adds a list of entries.
fn listed(hash: &mut Sha256, entries: &[Entry], text: impl Fn(&Entry) -> Vec<u8>) {
    hash.update((entries.len() as u64).to_le_bytes());
    for entry in entries {
        part(hash, text(entry));
    }
}

/// Returns what an entry is afterwards, without its times and the place of its content.
fn effect(entry: &Entry) -> Vec<u8> {
    let node = match &entry.node {
        Node::File { bytes, .. } => format!("file {bytes}"),
        Node::Directory => "directory".to_owned(),
        Node::Symlink { target } => format!("link {target:?}"),
        Node::Special => "special".to_owned(),
    };
    let Entry {
        mode,
        uid,
        gid,
        xattrs,
        ..
    } = entry;
    let name = entry.beneath.as_bytes();
    let facts = format!("\0{node} {mode:o} {uid} {gid} {xattrs:?}");
    [name, facts.as_bytes()].concat()
}

fn opened(
    tree: &mut Option<Tree>,
    open: impl FnOnce() -> Result<Tree, TreeError>,
) -> Result<&Tree, TreeError> {
    match tree {
        Some(tree) => Ok(tree),
        None => Ok(tree.insert(open()?)),
    }
}

/// Adds a length-prefixed text, so that no two lists of texts hash alike.
fn part(hash: &mut Sha256, text: impl AsRef<[u8]>) {
    let text = text.as_ref();
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

/// Adds a file's content: its length, and each part of it that is not all zeros, so that a file
/// that claims to be of any size costs only what it holds.
pub(crate) fn held(hash: &mut Sha256, file: &File) -> io::Result<()> {
    let bytes = file.metadata()?.len();
    hash.update(bytes.to_le_bytes());
    parts(file, bytes, |at, held| {
        if held.iter().any(|byte| *byte != 0) {
            hash.update(at.to_le_bytes());
            part(hash, held);
        }
    })?;
    hash.update(u64::MAX.to_le_bytes());
    Ok(())
}
