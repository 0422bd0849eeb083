//! `atoll-prove`: proofs about policies, whether any request at all can do what it must not, and
//! if one can, which.
//!
//! It reads what it is asked from its input ([`Proving`]), writes a [`Verdict`] for each property
//! as a line of JSON, and ends. `atoll policy prove` starts it, and nothing else does: it is a
//! program of its own since what it is built of must not be in one that carries connections.
//!
//! Policies are put into formulas by `cedar-policy-symcc`, whose translation is itself proven,
//! and a solver (cvc5, a further program) looks for a request that makes them false. Where it
//! says that there is none, the property holds of every request. Where it finds one, that is made
//! into one which somebody can make, and Atoll's own engine is asked about it: only what it
//! confirms refutes. Everything else, as a solver that takes too long, is [`Verdict::Unknown`]
//! and never a proof.
//!
//! A proof is about policies alone: what a name leads to, which address no rule opens, and what a
//! program does with what it has are not said by them. The solver is believed.
//!
//! It must never decide on a run, read a file, or reach a network.
//!
//! Start reading at [`prover::Prover::prove`], then `Layers::meant` of `atoll-cedar`.

mod alone;
mod kept;
mod labelled;
mod prover;
mod solver;
mod witness;
mod world;

use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::Duration;

use atoll_cedar::{ASKED_BYTES_MAX, Proving, Verdict};

use prover::Prover;

/// What a thread may take for what is within each other in policies, bytes.
const STACK_BYTES: usize = 256 << 20;

fn main() -> ExitCode {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let answered = thread.spawn(answer).map(std::thread::JoinHandle::join);
    let why = match answered {
        Ok(Ok(Ok(()))) => return ExitCode::SUCCESS,
        Ok(Ok(Err(why))) => why,
        Ok(Err(_)) => "it has ended on the way".to_owned(),
        Err(error) => error.to_string(),
    };
    eprintln!("atoll-prove: {why}");
    ExitCode::FAILURE
}

fn answer() -> Result<(), String> {
    let told = |error: std::io::Error| error.to_string();
    let most = u64::try_from(ASKED_BYTES_MAX).unwrap_or(u64::MAX);
    let mut asked = Vec::new();
    let mut input = std::io::stdin().lock().take(most.saturating_add(1));
    input.read_to_end(&mut asked).map_err(told)?;
    if asked.len() > ASKED_BYTES_MAX {
        return Err(format!("it is asked more than {ASKED_BYTES_MAX} bytes"));
    }
    let asked: Proving = serde_json::from_slice(&asked).map_err(|error| {
        format!("this is nothing that `atoll policy prove` asks, or another version does: {error}")
    })?;
    if !asked.solver.is_absolute() {
        return Err("the solver is not named by an absolute path".to_owned());
    }
    let limit = Duration::from_secs(u64::from(asked.seconds));
    let mut prover = Prover::new(&asked.solver, limit, asked.usual, &asked.subject)?;
    let mut output = std::io::stdout().lock();
    for property in &asked.properties {
        let verdict: Verdict = prover.prove(property);
        let line = serde_json::to_string(&verdict).map_err(|error| error.to_string())?;
        writeln!(output, "{line}").map_err(told)?;
        output.flush().map_err(told)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
