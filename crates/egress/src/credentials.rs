//! Credentials, none of which a sandbox holds: their values, their placeholders, and their
//! injection.

mod answer;
mod app;
mod client_secret;
mod command;
pub(crate) mod fetch;
mod issuers;
mod kubernetes;
mod login;
mod masked_values;
mod oauth;
mod own_request;
mod placeholders;
mod refresh;
mod rotation;
mod store_client;
mod substring;
mod values;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use std::{fmt, io};

use atoll_model::network::{Binding, CREDENTIAL_BYTES_MAX, CredentialName, Fetch, Fetched};
use atoll_model::network::{HostPart, Network, Part, Place, Placeholder, Request as Judged};
use atoll_sys::socket;
use hyper::HeaderMap;
use zeroize::Zeroizing;

pub use self::app::check_app_key;
use self::fetch::{Ingredients, Source};
use self::issuers::LoginIssuers;
pub(crate) use self::issuers::why_not_issued;
use self::masked_values::{MASKED_MAX, MaskedValue, MaskedValues, Role};
pub use self::placeholders::make_renewed_placeholder;
use self::placeholders::{others, standing_for};
pub(crate) use self::substring::{holds, holds_in_any_case};
pub(crate) use self::values::Values;
use crate::secret::{Masks, Placeholders, Secret};

/// The credentials of one sandbox.
#[derive(Default)]
pub(crate) struct Credentials {
    held: Vec<CredentialPart>,
    masked: RwLock<MaskedValues>,
    /// The search for their placeholders in what leaves, numbered as they are held.
    placeholders: Option<Placeholders>,
    issues: LoginIssuers,
    /// The masks that replace placeholders by other texts, where a credential requires that in the
    /// bodies that it is sent with.
    others: Option<Masks>,
}

/// A credential's value, or a part of it.
pub(crate) struct CredentialPart {
    pub(crate) binding: Binding,
    /// The part of its credential's value.
    pub(crate) part: Part,
    /// Its placeholder: printable ASCII.
    pub(crate) placeholder: String,
    value: Value,
}

/// The source of a value: printable ASCII.
enum Value {
    /// Known from the beginning.
    Given(Arc<Secret>),
    /// Fetched on use: all values of a key at once.
    Fetched(Arc<Source>),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl fmt::Debug for CredentialPart {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("CredentialPart").finish_non_exhaustive()
    }
}

impl CredentialPart {
    pub(crate) fn name(&self) -> &CredentialName {
        &self.binding.name
    }

    /// Returns whether it is injected into the body of this request.
    pub(crate) fn is_for_body(&self, judged: &Judged<'_>) -> bool {
        matches!(self.binding.place, Place::Body(_)) && self.binding.holds(judged)
    }

    /// Returns its value at the beginning, if known then.
    fn known(&self) -> Option<&Arc<Secret>> {
        match &self.value {
            Value::Given(secret) => Some(secret),
            Value::Fetched(source) => source.first(),
        }
    }

    fn source(&self) -> Option<&Arc<Source>> {
        match &self.value {
            Value::Fetched(source) => Some(source),
            Value::Given(_) => None,
        }
    }

    /// Returns its value, if that is known from the beginning and never changes.
    pub(crate) fn given(&self) -> Option<&Arc<Secret>> {
        match &self.value {
            Value::Given(secret) => Some(secret),
            Value::Fetched(_) => None,
        }
    }
}

impl Credentials {
    /// Receives the credentials' values from a socket: a message for each value that is known
    /// already, in this order.
    pub(crate) fn receive(
        network: &Network,
        placeholders: Vec<Placeholder>,
        fetched: &[Fetched],
        values: Option<&OwnedFd>,
    ) -> io::Result<Self> {
        let mut held: Vec<CredentialPart> = Vec::with_capacity(placeholders.len());
        let missing = || io::Error::from(io::ErrorKind::InvalidData);
        let next = || receive_value(values.ok_or_else(missing)?);
        for placeholder in placeholders {
            let mut bindings = network.credentials.iter();
            let binding = bindings.find(|one| one.name == placeholder.name);
            let of_same = held.iter().find(|one| *one.name() == placeholder.name);
            let of_same = of_same.and_then(CredentialPart::source);
            let value = match fetched.iter().find(|one| one.name == placeholder.name) {
                Some(Fetched {
                    by: by @ Fetch::Login { ends_s, .. },
                    ..
                }) => {
                    let source = Source::new(by.clone(), network, Ingredients::new());
                    Value::Fetched(Arc::new(source.with(Arc::new(next()?), *ends_s)))
                }
                // A further value of a key that signs.
                Some(_) if let Some(source) = of_same => Value::Fetched(Arc::clone(source)),
                Some(Fetched { by, .. }) => {
                    let mut ingredients = Ingredients::new();
                    for which in by.ingredients() {
                        ingredients.insert(which, Arc::new(next()?));
                    }
                    Value::Fetched(Arc::new(Source::new(by.clone(), network, ingredients)))
                }
                None => Value::Given(Arc::new(next()?)),
            };
            let one = CredentialPart {
                binding: binding.ok_or_else(missing)?.clone(),
                part: placeholder.part,
                placeholder: placeholder.text,
                value,
            };
            let signs = matches!(one.binding.place, Place::SigV4(_));
            if one.placeholder.is_empty() || one.part.is_whole() == signs {
                return Err(missing());
            }
            held.push(one);
        }
        Self::masked(held)
    }

    fn masked(held: Vec<CredentialPart>) -> io::Result<Self> {
        if held.is_empty() {
            return Ok(Self::default());
        }
        let texts = held.iter().map(|one| one.placeholder.clone().into_bytes());
        let placeholders = Placeholders::new(texts.collect()).map_err(io::Error::other)?;
        let given = held.iter().enumerate().filter_map(|(index, one)| {
            Some(MaskedValue {
                index,
                secret: Arc::clone(one.known()?),
                role: Role::Value,
                standing: one.placeholder.as_bytes().to_vec(),
                ends: None,
            })
        });
        let mut values: Vec<MaskedValue> = given.collect();
        for (index, one) in held.iter().enumerate() {
            if let Value::Fetched(source) = &one.value {
                let all = source.sent_ingredients().into_iter();
                let masked = all.map(|secret| MaskedValue::ingredient(index, secret));
                let masked: Result<Vec<_>, String> = masked.collect();
                values.extend(masked.map_err(io::Error::other)?);
            }
        }
        let mut masked = MaskedValues {
            values,
            masks: None,
        };
        masked.build().map_err(io::Error::other)?;
        Ok(Self {
            others: others(&held),
            held,
            masked: RwLock::new(masked),
            placeholders: Some(placeholders),
            issues: LoginIssuers::default(),
        })
    }

    /// Returns the masks that replace their placeholders by other texts, numbered as they are held.
    pub(crate) fn others(&self) -> Option<&Masks> {
        self.others.as_ref()
    }

    /// Returns whether there are no credentials, and none will be issued.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && !self.issues.is_catching()
    }

    /// Returns the search for their placeholders, if there are any.
    pub(crate) fn placeholders(&self) -> Option<&Placeholders> {
        self.placeholders.as_ref()
    }

    /// Replaces every real value in headers or trailers by its placeholder.
    pub(crate) fn mask(&self, headers: &mut HeaderMap) {
        if let Some(masks) = self.masks() {
            masks.headers(headers);
        }
    }

    /// Returns the masks for the real values that there are by now.
    pub(crate) fn masks(&self) -> Option<Masks> {
        let masked = self.masked.read().unwrap_or_else(PoisonError::into_inner);
        masked.masks.clone()
    }

    /// Masks real values in a text, keeping its length.
    pub(crate) fn masked_text(&self, text: Vec<u8>) -> Vec<u8> {
        let masked = self.masks().and_then(|all| all.whole(&text));
        masked.unwrap_or(text)
    }

    #[cfg(test)]
    pub(crate) fn masked_count(&self) -> usize {
        self.masked.read().unwrap().values.len()
    }

    /// Returns the name and source of a credential that is fetched.
    pub(crate) fn source(&self, index: usize) -> Option<(&CredentialName, &Source)> {
        let held = self.held.get(index)?;
        Some((held.name(), held.source()?))
    }

    /// Notes that a host has rejected an injected value.
    pub(crate) fn doubt(&self, index: usize, secret: &Arc<Secret>) {
        if let Some((_, source)) = self.source(index) {
            source.doubt(secret, SystemTime::now());
        }
    }

    /// Accepts a fetched value, if it is fit: from here on it is masked.
    ///
    /// # Errors
    /// The reason why it is not, without any of its text.
    pub(crate) fn accept(
        &self,
        index: usize,
        value: Zeroizing<Vec<u8>>,
        ends: Option<SystemTime>,
    ) -> Result<Arc<Secret>, String> {
        let is_plain = value.iter().all(|byte| (b' '..=b'~').contains(byte));
        if value.len() > CREDENTIAL_BYTES_MAX || !is_plain {
            return Err(format!(
                "what it gives is not one line of printable ASCII, {CREDENTIAL_BYTES_MAX} bytes at most"
            ));
        }
        let held = self.held.get(index).ok_or("there is none")?;
        let stands = |one: &CredentialPart| holds(&value, one.placeholder.as_bytes());
        if self.held.iter().any(stands) {
            return Err("what it gives has a placeholder in it".to_owned());
        }
        let standing = standing_for(&value, held.placeholder.as_bytes())?;
        let mut masked = self.masked.write().unwrap_or_else(PoisonError::into_inner);
        let mut values = masked.values.iter_mut();
        if let Some(same) = values.find(|one| one.secret.expose() == &value[..]) {
            same.ends = same.ends.zip(ends).map(|(one, other)| one.max(other));
            return match (same.role, same.index == index) {
                (Role::Value, true) => Ok(Arc::clone(&same.secret)),
                (Role::Value, false) => {
                    Err("what it gives is the value of another credential".to_owned())
                }
                (Role::Ingredient, _) => {
                    Err("what it gives is a secret by which one is asked for".to_owned())
                }
            };
        }
        let secret = Secret::new(value.to_vec()).map_err(|error| error.to_string())?;
        let secret = Arc::new(secret);
        let value = MaskedValue {
            index,
            secret: Arc::clone(&secret),
            role: Role::Value,
            standing,
            ends,
        };
        masked.add(value, SystemTime::now())?;
        Ok(secret)
    }

    /// Accepts a refresh token in place of the one before it.
    ///
    /// # Errors
    /// The reason why it is not one, without any of its text.
    pub(crate) fn renew(
        &self,
        index: usize,
        source: &Source,
        value: Zeroizing<Vec<u8>>,
    ) -> Result<(), String> {
        let is_plain = value.iter().all(|byte| (b' '..=b'~').contains(byte));
        if value.len() > CREDENTIAL_BYTES_MAX || !is_plain {
            return Err(format!(
                "it is not one line of printable ASCII, {CREDENTIAL_BYTES_MAX} bytes at most"
            ));
        }
        let secret = Secret::new(value.to_vec()).map_err(|error| error.to_string())?;
        let secret = Arc::new(secret);
        let value = MaskedValue::ingredient(index, Arc::clone(&secret))?;
        let mut masked = self.masked.write().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::now();
        let mut all = masked.values.iter();
        if all.all(|one| one.secret.expose() != secret.expose()) {
            masked.add(value, now)?;
        }
        // It opens nothing any more.
        if let Some(before) = source.renew(secret) {
            let mut all = masked.values.iter_mut();
            let is_it = |one: &&mut MaskedValue| {
                one.index == index && one.secret.expose() == before.expose()
            };
            if let Some(used) = all.find(is_it) {
                used.ends = Some(now);
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn of(held: Vec<(Binding, &str, &str)>) -> Self {
        let whole = |(binding, placeholder, real)| (binding, Part::Whole, placeholder, real);
        Self::of_parts(held.into_iter().map(whole).collect())
    }

    #[cfg(test)]
    pub(crate) fn of_parts(held: Vec<(Binding, Part, &str, &str)>) -> Self {
        let all = held.into_iter();
        let all = all.map(|(binding, part, placeholder, real)| CredentialPart {
            binding,
            part,
            placeholder: placeholder.to_owned(),
            value: Value::Given(Arc::new(Secret::new(real.as_bytes().to_vec()).unwrap())),
        });
        Self::masked(all.collect()).unwrap()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, CredentialPart> {
        self.held.iter()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&CredentialPart> {
        self.held.get(index)
    }

    /// Returns the credential whose placeholder is part of a host's name, which would be sent to
    /// name servers. Names have no case.
    pub(crate) fn within_host(&self, host: &str) -> Option<&CredentialPart> {
        let plain = self
            .iter()
            .find(|held| holds_in_any_case(host.as_bytes(), held.placeholder.as_bytes()));
        // Written in another way it can go on from label to label.
        let found = || {
            let placeholders = self.placeholders.as_ref()?;
            let labels = host.replace('.', "");
            let found = placeholders.find(host.as_bytes());
            let found = found.or_else(|| placeholders.find(labels.as_bytes()));
            self.get(found?.number)
        };
        plain.or_else(found)
    }

    /// Returns the credential whose placeholder is in this host, and why no connection is made.
    pub(crate) fn misused_by(&self, host: &HostPart) -> Option<(CredentialName, String)> {
        match self.held.is_empty() {
            true => None,
            false => self.misused_in(&host.to_string()),
        }
    }

    /// Returns the credential whose placeholder is in a name to resolve, and why it is not
    /// resolved.
    pub(crate) fn misused_in(&self, host: &str) -> Option<(CredentialName, String)> {
        let held = self.within_host(host)?;
        let name = held.name();
        let why = format!("the placeholder of credential {name} is in its name");
        Some((name.clone(), why))
    }
}

/// Receives the next value from a socket.
fn receive_value(values: &OwnedFd) -> io::Result<Secret> {
    let mut real = vec![0_u8; CREDENTIAL_BYTES_MAX];
    let (got, _) = socket::receive(values.as_fd(), &mut real)?;
    real.truncate(got);
    match got {
        0 => Err(io::ErrorKind::InvalidData.into()),
        _ => Secret::new(real),
    }
}

#[cfg(test)]
mod tests;
