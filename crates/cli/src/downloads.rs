//! Downloads that inputs name by address and digest: fetched outside, once, before the sandbox is made.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::time::Duration;

use atoll_engine::failure::{Doing, Failure};
use atoll_engine::fetched_input;
use atoll_ledger::{StateDir, hex};
use atoll_model::{Input, InputSource, format_bytes};
use atoll_server::tls_of_clients;
use sha2::{Digest, Sha256};
use ureq::Agent;

use crate::output::Output;

/// The largest download, bytes.
const BYTES_MAX: u64 = 10 << 30;
/// The longest wait for a connection, and for the head of an answer.
const WAIT: Duration = Duration::from_secs(30);

/// Fetches the downloads among inputs that are not here.
///
/// # Errors
/// When one cannot be fetched, or has another digest.
pub fn fetch(inputs: &[Input], state: &StateDir, output: &Output) -> Result<(), Failure> {
    for input in inputs {
        if let InputSource::Download { url, sha256 } = &input.source {
            fetch_one(url, sha256, state, output)?;
        }
    }
    Ok(())
}

fn fetch_one(url: &str, sha256: &str, state: &StateDir, output: &Output) -> Result<(), Failure> {
    let place = fetched_input(state, sha256);
    if place.exists() {
        return Ok(());
    }
    let unwritten = "the download cannot be kept";
    if let Some(directory) = place.parent() {
        let mut builder = fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .doing(unwritten)?;
    }
    let what = format!("{url} cannot be fetched");
    output.say(&format!("Fetching {url}\n"));
    let settings = Agent::config_builder()
        .timeout_connect(Some(WAIT))
        .timeout_recv_response(Some(WAIT))
        .tls_config(tls_of_clients());
    let answer = Agent::from(settings.build()).get(url).call().doing(&what)?;
    let mut body = answer.into_body();
    let mut from = body.with_config().limit(BYTES_MAX).reader();
    let mut into = tempfile::NamedTempFile::new_in(place.with_file_name("")).doing(unwritten)?;
    let found = copy(&mut from, into.as_file_mut()).doing(&what)?;
    if found != sha256 {
        return Err(Failure::new(what)
            .because(format!("its SHA-256 digest is {found}"))
            .advise("ask whoever gave you the digest; nothing of it is kept"));
    }
    into.as_file().sync_all().doing(unwritten)?;
    into.persist(&place).doing(unwritten)?;
    Ok(())
}

/// Copies a text, and returns its SHA-256 digest.
fn copy(from: &mut dyn Read, into: &mut File) -> io::Result<String> {
    let (mut hash, mut buffer, mut bytes) = (Sha256::new(), vec![0; 64 << 10], 0_u64);
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok(hex(&hash.finalize()));
        }
        bytes += count as u64;
        if bytes > BYTES_MAX {
            let why = format!("it is larger than {}", format_bytes(BYTES_MAX));
            return Err(io::Error::other(why));
        }
        let read = buffer.get(..count).unwrap_or_default();
        hash.update(read);
        into.write_all(read)?;
    }
}
