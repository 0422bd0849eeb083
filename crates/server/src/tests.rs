#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use crate::{Configuration, NetworkWord};

#[test]
fn the_configuration_is_read_whole_or_refused() {
    assert_eq!(Configuration::parse("").unwrap(), Configuration::default());
    let read = Configuration::parse("network = 'internet'\n[quota]\nsandboxes = 3").unwrap();
    assert_eq!(
        (read.network(), read.quota.sandboxes),
        (NetworkWord::Internet, 3)
    );
    for wrong in [
        "listen = '10.0.0.1:80'",
        "listen = 'x'",
        "listn = ''",
        "[defaults]\nmemory = 1",
        "[defaults]\ncpus = 0",
        "[quota]\ncreates_a_minute = 0",
        "network = 'some'",
    ] {
        assert!(Configuration::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn an_issuer_is_configured_safely_or_refused() {
    let issuer = |text: &str| format!("[[issuer]]\nurl = 'https://a/x'\naudience = 'b'\n{text}");
    for right in [
        "",
        "tenant = 'team-a'",
        "tenant_claim = 'org'",
        "roles_claim = 'groups'\n[issuer.roles]\nadmins = 'administrator'",
        "keys = '/etc/keys.json'",
        "[[issuer]]\nurl = 'http://127.0.0.1:8080/realms/a'\naudience = 'b'",
        "[[issuer]]\nurl = 'http://[::1]:8080'\naudience = 'b'",
    ] {
        let read = Configuration::parse(&issuer(right));
        assert!(read.is_ok(), "{right}: {read:?}");
    }
    for wrong in [
        "tenant = 'a'\ntenant_claim = 'org'",
        "tenant = ''",
        "tenant = 'a/b'",
        "roles_claim = 'groups'",
        "[issuer.roles]\nadmins = 'administrator'",
        "roles_claim = 'groups'\n[issuer.roles]\nadmins = 'root'",
        "unknown = 1",
        "[[issuer]]\nurl = 'https://a/x'\naudience = 'c'",
        "[[issuer]]\nurl = 'https://b'\naudience = ''",
        "[[issuer]]\nurl = 'https://b'",
        "[[issuer]]\nurl = 'http://b'\naudience = 'c'",
        "[[issuer]]\nurl = 'http://127.0.0.1.b'\naudience = 'c'",
        "[[issuer]]\nurl = 'http://127.0.0.1@b'\naudience = 'c'",
        "[[issuer]]\nurl = 'https://u:p@b'\naudience = 'c'",
        "[[issuer]]\nurl = 'https://b?x=1'\naudience = 'c'",
        "[[issuer]]\nurl = 'https://b#x'\naudience = 'c'",
        "[[issuer]]\nurl = 'https://'\naudience = 'c'",
        "[[issuer]]\nurl = 'file:///b'\naudience = 'c'",
        "[[issuer]]\nurl = 'b'\naudience = 'c'",
    ] {
        assert!(Configuration::parse(&issuer(wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn the_description_of_the_api_is_fixed() {
    let path = "src/golden/openapi.json";
    let text = serde_json::to_string_pretty(&crate::openapi()).unwrap() + "\n";
    if std::env::var_os("ATOLL_UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        text == golden,
        "callers rely on it; ATOLL_UPDATE_GOLDEN writes it anew"
    );
}

#[test]
fn the_description_names_each_parameter_where_it_is() {
    let description = crate::openapi();
    let paths = description["paths"].as_object().unwrap();
    assert!(paths.len() > 15, "{paths:?}");
    for (path, methods) in paths {
        let in_path: Vec<&str> = path
            .split('{')
            .skip(1)
            .map(|rest| rest.split('}').next().unwrap())
            .collect();
        for (method, one) in methods.as_object().unwrap() {
            let parameters = one["parameters"].as_array().cloned().unwrap_or_default();
            let told = parameters
                .iter()
                .filter(|parameter| parameter["in"] == "path");
            let told: Vec<&str> = told
                .map(|parameter| parameter["name"].as_str().unwrap())
                .collect();
            assert_eq!(told, in_path, "{method} {path}");
        }
    }
}
