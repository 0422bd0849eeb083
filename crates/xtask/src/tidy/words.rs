//! Forbidden words: `unsafe` in the wrong crate, names that say nothing, marks of unfinished work,
//! paths of one machine.

use std::path::Path;

use super::Finding;
use super::rules::Rules;
use super::source;
use crate::tree::{SourceFile, Tree};

const WHY_UNSAFE: &str = "memory safety of everything else is left to the compiler";
const WHY_NAME: &str = "such a name says nothing, so anything ends up there";
const WHY_LEFT_OVER: &str = "what is not done is told in SPECIFICATION.md, where users see it";
const WHY_PLACE: &str = "an ordinary user's run of the tests may not reach the directory";
const WHY_MACHINE: &str = "the project has to make sense on any machine";

pub(crate) fn check(tree: &Tree, rules: &Rules) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let code = source::mask(&file.text);
        findings.extend(unsafe_code(file, &code, rules));
        findings.extend(empty_modules(file, &code, &rules.words.names));
        findings.extend(unfinished_macros(file, &code, &rules.words.macros));
        findings.extend(built_in_places(file, &code));
    }
    let machine = machine_paths(&tree.root, &rules.words.common_directories);
    for file in &tree.files {
        findings.extend(empty_paths(file, &rules.words.names));
        // The tables name what they refuse.
        if file.path != super::RULES_FILE {
            findings.extend(left_over(file, &rules.words.left_over));
            findings.extend(paths_of_this_machine(file, &machine));
        }
    }
    findings
}

fn unsafe_code(file: &SourceFile, code: &str, rules: &Rules) -> Vec<Finding> {
    let allowed = &rules.audited.unsafe_only_in;
    let is_program = rules.audited.unsafe_programs.contains(&file.path);
    if file.crate_name() == Some(allowed) || is_program {
        return Vec::new();
    }
    lines_with(code, |line| {
        source::words(line).any(|(_, word)| word == "unsafe")
    })
    .map(|line| Finding {
        path: file.path.clone(),
        line,
        what: "`unsafe`".to_owned(),
        why: WHY_UNSAFE,
        fix: format!("add a safe function to crates/{allowed} and call that"),
    })
    .collect()
}

fn empty_modules(file: &SourceFile, code: &str, names: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut words = source::words(line).map(|(_, word)| word);
        while let Some(word) = words.next() {
            if word == "mod"
                && let Some(name) = words.next()
                && says_nothing(name, names)
            {
                findings.push(empty_name(&file.path, number + 1, name));
            }
        }
    }
    findings
}

fn empty_paths(file: &SourceFile, names: &[String]) -> Vec<Finding> {
    file.path
        .split('/')
        .map(|part| part.split('.').next().unwrap_or(part))
        .filter(|part| says_nothing(part, names))
        .map(|part| empty_name(&file.path, 1, part))
        .collect()
}

fn says_nothing(name: &str, names: &[String]) -> bool {
    name.split(['_', '-'])
        .any(|part| names.iter().any(|refused| refused == part))
}

fn empty_name(path: &str, line: usize, name: &str) -> Finding {
    Finding {
        path: path.to_owned(),
        line,
        what: format!("the name `{name}`"),
        why: WHY_NAME,
        fix: "name it after what is in it".to_owned(),
    }
}

fn unfinished_macros(file: &SourceFile, code: &str, macros: &[String]) -> Vec<Finding> {
    let called = |line: &str| {
        source::words(line).any(|(at, word)| {
            let after = line.get(at + word.len()..).unwrap_or_default();
            after.starts_with('!') && macros.iter().any(|name| name == word)
        })
    };
    lines_with(code, called)
        .map(|line| unfinished(&file.path, line))
        .collect()
}

fn left_over(file: &SourceFile, refused: &[String]) -> Vec<Finding> {
    let marked = |line: &str| {
        source::words(line).any(|(_, word)| refused.iter().any(|refused| refused == word))
    };
    lines_with(&file.text, marked)
        .map(|line| unfinished(&file.path, line))
        .collect()
}

fn unfinished(path: &str, line: usize) -> Finding {
    Finding {
        path: path.to_owned(),
        line,
        what: "a mark of unfinished work".to_owned(),
        why: WHY_LEFT_OVER,
        fix: "finish it, or write down in the specification what is missing".to_owned(),
    }
}

/// Finds places of the build that a program looks for at run time. The tests also run from a copy,
/// as a user who cannot reach the original; `include_str!` and `concat!` are read while building,
/// and may name such places.
fn built_in_places(file: &SourceFile, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, (line, text)) in code.lines().zip(file.text.lines()).enumerate() {
        let while_building = line.contains("include_") || line.contains("concat!");
        let named = line.contains("env!(") && text.contains("env!(\"CARGO_MANIFEST_DIR\")");
        if named && !while_building {
            findings.push(Finding {
                path: file.path.clone(),
                line: number + 1,
                what: "the place of the build, looked for at run time".to_owned(),
                why: WHY_PLACE,
                fix: "use `std::env::var_os(\"CARGO_MANIFEST_DIR\")` or `include_str!`".to_owned(),
            });
        }
    }
    findings
}

/// Returns the directory of this checkout and the one it lies in, unless that is a directory which
/// every machine has.
fn machine_paths(root: &Path, common: &[String]) -> Vec<String> {
    let mut paths = vec![root.to_string_lossy().into_owned()];
    if let Some(parent) = root.parent() {
        let parent = parent.to_string_lossy().into_owned();
        if parent != "/" && !common.contains(&parent) {
            paths.push(format!("{parent}/"));
        }
    }
    // `/atoll` alone would also be found in sentences about other places.
    paths.retain(|path| path.matches('/').count() > 1);
    paths
}

fn paths_of_this_machine(file: &SourceFile, paths: &[String]) -> Vec<Finding> {
    let named = |line: &str| {
        paths.iter().any(|path| {
            line.match_indices(path.as_str()).any(|(at, _)| {
                let before = line.get(..at).and_then(|before| before.chars().next_back());
                !before.is_some_and(|before| before.is_alphanumeric() || "._~-}".contains(before))
            })
        })
    };
    lines_with(&file.text, named)
        .map(|line| Finding {
            path: file.path.clone(),
            line,
            what: "a path of this machine".to_owned(),
            why: WHY_MACHINE,
            fix: "name the place relative to the project, or leave it out".to_owned(),
        })
        .collect()
}

fn lines_with(text: &str, has: impl Fn(&str) -> bool) -> impl Iterator<Item = usize> {
    text.lines()
        .enumerate()
        .filter(move |(_, line)| has(line))
        .map(|(number, _)| number + 1)
}
