//! Root in a sandbox: its abilities with a system of its own, and that it can do nothing to the
//! host's. As host root, as an ordinary user with further ids, and as one without.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::remains::facts_of_the_system;
use e2e::{
    Avoidable, BOUND, Invocation, World, descendants_of, is_root, program_exists, status_field,
    tree, wait_until,
};
use rustix::process::Signal;

/// The user with further ids, who has an account in a mount namespace alone.
const RANGER: u32 = 61_234;
/// The first of its further ids.
const FIRST: u32 = 300_000;
/// Preparing the layers of an ordinary user takes its time on a cold disk.
const LONG: Duration = Duration::from_secs(300);

/// The user who starts Atoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The user who runs the tests: root, or a user without further ids.
    Oneself,
    /// A user who has further ids.
    Ranger,
}

/// Returns those that the tests' own user can be.
fn everybody() -> Vec<Who> {
    if is_root() && program_exists("newuidmap") {
        vec![Who::Oneself, Who::Ranger]
    } else {
        vec![Who::Oneself]
    }
}

/// Returns a host script of this user, in which `$ATOLL` is the program.
fn shell(world: &World, who: Who, script: &str) -> Invocation {
    if who == Who::Oneself {
        return world.host_shell(script).within(LONG);
    }
    as_ranger(
        world,
        &format!("chown -R {RANGER}:{RANGER} {}", world.top().display()),
    )
    .arg(script)
}

/// Returns a host script of the user with further ids, given as an argument, after this one of
/// root.
fn as_ranger(world: &World, before: &str) -> Invocation {
    let top = world.top().display();
    let prepare = format!(
        "set -e
        (cat /etc/passwd; echo atoll-ranger:x:{RANGER}:{RANGER}::/nonexistent:/bin/sh) > {top}/passwd
        echo atoll-ranger:{FIRST}:65536 > {top}/subids
        chmod 644 {top}/passwd {top}/subids
        mount --bind {top}/passwd /etc/passwd
        test -e /etc/subuid && test -e /etc/subgid
        mount --bind {top}/subids /etc/subuid
        mount --bind {top}/subids /etc/subgid
        {before}
        exec setpriv --reuid {RANGER} --regid {RANGER} --clear-groups sh -c \"$0\""
    );
    world.mount_shell(&prepare).within(LONG)
}

/// Returns `atoll run --root` with a shell script.
fn inside(world: &World, who: Who, options: &str, script: &str) -> Invocation {
    world.write("inside.sh", script);
    let run = format!("exec \"$ATOLL\" run --root {options} -- sh ./inside.sh");
    shell(world, who, &run)
}

/// Returns a world for a user who can give files to other users of a sandbox.
fn world_with_owners(name: &str) -> Option<World> {
    let world = World::new(name);
    if !is_root() {
        world.skip("this user has no further ids", Avoidable::No);
        return None;
    }
    Some(world)
}

#[test]
fn package_managers_and_other_users_work_as_root_inside() {
    let name = "package_managers_and_other_users_work_as_root_inside";
    let Some(world) = world_with_owners(name) else {
        return;
    };
    if !program_exists("apt-get") {
        world.skip("this system has no apt-get", Avoidable::No);
        return;
    }
    for who in everybody() {
        let work = include_str!("rootlike/work.sh");
        let ended = inside(&world, who, "--discard", work).run().success();
        let expected = "hello of a package\n\
             purged\n\
             hello-atoll:hello-atoll /etc/hello-atoll\n\
             root:root /usr/bin/hello-atoll\n\
             Status: install ok installed\n\
             somebody\n\
             somebody\n\
             33:1234\n\
             7:8\n\
             33\n\
             CapEff:\t0000000000000000\n\
             nobody\n";
        assert_eq!(ended.out(), expected, "{who:?}: {ended}");
        for path in ["/usr/bin/hello-atoll", "/etc/hello-atoll"] {
            assert!(!Path::new(path).exists(), "{path}");
        }
        assert!(
            !fs::read_to_string("/etc/passwd")
                .unwrap()
                .contains("somebody")
        );
    }
}

/// A wheel made by hand, of nothing but a module that can be run.
const WHEEL: &str = "
    set -e
    mkdir -p wheel/atoll_hello wheel/atoll_hello-1.0.dist-info
    cd wheel
    echo 'print(\"hello of a wheel\")' > atoll_hello/__main__.py
    : > atoll_hello/__init__.py
    cd atoll_hello-1.0.dist-info
    printf 'Metadata-Version: 2.1\\nName: atoll-hello\\nVersion: 1.0\\n' > METADATA
    printf 'Wheel-Version: 1.0\\nGenerator: hand\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n' > WHEEL
    printf 'atoll_hello/__init__.py,,\\natoll_hello/__main__.py,,\\n' > RECORD
    cd ..
    /usr/bin/python3 -c 'import shutil; shutil.make_archive(\"../wheel\", \"zip\", \".\")'
    cd ..
    mv wheel.zip atoll_hello-1.0-py3-none-any.whl
    export PIP_BREAK_SYSTEM_PACKAGES=1
    /usr/bin/python3 -m pip install --quiet --no-index ./atoll_hello-1.0-py3-none-any.whl 2> log
    cd /
    /usr/bin/python3 -m atoll_hello";

#[test]
fn pip_installs_into_the_system_as_root_inside() {
    let world = World::new("pip_installs_into_the_system_as_root_inside");
    let pip = world
        .host("/usr/bin/python3")
        .args(["-m", "pip", "--version"]);
    if !Path::new("/usr/bin/python3").exists() || pip.run().code() != 0 {
        world.skip("the system's python3 has no pip", Avoidable::No);
        return;
    }
    for who in everybody() {
        let ended = inside(&world, who, "--discard", WHEEL).run().success();
        assert_eq!(ended.out(), "hello of a wheel\n", "{who:?}: {ended}");
    }
}

/// Returns the path of PostgreSQL's programs.
fn postgres() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut programs = versions.flatten().map(|one| one.path().join("bin/initdb"));
    programs.find(|path| path.exists())
}

#[test]
fn a_database_is_made_by_its_own_user_as_root_inside() {
    let name = "a_database_is_made_by_its_own_user_as_root_inside";
    let Some(world) = world_with_owners(name) else {
        return;
    };
    let Some(initdb) = postgres() else {
        world.skip("PostgreSQL is not installed", Avoidable::Yes);
        return;
    };
    let script = format!(
        "useradd -r data && mkdir /var/lib/data && chown data /var/lib/data &&
        su -s /bin/sh data -c '{} -A trust -D /var/lib/data/db > /dev/null && \
        stat -c %U /var/lib/data/db'",
        initdb.display()
    );
    for who in everybody() {
        let ended = inside(&world, who, "--discard", &script).run().success();
        assert_eq!(ended.out(), "data\n", "{who:?}: {ended}");
    }
}

#[test]
fn a_user_without_further_ids_is_root_alone_inside() {
    let world = World::new("a_user_without_further_ids_is_root_alone_inside");
    if is_root() {
        world.skip("root has ids enough", Avoidable::No);
        return;
    }
    let script = "id -u; touch /etc/own /usr/bin/own && stat -c %u:%g /etc/own
        echo 'x:x:77:77::/:/bin/sh' >> /etc/passwd && id -u x
        chown 33 /etc/own 2> said || echo refused
        rm /usr/bin/env && test ! -e /usr/bin/env && echo removed
        chmod 700 /usr/bin/tr 2> said || echo not changed";
    let ended = inside(&world, Who::Oneself, "--discard", script).run();
    let expected = "0\n0:0\n77\nrefused\nremoved\nnot changed\n";
    assert_eq!(ended.out(), expected, "{ended}");
    ended.says(["/etc/subuid", "newuidmap"]);
    assert!(Path::new("/usr/bin/env").exists());
}

/// Collects the host's files beneath a directory that not everybody may read.
fn secrets(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(facts) = entry.path().symlink_metadata() else {
            continue;
        };
        if facts.is_dir() {
            secrets(&entry.path(), found);
        } else if facts.is_file() && facts.len() > 0 {
            let above = entry.path();
            let mut modes = above
                .ancestors()
                .skip(1)
                .filter_map(|one| one.metadata().ok());
            let hidden = modes.any(|facts| facts.mode() & 0o001 == 0);
            if hidden || facts.mode() & 0o004 == 0 {
                found.push(entry.path());
            }
        }
    }
}

#[test]
fn root_inside_reads_no_secret_of_the_host() {
    let world = World::new("root_inside_reads_no_secret_of_the_host");
    let mut all = Vec::new();
    for top in [
        "/etc",
        "/opt",
        "/usr/local",
        "/var/lib/dpkg",
        "/var/cache/debconf",
    ] {
        secrets(Path::new(top), &mut all);
    }
    all.push("/etc/shadow".into());
    all.push("/etc/gshadow".into());
    let names: Vec<String> = all.iter().map(|path| path.display().to_string()).collect();
    world.write("secrets", names.join("\n") + "\n");
    let script = "while read -r path; do
            test -s \"$path\" && cat \"$path\" > /dev/null && echo \"READ $path\"
        done < secrets
        cut -d: -f2 /etc/shadow | sort -u
        ls -A /root";
    for who in everybody() {
        let ended = inside(&world, who, "--discard", script).run().success();
        // These two are Atoll's own, where every account is locked.
        let synthetic = [
            "READ /etc/shadow",
            "READ /etc/gshadow",
            "READ /etc/sudoers",
            "*",
        ];
        let said = ended.out();
        for line in said.lines() {
            assert!(synthetic.contains(&line), "{who:?}: {line}");
        }
        assert!(said.contains("READ /etc/shadow\n"), "{who:?}: {ended}");
        assert!(said.ends_with("*\n"), "{who:?}: {ended}");
    }
}

#[test]
fn root_inside_has_no_right_over_the_host() {
    let world = World::new("root_inside_has_no_right_over_the_host");
    let before = facts_of_the_system();
    for who in everybody() {
        let attack = include_str!("rootlike/attack.sh");
        let script = format!("{attack}\necho end");
        let ended = inside(&world, who, "--discard", &script).run().success();
        assert_eq!(ended.out(), "end\n", "{who:?}: {ended}");
        let script = "rm -rf /etc/* /opt/* 2> /dev/null; echo gone > /etc/passwd
            rm -rf /usr/share/doc; echo x > /usr/bin/owned; chmod 777 /etc; test ! -e /etc/group && echo gone";
        let ended = inside(&world, who, "--discard", script).run().success();
        assert_eq!(ended.out(), "gone\n", "{who:?}: {ended}");
        assert_eq!(facts_of_the_system(), before, "{who:?}");
    }
}

/// Home, state and workspace lie in a directory that root in the sandbox has as its own.
#[test]
fn root_inside_works_where_a_home_is_below_var() {
    let world = World::new("root_inside_works_where_a_home_is_below_var");
    let script = "place=$(mktemp -d -p /var/tmp atoll-e2e-XXXXXX); mkdir $place/home $place/workspace
        echo of the host > $place/workspace/file; echo secret > $place/home/secret; cd $place/workspace
        export HOME=$place/home; unset XDG_STATE_HOME XDG_CONFIG_HOME XDG_DATA_HOME
        $ATOLL run --root --keep -- sh -c 'cat file; cat ~/secret; echo made > ~/made; cat ~/made
            echo of the run > file; test \"$PWD\" = \"${HOME%/home}/workspace\" && echo here'
        ls ../home; cat file; $ATOLL diff last; cd /; rm -rf $place";
    let ended = shell(&world, Who::Oneself, script).run().success();
    let out = ended.out();
    assert!(
        out.starts_with("of the host\nmade\nhere\nsecret\nof the host\n"),
        "{ended}"
    );
    assert!(out.contains("+of the run"), "{ended}");
}

#[test]
fn root_inside_is_nobody_to_the_kernel_and_set_id_gains_nothing() {
    let name = "root_inside_is_nobody_to_the_kernel_and_set_id_gains_nothing";
    let Some(world) = world_with_owners(name) else {
        return;
    };
    for who in everybody() {
        let script = "cp /usr/bin/id /usr/local/bin/own-id && chmod 4755 /usr/local/bin/own-id
            setpriv --reuid 33 --regid 33 --clear-groups /usr/local/bin/own-id -u
            grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status
            setpriv --reuid 33 --regid 33 --clear-groups sleep 1000 & sleep 1000 & echo ready; wait";
        let running = inside(&world, who, "--discard", script).start();
        running.until_stdout("ready");
        let sleeping = || -> Vec<e2e::Process> {
            let all = descendants_of(running.pid()).into_iter();
            all.filter(|one| one.name == "sleep").collect()
        };
        wait_until("both sleep", BOUND, || {
            (sleeping().len() == 2).then_some(())
        });
        for one in sleeping() {
            for field in ["Uid", "Gid"] {
                let numbers = status_field(one.pid, field).unwrap();
                let mut numbers = numbers.split_whitespace();
                assert!(
                    numbers.all(|number| number != "0"),
                    "{who:?}: {one:?} {field}"
                );
            }
        }
        running.signal(Signal::TERM);
        let ended = running.wait();
        let rights = "CapEff:\t00000000000000fb\nCapBnd:\t00000000000000fb\nNoNewPrivs:\t1\n";
        assert!(
            ended.out().contains(&format!("33\n{rights}")),
            "{who:?}: {ended}"
        );
    }
}

#[test]
fn root_inside_is_refused_where_it_would_not_be_held() {
    let world = World::new("root_inside_is_refused_where_it_would_not_be_held");
    world.profile("rooted", "[system]\nroot = true\n");
    let live = "workspace = \"live\"\n[system]\nroot = true\n";
    world.profile("live-root", live);
    let refused = |options: &[&str], words: [&str; 2]| {
        world
            .run(options, "true")
            .run()
            .expect_status(126)
            .says(words);
    };
    refused(
        &["--profile", "live-root"],
        ["root inside", "live workspace"],
    );
    let both = world.run(["--root", "--live"], "true").run();
    both.expect_status(125).says(["--root", "--live"]);
    if !is_root() {
        let fenced = world.run(["--root"], "true").without_namespaces().run();
        fenced
            .expect_status(126)
            .says(["root inside", "without namespaces"]);
    }
    // A project's file has no say in it, trusted or not.
    world.write("atoll.toml", "[system]\nroot = true\n");
    let _ = world.atoll(["trust", "--yes"]).run();
    let ended = world.run(["--discard"], "touch /etc/own").run();
    assert_ne!(ended.code(), 0, "{ended}");
    fs::remove_file(world.path("atoll.toml")).unwrap();
    // Said, recorded, and shown.
    let told = world
        .run(["--profile", "rooted", "--discard", "--json", "-"], "id -u")
        .within(LONG);
    let told = told.run().success();
    assert_eq!(told.out(), "0\n");
    told.says(["root inside", "\"root\": true"]);
    let shown = world.atoll(["profile", "show", "rooted"]).run().success();
    assert!(shown.out().contains("root = true"), "{shown}");
    let ledger = world.atoll(["ledger", "show", "--json"]).run().success();
    assert!(ledger.out().contains("\"root\":true"), "{ledger}");
}

/// Makes files of other users wherever a program can write.
const OWNERS: &str = "echo mine > new; mkdir -m 700 closed deep; echo theirs > closed/file
    chown -R 33:44 closed new; chown 55 deep; mkdir -m 700 /etc/closed; chown 66 /etc/closed
    touch /etc/closed/file; mkdir -p -m 700 /var/lib/closed/again; chown -R 77 /var/lib/closed
    chown 88 /usr /etc; chmod 000 closed\n";

/// Returns the remains of runs in the state directory.
fn left(world: &World) -> Vec<PathBuf> {
    let below = |name: &str| fs::read_dir(world.state().join("atoll").join(name));
    let all = ["scratch", "runs", "ids"].into_iter().map(below);
    all.flatten()
        .flatten()
        .flatten()
        .map(|one| one.path())
        .collect()
}

#[test]
fn what_root_inside_wrote_is_looked_at_and_removed() {
    let name = "what_root_inside_wrote_is_looked_at_and_removed";
    let Some(world) = world_with_owners(name) else {
        return;
    };
    for who in everybody() {
        let _ = inside(&world, who, "--discard", OWNERS).run().success();
        assert_eq!(left(&world), Vec::<PathBuf>::new(), "{who:?}");
        let _ = inside(&world, who, "--keep", OWNERS).run().success();
        let seen = shell(&world, who, "\"$ATOLL\" diff last").run().success();
        match who {
            // What root has given away is nobody's that the workspace knows.
            Who::Oneself => drop(seen.says(["refused: new: foreign owner"])),
            // The further ids are the user's.
            Who::Ranger => assert!(seen.out().contains("+mine"), "{seen}"),
        }
        assert!(!seen.out().contains("etc/closed"), "{who:?}: {seen}");
        let _ = shell(&world, who, "\"$ATOLL\" discard last")
            .run()
            .success();
        assert_eq!(left(&world), Vec::<PathBuf>::new(), "{who:?}");
    }
}

#[test]
fn a_killed_run_of_root_inside_leaves_nothing() {
    let Some(world) = world_with_owners("a_killed_run_of_root_inside_leaves_nothing") else {
        return;
    };
    for who in everybody() {
        for options in ["--discard", "--keep"] {
            let script = format!("{OWNERS}\necho written; sleep 1000");
            let running = inside(&world, who, options, &script).start();
            running.until_stdout("written");
            let processes = descendants_of(running.pid());
            running.signal(Signal::KILL);
            let _ = running.wait();
            wait_until("the sandbox ends", BOUND, || {
                let mut processes = processes.iter();
                processes.all(|one| !e2e::is_alive(one.pid)).then_some(())
            });
            let clear = "\"$ATOLL\" discard last || true; \"$ATOLL\" run --discard -- true";
            let cleared = shell(&world, who, clear).run().success();
            assert_eq!(
                left(&world),
                Vec::<PathBuf>::new(),
                "{who:?} {options}: {cleared}"
            );
        }
    }
}

/// Memory of other users in the sandbox counts, though nobody of the sandbox may look at it.
#[test]
fn memory_of_other_users_inside_counts() {
    let Some(world) = world_with_owners("memory_of_other_users_inside_counts") else {
        return;
    };
    if !program_exists("python3") {
        world.skip("there is no python3", Avoidable::Yes);
        return;
    }
    for who in everybody() {
        for (mib, is_held) in [(200, true), (16, false)] {
            // What is held is ended long before, however busy the machine is.
            let stays_s = if is_held { 60 } else { 3 };
            let script = format!(
                "/usr/bin/python3 -c '
import os, time
os.setgid(33)
os.setuid(33)
file = os.memfd_create(\"memory\")
for at in range({mib}): os.write(file, b\"x\" * (1 << 20))
time.sleep({stays_s})
print(\"took it\")'"
            );
            let options = "--discard --limit memory=64MiB";
            let ended = inside(&world, who, options, &script).run();
            let took = ended.out().contains("took it");
            assert_eq!(took, !is_held, "{who:?} {mib}: {ended}");
            assert_eq!(ended.code() == 0, !is_held, "{who:?} {mib}: {ended}");
            if is_held {
                ended.says(["beyond the limit memory"]);
            }
        }
    }
}

/// A command that cleans up after a killed Atoll waits for its sandbox, which may still write: the
/// launcher holds its lock. The process that would end the sandbox is stopped here, so that it goes
/// on.
#[test]
fn what_a_sandbox_still_writes_is_not_taken_back() {
    let name = "what_a_sandbox_still_writes_is_not_taken_back";
    let Some(world) = world_with_owners(name) else {
        return;
    };
    if !everybody().contains(&Who::Ranger) {
        world.skip("there is no newuidmap", Avoidable::Yes);
        return;
    }
    let script = "echo written; n=0
        while :; do n=$((n+1)); echo x > file-$n; chown 33:33 file-$n; sleep 0.1; done";
    let running = inside(&world, Who::Ranger, "--keep", script).start();
    running.until_stdout("written");
    let processes = descendants_of(running.pid());
    let named = |name: &str| {
        let is_so = |pid: u32| status_field(pid, "Name").as_deref() == Some(name);
        let one = processes.iter().find(|one| is_so(one.pid));
        one.unwrap_or_else(|| panic!("there is no {name}")).pid
    };
    let (launcher, init) = (named("atoll-jail"), named("atoll-init"));
    // What is stopped in a group that nobody looks after any more is let go on.
    let mut sleep = std::process::Command::new("sleep");
    let sleep = sleep.arg("600").process_group(launcher.cast_signed());
    let mut companion = sleep.spawn().unwrap();
    e2e::kill(launcher, Signal::STOP);
    e2e::kill(init, Signal::STOP);
    running.signal(Signal::KILL);
    let _ = running.wait();

    let state = world.state().join("atoll");
    let marks = || fs::read_dir(state.join("ids")).unwrap().count();
    let of_others = || {
        let files = tree(&state.join("runs"));
        let owners = files.keys().map(|path| {
            let facts = fs::symlink_metadata(state.join("runs").join(path));
            facts.map_or(RANGER, |facts| facts.uid())
        });
        owners.filter(|owner| *owner != RANGER).count()
    };
    // No owner is changed but by Atoll.
    let looked = || {
        as_ranger(&world, ":")
            .arg("\"$ATOLL\" runs")
            .run()
            .success()
    };
    let before = wait_until("it writes on", BOUND, || {
        Some(of_others()).filter(|count| *count > 3)
    });
    let told = looked();
    assert!(of_others() >= before, "{told}");
    assert_eq!(marks(), 1, "{told}");

    e2e::kill(launcher, Signal::CONT);
    e2e::end(&mut companion);
    wait_until("the sandbox ends", BOUND, || {
        let mut processes = processes.iter();
        processes.all(|one| !e2e::is_alive(one.pid)).then_some(())
    });
    assert!(of_others() >= before);
    let told = looked();
    assert_eq!((of_others(), marks()), (0, 0), "{told}");
}

#[test]
fn a_system_changed_by_root_inside_goes_on_in_the_next_run() {
    let world = World::new("a_system_changed_by_root_inside_goes_on_in_the_next_run");
    for who in everybody() {
        let _ = inside(
            &world,
            who,
            "--keep",
            "echo own > /etc/own; rm /etc/hosts /etc/shadow",
        )
        .run()
        .success();
        let script = "cat /etc/own; test ! -e /etc/hosts && echo gone";
        let ended = inside(&world, who, "--keep --resume last", script)
            .run()
            .success();
        assert_eq!(ended.out(), "own\ngone\n", "{who:?}: {ended}");
        let applied = shell(&world, who, "\"$ATOLL\" apply last").run();
        assert!(!Path::new("/etc/own").exists(), "{applied}");
        assert!(Path::new("/etc/hosts").exists());
    }
    let mode = fs::metadata("/etc/shadow").unwrap().permissions().mode();
    assert_ne!(mode, 0);
}

#[test]
fn links_in_a_system_that_goes_on_lead_nowhere_on_the_host() {
    let world = World::new("links_in_a_system_that_goes_on_lead_nowhere_on_the_host");
    for who in everybody() {
        let outside = world.top().join(format!("outside-{who:?}"));
        let victim = outside.join("victim");
        fs::create_dir(&outside).unwrap();
        fs::write(&victim, "untouched").unwrap();
        for (path, mode) in [(&outside, 0o700), (&victim, 0o600)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            if who == Who::Ranger {
                std::os::unix::fs::chown(path, Some(RANGER), Some(RANGER)).unwrap();
            }
        }
        let place = outside.display();
        let script = format!(
            "rm -rf /var/tmp /var/backups /var/log /var/cache/apt/archives /usr/local/lib &&
             ln -s {place} /var/tmp && ln -s {place}/victim /var/backups &&
             ln -s /etc/shadow /var/log && mkdir -p /var/cache/apt &&
             ln -s {place} /var/cache/apt/archives && ln -s {place} /usr/local/lib"
        );
        let facts = |path: &Path| {
            let facts = fs::symlink_metadata(path).unwrap();
            (facts.mode(), facts.uid(), facts.gid(), facts.nlink())
        };
        let shadow = Path::new("/etc/shadow");
        let before = (facts(&outside), facts(&victim), facts(shadow));
        let _ = inside(&world, who, "--keep", &script).run().success();
        let ended = inside(&world, who, "--keep --resume last", "readlink /var/tmp")
            .run()
            .success();
        assert_eq!(ended.out(), format!("{place}\n"), "{who:?}: {ended}");
        let after = (facts(&outside), facts(&victim), facts(shadow));
        assert_eq!(after, before, "{who:?}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{who:?}");
        assert_eq!(fs::read(&victim).unwrap(), b"untouched");
    }
}
