//! Notices about a workspace that cannot behave in a copy-on-write layer as it does outside:
//! entries of others, which cannot be copied up, and what changed outside while the run went on,
//! which overlayfs leaves undefined.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use atoll_ledger::StateDir;
use atoll_model::{Ending, Outcome};
use atoll_sandbox::Host;
use atoll_store::{LayerHow, LayerKind, LayerRecord, RunRecord};
use rustix::fs::{Mode, OFlags, ResolveFlags, Stat, fstat, openat2};

use crate::hidden::beginning;

/// The most entries of a look, and the longest time for it: a larger workspace is looked at from its
/// top.
const ENTRIES_MAX: usize = 50_000;
const LOOK_MAX: Duration = Duration::from_millis(100);
/// The most entries whose owners are looked at: after a run that succeeded, and after another.
const OWNERS_LOOKED_AT: [usize; 2] = [256, 20_000];
/// The most entries that a notice names.
const NAMED_MAX: usize = 3;
/// The words by which programs report EXDEV of a rename (strerror(3), Node.js, Rust).
const RENAME_REFUSED: [&str; 2] = ["cross-device link", "exdev"];

/// Returns the notices, for the end of a run.
pub(crate) fn notices(
    state: &StateDir,
    record: &RunRecord,
    outcome: &Outcome,
    host: &Host,
) -> Vec<String> {
    let is_seen = |layer: &&LayerRecord| {
        layer.kind == LayerKind::Workspace && matches!(layer.how, LayerHow::Overlay { .. })
    };
    let Some(layer) = record.layers.iter().find(is_seen) else {
        return Vec::new();
    };
    let has_succeeded = outcome.ending == (Ending::Exited { status: 0 });
    let [few, many] = OWNERS_LOOKED_AT;
    let owners_max = if has_succeeded { few } else { many };
    let mut found = look(&layer.host, layer.since, owners_max, host);
    let upper = state.run_dir(&record.run).join(&layer.upper);
    found.of_others.retain(|path| !is_written(&upper, path));
    let of_others = (!found.of_others.is_empty()).then(|| {
        let names = named(&found.of_others);
        if host.is_root {
            format!(
                "entries of other users are in the workspace ({names}): inside, root has no \
                 rights beyond their mode bits; run Atoll as their owner to change them"
            )
        } else {
            format!(
                "entries of other users or groups are in the workspace ({names}): in a layer they \
                 cannot be changed in place (\"Value too large for defined data type\"), and what \
                 replaces one is yours; give them to your user and group, or run with --live"
            )
        }
    });
    let (written, lower) = (written(&upper), File::open(&layer.host).ok());
    let both = lower.iter();
    let both = both.flat_map(|lower| changed_outside(&written, lower, layer.since));
    let both: Vec<PathBuf> = both.collect();
    found.changed.retain(|path| !both.contains(path));
    let conflicts = (!both.is_empty()).then(|| {
        format!(
            "changed both inside and outside meanwhile: {}; a conflict, which `atoll apply` refuses",
            named(&both)
        )
    });
    let changed = (!found.changed.is_empty()).then(|| {
        format!(
            "changed outside meanwhile: {}; the run may have seen it in part, and `atoll apply` \
             reports conflicts",
            named(&found.changed)
        )
    });
    let own = lower.iter().filter(|_| !host.is_root);
    let own = own.flat_map(|lower| of_ordinary_user(&written, lower, state, record));
    let links = lower.iter().map(|lower| new_links(&written, lower));
    let links = links.filter(|links| !links.is_empty()).map(|links| {
        format!(
            "hard links were made to files that did not change: {}; applying makes each a file of \
             its own",
            named(&links)
        )
    });
    let all = of_others.into_iter().chain(own).chain(links);
    all.chain(conflicts).chain(changed).collect()
}

/// Returns notices about what overlayfs cannot do for a layer of an ordinary user: keep the names of
/// one file together (its index), and rename directories of the lower one (redirects); it needs
/// attributes that only root can write (overlayfs.rst).
fn of_ordinary_user(
    written: &[Written],
    lower: &File,
    state: &StateDir,
    record: &RunRecord,
) -> Vec<String> {
    let parted = parted(written, lower);
    let parted = (!parted.is_empty()).then(|| {
        format!(
            "files with several names (hard links) were changed by one of them: {}; the other names \
             keep the old content, and applying makes them two files",
            named(&parted)
        )
    });
    let output = state.run_dir(&record.run).join("output");
    let mut said = ["stderr", "stdout"]
        .iter()
        .map(|name| beginning(&output.join(name)));
    let is_refused = said.any(|text| {
        let text = text.to_ascii_lowercase();
        RENAME_REFUSED.iter().any(|word| {
            let mut windows = text.windows(word.len());
            windows.any(|window| window == word.as_bytes())
        })
    });
    let renamed = is_refused.then(|| {
        "a directory that was there before the run cannot be renamed in a layer of an ordinary user \
         (EXDEV): mv copies it instead; for git mv and the like, run with --live or as root"
            .to_owned()
    });
    parted.into_iter().chain(renamed).collect()
}

/// Returns whether the run has replaced or removed an entry, or a directory above it.
fn is_written(upper: &Path, path: &Path) -> bool {
    let is_below = |above: &&Path| !above.as_os_str().is_empty();
    path.ancestors().filter(is_below).any(|above| {
        let facts = fs::symlink_metadata(upper.join(above));
        facts.is_ok_and(|facts| above == path || !facts.is_dir())
    })
}

/// A file, link or the like in a layer, as the program left it.
type Written = (PathBuf, Metadata);

/// Returns what a layer holds, without directories.
fn written(upper: &Path) -> Vec<Written> {
    let mut written = Vec::new();
    let (mut left, mut waiting) = (Bound::new(), VecDeque::from([PathBuf::new()]));
    while let Some(below) = waiting.pop_front() {
        let entries = fs::read_dir(upper.join(&below));
        for entry in entries.into_iter().flatten().flatten() {
            if !left.has_one() {
                return written;
            }
            let path = below.join(entry.file_name());
            match entry.metadata() {
                Ok(facts) if facts.is_dir() => waiting.push_back(path),
                Ok(facts) => written.push((path, facts)),
                Err(_) => {}
            }
        }
    }
    written
}

/// Returns the files in a layer that had further names before, of which at least one is unchanged.
/// The program chose the names: none of them leads through a link or to another file system.
fn parted(written: &[Written], lower: &File) -> Vec<PathBuf> {
    let mut changed: BTreeMap<(u64, u64), (u64, PathBuf)> = BTreeMap::new();
    for (path, _) in written.iter().filter(|(_, facts)| facts.is_file()) {
        if let Some(facts) = facts_beneath(lower, path)
            && facts.st_mode & FILE_TYPE == FILE
            && facts.st_nlink > 1
        {
            let one = (facts.st_dev, facts.st_ino);
            let names = changed.entry(one);
            let names = names.or_insert_with(|| (facts.st_nlink, path.clone()));
            names.0 = names.0.saturating_sub(1);
        }
    }
    let parted = changed.into_values().filter(|(others, _)| *others > 0);
    parted.map(|(_, path)| path).collect()
}

/// Returns the names that a program gave to files which it did not change otherwise: only the new
/// name is a change to apply.
fn new_links(written: &[Written], lower: &File) -> Vec<PathBuf> {
    let several = |facts: &Metadata| facts.is_file() && facts.nlink() > 1;
    let names = written.iter().filter(|(_, facts)| several(facts));
    let names = names.map(|(path, facts)| (path, facts, facts_beneath(lower, path)));
    let (before, new): (Vec<_>, Vec<_>) = names.partition(|(.., before)| before.is_some());
    let same = before.iter().filter(|(_, facts, before)| {
        before
            .as_ref()
            .is_some_and(|before| is_unchanged(facts, before))
    });
    let same: BTreeSet<u64> = same.map(|(_, facts, _)| facts.ino()).collect();
    let is_of_same = |(_, facts, _): &&(_, &Metadata, _)| same.contains(&facts.ino());
    let new = new.iter().filter(is_of_same);
    new.map(|(path, ..)| (*path).clone()).collect()
}

/// Returns what a program has changed or removed and somebody changed outside. The inside of `.git`
/// is left out, as it is by [`look`].
fn changed_outside(written: &[Written], lower: &File, since: (i64, u32)) -> Vec<PathBuf> {
    let is_of_git = |path: &Path| path.components().any(|name| name.as_os_str() == ".git");
    let paths = written.iter().map(|(path, _)| path);
    let paths = paths.filter(|path| !is_of_git(path));
    let changed = paths.filter(|path| {
        let facts = facts_beneath(lower, path);
        facts.is_some_and(|facts| changed_at(&facts) > since)
    });
    changed.cloned().collect()
}

/// As [`changed`].
#[allow(clippy::unnecessary_cast)]
fn changed_at(facts: &Stat) -> (i64, u32) {
    (facts.st_ctime as i64, facts.st_ctime_nsec as u32)
}

/// Returns whether a file of a layer looks like a copy of one before.
// The fields' types differ from one architecture to the next.
#[allow(clippy::unnecessary_cast)]
fn is_unchanged(now: &Metadata, before: &Stat) -> bool {
    let modified = (before.st_mtime as i64, before.st_mtime_nsec as i64);
    (now.mode(), now.size() as i64) == (before.st_mode, before.st_size as i64)
        && (now.mtime(), now.mtime_nsec()) == modified
}

/// The type bits of a mode, and those of a regular file (inode(7)).
const FILE_TYPE: u32 = 0o170_000;
const FILE: u32 = 0o100_000;

/// Returns the facts of an entry on the same file system, to which no link leads.
fn facts_beneath(top: &File, path: &Path) -> Option<Stat> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entry = openat2(top, path, flags, Mode::empty(), how).ok()?;
    fstat(entry).ok()
}

/// The bounds of a look: entries, and time.
struct Bound {
    entries: usize,
    until: Instant,
}

impl Bound {
    fn new() -> Self {
        Self {
            entries: ENTRIES_MAX,
            until: Instant::now() + LOOK_MAX,
        }
    }

    /// Counts one entry. Returns whether it is within the bounds.
    fn has_one(&mut self) -> bool {
        self.entries = self.entries.saturating_sub(1);
        self.entries > 0 && Instant::now() < self.until
    }
}

/// Names the first entries, relative to the workspace, and counts the rest.
fn named(entries: &[PathBuf]) -> String {
    let names = entries.iter().take(NAMED_MAX);
    let mut names: Vec<String> = names.map(|path| shown(path)).collect();
    let rest = entries.len().saturating_sub(NAMED_MAX);
    if rest > 0 {
        names.push(format!("{rest} more"));
    }
    names.join(", ")
}

fn shown(path: &Path) -> String {
    let text = if path.as_os_str().is_empty() {
        Path::new(".").display()
    } else {
        path.display()
    };
    text.to_string().escape_debug().to_string()
}

/// Entries of a workspace, relative to it.
#[derive(Debug, Default)]
struct Found {
    of_others: Vec<PathBuf>,
    changed: Vec<PathBuf>,
}

/// Looks through a workspace breadth-first, without following links. The inside of `.git` is left
/// out: git's own locks and index change whenever anybody asks it for the state of files.
fn look(workspace: &Path, since: (i64, u32), owners_max: usize, host: &Host) -> Found {
    let mut found = Found::default();
    let (mut owners, mut left) = (0, Bound::new());
    let Ok(top) = fs::symlink_metadata(workspace) else {
        return found;
    };
    if is_of_others(&top, host) {
        found.of_others.push(PathBuf::new());
    }
    let mut waiting = VecDeque::from([PathBuf::new()]);
    while let Some(below) = waiting.pop_front() {
        let directory = workspace.join(&below);
        // Another file system can be one that does not answer.
        let facts = match below.as_os_str().is_empty() {
            true => Some(top.clone()),
            false => fs::symlink_metadata(&directory).ok(),
        };
        let Some(facts) = facts.filter(|facts| facts.is_dir() && facts.dev() == top.dev()) else {
            continue;
        };
        // Names come, go and are replaced with the time of their directory alone.
        let has_changed = changed(&facts) > since;
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if !left.has_one() {
                return found;
            }
            let path = below.join(entry.file_name());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && entry.file_name() != ".git" {
                waiting.push_back(path.clone());
            }
            owners += 1;
            if !has_changed && owners > owners_max {
                continue;
            }
            let Ok(facts) = entry.metadata() else {
                continue;
            };
            if has_changed && changed(&facts) > since {
                found.changed.push(path.clone());
            }
            if owners <= owners_max && is_of_others(&facts, host) {
                found.of_others.push(path);
            }
        }
    }
    found
}

/// Returns whether the program cannot change an entry that this user may change outside: for an
/// ordinary user where the entry's owner or group has no number in the sandbox, for root where the
/// mode bits alone keep it out.
fn is_of_others(facts: &Metadata, host: &Host) -> bool {
    if facts.is_symlink() {
        return false;
    }
    if host.is_root {
        let bits = facts.mode();
        let by_group = facts.gid() == host.gid && bits & 0o020 != 0;
        return facts.uid() != host.uid && !by_group && bits & 0o002 == 0;
    }
    facts.uid() != host.uid || facts.gid() != host.gid
}

/// Returns the time of the last change, seconds and nanoseconds since 1970.
fn changed(facts: &Metadata) -> (i64, u32) {
    (
        facts.ctime(),
        u32::try_from(facts.ctime_nsec()).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn host(uid: u32, gid: u32, is_root: bool) -> Host {
        Host {
            mounts: Vec::new(),
            groups: Vec::new(),
            landlock: 0,
            is_root,
            unmapped: false,
            uid,
            gid,
        }
    }

    #[test]
    fn entries_of_others_are_found_by_owner_and_group() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("below")).unwrap();
        fs::write(top.path().join("below/file"), "").unwrap();
        let facts = top.path().metadata().unwrap();
        let (uid, gid) = (facts.uid(), facts.gid());
        let never = (i64::MAX, 0);
        let of_others = |host: &Host, most| look(top.path(), never, most, host).of_others;
        assert!(of_others(&host(uid, gid, false), 10).is_empty());
        let all = ["", "below", "below/file"].map(PathBuf::from);
        assert_eq!(of_others(&host(uid, gid + 1, false), 10), all);
        assert_eq!(of_others(&host(uid + 1, gid, false), 1), all[..2]);
        // Root is kept out by mode bits alone.
        assert_eq!(of_others(&host(uid + 1, gid + 1, true), 10), all);
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(top.path().join("below"), open).unwrap();
        assert_eq!(of_others(&host(uid + 1, gid + 1, true), 10).len(), 2);
    }

    #[test]
    fn changes_meanwhile_are_found_without_those_of_git() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join(".git")).unwrap();
        fs::write(top.path().join(".git/index"), "").unwrap();
        fs::write(top.path().join("new"), "").unwrap();
        let facts = top.path().metadata().unwrap();
        let host = host(facts.uid(), facts.gid(), false);
        let found = look(top.path(), (0, 0), 0, &host);
        let mut changed = found.changed;
        changed.sort();
        assert_eq!(changed, [".git", "new"].map(PathBuf::from));
        assert_eq!(named(&changed), ".git, new");
        let later = (i64::MAX, 0);
        assert!(look(top.path(), later, 0, &host).changed.is_empty());
    }

    #[test]
    fn replaced_and_removed_entries_are_written() {
        let upper = tempfile::tempdir().unwrap();
        fs::create_dir(upper.path().join("below")).unwrap();
        for name in ["replaced", "below/replaced"] {
            fs::write(upper.path().join(name), "").unwrap();
        }
        for (path, expected) in [
            ("", false),
            ("same", false),
            ("below/same", false),
            ("replaced", true),
            ("below/replaced", true),
            ("replaced/beneath", true),
        ] {
            let written = is_written(upper.path(), Path::new(path));
            assert_eq!(written, expected, "{path}");
        }
    }

    #[test]
    fn names_of_one_file_are_parted_where_one_is_unchanged() {
        let (upper, lower) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["one", "three", "plain"] {
            fs::write(lower.path().join(name), "").unwrap();
        }
        for (from, to) in [("one", "two"), ("three", "four")] {
            fs::hard_link(lower.path().join(from), lower.path().join(to)).unwrap();
        }
        for name in ["one", "three", "four", "plain"] {
            fs::write(upper.path().join(name), "more").unwrap();
        }
        let opened = File::open(lower.path()).unwrap();
        let written = written(upper.path());
        assert_eq!(parted(&written, &opened), [PathBuf::from("one")]);
    }

    #[test]
    fn files_changed_on_both_sides_are_found() {
        let (upper, lower) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for place in [&upper, &lower] {
            fs::create_dir(place.path().join(".git")).unwrap();
            fs::write(place.path().join(".git/index"), "").unwrap();
            fs::write(place.path().join("both"), "").unwrap();
        }
        fs::write(upper.path().join("inside"), "").unwrap();
        fs::write(lower.path().join("outside"), "").unwrap();
        let (opened, written) = (File::open(lower.path()).unwrap(), written(upper.path()));
        let found = |since| changed_outside(&written, &opened, since);
        assert_eq!(found((0, 0)), [PathBuf::from("both")]);
        assert!(found((i64::MAX, 0)).is_empty());
    }

    #[test]
    fn new_names_of_unchanged_files_are_found() {
        let (upper, lower) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["same", "changed"] {
            let file = lower.path().join(name);
            fs::write(&file, "").unwrap();
            // As overlayfs does, with the times.
            let copied = fs::File::create(upper.path().join(name)).unwrap();
            let modified = file.metadata().unwrap().modified().unwrap();
            copied.set_modified(modified).unwrap();
        }
        fs::write(upper.path().join("changed"), "more").unwrap();
        fs::write(upper.path().join("new"), "").unwrap();
        for (from, to) in [("same", "link"), ("changed", "other"), ("new", "newer")] {
            fs::hard_link(upper.path().join(from), upper.path().join(to)).unwrap();
        }
        let opened = File::open(lower.path()).unwrap();
        let links = new_links(&written(upper.path()), &opened);
        assert_eq!(links, [PathBuf::from("link")]);
    }
}
