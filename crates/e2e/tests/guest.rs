//! What this machine's kernel may not have: a guest of the distribution's kernel with
//! control groups of version 2, in which the real program is tried. Each guest is
//! started once; its checks are the scripts beside this file. Tests start in the order of
//! their names, two at a time at least: the first two begin with the longest guests.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use e2e::{Avoidable, Guest, Kernel, ProfileParser, Told, World, program_exists};

const CHECKS: &str = include_str!("guest/checks.sh");
/// What each person's limits make of checks, see `limits` there.
const LIMITS: usize = 11 + 12;

/// The checks in a guest whose first process they are.
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

/// The bombs of `limits.rs`: what uses up one thing after the other.
fn bomb() -> (String, u32, Vec<u8>) {
    static COMPILED: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = COMPILED.get_or_init(|| {
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
        std::fs::read(target).unwrap()
    });
    ("/atoll/bomb".to_owned(), 0o755, bytes.clone())
}

fn checks(script: &str) -> (String, u32, Vec<u8>) {
    let text = format!("{CHECKS}{script}");
    ("/atoll/checks.sh".to_owned(), 0o644, text.into_bytes())
}

/// What a guest told, which the first test that asks for it starts; `None` where
/// there can be none.
fn told(
    name: &str,
    cell: &'static OnceLock<Told>,
    guest: impl FnOnce() -> Guest,
) -> Option<&'static Told> {
    let world = World::new(name);
    if cfg!(not(target_arch = "x86_64")) {
        world.skip("guests are made for x86_64 only", Avoidable::No);
        return None;
    }
    if !program_exists("cc") {
        world.skip("there is no C compiler", Avoidable::Yes);
        return None;
    }
    if let Some(missing) = Guest::missing() {
        world.skip(&missing, Avoidable::Yes);
        return None;
    }
    Some(cell.get_or_init(|| guest().run(&world)))
}

/// The guest without systemd.
fn without_systemd(name: &str) -> Option<&'static Told> {
    static TOLD: OnceLock<Told> = OnceLock::new();
    told(name, &TOLD, || {
        plain(Kernel::New, include_str!("guest/plain.sh"))
    })
}

#[test]
fn root_has_every_limit_in_version_2_slow() {
    if let Some(told) = without_systemd("root_has_every_limit_in_version_2_slow") {
        told.expect("root-", LIMITS + 9);
    }
}

#[test]
fn a_delegated_group_gives_an_ordinary_user_every_limit_slow() {
    if let Some(told) = without_systemd("a_delegated_group_gives_an_ordinary_user_every_limit_slow")
    {
        told.expect("delegated-", LIMITS + 6);
    }
}

#[test]
fn a_login_has_every_limit_that_systemd_delegates_slow() {
    static TOLD: OnceLock<Told> = OnceLock::new();
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
    let name = "a_login_has_every_limit_that_systemd_delegates_slow";
    if let Some(told) = told(name, &TOLD, guest) {
        told.expect("root-", 6);
        told.expect("login-", 5);
        told.expect("scope-", LIMITS + 5);
        told.expect("service-", 4);
    }
}

#[test]
fn others_in_a_group_are_left_alone_slow() {
    if let Some(told) = without_systemd("others_in_a_group_are_left_alone_slow") {
        told.expect("shared-", 4);
    }
}

#[test]
fn what_is_not_held_without_a_group_is_told_or_refused_slow() {
    if let Some(told) = without_systemd("what_is_not_held_without_a_group_is_told_or_refused_slow")
    {
        told.expect("without-", 7);
    }
}

#[test]
fn root_of_a_container_has_every_limit_if_alone_slow() {
    if let Some(told) = without_systemd("root_of_a_container_has_every_limit_if_alone_slow") {
        told.expect("container-", 5);
    }
}

#[test]
fn without_user_namespaces_the_setting_is_named_slow() {
    if let Some(told) = without_systemd("without_user_namespaces_the_setting_is_named_slow") {
        told.expect("namespaces-", 14);
    }
}

/// The commands by which docs/doctor.md has the profile installed.
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
fn a_profile_of_apparmor_gives_namespaces_back_slow() {
    static TOLD: OnceLock<Told> = OnceLock::new();
    let name = "a_profile_of_apparmor_gives_namespaces_back_slow";
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
    if let Some(told) = told(name, &TOLD, guest) {
        told.expect("apparmor-", 13);
    }
}

#[test]
fn an_older_kernel_holds_the_same_limits_slow() {
    static TOLD: OnceLock<Told> = OnceLock::new();
    let guest = || plain(Kernel::Old, include_str!("guest/old.sh"));
    if let Some(told) = told("an_older_kernel_holds_the_same_limits_slow", &TOLD, guest) {
        told.expect("old-", LIMITS + 4);
    }
}
