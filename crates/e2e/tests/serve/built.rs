//! Builds of templates: what they report, and the list of what was built.

use std::fs;

use e2e::{Avoidable, World};
use rustix::process::geteuid;
use serde_json::json;

use super::{LONG, Server};

#[test]
fn built_interpreter_is_listed() {
    let world = World::new("built_interpreter_is_listed");
    let none = world.atoll(["template", "list"]).run().expect_status(125);
    let _ = none.is_clear_error(["no key is set"]);
    let built = world.state().join("served/templates/code-interpreter-v1/3");
    fs::create_dir_all(built.join("site")).unwrap();
    let told = world.atoll(["template", "list"]).run().success();
    assert!(
        told.out().contains("code-interpreter-v1  build 3"),
        "{told}"
    );
    let server = Server::start(&world);
    let (_, list) = server.ask(&world, "GET", "/v1/templates", "");
    assert_eq!(list[0]["id"], "code-interpreter-v1", "{list}");
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
    // To E2B's SDKs it is no template of the team's.
    let (_, list) = server.ask(&world, "GET", "/templates", "");
    assert_eq!(list, json!([]));
    let _ = server.end();
}

#[test]
fn unreached_registry_is_named() {
    let world = World::new("unreached_registry_is_named");
    if !geteuid().is_root() {
        return world.skip("only root takes the network away", Avoidable::No);
    }
    let build = world.atoll(["template", "build", "code-interpreter-v1", "six"]);
    let build = build.under(["unshare", "--net", "--"]).within(LONG);
    let failed = build.run().expect_status(125);
    let _ = failed.is_clear_error(["PyPI could not be reached", "has to reach pypi.org"]);
}
