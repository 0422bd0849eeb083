//! Requests signed with placeholders, signed anew.

use atoll_model::network::{
    Binding, Conditions, Destination as Allowed, HostPart, Others, Request as Judged, Scheme,
    SignatureScope, Target,
};
use hyper::Request;

use super::super::{Injection, ask_for_readable};
use super::*;
use crate::destination::Destination;

const ID: &str = "AKIAPLACEHOLDER00001";
const SECRET: &str = "aPlaceholderSecret/OfForty+CharactersInA";
const TOKEN: &str = "FwoGPlaceholder/token+thatIsNotReal1==";
const REAL_ID: &str = "AKIAREALREALREAL0001";
const REAL_SECRET: &str = "ThRealVeryOwnSecre/tThatIs+KeptAwayFromU";
const REAL_TOKEN: &str = "FwoGqX81zLmN0pQ/8vWxY+3kJ5hG7fD9sA2b==";
const HOST_NAME: &str = "s3.eu-west-1.amazonaws.com";

fn credentials() -> Credentials {
    let binding = binding();
    Credentials::of_parts(vec![
        (binding.clone(), Part::KeyId, ID, REAL_ID),
        (binding.clone(), Part::Secret, SECRET, REAL_SECRET),
        (binding, Part::Token, TOKEN, REAL_TOKEN),
    ])
}

fn binding() -> Binding {
    Binding {
        name: "aws".parse().unwrap(),
        to: vec![format!("{HOST_NAME}:443").parse::<Allowed>().unwrap()],
        requests: Conditions {
            scheme: Some(Scheme::Https),
            ..Default::default()
        },
        others: Others::Refused,
        place: Place::SigV4(SignatureScope {
            regions: vec!["eu-west-1".to_owned()],
            services: vec!["s3".to_owned()],
        }),
    }
}

/// Returns the current time as signatures write it.
fn time() -> String {
    let now = time::OffsetDateTime::now_utc();
    format!(
        "{}{:02}{:02}T{:02}{:02}{:02}Z",
        now.year(),
        u8::from(now.month()),
        now.day(),
        now.hour(),
        now.minute(),
        now.second()
    )
}

struct Made {
    target: String,
    headers: Vec<(String, String)>,
    time: String,
}

const PAYLOAD: &str = "UNSIGNED-PAYLOAD";

/// Signs a request as a program does, in its header.
fn signed(target: &str, id: &str, secret: &str, scope: &str) -> Made {
    signed_with(target, id, secret, scope, &[])
}

/// Signs a request with further signed headers.
fn signed_with(target: &str, id: &str, secret: &str, scope: &str, more: &[(&str, &str)]) -> Made {
    let time = time();
    let mut headers = vec![
        ("host".to_owned(), HOST_NAME.to_owned()),
        ("x-amz-content-sha256".to_owned(), PAYLOAD.to_owned()),
        ("x-amz-date".to_owned(), time.clone()),
        ("x-amz-security-token".to_owned(), TOKEN.to_owned()),
    ];
    let more = more.iter();
    headers.extend(more.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    headers.sort();
    let mut made = Made {
        target: target.to_owned(),
        headers,
        time,
    };
    let names: Vec<String> = made.headers.iter().map(|(name, _)| name.clone()).collect();
    let scope = Scope::parse(&scope.replace("DAY", &made.time[..8])).unwrap();
    let signature = signature(&made, &names, secret, &scope);
    let value = format!(
        "{ALGORITHM} Credential={id}/{}, SignedHeaders={}, Signature={signature}",
        scope.text(),
        names.join(";")
    );
    made.headers.push(("authorization".to_owned(), value));
    made
}

use super::super::sigv4::Scope;

fn signature(made: &Made, names: &[String], secret: &str, scope: &Scope) -> String {
    let parts = made.parts();
    let signable = Signable {
        method: "GET",
        target: &made.target,
        headers: &parts.headers,
        host: HOST_NAME,
        signed: names,
        payload: PAYLOAD,
        time: &made.time,
        scope,
    };
    signable.sign(secret.as_bytes(), Canonicalization::SENT)
}

impl Made {
    fn parts(&self) -> Parts {
        let mut request = Request::builder().uri(&self.target);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(()).unwrap().into_parts().0
    }

    /// Returns what is sent of it, or why nothing is.
    fn sent(&self, host: &str) -> Result<(String, HeaderMap), String> {
        let sent = self.sent_by(host, &credentials(), None)?;
        Ok(sent.unwrap())
    }

    /// Returns what is sent of it with these credentials, of which a key may have been fetched;
    /// `None` if it cannot be signed.
    fn sent_by(
        &self,
        host: &str,
        credentials: &Credentials,
        key: Option<Values>,
    ) -> Result<Option<(String, HeaderMap)>, String> {
        let host: HostPart = host.parse().unwrap();
        let wanted = Destination {
            host: host.clone(),
            port: 443,
        };
        let asked = Origin::new(&wanted, Scheme::Https).unwrap();
        let parts = self.parts();
        let target = Target::parse(&self.target).unwrap();
        let judged = Judged {
            host: &host,
            port: 443,
            scheme: Scheme::Https,
            method: "GET",
            target: &target,
        };
        let injection = Injection::of(credentials, &judged, &parts);
        let mut injection = injection.map_err(|misuse| misuse.why)?;
        let written = target.as_written().to_owned();
        let head = Head {
            target,
            is_web_socket: false,
            confidence: None,
        };
        let mut headers = parts.headers.clone();
        let Some(signing) = injection.signing() else {
            return Ok(Some((written, headers)));
        };
        assert_eq!(signing.needs(), VerificationInput::Nothing);
        // Nothing is signed before it is known who signed it.
        let unproven = signing.sign(credentials, &asked, "GET", &written, &mut headers.clone());
        assert!(unproven.is_none());
        let proven = signing.prove(credentials, &asked, &parts, &head, b"");
        proven.map_err(|misuse| misuse.why)?;
        // As whatever is sent with credentials.
        ask_for_readable(&mut headers, None);
        signing.key = key;
        let target = signing.sign(credentials, &asked, "GET", &written, &mut headers);
        Ok(target.map(|signed| (signed.target, headers)))
    }
}

const SCOPE: &str = "DAY/eu-west-1/s3/aws4_request";

fn real_scope(made: &Made) -> Scope {
    Scope::parse(&SCOPE.replace("DAY", &made.time[..8])).unwrap()
}

#[test]
fn signed_request_is_signed_anew() {
    let target = "/bucket/key%20a?prefix=a%2Fb&list-type=2";
    let made = signed(target, ID, SECRET, SCOPE);
    let (sent, headers) = made.sent(HOST_NAME).unwrap();
    assert_eq!(sent, target);
    let with = |value: &str| {
        let mut made = signed(target, REAL_ID, REAL_SECRET, SCOPE);
        made.headers.retain(|(name, _)| name != "authorization");
        for (name, own) in &mut made.headers {
            if name == "x-amz-security-token" {
                *own = value.to_owned();
            }
        }
        made
    };
    let mut expected = with(REAL_TOKEN);
    expected.time.clone_from(&made.time);
    for (name, own) in &mut expected.headers {
        if name == "x-amz-date" {
            own.clone_from(&made.time);
        }
    }
    let names: Vec<String> = expected
        .headers
        .iter()
        .map(|(name, _)| name.clone())
        .collect();
    let signature = signature(&expected, &names, REAL_SECRET, &real_scope(&made));
    let value = format!(
        "{ALGORITHM} Credential={REAL_ID}/{}, SignedHeaders={}, Signature={signature}",
        real_scope(&made).text(),
        names.join(";")
    );
    assert_eq!(headers["authorization"], value);
    assert_eq!(headers["x-amz-security-token"], REAL_TOKEN);
    assert!(headers["authorization"].is_sensitive());
}

#[test]
fn presigned_request_is_signed_anew() {
    let time = time();
    let scope = SCOPE.replace("DAY", &time[..8]);
    let unsigned = |id: &str, token: &str| {
        format!(
            "/bucket/key?X-Amz-Algorithm={ALGORITHM}&X-Amz-Credential={}&X-Amz-Date={time}&X-Amz-Expires=60&\
             X-Amz-Security-Token={}&X-Amz-SignedHeaders=host",
            escaped(format!("{id}/{scope}").as_bytes()),
            escaped(token.as_bytes())
        )
    };
    let made = |target: String| Made {
        target,
        headers: vec![("host".to_owned(), HOST_NAME.to_owned())],
        time: time.clone(),
    };
    let names = ["host".to_owned()];
    let of = |target: &str, secret: &str| {
        let made = made(target.to_owned());
        let signature = signature(&made, &names, secret, &real_scope(&made));
        format!("{target}&X-Amz-Signature={signature}")
    };
    let inside = of(&unsigned(ID, TOKEN), SECRET);
    let (sent, _) = made(inside.clone()).sent(HOST_NAME).unwrap();
    assert_eq!(sent, of(&unsigned(REAL_ID, REAL_TOKEN), REAL_SECRET));
    let changed = made(inside.replace("/key?", "/other?")).sent(HOST_NAME);
    assert!(changed.unwrap_err().contains("not of this request"));
    let long = made(inside.replace("Expires=60&", "Expires=61&")).sent(HOST_NAME);
    assert!(long.unwrap_err().contains("not of this request"));
}

fn printed() -> Credentials {
    let all = [
        (Part::KeyId, ID),
        (Part::Secret, SECRET),
        (Part::Token, TOKEN),
    ];
    Credentials::of_printed(&binding(), &all)
}

#[test]
fn signing_uses_fetched_key_only() {
    let made = signed("/bucket/key", ID, SECRET, SCOPE);
    assert!(made.sent_by(HOST_NAME, &printed(), None).unwrap().is_none());
    let pair = [(Part::KeyId, REAL_ID), (Part::Secret, REAL_SECRET)];
    for token in [Some(REAL_TOKEN), None] {
        let all: Vec<_> = pair
            .into_iter()
            .chain(token.map(|token| (Part::Token, token)))
            .collect();
        let sent = made.sent_by(HOST_NAME, &printed(), Some(Values::of(&all)));
        let (_, headers) = sent.unwrap().unwrap();
        let mut expected = Made {
            target: made.target.clone(),
            headers: made.headers.clone(),
            time: made.time.clone(),
        };
        expected
            .headers
            .retain(|(name, value)| name != "authorization" && (token.is_some() || value != TOKEN));
        for (_, value) in &mut expected.headers {
            if value == TOKEN {
                REAL_TOKEN.clone_into(value);
            }
        }
        let names = expected.headers.iter().map(|(name, _)| name.clone());
        let names: Vec<String> = names.collect();
        let scope = real_scope(&made);
        let signature = signature(&expected, &names, REAL_SECRET, &scope);
        let value = format!(
            "{ALGORITHM} Credential={REAL_ID}/{}, SignedHeaders={}, Signature={signature}",
            scope.text(),
            names.join(";")
        );
        assert_eq!(headers["authorization"], value);
        let sent = headers.get("x-amz-security-token");
        assert_eq!(sent.map(|value| value.to_str().unwrap()), token);
        assert_eq!(value.contains("x-amz-security-token"), token.is_some());
    }
    // Another one beside what stands for it is not what is left.
    let credentials = printed();
    let token = credentials.iter().find(|held| held.part == Part::Token);
    let mut headers = HeaderMap::new();
    headers.append(claim::TOKEN_HEADER, HeaderValue::from_static(TOKEN));
    assert!(put_token(token.unwrap(), None, &mut headers.clone()).is_some());
    headers.append(claim::TOKEN_HEADER, HeaderValue::from_static("its-own"));
    assert!(put_token(token.unwrap(), None, &mut headers).is_none());
}

#[test]
fn presigned_token_absent_from_key_is_dropped() {
    let time = time();
    let scope = SCOPE.replace("DAY", &time[..8]);
    let unsigned = |id: &str, token: &str| {
        format!(
            "/bucket/key?X-Amz-Algorithm={ALGORITHM}&X-Amz-Credential={}&X-Amz-Date={time}&X-Amz-Expires=60&\
             {token}X-Amz-SignedHeaders=host",
            escaped(format!("{id}/{scope}").as_bytes()),
        )
    };
    let made = |target: String| Made {
        target,
        headers: vec![("host".to_owned(), HOST_NAME.to_owned())],
        time: time.clone(),
    };
    let of = |target: &str, secret: &str| {
        let made = made(target.to_owned());
        let signature = signature(&made, &["host".to_owned()], secret, &real_scope(&made));
        format!("{target}&X-Amz-Signature={signature}")
    };
    let token = format!("X-Amz-Security-Token={}&", escaped(TOKEN.as_bytes()));
    let inside = made(of(&unsigned(ID, &token), SECRET));
    let key = Values::of(&[(Part::KeyId, REAL_ID), (Part::Secret, REAL_SECRET)]);
    let sent = inside.sent_by(HOST_NAME, &printed(), Some(key));
    let (sent, _) = sent.unwrap().unwrap();
    assert_eq!(sent, of(&unsigned(REAL_ID, ""), REAL_SECRET));
}

#[test]
fn signature_covers_headers_as_sent() {
    let more = [
        ("accept-encoding", "br, lzma"),
        ("if-range", "\"1\""),
        ("range", "bytes=0-3"),
    ];
    let target = "/bucket/key";
    let made = signed_with(target, ID, SECRET, SCOPE, &more);
    let said = |value: &str| value.contains("accept-encoding;host;if-range;range;x-amz-");
    assert!(said(&made.headers.last().unwrap().1));
    let (sent, headers) = made.sent(HOST_NAME).unwrap();
    assert!(!headers.contains_key("range") && !headers.contains_key("if-range"));
    let coding = headers["accept-encoding"].to_str().unwrap();
    assert_ne!(coding, "br, lzma");
    let mut expected = Made {
        target: sent,
        headers: made.headers.clone(),
        time: made.time.clone(),
    };
    expected
        .headers
        .retain(|(name, _)| !["authorization", "range", "if-range"].contains(&name.as_str()));
    for (name, value) in &mut expected.headers {
        match name.as_str() {
            "accept-encoding" => coding.clone_into(value),
            "x-amz-security-token" => REAL_TOKEN.clone_into(value),
            _ => {}
        }
    }
    let names = expected.headers.iter().map(|(name, _)| name.clone());
    let names: Vec<String> = names.collect();
    let scope = real_scope(&made);
    let signature = signature(&expected, &names, REAL_SECRET, &scope);
    let value = format!(
        "{ALGORITHM} Credential={REAL_ID}/{}, SignedHeaders={}, Signature={signature}",
        scope.text(),
        names.join(";")
    );
    assert_eq!(headers["authorization"], value);
    assert!(value.contains("SignedHeaders=accept-encoding;host;x-amz-content-sha256;"));
}

#[test]
fn signed_body_gets_no_injection() {
    let key = credentials();
    let mut binding = key.get(0).unwrap().binding.clone();
    binding.name = "field".parse().unwrap();
    binding.place = Place::Body("key".to_owned());
    let field = Credentials::of(vec![(
        binding,
        "ghp_placeholder00000000000000000",
        "ghp_7a4Kq0Zt9mXw2RbV5cY8uP1sD3fG",
    )]);
    let field = field.get(0).unwrap();
    let real = field.given().unwrap();
    let made = signed("/bucket/key", ID, SECRET, SCOPE);
    let host: HostPart = HOST_NAME.parse().unwrap();
    let target = Target::parse(&made.target).unwrap();
    let judged = Judged {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method: "GET",
        target: &target,
    };
    let mut injection = Injection::of(&key, &judged, &made.parts()).unwrap();
    let refused = injection.add(3, field, real).unwrap_err();
    assert!(
        refused.why.contains("a request that is signed"),
        "{refused:?}"
    );
    let mut unsigned = Injection::default();
    assert!(unsigned.add(3, field, real).is_ok());
}

#[test]
fn signing_unsigned_change_is_refused() {
    let target = "/bucket/key";
    let refused = |made: &Made, why: &str| {
        let refused = made.sent(HOST_NAME).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    };
    let right = || signed(target, ID, SECRET, SCOPE);
    assert!(right().sent(HOST_NAME).is_ok());
    let other = right().sent("s3.eu-west-2.amazonaws.com");
    assert!(other.unwrap_err().contains("another host than it is for"));
    for (scope, why) in [
        ("DAY/us-east-1/s3/aws4_request", "the region \"us-east-1\""),
        ("DAY/eu-west-1/iam/aws4_request", "the service \"iam\""),
    ] {
        refused(&signed(target, ID, SECRET, scope), why);
    }
    // By whom, and of what.
    refused(
        &signed(target, ID, "another-secret", SCOPE),
        "not of this request",
    );
    // The older version, which boto3 still makes URLs of.
    let mut made = right();
    made.target = format!("{target}?AWSAccessKeyId={ID}&Signature=a%2Bb%3D&Expires=1");
    made.headers.retain(|(name, _)| name == "host");
    refused(&made, "is in a signature of version 2 (boto3");
    let mut made = right();
    made.target = "/bucket/other".to_owned();
    refused(&made, "not of this request");
    let mut made = right();
    made.headers[1].1 =
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".to_owned();
    refused(&made, "not of this request");
    // The secret is never sent, the token not without the key, neither elsewhere.
    for (name, value, why) in [
        ("x-key", SECRET, "is in the header x-key"),
        (
            "authorization",
            &format!("Bearer {SECRET}"),
            "is in the header authorization",
        ),
        ("x-key", ID, "is in the header x-key"),
        (
            "authorization",
            &format!("AWS {ID}:signature"),
            "is in the header authorization",
        ),
        ("x-amz-security-token", TOKEN, "not signed with its key"),
        ("x-key", TOKEN, "is in the header x-key"),
    ] {
        let made = Made {
            target: target.to_owned(),
            headers: vec![(name.to_owned(), value.to_owned())],
            time: time(),
        };
        refused(&made, why);
    }
    for target in [
        format!("/{SECRET}"),
        format!("/?AWSAccessKeyId={ID}"),
        format!("/?X-Amz-Security-Token={}", escaped(TOKEN.as_bytes())),
    ] {
        let made = Made {
            target,
            headers: Vec::new(),
            time: time(),
        };
        assert!(made.sent(HOST_NAME).is_err());
    }
    let mut made = right();
    made.headers.push(("x-copy".to_owned(), ID.to_owned()));
    refused(&made, "is in the header x-copy");
    // A key of the program's own is its own matter.
    let made = signed(target, "AKIAOFTHEPROGRAM0001", "its-own", SCOPE);
    assert!(
        made.sent(HOST_NAME)
            .unwrap_err()
            .contains("not signed with its key")
    );
    let mut made = signed(target, "AKIAOFTHEPROGRAM0001", "its-own", SCOPE);
    made.headers
        .retain(|(name, _)| name != "x-amz-security-token");
    assert!(made.sent(HOST_NAME).is_ok());
}
