//! Requests.

use serde_json::json;

use super::{document, only, read_value, request, with_parameters};
use crate::openapi::checked_base;

#[test]
fn parameters_are_written_by_their_styles() {
    let list = json!(["a,b", "c&d", 1]);
    let table = json!({ "k": "v w", "n": [1] });
    for (place, style, explode, value, expected) in [
        ("query", None, None, &list, Ok("?p=a%2Cb&p=c%26d&p=1")),
        (
            "query",
            Some("form"),
            Some(false),
            &list,
            Ok("?p=a%2Cb,c%26d,1"),
        ),
        (
            "query",
            Some("spaceDelimited"),
            None,
            &list,
            Ok("?p=a%2Cb%20c%26d%201"),
        ),
        (
            "query",
            Some("pipeDelimited"),
            None,
            &list,
            Ok("?p=a%2Cb%7Cc%26d%7C1"),
        ),
        (
            "query",
            Some("pipeDelimited"),
            Some(true),
            &list,
            Ok("?p=a%2Cb&p=c%26d&p=1"),
        ),
        (
            "query",
            Some("deepObject"),
            Some(true),
            &table,
            Ok("?p%5Bk%5D=v%20w&p%5Bn%5D%5B0%5D=1"),
        ),
        (
            "query",
            None,
            None,
            &json!({ "a b": "=", "c": true }),
            Ok("?a%20b=%3D&c=true"),
        ),
        (
            "query",
            None,
            Some(false),
            &json!({ "a": "b" }),
            Ok("?p=a,b"),
        ),
        ("query", None, None, &table, Err("a list or an object")),
        (
            "query",
            None,
            None,
            &json!({ "api_KEY": 1 }),
            Err("as another parameter"),
        ),
        (
            "query",
            None,
            None,
            &json!({ "other": 1 }),
            Err("as another parameter"),
        ),
        ("query", None, None, &json!(null), Ok("")),
        ("query", None, None, &json!([]), Ok("")),
        ("query", None, Some(false), &json!([]), Ok("")),
        ("query", None, None, &json!(""), Ok("?p=")),
        ("query", None, None, &json!(-1.5), Ok("?p=-1.5")),
        ("header", None, None, &list, Ok("a,b,c&d,1")),
        (
            "header",
            None,
            Some(true),
            &json!({ "a": 1, "b": 2 }),
            Ok("a=1,b=2"),
        ),
        (
            "header",
            None,
            None,
            &json!("a\r\nX-Key: 1"),
            Err("printable ASCII"),
        ),
        ("header", None, None, &json!("a\0"), Err("printable ASCII")),
        ("header", None, None, &json!("é"), Err("printable ASCII")),
    ] {
        let mut parameter = json!({ "name": "p", "in": place, "schema": {} });
        let members = parameter.as_object_mut().unwrap();
        members.extend(style.map(|style| ("style".to_owned(), json!(style))));
        members.extend(explode.map(|explode| ("explode".to_owned(), json!(explode))));
        let other = json!({ "name": "other", "in": "query", "schema": {} });
        let operation = only(with_parameters("/a", json!([parameter, other])));
        let made = request(&operation, json!({ "p": value }));
        let made = made.map(|made| match place {
            "header" => made.headers[0].1.clone(),
            _ => made.url.replace("https://h.example/api/a", ""),
        });
        match expected {
            Ok(text) => assert_eq!(made.as_deref(), Ok(text), "{parameter} {value}"),
            Err(why) => assert!(
                made.clone().is_err_and(|made| made.contains(why)),
                "{made:?}"
            ),
        }
    }
}

#[test]
fn paths_stay_below_the_base() {
    let parameters = json!([
        { "name": "a", "in": "path", "required": true, "schema": {} },
        { "name": "b", "in": "path", "required": true, "schema": {} },
        { "name": "q", "in": "query", "schema": {} },
    ]);
    let operation = only(with_parameters("/x/{a}/{b}-{b}{a}:run", parameters));
    let long = "a".repeat(100_000);
    let deep = format!("%{}2e", "25".repeat(20));
    let hostile = [
        "//evil.example",
        "@evil.example",
        "\\",
        "\\\\evil",
        "a\nb",
        "a\rb",
        "\0",
        "\u{2024}\u{2024}",
        "?x=1",
        "#x",
        "%",
        "%2f",
        "%00",
        "a/b",
        "{b}",
        "{a}",
        ";a",
        " ",
        "é",
        "...",
        ":80",
        "https://evil.example/",
        "&api_key=1",
        "\u{7f}",
        "%25",
        "..a",
        "a..",
    ];
    let refused = [
        "",
        ".",
        "..",
        "../",
        "/..",
        "a/../b",
        "..\\",
        "%2e%2e",
        "%2E.",
        "%252e%252e",
        "..%2f",
        "%2e%2e%5c",
        "./a",
        "..;a",
        "a/..;/b",
        &long,
        &deep,
    ];
    for base in [
        "https://h.example",
        "http://h.example:8080/api/v1/",
        "http://[::1]:80/a",
    ] {
        let trimmed = base.trim_end_matches('/');
        let of_base = url::Url::parse(trimmed).unwrap();
        for text in hostile {
            let arguments = json!({ "a": text, "b": text, "q": text });
            let made = operation.request(base, &arguments).unwrap();
            assert!(
                made.url.starts_with(&format!("{trimmed}/x/")),
                "{}",
                made.url
            );
            let url = url::Url::parse(&made.url).unwrap();
            assert_eq!(url.origin(), of_base.origin(), "{text:?}");
            assert!(url.path().starts_with(of_base.path()), "{text:?}");
            let count = |url: &url::Url| {
                url.path_segments()
                    .unwrap()
                    .filter(|one| !one.is_empty())
                    .count()
            };
            assert_eq!(count(&url), count(&of_base) + 3, "{text:?}");
            let query: Vec<(String, String)> = url.query_pairs().into_owned().collect();
            assert_eq!(query, [("q".to_owned(), text.to_owned())]);
            assert_eq!(url.fragment(), None);
            assert!(
                made.url.bytes().all(|byte| byte.is_ascii_graphic()),
                "{}",
                made.url
            );
        }
        for text in refused {
            let arguments = json!({ "a": text, "b": "b" });
            assert!(operation.request(base, &arguments).is_err(), "{text:?}");
        }
    }
    for value in [
        json!(null),
        json!([]),
        json!([".."]),
        json!([[1]]),
        json!({}),
    ] {
        let arguments = json!({ "a": value, "b": "b" });
        assert!(
            operation.request("http://h", &arguments).is_err(),
            "{value}"
        );
    }
    let made = operation.request("http://h", &json!({ "a": ["1", "2,"], "b": { "k": "v" } }));
    assert_eq!(made.unwrap().url, "http://h/x/1,2%2C/k,v-k,v1,2%2C:run");
}

#[test]
fn bases_are_addresses_of_services() {
    for good in [
        "http://h",
        "https://a-b.c_d:1/x/%20/y,z",
        "http://127.0.0.1:8080",
        "http://[::1]",
    ] {
        assert_eq!(checked_base(good), Ok(good));
    }
    assert_eq!(checked_base("https://h/a/"), Ok("https://h/a"));
    for bad in [
        "",
        "h",
        "/a",
        "//h/a",
        "ftp://h",
        "file:///etc",
        "HTTP://h",
        "https://",
        "https:///a",
        "https://u@h",
        "https://u:p@h",
        "https://h:",
        "https://h:0",
        "https://h:99999",
        "https://h:+80",
        "https://h:8x",
        "https://h?a",
        "https://h/?a",
        "https://h/#a",
        "https://h/..",
        "https://h/a/%2e%2e/b",
        "https://h/a\\b",
        "https://h/{a}",
        "https://h/a b",
        "https://h\\@e",
        "https://h/%",
        "https://h/%2",
        "https://h/%zz",
        "https://é",
        "https://h\n",
        "https://[::1",
        "https://[x]",
        "https://::1",
        "https://h/é",
        "https://h/a;/..;/b",
    ] {
        assert!(checked_base(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn forms_are_encoded() {
    let operation = json!({ "requestBody": { "required": true, "content": {
        "application/x-www-form-urlencoded": {
            "schema": { "type": "object" },
            "encoding": { "deep": { "style": "deepObject", "explode": true }, "csv": { "explode": false }, "table": { "contentType": "application/json" } },
        },
    } } });
    let operation = only(read_value(&document("/a", "post", operation)));
    let body = json!({
        "a": "x y&", "list": [1, { "b": 2 }], "table": { "c": [3] }, "none": null,
        "deep": { "d": { "e": ["f"] } }, "csv": ["g", "h"],
    });
    let made = request(&operation, json!({ "body": body })).unwrap();
    let expected = "a=x%20y%26&list=1&list=%7B%22b%22%3A2%7D&table=%7B%22c%22%3A%5B3%5D%7D\
        &deep%5Bd%5D%5Be%5D%5B0%5D=f&csv=g,h";
    assert_eq!(made.body.as_deref(), Some(expected));
    assert_eq!(made.headers[0].1, "application/x-www-form-urlencoded");
    assert!(
        operation
            .request("http://h", &json!({ "body": 1 }))
            .is_err()
    );
}
