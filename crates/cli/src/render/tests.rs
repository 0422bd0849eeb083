use std::collections::BTreeMap;
use std::time::Duration;

use atoll_engine::changes::{Change, Changes, Group};
use atoll_engine::decision::Afterwards;
use atoll_model::{Attempt, Ending, Enforcement, LimitHit, LimitKey, RunId, TOLD_CALLS, Usage};

use super::walls::describe_attempts;
use super::*;
use crate::escape::Copied;

const PLAIN: Paint = Paint { on: false };
const COLOUR: Paint = Paint { on: true };

fn run() -> RunId {
    RunId::parse("261121-093012-k7qd").expect("a run id")
}

fn usage() -> Usage {
    Usage {
        wall_clock: Duration::from_millis(1_234),
        cpu: Duration::from_millis(900),
        memory_peak_bytes: 34 << 20,
        memory_is_whole: true,
        memory_kills: 0,
        processes_refused: 0,
    }
}

#[test]
fn colours_follow_the_terminal_and_the_environment() {
    let check = |terminal: bool, variables: &[(&str, &str)], expected: bool| {
        let paint = Paint::choose(terminal, |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        });
        assert_eq!(paint.on, expected, "{terminal} {variables:?}");
    };
    check(true, &[], true);
    check(false, &[], false);
    check(true, &[("NO_COLOR", "1")], false);
    check(true, &[("NO_COLOR", "")], true);
    check(false, &[("CLICOLOR_FORCE", "1")], true);
    check(false, &[("CLICOLOR_FORCE", "0")], false);
    check(true, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false);
    check(true, &[("CLICOLOR", "0")], false);
    check(true, &[("TERM", "dumb")], false);
    check(true, &[("TERM", "xterm-256color")], true);
}

const WHOLE_SUMMARY: &str = "\
atoll: 261121-093012-k7qd failed with status 3
  time     1.2 s, 900 ms of processor, 34 MiB at most
  limits   not held on this machine: cpu; in part: disk
  files    2 added, 1 changed, 9 removed
             + made-here.txt
             + evil\\x1b[2J\\xff
             ~ src/main.rs
             - old
             … and 8 more
  control  1 added  other programs run these; look closely
             + .git/hooks/pre-commit
  caches   12,345 added  kept apart
  denied   connect to\\u{202e} example.org:443 (1,000 times)
           read ~/.ssh
  copied   96 B to the clipboard, 2 times
  terminal 3 sequences removed from its output: 1 clipboard, 2 query
  state    kept, not applied
  next     atoll diff 261121-093012-k7qd
           atoll apply 261121-093012-k7qd
           atoll discard 261121-093012-k7qd
           atoll why 261121-093012-k7qd
";

#[test]
fn a_summary_tells_what_happened_and_what_to_do() {
    let changes = Changes {
        commits: Vec::new(),
        workspace: Group {
            in_git: 0,
            added: 2,
            changed: 1,
            removed: 9,
            names: vec![
                (Change::Added, b"made-here.txt".to_vec()),
                (Change::Added, b"evil\x1b[2J\xff".to_vec()),
                (Change::Changed, b"src/main.rs".to_vec()),
                (Change::Removed, b"old".to_vec()),
            ],
        },
        control: Group {
            in_git: 0,
            added: 1,
            names: vec![(Change::Added, b".git/hooks/pre-commit".to_vec())],
            ..Group::default()
        },
        caches: Group {
            in_git: 0,
            added: 12_345,
            ..Group::default()
        },
        ignored: Group::default(),
    };
    let denied = [
        Denied {
            what: "connect to\u{202e} example.org:443".into(),
            times: 1_000,
            limit: None,
        },
        Denied {
            what: "read ~/.ssh".into(),
            times: 1,
            limit: None,
        },
    ];
    let removed_sequences = BTreeMap::from([("clipboard", 1), ("query", 2)]);
    let held = [
        ("memory", "cgroup-v2"),
        ("cpu", "none"),
        ("disk", "supervisor, in part"),
        // Nobody asked for these: they are not for the end of every run.
        ("swap", "none"),
        ("inodes", "supervisor, in part"),
    ];
    let enforcement = held.map(|(limit, by)| Enforcement {
        limit: limit.into(),
        by: by.into(),
    });
    let run = run();
    let text = summary(
        PLAIN,
        &Summary {
            run: &run,
            ending: Ending::Exited { status: 3 },
            usage: usage(),
            enforcement: &enforcement,
            asked_for: &[LimitKey::Memory, LimitKey::Cpu, LimitKey::Disk],
            changes: &changes,
            denied: &denied,
            attempts: &[],
            profile: "default",
            network: None,
            listened: None,
            credentials: &[],
            failed: &[],
            refused_files: 0,
            removed_sequences: &removed_sequences,
            copied: Copied {
                times: 2,
                bytes: 96,
            },
            afterwards: Afterwards::Kept,
        },
    );
    assert_eq!(text, WHOLE_SUMMARY);
}

#[test]
fn a_summary_of_little_is_short() {
    let run = run();
    let changes = Changes::default();
    let kinds = BTreeMap::new();
    let short = Summary {
        run: &run,
        ending: Ending::Exited { status: 0 },
        usage: Usage {
            memory_is_whole: false,
            memory_kills: 0,
            ..usage()
        },
        enforcement: &[],
        asked_for: &[],
        changes: &changes,
        denied: &[],
        attempts: &[],
        profile: "default",
        network: None,
        listened: None,
        credentials: &[],
        failed: &[],
        refused_files: 0,
        removed_sequences: &kinds,
        copied: Copied::default(),
        afterwards: Afterwards::Kept,
    };
    assert_eq!(
        summary(PLAIN, &short),
        "atoll: 261121-093012-k7qd succeeded\n  \
         time     1.2 s, 900 ms of processor, 34 MiB in its largest process\n  \
         files    nothing changed\n"
    );
    assert_eq!(
        summary(COLOUR, &short),
        "\x1b[2matoll:\x1b[0m \x1b[1m261121-093012-k7qd\x1b[0m \x1b[32msucceeded\x1b[0m\n  \
         \x1b[2mtime     \x1b[0m1.2 s, 900 ms of processor, 34 MiB in its largest process\n  \
         \x1b[2mfiles    \x1b[0mnothing changed\n"
    );
}

#[test]
fn what_became_of_the_changes_decides_what_comes_next() {
    let run = run();
    let kinds = BTreeMap::new();
    let changes = Changes {
        commits: Vec::new(),
        ignored: Group {
            changed: 1,
            ..Group::default()
        },
        ..Changes::default()
    };
    let ends_with = |afterwards: Afterwards, expected: &str| {
        let text = summary(
            PLAIN,
            &Summary {
                run: &run,
                ending: Ending::Exited { status: 0 },
                usage: usage(),
                enforcement: &[],
                asked_for: &[],
                changes: &changes,
                denied: &[],
                attempts: &[],
                profile: "default",
                network: None,
                listened: None,
                credentials: &[],
                failed: &[],
                refused_files: 0,
                removed_sequences: &kinds,
                copied: Copied::default(),
                afterwards,
            },
        );
        let files = "  ignored  1 changed  by git, kept apart\n";
        let (_, end) = text.split_once(files).expect("the ignored file");
        assert_eq!(end, expected);
    };
    ends_with(
        Afterwards::Applied,
        "  state    applied\n  next     atoll undo 261121-093012-k7qd\n",
    );
    ends_with(Afterwards::Discarded, "  state    discarded\n");
    ends_with(
        Afterwards::Live,
        "  state    written to the workspace\n  next     atoll diff 261121-093012-k7qd\n           \
         atoll undo 261121-093012-k7qd\n",
    );
}

#[test]
fn endings_are_told_in_words() {
    let check = |ending: Ending, expected: &str| assert_eq!(describe_ending(ending), expected);
    check(Ending::Signalled { signal: 9 }, "ended by SIGKILL");
    check(Ending::Signalled { signal: 40 }, "ended by signal 40");
    check(
        Ending::Limited {
            limit: LimitHit::Memory,
        },
        "ended: the memory limit was reached",
    );
    check(Ending::NotFound, "not found inside the boundary");
}

#[test]
fn errors_say_why_and_what_to_try() {
    assert_eq!(
        problem(
            PLAIN,
            "the workspace \x1b[31m/x cannot be used",
            &["it is your home directory\nor holds it"],
            &["cd into a project", "atoll run --workspace DIR -- …"],
        ),
        "error: the workspace \\x1b[31m/x cannot be used\n  \
         why: it is your home directory\n       or holds it\n  \
         try: cd into a project\n  \
         try: atoll run --workspace DIR -- …\n"
    );
    assert_eq!(problem(COLOUR, "x", &[], &[]), "\x1b[31merror:\x1b[0m x\n");
    assert_eq!(warning(PLAIN, "a\nb"), "warning: a\n         b\n");
}

#[test]
fn attempts_are_one_line() {
    let attempt = |call: &str, count| Attempt::told(call.as_bytes(), 3, count).unwrap();
    let few = [attempt("mount", 2), attempt("keyctl", 1_000)];
    assert_eq!(
        describe_attempts(&few),
        "1,002 blocked attempts to leave the sandbox: mount, keyctl (MITRE ATLAS AML.T0090, AML.T0105)"
    );
    let one_wall = [attempt("unshare", 1), attempt("clone", 3)];
    assert_eq!(
        describe_attempts(&one_wall),
        "4 blocked attempts to create a namespace: unshare, clone (MITRE ATLAS AML.T0105)"
    );
    let many = TOLD_CALLS.iter().map(|(call, _)| attempt(call, u64::MAX));
    let told = describe_attempts(&many.collect::<Vec<_>>());
    assert!(told.contains("move_mount and 51 more (MITRE"), "{told}");
}

#[test]
fn the_table_of_runs_lines_up() {
    let row = |ending: Option<Ending>, files, command: &[&str]| RunRow {
        attempts: 0,
        run: run(),
        age: "2 min".into(),
        state: "kept".into(),
        profile: "default".into(),
        ending,
        files: Some(files),
        command: command.iter().map(OsString::from).collect(),
    };
    let rows = [
        row(Some(Ending::Exited { status: 0 }), 3, &["npm", "test"]),
        row(
            Some(Ending::Signalled { signal: 15 }),
            10_000,
            &[
                "sh",
                "-c",
                "echo 'a b'; \x1b]0;x\x07 and much more text here",
            ],
        ),
        RunRow {
            state: "running".into(),
            files: None,
            ..row(None, 0, &[""])
        },
        RunRow {
            state: "interrupted".into(),
            ..row(None, 1, &["make"])
        },
        RunRow {
            state: "failed".into(),
            ..row(None, 0, &["make"])
        },
        RunRow {
            state: "applied".into(),
            ..row(None, 1, &["make"])
        },
    ];
    assert_eq!(
        runs_table(PLAIN, &rows, 100),
        "\
RUN                 AGE    STATE        PROFILE  FILES   ENDED        COMMAND
261121-093012-k7qd  2 min  kept         default  3       ok           npm test
261121-093012-k7qd  2 min  kept         default  10,000  SIGTERM      sh -c 'echo '\\''a b'\\''; \\x1b…
261121-093012-k7qd  2 min  running      default  -       running      ''
261121-093012-k7qd  2 min  interrupted  default  1       interrupted  make
261121-093012-k7qd  2 min  failed       default  0       failed       make
261121-093012-k7qd  2 min  applied      default  1       unknown      make
"
    );
    assert_eq!(runs_table(PLAIN, &[], 80), "no runs\n");
    let narrow = runs_table(COLOUR, &rows[1..2], 0);
    assert!(narrow.starts_with("\x1b[1mRUN"), "{narrow:?}");
    assert!(narrow.contains("\x1b[31m261121"), "{narrow:?}");
    assert!(narrow.ends_with("sh -c 'echo '\\'…\n"), "{narrow:?}");
}

#[test]
fn numbers_are_grouped() {
    for (number, expected) in [
        (0, "0"),
        (999, "999"),
        (1_000, "1,000"),
        (12_345, "12,345"),
        (1_234_567, "1,234,567"),
    ] {
        assert_eq!(grouped(number), expected);
    }
    assert_eq!(counted(1, "file", "files"), "1 file");
    assert_eq!(counted(0, "file", "files"), "0 files");
}

#[test]
fn progress_is_shown_late_and_seldom_and_goes_away() {
    let at = Duration::from_millis;
    let mut out = Vec::new();
    let mut progress = Progress::new(&mut out, Some(10));
    for (ms, text) in [
        (0, "too early"),
        (399, "too early"),
        (400, "one"),
        (450, "too soon"),
        (500, "two\x1b[2J, long"),
    ] {
        progress.update(at(ms), text).expect("written");
    }
    progress.finish().expect("written");
    assert_eq!(
        String::from_utf8_lossy(&out),
        "\r\x1b[Kone\r\x1b[Ktwo\\x1b[…\r\x1b[K"
    );
    let mut out = Vec::new();
    let mut progress = Progress::new(&mut out, None);
    progress.update(at(9_000), "no terminal").expect("written");
    progress.finish().expect("written");
    assert!(out.is_empty());
}
