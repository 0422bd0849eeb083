//! The parts of an agent's directories in the home that are no more than history: the agent reads
//! them and shows them to a person, and nobody runs or trusts them.

use super::matches_name;
use crate::RelativePath;

/// History, by the beginnings of paths within an agent's directory. Everything not named here is a
/// control file: settings, hooks, servers of MCP, plugins, skills, commands, instructions and
/// memories, a shell's startup files, and whatever comes with the agent's next version.
const HISTORY: [&str; 27] = [
    // Codex.
    "sessions",
    "archived_sessions",
    "session_index.jsonl",
    "history.jsonl",
    "log",
    "*.sqlite",
    "*.sqlite-shm",
    "*.sqlite-wal",
    "*.sqlite-journal",
    "version.json",
    "installation_id",
    ".sandbox_migration",
    // Claude Code.
    "projects",
    "todos",
    "statsig",
    "debug",
    "file-history",
    "stats-cache.json",
    "telemetry",
    // OpenCode.
    "storage",
    "snapshot",
    "tool-output",
    "opencode.db*",
    // Gemini CLI.
    "tmp",
    "history",
    "google_accounts.json",
    "state.json",
];

/// History that also remembers what was allowed, and what is run in a project: OpenCode's. The next
/// run goes on with it, but nothing outside changes by it without an approval of its own.
const REMEMBERED: [&str; 2] = ["storage", "opencode.db*"];

/// The directories of an agent's notes to itself, wherever they lie.
const MEMORIES: [&[u8]; 2] = [b"memory", b"memories"];

/// Returns whether a path within an agent's directory is history.
pub(crate) fn is_history(path: &RelativePath) -> bool {
    let names: Vec<Vec<u8>> = path.components().map(<[u8]>::to_ascii_lowercase).collect();
    let is_memory = |name: &Vec<u8>| MEMORIES.contains(&name.as_slice());
    begins_with(&HISTORY, path) && !names.iter().any(is_memory)
}

/// Returns whether a path within an agent's directory is history that does not record what is
/// allowed.
pub(crate) fn is_mere_history(path: &RelativePath) -> bool {
    is_history(path) && !begins_with(&REMEMBERED, path)
}

fn begins_with(patterns: &[&str], path: &RelativePath) -> bool {
    let first = path.components().next().map(<[u8]>::to_ascii_lowercase);
    first.is_some_and(|first| patterns.iter().any(|name| matches_name(name, &first)))
}

#[cfg(test)]
mod tests {
    use super::{HISTORY, MEMORIES};

    const PAGE: &str = include_str!("../../../../docs/kept.md");

    /// Returns the names in one row or several of the page's table.
    fn names<'a>(rows: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        rows.flat_map(|row| row.split('`').skip(1).step_by(2))
            .collect()
    }

    #[test]
    fn the_page_tells_what_history_is() {
        let (_, table) = PAGE
            .split_once("| names of history |\n|---|---|\n")
            .unwrap();
        let rows = || table.lines().take_while(|line| line.starts_with('|'));
        let is_memory = |row: &&str| row.starts_with("| never, wherever they lie |");
        assert_eq!(names(rows().filter(|row| !is_memory(row))), HISTORY);
        let memories = names(rows().filter(is_memory));
        let memories: Vec<&[u8]> = memories.iter().map(|name| name.as_bytes()).collect();
        assert_eq!(memories, MEMORIES);
    }
}
