//! Why a program could not be started, and what to do, as far as the host shows it.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use atoll_model::Ending;
use atoll_store::RunRecord;

use crate::escape::printable;

/// Directories of programs that every profile shows, unless it says otherwise.
const ALWAYS_SHOWN: [&str; 3] = ["/usr", "/bin", "/sbin"];

/// What to say of a run that ended like this; `None` for one that was started. Where its level of
/// trust is the one that shows nothing of the home (`is_closed`), no profile does.
pub fn hint(record: &RunRecord, ending: Ending, is_closed: bool) -> Option<String> {
    match ending {
        Ending::NotFound => not_at_path(record).or_else(|| Some(not_in_path(record, is_closed))),
        Ending::NotExecutable => not_executable(record),
        Ending::Exited { .. }
        | Ending::Signalled { .. }
        | Ending::Limited { .. }
        | Ending::Interrupted => None,
    }
}

/// Why a file that is there is not executed.
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

/// Why a program that was named by its path is not there: such a path is looked
/// for in the directory where the program starts, and not in `PATH`.
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

/// Why a program that the person has may not be there inside.
fn not_in_path(record: &RunRecord, is_closed: bool) -> String {
    let name = record.command.first().cloned().unwrap_or_default();
    let shown = name.to_string_lossy();
    let on_host = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path)
            .map(|directory| directory.join(&name))
            .find(|path| path.is_file())
    });
    match on_host {
        Some(path) if ALWAYS_SHOWN.iter().any(|one| path.starts_with(one)) => format!(
            "{shown} is at {}, also inside, but not in the PATH there",
            path.display()
        ),
        Some(path) if is_closed => format!(
            "{shown} is at {} on the host: trust level none shows nothing of your home directory, \
             --trust low shows what profile {} does",
            path.display(),
            record.profile
        ),
        Some(path) => format!(
            "{shown} is at {} on the host, which profile {} does not show inside.\n\
             Try --profile permissive, or a profile that names the directory (atoll profile list)",
            path.display(),
            record.profile
        ),
        None => format!("{shown} is not in the PATH of the host either"),
    }
}
