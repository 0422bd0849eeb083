//! Tests of the host's side of a session, in which the test is the first process and the
//! launcher.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use atoll_frame::{
    ExecId, ExecSpec, ExecTerminal, Order, REQUEST_BYTES_MAX, Report, Request, Stage,
};
use atoll_model::{Ending, LimitHit, Limits, Outcome, TOLD_CALLS, ViolationKind};
use atoll_sys::{descriptor, process, socket};

use super::limits;
use crate::disk::DiskWatch;
use crate::exec::ExecServer;
use crate::launcher::{Launcher, Parent};
use crate::reports::last_words;
use crate::session::streams::ExecStreams;
use crate::{Attachment, Carrier, Reaction, Running, SandboxError, Stream, Witness};

/// The other ends of a session's lines.
struct Far {
    line: OwnedFd,
    control: OwnedFd,
    /// The exec server's end.
    _requests: OwnedFd,
    /// The socket for answers about the first exec.
    status: OwnedFd,
    input: OwnedFd,
    output: Option<OwnedFd>,
    error: Option<OwnedFd>,
}

impl Far {
    fn report(&self, report: Report) {
        socket::send(self.control.as_fd(), &report.to_bytes(), &[]).unwrap();
    }

    /// Answers about the first exec's start.
    fn answer(&self, report: Report) {
        socket::send(self.status.as_fd(), &report.to_bytes(), &[]).unwrap();
    }

    fn executing(&self) {
        self.answer(Report::Executing { pid: 2 });
    }

    fn launcher_report(&self, report: Report) {
        socket::send(self.line.as_fd(), &report.to_bytes(), &[]).unwrap();
    }

    fn write(&self, text: &[u8]) {
        descriptor::write_all(self.output.as_ref().unwrap(), text).unwrap();
    }

    /// Returns the next order, or `None` once the host's side is gone.
    fn order(&self) -> Option<Order> {
        let mut buffer = [0_u8; 16];
        match socket::receive(self.control.as_fd(), &mut buffer) {
            Ok((0, _)) | Err(_) => None,
            Ok((got, _)) => Some(Order::from_bytes(&buffer[..got]).unwrap()),
        }
    }

    /// Sends the usual end of everything.
    fn gone(mut self) {
        self.output = None;
        self.error = None;
        self.launcher_report(Report::Gone {
            cpu_us: 1_500,
            memory_peak_bytes: 4_096,
        });
    }
}

/// An attachment without a terminal that keeps what is shown.
struct Spectator {
    input: Option<OwnedFd>,
    sink: OwnedFd,
}

/// The egress control of a sandbox without a network.
struct Alone;

impl Carrier for Alone {
    fn take(&mut self, _: Vec<OwnedFd>, _: u32) {}
    fn waits_on(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
    fn attend(&mut self) -> bool {
        true
    }
}

impl Attachment for Spectator {
    fn input(&self) -> Option<BorrowedFd<'_>> {
        self.input.as_ref().map(AsFd::as_fd)
    }

    fn sink(&self, _: Stream) -> BorrowedFd<'_> {
        self.sink.as_fd()
    }

    fn signals(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn next_signal(&mut self) -> Option<Reaction> {
        None
    }

    fn transform(&mut self, _: Stream, written: &[u8], shown: &mut Vec<u8>) {
        shown.extend_from_slice(written);
    }

    fn suspended(&mut self) {}
}

/// Supervises a session whose other side does this; returns also what was shown.
fn attended(
    limits: Limits,
    input: &[u8],
    other_side: impl FnOnce(Far) + Send + 'static,
) -> (Result<Outcome, SandboxError>, Vec<u8>) {
    attended_after(limits, input, |_| {}, other_side)
}

/// Supervises a session whose other side has done something before.
fn attended_after(
    limits: Limits,
    input: &[u8],
    before: impl FnOnce(&Far),
    other_side: impl FnOnce(Far) + Send + 'static,
) -> (Result<Outcome, SandboxError>, Vec<u8>) {
    witnessed(limits, input, &mut |_| true, before, other_side)
}

/// Supervises a session with a witness of violations.
fn witnessed(
    limits: Limits,
    input: &[u8],
    witness: Witness<'_>,
    before: impl FnOnce(&Far),
    other_side: impl FnOnce(Far) + Send + 'static,
) -> (Result<Outcome, SandboxError>, Vec<u8>) {
    let (line, far_line) = socket::pair().unwrap();
    let (control, far_control) = socket::pair().unwrap();
    let (requests, far_requests) = socket::pair().unwrap();
    let spec = ExecSpec {
        terminal: ExecTerminal::None,
        arguments: vec![b"program".to_vec()],
        environment: Vec::new(),
        directory: b"/".to_vec(),
        mode_mask: 0o022,
        user: None,
    };
    let server = ExecServer::new(requests, None, false, false, &spec);
    let prepared = server
        .prepare_spec(ExecId::FIRST, &spec, None, None)
        .unwrap();
    let first = ExecStreams::new(server.start(prepared).unwrap());
    let mut request = [0; REQUEST_BYTES_MAX];
    let (got, with) = socket::receive(far_requests.as_fd(), &mut request).unwrap();
    let request = Request::from_bytes(&request[..got]);
    assert_eq!(request, Ok(Request::Exec(ExecId::FIRST)));
    let [status, _, far_input, far_output, far_error] = with.try_into().unwrap();
    let far = Far {
        line: far_line,
        control: far_control,
        _requests: far_requests,
        status,
        input: far_input,
        output: Some(far_output),
        error: Some(far_error),
    };
    // Someone to wait for at the end.
    let pid = process::fork(|| 0).unwrap();
    let running = Running {
        launcher: Launcher {
            line,
            pid,
            parent: Parent::Own,
        },
        control,
        server,
        prepared: None,
        first: Some(first),
        lives: false,
        groups: None,
        enforcement: Vec::new(),
        disk: DiskWatch::new(Vec::new(), 0, 0, Instant::now()),
        limits,
    };
    let (typed, typing) = descriptor::pipe().unwrap();
    descriptor::write_all(&typing, input).unwrap();
    drop(typing);
    let (shown, sink) = descriptor::pipe().unwrap();
    let mut spectator = Spectator {
        input: Some(typed),
        sink,
    };
    before(&far);
    let other = thread::spawn(move || other_side(far));
    let result = running.attend(&mut spectator, witness, &mut Alone);
    drop(spectator);
    other.join().unwrap();
    let mut text = Vec::new();
    File::from(shown).read_to_end(&mut text).unwrap();
    (result.map(|(outcome, _)| outcome), text)
}

#[test]
fn a_program_runs_and_ends() {
    // The report may be late: the program runs since the order to start.
    let late = Duration::from_millis(20);
    let (result, shown) = attended(limits(), b"typed", move |far| {
        let mut typed = [0_u8; 16];
        let mut read = 0;
        while read < 5 {
            read += descriptor::read(far.input.as_fd(), &mut typed[read..]).unwrap();
        }
        // By what came the session has begun.
        thread::sleep(late);
        far.executing();
        far.write(&typed[..read]);
        // The end of the input arrives as an end.
        assert_eq!(descriptor::read(far.input.as_fd(), &mut typed).unwrap(), 0);
        far.write(b", told");
        far.report(Report::Ended {
            exec: ExecId::FIRST,
            signalled: false,
            number: 3,
        });
        far.gone();
    });
    let outcome = result.unwrap();
    assert_eq!(outcome.ending, Ending::Exited { status: 3 });
    assert!(outcome.usage.wall_clock >= late, "{:?}", outcome.usage);
    assert_eq!(outcome.usage.cpu, Duration::from_micros(1_500));
    assert_eq!(outcome.usage.memory_peak_bytes, 4_096);
    assert!(!outcome.usage.memory_is_whole);
    assert_eq!(shown, b"typed, told");
}

#[test]
fn every_report_of_an_end_has_its_ending() {
    let cases = [
        (
            Report::Ended {
                exec: ExecId::FIRST,
                signalled: false,
                number: 0,
            },
            Ending::Exited { status: 0 },
        ),
        (
            Report::Ended {
                exec: ExecId::FIRST,
                signalled: true,
                number: 9,
            },
            Ending::Signalled { signal: 9 },
        ),
        (Report::NotExecuted { error: 2 }, Ending::NotFound),
        (Report::NotExecuted { error: 13 }, Ending::NotExecutable),
        (
            Report::MemoryReached,
            Ending::Limited {
                limit: LimitHit::Memory,
            },
        ),
    ];
    for (report, expected) in cases {
        for launcher_first in [false, true] {
            // What the first process said last is heard, whichever line is told of its
            // end first: both are there when somebody looks.
            let tell = |far: &Far| match &report {
                Report::NotExecuted { .. } => far.answer(report.clone()),
                other => far.report(other.clone()),
            };
            let both = |far: &Far| {
                let gone = Report::Gone {
                    cpu_us: 1,
                    memory_peak_bytes: 1,
                };
                if launcher_first {
                    far.launcher_report(gone);
                    tell(far);
                } else {
                    tell(far);
                    far.launcher_report(gone);
                }
            };
            let (result, _) = attended_after(limits(), b"", both, drop);
            match result {
                Ok(outcome) if outcome.ending == expected => {}
                other => panic!("{report:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn words_too_large_for_the_kernel_are_reported_as_such() {
    let (result, _) = attended(limits(), b"", |far| {
        far.answer(Report::NotExecuted { error: 7 });
        far.gone();
    });
    assert!(matches!(result, Err(SandboxError::Words)), "{result:?}");
}

#[test]
fn a_first_process_that_the_kernel_ended_is_told_as_killed() {
    let (result, _) = attended(limits(), b"", |far| {
        far.executing();
        far.gone();
    });
    assert_eq!(result.unwrap().ending, Ending::Signalled { signal: 9 });
}

#[test]
fn failures_come_with_their_cause() {
    let failed = |stage, error, detail: &[u8]| Report::Failed {
        stage,
        error,
        detail: detail.to_vec(),
    };
    let inside = failed(Stage::Tree, 116, b"home/x");
    let (result, _) = attended(limits(), b"", {
        let inside = inside.clone();
        move |far| {
            far.report(inside);
            far.gone();
        }
    });
    let text = result.unwrap_err().to_string();
    assert!(
        text.contains("at /home/x") && text.contains("exchanged"),
        "{text}"
    );
    // What the launcher met is the cause of what its child met.
    let (result, _) = attended(limits(), b"", move |far| {
        far.report(failed(Stage::Start, 0, b""));
        thread::sleep(Duration::from_millis(50));
        far.launcher_report(failed(Stage::Ids, 1, b""));
    });
    let text = result.unwrap_err().to_string();
    assert!(text.starts_with("mapping user ids"), "{text}");
}

#[test]
fn a_launcher_that_ended_before_its_time_is_asked_for_its_reason() {
    let failed = |error| Report::Failed {
        stage: Stage::Ids,
        error,
        detail: Vec::new(),
    };
    /// The launcher's reports before its end, and the part of them that is reported on.
    type Case<'a> = (Vec<Report>, Option<&'a str>);
    let cases: [Case; 4] = [
        (vec![failed(1)], Some("mapping user ids")),
        (
            vec![Report::Started { pid: 7 }, failed(1)],
            Some("mapping user ids"),
        ),
        (vec![Report::Started { pid: 7 }], None),
        (Vec::new(), None),
    ];
    // A message that it never read makes its end known in another way.
    for (unread, (said, expected)) in [false, true].into_iter().flat_map(|unread| {
        let cases = cases.clone();
        cases.into_iter().map(move |case| (unread, case))
    }) {
        let (line, far) = socket::pair().unwrap();
        if unread {
            socket::send(line.as_fd(), b"s", &[]).unwrap();
        }
        for report in &said {
            socket::send(far.as_fd(), &report.to_bytes(), &[]).unwrap();
        }
        drop(far);
        assert!(socket::send(line.as_fd(), b"g", &[]).is_err());
        let told = last_words(&line).map(|error| error.to_string());
        let is_right = match (&told, expected) {
            (Some(told), Some(expected)) => told.starts_with(expected),
            (told, expected) => told.is_none() && expected.is_none(),
        };
        assert!(is_right, "{said:?}, {unread}: {told:?}");
    }
    // One that lives and says nothing is not waited for.
    let (line, _far) = socket::pair().unwrap();
    assert!(last_words(&line).is_none());
}

#[test]
fn malformed_reports_end_the_session() {
    let (result, _) = attended(limits(), b"", |far| {
        socket::send(far.control.as_fd(), &[99, 1, 2], &[]).unwrap();
        assert_eq!(far.order(), None);
    });
    assert!(result.unwrap_err().to_string().contains("malformed"));
}

#[test]
fn a_launcher_that_vanishes_ends_the_sandbox() {
    let (result, _) = attended(limits(), b"", |mut far| {
        far.executing();
        // As after kill -9: the line closes, the program still holds its pipes.
        let (_, other) = socket::pair().unwrap();
        drop(std::mem::replace(&mut far.line, other));
        assert_eq!(far.order(), Some(Order::End));
    });
    assert!(matches!(result, Err(SandboxError::Vanished)), "{result:?}");
}

#[test]
fn time_is_a_limit_and_the_program_is_asked_first() {
    let limits = Limits {
        wall_clock: Some(Duration::from_millis(100)),
        ..limits()
    };
    let (result, _) = attended(limits, b"", |far| {
        far.executing();
        assert_eq!(far.order(), Some(Order::Signal(ExecId::FIRST, 15)));
        far.report(Report::Ended {
            exec: ExecId::FIRST,
            signalled: false,
            number: 0,
        });
        far.gone();
    });
    let limit = LimitHit::WallClock;
    assert_eq!(result.unwrap().ending, Ending::Limited { limit });
}

#[test]
fn silence_is_a_limit_and_output_breaks_it() {
    let limits = Limits {
        idle: Some(Duration::from_millis(1500)),
        ..limits()
    };
    let (result, shown) = attended(limits, b"", |far| {
        far.executing();
        for _ in 0..4 {
            thread::sleep(Duration::from_millis(500));
            far.write(b".");
        }
        assert_eq!(far.order(), Some(Order::Signal(ExecId::FIRST, 15)));
        far.report(Report::Ended {
            exec: ExecId::FIRST,
            signalled: true,
            number: 15,
        });
        far.gone();
    });
    assert_eq!(shown, b"....");
    assert_eq!(
        result.unwrap().ending,
        Ending::Limited {
            limit: LimitHit::Idle
        }
    );
}

#[test]
fn who_does_not_obey_is_ended_without_being_asked() {
    let limits = Limits {
        wall_clock: Some(Duration::from_millis(50)),
        ..limits()
    };
    let (result, _) = attended(limits, b"", |far| {
        far.executing();
        assert_eq!(far.order(), Some(Order::Signal(ExecId::FIRST, 15)));
        assert_eq!(far.order(), Some(Order::End));
        // Nothing is done, everything stays open: the line is let go at last,
        // by which the launcher knows.
        assert_eq!(far.order(), None);
        assert_eq!(socket::receive(far.line.as_fd(), &mut [0]).unwrap().0, 0);
    });
    assert_eq!(
        result.unwrap().ending,
        Ending::Limited {
            limit: LimitHit::WallClock
        }
    );
}

#[test]
fn all_that_was_written_is_shown_before_the_end() {
    const BYTES: usize = 50_000;
    let (result, shown) = attended(limits(), b"", |mut far| {
        far.executing();
        far.report(Report::Ended {
            exec: ExecId::FIRST,
            signalled: false,
            number: 0,
        });
        far.launcher_report(Report::Gone {
            cpu_us: 1,
            memory_peak_bytes: 1,
        });
        let mut output = File::from(far.output.take().unwrap());
        output.write_all(&vec![b'x'; BYTES]).unwrap();
    });
    assert_eq!(result.unwrap().ending, Ending::Exited { status: 0 });
    assert_eq!(shown.len(), BYTES);
}

fn attempt(call: &[u8], count: u64) -> Report {
    Report::Attempt {
        call: call.to_vec(),
        pid: 7,
        count,
    }
}

/// A compromised first process may report anything.
#[test]
fn what_is_told_of_attempts_is_bounded() {
    let mut heard = Vec::new();
    let mut witness = |attempt: &atoll_model::Attempt| {
        heard.push(attempt.wall);
        true
    };
    let lies = |far: Far| {
        // As much as is taken.
        let tell = |report: Report| {
            while socket::send(far.control.as_fd(), &report.to_bytes(), &[]).is_err() {
                thread::sleep(Duration::from_millis(1));
            }
        };
        far.executing();
        for round in 1..=20 {
            for (call, _) in TOLD_CALLS {
                tell(attempt(call.as_bytes(), round));
                tell(attempt(format!("no-{call}").as_bytes(), u64::MAX));
            }
        }
        tell(attempt(b"mount", 3));
        tell(attempt(b"bpf", u64::MAX));
        tell(Report::Ended {
            exec: ExecId::FIRST,
            signalled: false,
            number: 0,
        });
        far.gone();
    };
    let (result, _) = witnessed(limits(), b"", &mut witness, |_| {}, lies);
    let attempts = result.unwrap().attempts;
    assert_eq!(attempts.len(), TOLD_CALLS.len());
    let count = |call: &str| attempts.iter().find(|one| one.call == call).unwrap().count;
    // No count goes back.
    let counts = ["mount", "bpf", "ptrace"].map(count);
    assert_eq!(counts, [20, u64::MAX, 20]);
    let mut walls: Vec<ViolationKind> = TOLD_CALLS.iter().map(|(_, wall)| *wall).collect();
    walls.dedup();
    assert_eq!(heard, walls, "each wall once");
}

#[test]
fn what_cannot_be_recorded_ends_the_run() {
    let (result, _) = witnessed(
        limits(),
        b"",
        &mut |_| false,
        |_| {},
        |far| {
            far.executing();
            far.report(attempt(b"mount", 1));
            assert_eq!(far.order(), Some(Order::End));
            far.gone();
        },
    );
    assert!(result.is_ok(), "{result:?}");
}

/// Its last report is read, although its launcher ended first.
#[test]
fn attempts_told_at_the_end_are_heard() {
    let both = |far: &Far| {
        far.launcher_report(Report::Gone {
            cpu_us: 1,
            memory_peak_bytes: 1,
        });
        far.report(attempt(b"mount", 5));
        far.report(Report::Ended {
            exec: ExecId::FIRST,
            signalled: false,
            number: 0,
        });
    };
    let (result, _) = attended_after(limits(), b"", both, drop);
    assert_eq!(result.unwrap().attempts[0].count, 5);
}

#[test]
fn exec_lost_with_its_server_fails() {
    let (result, _) = attended(limits(), b"", |far| {
        // The request is lost with the server.
        drop(far.status);
        let report = Report::ServerEnded.to_bytes();
        socket::send(far.control.as_fd(), &report, &[]).unwrap();
        let mut order = [0; 16];
        let (got, _) = socket::receive(far.control.as_fd(), &mut order).unwrap();
        assert_eq!(Order::from_bytes(&order[..got]), Ok(Order::End));
    });
    assert!(matches!(result, Err(SandboxError::NoExec(_))), "{result:?}");
}

/// A helper that was killed has taken the request, and nobody says so.
#[test]
fn exec_that_nobody_starts_fails() {
    let (result, _) = attended(limits(), b"", |far| {
        drop(far.status);
        let mut order = [0; 16];
        let (got, _) = socket::receive(far.control.as_fd(), &mut order).unwrap();
        assert_eq!(Order::from_bytes(&order[..got]), Ok(Order::End));
    });
    assert!(matches!(result, Err(SandboxError::NoExec(_))), "{result:?}");
}
