//! The check that SPECIFICATION.md is true: every clause is there once, and what it says works is
//! backed by tests that exist and were run.
//!
//! A row is `| C1 | promise | state | tests: … missing: … |`. Names in backticks
//! before the word `missing:` are tests: the name of a test function, perhaps
//! with its module in front, or the id of a row in a table of the end-to-end
//! tests.

use std::collections::BTreeSet;

use super::Finding;
use super::rules::Rules;
use super::source;
use crate::tree::Tree;

const WHY_ROW: &str = "every promise has one place where users find its state";
const WHY_TEST: &str = "a promise counts as kept only while a test holds it";
const MISSING: &str = "missing:";

/// The tests that a whole run has executed, and those that its tier leaves out. A quick or filtered
/// run says nothing about the others.
pub(crate) struct Ran {
    is_whole: bool,
    names: BTreeSet<String>,
}

struct Row {
    line: usize,
    clause: String,
    state: String,
    detail: String,
}

impl Ran {
    /// Parses the tier in the first line, and below it `ran NAME` or `left-out NAME`.
    pub(crate) fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let is_whole = matches!(lines.next(), Some("full" | "nightly"));
        let names = lines.filter_map(|line| line.split_whitespace().last());
        Self {
            is_whole,
            names: names.map(str::to_owned).collect(),
        }
    }

    fn lacks(&self, test: &str) -> bool {
        let is_it = |name: &String| {
            let name = name.split_once('$').map_or(name.as_str(), |(_, name)| name);
            name == test || name.ends_with(&format!("::{test}"))
        };
        self.is_whole && !self.names.iter().any(is_it)
    }
}

pub(crate) fn check(tree: &Tree, rules: &Rules, ran: Option<&Ran>) -> Vec<Finding> {
    let file = &rules.specification.file;
    let rows = rows(tree.text(file).unwrap_or_default());
    let mut findings = Vec::new();
    let mut report = |line: usize, what: String, why: &'static str, fix: &str| {
        findings.push(Finding {
            path: file.clone(),
            line,
            what,
            why,
            fix: fix.to_owned(),
        });
    };
    for clause in clauses(rules) {
        let count = rows.iter().filter(|row| row.clause == clause).count();
        if count != 1 {
            report(
                1,
                format!("{clause} is there {count} times"),
                WHY_ROW,
                "give it one row",
            );
        }
    }
    let known = known_tests(tree);
    for row in &rows {
        if !clauses(rules).any(|clause| clause == row.clause) {
            let fix = "remove it, or add the clause to tidy.toml";
            report(
                row.line,
                format!("{} is no clause", row.clause),
                WHY_ROW,
                fix,
            );
        }
        if let Some((what, fix)) = wrong_state(row) {
            report(row.line, format!("{}: {what}", row.clause), WHY_ROW, fix);
        }
        for test in tests(row) {
            if !known.contains(last_segment(&test)) && !is_table_id(tree, rules, &test) {
                let fix = "correct the name, or write the test";
                report(
                    row.line,
                    format!("no test is called `{test}`"),
                    WHY_TEST,
                    fix,
                );
            } else if ran.is_some_and(|ran| ran.lacks(&test)) {
                let fix = "see why it was skipped, or do not count on it";
                report(row.line, format!("`{test}` was not run"), WHY_TEST, fix);
            }
        }
    }
    findings
}

fn wrong_state(row: &Row) -> Option<(String, &'static str)> {
    let names = tests(row).len();
    let says_missing = row.detail.contains(MISSING);
    match row.state.as_str() {
        "works" if names == 0 => Some(("works, but names no test".to_owned(), "name the tests")),
        "works" if says_missing => Some((
            "works, but something is missing".to_owned(),
            "call it partial",
        )),
        "partial" if !says_missing => Some((
            "partial, but not what is missing".to_owned(),
            "add `missing: …`",
        )),
        "pending" if names > 0 => Some((
            "pending, but names tests".to_owned(),
            "call it partial, or drop the names",
        )),
        "works" | "partial" | "pending" => None,
        other => Some((
            format!("the state `{other}`"),
            "write works, partial or pending",
        )),
    }
}

fn clauses(rules: &Rules) -> impl Iterator<Item = String> + '_ {
    rules
        .specification
        .clauses
        .iter()
        .flat_map(|(letter, count)| (1..=*count).map(move |number| format!("{letter}{number}")))
}

fn rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim().replace("\\|", "¦");
        let Some(inner) = line.strip_prefix('|') else {
            continue;
        };
        let mut cells = inner
            .trim_end_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned());
        let clause = cells.next().unwrap_or_default();
        let mut characters = clause.chars();
        let starts = characters
            .next()
            .is_some_and(|letter| letter.is_ascii_uppercase());
        let digits = characters.as_str();
        if !starts || digits.is_empty() || !digits.chars().all(|digit| digit.is_ascii_digit()) {
            continue;
        }
        rows.push(Row {
            line: number + 1,
            clause,
            state: cells.nth(1).unwrap_or_default(),
            detail: cells.next().unwrap_or_default(),
        });
    }
    rows
}

/// Returns the names in backticks before `missing:`.
fn tests(row: &Row) -> Vec<String> {
    let named = row.detail.split(MISSING).next().unwrap_or_default();
    named
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn known_tests(tree: &Tree) -> BTreeSet<String> {
    tree.rust()
        .flat_map(|file| source::functions(&source::mask(&file.text)))
        .filter(|function| function.is_test)
        .map(|function| function.name)
        .collect()
}

fn is_table_id(tree: &Tree, rules: &Rules, id: &str) -> bool {
    let quoted = format!("\"{id}\"");
    tree.rust()
        .filter(|file| file.path.starts_with(&rules.specification.end_to_end))
        .any(|file| file.text.contains(&quoted))
}

fn last_segment(test: &str) -> &str {
    test.rsplit("::").next().unwrap_or(test)
}
