//! The keys of an issuer: where they come from, and for how long they are good.

use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_engine::printable::quoted;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use ureq::{Agent, Proxy};

use crate::configuration::Issuer;
use crate::configuration::issuer::is_safe;
use crate::tls;

/// The time for which keys are used without a look at their source.
const FRESH: Duration = Duration::from_secs(60 * 60);
/// The time for which they are used while the source gives none.
const USABLE: Duration = Duration::from_secs(24 * 60 * 60);
/// The time between two looks at the source.
const PAUSE: Duration = Duration::from_secs(10);
/// The longest time that an issuer is asked for.
const ASKED_FOR: Duration = Duration::from_secs(10);
/// The longest answer of an issuer, and the largest file, bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// The most requests that wait for an issuer; each has a place that others need.
pub(super) const WAITERS_MAX: usize = 8;
/// The most keys of an issuer.
const KEYS_MAX: usize = 100;

/// The source of a set of keys (RFC 7517, 5); it may take a while. Its error says why there is none.
pub(super) type Source = Arc<dyn Fn() -> Result<Vec<u8>, String> + Send + Sync>;

/// The keys of one issuer.
pub(super) struct Keys {
    url: String,
    source: Source,
    state: Mutex<State>,
    /// Held by the one that looks at the source.
    looking: tokio::sync::Mutex<()>,
    /// The places of those that wait for that look.
    waiters: Semaphore,
}

#[derive(Clone, Default)]
struct State {
    keys: Vec<Arc<Key>>,
    /// The time at which they came from the source.
    fetched: Option<Instant>,
    /// The last look at the source.
    tried: Option<Instant>,
    /// The reason why that gave none.
    failure: Option<String>,
}

/// A key that checks signatures.
pub(super) struct Key {
    id: Option<String>,
    /// The algorithms that it is for.
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// The reason why a key is not found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    /// The issuer has no such key.
    Unknown,
    /// Nobody knows: the source gives none, for this reason.
    Unavailable(String),
}

impl Keys {
    /// Prepares the keys of an issuer; the source is looked at once one is needed.
    pub(super) fn of(issuer: &Issuer) -> Self {
        let of = issuer.clone();
        let source: Source = match issuer.keys.clone() {
            Some(_) => Arc::new(move || read_file(&of)),
            None => Arc::new(move || ask(&of)),
        };
        Self::from_source(&issuer.url, source)
    }

    pub(super) fn from_source(url: &str, source: Source) -> Self {
        Self {
            url: url.to_owned(),
            source,
            state: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
            waiters: Semaphore::new(WAITERS_MAX),
        }
    }

    /// Finds the keys that may have made a signature: those of this id, or all without one.
    pub(super) async fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
        now: Instant,
    ) -> Result<Vec<Arc<Key>>, NoKey> {
        let state = self.state().clone();
        let found = state.find(id, algorithm);
        if !found.is_empty() && state.is_within(FRESH, now) {
            return Ok(found);
        }
        let mut _waiter = None;
        let _looking = match !found.is_empty() && state.is_within(USABLE, now) {
            // What there is will do: no wait for somebody else's look.
            true => match self.looking.try_lock() {
                Ok(looking) => looking,
                Err(_) => return Ok(found),
            },
            false => {
                let busy = |_| NoKey::Unavailable("many wait for its answer".to_owned());
                _waiter = Some(self.waiters.try_acquire().map_err(busy)?);
                self.looking.lock().await
            }
        };
        self.look(now).await;
        let state = self.state().clone();
        let found = state.find(id, algorithm);
        match (state.is_within(USABLE, now), state.failure) {
            (true, _) if !found.is_empty() => Ok(found),
            (true, None) => Err(NoKey::Unknown),
            (_, failure) => Err(NoKey::Unavailable(failure.unwrap_or_default())),
        }
    }

    /// Looks at the source, unless that was done just now.
    async fn look(&self, now: Instant) {
        let tried = self.state().tried;
        if tried.is_some_and(|at| now.saturating_duration_since(at) < PAUSE) {
            return;
        }
        self.state().tried = Some(now);
        let source = Arc::clone(&self.source);
        let keys = spawn_blocking(move || source().and_then(|text| parsed(&text)));
        let keys = keys.await.map_err(|error| error.to_string()).flatten();
        let mut state = self.state();
        match keys {
            Ok(keys) => {
                state.keys = keys;
                state.fetched = Some(now);
                state.failure = None;
            }
            Err(why) => {
                eprintln!("atoll serve: no keys of {}: {why}", self.url);
                state.failure = Some(why);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<Arc<Key>> {
        let fits = |key: &&Arc<Key>| {
            key.algorithms.contains(&algorithm) && (id.is_none() || key.id.as_deref() == id)
        };
        self.keys.iter().filter(fits).cloned().collect()
    }

    /// Returns whether the keys came within this time.
    fn is_within(&self, time: Duration, now: Instant) -> bool {
        self.fetched
            .is_some_and(|at| now.saturating_duration_since(at) < time)
    }
}

impl Key {
    /// Returns whether it has made this signature of a message.
    pub(super) fn checks(&self, signature: &str, message: &str, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm)
            && crypto::verify(signature, message.as_bytes(), &self.key, algorithm).unwrap_or(false)
    }

    /// Reads a key of a set; `None` for one that checks no signature, or not as is done here.
    fn parse(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let is_for_signatures = value.get("use").is_none_or(|one| one == "sig")
            && value.get("key_ops").is_none_or(|all| {
                let mut all = all.as_array().into_iter().flatten();
                all.any(|one| one == "verify")
            });
        if !is_for_signatures {
            return None;
        }
        let number = |name: &str| {
            let bytes = BASE64_URL_SAFE_NO_PAD.decode(text(name)?).ok()?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            Some(bytes.get(zeros..)?.to_vec())
        };
        let on_curve = || DecodingKey::from_ec_components(text("x")?, text("y")?).ok();
        let (key, all) = match (text("kty")?, text("crv")) {
            ("RSA", _) => (
                DecodingKey::from_rsa_raw_components(&number("n")?, &number("e")?),
                RSA.as_slice(),
            ),
            ("EC", Some("P-256")) => (on_curve()?, [Algorithm::ES256].as_slice()),
            ("EC", Some("P-384")) => (on_curve()?, [Algorithm::ES384].as_slice()),
            ("OKP", Some("Ed25519")) => (
                DecodingKey::from_ed_components(text("x")?).ok()?,
                [Algorithm::EdDSA].as_slice(),
            ),
            _ => return None,
        };
        let own = match value.get("alg") {
            None => None,
            Some(name) => Some(algorithm(name.as_str()?)?),
        };
        let is_own = |one: &Algorithm| own.is_none_or(|own| own == *one);
        let algorithms: Vec<Algorithm> = all.iter().copied().filter(is_own).collect();
        (!algorithms.is_empty()).then(|| Self {
            id: text("kid").map(str::to_owned),
            algorithms,
            key,
        })
    }
}

/// The algorithms of RSA keys.
const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// Returns the algorithm of this name: one with a public key, or none.
pub(super) fn algorithm(name: &str) -> Option<Algorithm> {
    Some(match name {
        "RS256" => Algorithm::RS256,
        "RS384" => Algorithm::RS384,
        "RS512" => Algorithm::RS512,
        "PS256" => Algorithm::PS256,
        "PS384" => Algorithm::PS384,
        "PS512" => Algorithm::PS512,
        "ES256" => Algorithm::ES256,
        "ES384" => Algorithm::ES384,
        "EdDSA" => Algorithm::EdDSA,
        _ => return None,
    })
}

/// Reads a set of keys. Those that are for something else are left out.
fn parsed(text: &[u8]) -> Result<Vec<Arc<Key>>, String> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }
    let set: Set = serde_json::from_slice(text).map_err(|_| "that is no set of keys (JWKS)")?;
    if set.keys.len() > KEYS_MAX {
        return Err(format!("more than {KEYS_MAX} keys are too many"));
    }
    let keys: Vec<_> = set.keys.iter().filter_map(Key::parse).collect();
    match keys.is_empty() {
        true => Err("none of its keys checks signatures".to_owned()),
        false => Ok(keys.into_iter().map(Arc::new).collect()),
    }
}

/// Checks the file of an issuer's keys, if it has one.
pub(super) fn check_file(issuer: &Issuer) -> Result<(), String> {
    match &issuer.keys {
        None => Ok(()),
        Some(_) => read_file(issuer).and_then(|text| parsed(&text)).map(drop),
    }
}

fn read_file(issuer: &Issuer) -> Result<Vec<u8>, String> {
    let path = issuer.keys.as_deref().unwrap_or("".as_ref());
    // The path is the server's own business: its messages go to callers too.
    let cannot = |error| format!("its file of keys cannot be read: {error}");
    let file = File::open(path).map_err(cannot)?;
    let mut text = Vec::new();
    file.take(ANSWER_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(cannot)?;
    match text.len() as u64 > ANSWER_BYTES_MAX {
        true => Err(format!(
            "its file of keys has more than {ANSWER_BYTES_MAX} bytes"
        )),
        false => Ok(text),
    }
}

/// Asks an issuer for its keys (OpenID Connect Discovery 1.0, 4).
fn ask(issuer: &Issuer) -> Result<Vec<u8>, String> {
    #[derive(Deserialize)]
    struct Discovery {
        issuer: String,
        jwks_uri: String,
    }
    let is_clear = issuer.is_in_the_clear();
    let settings = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .https_only(!is_clear);
    let settings = match is_clear {
        // The loopback is nobody else's.
        true => settings.proxy(None),
        false => settings.proxy(Proxy::try_from_env()),
    };
    let agent: Agent = settings.tls_config(tls::of_clients()).build().into();
    let until = Instant::now() + ASKED_FOR;
    let base = issuer.url.trim_end_matches('/');
    let text = get(
        &agent,
        &format!("{base}/.well-known/openid-configuration"),
        until,
    )?;
    let discovery: Discovery =
        serde_json::from_slice(&text).map_err(|_| "it does not describe itself (OpenID)")?;
    if discovery.issuer != issuer.url {
        let named = quoted(discovery.issuer.as_bytes());
        return Err(format!("it calls itself {named}"));
    }
    if !is_safe(&discovery.jwks_uri, is_clear) {
        let named = quoted(discovery.jwks_uri.as_bytes());
        return Err(format!(
            "its keys are at {named}, which anybody could change"
        ));
    }
    get(&agent, &discovery.jwks_uri, until)
}

fn get(agent: &Agent, url: &str, until: Instant) -> Result<Vec<u8>, String> {
    let shown = quoted(url.as_bytes());
    let left = until.saturating_duration_since(Instant::now());
    let request = agent.get(url).header("accept", "application/json");
    let request = request.config().timeout_global(Some(left)).build();
    let cannot = |error: ureq::Error| format!("{shown} cannot be asked: {error}");
    let answer = request.call().map_err(cannot)?;
    if answer.status() != 200 {
        return Err(format!("{shown} answers {}", answer.status().as_u16()));
    }
    let mut body = answer.into_body();
    let body = body.with_config().limit(ANSWER_BYTES_MAX);
    body.read_to_vec().map_err(cannot)
}
