//! Budgets: the length of files and of functions, and the lines to audit and of the product.

use std::collections::BTreeSet;

use super::rules::{Budgets, Rules};
use super::{Finding, falling, shapes, source};
use crate::tree::{SourceFile, Tree};

const WHY_FILE: &str = "a file is read in one sitting; a long one hides a second subject";
const WHY_FUNCTION: &str = "a function is read on one screen, top to bottom";
const WHY_PARAMETERS: &str = "arguments without names at the call are mixed up";
const WHY_AUDIT: &str = "what runs with privileges has to be small enough to audit in a day";
const WHY_PRODUCT: &str = "each line is read, tested and mended for as long as it is there";

/// Crates that users do not get.
const NO_PRODUCT: [&str; 2] = ["xtask", "e2e"];

pub(crate) fn check(tree: &Tree, rules: &Rules) -> Vec<Finding> {
    let mut findings = long_files(tree, rules);
    for file in tree.rust().filter(|file| !file.is_test()) {
        findings.extend(long_functions(file, &rules.budgets));
    }
    findings
}

/// Checks the lines of whole parts of the tree.
pub(crate) fn totals(rules: &Rules, audited: usize, product: usize) -> Vec<Finding> {
    let what = format!("audited lines in {}", rules.audited.crates.join(", "));
    let allowed = rules.budgets.audited_lines;
    let audited = falling::compare(super::RULES_FILE, &what, audited, allowed);
    let audited = audited.map(|found| Finding {
        why: WHY_AUDIT,
        ..found
    });
    let limit = rules.budgets.product_lines;
    let product = (product > limit).then(|| Finding {
        path: super::RULES_FILE.to_owned(),
        line: 1,
        what: format!("{product} product lines, more than {limit}"),
        why: WHY_PRODUCT,
        fix: "remove as many elsewhere; where it has to grow, raise `product_lines`".to_owned(),
    });
    audited.into_iter().chain(product).collect()
}

/// Counts the lines of code that users get, without blank lines and comments.
pub(crate) fn product_lines(tree: &Tree) -> usize {
    let tests: BTreeSet<String> = tree.rust().flat_map(test_modules).collect();
    let is_product = |file: &&SourceFile| {
        let member = file.crate_name();
        let is_part = member.is_some_and(|member| !NO_PRODUCT.contains(&member));
        is_part && !file.is_test() && !tests.contains(&file.path)
    };
    let lines = |file: &SourceFile| filled(&source::without_tests(&source::mask(&file.text)));
    tree.rust().filter(is_product).map(lines).sum()
}

/// Returns the files of the modules that a file declares for tests only.
fn test_modules(file: &SourceFile) -> Vec<String> {
    let path = file.path.trim_end_matches(".rs");
    let folder = path.trim_end_matches("/lib").trim_end_matches("/main");
    let marked = file.text.split("#[cfg(test)]\n").skip(1);
    let names = marked.filter_map(|after| {
        let declaration = after.lines().next()?.strip_suffix(';')?;
        Some(declaration.rsplit_once("mod ")?.1)
    });
    names.map(|name| format!("{folder}/{name}.rs")).collect()
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
    filled(&masked).saturating_sub(filled(&source::without_tests(&masked)))
}

fn filled(text: &str) -> usize {
    text.lines().filter(|line| !line.trim().is_empty()).count()
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

fn long_functions(file: &SourceFile, budgets: &Budgets) -> Vec<Finding> {
    let code = source::without_tests(&source::mask(&file.text));
    let (lines, parameters) = (budgets.function_lines, budgets.parameters);
    let long = source::functions(&code)
        .into_iter()
        .filter(|function| function.lines > lines)
        .map(|function| Finding {
            path: file.path.clone(),
            line: function.line,
            what: format!(
                "`{}` has {} lines, more than {lines}",
                function.name, function.lines
            ),
            why: WHY_FUNCTION,
            fix: "give a step of it a name and a function of its own".to_owned(),
        });
    let wide = shapes::parameters(&code)
        .into_iter()
        .filter(|(.., count)| *count > parameters)
        .map(|(line, name, count)| Finding {
            path: file.path.clone(),
            line,
            what: format!("`{name}` has {count} parameters, more than {parameters}"),
            why: WHY_PARAMETERS,
            fix: "name what belongs together as a type".to_owned(),
        });
    long.chain(wide).collect()
}
