//! A witness on the network: it gets a checkpoint with the proof that the ledger only grew since
//! the last one it has signed, and signs it (C2SP tlog-witness).

use std::time::{Duration, Instant};

use atoll_egress::post::{Address, Headers, Reply, post};
use atoll_ledger::{Checkpoint, Cosigned, Ledger, Prover, StateDir, Witness, WitnessKey};

use super::unproven;
use crate::failure::{Doing, Failure};
use crate::printable::printable;

const UNUSABLE: &str = "--url is not usable";
const UNSIGNED: &str = "the witness has not signed the checkpoint";
/// The most requests to one witness: one more if it has another checkpoint than expected, and one
/// more if another client was faster.
const ATTEMPTS_MAX: usize = 3;
/// The path beneath a witness's address that takes checkpoints.
const ADD: &str = "/add-checkpoint";

/// Parses a witness.
///
/// # Errors
/// When the URL or the key is invalid.
pub fn witness(url: &str, key: &str) -> Result<Witness, Failure> {
    let _ = address(url)?;
    let key = WitnessKey::parse(key.trim())
        .doing("--key is not usable")
        .map_err(|failure| failure.advise("whoever runs the witness gives out its key"))?;
    Ok(Witness::Network {
        url: url.to_owned(),
        key,
    })
}

/// Returns the address at which a witness takes checkpoints.
fn address(url: &str) -> Result<Address, Failure> {
    let refused = |why: &str| {
        Failure::new(UNUSABLE)
            .because(why)
            .advise("atoll ledger witness --url https://witness.example.com --key KEY")
    };
    let address = Address::parse(url).map_err(|unsound| refused(&unsound.to_string()))?;
    match address.is_tls() {
        true => Ok(address),
        false => Err(refused("it begins with https://")),
    }
}

/// Has a checkpoint signed, and keeps it with that signature.
///
/// # Errors
/// When the witness does not answer, does not sign, or its signature does not hold.
pub fn submit(
    state: &StateDir,
    url: &str,
    key: &WitnessKey,
    checkpoint: &Checkpoint,
    patience: Duration,
) -> Result<String, Failure> {
    let to = address(url)?;
    let until = Instant::now() + patience;
    let own =
        Ledger::key(state).map_err(|error| Failure::new(UNSIGNED).because(&error).advise(error))?;
    let mut old = Cosigned::kept_size(state, &own).unwrap_or(0);
    for _ in 0..ATTEMPTS_MAX {
        let text = request(state, old, checkpoint)?;
        let left = until.saturating_duration_since(Instant::now());
        let headers = Headers::default();
        let answer = post(&to, ADD, &headers, "text/plain", text.into_bytes(), left);
        let answer = answer.map_err(|why| {
            Failure::new(UNSIGNED)
                .because(format!("{}: {why}", to.host()))
                .advise("SSL_CERT_FILE names an authority of your own for its certificate")
        })?;
        match answer.status {
            200 => return keep(state, checkpoint, &answer, key),
            409 => old = other_size(&answer, old, checkpoint)?,
            _ => return Err(refusal(&answer)),
        }
    }
    Err(Failure::new(UNSIGNED)
        .because("it had another checkpoint each time: others give it some at the same time")
        .advise("give it once more"))
}

/// Builds a witness request: its last size, the consistency proof from there, the checkpoint.
fn request(state: &StateDir, old: u64, checkpoint: &Checkpoint) -> Result<String, Failure> {
    if old == 0 {
        return Ok(format!("old 0\n\n{}", checkpoint.text()));
    }
    let failed = |fault| unproven("the witness cannot be shown that the ledger grew", fault);
    let prover = Prover::read(state).map_err(failed)?;
    let mut proof = prover.consistency(old).map_err(failed)?;
    if proof.checkpoint.size() != checkpoint.size() {
        return Err(Failure::new(UNSIGNED)
            .because("another checkpoint was made meanwhile")
            .advise("give it once more"));
    }
    proof.checkpoint = checkpoint.clone();
    Ok(proof.text())
}

fn keep(
    state: &StateDir,
    checkpoint: &Checkpoint,
    answer: &Reply,
    key: &WitnessKey,
) -> Result<String, Failure> {
    let lines = String::from_utf8_lossy(&answer.body);
    let cosigned = Cosigned::of(checkpoint, &lines, key).map_err(|fault| {
        Failure::new(UNSIGNED)
            .because(format!("its answer: {fault}"))
            .advise("ask whoever runs the witness for its key (--key)")
    })?;
    cosigned
        .keep(state)
        .doing("what the witness has signed cannot be kept")?;
    Ok(cosigned.note)
}

/// Returns the witness's size, if it differs from the expected one.
fn other_size(answer: &Reply, old: u64, checkpoint: &Checkpoint) -> Result<u64, Failure> {
    let said = std::str::from_utf8(&answer.body).ok();
    let size = said.and_then(|said| said.strip_suffix('\n')?.parse::<u64>().ok());
    let size = size.ok_or_else(|| refusal(answer))?;
    if size > checkpoint.size() {
        return Err(Failure::new("the witness has signed more than there is")
            .because(format!(
                "it has seen {size} events, and the ledger has {}: it was cut, or put back from a \
                 copy",
                checkpoint.size()
            ))
            .advise("keep what is there, it is evidence; look for the ledger that is missing"));
    }
    match size == old {
        true => Err(rewritten()),
        false => Ok(size),
    }
}

fn rewritten() -> Failure {
    Failure::new("the witness has signed another ledger under this name")
        .because("what it has seen is not the beginning of what is here: one of them was rewritten")
        .advise(
            "keep what is there, it is evidence; atoll ledger verify tells what is wrong with it",
        )
}

/// Explains the status of a refusal (C2SP tlog-witness).
fn refusal(answer: &Reply) -> Failure {
    let failure = Failure::new(UNSIGNED);
    match answer.status {
        404 => failure
            .because("it does not know this ledger, or takes no checkpoints there")
            .advise("give the key of the ledger (atoll ledger key) to whoever runs the witness"),
        403 => failure
            .because("it does not trust the key that signs this ledger")
            .advise("give the key of the ledger (atoll ledger key) to whoever runs the witness"),
        422 => rewritten(),
        status => {
            let begin = answer.body.get(..200).unwrap_or(&answer.body);
            let said = printable(begin).replace('\n', " ");
            failure
                .because(format!("it answers {status}: {said}"))
                .advise("ask whoever runs the witness")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn a_witness_is_reached_by_tls_alone() {
        assert!(address("https://w.example").is_ok());
        assert!(address("http://w.example").is_err());
        assert!(address("https://user@w.example").is_err());
    }
}
