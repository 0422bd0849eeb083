//! The names of runs, of which no two of this process are equal.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use atoll_model::RunId;

use crate::run::new_run_id;

/// The runs of the last second, by the names that were given to them: so many begin in one that two
/// would get the same by chance.
#[derive(Default)]
pub(super) struct Named(Mutex<(u64, BTreeSet<RunId>)>);

impl Named {
    /// Returns a name that no other run of this process has.
    pub(super) fn name(&self, now: SystemTime) -> RunId {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (second, names) = &mut *named;
        // A name begins with its second.
        if *second != since.as_secs() {
            (*second, *names) = (since.as_secs(), BTreeSet::new());
        }
        loop {
            let name = new_run_id(now);
            if names.insert(name.clone()) {
                return name;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_runs_of_a_second_have_one_name() {
        let named = Named::default();
        let names: BTreeSet<RunId> = (0..20_000).map(|_| named.name(UNIX_EPOCH)).collect();
        assert_eq!(names.len(), 20_000);
    }
}
