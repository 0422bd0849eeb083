//! A kernel, or a sandbox around Atoll, that lacks one feature: a run that cannot be enforced does
//! not start. Each row takes one system call away from Atoll and all its descendants.

use e2e::{Outcome, is_root};

use super::harness::{note_row, weakened, world};

/// One missing feature.
struct Lack {
    id: &'static str,
    /// The call's number on x86-64 and on arm64.
    call: (i64, i64),
    /// An argument by its position and value; position -1 for any.
    argument: (i64, u32),
    /// Set when an ordinary user's sandbox needs it too.
    everyone: bool,
}

const fn lack(id: &'static str, call: (i64, i64), argument: (i64, u32)) -> Lack {
    Lack {
        id,
        call,
        argument,
        everyone: true,
    }
}

const ANY: (i64, u32) = (-1, 0);
const PRCTL: (i64, i64) = (157, 167);
const CLONE3: (i64, i64) = (435, 435);

const LACKS: &[Lack] = &[
    lack("lacks-landlock", (444, 444), ANY),
    lack("lacks-landlock-rules", (445, 445), ANY),
    lack("lacks-landlock-domains", (446, 446), ANY),
    lack("lacks-seccomp", (317, 277), ANY),
    lack("lacks-no-new-privileges", PRCTL, (0, 38)),
    lack("lacks-opacity", PRCTL, (0, 4)),
    lack("lacks-death-with-its-parent", PRCTL, (0, 1)),
    lack("lacks-bounds-of-capabilities", PRCTL, (0, 24)),
    lack("lacks-secure-bits", PRCTL, (0, 28)),
    lack("lacks-capabilities-to-drop", (126, 91), ANY),
    lack("lacks-processes-with-namespaces", CLONE3, ANY),
    lack("lacks-network-namespaces", (272, 97), (0, 0x4000_0000)),
    lack("lacks-cgroup-namespaces", (272, 97), (0, 0x0200_0000)),
    lack("lacks-joining", (308, 268), ANY),
    lack("lacks-a-host-name", (170, 161), ANY),
    lack("lacks-another-root", (155, 41), ANY),
    lack("lacks-new-file-systems", (430, 430), ANY),
    lack("lacks-mounts", (432, 432), ANY),
    lack("lacks-moving-mounts", (429, 429), ANY),
    lack("lacks-copies-of-mounts", (428, 428), ANY),
    lack("lacks-attributes-of-mounts", (442, 442), ANY),
    lack("lacks-unmounting", (166, 39), ANY),
    lack("lacks-closing-descriptors", (436, 436), ANY),
    lack("lacks-sealed-memory", (72, 25), (1, 1033)),
    lack("lacks-memory-files", (319, 279), ANY),
    lack("lacks-careful-opening", (437, 437), ANY),
    lack("lacks-limits", (302, 261), ANY),
    Lack {
        id: "lacks-other-ids",
        call: (117, 147),
        argument: ANY,
        everyone: false,
    },
];

const ERRORS: [i32; 2] = [1, 38];

fn run_without(test: &str, lack: &Lack, error: i32) -> Outcome {
    let world = world(test);
    let (x86_64, aarch64) = lack.call;
    let call = if cfg!(target_arch = "aarch64") {
        aarch64
    } else {
        x86_64
    };
    let front: Vec<String> = [
        "./attack".to_owned(),
        "without-call".to_owned(),
        call.to_string(),
        lack.argument.0.to_string(),
        lack.argument.1.to_string(),
        error.to_string(),
    ]
    .into();
    world.run(["--discard"], "echo started").under(front).run()
}

#[test]
fn what_cannot_be_enforced_does_not_start() {
    const TEST: &str = "what_cannot_be_enforced_does_not_start";
    if weakened(TEST).is_none() {
        return;
    }
    // A call that nothing needs: accounting.
    let control = lack("lacks-accounting", (163, 89), ANY);
    for error in ERRORS {
        let ran = run_without(TEST, &control, error);
        assert_eq!(ran.out(), "started\n", "the control does not start: {ran}");
    }
    let mut failed = Vec::new();
    for lack in LACKS.iter().filter(|lack| lack.everyone || is_root()) {
        for error in ERRORS {
            let ran = run_without(TEST, lack, error);
            if ran.out().contains("started") || ran.code() == 0 {
                failed.push(format!("{} GOT THROUGH with {error}: {ran}", lack.id));
            } else if !ran.err().contains("error:") || ran.err().contains("panicked") {
                failed.push(format!("{} is not told, with {error}: {ran}", lack.id));
            }
        }
        println!(
            "{} [AML.T0105]: nothing starts; succeeds without accounting",
            lack.id
        );
        note_row(lack.id);
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
