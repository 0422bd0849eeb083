//! The files of a build, packed for the server: a directory, without those that its `.dockerignore`
//! names, and an image's layout.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Seek};
use std::path::{Path, PathBuf};

use atoll_engine::failure::{Doing, Failure};
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The list of files that are left out.
const IGNORED: &str = ".dockerignore";

/// A pattern of that list.
struct Pattern {
    /// False if it takes back what those before it say.
    leaves_out: bool,
    names: Gitignore,
}

/// Packs the files of a directory, as tar does, in a file that is gone once it is closed.
///
/// # Errors
/// When one cannot be read.
pub(super) fn packed(directory: &Path) -> Result<File, Failure> {
    let ignored = ignored(directory)?;
    let file = tempfile::tempfile().doing("the files cannot be packed")?;
    let mut tar = tar::Builder::new(file);
    tar.follow_symlinks(false);
    add(&mut tar, directory, Path::new(""), &ignored)?;
    let mut file = tar.into_inner().doing("the files cannot be packed")?;
    file.rewind().doing("the files cannot be packed")?;
    Ok(file)
}

/// Reads the list of files that are left out. Its patterns begin at the directory.
fn ignored(directory: &Path) -> Result<Vec<Pattern>, Failure> {
    let mut all = Vec::new();
    let path = directory.join(IGNORED);
    let failed = format!("{} cannot be read", path.display());
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
        Err(error) => return Err(Failure::new(failed).because(error)),
    };
    for line in BufReader::new(file).lines() {
        let line = line.doing(&failed)?;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (leaves_out, pattern) = match line.strip_prefix('!') {
            Some(pattern) => (false, pattern),
            None => (true, line),
        };
        let pattern = pattern.trim_start_matches("./").trim_matches('/');
        let mut one = GitignoreBuilder::new(directory);
        one.add_line(None, &format!("/{pattern}")).doing(&failed)?;
        all.push(Pattern {
            leaves_out,
            names: one.build().doing(&failed)?,
        });
    }
    Ok(all)
}

/// Returns whether a file is left out: the last pattern for it, or for a directory that it is in, says
/// so.
fn is_left_out(patterns: &[Pattern], path: &Path, is_directory: bool) -> bool {
    let mut all = patterns.iter().rev();
    let last = all.find(|one| {
        let found = one.names.matched_path_or_any_parents(path, is_directory);
        found.is_ignore()
    });
    last.is_some_and(|one| one.leaves_out)
}

/// Adds the files of a directory, by their names beneath the first.
fn add(
    tar: &mut tar::Builder<File>,
    directory: &Path,
    below: &Path,
    ignored: &[Pattern],
) -> Result<(), Failure> {
    let here = directory.join(below);
    let failed = |path: &Path| format!("{} cannot be read", path.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&here).doing(&failed(&here))? {
        names.push(entry.doing(&failed(&here))?.file_name());
    }
    names.sort();
    for name in names {
        let within: PathBuf = below.join(&name);
        let path = directory.join(&within);
        let kind = path.symlink_metadata().doing(&failed(&path))?.file_type();
        let is_left_out = is_left_out(ignored, &within, kind.is_dir());
        // What is named after it can be in a directory that is left out.
        if kind.is_dir() {
            if !is_left_out {
                tar.append_dir(&within, &path).doing(&failed(&path))?;
            }
            add(tar, directory, &within, ignored)?;
        } else if !is_left_out && (kind.is_file() || kind.is_symlink()) {
            tar.append_path_with_name(&path, &within)
                .doing(&failed(&path))?;
        }
    }
    Ok(())
}
