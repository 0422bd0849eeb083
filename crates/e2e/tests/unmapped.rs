//! Root where no user namespace can be made: the restrictions on a program there, and the
//! differences from other hosts.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;

use e2e::remains::{groups, mounts, recorded_runs};
use e2e::{Avoidable, Invocation, World, descendants_of, is_root, status_field, wait_until};

/// The user ids that Atoll has for programs.
const USERS: std::ops::Range<u32> = 1_879_048_192..2_147_483_647;

const NONE: [PathBuf; 0] = [];

/// Returns a world for root, and the program where no user namespace can be made.
fn unmapped(name: &str) -> Option<(World, PathBuf)> {
    let world = World::new(name);
    if !is_root() {
        world.skip("an ordinary user is fenced in", Avoidable::No);
        return None;
    }
    let program = PathBuf::from(std::env::var_os("ATOLL_BIN").unwrap());
    let program = world.without_user_namespaces(&program);
    let shell = world.host(&program).args(["run", "--", "true"]).run();
    assert!(shell.success().err().contains("no user namespace"));
    Some((world, program))
}

fn run(world: &World, program: &PathBuf, options: &[&str], script: &str) -> Invocation {
    let atoll = world.host(program).arg("run").args(options);
    atoll.args(["--", "sh", "-c", script])
}

#[test]
fn without_user_namespaces_a_program_of_root_is_a_user_without_rights() {
    let name = "without_user_namespaces_a_program_of_root_is_a_user_without_rights";
    let Some((world, program)) = unmapped(name) else {
        return;
    };
    let script = "for n in cgroup ipc mnt net pid uts; do readlink /proc/self/ns/$n; done; \
                  echo; id -u; id -g; id -G; \
                  for p in /etc/shadow /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do \
                  head -c 1 $p >/dev/null 2>&1 && test -s $p && echo read $p; \
                  echo x 2>/dev/null >$p && echo wrote $p; done; \
                  for n in user mnt net pid; do unshare --$n true 2>/dev/null && echo $n; done; \
                  grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status; \
                  sleep 1000 & echo ready; wait";
    let running = run(&world, &program, &[], script).start();
    let seen = running.until_stdout("ready");
    let (namespaces, rest) = seen.split_once("\n\n").unwrap();
    let script = "for n in cgroup ipc mnt net pid uts; do readlink /proc/self/ns/$n; done";
    let outside = world.host_shell(script).run().success().out();
    assert_eq!(namespaces.lines().count(), 6);
    for (inner, outer) in namespaces.lines().zip(outside.lines()) {
        assert_ne!(inner, outer);
    }
    let lines: Vec<&str> = rest.lines().collect();
    let user: u32 = lines[0].parse().unwrap();
    assert!(USERS.contains(&user), "{rest}");
    assert_eq!(&lines[..3], [lines[0]; 3]);
    // Nothing was read, written or made in between.
    for (at, name) in ["Inh", "Prm", "Eff", "Bnd", "Amb"].iter().enumerate() {
        assert_eq!(lines[3 + at], format!("Cap{name}:\t0000000000000000"));
    }
    assert_eq!(&lines[8..10], ["NoNewPrivs:\t1", "Seccomp:\t2"], "{rest}");
    // To the kernel nobody of the sandbox is root, and whoever waits for its end only
    // removes what it has made.
    for one in wait_until("the program", e2e::BOUND, || {
        let all = descendants_of(running.pid());
        all.iter().any(|one| one.name == "sleep").then_some(all)
    }) {
        let users = status_field(one.pid, "Uid").unwrap();
        assert_eq!(users, [lines[0]; 4].join("\t"), "{one:?}");
        let rights = status_field(one.pid, "CapPrm").unwrap();
        let expected = if one.name == "atoll-jail" { 2 } else { 0 };
        assert_eq!(rights, format!("{expected:016x}"), "{one:?}");
    }
    running.signal(rustix::process::Signal::TERM);
    let _ = running.wait();
}

#[test]
fn without_user_namespaces_changes_are_taken_over_and_back_with_their_owners() {
    let name = "without_user_namespaces_changes_are_taken_over_and_back_with_their_owners";
    let Some((world, program)) = unmapped(name) else {
        return;
    };
    world.write("file", "before\n");
    world.write("of-another", "another's\n");
    world.write("gone", "gone\n");
    world.write("dir/in", "in\n");
    world.write("closed", "closed\n");
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(world.path("closed"), private).unwrap();
    chown(world.path("of-another"), Some(1234), Some(2345)).unwrap();
    let script = "cat closed; echo after >> file; rm gone; mv dir moved; echo new > new; \
                  echo x >> of-another || echo refused";
    let seen = run(&world, &program, &["--keep"], script).run().success();
    assert_eq!(seen.out(), "closed\nrefused\n", "{seen}");
    seen.says(["no user namespace", "works on a copy", "atoll doctor"]);
    assert_eq!(seen.err().matches("warning").count(), 1, "{seen}");
    assert_eq!(world.read("file"), "before\n");
    let atoll = |words: &[&str]| world.host(&program).args(words).run().success();
    let diff = atoll(&["diff", "last", "--stat"]).out();
    for change in ["M file", "D gone", "A new", "moved"] {
        assert!(diff.contains(change), "{diff}");
    }
    let _ = atoll(&["apply", "last"]);
    assert_eq!(world.read("file"), "before\nafter\n");
    for path in ["file", "new", "moved", "moved/in"] {
        let facts = fs::metadata(world.path(path)).unwrap();
        assert_eq!((facts.uid(), facts.gid()), (0, 0), "{path}");
    }
    let facts = fs::metadata(world.path("of-another")).unwrap();
    assert_eq!((facts.uid(), facts.gid()), (1234, 2345));
    let _ = atoll(&["undo", "last"]);
    assert_eq!(world.read("file"), "before\n");
    assert_eq!(world.read("gone"), "gone\n");
    assert!(!world.exists("new") && world.exists("dir/in"));
    // A run goes on in the copy of another.
    let _ = run(&world, &program, &["--keep"], "echo 1 > number").run();
    let script = "echo 2 >> number";
    let _ = run(&world, &program, &["--keep", "--resume", "last"], script)
        .run()
        .success();
    let _ = atoll(&["apply", "last"]);
    assert_eq!(world.read("number"), "1\n2\n");
}

#[test]
fn without_user_namespaces_that_is_recorded_and_what_needs_one_is_refused() {
    let name = "without_user_namespaces_that_is_recorded_and_what_needs_one_is_refused";
    let Some((world, program)) = unmapped(name) else {
        return;
    };
    // Nothing that the strict profile promises is missing.
    let strict = ["--profile", "strict", "--json", "-"];
    let seen = run(&world, &program, &strict, "echo started").run();
    let seen = seen.success();
    assert_eq!(seen.out(), "started\n");
    let told: String = seen.err().split_whitespace().collect();
    let row = "\"by\":\"none\",\"limit\":\"user-namespace\"";
    assert!(told.contains(row) && told.contains("\"mode\":\"full\""));
    let story = world.host(&program).args(["why", "--json"]).run().success();
    let story: String = story.out().split_whitespace().collect();
    assert!(story.contains("\"user-namespace\":\"none\""), "{story}");
    for option in ["--live", "--root"] {
        let refused = run(&world, &program, &[option], "touch made").run();
        refused.is_clear_error(["no user namespace can be made", option]);
        assert_eq!(refused.code(), 125, "{refused}");
        assert!(!world.exists("made"));
    }
    assert_eq!(groups(&recorded_runs(&world.state())), NONE);
    assert_eq!(mounts(world.top()).len(), 0);
}
