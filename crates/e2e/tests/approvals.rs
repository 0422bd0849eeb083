//! Approvals before a request is sent, on a small internet of each test's own.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use e2e::internet::{Seen, events, is_possible, on_internet, on_servers, without_namespaces};
use e2e::{BOUND, World, id, is_root, pids_of_command, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const OUTSIDE: &str = include_str!("approvals/outside.py");
const INSIDE: &str = include_str!("approvals/inside.py");
const CURL: &str = "curl -sS -m 40 --noproxy '*' -w '%{http_code}\\n'";

/// Has a person act out a scene with a run of this script.
fn scene(world: &World, scene: &str, options: &str, script: &str, atoll: Option<&str>) -> Seen {
    let outside = world.top().join("outside.py");
    fs::write(&outside, OUTSIDE).unwrap();
    let internet = world.top().join("internet");
    let command = format!("python3 '{}' \"$@\"", outside.display());
    let mut run = on_internet(world, &command).env("INTERNET", &internet);
    if let Some(atoll) = atoll {
        run = run.env("ATOLL", atoll);
    }
    let state = world.state().join("atoll").display().to_string();
    let run = run.args(["sh", &state, options, script, scene]);
    Seen::of(world, run.within(Duration::from_secs(300)).run())
}

fn text<'a>(event: &'a Value, key: &str) -> &'a str {
    event[key].as_str().unwrap_or_default()
}

#[test]
fn what_is_asked_about_goes_out_when_a_person_says_so_and_as_it_was_shown() {
    let world =
        World::new("what_is_asked_about_goes_out_when_a_person_says_so_and_as_it_was_shown");
    if !is_possible(&world, &[]) {
        return;
    }
    let post = |path: &str, body: &str| format!("{CURL} -d '{body}' http://example.com{path}; ");
    let script = [
        format!("{CURL} http://example.com/free; "),
        post("/a", "first body"),
        post("/denied", "second"),
        post("/denied", "another"),
        post("/lease", "one"),
        post("/lease?x", "two"),
        post("/lease", "three"),
        "while [ ! -e revoked ]; do sleep 0.1; done; ".to_owned(),
        format!("{CURL} -m 8 -d four http://example.com/lease; "),
        post("/last", "five"),
    ]
    .concat();
    let options = "--live --allow example.com --ask 'POST http://example.com/**'";
    let seen = scene(&world, "answered", options, &script, None);
    let out = seen.output();
    let expected = [
        "asked example.com POST 10 first body",
        "shown 0 True False",
        "another digest 126",
        "reached before False",
        "granted [0, 126] True",
        "denied 0 126",
        "for longer 0",
        "revoked 0 126 []",
        "number True",
        "by its number 0",
        "ended 0",
    ];
    for line in expected {
        assert!(
            out.lines().any(|one| one == line),
            "{line}: {}",
            seen.outcome
        );
    }
    let codes = ["200", "403", "000"].map(|code| {
        let codes = out.lines().filter(|line| line.ends_with(code));
        codes.count()
    });
    assert_eq!(codes, [6, 2, 1], "{}", seen.outcome);
    assert!(out.contains("a person was asked, and said no"), "{out}");
    assert!(out.contains("said no to the same"), "{out}");
    let words = |line: &str| {
        line.split_whitespace()
            .take(2)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let arrived: Vec<String> = seen.first.lines().map(words).collect();
    let expected = [
        "b'GET /free",
        "b'POST /a",
        "b'POST /lease",
        "b'POST /lease?x",
        "b'POST /lease",
        "b'POST /last",
    ];
    assert_eq!(arrived, expected, "{}", seen.first);
    let asked = events(&world, "approval.asked");
    let paths: Vec<&str> = asked.iter().map(|one| text(one, "path")).collect();
    assert_eq!(paths, ["/a", "/denied", "/lease", "/lease", "/last"]);
    let granted = events(&world, "approval.granted");
    let scopes: Vec<&str> = granted.iter().map(|one| text(one, "for")).collect();
    assert_eq!(scopes, ["once", "time", "once"]);
    assert_eq!(granted[0]["digest"], asked[0]["digest"]);
    let denied = events(&world, "approval.denied");
    let whys: Vec<&str> = denied.iter().map(|one| text(one, "why")).collect();
    assert_eq!(whys, ["person", "left"]);
    assert_eq!(events(&world, "lease.ended")[0]["uses"], 3);
    let opened = events(&world, "flow.opened");
    let by = opened.iter().filter_map(|one| one["approval"].as_u64());
    assert_eq!(by.collect::<Vec<_>>(), [1, 3, 3, 3, 5], "{opened:?}");
    // What was given up before an answer is told at the end too.
    let _ = seen.outcome.says(["the program left before an answer"]);
    // The control: where nothing is asked the same arrives.
    let script = post("/denied", "second");
    let run = on_internet(
        &world,
        "\"$ATOLL\" run --discard --allow example.com -- \"$@\"",
    );
    let free = Seen::of(&world, run.args(["sh", "sh", "-c", &script]).run());
    assert!(free.first.contains("POST /denied"), "{}", free.outcome);
}

#[test]
fn a_header_that_says_what_is_meant_is_asked_about() {
    let world = World::new("a_header_that_says_what_is_meant_is_asked_about");
    if !is_possible(&world, &[]) {
        return;
    }
    let put = |source: &str| {
        format!("{CURL} -X PUT -H 'x-amz-copy-source: {source}' http://example.com/copy")
    };
    let script = format!(
        "{} & {} & wait; {}",
        put("/a/public"),
        put("/a/private"),
        put("/a/public")
    );
    let options = "--discard --ask example.com";
    let seen = scene(&world, "copied", options, &script, None);
    let out = seen.output();
    for line in [
        "asked ['/a/private', '/a/public']",
        "shown True",
        "granted 0",
        "denied 0",
    ] {
        assert!(
            out.lines().any(|one| one == line),
            "{line}: {}",
            seen.outcome
        );
    }
    let opened = events(&world, "flow.opened");
    let by: Vec<_> = opened.iter().map(|one| one["approval"].as_u64()).collect();
    assert_eq!(by.len(), 2, "{opened:?}");
    assert_eq!(by[0], by[1], "{opened:?}");
    assert_eq!(seen.first.matches("PUT /copy").count(), 2, "{}", seen.first);
}

#[test]
fn a_yes_that_comes_when_policies_say_no_is_none() {
    let world = World::new("a_yes_that_comes_when_policies_say_no_is_none");
    if !is_possible(&world, &[]) {
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let script = format!("{CURL} http://example.com/later");
    // The control: the same with a policy that ends tomorrow.
    for (seconds, is_sent) in [(30, false), (24 * 60 * 60, true)] {
        let until = now.as_secs() + seconds;
        let policy = format!(
            "@id(\"shift\") forbid(principal, action == Action::\"request\", resource)\n\
             when {{ context.time >= {until} }};\n"
        );
        world.write(world.config().join("atoll/own.cedar"), policy);
        let waits_until = now.as_secs() + 30;
        let outside = world.top().join("outside.py");
        fs::write(&outside, OUTSIDE).unwrap();
        let command = format!("python3 '{}' \"$@\"", outside.display());
        let state = world.state().join("atoll").display().to_string();
        let run = on_internet(&world, &command).env("UNTIL", waits_until.to_string());
        let options = "--discard --ask example.com";
        let run = run.args(["sh", &state, options, &script, "later"]);
        let seen = Seen::of(&world, run.within(Duration::from_secs(300)).run());
        let out = seen.output();
        assert!(out.contains("granted 0"), "{}", seen.outcome);
        assert_eq!(
            seen.first.contains("GET /later"),
            is_sent,
            "{}",
            seen.outcome
        );
        assert_eq!(out.contains("403"), !is_sent, "{}", seen.outcome);
    }
}

const SERVERS: &str = include_str!("credential_bodies/servers.py");
/// The key that the servers know, and no program does.
const REAL: &str = "ghp_r3alK3yOfTh1sT3stWh1chN0bodyM4yS33in";

#[test]
fn a_secret_that_is_put_into_a_body_is_in_no_question() {
    let world = World::new("a_secret_that_is_put_into_a_body_is_in_no_question");
    world.write(world.top().join("real"), REAL);
    world.canary(REAL, &["real"]);
    if !is_possible(&world, &["openssl", "zstd"]) {
        return;
    }
    let bound = "[network]\nask = ['example.com']\n[credential.github]\n\
                 source = { environment = 'GITHUB_TOKEN' }\nto = 'example.com'\n\
                 methods = ['POST']\npaths = ['/v1/**']\nplace = { body = 'client_secret' }\n";
    world.profile("bound", bound);
    let outside = world.top().join("outside.py");
    fs::write(&outside, OUTSIDE).unwrap();
    let begin = world.top().join("begin.sh");
    let text = format!(
        "GITHUB_TOKEN=$(cat \"$REAL\"); export GITHUB_TOKEN; exec python3 '{}' \"$@\"\n",
        outside.display()
    );
    fs::write(&begin, text).unwrap();
    let script = format!("{CURL} -d \"client_secret=$GITHUB_TOKEN\" https://example.com/v1/put");
    let state = world.state().join("atoll").display().to_string();
    let run = on_servers(
        &world,
        SERVERS,
        &["example.com", "other.example"],
        &format!("sh '{}' \"$@\"", begin.display()),
    );
    let run = run.env("REAL", world.top().join("real"));
    let options = "--discard --profile bound";
    let outcome = run.args(["sh", &state, options, &script, "bound"]).run();
    let out = outcome.out();
    for line in ["hidden True True", "named ['github']", "granted 0"] {
        assert!(out.lines().any(|one| one == line), "{line}: {outcome}");
    }
    // The control: it is what went out.
    let requests = fs::read_to_string(world.top().join("internet/requests")).unwrap();
    assert!(requests.contains(REAL), "{requests}");
}

/// A request waits where a policy requires an approval before its credential is used.
#[test]
fn a_credential_that_policies_ask_about_is_used_once_a_person_says_so() {
    let world = World::new("a_credential_that_policies_ask_about_is_used_once_a_person_says_so");
    world.write(world.top().join("real"), REAL);
    if !is_possible(&world, &["openssl", "zstd"]) {
        return;
    }
    let bound = "[network]\nallow = ['example.com']\n[credential.github]\n\
                 source = { environment = 'GITHUB_TOKEN' }\nto = 'example.com'\n\
                 place = { header = 'authorization', form = 'Bearer {}' }\n";
    world.profile("bound", bound);
    let policy = "@id(\"uses\") @approve(\"person\")\n\
                  permit(principal, action == Action::\"use_credential\", resource);\n";
    world.write(world.config().join("atoll/own.cedar"), policy);
    let outside = world.top().join("outside.py");
    fs::write(&outside, OUTSIDE).unwrap();
    let begin = world.top().join("begin.sh");
    let text = format!(
        "GITHUB_TOKEN=$(cat \"$REAL\"); export GITHUB_TOKEN; exec python3 '{}' \"$@\"\n",
        outside.display()
    );
    fs::write(&begin, text).unwrap();
    let get = |path: &str, header: &str| {
        format!("{CURL} -o /dev/null {header} https://example.com{path}; ")
    };
    let with = "-H \"authorization: Bearer $GITHUB_TOKEN\"";
    let script = [
        get("/v1/free", ""),
        get("/v1/first", with),
        get("/v1/first", with),
        get("/v1/second", with),
    ]
    .concat();
    let state = world.state().join("atoll").display().to_string();
    let go = |command: &str, arguments: &[&str]| {
        let command = format!("sh '{}' {command}", begin.display());
        let run = on_servers(&world, SERVERS, &["example.com", "other.example"], &command);
        let run = run.env("REAL", world.top().join("real"));
        let outcome = run.args(["sh"]).args(arguments).run();
        (
            outcome,
            fs::read_to_string(world.top().join("internet/requests")).unwrap(),
        )
    };
    let options = "--discard --profile bound";
    let (outcome, requests) = go("\"$@\"", &[&state, options, &script, "credential"]);
    let out = outcome.out();
    for line in [
        "named ['github'] True",
        "alone 1",
        "granted 0",
        "used [2]",
        "denied 0",
        "ended 0",
    ] {
        assert!(out.lines().any(|one| one == line), "{line}: {outcome}");
    }
    let codes = ["200", "403"].map(|code| out.lines().filter(|one| *one == code).count());
    assert_eq!(codes, [3, 1], "{outcome}");
    assert_eq!(requests.matches(REAL).count(), 2, "{requests}");
    let opened = events(&world, "flow.opened");
    let by: Vec<_> = opened.iter().map(|one| one["approval"].as_u64()).collect();
    assert_eq!(by, [None, Some(1), Some(1)], "{opened:?}");
    // Where nobody is there to be asked it is denied.
    let options = "--discard --no-ask --profile bound";
    let (outcome, requests) = go("\"$@\"", &[&state, options, &script, "unasked"]);
    assert!(outcome.out().contains("ended 0"), "{outcome}");
    assert_eq!(requests.matches(REAL).count(), 0, "{requests}");
}

#[test]
fn a_program_does_not_answer_its_own_question() {
    let world = World::new("a_program_does_not_answer_its_own_question");
    if !is_possible(&world, &[]) {
        return;
    }
    world.write("inside.py", INSIDE);
    let state = world.state().join("atoll").display().to_string();
    let script = format!("{CURL} -d x http://example.com/a & python3 inside.py '{state}'; wait");
    let fence = without_namespaces(&world).display().to_string();
    // Root is never fenced in.
    let fenced = Some(fence.as_str()).filter(|_| !is_root());
    let options = "--live --ask example.com";
    for atoll in [Some(None), fenced.map(Some)].into_iter().flatten() {
        let _ = fs::remove_file(world.path("tried"));
        let seen = scene(&world, "itself", options, &script, atoll);
        let out = seen.output();
        assert!(!out.contains("ANSWERED"), "{}", seen.outcome);
        for line in ["still waits [1]", "the control True", "denied 0", "ended 0"] {
            assert!(
                out.lines().any(|one| one == line),
                "{line}: {}",
                seen.outcome
            );
        }
        assert!(out.contains("403"), "{}", seen.outcome);
        assert_eq!(seen.reached, [""; 0], "{}", seen.outcome);
        assert_eq!(seen.asked, [""; 0], "nobody is asked for its name either");
    }
}

#[test]
fn a_denial_can_end_the_run_and_its_record_says_who_did() {
    let world = World::new("a_denial_can_end_the_run_and_its_record_says_who_did");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!("{CURL} http://example.com/a; sleep 1000; echo went on");
    let seen = scene(
        &world,
        "ended",
        "--discard --ask example.com",
        &script,
        None,
    );
    let out = seen.output();
    assert!(out.contains("stopped 0"), "{}", seen.outcome);
    assert!(!out.contains("went on"), "{}", seen.outcome);
    assert_eq!(seen.reached, [""; 0]);
    let closed = events(&world, "run.closed");
    let uid = &closed[0]["details"]["stopped"]["uid"];
    assert_eq!(*uid, u64::from(id().0), "{closed:?}");
    assert_eq!(closed[0]["details"]["stopped"]["approval"], 1, "{closed:?}");
    let _ = seen
        .outcome
        .says(["stopped by ", "(the answer to question .1)"]);
    let why = world.atoll(["why", "last"]).run().success();
    for line in [
        "asked each time: example.com",
        "1 question: .1 (GET http://example.com/a) denied by ",
        "stopped by ",
        "(the answer to question .1)",
    ] {
        let folded = why.out().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(folded.contains(line), "{line}: {why}");
    }
}

/// No process in the sandbox is asked to end or waited for: neither one that would report a signal,
/// nor one that ignores it. `bench` measures how soon that is.
#[test]
fn stop_ends_a_run_at_once_with_all_that_it_started() {
    let world = World::new("stop_ends_a_run_at_once_with_all_that_it_started");
    for arguments in [&["stop", "last"][..], &["stop", "--all"]] {
        let mark = format!("8{}0{}", std::process::id(), arguments.len());
        // Command lines of Atoll's have the script, which does not have what is looked for.
        let script = format!(
            "m={mark}; trap 'echo asked' TERM INT HUP; \
             (trap '' TERM INT HUP; setsid sleep $m & exec sleep $m) & \
             echo begun; while :; do wait; done"
        );
        let run = world.run(["--discard"], &script).start();
        run.until_stdout("begun");
        let sleeping = || pids_of_command(&format!("sleep {mark}")).len();
        // The control: they are found.
        wait_until("both are there", BOUND, || (sleeping() >= 2).then_some(()));
        let is_spoken_to = || {
            let mut sockets = fs::read_dir(world.state().join("atoll/control")).ok()?;
            sockets.next().map(drop)
        };
        wait_until("it can be stopped", BOUND, is_spoken_to);
        let _ = world.atoll(arguments).run().success().says(["Stopped"]);
        let outcome = run.wait();
        assert_eq!(sleeping(), 0, "{outcome}");
        assert_eq!(outcome.code(), 137, "{outcome}");
        assert_eq!(outcome.out(), "begun\n", "{outcome}");
        let closed = events(&world, "run.closed");
        assert_eq!(closed[0]["details"]["stopped"]["uid"], u64::from(id().0));
    }
    // Nothing that has ended can be stopped.
    let _ = world.atoll(["stop", "last"]).run().expect_status(125);
}

/// An obstacle at the start of a run need not last.
#[test]
fn a_run_that_could_not_be_spoken_to_at_first_is_stopped_later() {
    let world = World::new("a_run_that_could_not_be_spoken_to_at_first_is_stopped_later");
    let _ = world.run(["--discard"], "true").run().success();
    let sockets = world.state().join("atoll/control");
    let _ = fs::remove_dir_all(&sockets);
    fs::write(&sockets, "in the way").unwrap();
    let run = world.run(["--discard"], "echo begun; sleep 1000").start();
    run.until_stdout("begun");
    // The control: nobody gets to ask it anything, however long that is tried for.
    let _ = world.atoll(["ports", "last"]).run().expect_status(125);
    fs::remove_file(&sockets).unwrap();
    let is_spoken_to = || fs::read_dir(&sockets).ok()?.next().map(drop);
    wait_until("it can be stopped", BOUND, is_spoken_to);
    let _ = world
        .atoll(["stop", "last"])
        .run()
        .success()
        .says(["Stopped"]);
    let outcome = run.wait();
    assert_eq!(outcome.code(), 137, "{outcome}");
}

/// The command line is suspended, as with Ctrl-Z: the processes in the sandbox go on, and it
/// answers nobody.
#[test]
fn a_run_that_does_not_answer_is_stopped() {
    let world = World::new("a_run_that_does_not_answer_is_stopped");
    for arguments in [
        &["stop", "last"][..],
        &["stop", "--all"],
        &["stop", "--agent", "default"],
    ] {
        let mark = format!("{}0{}", std::process::id(), arguments.len());
        // Command lines of Atoll's have the script, which does not have what is looked for.
        let script = format!("m=1{mark}; echo begun; sleep $m & sleep $m");
        let run = world.run(["--discard"], &script).start();
        run.until_stdout("begun");
        let inside = || pids_of_command(&format!("sleep 1{mark}")).len();
        // The control: they are found.
        wait_until("both are there", BOUND, || (inside() >= 2).then_some(()));
        let process = Pid::from_raw(run.pid().cast_signed()).unwrap();
        kill_process(process, Signal::STOP).unwrap();
        let stopped = world.atoll(arguments).run().success();
        let _ = stopped.says(["Stopped", ", and its process was ended"]);
        wait_until("nothing of it is left", BOUND, || {
            (inside() == 0).then_some(())
        });
        let outcome = run.wait();
        assert_eq!(outcome.status.signal(), Some(9), "{outcome}");
        let why = world.atoll(["why", "last"]).run().success();
        assert!(why.out().contains("it was stopped by "), "{why}");
    }
    let _ = world.atoll(["ledger", "verify"]).run().success();
}

/// A run starts no other runs: everything that it started is its own process, in whatever
/// namespaces.
#[test]
fn stop_ends_what_is_in_namespaces_of_the_programs_own() {
    let world = World::new("stop_ends_what_is_in_namespaces_of_the_programs_own");
    let mark = format!("7{}", std::process::id());
    let script = format!(
        "export M={mark}; unshare --user --pid --fork --mount-proc \
         sh -c 'trap \"\" TERM; echo begun; sleep $M & sleep $M'"
    );
    let run = world.run(["--nesting", "--discard"], &script).start();
    run.until_stdout("begun");
    let sleeping = || pids_of_command(&format!("sleep {mark}")).len();
    wait_until("they sleep", BOUND, || (sleeping() >= 2).then_some(()));
    let _ = world.atoll(["stop", "last"]).run().success();
    let outcome = run.wait();
    assert_eq!(outcome.code(), 137, "{outcome}");
    assert_eq!(sleeping(), 0);
    let atoll = std::env::var("ATOLL_BIN").unwrap();
    fs::copy(atoll, world.path("atoll")).unwrap();
    let refused = world
        .run(["--nesting", "--discard"], "./atoll run -- true")
        .run();
    assert!(refused.err().contains("does not work inside"), "{refused}");
}

/// `last` is the run started last, whether or not it can be reached by now.
#[test]
fn last_is_never_an_older_run_that_still_goes_on() {
    let world = World::new("last_is_never_an_older_run_that_still_goes_on");
    let started = |script: &str| {
        let run = world.run(["--discard"], script).start();
        run.until_stdout("begun");
        run
    };
    let mut older = started("echo begun; read x; echo unharmed");
    let is_spoken_to = || {
        let mut sockets = fs::read_dir(world.state().join("atoll/control")).ok()?;
        sockets.next().map(drop)
    };
    wait_until("the older one can be stopped", BOUND, is_spoken_to);
    let newer = started("echo begun; sleep 1000");
    let _ = world.atoll(["stop", "last"]).run().success();
    let outcome = newer.wait();
    assert_eq!(outcome.code(), 137, "{outcome}");
    for command in [
        &["stop", "last"][..],
        &["publish", "last", "3000"],
        &["ports", "last"],
    ] {
        let refused = world.atoll(command).run().expect_status(125);
        let _ = refused.is_clear_error(["the last run, ", "has ended", "still going: ", "read x"]);
    }
    let _ = world
        .atoll(["stop", "zzz"])
        .run()
        .expect_status(125)
        .is_clear_error(["no run zzz goes on", "atoll runs"]);
    older.send("on\n");
    let outcome = older.wait().success();
    assert!(outcome.out().contains("unharmed"), "{outcome}");
}

#[test]
fn the_commands_of_the_page_on_approvals_are_understood() {
    let world = World::new("the_commands_of_the_page_on_approvals_are_understood");
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let page = Path::new(&package).join("../../docs/approvals.md");
    let page = fs::read_to_string(page).unwrap();
    let commands: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("atoll "))
        .map(|line| line.split('#').next().unwrap())
        .collect();
    assert!(commands.len() >= 10, "{commands:?}");
    for command in commands {
        let words = command.split_whitespace().skip(1);
        let outcome = world.atoll(words).run();
        // There is nobody whom they could be about.
        if outcome.code() != 0 {
            let _ = outcome
                .expect_status(125)
                .is_clear_error(["no run goes on"]);
        }
    }
    // The control: a mistake is another error.
    let wrong = world
        .atoll(["approvals", "grant", "k7qd.1", "--ever"])
        .run();
    assert!(wrong.err().contains("--ever"), "{wrong}");
}

/// An agent is identified by its profile, also where nothing of a run is kept.
#[test]
fn stop_by_agent_ends_the_runs_of_that_profile_alone() {
    let world = World::new("stop_by_agent_ends_the_runs_of_that_profile_alone");
    world.profile("helper", "extends = [\"default\"]\n");
    let started = |options: &[&str]| {
        let run = world.run(options, "echo begun; read x; echo unharmed");
        let run = run.start();
        run.until_stdout("begun");
        run
    };
    let kept = started(&["--keep", "--no-tty", "--profile", "helper"]);
    let scratch = started(&["--discard", "--profile", "helper"]);
    let mut other = started(&["--discard"]);
    let none = world.atoll(["stop", "--agent", "strict"]).run().success();
    let _ = none.says(["No run of profile strict goes on; what goes on is of default, helper."]);
    let misspelt = world.atoll(["stop", "--agent", "helpr"]).run();
    let _ = misspelt
        .expect_status(125)
        .is_clear_error(["no profile of that name", "did you mean helper?"]);
    let stopped = world.atoll(["stop", "--agent", "helper"]).run().success();
    assert_eq!(stopped.err().matches("Stopped ").count(), 2, "{stopped}");
    for run in [kept, scratch] {
        let outcome = run.wait();
        assert_eq!(outcome.code(), 137, "{outcome}");
    }
    other.send("x\n");
    let outcome = other.wait().success();
    assert!(outcome.out().contains("unharmed"), "{outcome}");
}

/// None of the stops waits for another, and each run that is not going on is reported by itself.
#[test]
fn several_runs_are_stopped_at_once_and_each_failure_is_told() {
    let world = World::new("several_runs_are_stopped_at_once_and_each_failure_is_told");
    let started = |script: &str| {
        let run = world.run(["--discard"], script).start();
        run.until_stdout("begun");
        let query = ["ledger", "query", "--type", "run.opened", "--json"];
        let opened = world.atoll(query).run().success().out();
        let last: Value = serde_json::from_str(opened.lines().last().unwrap()).unwrap();
        (run, text(&last, "run").to_owned())
    };
    let (first, first_id) = started("echo begun; sleep 1000");
    let (second, second_id) = started("echo begun; sleep 1000");
    let (mut other, _) = started("echo begun; read x; echo unharmed");
    // Two that answer nobody, each of which takes as long as it is given for an answer.
    for run in [&first, &second] {
        let process = Pid::from_raw(run.pid().cast_signed()).unwrap();
        kill_process(process, Signal::STOP).unwrap();
    }
    let arguments = ["stop", "zzz", &first_id, "yyy", &second_id, &first_id];
    let stopping = world.atoll(arguments).start();
    // Whoever waits for one after the other has one thread besides the first.
    let threads = format!("/proc/{}/task", stopping.pid());
    wait_until("both are waited for at a time", BOUND, || {
        (fs::read_dir(&threads).ok()?.count() >= 3).then_some(())
    });
    let stopped = stopping.wait().expect_status(125);
    for run in [first, second] {
        assert_eq!(run.wait().status.signal(), Some(9));
    }
    let told = stopped.err();
    assert_eq!(told.matches("Stopped ").count(), 2, "{stopped}");
    assert_eq!(told.matches("error: ").count(), 2, "{stopped}");
    for words in ["no run zzz goes on", "no run yyy goes on"] {
        assert!(told.contains(words), "{words}: {stopped}");
    }
    for mixed in ["--all", "--session", "--agent"] {
        let value: &[&str] = if mixed == "--all" { &[] } else { &["one"] };
        let arguments = [&["stop", "one", "two", mixed], value].concat();
        let refused = world.atoll(arguments).run();
        assert!(refused.err().contains("cannot be used with"), "{refused}");
    }
    other.send("x\n");
    let outcome = other.wait().success();
    assert!(outcome.out().contains("unharmed"), "{outcome}");
}
