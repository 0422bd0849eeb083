//! The time to prove all that ships: every profile, every preset, every level of trust in every
//! mode.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::outcome::Outcome;
use super::report::Verdict;
use super::{machine, report};
use crate::person::Stage;
use crate::{command, suite, tree};

/// The target for all of them together.
const AIM: Duration = Duration::from_secs(60);
const LEVELS: [&str; 5] = ["none", "low", "medium", "high", "full"];
const MODES: [&str; 3] = ["strict", "layered", "permissive"];

/// The programs, and a directory to work in.
struct Place<'a> {
    stage: &'a Stage,
    solver: &'a Path,
}

pub(crate) fn run() -> Result<Outcome> {
    let root = tree::root()?;
    let cache = suite::cache_directory()?;
    let solver = cache.join("solver/cvc5");
    if !solver.is_file() {
        bail!("the solver is missing: cargo xtask test --install");
    }
    let stage = Stage::below(Path::new("/var/tmp"), "atoll-bench-")?;
    stage.place(&suite::program(&root)?, "atoll")?;
    stage.place(&suite::prover::program(&root)?, "atoll-prove")?;
    fs::create_dir(stage.path().join("work"))?;
    let place = Place {
        stage: &stage,
        solver: &solver,
    };
    let mut parts = Vec::new();
    let mut whole = Duration::ZERO;
    println!("| proven | properties | seconds |\n|---|---|---|");
    type Part = fn(&Place<'_>) -> Result<usize>;
    let each: [(&str, Part); 3] = [
        ("profiles", profiles),
        ("presets", presets),
        ("levels and modes", levels),
    ];
    for (name, part) in each {
        let began = Instant::now();
        let count = part(&place)?;
        let took = began.elapsed();
        whole += took;
        println!("| {name} | {count} | {:.1} |", took.as_secs_f64());
        parts.push(json!({"name": name, "properties": count, "seconds": took.as_secs_f64()}));
    }
    let (seconds, aim) = (whole.as_secs_f64(), AIM.as_secs());
    let (verdict, word) = match whole <= AIM {
        true => (Verdict::Met(seconds), "met"),
        false => (Verdict::Missed(seconds), "missed"),
    };
    println!("\nall: {seconds:.1} s, aim {aim} s: {word}");
    let machine = machine::describe(&root, Path::new("/var/tmp"))?;
    let date = machine.date.clone();
    let results = root.join("bench/results");
    let path = report::free_name(&results, &format!("{date}-prove"))?;
    let all = json!({ "benchmark": "prove", "machine": machine, "parts": parts });
    fs::write(&path, format!("{all}\n"))?;
    let told = path.strip_prefix(&root).unwrap_or(&path).display();
    println!("raw numbers: {told}");
    let mut outcome = Outcome::default();
    outcome.add(&format!("all proven in {aim} s"), &verdict);
    Ok(outcome)
}

impl Place<'_> {
    fn atoll(&self, arguments: &[&str]) -> Result<String> {
        let work = self.stage.path().join("work");
        let mut atoll = Command::new(self.stage.path().join("atoll"));
        atoll
            .args(arguments)
            .current_dir(&work)
            .env("HOME", &work)
            .env("CVC5", self.solver);
        command::output(&mut atoll).with_context(|| format!("atoll {}", arguments.join(" ")))
    }

    /// Proves a policy; returns the number of properties proven. One that is not is an error.
    fn prove(&self, arguments: &[&str]) -> Result<usize> {
        let arguments = [&["policy", "prove", "--json"], arguments].concat();
        let told: Value = serde_json::from_str(&self.atoll(&arguments)?)?;
        let properties = told.get("properties").and_then(Value::as_array);
        Ok(properties.map_or(0, Vec::len))
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.stage.path().join("work").join(name), text)?)
    }

    fn names(&self, what: &str) -> Result<Vec<String>> {
        let listed: Value = serde_json::from_str(&self.atoll(&["profile", what, "--json"])?)?;
        let each = listed.as_array().into_iter().flatten();
        let names =
            each.filter_map(|one| one.get("name").and_then(Value::as_str).map(str::to_owned));
        Ok(names.collect())
    }
}

fn profiles(place: &Place<'_>) -> Result<usize> {
    let names = place.names("list")?;
    let each = names.iter().map(|name| place.prove(&[name]));
    each.sum()
}

fn presets(place: &Place<'_>) -> Result<usize> {
    let mut count = 0;
    for name in place.names("presets")? {
        // What is no file of its own is named by one.
        let text = place.atoll(&["profile", "presets", &name])?;
        let text = match (text.contains("\nlevel = "), text.contains("[network]")) {
            (true, _) => format!("[trust]\npreset = \"{name}\"\n"),
            (_, true) => text,
            (_, false) => format!("[network]\npresets = [\"{name}\"]\n"),
        };
        place.write("preset.toml", &text)?;
        count += place.prove(&["./preset.toml"])?;
    }
    Ok(count)
}

/// Proves of every level in every mode that it never errors, and that it only tightens the next
/// level and the next mode.
fn levels(place: &Place<'_>) -> Result<usize> {
    let mut count = 0;
    for level in LEVELS {
        for mode in MODES {
            let shown = [
                "policy", "show", "default", "--trust", level, "--mode", mode,
            ];
            let shown = place.atoll(&shown)?;
            let text = shown
                .split_once("// Trust level")
                .map_or("", |(_, text)| text);
            place.write(&format!("{level}-{mode}.cedar"), &format!("//{text}"))?;
        }
    }
    let name = |level: &str, mode: &str| format!("{level}-{mode}.cedar");
    for (at, level) in LEVELS.iter().enumerate() {
        for (of, mode) in MODES.iter().enumerate() {
            let one = name(level, mode);
            let mut arguments = vec!["--never-errors".to_owned()];
            let higher = LEVELS.get(at + 1).map(|higher| name(higher, mode));
            let looser = MODES.get(of + 1).map(|looser| name(level, looser));
            for other in higher.into_iter().chain(looser) {
                arguments.extend(["--only-tightens".to_owned(), other]);
            }
            let arguments = arguments.iter().map(String::as_str);
            let arguments: Vec<&str> = [one.as_str()].into_iter().chain(arguments).collect();
            count += place.prove(&arguments)?;
        }
    }
    Ok(count)
}
