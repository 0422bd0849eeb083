use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use super::{host, mount};
use crate::leftovers::{groups_beneath, run_groups};

#[test]
fn groups_are_found_by_their_whole_name_wherever_they_are() {
    let place = tempfile::tempdir().unwrap();
    let found = [
        "atoll-261121-093012-k7qd",
        "a/b/atoll-261121-093012-k7qd",
        "a/atoll-261121-093013-0000",
        "atoll/x y/atoll-261121-093014-zzzz",
    ];
    let others = [
        "atoll-",
        "atoll-test",
        "atoll-261121-093012-k7q",
        "atoll-261121-093012-k7qdd",
        "atoll-261121-093012-K7QD",
        "atoll-261121-093012-k7qd.scope",
        "not-atoll-261121-093012-k7qd",
        "261121-093012-k7qd",
        // What a run itself may have there is not looked for.
        "a/atoll-261121-093013-0000/atoll-261121-093015-0000",
    ];
    for name in found.iter().chain(&others) {
        fs::create_dir_all(place.path().join(name)).unwrap();
    }
    fs::write(place.path().join("atoll-261121-093016-0000"), "").unwrap();
    let link = place.path().join("atoll-261121-093017-0000");
    symlink(place.path().join("a"), link).unwrap();
    let uid = fs::metadata(place.path()).unwrap().uid();
    let mut runs: Vec<String> = groups_beneath(place.path(), uid)
        .into_iter()
        .map(|group| group.run.to_string())
        .collect();
    runs.sort();
    let expected = [
        "261121-093012-k7qd",
        "261121-093012-k7qd",
        "261121-093013-0000",
        "261121-093014-zzzz",
    ];
    assert_eq!(runs, expected);
    assert_eq!(groups_beneath(place.path(), uid + 1), []);
    assert_eq!(groups_beneath(&place.path().join("missing"), uid), []);
}

#[test]
fn only_what_is_a_mount_of_groups_is_looked_through() {
    let place = tempfile::tempdir().unwrap();
    let group = place.path().join("atoll-261121-093012-k7qd");
    fs::create_dir(&group).unwrap();
    let mut host = host();
    host.uid = fs::metadata(&group).unwrap().uid();
    assert_eq!(groups_beneath(place.path(), host.uid).len(), 1);
    // An ordinary file system, whatever the list of mounts says.
    for (kind, options) in [("cgroup2", "rw"), ("cgroup", "rw,memory"), ("ext4", "rw")] {
        host.mounts = vec![mount(place.path(), kind, options)];
        assert_eq!(run_groups(&host), [], "{kind}");
    }
}
