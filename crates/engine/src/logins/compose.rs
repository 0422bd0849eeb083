//! A login file that a sandboxed agent has written, with the real tokens in place of their
//! placeholders.

use std::cell::RefCell;
use std::collections::BTreeMap;

use atoll_egress::secret::stand_in;
use atoll_model::network::{Endpoint, FieldPath, IssuedToken};
use atoll_policy::Login;
use zeroize::Zeroizing;

use super::merge::{Own, without};
use crate::supervision::CaughtToken;

/// The port that an address of https:// does not have to name.
const HTTPS: u16 = 443;
/// The shape of the beginning of a time (RFC 3339).
const TIME: &str = "0000-00-00T00:00:00";
/// The longest text in it that is none of the tokens, bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// The members a profile allows in a login file: of members that name the issuer or the client, no
/// others are written. The sandboxed agent could be anyone, and these members decide to whom an
/// agent on the host sends its real tokens.
pub struct Named<'a> {
    /// The issuer of its tokens.
    pub issuer: &'a Endpoint,
    /// The clients that may ask for its tokens.
    pub clients: Vec<&'a str>,
    /// The scopes its tokens may name, although these read like addresses.
    pub scopes: &'a [String],
    /// The members left out of its file.
    pub without: &'a [FieldPath],
    /// The members of its file that belong to it.
    pub own: Own<'a>,
}

impl Named<'_> {
    /// Returns whether a text at this place may be written as it is. A host or an address has to be
    /// that of the issuer, a client that of the profile.
    fn admits(&self, names: &[String], value: &str) -> bool {
        let plain = |name: &String| name.to_lowercase().replace(['_', '-'], "");
        match names.last().map(plain).as_deref() {
            Some("issuer" | "iss") => self.is_issuer(value),
            Some("client" | "clientid") => self.clients.contains(&value),
            Some("scope" | "scopes") => value
                .split(' ')
                .all(|one| !leads_somewhere(one) || self.scopes.iter().any(|named| named == one)),
            Some(_) | None => !leads_somewhere(value) || self.is_issuer(value),
        }
    }

    fn is_issuer(&self, value: &str) -> bool {
        let (host, port) = (&self.issuer.host, self.issuer.port);
        let with_port = format!("https://{host}:{port}");
        let value = value.strip_suffix('/').unwrap_or(value);
        value == with_port || port == HTTPS && value == format!("https://{host}")
    }
}

/// Returns whether anyone could read a text as an address, or as a host.
fn leads_somewhere(value: &str) -> bool {
    let is_mark = |letter: char| !letter.is_ascii() || "/\\@?#%[]".contains(letter);
    // A time has a fraction, and nothing of a name before it: 2026-05-04T10:11:12.345Z.
    let is_time = value.len() > TIME.len()
        && value
            .bytes()
            .zip(TIME.bytes())
            .all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                form => byte == form,
            })
        && value
            .bytes()
            .skip(TIME.len())
            .all(|byte| byte.is_ascii_digit() || b".:+-Z".contains(&byte));
    let named = || {
        let host = value.split(':').next().unwrap_or_default();
        value.contains('.') || host.eq_ignore_ascii_case("localhost")
    };
    let is_number = || {
        let hexadecimal = value
            .strip_prefix("0x")
            .or_else(|| value.strip_prefix("0X"));
        hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    // Further colons are those of an address of IPv6.
    let is_address = || value.parse::<std::net::IpAddr>().is_ok();
    let has_port = || {
        let port = value.split_once(':').map(|(_, port)| port);
        port.is_some_and(|port| port.parse::<u16>().is_ok())
    };
    value.contains(is_mark) || !is_time && (named() || is_number() || is_address() || has_port())
}

/// Injects the tokens: each is the whole text of its own field. Any other text has to be one that
/// the login keeps, of its own members, and that leads to no other host; numbers that it does not
/// keep are 0.
///
/// # Errors
/// When the file is no such login file; the message contains nothing of it.
pub fn composed(
    file: &[u8],
    login: &Login,
    (fields, named): (&BTreeMap<IssuedToken, FieldPath>, &Named<'_>),
    tokens: &[CaughtToken],
) -> Result<Zeroizing<Vec<u8>>, String> {
    let file = &without(file, named.without)?;
    let used = RefCell::new(Vec::<IssuedToken>::new());
    let known = &mut |names: &[String], value: &[u8]| {
        let stands = |one: &&CaughtToken| one.stands.as_bytes() == value;
        let place = || names.join(".");
        let Some(caught) = tokens.iter().find(stands) else {
            let is_plain = value.len() <= TEXT_BYTES_MAX && !value.iter().any(u8::is_ascii_control);
            if !named.own.keeps(names) || !is_plain {
                return Err(format!(
                    "the text of {} is neither a token that was given nor one that is kept",
                    place()
                ));
            }
            let text = std::str::from_utf8(value).map_err(|error| error.to_string())?;
            return match named.admits(names, text) {
                true => Ok(None),
                false => Err(format!(
                    "the text of {} names a host, an address or a client other than the profile \
                     does: an agent outside could send the login's real tokens there",
                    place()
                )),
            };
        };
        let own = fields.get(&caught.token);
        if !own.is_some_and(|field| field.leads_along(names)) {
            return Err(format!("{} has a token that is not for it", place()));
        }
        used.borrow_mut().push(caught.token);
        Ok(Some(caught.real.to_string()))
    };
    let made = stand_in(file, &login.keep, &[], known).map_err(|unfit| unfit.to_string())?;
    let made = Zeroizing::new(made);
    match used.borrow().contains(&IssuedToken::Access) {
        true => Ok(made),
        false => Err("it has no access token of those that were given".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANDS: &str = "sk-ant-oat01-st4nd5F0rTh3TokenThatWasG1ven";
    const REAL: &str = "sk-ant-oat01-r3alK3yOfTh1sT3stWh1chN0bodyM";
    const RENEWS: &str = "sk-ant-ort01-st4nd5F0rTh3TokenThatRen3ws1t";

    fn token(token: IssuedToken, stands: &str, real: &str) -> CaughtToken {
        CaughtToken {
            token,
            stands: stands.to_owned(),
            real: Zeroizing::new(real.to_owned()),
        }
    }

    fn of(file: &str) -> Result<String, String> {
        let path = |text: &str| text.parse().unwrap();
        let fields = [
            (IssuedToken::Access, path("tokens.access")),
            (IssuedToken::Refresh, path("tokens.refresh")),
        ];
        let login = Login {
            name: "agent".parse().unwrap(),
            file: "/home/ann/.agent/auth.json".into(),
            keep: [
                "mode",
                "tokens.expires",
                "tokens.from.issuer",
                "tokens.from.client_id",
                "tokens.said",
                "tokens.scope",
                "*.kind",
            ]
            .map(path)
            .to_vec(),
            claims: Vec::new(),
            holds: atoll_policy::Holds::Login,
            optional: true,
            issue: None,
        };
        let tokens = [
            token(IssuedToken::Access, STANDS, REAL),
            token(
                IssuedToken::Refresh,
                RENEWS,
                "sk-ant-ort01-an0th3rOfTh1sT3stWh1chN0body",
            ),
        ];
        let fields = BTreeMap::from(fields);
        let named = Named {
            issuer: &"https://login.example.com/oauth/token".parse().unwrap(),
            clients: vec!["app_1"],
            scopes: &["https://www.example.com/auth/cloud".to_owned()],
            without: &[path("tokens.account"), path("who.is")],
            own: Own::of(&login, &fields),
        };
        let made = composed(file.as_bytes(), &login, (&fields, &named), &tokens)?;
        Ok(String::from_utf8(made.to_vec()).unwrap())
    }

    #[test]
    fn tokens_are_put_into_their_own_fields_alone() {
        let made = of(&format!(
            "{{\"mode\": \"chat\", \"key\": null, \"tokens\": {{\"access\": \"{STANDS}\", \"refresh\": \
             \"{RENEWS}\", \"expires\": 1900000000, \"other\": 17}}}}"
        ));
        let read: serde_json::Value = serde_json::from_str(&made.unwrap()).unwrap();
        assert_eq!(read["tokens"]["access"], REAL);
        assert_eq!(read["tokens"]["expires"], 1_900_000_000);
        assert_eq!(
            (&read["mode"], &read["tokens"]["other"]),
            (&"chat".into(), &0.into())
        );
        let inner = |text: &str| format!("{{\"tokens\": {{\"access\": \"{STANDS}\"{text}}}}}");
        assert!(of(&inner("")).is_ok());
        for wrong in [
            // In the place of another, elsewhere, in pieces, within something, or twice.
            format!("{{\"tokens\": {{\"refresh\": \"{STANDS}\"}}}}"),
            inner(&format!(", \"refresh\": \"{STANDS}\"")),
            format!("{{\"mode\": \"{STANDS}\"}}"),
            inner(&format!(
                "}}, \"mode\": {{\"access\": \"{STANDS}\"}}, \"x\": {{\"y\": null"
            )),
            inner(&format!(
                "}}, \"mode\": \"x{STANDS}\", \"x\": {{\"y\": null"
            )),
            format!("{{\"tokens\": {{\"access\": \" {STANDS}\"}}}}"),
            format!(
                "{{\"tokens\": {{\"access\": [\"{}\", \"{}\"]}}}}",
                &STANDS[..20],
                &STANDS[20..]
            ),
            inner(&format!(", \"access\": \"{STANDS}\"")),
            // Another text, a key that was typed, none at all, no JSON.
            inner(", \"other\": \"something\""),
            inner("}, \"OPENAI_API_KEY\": \"sk-typed0123456789abcdef\", \"x\": {\"y\": null"),
            inner(&format!(
                "}}, \"mode\": \"{}\", \"x\": {{\"y\": null",
                "x".repeat(2000)
            )),
            format!("{{\"tokens\": {{\"refresh\": \"{RENEWS}\"}}}}"),
            "{}".to_owned(),
            "no JSON".to_owned(),
        ] {
            let made = of(&wrong);
            assert!(
                made.as_ref().is_err_and(|why| !why.contains(REAL)),
                "{wrong}: {made:?}"
            );
        }
    }

    #[test]
    fn what_a_profile_leaves_out_is_not_written_whatever_it_is() {
        for (inner, outer) in [
            ("\"account\": \"8d5a2f3e-0000-4000\"", ""),
            (
                "\"account\": \"https://evil.example\"",
                ", \"mode\": \"chat\"",
            ),
            (
                "\"account\": {\"any\": [\"thing\"]}",
                ", \"who\": {\"is\": \"ann\"}",
            ),
        ] {
            let file = format!("{{\"tokens\": {{{inner}, \"access\": \"{STANDS}\"}}{outer}}}");
            let made = of(&file).unwrap();
            let read: serde_json::Value = serde_json::from_str(&made).unwrap();
            assert_eq!(
                read["tokens"],
                serde_json::json!({"access": REAL}),
                "{made}"
            );
            assert!(!made.contains("ann") && !made.contains("evil"), "{made}");
            // The control: by another name it is refused.
            let other = file.replace("account", "accounts");
            assert!(of(&other).is_err(), "{other}");
        }
        // Elsewhere, and beside another of its name.
        for wrong in [
            format!("{{\"tokens\": {{\"access\": \"{STANDS}\"}}, \"account\": \"ann\"}}"),
            format!("{{\"tokens\": {{\"access\": \"{STANDS}\", \"account\": 1, \"account\": 2}}}}"),
            format!("{{\"tokens\": {{\"account\": \"{STANDS}\"}}}}"),
        ] {
            assert!(of(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_kept_leads_to_nobody_whom_the_profile_does_not_name() {
        let with = |text: &str| {
            of(&format!(
                "{{\"tokens\": {{\"access\": \"{STANDS}\", {text}}}}}"
            ))
        };
        for good in [
            "\"from\": {\"issuer\": \"https://login.example.com\", \"client_id\": \"app_1\"}",
            "\"from\": {\"issuer\": \"https://login.example.com/\"}",
            "\"from\": {\"issuer\": \"https://login.example.com:443\"}",
            "\"said\": \"https://login.example.com\"",
            "\"said\": \"chatgpt\"",
            "\"scope\": \"openid https://www.example.com/auth/cloud profile\"",
            "\"said\": \"8d5a2f3e-0000-4000-8000-0123456789ab\"",
            "\"said\": \"user:inference\"",
            "\"said\": \"2026-05-04T10:11:12.345678Z\"",
            "\"said\": \"2026-05-04T10:11:12.3+02:00\"",
            "\"kind\": \"oauth\"",
        ] {
            assert!(with(good).is_ok(), "{good}: {:?}", with(good));
        }
        for bad in ["issuer", "said", "client_id"]
            .into_iter()
            .flat_map(|name| {
                [
                    "https://evil.example",
                    "https://evil.example/oauth/token",
                    "https://login.example.com.evil.example",
                    "https://login.example.com@evil.example",
                    "https://login.example.com/other",
                    "https://login.example.com:8443",
                    "http://login.example.com",
                    "//evil.example",
                    "evil.example",
                    "evil.example:8443",
                    "evil:8443",
                    "localhost",
                    "192.0.2.1",
                    "0x7f000001",
                    "::1",
                    "[2001:db8::1]",
                    "ann@evil.example",
                    "\u{0435}vil",
                    "2026-05-04T10:11:12.evil.example",
                ]
                .map(|value| match name {
                    "said" => format!("\"said\": \"{value}\""),
                    name => format!("\"from\": {{\"{name}\": \"{value}\"}}"),
                })
            })
        {
            let made = with(&bad);
            assert!(
                made.as_ref().is_err_and(|why| why.contains("names a host")),
                "{bad}: {made:?}"
            );
        }
        // Another client, and an issuer that is a word.
        for bad in ["\"client_id\": \"app_2\"", "\"issuer\": \"evil\""] {
            assert!(with(&format!("\"from\": {{{bad}}}")).is_err(), "{bad}");
        }
        // Of what tokens are good for that alone which is named, and nowhere else.
        for bad in [
            "\"scope\": \"openid https://evil.example/auth/cloud\"",
            "\"scope\": \"https://www.example.com/auth/cloud/more\"",
            "\"said\": \"https://www.example.com/auth/cloud\"",
        ] {
            assert!(with(bad).is_err(), "{bad}");
        }
        // What is kept of all is kept here of what belongs to this login.
        let made = of(&format!(
            "{{\"tokens\": {{\"access\": \"{STANDS}\"}}, \"other\": {{\"kind\": \"oauth\"}}}}"
        ));
        assert!(made.is_err_and(|why| why.contains("neither a token")));
    }
}
