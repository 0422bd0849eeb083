//! Trust, as rules state it.

use std::collections::BTreeSet;

use super::Rules;
use crate::levels::Level;

impl Rules {
    /// Returns the stated trust, its origin, the task and the purpose, under their names in the
    /// ledger.
    #[must_use]
    pub fn stated_trust(&self) -> Vec<(&'static str, String)> {
        let trust = &self.trust;
        let mut stated = Vec::new();
        if trust.level.is_some() || trust.mode.is_some() {
            stated.push(("trust", trust.level().to_string()));
            stated.push(("trust-mode", trust.mode().to_string()));
            stated.push(("trust-by", trust.stated_by()));
        }
        stated.extend(trust.task.clone().map(|text| ("task", text)));
        stated.extend(trust.purpose().map(|text| ("purpose", text)));
        let files = trust.narrowed.iter().flat_map(|(_, files)| files);
        let files: Vec<&str> = files.map(String::as_str).collect();
        if !files.is_empty() {
            stated.push(("purpose-policies", files.join(", ")));
        }
        stated
    }
}

impl Rules {
    /// Returns whether the level of trust leaves out the network and all of the home directory.
    #[must_use]
    pub fn leaves_all_out(&self) -> bool {
        self.trust.level() == Level::None
    }

    /// Checks that changes may be applied at the end of a run without a person who has looked at
    /// them.
    ///
    /// # Errors
    /// Describes the level of trust that does not let them.
    pub fn applies_unseen(&self) -> Result<(), String> {
        let level = self.trust.level();
        match level {
            Level::None | Level::Low => Err(format!(
                "at trust level {level} a person decides about changes ({})",
                self.trust.origin()
            )),
            Level::Medium | Level::High | Level::Full => Ok(()),
        }
    }

    /// Returns the Cedar policies of the level of trust in force; `None` if it leaves everything to
    /// the profile.
    #[must_use]
    pub fn level_cedar(&self) -> Option<String> {
        self.trust.cedar().map(|(_, text)| text)
    }

    /// Returns the names of the purposes whose policies narrow the run.
    #[must_use]
    pub fn narrowed(&self) -> Vec<String> {
        let all = self.trust.narrowed.iter();
        all.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the names of the purposes that narrowed the runs that this one continues.
    #[must_use]
    pub fn held(&self) -> &BTreeSet<String> {
        &self.trust.held
    }
}
