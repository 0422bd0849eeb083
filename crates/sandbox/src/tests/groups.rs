use std::fs;
use std::path::{Path, PathBuf};

use atoll_model::RunId;

use super::{host, limits, mount};
use crate::groups::Groups;
use crate::held::{First, Held, Unified, detect};

/// Makes a directory that looks like a mount of control groups.
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

const ON: &str = "cgroup.subtree_control";
const AVAILABLE: &str = "cgroup.controllers";

/// A group's directory, its available controllers, those that are on, and its members. All but
/// the root group have `cgroup.events`.
type Group = (&'static str, &'static str, &'static str, &'static [Process]);

#[derive(Clone, Copy)]
enum Process {
    This,
    Other,
}

/// Makes a hierarchy, and a host whose own group is the last of it.
fn hierarchy(top_is_there: bool, list: &[Group]) -> (tempfile::TempDir, crate::Host) {
    let place = tempfile::tempdir().unwrap();
    for (group, available, on, processes) in list {
        let directory = place.path().join(group);
        fs::create_dir_all(&directory).unwrap();
        let processes = processes.iter().map(|one| match one {
            Process::This => format!("{}\n", std::process::id()),
            Process::Other => "1\n".to_owned(),
        });
        let write = |name: &str, content: &str| fs::write(directory.join(name), content).unwrap();
        write(AVAILABLE, available);
        write(ON, on);
        write("cgroup.procs", &processes.collect::<String>());
        if !group.is_empty() || !top_is_there {
            write("cgroup.events", "populated 1\n");
        }
    }
    let mut host = host();
    host.mounts = vec![mount(place.path(), "cgroup2", "rw,nsdelegate")];
    let own = list.last().unwrap().0;
    host.groups = groups(&[("", &format!("/{own}"))]);
    (place, host)
}

/// The expected directory, whether processor time is limited, and the preparation; or words of
/// the reason.
type Expected = Result<(&'static str, bool, First), &'static str>;

fn check_unified(top_is_there: bool, list: &[Group], expected: Expected) {
    let (place, host) = hierarchy(top_is_there, list);
    let names: Vec<&str> = list.iter().map(|one| one.0).collect();
    match (detect(&host), expected) {
        (Held::Unified(found), Ok((parent, cpu, first))) => {
            let parent = place
                .path()
                .components()
                .chain(Path::new(parent).components());
            let parent = parent.collect();
            assert_eq!(found, Unified { parent, cpu, first }, "{names:?}");
            let slash = found.parent.to_string_lossy().ends_with('/');
            assert!(!slash, "{found:?}");
        }
        (Held::Nowhere(why), Err(words)) => assert!(why.contains(words), "{names:?}: {why}"),
        (other, _) => panic!("{names:?}: {other:?}"),
    }
}

#[test]
fn the_nearest_group_with_the_controllers_on_is_used() {
    use Process::{Other, This};
    let none = "no control group is delegated";
    let leaf = ("a/b", BOTH, "", [This, Other].as_slice());
    check_unified(
        true,
        &[
            ("", BOTH, BOTH, &[]),
            ("a", BOTH, BOTH, &[]),
            ("a/b", BOTH, BOTH, &[]),
        ],
        Ok(("a/b", true, First::Nothing)),
    );
    check_unified(
        true,
        &[("", BOTH, BOTH, &[]), ("a", BOTH, BOTH, &[]), leaf],
        Ok(("a", true, First::Nothing)),
    );
    check_unified(
        false,
        &[
            ("", BOTH, BOTH, &[]),
            ("a", BOTH, "memory pids\n", &[]),
            leaf,
        ],
        Ok(("a", false, First::Nothing)),
    );
    check_unified(
        true,
        &[
            ("", "cpu io\n", "cpu\n", &[]),
            ("a", "cpu\n", "", &[]),
            ("a/b", "cpu\n", "", &[This]),
        ],
        Err(none),
    );
    check_unified(
        false,
        &[
            ("", BOTH, "memory\n", &[Other]),
            ("a", "memory\n", "", &[]),
            ("a/b", "memory\n", "", &[This]),
        ],
        Err(none),
    );
}

#[test]
fn controllers_are_switched_on_where_that_takes_nothing_from_others() {
    use Process::{Other, This};
    let shared = "other processes are in the control group";
    // At the top, whoever is there: for what is missing too.
    let top = [This, Other].as_slice();
    check_unified(
        true,
        &[("", BOTH, "", top)],
        Ok(("", true, First::SwitchOn)),
    );
    check_unified(
        true,
        &[("", BOTH, "memory pids\n", top)],
        Ok(("", true, First::SwitchOn)),
    );
    check_unified(
        true,
        &[("", BOTH, BOTH, top)],
        Ok(("", true, First::Nothing)),
    );
    check_unified(
        true,
        &[("", "memory pids\n", "", &[]), ("a", "", "", &[This])],
        Ok(("", false, First::SwitchOn)),
    );
    // Elsewhere only by leaving, which Atoll can do for itself alone.
    check_unified(
        false,
        &[("", BOTH, "", &[This])],
        Ok(("", true, First::Leave)),
    );
    check_unified(
        false,
        &[("", "", "", &[]), ("a", "memory pids\n", "", &[This])],
        Ok(("a", false, First::Leave)),
    );
    check_unified(false, &[("", BOTH, "", &[This, Other])], Err(shared));
    // The group for Atoll's own processes gets none beneath.
    check_unified(
        false,
        &[("", BOTH, BOTH, &[]), ("atoll", BOTH, "", &[This])],
        Ok(("", true, First::Nothing)),
    );
}

#[test]
fn a_group_outside_of_what_is_mounted_is_not_used() {
    let (_place, mut host) = hierarchy(true, &[("", BOTH, BOTH, &[])]);
    host.groups = groups(&[("", "/../elsewhere")]);
    assert!(matches!(detect(&host), Held::Nowhere(_)));
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
    use crate::enforcement::Swap;
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
            true => Held::Unified(Unified {
                parent: place.path().to_path_buf(),
                cpu: true,
                first: First::Nothing,
            }),
            false => Held::Separate {
                memory: place.path().join("memory"),
                pids: place.path().join("pids"),
                cpu: None,
            },
        };
        let planned = Groups::plan(&held, &run()).unwrap();
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
    assert!(Groups::plan(&held, &run()).is_none());
}

#[test]
fn groups_whose_limits_cannot_be_set_are_removed_again() {
    // An ordinary directory gets no files of its own when it is made.
    let place = place(&["memory", "pids"], &[]);
    let path = |name: &str| place.path().join(name);
    let cases = [
        Held::Unified(Unified {
            parent: place.path().to_path_buf(),
            cpu: true,
            first: First::Nothing,
        }),
        Held::Separate {
            memory: path("memory"),
            pids: path("pids"),
            cpu: None,
        },
    ];
    for held in cases {
        let planned = Groups::plan(&held, &run()).unwrap();
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
