//! Shares: of what the server has only so much of, each tenant gets a part, and some is left for the
//! next one.
//!
//! Whatever uses something up keeps a [`Share`] for as long as it does. A tenant has at most
//! [`TIMES`] times what is left for all others: alone three quarters; however many take what they
//! can, there is always some left for one more.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, getrlimit};

use crate::protocol::{Kind, Refusal};

/// The part of the sandboxes that there can be up to which memory is kept, per cent: the rest is for
/// those that are wanted now.
pub(super) const CROWDED_FROM: u64 = 50;
/// The threads for work that waits for the kernel or a sandbox, never for a caller.
pub(super) const BLOCKING_THREADS_MAX: usize = 1_024;
/// The times of what is left that a tenant may have.
const TIMES: u64 = 3;
/// The sixteenths of the descriptors that are for one thing, and those that each takes here and in
/// its supervision. One sixteenth is left for requests of which it is not known whose they are, and
/// for the worker's own: its ledger, store and listeners.
struct Part {
    sixteenths: u64,
    each: u64,
}

const fn part(sixteenths: u64, each: u64) -> Part {
    Part { sixteenths, each }
}

const OF_SANDBOXES: Part = part(8, 11);
const OF_PROGRAMS: Part = part(3, 8);
const OF_REQUESTS: Part = part(2, 3);
const OF_VISITORS: Part = part(1, 2);
const OF_WATCHERS: Part = part(1, 4);
/// The most requests at once; the most that look at sandboxes or end one, each for a moment.
const REQUESTS_MAX: u64 = 20_000;
const CONTROL_MAX: u64 = 128;
/// The part of the memory that what is kept of programs may take.
const OF_MEMORY: u64 = 4;
/// The most deliveries of webhooks at once, names included that nobody waits for.
const DELIVERIES_MAX: u64 = 32;
/// The memory of this machine where the kernel does not say it, and the inotify instances of a user
/// and the terminals.
const MEMORY_KIB: u64 = 1 << 20;
const INSTANCES: u64 = 128;
const TERMINALS: u64 = 1024;
/// The time after which whoever was refused tries again, seconds.
const AGAIN_S: u64 = 5;

/// The resources that there are only so many of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// A sandbox, whether it is anybody's yet.
    Sandboxes,
    /// A running program.
    Programs,
    /// One of these with a terminal.
    Terminals,
    /// A request, until it is answered.
    Requests,
    /// One that looks at sandboxes, or ends one.
    Control,
    /// One by whoever has neither a key nor a token, to a port of a program.
    Visitors,
    /// A watched directory.
    Watchers,
    /// A request about files, or about what is kept, which takes a thread.
    Threads,
    /// A KiB of a program's arguments, variables and output.
    Memory,
    /// A webhook's delivery.
    Deliveries,
}

/// All of these, and who has how much.
#[derive(Debug)]
pub(super) struct Shares {
    pools: [Arc<Pool>; 10],
    /// The most descriptors.
    limit: u64,
}

#[derive(Debug)]
struct Pool {
    of: Of,
    all: u64,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    all: u64,
    by: BTreeMap<String, u64>,
}

/// A part of a resource that a tenant has, until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    pool: Arc<Pool>,
    tenant: String,
    count: u64,
}

impl Shares {
    /// Measures what this process may have, once its limits are set.
    pub(super) fn new() -> Self {
        let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 20);
        let part = |of: Part| (limit / 16).saturating_mul(of.sixteenths) / of.each;
        let all = |of: Of| match of {
            Of::Sandboxes => part(OF_SANDBOXES),
            Of::Programs => part(OF_PROGRAMS),
            Of::Terminals => number("/proc/sys/kernel/pty/max").unwrap_or(TERMINALS) / 2,
            Of::Requests => part(OF_REQUESTS).min(REQUESTS_MAX),
            Of::Control => (limit / 64).min(CONTROL_MAX),
            Of::Visitors => part(OF_VISITORS).min(REQUESTS_MAX),
            Of::Watchers => {
                let instances = number("/proc/sys/fs/inotify/max_user_instances");
                part(OF_WATCHERS).min(instances.unwrap_or(INSTANCES) / 2)
            }
            Of::Threads => BLOCKING_THREADS_MAX as u64,
            Of::Memory => memory_kib().unwrap_or(MEMORY_KIB) / OF_MEMORY,
            Of::Deliveries => DELIVERIES_MAX,
        };
        Self {
            pools: Of::ALL.map(|of| Pool::new(of, all(of))),
            limit,
        }
    }

    /// Returns how many requests there can be at once of which it is not known whose they are.
    pub(super) fn strangers(&self, most: usize) -> usize {
        usize::try_from(self.limit / 64).map_or(most, |part| part.min(most))
    }

    /// Takes so much for a tenant.
    pub(super) fn take(&self, of: Of, tenant: &str, count: u64) -> Result<Share, Refusal> {
        self.pool(of).take(tenant, count).ok_or_else(|| refused(of))
    }

    /// Returns how much of it is used.
    pub(super) fn used(&self, of: Of) -> u64 {
        self.pool(of).used().all
    }

    /// Returns whether more than so many hundredths of it are used.
    pub(super) fn is_used_beyond(&self, of: Of, percent: u64) -> bool {
        self.used(of).saturating_mul(100) > self.pool(of).all.saturating_mul(percent)
    }

    /// Returns whether so many descriptors are open that only the worker's own are left: the kernel
    /// gives the lowest number that is free, so a new one tells.
    pub(super) fn is_of_reserve(&self, new: BorrowedFd<'_>) -> bool {
        let number = u64::try_from(new.as_raw_fd()).unwrap_or(0);
        number >= self.limit - self.limit / 32
    }

    fn pool(&self, of: Of) -> &Arc<Pool> {
        let [first, ..] = &self.pools;
        self.pools.iter().find(|one| one.of == of).unwrap_or(first)
    }
}

impl Of {
    const ALL: [Self; 10] = [
        Self::Sandboxes,
        Self::Programs,
        Self::Terminals,
        Self::Requests,
        Self::Control,
        Self::Visitors,
        Self::Watchers,
        Self::Threads,
        Self::Memory,
        Self::Deliveries,
    ];
}

impl Pool {
    fn new(of: Of, all: u64) -> Arc<Self> {
        Arc::new(Self {
            of,
            all,
            used: Mutex::default(),
        })
    }

    fn take(self: &Arc<Self>, tenant: &str, count: u64) -> Option<Share> {
        let mut used = self.used();
        let left = self.all.checked_sub(used.all)?.checked_sub(count)?;
        let own = used.by.get(tenant).copied().unwrap_or(0);
        // One more than is left then: the last one is for somebody too.
        if own.saturating_add(count) > left.saturating_add(1).saturating_mul(TIMES) {
            return None;
        }
        used.all += count;
        *used.by.entry(tenant.to_owned()).or_default() += count;
        Some(Share {
            pool: Arc::clone(self),
            tenant: tenant.to_owned(),
            count,
        })
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Gives back what is more than this.
    pub(crate) fn shrink(&mut self, to: u64) {
        let back = self.count.saturating_sub(to);
        self.count -= back;
        let mut used = self.pool.used();
        used.all = used.all.saturating_sub(back);
        if let Some(own) = used.by.get_mut(&self.tenant) {
            *own = own.saturating_sub(back);
            if *own == 0 {
                used.by.remove(&self.tenant);
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

/// Returns the refusal for a tenant that has its share.
fn refused(of: Of) -> Refusal {
    let (what, advice) = match of {
        Of::Sandboxes => (
            "the tenant has as many sandboxes as this server has descriptors for",
            "end one, or raise the server's limit of open files (LimitNOFILE)",
        ),
        Of::Programs => (
            "as many programs of the tenant run as this server can supervise",
            "wait until some have ended, or raise the server's limit of open files (LimitNOFILE)",
        ),
        Of::Terminals => (
            "as many programs of the tenant have a terminal as it may",
            "end one, or start it without a terminal",
        ),
        Of::Visitors => (
            "as many requests without a key to ports of the tenant's sandboxes are under way as there may be at once",
            "send a token of the sandbox, or wait until some are answered",
        ),
        Of::Requests | Of::Control => (
            "as many requests of the tenant are under way as it may have at once",
            "wait until some are answered",
        ),
        Of::Watchers => (
            "the tenant watches as many directories as it may",
            "remove a watcher, or watch a directory with all beneath it",
        ),
        Of::Threads => (
            "as many requests about files and sandboxes of the tenant are under way as it may have at once",
            "wait until some are answered",
        ),
        Of::Memory => (
            "the server keeps as much of the output of the tenant's programs as it may",
            "try again once some have ended; let programs write to files",
        ),
        Of::Deliveries => (
            "as many deliveries of the tenant are under way as it may have at once",
            "they follow each other",
        ),
    };
    Refusal {
        retry_after_s: Some(AGAIN_S),
        ..Refusal::new(Kind::Quota, what).advise(advice)
    }
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the memory of this machine, KiB (proc_meminfo(5)).
fn memory_kib() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn taken(pool: &Arc<Pool>, tenant: &str) -> Vec<Share> {
        std::iter::from_fn(|| pool.take(tenant, 1)).collect()
    }

    #[test]
    fn a_tenant_alone_has_three_quarters() {
        for (all, most) in [(8, 6), (16, 12), (1000, 750)] {
            let pool = Pool::new(Of::Programs, all);
            let kept = taken(&pool, "one");
            assert_eq!(kept.len(), most, "{all}");
            assert!(pool.take("one", 1).is_none());
        }
    }

    #[test]
    fn many_that_take_all_leave_some_for_the_next() {
        let pool = Pool::new(Of::Programs, 1000);
        let mut kept = Vec::new();
        for number in 0..3 {
            let mut own = taken(&pool, &format!("greedy {number}"));
            assert!(!own.is_empty());
            kept.append(&mut own);
        }
        let next = taken(&pool, "next");
        assert!(next.len() >= 10, "{}", next.len());
        drop(kept);
        assert_eq!(pool.used().all, next.len() as u64);
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let pool = Pool::new(Of::Memory, 100);
        assert!(pool.take("one", 80).is_none());
        let mut one = pool.take("one", 70).unwrap();
        assert!(pool.take("one", 10).is_none());
        one.shrink(2);
        let other = pool.take("one", 70).unwrap();
        drop((one, other));
        let used = pool.used();
        assert_eq!((used.all, used.by.len()), (0, 0));
    }
}
