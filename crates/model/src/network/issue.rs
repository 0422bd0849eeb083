//! Endpoints that issue the logins of agents.

use serde::{Deserialize, Serialize};

use super::{
    CredentialName, Destination, Endpoint, HostPart, HostPattern, Ports, Request, Scheme, Target,
};

/// The longest message about a captured token, bytes: its name, its placeholder, and its value.
pub const CAUGHT_BYTES_MAX: usize = 48 * 1024;

/// The deepest nesting of escapes that is decoded. A deeper one is refused.
const UNESCAPED_MAX: usize = 16;

/// The token endpoint of an agent's login (RFC 6749, 3.2). Real tokens in its answers never enter
/// the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issue {
    /// The login.
    pub login: CredentialName,
    /// The token endpoint.
    pub token: Endpoint,
    /// Claims of JSON Web Tokens that enter the sandbox unchanged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<String>,
    /// True if the login is made in this run, and its tokens captured. In any other run requests to
    /// the endpoint are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_caught: bool,
}

/// A token in an issuer's answer (RFC 6749, 5.1, and OpenID Connect Core, 3.1.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IssuedToken {
    /// The access token.
    Access,
    /// The refresh token.
    Refresh,
    /// The ID token, which identifies the person.
    Id,
}

impl IssuedToken {
    /// All tokens.
    pub const ALL: [Self; 3] = [Self::Access, Self::Refresh, Self::Id];

    /// Returns its member in an answer.
    #[must_use]
    pub fn member(self) -> &'static str {
        match self {
            Self::Access => "access_token",
            Self::Refresh => "refresh_token",
            Self::Id => "id_token",
        }
    }

    /// Returns the token of a member of an answer.
    #[must_use]
    pub fn of_member(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.member() == name)
    }
}

impl Issue {
    /// Returns whether a connection leads to the token endpoint's host.
    #[must_use]
    pub fn is_at(&self, host: &HostPart, port: u16) -> bool {
        *host == self.token.host && port == self.token.port
    }

    /// Returns whether a request is for the token endpoint, whatever its method: also by a path
    /// that a server may take for the same one.
    #[must_use]
    pub fn is_asked_by(&self, request: &Request<'_>) -> bool {
        let own = Target::parse(&self.token.target);
        let own = own.ok().and_then(|own| plain(own.path()));
        let is_its_path = || own.is_some() && own == plain(request.target.path());
        self.is_sent_to(request) && is_its_path()
    }

    /// Returns the reason, in words, why a request to the endpoint's host may be for tokens:
    /// servers read its path in more than one way.
    #[must_use]
    pub fn is_in_doubt(&self, request: &Request<'_>) -> Option<&'static str> {
        if !self.is_sent_to(request) {
            return None;
        }
        let is_deep = plain(request.target.path()).is_none();
        let deep = is_deep.then_some("it has escapes within escapes");
        request.target.unclear().or(deep)
    }

    fn is_sent_to(&self, request: &Request<'_>) -> bool {
        request.scheme == Scheme::Https && self.is_at(request.host, request.port)
    }
}

impl Destination {
    /// Returns the destination narrowed to one host and port, if it covers them.
    #[must_use]
    pub fn narrowed(&self, host: &HostPart, port: u16) -> Option<Self> {
        let host = match host {
            HostPart::Name(name) if self.leads_to(host, port) => HostPattern::Exact(name.clone()),
            // An address would be a block, in which no name is meant.
            HostPart::Name(_) | HostPart::Address(_) => return None,
        };
        let ports = Ports::Listed(vec![(port, port)]);
        Some(Self { host, ports })
    }
}

/// Decodes a path as the least careful server does. `None` if its escapes are nested too deep.
fn plain(path: &str) -> Option<String> {
    let path = unescaped(path)?.to_lowercase();
    // What is behind belongs to no path, or ends it where texts end with a NUL.
    let ends =
        |letter: char| letter.is_control() || letter.is_whitespace() || "?#".contains(letter);
    let path = path.split(ends).next().unwrap_or_default();
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split(['/', '\\']) {
        match part.split(';').next().unwrap_or_default() {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Decodes escapes (RFC 3986, 2.1), also nested ones. `None` if they are nested too deep.
fn unescaped(text: &str) -> Option<String> {
    let mut text = text.to_owned();
    for _ in 0..UNESCAPED_MAX {
        match unescaped_once(&text) {
            Some(once) => text = once,
            None => return Some(text),
        }
    }
    None
}

/// Decodes one level of escapes. `None` if there is none.
fn unescaped_once(text: &str) -> Option<String> {
    let mut made = String::with_capacity(text.len());
    let mut rest = text;
    let mut any = false;
    while let Some((before, after)) = rest.split_once('%') {
        made.push_str(before);
        let digits = after
            .get(..2)
            .filter(|two| two.bytes().all(|one| one.is_ascii_hexdigit()));
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                any = true;
                made.push(char::from(byte));
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                made.push('%');
                rest = after;
            }
        }
    }
    made.push_str(rest);
    any.then_some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_known_by_every_way_to_write_its_path() {
        let issue = Issue {
            login: "agent".parse().unwrap(),
            token: "https://login.example.com/oauth/token".parse().unwrap(),
            claims: Vec::new(),
            is_caught: false,
        };
        let asked = |host: &str, port, scheme, target: &str| {
            let target = Target::parse(target).unwrap();
            issue.is_asked_by(&Request {
                host: &host.parse().unwrap(),
                port,
                scheme,
                method: "POST",
                target: &target,
            })
        };
        let host = "login.example.com";
        for same in [
            "/oauth/token",
            "/oauth/token?a=b",
            "/oauth/token/",
            "/oauth//token",
            "/OAuth/Token",
            "/oauth/%74oken",
            "/oauth/%2574oken",
            "/oauth%2ftoken",
            "/oauth/./token",
            "/oauth/other/../token",
            "/oauth/token;a=b",
            "/oauth/token%00",
            "/oauth/token%00.html",
            "/oauth/token%20",
            "/oauth/token%0a",
            "/oauth/token%09x",
            "/oauth/token%23x",
            "/oauth/token%3fx",
            "/oauth/token%253Fx=%252e%252e",
            "/oauth/%25252525252574oken",
        ] {
            assert!(asked(host, 443, Scheme::Https, same), "{same}");
        }
        for other in ["/oauth/tokens", "/oauth", "/", "/oauth/authorize"] {
            assert!(!asked(host, 443, Scheme::Https, other), "{other}");
        }
        assert!(!asked("example.com", 443, Scheme::Https, "/oauth/token"));
        assert!(!asked(host, 8443, Scheme::Https, "/oauth/token"));
        assert!(!asked(host, 443, Scheme::Http, "/oauth/token"));
        assert!(issue.is_at(&host.parse().unwrap(), 443));
        assert!(!issue.is_at(&host.parse().unwrap(), 8443));
        // What can be read in many ways is in doubt there, and nowhere else.
        let doubted = |host: &str, target: &str| {
            let target = Target::parse(target).unwrap();
            let request = Request {
                host: &host.parse().unwrap(),
                port: 443,
                scheme: Scheme::Https,
                method: "POST",
                target: &target,
            };
            issue.is_in_doubt(&request).is_some()
        };
        let deep = format!("/oauth/%{}74oken", "25".repeat(UNESCAPED_MAX));
        for unclear in [&deep, "/a/%2e%2e/b", "/a%00", "/a%2fb", "/oauth//x"] {
            assert!(doubted(host, unclear), "{unclear}");
            assert!(!doubted("example.com", unclear), "{unclear}");
        }
        for clear in [
            "/oauth/token",
            "/oauth/authorize?a=%2f",
            "/a%20b",
            "/%C3%A4",
        ] {
            assert!(!doubted(host, clear), "{clear}");
        }
    }
}
