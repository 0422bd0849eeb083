//! The modules of a crate, one for each file, and those that use each other in a circle.
//!
//! Paths from `crate`, `super` and `self`, and a `use` of a module beside it, are followed through
//! re-exports to the file that has the item. The crate's root is seen through, but in no circle
//! itself; inline modules and macros are not seen.

use std::collections::{BTreeMap, BTreeSet};

use super::{shapes, source};
use crate::tree::Tree;

/// The names of a path; of a module, those below the crate's root.
pub(crate) type Names = Vec<String>;

/// The other modules that each one uses.
type Uses = BTreeMap<Names, BTreeSet<Names>>;

/// A file's `use` statements, inline paths and `impl` blocks.
#[derive(Default)]
pub(crate) struct Module {
    /// Each name in scope with the path that it stands for.
    scope: Vec<(String, Names)>,
    inline: Vec<Names>,
    /// The path of each type with the number of its methods here.
    methods: Vec<(Names, usize)>,
}

/// The files of one crate by their modules; the root has no name.
pub(crate) type Modules = BTreeMap<Names, Module>;

/// Re-exports followed for one path, so that names which stand for each other come to an end.
const RE_EXPORTS_MAX: usize = 8;

/// Reads the files of a crate, without tests.
pub(crate) fn read(tree: &Tree, member: &str) -> Modules {
    let source = format!("crates/{member}/src/");
    let mut modules = Modules::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        let Some(path) = file.path.strip_prefix(&source) else {
            continue;
        };
        let module = match path.trim_end_matches(".rs").trim_end_matches("/mod") {
            "lib" | "main" => Names::new(),
            path => path.split('/').map(str::to_owned).collect(),
        };
        let code = source::without_tests(&source::mask(&file.text));
        // A library and a program beside it are one root.
        parse(&code, modules.entry(module).or_default());
    }
    modules
}

/// Returns the top-level modules of a crate that are part of a cycle.
pub(crate) fn in_cycles(modules: &Modules) -> Vec<String> {
    let top = |module: &Names| module.iter().take(1).cloned().collect::<Names>();
    let mut uses = Uses::new();
    for (module, used) in uses_of_files(modules) {
        let own = top(&module);
        let others = used.iter().map(top).filter(|other| *other != own);
        let others: BTreeSet<Names> = others.collect();
        uses.entry(own).or_default().extend(others);
    }
    let mut modules = circles(&uses).concat();
    modules.sort();
    modules
}

/// Returns the circles of a crate's files.
pub(crate) fn circles_of_files(modules: &Modules) -> Vec<Vec<String>> {
    circles(&uses_of_files(modules))
}

/// Returns the types of a crate, by the module that each is found in, with the number of methods in
/// all their `impl` blocks.
pub(crate) fn methods(modules: &Modules) -> BTreeMap<String, usize> {
    let mut methods = BTreeMap::new();
    for (module, paths) in modules {
        for (path, count) in &paths.methods {
            let imported = paths
                .scope
                .iter()
                .find(|(name, _)| path == &[name.as_str()]);
            let path = imported.map_or(path, |(_, path)| path);
            let home = target(modules, module, path, RE_EXPORTS_MAX);
            let home = home.as_ref().unwrap_or(module);
            let name: Vec<&str> = home.iter().chain(path.last()).map(String::as_str).collect();
            *methods.entry(name.join("::")).or_default() += count;
        }
    }
    methods
}

/// Returns every group of modules that all lead to each other.
fn circles(uses: &Uses) -> Vec<Vec<String>> {
    let reached: BTreeMap<&Names, BTreeSet<&Names>> = uses
        .keys()
        .map(|module| (module, all_reached(uses, module)))
        .collect();
    let leads = |from: &Names, to: &Names| reached.get(from).is_some_and(|all| all.contains(to));
    let mut circles = Vec::new();
    let mut seen = BTreeSet::new();
    for module in uses.keys().filter(|module| leads(module, module)) {
        let is_together = |other: &&Names| leads(module, other) && leads(other, module);
        if seen.insert(module) {
            let circle: Vec<&Names> = uses.keys().filter(is_together).collect();
            seen.extend(circle.iter().copied());
            circles.push(circle.iter().map(|module| module.join("::")).collect());
        }
    }
    circles
}

/// Returns every module that one leads to, in one or more steps.
fn all_reached<'a>(uses: &'a Uses, from: &Names) -> BTreeSet<&'a Names> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&Names> = uses.get(from).into_iter().flatten().collect();
    while let Some(module) = waiting.pop() {
        if reached.insert(module) {
            waiting.extend(uses.get(module).into_iter().flatten());
        }
    }
    reached
}

fn uses_of_files(modules: &Modules) -> Uses {
    let mut uses = Uses::new();
    for (module, paths) in modules.iter().filter(|(module, _)| !module.is_empty()) {
        let in_scope = paths.scope.iter().map(|(_, path)| path);
        let targets = in_scope
            .chain(&paths.inline)
            .filter_map(|path| target(modules, module, path, RE_EXPORTS_MAX));
        let others = targets.filter(|target| target != module && !target.is_empty());
        uses.insert(module.clone(), others.collect());
    }
    uses
}

/// Returns the module that has the item of a path written in `from`.
fn target(modules: &Modules, from: &[String], path: &[String], left: usize) -> Option<Names> {
    let mut module = from.to_vec();
    let (first, mut rest) = path.split_first()?;
    match first.as_str() {
        "crate" => module.clear(),
        "super" => drop(module.pop()),
        "self" => {}
        name => {
            module.push(name.to_owned());
            modules.get(&module)?;
        }
    }
    while let Some((name, after)) = rest.split_first() {
        let mut inner = module.clone();
        inner.push(name.clone());
        if name == "super" {
            module.pop();
        } else if modules.contains_key(&inner) {
            module = inner;
        } else {
            let mut scope = modules.get(&module)?.scope.iter();
            let origin = scope.find(|(here, _)| here == name && left > 0 && module != from);
            let origin = origin.and_then(|(_, path)| target(modules, &module, path, left - 1));
            return Some(origin.unwrap_or(module));
        }
        rest = after;
    }
    modules.contains_key(&module).then_some(module)
}

fn parse(code: &str, module: &mut Module) {
    let methods = shapes::methods(code).into_iter();
    let methods = methods.map(|(path, count)| (names(path), count));
    module.methods.extend(methods);
    let mut end = 0;
    for (at, word) in source::words(code) {
        if at < end || !matches!(word, "use" | "crate" | "super" | "self") {
            continue;
        }
        let rest = code.get(at..).unwrap_or_default();
        if word == "use" {
            let statement = rest.split(';').next().unwrap_or_default();
            end = at + statement.len();
            let tree = statement.trim_start_matches("use ");
            add_tree(tree, &[], &mut module.scope);
        } else {
            let path = names(rest);
            end = at + path.join("::").len();
            // Else it is `self.field` or `pub(super)`.
            if path.len() > 1 {
                module.inline.push(path);
            }
        }
    }
}

/// Adds each path of a `use` tree with the name that it gets.
fn add_tree(tree: &str, outer: &[String], scope: &mut Vec<(String, Names)>) {
    let (path, list) = tree.split_once('{').unwrap_or((tree, ""));
    let (path, alias) = path.split_once(" as ").unwrap_or((path, ""));
    let mut all = outer.to_vec();
    all.extend(names(path.trim()));
    if tree.contains('{') {
        for part in source::list(list).0 {
            add_tree(part, &all, scope);
        }
        return;
    }
    // In braces, `self` is the module before them.
    if all.len() > 1 && all.last().is_some_and(|last| last == "self") {
        all.pop();
    }
    let name = match alias.trim() {
        "" => all.last().cloned().unwrap_or_default(),
        alias => alias.to_owned(),
    };
    scope.push((name, all));
}

/// Returns the names of the path that a text begins with.
fn names(text: &str) -> Names {
    let is_path = |one: &char| one.is_alphanumeric() || matches!(one, '_' | ':');
    let path: String = text.chars().take_while(is_path).collect();
    let names = path.split("::").filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}
