//! Two layers over one directory, planned before either is written.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use super::support::{everything, mode, path, perform, write};
use crate::{
    AfterTree, Bounds, IdShift, LayerPaths, Plan, Selection, XattrFlavour, apply, changes, join,
    plan_apply, undo,
};

/// A host directory and two layers over it.
struct Two(tempfile::TempDir);

impl Two {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        for name in ["host", "first", "second", "work"] {
            fs::create_dir(top.path().join(name)).unwrap();
        }
        Self(top)
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn plan(&self, layer: &str, selection: &Selection) -> Plan {
        let paths = LayerPaths {
            put_back: None,
            before: self.at("host"),
            after: AfterTree::Overlay {
                upper: self.at(layer),
                work: self.at("work"),
                xattrs: XattrFlavour::User,
            },
            since: SystemTime::now(),
            ids: IdShift::None,
        };
        let set = changes(&paths, &Bounds::default()).unwrap();
        plan_apply(&paths, &set, selection).unwrap()
    }

    fn both(&self, selection: &Selection) -> (Plan, Plan) {
        let (mut first, mut second) = (
            self.plan("first", selection),
            self.plan("second", selection),
        );
        join(&mut first, &mut second, selection.force);
        (first, second)
    }
}

fn text(top: &Path, name: &str) -> Option<String> {
    fs::read_to_string(top.join(name)).ok()
}

fn steps(plan: &Plan) -> Vec<String> {
    plan.steps
        .iter()
        .map(|step| step.path().to_string())
        .collect()
}

#[test]
fn a_directory_that_both_make_is_made_once_and_filled_by_both() {
    let two = Two::new();
    let (host, first, second) = (two.at("host"), two.at("first"), two.at("second"));
    perform(
        &first,
        &[
            write("new/deep/one", "1"),
            write("new/two", "2"),
            write("alone", "3"),
        ],
    );
    perform(
        &second,
        &[
            write("new/deep/own/four", "4"),
            write("new/deep/own/further/five", "5"),
            write("new/deep/.six", "6"),
            write("other", "7"),
        ],
    );
    let (before, after) = two.both(&everything());
    assert_eq!(steps(&before), ["alone", "new"]);
    assert_eq!(steps(&after), ["new/deep/.six", "new/deep/own", "other"]);
    // What was digested is what is carried out, once the first is.
    let digest = after.digest().unwrap();
    assert!(apply(before, &two.at("before"), &mut |_| {}).is_ok());
    assert_eq!(after.digest().unwrap(), digest);
    // The control: planned anew it is another one.
    let anew = two.plan("second", &everything());
    assert_eq!(steps(&anew), steps(&after));
    assert!(apply(after, &two.at("after"), &mut |_| {}).is_ok());
    let whole = [
        ("new/deep/one", "1"),
        ("new/two", "2"),
        ("alone", "3"),
        ("new/deep/own/four", "4"),
        ("new/deep/own/further/five", "5"),
        ("new/deep/.six", "6"),
        ("other", "7"),
    ];
    for (name, expected) in whole {
        assert_eq!(text(&host, name).as_deref(), Some(expected), "{name}");
    }
    undo(&two.at("after"), false).unwrap();
    undo(&two.at("before"), false).unwrap();
    assert_eq!(fs::read_dir(&host).unwrap().count(), 0);
}

#[test]
fn what_both_would_write_as_something_else_is_a_conflict_unless_forced() {
    let two = Two::new();
    let (host, first, second) = (two.at("host"), two.at("first"), two.at("second"));
    perform(&first, &[write("same", "1"), write("new/kind", "2")]);
    perform(&second, &[write("same", "3"), write("new/kind/file", "4")]);
    let (_, after) = two.both(&everything());
    let mut conflicts = after.conflicts.iter().map(|one| one.path.clone());
    assert_eq!(
        conflicts.by_ref().collect::<Vec<_>>(),
        [path("new"), path("same")]
    );
    assert!(apply(after, &two.at("after"), &mut |_| {}).is_err());
    let force = Selection {
        force: true,
        ..everything()
    };
    let (before, after) = two.both(&force);
    assert!(after.conflicts.is_empty() && before.is_empty());
    assert!(apply(after, &two.at("forced"), &mut |_| {}).is_ok());
    assert_eq!(text(&host, "same").as_deref(), Some("3"));
    assert_eq!(text(&host, "new/kind/file").as_deref(), Some("4"));
}

#[test]
fn permissions_of_a_directory_and_what_lies_in_it_do_not_meet() {
    let two = Two::new();
    let (host, first, second) = (two.at("host"), two.at("first"), two.at("second"));
    perform(&host, &[write("place/old", "0"), mode("place", 0o755)]);
    perform(&first, &[write("place/one", "1"), mode("place", 0o700)]);
    perform(&second, &[write("place/two", "2"), mode("place", 0o700)]);
    let (before, after) = two.both(&everything());
    assert_eq!(steps(&before), ["place", "place/one"]);
    assert_eq!(steps(&after), ["place/two"]);
    assert!(apply(before, &two.at("before"), &mut |_| {}).is_ok());
    assert!(apply(after, &two.at("after"), &mut |_| {}).is_ok());
    assert_eq!(text(&host, "place/one").as_deref(), Some("1"));
    assert_eq!(text(&host, "place/two").as_deref(), Some("2"));
}
