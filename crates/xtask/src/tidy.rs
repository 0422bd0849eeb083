//! `cargo xtask tidy`: the rules of the project that no compiler checks.
//!
//! Each check is a function from the files and the tables of `tidy.toml` to
//! findings. A finding says where, what, why, and how to fix it. To add a rule,
//! write such a function, give it a bad sample in `tests.rs` and list it in
//! [`check`].

mod budgets;
mod commits;
mod dependencies;
mod facades;
mod falling;
mod links;
mod modules;
mod rules;
mod seeds;
mod shapes;
mod source;
mod specification;
mod words;

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::tree::{self, Tree};
use rules::Rules;
use specification::Ran;

/// The file with the tables that the checks read.
const RULES_FILE: &str = "tidy.toml";

/// One breach of a rule.
#[derive(Debug)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
    why: &'static str,
    fix: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}:{}: {}", self.path, self.line, self.what)?;
        writeln!(formatter, "    why: {}", self.why)?;
        write!(formatter, "    fix: {}", self.fix)
    }
}

/// Checks the current workspace and prints the findings; returns whether there are none.
pub(crate) fn run(ran: Option<&Path>) -> Result<bool> {
    let root = tree::root()?;
    let ran = match ran {
        Some(path) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read the list of tests {}", path.display()))?;
            Some(Ran::parse(&text))
        }
        None => None,
    };
    let findings = check_workspace(&root, ran.as_ref())?;
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        println!("tidy: {} findings", findings.len());
    }
    Ok(findings.is_empty())
}

fn check_workspace(root: &Path, ran: Option<&Ran>) -> Result<Vec<Finding>> {
    let tree = Tree::read(root)?;
    let text = tree
        .text(RULES_FILE)
        .with_context(|| format!("{RULES_FILE} is missing in {}", root.display()))?;
    let rules: Rules =
        toml::from_str(text).with_context(|| format!("{RULES_FILE} cannot be used"))?;
    let graph = dependencies::Graph::of_workspace(root, &rules)?;
    let mut findings = check(&tree, &rules, ran);
    let audited = budgets::audited_lines(&tree, &rules);
    let product = budgets::product_lines(&tree);
    findings.extend(budgets::totals(&rules, audited, product));
    findings.extend(dependencies::check(&tree, &rules, &graph));
    findings.extend(seeds::check(&tree, &rules)?);
    findings.extend(commits::check(root, &rules));
    findings.sort_by(|one, other| (&one.path, one.line).cmp(&(&other.path, other.line)));
    println!(
        "tidy: {audited} of {} audited lines in {}; {product} of {} product lines",
        rules.budgets.audited_lines,
        rules.audited.crates.join(", "),
        rules.budgets.product_lines
    );
    Ok(findings)
}

/// Runs every check that needs the files alone.
fn check(tree: &Tree, rules: &Rules, ran: Option<&Ran>) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(budgets::check(tree, rules));
    findings.extend(words::check(tree, rules));
    findings.extend(facades::check(tree, rules));
    findings.extend(falling::check(tree, rules));
    findings.extend(specification::check(tree, rules, ran));
    findings.extend(links::check(tree));
    findings
}
