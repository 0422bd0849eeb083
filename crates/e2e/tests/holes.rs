//! Vulnerabilities that were found and fixed: each is tried here by a program in a sandbox and
//! judged from outside, and beside each refusal stands something that has to go on working.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use e2e::{
    Avoidable, Outcome, Running, World, descendants_of, make_fifo, program_exists, status_field,
    tree, wait_until,
};
use rustix::process::Signal;

const NONE: [&str; 0] = [];
/// The longest time on a busy machine for anything that might hang.
const SOON: Duration = Duration::from_secs(30);

/// Returns a shell command that runs Python code, in which no single quote may be.
fn python(code: &str) -> String {
    assert!(!code.contains('\''), "{code}");
    format!("python3 -c '{code}'")
}

/// Returns whether the host has Python; else the test is skipped.
fn has_python(world: &World) -> bool {
    let has = program_exists("python3");
    if !has {
        world.skip("there is no python3", Avoidable::Yes);
    }
    has
}

/// Returns system calls by their numbers; `None` where they are not known.
fn numbers() -> Option<[(&'static str, u32); 4]> {
    let numbers = match std::env::consts::ARCH {
        "x86_64" => [302, 203, 141, 452],
        "aarch64" => [261, 122, 140, 452],
        _ => return None,
    };
    let names = ["prlimit", "sched_setaffinity", "setpriority", "fchmodat2"];
    Some([0, 1, 2, 3].map(|at| (names[at], numbers[at])))
}

// The summary.

#[test]
fn a_planted_link_does_not_lead_the_summary_elsewhere() {
    let world = World::new("a_planted_link_does_not_lead_the_summary_elsewhere");
    let canary = world.top().join("canary");
    world.write(&canary, "untouched\n");
    for mode in ["--keep", "--live"] {
        for plant in ["ln -s ../canary", "mkfifo", "mkdir"] {
            let _ = fs::remove_dir(world.path("summary"));
            let _ = fs::remove_file(world.path("summary"));
            let script = format!("rm -f summary; {plant} summary && echo planted");
            let ended = world
                .run([mode, "--json", "summary"], &script)
                .within(SOON)
                .run();
            assert!(ended.out().contains("planted"), "{mode} {plant}: {ended}");
            assert_eq!(
                world.read(&canary),
                "untouched\n",
                "{mode} {plant}: {ended}"
            );
        }
    }
    let _ = fs::remove_dir(world.path("summary"));
    let _ = world
        .run(["--keep", "--json", "written"], "true")
        .run()
        .success();
    let written: serde_json::Value = serde_json::from_str(&world.read("written")).unwrap();
    assert!(written["run"].is_string(), "{written}");
}

#[test]
fn a_summary_is_not_written_through_a_link_that_was_there() {
    let world = World::new("a_summary_is_not_written_through_a_link_that_was_there");
    let canary = world.top().join("canary");
    world.write(&canary, "untouched\n");
    symlink(&canary, world.path("summary")).unwrap();
    let refused = world
        .run(["--json", "summary"], "echo started")
        .run()
        .expect_status(125);
    refused.is_clear_error(["--json", "summary"]);
    assert_eq!(refused.out(), "");
    assert_eq!(world.read(&canary), "untouched\n");
}

// Live.

#[test]
fn nothing_in_a_live_workspace_becomes_set_user_id() {
    let world = World::new("nothing_in_a_live_workspace_becomes_set_user_id");
    world.write("there", "x");
    fs::create_dir(world.path("directory")).unwrap();
    let mut attempts = vec![
        "chmod u+s there; chmod g+s there; chmod 6755 there".to_owned(),
        "chmod g+s directory; mkdir -m 2755 made-directory".to_owned(),
        "cp /usr/bin/id copied; chmod 4755 copied; install -m 4755 /usr/bin/id installed"
            .to_owned(),
        "perl -MFcntl -e \"sysopen(F, q(opened), O_CREAT|O_WRONLY, 06755)\"".to_owned(),
        "perl -e \"open(F, q(>there)); chmod(06755, *F)\"".to_owned(),
    ];
    if let (true, Some(numbers)) = (program_exists("python3"), numbers()) {
        let call = numbers[3].1;
        let code = format!(
            "import ctypes; ctypes.CDLL(None).syscall({call}, -100, b\"there\", 0o6755, 0)"
        );
        attempts.push(python(&code));
        attempts.push(python("import os; os.mknod(\"node\", 0o106755)"));
    }
    for attempt in &attempts {
        let _ = world
            .run(["--live"], &format!("umask 0; {attempt}; true"))
            .run()
            .success();
        for (path, entry) in tree(&world.workspace()) {
            assert_eq!(entry.mode & 0o6000, 0, "{}: {attempt}", path.display());
        }
    }
    let _ = world
        .run(["--live"], "chmod 750 there; chmod +t directory")
        .run()
        .success();
    let mode = |path| fs::metadata(world.path(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("there"), mode("directory") & 0o1000), (0o750, 0o1000));
}

/// Writes everything of a repository that its own programs would run or follow.
fn repository(world: &World) {
    for (path, text) in [
        (".git/HEAD", "ref: refs/heads/main\n"),
        (".git/config", "[core]\n"),
        (".git/hooks/pre-commit", "#!/bin/sh\n"),
        (".github/workflows/ci.yml", "on: push\n"),
        ("source", "text\n"),
    ] {
        world.write(path, text);
    }
}

#[test]
fn hooks_stay_sealed_in_a_live_workspace() {
    let world = World::new("hooks_stay_sealed_in_a_live_workspace");
    repository(&world);
    let sealed = |world: &World| -> BTreeMap<PathBuf, _> {
        let all = tree(&world.workspace()).into_iter();
        all.filter(|(path, _)| {
            [".git/hooks", ".git/config", ".github"]
                .iter()
                .any(|one| path.starts_with(one))
        })
        .collect()
    };
    let before = sealed(&world);
    for attempt in [
        "mv .git gone",
        "rm -rf .git/hooks",
        "rm -rf .git",
        "mv .git/hooks .git/aside",
        "echo evil > .git/hooks/pre-commit",
        "echo evil > .git/hooks/post-checkout",
        "ln -s ../../source .git/hooks/post-merge",
        "chmod +x .git/hooks/pre-commit",
        "rm -f .git/config; echo evil > .git/config",
        "mv source .git/config",
        "echo evil >> .github/workflows/ci.yml",
        "mkdir other; echo evil > other/pre-commit; mv -T --exchange other .git/hooks",
        "perl -e \"rename q(.git), q(gone)\"",
        "mv .github gone",
    ] {
        let tried = world
            .run(["--live"], &format!("{attempt}; true"))
            .run()
            .success();
        assert!(
            world.path(".git").is_dir() && !world.exists("gone"),
            "{attempt}: {tried}"
        );
        assert!(sealed(&world) == before, "{attempt}: {tried}");
    }
    let _ = world
        .run(["--live"], "echo new > source; mkdir d; mv source d/moved")
        .run()
        .success();
    assert_eq!(world.read("d/moved"), "new\n");
}

/// Git takes hooks and configuration from where `.git` leads, whatever that is called: there they
/// wait for approval as in `.git`, and a commit is applied as there.
#[test]
fn a_git_directory_of_another_name_has_hooks_that_wait_for_a_yes() {
    let world = World::new("a_git_directory_of_another_name_has_hooks_that_wait_for_a_yes");
    if !program_exists("git") {
        return world.skip("git is not installed", Avoidable::Yes);
    }
    let own = "git config user.name T; git config user.email t@example.org";
    let made = format!(
        "set -eu; cd \"$1\"; git init -q -b main --separate-git-dir .bare .; {own}
         echo 'gitdir: ./.bare' > .git; echo one > a; git add a; git commit -q -m first"
    );
    let host = |script: &str| {
        let shell = world.host("sh").args(["-c", script, "sh"]);
        shell.arg(world.workspace()).run().success()
    };
    let _ = host(&made);
    let script = "set -eu; echo two > a; git commit -q -a -m second; git branch further
        printf '#!/bin/sh\\ntouch ran\\n' > .bare/hooks/post-checkout
        chmod +x .bare/hooks/post-checkout; echo 'a filter=x' > .bare/info/attributes
        git config core.fsmonitor 'touch ran'; mkdir -p .bare/worktrees/w
        echo '[core]' > .bare/worktrees/w/config.worktree";
    let _ = world.run(["--keep"], script).run().success();
    let applied = world.atoll(["apply", "last"]).run().success();
    applied.says([
        ".bare/hooks/post-checkout",
        ".bare/info/attributes",
        ".bare/config",
        ".bare/worktrees/w/config.worktree",
    ]);
    assert!(!world.exists(".bare/hooks/post-checkout"), "{applied}");
    let seen = host(
        "set -eu; cd \"$1\"; git checkout -q further; git log --format=%s; git status --short -uno",
    );
    assert_eq!(seen.out(), "second\nfirst\n");
    assert!(!world.exists("ran"));
    // An index that names a hook is one there, too.
    let forged = "set -eu; mkdir -p zgit/hooks; echo x > zgit/hooks/post-checkout; git add zgit
        LC_ALL=C sed -i s#zgit/hooks#.git/hooks# .bare/index; echo three > b";
    let _ = world.run(["--keep"], forged).run().success();
    let applied = world.atoll(["apply", "last"]).run().success();
    applied.says([".bare/index"]);
    assert_eq!(world.read("b"), "three\n");
    // With a yes they are taken over: the control.
    let _ = world.atoll(["apply", "last", "--control"]).run().success();
    let listed = host("cd \"$1\"; git ls-files");
    assert!(
        listed.out().contains(".git/hooks/post-checkout"),
        "{listed}"
    );
}

fn connect(path: &str) -> String {
    format!(
        "perl -MSocket -e \"socket(S,AF_UNIX,SOCK_STREAM,0); \
         connect(S,sockaddr_un(q({path}))) and print qq(connected\\n)\""
    )
}

#[test]
fn sockets_in_a_live_workspace_lead_nowhere() {
    let world = World::new("sockets_in_a_live_workspace_lead_nowhere");
    fs::create_dir(world.path("deep")).unwrap();
    let listeners =
        ["socket", "deep/socket"].map(|path| UnixListener::bind(world.path(path)).unwrap());
    for (path, listener) in ["socket", "deep/socket"].iter().zip(&listeners) {
        let control = world.host_shell(&connect(path)).run().success();
        assert!(
            control.out().contains("connected"),
            "the control cannot connect: {control}"
        );
        let _ = listener.accept().unwrap();
        listener.set_nonblocking(true).unwrap();
        let names = format!("ln {path} linked; mv {path} moved; rm -f {path}");
        let tries: Vec<String> = [path, "linked", "moved"].map(connect).into();
        let script = format!("{}; {names}; {}; true", tries[0], tries.join("; "));
        let tried = world.run(["--live"], &script).run().success();
        assert!(!tried.out().contains("connected"), "{path}: {tried}");
        let accepted = listener.accept().map(|_| ()).map_err(|error| error.kind());
        assert_eq!(accepted, Err(ErrorKind::WouldBlock), "{path}: {tried}");
        assert!(world.exists(path), "{tried}");
    }
}

#[test]
fn named_pipes_in_a_live_workspace_lead_nowhere() {
    let world = World::new("named_pipes_in_a_live_workspace_lead_nowhere");
    fs::create_dir(world.path("deep")).unwrap();
    for path in ["pipe", "deep/pipe"] {
        make_fifo(&world.path(path));
        // Held open at both ends, so that nobody waits.
        let mut end = fs::File::options()
            .read(true)
            .write(true)
            .open(world.path(path))
            .unwrap();
        std::io::Write::write_all(&mut end, b"secret\n").unwrap();
        let script = format!(
            "timeout 2 head -n 1 {path}; timeout 2 sh -c 'echo leaked > {path}'; ln {path} linked; \
             timeout 2 sh -c 'echo leaked > linked'; mv {path} moved; rm -f linked; true"
        );
        let tried = world.run(["--live"], &script).run().success();
        assert!(!tried.out().contains("secret"), "{path}: {tried}");
        std::io::Write::write_all(&mut end, b"end\n").unwrap();
        let mut seen = [0; 64];
        let count = std::io::Read::read(&mut end, &mut seen).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&seen[..count]),
            "secret\nend\n",
            "{tried}"
        );
        assert!(world.exists(path), "{tried}");
    }
}

#[test]
fn inputs_that_lead_out_are_refused() {
    let world = World::new("inputs_that_lead_out_are_refused");
    let shared = world.top().join("shared");
    fs::create_dir(&shared).unwrap();
    make_fifo(&shared.join("pipe"));
    let _listener = UnixListener::bind(shared.join("socket")).unwrap();
    world.write(shared.join("file"), "content\n");
    for name in ["pipe", "socket"] {
        let path = shared.join(name).to_str().unwrap().to_owned();
        let refused = world
            .run(["--ro", &path], "echo started")
            .within(SOON)
            .run();
        assert_eq!(refused.code(), 125, "{refused}");
        refused.is_clear_error([path.as_str(), "socket"]);
        assert_eq!(refused.out(), "");
    }
    let file = shared.join("file").to_str().unwrap().to_owned();
    let shown = world
        .run(["--ro", &file], &format!("cat {file}"))
        .run()
        .success();
    assert_eq!(shown.out(), "content\n");
}

// The sandbox's first process.

/// Returns the settings of a process that another one could change: limits, processors, priority.
fn standing(pid: u32) -> [String; 3] {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    let stat = read("stat");
    // The name, in parentheses, may contain spaces; priority and nice value are
    // the 18th and 19th field (proc(5)).
    let after_name = stat.rsplit(')').next().unwrap();
    let nice: Vec<&str> = after_name.split_whitespace().skip(15).take(2).collect();
    [
        read("limits"),
        status_field(pid, "Cpus_allowed").unwrap(),
        nice.join(" "),
    ]
}

/// Returns the first process of its sandbox, by its process id on the host.
fn first_process(running: &Running) -> u32 {
    let all = descendants_of(running.pid());
    let is_first = |pid: u32| {
        status_field(pid, "NSpid").is_some_and(|numbers| {
            let numbers: Vec<&str> = numbers.split_whitespace().collect();
            numbers.len() > 1 && numbers.last() == Some(&"1")
        })
    };
    all.iter()
        .find(|one| is_first(one.pid))
        .expect("the sandbox has no first process")
        .pid
}

#[test]
fn the_first_process_cannot_be_hindered() {
    let world = World::new("the_first_process_cannot_be_hindered");
    let Some([(_, limit), (_, affinity), (_, priority), _]) = numbers() else {
        return world.skip(
            "the numbers of system calls are not known here",
            Avoidable::No,
        );
    };
    if !has_python(&world) {
        return;
    }
    let code = format!(
        r#"
import ctypes, os, sys
c = ctypes.CDLL(None, use_errno=True)
files = (ctypes.c_ulong * 2)(32, 32)
cpus = (ctypes.c_ulong * 16)(1)
def call(*arguments):
    return "done" if c.syscall(*arguments) >= 0 else ctypes.get_errno()
print("ready", flush=True)
sys.stdin.readline()
print("limit", call({limit}, 1, 7, files, None))
print("read-limit", call({limit}, 1, 7, None, files))
print("affinity", call({affinity}, 1, 128, cpus))
print("priority", call({priority}, 0, 1, 19))
print("group-priority", call({priority}, 1, 1, 19))
print("user-priority", call({priority}, 2, os.getuid(), 19))
if os.fork() == 0:
    try: os.setpgid(0, 1)
    except OSError: pass
    print("own-group-priority", call({priority}, 1, 0, 19), flush=True)
    os._exit(0)
os.wait()
for signal in (9, 15, 19, 6, 11):
    try: os.kill(1, signal)
    except OSError: pass
files = (ctypes.c_ulong * 2)(32, 32)
print("own-limit", call({limit}, 0, 7, files, None))
print("own-affinity", call({affinity}, 0, 128, cpus))
print("own-priority", call({priority}, 0, 0, 19))
print("tried", flush=True)
sys.stdin.readline()
"#
    );
    let mut running = world.run(["--discard"], &python(&code)).start();
    running.until_stdout("ready");
    let first = first_process(&running);
    let before = standing(first);
    running.send("\n");
    let said = running.until_stdout("tried");
    assert_eq!(standing(first), before, "{said}");
    running.send("\n");
    let ended = running.wait().success();
    let result = |name: &str| {
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name}: {ended}")).to_owned()
    };
    for name in [
        "limit",
        "read-limit",
        "affinity",
        "priority",
        "group-priority",
        "user-priority",
    ] {
        assert_eq!(result(name), "1", "{name}: {ended}");
    }
    for name in ["own-limit", "own-affinity", "own-priority"] {
        assert_eq!(result(name), "done", "{name}: {ended}");
    }
}

// Memory.

/// Takes 200 MiB, or 16 MiB as a control, of one kind of memory, and stays.
const TAKE: &str = r#"
import ctypes, mmap, os, sys, time
kind, size = sys.argv[1], int(sys.argv[2]) << 20
part = b"x" * (1 << 20)
if kind == "private":
    kept = bytearray(part * (size >> 20))
elif kind == "shared":
    kept = mmap.mmap(-1, size)
    for at in range(0, size, 1 << 20): kept[at:at + (1 << 20)] = part
elif kind == "system-v":
    c = ctypes.CDLL(None)
    c.shmat.restype = ctypes.c_void_p
    at = c.shmat(c.shmget(0, ctypes.c_size_t(size), 0o1600), None, 0)
    ctypes.memset(at, 1, size)
elif kind == "system-v-detached":
    c = ctypes.CDLL(None)
    c.shmat.restype = ctypes.c_void_p
    at = ctypes.c_void_p(c.shmat(c.shmget(0, ctypes.c_size_t(size), 0o1600), None, 0))
    ctypes.memset(at, 1, size)
    c.shmdt(at)
else:
    file = os.memfd_create("memory") if kind == "memfd" else os.open(kind, os.O_CREAT | os.O_WRONLY)
    for at in range(size >> 20):
        if os.write(file, part) < len(part): sys.exit("a short write")
# Whoever watches looks now and then.
time.sleep(float(sys.argv[3]))
print("took it")
"#;

/// Takes memory of one kind, and stays so many seconds with it.
fn take(world: &World, kind: &str, mib: u32, stays_s: u32) -> Outcome {
    let script = format!("{} {kind} {mib} {stays_s}", python(TAKE));
    world
        .run(["--discard", "--limit", "memory=64MiB"], &script)
        .within(SOON)
        .run()
}

fn expect_held(world: &World, kinds: &[&str]) {
    for kind in kinds {
        // It is ended long before, however busy the machine is.
        let held = take(world, kind, 200, 20);
        assert!(
            held.code() != 0 && !held.out().contains("took it"),
            "{kind}: {held}"
        );
        held.says(["memory"]);
        assert!(
            take(world, kind, 16, 2).success().out().contains("took it"),
            "{kind}"
        );
    }
}

#[test]
fn memory_of_every_kind_counts() {
    let world = World::new("memory_of_every_kind_counts");
    if has_python(&world) {
        expect_held(&world, &["private", "shared", "system-v"]);
    }
}

#[test]
fn files_in_memory_count() {
    let world = World::new("files_in_memory_count");
    if has_python(&world) {
        expect_held(&world, &["/dev/shm/file", "/tmp/file", "/var/tmp/file"]);
    }
}

#[test]
fn memory_that_is_mapped_nowhere_counts() {
    let world = World::new("memory_that_is_mapped_nowhere_counts");
    if has_python(&world) {
        expect_held(&world, &["memfd", "system-v-detached"]);
    }
}

#[test]
fn a_file_in_memory_that_is_mapped_counts_once() {
    let world = World::new("a_file_in_memory_that_is_mapped_counts_once");
    if !has_python(&world) {
        return;
    }
    let code = r#"
import mmap, os, time
file = os.open("/dev/shm/file", os.O_CREAT | os.O_RDWR)
os.ftruncate(file, 36 << 20)
kept = mmap.mmap(file, 36 << 20)
for at in range(0, 36 << 20, 4096): kept[at] = 1
time.sleep(2)
print("took it")
"#;
    let options = ["--discard", "--limit", "memory=64MiB"];
    let free = world.run(options, &python(code)).run().success();
    assert_eq!(free.out(), "took it\n");
}

// What must not hang.

#[test]
fn a_named_pipe_in_place_of_a_configuration_does_not_hang() {
    let world = World::new("a_named_pipe_in_place_of_a_configuration_does_not_hang");
    make_fifo(&world.path("atoll.toml"));
    let refused = world
        .run(NONE, "echo started")
        .within(SOON)
        .run()
        .expect_status(125);
    refused.is_clear_error(["atoll.toml", "regular file"]);
    assert_eq!(refused.out(), "");
    fs::remove_file(world.path("atoll.toml")).unwrap();

    let _ = world
        .run(["--live"], "mkfifo atoll.toml")
        .within(SOON)
        .run();
    let _ = fs::remove_file(world.path("atoll.toml"));

    let profiles = world.config().join("atoll/profiles");
    fs::create_dir_all(&profiles).unwrap();
    make_fifo(&profiles.join("piped.toml"));
    let refused = world
        .run(["--profile", "piped"], "echo started")
        .within(SOON)
        .run();
    refused.expect_status(125).is_clear_error(["piped"]);
    fs::remove_file(profiles.join("piped.toml")).unwrap();
    assert_eq!(
        world.run(NONE, "echo started").run().success().out(),
        "started\n"
    );
}

/// Checks that the time limit of one second ends a program that stops itself like this.
fn clock_goes_on(world: &World, stop: &str) {
    let options = ["--keep", "--timeout", "1s"];
    let mut terminal = world.run(options, stop).within(SOON).on_terminal(24, 80);
    let pid = terminal.pid();
    let ended = terminal.wait().expect_status(124);
    assert!(ended.out().contains("time limit"), "{stop}: {ended}");
    assert!(!e2e::is_alive(pid), "{stop}");
    let ended = world
        .run(options, stop)
        .within(SOON)
        .run()
        .expect_status(124);
    ended.says(["time limit"]);
}

#[test]
fn a_program_that_stops_itself_does_not_stop_the_clock() {
    let world = World::new("a_program_that_stops_itself_does_not_stop_the_clock");
    for stop in [
        "kill -STOP $$",
        "kill -STOP 0",
        "kill -STOP -1; kill -STOP $$",
    ] {
        clock_goes_on(&world, stop);
    }
}

/// Returns whether any process of a sandbox is left while its Atoll is stopped.
fn lives(pid: u32) -> bool {
    let all = descendants_of(pid);
    all.iter().any(|one| !matches!(one.state, 'Z' | 'X'))
}

#[test]
fn a_program_that_suspends_atoll_does_not_stop_the_clock() {
    let world = World::new("a_program_that_suspends_atoll_does_not_stop_the_clock");
    for stop in ["kill -TSTP 0; sleep 1000", "kill -TTIN $$", "kill -TTOU $$"] {
        let script = format!("echo ready; {stop}");
        let run = world
            .run(["--keep", "--timeout", "1s"], &script)
            .within(SOON);
        let mut terminal = run.on_terminal(24, 80);
        let pid = terminal.pid();
        terminal.expect("ready");
        // Atoll itself may be stopped, as by a person; the sandbox ends all the same.
        wait_until("the end of the sandbox", SOON, || {
            (!lives(pid)).then_some(())
        });
        e2e::kill(pid, Signal::CONT);
        let ended = terminal.wait().expect_status(124);
        assert!(ended.out().contains("time limit"), "{stop}: {ended}");
    }
}

#[test]
fn a_program_that_suspends_atoll_does_not_escape_its_disk_limit() {
    let world = World::new("a_program_that_suspends_atoll_does_not_escape_its_disk_limit");
    const WRITTEN: u64 = 64 << 20;
    // Slow enough for whoever watches the disk now and then.
    let script = "(setsid sh -c 'echo ready; sleep 1; for i in $(seq 64); do \
                  head -c 1M /dev/zero >> big; sleep 0.05; done; sleep 1000' &); \
                  read x; kill -TSTP $$; sleep 1000";
    let options = ["--keep", "--limit", "disk=8MiB", "--timeout", "60s"];
    let mut terminal = world.run(options, script).within(SOON).on_terminal(24, 80);
    let pid = terminal.pid();
    terminal.expect("ready");
    terminal.line("");
    let runs = world.state().join("atoll/runs");
    let written = || {
        let runs = fs::read_dir(&runs).into_iter().flatten().flatten();
        let big = runs.map(|run| run.path().join("layers/workspace/upper/big"));
        big.filter_map(|path| fs::metadata(path).ok())
            .map(|facts| facts.len())
            .sum::<u64>()
    };
    // It is stopped at its limit, or is done.
    wait_until("the end of the writing", SOON, || {
        (!lives(pid) || written() == WRITTEN).then_some(())
    });
    let held = written();
    e2e::kill(pid, Signal::CONT);
    let ended = terminal.wait();
    assert!(held < WRITTEN, "it wrote {held} bytes: {ended}");
    assert!(ended.out().contains("disk limit"), "{ended}");
}
