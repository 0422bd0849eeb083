//! Paths in a volume, as callers write them.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path in a volume: names alone, none of them `..`; none for the volume's own directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Within(PathBuf);

impl Within {
    /// Reads a path; one from the volume's top on, with or without a slash before it.
    ///
    /// # Errors
    /// `InvalidInput` with a name that none can have.
    pub(super) fn parse(text: &str) -> io::Result<Self> {
        let mut path = PathBuf::new();
        for name in text.as_bytes().split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => return Err(io::ErrorKind::InvalidInput.into()),
                name if name.contains(&0) => return Err(io::ErrorKind::InvalidInput.into()),
                name => path.push(OsStr::from_bytes(name)),
            }
        }
        Ok(Self(path))
    }

    /// Returns it for the kernel, from the volume's top.
    pub(super) fn relative(&self) -> &Path {
        match self.0.as_os_str().is_empty() {
            true => Path::new("."),
            false => &self.0,
        }
    }

    /// Returns the directory that it lies in, and its name there.
    ///
    /// # Errors
    /// `InvalidInput` for the volume's own directory.
    pub(super) fn split(&self) -> io::Result<(Self, &OsStr)> {
        let name = self.0.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = self.0.parent().map(Path::to_path_buf);
        Ok((Self(parent.unwrap_or_default()), name))
    }

    pub(super) fn join(&self, name: &OsStr) -> Self {
        Self(self.0.join(name))
    }

    /// Returns it as callers see it.
    pub(super) fn told(&self) -> String {
        format!("/{}", self.0.display())
    }

    /// Returns each directory on the way to it, the outermost first, and itself.
    pub(super) fn steps(&self) -> Vec<Self> {
        let mut all: Vec<Self> = self
            .0
            .ancestors()
            .filter(|path| !path.as_os_str().is_empty())
            .map(|path| Self(path.to_path_buf()))
            .collect();
        all.reverse();
        all
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn path_within_volume_stays_there() {
        let check = |text: &str, expected: Option<&str>| {
            let told = Within::parse(text).ok().map(|path| path.told());
            assert_eq!(told.as_deref(), expected, "{text:?}");
        };
        check("", Some("/"));
        check("/", Some("/"));
        check("a/b", Some("/a/b"));
        check("//a/./b//", Some("/a/b"));
        check("/a/../b", None);
        check("..", None);
        check("a\0b", None);
        let steps = Within::parse("/a/b/c").unwrap().steps();
        let steps: Vec<String> = steps.iter().map(Within::told).collect();
        assert_eq!(steps, ["/a", "/a/b", "/a/b/c"]);
        assert!(Within::default().split().is_err());
    }
}
