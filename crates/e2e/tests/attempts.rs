//! Violations of a sandbox are in the ledger, with their names by MITRE ATLAS; honest work has
//! none.

use std::fs;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use e2e::{Avoidable, Invocation, Outcome, World, is_root, program_exists, wait_until};
use serde_json::{Value, json};

/// The longest time on a busy machine for anything that might hang.
const SOON: Duration = Duration::from_secs(60);

/// Returns a world with the attempting program in its workspace.
fn world(test: &str) -> Option<World> {
    let world = World::new(test);
    if !program_exists("cc") {
        world.skip("there is no C compiler", Avoidable::Yes);
        return None;
    }
    let _ = world
        .host("cc")
        .args(["-O1", "-static", "-pthread", "-x", "c", "-", "-o"])
        .arg(world.path("attempt"))
        .stdin(include_str!("attempts/attempt.c"))
        .run()
        .success();
    Some(world)
}

/// As [`world`], for an ordinary user, who can be without namespaces.
fn fenced(test: &str) -> Option<World> {
    if is_root() {
        World::new(test).skip("root always has namespaces", Avoidable::No);
        return None;
    }
    world(test)
}

/// Returns every event of the ledger.
fn events(world: &World) -> Vec<Value> {
    let text = fs::read_to_string(world.segment()).unwrap();
    let event = |line: &str| serde_json::from_str(line.split_once(' ').unwrap().1).unwrap();
    text.lines().map(event).collect()
}

fn of_kind(world: &World, kind: &str) -> Vec<Value> {
    let all = events(world).into_iter();
    all.filter(|event| event["type"] == kind).collect()
}

/// Returns kinds of violations with their techniques, in the order of their first occurrence.
fn seen(world: &World) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    of_kind(world, "attempt.seen")
        .iter()
        .map(|event| (text(&event["body"]["wall"]), text(&event["body"]["atlas"])))
        .collect()
}

/// Returns the number of a run's violations of a kind by a call, from its closing event.
fn counted(world: &World, wall: &str, call: &str) -> u64 {
    let closed = of_kind(world, "run.closed").pop().unwrap();
    let walls = closed["body"]["attempts"].as_array().unwrap().clone();
    let at = walls.iter().find(|one| one["wall"] == wall).unwrap();
    at["calls"][call].as_u64().unwrap()
}

/// Returns the number of attempts that `flood` and `interrupted` print.
fn made(outcome: &Outcome) -> u64 {
    let text = outcome.out();
    let line = text.lines().find_map(|line| line.strip_prefix("made "));
    line.unwrap().parse().unwrap()
}

fn inside(world: &World, options: &[&str], script: &str) -> Invocation {
    world.run(options, script).within(SOON)
}

const ATTEMPTS: &str = "./attempt mount; ./attempt mount; ./attempt user-namespace; \
     ./attempt keys; ./attempt vsock; ./attempt type; true";

fn attempts_are_told(world: &World, run: Invocation) {
    let ended = run.run().success();
    let expected = [
        ("mounts", "AML.T0105"),
        ("namespaces", "AML.T0105"),
        ("keys", "AML.T0090"),
        ("sockets", "AML.T0105"),
        ("terminal", "AML.T0105"),
    ];
    let expected = expected.map(|(wall, atlas)| (wall.to_owned(), atlas.to_owned()));
    assert_eq!(seen(world), expected, "{ended}");
    let first = &of_kind(world, "attempt.seen")[0]["body"];
    assert_eq!(first["call"], "mount");
    assert!(first["pid"].as_u64().unwrap() > 1, "{first}");
    let closed = of_kind(world, "run.closed").pop().unwrap();
    let mounts = json!({"wall": "mounts", "atlas": "AML.T0105", "count": 2, "calls": {"mount": 2}});
    assert_eq!(closed["body"]["attempts"][0], mounts);
    assert_eq!(closed["body"]["attempts"].as_array().unwrap().len(), 5);
    // For a person, and for machines.
    ended.says([
        "5 blocked attempts to leave the sandbox: mount, keyctl, socket, ioctl (MITRE ATLAS AML.T0090, AML.T0105)",
        "denied   unshare, which programs try",
        "atoll why",
        "\"call\": \"unshare\"",
        "\"technique\": \"OS Credential Dumping\"",
    ]);
    let why = world.atoll(["why", "last"]).run().success();
    for words in [
        "against mount isolation: mount 2 times (MITRE ATLAS AML.T0105)",
        "to do",
    ] {
        assert!(why.out().contains(words), "{words}: {why}");
    }
    let why = world.atoll(["why", "last", "--json"]).run().success();
    assert_eq!(why.json()["attempts"][0], mounts);
    let listed = world.atoll(["runs"]).run().success();
    assert!(listed.out().contains("ok, 5 attempts"), "{listed}");
    assert_eq!(world.runs()[0]["attempts"], 5);
    let verified = world.atoll(["ledger", "verify"]).run();
    let _ = verified.success();
}

#[test]
fn attempts_to_leave_are_in_the_ledger_and_told() {
    let Some(world) = world("attempts_to_leave_are_in_the_ledger_and_told") else {
        return;
    };
    let run = inside(&world, &["--keep", "--json", "-"], ATTEMPTS);
    attempts_are_told(&world, run);
}

#[test]
fn attempts_to_leave_a_fence_are_told_like_any() {
    let Some(world) = fenced("attempts_to_leave_a_fence_are_told_like_any") else {
        return;
    };
    let run = inside(&world, &["--keep", "--json", "-"], ATTEMPTS).without_namespaces();
    attempts_are_told(&world, run);
}

#[test]
fn what_reaches_out_of_a_fence_is_an_attempt_and_what_asks_is_not() {
    let name = "what_reaches_out_of_a_fence_is_an_attempt_and_what_asks_is_not";
    let Some(world) = fenced(name) else {
        return;
    };
    let path = world.top().join("service.sock");
    let _service = UnixListener::bind(&path).unwrap();
    let stale = world.top().join("stale.sock");
    drop(UnixListener::bind(&stale).unwrap());
    let outside = std::process::id();
    // Whether there is such a process, and who does not listen: that is asked.
    let asks = format!(
        "./attempt kill {outside} 0; ./attempt unix {}; ./attempt unix {}; true",
        stale.display(),
        world.top().join("nobody").display()
    );
    let _ = inside(&world, &["--keep"], &asks)
        .without_namespaces()
        .run()
        .success();
    assert_eq!(seen(&world), []);
    let reaches = format!(
        "./attempt kill {outside} 15; ./attempt unix {}; true",
        path.display()
    );
    let ended = inside(&world, &["--keep"], &reaches)
        .without_namespaces()
        .run()
        .success();
    let expected = ["processes", "services"].map(|wall| (wall.to_owned(), "AML.T0105".to_owned()));
    assert_eq!(seen(&world), expected, "{ended}");
}

#[test]
fn an_attempt_is_on_record_while_the_program_still_runs() {
    let Some(world) = world("an_attempt_is_on_record_while_the_program_still_runs") else {
        return;
    };
    let mut run = inside(&world, &["--discard"], "./attempt mount; echo tried; cat").start();
    run.until_stdout("tried");
    wait_until("the attempt is in the ledger", SOON, || {
        (!seen(&world).is_empty()).then_some(())
    });
    assert!(of_kind(&world, "run.closed").is_empty());
    run.close_stdin();
    let _ = run.wait().success();
    assert_eq!(counted(&world, "mounts", "mount"), 1);
}

#[test]
fn a_flood_of_attempts_stops_nothing_and_fills_no_ledger() {
    let Some(world) = world("a_flood_of_attempts_stops_nothing_and_fills_no_ledger") else {
        return;
    };
    // Every one is counted where the program comes to its end.
    let ended = inside(&world, &["--discard"], "./attempt flood 50 2")
        .run()
        .success();
    let first = made(&ended);
    assert!(first > 1_000, "{ended}");
    assert_eq!(counted(&world, "mounts", "mount"), first);
    // It is ended in time, and its count is not lost.
    let ended = inside(
        &world,
        &["--discard", "--timeout", "2s"],
        "./attempt flood 50",
    )
    .run();
    assert_eq!(ended.code(), 124, "{ended}");
    assert!(counted(&world, "mounts", "mount") > 1_000);
    // A person who ends it is obeyed.
    let run = inside(&world, &["--discard"], "./attempt flood 50").start();
    run.until_stdout("begun");
    run.signal(rustix::process::Signal::TERM);
    let ended = run.wait();
    assert_eq!(ended.code(), 143, "{ended}");
    let mut kinds: Vec<Value> = events(&world)
        .iter()
        .map(|one| one["type"].clone())
        .collect();
    // The limit of time that was reached.
    kinds.retain(|kind| kind != "denials.seen");
    assert_eq!(
        kinds,
        ["run.opened", "attempt.seen", "run.closed"].repeat(3)
    );
}

#[test]
fn a_flood_in_a_fence_stops_nothing() {
    let Some(world) = fenced("a_flood_in_a_fence_stops_nothing") else {
        return;
    };
    let flood = inside(&world, &["--keep"], "./attempt flood 50 2").without_namespaces();
    let ended = flood.run().success();
    assert_eq!(counted(&world, "mounts", "mount"), made(&ended));
    let flood = inside(&world, &["--keep", "--timeout", "2s"], "./attempt flood 50");
    let ended = flood.without_namespaces().run();
    assert_eq!(ended.code(), 124, "{ended}");
}

#[test]
fn who_is_killed_or_interrupted_while_it_waits_holds_nobody_up() {
    let name = "who_is_killed_or_interrupted_while_it_waits_holds_nobody_up";
    let Some(world) = world(name) else {
        return;
    };
    let script = "./attempt killed 100 && ./attempt user-namespace; echo after";
    let ended = inside(&world, &["--discard"], script).run().success();
    assert!(
        ended.out().contains("all killed") && ended.out().contains("after"),
        "{ended}"
    );
    assert_eq!(counted(&world, "namespaces", "unshare"), 1);
    // A call that a signal interrupts is made, and counted, again.
    let ended = inside(&world, &["--discard"], "./attempt interrupted 3000")
        .run()
        .success();
    assert!(
        counted(&world, "mounts", "mount") >= made(&ended),
        "{ended}"
    );
    assert_eq!(made(&ended), 3000);
}

/// One process can have one listener in its filters (seccomp(2)), and that is Atoll's.
#[test]
fn a_listener_of_the_programs_own_is_refused_and_other_filters_are_not() {
    let name = "a_listener_of_the_programs_own_is_refused_and_other_filters_are_not";
    let Some(world) = world(name) else {
        return;
    };
    let ended = inside(&world, &["--discard"], "./attempt listener")
        .run()
        .success();
    assert_eq!(
        ended.out(),
        "listener: Device or resource busy\nfilter: made\n"
    );
    assert_eq!(seen(&world), []);
}

/// The daily work of people and agents, with the files that tools look at on the way.
const HONEST: &[(&str, &str)] = &[
    (
        "sh",
        "ls -la /; cat /proc/self/status /proc/mounts; df; ulimit -a; id; uname -a; kill -0 $$; env",
    ),
    (
        "git",
        "git init -q g && cd g && echo a > a && git add a && git -c user.name=a -c user.email=a@b commit -qm a && git gc -q && git log && git clone -q . ../h && git status; git ls-remote https://localhost:1/x",
    ),
    (
        "cc",
        "echo 'int main(){return 0;}' > m.c && cc -g -fsanitize=address -o m m.c; ./m; cc -O2 -o n m.c && ./n",
    ),
    (
        "make",
        "printf 'all: a b c\\na b c:\\n\\ttouch $@\\n' > Makefile && make -j4",
    ),
    (
        "python3",
        "python3 -m venv v; python3 -m pip --version; python3 -c 'import socket,ssl,threading,subprocess,multiprocessing,tempfile,os,sqlite3,ctypes\n\
        [threading.Thread(target=lambda: None).start() for _ in range(20)]\n\
        print(subprocess.run([\"true\"]), multiprocessing.cpu_count(), os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0))\n\
        try: socket.getaddrinfo(\"localhost\", 80); socket.create_connection((\"localhost\", 1))\n\
        except OSError as error: print(error)\n\
        print(multiprocessing.Pool(2).map(abs, [1, 2]))'",
    ),
    (
        "node",
        "node -e 'require(\"fs\").readFile(\"/etc/hostname\", () => {}); require(\"dns\").lookup(\"localhost\", () => {}); \
        require(\"child_process\").execSync(\"true\"); new (require(\"worker_threads\").Worker)(\"1\", {eval: true}); console.log(require(\"os\").networkInterfaces())'",
    ),
    (
        "npm",
        "npm init -y; npm pack; npm install --offline --no-audit; npm install left-pad --fetch-retries 0",
    ),
    (
        "cargo",
        "cargo new c --vcs none && cd c && cargo build --offline && cargo test --offline",
    ),
    (
        "perl",
        "perl -MSocket -e 'print `true`; socket(S, AF_INET, SOCK_STREAM, 0)'",
    ),
    (
        "tar",
        "echo a > a && tar czf t.tgz a && tar xzpf t.tgz && cp -a t.tgz u.tgz && rm u.tgz",
    ),
    ("ping", "ping -c 1 127.0.0.1"),
    ("ip", "ip address; ip route; ip -d link"),
    ("ss", "ss -lntup"),
    ("ps", "ps aux; top -b -n 1"),
    ("dmesg", "dmesg | tail"),
    ("mount", "mount; findmnt; lsblk; lscpu; free"),
    (
        "taskset",
        "taskset -c 0 true; nice -n 5 true; ionice -c 3 true; chrt -o 0 true",
    ),
    (
        "curl",
        "curl -m 2 https://example.com; curl --unix-socket /nowhere http://x/",
    ),
    ("gdb", "gdb -batch -ex run -ex bt --args true"),
    ("strace", "strace -f true"),
    (
        "sqlite3",
        "sqlite3 d.db 'create table a (b); insert into a values (1); select * from a'",
    ),
    ("java", "java -version"),
    ("go", "go version && go env"),
    ("tmux", "tmux -V; script -qc true /dev/null"),
];

fn honest_work(test: &str, front: impl Fn(Invocation) -> Invocation) {
    let world = World::new(test);
    let mut tried = 0;
    for (program, script) in HONEST {
        let script =
            format!("export CARGO_HOME=$PWD/.cargo; (command -v {program} && {script}) 2>&1; true");
        let ended = front(world.run(["--discard"], &script).within(SOON))
            .run()
            .success();
        tried += usize::from(ended.out().lines().count() > 1);
        assert_eq!(seen(&world), [], "{program}: {ended}");
    }
    assert!(tried >= 5, "hardly anything is installed here: {tried}");
    assert!(
        of_kind(&world, "run.closed")
            .iter()
            .all(|one| one["body"]["attempts"].is_null())
    );
}

#[test]
fn honest_work_has_no_attempts() {
    honest_work("honest_work_has_no_attempts", |run| run);
}

#[test]
fn honest_work_in_a_fence_has_no_attempts() {
    let name = "honest_work_in_a_fence_has_no_attempts";
    if is_root() {
        World::new(name).skip("root always has namespaces", Avoidable::No);
        return;
    }
    honest_work(name, Invocation::without_namespaces);
}
