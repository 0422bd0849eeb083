//! Every kind of change, through real overlays of all flavours and a private copy: the changes
//! read, the result of applying, the result of undoing.

use super::support::*;
use crate::*;

struct Case {
    name: &'static str,
    before: Vec<Edit>,
    edits: Vec<Edit>,
    /// Letters for the kinds, with paths: `A a`, `M a`, `D a+3` (three within), `C a`
    /// (mode), `T a`, `R from>to`.
    expected: &'static str,
    /// The expected changes where a move of a directory shows as a move.
    expected_trusted: Option<&'static str>,
}

fn case(name: &'static str, before: &[Edit], edits: &[Edit], expected: &'static str) -> Case {
    Case {
        name,
        before: before.to_vec(),
        edits: edits.to_vec(),
        expected,
        expected_trusted: None,
    }
}

fn tree() -> Vec<Edit> {
    vec![
        write("a", "a\n"),
        write("d/b", "b\n"),
        write("d/sub/c", "c\n"),
        write("d/sub/e", "e\n"),
        link_to("l", "a"),
        directory("empty"),
        mode("d/b", 0o640),
        xattr("d/b", "user.color", "blue"),
    ]
}

fn cases() -> Vec<Case> {
    let tree = tree();
    let mut cases = vec![
        case("nothing", &tree, &[], ""),
        case(
            "add",
            &tree,
            &[write("new", "x"), write("n/m/o", "y")],
            "A n,A n/m,A n/m/o,A new",
        ),
        case("modify", &tree, &[append("d/b", "more")], "M d/b"),
        case("modify to the same", &tree, &[write("d/b", "b\n")], ""),
        case("touch", &tree, &[Edit::Touch(path("d/sub/c"))], ""),
        case("remove", &tree, &[remove("a"), remove("l")], "D a,D l"),
        case("remove a tree", &tree, &[remove("d")], "D d+4"),
        case(
            "mode",
            &tree,
            &[mode("a", 0o755), mode("d/sub", 0o700)],
            "C a,C d/sub",
        ),
        case(
            "mode and back",
            &tree,
            &[mode("a", 0o600), mode("a", 0o644)],
            "",
        ),
        case(
            "file to directory",
            &tree,
            &[remove("a"), write("a/x/y", "z")],
            "T a,A a/x,A a/x/y",
        ),
        case(
            "directory to file",
            &tree,
            &[remove("d"), write("d", "now")],
            "T d+4",
        ),
        case(
            "directory to link",
            &tree,
            &[remove("d"), link_to("d", "empty")],
            "T d+4",
        ),
        case(
            "file to link",
            &tree,
            &[remove("a"), link_to("a", "d/b")],
            "T a",
        ),
        case(
            "link to file",
            &tree,
            &[remove("l"), write("l", "file")],
            "T l",
        ),
        case(
            "link elsewhere",
            &tree,
            &[remove("l"), link_to("l", "nowhere/at/all")],
            "M l",
        ),
        case(
            "opaque",
            &tree,
            &[remove("d"), write("d/sub/c", "c\n"), write("d/new", "n")],
            "D d/b,A d/new,D d/sub/e",
        ),
        case(
            "empty directories",
            &tree,
            &[remove("empty"), directory("e2/e3")],
            "A e2,A e2/e3,D empty",
        ),
        case(
            "sparse",
            &tree,
            &[Edit::Sparse(path("hole"), 40 << 20)],
            "A hole",
        ),
        case(
            "empty file",
            &tree,
            &[write("zero", ""), write("a", "")],
            "M a,A zero",
        ),
        case(
            "xattrs",
            &tree,
            &[
                xattr("a", "user.one", "1"),
                xattr("d", "user.dir", "2"),
                xattr("d/b", "user.color", "red"),
            ],
            "C a,C d,C d/b",
        ),
        case(
            "xattr on new",
            &tree,
            &[write("n", "1"), xattr("n", "user.new", "v")],
            "A n",
        ),
        case(
            "rename a file",
            &tree,
            &[rename("d/b", "d/sub/b2")],
            "D d/b,A d/sub/b2",
        ),
        case(
            "read-only directory",
            &tree,
            &[write("r/f", "1"), mode("r", 0o555)],
            "A r,A r/f",
        ),
        case("files nobody may read", &tree, &[mode("a", 0o000)], "C a"),
    ];
    let moved = |name, edits: &[Edit], trusted| Case {
        expected_trusted: Some(trusted),
        ..case(name, &tree, edits, "-")
    };
    cases.push(moved("move a directory", &[rename("d", "q")], "R d>q+4"));
    cases.push(moved(
        "move deeper",
        &[directory("empty/x"), rename("d/sub", "empty/x/s")],
        "D d/sub+2,A empty/x,A empty/x/s,A empty/x/s/c,A empty/x/s/e",
    ));
    cases.push(moved(
        "move into an old directory",
        &[rename("d/sub", "empty/s")],
        "R d/sub>empty/s+2",
    ));
    cases.push(moved(
        "move and change",
        &[rename("d", "q"), append("q/b", "!"), remove("q/sub/e")],
        "D d+4,A q,A q/b,A q/sub,A q/sub/c",
    ));
    cases.push(moved(
        "move out of a moved one",
        &[rename("d", "q"), rename("q/sub", "top")],
        "D d+4,A q,A q/b,A top,A top/c,A top/e",
    ));
    cases.push(moved(
        "move and take the old place",
        &[rename("d", "q"), write("d/z", "z")],
        "D d/b,D d/sub+2,A d/z,A q,A q/b,A q/sub,A q/sub/c,A q/sub/e",
    ));
    cases.push(moved(
        "move with a control file",
        &[rename("d", ".git")],
        "R d>.git+4",
    ));
    if !rustix::process::geteuid().is_root() {
        // What the program made unreadable is refused then.
        cases.retain(|case| case.name != "files nobody may read");
    }
    cases
}

/// The other tests here run as root; applying as an ordinary user must work as well.
#[test]
fn an_ordinary_user_can_do_it_all() {
    if !rustix::process::geteuid().is_root() {
        super::skipped("this is an ordinary user already");
        return;
    }
    let tests = [
        "tests::kinds::each",
        "tests::modes::undo",
        "tests::kinds::hard_links",
    ];
    pass_as_ordinary_user(&tests, 6);
}

fn describe(set: &ChangeSet) -> String {
    let lines: Vec<String> = set
        .changes
        .iter()
        .map(|change| {
            let within = match change.within {
                0 => String::new(),
                count => format!("+{count}"),
            };
            let path = &change.path;
            match &change.kind {
                ChangeKind::Added => format!("A {path}"),
                ChangeKind::Modified => format!("M {path}"),
                ChangeKind::Removed => format!("D {path}{within}"),
                ChangeKind::Mode => format!("C {path}"),
                ChangeKind::Type => format!("T {path}{within}"),
                ChangeKind::Renamed { from } => format!("R {from}>{path}{within}"),
            }
        })
        .collect();
    lines.join(",")
}

/// Applies and undoes; the host must equal the merged view, then itself as before.
pub fn round_trip(name: &str, stand: &Stand, seen: &Snapshot) {
    let before = snapshot(&stand.host(), true);
    stand.apply_all();
    assert_same(
        &format!("{name}: applied"),
        seen,
        &snapshot(&stand.host(), false),
    );
    let again = stand.changes();
    if !matches!(stand.paths.after, AfterTree::Overlay { .. }) {
        assert_eq!(describe(&again), "", "{name}: changes after applying");
    }
    assert_eq!(journal_state(&stand.journal()).unwrap(), JournalState::Done);
    undo(&stand.journal(), false).unwrap();
    assert_same(
        &format!("{name}: undone"),
        &before,
        &snapshot(&stand.host(), true),
    );
    assert_eq!(
        journal_state(&stand.journal()).unwrap(),
        JournalState::Undone
    );
}

#[test]
fn each_kind_through_an_overlay() {
    for mounted in MOUNTED {
        for case in cases() {
            let name = format!("{} ({mounted:?})", case.name);
            let strict = case.expected != "-" || mounted == Mounted::Trusted;
            let (stand, seen) = match Stand::overlay(mounted, &case.before, &case.edits, strict) {
                Ok(made) => made,
                Err(why) => {
                    super::skipped_row(&name, &why);
                    continue;
                }
            };
            let set = stand.changes();
            let unreadable = case.name == "files nobody may read";
            assert!(
                set.refused.is_empty() || unreadable,
                "{name}: {:?}",
                set.refused
            );
            let expected = match (mounted, case.expected_trusted) {
                (Mounted::Trusted, Some(expected)) => expected,
                _ => case.expected,
            };
            if expected != "-" {
                assert_eq!(describe(&set), expected, "{name}");
            }
            round_trip(&name, &stand, &seen);
        }
    }
}

#[test]
fn each_kind_through_a_copy() {
    for case in cases() {
        let (stand, seen) = Stand::copy(&case.before, &case.edits);
        let set = stand.changes();
        assert_eq!(set.refused, [], "{}", case.name);
        if case.expected != "-" {
            assert_eq!(describe(&set), case.expected, "{}", case.name);
        }
        round_trip(case.name, &stand, &seen);
    }
}

/// Untouched files keep their times wherever their directory goes; host edits are distinguished
/// from the program's only in directories that stayed where they were.
#[test]
fn directories_that_move_take_their_files_along() {
    let before = [
        write("d/f", "1"),
        write("d/deep/g", "1"),
        write("e/f", "2"),
        write("stays/h", "1"),
        write("stays/deep/i", "1"),
        write("root", "1"),
        write("zz", "the last to be copied has the time of the end"),
    ];
    let edits = [
        rename("d", "moved"),
        rename("e", "d"),
        write("stays/new", "n"),
        write("other", "n"),
    ];
    let pause = || std::thread::sleep(std::time::Duration::from_millis(60));
    let (stand, _) = Stand::copy_slowly(&before, &[], pause);
    let copy = stand.place.path().join("copy");
    pause();
    perform(&copy, &edits);
    let outside = [
        append("stays/h", "host"),
        append("stays/deep/i", "host"),
        remove("root"),
    ];
    perform(&stand.host(), &outside);
    let set = stand.changes();
    assert_eq!(
        describe(&set),
        "D d/deep+1,M d/f,D e+1,A moved,A moved/deep,A moved/deep/g,A moved/f,A other,A stays/new"
    );
    stand.apply_all();
    assert_eq!(
        std::fs::read(stand.host().join("stays/h")).unwrap(),
        b"1host"
    );
    let live = Stand::live(&before, &[]);
    let begun = snapshot(&live.host(), false);
    pause();
    perform(&live.host(), &edits);
    let set = live.changes();
    let plan = plan_restore(&live.paths, &set, &everything()).unwrap();
    apply(plan, &live.journal(), &mut |_| {}).unwrap();
    assert_same("restored", &begun, &snapshot(&live.host(), false));
}

#[test]
fn each_kind_is_restored_from_a_checkpoint() {
    for case in cases() {
        let stand = Stand::live(&case.before, &case.edits);
        let checkpoint = snapshot(&stand.place.path().join("copy"), false);
        let edited = snapshot(&stand.host(), true);
        let set = stand.changes();
        if case.expected != "-" {
            assert_eq!(describe(&set), case.expected, "{}", case.name);
        }
        let plan = plan_restore(&stand.paths, &set, &everything()).unwrap();
        assert_eq!(
            (plan.refused.len(), plan.conflicts.len()),
            (0, 0),
            "{}",
            case.name
        );
        apply(plan, &stand.journal(), &mut |_| {}).unwrap();
        // A file that was only touched is not a change: without times.
        assert_same(case.name, &checkpoint, &snapshot(&stand.host(), false));
        undo(&stand.journal(), false).unwrap();
        assert_same(case.name, &edited, &snapshot(&stand.host(), true));
    }
}

#[test]
fn hard_links_stay_together() {
    let before = [
        write("h1", "h\n"),
        hard_link("h1", "h2"),
        write("alone", "1"),
    ];
    let edits = [
        append("h1", "more"),
        write("n1", "new"),
        hard_link("n1", "n2"),
        directory("deep"),
        hard_link("n1", "deep/n3"),
    ];
    for mounted in MOUNTED {
        let (stand, seen) = match Stand::overlay(mounted, &before, &edits, true) {
            Ok(made) => made,
            Err(why) => {
                super::skipped_row(&format!("{mounted:?}"), &why);
                continue;
            }
        };
        stand.apply_all();
        assert_same("applied", &seen, &snapshot(&stand.host(), false));
        let names = ["h1", "h2", "n1", "n2", "deep/n3"];
        let expected = match mounted {
            // Only with an index do both names lead to the changed file.
            Mounted::Trusted => [0, 0, 1, 1, 1],
            Mounted::User | Mounted::Namespace => [0, 1, 2, 2, 2],
        };
        assert_eq!(link_groups(&stand.host(), &names), expected, "{mounted:?}");
        undo(&stand.journal(), false).unwrap();
        if mounted == Mounted::Trusted {
            assert_eq!(link_groups(&stand.host(), &["h1", "h2"]), [0, 0]);
        }
    }
}

/// Without an index a name comes away from the others when its file is touched; in place
/// the permissions of all of them would change.
#[test]
fn hard_links_have_the_permissions_that_were_seen() {
    let before = [
        write("b", ""),
        hard_link("b", "c"),
        write("d", "d\n"),
        hard_link("d", "e"),
        hard_link("d", "f"),
        write("g", "g\n"),
        hard_link("g", "h"),
    ];
    let edits = [
        mode("b", 0o755),
        mode("d", 0o755),
        mode("e", 0o700),
        append("f", "more"),
        mode("g", 0o600),
        remove("h"),
    ];
    for mounted in MOUNTED {
        let (stand, seen) = match Stand::overlay(mounted, &before, &edits, true) {
            Ok(made) => made,
            Err(why) => {
                super::skipped_row(&format!("{mounted:?}"), &why);
                continue;
            }
        };
        let begun = snapshot(&stand.host(), false);
        stand.apply_all();
        assert_same("applied", &seen, &snapshot(&stand.host(), false));
        undo(&stand.journal(), false).unwrap();
        assert_same("undone", &begun, &snapshot(&stand.host(), false));
    }
}

#[test]
fn holes_stay_holes() {
    use std::os::unix::fs::MetadataExt;
    // A snapshot would read all of it.
    let (stand, _) = Stand::copy(&[], &[write("small", "x")]);
    perform(
        &stand.place.path().join("copy"),
        &[Edit::Sparse(path("hole"), 1 << 40)],
    );
    stand.apply_all();
    let facts = std::fs::metadata(stand.host().join("hole")).unwrap();
    assert_eq!(facts.len(), 1 << 40);
    assert!(facts.blocks() < 1_000, "{}", facts.blocks());
}

#[test]
fn long_attributes_are_read_whole() {
    let long = "v".repeat(3_000);
    let (stand, _) = Stand::copy(&[], &[write("n", "1"), xattr("n", "user.long", &long)]);
    assert_eq!(stand.changes().refused, []);
    stand.apply_all();
    let file = std::fs::File::open(stand.host().join("n")).unwrap();
    let own = crate::facts::xattrs(&file, None, 1 << 20).unwrap().own;
    assert_eq!(own.first().map(|(_, value)| value.0.len()), Some(3_000));
}

/// The host directory can be the upper directory of an overlay that is not Atoll's.
#[test]
fn notes_of_another_overlay_come_back() {
    let note = "user.overlay.opaque";
    let before = [
        directory("replaced"),
        xattr("replaced", note, "y"),
        write("removed/file", "1"),
        xattr("removed/file", note, "y"),
        directory("changed"),
        xattr("changed", note, "y"),
    ];
    let edits = [
        remove("replaced"),
        write("replaced", "a file"),
        remove("removed"),
        mode("changed", 0o700),
    ];
    let (stand, _) = Stand::copy(&before, &edits);
    let has_note = |at: &str| {
        let value = rustix::fs::lgetxattr(stand.host().join(at), note, &mut [0; 8]);
        value.is_ok()
    };
    stand.apply_all();
    assert!(!has_note("replaced") && has_note("changed"));
    undo(&stand.journal(), false).unwrap();
    for at in ["replaced", "removed/file", "changed"] {
        assert!(has_note(at), "{at}");
    }
}
