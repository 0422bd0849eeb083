use std::io::Error;
use std::path::PathBuf;

use atoll_model::{Principal, RunId};

use super::*;

fn about(check: impl FnOnce(&About<'_>)) {
    let call = Call {
        run: RunId::parse("261121-093012-k7qd").expect("a run id"),
        session: None,
        principal: Principal {
            uid: 1,
            gid: 1,
            name: "ada".to_owned(),
        },
        command: vec!["true".into()],
        options: Vec::new(),
        workspace: "/project".into(),
        directory: "/project/sub".into(),
        terminal: false,
    };
    check(&About {
        call: &call,
        profile: "python",
        limits: &[],
    });
}

#[test]
fn each_error_has_a_next_step_of_its_own() {
    let making = |stage, detail: &str| SandboxError::Making {
        stage,
        error: Error::from_raw_os_error(1),
        detail: detail.to_owned(),
    };
    let launcher = |number| SandboxError::Launcher(Error::from_raw_os_error(number));
    let cases: Vec<(CallError, &str)> = vec![
        (launcher(11).into(), "ulimit -u"),
        (launcher(12).into(), "free shows the memory"),
        (launcher(13).into(), "vm.memfd_noexec"),
        (launcher(24).into(), "ulimit -n"),
        (making(Stage::Namespaces, "").into(), "atoll doctor"),
        (making(Stage::Description, "").into(), "report it"),
        (making(Stage::Tree, "usr/lib").into(), "ls -ld /usr/lib"),
        (
            making(Stage::Limits, "").into(),
            "atoll profile show python",
        ),
        (making(Stage::Terminal, "").into(), "--no-tty"),
        (making(Stage::Directory, "").into(), "ls -ld /project/sub"),
        (
            SandboxError::MountInside {
                outer: "/project".into(),
                inner: "/project/mnt".into(),
            }
            .into(),
            "umount /project/mnt",
        ),
        (
            SandboxError::Source {
                path: "/opt/tool".into(),
                error: Error::from_raw_os_error(2),
            }
            .into(),
            "ls -ld /opt/tool",
        ),
        (SandboxError::TooLarge(9).into(), "standard input"),
        (SandboxError::Vanished.into(), "dmesg"),
        (
            LedgerError::Busy {
                path: "/state/ledger".into(),
                waited_ms: 1,
            }
            .into(),
            "fuser /state/ledger",
        ),
        (
            LedgerError::Damaged {
                path: PathBuf::new(),
                what: String::new(),
            }
            .into(),
            "atoll ledger verify",
        ),
        (RunError::NoRuns.into(), "atoll runs"),
        (
            RunError::Mounted("/state/x".into()).into(),
            "umount /state/x",
        ),
        (
            PlaceError::Seal(SealError::TooLarge("/project".into())).into(),
            "without --live",
        ),
        (
            PlaceError::State {
                what: "making",
                path: "/state/runs".into(),
                error: Error::from_raw_os_error(28),
            }
            .into(),
            "df /state/runs",
        ),
        (
            PlaceError::State {
                what: "making",
                path: "/state/runs".into(),
                error: Error::from_raw_os_error(13),
            }
            .into(),
            "ls -ld /state/runs",
        ),
    ];
    about(|about| {
        for (error, expected) in &cases {
            let advice = about.advice(error);
            assert!(advice.contains(expected), "{error}: {advice}");
        }
    });
}

#[test]
fn only_what_can_be_checked_is_sent_to_the_check() {
    for (file, checks) in [
        ("/home/ann/.config/atoll/config.toml", false),
        ("/etc/atoll/organisation.toml", false),
        ("/home/ann/.config/atoll/profiles/mine.toml", true),
        ("/project/atoll.toml", true),
    ] {
        let error = ProfileError::Invalid(vec![Problem {
            file: file.to_owned(),
            line: 1,
            column: 1,
            what: "unknown key `x`".to_owned(),
            hint: None,
        }]);
        assert_eq!(profile(&error).contains("profile check"), checks, "{file}");
    }
}
