//! Counts that may only fall, crate by crate, of flaws in many places that are mended a few at a
//! time. A count above its number in `tidy.toml` is a finding, and so is one below: then the number
//! is lowered.

use std::collections::BTreeMap;

use super::modules::Modules;
use super::rules::{Falling, Rules};
use super::{Finding, modules, source};
use crate::tree::{SourceFile, Tree};

const WHY: &str = "what is wrong in many places is mended a few at a time, and never grows";

/// The words that a doc comment must not open with (`GLOSSARY`: a noun phrase for a type, the third
/// person for a function).
const OPENERS: [&str; 12] = [
    "What", "Whether", "Who", "Whose", "Where", "Why", "How", "Which", "That", "It", "The same",
    "When",
];

/// The modules of each crate.
type Crates<'a> = BTreeMap<&'a String, Modules>;

pub(crate) fn check(tree: &Tree, rules: &Rules) -> Vec<Finding> {
    let members = rules.crates.keys();
    let crates: Crates<'_> = members
        .map(|member| (member, modules::read(tree, member)))
        .collect();
    let mut findings = methods(&crates, rules);
    findings.extend(circles(&crates, rules));
    for (member, modules) in &crates {
        let mut count_of = |what: &str, count: usize, allowed: &Falling| {
            let allowed = allowed.get(*member).copied().unwrap_or(0);
            findings.extend(compare(&format!("crates/{member}"), what, count, allowed));
        };
        let cycles = modules::in_cycles(modules);
        let what = format!("modules in cycles: {}", cycles.join(", "));
        count_of(&what, cycles.len(), &rules.falling.cycles);
        let files = || tree.rust().filter(|file| file.crate_name() == Some(member));
        let openers = files().map(doc_openers).sum();
        let what = "doc comments that open with What, Whether, Who and such";
        count_of(what, openers, &rules.falling.doc_openers);
        let tuples = files().map(tuple_parameters).sum();
        let what = "parameters packed into a tuple";
        count_of(what, tuples, &rules.falling.tuple_parameters);
    }
    findings
}

/// Compares a count with its number: more is a finding, and so is less.
pub(crate) fn compare(path: &str, what: &str, count: usize, allowed: usize) -> Option<Finding> {
    let fix = match count.cmp(&allowed) {
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Greater => "mend what was added".to_owned(),
        std::cmp::Ordering::Less => format!("lower the number in {} to {count}", super::RULES_FILE),
    };
    Some(Finding {
        path: path.to_owned(),
        line: 1,
        what: format!("{count} instead of {allowed} {what}"),
        why: WHY,
        fix,
    })
}

/// Checks the types with too many methods; one that is not named may have as many as the budget.
fn methods(crates: &Crates<'_>, rules: &Rules) -> Vec<Finding> {
    let (limit, named) = (rules.budgets.methods, &rules.falling.methods);
    let mut counts: BTreeMap<String, usize> = named.keys().map(|name| (name.clone(), 0)).collect();
    for (member, modules) in crates {
        let methods = modules::methods(modules).into_iter();
        counts.extend(methods.map(|(name, count)| (format!("{member}::{name}"), count)));
    }
    let compared = counts.iter().filter_map(|(name, count)| {
        let member = name.split("::").next().unwrap_or_default();
        let allowed = named.get(name).copied().unwrap_or(limit);
        let what = format!("methods of `{name}`");
        compare(
            &format!("crates/{member}"),
            &what,
            *count.max(&limit),
            allowed,
        )
    });
    compared.collect()
}

/// Checks the files in circles: the largest circle, and the files of all together.
fn circles(crates: &Crates<'_>, rules: &Rules) -> Vec<Finding> {
    let (mut largest, mut files, mut names) = (0, 0, String::new());
    for (member, modules) in crates {
        for circle in modules::circles_of_files(modules) {
            files += circle.len();
            largest = largest.max(circle.len());
            names += &format!("\n      {member}: {}", circle.join(", "));
        }
    }
    let allowed = &rules.falling.circles;
    let what = "files in the largest circle";
    let largest = compare("crates", what, largest, allowed.largest);
    let what = format!("files in circles:{names}");
    let all = compare("crates", &what, files, allowed.files);
    largest.into_iter().chain(all).collect()
}

/// Counts doc comments whose first word is one of [`OPENERS`].
pub(crate) fn doc_openers(file: &SourceFile) -> usize {
    let mut count = 0;
    let mut is_inside = false;
    for line in file.text.lines().map(str::trim_start) {
        let text = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"));
        let opens = text.filter(|_| !is_inside).is_some_and(|text| {
            let text = text.trim_start();
            let follows = |rest: &str| rest.starts_with([' ', ',', '\'']) || rest.is_empty();
            OPENERS
                .iter()
                .any(|opener| text.strip_prefix(opener).is_some_and(follows))
        });
        count += usize::from(opens);
        is_inside = text.is_some();
    }
    count
}

/// Counts parameters of functions like `(a, b): (A, B)`.
pub(crate) fn tuple_parameters(file: &SourceFile) -> usize {
    let code = source::mask(&file.text);
    let mut count = 0;
    for (at, word) in source::words(&code) {
        if word != "fn" {
            continue;
        }
        let rest = code.get(at..).unwrap_or_default();
        let signature = rest.split(['{', ';']).next().unwrap_or_default();
        let pattern = |part: &str| {
            let names = part.rsplit('(').next().unwrap_or_default();
            let is_name =
                |one: char| one.is_alphanumeric() || matches!(one, '_' | ',' | ' ' | '&' | '\n');
            names.contains(',') && names.chars().all(is_name)
        };
        let parts: Vec<&str> = signature.split("): (").collect();
        let heads = parts.len().saturating_sub(1);
        count += parts
            .iter()
            .take(heads)
            .filter(|part| pattern(part))
            .count();
    }
    count
}
