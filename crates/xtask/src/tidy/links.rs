//! The check that relative links in Markdown lead somewhere.

use std::path::{Component, Path, PathBuf};

use super::Finding;
use crate::tree::{SourceFile, Tree};

const WHY: &str = "a reader who follows the link finds nothing";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, target) in targets(file) {
            if !leads_somewhere(tree, &file.path, &target) {
                findings.push(Finding {
                    path: file.path.clone(),
                    line,
                    what: format!("the link to `{target}`"),
                    why: WHY,
                    fix: "correct the path; it is relative to the file with the link".to_owned(),
                });
            }
        }
    }
    findings
}

/// Returns the targets of inline links and of link definitions, code left out.
fn targets(file: &SourceFile) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        // Every second part between backticks is code.
        let prose: Vec<&str> = line.split('`').step_by(2).collect();
        let prose = prose.join("`");
        for after in prose.split("](").skip(1) {
            let target = after.split([')', ' ']).next().unwrap_or_default();
            found.push((number + 1, target.to_owned()));
        }
        if prose.starts_with('[')
            && let Some((_, after)) = prose.split_once("]: ")
        {
            let target = after.split_whitespace().next().unwrap_or_default();
            found.push((number + 1, target.to_owned()));
        }
    }
    found
}

fn leads_somewhere(tree: &Tree, from: &str, target: &str) -> bool {
    let path = target.split('#').next().unwrap_or_default();
    let elsewhere = target.contains("://") || target.starts_with("mailto:");
    if elsewhere || (path.is_empty() && !target.is_empty()) {
        return true;
    }
    let directory = Path::new(from).parent().unwrap_or(Path::new(""));
    let Some(resolved) = normal(&directory.join(path)) else {
        return false;
    };
    tree.files
        .iter()
        .any(|file| Path::new(&file.path).starts_with(&resolved))
}

/// Returns the path without `.` and `..`; `None` if it leads out of the project.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut parts = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::CurDir => {}
            Component::ParentDir => {
                if !parts.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts)
}
