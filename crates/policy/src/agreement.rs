//! What a person agrees to before a run is started, where policies say so.

use std::os::unix::ffi::OsStrExt;

use atoll_cedar::{Action, Layers};
use atoll_model::{Call, Reason};

use crate::digest::PolicyDigest;
use crate::rules::Rules;

/// What has come of asking a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Answered {
    /// Nobody was asked.
    #[default]
    Nobody,
    /// They have agreed to this.
    Agreed(String),
    /// They have not: why.
    Denied(&'static str),
}

/// That of what is asked about: the version of all that decides, options included, the command
/// and where it starts, and what policies ask about. `sha256:` and 64 hexadecimal digits.
#[must_use]
pub fn agreement(rules: &Rules, call: &Call, asked: &[Reason]) -> String {
    let mut digest = PolicyDigest::new();
    digest.add("rules", rules.digest().as_bytes());
    for word in &call.command {
        digest.add("word", word.as_bytes());
    }
    for place in [&call.workspace, &call.directory] {
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
    /// Whether some policy has a person asked before a run is started: about it, or about the
    /// ports that it publishes.
    #[must_use]
    pub fn ask_about_runs(&self) -> bool {
        let asks = |layers: &Layers| layers.ask_about(&[Action::Run, Action::Publish]);
        self.policies().is_some_and(asks)
    }

    /// A person has agreed to what [`agreement`] says, and to nothing else.
    pub fn agree(&mut self, agreement: String) {
        self.answered = Answered::Agreed(agreement);
    }

    /// A person has not agreed: why.
    pub fn disagree(&mut self, why: &'static str) {
        self.answered = Answered::Denied(why);
    }

    /// What a person has agreed to, where one was asked.
    #[must_use]
    pub fn agreed(&self) -> Option<&str> {
        match &self.answered {
            Answered::Agreed(agreement) => Some(agreement),
            Answered::Nobody | Answered::Denied(_) => None,
        }
    }

    /// What a person would have to agree to first, of what policies ask about.
    pub(crate) fn unanswered(&self, call: &Call, asked: Vec<Reason>) -> Vec<Reason> {
        let why = match &self.answered {
            Answered::Agreed(agreement) if *agreement == self::agreement(self, call, &asked) => {
                return Vec::new();
            }
            Answered::Agreed(_) => Some("you have agreed to something else"),
            Answered::Nobody => None,
            Answered::Denied(why) => Some(*why),
        };
        let at_terminal = "start it at a terminal without --no-ask, where you are asked";
        let unanswered = asked.into_iter().map(|one| match why {
            Some(why) => Reason {
                why: format!("{}; {why}", one.why),
                how_to_ask: at_terminal.to_owned(),
                ..one
            },
            None => Reason {
                how_to_ask: format!("nobody can be asked here: {at_terminal}"),
                ..one
            },
        });
        unanswered.collect()
    }
}
