//! Values that are fetched when a request needs them: once for all that wait, kept until
//! shortly before they end, and not asked for again at once where that failed.

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

use super::login::Login;
use super::published::Heard;
use super::values::{Got, Values};
use super::{app, command, login, oauth};
use crate::Egress;
use crate::secret::Secret;

/// How long before its end a value is fetched anew: a request takes some time. Of a value
/// that lives shortly it is a tenth of its life.
const MARGIN_MAX: Duration = Duration::from_secs(60);
/// How long nothing is asked after the first failure; each further one doubles it.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How old a value is at least that is fetched anew since its host refuses it: a program can
/// have a host refuse it as often as it likes.
const DOUBTED_AFTER: Duration = Duration::from_secs(30);
/// The same of a login, whose issuer gives another refresh token each time: so long the first
/// time, and twice as long each further one.
const LOGIN_DOUBTED_AFTER: Duration = Duration::from_secs(600);
const LOGIN_DOUBTED_AFTER_MAX: Duration = Duration::from_secs(4 * 3600);
/// How many values before the last one are kept until the end; older ones are taken back when
/// there is a further one.
const EARLIER_MAX: usize = 16;
/// How long taking all back may take at the end of a run. Who records waits longer.
pub(crate) const TAKING_BACK: Duration = Duration::from_secs(5);

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfetched {
    /// As the program is told it.
    pub(crate) why: String,
    /// What its command has said at last, which is for outside alone; empty where it is
    /// nothing.
    pub(super) said: String,
}

impl Unfetched {
    /// As it is recorded, outside.
    pub(crate) fn recorded(&self) -> String {
        let Self { why, said } = self;
        match said.is_empty() {
            true => why.clone(),
            false => format!("{why}: {said}"),
        }
    }
}

impl From<String> for Unfetched {
    fn from(why: String) -> Self {
        Self {
            why,
            said: String::new(),
        }
    }
}

/// Where a value comes from, and what of it is known.
pub(crate) struct Source {
    by: Fetch,
    /// By what requests of Atoll's own for it are judged.
    pub(super) network: Network,
    ingredients: std::sync::Mutex<Ingredients>,
    /// What a login was from the beginning.
    first: Option<Arc<Secret>>,
    pub(super) unwritten: std::sync::Mutex<Option<login::Unwritten>>,
    pub(super) heard: Heard,
    /// Held from before a login's issuer is asked until what it gives is written.
    open: Mutex<()>,
    state: Arc<Mutex<State>>,
}

/// The secrets by which a value is asked for.
pub(super) type Ingredients = BTreeMap<Ingredient, Arc<Secret>>;

#[derive(Default)]
struct State {
    token: Option<Token>,
    failed: Option<Failed>,
    /// How old its values are at least now that are fetched anew since their host refuses them.
    doubted_after: Option<Duration>,
    /// Those before it that may still be good, where they are taken back.
    earlier: Vec<Token>,
    /// Those before these, which are to be taken back now.
    oldest: Vec<Token>,
}

struct Token {
    values: Values,
    since: SystemTime,
    ends: Option<SystemTime>,
    /// Its host has refused it.
    is_doubted: bool,
}

struct Failed {
    why: Unfetched,
    until: Instant,
    pause: Duration,
}

impl Token {
    /// Whether it can be used though it is to be fetched anew.
    fn holds(&self, now: SystemTime) -> bool {
        self.ends.is_none_or(|ends| now < ends)
    }

    /// Whether it is used without a question.
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
    /// What is known without a question.
    fn known(&self, now: SystemTime) -> Option<Result<Values, Unfetched>> {
        if let Some(token) = self.token.as_ref().filter(|token| token.is_fresh(now)) {
            return Some(Ok(token.values.clone()));
        }
        let failed = self.failed.as_ref()?;
        (Instant::now() < failed.until).then(|| self.otherwise(now, &failed.why))
    }

    /// What there is where a new one could not be had: the one before, as long as it holds.
    fn otherwise(&self, now: SystemTime, why: &Unfetched) -> Result<Values, Unfetched> {
        match self.token.as_ref().filter(|token| token.holds(now)) {
            Some(token) => Ok(token.values.clone()),
            None => Err(why.clone()),
        }
    }

    /// Keeps what came of a question, and what there was before where that is taken back.
    fn keep(
        &mut self,
        got: Result<Token, Unfetched>,
        now: SystemTime,
    ) -> Result<Values, Unfetched> {
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
                self.failed = Some(Failed {
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
    /// In this network, by these secrets.
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
            heard: Heard::default(),
            open: Mutex::default(),
            state: Arc::default(),
        }
    }

    /// The same with a token that is there from the beginning, nobody knows how old.
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

    /// What it was from the beginning.
    pub(super) fn first(&self) -> Option<&Arc<Secret>> {
        self.first.as_ref()
    }

    /// The credential by which a login is renewed.
    pub(super) fn renewed_by(&self) -> Option<&CredentialName> {
        match &self.by {
            Fetch::Login { by, .. } => Some(by),
            Fetch::Command { .. } | Fetch::Token(_) => None,
        }
    }

    /// What a login is good for, where its file says that.
    pub(crate) fn scope(&self) -> Option<&str> {
        match &self.by {
            Fetch::Login { scope, .. } => scope.as_deref(),
            Fetch::Command { .. } | Fetch::Token(_) => None,
        }
    }

    /// Begins what may not be broken off: an issuer that has given another token may not know
    /// the one before it any more. None is begun when the run ends.
    pub(super) async fn begin(&self, egress: &Egress) -> Result<MutexGuard<'_, ()>, String> {
        let open = self.open.lock().await;
        match *egress.over.borrow() {
            true => Err("the run ends".to_owned()),
            false => Ok(open),
        }
    }

    /// What its issuer is asked for a login.
    pub(super) fn renewal(&self) -> Option<&RenewalRequest> {
        match &self.by {
            Fetch::Login { request, .. } => Some(request),
            Fetch::Command { .. } | Fetch::Token(_) => None,
        }
    }

    /// Has it asked for at once, though that has just failed.
    pub(super) async fn forget_failure(&self) {
        self.state.lock().await.failed = None;
    }

    fn ingredients(&self) -> std::sync::MutexGuard<'_, Ingredients> {
        self.ingredients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A secret by which it is asked for, as it is by now.
    pub(super) fn ingredient(&self, which: Ingredient) -> Result<Arc<Secret>, String> {
        let ingredients = self.ingredients();
        let found = ingredients.get(&which).map(Arc::clone);
        found.ok_or_else(|| "what it is asked for by was not handed over".to_owned())
    }

    /// Those of them that go to somebody: no answer can have another one in it.
    pub(super) fn sent_ingredients(&self) -> Vec<Arc<Secret>> {
        let ingredients = self.ingredients();
        let is_sent = |which: &Ingredient| *which != Ingredient::PrivateKey;
        let sent = ingredients.iter().filter(|(which, _)| is_sent(which));
        sent.map(|(_, secret)| Arc::clone(secret)).collect()
    }

    /// Takes up another refresh token. The one before it.
    pub(super) fn renew(&self, token: Arc<Secret>) -> Option<Arc<Secret>> {
        self.ingredients().insert(Ingredient::RefreshToken, token)
    }

    /// Tells its issuer that a value is not needed any more. Why that cannot be is told with
    /// its flow.
    async fn take_back(&self, egress: &Arc<Egress>, name: &CredentialName, one: &Token) {
        let (Fetch::Token(request), Some(token)) = (&self.by, one.values.whole()) else {
            return;
        };
        let _ = match &**request {
            TokenRequest::OAuth(request) => {
                let what = (request, &**token);
                oauth::take_back(egress, name, self, what, TAKING_BACK).await
            }
            TokenRequest::GithubApp(request) => {
                let what = (request, &**token);
                app::take_back(egress, name, self, what, TAKING_BACK).await
            }
        };
    }

    /// Hears that a host has refused a value that was put in.
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

/// The value of a credential that is fetched: the one that is there, or a new one. Who wants
/// it at the same time waits for the one question.
pub(crate) async fn value(egress: &Arc<Egress>, index: usize) -> Result<Values, Unfetched> {
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
        let got = got.map_err(|unfetched| Unfetched {
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
                source.take_back(&asking, name, &one).await;
            }
        }
    });
    let over = || format!("credential {name} cannot be fetched: the run ends");
    waits.await.map_err(|_| over())?
}

/// How long the value still holds that is there, or a new one; nothing where nobody knows.
pub(crate) async fn life(
    egress: &Arc<Egress>,
    index: usize,
) -> Result<Option<Duration>, Unfetched> {
    value(egress, index).await?;
    let Some((_, source)) = egress.credentials.source(index) else {
        return Ok(None);
    };
    let state = source.state.lock().await;
    let ends = state.token.as_ref().and_then(|token| token.ends);
    Ok(ends.map(|ends| ends.duration_since(SystemTime::now()).unwrap_or_default()))
}

/// Gets a new one. Boxed, since it can be a request like the one that waits for it.
fn fetch(
    egress: &Arc<Egress>,
    index: usize,
    current: Option<Arc<Secret>>,
) -> Pin<Box<dyn Future<Output = Result<Token, Unfetched>> + Send + '_>> {
    Box::pin(async move {
        let Some((name, source)) = egress.credentials.source(index) else {
            return Err("there is none".to_owned().into());
        };
        let got = ask(egress, (index, name), source, current).await?;
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
    (index, name): (usize, &CredentialName),
    source: &Source,
    current: Option<Arc<Secret>>,
) -> Result<Got, Unfetched> {
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
            command::fetch(egress, (index, name), patience).await
        }
        Fetch::Token(request) => {
            let fresh = match &**request {
                TokenRequest::OAuth(request) => {
                    oauth::fetch(egress, (index, name), source, request).await?
                }
                TokenRequest::GithubApp(request) => {
                    app::fetch(egress, name, source, request).await?
                }
            };
            Ok(fresh.into())
        }
    }
}

/// Has everything taken back that was fetched and can be, in a short while. What it came to
/// is told flow by flow.
pub(crate) async fn take_back(egress: &Arc<Egress>) {
    let mut taking = JoinSet::new();
    for index in 0..egress.credentials.iter().len() {
        let source = egress.credentials.source(index);
        if source.is_some_and(|(_, source)| source.by.is_taken_back()) {
            let egress = Arc::clone(egress);
            taking.spawn(async move { take_back_of(&egress, index).await });
        }
    }
    // What is on its way then is told of as broken off.
    let _ = timeout(TAKING_BACK, async {
        while taking.join_next().await.is_some() {}
    })
    .await;
    taking.shutdown().await;
}

/// Waits for logins whose issuer has been asked until what it gave is written. None is begun
/// any more.
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

async fn take_back_of(egress: &Arc<Egress>, index: usize) {
    let Some((name, source)) = egress.credentials.source(index) else {
        return;
    };
    // One that is being asked for is waited for: it would be good and nobody's.
    let mut state = source.state.lock().await;
    let now = SystemTime::now();
    let State { token, earlier, .. } = &mut *state;
    let all = token.take().into_iter().chain(std::mem::take(earlier));
    for one in all.filter(|one| one.holds(now)) {
        source.take_back(egress, name, &one).await;
    }
}

#[cfg(test)]
mod tests;
