//! The parts of an apply to a repository that an undo leaves, or needs to be forced to revert.
//!
//! Objects are named by their content: to leave them changes nothing, and others may have come to
//! need them. A branch that another worktree has checked out since is that worktree's, and no
//! worktree is left on a branch that does not exist.

use std::io::Read as _;

use super::REFERENCE_BYTES_MAX;
use super::branches::Elsewhere;
use crate::engine::Engine;
use crate::git_objects::{Format, Id, Loose, small};
use crate::plan::{Act, Content, Entry, Node};
use crate::tree::Tree;
use crate::{ApplyError, RelativePath, Step};

const TAKEN_UP: &str = "another worktree has this branch checked out since";
const ON_IT: &str = "this worktree has this branch checked out since";

/// The treatment of a step that is to be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The step is undone.
    No,
    /// Its result stays.
    Yes,
    /// The step is undone only if a person forces it, for this reason.
    Told(&'static str),
}

/// The most bytes that are read of one object here.
const BYTES_MAX: u64 = 4 << 30;

/// A worktree's own directory in its repository.
pub(crate) struct Own<'a> {
    directory: &'a RelativePath,
    /// The worktree's `HEAD` once the steps of the journal are undone.
    afterwards: Head,
}

impl<'a> Own<'a> {
    /// Returns the worktree with this directory.
    ///
    /// # Errors
    /// When the plan cannot be read.
    pub fn of(engine: &Engine, directory: &'a RelativePath) -> Result<Self, ApplyError> {
        let afterwards = Head::afterwards(engine, directory)?;
        Ok(Self {
            directory,
            afterwards,
        })
    }
}

/// Returns the treatment of a step in a repository with this worktree.
pub(crate) fn left(step: &Step, engine: &Engine, own: &Own<'_>) -> Left {
    let Own {
        directory: own,
        afterwards: head,
    } = own;
    let names: Vec<&[u8]> = step.path.components().collect();
    let Act::Replace { old, new } = &step.act else {
        return Left::No;
    };
    let host = &engine.tree;
    match names.as_slice() {
        [b"objects"] | [b"objects", ..] if names.get(1) != Some(&&b"info"[..]) => {
            match old.is_empty() {
                true if are_objects(step, new, host) => Left::Yes,
                true => Left::Told("branches may need these objects since"),
                false => Left::No,
            }
        }
        [b"refs", ..] => {
            let elsewhere = Elsewhere::look(host, own);
            let is_kept = |entry: &Entry| old.iter().any(|old| old.beneath == entry.beneath);
            let branches = new.iter().filter_map(|entry| {
                let path = step.path.concat(&entry.beneath);
                let name = path.as_bytes().strip_prefix(b"refs/heads/")?.to_vec();
                let is_directory = matches!(entry.node, Node::Directory);
                (!is_directory).then(|| (name, is_kept(entry)))
            });
            let mut why = None;
            for (name, is_kept) in branches {
                let touches = |known: &Elsewhere| known.touches(&name, false);
                if elsewhere.as_ref().is_none_or(touches) {
                    why = Some(TAKEN_UP);
                } else if !is_kept && head.may_be(&name) {
                    why = why.or(Some(ON_IT));
                }
            }
            why.map_or(Left::No, Left::Told)
        }
        _ if is_head(step, own) && !old.is_empty() => match Head::before(engine, step) {
            Head::Branch(name) => {
                let elsewhere = Elsewhere::look(host, own);
                let touches = |known: &Elsewhere| known.touches(&name, false);
                match elsewhere.as_ref().is_none_or(touches) {
                    true => Left::Told(TAKEN_UP),
                    false => Left::No,
                }
            }
            Head::Other => Left::No,
            Head::Unknown => Left::Told("the branch that it named cannot be read"),
        },
        _ => Left::No,
    }
}

fn is_head(step: &Step, own: &RelativePath) -> bool {
    own.join(b"HEAD").is_ok_and(|head| head == step.path)
}

/// The state of a worktree's `HEAD`.
enum Head {
    Branch(Vec<u8>),
    /// No branch.
    Other,
    Unknown,
}

impl Head {
    /// Returns the `HEAD` of the worktree once the steps of this journal are undone.
    fn afterwards(engine: &Engine, own: &RelativePath) -> Result<Self, ApplyError> {
        for step in engine.steps.iter() {
            let (_, step) = step?;
            if is_head(&step, own) {
                return Ok(Self::before(engine, &step));
            }
        }
        let Ok(head) = own.join(b"HEAD") else {
            return Ok(Self::Unknown);
        };
        let text = small(&engine.tree, &head, REFERENCE_BYTES_MAX);
        Ok(text.map_or(Self::Unknown, |text| Self::of(&text)))
    }

    /// Returns the `HEAD` before a step changed it.
    fn before(engine: &Engine, step: &Step) -> Self {
        let Act::Replace { old, .. } = &step.act else {
            return Self::Unknown;
        };
        let [entry] = old.as_slice() else {
            return Self::Unknown;
        };
        let Node::File {
            content: Content::Kept { number, .. },
            ..
        } = &entry.node
        else {
            return Self::Unknown;
        };
        let mut text = Vec::new();
        let kept = engine.journal.kept(*number).ok();
        let read = kept.map(|file| file.take(REFERENCE_BYTES_MAX).read_to_end(&mut text));
        match read {
            Some(Ok(_)) => Self::of(&text),
            Some(Err(_)) | None => Self::Unknown,
        }
    }

    fn of(text: &[u8]) -> Self {
        match text.trim_ascii().strip_prefix(b"ref:") {
            Some(name) => match name.trim_ascii().strip_prefix(b"refs/heads/") {
                Some(name) => Self::Branch(name.to_vec()),
                None => Self::Unknown,
            },
            None => Self::Other,
        }
    }

    fn may_be(&self, name: &[u8]) -> bool {
        match self {
            Self::Branch(on) => on.eq_ignore_ascii_case(name),
            Self::Other => false,
            Self::Unknown => true,
        }
    }
}

/// Returns whether everything that a step made is a loose object that matches its name.
fn are_objects(step: &Step, new: &[Entry], host: &Tree) -> bool {
    let Some(format) = Format::of_repository(host) else {
        return false;
    };
    let is_object = |entry: &Entry| {
        let path = step.path.concat(&entry.beneath);
        let read = || {
            let id = Id::at(&path, format)?;
            let (file, _) = host.file(&path).ok()?;
            let mut bytes_left = BYTES_MAX;
            Loose::read(file, &id, format, &mut bytes_left)
        };
        match entry.node {
            Node::Directory => true,
            Node::File { .. } => read().is_some(),
            Node::Symlink { .. } | Node::Special => false,
        }
    };
    new.iter().all(is_object)
}
