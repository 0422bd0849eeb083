//! A person at a terminal: the program gets a terminal that behaves as usual, the person gets
//! theirs back as it was, and a question at the end.

use e2e::{BOUND, Invocation, Process, World, descendants_of, is_alive, tree, wait_until};
use rustix::termios::LocalModes;

const QUESTION: &str = "Apply the changes?";

/// Returns `atoll run` with an answer given beforehand, so that nothing is asked.
fn kept(world: &World, script: &str) -> Invocation {
    world.run(["--keep"], script)
}

/// A key that ends programs ends one that has stopped itself, too: nobody else continues it.
#[test]
fn program_that_stops_itself_ends_by_the_keys_that_end_programs() {
    for (key, status) in [("\x03", 130), ("\x1c", 131)] {
        let world = World::new("program_that_stops_itself_ends_by_the_keys_that_end_programs");
        let script = "echo up; kill -STOP $$; exec sleep 1000";
        let mut terminal = kept(&world, script).on_terminal(24, 80);
        terminal.expect("up");
        let run = world.last_run();
        // Its state is seen from another terminal.
        wait_until("it has stopped", BOUND, || {
            let seen = world
                .atoll(["exec", &run, "--", "ps", "-o", "stat=", "2"])
                .run();
            seen.out().starts_with('T').then_some(())
        });
        terminal.send(key);
        assert_eq!(terminal.wait().code(), status);
    }
}

#[test]
fn the_program_has_a_terminal_of_its_own() {
    let world = World::new("the_program_has_a_terminal_of_its_own");
    let script = "tty; test -t 0 && test -t 1 && test -t 2 && echo three; echo to-tty > /dev/tty";
    let mut terminal = kept(&world, script).on_terminal(24, 80);
    let ended = terminal.wait().success();
    assert!(ended.out().contains("/dev/pts/"), "{ended}");
    assert!(
        ended.out().contains("three") && ended.out().contains("to-tty"),
        "{ended}"
    );
}

#[test]
fn without_a_terminal_there_is_none_inside() {
    let world = World::new("without_a_terminal_there_is_none_inside");
    let seen = world
        .run_inside("test -t 0 || test -t 1 || test -t 2 || echo none")
        .success();
    assert_eq!(seen.out(), "none\n");
    let tty = world.run(["--tty"], "true").run().expect_status(125);
    tty.is_clear_error(["--tty", "terminal"]);
    let mut terminal = world
        .run(["--keep", "--no-tty"], "test -t 1 || echo pipes")
        .on_terminal(24, 80);
    let ended = terminal.wait().success();
    assert!(ended.out().contains("pipes"), "{ended}");
}

#[test]
fn the_size_is_right_and_a_resize_is_seen() {
    let world = World::new("the_size_is_right_and_a_resize_is_seen");
    let script = "stty size; trap 'echo changed; stty size' WINCH; echo ready; while read -r x; do test $x = q && exit; done";
    let mut terminal = kept(&world, script).on_terminal(31, 117);
    terminal.expect("31 117");
    terminal.expect("ready");
    terminal.resize(42, 99);
    // The shell runs its trap when the line it reads has come.
    terminal.line("x");
    terminal.expect("changed");
    terminal.expect("42 99");
    terminal.line("q");
    let _ = terminal.wait().success();
}

#[test]
fn the_persons_terminal_is_raw_meanwhile_and_as_before_afterwards() {
    let world = World::new("the_persons_terminal_is_raw_meanwhile_and_as_before_afterwards");
    let mut terminal = kept(
        &world,
        "echo ready; read x; stty raw -echo; printf '\\033[?25l'",
    )
    .on_terminal(24, 80);
    let before = terminal.settings();
    terminal.expect("ready");
    let meanwhile = terminal.settings();
    assert!(
        !meanwhile.local_modes.contains(LocalModes::ICANON),
        "it is not raw"
    );
    assert!(
        !meanwhile.local_modes.contains(LocalModes::ECHO),
        "it echoes twice"
    );
    terminal.line("");
    let ended = terminal.wait().success();
    let after = terminal.settings();
    assert_eq!(after.local_modes, before.local_modes);
    assert_eq!(after.input_modes, before.input_modes);
    assert_eq!(after.output_modes, before.output_modes);
    assert!(
        ended.out().contains("\x1b[?25h"),
        "the cursor stays hidden\n{ended}"
    );
}

#[test]
fn what_is_typed_is_shown_once() {
    let world = World::new("what_is_typed_is_shown_once");
    let mut terminal = kept(&world, "echo ready; read x; echo \"<$x>\"").on_terminal(24, 80);
    terminal.expect("ready");
    terminal.line("typed");
    terminal.expect("<typed>");
    let ended = terminal.wait().success();
    assert_eq!(ended.out().matches("typed").count(), 2, "{ended}");
}

#[test]
fn control_c_reaches_the_program_and_only_it() {
    let world = World::new("control_c_reaches_the_program_and_only_it");
    let mut terminal = kept(
        &world,
        "trap 'echo caught' INT; echo ready; sleep 1000; echo on",
    )
    .on_terminal(24, 80);
    terminal.expect("ready");
    // A shell that is asked before it waits for the other does not tell it.
    let pid = terminal.pid();
    wait_until("the program", BOUND, || {
        descendants_of(pid)
            .iter()
            .any(|one| one.name == "sleep")
            .then_some(())
    });
    terminal.send(b"\x03");
    terminal.expect("caught");
    terminal.expect("on");
    let ended = terminal.wait();
    assert!(ended.code() == 0, "{ended}");

    let mut terminal = kept(&world, "echo ready; exec sleep 1000").on_terminal(24, 80);
    terminal.expect("ready");
    terminal.send(b"\x03");
    let ended = terminal.wait().expect_status(130);
    assert!(ended.out().contains("SIGINT"), "{ended}");
}

#[test]
fn control_d_ends_the_input() {
    let world = World::new("control_d_ends_the_input");
    let mut terminal = kept(&world, "echo ready; cat; echo end").on_terminal(24, 80);
    terminal.expect("ready");
    terminal.line("some");
    terminal.expect("some");
    terminal.send(b"\x04");
    terminal.expect("end");
    let _ = terminal.wait().success();
}

#[test]
fn jobs_inside_can_be_stopped_and_continued() {
    let world = World::new("jobs_inside_can_be_stopped_and_continued");
    let mut terminal = world
        .atoll(["run", "--keep", "--", "bash", "--norc", "-i"])
        .on_terminal(24, 80);
    // What is typed before the shell is there may be lost, as with any shell.
    terminal.expect("bash-");
    terminal.line("echo re''ady");
    terminal.expect("ready");
    terminal.line("sleep 1000");
    // The shell inside makes it the foreground job before it can be stopped.
    terminal.line("");
    let pid = terminal.pid();
    wait_until("the job", BOUND, || {
        descendants_of(pid)
            .iter()
            .any(|one| one.name == "sleep")
            .then_some(())
    });
    terminal.send(b"\x1a");
    terminal.expect("Stopped");
    terminal.expect("sleep 1000");
    terminal.expect("bash-");
    terminal.line("fg");
    terminal.expect("sleep 1000");
    // The shell tells of the job before it gives it the terminal and lets it go on.
    wait_until("the job goes on", BOUND, || {
        let goes_on = |one: &Process| one.name == "sleep" && one.state == 'S';
        descendants_of(pid).iter().any(goes_on).then_some(())
    });
    terminal.send(b"\x03");
    terminal.expect("bash-");
    terminal.line("echo sta''tus $?");
    terminal.expect("status 130");
    terminal.line("exit 5");
    let _ = terminal.wait().expect_status(5);
}

#[test]
fn control_z_suspends_the_run_and_fg_goes_on() {
    let world = World::new("control_z_suspends_the_run_and_fg_goes_on");
    let mut terminal = world
        .host("bash")
        .args(["--norc", "--noprofile", "-i"])
        .env("PS1", "")
        .on_terminal(24, 80);
    terminal.line("stty -echo; echo re''ady");
    terminal.expect("ready");
    // A shell that is just starting another program (vfork(2)) cannot be stopped:
    // this one answers by itself, and has answered when the key is pressed.
    let answers =
        r#"echo in""side; while read -r line; do echo "$line-answered $(stty size)"; done"#;
    terminal.line(&format!("\"$ATOLL\" run --keep -- sh -c '{answers}'"));
    terminal.expect("inside");
    terminal.line("before");
    terminal.expect("before-answered 24 80");
    terminal.send(b"\x1a");
    terminal.expect("Stopped");
    terminal.line("echo shell''-again");
    terminal.expect("shell-again");
    // Of that only the shell is told.
    terminal.resize(30, 100);
    terminal.line("fg");
    terminal.expect("run --keep");
    terminal.line("after");
    terminal.expect("after-answered 30 100");
    terminal.send(b"\x04");
    terminal.expect("succeeded");
    terminal.line("exit");
    let _ = terminal.wait();
}

/// Nobody could continue it: the program goes on.
#[test]
fn control_z_without_a_shell_stops_nothing() {
    let world = World::new("control_z_without_a_shell_stops_nothing");
    let answers = r#"echo in""side; while read -r line; do echo "$line-answered"; done"#;
    let mut terminal = kept(&world, answers).on_terminal(24, 80);
    terminal.expect("inside");
    for line in ["once", "twice"] {
        terminal.send(b"\x1a");
        terminal.line(line);
        terminal.expect(&format!("{line}-answered"));
    }
    terminal.send(b"\x04");
    let _ = terminal.wait().success();
}

#[test]
fn sequences_that_speak_to_the_terminal_are_removed() {
    let world = World::new("sequences_that_speak_to_the_terminal_are_removed");
    let script =
        "printf 'a\\033]52;c;ZXZpbA==\\007b\\033]0;title\\007c\\033[6nd\\033[31mred\\033[0m\\n'";
    let mut terminal = kept(&world, script).on_terminal(24, 80);
    let ended = terminal.wait().success();
    let out = ended.out();
    assert!(
        !out.contains("ZXZpbA"),
        "the clipboard was written\n{ended}"
    );
    assert!(!out.contains("\x1b]0;"), "the title was changed\n{ended}");
    assert!(!out.contains("\x1b[6n"), "the terminal was asked\n{ended}");
    assert!(
        out.contains("abcd\x1b[31mred"),
        "text or colours are lost\n{ended}"
    );
    assert!(
        out.contains("terminal"),
        "the summary does not tell\n{ended}"
    );
    // What goes to a pipe is left as it is.
    let piped = world.run_inside(script).success();
    assert!(piped.out().contains("ZXZpbA"), "{piped}");
}

#[test]
fn names_of_files_do_not_speak_to_the_terminal() {
    let world = World::new("names_of_files_do_not_speak_to_the_terminal");
    let script = "echo x > \"$(printf 'evil\\033]52;c;ZXZpbA==\\007name')\"";
    let mut terminal = kept(&world, script).on_terminal(24, 80);
    let ended = terminal.wait().success();
    assert!(!ended.out().contains("\x1b]52"), "{ended}");
    for arguments in [
        vec!["diff", "--no-pager"],
        vec!["diff", "--stat"],
        vec!["runs"],
    ] {
        let mut terminal = world.atoll(arguments).on_terminal(24, 80);
        let ended = terminal.wait().success();
        assert!(!ended.out().contains("\x1b]52"), "{ended}");
    }
}

#[test]
fn the_question_is_answered_with_keep() {
    let world = World::new("the_question_is_answered_with_keep");
    let mut terminal = world.run([""; 0], "echo new > new").on_terminal(24, 80);
    terminal.expect(QUESTION);
    terminal.line("k");
    terminal.expect("Kept. `atoll apply ");
    let _ = terminal.wait().success();
    assert!(!world.exists("new"));
    assert_eq!(world.runs()[0]["state"], "kept");
}

#[test]
fn the_question_is_answered_with_apply() {
    let world = World::new("the_question_is_answered_with_apply");
    let mut terminal = world
        .run([""; 0], "echo new > new; exit 6")
        .on_terminal(24, 80);
    terminal.expect(QUESTION);
    terminal.line("a");
    terminal.expect("Applied. ");
    let _ = terminal.wait().expect_status(6);
    assert_eq!(world.read("new"), "new\n");
}

#[test]
fn the_question_is_answered_with_discard() {
    let world = World::new("the_question_is_answered_with_discard");
    let mut terminal = world.run([""; 0], "echo new > new").on_terminal(24, 80);
    terminal.expect(QUESTION);
    terminal.line("x");
    terminal.expect("Discarded. ");
    let _ = terminal.wait().success();
    assert!(!world.exists("new"));
    assert!(world.runs().is_empty());
}

#[test]
fn the_question_is_answered_with_diff_and_asked_again() {
    let world = World::new("the_question_is_answered_with_diff_and_asked_again");
    let mut terminal = world
        .run([""; 0], "echo brand-new > new")
        .env("PAGER", "cat")
        .on_terminal(24, 80);
    terminal.expect(QUESTION);
    terminal.line("d");
    terminal.expect("brand-new");
    terminal.expect(QUESTION);
    terminal.line("nonsense");
    terminal.expect(QUESTION);
    terminal.line("k");
    let _ = terminal.wait().success();
}

#[test]
fn the_end_of_input_at_the_question_keeps() {
    let world = World::new("the_end_of_input_at_the_question_keeps");
    let mut terminal = world.run([""; 0], "echo new > new").on_terminal(24, 80);
    terminal.expect(QUESTION);
    terminal.send(b"\x04");
    let _ = terminal.wait().success();
    assert_eq!(world.runs()[0]["state"], "kept");
}

#[test]
fn what_was_typed_before_the_question_does_not_answer_it() {
    let world = World::new("what_was_typed_before_the_question_does_not_answer_it");
    let mut terminal = world
        .run([""; 0], "echo new > new; echo ready; read x")
        .on_terminal(24, 80);
    terminal.expect("ready");
    terminal.send(b"\ra\ra\r");
    terminal.expect(QUESTION);
    terminal.line("k");
    let _ = terminal.wait().success();
    assert!(
        !world.exists("new"),
        "typed ahead for the program, it was taken for an answer"
    );
}

#[test]
fn a_program_cannot_answer_the_question_itself() {
    let world = World::new("a_program_cannot_answer_the_question_itself");
    // A terminal that answers questions would type for the program.
    let script = "echo new > new; printf '\\033[c\\033[5n\\033[6n\\033]10;?\\007'";
    let mut terminal = world.run([""; 0], script).on_terminal(24, 80);
    let shown = terminal.expect(QUESTION);
    for asked in ["\x1b[c", "\x1b[5n", "\x1b[6n", "\x1b]10"] {
        assert!(!shown.contains(asked), "{asked:?} came through");
    }
    terminal.line("k");
    let _ = terminal.wait().success();
}

#[test]
fn nothing_is_asked_when_nothing_changed() {
    let world = World::new("nothing_is_asked_when_nothing_changed");
    let mut terminal = world.run([""; 0], "true").on_terminal(24, 80);
    let ended = terminal.wait().success();
    assert!(!ended.out().contains(QUESTION), "{ended}");
}

/// Closes the window while the script runs, and checks that nothing is left of the sandbox, and
/// that none of its changes is lost.
fn window_closed(world: &World, script: &str) {
    let before = tree(&world.workspace());
    let mut terminal = world.run([""; 0], script).on_terminal(24, 80);
    terminal.expect("ready");
    let all = descendants_of(terminal.pid());
    terminal.close();
    let _ = terminal.wait();
    wait_until("the sandbox to end", BOUND, || {
        all.iter().all(|one| !is_alive(one.pid)).then_some(())
    });
    assert!(tree(&world.workspace()) == before);
    let shown = world.atoll(["diff", &world.last_run()]).run().success();
    assert!(
        shown.out().contains("+new"),
        "the changes are lost\n{shown}"
    );
}

#[test]
fn a_terminal_that_goes_away_ends_the_sandbox_and_keeps_the_run() {
    let world = World::new("a_terminal_that_goes_away_ends_the_sandbox_and_keeps_the_run");
    window_closed(&world, "echo new > new; echo ready; sleep 1000");
}

#[test]
fn a_terminal_that_goes_away_ends_also_what_ignores_it() {
    let world = World::new("a_terminal_that_goes_away_ends_also_what_ignores_it");
    let script =
        "trap '' HUP TERM; echo new > new; echo ready; while :; do echo on; sleep 0.1; done";
    window_closed(&world, script);
}

#[test]
fn a_terminal_that_goes_away_at_the_question_keeps_the_run() {
    let world = World::new("a_terminal_that_goes_away_at_the_question_keeps_the_run");
    let mut terminal = world.run([""; 0], "echo new > new").on_terminal(24, 80);
    terminal.expect(QUESTION);
    terminal.close();
    let _ = terminal.wait();
    assert_eq!(world.runs()[0]["state"], "kept");
    assert!(world.atoll(["diff"]).run().success().out().contains("+new"));
}

#[test]
fn the_question_counts_and_applies_caches() {
    let world = World::new("the_question_counts_and_applies_caches");
    world.write("package.json", "{}\n");
    let script = "mkdir -p node_modules/x; echo 1 > node_modules/x/i.js; echo new > new";
    for (answer, is_there) in [("a", false), ("c", true)] {
        let mut terminal = world.run([""; 0], script).on_terminal(24, 100);
        terminal.expect("] with 3 cache changes, ");
        terminal.expect("]: ");
        terminal.line(answer);
        terminal.expect("Applied. ");
        if !is_there {
            terminal.expect("Left out: 3 changes in caches (`atoll apply ");
            terminal.expect(" --caches`).");
        }
        let _ = terminal.wait().success();
        assert_eq!(world.read("new"), "new\n");
        assert_eq!(world.exists("node_modules/x/i.js"), is_there);
        std::fs::remove_file(world.path("new")).unwrap();
    }
}

#[test]
fn nothing_is_asked_about_logs_of_tools() {
    let world = World::new("nothing_is_asked_about_logs_of_tools");
    std::fs::create_dir(world.home().join(".npm")).unwrap();
    let log = "mkdir -p ~/.npm/_logs; echo x > ~/.npm/_logs/2026-debug-0.log";
    let mut terminal = world.run(["--profile", "node"], log).on_terminal(24, 100);
    let ended = terminal.wait().success();
    assert!(!ended.out().contains(QUESTION), "{ended}");
    // The control: something else beside it.
    let more = format!("{log}; mkdir -p ~/.npm/_cacache; echo x > ~/.npm/_cacache/one");
    let mut terminal = world.run(["--profile", "node"], &more).on_terminal(24, 100);
    terminal.expect(QUESTION);
    terminal.line("k");
    let _ = terminal.wait().success();
}
