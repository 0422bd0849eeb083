//! Tests of placeholders in each place of a request.

use atoll_model::network::{Binding, Destination, HostPart, Others, Scheme, Target};
use hyper::Request;

use super::*;

const INSIDE: &str = "ghp_placeholder00000000000000000";
const REAL: &str = "ghp_real:+=&;7a4Kq0Zt9mXw2RbV5cY";

fn credentials(place: Place) -> Credentials {
    let binding = Binding {
        name: "one".parse().unwrap(),
        to: vec!["example.com:443".parse::<Destination>().unwrap()],
        requests: atoll_model::network::Conditions {
            scheme: Some(Scheme::Https),
            ..Default::default()
        },
        place,
        others: Others::Refused,
    };
    Credentials::of(vec![(binding, INSIDE, REAL)])
}

fn header(name: &str, form: Option<&str>) -> Place {
    Place::Header {
        name: name.to_owned(),
        form: form.map(str::to_owned),
    }
}

/// Returns the target and headers that are sent of a request, or why nothing is.
fn sent(
    credentials: &Credentials,
    host: &str,
    target: &str,
    headers: &[(&str, &str)],
) -> Result<(String, Vec<String>), String> {
    let inside = |text: &str| text.replace("PLACEHOLDER", INSIDE);
    let mut request = Request::builder().uri("/");
    for (name, value) in headers {
        request = request.header(*name, inside(value));
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let host: HostPart = host.parse().unwrap();
    let target = Target::parse(&inside(target)).unwrap();
    let judged = Judged {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method: "GET",
        target: &target,
    };
    let injection = Injection::of(credentials, &judged, &parts).map_err(|misuse| misuse.why)?;
    let mut headers = parts.headers.clone();
    assert!(injection.put(credentials, &mut headers));
    let values = headers.values().map(|value| value.to_str().unwrap());
    let target = injection.target(credentials, target.as_written());
    Ok((target.into_owned(), values.map(str::to_owned).collect()))
}

#[test]
fn placeholder_at_bound_place_is_replaced() {
    let basic = |user: &str, password: &str| {
        format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
    };
    let inside = basic("git", INSIDE);
    for (place, target, value, sent_target, sent_value) in [
        (
            header("x-key", None),
            "/",
            "PLACEHOLDER",
            "/",
            REAL.to_owned(),
        ),
        (
            header("x-key", None),
            "/",
            "Token PLACEHOLDER",
            "/",
            format!("Token {REAL}"),
        ),
        (
            header("x-key", Some("Bearer {}")),
            "/",
            "bearer PLACEHOLDER",
            "/",
            format!("bearer {REAL}"),
        ),
        (
            header("x-key", Some("a={}; b")),
            "/",
            "a=PLACEHOLDER; b",
            "/",
            format!("a={REAL}; b"),
        ),
        (
            header("x-key", None),
            "/",
            "nothing",
            "/",
            "nothing".to_owned(),
        ),
        (
            Place::Query("key".to_owned()),
            "/a?b=c&key=PLACEHOLDER",
            "nothing",
            "/a?b=c&key=ghp_real%3A%2B%3D%26%3B7a4Kq0Zt9mXw2RbV5cY",
            "nothing".to_owned(),
        ),
    ] {
        let credentials = credentials(place);
        let sent = sent(&credentials, "example.com", target, &[("x-key", value)]);
        assert_eq!(sent, Ok((sent_target.to_owned(), vec![sent_value])));
    }
    for user in ["git", "*"] {
        let credentials = credentials(Place::Basic(user.to_owned()));
        let sent = sent(
            &credentials,
            "example.com",
            "/",
            &[("authorization", &inside)],
        );
        assert_eq!(sent.unwrap().1, [basic("git", REAL)]);
    }
    // Of several headers of a name the one that has it.
    let both = [("cookie", "a=b"), ("cookie", "key=PLACEHOLDER"), ("x", "y")];
    let credentials = credentials(header("cookie", Some("key={}")));
    let sent = sent(&credentials, "example.com", "/", &both).unwrap().1;
    assert_eq!(
        sent,
        ["a=b".to_owned(), format!("key={REAL}"), "y".to_owned()]
    );
}

#[test]
fn placeholder_elsewhere_is_refused() {
    let in_basic = |text: &str| {
        format!(
            "Basic {}",
            STANDARD.encode(text.replace("PLACEHOLDER", INSIDE))
        )
    };
    let of_header = || header("x-key", Some("Bearer {}"));
    let of_basic = || Place::Basic("git".to_owned());
    let of_query = || Place::Query("key".to_owned());
    let placeholder = INSIDE;
    for (place, host, target, name, value) in [
        (
            of_header(),
            "example.com",
            "/",
            "x-other",
            "Bearer PLACEHOLDER",
        ),
        (of_header(), "example.com", "/", "x-key", "PLACEHOLDER"),
        (
            of_header(),
            "example.com",
            "/",
            "x-key",
            "Bearer PLACEHOLDER PLACEHOLDER",
        ),
        (
            of_header(),
            "example.com",
            "/",
            "x-key",
            "Bearer PLACEHOLDERx",
        ),
        (
            of_header(),
            "other.example",
            "/",
            "x-key",
            "Bearer PLACEHOLDER",
        ),
        (
            of_header(),
            "example.com",
            "/PLACEHOLDER",
            "x-key",
            "Bearer PLACEHOLDER",
        ),
        (of_header(), "example.com", "/PLACEHOLDER", "x", "y"),
        (of_header(), "example.com", "/?key=PLACEHOLDER", "x", "y"),
        (of_header(), "example.com", "/?PLACEHOLDER", "x", "y"),
        (
            of_header(),
            "example.com",
            "/",
            "authorization",
            &in_basic("git:PLACEHOLDER"),
        ),
        (
            header("x-key", None),
            "example.com",
            "/",
            "x-key",
            "xPLACEHOLDER",
        ),
        (
            header("x-key", None),
            "example.com",
            "/",
            "x-key",
            "PLACEHOLDER PLACEHOLDER",
        ),
        (
            header("x-key", None),
            "example.com",
            "/",
            "x-key",
            "PLACEHOLDER, PLACEHOLDER",
        ),
        (
            of_basic(),
            "example.com",
            "/",
            "authorization",
            &in_basic("other:PLACEHOLDER"),
        ),
        (
            of_basic(),
            "example.com",
            "/",
            "authorization",
            &in_basic("PLACEHOLDER:PLACEHOLDER"),
        ),
        (
            of_basic(),
            "example.com",
            "/",
            "authorization",
            &in_basic("git:xPLACEHOLDER"),
        ),
        (
            of_basic(),
            "example.com",
            "/",
            "authorization",
            &in_basic("PLACEHOLDER"),
        ),
        (
            of_basic(),
            "example.com",
            "/",
            "authorization",
            "Bearer PLACEHOLDER",
        ),
        (
            of_basic(),
            "example.com",
            "/",
            "proxy-authorization",
            &in_basic("git:PLACEHOLDER"),
        ),
        (of_query(), "example.com", "/?other=PLACEHOLDER", "x", "y"),
        (of_query(), "example.com", "/?key=xPLACEHOLDER", "x", "y"),
        (
            of_query(),
            "example.com",
            "/?key=PLACEHOLDER&key=PLACEHOLDER",
            "x",
            "y",
        ),
        (
            of_query(),
            "example.com",
            "/?key=%67hp_placeholder00000000000000000",
            "x",
            "y",
        ),
        (of_query(), "example.com", "/", "x-key", "PLACEHOLDER"),
        (of_query(), "other.example", "/?key=PLACEHOLDER", "x", "y"),
        (of_query(), "example.com", "/", placeholder, "y"),
    ] {
        let credentials = credentials(place);
        let why = sent(&credentials, host, target, &[(name, value)]).unwrap_err();
        assert!(why.contains("the placeholder of credential one"), "{why}");
        assert!(!why.contains(REAL) && !why.contains(INSIDE), "{why}");
    }
}

#[test]
fn response_head_real_value_is_masked() {
    let credentials = credentials(header("x-key", None));
    let mut headers = HeaderMap::new();
    let basic = format!("Basic {}", STANDARD.encode(format!("git:{REAL}")));
    for (name, value) in [
        (
            "location",
            format!("https://other.example/?a={}&b=1", escaped(REAL.as_bytes())),
        ),
        ("x-twice", format!("{REAL}, {REAL}")),
        ("x-basic", basic),
        ("x-small", escaped(REAL.as_bytes()).to_ascii_lowercase()),
        ("x-within", STANDARD.encode(format!("it is {REAL}, then"))),
        ("content-length", "17".to_owned()),
        ("x-other", "nothing".to_owned()),
    ] {
        headers.insert(HeaderName::from_static(name), value.parse().unwrap());
    }
    mask(&credentials, &mut headers);
    // In place, so escapes stay what they are.
    let location = headers["location"].to_str().unwrap();
    let (before, after) = location.split_once("?a=").unwrap();
    assert_eq!(before, "https://other.example/");
    assert_eq!(percent_decoded(after), format!("{INSIDE}&b=1"));
    let small = headers["x-small"].to_str().unwrap();
    assert!(
        percent_decoded(small).eq_ignore_ascii_case(INSIDE),
        "{small}"
    );
    let within = STANDARD.encode(format!("it is {INSIDE}, then"));
    assert_eq!(headers["x-within"], within);
    assert_eq!(headers["content-length"], "17");
    assert_eq!(headers["x-twice"], format!("{INSIDE}, {INSIDE}"));
    let masked = STANDARD.encode(format!("git:{INSIDE}"));
    assert_eq!(headers["x-basic"], format!("Basic {masked}"));
    assert_eq!(headers["x-other"], "nothing");
}

fn percent_decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut decoded = parts.next().unwrap().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        decoded.push(char::from(u8::from_str_radix(digits, 16).unwrap()));
        decoded += rest;
    }
    decoded
}

#[test]
fn misuse_says_what_does_not_match() {
    let one = |place, host: &str, name: &str, value: &str| {
        sent(&credentials(place), host, "/", &[(name, value)]).unwrap_err()
    };
    let of_header = || header("x-key", None);
    let why = one(of_header(), "other.example", "x-key", "PLACEHOLDER");
    assert!(
        why.ends_with("is in a request to another host than it is for"),
        "{why}"
    );
    let why = one(of_header(), "example.com", "x-other", "PLACEHOLDER");
    assert!(
        why.ends_with("is in the header x-other, which the credential is not bound to"),
        "{why}"
    );
    // In forms in which none is put in, also where a credential of another place is bound.
    let hexadecimal: String = INSIDE.bytes().map(|byte| format!("{byte:02x}")).collect();
    for (place, value, form) in [
        (
            of_header(),
            STANDARD.encode(format!("a:{INSIDE}")),
            "within base64",
        ),
        (
            Place::Body("key".to_owned()),
            hexadecimal,
            "as hexadecimal digits",
        ),
    ] {
        let why = one(place, "example.com", "x-key", &value);
        assert!(why.contains(&format!("the header x-key {form}")), "{why}");
    }
}

#[test]
fn injected_placeholder_hides_no_other() {
    const OTHER: &str = "glpat-placeholder1111111111";
    let hexadecimal =
        |text: &str| -> String { text.bytes().map(|byte| format!("{byte:02x}")).collect() };
    let two = |place: Place| {
        let binding = |name: &str, place| Binding {
            name: name.parse().unwrap(),
            to: vec!["example.com:443".parse::<Destination>().unwrap()],
            requests: atoll_model::network::Conditions::default(),
            place,
            others: Others::Refused,
        };
        let (one, other) = (binding("one", place), binding("two", header("x-two", None)));
        let real = "glpat-r3alK3yOfTh1sT3st1111";
        Credentials::of(vec![(one, INSIDE, REAL), (other, OTHER, real)])
    };
    let of_key = || header("x-key", None);
    let of_basic = || Place::Basic("*".to_owned());
    let basic = |user: &str| format!("Basic {}", STANDARD.encode(format!("{user}:{INSIDE}")));
    let bearer = |text: &str| format!("Bearer {INSIDE} {text}");
    // As it may be: both in their places.
    for (place, name, value) in [
        (of_key(), "x-key", bearer("nothing")),
        (of_basic(), "authorization", basic("git")),
    ] {
        let all = [(name, value.as_str()), ("x-two", OTHER)];
        let sent = sent(&two(place), "example.com", "/", &all);
        assert!(sent.is_ok(), "{sent:?}");
    }
    let of_query = || Place::Query("key".to_owned());
    let query = format!("/?key={INSIDE}");
    for (place, host, target, name, value) in [
        (
            of_key(),
            "example.com",
            "/",
            "x-key",
            bearer(&hexadecimal(OTHER)),
        ),
        (
            of_key(),
            "example.com",
            "/",
            "x-key",
            bearer(&STANDARD.encode(OTHER)),
        ),
        (
            of_key(),
            "example.com",
            "/",
            "x-key",
            bearer(&hexadecimal(INSIDE)),
        ),
        (
            of_basic(),
            "example.com",
            "/",
            "authorization",
            basic(&hexadecimal(OTHER)),
        ),
        (
            of_basic(),
            "example.com",
            "/",
            "authorization",
            basic(&hexadecimal(INSIDE)),
        ),
        (
            of_query(),
            "example.com",
            &format!("{query}&a={}", hexadecimal(OTHER)),
            "x",
            "y".to_owned(),
        ),
        (
            of_query(),
            "example.com",
            &format!("{query}&a={}", hexadecimal(INSIDE)),
            "x",
            "y".to_owned(),
        ),
        (of_query(), "example.com", &query, "x", hexadecimal(INSIDE)),
        (
            of_query(),
            "example.com",
            &query,
            &hexadecimal(OTHER),
            "y".to_owned(),
        ),
    ] {
        let sent = sent(&two(place), host, target, &[(name, value.as_str())]);
        let why = sent.unwrap_err();
        assert!(
            why.contains("which the credential is not bound to"),
            "{why}"
        );
    }
}
