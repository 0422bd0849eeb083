//! The command line for what a tenant keeps at a server: templates, snapshots, volumes.

use e2e::{Outcome, World, wait_until};
use serde_json::{Value, json};

use super::{LONG, Server, key_of_another};

fn client(world: &World, server: &Server, key: &str, arguments: &[&str]) -> Outcome {
    let client = world.atoll(arguments).within(LONG);
    let client = client.env("ATOLL_URL", &server.url);
    client.env("ATOLL_API_KEY", key).run()
}

/// Builds a template of a step; returns its status and its id.
fn build(world: &World, server: &Server, name: &str) -> (u32, String) {
    let ask = json!({ "name": name }).to_string();
    let (status, begun) = server.ask(world, "POST", "/v3/templates", &ask);
    let text = |of: &str| begun[of].as_str().unwrap_or_default().to_owned();
    let at = format!(
        "templates/{}/builds/{}",
        text("templateID"),
        text("buildID")
    );
    if status != 202 {
        return (status, String::new());
    }
    let plan = json!({ "steps": [{ "type": "RUN", "args": ["true"] }] }).to_string();
    let (status, _) = server.ask(world, "POST", &format!("/v2/{at}"), &plan);
    wait_until("the build", LONG, || {
        let (_, told) = server.ask(world, "GET", &format!("/{at}/status"), "");
        (told["status"] == "ready").then_some(())
    });
    (status, text("templateID"))
}

#[test]
fn templates_and_snapshots_are_listed_and_removed_at_the_command_line() {
    let world = World::new("templates_and_snapshots_are_listed_and_removed_at_the_command_line");
    let server = Server::start(&world);
    let other = key_of_another(&world);
    let own = |arguments: &[&str]| client(&world, &server, &server.key, arguments);
    let id = own(&["sandbox", "create"]).success().out();
    let id = id.trim();
    let named = |name: &str| own(&["sandbox", "snapshot", id, "--name", name, "--json"]);
    let first = named("mine").success().json();
    assert_eq!(
        (&first["name"], &first["sandbox"]),
        (&json!("mine"), &json!(id))
    );
    let _ = named("mine")
        .expect_status(125)
        .is_clear_error(["there is a snapshot \"mine\" already", "another name"]);
    let first = first["id"].as_str().unwrap();
    let _ = named(first).expect_status(125).is_clear_error(["already"]);
    let _ = named("base")
        .expect_status(125)
        .is_clear_error(["shipped template"]);
    assert_eq!(build(&world, &server, "mine").0, 409);
    let (status, template) = build(&world, &server, "built");
    assert_eq!(status, 202);
    let _ = named("built")
        .expect_status(125)
        .is_clear_error(["there is a template"]);
    // The same name is free for another tenant.
    let strange = |arguments: &[&str]| client(&world, &server, &other, arguments);
    let strangers = strange(&["sandbox", "create"]).success().out();
    let _ = strange(&["sandbox", "snapshot", strangers.trim(), "--name", "mine"]).success();
    for kind in ["snapshot", "template"] {
        let listed = own(&[kind, "list"]).success();
        let all = own(&[kind, "list", "--json"]).success().json();
        assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
        let (expected, name) = match kind {
            "snapshot" => (first, "mine"),
            _ => (template.as_str(), "built"),
        };
        assert_eq!(
            (&all[0]["id"], &all[0]["name"]),
            (&json!(expected), &json!(name))
        );
        assert!(listed.out().contains(expected), "{listed}");
        let _ = strange(&[kind, "delete", expected])
            .expect_status(125)
            .is_clear_error(["there is no template"]);
        let _ = own(&[kind, "delete", name]).success();
        assert_eq!(own(&[kind, "list"]).success().out(), "");
        let _ = own(&[kind, "delete", name]).expect_status(125);
    }
    // Once it is gone the name is free.
    let _ = named("mine").success();
    let forks = own(&["sandbox", "fork", id, "--count", "2", "--json"]);
    let forks = forks.success().json();
    let made = |one: &Value| one["created"]["sandbox"]["id"].is_string();
    assert!(
        forks
            .as_array()
            .is_some_and(|all| all.len() == 2 && all.iter().all(made))
    );
    let _ = server.end();
}

#[test]
fn a_volume_in_use_says_who_uses_it() {
    let world = World::new("a_volume_in_use_says_who_uses_it");
    let server = Server::start(&world);
    let own = |arguments: &[&str]| client(&world, &server, &server.key, arguments);
    let zero = own(&["volume", "create", "models", "--size", "0"]).expect_status(125);
    let _ = zero.is_clear_error(["--size 0 is no size", "512M"]);
    let _ = own(&["volume", "create", "models"]).success();
    let mount = |access: &str| {
        let volume = format!("models:/mnt/models{access}");
        let made = own(&["sandbox", "create", "--volume", &volume]).success();
        made.out().trim().to_owned()
    };
    let (writer, reader) = (mount(""), mount(":ro"));
    let refused = own(&["volume", "delete", "models"]).expect_status(125);
    let _ = refused.is_clear_error(["in use", writer.as_str(), reader.as_str()]);
    let refused = own(&["volume", "snapshot", "models"]).expect_status(125);
    let _ = refused.is_clear_error(["changed just now", writer.as_str()]);
    for id in [&writer, &reader] {
        let _ = own(&["sandbox", "kill", id]).success();
    }
    let _ = own(&["volume", "delete", "models"]).success();
    let _ = server.end();
}
