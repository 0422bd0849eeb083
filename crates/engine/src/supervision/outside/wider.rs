//! Rules that a person adds while a run goes on: decided, recorded, and only then in
//! effect.

use std::io;

use atoll_model::network::{ALLOWANCES_MAX, Authority, FlowOrder, LiveRule, NetworkRule};
use atoll_sandbox::{Allowance, Declined, Who};

use super::live::over;
use super::{HostEffect, Outside, State};
use crate::supervision::approvals::DualControlRule;

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
        let mut effect = Allowing {
            outside: self,
            lasts,
            prepared: None,
        };
        let allowed = live.gate.allow(by, text, lasts, &mut effect);
        self.recorded(&[]);
        allowed?;
        match lasts {
            Allowance::Project => live.gate.remember(text),
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

/// Allowing a host, with an authority for it.
struct Allowing<'o, 'a> {
    outside: &'o mut Outside<'a>,
    lasts: Allowance,
    prepared: Option<LiveRule>,
}

impl HostEffect for Allowing<'_, '_> {
    fn prepare(&mut self, rule: &NetworkRule) -> Result<NetworkRule, Declined> {
        self.outside.allowances += 1;
        let (lasts, number) = (self.lasts.told(), self.outside.allowances);
        let rule = NetworkRule {
            origin: format!("{}, {lasts} ({number})", rule.origin),
            ..rule.clone()
        };
        let authority = self.outside.authority_with(&rule);
        let authority = authority.map_err(|error| declined(&error.to_string()))?;
        self.prepared = Some(LiveRule {
            rule: rule.clone(),
            once: self.lasts == Allowance::Once,
            authority,
        });
        Ok(rule)
    }

    fn carry_out(&mut self) {
        if let Some(allowed) = self.prepared.take() {
            self.outside.widened.push(allowed.rule.clone());
            self.outside.tell(FlowOrder::Allow(Box::new(allowed)), &[]);
        }
    }
}

fn declined(why: &str) -> Declined {
    Declined {
        why: why.to_owned(),
        advice: "start the run anew, with --allow".to_owned(),
    }
}
