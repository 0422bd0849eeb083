//! The resources of sandboxes: by default, as asked for, of a tenant together, and while they live.

use std::sync::Arc;

use atoll_model::ServedExec;
use tokio::task::spawn_blocking;

use super::living::Living;
use super::sandboxes::Sandboxes;
use super::{fault, refusal};
use crate::configuration::{Defaults, Quota};
use crate::protocol::{CreateAsk, Kind, Refusal, SizesAsk};

const MIB: u64 = 1 << 20;
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

impl Sandboxes {
    /// Changes what a living sandbox may use, within the quotas of its tenant.
    pub(super) async fn set_sizes(
        &self,
        living: &Arc<Living>,
        asked: SizesAsk,
        by: ServedExec,
    ) -> Result<(), Refusal> {
        // One after the other: what is counted is what is set.
        let _one_by_one = self.resizing.lock().await;
        let ask = CreateAsk {
            cpus: asked.cpus,
            memory_mib: asked.memory_mib,
            ..CreateAsk::default()
        };
        let wanted = self.common.limits(&ask)?;
        let (mut limits, mut cpus) = living.sizes().clone();
        let before = Sizes::of(&limits, cpus);
        if asked.memory_mib.is_some() {
            limits.memory_mib = wanted.memory_mib;
        }
        cpus = asked.cpus.unwrap_or(cpus);
        let others = self.list.alive(&living.spec.tenant).without(before);
        check_sizes(
            &self.common.configuration.quota,
            others,
            Sizes::of(&limits, cpus),
        )?;
        let sandbox = Arc::clone(&living.sandbox);
        let memory = asked.memory_mib.map(|mebibytes| mebibytes * MIB);
        let processors = asked.cpus.map(|cpus| u64::from(cpus) * 1000);
        let resized = spawn_blocking(move || sandbox.resize(memory, processors, &by));
        let resized = resized.await.map_err(|error| fault(&error))?;
        resized.map_err(|failure| refusal(&failure))?;
        *living.sizes() = (limits, cpus);
        self.webhooks
            .note_updated(living, "a caller has changed its sizes");
        Ok(())
    }
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
