//! Hard links through an overlay with an index: a change through one name shows under
//! the others, also when the name that was used is gone at the end.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use super::kinds::round_trip;
use super::support::*;
use crate::*;

/// A name, the tree before, the edits inside.
type Case = (&'static str, Vec<Edit>, Vec<Edit>);

fn two() -> Vec<Edit> {
    vec![write("a", "1\n"), hard_link("a", "b"), write("z", "z")]
}

fn three() -> Vec<Edit> {
    [two(), vec![hard_link("a", "c")]].concat()
}

fn apart() -> Vec<Edit> {
    vec![
        write("d/b", "1\n"),
        write("d/other", "o"),
        hard_link("d/b", "a"),
        write("e/y", "y"),
        hard_link("d/b", "e/deep"),
    ]
}

fn where_the_name_goes() -> Vec<Case> {
    let appended = |rest: Vec<Edit>| [vec![append("b", "more\n")], rest].concat();
    vec![
        ("append and remove", two(), appended(vec![remove("b")])),
        ("append and rename", two(), appended(vec![rename("b", "x")])),
        (
            "append and rename over the other name",
            two(),
            appended(vec![rename("b", "a")]),
        ),
        (
            "append and rename over another file",
            two(),
            appended(vec![rename("b", "z")]),
        ),
        (
            "append and replace",
            two(),
            appended(vec![remove("b"), write("b", "another")]),
        ),
        (
            "append and replace by a rename",
            two(),
            appended(vec![rename("z", "b")]),
        ),
        (
            "append and replace by a directory",
            two(),
            appended(vec![remove("b"), write("b/c", "2")]),
        ),
        (
            "chmod and remove",
            two(),
            vec![mode("b", 0o600), remove("b")],
        ),
        (
            "chmod, append and remove",
            two(),
            appended(vec![mode("b", 0o755), remove("b")]),
        ),
        (
            "attribute and remove",
            two(),
            vec![xattr("b", "user.x", "1"), remove("b")],
        ),
        (
            "three names, one goes",
            three(),
            appended(vec![remove("b")]),
        ),
        (
            "three names, two go",
            three(),
            appended(vec![remove("b"), remove("a")]),
        ),
        (
            "three names, one goes and one moves",
            three(),
            appended(vec![remove("b"), rename("c", "y")]),
        ),
        (
            "a new name and the old one goes",
            two(),
            appended(vec![hard_link("b", "new"), remove("b")]),
        ),
        (
            "touched only",
            two(),
            vec![Edit::Touch(path("b")), remove("b")],
        ),
        (
            "all names go",
            two(),
            appended(vec![remove("b"), remove("a")]),
        ),
    ]
}

fn where_the_directory_goes() -> Vec<Case> {
    let appended = |rest: Vec<Edit>| [vec![append("d/b", "more\n")], rest].concat();
    vec![
        ("its directory goes", apart(), appended(vec![remove("d")])),
        (
            "its directory moves",
            apart(),
            appended(vec![rename("d", "m")]),
        ),
        (
            "another's directory moves, and the name goes",
            apart(),
            appended(vec![rename("e", "m"), remove("d/b")]),
        ),
        (
            "its directory is another",
            apart(),
            appended(vec![remove("d"), write("d/new", "n")]),
        ),
        (
            "another's directory is exchanged, and the name goes",
            [apart(), vec![write("f/e/g", "g")]].concat(),
            appended(vec![
                rename("e", "t"),
                rename("f/e", "e"),
                rename("t", "f/e"),
                remove("d/b"),
            ]),
        ),
        (
            "another's directory moves away and back, and the name goes",
            apart(),
            appended(vec![rename("e", "m"), rename("m", "e"), remove("d/b")]),
        ),
        (
            "another's is among what moves twice",
            [
                apart(),
                vec![
                    directory("e/in"),
                    hard_link("a", "e/in/side"),
                    write("q/w", "w"),
                ],
            ]
            .concat(),
            appended(vec![
                rename("e", "m"),
                rename("q", "e"),
                rename("m/in", "e/in"),
                remove("d/b"),
            ]),
        ),
    ]
}

#[test]
fn what_changed_through_a_name_that_is_gone_shows_under_the_others() {
    let cases = [where_the_name_goes(), where_the_directory_goes()].concat();
    let mut wrong = Vec::new();
    for mounted in MOUNTED {
        for (name, before, edits) in &cases {
            let name = format!("{name} ({mounted:?})");
            let strict = mounted == Mounted::Trusted;
            let (stand, seen) = match Stand::overlay(mounted, before, edits, strict) {
                Ok(made) => made,
                Err(why) => {
                    super::skipped_row(&name, &why);
                    continue;
                }
            };
            let set = stand.changes();
            let tried = std::panic::catch_unwind(|| {
                assert_eq!((set.refused.len(), set.notes.len()), (0, 0), "{set:?}");
                round_trip(&name, &stand, &seen);
            });
            if tried.is_err() {
                wrong.push(name);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns a layer in which `b` was appended to and is gone, so that only the index has the content
/// of the other names; `None` where that is impossible.
fn only_in_the_index() -> Option<(Stand, PathBuf)> {
    let edits = [append("b", "more\n"), remove("b")];
    let (stand, _) = match Stand::overlay(Mounted::Trusted, &three(), &edits, true) {
        Ok(made) => made,
        Err(why) => {
            super::skipped(&why);
            return None;
        }
    };
    let index = stand.place.path().join("work/index");
    // Overlayfs keeps a whiteout there too.
    let entries = fs::read_dir(&index)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_copy = |entry: &PathBuf| fs::symlink_metadata(entry).unwrap().is_file();
    let copies: Vec<PathBuf> = entries.filter(is_copy).collect();
    let [entry] = <[PathBuf; 1]>::try_from(copies).unwrap();
    Some((stand, entry))
}

fn said(about: &[Refusal]) -> Vec<String> {
    let said = about.iter();
    said.map(|one| format!("{}: {}", one.path, one.why))
        .collect()
}

#[test]
fn names_that_are_left_stay_one_file_and_are_shown() {
    let Some((stand, _)) = only_in_the_index() else {
        return;
    };
    let mut shown = Vec::new();
    write_diff(
        &stand.paths,
        &stand.changes(),
        &[],
        &mut shown,
        &DiffOptions::default(),
    )
    .unwrap();
    let shown = String::from_utf8(shown).unwrap();
    assert_eq!(shown.matches("\n+more\n").count(), 2, "{shown}");
    stand.apply_all();
    assert_eq!(link_groups(&stand.host(), &["a", "c"]), [0, 0]);
    undo(&stand.journal(), false).unwrap();
    assert_eq!(link_groups(&stand.host(), &["a", "b", "c"]), [0, 0, 0]);
}

/// Holds also where the file has one name left on the host.
#[test]
fn what_is_applied_in_part_is_still_shown() {
    let Some((stand, _)) = only_in_the_index() else {
        return;
    };
    for (number, (chosen, left)) in [("b", "a,c"), ("c", "a"), ("a", "")].iter().enumerate() {
        let selection = Selection {
            paths: vec![path(chosen)],
            force: true,
            ..everything()
        };
        let journal = stand.place.path().join(format!("journal-{number}"));
        apply(stand.plan(&selection), &journal, &mut |_| {}).unwrap();
        let set = stand.changes();
        let paths: Vec<String> = set.changes.iter().map(|it| it.path.to_string()).collect();
        assert_eq!(paths.join(","), *left, "after {chosen}");
    }
    assert_eq!(fs::read(stand.host().join("a")).unwrap(), b"1\nmore\n");
}

#[test]
fn an_index_that_others_wrote_leads_nowhere() {
    type Attack = (&'static str, fn(&PathBuf, &PathBuf));
    let attacks: [Attack; 5] = [
        ("a link to a secret", |entry, secret| {
            fs::remove_file(entry).unwrap();
            symlink(secret, entry).unwrap();
        }),
        ("a FIFO", |entry, _| {
            fs::remove_file(entry).unwrap();
            Edit::Fifo(path("it"))
                .perform(entry.parent().unwrap())
                .unwrap();
            fs::rename(entry.with_file_name("it"), entry).unwrap();
        }),
        ("a directory", |entry, _| {
            fs::remove_file(entry).unwrap();
            fs::create_dir(entry).unwrap();
        }),
        ("a program with its owner's rights", |entry, _| {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(entry, fs::Permissions::from_mode(0o4755)).unwrap();
        }),
        ("the index is a link", |entry, secret| {
            let index = entry.parent().unwrap();
            let (secret, aside) = (secret.parent().unwrap(), index.with_file_name("aside"));
            fs::rename(index, aside).unwrap();
            fs::create_dir(secret.join("index")).unwrap();
            fs::copy(
                secret.join("secret"),
                secret.join("index").join(entry.file_name().unwrap()),
            )
            .unwrap();
            symlink(secret.join("index"), index).unwrap();
        }),
    ];
    for (name, attack) in attacks {
        let Some((stand, entry)) = only_in_the_index() else {
            return;
        };
        let elsewhere = tempfile::tempdir().unwrap();
        let secret = elsewhere.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        attack(&entry, &secret);
        let set = stand.changes();
        let told = [said(&set.refused), said(&set.notes)].concat();
        assert!(!told.is_empty(), "{name}");
        let plan = stand.plan(&everything());
        assert!(
            plan.steps.iter().all(|step| step.path == path("b")),
            "{name}: {told:?}"
        );
        apply(plan, &stand.journal(), &mut |_| {}).unwrap();
        assert_eq!(fs::read(stand.host().join("a")).unwrap(), b"1\n", "{name}");
    }
}

#[test]
fn an_index_of_too_many_entries_ends_the_reading() {
    let Some((stand, entry)) = only_in_the_index() else {
        return;
    };
    let there = fs::read_dir(entry.parent().unwrap()).unwrap().count();
    for number in there..51 {
        fs::write(entry.with_file_name(format!("{number}")), "").unwrap();
    }
    let bounds = |entries_max| Bounds {
        entries_max,
        ..Bounds::default()
    };
    let read = changes_at_rest(&stand.paths, &bounds(50));
    assert!(matches!(read, Err(ReadError::TooManyEntries { .. })));
    assert!(changes_at_rest(&stand.paths, &bounds(51)).is_ok());
}

#[test]
fn names_outside_the_directory_are_told() {
    let place = Stand::bare();
    let host = place.path().join("host");
    let outside = place.path().join("outside");
    fs::write(&outside, "mine").unwrap();
    symlink("outside", place.path().join("link")).unwrap();
    let shared = |name: &str| {
        let copy = place.path().join(name);
        let facts = checkpoint(&host, &copy, IdShift::None, &mut |_| {}).unwrap();
        let shared = facts.shared.iter().map(ToString::to_string);
        shared.collect::<Vec<_>>()
    };
    perform(
        &host,
        &[
            write("a", "1"),
            hard_link("a", "b"),
            directory("d"),
            hard_link("a", "d/c"),
            link_to("l", "a"),
        ],
    );
    UnixListener::bind(host.join("socket")).unwrap();
    fs::hard_link(host.join("socket"), host.join("d/socket")).unwrap();
    assert_eq!(shared("within"), [""; 0], "all names are in it");
    fs::hard_link(&outside, host.join("d/e")).unwrap();
    fs::hard_link(host.join("a"), place.path().join("another")).unwrap();
    fs::hard_link(place.path().join("link"), host.join("m")).unwrap();
    let mut seen = shared("beyond");
    seen.sort();
    assert_eq!(seen, ["a", "d/e", "m"]);
}
