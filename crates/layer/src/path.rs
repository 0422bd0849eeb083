use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Serialize};

use crate::escape;

/// A path beneath a root: raw bytes, never absolute, without empty, `.` or `..`
/// components and without NUL. The root itself is the empty path.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct RelativePath(Vec<u8>);

/// The error for bytes that are not a relative path that stays beneath its root.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a plain relative path")]
pub struct InvalidPath(pub String);

/// Bytes of any value, written into journals as text with escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Bytes(pub Vec<u8>);

impl RelativePath {
    /// Returns the path of a tree's root.
    #[must_use]
    pub fn root() -> Self {
        Self(Vec::new())
    }

    /// Parses bytes as a path.
    ///
    /// # Errors
    /// [`InvalidPath`] when they could lead out of the tree or are not in the
    /// one normal form.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, InvalidPath> {
        let bytes = bytes.into();
        let plain = bytes.is_empty() || bytes.split(|byte| *byte == b'/').all(is_plain_name);
        if plain {
            Ok(Self(bytes))
        } else {
            Err(InvalidPath(escape::text(&bytes)))
        }
    }

    /// Returns the path of an entry of this directory.
    ///
    /// # Errors
    /// [`InvalidPath`] when the name is not a single plain component.
    pub fn join(&self, name: &[u8]) -> Result<Self, InvalidPath> {
        if !is_plain_name(name) {
            return Err(InvalidPath(escape::text(name)));
        }
        let mut bytes = self.0.clone();
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Ok(Self(bytes))
    }

    /// Returns this path followed by another.
    #[must_use]
    pub fn concat(&self, rest: &Self) -> Self {
        match (self.is_root(), rest.is_root()) {
            (true, _) => rest.clone(),
            (_, true) => self.clone(),
            (false, false) => Self([self.0.as_slice(), b"/", rest.0.as_slice()].concat()),
        }
    }

    /// Returns the directory that holds this entry; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let cut = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        Some(Self(self.0.get(..cut).unwrap_or_default().to_vec()))
    }

    /// Returns all directories above, nearest first, without the root.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        std::iter::successors(self.parent(), Self::parent).take_while(|path| !path.is_root())
    }

    /// Returns the last component; empty for the root.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.components().last().unwrap_or_default()
    }

    /// Returns the components from the top.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
    }

    /// Returns the number of components.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.components().count()
    }

    /// Returns whether this is the root of its tree.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether this is `other` or lies beneath it.
    #[must_use]
    pub fn starts_with(&self, other: &Self) -> bool {
        self.beneath(other).is_some()
    }

    /// Returns the rest of the path beneath `other`; `None` if it does not lie there.
    #[must_use]
    pub fn beneath(&self, other: &Self) -> Option<Self> {
        if other.is_root() {
            return Some(self.clone());
        }
        match self.0.strip_prefix(other.0.as_slice())? {
            [] => Some(Self::root()),
            [b'/', rest @ ..] => Some(Self(rest.to_vec())),
            _ => None,
        }
    }

    /// Returns the raw bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path for the standard library.
    #[must_use]
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }
}

/// Escapes everything that a terminal could take for a command.
impl fmt::Display for RelativePath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            out.write_str(".")
        } else {
            out.write_str(&escape::text(&self.0))
        }
    }
}

impl fmt::Debug for RelativePath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{self}\"")
    }
}

impl TryFrom<Bytes> for RelativePath {
    type Error = InvalidPath;
    fn try_from(bytes: Bytes) -> Result<Self, InvalidPath> {
        Self::new(bytes.0)
    }
}

impl From<RelativePath> for Bytes {
    fn from(path: RelativePath) -> Self {
        Self(path.0)
    }
}

impl TryFrom<String> for Bytes {
    type Error = InvalidPath;
    fn try_from(text: String) -> Result<Self, InvalidPath> {
        escape::parse_record(&text)
            .map(Self)
            .ok_or(InvalidPath(text))
    }
}

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> Self {
        escape::record(&bytes.0)
    }
}

fn is_plain_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}
