//! AWS's own programs in a world.

use std::fs;

use crate::{Avoidable, World, cache};

/// Unpacks them into `site`; where they are not in the cache the test is skipped.
///
/// # Panics
/// When one cannot be unpacked.
#[must_use]
pub fn unpack(world: &World) -> bool {
    let wheels = cache().map(|cache| cache.join("pip/wheels"));
    let wheels = wheels.and_then(|wheels| fs::read_dir(wheels).ok());
    let wheels: Vec<_> = wheels.into_iter().flatten().flatten().collect();
    let is_there = |of: &str| {
        let name = |one: &fs::DirEntry| one.file_name().to_string_lossy().starts_with(of);
        wheels.iter().any(name)
    };
    if !is_there("awscli-") || !is_there("boto3-") {
        world.skip("AWS's programs are not in ATOLL_TEST_CACHE", Avoidable::Yes);
        return false;
    }
    for wheel in wheels {
        let unpack = world.host("python3").args(["-m", "zipfile", "-e"]);
        let _ = unpack
            .arg(wheel.path())
            .arg(world.top().join("site"))
            .run()
            .success();
    }
    true
}

/// Returns the shell commands that define them in a sandbox where `site` is mounted.
#[must_use]
pub fn inside(world: &World) -> String {
    format!(
        "export PYTHONPATH='{}' PYTHONDONTWRITEBYTECODE=1 AWS_CONFIG_FILE=$PWD/config; \
         printf '[default]\\ns3 =\\n  addressing_style = path\\n  signature_version = s3v4\\n' >config; \
         aws() {{ python3 -m awscli \"$@\"; }}; ",
        world.top().join("site").display()
    )
}
