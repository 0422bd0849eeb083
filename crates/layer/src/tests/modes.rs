//! Conflicts, selection, classes.

use std::fs;
use std::time::Duration;

use super::support::*;
use crate::*;

pub fn pause() {
    std::thread::sleep(Duration::from_millis(30));
}

#[test]
fn what_changed_outside_is_a_conflict() {
    let before = [
        write("modified", "1"),
        write("removed", "1"),
        write("gone", "1"),
        write("tree/a", "1"),
        write("tree/b", "1"),
        write("type", "1"),
        write("mode", "1"),
        write("fine", "1"),
    ];
    let edits = [
        append("modified", "2"),
        remove("removed"),
        append("gone", "2"),
        remove("tree"),
        remove("type"),
        directory("type"),
        mode("mode", 0o700),
        append("fine", "2"),
        write("new", "layer"),
        write("same", "both"),
        write("dir/inner", "layer"),
    ];
    let outside = [
        append("modified", "host"),
        append("removed", "host"),
        remove("gone"),
        write("tree/c", "host"),
        append("type", "host"),
        append("mode", "host"),
        write("new", "host"),
        write("same", "both"),
        write("dir/other", "host"),
    ];
    let flavours = MOUNTED.map(Some).into_iter().chain([None]);
    for mounted in flavours {
        let (stand, _) = match mounted {
            None => Stand::copy(&before, &edits),
            Some(mounted) => match Stand::overlay(mounted, &before, &edits, true) {
                Ok(made) => made,
                Err(why) => {
                    super::skipped_row(&format!("{mounted:?}"), &why);
                    continue;
                }
            },
        };
        pause();
        perform(&stand.host(), &outside);
        let edited = snapshot(&stand.host(), true);
        let plan = stand.plan(&everything());
        let conflicts: Vec<_> = plan
            .conflicts
            .iter()
            .map(|it| it.path.to_string())
            .collect();
        let mut expected = vec!["gone", "mode", "modified", "new", "removed", "tree", "type"];
        if mounted == Some(Mounted::Namespace) && rustix::process::geteuid().is_root() {
            // Here the owner differs.
            expected.insert(5, "same");
        }
        assert_eq!(conflicts, expected, "{mounted:?}");
        let refused = apply(plan.clone(), &stand.journal(), &mut |_| {});
        assert!(matches!(refused, Err(ApplyError::Conflicts(_))));
        assert_same("untouched", &edited, &snapshot(&stand.host(), true));
        // Without those in conflict.
        apply(plan.without_conflicts(), &stand.journal(), &mut |_| {}).unwrap();
        assert_eq!(fs::read(stand.host().join("fine")).unwrap(), b"12");
        assert_eq!(fs::read(stand.host().join("new")).unwrap(), b"host");
        assert_eq!(fs::read(stand.host().join("dir/inner")).unwrap(), b"layer");
        undo(&stand.journal(), false).unwrap();
        assert_same("undone", &edited, &snapshot(&stand.host(), true));
        // By force; what is overwritten comes back.
        let force = Selection {
            force: true,
            ..everything()
        };
        let journal = stand.place.path().join("forced");
        apply(stand.plan(&force), &journal, &mut |_| {}).unwrap();
        assert_eq!(fs::read(stand.host().join("new")).unwrap(), b"layer");
        assert!(!stand.host().join("tree").exists());
        undo(&journal, false).unwrap();
        assert_same("undone by force", &edited, &snapshot(&stand.host(), true));
    }
}

#[test]
fn the_mode_of_a_directory_that_somebody_changed_meanwhile_is_not_set_back() {
    let before = [write("d/f", "1"), mode("d", 0o755), write("e/f", "1")];
    let edits = [append("d/f", "2"), mode("e", 0o700), mode("d", 0o750)];
    let mode_of = |stand: &Stand, at: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        let facts = fs::metadata(stand.host().join(at)).unwrap();
        facts.permissions().mode() & 0o777
    };
    for later in [
        &[mode("d", 0o700)][..],
        &[mode("d", 0o700), write("d/mine", "1")],
    ] {
        let (stand, _) = Stand::copy(&before, &edits);
        pause();
        perform(&stand.host(), later);
        let plan = stand.plan(&everything());
        let why = "its permissions, or what is in it, changed outside meanwhile";
        let expected = [Conflict {
            path: path("d"),
            why: why.into(),
        }];
        assert_eq!(plan.conflicts, expected);
        // The rest is applied, and with force all of it; undo puts the person's back.
        let rest = Selection {
            paths: vec![path("d/f"), path("e")],
            ..everything()
        };
        let plan = stand.plan(&rest);
        assert_eq!(plan.conflicts, []);
        let rest = stand.place.path().join("rest");
        apply(plan, &rest, &mut |_| {}).unwrap();
        assert_eq!((mode_of(&stand, "d"), mode_of(&stand, "e")), (0o700, 0o700));
        let force = Selection {
            force: true,
            ..everything()
        };
        let plan = stand.plan(&force);
        apply(plan, &stand.journal(), &mut |_| {}).unwrap();
        assert_eq!(mode_of(&stand, "d"), 0o750);
        undo(&stand.journal(), false).unwrap();
        assert_eq!(mode_of(&stand, "d"), 0o700);
    }
    // One that both have made has the person's.
    let (stand, _) = Stand::copy(&before, &[directory("both"), mode("both", 0o755)]);
    pause();
    perform(&stand.host(), &[directory("both"), mode("both", 0o700)]);
    let plan = stand.plan(&everything());
    assert_eq!(plan.conflicts, []);
    assert!(plan.is_empty());
}

#[test]
fn a_change_between_plan_and_step_takes_all_back() {
    for edit in [
        append("z", "host"),
        write("t/y", "host"),
        write("n", "host"),
        remove("z"),
    ] {
        let (stand, _) = Stand::copy(
            &[write("a", "1"), write("z", "1"), write("t/x", "1")],
            &[
                append("a", "2"),
                append("z", "2"),
                remove("t"),
                write("n", "1"),
            ],
        );
        let plan = stand.plan(&everything());
        assert_eq!(plan.conflicts, []);
        pause();
        perform(&stand.host(), std::slice::from_ref(&edit));
        let edited = snapshot(&stand.host(), true);
        let result = apply(plan, &stand.journal(), &mut |_| {});
        assert!(
            matches!(result, Err(ApplyError::TakenBack { .. })),
            "{edit:?} {result:?}"
        );
        assert_same(
            &format!("{edit:?}"),
            &edited,
            &snapshot(&stand.host(), true),
        );
    }
}

#[test]
fn undo_does_not_overwrite_later_work() {
    let before = [
        write("a", "1"),
        write("b", "1"),
        write("c", "1"),
        write("t/x", "1"),
    ];
    let edits = [
        append("a", "2"),
        remove("b"),
        write("n/m", "1"),
        mode("c", 0o600),
        remove("t"),
    ];
    for later in [
        append("a", "later"),
        write("b", "later"),
        write("n/m", "later"),
        remove("a"),
        mode("c", 0o640),
        write("t/x", "later"),
        mode("n", 0o700),
    ] {
        let (stand, _) = Stand::copy(&before, &edits);
        let before = snapshot(&stand.host(), true);
        stand.apply_all();
        pause();
        perform(&stand.host(), std::slice::from_ref(&later));
        let edited = snapshot(&stand.host(), true);
        let result = undo(&stand.journal(), false);
        assert!(
            matches!(result, Err(ApplyError::Conflicts(_))),
            "{later:?}: {result:?}"
        );
        assert_same("later work", &edited, &snapshot(&stand.host(), true));
        assert_eq!(journal_state(&stand.journal()).unwrap(), JournalState::Done);
        undo(&stand.journal(), true).unwrap();
        assert_same(
            &format!("{later:?}"),
            &before,
            &snapshot(&stand.host(), true),
        );
    }
}

#[test]
fn classes() {
    let before = [
        write(".gitignore", "*.log\n/out/\n!keep.log\n"),
        write("sub/.gitignore", "secret\n"),
        write("rust/Cargo.toml", ""),
        write("x", ""),
        write("held/.envrc", ""),
        write("node_modules/old/.travis.yml", ""),
    ];
    // Each with its class; the program's own ignore file must not hide anything.
    let expected = [
        ("src/main.rs", Class::Ordinary),
        ("a.log", Class::Ignored),
        ("keep.log", Class::Ordinary),
        ("out/deep/file", Class::Ignored),
        ("sub/secret", Class::Ignored),
        ("sub/other", Class::Ordinary),
        ("hidden", Class::Ordinary),
        ("rust/target/debug/x", Class::Cache),
        ("plain/target/x", Class::Ordinary),
        ("tagged/target/CACHEDIR.TAG", Class::Cache),
        ("web/node_modules/a/index.js", Class::Cache),
        ("web/node_modules/a/.npmrc", Class::Control),
        ("web/node_modules/a/.eslintrc", Class::Cache),
        ("web/.eslintrc", Class::Control),
        (".venv/bin/python", Class::Cache),
        (".git/hooks/pre-commit", Class::Control),
        (".git/config", Class::Control),
        (".git/COMMIT_EDITMSG", Class::Ordinary),
        // No index of git's at all.
        (".git/index", Class::Control),
        (".git/modules/a/modules/b/hooks/x", Class::Control),
        ("deep/.GIT/Hooks/x", Class::Control),
        ("deep/git~1/hooks/x", Class::Control),
        ("deep/.g\u{200c}it/config", Class::Control),
        ("w/.git", Class::Control),
        ("bare/HEAD", Class::Control),
        (".github/workflows/ci.yml", Class::Control),
        (".github/README.md", Class::Ordinary),
        ("a/b/.envrc", Class::Control),
        (".env.local", Class::Control),
        (".environment", Class::Ordinary),
        ("claude.md", Class::Control),
        ("docs/AGENTS.md", Class::Control),
        (".claude/settings.json", Class::Control),
        (".cargo/config.toml", Class::Control),
        (".cargo/other", Class::Ordinary),
        ("mise.local.toml", Class::Control),
        ("atoll.toml", Class::Control),
        (".config/atoll/organisation.pub", Class::Control),
        ("organisation.pub", Class::Control),
        ("x.code-workspace", Class::Control),
    ];
    let mut edits: Vec<Edit> = expected.iter().map(|(path, _)| write(path, "x")).collect();
    edits.extend([
        append(".gitignore", "hidden\n"),
        directory("h"),
        link_to("h/.github", "../x"),
    ]);
    edits.extend([
        remove("held"),
        remove("node_modules"),
        link_to("h/.config", "/etc"),
    ]);
    let (stand, _) = Stand::copy(&before, &edits);
    let set = stand.changes();
    let class = |at: &str| {
        let change = set.changes.iter().find(|change| change.path == path(at));
        change.unwrap_or_else(|| panic!("{at} is missing")).class
    };
    for (at, expected) in expected {
        assert_eq!(class(at), expected, "{at}");
    }
    for at in ["h/.github", "h/.config", "held"] {
        assert_eq!(class(at), Class::Control, "{at}");
    }
    assert_eq!(class("node_modules"), Class::Cache);
    assert!(set.notes.iter().any(|note| note.path == path("h/.config")));
    let plan = plan_apply(&stand.paths, &set, &Selection::default()).unwrap();
    assert!(plan.held_control.contains(&path(".git/config")));
    apply(plan, &stand.journal(), &mut |_| {}).unwrap();
    let host = stand.host();
    for (at, class) in expected {
        assert_eq!(host.join(at).exists(), class == Class::Ordinary, "{at}");
    }
    assert!(host.join("held/.envrc").exists());
    let all = set.counts_of_all();
    let classes = [
        Class::Ordinary,
        Class::Control,
        Class::Cache,
        Class::Ignored,
    ];
    let added: u64 = classes.iter().map(|class| set.counts(*class).added).sum();
    assert_eq!((all.added, all.removed), (added, 2 + 1 + 2));
}

#[test]
fn a_selection_brings_its_directories() {
    let (stand, _) = Stand::copy(
        &[write("x", "1")],
        &[
            write("a/b/c", "1"),
            write("a/b/d", "1"),
            write("e", "1"),
            append("x", "2"),
            write("a/.vscode/tasks.json", "1"),
        ],
    );
    let selection = Selection {
        paths: vec![path("a/b/c"), path("a/.vscode")],
        ..Selection::default()
    };
    let plan = stand.plan(&selection);
    assert_eq!(plan.steps.len(), 1);
    assert_eq!(plan.steps[0].action(), StepAction::Create { entries: 3 });
    assert_eq!(
        plan.held_control,
        [path("a/.vscode"), path("a/.vscode/tasks.json")]
    );
    apply(plan, &stand.journal(), &mut |_| {}).unwrap();
    let names: Vec<_> = snapshot(&stand.host(), false)
        .keys()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["a", "a/b", "a/b/c", "x"]);
    assert_eq!(fs::read(stand.host().join("x")).unwrap(), b"1");
}

#[test]
fn one_journal_one_worker() {
    let (stand, _) = Stand::copy(&[write("x", "1")], &[append("x", "2")]);
    let journal = stand.journal();
    assert_eq!(journal_state(&journal).unwrap(), JournalState::None);
    let mut inner = None;
    let plan = stand.plan(&everything());
    let second = plan.clone();
    apply(plan, &journal, &mut |_| {
        if inner.is_none() {
            inner = Some(apply(second.clone(), &journal, &mut |_| {}));
        }
    })
    .unwrap();
    assert!(
        matches!(inner, Some(Err(ApplyError::Locked(_)))),
        "{inner:?}"
    );
    let again = apply(second, &journal, &mut |_| {});
    assert!(matches!(again, Err(ApplyError::State { .. })), "{again:?}");
    assert!(matches!(take_back(&journal), Err(ApplyError::State { .. })));
}

/// A database that a run wrote, and a log of it that was written on the host meanwhile.
#[test]
fn a_database_is_not_written_beside_a_log_of_another_time() {
    let before = [write("state.db", "one\n"), write("other", "one\n")];
    let edits = [write("state.db", "two\n"), write("other", "two\n")];
    for mounted in MOUNTED {
        let stand = match Stand::overlay(mounted, &before, &edits, true) {
            Ok((stand, _)) => stand,
            Err(why) => {
                super::skipped_row(&format!("{mounted:?}"), &why);
                continue;
            }
        };
        pause();
        // Beside anything else it is none of Atoll's business.
        std::fs::write(stand.host().join("other-wal"), "log").unwrap();
        assert_eq!(stand.plan(&everything()).conflicts, [], "{mounted:?}");
        std::fs::write(stand.host().join("state.db-wal"), "log").unwrap();
        let plan = stand.plan(&everything());
        let [conflict] = plan.conflicts.as_slice() else {
            panic!("{mounted:?}: {:?}", plan.conflicts);
        };
        assert_eq!(conflict.path, path("state.db"));
        assert!(conflict.why.contains("state.db-wal"), "{}", conflict.why);
        let forced = Selection {
            force: true,
            ..everything()
        };
        assert_eq!(stand.plan(&forced).conflicts, []);
    }
}

/// A log written outside, where the run removed the database, or put something else in its place.
#[test]
fn a_database_is_not_taken_from_a_log_of_another_time() {
    let before = [write("state.db", "one\n"), write("other.db", "one\n")];
    let away = [Edit::Remove(path("state.db"))];
    let other = [
        Edit::Remove(path("state.db")),
        Edit::Directory(path("state.db")),
    ];
    let all = MOUNTED
        .into_iter()
        .flat_map(|mounted| [(mounted, &away[..]), (mounted, &other[..])]);
    for (mounted, edits) in all {
        let stand = match Stand::overlay(mounted, &before, edits, true) {
            Ok((stand, _)) => stand,
            Err(why) => {
                super::skipped_row(&format!("{mounted:?}"), &why);
                continue;
            }
        };
        pause();
        assert_eq!(stand.plan(&everything()).conflicts, [], "{mounted:?}");
        std::fs::write(stand.host().join("state.db-wal"), "log").unwrap();
        let plan = stand.plan(&everything());
        assert_eq!(plan.conflicts.len(), 1, "{mounted:?} {edits:?}: {plan:?}");
    }
}

/// The digest of a plan differs with everything that is written, its content, and what was there
/// before; and is the same when nothing of these differs.
#[test]
fn a_digest_is_of_all_that_is_written() {
    let before = [write("kept", "1"), write("other", "1")];
    let edits = [
        append("kept", "2"),
        write("new/a", "1"),
        link_to("l", "kept"),
        Edit::Sparse(path("hole"), 64 << 20),
    ];
    let (stand, _) = Stand::copy(&before, &edits);
    let digest = || stand.plan(&everything()).digest().unwrap();
    let first = digest();
    assert_eq!(first, digest());
    let mut seen = vec![first];
    let layer = |at: &str| match &stand.paths.after {
        AfterTree::Copy { path, .. } => path.join(at),
        other => panic!("{other:?}"),
    };
    let content = |at: &str, text: &[u8]| {
        let now = fs::metadata(layer(at)).unwrap().modified().unwrap();
        fs::write(layer(at), text).unwrap();
        let file = fs::File::options().write(true).open(layer(at)).unwrap();
        file.set_modified(now).unwrap();
    };
    // As long, of the same time: only what it holds is another.
    content("new/a", b"2");
    seen.push(digest());
    content("new/a", b"1");
    assert_eq!(digest(), first);
    let hole = fs::File::options().write(true).open(layer("hole")).unwrap();
    let now = hole.metadata().unwrap().modified().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&hole, b"x", 1 << 20).unwrap();
    hole.set_modified(now).unwrap();
    seen.push(digest());
    // Zeros that are written, and those that are not, are the same.
    std::os::unix::fs::FileExt::write_all_at(&hole, b"\0", 1 << 20).unwrap();
    hole.set_modified(now).unwrap();
    assert_eq!(digest(), first);
    perform(&stand.host(), &[append("kept", "host")]);
    seen.push(digest());
    let all: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!(all.len(), 4, "{seen:?}");
    let (one, two) = (seen[0], seen[1]);
    assert_ne!(
        PlanDigest::of_all(&[one, two]),
        PlanDigest::of_all(&[two, one])
    );
    assert_eq!(one.to_string().len(), 64);
}

#[test]
fn each_path_is_told_with_what_becomes_of_it() {
    let before = [
        write("kept", "1"),
        write("gone/a", "1"),
        write("type", "1"),
        write("mode", "1"),
    ];
    let edits = [
        append("kept", "2"),
        remove("gone"),
        remove("type"),
        link_to("type", "kept"),
        mode("mode", 0o755),
        write("new/run", "123"),
        mode("new/run", 0o755),
        mode("new", 0o777),
    ];
    let (stand, _) = Stand::copy(&before, &edits);
    let mut told: Vec<String> = stand
        .plan(&everything())
        .writes()
        .map(|one| {
            let octal =
                |mode: Option<u32>| mode.map_or_else(String::new, |mode| format!("{mode:o}"));
            let (before, mode) = (octal(one.mode_before), octal(one.mode));
            format!("{} {:?} {:?} {before}>{mode}", one.path, one.how, one.thing)
        })
        .collect();
    told.sort();
    assert_eq!(
        told,
        [
            "gone Removed Nothing >",
            "gone/a Removed Nothing >",
            "kept Replaced File { bytes: 2, is_executable: false } 644>644",
            "mode Facts File { bytes: 1, is_executable: true } 644>755",
            "new Made Directory >777",
            "new/run Made File { bytes: 3, is_executable: true } >755",
            "type Replaced Link { target: [107, 101, 112, 116] } 644>",
        ]
    );
}
