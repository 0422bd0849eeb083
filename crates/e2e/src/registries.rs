//! Registries of packages on a small internet of a test's own, where `aged` has the releases
//! 1.0.0 and, of yesterday, 1.1.0; that of npm has the same of every other name.

use std::time::Duration;

use crate::internet::on_servers;
use crate::{Outcome, World};

/// How long a package manager may take.
pub const LONG: Duration = Duration::from_secs(180);
/// What answers for them.
pub const SERVERS: &str = include_str!("../tests/ages/servers.py");
/// Their certificates.
pub const NAMES: &[&str] = &[
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    "pypi.org",
    "files.pythonhosted.org",
    "index.crates.io",
    "static.crates.io",
];
/// Tells the status of an answer alone.
pub const CURL: &str = "curl -sS --noproxy '*' --path-as-is -o /dev/null -w '%{http_code} '";
/// Where that of npm is.
pub const NPM: &str = "https://registry.npmjs.org";
/// Rules that allow all of each.
pub const PRESETS: &str = "presets = ['npm', 'pip', 'cargo']";

/// Runs a shell script inside where these registries are, by these rules.
#[must_use]
pub fn online(world: &World, network: &str, options: &[&str], script: &str) -> Outcome {
    world.profile("registries", &format!("[network]\n{network}\n"));
    let command = "\"$ATOLL\" run --discard --profile registries \"$@\"";
    let run = on_servers(world, SERVERS, NAMES, command);
    let run = run.within(LONG).arg("sh").args(options);
    run.args(["--", "sh", "-c", script]).run()
}

/// What has reached the registries, a line each.
#[must_use]
pub fn requests(world: &World) -> Vec<String> {
    let path = world.top().join("internet/requests");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
