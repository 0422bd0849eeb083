//! Tests of dropping rights: capabilities, limits, Landlock.

use std::fs;

use super::{c_path, in_child, is_root, number};
use crate::landlock::{self, Holds, Rights, Ruleset};
use crate::{credentials, memory, process};

/// Returns a field of this process's status.
fn status(name: &str) -> String {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{name}:")))
        .unwrap();
    line.split_once(':').unwrap().1.trim().to_owned()
}

#[test]
fn no_right_is_left_and_none_can_be_gained() {
    if !is_root() {
        super::skipped("only a process with capabilities can give them up");
        return;
    }
    in_child(|| {
        credentials::drop_rights(0).unwrap();
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status(set).trim_start_matches('0'), "", "{set}");
        }
        assert_eq!(status("NoNewPrivs"), "1");
        // SAFETY: prctl with integers.
        let bits = unsafe { libc::prctl(libc::PR_GET_SECUREBITS, 0, 0, 0, 0) };
        assert_eq!(bits, 0b1110_1111);
        // User id 0 is a number like any other.
        assert_eq!(number(credentials::set_host_name(b"x")), libc::EPERM);
        assert!(number(credentials::leave_namespaces(libc::CLONE_NEWNS)) == libc::EPERM);
        let pid = process::fork(|| u8::from(!status("CapEff").trim_start_matches('0').is_empty()))
            .unwrap();
        let change = process::wait(Some(pid), true).unwrap().unwrap().change;
        assert_eq!(change, process::Change::Exited(0));
    });
}

#[test]
fn another_user_is_nobody_of_before() {
    if !is_root() {
        super::skipped("only root can become another user");
        return;
    }
    in_child(|| {
        credentials::become_user(12_345, 23_456).unwrap();
        assert_eq!(status("Uid"), "12345\t12345\t12345\t12345");
        assert_eq!(status("Gid"), "23456\t23456\t23456\t23456");
        assert_eq!(status("Groups"), "");
        assert_eq!(number(credentials::become_user(0, 0)), libc::EPERM);
    });
}

#[test]
fn inspection_is_forbidden() {
    in_child(|| {
        credentials::forbid_inspection().unwrap();
        // SAFETY: prctl with integers.
        assert_eq!(unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) }, 0);
    });
}

/// Returns the kernel's flags of the mapping that has these bytes (proc_pid_smaps(5)).
fn flags_of(bytes: &[u8]) -> Vec<String> {
    let at = bytes.as_ptr().addr();
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let is_it = |line: &&str| {
        let span = line.split(' ').next().and_then(|span| span.split_once('-'));
        let address = |text| usize::from_str_radix(text, 16);
        span.is_some_and(|(first, end)| {
            address(first).is_ok_and(|first| first <= at) && address(end).is_ok_and(|end| at < end)
        })
    };
    let flags = text.lines().skip_while(|line| !is_it(line));
    let mut flags = flags.filter_map(|line| line.strip_prefix("VmFlags:"));
    let words = flags.next().unwrap().split_whitespace();
    words.map(str::to_owned).collect()
}

#[test]
fn memory_is_locked_wherever_a_secret_may_lie() {
    let page = || vec![1_u8; 1 << 20];
    let has = |bytes: &[u8], flag: &str| flags_of(bytes).iter().any(|one| one == flag);
    in_child(|| {
        let (mut one, other) = (page(), page());
        assert!(!has(&one, "lo") && !has(&other, "lo"));
        memory::lock(&mut one[5000..5016]).unwrap();
        assert!(has(&one[5000..], "lo") && has(&one[5000..], "dd"));
        assert!(!has(&one[500_000..], "lo"));
    });
}

#[test]
fn limits_hold_and_never_rise() {
    let cases = [
        (libc::RLIMIT_NOFILE, 64),
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_NPROC, 10_000),
        (libc::RLIMIT_DATA, 1 << 40),
    ];
    for (resource, value) in cases {
        in_child(|| {
            let first = credentials::limit_resource(resource, value).unwrap();
            assert!(first <= value);
            assert_eq!(limit(resource), (first, first));
            credentials::drop_rights(0)
                .or_else(|error| if is_root() { Err(error) } else { Ok(()) })
                .unwrap();
            // Higher than the hard limit: that one stays.
            let second =
                credentials::limit_resource(resource, first.saturating_mul(2) + 1).unwrap();
            assert_eq!(second, first);
            assert_eq!(limit(resource), (first, first));
        });
    }
    assert_eq!(number(credentials::limit_resource(999, 1)), libc::EINVAL);
}

fn limit(resource: u32) -> (u64, u64) {
    let mut now = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `now` lives through the call.
    assert_eq!(unsafe { libc::getrlimit(resource, &raw mut now) }, 0);
    (now.rlim_cur, now.rlim_max)
}

#[test]
fn landlock_gives_what_was_allowed_and_nothing_else() {
    let version = match landlock::version() {
        Ok(version) => version,
        Err(error) => return super::skipped(&format!("no Landlock: {error}")),
    };
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    for name in ["read", "change", "none", "run"] {
        fs::create_dir(path(name)).unwrap();
        fs::write(path(name).join("file"), "there").unwrap();
    }
    fs::copy("/bin/true", path("run/true")).unwrap();
    fs::copy("/bin/true", path("read/true")).unwrap();
    // Every version that this kernel takes, down to the first one.
    for version in 1..=version {
        in_child(|| {
            let rules = Ruleset::new(version, Holds::AllButPorts).unwrap();
            let allow =
                |name: &str, rights| rules.allow_path(&c_path(&path(name)), rights).unwrap();
            allow("read", Rights::READ);
            allow("change", Rights::READ.and(Rights::CHANGE));
            // A single file takes only what files can have.
            allow(
                "none/file",
                Rights::READ.and(Rights::CHANGE).and(Rights::DEVICE),
            );
            allow("run", Rights::READ.and(Rights::EXECUTE));
            for system in ["/usr", "/lib", "/lib64", "/bin"] {
                if let Ok(real) = fs::canonicalize(system) {
                    rules
                        .allow_path(&c_path(&real), Rights::READ.and(Rights::EXECUTE))
                        .unwrap();
                }
            }
            if !is_root() {
                assert_eq!(number(rules.enter()), libc::EPERM);
            }
            credentials::forbid_new_privileges().unwrap();
            rules.enter().unwrap();
            confined(&path, version);
        });
        for name in ["read", "none"] {
            assert_eq!(
                fs::read_dir(path(name)).unwrap().count(),
                1 + usize::from(name == "read")
            );
        }
        fs::write(path("none/file"), "there").unwrap();
    }
}

#[test]
fn landlock_refuses_ports_or_says_that_it_cannot() {
    let Ok(known) = landlock::version() else {
        return super::skipped("no Landlock");
    };
    for version in 1..=known {
        in_child(|| {
            let rules = Ruleset::new(version, Holds::All);
            if known < 4 {
                assert_eq!(number(rules.map(drop)), libc::E2BIG);
                return;
            }
            credentials::forbid_new_privileges().unwrap();
            rules.unwrap().enter().unwrap();
            let bound = std::net::TcpListener::bind("127.0.0.1:0");
            assert_eq!(number(bound.map(drop)), libc::EACCES);
        });
    }
}

/// Checks the rights of a process confined by those rules.
fn confined(path: &dyn Fn(&str) -> std::path::PathBuf, version: u32) {
    let denied = libc::EACCES;
    assert_eq!(fs::read(path("read/file")).unwrap(), b"there");
    assert_eq!(number(fs::write(path("read/file"), "x")), denied);
    assert_eq!(number(fs::write(path("read/new"), "x")), denied);
    assert_eq!(number(fs::remove_file(path("read/file"))), denied);
    assert_eq!(number(fs::create_dir(path("read/new"))), denied);
    assert_eq!(number(fs::read_dir(path("none")).map(drop)), denied);
    assert_eq!(number(fs::write(path("none/new"), "x")), denied);
    assert_eq!(fs::read(path("none/file")).unwrap(), b"there");
    fs::write(path("change/new"), "x").unwrap();
    fs::rename(path("change/new"), path("change/renamed")).unwrap();
    fs::remove_file(path("change/renamed")).unwrap();
    if version >= 3 {
        let file = fs::File::options()
            .write(true)
            .truncate(true)
            .open(path("read/file"));
        assert_eq!(number(file.map(drop)), denied);
    }
    let run = |name: &str| {
        let argument = c_path(&path(name));
        let program = process::Program::new(vec![argument], Vec::new(), b"").unwrap();
        super::ending_of(|| program.execute().raw_os_error().unwrap() as u8)
    };
    assert_eq!(run("run/true"), process::Change::Exited(0));
    assert_eq!(run("read/true"), process::Change::Exited(denied as u8));
}
