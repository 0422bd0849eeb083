//! Opening without following, and mounts.

use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use super::{c_path, in_child, is_root, number, skipped};
use crate::mount::{self, Attributes};
use crate::process::{self, Namespaces, Side};
use crate::{credentials, descriptor, handle};

/// Creates a directory with a file, links of every kind, and a secret next to it.
fn tree() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    fs::create_dir_all(root.join("directory/below")).unwrap();
    fs::write(root.join("directory/file"), "inside").unwrap();
    fs::write(place.path().join("secret"), "outside").unwrap();
    symlink("directory", root.join("link")).unwrap();
    symlink("directory/file", root.join("file-link")).unwrap();
    symlink(place.path(), root.join("absolute")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    place
}

#[test]
fn opening_beneath_never_leaves_and_never_follows() {
    let place = tree();
    let root: OwnedFd = fs::File::open(place.path().join("root")).unwrap().into();
    let cases = [
        ("directory/file", 0),
        ("directory/./below/../file", 0),
        (".", 0),
        ("missing", libc::ENOENT),
        ("..", libc::EXDEV),
        ("../secret", libc::EXDEV),
        ("directory/../../secret", libc::EXDEV),
        ("/etc/passwd", libc::EXDEV),
        ("/", libc::EXDEV),
        ("link/file", libc::ELOOP),
        ("link", libc::ELOOP),
        ("file-link", libc::ELOOP),
        ("absolute/secret", libc::ELOOP),
        ("up/secret", libc::ELOOP),
        ("magic/etc/passwd", libc::ELOOP),
        ("", libc::ENOENT),
    ];
    for flags in [libc::O_RDONLY, libc::O_PATH] {
        for (path, expected) in cases {
            let c = c_path(Path::new(path));
            let opened = descriptor::open_beneath(root.as_fd(), &c, flags, 0);
            match expected {
                0 => drop(opened.unwrap()),
                error => assert_eq!(number(opened), error, "{path:?}"),
            }
        }
    }
    let create = libc::O_WRONLY | libc::O_CREAT;
    for path in [c"file-link", c"up/new", c"../new", c"absolute/new"] {
        assert!(descriptor::open_beneath(root.as_fd(), path, create, 0o600).is_err());
    }
    assert!(!place.path().join("new").exists());
    assert_eq!(
        fs::read(place.path().join("root/directory/file")).unwrap(),
        b"inside"
    );
}

#[test]
fn a_place_is_opened_without_following() {
    let place = tree();
    let open = |path: &Path| descriptor::open_place(None, &c_path(path));
    let root = place.path().canonicalize().unwrap().join("root");
    let opened = open(&root.join("directory/file")).unwrap();
    let facts = root.join("directory/file").metadata().unwrap();
    let identity = descriptor::identity(opened.as_fd()).unwrap();
    assert_eq!(
        (identity.device, identity.inode),
        (facts.dev(), facts.ino())
    );
    assert!(!identity.is_directory);
    let directory = open(&root.join("directory")).unwrap();
    assert!(
        descriptor::identity(directory.as_fd())
            .unwrap()
            .is_directory
    );
    for path in ["link", "link/file", "file-link", "absolute", "up", "magic"] {
        assert_eq!(number(open(&root.join(path))), libc::ELOOP, "{path}");
    }
    for path in [
        "/proc/self/exe",
        "/proc/self/cwd",
        "/proc/self/fd/0",
        "/proc/self/root/etc",
    ] {
        assert_eq!(number(open(Path::new(path))), libc::ELOOP, "{path}");
    }
    // A place is not opened for reading.
    assert_eq!(
        number(descriptor::read(opened.as_fd(), &mut [0])),
        libc::EBADF
    );
}

#[test]
fn directories_and_links_are_made_and_removed() {
    let place = tempfile::tempdir().unwrap();
    let root: OwnedFd = fs::File::open(place.path()).unwrap().into();
    descriptor::make_directory(root.as_fd(), c"made", 0o700).unwrap();
    descriptor::make_directory(root.as_fd(), c"made", 0o700).unwrap();
    descriptor::make_link(root.as_fd(), c"made/link", c"../nowhere").unwrap();
    let to = fs::read_link(place.path().join("made/link")).unwrap();
    assert_eq!(to, Path::new("../nowhere"));
    let again = descriptor::make_link(root.as_fd(), c"made/link", c"elsewhere");
    assert_eq!(number(again), libc::EEXIST);
    let full = descriptor::remove_directory(root.as_fd(), c"made");
    assert_eq!(number(full), libc::ENOTEMPTY);
    fs::remove_file(place.path().join("made/link")).unwrap();
    descriptor::remove_directory(root.as_fd(), c"made").unwrap();
    assert!(!place.path().join("made").exists());
}

/// Runs in mount and other namespaces of its own, as the same user.
pub(super) fn in_namespaces(body: impl FnOnce()) {
    // From a single-threaded process, as the launcher is.
    in_child(|| {
        let kinds = if is_root() {
            Namespaces::ALL_BUT_USER
        } else {
            Namespaces::ALL
        };
        let (ready, go) = descriptor::pipe().unwrap();
        // Asked for before there is a namespace in which it means nothing.
        let own = fs::metadata("/proc/self").unwrap();
        match process::divide(kinds, None) {
            Ok(Side::Child) => {
                drop(go);
                let status = super::guarded(|| {
                    assert_eq!(descriptor::read(ready.as_fd(), &mut [0]).unwrap(), 1);
                    body();
                    0
                });
                process::exit_now(status)
            }
            Ok(Side::Parent(child)) => {
                if !is_root() {
                    map_own_ids(child.pid, own.uid(), own.gid());
                }
                descriptor::write_all(&go, b"g").unwrap();
                let waited = process::wait(Some(child.pid), true).unwrap().unwrap();
                assert_eq!(waited.change, process::Change::Exited(0));
            }
            Err(error) => skipped(&format!("no namespaces can be made: {error}")),
        }
    });
}

fn map_own_ids(pid: u32, uid: u32, gid: u32) {
    fs::write(format!("/proc/{pid}/uid_map"), format!("{uid} {uid} 1")).unwrap();
    fs::write(format!("/proc/{pid}/setgroups"), "deny").unwrap();
    fs::write(format!("/proc/{pid}/gid_map"), format!("{gid} {gid} 1")).unwrap();
}

#[test]
fn mounts_are_made_detached_and_hold_their_attributes() {
    let place = tempfile::tempdir().unwrap();
    let (path, file) = (c_path(place.path()), place.path().join("file"));
    in_namespaces(|| {
        mount::make_all_private().unwrap();
        let tree = mount::memory_tree(
            c"65536",
            c"16",
            c"0755",
            Attributes::NO_SETUID.and(Attributes::NO_DEVICES),
        )
        .unwrap();
        let at = descriptor::open_place(None, &path).unwrap();
        mount::attach(tree.as_fd(), at.as_fd(), c"").unwrap();
        fs::write(&file, "there").unwrap();
        let large = fs::write(place.path().join("large"), vec![0; 100_000]);
        assert_eq!(number(large), libc::ENOSPC);
        mount::restrict(tree.as_fd(), Attributes::READ_ONLY, None).unwrap();
        assert_eq!(number(fs::write(&file, "changed")), libc::EROFS);
        // A copy has attributes of its own, and shows the same files.
        let copied = mount::copy(tree.as_fd()).unwrap();
        let copy_of_file =
            descriptor::open_beneath(copied.as_fd(), c"file", libc::O_RDONLY, 0).unwrap();
        let mut content = [0_u8; 8];
        assert_eq!(
            descriptor::read(copy_of_file.as_fd(), &mut content).unwrap(),
            5
        );
        mount::detach(tree.as_fd()).unwrap();
        assert!(!file.exists(), "what was beneath is seen again");
    });
    assert!(!file.exists());
}

#[test]
fn a_new_root_leaves_nothing_of_the_old_one() {
    in_namespaces(|| {
        mount::make_all_private().unwrap();
        let none = Attributes::NO_SETUID;
        let root = mount::memory_tree(c"65536", c"16", c"0755", none).unwrap();
        mount::attach(root.as_fd(), root.as_fd(), c"/").unwrap();
        descriptor::make_directory(root.as_fd(), c"only", 0o755).unwrap();
        mount::become_root(&root).unwrap();
        let names: Vec<_> = fs::read_dir("/")
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["only"]);
        assert!(fs::read_dir("/..").unwrap().count() == 1);
        assert!(!Path::new("/etc").exists());
    });
}

#[test]
fn an_option_that_no_file_system_knows_is_an_error() {
    in_namespaces(|| {
        let made = mount::make(c"tmpfs", &[(c"nonsense", None)], Attributes::NO_SETUID);
        assert_eq!(number(made), libc::EINVAL);
        let made = mount::make(c"nonsense", &[], Attributes::NO_SETUID);
        assert_eq!(number(made), libc::ENODEV);
        assert!(credentials::set_host_name(b"inside").is_ok());
        assert!(credentials::leave_namespaces(libc::CLONE_NEWNET).is_ok());
        assert!(crate::network::with_loopback().is_ok());
    });
}

/// Two names of a file have one handle; another file, and a symbolic link to one, have others.
#[test]
fn a_handle_is_the_inodes() {
    let place = tree();
    let root = place.path().join("root");
    fs::hard_link(root.join("directory/file"), root.join("further")).unwrap();
    fs::write(root.join("other"), "inside").unwrap();
    symlink("other", root.join("to-other")).unwrap();
    let opened = OwnedFd::from(fs::File::open(&root).unwrap());
    let of = |name: &str| handle::of(opened.as_fd(), &CString::new(name).unwrap());
    let first = match of("directory/file") {
        Ok(first) => first,
        Err(error) => return skipped(&format!("no handles here: {error}")),
    };
    assert!(!first.bytes.is_empty());
    assert_eq!(of("further").unwrap(), first);
    let (other, link) = (of("other").unwrap(), of("to-other").unwrap());
    assert!(other != first && link != other);
    assert_eq!(other.mount, first.mount);
    let missing = of("missing").unwrap_err();
    assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
}
