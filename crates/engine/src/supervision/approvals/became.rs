//! The outcomes of requests and leases, as messages for a late answer.

use super::Approvals;

/// The most answered requests remembered, for a person who answers again.
const ANSWERED_MAX: usize = 64;
/// The outcome of a lease that has ended.
const LEASE_OVER: &str = "has ended";

impl Approvals {
    pub(super) fn remember(&mut self, approval: u32, how: &'static str) {
        if self.answered.len() >= ANSWERED_MAX {
            self.answered.pop_front();
        }
        self.answered.push_back((approval, how));
    }

    /// Remembers that the lease of this request has ended.
    pub(super) fn outlived(&mut self, approval: u32) {
        self.answered.retain(|one| one.0 != approval);
        self.remember(approval, LEASE_OVER);
    }

    /// Explains why this request cannot be answered.
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

    /// Explains why there is no lease to revoke.
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
