use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use atoll_frame::{Identity, Operation, Room, SandboxSpec, Source, Stage, Watch};
use atoll_sys::mount;
use atoll_sys::process::{self, Change, Namespaces, Side};

use crate::{Failure, tree};

fn spec(operations: Vec<Operation>) -> SandboxSpec {
    SandboxSpec {
        identity: Identity::Own { uid: 0, gid: 0 },
        capabilities: 0,
        fenced: false,
        nesting: atoll_frame::Nesting::Refused,
        host_name: b"test".to_vec(),
        cgroup_tasks: Vec::new(),
        cgroup_unified: None,
        cgroup_directories: Vec::new(),
        memory: Room {
            bytes: 1 << 20,
            inodes: 1_024,
        },
        operations,
        permissions: Vec::new(),
        landlock_version: 1,
        resource_limits: Vec::new(),
        watch: Watch::default(),
        deny_debugging: false,
        deny_sockets: false,
        deny_set_id: false,
        deny_memory_programs: false,
        funnel: None,
        inward: 0,
        terminal: None,
        one_exec: true,
    }
}

pub(super) fn source(path: &Path) -> Source {
    let facts = path.symlink_metadata().unwrap();
    Source {
        path: path.as_os_str().as_bytes().to_vec(),
        device: facts.dev(),
        inode: facts.ino(),
    }
}

pub(super) fn directory(path: &str) -> Operation {
    Operation::Directory {
        path: path.into(),
        mode: 0o755,
        owned: true,
    }
}

pub(super) fn writable(path: &str, from: &Path) -> Operation {
    Operation::Writable {
        path: path.into(),
        source: source(from),
        as_caller: true,
    }
}

/// Builds a tree in namespaces of its own and inspects it from within.
pub(super) fn built(operations: Vec<Operation>, look: impl FnOnce(Result<(), Failure>)) {
    within(|| {
        mount::make_all_private().unwrap();
        let made = tree::build(&spec(operations), None);
        let entered = made.map(|root| mount::become_root(&root).unwrap());
        look(entered);
    });
}

fn may_build() -> bool {
    let may = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !may {
        super::skipped("a tree is built by whoever has rights over the namespaces");
    }
    may
}

/// Runs in namespaces of its own.
pub(super) fn within(body: impl FnOnce()) {
    if !may_build() {
        return;
    }
    let mut body = Some(body);
    // Two processes, so that the one that makes namespaces is single-threaded.
    let pid = process::fork(|| match process::divide(Namespaces::ALL_BUT_USER, None) {
        Err(_) => 3,
        Ok(Side::Parent(child)) => {
            let change = process::wait(Some(child.pid), true)
                .unwrap()
                .unwrap()
                .change;
            u8::from(change != Change::Exited(0))
        }
        Ok(Side::Child) => {
            let ended = catch_unwind(AssertUnwindSafe(|| body.take().unwrap()()));
            process::exit_now(u8::from(ended.is_err()))
        }
    })
    .unwrap();
    match process::wait(Some(pid), true).unwrap().unwrap().change {
        Change::Exited(3) => super::skipped("no namespaces can be made"),
        change => assert_eq!(
            change,
            Change::Exited(0),
            "see above for what failed within"
        ),
    }
}

#[test]
fn a_tree_is_what_was_planned_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("file"), "host").unwrap();
    let operations = vec![
        directory("tmp"),
        Operation::Memory {
            path: b"tmp".to_vec(),
            mode: 0o1777,
        },
        Operation::Link {
            path: b"link".to_vec(),
            to: b"/tmp".to_vec(),
        },
        Operation::File {
            path: b"given".to_vec(),
            mode: 0o640,
            content: b"content".to_vec(),
        },
        directory("w"),
        directory("w2"),
        writable("w", place.path()),
        writable("w2", place.path()),
        Operation::Seal {
            path: b"w2".to_vec(),
        },
        directory("hidden"),
        Operation::HideDirectory {
            path: b"hidden".to_vec(),
        },
    ];
    let mut operations = operations;
    let null = || source(Path::new("/dev/null"));
    for (path, from) in [("shown", Some(place.path().join("file"))), ("null", None)] {
        operations.push(Operation::File {
            path: path.into(),
            mode: 0o600,
            content: Vec::new(),
        });
        let path = path.into();
        operations.push(match from {
            Some(from) => Operation::ReadOnlyFile {
                path,
                source: source(&from),
                as_caller: true,
            },
            None => Operation::Device {
                path,
                source: null(),
            },
        });
    }
    operations.push(Operation::HideFile {
        path: b"given".to_vec(),
        null: null(),
    });
    built(operations, |made| {
        made.unwrap();
        let mut names: Vec<_> = fs::read_dir("/")
            .unwrap()
            .map(|one| one.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(
            names,
            ["given", "hidden", "link", "null", "shown", "tmp", "w", "w2"]
        );
        assert_eq!(fs::read("/given").unwrap(), b"", "it was hidden");
        assert_eq!(fs::read("/shown").unwrap(), b"host");
        fs::write("/null", "swallowed").unwrap();
        assert_eq!(
            fs::metadata("/tmp").unwrap().permissions().mode() & 0o7777,
            0o1777
        );
        assert_eq!(fs::read_link("/link").unwrap(), Path::new("/tmp"));
        let read_only = |path: &str| {
            let error = fs::write(path, "x").unwrap_err();
            assert_eq!(
                error.kind(),
                std::io::ErrorKind::ReadOnlyFilesystem,
                "{path}"
            );
        };
        read_only("/new");
        read_only("/shown");
        read_only("/hidden/new");
        read_only("/w2/file");
        fs::write("/tmp/new", "x").unwrap();
        fs::write("/w/file", "written").unwrap();
        assert_eq!(fs::read("/w2/file").unwrap(), b"written");
    });
}

#[test]
fn links_in_what_is_mounted_lead_nowhere() {
    let place = tempfile::tempdir().unwrap();
    let (inside, outside) = (place.path().join("inside"), place.path().join("outside"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::create_dir(outside.join("there")).unwrap();
    symlink(&outside, inside.join("link")).unwrap();
    let link = |path: &str| Operation::Link {
        path: path.into(),
        to: b"x".to_vec(),
    };
    let file = |path: &str| Operation::File {
        path: path.into(),
        mode: 0o600,
        content: Vec::new(),
    };
    let hide = |path: &str| Operation::HideDirectory { path: path.into() };
    let attempts = [
        directory("w/link/new"),
        directory("w/link/../new"),
        directory("../new"),
        directory("w/.."),
        link("w/link/new"),
        link("../new"),
        file("w/link/new"),
        hide("w/link"),
        hide("w/link/there"),
        hide(".."),
        Operation::Seal {
            path: b"w/link/there".to_vec(),
        },
        writable("w/link/there", &inside),
    ];
    for attempt in attempts {
        let shown = format!("{attempt:?}");
        built(
            vec![directory("w"), writable("w", &inside), attempt],
            |made| {
                let failure = made.unwrap_err();
                assert_eq!(failure.stage, Stage::Tree, "{shown}");
            },
        );
        let names: Vec<_> = fs::read_dir(&outside)
            .unwrap()
            .map(|one| one.unwrap().file_name())
            .collect();
        assert_eq!(names, ["there"], "{shown}");
    }
}

#[test]
fn what_was_exchanged_since_it_was_judged_is_refused() {
    const ESTALE: i32 = 116;
    const ELOOP: i32 = 40;
    let place = tempfile::tempdir().unwrap();
    let (judged, other) = (place.path().join("judged"), place.path().join("other"));
    fs::create_dir(&judged).unwrap();
    fs::create_dir(&other).unwrap();
    let operations = vec![directory("w"), writable("w", &judged)];
    let fails_with = |error: i32| {
        let operations = operations.clone();
        move |made: Result<(), Failure>| {
            let failure = made.unwrap_err();
            assert_eq!(
                (failure.stage, failure.error.raw_os_error()),
                (Stage::Tree, Some(error))
            );
            drop(operations);
        }
    };
    built(operations.clone(), |made| made.unwrap());
    fs::rename(&judged, place.path().join("away")).unwrap();
    fs::rename(&other, &judged).unwrap();
    built(operations.clone(), fails_with(ESTALE));
    fs::rename(&judged, &other).unwrap();
    symlink("away", &judged).unwrap();
    built(operations.clone(), fails_with(ELOOP));
}

#[test]
fn of_a_whole_layer_only_its_parts_are_seen() {
    if !may_build() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (lower, upper, work) = (
        place.path().join("lower"),
        place.path().join("upper"),
        place.path().join("work"),
    );
    for path in [&lower, &upper, &work] {
        fs::create_dir(path).unwrap();
    }
    fs::create_dir(lower.join("part")).unwrap();
    fs::create_dir(lower.join("secret")).unwrap();
    fs::write(lower.join("part/file"), "lower").unwrap();
    symlink("/", lower.join("link")).unwrap();
    let whole = |volatile: bool| Operation::Layer {
        path: atoll_frame::WHOLE.to_bytes().to_vec(),
        lower: vec![source(&lower)],
        own: 0,
        upper: source(&upper),
        work: source(&work),
        linked: false,
        volatile,
    };
    let part = |path: &str| Operation::Part { path: path.into() };
    built(vec![whole(true), directory("part"), part("part")], |made| {
        made.unwrap();
        let names: Vec<_> = fs::read_dir("/")
            .unwrap()
            .map(|one| one.unwrap().file_name())
            .collect();
        assert_eq!(names, ["part"]);
        fs::write("/part/file", "upper").unwrap();
        assert_eq!(fs::read("/part/../part/file").unwrap(), b"upper");
    });
    assert_eq!(fs::read(lower.join("part/file")).unwrap(), b"lower");
    assert_eq!(fs::read(upper.join("part/file")).unwrap(), b"upper");
    fs::remove_dir_all(&work).unwrap();
    fs::create_dir(&work).unwrap();
    for wrong in ["link", "link/etc", "../part", "part/..", "none"] {
        built(vec![whole(false), directory("part"), part(wrong)], |made| {
            assert_eq!(made.unwrap_err().stage, Stage::Tree, "{wrong}");
        });
    }
    // Without a layer there are no parts of it.
    built(vec![directory("part"), part("part")], |made| {
        assert_eq!(made.unwrap_err().stage, Stage::Tree);
    });
}
