//! Hard links through an overlay with an index: a change through one name shows under
//! the others, also when the name that was used is gone at the end.

use super::kinds::round_trip;
use super::support::*;

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
                    println!("skipped {name}: {why}");
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
