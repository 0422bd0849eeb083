//! Packages that requests are about.

use crate::network::*;

fn request<'a>(host: &'a HostPart, target: &'a Target) -> Request<'a> {
    Request {
        host,
        port: 443,
        scheme: Scheme::Https,
        method: "GET",
        target,
    }
}

/// Returns whether rules for these packages allow a path, and whether they deny it.
fn judged(registry: Registry, names: &[&str], host: &str, path: &str) -> (bool, bool) {
    let names = names
        .iter()
        .map(|name| PackagePattern::try_from((*name).to_owned()).unwrap());
    let packages = Some(Packages {
        registry,
        names: names.collect(),
        minimum_age_ms: None,
        locks: Vec::new(),
    });
    let rule = NetworkRule {
        to: format!("{host}:*").parse().unwrap(),
        requests: Conditions {
            packages,
            ..Conditions::default()
        },
        ..NetworkRule::learning()
    };
    let all = NetworkRule::learning();
    let allows = Network {
        allow: vec![rule.clone()],
        ..Network::default()
    };
    let denies = Network {
        allow: vec![all],
        deny: vec![rule],
        learn: None,
        ..Network::default()
    };
    let (host, target) = (host.parse().unwrap(), Target::parse(path).unwrap());
    let request = request(&host, &target);
    (
        allows.request(&request).is_ok(),
        denies.request(&request).is_err(),
    )
}

const NPM: &str = "registry.npmjs.org";
const FILES: &str = "files.pythonhosted.org";
const INDEX: &str = "index.crates.io";
const CRATES: &str = "static.crates.io";

/// Returns the path of a file of PyPI.
fn file(name: &str) -> String {
    format!("/packages/ab/cd/{}/{name}", "0123456789".repeat(6))
}

#[test]
fn a_package_is_known_by_its_path_in_one_form() {
    let wheel = file("Left_Pad-1.0.0-py3-none-any.whl");
    let described = file("left_pad-1.0.0-py3-none-any.whl.metadata");
    let (source, old) = (file("left_pad-1.0.0.tar.gz"), file("left-pad-1.0.0.zip"));
    for (registry, host, path) in [
        (Registry::Npm, NPM, "/left-pad"),
        (Registry::Npm, NPM, "/left%2Dpad"),
        (Registry::Npm, NPM, "/left-pad/1.0.0"),
        (Registry::Npm, NPM, "/left-pad/latest"),
        (Registry::Npm, NPM, "/left-pad/-/left-pad-1.0.0-rc.1.tgz"),
        (Registry::Npm, "registry.yarnpkg.com", "/left-pad"),
        (Registry::Pip, "pypi.org", "/simple/left-pad/"),
        (Registry::Pip, "pypi.org", "/simple/Left.Pad"),
        (Registry::Pip, "pypi.org", "/pypi/left_pad/json"),
        (Registry::Pip, "pypi.org", "/pypi/left_pad/1.0.0/json"),
        (Registry::Pip, FILES, &wheel),
        (Registry::Pip, FILES, &described),
        (Registry::Pip, FILES, &source),
        (Registry::Pip, FILES, &old),
        (Registry::Cargo, INDEX, "/le/ft/left-pad"),
        (
            Registry::Cargo,
            CRATES,
            "/crates/left-pad/left-pad-1.0.0.crate",
        ),
        (Registry::Cargo, CRATES, "/crates/left_pad/1.0.0/download"),
        (
            Registry::Cargo,
            "crates.io",
            "/api/v1/crates/left-pad/1.0.0%2B7/download",
        ),
    ] {
        let of = |names: &[&str]| judged(registry, names, host, path);
        assert_eq!(of(&["left-pad"]), (true, true), "{path}");
        assert_eq!(of(&["other", "left-p*"]), (true, true), "{path}");
        assert_eq!(of(&["*"]), (true, true), "{path}");
        assert_eq!(
            of(&["left", "pad", "left-pad2", "left-pads*"]),
            (false, false),
            "{path}"
        );
    }
    for path in [
        "/@types/node",
        "/@types%2fnode",
        "/@types/node/-/node-20.0.0.tgz",
    ] {
        assert_eq!(
            judged(Registry::Npm, &["@types/node"], NPM, path),
            (true, true)
        );
        assert_eq!(
            judged(Registry::Npm, &["@types/*"], NPM, path),
            (true, true)
        );
        assert_eq!(
            judged(Registry::Npm, &["node", "types*"], NPM, path),
            (false, false)
        );
    }
    // What asks for no package and is needed for all of them.
    let config = judged(Registry::Cargo, &["serde"], INDEX, "/config.json");
    assert_eq!(config, (true, false));
    assert_eq!(
        judged(Registry::Cargo, &["a", "ab", "abc"], INDEX, "/3/a/abc"),
        (true, true)
    );
    assert_eq!(
        judged(Registry::Cargo, &["ab"], INDEX, "/2/ab"),
        (true, true)
    );
}

#[test]
fn what_is_in_doubt_is_not_allowed_and_is_denied() {
    let unnamed = file("1.0.0.tar.gz");
    let parts = file("left_pad-1.0.0.whl");
    let program = file("left_pad-1.0.0.exe");
    for (registry, host, path) in [
        (Registry::Npm, NPM, "/"),
        (Registry::Npm, NPM, "/-/all"),
        (Registry::Npm, NPM, "/-/v1/search?text=left-pad"),
        (Registry::Npm, NPM, "//left-pad"),
        (Registry::Npm, NPM, "/left-pad/"),
        (Registry::Npm, NPM, "/./left-pad"),
        (Registry::Npm, NPM, "/x/../left-pad"),
        (Registry::Npm, NPM, "/left%252Dpad"),
        (Registry::Npm, NPM, "/left-pad%00"),
        (Registry::Npm, NPM, "/left-pad%2F-%2Fleft-pad-1.0.0.tgz"),
        (Registry::Npm, NPM, "/left-pad/-/other-1.0.0.tgz"),
        (Registry::Npm, NPM, "/left-pad;other"),
        (Registry::Npm, NPM, "/%40types%2fnode"),
        (Registry::Npm, NPM, "/@types"),
        (Registry::Pip, "pypi.org", "/simple/"),
        (Registry::Pip, "pypi.org", "/simple/left-pad/x"),
        (Registry::Pip, "pypi.org", "/search"),
        (Registry::Pip, FILES, "/packages/left_pad-1.0.0.tar.gz"),
        (Registry::Pip, FILES, &unnamed),
        (Registry::Pip, FILES, &parts),
        (Registry::Pip, FILES, &program),
        (Registry::Cargo, INDEX, "/le/fx/left-pad"),
        (Registry::Cargo, INDEX, "/LE/FT/LEFT-PAD"),
        (Registry::Cargo, INDEX, "/left-pad"),
        (
            Registry::Cargo,
            CRATES,
            "/crates/left-pad/other-1.0.0.crate",
        ),
        (Registry::Cargo, CRATES, "/crates/left-pad/download"),
        (Registry::Cargo, "crates.io", "/api/v1/crates?q=left-pad"),
    ] {
        let names = &["left-pad", "other", "types", "@types/node"];
        assert_eq!(judged(registry, names, host, path), (false, true), "{path}");
    }
    // A file's name that can be of two projects: both have to be allowed.
    let two = file("left-1-2.tar.gz");
    let of = |names: &[&str]| judged(Registry::Pip, names, FILES, &two);
    assert_eq!(of(&["left"]), (false, true));
    assert_eq!(of(&["left-1"]), (false, true));
    assert_eq!(of(&["left", "left-1"]), (true, true));
    // Upper and lower case are two packages of npm, and may be one to a server.
    let of = |path| judged(Registry::Npm, &["left-pad"], NPM, path);
    assert_eq!(of("/LEFT-pad"), (false, true));
}

#[test]
fn names_of_packages_are_read_as_they_are_written() {
    for name in [
        "a",
        "left-pad",
        "@types/node",
        "@types/*",
        "left-*",
        "*",
        "JSONStream",
    ] {
        let pattern = PackagePattern::try_from(name.to_owned()).unwrap();
        assert_eq!(pattern.as_str(), name);
    }
    for name in [
        "", "@types", "@/a", "a/b", "a*b", "**", "-a", ".a", "a b", "@*/a", "@a/b/c", "%61",
    ] {
        let read = PackagePattern::try_from(name.to_owned());
        assert_eq!(read, Err(InvalidPackage), "{name}");
    }
}

#[test]
fn a_tunnel_to_a_registry_of_which_something_is_denied_is_none() {
    let deny = NetworkRule {
        to: "registry.npmjs.org:*".parse().unwrap(),
        requests: Conditions {
            packages: Some(Packages {
                registry: Registry::Npm,
                names: vec![PackagePattern::try_from("left-pad".to_owned()).unwrap()],
                minimum_age_ms: None,
                locks: Vec::new(),
            }),
            ..Conditions::default()
        },
        ..NetworkRule::learning()
    };
    let tunnel = NetworkRule {
        way: Way::Tunnel,
        ..NetworkRule::learning()
    };
    let host = NPM.parse().unwrap();
    for (deny, expected) in [(vec![deny], Look::Into), (Vec::new(), Look::Past)] {
        let network = Network {
            allow: vec![tunnel.clone()],
            deny,
            learn: None,
            ..Network::default()
        };
        assert_eq!(network.connection(&host, 443).unwrap().1, expected);
    }
}
