//! The hints of a failure, in words.

use atoll_engine::failure::Hint;
use atoll_engine::shell::{word, word_beside};

use crate::advice::{self, About};

/// Returns the remedies of a failure, in words.
pub fn texts(hints: &[Hint]) -> Vec<String> {
    hints.iter().flat_map(all).collect()
}

/// Returns a remedy in words: several where it stands for more than one.
fn all(hint: &Hint) -> Vec<String> {
    vec![match hint {
        Hint::Call(fault) => {
            let about = About {
                call: &fault.call,
                profile: &fault.profile,
                limits: &fault.limits,
            };
            return about.advices(&fault.error);
        }
        Hint::Text(text) => text.clone(),
        Hint::Room => atoll_engine::room::advice(),
        Hint::State(error) => advice::state(error),
        Hint::Profile(error) => advice::profile(error).to_owned(),
        Hint::Ledger(error) => advice::ledger(error),
        Hint::Private(fault) => advice::private(fault),
        Hint::Signing(error) => advice::signing(error),
        Hint::Vault(error) => advice::vault(error),
        Hint::Naming(text, path) => text.replace("{}", &word(path)),
        Hint::OwnFile(path) => {
            let (file, new) = (word(path), word_beside(path, ".new"));
            format!("put a file of its own there: cp {file} {new} && mv {new} {file}")
        }
        Hint::WritableByOthers(path) => format!("chmod go-w {}", word(path)),
        Hint::OwnedByOther(path) => format!("ls -ld {} shows whose it is", word(path)),
    }]
}
