//! Bad input of every kind: a clear error that states the failure, its reason and a remedy, and
//! nothing lost.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use e2e::{Avoidable, Invocation, Outcome, World, can_be_ordinary_root, is_root, tree};

const NONE: [&str; 0] = [];

/// Put before a command: the disk fails every synchronous write.
const FAILING_DISK: &str = "inject=fdatasync:error=EIO";
/// As [`FAILING_DISK`], once the key has been taken that seals the record.
const FAILING_LEDGER: &str = "inject=fdatasync:error=EIO:when=2+";

/// Returns the words before a command that inject this failure of `fdatasync`.
fn strace(failing: &'static str) -> [&'static str; 8] {
    [
        "strace",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=fdatasync",
        "-e",
        failing,
    ]
}

fn close_to_writing(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o555)).unwrap();
}

fn open_again(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a host script as root of a mount namespace; `None` where that is impossible.
fn in_mount_namespace(world: &World, script: &str) -> Option<Outcome> {
    mount_script(world, script).map(Invocation::run)
}

fn mount_script(world: &World, script: &str) -> Option<Invocation> {
    if !is_root() && !can_be_ordinary_root() {
        world.skip("nobody but root can mount here", Avoidable::No);
        return None;
    }
    Some(world.mount_shell(&format!("set -e\n{script}")))
}

// The workspace.

#[test]
fn a_workspace_that_is_missing_or_no_directory_is_named() {
    let world = World::new("a_workspace_that_is_missing_or_no_directory_is_named");
    world.write("file", "x");
    let missing = world
        .atoll(["run", "--workspace", "no-such", "--", "true"])
        .run();
    missing.expect_status(125).is_clear_error([
        "workspace",
        "no-such",
        "No such file",
        "--workspace",
    ]);
    let file = world
        .atoll(["run", "--workspace", "file", "--", "true"])
        .run();
    file.expect_status(125)
        .is_clear_error(["workspace", "file", "not a directory", "--workspace"]);
}

#[test]
fn a_workspace_that_cannot_be_read_is_named() {
    let world = World::new("a_workspace_that_cannot_be_read_is_named");
    if is_root() {
        return world.skip("root can read everything", Avoidable::No);
    }
    let closed = world.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let refused = world
        .atoll(["run", "--workspace", "closed", "--", "true"])
        .run();
    refused
        .expect_status(125)
        .is_clear_error(["workspace", "closed", "Permission denied"]);
}

#[test]
fn a_file_in_the_workspace_that_cannot_be_read_stops_nothing() {
    let world = World::new("a_file_in_the_workspace_that_cannot_be_read_stops_nothing");
    world.write("closed/in", "x");
    world.write("locked", "x");
    for path in ["closed", "locked"] {
        fs::set_permissions(world.path(path), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let _ = world.run(["--apply"], "echo new > new").run().success();
    assert_eq!(world.read("new"), "new\n");
    let _ = world
        .run_inside("rm -f locked; echo x > locked; true")
        .success();
    let compared = world.atoll(["diff"]).run();
    if is_root() {
        assert_eq!(compared.code(), 0, "{compared}");
    } else {
        // A patch needs what was there before.
        let compared = compared.expect_status(125);
        compared.says(["locked is not in this patch"]);
    }
}

#[test]
fn places_that_no_workspace_may_be_are_refused() {
    let world = World::new("places_that_no_workspace_may_be_are_refused");
    let (home, top, state) = (world.home(), world.top().to_path_buf(), world.state());
    let _ = world.run_inside("true").success();
    let within = state.join("atoll/runs");
    for place in [
        Path::new("/"),
        &home,
        &top,
        &state,
        &within,
        Path::new("/usr"),
        Path::new("/etc"),
        Path::new("/proc"),
    ] {
        let shown = place.to_str().unwrap();
        let refused = world
            .atoll(["run", "--workspace", shown, "--", "true"])
            .run();
        assert_eq!(refused.code(), 126, "{shown}: {refused}");
        refused.is_clear_error(["workspace", "why:", "try:", "--workspace"]);
        let live = world
            .atoll(["run", "--live", "--workspace", shown, "--", "true"])
            .run();
        assert_eq!(live.code(), 126, "{shown}: {live}");
    }
    let from = world.run(NONE, "true").dir(&home).run().expect_status(126);
    from.is_clear_error(["home", "project"]);
}

#[test]
fn a_link_to_a_forbidden_place_is_no_way_around() {
    let world = World::new("a_link_to_a_forbidden_place_is_no_way_around");
    std::os::unix::fs::symlink(world.home(), world.path("link")).unwrap();
    let refused = world
        .atoll(["run", "--workspace", "link", "--", "true"])
        .run();
    refused.expect_status(126).is_clear_error(["home"]);
}

#[test]
fn a_run_inside_a_run_is_refused_clearly() {
    let world = World::new("a_run_inside_a_run_is_refused_clearly");
    let bin = std::env::var("ATOLL_BIN").unwrap();
    let copy = world.path("atoll");
    fs::copy(bin, &copy).unwrap();
    let nested = world.run_inside("./atoll run -- true").expect_status(125);
    nested.is_clear_error(["inside atoll run", "try:"]);
    // Without the mark it has to fail as well, only later.
    let hidden = world.run_inside("env -u ATOLL_RUN ./atoll run -- echo escaped");
    assert!(
        hidden.code() != 0 && !hidden.out().contains("escaped"),
        "{hidden}"
    );
}

// Profiles, limits, values.

#[test]
fn mistakes_in_a_profile_are_shown_with_line_and_suggestion() {
    let world = World::new("mistakes_in_a_profile_are_shown_with_line_and_suggestion");
    for (text, words) in [
        (
            "description = \"x\"\n\n[limits]\nmemroy = \"1GiB\"\n",
            vec![":4:", "memroy", "memory"],
        ),
        (
            "description = \"x\"\nextend = [\"rust\"]\n",
            vec![":2:", "extends"],
        ),
        (
            "description = \"x\"\n[limits]\nmemory = \"lots\"\n",
            vec![":3:", "lots"],
        ),
        (
            "description = \"x\"\n[limits]\nprocesses = -3\n",
            vec![":3:", "processes"],
        ),
        ("description = \"x\n", vec![":1:"]),
        (
            "description = \"x\"\nextends = [\"ruts\"]\n",
            vec!["ruts", "rust"],
        ),
        ("description = \"x\"\nextends = [\"bad\"]\n", vec!["circle"]),
        ("description = 3\n", vec![":1:"]),
        (
            "workspace = \"sideways\"\n",
            vec![":1:", "sideways", "copy-on-write"],
        ),
        ("[home]\nread = [\"/etc\"]\n", vec![":2:"]),
        ("[home]\nread = [\"../other\"]\n", vec![":2:"]),
    ] {
        world.profile("bad", text);
        let refused = world.run(["--profile", "bad"], "echo started").run();
        assert_eq!(refused.code(), 125, "{text}\n{refused}");
        assert_eq!(refused.out(), "");
        refused.is_clear_error(words);
    }
    assert!(world.runs().is_empty());
}

#[test]
fn an_unknown_profile_is_named_with_a_suggestion() {
    let world = World::new("an_unknown_profile_is_named_with_a_suggestion");
    let named = world
        .run(["--profile", "defualt"], "true")
        .run()
        .expect_status(125);
    named.is_clear_error(["defualt", "did you mean", "default"]);
    let file = world
        .run(["--profile", "./none.toml"], "true")
        .run()
        .expect_status(125);
    file.is_clear_error(["none.toml", "profile list"]);
    world.write("binary.toml", [0xff, 0xfe, 0, 1]);
    let binary = world
        .run(["--profile", "./binary.toml"], "true")
        .run()
        .expect_status(125);
    binary.is_clear_error(["binary.toml"]);
    world.write("long.toml", vec![b'#'; 2 << 20]);
    let long = world
        .run(["--profile", "./long.toml"], "true")
        .run()
        .expect_status(125);
    long.is_clear_error(["long.toml", "larger"]);
}

#[test]
fn unknown_limits_and_unusable_values_are_named() {
    let world = World::new("unknown_limits_and_unusable_values_are_named");
    for (limit, words) in [
        ("memroy=1GiB", vec!["memroy", "memory"]),
        ("memory", vec!["KEY=VALUE"]),
        ("memory=", vec!["memory"]),
        ("memory=much", vec!["much", "512MiB"]),
        ("memory=-1", vec!["-1"]),
        ("memory=0", vec!["memory"]),
        ("memory=99999999999999999999", vec!["memory"]),
        ("processes=0", vec!["processes"]),
        ("processes=1.5", vec!["processes"]),
        ("cpu=0", vec!["cpu"]),
        ("wall-clock=soon", vec!["soon", "90s"]),
        ("wall-clock=0s", vec!["wall-clock"]),
        ("open-files=1", vec!["open-files"]),
    ] {
        let refused = world.run(["--limit", limit], "echo started").run();
        assert_eq!(refused.code(), 125, "{limit}: {refused}");
        assert_eq!(refused.out(), "", "{limit}");
        refused.is_clear_error(words);
    }
    for (option, value) in [
        ("--timeout", "tomorrow"),
        ("--ro", "/no/such/place"),
        ("--env", "=x"),
        ("--resume", "nothing"),
    ] {
        let refused = world.run([option, value], "echo started").run();
        assert_eq!(refused.code(), 125, "{option} {value}: {refused}");
        assert_eq!(refused.out(), "", "{option} {value}");
        refused.is_clear_error([option.trim_start_matches('-')]);
    }
}

#[test]
fn a_json_file_that_cannot_be_written_is_an_error() {
    let world = World::new("a_json_file_that_cannot_be_written_is_an_error");
    let refused = world
        .run(["--json", "/no/such/file.json"], "echo new > new")
        .run()
        .expect_status(125);
    refused.is_clear_error(["--json", "/no/such/file.json"]);
}

#[test]
fn a_home_that_is_not_set_is_named() {
    let world = World::new("a_home_that_is_not_set_is_named");
    for invocation in [
        world.run(NONE, "true").without_env("HOME"),
        world.run(NONE, "true").env("HOME", "here"),
    ] {
        invocation.run().expect_status(125).is_clear_error(["HOME"]);
    }
}

#[test]
fn bytes_that_are_no_text_are_passed_on() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new("bytes_that_are_no_text_are_passed_on");
    let odd = std::ffi::OsStr::from_bytes(b"a\xff\x1b]52;\nb");
    let echoed = world
        .atoll(["run", "--", "printf", "%s"])
        .arg(odd)
        .run()
        .success();
    assert_eq!(echoed.stdout, odd.as_bytes());
    for arguments in [
        vec!["runs"],
        vec!["why"],
        vec!["runs", "--json"],
        vec!["ledger", "show"],
    ] {
        let told = world.atoll(arguments).run().success();
        assert!(!told.stdout.contains(&0x1b), "{told}");
    }
}

// The state directory.

#[test]
fn too_many_processes_outside_are_named() {
    let world = World::new("too_many_processes_outside_are_named");
    if is_root() {
        world.skip("the kernel allows root any number", Avoidable::No);
        return;
    }
    let error = world
        .run(NONE, "true")
        .under(["prlimit", "--nproc=1"])
        .run()
        .expect_status(125);
    error.is_clear_error(["launcher could not be started", "try:", "ulimit -u"]);
}

#[test]
fn each_error_says_what_to_do_next() {
    let world = World::new("each_error_says_what_to_do_next");
    let file = world.top().join("file");
    world.write(&file, "");
    for (options, state, advice) in [
        (&["--limit", "cpu=abc"][..], None, "atoll run --help"),
        (&["--profile", "nonsense"][..], None, "atoll profile list"),
        (&["--resume", "nonsense"][..], None, "atoll runs"),
        (&[][..], file.to_str(), "ls -ld"),
    ] {
        let mut invocation = world.run(options, "true");
        if let Some(state) = state {
            invocation = invocation.env("XDG_STATE_HOME", state);
        }
        let error = invocation.run().expect_status(125);
        error.is_clear_error(["try:", advice]);
        assert!(!error.err().contains("the profile was"), "{error}");
    }
}

#[test]
fn a_state_directory_that_is_a_file_is_refused() {
    let world = World::new("a_state_directory_that_is_a_file_is_refused");
    world.write(world.state().join("atoll"), "not a directory");
    let refused = world.run_inside("echo started").expect_status(125);
    refused.is_clear_error(["state", "not a directory", "XDG_STATE_HOME"]);
    assert_eq!(refused.out(), "");
    assert_eq!(world.read(world.state().join("atoll")), "not a directory");
}

#[test]
fn a_state_directory_that_others_can_write_to_is_refused() {
    let world = World::new("a_state_directory_that_others_can_write_to_is_refused");
    let _ = world.run_inside("true").success();
    let state = world.state().join("atoll");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = world.run_inside("echo started").expect_status(125);
    refused.is_clear_error(["state", "other users", "chmod go-w"]);
    assert_eq!(refused.out(), "");
    open_again(&state);
    let _ = world.run_inside("true").success();
}

#[test]
fn a_state_directory_that_is_read_only_is_refused() {
    let world = World::new("a_state_directory_that_is_read_only_is_refused");
    let _ = world.run_inside("echo new > new").success();
    let before = world.runs();
    let refused = if is_root() {
        let script = "mount --bind \"$XDG_STATE_HOME\" \"$XDG_STATE_HOME\"
            mount -o remount,bind,ro \"$XDG_STATE_HOME\"
            exec \"$ATOLL\" run -- echo started";
        match in_mount_namespace(&world, script) {
            None => return,
            Some(refused) => refused,
        }
    } else {
        let state = world.state().join("atoll");
        close_to_writing(&state);
        let refused = world.run_inside("echo started");
        open_again(&state);
        refused
    };
    let refused = refused.expect_status(125);
    refused.is_clear_error(["state"]);
    let said = refused.err().to_lowercase();
    assert!(
        said.contains("read-only") || said.contains("permission"),
        "{refused}"
    );
    assert_eq!(refused.out(), "");
    assert_eq!(world.runs(), before);
}

#[test]
fn no_space_in_the_state_directory_is_a_clear_error() {
    let world = World::new("no_space_in_the_state_directory_is_a_clear_error");
    world.write("text", "one\n");
    let before = tree(&world.workspace());
    let script = "mount -t tmpfs -o size=64k,mode=700 tmpfs \"$XDG_STATE_HOME\"
        head -c 1M /dev/zero > \"$XDG_STATE_HOME/fill\" 2>/dev/null || true
        exec \"$ATOLL\" run -- echo started";
    let Some(refused) = in_mount_namespace(&world, script) else {
        return;
    };
    refused.expect_status(125).is_clear_error(["space"]);
    assert!(tree(&world.workspace()) == before);
}

#[test]
fn a_program_that_fills_the_state_directory_gets_the_error_and_the_run_is_kept() {
    let world =
        World::new("a_program_that_fills_the_state_directory_gets_the_error_and_the_run_is_kept");
    let script = "mount -t tmpfs -o size=4m,mode=700 tmpfs \"$XDG_STATE_HOME\"
        head -c 1M /dev/zero > \"$XDG_STATE_HOME/fill\"
        \"$ATOLL\" run --keep -- sh -c 'echo small > small; head -c 32M /dev/zero > big || echo full' || echo status $?
        \"$ATOLL\" runs --json
        \"$ATOLL\" ledger verify
        \"$ATOLL\" ledger show last | grep -q run.closed && echo closed
        rm \"$XDG_STATE_HOME/fill\"
        \"$ATOLL\" apply last small
        cat small
        \"$ATOLL\" discard last --yes && \"$ATOLL\" ledger verify";
    let Some(ended) = in_mount_namespace(&world, script) else {
        return;
    };
    let out = ended.out();
    assert!(
        out.contains("full") || ended.err().contains("space"),
        "{ended}"
    );
    assert!(!ended.err().contains("panicked"), "{ended}");
    // There is room for the run's end all the same.
    assert!(out.contains("\"state\": \"kept\""), "{ended}");
    assert!(out.contains("\nclosed\n"), "{ended}");
    assert!(out.contains("\nsmall\n"), "{ended}");
    assert_eq!(out.matches("The ledger is whole").count(), 2, "{ended}");
}

#[test]
fn no_space_in_the_workspace_at_apply_leaves_it_as_it_was() {
    let world = World::new("no_space_in_the_workspace_at_apply_leaves_it_as_it_was");
    let script = "mount -t tmpfs -o size=1m tmpfs .
        cd \"$PWD\"
        echo one > text
        \"$ATOLL\" run --keep -- sh -c 'echo two >> text; head -c 200k /dev/zero > fits; head -c 4M /dev/zero > too-big' 2>/dev/null
        \"$ATOLL\" apply last && echo applied || echo status $?
        ls
        cat text
        \"$ATOLL\" apply last text && cat text";
    let Some(ended) = in_mount_namespace(&world, script) else {
        return;
    };
    ended.is_clear_error(["could not be applied", "space", "kept"]);
    assert_eq!(ended.out(), "status 125\ntext\none\none\ntwo\n", "{ended}");
}

#[test]
fn a_workspace_that_is_read_only_at_apply_stays_as_it_was() {
    let world = World::new("a_workspace_that_is_read_only_at_apply_stays_as_it_was");
    world.write("dir/text", "one\n");
    let _ = world
        .run_inside("echo two >> dir/text; echo new > new")
        .success();
    let before = tree(&world.workspace());
    let script = "mount --bind . .
        mount -o remount,bind,ro .
        cd \"$PWD\"
        exec \"$ATOLL\" apply last";
    let Some(refused) = in_mount_namespace(&world, script) else {
        return;
    };
    refused.expect_status(125).is_clear_error(["Read-only"]);
    assert!(tree(&world.workspace()) == before);
    let _ = world.atoll(["apply", "last"]).run().success();
}

#[test]
fn state_on_an_overlay_falls_back_to_a_copy_and_says_so() {
    let world = World::new("state_on_an_overlay_falls_back_to_a_copy_and_says_so");
    world.write("text", "one\n");
    world.write("gone", "gone\n");
    world.write("dir/in", "in\n");
    let script = "mkdir ../upper ../work ../lower
        options=lowerdir=../lower,upperdir=../upper,workdir=../work
        mount -t overlay -o $options,userxattr overlay \"$XDG_STATE_HOME\" 2>/dev/null || mount -t overlay -o $options overlay \"$XDG_STATE_HOME\"
        \"$ATOLL\" run --keep -- sh -c 'echo two >> text; rm gone; mv dir moved; echo new > new'
        cat text
        \"$ATOLL\" diff last --stat
        \"$ATOLL\" apply last
        cat text new moved/in
        test ! -e gone
        \"$ATOLL\" undo last
        cat text gone dir/in
        test ! -e new";
    let Some(ended) = in_mount_namespace(&world, script) else {
        return;
    };
    ended.says(["copied", "XDG_STATE_HOME"]);
    let ended = ended.success();
    let out = ended.out();
    assert!(out.starts_with("one\n"), "{ended}");
    assert!(
        out.contains("M text") && out.contains("D gone") && out.contains("A new"),
        "{ended}"
    );
    assert!(
        out.ends_with("one\ntwo\nnew\nin\none\ngone\nin\n"),
        "{ended}"
    );
}

/// Names of a workspace and of a mount in it: those that the kernel's list of mounts escapes, and
/// some that are no text.
const MOUNT_NAMES: [(&[u8], &[u8]); 7] = [
    (b"plain", b"sub"),
    (b"with spaces", b"a b"),
    (b"line\nbreak", b"tab\tand\\backslash"),
    (b"looks\\040escaped", b"a - b"),
    (b"\xef\xbf\xbd", b"\xef\xbf\xbd"),
    (b"not\xfftext", b"sub"),
    (b"\xfe\xff", b"\xff\xfe #"),
];

#[test]
fn a_mount_inside_the_workspace_is_refused_or_shown() {
    let world = World::new("a_mount_inside_the_workspace_is_refused_or_shown");
    let script = "mkdir -p \"$PLACE/$SUB\"
        cd \"$PLACE\"
        mount -t tmpfs tmpfs \"$SUB\"
        echo inner > \"$SUB/file\"
        \"$ATOLL\" run --keep -- sh -c 'cat \"$1/file\"' sh \"$SUB\" && echo shown || echo status $?";
    for (place, sub) in MOUNT_NAMES.map(|(place, sub)| (os(place), os(sub))) {
        let Some(script) = mount_script(&world, script) else {
            return;
        };
        let ended = script.env("PLACE", place).env("SUB", sub).run();
        let out = ended.out();
        if !out.contains("inner") {
            assert!(
                out.contains("status 125"),
                "{place:?} is silently wrong\n{ended}"
            );
            ended.is_clear_error(["mount of its own"]);
        }
    }
}

fn os(name: &'static [u8]) -> &'static OsStr {
    OsStr::from_bytes(name)
}

#[test]
fn root_of_a_user_namespace_is_served_or_refused_clearly() {
    let world = World::new("root_of_a_user_namespace_is_served_or_refused_clearly");
    if !can_be_ordinary_root() {
        return world.skip("user namespaces cannot be made here", Avoidable::No);
    }
    // As in a rootless container: uid 0, but few other ids.
    let options = ["unshare", "--user", "--map-root-user", "--"];
    let ran = world.run(NONE, "echo started").under(options).run();
    if ran.code() == 0 {
        assert_eq!(ran.out(), "started\n");
    } else {
        ran.expect_status(125).is_clear_error(["user namespace"]);
    }
}

/// `$ATOLL` as root of a user namespace that has these ids, and in which no further one
/// can be made: to the kernel it is the host's root, without that one's rights.
const ROOT_WITHOUT_FURTHER_NAMESPACES: &str = "\
    unshare --user -- sh -c 'until grep -q . /proc/self/uid_map; do sleep 0.01; done
        exec sh -c \"echo 0 > /proc/sys/user/max_user_namespaces; \\\"$ATOLL\\\" $WORDS\"' &
    own=$(readlink /proc/self/ns/user)
    until [ \"$(readlink /proc/$!/ns/user)\" != \"$own\" ]; do sleep 0.01; done
    echo $IDS > /proc/$!/gid_map
    echo $IDS > /proc/$!/uid_map
    wait $!";

#[test]
fn the_hosts_root_in_a_user_namespace_that_holds_no_further_one_is_refused_clearly() {
    let name = "the_hosts_root_in_a_user_namespace_that_holds_no_further_one_is_refused_clearly";
    let world = World::new(name);
    if !is_root() {
        return world.skip("only root is the host's root", Avoidable::No);
    }
    let cases = [
        ("0 0 4294967295", "this root is one of a user namespace"),
        ("0 0 1", "who is root to the kernel"),
    ];
    for (ids, why) in cases {
        let shell = |words: &str| {
            let shell = world.host_shell(ROOT_WITHOUT_FURTHER_NAMESPACES);
            shell.env("IDS", ids).env("WORDS", words).run()
        };
        let ran = shell("run --discard -- echo started").expect_status(125);
        assert_eq!(ran.out(), "");
        ran.is_clear_error(["no user namespaces can be made", why, "atoll doctor"]);
        assert!(!ran.err().contains("/etc"), "{}", ran.err());
        let doctor = shell("doctor").out();
        let says = ["does not start here", why, "user.max_user_namespaces=15000"];
        assert!(says.iter().all(|one| doctor.contains(one)), "{doctor}");
    }
}

/// `$ATOLL` as root of a user namespace that has all ids, and in which no further
/// one can be made, because one uses the limit up: by the settings they can. Its first
/// shell has no rights yet: it got its ids too late.
const NO_FURTHER_NAMESPACES: &str = "\
    unshare --user --pid --fork --mount-proc -- sh -c 'until grep -q . /proc/self/uid_map; do sleep 0.01; done
        exec sh -c \"echo 1 > /proc/sys/user/max_user_namespaces
            unshare --user sleep 60 &
            here=\\$(readlink /proc/self/ns/user)
            until [ \\$(readlink /proc/\\$!/ns/user) != \\$here ]; do sleep 0.01; done
            \\\"$ATOLL\\\" run --discard -- echo started
            ended=\\$?
            kill \\$!
            exit \\$ended\"' &
    own=$(readlink /proc/self/ns/user)
    until [ \"$(readlink /proc/$!/ns/user)\" != \"$own\" ]; do sleep 0.01; done
    echo 0 0 4294967295 > /proc/$!/gid_map
    echo 0 0 4294967295 > /proc/$!/uid_map
    wait $!";

#[test]
fn a_launcher_that_fails_early_is_told_with_its_reason() {
    /// The number of tries. The launcher fails while the control groups are made, and either can
    /// come first.
    const ROUNDS: u32 = 25;
    let world = World::new("a_launcher_that_fails_early_is_told_with_its_reason");
    if !is_root() {
        return world.skip("only root can give all ids to a namespace", Avoidable::No);
    }
    for _ in 0..ROUNDS {
        let ran = world.host_shell(NO_FURTHER_NAMESPACES).run();
        let ran = ran.expect_status(125);
        assert_eq!(ran.out(), "");
        ran.is_clear_error([
            "mapping user ids",
            "No space left",
            "user.max_user_namespaces",
        ]);
    }
}

// The ledger.

#[test]
fn a_run_to_resume_stays_whole_when_the_disk_does_not_take_the_record() {
    let world = World::new("a_run_to_resume_stays_whole_when_the_disk_does_not_take_the_record");
    let kept = world.run(["--keep"], "echo precious > work").run();
    let _ = kept.success();
    let earlier = world.last_run();
    let refused = world
        .run(["--keep", "--resume", &earlier], "echo started")
        .under(strace(FAILING_DISK))
        .run();
    assert_eq!(refused.out(), "");
    let _ = refused.expect_status(125);
    let _ = world.atoll(["apply", &earlier]).run().success();
    assert_eq!(world.read("work"), "precious\n");
}

#[test]
fn nothing_starts_when_the_disk_does_not_take_the_record() {
    let world = World::new("nothing_starts_when_the_disk_does_not_take_the_record");
    // Makes the ledger, which waits for the disk too.
    let _ = world.run_inside("true").success();
    let before = tree(&world.workspace());
    let kinds = [
        (&["--live", "--keep"][..], "live"),
        (&["--discard"], "scratch"),
    ];
    for (options, kind) in kinds {
        let refused = world
            .run(options, "echo started; touch started")
            .under(strace(FAILING_LEDGER))
            .run();
        assert_eq!(refused.out(), "", "{kind}");
        let _ = refused
            .expect_status(125)
            .is_clear_error(["ledger", "disk"]);
        assert_eq!(tree(&world.workspace()), before, "{kind}");
        // Once the disk is well again.
        let next = world.run_inside("true").success();
        let _ = next.says(["was interrupted"]);
        // Without its key nothing starts either.
        let unsealed = world.run(options, "echo started; touch started");
        let unsealed = unsealed.under(strace(FAILING_DISK)).run();
        assert_eq!(unsealed.out(), "", "{kind}");
        let _ = unsealed
            .expect_status(125)
            .is_clear_error(["seals/keys", "disk"]);
        assert_eq!(tree(&world.workspace()), before, "{kind}");
        let next = world.run_inside("true").success();
        let _ = next.says(["was interrupted"]);
    }
    let scratch = world.state().join("atoll/scratch");
    assert_eq!(fs::read_dir(scratch).map_or(0, Iterator::count), 0);
}

#[test]
fn a_cut_ledger_is_refused_or_repaired_but_never_hidden() {
    let world = World::new("a_cut_ledger_is_refused_or_repaired_but_never_hidden");
    for _ in 0..2 {
        let _ = world.run_inside("echo new > new").success();
    }
    let kept = world.last_run();
    let path = world.segment();
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let verified = world.atoll(["ledger", "verify"]).run().expect_status(1);
    verified.is_clear_error(["damaged", "keep a copy"]);
    let run = world.run_inside("echo started");
    assert!(!run.err().contains("panicked"), "{run}");
    if run.code() == 0 {
        let verified = world.atoll(["ledger", "verify"]).run();
        assert_eq!(verified.code(), 1, "the cut was forgotten\n{verified}");
    } else {
        run.expect_status(125).is_clear_error(["ledger"]);
    }
    // What was kept is not lost with it.
    assert!(
        world
            .atoll(["diff", &kept])
            .run()
            .success()
            .out()
            .contains("+new")
    );
}

#[test]
fn an_altered_ledger_is_refused_or_told_but_never_hidden() {
    let world = World::new("an_altered_ledger_is_refused_or_told_but_never_hidden");
    for _ in 0..2 {
        let _ = world.run_inside("true").success();
    }
    let path = world.segment();
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    fs::write(&path, &bytes).unwrap();
    let run = world.run_inside("echo started");
    assert!(!run.err().contains("panicked"), "{run}");
    if run.code() != 0 {
        run.expect_status(125).is_clear_error(["ledger"]);
    }
    let verified = world.atoll(["ledger", "verify"]).run().expect_status(1);
    verified.is_clear_error(["damaged"]);
}

#[test]
fn a_torn_last_line_of_the_ledger_is_repaired_and_told() {
    let world = World::new("a_torn_last_line_of_the_ledger_is_repaired_and_told");
    let _ = world.run_inside("true").success();
    let path = world.segment();
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"half\":");
    fs::write(&path, &bytes).unwrap();
    let run = world.run_inside("echo started").success();
    assert_eq!(run.out(), "started\n");
    let _ = world.atoll(["ledger", "verify"]).run().success();
}

#[test]
fn a_broken_record_of_a_run_does_not_hide_the_others() {
    let world = World::new("a_broken_record_of_a_run_does_not_hide_the_others");
    let _ = world.run_inside("echo new > new").success();
    let broken = world.last_run();
    fs::write(
        world
            .state()
            .join("atoll/runs")
            .join(&broken)
            .join("record.json"),
        "{",
    )
    .unwrap();
    let _ = world.run_inside("echo other > other").success();
    let listed = world.atoll(["runs"]).run().success();
    listed.says(["warning", broken.as_str()]);
    assert_eq!(world.runs().len(), 1);
    let refused = world.atoll(["apply", &broken]).run().expect_status(125);
    refused.is_clear_error([broken.as_str()]);
}

#[test]
fn commands_without_any_state_say_so() {
    let world = World::new("commands_without_any_state_say_so");
    for arguments in [
        vec!["diff"],
        vec!["apply", "last"],
        vec!["discard", "last"],
        vec!["undo", "last"],
        vec!["why"],
        vec!["ledger", "verify"],
    ] {
        let told = world.atoll(arguments).run().expect_status(125);
        told.is_clear_error([" yet", "atoll run"]);
    }
    assert!(
        !world.state().join("atoll").exists(),
        "looking made a state directory"
    );
}
