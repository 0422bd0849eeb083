//! The subject of a decision at the terminal, and the meaning of a typed line.

use atoll_model::network::{ApprovalScope, Listener, Scope};
use atoll_sandbox::{Allowance, Decision, Denial, Pending};

/// The time for which `t` grants, seconds.
const LEASE_SECONDS: u32 = 15 * 60;

/// The subject of a person's decision at the terminal.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    /// A call of the program that needs approval.
    Call(Box<Pending>),
    /// A port that the person could publish, and has asked to see.
    Port(Listener),
    /// Something denied that the person could allow, and has asked to see.
    Denied(Denial),
}

impl Subject {
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Call(one), Self::Call(other)) => {
                one.digest == other.digest
                    && one.approval == other.approval
                    && one.agreed == other.agreed
            }
            (Self::Port(one), Self::Port(other)) => one.port == other.port,
            (Self::Denied(one), Self::Denied(other)) => one == other,
            (Self::Call(_) | Self::Port(_) | Self::Denied(_), _) => false,
        }
    }
}

/// The meaning of a typed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Decided(Decision),
    Publish,
    Allow(Allowance),
    Later,
    Next,
    /// The line is none of the letters, but this text.
    Unknown(String),
}

impl Said {
    pub(super) fn of(line: &str, subject: &Subject) -> Self {
        let letter = line.trim().to_ascii_lowercase();
        match (letter.as_str(), subject) {
            ("l", _) => Self::Later,
            ("n", _) => Self::Next,
            ("p", Subject::Port(_)) => Self::Publish,
            ("o", Subject::Denied(_)) => Self::Allow(Allowance::Once),
            ("r", Subject::Denied(_)) => Self::Allow(Allowance::Run),
            ("a", Subject::Denied(_)) => Self::Allow(Allowance::Project),
            (letter, Subject::Call(_)) => Self::of_call(letter),
            (_, Subject::Port(_) | Subject::Denied(_)) => Self::Unknown(line.trim().to_owned()),
        }
    }

    fn of_call(letter: &str) -> Self {
        let grant = |scope| {
            let breadth = ApprovalScope::Same;
            Self::Decided(Decision::Grant { scope, breadth })
        };
        let seconds = LEASE_SECONDS;
        match letter {
            "o" => grant(Scope::Once),
            "r" => grant(Scope::Run),
            "t" => grant(Scope::Seconds { seconds }),
            "d" => Self::Decided(Decision::Deny {}),
            "s" => Self::Decided(Decision::Stop {}),
            _ => Self::Unknown(letter.to_owned()),
        }
    }
}
