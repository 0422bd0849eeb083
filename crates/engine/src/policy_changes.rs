//! The differences between two versions of a policy file, by policy.

use atoll_cedar::{Deciding, Layers};

/// Returns the policies that are new, gone or different, by their ids.
pub fn changes(old: &Layers, new: &Layers) -> Vec<(&'static str, String)> {
    let (before, now) = (said_by(old), said_by(new));
    let of = |all: &[(&Deciding, String)], id: &str| {
        let one = all.iter().find(|(told, _)| &*told.id == id);
        one.map(|(_, said)| said.clone())
    };
    let mut changes = Vec::new();
    for (told, said) in &now {
        match of(&before, &told.id) {
            None => changes.push(("added", told.id.to_string())),
            Some(before) if before != *said => changes.push(("changed", told.id.to_string())),
            Some(_) => {}
        }
    }
    let gone = before
        .iter()
        .filter(|(told, _)| of(&now, &told.id).is_none());
    changes.extend(gone.map(|(told, _)| ("removed", told.id.to_string())));
    changes
}

fn said_by(layers: &Layers) -> Vec<(&Deciding, String)> {
    layers
        .each()
        .flat_map(|(_, policies)| policies.canonical_texts())
        .collect()
}
