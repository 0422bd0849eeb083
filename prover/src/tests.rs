//! Solvers that are none: what they say is never taken for a proof. That proofs are found is seen
//! end to end, with the real one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use atoll_cedar::{Action, Case, Layer, PolicyFile, Property, Subject, Verdict};

use crate::prover::Prover;

fn subject(text: &str) -> Subject {
    let file = PolicyFile {
        name: "/policies/test.cedar".to_owned(),
        content: text.as_bytes().to_vec(),
    };
    Subject::new(&[(Layer::User, vec![file])]).unwrap()
}

/// A program is written while no other test starts one, which would hold it open for writing.
static ALONE: Mutex<()> = Mutex::new(());

/// What is said of a property that a solver has to be asked about, of which `script` is one.
fn verdict(script: &str, limit: Duration) -> Verdict {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("cvc5");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let policies = subject(
        "permit(principal, action == Action::\"connect\", resource) when { context.port == 443 };",
    );
    let property = Property::NeverAllows {
        action: Action::Connect,
        condition: Some("context.port == 22".to_owned()),
    };
    let mut prover = Prover::new(&program, limit, Case::default(), &policies).unwrap();
    prover.prove(&property)
}

const LONG: Duration = Duration::from_secs(60);

/// The positive control: what says so on every question is believed.
#[test]
fn a_solver_that_finds_nothing_is_believed() {
    let says = "while read -r line; do [ \"$line\" = '(check-sat)' ] && echo unsat; done";
    assert_eq!(verdict(says, LONG), Verdict::Proven);
}

#[test]
fn what_is_no_answer_is_no_proof() {
    for script in [
        "exit 0",
        "read -r line; exit 1",
        "while read -r line; do [ \"$line\" = '(check-sat)' ] && echo unknown; done",
        "echo '(error \"Parse Error: it is older\")'; cat > /dev/null",
        "echo; cat > /dev/null",
        "head -c 6000000 /dev/zero; cat > /dev/null",
        "while read -r line; do [ \"$line\" = '(check-sat)' ] && echo sat && echo '('; done",
    ] {
        let limit = Duration::from_secs(3);
        let found = verdict(script, limit);
        assert!(matches!(found, Verdict::Unknown(_)), "{script}: {found:?}");
    }
}

#[test]
fn a_solver_that_takes_too_long_ends() {
    let begin = Instant::now();
    for script in ["sleep 600", "cat > /dev/null; sleep 600"] {
        let found = verdict(script, Duration::from_secs(1));
        assert!(matches!(found, Verdict::Unknown(_)), "{script}: {found:?}");
    }
    assert!(begin.elapsed() < Duration::from_secs(300));
}

#[test]
fn a_solver_is_told_nothing_of_this_process() {
    let directory = tempfile::tempdir().unwrap();
    let seen = directory.path().join("seen");
    let script = format!(
        "tr '\\0' '\\n' < /proc/self/environ > {0}; cat > /dev/null",
        seen.display()
    );
    let found = verdict(&script, Duration::from_secs(5));
    assert!(matches!(found, Verdict::Unknown(_)), "{found:?}");
    let seen = fs::read_to_string(seen).unwrap();
    let names = seen.lines().filter_map(|line| line.split('=').next());
    let names: Vec<&str> = names
        .filter(|name| !["PWD", "_", "SHLVL", "OLDPWD"].contains(name))
        .collect();
    assert_eq!(names, ["PATH"], "{seen}");
    assert!(std::env::vars().count() > 1, "there is something to tell");
}

#[test]
fn names_are_in_each_other_as_atoll_says() {
    use crate::world::{is_beneath, is_called, is_host_in};
    for (one, over, expected) in [
        ("a.example.com", "*.example.com", true),
        ("*.a.example.com", "*.example.com", true),
        ("example.com", "*.example.com", false),
        ("*.example.com", "*.example.com", false),
        ("aexample.com", "*.example.com", false),
        ("10.0.0.1", "*.0.1", false),
        ("a.example.com", "a.example.com", false),
    ] {
        assert_eq!(is_host_in(one, over), expected, "{one} {over}");
    }
    assert!(is_beneath("/a/b", "/a") && is_beneath("/a", "/"));
    assert!(!is_beneath("/ab", "/a") && !is_beneath("/a", "/a"));
    assert!(is_called("/usr/bin/git", "git") && !is_called("git", "git"));
}
