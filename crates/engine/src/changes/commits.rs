//! The commits that a run has made, by what it added to the logs of branches (git-reflog(1)). Their
//! text is the program's.

use atoll_layer::{Change, Class, DiffOptions, EntryKind, write_diff};
use atoll_store::LayerKind;

use super::{Changes, LayerChanges, grouped};

/// The most commits that are read, the most logs, and the largest of these, bytes: all is the
/// program's, and read before anybody is asked.
const COMMITS_MAX: usize = 64;
const LOGS_MAX: usize = 16;
const LOG_BYTES_MAX: u64 = 256 << 10;
/// The logs of branches, in git's directory.
const LOGS: &[u8] = b"logs/refs/heads/";

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The branch's name.
    pub branch: Vec<u8>,
    /// The first line of its message.
    pub subject: Vec<u8>,
}

/// Returns whether a change is an ordinary one in the workspace's own `.git`.
pub fn is_in_git(one: &LayerChanges, change: &Change) -> bool {
    let is_own = one.layer.kind == LayerKind::Workspace && change.class == Class::Ordinary;
    is_own && change.path.as_bytes().starts_with(b".git/")
}

/// Returns the branch whose log a change is of.
fn branch<'a>(one: &LayerChanges, change: &'a Change) -> Option<&'a [u8]> {
    let path = change.path.as_bytes();
    let own = match one.layer.kind {
        LayerKind::Workspace => path.strip_prefix(b".git/"),
        LayerKind::Repository => Some(path),
        LayerKind::Home | LayerKind::Cache => None,
    };
    own?.strip_prefix(LOGS)
}

/// Groups the changes as people decide about them, with the commits.
pub fn with_commits(all: &[LayerChanges]) -> Changes {
    Changes {
        commits: commits(all),
        ..grouped(all)
    }
}

/// Returns the commits of a run, by branch, the first ones first.
pub fn commits(all: &[LayerChanges]) -> Vec<Commit> {
    let logs = all.iter().flat_map(|one| {
        let changes = one
            .set
            .changes
            .iter()
            .filter(|change| is_small_file(change));
        changes.filter_map(move |change| Some((one, change, branch(one, change)?)))
    });
    let of_branch = |(one, change, branch)| of_branch(one, change, branch);
    let commits = logs.take(LOGS_MAX).flat_map(of_branch);
    commits.take(COMMITS_MAX).collect()
}

fn is_small_file(change: &Change) -> bool {
    let after = change.after.as_ref();
    after.is_some_and(|after| after.kind == EntryKind::File && after.bytes <= LOG_BYTES_MAX)
}

fn of_branch(one: &LayerChanges, change: &Change, branch: &[u8]) -> Vec<Commit> {
    let mut text = Vec::new();
    let only = [change.path.clone()];
    let options = DiffOptions {
        context: 0,
        ..DiffOptions::default()
    };
    // What cannot be read is among the files all the same.
    if write_diff(&one.paths, &one.set, &only, &mut text, &options).is_err() {
        return Vec::new();
    }
    let lines = text.split(|byte| *byte == b'\n');
    let added = lines.filter_map(|line| line.strip_prefix(b"+"));
    let told = added.filter_map(|line| line.splitn(2, |byte| *byte == b'\t').nth(1));
    let commits = told.filter(|told| told.starts_with(b"commit"));
    let subject = |told: &[u8]| {
        let colon = told.windows(2).position(|two| two == b": ");
        let subject = colon.and_then(|at| told.get(at + 2..));
        subject.unwrap_or(told).to_vec()
    };
    commits
        .map(|told| Commit {
            branch: branch.to_vec(),
            subject: subject(told),
        })
        .collect()
}
