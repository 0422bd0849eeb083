use std::io::Read;
use std::path::Path;

use atoll_engine::failure::{Doing, Failure, Kind};
use atoll_engine::printable::printable;
use atoll_engine::transparency::unproven;
use atoll_ledger::{
    Checkpoint, ConsistencyProof, Event, Filter, InclusionProof, Ledger, PROOF_BYTES_MAX,
    ProofFault, Proven, Prover, StateDir, TreeHash, check_proof,
};
use serde_json::{Value, json};

use crate::arguments::{CheckProofArguments, ProveConsistencyArguments, ProveInclusionArguments};
use crate::output::Output;
use crate::render;

/// Proves that an event, or those of a run, are in the ledger.
pub fn inclusion(
    state: &StateDir,
    arguments: &ProveInclusionArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let failed = |fault: ProofFault| unproven("this cannot be proven", fault);
    let prover = Prover::read(state).map_err(failed)?;
    let events = meant(state, &arguments.what)?;
    let proofs = events
        .iter()
        .map(|event| prover.inclusion(event).map(|proof| (event, proof)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    for (event, proof) in &proofs {
        if let Some(to) = &arguments.to {
            let name = format!("{}.tlog-proof", event.position.seq);
            write(to, &name, &proof.text())?;
        }
        if !arguments.json {
            output.result(&format!(
                "event {}, {}, is in the ledger\n  leaf {}\n{}",
                event.position.seq,
                event.kind,
                proof.leaf(),
                paths(&proof.path)
            ));
        }
    }
    if let Some(to) = &arguments.to {
        let count = render::counted(proofs.len() as u64, "proof is", "proofs are");
        tell_written(&count, to, output);
    }
    match arguments.json {
        true => {
            let all: Vec<Value> = proofs
                .iter()
                .map(|(_, proof)| of_inclusion(proof))
                .collect();
            output.json(&Value::Array(all));
        }
        false => output.result(&under(prover.checkpoint())),
    }
    Ok(0)
}

/// Returns the event of this number, or those of this run.
fn meant(state: &StateDir, text: &str) -> Result<Vec<Event>, Failure> {
    let unreadable = "the ledger cannot be read";
    if let Ok(seq) = text.parse::<u64>() {
        for event in Ledger::events(state, Filter::default()).doing(unreadable)? {
            let event = event.doing("the ledger is damaged there")?;
            if event.position.seq == seq {
                return Ok(vec![event]);
            }
        }
        return Err(Failure::new(format!("there is no event {seq}"))
            .advise("atoll ledger tail -n 1 shows the last, with its number (seq)"));
    }
    let run = crate::finding::find_in_ledger(state, text)?;
    let events: Vec<Event> = Ledger::show(state, &run)
        .and_then(|events| events.collect())
        .doing(unreadable)?;
    match events.is_empty() {
        true => Err(Failure::new(format!(
            "the ledger knows nothing of run {run}"
        ))),
        false => Ok(events),
    }
}

/// Proves that the ledger only grew since.
pub fn consistency(
    state: &StateDir,
    arguments: &ProveConsistencyArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let proof = Prover::read(state)
        .and_then(|prover| prover.consistency(arguments.size))
        .map_err(|fault| unproven("this cannot be proven", fault))?;
    if let Some(to) = &arguments.to {
        let name = format!("{}-{}.consistency", proof.old_size, proof.checkpoint.size());
        write(to, &name, &proof.text())?;
        tell_written(&format!("{name} is"), to, output);
    }
    match arguments.json {
        true => output.json(&of_consistency(&proof)),
        false => output.result(&format!(
            "the first {}, root {}, are the beginning of the ledger\n{}{}",
            render::counted(proof.old_size, "event", "events"),
            proof.old_root,
            paths(&proof.path),
            under(&proof.checkpoint)
        )),
    }
    Ok(0)
}

/// Checks a proof with a key alone.
pub fn check(arguments: &CheckProofArguments, output: &Output) -> Result<u8, Failure> {
    let key = super::read_key(&arguments.key)?;
    let noted = super::witnesses(&arguments.witness)?;
    let shown = printable(arguments.file.as_os_str().as_encoded_bytes());
    let text = read(&arguments.file)?;
    let hand_overs: Result<Vec<String>, Failure> =
        arguments.handover.iter().map(|path| read(path)).collect();
    let proven = check_proof(&text, &key, &noted, &hand_overs?).map_err(|fault| {
        unproven(&format!("{shown} proves nothing"), fault).of_kind(Kind::Unproven)
    })?;
    match (&proven, arguments.json) {
        (Proven::Inclusion(proof), true) => output.json(&of_inclusion(proof)),
        (Proven::Consistency(proof), true) => output.json(&of_consistency(proof)),
        (Proven::Inclusion(proof), false) => output.result(&format!(
            "event {} is in the ledger {} of {}:\n{}\n",
            proof.index,
            printable(key.name().as_bytes()),
            render::counted(proof.checkpoint.size(), "event", "events"),
            printable(&proof.event)
        )),
        (Proven::Consistency(proof), false) => output.result(&format!(
            "the ledger {} only grew from {} to {}\n",
            printable(key.name().as_bytes()),
            render::counted(proof.old_size, "event", "events"),
            render::grouped(proof.checkpoint.size())
        )),
    }
    Ok(0)
}

/// Reads a proof's text.
fn read(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| {
            file.take(PROOF_BYTES_MAX as u64 + 1)
                .read_to_string(&mut text)
        })
        .doing(&format!(
            "{} cannot be read",
            printable(path.as_os_str().as_encoded_bytes())
        ))?;
    Ok(text)
}

fn paths(path: &[TreeHash]) -> String {
    path.iter().map(|hash| format!("  path {hash}\n")).collect()
}

fn under(checkpoint: &Checkpoint) -> String {
    format!(
        "signed: {}, root {}\n",
        render::counted(checkpoint.size(), "event", "events"),
        checkpoint.root()
    )
}

fn of_inclusion(proof: &InclusionProof) -> Value {
    json!({
        "seq": proof.index,
        "leaf": proof.leaf(),
        "event": String::from_utf8_lossy(&proof.event),
        "path": proof.path,
        "size": proof.checkpoint.size(),
        "root": proof.checkpoint.root(),
        "checkpoint": proof.checkpoint.text(),
    })
}

fn of_consistency(proof: &ConsistencyProof) -> Value {
    json!({
        "old-size": proof.old_size,
        "old-root": proof.old_root,
        "path": proof.path,
        "size": proof.checkpoint.size(),
        "root": proof.checkpoint.root(),
        "checkpoint": proof.checkpoint.text(),
    })
}

fn tell_written(what: &str, directory: &Path, output: &Output) {
    let shown = printable(directory.as_os_str().as_encoded_bytes());
    output.say(&format!(
        "{what} in {shown}: atoll ledger check-proof FILE --key KEY checks one anywhere\n"
    ));
}

fn write(directory: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = directory.join(name);
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::write(&path, text))
        .doing(&format!(
            "{} cannot be written",
            printable(path.as_os_str().as_encoded_bytes())
        ))
}
