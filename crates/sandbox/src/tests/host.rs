use std::path::{Path, PathBuf};

use super::{host, mount};
use crate::host::{parse_groups, parse_mounts};

#[test]
fn mounts_are_read_with_their_escapes() {
    /// A line; the path, kind and options in it.
    type Case = (
        &'static str,
        Option<(&'static str, &'static str, &'static str)>,
    );
    let cases: [Case; 13] = [
        (
            "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro",
            Some(("/", "ext4", "rw,errors=remount-ro")),
        ),
        (
            "30 22 0:26 / /proc rw - proc proc rw",
            Some(("/proc", "proc", "rw")),
        ),
        (
            "31 22 0:27 / /a\\040b\\011c\\012d\\134e rw shared:1 master:2 - tmpfs none rw",
            Some(("/a b\tc\nd\\e", "tmpfs", "rw")),
        ),
        // Not every backslash begins an escape of three octal digits.
        (
            "31 22 0:27 / /a\\04 rw - tmpfs none rw",
            Some(("/a\\04", "tmpfs", "rw")),
        ),
        (
            "31 22 0:27 / /a\\ rw - tmpfs none rw",
            Some(("/a\\", "tmpfs", "rw")),
        ),
        (
            "31 22 0:27 / /a\\999 rw - tmpfs none rw",
            Some(("/a\\999", "tmpfs", "rw")),
        ),
        (
            "31 22 0:27 / /a\\777 rw - tmpfs none rw",
            Some(("/a\\777", "tmpfs", "rw")),
        ),
        // The mark also stands in a path.
        (
            "31 22 0:27 / /a\\040-\\040b rw - tmpfs none rw",
            Some(("/a - b", "tmpfs", "rw")),
        ),
        ("31 22 0:27 / /a rw - tmpfs none", Some(("/a", "tmpfs", ""))),
        ("31 22 0:27 / /a rw shared:1", None),
        ("31 22 - tmpfs none rw", None),
        ("", None),
        ("nonsense", None),
    ];
    for (line, expected) in cases {
        let expected: Vec<_> = expected
            .map(|(path, kind, options)| mount(Path::new(path), kind, options))
            .into_iter()
            .collect();
        assert_eq!(parse_mounts(line), expected, "{line}");
    }
}

#[test]
fn odd_lines_do_not_hide_others() {
    let text = "22 1 8:1 / / rw - ext4 /dev/a rw\n\nnonsense\n23 1 8:1 / /b rw - ext4 /dev/b rw\n";
    let paths: Vec<PathBuf> = parse_mounts(text).into_iter().map(|one| one.path).collect();
    assert_eq!(paths, [PathBuf::from("/"), PathBuf::from("/b")]);
}

#[test]
fn control_groups_are_read() {
    let cases: [(&str, &[(&str, &str)]); 6] = [
        ("0::/user.slice/a\n", &[("", "/user.slice/a")]),
        (
            "5:memory:/m\n4:cpu,cpuacct:/c\n0::/u\n",
            &[("memory", "/m"), ("cpu,cpuacct", "/c"), ("", "/u")],
        ),
        ("1:name=systemd:/s", &[("name=systemd", "/s")]),
        ("0::/with:colon", &[("", "/with:colon")]),
        ("0:", &[]),
        ("", &[]),
    ];
    for (text, expected) in cases {
        let expected: Vec<_> = expected
            .iter()
            .map(|(one, path)| ((*one).to_owned(), PathBuf::from(path)))
            .collect();
        assert_eq!(parse_groups(text), expected, "{text:?}");
    }
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
