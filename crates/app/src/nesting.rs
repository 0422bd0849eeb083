//! What to say where a program could not make a sandbox of its own.

use atoll_store::RunRecord;

/// Programs that make a sandbox of their own, or fail.
const NESTING_PROGRAMS: [&str; 9] = [
    "bwrap",
    "chrome",
    "chromium",
    "google-chrome",
    "electron",
    "flatpak",
    "podman",
    "buildah",
    "unshare",
];

/// What to ask for where a command names a program that makes namespaces of its own.
pub fn nesting_hint(record: &RunRecord) -> Option<String> {
    let words = record.command.iter().map(|word| word.to_string_lossy());
    let named = words
        .flat_map(|word| {
            let parts = word.split(|letter: char| !letter.is_alphanumeric() && letter != '-');
            parts.map(str::to_owned).collect::<Vec<String>>()
        })
        .find(|word| NESTING_PROGRAMS.contains(&word.as_str()))?;
    Some(format!(
        "{named} makes namespaces of its own, which are refused here; \
         atoll run --nesting lets it, and docs/nesting.md says what that opens"
    ))
}
