//! Budgets: the length of files and of functions, and the number of lines to audit.

use super::Finding;
use super::rules::Rules;
use super::source;
use crate::tree::{SourceFile, Tree};

const WHY_FILE: &str = "a file is read in one sitting; a long one hides a second subject";
const WHY_FUNCTION: &str = "a function is read on one screen, top to bottom";
const WHY_AUDIT: &str = "what runs with privileges has to be small enough to audit in a day";

pub(crate) fn check(tree: &Tree, rules: &Rules) -> Vec<Finding> {
    let mut findings = long_files(tree, rules);
    for file in tree.rust().filter(|file| !file.is_test()) {
        findings.extend(long_functions(file, rules.budgets.function_lines));
    }
    let audited = audited_lines(tree, rules);
    if audited > rules.budgets.audited_lines {
        findings.push(Finding {
            path: "tidy.toml".to_owned(),
            line: 1,
            what: format!(
                "{} together have {audited} lines, more than {}",
                rules.audited.crates.join(", "),
                rules.budgets.audited_lines
            ),
            why: WHY_AUDIT,
            fix: "move what needs no privilege to another crate".to_owned(),
        });
    }
    findings
}

/// Counts the lines of the audited crates, without what only tests compile and without tables of
/// data, which are read down a column rather than followed.
pub(crate) fn audited_lines(tree: &Tree, rules: &Rules) -> usize {
    let is_data = |path: &str| {
        rules
            .long_files
            .iter()
            .any(|entry| entry.data && entry.path == path)
    };
    tree.rust()
        .filter(|file| !file.is_test() && !is_data(&file.path))
        .filter(|file| {
            file.crate_name()
                .is_some_and(|name| rules.audited.crates.iter().any(|audited| audited == name))
        })
        .map(|file| file.text.lines().count() - test_lines(&file.text))
        .sum()
}

fn test_lines(text: &str) -> usize {
    let masked = source::mask(text);
    let filled = |text: &str| text.lines().filter(|line| !line.trim().is_empty()).count();
    filled(&masked).saturating_sub(filled(&source::without_tests(&masked)))
}

fn long_files(tree: &Tree, rules: &Rules) -> Vec<Finding> {
    let mut findings = Vec::new();
    let budgets = &rules.budgets;
    for file in tree.rust().filter(|file| !file.is_test()) {
        let entry = rules
            .long_files
            .iter()
            .find(|entry| entry.path == file.path);
        let lines = file.text.lines().count();
        let refused = lines > budgets.file_lines_hard && !entry.is_some_and(|entry| entry.data);
        let unexplained = lines > budgets.file_lines_soft && entry.is_none();
        if refused || unexplained {
            let limit = if refused {
                budgets.file_lines_hard
            } else {
                budgets.file_lines_soft
            };
            findings.push(Finding {
                path: file.path.clone(),
                line: 1,
                what: format!("{lines} lines, more than {limit}"),
                why: WHY_FILE,
                fix: "split it by subject; up to the hard limit, a reason in `long_files` will do"
                    .to_owned(),
            });
        }
    }
    for entry in &rules.long_files {
        let lines = tree.text(&entry.path).map(|text| text.lines().count());
        let needed = lines.is_some_and(|lines| lines > budgets.file_lines_soft);
        if !needed || entry.reason.trim().is_empty() {
            findings.push(Finding {
                path: "tidy.toml".to_owned(),
                line: 1,
                what: format!(
                    "the entry for {} is not needed or has no reason",
                    entry.path
                ),
                why: "an exception that nobody needs hides the next one",
                fix: "remove the entry, or give the reason".to_owned(),
            });
        }
    }
    findings
}

fn long_functions(file: &SourceFile, limit: usize) -> Vec<Finding> {
    let code = source::without_tests(&source::mask(&file.text));
    source::functions(&code)
        .into_iter()
        .filter(|function| function.lines > limit)
        .map(|function| Finding {
            path: file.path.clone(),
            line: function.line,
            what: format!(
                "`{}` has {} lines, more than {limit}",
                function.name, function.lines
            ),
            why: WHY_FUNCTION,
            fix: "give a step of it a name and a function of its own".to_owned(),
        })
        .collect()
}
