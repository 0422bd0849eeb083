//! Rules that a person adds while a run goes on: decided, recorded, and only then in
//! effect.

use std::io;

use atoll_model::network::{ALLOWANCES_MAX, Authority, FlowOrder, LiveRule, NetworkRule, Scope};
use atoll_sandbox::{Allowance, Declined, Who};

use super::live::{over, unrecorded};
use super::{FlowEvent, Outside, State};
use crate::supervision::approvals::DualControlRule;

/// The decisions on what widens the rights of a run while it goes on.
pub trait Wider {
    /// Decides whether a person may give a lasting approval.
    ///
    /// # Errors
    /// The reasons against it.
    fn escalate(&self, by: Who, scope: Scope) -> Result<(), Declined>;
    /// Decides whether a person may allow what a rule of `--allow` says; returns the rule as it
    /// counts.
    ///
    /// # Errors
    /// The reasons against it.
    fn allow(&self, by: Who, text: &str, lasts: Allowance) -> Result<NetworkRule, Declined>;
    /// Allows the same for the project from its next run on.
    ///
    /// # Errors
    /// When it cannot be written.
    fn remember(&self, text: &str) -> Result<(), Declined>;
}

/// Allows a host for a project from its next run on, or says why it cannot be written.
pub type ProjectAllowance<'a> = &'a dyn Fn(&str) -> Result<(), Declined>;

impl Outside<'_> {
    /// Allows what a rule of `--allow` says, for the person at the run's terminal: decided,
    /// recorded, and only then in effect.
    pub(super) fn allow_by(
        &mut self,
        by: Who,
        text: &str,
        lasts: Allowance,
    ) -> Result<(), Declined> {
        let declined = |why: &str| Declined {
            why: why.to_owned(),
            advice: "start the run anew, with --allow".to_owned(),
        };
        let live = self.live.ok_or_else(over)?;
        if !matches!(self.state, State::Carrying { .. }) {
            return Err(over());
        }
        if self.is_unattended {
            return Err(declined("the run was started to ask nobody"));
        }
        if *self.approvals.widening() != DualControlRule::OnePerson {
            return Err(declined("what lasts takes two persons in this run"));
        }
        if self.allowances >= ALLOWANCES_MAX {
            return Err(declined("a run takes no more of them"));
        }
        let mut rule = live.wider.allow(by, text, lasts)?;
        self.allowances += 1;
        rule.origin = format!("{}, {} ({})", rule.origin, lasts.told(), self.allowances);
        let authority = self
            .authority_with(&rule)
            .map_err(|error| declined(&error.to_string()))?;
        let told = rule.told();
        let news = FlowEvent::Allowed {
            rule: &told,
            lasts,
            by,
        };
        if !self.recorded(&[news]) {
            return Err(unrecorded());
        }
        let once = lasts == Allowance::Once;
        self.widened.push(rule.clone());
        let allowed = LiveRule {
            rule,
            once,
            authority,
        };
        self.tell(FlowOrder::Allow(Box::new(allowed)), &[]);
        match lasts {
            Allowance::Project => live.wider.remember(text),
            Allowance::Once | Allowance::Run => Ok(()),
        }
    }

    /// Issues an authority for the hosts in force and that of a further rule: the one that the run
    /// began with signs for no others. `None` where the sandbox trusts none.
    fn authority_with(&self, rule: &NetworkRule) -> io::Result<Option<Authority>> {
        let mut network = self.in_force().clone();
        let further = self.widened.iter().chain([rule]);
        network.allow.extend(further.cloned());
        (self.issuer)(&network)
    }
}
