//! The sandboxes of a server, by id: those that live, those that are paused, and why others have
//! ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use super::lifecycle::{Lifecycle, Transition};
use super::living::Living;
use super::paused::Paused;
use super::sizes::Sizes;

/// The longest time for which a request waits while its sandbox is being paused.
const PAUSED_WITHIN: Duration = Duration::from_secs(30);
/// The ended sandboxes whose end is remembered.
const ENDED_MAX: usize = 10_000;

/// All of them, behind one lock: nobody sees one between two of its states.
#[derive(Default)]
pub(super) struct List(Mutex<All>);

#[derive(Default)]
struct All {
    living: BTreeMap<String, Arc<Living>>,
    paused: BTreeMap<String, Arc<Paused>>,
    ended: VecDeque<Ended>,
}

/// A sandbox that has ended.
struct Ended {
    id: String,
    tenant: String,
    why: String,
}

/// A sandbox that is there.
pub(super) enum Found {
    Living(Arc<Living>),
    Paused(Arc<Paused>),
}

impl List {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds one; as a paused one for as long as it is not certain that it goes on.
    pub(super) fn find(&self, id: &str) -> Option<Found> {
        let all = self.all();
        let paused = all.paused.get(id).cloned().map(Found::Paused);
        paused.or_else(|| all.living.get(id).cloned().map(Found::Living))
    }

    pub(super) fn living(&self, id: &str) -> Option<Arc<Living>> {
        self.all().living.get(id).cloned()
    }

    pub(super) fn paused(&self, id: &str) -> Option<Arc<Paused>> {
        self.all().paused.get(id).cloned()
    }

    pub(super) fn all_living(&self) -> Vec<Arc<Living>> {
        self.all().living.values().cloned().collect()
    }

    pub(super) fn all_paused(&self) -> Vec<Arc<Paused>> {
        self.all().paused.values().cloned().collect()
    }

    /// Returns those of a tenant that live, and those that are paused.
    pub(super) fn of(&self, tenant: &str) -> (Vec<Arc<Living>>, Vec<Arc<Paused>>) {
        let all = self.all();
        let living = all.living.values().filter(|one| one.spec.tenant == tenant);
        let paused = all.paused.values().filter(|one| one.tenant == tenant);
        (living.cloned().collect(), paused.cloned().collect())
    }

    /// Returns what those of a tenant that live may use together.
    pub(super) fn alive(&self, tenant: &str) -> Sizes {
        let all = self.all();
        let own = all.living.values().filter(|one| one.spec.tenant == tenant);
        own.fold(Sizes::default(), |sum, one| sum.with(Sizes::of_living(one)))
    }

    /// Waits while one is just being paused.
    pub(super) async fn settled(&self, id: &str) {
        if let Some(living) = self.living(id) {
            let is_left = |state: &Lifecycle| !matches!(state, Lifecycle::Pausing { .. });
            let _ = timeout(PAUSED_WITHIN, living.life.wait(is_left)).await;
        }
    }

    /// Counts those that stand on a template.
    pub(super) fn stand_on(&self, template: &str) -> usize {
        let all = self.all();
        let living = all.living.values();
        let living = living.filter(|one| one.spec.shipped == template).count();
        let paused = all.paused.values();
        living + paused.filter(|one| one.shipped() == template).count()
    }

    /// Counts those that live.
    pub(super) fn len(&self) -> usize {
        self.all().living.len()
    }

    pub(super) fn put_living(&self, living: &Arc<Living>) {
        let id = living.spec.id.clone();
        self.all().living.insert(id, Arc::clone(living));
    }

    /// Puts a paused one in the place of the living one of its id. Whoever sees it there, or is woken
    /// by its state, sees the other one too.
    pub(super) fn put_paused(&self, paused: Arc<Paused>) {
        let mut all = self.all();
        // One of the server before is so already.
        let _ = paused.life.pass(Transition::Park);
        all.living.remove(&paused.id);
        all.paused.insert(paused.id.clone(), paused);
    }

    pub(super) fn remove_living(&self, id: &str) {
        self.all().living.remove(id);
    }

    pub(super) fn remove_paused(&self, id: &str) {
        self.all().paused.remove(id);
    }

    /// Takes a living one off the list, and remembers its end; returns that if it was there.
    pub(super) fn end(&self, gone: &Arc<Living>) -> Option<String> {
        let (mut all, id) = (self.all(), &gone.spec.id);
        let is_it = |one: &mut Arc<Living>| Arc::ptr_eq(one, gone);
        if !all.living.get_mut(id).is_some_and(is_it) {
            return None;
        }
        all.living.remove(id);
        let why = match gone.life.state() {
            Lifecycle::Ended(why) => why.to_string(),
            _ => "it has ended by itself".to_owned(),
        };
        if all.ended.len() >= ENDED_MAX {
            all.ended.pop_front();
        }
        all.ended.push_back(Ended {
            id: id.clone(),
            tenant: gone.spec.tenant.clone(),
            why: why.clone(),
        });
        Some(why)
    }

    /// Returns how one of a tenant ends just now, or has ended.
    pub(super) fn end_of(&self, id: &str, tenant: &str) -> Option<String> {
        let all = self.all();
        let ending = all.living.get(id).filter(|one| one.spec.tenant == tenant);
        if let Some(ending) = ending
            && let state = ending.life.state()
            && !state.is_running()
        {
            return Some(format!("is ending: {state}"));
        }
        let mut ended = all.ended.iter().rev();
        let own = ended.find(|one| one.id == id && one.tenant == tenant);
        own.map(|ended| format!("has ended: {}", ended.why))
    }
}
