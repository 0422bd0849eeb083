//! Denials as they happen, at a person's terminal, and what allows them from there.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use e2e::internet::{events, is_possible};
use e2e::{Avoidable, World, program_exists};

/// Starts a server on this host's loopback that answers every request; returns its port.
fn server() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\nanswered");
        }
    });
    port
}

/// Returns a script that asks for the server each time that a line is typed.
fn asking(port: u16) -> String {
    format!(
        "while read x; do curl -sS -m 20 --noproxy '*' http://host.atoll.internal:{port}/ 2>/dev/null \
         || printf 'nothing'; echo \" $x\"; done"
    )
}

#[test]
fn denial_at_terminal_is_allowed_once_for_the_run_and_for_the_project() {
    let world = World::new("denial_at_terminal_is_allowed_once_for_the_run_and_for_the_project");
    if !program_exists("curl") {
        world.skip("curl is not installed", Avoidable::Yes);
        return;
    }
    let port = server();
    let named = format!("host.atoll.internal:{port}");
    // Its name is answered, since another port of it is allowed.
    let options = ["--discard", "--allow", "host.atoll.internal:9"];
    let mut terminal = world.run(options, &asking(port)).on_terminal(40, 200);
    terminal.line("first");
    terminal.expect(&format!(
        "denied: {named}: no rule allows it; Ctrl-] allows it"
    ));
    for (letter, lasts) in [("o", "once"), ("r", "for this run")] {
        terminal.send("\x1d");
        terminal.expect(&format!("--allow '{named}'"));
        terminal.expect("A letter, then Enter");
        terminal.line(letter);
        terminal.expect(&format!("{named} is allowed {lasts}"));
        terminal.line("again");
        terminal.expect("answered again");
        terminal.line("more");
        match letter {
            // Its line may come before what the program says, or behind.
            "o" => terminal.expect(&format!("denied: {named}")),
            _ => terminal.expect("answered more"),
        };
    }
    terminal.send("\x04");
    let _ = terminal.wait();
    let told = events(&world, "host.allowed");
    let lasts: Vec<_> = told
        .iter()
        .map(|one| one["lasts"].as_str().unwrap())
        .collect();
    assert_eq!(lasts, ["once", "run"]);

    // The next run of the project begins as ever, and what is allowed for the project stays.
    let mut terminal = world.run(options, &asking(port)).on_terminal(40, 200);
    terminal.line("first");
    terminal.expect(&format!("denied: {named}"));
    terminal.send("\x1d");
    terminal.expect("A letter, then Enter");
    terminal.line("a");
    terminal.expect(&format!("{named} is allowed for this project"));
    terminal.line("again");
    terminal.expect("answered again");
    terminal.send("\x04");
    let _ = terminal.wait();
    let script = format!("curl -sS --noproxy '*' http://{named}/");
    let ran = world.run(["--discard"], &script).run().success();
    assert_eq!(ran.out(), "answered");
    let denied = world.run(["--discard", "--deny", &named], &script).run();
    assert_ne!(
        denied.code(),
        0,
        "a rule that denies stays above it: {denied}"
    );
}

/// The run's authority signs for the hosts of its rules: also for one that is allowed live.
#[test]
fn denial_of_https_is_allowed_while_the_run_goes_on() {
    let world = World::new("denial_of_https_is_allowed_while_the_run_goes_on");
    if !is_possible(&world, &["node", "openssl", "curl"]) {
        return;
    }
    let place = world.top().join("internet");
    fs::create_dir(&place).unwrap();
    for (name, text) in [
        ("internet.py", e2e::internet::PROGRAM),
        ("web.sh", include_str!("inspection/web.sh")),
        ("web.js", include_str!("inspection/web.js")),
    ] {
        fs::write(place.join(name), text).unwrap();
    }
    let script = "echo ready; while read x; do \
                  curl -sS -m 20 --noproxy '*' https://example.com/ 2>&1; echo \"/$x\"; done";
    let place = place.display();
    let command = format!(
        "INTERNET_PORTS='7 22' exec python3 '{place}/internet.py' '{place}' \
         sh '{place}/web.sh' '{place}' sh -c 'cd \"$0\" || exit; \
         exec \"$ATOLL\" run --discard --allow other.example -- sh -c \"$SCRIPT\"' \"$PWD\""
    );
    let run = world.network_shell(&command).env("SCRIPT", script);
    let mut terminal = run.on_terminal(40, 200);
    terminal.expect("ready");
    terminal.line("first");
    terminal.expect("denied: example.com");
    for (letter, lasts) in [("o", "once"), ("r", "for this run")] {
        terminal.send("\x1d");
        terminal.expect("A letter, then Enter");
        terminal.line(letter);
        terminal.expect(&format!("is allowed {lasts}"));
        terminal.line("again");
        terminal.expect("this is example.com by 2.0");
        terminal.expect("/again");
        terminal.line("more");
        match letter {
            "o" => terminal.expect("denied: example.com"),
            _ => terminal.expect("this is example.com by 2.0"),
        };
    }
    terminal.send("\x04");
    let _ = terminal.wait();
}

#[test]
fn denial_answers_nothing_to_what_a_program_types_and_forges_no_line() {
    let world = World::new("denial_answers_nothing_to_what_a_program_types_and_forges_no_line");
    if !program_exists("curl") {
        world.skip("curl is not installed", Avoidable::Yes);
        return;
    }
    // A person types while a denial comes: the letters go to the program, and nothing is allowed.
    let script = "read x; getent hosts denied.example; read y; echo \"read: $y\"; \
                  getent hosts 'a\tatoll: allowed.example'; printf 'still here\\n'";
    let options = ["--discard", "--allow", "example.com"];
    let mut terminal = world.run(options, script).on_terminal(40, 200);
    terminal.line("");
    terminal.expect("denied: denied.example");
    terminal.line("r");
    terminal.expect("read: r");
    terminal.expect("still here");
    let ended = terminal.wait();
    assert!(!ended.out().contains("is allowed"), "{ended}");
    assert_eq!(events(&world, "host.allowed").len(), 0);
}

#[test]
fn host_denied_by_an_option_is_shown_at_once() {
    let world = World::new("host_denied_by_an_option_is_shown_at_once");
    let script = "getent hosts denied.example; read x; echo over";
    let options = [
        "--discard",
        "--allow",
        "*.example",
        "--deny",
        "denied.example",
    ];
    let mut terminal = world.run(options, script).on_terminal(40, 200);
    let shown = terminal.expect("denied: denied.example: denied.example:* is denied by --deny");
    assert!(!shown.contains("allows it"), "{shown}");
    terminal.line("");
    terminal.expect("over");
    let _ = terminal.wait();
}

#[test]
fn denial_while_the_whole_screen_is_drawn_writes_nothing_into_it() {
    let world = World::new("denial_while_the_whole_screen_is_drawn_writes_nothing_into_it");
    let script = "printf '\\033[?1049hscreen'; getent hosts denied.example; read x; \
                  printf '\\033[?1049l'; echo over";
    let options = ["--discard", "--allow", "example.com"];
    let run = world.run(options, script).env("TERM_PROGRAM", "WezTerm");
    let mut terminal = run.on_terminal(40, 200);
    terminal.expect("screen");
    let told = terminal.expect("Ctrl-] allows it\x07");
    assert!(
        told.contains("\x1b]9;atoll: denied: denied.example"),
        "{told:?}"
    );
    terminal.line("");
    terminal.expect("over");
    let _ = terminal.wait();
}

#[test]
fn what_no_option_shows_gets_no_hint() {
    let world = World::new("what_no_option_shows_gets_no_hint");
    let socket = world.home().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    fs::write(world.home().join("seen"), "x").unwrap();
    let places = [
        "/dev/kmsg",
        "/dev/mem",
        "/sys/kernel/notes",
        "/proc/1/environ",
        "/run/utmp",
        socket.to_str().unwrap(),
    ];
    for place in places {
        let ran = world.atoll(["run", "--keep", "--", "cat", place]).run();
        assert_ne!(ran.code(), 0, "{ran}");
        assert!(!ran.err().contains("is hidden"), "{ran}");
    }
    // Neither what the organisation denies, nor Atoll's own state.
    let state = world.state().join("atoll");
    let ran = world
        .atoll(["run", "--keep", "--", "ls", state.to_str().unwrap()])
        .run();
    assert!(!ran.err().contains("is hidden"), "{ran}");
    // The control.
    let seen = world.home().join("seen");
    let ran = world
        .atoll(["run", "--keep", "--", "cat", seen.to_str().unwrap()])
        .run();
    ran.says(["~/seen exists on this host and is hidden; --ro ~/seen shows it"]);
}

#[test]
fn file_that_is_hidden_is_told_to_the_person_alone() {
    let world = World::new("file_that_is_hidden_is_told_to_the_person_alone");
    fs::write(world.home().join("settings.ini"), "x").unwrap();
    fs::write(world.home().join("id_ed25519"), "x").unwrap();
    let script = "cat ~/settings.ini ~/id_ed25519 ~/absent";
    let ran = world.run(["--keep"], script).run();
    let ran = ran.says([
        "~/settings.ini exists on this host and is hidden; --ro ~/settings.ini shows it",
        "~/id_ed25519 exists on this host and is hidden: keys and logins stay outside",
    ]);
    let shown = world.home().join("settings.ini");
    assert!(!ran.err().contains("absent exists"), "{ran}");
    let again = world.run(
        ["--keep", "--ro", shown.to_str().unwrap()],
        "cat ~/settings.ini",
    );
    assert_eq!(again.run().success().out(), "x");
}
