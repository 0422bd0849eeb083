//! Runs in a fence, where user namespaces are forbidden: its allowances and its limits. The effect
//! of an attack is checked from outside, and the same attack succeeds there.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use e2e::{Avoidable, Invocation, World, descendants_of, is_root, wait_until};

const NONE: [&str; 0] = [];

/// Returns a world for an ordinary user who may make no namespaces.
fn fenced(name: &str) -> Option<World> {
    let world = World::new(name);
    if is_root() {
        world.skip("root always has namespaces", Avoidable::No);
        return None;
    }
    Some(world)
}

fn run(world: &World, script: &str) -> Invocation {
    world.run(NONE, script).without_namespaces()
}

/// Returns the program of these tests, compiled from its source beside this file.
fn attack(world: &World) -> PathBuf {
    let program = world.path("attack");
    let _ = world
        .host("cc")
        .args(["-O1", "-pthread", "-x", "c", "-", "-o"])
        .arg(&program)
        .stdin(include_str!("fence/attack.c"))
        .run()
        .success();
    program
}

#[test]
fn a_fence_holds_a_program_and_says_what_is_weaker() {
    let Some(world) = fenced("a_fence_holds_a_program_and_says_what_is_weaker") else {
        return;
    };
    world.write(world.home().join("secret"), "a secret");
    world.write("file", "before");
    let script = format!(
        "cat {home}/secret; ls {home}; ls /root /tmp /proc; cat /proc/1/cmdline /proc/self/environ; \
         echo after > file; echo new > new; touch \"$HOME/x\" \"$TMPDIR/y\"; pwd; exit 3",
        home = world.home().display()
    );
    let seen = run(&world, &script).run();
    assert_eq!(seen.code(), 3, "{}", seen.err());
    assert_eq!(seen.out(), format!("{}\n", world.workspace().display()));
    assert!(seen.err().contains("only fenced in"), "{}", seen.err());
    assert!(!seen.err().contains("a secret"));
    assert_eq!(world.read("file"), "after\n");
    assert_eq!(world.read("new"), "new\n");
    assert!(!world.exists(world.home().join("x")));
    let ledger = world.atoll(["why", "last", "--json"]).run().success();
    assert!(ledger.out().contains("\"fence\""), "{}", ledger.out());
    // What it did is seen and taken back as that of any live run.
    let diff = world.atoll(["diff", "last"]).run().success();
    assert!(diff.out().contains("+after"), "{}", diff.out());
    let _ = world.atoll(["undo", "last"]).run().success();
    assert_eq!(world.read("file"), "before");
    assert!(!world.exists("new"));
}

#[test]
fn a_run_in_a_fence_of_which_nothing_is_kept_leaves_the_workspace_as_it_was() {
    let name = "a_run_in_a_fence_of_which_nothing_is_kept_leaves_the_workspace_as_it_was";
    let Some(world) = fenced(name) else {
        return;
    };
    world.write("file", "before");
    let script = "echo after > file; mkdir d; echo new > d/new; chmod 600 file";
    let run = world.run(["--discard", "--json", "-"], script);
    let told = run.without_namespaces().run().success();
    assert!(told.err().contains("\"mode\": \"fence\""), "{}", told.err());
    assert_eq!(world.read("file"), "before");
    assert!(!world.exists("d"));
    assert!(world.runs().iter().all(|run| run["state"] != "kept"));
}

/// In a user namespace that can hold no further one, root is an ordinary user to the kernel, and is
/// fenced in like one: its name gives the program nothing.
#[test]
fn root_of_a_user_namespace_that_holds_no_further_one_is_fenced_in() {
    let name = "root_of_a_user_namespace_that_holds_no_further_one_is_fenced_in";
    let Some(world) = fenced(name) else {
        return;
    };
    const LIMIT: &str = "/proc/sys/user/max_user_namespaces";
    let with_rights = format!("echo 0 > {LIMIT}; exec \"$@\"");
    let without_rights = format!(
        "echo 0 > {LIMIT}; exec setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all \"$@\""
    );
    // What lies around counts as well, and no setting here tells it.
    let around = format!("echo 1 > {LIMIT}; exec unshare --user --map-root-user \"$@\"");
    let root = ["--map-root-user"].as_slice();
    let cases = [
        (root, &with_rights),
        (root, &without_rights),
        (&["--map-current-user", "--keep-caps"], &around),
    ];
    let secret = world.home().join("secret");
    world.write(&secret, "a secret");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    let before = fs::metadata(&secret).unwrap();
    let script = format!(
        "id -u; cat {secret}; echo evil > {secret}; chmod 600 {secret}; \
         echo evil > {home}/made; mount -t tmpfs none /mnt; unshare -Ur true; echo new > new; \
         echo ready; sleep 2",
        secret = secret.display(),
        home = world.home().display()
    );
    for (map, shell) in cases {
        let _ = fs::remove_file(world.path("new"));
        let around = ["unshare", "--user"].iter().chain(map);
        let around: Vec<&str> = around.copied().chain(["sh", "-c", shell, "sh"]).collect();
        let running = world.run(NONE, &script).under(around.clone()).start();
        running.until_stdout("ready");
        let rights = wait_until("the program", e2e::BOUND, || {
            let all = descendants_of(running.pid());
            all.iter().find_map(|one| {
                let read = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", one.pid));
                let status = read("status")
                    .ok()
                    .filter(|text| text.starts_with("Name:\tsleep"));
                let status = status?;
                let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
                line.map(|line| line.trim().to_owned())
            })
        });
        assert_eq!(rights, "0000000000000000", "{shell}");
        let told = running.wait().success();
        assert!(told.err().contains("only fenced in"), "{}", told.err());
        assert_eq!(told.out(), "0\nready\n", "{shell}");
        assert_eq!(world.read("new"), "new\n");
        let after = fs::metadata(&secret).unwrap();
        assert_eq!(world.read(&secret), "a secret");
        assert_eq!(
            (after.mode(), after.ctime()),
            (before.mode(), before.ctime())
        );
        assert!(!world.exists(world.home().join("made")));
        let doctor = world.atoll(["doctor"]).under(around).run();
        assert!(doctor.out().contains("mode fence"), "{}", doctor.out());
    }
}

/// The owner of entries that the program closed may open them, and Atoll is the same user. Entries
/// that were closed before are the person's own: there is no copy of them, so they stay.
#[test]
fn what_a_program_made_unreadable_in_a_fence_is_taken_back_too() {
    let name = "what_a_program_made_unreadable_in_a_fence_is_taken_back_too";
    let Some(world) = fenced(name) else {
        return;
    };
    let close = |path: &str, mode: u32| {
        fs::set_permissions(world.path(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    world.write("old/file", "before");
    world.write("private/own", "mine");
    close("private", 0);
    let script = "mkdir -p a/b blind \"$HOME/h/i\"; echo new > a/b/new; echo new > blind/new; \
                  echo after > old/file; echo new > silent; chmod 000 a/b a old silent; \
                  chmod 300 blind; chmod 000 \"$HOME/h/i\" \"$HOME/h\"";
    for way in ["--discard", "--keep"] {
        let seen = world
            .run([way], script)
            .without_namespaces()
            .run()
            .success();
        if way == "--keep" {
            assert!(world.path("a").symlink_metadata().is_ok());
            let _ = world.atoll(["undo", "last"]).run().success();
            // Nothing of it is left in the state directory either.
            let _ = world.atoll(["discard", "last"]).run().success();
        }
        let mut names: Vec<_> = fs::read_dir(world.workspace())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["old", "private"], "{way}: {}", seen.err());
        assert_eq!(world.read("old/file"), "before", "{way}");
        let mode = fs::metadata(world.path("private")).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0, "{way}");
        let left = fs::read_dir(world.state().join("atoll/runs"))
            .unwrap()
            .count();
        assert_eq!(left, 0, "{way}");
    }
    close("private", 0o700);
    assert_eq!(world.read("private/own"), "mine");
}

#[test]
fn strict_profiles_refuse_a_fence() {
    let Some(world) = fenced("strict_profiles_refuse_a_fence") else {
        return;
    };
    let seen = world
        .run(["--profile", "strict"], "touch made")
        .without_namespaces()
        .run();
    assert_eq!(seen.code(), 126, "{}", seen.err());
    assert!(seen.err().contains("without namespaces"), "{}", seen.err());
    assert!(!world.exists("made"));
}

#[test]
fn real_work_goes_on_in_a_fence() {
    let Some(world) = fenced("real_work_goes_on_in_a_fence") else {
        return;
    };
    world.write(
        "main.c",
        "#include <stdio.h>\nint main(){puts(\"compiled\");}\n",
    );
    world.write(
        "server.py",
        "import socket, threading\n\
         def serve(family, address, to):\n\
         \x20   s = socket.socket(family); s.bind(address); s.listen()\n\
         \x20   threading.Thread(target=lambda: s.accept()[0].sendall(b'hello'), daemon=True).start()\n\
         \x20   c = socket.socket(to[0]); c.connect(to[1] or s.getsockname()); print(c.recv(9).decode())\n\
         \x20   return s\n\
         I, J, U = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX\n\
         serve(I, ('0.0.0.0', 0), (I, None))\n\
         s = socket.socket(J); s.bind(('::', 0)); s.listen(); p = s.getsockname()[1]\n\
         socket.create_connection(('127.0.0.1', p)); print('hello')\n\
         serve(U, 'a.sock', (U, 'a.sock'))\n\
         serve(U, '\\0atoll-own', (U, '\\0atoll-own'))\n\
         s = socket.socket(I); s.listen(); print(s.getsockname()[0])\n",
    );
    let script = "set -e; cc main.c -o main && ./main; python3 server.py; \
        git init -q . && git -c user.email=a@b -c user.name=a commit -q --allow-empty -m one && git log --format=%s; \
        echo x > f && chmod 640 f && touch -d 2020-02-03 f && stat -c '%a %y' f | cut -c1-14; \
        cp -a f g && mkdir d && tar cf - f g | tar xf - -C d && stat -c %a d/g; \
        (sleep 100 & kill $! && wait $! || echo killed); cat /dev/null; echo piped | cat <(cat)";
    let seen = world
        .atoll(["run", "--", "bash", "-c", script])
        .without_namespaces()
        .run()
        .success();
    assert_eq!(
        seen.out(),
        "compiled\nhello\nhello\nhello\nhello\n127.0.0.1\none\n640 2020-02-03\n640\nkilled\npiped\n"
    );
}

/// Counts the clients of a listener.
struct Heard(Arc<AtomicUsize>);

impl Heard {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn at<L: Send + 'static>(listener: L, next: impl Fn(&L) -> bool + Send + 'static) -> Self {
        let heard = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&heard);
        thread::spawn(move || {
            while next(&listener) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self(heard)
    }

    fn tcp() -> (Self, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Self::at(listener, |listener| {
            let (mut line, _) = listener.accept().unwrap();
            let _ = line.set_read_timeout(Some(Duration::from_millis(50)));
            let _ = line.read(&mut [0; 16]);
            true
        });
        (heard, port)
    }

    fn unix(path: &Path) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        Self::at(listener, |listener| listener.accept().is_ok())
    }
}

#[test]
fn servers_of_the_host_hear_nothing_from_a_fence() {
    let Some(world) = fenced("servers_of_the_host_hear_nothing_from_a_fence") else {
        return;
    };
    let program = attack(&world);
    let (tcp, port) = Heard::tcp();
    let inside = Heard::unix(&world.path("host.sock"));
    let elsewhere = Heard::unix(&world.top().join("host.sock"));
    let name = format!("atoll-fence-{}", std::process::id());
    let address = {
        use std::os::linux::net::SocketAddrExt;
        std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap()
    };
    let listener = UnixListener::bind_addr(&address).unwrap();
    let nameless = Heard::at(listener, |listener| listener.accept().is_ok());
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp_port = datagrams.local_addr().unwrap().port();
    let (port, udp_port) = (port.to_string(), udp_port.to_string());
    let unix = world.top().join("host.sock").display().to_string();
    let attacks: [(&[&str], &Heard); 9] = [
        (&["tcp", &port], &tcp),
        (&["tcp6", &port], &tcp),
        (&["fastopen", &port], &tcp),
        (&["fastopen-option", &port], &tcp),
        (&["mptcp", &port], &tcp),
        (&["address-race", &port], &tcp),
        (&["unix", "host.sock"], &inside),
        (&["unix", &unix], &elsewhere),
        (&["abstract", &name], &nameless),
    ];
    for (arguments, heard) in attacks {
        let before = heard.count();
        let call = arguments.join(" ");
        let seen = run(&world, &format!("./attack {call}")).run();
        assert_eq!(seen.code(), 1, "{call}: {}{}", seen.out(), seen.err());
        // The very same program outside is heard.
        let _ = world.host(&program).args(arguments).run().success();
        wait_until("the host's listener", e2e::BOUND, || {
            (heard.count() > before).then_some(())
        });
        assert_eq!(heard.count(), before + 1, "{call} was heard inside");
    }
    datagrams
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let seen = run(&world, &format!("./attack udp {udp_port}")).run();
    assert_eq!(seen.code(), 1, "{}", seen.err());
    assert!(datagrams.recv(&mut [0; 16]).is_err(), "a datagram came out");
    let _ = world
        .host(&program)
        .args(["udp", &udp_port])
        .run()
        .success();
    datagrams.recv(&mut [0; 16]).unwrap();
}

#[test]
fn a_fence_leaves_no_choice_of_where_packets_go() {
    let Some(world) = fenced("a_fence_leaves_no_choice_of_where_packets_go") else {
        return;
    };
    let program = attack(&world);
    for option in ["device", "index", "share", "later", "group", "route"] {
        let seen = run(&world, &format!("./attack option {option}")).run();
        assert_eq!(seen.code(), 1, "{option}: {}{}", seen.out(), seen.err());
        // A route in the packet needs no right on any kernel; the rest neither.
        let outside = world.host(&program).args(["option", option]).run();
        assert_eq!(outside.code(), 0, "{option}: {}", outside.err());
    }
}

#[test]
fn nobody_holds_up_the_judge_of_a_fence() {
    let Some(world) = fenced("nobody_holds_up_the_judge_of_a_fence") else {
        return;
    };
    let program = attack(&world);
    for way in ["slow-connect", "slow-close"] {
        let seen = run(&world, &format!("./attack {way}")).run();
        assert_eq!(seen.code(), 1, "{way}: {}{}", seen.out(), seen.err());
    }
    // Outside nobody sets a limit to how long a connection is waited for.
    let outside = world.host(&program).arg("slow-connect").run();
    assert_eq!(outside.code(), 0, "{}", outside.err());
}

#[test]
fn what_lies_in_the_workspace_cannot_be_read_only_in_a_fence() {
    let Some(world) = fenced("what_lies_in_the_workspace_cannot_be_read_only_in_a_fence") else {
        return;
    };
    world.write("kept/file", "kept");
    let kept = world.path("kept").display().to_string();
    let seen = world
        .run(["--ro", &kept], "echo changed > kept/file")
        .without_namespaces()
        .run();
    assert_eq!(seen.code(), 126, "{}", seen.err());
    assert_eq!(world.read("kept/file"), "kept");
}

#[test]
fn nothing_in_a_fence_is_reached_from_beyond_the_loopback() {
    let Some(world) = fenced("nothing_in_a_fence_is_reached_from_beyond_the_loopback") else {
        return;
    };
    attack(&world);
    for way in ["listen-everywhere", "listen-unbound", "listen-swapped"] {
        let running = run(&world, &format!("./attack {way}; sleep 60")).start();
        let said = running.until_stdout("listening");
        let port: u16 = said.split_whitespace().last().unwrap().parse().unwrap();
        let text = fs::read_to_string("/proc/net/tcp").unwrap()
            + &fs::read_to_string("/proc/net/tcp6").unwrap();
        let local: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1))
            .filter(|local| local.ends_with(&format!(":{port:04X}")))
            .collect();
        assert!(!local.is_empty(), "{way}: {said}");
        for address in local {
            let loopback = address.starts_with("0100007F:")
                || address.starts_with("0000000000000000FFFF00000100007F:")
                || address.starts_with("00000000000000000000000001000000:");
            assert!(loopback, "{way}: {address}");
        }
        running.signal(Signal::TERM);
        let _ = running.wait();
    }
}

#[test]
fn attributes_of_files_outside_cannot_be_changed_from_a_fence() {
    let Some(world) = fenced("attributes_of_files_outside_cannot_be_changed_from_a_fence") else {
        return;
    };
    let program = attack(&world);
    let ways = [
        "chmod",
        "chmod-at",
        "chmod-link",
        "chmod-descriptor",
        "chmod-proc",
        "utimes",
        "utimes-descriptor",
        "xattr",
        "xattr-descriptor",
        "flags",
        "truncate",
        "rename",
        "remove",
        "link",
        "chmod-race",
        "link-race",
    ];
    for way in ways {
        let canary = world.top().join("shown/canary");
        let fresh = || {
            let _ = fs::remove_dir_all(world.top().join("shown"));
            let _ = fs::remove_file(world.path("own"));
            world.write(&canary, "canary");
            world.write("own", "own");
            fs::set_permissions(&canary, fs::Permissions::from_mode(0o640)).unwrap();
            facts(&canary)
        };
        let before = fresh();
        // It may be read: that alone must not be enough.
        let shown = canary.parent().unwrap().display().to_string();
        let call = format!("./attack {way} {}", canary.display());
        let seen = world
            .run(["--ro", &shown], &call)
            .without_namespaces()
            .run();
        assert_eq!(
            facts(&canary),
            before,
            "{way}: {}{}",
            seen.out(),
            seen.err()
        );
        assert_eq!(seen.code(), 1, "{way}: {}{}", seen.out(), seen.err());
        let before = fresh();
        let outside = world.host(&program).arg(way).arg(&canary).run();
        assert_ne!(
            facts(&canary),
            before,
            "{way}: {}{}",
            outside.out(),
            outside.err()
        );
    }
}

/// Returns all of a file that someone could change.
fn facts(path: &Path) -> String {
    let Ok(facts) = fs::symlink_metadata(path) else {
        return "gone".to_owned();
    };
    let mut attributes = [0_u8; 256];
    let named = rustix::fs::listxattr(path, &mut attributes).unwrap_or_default();
    let attributes = &attributes[..named];
    let flags = fs::File::open(path)
        .ok()
        .and_then(|file| rustix::fs::ioctl_getflags(&file).ok());
    format!(
        "{:o} {} {} {} {} {} {attributes:?} {flags:?}",
        facts.mode(),
        facts.uid(),
        facts.mtime(),
        facts.size(),
        facts.nlink(),
        facts.ino()
    )
}

#[test]
fn processes_outside_are_out_of_reach_of_a_fence() {
    let Some(world) = fenced("processes_outside_are_out_of_reach_of_a_fence") else {
        return;
    };
    let program = attack(&world);
    for way in [
        "kill", "group", "prlimit", "priority", "affinity", "trace", "memory", "owner", "segment",
    ] {
        let victim = world.host(&program).arg("victim").start();
        let said = victim.until_stdout("victim");
        let segment = said.split_whitespace().last().unwrap().to_owned();
        let state = || -> String {
            let pid = victim.pid();
            let of =
                |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let stat = of("stat");
            let fields: Vec<&str> = stat
                .rsplit(')')
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .collect();
            let status = of("status");
            let affinity = status
                .lines()
                .find(|line| line.starts_with("Cpus_allowed:"));
            let is_there = fields.first().is_some_and(|state| *state != "Z");
            format!(
                "{is_there} {:?} {affinity:?} {}",
                fields.get(16),
                of("limits")
            )
        };
        let before = state();
        let call = format!("./attack {way} {} {segment}", victim.pid());
        if let Some(program) = std::env::var_os("ATOLL_BIN_WITHOUT") {
            // As on a kernel whose Landlock does not hold signals.
            let seen = world
                .host(program)
                .args(["run", "--", "sh", "-c", &call])
                .env("ATOLL_TEST_WITHOUT", "landlock-6")
                .without_namespaces()
                .run();
            assert_eq!(seen.code(), 1, "{way}: {}{}", seen.out(), seen.err());
            assert_eq!(state(), before, "{way}");
        }
        let seen = run(&world, &call).run();
        assert_eq!(seen.code(), 1, "{way}: {}{}", seen.out(), seen.err());
        assert_eq!(state(), before, "{way}");
        let outside = world
            .host(&program)
            .args([way, &victim.pid().to_string(), &segment])
            .run();
        assert_eq!(
            outside.code(),
            0,
            "{way}: {}{}",
            outside.out(),
            outside.err()
        );
        victim.signal(Signal::KILL);
        let _ = victim.wait();
    }
}

#[test]
fn nothing_of_a_fence_outlives_its_run() {
    let Some(world) = fenced("nothing_of_a_fence_outlives_its_run") else {
        return;
    };
    let mark = format!("{}", 7_000_000 + std::process::id());
    let is_there = || {
        let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        entries
            .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
            .any(|line| {
                line.starts_with(b"sleep\0") && String::from_utf8_lossy(&line).contains(&mark)
            })
    };
    let script = format!(
        "for i in 1 2 3; do (setsid sh -c 'trap \"\" TERM HUP; sleep {mark} & touch here$0; sleep {mark}' $i &); done; \
         until test -e here1 -a -e here2 -a -e here3; do sleep 0.05; done; rm here?; echo ready; "
    );
    // It ends by itself.
    let _ = run(&world, &script).run().success();
    wait_until("the end of what it started", e2e::BOUND, || {
        (!is_there()).then_some(())
    });
    // Each of Atoll's own processes is killed.
    for name in ["atoll", "atoll-jail", "atoll-init"] {
        let running = run(&world, &format!("{script} sleep {mark}")).start();
        running.until_stdout("ready");
        assert!(is_there());
        let pid = running.pid();
        let victim = std::iter::once(pid)
            .chain(descendants_of(pid).iter().map(|one| one.pid))
            .find(|pid| {
                fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|comm| comm.trim() == name)
            });
        let victim = victim.unwrap_or_else(|| panic!("no process is called {name}"));
        e2e::kill(victim, Signal::KILL);
        wait_until(name, e2e::BOUND, || (!is_there()).then_some(()));
        let _ = running.wait();
    }
}

#[test]
fn a_terminal_works_in_a_fence() {
    let Some(world) = fenced("a_terminal_works_in_a_fence") else {
        return;
    };
    let script = "test -t 0 && tty >/dev/null && stty size && echo from the terminal";
    let mut terminal = world
        .run(["--keep"], script)
        .without_namespaces()
        .on_terminal(24, 81);
    terminal.expect("24 81");
    terminal.expect("from the terminal");
    let _ = terminal.wait().success();
}

#[test]
fn a_mount_in_the_workspace_keeps_a_fence_from_starting() {
    let Some(world) = fenced("a_mount_in_the_workspace_keeps_a_fence_from_starting") else {
        return;
    };
    fs::create_dir(world.path("inner")).unwrap();
    let (user, group) = e2e::id();
    let program = std::env::var("ATOLL_BIN").unwrap();
    let script = format!(
        "mount -t tmpfs none inner && exec unshare --user --map-user={user} --map-group={group} \
         --keep-caps sh -c 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv \
         --inh-caps=-all --ambient-caps=-all --bounding-set=-all \"$@\"' sh \
         {program} run -- touch made"
    );
    let seen = world.mount_shell(&script).run();
    assert_eq!(seen.code(), 125, "{}", seen.err());
    assert!(
        seen.err().contains("is a mount of its own"),
        "{}",
        seen.err()
    );
    assert!(!world.exists("made"));
}

#[test]
fn a_pipe_in_the_workspace_keeps_a_fence_from_starting() {
    let Some(world) = fenced("a_pipe_in_the_workspace_keeps_a_fence_from_starting") else {
        return;
    };
    e2e::make_fifo(&world.path("pipe"));
    let seen = run(&world, "touch made").run();
    assert_eq!(seen.code(), 125, "{}", seen.err());
    assert!(
        seen.err().contains("pipe in the workspace"),
        "{}",
        seen.err()
    );
    assert!(!world.exists("made"));
}

/// The commands of the page on the fence, and their effects.
#[test]
fn the_commands_of_the_page_on_the_fence_work() {
    let Some(world) = fenced("the_commands_of_the_page_on_the_fence_work") else {
        return;
    };
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let page = fs::read_to_string(Path::new(&package).join("../../docs/fence.md")).unwrap();
    let mut commands: Vec<&str> = page.split('`').skip(1).step_by(2).collect();
    commands.retain(|part| part.starts_with("atoll ") || part.starts_with("sh -c "));
    commands.sort_unstable();
    commands.dedup();
    let [doctor, run, undo, codex] = commands[..] else {
        panic!("{commands:?}")
    };
    let words = |command: &'static str| command.split_whitespace().skip(1);
    assert_eq!(
        (doctor, run, undo),
        ("atoll doctor", "atoll run", "atoll undo")
    );
    let told = world
        .atoll(words("atoll doctor"))
        .without_namespaces()
        .run();
    let told = told.expect_status(1);
    assert!(told.out().contains("mode fence"), "{told}");
    // An agent works with a copy of its own directory.
    world.write(world.home().join(".codex/config.toml"), "model = \"one\"\n");
    let agent = "cat \"$CODEX_HOME/config.toml\"; echo said > \"$CODEX_HOME/said\" && echo wrote\n\
                 echo made > made\n";
    e2e::write_program(&world.path("codex"), &format!("#!/bin/sh\n{agent}"));
    let inner = codex
        .strip_prefix("sh -c '")
        .and_then(|rest| rest.strip_suffix('\''));
    let inner = format!("PATH=$PWD:$PATH; {}", inner.unwrap());
    let ran = world.run(["--profile", "codex"], &inner);
    let ran = ran.without_namespaces().run().success();
    assert_eq!(ran.out(), "model = \"one\"\nwrote\n", "{ran}");
    let _ = ran.says([".codex"]);
    assert!(!world.exists(world.home().join(".codex/said")), "{ran}");
    assert!(world.exists("made"), "written directly");
    let _ = world
        .atoll(words("atoll undo").chain(["last"]))
        .run()
        .success();
    assert!(!world.exists("made"), "taken back");
}

/// Landlock checks directories, and a file of the workspace may have a name elsewhere.
#[test]
fn hard_links_out_of_workspace_refuse_a_fence() {
    let Some(world) = fenced("hard_links_out_of_workspace_refuse_a_fence") else {
        return;
    };
    let outside = world.top().join("outside");
    world.write(&outside, "mine");
    let script = "echo evil > file; ln file twice";
    fs::hard_link(&outside, world.path("file")).unwrap();
    let seen = run(&world, script).run();
    assert_eq!(seen.code(), 125, "{}", seen.err());
    seen.is_clear_error(["hard links", "cp -a"]);
    assert_eq!(world.read(&outside), "mine");
    // The controls: a file of its own, also with several names in the workspace.
    fs::remove_file(world.path("file")).unwrap();
    world.write("file", "mine");
    let _ = run(&world, script).run().success();
    assert_eq!(world.read("twice"), "evil\n");
    let _ = run(&world, "echo again > file").run().success();
    assert_eq!(world.read("twice"), "again\n");
    assert_eq!(world.read(&outside), "mine");
}

#[test]
fn fence_links_no_file_from_outside() {
    let Some(world) = fenced("fence_links_no_file_from_outside") else {
        return;
    };
    let shown = world.top().join("shown");
    fs::create_dir(&shown).unwrap();
    world.write(shown.join("file"), "mine");
    let script = format!(
        "cat {0}/file; ln {0}/file linked; echo evil > linked; ln linked own && echo linked",
        shown.display()
    );
    let invocation = world.run(["--ro", shown.to_str().unwrap()], &script);
    let seen = invocation.without_namespaces().run().success();
    assert_eq!(seen.out(), "minelinked\n", "{seen}");
    assert_eq!(world.read(shown.join("file")), "mine");
}

/// Permissions that keep the program's owner out of the workspace keep Atoll out too, until it
/// gives itself the right.
#[test]
fn workspace_closed_in_a_fence_is_taken_back() {
    let Some(world) = fenced("workspace_closed_in_a_fence_is_taken_back") else {
        return;
    };
    world.write("file", "before");
    let before = fs::metadata(world.workspace()).unwrap().mode() & 0o7777;
    for mode in ["000", "555", "777"] {
        for way in ["--discard", "--keep"] {
            let script = format!("echo after > file; mkdir d; echo new > d/new; chmod {mode} .");
            let invocation = world.run([way], &script).without_namespaces();
            let seen = invocation.run().success();
            if way == "--keep" {
                let left = fs::metadata(world.workspace()).unwrap().mode() & 0o7777;
                assert_eq!(format!("{left:03o}"), mode, "{seen}");
                match mode {
                    "000" => seen.says(["taking over .: it cannot be read"]),
                    _ => seen.says(["~ ."]),
                };
                let listed = world.atoll(["runs", "--all", "--json"]);
                let runs = listed.dir(world.top()).run().success().json();
                let mut runs = runs.as_array().unwrap().iter();
                let run = runs.find(|run| run["state"] == "written").unwrap();
                let undo = world.atoll(["undo", run["run"].as_str().unwrap()]);
                let _ = undo.dir(world.top()).run().success();
            }
            let now = fs::metadata(world.workspace()).unwrap().mode() & 0o7777;
            assert_eq!(now, before, "{way} {mode}: {seen}");
            assert_eq!(world.read("file"), "before", "{way} {mode}: {seen}");
            assert!(!world.exists("d"), "{way} {mode}: {seen}");
        }
    }
}
