//! The lock files of Python: requirements of pip, `uv.lock`, `poetry.lock`.

use atoll_model::network::Lock;
use serde::Deserialize;

use super::{toml_of, unknown_version};

/// The known version of `uv.lock`.
const UV_VERSION: i64 = 1;
/// The sources that mean PyPI.
const SOURCES: [&str; 2] = ["https://pypi.org/simple", "https://pypi.org/simple/"];

/// Adds the lines that are one exact release: `name==version`, perhaps with `[extras]`, a
/// marker after `;` and hashes. Any other line adds none: options, other files, ranges, `===`,
/// `==1.*`, URLs. If such a line names a package, its number is noted.
pub(super) fn read_requirements(text: &str, lock: &mut Lock) {
    // A `\` at the end of a line goes on in the next.
    let mut lines = text.lines().zip(1_u32..);
    while let Some((line, number)) = lines.next() {
        let mut whole = line.to_owned();
        while whole.ends_with('\\') {
            let Some((next, _)) = lines.next() else {
                break;
            };
            whole.pop();
            whole.push(' ');
            whole.push_str(next);
        }
        match exact(&whole) {
            Some((name, version)) => lock.add(name, version),
            None => lock.note_open(named(&whole), number),
        }
    }
}

/// Returns the package of a line that is no exact release: the word at its beginning, if that
/// is a name and is followed by a range or nothing.
fn named(line: &str) -> &str {
    let line = line.trim_start();
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let end = line.find(|letter: char| !is_of_name(letter));
    let (name, rest) = line.split_at(end.unwrap_or(line.len()));
    let rest = rest.trim_start();
    let is_range = rest.is_empty() || rest.starts_with(['<', '>', '=', '!', '~', '[', ';', '#']);
    match is_range && !name.starts_with('-') {
        true => name,
        false => "",
    }
}

fn exact(line: &str) -> Option<(&str, &str)> {
    let line = match line.trim_start().starts_with('#') {
        true => "",
        false => line.split(" #").next().unwrap_or_default(),
    };
    let (line, _) = line.split_once(';').unwrap_or((line, ""));
    let (line, _) = line.split_once(" --hash=").unwrap_or((line, ""));
    let (name, version) = line.split_once("==")?;
    let name = match name.trim().split_once('[') {
        Some((name, extras)) => {
            let extras = extras.strip_suffix(']')?;
            let is_extra = |byte: u8| byte.is_ascii_alphanumeric() || b"-_., ".contains(&byte);
            extras.bytes().all(is_extra).then(|| name.trim_end())?
        }
        None => name.trim(),
    };
    Some((name, version.trim()))
}

/// `uv.lock`, without the fields that are not needed.
#[derive(Deserialize)]
struct UvFile {
    version: i64,
    #[serde(default)]
    package: Vec<UvPackage>,
}

#[derive(Deserialize)]
struct UvPackage {
    name: String,
    /// `None` for a package of the project itself.
    version: Option<String>,
    source: UvSource,
}

#[derive(Deserialize)]
struct UvSource {
    /// `None` if it comes from git, a URL or a directory.
    registry: Option<String>,
}

/// Adds the releases from PyPI.
pub(super) fn read_uv(text: &str, lock: &mut Lock) -> Result<(), String> {
    let file: UvFile = toml_of(text)?;
    if file.version != UV_VERSION {
        return Err(unknown_version(file.version));
    }
    for package in &file.package {
        let registry = package.source.registry.as_deref().unwrap_or_default();
        if let (true, Some(version)) = (SOURCES.contains(&registry), &package.version) {
            lock.add(&package.name, version);
        }
    }
    Ok(())
}

/// `poetry.lock`, without the fields that are not needed.
#[derive(Deserialize)]
struct PoetryFile {
    #[serde(default)]
    package: Vec<PoetryPackage>,
}

#[derive(Deserialize)]
struct PoetryPackage {
    name: String,
    version: String,
    /// Set if it does not come from PyPI.
    source: Option<serde::de::IgnoredAny>,
}

/// Adds the releases from PyPI.
pub(super) fn read_poetry(text: &str, lock: &mut Lock) -> Result<(), String> {
    let file: PoetryFile = toml_of(text)?;
    for package in file.package.iter().filter(|one| one.source.is_none()) {
        lock.add(&package.name, &package.version);
    }
    Ok(())
}
