//! Questions to a person at the terminal of a run.

use std::fs;
use std::time::{Duration, Instant};

use e2e::internet::{Seen, events, is_possible, on_internet};
use e2e::{BOUND, Invocation, Outcome, Terminal, World, id, wait_until};
use serde_json::Value;

const CURL: &str = "curl -sS -m 300 -w ' %{http_code}\\n' -o /dev/null --noproxy '*'";
const OPTIONS: &str = "--discard --ask example.com";
/// The prompt that is shown once an answer counts.
const PROMPT: &str = "A letter, then Enter: ";
const RACE: &str = include_str!("screen/race.py");

/// Returns a run of this script that asks.
fn asking(world: &World, options: &str, script: &str) -> Invocation {
    let command = format!("\"$ATOLL\" run {options} -- sh -c \"$1\"");
    let run = on_internet(world, &command).args(["sh", script]);
    run.within(Duration::from_secs(300))
}

/// Returns a person at the terminal of a run of this script.
fn person(world: &World, script: &str) -> Terminal {
    asking(world, OPTIONS, script).on_terminal(40, 100)
}

/// Answers the question about this path once it counts.
fn answer(terminal: &mut Terminal, path: &str, typed: &str) {
    terminal.expect(&format!("path: {path}\r\n"));
    terminal.expect(PROMPT);
    terminal.send(typed);
}

fn texts(events: &[Value], key: &str) -> Vec<String> {
    let texts = events
        .iter()
        .map(|one| one[key].as_str().unwrap_or_default());
    texts.map(str::to_owned).collect()
}

fn arrived(world: &World, outcome: Outcome) -> Vec<String> {
    let seen = Seen::of(world, outcome);
    let path = |line: &str| {
        line.split_whitespace()
            .nth(1)
            .unwrap_or_default()
            .to_owned()
    };
    seen.first.lines().map(path).collect()
}

#[test]
fn a_question_is_drawn_at_the_terminal_and_each_answer_counts() {
    let world = World::new("a_question_is_drawn_at_the_terminal_and_each_answer_counts");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!(
        "printf 'half a line'; for path in once no interrupted run run time time; do \
         {CURL} -d 'its own words' http://example.com/$path; done; read line; echo \"got $line\" | cat -v; \
         {CURL} http://example.com/last; sleep 1000; echo went on"
    );
    let mut terminal = person(&world, &script);
    let drawn = terminal.expect("path: /once\r\n");
    assert!(drawn.contains("half a line\x1b[?1049h"), "{drawn:?}");
    let page = terminal.expect(PROMPT);
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
    assert!(
        at("body: 13 bytes") < at("Text supplied by the program:"),
        "{page}"
    );
    assert!(
        at("Text supplied by the program:") < at("body begins: \"its own words\""),
        "{page}"
    );
    terminal.send("o\r");
    // The program's screen is as it was, and goes on where it was.
    let back = terminal.expect(" 200");
    assert!(back.contains("\x1b[?1049l"), "{back:?}");
    answer(&mut terminal, "/no", "d\r");
    terminal.expect(" 403");
    answer(&mut terminal, "/interrupted", "\x03");
    terminal.expect(" 403");
    answer(&mut terminal, "/run", "r\r");
    terminal.expect(" 200");
    terminal.expect(" 200");
    answer(&mut terminal, "/time", "t\r");
    terminal.expect(" 200");
    terminal.expect(" 200");
    // What is typed is the program's own again, the key too.
    terminal.line("a\x1db");
    terminal.expect("got a^]b");
    answer(&mut terminal, "/last", "s\r");
    let ended = terminal.wait();
    assert_eq!(ended.status.code(), Some(137), "{ended}");
    assert!(!ended.out().contains("went on"), "{ended}");
    let granted = events(&world, "approval.granted");
    assert_eq!(texts(&granted, "for"), ["once", "run", "time"]);
    assert_eq!(granted[2]["seconds"], 900);
    assert!(
        granted.iter().all(|one| one["uid"] == id().0),
        "{granted:?}"
    );
    let denied = events(&world, "approval.denied");
    assert_eq!(texts(&denied, "why"), ["person", "person", "person"]);
    let closed = events(&world, "run.closed");
    assert_eq!(closed[0]["details"]["stopped"]["uid"], id().0, "{closed:?}");
    assert_eq!(
        arrived(&world, ended),
        ["/once", "/run", "/run", "/time", "/time"]
    );
}

#[test]
fn nothing_typed_or_shown_before_a_question_answers_it_or_is_drawn_over_it() {
    let world =
        World::new("nothing_typed_or_shown_before_a_question_answers_it_or_is_drawn_over_it");
    if !is_possible(&world, &[]) {
        return;
    }
    // It draws the same as Atoll, leaves the screen that Atoll is on, asks the terminal for what
    // it then says by itself, and hides what is written.
    let script = format!(
        "stty -echo; printf '{PROMPT}'; read go; (while [ ! -e over ]; do \
         printf '\\033[?1049l\\033[2J\\033[8m\\033]11;#000\\007\\033[6nFAKE\\r\\n'; done) & \
         {CURL} http://example.com/real; touch over; wait; echo; echo \"left $(cat)\"; echo it ended"
    );
    let mut terminal = person(&world, &script);
    terminal.expect(PROMPT);
    terminal.send(format!("go\r{}", "o\r".repeat(200)));
    terminal.expect("\x1b[?1049h");
    let drawn = terminal.expect("path: /real\r\n");
    assert!(!drawn.contains("FAKE"), "{drawn:?}");
    let drawn = terminal.expect(PROMPT);
    assert!(!drawn.contains("FAKE"), "{drawn:?}");
    // What a terminal says by itself, and what is pasted.
    terminal.send("\x1b[200~o\r\x1b[201~");
    terminal.expect("A moment");
    terminal.send("\x1b[1;1R");
    let drawn = terminal.expect(PROMPT);
    assert!(!drawn.contains("FAKE"), "{drawn:?}");
    // What is pasted slowly, too.
    terminal.send("\x1b[200~hello ");
    terminal.expect("A moment");
    std::thread::sleep(Duration::from_secs(2));
    terminal.send("o\r");
    terminal.send("\x1b[201~");
    let drawn = terminal.expect(PROMPT);
    assert!(!drawn.contains("FAKE"), "{drawn:?}");
    assert_eq!(events(&world, "approval.granted"), [] as [Value; 0]);
    terminal.send("d\r");
    let back = terminal.expect("\x1b[?1049l");
    assert!(!back.contains("FAKE"), "{back:?}");
    // The control: all of it was only held back.
    terminal.expect("FAKE");
    terminal.expect(" 403");
    terminal.send("\x04\x04");
    terminal.expect("it ended");
    let ended = terminal.wait();
    let denied = events(&world, "approval.denied");
    assert_eq!(texts(&denied, "why"), ["person"], "{denied:?}");
    assert_eq!(arrived(&world, ended), [] as [&str; 0]);
}

/// Draws a whole screen, and again whenever its window is resized.
const WHOLE_SCREEN: &str = r#"
import os, signal, subprocess, sys
def draw(*_):
    size = os.get_terminal_size()
    print(f"\x1b[2J\x1b[Hsize {size.lines} {size.columns} ", end="", flush=True)
signal.signal(signal.SIGWINCH, draw)
print("\x1b[?1049h", end="")
draw()
curl = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
print(curl.communicate()[0], end="", flush=True)
input()
print("\x1b[?1049lgiven back", flush=True)
"#;

#[test]
fn a_program_with_the_whole_screen_keeps_it_until_the_key_and_draws_it_anew() {
    let world =
        World::new("a_program_with_the_whole_screen_keeps_it_until_the_key_and_draws_it_anew");
    if !is_possible(&world, &[]) {
        return;
    }
    world.write("whole.py", WHOLE_SCREEN);
    let script = format!("python3 whole.py {CURL} http://example.com/whole; read x");
    let mut terminal = person(&world, &script);
    terminal.expect("size 40 100");
    terminal.expect("\x07");
    terminal.send("\x1d");
    let drawn = terminal.expect("path: /whole\r\n");
    assert!(!drawn.contains("\x1b[?1049"), "{drawn:?}");
    terminal.expect(PROMPT);
    terminal.resize(30, 70);
    terminal.expect("page 1 of");
    terminal.expect(PROMPT);
    // Put off, and brought back.
    terminal.send("\x1a");
    terminal.expect("size 29 70");
    terminal.expect("size 30 70");
    terminal.send("\x1d");
    answer(&mut terminal, "/whole", "o\r");
    terminal.expect(" 200");
    terminal.line("");
    terminal.expect("given back");
    terminal.line("");
    let ended = terminal.wait();
    assert_eq!(ended.status.code(), Some(0), "{ended}");
    assert_eq!(arrived(&world, ended), ["/whole"]);
}

#[test]
fn a_question_leaves_the_terminal_when_it_is_over_and_a_closed_window_denies() {
    let world =
        World::new("a_question_leaves_the_terminal_when_it_is_over_and_a_closed_window_denies");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!(
        "{CURL} -m 20 http://example.com/left; read x; echo got $x; \
         {CURL} http://example.com/closed; sleep 1000"
    );
    let mut terminal = person(&world, &script);
    terminal.expect("path: /left\r\n");
    terminal.expect("\x1b[?1049l");
    terminal.line("on");
    terminal.expect("got on");
    terminal.expect("path: /closed\r\n");
    terminal.close();
    let ended = terminal.wait();
    let why = || {
        let denied = events(&world, "approval.denied");
        (denied.len() == 2).then(|| texts(&denied, "why"))
    };
    let whys = wait_until("both are denied", BOUND, why);
    // Of a program that ends with its window nobody can tell whether it left before its run.
    assert_eq!(whys[0], "left");
    assert!(["left", "ended"].contains(&&whys[1][..]), "{whys:?}");
    assert_eq!(arrived(&world, ended), [] as [&str; 0]);
}

#[test]
fn a_suspended_program_is_asked_about_when_it_goes_on() {
    let world = World::new("a_suspended_program_is_asked_about_when_it_goes_on");
    if !is_possible(&world, &[]) {
        return;
    }
    // Atoll is a job of a shell at the terminal, which goes on when it is stopped.
    let script = format!("{CURL} http://example.com/job; echo it went on");
    let run = on_internet(&world, "bash --norc --noprofile -i").env("PS1", "");
    let run = run.env("SCRIPT", script).within(Duration::from_secs(300));
    let mut terminal = run.on_terminal(40, 100);
    terminal.line("stty -echo; echo re''ady");
    terminal.expect("ready");
    terminal.line(&format!("\"$ATOLL\" run {OPTIONS} -- sh -c \"$SCRIPT\""));
    terminal.expect("path: /job\r\n");
    terminal.expect(PROMPT);
    // The first puts the question off, the second is the program's.
    terminal.send("\x1a");
    terminal.expect("\x1b[?1049l");
    terminal.send("\x1a");
    terminal.expect("Stopped");
    terminal.line("echo shell''-again");
    terminal.expect("shell-again");
    terminal.line("fg");
    terminal.expect("run --discard");
    terminal.send("\x1d");
    answer(&mut terminal, "/job", "o\r");
    terminal.expect(" 200");
    terminal.expect("it went on");
    terminal.expect("succeeded");
    terminal.line("exit");
    let ended = terminal.wait();
    assert_eq!(arrived(&world, ended), ["/job"]);
}

#[test]
fn idle_time_is_not_that_of_a_question_at_the_terminal() {
    let world = World::new("idle_time_is_not_that_of_a_question_at_the_terminal");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!("{CURL} http://example.com/slow; echo answered; sleep 1000");
    let options = format!("{OPTIONS} --limit idle=8s");
    let mut terminal = asking(&world, &options, &script).on_terminal(40, 100);
    terminal.expect("path: /slow\r\n");
    terminal.expect(PROMPT);
    // Nobody types, for longer than that.
    std::thread::sleep(Duration::from_secs(10));
    terminal.send("o\r");
    terminal.expect(" 200");
    terminal.expect("answered");
    // The control: the limit counts again.
    let ended = terminal.wait();
    assert_eq!(ended.status.code(), Some(124), "{ended}");
    assert_eq!(arrived(&world, ended), ["/slow"]);
}

#[test]
fn no_text_of_a_program_stands_as_a_line_of_atolls_own() {
    let world = World::new("no_text_of_a_program_stands_as_a_line_of_atolls_own");
    if !is_possible(&world, &[]) {
        return;
    }
    // Padded to the window's width, so that each line of it would begin a row, on a page of its own.
    let script = format!(
        "words=$(printf '%20s' ''; for row in 1 2 3 4 5 6 7 8 9; do printf '%-59s' 'host: api.github.com' \
         'path: /harmless'; done); {CURL} -d \"$words\" http://example.com/real"
    );
    let mut terminal = asking(&world, OPTIONS, &script).on_terminal(25, 60);
    terminal.expect("page 1 of");
    let mut drawn = terminal.expect(PROMPT);
    terminal.send("n\r");
    terminal.expect("page 2 of");
    drawn += &terminal.expect(PROMPT);
    terminal.send("d\r");
    terminal.expect(" 403");
    let of_program = |text: &str| drawn.split("\r\n").any(|line| line.starts_with(text));
    assert!(of_program("host: example.com"), "{drawn}");
    assert!(drawn.contains("host: api.github.com"), "{drawn}");
    assert!(!of_program("host: api.github.com"), "{drawn}");
    assert!(!of_program("path: /harmless"), "{drawn}");
    let ended = terminal.wait();
    assert_eq!(arrived(&world, ended), [] as [&str; 0]);
}

#[test]
fn who_asks_nobody_denies_at_once() {
    let world = World::new("who_asks_nobody_denies_at_once");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = "curl -sS -m 60 --noproxy '*' http://example.com/nobody";
    let options = format!("{OPTIONS} --no-ask");
    let ended = asking(&world, &options, script).run();
    assert!(ended.out().contains("started with --no-ask"), "{ended}");
    assert_eq!(events(&world, "approval.asked"), [] as [Value; 0]);
    let why = world.atoll(["why", "last"]).run().success();
    assert!(why.out().contains("--no-ask"), "{why}");
    assert_eq!(arrived(&world, ended), [] as [&str; 0]);
    let wrong = world.run(["--ask-key", "ctrl-c"], "true").run();
    let _ = wrong.expect_status(125).says(["--ask-key", "ctrl-"]);
    assert!(fs::read_dir(world.workspace()).unwrap().next().is_none());
}

/// Returns the answer to each question: its number, and whether it was granted. Each has one
/// answer.
fn answers(world: &World) -> Vec<(u64, bool)> {
    let of = |kind: &str, is_granted: bool| {
        let all = events(world, kind).into_iter();
        all.map(move |one| (one["approval"].as_u64().unwrap(), is_granted))
    };
    let granted = of("approval.granted", true);
    let mut all: Vec<_> = granted.chain(of("approval.denied", false)).collect();
    all.sort_unstable();
    let numbers: Vec<u64> = all.iter().map(|(number, _)| *number).collect();
    let mut once = numbers.clone();
    once.dedup();
    assert_eq!(numbers, once, "{all:?}");
    all
}

/// Returns the run that asks.
fn asking_run(world: &World) -> String {
    wait_until("a run asks", BOUND, || {
        let listed = world.atoll(["approvals", "list", "--json"]).run().success();
        let runs = listed.json();
        Some(runs[0]["run"].as_str()?.to_owned())
    })
}

/// An approval and a denial at once: one of them counts, its command alone reports so, and the
/// request is sent if it was the approval.
#[test]
fn of_two_answers_at_once_one_counts() {
    // More are asked of nobody in a minute.
    const QUESTIONS: u64 = 10;
    let world = World::new("of_two_answers_at_once_one_counts");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!(
        "for i in $(seq {QUESTIONS}); do {CURL} -d \"words $i\" http://example.com/$i; done; true"
    );
    fs::write(world.top().join("race.py"), RACE).unwrap();
    let command = format!(
        "sh -c 'python3 \"$1\" {QUESTIONS} both >\"$2\" & \"$ATOLL\" run {OPTIONS} -- sh -c \"$3\" </dev/null; wait' sh \"$@\""
    );
    let told = world.top().join("told");
    for _ in 0..3 {
        let run = on_internet(&world, &command).within(Duration::from_secs(300));
        let run = run
            .arg("sh")
            .arg(world.top().join("race.py"))
            .arg(&told)
            .arg(&script);
        let outcome = run.run();
        let all = answers(&world);
        assert_eq!(all.len() as u64, QUESTIONS, "{outcome}");
        let said = fs::read_to_string(&told).unwrap();
        for (number, is_granted) in &all {
            let word = if *is_granted { "grant" } else { "deny" };
            let line = format!("answered {number} {word}");
            assert!(said.lines().any(|said| said == line), "{line}: {said}");
        }
        let paths = texts(&events(&world, "approval.asked"), "path");
        let expected = all
            .iter()
            .zip(&paths)
            .filter(|((_, is_granted), _)| *is_granted);
        let expected: Vec<String> = expected.map(|(_, path)| path.clone()).collect();
        assert_eq!(arrived(&world, outcome), expected);
    }
}

/// A command answers a question while somebody types: the letter is for that question, and for no
/// later one.
#[test]
fn a_letter_for_a_question_that_was_answered_elsewhere_answers_no_other() {
    let name = "a_letter_for_a_question_that_was_answered_elsewhere_answers_no_other";
    let world = World::new(name);
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!(
        "for i in 1 2 3 4 5; do {CURL} http://example.com/first$i; {CURL} http://example.com/second$i; done; echo over"
    );
    let mut terminal = person(&world, &script);
    let run = std::cell::OnceCell::new();
    for round in 1..=5 {
        terminal.expect(&format!("path: /first{round}\r\n"));
        terminal.expect(PROMPT);
        let number = 2 * round - 1;
        let question = format!("{}.{number}", run.get_or_init(|| asking_run(&world)));
        let elsewhere = world.atoll(["approvals", "grant", &question]).start();
        terminal.send("o\r");
        let _ = elsewhere.wait();
        terminal.send("o\r");
        // It stands there with nothing said about it, until somebody says no.
        answer(&mut terminal, &format!("/second{round}"), "d\r");
    }
    terminal.expect("over");
    let ended = terminal.wait();
    let all = answers(&world);
    let expected: Vec<(u64, bool)> = (1..=10).map(|number| (number, number % 2 == 1)).collect();
    assert_eq!(all, expected, "{ended}");
    let expected: Vec<String> = (1..=5).map(|round| format!("/first{round}")).collect();
    assert_eq!(arrived(&world, ended), expected);
}

/// Nobody answers: after two minutes by the clock the request is denied, the terminal is the
/// program's again, and a late answer is told so.
#[test]
fn a_question_that_nobody_answers_is_denied_after_two_minutes_slow() {
    let world = World::new("a_question_that_nobody_answers_is_denied_after_two_minutes_slow");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!("{CURL} http://example.com/late; read x; echo got $x");
    let since = Instant::now();
    let mut terminal = person(&world, &script);
    terminal.expect("path: /late\r\n");
    terminal.expect(PROMPT);
    let run = asking_run(&world);
    // A letter without Enter is no answer, however long it stands there.
    terminal.send("o");
    terminal.expect("\x1b[?1049l");
    terminal.expect(" 403");
    let took = since.elapsed();
    // How late it is is the machine's business.
    assert!(took >= Duration::from_secs(119), "{took:?}");
    let late = world
        .atoll(["approvals", "grant", &format!("{run}.1")])
        .run();
    assert_ne!(late.code(), 0, "{late}");
    assert!(late.err().contains("nobody answered in time"), "{late}");
    terminal.line("on");
    terminal.expect("got on");
    let ended = terminal.wait();
    assert_eq!(texts(&events(&world, "approval.denied"), "why"), ["late"]);
    assert_eq!(arrived(&world, ended), [] as [&str; 0]);
}

/// An approval and a stop at once, in real processes: whichever comes first, the run ends, and no
/// request is sent without a recorded approval.
#[test]
fn of_a_yes_and_a_stop_at_once_nothing_goes_out_without_a_yes() {
    let world = World::new("of_a_yes_and_a_stop_at_once_nothing_goes_out_without_a_yes");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!("{CURL} http://example.com/raced; sleep 1000");
    for round in 0..6 {
        let mut terminal = person(&world, &script);
        terminal.expect("path: /raced\r\n");
        terminal.expect(PROMPT);
        let question = format!("{}.1", asking_run(&world));
        let mut both = [
            &["approvals", "grant", &question][..],
            &["stop", "last"][..],
        ];
        if round % 2 == 1 {
            both.reverse();
        }
        let started = both.map(|arguments| world.atoll(arguments).start());
        let ended = started.map(e2e::Running::wait);
        let whole = terminal.wait();
        let [grant, stop] = match round % 2 {
            0 => [&ended[0], &ended[1]],
            _ => [&ended[1], &ended[0]],
        };
        assert_eq!(stop.code(), 0, "{stop}");
        let all = answers(&world);
        assert_eq!(all.len(), 1, "{grant} {whole}");
        // Who was told that it counts has it in the record.
        assert!(all[0].1 || grant.code() != 0, "{grant}");
        let opened = events(&world, "flow.opened");
        assert!(all[0].1 || opened.is_empty(), "{opened:?}");
        let sent = arrived(&world, whole);
        assert!(all[0].1 || sent.is_empty(), "{sent:?}");
        let closed = events(&world, "run.closed");
        assert_eq!(closed[0]["details"]["stopped"]["uid"], u64::from(id().0));
    }
}
