//! The fuzz targets and their seeds: each target has some, few and small, and no
//! seed belongs to a target that is gone.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Result;

use super::Finding;
use super::rules::Rules;
use crate::suite::fuzzing::{MANIFEST, targets};
use crate::tree::{self, Tree};

const CORPUS: &str = "fuzz/corpus/";
const WHY: &str = "seeds say what a target is about; what a run has found beyond is no source";

/// Checks the files themselves, since a seed need not be text.
pub(crate) fn check(tree: &Tree, rules: &Rules) -> Result<Vec<Finding>> {
    let Some(manifest) = tree.text(MANIFEST) else {
        return Ok(Vec::new());
    };
    let mut seeds = Vec::new();
    for path in tree::paths(&tree.root)? {
        if path.starts_with(CORPUS)
            && let Ok(facts) = fs::metadata(tree.root.join(&path))
        {
            seeds.push((path, facts.len()));
        }
    }
    Ok(findings(&targets(manifest)?, &seeds, rules))
}

/// Returns the findings about these seeds, each a path and its size in bytes.
pub(crate) fn findings(targets: &[String], seeds: &[(String, u64)], rules: &Rules) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |path: String, what: String, fix: &str| {
        findings.push(Finding {
            path,
            line: 1,
            what,
            why: WHY,
            fix: fix.to_owned(),
        });
    };
    let limits = &rules.fuzz;
    let mut counts: BTreeMap<&str, usize> = targets.iter().map(|name| (&**name, 0)).collect();
    for (path, bytes) in seeds {
        let name = path.strip_prefix(CORPUS).unwrap_or(path);
        let name = name.split_once('/').map_or("", |(target, _)| target);
        match counts.get_mut(name) {
            Some(count) => *count += 1,
            None => report(
                path.clone(),
                "a seed of no target".to_owned(),
                "remove it, or name its target in fuzz/Cargo.toml",
            ),
        }
        if *bytes > limits.seed_bytes {
            report(
                path.clone(),
                format!("{bytes} bytes, more than {}", limits.seed_bytes),
                "make it smaller: cargo fuzz tmin",
            );
        }
    }
    for (name, count) in counts {
        if count == 0 || count > limits.seeds {
            report(
                MANIFEST.to_owned(),
                format!(
                    "the target `{name}` has {count} seeds, not 1 to {}",
                    limits.seeds
                ),
                "keep a few that differ in kind in fuzz/corpus",
            );
        }
    }
    findings
}
