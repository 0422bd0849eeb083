use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{host, mount};
use crate::host::parse_groups;

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
