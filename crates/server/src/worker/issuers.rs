//! Callers with a token of an issuer (OpenID Connect Core 1.0; RFC 7519, 8725, 9068): the one place
//! where such tokens are checked.
//!
//! A token says who has issued it, and nobody believes that: it only chooses among the issuers that
//! are configured, and what it says counts once a key of that one has signed it. No address and no
//! key in a token is ever looked at.

mod keys;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use atoll_engine::failure::Failure;
use atoll_engine::printable::{printable, quoted};
use atoll_store::{ISSUER_MARK, Role, Scopes};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use keys::{Keys, NoKey};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::caller::Caller;
use crate::configuration::Issuer;
use crate::configuration::issuer::is_tenant;
use crate::protocol::{Kind, Refusal};

/// The longest token, bytes.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// The longest name of a caller, without its issuer, bytes.
const NAME_BYTES_MAX: usize = 200;
/// The most that clocks may differ, seconds.
const LEEWAY_S: f64 = 30.0;
/// The beginning of every key of the store.
const KEY_PREFIX: &str = "e2b_";
/// The beginning of a value of `scope` that is about this server.
const SCOPE_PREFIX: &str = "atoll:";
/// The time after which to ask again where an issuer gives no keys, seconds.
const RETRY_AFTER_S: u64 = 10;

/// The issuers whose tokens callers may come with.
pub(super) struct Issuers {
    all: Vec<(Issuer, Keys)>,
}

impl Issuers {
    /// Prepares the issuers of a configuration.
    pub(super) fn new(configured: &[Issuer]) -> Self {
        let one = |issuer: &Issuer| (issuer.clone(), Keys::of(issuer));
        Self {
            all: configured.iter().map(one).collect(),
        }
    }

    /// Returns whether a credential is to be checked as a token, and not as a key of the store.
    pub(super) fn takes(&self, credential: &str) -> bool {
        let dots = credential.bytes().filter(|byte| *byte == b'.').count();
        !self.all.is_empty() && dots == 2 && !credential.starts_with(KEY_PREFIX)
    }

    /// Finds who calls by a token.
    pub(super) async fn caller(&self, token: &str) -> Result<Caller, Refusal> {
        if token.len() > TOKEN_BYTES_MAX {
            let what = format!("a token has at most {TOKEN_BYTES_MAX} bytes");
            return Err(unauthenticated(what));
        }
        let mut parts = token.split('.');
        let (Some(head), Some(content), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed("it has not three parts"));
        };
        let header = Fields::decode(head).map_err(|why| malformed(&format!("its header {why}")))?;
        let claims =
            Fields::decode(content).map_err(|why| malformed(&format!("its content {why}")))?;
        header.check_kind()?;
        let url = claims.text("iss")?;
        let known = self.all.iter().find(|(issuer, _)| issuer.url == url);
        let (issuer, keys) = known.ok_or_else(|| {
            unauthenticated(format!(
                "the token's issuer {} is not known here",
                shown(url)
            ))
            .advise("serve.toml names the issuers, as [[issuer]]")
        })?;
        let algorithm = header.text("alg")?;
        let algorithm = keys::algorithm(algorithm).ok_or_else(|| {
            let what = format!("the token is signed by {}", shown(algorithm));
            unauthenticated(what).advise(
                "have the issuer sign by RS, PS or ES with 256 or 384, RS512, PS512 or EdDSA",
            )
        })?;
        let id = header.optional_text("kid")?;
        let found = keys.find(id, algorithm, Instant::now()).await;
        let found = found.map_err(|why| no_key(issuer, id, why))?;
        let message = token.rsplit_once('.').map_or("", |(message, _)| message);
        let is_signed = |key: &Arc<keys::Key>| key.checks(signature, message, algorithm);
        if !found.iter().any(is_signed) {
            let what = format!("the token's signature is not one of {}", issuer.url);
            return Err(unauthenticated(what).advise("take the token as the issuer gave it"));
        }
        claims.check_time(issuer)?;
        claims.check_audience(issuer)?;
        Ok(Caller {
            tenant: claims.tenant(issuer)?,
            name: claims.name(issuer)?,
            role: claims.role(issuer)?,
            scopes: claims.scopes()?,
            trace: None,
            once: None,
        })
    }
}

/// Checks the files of issuers' keys.
///
/// # Errors
/// The first that has none.
pub fn check_key_files(configured: &[Issuer]) -> Result<(), Failure> {
    configured.iter().try_for_each(|issuer| {
        keys::check_file(issuer).map_err(|why| {
            Failure::new(format!("tokens of {} could not be checked", issuer.url))
                .because(match &issuer.keys {
                    Some(file) => format!("{}: {why}", file.display()),
                    None => why,
                })
                .advise("issuer.keys names a file with its keys, as JSON (JWKS)")
        })
    })
}

/// The fields of a token's header, or of its content. One that is there twice makes it none.
struct Fields(BTreeMap<String, Value>);

impl Fields {
    fn decode(part: &str) -> Result<Self, &'static str> {
        let text = BASE64_URL_SAFE_NO_PAD.decode(part);
        let text = text.map_err(|_| "is not in base64url")?;
        serde_json::from_slice(&text).map_err(|_| "is no JSON object, or has a field twice")
    }

    /// Returns a text that has to be there.
    fn text(&self, name: &str) -> Result<&str, Refusal> {
        let text = self.optional_text(name)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| malformed(&format!("it has no {name}")))
    }

    fn optional_text(&self, name: &str) -> Result<Option<&str>, Refusal> {
        match self.0.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(malformed(&format!("its {name} is no text"))),
        }
    }

    /// Returns a time, seconds since 1970.
    fn time(&self, name: &str) -> Result<Option<f64>, Refusal> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        let time = value.as_f64().filter(|time| time.is_finite());
        let wrong = || malformed(&format!("its {name} is no time"));
        time.map(Some).ok_or_else(wrong)
    }

    /// Returns a text, or each of a list of them.
    fn texts(&self, name: &str) -> Vec<&str> {
        match self.0.get(name) {
            Some(Value::String(text)) => vec![text.as_str()],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// Refuses a header of something else than an access or ID token, or that says more than is
    /// understood here.
    fn check_kind(&self) -> Result<(), Refusal> {
        if self.0.contains_key("crit") {
            let what = "the token has critical header fields (crit), and none is understood here";
            return Err(unauthenticated(what.to_owned()));
        }
        let kind = self.optional_text("typ")?.map(str::to_ascii_lowercase);
        let kind = kind.as_deref().unwrap_or("jwt");
        match kind.strip_prefix("application/").unwrap_or(kind) {
            "jwt" | "at+jwt" => Ok(()),
            _ => {
                let what = format!("a token of the type {} is for something else", shown(kind));
                Err(unauthenticated(what).advise("send an access token"))
            }
        }
    }

    fn check_time(&self, issuer: &Issuer) -> Result<(), Refusal> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs_f64();
        let ends = self.time("exp")?;
        let ends = ends.ok_or_else(|| malformed("it has no exp, and would never expire"))?;
        if now >= ends + LEEWAY_S {
            let what = format!("the token has expired {:.0} s ago", now - ends);
            return Err(
                unauthenticated(what).advise(format!("get another one from {}", issuer.url))
            );
        }
        match self.time("nbf")? {
            Some(begins) if begins > now + LEEWAY_S => {
                let what = format!("the token is not valid for another {:.0} s", begins - now);
                Err(unauthenticated(what).advise("compare the clocks of the issuer and the server"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_audience(&self, issuer: &Issuer) -> Result<(), Refusal> {
        let audience = issuer.audience.as_str();
        match self.texts("aud").contains(&audience) {
            true => Ok(()),
            false => Err(unauthenticated(format!(
                "the token is for somebody else: {} is not in its aud",
                quoted(audience.as_bytes())
            ))
            .advise("ask the issuer for a token with this audience (or resource)")),
        }
    }

    fn tenant(&self, issuer: &Issuer) -> Result<String, Refusal> {
        if let Some(tenant) = issuer.fixed_tenant() {
            return Ok(tenant.to_owned());
        }
        let claim = issuer.tenant_claim.as_deref().unwrap_or_default();
        let named = self.0.get(claim).and_then(Value::as_str);
        let tenant = named.filter(|name| is_tenant(name)).ok_or_else(|| {
            let what = format!("the token's {} names no tenant", quoted(claim.as_bytes()));
            Refusal::new(Kind::Forbidden, what)
                .advise("a tenant is 1 to 64 letters, digits, '.', '_' and '-'")
        })?;
        Ok(tenant.to_owned())
    }

    /// Returns the caller's name, as the ledger and policies have it, and the issuer: an address that
    /// the issuer has verified, else its subject. Any other name people choose themselves (OpenID
    /// Connect Core 1.0, 5.7).
    fn name(&self, issuer: &Issuer) -> Result<String, Refusal> {
        let subject = self.text("sub")?;
        let is_verified = self.0.get("email_verified") == Some(&Value::Bool(true));
        let email = self.0.get("email").and_then(Value::as_str);
        let email = email.filter(|email| is_verified && !email.is_empty());
        let mut name = printable(email.unwrap_or(subject).as_bytes());
        name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
        Ok(format!("{name}{ISSUER_MARK}{}", issuer.url))
    }

    /// Returns the caller's role: of several the first of all.
    fn role(&self, issuer: &Issuer) -> Result<Role, Refusal> {
        let Some(claim) = &issuer.roles_claim else {
            return Ok(Role::User);
        };
        let values = self.texts(claim);
        let roles = values.iter().filter_map(|value| issuer.roles.get(*value));
        let roles: Vec<Role> = roles.filter_map(|name| Role::parse(name)).collect();
        let first = Role::ALL.into_iter().find(|role| roles.contains(role));
        first.ok_or_else(|| {
            let claim = quoted(claim.as_bytes());
            let what = format!("nothing in the token's {claim} gives a role here");
            Refusal::new(Kind::Forbidden, what)
                .advise("[issuer.roles] of serve.toml says which value gives which")
        })
    }

    /// Returns what the token is good for within that: all, unless its `scope` (RFC 8693, 4.2)
    /// says something about this server.
    fn scopes(&self) -> Result<Scopes, Refusal> {
        let is_read = self.0.get("scope").is_none_or(|value| match value {
            Value::Array(all) => all.iter().all(Value::is_string),
            other => other.is_string(),
        });
        if !is_read {
            return Err(malformed("its scope is no text"));
        }
        let all = self.texts("scope");
        let all = all.iter().flat_map(|text| text.split_whitespace());
        let own: Vec<&str> = all
            .filter_map(|one| one.strip_prefix(SCOPE_PREFIX))
            .collect();
        Ok(match own.is_empty() {
            true => Scopes::All,
            false => Scopes::of(own),
        })
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if fields.insert(name, value).is_some() {
                        return Err(A::Error::custom("a field is there twice"));
                    }
                }
                Ok(Fields(fields))
            }
        }

        from.deserialize_map(Object)
    }
}

/// Shows a text of a token that nobody has vouched for: safely, and not all of a long one.
fn shown(text: &str) -> String {
    let cut = text.get(..text.floor_char_boundary(NAME_BYTES_MAX));
    quoted(cut.unwrap_or_default().as_bytes())
}

fn no_key(issuer: &Issuer, id: Option<&str>, why: NoKey) -> Refusal {
    let url = &issuer.url;
    match why {
        NoKey::Unknown => {
            let key = id.map_or_else(|| "a key".to_owned(), |id| format!("the key {}", shown(id)));
            let what = format!("the token is signed by {key}, and {url} has none such for it");
            unauthenticated(what).advise("take the token as the issuer gave it, or another one")
        }
        NoKey::Unavailable(why) => Refusal {
            retry_after_s: Some(RETRY_AFTER_S),
            ..Refusal::new(
                Kind::Unavailable,
                format!("the token cannot be checked: no keys of {url}: {why}"),
            )
            .advise("try again later; a key of the server's own needs no issuer")
        },
    }
}

fn malformed(why: &str) -> Refusal {
    unauthenticated(format!("the token is not valid: {why}"))
        .advise("send an access token (JWT) as the issuer gave it")
}

fn unauthenticated(what: String) -> Refusal {
    Refusal::new(Kind::Unauthenticated, what)
}
