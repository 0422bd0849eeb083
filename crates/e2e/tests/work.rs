//! Real work in a sandbox, judged by its results: each test has a program work in `atoll run`, checks
//! that nothing has changed outside, applies, and uses the result outside.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use e2e::{Avoidable, Invocation, Outcome, World, cache, is_root, program_exists, tree};

/// Builds and tools on a busy machine take longer than anything else.
const LONG: Duration = Duration::from_secs(300);

/// Returns a world with files in its workspace.
fn world_with(name: &str, files: &[(&str, &str)]) -> World {
    let world = World::new(name);
    for (path, content) in files {
        world.write(path, content);
    }
    world
}

/// Returns whether the host has all these programs; else the test is skipped.
fn has(world: &World, programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs
        .iter()
        .filter(|name| !program_exists(name))
        .copied()
        .collect();
    if missing.is_empty() {
        return true;
    }
    world.skip(
        &format!("not installed: {}", missing.join(", ")),
        Avoidable::Yes,
    );
    false
}

/// Runs a script in a sandbox that must succeed and must not touch the workspace.
fn inside(world: &World, options: &[&str], script: &str) -> Outcome {
    let before = tree(&world.workspace());
    let options: Vec<&str> = ["--keep"].iter().chain(options).copied().collect();
    let done = world
        .run(options, &format!("set -eu\n{script}"))
        .within(LONG)
        .run()
        .success();
    assert!(
        tree(&world.workspace()) == before,
        "the workspace changed\n{done}"
    );
    done
}

/// Applies all changes of the last run.
fn apply_all(world: &World) {
    let all = ["apply", "last", "--control", "--caches", "--ignored"];
    let _ = world.atoll(all).within(LONG).run().success();
}

fn host(world: &World, program: impl AsRef<Path>) -> Invocation {
    world.host(program.as_ref()).within(LONG)
}

/// Returns the toolchain that a sandbox can show: in no home, in a directory that everyone may
/// enter.
fn toolchain() -> Option<PathBuf> {
    let given = std::env::var_os("ATOLL_TEST_TOOLCHAIN").map(PathBuf::from);
    given.filter(|path| path.join("bin/cargo").is_file())
}

const CARGO_TOML: &str =
    "[package]\nname = \"adds\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n";
const LIB_RS: &str = "pub fn add(a: u64, b: u64) -> u64 { a + b }\n\n\
    #[test]\nfn adds() { assert_eq!(add(40, 2), 42); }\n";
const MAIN_RS: &str = "fn main() { println!(\"{}\", adds::add(40, 2)); }\n";

#[test]
fn a_rust_crate_is_built_tested_and_run() {
    let files = [
        ("Cargo.toml", CARGO_TOML),
        ("src/lib.rs", LIB_RS),
        ("src/main.rs", MAIN_RS),
    ];
    let world = world_with("a_rust_crate_is_built_tested_and_run", &files);
    let Some(toolchain) = toolchain() else {
        return world.skip("ATOLL_TEST_TOOLCHAIN names no toolchain", Avoidable::Yes);
    };
    if !has(&world, &["cc"]) {
        return;
    }
    let bin = toolchain.join("bin");
    let toolchain = toolchain.to_string_lossy().into_owned();
    let options = ["--profile", "rust", "--ro", &toolchain];
    let script = format!(
        "export PATH={}:$PATH; cargo build --offline; cargo test --offline; cargo run --offline",
        bin.display()
    );
    let done = inside(&world, &options, &script);
    assert!(done.out().contains("test adds ... ok"), "{done}");
    assert!(done.out().ends_with("42\n"), "{done}");

    // What is built is a cache: counted apart, applied on request.
    for options in [&["diff", "last"][..], &["diff", "last", "--stat"]] {
        let shown = world.atoll(options).run().success().out();
        let cached = shown
            .lines()
            .filter(|line| line.contains("target/debug"))
            .count();
        assert_eq!(
            cached, 0,
            "{options:?} shows what is cached without --caches"
        );
    }
    apply_all(&world);
    assert_eq!(
        host(&world, world.path("target/debug/adds"))
            .run()
            .success()
            .out(),
        "42\n"
    );

    // Nothing is built anew: times and contents came over whole.
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let again = host(&world, bin.join("cargo"))
        .args(["build", "--offline", "-v"])
        .env("PATH", path);
    again.run().success().says(["Fresh adds"]);
}

const GREET_C: &str = "#include <stdio.h>\nint answer(void);\n\
    int main(void) { printf(\"%d\\n\", answer()); return 0; }\n";
const ANSWER_C: &str = "int answer(void) { return 42; }\n";
const MAKEFILE: &str = "greet: greet.o libanswer.a\n\t$(CC) -o $@ greet.o -L. -lanswer\n\
    libanswer.a: answer.o\n\t$(AR) rcs $@ answer.o\n";

#[test]
fn a_c_program_is_built() {
    let files = [
        ("greet.c", GREET_C),
        ("answer.c", ANSWER_C),
        ("Makefile", MAKEFILE),
    ];
    let world = world_with("a_c_program_is_built", &files);
    if !has(&world, &["cc", "make", "ar"]) {
        return;
    }
    assert!(inside(&world, &[], "make -j2 > log; ./greet").out() == "42\n");
    apply_all(&world);
    assert_eq!(
        host(&world, world.path("greet")).run().success().out(),
        "42\n"
    );
    // Times are the same inside and outside, so that make has nothing to do.
    let again = host(&world, "make").run().success();
    assert!(again.out().contains("up to date"), "{again}");
}

/// The smallest wheel: a module, its metadata and a program that calls it.
const WHEEL_PY: &str = r#"
import zipfile, hashlib, base64
files = {
    "atollgreets/__init__.py": "def main():\n    print('hello from a wheel')\n",
    "atollgreets-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: atollgreets\nVersion: 1.0\n",
    "atollgreets-1.0.dist-info/WHEEL":
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "atollgreets-1.0.dist-info/entry_points.txt": "[console_scripts]\ngreets = atollgreets:main\n",
}
record = "atollgreets-1.0.dist-info/RECORD"
lines = []
with zipfile.ZipFile("atollgreets-1.0-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(text)}")
    wheel.writestr(record, "\n".join(lines + [record + ",,"]) + "\n")
"#;

/// The system's own Python: one from a home would be of no use in a sandbox.
const PYTHON: &str = "/usr/bin/python3";

#[test]
fn a_virtual_environment_with_a_package() {
    let world = world_with(
        "a_virtual_environment_with_a_package",
        &[("wheel.py", WHEEL_PY)],
    );
    let able = Path::new(PYTHON).is_file()
        && host(&world, PYTHON)
            .args(["-c", "import venv, ensurepip"])
            .run()
            .code()
            == 0;
    if !able {
        return world.skip("python3-venv is not installed", Avoidable::Yes);
    }
    let script = format!(
        "{PYTHON} wheel.py; {PYTHON} -m venv env; \
         env/bin/pip install --no-index ./atollgreets-1.0-py3-none-any.whl > log; env/bin/greets"
    );
    let done = inside(&world, &["--profile", "python"], &script);
    assert!(done.out().ends_with("hello from a wheel\n"), "{done}");
    apply_all(&world);
    let greets = host(&world, world.path("env/bin/greets")).run().success();
    assert_eq!(greets.out(), "hello from a wheel\n");
    let listed = host(&world, world.path("env/bin/pip"))
        .args(["list", "--no-index"])
        .run()
        .success();
    assert!(listed.out().contains("atollgreets"), "{listed}");
}

#[test]
fn a_package_from_the_cache_of_wheels() {
    let world = World::new("a_package_from_the_cache_of_wheels");
    let wheels = cache()
        .map(|cache| cache.join("pip/wheels"))
        .filter(|path| path.is_dir());
    let Some(wheels) = wheels else {
        return world.skip("ATOLL_TEST_CACHE has no pip/wheels", Avoidable::Yes);
    };
    let wheels = wheels.to_string_lossy().into_owned();
    let script = format!(
        "{PYTHON} -m venv env; env/bin/pip install --no-index --find-links {wheels} six > log; \
         env/bin/python -c 'import six; print(six.__version__)'"
    );
    let done = inside(&world, &["--profile", "python", "--ro", &wheels], &script);
    assert!(done.out().starts_with("1."), "{done}");
    apply_all(&world);
    let python = host(&world, world.path("env/bin/python"));
    let outside = python
        .args(["-c", "import six; print(six.__version__)"])
        .run()
        .success();
    assert_eq!(outside.out(), done.out());
}

const PACKAGE_JSON: &str = r#"{"name": "adds", "version": "1.0.0",
    "scripts": {"pretest": "node -e \"require('fs').writeFileSync('pretest', 'ran')\"",
                "test": "node test.js"}}"#;
const TEST_JS: &str = "const assert = require('assert'); const { add } = require('./add.js');\n\
    assert.strictEqual(add(40, 2), 42);\n\
    const { execFileSync } = require('child_process');\n\
    assert.strictEqual(execFileSync('echo', ['hi']).toString(), 'hi\\n');\n\
    require('fs').writeFileSync('report.json', JSON.stringify({ passed: 1 }));\n\
    console.log('all passed');\n";

#[test]
fn npm_test_of_a_small_package() {
    let files = [
        ("package.json", PACKAGE_JSON),
        ("add.js", "exports.add = (a, b) => a + b;\n"),
        ("test.js", TEST_JS),
        (
            "local/package.json",
            r#"{"name": "local", "version": "2.0.0", "main": "index.js"}"#,
        ),
        ("local/index.js", "module.exports = 'local module';\n"),
    ];
    let world = world_with("npm_test_of_a_small_package", &files);
    if !has(&world, &["node", "npm"]) {
        return;
    }
    let script = "npm test; npm install --offline --no-audit --no-fund ./local > log; \
        node -p 'require(\"local\")'";
    let done = inside(&world, &["--profile", "node"], script);
    assert!(done.out().contains("all passed"), "{done}");
    assert!(done.out().ends_with("local module\n"), "{done}");
    apply_all(&world);
    assert_eq!(world.read("pretest"), "ran");
    assert_eq!(world.read("report.json"), "{\"passed\":1}");
    let outside = host(&world, "node")
        .args(["-p", "require('local')"])
        .run()
        .success();
    assert_eq!(outside.out(), "local module\n");
}

const GIT_SETUP: &str = "git init -q -b main . && git config user.name T && \
    git config user.email t@example.org && git config commit.gpgsign false && \
    git add -A && git commit -q -m first && git status --short";

fn git(world: &World, arguments: &[&str]) -> String {
    host(world, "git").args(arguments).run().success().out()
}

#[test]
fn git_commits_branches_worktrees_and_hooks() {
    let files = [("a", "one\n"), ("b", "one\n")];
    let world = world_with("git_commits_branches_worktrees_and_hooks", &files);
    if !has(&world, &["git"]) {
        return;
    }
    let _ = world.host_shell(GIT_SETUP).run().success();
    // Git looks at the index; from here on only the run may have changed it.
    let index = fs::read(world.path(".git/index")).unwrap();
    let inode = fs::metadata(world.path(".git/index")).unwrap().ino();
    let script = "\
        git status --short; git checkout -q -b work; echo two >> a; git commit -q -a -m second
        printf '#!/bin/sh\\necho hook ran > hooked\\n' > .git/hooks/pre-commit
        chmod +x .git/hooks/pre-commit
        echo two >> b; git commit -q -a -m third; cat hooked
        git worktree add -q tree -b other; echo three > tree/c
        git -C tree add c; git -C tree commit -q -m fourth; git worktree list | wc -l
        git checkout -q main; git merge -q work; git gc -q; git fsck; git log --oneline | wc -l";
    let done = inside(&world, &[], script);
    assert_eq!(done.out(), "hook ran\n2\n3\n");

    // Outside nothing of it happened.
    assert_eq!(fs::read(world.path(".git/index")).unwrap(), index);
    assert_eq!(fs::metadata(world.path(".git/index")).unwrap().ino(), inode);
    // Without optional locks, for a status that writes the index would be a conflict.
    assert_eq!(
        git(&world, &["--no-optional-locks", "status", "--short"]),
        ""
    );
    assert_eq!(
        git(&world, &["branch", "--format=%(refname:short)"]),
        "main\n"
    );

    apply_all(&world);
    assert_eq!(
        git(&world, &["status", "--short", "--untracked-files=no"]),
        ""
    );
    assert_eq!(
        git(&world, &["log", "--format=%s", "main"]),
        "third\nsecond\nfirst\n"
    );
    assert_eq!(
        git(&world, &["log", "--format=%s", "-1", "other"]),
        "fourth\n"
    );
    assert!(git(&world, &["worktree", "list"]).contains("/tree"));
    assert_eq!(
        git(
            &world,
            &["-C", "tree", "status", "--short", "--untracked-files=no"]
        ),
        ""
    );
    let _ = host(&world, "git")
        .args(["fsck", "--strict"])
        .run()
        .success();
    world.write("b", "three\n");
    assert_eq!(git(&world, &["commit", "-q", "-a", "-m", "fifth"]), "");
    assert!(world.exists("hooked"));
}

#[test]
fn a_hook_from_inside_needs_a_yes_of_its_own() {
    let world = world_with(
        "a_hook_from_inside_needs_a_yes_of_its_own",
        &[("a", "one\n")],
    );
    if !has(&world, &["git"]) {
        return;
    }
    let _ = world.host_shell(GIT_SETUP).run().success();
    let script = "echo two > a; printf '#!/bin/sh\\nexit 1\\n' > .git/hooks/pre-commit; \
        chmod +x .git/hooks/pre-commit";
    let _ = inside(&world, &[], script);
    let applied = world.atoll(["apply", "last"]).run();
    applied.says([".git/hooks/pre-commit", "--control"]);
    assert_eq!(world.read("a"), "two\n");
    assert!(!world.exists(".git/hooks/pre-commit"));
    // The advice works: what was held back can still be taken over.
    let _ = world.atoll(["apply", "last", "--control"]).run().success();
    assert!(world.exists(".git/hooks/pre-commit"));
    // And both are undone together.
    let _ = world.atoll(["undo", "last"]).run().success();
    assert!(!world.exists(".git/hooks/pre-commit"));
    assert_eq!(world.read("a"), "one\n");
}

#[test]
fn a_repository_made_inside_works_outside() {
    let world = world_with("a_repository_made_inside_works_outside", &[("a", "one\n")]);
    if !has(&world, &["git"]) {
        return;
    }
    let _ = inside(&world, &[], GIT_SETUP);
    assert!(!world.exists(".git"));
    let _ = world.atoll(["apply", "last"]).run();
    let _ = world.atoll(["apply", "last", "--control"]).run();
    assert_eq!(git(&world, &["log", "--format=%s %an"]), "first T\n");
    assert_eq!(git(&world, &["status", "--short"]), "");
}

#[test]
fn sqlite_with_a_write_ahead_log() {
    let world = World::new("sqlite_with_a_write_ahead_log");
    if !has(&world, &["sqlite3"]) {
        return;
    }
    let setup =
        "sqlite3 a.db 'pragma journal_mode=wal; create table t(a); insert into t values (1);'";
    let _ = world.host_shell(setup).run().success();
    let script = "\
        for i in 1 2 3 4; do (for j in 1 2 3 4 5 6 7 8 9 10; do
            sqlite3 -cmd '.timeout 20000' a.db 'insert into t values (2)'; done) & done; wait
        sqlite3 a.db 'select sum(a) from t; pragma integrity_check'";
    assert_eq!(inside(&world, &[], script).out(), "81\nok\n");
    let ask = "sqlite3 a.db 'select sum(a) from t; pragma integrity_check; pragma journal_mode'";
    assert_eq!(world.host_shell(ask).run().success().out(), "1\nok\nwal\n");
    apply_all(&world);
    assert_eq!(world.host_shell(ask).run().success().out(), "81\nok\nwal\n");
}

/// PostgreSQL asks who its user is, and the user that tests run as may be a mere number.
const ACCOUNT_C: &str = "#include <pwd.h>\n#include <stddef.h>\n#include <unistd.h>\n\
    static struct passwd one = { \"tester\", \"x\", 0, 0, \"\", \"/tmp\", \"/bin/sh\" };\n\
    struct passwd *getpwuid(uid_t uid) { one.pw_uid = uid; one.pw_gid = getgid(); return &one; }\n\
    int getpwuid_r(uid_t uid, struct passwd *to, char *buffer, size_t size, struct passwd **found)\n\
    { *to = *getpwuid(uid); *found = to; return 0; }\n";

fn postgres() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    versions
        .map(|version| version.path().join("bin"))
        .find(|bin| bin.join("initdb").is_file())
}

#[test]
fn postgres_on_a_unix_socket_slow() {
    let world = world_with(
        "postgres_on_a_unix_socket_slow",
        &[("account.c", ACCOUNT_C)],
    );
    let Some(bin) = postgres() else {
        return world.skip("PostgreSQL is not installed", Avoidable::Yes);
    };
    if is_root() {
        return world.skip("initdb refuses to run as root", Avoidable::No);
    }
    let mut front = String::new();
    if host(&world, "id").arg("-un").run().code() != 0 {
        if !has(&world, &["cc"]) {
            return;
        }
        let build = "cc -shared -fPIC -o account.so account.c";
        let _ = world.host_shell(build).run().success();
        front = "export LD_PRELOAD=$PWD/account.so; ".to_owned();
    }
    // Below /tmp because the path of a socket is at most 107 bytes long.
    let using = format!(
        "{front} bin={}; socket=$(mktemp -d /tmp/pg-XXXXXX)
        start() {{ $bin/pg_ctl -D data -w -l log -o \"-k $socket -c listen_addresses=''\" start > out; }}
        stop() {{ $bin/pg_ctl -D data -w -m fast stop > out; rm -r $socket; }}
        ask() {{ $bin/psql -h $socket -U tester -At -c \"$1\" postgres; }}\n",
        bin.display()
    );
    let script = format!(
        "{using} $bin/initdb -D data -A trust -U tester > out; start
        ask 'create table t (a int)' > out; ask 'insert into t select generate_series(1, 1000)' > out
        for i in 1 2 3; do ask 'select sum(a) from t' > part-$i & done; wait; cat part-*; stop"
    );
    assert_eq!(
        inside(&world, &[], &script).out(),
        "500500\n500500\n500500\n"
    );
    apply_all(&world);
    let outside = format!("set -eu; {using} start; ask 'select count(*) from t'; stop");
    let found = world.host_shell(&outside).within(LONG).run().success();
    assert_eq!(found.out(), "1000\n");
}

const SERVE: &str = "until [ -s port ]; do sleep 0.02; done; read port < port; ask $port";

#[test]
fn a_python_server_spoken_to_from_inside() {
    let files = [
        ("index.html", "<p>hello</p>\n"),
        ("serve.py", PYTHON_SERVER),
    ];
    let world = world_with("a_python_server_spoken_to_from_inside", &files);
    if !has(&world, &["curl"]) || !Path::new(PYTHON).is_file() {
        return;
    }
    let script = format!(
        "ask() {{ curl -fsS http://127.0.0.1:$1/ http://localhost:$1/ http://[::1]:$1/; }}
        {PYTHON} serve.py & {SERVE} > answers; ! curl -fsS -m 5 http://127.0.0.1:1/; cat answers"
    );
    let done = inside(&world, &[], &script);
    assert_eq!(done.out(), "<p>hello</p>\n<p>hello</p>\n<p>hello</p>\n");
    // It was there for the sandbox alone, and ended with it.
    let port = world.atoll(["diff", "last", "port"]).run().success().out();
    let port: u16 = port
        .lines()
        .find_map(|line| line.strip_prefix('+')?.parse().ok())
        .unwrap();
    let url = format!("http://127.0.0.1:{port}/serve.py");
    let outside = host(&world, "curl").args(["-sS", "-m", "5", &url]).run();
    assert!(!outside.out().contains("ThreadingHTTPServer"), "{outside}");
}

const PYTHON_SERVER: &str = "import http.server, socket\n\
    class Server(http.server.ThreadingHTTPServer):\n    address_family = socket.AF_INET6\n\
    class Quiet(http.server.SimpleHTTPRequestHandler):\n    def log_message(self, *a): pass\n\
    server = Server(('::', 0), Quiet)\n\
    open('port', 'w').write(str(server.server_address[1]) + '\\n')\n\
    server.serve_forever()\n";

const NODE_SERVER: &str = "const http = require('http'), fs = require('fs');\n\
    const server = http.createServer((q, r) => r.end('node says ' + q.url + '\\n'));\n\
    server.listen(0, '127.0.0.1', () => {\n\
      fs.writeFileSync('port', server.address().port + '\\n');\n});\n\
    fs.watch('.', (what, name) => { if (name === 'touched') fs.writeFileSync('seen', 'yes\\n'); });\n";

#[test]
fn a_node_server_that_watches_files() {
    let world = world_with(
        "a_node_server_that_watches_files",
        &[("serve.js", NODE_SERVER)],
    );
    if !has(&world, &["node", "curl"]) {
        return;
    }
    let script = format!(
        "ask() {{ curl -fsS http://127.0.0.1:$1/x; }}
        node serve.js & {SERVE}; echo 1 > touched; until [ -s seen ]; do sleep 0.02; done; cat seen"
    );
    let done = inside(&world, &["--profile", "node", "--timeout", "60s"], &script);
    assert_eq!(done.out(), "node says /x\nyes\n");
}

#[test]
fn pipelines_and_many_processes() {
    let world = World::new("pipelines_and_many_processes");
    let script = "\
        seq 1 100000 | tee numbers | grep 7 | sort -rn | head -1 || true
        mkfifo pipe; (for i in 1 2 3; do echo from-$i; done > pipe) & cat pipe; rm pipe
        for i in $(seq 200); do (echo $i > part-$i) & done; wait; ls part-* | wc -l
        seq 40 | xargs -P 8 -I{} sh -c 'echo {} {}' | wc -l
        sh -c 'trap \"echo caught; exit 0\" USR1; kill -USR1 $$; sleep 5'
        (exec 9> lock; flock 9; echo locked)
        cat part-* | awk '{ sum += $1 } END { print sum }'; rm part-*; echo 0 | xargs -n1 sh -c 'exit $0'";
    let done = inside(&world, &[], script);
    assert_eq!(
        done.out(),
        "99997\nfrom-1\nfrom-2\nfrom-3\n200\n40\ncaught\nlocked\n20100\n"
    );
    apply_all(&world);
    assert_eq!(world.read("numbers").lines().count(), 100_000);
    let names: Vec<PathBuf> = tree(&world.workspace()).into_keys().collect();
    assert_eq!(names, ["lock", "numbers"].map(PathBuf::from));
}

#[test]
fn ten_thousand_small_files() {
    let world = World::new("ten_thousand_small_files");
    let fill = "for d in $(seq 100); do mkdir -p old/$d; for f in $(seq 100); do \
        echo $d $f > old/$d/$f; done; done; tar cf all.tar old";
    let _ = world.host_shell(fill).within(LONG).run().success();
    let script = "\
        mkdir new; tar xf all.tar -C new; find new -type f | wc -l; diff -r old new/old
        for d in $(seq 50); do rm -r old/$d; done; mv old/60 old/moved
        for f in $(seq 100); do echo more >> old/70/$f; done";
    assert_eq!(inside(&world, &[], script).out(), "10000\n");
    apply_all(&world);
    let all = tree(&world.workspace());
    let count = |top: &str| {
        all.iter()
            .filter(|(path, entry)| {
                path.starts_with(top) && matches!(entry.kind, e2e::Kind::File(_))
            })
            .count()
    };
    assert_eq!(
        (count("new"), count("old"), count("old/moved")),
        (10_000, 5_000, 100)
    );
    assert!(!world.exists("old/1") && !world.exists("old/60"));
    assert_eq!(world.read("old/70/100"), "70 100\nmore\n");
    assert_eq!(world.read("new/old/33/44"), "33 44\n");
    let _ = world.atoll(["undo", "last"]).within(LONG).run().success();
    let back = tree(&world.workspace());
    assert_eq!(
        back.keys().filter(|path| path.starts_with("old")).count(),
        10_101
    );
    assert!(!world.exists("new"));
    assert_eq!(world.read("old/70/100"), "70 100\n");
    assert_eq!(world.read("old/1/1"), "1 1\n");
}

const GIB: u64 = 1 << 30;

/// As [`inside`], without checking contents that are too large to compare.
fn keep(world: &World, script: &str) {
    let script = format!("set -eu\n{script}");
    let _ = world.run(["--keep"], &script).within(LONG).run().success();
}

#[test]
fn a_file_of_two_gibibytes_nightly() {
    let world = World::new("a_file_of_two_gibibytes_nightly");
    let script = "\
        head -c 2147483648 /dev/urandom > dense
        truncate -s 2G sparse; echo begin | dd of=sparse conv=notrunc status=none
        echo end | dd of=sparse bs=1 seek=2147483640 conv=notrunc status=none
        sha256sum dense sparse > sums";
    keep(&world, script);
    apply_all(&world);
    let _ = world
        .host_shell("sha256sum -c sums")
        .within(LONG)
        .run()
        .success();
    let facts = |name: &str| fs::metadata(world.path(name)).unwrap();
    assert_eq!(
        (facts("dense").len(), facts("sparse").len()),
        (2 * GIB, 2 * GIB)
    );
    assert!(
        facts("sparse").blocks() * 512 < GIB / 64,
        "the holes were filled"
    );

    // One byte in the middle of a large file of the host.
    let poke = "printf x | dd of=dense bs=1 seek=1073741824 conv=notrunc status=none; sha256sum dense > sum";
    let before = host(&world, "sha256sum").arg("dense").run().success().out();
    keep(&world, poke);
    apply_all(&world);
    let _ = world
        .host_shell("sha256sum -c sum")
        .within(LONG)
        .run()
        .success();
    let _ = world.atoll(["undo", "last"]).within(LONG).run().success();
    assert_eq!(
        host(&world, "sha256sum").arg("dense").run().success().out(),
        before
    );
}

#[test]
fn codex_tells_its_version() {
    let world = World::new("codex_tells_its_version");
    if !has(&world, &["node"]) {
        return;
    }
    let npm = cache().map(|cache| cache.join("npm"));
    let installed = |npm: &PathBuf| {
        npm.join("node_modules/@openai/codex/bin/codex.js")
            .is_file()
    };
    let Some(npm) = npm.filter(installed) else {
        return world.skip("@openai/codex is not in ATOLL_TEST_CACHE", Avoidable::Yes);
    };
    fs::create_dir(world.home().join(".codex")).unwrap();
    let npm = npm.to_string_lossy().into_owned();
    let script = format!("node {npm}/node_modules/@openai/codex/bin/codex.js --version");
    let done = inside(&world, &["--profile", "codex", "--ro", &npm], &script);
    assert!(done.out().trim().starts_with("codex-cli "), "{done}");
}

#[test]
fn a_shell_session_on_a_terminal() {
    let world = world_with("a_shell_session_on_a_terminal", &[("file", "before\n")]);
    let shell = world.atoll(["run", "--keep", "--env", "PS1=ready> ", "--", "sh", "-i"]);
    let mut terminal = shell.on_terminal(33, 101);
    terminal.expect("ready> ");
    terminal.line("stty size; tty; echo $((6 * 7))");
    terminal.expect("33 101");
    terminal.expect("/dev/pts/0");
    terminal.expect("42");
    terminal.expect("ready> ");
    terminal.line("echo after > file; cat file");
    terminal.expect("after\r\n");
    // The terminal's own signals reach the foreground and nothing else.
    let mark = format!("1000.{}", std::process::id());
    // What is executed has the terminal already.
    let is_executed = || {
        let sleeping = e2e::pids_of_command(&format!("sleep {mark}"));
        (!sleeping.is_empty()).then_some(())
    };
    terminal.line(&format!("sleep {mark}; echo went on"));
    e2e::wait_until("it sleeps", e2e::BOUND, is_executed);
    terminal.send([3]);
    terminal.expect("ready> ");
    // Job control: stopped, listed, brought back, ended.
    e2e::wait_until("it has ended", e2e::BOUND, || {
        is_executed().is_none().then_some(())
    });
    terminal.line(&format!("sleep {mark}"));
    e2e::wait_until("it sleeps again", e2e::BOUND, is_executed);
    terminal.send([26]);
    terminal.expect("Stopped");
    terminal.line("jobs; kill %1; fg; echo over");
    terminal.expect("over\r\n");
    terminal.resize(40, 120);
    // In two parts, so that the line itself is not taken for what it prints.
    terminal.line("until stty size | grep -x '40 120'; do sleep 0.05; done; echo re''sized");
    terminal.expect("resized");
    // Line editing of the terminal itself: erase, and the end of input.
    terminal.line("cat > typed");
    terminal.send("helXX\x7f\x7flo\r\x04");
    terminal.expect("ready> ");
    terminal.line("exit 7");
    let _ = terminal.wait().expect_status(7);
    assert_eq!(world.read("file"), "before\n");
    apply_all(&world);
    assert_eq!(
        (world.read("file"), world.read("typed")),
        ("after\n".into(), "hello\n".into())
    );
}

#[test]
fn editors_that_replace_files_keep_modes_and_times() {
    let world = world_with(
        "editors_that_replace_files_keep_modes_and_times",
        &[("a", "one\n")],
    );
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    fs::set_permissions(world.path("a"), mode(0o640)).unwrap();
    let script = "cp -p a .a.new; echo two >> .a.new; mv .a.new a; mkdir -m 750 d; \
        echo x > d/x; chmod 400 d/x; touch -d 2001-02-03T04:05:06Z d/x; ln d/x d/y; ln -s ../a d/l";
    let _ = inside(&world, &[], script);
    apply_all(&world);
    let facts: BTreeMap<PathBuf, e2e::Entry> = tree(&world.workspace());
    let modes: Vec<u32> = ["a", "d", "d/x"]
        .iter()
        .map(|name| facts[Path::new(name)].mode)
        .collect();
    assert_eq!(modes, [0o640, 0o750, 0o400]);
    assert_eq!(world.read("d/l"), "one\ntwo\n");
    let inode = |name: &str| fs::metadata(world.path(name)).unwrap().ino();
    assert_eq!(inode("d/x"), inode("d/y"));
    let stamp = SystemTime::UNIX_EPOCH + Duration::from_secs(981_173_106);
    assert_eq!(
        fs::metadata(world.path("d/x")).unwrap().modified().unwrap(),
        stamp
    );
    assert!(
        facts.values().all(|entry| entry.owner == e2e::id()),
        "{facts:?}"
    );
}
