//! Commit subjects: `area: imperative`, up to 72 characters.

use std::path::Path;
use std::process::Command;

use super::Finding;
use super::rules::Rules;
use crate::command;

const WHY: &str = "a history is read by its subjects";
const SUBJECT_CHARACTERS_MAX: usize = 72;

/// Checks the commits after the one that `tidy.toml` names; merges have subjects of git's own.
/// Without that commit (no repository, or a shallow one) there is nothing to check.
pub(crate) fn check(root: &Path, rules: &Rules) -> Vec<Finding> {
    let range = format!("{}..HEAD", rules.commits.since);
    let mut log = Command::new("git");
    log.arg("-C").arg(root);
    log.args(["log", "--no-merges", "--format=%h %s", &range]);
    let listed = command::output(log.stderr(std::process::Stdio::null())).unwrap_or_default();
    let commits = listed.lines().filter_map(|line| line.split_once(' '));
    let bad = commits.filter_map(|(commit, subject)| Some((commit, subject, wrong(subject)?)));
    bad.map(|(commit, subject, wrong)| Finding {
        path: commit.to_owned(),
        line: 1,
        what: format!("the subject {wrong}: {subject}"),
        why: WHY,
        fix: "write `area: imperative`, and the why in the body".to_owned(),
    })
    .collect()
}

/// Returns what is wrong with a subject, if anything.
pub(crate) fn wrong(subject: &str) -> Option<&'static str> {
    let is_area =
        |one: char| one.is_ascii_lowercase() || one.is_ascii_digit() || "-_/., ".contains(one);
    match subject.split_once(": ") {
        _ if subject.chars().count() > SUBJECT_CHARACTERS_MAX => Some("is too long"),
        None => Some("has no area"),
        Some((area, _)) if area.is_empty() || !area.chars().all(is_area) => Some("has no area"),
        Some((_, rest)) if !rest.starts_with(char::is_lowercase) => Some("begins with a capital"),
        Some((_, rest)) if rest.ends_with('.') => Some("ends with a full stop"),
        Some(_) => None,
    }
}
