use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::manifest::{Kind, Manifest, Name};
use crate::*;

thread_local! {
    static POINTS: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Ends the restore, as if the process had died, at the point that a test has chosen.
pub(super) fn crash_point() {
    POINTS.set(match POINTS.get() {
        Some(0) => resume_unwind(Box::new("crash")),
        Some(left) => Some(left - 1),
        None => None,
    });
}

struct World {
    root: TempDir,
    taken: Option<Taken>,
}

impl World {
    fn new() -> Self {
        Self::on(tempfile::tempdir().unwrap())
    }

    /// Makes one where waiting for the disk takes no time, for tests with many rounds.
    fn in_memory() -> Self {
        let memory = tempfile::tempdir_in("/dev/shm");
        Self::on(memory.unwrap_or_else(|_| tempfile::tempdir().unwrap()))
    }

    fn on(root: TempDir) -> Self {
        fs::create_dir(root.path().join("tree")).unwrap();
        Self { root, taken: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("tree").join(name)
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    fn take(&mut self) -> &Taken {
        let target = Target::Files {
            path: self.dir("tree"),
        };
        let taken = take(&target, "t1", &self.dir("cp"), &Limits::default()).unwrap();
        self.taken.insert(taken)
    }

    fn settle(&mut self) {
        let dir = self.dir("cp");
        settle(self.taken.as_mut().unwrap(), &dir).unwrap();
    }

    fn changes(&self) -> Vec<String> {
        let changes = changes(self.taken.as_ref().unwrap(), &self.dir("cp")).unwrap();
        let line = |one: &Change| {
            let name = one.name.strip_prefix("tree/").unwrap_or(&one.name);
            format!("{name} {:?} {:?}", one.difference, one.origin)
        };
        changes.iter().map(line).collect()
    }

    fn restore(&self, overwrite: Overwrite) -> Restored {
        let taken = self.taken.as_ref().unwrap();
        let limits = Limits::default();
        restore(
            taken,
            &self.dir("cp"),
            &self.dir("kept"),
            overwrite,
            &limits,
        )
        .unwrap()
    }

    fn undo(&self, restored: &Restored) -> Restored {
        let kept = restored.kept.as_ref().unwrap();
        assert_eq!(load(&self.dir("kept")).unwrap(), *kept);
        let (from, to) = (self.dir("kept"), self.dir("undone"));
        restore(kept, &from, &to, Overwrite::No, &Limits::default()).unwrap()
    }

    /// Returns the whole tree: names, modes, links, contents.
    fn tree(&self) -> Vec<String> {
        let mut lines = Vec::new();
        listed(&self.dir("tree"), &mut lines);
        lines.sort();
        lines
    }
}

fn listed(path: &Path, lines: &mut Vec<String>) {
    let facts = path.symlink_metadata().unwrap();
    let content = match facts.file_type() {
        kind if kind.is_dir() => "directory".to_owned(),
        kind if kind.is_symlink() => format!("{:?}", fs::read_link(path).unwrap()),
        _ => format!("{:?}", fs::read(path).unwrap()),
    };
    lines.push(format!("{path:?} {:o} {content}", facts.mode()));
    for entry in fs::read_dir(path)
        .ok()
        .filter(|_| facts.is_dir())
        .into_iter()
        .flatten()
    {
        listed(&entry.unwrap().path(), lines);
    }
}

fn left(restored: &Restored) -> Vec<&str> {
    let name = |one: &'_ Left| one.name.clone();
    let mut names: Vec<String> = restored.left.iter().map(name).collect();
    names.sort();
    names
        .into_iter()
        .map(|name| name.leak().trim_start_matches("tree/"))
        .collect()
}

/// A tree with every kind of entry, checkpointed, and every kind of effect on it.
fn effect(mut world: World) -> World {
    for name in [
        "changed",
        "removed",
        "mode",
        "to-link",
        "to-directory/inner",
        "same",
        "a/b/c/d",
    ] {
        world.write(name, name);
    }
    world.write(".gitignore", "node_modules\n");
    world.write("node_modules/x/index.js", "x");
    world.write("from-directory/1", "1");
    symlink("same", world.path("link")).unwrap();
    symlink("/nonexistent", world.path("dangling")).unwrap();
    fs::set_permissions(world.path("mode"), PermissionsExt::from_mode(0o640)).unwrap();
    fs::create_dir(world.path("empty")).unwrap();
    let odd = OsStr::from_bytes(b"odd-\xff%\n");
    fs::write(world.dir("tree").join(odd), "odd").unwrap();
    world.take();
    world.write("changed", "by the effect");
    world.write("created/new", "new");
    world.write("node_modules/x/index.js", "y");
    world.remove("removed");
    fs::set_permissions(world.path("mode"), PermissionsExt::from_mode(0o777)).unwrap();
    world.remove("to-link");
    symlink("same", world.path("to-link")).unwrap();
    fs::remove_dir_all(world.path("from-directory")).unwrap();
    world.write("from-directory", "a file");
    fs::remove_dir_all(world.path("to-directory")).unwrap();
    fs::remove_dir_all(world.path("a")).unwrap();
    fs::remove_dir(world.path("empty")).unwrap();
    world.remove("link");
    symlink("changed", world.path("link")).unwrap();
    fs::write(world.dir("tree").join(odd), "even").unwrap();
    world
}

#[test]
fn restore_takes_back_every_kind_of_effect_and_is_undone() {
    let mut world = effect(World::new());
    world.settle();
    let after = world.tree();
    let restored = world.restore(Overwrite::No);
    assert_eq!(restored.left, []);
    assert_eq!(world.changes(), [""; 0]);
    assert_eq!(world.text("changed").unwrap(), "changed");
    assert_eq!(world.text("node_modules/x/index.js").unwrap(), "x");
    assert_eq!(world.text("a/b/c/d").unwrap(), "a/b/c/d");
    assert_eq!(world.text("from-directory/1").unwrap(), "1");
    assert_eq!(
        fs::metadata(world.path("mode")).unwrap().mode() & 0o7777,
        0o640
    );
    assert_eq!(
        fs::read_link(world.path("link")).unwrap(),
        Path::new("same")
    );
    assert!(world.path("empty").is_dir() && !world.path("created").exists());
    assert!(!world.path("to-link").is_symlink());
    let undone = world.undo(&restored);
    assert_eq!(undone.left, []);
    assert_eq!(world.tree(), after);
}

#[test]
fn changes_name_the_origin_of_each_difference() {
    let mut world = World::new();
    for name in ["effect", "since", "both", "undone", "removed"] {
        world.write(name, name);
    }
    world.take();
    for name in ["effect", "both", "undone"] {
        world.write(name, "1");
    }
    world.remove("removed");
    world.write("created", "1");
    assert!(world.changes().iter().all(|line| line.ends_with("Unknown")));
    world.settle();
    world.write("since", "2");
    world.write("both", "2");
    world.write("undone", "undone");
    world.write("new", "2");
    let expected = [
        "both Modified Both",
        "created Created Effect",
        "effect Modified Effect",
        "new Created Since",
        "removed Removed Effect",
        "since Modified Since",
    ];
    assert_eq!(world.changes(), expected);
}

#[test]
fn restore_leaves_alone_what_others_touched_since() {
    let mut world = World::new();
    world.write("effect", "0");
    world.write("both", "0");
    world.write("since", "0");
    world.take();
    world.write("effect", "1");
    world.write("both", "1");
    world.write("made/by-effect", "1");
    world.settle();
    world.write("both", "2");
    world.write("since", "2");
    world.write("made/by-a-person", "2");
    let restored = world.restore(Overwrite::No);
    assert_eq!(world.text("effect").unwrap(), "0");
    assert_eq!(world.text("both").unwrap(), "2");
    assert_eq!(world.text("since").unwrap(), "2");
    assert_eq!(world.text("made/by-a-person").unwrap(), "2");
    assert_eq!(world.text("made/by-effect"), None);
    assert_eq!(
        left(&restored),
        ["both", "made", "made/by-a-person", "since"]
    );
    fs::remove_dir_all(world.dir("kept")).unwrap();
    let restored = world.restore(Overwrite::Yes);
    assert_eq!(world.text("both").unwrap(), "0");
    assert_eq!(world.text("since").unwrap(), "2");
    assert_eq!(world.text("made/by-a-person").unwrap(), "2");
    assert_eq!(world.undo(&restored).restored, ["tree/both"]);
    assert_eq!(world.text("both").unwrap(), "2");
}

#[test]
fn unsettled_checkpoint_restores_only_when_told_to() {
    let mut world = World::new();
    world.write("one", "0");
    world.take();
    world.write("one", "1");
    assert_eq!(left(&world.restore(Overwrite::No)), ["one"]);
    assert_eq!(world.text("one").unwrap(), "1");
    assert!(!world.dir("kept").exists());
    assert_eq!(world.restore(Overwrite::Yes).restored, ["tree/one"]);
    assert_eq!(world.text("one").unwrap(), "0");
}

#[test]
fn restore_never_goes_through_a_new_link() {
    let mut world = World::new();
    world.write("sub/one", "0");
    world.take();
    world.write("sub/one", "1");
    world.settle();
    fs::create_dir(world.dir("outside")).unwrap();
    fs::write(world.dir("outside/one"), "1").unwrap();
    fs::rename(world.path("sub"), world.dir("moved")).unwrap();
    symlink(world.dir("outside"), world.path("sub")).unwrap();
    let restored = world.restore(Overwrite::Yes);
    assert_eq!(left(&restored), ["sub", "sub/one"]);
    assert_eq!(fs::read_to_string(world.dir("outside/one")).unwrap(), "1");
    // The directories above it, too.
    fs::rename(world.dir("tree"), world.dir("elsewhere")).unwrap();
    symlink(world.dir("elsewhere"), world.dir("tree")).unwrap();
    let taken = world.taken.as_ref().unwrap();
    let listed = changes(taken, &world.dir("cp")).unwrap();
    assert_eq!(listed[0].difference, Difference::Modified);
    assert!(
        listed[1..]
            .iter()
            .all(|one| one.difference == Difference::Removed)
    );
}

#[test]
fn parent_that_became_a_link_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    fs::create_dir_all(path("real/tree")).unwrap();
    let target = Target::Files {
        path: path("real/tree"),
    };
    let taken = take(&target, "t1", &path("cp"), &Limits::default()).unwrap();
    fs::rename(path("real"), path("other")).unwrap();
    symlink(path("other"), path("real")).unwrap();
    let refused = changes(&taken, &path("cp")).unwrap_err();
    assert!(
        refused.to_string().contains("without following links"),
        "{refused}"
    );
    let target = Target::Files { path: path("real") };
    let refused = take(&target, "t2", &path("cp2"), &Limits::default()).unwrap_err();
    assert!(matches!(refused, Error::Link(_)), "{refused}");
}

#[test]
fn sparse_file_stays_sparse() {
    let mut world = World::new();
    let file = File::create(world.path("sparse")).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(b"end", (64 << 20) - 3).unwrap();
    drop(file);
    world.take();
    let before = fs::read(world.path("sparse")).unwrap();
    world.write("sparse", "short");
    world.settle();
    world.restore(Overwrite::No);
    assert!(fs::read(world.path("sparse")).unwrap() == before);
    let facts = fs::metadata(world.path("sparse")).unwrap();
    assert!(facts.blocks() * 512 < 1 << 20, "{} blocks", facts.blocks());
}

#[test]
fn way_of_copying_is_reported() {
    let mut world = World::new();
    let large = "large".repeat(1 << 18);
    world.write("large", &large);
    let from = File::open(world.path("large")).unwrap();
    let probe = File::create(world.dir("probe")).unwrap();
    let expected = match rustix::fs::ioctl_ficlone(&probe, &from) {
        Ok(()) => How::Reflink,
        Err(_) => How::Copy,
    };
    assert_eq!(world.take().how, expected);
    world.write("large", "1");
    world.settle();
    world.restore(Overwrite::No);
    assert!(world.text("large").unwrap() == large);
}

#[test]
fn restored_file_has_its_time_and_attributes() {
    let mut world = World::new();
    world.write("one", "0");
    let path = world.path("one");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&path, "user.note", b"\0value\xff", flags).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1_234_567_890_123_456_789);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(time)
        .unwrap();
    world.take();
    fs::remove_file(&path).unwrap();
    world.settle();
    world.restore(Overwrite::No);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), time);
    let mut value = [0; 16];
    let length = rustix::fs::getxattr(&path, "user.note", value.as_mut_slice()).unwrap();
    assert_eq!(&value[..length], b"\0value\xff");
}

#[test]
fn single_file_and_absent_target_are_restored() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    let limits = Limits::default();
    fs::write(path("file"), "0").unwrap();
    for name in ["file", "absent"] {
        let target: Target = format!("files:{}", path(name).display()).parse().unwrap();
        let dir = path(&format!("cp-{name}"));
        let mut taken = take(&target, "t1", &dir, &limits).unwrap();
        fs::write(path(name), "1").unwrap();
        settle(&mut taken, &dir).unwrap();
        let kept = path(&format!("kept-{name}"));
        let restored = restore(&taken, &dir, &kept, Overwrite::No, &limits).unwrap();
        assert_eq!(restored.restored, [name]);
        discard(&taken, &dir).unwrap();
        assert!(!dir.exists());
    }
    assert_eq!(fs::read_to_string(path("file")).unwrap(), "0");
    assert!(!path("absent").exists());
}

#[test]
fn too_large_target_is_refused_before_anything_is_copied() {
    let world = World::new();
    world.write("one", "0123456789");
    let limits = Limits {
        bytes_max: Some(9),
        ..Limits::default()
    };
    let target = Target::Files {
        path: world.dir("tree"),
    };
    let refused = take(&target, "t1", &world.dir("cp"), &limits).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("has 10 bytes, more than the 9"),
        "{refused}"
    );
    assert!(!world.dir("cp").exists());
}

#[test]
fn unreadable_file_fails_the_checkpoint() {
    let world = World::new();
    world.write("sub/secret", "0");
    fs::set_permissions(world.path("sub/secret"), PermissionsExt::from_mode(0o0)).unwrap();
    fs::set_permissions(world.root.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let target = Target::Files {
        path: world.dir("tree"),
    };
    let taken = match rustix::process::geteuid().is_root() {
        // The capability is dropped in this thread alone.
        true => std::thread::scope(|scope| {
            let work = || {
                let none = rustix::thread::CapabilitySet::empty();
                let sets = rustix::thread::CapabilitySets {
                    effective: none,
                    permitted: none,
                    inheritable: none,
                };
                rustix::thread::set_capabilities(None, sets).unwrap();
                // Without them the owner's own mode counts.
                take(&target, "t1", &world.dir("cp"), &Limits::default())
            };
            scope.spawn(work).join().unwrap()
        }),
        false => take(&target, "t1", &world.dir("cp"), &Limits::default()),
    };
    let refused = taken.unwrap_err().to_string();
    assert!(
        refused.contains("cannot read") && refused.contains("sub/secret"),
        "{refused}"
    );
}

#[test]
fn special_file_is_noted_and_not_made_again() {
    let mut world = World::new();
    let socket = world.path("socket");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    world.take();
    drop(listener);
    world.remove("socket");
    world.settle();
    assert_eq!(world.changes(), ["socket Removed Effect"]);
    let restored = world.restore(Overwrite::No);
    assert_eq!(left(&restored), ["socket"]);
    assert!(
        restored.left[0].why.contains("not made again"),
        "{restored:?}"
    );
}

#[test]
fn file_with_the_same_facts_is_not_read_again() {
    let mut world = World::new();
    world.write("one", "0");
    world.take();
    let path = world.dir("cp").join(super::BEFORE);
    let mut manifest = Manifest::read(&path).unwrap().unwrap();
    let name = Name(b"tree/one".to_vec());
    let marked = "00".repeat(32);
    let entry = manifest.entries.get_mut(&name).unwrap();
    assert_eq!(entry.kind, Kind::File);
    entry.digest = Some(marked.clone());
    let mut rewrite = |at: i64| {
        manifest.header.at = at;
        manifest.write(&path).unwrap();
        let base = super::Base::open(&world.dir("tree")).unwrap();
        let now = super::now(&base, &manifest, None).unwrap();
        now.entries[&name].digest.clone().unwrap() == marked
    };
    let ctime = fs::metadata(world.path("one")).unwrap();
    let ctime = ctime.ctime() * 1_000_000_000 + ctime.ctime_nsec();
    assert!(rewrite(ctime + 1_000_000_000), "it was read again");
    assert!(
        !rewrite(ctime + 1_000_000),
        "a change within the clock's tick would be missed"
    );
    // The same size and time: the inode tells.
    let time = fs::metadata(world.path("one")).unwrap().modified().unwrap();
    world.write("one", "1");
    let file = File::options().write(true).open(world.path("one")).unwrap();
    file.set_modified(time).unwrap();
    assert!(
        !rewrite(ctime + 1_000_000_000),
        "a change with a forged time was missed"
    );
}

#[test]
fn damaged_content_is_not_restored() {
    let mut world = World::new();
    world.write("one", "0");
    world.take();
    fs::write(world.dir("cp/contents/pack"), "x").unwrap();
    world.write("one", "1");
    world.settle();
    let restored = world.restore(Overwrite::No);
    assert_eq!(world.text("one").unwrap(), "1");
    assert_eq!(left(&restored), ["one"]);
    assert_eq!(fs::read_dir(world.dir("tree")).unwrap().count(), 1);
}

#[test]
fn restore_into_a_used_directory_is_refused() {
    let mut world = World::new();
    world.take();
    fs::create_dir(world.dir("kept")).unwrap();
    fs::write(world.dir("kept/mine"), "").unwrap();
    let taken = world.taken.as_ref().unwrap();
    let (dir, kept) = (world.dir("cp"), world.dir("kept"));
    let refused = restore(taken, &dir, &kept, Overwrite::No, &Limits::default()).unwrap_err();
    assert!(matches!(refused, Error::NotEmpty(_)), "{refused}");
    assert!(world.dir("kept/mine").exists());
}

#[test]
fn restore_cut_short_anywhere_rolls_forward() {
    let mut points = 0;
    loop {
        let mut world = effect(World::in_memory());
        world.settle();
        let after = world.tree();
        POINTS.set(Some(points));
        let ended = catch_unwind(AssertUnwindSafe(|| world.restore(Overwrite::No)));
        POINTS.set(None);
        if ended.is_ok() {
            break;
        }
        let taken = world.taken.as_ref().unwrap();
        let (dir, kept) = (world.dir("cp"), world.dir("kept"));
        let resumed = resume(taken, &dir, &kept, &Limits::default()).unwrap();
        // Before the journal is there, nothing has changed.
        let restored = resumed.unwrap_or_else(|| {
            assert_eq!(world.tree(), after, "at {points}");
            world.restore(Overwrite::No)
        });
        assert_eq!(restored.left, [], "at {points}");
        assert_eq!(world.changes(), [""; 0], "at {points}");
        assert!(
            !world.tree().iter().any(|line| line.contains(".atoll-")),
            "at {points}"
        );
        world.undo(&restored);
        assert_eq!(world.tree(), after, "at {points}");
        points += 1;
    }
    assert!(points > 40, "only {points} points");
}

#[test]
fn file_written_while_a_restore_was_cut_short_is_kept() {
    let mut points = 0;
    let mut seen = 0;
    loop {
        let mut world = World::in_memory();
        world.write("one", "0");
        world.write("two", "0");
        world.take();
        world.write("one", "1");
        world.remove("two");
        world.write("three", "1");
        world.settle();
        POINTS.set(Some(points));
        let ended = catch_unwind(AssertUnwindSafe(|| world.restore(Overwrite::No)));
        POINTS.set(None);
        if ended.is_ok() {
            break;
        }
        for name in ["one", "two", "three"] {
            world.write(name, "by a person");
        }
        let taken = world.taken.as_ref().unwrap();
        let (dir, kept) = (world.dir("cp"), world.dir("kept"));
        if let Some(resumed) = resume(taken, &dir, &kept, &Limits::default()).unwrap() {
            assert!(!left(&resumed).is_empty());
            seen += 1;
        }
        for name in ["one", "two", "three"] {
            assert_eq!(
                world.text(name).unwrap(),
                "by a person",
                "{name} at {points}"
            );
        }
        assert_eq!(
            fs::read_dir(world.dir("tree")).unwrap().count(),
            3,
            "at {points}"
        );
        points += 1;
    }
    assert!(seen > 5, "only {seen}");
}

#[test]
fn content_that_came_in_between_goes_back() {
    // A step stopped after the exchange: what it has displaced is not what was kept.
    let mut points = 0;
    let mut put_back = 0;
    loop {
        let mut world = World::in_memory();
        world.write("one", "0");
        world.take();
        world.write("one", "1");
        world.settle();
        POINTS.set(Some(points));
        let ended = catch_unwind(AssertUnwindSafe(|| world.restore(Overwrite::No)));
        POINTS.set(None);
        if ended.is_ok() {
            break;
        }
        points += 1;
        let names = fs::read_dir(world.dir("tree"))
            .unwrap()
            .map(|one| one.unwrap().path());
        let Some(swap) = names.into_iter().find(|name| name.extension().is_some()) else {
            continue;
        };
        if fs::read_to_string(&swap).unwrap() != "1" {
            continue;
        }
        fs::write(&swap, "written at the last moment").unwrap();
        let taken = world.taken.as_ref().unwrap();
        let (dir, kept) = (world.dir("cp"), world.dir("kept"));
        let resumed = resume(taken, &dir, &kept, &Limits::default())
            .unwrap()
            .unwrap();
        assert_eq!(left(&resumed), ["one"]);
        assert_eq!(world.text("one").unwrap(), "written at the last moment");
        assert_eq!(fs::read_dir(world.dir("tree")).unwrap().count(), 1);
        put_back += 1;
    }
    assert!(put_back > 0);
}

const KILLED: &str = "ATOLL_CHECKPOINT_KILLED";
const FILES: usize = 600;

/// The process that the next test kills; without its variable there is nothing to do.
#[test]
fn process_that_is_killed() {
    let Some(root) = std::env::var_os(KILLED).map(PathBuf::from) else {
        return;
    };
    let (dir, kept) = (root.join("cp"), root.join("kept"));
    let taken = load(&dir).unwrap();
    restore(&taken, &dir, &kept, Overwrite::No, &Limits::default()).unwrap();
}

#[test]
fn killed_restore_is_resumed() {
    let mut world = World::new();
    for number in 0..FILES {
        world.write(&format!("d{}/{number}", number % 7), "before");
    }
    world.take();
    let before = world.tree();
    for number in 0..FILES {
        world.write(&format!("d{}/{number}", number % 7), "after");
        world.write(&format!("new/{number}"), "after");
    }
    world.settle();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "files::tests::process_that_is_killed"])
        .env(KILLED, world.root.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // The removals come first: it is amidst them, or in what follows.
    while world.path("new/300").exists() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert!(!status.success(), "it was done before it was killed");
    assert_ne!(world.tree(), before);
    let taken = world.taken.as_ref().unwrap();
    let (dir, kept) = (world.dir("cp"), world.dir("kept"));
    let resumed = resume(taken, &dir, &kept, &Limits::default())
        .unwrap()
        .unwrap();
    assert_eq!(resumed.left, []);
    assert_eq!(world.tree(), before);
}
