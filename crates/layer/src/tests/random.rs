//! Random trees, random edits, through real overlays: applying gives what was seen
//! in the overlay, undoing gives what was before.

use proptest::prelude::*;

use super::support::*;
use crate::path::Bytes;
use crate::*;

fn any_path() -> impl Strategy<Value = RelativePath> {
    let name = prop::sample::select(vec!["a", "b", "c", "d", ".git", "é\n"]);
    prop::collection::vec(name, 1..4).prop_map(|names| path(names.join("/")))
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let content = prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes);
    let target = any_path().prop_map(|path| Bytes(path.as_bytes().to_vec()));
    // Without root's rights a directory of mode 644 cannot be looked into.
    let modes = match rustix::process::geteuid().is_root() {
        true => vec![0o644, 0o600, 0o755, 0o700],
        false => vec![0o755, 0o700],
    };
    let modes = prop::sample::select(modes);
    prop_oneof![
        5 => (any_path(), content.clone()).prop_map(|(path, bytes)| Edit::Write(path, bytes)),
        2 => (any_path(), content).prop_map(|(path, bytes)| Edit::Append(path, bytes)),
        3 => any_path().prop_map(Edit::Remove),
        2 => any_path().prop_map(Edit::Directory),
        1 => (any_path(), target).prop_map(|(path, target)| Edit::Symlink(path, target)),
        1 => (any_path(), any_path()).prop_map(|(from, to)| Edit::Link(from, to)),
        4 => (any_path(), any_path()).prop_map(|(from, to)| Edit::Rename(from, to)),
        1 => (any_path(), modes).prop_map(|(path, mode)| Edit::Mode(path, mode)),
        1 => any_path().prop_map(|path| Edit::Xattr(path, "user.x".into(), Bytes(b"1".to_vec()))),
        1 => any_path().prop_map(Edit::Touch),
    ]
}

/// Keeps what works outside, so that the tree before can be made strictly.
fn possible(edits: Vec<Edit>) -> Vec<Edit> {
    let place = tempfile::tempdir().unwrap();
    edits
        .into_iter()
        .filter(|edit| edit.perform(place.path()).is_ok())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48, max_shrink_iters: 60, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn applied_is_what_was_seen_and_undone_is_what_was_before(
        before in prop::collection::vec(any_edit(), 0..25),
        edits in prop::collection::vec(any_edit(), 0..25),
        mounted in prop::sample::select(MOUNTED.to_vec()),
    ) {
        let before = possible(before);
        match Stand::overlay(mounted, &before, &edits, false) {
            Ok((stand, seen)) => super::kinds::round_trip(&format!("{mounted:?}"), &stand, &seen),
            Err(why) => super::skipped_row(&format!("{mounted:?}"), &why),
        }
    }

    #[test]
    fn the_same_through_a_copy(
        before in prop::collection::vec(any_edit(), 0..25),
        edits in prop::collection::vec(any_edit(), 0..25),
    ) {
        let before = possible(before);
        let (stand, _) = Stand::copy(&before, &[]);
        let copy = stand.place.path().join("copy");
        for edit in &edits {
            let _ = edit.perform(&copy);
        }
        let seen = snapshot(&copy, false);
        super::kinds::round_trip("copy", &stand, &seen);
    }
}
