//! The reasons why a program could not be started, and remedies, as far as the host shows them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use atoll_model::Ending;
use atoll_policy::Rules;
use atoll_store::RunRecord;
use serde_json::json;

use crate::configuration::Places;
use crate::printable::printable;

#[cfg(test)]
mod tests;

/// The directories of programs that every profile shows, unless it hides them.
const ALWAYS_SHOWN: [&str; 3] = ["/usr", "/bin", "/sbin"];

/// The lines of a person's own profile that make a program of the host visible in the sandbox.
#[derive(Debug, PartialEq, Eq)]
pub struct Showing {
    /// The profile's file.
    pub file: PathBuf,
    /// Set when the file exists already, so that the lines are added to it.
    pub is_there: bool,
    /// A line each.
    pub lines: Vec<String>,
}

/// Returns the profile lines that make a program visible in the sandbox, for runs that had
/// `profile`; `configuration` is `$XDG_CONFIG_HOME/atoll`. `None` if its name or directory cannot
/// be written in one.
pub fn showing(program: &Path, profile: &str, configuration: &Path) -> Option<Showing> {
    let name = program.file_name()?.to_str()?;
    let profiles = configuration.join("profiles");
    let read = format!("read = {}", json!(directories(program)?));
    let own = profiles.join(format!("{profile}.toml"));
    if own.exists() {
        let lines = vec!["[files]".to_owned(), read];
        return Some(Showing {
            file: own,
            is_there: true,
            lines,
        });
    }
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let stem = if name.chars().all(is_plain) {
        name
    } else {
        "own"
    };
    let free = [stem.to_owned(), format!("{stem}-shown")].into_iter();
    let mut free = free.map(|stem| profiles.join(stem + ".toml"));
    Some(Showing {
        file: free.find(|file| !file.exists())?,
        is_there: false,
        lines: vec![
            format!("extends = {}", json!([profile])),
            format!("commands = {}", json!([name])),
            "[files]".to_owned(),
            read,
        ],
    })
}

/// Returns the directories of a program and, if it is a link, of its target: one if both lie in the
/// installation around `bin`.
fn directories(program: &Path) -> Option<Vec<String>> {
    let directory = program.parent()?;
    let target = program.canonicalize().ok()?;
    let around = directory.parent().filter(|_| directory.ends_with("bin"));
    let around = around.and_then(|around| around.canonicalize().ok());
    // What a person has there besides is shown by no proposal.
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let is_wide = |around: &PathBuf| [home.clone(), home.join(".local")].contains(around);
    let around = around.filter(|around| {
        around.components().count() > 2 && target.starts_with(around) && !is_wide(around)
    });
    let directories = if target.parent() == directory.canonicalize().ok().as_deref() {
        vec![directory.to_owned()]
    } else if let Some(around) = around {
        vec![around]
    } else {
        vec![directory.to_owned(), target.parent()?.to_owned()]
    };
    let text = |one: &PathBuf| Some(one.to_str()?.to_owned());
    directories.iter().map(text).collect()
}

/// Finds a program by name in the host's `PATH`; `None` if it is in a directory that every profile
/// shows.
pub fn elsewhere_in_path(program: &OsStr) -> Option<PathBuf> {
    let path = in_path(program)?;
    let is_shown = ALWAYS_SHOWN.iter().any(|one| path.starts_with(one));
    (!is_shown).then_some(path)
}

fn in_path(program: &OsStr) -> Option<PathBuf> {
    all_in_path(program).into_iter().next()
}

/// Finds all places of a program in the host's `PATH`, in its order.
fn all_in_path(program: &OsStr) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&path).map(|directory| directory.join(program));
    all.filter(|path| path.is_file()).collect()
}

/// Looks up a program by name before anything is started. `None` if the host's `PATH` does not have
/// it; an error if the sandbox shows none of its places, naming the first.
///
/// # Errors
/// When the sandbox does not show it, with what would.
pub fn found_inside(program: &OsStr, rules: &Rules) -> Option<Result<(), String>> {
    let all = all_in_path(program);
    let first = all.first()?;
    let is_shown = |path: &PathBuf| {
        let is_system = ALWAYS_SHOWN.iter().any(|one| path.starts_with(one));
        // No workspace holds it.
        is_system || rules.shows(path, Path::new("/dev/null"))
    };
    Some(match all.iter().any(is_shown) {
        true => Ok(()),
        false => Err(unshown(program, first, rules.profile())),
    })
}

/// Explains that the profile does not show a program, and how to show it.
fn unshown(program: &OsStr, path: &Path, profile: &str) -> String {
    let configuration = Places::read().map(|places| places.config).ok();
    let showing = configuration.and_then(|place| showing(path, profile, &place));
    let way = match showing {
        Some(showing) => format!("\n{}\n    {}", showing.told(), showing.lines.join("\n    ")),
        None => "; a profile shows it that names its directory under [files] read".to_owned(),
    };
    format!(
        "{} is at {} on the host, which profile {profile} does not show inside{way}",
        printable(program.as_bytes()),
        printable(path.as_os_str().as_bytes())
    )
}

/// Returns a hint for a run that ended like this; `None` if its program was started. A level of
/// trust that shows nothing of the home overrides every profile.
pub fn hint(record: &RunRecord, ending: Ending, rules: &Rules) -> Option<String> {
    match ending {
        Ending::NotFound => not_at_path(record).or_else(|| Some(not_in_path(record, rules))),
        Ending::NotExecutable => not_executable(record),
        Ending::Exited { .. }
        | Ending::Signalled { .. }
        | Ending::Limited { .. }
        | Ending::Interrupted => None,
    }
}

/// Returns why an existing file could not be executed.
fn not_executable(record: &RunRecord) -> Option<String> {
    let name = record.command.first()?;
    let shown = printable(name.as_bytes());
    // What the run itself has made is not there on the host.
    let facts = fs::metadata(record.directory.join(name)).ok()?;
    if facts.is_dir() {
        return Some(format!("{shown} is a directory"));
    }
    let is_marked = facts.permissions().mode() & 0o111 != 0;
    (!is_marked).then(|| {
        format!("{shown} is not marked as a program; chmod +x {shown}, or name its interpreter")
    })
}

/// Returns why a program that was named by its path is not there: such a path is looked for in the
/// directory where the program starts, and not in `PATH`.
fn not_at_path(record: &RunRecord) -> Option<String> {
    let name = record.command.first()?;
    let path = Path::new(name);
    if !name.as_bytes().contains(&b'/') {
        return None;
    }
    let shown = printable(name.as_bytes());
    let directory = printable(record.directory.as_os_str().as_bytes());
    let host = record.directory.join(path);
    Some(if path.is_absolute() && host.exists() {
        format!(
            "{shown} is there on the host: profile {} does not show it inside, \
             or the interpreter that it names (`#!`, loader) is missing inside",
            record.profile
        )
    } else if path.is_absolute() {
        format!("{shown} does not exist on the host either")
    } else if host.exists() {
        format!(
            "{shown} is there in {directory}, but not inside, or the interpreter \
             that it names (`#!`, loader) is missing inside"
        )
    } else {
        format!("there is no file {shown} in {directory}")
    })
}

/// Returns why a program of the host may be missing in the sandbox.
fn not_in_path(record: &RunRecord, rules: &Rules) -> String {
    let name = record.command.first().cloned().unwrap_or_default();
    let shown = printable(name.as_bytes());
    let Some(path) = in_path(&name) else {
        return format!("{shown} is not in the PATH of the host either");
    };
    let host = printable(path.as_os_str().as_bytes());
    if ALWAYS_SHOWN.iter().any(|one| path.starts_with(one)) {
        return format!("{shown} is at {host}, also inside, but not in the PATH there");
    }
    if rules.leaves_all_out() {
        return format!(
            "{shown} is at {host} on the host: trust level none shows nothing of your home \
             directory, --trust low shows what profile {} does",
            record.profile
        );
    }
    if rules.shows(&path, &record.workspace) {
        return format!(
            "{shown} is at {host}, and profile {} shows it inside: the interpreter that it names \
             (`#!`, loader), or what it leads to, is missing there",
            record.profile
        );
    }
    unshown(&name, &path, &record.profile)
}

impl Showing {
    /// Names the file to write the lines to.
    pub fn told(&self) -> String {
        match self.is_there {
            true => format!("To show it add to {}:", self.file.display()),
            false => format!("To show it write a profile, {}:", self.file.display()),
        }
    }
}
