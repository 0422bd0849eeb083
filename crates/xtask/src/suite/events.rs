//! Reads what cargo-nextest prints of a run, and what tests note about themselves.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::binaries::{AS_ORDINARY_USER, USER};

/// The result of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    Failed,
    Ignored,
}

/// A test's name, as `package::binary$module::function`.
pub(crate) type Name = String;

/// One line of the output form `libtest-json` of cargo-nextest.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    of: String,
    event: String,
    name: Option<Name>,
    exec_time: Option<f64>,
}

/// A finished test.
#[derive(Debug, PartialEq)]
pub(crate) struct Finished {
    pub(crate) end: End,
    /// The time that it took, seconds.
    pub(crate) seconds: f64,
}

/// Reads the events of a run: each test by its name.
pub(crate) fn finished(output: &str) -> Result<BTreeMap<Name, Finished>> {
    let mut tests = BTreeMap::new();
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let event: Event = serde_json::from_str(line)
            .with_context(|| format!("cargo-nextest's event has an unexpected form: {line}"))?;
        let end = match event.event.as_str() {
            "ok" => End::Passed,
            "failed" | "timeout" => End::Failed,
            "ignored" => End::Ignored,
            _ => continue,
        };
        if let ("test", Some(name)) = (event.of.as_str(), event.name) {
            let seconds = event.exec_time.unwrap_or_default();
            tests.insert(name, Finished { end, seconds });
        }
    }
    Ok(tests)
}

/// Returns whether a test ran as the ordinary user beside the caller, and its name without that.
pub(crate) fn person_of(name: &Name) -> (bool, Name) {
    let own = name.split_once("::").and_then(|(package, rest)| {
        let rest = rest.strip_prefix(AS_ORDINARY_USER)?;
        Some(format!("{package}::{rest}"))
    });
    (own.is_some(), own.unwrap_or_else(|| name.clone()))
}

/// Returns the filter of cargo-nextest that selects these tests; of an ordinary user's
/// also those of the same name in another program of the package.
pub(crate) fn filter<'a>(names: impl IntoIterator<Item = &'a Name>) -> Result<String> {
    let one = |name: &Name| {
        let (is_ordinary, name) = person_of(name);
        let (of, test) = name.split_once('$')?;
        let (package, binary) = of.split_once("::")?;
        let test = test.split_once('#').map_or(test, |(test, _)| test);
        let program = match is_ordinary {
            true => format!("kind(={USER})"),
            false => format!("binary(={binary}) and not kind(={USER})"),
        };
        Some(format!(
            "(package(={package}) and {program} and test(={test}))"
        ))
    };
    let parts: Option<Vec<String>> = names.into_iter().map(one).collect();
    Ok(parts.context("a test has an unexpected name")?.join(" or "))
}

/// Reads a list of cargo-nextest: the tests it would run, and those it would leave out.
pub(crate) fn listed(list: &serde_json::Value) -> (Vec<Name>, Vec<Name>) {
    let suites = list
        .get("rust-suites")
        .and_then(|suites| suites.as_object());
    let (mut selected, mut left_out) = (Vec::new(), Vec::new());
    for suite in suites.into_iter().flat_map(|suites| suites.values()) {
        let word = |key: &str| suite.get(key).and_then(|word| word.as_str());
        let (package, binary) = (word("package-name"), word("binary-name"));
        let tests = suite.get("testcases").and_then(|tests| tests.as_object());
        for (test, facts) in tests.into_iter().flatten() {
            let (package, binary) = (package.unwrap_or_default(), binary.unwrap_or_default());
            let name = format!("{package}::{binary}${test}");
            let is = |at: &str, word: &str| facts.pointer(at).is_some_and(|found| found == word);
            // An ignored test belongs to its tier, and is missed there.
            let is_ignored = is("/filter-match/reason", "ignored");
            match is("/filter-match/status", "matches") || is_ignored {
                true => selected.push(name),
                false => left_out.push(name),
            }
        }
    }
    (selected, left_out)
}

/// A test that skipped itself, since it could not do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skip {
    pub(crate) test: Name,
    pub(crate) reason: String,
    /// True if a host of this kind could have run it.
    pub(crate) avoidable: bool,
}

/// Reads lines like `name<TAB>reason<TAB>avoidable`. A test may note several.
pub(crate) fn skips(text: &str) -> Vec<Skip> {
    let mut skips: Vec<Skip> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut parts = line.split('\t');
        let skip = Skip {
            test: parts.next().unwrap_or_default().trim().to_owned(),
            reason: parts.next().unwrap_or("no reason given").trim().to_owned(),
            // Whoever does not say that it could not be avoided has to look again.
            avoidable: parts.next().map(str::trim) != Some("unavoidable"),
        };
        if !skips.contains(&skip) {
            skips.push(skip);
        }
    }
    skips
}

/// Returns whether a name that a test gave itself is the one the harness printed.
pub(crate) fn same_test(printed: &str, given: &str) -> bool {
    printed == given
        || printed.ends_with(&format!("::{given}"))
        || printed.ends_with(&format!("${given}"))
}
