//! The resources of sandboxes: by default, as asked for, of a tenant together, and while they live.

use std::collections::BTreeMap;
use std::time::Instant;

use super::living::Living;
use crate::configuration::{Defaults, Quota};
use crate::protocol::{Kind, Refusal};

pub(super) const MIB: u64 = 1 << 20;
/// The most memory, or disk, of a sandbox, MiB.
pub(super) const MIB_MAX: u64 = 1 << 24;
/// The member of a request that is about memory, and the least that anything starts with, MiB.
pub(super) const MEMORY: &str = "memory_mib";
pub(super) const MEMORY_MIB_MIN: u64 = 4;
/// The most processes of a sandbox.
pub(super) const PROCESSES_MAX: u64 = 1 << 22;

/// Sandboxes, and what they may use together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    sandboxes: u64,
    cpus: u64,
    memory_mib: u64,
    disk_mib: u64,
}

impl Sizes {
    /// Returns that of one sandbox.
    pub(super) fn of(limits: &Defaults, cpus: u32) -> Self {
        Self {
            sandboxes: 1,
            cpus: cpus.into(),
            memory_mib: limits.memory_mib,
            disk_mib: limits.disk_mib,
        }
    }

    pub(super) fn of_living(living: &Living) -> Self {
        let (limits, cpus) = &*living.sizes();
        Self::of(limits, *cpus)
    }

    pub(super) fn with(self, other: Self) -> Self {
        Self {
            sandboxes: self.sandboxes.saturating_add(other.sandboxes),
            cpus: self.cpus.saturating_add(other.cpus),
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
            disk_mib: self.disk_mib.saturating_add(other.disk_mib),
        }
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self {
            sandboxes: self.sandboxes.saturating_sub(other.sandboxes),
            cpus: self.cpus.saturating_sub(other.cpus),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
            disk_mib: self.disk_mib.saturating_sub(other.disk_mib),
        }
    }
}

/// Returns whether nothing starts with so little.
pub(super) fn is_too_small(name: &str, asked: u64) -> bool {
    name == MEMORY && asked < MEMORY_MIB_MIN
}

/// Refuses a sandbox with which a tenant would have more than it may.
pub(super) fn check_sizes(quota: &Quota, alive: Sizes, one: Sizes) -> Result<(), Refusal> {
    let all = alive.with(one);
    let refused = |what: String, name: &str| {
        let advice = format!("end one, ask for less, or raise quota.{name} in serve.toml");
        Err(Refusal {
            retry_after_s: Some(5),
            ..Refusal::new(Kind::Quota, what).advise(advice)
        })
    };
    let most = quota.sandboxes as u64;
    if all.sandboxes > most {
        let what = format!("{most} sandboxes are alive, as many as the tenant may have");
        return refused(what, "sandboxes");
    }
    let sums = [
        ("cpus", all.cpus, quota.cpus.map(u64::from)),
        ("memory_mib", all.memory_mib, quota.memory_mib),
        ("disk_mib", all.disk_mib, quota.disk_mib),
    ];
    let beyond = sums
        .into_iter()
        .find(|(_, sum, most)| most.is_some_and(|most| *sum > most));
    match beyond {
        None => Ok(()),
        Some((name, sum, most)) => {
            let most = most.unwrap_or_default();
            let what = format!(
                "{name} of the tenant's sandboxes would be {sum} together, and {most} is the most"
            );
            refused(what, name)
        }
    }
}

/// The sandboxes that each tenant has made of late, and is making.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub(super) of: BTreeMap<String, Tenant>,
}

#[derive(Debug)]
pub(super) struct Tenant {
    /// The creates that are left now.
    pub(super) left: f64,
    pub(super) at: Instant,
    /// Those that are being made, and not on the list yet.
    pub(super) making: Sizes,
}
