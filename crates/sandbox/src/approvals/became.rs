//! What became of questions and of what was granted for longer, in words for who asks late.

use super::Approvals;

/// How many answered questions are remembered, for who answers once more.
const ANSWERED_MAX: usize = 64;
/// What has become of a lease that is over.
const LEASE_OVER: &str = "has ended";

impl Approvals {
    pub(super) fn remember(&mut self, approval: u32, how: &'static str) {
        if self.answered.len() >= ANSWERED_MAX {
            self.answered.pop_front();
        }
        self.answered.push_back((approval, how));
    }

    /// The lease of this question is over.
    pub(super) fn outlived(&mut self, approval: u32) {
        self.answered.retain(|one| one.0 != approval);
        self.remember(approval, LEASE_OVER);
    }

    /// Why this question cannot be answered.
    pub(crate) fn missing(&self, approval: u32) -> String {
        if self.leases.iter().any(|one| one.lease.approval == approval) {
            return format!("the lease of question {approval} is in force");
        }
        match self.answered.iter().find(|one| one.0 == approval) {
            Some((_, LEASE_OVER)) => format!("the lease of question {approval} {LEASE_OVER}"),
            Some((_, how)) => format!("it was answered already: {how}"),
            None => format!("there is no question {approval}"),
        }
    }

    /// Why there is no lease to take back.
    pub(super) fn unleased(&self, approval: u32) -> String {
        if self.open.iter().any(|one| one.approval == approval) {
            return format!("question {approval} waits for an answer, and has no lease");
        }
        match self.answered.iter().find(|one| one.0 == approval) {
            Some((_, LEASE_OVER)) => format!("the lease of question {approval} {LEASE_OVER}"),
            Some((_, how)) => format!("question {approval} has no lease: {how}"),
            None => format!("there is no lease {approval}"),
        }
    }
}
