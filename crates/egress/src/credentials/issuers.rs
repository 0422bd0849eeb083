//! Tokens issued to an agent that logs in: they are handed to the person's side, and placeholders
//! enter the sandbox in their place.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use atoll_model::network::{
    CREDENTIAL_BYTES_MAX, CredentialName, FieldPath, HostName, HostPart, Issue, IssuedToken,
    Request as Judged,
};
use atoll_sys::socket;
use zeroize::Zeroizing;

use super::{Credentials, MaskedValue, Role, standing_for};
use crate::secret::{Secret, stand_for_token, stand_in};

/// The index of values that belong to none of the credentials.
const OF_NONE: usize = usize::MAX;
/// The members of a response that enter as they are (RFC 6749, 5.1).
const KEPT: [&str; 5] = [
    "token_type",
    "scope",
    "expires_in",
    "expires_at",
    "refresh_token_expires_in",
];
/// The standard error codes of an issuer (RFC 6749, 5.2; RFC 8628, 3.5).
const REASONS: [&str; 10] = [
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "authorization_pending",
    "slow_down",
    "access_denied",
    "expired_token",
];

/// The issuers of logins, and the recipient of intercepted tokens.
#[derive(Default)]
pub(super) struct LoginIssuers {
    all: Vec<Arc<Issue>>,
    recipient: Option<OwnedFd>,
}

/// A token in a response.
struct InterceptedToken {
    token: IssuedToken,
    real: Zeroizing<String>,
    stands: String,
}

impl LoginIssuers {
    /// Returns whether somebody logs in.
    pub(super) fn is_catching(&self) -> bool {
        self.recipient.is_some()
    }
}

impl Credentials {
    /// Sets the issuers of logins; intercepted tokens are sent by this socket.
    pub(crate) fn issuing(self, all: Vec<Issue>, recipient: Option<OwnedFd>) -> Self {
        let catches = all.iter().any(|one| one.is_caught);
        let issues = LoginIssuers {
            all: all.into_iter().map(Arc::new).collect(),
            recipient: recipient.filter(|_| catches),
        };
        Self { issues, ..self }
    }

    /// Returns the login whose issuer a request is for, preferring one whose tokens are
    /// intercepted.
    pub(crate) fn issue(&self, judged: &Judged<'_>) -> Option<Arc<Issue>> {
        let asked = |issue: &&Arc<Issue>| issue.is_asked_by(judged);
        let found = self.issues.all.iter().filter(asked);
        found.max_by_key(|issue| issue.is_caught).map(Arc::clone)
    }

    /// Returns the login whose tokens a request may ask for, and why that is unclear.
    pub(crate) fn doubted_issue(
        &self,
        judged: &Judged<'_>,
    ) -> Option<(&CredentialName, &'static str)> {
        let mut all = self.issues.all.iter();
        all.find_map(|issue| Some((&issue.login, issue.is_in_doubt(judged)?)))
    }

    /// Returns whether a login's tokens are issued there: nothing goes uninspected to such a host.
    pub(crate) fn are_issued_at(&self, host: &HostPart, port: u16) -> bool {
        self.issues.all.iter().any(|issue| issue.is_at(host, port))
    }

    /// Returns whether tokens of a login are issued anywhere.
    pub(crate) fn are_issued(&self) -> bool {
        !self.issues.all.is_empty()
    }

    /// Returns the login whose tokens are issued by the host of this name.
    pub(crate) fn issued_by(&self, name: &str) -> Option<&CredentialName> {
        let host = HostPart::Name(HostName::parse(name).ok()?);
        let mut all = self.issues.all.iter();
        let found = all.find(|issue| issue.token.host == host)?;
        Some(&found.login)
    }

    /// Returns what enters the sandbox of an issuer's successful response. Its tokens have been
    /// handed to the person's side by then, and are masked from here on.
    ///
    /// # Errors
    /// The reason why nothing enters, without any of its text.
    pub(crate) fn catch(&self, issue: &Issue, answer: &[u8]) -> Result<Vec<u8>, String> {
        let mut caught: Vec<InterceptedToken> = Vec::new();
        let known = &mut |names: &[String], value: &[u8]| match names {
            [name] => Ok(token_member(issue, name, value)?.map(|one| {
                let stands = one.stands.clone();
                caught.push(one);
                stands
            })),
            _ => Ok(None),
        };
        let keep: Vec<FieldPath> = KEPT.iter().filter_map(|name| name.parse().ok()).collect();
        let made = stand_in(answer, &keep, &issue.claims, known);
        let made = made.map_err(|unfit| unfit.to_string())?;
        if !caught.iter().any(|one| one.token == IssuedToken::Access) {
            return Err("it has no access token".to_owned());
        }
        for one in &caught {
            self.mask_caught(one)?;
        }
        caught.iter().try_for_each(|one| self.send(one))?;
        Ok(made)
    }

    fn mask_caught(&self, one: &InterceptedToken) -> Result<(), String> {
        let value = one.real.as_bytes();
        let standing = standing_for(value, one.stands.as_bytes())?;
        let secret = Secret::new(value.to_vec()).map_err(|error| error.to_string())?;
        let mut masked = self.masked.write().unwrap_or_else(PoisonError::into_inner);
        if masked.values.iter().any(|one| one.secret.expose() == value) {
            return Ok(());
        }
        let value = MaskedValue {
            index: OF_NONE,
            secret: Arc::new(secret),
            role: Role::Ingredient,
            standing,
            ends: None,
        };
        masked.add(value, SystemTime::now())
    }

    /// Hands a token to the person's side.
    fn send(&self, one: &InterceptedToken) -> Result<(), String> {
        let nobody = "nobody outside takes its tokens";
        let recipient = self.issues.recipient.as_ref().ok_or(nobody)?;
        let parts = [one.token.member(), &one.stands, &one.real];
        let message = Zeroizing::new(parts.join("\n"));
        let sent = socket::send(recipient.as_fd(), message.as_bytes(), &[]);
        sent.map_err(|error| format!("{nobody}: {error}"))
    }
}

/// Reads a token of a response, if a member of it is one.
fn token_member(
    issue: &Issue,
    name: &str,
    value: &[u8],
) -> Result<Option<InterceptedToken>, String> {
    let Some(token) = IssuedToken::of_member(name) else {
        return Ok(None);
    };
    let is_plain = value.iter().all(|byte| (b'!'..=b'~').contains(byte));
    let text = std::str::from_utf8(value).ok().filter(|_| is_plain);
    let text = text.filter(|text| text.len() <= CREDENTIAL_BYTES_MAX);
    let text = text.ok_or_else(|| {
        format!("its {name} is not {CREDENTIAL_BYTES_MAX} bytes of printable ASCII at most")
    })?;
    let stands = stand_for_token(text, &issue.claims);
    let stands = stands.map_err(|unfit| format!("its {name}: {unfit}"))?;
    Ok(Some(InterceptedToken {
        token,
        real: Zeroizing::new(text.to_owned()),
        stands,
    }))
}

/// Returns what enters the sandbox of a response without tokens: one of the standard error codes.
pub(crate) fn why_not_issued(answer: &[u8]) -> Vec<u8> {
    let read: serde_json::Value = serde_json::from_slice(answer).unwrap_or_default();
    let said = read.get("error").and_then(serde_json::Value::as_str);
    let known = REASONS.into_iter().find(|known| said == Some(*known));
    let own = "the issuer refuses; its own words stay outside";
    let mut told = serde_json::Map::new();
    told.insert(
        "error".to_owned(),
        known.unwrap_or("invalid_request").into(),
    );
    told.insert("error_description".to_owned(), own.into());
    if let Some(seconds) = read.get("interval").and_then(serde_json::Value::as_u64) {
        told.insert("interval".to_owned(), seconds.into());
    }
    serde_json::Value::Object(told).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use atoll_model::network::CAUGHT_BYTES_MAX;

    use super::*;

    const ACCESS: &str = "sk-ant-oat01-r3alK3yOfTh1sT3stWh1chN0bodyM4yS33in";
    const REFRESH: &str = "sk-ant-ort01-an0th3rOfTh1sT3stWh1chN0bodyM4yS33in";

    fn issue() -> Issue {
        Issue {
            login: "agent".parse().unwrap(),
            token: "https://login.example.com/oauth/token".parse().unwrap(),
            claims: Vec::new(),
            is_caught: true,
        }
    }

    fn catching() -> (Credentials, OwnedFd) {
        let (shown, outside) = socket::pair().unwrap();
        let credentials = Credentials::default().issuing(vec![issue()], Some(shown));
        (credentials, outside)
    }

    #[test]
    fn issued_tokens_are_replaced_by_placeholders() {
        let (credentials, outside) = catching();
        assert!(!credentials.is_empty() && credentials.masks().is_none());
        let answer = format!(
            "{{\"access_token\": \"{ACCESS}\", \"refresh_token\": \"{REFRESH}\", \"token_type\": \"Bearer\", \
             \"expires_in\": 3600, \"session\": \"c4n4ryOfTh1sT3stWh1chN0bodyM4yS33in\", \
             \"within\": {{\"access_token\": \"c4n4ryOfTh1sT3stWh1chN0bodyM4yS33in\"}}}}"
        );
        let made = credentials.catch(&issue(), answer.as_bytes()).unwrap();
        let text = String::from_utf8(made).unwrap();
        for secret in [ACCESS, REFRESH, "c4n4ry"] {
            assert!(!text.contains(secret), "{text}");
        }
        let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&shown["token_type"], &shown["expires_in"]),
            (&"Bearer".into(), &3600.into())
        );
        let mut buffer = vec![0; CAUGHT_BYTES_MAX];
        for (member, real) in [("access_token", ACCESS), ("refresh_token", REFRESH)] {
            let (got, _) = socket::receive(outside.as_fd(), &mut buffer).unwrap();
            let stands = shown[member].as_str().unwrap();
            let expected = format!("{member}\n{stands}\n{real}");
            assert_eq!(&buffer[..got], expected.as_bytes());
        }
        // From here on they are masked, whoever tells of them.
        let mut headers = hyper::HeaderMap::new();
        headers.insert("x-echo", ACCESS.parse().unwrap());
        credentials.mask(&mut headers);
        assert_ne!(headers["x-echo"], ACCESS);
    }

    #[test]
    fn issuer_is_always_inspected() {
        let (credentials, _outside) = catching();
        let host = |text: &str| text.parse::<HostPart>().unwrap();
        assert!(credentials.are_issued_at(&host("login.example.com"), 443));
        assert!(!credentials.are_issued_at(&host("login.example.com"), 8443));
        assert!(!credentials.are_issued_at(&host("example.com"), 443));
        assert!(!Credentials::default().are_issued_at(&host("login.example.com"), 443));
        // By an address it is told by the name that its TLS has.
        assert!(credentials.are_issued() && !Credentials::default().are_issued());
        for (name, is_its) in [
            ("login.example.com", true),
            ("LOGIN.example.com", true),
            ("login.example.com.", true),
            ("example.com", false),
            ("no name", false),
        ] {
            assert_eq!(credentials.issued_by(name).is_some(), is_its, "{name}");
        }
    }

    #[test]
    fn issued_token_unreplaceable_is_withheld() {
        let (credentials, _outside) = catching();
        for answer in [
            String::new(),
            "no JSON".to_owned(),
            "[]".to_owned(),
            format!("\"{ACCESS}\""),
            format!("{{\"refresh_token\": \"{REFRESH}\"}}"),
            format!("{{\"accessToken\": \"{ACCESS}\"}}"),
            format!("{{\"access_token\": \"{ACCESS}\", \"access_token\": \"{REFRESH}\"}}"),
            format!("{{\"access_token\": \"{ACCESS}\", \"scope\": \"{ACCESS}\"}}"),
            "{\"access_token\": \"short\"}".to_owned(),
            format!("{{\"access_token\": \"{ACCESS}\\n\"}}"),
            format!(
                "{{\"access_token\": \"{}\"}}",
                "a1B2".repeat(CREDENTIAL_BYTES_MAX)
            ),
        ] {
            let caught = credentials.catch(&issue(), answer.as_bytes());
            assert!(caught.is_err_and(|why| !why.contains(ACCESS)), "{answer}");
        }
        // Nor where nobody takes it.
        let alone = Credentials::default().issuing(vec![issue()], None);
        let answer = format!("{{\"access_token\": \"{ACCESS}\"}}");
        assert!(alone.catch(&issue(), answer.as_bytes()).is_err());
        assert!(credentials.catch(&issue(), answer.as_bytes()).is_ok());
    }

    #[test]
    fn issuer_refusal_shows_standard_error_only() {
        for (answer, word) in [
            (
                "{\"error\": \"authorization_pending\", \"interval\": 5}",
                "authorization_pending",
            ),
            ("{\"error\": \"c4n4ryOfTh1s\"}", "invalid_request"),
            (
                "{\"error\": {\"code\": \"c4n4ryOfTh1s\"}}",
                "invalid_request",
            ),
            ("c4n4ryOfTh1s", "invalid_request"),
        ] {
            let told = String::from_utf8(why_not_issued(answer.as_bytes())).unwrap();
            assert!(told.contains(word) && !told.contains("c4n4ry"), "{told}");
            assert_eq!(
                told.contains("\"interval\":5"),
                answer.contains("interval"),
                "{told}"
            );
        }
    }
}
