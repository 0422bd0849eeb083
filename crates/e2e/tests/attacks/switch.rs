//! The switch that leaves defences out is in no program that users get.

use e2e::World;

use super::harness::{SWITCH, program, weakened};

#[test]
fn the_ordinary_program_cannot_leave_a_defence_out() {
    const TEST: &str = "the_ordinary_program_cannot_leave_a_defence_out";
    let Some(weakened) = weakened(TEST) else {
        return;
    };
    let holds = |path| {
        let bytes = std::fs::read(path).unwrap();
        bytes
            .windows(SWITCH.len())
            .any(|one| one == SWITCH.as_bytes())
    };
    assert!(!holds(program()), "the program has the switch");
    assert!(holds(weakened.clone()), "the build for tests has no switch");

    // The launcher inside is asked by its name; each says what it is.
    let world = World::new(TEST);
    let filtered = "grep -q '^Seccomp:.*2$' /proc/self/status && echo filtered";
    let run = |program: std::path::PathBuf| {
        world
            .host_shell("exec \"$ATOLL\" run --discard -- sh -c \"$SCRIPT\"")
            .env("ATOLL", program)
            .env("SCRIPT", filtered)
            .env(SWITCH, "seccomp")
            .run()
    };
    let ordinary = run(program());
    assert_eq!(ordinary.out(), "filtered\n", "{ordinary}");
    assert!(!ordinary.err().contains("NO BOUNDARY"), "{ordinary}");
    let weak = run(weakened);
    assert_eq!(weak.out(), "", "{weak}");
    weak.says(["NO BOUNDARY", "seccomp"]);
}
