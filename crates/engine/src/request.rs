//! The inputs of one call on the main path.

use std::time::SystemTime;

use atoll_layer::GitEnvironment;
use atoll_ledger::{Ledger, StateDir};
use atoll_model::{Call, TerminalRights};
use atoll_policy::{Facts, Rules};
use atoll_sandbox::{Declined, Host, Size};
use atoll_store::RunRecord;
use serde_json::Value;

use crate::home::Home;
use crate::layer_copies::LayerCopies;
use crate::supervision::{
    CredentialBundle, DualControlRule, OutputFilter, OwnerEnd, ProjectAllowance, SshHandover,
};

/// The inputs of one call.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The call.
    pub call: &'a Call,
    /// The properties of this host.
    pub host: &'a Host,
    /// The rules that decide.
    pub rules: &'a Rules,
    /// The facts at the time of the call.
    pub facts: Facts<'a>,
    /// The environment that locates git's configuration on the host.
    pub git: &'a GitEnvironment,
    /// The directory of Atoll's state.
    pub state: &'a StateDir,
    /// The ledger that records everything.
    pub ledger: &'a Ledger,
    /// The terminal's size, if the program gets one.
    pub terminal: Option<Size>,
    /// The credentials for the egress process.
    pub handover: Option<&'a CredentialBundle>,
    /// The SSH keys for the signing process.
    pub signing: Option<&'a SshHandover>,
    /// The tokens by which everything that leaves must be allowed too.
    pub tokens: Option<&'a dyn Tokens>,
    /// The retention of the run's changes.
    pub fate: ChangeRetention,
    /// Set when nobody can approve while the run goes on: whatever needs approval is denied.
    pub unattended: bool,
    /// The approvers of lasting rights: [`widening`](crate::widening) of the rules.
    pub widening: &'a DualControlRule,
    /// The home of a served sandbox.
    pub home: Option<&'a Home>,
    /// Set where the caller asks an approver by itself, and comes again with the answer.
    pub asks_caller: bool,
    /// The run whose layers this one continues.
    pub resume: Option<&'a RunRecord>,
    /// The copies of another run's layers in which this one begins.
    pub begins_with: Option<&'a LayerCopies>,
    /// Reads the policies again.
    pub reread: PolicyReloader<'a>,
    /// Allows a host for the project from its next run on: a rule as of `--allow`.
    pub remember: ProjectAllowance<'a>,
    /// Makes filters for what execs beside the first write to a person's terminal.
    pub filter: MakeFilter<'a>,
    /// The requests of the program that holds the sandbox, for one that lives.
    pub owner: Option<&'a OwnerEnd>,
}

/// The inputs that every call has.
#[derive(Clone, Copy)]
pub struct RequestBase<'a> {
    /// See [`Request::call`].
    pub call: &'a Call,
    /// See [`Request::host`].
    pub host: &'a Host,
    /// See [`Request::rules`].
    pub rules: &'a Rules,
    /// See [`Request::facts`].
    pub facts: Facts<'a>,
    /// See [`Request::git`].
    pub git: &'a GitEnvironment,
    /// See [`Request::state`].
    pub state: &'a StateDir,
    /// See [`Request::ledger`].
    pub ledger: &'a Ledger,
    /// See [`Request::fate`].
    pub fate: ChangeRetention,
    /// See [`Request::widening`].
    pub widening: &'a DualControlRule,
}

/// Makes a filter for what programs write to a person's terminal.
pub type MakeFilter<'a> = &'a dyn Fn(TerminalRights) -> Box<dyn OutputFilter>;

/// Reads policies again while a run goes on. Returns the same rules with the new policies, or
/// why the old ones stay in force.
pub type PolicyReloader<'a> = &'a dyn Fn(&Rules) -> Result<Rules, Declined>;

impl<'a> Request<'a> {
    /// Creates a request without credentials, terminal and tokens, whose policies stay as they are
    /// and whose caller lets nothing through beyond them.
    #[must_use]
    pub fn new(base: RequestBase<'a>) -> Self {
        Self {
            call: base.call,
            host: base.host,
            rules: base.rules,
            facts: base.facts,
            git: base.git,
            state: base.state,
            ledger: base.ledger,
            terminal: None,
            handover: None,
            signing: None,
            tokens: None,
            fate: base.fate,
            unattended: false,
            widening: base.widening,
            home: None,
            asks_caller: false,
            resume: None,
            begins_with: None,
            reread: &unchanged,
            remember: &unremembered,
            filter: &unfiltered,
            owner: None,
        }
    }

    /// Returns the time of the call.
    pub(crate) fn now(&self) -> SystemTime {
        self.facts.now
    }

    /// Returns whether nothing of the run is kept but its ledger entries.
    pub(crate) fn is_scratch(&self) -> bool {
        match self.fate {
            ChangeRetention::Scratch => true,
            ChangeRetention::Open | ChangeRetention::Discarded => false,
        }
    }
}

fn unchanged(rules: &Rules) -> Result<Rules, Declined> {
    Ok(rules.clone())
}

fn unremembered(_: &str) -> Result<(), Declined> {
    Err(Declined {
        why: "nothing of a sandbox that a program made is remembered".to_owned(),
        advice: "allow it in the next one".to_owned(),
    })
}

fn unfiltered(_: TerminalRights) -> Box<dyn OutputFilter> {
    Box::new(Unfiltered)
}

/// The filter where the caller's streams are no person's terminal.
struct Unfiltered;

impl OutputFilter for Unfiltered {
    fn push(&mut self, written: &[u8], shown: &mut Vec<u8>) {
        shown.extend_from_slice(written);
    }

    fn finish(&mut self, _: &mut Vec<u8>) {}
}

/// The tokens of a run. What leaves must be allowed by them as well as by policy.
pub trait Tokens {
    /// Returns the tokens in the egress process's format.
    fn handed(&self) -> &[u8];
    /// Returns a description for the record, without anything by which they could be used.
    fn told(&self) -> Value;
    /// Returns the earliest expiry, seconds since 1970, if known.
    fn end_s(&self) -> Option<u64>;
    /// Returns whether a token is revoked, or its state is unknown.
    fn is_revoked(&self) -> bool;
    /// Checks that the tokens allow to publish a port of the sandbox.
    ///
    /// # Errors
    /// The reason why not.
    fn publishes(&self, port: u16) -> Result<(), String>;
}

/// The retention of a run's changes, as far as it is decided before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeRetention {
    /// The changes are kept until a person decides about them.
    Open,
    /// The changes will be discarded, so nothing of them goes into layers kept from run to run
    /// either.
    Discarded,
    /// The changes are discarded, and nothing of the run is ever kept but its ledger entries.
    /// Not for live or resumed runs.
    Scratch,
}
