use std::path::Path;

use crate::document::{Complaint, Document};
use crate::error::ProfileError;
use crate::{SourceFile, digest};

/// The project files that a person has trusted: a file counts only while its content is exactly the
/// one that was looked at.
///
/// As text it is TOML, one `[[trusted]]` table per file with `path` and `sha256`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustList {
    entries: Vec<Trusted>,
}

/// A trusted file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trusted {
    /// The file's absolute path.
    pub path: String,
    /// The SHA-256 of its content, 64 lower-case hexadecimal digits.
    pub sha256: String,
}

impl TrustList {
    /// Parses the output of [`TrustList::to_text`].
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] for anything else; then nothing is trusted.
    pub fn parse(file: &SourceFile<'_>) -> Result<Self, ProfileError> {
        let (mut document, mut top) = Document::open(file).map_err(ProfileError::Invalid)?;
        let mut entries: Vec<Trusted> = Vec::new();
        for (at, mut section) in document.sections(&mut top, "trusted") {
            let path = document.text(&mut section, "path", parse_path);
            let sha256 = document.text(&mut section, "sha256", parse_sha256);
            document.end(section, &["path", "sha256"]);
            match (path, sha256) {
                (Some(path), Some(_)) if entries.iter().any(|one| one.path == path.value) => {
                    document.report(&at, format!("{:?} is here twice", path.value), None);
                }
                (Some(path), Some(sha256)) => entries.push(Trusted {
                    path: path.value,
                    sha256: sha256.value,
                }),
                _ => document.report(&at, "needs `path` and `sha256`".to_owned(), None),
            }
        }
        document.end(top, &["trusted"]);
        document
            .close(Self { entries })
            .map_err(ProfileError::Invalid)
    }

    /// Returns the list as text, sorted by path.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text =
            String::from("# Project files that count, by content. Written by `atoll trust`.\n");
        let mut entries: Vec<&Trusted> = self.entries.iter().collect();
        entries.sort_by(|left, right| left.path.cmp(&right.path));
        for entry in entries {
            let path = toml::Value::String(entry.path.clone());
            let sha256 = &entry.sha256;
            text.push_str(&format!(
                "\n[[trusted]]\npath = {path}\nsha256 = \"{sha256}\"\n"
            ));
        }
        text
    }

    /// Trusts this content of a file, in place of any earlier content.
    pub fn trust(&mut self, path: &str, content: &[u8]) {
        self.revoke(path);
        self.entries.push(Trusted {
            path: path.to_owned(),
            sha256: digest(content),
        });
    }

    /// Removes a file. Returns whether it was trusted before.
    pub fn revoke(&mut self, path: &str) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.path != path);
        self.entries.len() != before
    }

    /// Returns whether this content of the file is trusted.
    #[must_use]
    pub fn trusts(&self, path: &str, content: &[u8]) -> bool {
        self.knows(path) && {
            let sha256 = digest(content);
            self.entries
                .iter()
                .any(|entry| entry.path == path && entry.sha256 == sha256)
        }
    }

    /// Returns whether some content of the file is trusted.
    #[must_use]
    pub fn knows(&self, path: &str) -> bool {
        self.entries.iter().any(|entry| entry.path == path)
    }

    /// Returns the trusted policy files in this directory.
    pub fn policies_in<'a>(&'a self, directory: Option<&'a Path>) -> impl Iterator<Item = &'a str> {
        let paths = self.entries.iter().map(|entry| entry.path.as_str());
        paths.filter(move |path| {
            let path = Path::new(path);
            let is_of_policies = path.extension().is_some_and(|end| end == "cedar");
            is_of_policies && directory.is_some() && path.parent() == directory
        })
    }

    /// Returns all entries.
    #[must_use]
    pub fn entries(&self) -> &[Trusted] {
        &self.entries
    }
}

fn parse_path(text: &str) -> Result<String, Complaint> {
    if text.starts_with('/') {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not an absolute path").into())
    }
}

fn parse_sha256(text: &str) -> Result<String, Complaint> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() == 64 && text.bytes().all(is_digit) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not 64 lower-case hexadecimal digits").into())
    }
}
