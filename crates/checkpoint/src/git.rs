//! Checkpoints of the refs and HEAD of a git repository. Refs below `refs/atoll` keep the objects
//! alive, so they stay in the repository. Nothing that its configuration names is run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::compare::{Compared, compare};
use crate::program::{command, failure, output};
use crate::{Change, Error, How, Job, Kept, Left, Made, Restored};

const STATE: &str = "refs.json";
const ATOLL: &str = "refs/atoll/";
const HEAD: &str = "HEAD";
const STASH: &str = "refs/stash";
/// The name of the refs to replaced states, below those of Atoll.
pub(crate) const KEPT_REFS: &str = "kept";
/// A ref may move while a restore is prepared.
const ATTEMPTS: usize = 3;

/// Settings by which nothing else is started, whatever the repository says.
const SETTINGS: [&str; 14] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "core.sshCommand=false",
    "core.askPass=false",
    "core.editor=false",
    "core.alternateRefsCommand=false",
    "core.attributesFile=/dev/null",
    "credential.helper=",
    "protocol.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
    "log.showSignature=false",
    // It is there because of what a configuration can run.
    "safe.directory=*",
];

/// The value of a ref: an object, or `ref: ` and another ref.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Value {
    value: String,
    /// All of the stash, the newest first; else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stash: Vec<Stashed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stashed {
    object: String,
    message: String,
}

type Refs = BTreeMap<String, Value>;

#[derive(Serialize, Deserialize)]
struct State {
    /// The start of the refs that keep objects alive.
    prefix: String,
    is_partial: bool,
    before: Refs,
    after: Option<Refs>,
}

impl Value {
    /// Returns the object, unless it is another ref.
    fn object(&self) -> Option<&str> {
        (!self.value.starts_with("ref: ")).then_some(self.value.as_str())
    }

    fn referent(&self) -> Option<&str> {
        self.value.strip_prefix("ref: ")
    }
}

impl State {
    fn read(dir: &Path) -> Result<Self, Error> {
        crate::read_json(&dir.join(STATE))
    }

    /// Returns the names of all refs before and after.
    fn names(&self) -> BTreeSet<&String> {
        let after = self.after.iter().flatten();
        self.before
            .iter()
            .chain(after)
            .map(|(name, _)| name)
            .collect()
    }

    fn compare(&self, repository: &Path) -> Result<(Vec<Compared<String>>, Refs), Error> {
        let mut now = refs(repository)?;
        if self.is_partial {
            let names = self.names();
            now.retain(|name, _| names.contains(name));
        }
        Ok((compare(&self.before, self.after.as_ref(), &now), now))
    }
}

pub(crate) fn take(repository: &Path, id: &str, into: &Path) -> Result<Made, Error> {
    let before = refs(repository)?;
    let prefix = format!("{ATOLL}{id}/");
    update(repository, &creations(&prefix, &before))?;
    let entries = before.len() as u64;
    let state = State {
        prefix,
        is_partial: false,
        before,
        after: None,
    };
    let written = crate::write_json(&state, &into.join(STATE));
    if written.is_err() {
        // The first error counts.
        let _ = forget(repository, &state.prefix);
    }
    written.map(|()| made(entries))
}

fn made(entries: u64) -> Made {
    Made {
        how: How::Refs,
        bytes: 0,
        entries,
    }
}

pub(crate) fn settle(repository: &Path, dir: &Path) -> Result<(), Error> {
    let mut state = State::read(dir)?;
    state.after = Some(refs(repository)?);
    crate::write_json(&state, &dir.join(STATE))
}

pub(crate) fn changes(repository: &Path, dir: &Path) -> Result<Vec<Change>, Error> {
    let (compared, _) = State::read(dir)?.compare(repository)?;
    Ok(compared
        .iter()
        .map(|one| one.change(one.key.clone()))
        .collect())
}

pub(crate) fn restore(repository: &Path, job: &Job<'_>) -> Result<Restored, Error> {
    let mut attempts = 1..ATTEMPTS;
    let (kept, left) = loop {
        let (chosen, left) = choose(repository, job)?;
        let Some(kept) = chosen else {
            return Ok(Restored::nothing(left));
        };
        crate::write_json(&kept, &job.kept.join(STATE))?;
        Kept::write(job, made(kept.before.len() as u64))?;
        let mut lines = creations(&kept.prefix, &kept.before);
        for name in kept.names() {
            let to = kept.after.as_ref().and_then(|after| after.get(name));
            lines.push_str(&change(name, kept.before.get(name), to));
        }
        match (update(repository, &lines), attempts.next()) {
            // A ref that moved in between is a conflict the next time.
            (Err(_), Some(_)) => {}
            (ended, _) => break ended.map(|()| (kept, left))?,
        }
    };
    finish(repository, &kept)?;
    Ok(Restored {
        kept: Some(crate::load(job.kept)?),
        restored: kept.names().into_iter().cloned().collect(),
        left,
    })
}

/// Returns the state that a restore replaces, settled with what takes its place, and all that it
/// leaves alone; `None` if there is nothing to restore.
fn choose(repository: &Path, job: &Job<'_>) -> Result<(Option<State>, Vec<Left>), Error> {
    let state = State::read(job.dir)?;
    let (compared, now) = state.compare(repository)?;
    let (chosen, rest): (Vec<_>, Vec<_>) = compared
        .into_iter()
        .partition(|one| one.is_restored(job.overwrite));
    let left = rest
        .iter()
        .map(|one| Left::touched(one.change(one.key.clone())))
        .collect();
    let names: BTreeSet<String> = chosen.into_iter().map(|one| one.key).collect();
    let of = |refs: Refs| {
        refs.into_iter()
            .filter(|(name, _)| names.contains(name))
            .collect()
    };
    let kept = State {
        prefix: format!("{ATOLL}{KEPT_REFS}/{}/", job.kept_id()?),
        is_partial: true,
        before: of(now),
        after: Some(of(state.before)),
    };
    Ok(((!names.is_empty()).then_some(kept), left))
}

/// Does what no transaction of refs can: refs that become refs to refs, or are no longer, and all of
/// the stash but its newest entry.
fn finish(repository: &Path, kept: &State) -> Result<(), Error> {
    for (name, value) in kept.after.iter().flatten() {
        let was = kept.before.get(name).and_then(Value::referent);
        match (value.referent(), was, value.object()) {
            (Some(referent), ..) => _ = git(repository, &["symbolic-ref", name, referent], "")?,
            (None, Some(_), Some(object)) => {
                git(repository, &["update-ref", "--no-deref", name, object], "")?;
            }
            _ => {}
        }
        if !value.stash.is_empty() {
            restore_stash(repository, &value.stash)?;
        }
    }
    Ok(())
}

/// Makes the stash anew, if its newest entry is still one of those.
fn restore_stash(repository: &Path, stash: &[Stashed]) -> Result<(), Error> {
    let newest = git(repository, &["rev-parse", "-q", "--verify", STASH], "")?;
    let newest = newest.trim_end();
    if stash.iter().all(|one| one.object != newest) || stashed(repository)? == stash {
        return Ok(());
    }
    git(repository, &["update-ref", "-d", STASH, newest], "")?;
    for one in stash.iter().rev() {
        let message = one.message.as_str();
        let words = [
            "update-ref",
            "--create-reflog",
            "-m",
            message,
            STASH,
            &one.object,
        ];
        git(repository, &words, "")?;
    }
    Ok(())
}

/// A restore is one transaction: the refs that keep the replaced state are there if it was done.
pub(crate) fn resume(repository: &Path, job: &Job<'_>) -> Result<Option<Restored>, Error> {
    let (Ok(taken), Ok(kept)) = (crate::load(job.kept), State::read(job.kept)) else {
        return Ok(None);
    };
    let is_done = match kept.before.values().any(|value| value.object().is_some()) {
        true => !kept_refs(repository, &kept.prefix)?.is_empty(),
        // Nothing was replaced that has a ref: so all of it is there, or nothing.
        false => {
            let now = refs(repository)?;
            let mut made = kept
                .after
                .iter()
                .flatten()
                .filter(|(_, value)| value.object().is_some());
            made.all(|(name, value)| now.get(name) == Some(value))
        }
    };
    if !is_done {
        return Ok(None);
    }
    finish(repository, &kept)?;
    Ok(Some(Restored {
        kept: Some(taken),
        restored: kept.names().into_iter().cloned().collect(),
        left: Vec::new(),
    }))
}

pub(crate) fn discard(repository: &Path, dir: &Path) -> Result<(), Error> {
    match State::read(dir) {
        Ok(state) => forget(repository, &state.prefix),
        Err(_) => Ok(()),
    }
}

/// Removes the refs that keep objects alive.
fn forget(repository: &Path, prefix: &str) -> Result<(), Error> {
    let mut lines = String::new();
    for name in kept_refs(repository, prefix)? {
        // Writing to a string does not fail.
        _ = writeln!(lines, "delete {name}");
    }
    update(repository, &lines)
}

fn kept_refs(repository: &Path, prefix: &str) -> Result<Vec<String>, Error> {
    let words = ["for-each-ref", "--format=%(refname)", prefix];
    Ok(git(repository, &words, "")?
        .lines()
        .map(str::to_owned)
        .collect())
}

/// Returns the lines that make refs to all objects of a state.
fn creations(prefix: &str, refs: &Refs) -> String {
    let mut lines = String::new();
    for (name, value) in refs {
        let short = name.strip_prefix("refs/").unwrap_or(name);
        let newest = value
            .object()
            .filter(|_| value.stash.is_empty())
            .into_iter();
        let objects = newest.chain(value.stash.iter().map(|one| one.object.as_str()));
        for (index, object) in objects.enumerate() {
            let number = if value.stash.is_empty() {
                String::new()
            } else {
                format!("/{index}")
            };
            _ = writeln!(lines, "create {prefix}{short}{number} {object}");
        }
    }
    lines
}

/// Returns the lines that move a ref from one value to another.
fn change(name: &str, from: Option<&Value>, to: Option<&Value>) -> String {
    let old = from.and_then(Value::object);
    let new = to.and_then(Value::object);
    let line = match (old, new) {
        (Some(old), Some(new)) if old == new => format!("verify {name} {old}"),
        (Some(old), Some(new)) => format!("update {name} {new} {old}"),
        // A ref takes its place afterwards.
        (Some(old), None) if to.is_some() => format!("verify {name} {old}"),
        (Some(old), None) => format!("delete {name} {old}"),
        (None, Some(_)) if from.is_some() => return String::new(),
        (None, Some(new)) => format!("create {name} {new}"),
        (None, None) if from.is_some() && to.is_none() => format!("delete {name}"),
        (None, None) => return String::new(),
    };
    format!("option no-deref\n{line}\n")
}

fn update(repository: &Path, lines: &str) -> Result<(), Error> {
    if lines.is_empty() {
        return Ok(());
    }
    let words = ["update-ref", "--stdin", "-m", "atoll: checkpoint"];
    git(repository, &words, lines).map(|_| ())
}

/// Returns all refs but those of Atoll, and HEAD.
fn refs(repository: &Path) -> Result<Refs, Error> {
    let words = [
        "for-each-ref",
        "--format=%(objectname) %(refname) %(symref)",
    ];
    let mut refs = Refs::new();
    for line in git(repository, &words, "")?.lines() {
        let mut words = line.split(' ');
        let (Some(object), Some(name)) = (words.next(), words.next()) else {
            return Err(failure("git", line));
        };
        let referent = words.next().filter(|referent| !referent.is_empty());
        let value = referent.map_or(object.to_owned(), |referent| format!("ref: {referent}"));
        if !name.starts_with(ATOLL) {
            let stash = Vec::new();
            refs.insert(name.to_owned(), Value { value, stash });
        }
    }
    if let Some(stash) = refs.get_mut(STASH) {
        stash.stash = stashed(repository)?;
    }
    if let Some(value) = head(repository)? {
        let stash = Vec::new();
        refs.insert(HEAD.to_owned(), Value { value, stash });
    }
    Ok(refs)
}

fn head(repository: &Path) -> Result<Option<String>, Error> {
    let symbolic = run(repository, &["symbolic-ref", "-q", HEAD], "")?;
    if symbolic.status.success() {
        let name = String::from_utf8_lossy(&symbolic.stdout);
        return Ok(Some(format!("ref: {}", name.trim_end())));
    }
    let detached = run(repository, &["rev-parse", "-q", "--verify", HEAD], "")?;
    let object = String::from_utf8_lossy(&detached.stdout)
        .trim_end()
        .to_owned();
    Ok(detached.status.success().then_some(object))
}

fn stashed(repository: &Path) -> Result<Vec<Stashed>, Error> {
    let words = ["log", "-g", "--no-patch", "--format=%H %gs", STASH, "--"];
    let listed = git(repository, &words, "")?;
    let entries = listed.lines().filter_map(|line| line.split_once(' '));
    let stashed = entries.map(|(object, message)| Stashed {
        object: object.to_owned(),
        message: message.to_owned(),
    });
    Ok(stashed.collect())
}

fn git(repository: &Path, words: &[&str], input: &str) -> Result<String, Error> {
    let output = run(repository, words, input)?;
    match output.status.success() {
        true => {
            String::from_utf8(output.stdout).map_err(|error| failure("git", &error.to_string()))
        }
        false => Err(failure("git", &String::from_utf8_lossy(&output.stderr))),
    }
}

fn run(repository: &Path, words: &[&str], input: &str) -> Result<std::process::Output, Error> {
    let mut git = command("git");
    git.envs([
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_NO_REPLACE_OBJECTS", "1"),
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_COMMITTER_NAME", "atoll"),
        ("GIT_COMMITTER_EMAIL", "atoll@localhost"),
        ("HOME", "/nonexistent"),
    ]);
    // A directory that is no repository is not taken for a part of one.
    if let Some(parent) = repository.parent() {
        git.env("GIT_CEILING_DIRECTORIES", parent);
    }
    for setting in SETTINGS {
        git.args(["-c", setting]);
    }
    git.arg("--no-pager").arg("-C").arg(repository).args(words);
    output(&mut git, "git", input.as_bytes())
}

#[cfg(test)]
mod tests;
