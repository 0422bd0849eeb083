//! Counts that may only fall, crate by crate, of flaws in many places that are mended a few at a
//! time. A count above its number in `tidy.toml` is a finding, and so is one below: then the number
//! is lowered.

use super::Finding;
use super::modules;
use super::rules::{Falling, Rules};
use super::source;
use crate::tree::{SourceFile, Tree};

const WHY: &str = "what is wrong in many places is mended a few at a time, and never grows";

/// The words that a doc comment must not open with (`GLOSSARY`: a noun phrase for a type, the third
/// person for a function).
const OPENERS: [&str; 12] = [
    "What", "Whether", "Who", "Whose", "Where", "Why", "How", "Which", "That", "It", "The same",
    "When",
];

pub(crate) fn check(tree: &Tree, rules: &Rules) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in rules.crates.keys() {
        let cycles = modules::in_cycles(tree, member);
        let what = format!("modules in cycles: {}", cycles.join(", "));
        let allowed = &rules.falling.cycles;
        findings.extend(compare(member, &what, cycles.len(), allowed));
        let files = || tree.rust().filter(|file| file.crate_name() == Some(member));
        let openers = files().map(doc_openers).sum();
        let what = "doc comments that open with What, Whether, Who and such";
        findings.extend(compare(member, what, openers, &rules.falling.doc_openers));
        let tuples = files().map(tuple_parameters).sum();
        let what = "parameters packed into a tuple";
        findings.extend(compare(
            member,
            what,
            tuples,
            &rules.falling.tuple_parameters,
        ));
    }
    findings
}

fn compare(member: &str, what: &str, count: usize, allowed: &Falling) -> Option<Finding> {
    let allowed = allowed.get(member).copied().unwrap_or(0);
    let fix = match count.cmp(&allowed) {
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Greater => "mend what was added".to_owned(),
        std::cmp::Ordering::Less => format!("lower the number in {} to {count}", super::RULES_FILE),
    };
    Some(Finding {
        path: format!("crates/{member}"),
        line: 1,
        what: format!("{count} instead of {allowed} {what}"),
        why: WHY,
        fix,
    })
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
