//! Requests with a name of their own: one that comes again is not carried out again, and has the
//! answer of the first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use atoll_model::ServedExec;
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use super::Worker;
use super::callers::Caller;
use super::living::Living;
use super::making::check_maker;
use super::process::Process;
use super::window::Reading;
use crate::protocol::{CreateAsk, Kind, Refusal, Reply, StartAsk};

/// The time for which a name is remembered.
const REMEMBERED: Duration = Duration::from_secs(10 * 60);
/// The most names that are remembered.
const NAMES_MAX: usize = 20_000;
/// The longest name, bytes.
const NAME_BYTES_MAX: usize = 256;

/// The named requests of late.
#[derive(Default)]
pub(super) struct Requests {
    all: BTreeMap<Name, Request>,
    order: VecDeque<(Instant, Name)>,
}

/// The tenant or sandbox, and the name.
type Name = (String, String);

#[derive(Clone)]
struct Request {
    digest: Vec<u8>,
    answer: Answer,
}

#[derive(Clone)]
enum Answer {
    Created(Arc<OnceCell<Result<Reply, Refusal>>>),
    Started(Arc<OnceCell<Result<Arc<Process>, Refusal>>>),
}

impl Worker {
    /// Makes a sandbox, unless a request of this name has.
    pub(super) async fn create_once(
        self: &Arc<Self>,
        caller: &Caller,
        once: Option<String>,
        ask: CreateAsk,
    ) -> Result<Reply, Refusal> {
        // An answer that is given again is for whoever could have it.
        check_maker(caller)?;
        let Some(once) = once else {
            return self.create(caller, ask).await;
        };
        let made = || Answer::Created(Arc::default());
        let name = (caller.tenant.clone(), once.clone());
        let cell = match self.named(&caller.tenant, once, &digest(&ask)?, made)? {
            Answer::Created(cell) => cell,
            Answer::Started(_) => return Err(another()),
        };
        let created = cell.get_or_init(|| self.create(caller, ask)).await;
        if created.is_err() {
            // Nothing was carried out: the same again may be.
            let mut requests = self.once.lock().unwrap_or_else(PoisonError::into_inner);
            requests.all.remove(&name);
            requests.order.retain(|(_, one)| *one != name);
        }
        created.clone()
    }

    /// Starts a program, unless a request of this name has.
    pub(super) async fn start_once(
        self: &Arc<Self>,
        living: &Arc<Living>,
        once: &str,
        ask: StartAsk,
        by: ServedExec,
    ) -> Result<(Arc<Process>, Reading), Refusal> {
        let made = || Answer::Started(Arc::default());
        let cell = match self.named(&living.id, once.to_owned(), &digest(&ask)?, made)? {
            Answer::Started(cell) => cell,
            Answer::Created(_) => return Err(another()),
        };
        let started = async || {
            self.start(living, ask, by)
                .await
                .map(|(process, _)| process)
        };
        let process = cell.get_or_init(started).await.clone()?;
        let reading = process.window.read(Some(0));
        Ok((process, reading))
    }

    /// Forgets the names of a sandbox that is gone, and the programs that they keep.
    pub(super) fn forget_requests(&self, of: &str) {
        let mut requests = self.once.lock().unwrap_or_else(PoisonError::into_inner);
        let names = requests.all.range((of.to_owned(), String::new())..);
        let names = names.take_while(|((sandbox, _), _)| sandbox == of);
        let names: Vec<Name> = names.map(|(name, _)| name.clone()).collect();
        for name in names {
            requests.all.remove(&name);
        }
    }

    fn named(
        &self,
        of: &str,
        once: String,
        digest: &[u8],
        made: impl Fn() -> Answer,
    ) -> Result<Answer, Refusal> {
        if once.is_empty() || once.len() > NAME_BYTES_MAX {
            let what = format!("Idempotency-Key has 1 to {NAME_BYTES_MAX} bytes");
            return Err(Refusal::new(Kind::Invalid, what));
        }
        let mut requests = self.once.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while let Some((at, _)) = requests.order.front() {
            let is_old = now.duration_since(*at) > REMEMBERED;
            if !is_old && requests.order.len() < NAMES_MAX {
                break;
            }
            if let Some((_, name)) = requests.order.pop_front() {
                requests.all.remove(&name);
            }
        }
        let name = (of.to_owned(), once);
        if let Some(earlier) = requests.all.get(&name) {
            return match earlier.digest == digest {
                true => Ok(earlier.answer.clone()),
                false => Err(another()),
            };
        }
        let answer = made();
        let request = Request {
            digest: digest.to_vec(),
            answer: answer.clone(),
        };
        requests.order.push_back((now, name.clone()));
        requests.all.insert(name, request);
        Ok(answer)
    }
}

fn digest(ask: &impl serde::Serialize) -> Result<Vec<u8>, Refusal> {
    let text = serde_json::to_vec(ask);
    let text = text.map_err(|error| Refusal::new(Kind::Fault, error.to_string()))?;
    Ok(Sha256::digest(text).to_vec())
}

fn another() -> Refusal {
    Refusal::new(Kind::Exists, "another request had this Idempotency-Key")
        .advise("take a new one for each request, and the same one to repeat it")
}
