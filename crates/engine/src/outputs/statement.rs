//! The statement about a sandbox's outputs: in-toto's Statement v1 with SLSA's provenance v1, so that
//! verifiers of others read it.

use std::time::SystemTime;

use atoll_ledger::{Position, VerifierKey, format_time, hex};
use atoll_store::{ArtifactOrigin, Deposit, InputFacts};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::inputs::digest_name;

/// The media type of a statement (in-toto attestation, envelope.md).
pub(super) const STATEMENT_TYPE: &str = "application/vnd.in-toto+json";

/// The basis of the sandbox, for the statement about its outputs.
#[derive(Clone, Debug, Default)]
pub(super) struct Made {
    /// The name of the profile.
    pub(super) profile: Option<String>,
    /// The version of the policies.
    pub(super) policies: Option<String>,
    /// Its inputs.
    pub(super) inputs: Vec<InputFacts>,
}

/// Returns the subjects of a statement: each file, with its digests.
pub(super) fn subjects(deposit: &Deposit) -> Value {
    let subjects = deposit.files().map(|one| {
        json!({
            "name": String::from_utf8_lossy(one.name),
            "digest": { "sha256": one.sha256, "blake3": one.blake3 },
        })
    });
    subjects.collect()
}

/// Returns the digest of the subjects as they are written in the statement, for the ledger.
pub(super) fn digest(subjects: &Value) -> String {
    format!("sha256:{}", hex(&Sha256::digest(subjects.to_string())))
}

/// Returns an input as a statement has it (SLSA's `resolvedDependencies`). The paths of the host are the
/// ledger's alone.
fn dependency(input: &InputFacts) -> Value {
    let mut dependency = json!({
        "name": input.name,
        "digest": { digest_name(input): input.digest },
    });
    let artifact = input.source.strip_prefix("artifact:");
    let uri = artifact.map(|id| format!("urn:atoll:artifact:{id}"));
    if let Some(members) = dependency.as_object_mut() {
        members.extend(uri.map(|uri| ("uri".to_owned(), json!(uri))));
        let media = input.media.as_ref();
        members.extend(media.map(|media| ("mediaType".to_owned(), json!(media))));
    }
    dependency
}

/// Returns the statement. `entry` is the ledger's about them.
pub(super) fn statement(
    subjects: Value,
    origin: &ArtifactOrigin,
    made: &Made,
    entry: &Position,
    key: &VerifierKey,
    now: SystemTime,
) -> String {
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:atoll:run:1",
                "externalParameters": {
                    "run": origin.run.as_str(),
                    "sandbox": origin.sandbox,
                    "session": origin.session,
                },
                "internalParameters": {
                    "profile": made.profile,
                    "policies": made.policies,
                    "interrupted": origin.interrupted,
                },
                "resolvedDependencies": made.inputs.iter().map(dependency).collect::<Vec<_>>(),
            },
            "runDetails": {
                "builder": { "id": format!("urn:atoll:ledger:{}", key.name()) },
                "metadata": {
                    "invocationId": origin.run.as_str(),
                    "finishedOn": format_time(now),
                },
                "byproducts": [{
                    "name": "ledger entry",
                    "annotations": { "seq": entry.seq, "leaf": entry.leaf.to_string() },
                }],
            },
        },
    });
    statement.to_string()
}
