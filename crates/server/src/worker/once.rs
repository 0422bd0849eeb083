//! Requests with a name of their own: one that comes again is not carried out again, and has the
//! answer of the first.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_engine::sandboxes::NamedRequest;
use atoll_ledger::hex;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::OnceCell;

use super::list::Found;
use super::list::List;
use super::living::Living;
use super::process::Process;
use super::server::Server;
use crate::protocol::{Kind, Refusal};

/// The time for which a name is remembered.
const REMEMBERED: Duration = Duration::from_secs(10 * 60);
/// The most names that are remembered of one tenant; beyond it new ones are refused.
const NAMES_MAX: usize = 20_000;
/// The longest name, bytes.
const NAME_BYTES_MAX: usize = 256;

/// The named requests of late, of each tenant that has any.
pub(super) type AllRequests = BTreeMap<String, Requests>;

/// The named requests of one tenant.
#[derive(Default)]
pub(super) struct Requests {
    all: BTreeMap<Name, Request>,
    /// Their names by their numbers: the oldest first.
    order: BTreeMap<u64, Name>,
    next: u64,
}

/// The sandbox, or nothing for a create, and the name.
pub(super) type Name = (String, String);

#[derive(Clone)]
pub(super) struct Request {
    pub(super) number: u64,
    at: Instant,
    digest: String,
    pub(super) answer: Outcome,
}

#[derive(Clone)]
pub(super) enum Outcome {
    /// The sandbox's id: all else of it can be long, and is there while the sandbox is.
    Created(Arc<OnceCell<Result<String, Refusal>>>),
    Started(Arc<OnceCell<Result<Arc<Process>, Refusal>>>),
    /// A program that has ended with all others of its sandbox, which goes on.
    Gone,
    /// This sandbox, made before the server was started again, which is paused.
    Kept(String),
}

/// The requests with a name, of each tenant that has any.
pub(super) struct Idempotency {
    pub(super) server: Arc<Server>,
    pub(super) list: Arc<List>,
    pub(super) all: Mutex<AllRequests>,
}

impl Idempotency {
    /// Finds a sandbox that an earlier request of the same name has made.
    pub(super) fn created_before(&self, id: &str) -> Result<Arc<Living>, Refusal> {
        let refused = |how: &str, advice: &str| {
            let what = format!("the sandbox of this Idempotency-Key is {id}, and {how}");
            Err(Refusal::new(Kind::Exists, what).advise(advice))
        };
        match self.list.find(id) {
            Some(Found::Living(living)) => Ok(living),
            Some(Found::Paused(_)) => refused("is paused", "connect to it"),
            None => refused("has ended", "take a new one for another sandbox"),
        }
    }

    /// Finds the names of requests of before a restart that were carried out: of programs, which
    /// have ended with it, and of sandboxes that are paused. One whose sandbox is gone may be made again.
    pub(super) fn find_requests(&self) {
        let requests = match self.server.engine.named_requests(REMEMBERED) {
            Ok(requests) => requests,
            Err(failure) => return eprintln!("atoll serve: {failure}; names are not known"),
        };
        let now = (Instant::now(), OffsetDateTime::now_utc());
        for NamedRequest {
            once,
            time,
            is_exec,
        } in requests
        {
            let (within, answer) = match is_exec {
                true => (once.sandbox, Outcome::Gone),
                false if self.list.paused(&once.sandbox).is_some() => {
                    (String::new(), Outcome::Kept(once.sandbox))
                }
                false => continue,
            };
            let mut all = self.requests_of();
            let requests = all.entry(once.tenant).or_default();
            let time = OffsetDateTime::parse(&time, &Rfc3339).unwrap_or(now.1);
            let age = Duration::try_from(now.1 - time).unwrap_or_default();
            let at = now.0.checked_sub(age).unwrap_or(now.0);
            // One too many was refused when it came, and those of old are first.
            let _ = requests.named(&(within, once.key), &once.digest, answer, at);
        }
    }

    /// Forgets the names of a sandbox that is gone, and the programs that they keep.
    pub(super) fn forget_requests(&self, living: &Living) {
        if let Some(requests) = self.requests_of().get_mut(&living.spec.tenant) {
            requests.forget_all(&living.spec.id);
        }
    }

    /// Lets the programs go that the names of a sandbox keep: they have ended, and it goes on.
    pub(super) fn end_requests(&self, living: &Living) {
        if let Some(requests) = self.requests_of().get_mut(&living.spec.tenant) {
            requests.end_all(&living.spec.id);
        }
    }

    /// Forgets a request of which nothing was carried out: the same again may be.
    pub(super) fn forget_request(&self, tenant: &str, name: &Name, number: u64) {
        if let Some(requests) = self.requests_of().get_mut(tenant) {
            requests.forget(name, number);
        }
    }

    pub(super) fn named(
        &self,
        tenant: &str,
        name: &Name,
        digest: &str,
        made: Outcome,
    ) -> Result<Request, Refusal> {
        if name.1.is_empty() || name.1.len() > NAME_BYTES_MAX {
            let what = format!("Idempotency-Key has 1 to {NAME_BYTES_MAX} bytes");
            return Err(Refusal::new(Kind::Invalid, what));
        }
        let now = Instant::now();
        let mut all = self.requests_of();
        all.retain(|_, requests| {
            requests.expire(now);
            !requests.all.is_empty()
        });
        let requests = all.entry(tenant.to_owned()).or_default();
        requests.named(name, digest, made, now)
    }

    fn requests_of(&self) -> MutexGuard<'_, AllRequests> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Requests {
    /// Returns the request of this name: an earlier one, or a new one.
    fn named(
        &mut self,
        name: &Name,
        digest: &str,
        answer: Outcome,
        now: Instant,
    ) -> Result<Request, Refusal> {
        if let Some(earlier) = self.all.get(name) {
            return match earlier.digest == digest {
                true => Ok(earlier.clone()),
                false => Err(another()),
            };
        }
        if self.all.len() >= NAMES_MAX {
            return Err(self.full(now));
        }
        let request = Request {
            number: self.next,
            at: now,
            digest: digest.to_owned(),
            answer,
        };
        self.next += 1;
        self.order.insert(request.number, name.clone());
        self.all.insert(name.clone(), request.clone());
        Ok(request)
    }

    /// Returns the refusal of one name too many. None is forgotten within its time: what is repeated
    /// under it would be carried out twice.
    fn full(&self, now: Instant) -> Refusal {
        let oldest = self
            .order
            .values()
            .next()
            .and_then(|name| self.all.get(name));
        let left = oldest.map_or(Duration::ZERO, |one| {
            (one.at + REMEMBERED).duration_since(now)
        });
        let what = format!(
            "{NAMES_MAX} requests of this tenant had an Idempotency-Key within {} minutes",
            REMEMBERED.as_secs() / 60
        );
        Refusal {
            retry_after_s: Some(left.as_secs() + 1),
            ..Refusal::new(Kind::Quota, what).advise("try again later, or send none")
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some(oldest) = self.order.first_entry() {
            let at = self.all.get(oldest.get()).map(|one| one.at);
            if at.is_some_and(|at| now.duration_since(at) <= REMEMBERED) {
                return;
            }
            let name = oldest.remove();
            self.all.remove(&name);
        }
    }

    fn forget(&mut self, name: &Name, number: u64) {
        // Another one may have this name by now.
        if self.all.get(name).is_some_and(|one| one.number == number) {
            self.all.remove(name);
            self.order.remove(&number);
        }
    }

    fn forget_all(&mut self, sandbox: &str) {
        for (name, number) in self.of(sandbox) {
            self.forget(&name, number);
        }
    }

    fn end_all(&mut self, sandbox: &str) {
        for (name, _) in self.of(sandbox) {
            if let Some(one) = self.all.get_mut(&name) {
                one.answer = Outcome::Gone;
            }
        }
    }

    fn of(&self, sandbox: &str) -> Vec<(Name, u64)> {
        let from = self.all.range((sandbox.to_owned(), String::new())..);
        let own = from.take_while(|((of, _), _)| of == sandbox);
        own.map(|(name, one)| (name.clone(), one.number)).collect()
    }
}

pub(super) fn digest(ask: &impl serde::Serialize) -> Result<String, Refusal> {
    let text = serde_json::to_vec(ask);
    let text = text.map_err(|error| Refusal::new(Kind::Fault, error.to_string()))?;
    Ok(hex(&Sha256::digest(text)))
}

pub(super) fn another() -> Refusal {
    Refusal::new(Kind::Exists, "another request had this Idempotency-Key")
        .advise("take a new one for each request, and the same one to repeat it")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn name(text: &str) -> Name {
        ("sandbox".to_owned(), text.to_owned())
    }

    fn put(requests: &mut Requests, text: &str, now: Instant) -> Result<u64, Refusal> {
        let answer = Outcome::Started(Arc::default());
        let request = requests.named(&name(text), "digest", answer, now);
        request.map(|request| request.number)
    }

    #[test]
    fn names_beyond_the_most_are_refused_for_a_time() {
        let (mut requests, now) = (Requests::default(), Instant::now());
        for number in 0..NAMES_MAX {
            let _ = put(&mut requests, &number.to_string(), now).unwrap();
        }
        let refusal = put(&mut requests, "more", now).unwrap_err();
        assert_eq!(refusal.kind, Kind::Quota);
        assert_eq!(refusal.retry_after_s, Some(REMEMBERED.as_secs() + 1));
        // Each of the others is still known.
        assert_eq!(put(&mut requests, "0", now).unwrap(), 0);
        requests.expire(now + REMEMBERED);
        assert_eq!(put(&mut requests, "0", now).unwrap(), 0);
        requests.expire(now + REMEMBERED + Duration::from_secs(1));
        assert!(requests.all.is_empty() && requests.order.is_empty());
    }

    #[test]
    fn refused_requests_take_no_place() {
        let (mut requests, now) = (Requests::default(), Instant::now());
        for _ in 0..=NAMES_MAX {
            let number = put(&mut requests, "refused", now).unwrap();
            requests.forget(&name("refused"), number);
        }
        assert!(requests.all.is_empty() && requests.order.is_empty());
        // What another waiter was refused is not the one that has the name now.
        let first = put(&mut requests, "again", now).unwrap();
        requests.forget(&name("again"), first);
        let second = put(&mut requests, "again", now).unwrap();
        requests.forget(&name("again"), first);
        assert_eq!(put(&mut requests, "again", now).unwrap(), second);
    }

    #[test]
    fn a_pause_forgets_no_name() {
        let (mut requests, now) = (Requests::default(), Instant::now());
        let number = put(&mut requests, "kept", now).unwrap();
        requests.end_all("sandbox");
        let answer = Outcome::Started(Arc::default());
        let request = requests.named(&name("kept"), "digest", answer, now);
        let request = request.unwrap();
        assert!(request.number == number && matches!(request.answer, Outcome::Gone));
        requests.forget_all("sandbox");
        assert!(requests.all.is_empty() && requests.order.is_empty());
    }
}
