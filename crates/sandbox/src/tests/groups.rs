use std::fs;
use std::path::{Path, PathBuf};

use atoll_model::RunId;

use super::{host, limits, mount};
use crate::groups::{Groups, Held, detect};

/// A directory that stands for a mount of control groups.
fn place(directories: &[&str], files: &[(&str, &str)]) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for directory in directories {
        fs::create_dir_all(place.path().join(directory)).unwrap();
    }
    for (name, content) in files {
        fs::write(place.path().join(name), content).unwrap();
    }
    place
}

fn groups(list: &[(&str, &str)]) -> Vec<(String, PathBuf)> {
    list.iter()
        .map(|(one, path)| ((*one).to_owned(), PathBuf::from(path)))
        .collect()
}

const BOTH: &str = "cpu memory pids\n";

#[test]
fn version_2_is_used_where_the_controllers_are() {
    /// The own group, files with their content, what is found.
    type Case = (
        &'static str,
        &'static [(&'static str, &'static str)],
        Option<&'static str>,
    );
    let cases: [Case; 6] = [
        // The nearest one wins; the top serves root.
        ("/a/b", &[("a/b/cgroup.subtree_control", BOTH)], Some("a/b")),
        (
            "/a/b",
            &[
                ("a/cgroup.subtree_control", BOTH),
                ("a/b/cgroup.subtree_control", ""),
            ],
            Some("a"),
        ),
        ("/a/b", &[("cgroup.subtree_control", BOTH)], Some("")),
        ("/", &[("cgroup.subtree_control", BOTH)], Some("")),
        ("/a/b", &[("cgroup.subtree_control", "memory\n")], None),
        ("/a/b", &[], None),
    ];
    for (own, files, expected) in cases {
        let place = place(&["a/b"], files);
        let mut host = host();
        host.mounts = vec![mount(place.path(), "cgroup2", "rw,nsdelegate")];
        host.groups = groups(&[("", own)]);
        match (detect(&host), expected) {
            (Held::Unified(found), Some(expected)) => {
                assert_eq!(found, place.path().join(expected), "{own} {files:?}");
            }
            (Held::Nowhere(_), None) => {}
            (other, _) => panic!("{own} {files:?}: {other:?}"),
        }
    }
}

#[test]
fn version_1_is_used_where_memory_and_pids_are() {
    let place = place(&["memory/own", "pids/own", "cpu/own"], &[]);
    let one = |name: &str, options: &str| mount(&place.path().join(name), "cgroup", options);
    let mut host = host();
    host.mounts = vec![
        one("memory", "rw,memory"),
        one("pids", "rw,pids"),
        one("cpu", "rw,cpu,cpuacct"),
    ];
    let all = [
        ("memory", "/own"),
        ("pids", "/own"),
        ("cpu,cpuacct", "/own"),
    ];
    host.groups = groups(&all);
    let path = |name: &str| place.path().join(name).join("own");
    let held = |cpu| Held::Separate {
        memory: path("memory"),
        pids: path("pids"),
        cpu,
    };
    assert_eq!(detect(&host), held(Some(path("cpu"))));
    host.groups = groups(&all[..2]);
    assert_eq!(detect(&host), held(None));
    // On hybrid hosts version 2 has no controllers.
    host.mounts
        .push(mount(&place.path().join("unified"), "cgroup2", "rw"));
    host.groups.push((String::new(), PathBuf::from("/own")));
    assert_eq!(detect(&host), held(None));
    host.groups = groups(&all[..1]);
    assert!(matches!(detect(&host), Held::Nowhere(_)));
    // A group outside of what is mounted here.
    host.groups = groups(&[("memory", "/elsewhere"), ("pids", "/own")]);
    assert!(matches!(detect(&host), Held::Nowhere(_)));
    // One outside of the own namespace, whose name leads out of the mount.
    for outside in ["/..", "/../elsewhere", "/../memory/own"] {
        host.groups = groups(&[("memory", outside), ("pids", "/own")]);
        assert!(matches!(detect(&host), Held::Nowhere(_)), "{outside}");
    }
    // "memory" is a word of the options, not a part of one.
    host.groups = groups(&all);
    host.mounts = vec![one("memory", "rw,memory_like"), one("pids", "rw,pids")];
    assert!(matches!(detect(&host), Held::Nowhere(_)));
}

#[test]
fn without_control_groups_the_reason_is_told() {
    let mut host = host();
    let why = |host: &crate::Host| match detect(host) {
        Held::Nowhere(why) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why(&host), "no control group is delegated to this user");
    host.uid = 0;
    assert_eq!(why(&host), "no memory and pids controllers were found");
}

#[test]
fn swap_that_nothing_counts_is_not_called_held() {
    use crate::native::Swap;
    let none = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
    let some = format!("{none}/dev/vdb partition 1048572 0 -2\n");
    for (counted, swaps, expected) in [
        (true, Some(some.as_str()), Swap::ByGroups),
        (false, Some(some.as_str()), Swap::NotHeld),
        (false, Some(none), Swap::HostHasNone),
        (false, None, Swap::NotHeld),
    ] {
        assert_eq!(Swap::from_facts(counted, swaps), expected, "{swaps:?}");
    }
    // A kernel without an account of swap has no such file in its groups.
    for (file, unified) in [
        ("memory.swap.max", true),
        ("memory.memsw.limit_in_bytes", false),
    ] {
        let place = place(&["memory", "pids"], &[]);
        let held = match unified {
            true => Held::Unified(place.path().to_path_buf()),
            false => Held::Separate {
                memory: place.path().join("memory"),
                pids: place.path().join("pids"),
                cpu: None,
            },
        };
        let planned = Groups::plan(&held, &run(), &limits()).unwrap();
        let group = planned.directories().first().unwrap();
        fs::create_dir(group).unwrap();
        assert!(!planned.counts_swap(), "{file}");
        fs::write(group.join(file), "").unwrap();
        assert!(planned.counts_swap(), "{file}");
    }
}

fn run() -> RunId {
    RunId::parse("261121-093012-k7qd").unwrap()
}

#[test]
fn nothing_is_made_where_nothing_is_held() {
    let held = Held::Nowhere("why".to_owned());
    assert!(Groups::plan(&held, &run(), &limits()).is_none());
}

#[test]
fn groups_whose_limits_cannot_be_set_are_removed_again() {
    // An ordinary directory gets no files of its own when it is made.
    let place = place(&["memory", "pids"], &[]);
    let path = |name: &str| place.path().join(name);
    let cases = [
        Held::Unified(place.path().to_path_buf()),
        Held::Separate {
            memory: path("memory"),
            pids: path("pids"),
            cpu: None,
        },
    ];
    for held in cases {
        let planned = Groups::plan(&held, &run(), &limits()).unwrap();
        assert!(planned.make(&limits()).is_err(), "{held:?}");
        for directory in [place.path(), &path("memory"), &path("pids")] {
            let names: Vec<PathBuf> = fs::read_dir(directory)
                .unwrap()
                .map(|one| one.unwrap().path())
                .collect();
            let left: Vec<&PathBuf> = names.iter().filter(|name| is_group(name)).collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

fn is_group(path: &Path) -> bool {
    path.file_name()
        .unwrap()
        .to_string_lossy()
        .starts_with("atoll-")
}
