//! The changes of a run's network, as they are recorded.

use atoll_model::network::{Flow, FlowEnd, GivenUp};
use atoll_sandbox::ApprovalNews;

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
    /// Whatever needs two persons is denied, since no other approver can be heard.
    Unheard {
        /// The reason.
        why: &'a str,
    },
    /// An approval request was opened, or answered.
    Approval(&'a ApprovalNews),
    /// The run has dropped a right.
    GivenUp(&'a GivenUp),
    /// The session gains a label; the flow that gives it waits.
    Labelled {
        /// The label.
        label: &'a str,
        /// The source of the label.
        by: &'a str,
    },
}
