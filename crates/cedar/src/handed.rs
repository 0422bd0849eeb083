//! Serialised policies, sent to the egress process of a run.

use std::collections::BTreeSet;

use atoll_model::Mode;
use serde::{Deserialize, Serialize};

use crate::policies::Known;
use crate::{Facts, Layer, Layers, PolicyFile, Principal, Served};

/// The largest serialised form, bytes: each layer's files, as they stand in JSON.
pub const HANDED_BYTES_MAX: usize = 16 << 20;

/// The serialised form: the files as they were when the run was decided on, the principal and the
/// facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SerializedPolicies {
    person: u32,
    session: Option<String>,
    mode: Mode,
    profile: String,
    trust: Option<String>,
    task: Option<String>,
    purpose: Option<String>,
    is_strict: bool,
    labels: Option<BTreeSet<String>>,
    reputation: u8,
    served: Option<Served>,
    trusted: Vec<String>,
    models: Vec<String>,
    files: Vec<(Layer, String, String)>,
}

/// Serialises the files with the principal and the facts.
///
/// # Errors
/// When the result is too long, or a file is not UTF-8.
pub fn hand(
    principal: &Principal,
    facts: &Facts,
    files: &[(Layer, Vec<PolicyFile>)],
) -> Result<Vec<u8>, String> {
    let all = files
        .iter()
        .flat_map(|(layer, files)| files.iter().map(|file| (*layer, file)));
    let all = all.map(|(layer, file)| {
        let text = std::str::from_utf8(&file.content).map_err(|error| error.to_string())?;
        Ok((layer, file.name.clone(), text.to_owned()))
    });
    let handed = SerializedPolicies {
        person: principal.person,
        session: principal.session.clone(),
        mode: facts.mode,
        profile: facts.profile.clone(),
        trust: facts.trust.clone(),
        task: facts.task.clone(),
        purpose: facts.purpose.clone(),
        is_strict: facts.is_strict,
        labels: facts.labels.clone(),
        reputation: facts.reputation,
        served: facts.served.clone(),
        trusted: facts.trusted.clone(),
        models: facts.models.clone(),
        files: all.collect::<Result<_, String>>()?,
    };
    let written = serde_json::to_vec(&handed).map_err(|error| error.to_string())?;
    match written.len() <= HANDED_BYTES_MAX {
        true => Ok(written),
        false => Err(format!("policies are longer than {HANDED_BYTES_MAX} bytes")),
    }
}

/// Reads and compiles the output of [`hand`]. The caller supplies the time, which is 0 here.
///
/// # Errors
/// When the input is anything else, or no longer compiles.
pub fn take(written: &[u8]) -> Result<(Layers, Principal, Facts), String> {
    let handed: SerializedPolicies =
        serde_json::from_slice(written).map_err(|error| error.to_string())?;
    let of = |layer: Layer| {
        let files = handed.files.iter().filter(|(one, _, _)| *one == layer);
        let file = |(_, name, text): &(Layer, String, String)| PolicyFile {
            name: name.clone(),
            content: text.clone().into_bytes(),
        };
        (layer, files.map(file).collect::<Vec<_>>())
    };
    let files: Vec<(Layer, Vec<PolicyFile>)> = Layer::ALL.into_iter().map(of).collect();
    let layers = Layers::compile(&files, &Known::default()).map_err(|faults| {
        let first = faults.first().map(ToString::to_string);
        first.unwrap_or_default()
    })?;
    let principal = Principal {
        person: handed.person,
        session: handed.session,
    };
    let facts = Facts {
        trust: handed.trust,
        task: handed.task,
        purpose: handed.purpose,
        is_strict: handed.is_strict,
        labels: handed.labels,
        reputation: handed.reputation,
        served: handed.served,
        trusted: handed.trusted,
        models: handed.models,
        ..Facts::new(0, handed.mode, &handed.profile)
    };
    Ok((layers, principal, facts))
}
