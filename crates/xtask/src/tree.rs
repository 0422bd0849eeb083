//! The files of the project as the checks see them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;

/// Directories without sources: git's own, and those of builds.
const LEFT_OUT: [&str; 3] = [".git", "target", "node_modules"];

/// A text file; `path` is relative to the project, with slashes.
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// All files of the project that are text.
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    pub(crate) files: Vec<SourceFile>,
}

/// Returns the directory of the current workspace.
pub(crate) fn root() -> Result<PathBuf> {
    let manifest = command::output(command::cargo().args([
        "locate-project",
        "--workspace",
        "--message-format",
        "plain",
    ]))?;
    let manifest = PathBuf::from(manifest.trim_end());
    manifest
        .parent()
        .map(Path::to_path_buf)
        .context("the workspace's manifest has no directory")
}

/// Returns the files that git tracks or would track; without git, every file.
pub(crate) fn paths(root: &Path) -> Result<Vec<String>> {
    let mut paths = match tracked(root) {
        Ok(paths) => paths,
        Err(_) => walk(root)?,
    };
    paths.sort();
    Ok(paths)
}

/// Copies the files that git tracks or would track.
pub(crate) fn copy(root: &Path, copy: &Path) -> Result<()> {
    for path in paths(root)? {
        let (source, target) = (root.join(&path), copy.join(&path));
        fs::create_dir_all(target.parent().unwrap_or(copy))?;
        if source.is_file() {
            fs::copy(source, target)?;
        }
    }
    Ok(())
}

impl Tree {
    /// Reads every file that is text.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        for path in paths(root)? {
            // A file that is not UTF-8 or was deleted a moment ago holds no text to check.
            if let Ok(text) = fs::read_to_string(root.join(&path)) {
                files.push(SourceFile { path, text });
            }
        }
        Ok(Self {
            root: root.to_path_buf(),
            files,
        })
    }

    /// Returns the files that end in `.rs`.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// Returns the text of one file, by its path in the project.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files
            .iter()
            .find(|file| file.path == path)
            .map(|file| file.text.as_str())
    }
}

impl SourceFile {
    /// Returns whether the file holds tests alone.
    pub(crate) fn is_test(&self) -> bool {
        let in_tests = self.path.contains("/tests/") || self.path.contains("/benches/");
        let name = self.path.rsplit('/').next().unwrap_or_default();
        in_tests
            || name == "tests.rs"
            || name.ends_with("_tests.rs")
            || self.path.starts_with("crates/e2e/")
            || self.path.starts_with("fuzz/")
    }

    /// Returns the folder below `crates/` that the file is in.
    pub(crate) fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }
}

fn tracked(root: &Path) -> Result<Vec<String>> {
    let listed = command::output(Command::new("git").arg("-C").arg(root).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    Ok(listed
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect())
}

fn walk(root: &Path) -> Result<Vec<String>> {
    let mut waiting = vec![root.to_path_buf()];
    let mut paths = Vec::new();
    while let Some(directory) = waiting.pop() {
        let entries = fs::read_dir(&directory)
            .with_context(|| format!("cannot list {}", directory.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if LEFT_OUT.iter().any(|left_out| name == *left_out) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            } else if let Ok(relative) = entry.path().strip_prefix(root) {
                paths.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    Ok(paths)
}
