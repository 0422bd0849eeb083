//! The certificates of further authorities for origins, besides those that the system trusts.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use atoll_model::network::Network;
use atoll_sys::descriptor;

use crate::SandboxError;

/// The most bytes of all files together.
const ROOTS_BYTES_MAX: usize = 1 << 20;
/// The marker that each file has to contain.
const BEGINNING: &str = "-----BEGIN CERTIFICATE-----";

/// Reads all of them into one sealed file in memory.
///
/// # Errors
/// [`SandboxError::Roots`]: a file cannot be read, or contains no certificate.
pub fn read_roots(network: &Network) -> Result<Option<OwnedFd>, SandboxError> {
    let mut all = Vec::new();
    for path in &network.upstream.roots {
        let failed = |error| SandboxError::Roots {
            path: path.clone(),
            error,
        };
        let text = read_one(path, ROOTS_BYTES_MAX - all.len()).map_err(failed)?;
        all.extend(text.into_bytes());
    }
    if all.is_empty() {
        return Ok(None);
    }
    let memory = descriptor::sealed_memory(c"atoll-roots", &all);
    let failed = SandboxError::host("certificates cannot be handed on");
    memory.map(Some).map_err(failed)
}

fn read_one(path: &Path, bytes_max: usize) -> io::Result<String> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    let most = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    file.take(most).read_to_string(&mut text)?;
    if text.len() >= bytes_max {
        return Err(io::Error::other("it is too large"));
    }
    if !text.contains(BEGINNING) {
        return Err(io::Error::other("there is no certificate in it (PEM)"));
    }
    text.push('\n');
    Ok(text)
}
