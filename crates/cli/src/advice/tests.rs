use std::io::Error;
use std::path::PathBuf;

use atoll_layer::ApplyError;
use atoll_model::{Action, CallId, Place, Principal, Program, RunId};

use super::*;

fn about(check: impl FnOnce(&About<'_>)) {
    let call = Call {
        id: CallId::of_run(RunId::parse("261121-093012-k7qd").expect("a run id")),
        session: None,
        parent: None,
        principal: Principal {
            uid: 1,
            gid: 1,
            name: "ada".to_owned(),
        },
        place: Place::Directory {
            workspace: "/project".into(),
            directory: "/project/sub".into(),
        },
        action: Action::Run(Program {
            command: vec!["true".into()],
            ..Program::default()
        }),
    };
    check(&About {
        call: &call,
        profile: "python",
        limits: &[],
    });
}

/// A person who pastes an advised command means one path, whatever characters its name has.
#[test]
fn a_path_in_an_advised_command_is_one_word_of_a_shell() {
    let said = |path: &str| {
        state(&StateError::OwnedByOther {
            path: path.into(),
            owner: 7,
            caller: 8,
        })
    };
    for path in [
        "/a b/c",
        "/it's",
        "/a;touch b",
        "/$(id)",
        "/a\nb",
        "/\u{202e}x",
        "-rf",
        "/\\'\t*",
        "/plain",
    ] {
        let advice = said(path);
        let command = advice.strip_prefix("ls -ld ").unwrap_or_default();
        let word = command
            .split(" shows whose it is")
            .next()
            .unwrap_or_default();
        let script = format!("printf '%s|' {word}");
        let shown = std::process::Command::new("bash")
            .args(["-c", &script])
            .output();
        let shown = shown.expect("bash is there").stdout;
        let expected = match path.strip_prefix('-') {
            Some(_) => format!("./{path}|"),
            None => format!("{path}|"),
        };
        assert_eq!(String::from_utf8_lossy(&shown), expected, "{advice}");
    }
    assert!(said("/plain").starts_with("ls -ld /plain shows"));
    let apart = ApplyError::Tree(atoll_layer::TreeError {
        doing: "cannot read",
        path: "a b".to_owned(),
        source: Error::from_raw_os_error(13),
    });
    let run = RunId::parse("261121-093012-k7qd").expect("a run id");
    assert!(
        crate::hints::texts(&atoll_engine::decision::apply_hints(&apart, &run))[0]
            .starts_with("ls -ld 'a b' shows")
    );
    let broken = vault(&VaultError::Unreadable {
        path: "/a b/secrets.json".into(),
        why: "x".to_owned(),
    });
    assert!(broken.starts_with("mv '/a b/secrets.json' '/a b/secrets.json.broken',"));
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
        (SandboxError::Words.into(), "standard input"),
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
                path: "/dev/state/runs".into(),
                error: Error::from_raw_os_error(13),
            }
            .into(),
            "ls -ld /dev shows",
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
