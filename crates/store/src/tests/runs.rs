use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::*;

fn full_record(number: u32) -> RunRecord {
    let odd = std::ffi::OsString::from_vec(b"/home/a/\xff".to_vec());
    let layer = |how, shared| LayerRecord {
        name: "workspace".to_owned(),
        host: odd.clone().into(),
        inside: "/srv/project".into(),
        kind: match shared {
            true => LayerKind::Repository,
            false => LayerKind::Workspace,
        },
        how,
        upper: "layers/workspace/upper".into(),
        since: (1_795_253_412, 999),
        shared,
        logins: Vec::new(),
        settings: Vec::new(),
        worktree: shared.then(|| odd.clone()),
    };
    RunRecord {
        command: vec!["echo".into(), odd.clone()],
        workspace: odd.clone().into(),
        purposes: vec!["review".to_owned()],
        base: Some(1_000_000),
        layers: vec![
            layer(
                LayerHow::Overlay {
                    xattrs: OverlayXattrs::User,
                },
                false,
            ),
            layer(LayerHow::Copy, true),
            layer(LayerHow::Live, false),
        ],
        state: RunState::PartlyApplied,
        exit: Some(137),
        ending: Some(Ending::Signalled { signal: 9 }),
        changes: Some(ChangeCounts {
            added: 1,
            changed: 2,
            removed: 3,
        }),
        resumed_from: Some(run_id(9)),
        ..record(number)
    }
}

#[test]
fn records_come_back_as_they_were() {
    let place = Place::new();
    for record in [record(1), full_record(2)] {
        create_run(&place.state, &record).unwrap();
        assert_eq!(load_run(&place.state, &record.run).unwrap(), record);
        assert!(matches!(
            create_run(&place.state, &record),
            Err(RunError::Exists(_))
        ));
    }
    for durability in [Durability::Buffered, Durability::Durable] {
        let changed = update_run(&place.state, &run_id(1), durability, |record| {
            record.state = RunState::Kept;
            record.started_at_ms += 1;
        });
        assert_eq!(
            load_run(&place.state, &run_id(1)).unwrap(),
            changed.unwrap()
        );
    }
    assert_eq!(load_run(&place.state, &run_id(1)).unwrap().started_at_ms, 3);
    assert!(matches!(
        load_run(&place.state, &run_id(5)),
        Err(RunError::Missing(_))
    ));
    let layers = full_record(2).layers;
    let upper = |index: usize| layers[index].upper_path(&place.state, &run_id(2));
    assert_eq!(
        upper(0),
        place
            .state
            .run_dir(&run_id(2))
            .join("layers/workspace/upper")
    );
    assert_eq!(
        upper(1),
        place.state.path().join("layers/layers/workspace/upper")
    );
}

#[test]
fn records_that_are_none_are_refused() {
    let place = Place::new();
    create_run(&place.state, &full_record(1)).unwrap();
    let path = place.state.run_dir(&run_id(1)).join("record.json");
    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to, expected) in [
        ("\"v\": 1", "\"v\": 2", "newer"),
        ("\"v\": 1", "\"v\": 1, \"extra\": 1", "unknown field"),
        ("layers/workspace/upper", "../../other", "without . and .."),
        ("layers/workspace/upper", "/etc", "without . and .."),
        ("partly-applied", "lost", "unknown variant"),
        (run_id(1).as_str(), run_id(2).as_str(), "record of run"),
        ("{", "", "cannot be read"),
    ] {
        assert!(text.contains(from), "{from}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = load_run(&place.state, &run_id(1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{to}: {error}");
        let list = list_runs(&place.state).unwrap();
        assert_eq!((list.records.len(), list.broken.len()), (0, 1));
    }
}

#[test]
fn room_for_the_end_is_held_and_given_back() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new();
    let record = full_record(1);
    assert!(matches!(
        reserve_end(&place.state, &record.run),
        Err(RunError::Missing(_))
    ));
    release_end(&place.state, &record.run);
    create_run(&place.state, &record).unwrap();
    reserve_end(&place.state, &record.run).unwrap();
    reserve_end(&place.state, &record.run).unwrap();
    let held = place.state.run_dir(&record.run).join("reserve");
    let bytes = std::fs::metadata(&held).unwrap().blocks() * 512;
    assert!(bytes >= 64 << 10, "{bytes}");
    release_end(&place.state, &record.run);
    assert!(!held.exists());
    // As it was left by a process that was killed.
    let ledger = place.ledger();
    let mut call = call(1);
    call.id.run = record.run.clone();
    let entry = ledger
        .open_call(&call, &allow(), serde_json::json!({}))
        .unwrap();
    reserve_end(&place.state, &record.run).unwrap();
    drop(entry);
    drop(ledger);
    // What another test has just started holds the run's lock until it is a program itself.
    let until = Instant::now() + Duration::from_secs(60);
    while place.ledger().interrupted().is_empty() {
        assert!(Instant::now() < until, "it is never found interrupted");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!held.exists());
}

#[test]
fn updates_at_once_are_all_kept() {
    let place = Place::new();
    create_run(&place.state, &record(0)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let update = || {
                    update_run(&place.state, &run_id(0), Durability::Buffered, |record| {
                        record.started_at_ms += 1;
                    })
                };
                for _ in 0..50 {
                    // On a slow disk one that waits is refused, and tries again.
                    let done = std::iter::repeat_with(update);
                    let mut done =
                        done.skip_while(|done| matches!(done, Err(RunError::Busy { .. })));
                    let _ = done.next().unwrap().unwrap();
                }
            });
        }
    });
    assert_eq!(
        load_run(&place.state, &run_id(0)).unwrap().started_at_ms,
        400
    );
}

#[test]
fn runs_are_found_by_what_people_type() {
    let place = Place::new();
    assert!(matches!(
        find_run(&place.state, "last"),
        Err(RunError::NoRuns)
    ));
    let names = [
        (1_795_253_412, 1),
        (1_795_253_412, 2),
        (1_795_339_812, 3),
        (1_795_339_812, 33),
    ];
    for (index, (seconds, random)) in names.into_iter().enumerate() {
        let mut record = record(0);
        record.run = RunId::new(seconds, random);
        // Of the two newest, the one that sorts first was started last.
        record.started_at_ms = 100 - index as u64;
        create_run(&place.state, &record).unwrap();
    }
    let list = list_runs(&place.state).unwrap();
    let listed: Vec<&str> = list
        .records
        .iter()
        .map(|record| record.run.as_str())
        .collect();
    let newest_first = [
        "261122-093012-0003",
        "261122-093012-0011",
        "261121-093012-0001",
        "261121-093012-0002",
    ];
    assert_eq!(listed, newest_first);
    for (text, expected) in [
        ("last", "261122-093012-0003"),
        ("261121-093012-0001", "261121-093012-0001"),
        ("0002", "261121-093012-0002"),
        (" 0011 ", "261122-093012-0011"),
        ("LAST", "261122-093012-0003"),
    ] {
        assert_eq!(
            find_run(&place.state, text).unwrap().as_str(),
            expected,
            "{text}"
        );
    }
    for (text, expected) in [
        ("2611", "could be any of 4 runs: 261122-093012-0011, 261122"),
        (
            "zzz",
            "no run is called \"zzz\"; the newest are 261122-093012-0011",
        ),
        ("", "no run is called"),
        ("..", "no run is called"),
    ] {
        let error = find_run(&place.state, text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn whether_a_run_may_go_is_looked_at_while_nobody_else_can_work_on_it() {
    let place = Place::new();
    create_run(&place.state, &record(1)).unwrap();
    let look = || match lock_run(&place.state, &run_id(1)) {
        Err(RunError::Locked { .. }) => Err("an apply was cut short"),
        other => panic!("another could have begun an apply: {other:?}"),
    };
    let refused = remove_run_if(&place.state, &run_id(1), look).unwrap();
    assert_eq!(refused, Err("an apply was cut short"));
    load_run(&place.state, &run_id(1)).unwrap();
    drop(lock_run(&place.state, &run_id(1)).unwrap());
}

#[test]
fn a_run_is_worked_on_by_one_at_a_time() {
    let place = Place::new();
    create_run(&place.state, &record(1)).unwrap();
    let lock = lock_run(&place.state, &run_id(1)).unwrap();
    let error = lock_run(&place.state, &run_id(1)).unwrap_err().to_string();
    assert!(
        error.contains(&format!("process {}", std::process::id())),
        "{error}"
    );
    assert!(matches!(
        remove_run(&place.state, &run_id(1)),
        Err(RunError::Locked { .. })
    ));
    drop(lock);
    drop(lock_run(&place.state, &run_id(1)).unwrap());
    remove_run(&place.state, &run_id(1)).unwrap();
    assert!(matches!(
        lock_run(&place.state, &run_id(1)),
        Err(RunError::Missing(_))
    ));
    assert!(matches!(
        remove_run(&place.state, &run_id(1)),
        Err(RunError::Missing(_))
    ));
}

#[test]
fn removal_takes_the_run_and_nothing_else() {
    let place = Place::new();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("precious"), "x").unwrap();
    create_run(&place.state, &record(1)).unwrap();
    let top = place.state.run_dir(&run_id(1));
    std::fs::create_dir_all(top.join("work/work/inner")).unwrap();
    std::fs::create_dir_all(top.join("upper/locked/inner")).unwrap();
    for index in 0..5_000 {
        std::fs::write(top.join("upper").join(format!("file-{index}")), "").unwrap();
    }
    symlink(outside.path(), top.join("upper/link")).unwrap();
    symlink(outside.path().join("precious"), top.join("link")).unwrap();
    symlink("/nowhere", top.join(".moved-1")).unwrap();
    std::fs::hard_link(outside.path().join("precious"), top.join("hard")).unwrap();
    for (path, mode) in [
        ("work/work", 0o000),
        ("upper/locked", 0o500),
        ("upper/locked/inner", 0),
    ] {
        let permissions = std::fs::Permissions::from_mode(mode);
        // The innermost of the locked ones must still be reachable here.
        if path != "upper/locked/inner" || is_root() {
            std::fs::set_permissions(top.join(path), permissions).unwrap();
        }
    }
    let usage = run_disk_usage(&place.state, &run_id(1)).unwrap();
    assert!(usage.entries > 5_000, "{usage:?}");
    remove_run(&place.state, &run_id(1)).unwrap();
    assert_eq!(
        std::fs::read_dir(place.state.path().join("runs"))
            .unwrap()
            .count(),
        0
    );
    assert_eq!(
        std::fs::read_to_string(outside.path().join("precious")).unwrap(),
        "x"
    );
}

/// Makes a directory of directories, deeper than a path can be written.
fn dig(top: &Path, depth: usize) {
    let open = |parent: &OwnedFd| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(parent, "d", flags, Mode::empty()).unwrap()
    };
    let mut current = OwnedFd::from(std::fs::File::open(top).unwrap());
    for _ in 0..depth {
        rustix::fs::mkdirat(&current, "d", Mode::RWXU).unwrap();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        rustix::fs::openat(&current, "f", flags, Mode::RUSR).unwrap();
        current = open(&current);
    }
}

#[test]
fn very_deep_trees_are_measured_and_removed() {
    const DEPTH: usize = 2_500;
    let place = Place::new();
    create_run(&place.state, &record(1)).unwrap();
    dig(&place.state.run_dir(&run_id(1)), DEPTH);
    let usage = run_disk_usage(&place.state, &run_id(1)).unwrap();
    assert_eq!(usage.entries, 2 * DEPTH as u64 + 2);
    assert_eq!(usage.unreadable, 0);
    remove_run(&place.state, &run_id(1)).unwrap();
    assert_eq!(
        std::fs::read_dir(place.state.path().join("runs"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn a_file_with_two_names_takes_room_once() {
    let place = Place::new();
    create_run(&place.state, &record(1)).unwrap();
    let top = place.state.run_dir(&run_id(1));
    std::fs::write(top.join("a"), vec![1; 1 << 20]).unwrap();
    let before = run_disk_usage(&place.state, &run_id(1)).unwrap();
    assert!(before.bytes >= 1 << 20);
    std::fs::hard_link(top.join("a"), top.join("b")).unwrap();
    assert_eq!(run_disk_usage(&place.state, &run_id(1)).unwrap(), before);
}

#[test]
fn something_mounted_in_a_run_is_left_alone() {
    if !is_root() {
        return eprintln!("skipped: only root can mount");
    }
    let place = Place::new();
    create_run(&place.state, &record(1)).unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("precious"), "x").unwrap();
    let mounted = place.state.run_dir(&run_id(1)).join("upper/mounted");
    std::fs::create_dir_all(&mounted).unwrap();
    // A bind mount of the same file system, which its device number does not show.
    let bind = |command: &str, paths: &[&Path]| {
        let status = std::process::Command::new(command).args(paths).status();
        status.is_ok_and(|status| status.success())
    };
    if !bind("mount", &[Path::new("--bind"), outside.path(), &mounted]) {
        return eprintln!("skipped: mount is not permitted here");
    }
    let removed = remove_run(&place.state, &run_id(1));
    let kept = std::fs::read_to_string(outside.path().join("precious"));
    let leftover = place
        .state
        .path()
        .join("runs")
        .join(format!(".removed-{}", run_id(1)));
    for path in [
        &mounted,
        &leftover.join("upper/mounted"),
        &leftover.join(".moved-1"),
    ] {
        let _ = rustix_unmount(path);
    }
    assert!(matches!(removed, Err(RunError::Mounted(_))), "{removed:?}");
    assert_eq!(kept.unwrap(), "x");
}

fn rustix_unmount(path: &Path) -> bool {
    let mut command = std::process::Command::new("umount");
    let command = command.arg(path).stderr(std::process::Stdio::null());
    path.exists() && command.status().is_ok_and(|status| status.success())
}

#[test]
fn what_can_go_is_planned_and_then_removed() {
    let place = Place::new();
    let states = [
        RunState::Running,
        RunState::Kept,
        RunState::Applied,
        RunState::Discarded,
        RunState::Interrupted,
    ];
    for (number, state) in states.into_iter().enumerate() {
        let mut record = record(u32::try_from(number).unwrap());
        record.state = state;
        create_run(&place.state, &record).unwrap();
    }
    let leftover = format!(".removed-{}", run_id(77));
    std::fs::create_dir_all(place.state.path().join("runs").join(&leftover).join("x")).unwrap();
    let day = Duration::from_secs(86_400);
    let policy = |days: u32, undecided_after| CollectPolicy {
        now: SystemTime::now() + day * days + Duration::from_secs(1),
        discarded_after: Duration::ZERO,
        applied_after: day * 7,
        undecided_after,
    };
    for (days, undecided_after, expected) in [
        (0, None, vec![3]),
        (8, None, vec![3, 2]),
        (8, Some(day * 30), vec![3, 2]),
        (31, Some(day * 30), vec![4, 3, 2, 1]),
    ] {
        let plan = plan_collection(&place.state, &policy(days, undecided_after)).unwrap();
        let runs: Vec<_> = plan.runs.iter().map(|item| item.run.clone()).collect();
        assert_eq!(
            runs,
            expected.into_iter().map(run_id).collect::<Vec<_>>(),
            "{days} days"
        );
        assert_eq!(plan.leftovers, std::slice::from_ref(&leftover));
    }
    let plan = plan_collection(&place.state, &policy(31, Some(day * 30))).unwrap();
    update_run(&place.state, &run_id(1), Durability::Buffered, |record| {
        record.state = RunState::Applied;
    })
    .unwrap();
    let failed = collect(&place.state, &plan, |_| true, |_| true);
    assert_eq!(failed.len(), 1);
    assert!(matches!(failed[0].1, RunError::Changed(_)));
    let left: Vec<_> = list_runs(&place.state)
        .unwrap()
        .records
        .into_iter()
        .map(|record| record.run)
        .collect();
    assert_eq!(left, [run_id(1), run_id(0)]);
    assert!(!place.state.path().join("runs").join(leftover).exists());
}

#[test]
fn an_entry_that_is_dropped_is_found_interrupted() {
    let place = Place::new();
    let ledger = place.ledger();
    let entry = ledger.open_call(&call(1), &allow(), json!({})).unwrap();
    create_run(&place.state, &record(1)).unwrap();
    drop(entry);
    let next = place.ledger();
    assert_eq!(next.interrupted().len(), 1);
    assert_eq!(next.interrupted()[0].run, run_id(1));
    assert!(next.interrupted()[0].record.is_none());
    assert_eq!(
        load_run(&place.state, &run_id(1)).unwrap().state,
        RunState::Interrupted
    );
    assert_eq!(place.kinds(), ["run.opened", "run.interrupted"]);
    assert!(place.ledger().interrupted().is_empty());
}
