//! Tests of masking, and of the values that are accepted.

use atoll_model::network::Ingredient;

use super::*;
use crate::secret::make_placeholder;

#[test]
fn placeholder_has_only_the_shape_of_its_value() {
    let real = b"ghp_0123456789abcdefABCDEF012345678901";
    let made = make_placeholder(real).unwrap();
    assert_eq!(made.len(), real.len());
    assert!(made.starts_with(b"ghp_"), "{made:?}");
    assert_ne!(made, make_placeholder(real).unwrap());
    // Nobody knows what of an unknown kind is not secret.
    let made = make_placeholder(b"550e8400-e29b-41d4-a716-446655440000").unwrap();
    assert!(!made.starts_with(b"550e8400-"), "{made:?}");
    assert!(
        make_placeholder(b"password")
            .unwrap_err()
            .contains("shorter")
    );
}

/// Returns a given credential and a fetched one.
fn two() -> Credentials {
    with(Ingredients::new())
}

/// Returns a given credential and one that is fetched with these secrets.
fn with(ingredients: Ingredients) -> Credentials {
    let binding = |name: &str| Binding {
        name: name.parse().unwrap(),
        to: vec!["example.com:443".parse().unwrap()],
        requests: atoll_model::network::Conditions::default(),
        place: atoll_model::network::Place::Query("key".to_owned()),
        others: atoll_model::network::Others::Refused,
    };
    let given = Secret::new(b"given-0123456789abcdef".to_vec()).unwrap();
    let by = atoll_model::network::Fetch::Command { patience_s: 1 };
    let held = vec![
        CredentialPart {
            binding: binding("given"),
            part: Part::Whole,
            placeholder: "given-fedcba9876543210".to_owned(),
            value: Value::Given(Arc::new(given)),
        },
        CredentialPart {
            binding: binding("fetched"),
            part: Part::Whole,
            placeholder: "ghp_0000000000000000AAAAAAAAAAAAAAAAaaaa".to_owned(),
            value: Value::Fetched(Arc::new(Source::new(by, &Network::default(), ingredients))),
        },
    ];
    Credentials::masked(held).unwrap()
}

#[test]
fn fetched_value_is_masked_beside_earlier_ones() {
    let credentials = two();
    let shown = |text: &str| {
        let masks = credentials.masks().unwrap();
        let masked = masks.whole(text.as_bytes());
        masked.map(|masked| String::from_utf8(masked).unwrap())
    };
    let alike = "ghp_r3alK3yOfTh1sT3stWh1chN0bodyM4yS33in";
    assert_eq!(shown(alike), None);
    let accept_until = |value: &str, ends| {
        let value = Zeroizing::new(value.as_bytes().to_vec());
        credentials
            .accept(1, value, ends)
            .map(|secret| secret.expose().to_vec())
    };
    let accept = |value: &str| accept_until(value, None);
    assert_eq!(accept(alike), Ok(alike.as_bytes().to_vec()));
    let placeholder = &credentials.held[1].placeholder;
    assert_eq!(shown(alike).as_ref(), Some(placeholder));
    // Another one as long as it is stands for what has another length.
    for number in 0..10 {
        let other = format!("token-of-another-length-{number}-r3alK3yOfTh1s");
        assert!(accept(&other).is_ok());
        assert_eq!(shown(&other).unwrap().len(), other.len());
        assert_ne!(shown(&other).unwrap(), other);
        let before = format!("token-of-another-length-{}-r3alK3yOfTh1s", number - 1);
        assert_eq!(shown(&before).is_some(), number > 0);
    }
    // However long ago one was in use.
    assert_eq!(shown(alike).as_ref(), Some(placeholder));
    let ended = SystemTime::now();
    for number in 0..MASKED_MAX - 11 {
        let value = format!("ended-{number}-r3alK3yOfTh1sT3stWh1chN0body");
        accept_until(&value, Some(ended)).unwrap();
    }
    assert_eq!(credentials.masked_count(), 1 + MASKED_MAX);
    // Those that have ended give way, and no others.
    let last = "the-last-one-r3alK3yOfTh1sT3stWh1chN0body";
    assert!(accept(last).is_ok());
    assert_eq!(credentials.masked_count(), 1 + 12);
    assert!(shown(last).is_some());
    for number in 0..MASKED_MAX - 12 {
        let value = format!("other-{number}-r3alK3yOfTh1sT3stWh1chN0body");
        accept(&value).unwrap();
    }
    let one_more = "one-more-r3alK3yOfTh1sT3stWh1chN0bodyM4yS33";
    assert!(accept(one_more).unwrap_err().contains("256 values"));
    assert_eq!(shown(one_more), None);
    assert!(accept(last).is_ok(), "it is known");
    assert_eq!(shown(alike).as_ref(), Some(placeholder));
    assert!(shown("given-0123456789abcdef").is_some());
}

#[test]
fn ingredient_is_masked_and_no_token() {
    const CLIENT: &str = "client-Zk3fQ81xw0LmT7uP";
    const FIRST: &str = "refresh-9sKd83jfLq0XvBn2";
    const NEXT: &str = "refresh-Wm4tR7yUeP1aZc5x-and-longer";
    let secret = |text: &str| Arc::new(Secret::new(text.as_bytes().to_vec()).unwrap());
    let credentials = with(
        [
            (Ingredient::ClientSecret, secret(CLIENT)),
            (Ingredient::RefreshToken, secret(FIRST)),
        ]
        .into(),
    );
    let is_masked = |text: &str| {
        let masks = credentials.masks().unwrap();
        masks.whole(text.as_bytes()).is_some()
    };
    assert!(is_masked(CLIENT) && is_masked(FIRST) && !is_masked(NEXT));
    let accept = |value: &str| {
        let value = Zeroizing::new(value.as_bytes().to_vec());
        credentials.accept(1, value, None).map(drop)
    };
    for value in [CLIENT, FIRST] {
        assert!(
            accept(value)
                .unwrap_err()
                .contains("by which one is asked for")
        );
    }
    // The next refresh token takes the place of the one before it.
    let (_, source) = credentials.source(1).unwrap();
    let renew = |value: &str| {
        let value = Zeroizing::new(value.as_bytes().to_vec());
        credentials.renew(1, source, value)
    };
    renew(NEXT).unwrap();
    let now = source.ingredient(Ingredient::RefreshToken).unwrap();
    assert_eq!(now.expose(), NEXT.as_bytes());
    assert!(is_masked(CLIENT) && is_masked(FIRST) && is_masked(NEXT));
    assert!(accept(NEXT).is_err());
    for (value, why) in [("a\nb", "one line"), ("short", "shorter than 16")] {
        assert!(renew(value).unwrap_err().contains(why));
    }
    assert_eq!(now.expose(), NEXT.as_bytes());
    assert!(source.ingredient(Ingredient::SubjectToken).is_err());
}

#[test]
fn placeholder_in_host_name_is_found_in_any_form() {
    let credentials = two();
    let placeholder = "given-fedcba9876543210";
    let digits: String = placeholder.bytes().map(|b| format!("{b:02x}")).collect();
    let (first, second) = digits.split_at(17);
    for host in [
        format!("a.{placeholder}.example"),
        format!("a.{}.example", placeholder.to_ascii_uppercase()),
        format!("{digits}.example"),
        format!("{first}.{second}.example"),
    ] {
        let misused = credentials.misused_in(&host);
        assert_eq!(misused.unwrap().0.as_str(), "given", "{host}");
    }
    assert!(credentials.misused_in("given.example").is_none());
}

#[test]
fn fetched_value_invalid_is_refused() {
    let credentials = two();
    let before = credentials.masked_count();
    for (value, why) in [
        ("s3cret".to_owned(), "shorter than 16"),
        ("aaaaaaaaaaaaaaaaaaaaaaaa\n".to_owned(), "one line"),
        ("x".repeat(CREDENTIAL_BYTES_MAX + 1), "one line"),
        ("given-0123456789abcdef".to_owned(), "the value of another"),
        ("given-fedcba9876543210".to_owned(), "a placeholder in it"),
        (
            format!("a{}b", credentials.held[1].placeholder),
            "a placeholder in it",
        ),
    ] {
        let said = credentials.accept(1, Zeroizing::new(value.clone().into_bytes()), None);
        let said = said.err().unwrap();
        assert!(said.contains(why), "{value}: {said}");
        assert!(!said.contains(&value), "{said}");
    }
    assert_eq!(credentials.masked_count(), before);
}

#[test]
fn substring_is_found_anywhere() {
    for (text, part, is_in, in_any_case) in [
        ("abc", "bc", true, true),
        ("aab", "ab", true, true),
        ("abc", "BC", false, true),
        ("abc", "cd", false, false),
        ("", "a", false, false),
        ("a", "", false, false),
    ] {
        assert_eq!(holds(text.as_bytes(), part.as_bytes()), is_in);
        assert_eq!(
            holds_in_any_case(text.as_bytes(), part.as_bytes()),
            in_any_case
        );
    }
}

#[tokio::test]
async fn dropped_address_gets_only_revocations() {
    use std::time::Duration;

    use atoll_model::network::{
        Endpoint, FlowKind, GIVEN_UP, GivenUp, GivenUpBy, HostName, HostPart, NetworkRule,
        Restriction, Way,
    };

    use crate::inspect::tests::{Outside, no_trust};

    let rule = |to: &str| NetworkRule {
        to: to.parse().unwrap(),
        way: Way::Inspect,
        ..NetworkRule::learning()
    };
    // Nobody listens there: what is dialled fails.
    let allow = vec![rule("host.atoll.internal:1"), rule("127.0.0.1:1")];
    let network = Network {
        allow: allow.clone(),
        ..Network::default()
    };
    let way = Outside::with(allow, no_trust());
    // No profile can name this one; here it is what leads to a loopback address.
    let mut endpoint: Endpoint = "https://example.com:1/token".parse().unwrap();
    endpoint.host = HostPart::Name(HostName::parse("host.atoll.internal").unwrap());
    let name = "key".parse().unwrap();
    let ask = async |kind| {
        let asking = own_request::OwnRequest {
            kind,
            method: hyper::Method::POST,
            endpoint: &endpoint,
            headers: hyper::HeaderMap::new(),
            body: Zeroizing::new(Vec::new()),
        };
        let asked = own_request::ask(
            &way.egress,
            &network,
            &name,
            asking,
            Duration::from_secs(10),
        );
        asked.await.err().unwrap()
    };
    let before = ask(FlowKind::Fetch).await;
    assert!(!before.contains(GIVEN_UP), "{before}");
    way.egress.policies.dropped.add_all(vec![GivenUp {
        at_s: 1,
        by: GivenUpBy::Program {},
        what: Restriction::Host("127.0.0.1".to_owned().try_into().unwrap()),
    }]);
    let after = ask(FlowKind::Fetch).await;
    assert!(after.contains(GIVEN_UP), "{after}");
    let back = ask(FlowKind::Revocation).await;
    assert!(!back.contains(GIVEN_UP), "{back}");
}
