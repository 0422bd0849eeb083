//! The kernel's list of mounts, in which whoever mounts chooses the names. The
//! first byte of the input chooses how many tags a line has.

#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use atoll_sandbox::{MountPoint, parse_mounts};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/sandbox/src/mountinfo/rendering.rs"]
mod rendering;

use rendering::{line, option};

fuzz_target!(|bytes: &[u8]| {
    // What is read of anything is read again from what the kernel writes of it.
    let read = parse_mounts(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!(read.len() <= lines, "{} of {lines} lines", read.len());
    let written: Vec<u8> = read.iter().flat_map(write).collect();
    assert_eq!(parse_mounts(&written), read);

    // Names of any bytes are read as they are, and no line says anything about
    // another one, whatever it holds.
    let Some((tags, rest)) = bytes.split_first() else {
        return;
    };
    let mut names = rest.split(|byte| *byte == 0);
    let mut name = || names.next().unwrap_or_default();
    let (path, kind, source, value, around) = (name(), name(), name(), name(), name());
    let path = [b"/", path].concat();
    let options = [b"rw,".as_slice(), &option("x", value)].concat();
    let one = line(&path, kind, source, &options, usize::from(tags % 5));
    let expected = MountPoint {
        path: PathBuf::from(OsString::from_vec(path)),
        kind: String::from_utf8_lossy(kind).into_owned(),
        options: OsString::from_vec(options),
    };
    let others = parse_mounts(around);
    let list = [around, b"\n", &one, around].concat();
    let all = [others.as_slice(), &[expected], &others].concat();
    assert_eq!(parse_mounts(&list), all);
});

fn write(mount: &MountPoint) -> Vec<u8> {
    line(
        mount.path.as_os_str().as_bytes(),
        mount.kind.as_bytes(),
        b"none",
        mount.options.as_bytes(),
        1,
    )
}
