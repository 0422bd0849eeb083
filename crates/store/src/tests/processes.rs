use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::*;

const ROLE: &str = "ATOLL_STORE_TEST_ROLE";
const STATE: &str = "ATOLL_STORE_TEST_STATE";

/// This test program, asked to run only [`child`] in a certain role.
pub(super) fn helper(role: &str, state: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "tests::processes::child",
            "--nocapture",
            "--quiet",
        ])
        .env(ROLE, role)
        .env(STATE, state);
    command
}

/// The prefix of a helper's output: the test harness writes lines of its own.
const SAYS: &str = "helper says ";

pub(super) fn says(output: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(output)
        .lines()
        .filter_map(|line| line.split_once(SAYS).map(|(_, said)| said.to_owned()))
        .collect()
}

/// Not a test of its own: the helper processes of the others.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let path = PathBuf::from(std::env::var_os(STATE).unwrap());
    let say = |what: String| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n{SAYS}{what}").unwrap();
        out.flush().unwrap();
    };
    let state = match StateDir::open(&path) {
        Ok(state) => state,
        Err(error) => return say(format!("{error}")),
    };
    let ledger = match open_ledger(&state, SystemTime::now) {
        Ok(ledger) => ledger,
        Err(error) => return say(format!("{error}")),
    };
    match role.as_str() {
        "append" => {
            for number in 0..200 {
                note(&ledger, number);
            }
        }
        "append-for-ever" => {
            for number in 0.. {
                let position = note(&ledger, number);
                say(format!("{} {}", position.seq, position.leaf));
            }
        }
        "hold-run" => {
            let verdict = allow();
            let entry = ledger.open_call(&call(1), &verdict, json!({})).unwrap();
            let _armed = entry.arm(verdict).unwrap();
            say("armed".to_owned());
            std::thread::sleep(Duration::from_secs(60));
        }
        "run-for-ever" => {
            for number in 0.. {
                let verdict = allow();
                let mut call = call(0);
                call.id.run = RunId::new(u64::from(std::process::id()), number);
                let entry = ledger.open_call(&call, &verdict, json!({})).unwrap();
                say(format!("open {}", entry.run()));
                let armed = entry.arm(verdict).unwrap();
                let run = armed.run().clone();
                ledger.close(armed, &outcome(0), json!({})).unwrap();
                say(format!("closed {run}"));
            }
        }
        "open" => say(format!("interrupted {}", ledger.interrupted().len())),
        "fill" => {
            for number in 0..100_000_u64 {
                let body = json!({ "number": number, "text": "x".repeat(3_000) });
                if let Err(error) = ledger.record(None, "test.noted", body, Durability::Durable) {
                    say(format!("{error}"));
                    break;
                }
                say(format!("acknowledged {number}"));
            }
            say(format!(
                "{:?}",
                Ledger::verify(&state).map(|verified| verified.events)
            ));
            let error = create_run(&state, &record(1)).unwrap_err();
            say(format!("{error}"));
            say(format!("{}", list_runs(&state).unwrap().broken.len()));
        }
        other => panic!("{other}"),
    }
}

fn kill(mut child: Child) -> Vec<u8> {
    child.kill().unwrap();
    let mut output = Vec::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut output)
        .unwrap();
    child.wait().unwrap();
    output
}

#[test]
fn several_processes_append_at_once() {
    let place = Place::new();
    let children: Vec<_> = (0..6)
        .map(|_| {
            helper("append", place.state.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(place.verified().events, 1_200);
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let place = Place::new();
    let mut acknowledged = Vec::new();
    let mut rounds = 0_u64;
    // However slow the disk is.
    while rounds < 20 || (acknowledged.len() <= 20 && rounds < 1_000) {
        rounds += 1;
        let child = helper("append-for-ever", place.state.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Spread over the start of the process and the appends that follow.
        std::thread::sleep(Duration::from_micros(3_000 + rounds * 2_711 % 40_000));
        acknowledged.extend(says(&kill(child)));
        place.verified();
    }
    note(&place.ledger(), 0);
    place.verified();
    assert!(
        acknowledged.len() > 20,
        "only {} appends",
        acknowledged.len()
    );
    let events = place.events();
    for line in acknowledged {
        let (seq, leaf) = line.split_once(' ').unwrap();
        let seq: usize = seq.parse().unwrap();
        assert_eq!(events[seq].position.leaf.to_string(), leaf);
    }
}

#[test]
fn runs_that_are_killed_at_any_moment_end_once() {
    let place = Place::new();
    let mut said = Vec::new();
    let mut rounds = 0_u64;
    // However slow the disk is.
    while rounds < 20 || (said.len() < 20 && rounds < 1_000) {
        rounds += 1;
        let child = helper("run-for-ever", place.state.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(4_000 + rounds * 1_931 % 60_000));
        said.extend(says(&kill(child)));
    }
    drop(place.ledger());
    place.verified();
    assert_eq!(
        std::fs::read_dir(place.state.path().join("open"))
            .unwrap()
            .count(),
        0
    );
    let events = place.events();
    let count = |run: &RunId, kinds: &[&str]| {
        events
            .iter()
            .filter(|event| event.run.as_ref() == Some(run) && kinds.contains(&&*event.kind))
            .count()
    };
    let opened: Vec<_> = events
        .iter()
        .filter(|event| event.kind == "run.opened")
        .collect();
    assert!(opened.len() > 10);
    for event in &opened {
        let run = event.run.as_ref().unwrap();
        assert_eq!(count(run, &["run.closed", "run.interrupted"]), 1, "{run}");
    }
    for line in said {
        let (what, run) = line.split_once(' ').unwrap();
        let run = RunId::parse(run).unwrap();
        let kind = if what == "open" {
            "run.opened"
        } else {
            "run.closed"
        };
        assert_eq!(count(&run, &[kind]), 1, "{line}");
    }
}

#[test]
fn a_killed_run_is_found_interrupted_exactly_once() {
    for _ in 0..5 {
        let place = Place::new();
        let mut child = helper("hold-run", place.state.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while !lines.next().unwrap().unwrap().ends_with("armed") {}
        create_run(&place.state, &record(1)).unwrap();
        // Alive: nobody takes it for interrupted, and it cannot be removed.
        assert!(place.ledger().interrupted().is_empty());
        assert!(matches!(
            remove_run(&place.state, &run_id(1)),
            Err(RunError::Alive(_))
        ));
        child.kill().unwrap();
        child.wait().unwrap();

        let openers: Vec<_> = (0..6)
            .map(|_| {
                helper("open", place.state.path())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let found: u64 = openers
            .into_iter()
            .flat_map(|opener| says(&opener.wait_with_output().unwrap().stdout))
            .map(|said| {
                said.strip_prefix("interrupted ")
                    .unwrap()
                    .parse::<u64>()
                    .unwrap()
            })
            .sum();
        assert_eq!(found, 1);
        assert_eq!(place.kinds(), ["run.opened", "run.interrupted"]);
        assert_eq!(
            load_run(&place.state, &run_id(1)).unwrap().state,
            RunState::Interrupted
        );
        remove_run(&place.state, &run_id(1)).unwrap();
    }
}
