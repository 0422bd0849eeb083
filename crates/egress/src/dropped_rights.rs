//! The rights that the run has given up for good: more are added while it goes on, and none is
//! taken back. They are checked before anything that policies could allow, and what they deny of
//! the open flows ends.

use std::net::IpAddr;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atoll_model::network::{
    CredentialName, GivenUp, GivenUps, HostPart, Restriction, TooMuchGivenUp,
};
use tokio::sync::watch;
use tokio::time::sleep;

/// The longest single wait for a time to come: clocks are set.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// All rights that are given up so far.
#[derive(Debug)]
pub(crate) struct DroppedRights {
    all: RwLock<GivenUps>,
    /// Notified when more are given up.
    more: watch::Sender<()>,
}

impl Default for DroppedRights {
    fn default() -> Self {
        Self::new(GivenUps::default())
    }
}

/// Returns the current time, seconds since 1970; 0 where the clock is before that.
pub(crate) fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl DroppedRights {
    /// Begins with the rights that were given up before.
    pub(crate) fn new(all: GivenUps) -> Self {
        Self {
            all: RwLock::new(all),
            more: watch::Sender::new(()),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, GivenUps> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all of them at this time. A time that has come stays in force, even where the clock
    /// is set back.
    fn read_at(&self, now_s: u64) -> RwLockReadGuard<'_, GivenUps> {
        if self.read().is_to_latch(now_s) {
            let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
            all.latch(now_s);
        }
        self.read()
    }

    /// Adds rights that were given up outside, where they were counted and recorded. If there is no
    /// room for one here, the whole network is given up: never less is denied than was asked for.
    pub(crate) fn add_all(&self, given: Vec<GivenUp>) {
        let network = given.first().map(|one| GivenUp {
            what: Restriction::Network {},
            ..one.clone()
        });
        if let Err(TooMuchGivenUp) = self.add(given) {
            // There is always room for this one.
            let _ = self.add(network.into_iter().collect());
        }
    }

    /// Adds rights that are given up now. Returns those that were not given up before.
    pub(crate) fn add(&self, given: Vec<GivenUp>) -> Result<Vec<GivenUp>, TooMuchGivenUp> {
        let mut new = Vec::new();
        let added = {
            let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
            given.into_iter().try_for_each(|one| {
                if all.add(one.clone())? {
                    new.push(one);
                }
                Ok(())
            })
        };
        // What came before the one that has no room counts all the same.
        self.more.send_replace(());
        added.map(|()| new)
    }

    /// Returns all of them.
    pub(crate) fn all(&self) -> GivenUps {
        self.read().clone()
    }

    /// Returns the reason for which a host may not be reached, at whichever port.
    pub(crate) fn host(&self, host: &HostPart) -> Option<String> {
        let now_s = now_s();
        self.read_at(now_s).host(host, now_s).map(GivenUp::why)
    }

    /// Returns the reason for which an address may not be dialled, whatever name led there.
    pub(crate) fn address(&self, address: IpAddr) -> Option<String> {
        let now_s = now_s();
        self.read_at(now_s)
            .address(address, now_s)
            .map(GivenUp::why)
    }

    /// Returns the reason for which nothing at all may be carried.
    pub(crate) fn network(&self) -> Option<String> {
        let now_s = now_s();
        self.read_at(now_s).network(now_s).map(GivenUp::why)
    }

    /// Returns the reason for which a credential may not be injected.
    pub(crate) fn credential(&self, name: &CredentialName) -> Option<String> {
        self.read().credential(name).map(GivenUp::why)
    }

    /// Waits until this is denied. Returns the reason.
    pub(crate) async fn denied(&self, why: impl Fn(&Self) -> Option<String>) -> String {
        let mut more = self.more.subscribe();
        loop {
            if let Some(why) = why(self) {
                return why;
            }
            let now = now_s();
            let next = self.read().next_s(now);
            match next {
                Some(at) => {
                    let wait = Duration::from_secs(at.saturating_sub(now)).min(LOOK_MAX);
                    tokio::select! {
                        _ = more.changed() => {}
                        () = sleep(wait) => {}
                    }
                }
                // Its sender is this one, and still there.
                None => drop(more.changed().await),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use atoll_model::network::{GIVEN_UP_MAX, GivenUpBy};

    use super::*;

    fn by_person(what: Restriction) -> GivenUp {
        GivenUp {
            at_s: 1,
            by: GivenUpBy::Person { uid: 7 },
            what,
        }
    }

    fn host(name: &str) -> Restriction {
        Restriction::Host(name.to_owned().try_into().unwrap())
    }

    #[test]
    fn dropped_rights_beyond_limit_drop_the_network() {
        let all = DroppedRights::default();
        for number in 0..GIVEN_UP_MAX {
            all.add_all(vec![by_person(host(&format!("h{number}.example")))]);
        }
        assert_eq!(all.network(), None, "there was room so far");
        all.add_all(vec![by_person(host("more.example"))]);
        assert!(all.network().is_some());
        assert!(all.host(&"other.example".parse().unwrap()).is_some());
    }

    #[test]
    fn dropped_rights_deadline_reached_stays() {
        let all = DroppedRights::default();
        all.add_all(vec![by_person(Restriction::After { time_s: 5 })]);
        assert!(all.network().is_some());
        let kept = all.all();
        assert!(kept.network(1).is_some(), "before that time: {kept:?}");
    }
}
