//! The reputation of an agent from the ledger: computed on the host, where no sandboxed program can
//! influence it.

use std::time::{SystemTime, UNIX_EPOCH};

use atoll_cedar::Case;
use atoll_ledger::{Ledger, StateDir};
use atoll_model::conduct::Standing;
use atoll_policy::Rules;

use crate::configuration::{self, Places};
use crate::notice::Notices;

/// The length of a day, seconds.
const DAY_SECONDS: u64 = 24 * 3600;

/// Returns the standing of a profile's runs; if it cannot be read, that of an unknown agent, with
/// the reason.
pub fn standing(state: &StateDir, profile: &str, now: SystemTime) -> (Standing, Option<String>) {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let today = since.as_secs() / DAY_SECONDS;
    let agent = (configuration::principal().uid, profile);
    match Ledger::conduct(state, agent, today) {
        Ok(Some(conduct)) => (conduct.standing(today), None),
        Ok(None) => {
            let why = "more was recorded lately than is read for it";
            (Standing::default(), Some(why.to_owned()))
        }
        Err(error) => (Standing::default(), Some(error.to_string())),
    }
}

/// Adds the reputation to a question that does not state it.
pub fn state(case: &mut Case, rules: &Rules) {
    if case.reputation.is_some() || !rules.ask_for_reputation() {
        return;
    }
    let state = Places::read().and_then(|places| places.read_state());
    let standing = state.map(|state| standing(&state, rules.profile(), SystemTime::now()).0);
    case.reputation = Some(standing.map_or(0, |standing| standing.points));
}

/// Adds the agent's reputation to the rules of a run that begins, if policies ask for it.
pub fn take(rules: &mut Rules, state: &StateDir, now: SystemTime, notices: &dyn Notices) {
    if !rules.ask_for_reputation() {
        return;
    }
    let (standing, why) = standing(state, rules.profile(), now);
    if let Some(why) = why {
        notices.warn(format!(
            "the ledger cannot tell how profile {} has behaved, so its reputation is 0: {why}",
            rules.profile()
        ));
    }
    rules.take_reputation(standing.points);
}
