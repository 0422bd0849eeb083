//! A client secret that an agent's makers have published, where its profile does not name it:
//! learned from the agent itself, when it refreshes its login.
//!
//! It is no real secret: everyone with the agent has it. It is sent to the login's issuer alone, so
//! that a program that sends another one is refused; once one has worked, no other is learned.

use std::sync::{Mutex, PoisonError};

use atoll_model::network::{Place, PublishedSecret, RenewalRequest, Request as Judged};

use super::fetch::Source;
use super::{CredentialPart, Credentials};

/// The longest text that is learned, bytes.
const HEARD_BYTES_MAX: usize = 128;

/// The text that was learned.
#[derive(Default)]
pub(super) struct ClientSecret(Mutex<LearnedText>);

#[derive(Default)]
struct LearnedText {
    text: Option<String>,
    /// Set once the issuer has given a token for it.
    has_worked: bool,
}

impl Source {
    /// Returns the text that is sent as the secret of the login's client.
    ///
    /// # Errors
    /// The reason why it is unknown.
    pub(super) fn published(&self, request: &RenewalRequest) -> Result<Option<String>, String> {
        match &request.published {
            PublishedSecret::None => Ok(None),
            PublishedSecret::Named(text) => Ok(Some(text.clone())),
            PublishedSecret::Sent => {
                let said = self
                    .client_secret
                    .0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
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

impl ClientSecret {
    /// Notes that the issuer has given a token for this text: it is right, whatever else was
    /// learned meanwhile.
    pub(super) fn has_worked(&self, sent: &str) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *said = LearnedText {
            text: Some(sent.to_owned()),
            has_worked: true,
        };
    }

    /// Learns a text from a program, and returns whether it is the first: the issuer was not asked
    /// for lack of it. Any other one waits as long as after each failure, since a program could try
    /// one after the other.
    fn learn(&self, text: &str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = said.text.is_none();
        if !said.has_worked {
            said.text = Some(text.to_owned());
        }
        is_first
    }
}

impl Credentials {
    /// Returns whether a request refreshes an agent's login, so that its client secret is learned
    /// from it.
    pub(crate) fn learns_client_secret(&self, judged: &Judged<'_>) -> bool {
        let hears = |held: &CredentialPart| {
            let index = self.renewed_by(held.name())?;
            let (_, source) = self.source(index)?;
            Some(source.renewal()?.published == PublishedSecret::Sent)
        };
        let is_by = |held: &&CredentialPart| {
            matches!(held.binding.place, Place::Refresh(_)) && held.binding.holds(judged)
        };
        self.iter()
            .filter(is_by)
            .any(|held| hears(held) == Some(true))
    }

    /// Learns the client secret that a program has sent.
    ///
    /// # Errors
    /// The reason why it cannot be one, without any of its text.
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
        if source.client_secret.learn(text) {
            source.forget_failure().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(heard: &ClientSecret) -> Option<String> {
        let said = heard.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.text.clone()
    }

    #[test]
    fn client_secret_that_worked_stays() {
        let heard = ClientSecret::default();
        assert!(heard.learn("right"));
        // While the issuer is asked a program says something else.
        heard.learn("a lie");
        assert_eq!(said(&heard).as_deref(), Some("a lie"));
        heard.has_worked("right");
        assert_eq!(said(&heard).as_deref(), Some("right"));
        assert!(!heard.learn("another lie"));
        assert_eq!(said(&heard).as_deref(), Some("right"));
    }

    #[test]
    fn client_secret_only_first_ends_pause() {
        let heard = ClientSecret::default();
        let ended = (0..12).filter(|number| heard.learn(&format!("text{number}")));
        assert_eq!(ended.count(), 1);
        // The last one is what is sent when the pause is over.
        assert_eq!(said(&heard).as_deref(), Some("text11"));
    }
}
