//! Originals are moved into the journal where that is possible, and copied there else.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;

use super::support::*;
use crate::*;

fn before() -> Vec<Edit> {
    vec![
        write("a", "original"),
        write("d/b", "original"),
        write("gone", "original"),
        write("one", "original"),
        hard_link("one", "d/other"),
        write("stays", "original"),
    ]
}

fn edits() -> [Edit; 5] {
    [
        append("a", ", changed"),
        append("d/b", ", changed"),
        remove("gone"),
        append("one", ", changed"),
        write("new", "made"),
    ]
}

#[test]
fn original_is_moved_into_the_journal() {
    let (stand, _) = Stand::copy(&before(), &edits());
    let host = stand.host();
    let unchanged = snapshot(&host, true);
    let inode = |name: &str| fs::metadata(host.join(name)).unwrap().ino();
    let expected = ["a", "d/b", "gone"].map(inode);
    stand.apply_all();
    let kept = fs::read_dir(stand.journal().join("kept")).unwrap();
    let kept: Vec<u64> = kept
        .map(|kept| kept.unwrap().metadata().unwrap().ino())
        .collect();
    // That with two names is copied: the other name leads to what would be kept.
    assert_eq!(kept.len(), 4);
    assert!(expected.iter().all(|inode| kept.contains(inode)));
    undo(&stand.journal(), false).unwrap();
    assert_same("undone", &unchanged, &snapshot(&host, true));
    take_undo_back(&stand.journal()).unwrap();
    undo(&stand.journal(), false).unwrap();
    assert_same("undone again", &unchanged, &snapshot(&host, true));
}

/// A process was killed while it made a copy.
#[test]
fn original_is_copied_where_copies_were_begun() {
    let (stand, _) = Stand::copy(&before(), &edits());
    let unchanged = snapshot(&stand.host(), true);
    let kept = stand.journal().join("kept");
    fs::create_dir_all(&kept).unwrap();
    for number in 1..8 {
        fs::write(kept.join(number.to_string()), "half").unwrap();
    }
    let inode = fs::metadata(stand.host().join("a")).unwrap().ino();
    stand.apply_all();
    let mut kept = fs::read_dir(kept).unwrap();
    assert!(kept.all(|kept| kept.unwrap().metadata().unwrap().ino() != inode));
    undo(&stand.journal(), false).unwrap();
    assert_same("undone", &unchanged, &snapshot(&stand.host(), true));
}

/// An editor that has the file open does not know that another took its place.
#[test]
fn late_write_to_an_original_is_not_lost() {
    let (stand, _) = Stand::copy(&before(), &edits());
    let at = stand.host().join("a");
    let mut open = fs::OpenOptions::new().append(true).open(&at).unwrap();
    stand.apply_all();
    open.write_all(b", late").unwrap();
    assert_eq!(fs::read_to_string(&at).unwrap(), "original, changed");
    undo(&stand.journal(), false).unwrap();
    assert_eq!(fs::read_to_string(&at).unwrap(), "original, late");
}
