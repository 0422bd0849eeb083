//! The accuracy of the shipped purposes: an example of `atoll-policy` decides labelled actions by
//! the real policies. Actions off a purpose should be refused, those on it allowed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::outcome::Outcome;
use super::{machine, report};
use crate::{command, tree};

/// The directory of the labelled actions: one file for each part.
const CORPORA: &str = "crates/policy/purposes/corpus";

/// A labelled action, and the decision on it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Decided {
    pub(super) purpose: String,
    /// True if it belongs to the purpose.
    pub(super) on: bool,
    pub(super) allowed: bool,
    by: Vec<String>,
    action: String,
    resource: String,
    method: Option<String>,
    path: Option<String>,
    reason: String,
}

impl fmt::Display for Decided {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.purpose, self.action)?;
        for word in [&self.method, &self.path].into_iter().flatten() {
            write!(to, " {word}")?;
        }
        write!(to, " {} ({})", self.resource, self.reason)
    }
}

/// The counts of the decisions for one purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) off: usize,
    /// The number of actions off the purpose that were refused.
    pub(super) caught: usize,
    pub(super) on: usize,
    /// The number of actions on the purpose that were refused.
    pub(super) refused: usize,
}

impl Tally {
    pub(super) fn of<'a>(all: impl Iterator<Item = &'a Decided>) -> Self {
        let mut tally = Self::default();
        for one in all {
            let (count, refused) = match one.on {
                true => (&mut tally.on, &mut tally.refused),
                false => (&mut tally.off, &mut tally.caught),
            };
            *count += 1;
            *refused += usize::from(!one.allowed);
        }
        tally
    }

    fn row(self, name: &str) -> String {
        let part = |some: usize, of: usize| match of {
            0 => "none".to_owned(),
            of => format!("{some} of {of} ({:.1}%)", 100.0 * some as f64 / of as f64),
        };
        format!(
            "| {name} | {} | {} |",
            part(self.caught, self.off),
            part(self.refused, self.on)
        )
    }
}

pub(crate) fn run() -> Result<Outcome> {
    let root = tree::root()?;
    let mut files: Vec<PathBuf> = fs::read_dir(root.join(CORPORA))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    files.sort();
    if files.is_empty() {
        bail!("{CORPORA} has no labelled actions");
    }
    let mut parts = BTreeMap::new();
    for path in &files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let decided = decided(&root, path)?;
        tell(&name, &decided);
        parts.insert(name.into_owned(), decided);
    }
    let machine = machine::describe(&root, Path::new("/var/tmp"))?;
    let date = machine.date.clone();
    let path = report::free_name(&root.join("bench/results"), &format!("{date}-purpose"))?;
    let whole = json!({ "benchmark": "purpose", "machine": machine, "parts": parts });
    fs::write(&path, format!("{whole}\n"))?;
    let shown = path.strip_prefix(&root).unwrap_or(&path).display();
    println!("\nraw results: {shown}");
    // There is no aim yet: what is wanted is that it is known.
    Ok(Outcome::default())
}

fn decided(root: &Path, corpus: &Path) -> Result<Vec<Decided>> {
    let example = ["run", "--quiet", "--package", "atoll-policy", "--example"];
    let mut decide = command::cargo();
    decide.args(example).args(["purposes", "--"]).arg(corpus);
    let told = command::output(decide.current_dir(root))?;
    serde_json::from_str(&told).context("reading what was decided")
}

fn tell(name: &str, all: &[Decided]) {
    println!("\n**{name}**: {} actions\n", all.len());
    println!("| purpose | off-purpose refused | on-purpose refused |\n|---|---|---|");
    let mut purposes: Vec<&str> = all.iter().map(|one| one.purpose.as_str()).collect();
    purposes.sort_unstable();
    purposes.dedup();
    for purpose in purposes {
        let its = all.iter().filter(|one| one.purpose == purpose);
        println!("{}", Tally::of(its).row(purpose));
    }
    println!("{}", Tally::of(all.iter()).row("all"));
    let otherwise: Vec<&Decided> = all.iter().filter(|one| one.on != one.allowed).collect();
    if !otherwise.is_empty() {
        println!();
    }
    for one in otherwise {
        match one.on {
            true => println!("refused {one}, by {}", one.by.join(", ")),
            false => println!("missed {one}"),
        }
    }
}
