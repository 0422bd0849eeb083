//! Golden files: what people and programs read of `atoll`, as it was when somebody last looked.
//!
//! A file `golden/NAME.console` is a session in a shell: `$ command`, then its standard output,
//! its standard error with `! ` in front, and `= N` where the status is not 0. All commands of a
//! file run in one world, as root. With `ATOLL_GOLDEN=write` the files are written anew: read
//! the difference before you commit it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use e2e::{Avoidable, World, is_root};

/// Writes the files anew instead of comparing.
const WRITE: &str = "ATOLL_GOLDEN";

fn directory() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo or xtask sets it");
    PathBuf::from(package).join("tests/golden")
}

/// Runs a file's commands in a new world, and compares or writes what they print.
fn check(test: &str, file: &str) {
    let world = World::new(test);
    if !is_root() {
        let reason = "golden files are of root's runs; what differs for users has its own tests";
        world.skip(reason, Avoidable::No);
        return;
    }
    let path = directory().join(format!("{file}.console"));
    let expected = fs::read_to_string(&path).unwrap();
    let mut names = Names::new(&world);
    let mut actual = String::new();
    for line in expected.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            actual.push_str(&format!("$ {command}\n"));
            actual.push_str(&carried_out(&world, command, &mut names));
        } else if line.starts_with('#') {
            actual.push_str(&format!("{line}\n"));
        }
    }
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, actual).unwrap();
        return;
    }
    let differs = expected
        .lines()
        .zip(actual.lines())
        .position(|(one, other)| one != other);
    assert!(
        expected == actual,
        "{file}.console differs from line {} on. If that is meant: {WRITE}=write\n{actual}",
        differs.map_or(expected.lines().count(), |line| line) + 1
    );
}

fn carried_out(world: &World, command: &str, names: &mut Names) -> String {
    let script = format!("atoll() {{ \"$ATOLL\" \"$@\"; }}; {command}");
    let outcome = world.host_shell(&script).env("NO_COLOR", "1").run();
    let mut text = String::new();
    for line in names.replaced(&outcome.out()).lines() {
        writeln!(text, "{line}").unwrap();
    }
    for line in names.replaced(&outcome.err()).lines() {
        writeln!(text, "! {line}").unwrap();
    }
    if outcome.code() != 0 {
        writeln!(text, "= {}", outcome.code()).unwrap();
    }
    text
}

/// Names for what differs from run to run, by the order in which it is first seen.
struct Names {
    top: String,
    seen: BTreeMap<String, String>,
}

/// A token's characters: those of ids, digests, times and numbers.
fn is_of_token(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || matches!(character, '-' | ':' | '.' | '+' | '/' | '=' | '_')
}

impl Names {
    fn new(world: &World) -> Self {
        let top = world.top().to_string_lossy().into_owned();
        let seen = BTreeMap::new();
        Self { top, seen }
    }

    /// Replaces the world's directory, ids, digests, keys, times and durations.
    fn replaced(&mut self, text: &str) -> String {
        let text = text.replace(&self.top, "/TOP");
        let mut done = String::new();
        let mut rest = text.as_str();
        while let Some(start) = rest.find(is_of_token) {
            let (before, from) = rest.split_at(start);
            let end = from.find(|one| !is_of_token(one)).unwrap_or(from.len());
            let (token, after) = from.split_at(end);
            done.push_str(before);
            done.push_str(&self.token(token, before));
            rest = after;
        }
        done + rest
    }

    fn token(&mut self, token: &str, before: &str) -> String {
        let (body, tail) = match token.strip_suffix([':', '.']) {
            Some(body) => (body, &token[body.len()..]),
            None => (token, ""),
        };
        let kind = kind(body, before);
        let Some(kind) = kind else {
            return token.to_owned();
        };
        if kind == "N" {
            return format!("N{tail}");
        }
        let count = self
            .seen
            .values()
            .filter(|name| name.starts_with(kind))
            .count();
        let name = self.seen.entry(body.to_owned());
        let name = name.or_insert_with(|| format!("{kind}{}", count + 1));
        format!("{name}{tail}")
    }
}

/// Returns by which word a token is named that differs from run to run.
fn kind(token: &str, before: &str) -> Option<&'static str> {
    let is_hex = |text: &str| text.chars().all(|one| matches!(one, '0'..='9' | 'a'..='f'));
    let digits = token.chars().filter(char::is_ascii_digit).count();
    let is_number = !token.is_empty() && digits == token.len();
    if is_hex(token) && token.len() >= 40 {
        return Some("DIGEST");
    }
    let parts: Vec<&str> = token.split('-').collect();
    if matches!(parts[..], [day, time, end] if [day.len(), time.len(), end.len()] == [6, 6, 4])
        && digits >= 12
    {
        return Some("RUN");
    }
    if token.len() == 26 && token.chars().all(|one| one.is_ascii_alphanumeric()) && digits > 0 {
        return Some("ID");
    }
    if token.len() >= 19 && digits >= 14 && token.contains('T') && token.contains(':') {
        return Some("TIME");
    }
    // Milliseconds since 1970, and sizes or times that a key or a unit announces.
    let is_time = is_number && token.len() == 13;
    let announced = ["-ms\":", "-us\":", "pid\":", "-bytes\":"];
    if is_time || (is_number && announced.iter().any(|key| before.trim_end().ends_with(key))) {
        return Some("N");
    }
    None
}

/// Each file has its test here, so that none is forgotten.
macro_rules! golden {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name), stringify!($name));
            }
        )*

        #[test]
        fn every_golden_file_has_a_test() {
            let entries = fs::read_dir(directory()).unwrap();
            let mut files: Vec<String> = entries
                .map(|entry| entry.unwrap().path())
                .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
                .collect();
            files.sort();
            assert_eq!(files, [$(stringify!($name)),*]);
        }
    };
}

golden! {
    decisions
    errors
    help
    ledger
    policies
    profiles
    runs
}
