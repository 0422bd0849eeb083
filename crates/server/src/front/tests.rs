//! Tests of the front.

#![allow(clippy::unwrap_used)]

mod dialects;

use super::*;

#[test]
fn requests_go_where_they_say() {
    let id = "i0123456789abcdefghij";
    let sandbox = |port| Target::Sandbox {
        id: id.to_owned(),
        port,
    };
    let cases = [
        (vec![], "/sandboxes", Target::Control),
        (vec![], "/jupyter/api/kernels", Target::Jupyter),
        (vec![], "/librechat/exec", Target::LibreChat),
        (vec![], "/opensandbox/v1/sandboxes", Target::OpenSandbox),
        (vec![], "/files?path=a", Target::Control),
        (vec![], "/files?path=a&signature=v1_x", Target::Signed),
        (
            vec![("e2b-sandbox-id", id)],
            "/sandboxes",
            sandbox(ENVD_PORT),
        ),
        (
            vec![("e2b-sandbox-id", id), ("e2b-sandbox-port", "80")],
            "/",
            sandbox(80),
        ),
        (
            vec![("host", "8080-i0123456789abcdefghij.example.com")],
            "/",
            sandbox(8080),
        ),
        (
            vec![("host", "8080-i0123456789abcdefghij")],
            "/",
            Target::Control,
        ),
        (
            vec![("host", "0-i0123456789abcdefghij.example.com")],
            "/",
            Target::Control,
        ),
        (
            vec![("host", "99999-i0123456789abcdefghij.a")],
            "/",
            Target::Control,
        ),
        (vec![("host", "80-../../etc.a")], "/", Target::Control),
        (
            vec![("host", "localhost")],
            "https://80-i0123456789abcdefghij.a/",
            sandbox(80),
        ),
    ];
    for (headers, uri, expected) in cases {
        let mut map = HeaderMap::new();
        for (name, value) in &headers {
            map.insert(*name, value.parse().unwrap());
        }
        let target = Target::of(&map, &uri.parse().unwrap());
        assert_eq!(target, expected, "{headers:?} {uri}");
    }
    // A header whose bytes are no text names no sandbox, and is not left out.
    let mut map = HeaderMap::new();
    map.insert("e2b-sandbox-id", http_bytes(b"\xff"));
    let target = Target::of(&map, &Uri::from_static("/sandboxes"));
    assert!(matches!(target, Target::Sandbox { id, .. } if id.is_empty()));
}

fn http_bytes(bytes: &[u8]) -> axum::http::HeaderValue {
    axum::http::HeaderValue::from_bytes(bytes).unwrap()
}
