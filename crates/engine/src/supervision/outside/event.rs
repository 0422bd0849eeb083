//! The changes of a run's network, as they are recorded.

use atoll_model::network::{Flow, FlowEnd, GivenUp, Published, PublishedPort};
use atoll_sandbox::{Allowance, ApprovalNews, Who};

use crate::supervision::flows::Refused;

/// A change of a run's network, to be recorded.
#[derive(Clone, Copy, Debug)]
pub enum FlowEvent<'a> {
    /// A flow is about to begin.
    Opened {
        /// The flow's number.
        id: u64,
        /// The flow.
        flow: &'a Flow,
        /// True if the flow waits until this is on disk.
        waits: bool,
        /// The number of its approval, if a person was asked.
        approval: Option<u32>,
    },
    /// A flow has ended.
    Closed {
        /// The flow's number.
        id: u64,
        /// The result.
        end: &'a FlowEnd,
    },
    /// A flow was refused.
    Refused(&'a Refused),
    /// A port is about to be published.
    Published {
        /// The port, with its rule.
        published: &'a Published,
        /// The person who asked for it while the run goes on; under dual control the second.
        by: Who,
        /// The first approver, under dual control.
        first: Option<Who>,
    },
    /// The first of two persons approves a port.
    AgreedPort {
        /// The port.
        port: PublishedPort,
        /// The approver.
        by: Who,
    },
    /// Whatever needs two persons is denied, since no other approver can be heard.
    Unheard {
        /// The reason.
        why: &'a str,
    },
    /// A request to publish a port was refused.
    Unpublished {
        /// The port.
        port: PublishedPort,
        /// The reason.
        why: &'a str,
    },
    /// A host is about to be allowed by the person at the run's terminal.
    Allowed {
        /// The rule, as told.
        rule: &'a str,
        /// The time for which it is.
        lasts: Allowance,
        /// The person.
        by: Who,
    },
    /// An approval request was opened, or answered.
    Approval(&'a ApprovalNews),
    /// The run has dropped a right.
    GivenUp(&'a GivenUp),
    /// Other policies are about to take effect.
    Reloaded {
        /// The old version: the digest of all that decides.
        from: &'a str,
        /// The new version, likewise.
        to: &'a str,
        /// The signer of the organisation's policies.
        signed: Option<&'a str>,
        /// The person who asked for the reload.
        by: Who,
    },
    /// A reload was refused.
    Unreloaded {
        /// The version that stays in force.
        policy: &'a str,
        /// The reason.
        why: &'a str,
        /// The person who asked for the reload.
        by: Who,
    },
    /// The session gains a label; the flow that gives it waits.
    Labelled {
        /// The label.
        label: &'a str,
        /// The source of the label.
        by: &'a str,
    },
}
