//! Features that this machine's kernel may lack: a guest of the distribution's kernel with control
//! groups of version 2, in which the real program is tried. Each test is one guest and tries all
//! that it can show; its checks are the scripts beside this file.

use std::io::Write;
use std::process::{Command, Stdio};

use e2e::{Avoidable, Guest, Kernel, ProfileParser, World, program_exists};

const CHECKS: &str = include_str!("guest/checks.sh");
/// The number of checks of each user's limits, see `limits` there.
const LIMITS: usize = 11 + 12;

/// Returns a guest whose first process runs the checks.
fn plain(kernel: Kernel, script: &str) -> Guest {
    Guest {
        kernel,
        next: "/bin/bash /atoll/checks.sh",
        words: "",
        files: vec![program(), bomb(), checks(script)],
    }
}

fn program() -> (String, u32, Vec<u8>) {
    let path = std::env::var_os("ATOLL_BIN").expect("ATOLL_BIN names the program to test");
    (
        "/atoll/atoll".to_owned(),
        0o755,
        std::fs::read(path).unwrap(),
    )
}

/// Returns the bomb of `limits.rs`, which uses up one resource after the other.
fn bomb() -> (String, u32, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("bomb");
    let mut compiler = Command::new("cc")
        .args(["-O1", "-static", "-pthread", "-x", "c", "-", "-o"])
        .arg(&target)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = compiler.stdin.take().unwrap();
    input.write_all(include_bytes!("limits/bomb.c")).unwrap();
    drop(input);
    assert!(compiler.wait().unwrap().success(), "bomb.c");
    let bytes = std::fs::read(target).unwrap();
    ("/atoll/bomb".to_owned(), 0o755, bytes)
}

fn checks(script: &str) -> (String, u32, Vec<u8>) {
    let text = format!("{CHECKS}{script}");
    ("/atoll/checks.sh".to_owned(), 0o644, text.into_bytes())
}

/// Starts a guest and expects, for each of these prefixes, so many checks, all of which succeeded;
/// the test is skipped where there can be no guest.
fn check(name: &str, guest: impl FnOnce() -> Guest, expected: &[(&str, usize)]) {
    let world = World::new(name);
    if cfg!(not(target_arch = "x86_64")) {
        return world.skip("guests are made for x86_64 only", Avoidable::No);
    }
    if !program_exists("cc") {
        return world.skip("there is no C compiler", Avoidable::Yes);
    }
    if let Some(missing) = Guest::missing() {
        return world.skip(&missing, Avoidable::Yes);
    }
    guest().run(&world).expect(expected);
}

/// A user who has a control group, whole or in part, has every limit; one who has none is told.
#[test]
fn guest_without_systemd_holds_every_limit_slow() {
    check(
        "guest_without_systemd_holds_every_limit_slow",
        || plain(Kernel::New, include_str!("guest/plain.sh")),
        &[
            ("root-", LIMITS + 9),
            ("delegated-", LIMITS + 6),
            ("shared-", 4),
            ("without-", 7),
            ("container-", 5),
            ("namespaces-", 14),
        ],
    );
}

#[test]
fn guest_with_systemd_holds_what_it_delegates_slow() {
    let guest = || Guest {
        kernel: Kernel::New,
        next: "/sbin/init",
        words: "systemd.unit=checks.service",
        files: vec![
            program(),
            bomb(),
            checks(include_str!("guest/systemd.sh")),
            (
                "/etc/systemd/system/checks.service".to_owned(),
                0o644,
                include_bytes!("guest/checks.service").to_vec(),
            ),
        ],
    };
    check(
        "guest_with_systemd_holds_what_it_delegates_slow",
        guest,
        &[
            ("root-", 6),
            ("login-", 5),
            ("scope-", LIMITS + 5),
            ("service-", 4),
        ],
    );
}

/// Returns the commands by which docs/doctor.md has the profile installed.
fn documented() -> String {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo or xtask sets it");
    let page = std::path::Path::new(&package).join("../../docs/doctor.md");
    let page = std::fs::read_to_string(page).unwrap();
    let commands = page.lines().filter_map(|line| line.strip_prefix("    "));
    let commands: Vec<&str> = commands.filter(|line| line.contains("sudo")).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    commands.join(" && ")
}

/// Debian's kernel has AppArmor, and not Ubuntu's setting: a profile that keeps a login
/// from making user namespaces stands for it.
#[test]
fn guest_with_apparmor_gives_namespaces_back_slow() {
    let name = "guest_with_apparmor_gives_namespaces_back_slow";
    let parser = match ProfileParser::find() {
        Ok(parser) => parser,
        Err(missing) => {
            World::new(name).skip(&missing, Avoidable::Yes);
            return;
        }
    };
    let guest = || {
        let mut guest = plain(Kernel::New, include_str!("guest/apparmor.sh"));
        guest.words = "lsm=landlock,yama,apparmor";
        guest.files.extend(parser.files());
        let commands = documented().into_bytes();
        guest
            .files
            .push(("/atoll/documented.sh".to_owned(), 0o644, commands));
        guest
    };
    check(name, guest, &[("apparmor-", 13)]);
}

#[test]
fn guest_of_an_older_kernel_holds_every_limit_slow() {
    check(
        "guest_of_an_older_kernel_holds_every_limit_slow",
        || plain(Kernel::Old, include_str!("guest/old.sh")),
        &[("old-", LIMITS + 4)],
    );
}
