//! Denials by policies.

use atoll_cedar::Decision;

use super::ApprovalNeed;

/// A denial of something that the rules allow.
#[derive(Debug)]
pub(crate) struct Forbidden {
    /// The reason, for the record.
    pub(crate) why: String,
    /// The reason, for the program, which does not learn where policies are written.
    pub(crate) shown: String,
    /// The policy, where one forbids it.
    pub(crate) policy: Option<String>,
    /// The cause of the denial.
    pub(crate) by: DenialCause,
}

/// The cause of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenialCause {
    /// A policy.
    Policy,
    /// A policy, until it has not happened for long enough.
    Rate,
    /// The level of trust alone.
    Level,
    /// The session's purpose alone.
    Purpose,
    /// The run itself: the right was given up.
    GivenUp,
    /// A token that the run holds: it does not permit it.
    Token,
}

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
        let shown = "what other runs of its session have touched cannot be told, which is a denial";
        Self {
            shown: shown.to_owned(),
            ..Self::of(format!("{shown}: {error}"))
        }
    }

    /// Denies where an approval is needed, and nobody is asked.
    pub(super) fn unasked(asks: &ApprovalNeed) -> Self {
        Self {
            why: format!("{}; nobody is asked about it here", asks.rule),
            shown: "a person would be asked, and nobody is about this".to_owned(),
            policy: None,
            by: DenialCause::Policy,
        }
    }

    fn of(why: String) -> Self {
        Self {
            shown: why.clone(),
            why,
            policy: None,
            by: DenialCause::Policy,
        }
    }

    pub(super) fn by(decision: &Decision) -> Self {
        Self {
            why: decision.why(),
            shown: decision.why_inside(),
            policy: decision
                .deciding
                .first()
                .map(|one| format!("policy {}", one.id)),
            by: match (decision.is_of_level(), decision.is_of_purpose()) {
                (true, _) => DenialCause::Level,
                (false, true) => DenialCause::Purpose,
                (false, false) => DenialCause::Policy,
            },
        }
    }
}
