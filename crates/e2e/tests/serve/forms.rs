//! The forms of requests and answers that strangers try first.

use e2e::World;
use serde_json::json;

use super::{LONG, Server};

/// Makes a request; returns the head and the body of the answer.
fn whole(server: &Server, world: &World, method: &str, path: &str, body: &str) -> String {
    let curl = world.host("curl").args(["-sS", "-i", "-X", method]);
    let curl = curl.args(["-H", &format!("X-API-Key: {}", server.key), "-d", body]);
    let curl = curl.arg(format!("{}{path}", server.url));
    curl.within(LONG).run().success().out().replace('\r', "")
}

#[test]
fn bodies_that_are_no_objects_make_nothing() {
    let world = World::new("bodies_that_are_no_objects_make_nothing");
    let server = Server::start(&world);
    for path in ["/v1/sandboxes", "/v2/sandboxes", "/sandboxes"] {
        for body in [
            "[]",
            " [\"base\"]",
            "null",
            "3",
            "\"base\"",
            r#"{"network":[]}"#,
        ] {
            let (status, told) = server.ask(&world, "POST", path, body);
            assert_eq!(status, 400, "{path} {body}: {told}");
        }
    }
    let (status, told) = server.ask(&world, "POST", "/v2/sandboxes", r#"{"autoResume":[]}"#);
    assert_eq!(status, 400, "{told}");
    assert_eq!(server.listed(&world), Vec::<String>::new());
    let _ = server.end();
}

#[test]
fn other_methods_are_told_with_those_allowed() {
    let world = World::new("other_methods_are_told_with_those_allowed");
    let server = Server::start(&world);
    for (path, allow) in [
        ("/v1/sandboxes", ["GET", "POST"]),
        ("/v1/sandboxes/i1", ["GET", "DELETE"]),
        ("/v2/sandboxes", ["GET", "POST"]),
        ("/sandboxes/i1", ["GET", "DELETE"]),
    ] {
        let told = whole(&server, &world, "PUT", path, "{}");
        let line = told
            .lines()
            .find(|line| line.to_lowercase().starts_with("allow:"));
        let line = line.unwrap_or_else(|| panic!("{path}: {told}"));
        assert!(told.starts_with("HTTP/1.1 405"), "{path}: {told}");
        assert!(allow.iter().all(|one| line.contains(one)), "{path}: {told}");
    }
    let unknown = whole(&server, &world, "PUT", "/v1/no-such", "{}");
    assert!(unknown.starts_with("HTTP/1.1 404"), "{unknown}");
    let _ = server.end();
}

#[test]
fn answers_carry_what_was_decided() {
    let world = World::new("answers_carry_what_was_decided");
    let toml = "network = 'closed'\n[quota]\npaused = 1\n[warm]\nsandboxes = 0\n";
    world.write("serve.toml", toml);
    let server = Server::with(&world, &["--config", "serve.toml"]);
    let told = whole(&server, &world, "POST", "/v1/sandboxes", "{}");
    assert!(told.contains("atoll-network: closed"), "{told}");
    let ids: Vec<String> = (0..2).map(|_| server.make(&world).0).collect();
    let pause = |id: &str| {
        let path = format!("/v1/sandboxes/{id}/pause");
        whole(&server, &world, "POST", &path, r#"{"memory":false}"#)
    };
    let told = pause(&ids[0]);
    assert!(told.contains("atoll-kept: files"), "{told}");
    let told = pause(&ids[1]);
    let is_told = told.starts_with("HTTP/1.1 429") && told.contains("retry-after: ");
    assert!(is_told, "{told}");
    let connect = format!("/v1/sandboxes/{}/connect", ids[0]);
    let told = whole(&server, &world, "POST", &connect, "{}");
    assert!(told.contains("atoll-network: closed"), "{told}");
    let _ = server.end();
}

#[test]
fn creates_live_as_long_as_documented() {
    let world = World::new("creates_live_as_long_as_documented");
    let server = Server::start(&world);
    for path in ["/sandboxes", "/v2/sandboxes", "/v1/sandboxes"] {
        let (status, made) = server.ask(&world, "POST", path, "{}");
        assert_eq!(status, 201, "{made}");
        let id = made["sandboxID"]
            .as_str()
            .or(made["sandbox"]["id"].as_str());
        let path = format!("/v1/sandboxes/{}", id.unwrap());
        let (_, facts) = server.ask(&world, "GET", &path, "");
        let ms = |name: &str| facts[name].as_u64().unwrap();
        let life = ms("ends_ms") - ms("started_ms");
        assert!((299_000..=301_000).contains(&life), "{path}: {facts}");
    }
    let _ = server.end();
}

#[test]
fn names_of_creates_keep_no_more_than_an_id() {
    let world = World::new("names_of_creates_keep_no_more_than_an_id");
    let server = Server::start(&world);
    let note = "x".repeat(4_000);
    let notes: serde_json::Map<_, _> = (0..60)
        .map(|number| (format!("note-{number}"), json!(note)))
        .collect();
    world.write("body", json!({ "metadata": notes }).to_string());
    let make = || {
        let curl = world
            .host("curl")
            .args(["-sS", "-H", "Idempotency-Key: one"]);
        let curl = curl.args(["-H", &format!("X-API-Key: {}", server.key)]);
        let curl = curl.args(["-d", "@body"]);
        let curl = curl.arg(format!("{}/v1/sandboxes", server.url));
        curl.within(LONG).run().success().json()
    };
    let first = make();
    let id = first["sandbox"]["id"].as_str().unwrap();
    assert_eq!(make(), first);
    // What it is described by is its own, and goes with it.
    let (status, _) = server.ask(&world, "DELETE", &format!("/v1/sandboxes/{id}"), "");
    assert_eq!(status, 200);
    let again = make();
    let told = again["detail"].as_str().unwrap_or_default();
    assert!(told.contains(id) && told.contains("has ended"), "{again}");
    let _ = server.end();
}
