//! The decisions and records of a running sandbox beside its programs.

use atoll_model::network::{NetworkRule, Published};
use atoll_model::{Escalate, PublishPort};
use atoll_sandbox::{Allowance, Declined, Who};

use crate::supervision::control::{Reloaded, Versions};

/// The decisions and records of the actions on a running sandbox. Each is decided, recorded on
/// disk, and only then has its effect; a refusal is recorded too.
pub trait CallGate {
    /// Publishes a port, beside those that are published already.
    ///
    /// # Errors
    /// The reasons against it.
    fn publish(
        &self,
        asked: PublishPort,
        already: &[Published],
        effect: &mut dyn PortEffect,
    ) -> Result<(), Declined>;
    /// Gives a lasting approval.
    ///
    /// # Errors
    /// The reasons against it.
    fn escalate(&self, asked: Escalate) -> Result<(), Declined>;
    /// Allows what a rule of `--allow` says.
    ///
    /// # Errors
    /// The reasons against it.
    fn allow(
        &self,
        by: Who,
        text: &str,
        lasts: Allowance,
        effect: &mut dyn HostEffect,
    ) -> Result<(), Declined>;
    /// Allows the same for the project from its next run on.
    ///
    /// # Errors
    /// When it cannot be written.
    fn remember(&self, text: &str) -> Result<(), Declined>;
    /// Reloads the policies, and decides by them from then on. If versions are given, only from the
    /// one to the other.
    ///
    /// # Errors
    /// The reason why the version in force stays.
    fn reload(&self, by: Who, only: Option<&Versions>) -> Result<NewPolicies, Declined>;
    /// Reads the policies again. Returns both versions, and the text by which a prover compares
    /// them.
    ///
    /// # Errors
    /// When they cannot be read.
    fn compare(&self) -> Result<(Versions, String), Declined>;
}

/// The effect of publishing a port.
pub trait PortEffect {
    /// Prepares it, before it is recorded.
    ///
    /// # Errors
    /// When it cannot be done; nothing is recorded then.
    fn prepare(&mut self) -> Result<(), Declined>;
    /// Carries it out.
    fn carry_out(&mut self, published: &Published);
}

/// The effect of allowing a host.
pub trait HostEffect {
    /// Prepares it, before it is recorded. Returns the rule as it counts.
    ///
    /// # Errors
    /// When it cannot be done; nothing is recorded then.
    fn prepare(&mut self, rule: &NetworkRule) -> Result<NetworkRule, Declined>;
    /// Carries out what was prepared.
    fn carry_out(&mut self);
}

/// Policies after a reload.
#[derive(Debug)]
pub struct NewPolicies {
    /// The versions before and after.
    pub reloaded: Reloaded,
    /// The policies for the egress process; `None` if there are none.
    pub handed: Option<Vec<u8>>,
}
