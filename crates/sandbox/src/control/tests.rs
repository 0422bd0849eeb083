//! One side asks, the other answers: of a real socket.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;

fn opened(path: &Path) -> OwnedFd {
    fs::File::open(path).unwrap().into()
}

fn run() -> RunId {
    RunId::new(1_700_000_000, 7)
}

/// What callers hear while a run answers them: it says yes to port 1 and no to all else.
fn with_run<T>(callers: impl FnOnce(&OwnedFd) -> T) -> T {
    let directory = tempfile::tempdir().unwrap();
    let mut control = Control::open(opened(directory.path()), &run()).unwrap();
    let is_over = AtomicBool::new(false);
    let here = opened(directory.path());
    let heard = thread::scope(|scope| {
        scope.spawn(|| {
            let mut answer = |_: Who, question| match question {
                Question::Ports {} => Answer::Ports {
                    listening: Vec::new(),
                    published: Vec::new(),
                },
                Question::Publish(port) if port.inside == 1 => Answer::Published(Published {
                    port,
                    origin: "a test".to_owned(),
                }),
                Question::Publish(_)
                | Question::Approvals {}
                | Question::Approval { .. }
                | Question::Decide { .. }
                | Question::Revoke { .. }
                | Question::Stop {} => declined("no"),
            };
            while !is_over.load(Ordering::Relaxed) {
                control.attend(&mut answer);
                thread::sleep(Duration::from_millis(1));
            }
            drop(control);
        });
        // Also where it panics the other side has to end.
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _ends = Ends(&is_over);
        callers(&here)
    });
    assert!(spoken_to(&here).unwrap().is_empty(), "nothing is left");
    heard
}

/// What is answered to these bytes.
fn raw(directory: &OwnedFd, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(place(directory, &socket_name(&run()))).unwrap();
    stream.set_read_timeout(Some(ANSWER_PATIENCE)).unwrap();
    // One that is refused before it has said everything may close.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_question_is_answered_and_nothing_else() {
    with_run(|here| {
        let port = |inside| PublishedPort {
            outside: 80,
            inside,
        };
        assert_eq!(spoken_to(here).unwrap(), [run()]);
        let nothing = Answer::Ports {
            listening: Vec::new(),
            published: Vec::new(),
        };
        assert_eq!(ask(here, &run(), &Question::Ports {}).unwrap(), nothing);
        let yes = ask(here, &run(), &Question::Publish(port(1))).unwrap();
        assert!(matches!(yes, Answer::Published(one) if one.port == port(1)));
        let no = ask(here, &run(), &Question::Publish(port(2))).unwrap();
        assert!(matches!(no, Answer::Refused(_)));
        // The control: by hand it is the same.
        let good = br#"{"v":1,"said":{"ports":{}}}"#;
        assert!(raw(here, &[&good[..], b"\n"].concat()).contains("\"ports\""));
        let wrong: [&[u8]; 7] = [
            b"\n",
            b"{}\n",
            br#"{"v":2,"said":{"ports":{}}}"#,
            br#"{"v":1,"said":{"ports":{"more":1}}}"#,
            br#"{"v":1,"said":{"ports":{}},"more":1}"#,
            br#"{"v":1,"said":{"halt":{}}}"#,
            br#"{"v":1,"said":{"publish":{"outside":70000,"inside":1}}}"#,
        ];
        for wrong in wrong {
            let line = [wrong.trim_ascii_end(), b"\n"].concat();
            let told = raw(here, &line);
            assert!(told.contains("not understood"), "{told}");
        }
        let long = vec![b' '; 3 * QUESTION_BYTES_MAX];
        let told = raw(here, &long);
        assert!(told.is_empty() || told.contains("too long"), "{told}");
    });
}

#[test]
fn who_says_nothing_holds_nobody_up() {
    with_run(|here| {
        let path = place(here, &socket_name(&run()));
        let mut idle: Vec<UnixStream> = (1..CALLERS_MAX)
            .map(|_| UnixStream::connect(&path).unwrap())
            .collect();
        assert!(
            ask(here, &run(), &Question::Ports {}).is_ok(),
            "beside them"
        );
        // As many as there can be: the next one is answered once these were told off.
        idle.push(UnixStream::connect(&path).unwrap());
        assert!(ask(here, &run(), &Question::Ports {}).is_ok(), "after them");
        let mut told = String::new();
        idle[0].read_to_string(&mut told).unwrap();
        assert!(told.contains("too slowly"), "{told}");
    });
}

#[test]
fn the_socket_is_its_owners_alone_and_a_dead_one_is_removed() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let control = Control::open(opened(directory.path()), &run()).unwrap();
    let path = directory.path().join(socket_name(&run()));
    let mode = path.symlink_metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let here = opened(directory.path());
    // As one that was killed leaves it.
    let copy = path.with_extension("kept");
    fs::rename(&path, &copy).unwrap();
    drop(control);
    fs::rename(&copy, &path).unwrap();
    let asked = ask(&here, &run(), &Question::Ports {});
    assert!(matches!(asked, Err(ControlError::Gone)), "{asked:?}");
    assert!(!path.exists());
    let asked = ask(&here, &run(), &Question::Ports {});
    assert!(matches!(asked, Err(ControlError::Gone)), "{asked:?}");
}

#[test]
fn who_is_in_a_sandbox_is_told_apart_from_who_is_not() {
    let peer = |pid: u32| UCred {
        pid: rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(),
        uid: rustix::process::geteuid(),
        gid: rustix::process::getegid(),
    };
    assert!(is_outside(&peer(std::process::id())));
    let made = std::process::Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "sh",
            "-c",
            "echo; exec sleep 600",
        ])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn();
    // Where none can be made there is nobody in one either.
    let Ok(mut inside) = made else { return };
    let mut begun = [0; 1];
    if inside
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut begun)
        .is_ok()
    {
        let [child] = crate::launcher::children_of(inside.id())[..] else {
            panic!("it has one child")
        };
        assert!(!is_outside(&peer(child)));
        rustix::process::kill_process(peer(child).pid, rustix::process::Signal::KILL).unwrap();
    }
    let _ = inside.wait();
}

#[test]
fn who_runs_beneath_a_run_or_a_launcher_is_not_heard() {
    let own = i32::try_from(std::process::id()).unwrap();
    let mut beneath = std::process::Command::new("sh")
        .args(["-c", "sleep 600 & echo $!; wait"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = [0; 16];
    let got = beneath.stdout.as_mut().unwrap().read(&mut told).unwrap();
    let further: i32 = std::str::from_utf8(&told[..got])
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let child = i32::try_from(beneath.id()).unwrap();
    assert!(!is_nobodys(child) && !is_nobodys(further));
    // The control: who is above, and this one itself.
    let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
    assert!(is_nobodys(own) && is_nobodys(parent));
    let further = rustix::process::Pid::from_raw(further).unwrap();
    let _ = rustix::process::kill_process(further, rustix::process::Signal::KILL);
    let _ = beneath.kill();
    let _ = beneath.wait();
}

#[test]
fn of_many_leases_those_granted_last_are_told_in_an_answer_that_is_sent() {
    let lease = |approval| Lease {
        approval,
        call: atoll_model::network::AskedCall {
            kind: atoll_model::network::FlowKind::Tunnel,
            host: "x".repeat(4000),
            port: 443,
            request: None,
            login: None,
            credentials: Vec::new(),
            rule: "a rule".to_owned(),
        },
        breadth: atoll_model::network::Breadth::Same,
        left_seconds: None,
        uses: 0,
        by: Who { uid: 1, pid: 2 },
    };
    let told = |count: u32| {
        let answer = approvals(Vec::new(), (1..=count).map(lease).collect());
        let bytes = written(&answer).unwrap().len();
        let Answer::Approvals {
            leases, further, ..
        } = answer
        else {
            panic!("another answer");
        };
        let first = leases.first().map(|one| one.approval);
        let last = leases.last().map(|one| one.approval);
        (first, last, leases.len() as u32 + further, bytes)
    };
    let (first, last, count, bytes) = told(3);
    assert_eq!((first, last, count), (Some(1), Some(3), 3));
    assert!(bytes > 12_000, "{bytes}");
    let (first, last, count, bytes) = told(64);
    assert!(first > Some(20), "{first:?}");
    assert_eq!((last, count), (Some(64), 64));
    // The control: one more would not have gone.
    assert!(
        bytes <= ANSWER_BYTES_MAX && bytes + 4300 > ANSWER_BYTES_MAX,
        "{bytes}"
    );
}
