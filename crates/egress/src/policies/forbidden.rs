//! How a refusal by policies is said.

use atoll_cedar::Decision;

use super::{Asks, Forbidden, Forbids};

impl Forbidden {
    /// Policies have this taken out, and it is not.
    pub(crate) fn unredacted(all: &str) -> Self {
        Self::of(format!(
            "policies have {all} taken out of it, which is not done here"
        ))
    }

    /// Policies have this header taken out, and a signature is of it.
    pub(crate) fn signed_with(name: &str) -> Self {
        Self::of(format!(
            "policies have header:{name} taken out of it, which its signature is of"
        ))
    }

    /// What other runs of its session have touched cannot be told.
    pub(super) fn unlearnt(error: &std::io::Error) -> Self {
        let inside =
            "what other runs of its session have touched cannot be told, which is a denial";
        Self {
            inside: inside.to_owned(),
            ..Self::of(format!("{inside}: {error}"))
        }
    }

    /// A person would be asked, and what it is for does not wait for one.
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
