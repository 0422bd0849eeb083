#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use atoll_store::{Role, Scope, Scopes};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair, RsaPublicKeyComponents,
};
use aws_lc_rs::{hmac, signature::RsaEncoding};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::keys::{Keys, NoKey, WAITERS_MAX};
use super::{Issuers, TOKEN_BYTES_MAX, check_key_files};
use crate::configuration::Issuer;
use crate::protocol::Kind;
use crate::worker::caller::Caller;

const ONE: &str = "https://one.example/realms/main";
const TWO: &str = "https://two.example";

/// The private keys of the tests: made once, for they take a while.
static RSA: LazyLock<RsaKeyPair> =
    LazyLock::new(|| RsaKeyPair::generate(KeySize::Rsa2048).unwrap());
static OTHER_RSA: LazyLock<RsaKeyPair> =
    LazyLock::new(|| RsaKeyPair::generate(KeySize::Rsa2048).unwrap());
static P256: LazyLock<EcdsaKeyPair> =
    LazyLock::new(|| EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap());
static P384: LazyLock<EcdsaKeyPair> =
    LazyLock::new(|| EcdsaKeyPair::generate(&signature::ECDSA_P384_SHA384_FIXED_SIGNING).unwrap());
static ED: LazyLock<Ed25519KeyPair> = LazyLock::new(|| Ed25519KeyPair::generate().unwrap());

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn rsa_signature(key: &RsaKeyPair, how: &'static dyn RsaEncoding, message: &[u8]) -> Vec<u8> {
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(how, &SystemRandom::new(), message, &mut signature)
        .unwrap();
    signature
}

fn ec_signature(key: &EcdsaKeyPair, message: &[u8]) -> Vec<u8> {
    let signature = key.sign(&SystemRandom::new(), message).unwrap();
    signature.as_ref().to_vec()
}

/// Signs a message as an algorithm does it, with the key of the tests for that.
fn signed(algorithm: &str, message: &[u8]) -> Vec<u8> {
    match algorithm {
        "RS256" => rsa_signature(&RSA, &signature::RSA_PKCS1_SHA256, message),
        "RS384" => rsa_signature(&RSA, &signature::RSA_PKCS1_SHA384, message),
        "RS512" => rsa_signature(&RSA, &signature::RSA_PKCS1_SHA512, message),
        "PS256" => rsa_signature(&RSA, &signature::RSA_PSS_SHA256, message),
        "PS384" => rsa_signature(&RSA, &signature::RSA_PSS_SHA384, message),
        "PS512" => rsa_signature(&RSA, &signature::RSA_PSS_SHA512, message),
        "ES256" => ec_signature(&P256, message),
        "ES384" => ec_signature(&P384, message),
        "EdDSA" => ED.sign(message).as_ref().to_vec(),
        other => panic!("{other}"),
    }
}

fn rsa_jwk(key: &RsaKeyPair, id: &str) -> Value {
    let public = RsaPublicKeyComponents::<Vec<u8>>::from(key.public_key());
    json!({ "kty": "RSA", "kid": id, "n": encoded(public.n), "e": encoded(public.e) })
}

fn ec_jwk(key: &EcdsaKeyPair, curve: &str, id: &str) -> Value {
    let point = &key.public_key().as_ref()[1..];
    let (x, y) = point.split_at(point.len() / 2);
    json!({ "kty": "EC", "crv": curve, "kid": id, "x": encoded(x), "y": encoded(y) })
}

fn ed_jwk() -> Value {
    let x = encoded(ED.public_key().as_ref());
    json!({ "kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": x })
}

fn jwk_set() -> Value {
    json!({ "keys": [
        rsa_jwk(&RSA, "rsa"), ec_jwk(&P256, "P-256", "p256"), ec_jwk(&P384, "P-384", "p384"),
        ed_jwk(),
    ] })
}

fn issuer(url: &str) -> Issuer {
    Issuer {
        url: url.to_owned(),
        audience: "atoll".to_owned(),
        keys: None,
        tenant: None,
        tenant_claim: None,
        roles_claim: None,
        roles: std::collections::BTreeMap::default(),
    }
}

fn keys(url: &str, set: &Value) -> Keys {
    let text = set.to_string().into_bytes();
    Keys::from_source(url, Arc::new(move || Ok(text.clone())))
}

/// Two issuers: the second has another key of the same id.
fn issuers_of(first: Issuer, set: &Value) -> Issuers {
    let second = json!({ "keys": [rsa_jwk(&OTHER_RSA, "rsa")] });
    Issuers {
        all: vec![(first, keys(ONE, set)), (issuer(TWO), keys(TWO, &second))],
    }
}

fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

fn claims() -> Value {
    json!({ "iss": ONE, "aud": "atoll", "sub": "s-1", "exp": now_s() + 60 })
}

/// Returns claims with others in their place; those that are null are left out.
fn with(changes: &Value) -> Value {
    let mut all = claims();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => all.as_object_mut().unwrap().remove(name),
            value => all
                .as_object_mut()
                .unwrap()
                .insert(name.clone(), value.clone()),
        };
    }
    all
}

/// Makes a token of texts, signed as the algorithm does it.
fn token_of(header: &str, claims: &str, algorithm: &str) -> String {
    let message = format!("{}.{}", encoded(header), encoded(claims));
    let signature = signed(algorithm, message.as_bytes());
    format!("{message}.{}", encoded(signature))
}

fn token(claims: &Value) -> String {
    let header = json!({ "alg": "ES256", "kid": "p256" });
    token_of(&header.to_string(), &claims.to_string(), "ES256")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

fn call(issuers: &Issuers, token: &str) -> Result<Caller, (Kind, String)> {
    let caller = runtime().block_on(issuers.caller(token));
    caller.map_err(|refusal| (refusal.kind, refusal.told()))
}

/// Has an issuer's token come, and returns the refusal.
fn refused(token: &str) -> String {
    let (kind, told) = call(&issuers_of(issuer(ONE), &jwk_set()), token).unwrap_err();
    assert_eq!(kind, Kind::Unauthenticated, "{told}");
    told
}

#[test]
fn each_algorithm_is_taken_with_its_own_key() {
    let issuers = issuers_of(issuer(ONE), &jwk_set());
    let rsa = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"].map(|name| (name, "rsa"));
    let others = [("ES256", "p256"), ("ES384", "p384"), ("EdDSA", "ed")];
    for (algorithm, id) in rsa.into_iter().chain(others) {
        for header in [
            json!({ "alg": algorithm, "kid": id }),
            json!({ "alg": algorithm, "typ": "at+jwt" }),
            json!({ "alg": algorithm, "kid": id, "typ": "application/JWT" }),
        ] {
            let token = token_of(&header.to_string(), &claims().to_string(), algorithm);
            let caller = call(&issuers, &token);
            assert!(caller.is_ok(), "{header}: {caller:?}");
        }
        // The same, one bit of the claims changed.
        let header = json!({ "alg": algorithm, "kid": id }).to_string();
        let token = token_of(&header, &claims().to_string(), algorithm);
        let (head, rest) = token.split_once('.').unwrap();
        let (_, signature) = rest.split_once('.').unwrap();
        let forged = encoded(with(&json!({ "sub": "s-2" })).to_string());
        let told = refused(&format!("{head}.{forged}.{signature}"));
        assert!(told.contains("signature is not one of"), "{told}");
    }
}

#[test]
fn a_caller_is_who_the_token_says() {
    let caller = call(
        &issuers_of(issuer(ONE), &jwk_set()),
        &token(&with(&json!({
            "email": "ana@example.com", "email_verified": true, "preferred_username": "ana",
        }))),
    );
    let caller = caller.unwrap();
    assert_eq!(caller.name, format!("ana@example.com via {ONE}"));
    assert_eq!(
        (caller.tenant.as_str(), caller.role),
        ("default", Role::User)
    );
    assert_eq!(caller.scopes, Scopes::All);
    for (changes, name) in [
        (
            json!({ "email": "a@b", "preferred_username": "ana@example.com" }),
            "s-1",
        ),
        (json!({ "email": "a@b", "email_verified": "true" }), "s-1"),
        (json!({ "email": "a@b", "email_verified": false }), "s-1"),
        (json!({ "email": "", "email_verified": true }), "s-1"),
        (json!({ "email": 7, "email_verified": true }), "s-1"),
        (json!({ "sub": "a\n\u{202e}b" }), "a\\n\\u{202e}b"),
    ] {
        let caller = call(
            &issuers_of(issuer(ONE), &jwk_set()),
            &token(&with(&changes)),
        );
        assert_eq!(
            caller.unwrap().name,
            format!("{name} via {ONE}"),
            "{changes}"
        );
    }
    let long = token(&with(&json!({ "sub": "é".repeat(500) })));
    let caller = call(&issuers_of(issuer(ONE), &jwk_set()), &long).unwrap();
    assert_eq!(caller.name, format!("{} via {ONE}", "é".repeat(100)));
}

#[test]
fn claims_that_do_not_fit_are_refused() {
    for (changes, why) in [
        (json!({ "aud": "other" }), "\"atoll\" is not in its aud"),
        (
            json!({ "aud": ["other", "atoll2"] }),
            "\"atoll\" is not in its aud",
        ),
        (json!({ "aud": [] }), "is not in its aud"),
        (json!({ "aud": { "atoll": 1 } }), "is not in its aud"),
        (json!({ "aud": null }), "is not in its aud"),
        (json!({ "exp": now_s() - 31 }), "has expired"),
        (json!({ "exp": 0 }), "has expired"),
        (json!({ "exp": -1 }), "has expired"),
        (json!({ "exp": null }), "it has no exp"),
        (json!({ "exp": "9999999999" }), "its exp is no time"),
        (json!({ "exp": [9_999_999_999_u64] }), "its exp is no time"),
        (json!({ "nbf": now_s() + 60 }), "is not valid for another"),
        (json!({ "nbf": "0" }), "its nbf is no time"),
        (
            json!({ "iss": "https://three.example" }),
            "\"https://three.example\" is not known",
        ),
        (json!({ "iss": format!("{ONE}/") }), "is not known"),
        (json!({ "iss": ONE.to_uppercase() }), "is not known"),
        (json!({ "iss": [ONE] }), "its iss is no text"),
        (json!({ "iss": null }), "it has no iss"),
        (json!({ "sub": null }), "it has no sub"),
        (json!({ "sub": "" }), "it has no sub"),
        (json!({ "sub": 1 }), "its sub is no text"),
        (json!({ "scope": 1 }), "its scope is no text"),
        (json!({ "scope": ["read", 1] }), "its scope is no text"),
    ] {
        let told = refused(&token(&with(&changes)));
        assert!(told.contains(why), "{changes}: {told}");
        assert!(!told.contains(TWO), "{told}");
    }
    for changes in [
        json!({ "aud": ["other", "atoll"] }),
        json!({ "exp": now_s() - 20 }),
        json!({ "nbf": now_s() + 20 }),
        json!({ "exp": now_s() as f64 + 0.5 }),
        json!({ "nbf": 0, "iat": now_s() + 1000 }),
    ] {
        let caller = call(
            &issuers_of(issuer(ONE), &jwk_set()),
            &token(&with(&changes)),
        );
        assert!(caller.is_ok(), "{changes}: {caller:?}");
    }
}

#[test]
fn forged_headers_are_refused() {
    let content = claims().to_string();
    let public = RSA.public_key().as_ref().to_vec();
    let own = rsa_jwk(&OTHER_RSA, "rsa");
    for (header, why) in [
        (json!({ "kid": "p256" }), "it has no alg"),
        (
            json!({ "alg": ["ES256"], "kid": "p256" }),
            "its alg is no text",
        ),
        (
            json!({ "alg": "es256", "kid": "p256" }),
            "is signed by \"es256\"",
        ),
        (
            json!({ "alg": "ES512", "kid": "p256" }),
            "is signed by \"ES512\"",
        ),
        (json!({ "alg": "ES256", "kid": 1 }), "its kid is no text"),
        (json!({ "alg": "ES256", "kid": "none" }), "has none such"),
        (
            json!({ "alg": "ES256", "kid": "../../etc/passwd" }),
            "has none such",
        ),
        // A key of another algorithm than its own.
        (json!({ "alg": "ES256", "kid": "p384" }), "has none such"),
        (json!({ "alg": "ES256", "kid": "rsa" }), "has none such"),
        (
            json!({ "alg": "ES256", "kid": "p256", "crit": ["exp"] }),
            "crit",
        ),
        (
            json!({ "alg": "ES256", "kid": "p256", "crit": null }),
            "crit",
        ),
        (
            json!({ "alg": "ES256", "kid": "p256", "typ": "logout+jwt" }),
            "\"logout+jwt\"",
        ),
        (
            json!({ "alg": "ES256", "kid": "p256", "typ": "dpop+jwt" }),
            "\"dpop+jwt\"",
        ),
    ] {
        let told = refused(&token_of(&header.to_string(), &content, "ES256"));
        assert!(told.contains(why), "{header}: {told}");
    }
    // No signature, in each spelling, with and without what would be one.
    for name in ["none", "None", "NONE", "nOnE", ""] {
        let header = encoded(json!({ "alg": name }).to_string());
        for signature in ["", "AAAA"] {
            let _ = refused(&format!("{header}.{}.{signature}", encoded(&content)));
        }
    }
    // The public key as a shared secret.
    for (name, algorithm) in [("HS256", hmac::HMAC_SHA256), ("HS512", hmac::HMAC_SHA512)] {
        let header = json!({ "alg": name, "kid": "rsa" }).to_string();
        let message = format!("{}.{}", encoded(header), encoded(&content));
        let tag = hmac::sign(&hmac::Key::new(algorithm, &public), message.as_bytes());
        let told = refused(&format!("{message}.{}", encoded(tag)));
        assert!(told.contains("is signed by \"HS"), "{told}");
    }
    // A key of the token's own, in it or at an address.
    for field in [
        json!({ "jwk": own }),
        json!({ "jku": "https://evil.example/keys" }),
        json!({ "x5u": "https://evil.example/keys" }),
        json!({ "x5c": ["AAAA"] }),
    ] {
        let mut header = json!({ "alg": "RS256", "kid": "rsa" });
        header
            .as_object_mut()
            .unwrap()
            .extend(field.as_object().unwrap().clone());
        let message = format!("{}.{}", encoded(header.to_string()), encoded(&content));
        let signature = rsa_signature(&OTHER_RSA, &signature::RSA_PKCS1_SHA256, message.as_bytes());
        let told = refused(&format!("{message}.{}", encoded(signature)));
        assert!(told.contains("signature is not one of"), "{told}");
    }
}

#[test]
fn a_key_of_one_issuer_signs_for_no_other() {
    let issuers = issuers_of(issuer(ONE), &jwk_set());
    let header = json!({ "alg": "RS256", "kid": "rsa" }).to_string();
    let sign = |key: &RsaKeyPair, of: &str| {
        let content = with(&json!({ "iss": of })).to_string();
        let message = format!("{}.{}", encoded(&header), encoded(content));
        let signature = rsa_signature(key, &signature::RSA_PKCS1_SHA256, message.as_bytes());
        format!("{message}.{}", encoded(signature))
    };
    for (key, of, is_taken) in [
        (&*RSA, ONE, true),
        (&*OTHER_RSA, TWO, true),
        (&*RSA, TWO, false),
        (&*OTHER_RSA, ONE, false),
    ] {
        assert_eq!(call(&issuers, &sign(key, of)).is_ok(), is_taken, "{of}");
    }
}

#[test]
fn odd_texts_are_no_tokens() {
    let good = token(&claims());
    let parts: Vec<&str> = good.split('.').collect();
    let (header, content, signature) = (parts[0], parts[1], parts[2]);
    let plain = r#"{"alg":"ES256","kid":"p256"}"#;
    let claims = claims().to_string();
    let twice = |name: &str, value: &str| {
        let text = claims.replacen('{', &format!("{{{name:?}:{value},"), 1);
        token_of(plain, &text, "ES256")
    };
    let long = with(&json!({ "x": "x".repeat(TOKEN_BYTES_MAX) }));
    for odd in [
        "..".to_owned(),
        format!("{header}..{signature}"),
        format!("{header}.{content}."),
        format!(".{content}.{signature}"),
        format!("{header}.{content}.{signature}="),
        format!("{header}=.{content}.{signature}"),
        format!(" {good}"),
        format!("{good} "),
        format!("{header}.{content}.{signature}.x"),
        format!("{header}.{content}"),
        twice("iss", "\"https://two.example\""),
        twice("aud", "\"atoll\""),
        twice("exp", "9999999999"),
        twice("email_verified", "true,\"email_verified\":false"),
        token_of(r#"{"alg":"none","alg":"ES256"}"#, &claims, "ES256"),
        token_of(plain, "[]", "ES256"),
        token_of(plain, "null", "ES256"),
        token_of(plain, "", "ES256"),
        token_of(plain, &format!("{claims}x"), "ES256"),
        token_of(plain, &"[".repeat(5000), "ES256"),
        token_of("{", &claims, "ES256"),
        token(&long),
    ] {
        let _ = refused(&odd);
    }
}

#[test]
fn roles_and_tenants_come_from_their_claims() {
    let mut one = issuer(ONE);
    one.tenant_claim = Some("org".to_owned());
    one.roles_claim = Some("groups".to_owned());
    one.roles = [
        ("admins", "administrator"),
        ("devs", "user"),
        ("audit", "auditor"),
    ]
    .map(|(value, role)| (value.to_owned(), role.to_owned()))
    .into();
    let called = |changes: Value| {
        let issuers = issuers_of(one.clone(), &jwk_set());
        let caller = call(&issuers, &token(&with(&changes)));
        caller
            .map(|caller| (caller.tenant, caller.role))
            .map_err(|(kind, _)| kind)
    };
    for (groups, role) in [
        (json!("devs"), Ok(Role::User)),
        (json!(["x", "devs"]), Ok(Role::User)),
        (json!(["devs", "audit", "admins"]), Ok(Role::Administrator)),
        (json!(["devs", "audit"]), Ok(Role::Auditor)),
        (json!("devs admins"), Err(Kind::Forbidden)),
        (json!(["administrator"]), Err(Kind::Forbidden)),
        (json!([]), Err(Kind::Forbidden)),
        (json!({ "devs": true }), Err(Kind::Forbidden)),
        (json!(null), Err(Kind::Forbidden)),
    ] {
        let found = called(json!({ "org": "team-a", "groups": groups }));
        assert_eq!(
            found,
            role.map(|role| ("team-a".to_owned(), role)),
            "{groups}"
        );
    }
    let long = "a".repeat(65);
    for org in [
        json!(null),
        json!(""),
        json!("a/b"),
        json!("a b"),
        json!("é"),
        json!(7),
        json!(long),
    ] {
        let found = called(json!({ "org": org, "groups": "devs" }));
        assert_eq!(found, Err(Kind::Forbidden), "{org}");
    }
}

#[test]
fn scopes_of_a_token_only_narrow() {
    let only = |names: &[&'static str]| Scopes::of(names.iter().copied());
    for (scope, expected) in [
        (json!(null), Scopes::All),
        (json!(""), Scopes::All),
        (json!("openid email read"), Scopes::All),
        (
            json!("openid atoll:read atoll:exec"),
            only(&["read", "exec"]),
        ),
        (json!(["atoll:read", "openid"]), only(&["read"])),
        (json!("atoll:everything"), only(&[])),
        (json!("atoll:"), only(&[])),
    ] {
        let token = token(&with(&json!({ "scope": scope })));
        let caller = call(&issuers_of(issuer(ONE), &jwk_set()), &token).unwrap();
        assert_eq!(caller.scopes, expected, "{scope}");
    }
    assert!(!only(&["read"]).has(Scope::Exec));
}

#[test]
fn only_keys_for_signatures_are_used() {
    let header = json!({ "alg": "ES256", "kid": "p256" }).to_string();
    let token = token_of(&header, &claims().to_string(), "ES256");
    for (field, is_taken) in [
        (json!({ "use": "sig" }), true),
        (json!({ "key_ops": ["verify"], "alg": "ES256" }), true),
        (json!({ "use": "enc" }), false),
        (json!({ "use": null }), false),
        (json!({ "key_ops": ["deriveKey"] }), false),
        (json!({ "alg": "ES384" }), false),
        (json!({ "alg": "HS256" }), false),
        (json!({ "crv": "P-384" }), false),
        (json!({ "kty": "oct", "k": "AAAA" }), false),
        (json!({ "kid": "other" }), false),
        (json!({ "y": "AAAA" }), false),
    ] {
        let mut key = ec_jwk(&P256, "P-256", "p256");
        key.as_object_mut()
            .unwrap()
            .extend(field.as_object().unwrap().clone());
        let set = json!({ "keys": [key, { "kty": "new" }, 7, ed_jwk()] });
        let caller = call(&issuers_of(issuer(ONE), &set), &token);
        assert_eq!(caller.is_ok(), is_taken, "{field}: {caller:?}");
    }
}

#[test]
fn a_credential_is_a_token_by_its_form() {
    let issuers = issuers_of(issuer(ONE), &jwk_set());
    for (credential, is_token) in [
        ("a.b.c", true),
        ("e2b_a.b.c", false),
        ("a.b", false),
        ("a.b.c.d", false),
        ("", false),
    ] {
        assert_eq!(issuers.takes(credential), is_token, "{credential}");
    }
    assert!(!Issuers::new(&[]).takes("a.b.c"));
}

/// The answer that a source gives.
type Given = Arc<Mutex<Result<Value, String>>>;

/// Makes a source that counts, and gives what it is set to.
fn counting() -> (Keys, Arc<AtomicUsize>, Given) {
    let (count, given) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(Mutex::new(Ok(jwk_set()))),
    );
    let (counted, gives) = (Arc::clone(&count), Arc::clone(&given));
    let source = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let given = gives.lock().unwrap().clone();
        given.map(|set| set.to_string().into_bytes())
    };
    (Keys::from_source(ONE, Arc::new(source)), count, given)
}

#[test]
fn keys_are_asked_for_seldom_and_outlive_an_outage() {
    let (keys, count, given) = counting();
    let begin = Instant::now();
    let hour = 60 * 60;
    let down = || Err::<Value, _>("down".to_owned());
    let asked = |id: &str, after_s: u64| {
        let now = begin + Duration::from_secs(after_s);
        let found = runtime().block_on(keys.find(Some(id), Algorithm::ES256, now));
        (
            found.map(|found| found.len()),
            count.load(Ordering::Relaxed),
        )
    };
    assert_eq!(asked("p256", 0), (Ok(1), 1));
    assert_eq!(asked("p256", hour - 1), (Ok(1), 1));
    // One that is not known: asked anew, and not again at once.
    assert_eq!(asked("new", hour - 1), (Err(NoKey::Unknown), 2));
    assert_eq!(asked("new", hour + 8), (Err(NoKey::Unknown), 2));
    *given.lock().unwrap() = Ok(json!({ "keys": [ec_jwk(&P256, "P-256", "new")] }));
    assert_eq!(asked("new", hour + 9), (Ok(1), 3));
    // Keys that the issuer has no more are none.
    assert_eq!(asked("p256", hour + 10), (Err(NoKey::Unknown), 3));
    *given.lock().unwrap() = down();
    let at = hour + 9;
    assert_eq!(asked("new", at + hour), (Ok(1), 4));
    assert_eq!(asked("new", at + hour + 9), (Ok(1), 4));
    assert_eq!(asked("new", at + 24 * hour - 1), (Ok(1), 5));
    let gone = || Err(NoKey::Unavailable("down".to_owned()));
    assert_eq!(asked("p256", at + 24 * hour - 1), (gone(), 5));
    assert_eq!(asked("new", at + 24 * hour), (gone(), 5));
    assert_eq!(asked("new", at + 24 * hour + 9), (gone(), 6));
    *given.lock().unwrap() = Ok(jwk_set());
    assert_eq!(asked("p256", at + 24 * hour + 19), (Ok(1), 7));
}

#[test]
fn many_at_once_ask_an_issuer_once() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let source = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(200));
        Ok(jwk_set().to_string().into_bytes())
    };
    let keys = Arc::new(Keys::from_source(ONE, Arc::new(source)));
    runtime().block_on(async {
        let mut all = tokio::task::JoinSet::new();
        for number in 0..WAITERS_MAX {
            let keys = Arc::clone(&keys);
            let id = if number % 2 == 0 { "p256" } else { "unknown" };
            all.spawn(async move {
                let found = keys.find(Some(id), Algorithm::ES256, Instant::now()).await;
                assert_eq!(found.is_ok(), id == "p256");
            });
        }
        while let Some(one) = all.join_next().await {
            one.unwrap();
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn a_slow_issuer_has_few_wait() {
    let (release, released) = std::sync::mpsc::channel();
    let released = Mutex::new(released);
    let source = move || {
        released.lock().unwrap().recv().unwrap();
        Ok(jwk_set().to_string().into_bytes())
    };
    let keys = Arc::new(Keys::from_source(ONE, Arc::new(source)));
    let find = |keys: Arc<Keys>| async move {
        let found = keys.find(Some("p256"), Algorithm::ES256, Instant::now());
        found.await.map(|found| found.len())
    };
    runtime().block_on(async {
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..=WAITERS_MAX {
            all.spawn(find(Arc::clone(&keys)));
        }
        // The one too many is told while the issuer says nothing.
        let first = all.join_next().await.unwrap().unwrap();
        assert!(matches!(first, Err(NoKey::Unavailable(_))), "{first:?}");
        release.send(()).unwrap();
        while let Some(one) = all.join_next().await {
            assert_eq!(one.unwrap(), Ok(1));
        }
    });
}

#[test]
fn an_issuer_without_keys_makes_the_server_unavailable() {
    for given in [
        Err("down".to_owned()),
        Ok(b"{}".to_vec()),
        Ok(b"{\"keys\":[]}".to_vec()),
    ] {
        let given = given.clone();
        let keys = Keys::from_source(ONE, Arc::new(move || given.clone()));
        let issuers = Issuers {
            all: vec![(issuer(ONE), keys)],
        };
        let caller = runtime().block_on(issuers.caller(&token(&claims())));
        let refusal = caller.unwrap_err();
        assert_eq!(refusal.kind, Kind::Unavailable, "{refusal:?}");
        assert!(refusal.retry_after_s.is_some() && refusal.advice.is_some());
    }
}

/// Answers requests at an address of its own, each by its path: with a status and a body, in which
/// `SELF` is the address. Returns that.
fn published(answers: Vec<(&'static str, &'static str, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let own = url.clone();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut lines = BufReader::new(connection.try_clone().unwrap()).lines();
            let first = lines.next().unwrap().unwrap();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let path = first.split(' ').nth(1).unwrap();
            let found = answers.iter().find(|(one, _, _)| *one == path);
            let missing = ("", "404 Not Found", String::new());
            let (_, status, body) = found.unwrap_or(&missing);
            let body = body.replace("SELF", &own);
            let length = body.len();
            let to = format!("location: {own}/moved\r\n");
            let head = format!("HTTP/1.1 {status}\r\n{to}connection: close\r\n");
            // Whoever reads no further has closed it.
            let _ = write!(connection, "{head}content-length: {length}\r\n\r\n{body}");
        }
    });
    url
}

#[test]
fn an_issuer_is_asked_for_what_it_publishes() {
    let discovery = "/.well-known/openid-configuration";
    let (fine, found) = ("200 OK", "302 Found");
    let own = |issuer: &str, keys: &str| {
        let text = json!({ "issuer": issuer, "jwks_uri": keys, "more": [] });
        (discovery, fine, text.to_string())
    };
    let set = || ("/keys", fine, jwk_set().to_string());
    let usual = || own("SELF", "SELF/keys");
    let moved = || ("/moved", fine, jwk_set().to_string());
    let large = format!("{}{}", jwk_set(), " ".repeat(1 << 20));
    for (answers, why) in [
        (vec![usual(), set()], None),
        (vec![own("SELF/", "SELF/keys"), set()], Some("calls itself")),
        (
            vec![own("https://one.example", "SELF/keys"), set()],
            Some("calls itself"),
        ),
        (
            vec![own("SELF", "http://198.51.100.1/keys")],
            Some("anybody could change"),
        ),
        (
            vec![own("SELF", "file:///etc/passwd")],
            Some("anybody could change"),
        ),
        (
            vec![own("SELF", "/keys"), set()],
            Some("anybody could change"),
        ),
        (vec![usual()], Some("/keys\" answers 404")),
        (vec![], Some("openid-configuration\" answers 404")),
        (
            vec![(discovery, found, String::new()), moved()],
            Some("answers 302"),
        ),
        (
            vec![usual(), ("/keys", found, String::new()), moved()],
            Some("answers 302"),
        ),
        (
            vec![(discovery, fine, "[]".to_owned())],
            Some("does not describe itself"),
        ),
        (
            vec![usual(), ("/keys", fine, large)],
            Some("cannot be asked"),
        ),
        (
            vec![usual(), ("/keys", fine, "<html>".to_owned())],
            Some("no set of keys"),
        ),
    ] {
        let keys = Keys::of(&issuer(&published(answers)));
        let found = keys.find(Some("p256"), Algorithm::ES256, Instant::now());
        let found = runtime().block_on(found).map(|found| found.len());
        match (found, why) {
            (Ok(1), None) => {}
            (Err(NoKey::Unavailable(told)), Some(why)) => assert!(told.contains(why), "{told}"),
            (found, why) => panic!("{found:?}, {why:?}"),
        }
    }
}

#[test]
fn a_file_of_keys_takes_the_place_of_the_issuer() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("keys.json");
    let mut one = issuer(ONE);
    one.keys = Some(file.clone());
    assert!(check_key_files(std::slice::from_ref(&one)).is_err());
    for (text, is_right) in [
        ("{}".to_owned(), false),
        (
            json!({ "keys": [{ "kty": "oct", "k": "AAAA" }] }).to_string(),
            false,
        ),
        (jwk_set().to_string(), true),
        (format!("{}{}", jwk_set(), " ".repeat(1 << 20)), false),
    ] {
        std::fs::write(&file, &text).unwrap();
        let checked = check_key_files(std::slice::from_ref(&one));
        assert_eq!(checked.is_ok(), is_right, "{checked:?}");
        let issuers = Issuers::new(std::slice::from_ref(&one));
        assert_eq!(call(&issuers, &token(&claims())).is_ok(), is_right);
    }
}
