//! Golden files: the output of `atoll` for people and programs, as it was when somebody last
//! looked.
//!
//! A file `golden/NAME.console` is a session in a shell: `$ command`, then its standard output, its
//! standard error with `! ` in front, and `= N` where the status is not 0. All commands of a file
//! run in one world, as root. With `ATOLL_GOLDEN=write` the files are written anew: read the
//! difference before you commit it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use e2e::{Avoidable, World, is_root};

/// Writes the files anew instead of comparing.
const WRITE: &str = "ATOLL_GOLDEN";

fn directory() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo or xtask sets it");
    PathBuf::from(package).join("tests/golden")
}

/// Runs a file's commands in a new world, and compares or writes what they print.
fn check(test: &str, file: &str) {
    // Where lines are wrapped depends on how long the path is.
    let world = World::below(test, Path::new("/var/tmp"));
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
        } else if actual.is_empty() {
            // What the file says of itself.
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

/// Names for values that differ from run to run, in the order of their first occurrence.
struct Names {
    top: String,
    seen: BTreeMap<String, String>,
    /// The count of numbers in the lines below that are of this run.
    measured: usize,
}

/// Keys of JSON whose numbers vary with the run and the machine, each with how many follow.
const MEASURED: [(&str, usize); 8] = [
    ("-ms", 1),
    ("_us", 1),
    ("-bytes", 1),
    ("_bytes", 1),
    ("pid", 1),
    ("base", 1),
    ("byte", 1),
    ("since", 2),
];
/// Units of measured values, and the words that replace them.
const UNITS: [(&str, &str); 7] = [
    ("ms", "TIME"),
    ("s", "TIME"),
    ("min", "TIME"),
    ("B", "SIZE"),
    ("KiB", "SIZE"),
    ("MiB", "SIZE"),
    ("GiB", "SIZE"),
];

/// Returns whether a character is part of ids, digests, times and numbers.
fn is_of_token(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || matches!(character, '-' | ':' | '.' | '+' | '/' | '=' | '_')
}

/// Splits a line into the texts between tokens, each with the token after it.
fn tokens(line: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let starts = |one: char| is_of_token(one) && one != ':';
        let start = rest.find(starts).unwrap_or(rest.len());
        let (before, from) = rest.split_at(start);
        let end = from.find(|one| !is_of_token(one)).unwrap_or(from.len());
        let (token, after) = from.split_at(end);
        found.push((before, token));
        rest = after;
    }
    found
}

impl Names {
    fn new(world: &World) -> Self {
        let top = world.top().to_string_lossy().into_owned();
        let seen = BTreeMap::new();
        Self {
            top,
            seen,
            measured: 0,
        }
    }

    /// Replaces the world's directory, ids, digests, keys, times and measured values.
    fn replaced(&mut self, text: &str) -> String {
        let text = text.replace(&self.top, "/TOP");
        let lines = text.lines().map(|line| self.line(line) + "\n");
        lines.collect()
    }

    fn line(&mut self, line: &str) -> String {
        let mut done = String::new();
        let mut measured = self.measured;
        let all = tokens(line);
        let mut all = all.iter().peekable();
        while let Some((before, token)) = all.next() {
            done.push_str(&narrowed(before, done.is_empty()));
            let is_number =
                !token.is_empty() && token.chars().all(|one| one.is_ascii_digit() || one == '.');
            let unit = |next: &str| UNITS.iter().find(|(unit, _)| *unit == next);
            let following = all.peek().filter(|(before, _)| *before == " ");
            if let Some((_, word)) = following
                .and_then(|(_, next)| unit(next))
                .filter(|_| is_number)
            {
                let _ = all.next();
                done.push_str(word);
            } else if is_number && (measured > 0 || token.len() >= 8) {
                measured -= usize::from(measured > 0);
                done.push('N');
            } else {
                done.push_str(&self.token(token));
            }
            let key = MEASURED.iter().find(|(end, _)| token.ends_with(end));
            measured = key.map_or(measured, |(_, count)| *count);
        }
        // A list goes on in the lines below.
        let goes_on = line.ends_with('[') || self.measured > 0;
        self.measured = if goes_on { measured } else { 0 };
        done
    }

    fn token(&mut self, token: &str) -> String {
        let end = token.trim_end_matches([':', '.']).len();
        let (body, tail) = token.split_at(end);
        let Some(kind) = kind(body) else {
            return token.to_owned();
        };
        if matches!(kind, "DATE" | "CLOCK") {
            return format!("{kind}{tail}");
        }
        let of_kind = |name: &&String| name.trim_end_matches(char::is_numeric) == kind;
        let count = self.seen.values().filter(of_kind).count();
        let name = self.seen.entry(body.to_owned());
        let name = name.or_insert_with(|| format!("{kind}{}", count + 1));
        format!("{name}{tail}")
    }
}

/// Returns the text between tokens, without the padding of columns.
fn narrowed(between: &str, is_indentation: bool) -> String {
    match between.contains("   ") && !is_indentation {
        true => between.split_whitespace().collect::<Vec<_>>().join(" ") + "  ",
        false => between.to_owned(),
    }
}

/// Returns the word that names a token that differs from run to run.
fn kind(token: &str) -> Option<&'static str> {
    let is_hex = |text: &str| text.chars().all(|one| matches!(one, '0'..='9' | 'a'..='f'));
    let digits = token.chars().filter(char::is_ascii_digit).count();
    let lengths: Vec<usize> = token.split('-').map(str::len).collect();
    let last = token.rsplit([':', '/', '+']).next().unwrap_or_default();
    let has_upper = token.chars().any(|one| one.is_ascii_uppercase());
    match token.len() {
        18 if lengths == [6, 6, 4] && digits >= 12 => Some("RUN"),
        10 if lengths == [4, 2, 2] && digits == 8 => Some("DATE"),
        8 if digits == 6 && token.matches(':').count() == 2 => Some("CLOCK"),
        20.. if digits >= 14 && token.contains('T') && token.contains(':') => Some("INSTANT"),
        _ if token.starts_with("atoll-ledger/") => Some("LEDGER"),
        12.. if is_hex(last) && last.len() >= 12 && digits > 0 => Some("DIGEST"),
        40.. if digits > 0 && has_upper && !token.contains("://") => Some("KEY"),
        _ if digits > 3 && token.ends_with("KiB") => Some("KIB"),
        _ => None,
    }
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
