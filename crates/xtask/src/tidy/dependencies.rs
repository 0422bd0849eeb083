//! The allowed dependencies between crates, and the packages that the audited crates may bring in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Finding;
use super::rules::Rules;
use crate::command;
use crate::tree::Tree;

const WHY_MAP: &str = "what a crate may depend on is what it may know; ARCHITECTURE.md has the map";
const WHY_CLOSURE: &str = "everything that this crate brings in has to be audited with it";
const WHY_NEVER: &str = "what faces a person stays with the surface";
const WHY_LINTS: &str = "the lints of the workspace forbid unsafe code";

/// The part of `cargo metadata` that is read here.
#[derive(Deserialize)]
pub(crate) struct Graph {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
    /// The packages of crates that are built alone, by folder: features that others turn on are not
    /// theirs.
    #[serde(skip)]
    alone: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// `None` for a normal dependency, else `dev` or `build`.
    kind: Option<String>,
}

impl Graph {
    pub(crate) fn of_workspace(root: &Path, rules: &Rules) -> Result<Self> {
        let text = command::output(command::cargo().current_dir(root).args([
            "metadata",
            "--format-version",
            "1",
        ]))?;
        let mut graph = Self::parse(&text)?;
        let audited = rules
            .crates
            .iter()
            .filter(|(_, one)| one.third_party.is_some());
        for (folder, _) in audited {
            let package = format!("atoll-{folder}");
            let words = [
                "tree",
                "--edges",
                "normal,build",
                "--prefix",
                "none",
                "-p",
                &package,
            ];
            let told = command::output(command::cargo().current_dir(root).args(words))?;
            let names = told.lines().filter_map(|line| line.split(' ').next());
            let names = names.map(str::to_owned).collect();
            graph.alone.insert(folder.clone(), names);
        }
        Ok(graph)
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("cargo metadata has an unexpected form")
    }

    /// Returns the folders of the workspace's own crates, by package id.
    fn folders(&self) -> BTreeMap<&str, &str> {
        self.packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
            .filter_map(|package| {
                let folder = package.manifest_path.parent()?.file_name()?.to_str()?;
                Some((package.id.as_str(), folder))
            })
            .collect()
    }

    /// Returns the packages that one needs to be built or run; tests may use anything.
    fn needs(&self, id: &str) -> impl Iterator<Item = &str> {
        let node = self.resolve.nodes.iter().find(|node| node.id == id);
        node.into_iter()
            .flat_map(|node| &node.deps)
            .filter(|edge| {
                edge.dep_kinds
                    .iter()
                    .any(|kind| kind.kind.as_deref() != Some("dev"))
            })
            .map(|edge| edge.pkg.as_str())
    }

    fn closure<'a>(&'a self, id: &'a str) -> BTreeSet<&'a str> {
        let mut seen = BTreeSet::new();
        let mut waiting = vec![id];
        while let Some(next) = waiting.pop() {
            for needed in self.needs(next) {
                if seen.insert(needed) {
                    waiting.push(needed);
                }
            }
        }
        seen
    }

    /// Returns whether a package is there only by a feature that a crate of others turns on.
    fn is_of_others(&self, folder: &str, name: &str) -> bool {
        let alone = self.alone.get(folder);
        alone.is_some_and(|alone| !alone.contains(name))
    }

    fn name<'a>(&'a self, id: &'a str) -> &'a str {
        let package = self.packages.iter().find(|package| package.id == id);
        package.map_or(id, |package| package.name.as_str())
    }
}

pub(crate) fn check(tree: &Tree, rules: &Rules, graph: &Graph) -> Vec<Finding> {
    let folders = graph.folders();
    let mut findings = Vec::new();
    for (id, folder) in &folders {
        let manifest = format!("crates/{folder}/Cargo.toml");
        let mut report = |dependency: &str, what: String, why: &'static str, fix: &str| {
            findings.push(Finding {
                line: line_of(tree, &manifest, dependency),
                path: manifest.clone(),
                what,
                why,
                fix: fix.to_owned(),
            });
        };
        if *folder != rules.audited.unsafe_only_in && !inherits_lints(tree, &manifest) {
            report(
                "[lints]",
                "own lints".to_owned(),
                WHY_LINTS,
                "write `workspace = true`",
            );
        }
        let Some(member) = rules.crates.get(*folder) else {
            let fix = "add it to `crates` in tidy.toml and to ARCHITECTURE.md";
            report(
                "name",
                format!("`{folder}` is not on the map"),
                WHY_MAP,
                fix,
            );
            continue;
        };
        for needed in graph.needs(id) {
            if let Some(other) = folders.get(needed)
                && !member.own.iter().any(|own| own == other)
            {
                let what = format!("`{folder}` depends on `{other}`");
                let fix = "turn the dependency around, or move the type to where both may see it";
                report(graph.name(needed), what, WHY_MAP, fix);
            }
        }
        for needed in graph.closure(id) {
            let name = graph.name(needed);
            if member.never.iter().any(|one| one == name) {
                let what = format!("`{folder}` brings in `{name}`");
                report(name, what, WHY_NEVER, "move what needs it to the surface");
            }
            let Some(third_party) = &member.third_party else {
                continue;
            };
            let own = folders.contains_key(needed) || graph.is_of_others(folder, name);
            if !own && !third_party.iter().any(|allowed| allowed == name) {
                let what = format!("`{folder}` brings in `{name}`");
                report(
                    name,
                    what,
                    WHY_CLOSURE,
                    "do without it, or argue for it in tidy.toml",
                );
            }
        }
    }
    findings
}

fn line_of(tree: &Tree, manifest: &str, dependency: &str) -> usize {
    let text = tree.text(manifest).unwrap_or_default();
    text.lines()
        .position(|line| line.starts_with(dependency))
        .map_or(1, |line| line + 1)
}

fn inherits_lints(tree: &Tree, manifest: &str) -> bool {
    let text = tree.text(manifest).unwrap_or_default();
    let lints = text.split_once("[lints]").map_or("", |(_, after)| after);
    lints.lines().any(|line| line.trim() == "workspace = true")
}
