//! Releases named by lock files, and the requests for them.

use crate::network::*;

const NPM: &str = "registry.npmjs.org";
const FILES: &str = "files.pythonhosted.org";
const CRATES: &str = "static.crates.io";

fn file(path: &str) -> LockFile {
    LockFile::try_from(path.to_owned()).unwrap()
}

/// Returns a rule for packages of a registry at any of its hosts, with these lock files.
fn rule(registry: Registry, names: &[&str], locks: &[&str]) -> NetworkRule {
    let names = names
        .iter()
        .map(|name| PackagePattern::try_from((*name).to_owned()).unwrap());
    NetworkRule {
        requests: Conditions {
            packages: Some(Packages {
                registry,
                names: names.collect(),
                minimum_age_ms: None,
                locks: locks.iter().map(|path| file(path)).collect(),
            }),
            ..Conditions::default()
        },
        ..NetworkRule::learning()
    }
}

fn lock(registry: Registry, path: &str, releases: &[(&str, &str)]) -> Lock {
    let mut lock = Lock::new(registry, file(path));
    for (name, version) in releases {
        lock.add(name, version);
    }
    lock
}

/// Returns whether a request may be sent, or the reason why lock files refuse it.
fn judged(network: &Network, locks: &Locks, host: &str, path: &str) -> Result<(), String> {
    let (host, target) = (host.parse().unwrap(), Target::parse(path).unwrap());
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method: "GET",
        target: &target,
    };
    network.request(&request).map_err(|error| error.why())?;
    match network.unlocked(&request, locks) {
        Some(unlocked) => Err(unlocked.why()),
        None => Ok(()),
    }
}

fn network(allow: Vec<NetworkRule>, deny: Vec<NetworkRule>) -> Network {
    Network {
        allow,
        deny,
        ..Network::default()
    }
}

#[test]
fn what_a_lock_file_names_can_be_fetched_and_nothing_else() {
    let locks = Locks::from(vec![
        lock(
            Registry::Npm,
            "package-lock.json",
            &[
                ("a", "1.0.0"),
                ("@s/b", "2.0.0-rc.1+x"),
                ("JSONStream", "1.3.5"),
            ],
        ),
        lock(
            Registry::Pip,
            "requirements.txt",
            &[
                ("Left_Pad", "1.0"),
                ("foo", "2-1"),
                ("two-2", "1.0"),
                ("old", "1.0-beta"),
            ],
        ),
        lock(Registry::Cargo, "Cargo.lock", &[("Serde_x", "1.0.0+a")]),
    ]);
    let hashed = |name: &str| format!("/packages/ab/cd/{}/{name}", "0123456789".repeat(6));
    let rows = [
        (NPM, "/a/-/a-1.0.0.tgz".to_owned(), true),
        (NPM, "/a".to_owned(), true),
        (NPM, "/a/2.0.0".to_owned(), true),
        (NPM, "/a/-/a-1.0.1.tgz".to_owned(), false),
        (NPM, "/a/-/a-1.0.0.tgz/".to_owned(), false),
        (NPM, "/a/-/a-v1.0.0.tgz".to_owned(), false),
        (NPM, "/a/-/a-01.0.0.tgz".to_owned(), false),
        (NPM, "/A/-/A-1.0.0.tgz".to_owned(), false),
        (NPM, "//a/-/a-1.0.0.tgz".to_owned(), false),
        (NPM, "/%61/-/a-1.0.0.tgz".to_owned(), true),
        (NPM, "/b".to_owned(), false),
        (NPM, "/b/-/b-2.0.0-rc.1+x.tgz".to_owned(), false),
        (NPM, "/@s/b/-/b-2.0.0-rc.1%2Bx.tgz".to_owned(), true),
        (NPM, "/@s%2fb".to_owned(), true),
        (NPM, "/@t/b/-/b-2.0.0-rc.1%2Bx.tgz".to_owned(), false),
        (NPM, "/JSONStream/-/JSONStream-1.3.5.tgz".to_owned(), true),
        (NPM, "/jsonstream/-/jsonstream-1.3.5.tgz".to_owned(), false),
        (NPM, "/-/all".to_owned(), false),
        ("registry.yarnpkg.com", "/a/-/a-1.0.0.tgz".to_owned(), true),
        ("registry.yarnpkg.com", "/a/-/a-1.0.1.tgz".to_owned(), false),
        ("pypi.org", "/simple/left-pad/".to_owned(), true),
        ("pypi.org", "/simple/LEFT.pad/".to_owned(), true),
        ("pypi.org", "/simple/other/".to_owned(), false),
        ("pypi.org", "/simple/".to_owned(), false),
        ("pypi.org", "/pypi/left-pad/1.0/json".to_owned(), true),
        (FILES, hashed("left_pad-1.0-py3-none-any.whl"), true),
        (FILES, hashed("Left.Pad-1.0.0-2-py3-none-any.whl"), true),
        (FILES, hashed("left_pad-1.0.1-py3-none-any.whl"), false),
        (
            FILES,
            hashed("left_pad-1.0.1-py3-none-any.whl.metadata"),
            true,
        ),
        (FILES, hashed("other-1.0-py3-none-any.whl.metadata"), false),
        (FILES, hashed("left-pad-1.0.tar.gz"), true),
        (FILES, hashed("left-pad-1.0.post1.tar.gz"), false),
        (FILES, hashed("left-pad-1.0rc1.zip"), false),
        // Names that can be read in two ways are of neither.
        (FILES, hashed("two-2-1.0.tar.gz"), false),
        (FILES, hashed("two_2-1.0.tar.gz"), true),
        (FILES, hashed("foo-2-1.tar.gz"), false),
        // No plain spelling of a version.
        (FILES, hashed("old-1.0-beta.tar.gz"), false),
        (FILES, hashed("left_pad-v1.0.tar.gz"), false),
        ("index.crates.io", "/config.json".to_owned(), true),
        ("index.crates.io", "/se/rd/serde_x".to_owned(), true),
        ("index.crates.io", "/se/rd/serde".to_owned(), false),
        (CRATES, "/crates/Serde_x/1.0.0+a/download".to_owned(), true),
        (
            CRATES,
            "/crates/Serde_x/1.0.0%2Ba/download".to_owned(),
            true,
        ),
        (
            CRATES,
            "/crates/Serde_x/Serde_x-1.0.0+a.crate".to_owned(),
            true,
        ),
        (CRATES, "/crates/Serde_x/1.0.0/download".to_owned(), false),
        (CRATES, "/crates/serde_x/1.0.0+a/download".to_owned(), false),
        (CRATES, "/crates/Serde-x/1.0.0+a/download".to_owned(), false),
        (
            "crates.io",
            "/api/v1/crates/Serde_x/1.0.0+a/download".to_owned(),
            true,
        ),
        (
            "crates.io",
            "/api/v1/crates/Serde_x/1.0.1/download".to_owned(),
            false,
        ),
        ("crates.io", "/api/v1/crates".to_owned(), false),
    ];
    let rules = [
        rule(Registry::Npm, &["*"], &["package-lock.json"]),
        rule(Registry::Pip, &["*"], &["requirements.txt"]),
        rule(Registry::Cargo, &["*"], &["Cargo.lock"]),
    ];
    for (host, path, expected) in rows {
        // The rule of the host's registry; as `to` they lead everywhere here.
        let of_host = |rule: &&NetworkRule| {
            let packages = rule.requests.packages.as_ref().unwrap();
            packages.registry.hosts().contains(&host)
        };
        let rule = rules.iter().find(of_host).unwrap().clone();
        let everything = NetworkRule::learning();
        let allows = network(vec![rule.clone()], Vec::new());
        let both = network(vec![everything.clone(), rule.clone()], Vec::new());
        let denies = network(vec![everything.clone()], vec![rule]);
        for (name, network) in [("allow", allows), ("both", both), ("deny", denies)] {
            let said = judged(&network, &locks, host, &path);
            assert_eq!(said.is_ok(), expected, "{name} {host}{path}: {said:?}");
            // A file that was not read names nothing.
            let unread = judged(&network, &Locks::default(), host, &path);
            let is_all = path == "/config.json";
            assert!(unread.is_err() || is_all, "{name} {host}{path}");
        }
        // The control: without a lock file.
        let free = network(vec![everything], Vec::new());
        assert_eq!(judged(&free, &locks, host, &path), Ok(()));
    }
}

#[test]
fn lock_files_names_and_tables_all_have_to_agree() {
    let locks = Locks::from(vec![
        lock(
            Registry::Npm,
            "a/package-lock.json",
            &[("a", "1.0.0"), ("@s/c", "1.0.0")],
        ),
        lock(Registry::Npm, "b/package-lock.json", &[("b", "1.0.0")]),
    ]);
    let of = |names: &[&str], locks: &[&str]| rule(Registry::Npm, names, locks);
    let (first, second) = (
        of(&["*"], &["a/package-lock.json"]),
        of(&["*"], &["b/package-lock.json"]),
    );
    let either = of(&["*"], &["a/package-lock.json", "b/package-lock.json"]);
    let free = of(&["free"], &[]);
    let everything = NetworkRule::learning;
    let rows = [
        // Two tables that allow, or two files of one: either has to name it.
        (
            network(vec![first.clone(), second.clone()], vec![]),
            [true, true, false, false],
        ),
        (network(vec![either], vec![]), [true, true, false, false]),
        // Two that deny: both.
        (
            network(vec![everything()], vec![first.clone(), second.clone()]),
            [false; 4],
        ),
        (network(vec![first.clone()], vec![second]), [false; 4]),
        // A table of names without one counts before it, and not after it.
        (
            network(vec![free.clone(), first.clone()], vec![]),
            [true, false, false, true],
        ),
        (
            network(vec![first.clone(), free.clone()], vec![]),
            [true, false, false, false],
        ),
        (network(vec![free], vec![first.clone()]), [false; 4]),
        // By names too.
        (
            network(vec![of(&["b"], &["a/package-lock.json"])], vec![]),
            [false; 4],
        ),
        (
            network(
                vec![everything()],
                vec![of(&["b"], &["a/package-lock.json"])],
            ),
            [true, false, true, true],
        ),
        (
            network(vec![first.clone()], vec![of(&["a"], &[])]),
            [false; 4],
        ),
    ];
    for (at, (network, expected)) in rows.into_iter().enumerate() {
        let paths = [
            "/a/-/a-1.0.0.tgz",
            "/b/-/b-1.0.0.tgz",
            "/c/-/c-1.0.0.tgz",
            "/free/-/free-1.0.0.tgz",
        ];
        let said = paths.map(|path| judged(&network, &locks, NPM, path));
        assert_eq!(
            said.clone().map(|one| one.is_ok()),
            expected,
            "{at}: {said:?}"
        );
    }
}

#[test]
fn a_lock_file_holds_at_every_port_and_without_tls() {
    let locks = Locks::from(vec![lock(
        Registry::Npm,
        "package-lock.json",
        &[("a", "1.0.0")],
    )]);
    let locked = NetworkRule {
        to: format!("{NPM}:443").parse().unwrap(),
        ..rule(Registry::Npm, &["*"], &["package-lock.json"])
    };
    let network = network(vec![locked, NetworkRule::learning()], Vec::new());
    for (path, expected) in [
        ("/a/-/a-1.0.0.tgz", true),
        ("/a/-/a-2.0.0.tgz", false),
        ("/-/x", false),
    ] {
        let (host, target) = (NPM.parse().unwrap(), Target::parse(path).unwrap());
        for (port, scheme) in [
            (443, Scheme::Https),
            (80, Scheme::Http),
            (8443, Scheme::Https),
        ] {
            let request = Request {
                host: &host,
                port,
                scheme,
                method: "GET",
                target: &target,
            };
            let is_sent =
                network.request(&request).is_ok() && network.unlocked(&request, &locks).is_none();
            assert_eq!(is_sent, expected, "{path} {port}");
        }
    }
}

#[test]
fn a_refusal_names_the_release_and_the_file() {
    let locks = Locks::from(vec![lock(
        Registry::Npm,
        "package-lock.json",
        &[("a", "1.0.0")],
    )]);
    let mut locked = rule(Registry::Npm, &["*"], &["package-lock.json"]);
    locked.origin = "p.toml:3".to_owned();
    let network = network(vec![locked], Vec::new());
    let (host, target) = (
        NPM.parse().unwrap(),
        Target::parse("/b/-/b-2.0.0.tgz").unwrap(),
    );
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method: "GET",
        target: &target,
    };
    let unlocked = network.unlocked(&request, &locks).unwrap();
    assert_eq!(
        unlocked.why(),
        "b 2.0.0 of npm is not named by the lock file package-lock.json as it was when this run \
         started; change that file outside to allow it: *:* for packages * of npm that package-lock.json names (p.toml:3)"
    );
    assert!(
        !unlocked.why_inside().contains("p.toml"),
        "{}",
        unlocked.why_inside()
    );
    assert!(unlocked.how_to_ask().contains("change that file outside"));
    assert_eq!(
        judged(&network, &locks, NPM, "/b")
            .unwrap_err()
            .split("; ")
            .next()
            .unwrap(),
        "b of npm is not named by the lock file package-lock.json as it was when this run started"
    );
    assert!(
        judged(&network, &locks, NPM, "/-/b")
            .unwrap_err()
            .starts_with("which release it is of cannot be told")
    );
}

#[test]
fn a_lock_file_is_named_beneath_the_workspace() {
    for path in [
        "package-lock.json",
        "web/app/package-lock.json",
        ".x/Cargo.lock",
    ] {
        assert!(LockFile::try_from(path.to_owned()).is_ok(), "{path}");
    }
    for path in [
        "", "/a", "a/", "a//b", "..", "../a", "a/../b", "./a", "a\nb", "a\0",
    ] {
        assert!(LockFile::try_from(path.to_owned()).is_err(), "{path:?}");
    }
    for (registry, path, expected) in [
        (Registry::Npm, "a/package-lock.json", Some(LockKind::Npm)),
        (Registry::Npm, "npm-shrinkwrap.json", Some(LockKind::Npm)),
        (Registry::Npm, "yarn.lock", None),
        (Registry::Npm, "Cargo.lock", None),
        (Registry::Cargo, "Cargo.lock", Some(LockKind::Cargo)),
        (Registry::Cargo, "cargo.lock", None),
        (
            Registry::Pip,
            "requirements/dev.txt",
            Some(LockKind::Requirements),
        ),
        (Registry::Pip, "uv.lock", Some(LockKind::Uv)),
        (Registry::Pip, "poetry.lock", Some(LockKind::Poetry)),
        (Registry::Pip, "Pipfile.lock", None),
    ] {
        assert_eq!(file(path).kind(registry), expected, "{path}");
    }
}

#[test]
fn versions_of_python_are_equal_that_mean_the_same() {
    let same = [
        ("1.0", "1"),
        ("1.0.0", "1"),
        ("01.02", "1.2"),
        ("2024.01.05", "2024.1.5"),
        ("0.0", "0"),
        ("0!1.0", "1"),
        ("1!1.0", "1!1"),
        ("1.0rc01", "1rc1"),
        ("1.0.post02", "1.post2"),
        ("1.0a1.post2.dev3", "1a1.post2.dev3"),
        ("1.0+ubuntu-1", "1+ubuntu.1"),
        ("1+a_01", "1+a.1"),
    ];
    for (one, other) in same {
        assert!(normal_version(one).is_some(), "{one}");
        assert_eq!(normal_version(one), normal_version(other), "{one} {other}");
    }
    let all = [
        "1", "1.1", "10", "1!1", "1a1", "1b1", "1rc1", "1.post1", "1.dev1", "1a1.dev1", "1+a",
        "1+b", "1+a.b",
    ];
    for (at, one) in all.iter().enumerate() {
        for other in &all[at + 1..] {
            assert_ne!(normal_version(one), normal_version(other), "{one} {other}");
        }
    }
    for none in [
        "",
        "v1",
        "1.",
        ".1",
        "1..2",
        "1.0-beta",
        "1.0a",
        "1.0A1",
        "1.*",
        "=1.0",
        "1 ",
        "1.0,<2",
        "1!",
        "!1",
        "1+",
        "1+a..b",
        "1+A",
        "1.dev1.post1",
        "1.post",
        "1-1",
        "a",
        "1_0",
        "1+a+b",
        "1!1!1",
        "٣",
    ] {
        assert_eq!(normal_version(none), None, "{none:?}");
    }
}

#[test]
fn a_rule_that_denies_is_told_as_one_that_denies_the_rest() {
    let locks = Locks::from(Vec::new());
    let mut locked = rule(Registry::Npm, &["*"], &["package-lock.json"]);
    locked.origin = "p.toml:3".to_owned();
    let learning = NetworkRule::learning();
    let network = network(vec![learning], vec![locked]);
    let why = judged(&network, &locks, NPM, "/b/-/b-2.0.0.tgz").unwrap_err();
    let told = "*:* for packages * of npm, but for those that package-lock.json names";
    assert!(why.ends_with(&format!("{told} (p.toml:3)")), "{why}");
    assert_eq!(network.deny[0].denying().to_string(), told);
    // What says nothing of releases is told as it is.
    assert_eq!(
        network.allow[0].denying().to_string(),
        network.allow[0].to_string()
    );
}

#[test]
fn a_line_that_leaves_a_release_open_is_named() {
    let mut lock = lock(Registry::Pip, "requirements.txt", &[("six", "1.17.0")]);
    lock.note_open("Requests", 4);
    lock.note_open("requests", 9);
    lock.note_open("$(id)", 1);
    assert_eq!(lock.first_open(), Some(4));
    let locks = Locks::from(vec![lock]);
    // It is handed on with the rest.
    let locks: Locks = serde_json::from_str(&serde_json::to_string(&locks).unwrap()).unwrap();
    let locked = rule(Registry::Pip, &["*"], &["requirements.txt"]);
    let network = network(vec![locked], Vec::new());
    let why = judged(&network, &locks, "pypi.org", "/simple/requests/").unwrap_err();
    let told = "started (requirements.txt: line 4 wants name==VERSION, as pip freeze prints it)";
    assert!(why.contains(told), "{why}");
    let other = judged(&network, &locks, "pypi.org", "/simple/other/").unwrap_err();
    assert!(!other.contains("line"), "{other}");
    assert_eq!(judged(&network, &locks, "pypi.org", "/simple/six/"), Ok(()));
}
