//! Crates that may use another one for a few names and nothing else.
//!
//! Neither the map of crates nor the compiler can express that: a dependency opens everything
//! public in it.

use super::Finding;
use super::rules::{Facade, Rules};
use super::source;
use crate::tree::{SourceFile, Tree};

const WHY: &str = "the crate must not come to know more of the other than these names";

pub(crate) fn check(tree: &Tree, rules: &Rules) -> Vec<Finding> {
    let mut findings = Vec::new();
    for facade in &rules.facades {
        for file in tree.rust().filter(|file| !file.is_test()) {
            if file.crate_name() == Some(facade.user.as_str()) {
                findings.extend(strangers(file, facade));
            }
        }
    }
    findings
}

fn strangers(file: &SourceFile, facade: &Facade) -> Vec<Finding> {
    let code = source::without_tests(&source::mask(&file.text));
    let package = format!("atoll_{}", facade.of);
    let mut findings = Vec::new();
    for (at, word) in source::words(&code) {
        if word != package {
            continue;
        }
        let after = code.get(at + word.len()..).unwrap_or_default();
        let line = code.get(..at).unwrap_or_default().matches('\n').count() + 1;
        for name in named(after) {
            if !facade.names.contains(&name) {
                findings.push(Finding {
                    path: file.path.clone(),
                    line,
                    what: format!("`{package}::{name}`"),
                    why: WHY,
                    fix: format!("use only {} of `{package}`", facade.names.join(", ")),
                });
            }
        }
    }
    findings
}

/// Returns the names directly behind a crate's name: one, those of a group, or `*` for everything,
/// which is also what a bare use of the crate means.
fn named(after: &str) -> Vec<String> {
    let Some(path) = after.trim_start().strip_prefix("::") else {
        return vec!["*".to_owned()];
    };
    let Some(group) = path.strip_prefix('{') else {
        let name = source::words(path).next().filter(|(at, _)| *at == 0);
        return vec![name.map_or("*", |(_, name)| name).to_owned()];
    };
    let group = group.split('}').next().unwrap_or_default();
    group
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(|item| {
            source::words(item)
                .next()
                .map_or("*", |(_, name)| name)
                .to_owned()
        })
        .collect()
}
