use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;

use super::mount;
use crate::mountinfo::rendering::{line, option};
use crate::{MountPoint, parse_mounts};

/// The path, kind and options of a mount.
type Facts = (&'static [u8], &'static str, &'static str);

const WHOLE: &[u8] = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro";

#[test]
fn mounts_are_read_with_their_escapes() {
    let cases: [(&[u8], Option<Facts>); 20] = [
        (WHOLE, Some((b"/", "ext4", "rw,errors=remount-ro"))),
        (
            b"30 22 0:26 / /proc rw - proc proc rw",
            Some((b"/proc", "proc", "rw")),
        ),
        (
            b"31 22 0:27 / /a\\040b\\011c\\012d\\134e rw shared:1 master:2 - tmpfs none rw",
            Some((b"/a b\tc\nd\\e", "tmpfs", "rw")),
        ),
        // A backslash that was in the name does not begin an escape.
        (
            b"31 22 0:27 / /a\\134040 rw - tmpfs none rw",
            Some((b"/a\\040", "tmpfs", "rw")),
        ),
        // Names that are not text, and their likes that are.
        (
            b"31 22 0:27 / /a\xff\xfe/b rw - tmpfs none rw",
            Some((b"/a\xff\xfe/b", "tmpfs", "rw")),
        ),
        (
            b"31 22 0:27 / /a\xef\xbf\xbd rw - tmpfs none rw",
            Some((b"/a\xef\xbf\xbd", "tmpfs", "rw")),
        ),
        (
            b"31 22 0:27 / /a\\377\\000\\043 rw - tmpfs none rw",
            Some((b"/a\xff\0#", "tmpfs", "rw")),
        ),
        // Not every backslash begins an escape of three octal digits.
        (
            b"31 22 0:27 / /a\\04 rw - tmpfs none rw",
            Some((b"/a\\04", "tmpfs", "rw")),
        ),
        (
            b"31 22 0:27 / /a\\ rw - tmpfs none rw",
            Some((b"/a\\", "tmpfs", "rw")),
        ),
        (
            b"31 22 0:27 / /a\\999 rw - tmpfs none rw",
            Some((b"/a\\999", "tmpfs", "rw")),
        ),
        (
            b"31 22 0:27 / /a\\777 rw - tmpfs none rw",
            Some((b"/a\\777", "tmpfs", "rw")),
        ),
        (
            b"31 22 0:27 / /a\\+12 rw - tmpfs none rw",
            Some((b"/a\\+12", "tmpfs", "rw")),
        ),
        // The mark also stands in a path, and as a name where it is none.
        (
            b"31 22 0:27 / /a\\040-\\040b rw - tmpfs none rw",
            Some((b"/a - b", "tmpfs", "rw")),
        ),
        (
            b"31 22 0:27 - /a rw - tmpfs - rw",
            Some((b"/a", "tmpfs", "rw")),
        ),
        // The kind has its escapes, the options keep theirs.
        (
            b"31 22 0:27 / /a rw - fuse.a\\040b\\043 none rw,x=\\054memory",
            Some((b"/a", "fuse.a b#", "rw,x=\\054memory")),
        ),
        (
            b"31 22 0:27 / /a rw - tmpfs none",
            Some((b"/a", "tmpfs", "")),
        ),
        (b"31 22 0:27 / /a rw shared:1", None),
        (b"31 22 - tmpfs none rw", None),
        (b"", None),
        (b"nonsense", None),
    ];
    for (line, expected) in cases {
        let expected: Vec<_> = expected
            .map(|(path, kind, options)| mount(Path::new(OsStr::from_bytes(path)), kind, options))
            .into_iter()
            .collect();
        assert_eq!(parse_mounts(line), expected, "{}", line.escape_ascii());
    }
}

#[test]
fn odd_lines_do_not_hide_others() {
    let text = b"22 1 8:1 / / rw - ext4 /dev/a rw\n\nnonsense \xff\n23 1 8:1 / /b rw - ext4 b rw\n";
    let paths: Vec<PathBuf> = parse_mounts(text).into_iter().map(|one| one.path).collect();
    assert_eq!(paths, [PathBuf::from("/"), PathBuf::from("/b")]);
}

#[test]
fn an_option_is_a_whole_word_of_them() {
    let cases = [
        ("rw,memory", true),
        ("memory", true),
        ("rw,memory,x", true),
        ("rw,memory_like", false),
        ("rw,release_agent=/x\\054memory", false),
        ("", false),
    ];
    for (options, expected) in cases {
        let mount = mount(Path::new("/"), "cgroup", options);
        assert_eq!(mount.has_option("memory"), expected, "{options}");
    }
}

/// Generates a name of bytes, mostly of special ones.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let special = proptest::sample::select(b" \t\n\\#-01274,=/".as_slice());
    vec(prop_oneof![1 => special, 1 => any::<u8>()], 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]
    #[test]
    fn what_the_kernel_writes_is_read_as_it_was(
        mounts in vec((name(), name(), name(), 0_usize..5), 0..6),
    ) {
        let mut list = Vec::new();
        let mut expected = Vec::new();
        for (path, source, value, tags) in &mounts {
            let path = [b"/", path.as_slice()].concat();
            let options = [b"rw,".as_slice(), &option("x", value)].concat();
            list.extend(line(&path, b"fuse.a b", source, &options, *tags));
            expected.push(MountPoint {
                path: PathBuf::from(OsStr::from_bytes(&path)),
                kind: "fuse.a b".to_owned(),
                options: OsStr::from_bytes(&options).to_owned(),
            });
        }
        prop_assert_eq!(parse_mounts(&list), expected);
    }
}
