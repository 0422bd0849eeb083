//! Canaries: secret values that must not appear anywhere. Each is searched for in all forms that a
//! program could have written it in, in all of a world's files, in the host's directories for
//! temporary files, and in everything that the world's programs wrote to their outputs and
//! terminals.
//!
//! A [`crate::World`] with canaries ([`crate::World::canary`]) searches for them when it ends. The
//! search is `grep`'s; each time it has to find all forms of all values in a file that has them, so
//! that one which finds nothing has looked.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Access, access};

/// The directories for temporary files and shared memory.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// The prefix of the directories of all worlds, and of those that tests are run in.
pub(crate) const PREFIX: &str = "atoll-e2e-";
/// The prefix of the directories from which suites run their tests.
const STAGE: &str = "atoll-test-";
/// The shortest value, bytes: shorter ones are found by chance.
const VALUE_BYTES_MIN: usize = 12;

/// The values to search for in a world, and the output of its programs so far.
#[derive(Debug, Clone)]
pub(crate) struct Canaries {
    shared: Arc<Mutex<Told>>,
}

#[derive(Debug)]
struct Told {
    values: Vec<Canary>,
    /// The output with its source, once there is a value to search for.
    written: Vec<(&'static str, Vec<u8>)>,
    /// The temporary files at the beginning.
    before: BTreeSet<PathBuf>,
}

#[derive(Debug)]
struct Canary {
    value: Vec<u8>,
    /// The files and directories that may hold it, relative to the top of the world.
    own: Vec<PathBuf>,
}

impl Canary {
    fn may_be_in(&self, file: &Path, top: &Path) -> bool {
        self.own.iter().any(|own| file.starts_with(top.join(own)))
    }
}

impl Canaries {
    pub(crate) fn new() -> Self {
        let told = Told {
            values: Vec::new(),
            written: Vec::new(),
            before: temporary().collect(),
        };
        Self {
            shared: Arc::new(Mutex::new(told)),
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a value. Of a value of several lines each long line counts, since programs wrap such
    /// texts differently.
    pub(crate) fn add(&self, value: &[u8], own: &[&Path]) {
        let mut lines: Vec<&[u8]> = value.split(|byte| *byte == b'\n').collect();
        lines.retain(|line| line.len() >= VALUE_BYTES_MIN && !line.starts_with(b"-----"));
        assert!(!lines.is_empty(), "a value is too short to be looked for");
        let mut told = self.told();
        for line in lines {
            let known = told.values.iter_mut().find(|one| one.value == line);
            let own = own.iter().map(|path| path.to_path_buf());
            match known {
                Some(known) => known.own.extend(own),
                None => told.values.push(Canary {
                    value: line.to_vec(),
                    own: own.collect(),
                }),
            }
        }
    }

    /// Records a program's output.
    pub(crate) fn wrote(&self, place: &'static str, bytes: &[u8]) {
        let mut told = self.told();
        if !told.values.is_empty() && !bytes.is_empty() {
            told.written.push((place, bytes.to_vec()));
        }
    }

    /// Returns whether there is a value to search for.
    pub(crate) fn are_told(&self) -> bool {
        !self.told().values.is_empty()
    }

    /// Ends the search: nothing is searched for from now on.
    pub(crate) fn forget(&self) {
        let mut told = self.told();
        told.values.clear();
        told.written.clear();
    }

    /// Returns the forbidden occurrences of values, a line each.
    ///
    /// # Panics
    /// When the search does not find what it has to find.
    pub(crate) fn found(&self, top: &Path) -> Vec<String> {
        let told = self.told();
        if told.values.is_empty() {
            return Vec::new();
        }
        let beside = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}search-"))
            .tempdir()
            .unwrap();
        let control = beside.path().join("control");
        let mut all = Vec::new();
        for (_, form) in told.values.iter().flat_map(|one| forms(&one.value)) {
            all.extend_from_slice(&form);
            all.push(b'\n');
        }
        fs::write(&control, &all).unwrap();
        for (number, (place, bytes)) in told.written.iter().enumerate() {
            fs::write(beside.path().join(format!("{place} {number}")), bytes).unwrap();
        }
        let new: Vec<PathBuf> = temporary()
            .filter(|path| !told.before.contains(path))
            .collect();
        let names = [names(top), new.iter().flat_map(|one| names(one)).collect()].concat();
        fs::write(beside.path().join("names of files"), names).unwrap();
        let mut places = vec![top.to_path_buf(), beside.path().to_path_buf()];
        places.extend(new);
        let holding = holding(&places, &all);
        assert!(holding.contains(&control), "the search finds nothing");
        told.judge(top, &control, &holding)
    }
}

impl Told {
    /// Returns the values and forms in files that may not have them, a line each.
    fn judge(&self, top: &Path, control: &Path, holding: &[PathBuf]) -> Vec<String> {
        let mut lines = Vec::new();
        for file in holding {
            let bytes = fs::read(file).unwrap_or_default();
            for canary in &self.values {
                let forms = forms(&canary.value);
                let all = forms.len();
                let mut in_it: Vec<&str> = Vec::new();
                for (form, text) in forms {
                    if position(&bytes, &text).is_some() {
                        in_it.push(form);
                    }
                }
                if file == control {
                    assert_eq!(in_it.len(), all, "the search misses {in_it:?}");
                } else if !in_it.is_empty() && !canary.may_be_in(file, top) {
                    let value = String::from_utf8_lossy(&canary.value);
                    let place = file.display();
                    lines.push(format!("{value} is in {place}: {in_it:?}"));
                }
            }
        }
        lines
    }
}

/// Returns the temporary files, without those of worlds, each of which searches its own.
fn temporary() -> impl Iterator<Item = PathBuf> {
    let entries = TEMPORARY
        .iter()
        .filter_map(|place| fs::read_dir(place).ok());
    let is_of_a_world = |name: &OsStr| name.as_bytes().starts_with(PREFIX.as_bytes());
    // The tests' own sources have the values, and what is built of them, also where another
    // suite begins meanwhile and puts its programs.
    let is_of_the_project = |path: &Path| {
        let marks: &[&str] = match path.file_name() {
            Some(name) if name.as_bytes().starts_with(STAGE.as_bytes()) => &["atoll"],
            _ => &[".git", "CACHEDIR.TAG"],
        };
        marks.iter().any(|mark| path.join(mark).exists())
    };
    entries
        .flatten()
        .flatten()
        .filter(move |entry| !is_of_a_world(&entry.file_name()))
        .map(|entry| entry.path())
        .filter(move |path| !is_of_the_project(path))
}

/// Returns the names of all files beneath a directory, and the targets of links.
fn names(below: &Path) -> Vec<u8> {
    let mut names = Vec::new();
    let mut waiting = vec![below.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            names.extend_from_slice(entry.file_name().as_bytes());
            names.push(b'\n');
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                waiting.push(entry.path());
            }
            if kind.is_symlink() {
                let to = fs::read_link(entry.path()).unwrap_or_default();
                names.extend_from_slice(to.as_os_str().as_bytes());
                names.push(b'\n');
            }
        }
    }
    names
}

/// Returns the files at these places that hold one of these lines.
fn holding(places: &[PathBuf], lines: &[u8]) -> Vec<PathBuf> {
    let mut grep = Command::new("grep");
    // Pipes and devices are skipped, links are not followed.
    grep.args(["-raFlsZ", "-D", "skip", "-f", "-", "--"])
        .args(places)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut grep = grep.spawn().unwrap();
    let mut to = grep.stdin.take().unwrap();
    to.write_all(lines).unwrap();
    drop(to);
    let found = grep.wait_with_output().unwrap().stdout;
    let paths = found
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty());
    paths
        .map(|path| PathBuf::from(OsString::from_vec(path.to_vec())))
        .collect()
}

/// Makes everything beneath a directory readable where the user may do so: the search is to miss
/// nothing that its owner has closed.
pub(crate) fn open_for_search(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let open = |path: &Path, mode| {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    };
    if access(directory, Access::READ_OK | Access::EXEC_OK).is_err() {
        open(directory, 0o700);
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries {
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            open_for_search(&entry.path());
        }
        if kind.is_file() && access(entry.path(), Access::READ_OK).is_err() {
            open(&entry.path(), 0o600);
        }
    }
}

fn position(bytes: &[u8], text: &[u8]) -> Option<usize> {
    let first = *text.first()?;
    let mut at = 0;
    while let Some(next) = bytes.get(at..)?.iter().position(|byte| *byte == first) {
        if bytes[at + next..].starts_with(text) {
            return Some(at + next);
        }
        at += next + 1;
    }
    None
}

/// Returns a value in the forms that programs write, each with its name; none has a line break.
#[must_use]
pub fn forms(value: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let text = String::from_utf8_lossy(value).into_owned();
    let json = serde_json::to_string(&text).unwrap();
    let json = json[1..json.len() - 1].to_owned();
    let mut all = vec![
        ("as it is", value.to_vec()),
        ("hex", hex(value, "")),
        ("upper-case hex", hex(value, "").to_ascii_uppercase()),
        ("all escaped for a URL", hex(value, "%")),
        (
            "all escaped for a URL in upper case",
            hex(value, "%").to_ascii_uppercase(),
        ),
        ("escaped for a URL", escaped(value, false)),
        ("escaped for a URL in lower case", escaped(value, true)),
        (
            "a form's field",
            String::from_utf8_lossy(&escaped(value, false))
                .replace("%20", "+")
                .into_bytes(),
        ),
        ("JSON", json.clone().into_bytes()),
        (
            "JSON with slashes escaped",
            json.replace('/', "\\/").into_bytes(),
        ),
        ("JSON by number", by_number(&text).into_bytes()),
        ("backwards", value.iter().rev().copied().collect()),
        ("two bytes each", two_bytes_each(value)),
    ];
    for (skipped, name, safe_name) in [
        (0, "base64", "base64url"),
        (1, "base64 one later", "base64url one later"),
        (2, "base64 two later", "base64url two later"),
    ] {
        let part = &value[skipped..];
        // What is the same wherever the text stands in what is encoded.
        let whole = &part[..part.len() / 3 * 3];
        let encoded = base64(whole);
        let safe = encoded.replace('+', "-").replace('/', "_");
        all.push((name, encoded.into_bytes()));
        all.push((safe_name, safe.into_bytes()));
    }
    all
}

fn hex(value: &[u8], before: &str) -> Vec<u8> {
    let mut text = String::new();
    for byte in value {
        write!(text, "{before}{byte:02x}").unwrap();
    }
    text.into_bytes()
}

/// Percent-encodes everything except unreserved characters (RFC 3986, 2.3).
fn escaped(value: &[u8], is_lower: bool) -> Vec<u8> {
    let mut text = String::new();
    for byte in value {
        match (byte, is_lower) {
            (b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~', _) => {
                text.push(char::from(*byte));
            }
            (_, true) => write!(text, "%{byte:02x}").unwrap(),
            (_, false) => write!(text, "%{byte:02X}").unwrap(),
        }
    }
    text.into_bytes()
}

fn by_number(text: &str) -> String {
    let mut all = String::new();
    for unit in text.encode_utf16() {
        write!(all, "\\u{unit:04x}").unwrap();
    }
    all
}

fn two_bytes_each(value: &[u8]) -> Vec<u8> {
    // Without the last 0: so it is found in both orders.
    let mut all: Vec<u8> = value.iter().flat_map(|byte| [*byte, 0]).collect();
    all.pop();
    all
}

/// Encodes whole groups of three bytes (RFC 4648, 4).
fn base64(value: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in value.chunks_exact(3) {
        let bits = group
            .iter()
            .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        for shift in [18, 12, 6, 0] {
            text.push(char::from(LETTERS[(bits >> shift & 63) as usize]));
        }
    }
    text
}
