//! Release ages of packages, where rules require one: the registry is asked by a request of Atoll's
//! own, which is judged and recorded as others are. It contains nothing of a program's, and no
//! connection that carried a program's requests is reused for it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use atoll_cedar::Follows;
use atoll_model::network::{HostPart, Project, ReleaseFile, Scheme, Target, Unaged};
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::header::{ACCEPT, CONTENT_ENCODING, HOST, HeaderValue, USER_AGENT};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::dates::{self, Dates, ReleaseDate};
use super::error::{ExchangeError, Refusal};
use super::{OutgoingRequest, SendPermission, flow, judged, send_on};
use crate::Egress;
use crate::destination::Destination;
use crate::inspect::Origin;
use crate::inspect::body::ResponseBody;
use crate::inspect::head::Head;
use crate::inspect::injection::Injection;
use crate::inspect::request_permit::RequestPermit;
use crate::policies::SendConditions;

/// The longest time for one response, including the wait for other requests.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest response, bytes: the documents of old npm packages have tens of MiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The most responses read at once: each is held whole.
const ASKING_MAX: usize = 4;
/// The most projects asked for in a run.
const PROJECTS_MAX: usize = 16 * 1024;
/// The most dates held at once; beyond it they are dropped and asked for again.
const DATES_MAX: usize = 1 << 20;
/// The time after which a registry is asked again for a file that it did not know.
const UNKNOWN_FOR: Duration = Duration::from_secs(60);
/// The time after which a registry that has not answered is asked again.
const FAILED_FOR: Duration = Duration::from_secs(5);
/// The reason for refusing a registry request that would need approval. It does not name the
/// policy, which is shown outside the sandbox only.
const ASKED: &str = "a person is to be asked about it, which is not done for requests of \
                     Atoll's own";
/// The user agent.
const WHO: &str = concat!("atoll/", env!("CARGO_PKG_VERSION"));

/// The registries' responses in this run.
#[derive(Debug)]
pub(crate) struct Releases {
    known: Mutex<HashMap<Project, Arc<tokio::sync::Mutex<Option<RegistryResponse>>>>>,
    asking: Semaphore,
    /// The approximate number of dates held.
    dates: AtomicUsize,
}

impl Default for Releases {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            asking: Semaphore::new(ASKING_MAX),
            dates: AtomicUsize::new(0),
        }
    }
}

/// A registry's response about a project.
#[derive(Debug)]
struct RegistryResponse {
    dates: Result<Dates, String>,
    at: Instant,
}

impl RegistryResponse {
    /// Returns the known date of a file; `None` when the registry must be asked again.
    fn of(&self, key: &str) -> Option<Result<Option<ReleaseDate>, String>> {
        let elapsed = self.at.elapsed();
        match &self.dates {
            Ok(dates) => match dates.get(key) {
                Some(released) => Some(Ok(Some(*released))),
                None => (elapsed < UNKNOWN_FOR).then_some(Ok(None)),
            },
            Err(why) => (elapsed < FAILED_FOR).then(|| Err(why.clone())),
        }
    }
}

/// Checks what rules require of releases: that lock files name the file, and that it is old enough.
pub(super) async fn check(
    egress: &Arc<Egress>,
    origin: &Arc<Origin>,
    outgoing: &OutgoingRequest,
    now: fn() -> SystemTime,
) -> Result<(), ExchangeError> {
    let judged = judged(origin, &outgoing.parts, &outgoing.head);
    if let Some(unlocked) = egress.network().unlocked(&judged, &egress.locks) {
        return Err(ExchangeError::Refused(Refusal {
            why: unlocked.why(),
            shown: unlocked.why_inside(),
            how_to_ask: Some(unlocked.how_to_ask()),
        }));
    }
    let Some(demand) = egress.network().demand(&judged) else {
        return Ok(());
    };
    let released = timeout(PATIENCE, released(egress, &demand.file)).await;
    let aged = match released {
        Ok(Ok(released)) => demand.judge(released, now()),
        Ok(Err(why)) => Err(Unaged::Unknown(why)),
        Err(_) => Err(Unaged::Unknown("its registry took too long".to_owned())),
    };
    aged.map_err(|unaged| {
        ExchangeError::Refused(Refusal {
            why: demand.why(&unaged),
            shown: demand.why_inside(&unaged),
            how_to_ask: Some(demand.how_to_ask()),
        })
    })
}

/// Returns a file's release date, as its registry states it.
async fn released(egress: &Arc<Egress>, file: &ReleaseFile) -> Result<SystemTime, String> {
    let key = file.key();
    let mut doubt = "its registry does not know it".to_owned();
    for project in file.projects() {
        match of_project(egress, project, &key).await {
            Ok(Some(ReleaseDate::At(time))) => return Ok(time),
            Ok(Some(ReleaseDate::Unread)) => {
                return Err("its registry tells no date that can be read".to_owned());
            }
            Ok(None) => {}
            Err(why) => doubt = why,
        }
    }
    Err(doubt)
}

async fn of_project(
    egress: &Arc<Egress>,
    project: Project,
    key: &str,
) -> Result<Option<ReleaseDate>, String> {
    let releases = &egress.releases;
    let entry = releases.entry(&project)?;
    // Who wants the same waits for the one answer.
    let mut told = entry.lock().await;
    if let Some(known) = told.as_ref().and_then(|told| told.of(key)) {
        return known;
    }
    let dates = {
        let closed = |_| "nobody is asked any more".to_owned();
        let _place = releases.asking.acquire().await.map_err(closed)?;
        ask(egress, &project).await
    };
    let count = dates.as_ref().map_or(0, Dates::len);
    let fresh = told.insert(RegistryResponse {
        dates,
        at: Instant::now(),
    });
    let found = fresh.of(key).unwrap_or(Ok(None));
    drop(told);
    releases.counted(count);
    found
}

impl Releases {
    fn entry(
        &self,
        project: &Project,
    ) -> Result<Arc<tokio::sync::Mutex<Option<RegistryResponse>>>, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = known.get(project) {
            return Ok(Arc::clone(entry));
        }
        if known.len() >= PROJECTS_MAX {
            return Err(format!(
                "more than {PROJECTS_MAX} packages were asked for in this run"
            ));
        }
        Ok(Arc::clone(known.entry(project.clone()).or_default()))
    }

    /// Forgets all dates once they are too many to hold.
    fn counted(&self, dates: usize) {
        let before = self.dates.fetch_add(dates, Ordering::Relaxed);
        if before + dates > DATES_MAX {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            self.dates.store(0, Ordering::Relaxed);
            // The keys stay: they count what was asked for.
            known.values_mut().for_each(|entry| *entry = Arc::default());
        }
    }
}

/// Asks a registry for all dates of a project. Boxed, because this request goes through the same
/// check; it never recurses in fact.
fn ask<'a>(
    egress: &'a Arc<Egress>,
    project: &'a Project,
) -> Pin<Box<dyn Future<Output = Result<Dates, String>> + Send + 'a>> {
    Box::pin(async move {
        let (host, path) = project.told_at();
        let at = |why: String| format!("asking {host}: {why}");
        let (asked, mut outgoing) = prepare_request(egress, host, &path).map_err(at)?;
        let sent = send_on(egress, &asked, &mut outgoing).await;
        let response = sent.map_err(|unanswered| at(unanswered.why()))?;
        let body = read_body(response).await.map_err(at)?;
        dates::read(project, &body).map_err(at)
    })
}

/// Builds a request of Atoll's own, if rules allow it.
fn prepare_request(
    egress: &Arc<Egress>,
    host: &str,
    path: &str,
) -> Result<(Arc<Origin>, OutgoingRequest), String> {
    let unwritable = || "it cannot be written".to_owned();
    let wanted = Destination {
        host: host.parse::<HostPart>().map_err(|_| unwritable())?,
        port: Scheme::Https.port(),
    };
    let asked = Origin::own(&wanted, Scheme::Https).ok_or_else(unwritable)?;
    let request = Request::get(path)
        .header(HOST, host)
        .header(ACCEPT, HeaderValue::from_static(dates::KINDS))
        .header(USER_AGENT, HeaderValue::from_static(WHO))
        .body(())
        .map_err(|_| unwritable())?;
    let (parts, ()): (Parts, ()) = request.into_parts();
    let head = Head {
        target: Target::parse(path).map_err(|_| unwritable())?,
        is_web_socket: false,
        confidence: None,
    };
    let mut flow = flow(&asked, &parts, Some(&head));
    let whole = judged(&asked, &parts, &head);
    let rule = match egress.network().request(&whole) {
        Ok(rule) => rule,
        Err(unreachable) => return Err(unreachable.why_inside()),
    };
    let now = egress.policies.now();
    flow.policies = now.version();
    let passed = now.request(&whole, Follows::Nothing);
    match passed.and_then(SendConditions::of_atoll) {
        Ok(None) => {}
        Ok(Some(_)) => return Err(ASKED.to_owned()),
        Err(forbidden) => return Err(forbidden.shown),
    }
    flow.rule = Some(format!("for the date of a release: {}", rule.told()));
    let permit = RequestPermit::own(egress)
        .ok_or_else(|| "too many requests are on their way".to_owned())?;
    let outgoing = OutgoingRequest {
        parts,
        body: None,
        head,
        injection: Injection::default(),
        flow,
        permit: Arc::new(permit),
        is_safe: true,
        is_2: true,
        leave: SendPermission::default(),
        issue: None,
    };
    Ok((Arc::new(asked), outgoing))
}

/// Reads the whole body of a successful response.
async fn read_body(response: Response<ResponseBody>) -> Result<Vec<u8>, String> {
    match response.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            return Err("it does not know the package".to_owned());
        }
        status if status.is_redirection() => {
            return Err(format!("it leads elsewhere ({})", status.as_u16()));
        }
        status => return Err(format!("it answers {}", status.as_u16())),
    }
    if response.headers().contains_key(CONTENT_ENCODING) {
        return Err("its answer is packed, which was not asked for".to_owned());
    }
    let mut body = response.into_body();
    let too_long = || format!("its answer has more than {ANSWER_BYTES_MAX} bytes");
    let told = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if told > ANSWER_BYTES_MAX {
        return Err(too_long());
    }
    let mut whole = Vec::with_capacity(told);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("its answer broke off: {error}"))?;
        if let Some(data) = frame.data_ref() {
            if whole.len() + data.len() > ANSWER_BYTES_MAX {
                return Err(too_long());
            }
            whole.extend_from_slice(data);
        }
    }
    Ok(whole)
}
