use super::*;

/// Each file has one problem: its place, and a text that the message contains.
#[test]
fn mistakes_have_a_place_and_a_hint() {
    let long = format!("commands = [{}]", "\"a\",".repeat(1_001));
    let large = format!("# {}", "x".repeat(300 << 10));
    for (file, text, place, holds) in [
        (
            "p.toml",
            "descripton = 'x'",
            (1, 1),
            "did you mean `description`?",
        ),
        (
            "p.toml",
            "\n  comands = ['x']",
            (2, 3),
            "did you mean `commands`?",
        ),
        (
            "p.toml",
            "zebra = 1",
            (1, 1),
            "The keys at the top level are: description, extends",
        ),
        (
            "p.toml",
            "[system]\nreed = []",
            (2, 1),
            "did you mean `read`? The keys in [system] are: read, root",
        ),
        (
            "p.toml",
            "[home]\nread = []\nlayers = []",
            (3, 1),
            "did you mean `layer`?",
        ),
        (
            "p.toml",
            "[home]\nkeepcaches = true",
            (2, 1),
            "did you mean `keep-caches`?",
        ),
        (
            "p.toml",
            "[files]\nwrite = []",
            (2, 1),
            "unknown key `write` in [files]",
        ),
        (
            "p.toml",
            "[environment]\npas = []",
            (2, 1),
            "did you mean `pass`?",
        ),
        (
            "p.toml",
            "[limits]\nmemroy = '1G'",
            (2, 1),
            "did you mean `memory`? The keys in [limits] are: memory, swap",
        ),
        (
            "p.toml",
            "[terminal]\nquery = true",
            (2, 1),
            "did you mean `queries`?",
        ),
        (
            "p.toml",
            "[syscalls]\ndeny_sockets = true",
            (2, 1),
            "did you mean `deny-sockets`?",
        ),
        (
            "p.toml",
            "[programs]\nexecutes = []",
            (2, 1),
            "did you mean `execute`?",
        ),
        (
            "p.toml",
            "[dangerous]\nunenforced-limit = true",
            (2, 1),
            "did you mean `unenforced-limits`?",
        ),
        ("p.toml", "home.reads = []", (1, 6), "did you mean `read`?"),
        ("p.toml", "profile = 'x'", (1, 1), "unknown key `profile`"),
        ("p.toml", "deny = {}", (1, 1), "unknown key `deny`"),
        ("p.toml", "a = ", (1, 5), "not valid TOML"),
        (
            "p.toml",
            "workspace = 'live'\nworkspace = 'live'",
            (2, 1),
            "duplicate key",
        ),
        (
            "p.toml",
            "description = 3",
            (1, 15),
            "must be a text, not a whole number",
        ),
        (
            "p.toml",
            "workspace = 'cow'",
            (1, 13),
            "here\n  write one of: copy-on-write, live, read-only",
        ),
        (
            "p.toml",
            "workspace = 'readonly'",
            (1, 13),
            "did you mean \"read-only\"?",
        ),
        (
            "p.toml",
            "network = 'full'",
            (1, 11),
            "write \"none\", or a table: [network] allow",
        ),
        (
            "p.toml",
            "forbid-live = 'yes'",
            (1, 1),
            "must be true or false, not a text",
        ),
        (
            "p.toml",
            "extends = 'rust'",
            (1, 1),
            "write extends = [\"rust\"]",
        ),
        (
            "p.toml",
            "extends = ['../rust']",
            (1, 12),
            "is not a profile's name",
        ),
        (
            "p.toml",
            "commands = ['/bin/ls']",
            (1, 13),
            "is not a command's base name",
        ),
        (
            "p.toml",
            "commands = [1]",
            (1, 13),
            "must be a text, not a whole number",
        ),
        ("p.toml", long.as_str(), (1, 1), "more than 1000 entries"),
        ("p.toml", large.as_str(), (1, 1), "larger than 262144 bytes"),
        (
            "p.toml",
            "home = []",
            (1, 1),
            "[home] must be a table, not a list",
        ),
        (
            "p.toml",
            "home.read = ['/etc']",
            (1, 14),
            "absolute paths go to [files] read",
        ),
        (
            "p.toml",
            "home.read = ['~/.cargo']",
            (1, 14),
            "write \".cargo\"",
        ),
        (
            "p.toml",
            "home.read = ['../bob']",
            (1, 14),
            "free of `.` and `..`",
        ),
        (
            "p.toml",
            "home.read = ['a/../../bob']",
            (1, 14),
            "free of `.` and `..`",
        ),
        (
            "p.toml",
            "home.read = ['']",
            (1, 14),
            "not a place relative to the home",
        ),
        (
            "p.toml",
            "home.read = ['~']",
            (1, 14),
            "not a place relative to the home",
        ),
        (
            "p.toml",
            "home.read = ['.']",
            (1, 14),
            "not a place relative to the home",
        ),
        (
            "p.toml",
            "home.layer = ['x']\nhome.read=['x']",
            (2, 1),
            "named twice",
        ),
        (
            "p.toml",
            "home.read = ['a\\u0000b']".replace('\'', "\"").leak(),
            (1, 14),
            "not a place",
        ),
        (
            "p.toml",
            "system.read = ['usr']",
            (1, 16),
            "not an absolute path",
        ),
        (
            "p.toml",
            "system.read = ['~/x']",
            (1, 16),
            "go to [home] or to [files]",
        ),
        (
            "p.toml",
            "system.read = ['/usr/../home']",
            (1, 16),
            "free of `.` and `..`",
        ),
        (
            "p.toml",
            "system.read = ['/usr/./lib']",
            (1, 16),
            "free of `.` and `..`",
        ),
        (
            "p.toml",
            "system.read = ['/']",
            (1, 16),
            "/ is never shown: it is the whole system",
        ),
        (
            "p.toml",
            "system.read = ['/proc/1']",
            (1, 16),
            "a /proc of its own",
        ),
        ("p.toml", "system.read = ['/sys']", (1, 16), "never shown"),
        (
            "p.toml",
            "system.read = ['//dev//shm']",
            (1, 16),
            "never shown",
        ),
        (
            "p.toml",
            "files.read = ['/run/user/1000']",
            (1, 15),
            "sockets of the host's services",
        ),
        (
            "p.toml",
            "files.read = ['/var/run']",
            (1, 15),
            "sockets of the host's services",
        ),
        (
            "p.toml",
            "files.read = ['/var']",
            (1, 15),
            "sockets of the host's services",
        ),
        (
            "p.toml",
            "files.read = ['/tmp/']",
            (1, 15),
            "a /tmp of its own",
        ),
        (
            "p.toml",
            "files.read = ['~']",
            (1, 15),
            "the home directory itself",
        ),
        (
            "p.toml",
            "files.read = ['~/']",
            (1, 15),
            "not a place relative to the home",
        ),
        (
            "p.toml",
            "environment.pass = ['*']",
            (1, 21),
            "name the whole environment",
        ),
        (
            "p.toml",
            "environment.pass = ['A*B*']",
            (1, 21),
            "is not a variable's name",
        ),
        (
            "p.toml",
            "environment.pass = ['A=B']",
            (1, 21),
            "is not a variable's name",
        ),
        (
            "p.toml",
            "environment.pass = ['ATOLL_RUN']",
            (1, 21),
            "is Atoll's own",
        ),
        (
            "p.toml",
            "environment.set = { ATOLL_X = '1' }",
            (1, 21),
            "is Atoll's own",
        ),
        (
            "p.toml",
            "environment.set = { 'A B' = '1' }",
            (1, 21),
            "is not a variable's name",
        ),
        (
            "p.toml",
            "environment.set = { A = true }",
            (1, 21),
            "must be a text or a number",
        ),
        (
            "p.toml",
            "environment.set = { A = \"\\u0000\" }",
            (1, 21),
            "cannot hold a NUL",
        ),
        (
            "p.toml",
            "limits.memory = '200%'",
            (1, 8),
            "not a percentage",
        ),
        (
            "p.toml",
            "limits.memory = true",
            (1, 8),
            "must be a text or a number",
        ),
        (
            "p.toml",
            "limits.processes = 0x40",
            (1, 8),
            "must be a text or a number",
        ),
        (
            "p.toml",
            "limits.processes = -1",
            (1, 8),
            "not a whole number",
        ),
        (
            "p.toml",
            "limits.cpu = nan",
            (1, 8),
            "not a number of processors",
        ),
        ("p.toml", "limits.wall-clock = 5", (1, 8), "not a duration"),
        ("p.toml", "limits.disk = 'none'", (1, 8), "not a size"),
        (
            "p.toml",
            "terminal.title = 1",
            (1, 10),
            "must be true or false",
        ),
        (
            "p.toml",
            "programs.execute = []",
            (1, 1),
            "nothing could start",
        ),
        (
            "p.toml",
            "programs.execute = ['bin']",
            (1, 21),
            "not an absolute path",
        ),
        (
            "config.toml",
            "default-profil = 'x'",
            (1, 1),
            "did you mean `default-profile`?",
        ),
        (
            "config.toml",
            "default-profile = 'a/b'",
            (1, 19),
            "is not a profile's name",
        ),
        (
            "atoll.toml",
            "extends = ['rust']",
            (1, 1),
            "name a profile with `profile`",
        ),
        (
            "atoll.toml",
            "commands = ['make']",
            (1, 1),
            "only profiles have this",
        ),
        (
            "atoll.toml",
            "system.read = []",
            (1, 1),
            "cannot choose the system's directories",
        ),
        (
            "atoll.toml",
            "[dangerous]\nunenforced-limits = true",
            (1, 2),
            "cannot weaken the boundary",
        ),
        (
            "atoll.toml",
            "home.keep-caches = true",
            (1, 6),
            "kept between runs",
        ),
        (
            "atoll.toml",
            "home.keep = ['.c']",
            (1, 6),
            "kept between runs",
        ),
        (
            "atoll.toml",
            "terminal.clipboard = true",
            (1, 10),
            "only set it to false",
        ),
        (
            "atoll.toml",
            "syscalls.deny-debugging = false",
            (1, 10),
            "only set it to true",
        ),
        (
            "atoll.toml",
            "forbid-live = false",
            (1, 1),
            "only set it to true",
        ),
        (
            "atoll.toml",
            "environment.pass = ['NPM_TOKEN']",
            (1, 21),
            "it looks like a secret",
        ),
        (
            "atoll.toml",
            "environment.pass = ['LD_PRELOAD']",
            (1, 21),
            "makes programs load",
        ),
        (
            "atoll.toml",
            "[deny]\nhome = []",
            (2, 1),
            "The keys in [deny] are: home-read, files, environment",
        ),
        (
            "atoll.toml",
            "profil = 'x'",
            (1, 1),
            "did you mean `profile`?",
        ),
        (
            "organisation.toml",
            "forbid-dangeros = true",
            (1, 1),
            "did you mean `forbid-dangerous`?",
        ),
        (
            "organisation.toml",
            "[deny]\nfile = []",
            (2, 1),
            "did you mean `files`?",
        ),
        (
            "organisation.toml",
            "[require]\nlive = false",
            (2, 1),
            "The keys in [require] are: workspace",
        ),
        (
            "organisation.toml",
            "require.workspace = ['live']",
            (1, 21),
            "must be a text, not a list",
        ),
        (
            "organisation.toml",
            "require.deny-sockets = false",
            (1, 9),
            "only set it to true",
        ),
        (
            "organisation.toml",
            "terminal.title = true",
            (1, 10),
            "only set it to false",
        ),
        (
            "organisation.toml",
            "deny.files = ['secret']",
            (1, 15),
            "not an absolute path",
        ),
        (
            "organisation.toml",
            "deny.environment = ['*']",
            (1, 21),
            "whole environment",
        ),
        (
            "organisation.toml",
            "limits.memory = 'lots'",
            (1, 8),
            "not a size",
        ),
        (
            "organisation.toml",
            "[home]\nread = []",
            (1, 2),
            "unknown key `home`",
        ),
    ] {
        let problems = check(text.as_bytes(), file);
        let shown: Vec<String> = problems.iter().map(Problem::to_string).collect();
        let shown = shown.join("\n");
        let first = problems
            .first()
            .unwrap_or_else(|| panic!("accepted: {text}"));
        let at = (first.line, first.column);
        let column_counts =
            !text.starts_with("home.layer") && !text.starts_with("programs.execute = []");
        assert_eq!(first.line, place.0, "{text}: {shown}");
        assert!(!column_counts || at == place, "{text}: {shown}");
        assert!(shown.contains(holds), "{text}: {shown}");
        assert!(shown.starts_with(file), "{shown}");
    }
}

#[test]
fn all_mistakes_show_at_once_in_the_order_of_lines() {
    let text = "network = 'all'\n[home]\nread = ['/x']\nlayr = []\n[limits]\ncpu = 'x'\n";
    let lines: Vec<u32> = check(text.as_bytes(), "p.toml")
        .iter()
        .map(|problem| problem.line)
        .collect();
    assert_eq!(lines, [1, 3, 4, 6]);
}

#[test]
fn grants_of_a_session_are_refused_by_name() {
    for (key, why) in [
        ("display", "X11"),
        ("audio", "microphone"),
        ("dbus", "session bus"),
        ("keyring", "credential"),
        ("docker", "root on this host"),
        ("devices", "hardware"),
    ] {
        for file in ["p.toml", "atoll.toml"] {
            let text = format!("[grants]\n{key} = true\n");
            let problems = check(text.as_bytes(), file);
            let shown: Vec<String> = problems.iter().map(Problem::to_string).collect();
            assert_eq!(shown.len(), 1, "{shown:?}");
            assert!(
                shown[0].contains("never granted") && shown[0].contains(why),
                "{shown:?}"
            );
        }
    }
    assert!(check(b"[grants]\nclipboard = true\n", "p.toml").is_empty());
    let project = check(b"[grants]\nclipboard = true\n", "atoll.toml");
    assert_eq!(project.len(), 1, "a project's file grants nothing");
}

#[test]
fn text_that_is_not_utf_8_is_refused_where_it_starts_to_be() {
    let problems = check(b"description = 'x'\n# \xff\n", "p.toml");
    assert_eq!((problems[0].line, problems[0].column), (2, 3));
}

#[test]
fn columns_count_characters() {
    let problems = check("environment = { 'ä' = {}, 'paß' = 1 }".as_bytes(), "p.toml");
    assert_eq!(problems[0].column, 17);
    assert_eq!(problems[1].column, 27);
}

#[test]
fn good_files_have_no_problems() {
    for (file, text) in [
        ("p.toml", ""),
        (
            "p.toml",
            r#"
description = "all of it"
extends = ["rust"]
commands = ["x"]
workspace = "read-only"
forbid-live = true
network = { allow = ["example.com", "*.example.com:22", "10.0.0.0/8:5432"], deny = ["*:25"] }
system.read = ["/usr", "/etc/ssl"]
files.read = ["/srv/data", "~/data"]
[home]
read = [".a"]
layer = [".b"]
cache = [".c"]
keep-caches = true
[environment]
pass = ["RUST_LOG", "CARGO_*", "NPM_TOKEN"]
set = { A = "1", B = 2, C = 1.5 }
[limits]
memory = "50%"
swap = 0
processes = 1_000
open-files = 100
disk = "1G"
inodes = 10
tmp = "10%"
cpu = 1.5
wall-clock = "1h30m"
idle = "none"
output = "1MiB"
[terminal]
queries = true
clipboard = true
title = false
[syscalls]
deny-debugging = true
deny-sockets = false
[programs]
execute = ["/usr/bin", "~/.cargo/bin"]
[dangerous]
unenforced-limits = true
"#,
        ),
        ("x/config.toml", "default-profile = 'rust'"),
        (
            "/src/atoll.toml",
            "profile='rust'\nworkspace='read-only'\nforbid-live=true\nnetwork='none'\n\
             home.read=['x']\ndeny.home-read=['.ssh']\ndeny.files=['/run','~/y']\n\
             deny.environment=['AWS_*']\ndeny.network=['*:25']\nterminal.title=false\nsyscalls.deny-sockets=true",
        ),
        (
            "/etc/atoll/organisation.toml",
            "description='us'\nforbid-dangerous=true\nlimits.memory='8G'\n\
             deny.network=['*.example.com:*']\n[require]\nworkspace='copy-on-write'\ndeny-debugging=true\n[terminal]\nclipboard=false",
        ),
    ] {
        assert_eq!(check(text.as_bytes(), file), [], "{file}: {text}");
    }
}

#[test]
fn a_place_that_only_this_host_forbids_is_a_mistake_of_the_file() {
    for (text, why) in [
        ("files.read = ['/home/ann']", "the home directory itself"),
        ("files.read = ['/home']", "holds the home directory"),
        ("system.read = ['/home']", "holds the home directory"),
        ("home.read = ['.local']", "Atoll's own state is there"),
        (
            "home.layer = ['.local/state/atoll/runs']",
            "Atoll's own state is there",
        ),
        (
            "home.cache = ['.config']",
            "Atoll's own configuration is there",
        ),
        (
            "files.read = ['~/.config/atoll/profiles']",
            "Atoll's own configuration",
        ),
    ] {
        let error = world().profile("p", &format!("\n{text}")).with("p").error();
        assert!(error.contains(why), "{text}: {error}");
        assert!(error.starts_with("user/p.toml:2:"), "{error}");
    }
}
