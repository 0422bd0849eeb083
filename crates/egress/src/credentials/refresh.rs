//! Refresh tokens of logins: masked as long as they may open something; an issuer is asked only if
//! its response can be masked.

use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use atoll_model::network::{CREDENTIAL_BYTES_MAX, CredentialName};
use zeroize::Zeroizing;

use super::login::Login;
use super::{CredentialPart, Credentials, MASKED_MAX, MaskedValue, Role, holds};
use crate::secret::{self, Secret};

/// The number of secrets that an issuer gives at once: an access token and a refresh token.
const GIVEN_MAX: usize = 2;

impl Credentials {
    /// Returns the credential whose login is refreshed by this one.
    pub(crate) fn renewed_by(&self, by: &CredentialName) -> Option<usize> {
        let renews = |index: &usize| {
            let source = self.source(*index);
            source.is_some_and(|(_, source)| source.renewed_by() == Some(by))
        };
        (0..self.held.len()).find(renews)
    }

    /// Masks a login's refresh token from here on.
    pub(super) fn keep_refresh(
        &self,
        login: Login<'_>,
        value: Zeroizing<Vec<u8>>,
    ) -> Result<(), String> {
        self.is_word(&value)?;
        let is_its = |one: &MaskedValue| {
            let held = self.held.get(one.index);
            let is_by = held.is_some_and(|held| held.name() == login.by);
            is_by || one.index == login.index && one.role == Role::Ingredient
        };
        let mut masked = self.masked.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = masked.values.iter();
        match all.find(|one| one.secret.expose() == &value[..]) {
            Some(same) if is_its(same) => return Ok(()),
            Some(_) => return Err("it is the value of another credential".to_owned()),
            None => {}
        }
        let secret = Secret::new(value.to_vec()).map_err(|error| error.to_string())?;
        let value = MaskedValue::ingredient(login.index, Arc::new(secret))?;
        masked.add(value, SystemTime::now())
    }

    /// Checks that it is one word, without a placeholder in it.
    fn is_word(&self, value: &[u8]) -> Result<(), String> {
        let is_plain = value.iter().all(|byte| (b'!'..=b'~').contains(byte));
        if value.len() > CREDENTIAL_BYTES_MAX || !is_plain {
            return Err(format!(
                "it is not one word of printable ASCII, {CREDENTIAL_BYTES_MAX} bytes at most"
            ));
        }
        let stands = |one: &CredentialPart| holds(value, one.placeholder.as_bytes());
        match self.held.iter().any(stands) {
            true => Err("it has a placeholder in it".to_owned()),
            false => Ok(()),
        }
    }

    /// Masks an issuer's new refresh token before it is written back. It must be one word, no other
    /// credential's value, and without a placeholder.
    pub(super) fn keep_given(&self, index: usize, value: &[u8]) -> Result<(), String> {
        self.is_word(value)?;
        let is_its = |one: &MaskedValue| one.index == index && one.role == Role::Ingredient;
        let mut masked = self.masked.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = masked.values.iter();
        match all.find(|one| one.secret.expose() == value) {
            Some(same) if is_its(same) => return Ok(()),
            Some(_) => return Err("it is the value of another credential".to_owned()),
            None => {}
        }
        let secret = Secret::new(value.to_vec()).map_err(|error| error.to_string())?;
        let value = MaskedValue::ingredient(index, Arc::new(secret))?;
        masked.add(value, SystemTime::now())
    }

    /// Checks that an issuer's response for a login can be masked: otherwise the issuer is not
    /// asked, since its response would be lost, and the refresh token worthless.
    pub(super) fn has_room(&self, index: usize) -> Result<(), String> {
        let masked = self.masked.read().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::now();
        let holds = |one: &&MaskedValue| one.ends.is_none_or(|ends| now < ends);
        let its = masked.values.iter().filter(|one| one.index == index);
        let is_few = its.filter(holds).count() + GIVEN_MAX <= MASKED_MAX;
        // Others may be fetched meanwhile.
        match is_few && masked.values.len() + MASKED_MAX <= secret::VALUES_MAX {
            true => Ok(()),
            false => Err(format!(
                "it has had {MASKED_MAX} values in this run, and no more are kept secret at once: start a new run"
            )),
        }
    }

    /// Marks a login's refresh tokens other than this one as expired.
    pub(super) fn supersede(&self, login: Login<'_>, refresh: &str) {
        let mut masked = self.masked.write().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::now();
        let is_before = |one: &&mut MaskedValue| {
            let is_its = one.index == login.index && one.role == Role::Ingredient;
            is_its && one.secret.expose() != refresh.as_bytes()
        };
        for before in masked.values.iter_mut().filter(is_before) {
            before.ends.get_or_insert(now);
        }
    }

    /// Checks that a text to be written back contains no credential and no placeholder.
    pub(super) fn is_nobodys(&self, value: &[u8]) -> Result<(), String> {
        let masked = self.masked.read().unwrap_or_else(PoisonError::into_inner);
        let mut all = masked.values.iter();
        let stands = |one: &CredentialPart| holds(value, one.placeholder.as_bytes());
        let is_other = all.any(|one| holds(value, one.secret.expose()));
        match is_other || self.held.iter().any(stands) {
            true => Err("what it gives of who has logged in has a credential in it".to_owned()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use atoll_model::network::{
        Binding, Fetch, Network, PublishedSecret, RenewalForm, RenewalRequest,
    };

    use super::super::fetch::{Ingredients, Source};
    use super::super::{Part, Value};
    use super::*;

    #[test]
    fn refresh_without_room_is_not_requested() {
        let held = CredentialPart {
            binding: Binding {
                name: "login".parse().unwrap(),
                to: vec!["example.com:443".parse().unwrap()],
                requests: atoll_model::network::Conditions::default(),
                place: atoll_model::network::Place::Query("key".to_owned()),
                others: atoll_model::network::Others::Refused,
            },
            part: Part::Whole,
            placeholder: "tok-0000000000000000AAAAAAAAAAAAAAAAaaaa".to_owned(),
            value: Value::Fetched(Arc::new(Source::new(
                Fetch::Command { patience_s: 1 },
                &Network::default(),
                Ingredients::new(),
            ))),
        };
        let credentials = Credentials::masked(vec![held]).unwrap();
        let request = RenewalRequest {
            token: "https://login.example/token".parse().unwrap(),
            client: "a client".to_owned(),
            published: PublishedSecret::None,
            form: RenewalForm::Json,
            scope: Vec::new(),
        };
        let (name, by) = ("login".parse().unwrap(), "by".parse().unwrap());
        let login = Login {
            index: 0,
            name: &name,
            request: &request,
            by: &by,
        };
        let refresh = |number| format!("ref-{number}-r3alR3freshOfTh1sT3stWh1chN0body");
        let keep = |number: usize| {
            credentials.has_room(0)?;
            let value = Zeroizing::new(refresh(number).into_bytes());
            credentials.keep_refresh(login, value)
        };
        // Nobody is asked where what comes would have no room.
        let kept = (0..MASKED_MAX).take_while(|number| keep(*number).is_ok());
        assert_eq!(kept.count(), MASKED_MAX - 1);
        assert!(credentials.has_room(0).unwrap_err().contains("256 values"));
        // One that was replaced gives way.
        credentials.supersede(login, &refresh(7));
        for number in MASKED_MAX..MASKED_MAX + 8 {
            keep(number).unwrap();
            credentials.supersede(login, &refresh(number));
        }
        let last = refresh(MASKED_MAX + 7);
        let masks = credentials.masks().unwrap();
        assert!(masks.whole(last.as_bytes()).is_some());
    }
}
