//! Values fetched when a request needs them: once for all that wait, kept until shortly before they
//! expire, and not requested again at once after a failure.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use atoll_model::network::{
    CredentialName, Fetch, Ingredient, Network, RenewalRequest, TokenRequest,
};
use tokio::sync::{Mutex, MutexGuard, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client_secret::ClientSecret;
use super::login::Login;
use super::values::{FetchedValues, Values};
use super::{app, command, kubernetes, login, oauth};
use crate::Egress;
use crate::secret::Secret;

/// The longest time before its expiry at which a value is fetched anew: a request takes some time.
/// For a short-lived value it is a tenth of its lifetime.
const MARGIN_MAX: Duration = Duration::from_secs(60);
/// The pause after the first failure; each further one doubles it.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The age from which a value is fetched anew when its host rejects it: a program can make a host
/// reject it as often as it likes.
const DOUBTED_AFTER: Duration = Duration::from_secs(30);
/// The first such age of a login, whose issuer gives another refresh token each time; it doubles
/// with each further rejection.
const LOGIN_DOUBTED_AFTER: Duration = Duration::from_secs(600);
const LOGIN_DOUBTED_AFTER_MAX: Duration = Duration::from_secs(4 * 3600);
/// The most earlier values kept until the end; older ones are revoked when there is a further one.
const EARLIER_MAX: usize = 16;
/// The longest time for revoking everything at the end of a run. The recording side waits longer.
pub(crate) const TAKING_BACK: Duration = Duration::from_secs(5);

/// The reason why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchError {
    /// The reason for the program.
    pub(crate) why: String,
    /// The last line of its command's error output, for the record alone; empty if there is none.
    pub(super) said: String,
}

impl FetchError {
    /// Returns the reason for the record, outside the sandbox.
    pub(crate) fn recorded(&self) -> String {
        let Self { why, said } = self;
        match said.is_empty() {
            true => why.clone(),
            false => format!("{why}: {said}"),
        }
    }
}

impl From<String> for FetchError {
    fn from(why: String) -> Self {
        Self {
            why,
            said: String::new(),
        }
    }
}

/// The source of a value, with its state.
pub(crate) struct Source {
    by: Fetch,
    /// The network rules by which Atoll's own requests for it are judged.
    pub(super) network: Network,
    ingredients: std::sync::Mutex<Ingredients>,
    /// A login's value at the beginning.
    first: Option<Arc<Secret>>,
    pub(super) unwritten: std::sync::Mutex<Option<login::UnwrittenTokens>>,
    pub(super) client_secret: ClientSecret,
    /// Held from before a login's issuer is asked until its response is written.
    open: Mutex<()>,
    state: Arc<Mutex<State>>,
}

/// The secrets for obtaining a value.
pub(super) type Ingredients = BTreeMap<Ingredient, Arc<Secret>>;

#[derive(Default)]
struct State {
    token: Option<Token>,
    failed: Option<LastFailure>,
    /// The age from which its values are now fetched anew when their host rejects them.
    doubted_after: Option<Duration>,
    /// The earlier values that may still be valid, where they are revoked.
    earlier: Vec<Token>,
    /// The values before these, which are to be revoked now.
    oldest: Vec<Token>,
}

struct Token {
    values: Values,
    since: SystemTime,
    ends: Option<SystemTime>,
    /// Set once its host has rejected it.
    is_doubted: bool,
}

struct LastFailure {
    why: FetchError,
    until: Instant,
    pause: Duration,
}

impl Token {
    /// Returns whether it can be used although it should be fetched anew.
    fn holds(&self, now: SystemTime) -> bool {
        self.ends.is_none_or(|ends| now < ends)
    }

    /// Returns whether it is used without asking its source.
    fn is_fresh(&self, now: SystemTime) -> bool {
        let is_before = self.ends.is_none_or(|ends| {
            let life = ends.duration_since(self.since).unwrap_or_default();
            let margin = MARGIN_MAX.min(life / 10);
            now + margin < ends
        });
        // A clock that was put back says nothing.
        now >= self.since && is_before && !self.is_doubted
    }
}

impl State {
    /// Returns the result that is known without asking the source.
    fn known(&self, now: SystemTime) -> Option<Result<Values, FetchError>> {
        if let Some(token) = self.token.as_ref().filter(|token| token.is_fresh(now)) {
            return Some(Ok(token.values.clone()));
        }
        let failed = self.failed.as_ref()?;
        (Instant::now() < failed.until).then(|| self.otherwise(now, &failed.why))
    }

    /// Returns the value to use when no new one could be obtained: the last one, as long as it is
    /// valid.
    fn otherwise(&self, now: SystemTime, why: &FetchError) -> Result<Values, FetchError> {
        match self.token.as_ref().filter(|token| token.holds(now)) {
            Some(token) => Ok(token.values.clone()),
            None => Err(why.clone()),
        }
    }

    /// Keeps the result of asking the source, and the earlier value where that is revoked later.
    fn keep(
        &mut self,
        got: Result<Token, FetchError>,
        now: SystemTime,
    ) -> Result<Values, FetchError> {
        match got {
            Ok(token) => {
                self.failed = None;
                let is_same = |one: &Token| one.values.are(&token.values);
                self.earlier
                    .extend(self.token.take().filter(|one| !is_same(one)));
                self.earlier.retain(|one| one.holds(now));
                let many = self.earlier.len().saturating_sub(EARLIER_MAX);
                self.oldest.extend(self.earlier.drain(..many));
                Ok(self.token.insert(token).values.clone())
            }
            Err(why) => {
                let before = self.failed.as_ref().map(|failed| failed.pause * 2);
                let pause = before.map_or(PAUSE, |pause| pause.min(PAUSE_MAX));
                let answer = self.otherwise(now, &why);
                self.failed = Some(LastFailure {
                    why,
                    until: Instant::now() + pause,
                    pause,
                });
                answer
            }
        }
    }
}

impl Source {
    /// Builds a source in this network, with these secrets.
    pub(super) fn new(by: Fetch, network: &Network, ingredients: Ingredients) -> Self {
        Self {
            network: match by.endpoints()[..] {
                [] => Network::default(),
                ref endpoints => network.with_own(endpoints),
            },
            by,
            ingredients: std::sync::Mutex::new(ingredients),
            first: None,
            unwritten: std::sync::Mutex::default(),
            client_secret: ClientSecret::default(),
            open: Mutex::default(),
            state: Arc::default(),
        }
    }

    /// Sets a token that is there from the beginning, of unknown age.
    pub(super) fn with(self, secret: Arc<Secret>, ends_s: Option<u64>) -> Self {
        let text = std::str::from_utf8(secret.expose()).unwrap_or_default();
        let token = Token {
            ends: login::end_of(text, ends_s),
            since: SystemTime::UNIX_EPOCH,
            values: Arc::clone(&secret).into(),
            is_doubted: false,
        };
        let state = State {
            token: Some(token),
            ..State::default()
        };
        Self {
            first: Some(secret),
            state: Arc::new(Mutex::new(state)),
            ..self
        }
    }

    /// Returns the value at the beginning.
    pub(super) fn first(&self) -> Option<&Arc<Secret>> {
        self.first.as_ref()
    }

    /// Returns the credential by which a login is refreshed.
    pub(super) fn renewed_by(&self) -> Option<&CredentialName> {
        match &self.by {
            Fetch::Login { by, .. } => Some(by),
            Fetch::Command { .. } | Fetch::Token(_) => None,
        }
    }

    /// Returns the scope of a login, if its file states it.
    pub(crate) fn scope(&self) -> Option<&str> {
        match &self.by {
            Fetch::Login { scope, .. } => scope.as_deref(),
            Fetch::Command { .. } | Fetch::Token(_) => None,
        }
    }

    /// Begins a refresh that must not be broken off: an issuer that has given another token may no
    /// longer accept the one before it. None is begun when the run ends.
    pub(super) async fn begin(&self, egress: &Egress) -> Result<MutexGuard<'_, ()>, String> {
        let open = self.open.lock().await;
        match *egress.over.borrow() {
            true => Err("the run ends".to_owned()),
            false => Ok(open),
        }
    }

    /// Returns the refresh request to a login's issuer.
    pub(super) fn renewal(&self) -> Option<&RenewalRequest> {
        match &self.by {
            Fetch::Login { request, .. } => Some(request),
            Fetch::Command { .. } | Fetch::Token(_) => None,
        }
    }

    /// Ends the pause after a failure.
    pub(super) async fn forget_failure(&self) {
        self.state.lock().await.failed = None;
    }

    fn ingredients(&self) -> std::sync::MutexGuard<'_, Ingredients> {
        self.ingredients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a secret for obtaining the value, as it is by now.
    pub(super) fn ingredient(&self, which: Ingredient) -> Result<Arc<Secret>, String> {
        let ingredients = self.ingredients();
        let found = ingredients.get(&which).map(Arc::clone);
        found.ok_or_else(|| "what it is asked for by was not handed over".to_owned())
    }

    /// Returns those of the secrets that are sent to an issuer: its response can contain no other
    /// one.
    pub(super) fn sent_ingredients(&self) -> Vec<Arc<Secret>> {
        let ingredients = self.ingredients();
        let is_sent = |which: &Ingredient| *which != Ingredient::PrivateKey;
        let sent = ingredients.iter().filter(|(which, _)| is_sent(which));
        sent.map(|(_, secret)| Arc::clone(secret)).collect()
    }

    /// Replaces the refresh token, and returns the one before it.
    pub(super) fn renew(&self, token: Arc<Secret>) -> Option<Arc<Secret>> {
        self.ingredients().insert(Ingredient::RefreshToken, token)
    }

    /// Revokes a value at its issuer. A failure is recorded with its flow.
    async fn revoke(&self, egress: &Arc<Egress>, name: &CredentialName, one: &Token) {
        let (Fetch::Token(request), Some(token)) = (&self.by, one.values.whole()) else {
            return;
        };
        let _ = match &**request {
            TokenRequest::OAuth(request) => {
                oauth::revoke(egress, name, self, request, token, TAKING_BACK).await
            }
            TokenRequest::GithubApp(request) => {
                app::revoke(egress, name, self, request, token, TAKING_BACK).await
            }
            // Its issuer takes none back.
            TokenRequest::Kubernetes(_) => Ok(()),
        };
    }

    /// Notes that a host has rejected an injected value.
    pub(super) fn doubt(&self, secret: &Arc<Secret>, now: SystemTime) {
        // Where it is taken, a new one is being fetched.
        let Ok(mut state) = self.state.try_lock() else {
            return;
        };
        let state = &mut *state;
        if let Some(token) = &mut state.token {
            let age = now.duration_since(token.since).unwrap_or_default();
            let (first, most) = match &self.by {
                Fetch::Login { .. } => (LOGIN_DOUBTED_AFTER, LOGIN_DOUBTED_AFTER_MAX),
                Fetch::Command { .. } | Fetch::Token(_) => (DOUBTED_AFTER, DOUBTED_AFTER),
            };
            let after = state.doubted_after.unwrap_or(first);
            let is_it = token.values.has(secret);
            if is_it && age >= after && !token.is_doubted {
                token.is_doubted = true;
                state.doubted_after = Some((after * 2).min(most));
            }
        }
    }
}

/// Returns the value of a credential that is fetched: the one that is there, or a new one.
/// Concurrent callers wait for one fetch.
pub(crate) async fn value(egress: &Arc<Egress>, index: usize) -> Result<Values, FetchError> {
    let Some((name, source)) = egress.credentials.source(index) else {
        return Err("there is no such credential".to_owned().into());
    };
    let mut state = Arc::clone(&source.state).lock_owned().await;
    if let Some(known) = state.known(SystemTime::now()) {
        return known;
    }
    // A program that leaves does not end it: it would have it begun again and again.
    let (done, waits) = oneshot::channel();
    let (asking, asked) = (Arc::clone(egress), name.clone());
    egress.upstream.tasks.spawn(async move {
        let current = state.token.as_ref().and_then(|token| token.values.whole());
        let current = current.map(Arc::clone);
        let got = fetch(&asking, index, current).await;
        let got = got.map_err(|unfetched| FetchError {
            why: format!("credential {asked} cannot be fetched: {}", unfetched.why),
            ..unfetched
        });
        let kept = state.keep(got, SystemTime::now());
        let oldest = std::mem::take(&mut state.oldest);
        drop(state);
        let _ = done.send(kept);
        if let Some((name, source)) = asking.credentials.source(index)
            && source.by.is_taken_back()
        {
            for one in oldest {
                source.revoke(&asking, name, &one).await;
            }
        }
    });
    let over = || format!("credential {name} cannot be fetched: the run ends");
    waits.await.map_err(|_| over())?
}

/// Returns the remaining validity of the value that is there, or of a new one; `None` if it is
/// unknown.
pub(crate) async fn life(
    egress: &Arc<Egress>,
    index: usize,
) -> Result<Option<Duration>, FetchError> {
    value(egress, index).await?;
    let Some((_, source)) = egress.credentials.source(index) else {
        return Ok(None);
    };
    let state = source.state.lock().await;
    let ends = state.token.as_ref().and_then(|token| token.ends);
    Ok(ends.map(|ends| ends.duration_since(SystemTime::now()).unwrap_or_default()))
}

/// Fetches a new value. Boxed, since the fetch can be a request like the one that waits for it.
fn fetch(
    egress: &Arc<Egress>,
    index: usize,
    current: Option<Arc<Secret>>,
) -> Pin<Box<dyn Future<Output = Result<Token, FetchError>> + Send + '_>> {
    Box::pin(async move {
        let Some((name, source)) = egress.credentials.source(index) else {
            return Err("there is none".to_owned().into());
        };
        let got = ask(egress, index, name, source, current).await?;
        let (since, ends) = (SystemTime::now(), got.ends);
        if ends.is_some_and(|ends| ends <= since) {
            return Err("what it gives has expired".to_owned().into());
        }
        Ok(Token {
            values: egress.credentials.accept_all(index, got)?,
            since,
            ends,
            is_doubted: false,
        })
    })
}

async fn ask(
    egress: &Arc<Egress>,
    index: usize,
    name: &CredentialName,
    source: &Source,
    current: Option<Arc<Secret>>,
) -> Result<FetchedValues, FetchError> {
    match &source.by {
        Fetch::Login { request, by, .. } => {
            let login = Login {
                index,
                name,
                request,
                by,
            };
            let fresh = login::fetch(egress, login, source, current).await?;
            Ok(fresh.into())
        }
        Fetch::Command { patience_s } => {
            let patience = Duration::from_secs(*patience_s);
            command::fetch(egress, index, name, patience).await
        }
        Fetch::Token(request) => {
            let fresh = match &**request {
                TokenRequest::OAuth(request) => {
                    oauth::fetch(egress, index, name, source, request).await?
                }
                TokenRequest::GithubApp(request) => {
                    app::fetch(egress, name, source, request).await?
                }
                TokenRequest::Kubernetes(request) => {
                    kubernetes::fetch(egress, name, source, request).await?
                }
            };
            Ok(fresh.into())
        }
    }
}

/// Revokes everything that was fetched and can be revoked, in a short while. The outcome is
/// recorded flow by flow.
pub(crate) async fn revoke(egress: &Arc<Egress>) {
    let mut taking = JoinSet::new();
    for index in 0..egress.credentials.iter().len() {
        let source = egress.credentials.source(index);
        if source.is_some_and(|(_, source)| source.by.is_taken_back()) {
            let egress = Arc::clone(egress);
            taking.spawn(async move { revoke_of(&egress, index).await });
        }
    }
    // What is on its way then is told of as broken off.
    let _ = timeout(TAKING_BACK, async {
        while taking.join_next().await.is_some() {}
    })
    .await;
    taking.shutdown().await;
}

/// Waits for logins whose issuer has been asked until the response is written. None is begun any
/// more.
pub(crate) async fn settle(egress: &Arc<Egress>) {
    let all = async {
        for index in 0..egress.credentials.iter().len() {
            if let Some((_, source)) = egress.credentials.source(index) {
                drop(source.open.lock().await);
            }
        }
    };
    let _ = timeout(login::SETTLING, all).await;
}

async fn revoke_of(egress: &Arc<Egress>, index: usize) {
    let Some((name, source)) = egress.credentials.source(index) else {
        return;
    };
    // One that is being asked for is waited for: it would be good and nobody's.
    let mut state = source.state.lock().await;
    let now = SystemTime::now();
    let State { token, earlier, .. } = &mut *state;
    let all = token.take().into_iter().chain(std::mem::take(earlier));
    for one in all.filter(|one| one.holds(now)) {
        source.revoke(egress, name, &one).await;
    }
}

#[cfg(test)]
mod tests;
