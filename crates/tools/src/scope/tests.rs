use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use super::*;

fn schema() -> Schema {
    let properties = json!({ "properties": { "path": {}, "url": {} } });
    Schema::of_arguments(Some(properties)).unwrap()
}

/// Reads scopes of `path` and `url`.
fn scopes(root: &str, allowed: &[&str]) -> Result<Scopes, String> {
    let paths = BTreeMap::from([("path".to_owned(), root.to_owned())]);
    let allowed = allowed.iter().map(|one| (*one).to_owned()).collect();
    let urls = BTreeMap::from([("url".to_owned(), allowed)]);
    Scopes::read(&paths, &urls, &schema())
}

fn confined(scopes: &Scopes, mut arguments: Value, place: &Place) -> Result<Value, String> {
    let confined = scopes.confine(&mut arguments, place);
    confined.map(|()| arguments).map_err(|all| all.join("\n"))
}

#[test]
fn paths_are_opened_beneath_their_root() {
    let held = tempfile::tempdir().unwrap();
    let top = held.path();
    fs::create_dir_all(top.join("docs/deep")).unwrap();
    fs::create_dir(top.join("other")).unwrap();
    fs::write(top.join("docs/a.md"), "").unwrap();
    for (to, link) in [
        ("../other", "docs/out"),
        ("/etc", "docs/etc"),
        ("deep", "docs/in"),
        ("missing", "docs/dangling"),
        ("deep/../../other", "docs/round"),
        ("docs", "linked"),
    ] {
        symlink(to, top.join(link)).unwrap();
    }
    let place = Place::Host(top.to_owned());
    let beneath = scopes("docs", &[]).unwrap();
    let of = |path: &str| {
        let confined = confined(&beneath, json!({ "path": path }), &place)?;
        Ok::<_, String>(confined["path"].as_str().unwrap_or_default().to_owned())
    };
    for (path, sent) in [
        ("docs/a.md", "docs/a.md"),
        ("./docs//deep/./", "docs/deep"),
        ("docs", "docs"),
        ("docs/in/new.md", "docs/in/new.md"),
        ("docs/new/deeper/x.md", "docs/new/deeper/x.md"),
    ] {
        assert_eq!(of(path).as_deref(), Ok(sent));
    }
    for (path, why) in [
        ("other/x", "is not beneath \"docs\""),
        ("docsx", "is not beneath"),
        (".", "is not beneath"),
        ("docs/out/x", "a link leads out"),
        ("docs/out", "a link leads out"),
        ("docs/etc/passwd", "a link leads out"),
        ("docs/round/x", "a link leads out"),
        ("docs/dangling", "a link leads out"),
        ("docs/../other", "a part \"..\""),
        ("docs/..", "a part \"..\""),
        ("/etc/passwd", "is absolute"),
        ("docs/a\0b", "a NUL"),
        ("", "empty"),
        ("~/docs", "begins as no path"),
        ("file:///etc", "begins as no path"),
        ("docs/a.md/x", "cannot be looked at"),
    ] {
        let refused = of(path).unwrap_err();
        assert!(refused.contains(why), "{path:?}: {refused}");
    }
    // The root is no link itself, and nothing is beneath one that is not there.
    let linked = scopes("linked", &[]).unwrap();
    let refused = confined(&linked, json!({ "path": "linked/a.md" }), &place);
    assert!(refused.unwrap_err().contains("a link leads out"));
    let missing = scopes("gone", &[]).unwrap();
    assert!(confined(&missing, json!({ "path": "gone/x" }), &place).is_ok());
}

#[test]
fn each_member_of_a_list_is_confined_and_nothing_else_is_taken() {
    let (beneath, place) = (scopes("docs", &[]).unwrap(), Place::Empty);
    let list = json!({ "path": ["docs//a", "docs/b"] });
    let sent = confined(&beneath, list, &place).unwrap();
    assert_eq!(sent, json!({ "path": ["docs/a", "docs/b"] }));
    for (value, why) in [
        (json!(["docs/a", "b"]), "not beneath"),
        (json!([["docs/a"]]), "no text"),
        (json!({ "docs/a": 1 }), "no text"),
        (json!(7), "no text"),
    ] {
        let refused = confined(&beneath, json!({ "path": value }), &place).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    for value in [json!({}), json!({ "path": null })] {
        assert_eq!(confined(&beneath, value.clone(), &place), Ok(value));
    }
}

#[test]
fn addresses_are_compared_and_sent_in_one_form() {
    let allowed = [
        "https://api.example.com/v1/",
        "http://bücher.example:8080/a",
    ];
    let scopes = scopes(".", &allowed).unwrap();
    let of = |url: &str| {
        let confined = confined(&scopes, json!({ "url": url }), &Place::Empty)?;
        Ok::<_, String>(confined["url"].as_str().unwrap_or_default().to_owned())
    };
    for (url, sent) in [
        (
            "https://api.example.com/v1/x",
            "https://api.example.com/v1/x",
        ),
        (
            "HTTPS://API.example.com:443/v1/./a/../b?c=%2e#d",
            "https://api.example.com/v1/b?c=%2e#d",
        ),
        (
            "https://api.example.com/%761/%41%2fb%c3%bc",
            "https://api.example.com/v1/A%2Fb%C3%BC",
        ),
        (
            "https://api.example.com/v1/%2f../../admin",
            "https://api.example.com/v1/admin",
        ),
        (
            " https://api.exa\tmple.com/v1/",
            "https://api.example.com/v1/",
        ),
        (
            "http://xn--bcher-kva.example:8080/a",
            "http://xn--bcher-kva.example:8080/a",
        ),
        (
            "http://BÜCHER.example:8080/a/b",
            "http://xn--bcher-kva.example:8080/a/b",
        ),
    ] {
        assert_eq!(of(url).as_deref(), Ok(sent));
    }
    for (url, why) in [
        ("https://api.example.com/v1", "not beneath"),
        ("https://api.example.com/v1/../admin", "not beneath"),
        ("https://api.example.com/v1/%2e%2E/admin", "not beneath"),
        ("https://api.example.com/v1/%252e%252e/admin", "\"..\""),
        ("https://api.example.com/v1/..%2fadmin", "\"..\""),
        ("https://api.example.com/v1/..;/admin", "\"..\""),
        ("https://api.example.com/v1/..\\admin", "a backslash"),
        ("https://api.example.com/v1%2fx", "not beneath"),
        ("https://api.example.com/v1/%zz", "escapes nothing"),
        ("https://api.example.com/v1/%", "escapes nothing"),
        ("https://api.example.com/v11/x", "not beneath"),
        ("http://bücher.example:8080/ab", "not beneath"),
        ("http://api.example.com/v1/x", "not beneath"),
        ("https://api.example.com:444/v1/x", "not beneath"),
        ("https://api.example.com./v1/x", "not beneath"),
        ("https://api.example.com.evil.example/v1/x", "not beneath"),
        (
            "https://evil.example/v1/?https://api.example.com/v1/",
            "not beneath",
        ),
        (
            "https://api.example.com@evil.example/v1/x",
            "name or password",
        ),
        ("https://me:pw@api.example.com/v1/x", "name or password"),
        ("https://аpi.example.com/v1/x", "not beneath"),
        ("file:///v1/x", "is none of https"),
        ("//api.example.com/v1/x", "no address"),
        ("/v1/x", "no address"),
    ] {
        let refused = of(url).unwrap_err();
        assert!(refused.contains(why), "{url}: {refused}");
    }
}

#[test]
fn scopes_that_are_none_are_refused() {
    for (root, allowed, why) in [
        ("/etc", &[][..], "paths.path: \"/etc\" is absolute"),
        ("../x", &[], "a part \"..\""),
        (".", &["ftp://h/"], "urls.url: \"ftp\" is none of"),
        (".", &["https://a:b@h/"], "name or password"),
        (".", &["https://h/?q"], "query or fragment"),
    ] {
        let refused = scopes(root, allowed).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    let none = BTreeMap::from([("other".to_owned(), ".".to_owned())]);
    let refused = Scopes::read(&none, &BTreeMap::new(), &schema()).unwrap_err();
    assert!(refused.contains("is no argument"), "{refused}");
}
