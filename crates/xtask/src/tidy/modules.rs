//! The top-level modules of a crate, and which of them use each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use super::source;
use crate::tree::Tree;

/// The other modules that each top-level module of a crate names.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Returns the top-level modules of a crate that are part of a cycle.
pub(crate) fn in_cycles(tree: &Tree, member: &str) -> Vec<String> {
    let uses = uses(tree, member);
    let reached: BTreeMap<&String, BTreeSet<&String>> = uses
        .keys()
        .map(|module| (module, all_reached(&uses, module)))
        .collect();
    let is_in_cycle =
        |module: &&String| reached.get(module).is_some_and(|all| all.contains(module));
    uses.keys().filter(is_in_cycle).cloned().collect()
}

/// Returns every module that one leads to, in one or more steps.
fn all_reached<'a>(uses: &'a Uses, from: &String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&String> = uses.get(from).into_iter().flatten().collect();
    while let Some(module) = waiting.pop() {
        if reached.insert(module) {
            waiting.extend(uses.get(module).into_iter().flatten());
        }
    }
    reached
}

/// Reads which module names which: by `crate::module`, by `super::module` in a top-level file, or
/// by an item that the crate's root takes from a module under a name of its own.
fn uses(tree: &Tree, member: &str) -> Uses {
    let source = format!("crates/{member}/src/");
    let mut codes: Vec<(String, bool, String)> = Vec::new();
    let mut renamed = BTreeMap::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        let Some(path) = file.path.strip_prefix(&source) else {
            continue;
        };
        let code = source::without_tests(&source::mask(&file.text));
        let module = path
            .split('/')
            .next()
            .unwrap_or(path)
            .trim_end_matches(".rs");
        match module {
            "lib" | "main" => renamed.extend(re_exports(&code)),
            _ => codes.push((module.to_owned(), !path.contains('/'), code)),
        }
    }
    let modules: BTreeSet<String> = codes.iter().map(|(module, ..)| module.clone()).collect();
    let mut uses: Uses = Uses::new();
    for (module, is_top, code) in &codes {
        let mut names = names_after(code, "crate::");
        if *is_top {
            names.extend(names_after(code, "super::"));
        }
        let named = names.into_iter().map(|name| match renamed.get(&name) {
            Some(origin) if !modules.contains(&name) => origin.clone(),
            _ => name,
        });
        let others = named.filter(|name| name != module && modules.contains(name));
        uses.entry(module.clone()).or_default().extend(others);
    }
    uses
}

/// Returns the first words of all paths that begin like this, also those in braces.
fn names_after(code: &str, begin: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(begin) {
        let rest = code.get(at + begin.len()..).unwrap_or_default();
        match rest.strip_prefix('{') {
            Some(list) => names.extend(parts(list).into_iter().map(first_word)),
            None => names.extend([first_word(rest)]),
        }
    }
    // After the last comma there is nothing.
    names.remove("");
    names
}

/// Splits a list in braces, up to the closing one, at the commas of its own level.
fn parts(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_usize, 0, Vec::new());
    for (at, character) in list.char_indices() {
        let ends_part = depth == 0 && matches!(character, ',' | '}');
        if ends_part {
            parts.push(list.get(start..at).unwrap_or_default());
            start = at + 1;
        }
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => return parts,
            '}' => depth -= 1,
            _ => {}
        }
    }
    parts
}

fn first_word(text: &str) -> String {
    let is_word = |one: &char| one.is_alphanumeric() || *one == '_';
    text.trim_start().chars().take_while(is_word).collect()
}

/// Reads what a crate's root takes from its modules: the name there, and the module.
fn re_exports(code: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (at, _) in code.match_indices("use ") {
        let rest = code.get(at + 4..).unwrap_or_default();
        let statement = rest.split(';').next().unwrap_or_default();
        let path = statement
            .trim_start_matches("crate::")
            .trim_start_matches("self::");
        let Some((module, taken)) = path.split_once("::") else {
            continue;
        };
        let names = match taken.split_once('{') {
            Some((_, list)) => parts(list),
            None => vec![taken],
        };
        for name in names {
            let mut words = name.split([' ', ':', '\n']);
            if let Some(last) = words.rfind(|word| !word.is_empty()) {
                found.insert(last.to_owned(), module.trim().to_owned());
            }
        }
    }
    found
}
