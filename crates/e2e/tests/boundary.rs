//! The promises of the boundary, tried from both sides. Every refusal has a positive control: the
//! same action works where it should.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use e2e::{
    Avoidable, Outcome, Process, Running, World, can_be_ordinary_root, descendants_of, is_root,
    make_fifo, program_exists, status_field, wait_until,
};

const NONE: [&str; 0] = [];

fn perl(code: &str) -> String {
    format!("perl -MSocket=:all -e '{code}'")
}

/// Connects to a stream socket by its path.
fn connect_unix(path: &str) -> String {
    perl(&format!(
        "socket(S,AF_UNIX,SOCK_STREAM,0) or die \"socket: $!\\n\"; \
         connect(S,pack(\"Sa*\",AF_UNIX,\"{path}\")) or die \"refused: $!\\n\"; print \"connected\\n\""
    ))
}

fn connect_tcp(address: &str, port: u16) -> String {
    perl(&format!(
        "$SIG{{ALRM}}=sub{{die \"refused: timeout\\n\"}}; alarm 10; \
         socket(S,AF_INET,SOCK_STREAM,0) or die \"refused: $!\\n\"; \
         connect(S,sockaddr_in({port},inet_aton(\"{address}\"))) or die \"refused: $!\\n\"; \
         print \"connected\\n\""
    ))
}

fn connected(outcome: &Outcome) -> bool {
    outcome.out().contains("connected")
}

/// Returns the innermost processes beneath one: those of its sandbox.
fn leaves(pid: u32) -> Vec<Process> {
    let all = descendants_of(pid);
    all.iter()
        .filter(|one| !all.iter().any(|other| other.parent == one.pid))
        .cloned()
        .collect()
}

/// Returns the `sleep` that a script starts in the background, once it is one: a shell prints that
/// it is ready while its child is still a shell itself.
fn sleep_of(running: &Running) -> Process {
    wait_until("the program, seen from outside", e2e::BOUND, || {
        descendants_of(running.pid())
            .into_iter()
            .find(|one| one.name == "sleep")
    })
}

#[test]
fn the_numbers_inside_are_the_callers_own() {
    let world = World::new("the_numbers_inside_are_the_callers_own");
    let (user, group) = e2e::id();
    let seen = world.run_inside("id -u; id -g; id -G").success();
    assert_eq!(seen.out(), format!("{user}\n{group}\n{group}\n"));
}

#[test]
fn no_process_of_a_sandbox_is_root_to_the_kernel() {
    let world = World::new("no_process_of_a_sandbox_is_root_to_the_kernel");
    let running = world.run(NONE, "sleep 1000 & echo ready; wait").start();
    running.until_stdout("ready");
    let pid = sleep_of(&running).pid;
    for field in ["Uid", "Gid"] {
        let numbers = status_field(pid, field).unwrap();
        assert!(
            numbers.split_whitespace().all(|number| number != "0"),
            "{field}: {numbers}"
        );
    }
    // The whole sandbox: every process in the program's process namespace.
    let space = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    for one in descendants_of(running.pid()) {
        if is_root() && space(one.pid) == space(pid) {
            let numbers = status_field(one.pid, "Uid").unwrap();
            assert!(
                !numbers.split_whitespace().any(|number| number == "0"),
                "{one:?}: {numbers}"
            );
        }
    }
    if !is_root() {
        assert!(
            status_field(pid, "Uid")
                .unwrap()
                .starts_with(&e2e::id().0.to_string())
        );
    }
}

#[test]
fn programs_have_no_capabilities_and_cannot_gain_any() {
    let world = World::new("programs_have_no_capabilities_and_cannot_gain_any");
    let running = world
        .run(NONE, "cat /proc/self/status; sleep 1000 & echo ready; wait")
        .start();
    let inside = running.until_stdout("ready");
    let sleep = sleep_of(&running);
    let outside = fs::read_to_string(format!("/proc/{}/status", sleep.pid)).unwrap();
    for status in [inside, outside] {
        let field = |name: &str| {
            let line = status
                .lines()
                .find(|line| line.starts_with(&format!("{name}:")));
            line.unwrap_or_else(|| panic!("{name}"))
                .split(':')
                .nth(1)
                .unwrap()
                .trim()
                .to_owned()
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        assert_eq!(field("NoNewPrivs"), "1");
        assert_eq!(field("Seccomp"), "2");
    }
}

#[test]
fn every_namespace_is_its_own() {
    let world = World::new("every_namespace_is_its_own");
    let script = "for n in cgroup ipc mnt net pid uts user; do readlink /proc/self/ns/$n; done";
    let inside = world.run_inside(script).success().out();
    let outside = world.host_shell(script).run().success().out();
    for (inner, outer) in inside.lines().zip(outside.lines()) {
        assert_ne!(inner, outer);
    }
    assert_eq!(inside.lines().count(), 7, "{inside}");
}

#[test]
fn processes_of_the_host_cannot_be_seen() {
    let world = World::new("processes_of_the_host_cannot_be_seen");
    let seen = world
        .run_inside("ls /proc | grep -c '^[0-9]'; echo $$; kill -0 1 && echo can signal init")
        .run_checked();
    let count: u32 = seen.out().lines().next().unwrap().parse().unwrap();
    // The first process, the exec server, what waits to become an exec, and the three of here.
    assert!(count <= 6, "{seen}");
    let pid = std::process::id();
    let outer = world
        .run_inside(&format!("test -d /proc/{pid} && kill -0 {pid}"))
        .run_checked();
    // The number may be one of the sandbox's own; it is small then.
    assert!(pid < 20 || outer.code() != 0, "{outer}");
}

/// Outcomes that are checked whatever their status.
trait Checked {
    fn run_checked(self) -> Outcome;
}

impl Checked for Outcome {
    fn run_checked(self) -> Outcome {
        assert_ne!(self.code(), 125, "{self}");
        self
    }
}

#[test]
fn the_first_process_is_opaque() {
    let world = World::new("the_first_process_is_opaque");
    let script = "for f in environ mem maps exe fd cwd root; do \
        { cat /proc/1/$f || ls /proc/1/$f/ || readlink /proc/1/$f; } >/dev/null 2>&1 && echo $f; done; true";
    let seen = world.run_inside(script).success();
    assert_eq!(seen.out(), "", "readable of the first process");
    let own = world
        .run_inside("cat /proc/self/environ > /dev/null && echo own")
        .success();
    assert_eq!(own.out(), "own\n");
}

#[test]
fn home_state_and_run_of_the_host_cannot_be_read() {
    let world = World::new("home_state_and_run_of_the_host_cannot_be_read");
    let secret = world.home().join("secret");
    world.write(&secret, "sesame\n");
    let script = format!(
        "cat {} || echo no; ls {} || echo no; ls {} || echo no; ls -A /run | wc -l; ls -A /root /home 2>/dev/null | grep -v : | grep -c . ; ls /sys /sys/devices /sys/devices/system 2>/dev/null",
        secret.display(),
        world.state().display(),
        world.config().display(),
    );
    let seen = world.run_inside(&script).run_checked();
    // Of /sys the processors alone, where the host has them.
    let expected = match Path::new("/sys/devices/system/cpu").exists() {
        true => {
            "no\nno\nno\n0\n0\n/sys:\ndevices\n\n/sys/devices:\nsystem\n\n/sys/devices/system:\ncpu\n"
        }
        false => "no\nno\nno\n0\n0\n",
    };
    assert_eq!(seen.out(), expected, "{seen}");
}

/// Returns directories of the host that a program can be shown, with the options for it.
fn places(world: &World) -> [(PathBuf, Vec<String>); 3] {
    let shared = world.top().join("shared");
    fs::create_dir(&shared).unwrap();
    let read_only = ["--ro", shared.to_str().unwrap()].map(str::to_owned);
    [
        (shared, read_only.to_vec()),
        (world.workspace(), vec![]),
        (world.workspace(), vec!["--live".to_owned()]),
    ]
}

#[test]
fn a_unix_socket_of_the_host_cannot_be_reached() {
    let world = World::new("a_unix_socket_of_the_host_cannot_be_reached");
    for (place, options) in places(&world) {
        let path = place.join("listening");
        let _ = fs::remove_file(&path);
        let _listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let code = connect_unix(path.to_str().unwrap());
        assert!(
            connected(&world.host_shell(&code).run()),
            "the control cannot connect outside"
        );
        let inside = world.run(&options, &code).run().run_checked();
        assert!(!connected(&inside), "{options:?}: {inside}");
        assert!(inside.err().contains("refused"), "{options:?}: {inside}");
    }
}

#[test]
fn a_unix_socket_of_its_own_can_be_reached() {
    let world = World::new("a_unix_socket_of_its_own_can_be_reached");
    let code = perl(
        "socket(L,AF_UNIX,SOCK_STREAM,0); bind(L,sockaddr_un(\"/tmp/own\")) or die; listen(L,1); \
         socket(S,AF_UNIX,SOCK_STREAM,0); connect(S,sockaddr_un(\"/tmp/own\")) or die \"$!\"; print \"connected\\n\"",
    );
    assert!(connected(&world.run_inside(&code).success()));
}

#[test]
fn a_named_pipe_of_the_host_does_not_lead_out() {
    let world = World::new("a_named_pipe_of_the_host_does_not_lead_out");
    for (place, options) in places(&world) {
        let path = place.join("pipe");
        let _ = fs::remove_file(&path);
        make_fifo(&path);
        // Held open at both ends, so that nobody waits.
        let mut end = fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let script = format!("timeout 2 sh -c 'echo leaked > {}'; true", path.display());
        let _ = world.run(&options, &script).run().run_checked();
        std::io::Write::write_all(&mut end, b"end\n").unwrap();
        let mut seen = [0; 64];
        let count = end.read(&mut seen).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&seen[..count]),
            "end\n",
            "{options:?}"
        );
    }
}

#[test]
fn there_is_no_way_out_to_a_network() {
    let world = World::new("there_is_no_way_out_to_a_network");
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let code = connect_tcp("127.0.0.1", port);
    assert!(
        connected(&world.host_shell(&code).run()),
        "the control cannot connect outside"
    );
    assert!(
        !connected(&world.run_inside(&code).run_checked()),
        "the host's loopback can be reached"
    );

    // An address of the host that is not its loopback, if it has one.
    let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
    if probe.connect("192.0.2.1:9").is_ok() {
        let own = probe.local_addr().unwrap().ip().to_string();
        let code = connect_tcp(&own, port);
        assert!(connected(&world.host_shell(&code).run()));
        assert!(
            !connected(&world.run_inside(&code).run_checked()),
            "the host can be reached"
        );
    }
    let far = world
        .run_inside(&connect_tcp("192.0.2.1", 80))
        .run_checked();
    assert!(!connected(&far) && far.err().contains("refused"), "{far}");
    let devices = world.run_inside("cat /proc/net/dev").success().out();
    let names: Vec<&str> = devices
        .lines()
        .skip(2)
        .filter_map(|line| line.split(':').next())
        .map(str::trim)
        .collect();
    assert_eq!(names, ["lo"]);
}

#[test]
fn its_own_loopback_works() {
    let world = World::new("its_own_loopback_works");
    let code = perl(
        "socket(L,AF_INET,SOCK_STREAM,0) or die; bind(L,sockaddr_in(8080,INADDR_LOOPBACK)) or die \"$!\"; \
         listen(L,1); socket(S,AF_INET,SOCK_STREAM,0); \
         connect(S,sockaddr_in(8080,INADDR_LOOPBACK)) or die \"$!\"; print \"connected\\n\"",
    );
    assert!(connected(&world.run_inside(&code).success()));
    let six = perl(
        "socket(L,AF_INET6,SOCK_STREAM,0) or die; $a=pack_sockaddr_in6(8081,inet_pton(AF_INET6,\"::1\")); \
         bind(L,$a) or die \"$!\"; listen(L,1); socket(S,AF_INET6,SOCK_STREAM,0); connect(S,$a) or die \"$!\"; \
         print \"connected\\n\"",
    );
    if std::path::Path::new("/proc/net/if_inet6").exists() {
        assert!(connected(&world.run_inside(&six).success()));
    }
}

/// Returns system calls by number on this machine's architecture, if known.
fn calls() -> Option<[(&'static str, String); 13]> {
    let (
        unshare,
        mount,
        keyctl,
        add_key,
        bpf,
        uring,
        perf,
        userfaultfd,
        init_module,
        setns,
        ioctl,
        kexec,
    ) = match std::env::consts::ARCH {
        "x86_64" => (272, 165, 250, 248, 321, 425, 298, 323, 175, 308, 16, 246),
        "aarch64" => (97, 40, 219, 217, 280, 425, 241, 282, 105, 268, 29, 104),
        _ => return None,
    };
    Some([
        ("unshare a user namespace", format!("{unshare}, 0x10000000")),
        ("unshare a mount namespace", format!("{unshare}, 0x20000")),
        ("mount", format!("{mount}, $n, $p, $t, 0, 0")),
        ("keyctl", format!("{keyctl}, 0, -3, 0")),
        ("add_key", format!("{add_key}, $u, $n, $n, 1, -3")),
        ("bpf", format!("{bpf}, 0, $z, 128")),
        ("io_uring_setup", format!("{uring}, 4, $z")),
        ("perf_event_open", format!("{perf}, $z, 0, -1, -1, 0")),
        ("userfaultfd", format!("{userfaultfd}, 1")),
        ("init_module", format!("{init_module}, $n, 1, $z")),
        ("setns", format!("{setns}, 0, 0")),
        ("TIOCSTI", format!("{ioctl}, 0, 0x5412, $n")),
        ("kexec_load", format!("{kexec}, 0, 0, 0, 0")),
    ])
}

#[test]
fn system_calls_that_open_doors_are_refused() {
    let world = World::new("system_calls_that_open_doors_are_refused");
    let Some(calls) = calls() else {
        return world.skip(
            "the numbers of system calls are not known here",
            Avoidable::No,
        );
    };
    for (name, call) in calls {
        // A refusal is EPERM or ENOSYS: the call itself was not judged. TIOCSTI on
        // what is no terminal would be ENOTTY.
        let data =
            "$n=\"none\\0\"; $p=\"/tmp\\0\"; $t=\"tmpfs\\0\"; $u=\"user\\0\"; $z=\"\\0\" x 128;";
        let code = format!("perl -e '{data} $r = syscall({call}); print $r, \" \", $!+0, \"\\n\"'");
        let tried = world.run_inside(&code).run_checked();
        let out = tried.out();
        assert!(
            matches!(out.trim(), "-1 1" | "-1 38"),
            "{name} gives {out:?}\n{tried}"
        );
    }
}

#[test]
fn namespaces_and_mounts_cannot_be_made_by_programs() {
    let world = World::new("namespaces_and_mounts_cannot_be_made_by_programs");
    for script in [
        "unshare --user true",
        "unshare --mount true",
        "unshare --net true",
        "mount -t tmpfs none /tmp",
        "mount --bind /etc /tmp",
        "umount /proc",
        "chroot / true",
        "nsenter -t 1 -m true",
        "mknod /tmp/m c 1 1",
        "hostname other",
        "date -s 2001-01-01",
    ] {
        let tried = world.run_inside(&format!("{script} || exit 1"));
        assert_eq!(tried.code(), 1, "{script}: {tried}");
        assert!(!tried.err().contains("error:"), "{script}: {tried}");
    }
}

/// Programs ask for the address of the machine that they run on.
#[test]
fn own_host_name_leads_to_loopback() {
    let world = World::new("own_host_name_leads_to_loopback");
    let script = "getent hosts \"$(hostname)\" | cut -d' ' -f1 | head -1";
    for options in [&[][..], &["--allow", "example.com"], &["--root"]] {
        if options == ["--root"] && !can_be_ordinary_root() {
            world.skip_row("root", "needs user namespaces", Avoidable::No);
            continue;
        }
        let seen = world.run(options, script).run().success();
        let is_loopback = ["127.0.0.1\n", "::1\n"].contains(&&*seen.out());
        assert!(is_loopback, "{options:?}: {seen}");
    }
}

#[test]
fn only_the_first_three_descriptors_are_passed_on() {
    let world = World::new("only_the_first_three_descriptors_are_passed_on");
    let secret = world.top().join("secret");
    world.write(&secret, "sesame");
    let script = format!(
        "exec 7<{} 9<.; exec \"$ATOLL\" run -- sh -c 'ls /proc/$$/fd; cat <&7'",
        secret.display()
    );
    let seen = world.host_shell(&script).run();
    assert!(!seen.out().contains("sesame"), "{seen}");
    let out = seen.out();
    // A shell may keep one of its own, high up.
    let passed = |line: &&str| line.parse::<u32>().is_ok_and(|fd| fd > 2 && fd < 10);
    let numbers: Vec<&str> = out.lines().filter(passed).collect();
    assert!(numbers.is_empty(), "{numbers:?}\n{seen}");
}

#[test]
fn the_system_cannot_be_written_to() {
    let world = World::new("the_system_cannot_be_written_to");
    for place in [
        "/usr/x",
        "/etc/x",
        "/etc/passwd",
        "/bin/x",
        "/x",
        "/dev/x",
        "/proc/sys/kernel/hostname",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sysrq-trigger",
        "/run/x",
        "/var/x",
    ] {
        let tried = world.run_inside(&format!("echo x > {place}")).run_checked();
        assert_ne!(tried.code(), 0, "{place} can be written to");
    }
    for place in [
        "/tmp/x",
        "/dev/shm/x",
        "$HOME/x",
        "x",
        "/dev/null",
        "/var/tmp/x",
    ] {
        let _ = world.run_inside(&format!("echo x > {place}")).success();
    }
}

#[test]
fn secrets_of_the_system_cannot_be_read() {
    let world = World::new("secrets_of_the_system_cannot_be_read");
    for place in [
        "/etc/shadow",
        "/etc/gshadow",
        "/proc/kcore",
        "/proc/kmsg",
        "/dev/mem",
        "/dev/kmsg",
        "/etc/ssh/ssh_host_ed25519_key",
        "/proc/keys",
        "/proc/1/root/etc/passwd",
    ] {
        let tried = world
            .run_inside(&format!("test -z \"$(head -c 10 {place} 2>/dev/null)\""))
            .run_checked();
        assert_eq!(tried.code(), 0, "{place} can be read");
    }
    let _ = world.run_inside("head -c 10 /etc/passwd").success();
}

#[test]
fn two_sandboxes_do_not_see_each_other() {
    let world = World::new("two_sandboxes_do_not_see_each_other");
    let make = "echo x > /tmp/from-first; echo x > /dev/shm/from-first; ipcmk -Q > /dev/null 2>&1; sleep 1000 & echo ready; read x";
    let mut first = world.run(NONE, make).start();
    first.until_stdout("ready");
    let look = "ls /tmp /dev/shm; ipcs -q | grep -c 0x; pgrep sleep";
    let second = world.run_inside(look).run_checked();
    assert!(!second.out().contains("from-first"), "{second}");
    if program_exists("ipcmk") && program_exists("ipcs") {
        let own = world
            .run_inside("ipcmk -Q > /dev/null; ipcs -q | grep -c 0x")
            .success();
        assert_eq!(own.out(), "1\n", "the control makes no queue");
        assert!(second.out().lines().any(|line| line == "0"), "{second}");
    }
    first.send("\n");
    let _ = first.wait();
}

#[test]
fn set_user_id_programs_gain_nothing() {
    let world = World::new("set_user_id_programs_gain_nothing");
    let seen = world
        .run_inside(
            "for p in /usr/bin/su /usr/bin/passwd /bin/mount; do test -u $p && echo $p; done; \
        cp /usr/bin/id /tmp/id && chmod 6755 /tmp/id && /tmp/id -u",
        )
        .run_checked();
    let last = seen.out().lines().last().unwrap_or_default().to_owned();
    assert_eq!(last, e2e::id().0.to_string(), "{seen}");
}

// Limits.

#[test]
fn too_many_processes_are_refused() {
    let world = World::new("too_many_processes_are_refused");
    let script = "perl -e 'for (1..200) { my $p = fork; if (!defined $p) { print \"stopped at $_\\n\"; last } \
                  if (!$p) { sleep 1000 } } print \"end\\n\"'";
    let file = world.top().join("result.json");
    let options = ["--limit", "processes=32", "--json", file.to_str().unwrap()];
    let limited = world.run(options, script).run().success();
    assert!(limited.out().contains("stopped at"), "{limited}");
    let told: serde_json::Value = serde_json::from_str(&world.read(&file)).unwrap();
    let held = told["limits-held-by"].as_array().unwrap();
    let counted = |limit: &serde_json::Value| {
        limit["limit"] == "processes" && limit["by"].as_str().unwrap().starts_with("cgroup")
    };
    // Only control groups count what they refuse.
    if held.iter().any(counted) {
        limited.says(["denied", "beyond the limit processes", "atoll why"]);
    }
    // The first process of the sandbox counts, nothing else of Atoll's.
    let few = "sleep .1 & sleep .1 & wait; echo all";
    let limited = world.run(["--limit", "processes=4"], few).run();
    assert_eq!(limited.success().out(), "all\n");
    let free = world.run_inside(script).success();
    assert!(!free.out().contains("stopped at"), "{free}");
}

#[test]
fn a_fork_bomb_is_held_and_ends_with_its_run() {
    let world = World::new("a_fork_bomb_is_held_and_ends_with_its_run");
    let script = "b() { b | b & }; b 2>/dev/null; sleep 1; echo alive";
    let options = ["--limit", "processes=64", "--timeout", "20s"];
    let held = world.run(options, script).run();
    assert!(matches!(held.code(), 0 | 2 | 124 | 254), "{held}");
}

#[test]
fn a_child_that_takes_too_much_memory_does_not_go_unnoticed() {
    let world = World::new("a_child_that_takes_too_much_memory_does_not_go_unnoticed");
    let script = "perl -e '$x = \"x\" x (512 << 20); print \"got it\"'; echo shell goes on";
    let limited = world.run(["--limit", "memory=64MiB"], script).run();
    assert!(!limited.out().contains("got it"), "{limited}");
    limited.says(["memory"]);
}

#[test]
fn too_many_open_files_are_refused() {
    let world = World::new("too_many_open_files_are_refused");
    let script = "perl -e 'for (1..500) { open($f[$_], \"<\", \"/dev/null\") or do { print \"stopped at $_\\n\"; last } }'";
    let limited = world
        .run(["--limit", "open-files=64"], script)
        .run()
        .success();
    assert!(limited.out().contains("stopped at 6"), "{limited}");
    let raised = world
        .run(["--limit", "open-files=64"], "ulimit -n 128")
        .run();
    assert_ne!(raised.code(), 0, "{raised}");
}

#[test]
fn a_full_tmp_is_an_error_to_the_program_only() {
    let world = World::new("a_full_tmp_is_an_error_to_the_program_only");
    let script = "head -c 4M /dev/zero > /tmp/fits && echo fits; head -c 16M /dev/zero > /tmp/big || echo full; \
                  head -c 16M /dev/zero > ~/big || echo full";
    let limited = world.run(["--limit", "tmp=8MiB"], script).run().success();
    assert_eq!(limited.out(), "fits\nfull\nfull\n", "{limited}");
}

#[test]
fn idle_time_ends_a_run_that_does_nothing() {
    let world = World::new("idle_time_ends_a_run_that_does_nothing");
    let ended = world
        .run(["--limit", "idle=300ms"], "sleep 100")
        .run()
        .expect_status(124);
    ended.says(["no input or output"]);
    let script = "i=0; while [ $i -lt 12 ]; do echo $i; sleep 0.1; i=$((i+1)); done";
    let _ = world.run(["--limit", "idle=1s"], script).run().success();
}

#[test]
fn nothing_of_a_sandbox_outlives_its_atoll() {
    let world = World::new("nothing_of_a_sandbox_outlives_its_atoll");
    let running = world
        .run(
            NONE,
            "trap '' TERM HUP INT; setsid sleep 1000 & echo ready; sleep 1000",
        )
        .start();
    running.until_stdout("ready");
    let all = descendants_of(running.pid());
    assert!(!leaves(running.pid()).is_empty());
    running.signal(Signal::KILL);
    let _ = running.wait();
    wait_until("the sandbox to end", e2e::BOUND, || {
        all.iter().all(|one| !e2e::is_alive(one.pid)).then_some(())
    });
}
