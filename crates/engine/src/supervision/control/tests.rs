//! Tests of both sides of the control protocol, on a real socket.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use atoll_model::network::{Published, PublishedPort};

use super::*;
use crate::skipping::{Avoidable, note_skip};

fn opened(path: &Path) -> OwnedFd {
    fs::File::open(path).unwrap().into()
}

fn run() -> RunId {
    RunId::new(1_700_000_000, 7)
}

fn asked(directory: &OwnedFd, question: &Question) -> Result<Answer, ControlError> {
    let until = Instant::now() + ANSWER_PATIENCE;
    ask(directory, &run(), question, until)
}

/// Runs callers while a run answers them: it approves port 1 and denies everything else.
fn with_run<T>(callers: impl FnOnce(&OwnedFd) -> T) -> T {
    let directory = tempfile::tempdir().unwrap();
    let mut control = Control::open(opened(directory.path()), &run()).unwrap();
    let is_over = AtomicBool::new(false);
    let here = opened(directory.path());
    let heard = thread::scope(|scope| {
        scope.spawn(|| {
            let mut answer = |_: (Who, Standing), question| match question {
                Question::Ports {} => Answer::Ports {
                    listening: Vec::new(),
                    published: Vec::new(),
                },
                Question::Publish(port) if port.inside == 1 => Answer::Published(Published {
                    port,
                    origin: "a test".to_owned(),
                    asked: None,
                }),
                Question::Publish(_)
                | Question::Approvals {}
                | Question::Approval { .. }
                | Question::Decide { .. }
                | Question::Revoke { .. }
                | Question::Restrict(_)
                | Question::Compare { .. }
                | Question::Reload { .. }
                | Question::Exec { .. }
                | Question::Reach { .. }
                | Question::Freeze {}
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

/// Returns the answer to these bytes.
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
        assert_eq!(asked(here, &Question::Ports {}).unwrap(), nothing);
        let yes = asked(here, &Question::Publish(port(1))).unwrap();
        assert!(matches!(yes, Answer::Published(one) if one.port == port(1)));
        let no = asked(here, &Question::Publish(port(2))).unwrap();
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
        assert!(asked(here, &Question::Ports {}).is_ok(), "beside them");
        // As many as there can be: the next one is answered once these were told off.
        idle.push(UnixStream::connect(&path).unwrap());
        assert!(asked(here, &Question::Ports {}).is_ok(), "after them");
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
    let told = asked(&here, &Question::Ports {});
    assert!(matches!(told, Err(ControlError::Gone)), "{told:?}");
    assert!(!path.exists());
    let told = asked(&here, &Question::Ports {});
    assert!(matches!(told, Err(ControlError::Gone)), "{told:?}");
}

#[test]
fn who_asks_while_it_is_being_opened_does_not_take_the_socket_away() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(socket_name(&run()));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let asker = threads.spawn(|| {
            let here = opened(directory.path());
            let mut refused = 0_u32;
            while !is_over.load(Ordering::SeqCst) {
                let name = place(&here, &socket_name(&run()));
                match UnixStream::connect(&name) {
                    Ok(line) => drop(line),
                    Err(_) => {
                        let _ = asked(&here, &Question::Ports {});
                        refused += 1;
                    }
                }
            }
            refused
        });
        let mut lost = 0;
        for _ in 0..2_000 {
            match Control::open(opened(directory.path()), &run()) {
                Ok(control) => {
                    lost += usize::from(!path.exists());
                    drop(control);
                }
                Err(_) => lost += 1,
            }
        }
        is_over.store(true, Ordering::SeqCst);
        assert!(asker.join().unwrap() > 0, "nobody asked too early");
        assert_eq!(lost, 0);
    });
    // Nothing else is left there.
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn who_is_in_a_sandbox_is_told_apart_from_who_is_not() {
    let peer = |pid: u32| UCred {
        pid: rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(),
        uid: rustix::process::geteuid(),
        gid: rustix::process::getegid(),
    };
    assert!(is_outside(&peer(std::process::id())));
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--fork"]);
    let mut inside = command
        .args(["sh", "-c", "echo; exec sleep 600"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut begun = [0; 1];
    let is_inside = inside.stdout.as_mut().unwrap().read_exact(&mut begun);
    if is_inside.is_err() {
        let ended = inside.wait_with_output().unwrap();
        let why = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        println!("skipped: {why}");
        // Where the host lets nobody make one there is nobody in one either.
        assert!(why.contains("unshare failed"), "{ended:?}");
        return note_skip(&why, Avoidable::No);
    }
    let children = children_of(inside.id());
    let [child] = children[..] else {
        panic!("it has one child: {children:?}")
    };
    let is_outside = is_outside(&peer(child));
    rustix::process::kill_process(peer(child).pid, rustix::process::Signal::KILL).unwrap();
    let _ = inside.wait();
    assert!(!is_outside);
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
            signs: None,
            kind: atoll_model::network::FlowKind::Tunnel,
            host: "x".repeat(4000),
            port: 443,
            request: None,
            login: None,
            credentials: Vec::new(),
            rule: "a rule".to_owned(),
            policies: 0,
        },
        breadth: atoll_model::network::ApprovalScope::Same,
        left_seconds: None,
        uses: 0,
        by: Who { uid: 1, pid: 2 },
    };
    let told = |count: u32| {
        let answer = approvals(Vec::new(), (1..=count).map(lease).collect(), None);
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

/// Takes this name of a run in a descendant process, as a program in a fence would, and says
/// yes to every caller.
const TAKEN: &str = r#"
import socket, sys
taken = socket.socket(socket.AF_UNIX)
taken.bind("\0" + sys.argv[1])
taken.listen(8)
print(flush=True)
while True:
    come, _ = taken.accept()
    try:
        come.sendall(b'{"v":1,"said":{"done":{}}}\n')
        come.makefile("rb").readline()
    except OSError:
        pass
    come.close()
"#;

/// Returns a run's name that no other test has.
fn named(number: u32) -> (u32, RunId, String) {
    let uid = rustix::process::geteuid().as_raw();
    let second = 1_700_000_000 + u64::from(std::process::id());
    let run = RunId::new(second, number);
    let name = format!("atoll/second/{uid}/{run}");
    (uid, run, name)
}

#[test]
fn who_has_taken_a_runs_name_in_a_sandbox_is_not_believed() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;
    let (uid, run, name) = named(1);
    let mut inside = std::process::Command::new("python3")
        .args(["-c", TAKEN, &name])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let begun = inside.stdout.as_mut().unwrap().read(&mut [0; 1]).unwrap();
    let runs = Runs::Of(uid);
    let told = ask_run(&runs, &run, &Question::Ports {});
    let listed = runs_spoken_to(&runs).unwrap();
    let taken = Others::open(&run, &[uid]).is_err();
    // It is there, and answers whoever does not look.
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let mut blind = UnixStream::connect_addr(&address).unwrap();
    let _ = blind.write_all(b"\n");
    let mut said = String::new();
    let _ = blind.read_to_string(&mut said);
    let _ = inside.kill();
    let _ = inside.wait();
    assert!(begun == 1 && said.contains("done"), "{said}");
    assert!(matches!(told, Err(ControlError::Gone)), "{told:?}");
    assert!(!listed.contains(&run) && taken);
    // The control: the same by a process that is in none.
    let (_, run, _) = named(2);
    let own = Others::open(&run, &[uid]).unwrap();
    assert!(runs_spoken_to(&runs).unwrap().contains(&run));
    drop(own);
    assert!(!runs_spoken_to(&runs).unwrap().contains(&run));
}

/// A socket that accepts no callers, and one of the run's own user that never answers.
#[test]
fn a_name_that_answers_nobody_holds_nobody_up() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let (uid, run, name) = named(3);
    let (heard, hears) = std::sync::mpsc::channel();
    let make = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
    };
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    let full = make();
    rustix::net::bind(&full, &address).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let runs = Runs::Of(uid);
    // With room it is among those that can be asked, and is waited for until then.
    assert!(runs_spoken_to(&runs).unwrap().contains(&run));
    while rustix::net::acceptfrom(&full).is_ok() {}
    let until = Instant::now() + Duration::from_millis(100);
    let silent = ask_until(&runs, &run, &Question::Ports {}, until);
    assert!(matches!(silent, Err(ControlError::Silent(_))), "{silent:?}");
    let mut waiting = Vec::new();
    loop {
        let one = make();
        let is_in = rustix::net::connect(&one, &address).is_ok();
        waiting.push(one);
        if !is_in {
            break;
        }
    }
    thread::spawn(move || {
        let told = ask_run(&runs, &run, &Question::Ports {});
        let listed = runs_spoken_to(&runs).unwrap().contains(&run);
        let _ = heard.send((matches!(told, Err(ControlError::Gone)), listed));
    });
    let told = hears.recv_timeout(Duration::from_secs(60));
    assert_eq!(told, Ok((true, false)), "it is waited for");
}

/// Other approvers have places of their own.
#[test]
fn others_that_say_nothing_take_no_place_of_the_owners() {
    let (uid, run, name) = named(4);
    let directory = tempfile::tempdir().unwrap();
    let others = Others::open(&run, &[uid]).unwrap();
    let mut control = Control::open(opened(directory.path()), &run)
        .unwrap()
        .hearing(Some(others));
    let address = {
        use std::os::linux::net::SocketAddrExt;
        std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap()
    };
    let idle = (0..2 * CALLERS_MAX).map(|_| UnixStream::connect_addr(&address).unwrap());
    let idle: Vec<UnixStream> = idle.collect();
    control.attend(&mut |_, _| Answer::Done {});
    assert_eq!(control.room(Standing::Other), 0);
    assert_eq!(control.room(Standing::Own), CALLERS_MAX);
    drop(idle);
}

/// Returns the present children of a process (proc_pid_task_children(5)), if the kernel lists
/// them.
fn children_of(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}
