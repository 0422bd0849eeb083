//! Approvals of runs: a person's answer before a run is started, where policies require one.

use std::os::unix::ffi::OsStrExt;

use atoll_cedar::{Action as Asked, Layers};
use atoll_model::{Action, Call, Reason};

use crate::digest::PolicyDigest;
use crate::rules::{PriorAnswer, Rules};

/// Returns the identity of what a person approves: a digest of the policy version, options
/// included, the command, its directories, and the policies' reasons to ask. `sha256:` and 64
/// hexadecimal digits.
#[must_use]
pub fn agreement(rules: &Rules, call: &Call, asked: &[Reason]) -> String {
    let mut digest = PolicyDigest::new();
    digest.add("rules", rules.digest().as_bytes());
    for word in call.command() {
        digest.add("word", word.as_bytes());
    }
    if let Action::CallTool(tool) = &call.action {
        digest.add("tool", tool.tool.as_str().as_bytes());
        digest.add("arguments", tool.text.as_bytes());
    }
    for place in [call.workspace(), call.directory()] {
        digest.add("place", place.as_os_str().as_bytes());
    }
    for one in asked {
        for text in [&one.what, &one.rule] {
            digest.add("reason", text.as_bytes());
        }
    }
    digest.finish()
}

impl Rules {
    /// Returns whether some policy requires an approval before a run is started: of the run, of its
    /// program, or of the ports that it publishes.
    #[must_use]
    pub fn ask_about_runs(&self) -> bool {
        let asks = |layers: &Layers| layers.ask_about(&[Asked::Run, Asked::Exec, Asked::Publish]);
        self.policies().is_some_and(asks)
    }

    /// Records that a person has approved this [`agreement`], and nothing else.
    pub fn agree(&mut self, agreement: String) {
        self.answered = PriorAnswer::Agreed(agreement);
    }

    /// Records that a person has not approved, with the reason.
    pub fn disagree(&mut self, why: &'static str) {
        self.answered = PriorAnswer::Denied(why);
    }

    /// Takes the answer that a person has given.
    pub fn take_answer(&mut self, answer: PriorAnswer) {
        self.answered = answer;
    }

    /// Returns the agreement that a person has approved, if there is one.
    #[must_use]
    pub fn agreed(&self) -> Option<&str> {
        match &self.answered {
            PriorAnswer::Agreed(agreement) => Some(agreement),
            PriorAnswer::Nobody | PriorAnswer::Denied(_) => None,
        }
    }

    /// Returns the reasons to ask that still need a person's approval.
    pub(crate) fn unanswered(&self, call: &Call, asked: Vec<Reason>) -> Vec<Reason> {
        let why = match &self.answered {
            PriorAnswer::Agreed(agreement) if *agreement == self::agreement(self, call, &asked) => {
                return Vec::new();
            }
            // An approved sandbox says nothing of an exec in it.
            PriorAnswer::Agreed(_) if call.served().is_some() => None,
            PriorAnswer::Agreed(_) => Some("you have agreed to something else"),
            PriorAnswer::Nobody => None,
            PriorAnswer::Denied(why) => Some(*why),
        };
        let at_terminal = "start it at a terminal without --no-ask, where you are asked";
        let how_to_ask = match (call.served(), why) {
            (Some(_), _) => "have an approver of the tenant decide it while you wait".to_owned(),
            (None, Some(_)) => at_terminal.to_owned(),
            (None, None) => format!("nobody can be asked here: {at_terminal}"),
        };
        let unanswered = asked.into_iter().map(|one| Reason {
            why: match why {
                Some(why) => format!("{}; {why}", one.why),
                None => one.why,
            },
            how_to_ask: how_to_ask.clone(),
            ..one
        });
        unanswered.collect()
    }
}
