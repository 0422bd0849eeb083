//! Packages by the age of their releases: a release that is too young is not fetched, in whatever
//! way it is asked for and whatever its registry says; one that is old enough is, by real programs.

use e2e::internet::{events, is_possible};
use e2e::registries::{CURL, NPM, PRESETS, online, requests};
use e2e::{Avoidable, World, program_exists};

/// The rules of a run: presets that allow everything, and the age that is denied whatever allows
/// it; or only releases of an age.
const DENIED: &str = "presets = ['npm', 'pip', 'cargo']\n\
     deny = [{ registry = 'npm', minimum-age = '7d' }, { registry = 'pip', minimum-age = '7d' }, { registry = 'cargo', minimum-age = '7d' }]";
const ALLOWED: &str = "allow = [{ registry = 'npm', minimum-age = '7d' }, { registry = 'pip', minimum-age = '7d' }, { registry = 'cargo', minimum-age = '7d' }]";
const BOTH: &str = "presets = ['npm', 'pip', 'cargo']\n\
     allow = [{ registry = 'npm', minimum-age = '7d' }, { registry = 'pip', minimum-age = '7d' }, { registry = 'cargo', minimum-age = '7d' }]";
/// Returns Atoll's own requests among them.
fn asked(world: &World) -> Vec<String> {
    let own = |line: &String| line.contains(" atoll/");
    requests(world).into_iter().filter(own).collect()
}

fn why(world: &World) -> String {
    let told = world.atoll(["why", "last"]).run().success().out();
    // Without the ends of its lines.
    told.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a script that fetches each of these, in order.
fn fetch(urls: &[String]) -> String {
    let each = urls.iter().map(|url| format!("{CURL} {url}; "));
    each.collect()
}

#[test]
fn a_release_that_is_too_young_is_not_fetched_in_any_form() {
    let world = World::new("a_release_that_is_too_young_is_not_fetched_in_any_form");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let rows: &[(&str, &str, &str)] = &[
        // The path, with options; with an age; without one.
        ("/aged", "200", "200"),
        ("/aged/-/aged-1.0.0.tgz", "200", "200"),
        ("/aged/-/aged-1.1.0.tgz", "403", "200"),
        ("/aged/-/aged-1.1.0.tgz?at=1.0.0", "403", "200"),
        ("/aged/-/aged-1%2E1.0.tgz", "403", "200"),
        ("/%61ged/-/aged-1.1.0.tgz", "403", "200"),
        ("/aged/-/aged-1.1.0.tgz/", "403", "200"),
        ("/aged/-/aged-v1.0.0.tgz", "403", "200"),
        ("/aged/-/aged-01.0.0.tgz", "403", "200"),
        ("/aged/-/aged-1.0.0%2B1.tgz", "403", "200"),
        ("/aged/-/aged-created.tgz", "403", "200"),
        ("/aged//-/aged-1.1.0.tgz", "403", "200"),
        ("/aged/./-/aged-1.1.0.tgz", "403", "200"),
        ("/aged/-/x/../aged-1.1.0.tgz", "403", "200"),
        ("/aged/-/Aged-1.1.0.tgz", "403", "200"),
        ("/@a/aged/-/aged-1.0.0.tgz", "200", "200"),
        ("/@a%2faged/-/aged-1.1.0.tgz", "403", "200"),
    ];
    let further = [
        (format!("-I {NPM}/aged/-/aged-1.1.0.tgz"), "403", "200"),
        (format!("-I {NPM}/aged/-/aged-1.0.0.tgz"), "200", "200"),
        (format!("-r 0-9 {NPM}/aged/-/aged-1.1.0.tgz"), "403", "200"),
        (
            format!("--http1.1 {NPM}/aged/-/aged-1.1.0.tgz"),
            "403",
            "200",
        ),
        // By the registry's other name.
        (
            "https://registry.yarnpkg.com/aged/-/aged-1.1.0.tgz".to_owned(),
            "403",
            "200",
        ),
        (
            "https://registry.yarnpkg.com/aged/-/aged-1.0.0.tgz".to_owned(),
            "200",
            "200",
        ),
        (
            "https://static.crates.io/crates/aged/1.0.0/download".to_owned(),
            "200",
            "200",
        ),
        (
            "https://static.crates.io/crates/aged/1.1.0/download".to_owned(),
            "403",
            "200",
        ),
        (
            "https://static.crates.io/crates/AGED/1.0.0/download".to_owned(),
            "403",
            "200",
        ),
        (
            "https://static.crates.io/crates/aged/1.0.0%2B1/download".to_owned(),
            "403",
            "200",
        ),
        // What is asked of Atoll's own request is nothing of the program's.
        (
            format!(
                "-H 'Accept: text/html' -H 'Cookie: a=b' -H 'X-Now: 2020' -H 'User-Agent: x' {NPM}/aged/-/aged-1.1.0.tgz"
            ),
            "403",
            "200",
        ),
    ];
    let plain = rows
        .iter()
        .map(|(path, aged, free)| (format!("{NPM}{path}"), *aged, *free));
    let all: Vec<_> = plain.chain(further).collect();
    let urls: Vec<String> = all.iter().map(|(url, _, _)| url.clone()).collect();
    let expected = |which: fn(&(String, &'static str, &'static str)) -> &'static str| {
        all.iter().map(which).collect::<Vec<_>>().join(" ")
    };
    for network in [DENIED, ALLOWED, BOTH] {
        let outcome = online(&world, network, &[], &fetch(&urls));
        assert_eq!(
            outcome.out().trim(),
            expected(|row| row.1),
            "{network}: {outcome}"
        );
        let young = |line: &&String| line.contains("1.1.0") || line.contains("1%2E1");
        let came = requests(&world);
        assert_eq!(came.iter().find(young), None, "{network}");
        // Each project was asked for once, whatever was fetched of it.
        let asked = asked(&world);
        let of = |path: &str| asked.iter().filter(|line| line.contains(path)).count();
        assert_eq!(
            (of("npmjs.org/aged "), of("/@a%2Faged "), of("/ag/ed/aged ")),
            (1, 1, 1),
            "{asked:?}"
        );
        for line in &asked {
            assert!(line.ends_with(" accept host user-agent"), "{line}");
            // On no connection of the program's.
            let port = line.split(' ').nth(3).unwrap();
            let same = |other: &&String| {
                other.split(' ').nth(3) == Some(port) && !other.contains(" atoll/")
            };
            assert_eq!(came.iter().find(same), None, "{line}");
        }
    }
    let outcome = online(&world, PRESETS, &[], &fetch(&urls));
    assert_eq!(outcome.out().trim(), expected(|row| row.2), "{outcome}");
    assert_eq!(asked(&world), Vec::<String>::new());
}

#[test]
fn a_release_that_is_too_young_is_told_of() {
    let world = World::new("a_release_that_is_too_young_is_told_of");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let script = format!(
        "curl -sS --noproxy '*' {NPM}/aged/-/aged-1.1.0.tgz; curl -sS --noproxy '*' {NPM}/aged/-/aged-9.9.9.tgz; printenv npm_config_before UV_EXCLUDE_NEWER PIP_UPLOADED_PRIOR_TO | wc -l"
    );
    let outcome = online(&world, ALLOWED, &[], &script);
    let lines: Vec<String> = outcome.out().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3, "{outcome}");
    let told: Vec<serde_json::Value> = lines[..2]
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let young = told[0]["why"].as_str().unwrap();
    assert!(
        young.starts_with("aged 1.1.0 of npm was released 24 h "),
        "{young}"
    );
    assert!(young.contains("has to be 7d old"), "{young}");
    // Not where the rule is written.
    assert!(!young.contains("registries"), "{young}");
    assert!(
        told[0]["how_to_ask"]
            .as_str()
            .unwrap()
            .contains("minimum-age")
    );
    let unknown = told[1]["why"].as_str().unwrap();
    assert!(
        unknown.contains("aged 9.9.9 of npm") && unknown.contains("its registry does not know it"),
        "{unknown}"
    );
    assert_eq!(lines[2].trim(), "3");
    let _ = outcome.says(["aged 1.1.0 of npm was released 24 h"]);
    let shown = why(&world);
    assert!(
        shown.contains("aged 1.1.0 of npm was released 24 h"),
        "{shown}"
    );
    assert!(shown.contains("registries.toml"), "{shown}");
    let refused = events(&world, "flow.refused");
    assert_eq!(refused.len(), 2, "{refused:?}");
    let opened = events(&world, "flow.opened");
    assert_eq!(opened.len(), 1, "{opened:?}");
    let rule = opened[0]["rule"].as_str().unwrap();
    assert!(rule.starts_with("for the date of a release: "), "{rule}");
}

#[test]
fn a_registry_that_says_no_date_lets_nothing_be_fetched() {
    let world = World::new("a_registry_that_says_no_date_lets_nothing_be_fetched");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let rows = [
        ("lies-future", "released later than now"),
        ("lies-word", "tells no date that can be read"),
        ("lies-number", "tells no date that can be read"),
        ("lies-none", "its answer cannot be read"),
        ("lies-name", "its answer is of another package"),
        ("lies-gone", "it does not know the package"),
        ("lies-moved", "it leads elsewhere (302)"),
        ("lies-packed", "its answer is packed"),
        ("lies-broken", "it answers 500"),
        ("lies-short", "its answer broke off"),
        ("lies-huge", "its answer has more than"),
    ];
    let urls: Vec<String> = rows
        .iter()
        .map(|(name, _)| format!("{NPM}/{name}/-/{name}-1.0.0.tgz"))
        .collect();
    let outcome = online(&world, DENIED, &[], &fetch(&urls));
    assert_eq!(outcome.out().trim(), ["403"; 11].join(" "), "{outcome}");
    let refused = events(&world, "flow.refused");
    for (name, said) in rows {
        let whys = refused.iter().filter_map(|one| one["why"].as_str());
        let mut of = whys.filter(|why| why.starts_with(&format!("{name} 1.0.0 of npm")));
        let why = of.next().unwrap_or_else(|| panic!("{name}: {refused:?}"));
        assert!(why.contains(said), "{why}");
    }
    let files = requests(&world)
        .into_iter()
        .filter(|line| line.contains(".tgz"));
    assert_eq!(files.count(), 0);
    // The controls: they are there, and others were fetched meanwhile.
    let aged = format!("{NPM}/aged/-/aged-1.0.0.tgz");
    let outcome = online(
        &world,
        DENIED,
        &[],
        &fetch(&[urls[10].clone(), aged.clone()]),
    );
    assert_eq!(outcome.out().trim(), "403 200", "{outcome}");
    let outcome = online(&world, PRESETS, &[], &fetch(&urls));
    assert_eq!(outcome.out().trim(), ["200"; 11].join(" "), "{outcome}");
    // Where the registry of the dates may not be asked, nothing is fetched.
    let closed = format!("{DENIED}\n").replace("deny = [", "deny = ['pypi.org', ");
    let file = "https://files.pythonhosted.org$(cat \"$INTERNET/wheel-1.0.0\")";
    let place = world.top().join("internet");
    let options = ["--ro", place.to_str().unwrap()];
    let script = |url: &str| {
        format!(
            "INTERNET='{}'; {}",
            place.display(),
            fetch(&[format!("\"{url}\"")])
        )
    };
    for (network, expected) in [(closed.as_str(), "403"), (DENIED, "200")] {
        let outcome = online(&world, network, &options, &script(file));
        assert_eq!(outcome.out().trim(), expected, "{network}: {outcome}");
    }
}

#[test]
fn a_registry_that_never_ends_is_not_waited_for_slow() {
    let world = World::new("a_registry_that_never_ends_is_not_waited_for_slow");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let urls = ["lies-slow", "aged"].map(|name| format!("{NPM}/{name}/-/{name}-1.0.0.tgz"));
    let outcome = online(&world, DENIED, &[], &fetch(&urls));
    assert_eq!(outcome.out().trim(), "403 200", "{outcome}");
    let refused = events(&world, "flow.refused");
    let why = refused[0]["why"].as_str().unwrap();
    assert!(why.contains("its registry took too long"), "{why}");
}

/// Prints the installed release of `aged`: the one that npm chooses itself, the one that it chooses
/// without a setting on age, the young one by its name, and the old one.
const NPM_SCRIPT: &str = "get() { rm -rf node_modules package.json package-lock.json; \
     npm install --silent --no-audit --no-fund --cache cache$2 \"$1\" >/dev/null 2>&1; \
     node -p 'require(\"aged/package\").version' 2>/dev/null || echo none; }; \
     get aged 1; unset npm_config_before; get aged 2; get aged@1.1.0 3; get aged@1.0.0 4";

#[test]
fn npm_takes_a_release_that_is_old_enough() {
    let world = World::new("npm_takes_a_release_that_is_old_enough");
    if !is_possible(&world, &["openssl", "npm"]) {
        return;
    }
    for (network, expected) in [
        (DENIED, "1.0.0 none none 1.0.0"),
        (ALLOWED, "1.0.0 none none 1.0.0"),
        (PRESETS, "1.1.0 1.1.0 1.1.0 1.0.0"),
    ] {
        let outcome = online(&world, network, &[], NPM_SCRIPT);
        let versions: Vec<String> = outcome.out().lines().map(str::to_owned).collect();
        assert_eq!(versions.join(" "), expected, "{network}: {outcome}");
    }
    // What npm itself leaves out is told of where it fails.
    let install = "npm install --no-audit --no-fund --cache cache aged@1.1.0";
    let outcome = online(&world, DENIED, &[], install);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(outcome.err().contains("ETARGET"), "{outcome}");
    let _ = outcome.says(["npm chooses among releases of at least 7 days ago"]);
    let outcome = online(&world, PRESETS, &[], install).success();
    assert!(!outcome.err().contains("npm chooses"), "{outcome}");
}

#[test]
fn pip_takes_a_release_that_is_old_enough() {
    let world = World::new("pip_takes_a_release_that_is_old_enough");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let built = world.host("python3").args(["-m", "venv", "probe"]).run();
    if built.code() != 0 {
        world.skip("python3 has no venv with pip", Avoidable::Yes);
        return;
    }
    let script = "python3 -m venv at; get() { at/bin/pip uninstall -q -y aged >/dev/null 2>&1; \
                  at/bin/pip install -q --no-cache-dir \"$1\" >/dev/null 2>&1; \
                  at/bin/python -c 'import aged; print(aged.version)' 2>/dev/null || echo none; }; \
                  get aged==1.0.0; unset PIP_UPLOADED_PRIOR_TO; get aged; get aged==1.1.0";
    for (network, expected) in [
        (DENIED, "1.0.0 none none"),
        (ALLOWED, "1.0.0 none none"),
        (PRESETS, "1.0.0 1.1.0 1.1.0"),
    ] {
        let outcome = online(&world, network, &[], script);
        let versions: Vec<String> = outcome.out().lines().map(str::to_owned).collect();
        assert_eq!(versions.join(" "), expected, "{network}: {outcome}");
    }
}

#[test]
fn cargo_takes_a_release_that_is_old_enough() {
    let world = World::new("cargo_takes_a_release_that_is_old_enough");
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
    let script = format!(
        "PATH='{toolchain}/bin':$PATH; mkdir src; echo > src/lib.rs; get() {{ rm -rf Cargo.lock; \
         printf '[package]\\nname = \"a\"\\nedition = \"2021\"\\n[dependencies]\\naged = \"%s\"\\n' \"$1\" > Cargo.toml; \
         if cargo fetch --quiet 2>said; then cargo pkgid aged | sed 's/.*@//'; else echo none; fi; }}; \
         get '=1.0.0'; get '*'; get '=1.1.0'; cargo fetch 2>&1 | grep -c 'has to be 7d old'"
    );
    for (network, expected) in [
        (DENIED, "1.0.0 none none 1"),
        (ALLOWED, "1.0.0 none none 1"),
        (PRESETS, "1.0.0 1.1.0 1.1.0 0"),
    ] {
        let outcome = online(&world, network, &["--ro", &toolchain], &script);
        let versions: Vec<String> = outcome.out().lines().map(str::to_owned).collect();
        assert_eq!(versions.join(" "), expected, "{network}: {outcome}");
    }
}

/// A program is not told where policies that would ask a person are written.
#[test]
fn where_a_policy_asks_about_a_registry_its_program_is_told_no_more() {
    let name = "where_a_policy_asks_about_a_registry_its_program_is_told_no_more";
    let world = World::new(name);
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    world.write(
        world.config().join("atoll/own.cedar"),
        "permit(principal, action, resource);\n@id(\"documents\") @approve(\"person\") permit(principal, action == Action::\"request\", resource) when { context.path == \"/aged\" };\n",
    );
    let script = format!("curl -sS --noproxy '*' {NPM}/aged/-/aged-1.0.0.tgz");
    let outcome = online(&world, ALLOWED, &[], &script);
    let told: serde_json::Value = serde_json::from_str(outcome.out().trim()).unwrap();
    let why = told["why"].as_str().unwrap();
    assert!(why.contains("a person is to be asked"), "{outcome}");
    assert!(!outcome.out().contains("own.cedar"), "{outcome}");
    assert_eq!(asked(&world), Vec::<String>::new());
}
