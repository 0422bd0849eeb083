//! Finding programs, starting them, waiting for them, signals.

use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::{call, ending_of, in_child, number, open_numbers};
use crate::process::{self, Change, Program};
use crate::{credentials, descriptor, socket};

fn texts(list: &[&str]) -> Vec<CString> {
    list.iter()
        .map(|text| CString::new(*text).unwrap())
        .collect()
}

/// Creates two directories: `first` with programs that cannot be executed, `second` with one that
/// exits with status 7.
fn programs() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let program = "#!/bin/sh\nexit 7\n";
    for (name, mode) in [
        ("first/locked", 0o644),
        ("first/both", 0o644),
        ("first/empty", 0o755),
        ("second/runs", 0o755),
        ("second/both", 0o755),
    ] {
        fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        fs::write(
            path(name),
            if name.ends_with("empty") { "" } else { program },
        )
        .unwrap();
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(path("first/runs")).unwrap();
    fs::create_dir(path("first/directory")).unwrap();
    fs::write(path("file"), "").unwrap();
    symlink("nowhere", path("first/dangling")).unwrap();
    symlink("turning", path("first/turning")).unwrap();
    place
}

#[test]
fn programs_are_found_as_execvp_finds_them() {
    let place = programs();
    let root = place.path().to_str().unwrap();
    let both = format!("{root}/first:{root}/second");
    let second = format!("{root}/second");
    // The status of a program that ran, or the error's number from 100 on.
    let failed = |error: i32| error as u8 + 100;
    let cases = [
        ("runs", second.clone(), 7),
        ("runs", format!("{root}/missing:{second}"), 7),
        ("runs", format!("{root}/file:{second}"), 7),
        ("runs", format!("{second}/:"), 7),
        // What cannot be executed does not hide what can.
        ("both", both.clone(), 7),
        ("runs", both.clone(), 7),
        ("locked", both.clone(), failed(libc::EACCES)),
        ("directory", both.clone(), failed(libc::EACCES)),
        ("missing", both.clone(), failed(libc::ENOENT)),
        ("dangling", both.clone(), failed(libc::ENOENT)),
        ("turning", both.clone(), failed(libc::ELOOP)),
        ("empty", both.clone(), failed(libc::ENOEXEC)),
        ("", both.clone(), failed(libc::ENOENT)),
        ("runs", String::new(), failed(libc::ENOENT)),
        // The current directory is the program's to fill: never a place to look.
        ("runs", "second".to_owned(), failed(libc::ENOENT)),
        ("runs", ".".to_owned(), failed(libc::ENOENT)),
        ("runs", "::".to_owned(), failed(libc::ENOENT)),
        // A name with a slash is a path, whatever is searched.
        ("second/runs", String::new(), 7),
        ("./second/runs", both.clone(), 7),
        ("first/locked", both.clone(), failed(libc::EACCES)),
        ("/second/runs", both, failed(libc::ENOENT)),
    ];
    for (name, search, expected) in cases {
        let program = Program::new(texts(&[name]), Vec::new(), search.as_bytes()).unwrap();
        let ending = ending_of(|| {
            process::change_directory(&super::c_path(place.path())).unwrap();
            failed(program.execute().raw_os_error().unwrap())
        });
        assert_eq!(ending, Change::Exited(expected), "{name:?} in {search:?}");
    }
}

#[test]
fn a_program_needs_a_name() {
    assert!(Program::new(Vec::new(), Vec::new(), b"/bin").is_none());
}

#[test]
fn a_program_gets_its_arguments_and_environment_only() {
    let script = "test \"$1|$2|$ONE|$HOME\" = 'a b||1|'";
    let arguments = texts(&["/bin/sh", "-c", script, "sh", "a b"]);
    let program = Program::new(arguments, texts(&["ONE=1"]), b"").unwrap();
    assert_eq!(
        ending_of(|| {
            let _ = program.execute();
            99
        }),
        Change::Exited(0)
    );
}

#[test]
fn endings_are_told_apart() {
    assert_eq!(ending_of(|| 0), Change::Exited(0));
    assert_eq!(ending_of(|| 255), Change::Exited(255));
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGUSR1] {
        let ending = ending_of(|| {
            // SAFETY: integers only.
            unsafe { libc::raise(signal) };
            0
        });
        assert_eq!(ending, Change::Signalled(signal as u8));
    }
}

#[test]
fn a_stop_is_a_change_and_a_descriptor_stands_for_the_process() {
    // In a process of its own, which has no other children.
    in_child(|| {
        let pid = process::fork(|| {
            // SAFETY: integers only.
            unsafe { libc::raise(libc::SIGSTOP) };
            3
        })
        .unwrap();
        let opened = call(libc::SYS_pidfd_open, [u64::from(pid), 0, 0, 0, 0, 0]).unwrap();
        let descriptor = descriptor::owned(opened as i32);
        let waited = process::wait(None, true).unwrap().unwrap();
        assert_eq!(
            (waited.pid, waited.change),
            (pid, Change::Stopped(libc::SIGSTOP as u8))
        );
        assert!(
            process::wait(Some(pid), false).unwrap().is_none(),
            "nothing new"
        );
        process::signal(descriptor.as_fd(), libc::SIGCONT).unwrap();
        let waited = process::wait(Some(pid), true).unwrap().unwrap();
        assert_eq!(waited.change, Change::Exited(3));
        assert!(waited.memory_peak_bytes > 0);
        assert_eq!(number(process::wait(Some(pid), true)), libc::ECHILD);
        // Who has ended already is fine.
        process::signal(descriptor.as_fd(), libc::SIGKILL).unwrap();
    });
}

#[test]
fn groups_are_signalled_but_never_everybody() {
    for group in [0, 1] {
        let error = process::signal_group(group, 0).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{group}");
    }
    process::signal_group(0x3fff_fff0, libc::SIGTERM).unwrap();
    let (ready, told) = descriptor::pipe().unwrap();
    let pid = process::fork(|| {
        process::lead_group(0).unwrap();
        descriptor::write_all(&told, b"x").unwrap();
        std::thread::sleep(std::time::Duration::from_secs(20));
        0
    })
    .unwrap();
    descriptor::read(ready.as_fd(), &mut [0]).unwrap();
    assert_eq!(number(process::signal_group(pid, 200)), libc::EINVAL);
    process::signal_group(pid, libc::SIGTERM).unwrap();
    let waited = process::wait(Some(pid), true).unwrap().unwrap();
    assert_eq!(waited.change, Change::Signalled(libc::SIGTERM as u8));
}

#[test]
fn signals_come_by_a_descriptor_until_they_are_reset() {
    in_child(|| {
        let wanted = [libc::SIGUSR1, libc::SIGTERM];
        let signals = process::signals_as_descriptor(&wanted).unwrap();
        assert_eq!(process::next_signal(signals.as_fd()).unwrap(), None);
        for signal in wanted {
            // SAFETY: integers only.
            unsafe { libc::raise(signal) };
        }
        let mut seen: Vec<i32> = (0..2)
            .filter_map(|_| process::next_signal(signals.as_fd()).unwrap())
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, [libc::SIGUSR1, libc::SIGTERM]);
        process::ignore_signal(libc::SIGUSR2);
        // SAFETY: integers only.
        unsafe { libc::raise(libc::SIGUSR2) };
        process::reset_signals().unwrap();
        let pid = process::fork(|| {
            // SAFETY: integers only.
            unsafe { libc::raise(libc::SIGUSR1) };
            0
        })
        .unwrap();
        let change = process::wait(Some(pid), true).unwrap().unwrap().change;
        assert_eq!(change, Change::Signalled(libc::SIGUSR1 as u8));
    });
}

#[test]
fn a_program_from_memory_gets_its_descriptors() {
    let shell = fs::read("/bin/sh").unwrap();
    in_child(|| {
        // What the test itself was started with goes no further.
        descriptor::close_on_exec_from(3).unwrap();
        let memory = descriptor::sealed_memory(c"shell", &shell).unwrap();
        let (input, typed) = descriptor::pipe().unwrap();
        let (output, told) = descriptor::pipe().unwrap();
        let (near, far) = socket::pair().unwrap();
        let null: OwnedFd = fs::File::open("/dev/null").unwrap().into();
        let standard = [input.as_fd(), told.as_fd(), null.as_fd(), far.as_fd()];
        let pid = process::spawn_from_memory(&memory, c"name", &standard).unwrap();
        drop((told, far));
        let script = b"echo $0 $#; for fd in 0 1 2 3 4 5 6 7 8 9 32 33 34 35 36 37; do \
                       test -e /proc/$$/fd/$fd && echo $fd; done; exit 5\n";
        descriptor::write_all(&typed, script).unwrap();
        drop(typed);
        let mut text = String::new();
        fs::File::from(output).read_to_string(&mut text).unwrap();
        assert_eq!(text, "name 0\n0\n1\n2\n3\n");
        let change = process::wait(Some(pid), true).unwrap().unwrap().change;
        assert_eq!(change, Change::Exited(5));
        assert_eq!(socket::receive(near.as_fd(), &mut [0]).unwrap().0, 0);
    });
}

#[test]
fn starting_a_program_leaves_no_descriptors_behind() {
    in_child(|| {
        let null: OwnedFd = fs::File::open("/dev/null").unwrap().into();
        let memory = descriptor::sealed_memory(c"no program", b"no program").unwrap();
        let before = open_numbers();
        let standard = [null.as_fd(); 4];
        let started = process::spawn_from_memory(&memory, c"name", &standard);
        assert_eq!(number(started), libc::ENOEXEC);
        assert_eq!(open_numbers(), before);
    });
}

#[test]
fn a_process_ends_with_its_parent() {
    let (alive, held) = descriptor::pipe().unwrap();
    in_child(|| {
        let (ready, told) = descriptor::pipe().unwrap();
        process::fork(|| {
            credentials::die_with_parent().unwrap();
            descriptor::write_all(&told, b"x").unwrap();
            std::thread::sleep(std::time::Duration::from_secs(60));
            0
        })
        .unwrap();
        descriptor::read(ready.as_fd(), &mut [0]).unwrap();
    });
    drop(held);
    // The end shows only when the grandchild is gone too.
    let ended = descriptor::wait_readable([Some(alive.as_fd())], Some(10_000)).unwrap();
    assert_eq!(ended, [true]);
}
