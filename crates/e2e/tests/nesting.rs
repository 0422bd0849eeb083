//! Sandboxes that a program makes beneath its own: the features that work, and that nothing of what
//! they permit leads to the host. Escapes are checked for outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::remains::facts_of_the_system;
use e2e::{Avoidable, Outcome, World, is_root, program_exists};

const LONG: Duration = Duration::from_secs(300);

/// The ordinary user with whom root's tests are repeated.
const OTHER: u32 = 61_234;

/// Runs a shell script with `atoll run --nesting`.
fn nested(world: &World, options: &[&str], script: &str) -> Outcome {
    world.write("inside.sh", script);
    world
        .atoll(["run", "--nesting", "--discard"])
        .args(options)
        .args(["--", "sh", "./inside.sh"])
        .within(LONG)
        .run()
}

/// Returns whether the program under test is installed; else the test is skipped.
fn has(world: &World, program: &str) -> bool {
    let is_there = program_exists(program);
    if !is_there {
        world.skip(&format!("{program} is not installed"), Avoidable::Yes);
    }
    is_there
}

#[test]
fn the_sandboxes_of_agents_work_inside() {
    let world = World::new("the_sandboxes_of_agents_work_inside");
    if !has(&world, "bwrap") {
        return;
    }
    // As codex and sandbox-runtime (claude) call it, and with all there is.
    let lines = [
        "--ro-bind / / --unshare-all --dev /dev --proc /proc",
        "--new-session --die-with-parent --ro-bind / / --dev /dev --bind $PWD $PWD --unshare-user \
         --unshare-pid --unshare-net --proc /proc",
        "--new-session --die-with-parent --unshare-net --dev /dev --bind $PWD $PWD --unshare-pid \
         --proc /proc --ro-bind /usr /usr --ro-bind /etc /etc --symlink usr/bin /bin \
         --symlink usr/lib /lib --symlink usr/lib64 /lib64 --tmpfs /tmp",
        "--ro-bind / / --unshare-all --hostname other --tmpfs /run --dev /dev --proc /proc \
         --cap-drop ALL --clearenv --setenv PATH /usr/bin:/bin",
    ];
    for (number, line) in lines.into_iter().enumerate() {
        // A user's own control groups may lie beneath the one that it is in.
        let line = match is_root() {
            true => line.to_owned(),
            false => line.replace(
                "--unshare-all",
                "--unshare-user --unshare-ipc --unshare-pid --unshare-net --unshare-uts",
            ),
        };
        // Whoever is user 0 is taken for root by bwrap, which asks for no users then.
        let front = match number {
            2 if is_root() => "unshare --user --map-user=1000 --map-group=1000",
            _ => "",
        };
        let script = format!(
            "{front} bwrap {line} sh -c 'test $$ -lt 5 && cat /proc/$$/comm && test ! -e /proc/999999 &&
                test -c /dev/null && ! touch /usr/owned 2>&-'"
        );
        let ended = nested(&world, &[], &script).success();
        assert_eq!(ended.out(), "sh\n", "{line}: {ended}");
        let without = world.run([""; 0], &script).run();
        assert_ne!(without.code(), 0, "{line}: {without}");
        without.says(["atoll run --nesting"]);
    }
}

const PAGE: &str = "<html><body><p id=x>old</p><script>
    document.getElementById('x').textContent = 'rendered ' + 6 * 7;
    </script></body></html>";

#[test]
fn a_browser_runs_in_its_own_sandbox_inside_slow() {
    let world = World::new("a_browser_runs_in_its_own_sandbox_inside_slow");
    if !has(&world, "chromium") {
        return;
    }
    world.write("page.html", PAGE);
    // It refuses to be root, whatever that is worth.
    let front = if is_root() {
        "unshare --user --map-user=1000 --map-group=1000"
    } else {
        ""
    };
    let browser = "chromium --headless --disable-gpu --dump-dom file://$PWD/page.html 2> said";
    let ended = nested(&world, &[], &format!("{front} {browser}")).success();
    assert!(ended.out().contains("rendered 42"), "{ended}");
    if !is_root() {
        let without = world
            .atoll([
                "run",
                "--discard",
                "--",
                "sh",
                "-c",
                &format!("{browser}; grep -o 'No usable sandbox' said; exit 1"),
            ])
            .within(LONG)
            .run();
        assert_eq!(without.out(), "No usable sandbox\n", "{without}");
        without.says(["chromium", "atoll run --nesting"]);
    }
}

#[test]
fn podman_runs_a_container_inside_slow() {
    let world = World::new("podman_runs_a_container_inside_slow");
    if !["podman", "crun", "busybox"]
        .iter()
        .all(|program| has(&world, program))
    {
        return;
    }
    let script = "set -e
        mkdir -p image/bin && cp \"$(command -v busybox)\" image/bin/ && ln -s busybox image/bin/sh
        tar -C image -cf image.tar .
        podman() { command podman --storage-driver=vfs --cgroup-manager=cgroupfs \"$@\" 2>> said; }
        podman import -q image.tar local/box > number
        podman run --rm --network=none --cgroups=disabled local/box /bin/sh -c \
            'echo in a container; busybox id -u; busybox ls /' < /dev/null";
    let ended = nested(&world, &["--root"], script).success();
    let expected = "in a container\n0\nbin\ndev\netc\nproc\nrun\nsys\n";
    assert_eq!(ended.out(), expected, "{ended}");
}

/// Returns settings of the machine, and its name.
fn settings() -> Vec<String> {
    let names = ["core_pattern", "hostname", "panic", "modprobe", "sysrq"];
    let read = |name| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    names.map(read).to_vec()
}

/// All namespaces at once, control groups too, or without those where the user has some.
const ALL: &str = "unshare --user --map-root-user --mount --pid --fork --ipc --uts --net";

#[test]
fn root_beneath_a_sandbox_has_no_right_over_the_host() {
    let world = World::new("root_beneath_a_sandbox_has_no_right_over_the_host");
    let (before, set) = (facts_of_the_system(), settings());
    let attack = include_str!("nesting/attack.sh");
    world.write("attack.sh", attack);
    world.write("canary", "as it was\n");
    for (options, more) in [
        (&[][..], "--mount-proc"),
        (&["--root"], ""),
        (&[], "--cgroup"),
    ] {
        if more == "--cgroup" && !is_root() {
            let refused = nested(&world, options, &format!("{ALL} {more} true"));
            assert_ne!(refused.code(), 0, "{refused}");
            continue;
        }
        let script = format!("echo changed > canary; {ALL} {more} sh ./attack.sh; echo end");
        let ended = nested(&world, options, &script).success();
        let expected = match options {
            // There the system is a layer, which is the run's own.
            ["--root"] => "THROUGH system-remounted: \nTHROUGH system-written: \nend\n",
            _ => "end\n",
        };
        assert_eq!(ended.out(), expected, "{options:?} {more}: {ended}");
        assert_eq!(facts_of_the_system(), before, "{options:?}");
        assert_eq!(settings(), set, "{options:?}");
        assert_eq!(world.read("canary"), "as it was\n");
    }
    // Without all of this the same gets through: it tries the right things.
    if is_root() {
        let outside = world
            .mount_shell("mkdir place; mount -t sysfs none place && echo through; umount place; test -r /proc/1/mem && echo through")
            .run();
        assert_eq!(outside.out(), "through\nthrough\n", "{outside}");
    }
}

#[test]
fn every_mount_of_a_sandbox_is_locked_beneath_it() {
    let world = World::new("every_mount_of_a_sandbox_is_locked_beneath_it");
    world.write("mounts.sh", include_str!("nesting/mounts.sh"));
    fs::create_dir_all(world.home().join("shown")).unwrap();
    world.profile("p", "home.layer = ['shown']\nhome.read = ['read']");
    fs::create_dir_all(world.home().join("read")).unwrap();
    for options in [&["--profile", "p"][..], &["--profile", "p", "--root"]] {
        let script = format!("{ALL} sh ./mounts.sh");
        let ended = nested(&world, options, &script);
        assert_eq!(ended.out(), "end\n", "{options:?}: {ended}");
    }
    // Whoever owns the tree takes it all apart.
    let outside = "mkdir -p a b && mount -t tmpfs none a && mount --bind b a && \
        mount -o remount,bind,ro,nosuid a && sh ./mounts.sh \"$PWD/a\"";
    let outside = world
        .mount_shell(outside)
        .env("SAID", world.path("said"))
        .run();
    for word in ["WRITABLE", "SET-ID", "GONE"] {
        assert!(outside.out().contains(word), "{word}: {outside}");
    }
}

#[test]
fn what_is_covered_stays_covered_beneath_a_sandbox() {
    let world = World::new("what_is_covered_stays_covered_beneath_a_sandbox");
    // For an ordinary user a directory with a mount in it is shown as a whole, and the
    // pipe in it is covered.
    let (user, back) = if is_root() {
        (
            format!("setpriv --reuid {OTHER} --regid {OTHER} --clear-groups"),
            true,
        )
    } else {
        (String::new(), false)
    };
    world.write(
        "inside.sh",
        "test -c /opt/pipe && echo covered
        unshare -Urm sh -c 'umount /opt/pipe; umount -l /opt/pipe; umount -l /opt; mount --move /opt/pipe /mnt
            mkdir -p /tmp/o; mount --bind /opt /tmp/o; echo heard > /tmp/o/pipe
            mount -t overlay -o lowerdir=/opt:/tmp none /tmp/o; echo heard > /tmp/o/pipe
            mount --rbind / /tmp/o; umount -l /tmp/o/opt/pipe; echo heard > /tmp/o/opt/pipe
            test -p /opt/pipe && echo heard > /opt/pipe' 2>&-
        echo end",
    );
    let own = if back {
        format!("chown -R {OTHER}:{OTHER} \"$0\"")
    } else {
        "true".to_owned()
    };
    let script = format!(
        "set -e
        mount -t tmpfs none /opt && mkdir /opt/inner && mount -t tmpfs none /opt/inner
        mkfifo -m 666 /opt/pipe
        timeout 60 cat /opt/pipe > \"$0/heard\" & reader=$!
        {own}
        {user} \"$ATOLL\" run --nesting --discard -- sh ./inside.sh
        cat \"$0/heard\"
        echo control > /opt/pipe; wait $reader; cat \"$0/heard\""
    );
    let ended = world
        .mount_shell(&script)
        .arg(world.top())
        .within(LONG)
        .run()
        .success();
    assert_eq!(ended.out(), "covered\nend\ncontrol\n", "{ended}");
}

#[test]
fn namespaces_beneath_a_sandbox_are_limited() {
    let world = World::new("namespaces_beneath_a_sandbox_are_limited");
    let script = "for one in $(seq 140); do unshare --user sleep 30 2>> said & done
        for wait in $(seq 100); do test \"$(grep -c 'No space' said)\" -ge 12 && break; sleep 0.1; done
        echo refused $(grep -c 'No space' said)
        kill $(pidof sleep)";
    let ended = nested(&world, &[], script);
    assert_eq!(ended.out(), "refused 12\n", "{ended}");
}

#[test]
fn memory_in_mounts_beneath_a_sandbox_counts() {
    let world = World::new("memory_in_mounts_beneath_a_sandbox_counts");
    for kind in ["tmpfs", "ramfs"] {
        let fill = format!(
            "unshare -Urm sh -c 'mkdir /tmp/m; mount -t {kind} none /tmp/m;
                for one in $(seq 60); do head -c 10M /dev/zero > /tmp/m/$one || exit; sleep 0.02; done; sleep 60; echo full'"
        );
        let ended = nested(&world, &["--limit", "memory=200MiB"], &fill);
        assert_eq!(ended.out(), "", "{kind}: {ended}");
        ended.says(["memory"]);
    }
}

#[test]
fn where_nesting_does_not_go() {
    let world = World::new("where_nesting_does_not_go");
    world.profile("listed", "programs.execute = ['/usr/bin/true']");
    world.profile("nested", "system.nesting = true");
    for (options, words) in [
        (
            &["--profile", "strict", "--nesting"][..],
            "namespaces of its own",
        ),
        (&["--profile", "listed", "--nesting"], "list of programs"),
        (&["--profile", "nested", "--live"], "live workspace"),
    ] {
        let ended = world.run(options, "true").run().expect_status(126);
        ended.is_clear_error(["nested sandboxes", words, "try:"]);
    }
    if !is_root() {
        let fenced = world.run(["--nesting"], "true").without_namespaces().run();
        fenced
            .expect_status(126)
            .is_clear_error(["nested sandboxes", "no namespaces", "try:"]);
    }
    // A project's file can forbid it, and cannot ask for it.
    world.write("atoll.toml", "[syscalls]\ndeny-nesting = true\n");
    e2e::fine(&world, &["trust"]);
    let ended = world.run(["--nesting"], "true").run().expect_status(126);
    ended.is_clear_error(["nested sandboxes", "atoll.toml"]);
    world.write("atoll.toml", "[system]\nnesting = true\n");
    let ended = world.atoll(["trust"]).run();
    assert_ne!(ended.code(), 0, "{ended}");
}

#[test]
fn nesting_is_told_wherever_a_run_is() {
    let world = World::new("nesting_is_told_wherever_a_run_is");
    let written = |options: &[&str]| {
        let run = world.run(options, "true");
        let ended = run.run().success();
        let text = world.read(world.top().join("result.json"));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        (ended, json)
    };
    let file = world.top().join("result.json");
    let file = file.to_str().unwrap();
    let (ended, json) = written(&["--nesting", "--keep", "--json", file]);
    ended.says(["namespaces and mounts of its own", "unheard"]);
    assert_eq!(json["nesting"], true, "{ended}");
    let unseen = |json: &serde_json::Value| {
        let names = json["denials-not-seen"].as_array().unwrap().clone();
        names.contains(&"attempts".into())
    };
    assert!(unseen(&json), "{json}");
    let why = e2e::fine(&world, &["why", "last"]);
    for words in ["(nesting)", "attempts to get out"] {
        assert!(why.out().contains(words), "{words}: {why}");
    }
    assert!(unseen(
        &e2e::fine(&world, &["why", "last", "--json"]).json()
    ));
    let (ended, json) = written(&["--json", file]);
    assert_eq!(json["nesting"], false, "{ended}");
    assert!(!unseen(&json), "{json}");
    let shown = e2e::fine(&world, &["profile", "show", "strict"]);
    assert!(shown.out().contains("deny-nesting = true"), "{shown}");
}

/// Container managers answer calls of their containers by a listener, of which a process can have
/// one (seccomp_unotify(2)).
#[test]
fn a_program_supervises_calls_by_a_listener_of_its_own() {
    let world = World::new("a_program_supervises_calls_by_a_listener_of_its_own");
    if !has(&world, "cc") {
        return;
    }
    let _ = world
        .host("cc")
        .args(["-O1", "-static", "-x", "c", "-", "-o"])
        .arg(world.path("supervisor"))
        .stdin(include_str!("nesting/supervisor.c"))
        .run()
        .success();
    let script = "./supervisor; ls -d made-by-the-supervisor never-made 2>&-; true";
    let ended = nested(&world, &[], script).success();
    // It is not asked for what Atoll refuses, so that it can let none of that go on.
    let expected = "listener: done\nmkdirat: done\ngetppid: done\n\
        add_key: Operation not permitted\nbpf: Operation not permitted\n\
        asked for mkdirat: 1\nasked for getppid: 1\nasked for add_key: 0\nasked for bpf: 0\n\
        made-by-the-supervisor\n";
    assert_eq!(ended.out(), expected, "{ended}");
    let without = world.run(["--discard"], script).run().success();
    let refused = "listener: Device or resource busy\n";
    assert_eq!(without.out(), refused, "{without}");
    // Outside it is asked for all of them.
    let outside = world.host_shell("./supervisor").run().success();
    for name in ["add_key", "bpf"] {
        assert!(
            outside.out().contains(&format!("asked for {name}: 1\n")),
            "{outside}"
        );
    }
}

/// A queue is a file that no rule of Landlock can name, as it lies in no tree.
#[test]
fn queues_need_nesting_and_semaphores_do_not() {
    let world = World::new("queues_need_nesting_and_semaphores_do_not");
    if !has(&world, "cc") {
        return;
    }
    let program = "#include <errno.h>\n#include <fcntl.h>\n#include <mqueue.h>\n\
        #include <semaphore.h>\n#include <stdio.h>\n#include <string.h>\n#include <sys/mman.h>\n\
        int main(void) {
            struct mq_attr small = {.mq_maxmsg = 4, .mq_msgsize = 8};
            mqd_t queue = mq_open(\"/queue\", O_CREAT | O_RDWR, 0600, &small);
            printf(\"queue: %s\\n\", queue < 0 ? strerror(errno) : \"open\");
            char heard[8] = \"\";
            if (queue >= 0 && !mq_send(queue, \"said\", 5, 0) && mq_receive(queue, heard, 8, 0) > 0) puts(heard);
            printf(\"semaphore: %s\\n\", sem_open(\"/s\", O_CREAT, 0600, 1) == SEM_FAILED ? strerror(errno) : \"open\");
            printf(\"memory: %s\\n\", shm_open(\"/m\", O_CREAT | O_RDWR, 0600) < 0 ? strerror(errno) : \"open\");
            return 0;
        }";
    let _ = world
        .host("cc")
        .args(["-x", "c", "-", "-o"])
        .arg(world.path("ipc"))
        .stdin(program)
        .run()
        .success();
    let with = nested(&world, &[], "./ipc").success();
    let rest = "semaphore: open\nmemory: open\n";
    assert_eq!(with.out(), format!("queue: open\nsaid\n{rest}"), "{with}");
    let without = world.run(["--discard"], "./ipc").run().success();
    let refused = format!("queue: Permission denied\n{rest}");
    assert_eq!(without.out(), refused, "{without}");
}

/// A control group of version 2 for a user, with a process of its own to see by.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mut mounts = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let top = mounts.find(|mount| mount.get(2) == Some(&"cgroup2"))?;
        let path = Path::new(top[1]).join(format!("atoll-nesting-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        Some(Self(path))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        for _ in 0..100 {
            let _ = fs::remove_dir(self.0.join("own"));
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_users_own_control_groups_are_out_of_reach_beneath_a_sandbox() {
    let name = "a_users_own_control_groups_are_out_of_reach_beneath_a_sandbox";
    let world = World::new(name);
    if !is_root() {
        world.skip("only root gives a control group away", Avoidable::No);
        return;
    }
    let Some(group) = Group::new() else {
        world.skip("no control groups of version 2 can be made", Avoidable::No);
        return;
    };
    let attack = "unshare -UrmC sh -c 'mkdir -p /tmp/groups; mount -t cgroup2 none /tmp/groups &&
        mkdir /tmp/groups/own; echo $$ > /tmp/groups/own/cgroup.procs
        unshare -C sh -c \"echo 1 > /tmp/groups/cgroup.kill\"' 2>&1; echo end";
    world.write("inside.sh", attack);
    let script = format!(
        "set -e
        chown -R {OTHER}:{OTHER} \"$0\" {top}
        echo $$ > \"$0/cgroup.procs\"
        sleep 300 & canary=$!
        setpriv --reuid {OTHER} --regid {OTHER} --clear-groups \"$ATOLL\" run --nesting --discard -- sh ./inside.sh > {top}/said
        grep -c 'No space left' {top}/said
        kill -0 $canary && echo alive
        setpriv --reuid {OTHER} --regid {OTHER} --clear-groups sh ./inside.sh",
        top = world.top().display()
    );
    let ended = world.host_shell(&script).arg(&group.0).within(LONG).run();
    // At the end the same without a sandbox: it ends all that is in the group.
    assert!(ended.out().starts_with("1\nalive\n"), "{ended}");
    assert!(!ended.out().contains("end"), "{ended}");
}
