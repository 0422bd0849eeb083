//! AWS's own programs, from the cache of the tests.

use crate::{World, python_site};

/// Returns whether they are there, and names them `site` in the world, for its servers; otherwise
/// the test is skipped.
///
/// # Panics
/// When they cannot be named.
#[must_use]
pub fn is_there(world: &World) -> bool {
    let is_there = python_site(world, "awscli").is_some();
    if is_there {
        std::os::unix::fs::symlink(site(), world.top().join("site")).expect("a world is its own");
    }
    is_there
}

/// Returns the directory of their modules.
///
/// # Panics
/// When they are not there.
#[must_use]
pub fn site() -> String {
    let site = crate::site("awscli").expect("is_there was asked");
    let libraries = std::fs::read_dir(site.join("lib")).expect("it has libraries");
    let python = libraries.flatten().next().expect("of one Python");
    let modules = python.path().join("site-packages");
    modules.display().to_string()
}

/// Returns the shell commands that define them in a sandbox where [`site`] is shown.
#[must_use]
pub fn inside() -> String {
    format!(
        "export PYTHONPATH='{}' PYTHONDONTWRITEBYTECODE=1 AWS_CONFIG_FILE=$PWD/config; \
         printf '[default]\\ns3 =\\n  addressing_style = path\\n  signature_version = s3v4\\n' >config; \
         aws() {{ python3 -m awscli \"$@\"; }}; ",
        site()
    )
}
