//! Callers and their rights: the one place where credentials are checked.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use atoll_store::{ISSUER_MARK, KeyRecord, NewKey, Role, Scope, Scopes, ServedError};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use super::answers::Answer;
use super::answers::Answered;
use super::answers::fault;
use super::caller::Caller;
use super::issuers::Issuers;
use super::lifecycle::Lifecycle;
use super::list::List;
use super::living::Living;
use super::rights::{check_scopes, is_of_control, may, scopes_in, wanted_scopes};
use super::server::Server;
use super::tokens::is_equal;
use super::tokens::opens_services;
use crate::protocol::{
    Credential, FileAsk, InAsk, KeyFacts, KeysAsk, Kind, LINK, LINK_LASTS_S_MAX, LifeAsk, Link,
    LinkPort, MadeKey, MakeKey, Refusal, is_service,
};

/// The most tokens that are compared in a second for signatures that name no sandbox.
const COMPARED_A_SECOND_MAX: f64 = 200_000.0;

/// The comparisons that are left at the moment, of the sandboxes of each tenant.
#[derive(Debug, Default)]
pub(super) struct Scans {
    left: BTreeMap<String, (f64, Instant)>,
}

impl Scans {
    /// Returns the sandboxes that may be compared now. All tenants have as many comparisons, so
    /// that those with many sandboxes use up their own first.
    fn take(&mut self, all: Vec<Arc<Living>>, now: Instant) -> Vec<Arc<Living>> {
        let mut costs = BTreeMap::<String, f64>::new();
        for one in &all {
            *costs.entry(one.spec.tenant.clone()).or_default() += 1.0;
        }
        let most = COMPARED_A_SECOND_MAX / costs.len().max(1) as f64;
        self.left.retain(|tenant, _| costs.contains_key(tenant));
        costs.retain(|tenant, cost| {
            let (left, at) = self.left.entry(tenant.clone()).or_insert((most, now));
            let gained = now.duration_since(*at).as_secs_f64() * most;
            (*left, *at) = ((*left + gained).min(most), now);
            let is_left = *left > 0.0;
            if is_left {
                *left -= *cost;
            }
            is_left
        });
        let may = |one: &Arc<Living>| costs.contains_key(&one.spec.tenant);
        all.into_iter().filter(may).collect()
    }
}

/// The callers of a server: found by what they show, and held to what they may.
pub(super) struct Callers {
    pub(super) server: Arc<Server>,
    pub(super) list: Arc<List>,
    pub(super) issuers: Issuers,
    pub(super) scans: Mutex<Scans>,
}

impl Callers {
    pub(super) fn new(server: Arc<Server>, list: Arc<List>) -> Arc<Self> {
        Arc::new(Self {
            issuers: Issuers::new(&server.configuration.issuers),
            server,
            list,
            scans: Mutex::default(),
        })
    }

    /// Finds who calls by their key or token, if that is good for one of these scopes.
    pub(super) async fn caller(
        &self,
        credential: &Credential,
        needs: &[Scope],
    ) -> Result<Caller, Refusal> {
        let caller = match credential {
            Credential::Key(token) if self.issuers.takes(token) => {
                self.issuers.caller(token).await?
            }
            _ => self.caller_of_key(credential)?,
        };
        check_scopes(&caller.scopes, needs)?;
        Ok(caller)
    }

    fn caller_of_key(&self, credential: &Credential) -> Result<Caller, Refusal> {
        let Credential::Key(key) = credential else {
            return Err(
                Refusal::new(Kind::Unauthenticated, "the API key is missing")
                    .advise("send it as X-API-Key; E2B_API_KEY sets it for the SDKs"),
            );
        };
        let found = self
            .server
            .store
            .key(key, SystemTime::now())
            .map_err(|error| fault(&error))?;
        let record = found.ok_or_else(|| {
            Refusal::new(
                Kind::Unauthenticated,
                "the API key is not valid, or no longer",
            )
            .advise("atoll serve keys create makes one, on the server's machine")
        })?;
        Ok(Caller {
            tenant: record.tenant,
            name: record.name,
            role: record.role,
            scopes: record.scopes,
            trace: None,
            once: None,
        })
    }

    /// Finds the sandbox of a request, if the caller may ask for that, and the caller, if a key or
    /// token tells who that is. One of another tenant is like one that is not there.
    pub(super) async fn admitted(
        &self,
        credential: &Credential,
        sandbox: Option<&str>,
        ask: &InAsk,
    ) -> Result<(Arc<Living>, Option<Caller>), Refusal> {
        // One that is ending is gone, but for whoever ends it too.
        let is_there = |one: &Arc<Living>| {
            matches!(ask, InAsk::Life(LifeAsk::Kill(_))) || one.life.is(Lifecycle::is_running)
        };
        let id = match (credential, sandbox) {
            (Credential::Signature { .. }, None) => {
                return Ok((self.signed(credential, ask)?, None));
            }
            (_, None) => return Err(Refusal::new(Kind::Invalid, "no sandbox is named")),
            (_, Some(id)) => id,
        };
        // Before the sandbox is looked for: what a scope refuses says nothing about what is there.
        let caller = match credential {
            Credential::Key(_) => Some(self.caller(credential, scopes_in(ask)).await?),
            _ => None,
        };
        let living = self.list.living(id).filter(is_there);
        let admits = match (credential, &living) {
            (Credential::Key(_), living) => caller.as_ref().is_some_and(|caller| {
                let is_own = |one: &Arc<Living>| one.spec.tenant == caller.tenant;
                living.as_ref().is_some_and(is_own) && may(caller.role, ask)
            }),
            (Credential::Nothing | Credential::Token(_) | Credential::Link(..), Some(living))
                if let InAsk::OpenPort(ask) = ask =>
            {
                living.check_port(ask.port, credential)?;
                true
            }
            (Credential::Link(..), Some(_)) => return Err(bad_link()),
            (Credential::Nothing, _) => matches!(ask, InAsk::Alive(_)),
            (Credential::Token(token), Some(living)) => {
                if !living.is_token(token) {
                    return Err(bad_token());
                }
                !is_of_control(ask)
            }
            (signature @ Credential::Signature { .. }, Some(living)) => {
                check(signature, living, ask)?;
                true
            }
            (Credential::Token(_) | Credential::Signature { .. } | Credential::Link(..), None) => {
                false
            }
        };
        match living {
            Some(living) if admits => Ok((living, caller)),
            Some(_) if matches!(credential, Credential::Nothing) => Err(bad_token()),
            _ => Err(self.no_sandbox(id, caller.as_ref())),
        }
    }

    /// Returns the refusal for a sandbox that is not there; to its tenant also why it has ended.
    fn no_sandbox(&self, id: &str, caller: Option<&Caller>) -> Refusal {
        let how = caller.and_then(|caller| self.list.end_of(id, &caller.tenant));
        Refusal::new(
            Kind::NoSandbox,
            match how {
                Some(how) => format!("sandbox {id} {how}"),
                None => format!("there is no sandbox {id}"),
            },
        )
    }

    /// Finds the sandbox whose token a signature was made with. There is nothing in a signature to
    /// find it by, so each token is tried, and only so many in a second.
    fn signed(&self, credential: &Credential, ask: &InAsk) -> Result<Arc<Living>, Refusal> {
        let all = self.list.all_living();
        let count = all.len();
        let mut scans = self.scans.lock().unwrap_or_else(PoisonError::into_inner);
        let compared = scans.take(all, Instant::now());
        drop(scans);
        let mut why = (compared.len() < count).then(|| Refusal {
            retry_after_s: Some(1),
            ..Refusal::new(Kind::Quota, "too many signed requests name no sandbox")
                .advise("send E2b-Sandbox-Id with them, or try again later")
        });
        for living in compared {
            match check(credential, &living, ask) {
                Ok(()) => return Ok(living),
                Err(refusal) if refusal.what.contains("expired") => why = Some(refusal),
                Err(_) => {}
            }
        }
        Err(why.unwrap_or_else(bad_signature))
    }

    /// Carries out a request about keys: an administrator's alone.
    pub(super) fn keys(&self, caller: &Caller, ask: KeysAsk) -> Result<Answered, Refusal> {
        if caller.role != Role::Administrator {
            let what = format!(
                "keys are for administrators, and this caller is {}",
                caller.role.name()
            );
            return Err(Refusal::new(Kind::Forbidden, what));
        }
        match ask {
            KeysAsk::ListKeys(ask) => {
                let keys = self.server.store.keys().map_err(|error| fault(&error))?;
                let own = keys.into_iter().filter(|key| key.tenant == caller.tenant);
                ask.answer(own.map(facts).collect())
            }
            KeysAsk::MakeKey(ask) => ask.answer(make_key(self, caller, &ask)?),
            KeysAsk::RevokeKey(ask) => {
                let keys = self.server.store.keys().map_err(|error| fault(&error))?;
                let mut own = keys.iter().filter(|key| key.tenant == caller.tenant);
                let revoked = match own.any(|key| key.id == ask.id) {
                    true => self.server.store.revoke_key(&ask.id),
                    false => Err(ServedError::NoKey(ask.id.clone())),
                };
                let none = |error: ServedError| Refusal::new(Kind::NotFound, error.to_string());
                ask.answer(revoked.map_err(none)?)
            }
        }
    }
}

fn make_key(callers: &Callers, caller: &Caller, ask: &MakeKey) -> Result<MadeKey, Refusal> {
    let role = Role::parse(&ask.role).ok_or_else(|| {
        let names: Vec<_> = Role::ALL.iter().map(|role| role.name()).collect();
        let what = format!(
            "there is no role {:?}; the roles are {}",
            ask.role,
            names.join(", ")
        );
        Refusal::new(Kind::Invalid, what)
    })?;
    let tenant = ask.tenant.as_ref().unwrap_or(&caller.tenant);
    check_key(caller, tenant, &ask.name, ask.expires_s)?;
    let scopes = ask
        .scopes
        .as_deref()
        .map_or(Ok(Scopes::All), wanted_scopes)?;
    let made = callers.server.store.make_key(&NewKey {
        tenant,
        name: &ask.name,
        role,
        scopes,
        expires_s: ask.expires_s,
    });
    let (key, record) = made.map_err(|error| fault(&error))?;
    let facts = facts(record);
    Ok(MadeKey { key, facts })
}

/// Checks a key that is to be made by a caller.
fn check_key(
    caller: &Caller,
    tenant: &str,
    name: &str,
    expires_s: Option<u64>,
) -> Result<(), Refusal> {
    if tenant != caller.tenant {
        let what = "a key is made for one's own tenant";
        return Err(Refusal::new(Kind::Forbidden, what)
            .advise("atoll serve keys create --tenant, on the server's machine"));
    }
    if name.is_empty() || name.contains(ISSUER_MARK) {
        let what = format!("a key has a name, without {ISSUER_MARK:?} in it");
        return Err(Refusal::new(Kind::Invalid, what)
            .advise("that is in the names of callers with an issuer's token"));
    }
    match expires_s.is_some_and(|at| at <= now_s()) {
        true => Err(Refusal::new(
            Kind::Invalid,
            "expires_s is past: it is a time, in seconds since 1970",
        )),
        false => Ok(()),
    }
}

fn facts(record: KeyRecord) -> KeyFacts {
    KeyFacts {
        id: record.id,
        tenant: record.tenant,
        name: record.name,
        role: record.role.name().to_owned(),
        scopes: record
            .scopes
            .names()
            .map(|names| names.into_iter().map(str::to_owned).collect()),
        created_s: record.created_s,
        expires_s: record.expires_s,
        revoked_s: record.revoked_s,
    }
}

/// Checks a signature for this sandbox and this request.
fn check(credential: &Credential, living: &Living, ask: &InAsk) -> Result<(), Refusal> {
    let Credential::Signature {
        signature,
        user,
        path,
        expires_s,
    } = credential
    else {
        return Err(bad_signature());
    };
    let operation = match ask {
        InAsk::File(FileAsk::Read(asked)) if asked.path == *path => "read",
        // A name of a part can say the path instead, and is in the signed part then.
        InAsk::File(FileAsk::Write(asked)) if asked.path == *path || path.is_empty() => "write",
        _ => return Err(bad_signature()),
    };
    // The parts are joined by colons, so a user with one could be read in two ways.
    if user.contains(':') {
        return Err(bad_signature());
    }
    let mut text = format!("{path}:{operation}:{user}:{}", living.spec.token);
    if let Some(expires_s) = expires_s {
        text = format!("{text}:{expires_s}");
    }
    let digest = Sha256::digest(text.as_bytes());
    let expected = format!("v1_{}", BASE64_STANDARD_NO_PAD.encode(digest));
    // Of digests, so that the time taken tells nothing about the text.
    if Sha256::digest(signature.as_bytes()) != Sha256::digest(expected.as_bytes()) {
        return Err(bad_signature());
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    match expires_s {
        Some(expires_s) if *expires_s <= now.as_secs() => Err(Refusal::new(
            Kind::Unauthenticated,
            "signature is already expired",
        )),
        Some(_) | None => Ok(()),
    }
}

fn bad_signature() -> Refusal {
    Refusal::new(
        Kind::Unauthenticated,
        "the signature is not valid for this file",
    )
}

impl Callers {
    /// Makes a link to a port, for whoever gets it.
    pub(super) fn link(&self, living: &Living, ask: &LinkPort) -> Result<Link, Refusal> {
        let LinkPort { port, lasts_s } = *ask;
        if port == 0 || !(1..=LINK_LASTS_S_MAX).contains(&lasts_s) {
            let what =
                format!("a link is to a port from 1 on, for 1 to {LINK_LASTS_S_MAX} seconds");
            return Err(Refusal::new(Kind::Invalid, what));
        }
        if is_service(port) {
            let what = format!("port {port} runs code for whoever has a token, and has no links");
            return Err(Refusal::new(Kind::Invalid, what)
                .advise("send X-Access-Token, as the answer to create or connect has it"));
        }
        let until_s = now_s() + lasts_s;
        let signature = living.link_signature(port, until_s);
        let url = self.server.port_url(living, port);
        let url = format!("{url}?{LINK}={until_s}.{signature}");
        Ok(Link { url })
    }
}

impl Living {
    /// Checks whether whoever has no key reaches a port. A name is public, and so are the ports of
    /// programs unless it was made otherwise; what runs code for whoever asks takes a token.
    fn check_port(&self, port: u16, credential: &Credential) -> Result<(), Refusal> {
        let token = match credential {
            Credential::Token(token) => Some(token.as_str()),
            _ => None,
        };
        match (is_service(port), credential) {
            (true, Credential::Link(..)) => Err(bad_link()),
            (true, _) if token.is_some_and(|token| opens_services(&self.spec.token, token)) => {
                Ok(())
            }
            (true, _) => Err(bad_token()),
            // Where none is needed a wrong one, which anybody can leave behind, is no harm.
            (false, _) if self.opens_ports(token) => Ok(()),
            (false, Credential::Link(until_s, signature)) => {
                self.check_link(port, *until_s, signature)
            }
            (false, _) => Err(no_port_token()),
        }
    }

    /// Returns whether a credential is one that only its tenant gives away.
    pub(super) fn is_proof(&self, credential: &Credential, ask: &InAsk) -> bool {
        match credential {
            Credential::Token(token) => {
                let is_own = |own: &String| is_equal(token, own);
                opens_services(&self.spec.token, token)
                    || self.spec.port_token.as_ref().is_some_and(is_own)
            }
            signature @ Credential::Signature { .. } => check(signature, self, ask).is_ok(),
            Credential::Key(_) | Credential::Nothing | Credential::Link(..) => false,
        }
    }

    fn link_signature(&self, port: u16, until_s: u64) -> String {
        // No path of a file begins so: what is signed for one cannot be read as the other.
        let text = format!("port\0{port}\0{until_s}\0{}", self.spec.token);
        BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(text))
    }

    fn check_link(&self, port: u16, until_s: u64, signature: &str) -> Result<(), Refusal> {
        let expected = self.link_signature(port, until_s);
        // Of digests, so that the time taken tells nothing about the text.
        if Sha256::digest(signature) != Sha256::digest(expected) {
            return Err(bad_link());
        }
        match until_s > now_s() {
            true => Ok(()),
            false => Err(Refusal::new(Kind::Forbidden, "the link has expired")),
        }
    }
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

fn bad_link() -> Refusal {
    Refusal::new(Kind::Forbidden, "the link is not one to this port")
}

fn no_port_token() -> Refusal {
    Refusal::new(
        Kind::Forbidden,
        "the ports of this sandbox are reached with its traffic access token alone",
    )
    .advise("send e2b-traffic-access-token, as the answer to create or connect has it")
}

fn bad_token() -> Refusal {
    Refusal::new(
        Kind::Unauthenticated,
        "the access token is not this sandbox's",
    )
    .advise("send X-Access-Token, as the answer to create or connect has it")
}
