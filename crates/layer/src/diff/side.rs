//! One side of a file's change: its content, as far as a diff has it.

use std::io::Read as _;

use super::{Entry, Page};
use crate::EntryKind;

/// One side of a file's change.
pub(super) enum Side {
    Nothing,
    Text(Vec<u8>),
    /// Its size, and its content where a patch has it.
    Binary(u64, Option<Vec<u8>>),
    Unreadable,
}

impl Side {
    pub(super) fn read(entry: Option<&Entry<'_>>, page: &mut Page<'_>) -> Self {
        let Some(Entry { tree, at, facts }) = entry else {
            return Self::Nothing;
        };
        let bytes_max = page.options.file_bytes_max.min(page.room);
        match &facts.kind {
            EntryKind::Directory | EntryKind::Special => return Self::Nothing,
            EntryKind::Symlink { target } => return Self::Text(target.clone()),
            EntryKind::File if facts.bytes > bytes_max => return Self::Binary(facts.bytes, None),
            EntryKind::File => {}
        }
        let mut bytes = Vec::new();
        let read = tree
            .file(at)
            .and_then(|(file, _)| file.take(bytes_max).read_to_end(&mut bytes));
        page.room = page.room.saturating_sub(bytes.len() as u64);
        match read {
            Err(_) => Self::Unreadable,
            Ok(_) if bytes.contains(&0) => {
                Self::Binary(facts.bytes, page.options.exact.then_some(bytes))
            }
            Ok(_) => Self::Text(bytes),
        }
    }

    /// Returns the content, where it can be shown.
    pub(super) fn text(self) -> Option<Vec<u8>> {
        match self {
            Self::Nothing => Some(Vec::new()),
            Self::Text(text) => Some(text),
            Self::Binary(..) | Self::Unreadable => None,
        }
    }

    /// Returns the content for a binary patch.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        match self {
            Self::Nothing => Some(&[]),
            Self::Text(content) | Self::Binary(_, Some(content)) => Some(content),
            Self::Binary(_, None) | Self::Unreadable => None,
        }
    }

    pub(super) fn is_binary(&self) -> bool {
        matches!(self, Self::Binary(..))
    }

    pub(super) fn size(&self) -> Option<u64> {
        match self {
            Self::Nothing => Some(0),
            Self::Text(text) => Some(text.len() as u64),
            Self::Binary(bytes, _) => Some(*bytes),
            Self::Unreadable => None,
        }
    }
}
