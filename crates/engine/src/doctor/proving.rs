//! The check for a prover of policies. No run's isolation depends on it.

use super::finding::{Finding, Grade, Group};

/// Reports the programs that `atoll policy prove`, `diff`, `check --prove` and `reload
/// --only-tightening` need.
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
