//! The registries of this machine's own packages, by the presets for them. Where one is a mirror at
//! an address that is not on the internet, a rule for that address is needed too.

use std::net::ToSocketAddrs;
use std::time::Duration;

use atoll_model::network::special;
use e2e::internet::events;
use e2e::{Avoidable, World, program_exists};

const LONG: Duration = Duration::from_secs(180);

/// A package of each registry.
struct Registry {
    preset: &'static str,
    program: &'static str,
    /// Its hosts.
    hosts: &'static [&'static str],
    /// Fetches it, and prints its version.
    script: &'static str,
    version: &'static str,
}

const REGISTRIES: &[Registry] = &[
    Registry {
        preset: "pip",
        program: "python3",
        hosts: &["pypi.org", "files.pythonhosted.org"],
        script: "python3 -m venv at && at/bin/pip install -q --no-cache-dir six==1.17.0 && \
                 at/bin/python -c 'import six; print(six.__version__)'",
        version: "1.17.0",
    },
    Registry {
        preset: "npm",
        program: "npm",
        hosts: &["registry.npmjs.org"],
        script: "npm install --silent --no-audit --no-fund left-pad@1.3.0 >/dev/null && \
                 node -p 'require(\"left-pad/package\").version'",
        version: "1.3.0",
    },
    Registry {
        preset: "cargo",
        program: "cargo",
        hosts: &["index.crates.io", "static.crates.io"],
        script: "mkdir -p src && echo > src/lib.rs && \
                 printf '[package]\\nname = \"a\"\\nedition = \"2021\"\\n[dependencies]\\nitoa = \"=1.0.15\"\\n' > Cargo.toml && \
                 cargo fetch --quiet && cargo pkgid itoa | sed 's/.*@//'",
        version: "1.0.15",
    },
];

/// Returns the options that let a host be reached whose address is not on the internet; `None`
/// where it cannot be reached from here at all.
pub(crate) fn further(world: &World, host: &str) -> Option<Vec<String>> {
    let found = (host, 443).to_socket_addrs().ok()?;
    let url = format!("https://{host}/");
    let tried = ["-sS", "-m", "20", "-o", "/dev/null", url.as_str()];
    // What does not answer once is not unreachable.
    let answers = |_| world.host("curl").args(tried).run().code() == 0;
    if !(0..3).any(answers) {
        return None;
    }
    let private = found.filter(|address| special(address.ip()).is_some());
    Some(private.map(|address| address.ip().to_string()).collect())
}

/// Fetches a package by the age of its release, which its registry states: old enough, and not.
fn aged(world: &World, registry: &Registry, options: &[String], script: &str) {
    let preset = registry.preset;
    if preset == "cargo" && is_mirrored(world) {
        // No part of what this test is about: ages.rs has an index of its own.
        println!("crates come from a mirror here, whose files have no known age");
        return;
    }
    for (age, expected) in [("7d", registry.version), ("36500d", "")] {
        let rule = format!("{{ registry = \"{preset}\", minimum-age = \"{age}\" }}");
        world.profile("aged", &format!("[network]\nallow = [{rule}]\n"));
        let named = ["--profile".to_owned(), "aged".to_owned()];
        // What programs choose themselves is not what is tried here.
        let script = format!("unset npm_config_before PIP_UPLOADED_PRIOR_TO; {script}; true");
        let outcome = world
            .run([options, &named].concat(), &script)
            .within(LONG)
            .run();
        assert_eq!(outcome.out().trim(), expected, "{preset} {age}: {outcome}");
        let refused = events(world, "flow.refused");
        let is_young = |one: &serde_json::Value| {
            let why = one["why"].as_str().unwrap_or_default();
            why.contains("was released") && why.contains(&format!("has to be {age} old"))
        };
        let count = refused.iter().filter(|one| is_young(one)).count();
        assert_eq!(count > 0, expected.is_empty(), "{preset} {age}: {outcome}");
    }
}

/// Returns whether crates come from elsewhere than their registry's own host.
fn is_mirrored(world: &World) -> bool {
    let config = ["-sS", "-m", "20", "https://index.crates.io/config.json"];
    let told = world.host("curl").args(config).run().out();
    !told.contains("\"https://static.crates.io/crates\"")
}

/// Fetches a package by a lock file of the workspace: one that names its release, and one that
/// names another one.
fn locked(world: &World, registry: &Registry, options: &[String], script: &str) {
    let Registry {
        preset, version, ..
    } = registry;
    if *preset == "cargo" && is_mirrored(world) {
        println!("crates come from a mirror here, whose files are of no known release");
        return;
    }
    for (named, expected) in [(*version, *version), ("0.0.1", "")] {
        let (file, text) = match *preset {
            "pip" => ("requirements.txt", format!("six=={named}\n")),
            "npm" => (
                "npm-shrinkwrap.json",
                format!(
                    "{{\"lockfileVersion\":3,\"packages\":{{\"node_modules/left-pad\":{{\"version\":\"{named}\"}}}}}}"
                ),
            ),
            _ => (
                "Cargo.lock",
                format!(
                    "[[package]]\nname = 'itoa'\nversion = '{named}'\nsource = 'registry+https://github.com/rust-lang/crates.io-index'\n"
                ),
            ),
        };
        world.write(file, text);
        let rule = format!("{{ registry = \"{preset}\", lock = \"{file}\" }}");
        world.profile("locked", &format!("[network]\nallow = [{rule}]\n"));
        let of_profile = ["--profile".to_owned(), "locked".to_owned()];
        // What is tried is a download, whatever the program makes of the file.
        let script = format!("rm {file}; {script}; true");
        let outcome = world
            .run([options, &of_profile].concat(), &script)
            .within(LONG)
            .run();
        assert_eq!(
            outcome.out().trim(),
            expected,
            "{preset} {named}: {outcome}"
        );
        let refused = events(world, "flow.refused");
        let is_unlocked = |one: &serde_json::Value| {
            let why = one["why"].as_str().unwrap_or_default();
            why.contains(version) && why.contains(&format!("by the lock file {file}"))
        };
        let count = refused.iter().filter(|one| is_unlocked(one)).count();
        assert_eq!(
            count > 0,
            expected.is_empty(),
            "{preset} {named}: {outcome}"
        );
        std::fs::remove_file(world.path(file)).unwrap();
    }
}

#[test]
fn packages_come_from_their_registries_and_nothing_is_published_slow() {
    let world = World::new("packages_come_from_their_registries_and_nothing_is_published_slow");
    for registry in REGISTRIES {
        let Registry {
            preset,
            program,
            hosts,
            ..
        } = registry;
        if *program != "cargo" && !program_exists(program) || !program_exists("curl") {
            world.skip(
                &format!("{program} or curl is not installed"),
                Avoidable::Yes,
            );
            continue;
        }
        let further: Option<Vec<_>> = hosts.iter().map(|host| further(&world, host)).collect();
        let Some(further) = further else {
            world.skip(
                &format!("{} cannot be reached from here", hosts.join(" or ")),
                Avoidable::No,
            );
            continue;
        };
        let mut options = vec!["--discard".to_owned()];
        for address in further.into_iter().flatten() {
            options.extend(["--allow".to_owned(), address]);
        }
        let mut script = registry.script.to_owned();
        if *program == "cargo" {
            let Some(toolchain) = std::env::var("ATOLL_TEST_TOOLCHAIN").ok() else {
                world.skip("ATOLL_TEST_TOOLCHAIN names no toolchain", Avoidable::Yes);
                continue;
            };
            script = format!("PATH={toolchain}/bin:$PATH; {script}");
            options.extend(["--ro".to_owned(), toolchain]);
        }
        aged(&world, registry, &options, &script);
        locked(&world, registry, &options, &script);
        options.extend(["--preset".to_owned(), (*preset).to_owned()]);
        let script = format!(
            "{script}; curl -sS -o /dev/null -w '%{{http_code}}\\n' -X PUT -d x https://{}/a",
            hosts[0]
        );
        let outcome = world.run(&options, &script).within(LONG).run();
        assert_eq!(
            outcome.out(),
            format!("{}\n403\n", registry.version),
            "{preset}: {outcome}"
        );
        let opened = events(&world, "flow.opened");
        assert!(
            opened
                .iter()
                .all(|one| one["method"] == "GET" || one["method"] == "HEAD"),
            "{opened:?}"
        );
        println!("{preset}: {} requests", opened.len());
    }
}
