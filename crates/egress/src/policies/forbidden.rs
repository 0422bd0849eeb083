//! Construction of denials by policies.

use atoll_cedar::Decision;

use super::{Asks, Forbidden, Forbids};

impl Forbidden {
    /// Denies for a redaction that policies ask for and that is not done here.
    pub(crate) fn unredacted(all: &str) -> Self {
        Self::of(format!(
            "policies have {all} taken out of it, which is not done here"
        ))
    }

    /// Denies for a header that policies have removed, and a signature covers.
    pub(crate) fn signed_with(name: &str) -> Self {
        Self::of(format!(
            "policies have header:{name} taken out of it, which its signature is of"
        ))
    }

    /// Denies because the labels of other runs of the session cannot be read.
    pub(super) fn unlearnt(error: &std::io::Error) -> Self {
        let inside =
            "what other runs of its session have touched cannot be told, which is a denial";
        Self {
            inside: inside.to_owned(),
            ..Self::of(format!("{inside}: {error}"))
        }
    }

    /// Denies where an approval is needed, and nobody is asked.
    pub(super) fn unasked(asks: &Asks) -> Self {
        Self {
            why: format!("{}; nobody is asked about it here", asks.rule),
            inside: "a person would be asked, and nobody is about this".to_owned(),
            policy: None,
            by: Forbids::Policy,
        }
    }

    fn of(why: String) -> Self {
        Self {
            inside: why.clone(),
            why,
            policy: None,
            by: Forbids::Policy,
        }
    }

    pub(super) fn by(decision: &Decision) -> Self {
        Self {
            why: decision.why(),
            inside: decision.why_inside(),
            policy: decision
                .deciding
                .first()
                .map(|one| format!("policy {}", one.id)),
            by: match (decision.is_of_level(), decision.is_of_purpose()) {
                (true, _) => Forbids::Level,
                (false, true) => Forbids::Purpose,
                (false, false) => Forbids::Policy,
            },
        }
    }
}
