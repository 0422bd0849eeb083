//! A journal of an apply as a broken disk, a full one or a meddler would leave it. The
//! input says what is done to its files and to the person's directory, and what is asked
//! of it afterwards: to go on, to go back, to undo.

#![no_main]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atoll_layer::{
    AfterTree, Bounds, IdShift, LayerPaths, Selection, XattrFlavour, apply, changes, finish,
    journal_state, plan_apply, take_back, take_undo_back, undo, undo_preview,
};
use libfuzzer_sys::fuzz_target;

/// What a stage's file can say, and two things that it cannot.
const STAGES: [&str; 11] = [
    "keeping",
    "preparing",
    "committing",
    "done",
    "taking-back",
    "taken-back",
    "undoing",
    "undone",
    "putting-back",
    "",
    "done\n",
];
const NAMES: [&str; 6] = ["kept", "changed", "new", "directory", "link", "removed"];
const EDITS_MAX: usize = 24;
const EDIT_BYTES: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let Some((asked, edits)) = bytes.split_first() else {
        return;
    };
    let place = tempfile::tempdir().expect("a temporary directory");
    let root = place.path();
    prepare(root);
    for edit in edits.chunks_exact(EDIT_BYTES).take(EDITS_MAX) {
        // What is not possible is left out.
        let _ = perform(root, edit);
    }
    let journal = root.join("journal");
    let _ = journal_state(&journal);
    for step in 0..3 {
        match asked >> (step * 2) & 3 {
            0 => drop(finish(&journal)),
            1 => drop(take_back(&journal)),
            2 => drop(undo(&journal, asked & 0x40 != 0)),
            _ => {
                drop(undo_preview(&[&journal]));
                drop(take_undo_back(&journal));
            }
        }
    }
    let victim = root.join("outside/victim");
    assert!(fs::read(&victim).is_ok_and(|text| text == b"untouched"));
    assert!(fs::symlink_metadata(&victim).is_ok_and(|facts| facts.nlink() == 1));
    let outside = fs::read_dir(root.join("outside")).expect("a directory");
    assert_eq!(outside.count(), 1, "something escaped");
    let top = fs::read_dir(root).expect("a directory");
    assert_eq!(top.count(), 4, "something was made beside");
});

/// The person's directory, with an apply that is over: something of each kind.
fn prepare(root: &Path) {
    let (host, upper, outside) = (root.join("host"), root.join("upper"), root.join("outside"));
    for directory in [&host, &upper, &outside] {
        fs::create_dir(directory).expect("a directory");
    }
    let write = |path: PathBuf, text: &str| fs::write(path, text).expect("a file");
    write(outside.join("victim"), "untouched");
    write(host.join("kept"), "as it was\n");
    write(host.join("changed"), "before\n");
    symlink("kept", host.join("link")).expect("a link");
    write(upper.join("changed"), "after\n");
    write(upper.join("new"), "new\n");
    fs::create_dir(upper.join("directory")).expect("a directory");
    write(upper.join("directory/within"), "within\n");
    symlink("../outside", upper.join("link")).expect("a link");
    let paths = LayerPaths {
        put_back: None,
        before: host,
        after: AfterTree::Overlay {
            work: upper.with_file_name("work"),
            upper,
            xattrs: XattrFlavour::User,
        },
        since: SystemTime::now() + Duration::from_secs(3600),
        ids: IdShift::None,
    };
    let set = changes(&paths, &Bounds::default()).expect("changes");
    let selection = Selection {
        control: true,
        caches: true,
        ignored: true,
        ..Selection::default()
    };
    let plan = plan_apply(&paths, &set, &selection).expect("a plan");
    apply(plan, &root.join("journal"), &mut |_| {}).expect("an apply");
}

/// Every file of the journal, in order.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

fn perform(root: &Path, edit: &[u8]) -> std::io::Result<()> {
    let [what, which, at, value] = edit else {
        return Ok(());
    };
    let journal = root.join("journal");
    let all = files(&journal);
    let Some(file) = all.get(usize::from(*which) % all.len().max(1)) else {
        return Ok(());
    };
    let name = NAMES.get(usize::from(which % 6)).copied().unwrap_or("kept");
    let in_host = root.join("host").join(name);
    let bytes = fs::read(file)?;
    // Long files are reached in all their length.
    let place = usize::from(*at) * bytes.len().div_ceil(256).max(1) + usize::from(value % 7);
    let place = place.min(bytes.len());
    match what % 10 {
        0 => {
            let stage = STAGES.get(usize::from(value % 10)).copied();
            fs::write(journal.join("stage"), stage.unwrap_or("done"))
        }
        1 => OpenOptions::new()
            .write(true)
            .open(file)?
            .set_len(place as u64),
        2 | 3 => {
            let mut bytes = bytes;
            if let Some(byte) = bytes.get_mut(place) {
                *byte = *value;
            }
            fs::write(file, bytes)
        }
        4 => {
            let mut bytes = bytes;
            bytes.insert(place, *value);
            fs::write(file, bytes)
        }
        // A name that leads out, put where the journal has one of the directory's.
        5 => {
            let text = String::from_utf8_lossy(&bytes).replace(name, "../outside/victim");
            fs::write(file, text)
        }
        6 => fs::remove_file(file),
        7 => fs::write(&in_host, [*value]),
        8 => {
            fs::remove_file(&in_host)?;
            symlink("../outside", &in_host)
        }
        _ => {
            let lines: String = (0..*value % 9).map(|line| format!("{line}\n")).collect();
            fs::write(journal.join("log"), lines)
        }
    }
}
