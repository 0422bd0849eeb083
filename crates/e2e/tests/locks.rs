//! Packages by lock files: the releases that a file named before the program started are fetched,
//! by real programs, and nothing else is, in whatever way it is asked for.

use std::fs;
use std::os::unix::fs::symlink;

use e2e::internet::{events, is_possible, on_servers};
use e2e::registries::{CURL, LONG, NAMES, NPM, PRESETS, SERVERS, online, requests};
use e2e::{Avoidable, Outcome, World, program_exists};

const LOCKS: &str = "[{ registry = 'npm', lock = 'package-lock.json' }, { registry = 'pip', lock = 'requirements.txt' }, { registry = 'cargo', lock = 'Cargo.lock' }]";

/// Returns the rules of a run: only the releases that a lock file names; the same with presets that
/// allow all; and denied whatever allows it.
fn locked() -> [String; 3] {
    [
        format!("allow = {LOCKS}"),
        format!("{PRESETS}\nallow = {LOCKS}"),
        format!("{PRESETS}\ndeny = {LOCKS}"),
    ]
}

/// Returns a lock file of npm that names these.
fn npm_lock(releases: &[(&str, &str)]) -> String {
    let packages: serde_json::Map<String, serde_json::Value> = releases
        .iter()
        .map(|(name, version)| {
            let place = format!("node_modules/{name}");
            (place, serde_json::json!({ "version": version }))
        })
        .collect();
    serde_json::json!({ "lockfileVersion": 3, "packages": packages }).to_string()
}

fn cargo_lock(name: &str, version: &str) -> String {
    let source = "registry+https://github.com/rust-lang/crates.io-index";
    format!(
        "version = 4\n[[package]]\nname = '{name}'\nversion = '{version}'\nsource = '{source}'\n"
    )
}

/// Writes a project that has chosen the old releases.
fn write_locks(world: &World) {
    let npm = npm_lock(&[("aged", "1.0.0"), ("@a/aged", "1.0.0")]);
    world.write("package-lock.json", npm);
    world.write("requirements.txt", "aged==1.0\nrange>=1\n");
    world.write("Cargo.lock", cargo_lock("aged", "1.0.0"));
}

fn lines(outcome: &Outcome) -> String {
    let lines: Vec<String> = outcome.out().lines().map(str::to_owned).collect();
    lines.join(" ")
}

#[test]
fn what_a_lock_file_names_is_fetched_and_nothing_else_is() {
    let world = World::new("what_a_lock_file_names_is_fetched_and_nothing_else_is");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    write_locks(&world);
    let rows = [
        // What is asked for, with a lock file.
        (format!("{NPM}/aged"), "200"),
        (format!("{NPM}/aged/-/aged-1.0.0.tgz"), "200"),
        (format!("{NPM}/@a%2faged/-/aged-1.0.0.tgz"), "200"),
        (format!("{NPM}/aged/-/aged-1.1.0.tgz"), "403"),
        (format!("-I {NPM}/aged/-/aged-1.1.0.tgz"), "403"),
        (format!("--http1.1 {NPM}/aged/-/aged-1.1.0.tgz"), "403"),
        (format!("{NPM}/aged/-/aged-1%2E1.0.tgz"), "403"),
        (format!("{NPM}/aged/-/aged-1.1.0.tgz?v=1.0.0"), "403"),
        (format!("{NPM}/aged/-/x/../aged-1.1.0.tgz"), "403"),
        (format!("{NPM}/@a/aged/-/aged-1.1.0.tgz"), "403"),
        (format!("{NPM}/other/-/other-1.0.0.tgz"), "403"),
        (format!("{NPM}/other"), "403"),
        (format!("{NPM}/Aged/-/Aged-1.0.0.tgz"), "403"),
        (
            "https://registry.yarnpkg.com/aged/-/aged-1.0.0.tgz".to_owned(),
            "200",
        ),
        (
            "https://registry.yarnpkg.com/aged/-/aged-1.1.0.tgz".to_owned(),
            "403",
        ),
        ("https://pypi.org/simple/aged/".to_owned(), "200"),
        (
            "https://files.pythonhosted.org$(cat wheel-1.0.0)".to_owned(),
            "200",
        ),
        (
            "https://files.pythonhosted.org$(cat wheel-1.1.0)".to_owned(),
            "403",
        ),
        ("https://index.crates.io/ag/ed/aged".to_owned(), "200"),
        (
            "https://static.crates.io/crates/aged/1.0.0/download".to_owned(),
            "200",
        ),
        (
            "https://static.crates.io/crates/aged/1.1.0/download".to_owned(),
            "403",
        ),
        (
            "https://static.crates.io/crates/AGED/1.0.0/download".to_owned(),
            "403",
        ),
    ];
    let place = world.top().join("internet");
    let each = rows.iter().map(|(url, _)| format!("{CURL} {url}; "));
    let script = format!("cd '{}'; {}", place.display(), each.collect::<String>());
    let options = ["--ro", place.to_str().unwrap()];
    let expected: Vec<&str> = rows.iter().map(|(_, status)| *status).collect();
    for network in locked() {
        let outcome = online(&world, &network, &options, &script);
        assert_eq!(
            outcome.out().trim(),
            expected.join(" "),
            "{network}: {outcome}"
        );
        // What was refused has reached nobody.
        let came = requests(&world);
        let is_other = |line: &&String| {
            line.contains("1.1.0") || line.contains("other") || line.contains("AGED")
        };
        assert_eq!(came.iter().find(is_other), None, "{network}");
    }
    // The control.
    let outcome = online(&world, PRESETS, &options, &script);
    assert_eq!(outcome.out().trim(), ["200"; 22].join(" "), "{outcome}");
}

#[test]
fn what_no_lock_file_names_is_told_of() {
    let world = World::new("what_no_lock_file_names_is_told_of");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    write_locks(&world);
    let script = format!("curl -sS --noproxy '*' {NPM}/aged/-/aged-1.1.0.tgz");
    let outcome = online(&world, &locked()[0], &[], &script);
    let told: serde_json::Value = serde_json::from_str(outcome.out().trim()).unwrap();
    let text = "aged 1.1.0 of npm is not named by the lock file package-lock.json";
    let why_inside = told["why"].as_str().unwrap();
    assert!(why_inside.starts_with(text), "{why_inside}");
    // Not where the rule is written.
    assert!(!why_inside.contains("registries"), "{why_inside}");
    let how = told["how_to_ask"].as_str().unwrap();
    assert!(how.contains("change that file outside"), "{how}");
    let _ = outcome.says(["aged 1.1.0 of npm is not named by the lock file"]);
    let shown = world.atoll(["why", "last"]).run().success().out();
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains(text), "{shown}");
    assert!(shown.contains("registries.toml"), "{shown}");
    let refused = events(&world, "flow.refused");
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0]["why"].as_str().unwrap().starts_with(text));
}

#[test]
fn a_lock_file_an_age_and_names_have_to_agree() {
    let world = World::new("a_lock_file_an_age_and_names_have_to_agree");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let releases = [("aged", "1.0.0"), ("aged", "1.1.0"), ("denied", "1.0.0")];
    let lock = npm_lock(&releases[1..]).replace(
        "\"node_modules/aged\"",
        "\"node_modules/x/node_modules/aged\":{\"version\":\"1.0.0\"},\"node_modules/aged\"",
    );
    world.write("package-lock.json", lock);
    let urls = [
        "/aged/-/aged-1.0.0.tgz",
        "/aged/-/aged-1.1.0.tgz",
        "/denied/-/denied-1.0.0.tgz",
        "/other/-/other-1.0.0.tgz",
    ];
    let each = urls.map(|path| format!("{CURL} {NPM}{path}; "));
    let lock = "lock = 'package-lock.json'";
    for (network, expected) in [
        (
            format!("allow = [{{ registry = 'npm', {lock} }}]"),
            "200 200 200 403",
        ),
        (
            format!("allow = [{{ registry = 'npm', {lock}, minimum-age = '7d' }}]"),
            "200 403 200 403",
        ),
        (
            format!(
                "allow = [{{ registry = 'npm', {lock} }}]\n\
                 deny = [{{ registry = 'npm', minimum-age = '7d' }}, {{ registry = 'npm', packages = ['denied'] }}]"
            ),
            "200 403 403 403",
        ),
        (
            format!("allow = [{{ registry = 'npm', packages = ['aged'], {lock} }}]"),
            "200 200 403 403",
        ),
        (
            format!(
                "presets = ['npm']\ndeny = [{{ registry = 'npm', packages = ['aged', 'other'], {lock} }}]"
            ),
            "200 200 200 403",
        ),
    ] {
        let outcome = online(&world, &network, &[], &each.concat());
        assert_eq!(outcome.out().trim(), expected, "{network}: {outcome}");
    }
}

/// Holds also where the program works in the workspace itself.
#[test]
fn what_is_written_to_a_lock_file_counts_in_the_next_run() {
    let world = World::new("what_is_written_to_a_lock_file_counts_in_the_next_run");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    world.profile(
        "live",
        "[network]\nallow = [{ registry = 'npm', lock = 'package-lock.json' }]\n",
    );
    world.write("package-lock.json", npm_lock(&[("aged", "1.0.0")]));
    let url = format!("{NPM}/aged/-/aged-1.1.0.tgz");
    let rewrite = "sed -i s/1.0.0/1.1.0/ package-lock.json";
    let script = format!("{rewrite}; grep -c 1.1.0 package-lock.json; {CURL} {url}");
    for expected in ["1\n403", "1\n200"] {
        let command = "\"$ATOLL\" run --live --profile live \"$@\"";
        let run = on_servers(&world, SERVERS, NAMES, command).within(LONG);
        let outcome = run.args(["sh", "--", "sh", "-c", &script]).run();
        assert_eq!(outcome.out().trim(), expected, "{outcome}");
    }
}

#[test]
fn a_run_without_its_lock_file_does_not_start() {
    let world = World::new("a_run_without_its_lock_file_does_not_start");
    world.profile(
        "locked",
        "[network]\nallow = [{ registry = 'npm', lock = 'web/package-lock.json' }]\n",
    );
    let options = ["--profile", "locked", "--discard"];
    let good = npm_lock(&[("aged", "1.0.0")]);
    let refused = |said: &str| {
        let outcome = world.run(options, "echo started").run();
        assert_eq!(outcome.out(), "", "{said}: {outcome}");
        assert_ne!(outcome.code(), 0, "{said}: {outcome}");
        let told = outcome
            .err()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(told.contains(said), "{said}: {told}");
        assert!(told.contains("web/package-lock.json"), "{told}");
        assert!(told.contains("with the package manager outside"), "{told}");
        assert!(told.contains("nothing was started: a lock file"), "{told}");
    };
    refused("there is no such file");
    fs::create_dir(world.path("web")).unwrap();
    refused("there is no such file");
    for (content, said) in [
        ("{ nothing".to_owned(), "it is not understood at line 1"),
        (npm_lock(&[]), "it names no exact release of npm"),
        (good.replace(":3,", ":7,"), "(version 7)"),
    ] {
        world.write("web/package-lock.json", content);
        refused(said);
    }
    let outside = world.top().join("package-lock.json");
    fs::write(&outside, &good).unwrap();
    fs::remove_file(world.path("web/package-lock.json")).unwrap();
    symlink(&outside, world.path("web/package-lock.json")).unwrap();
    refused("it is a symbolic link");
    fs::remove_file(world.path("web/package-lock.json")).unwrap();
    fs::remove_dir(world.path("web")).unwrap();
    world.write("real/package-lock.json", &good);
    symlink("real", world.path("web")).unwrap();
    refused("it is a symbolic link");
    // The control.
    fs::remove_file(world.path("web")).unwrap();
    fs::rename(world.path("real"), world.path("web")).unwrap();
    let outcome = world.run(options, "echo started").run();
    assert_eq!(outcome.out(), "started\n", "{outcome}");
}

#[test]
fn rules_with_lock_files_are_checked() {
    let world = World::new("rules_with_lock_files_are_checked");
    for (rule, said) in [
        (
            "{ registry = 'npm', lock = '../package-lock.json' }",
            "is no lock file",
        ),
        (
            "{ registry = 'npm', lock = '/package-lock.json' }",
            "is no lock file",
        ),
        (
            "{ registry = 'npm', lock = 'yarn.lock' }",
            "name package-lock.json or npm-shrinkwrap.json",
        ),
        (
            "{ registry = 'cargo', lock = 'package-lock.json' }",
            "name Cargo.lock",
        ),
        ("{ registry = 'npm', lock = [] }", "is empty"),
        ("{ to = 'a.example', lock = 'Cargo.lock' }", "lock"),
        (
            "{ registry = 'npm', minimum-age = '7' }",
            "\"7d\" or \"36h\"",
        ),
    ] {
        world.write("p.toml", format!("network.allow = [{rule}]\n"));
        let outcome = world.atoll(["profile", "check", "p.toml"]).run();
        assert_eq!(outcome.code(), 1, "{rule}: {outcome}");
        assert!(outcome.out().contains(said), "{rule}: {outcome}");
    }
    world.write("p.toml", "[network]\nallow = [\n{ registry = 'npm', lock = ['a/package-lock.json', 'package-lock.json'] }]\n");
    let outcome = world.atoll(["profile", "check", "p.toml"]).run().success();
    let told = outcome.out() + &outcome.err();
    assert_eq!(
        told.matches("is read beneath the workspace before each run")
            .count(),
        2,
        "{told}"
    );
    world.profile("p", &world.read("p.toml"));
    let shown = world.atoll(["profile", "show", "p"]).run().success().out();
    assert!(
        shown.contains("lock = [\"a/package-lock.json\", \"package-lock.json\"]"),
        "{shown}"
    );
}

/// Prints the installed releases of `aged` once its lock file is in the workspace: by the lock
/// file, by name as another release, another package, and by a lock file that was rewritten.
const NPM_SCRIPT: &str = "ci() { rm -rf node_modules; npm ci --silent --no-audit --no-fund --cache cache$1 >/dev/null 2>&1; shown aged; }; \
     shown() { node -p \"require('$1/package').version\" 2>/dev/null || echo none; }; \
     get() { rm -rf node_modules; npm install --silent --no-save --no-audit --no-fund --cache cache$3 $1 >/dev/null 2>&1; shown $2; }; \
     ci 1; cp package-lock.json kept; get aged@1.1.0 aged 2; get other other 3; cp kept package-lock.json; \
     sed -i 's/1\\.0\\.0/1.1.0/g' package-lock.json package.json; ci 4; grep -c 1.1.0 package-lock.json";

#[test]
fn npm_ci_installs_what_its_lock_file_names() {
    let world = World::new("npm_ci_installs_what_its_lock_file_names");
    if !is_possible(&world, &["openssl", "npm"]) {
        return;
    }
    world.write(
        "package.json",
        r#"{"name":"p","version":"9.0.0","dependencies":{"aged":"1.0.0"}}"#,
    );
    let make = "npm install --silent --package-lock-only --no-audit --no-fund --cache made >/dev/null && sed '/integrity/d; s/\\(1.0.0.tgz\"\\),/\\1/' package-lock.json";
    let made = online(&world, PRESETS, &[], make).success().out();
    assert!(made.contains("node_modules/aged"), "{made}");
    world.write("package-lock.json", made);
    for network in locked() {
        let network = network.replace(", { registry = 'pip', lock = 'requirements.txt' }, { registry = 'cargo', lock = 'Cargo.lock' }", "");
        let outcome = online(&world, &network, &[], NPM_SCRIPT);
        let found = lines(&outcome);
        let (versions, _) = found.rsplit_once(' ').unwrap();
        assert_eq!(versions, "1.0.0 none none none", "{network}: {outcome}");
    }
    let outcome = online(&world, PRESETS, &[], NPM_SCRIPT);
    let found = lines(&outcome);
    let (versions, rewritten) = found.rsplit_once(' ').unwrap();
    assert_eq!(versions, "1.0.0 1.1.0 1.1.0 1.1.0", "{outcome}");
    assert_ne!(rewritten, "0");
}

#[test]
fn pip_installs_what_its_requirements_name() {
    let world = World::new("pip_installs_what_its_requirements_name");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let built = world.host("python3").args(["-m", "venv", "probe"]).run();
    if built.code() != 0 {
        world.skip("python3 has no venv with pip", Avoidable::Yes);
        return;
    }
    world.write("requirements.txt", "# chosen\naged==1.0  # not 1.1\n");
    let script = "python3 -m venv at; get() { at/bin/pip uninstall -q -y aged >/dev/null 2>&1; \
                  at/bin/pip install -q --no-cache-dir \"$@\" >/dev/null 2>&1; \
                  at/bin/python -c 'import aged; print(aged.version)' 2>/dev/null || echo none; }; \
                  get -r requirements.txt; get aged; sed -i s/1.0/1.1/ requirements.txt; \
                  get -r requirements.txt; get aged==1.0.0";
    let lock = "[{ registry = 'pip', lock = 'requirements.txt' }]";
    for (network, expected) in [
        (format!("allow = {lock}"), "1.0.0 none none 1.0.0"),
        (
            format!("presets = ['pip']\ndeny = {lock}"),
            "1.0.0 none none 1.0.0",
        ),
        ("presets = ['pip']".to_owned(), "1.0.0 1.1.0 1.1.0 1.0.0"),
    ] {
        let outcome = online(&world, &network, &[], script);
        assert_eq!(lines(&outcome), expected, "{network}: {outcome}");
    }
}

#[test]
fn cargo_fetches_what_its_lock_file_names() {
    let world = World::new("cargo_fetches_what_its_lock_file_names");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let Some(toolchain) = std::env::var("ATOLL_TEST_TOOLCHAIN")
        .ok()
        .filter(|path| !path.is_empty() && program_exists(&format!("{path}/bin/cargo")))
    else {
        world.skip("ATOLL_TEST_TOOLCHAIN names no toolchain", Avoidable::Yes);
        return;
    };
    let manifest = "[package]\nname = \"a\"\nedition = \"2021\"\n[dependencies]\naged = \"1\"\n";
    world.write("Cargo.toml", manifest);
    world.write("src/lib.rs", "");
    let options = ["--ro", toolchain.as_str()];
    let cargo = format!("PATH='{toolchain}/bin':$PATH");
    // A program of the person's, with all of the registry: it chooses the old release.
    let make = format!(
        "{cargo}; sed -i 's/\"1\"/\"=1.0.0\"/' Cargo.toml; cargo generate-lockfile --quiet && cat Cargo.lock"
    );
    let made = online(&world, PRESETS, &options, &make).success().out();
    assert!(made.contains("checksum"), "{made}");
    world.write("Cargo.lock", made);
    let script = format!(
        "{cargo}; version() {{ if cargo fetch --quiet \"$@\" 2>>said; then cargo pkgid aged | sed 's/.*@//'; else echo none; fi; }}; \
         version --locked; rm Cargo.lock; version; version --locked; cat said >&2"
    );
    let lock = "[{ registry = 'cargo', lock = 'Cargo.lock' }]";
    for (network, expected) in [
        (format!("allow = {lock}"), "1.0.0 none none"),
        (
            format!("presets = ['cargo']\ndeny = {lock}"),
            "1.0.0 none none",
        ),
        ("presets = ['cargo']".to_owned(), "1.0.0 1.1.0 1.1.0"),
    ] {
        let outcome = online(&world, &network, &options, &script);
        assert_eq!(lines(&outcome), expected, "{network}: {outcome}");
    }
}
