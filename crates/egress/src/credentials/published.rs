//! What an agent's makers have published as the secret of its client, where its profile does not
//! name it: heard from the agent itself, when it would renew its login.
//!
//! It is none: whoever has the agent has it. It goes to the login's issuer alone, so that a program
//! that says another one gets a refusal; once one has worked, no other is heard.

use std::sync::{Mutex, PoisonError};

use atoll_model::network::{Place, PublishedSecret, RenewalRequest, Request as Judged};

use super::fetch::Source;
use super::{Credentials, Held};

/// The longest that is heard, bytes.
const HEARD_BYTES_MAX: usize = 128;

/// What was heard.
#[derive(Default)]
pub(super) struct Heard(Mutex<Said>);

#[derive(Default)]
struct Said {
    text: Option<String>,
    /// Its issuer has given a token for it.
    has_worked: bool,
}

impl Source {
    /// What is sent as the secret of the login's client.
    ///
    /// # Errors
    /// Why it is not known.
    pub(super) fn published(&self, request: &RenewalRequest) -> Result<Option<String>, String> {
        match &request.published {
            PublishedSecret::None => Ok(None),
            PublishedSecret::Named(text) => Ok(Some(text.clone())),
            PublishedSecret::Sent => {
                let said = self.heard.0.lock().unwrap_or_else(PoisonError::into_inner);
                let text = said.text.clone();
                let text = text.ok_or_else(|| {
                    "its issuer is asked with what the agent itself sends when it renews its \
                     login, which it has not done yet in this run"
                        .to_owned()
                });
                text.map(Some)
            }
        }
    }
}

impl Heard {
    /// An issuer has given a token for this text: it is right, whatever else has been heard
    /// while it was asked.
    pub(super) fn has_worked(&self, sent: &str) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *said = Said {
            text: Some(sent.to_owned()),
            has_worked: true,
        };
    }

    /// Takes up what a program says. Whether it is the first: the issuer has not been asked for
    /// want of it. Any other one waits as long as after each failure, since a program could say
    /// one after the other.
    fn hear(&self, text: &str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = said.text.is_none();
        if !said.has_worked {
            said.text = Some(text.to_owned());
        }
        is_first
    }
}

impl Credentials {
    /// Whether a request is one by which an agent renews its login, and says by what secret its
    /// client is known.
    pub(crate) fn hear_published(&self, judged: &Judged<'_>) -> bool {
        let hears = |held: &Held| {
            let index = self.renewed_by(held.name())?;
            let (_, source) = self.source(index)?;
            Some(source.renewal()?.published == PublishedSecret::Sent)
        };
        let is_by = |held: &&Held| {
            matches!(held.binding.place, Place::Refresh(_)) && held.binding.holds(judged)
        };
        self.iter()
            .filter(is_by)
            .any(|held| hears(held) == Some(true))
    }

    /// Hears what a program has sent as the secret of its client.
    ///
    /// # Errors
    /// Why it can be none; nothing of it is in the words.
    pub(crate) async fn hear(&self, index: usize, published: &[u8]) -> Result<(), String> {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
        let text = std::str::from_utf8(published).ok();
        let text = text.filter(|text| (1..=HEARD_BYTES_MAX).contains(&text.len()));
        let text = text.filter(|text| text.bytes().all(|byte| is_plain(&byte)));
        let text = text.ok_or_else(|| {
            format!(
                "what it has as `client_secret` is not {HEARD_BYTES_MAX} letters, digits and -._~ at most"
            )
        })?;
        let found = self.placeholders().and_then(|all| all.find(published));
        if found.is_some() {
            return Err("what it has as `client_secret` stands for a credential".to_owned());
        }
        let Some((_, source)) = self.source(index) else {
            return Ok(());
        };
        if source.heard.hear(text) {
            source.forget_failure().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(heard: &Heard) -> Option<String> {
        let said = heard.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.text.clone()
    }

    #[test]
    fn what_has_worked_is_what_was_sent_and_stays() {
        let heard = Heard::default();
        assert!(heard.hear("right"));
        // While the issuer is asked a program says something else.
        heard.hear("a lie");
        assert_eq!(said(&heard).as_deref(), Some("a lie"));
        heard.has_worked("right");
        assert_eq!(said(&heard).as_deref(), Some("right"));
        assert!(!heard.hear("another lie"));
        assert_eq!(said(&heard).as_deref(), Some("right"));
    }

    #[test]
    fn only_the_first_one_ends_the_pause() {
        let heard = Heard::default();
        let ended = (0..12).filter(|number| heard.hear(&format!("text{number}")));
        assert_eq!(ended.count(), 1);
        // The last one is what is sent when the pause is over.
        assert_eq!(said(&heard).as_deref(), Some("text11"));
    }
}
