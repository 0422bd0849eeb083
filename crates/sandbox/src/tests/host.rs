use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use atoll_model::Mode;

use super::{host, mount};
use crate::host::{covers_processes, parse_groups};
use crate::{First, Held, Unified, forecast};

#[test]
fn control_groups_are_read() {
    let cases: [(&str, &[(&str, &str)]); 7] = [
        ("0::/user.slice/a\n", &[("", "/user.slice/a")]),
        (
            "5:memory:/m\n4:cpu,cpuacct:/c\n0::/u\n",
            &[("memory", "/m"), ("cpu,cpuacct", "/c"), ("", "/u")],
        ),
        ("1:name=systemd:/s", &[("name=systemd", "/s")]),
        ("0::/with:colon", &[("", "/with:colon")]),
        ("0::/with space\\040", &[("", "/with space\\040")]),
        ("0:", &[]),
        ("", &[]),
    ];
    for (text, expected) in cases {
        let expected: Vec<_> = expected
            .iter()
            .map(|(one, path)| ((*one).to_owned(), PathBuf::from(path)))
            .collect();
        assert_eq!(parse_groups(text.as_bytes()), expected, "{text:?}");
    }
    let path = PathBuf::from(OsStr::from_bytes(b"/not\xfftext"));
    let read = parse_groups(b"0::/not\xfftext\n");
    assert_eq!(read, [(String::new(), path)]);
}

#[test]
fn a_path_lies_on_the_innermost_and_last_mount() {
    let mut host = host();
    host.mounts = vec![
        mount(Path::new("/"), "ext4", ""),
        mount(Path::new("/home"), "xfs", ""),
        mount(Path::new("/home/a"), "nfs", ""),
        mount(Path::new("/home"), "btrfs", ""),
    ];
    let cases = [
        ("/etc", "ext4"),
        ("/home", "btrfs"),
        ("/home/b", "btrfs"),
        ("/home/a/deep", "nfs"),
        ("/homely", "ext4"),
    ];
    for (path, kind) in cases {
        assert_eq!(host.mount_of(Path::new(path)).unwrap().kind, kind, "{path}");
    }
    let within: Vec<_> = host
        .mounts_within(Path::new("/home"))
        .map(|one| &one.path)
        .collect();
    assert_eq!(within, [Path::new("/home/a")]);
    assert_eq!(host.mounts_within(Path::new("/hom")).count(), 0);
}

#[test]
fn covers_over_proc_are_seen() {
    let check = |paths: &[&str], expected: bool| {
        let mounts: Vec<_> = paths
            .iter()
            .map(|path| mount(Path::new(path), "tmpfs", ""))
            .collect();
        assert_eq!(covers_processes(&mounts), expected, "{paths:?}");
    };
    check(&["/", "/proc", "/process"], false);
    // What systemd mounts on every host.
    check(&["/proc", "/proc/sys/fs/binfmt_misc"], false);
    check(&["/proc", "/proc/fs/nfsd"], false);
    for covered in ["/proc/kcore", "/proc/sys", "/proc/acpi", "/proc/sys/fs"] {
        check(&["/proc", covered], true);
    }
}

#[test]
fn who_will_hold_which_limit_is_known_before() {
    let check = |held: &Held, memory: &str, cpu: &str| {
        let by = |limit: &str| {
            let all = forecast(held, Mode::Full, false);
            let one = all.iter().find(|one| one.limit == limit).cloned();
            one.expect(limit).by
        };
        assert_eq!((by("memory").as_str(), by("cpu").as_str()), (memory, cpu));
        assert_eq!(by("disk"), "supervisor, in part");
    };
    let unified = |cpu| {
        Held::Unified(Unified {
            parent: "/cg".into(),
            cpu,
            first: First::Nothing,
        })
    };
    let separate = |cpu: Option<&str>| Held::Separate {
        memory: "/cg/memory".into(),
        pids: "/cg/pids".into(),
        cpu: cpu.map(PathBuf::from),
    };
    check(&unified(true), "cgroup-v2", "cgroup-v2");
    check(&unified(false), "cgroup-v2", "none");
    check(&separate(Some("/cg/cpu")), "cgroup-v1", "cgroup-v1");
    check(&separate(None), "cgroup-v1", "none");
    check(&Held::Nowhere(String::new()), "supervisor, in part", "none");
}
