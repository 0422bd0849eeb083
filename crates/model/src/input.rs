//! Inputs: what is put into a sandbox by a name, as it was when the sandbox was made.

use std::fmt;
use std::path::{Path, PathBuf};

/// The directory of inputs, inside: each is beneath it by its name.
pub const INPUTS_DIRECTORY: &str = "/inputs";

/// The longest name, bytes.
const NAME_BYTES_MAX: usize = 100;

/// An input.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Input {
    /// Its name.
    pub name: InputName,
    /// The place that it comes from.
    pub source: InputSource,
}

impl Input {
    /// Returns its path in the sandbox.
    #[must_use]
    pub fn inside(&self) -> PathBuf {
        Path::new(INPUTS_DIRECTORY).join(&self.name.0)
    }
}

/// The name of an input: letters, digits, `.`, `_` and `-`, at most 100 bytes, with no `.` or `-` at
/// its begin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputName(String);

impl InputName {
    /// Parses a name; `None` if it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = (1..=NAME_BYTES_MAX).contains(&text.len())
            && !text.starts_with(['.', '-'])
            && text.bytes().all(fits);
        is_name.then(|| Self(text.to_owned()))
    }

    /// Returns it as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InputName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The place that an input comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InputSource {
    /// A file or a directory of the host, absolute, free of symbolic links.
    Path(PathBuf),
    /// An artifact that was promoted, by its id.
    Artifact(String),
    /// A download, which is fetched outside.
    Download {
        /// The address.
        url: String,
        /// The SHA-256 digest that it has to have: 64 hexadecimal digits, in lower case.
        sha256: String,
    },
}

impl InputSource {
    /// Reads a source that is no path: `artifact:ID`, or `https://…#sha256=HEX`; `None` for others.
    ///
    /// # Errors
    /// The reason why it is none, although it begins like one.
    pub fn parse(text: &str) -> Option<Result<Self, &'static str>> {
        if let Some(id) = text.strip_prefix("artifact:") {
            return Some(Ok(Self::Artifact(id.to_owned())));
        }
        if !text.starts_with("https://") && !text.starts_with("http://") {
            return None;
        }
        let is_digest = |digest: &&str| {
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            digest.len() == 64 && digest.bytes().all(is_digit)
        };
        let parts = text.split_once("#sha256=");
        Some(match parts.filter(|(_, digest)| is_digest(digest)) {
            Some((url, digest)) => Ok(Self::Download {
                url: url.to_owned(),
                sha256: digest.to_owned(),
            }),
            None => Err("a download has its digest: #sha256= and 64 hexadecimal digits"),
        })
    }
}

impl fmt::Display for InputSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Artifact(id) => write!(f, "artifact:{id}"),
            Self::Download { url, sha256 } => write!(f, "{url}#sha256={sha256}"),
        }
    }
}

/// The bounds of the inputs of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputBounds {
    /// The most bytes of all of them.
    pub bytes: u64,
    /// The most files and directories of all of them.
    pub files: u64,
    /// The media types of their files, as `text/csv` or `text/*`, by content; any if empty.
    pub types: Vec<String>,
}

impl Default for InputBounds {
    fn default() -> Self {
        Self {
            bytes: 10 << 30,
            files: 100_000,
            types: Vec::new(),
        }
    }
}

impl InputBounds {
    /// Returns whether files of a media type are among those allowed.
    #[must_use]
    pub fn allows(&self, media: &str) -> bool {
        let fits = |one: &String| match one.strip_suffix('*') {
            Some(begin) => media.starts_with(begin),
            None => media == one,
        };
        self.types.is_empty() || self.types.iter().any(fits)
    }
}

/// The inputs of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Each of them, no two of one name.
    pub all: Vec<Input>,
    /// Their bounds.
    pub bounds: InputBounds,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere() {
        for name in ["a", "data-1.csv", "A_b", &"x".repeat(100)] {
            assert!(InputName::parse(name).is_some(), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            ".a",
            "-a",
            "a/b",
            "a b",
            "ä",
            "a\n",
            &"x".repeat(101),
        ] {
            assert!(InputName::parse(name).is_none(), "{name}");
        }
    }

    #[test]
    fn types_are_whole_or_families() {
        let bounds = |types: &[&str]| InputBounds {
            types: types.iter().map(|one| (*one).to_owned()).collect(),
            ..InputBounds::default()
        };
        assert!(bounds(&[]).allows("application/x-elf"));
        assert!(bounds(&["text/*"]).allows("text/plain"));
        assert!(bounds(&["text/plain"]).allows("text/plain"));
        assert!(!bounds(&["text/plain"]).allows("text/plainer"));
        assert!(!bounds(&["text/*", "image/png"]).allows("image/jpeg"));
    }
}
