//! Real trees, real overlays: edits are done by a child process inside a private mount namespace,
//! which then records the tree that it saw.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use rustix::fs::XattrFlags;
use serde::{Deserialize, Serialize};
use sha2::Digest;

use crate::path::Bytes;
use crate::*;

/// An edit that a program makes to a tree.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub enum Edit {
    Write(RelativePath, Bytes),
    Append(RelativePath, Bytes),
    Sparse(RelativePath, u64),
    Remove(RelativePath),
    Directory(RelativePath),
    Symlink(RelativePath, Bytes),
    Link(RelativePath, RelativePath),
    Rename(RelativePath, RelativePath),
    Mode(RelativePath, u32),
    Xattr(RelativePath, String, Bytes),
    Touch(RelativePath),
    Fifo(RelativePath),
}

pub fn path(text: impl AsRef<[u8]>) -> RelativePath {
    RelativePath::new(text.as_ref()).unwrap()
}
pub fn write(at: impl AsRef<[u8]>, text: impl AsRef<[u8]>) -> Edit {
    Edit::Write(path(at), Bytes(text.as_ref().to_vec()))
}
pub fn append(at: &str, text: &str) -> Edit {
    Edit::Append(path(at), Bytes(text.into()))
}
pub fn remove(at: &str) -> Edit {
    Edit::Remove(path(at))
}
pub fn directory(at: &str) -> Edit {
    Edit::Directory(path(at))
}
pub fn link_to(at: &str, target: &str) -> Edit {
    Edit::Symlink(path(at), Bytes(target.into()))
}
pub fn hard_link(from: &str, at: &str) -> Edit {
    Edit::Link(path(from), path(at))
}
pub fn rename(from: &str, to: &str) -> Edit {
    Edit::Rename(path(from), path(to))
}
pub fn mode(at: &str, mode: u32) -> Edit {
    Edit::Mode(path(at), mode)
}
pub fn xattr(at: &str, name: &str, value: &str) -> Edit {
    Edit::Xattr(path(at), name.into(), Bytes(value.into()))
}

pub fn at(root: &Path, path: &RelativePath) -> PathBuf {
    root.join(path.as_os_str())
}

impl Edit {
    /// Does the edit; some fail by design (a directory cannot be moved, …).
    pub fn perform(&self, root: &Path) -> std::io::Result<()> {
        match self {
            Self::Write(path, bytes) => {
                let file = at(root, path);
                let _ = fs::create_dir_all(file.parent().unwrap());
                fs::write(file, &bytes.0)
            }
            Self::Append(path, bytes) => {
                use std::io::Write;
                let mut file = fs::OpenOptions::new().append(true).open(at(root, path))?;
                file.write_all(&bytes.0)
            }
            Self::Sparse(path, bytes) => {
                use std::os::unix::fs::FileExt;
                let file = fs::File::create(at(root, path))?;
                file.set_len(*bytes)?;
                file.write_all_at(b"island", bytes / 2)
            }
            Self::Remove(path) => {
                let entry = at(root, path);
                match fs::symlink_metadata(&entry)?.is_dir() {
                    true => fs::remove_dir_all(entry),
                    false => fs::remove_file(entry),
                }
            }
            Self::Directory(path) => fs::create_dir_all(at(root, path)),
            Self::Symlink(path, target) => {
                symlink(std::ffi::OsStr::from_bytes(&target.0), at(root, path))
            }
            Self::Link(from, to) => fs::hard_link(at(root, from), at(root, to)),
            Self::Rename(from, to) => fs::rename(at(root, from), at(root, to)),
            Self::Mode(path, mode) => {
                fs::set_permissions(at(root, path), fs::Permissions::from_mode(*mode))
            }
            Self::Xattr(path, name, value) => Ok(rustix::fs::lsetxattr(
                at(root, path),
                name.as_str(),
                &value.0,
                XattrFlags::empty(),
            )?),
            Self::Touch(path) => fs::File::options()
                .write(true)
                .open(at(root, path))?
                .set_modified(SystemTime::now()),
            Self::Fifo(path) => Ok(rustix::fs::mkfifoat(
                rustix::fs::CWD,
                at(root, path),
                rustix::fs::Mode::from_raw_mode(0o644),
            )?),
        }
    }
}

pub fn perform(root: &Path, edits: &[Edit]) {
    for edit in edits {
        edit.perform(root)
            .unwrap_or_else(|error| panic!("{edit:?}: {error}"));
    }
}

/// Everything about a tree that must be right, by path. Hard links are shown by the
/// first path of their group.
pub type Snapshot = BTreeMap<RelativePath, String>;

pub fn snapshot(root: &Path, times: bool) -> Snapshot {
    let tree = crate::tree::Tree::open(root).unwrap();
    let mut seen = Snapshot::new();
    let mut waiting = vec![RelativePath::root()];
    while let Some(directory) = waiting.pop() {
        for name in tree.names(&directory).unwrap() {
            let path = directory.join(&name).unwrap();
            let facts = tree.facts(&path).unwrap().unwrap();
            let notes = crate::read::xattrs_at(&tree, &path, facts.kind, None, 1 << 20).unwrap();
            let mut own = notes.own;
            own.sort_by(|left, right| left.0.0.cmp(&right.0.0));
            let what = match facts.kind {
                crate::facts::Kind::Directory => {
                    waiting.push(path.clone());
                    String::new()
                }
                crate::facts::Kind::Symlink => escape::text(&tree.link_target(&path).unwrap()),
                crate::facts::Kind::File => {
                    let (mut file, _) = tree.file(&path).unwrap();
                    let mut digest = sha2::Sha256::new();
                    std::io::copy(&mut file, &mut Wrap(&mut digest)).unwrap();
                    format!("{} {:02x?}", facts.bytes, &digest.finalize()[..6])
                }
                _ => String::new(),
            };
            let mode = match facts.kind {
                crate::facts::Kind::Symlink => 0,
                _ => facts.mode,
            };
            let time = match (times, facts.kind) {
                (true, crate::facts::Kind::File | crate::facts::Kind::Symlink) => facts.modified,
                _ => crate::facts::Time::default(),
            };
            let text = format!(
                "{:?} {mode:o} {}:{} {what} {own:?} {time:?}",
                facts.kind, facts.uid, facts.gid
            );
            seen.insert(path, text);
        }
    }
    seen
}

struct Wrap<'a>(&'a mut sha2::Sha256);
impl std::io::Write for Wrap<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub fn assert_same(what: &str, left: &Snapshot, right: &Snapshot) {
    let mut wrong = Vec::new();
    for path in left.keys().chain(right.keys()) {
        if left.get(path) != right.get(path) {
            wrong.push(format!(
                "{path}:\n  {:?}\n  {:?}",
                left.get(path),
                right.get(path)
            ));
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

/// The way in which an overlay is mounted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mounted {
    /// By root, with redirects and an index.
    Trusted,
    /// By root, with attributes of the user's.
    User,
    /// By an ordinary user in a user namespace.
    Namespace,
}
pub const MOUNTED: [Mounted; 3] = [Mounted::Trusted, Mounted::User, Mounted::Namespace];
pub const ORDINARY: u32 = 1000;

/// A host directory with a layer, all in a temporary place.
pub struct Stand {
    pub place: tempfile::TempDir,
    pub paths: LayerPaths,
}

/// Makes everything writable first: an ordinary user cannot remove entries of read-only
/// directories.
impl Drop for Stand {
    fn drop(&mut self) {
        let _ = Command::new("chmod")
            .args(["-R", "u+rwX"])
            .arg(self.place.path())
            .status();
    }
}

impl Stand {
    pub fn host(&self) -> PathBuf {
        self.place.path().join("host")
    }
    pub fn journal(&self) -> PathBuf {
        self.place.path().join("journal")
    }

    pub fn bare() -> tempfile::TempDir {
        let place = tempfile::tempdir_in("/tmp").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["host", "upper", "work", "merged"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        place
    }

    /// Makes the tree before, then lets a child do the edits in an overlay. Returns the stand and
    /// the tree that the child saw at the end, or why it is not possible here.
    pub fn overlay(
        mounted: Mounted,
        before: &[Edit],
        edits: &[Edit],
        strict: bool,
    ) -> Result<(Self, Snapshot), String> {
        let place = Self::bare();
        let root = place.path();
        perform(&root.join("host"), before);
        let xattrs = match mounted {
            Mounted::Trusted => XattrFlavour::Trusted,
            Mounted::User | Mounted::Namespace => XattrFlavour::User,
        };
        if !rustix::process::geteuid().is_root() && mounted != Mounted::Namespace {
            return Err("needs root".into());
        }
        fs::write(root.join("edits"), serde_json::to_vec(edits).unwrap()).unwrap();
        if mounted == Mounted::Namespace && rustix::process::geteuid().is_root() {
            own(root, ORDINARY);
        }
        let paths = LayerPaths {
            put_back: None,
            before: root.join("host"),
            after: AfterTree::Overlay {
                upper: root.join("upper"),
                work: root.join("work"),
                xattrs,
            },
            since: SystemTime::now(),
            ids: IdShift::None,
        };
        let options = match mounted {
            Mounted::Trusted => "redirect_dir=on,index=on",
            Mounted::User | Mounted::Namespace => "userxattr",
        };
        let script = format!(
            "cd '{}' && mount -t overlay overlay -o {options},lowerdir=host,upperdir=upper,workdir=work merged && exec \"$@\"",
            root.display()
        );
        let mut command = match mounted {
            Mounted::Trusted | Mounted::User => Command::new("unshare"),
            Mounted::Namespace => {
                let mut command = match rustix::process::geteuid().is_root() {
                    true => Command::new("setpriv"),
                    false => Command::new("env"),
                };
                if rustix::process::geteuid().is_root() {
                    command.args(["--reuid=1000", "--regid=1000", "--clear-groups"]);
                }
                command.args(["unshare", "-U", "--map-current-user", "--keep-caps"]);
                command
            }
        };
        let role = if strict { "edit" } else { "edit-leniently" };
        command.args(["-m", "sh", "-c", &script, "sh"]);
        let output = as_child(command, role, root).output().unwrap();
        if !root.join("seen").exists() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        let seen: Vec<(RelativePath, String)> =
            serde_json::from_slice(&fs::read(root.join("seen")).unwrap()).unwrap();
        Ok((Self { place, paths }, seen.into_iter().collect()))
    }

    /// As [`Stand::overlay`], with a private copy in place of an overlay.
    pub fn copy(before: &[Edit], edits: &[Edit]) -> (Self, Snapshot) {
        Self::copy_slowly(before, edits, || {})
    }

    /// As [`Stand::copy`], with a pause before each entry is copied.
    pub fn copy_slowly(before: &[Edit], edits: &[Edit], pause: impl Fn()) -> (Self, Snapshot) {
        let place = Self::bare();
        let root = place.path();
        perform(&root.join("host"), before);
        let since = SystemTime::now();
        let copy = root.join("copy");
        let facts = checkpoint(&root.join("host"), &copy, IdShift::None, &mut |_| pause()).unwrap();
        let finished = facts.finished;
        // For children, who read it from there.
        let mark = fs::File::create(root.join("finished")).unwrap();
        mark.set_modified(finished).unwrap();
        perform(&copy, edits);
        let seen = snapshot(&copy, false);
        let paths = LayerPaths {
            put_back: None,
            before: root.join("host"),
            after: AfterTree::Copy {
                path: copy,
                finished,
            },
            since,
            ids: IdShift::None,
        };
        (Self { place, paths }, seen)
    }

    /// Takes a checkpoint, then edits the directory itself.
    pub fn live(before: &[Edit], edits: &[Edit]) -> Self {
        let place = Self::bare();
        let root = place.path();
        let host = root.join("host");
        perform(&host, before);
        let since = SystemTime::now();
        let copy = root.join("copy");
        let finished = checkpoint(&host, &copy, IdShift::None, &mut |_| {})
            .unwrap()
            .finished;
        perform(&host, edits);
        let paths = LayerPaths {
            put_back: None,
            before: copy,
            after: AfterTree::Live {
                path: host,
                finished,
            },
            since,
            ids: IdShift::None,
        };
        Self { place, paths }
    }

    pub fn changes(&self) -> ChangeSet {
        changes_at_rest(&self.paths, &Bounds::default()).unwrap()
    }

    pub fn plan(&self, selection: &Selection) -> Plan {
        plan_apply(&self.paths, &self.changes(), selection).unwrap()
    }

    pub fn apply_all(&self) -> Applied {
        let plan = self.plan(&everything());
        assert_eq!(plan.conflicts, []);
        apply(plan, &self.journal(), &mut |_| {}).unwrap()
    }
}

pub fn everything() -> Selection {
    Selection {
        control: true,
        caches: true,
        ignored: true,
        ..Selection::default()
    }
}

fn own(root: &Path, id: u32) {
    let status = Command::new("chown")
        .args(["-hR", &format!("{id}:{id}")])
        .arg(root)
        .status();
    assert!(status.unwrap().success());
}

/// Completes a command that runs this test program again, in a role.
pub fn as_child(mut command: Command, role: &str, root: &Path) -> Command {
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "tests::support::child", "--nocapture"]);
    command
        .env("ATOLL_LAYER_ROLE", role)
        .env("ATOLL_LAYER_ROOT", root);
    command
}

/// Not a test: the roles of child processes of tests.
#[test]
fn child() {
    let (Ok(role), Ok(root)) = (
        std::env::var("ATOLL_LAYER_ROLE"),
        std::env::var("ATOLL_LAYER_ROOT"),
    ) else {
        return;
    };
    let root = PathBuf::from(root);
    match role.as_str() {
        "edit" | "edit-leniently" => {
            let edits: Vec<Edit> =
                serde_json::from_slice(&fs::read(root.join("edits")).unwrap()).unwrap();
            let merged = root.join("merged");
            for edit in &edits {
                let done = edit.perform(&merged);
                assert!(
                    done.is_ok() || role == "edit-leniently",
                    "{edit:?}: {done:?}"
                );
            }
            let seen: Vec<_> = snapshot(&merged, false).into_iter().collect();
            fs::write(root.join("seen"), serde_json::to_vec(&seen).unwrap()).unwrap();
        }
        "no-space" => super::hostile::no_space(&root),
        "undo-measured" => super::memory::undo_measured(&root),
        other => super::interrupted::child(other, &root),
    }
}

/// Returns the groups of hard links among these names.
pub fn link_groups(root: &Path, names: &[&str]) -> Vec<u64> {
    let mut known: Vec<u64> = Vec::new();
    names
        .iter()
        .map(|name| {
            let inode = fs::symlink_metadata(root.join(name)).unwrap().ino();
            let index = known.iter().position(|other| *other == inode);
            index.unwrap_or_else(|| {
                known.push(inode);
                known.len() - 1
            }) as u64
        })
        .collect()
}

/// Runs tests of this program as an ordinary user, from a place that others can reach.
///
/// # Panics
/// When not exactly `count` of them passed.
pub fn pass_as_ordinary_user(arguments: &[&str], count: usize) {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("tests");
    let own = std::env::current_exe().unwrap();
    if fs::hard_link(&own, &program).is_err() {
        // By a process of its own: whatever another thread starts meanwhile inherits a file
        // that this one writes, and then nobody can execute it (`ETXTBSY`, execve(2)).
        let copied = Command::new("cp").args([&own, &program]).status().unwrap();
        assert!(copied.success(), "{}", own.display());
    }
    let output = Command::new("setpriv")
        .args(["--reuid=1000", "--regid=1000", "--clear-groups"])
        .arg(&program)
        .args(arguments)
        .arg("--nocapture")
        .current_dir("/tmp")
        // Root's are not this user's.
        .env_remove("ATOLL_SKIP_FILE")
        .env_remove("TMPDIR")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains(&format!("{count} passed")),
        "{text}\n{errors}"
    );
    for line in text.lines() {
        if let Some((row, why)) = line
            .split_once("skipped row ")
            .and_then(|(_, rest)| rest.split_once(": "))
        {
            super::skipped_row(&format!("{row} (ordinary user)"), why);
        }
    }
}
