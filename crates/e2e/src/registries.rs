//! Package registries on a small internet of a test's own, where `aged` has the releases 1.0.0 and,
//! of yesterday, 1.1.0; that of npm has the same of every other name.

use std::time::Duration;

use crate::internet::on_servers;
use crate::{Outcome, World};

/// The longest time that a package manager may take.
pub const LONG: Duration = Duration::from_secs(180);
/// The program that answers for the registries.
pub const SERVERS: &str = include_str!("../tests/ages/servers.py");
/// The names of their certificates.
pub const NAMES: &[&str] = &[
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    "pypi.org",
    "files.pythonhosted.org",
    "index.crates.io",
    "static.crates.io",
];
/// The command that prints the status of a response alone.
pub const CURL: &str = "curl -sS --noproxy '*' --path-as-is -o /dev/null -w '%{http_code} '";
/// The registry of npm.
pub const NPM: &str = "https://registry.npmjs.org";
/// Rules that allow every registry entirely.
pub const PRESETS: &str = "presets = ['npm', 'pip', 'cargo']";

/// Runs a shell script in a sandbox on an internet with these registries, with these rules.
#[must_use]
pub fn online(world: &World, network: &str, options: &[&str], script: &str) -> Outcome {
    world.profile("registries", &format!("[network]\n{network}\n"));
    let command = "\"$ATOLL\" run --discard --profile registries \"$@\"";
    let run = on_servers(world, SERVERS, NAMES, command);
    let run = run.within(LONG).arg("sh").args(options);
    run.args(["--", "sh", "-c", script]).run()
}

/// Returns the requests that have reached the registries, a line each.
#[must_use]
pub fn requests(world: &World) -> Vec<String> {
    let path = world.top().join("internet/requests");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
