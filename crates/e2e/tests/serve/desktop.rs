//! Templates of Debian's packages, on a small internet with a part of its archive.

use std::fs;
use std::path::Path;
use std::time::Duration;

use e2e::internet::{is_possible, on_servers};
use e2e::traces::verify_ledger;
use e2e::{Avoidable, Invocation, World, cache, python_site};

use super::{all_passed_of, checks};

/// The longest time that it takes to install a desktop on a busy machine.
const LONG: Duration = Duration::from_secs(1_200);
/// The time for which indexes of the archive are good.
const LASTS: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Returns the run of checks, in an environment with this SDK, while the archive can be reached;
/// `None` where there is none.
fn with_archive(world: &World, site: &Path, script: &str) -> Option<Invocation> {
    let archive = cache().map(|cache| cache.join("debian"));
    let is_whole = |archive: &Path| {
        let made = fs::metadata(archive.join("whole")).and_then(|facts| facts.modified());
        let age = made.ok().and_then(|made| made.elapsed().ok());
        age.is_some_and(|age| age < LASTS)
    };
    let Some(archive) = archive.filter(|archive| is_whole(archive)) else {
        let why = "Debian's packages of this week are not in ATOLL_TEST_CACHE";
        world.skip(why, Avoidable::Yes);
        return None;
    };
    let mirror = world.top().join("mirror");
    // Tests change it: each has links of its own.
    let copy = world.host("cp").args(["--recursive", "--symbolic-link"]);
    let _ = copy.arg(&archive).arg(&mirror).run().success();
    let command = format!(
        "'{}' '{}'",
        site.join("bin/python").display(),
        checks(script).display()
    );
    let servers = fs::read_to_string(checks("mirror.py")).unwrap();
    let run = on_servers(world, &servers, &["deb.debian.org"], &command);
    let run = run.env("CONFIG", world.config()).env("MIRROR", mirror);
    Some(run.within(LONG))
}

/// A system of Debian's own packages, which the host's is no part of.
#[test]
fn a_minimal_debian_is_a_template() {
    let world = World::new("a_minimal_debian_is_a_template");
    let Some(site) =
        python_site(&world, "e2b").filter(|_| is_possible(&world, &["gpgv", "openssl"]))
    else {
        return;
    };
    if let Some(run) = with_archive(&world, &site, "debian.py") {
        all_passed_of(&run.run(), 3);
        verify_ledger(&world);
    }
}

/// The newest desktop SDK of E2B's sees, points, types and streams, in the template that is shipped.
#[test]
fn the_desktop_sdk_works_unmodified_slow() {
    let world = World::new("the_desktop_sdk_works_unmodified_slow");
    let site = python_site(&world, "e2b-desktop");
    let Some(site) = site.filter(|_| is_possible(&world, &["gpgv", "openssl"])) else {
        return;
    };
    if let Some(run) = with_archive(&world, &site, "desktop_client.py") {
        all_passed_of(&run.run(), 5);
        verify_ledger(&world);
    }
}
