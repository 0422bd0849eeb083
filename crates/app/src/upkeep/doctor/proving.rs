//! Whether anything is there to prove properties of policies with. Nothing that a run is held by
//! depends on it.

use super::findings::{Finding, Grade, Group};

/// What `atoll policy prove`, `diff`, `check --prove` and `reload --only-tightening` need.
pub fn proving(provers: &Result<String, String>) -> Finding {
    let name = "prover";
    match provers {
        Ok(found) => Finding::new(Group::Proofs, name, Grade::Good, found),
        Err(why) => {
            let found = "nothing is proven of policies; runs need no proof";
            Finding::new(Group::Proofs, name, Grade::Note, found).because(why)
        }
    }
}
