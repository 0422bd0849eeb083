//! Published ports of a sandbox that programs of the host visit, on a network of each test's own.

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use e2e::internet::{Seen, events, is_possible, on_internet};
use e2e::{Avoidable, BOUND, World, is_root, program_exists, wait_until};

const INSIDE: &str = include_str!("published/inside.py");
const VISIT: &str = include_str!("published/visit.py");
const LATER: &str = include_str!("published/later.py");

/// Runs the visits, with these options of the run.
fn visit(world: &World, options: &[&str]) -> Seen {
    world.write("inside.py", INSIDE);
    let script = world.top().join("visit.py");
    fs::write(&script, VISIT).unwrap();
    let command = format!("python3 '{}' \"$@\"", script.display());
    let run = on_internet(world, &command).env("INTERNET_PORTS", "22");
    let run = run.args(["sh", "inside.py"]).args(options);
    Seen::of(world, run.within(Duration::from_secs(300)).run())
}

const PUBLISH: [&str; 6] = [
    "--publish",
    "8080:3000",
    "--publish",
    "0:3001",
    "--publish",
    "5000",
];

#[test]
fn a_published_port_leads_to_what_listens_inside_and_to_nothing_else() {
    let world = World::new("a_published_port_leads_to_what_listens_inside_and_to_nothing_else");
    if !is_possible(&world, &[]) {
        return;
    }
    let seen = visit(&world, &PUBLISH);
    assert_eq!(
        seen.output(),
        "early True\n\
         port 3000 for 127.0.0.1:8080\n\
         port 3000 for [::1]:8080\n\
         port 3001 for 127.0.0.1:3001\n\
         not 3000 ConnectionRefusedError\n\
         not 4000 ConnectionRefusedError\n\
         not 15001 ConnectionRefusedError\n\
         large True\n\
         many 150\n\
         at once 100\n\
         another user True\n\
         ended 0 ConnectionRefusedError\n\
         held ended",
        "{}",
        seen.outcome
    );
    let outcome = seen.outcome.says([
        "http://127.0.0.1:8080 leads to port 3000 inside",
        "http://127.0.0.1:3001 leads to port 3001 inside",
    ]);
    if is_root() {
        let _ = outcome.says(["a visit to port 3000 inside: it came from user 61234"]);
        let refused = events(&world, "flow.refused");
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert_eq!(refused[0]["kind"], "published");
    }
    let (opened, closed) = (events(&world, "flow.opened"), events(&world, "flow.closed"));
    assert_eq!(opened.len(), closed.len());
    let of = |port: u64| opened.iter().filter(move |one| one["port"] == port);
    assert_eq!(of(5000).count(), 101);
    assert_eq!(of(3001).count(), 1);
    // The one that came before the server did, and those that ended the run.
    assert_eq!(of(3000).count(), 1 + 2 + 150 + 2);
    for one in &opened {
        assert_eq!(
            (&one["kind"], &one["host"]),
            (&"published".into(), &"localhost".into())
        );
    }
    assert_eq!(
        of(3000).next().unwrap()["rule"],
        "publish 8080:3000 (--publish)"
    );
    let large = 48 << 20;
    let is_large = |one: &&serde_json::Value| one["down_bytes"] == large;
    let large = closed.iter().find(is_large).expect("the large one");
    assert!(large["up_bytes"].as_u64().unwrap() > 48 << 20, "{large}");
    let decided = events(&world, "run.opened");
    assert_eq!(decided[0]["decision"]["network"]["publish"][0], "8080:3000");
}

#[test]
fn a_port_is_published_while_a_run_goes_on_and_only_when_asked_for() {
    let world = World::new("a_port_is_published_while_a_run_goes_on_and_only_when_asked_for");
    if !is_possible(&world, &[]) {
        return;
    }
    world.write("inside.py", INSIDE);
    let script = world.top().join("later.py");
    fs::write(&script, LATER).unwrap();
    let told = world.top().join("told.json");
    let command = format!(
        "python3 '{}' inside.py '{}' '{}'",
        script.display(),
        told.display(),
        world.state().display()
    );
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo or xtask sets it");
    let text = fs::read_to_string(std::path::Path::new(&package).join("../../docs/network.md"));
    let text = text.unwrap();
    let (_, typed) = text
        .split_once("```\natoll ports ")
        .expect("it has commands");
    let (typed, _) = typed.split_once("```").expect("they end");
    // The first one lists, as this test does all the time.
    let (_, typed) = typed.split_once('\n').expect("it has further ones");
    let mut run = on_internet(&world, &command).stdin(typed);
    if is_root() {
        run = run.env("AS_ROOT", "1");
    }
    let seen = Seen::of(&world, run.within(Duration::from_secs(300)).run());
    let page = "page 0 http://127.0.0.1:3000 leads to port 3000 inside\n\
                page 0 http://127.0.0.1:8080 leads to port 3000 inside\n";
    let others = match is_root() {
        true => "another user kept out\nanother user not answered\n",
        false => "",
    };
    assert_eq!(
        seen.output(),
        format!(
            "listed [(3000, 'loopback', 'python3'), (3001, 'loopback', 'python3'), \
             (4000, 'loopback', 'python3'), (5000, 'everywhere', 'python3')]\n\
             never by itself ConnectionRefusedError\n\
             {page}\
             port 3000 for 127.0.0.1:3000\n\
             port 3000 for 127.0.0.1:8080\n\
             port 3000 for [::1]:8080\n\
             not ConnectionRefusedError\n\
             asked for 0\n\
             port 3001 for 127.0.0.1:3001\n\
             many 60\n\
             twice 126 True\n\
             taken 126 True\n\
             no port 125\nno port 125\nno port 125\nno port 125\n\
             no run 125\n\
             modes 0o700 0o600\n\
             spoken to answered\n\
             {others}ended 0 ConnectionRefusedError []"
        ),
        "{}",
        seen.outcome
    );
    let published = events(&world, "port.published");
    let ports = |one: &serde_json::Value| (one["host_port"].clone(), one["port"].clone());
    assert_eq!(
        published.iter().map(ports).collect::<Vec<_>>(),
        [
            (3000.into(), 3000.into()),
            (8080.into(), 3000.into()),
            (3001.into(), 3001.into())
        ]
    );
    assert_eq!(published[1]["rule"], "publish 8080:3000 (atoll publish)");
    let refused = events(&world, "port.refused");
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(
        (&refused[0]["host_port"], &refused[0]["port"]),
        (&8080.into(), &4000.into())
    );
    let visits = events(&world, "flow.opened");
    assert_eq!(visits.len(), 1 + 2 + 1 + 60 + 1, "{visits:?}");
    assert_eq!(visits[1]["rule"], "publish 8080:3000 (atoll publish)");
    let told: serde_json::Value = serde_json::from_slice(&fs::read(told).unwrap()).unwrap();
    let network = &told["network"];
    assert_eq!(network["published"][2]["port"], 3001);
    let listened = network["listened"].as_array().unwrap();
    let has = |port: u64| listened.iter().any(|one| one["port"] == port);
    assert!([3000, 3001, 4000, 5000].into_iter().all(has), "{network}");
    let _ = seen.outcome.says(["4000 (python3)", "--publish 4000"]);
}

/// A key opens the page, a letter publishes the port; neither reaches the program.
#[test]
fn a_port_is_published_by_a_key_at_the_terminal() {
    let world = World::new("a_port_is_published_by_a_key_at_the_terminal");
    if !program_exists("python3") || !program_exists("curl") {
        world.skip("python3 or curl is not installed", Avoidable::Yes);
        return;
    }
    world.write("page", "from inside");
    // One that nobody else on this host has, as tests run side by side.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = 20_000 + taken.local_addr().unwrap().port() % 10_000;
    let script = format!(
        "python3 -m http.server --bind 127.0.0.1 {port} >/dev/null 2>&1 & p=$!; read x; echo got $x; \
         read y; kill $p"
    );
    let visit = || {
        let url = format!("http://127.0.0.1:{port}/page");
        let seen = Command::new("curl").args(["-s", "-m", "5", &url]).output();
        String::from_utf8(seen.unwrap().stdout).unwrap()
    };
    let mut terminal = world.run(["--keep"], &script).on_terminal(40, 200);
    let told = terminal.expect("in another terminal");
    assert!(
        told.contains("Press Ctrl-] to publish it. Or run `atoll publish "),
        "{told}"
    );
    // The control: nothing leads there, and other keys reach the program.
    assert_eq!(visit(), "");
    terminal.line("this");
    terminal.expect("got this");
    assert_eq!(visit(), "");
    terminal.send("\x1d");
    terminal.expect("your programs and root's on this host, until the run ends");
    terminal.expect("A letter, then Enter: ");
    assert_eq!(visit(), "");
    terminal.send("p\r");
    terminal.expect(&format!(
        "http://127.0.0.1:{port} leads to port {port} inside"
    ));
    assert_eq!(visit(), "from inside");
    terminal.line("");
    let ended = terminal.wait();
    assert_eq!(ended.code(), 0, "{ended}");
    let events = world.atoll(["ledger", "query", "--type", "port.published", "--json"]);
    let events = events.run().success();
    assert!(
        events.out().contains(&format!("\"port\":{port}")),
        "{events}"
    );
}

/// A page that a person is reading does not hold up a run whose program has ended.
#[test]
fn a_run_ends_under_the_page_of_a_port() {
    let world = World::new("a_run_ends_under_the_page_of_a_port");
    if !program_exists("python3") {
        world.skip("python3 is not installed", Avoidable::Yes);
        return;
    }
    let script = "python3 -m http.server --bind 127.0.0.1 3000 >/dev/null 2>&1 & p=$!; read x; \
         until test -e go; do sleep 0.05; done; kill $p; echo last words";
    let mut terminal = world.run(["--live"], script).on_terminal(40, 200);
    terminal.expect("in another terminal");
    terminal.line("");
    terminal.send("\x1d");
    terminal.expect("until the run ends");
    world.write("go", "");
    terminal.expect("Keep the changes?");
    terminal.line("k");
    let ended = terminal.wait();
    assert_eq!(ended.code(), 0, "{ended}");
    let out = ended.out();
    let (_, after) = out.rsplit_once("\x1b[?1049l").unwrap();
    assert!(after.contains("last words"), "{ended}");
}

#[test]
fn a_program_that_begins_to_listen_is_told_at_the_terminal() {
    let world = World::new("a_program_that_begins_to_listen_is_told_at_the_terminal");
    if !program_exists("python3") {
        world.skip("python3 is not installed", Avoidable::Yes);
        return;
    }
    let serve = "python3 -m http.server --bind 127.0.0.1";
    // While the whole screen is drawn, nothing is written into it.
    let script = format!(
        "{serve} 3000 >/dev/null 2>&1 & printf 'half a line'; read x; printf '\\033[?1049h'; \
         {serve} 3001 >/dev/null 2>&1 & read x; printf '\\033[?1049l'; kill %1 %2"
    );
    let mut terminal = world.run(["--keep"], &script).on_terminal(40, 200);
    let told = terminal.expect("Port 3000 (python3) is open inside.");
    assert!(told.contains("half a line\r\natoll: "), "{told}");
    terminal.expect("in another terminal");
    terminal.line("on");
    let is_listed = || {
        let listed = world.atoll(["ports"]).run().success();
        let is_there = listed
            .out()
            .contains("  3001 (python3): on the loopback, not published");
        is_there.then_some(())
    };
    wait_until("the second is listed", BOUND, is_listed);
    terminal.line("on");
    let ended = terminal.wait();
    assert!(!ended.out().contains("Port 3001"), "{ended}");
    assert!(ended.out().contains("3001 (python3)"), "{ended}");
    assert!(ended.out().contains("--publish 3000"), "{ended}");
}

#[test]
fn nothing_inside_finds_where_its_run_is_spoken_to() {
    let world = World::new("nothing_inside_finds_where_its_run_is_spoken_to");
    let directory = world.state().join("atoll").join("control");
    let script = format!(
        "read x; ls '{0}' 2>/dev/null; find / -xdev -name '*.sock' -path '*control*' 2>/dev/null; \
         test -e '{0}' || echo nothing",
        directory.display()
    );
    let mut run = world.run(["--keep"], &script).start();
    let is_there = || fs::read_dir(&directory).ok()?.next().map(drop);
    wait_until("it can be spoken to", BOUND, is_there);
    run.send("on\n");
    let ended = run.wait().success();
    assert_eq!(ended.out(), "nothing\n", "{ended}");
}

/// A published port lets the sandbox reach nothing more, and other rules hold beside it.
#[test]
fn what_is_published_opens_no_way_out() {
    let world = World::new("what_is_published_opens_no_way_out");
    if !is_possible(&world, &[]) {
        return;
    }
    let tries = "for to in example.com:22 93.184.216.34:22 host.atoll.internal:22 \
                 host.atoll.internal:8080 10.1.2.3:22; do \
                 curl -sS -m 60 --http0.9 --noproxy '*' http://$to/ > got 2>&1; grep -q SSH got && echo reached $to; \
                 done; python3 -m http.server -b 127.0.0.1 8080 > /dev/null 2>&1 & for i in $(seq 600); do \
                 curl -sS -m 60 -o /dev/null http://127.0.0.1:8080/ 2> /dev/null && echo its own && break; sleep 0.1; done";
    let run = |options: &[&str]| {
        let command = "\"$ATOLL\" run --discard --publish 8080 \"$@\"";
        let run = on_internet(&world, command).arg("sh").args(options);
        Seen::of(&world, run.args(["--", "sh", "-c", tries]).run())
    };
    let seen = run(&[]);
    assert_eq!(seen.output(), "its own", "{}", seen.outcome);
    assert!(seen.asked.is_empty() && seen.reached.is_empty(), "{seen:?}");
    let seen = run(&["--allow", "93.184.216.34:22"]);
    assert_eq!(
        seen.output(),
        "reached 93.184.216.34:22\nits own",
        "{}",
        seen.outcome
    );
    assert_eq!(seen.reached, ["93.184.216.34 22"]);
}

#[test]
fn a_port_that_is_taken_is_told_with_who_has_it_before_anything_starts() {
    let world = World::new("a_port_that_is_taken_is_told_with_who_has_it_before_anything_starts");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let script = "echo started; echo > made";
    let told = world
        .run(["--live", "--publish", &format!("{port}:80")], script)
        .run();
    let own = format!("(process {}) listens there already", std::process::id());
    let told = told.expect_status(125);
    let _ = told.says([
        &format!("port {port} of this host cannot be published")[..],
        &own,
        &format!("--publish {}:80", port + 1),
    ]);
    assert_eq!(told.out(), "");
    assert!(!world.path("made").exists());
    // The record says so too, and nothing is left of the run.
    let failed = world.atoll(["why", "last"]).run().success();
    assert!(failed.out().contains("listens there already"), "{failed}");
    if !is_root() {
        let told = world.run(["--publish", "80"], script).run();
        let _ = told
            .expect_status(125)
            .says(["ports below 1024", "--publish 8080:80"]);
    }
}

#[test]
fn a_fence_publishes_nothing_and_says_why() {
    let world = World::new("a_fence_publishes_nothing_and_says_why");
    if is_root() {
        world.skip("root always has namespaces", Avoidable::No);
        return;
    }
    let run = world.run(["--publish", "3000"], "echo started");
    let told = run.without_namespaces().run().expect_status(126);
    let _ = told.says(["publishing port 3000", "on this host's loopback already"]);
    assert_eq!(told.out(), "");
    // Nor later, when it is asked for.
    let fenced = world.run(["--discard"], "echo begun; sleep 1000");
    let fenced = fenced.without_namespaces().start();
    fenced.until_stdout("begun");
    let directory = world.state().join("atoll").join("control");
    let is_there = || fs::read_dir(&directory).ok()?.next().map(drop);
    wait_until("it can be spoken to", BOUND, is_there);
    let told = world.atoll(["publish", "last", "3000"]).run();
    let _ = told
        .expect_status(126)
        .says(["on this host's loopback already"]);
    let _ = world.atoll(["stop", "last"]).run().success();
    let _ = fenced.wait();
}
